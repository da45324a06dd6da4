//! The data file: opening, looking up, reading, freeing. Writing segments is in `segment`,
//! checkpoints are in `checkpoint`, giving space back is in `compact`.
//!
//! Life of a segment:
//!
//! | from → to | function |
//! |---|---|
//! | nothing → being written | [`BlockFile::start_segment`] |
//! | being written → live | [`crate::SegmentWriter::finish`] |
//! | live → dropped (still readable) | [`BlockFile::free`] |
//! | dropped → gone, extent free | `State::reclaim` |
//!
//! The **epoch** counts frees. A segment dropped at epoch `f` is seen by every pin taken at an
//! epoch `<= f` and by every checkpoint begun at an epoch `<= f`.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crypt::KeyRing;
use os::sync::{Mutex, RwLock};
use os::{OpenOptions, Os};

use crate::UNIT;
use crate::compression_dictionary::DictionaryDecompressor;
use crate::create::{create_where_missing, newest_superblock, write_again};
use crate::error::{Error, Result};
use crate::inner::{Inner, io_error};
use crate::metrics::Metrics;
use crate::metrics::PageStats;
use crate::page::{PageContext, decode_page};
use crate::page_batch::PageBatch;
use crate::pins::Pin;
use crate::reserve::Reserve;
use crate::segment::{PageRef, SegmentWriter};
use crate::state::State;
use crate::table::{Slot, Table};
use crate::translation::{Entry, SegmentId};

/// How a data file is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file's name in its directory.
    pub name: String,
    /// Bypass the page cache where the filesystem can.
    pub direct: bool,
    /// The file grows by a sixteenth of its size, at most by this many bytes at once.
    pub grow_bytes: u64,
    /// At least so many bytes are kept back for checkpoints on a full disk; 0 keeps nothing.
    pub reserve_bytes: u64,
    /// And one byte for so many that were written since the last checkpoint: they change nodes.
    pub reserve_one_in: u64,
    /// With them what is written is encrypted, and nothing else is read.
    pub keys: Option<Arc<KeyRing>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "fern.data".to_owned(),
            direct: false,
            grow_bytes: 64 << 20,
            reserve_bytes: 1 << 20,
            reserve_one_in: 32,
            keys: None,
        }
    }
}

/// What the last completed checkpoint left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointImage {
    /// Its number.
    pub generation: u64,
    /// The log before this position is contained.
    pub lsn: u64,
    /// When it was written, milliseconds since 1970.
    pub written_ms: i64,
    /// What the engine handed in: the last whole root…
    pub root: Vec<u8>,
    /// …and the changes since, in their order.
    pub changes: Vec<Vec<u8>>,
}

/// What is known of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub id: SegmentId,
    /// What the engine keeps in it.
    pub kind: u8,
    /// Length in bytes.
    pub bytes: u64,
    /// Byte offset in the file; may change when the file is compacted.
    pub offset: u64,
}

/// Sizes of a data file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The file.
    pub file_bytes: u64,
    /// Up to the last taken unit.
    pub used_end_bytes: u64,
    /// Free below that.
    pub free_bytes: u64,
    /// Freed, and waiting for a checkpoint or a pin.
    pub dropped_bytes: u64,
    /// Live segments.
    pub segments: u64,
    /// Their extents.
    pub live_bytes: u64,
}

/// What is free in a data file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Up to the last taken unit.
    pub used_end_bytes: u64,
    /// Free below that.
    pub free_bytes: u64,
    /// Free, behind that too, and still taking space of the filesystem.
    pub unused_bytes: u64,
}

/// An open data file. Clones share it; all methods may be called from many threads.
#[derive(Clone)]
pub struct BlockFile(pub(crate) Arc<Inner>);

impl BlockFile {
    /// Opens the data file of a directory, or makes an empty one. A file that is encrypted needs its keys,
    /// one that is not must not have any. The image is `None` until the
    /// first checkpoint has completed. Reads the superblocks, the table and the root blob.
    pub fn open(
        os: &Os,
        dir: &Path,
        options: Options,
        metrics: Metrics,
    ) -> Result<(Self, Option<CheckpointImage>)> {
        let path = dir.join(&options.name);
        create_where_missing(os, dir, &path, options.keys.is_some())?;
        let open = OpenOptions::default().with_direct(options.direct);
        let file = os.vfs.open(&path, open).map_err(|e| io_error(&path, "open", 0, e))?;
        let superblock = newest_superblock(&*file, &path)?;
        if superblock.encrypted != options.keys.is_some() {
            return Err(Error::Keys { file: path, is_encrypted: superblock.encrypted });
        }
        // When only the process died, what is read now may be in the kernel's memory alone; what
        // follows builds on it, so it must be on disk first. Where it was a failed sync that ended
        // the process, the kernel no longer knows that the superblock is not on disk: it is
        // written once more. All that it names was synced before it was written.
        write_again(&*file, &superblock).map_err(|e| io_error(&path, "write", 0, e))?;
        file.sync_all().map_err(|e| io_error(&path, "sync", 0, e))?;
        os.vfs.sync_dir(dir).map_err(|e| io_error(&path, "sync the directory of", 0, e))?;
        let file_units = file.len().map_err(|e| io_error(&path, "size of", 0, e))? / UNIT;
        let reserve = Reserve::new(options.reserve_bytes.div_ceil(UNIT), options.reserve_one_in);
        let inner = Inner {
            os: os.clone(),
            file,
            path,
            file_id: superblock.file_id,
            options,
            metrics,
            checkpointing: Mutex::new(()),
            state: Mutex::new(State::new(&superblock, file_units, reserve)),
            table: RwLock::new(Table::default()),
            moves: AtomicU64::new(0),
            keep_free: AtomicU64::new(0),
            stopped: OnceLock::new(),
        };
        let image = inner.load(&superblock)?;
        inner.fill_reserve();
        Ok((Self(Arc::new(inner)), image))
    }

    /// Begins a segment. `kind` is the engine's business. Nothing touches the disk yet.
    pub fn start_segment(&self, kind: u8) -> SegmentWriter {
        let id = SegmentId(self.0.state.lock().new_id());
        SegmentWriter::new(self.clone(), id, kind)
    }

    /// Fills `buf` from byte `offset` of a segment. Touches the disk. The caller knows that the
    /// segment is not freed meanwhile, or holds a [`Pin`] from before.
    pub fn read(&self, id: SegmentId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read(id, offset, buf)
    }

    /// The kind a segment was written as, if it is there.
    pub fn kind(&self, id: SegmentId) -> Option<u8> {
        self.0.table.read().get(id).map(|slot| slot.entry.kind)
    }

    /// What pages of one kind of segment cost so far.
    pub fn page_stats(&self, kind: u8) -> PageStats {
        self.0.metrics.page_stats(kind)
    }

    /// Reads and decodes one page, which needs no compression dictionary, into `out`. Touches the disk.
    pub fn read_page(
        &self,
        dictionary: u64,
        id: SegmentId,
        page: PageRef,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let stored = self.read_stored_page(id, page)?;
        self.decode(dictionary, id, page, None, &stored, out)
    }

    /// Reads the stored bytes of one page, for [`BlockFile::decode`]. Touches the disk.
    pub fn read_stored_page(&self, id: SegmentId, page: PageRef) -> Result<Vec<u8>> {
        // the length is bounded by the segment before anything is allocated
        self.0.locate(id, page.offset, u64::from(page.len))?;
        let mut stored = vec![0; page.len as usize];
        self.0.read(id, page.offset, &mut stored)?;
        Ok(stored)
    }

    /// Reads the stored bytes of several pages at the same time. A hint: see [`PageBatch::pages`]. Touches the disk.
    pub fn read_pages(&self, pages: &[(SegmentId, PageRef)]) -> PageBatch {
        self.0.read_pages(pages)
    }

    /// Bytes of memory that [`BlockFile::read_pages`] takes for this page at most.
    pub fn most_read_bytes(&self, page: PageRef) -> u64 {
        // It may begin in the last byte of an aligned part and end in the first one of another.
        u64::from(page.len) + 2 * (self.0.alignment() as u64 - 1)
    }

    /// Whether [`BlockFile::read_pages`] takes hardly longer than a read of one page.
    pub fn reads_at_once(&self) -> bool {
        self.0.file.reads_at_once()
    }

    /// The clock reads are timed with, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.0.os.clock.monotonic().as_micros() as u64
    }

    /// Decodes a page that was read as part of a larger read, with the compression dictionary that its segment names.
    pub fn decode(
        &self,
        dictionary: u64,
        id: SegmentId,
        page: PageRef,
        compressed_with: Option<&DictionaryDecompressor>,
        stored: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let context = PageContext { dictionary, segment: id.0, page: page.page };
        let started = self.0.os.clock.monotonic();
        match decode_page(context, self.0.options.keys.as_deref(), compressed_with, stored, out) {
            Ok(_) => {
                let took = self.0.os.clock.monotonic().saturating_sub(started);
                let kind = self.0.table.read().get(id).map_or(0, |slot| slot.entry.kind);
                self.0.metrics.decoded(kind, took);
                Ok(())
            }
            Err(e) => {
                let base = self.0.table.read().get(id).map_or(0, |s| s.entry.unit * UNIT);
                Err(Error::Corruption {
                    file: self.0.path.clone(),
                    offset: base + page.offset,
                    segment: id.0,
                    page: page.page,
                    what: e.text(),
                })
            }
        }
    }

    /// Drops a segment. It stays readable for pins that are out, and for the checkpoint that is
    /// being written; its space returns after the next completed checkpoint.
    pub fn free(&self, id: SegmentId) -> Result<()> {
        let mut state = self.0.state.lock();
        let mut table = self.0.table.write();
        let freed = table.free(id, state.epoch).ok_or_else(|| self.0.unknown(id))?;
        drop(table);
        state.drop_extent(Some(id), freed.extent());
        state.reclaim(&self.0.table);
        Ok(())
    }

    /// Drops every live segment that `keep` refuses; says how many. For the end of recovery: a
    /// checkpoint's table may hold segments that were written and not yet used when it began.
    pub fn retain(&self, mut keep: impl FnMut(SegmentInfo) -> bool) -> Result<u64> {
        let mut count = 0;
        for info in self.segments() {
            if !keep(info) {
                self.free(info.id)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Keeps everything readable that is readable now, until the pin is dropped.
    pub fn pin(&self) -> Pin {
        Pin::new(self.0.clone())
    }

    /// Length and kind of a segment that is live or still pinned.
    pub fn segment(&self, id: SegmentId) -> Option<SegmentInfo> {
        self.0.table.read().get(id).map(|slot| info(id, slot))
    }

    /// All live segments, ids ascending.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let table = self.0.table.read();
        table.live().map(|(id, slot)| info(id, slot)).collect()
    }

    /// Sizes now. Walks the table.
    pub fn stats(&self) -> Stats {
        let state = self.0.state.lock();
        let table = self.0.table.read();
        let (segments, live_units) = table
            .live()
            .fold((0, 0), |(n, units), (_, slot)| (n + 1, units + slot.entry.extent().units));
        Stats {
            file_bytes: state.file_units * UNIT,
            used_end_bytes: state.space.end() * UNIT,
            free_bytes: state.space.free_units() * UNIT,
            dropped_bytes: state.dropped_units * UNIT,
            segments,
            live_bytes: live_units * UNIT,
        }
    }

    /// Bytes that were freed and wait for a checkpoint or a pin. Walks nothing.
    pub fn dropped_bytes(&self) -> u64 {
        self.0.state.lock().dropped_units * UNIT
    }

    /// What is free. Walks nothing.
    pub fn space(&self) -> Space {
        let state = self.0.state.lock();
        let tail = state.file_units.saturating_sub(state.space.end());
        Space {
            used_end_bytes: state.space.end() * UNIT,
            free_bytes: state.space.free_units() * UNIT,
            unused_bytes: (state.space.unpunched_units() + tail) * UNIT,
        }
    }

    /// From now on what is written leaves so many bytes of the filesystem free, but for what a
    /// checkpoint has no other place for.
    pub fn keep_free(&self, bytes: u64) {
        self.0.keep_free.store(bytes, Ordering::Relaxed);
    }

    /// Calls of fdatasync since it was opened, and their time in microseconds.
    pub fn syncs(&self) -> (u64, u64) {
        let times = self.0.metrics.sync_time.snapshot();
        (times.count, times.sum)
    }

    /// The keys that it is encrypted with, if it is.
    pub fn keys(&self) -> Option<&Arc<KeyRing>> {
        self.0.options.keys.as_ref()
    }

    /// The file's random identity.
    pub fn file_id(&self) -> u128 {
        self.0.file_id
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether reads and writes bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.0.file.is_direct()
    }
}

impl std::fmt::Debug for BlockFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockFile").field("path", &self.0.path).finish_non_exhaustive()
    }
}

fn info(id: SegmentId, slot: &Slot) -> SegmentInfo {
    let Entry { unit, bytes, kind } = slot.entry;
    SegmentInfo { id, kind, bytes, offset: unit * UNIT }
}
