//! The workers, and permits to run: as many as there are processors.
//!
//! A worker with a permit takes what is ready and runs it to its end. One that is about to wait gives
//! its permit on first ([`os::about_to_wait`]); from one whose request takes long the listening thread
//! takes it ([`LongRequests::check`]). Either goes on without a permit, and looks for one when its request is
//! done: nobody waits for a permit in the middle of a request, where it may hold locks.
//!
//! While a request works in the background, which leaves its processor to whoever wants it, there are twice as
//! many permits: those that run meanwhile are short, or will be in the background soon, and a short one need
//! not wait behind two others that are not found to be long yet. When the last such request is done, as many
//! are taken back: free ones at once, the others (*owed*) as workers end their requests.
//!
//! While requests come one after the other, one worker polls and the others are spare: the kernel would hand each
//! request to the worker that has waited longest, on a processor whose caches know nothing of the last one. So that is
//! until a request is found that came while another ran, or one waits or takes long ([`WorkerPool::let_all_poll`]).
//!
//! | a permit is           | becomes            | when                                                |
//! |-----------------------|--------------------|-----------------------------------------------------|
//! | with a worker         | free               | it waits, or its request takes long                 |
//! | with a worker         | taken back         | its request is done, and permits are owed           |
//! | with a worker         | free               | its request is done, and one that polls is enough   |
//! | free                  | taken back         | permits are owed                                    |
//! | free                  | with a worker      | a worker without one has ended its request          |
//! | free                  | granted to a spare | nobody polls (a thread is started where none is spare) |
//! | granted               | with that worker   | it wakes                                            |
//!
//! What is always true:
//! 1. Permits that are with workers, free or granted are as many as there are and as are owed.
//! 2. While a permit is free, somebody polls or is on the way to it; where one that polls is enough that may be the
//!    worker of a request at work, and the listening thread looks at it soon.
//! 3. Permits are owed only while no request works in the background.

use os::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use os::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

#[cfg(all(test, shuttle))]
mod interleavings;
mod long_requests;
mod worker_thread;

pub(crate) use long_requests::LongRequests;
pub(crate) use worker_thread::{SystemThread, WorkerThread};

/// So many requests in a row came while no other was at work until one worker that polls is enough.
const REQUESTS_IN_A_ROW: usize = 1000;

/// A worker, as others see it.
pub(crate) struct Worker {
    thread: Box<dyn WorkerThread>,
    permit: AtomicBool,
    /// Odd while it serves a connection; counts up with each. Written by the worker alone.
    turns: AtomicU64,
    /// Others come first until its request is done. Changed under the lock of the pool's state.
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
    pub(crate) fn on(thread: Box<dyn WorkerThread>) -> Self {
        Self {
            thread,
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
    /// One that polls is enough.
    one_polls: AtomicBool,
    /// Requests in a row that came while no other was at work; not exact where several come at once.
    in_a_row: AtomicUsize,
    /// After so many of them one that polls is enough.
    one_after: usize,
    /// As many as there are while no request works in the background.
    usual_permits: usize,
    free: AtomicUsize,
    /// Permits to be taken back.
    owed: AtomicUsize,
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
    /// Workers whose requests work in the background.
    in_background: usize,
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
            one_polls: AtomicBool::new(false),
            in_a_row: AtomicUsize::new(0),
            one_after: REQUESTS_IN_A_ROW,
            usual_permits: permits,
            free: AtomicUsize::new(permits),
            owed: AtomicUsize::new(0),
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
        take_one(&self.free)
    }

    /// A permit becomes free; taken back where permits are owed.
    fn make_free(&self, permits: usize) {
        self.free.fetch_add(permits, Ordering::SeqCst);
        self.take_back();
    }

    /// Takes free permits back as far as they are owed. Called after either number has grown.
    fn take_back(&self) {
        while self.owed.load(Ordering::SeqCst) > 0 && self.take_free() {
            if !take_one(&self.owed) {
                // Another one was quicker.
                self.free.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// The worker's request works in the background from now on.
    fn begin_background(&self, state: &mut State, worker: &Worker) {
        self.let_all_poll();
        worker.background.store(true, Ordering::Relaxed);
        worker.thread.work_in_background();
        state.in_background += 1;
        if state.in_background == 1 {
            let owed = self.owed.swap(0, Ordering::SeqCst);
            self.make_free(self.usual_permits - owed);
        }
    }

    /// The worker's request is done, or its thread ends.
    fn end_background(&self, state: &mut State, worker: &Worker) {
        worker.background.store(false, Ordering::Relaxed);
        state.in_background -= 1;
        if state.in_background == 0 {
            self.owed.fetch_add(self.usual_permits, Ordering::SeqCst);
            self.take_back();
        }
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
        self.let_all_poll();
        self.make_free(1);
        self.checked_soon.store(true, Ordering::SeqCst);
        first
    }

    /// The worker is about to wait in the poller. Whether it is the only one that does: then it looks before it waits, and
    /// where it finds a request that has come while another one ran it calls [`Self::let_all_poll`].
    pub(crate) fn begin_polling(&self) -> bool {
        self.polling.fetch_add(1, Ordering::SeqCst);
        self.one_polls.load(Ordering::SeqCst)
    }

    /// The worker is back from the poller. Whether it was the last one there: somebody is to watch that
    /// those who work now do not keep others waiting.
    pub(crate) fn end_polling(&self) -> (Need, bool) {
        let polled = self.polling.fetch_sub(1, Ordering::SeqCst);
        let one_polls = self.one_polls.load(Ordering::SeqCst);
        if !one_polls {
            self.count_in_a_row(polled);
        }
        if polled > 1 {
            return (Need::Nothing, false);
        }
        if !one_polls && self.free.load(Ordering::SeqCst) > 0 {
            return (self.fill(), false);
        }
        // In one order with the look at `polling` at the end of a check.
        let begins = !self.checked_soon.load(Ordering::SeqCst)
            && !self.checked_soon.swap(true, Ordering::SeqCst);
        (Need::Nothing, begins)
    }

    /// A request has come, when so many polled.
    fn count_in_a_row(&self, polled: usize) {
        if polled != self.usual_permits {
            // Another one is at work.
            self.in_a_row.store(0, Ordering::Relaxed);
            return;
        }
        let in_a_row = self.in_a_row.load(Ordering::Relaxed) + 1;
        self.in_a_row.store(in_a_row, Ordering::Relaxed);
        if in_a_row >= self.one_after && self.state.lock().in_background == 0 {
            self.one_polls.store(true, Ordering::SeqCst);
        }
    }

    /// One that polls is not enough: whoever has a permit is to. The caller grants free ones by [`Self::fill`], or has the
    /// listening thread look.
    pub(crate) fn let_all_poll(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
        self.one_polls.store(false, Ordering::SeqCst);
    }

    /// Whether a worker without a request is one too many: another one polls, and one is enough.
    fn is_surplus(&self) -> bool {
        self.one_polls.load(Ordering::SeqCst) && self.polling.load(Ordering::SeqCst) > 0
    }

    /// The worker gives its permit on, if it has one.
    pub(crate) fn release_permit(&self, worker: &Worker) -> Need {
        if !worker.permit.load(Ordering::Relaxed) || !worker.permit.swap(false, Ordering::SeqCst) {
            return Need::Nothing;
        }
        self.make_free(1);
        if self.polling.load(Ordering::SeqCst) > 0 {
            return Need::Nothing;
        }
        self.let_all_poll();
        self.fill()
    }

    /// Takes the worker's permit back, if it has one and permits are owed.
    fn collects_from(&self, worker: &Worker) -> bool {
        if self.owed.load(Ordering::Relaxed) == 0 || !worker.permit.swap(false, Ordering::SeqCst) {
            return false;
        }
        let collected = take_one(&self.owed);
        if !collected {
            worker.permit.store(true, Ordering::SeqCst);
        }
        collected
    }

    /// The worker has ended its request: waits for a permit where it has none, at most for `idle`.
    /// `false` where the worker is to end, and is forgotten.
    pub(crate) fn wait_for_permit(&self, worker: &Arc<Worker>, idle: Duration) -> bool {
        let has_permit = || worker.permit.load(Ordering::Relaxed);
        let in_background = || worker.background.load(Ordering::Relaxed);
        if has_permit() && !in_background() && !self.collects_from(worker) && !self.is_surplus() {
            return true;
        }
        let mut state = self.state.lock();
        if in_background() {
            if !worker.thread.end_background() {
                return false;
            }
            self.end_background(&mut state, worker);
        }
        if self.is_surplus() {
            if worker.permit.swap(false, Ordering::SeqCst) {
                self.make_free(1);
            }
        } else if has_permit() {
            return true;
        } else if self.take_free() {
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
        let mut state = self.state.lock();
        if worker.background.load(Ordering::Relaxed) {
            self.end_background(&mut state, worker);
        }
        state.workers.retain(|other| !Arc::ptr_eq(other, worker));
        let done = worker.done();
        state.ended.requests += done.requests;
        state.ended.bytes_in += done.bytes_in;
        state.ended.bytes_out += done.bytes_out;
        drop(state);
        match self.release_permit(worker) {
            // What was to be taken back may be free again.
            Need::Nothing => self.fill(),
            Need::Thread => Need::Thread,
        }
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

/// Takes one of a number, where it is not 0.
fn take_one(number: &AtomicUsize) -> bool {
    let less = |number: usize| number.checked_sub(1);
    number.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const PERMITS: usize = 3;

    fn pool() -> (WorkerPool, Vec<Arc<Worker>>) {
        let pool = WorkerPool::new(PERMITS, 10);
        let workers = (0..PERMITS).map(|_| {
            assert_eq!(pool.start_one(), Need::Thread);
            let worker = Arc::new(Worker::on(Box::new(SystemThread::of_this_thread())));
            pool.joined(&worker);
            pool.begin_polling();
            worker
        });
        let workers = workers.collect();
        (pool, workers)
    }

    fn free(pool: &WorkerPool) -> usize {
        pool.free.load(Ordering::SeqCst)
    }

    /// One after the other, by workers in turn.
    fn requests(pool: &WorkerPool, workers: &[Arc<Worker>], count: usize) {
        for at in 0..count {
            assert_eq!(pool.end_polling(), (Need::Nothing, false));
            assert!(pool.wait_for_permit(&workers[at % PERMITS], Duration::ZERO));
            pool.begin_polling();
        }
    }

    #[test]
    fn one_that_polls_is_enough_while_requests_come_one_after_the_other() {
        let (pool, workers) = pool();
        requests(&pool, &workers, REQUESTS_IN_A_ROW - 2);
        // Two at once: it is counted from the beginning again.
        assert_eq!([pool.end_polling(), pool.end_polling()], [(Need::Nothing, false); 2]);
        assert!([pool.begin_polling(), pool.begin_polling()] == [false; 2]);
        requests(&pool, &workers, REQUESTS_IN_A_ROW - 1);
        assert!(!pool.one_polls.load(Ordering::SeqCst));
        assert_eq!(pool.end_polling(), (Need::Nothing, false));
        // Those who end a request while another one polls are spare, here for no time at all.
        for worker in &workers[..2] {
            assert!(!pool.wait_for_permit(worker, Duration::ZERO));
            assert_eq!(pool.left(worker), Need::Nothing);
            if free(&pool) < 2 {
                assert_eq!(pool.end_polling(), (Need::Nothing, false));
            }
        }
        assert_eq!(free(&pool), 2);
        // The last one goes on; while it works nobody is started, but the listening thread is to look.
        assert_eq!(pool.end_polling(), (Need::Nothing, true));
        assert!(pool.wait_for_permit(&workers[2], Duration::ZERO));
        assert!(pool.begin_polling());
        assert_eq!(pool.end_polling(), (Need::Nothing, false), "it was asked already");
        assert!(pool.begin_polling());
        // It finds a request that came while the last one ran.
        pool.let_all_poll();
        assert_eq!(pool.end_polling(), (Need::Thread, false));
    }

    #[test]
    fn who_waits_while_one_polls_lets_another_poll() {
        let (pool, workers) = pool();
        requests(&pool, &workers, REQUESTS_IN_A_ROW - 1);
        for worker in &workers[..2] {
            assert_eq!(pool.end_polling(), (Need::Nothing, false));
            assert!(!pool.wait_for_permit(worker, Duration::ZERO));
            assert_eq!(pool.left(worker), Need::Nothing);
        }
        assert_eq!(pool.end_polling(), (Need::Nothing, true));
        assert_eq!(pool.release_permit(&workers[2]), Need::Thread);
        assert!(!pool.one_polls.load(Ordering::SeqCst));
        assert_eq!(free(&pool), PERMITS - 1);
    }
}
