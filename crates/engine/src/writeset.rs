//! A transaction's private writes, and the way back to a savepoint.
//!
//! Per dictionary a sorted map: a cursor that was opened over it has a copy and keeps what it saw,
//! so a statement never meets its own writes. Large maps are shared until the next write; keys and
//! values always are, so copying a map copies no bytes of long ones.
//!
//! A set that grows too large for memory moves to a [`SpillTree`], whole, and stays there. Always
//! true: writes are either all in the maps or all in the spill.

use crate::writes::{Key, Write, Writes};
use crate::{Direction, KeyRange, Result, Value};
use ftree::{Message, SpillCursor, SpillTree, SpillView};
use smallvec::SmallVec;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

/// What was written to a key, as a read returns it.
pub(crate) enum Written {
    Value(Value),
    Deleted,
    /// An update of what lies below, by this argument.
    Update(Value),
}

impl Written {
    fn of(write: &Write) -> Self {
        match write {
            Write::Put(value) => Self::Value(Value::shared(value)),
            Write::Delete => Self::Deleted,
            Write::Update(argument) => Self::Update(Value::shared(argument)),
        }
    }
}

impl From<ftree::Written> for Written {
    fn from(written: ftree::Written) -> Self {
        match written {
            ftree::Written::Value(value) => Self::Value(value.into()),
            ftree::Written::Deleted => Self::Deleted,
            ftree::Written::Update(argument) => Self::Update(argument.into()),
        }
    }
}

/// What one write costs beside its bytes.
const WRITE_BYTES: u64 = 64;

/// One write to take back.
struct Undo {
    dictionary: u64,
    key: Key,
    before: Option<Write>,
}

/// The writes to each dictionary, ascending by its number. A transaction writes to few.
#[derive(Clone, Default)]
struct ByDictionary(SmallVec<[(u64, Writes); 2]>);

impl ByDictionary {
    fn find(&self, dictionary: u64) -> std::result::Result<usize, usize> {
        self.0.binary_search_by_key(&dictionary, |(id, _)| *id)
    }

    fn get(&self, dictionary: u64) -> Option<&Writes> {
        self.find(dictionary).ok().map(|at| &self.0[at].1)
    }

    fn get_mut(&mut self, dictionary: u64) -> Option<&mut Writes> {
        self.find(dictionary).ok().map(|at| &mut self.0[at].1)
    }

    fn get_or_default(&mut self, dictionary: u64) -> &mut Writes {
        let at = match self.find(dictionary) {
            Ok(at) => at,
            Err(at) => {
                let writes = (dictionary, Writes::default());
                // Mostly behind all others, for which nothing has to be moved.
                if at == self.0.len() {
                    self.0.push(writes);
                } else {
                    self.0.insert(at, writes);
                }
                at
            }
        };
        &mut self.0[at].1
    }
}

#[derive(Default)]
pub(crate) struct WriteSet {
    dictionaries: ByDictionary,
    bytes: u64,
    longest: u64,
    /// Every write since the first savepoint, newest last.
    undo: Vec<Undo>,
    undoable: AtomicBool,
    spill: Option<Box<Spilled>>,
}

/// A write set on disk.
struct Spilled {
    spill: SpillTree,
    /// The spill's clock at savepoint 0; it ticks as the undo list would grow.
    start: u64,
}

/// A transaction's own writes in one dictionary, as a cursor saw them when it was opened.
pub(crate) enum Own {
    Memory(Writes),
    Spilled(Box<SpillCursor>),
}

/// A write set as it was at one moment.
pub(crate) struct SharedWrites {
    dictionaries: ByDictionary,
    spill: Option<SpillView>,
}

impl SharedWrites {
    /// As [`WriteSet::get`].
    pub(crate) fn get(&self, dictionary: u64, key: &[u8]) -> Result<Option<Written>> {
        if let Some(spill) = &self.spill {
            return Ok(spill.get(dictionary, key)?.map(Written::from));
        }
        let found = self.dictionaries.get(dictionary).and_then(|writes| writes.get(key));
        Ok(found.map(Written::of))
    }

    /// As [`WriteSet::of`].
    pub(crate) fn of(
        &self,
        dictionary: u64,
        range: &KeyRange,
        direction: Direction,
    ) -> Option<Own> {
        if let Some(spill) = &self.spill {
            return Some(Own::Spilled(Box::new(spill.walk(dictionary, range, direction))));
        }
        let writes = self.dictionaries.get(dictionary).filter(|writes| !writes.is_empty());
        writes.map(|writes| Own::Memory(writes.clone()))
    }
}

impl WriteSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.spill.is_none() && self.dictionaries.0.iter().all(|(_, writes)| writes.is_empty())
    }

    /// Bytes that were written, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the longest key and value that were written.
    pub(crate) fn longest(&self) -> u64 {
        self.longest
    }

    /// Bytes in memory, roughly.
    pub(crate) fn memory(&self) -> u64 {
        self.spill.as_ref().map_or(self.bytes, |spilled| spilled.spill.memory_bytes())
    }

    /// What was written to a key, if it was. A spilled set may read the disk.
    pub(crate) fn get(&self, dictionary: u64, key: &[u8]) -> Result<Option<Written>> {
        if let Some(spilled) = &self.spill {
            return Ok(spilled.spill.get(dictionary, key)?.map(Written::from));
        }
        let found = self.dictionaries.get(dictionary).and_then(|writes| writes.get(key));
        Ok(found.map(Written::of))
    }

    /// All writes, as they are now and stay.
    pub(crate) fn shared(&self) -> SharedWrites {
        SharedWrites {
            dictionaries: self.dictionaries.clone(),
            spill: self.spill.as_ref().map(|spilled| spilled.spill.view()),
        }
    }

    /// The writes in a range of one dictionary, as they are now and stay.
    pub(crate) fn of(
        &self,
        dictionary: u64,
        range: &KeyRange,
        direction: Direction,
    ) -> Option<Own> {
        if let Some(spilled) = &self.spill {
            let walk = spilled.spill.walk(dictionary, range, direction);
            return Some(Own::Spilled(Box::new(walk)));
        }
        let writes = self.dictionaries.get(dictionary).filter(|writes| !writes.is_empty());
        writes.map(|writes| Own::Memory(writes.clone()))
    }

    /// Whether anything was written to a dictionary. A spilled set may read the disk.
    pub(crate) fn has_any(&self, dictionary: u64) -> Result<bool> {
        if let Some(spilled) = &self.spill {
            let mut walk = spilled.spill.walk(dictionary, &KeyRange::all(), Direction::Forward);
            return Ok(walk.peek()?.is_some());
        }
        Ok(self.dictionaries.get(dictionary).is_some_and(|writes| !writes.is_empty()))
    }

    /// The dictionaries that were written to, ascending; each with its writes where they are in memory.
    pub(crate) fn each_dictionary(&self, mut see: impl FnMut(u64, Option<&Writes>)) {
        if let Some(spilled) = &self.spill {
            for dictionary in spilled.spill.spaces() {
                see(dictionary, None);
            }
            return;
        }
        for (dictionary, writes) in &self.dictionaries.0 {
            see(*dictionary, Some(writes));
        }
    }

    /// Every write to the dictionaries that are `wanted`, in order. A spilled set reads the disk.
    pub(crate) fn each(
        &self,
        wanted: impl Fn(u64) -> bool,
        mut see: impl FnMut(u64, &[u8], Message<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(spilled) = &self.spill else {
            for (dictionary, writes) in self.dictionaries.0.iter().filter(|(id, _)| wanted(*id)) {
                writes.try_each(|key, write| see(*dictionary, key, write.message()))?;
            }
            return Ok(());
        };
        for dictionary in spilled.spill.spaces().filter(|id| wanted(*id)) {
            let all = KeyRange::all();
            let mut walk = spilled.spill.walk(dictionary, &all, Direction::Forward);
            while let Some((key, message)) = walk.peek()? {
                see(dictionary, key, message)?;
                walk.pass();
            }
        }
        Ok(())
    }

    /// The set on disk, if it was too large for memory.
    pub(crate) fn spilled(&self) -> Option<&SpillTree> {
        self.spill.as_ref().map(|spilled| &spilled.spill)
    }

    /// Moves everything to an empty spill. After an error all is in memory as before.
    pub(crate) fn spill_to(&mut self, mut spill: SpillTree) -> Result<()> {
        assert!(self.spill.is_none(), "writes are spilled once");
        let mut maps = self.dictionaries.clone();
        // Walking the undo list back gives what each noted write wrote, and what was before all.
        let mut noted = Vec::with_capacity(self.undo.len());
        for Undo { dictionary, key, before } in self.undo.iter().rev() {
            let Some(writes) = maps.get_mut(*dictionary) else { continue };
            let written = match before {
                Some(before) => writes.insert(key.clone(), before.clone()),
                None => writes.remove(key),
            };
            noted.push((*dictionary, key, written.unwrap_or(Write::Delete)));
        }
        for (dictionary, writes) in &maps.0 {
            for (key, write) in writes.iter() {
                spill.write_message(*dictionary, key, write.message(), false)?;
            }
        }
        let start = spill.clock();
        for (dictionary, key, write) in noted.into_iter().rev() {
            spill.write_message(dictionary, key, write.message(), true)?;
        }
        spill.settle()?;
        self.dictionaries = ByDictionary::default();
        self.undo = Vec::new();
        self.spill = Some(Box::new(Spilled { spill, start }));
        Ok(())
    }

    /// Only a spilled set can fail, and has then written nothing.
    pub(crate) fn write(
        &mut self,
        dictionary: u64,
        key: &[u8],
        message: Message<'_>,
    ) -> Result<()> {
        let length = key.len() + payload_len(message);
        assert!(!matches!(message, Message::Large(_)), "only trees place large values");
        self.longest = self.longest.max(length as u64);
        if let Some(spilled) = &mut self.spill {
            let noted = self.undoable.load(Ordering::Relaxed);
            spilled.spill.write_message(dictionary, key, message, noted)?;
            self.bytes += WRITE_BYTES + length as u64;
            return Ok(());
        }
        self.write_in_memory(dictionary, key, Write::of(message));
        Ok(())
    }

    fn write_in_memory(&mut self, dictionary: u64, key: &[u8], write: Write) {
        self.bytes += WRITE_BYTES + key.len() as u64 + write.len();
        let writes = self.dictionaries.get_or_default(dictionary);
        let key: Key = key.into();
        let undo_key = self.undoable.load(Ordering::Relaxed).then(|| key.clone());
        let before = writes.insert(key, write);
        if let Some(key) = undo_key {
            // What it replaced stays in memory for the way back.
            self.undo.push(Undo { dictionary, key, before });
        } else if let Some(before) = before {
            let freed = WRITE_BYTES + before.len();
            debug_assert!(self.bytes >= freed, "what is replaced was counted");
            self.bytes = self.bytes.saturating_sub(freed);
        }
    }

    /// From here on every write is noted; says where "here" is.
    pub(crate) fn savepoint(&self) -> usize {
        self.undoable.store(true, Ordering::Relaxed);
        match &self.spill {
            Some(spilled) => (spilled.spill.clock() - spilled.start) as usize,
            None => self.undo.len(),
        }
    }

    /// Takes back the writes since a savepoint. Only a spilled set can fail; it is then of no use
    /// any more.
    pub(crate) fn rollback_to(&mut self, savepoint: usize) -> Result<()> {
        if let Some(spilled) = &mut self.spill {
            return Ok(spilled.spill.roll_back(spilled.start + savepoint as u64)?);
        }
        self.rollback_in_memory(savepoint);
        Ok(())
    }

    fn rollback_in_memory(&mut self, savepoint: usize) {
        while self.undo.len() > savepoint {
            let Some(Undo { dictionary, key, before }) = self.undo.pop() else { return };
            let Some(writes) = self.dictionaries.get_mut(dictionary) else { continue };
            let size = WRITE_BYTES + key.len() as u64;
            let undone = match before {
                Some(before) => writes.insert(key, before),
                None => writes.remove(&key),
            };
            let value = undone.map_or(0, |write| write.len());
            debug_assert!(self.bytes >= size + value, "what is undone was counted");
            self.bytes = self.bytes.saturating_sub(size + value);
        }
    }
}

/// Bytes of a message's value or argument.
pub(crate) fn payload_len(message: Message<'_>) -> usize {
    match message {
        Message::Put(bytes) | Message::Update(bytes) | Message::Large(bytes) => bytes.len(),
        Message::Delete => 0,
    }
}

/// The first write between `lower` and `upper` in the direction of the walk; `None` where there is
/// none.
pub(crate) fn step<'a>(
    writes: &'a Writes,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
    forward: bool,
) -> Option<(&'a Key, &'a Write)> {
    if is_empty(lower, upper) {
        return None;
    }
    writes.end_of((lower, upper), forward)
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
    use std::collections::BTreeMap;
    use std::sync::Arc;

    impl WriteSet {
        fn put(&mut self, dictionary: u64, key: &[u8], value: Option<&[u8]>) -> Result<()> {
            self.write(dictionary, key, value.map_or(Message::Delete, Message::Put))
        }
    }

    fn value_of(written: Written) -> Option<Vec<u8>> {
        match written {
            Written::Value(value) | Written::Update(value) => Some(value.into_vec()),
            Written::Deleted => None,
        }
    }

    fn contents(set: &WriteSet) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let mut found = BTreeMap::new();
        set.each(
            |dictionary| dictionary == 1,
            |_, key, message| {
                found.insert(key.to_vec(), message.value().map(<[u8]>::to_vec));
                Ok(())
            },
        )
        .unwrap();
        found
    }

    fn spill() -> SpillTree {
        let os = os::sim::SimOs::new(1).os();
        let registry = telemetry::Registry::new();
        os.vfs.create_dir_all("/s".as_ref()).unwrap();
        let metrics = blockfile::Metrics::new(&registry);
        let options = blockfile::Options::default();
        let (blocks, _) = blockfile::BlockFile::open(&os, "/s".as_ref(), options, metrics).unwrap();
        let cache = Arc::new(cachetable::CacheTable::new(1 << 20));
        SpillTree::create(
            &ftree::Context::new(blocks, cache),
            1 << 63,
            ftree::TreeOptions::tiny(),
            0,
        )
    }

    #[test]
    fn rollback_restores_what_was_there() {
        let mut set = WriteSet::default();
        set.put(1, b"a", Some(b"1")).unwrap();
        let bytes = set.bytes();
        let place = set.savepoint();
        set.put(1, b"a", None).unwrap();
        set.put(2, b"b", Some(b"2")).unwrap();
        set.rollback_to(place).unwrap();
        assert_eq!(set.get(1, b"a").unwrap().and_then(value_of).as_deref(), Some(&b"1"[..]));
        assert!(set.get(2, b"b").unwrap().is_none());
        assert_eq!(set.bytes(), bytes);
    }

    #[test]
    fn cursor_keeps_the_map_it_was_opened_on() {
        let mut set = WriteSet::default();
        let seen = |set: &WriteSet| match set.of(1, &KeyRange::all(), Direction::Forward) {
            Some(Own::Memory(writes)) => writes,
            _ => panic!("not in memory"),
        };
        set.put(1, b"a", None).unwrap();
        let before = seen(&set);
        set.put(1, b"b", None).unwrap();
        assert_eq!((before.len(), seen(&set).len()), (1, 2));
    }

    proptest! {
        #[test]
        fn savepoints_agree_with_copies(
            steps in prop::collection::vec((0..9_u8, 0..4_u8, any::<u8>()), 0..80),
            spill_at in 0..100_usize,
        ) {
            let mut set = WriteSet::default();
            let mut model: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
            let mut marks = Vec::new();
            for (at, (what, key, value)) in steps.into_iter().enumerate() {
                if at == spill_at {
                    set.spill_to(spill()).unwrap();
                }
                match what {
                    0 => marks.push((set.savepoint(), model.clone())),
                    1 => if let Some((place, copy)) = marks.pop() {
                        set.rollback_to(place).unwrap();
                        model = copy;
                    },
                    2 => { set.put(1, &[key], None).unwrap(); model.insert(vec![key], None); }
                    3 => { set.put(2, &[key], None).unwrap(); }
                    _ => { set.put(1, &[key], Some(&[value])).unwrap(); model.insert(vec![key], Some(vec![value])); }
                }
                prop_assert_eq!(&contents(&set), &model);
            }
            for key in 0..4_u8 {
                let found = set.get(1, &[key]).unwrap().map(value_of);
                prop_assert_eq!(found.as_ref(), model.get(&vec![key]));
            }
        }
    }
}
