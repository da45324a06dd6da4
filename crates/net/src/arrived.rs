//! News of sockets that a worker has taken from the poller for others too, by the processors through which it came.
//!
//! Where more is ready than workers wait for, each takes first what came through its own processor: there is what the
//! kernel knows of the socket, and the client's thread, where that is one of this machine. To wake a thread of another
//! processor interrupts that one, which costs more than all else that a short request does.
//!
//! What is always true:
//! 1. Nothing is passed by for more than [`MOST_PASSED`] that came later.
//! 2. Whoever leaves something here looks afterwards whether somebody polls, and wakes it; who is about to poll has said
//!    so before it looks here. So nothing lies here while a worker sleeps.

use os::sync::Mutex;
use os::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;

/// So many that came later may be taken before one.
const MOST_PASSED: u64 = 16;

/// News of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SocketNews {
    /// What the socket was registered with.
    pub(crate) token: u64,
    /// The other side closed at least its half.
    pub(crate) hung_up: bool,
}

/// So many pieces of a connection's news go by what the system has told of the first of them.
const ASKED_EACH: u64 = 16;

/// The processor through which a connection's bytes come: clients move seldom, and to ask costs a system call.
#[derive(Default)]
pub(crate) struct Through {
    /// Above, what the system has told; in the lowest bits, how often it was gone by.
    told: AtomicU64,
}

impl Through {
    /// The processor, which `ask` asks for now and then. Two that call at once may both ask.
    pub(crate) fn processor(&self, ask: impl FnOnce() -> Option<usize>) -> Option<usize> {
        let told = self.told.load(Ordering::Relaxed);
        if !told.is_multiple_of(ASKED_EACH) {
            self.told.store(told + 1, Ordering::Relaxed);
            return usize::try_from(told / ASKED_EACH).ok();
        }
        let processor = ask()?;
        self.told.store(processor as u64 * ASKED_EACH + 1, Ordering::Relaxed);
        Some(processor)
    }
}

/// The news that nobody has begun to serve.
pub(crate) struct Arrived {
    lists: Mutex<Lists>,
    length: AtomicUsize,
}

struct Lists {
    /// With when it came, counted from the first.
    by_processor: Vec<VecDeque<(u64, SocketNews)>>,
    next: u64,
}

/// From which list to take, of which the first entries came then: from the own one, unless the oldest of all was passed
/// by often enough; where that is empty from the one of the oldest, if that is wanted.
fn choose(first: impl Iterator<Item = Option<u64>>, own: usize, others_too: bool) -> Option<usize> {
    let (mut mine, mut oldest) = (None, None);
    for (at, came) in first.enumerate() {
        let Some(came) = came else { continue };
        if at == own {
            mine = Some(came);
        }
        if oldest.is_none_or(|(least, _)| came < least) {
            oldest = Some((came, at));
        }
    }
    let (oldest, at) = oldest?;
    match mine {
        Some(mine) if mine - oldest <= MOST_PASSED => Some(own),
        None if !others_too => None,
        _ => Some(at),
    }
}

impl Arrived {
    /// For so many processors; those beyond share lists.
    pub(crate) fn new(processors: usize) -> Self {
        let by_processor = (0..processors.max(1)).map(|_| VecDeque::new()).collect();
        let lists = Lists { by_processor, next: 0 };
        Self { lists: Mutex::new(lists), length: AtomicUsize::new(0) }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.length.load(Ordering::SeqCst) > 0
    }

    /// Takes in what came through a processor.
    pub(crate) fn put(&self, processor: usize, news: SocketNews) {
        let mut lists = self.lists.lock();
        let came = lists.next;
        lists.next += 1;
        let of = processor % lists.by_processor.len();
        lists.by_processor[of].push_back((came, news));
        self.length.fetch_add(1, Ordering::SeqCst);
    }

    /// What a worker on this processor is to serve next; from others' lists where it is its own's turn, and where
    /// `others_too`.
    pub(crate) fn take(&self, processor: usize, others_too: bool) -> Option<SocketNews> {
        if !self.is_waiting() {
            return None;
        }
        let mut lists = self.lists.lock();
        let first = lists.by_processor.iter().map(|list| list.front().map(|(came, _)| *came));
        let from = choose(first, processor % lists.by_processor.len(), others_too)?;
        let (_, news) = lists.by_processor[from].pop_front()?;
        self.length.fetch_sub(1, Ordering::SeqCst);
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_news_comes_first_unless_others_was_passed_by_often_enough() {
        // When the first entry of each list came; the own list, whether others' are wanted, and the list chosen.
        for (first, own, others_too, from) in [
            (&[None, None][..], 0, true, None),
            (&[Some(5), Some(2)], 0, false, Some(0)),
            (&[Some(5), Some(2)], 1, false, Some(1)),
            (&[None, Some(2)], 0, false, None),
            (&[None, Some(2)], 0, true, Some(1)),
            (&[None, Some(7), Some(2)], 0, true, Some(2)),
            (&[Some(18), Some(2)], 0, false, Some(0)),
            (&[Some(19), Some(2)], 0, false, Some(1)),
            (&[Some(19), Some(4), Some(2)], 0, true, Some(2)),
        ] {
            let chosen = choose(first.iter().copied(), own, others_too);
            assert_eq!(chosen, from, "{first:?} {own} {others_too}");
        }
    }

    #[cfg(not(shuttle))]
    #[test]
    fn the_system_is_asked_for_the_processor_now_and_then() {
        let through = Through::default();
        assert_eq!(through.processor(|| None), None, "it does not tell");
        assert_eq!(through.processor(|| Some(3)), Some(3));
        for _ in 1..ASKED_EACH {
            assert_eq!(through.processor(|| panic!("it was told")), Some(3));
        }
        assert_eq!(through.processor(|| Some(0)), Some(0), "the client has moved");
        assert_eq!(through.processor(|| panic!("it was told")), Some(0));
    }

    #[cfg(not(shuttle))]
    #[test]
    fn what_came_is_taken_once_and_in_turn() {
        let arrived = Arrived::new(2);
        let news = |token| SocketNews { token, hung_up: false };
        for token in 0..100 {
            // Nearly all of it through the first; processors beyond share lists.
            arrived.put(if token == 10 { 3 } else { 2 }, news(token));
        }
        let taken: Vec<u64> =
            std::iter::from_fn(|| arrived.take(0, false)).map(|news| news.token).collect();
        let passed = taken.iter().position(|token| *token == 10).unwrap();
        // What came at 11 to 26 was taken before it.
        assert_eq!(passed, 10 + MOST_PASSED as usize, "{taken:?}");
        assert_eq!(taken.len(), 100);
        assert!(!arrived.is_waiting() && arrived.take(1, true).is_none());
    }
}

/// Two workers over a poller that is a count: one of them has a request that does not end before all others have, which
/// are therefore the other one's, wherever they lie.
#[cfg(all(test, shuttle))]
mod interleavings {
    use super::*;
    use os::sync::Condvar;
    use shuttle::thread;
    use std::sync::Arc;

    const SCHEDULES: usize = 5000;
    const REQUESTS: usize = 5;

    #[derive(Default)]
    struct World {
        news: usize,
        /// Wake-ups that nobody has met.
        wakes: usize,
        served: usize,
    }

    struct Model {
        arrived: Arrived,
        polling: AtomicUsize,
        world: Mutex<World>,
        changed: Condvar,
        wakes_others: bool,
    }

    impl Model {
        fn leave_to_others(&self) {
            let polls = || self.polling.load(Ordering::SeqCst) > 0;
            if self.wakes_others && self.arrived.is_waiting() && polls() {
                self.world.lock().wakes += 1;
                self.changed.notify_all();
            }
        }

        /// Takes what is there, as a worker does that nobody polls beside.
        fn look(&self) {
            if self.polling.load(Ordering::SeqCst) > 0 {
                return;
            }
            let many = std::mem::take(&mut self.world.lock().news);
            for at in 0..many {
                self.arrived.put(at, SocketNews { token: 0, hung_up: false });
            }
        }

        /// Whether there was something before all was served.
        fn poll(&self) -> bool {
            self.polling.fetch_add(1, Ordering::SeqCst);
            let mut world = self.world.lock();
            let mut found = false;
            while !self.arrived.is_waiting() && world.served < REQUESTS {
                if world.wakes > 0 {
                    world.wakes -= 1;
                    break;
                }
                if world.news > 0 {
                    world.news -= 1;
                    found = true;
                    break;
                }
                self.changed.wait(&mut world);
            }
            drop(world);
            self.polling.fetch_sub(1, Ordering::SeqCst);
            found
        }

        fn work(&self, processor: usize) {
            while self.world.lock().served < REQUESTS {
                let mut news = self.arrived.take(processor, false);
                if news.is_none() {
                    self.look();
                    news = self.arrived.take(processor, true);
                }
                if news.is_some() {
                    self.leave_to_others();
                } else if !self.poll() {
                    continue;
                }
                let mut world = self.world.lock();
                while processor == 0 && world.served < REQUESTS - 1 {
                    self.changed.wait(&mut world);
                }
                world.served += 1;
                self.changed.notify_all();
            }
        }
    }

    fn run(wakes_others: bool) {
        let model = Arc::new(Model {
            arrived: Arrived::new(2),
            polling: AtomicUsize::new(0),
            world: Mutex::default(),
            changed: Condvar::new(),
            wakes_others,
        });
        let workers = [0, 1].map(|processor| {
            let model = Arc::clone(&model);
            thread::spawn(move || model.work(processor))
        });
        for _ in 0..REQUESTS {
            model.world.lock().news += 1;
            model.changed.notify_all();
        }
        for worker in workers {
            worker.join().unwrap();
        }
        assert!(!model.arrived.is_waiting());
    }

    #[test]
    fn interleavings_of_workers_that_take_for_each_other() {
        shuttle::check_random(|| run(true), SCHEDULES);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn interleavings_find_that_nobody_is_told_of_what_is_left() {
        shuttle::check_random(|| run(false), SCHEDULES);
    }
}
