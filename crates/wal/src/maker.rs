//! Making segment files: the order in which space, name and header reach the disk.
//!
//! Space and name may come long before the header; then beginning a segment is one small write.
//! The header needs no sync of its own: it follows the sync of the segment before, and nothing
//! behind it counts before a sync of its file, which takes the header along.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use os::{AlignedBuf, DIRECT_ALIGN, File, OpenOptions, Os};

use crate::directory::Segment;
use crate::error::{Error, Result};
use crate::segment::{HEADER_BYTES, PREPARED_NAME, SegmentHeader, segment_name};
use crate::{Lsn, WalOptions};

/// A file without a header is filled in steps, each synced, so that no other sync meets all of it.
const FILL_BYTES: usize = 4 << 20;

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
}

/// A file that has its space, on disk, and under its name waits to be begun.
pub(crate) struct Ready {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    /// The name is on disk.
    pub(crate) named: bool,
}

impl SegmentMaker<'_> {
    /// Opens a file that is to become a segment, with exactly its length, the space on disk.
    pub(crate) fn reserve(&self, path: &Path) -> Result<Arc<dyn File>> {
        let bytes = self.options.file_bytes();
        let failed = |what| move |e| Error::io(what, path, e);
        let file = self.os.vfs.open(path, OpenOptions::create()).map_err(failed("make"))?;
        if file.len().map_err(failed("size of"))? > bytes {
            file.set_len(bytes).map_err(failed("cut"))?;
        }
        file.allocate(0, bytes).map_err(failed("reserve"))?;
        file.sync_all().map_err(failed("sync"))?;
        Ok(file)
    }

    /// Makes a file of zeros, so that later syncs of it write no metadata. Past the page cache where
    /// that can be: else all of the file would be allocated there once for the zeros.
    pub(crate) fn fill(&self) -> Result<PathBuf> {
        let path = self.dir.join(PREPARED_NAME);
        let failed = |what| {
            let path = path.clone();
            move |e| Error::io(what, &path, e)
        };
        let bytes = self.options.file_bytes();
        let options = OpenOptions { truncate: true, ..OpenOptions::create() };
        let options = options.with_direct(bytes.is_multiple_of(DIRECT_ALIGN as u64));
        let file = self.os.vfs.open(&path, options).map_err(failed("make"))?;
        file.allocate(0, bytes).map_err(failed("reserve"))?;
        let zeros = AlignedBuf::zeroed(FILL_BYTES.min(bytes as usize));
        let mut offset = 0;
        while offset < bytes {
            let len = zeros.len().min((bytes - offset) as usize);
            file.write_all_at(&zeros[..len], offset).map_err(failed("fill"))?;
            file.sync_data().map_err(failed("sync"))?;
            offset += len as u64;
        }
        Ok(path)
    }

    /// A half-made file is of no use, and a full disk needs its space.
    pub(crate) fn forget_prepared(&self) {
        // Where it stays it is a spare at the next start.
        let _gone = self.os.vfs.remove_file(&self.dir.join(PREPARED_NAME));
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

    /// A ready file for segment `number`, from a spare where there is one; says whether it was.
    /// Waits for the disk.
    pub(crate) fn make(&self, number: u64, spares: &mut Vec<PathBuf>) -> Result<(Ready, bool)> {
        let path = self.dir.join(segment_name(number));
        // a full disk must not cost the spare: it leaves the list when all is done
        let spare = Self::best(&path, spares);
        let from = spare.map_or_else(|| path.clone(), |at| spares[at].clone());
        let file = self.reserve(&from)?;
        let ready = self.name(number, &from, file)?;
        if let Some(at) = spare {
            spares[at].clone_from(&path);
        }
        self.sync_names()?;
        if let Some(at) = spare {
            spares.remove(at);
        }
        Ok((Ready { named: true, ..ready }, spare.is_some()))
    }

    /// Begins the segment of a ready file.
    pub(crate) fn begin(&self, begin: Begin, ready: &Ready) -> Result<Segment> {
        let Begin { number, salt, first_lsn, previous } = begin;
        assert_eq!(number, ready.number, "a file is made ready for the next segment");
        if !ready.named {
            self.sync_names()?;
        }
        let body_bytes = self.options.file_bytes() - HEADER_BYTES as u64;
        let header = SegmentHeader { number, salt, first_lsn, body_bytes, previous };
        let path = ready.path.clone();
        let written = ready.file.write_all_at(&header.encode(), 0);
        written.map_err(|e| Error::io("write", &path, e))?;
        Ok(Segment { path, header })
    }
}
