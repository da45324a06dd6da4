//! Memory for writes: one budget over all memtables, writers slowed before it is full.
//!
//! Total of all memtables → what happens: above half of the budget (two thirds of one that has
//! grown), or a memtable above its own limit: the largest active ones are sealed and queued to be
//! drained. Above three quarters (seven eighths): each transaction waits as it writes, 16 KiB by
//! 16 KiB: an eighth further up as long as draining what it brings takes, at most 1 ms a piece. Waits
//! too short to sleep for are owed until they are worth it. Above five quarters: a commit waits until
//! there is room (hard bound); where the disk is full it fails instead. A large transaction waits earlier:
//! above what everything that no eviction frees has left of the cache ([`Environment::hard_bound`]).
//!
//! The budget grows into what nothing else in the cache wants, and yields to pages within
//! seconds: data that fits is updated many times before it is written once (ADR 17).

use crate::dictionary::{Dictionary, Found};
use crate::environment::Environment;
use crate::settings::Background;
use crate::{Error, Result};
use cachetable::Part;
use os::{Padded, STRIPES, Wait, Waits};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A shorter sleep takes longer than it was asked to.
const SHORTEST_DELAY_US: u64 = 200;
const LONGEST_DELAY_US: u64 = 1000;
/// Writes wait piece by piece, so that a large transaction's commit finds it has waited already.
pub(crate) const PIECE: u64 = 16 << 10;
const MOST_PIECES: u64 = 50;
/// The rate of draining counts from so much busy time on…
const LEAST_US: u64 = 200_000;
/// …and is the mean of about so much: a drain is a second's work and frees all its memory at its
/// end, and merges between drains free none.
const WINDOW_US: u64 = 4_000_000;
/// Taken for the rate of draining before it was measured, in bytes per second.
const FIRST_RATE: u64 = 20 << 20;
/// A writer at the hard bound gives up after this long without room: background work is stalled.
const STUCK: Duration = Duration::from_mins(2);
/// How often a writer at the hard bound asks for more than room: whether its operation goes on, and
/// whether the disk is full. Each time it also says that memory fills ([`FILLING_US`]).
const ROOM_CHECK: Duration = Duration::from_millis(25);
/// A wait for memory above this is an event of its own (`longWaitEvents.cachePressure`).
const LONG_STALL: Duration = Duration::from_secs(1);

/// A transaction that brings more is large: it waits for the cache's bound, and small ones do not wait for
/// it.
const LARGE: u64 = 256 << 10;

/// Between two looks for the largest memtables memory grows by one part in so many of the budget.
const LOOKS: u64 = 64;

/// What a writer has found of memory counts for so many microseconds.
const FILLING_US: u64 = 100_000;

/// A memtable that may grow with the budget is sealed at so much of it: a drain of data that is in
/// memory is done before another one fills the rest…
const MEMTABLE_SHARE: (u64, u64) = (2, 3);
/// …and at this at the latest: a drain frees all of its memory at its end.
const LARGEST_MEMTABLE: u64 = 256 << 20;
/// A budget too large for what the cache has left shrinks by so much of the difference in a tenth
/// of a second: writers are not held up at once because somebody reads.
const GIVES_WAY: u64 = 16;

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
        if drained.busy_us >= LEAST_US && drained.bytes > 0 {
            let rate = drained.bytes.saturating_mul(1_000_000) / drained.busy_us;
            self.rate.store(rate.max(1 << 20), Ordering::Relaxed);
        }
        if drained.busy_us >= WINDOW_US {
            drained.bytes /= 2;
            drained.busy_us /= 2;
        }
    }

    /// Nanoseconds one worker takes to drain `bytes`.
    fn time_to_drain(&self, bytes: u64) -> u64 {
        let rate = match self.rate.load(Ordering::Relaxed) {
            0 => FIRST_RATE,
            rate => rate,
        };
        assert!(rate > 0, "draining has a speed");
        bytes.saturating_mul(1_000_000_000) / rate
    }

    /// Adds a wait to what the calling thread's stripe owes; says how long to wait now, if at all.
    fn owe(&self, nanos: u64) -> Option<Duration> {
        let owed = &self.owed[os::stripe()].0;
        let all = owed.fetch_add(nanos, Ordering::Relaxed) + nanos;
        if all < SHORTEST_DELAY_US * 1000 {
            return None;
        }
        // Another thread of the stripe may have paid meanwhile.
        Some(Duration::from_nanos(owed.swap(0, Ordering::Relaxed)))
    }
}

impl Environment {
    /// Bytes all memtables may hold, for now.
    pub(crate) fn budget(&self) -> u64 {
        self.memory.budget.load(Ordering::Relaxed).max(self.options.tuning.write_budget)
    }

    /// Lets memtables have the room that nothing else in the cache has taken. Called about ten
    /// times a second.
    pub(crate) fn fit_budget(&self) {
        let tuning = &self.options.tuning;
        let parts = self.cache.parts();
        let others = parts.total().saturating_sub(parts.of(Part::Memtables));
        let room = self.cache.capacity().saturating_sub(others);
        let fit = (room / 8 * 7).min(tuning.most_write_budget);
        let now = self.budget();
        // Where no page is left that could go, memtables are what is too much.
        let at_once = fit >= now || parts.total() > self.cache.capacity();
        let next = if at_once { fit } else { now - (now - fit).div_ceil(GIVES_WAY) };
        debug_assert!(next <= now.max(tuning.most_write_budget), "the budget has a bound");
        self.memory.budget.store(next, Ordering::Relaxed);
        if next > now {
            self.memory.room.tell();
        }
        if self.memory.total() > next / 8 * 7 {
            // It has shrunk below what nobody may have added to since.
            self.seal_largest(self.seals_at());
        }
    }

    /// Bytes of all memtables above which a transaction that brings `bytes` waits. For a large one it is no
    /// more than what the rest of the cache, but for pages that can go, leaves of the bound; at least
    /// half of the least budget.
    fn hard_bound(&self, bytes: u64) -> u64 {
        let most = self.budget() / 4 * 5;
        if bytes < LARGE {
            return most;
        }
        let parts = self.cache.parts();
        let moves = [Part::Frames, Part::Compressed, Part::Holes, Part::Memtables];
        let moves: u64 = moves.into_iter().map(|part| parts.of(part)).sum();
        let left = (self.cache.capacity() + moves).saturating_sub(parts.total());
        let bound = most.min(left.max(self.options.tuning.write_budget / 2));
        assert!(bound > 0, "a transaction waits for something that can come");
        bound
    }

    /// Bytes at which one memtable is sealed.
    fn memtable_limit(&self) -> u64 {
        let tuning = &self.options.tuning;
        if self.budget() > tuning.write_budget {
            self.seals_at().min(LARGEST_MEMTABLE).max(tuning.memtable_bytes)
        } else {
            tuning.memtable_bytes
        }
    }

    /// Writers will soon be slowed, unless memtables are drained.
    fn is_memory_short(&self) -> bool {
        self.memory.total() > self.seals_at()
    }

    /// Memory is short, and has grown by a part of the budget since the largest memtables were looked
    /// for. A look costs as much as there are dictionaries that were written to, which may be thousands,
    /// and where most of the memory waits to be drained it finds nothing to seal.
    fn is_look_due(&self) -> bool {
        if !self.is_memory_short() {
            return false;
        }
        let Memory { next_look, .. } = &*self.memory;
        let total = self.memory.total();
        let soon = total.saturating_add(self.budget() / LOOKS);
        let next = next_look.fetch_min(soon, Ordering::Relaxed);
        total >= next
            && next_look.compare_exchange(next, soon, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Somebody writes, and memory fills faster than what is at work empties it: writers are slowed,
    /// or about to be.
    pub(crate) fn is_memory_filling(&self) -> bool {
        let met = self.memory.filling.load(Ordering::Relaxed);
        self.now_us() < met.saturating_add(FILLING_US)
    }

    /// A writer has found so much in memory.
    fn note_filling(&self, total: u64, budget: u64) {
        if total > u64::midpoint(self.seals_at(), self.slows_at(budget)) {
            self.memory.filling.store(self.now_us(), Ordering::Relaxed);
        }
    }

    /// Bytes of all memtables above which writers are slowed.
    fn slows_at(&self, budget: u64) -> u64 {
        let grown = budget > self.options.tuning.write_budget;
        budget / 8 * if grown { 7 } else { 6 }
    }

    /// Bytes of active memtables above which the largest are sealed.
    fn seals_at(&self) -> u64 {
        let budget = self.budget();
        if budget > self.options.tuning.write_budget {
            let (share, of) = MEMTABLE_SHARE;
            budget / of * share
        } else {
            budget / 2
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
        if dictionary.tree.debt().active_bytes >= self.memtable_limit() {
            self.seal(dictionary);
        } else if self.is_look_due() {
            self.seal_largest(self.seals_at());
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

    /// Seals the largest memtables where the active ones hold more than `seals_at`.
    fn seal_largest(&self, seals_at: u64) {
        let written: Vec<u64> = self.memory.written.lock().iter().copied().collect();
        let mut tables: Vec<(u64, Found)> = Vec::with_capacity(written.len());
        for id in written {
            let Some(dictionary) = self.directory.find(id) else { continue };
            let bytes = dictionary.tree.debt().active_bytes;
            if bytes > 0 {
                tables.push((bytes, dictionary));
            }
        }
        let mut active: u64 = tables.iter().map(|(bytes, _)| bytes).sum();
        if active <= seals_at {
            return;
        }
        tables.sort_by_key(|(bytes, dictionary)| (std::cmp::Reverse(*bytes), dictionary.id));
        for (bytes, dictionary) in tables {
            if active <= seals_at / 4 * 3 {
                return;
            }
            self.seal(&dictionary);
            active -= bytes;
        }
    }

    /// Waits until a transaction of `bytes` may go on. Holds no lock but the transaction's own.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<()> {
        let budget = self.budget();
        let total = self.memory.total() + bytes;
        if self.options.background != Background::Threads {
            // Nobody else does the work.
            return if total > budget / 4 * 3 { self.make_room_alone() } else { Ok(()) };
        }
        self.note_filling(total, budget);
        let soft = self.slows_at(budget);
        debug_assert!(soft <= budget, "writes slow down before the budget is full");
        if (total > soft || bytes >= LARGE) && self.is_full_for(bytes) {
            return self.wait_for_room(bytes);
        }
        if total <= soft {
            return Ok(());
        }
        let over = total - soft;
        let wait = u128::from(self.memory.time_to_drain(bytes)) * u128::from(over)
            / u128::from((budget / 8).max(1));
        let longest = Self::longest_delay(bytes) * 1000;
        let wait = u64::try_from(wait).map_or(longest, |wait| wait.min(longest));
        if let Some(delay) = self.memory.owe(wait) {
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
        let (soft, hard) = (self.budget() / 4 * 3, self.budget() / 4 * 5);
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
        let hard = self.budget() / 4 * 5;
        loop {
            match self.make_room_alone() {
                Err(Error::NoSpace(_)) => return Ok(()),
                made => made?,
            }
            let waits = self.options.background == Background::Threads;
            if !waits || self.memory.total() <= hard || self.jobs.found_no_space() {
                return Ok(());
            }
            self.note_filling(self.memory.total(), self.budget());
            self.memory.room.wait(ROOM_CHECK, || self.is_full());
        }
    }

    /// The memtables have reached their hard bound.
    fn is_full(&self) -> bool {
        self.memory.total() > self.budget() / 4 * 5
    }

    /// A transaction of so many bytes has to wait, and there is something to wait for.
    fn is_full_for(&self, bytes: u64) -> bool {
        let (total, hard) = (self.memory.total(), self.hard_bound(bytes));
        total + bytes > hard && total > hard / 2
    }

    /// A millisecond for each piece of a transaction that is as large as a usual one.
    fn longest_delay(bytes: u64) -> u64 {
        LONGEST_DELAY_US * (bytes / PIECE).clamp(1, MOST_PIECES)
    }

    /// Nothing was drained for long: says what there is to drain, and who is at it.
    fn stalled(&self) -> Error {
        let debts = self.directory.all().into_iter().map(|dictionary| dictionary.tree.debt());
        let (active, sealed) =
            debts.fold((0, 0), |(a, s), debt| (a + debt.active_bytes, s + debt.sealed_bytes));
        let (total, budget, queued) = (self.memory.total(), self.budget(), self.jobs.queued());
        let text = format!("memory for writes stayed full for {} s", STUCK.as_secs());
        tracing::error!(total, budget, active, sealed, queued, "{text}");
        Error::NoSpace(text.into())
    }

    fn wait_for_room(&self, bytes: u64) -> Result<()> {
        let started = self.os.clock.monotonic();
        self.counters.stalls.inc();
        self.jobs.wake();
        // Against the budget of each look: one that grew meanwhile lets memory above the old bound
        // be, and nobody would seal it.
        while self.is_full_for(bytes) {
            self.note_filling(self.memory.total(), self.budget());
            if bytes >= LARGE {
                // Below the bound of small ones nobody else might do so.
                self.seal_largest(self.seals_at().min(self.hard_bound(bytes) / 2));
            }
            self.health.check_writable()?;
            self.check_wait()?;
            if self.jobs.found_no_space() {
                let text = "no room to drain memory to the disk".to_owned();
                return Err(Error::NoSpace(text.into()));
            }
            let waited = self.os.clock.monotonic().saturating_sub(started);
            if waited > STUCK {
                return Err(self.stalled());
            }
            self.memory.room.wait(ROOM_CHECK, || self.is_full_for(bytes));
        }
        let waited = self.os.clock.monotonic().saturating_sub(started);
        self.counters.delayed_micros.add(waited.as_micros() as u64);
        Waits::add(Wait::Throttle, waited);
        if waited > LONG_STALL {
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
