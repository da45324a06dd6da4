//! Making segment files: the order in which space, name and header reach the disk.
//!
//! Space and name may come long before the header; then beginning a segment is one small write.
//! The header needs no sync of its own: it follows the sync of the segment before, and nothing
//! behind it counts before a sync of its file, which takes the header along.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use os::{AlignedBuf, DIRECT_ALIGN, File, OpenOptions, Os};

use crate::directory::{Segment, read_up_to};
use crate::error::{Error, Result};
use crate::segment::{
    EpochKey, HEADER_BYTES, PREPARED_NAME, SegmentHeader, free_mark, segment_name,
};
use crate::{Lsn, WalOptions};

/// A file without a header is filled in steps, each synced, so that no other sync meets all of it.
const FILL_BYTES: usize = 1 << 20;
/// The unit in which filesystems hand out space.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// A segment on a full disk is at least so long: room for some drops of collections.
const SHORTEST_BYTES: u64 = BLOCK_BYTES;

/// Makes segment files, from spare ones where there are some.
pub(crate) struct SegmentMaker<'a> {
    pub(crate) os: &'a Os,
    pub(crate) dir: &'a Path,
    pub(crate) options: WalOptions,
}

/// What a new segment's header will say.
#[derive(Clone, Copy)]
pub(crate) struct Begin {
    pub(crate) number: u64,
    pub(crate) salt: u64,
    pub(crate) first_lsn: Lsn,
    pub(crate) previous: u64,
    pub(crate) key: Option<EpochKey>,
}

/// A file that has its space, on disk, and under its name waits to be begun.
pub(crate) struct Ready {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    /// The name is on disk.
    pub(crate) named: bool,
}

/// A file that has its space and is filled with zeros piece by piece, so that later syncs of it write no metadata. Past the
/// page cache where that can be: else all of the file would be allocated there once for the zeros.
pub(crate) struct Filling {
    path: PathBuf,
    file: Arc<dyn File>,
    filled: u64,
    bytes: u64,
}

impl Filling {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn into_path(self) -> PathBuf {
        self.path
    }

    pub(crate) fn is_full(&self) -> bool {
        self.filled >= self.bytes
    }

    /// Fills at least so many bytes from the file's begin on, all of it at most; they are on disk then.
    pub(crate) fn fill(&mut self, until: u64) -> Result<()> {
        let path = &*self.path;
        let failed = |what| move |e| Error::io(what, path, e);
        let until = until.min(self.bytes);
        if self.filled >= until {
            return Ok(());
        }
        let zeros = AlignedBuf::zeroed(FILL_BYTES.min(self.bytes as usize));
        while self.filled < until {
            let len = zeros.len().min((self.bytes - self.filled) as usize);
            self.file.write_all_at(&zeros[..len], self.filled).map_err(failed("fill"))?;
            self.file.sync_data().map_err(failed("sync"))?;
            self.filled += len as u64;
        }
        Ok(())
    }
}

impl SegmentMaker<'_> {
    pub(crate) fn body_bytes(&self) -> u64 {
        self.options.file_bytes() - HEADER_BYTES as u64
    }

    /// Opens a file that is to become a segment, with exactly its length, the space on disk.
    pub(crate) fn reserve(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.reserve_bytes(path, self.options.file_bytes())
    }

    fn reserve_bytes(&self, path: &Path, bytes: u64) -> Result<Arc<dyn File>> {
        let failed = |what| move |e| Error::io(what, path, e);
        let file = self.os.vfs.open(path, OpenOptions::create()).map_err(failed("make"))?;
        let before = file.len().map_err(failed("size of"))?;
        if before > bytes {
            // Whoever reads the log's history would find it in the chain after a crash, cut.
            self.forget_header(path)?;
            file.set_len(bytes).map_err(failed("cut"))?;
        }
        if let Err(e) = file.allocate(0, bytes) {
            // A filesystem may keep the part that it had room for.
            let _kept_as_it_is = file.set_len(before.min(bytes));
            return Err(Error::io("reserve", path, e));
        }
        file.sync_all().map_err(failed("sync"))?;
        Ok(file)
    }

    /// Makes a file that has its space and is not filled; answers its path.
    pub(crate) fn empty(&self, number: u64) -> Result<PathBuf> {
        let path = self.dir.join(segment_name(number));
        match self.reserve(&path) {
            Ok(_) => Ok(path),
            Err(e) => {
                self.forget(&path);
                Err(e)
            }
        }
    }

    /// Makes a file that has its space, and is to be filled with zeros.
    pub(crate) fn begin_filling(&self) -> Result<Filling> {
        let path = self.dir.join(PREPARED_NAME);
        match self.allocated(&path) {
            Ok(file) => Ok(Filling { path, file, filled: 0, bytes: self.options.file_bytes() }),
            Err(error) => {
                self.forget(&path);
                Err(error)
            }
        }
    }

    fn allocated(&self, path: &Path) -> Result<Arc<dyn File>> {
        let failed = |what| move |e| Error::io(what, path, e);
        let bytes = self.options.file_bytes();
        let options = OpenOptions { truncate: true, ..OpenOptions::create() };
        let options = options.with_direct(bytes.is_multiple_of(DIRECT_ALIGN as u64));
        let file = self.os.vfs.open(path, options).map_err(failed("make"))?;
        file.allocate(0, bytes).map_err(failed("reserve"))?;
        Ok(file)
    }

    /// A half-made file is of no use, and a full disk needs its space.
    pub(crate) fn forget(&self, path: &Path) {
        // Where it stays it is a spare at the next start.
        let _gone = self.os.vfs.remove_file(path);
    }

    /// Gives a reserved file its segment's name; not on disk before [`SegmentMaker::sync_names`].
    pub(crate) fn name(&self, number: u64, from: &Path, file: Arc<dyn File>) -> Result<Ready> {
        let path = self.dir.join(segment_name(number));
        if from != path {
            let renamed = self.os.vfs.rename(from, &path);
            renamed.map_err(|e| Error::io("rename a spare to", &path, e))?;
        }
        Ok(Ready { number, path, file, named: false })
    }

    /// Which spare is to become the segment of this path: the one that has its name, so that no other
    /// one takes its place under it.
    pub(crate) fn best(path: &Path, spares: &[PathBuf]) -> Option<usize> {
        let named = spares.iter().position(|spare| *spare == path);
        named.or(spares.len().checked_sub(1))
    }

    pub(crate) fn sync_names(&self) -> Result<()> {
        let synced = self.os.vfs.sync_dir(self.dir);
        synced.map_err(|e| Error::io("sync the directory of", self.dir, e))
    }

    /// A ready file for segment `number` and the length of its body, from a spare where there is one;
    /// says whether it was. On a full disk a spare serves as short as it is. Waits for the disk.
    pub(crate) fn make(
        &self,
        number: u64,
        spares: &mut Vec<PathBuf>,
    ) -> Result<(u64, Ready, bool)> {
        let path = self.dir.join(segment_name(number));
        // The best one first; on a full disk another one may have its space already, where that has
        // not. Until all is done it stays in the list.
        let best = Self::best(&path, spares);
        let others = (0..spares.len()).rev().filter(|at| Some(*at) != best);
        let candidates: Vec<usize> = best.into_iter().chain(others).collect();
        let full = self.options.file_bytes();
        let (mut longest, mut longest_bytes) = (None, full.min(SHORTEST_BYTES) - 1);
        for at in candidates {
            match self.reserve(&spares[at]) {
                Ok(file) => return self.use_spare(number, at, (full, file), spares),
                Err(Error::NoSpace { .. }) => {}
                Err(e) => return Err(e),
            }
            let bytes = self.length(&spares[at])?;
            if bytes > longest_bytes {
                (longest, longest_bytes) = (Some(at), bytes);
            }
        }
        let made =
            self.empty(number).and_then(|from| self.name(number, &from, self.reserve(&from)?));
        match (made, longest) {
            (Err(Error::NoSpace { .. }), Some(at)) => {
                let bytes = longest_bytes & !7;
                let file = self.reserve_bytes(&spares[at], bytes)?;
                self.use_spare(number, at, (bytes, file), spares)
            }
            (made, _) => {
                let ready = made?;
                spares.retain(|spare| *spare != path);
                self.sync_names()?;
                Ok((self.body_bytes(), Ready { named: true, ..ready }, false))
            }
        }
    }

    /// A spare of so many bytes becomes the file of a segment.
    fn use_spare(
        &self,
        number: u64,
        at: usize,
        (bytes, file): (u64, Arc<dyn File>),
        spares: &mut Vec<PathBuf>,
    ) -> Result<(u64, Ready, bool)> {
        let ready = self.name(number, &spares[at], file)?;
        spares.remove(at);
        // One that had the name is gone.
        spares.retain(|spare| *spare != ready.path);
        self.sync_names()?;
        Ok((bytes - HEADER_BYTES as u64, Ready { named: true, ..ready }, true))
    }

    /// Takes the header from a file that is no segment of the log any more, on disk. A start is to do so
    /// before it changes anything else: without the segments that it renames, an old header under its
    /// own name, or under one that the file gets, would count again.
    pub(crate) fn forget_header(&self, path: &Path) -> Result<()> {
        let failed = |e| Error::io("forget the header of", path, e);
        let file = match self.os.vfs.open(path, OpenOptions::default()) {
            // An earlier try to start, which found no space, has used it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(failed)?,
        };
        let mut header = [0; HEADER_BYTES];
        let len = read_up_to(&*file, &mut header, 0).map_err(failed)?;
        if SegmentHeader::is_one(&header[..len]) {
            file.write_all_at(&free_mark(), 0).map_err(failed)?;
        }
        // Also where there is none: a start whose process ended may have taken it, and not synced that.
        file.sync_all().map_err(failed)
    }

    fn length(&self, path: &Path) -> Result<u64> {
        let file = self.os.vfs.open(path, OpenOptions::read_only());
        file.and_then(|file| file.len()).map_err(|e| Error::io("size of", path, e))
    }

    /// A ready file where there is room for none: the last segment is cut behind the log's end, which
    /// is where the new one begins, and this one is as long as there is room then. What is cut was
    /// never complete.
    pub(crate) fn make_short(
        &self,
        begin: Begin,
        spares: &mut Vec<PathBuf>,
        last: &Segment,
    ) -> Result<(u64, Ready, bool)> {
        let failed = |what| move |e| Error::io(what, &last.path, e);
        let file = self.os.vfs.open(&last.path, OpenOptions::default()).map_err(failed("open"))?;
        let used = HEADER_BYTES as u64 + (begin.first_lsn - last.header.first_lsn);
        let kept = used.next_multiple_of(BLOCK_BYTES);
        if file.len().map_err(failed("size of"))? > kept {
            file.set_len(kept).map_err(failed("cut"))?;
            file.sync_all().map_err(failed("sync"))?;
        }
        let shortest = self.options.file_bytes().min(SHORTEST_BYTES);
        let half = |bytes: u64| (bytes / 2 / BLOCK_BYTES * BLOCK_BYTES).max(shortest);
        let mut bytes = half(self.options.file_bytes());
        loop {
            let options = WalOptions { segment_bytes: bytes, ..self.options };
            let short = SegmentMaker { options, ..*self };
            match short.make(begin.number, spares) {
                Err(Error::NoSpace { .. }) if bytes > shortest => bytes = half(bytes),
                made => return made,
            }
        }
    }

    /// Begins the segment of a ready file.
    pub(crate) fn begin(&self, begin: Begin, ready: &Ready) -> Result<Segment> {
        self.begin_with(begin, ready, self.body_bytes())
    }

    /// The same with a body of another length.
    pub(crate) fn begin_with(
        &self,
        begin: Begin,
        ready: &Ready,
        body_bytes: u64,
    ) -> Result<Segment> {
        let Begin { number, salt, first_lsn, previous, key } = begin;
        assert_eq!(number, ready.number, "a file is made ready for the next segment");
        if !ready.named {
            self.sync_names()?;
        }
        let header = SegmentHeader { number, salt, first_lsn, body_bytes, previous, key };
        let path = ready.path.clone();
        let written = ready.file.write_all_at(&header.encode(), 0);
        written.map_err(|e| Error::io("write", &path, e))?;
        Ok(Segment { path, header })
    }
}
