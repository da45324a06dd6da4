//! Deletes of ranges: one entry of the log whatever the number of keys.
//!
//! Always true: what a transaction deletes so it has not written before, so that its own writes are newer than
//! the tombstone, and stay; it goes with its savepoints as writes do.

use super::EngineTxn;
use crate::buried::{Buried, OwnTombstone};
use crate::{DictionaryId, KeyRange, OnConflict, Result};
use ftree::Tombstone;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The longest ends that a range may have, both together: they are kept in memory until the range is swept, and
/// written with every checkpoint.
const MAX_ENDS_BYTES: usize = 4 << 10;

impl EngineTxn {
    /// Deletes everything in a range of a dictionary as part of this transaction, whatever it is then; says
    /// whether it did, else the caller deletes key by key: where this transaction has written there, where
    /// somebody else has since its snapshot and that is a conflict, where the dictionary has too many such
    /// ranges already, and where the ends of this one are very long. `part` says what is compared with the range ([`crate::Options::record_part`]); empty,
    /// it is the key.
    ///
    /// A range of keys is locked exclusively (may wait). A range of parts must be *covered*, as in
    /// [`EngineTxn::write_covered`]: every writer of such an entry holds the lock of a key that this transaction
    /// has locked.
    pub fn tombstone(
        &mut self,
        dictionary: DictionaryId,
        range: &KeyRange,
        part: &[u8],
    ) -> Result<bool> {
        self.check_alive()?;
        self.check_not_dropped(dictionary)?;
        let is_known = part.is_empty() || self.environment().options.record_part.is_some();
        if !is_known || self.is_created(dictionary) || self.writes.has_any(dictionary.0)? {
            return Ok(false);
        }
        let tombstone = Tombstone::new(u64::MAX, range, part);
        debug_assert_eq!(tombstone.part, part, "what is compared is said as it was asked for");
        let upper = tombstone.upper.as_ref().map_or(0, Vec::len);
        if tombstone.lower.len() + upper > MAX_ENDS_BYTES {
            return Ok(false);
        }
        self.find_newest(dictionary)?;
        let handle = Arc::clone(self.pinned.handle());
        if part.is_empty() {
            self.holder.lock_range(&handle.locks, dictionary, range, self.lock_timeout)?;
        } else if self.locks_for_ranges() {
            self.holder.lock_all(&handle.locks, dictionary, self.lock_timeout)?;
        }
        // Somebody may have dropped it while this one waited.
        let (snapshot, fails) =
            (self.pinned.timestamp, self.options.on_conflict == OnConflict::Fail);
        let found = self.find_newest(dictionary)?;
        let conflicts = fails && (found.created > snapshot || found.newest_write() > snapshot);
        if conflicts || !found.tree.has_tombstone_room() {
            return Ok(false);
        }
        self.tombstones.push(OwnTombstone { dictionary: dictionary.0, tombstone });
        Ok(true)
    }

    /// The ranges deleted of dictionaries that still exist at commit.
    pub(crate) fn buries(&self) -> impl Iterator<Item = &OwnTombstone> {
        self.tombstones.iter().filter(|own| !self.dropped.contains(&own.dictionary))
    }

    /// Whether somebody locks ranges that he has read, so that a writer that is covered has to lock too.
    pub(super) fn locks_for_ranges(&self) -> bool {
        let environment = self.pinned.handle();
        if environment.serializable.any() {
            return true;
        }
        if self.live.writes_unlocked.load(Ordering::Relaxed) {
            return false;
        }
        self.live.writes_unlocked.store(true, Ordering::SeqCst);
        environment.serializable.any()
    }

    pub(crate) fn buried(&self, dictionary: DictionaryId) -> Option<Buried> {
        if self.tombstones.is_empty() {
            return None;
        }
        Buried::of(&self.tombstones, dictionary, self.environment().options.record_part)
    }

    /// A value that others have committed, unless this transaction has deleted it by a range.
    pub(super) fn unless_buried(
        &self,
        dictionary: DictionaryId,
        key: &[u8],
        value: Option<crate::Value>,
    ) -> Option<crate::Value> {
        match self.buried(dictionary) {
            None => value,
            Some(buried) => value.filter(|value| !buried.has(key, value)),
        }
    }
}
