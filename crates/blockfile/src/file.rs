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

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use os::{AlignedBuf, DIRECT_ALIGN, File, OpenOptions, Os};
use parking_lot::{Mutex, RwLock};

use crate::UNIT;
use crate::allocator::{Allocator, Extent};
use crate::blob::BlobPointer;
use crate::checkpoint::CheckpointMark;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::page::{PageContext, decode_page};
use crate::pins::{Pin, Pins};
use crate::segment::{PageRef, SegmentWriter};
use crate::superblock::{RESERVED_UNITS, SUPERBLOCK_BYTES, SlotError, Superblock, VERSION};
use crate::translation::{Entry, SegmentId, decode_table};

/// Ids skipped at each open, so that a segment written after the last checkpoint and lost in a
/// crash never shares its id, and so its pages' checksums, with a later one.
const ID_GAP: u64 = 1 << 24;

/// How a data file is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file's name in its directory.
    pub name: String,
    /// Bypass the page cache where the filesystem can.
    pub direct: bool,
    /// The file grows by a sixteenth of its size, at most by this many bytes at once.
    pub grow_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { name: "fern.data".to_owned(), direct: false, grow_bytes: 64 << 20 }
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
    /// What the engine handed in.
    pub root: Vec<u8>,
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

/// A segment's place, and when it was freed.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) entry: Entry,
    pub(crate) dropped: Option<u64>,
}

pub(crate) type Table = BTreeMap<u64, Slot>;

/// An extent nobody needs once `epoch` is behind every pin (and checkpoint).
struct Dropped {
    epoch: u64,
    segment: Option<SegmentId>,
    extent: Extent,
}

pub(crate) struct State {
    pub(crate) space: Allocator,
    /// Units the file is long.
    pub(crate) file_units: u64,
    next_id: u64,
    epoch: u64,
    pub(crate) begun: CheckpointMark,
    pub(crate) completed_epoch: u64,
    pub(crate) generation: u64,
    /// Extents of the newest checkpoint's table and root.
    pub(crate) blobs: Vec<Extent>,
    /// In no checkpoint: wait for pins only.
    dropped_new: VecDeque<Dropped>,
    /// In a checkpoint: wait for the next one too.
    dropped_old: VecDeque<Dropped>,
    dropped_units: u64,
    pub(crate) pins: Pins,
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
    stopped: OnceLock<String>,
}

/// An open data file. Clones share it; all methods may be called from many threads.
#[derive(Clone)]
pub struct BlockFile(pub(crate) Arc<Inner>);

impl BlockFile {
    /// Opens the data file of a directory, or makes an empty one. The image is `None` until the
    /// first checkpoint has completed. Reads the superblocks, the table and the root blob.
    pub fn open(
        os: &Os,
        dir: &Path,
        options: Options,
        metrics: Metrics,
    ) -> Result<(Self, Option<CheckpointImage>)> {
        let path = dir.join(&options.name);
        create_where_missing(os, dir, &path)?;
        let open = OpenOptions::default().with_direct(options.direct);
        let file = os.vfs.open(&path, open).map_err(|e| io_error(&path, "open", 0, e))?;
        // when only the process died, what is read now may be in the kernel's memory alone; what
        // follows builds on it, so it must be on disk first
        file.sync_all().map_err(|e| io_error(&path, "sync", 0, e))?;
        os.vfs.sync_dir(dir).map_err(|e| io_error(&path, "sync the directory of", 0, e))?;
        let superblock = newest_superblock(&*file, &path)?;
        let file_units = file.len().map_err(|e| io_error(&path, "size of", 0, e))? / UNIT;
        let inner = Inner {
            os: os.clone(),
            file,
            path,
            file_id: superblock.file_id,
            options,
            metrics,
            checkpointing: Mutex::new(()),
            state: Mutex::new(State::new(&superblock, file_units)),
            table: RwLock::new(Table::new()),
            moves: AtomicU64::new(0),
            stopped: OnceLock::new(),
        };
        let image = inner.load(&superblock)?;
        Ok((Self(Arc::new(inner)), image))
    }

    /// Begins a segment. `kind` is the engine's business. Nothing touches the disk yet.
    pub fn start_segment(&self, kind: u8) -> SegmentWriter {
        let id = SegmentId(self.0.state.lock().new_id());
        SegmentWriter::new(self.clone(), id, kind)
    }

    /// Writes a whole segment, not yet durable.
    pub fn write_segment(&self, kind: u8, bytes: &[u8]) -> Result<SegmentId> {
        let mut writer = self.start_segment(kind);
        writer.append(bytes)?;
        writer.finish()
    }

    /// Fills `buf` from byte `offset` of a segment. Touches the disk. The caller knows that the
    /// segment is not freed meanwhile, or holds a [`Pin`] from before.
    pub fn read(&self, id: SegmentId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read(id, offset, buf)
    }

    /// Reads and decodes one page into `out`. Touches the disk.
    pub fn read_page(
        &self,
        dictionary: u64,
        id: SegmentId,
        page: PageRef,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        // the length is bounded by the segment before anything is allocated
        self.0.locate(id, page.offset, u64::from(page.len))?;
        let mut stored = vec![0; page.len as usize];
        self.0.read(id, page.offset, &mut stored)?;
        self.decode(dictionary, id, page, &stored, out)
    }

    /// Decodes a page that was read as part of a larger read.
    pub fn decode(
        &self,
        dictionary: u64,
        id: SegmentId,
        page: PageRef,
        stored: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let context = PageContext { dictionary, segment: id.0, page: page.page };
        match decode_page(context, stored, out) {
            Ok(_) => Ok(()),
            Err(e) => {
                let base = self.0.table.read().get(&id.0).map_or(0, |s| s.entry.unit * UNIT);
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
        let slot = table.get_mut(&id.0).filter(|slot| slot.dropped.is_none());
        let slot = slot.ok_or_else(|| self.0.unknown(id))?;
        slot.dropped = Some(state.epoch);
        let extent = slot.entry.extent();
        drop(table);
        state.drop_extent(Some(id), extent);
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
        self.0.table.read().get(&id.0).map(|slot| info(id.0, slot))
    }

    /// All live segments, ids ascending.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let table = self.0.table.read();
        let live = table.iter().filter(|(_, slot)| slot.dropped.is_none());
        live.map(|(id, slot)| info(*id, slot)).collect()
    }

    /// Sizes now. Walks the table.
    pub fn stats(&self) -> Stats {
        let state = self.0.state.lock();
        let table = self.0.table.read();
        let live = table.values().filter(|slot| slot.dropped.is_none());
        let (segments, live_units) =
            live.fold((0, 0), |(n, units), slot| (n + 1, units + slot.entry.extent().units));
        Stats {
            file_bytes: state.file_units * UNIT,
            used_end_bytes: state.space.end() * UNIT,
            free_bytes: state.space.free_units() * UNIT,
            dropped_bytes: state.dropped_units * UNIT,
            segments,
            live_bytes: live_units * UNIT,
        }
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

fn info(id: u64, slot: &Slot) -> SegmentInfo {
    let Entry { unit, bytes, kind } = slot.entry;
    SegmentInfo { id: SegmentId(id), kind, bytes, offset: unit * UNIT }
}

impl State {
    fn new(superblock: &Superblock, file_units: u64) -> Self {
        let next_id = superblock.next_segment.saturating_add(ID_GAP);
        Self {
            space: Allocator::new(RESERVED_UNITS),
            file_units,
            next_id,
            epoch: 0,
            begun: CheckpointMark { epoch: 0, next_id },
            completed_epoch: 0,
            generation: superblock.generation,
            blobs: Vec::new(),
            dropped_new: VecDeque::new(),
            dropped_old: VecDeque::new(),
            dropped_units: 0,
            pins: Pins::default(),
        }
    }

    fn new_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub(crate) fn begin_checkpoint(&mut self) -> CheckpointMark {
        self.begun = CheckpointMark { epoch: self.epoch, next_id: self.next_id };
        self.begun
    }

    pub(crate) fn pin(&mut self) -> u64 {
        self.pins.add(self.epoch);
        self.epoch
    }

    /// Queues an extent for reuse; `segment` is the table entry that goes with it, `None` for the
    /// old place of a moved segment (which a checkpoint may name).
    pub(crate) fn drop_extent(&mut self, segment: Option<SegmentId>, extent: Extent) {
        let dropped = Dropped { epoch: self.epoch, segment, extent };
        self.epoch += 1;
        self.dropped_units += extent.units;
        if segment.is_some_and(|id| id.0 >= self.begun.next_id) {
            self.dropped_new.push_back(dropped);
        } else {
            self.dropped_old.push_back(dropped);
        }
    }

    /// Frees the extents that no pin and no checkpoint can see any more. Epochs ascend in both
    /// queues, so only their fronts are looked at.
    pub(crate) fn reclaim(&mut self, table: &RwLock<Table>) {
        let pinned = self.pins.oldest();
        let unneeded = self.completed_epoch.min(pinned);
        let mut gone = Vec::new();
        while let Some(d) = self.dropped_new.pop_front_if(|d| d.epoch < pinned) {
            gone.push(d);
        }
        while let Some(d) = self.dropped_old.pop_front_if(|d| d.epoch < unneeded) {
            gone.push(d);
        }
        if gone.is_empty() {
            return;
        }
        let mut table = table.write();
        for Dropped { segment, extent, .. } in gone {
            if let Some(id) = segment {
                table.remove(&id.0);
            }
            self.dropped_units -= extent.units;
            self.space.give_back(extent);
        }
    }
}

impl Inner {
    fn load(&self, superblock: &Superblock) -> Result<Option<CheckpointImage>> {
        let mut used = Vec::new();
        let table = match superblock.table {
            pointer if pointer.is_none() => Vec::new(),
            pointer => {
                let bytes = self.read_blob(superblock.generation, pointer, &mut used)?;
                decode_table(&bytes).map_err(|what| self.corruption(pointer.unit, what))?
            }
        };
        let root = match superblock.root {
            pointer if pointer.is_none() => None,
            pointer => Some(self.read_blob(superblock.generation, pointer, &mut used)?),
        };
        let mut state = self.state.lock();
        state.blobs.clone_from(&used);
        used.extend(table.iter().map(|(_, entry)| entry.extent()));
        state.space = Allocator::from_used(RESERVED_UNITS, state.file_units, used)
            .map_err(|what| self.corruption(superblock.table.unit, what))?;
        if table.last().is_some_and(|(id, _)| id.0 >= superblock.next_segment) {
            return Err(self.corruption(superblock.table.unit, "segment id was never given out"));
        }
        let slots = table.into_iter().map(|(id, entry)| (id.0, Slot { entry, dropped: None }));
        *self.table.write() = slots.collect();
        let Superblock { generation, lsn, written_ms, .. } = *superblock;
        Ok(root.map(|root| CheckpointImage { generation, lsn, written_ms, root }))
    }

    /// Takes an extent, growing the file where no hole fits. May touch the disk.
    pub(crate) fn allocate(&self, units: u64) -> Result<Extent> {
        let mut state = self.state.lock();
        if let Some(extent) = state.space.take_free(units) {
            return Ok(extent);
        }
        let end = state.space.end();
        let needed = end.checked_add(units).filter(|end| *end < 1 << 40);
        let needed = needed.ok_or_else(|| self.no_space(units))?;
        if needed > state.file_units {
            let most = (self.options.grow_bytes / UNIT).max(1);
            let step = (end / 16).clamp(most.min(256), most);
            let grown = self.grow(state.file_units, needed.max(end + step));
            let grown = match grown {
                Err(Error::NoSpace { .. }) => self.grow(state.file_units, needed),
                other => other,
            };
            state.file_units = grown?;
        }
        Ok(state.space.take_end(units))
    }

    fn grow(&self, from: u64, to: u64) -> Result<u64> {
        let (offset, len) = (from * UNIT, (to - from) * UNIT);
        match self.file.allocate(offset, len) {
            Ok(()) => Ok(to),
            Err(e) => Err(self.write_error("extend", offset, len, e)),
        }
    }

    pub(crate) fn give_back(&self, extent: Extent) {
        self.state.lock().space.give_back(extent);
    }

    /// Writes whole units from aligned memory.
    pub(crate) fn write_units(&self, unit: u64, bytes: &[u8]) -> Result<()> {
        self.check_running()?;
        self.metrics.writes.inc();
        self.metrics.write_bytes.add(bytes.len() as u64);
        let offset = unit * UNIT;
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|e| self.write_error("write", offset, bytes.len() as u64, e))
    }

    /// Where a part of a segment is in the file.
    fn locate(&self, id: SegmentId, offset: u64, len: u64) -> Result<Entry> {
        let entry = self.table.read().get(&id.0).map(|slot| slot.entry);
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

    fn read(&self, id: SegmentId, offset: u64, buf: &mut [u8]) -> Result<()> {
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
        let within = (offset % UNIT) as usize;
        let memory_aligned = (buf.as_ptr() as usize).is_multiple_of(DIRECT_ALIGN);
        if within == 0 && memory_aligned && buf.len().is_multiple_of(DIRECT_ALIGN) {
            return self.file.read_exact_at(buf, offset);
        }
        let len = (within + buf.len()).next_multiple_of(DIRECT_ALIGN);
        let mut bounce = AlignedBuf::zeroed(len);
        self.file.read_exact_at(&mut bounce, offset - within as u64)?;
        buf.copy_from_slice(&bounce[within..within + buf.len()]);
        Ok(())
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

    fn unknown(&self, id: SegmentId) -> Error {
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

    fn no_space(&self, units: u64) -> Error {
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

/// Makes an empty file under another name and renames it, so that a file of the right name always
/// has a superblock.
fn create_where_missing(os: &Os, dir: &Path, path: &Path) -> Result<()> {
    let failed = |what| move |e| io_error(path, what, 0, e);
    if os.vfs.exists(path).map_err(failed("look for"))? {
        return Ok(());
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let options = OpenOptions { truncate: true, ..OpenOptions::create() };
    let file = os.vfs.open(&unfinished, options).map_err(failed("make"))?;
    let mut id = [0; 16];
    os.entropy.fill(&mut id);
    let superblock = Superblock {
        file_id: u128::from_le_bytes(id),
        generation: 1,
        lsn: 0,
        written_ms: os.clock.wall_ms(),
        next_segment: 1,
        table: BlobPointer::NONE,
        root: BlobPointer::NONE,
    };
    let mut bytes = vec![0; 2 * SUPERBLOCK_BYTES];
    let at = Superblock::slot_offset(1) as usize;
    bytes[at..at + SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
    file.write_all_at(&bytes, 0).map_err(failed("make"))?;
    file.sync_all().map_err(failed("sync"))?;
    os.vfs.rename(&unfinished, path).map_err(failed("rename"))?;
    os.vfs.sync_dir(dir).map_err(failed("sync the directory of"))
}

fn newest_superblock(file: &dyn File, path: &Path) -> Result<Superblock> {
    let corruption =
        |what| Error::Corruption { file: path.to_path_buf(), offset: 0, segment: 0, page: 0, what };
    let mut bytes = AlignedBuf::zeroed(2 * SUPERBLOCK_BYTES);
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(corruption("the file is shorter than its superblocks"));
        }
        Err(e) => return Err(io_error(path, "read", 0, e)),
    }
    let mut newest: Option<Superblock> = None;
    for slot in bytes.chunks(SUPERBLOCK_BYTES) {
        match Superblock::decode_slot(slot) {
            Ok(found) if newest.is_none_or(|n| n.generation < found.generation) => {
                newest = Some(found);
            }
            Err(SlotError::Version(found)) => {
                return Err(Error::Version { file: path.to_path_buf(), found, known: VERSION });
            }
            Ok(_) | Err(SlotError::Invalid) => {}
        }
    }
    newest.ok_or_else(|| corruption("no valid superblock"))
}
