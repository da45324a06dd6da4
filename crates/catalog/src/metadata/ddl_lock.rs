//! The order in which changes of the metadata are committed: one by one.
//!
//! Always true: nothing is waited for under this lock. What a change locks is locked before, see
//! `metadata_lock.rs`, and then a lock that is not free is an error.

use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;

/// Serialises the commits of changes of the metadata; holds the number of the next collection.
pub(crate) struct DdlLock(Mutex<u64>);

/// Held while one change is committed.
pub(crate) struct DdlGuard<'a>(MutexGuard<'a, u64>);

impl DdlLock {
    pub(crate) fn new(next_number: u64) -> Self {
        Self(Mutex::new(next_number))
    }

    /// The lock for a change whose transaction has locked what it needs: from now on a lock that is
    /// not free is an error to it.
    pub(crate) fn take(&self, txn: &mut engine::EngineTxn) -> DdlGuard<'_> {
        txn.set_lock_timeout(Duration::ZERO);
        DdlGuard(self.0.lock())
    }

    /// Another member gave this number to a collection.
    pub(crate) fn passed(&self, number: u64) {
        let mut next = self.0.lock();
        *next = (*next).max(number.saturating_add(1));
    }

    /// A number that no collection has had.
    pub(crate) fn new_number(&self) -> u64 {
        DdlGuard(self.0.lock()).new_number()
    }
}

impl DdlGuard<'_> {
    /// A number that no collection has had.
    pub(crate) fn new_number(&mut self) -> u64 {
        let number = *self.0;
        *self.0 += 1;
        number
    }
}
