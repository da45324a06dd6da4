//! The shared inside of a data file: loading a checkpoint, finding space, reading, syncing, and
//! turning what the disk says into [`Error`]s.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use os::sync::{Mutex, RwLock};
use os::{AlignedBuf, File, Os};

use crate::UNIT;
use crate::allocator::{Allocator, Backing, Extent, Hole};
use crate::error::{Error, Result};
use crate::file::{CheckpointImage, Options};
use crate::metrics::Metrics;
use crate::state::State;
use crate::superblock::{RESERVED_UNITS, Superblock};
use crate::table::Table;
use crate::translation::{Entry, SegmentId, fold_tables};

/// Writeback starts right after a write of at least this many bytes. Otherwise the kernel collects
/// dirty pages for up to a minute, and the sync of a checkpoint, and every other sync of the same
/// filesystem, waits for all of them.
const WRITEBACK_BYTES: u64 = 64 << 10;

/// A read as the file takes it: `length` bytes from `start` on, of which those from `within` on were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlignedRead {
    pub(crate) start: u64,
    pub(crate) within: usize,
    pub(crate) length: usize,
}

impl AlignedRead {
    pub(crate) fn of(offset: u64, length: usize, alignment: usize) -> Self {
        let within = (offset % alignment as u64) as usize;
        let length = (within + length).next_multiple_of(alignment);
        Self { start: offset - within as u64, within, length }
    }
}

pub(crate) struct Inner {
    pub(crate) os: Os,
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
    pub(crate) file_id: u128,
    pub(crate) options: Options,
    pub(crate) metrics: Metrics,
    /// One checkpoint at a time.
    pub(crate) checkpointing: Mutex<()>,
    pub(crate) state: Mutex<State>,
    pub(crate) table: RwLock<Table>,
    /// Segments moved by compaction so far.
    pub(crate) moves: AtomicU64,
    /// Bytes of the filesystem that stay free, but for what a checkpoint has no other place for.
    pub(crate) keep_free: AtomicU64,
    pub(crate) stopped: OnceLock<String>,
}

impl Inner {
    pub(crate) fn load(&self, superblock: &Superblock) -> Result<Option<CheckpointImage>> {
        let generation = superblock.generation;
        let keys = self.options.keys.as_deref();
        let (tables, parts) = self.read_chain(superblock.table, generation, None)?;
        let table = fold_tables(&parts);
        let table = table.map_err(|what| self.corruption(superblock.table.unit, what))?;
        let (roots, mut parts) = self.read_chain(superblock.root, generation, keys)?;
        let changes = parts.split_off(parts.len().min(1));
        let root = parts.pop();
        let mut used = [tables.extents(), roots.extents()].concat();
        used.extend(table.values().map(Entry::extent));
        let mut state = self.state.lock();
        (state.tables, state.roots) = (tables, roots);
        state.space = Allocator::from_used(RESERVED_UNITS, state.file_units, used)
            .map_err(|what| self.corruption(superblock.table.unit, what))?;
        if table.last_key_value().is_some_and(|(id, _)| id.0 >= superblock.next_segment) {
            return Err(self.corruption(superblock.table.unit, "segment id was never given out"));
        }
        *self.table.write() = Table::load(table.into_iter());
        let Superblock { lsn, written_ms, .. } = *superblock;
        Ok(root.map(|root| CheckpointImage { generation, lsn, written_ms, root, changes }))
    }

    /// Takes an extent, growing the file where no hole fits, as far as the filesystem keeps free what
    /// is to stay free. May touch the disk.
    pub(crate) fn allocate(&self, units: u64) -> Result<Extent> {
        self.allocate_leaving_free(units, self.keep_free.load(Ordering::Relaxed))
    }

    /// The same where `keep_free` bytes of the filesystem are to stay free.
    pub(crate) fn allocate_leaving_free(&self, units: u64, keep_free: u64) -> Result<Extent> {
        let mut state = self.state.lock();
        if let Some(hole) = state.space.take_free(units) {
            drop(state);
            return self.allocate_backing(hole, keep_free);
        }
        let end = state.space.end();
        let needed = end.checked_add(units).filter(|end| *end < 1 << 40);
        let needed = needed.ok_or_else(|| self.no_space(units))?;
        if needed > state.file_units {
            let most = (self.options.grow_bytes / UNIT).max(1);
            let step = (end / 16).clamp(most.min(256), most);
            let spare = self.free_units(keep_free).unwrap_or(u64::MAX);
            let limit = state.file_units.saturating_add(spare);
            if needed > limit {
                return Err(self.no_space(units));
            }
            let wanted = needed.max(end + step).min(limit);
            let grown = match self.grow(state.file_units, wanted) {
                Err(Error::NoSpace { .. }) => self.grow(state.file_units, needed),
                other => other,
            };
            state.file_units = grown?;
        }
        assert!(needed <= state.file_units, "extents lie inside the file");
        Ok(state.space.take_end(units))
    }

    /// Sees to it that writing to a hole needs no space of the filesystem. Where that would take what
    /// is to stay free, or there is none, the hole goes back. Touches the disk.
    pub(crate) fn allocate_backing(&self, hole: Hole, keep_free: u64) -> Result<Extent> {
        let Hole { extent, backing } = hole;
        if backing == Backing::Allocated {
            return Ok(extent);
        }
        let (offset, len) = (extent.unit * UNIT, extent.units * UNIT);
        debug_assert!(len > 0, "a hole is not empty");
        let before = self.available(keep_free);
        if let Err(e) = self.file.allocate(offset, len) {
            self.state.lock().space.give_hole_back(hole);
            return Err(self.write_error("allocate", offset, len, e));
        }
        // What was there already has cost nothing. Others may have taken of what is to stay free
        // meanwhile, or before: that makes none of it free to take.
        let short = before.is_some_and(|before| {
            self.available(keep_free).is_some_and(|after| after < keep_free.min(before))
        });
        if short {
            let punched = self.file.punch_hole(offset, len);
            self.state.lock().space.give_back_punched(extent);
            punched.map_err(|e| io_error(&self.path, "punch", offset, e))?;
            return Err(self.no_space(extent.units));
        }
        Ok(extent)
    }

    /// Units by which the file may grow beside `keep_free` bytes; `None` as of [`Inner::available`].
    fn free_units(&self, keep_free: u64) -> Option<u64> {
        Some(self.available(keep_free)?.saturating_sub(keep_free) / UNIT)
    }

    /// Bytes that the filesystem has free; `None` where none are to stay free, or it does not say.
    fn available(&self, keep_free: u64) -> Option<u64> {
        let dir = self.path.parent().filter(|_| keep_free > 0)?;
        Some(self.os.vfs.space(dir).ok()?.available)
    }

    fn grow(&self, from: u64, to: u64) -> Result<u64> {
        let (offset, len) = (from * UNIT, (to - from) * UNIT);
        match self.file.allocate(offset, len) {
            Ok(()) => Ok(to),
            Err(e) => {
                // A filesystem may keep the part that it had room for.
                let _as_long_as_before = self.file.set_len(offset);
                Err(self.write_error("extend", offset, len, e))
            }
        }
    }

    pub(crate) fn give_back(&self, extent: Extent) {
        self.state.lock().space.give_back(extent);
    }

    /// Writes whole units from aligned memory.
    pub(crate) fn write_units(&self, unit: u64, bytes: &[u8]) -> Result<()> {
        assert!((bytes.len() as u64).is_multiple_of(UNIT), "whole units are written");
        self.check_running()?;
        self.metrics.writes.inc();
        self.metrics.write_bytes.add(bytes.len() as u64);
        let offset = unit * UNIT;
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|e| self.write_error("write", offset, bytes.len() as u64, e))?;
        if bytes.len() as u64 >= WRITEBACK_BYTES && !self.file.is_direct() {
            self.file.begin_writeback(offset, bytes.len() as u64);
        }
        Ok(())
    }

    /// Where a part of a segment is in the file.
    pub(crate) fn locate(&self, id: SegmentId, offset: u64, len: u64) -> Result<Entry> {
        let entry = self.table.read().get(id).map(|slot| slot.entry);
        let entry = entry.ok_or_else(|| self.unknown(id))?;
        match offset.checked_add(len) {
            Some(end) if end <= entry.bytes => Ok(entry),
            _ => Err(Error::Corruption {
                file: self.path.clone(),
                offset: entry.unit * UNIT,
                segment: id.0,
                page: 0,
                what: "a reference points past the end of its segment",
            }),
        }
    }

    pub(crate) fn read(&self, id: SegmentId, offset: u64, buf: &mut [u8]) -> Result<()> {
        loop {
            let moves = self.moves.load(Ordering::Acquire);
            let entry = self.locate(id, offset, buf.len() as u64)?;
            let result = self.read_at(entry.unit * UNIT + offset, buf);
            // compaction may have moved the segment and given its old place away meanwhile
            if moves == self.moves.load(Ordering::Acquire)
                || self.locate(id, offset, buf.len() as u64)? == entry
            {
                return result;
            }
        }
    }

    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let start = self.os.clock.monotonic();
        let result = if self.file.is_direct() {
            self.read_direct(offset, buf)
        } else {
            self.file.read_exact_at(buf, offset)
        };
        self.metrics.reads.inc();
        self.metrics.read_bytes.add(buf.len() as u64);
        self.metrics.read_time.record_micros(self.os.clock.monotonic().saturating_sub(start));
        match result {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.corruption(offset / UNIT, "the file ends before its content"))
            }
            Err(e) => Err(io_error(&self.path, "read", offset, e)),
        }
    }

    fn read_direct(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let AlignedRead { start, within, length } = self.aligned(offset, buf.len());
        let memory_aligned = (buf.as_ptr() as usize).is_multiple_of(self.file.read_alignment());
        if within == 0 && memory_aligned && buf.len() == length {
            return self.file.read_exact_at(buf, offset);
        }
        let mut bounce = AlignedBuf::zeroed(length);
        self.file.read_exact_at(&mut bounce, start)?;
        buf.copy_from_slice(&bounce[within..within + buf.len()]);
        Ok(())
    }

    /// What has to be read for so many bytes.
    pub(crate) fn aligned(&self, offset: u64, length: usize) -> AlignedRead {
        AlignedRead::of(offset, length, self.alignment())
    }

    /// What offsets and lengths of reads are multiples of.
    pub(crate) fn alignment(&self) -> usize {
        if self.file.is_direct() { self.file.read_alignment() } else { 1 }
    }

    /// Waits until everything written is on disk. A failure stops the file for good: what the
    /// kernel dropped cannot be known.
    pub(crate) fn sync(&self) -> Result<()> {
        self.check_running()?;
        let start = self.os.clock.monotonic();
        let synced = self.file.sync_data();
        self.metrics.syncs.inc();
        self.metrics.sync_time.record_micros(self.os.clock.monotonic().saturating_sub(start));
        synced.map_err(|e| self.stop(io_error(&self.path, "sync", 0, e)))
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        match self.stopped.get() {
            Some(cause) => Err(Error::Stopped { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn stop(&self, error: Error) -> Error {
        self.stopped.get_or_init(|| error.to_string());
        error
    }

    pub(crate) fn unknown(&self, id: SegmentId) -> Error {
        Error::Corruption {
            file: self.path.clone(),
            offset: 0,
            segment: id.0,
            page: 0,
            what: "no such segment",
        }
    }

    pub(crate) fn corruption(&self, unit: u64, what: &'static str) -> Error {
        let file = self.path.clone();
        Error::Corruption { file, offset: unit.saturating_mul(UNIT), segment: 0, page: 0, what }
    }

    pub(crate) fn no_space(&self, units: u64) -> Error {
        Error::NoSpace { file: self.path.clone(), needed: units.saturating_mul(UNIT) }
    }

    fn write_error(&self, what: &'static str, offset: u64, needed: u64, e: io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::NoSpace { file: self.path.clone(), needed }
            }
            _ => io_error(&self.path, what, offset, e),
        }
    }
}

pub(crate) fn io_error(
    path: &Path,
    operation: &'static str,
    offset: u64,
    source: io::Error,
) -> Error {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::NoSpace { file: path.to_path_buf(), needed: UNIT }
        }
        _ => Error::Io { operation, file: path.to_path_buf(), offset, source },
    }
}
