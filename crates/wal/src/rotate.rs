//! One segment after the other: beginning the next, making files ahead of their use, letting go
//! of what a checkpoint contains. Nobody who commits waits for any of it while a file is ready.

use std::path::{Path, PathBuf};

use crate::Lsn;
use crate::directory::Segment;
use crate::error::{Error, Result};
use crate::maker::{Begin, Filling, Ready, SegmentMaker};
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
    /// it made one. May write a whole segment to the disk.
    pub fn prepare(&self) -> Result<bool> {
        self.prepare_to(u64::MAX)
    }

    /// As [`Wal::prepare`], piece by piece: it fills as much of the file as is due, given how much of the
    /// segment in use is full, and says whether the file is ready by this call. For a background thread,
    /// several times a second: filling a file at once takes the whole disk, and whoever syncs meanwhile waits.
    pub fn prepare_due(&self) -> Result<bool> {
        let segment = self.writer.lock().segment().header;
        let used = self.written_lsn().saturating_sub(segment.first_lsn);
        self.prepare_to(fill_due(used, segment.body_bytes, self.options.file_bytes()))
    }

    /// Makes a file, once so many bytes of it are filled where it has to be filled.
    fn prepare_to(&self, due: u64) -> Result<bool> {
        self.check_running()?;
        let Some(mut filling) = self.preparing.try_lock() else { return Ok(false) };
        if self.options.recycle == 0 || self.are_names_held() {
            return Ok(false);
        }
        let has_spare = {
            let writer = self.writer.lock();
            if !writer.ready.is_empty() {
                return Ok(false);
            }
            !writer.spares.is_empty()
        };
        if !has_spare && !self.fill(&mut filling, due)? {
            return Ok(false);
        }
        self.make_file(Priority::Ordinary, &mut filling)?;
        Ok(true)
    }

    /// Goes on with the file that is being filled, or begins one; says whether it is full.
    fn fill(&self, filling: &mut Option<Filling>, due: u64) -> Result<bool> {
        let maker = self.maker();
        let mut file = if let Some(file) = filling.take() {
            file
        } else {
            self.check_free(Priority::Ordinary)?;
            maker.begin_filling()?
        };
        file.fill(due).inspect_err(|_| maker.forget(file.path()))?;
        let is_full = file.is_full();
        *filling = Some(file);
        Ok(is_full)
    }

    /// Makes files until there are some for everything before `until`. Waits for the disk.
    #[cold]
    pub(crate) fn make_files(&self, until: Lsn, priority: Priority) -> Result<()> {
        let mut filling = self.preparing.lock();
        while self.limit.load(Ordering::Acquire) < until {
            self.check_running()?;
            self.make_file(priority, &mut filling).map_err(|e| self.stop_unless_full(e))?;
        }
        Ok(())
    }

    /// Makes the file behind those that are ready: of a spare, of the one that is being filled, however far
    /// that is, or anew. The caller holds `preparing`.
    fn make_file(&self, priority: Priority, filling: &mut Option<Filling>) -> Result<()> {
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
        } else if let Some(filled) = filling.take_if(|_| !self.are_names_held()) {
            filled.into_path()
        } else {
            self.check_free(priority)?;
            maker.empty(number)?
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

    /// Removes the old files that wait to be used again, and the one that is being filled; says how many
    /// bytes they were long. For a disk that is short of space. None while names are held.
    pub fn remove_spares(&self) -> Result<u64> {
        self.check_running()?;
        let mut filling = self.preparing.lock();
        if self.are_names_held() {
            return Ok(0);
        }
        let mut unwanted = std::mem::take(&mut self.writer.lock().spares);
        unwanted.extend(filling.take().map(Filling::into_path));
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

/// How much of the next segment's file is to be filled, given how much of the segment in use is: nothing up to an eighth of
/// it, all from five eighths on, evenly between. Bytes.
fn fill_due(used: u64, body_bytes: u64, file_bytes: u64) -> u64 {
    let (from, over) = (body_bytes / 8, (body_bytes / 2).max(1));
    let due = u128::from(used.saturating_sub(from)) * u128::from(file_bytes) / u128::from(over);
    u64::try_from(due).map_or(file_bytes, |due| due.min(file_bytes))
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

#[cfg(test)]
mod tests {
    use super::fill_due;

    #[test]
    fn a_file_is_filled_while_the_one_before_it_is_used() {
        let due = |used| fill_due(used, 800, 1000);
        assert_eq!([0, 100, 300, 499, 500, 800].map(due), [0, 0, 500, 997, 1000, 1000]);
        assert_eq!(fill_due(1, 1, 1000), 1000);
        assert_eq!(fill_due(u64::MAX, 1 << 40, 1 << 40), 1 << 40);
        assert_eq!(fill_due(0, 0, 1000), 0);
    }
}
