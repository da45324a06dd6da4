//! The workers, and permits to run: as many as there are processors.
//!
//! A worker with a permit takes what is ready and runs it to its end. One that is about to wait gives
//! its permit on first ([`os::about_to_wait`]); from one whose request takes long the listening thread
//! takes it ([`LongRequests::check`]). Either goes on without a permit, and looks for one when its request is
//! done: nobody waits for a permit in the middle of a request, where it may hold locks.
//!
//! | a permit is           | becomes            | when                                                |
//! |-----------------------|--------------------|-----------------------------------------------------|
//! | with a worker         | free               | it waits, or its request takes long                 |
//! | free                  | with a worker      | a worker without one has ended its request          |
//! | free                  | granted to a spare | nobody polls (a thread is started where none is spare) |
//! | granted               | with that worker   | it wakes                                            |
//!
//! What is always true:
//! 1. Permits that are with workers, free or granted are as many as there are.
//! 2. While a permit is free, somebody polls or is on the way to it.

use os::ThreadNumber;
use os::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use os::sync::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[cfg(all(test, shuttle))]
mod interleavings;

/// A worker, as others see it.
pub(crate) struct Worker {
    thread: ThreadNumber,
    permit: AtomicBool,
    /// Odd while it serves a connection; counts up with each. Written by the worker alone.
    turns: AtomicU64,
    /// Others come first from now on; it ends with its request.
    background: AtomicBool,
    requests: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// What workers did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Done {
    pub(crate) requests: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Worker {
    /// The calling thread, with a permit.
    pub(crate) fn of_this_thread() -> Self {
        Self {
            thread: ThreadNumber::of_this_thread(),
            permit: AtomicBool::new(true),
            turns: AtomicU64::new(0),
            background: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
        }
    }

    /// It begins or ends to serve a connection.
    pub(crate) fn turn(&self) {
        add(&self.turns, 1);
    }

    pub(crate) fn requested(&self) {
        add(&self.requests, 1);
    }

    pub(crate) fn received(&self, bytes: usize) {
        add(&self.bytes_in, bytes as u64);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        add(&self.bytes_out, bytes as u64);
    }

    fn is_serving(&self) -> bool {
        self.turns.load(Ordering::Relaxed) % 2 == 1
    }

    fn done(&self) -> Done {
        Done {
            requests: self.requests.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
        }
    }
}

/// Adds to what only the calling thread writes.
fn add(number: &AtomicU64, more: u64) {
    number.store(number.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// The workers.
pub(crate) struct WorkerPool {
    /// Workers that wait for news of sockets.
    polling: AtomicUsize,
    free: AtomicUsize,
    /// The listening thread looks at the workers now and then.
    checked_soon: AtomicBool,
    state: Mutex<State>,
    granted: Condvar,
}

#[derive(Default)]
struct State {
    workers: Vec<Arc<Worker>>,
    /// Threads that are being started.
    starting: usize,
    /// The last thread that was asked for was not given.
    refused: bool,
    /// Workers that wait for a permit.
    spare: usize,
    /// Permits for those.
    grants: usize,
    most: usize,
    stopped: bool,
    ended: Done,
}

/// What somebody has to do so that a free permit comes to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Need {
    Nothing,
    /// A thread must be started; its permit is taken already ([`WorkerPool::joined`], [`WorkerPool::not_started`]).
    Thread,
}

impl WorkerPool {
    /// All of `permits` are free; there is no thread yet, and never more than `most`.
    pub(crate) fn new(permits: usize, most: usize) -> Self {
        Self {
            polling: AtomicUsize::new(0),
            free: AtomicUsize::new(permits),
            checked_soon: AtomicBool::new(false),
            state: Mutex::new(State { most, ..State::default() }),
            granted: Condvar::new(),
        }
    }

    /// Grants a free permit where nobody polls.
    pub(crate) fn fill(&self) -> Need {
        let mut state = self.state.lock();
        if self.polling.load(Ordering::SeqCst) > 0 {
            return Need::Nothing;
        }
        self.use_free_permit(&mut state)
    }

    /// Grants a free permit, whoever polls: where there is to be one more.
    pub(crate) fn start_one(&self) -> Need {
        self.use_free_permit(&mut self.state.lock())
    }

    fn use_free_permit(&self, state: &mut State) -> Need {
        let is_spare = state.spare > state.grants;
        let may_start = state.workers.len() + state.starting < state.most;
        if !is_spare && !may_start || !self.take_free() {
            return Need::Nothing;
        }
        if is_spare {
            state.grants += 1;
            self.granted.notify_one();
            return Need::Nothing;
        }
        state.starting += 1;
        Need::Thread
    }

    fn take_free(&self) -> bool {
        let less = |free: usize| free.checked_sub(1);
        self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }

    /// The calling thread was started for [`Need::Thread`].
    pub(crate) fn joined(&self, worker: &Arc<Worker>) {
        let mut state = self.state.lock();
        state.starting -= 1;
        state.refused = false;
        state.workers.push(Arc::clone(worker));
    }

    /// The machine gave no thread. The listening thread is to ask for one again; says whether it gave the
    /// one before.
    pub(crate) fn not_started(&self) -> bool {
        let mut state = self.state.lock();
        state.starting -= 1;
        let first = !std::mem::replace(&mut state.refused, true);
        drop(state);
        self.free.fetch_add(1, Ordering::SeqCst);
        self.checked_soon.store(true, Ordering::SeqCst);
        first
    }

    /// The worker is about to wait in the poller.
    pub(crate) fn begin_polling(&self) {
        self.polling.fetch_add(1, Ordering::SeqCst);
    }

    /// The worker is back from the poller. Whether it was the last one there: somebody is to watch that
    /// those who work now do not keep others waiting.
    pub(crate) fn end_polling(&self) -> (Need, bool) {
        if self.polling.fetch_sub(1, Ordering::SeqCst) > 1 {
            return (Need::Nothing, false);
        }
        if self.free.load(Ordering::SeqCst) > 0 {
            return (self.fill(), false);
        }
        // In one order with the look at `polling` at the end of a check.
        let begins = !self.checked_soon.load(Ordering::SeqCst)
            && !self.checked_soon.swap(true, Ordering::SeqCst);
        (Need::Nothing, begins)
    }

    /// The worker gives its permit on, if it has one.
    pub(crate) fn release_permit(&self, worker: &Worker) -> Need {
        if !worker.permit.load(Ordering::Relaxed) || !worker.permit.swap(false, Ordering::SeqCst) {
            return Need::Nothing;
        }
        self.free.fetch_add(1, Ordering::SeqCst);
        if self.polling.load(Ordering::SeqCst) > 0 { Need::Nothing } else { self.fill() }
    }

    /// The worker has ended its request: waits for a permit where it has none, at most for `idle`.
    /// `false` where the worker is to end, and is forgotten.
    pub(crate) fn wait_for_permit(&self, worker: &Arc<Worker>, idle: Duration) -> bool {
        if worker.permit.load(Ordering::Relaxed) {
            return !worker.background.load(Ordering::Relaxed);
        }
        let mut state = self.state.lock();
        if worker.background.load(Ordering::Relaxed) {
            return false;
        }
        if self.take_free() {
            worker.permit.store(true, Ordering::SeqCst);
            return true;
        }
        state.spare += 1;
        let mut in_time = true;
        while state.grants == 0 && in_time && !state.stopped {
            in_time = !self.granted.wait_for(&mut state, idle).timed_out();
        }
        state.spare -= 1;
        if state.grants == 0 {
            return false;
        }
        state.grants -= 1;
        worker.permit.store(true, Ordering::SeqCst);
        true
    }

    /// The worker's thread ends.
    pub(crate) fn left(&self, worker: &Arc<Worker>) -> Need {
        let need = self.release_permit(worker);
        let mut state = self.state.lock();
        state.workers.retain(|other| !Arc::ptr_eq(other, worker));
        let done = worker.done();
        state.ended.requests += done.requests;
        state.ended.bytes_in += done.bytes_in;
        state.ended.bytes_out += done.bytes_out;
        need
    }

    /// Whether no thread runs or is being started.
    pub(crate) fn is_without_threads(&self) -> bool {
        let state = self.state.lock();
        state.workers.is_empty() && state.starting == 0
    }

    /// Lets spare workers end.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.granted.notify_all();
    }

    /// Workers that serve a connection now.
    pub(crate) fn serving(&self) -> usize {
        self.state.lock().workers.iter().filter(|worker| worker.is_serving()).count()
    }

    /// Threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.state.lock().workers.len()
    }

    /// What all workers did since the start.
    pub(crate) fn done(&self) -> Done {
        let state = self.state.lock();
        state.workers.iter().fold(state.ended, |sum, worker| {
            let done = worker.done();
            Done {
                requests: sum.requests + done.requests,
                bytes_in: sum.bytes_in + done.bytes_in,
                bytes_out: sum.bytes_out + done.bytes_out,
            }
        })
    }
}

/// How often workers are looked at while one with a permit serves.
const CHECK_PERIOD: Duration = Duration::from_millis(2);
/// How often while only those without serve.
const LONG_CHECK_PERIOD: Duration = Duration::from_millis(20);
/// Processor time after which a request works in the background.
const BACKGROUND_AFTER: Duration = Duration::from_millis(20);

/// What the listening thread knows of a worker from its last look.
struct Seen {
    worker: Arc<Worker>,
    turns: u64,
    /// What it had used when this turn was first seen.
    used: Duration,
}

fn address(worker: &Arc<Worker>) -> usize {
    Arc::as_ptr(worker) as usize
}

/// The listening thread's looks at the workers, so that requests that take long keep nobody waiting: one
/// that a look finds where the last one found it loses its permit, and works in the background once it
/// has used [`BACKGROUND_AFTER`] of a processor.
#[derive(Default)]
pub(crate) struct LongRequests {
    seen: Vec<Seen>,
    /// The next look is soon: nobody need ask for one.
    is_soon: bool,
}

impl LongRequests {
    /// Whether the next look, at `at`, is due: where it is far away somebody may ask for an earlier one.
    pub(crate) fn is_due(&self, pool: &WorkerPool, at: Option<Duration>, now: Duration) -> bool {
        let asked = pool.checked_soon.load(Ordering::SeqCst) && !(at.is_some() && self.is_soon);
        asked || at.is_some_and(|at| at <= now)
    }

    /// Looks at the workers. Returns what permits need that were taken, and when to look again, if at all.
    pub(crate) fn check(&mut self, pool: &WorkerPool) -> (Vec<Need>, Option<Duration>) {
        // Whoever goes to work after this asks for a new look.
        pool.checked_soon.store(false, Ordering::SeqCst);
        let before: BTreeMap<usize, Seen> =
            self.seen.drain(..).map(|seen| (address(&seen.worker), seen)).collect();
        let mut late = Vec::new();
        let mut next = None;
        let state = pool.state.lock();
        let serving = state.workers.iter().filter(|worker| worker.is_serving());
        let serving: Vec<Arc<Worker>> = serving.cloned().collect();
        for worker in serving {
            let turns = worker.turns.load(Ordering::Relaxed);
            let known = before.get(&address(&worker)).filter(|seen| seen.turns == turns);
            let used = known.map_or_else(|| worker.thread.processor_time(), |known| known.used);
            let background = worker.background.load(Ordering::Relaxed);
            if known.is_some() && !background {
                // It is in `workers`, so its thread still runs.
                if worker.thread.processor_time().saturating_sub(used) >= BACKGROUND_AFTER {
                    worker.background.store(true, Ordering::Relaxed);
                    worker.thread.work_in_background();
                }
            }
            let has_permit = worker.permit.load(Ordering::Relaxed);
            let soon = has_permit && known.is_none();
            if has_permit && !soon {
                late.push(Arc::clone(&worker));
            }
            let again = if soon { CHECK_PERIOD } else { LONG_CHECK_PERIOD };
            if soon || !worker.background.load(Ordering::Relaxed) {
                next = Some(next.map_or(again, |next: Duration| next.min(again)));
            }
            self.seen.push(Seen { worker, turns, used });
        }
        drop(state);
        let needs = late.iter().map(|worker| pool.release_permit(worker));
        let mut needs: Vec<Need> = needs.filter(|need| *need != Need::Nothing).collect();
        // While nobody polls, a worker may be between the poller and its request, where it is not seen to
        // serve yet; or a permit may be free for which there was no thread.
        if pool.polling.load(Ordering::SeqCst) == 0 {
            next = Some(CHECK_PERIOD);
            if needs.is_empty() && pool.free.load(Ordering::SeqCst) > 0 {
                needs.push(pool.fill());
            }
        }
        self.is_soon = next == Some(CHECK_PERIOD);
        if self.is_soon {
            pool.checked_soon.store(true, Ordering::SeqCst);
        }
        (needs, next)
    }
}
