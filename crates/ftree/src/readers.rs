//! A few threads that read for others: several pages at once, or what will be needed soon.
//!
//! Always true: an errand is run once, by a reader's thread or by who waits for it, whoever comes
//! first. So nobody waits for what nobody has begun, a full queue costs nothing, and without
//! threads everything is run by the callers that need it, in the order it is needed.
//!
//! Lock order: an errand's state, or the queue; never both.

use os::sync::{Condvar, Mutex};
use os::{JoinHandle, Spawner};
use std::collections::VecDeque;
use std::sync::Arc;

/// Errands that wait; what comes when so many do is run by callers that need it.
const LONGEST: usize = 256;

/// The threads and what waits for them. Threads are started as they are needed.
pub struct ReadPool {
    queue: Mutex<Queue>,
    arrived: Condvar,
    spawner: Option<Arc<dyn Spawner>>,
    most: usize,
}

#[derive(Default)]
struct Queue {
    errands: VecDeque<Arc<dyn Errand>>,
    threads: Vec<JoinHandle>,
    /// Threads that wait for an errand.
    idle: usize,
    stop: bool,
}

impl ReadPool {
    /// No threads.
    pub fn none() -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::new(Queue::default()),
            arrived: Condvar::new(),
            spawner: None,
            most: 0,
        })
    }

    /// Up to `most` threads. [`ReadPool::stop`] ends them.
    pub fn with_threads(spawner: Arc<dyn Spawner>, most: usize) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::new(Queue::default()),
            arrived: Condvar::new(),
            spawner: Some(spawner),
            most,
        })
    }

    /// Ends the threads, and waits for what they are at. Not from one of them.
    pub fn stop(&self) {
        let threads = {
            let mut queue = self.queue.lock();
            queue.stop = true;
            queue.errands.clear();
            std::mem::take(&mut queue.threads)
        };
        self.arrived.notify_all();
        for thread in threads {
            // Errands report what they meet to who waits for them.
            let _ended = thread.join();
        }
    }

    /// Whether starting an errand early can gain anything.
    pub(crate) fn has_threads(&self) -> bool {
        self.most > 0
    }

    /// Hands `work` to a thread, where one is to be had.
    pub(crate) fn start<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<T> {
        let errand = Arc::new(Work {
            state: Mutex::new(State::Waiting(Box::new(work))),
            done: Condvar::new(),
        });
        if self.has_threads() {
            self.offer(Arc::clone(&errand) as Arc<dyn Errand>);
        }
        Pending(errand)
    }

    fn offer(self: &Arc<Self>, errand: Arc<dyn Errand>) {
        let mut queue = self.queue.lock();
        if queue.stop || queue.errands.len() >= LONGEST {
            return;
        }
        queue.errands.push_back(errand);
        if queue.idle > 0 {
            self.arrived.notify_one();
        } else if queue.threads.len() < self.most
            && let Some(spawner) = &self.spawner
        {
            let (readers, number) = (Arc::clone(self), queue.threads.len() + 1);
            let serve = Box::new(move || readers.serve());
            // Without it the others do the work, or who waits for it.
            queue.threads.extend(spawner.spawn(&format!("fern-read-{number}"), serve));
            assert!(queue.threads.len() <= self.most, "there are no more threads than allowed");
        }
    }

    fn serve(&self) {
        let mut queue = self.queue.lock();
        while !queue.stop {
            if let Some(errand) = queue.errands.pop_front() {
                drop(queue);
                errand.run();
                drop(errand);
                queue = self.queue.lock();
            } else {
                queue.idle += 1;
                self.arrived.wait(&mut queue);
                assert!(queue.idle > 0, "a thread that wakes up was idle");
                queue.idle -= 1;
            }
        }
    }
}

trait Errand: Send + Sync {
    /// Runs it, unless somebody else does or did.
    fn run(&self);
}

enum State<T> {
    Waiting(Box<dyn FnOnce() -> T + Send>),
    Running,
    Done(T),
    /// Given up, or handed over.
    Over,
}

struct Work<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

impl<T> Work<T> {
    /// The work itself, for who comes first.
    fn claim(&self) -> Option<Box<dyn FnOnce() -> T + Send>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Running) {
            State::Waiting(work) => Some(work),
            other => {
                *state = other;
                None
            }
        }
    }
}

impl<T: Send> Errand for Work<T> {
    fn run(&self) {
        if let Some(work) = self.claim() {
            let result = work();
            *self.state.lock() = State::Done(result);
            self.done.notify_all();
        }
    }
}

/// An errand's result to be. Dropped before it was begun, it is not run.
pub(crate) struct Pending<T>(Arc<Work<T>>);

impl<T> Pending<T> {
    /// The result: runs the errand where nobody has begun it, else waits.
    pub(crate) fn wait(self) -> T {
        if let Some(work) = self.0.claim() {
            return work();
        }
        let mut state = self.0.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Over) {
                State::Done(result) => return result,
                other => *state = other,
            }
            self.0.done.wait(&mut state);
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(*state, State::Waiting(_) | State::Done(_)) {
            *state = State::Over;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::real::RealSpawner;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn errands_without_threads_run_when_they_are_waited_for() {
        let readers = ReadPool::none();
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |number: u32| {
            let order = Arc::clone(&order);
            readers.start(move || order.lock().push(number))
        };
        let (first, second, third) = (note(1), note(2), note(3));
        assert!(order.lock().is_empty());
        second.wait();
        drop(third);
        first.wait();
        assert_eq!(*order.lock(), [2, 1]);
    }

    #[test]
    fn errands_run_at_once_where_there_are_threads() {
        let readers = ReadPool::with_threads(Arc::new(RealSpawner), 3);
        // Passed only if two run while the third is waited for.
        let meeting = Arc::new(Barrier::new(3));
        for _ in 0..20 {
            let pending: Vec<_> = (0..3)
                .map(|number| {
                    let meeting = Arc::clone(&meeting);
                    readers.start(move || {
                        meeting.wait();
                        number
                    })
                })
                .collect();
            let results: Vec<_> = pending.into_iter().map(Pending::wait).collect();
            assert_eq!(results, [0, 1, 2]);
        }
        readers.stop();
    }

    #[test]
    fn errands_run_once_also_when_the_queue_is_full_or_stopped() {
        let readers = ReadPool::with_threads(Arc::new(RealSpawner), 2);
        let runs = Arc::new(AtomicUsize::new(0));
        let start = || {
            let runs = Arc::clone(&runs);
            readers.start(move || runs.fetch_add(1, Ordering::Relaxed))
        };
        let pending: Vec<_> = (0..LONGEST * 3).map(|_| start()).collect();
        for errand in pending {
            errand.wait();
        }
        assert_eq!(runs.load(Ordering::Relaxed), LONGEST * 3);
        readers.stop();
        start().wait();
        assert_eq!(runs.load(Ordering::Relaxed), LONGEST * 3 + 1);
    }
}
