//! Memory for writes: one budget over all memtables, writers slowed before it is full.
//!
//! Total of all memtables → what happens: above half of the budget (two thirds of one that has
//! grown), or a memtable above its own limit: the largest active ones are sealed and queued to be
//! drained. Above three quarters (seven eighths): each transaction waits as it writes, 16 KiB by
//! 16 KiB: an eighth further up as long as draining what it brings takes, at most 1 ms a piece. Waits
//! too short to sleep for are owed until they are worth it. Above five quarters: a commit waits until
//! there is room (hard bound); where the disk is full it fails instead.
//!
//! The budget grows into what nothing else in the cache wants, and yields to pages within
//! seconds: data that fits is updated many times before it is written once (ADR 17).

use crate::dictionary::Dictionary;
use crate::environment::Environment;
use crate::schedule::load::{BudgetLoad, CacheLoad, WriterLoad};
use crate::schedule::policy::{self, Admission};
use crate::schedule::tuning::Tuning;
use crate::settings::Background;
use crate::{Error, Result};
use cachetable::Part;
use os::{Padded, STRIPES, Wait, Waits};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const TUNING: &Tuning = &Tuning::STANDARD;

/// Memtable memory of all dictionaries.
#[derive(Default)]
pub(crate) struct Memory {
    /// The budget as it was fitted last; below the least one it does not count.
    budget: AtomicU64,
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
    room: Room,
}

/// Where writers wait at the hard bound until memory is drained.
#[derive(Default)]
struct Room {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Room {
    /// Returns when there may be room, or after `time`; at once where `is_full` says no.
    fn wait(&self, time: Duration, is_full: impl FnOnce() -> bool) {
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
    fn tell(&self) {
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

impl Memory {
    /// Two threads that account for one dictionary may add in the other order than they swapped;
    /// between them the sum can be below zero.
    pub(crate) fn total(&self) -> u64 {
        u64::try_from(self.total.load(Ordering::Relaxed).cast_signed()).unwrap_or(0)
    }

    /// Counts a dictionary, of which `accounted` is what it counted for, as what `read` says now;
    /// says both. Whoever changes its memory calls this afterwards.
    ///
    /// When the last caller is done, the count is what the dictionary has, however late a thread
    /// comes with what it read: it looks again after its swap, and who changed the memory before
    /// somebody else's swap is seen by that look.
    fn account(&self, accounted: &AtomicU64, read: impl Fn() -> u64) -> (u64, u64) {
        let mut before = None;
        let mut bytes = read();
        loop {
            let counted = accounted.swap(bytes, Ordering::AcqRel);
            // Wrapping: the sum over all dictionaries is exact whatever the order of the swaps.
            self.total.fetch_add(bytes.wrapping_sub(counted), Ordering::Relaxed);
            let before = *before.get_or_insert(counted);
            let now = read();
            if now == bytes {
                if bytes < before {
                    self.room.tell();
                }
                return (before, bytes);
            }
            bytes = now;
        }
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
    fn drain_rate(&self) -> u64 {
        match self.rate.load(Ordering::Relaxed) {
            0 => TUNING.first_rate,
            rate => rate,
        }
    }

    /// How long ago a writer found memory filling, in microseconds.
    pub(crate) fn since_filling(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.filling.load(Ordering::Relaxed))
    }

    /// Adds a wait to what the calling thread's stripe owes; says how long to wait now, if at all.
    fn owe(&self, nanos: u64) -> Option<Duration> {
        let owed = &self.owed[os::stripe()].0;
        let all = owed.fetch_add(nanos, Ordering::Relaxed) + nanos;
        if !policy::pays_now(all, TUNING) {
            return None;
        }
        // Another thread of the stripe may have paid meanwhile.
        Some(Duration::from_nanos(owed.swap(0, Ordering::Relaxed)))
    }
}

impl Environment {
    /// Bytes all memtables may hold, for now.
    pub(crate) fn budget(&self) -> u64 {
        self.memory.budget.load(Ordering::Relaxed).max(self.options.sizes.write_budget)
    }

    /// Lets memtables have the room that nothing else in the cache has taken. Called about ten
    /// times a second.
    pub(crate) fn fit_budget(&self) {
        let sizes = &self.options.sizes;
        let parts = self.cache.parts();
        let others = parts.total().saturating_sub(parts.of(Part::Memtables));
        let cache = CacheLoad {
            capacity: self.cache.capacity(),
            others,
            most: sizes.most_write_budget,
            memtables: self.memory.total(),
        };
        let now = self.budget();
        let (next, seals) = policy::fit_budget(now, &cache, TUNING);
        debug_assert!(next <= now.max(sizes.most_write_budget), "the budget has a bound");
        self.memory.budget.store(next, Ordering::Relaxed);
        if next > now {
            self.memory.room.tell();
        }
        if seals {
            self.seal_largest();
        }
    }

    fn budget_load(&self) -> BudgetLoad {
        let sizes = &self.options.sizes;
        BudgetLoad {
            budget: self.budget(),
            least: sizes.write_budget,
            memtable_bytes: sizes.memtable_bytes,
        }
    }

    /// Memory is short, and has grown by a part of the budget since the largest memtables were looked
    /// for. A look costs as much as there are dictionaries that were written to, which may be thousands,
    /// and where most of the memory waits to be drained it finds nothing to seal.
    fn is_look_due(&self) -> bool {
        if self.memory.total() <= policy::seals_at(&self.budget_load(), TUNING) {
            return false;
        }
        let Memory { next_look, .. } = &*self.memory;
        let total = self.memory.total();
        let soon = total.saturating_add(self.budget() / TUNING.seal_looks);
        let next = next_look.fetch_min(soon, Ordering::Relaxed);
        total >= next
            && next_look.compare_exchange(next, soon, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// A writer has found so much in memory.
    fn note_filling(&self, total: u64, budget: &BudgetLoad) {
        if policy::is_filling(total, budget, TUNING) {
            self.memory.filling.store(self.now_us(), Ordering::Relaxed);
        }
    }

    /// Brings the total up to date with one dictionary, and seals where it is time.
    pub(crate) fn account(&self, dictionary: &Dictionary) {
        let (before, bytes) =
            self.memory.account(&dictionary.accounted, || dictionary.tree.memory_bytes());
        if self.directory.find(dictionary.id).is_none() {
            // Dropped meanwhile: its memory is nobody's any more.
            self.forget_memory(dictionary);
            return;
        }
        if before == 0 && bytes > 0 {
            self.memory.written.lock().insert(dictionary.id);
        }
        if dictionary.tree.debt().active_bytes >= policy::memtable_limit(&self.budget_load(), TUNING) {
            self.seal(dictionary);
        } else if self.is_look_due() {
            self.seal_largest();
        }
    }

    pub(crate) fn forget_memory(&self, dictionary: &Dictionary) {
        let before = dictionary.accounted.swap(0, Ordering::Relaxed);
        self.memory.total.fetch_sub(before, Ordering::Relaxed);
        self.memory.room.tell();
        self.memory.written.lock().remove(&dictionary.id);
    }

    /// Seals a dictionary's memtable at the watermark and queues it to be drained.
    pub(crate) fn seal(&self, dictionary: &Dictionary) {
        // Read before the seal: every commit up to it has finished inserting.
        let watermark = self.snapshots.watermark();
        if dictionary.tree.seal(watermark) {
            self.counters.seals.inc();
            self.jobs.queue(dictionary.id);
        }
    }

    /// Seals the largest memtables where the active ones hold too much of the budget.
    fn seal_largest(&self) {
        let written: Vec<u64> = self.memory.written.lock().iter().copied().collect();
        let mut active = Vec::with_capacity(written.len());
        for id in written {
            let Some(dictionary) = self.directory.find(id) else { continue };
            active.push((id, dictionary.tree.debt().active_bytes));
        }
        for id in policy::to_seal(&active, &self.budget_load(), TUNING) {
            if let Some(dictionary) = self.directory.find(id) {
                self.seal(&dictionary);
            }
        }
    }

    /// Waits until a transaction of `bytes` may go on. Holds no lock but the transaction's own.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<()> {
        let budget = self.budget_load();
        let writer = WriterLoad {
            bytes,
            memtables: self.memory.total(),
            drain_rate: self.memory.drain_rate(),
            has_flushers: self.options.background == Background::Threads,
        };
        if writer.has_flushers {
            self.note_filling(writer.memtables + bytes, &budget);
        }
        let delay = match policy::admit(&writer, &budget, TUNING) {
            Admission::Now => return Ok(()),
            Admission::Works => return self.make_room_alone(),
            Admission::WhenRoom => return self.wait_for_room(),
            Admission::After(nanos) => self.memory.owe(nanos),
        };
        if let Some(delay) = delay {
            self.counters.delays.inc();
            self.counters.delayed_micros.add(delay.as_micros() as u64);
            self.os.clock.sleep(delay);
            Waits::add(Wait::Throttle, delay);
        }
        Ok(())
    }

    /// Does the background's work where there is no background: until memory is below three quarters
    /// of the budget or there is nothing to drain.
    pub(crate) fn make_room_alone(&self) -> Result<()> {
        let budget = self.budget();
        let soft = policy::works_alone_at(budget, TUNING);
        let hard = policy::hard_bound(budget, TUNING);
        while self.memory.total() > soft {
            match self.work_once() {
                Ok(true) => {}
                Ok(false) => break,
                Err(Error::NoSpace(_)) if self.memory.total() <= hard => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// As [`Environment::make_room_alone`], beside flushers where there are some: above the hard
    /// bound it waits for them. On a full disk it does not: a start must not fail for want of space,
    /// and what is replayed is not more than the log holds.
    pub(crate) fn make_room_in_recovery(&self) -> Result<()> {
        let hard = policy::hard_bound(self.budget(), TUNING);
        loop {
            match self.make_room_alone() {
                Err(Error::NoSpace(_)) => return Ok(()),
                made => made?,
            }
            let waits = self.options.background == Background::Threads;
            if !waits || self.memory.total() <= hard || self.jobs.found_no_space() {
                return Ok(());
            }
            self.note_filling(self.memory.total(), &self.budget_load());
            self.memory.room.wait(TUNING.room_check, || self.is_full());
        }
    }

    /// The memtables have reached their hard bound.
    fn is_full(&self) -> bool {
        self.memory.total() > policy::hard_bound(self.budget(), TUNING)
    }

    /// Nothing was drained for long: says what there is to drain, and who is at it.
    fn stalled(&self) -> Error {
        let debts = self.directory.all().into_iter().map(|dictionary| dictionary.tree.debt());
        let (active, sealed) =
            debts.fold((0, 0), |(a, s), debt| (a + debt.active_bytes, s + debt.sealed_bytes));
        let (total, budget, queued) = (self.memory.total(), self.budget(), self.jobs.queued());
        let text = format!("memory for writes stayed full for {} s", TUNING.stuck.as_secs());
        tracing::error!(total, budget, active, sealed, queued, "{text}");
        Error::NoSpace(text.into())
    }

    fn wait_for_room(&self) -> Result<()> {
        let started = self.os.clock.monotonic();
        self.counters.stalls.inc();
        self.jobs.wake();
        // Against the budget of each look: one that grew meanwhile lets memory above the old bound
        // be, and nobody would seal it.
        while self.is_full() {
            self.note_filling(self.memory.total(), &self.budget_load());
            self.health.check_writable()?;
            self.check_wait()?;
            if self.jobs.found_no_space() {
                let text = "no room to drain memory to the disk".to_owned();
                return Err(Error::NoSpace(text.into()));
            }
            let waited = self.os.clock.monotonic().saturating_sub(started);
            if waited > TUNING.stuck {
                return Err(self.stalled());
            }
            self.memory.room.wait(TUNING.room_check, || self.is_full());
        }
        let waited = self.os.clock.monotonic().saturating_sub(started);
        self.counters.delayed_micros.add(waited.as_micros() as u64);
        Waits::add(Wait::Throttle, waited);
        if waited > TUNING.long_stall {
            self.counters.long_stalls.inc();
            self.counters.long_stalled_micros.add(waited.as_micros() as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn thread_that_accounts_with_an_old_figure_puts_it_right() {
        let (memory, accounted) = (Memory::default(), AtomicU64::new(0));
        let (has, looks) = (Cell::new(100), Cell::new(0));
        memory.account(&accounted, || {
            looks.set(looks.get() + 1);
            let bytes = has.get();
            if looks.get() == 1 {
                // Drained and accounted for while this thread does not run.
                has.set(0);
                memory.account(&accounted, || has.get());
            }
            bytes
        });
        assert_eq!(memory.total(), 0, "or writers wait for what nobody will drain");
    }

    #[test]
    fn writers_at_the_bound_sleep_until_memory_is_freed_and_not_longer() {
        let (memory, accounted) = (Memory::default(), AtomicU64::new(0));
        memory.account(&accounted, || 100);
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
            memory.account(&accounted, || 0);
            for writer in writers {
                writer.join().unwrap();
            }
        });
        assert_eq!(looks.load(Ordering::SeqCst), 8, "nobody looked twice");
    }

    #[test]
    fn total_between_two_crossed_updates_is_not_huge() {
        let memory = Memory::default();
        // One thread saw 100 bytes, another 50 afterwards; the later one adds first.
        let _ = memory.total.fetch_add(50_u64.wrapping_sub(100), Ordering::Relaxed);
        assert_eq!(memory.total(), 0);
        let _ = memory.total.fetch_add(100, Ordering::Relaxed);
        assert_eq!(memory.total(), 50);
    }
}
