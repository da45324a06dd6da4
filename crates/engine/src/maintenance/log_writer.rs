//! The log thread: writes the log out early, so that a commit finds room in the buffer, and to disk
//! every `logFlushPeriod`, and for those who wait for that without a thread.

use crate::Result;
use crate::adjustable::Adjustable;
use crate::log::Log;
use crate::schedule::{Scheduler, is_due, micros};
use crate::tuning::Tuning;
use cachetable::{CacheTable, MemoryKind};
use locktree::LockTable;
use os::{Clock, Padded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wal::GroupDue;

/// Those who wait for a sync sync themselves when the log's thread ends, also by a bug.
struct EndServing<'a>(&'a Log);

impl Drop for EndServing<'_> {
    fn drop(&mut self) {
        self.0.wal().end_serving();
    }
}

/// Brings the log to disk by its period, and for those who wait for that without a thread.
pub(crate) struct LogWriter {
    log: Arc<Padded<Log>>,
    schedule: Arc<Scheduler>,
    locks: Arc<LockTable>,
    cache: Arc<CacheTable>,
    clock: Arc<dyn Clock>,
    /// With `logFlushPeriod`.
    adjustable: Arc<Adjustable>,
    /// When the log was flushed last where no thread does it, in microseconds of the monotonic clock.
    last: AtomicU64,
}

impl LogWriter {
    /// A writer that has flushed just now.
    pub(crate) fn new(
        log: &Arc<Padded<Log>>,
        schedule: &Arc<Scheduler>,
        locks: &Arc<LockTable>,
        cache: &Arc<CacheTable>,
        clock: &Arc<dyn Clock>,
        adjustable: &Arc<Adjustable>,
    ) -> Self {
        Self {
            log: Arc::clone(log),
            schedule: Arc::clone(schedule),
            locks: Arc::clone(locks),
            cache: Arc::clone(cache),
            clock: Arc::clone(clock),
            adjustable: Arc::clone(adjustable),
            last: AtomicU64::new(0),
        }
    }

    /// What the log thread does, until everything stops.
    pub(crate) fn run(&self) {
        let wal = self.log.wal();
        let wake = Arc::clone(&self.log.wake);
        wal.begin_serving(Arc::new(move || wake.notify()));
        let _ends = EndServing(&self.log);
        let round = Tuning::STANDARD.round;
        let mut synced = self.clock.monotonic();
        while !self.schedule.queue.is_stopping() {
            let set = self.adjustable.log_flush_period();
            let period = if set.is_zero() { round } else { set.min(round) };
            let now = self.clock.monotonic();
            let rest = period.saturating_sub(now.saturating_sub(synced));
            match wal.group_due(now) {
                GroupDue::Now => {
                    self.schedule.report("sync the log", self.log.sync_for_waiters());
                }
                GroupDue::At(until) => self.log.wake.wait(rest.min(until.saturating_sub(now))),
                GroupDue::Never => self.log.wake.wait(rest),
            }
            let now = self.clock.monotonic();
            if now.saturating_sub(synced) >= period {
                synced = now;
                self.schedule.report("flush the log", self.flush());
            } else if self.log.is_to_be_written(wal.next_lsn()) {
                self.schedule.report("write the log", self.log.write_out());
            }
        }
    }

    /// Flushes where the period is over; says whether that brought anything to disk.
    pub(crate) fn flush_if_due(&self) -> Result<bool> {
        let wal = self.log.wal();
        let unsynced = wal.synced_lsn() < wal.next_lsn();
        if !is_due(&self.last, micros(self.clock.monotonic()), self.adjustable.log_flush_period()) {
            return Ok(false);
        }
        self.flush()?;
        Ok(unsynced)
    }

    /// The period begins now.
    pub(crate) fn start(&self) {
        self.last.store(micros(self.clock.monotonic()), Ordering::Relaxed);
    }

    fn flush(&self) -> Result<()> {
        self.cache.report_held(MemoryKind::Locks, self.locks.bytes());
        self.log.flush()
    }
}
