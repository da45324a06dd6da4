//! A transaction's private writes, and the way back to a savepoint.
//!
//! Per dictionary a sorted map behind an `Arc`: a cursor that was opened over it keeps what it saw
//! (a later write copies the map), so a statement never meets its own writes. Keys and values are
//! shared, so copying a map copies no bytes of theirs.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) type Key = Arc<[u8]>;
/// What was written to a key; `None` is a delete.
pub(crate) type Write = Option<Arc<[u8]>>;
pub(crate) type Writes = BTreeMap<Key, Write>;

/// What one write costs beside its bytes.
const WRITE_BYTES: u64 = 64;

/// One write to take back.
struct Undo {
    dictionary: u64,
    key: Key,
    before: Option<Write>,
}

#[derive(Default)]
pub(crate) struct WriteSet {
    dictionaries: BTreeMap<u64, Arc<Writes>>,
    bytes: u64,
    /// Every write since the first savepoint, newest last.
    undo: Vec<Undo>,
    undoable: AtomicBool,
}

impl WriteSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.dictionaries.values().all(|writes| writes.is_empty())
    }

    /// Bytes it occupies, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn get(&self, dictionary: u64, key: &[u8]) -> Option<&Write> {
        self.dictionaries.get(&dictionary)?.get(key)
    }

    /// The writes in one dictionary, as they are now and stay.
    pub(crate) fn of(&self, dictionary: u64) -> Option<Arc<Writes>> {
        self.dictionaries.get(&dictionary).filter(|writes| !writes.is_empty()).cloned()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Writes)> {
        self.dictionaries.iter().map(|(dictionary, writes)| (*dictionary, &**writes))
    }

    pub(crate) fn write(&mut self, dictionary: u64, key: &[u8], write: Write) {
        let size = |write: &Write| write.as_ref().map_or(0, |value| value.len() as u64);
        self.bytes += WRITE_BYTES + key.len() as u64 + size(&write);
        let writes = Arc::make_mut(self.dictionaries.entry(dictionary).or_default());
        let key: Key = key.into();
        let undo_key = self.undoable.load(Ordering::Relaxed).then(|| Arc::clone(&key));
        let before = writes.insert(key, write);
        if let Some(key) = undo_key {
            // What it replaced stays in memory for the way back.
            self.undo.push(Undo { dictionary, key, before });
        } else if let Some(before) = before {
            self.bytes = self.bytes.saturating_sub(WRITE_BYTES + size(&before));
        }
    }

    /// From here on every write is noted; says where "here" is.
    pub(crate) fn savepoint(&self) -> usize {
        self.undoable.store(true, Ordering::Relaxed);
        self.undo.len()
    }

    pub(crate) fn rollback_to(&mut self, savepoint: usize) {
        while self.undo.len() > savepoint {
            let Some(Undo { dictionary, key, before }) = self.undo.pop() else { return };
            let Some(writes) = self.dictionaries.get_mut(&dictionary) else { continue };
            let writes = Arc::make_mut(writes);
            let size = WRITE_BYTES + key.len() as u64;
            let undone = match before {
                Some(before) => writes.insert(key, before),
                None => writes.remove(&key),
            };
            let value = undone.flatten().map_or(0, |value| value.len() as u64);
            self.bytes = self.bytes.saturating_sub(size + value);
        }
    }
}

/// The first write strictly beyond `after` (in the direction) and inside `range`.
pub(crate) fn step<'a>(
    writes: &'a Writes,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
    forward: bool,
) -> Option<(&'a Key, &'a Write)> {
    if is_empty(lower, upper) {
        return None;
    }
    let mut range = writes.range::<[u8], _>((lower, upper));
    if forward { range.next() } else { range.next_back() }
}

/// `BTreeMap::range` panics on ranges that end before they start.
fn is_empty(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (
            Bound::Included(low) | Bound::Excluded(low),
            Bound::Included(high) | Bound::Excluded(high),
        ) => low >= high,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rollback_restores_what_was_there() {
        let mut set = WriteSet::default();
        set.write(1, b"a", Some(b"1"[..].into()));
        let bytes = set.bytes();
        let place = set.savepoint();
        set.write(1, b"a", None);
        set.write(2, b"b", Some(b"2"[..].into()));
        set.rollback_to(place);
        assert_eq!(set.get(1, b"a"), Some(&Some(b"1"[..].into())));
        assert_eq!(set.get(2, b"b"), None);
        assert_eq!(set.bytes(), bytes);
    }

    #[test]
    fn cursor_keeps_the_map_it_was_opened_on() {
        let mut set = WriteSet::default();
        set.write(1, b"a", None);
        let seen = set.of(1).unwrap();
        set.write(1, b"b", None);
        assert_eq!((seen.len(), set.of(1).unwrap().len()), (1, 2));
    }

    proptest! {
        #[test]
        fn savepoints_agree_with_copies(steps in prop::collection::vec((0..8_u8, 0..4_u8, any::<u8>()), 0..80)) {
            let mut set = WriteSet::default();
            let mut model: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
            let mut marks = Vec::new();
            for (what, key, value) in steps {
                match what {
                    0 => marks.push((set.savepoint(), model.clone())),
                    1 => if let Some((place, copy)) = marks.pop() {
                        set.rollback_to(place);
                        model = copy;
                    },
                    2 => { set.write(1, &[key], None); model.insert(vec![key], None); }
                    _ => { set.write(1, &[key], Some([value][..].into())); model.insert(vec![key], Some(vec![value])); }
                }
                let have: BTreeMap<Vec<u8>, Option<Vec<u8>>> = set.of(1).iter().flat_map(|w| w.iter())
                    .map(|(k, v)| (k.to_vec(), v.as_ref().map(|v| v.to_vec()))).collect();
                prop_assert_eq!(&have, &model);
            }
        }
    }
}
