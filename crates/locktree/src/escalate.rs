//! Memory limit: a transaction with very many locks in one dictionary trades them for one lock on
//! the dictionary, shared where all of them are.

use crate::owner::{KeyLock, Locks};
use crate::table::LockTable;
use crate::wait::Target;
use crate::{Error, Mode, Range, shard};
use os::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

/// A transaction is escalated where it holds at least one part in so many of the limit.
const ESCALATION_DIVISOR: u64 = 8;

impl LockTable {
    /// Called after a grant: keeps the table inside its memory.
    ///
    /// Nothing happens below the limit. Above it the caller's locks are traded where others are
    /// not in the way. Above twice the limit a transaction that cannot be escalated is refused.
    pub(crate) fn within_memory(&self, owner: &mut Locks, timeout: Duration) -> Result<(), Error> {
        let max = self.options.max_bytes;
        if self.is_surely_within(max) || self.bytes() <= max {
            return Ok(());
        }
        self.forget_half_of_commits();
        if owner.bytes >= (max / ESCALATION_DIVISOR).max(owner.escalate_at) && self.bytes() > max {
            self.escalate(owner, Duration::ZERO);
            owner.escalate_at = owner.bytes.saturating_mul(2);
        }
        let last = max.saturating_mul(2);
        if self.bytes() > last && owner.bytes >= max / ESCALATION_DIVISOR {
            // Before it is refused it waits for those who are in the way, as for any lock.
            self.escalate(owner, timeout);
        }
        if self.bytes() > last {
            return Err(Error::OutOfLocks { bytes: self.bytes() });
        }
        Ok(())
    }

    fn escalate(&self, owner: &mut Locks, timeout: Duration) {
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        for KeyLock { id, .. } in &owner.held {
            *sizes.entry(shard::split(id).0).or_default() += shard::cost(id);
        }
        for (dictionary, ranges) in &owner.ranges {
            let size: u64 = ranges.iter().map(|(range, _)| shard::cost_of_range(range)).sum();
            *sizes.entry(*dictionary).or_default() += size;
        }
        let mut largest: Vec<(u64, u64)> = sizes.into_iter().map(|(d, size)| (size, d)).collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        for (_, dictionary) in largest {
            if self.bytes() <= self.options.max_bytes {
                return;
            }
            let mode = self.strongest(owner, dictionary);
            if self.take_all(owner, dictionary, mode, timeout) {
                self.counters.escalations.fetch_add(1, Ordering::Relaxed);
                self.drop_keys_of(owner, dictionary);
            }
        }
    }

    /// The strongest mode in which the owner holds something of a dictionary.
    fn strongest(&self, owner: &Locks, dictionary: u64) -> Mode {
        let of = |held: &&KeyLock| shard::split(&held.id).0 == dictionary;
        let exclusive = owner.held.iter().filter(of).any(|KeyLock { id, .. }| {
            let shard = self.shard(id.borrow()).lock();
            let held = shard.entries.get(&id.borrow()).and_then(|entry| entry.held_by(owner.txn));
            held == Some(Mode::Exclusive)
        });
        let ranges = owner.ranges.get(&dictionary).into_iter().flatten();
        let strongest = ranges.map(|(_, mode)| *mode).max().unwrap_or(Mode::Shared);
        if exclusive { Mode::Exclusive } else { strongest }
    }

    /// Locks the whole dictionary; its smaller ranges are of no use then.
    fn take_all(&self, owner: &mut Locks, dictionary: u64, mode: Mode, timeout: Duration) -> bool {
        let all = Range::all();
        if !owner.covers_range(dictionary, &all, mode) {
            let target = Target::Range(dictionary, all.clone());
            if self.wait_for(owner, target, mode, false, timeout).is_err() {
                return false;
            }
            let smaller = owner.ranges.insert(dictionary, vec![(all.clone(), mode)]);
            let smaller = smaller.into_iter().flatten();
            let freed: u64 = smaller.map(|(range, _)| shard::cost_of_range(&range)).sum();
            let added = shard::cost_of_range(&all);
            owner.bytes = (owner.bytes + added).saturating_sub(freed);
            self.count_bytes(added as i64 - freed as i64);
            let mut waits = self.lock_waits();
            self.drop_ranges(&mut waits, dictionary, owner.txn, |held| {
                held.range != all || held.mode != mode
            });
        }
        if mode == Mode::Exclusive {
            owner.escalated.insert(dictionary);
        }
        true
    }

    /// Opens the key locks that a dictionary lock now covers.
    fn drop_keys_of(&self, owner: &mut Locks, dictionary: u64) {
        let (covered, rest): (Vec<KeyLock>, _) = std::mem::take(&mut owner.held)
            .into_iter()
            .partition(|held| shard::split(&held.id).0 == dictionary);
        owner.held = rest.into();
        for KeyLock { id, .. } in &covered {
            let size = shard::cost(id);
            owner.bytes = owner.bytes.saturating_sub(size);
            // Whoever waits for such a key now waits for the range; it is asked again when the
            // range opens.
            let mut shard = self.shard(id.borrow()).lock();
            shard.release(id, owner.txn, None);
            self.take_bytes(&mut shard, -(size as i64));
        }
    }
}
