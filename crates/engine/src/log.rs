//! The redo log as the engine uses it: records in, and how far back they are still needed.
//!
//! Trees forget in timestamps ("everything up to here is in my runs"), the log in positions. The
//! [`Needed`] index translates: sparse points (timestamp, position), and the first chunk of each
//! large transaction, which lies before its commit record.

use crate::Result;
use crate::counters::Counters;
use crate::error::ignore_no_space;
use crate::health::Health;
use crate::times::Times;
use crate::tuning::Tuning;
use cachetable::{CacheTable, MemoryKind, Reservation};
use os::sync::{Condvar, Mutex};
use os::{Clock, Wait, Waits};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wal::{Body, NewRecord, Wal};

/// So many bytes of log in memory wake the log's thread before its time, so that a commit finds
/// room in the buffer.
const WRITE_EARLY_BYTES: u64 = Tuning::STANDARD.write_early_bytes;

/// An encoded record that is longer is counted into the cache's bound while it is there, and so is its compressed form.
pub(crate) const COUNTED_RECORD: u64 = 256 << 10;

/// Bytes of log between two points of the index, usually.
const POINT_BYTES: u64 = 64 << 10;

/// Of chunks whose transaction has not committed.
const OPEN: u64 = u64::MAX;

/// Which part of the log somebody still needs.
pub(crate) struct Needed {
    /// (ts, position): commits newer than ts are at or behind the position. Ascending.
    points: VecDeque<(u64, u64)>,
    /// Large transactions: (at or before the first chunk, transaction) → commit timestamp.
    chunked: BTreeMap<(u64, u64), u64>,
    /// Bytes of log between two points.
    spacing: u64,
    /// Where the log began when it was opened, or was allowed to begin since.
    start: u64,
    /// Backups: positions that must stay.
    holds: BTreeMap<u64, usize>,
}

impl Needed {
    /// For a log whose segments are this long.
    pub(crate) fn new(segment_bytes: u64) -> Self {
        Self {
            points: VecDeque::new(),
            chunked: BTreeMap::new(),
            spacing: POINT_BYTES.min(segment_bytes / 8),
            start: 0,
            holds: BTreeMap::new(),
        }
    }

    /// Commits newer than `ts` are at or behind `position`: a moment without commits on the way.
    pub(crate) fn between(&mut self, ts: u64, position: u64) {
        let last = self.points.back().map_or(0, |(_, last)| *last);
        debug_assert!(last <= position, "positions ascend");
        if self.points.back().is_none_or(|(last, _)| *last < ts) {
            self.points.push_back((ts, position));
        }
    }

    /// The commit `ts` is at or behind `position`. Says from which position on it wants to know
    /// of the next one.
    pub(crate) fn commit(&mut self, ts: u64, position: u64) -> u64 {
        let last = self.points.back().map(|(_, last)| *last);
        let near = last.filter(|last| position.saturating_sub(*last) < self.spacing);
        if near.is_none() {
            let (newest, end) = self.points.back().copied().unwrap_or_default();
            debug_assert!(newest < ts && end <= position, "commits come in their order");
            self.points.push_back((ts.saturating_sub(1), position));
        }
        near.unwrap_or(position).saturating_add(self.spacing)
    }

    /// A large transaction's first chunk is at or behind `position`.
    pub(crate) fn chunk(&mut self, txn: u64, position: u64) {
        self.chunked.insert((position, txn), OPEN);
    }

    /// It committed at `ts`, or (`None`) it never will. That may be known before, of chunks that are void.
    pub(crate) fn chunks_end(&mut self, txn: u64, position: u64, ts: Option<u64>) {
        let before = match ts {
            Some(ts) => self.chunked.insert((position, txn), ts),
            None => self.chunked.remove(&(position, txn)).or(Some(OPEN)),
        };
        debug_assert_eq!(before, Some(OPEN), "chunks end once, where they began");
    }

    /// Keeps the log as it is now from its beginning; says where that is.
    pub(crate) fn hold(&mut self) -> u64 {
        *self.holds.entry(self.start).or_default() += 1;
        self.start
    }

    pub(crate) fn release(&mut self, position: u64) {
        debug_assert!(self.holds.contains_key(&position), "a hold is released once");
        if let Some(count) = self.holds.get_mut(&position) {
            *count -= 1;
            if *count == 0 {
                self.holds.remove(&position);
            }
        }
    }

    /// The log begins here.
    pub(crate) fn start_at(&mut self, position: u64) {
        self.start = position;
    }

    /// A position at or before every commit newer than `flushed`.
    pub(crate) fn position_after(&self, flushed: u64) -> u64 {
        let newer = self.points.partition_point(|(ts, _)| *ts <= flushed);
        let point = newer.checked_sub(1).and_then(|at| self.points.get(at));
        point.map_or(self.start, |(_, position)| *position)
    }

    /// Commits above `ts`, and chunks at or behind `from`, are void; others will come under their
    /// timestamps. Answers the transactions whose first chunk stays and whose commit does not, which may come
    /// again: with the position of that chunk.
    pub(crate) fn forget_after(&mut self, ts: u64, from: u64) -> Vec<(u64, u64)> {
        let stay = self.points.partition_point(|(point, _)| *point <= ts);
        self.points.truncate(stay);
        self.chunked.retain(|(position, _), commit| *commit <= ts || *position < from);
        let mut open = Vec::new();
        for ((position, txn), commit) in &mut self.chunked {
            if *commit > ts && *commit != OPEN {
                *commit = OPEN;
                open.push((*txn, *position));
            }
        }
        open
    }

    /// Everything up to `flushed` is in the trees: where the log may now begin.
    pub(crate) fn forget(&mut self, flushed: u64) -> u64 {
        let position = self.position_after(flushed);
        let newer = self.points.partition_point(|(ts, _)| *ts <= flushed);
        debug_assert!(self.points.iter().is_sorted(), "points stand in the order of commits");
        self.points.drain(..newer.saturating_sub(1));
        self.chunked.retain(|_, ts| *ts > flushed);
        let chunk = self.chunked.first_key_value().map_or(u64::MAX, |((position, _), _)| *position);
        let hold = self.holds.first_key_value().map_or(u64::MAX, |(position, _)| *position);
        self.start = self.start.max(position.min(chunk).min(hold));
        self.start
    }
}

/// An event that wakes the log thread.
#[derive(Default)]
pub(crate) struct Notify {
    notified: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Notify {
    /// Cheap where it was notified already.
    pub(crate) fn notify(&self) {
        if !self.notified.load(Ordering::Relaxed) && !self.notified.swap(true, Ordering::AcqRel) {
            let _not_between_look_and_wait = self.lock.lock();
            self.changed.notify_one();
        }
    }

    /// Returns when it is notified, or after `time`.
    pub(crate) fn wait(&self, time: Duration) {
        let mut guard = self.lock.lock();
        if !self.notified.load(Ordering::Acquire) {
            let _ = self.changed.wait_for(&mut guard, time);
        }
        self.notified.store(false, Ordering::Release);
    }
}

/// The log, and what is known of it.
pub(crate) struct Log {
    /// Set once, when recovery has read the log to its end.
    opened: OnceLock<Wal>,
    pub(crate) needed: Mutex<Needed>,
    /// Notified where much of the log is in memory only, and where somebody waits for a sync without a thread.
    pub(crate) wake: Arc<Notify>,
    /// The cluster times of commits, where history is kept.
    pub(crate) times: Option<Arc<Times>>,
    /// Redo begins here: where the last completed checkpoint says. What is before is history.
    redo_from: AtomicU64,
    /// What is before this is in the archive; where there is none everything counts as archived.
    archived: AtomicU64,
    /// Bytes of memory that the history's index takes.
    index_bytes: AtomicU64,
    /// Bytes of memory that a member's newest entries take.
    entry_bytes: AtomicU64,
    /// Where records ended at the last flush.
    seen_end: AtomicU64,
    /// The memory of the log's buffers that the cache was told of last.
    told_memory: AtomicU64,
    cache: Arc<CacheTable>,
    clock: Arc<dyn Clock>,
    health: Arc<Health>,
    counters: Arc<Counters>,
}

impl Log {
    pub(crate) fn new(
        segment_bytes: u64,
        times: Option<Arc<Times>>,
        cache: &Arc<CacheTable>,
        clock: &Arc<dyn Clock>,
        health: &Arc<Health>,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            opened: OnceLock::new(),
            needed: Mutex::new(Needed::new(segment_bytes)),
            wake: Arc::default(),
            times,
            redo_from: AtomicU64::new(0),
            archived: AtomicU64::new(u64::MAX),
            index_bytes: AtomicU64::new(0),
            entry_bytes: AtomicU64::new(0),
            seen_end: AtomicU64::new(0),
            told_memory: AtomicU64::new(0),
            cache: Arc::clone(cache),
            clock: Arc::clone(clock),
            health: Arc::clone(health),
            counters: Arc::clone(counters),
        }
    }

    /// Recovery has read it to its end.
    pub(crate) fn open(&self, wal: Wal) {
        assert!(self.opened.set(wal).is_ok(), "the log is opened once");
    }

    /// The log, once it is open for writing.
    pub(crate) fn opened(&self) -> Option<&Wal> {
        self.opened.get()
    }

    /// The log, open for writing.
    pub(crate) fn wal(&self) -> &Wal {
        self.opened().expect("recovery opens the log before anybody else sees the engine")
    }

    /// Appends a record; says where it ends.
    pub(crate) fn append(&self, record: &NewRecord<'_>) -> Result<u64> {
        let end = self.health.check(self.wal().append_record(record))?;
        self.grew(end);
        Ok(end)
    }

    /// The long part of a record, compressed where that pays, and the memory that this takes where it is much. Before the
    /// locks under which the record is appended.
    pub(crate) fn body<'a>(&self, bytes: &'a [u8]) -> (Body<'a>, Option<Reservation>) {
        let counts = bytes.len() as u64 > COUNTED_RECORD;
        let room = counts.then(|| self.cache.reserve(MemoryKind::WriteSets, bytes.len() as u64));
        (self.wal().body(bytes), room)
    }

    /// The same, where another member's log may have compressed it already.
    #[expect(clippy::rc_buffer, reason = "it came so, and is kept so")]
    pub(crate) fn body_of<'a>(
        &self,
        bytes: &'a [u8],
        block: Option<&Arc<Vec<u8>>>,
    ) -> (Body<'a>, Option<Reservation>) {
        match block {
            Some(block) => (self.wal().body_of(bytes, block), None),
            None => self.body(bytes),
        }
    }

    /// Returns when the log is on disk up to here.
    pub(crate) fn sync_to(&self, end: u64) -> Result<()> {
        let started = self.clock.monotonic();
        self.health.check(self.wal().sync_to(end))?;
        self.settle_times();
        self.waited_since(started);
        Ok(())
    }

    /// Syncs for those who wait without a thread, where that is due.
    pub(crate) fn sync_for_waiters(&self) -> Result<()> {
        self.health.check(self.wal().sync_for_waiters())
    }

    /// Who has begun to wait then is on disk.
    pub(crate) fn waited_since(&self, began: Duration) {
        let waited = self.clock.monotonic().saturating_sub(began);
        self.counters.sync_micros.record(waited.as_micros() as u64);
        Waits::add(Wait::LogSync, waited);
    }

    /// What is on disk is durable for readers of the history, whoever has synced it.
    pub(crate) fn settle_times(&self) {
        if let Some(times) = &self.times {
            times.settle(self.wal().synced_lsn());
        }
    }

    /// Where redo begins.
    pub(crate) fn redo_from(&self) -> u64 {
        self.redo_from.load(Ordering::Acquire)
    }

    /// What is before this may go, as far as redo and the archive are concerned.
    pub(crate) fn may_go_before(&self) -> u64 {
        self.redo_from().min(self.archived.load(Ordering::Acquire))
    }

    /// Everything before this is in the archive.
    pub(crate) fn set_archived(&self, position: u64) {
        self.archived.store(position, Ordering::Release);
    }

    /// A completed checkpoint says that redo begins here.
    pub(crate) fn set_redo_from(&self, position: u64) {
        let before = self.redo_from.fetch_max(position, Ordering::AcqRel);
        debug_assert!(before <= position, "redo begins later from checkpoint to checkpoint");
    }

    /// Lets go of what is before a position. Touches the disk.
    pub(crate) fn cut(&self, from: u64) -> Result<()> {
        assert!(from <= self.redo_from(), "redo finds all it needs");
        self.health.check(self.wal().trim(from))
    }

    /// The history's index takes so much memory.
    pub(crate) fn set_index_bytes(&self, bytes: u64) {
        self.index_bytes.store(bytes, Ordering::Relaxed);
    }

    /// A member's newest entries take so much memory.
    pub(crate) fn set_entry_bytes(&self, bytes: u64) {
        self.entry_bytes.store(bytes, Ordering::Relaxed);
    }

    /// It has grown to `end`: much of it in memory is written out before it fills the buffer.
    pub(crate) fn grew(&self, end: u64) {
        if self.is_to_be_written(end) {
            self.wake.notify();
        }
        self.count_memory();
    }

    /// Whether much of what is before `end` is in memory only.
    pub(crate) fn is_to_be_written(&self, end: u64) -> bool {
        end.saturating_sub(self.wal().written_lsn()) > WRITE_EARLY_BYTES
    }

    /// Counts the log's buffers into the cache's bound. They grow and shrink seldom.
    fn count_memory(&self) {
        let kept = &[&self.index_bytes, &self.entry_bytes];
        let kept: u64 = kept.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        let bytes = self.wal().memory_bytes() + kept;
        if self.told_memory.load(Ordering::Relaxed) != bytes {
            self.told_memory.store(bytes, Ordering::Relaxed);
            self.cache.report_held(MemoryKind::Log, bytes);
        }
    }

    /// Writes what is in memory out, without a sync.
    pub(crate) fn write_out(&self) -> Result<()> {
        self.health.check(self.wal().write_out())
    }

    /// Brings everything to disk.
    pub(crate) fn flush(&self) -> Result<()> {
        self.count_memory();
        let wal = self.wal();
        let synced = wal.synced_lsn();
        debug_assert!(synced <= wal.next_lsn(), "what is on disk was written");
        if synced < wal.next_lsn() {
            self.sync_to(wal.next_lsn())?;
        } else {
            self.settle_times();
        }
        // Where nobody has written since the last time, nobody will soon bring the mark that tells a
        // damaged record from a torn one.
        let end = wal.data_end();
        if self.seen_end.swap(end, Ordering::Relaxed) == end {
            ignore_no_space(self.health.check(wal.mark_synced()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed() -> Needed {
        let mut needed = Needed::new(u64::MAX);
        for ts in 1..=10 {
            needed.commit(ts, ts * POINT_BYTES);
        }
        needed
    }

    #[test]
    fn log_begins_at_the_first_commit_that_is_needed() {
        let mut needed = needed();
        assert_eq!(needed.position_after(4), 5 * POINT_BYTES);
        assert_eq!(needed.forget(4), 5 * POINT_BYTES);
        assert_eq!(needed.forget(4), 5 * POINT_BYTES);
        assert_eq!(needed.forget(100), 10 * POINT_BYTES, "the last point is kept");
    }

    #[test]
    fn small_commits_share_a_point() {
        let mut needed = Needed::new(u64::MAX);
        needed.commit(1, 0);
        needed.commit(2, 100);
        needed.commit(3, POINT_BYTES);
        assert_eq!(needed.forget(1), 0);
        assert_eq!(needed.forget(2), POINT_BYTES);
    }

    #[test]
    fn first_chunk_of_a_large_transaction_keeps_the_log() {
        let mut needed = needed();
        needed.chunk(77, 3 * POINT_BYTES);
        assert_eq!(needed.forget(6), 3 * POINT_BYTES, "not committed yet");
        needed.chunks_end(77, 3 * POINT_BYTES, Some(8));
        assert_eq!(needed.forget(7), 3 * POINT_BYTES);
        assert_eq!(needed.forget(8), 9 * POINT_BYTES);
    }

    #[test]
    fn commits_that_are_void_keep_nothing() {
        let mut needed = needed();
        needed.chunk(77, 3 * POINT_BYTES);
        needed.chunks_end(77, 3 * POINT_BYTES, Some(8));
        needed.chunk(78, 7 * POINT_BYTES);
        assert_eq!(needed.forget_after(6, 7 * POINT_BYTES), [(77, 3 * POINT_BYTES)]);
        assert_eq!(needed.position_after(6), 7 * POINT_BYTES);
        needed.commit(7, 20 * POINT_BYTES);
        assert_eq!(needed.position_after(7), 20 * POINT_BYTES);
        assert_eq!(needed.forget(6), 3 * POINT_BYTES, "its commit may come again");
        needed.chunks_end(77, 3 * POINT_BYTES, None);
        needed.chunks_end(78, 7 * POINT_BYTES, None);
        assert_eq!(needed.forget(6), 20 * POINT_BYTES, "void chunks keep nothing");
    }

    #[test]
    fn backup_keeps_the_log() {
        let mut needed = needed();
        assert_eq!(needed.forget(1), 2 * POINT_BYTES);
        let held = needed.hold();
        assert_eq!(needed.forget(9), 2 * POINT_BYTES);
        needed.release(held);
        assert_eq!(needed.forget(9), 10 * POINT_BYTES);
    }

    #[test]
    fn notification_before_the_wait_is_kept() {
        let notify = Notify::default();
        notify.notify();
        notify.notify();
        notify.wait(Duration::from_secs(20));
        assert!(!notify.notified.load(Ordering::Relaxed), "heard once");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| notify.wait(Duration::from_secs(20)));
            notify.notify();
            waiter.join().unwrap();
        });
    }
}
