//! Work nobody waits for: flushing the log, draining memtables and merging, checkpoints, the
//! cleaner, watching the disk's free space.
//!
//! ```text
//!  fern-log         every logFlushPeriod: log to disk; every second: how full is the disk
//!  fern-flush-N     the queue of trees with work, largest debt first; idle: the cleaner
//!  fern-checkpoint  every checkpointPeriod
//! ```
//!
//! Under [`Background::Manual`] no thread exists, and [`Environment::step`] does one unit of
//! whatever is due. Threads stop at the next unit after [`Jobs::stop`].
//!
//! [`Background::Manual`]: crate::Background::Manual

use crate::dictionary::Dictionary;
use crate::environment::Environment;
use crate::{Error, Result};
use ftree::{Effort, Progress, Work};
use os::JoinHandle;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a flusher rests after a failure before it tries again.
const RETRY: Duration = Duration::from_millis(200);
/// How often the free space is looked at.
const SPACE_PERIOD: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Queue {
    /// Dictionaries whose tree has work.
    waiting: BTreeSet<u64>,
    /// Dictionaries somebody works on: one worker per tree.
    running: BTreeSet<u64>,
    stop: bool,
}

/// The queue of background work, and the threads that serve it.
#[derive(Default)]
pub(crate) struct Jobs {
    queue: Mutex<Queue>,
    /// Flushers wait here for work…
    changed: Condvar,
    /// …and everybody who rests whether or not there is work, here: work wakes nobody else.
    resting: Condvar,
    threads: Mutex<Vec<JoinHandle>>,
    /// The last unit of background work found the disk full.
    no_space: AtomicBool,
    /// The disk is past its red zone.
    red: AtomicBool,
    /// The log's end when the last checkpoint was begun.
    pub(crate) checkpointed: AtomicU64,
    // When periodic work was last done, in microseconds of the monotonic clock.
    last_log_flush: AtomicU64,
    last_checkpoint: AtomicU64,
    last_clean: AtomicU64,
    last_space: AtomicU64,
}

impl Jobs {
    /// A dictionary's tree has work.
    pub(crate) fn queue(&self, dictionary: u64) {
        self.queue.lock().waiting.insert(dictionary);
        self.changed.notify_one();
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.queue.lock().stop = true;
        self.changed.notify_all();
        self.resting.notify_all();
    }

    fn stopping(&self) -> bool {
        self.queue.lock().stop
    }

    pub(crate) fn found_no_space(&self) -> bool {
        self.no_space.load(Ordering::Relaxed)
    }

    pub(crate) fn queued(&self) -> usize {
        let queue = self.queue.lock();
        queue.waiting.len() + queue.running.len()
    }

    /// Rests until there is work, the time is over, or everything stops.
    fn rest(&self, time: Duration) {
        let mut queue = self.queue.lock();
        if !queue.stop && queue.waiting.is_empty() {
            let _ = self.changed.wait_for(&mut queue, time);
        }
    }

    fn done(&self, dictionary: u64, more: bool) {
        let mut queue = self.queue.lock();
        queue.running.remove(&dictionary);
        if more {
            queue.waiting.insert(dictionary);
            self.changed.notify_one();
        }
    }

    /// Waits for the threads to end. Not from one of them.
    pub(crate) fn join(&self) {
        for thread in self.threads.lock().drain(..) {
            if let Err(panicked) = thread.join() {
                tracing::error!(%panicked, "a background thread ended by a panic");
            }
        }
    }
}

impl Environment {
    /// Starts the threads that drain and merge: recovery has work for them already.
    pub(crate) fn start_flushers(self: &Arc<Self>) -> Result<()> {
        self.jobs.last_clean.store(self.now_us(), Ordering::Relaxed);
        for number in 1..=self.options.tuning.flushers {
            self.spawn(&format!("fern-flush-{number}"), Self::run_flusher)?;
        }
        Ok(())
    }

    /// Starts the other threads, which need the log.
    pub(crate) fn start_threads(self: &Arc<Self>) -> Result<()> {
        let now = self.now_us();
        for last in [&self.jobs.last_checkpoint, &self.jobs.last_log_flush] {
            last.store(now, Ordering::Relaxed);
        }
        self.spawn("fern-log", Self::run_log)?;
        self.spawn("fern-checkpoint", Self::run_checkpoints)
    }

    fn spawn(self: &Arc<Self>, name: &str, run: fn(&Self)) -> Result<()> {
        let environment = Arc::clone(self);
        let job = Box::new(move || run(&environment));
        let thread = self.os.spawner.spawn(name, job).map_err(|e| Error::Io(e.to_string()))?;
        self.jobs.threads.lock().push(thread);
        Ok(())
    }

    fn run_log(&self) {
        let period = match self.options.log_flush_period {
            Duration::ZERO => SPACE_PERIOD,
            period => period.min(SPACE_PERIOD),
        };
        while !self.jobs.stopping() {
            self.jobs.rest_quietly(period);
            self.report("flush the log", self.flush_log());
            if self.is_due(&self.jobs.last_space, SPACE_PERIOD) {
                self.check_space();
            }
        }
    }

    fn run_checkpoints(&self) {
        while !self.jobs.stopping() {
            self.jobs.rest_quietly(Duration::from_millis(200));
            if self.is_checkpoint_due() {
                self.report("write a checkpoint", self.checkpoint());
            }
        }
    }

    fn run_flusher(&self) {
        while !self.jobs.stopping() {
            match self.work_once() {
                Ok(true) => {}
                Ok(false) => {
                    let period = self.options.cleaner_period;
                    if self.is_due(&self.jobs.last_clean, period) {
                        self.report("clean", self.clean());
                    } else {
                        self.jobs.rest(RETRY);
                    }
                }
                Err(error) => {
                    self.report("drain and merge", Err(error));
                    self.jobs.rest_quietly(RETRY);
                }
            }
        }
    }

    /// One unit of whatever is due, in a fixed order; false where nothing is.
    pub(crate) fn step(&self) -> Result<bool> {
        self.health.check_running()?;
        if self.is_due(&self.jobs.last_space, SPACE_PERIOD) {
            self.check_space();
        }
        let unsynced = self.wal().synced_lsn() < self.wal().next_lsn();
        if unsynced && self.is_due(&self.jobs.last_log_flush, self.options.log_flush_period) {
            self.flush_log()?;
            return Ok(true);
        }
        if self.is_checkpoint_due() {
            self.checkpoint()?;
            return Ok(true);
        }
        if self.work_once()? {
            return Ok(true);
        }
        if self.is_due(&self.jobs.last_clean, self.options.cleaner_period) {
            self.clean()?;
        }
        Ok(false)
    }

    /// Does one unit of the heaviest tree's work; false where no tree has any.
    pub(crate) fn work_once(&self) -> Result<bool> {
        let Some(dictionary) = self.take_job() else { return Ok(false) };
        let (before, started) = (dictionary.tree.debt().sealed_bytes, self.now_us());
        let worked = self.work_on(&dictionary, Effort::Needed);
        let more = !matches!(worked, Ok(Progress::Idle));
        self.jobs.done(dictionary.id, more);
        self.account(&dictionary);
        match worked {
            Ok(progress) => {
                let drained = match progress {
                    Progress::Done(Work::Drain) => {
                        before.saturating_sub(dictionary.tree.debt().sealed_bytes)
                    }
                    _ => 0,
                };
                self.memory.worked(drained, self.now_us().saturating_sub(started));
                if progress == Progress::Busy {
                    // The one inside is at it, or a commit is just ending.
                    std::thread::yield_now();
                }
                self.jobs.no_space.store(false, Ordering::Relaxed);
                Ok(true)
            }
            Err(error) => {
                let error = self.judge(error);
                let full = matches!(error, Error::NoSpace(_));
                self.jobs.no_space.store(full, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// The waiting dictionary with the largest debt.
    fn take_job(&self) -> Option<Arc<Dictionary>> {
        let mut queue = self.jobs.queue.lock();
        let queue = &mut *queue;
        let mut heaviest: Option<((u64, u64), Arc<Dictionary>)> = None;
        let mut gone = Vec::new();
        for id in queue.waiting.difference(&queue.running) {
            let Some(dictionary) = self.directory.find(*id) else {
                gone.push(*id);
                continue;
            };
            let debt = urgency(&dictionary);
            if heaviest.as_ref().is_none_or(|(most, _)| debt > *most) {
                heaviest = Some((debt, dictionary));
            }
        }
        for id in gone {
            queue.waiting.remove(&id);
        }
        let (_, dictionary) = heaviest?;
        queue.waiting.remove(&dictionary.id);
        queue.running.insert(dictionary.id);
        Some(dictionary)
    }

    fn flush_log(&self) -> Result<()> {
        let wal = self.wal();
        if wal.synced_lsn() < wal.next_lsn() {
            self.sync_log_to(wal.next_lsn())?;
        }
        Ok(())
    }

    /// Refuses writes past the red zone, takes them again before it.
    fn check_space(&self) {
        let Ok(space) = self.os.vfs.space(&self.options.dir) else { return };
        let percent = u64::from(self.options.fs_redzone_percent);
        let red = space.total > 0 && space.available < space.total / 100 * percent;
        if red != self.jobs.red.swap(red, Ordering::Relaxed) {
            let reason = format!(
                "{} of {} bytes are free, fsRedzone is {percent} percent",
                space.available, space.total
            );
            tracing::warn!(red, "free space: {reason}");
            self.health.set_full(red.then_some(reason));
        }
    }

    /// The cleaner: drains what lies in buffers for long, and drops what no snapshot needs any
    /// more, a little at a time.
    fn clean(&self) -> Result<()> {
        self.drop_invisible();
        self.locks.prune(self.snapshots.oldest());
        let mut left = self.options.cleaner_iterations;
        let mut all = self.directory.all();
        let idle_work = |dictionary: &Arc<Dictionary>| {
            let debt = dictionary.tree.debt();
            (debt.buffered_bytes, debt.garbage_entries)
        };
        all.retain(|dictionary| idle_work(dictionary) != (0, 0));
        all.sort_by_key(|dictionary| std::cmp::Reverse(idle_work(dictionary)));
        for dictionary in all {
            if left == 0 {
                break;
            }
            left -= 1;
            self.check(self.work_on(&dictionary, Effort::Idle))?;
        }
        Ok(())
    }

    fn report(&self, what: &'static str, result: Result<()>) {
        if let Err(error) = result {
            self.counters.background_errors.inc();
            if !self.health.is_closed() {
                tracing::error!(%error, "background work failed: {what}");
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.os.clock.monotonic().as_micros() as u64
    }

    /// The period is over, or the log has grown so much that a recovery would take long. A period
    /// of zero means never.
    fn is_checkpoint_due(&self) -> bool {
        let period = self.options.checkpoint_period;
        let grown =
            self.wal().next_lsn().saturating_sub(self.jobs.checkpointed.load(Ordering::Relaxed));
        if !period.is_zero() && grown > self.options.tuning.log_cap {
            self.jobs.last_checkpoint.store(self.now_us(), Ordering::Relaxed);
            return true;
        }
        self.is_due(&self.jobs.last_checkpoint, period)
    }

    /// Whether `period` (zero is never) has passed since `last`, which then is now.
    fn is_due(&self, last: &AtomicU64, period: Duration) -> bool {
        let now = self.now_us();
        let due = !period.is_zero()
            && now.saturating_sub(last.load(Ordering::Relaxed)) >= period.as_micros() as u64;
        if due {
            last.store(now, Ordering::Relaxed);
        }
        due
    }
}

/// What frees memory comes first, then what is most over its budget.
fn urgency(dictionary: &Dictionary) -> (u64, u64) {
    let debt = dictionary.tree.debt();
    (debt.sealed_bytes, debt.urgency)
}

impl Jobs {
    /// Rests whether or not there is work.
    fn rest_quietly(&self, time: Duration) {
        let mut queue = self.queue.lock();
        if !queue.stop {
            let _ = self.resting.wait_for(&mut queue, time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_wakes_a_flusher_and_not_the_log_thread() {
        let jobs = Jobs::default();
        let long = Duration::from_secs(20);
        std::thread::scope(|scope| {
            let log = scope.spawn(|| jobs.rest_quietly(long));
            std::thread::sleep(Duration::from_millis(50));
            let flusher = scope.spawn(|| jobs.rest(long));
            std::thread::sleep(Duration::from_millis(50));
            jobs.queue(1);
            for _ in 0..100 {
                if flusher.is_finished() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            let woken = (flusher.is_finished(), log.is_finished());
            jobs.stop();
            assert_eq!(woken, (true, false));
        });
    }
}
