//! The writing side: append to memory, write out, sync for a group.
//!
//! | bytes go from → to | function |
//! |---|---|
//! | caller → tail buffer, where there are files for them | [`Wal::append`] (`writer/append.rs`) |
//! | tail buffer → pending, encrypted where the log is → file | `Writer::write_out`, under the writer lock |
//! | file → disk | [`Wal::sync_to`] and [`Wal::sync_or_join`], one leader at a time (`sync.rs`) |

mod append;

use os::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crypt::{FreshKey, KeyRing, Purpose};
use os::sync::Mutex;
use os::{File, Os, Padded};

use crate::compressed::Compressors;
use crate::directory::{LogScan, Segment, scan, scan_files};
use crate::encrypted::encrypt_frames;
use crate::error::{Error, Result};
use crate::frame::MARK_BYTES;
use crate::group::Group;
use crate::maker::{BLOCK_BYTES, Begin, Filling, Ready, SegmentMaker};
use crate::metrics::Metrics;
use crate::reader::Replay;
use crate::rotate::begin_epoch;
use crate::segment::{EpochKey, HEADER_BYTES};
use crate::{Lsn, PlantedSyncBug, WalOptions};

/// A full buffer's last record may bring so many bytes beside its payload.
const FRAMING: usize = 64;

/// Which room a record may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// All but what is kept back.
    Ordinary,
    /// It gives space back, so that it must not fail for want of it: also what is kept back, and
    /// files that leave less free than [`Wal::keep_free`] says.
    GivesSpaceBack,
}

/// The log, open for writing. Shared behind an `Arc`; all methods may be called from many threads.
pub struct Wal {
    pub(crate) os: Os,
    pub(crate) dir: PathBuf,
    pub(crate) options: WalOptions,
    pub(crate) metrics: Metrics,
    pub(crate) salt: u64,
    /// Of this epoch, where the log is encrypted.
    key: Option<FreshKey>,
    /// For who reads earlier epochs.
    pub(crate) keys: Option<Arc<KeyRing>>,
    /// What is appended and not yet taken by the writer. Away from what every append reads.
    tail: Padded<Mutex<Tail>>,
    /// Who may write to the files.
    pub(crate) writer: Mutex<Writer>,
    /// Who may sync; the others wait.
    pub(crate) group: Arc<Group>,
    written: AtomicU64,
    pub(crate) synced: AtomicU64,
    /// There are files for everything before this; nothing is appended behind it.
    pub(crate) limit: AtomicU64,
    /// New files leave so many bytes of the filesystem free.
    pub(crate) keep_free: AtomicU64,
    /// Who makes files ahead of their use, and the one that is being filled.
    pub(crate) preparing: Mutex<Option<Filling>>,
    /// How many copies of the directory are under way: while there is one, no file loses its name.
    pub(crate) names_held: AtomicU64,
    compressors: Compressors,
    /// What the two buffers take.
    memory: [AtomicU64; 2],
    stopped: OnceLock<String>,
    pub(crate) planted: Option<PlantedSyncBug>,
}

/// The places of the buffers in `Wal::memory`.
const TAIL: usize = 0;
const PENDING: usize = 1;

struct Tail {
    buf: Vec<u8>,
    end: Lsn,
    /// Behind the last record: from there on there are only marks.
    data_end: Lsn,
    /// The newest mark says that everything before this was synced.
    marked: Lsn,
}

/// Where a record stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its position.
    pub begin: Lsn,
    /// The position behind it, which is what [`Wal::sync_to`] wants.
    pub end: Lsn,
}

pub(crate) struct Writer {
    /// All segments of the log; the last is the one in use.
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) file: Arc<dyn File>,
    /// Bytes from `written` on that were taken from the tail, and encrypted where the log is.
    pending: Vec<u8>,
    /// The files of the next segments, made ahead, in their order.
    pub(crate) ready: VecDeque<Ready>,
    pub(crate) spares: Vec<PathBuf>,
}

impl Wal {
    /// Finds the log of a directory (which need not exist yet) for replay;
    /// [`Replay::start_writing`] then gives the [`Wal`].
    pub fn open(os: &Os, dir: &Path, options: WalOptions, metrics: Metrics) -> Result<Replay> {
        let found = scan(os, dir)?;
        Ok(Replay::new(os, dir, options, metrics, found))
    }

    /// The log that these files make up, which may lie in several directories, for who only reads it;
    /// `dir` is what errors name.
    pub fn open_files(
        os: &Os,
        dir: &Path,
        files: Vec<PathBuf>,
        options: WalOptions,
        metrics: Metrics,
    ) -> Result<Replay> {
        let found = scan_files(os, files)?;
        Ok(Replay::new(os, dir, options, metrics, found))
    }

    pub(crate) fn start(
        os: &Os,
        dir: &Path,
        options: WalOptions,
        metrics: Metrics,
        keys: Option<Arc<KeyRing>>,
        (found, end): (&LogScan, Lsn),
    ) -> Result<Self> {
        os.vfs.create_dir_all(dir).map_err(|e| Error::io("make", dir, e))?;
        let salt = os.entropy.next_u64();
        let key = keys.as_ref().map(|keys| keys.fresh(Purpose::Log, &*os.entropy));
        // segments that begin behind the end held only a torn tail, and one that begins at the end
        // holds nothing: starts on a full disk must not need a file each
        let mut segments: VecDeque<Segment> = found.segments().cloned().collect();
        let mut spares = found.spares.clone();
        let maker = SegmentMaker { os, dir, options };
        // The newest header says what the log is: first those go that it does not name, then it.
        for spare in &spares {
            maker.forget_header(spare)?;
        }
        while let Some(last) = segments.back().map(|segment| segment.header.first_lsn)
            && (last > end || (last == end && segments.len() > 1))
        {
            let empty = segments.pop_back().expect("there is a last one").path;
            maker.forget_header(&empty)?;
            spares.push(empty);
        }
        let begin = Begin {
            number: found.last_number() + 1,
            salt,
            first_lsn: end,
            previous: segments.back().map_or(0, |segment| segment.header.number),
            key: key.as_ref().map(|key| EpochKey { number: key.number, salt: key.salt }),
        };
        let begun = begin_epoch(&maker, begin, &mut spares, segments.back());
        let (segment, Ready { file, .. }, recycled) = begun?;
        let limit = segment.header.end_lsn();
        (if recycled { &metrics.segments_recycled } else { &metrics.segments_made }).inc();
        segments.push_back(segment);
        let is_used = |spare: &PathBuf| segments.iter().any(|segment| segment.path == *spare);
        assert!(!spares.iter().any(is_used), "a segment of the log is no spare");
        Ok(Self {
            os: os.clone(),
            dir: dir.to_path_buf(),
            options,
            metrics,
            salt,
            key,
            keys,
            tail: Padded(Mutex::new(Tail { buf: Vec::new(), end, data_end: end, marked: end })),
            writer: Mutex::new(Writer {
                segments,
                file,
                pending: Vec::new(),
                ready: VecDeque::new(),
                spares,
            }),
            group: Arc::default(),
            written: AtomicU64::new(end),
            synced: AtomicU64::new(end),
            limit: AtomicU64::new(limit),
            keep_free: AtomicU64::new(0),
            preparing: Mutex::default(),
            names_held: AtomicU64::new(0),
            compressors: Compressors::default(),
            memory: Default::default(),
            stopped: OnceLock::new(),
            planted: None,
        })
    }

    /// Returns when there are files for so many bytes of ordinary records and of what frames them; it makes those that are
    /// missing. Where nobody else appends meanwhile, records that take no more than that find room on a full disk.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: the disk has no room for the files.
    pub fn make_files_for(&self, bytes: u64) -> Result<()> {
        let priority = Priority::Ordinary;
        let end = self.tail.lock().end;
        let until = end.saturating_add(bytes).saturating_add(self.kept_back(priority));
        if until > self.limit.load(Ordering::Acquire) {
            self.make_files(until, priority)?;
        }
        Ok(())
    }

    /// Says on disk, by a mark, that the last records were synced, where no mark says so yet: a
    /// damaged record with a mark behind it is told apart from one that was never complete. For
    /// times in which nothing is appended, whose next record would bring the mark. The mark is
    /// written and not synced.
    pub fn mark_synced(&self) -> Result<()> {
        let mut tail = self.tail.lock();
        let synced = self.synced.load(Ordering::Acquire);
        let has_file = tail.end + MARK_BYTES as u64 <= self.limit.load(Ordering::Acquire);
        if synced < tail.data_end || tail.marked >= tail.data_end || !has_file {
            return Ok(());
        }
        tail.mark(self.salt, synced);
        drop(tail);
        self.write_out()
    }

    /// From now on new files leave so many bytes of the filesystem free, but for records that give
    /// space back.
    pub fn keep_free(&self, bytes: u64) {
        self.keep_free.store(bytes, Ordering::Relaxed);
    }

    /// With a bug, for tests of tests.
    #[must_use]
    pub fn planted(self, bug: Option<PlantedSyncBug>) -> Self {
        Self { planted: bug, ..self }
    }

    /// Syncs everything appended so far.
    pub fn sync(&self) -> Result<()> {
        self.sync_to(self.next_lsn())
    }

    /// Hands everything appended so far to the kernel, without a sync: it survives the process,
    /// not the machine.
    pub fn write_out(&self) -> Result<()> {
        self.check_running()?;
        self.write_out_locked(&mut self.writer.lock())
    }

    /// The position behind the last append.
    pub fn next_lsn(&self) -> Lsn {
        self.tail.lock().end
    }

    /// The position behind the last record: as [`Wal::next_lsn`], without a mark that follows it.
    pub fn data_end(&self) -> Lsn {
        self.tail.lock().data_end
    }

    /// Everything before this was handed to the kernel.
    pub fn written_lsn(&self) -> Lsn {
        self.written.load(Ordering::Acquire)
    }

    /// Everything before this is on disk.
    pub fn synced_lsn(&self) -> Lsn {
        self.synced.load(Ordering::Acquire)
    }

    /// The first position the log still holds.
    pub fn first_lsn(&self) -> Lsn {
        self.writer.lock().segments.front().map_or(0, |segment| segment.header.first_lsn)
    }

    /// What happened since it was opened.
    pub fn stats(&self) -> crate::Stats {
        self.metrics.stats()
    }

    /// What is appended and not yet written takes so many bytes of memory, the room kept for more
    /// and what compresses records included.
    pub fn memory_bytes(&self) -> u64 {
        let buffers: u64 = self.memory.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        buffers + self.compressors.memory_bytes()
    }

    /// Bytes of segment files, spare ones not counted.
    pub fn disk_bytes(&self) -> u64 {
        let writer = self.writer.lock();
        writer.segments.iter().map(|s| s.header.body_bytes + HEADER_BYTES as u64).sum()
    }

    pub(crate) fn sync_file(&self, file: &dyn File) -> Result<()> {
        let start = self.os.clock.monotonic();
        let synced = file.sync_data();
        self.metrics.synced(self.os.clock.monotonic().saturating_sub(start));
        synced.map_err(|e| self.stop(Error::io("sync", &self.dir, e)))
    }

    /// Pending first, which a full disk may have left, then the tail.
    pub(crate) fn write_out_locked(&self, writer: &mut Writer) -> Result<()> {
        self.check_running()?;
        self.write_pending(writer)?;
        let mut tail = self.tail.lock();
        std::mem::swap(&mut tail.buf, &mut writer.pending);
        for (place, buffer) in [(TAIL, &tail.buf), (PENDING, &writer.pending)] {
            self.memory[place].store(buffer.capacity() as u64, Ordering::Relaxed);
        }
        drop(tail);
        if let Some(key) = &self.key {
            encrypt_frames(key, self.salt, self.written_lsn(), &mut writer.pending);
        }
        self.write_pending(writer)
    }

    fn write_pending(&self, writer: &mut Writer) -> Result<()> {
        let mut done = 0;
        let result = self.write_pieces(writer, &mut done);
        writer.pending.drain(..done);
        // One that grew for a record larger than itself goes with it.
        if writer.pending.is_empty()
            && writer.pending.capacity() > self.options.buffer_bytes + FRAMING
        {
            writer.pending = Vec::new();
            self.memory[PENDING].store(0, Ordering::Relaxed);
        }
        result
    }

    fn write_pieces(&self, writer: &mut Writer, done: &mut usize) -> Result<()> {
        while *done < writer.pending.len() {
            let mut header = writer.segment().header;
            let lsn = self.written_lsn();
            if lsn == header.end_lsn() {
                self.next_segment(writer)?;
                header = writer.segment().header;
            }
            let inside = header.first_lsn <= lsn && lsn < header.end_lsn();
            assert!(inside, "what is written lies inside the segment in use");
            let room = (header.end_lsn() - lsn) as usize;
            let length = room.min(writer.pending.len() - *done);
            let offset = HEADER_BYTES as u64 + (lsn - header.first_lsn);
            let zeros = rest_of_block(offset + length as u64).min((room - length) as u64) as usize;
            let pending = writer.pending.len();
            // Where more follows, or there is no room for them here, they are not worth a copy.
            let fits = *done + length == pending && pending + zeros <= writer.pending.capacity();
            let zeros = if fits { zeros } else { 0 };
            writer.pending.resize(pending + zeros, 0);
            let piece = &writer.pending[*done..*done + length + zeros];
            let started = self.os.clock.monotonic();
            let result = writer.file.write_all_at(piece, offset);
            writer.pending.truncate(pending);
            self.metrics
                .write_time
                .record_micros(self.os.clock.monotonic().saturating_sub(started));
            if let Err(e) = result {
                let error = Error::io("write", &writer.segment().path, e);
                return Err(self.stop_unless_full(error));
            }
            self.metrics.writes.inc();
            self.metrics.write_bytes.add(length as u64);
            *done += length;
            self.written.store(lsn + length as u64, Ordering::Release);
            let synced = self.synced_lsn();
            debug_assert!(synced <= self.written_lsn(), "only what was written is synced");
        }
        Ok(())
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        match self.stopped.get() {
            Some(cause) => Err(Error::Stopped { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    fn stop(&self, error: Error) -> Error {
        self.stopped.get_or_init(|| error.to_string());
        error
    }

    pub(crate) fn stop_unless_full(&self, error: Error) -> Error {
        if matches!(error, Error::NoSpace { .. }) { error } else { self.stop(error) }
    }
}

/// Bytes up to the end of the block in which this offset lies. They are written as zeros behind the last frame, which is
/// what a new file has there: of a block that is not written whole, the kernel reads the rest from disk first, and each
/// sync would wait for that.
fn rest_of_block(offset: u64) -> u64 {
    offset.next_multiple_of(BLOCK_BYTES) - offset
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wal").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Writer {
    pub(crate) fn segment(&self) -> &Segment {
        self.segments.back().expect("the segment in use is always there")
    }
}
