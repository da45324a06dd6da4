//! Work nobody waits for, on trees: a worker asks what to do, runs it, and reports how it ended.
//!
//! Flushers are threads that do so until everything stops. Under [`Background::Manual`] no thread
//! exists: [`Scheduler::step`] asks and runs once, by the same policy, and so does a writer that
//! finds memory full.
//!
//! [`Background::Manual`]: crate::Background::Manual

use super::policy::{self, Decision};
use super::queue::{Queue, TreeLease, UnitOutcome};
use super::{Scheduler, TUNING, idle_work, micros};
use crate::Result;
use crate::dictionary::{Dictionary, Found};
use crate::error::Error;
use crate::settings::PlantedBug;
use ftree::{Effort, Progress, Work};
use os::{Wait, Waits};
use std::sync::atomic::Ordering;

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

impl Scheduler {
    /// The clock of idle work begins.
    pub(crate) fn start(&self) {
        self.last_clean.store(self.now_us(), Ordering::Relaxed);
    }

    /// What a flusher does, until everything stops.
    pub(crate) fn run_flusher(&self) {
        // A commit that wants the processor gets it; writers are slowed where this falls behind.
        os::work_in_background();
        while !self.queue.is_stopping() {
            let (what, result) = match self.ask() {
                Job::Unit(dictionary, lease, effort) => {
                    ("drain and merge", self.run_unit(&dictionary, &lease, effort))
                }
                Job::Spare => {
                    self.queue.wait_as_spare();
                    continue;
                }
                Job::ServeReads => ("drain what is read", self.serve_reads()),
                Job::Clean => ("clean", self.clean()),
                Job::Wait => {
                    self.queue.wait_for_work(TUNING.retry);
                    continue;
                }
            };
            if result.is_err() {
                self.report(what, result);
                // Whatever failed would be due again at once.
                self.queue.pause(TUNING.retry);
            }
        }
    }

    /// What a flusher would do next, once; false where no tree had any work.
    pub(crate) fn step(&self) -> Result<bool> {
        loop {
            match self.ask() {
                Job::Unit(dictionary, lease, effort) => {
                    self.run_unit(&dictionary, &lease, effort)?;
                    return Ok(true);
                }
                Job::Spare => {
                    self.queue.wait_as_spare();
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

    /// One unit of work, or a short wait while others are enough for what there is, for who works
    /// besides something else: idle time is the flushers'. False where no tree has any work.
    pub(crate) fn work_once(&self) -> Result<bool> {
        let job = {
            let mut queue = self.queue.lock();
            match policy::decide(&self.load(&mut queue), TUNING) {
                Decision::Unit { tree, effort } => self.enter(&mut queue, tree, effort),
                Decision::Spare => Job::Spare,
                Decision::ServeReads | Decision::Clean | Decision::Wait => Job::Wait,
            }
        };
        match job {
            Job::Unit(dictionary, lease, effort) => {
                self.run_unit(&dictionary, &lease, effort)?;
                Ok(true)
            }
            Job::Spare => {
                self.queue.wait_as_spare();
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// What a flusher does next.
    fn ask(&self) -> Job {
        let mut queue = self.queue.lock();
        match policy::decide(&self.load(&mut queue), TUNING) {
            Decision::Unit { tree, effort } => self.enter(&mut queue, tree, effort),
            Decision::Spare => Job::Spare,
            Decision::ServeReads => {
                self.last_wanted.store(self.now_us(), Ordering::Relaxed);
                Job::ServeReads
            }
            Decision::Clean => {
                self.last_clean.store(self.now_us(), Ordering::Relaxed);
                Job::Clean
            }
            Decision::Wait => Job::Wait,
        }
    }

    fn enter(&self, queue: &mut Queue, tree: u64, effort: Effort) -> Job {
        let Some(dictionary) = self.directory.find(tree) else {
            queue.remove(tree);
            return Job::Spare;
        };
        let lease = queue.enter(tree);
        self.queue.wake_one();
        Job::Unit(dictionary, lease, effort)
    }

    /// Does a unit of work in a tree and reports how it ended.
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
        self.queue.leave(lease, outcome);
        let progress = match worked {
            Ok(progress) => progress,
            Err(error) => {
                let error = self.health.judge(error);
                let full = matches!(error, Error::NoSpace(_));
                self.no_space.store(full, Ordering::Relaxed);
                return Err(error);
            }
        };
        let drained = match progress {
            Progress::Done(Work::Drain) => {
                before.saturating_sub(dictionary.tree.debt().sealed_bytes)
            }
            _ => 0,
        };
        let busy = self.now_us().saturating_sub(started);
        self.memory.worked(drained, busy);
        let own = Waits::now().since(own).of(Wait::DiskRead).as_micros() as u64;
        let others_waited = self.cache.waited_for_disk().saturating_sub(waited + own);
        if let Some(backoff) = policy::read_backoff(busy, others_waited, TUNING) {
            self.read_backoff_until.fetch_max(self.now_us() + backoff, Ordering::Relaxed);
        }
        self.no_space.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// One unit of a tree's work.
    pub(super) fn work_on(&self, dictionary: &Dictionary, effort: Effort) -> Result<Progress> {
        let mut visibility = self.snapshots.visibility();
        if self.planted == Some(PlantedBug::DrainsInvisible) {
            visibility = visibility.draining_to(u64::MAX);
        }
        let progress = dictionary.tree.work(&visibility, effort)?;
        self.counters.worked(progress);
        Ok(progress)
    }

    /// Where nothing else is due: the flushes that reads have paid for, until there are none or
    /// something else is due.
    fn serve_reads(&self) -> Result<()> {
        for dictionary in self.directory.those(|dictionary| dictionary.tree.is_wanted()) {
            while !self.queue.is_called() {
                let worked = self.health.check(self.work_on(&dictionary, Effort::ReadFlush))?;
                if !matches!(worked, Progress::Done(_)) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The cleaner: drains what lies in buffers for long, a little at a time.
    fn clean(&self) -> Result<()> {
        let mut cleaned = false;
        self.counters.cleaner_passes.inc();
        // A pass that fails is not followed by the next one at once.
        self.cleaned.store(false, Ordering::Relaxed);
        let work: Vec<_> = self.directory.all().iter().map(|all| idle_work(all)).collect();
        for id in policy::cleaner_pass(&work, self.adjustable.cleaner_iterations()) {
            let Some(dictionary) = self.directory.find(id) else { continue };
            let effort = policy::cleaner_effort(dictionary.was_quiet());
            let worked = self.health.check(self.work_on(&dictionary, effort))?;
            cleaned |= matches!(worked, Progress::Done(_));
        }
        self.cleaned.store(cleaned, Ordering::Relaxed);
        Ok(())
    }

    /// Notes what background work could not do. A full disk is said once in a while, not at every try.
    pub(crate) fn report(&self, what: &'static str, result: Result<()>) {
        let full = matches!(result, Err(Error::NoSpace(_)));
        if full {
            let (told, now) = (self.full_logged.load(Ordering::Relaxed), self.now_us());
            if told > 0 && now.saturating_sub(told) < micros(TUNING.full_logged) {
                return self.counters.background_errors.inc();
            }
            self.full_logged.store(now.max(1), Ordering::Relaxed);
        }
        self.counters.report(&self.health, what, result);
    }
}
