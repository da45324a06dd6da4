//! The log thread and the maintenance thread: what has a period of its own and must not wait until
//! the flushers have nothing to do.
//!
//! ```text
//!  fern-log       writes the log out early, so that a commit finds room in the buffer; to disk
//!                 every logFlushPeriod
//!  fern-maintain  makes the next log segment ready, forgets locks no snapshot asks about, releases
//!                 dropped dictionaries, watches the disk's free space and gives space back to it
//! ```

use crate::environment::Environment;
use crate::schedule::load::{Activity, Rounds, SpaceLoad, Usage};
use crate::schedule::policy;
use crate::schedule::tuning::Tuning;
use crate::{Error, Result};
use cachetable::Part;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const TUNING: &Tuning = &Tuning::STANDARD;

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
    fn wait(&self, time: Duration) {
        let mut guard = self.lock.lock();
        if !self.notified.load(Ordering::Acquire) {
            let _ = self.changed.wait_for(&mut guard, time);
        }
        self.notified.store(false, Ordering::Release);
    }
}

/// What the maintenance thread remembers between its rounds.
#[derive(Default)]
pub(crate) struct Maintenance {
    last_round: AtomicU64,
    commits_seen: AtomicU64,
    rounds_without_work: AtomicU64,
    snapshots_seen: AtomicU64,
    /// Rounds in which hardly anybody wrote.
    rounds_unwritten: AtomicU64,
    /// Rounds in which nobody wrote and hardly anybody read.
    idle_rounds: AtomicU64,
    /// There was no room for the next log segment.
    log_full: AtomicBool,
    /// The data file as it was when moving segments was of no more use.
    compacted: Mutex<Option<blockfile::Space>>,
}

impl Environment {
    pub(crate) fn run_log(&self) {
        let period = match self.options.log_flush_period {
            Duration::ZERO => TUNING.round,
            period => period.min(TUNING.round),
        };
        let mut synced = self.os.clock.monotonic();
        while !self.jobs.stopping() {
            let since = self.os.clock.monotonic().saturating_sub(synced);
            self.log.wake.wait(period.saturating_sub(since));
            let now = self.os.clock.monotonic();
            if now.saturating_sub(synced) >= period {
                synced = now;
                self.report("flush the log", self.flush_log());
            } else {
                self.report("write the log", self.check(self.wal().write_out()));
            }
        }
    }

    pub(crate) fn run_maintenance(&self) {
        while !self.jobs.stopping() {
            self.jobs.pause(TUNING.round / 10);
            self.report("prepare the log", self.prepare_log());
            self.report("maintenance", self.maintenance_tick());
        }
    }

    /// The log has grown to `end`: much of it in memory is written out before it fills the buffer.
    pub(crate) fn log_grew(&self, end: u64) {
        if end.saturating_sub(self.wal().written_lsn()) > TUNING.write_early_bytes {
            self.log.wake.notify();
        }
        self.count_log_memory();
    }

    /// Counts the log's buffers into the cache's bound. They grow and shrink seldom.
    fn count_log_memory(&self) {
        let bytes = self.wal().memory_bytes();
        if self.log.told_memory.load(Ordering::Relaxed) != bytes {
            self.log.told_memory.store(bytes, Ordering::Relaxed);
            self.cache.sample(Part::Log, bytes);
        }
    }

    pub(crate) fn flush_log(&self) -> Result<()> {
        self.cache.sample(Part::Locks, self.locks.bytes());
        self.count_log_memory();
        let wal = self.wal();
        if wal.synced_lsn() < wal.next_lsn() {
            self.sync_log_to(wal.next_lsn())?;
        }
        // Where nobody has written since the last time, nobody will soon bring the mark that tells a
        // damaged record from a torn one.
        let end = wal.data_end();
        if self.log.seen_end.swap(end, Ordering::Relaxed) == end {
            ignore_no_space(self.check(wal.mark_synced()))?;
        }
        Ok(())
    }

    /// Makes the next log segment's file. Where there is no room for it writes are refused: what is
    /// left of the segment in use is for what gives space back.
    pub(crate) fn prepare_log(&self) -> Result<()> {
        // A drop or a checkpoint may have begun a segment meanwhile, which is empty and wants nothing:
        // as long as writes are refused it stays so.
        if self.wal().wants_file() || self.maintenance.log_full.load(Ordering::Relaxed) {
            let prepared = self.check(self.wal().prepare());
            let full = matches!(prepared, Err(Error::NoSpace(_)));
            if full != self.maintenance.log_full.swap(full, Ordering::Relaxed) {
                self.take_or_refuse_writes();
            }
            ignore_no_space(prepared.map(drop))?;
        }
        Ok(())
    }

    /// The write budget fitted, and one round, where it is due.
    pub(crate) fn maintenance_tick(&self) -> Result<()> {
        self.fit_budget();
        self.watch_disk();
        if !self.is_due(&self.maintenance.last_round, TUNING.round) {
            return Ok(());
        }
        self.note_idle();
        self.drop_invisible();
        self.locks.prune(self.snapshots.oldest_watching());
        ignore_no_space(self.give_space_back())
    }

    /// Before the round looks at commits.
    fn note_idle(&self) {
        let state = &self.maintenance;
        let activity = self.activity();
        state.snapshots_seen.store(self.snapshots.taken(), Ordering::Relaxed);
        let rounds = policy::after_round(activity.rounds, activity.since, TUNING);
        state.idle_rounds.store(rounds.idle, Ordering::Relaxed);
        state.rounds_unwritten.store(rounds.unwritten, Ordering::Relaxed);
        if let Some(least) = policy::seals_unwritten(rounds, self.options.is_cleaning(), TUNING) {
            for dictionary in self.directory.all() {
                if dictionary.tree.debt().active_bytes >= least {
                    self.seal(&dictionary);
                }
            }
        }
    }

    /// How much the engine is used.
    pub(crate) fn activity(&self) -> Activity {
        let state = &self.maintenance;
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Activity {
            rounds: Rounds {
                idle: load(&state.idle_rounds),
                unwritten: load(&state.rounds_unwritten),
            },
            since: Usage {
                commits: self.counters.commits.get().saturating_sub(load(&state.commits_seen)),
                snapshots: self.snapshots.taken().saturating_sub(load(&state.snapshots_seen)),
            },
        }
    }

    /// Nobody has used the engine for some rounds: the time is the cleaner's.
    pub(crate) fn is_idle(&self) -> bool {
        policy::is_idle(&self.activity(), TUNING)
    }

    pub(crate) fn take_or_refuse_writes(&self) {
        let reason = if self.is_red() {
            Some(self.red_zone_reason())
        } else if self.maintenance.log_full.load(Ordering::Relaxed) {
            Some("the disk has no room for the next segment of the log".to_owned())
        } else {
            None
        };
        self.health.set_full(reason);
    }

    /// Free space of the data file goes back to the filesystem: all of it where the engine is idle
    /// or the disk is short, otherwise only what is much more than the next work will take again.
    fn give_space_back(&self) -> Result<()> {
        let commits = self.counters.commits.get();
        let busy = self.maintenance.commits_seen.swap(commits, Ordering::Relaxed) != commits
            || self.jobs.queued() > 0;
        let rounds =
            if busy { 0 } else { self.maintenance.rounds_without_work.load(Ordering::Relaxed) + 1 };
        self.maintenance.rounds_without_work.store(rounds, Ordering::Relaxed);
        let space = self.blocks.space();
        let load = SpaceLoad {
            unused_bytes: space.unused_bytes,
            free_bytes: space.free_bytes,
            used_end_bytes: space.used_end_bytes,
            rounds_without_work: rounds,
            full: self.health.is_full(),
            compacted: *self.maintenance.compacted.lock() == Some(space),
        };
        let gives = policy::give_space_back(&load, TUNING);
        if gives.shrink {
            self.check(self.blocks.shrink(TUNING.punches))?;
        }
        if gives.compact {
            let moved = self.check(self.blocks.compact(TUNING.move_bytes))?;
            if moved == 0 {
                *self.maintenance.compacted.lock() = Some(self.blocks.space());
            }
        }
        Ok(())
    }
}

/// On a full disk there is nothing to do but to wait for room.
fn ignore_no_space(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::NoSpace(_)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
