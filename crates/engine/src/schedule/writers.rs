//! Writers are slowed before memory for writes is full.
//!
//! Total of all memtables → what happens: above half of the budget (two thirds of one that has
//! grown), or a memtable above its own limit: the largest active ones are sealed and queued to be
//! drained. Above three quarters (seven eighths): each transaction waits as it writes, 16 KiB by
//! 16 KiB: an eighth further up as long as draining what it brings takes, at most 1 ms a piece. Waits
//! too short to sleep for are owed until they are worth it. Above five quarters: a commit waits until
//! there is room (hard bound); where the disk is full it fails instead. A large transaction waits
//! earlier: above what everything that no eviction frees has left of the cache.

use super::load::{BudgetLoad, WriterLoad};
use super::policy::{self, Admission};
use super::{Scheduler, TUNING};
use crate::{Error, Result};
use cachetable::MemoryKind;
use os::{Wait, Waits};

impl Scheduler {
    /// A writer has found so much in memory.
    fn note_filling(&self, total: u64, budget: &BudgetLoad) {
        if policy::is_filling(total, budget, TUNING) {
            self.memory.note_filling(self.now_us());
        }
    }

    fn writer_load(&self, bytes: u64) -> WriterLoad {
        // Only large writers ask what the cache has left.
        let left = if bytes < TUNING.large_bytes { u64::MAX } else { self.left_for_memtables() };
        WriterLoad {
            bytes,
            memtables: self.memory.total(),
            left,
            drain_rate: self.memory.drain_rate(),
            has_flushers: self.has_flushers,
        }
    }

    /// What is not evicted leaves so much of the cache.
    fn left_for_memtables(&self) -> u64 {
        let parts = self.cache.parts();
        let moves =
            [MemoryKind::Frames, MemoryKind::Compressed, MemoryKind::Holes, MemoryKind::Memtables];
        let moves: u64 = moves.into_iter().map(|part| parts.of(part)).sum();
        (self.cache.capacity() + moves).saturating_sub(parts.total())
    }

    /// Waits until a transaction of `bytes` may go on. Holds no lock but the transaction's own.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<()> {
        let (writer, budget) = (self.writer_load(bytes), self.budget_load());
        if writer.has_flushers {
            self.note_filling(writer.memtables + bytes, &budget);
        }
        let delay = match policy::admit(&writer, &budget, TUNING) {
            Admission::Now => return Ok(()),
            Admission::Works => return self.make_room_alone(),
            Admission::WhenRoom => return self.wait_for_room(bytes),
            Admission::After(nanos) => {
                self.memory.owe(nanos, |owed| policy::pays_now(owed, TUNING))
            }
        };
        if let Some(delay) = delay {
            self.counters.delays.inc();
            self.counters.delayed_micros.add(delay.as_micros() as u64);
            self.clock.sleep(delay);
            Waits::add(Wait::Throttle, delay);
        }
        Ok(())
    }

    /// Makes room for what a leader sends. Where others make it, it waits for nobody: what is not visible cannot
    /// be drained, and who waited here could not be told that it is.
    pub(crate) fn make_room_for_entries(&self, bytes: u64) -> Result<()> {
        if self.has_flushers { Ok(()) } else { self.make_room(bytes) }
    }

    /// Whether what a leader sends is to come now, without that wait. Where memory is full of what nobody has decided,
    /// and nothing can be drained, it must: only with more entries, those of another leader, will it be decided. A
    /// leader has a bound for what is not.
    pub(crate) fn has_room_for_entries(&self) -> bool {
        !self.has_flushers || !self.is_full() || self.queue.len() == 0
    }

    /// Does the background's work where there is no background: until memory is below three quarters
    /// of the budget or there is nothing to drain.
    pub(crate) fn make_room_alone(&self) -> Result<()> {
        let budget = self.memory.budget();
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
        let hard = policy::hard_bound(self.memory.budget(), TUNING);
        loop {
            match self.make_room_alone() {
                Err(Error::NoSpace(_)) => return Ok(()),
                made => made?,
            }
            if !self.has_flushers || self.memory.total() <= hard || self.found_no_space() {
                return Ok(());
            }
            // Nothing of what is replayed becomes visible by waiting.
            if self.snapshots.holds_back() && self.queue.len() == 0 {
                return Ok(());
            }
            self.note_filling(self.memory.total(), &self.budget_load());
            self.memory.room.wait(TUNING.room_check, || self.is_full());
        }
    }

    /// The memtables have reached their hard bound.
    fn is_full(&self) -> bool {
        self.memory.total() > policy::hard_bound(self.memory.budget(), TUNING)
    }

    /// Nothing was drained for long: says what there is to drain, and who is at it.
    fn stalled(&self) -> Error {
        let debts = self.directory.all().into_iter().map(|dictionary| dictionary.tree.debt());
        let (active, sealed) =
            debts.fold((0, 0), |(a, s), debt| (a + debt.active_bytes, s + debt.sealed_bytes));
        let (total, budget, queued) = (self.memory.total(), self.memory.budget(), self.queue.len());
        let text = format!("memory for writes stayed full for {} s", TUNING.stuck.as_secs());
        tracing::error!(total, budget, active, sealed, queued, "{text}");
        Error::NoSpace(text.into())
    }

    fn wait_for_room(&self, bytes: u64) -> Result<()> {
        let started = self.clock.monotonic();
        self.counters.stalls.inc();
        self.queue.wake();
        // Against the budget of each look: one that grew meanwhile lets memory above the old bound
        // be, and nobody would seal it.
        let is_full = || policy::is_full_for(&self.writer_load(bytes), &self.budget_load(), TUNING);
        while is_full() {
            let (writer, budget) = (self.writer_load(bytes), self.budget_load());
            self.note_filling(writer.memtables, &budget);
            if bytes >= TUNING.large_bytes {
                // Below the bound of small ones nobody else might do so.
                let hard = policy::hard_bound_of(&writer, &budget, TUNING);
                self.seal_largest(policy::seals_at(&budget, TUNING).min(hard / 2));
            }
            self.health.check_writable()?;
            self.may_wait.check()?;
            if self.found_no_space() {
                let text = "no room to drain memory to the disk".to_owned();
                return Err(Error::NoSpace(text.into()));
            }
            let waited = self.clock.monotonic().saturating_sub(started);
            if waited > TUNING.stuck {
                return Err(self.stalled());
            }
            self.memory.room.wait(TUNING.room_check, is_full);
        }
        let waited = self.clock.monotonic().saturating_sub(started);
        self.counters.delayed_micros.add(waited.as_micros() as u64);
        Waits::add(Wait::Throttle, waited);
        if waited > TUNING.long_stall {
            self.counters.long_stalls.inc();
            self.counters.long_stalled_micros.add(waited.as_micros() as u64);
        }
        Ok(())
    }
}
