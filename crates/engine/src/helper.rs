//! A thread that does the jobs of one owner in their order, while the owner goes on.
//!
//! Always true:
//! 1. Jobs are done in the order in which they were handed over; after one that failed none is.
//! 2. What comes of them does not depend on whether there is a thread: where none is to be had (the
//!    simulator has none, and there are only so many), the owner does them as it hands them over.
//! 3. The thread is gone before its owner is.

use crate::health::{Health, StopOnPanic};
use crate::settings::Background;
use crate::{Error, Result};
use os::sync::{Condvar, Mutex};
use os::{JoinHandle, Spawner, cpu_count};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads that work for owners, for each processor.
const THREADS_PER_PROCESSOR: usize = 2;

/// The threads that work for owners.
pub(crate) struct Helpers {
    spawner: Arc<dyn Spawner>,
    health: Arc<Health>,
    are_allowed: bool,
    running: Arc<AtomicUsize>,
}

/// One of them.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a thread that ends was counted");
    }
}

impl Helpers {
    /// None yet.
    pub(crate) fn new(
        spawner: &Arc<dyn Spawner>,
        health: &Arc<Health>,
        background: Background,
    ) -> Self {
        let (spawner, health) = (Arc::clone(spawner), Arc::clone(health));
        let are_allowed = background == Background::Threads;
        Self { spawner, health, are_allowed, running: Arc::default() }
    }

    /// Whether there may be any.
    pub(crate) fn are_allowed(&self) -> bool {
        self.are_allowed
    }

    /// Starts one that gives way to others, unless there are enough or the machine has none to give.
    pub(crate) fn start(
        &self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Option<JoinHandle> {
        if !self.are_allowed {
            return None;
        }
        let (counted, health) = (self.enter()?, Arc::clone(&self.health));
        let job = move || {
            let _counted = counted;
            let _watch = StopOnPanic(&health);
            os::work_in_background();
            run();
        };
        self.spawner.spawn(name, Box::new(job)).ok()
    }

    /// Leave for one more, unless there are enough.
    fn enter(&self) -> Option<Counted> {
        let most = cpu_count() * THREADS_PER_PROCESSOR;
        let more = |now: usize| (now < most).then_some(now + 1);
        let entered = self.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        entered.ok().map(|_| Counted(Arc::clone(&self.running)))
    }
}

/// What does the jobs.
pub(crate) trait Work: Send + 'static {
    /// A job.
    type Job: Send + 'static;

    /// Does one.
    fn work(&mut self, job: Self::Job) -> Result<()>;
}

/// Does jobs behind its owner.
pub(crate) struct Helper<W: Work> {
    name: &'static str,
    /// Jobs that were handed over and are not done: no more than this.
    most: usize,
    hands: Hands<W>,
}

/// Who does the jobs.
enum Hands<W: Work> {
    /// Nobody has asked for one yet.
    Unasked(W),
    Owner(W),
    Thread(Arc<Shared<W>>, JoinHandle),
    /// A job has failed, or the thread has.
    Nobody,
}

struct Shared<W: Work> {
    state: Mutex<State<W>>,
    changed: Condvar,
}

struct State<W: Work> {
    jobs: VecDeque<W::Job>,
    /// A job is being done.
    is_busy: bool,
    /// No more jobs come.
    is_ending: bool,
    /// The thread is at its end.
    has_ended: bool,
    failure: Option<Error>,
    /// What does the jobs, once the thread is done with it.
    work: Option<W>,
}

impl<W: Work> Helper<W> {
    /// Without a thread before the first job.
    pub(crate) fn new(name: &'static str, most: usize, work: W) -> Self {
        assert!(most > 0, "a job that is handed over waits, or is done");
        Self { name, most, hands: Hands::Unasked(work) }
    }

    /// Hands a job over; waits while there are many. The error is that of an earlier job, or of this one.
    pub(crate) fn submit(&mut self, helpers: &Helpers, job: W::Job) -> Result<()> {
        let hands = std::mem::replace(&mut self.hands, Hands::Nobody);
        let mut hands = match hands {
            Hands::Unasked(work) => Self::start(self.name, helpers, work),
            hands => hands,
        };
        let done = match &mut hands {
            Hands::Owner(work) => work.work(job),
            Hands::Thread(shared, _) => match shared.submit(job, self.most) {
                Ok(()) => Ok(()),
                Err(failure) => Err(failure.unwrap_or_else(ended)),
            },
            Hands::Unasked(_) | Hands::Nobody => Err(ended()),
        };
        if done.is_ok() {
            self.hands = hands;
        } else {
            end(hands);
        }
        done
    }

    fn start(name: &str, helpers: &Helpers, work: W) -> Hands<W> {
        let state = State {
            jobs: VecDeque::new(),
            is_busy: false,
            is_ending: false,
            has_ended: false,
            failure: None,
            work: Some(work),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        if let Some(thread) = helpers.start(name, move || of_thread.run()) {
            return Hands::Thread(shared, thread);
        }
        let work = shared.state.lock().work.take();
        work.map_or(Hands::Nobody, Hands::Owner)
    }

    /// Waits until all jobs are done.
    pub(crate) fn finish(mut self) -> Result<W> {
        match std::mem::replace(&mut self.hands, Hands::Nobody) {
            Hands::Unasked(work) | Hands::Owner(work) => Ok(work),
            Hands::Nobody => Err(ended()),
            Hands::Thread(shared, thread) => {
                shared.end(false);
                let joined = thread.join();
                let mut state = shared.state.lock();
                state.failure.take().map_or(Ok(()), Err)?;
                let work = state.work.take().filter(|_| joined.is_ok());
                work.ok_or_else(ended)
            }
        }
    }
}

impl<W: Work> Drop for Helper<W> {
    fn drop(&mut self) {
        end(std::mem::replace(&mut self.hands, Hands::Nobody));
    }
}

/// Jobs that nobody has begun are dropped.
fn end<W: Work>(hands: Hands<W>) {
    if let Hands::Thread(shared, thread) = hands {
        shared.end(true);
        // What it met is said where it was started.
        let _ended = thread.join();
    }
}

fn ended() -> Error {
    Error::Stopped("what was to be written behind has failed before".to_owned())
}

impl<W: Work> Shared<W> {
    /// The failure of an earlier job, or nothing where the thread has ended by a bug.
    fn submit(&self, job: W::Job, most: usize) -> std::result::Result<(), Option<Error>> {
        let mut state = self.state.lock();
        while state.jobs.len() + usize::from(state.is_busy) >= most && !state.has_ended {
            self.changed.wait(&mut state);
        }
        if state.has_ended {
            return Err(state.failure.take());
        }
        state.jobs.push_back(job);
        assert!(state.jobs.len() <= most, "no more jobs wait than may");
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn end(&self, gives_up: bool) {
        let mut state = self.state.lock();
        state.is_ending = true;
        if gives_up {
            state.jobs.clear();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// What the thread does.
    fn run(&self) {
        let _told = TellsEnd(self);
        let Some(mut work) = self.state.lock().work.take() else { return };
        while let Some(job) = self.next() {
            let done = work.work(job);
            let mut state = self.state.lock();
            state.is_busy = false;
            if let Err(failure) = done {
                state.failure = Some(failure);
                return;
            }
            drop(state);
            self.changed.notify_all();
        }
        self.state.lock().work = Some(work);
    }

    fn next(&self) -> Option<W::Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.is_busy = true;
                return Some(job);
            }
            if state.is_ending {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }
}

/// Whoever waits for the thread learns of its end, also where it ends by a bug.
struct TellsEnd<'a, W: Work>(&'a Shared<W>);

impl<W: Work> Drop for TellsEnd<'_, W> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_ended = true;
        state.jobs.clear();
        drop(state);
        self.0.changed.notify_all();
    }
}
