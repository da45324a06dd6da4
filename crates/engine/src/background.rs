//! Work nobody waits for: draining memtables and merging, checkpoints, the cleaner; the log's
//! thread and the maintenance thread are in `maintenance`.
//!
//! ```text
//!  fern-flush-N     the queue of trees with work, largest debt first, several in one tree where
//!                   its units do not meet, half of them at merges at most; idle: what reads have
//!                   paid for, then the cleaner, by its period while somebody uses the engine,
//!                   without a pause while nobody does
//!  fern-checkpoint  every checkpointPeriod
//! ```
//!
//! Under [`Background::Manual`] no thread exists, and [`Environment::step`] does one unit of
//! whatever is due. Threads stop at the next unit after [`Jobs::stop`].
//!
//! [`Background::Manual`]: crate::Background::Manual

use crate::dictionary::{Dictionary, Found};
use crate::environment::Environment;
use crate::health::Health;
use crate::schedule::load::{CheckpointLoad, CleanerLoad, IdleWork, Load, ReadBackoff, TreeLoad};
use crate::schedule::policy::{self, CheckpointReason, Decision};
use crate::schedule::tuning::Tuning;
use crate::{Error, Result};
use ftree::{Effort, Progress, Work};
use os::{JoinHandle, Wait, Waits};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const TUNING: &Tuning = &Tuning::STANDARD;

/// A dictionary is *waiting* while its tree may have a unit nobody is at; taking a unit leaves it
/// waiting, for several workers can be in one tree. It is *blocked* from the moment a worker finds
/// that others are at all there is, until one of them is done; and *deferred* where there is a
/// merge to do beside those that are being done, until somebody in any tree is done.
#[derive(Default)]
struct Queue {
    /// With the number of the event that last said there may be work: what a worker finds holds
    /// only if there was none since it looked.
    waiting: BTreeMap<u64, u64>,
    blocked: BTreeSet<u64>,
    deferred: BTreeSet<u64>,
    /// How many are at work in which tree.
    running: BTreeMap<u64, u32>,
    events: u64,
    /// Units that ended, however they ended, but for those that were deferred.
    units_ended: u64,
    /// Where the next look begins.
    look_from: u64,
    stop: bool,
}

/// How a worker's attempt at a unit ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnitOutcome {
    /// It did a unit, or failed to: there may be more.
    Done,
    /// Others are at all there is.
    Busy,
    /// There are merges, and others are at as many as may be.
    Deferred,
    Nothing,
}

impl Queue {
    /// There may be work in this tree.
    fn add(&mut self, dictionary: u64) {
        self.events += 1;
        self.waiting.insert(dictionary, self.events);
        self.blocked.remove(&dictionary);
        self.deferred.remove(&dictionary);
    }

    fn remove(&mut self, dictionary: u64) {
        self.waiting.remove(&dictionary);
        self.blocked.remove(&dictionary);
        self.deferred.remove(&dictionary);
    }

    fn ready(&self) -> impl Iterator<Item = u64> {
        let waiting = self.waiting.keys().copied();
        waiting.filter(|id| !self.blocked.contains(id) && !self.deferred.contains(id))
    }

    /// The trees to choose from: all that are ready, or, where they are many, some in turn.
    fn choice(&mut self) -> Vec<u64> {
        if self.waiting.len() <= TUNING.compared {
            return self.ready().collect();
        }
        let is_ready = |id: &u64| !self.blocked.contains(id) && !self.deferred.contains(id);
        let (behind, ahead) =
            (self.waiting.range(..self.look_from), self.waiting.range(self.look_from..));
        let in_turn = ahead.chain(behind).map(|(id, _)| *id);
        let choice: Vec<u64> = in_turn.filter(is_ready).take(TUNING.compared).collect();
        debug_assert!(choice.len() <= TUNING.compared, "what one choice looks at is bounded");
        self.look_from = choice.last().map_or(0, |last| last.wrapping_add(1));
        choice
    }

    fn enter(&mut self, dictionary: u64) -> TreeLease {
        *self.running.entry(dictionary).or_default() += 1;
        let event = self.waiting.get(&dictionary).copied().unwrap_or_default();
        TreeLease { dictionary, event, units_ended: self.units_ended }
    }

    /// Says whether the worker has to look again by itself: nobody will tell it.
    fn leave(&mut self, lease: &TreeLease, outcome: UnitOutcome) -> bool {
        let TreeLease { dictionary, event, units_ended: seen } = *lease;
        debug_assert!(self.running.contains_key(&dictionary), "who leaves has entered");
        let others = self.running.get(&dictionary).map_or(0, |count| count.saturating_sub(1));
        match others {
            0 => self.running.remove(&dictionary),
            _ => self.running.insert(dictionary, others),
        };
        let news = self.waiting.get(&dictionary) != Some(&event);
        if outcome != UnitOutcome::Deferred {
            self.units_ended += 1;
            self.deferred.clear();
        }
        match outcome {
            UnitOutcome::Done => self.add(dictionary),
            UnitOutcome::Deferred if self.units_ended == seen => {
                self.deferred.insert(dictionary);
            }
            UnitOutcome::Busy if others > 0 && !news => {
                self.blocked.insert(dictionary);
            }
            UnitOutcome::Busy if others == 0 => {
                // Whoever waits to be told that the last of them is done would wait for good.
                self.blocked.remove(&dictionary);
            }
            UnitOutcome::Nothing if !news => self.remove(dictionary),
            UnitOutcome::Busy | UnitOutcome::Deferred | UnitOutcome::Nothing => {}
        }
        // An insert into a sealed memtable is ending, or somebody outside the queue is at work.
        outcome == UnitOutcome::Busy && others == 0 && !news
    }
}

/// What there is for a worker.
enum Job {
    /// A tree to do a unit in.
    Unit(Found, TreeLease, Effort),
    /// Others are enough for what there is.
    Spare,
    /// What reads have paid for.
    ServeReads,
    /// A pass of the cleaner.
    Clean,
    /// Nothing.
    Wait,
}

/// A worker's right to do one unit in a tree.
struct TreeLease {
    dictionary: u64,
    /// The last that was heard of the tree before.
    event: u64,
    /// `Queue::units_ended` when the unit began.
    units_ended: u64,
}

/// The queue of background work, and the threads that serve it.
#[derive(Default)]
pub(crate) struct Jobs {
    queue: Mutex<Queue>,
    /// Flushers wait here for work.
    changed: Condvar,
    /// Threads that pause whether or not there is work wait here: new work does not wake them.
    pausing: Condvar,
    threads: Mutex<Vec<JoinHandle>>,
    /// Until when background work backs off for foreground reads, in microseconds of the monotonic
    /// clock.
    read_backoff_until: AtomicU64,
    /// The last unit of background work found the disk full.
    no_space: AtomicBool,
    /// The log's end when the last checkpoint was begun.
    pub(crate) checkpointed: AtomicU64,
    /// Bytes of the data file that waited for the next one when it was complete.
    pub(crate) dropped: AtomicU64,
    // When periodic work was last done, in microseconds of the monotonic clock.
    last_log_flush: AtomicU64,
    last_checkpoint: AtomicU64,
    last_clean: AtomicU64,
    /// The cleaner has found something the last time.
    cleaned: AtomicBool,
    last_wanted: AtomicU64,
}

impl Jobs {
    /// A dictionary's tree has work.
    pub(crate) fn queue(&self, dictionary: u64) {
        self.queue.lock().add(dictionary);
        self.changed.notify_one();
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.queue.lock().stop = true;
        self.changed.notify_all();
        self.pausing.notify_all();
    }

    /// There is work in the queue, or everything stops.
    fn is_called(&self) -> bool {
        let queue = self.queue.lock();
        queue.stop || queue.ready().next().is_some()
    }

    pub(crate) fn stopping(&self) -> bool {
        self.queue.lock().stop
    }

    pub(crate) fn found_no_space(&self) -> bool {
        self.no_space.load(Ordering::Relaxed)
    }

    pub(crate) fn queued(&self) -> usize {
        let queue = self.queue.lock();
        let idle = |dictionary: &&u64| !queue.running.contains_key(*dictionary);
        queue.running.len() + queue.waiting.keys().filter(idle).count()
    }

    /// Waits until there is work, the time is over, or everything stops.
    fn wait_for_work(&self, time: Duration) {
        let mut queue = self.queue.lock();
        if !queue.stop && queue.ready().next().is_none() {
            let waits = !queue.deferred.is_empty();
            let _ = self.changed.wait_for(&mut queue, if waits { TUNING.spare_wait } else { time });
            queue.deferred.clear();
        }
    }

    /// Waits although there is work, until others may be too few for it.
    fn wait_as_spare(&self) {
        let mut queue = self.queue.lock();
        if !queue.stop {
            let _ = self.changed.wait_for(&mut queue, TUNING.spare_wait);
        }
    }

    /// A worker leaves a tree. May wait a moment.
    fn leave(&self, lease: &TreeLease, outcome: UnitOutcome) {
        let mut queue = self.queue.lock();
        if queue.leave(lease, outcome) && !queue.stop {
            let _ = self.changed.wait_for(&mut queue, TUNING.busy_wait);
        } else if outcome == UnitOutcome::Done {
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
        for number in 1..=self.options.sizes.flushers {
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
        self.spawn("fern-maintain", Self::run_maintenance)?;
        self.spawn("fern-checkpoint", Self::run_checkpoints)
    }

    /// Ends the threads, at their next unit, and waits for that.
    pub(crate) fn stop_threads(&self) {
        self.jobs.stop();
        self.log.wake.notify();
        self.jobs.join();
        self.trees.readers.stop();
    }

    fn spawn(self: &Arc<Self>, name: &str, run: fn(&Self)) -> Result<()> {
        let environment = Arc::clone(self);
        let job = Box::new(move || {
            let _watch = StopOnPanic(&environment.health);
            run(&environment);
        });
        let thread =
            self.os.spawner.spawn(name, job).map_err(|e| Error::Io(e.to_string().into()))?;
        self.jobs.threads.lock().push(thread);
        Ok(())
    }

    fn run_checkpoints(&self) {
        while !self.jobs.stopping() {
            self.jobs.pause(Duration::from_millis(200));
            if self.is_checkpoint_due() && self.has_changed() {
                self.report("write a checkpoint", self.checkpoint());
            }
        }
    }

    fn run_flusher(&self) {
        // A commit that wants the processor gets it; writers are slowed where this falls behind.
        os::work_in_background();
        while !self.jobs.stopping() {
            match self.take_job() {
                Job::Unit(dictionary, lease, effort) => {
                    if let Err(error) = self.run_unit(&dictionary, &lease, effort) {
                        self.report("drain and merge", Err(error));
                        self.jobs.pause(TUNING.retry);
                    }
                }
                Job::Spare => self.jobs.wait_as_spare(),
                Job::ServeReads => self.report("drain what is read", self.serve_reads()),
                Job::Clean => self.report("clean", self.clean()),
                Job::Wait => self.jobs.wait_for_work(TUNING.retry),
            }
        }
    }

    /// After a unit of `busy` microseconds in which readers have `waited` for the disk: no unit
    /// is begun for some time. Merging makes reads cheaper later, but now competes with them.
    /// Counts for nothing where memory fills ([`Environment::take_job`]).
    fn back_off_for_reads(&self, busy: u64, waited: u64) {
        if let Some(backoff) = policy::read_backoff(busy, waited, TUNING) {
            self.jobs.read_backoff_until.fetch_max(self.now_us() + backoff, Ordering::Relaxed);
        }
    }

    /// One unit of whatever is due, in a fixed order; false where nothing is.
    pub(crate) fn step(&self) -> Result<bool> {
        self.health.check_running()?;
        self.prepare_log()?;
        self.maintenance_tick()?;
        let unsynced = self.wal().synced_lsn() < self.wal().next_lsn();
        if self.is_due(&self.jobs.last_log_flush, self.options.log_flush_period) {
            self.flush_log()?;
            if unsynced {
                return Ok(true);
            }
        }
        if self.is_checkpoint_due() && self.has_changed() {
            self.checkpoint()?;
            return Ok(true);
        }
        loop {
            match self.take_job() {
                Job::Unit(dictionary, lease, effort) => {
                    self.run_unit(&dictionary, &lease, effort)?;
                    return Ok(true);
                }
                Job::Spare => {
                    self.jobs.wait_as_spare();
                    return Ok(true);
                }
                Job::ServeReads => self.serve_reads()?,
                Job::Clean => {
                    self.clean()?;
                    return Ok(false);
                }
                Job::Wait => return Ok(false),
            }
        }
    }

    /// Where nothing else is due: the flushes that reads have paid for, until there are none or
    /// something else is due.
    fn serve_reads(&self) -> Result<()> {
        for dictionary in self.directory.those(|dictionary| dictionary.tree.is_wanted()) {
            while !self.jobs.is_called() {
                let worked = self.check(self.work_on(&dictionary, Effort::Wanted))?;
                if !matches!(worked, Progress::Done(_)) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Does one unit of work, or waits a little while others are enough for what there is; false
    /// where no tree has any.
    pub(crate) fn work_once(&self) -> Result<bool> {
        match self.take_unit() {
            Job::Unit(dictionary, lease, effort) => {
                self.run_unit(&dictionary, &lease, effort)?;
                Ok(true)
            }
            Job::Spare => {
                self.jobs.wait_as_spare();
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn run_unit(&self, dictionary: &Dictionary, lease: &TreeLease, effort: Effort) -> Result<()> {
        let (before, started) = (dictionary.tree.debt().sealed_bytes, self.now_us());
        let (waited, own) = (self.cache.waited_for_disk(), Waits::now());
        let worked = self.work_on(dictionary, effort);
        self.account(dictionary);
        let outcome = match worked {
            Ok(Progress::Idle) => UnitOutcome::Nothing,
            Ok(Progress::Busy) => UnitOutcome::Busy,
            Ok(Progress::Deferred) => UnitOutcome::Deferred,
            Ok(Progress::Done(_)) | Err(_) => UnitOutcome::Done,
        };
        self.jobs.leave(lease, outcome);
        match worked {
            Ok(progress) => {
                let drained = match progress {
                    Progress::Done(Work::Drain) => {
                        before.saturating_sub(dictionary.tree.debt().sealed_bytes)
                    }
                    _ => 0,
                };
                let busy = self.now_us().saturating_sub(started);
                self.memory.worked(drained, busy);
                let own = Waits::now().since(own).of(Wait::DiskRead).as_micros() as u64;
                self.back_off_for_reads(
                    busy,
                    self.cache.waited_for_disk().saturating_sub(waited + own),
                );
                self.jobs.no_space.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                let error = self.judge(error);
                let full = matches!(error, Error::NoSpace(_));
                self.jobs.no_space.store(full, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// What a flusher does next.
    fn take_job(&self) -> Job {
        let mut queue = self.jobs.queue.lock();
        let load = self.load(&mut queue);
        match policy::decide(&load, TUNING) {
            Decision::Unit { tree, effort } => self.enter(&mut queue, tree, effort),
            Decision::Spare => Job::Spare,
            Decision::ServeReads => {
                self.jobs.last_wanted.store(self.now_us(), Ordering::Relaxed);
                Job::ServeReads
            }
            Decision::Clean => {
                self.jobs.last_clean.store(self.now_us(), Ordering::Relaxed);
                Job::Clean
            }
            Decision::Wait => Job::Wait,
        }
    }

    /// What there is to do for who works besides something else: it leaves idle time to flushers.
    fn take_unit(&self) -> Job {
        let mut queue = self.jobs.queue.lock();
        let load = self.load(&mut queue);
        match policy::decide(&load, TUNING) {
            Decision::Unit { tree, effort } => self.enter(&mut queue, tree, effort),
            Decision::Spare => Job::Spare,
            Decision::ServeReads | Decision::Clean | Decision::Wait => Job::Wait,
        }
    }

    fn enter(&self, queue: &mut Queue, tree: u64, effort: Effort) -> Job {
        let Some(dictionary) = self.directory.find(tree) else {
            queue.remove(tree);
            return Job::Spare;
        };
        let lease = queue.enter(tree);
        // Another worker may find something too, in this tree or in another one.
        self.jobs.changed.notify_one();
        Job::Unit(dictionary, lease, effort)
    }

    /// What a flusher decides from. Forgets dictionaries that are gone.
    fn load(&self, queue: &mut Queue) -> Load {
        let now = self.now_us();
        let since = |at: &AtomicU64| now.saturating_sub(at.load(Ordering::Relaxed));
        let mut trees = Vec::new();
        for id in queue.choice() {
            match self.directory.find(id) {
                Some(dictionary) => trees.push(tree_load(&dictionary)),
                None => queue.remove(id),
            }
        }
        let until = self.jobs.read_backoff_until.load(Ordering::Relaxed);
        Load {
            trees,
            working: queue.running.len(),
            since_filling_us: self.memory.since_filling(now),
            reads: ReadBackoff {
                left_us: until.saturating_sub(now),
                since_us: now.saturating_sub(until),
            },
            activity: self.activity(),
            since_wanted_us: since(&self.jobs.last_wanted),
            cleaner: CleanerLoad {
                period_us: micros(self.options.cleaner_period),
                units: self.options.cleaner_iterations,
                since_us: since(&self.jobs.last_clean),
                found: self.jobs.cleaned.load(Ordering::Relaxed),
            },
        }
    }

    /// The cleaner: drains what lies in buffers for long, a little at a time.
    fn clean(&self) -> Result<()> {
        let mut cleaned = false;
        let work: Vec<IdleWork> = self.directory.all().iter().map(|d| idle_work(d)).collect();
        for id in policy::cleaner_pass(&work, self.options.cleaner_iterations) {
            let Some(dictionary) = self.directory.find(id) else { continue };
            let effort = policy::cleaner_effort(dictionary.was_quiet());
            let worked = self.check(self.work_on(&dictionary, effort))?;
            cleaned |= matches!(worked, Progress::Done(_));
        }
        self.jobs.cleaned.store(cleaned, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn report(&self, what: &'static str, result: Result<()>) {
        if let Err(error) = result {
            self.counters.background_errors.inc();
            if !self.health.is_closed() {
                tracing::error!(%error, "background work failed: {what}");
            }
        }
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.os.clock.monotonic().as_micros() as u64
    }

    /// Whether a checkpoint is due now.
    fn is_checkpoint_due(&self) -> bool {
        let now = self.now_us();
        let grown = self.jobs.checkpointed.load(Ordering::Relaxed);
        let load = CheckpointLoad {
            period_us: micros(self.options.checkpoint_period),
            since_us: now.saturating_sub(self.jobs.last_checkpoint.load(Ordering::Relaxed)),
            log_bytes: self.wal().next_lsn().saturating_sub(grown),
            log_cap: self.options.sizes.log_cap,
            idle: self.is_idle(),
            dropped_bytes: self.blocks.dropped_bytes(),
            dropped_before: self.jobs.dropped.load(Ordering::Relaxed),
            short_of_space: self.is_short_of_space(),
            since_space_us: self.room.since_checkpoint(now),
        };
        let reason = policy::checkpoint(&load, TUNING);
        if reason == Some(CheckpointReason::Space) {
            self.room.note_checkpoint(now);
        }
        if reason.is_some() {
            self.jobs.last_checkpoint.store(now, Ordering::Relaxed);
        }
        reason.is_some()
    }

    /// Whether `period` (zero is never) has passed since `last`, which then is now.
    pub(crate) fn is_due(&self, last: &AtomicU64, period: Duration) -> bool {
        let now = self.now_us();
        let since = now.saturating_sub(last.load(Ordering::Relaxed));
        let due = policy::is_due(since, micros(period));
        if due {
            last.store(now, Ordering::Relaxed);
        }
        due
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A background thread that ends by a bug takes the engine with it: whoever waits for its work would
/// wait for good.
struct StopOnPanic<'a>(&'a Health);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _stopped = self.0.stop("a background thread ended by a bug; the log says where");
        }
    }
}

fn tree_load(dictionary: &Dictionary) -> TreeLoad {
    let debt = dictionary.tree.debt();
    TreeLoad { tree: dictionary.id, sealed_bytes: debt.sealed_bytes, urgency: debt.urgency }
}

fn idle_work(dictionary: &Dictionary) -> IdleWork {
    let debt = dictionary.tree.debt();
    IdleWork {
        tree: dictionary.id,
        buffered_bytes: debt.buffered_bytes,
        garbage_entries: debt.garbage_entries,
        lightly_compressed_bytes: debt.lightly_compressed_bytes,
    }
}

impl Jobs {
    /// Waits whether or not there is work.
    pub(crate) fn pause(&self, time: Duration) {
        let mut queue = self.queue.lock();
        if !queue.stop {
            let _ = self.pausing.wait_for(&mut queue, time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_forgets_no_work_that_came_while_a_worker_looked() {
        let mut queue = Queue::default();
        queue.add(7);
        let lease = queue.enter(7);
        queue.add(7);
        assert!(!queue.leave(&lease, UnitOutcome::Nothing));
        assert_eq!(queue.ready().collect::<Vec<_>>(), [7], "sealed after the worker had looked");
        let lease = queue.enter(7);
        assert!(!queue.leave(&lease, UnitOutcome::Nothing));
        assert_eq!((queue.ready().count(), queue.running.len()), (0, 0));
    }

    #[test]
    fn few_trees_are_compared_at_a_time_and_each_has_its_turn() {
        let mut queue = Queue::default();
        (0..TUNING.compared as u64).for_each(|id| queue.add(id));
        let all: Vec<u64> = queue.ready().collect();
        assert_eq!([queue.choice(), queue.choice()], [all.clone(), all], "few are all compared");
        (0..10_000).for_each(|id| queue.add(id));
        queue.deferred.insert(77);
        let turns = 10_000_usize.div_ceil(TUNING.compared);
        let mut looked_at = BTreeSet::new();
        for _ in 0..turns {
            let choice = queue.choice();
            assert_eq!(choice.len(), TUNING.compared);
            looked_at.extend(choice);
        }
        assert_eq!(looked_at.len(), 9_999);
        assert!(!looked_at.contains(&77), "it is deferred");
        queue.add(u64::MAX);
        queue.look_from = u64::MAX;
        assert_eq!(queue.choice()[..3], [u64::MAX, 0, 1], "around the end");
    }

    #[test]
    fn worker_that_meets_others_waits_for_one_of_them() {
        let mut queue = Queue::default();
        queue.add(7);
        let (first, second) = (queue.enter(7), queue.enter(7));
        assert!(!queue.leave(&second, UnitOutcome::Busy));
        assert_eq!(queue.ready().count(), 0, "nothing to take until the first is done");
        let third = queue.enter(7);
        assert!(!queue.leave(&first, UnitOutcome::Done));
        assert_eq!(queue.ready().count(), 1);
        assert!(!queue.leave(&third, UnitOutcome::Busy), "the first was done since it looked");
        assert_eq!(queue.ready().count(), 1);
        let alone = queue.enter(7);
        assert!(queue.leave(&alone, UnitOutcome::Busy), "nobody else will tell it");
    }

    #[test]
    fn tree_that_needs_a_merge_beside_another_waits_until_somebody_is_done() {
        let mut queue = Queue::default();
        queue.add(7);
        queue.add(8);
        let (merging, other) = (queue.enter(7), queue.enter(8));
        assert!(!queue.leave(&other, UnitOutcome::Deferred));
        assert_eq!(queue.ready().collect::<Vec<_>>(), [7], "nothing to do in 8 for now");
        queue.add(8);
        assert_eq!(queue.ready().count(), 2, "there is a memtable to drain");
        let (other, late) = (queue.enter(8), queue.enter(8));
        assert!(!queue.leave(&other, UnitOutcome::Deferred));
        assert!(!queue.leave(&merging, UnitOutcome::Done));
        assert_eq!(queue.ready().count(), 2);
        assert!(!queue.leave(&late, UnitOutcome::Deferred));
        assert_eq!(queue.ready().count(), 2, "the merge ended after it had looked");
    }

    #[test]
    fn two_that_wait_for_an_insert_to_end_look_again() {
        let mut queue = Queue::default();
        queue.add(7);
        let (first, second) = (queue.enter(7), queue.enter(7));
        assert!(!queue.leave(&second, UnitOutcome::Busy));
        assert!(queue.leave(&first, UnitOutcome::Busy), "it was not at work either");
        assert_eq!(queue.ready().count(), 1, "nobody will tell of the insert's end");
    }

    #[test]
    fn thread_that_panics_stops_the_engine() {
        let health = Health::default();
        drop(StopOnPanic(&health));
        assert_eq!(health.stopped(), None);
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _watch = StopOnPanic(&health);
                panic!("as by a bug");
            });
            thread.join().is_err()
        });
        assert!(panicked && health.check_writable().is_err());
    }

    #[test]
    fn work_wakes_a_flusher_and_not_the_log_thread() {
        let jobs = Jobs::default();
        let long = Duration::from_secs(20);
        std::thread::scope(|scope| {
            let log = scope.spawn(|| jobs.pause(long));
            std::thread::sleep(Duration::from_millis(50));
            let flusher = scope.spawn(|| jobs.wait_for_work(long));
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
