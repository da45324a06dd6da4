//! Those who wait for a change, and hold no thread meanwhile: a list of calls, each made once when the change
//! has come.
//!
//! What is always true:
//! 1. Who is in the list before it looks at the state misses no change that the look does not show, where
//!    whoever changes the state calls [`Watchers::tell`] afterwards.
//! 2. Where nobody waits, telling costs a fence and a load.
//! 3. Nobody is called twice, nor while a lock of the list is held; who has dropped its [`Watch`] may be called
//!    once more, where it was about to be.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What is called when a change has come. It must not wait, and must not take locks that whoever tells holds.
pub type Call = Arc<dyn Fn() + Send + Sync>;

/// Those who wait for one thing to change.
#[derive(Default)]
pub struct Watchers {
    /// How many are in the list.
    waiting: AtomicUsize,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next: u64,
    calls: BTreeMap<u64, Call>,
}

/// A place in the list, given up when this is dropped.
#[must_use]
pub struct Watch {
    watchers: Arc<Watchers>,
    number: u64,
}

impl Watchers {
    /// Has `call` made at the next change. The caller must look at the state after this and before it relies on
    /// being called.
    pub fn watch(self: &Arc<Self>, call: Call) -> Watch {
        let mut list = self.list.lock();
        let number = list.next;
        list.next += 1;
        list.calls.insert(number, call);
        self.waiting.store(list.calls.len(), Ordering::Relaxed);
        drop(list);
        // Either the look that follows sees the change, or whoever made that sees that somebody waits.
        fence(Ordering::SeqCst);
        Watch { watchers: Arc::clone(self), number }
    }

    /// The state has changed: calls everybody who waits, and forgets them.
    #[inline]
    pub fn tell(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.tell_all();
        }
    }

    #[cold]
    fn tell_all(&self) {
        let mut list = self.list.lock();
        let calls = std::mem::take(&mut list.calls);
        self.waiting.store(0, Ordering::Relaxed);
        drop(list);
        for call in calls.into_values() {
            call();
        }
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut list = self.watchers.list.lock();
        let call = list.calls.remove(&self.number);
        self.watchers.waiting.store(list.calls.len(), Ordering::Relaxed);
        drop(list);
        drop(call);
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers").field("count", &self.count()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_called_once_and_who_has_left_is_not() {
        let watchers = Arc::new(Watchers::default());
        let calls = Arc::new(AtomicUsize::new(0));
        let counting = || {
            let calls = Arc::clone(&calls);
            Arc::new(move || {
                calls.fetch_add(1, Ordering::Relaxed);
            }) as Call
        };
        watchers.tell();
        let (one, two) = (watchers.watch(counting()), watchers.watch(counting()));
        drop(two);
        assert_eq!(watchers.count(), 1);
        watchers.tell();
        watchers.tell();
        assert_eq!((calls.load(Ordering::Relaxed), watchers.count()), (1, 0));
        let again = watchers.watch(counting());
        drop(one);
        watchers.tell();
        assert_eq!(calls.load(Ordering::Relaxed), 2, "the place of another is not given up");
        drop(again);
    }

    #[test]
    fn a_call_may_watch_again_and_leave() {
        let watchers = Arc::new(Watchers::default());
        let kept = Arc::new(Mutex::new(None));
        let (list, place) = (Arc::clone(&watchers), Arc::clone(&kept));
        let again = move || {
            let mut place = place.lock();
            *place = Some(list.watch(Arc::new(|| ())));
        };
        let first = watchers.watch(Arc::new(again));
        watchers.tell();
        drop(first);
        assert_eq!(watchers.count(), 1);
        drop(kept.lock().take());
        assert_eq!(watchers.count(), 0);
    }
}

/// One who waits, and one who changes the state, in every order shuttle finds: no change is missed. That who
/// looks before it is in the list misses one is found by the same test. Run by
/// `cargo xtask test --only interleavings`.
#[cfg(all(test, shuttle))]
mod interleavings {
    use super::*;
    use crate::sync::Condvar;
    use shuttle::thread;

    const SCHEDULES: usize = 5000;
    const CHANGES: usize = 3;

    fn run(looks_first: bool) {
        let watchers = Arc::new(Watchers::default());
        let state = Arc::new(AtomicUsize::new(0));
        let (changing, changed) = (Arc::clone(&watchers), Arc::clone(&state));
        thread::spawn(move || {
            for _ in 0..CHANGES {
                changed.fetch_add(1, Ordering::Relaxed);
                changing.tell();
            }
        });
        let others = Arc::clone(&watchers);
        thread::spawn(move || drop(others.watch(Arc::new(|| ()))));
        let woken = Arc::new((Mutex::new(false), Condvar::new()));
        loop {
            *woken.0.lock() = false;
            let before = state.load(Ordering::Relaxed);
            let waking = Arc::clone(&woken);
            let watch = watchers.watch(Arc::new(move || {
                *waking.0.lock() = true;
                waking.1.notify_all();
            }));
            let seen = if looks_first { before } else { state.load(Ordering::Relaxed) };
            if seen == CHANGES {
                break;
            }
            let mut told = woken.0.lock();
            while !*told {
                woken.1.wait(&mut told);
            }
            drop(told);
            drop(watch);
        }
    }

    #[test]
    fn interleavings_of_one_who_waits_and_one_who_changes() {
        shuttle::check_random(|| run(false), SCHEDULES);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn interleavings_find_who_looks_before_it_waits() {
        shuttle::check_random(|| run(true), SCHEDULES);
    }
}
