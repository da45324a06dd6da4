//! The log as the history: what happened since a time, for those who follow it.
//!
//! An engine that keeps history gives every commit a cluster time, writes what was noted beside the
//! writes into its record, and keeps the log longer than redo needs it: by length and age
//! ([`retention`]). Readers ([`HistoryTail`]) follow the log in its order, as far as it is durable.
//!
//! What is always true:
//! 1. Times ascend with commits, over restarts too; a commit of span n takes n of them.
//! 2. A reader gets every commit later than its time, once, in order, or [`Error::HistoryLost`].
//! 3. What redo or a backup needs of the log never goes for the history's sake.

mod points;
mod retention;
mod tail;
mod voids;

pub(crate) use points::Points;
pub(crate) use retention::trim;
pub use tail::{HistoryCommit, HistoryOperation, HistoryOperations, HistoryTail};
pub(crate) use voids::Voids;

use crate::commit_order::CommitOrder;
use crate::log::Log;
use crate::records::{HistoryHead, Record};
use crate::times::{Place, Times};
use crate::{Error, MAX_NOTE_BYTES, Result, Timestamp};
use os::{Clock, Padded};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wal::LiveReader;

/// No time is raised beyond this.
const LAST_RAISED: u64 = u64::MAX - (1 << 32);
/// How often, and how far apart, is looked for commits to become visible.
const RAISE_LOOKS: u32 = 1000;
const RAISE_PAUSE: Duration = Duration::from_micros(50);

/// How much history is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryOptions {
    /// Bytes of log above which the oldest goes.
    pub bytes: u64,
    /// What is younger stays nevertheless.
    pub min_age: Duration,
}

/// The history in figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryStats {
    /// Readers may start after this time.
    pub oldest_time: u64,
    /// The newest time that is durable.
    pub durable_time: u64,
    /// Bytes of log files.
    pub bytes: u64,
    /// What is asked for.
    pub options: HistoryOptions,
    /// Bytes of memory that its index takes.
    pub index_bytes: u64,
    /// Position of damage in the log, which is why nothing older can be read.
    pub damage: Option<u64>,
}

/// What is known of the log's beginning.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    /// The position of which this is true.
    at: u64,
    /// All commits later than this time are there.
    time: u64,
    /// Where the first frame of those begins: what is damaged there from now on is met, and never left
    /// out.
    first_frame: u64,
    /// Damage before it, which is why nothing older is there.
    damage: Option<u64>,
}

/// A commit that was looked for.
struct Found<T> {
    /// What was taken of it.
    taken: T,
    /// Where the first frame begins behind the damage before it.
    first_frame: u64,
    damage: Option<u64>,
}

/// The history of one engine.
pub struct History {
    log: Arc<Padded<Log>>,
    times: Arc<Times>,
    order: Arc<Padded<Mutex<CommitOrder>>>,
    clock: Arc<dyn Clock>,
    points: Mutex<Points>,
    options: Mutex<HistoryOptions>,
    /// Bytes of notes that one transaction may make.
    most_note_bytes: u64,
    /// From here on the log is history; what is before was written while none was kept.
    floor: AtomicU64,
    /// What is known of the beginning of the log, as it is now or was.
    beginning: Mutex<Option<Beginning>>,
    /// Damage at this position was logged.
    told_damage: AtomicU64,
    /// A start found that what is before this position is damaged.
    lost_before: AtomicU64,
    /// What other commits have taken the place of.
    voids: Mutex<Voids>,
}

impl History {
    pub(crate) fn new(
        options: HistoryOptions,
        most_note_bytes: u64,
        log: &Arc<Padded<Log>>,
        times: &Arc<Times>,
        order: &Arc<Padded<Mutex<CommitOrder>>>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        Self {
            log: Arc::clone(log),
            times: Arc::clone(times),
            order: Arc::clone(order),
            clock: Arc::clone(clock),
            points: Mutex::default(),
            options: Mutex::new(options),
            most_note_bytes: most_note_bytes.max(MAX_NOTE_BYTES as u64),
            floor: AtomicU64::new(0),
            beginning: Mutex::default(),
            told_damage: AtomicU64::new(u64::MAX),
            lost_before: AtomicU64::new(0),
            voids: Mutex::default(),
        }
    }

    /// Up to which position of the log, in bytes, everything was handed to the kernel: how much was written since another
    /// moment.
    pub fn written_position(&self) -> u64 {
        self.log.opened().map_or(0, wal::Wal::written_lsn)
    }

    /// The history begins at this position, because what is before it is damaged.
    pub(crate) fn lost_before(&self, position: u64) {
        self.lost_before.store(position, Ordering::Release);
    }

    /// Damage that is why nothing older can be read; none where the log was cut behind it since.
    fn damage(&self) -> Option<u64> {
        let known = self.beginning.lock().and_then(|known| known.damage);
        let lost = self.lost_before.load(Ordering::Acquire);
        known.or((lost > 0 && lost == self.log.wal().first_lsn()).then_some(lost))
    }

    /// A start found the newest commit here, and history from `from` on. Where not all of it is visible, it has
    /// told the times by itself.
    pub(crate) fn start_at(&self, newest: Place, from: Option<u64>, all_visible: bool) {
        let floor = from.unwrap_or(newest.end);
        self.floor.store(floor, Ordering::Release);
        // Nobody is to begin before what was not noted.
        self.points.lock().forget(floor);
        // Where it begins with this start, what was before is known.
        let (at, time) = (newest.end, newest.time);
        *self.beginning.lock() =
            from.is_none().then_some(Beginning { at, time, first_frame: at, damage: None });
        if all_visible {
            self.times.start_at(newest);
        }
    }

    /// Records from `from` on, up to the cut that ends at `to`, are void; the newest commit that stays is at
    /// `place`.
    pub(crate) fn cut_tail(&self, from: u64, to: u64, place: Place) {
        self.voids.lock().add(from, to);
        let mut points = self.points.lock();
        points.forget_from(from);
        self.log.set_index_bytes(points.memory_bytes());
        drop(points);
        self.times.forget_after(place);
    }

    /// What a start found to be void.
    pub(crate) fn set_voids(&self, voids: Voids) {
        *self.voids.lock() = voids;
    }

    /// What of the log that is there is void.
    pub(crate) fn voids(&self) -> Voids {
        let mut voids = self.voids.lock();
        voids.trim(self.log.wal().first_lsn());
        voids.clone()
    }

    /// Whether a record counts for nothing.
    pub(crate) fn is_void(&self, position: u64) -> bool {
        self.voids.lock().has(position)
    }

    /// From here on the log is history.
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    /// Bytes of notes that one transaction may make.
    pub(crate) fn most_note_bytes(&self) -> u64 {
        self.most_note_bytes
    }

    pub(crate) fn times(&self) -> &Arc<Times> {
        &self.times
    }

    /// A commit is in the log at `position`. Says from which position on it wants to know of the next
    /// one.
    pub(crate) fn note_commit(&self, head: &HistoryHead, chunks: u32, position: u64) -> u64 {
        let mut points = self.points.lock();
        if chunks > 0 {
            points.large(position, head.first_chunk);
        }
        let next = points.commit(head.time, position);
        self.log.set_index_bytes(points.memory_bytes());
        next
    }

    /// Readers may start after this time: every later commit is there. Reads the disk where the log was
    /// cut since it was asked last.
    pub fn oldest_time(&self) -> Result<u64> {
        loop {
            let from = self.begins_at();
            match self.oldest_time_from(from) {
                // Its file was let go of while it was read.
                Err(Error::HistoryLost) if self.begins_at() != from => {}
                read => return read,
            }
        }
    }

    /// The place in the log before which nothing is read.
    fn begins_at(&self) -> u64 {
        self.log.wal().first_lsn().max(self.floor())
    }

    fn oldest_time_from(&self, from: u64) -> Result<u64> {
        let mut beginning = self.beginning.lock();
        if let Some(known) = beginning.filter(|known| known.at == from) {
            return Ok(known.time);
        }
        let durable = self.times.durable();
        let mut cut = None;
        let first = |head: &HistoryHead, chunks| {
            if chunks == 0 || head.first_chunk >= from {
                return Some(head.time.saturating_sub(1));
            }
            // It began in what went.
            cut = Some(head.last_time());
            None
        };
        let Found { taken, first_frame, damage } = self.find_commit(from, durable.end, first)?;
        let Some(time) = taken.or(cut) else { return Ok(durable.time) };
        if let Some(at) = damage {
            tracing::error!(from, damage = at, "the history begins behind a damaged record");
        }
        *beginning = Some(Beginning { at: from, time, first_frame, damage });
        Ok(time)
    }

    /// The first commit at or behind a position, and before `until`, of which `take` takes something. Damage
    /// before it is stepped over, and answered.
    fn find_commit<T>(
        &self,
        from: u64,
        until: u64,
        mut take: impl FnMut(&HistoryHead, u32) -> Option<T>,
    ) -> Result<Found<Option<T>>> {
        let wal = self.log.wal();
        let mut found = Found { taken: None, first_frame: until, damage: None };
        let mut reader = LiveReader::at(from);
        // Where history begins a record does.
        let sought = if from == self.floor() {
            Ok(from < until)
        } else {
            reader.seek_frame(wal, from, until)
        };
        let mut there = match sought {
            Err(wal::Error::Corruption { lsn, .. }) => {
                found.damage = Some(lsn);
                reader.seek(from);
                tail::lost(reader.skip_damage(wal, until))?
            }
            other => tail::lost(other)?,
        };
        found.first_frame = reader.position();
        while there {
            let record = match reader.next_record(wal, until) {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(wal::Error::Corruption { lsn, .. }) => {
                    found.damage.get_or_insert(lsn);
                    there = tail::lost(reader.skip_damage(wal, until))?;
                    found.first_frame = reader.position();
                    continue;
                }
                Err(error) => return tail::lost(Err(error)),
            };
            let damaged = |e| Error::in_record(record.lsn, e);
            if let Record::Commit { chunks, history: Some(head), .. } =
                Record::decode(record.payload).map_err(damaged)?
                && !self.is_void(record.lsn)
            {
                found.taken = take(&head, chunks);
                if found.taken.is_some() {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// The newest time such that every commit up to it is visible, and on disk: readers see what is up
    /// to here.
    pub fn durable_time(&self) -> u64 {
        self.times.durable_time()
    }

    /// The newest commit that is visible now, and the last of its times.
    pub fn newest(&self) -> (Timestamp, u64) {
        let place = self.times.visible();
        (Timestamp(place.timestamp), place.time)
    }

    /// The times of all commits from here on are later than `time`. Says which commit is the newest
    /// of the others; it is visible when this returns. Nothing is written: after a crash before the next
    /// commit, or before a checkpoint, it counts for nothing.
    pub fn raise(&self, time: u64) -> Timestamp {
        let newest = {
            let mut order = self.order.lock();
            // The last times of all are left for commits.
            order.time = order.time.max(time.min(LAST_RAISED));
            order.newest
        };
        // Those that are on their way take microseconds, unless the engine has stopped.
        for _ in 0..RAISE_LOOKS {
            if self.times.visible().timestamp >= newest {
                break;
            }
            self.clock.sleep(RAISE_PAUSE);
        }
        Timestamp(newest)
    }

    /// Waits until something later than `time` is durable, or the monotonic clock says `deadline`; says
    /// whether there is.
    pub fn wait_past(&self, time: u64, deadline: Duration) -> bool {
        self.times.wait_past(time, deadline)
    }

    /// Has `call` made when [`History::durable_time`] grows next. Look at that after this: what became durable
    /// before is told to nobody.
    pub fn watch(&self, call: os::Call) -> os::Watch {
        self.times.watch(call)
    }

    /// A reader of all commits later than `time`. Reads the disk.
    ///
    /// # Errors
    /// [`Error::HistoryLost`] where the log does not reach back so far.
    pub fn read_after(self: &Arc<Self>, time: u64) -> Result<HistoryTail> {
        let reader = self.place_again(time)?;
        Ok(HistoryTail::new(self, reader, time))
    }

    /// Where a reader that has seen everything up to `time` goes on, also where the place at which it
    /// stood went, and no commit later than `time` with it.
    fn place_again(&self, time: u64) -> Result<LiveReader> {
        loop {
            let from = self.begins_at();
            if time < self.oldest_time()? {
                return Err(Error::HistoryLost);
            }
            match self.place_of(time) {
                // A file was let go of while it was looked at.
                Err(Error::HistoryLost) if self.begins_at() != from => {}
                place => return place,
            }
        }
    }

    /// A place at or before every commit later than `time`.
    fn place_of(&self, time: u64) -> Result<LiveReader> {
        let (wal, durable) = (self.log.wal(), self.times.durable());
        if time >= durable.time {
            return Ok(LiveReader::at(durable.end));
        }
        if let Some(point) = self.points.lock().before(time) {
            return Ok(LiveReader::at(point.position));
        }
        // Before what is in memory: the file whose first commit is the last at or before the time.
        let start = wal.first_lsn().max(self.floor());
        let until = self.points.lock().first().map_or(durable.end, |first| first.position);
        let mut firsts = wal.segment_bounds();
        firsts.retain(|first| start < *first && *first < until);
        let (mut low, mut high) = (0, firsts.len());
        while low < high {
            let middle = low.midpoint(high);
            let first = firsts.get(middle).copied().unwrap_or(until);
            if self.time_behind(first, until)?.is_some_and(|behind| behind <= time) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let from = low.checked_sub(1).and_then(|at| firsts.get(at)).copied();
        let known = *self.beginning.lock();
        if from.is_none()
            && let Some(known) = known.filter(|known| known.at == start)
        {
            return Ok(LiveReader::at(known.first_frame));
        }
        let from = from.unwrap_or(start);
        let mut reader = LiveReader::default();
        if !tail::lost(reader.seek_frame(wal, from, durable.end))? {
            reader.seek(durable.end);
        }
        Ok(reader)
    }

    /// A time behind which all commits at or behind a position are that can be read; `None` where there is
    /// none before `until`.
    fn time_behind(&self, from: u64, until: u64) -> Result<Option<u64>> {
        // Behind damage there are fewer commits, so that the answer is late, and never early.
        let found = self.find_commit(from, until, |head, _| Some(head.time.saturating_sub(1)))?;
        Ok(found.taken)
    }

    /// From now on so much is kept. What is gone does not come back.
    pub fn resize(&self, options: HistoryOptions) {
        *self.options.lock() = options;
    }

    /// How much is kept.
    pub fn options(&self) -> HistoryOptions {
        *self.options.lock()
    }

    /// The history in figures. May read the disk.
    pub fn stats(&self) -> Result<HistoryStats> {
        Ok(HistoryStats {
            oldest_time: self.oldest_time()?,
            durable_time: self.durable_time(),
            bytes: self.log.wal().disk_bytes(),
            options: self.options(),
            index_bytes: self.points.lock().memory_bytes(),
            damage: self.damage(),
        })
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History")
            .field("durable_time", &self.durable_time())
            .finish_non_exhaustive()
    }
}
