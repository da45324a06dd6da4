//! Clients that delete ranges at once, of keys and of parts of keys.
//!
//! To the model that is a delete of every key there can be in the range; the engine writes one entry.

use crate::features::Feature;
use crate::model::Key;
use crate::world::World;
use anyhow::{Result, ensure};
use engine::{DictionaryId, Error, KeyRange};
use std::ops::Bound;
use testkit::Gen;

/// What the engine is told to find in entries: the last two bytes of the key.
pub(crate) fn record_part<'a>(_: &[u8], key: &'a [u8], _: Option<&'a [u8]>) -> Option<&'a [u8]> {
    key.get(key.len().saturating_sub(2)..)
}

/// How a tombstone says that it is about those.
const PART: &[u8] = b"end";

impl World {
    /// Not where the log is the history: it tells each delete.
    pub(crate) fn deletes_ranges(&self) -> bool {
        self.features.has(Feature::Tombstones) && !self.features.has(Feature::History)
    }

    pub(crate) fn delete_range(&mut self, who: usize) -> Result<()> {
        let dictionaries = self.model.dictionaries(self.model.newest);
        let Some(dictionary) = self.random.pick(&dictionaries).copied() else { return Ok(()) };
        let own = &self.clients[who];
        let has_written = own.changes.writes.keys().any(|key| key.0 == dictionary);
        // Who has written there deletes one by one. A range that is taken back leaves its lock, which is more
        // than the locks of its keys.
        if has_written || own.has_savepoints() {
            return Ok(());
        }
        // A range of parts locks no key: what an update of one of them is applied to would be open until the commit.
        let of_parts = self.random.one_in(4) && !self.features.has(Feature::FastUpdates);
        let (range, shown) = self.range(of_parts);
        let part: &[u8] = if of_parts { PART } else { &[] };
        let has = |key: &[u8]| {
            let bytes =
                if of_parts { record_part(PART, key, None).unwrap_or_default() } else { key };
            let bounds = (range.lower.as_ref(), range.upper.as_ref());
            std::ops::RangeBounds::contains(&bounds, &bytes.to_vec())
        };
        let all = (0..self.setup.keys).map(Gen::key_of);
        let keys: Vec<Key> = all.filter(|key| has(key)).map(|key| (dictionary, key)).collect();
        let is_taken = !of_parts && self.is_locked(who, dictionary, &range);
        let others = self.clients.iter().enumerate().filter(|(other, _)| *other != who);
        let meets = others.map(|(_, other)| other).any(|other| other.locks_ranges);
        let txn = &mut self.clients[who].txn;
        let (id, done) = (txn.id(), txn.tombstone(DictionaryId(dictionary), &range, part));
        self.note(format!("{id}: delete {shown} of {dictionary}, {} keys: {done:?}", keys.len()));
        match done {
            // Somebody else has written there since, or there are too many. Whether it has the lock is not
            // known: it gives up.
            Ok(false) => {
                drop(self.clients.swap_remove(who));
                Ok(())
            }
            Ok(true) => {
                ensure!(!is_taken, "a range was deleted under somebody's locks");
                self.tally.ranges_deleted += 1;
                self.clients[who].locks_ranges |= !of_parts;
                self.clients[who].has_buried = true;
                let changes = &mut self.clients[who].changes;
                if !of_parts {
                    changes.locks.extend(keys.iter().cloned());
                }
                changes.writes.extend(keys.iter().map(|key| (key.clone(), None)));
                changes.buried.extend(keys);
                Ok(())
            }
            // Two ranges may meet where no key is.
            Err(Error::LockTimeout { .. }) if is_taken || meets => {
                self.tally.conflicts += 1;
                Ok(())
            }
            Err(error) => {
                drop(self.clients.swap_remove(who));
                self.excuse("delete of a range", &error)
            }
        }
    }

    fn is_locked(&self, who: usize, dictionary: u64, range: &KeyRange) -> bool {
        let bounds = (range.lower.as_ref(), range.upper.as_ref());
        let others = self.clients.iter().enumerate().filter(|(other, _)| *other != who);
        others
            .flat_map(|(_, other)| &other.changes.locks)
            .any(|key| key.0 == dictionary && std::ops::RangeBounds::contains(&bounds, &key.1))
    }

    fn range(&mut self, of_parts: bool) -> (KeyRange, String) {
        if self.random.one_in(20) {
            return (KeyRange::all(), "all".to_owned());
        }
        let mut ends = [0, 1].map(|_| self.random.key(self.setup.keys));
        if of_parts {
            ends = ends.map(|key| record_part(PART, &key, None).unwrap_or_default().to_vec());
        }
        ends.sort();
        let [lower, upper] = ends;
        let shown = format!("{}..{}", lower.escape_ascii(), upper.escape_ascii());
        let upper =
            if self.random.one_in(2) { Bound::Included(upper) } else { Bound::Excluded(upper) };
        (KeyRange { lower: Bound::Included(lower), upper }, shown)
    }
}
