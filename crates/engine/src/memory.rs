//! Memory for writes: one budget over all memtables, counted exactly, and where writers wait for it.
//!
//! The budget grows into what nothing else in the cache wants, and yields to pages within
//! seconds: data that fits is updated many times before it is written once (ADR 17). How far it
//! grows, which memtables are sealed and how long writers wait is decided by `schedule::policy`.
//!
//! What is always true: when nobody is at work the total is what the memtables hold; who makes room
//! wakes all who wait for it.

use crate::dictionary::Dictionary;
use crate::settings::Sizes;
use crate::tuning::Tuning;
use os::sync::{Condvar, Mutex};
use os::{Padded, STRIPES};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const TUNING: &Tuning = &Tuning::STANDARD;

/// The memtable memory of all dictionaries, and what it may be.
#[derive(Default)]
pub(crate) struct WriteBudget {
    /// Bytes that memtables may hold in any case, and at most.
    pub(crate) least: u64,
    pub(crate) most: u64,
    /// Bytes at which one memtable is sealed where the budget has not grown.
    pub(crate) memtable_bytes: u64,
    /// The budget as it was fitted last; below the least one it does not count.
    fitted: AtomicU64,
    total: AtomicU64,
    /// From so many bytes altogether on it is worth a look which memtables are largest.
    next_look: AtomicU64,
    /// Dictionaries with something in memory.
    written: Mutex<BTreeSet<u64>>,
    drained: Mutex<Drained>,
    /// Bytes per second of busy time; 0 is not measured yet.
    rate: AtomicU64,
    /// When a writer last found memory filling, in microseconds of the monotonic clock.
    filling: AtomicU64,
    /// Nanoseconds that the writers of each stripe have yet to wait.
    owed: [Padded<AtomicU64>; STRIPES],
    /// Where writers wait at the hard bound.
    pub(crate) room: Room,
}

/// Where writers wait at the hard bound until memory is drained.
#[derive(Default)]
pub(crate) struct Room {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Room {
    /// Returns when there may be room, or after `time`; at once where `is_full` says no.
    pub(crate) fn wait(&self, time: Duration, is_full: impl FnOnce() -> bool) {
        let mut guard = self.lock.lock();
        // Before the look: who makes room after it sees that somebody waits.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if is_full() {
            let _ = self.changed.wait_for(&mut guard, time);
        }
        let before = self.waiting.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "who wakes up has waited");
    }

    /// There is more room than before. One load where nobody waits.
    pub(crate) fn tell(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _not_between_look_and_wait = self.lock.lock();
            self.changed.notify_all();
        }
    }
}

/// What background work did of late: older work counts half as much with each window.
#[derive(Default)]
struct Drained {
    bytes: u64,
    busy_us: u64,
}

impl WriteBudget {
    /// A budget of these sizes.
    pub(crate) fn new(sizes: &Sizes) -> Self {
        assert!(sizes.memtable_bytes > 0, "a memtable has a size");
        Self {
            least: sizes.write_budget,
            most: sizes.most_write_budget,
            memtable_bytes: sizes.memtable_bytes,
            ..Self::default()
        }
    }

    /// Bytes all memtables may hold, for now.
    pub(crate) fn budget(&self) -> u64 {
        self.fitted.load(Ordering::Relaxed).max(self.least)
    }

    /// They may hold so much from now on.
    pub(crate) fn fit(&self, next: u64) {
        let now = self.budget();
        debug_assert!(next <= now.max(self.most), "the budget has a bound");
        self.fitted.store(next, Ordering::Relaxed);
        if next > now {
            self.room.tell();
        }
    }

    /// Two threads that account for one dictionary may add in the other order than they swapped;
    /// between them the sum can be below zero.
    pub(crate) fn total(&self) -> u64 {
        u64::try_from(self.total.load(Ordering::Relaxed).cast_signed()).unwrap_or(0)
    }

    /// Counts a dictionary, of which `accounted` is what it counted for, as what `read` says now. Says
    /// whether that went from nothing to something or back. Whoever changes its memory calls this afterwards.
    ///
    /// When the last caller is done, the count is what the dictionary has, however late a thread
    /// comes with what it read: it looks again after its swap, and who changed the memory before
    /// somebody else's swap is seen by that look.
    fn count(&self, accounted: &AtomicU64, read: impl Fn() -> u64) -> bool {
        let (mut before, mut has_crossed) = (None, false);
        let mut bytes = read();
        loop {
            let counted = accounted.swap(bytes, Ordering::AcqRel);
            // Wrapping: the sum over all dictionaries is exact whatever the order of the swaps.
            self.total.fetch_add(bytes.wrapping_sub(counted), Ordering::Relaxed);
            has_crossed |= (counted == 0) != (bytes == 0);
            let before = *before.get_or_insert(counted);
            let now = read();
            if now == bytes {
                if bytes < before {
                    self.room.tell();
                }
                return has_crossed;
            }
            bytes = now;
        }
    }

    /// Brings the total up to date with one dictionary.
    pub(crate) fn account(&self, dictionary: &Dictionary) {
        if !self.count(&dictionary.accounted, || dictionary.tree.memory_bytes()) {
            return;
        }
        let mut written = self.written.lock();
        // As of now: who accounts for it at the same time comes later, or has been here.
        if dictionary.accounted.load(Ordering::Acquire) > 0 {
            written.insert(dictionary.id);
        } else {
            written.remove(&dictionary.id);
        }
    }

    /// The dictionary is dropped: its memory is nobody's any more.
    pub(crate) fn forget(&self, dictionary: &Dictionary) {
        let before = dictionary.accounted.swap(0, Ordering::Relaxed);
        self.total.fetch_sub(before, Ordering::Relaxed);
        self.room.tell();
        self.written.lock().remove(&dictionary.id);
    }

    /// The dictionaries with something in memory, ids ascending.
    pub(crate) fn written(&self) -> Vec<u64> {
        self.written.lock().iter().copied().collect()
    }

    /// Whether memory has grown by a part of the budget since the largest memtables were looked
    /// for: where most of it waits to be drained a look finds nothing to seal. Then somebody looks
    /// now.
    pub(crate) fn takes_look(&self) -> bool {
        let total = self.total();
        let soon = total.saturating_add(self.budget() / TUNING.seal_looks);
        let next = self.next_look.fetch_min(soon, Ordering::Relaxed);
        let relaxed = Ordering::Relaxed;
        total >= next && self.next_look.compare_exchange(next, soon, relaxed, relaxed).is_ok()
    }

    /// A unit of background work of any kind: draining has to pay for flushing and merging too.
    pub(crate) fn worked(&self, bytes: u64, busy_us: u64) {
        let mut drained = self.drained.lock();
        drained.bytes += bytes;
        drained.busy_us += busy_us;
        if drained.busy_us >= TUNING.rate_least_us && drained.bytes > 0 {
            let rate = drained.bytes.saturating_mul(1_000_000) / drained.busy_us;
            self.rate.store(rate.max(TUNING.least_rate), Ordering::Relaxed);
        }
        if drained.busy_us >= TUNING.rate_window_us {
            drained.bytes /= 2;
            drained.busy_us /= 2;
        }
    }

    /// Bytes that one worker drains in a second.
    pub(crate) fn drain_rate(&self) -> u64 {
        let rate = match self.rate.load(Ordering::Relaxed) {
            0 => TUNING.first_rate,
            rate => rate,
        };
        assert!(rate > 0, "draining has a speed");
        rate
    }

    /// How long ago a writer found memory filling, in microseconds.
    pub(crate) fn since_filling(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.filling.load(Ordering::Relaxed))
    }

    /// A writer has found memory filling.
    pub(crate) fn note_filling(&self, now_us: u64) {
        self.filling.store(now_us, Ordering::Relaxed);
    }

    /// Adds a wait to what the calling thread's stripe owes; says how long to wait now, if `pays`
    /// says that what is owed is worth it.
    pub(crate) fn owe(&self, nanos: u64, pays: impl FnOnce(u64) -> bool) -> Option<Duration> {
        let owed = &self.owed[os::stripe()].0;
        let all = owed.fetch_add(nanos, Ordering::Relaxed) + nanos;
        if !pays(all) {
            return None;
        }
        // Another thread of the stripe may have paid meanwhile.
        Some(Duration::from_nanos(owed.swap(0, Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn thread_that_accounts_with_an_old_figure_puts_it_right() {
        let (memory, accounted) = (WriteBudget::default(), AtomicU64::new(0));
        let (has, looks) = (Cell::new(100), Cell::new(0));
        memory.count(&accounted, || {
            looks.set(looks.get() + 1);
            let bytes = has.get();
            if looks.get() == 1 {
                // Drained and accounted for while this thread does not run.
                has.set(0);
                memory.count(&accounted, || has.get());
            }
            bytes
        });
        assert_eq!(memory.total(), 0, "or writers wait for what nobody will drain");
    }

    #[test]
    fn writers_at_the_bound_sleep_until_memory_is_freed_and_not_longer() {
        let (memory, accounted) = (WriteBudget::default(), AtomicU64::new(0));
        memory.count(&accounted, || 100);
        let looks = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        while memory.total() > 0 {
                            looks.fetch_add(1, Ordering::SeqCst);
                            memory.room.wait(Duration::from_mins(10), || memory.total() > 0);
                        }
                    })
                })
                .collect();
            while memory.room.waiting.load(Ordering::SeqCst) < 8 {
                std::thread::yield_now();
            }
            memory.count(&accounted, || 0);
            for writer in writers {
                writer.join().unwrap();
            }
        });
        assert_eq!(looks.load(Ordering::SeqCst), 8, "nobody looked twice");
    }

    #[test]
    fn total_between_two_crossed_updates_is_not_huge() {
        let memory = WriteBudget::default();
        // One thread saw 100 bytes, another 50 afterwards; the later one adds first.
        let _ = memory.total.fetch_add(50_u64.wrapping_sub(100), Ordering::Relaxed);
        assert_eq!(memory.total(), 0);
        let _ = memory.total.fetch_add(100, Ordering::Relaxed);
        assert_eq!(memory.total(), 50);
    }
}
