//! Memory limit: a transaction with very many key locks in one dictionary trades them for one
//! lock on the dictionary.

use crate::owner::{Held, Locks};
use crate::table::LockTable;
use crate::{Error, Mode, Range, shard};
use os::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

/// Only a transaction that holds at least this share of the limit (1/8) is worth escalating.
const WORTH: u64 = 8;

impl LockTable {
    /// Called after a grant: keeps the table inside its memory.
    ///
    /// Nothing happens below the limit. Above it the caller's locks are traded where others are
    /// not in the way. Above twice the limit a transaction that cannot be escalated is refused.
    pub(crate) fn within_memory(&self, owner: &mut Locks) -> Result<(), Error> {
        let max = self.options.max_bytes;
        if self.surely_within(max) || self.bytes() <= max {
            return Ok(());
        }
        self.forget_over_half();
        if owner.bytes >= (max / WORTH).max(owner.escalate_at) && self.bytes() > max {
            self.escalate(owner);
            owner.escalate_at = owner.bytes.saturating_mul(2);
        }
        if self.bytes() > max.saturating_mul(2) {
            return Err(Error::OutOfLocks { bytes: self.bytes() });
        }
        Ok(())
    }

    fn escalate(&self, owner: &mut Locks) {
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        for Held { name, .. } in &owner.held {
            *sizes.entry(shard::split(name).0).or_default() += shard::cost(name);
        }
        let mut largest: Vec<(u64, u64)> = sizes.into_iter().map(|(d, size)| (size, d)).collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        for (_, dictionary) in largest {
            if self.bytes() <= self.options.max_bytes {
                return;
            }
            let all = Range::all();
            if self.acquire_range(owner, dictionary, all, Mode::Exclusive, Duration::ZERO).is_ok() {
                owner.escalated.insert(dictionary);
                self.counters.escalations.fetch_add(1, Ordering::Relaxed);
                self.drop_keys_of(owner, dictionary);
            }
        }
    }

    /// Opens the key locks that a dictionary lock now covers.
    fn drop_keys_of(&self, owner: &mut Locks, dictionary: u64) {
        let (covered, rest) = std::mem::take(&mut owner.held)
            .into_iter()
            .partition(|held: &Held| shard::split(&held.name).0 == dictionary);
        owner.held = rest;
        let covered: Vec<Held> = covered;
        for Held { name, .. } in &covered {
            let size = shard::cost(name);
            owner.bytes = owner.bytes.saturating_sub(size);
            // Whoever waits for such a key now waits for the range; it is asked again when the
            // range opens.
            let mut shard = self.shard(name.borrow()).lock();
            shard.release(name, owner.txn, None);
            self.take_bytes(&mut shard, -(size as i64));
        }
    }
}
