//! What a plan may cost before somebody thinks again.
//!
//! The unit is a look at one entry of an index. What else a plan does is weighed against it: these
//! are ratios of CPU time measured with everything in memory; out of memory a fetch costs more,
//! but so does everything that it is compared with.
//!
//! Always true: a stage that fails because the budget is spent is not asked again.

use errors::{Code, Error, Result};
use std::cell::Cell;

/// A document found by its key.
pub(super) const FETCH_COST: u64 = 5;
/// A new place in an index, beside the entry that is found there.
pub(super) const SEEK_COST: u64 = 3;
/// So many bytes of a document cost as much as an entry.
pub(super) const COST_BYTES: u64 = 4096;

/// A limit of cost. Every stage of a plan spends from the same.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    spent: Cell<u64>,
    trial: bool,
}

impl Budget {
    /// Of a plan whose rows nobody takes.
    pub(crate) fn of_trial(limit: u64) -> Self {
        Self { limit, spent: Cell::new(0), trial: true }
    }

    /// Of a plan that runs in earnest.
    pub(crate) fn of_run(limit: u64) -> Self {
        Self { limit, spent: Cell::new(0), trial: false }
    }

    /// Fails where the limit is passed.
    pub(super) fn spend(&self, cost: u64) -> Result<()> {
        self.spent.set(self.spent.get().saturating_add(cost));
        if self.is_spent() {
            return Err(Error::new(Code::INTERNAL_ERROR, "the plan costs more than it may"));
        }
        Ok(())
    }

    /// Whether more was asked for than there was.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.get() > self.limit
    }

    /// What was spent so far.
    pub(crate) fn spent(&self) -> u64 {
        self.spent.get()
    }

    pub(super) fn is_trial(&self) -> bool {
        self.trial
    }
}
