//! Commits that are complete and not yet to be seen: how far they may be, and who waits for it.
//!
//! Always true:
//! 1. The visible watermark is at or below both the complete one and what is committed, and only rises.
//! 2. Whoever waits for a commit is told once: that it is visible, or that it will never be. Those whose
//!    commit is passed are woken, oldest first, and nobody else. Calls are made with no lock held.
//!
//! Whoever moves one of the two it is the lesser of stores that one first and reads the other then: of
//! two that do so at once, one sees both.

use super::{Complete, Visible};
use os::Call;
use os::sync::atomic::{AtomicU64, Ordering};
use os::sync::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What became of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitState {
    /// It is complete, and not to be seen yet.
    Pending,
    /// Readers see it.
    Visible,
    /// Something else has taken its place: nobody ever sees it.
    Overwritten,
}

/// Who waits for one commit.
pub(crate) struct CommitWaiter {
    state: Mutex<CommitState>,
    told: Condvar,
}

impl CommitWaiter {
    fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(CommitState::Pending), told: Condvar::new() })
    }

    /// Returns what is known when it is decided, or after `time`.
    pub(crate) fn wait(&self, time: Duration) -> CommitState {
        let mut state = self.state.lock();
        if *state == CommitState::Pending {
            let _woken = self.told.wait_for(&mut state, time);
        }
        *state
    }

    fn tell(&self, state: CommitState) {
        *self.state.lock() = state;
        self.told.notify_all();
    }
}

/// Those who wait, by commit; of one commit in the order in which they came.
#[derive(Default)]
struct Waiters {
    list: BTreeMap<(u64, u64), Arc<CommitWaiter>>,
    /// What is called once a commit is visible, under the same keys; those of an overwritten one are dropped.
    calls: BTreeMap<(u64, u64), WhenVisible>,
    /// What is called once a commit is visible or overwritten, under the same keys, unless who waits leaves first.
    watches: BTreeMap<(u64, u64), Call>,
    next: u64,
    /// Tails that were overwritten: the era since, and the last commit that stayed. Both ascend: a commit of
    /// an era is void where the first pair of a later era says so.
    cuts: VecDeque<(u64, u64)>,
}

/// Overwritten tails that are told apart. Who waits comes within moments of its commit.
const MOST_CUTS: usize = 4096;

impl Waiters {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn waiting(&self) -> u64 {
        (self.list.len() + self.watches.len()) as u64
    }

    fn cut(&mut self, era: u64, timestamp: u64) {
        while self.cuts.back().is_some_and(|(_, before)| *before >= timestamp) {
            self.cuts.pop_back();
        }
        self.cuts.push_back((era, timestamp));
        if self.cuts.len() > MOST_CUTS
            && let (Some((_, oldest)), Some(next)) = (self.cuts.pop_front(), self.cuts.front_mut())
        {
            next.1 = oldest;
        }
    }

    /// Takes out what stands under keys up to a commit.
    fn take_up_to<T>(
        list: &mut BTreeMap<(u64, u64), T>,
        timestamp: u64,
    ) -> BTreeMap<(u64, u64), T> {
        if list.first_key_value().is_none_or(|(first, _)| first.0 > timestamp) {
            return BTreeMap::new();
        }
        let later = list.split_off(&(timestamp.saturating_add(1), 0));
        std::mem::replace(list, later)
    }

    /// Whether a commit that was given in `era` was overwritten.
    fn is_void(&self, timestamp: u64, era: u64) -> bool {
        let later = self.cuts.partition_point(|(since, _)| *since <= era);
        self.cuts.get(later).is_some_and(|(_, stayed)| timestamp > *stayed)
    }
}

/// See above.
#[derive(Default)]
pub(super) struct HeldBack {
    committed: AtomicU64,
    visible: AtomicU64,
    waiters: Mutex<Waiters>,
    /// Another one since each tail that was overwritten, and each time that writes were refused.
    era: AtomicU64,
    /// The newest commit that somebody waits for, or has waited for.
    awaited: AtomicU64,
    /// Called when somebody waits for a commit.
    notify: OnceLock<Notify>,
    /// How many must wait for that.
    notify_from: AtomicU64,
    /// Those who were told that their commit is visible, since it was asked last.
    released: AtomicU64,
}

/// What calls somebody.
pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

/// What is done once a commit is visible, on the thread that moves the watermark over it: it must not wait.
pub(crate) type WhenVisible = Box<dyn FnOnce() + Send>;

impl HeldBack {
    pub(super) fn set_notify(&self, notify: Notify) {
        let _the_first_one_stays = self.notify.set(notify);
    }

    /// Somebody waits for a commit, as one of so many: who makes it visible is told, once for each that is newer than those
    /// before, where so many wait as he asked for. Called with no lock held.
    fn is_awaited(&self, timestamp: u64, waiting: u64) {
        let is_newest = self.awaited.fetch_max(timestamp, Ordering::SeqCst) < timestamp;
        let notify_from = self.notify_from.load(Ordering::SeqCst);
        let is_enough = waiting == notify_from || waiting > notify_from && is_newest;
        if is_enough && let Some(notify) = self.notify.get() {
            notify();
        }
    }

    /// How many must wait before it is told that somebody does.
    pub(super) fn notify_from(&self, waiting: u64) {
        self.notify_from.store(waiting, Ordering::SeqCst);
    }

    /// How many wait now.
    pub(super) fn waiting(&self) -> u64 {
        self.waiters.lock().waiting()
    }

    /// How many were told that their commit is visible, since this was asked last.
    pub(super) fn take_released(&self) -> u64 {
        self.released.swap(0, Ordering::Relaxed)
    }

    /// The newest commit that somebody waits for, or has waited for.
    pub(super) fn awaited(&self) -> u64 {
        self.awaited.load(Ordering::SeqCst)
    }

    pub(super) fn visible(&self) -> Visible {
        Visible::at(self.visible.load(Ordering::SeqCst))
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed.load(Ordering::SeqCst)
    }

    /// Every commit up to here is on a majority; the caller settles then.
    pub(super) fn commit(&self, timestamp: u64) {
        self.committed.fetch_max(timestamp, Ordering::SeqCst);
    }

    /// Moves the visible watermark to where it may be, and tells those who wait; says whether it moved.
    pub(super) fn settle(&self, complete: Complete) -> bool {
        let now = complete.get().min(self.committed());
        if self.visible.fetch_max(now, Ordering::SeqCst) >= now {
            return false;
        }
        let mut waiters = self.waiters.lock();
        let waiting = waiters.waiting();
        while let Some(first) = waiters.list.first_entry()
            && first.key().0 <= now
        {
            first.remove().tell(CommitState::Visible);
        }
        let calls = Waiters::take_up_to(&mut waiters.calls, now);
        let watches = Waiters::take_up_to(&mut waiters.watches, now);
        self.released.fetch_add(waiting - waiters.waiting(), Ordering::Relaxed);
        drop(waiters);
        for call in calls.into_values() {
            call();
        }
        for call in watches.into_values() {
            call();
        }
        true
    }

    /// What has become of a commit of an era.
    pub(super) fn state(&self, timestamp: u64, era: u64) -> CommitState {
        self.state_among(&self.waiters.lock(), timestamp, era)
    }

    fn state_among(&self, waiters: &Waiters, timestamp: u64, era: u64) -> CommitState {
        if waiters.is_void(timestamp, era) {
            // What is visible under its number is another commit.
            CommitState::Overwritten
        } else if self.visible().get() >= timestamp {
            CommitState::Visible
        } else {
            CommitState::Pending
        }
    }

    /// Has `call` made once a commit of an era is visible or overwritten; `None` where it is by now. Answers the key
    /// for [`HeldBack::unwatch`].
    pub(super) fn watch(&self, timestamp: u64, era: u64, call: Call) -> Option<(u64, u64)> {
        // Under the lock: whoever decides it takes the lock afterwards.
        let mut waiters = self.waiters.lock();
        if self.state_among(&waiters, timestamp, era) != CommitState::Pending {
            return None;
        }
        let key = (timestamp, waiters.number());
        waiters.watches.insert(key, call);
        let waiting = waiters.waiting();
        drop(waiters);
        self.is_awaited(timestamp, waiting);
        Some(key)
    }

    /// Who waited has left, or was called.
    pub(super) fn unwatch(&self, key: (u64, u64)) {
        let call = self.waiters.lock().watches.remove(&key);
        drop(call);
    }

    /// Has `call` made once a commit of an era is visible, now where it is; never where it is overwritten.
    pub(super) fn when_visible(&self, timestamp: u64, era: u64, call: WhenVisible) {
        let mut waiters = self.waiters.lock();
        if waiters.is_void(timestamp, era) {
            return;
        }
        if self.visible().get() < timestamp {
            let number = waiters.number();
            waiters.calls.insert((timestamp, number), call);
            return;
        }
        drop(waiters);
        call();
    }

    pub(super) fn era(&self) -> u64 {
        self.era.load(Ordering::SeqCst)
    }

    pub(super) fn begin_era(&self) {
        self.era.fetch_add(1, Ordering::SeqCst);
    }

    /// Somebody waits for a commit of an era; `None` where it is visible.
    pub(super) fn wait_for(&self, timestamp: u64, era: u64) -> Option<Arc<CommitWaiter>> {
        // Under the lock: whoever moves the watermark takes it afterwards.
        let mut waiters = self.waiters.lock();
        let waiter = CommitWaiter::new();
        match self.state_among(&waiters, timestamp, era) {
            CommitState::Visible => return None,
            CommitState::Overwritten => {
                waiter.tell(CommitState::Overwritten);
                return Some(waiter);
            }
            CommitState::Pending => {}
        }
        let number = waiters.number();
        waiters.list.insert((timestamp, number), Arc::clone(&waiter));
        let waiting = waiters.waiting();
        drop(waiters);
        self.is_awaited(timestamp, waiting);
        Some(waiter)
    }

    /// Commits above `timestamp` will never be seen.
    pub(super) fn overwrite(&self, timestamp: u64) {
        let mut waiters = self.waiters.lock();
        self.begin_era();
        // Their numbers are given again, to commits for which nobody waits yet.
        self.awaited.fetch_min(timestamp, Ordering::SeqCst);
        waiters.cut(self.era(), timestamp);
        for waiter in waiters.list.split_off(&(timestamp.saturating_add(1), 0)).into_values() {
            waiter.tell(CommitState::Overwritten);
        }
        drop(waiters.calls.split_off(&(timestamp.saturating_add(1), 0)));
        let watches = waiters.watches.split_off(&(timestamp.saturating_add(1), 0));
        drop(waiters);
        for call in watches.into_values() {
            call();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CommitState::{Overwritten, Pending};
    use super::*;

    const SHOWN: CommitState = CommitState::Visible;

    #[test]
    fn visible_is_the_lesser_of_complete_and_committed() {
        let held = HeldBack::default();
        held.commit(3);
        held.settle(Complete::at(5));
        for (committed, complete, moved, visible) in [
            (3, 9, false, 3),
            (7, 9, true, 7),
            (7, 12, false, 7),
            (20, 12, true, 12),
            (20, 19, true, 19),
            // Old news.
            (15, 19, false, 19),
            (15, 30, true, 20),
        ] {
            held.commit(committed);
            assert_eq!(held.settle(Complete::at(complete)), moved, "{committed}, {complete}");
            assert_eq!(held.visible(), Visible::at(visible), "{committed}, {complete}");
        }
    }

    #[test]
    fn those_whose_commit_is_passed_are_told_and_nobody_else() {
        let held = HeldBack::default();
        let wait = |timestamp| held.wait_for(timestamp, held.era()).unwrap();
        let (late, early, twin, middle) = (wait(9), wait(2), wait(2), wait(5));
        held.commit(4);
        assert!(held.settle(Complete::at(100)));
        let states = || [&early, &twin, &middle, &late].map(|waiter| *waiter.state.lock());
        assert_eq!(states(), [SHOWN, SHOWN, Pending, Pending]);
        assert!(held.wait_for(4, 0).is_none());
        held.overwrite(5);
        assert_eq!(states(), [SHOWN, SHOWN, Pending, Overwritten]);
        // The number is given again: who waited for the first one is not told of the second.
        let again = wait(9);
        held.commit(9);
        held.settle(Complete::at(9));
        assert_eq!(states(), [SHOWN, SHOWN, SHOWN, Overwritten]);
        assert_eq!(again.wait(Duration::ZERO), SHOWN);
        assert_eq!(held.waiters.lock().list.len(), 0);
    }

    #[test]
    fn who_comes_late_is_not_told_of_another_commit_of_its_number() {
        let held = HeldBack::default();
        held.commit(100);
        held.settle(Complete::at(5));
        let state = |timestamp, era| {
            held.wait_for(timestamp, era).map_or(SHOWN, |waiter| *waiter.state.lock())
        };
        for cut in [9, 5, 7] {
            held.overwrite(cut);
        }
        held.settle(Complete::at(20));
        for (era, void) in [(0, [false, true, true, true]), (1, [false, true, true, true])] {
            let states = [5, 6, 8, 10].map(|timestamp| state(timestamp, era) == Overwritten);
            assert_eq!(states, void, "of era {era}");
        }
        assert_eq!([6, 7, 8].map(|timestamp| state(timestamp, 2)), [SHOWN, SHOWN, Overwritten]);
        assert_eq!(state(10, 3), SHOWN);
        for cut in 0..2 * MOST_CUTS as u64 {
            held.overwrite(20 + cut);
        }
        assert!(held.waiters.lock().cuts.len() <= MOST_CUTS);
        assert_eq!(state(6, 0), Overwritten);
    }

    #[test]
    fn calls_are_made_once_their_commit_is_visible_and_never_where_it_is_overwritten() {
        let held = Arc::new(HeldBack::default());
        let made = Arc::new(Mutex::new(Vec::new()));
        let call = |timestamp: u64, era| {
            let (made, inside) = (Arc::clone(&made), Arc::clone(&held));
            let call = move || {
                // No lock is held.
                drop(inside.wait_for(1, 0));
                made.lock().push(timestamp);
            };
            held.when_visible(timestamp, era, Box::new(call));
        };
        for timestamp in [3, 1, 2, 7] {
            call(timestamp, 0);
        }
        held.commit(2);
        held.settle(Complete::at(7));
        assert_eq!(*made.lock(), [1, 2]);
        call(2, 0);
        held.overwrite(3);
        // Of the commit that had this number, and of the one that has it now.
        call(7, 0);
        call(7, held.era());
        held.commit(9);
        held.settle(Complete::at(9));
        assert_eq!(*made.lock(), [1, 2, 2, 3, 7]);
    }

    #[test]
    fn who_watches_a_commit_is_called_however_it_is_decided_and_not_after_it_has_left() {
        let held = Arc::new(HeldBack::default());
        let made = Arc::new(Mutex::new(Vec::new()));
        let watch = |timestamp: u64, era| {
            let (made, inside) = (Arc::clone(&made), Arc::clone(&held));
            let call = move || {
                // No lock is held.
                made.lock().push((timestamp, inside.state(timestamp, era)));
            };
            held.watch(timestamp, era, Arc::new(call))
        };
        let keys = [3, 1, 2, 7, 9].map(|timestamp| watch(timestamp, 0).unwrap());
        held.unwatch(keys[1]);
        held.commit(2);
        held.settle(Complete::at(9));
        assert_eq!(*made.lock(), [(2, SHOWN)]);
        assert_eq!(watch(2, 0), None, "it is visible");
        held.overwrite(3);
        assert_eq!(*made.lock(), [(2, SHOWN), (7, Overwritten), (9, Overwritten)]);
        assert_eq!(watch(7, 0), None, "it is overwritten");
        // The commit that has this number now.
        assert!(watch(7, held.era()).is_some());
        held.commit(9);
        held.settle(Complete::at(9));
        assert_eq!(made.lock()[3..], [(3, SHOWN), (7, SHOWN)]);
        assert!(held.waiters.lock().watches.is_empty());
    }

    /// One that counts how often it has told.
    fn counted() -> (HeldBack, Arc<AtomicU64>) {
        let (held, told) = (HeldBack::default(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&told);
        held.set_notify(Arc::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        (held, told)
    }

    #[test]
    fn it_is_told_when_as_many_wait_as_was_asked_for() {
        let (held, told) = counted();
        held.notify_from(3);
        // The third is told of though it waits for an older one; behind it newer ones are.
        for (timestamp, waiting, times) in [(1, 1, 0), (9, 2, 0), (5, 3, 1), (6, 4, 1), (10, 5, 2)]
        {
            let _waiter = held.wait_for(timestamp, 0);
            assert_eq!((held.waiting(), told.load(Ordering::SeqCst)), (waiting, times));
        }
        held.notify_from(u64::MAX);
        assert!(held.watch(12, 0, Arc::new(|| {})).is_some());
        assert_eq!((held.waiting(), told.load(Ordering::SeqCst)), (6, 2));
        assert_eq!(held.take_released(), 0);
        held.commit(9);
        held.settle(Complete::at(20));
        assert_eq!((held.waiting(), held.take_released(), held.take_released()), (2, 4, 0));
    }

    #[test]
    fn it_is_told_once_for_each_newer_commit_that_somebody_waits_for() {
        let (held, told) = counted();
        held.commit(2);
        held.settle(Complete::at(20));
        assert!(held.wait_for(2, 0).is_none());
        assert_eq!((held.awaited(), told.load(Ordering::SeqCst)), (0, 0), "it is visible");
        for (timestamp, awaited, times) in [(5, 5, 1), (4, 5, 1), (5, 5, 1), (9, 9, 2)] {
            let _waiter = held.wait_for(timestamp, 0);
            assert_eq!((held.awaited(), told.load(Ordering::SeqCst)), (awaited, times));
        }
        assert!(held.watch(12, 0, Arc::new(|| {})).is_some());
        held.when_visible(13, 0, Box::new(|| {}));
        assert_eq!((held.awaited(), told.load(Ordering::SeqCst)), (12, 3), "nobody waits for that");
        held.overwrite(8);
        assert_eq!(held.awaited(), 8);
        let _waiter = held.wait_for(9, held.era());
        assert_eq!(
            (held.awaited(), told.load(Ordering::SeqCst)),
            (9, 4),
            "another commit of that number"
        );
    }

    #[test]
    fn who_sleeps_is_woken() {
        let held = HeldBack::default();
        let waiter = held.wait_for(1, 0).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| waiter.wait(Duration::from_mins(1)));
            held.commit(1);
            held.settle(Complete::at(1));
            assert_eq!(sleeper.join().unwrap(), CommitState::Visible);
        });
    }
}
