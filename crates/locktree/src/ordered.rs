//! The ids of one shard by dictionary: how many there are of each and, where ranges are asked for,
//! in order. So a range costs what lies in it, and a dictionary without locks costs nothing.
//!
//! Always true: a dictionary counts the shard's entries of it; where it is in order, the set holds the
//! keys of exactly these. It is put in order when a range is first asked for, by one walk over the
//! shard, and kept so as long as ranges come: without ranges a lock costs one count and no order.

use crate::Range;
use crate::shard::{self, LockId};
use hashbrown::HashMap;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound;

/// Dictionaries without entries that are remembered, so that one written to again and again is not
/// made again each time.
const MOST_EMPTY: usize = 32;

/// So many dictionaries are looked through faster than one is looked up.
const FEW: usize = 8;

/// A lock id that is ordered by its key, among ids of one dictionary.
#[derive(Clone)]
pub(crate) struct ByKey(pub(crate) LockId);

impl ByKey {
    fn key(&self) -> &[u8] {
        shard::split(&self.0).1
    }
}

impl Borrow<[u8]> for ByKey {
    fn borrow(&self) -> &[u8] {
        self.key()
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

struct DictionaryLocks {
    dictionary: u64,
    entries: usize,
    ordered: Option<BTreeSet<ByKey>>,
    /// A range was asked for since the last [`Dictionaries::age`].
    was_range_scanned: bool,
}

/// The dictionaries of one shard.
#[derive(Default)]
pub(crate) struct Dictionaries {
    all: Vec<DictionaryLocks>,
    /// The one that was looked for last: mostly the one that is looked for next.
    last: usize,
    /// Where in `all` each is.
    index_of: HashMap<u64, usize, BuildHasherDefault<IdHasher>>,
    /// How many of them have no entry.
    empty: usize,
}

impl Dictionaries {
    /// An entry was made.
    #[inline]
    pub(crate) fn add(&mut self, id: &LockId) {
        let dictionary = shard::split(id).0;
        let at = self.find(dictionary).unwrap_or_else(|| self.make(dictionary));
        let ids = &mut self.all[at];
        self.empty -= usize::from(ids.entries == 0);
        ids.entries += 1;
        if let Some(ordered) = &mut ids.ordered {
            ordered.insert(ByKey(id.clone()));
            debug_assert_eq!(ordered.len(), ids.entries, "every entry is in order");
        }
    }

    /// An entry is gone.
    #[inline]
    pub(crate) fn remove(&mut self, id: &LockId) {
        let (dictionary, key) = shard::split(id);
        let Some(at) = self.find(dictionary) else { return };
        let ids = &mut self.all[at];
        assert!(ids.entries > 0, "an entry is taken out once");
        ids.entries -= 1;
        if let Some(ordered) = &mut ids.ordered {
            ordered.remove(key);
            debug_assert_eq!(ordered.len(), ids.entries, "every entry is in order");
        }
        if ids.entries == 0 {
            self.empty += 1;
            if self.empty > MOST_EMPTY {
                self.forget_empty();
            }
        }
    }

    #[inline]
    fn find(&mut self, dictionary: u64) -> Option<usize> {
        let is_it = |ids: &DictionaryLocks| ids.dictionary == dictionary;
        if !self.all.get(self.last).is_some_and(is_it) {
            self.last = match self.all.len() {
                ..=FEW => self.all.iter().position(is_it)?,
                _ => *self.index_of.get(&dictionary)?,
            };
        }
        Some(self.last)
    }

    #[cold]
    fn make(&mut self, dictionary: u64) -> usize {
        let at = self.all.len();
        self.all.push(DictionaryLocks {
            dictionary,
            entries: 0,
            ordered: None,
            was_range_scanned: false,
        });
        self.index_of.insert(dictionary, at);
        self.empty += 1;
        at
    }

    #[cold]
    fn forget_empty(&mut self) {
        self.all.retain(|ids| ids.entries > 0);
        self.index_of.clear();
        self.index_of.extend(self.all.iter().enumerate().map(|(at, ids)| (ids.dictionary, at)));
        self.empty = 0;
        assert_eq!(self.index_of.len(), self.all.len(), "a dictionary has one place");
    }

    /// The ids of a dictionary within a range, ascending. `all` walks over every id of the shard,
    /// which is done the first time only.
    pub(crate) fn within<'a, 'n>(
        &'a mut self,
        dictionary: u64,
        range: &'a Range,
        all: impl Iterator<Item = &'n LockId>,
    ) -> impl Iterator<Item = &'a LockId> {
        let found = self.find(dictionary);
        let ids = found.map(|at| &mut self.all[at]).filter(|ids| ids.entries > 0);
        let ordered = ids.zip(range.bounds()).map(|(ids, bounds)| {
            ids.was_range_scanned = true;
            let ordered = ids.ordered.get_or_insert_with(|| {
                all.filter(|id| shard::split(id).0 == dictionary)
                    .map(|id| ByKey(id.clone()))
                    .collect()
            });
            ordered.range::<[u8], (Bound<&[u8]>, Bound<&[u8]>)>(bounds)
        });
        ordered.into_iter().flatten().map(|id| &id.0)
    }

    /// Forgets the order of dictionaries of which no range was asked for since the last call.
    pub(crate) fn age(&mut self) {
        for ids in &mut self.all {
            if !std::mem::take(&mut ids.was_range_scanned) {
                ids.ordered = None;
            }
        }
    }
}

/// Dictionaries have numbers of our own making, one after the other: a multiplication spreads them.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("dictionaries hash as one number");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn ids_in(dictionaries: &mut Dictionaries, all: &[LockId], range: &Range) -> Vec<Vec<u8>> {
        dictionaries.within(1, range, all.iter()).map(|id| shard::split(id).1.to_vec()).collect()
    }

    proptest! {
        /// Whatever comes, goes, and is asked for in between, a range holds what a plain map holds.
        #[test]
        fn range_holds_what_a_map_holds(
            steps in prop::collection::vec((0..4_u8, 0..3_u64, 0..20_u8, 0..20_u8), 1..200),
        ) {
            let mut dictionaries = Dictionaries::default();
            let mut model: BTreeMap<(u64, u8), LockId> = BTreeMap::new();
            for (what, dictionary, key, other) in steps {
                let id = LockId::from(&shard::lock_id(0, dictionary, &[key]).borrow());
                match what {
                    0 | 1 => {
                        if model.insert((dictionary, key), id.clone()).is_none() {
                            dictionaries.add(&id);
                        }
                    }
                    2 => {
                        if model.remove(&(dictionary, key)).is_some() {
                            dictionaries.remove(&id);
                        }
                    }
                    _ if key == 0 => dictionaries.age(),
                    _ => {
                        let range = Range {
                            lower: Bound::Included(vec![key]),
                            upper: Bound::Excluded(vec![other]),
                        };
                        let all: Vec<LockId> = model.values().cloned().collect();
                        let expected: Vec<Vec<u8>> = model
                            .keys()
                            .filter(|(d, k)| *d == 1 && range.contains(&[*k]))
                            .map(|(_, k)| vec![*k])
                            .collect();
                        prop_assert_eq!(ids_in(&mut dictionaries, &all, &range), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn dictionaries_without_entries_do_not_add_up() {
        let mut dictionaries = Dictionaries::default();
        for dictionary in 0..10_000 {
            let id = LockId::from(&shard::lock_id(0, dictionary, b"k").borrow());
            dictionaries.add(&id);
            dictionaries.remove(&id);
        }
        assert!(dictionaries.all.len() <= MOST_EMPTY + 1, "{}", dictionaries.all.len());
        assert_eq!(dictionaries.all.len(), dictionaries.index_of.len());
    }
}
