//! One segment after the other: beginning the next, making its file ahead of its use, letting go
//! of what a checkpoint contains. Nobody who commits waits for any of it while a file is ready.

use std::path::{Path, PathBuf};

use crate::Lsn;
use crate::error::{Error, Result};
use crate::maker::{Begin, Ready, SegmentMaker};
use crate::segment::segment_name;
use crate::writer::{Wal, Writer};
use os::sync::atomic::Ordering;

impl Wal {
    /// The segment in use is full: make it safe, then begin the next one.
    pub(crate) fn next_segment(&self, writer: &mut Writer) -> Result<()> {
        let full = writer.segment().header;
        self.sync_file(&*writer.file)?;
        self.synced.fetch_max(full.end_lsn(), Ordering::AcqRel);
        let maker = self.maker();
        let number = full.number + 1;
        if writer.ready.is_none() {
            let made = maker.make(number, &mut writer.spares);
            let (ready, recycled) = made.map_err(|e| self.stop_unless_full(e))?;
            self.count_segment(recycled);
            writer.ready = Some(ready);
        }
        let begin =
            Begin { number, salt: self.salt, first_lsn: full.end_lsn(), previous: full.number };
        // where it fails for want of space the file stays ready for the next try
        if let Some(ready) = &writer.ready {
            let begun = maker.begin(begin, ready);
            let segment = begun.map_err(|e| self.stop_unless_full(e))?;
            writer.segments.push_back(segment);
            writer.file = ready.file.clone();
            writer.ready = None;
        }
        Ok(())
    }

    /// Whether [`Wal::prepare`] should be called now: an old file is at hand, or an eighth of the
    /// segment in use is full.
    pub fn wants_file(&self) -> bool {
        let writer = self.writer.lock();
        let segment = writer.segment().header;
        let filled = self.written_lsn().saturating_sub(segment.first_lsn);
        let soon = !writer.spares.is_empty() || filled > segment.body_bytes / 8;
        self.options.recycle > 0 && writer.ready.is_none() && soon
    }

    /// Makes the file of the next segment ready, from an old one or filled with zeros, so that who
    /// fills the segment in use waits for little, later syncs write no file metadata, and a full
    /// disk still has room for as many bytes of log. Does nothing where one is ready; says whether
    /// it made one. For a background thread, often; may write a whole segment to the disk.
    pub fn prepare(&self) -> Result<bool> {
        self.check_running()?;
        let Some(_alone) = self.preparing.try_lock() else { return Ok(false) };
        let spare = {
            let mut writer = self.writer.lock();
            if self.options.recycle == 0 || writer.ready.is_some() {
                return Ok(false);
            }
            let next = self.dir.join(segment_name(writer.segment().header.number + 1));
            SegmentMaker::best(&next, &writer.spares).map(|at| writer.spares.remove(at))
        };
        let recycled = spare.is_some();
        let maker = self.maker();
        let from = match spare {
            Some(spare) => spare,
            None => maker.fill().inspect_err(|_| maker.forget_prepared())?,
        };
        let made = self.make_ready(&maker, &from);
        if made.is_ok() {
            self.count_segment(recycled);
        } else {
            self.writer.lock().spares.push(from);
        }
        made.map(|()| true)
    }

    fn make_ready(&self, maker: &SegmentMaker<'_>, from: &Path) -> Result<()> {
        let file = maker.reserve(from)?;
        let mut writer = self.writer.lock();
        let number = writer.segment().header.number + 1;
        let ready = maker.name(number, from, file)?;
        // A spare that had the name is gone: the file that has it now is no spare.
        writer.spares.retain(|spare| *spare != ready.path);
        writer.ready = Some(ready);
        drop(writer);
        // a failure leaves the sync to whoever begins the segment
        if maker.sync_names().is_ok()
            && let Some(ready) = self.writer.lock().ready.as_mut().filter(|r| r.number == number)
        {
            ready.named = true;
        }
        Ok(())
    }

    /// Lets go of whole segments before `lsn`, which a completed checkpoint contains. Touches the
    /// disk.
    pub fn trim(&self, lsn: Lsn) -> Result<()> {
        self.check_running()?;
        let unwanted: Vec<PathBuf> = {
            let mut writer = self.writer.lock();
            while writer.segments.len() > 1 && writer.segments[1].header.first_lsn <= lsn {
                let oldest = writer.segments.pop_front().map(|segment| segment.path);
                writer.spares.extend(oldest);
            }
            let more = writer.spares.len().saturating_sub(self.options.recycle);
            writer.spares.drain(..more).collect()
        };
        for path in &unwanted {
            self.os.vfs.remove_file(path).map_err(|e| Error::io("remove", path, e))?;
        }
        if unwanted.is_empty() { Ok(()) } else { self.maker().sync_names() }
    }

    fn maker(&self) -> SegmentMaker<'_> {
        SegmentMaker { os: &self.os, dir: &self.dir, options: self.options }
    }

    fn count_segment(&self, recycled: bool) {
        let Self { metrics, .. } = self;
        (if recycled { &metrics.segments_recycled } else { &metrics.segments_made }).inc();
    }
}

/// The first segment of an epoch, on disk when this returns.
pub(crate) fn begin_epoch(
    maker: &SegmentMaker<'_>,
    begin: Begin,
    spares: &mut Vec<PathBuf>,
) -> Result<(crate::directory::Segment, Ready, bool)> {
    let (ready, recycled) = maker.make(begin.number, spares)?;
    let segment = maker.begin(begin, &ready)?;
    ready.file.sync_all().map_err(|e| Error::io("sync", &segment.path, e))?;
    Ok((segment, ready, recycled))
}
