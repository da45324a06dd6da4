//! Memory for writes, kept to its budget: which memtables are closed, so that they can be drained.

use super::load::{BudgetLoad, CacheLoad};
use super::{Scheduler, TUNING, policy};
use crate::Result;
use crate::dictionary::Dictionary;
use cachetable::MemoryKind;
use ftree::{Effort, Progress};

impl Scheduler {
    /// Lets memtables have the room that nothing else in the cache has taken. Called about ten
    /// times a second.
    pub(crate) fn fit_budget(&self) {
        let parts = self.cache.parts();
        let cache = CacheLoad {
            capacity: self.cache.capacity(),
            others: parts.total().saturating_sub(parts.of(MemoryKind::Memtables)),
            most: self.memory.most,
            memtables: self.memory.total(),
        };
        let (next, seals) = policy::fit_budget(self.memory.budget(), &cache, TUNING);
        self.memory.fit(next);
        if seals {
            self.seal_largest(policy::seals_at(&self.budget_load(), TUNING));
        }
    }

    pub(super) fn budget_load(&self) -> BudgetLoad {
        let memory = &self.memory;
        let (least, memtable_bytes) = (memory.least, memory.memtable_bytes);
        BudgetLoad { budget: memory.budget(), least, memtable_bytes }
    }

    /// Brings the total up to date with one dictionary, and seals where it is time.
    pub(crate) fn account(&self, dictionary: &Dictionary) {
        self.memory.account(dictionary);
        if self.directory.find(dictionary.id).is_none() {
            self.memory.forget(dictionary);
            return;
        }
        let budget = self.budget_load();
        let active = dictionary.tree.debt().active_bytes;
        if active >= policy::memtable_limit(&budget, TUNING) {
            self.seal(dictionary);
            return;
        }
        let seals_at = policy::seals_at(&budget, TUNING);
        if self.memory.total() > seals_at && self.memory.takes_look() {
            self.seal_largest(seals_at);
        }
    }

    /// Seals a dictionary's memtable at what is visible and queues it to be drained.
    pub(crate) fn seal(&self, dictionary: &Dictionary) {
        // Read before the seal: every commit up to it has finished inserting. What is complete and not
        // visible may be overwritten, and its timestamps given again: the tree must not say it has them.
        let visible = self.snapshots.visible().get();
        if dictionary.tree.seal_below(visible, || dictionary.newest_write()) {
            self.counters.seals.inc();
            self.add_layer(dictionary);
        }
    }

    /// A dictionary has a layer more to be drained, now or once all of it is visible.
    pub(crate) fn add_layer(&self, dictionary: &Dictionary) {
        if self.snapshots.holds_back() {
            self.held_layers.lock().insert((dictionary.newest_write(), dictionary.id));
        }
        // Also then: it may have become visible meanwhile.
        self.queue.add(dictionary.id);
    }

    /// Commits above `timestamp` have never been: the layers that are left are those of now.
    pub(crate) fn forget_after(&self, timestamp: u64) {
        self.held_layers.lock().retain(|(newest, _)| *newest <= timestamp);
        for dictionary in self.directory.those(|dictionary| dictionary.tree.debt().sealed > 0) {
            self.add_layer(&dictionary);
        }
        for dictionary in self.directory.all() {
            self.memory.account(&dictionary);
        }
    }

    /// More is visible: layers that waited for that may be drained.
    pub(crate) fn became_visible(&self) {
        let visible = self.snapshots.visible().get();
        let mut held = self.held_layers.lock();
        while let Some(&(newest, id)) = held.first()
            && newest <= visible
        {
            held.pop_first();
            self.queue.add(id);
        }
    }

    /// Seals the largest memtables where the active ones hold more than `seals_at`.
    pub(super) fn seal_largest(&self, seals_at: u64) {
        let written = self.memory.written();
        let mut active = Vec::with_capacity(written.len());
        for id in written {
            let Some(dictionary) = self.directory.find(id) else { continue };
            active.push((id, dictionary.tree.debt().active_bytes));
        }
        for id in policy::to_seal(&active, seals_at, TUNING) {
            if let Some(dictionary) = self.directory.find(id) {
                self.seal(&dictionary);
            }
        }
    }

    /// Empties one tree's memtables, as they are now, into its runs; those that hold commits which are not
    /// visible yet stay.
    pub(crate) fn drain(&self, dictionary: &Dictionary) -> Result<()> {
        self.seal(dictionary);
        while dictionary.tree.debt().sealed > 0 {
            let worked = self.work_on(dictionary, Effort::Needed);
            match self.health.check(worked)? {
                // A flusher is at it.
                Progress::Busy => self.clock.sleep(TUNING.beside_others),
                // What is left waits to become visible.
                Progress::Idle if self.snapshots.holds_back() => return Ok(()),
                _ => {}
            }
            self.account(dictionary);
        }
        Ok(())
    }

    /// Empties all memtables: before a clean close, so that the next start replays nothing.
    pub(crate) fn drain_all(&self) -> Result<()> {
        for dictionary in self.directory.all() {
            if dictionary.dropped().is_none() {
                self.drain(&dictionary)?;
            }
        }
        Ok(())
    }
}
