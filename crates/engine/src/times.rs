//! The cluster's times of commits: which are given, which are visible, which are on disk.
//!
//! Always true:
//! 1. Times ascend with the log: each commit's times are above all of the commits before it.
//! 2. The durable time never names a commit that is not visible, or whose record is not synced, or
//!    that has such a commit before it.
//! 3. Whoever waits for a time is told when it becomes durable, whichever happened last: the record's
//!    sync, by whomever it was, or the commit's publishing.

use crate::snapshots::Snapshots;
use os::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use os::sync::{Condvar, Mutex};
use os::{Call, Clock, Watch, Watchers};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Commits that are kept apart until they are durable; where there are more, the newest stand for
/// those before them.
const MOST_APART: usize = 1 << 16;

/// A commit's place: its number, the last of its times, where its record ends.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) timestamp: u64,
    pub(crate) time: u64,
    pub(crate) end: u64,
}

#[derive(Default)]
struct Inner {
    /// Commits that are given and not durable yet, in their order.
    given: VecDeque<Place>,
    durable: Place,
}

/// The times of one log.
pub(crate) struct Times {
    snapshots: Arc<Snapshots>,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    /// `durable.time`, to look at without the lock.
    durable: AtomicU64,
    waiters: AtomicUsize,
    advanced: Condvar,
    /// Those who wait on no thread.
    watchers: Arc<Watchers>,
}

/// The first time of the next commit, where `newest` was given last.
pub(crate) fn first_time(newest: u64, wall_ms: i64) -> u64 {
    let seconds = u64::try_from(wall_ms / 1000).unwrap_or(0).min(u64::from(u32::MAX));
    newest.saturating_add(1).max(seconds << 32 | 1)
}

impl Times {
    pub(crate) fn new(snapshots: &Arc<Snapshots>, clock: &Arc<dyn Clock>) -> Self {
        Self {
            snapshots: Arc::clone(snapshots),
            clock: Arc::clone(clock),
            inner: Mutex::default(),
            durable: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            advanced: Condvar::new(),
            watchers: Arc::default(),
        }
    }

    /// What a start found: all of it is visible and on disk.
    pub(crate) fn start_at(&self, place: Place) {
        let mut inner = self.inner.lock();
        inner.given.clear();
        inner.durable = place;
        self.durable.store(place.time, Ordering::Release);
    }

    /// The first time of a commit that comes behind `newest`.
    pub(crate) fn next(&self, newest: u64) -> u64 {
        first_time(newest, self.clock.wall_ms())
    }

    /// A commit was given its times. Under the lock that orders commits.
    pub(crate) fn given(&self, place: Place) {
        let mut inner = self.inner.lock();
        let before = inner.given.back().copied().unwrap_or(inner.durable);
        debug_assert!(before.time < place.time && before.end < place.end, "times ascend");
        if inner.given.len() >= MOST_APART {
            inner.given.pop_back();
        }
        inner.given.push_back(place);
    }

    /// The commit whose record ends here is visible: where its record is on disk already, nobody else
    /// may come to say so.
    pub(crate) fn published(&self, end: u64, synced: u64) {
        if end <= synced {
            self.settle(synced);
        }
    }

    /// The log is on disk up to `synced`: what is visible of it becomes durable.
    pub(crate) fn settle(&self, synced: u64) {
        let visible = self.snapshots.visible().get();
        let mut inner = self.inner.lock();
        let Inner { given, durable } = &mut *inner;
        let before = durable.time;
        while let Some(place) = given.front()
            && place.end <= synced
            && place.timestamp <= visible
        {
            *durable = *place;
            given.pop_front();
        }
        let now = durable.time;
        debug_assert!(before <= now, "the durable time only grows");
        if before == now {
            return;
        }
        self.durable.store(now, Ordering::Release);
        drop(inner);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.advanced.notify_all();
        }
        self.watchers.tell();
    }

    /// Commits above that of `place`, which is in the log, are void: others may come.
    pub(crate) fn forget_after(&self, place: Place) {
        let mut inner = self.inner.lock();
        debug_assert!(inner.durable.timestamp <= place.timestamp, "what is durable stays");
        let stay = inner.given.partition_point(|given| given.timestamp <= place.timestamp);
        inner.given.truncate(stay);
        // It may have stood for others only, where there are many.
        let newest = inner.given.back().copied().unwrap_or(inner.durable);
        if newest.timestamp < place.timestamp && newest.time < place.time {
            inner.given.push_back(place);
        }
    }

    /// Where a commit stands that is not durable, or the last that is; `None` where that is not known.
    pub(crate) fn place_of(&self, timestamp: u64) -> Option<Place> {
        let inner = self.inner.lock();
        let known = inner.given.iter().chain(std::iter::once(&inner.durable));
        known.copied().find(|place| place.timestamp == timestamp)
    }

    /// The newest durable commit.
    pub(crate) fn durable(&self) -> Place {
        self.inner.lock().durable
    }

    /// Its time.
    pub(crate) fn durable_time(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// The newest commit that readers see now, and its last time.
    pub(crate) fn visible(&self) -> Place {
        let inner = self.inner.lock();
        let visible = self.snapshots.visible().get();
        debug_assert!(inner.durable.timestamp <= visible, "what is durable is visible");
        let behind = inner.given.partition_point(|place| place.timestamp <= visible);
        let newest = behind.checked_sub(1).and_then(|at| inner.given.get(at));
        newest.copied().unwrap_or(inner.durable)
    }

    /// Has `call` made when the durable time grows next. The caller looks at [`Self::durable_time`] after this.
    pub(crate) fn watch(&self, call: Call) -> Watch {
        self.watchers.watch(call)
    }

    /// Waits until something later than `time` is durable, or the monotonic clock says `deadline`; says
    /// whether there is.
    pub(crate) fn wait_past(&self, time: u64, deadline: Duration) -> bool {
        if self.durable_time() > time {
            return true;
        }
        let mut inner = self.inner.lock();
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let passed = loop {
            if inner.durable.time > time {
                break true;
            }
            let left = deadline.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                break false;
            }
            let _woken = self.advanced.wait_for(&mut inner, left);
        };
        let before = self.waiters.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "who wakes up has waited");
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Showing;

    fn times() -> (Arc<Snapshots>, Times) {
        let snapshots = Arc::new(Snapshots::new(Showing::Complete));
        let times = Times::new(&snapshots, &os::Os::real().clock);
        (snapshots, times)
    }

    fn place(timestamp: u64, time: u64, end: u64) -> Place {
        Place { timestamp, time, end }
    }

    #[test]
    fn times_follow_the_wall_clock_and_never_go_back() {
        for (newest, wall_ms, expected) in [
            (0, 0, 1),
            (0, 7_999, 7 << 32 | 1),
            (7 << 32 | 1, 7_999, 7 << 32 | 2),
            (7 << 32 | 5, 8_000, 8 << 32 | 1),
            // The clock was set back.
            (9 << 32 | 5, 8_000, 9 << 32 | 6),
            (0, -5, 1),
            // A second's counter is used up: the next second begins early.
            (7 << 32 | 0xFFFF_FFFF, 7_000, 8 << 32),
            (u64::MAX, 0, u64::MAX),
            (0, i64::MAX, u64::from(u32::MAX) << 32 | 1),
        ] {
            assert_eq!(first_time(newest, wall_ms), expected, "behind {newest} at {wall_ms}");
        }
    }

    #[test]
    fn durable_is_what_is_visible_and_synced() {
        let (snapshots, times) = times();
        times.start_at(place(3, 30, 300));
        snapshots.start_at(3);
        for (timestamp, time, end) in [(4, 41, 400), (5, 55, 500), (6, 60, 600)] {
            times.given(place(timestamp, time, end));
        }
        times.settle(500);
        assert_eq!(times.durable_time(), 30, "nothing is visible yet");
        snapshots.start_at(4);
        assert_eq!((times.visible().time, times.durable_time()), (41, 30));
        times.settle(399);
        assert_eq!(times.durable_time(), 30);
        times.settle(500);
        assert_eq!(times.durable(), place(4, 41, 400));
        snapshots.start_at(6);
        times.published(600, 599);
        assert_eq!(times.durable_time(), 41, "its record is not on disk");
        times.published(500, 500);
        assert_eq!(times.durable_time(), 55, "synced by another one before it was visible");
        assert_eq!(times.visible().time, 60);
        times.settle(u64::MAX);
        assert_eq!(times.durable_time(), 60);
    }

    #[test]
    fn many_commits_that_wait_take_bounded_memory() {
        let (snapshots, times) = times();
        let last = 2 * MOST_APART as u64;
        for n in 1..=last {
            times.given(place(n, n * 10, n * 100));
        }
        assert_eq!(times.inner.lock().given.len(), MOST_APART);
        snapshots.start_at(last);
        times.settle(last * 100);
        assert_eq!(times.durable_time(), last * 10);
    }

    #[test]
    fn who_waits_is_told() {
        let (snapshots, times) = times();
        let now = times.clock.monotonic();
        assert!(!times.wait_past(0, now), "the deadline is over");
        let deadline = now + Duration::from_mins(1);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| times.wait_past(10, deadline));
            times.given(place(1, 10, 100));
            times.given(place(2, 20, 200));
            snapshots.start_at(2);
            times.settle(100);
            times.settle(200);
            assert!(waiter.join().unwrap());
        });
        assert!(times.wait_past(19, Duration::ZERO), "it is durable already");
    }
}
