//! Workers that share permits, over a poller that is no more than a count, in every order shuttle finds:
//! while a request can be run, somebody runs it, though others wait for what it brings. A pool whose waiters
//! keep their permits is found by the same test; so are one that does not look whether somebody polls, and
//! a check that ends while nobody polls and no request is seen yet, and a pool of which one worker polls and nobody looks
//! at its requests. Requests that the listening thread finds often
//! enough work in the background, so that there are more permits for a while: in the end there are as many as at
//! first, and one too many is found.
//!
//! Run by `cargo xtask test --only interleavings`.

use super::*;
use os::sync::yield_now;
use shuttle::thread;

const SCHEDULES: usize = 5000;
const PERMITS: usize = 2;
/// Requests that wait for each other: each for all of its group, which are more than there are permits.
const GROUP: usize = 4;
const GROUPS: usize = 2;

/// Which requests say that they wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Announced {
    AllButOne,
    None,
}

/// The one that does not.
const SILENT: usize = 1;

/// A thread that has worked more at each look.
struct ModelThread {
    looks: AtomicU64,
    /// Its priority may be raised again.
    restores: bool,
}

impl WorkerThread for ModelThread {
    fn processor_time(&self) -> Duration {
        Duration::from_millis(3 * self.looks.fetch_add(1, Ordering::SeqCst))
    }

    fn work_in_background(&self) {}

    fn end_background(&self) -> bool {
        self.restores
    }
}

/// The news of sockets, and what requests wait for.
#[derive(Default)]
struct World {
    /// Requests that have come and nobody has taken.
    news: usize,
    taken: usize,
    /// How many of each group run or have run.
    met: [usize; GROUPS],
    threads: usize,
    ended: usize,
    /// The listening thread was asked to look at the workers.
    asked: bool,
    over: bool,
}

struct Model {
    pool: WorkerPool,
    world: Mutex<World>,
    /// There is news, or all is done.
    told: Condvar,
    /// A group has grown.
    grown: Condvar,
    /// The listening thread was asked, or all is over.
    woken: Condvar,
    announced: Announced,
}

impl Model {
    fn satisfy(self: &Arc<Self>, need: Need) {
        if need == Need::Thread {
            self.world.lock().threads += 1;
            let state = self.pool.state.lock();
            let alive = state.workers.len() + state.starting;
            drop(state);
            // One for each request, and one for each permit.
            assert!(alive <= GROUP * GROUPS + 2 * PERMITS, "{alive} threads");
            let model = Arc::clone(self);
            thread::spawn(move || model.work());
        }
    }

    /// What the poller does; `None` where all requests were taken.
    fn poll(&self, is_only_one: bool) -> Option<usize> {
        let mut world = self.world.lock();
        if is_only_one && world.news > 0 {
            self.pool.let_all_poll();
        }
        loop {
            if world.news > 0 {
                world.news -= 1;
                world.taken += 1;
                return Some(world.taken - 1);
            }
            if world.taken == GROUP * GROUPS {
                return None;
            }
            self.told.wait(&mut world);
        }
    }

    fn work(self: Arc<Self>) {
        let number = self.world.lock().threads;
        let thread = ModelThread { looks: AtomicU64::new(0), restores: number % 2 == 0 };
        let worker = Arc::new(Worker::on(Box::new(thread)));
        self.pool.joined(&worker);
        loop {
            let is_only_one = self.pool.begin_polling();
            let request = self.poll(is_only_one);
            let (need, asks) = self.pool.end_polling();
            self.satisfy(need);
            if asks {
                self.world.lock().asked = true;
                self.woken.notify_one();
            }
            let Some(request) = request else { break };
            worker.turn();
            self.run(&worker, request);
            worker.turn();
            if !self.pool.wait_for_permit(&worker, Duration::from_secs(1)) {
                break;
            }
        }
        // As where a server stops: nobody is needed any more, once all requests were taken.
        let need = self.pool.left(&worker);
        let all_taken = self.world.lock().taken == GROUP * GROUPS;
        if !all_taken {
            self.satisfy(need);
        } else if need == Need::Thread {
            self.pool.not_started();
        }
        if all_taken {
            self.told.notify_all();
            self.pool.stop();
        }
        self.world.lock().ended += 1;
        self.grown.notify_all();
    }

    /// What the listening thread does; time passes whenever it likes.
    fn listen(self: &Arc<Self>) {
        let mut checks = LongRequests::default();
        let mut next = None;
        loop {
            let mut world = self.world.lock();
            while next.is_none() && !world.asked && !world.over {
                self.woken.wait(&mut world);
            }
            world.asked = false;
            if world.over {
                return;
            }
            drop(world);
            let needs;
            (needs, next) = checks.check(&self.pool);
            needs.into_iter().for_each(|need| self.satisfy(need));
            yield_now();
        }
    }

    /// A request: waits for all of its group.
    fn run(self: &Arc<Self>, worker: &Worker, request: usize) {
        let group = request % GROUPS;
        let mut world = self.world.lock();
        world.met[group] += 1;
        self.grown.notify_all();
        let announces = self.announced == Announced::AllButOne && request != SILENT;
        if world.met[group] < GROUP && announces {
            drop(world);
            let need = self.pool.release_permit(worker);
            self.satisfy(need);
            world = self.world.lock();
        }
        while world.met[group] < GROUP {
            self.grown.wait(&mut world);
        }
    }
}

fn run(announced: Announced, is_checked: bool, too_many: usize) {
    run_pool(WorkerPool::new(PERMITS, 100), announced, is_checked, too_many);
}

/// One that polls is soon enough.
fn run_one(announced: Announced, is_checked: bool) {
    let mut pool = WorkerPool::new(PERMITS, 100);
    pool.one_after = 1;
    run_pool(pool, announced, is_checked, 0);
}

fn run_pool(pool: WorkerPool, announced: Announced, is_checked: bool, too_many: usize) {
    let model = Arc::new(Model {
        pool,
        world: Mutex::default(),
        told: Condvar::new(),
        grown: Condvar::new(),
        woken: Condvar::new(),
        announced,
    });
    let listener = is_checked.then(|| {
        let model = Arc::clone(&model);
        thread::spawn(move || model.listen())
    });
    for _ in 0..PERMITS {
        let need = model.pool.start_one();
        model.satisfy(need);
    }
    for _ in 0..GROUP * GROUPS {
        model.world.lock().news += 1;
        model.told.notify_one();
    }
    model.pool.free.fetch_add(too_many, Ordering::SeqCst);
    let mut world = model.world.lock();
    while world.met != [GROUP; GROUPS] {
        model.grown.wait(&mut world);
    }
    world.over = true;
    model.woken.notify_one();
    drop(world);
    if let Some(listener) = listener {
        // It may be about to start a thread.
        listener.join().unwrap();
    }
    world = model.world.lock();
    while world.ended < world.threads {
        model.grown.wait(&mut world);
    }
    drop(world);
    let state = model.pool.state.lock();
    assert_eq!((state.in_background, state.grants, state.starting), (0, 0, 0));
    let permits = [&model.pool.free, &model.pool.owed].map(|n| n.load(Ordering::SeqCst));
    assert_eq!(permits, [PERMITS, 0], "permits that are free and that are owed");
}

#[test]
fn interleavings_of_workers_that_wait_for_each_other() {
    shuttle::check_random(|| run(Announced::AllButOne, false, 0), SCHEDULES);
}

#[test]
fn interleavings_of_workers_that_wait_and_do_not_say_so() {
    shuttle::check_random(|| run(Announced::None, true, 0), SCHEDULES);
}

#[test]
fn interleavings_of_workers_of_which_some_say_that_they_wait_and_work_in_the_background() {
    shuttle::check_random(|| run(Announced::AllButOne, true, 0), SCHEDULES);
}

#[test]
#[should_panic(expected = "deadlock")]
fn interleavings_find_a_pool_whose_waiters_keep_their_permits() {
    shuttle::check_random(|| run(Announced::None, false, 0), SCHEDULES);
}

#[test]
#[should_panic(expected = "permits that are free and that are owed")]
fn interleavings_find_one_permit_too_many() {
    shuttle::check_random(|| run(Announced::None, true, 1), SCHEDULES);
}

#[test]
fn interleavings_of_workers_of_which_one_polls() {
    shuttle::check_random(|| run_one(Announced::AllButOne, true), SCHEDULES);
}

#[test]
fn interleavings_of_workers_of_which_one_polls_and_that_do_not_say_that_they_wait() {
    shuttle::check_random(|| run_one(Announced::None, true), SCHEDULES);
}

#[test]
#[should_panic(expected = "deadlock")]
fn interleavings_find_that_nobody_looks_at_the_only_one() {
    shuttle::check_random(|| run_one(Announced::AllButOne, false), SCHEDULES);
}
