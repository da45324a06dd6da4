//! One segment after the other: beginning the next, making files ahead of their use, letting go
//! of what a checkpoint contains. Nobody who commits waits for any of it while a file is ready.

use std::path::{Path, PathBuf};

use crate::Lsn;
use crate::directory::Segment;
use crate::error::{Error, Result};
use crate::maker::{Begin, Ready, SegmentMaker};
use crate::segment::{HEADER_BYTES, segment_name};
use crate::writer::{Priority, Wal, Writer};
use os::sync::atomic::Ordering;

impl Wal {
    /// The segment in use is full: make it safe, then begin the next one.
    pub(crate) fn next_segment(&self, writer: &mut Writer) -> Result<()> {
        let full = writer.segment().header;
        let written = self.written_lsn();
        assert_eq!(written, full.end_lsn(), "a segment is left where it is full");
        self.sync_file(&*writer.file)?;
        self.synced.fetch_max(full.end_lsn(), Ordering::AcqRel);
        let begin = Begin {
            number: full.number + 1,
            salt: self.salt,
            first_lsn: full.end_lsn(),
            previous: full.number,
            key: full.key,
        };
        let ready = writer.ready.front().expect("nothing is appended without a file for it");
        // where it fails for want of space the file stays ready for the next try
        let begun = self.maker().begin(begin, ready);
        let segment = begun.map_err(|e| self.stop_unless_full(e))?;
        writer.segments.push_back(segment);
        writer.file = ready.file.clone();
        writer.ready.pop_front();
        Ok(())
    }

    /// Whether [`Wal::prepare`] should be called now: an old file is at hand, or an eighth of the
    /// segment in use is full.
    pub fn wants_file(&self) -> bool {
        let writer = self.writer.lock();
        let segment = writer.segment().header;
        let filled = self.written_lsn().saturating_sub(segment.first_lsn);
        let soon = !writer.spares.is_empty() || filled > segment.body_bytes / 8;
        self.options.recycle > 0 && writer.ready.is_empty() && soon
    }

    /// Bytes of the file that will be made next, where less than one is ahead; otherwise 0.
    pub fn next_file_bytes(&self) -> u64 {
        let ahead = self.limit.load(Ordering::Acquire).saturating_sub(self.next_lsn());
        let bytes = self.options.file_bytes();
        if ahead < bytes { bytes } else { 0 }
    }

    /// Makes the file of the next segment ready, from an old one or filled with zeros, so that who
    /// fills the segment in use waits for little, later syncs write no file metadata, and a full
    /// disk still has room for as many bytes of log. Does nothing where one is ready; says whether
    /// it made one. For a background thread, often; may write a whole segment to the disk.
    pub fn prepare(&self) -> Result<bool> {
        self.check_running()?;
        let Some(_alone) = self.preparing.try_lock() else { return Ok(false) };
        if self.options.recycle == 0
            || self.are_names_held()
            || !self.writer.lock().ready.is_empty()
        {
            return Ok(false);
        }
        self.make_file(Priority::Ordinary, |maker, _| maker.fill())?;
        Ok(true)
    }

    /// Makes files until there are some for everything before `until`. Waits for the disk.
    #[cold]
    pub(crate) fn make_files(&self, until: Lsn, priority: Priority) -> Result<()> {
        let _alone = self.preparing.lock();
        while self.limit.load(Ordering::Acquire) < until {
            self.check_running()?;
            #[expect(
                clippy::redundant_closure_for_method_calls,
                reason = "the method's path is of one lifetime, and the argument is of all"
            )]
            let made = self.make_file(priority, |maker, number| maker.empty(number));
            made.map_err(|e| self.stop_unless_full(e))?;
        }
        Ok(())
    }

    /// Makes the file behind those that are ready, of a spare or as `new` does. The caller holds
    /// `preparing`.
    fn make_file(
        &self,
        priority: Priority,
        new: fn(&SegmentMaker<'_>, u64) -> Result<PathBuf>,
    ) -> Result<()> {
        let (number, spare) = {
            let mut writer = self.writer.lock();
            // Beginning a segment moves a file from one list to the other, so that this stays.
            let number = writer.segment().header.number + 1 + writer.ready.len() as u64;
            let path = self.dir.join(segment_name(number));
            // A copy of the directory needs the other spares under the names that they have.
            let best = if self.are_names_held() {
                writer.spares.iter().position(|spare| *spare == path)
            } else {
                SegmentMaker::best(&path, &writer.spares)
            };
            (number, best.map(|at| writer.spares.remove(at)))
        };
        let recycled = spare.is_some();
        let maker = self.maker();
        let from = if let Some(spare) = spare {
            spare
        } else {
            self.check_free(priority)?;
            new(&maker, number)?
        };
        let made = self.make_ready(&maker, number, &from);
        if made.is_ok() {
            self.count_segment(recycled);
        } else {
            self.writer.lock().spares.push(from);
        }
        made
    }

    /// Whether there is room for a new file beside what is to stay free.
    fn check_free(&self, priority: Priority) -> Result<()> {
        let keep_free = self.keep_free.load(Ordering::Relaxed);
        if keep_free == 0 || priority == Priority::GivesSpaceBack {
            return Ok(());
        }
        let space = self.os.vfs.space(&self.dir).map_err(|e| Error::io("size of", &self.dir, e))?;
        if space.available < keep_free.saturating_add(self.options.file_bytes()) {
            return Err(Error::NoSpace { file: self.dir.clone() });
        }
        Ok(())
    }

    fn make_ready(&self, maker: &SegmentMaker<'_>, number: u64, from: &Path) -> Result<()> {
        let file = maker.reserve(from)?;
        let mut writer = self.writer.lock();
        let ready = maker.name(number, from, file)?;
        // A spare that had the name is gone: the file that has it now is no spare.
        writer.spares.retain(|spare| *spare != ready.path);
        let last = writer.ready.back().map_or(writer.segment().header.number, |last| last.number);
        assert_eq!(number, last + 1, "files are made ready in their order");
        writer.ready.push_back(ready);
        self.limit.fetch_add(self.options.file_bytes() - HEADER_BYTES as u64, Ordering::AcqRel);
        drop(writer);
        // a failure leaves the sync to whoever begins the segment
        if maker.sync_names().is_ok()
            && let Some(ready) = self.writer.lock().ready.iter_mut().find(|r| r.number == number)
        {
            ready.named = true;
        }
        Ok(())
    }

    /// Removes the old files that wait to be used again; says how many bytes they were long. For a
    /// disk that is short of space. None while names are held.
    pub fn remove_spares(&self) -> Result<u64> {
        self.check_running()?;
        let _alone = self.preparing.lock();
        if self.are_names_held() {
            return Ok(0);
        }
        let unwanted = std::mem::take(&mut self.writer.lock().spares);
        let mut bytes = 0;
        for path in &unwanted {
            let file = self.os.vfs.open(path, os::OpenOptions::read_only());
            bytes += file.and_then(|file| file.len()).unwrap_or(0);
            self.os.vfs.remove_file(path).map_err(|e| Error::io("remove", path, e))?;
        }
        if !unwanted.is_empty() {
            self.maker().sync_names()?;
        }
        Ok(bytes)
    }

    /// Lets go of whole segments before `lsn`, which a completed checkpoint contains. Touches the
    /// disk. While names are held the files stay, as spares.
    pub fn trim(&self, lsn: Lsn) -> Result<()> {
        self.check_running()?;
        let unwanted: Vec<PathBuf> = {
            let mut writer = self.writer.lock();
            while writer.segments.len() > 1 && writer.segments[1].header.first_lsn <= lsn {
                let oldest = writer.segments.pop_front().map(|segment| segment.path);
                writer.spares.extend(oldest);
            }
            let first = writer.segments.front().map(|segment| segment.header.first_lsn);
            assert!(first.is_some(), "the segment in use stays");
            let more = if self.are_names_held() {
                0
            } else {
                writer.spares.len().saturating_sub(self.options.recycle)
            };
            writer.spares.drain(..more).collect()
        };
        for path in &unwanted {
            self.os.vfs.remove_file(path).map_err(|e| Error::io("remove", path, e))?;
        }
        if unwanted.is_empty() { Ok(()) } else { self.maker().sync_names() }
    }

    /// From here to [`Wal::release_names`] every file in the directory keeps its name, so that whoever
    /// copies the directory finds what he has listed; and none is made ahead of its use, so that the
    /// directory stays as it is while nobody appends. Waits for a file that is being made. A trim that
    /// runs meanwhile may still remove files.
    pub fn hold_names(&self) {
        self.names_held.fetch_add(1, Ordering::AcqRel);
        drop(self.preparing.lock());
    }

    /// Takes back one [`Wal::hold_names`].
    pub fn release_names(&self) {
        let before = self.names_held.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "names are released as often as they are held");
    }

    fn are_names_held(&self) -> bool {
        self.names_held.load(Ordering::Acquire) > 0
    }

    fn maker(&self) -> SegmentMaker<'_> {
        SegmentMaker { os: &self.os, dir: &self.dir, options: self.options }
    }

    fn count_segment(&self, recycled: bool) {
        let Self { metrics, .. } = self;
        (if recycled { &metrics.segments_recycled } else { &metrics.segments_made }).inc();
    }
}

/// The first segment of an epoch, on disk when this returns. `last` is the one before: where the disk
/// has no room for a file, what is behind the log's end in it makes room.
pub(crate) fn begin_epoch(
    maker: &SegmentMaker<'_>,
    begin: Begin,
    spares: &mut Vec<PathBuf>,
    last: Option<&Segment>,
) -> Result<(Segment, Ready, bool)> {
    let (body_bytes, ready, recycled) = match (maker.make(begin.number, spares), last) {
        (Err(Error::NoSpace { .. }), Some(last)) => maker.make_short(begin, spares, last)?,
        (made, _) => made?,
    };
    let segment = maker.begin_with(begin, &ready, body_bytes)?;
    ready.file.sync_all().map_err(|e| Error::io("sync", &segment.path, e))?;
    Ok((segment, ready, recycled))
}
