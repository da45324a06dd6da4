//! Scaffold: the API over memory, so that the floors above can be built while the tree is.
//!
//! Replaced by the real transaction manager; its public signatures stay.

use crate::{DictionaryId, DictionaryOptions, Durability, Error, OnConflict, Result, TxnOptions};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// A commit timestamp: commits are ordered by it, snapshots are named by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

/// Owned bytes of one value; derefs to a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value(Arc<[u8]>);

impl std::ops::Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The part of a dictionary a cursor walks.
#[derive(Clone, Debug)]
pub struct KeyRange {
    /// Where it starts in key order.
    pub lower: Bound<Vec<u8>>,
    /// Where it ends in key order.
    pub upper: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }
}

/// Which way a cursor walks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// Ascending keys.
    #[default]
    Forward,
    /// Descending keys.
    Backward,
}

type Versions = BTreeMap<Vec<u8>, Vec<(u64, Option<Value>)>>;

#[derive(Default)]
struct State {
    dictionaries: BTreeMap<u64, (DictionaryOptions, Versions)>,
    newest: u64,
    next_dictionary: u64,
    locks: BTreeMap<(u64, Vec<u8>), u64>,
    next_txn: u64,
}

/// The storage engine; a cheap handle.
#[derive(Clone)]
pub struct Engine(Arc<Mutex<State>>);

impl Engine {
    /// An engine over a simulated disk in memory, for tests of the floors above.
    pub fn temporary() -> Self {
        let mut state = State { next_dictionary: 2, ..State::default() };
        state.dictionaries.insert(1, (DictionaryOptions::default(), Versions::new()));
        Self(Arc::new(Mutex::new(state)))
    }

    /// Starts a transaction whose snapshot is now.
    pub fn begin(&self, options: TxnOptions) -> Txn {
        let mut state = self.0.lock();
        state.next_txn += 1;
        Txn {
            id: state.next_txn,
            engine: self.clone(),
            snapshot: state.newest,
            options,
            writes: Arc::default(),
            locked: Vec::new(),
        }
    }

    /// A read-only view of everything committed by now; cheap to clone, keeps its versions alive.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { engine: self.clone(), timestamp: self.0.lock().newest }
    }

    /// Makes every commit so far durable (`j: true`, `fsync`).
    pub fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Writes a checkpoint and returns when it is complete.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    /// Stops background work, writes a checkpoint and closes the files. Later calls fail.
    pub fn close(&self) -> Result<()> {
        Ok(())
    }
}

type Writes = BTreeMap<(u64, Vec<u8>), Option<Value>>;

/// A consistent read-only view.
#[derive(Clone)]
pub struct Snapshot {
    engine: Engine,
    timestamp: u64,
}

impl Snapshot {
    /// The commit timestamp this view shows.
    pub fn timestamp(&self) -> Timestamp {
        Timestamp(self.timestamp)
    }

    /// The value of `key`, if it has one. May read the disk.
    pub fn get(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        read(&self.engine, dictionary, key, self.timestamp)
    }

    /// A cursor over `range`. It owns what it needs and may be parked between calls.
    pub fn cursor(
        &self,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        Cursor::over(&self.engine, dictionary, range, direction, self.timestamp, &Writes::new())
    }
}

/// A place in a transaction to which its writes can be rolled back.
pub struct Savepoint(Writes);

/// A read-write transaction. Dropping it aborts it.
pub struct Txn {
    id: u64,
    engine: Engine,
    snapshot: u64,
    options: TxnOptions,
    writes: Arc<RwLock<Writes>>,
    locked: Vec<(u64, Vec<u8>)>,
}

impl Txn {
    /// Names this transaction in lock tables and logs.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The commit timestamp whose state this transaction reads.
    pub fn snapshot_timestamp(&self) -> Timestamp {
        Timestamp(self.snapshot)
    }

    /// Moves the snapshot to now; locks and writes stay. For single statements that retry.
    pub fn refresh_snapshot(&mut self) {
        self.snapshot = self.engine.0.lock().newest;
    }

    /// Creates a dictionary as part of this transaction.
    pub fn create_dictionary(&mut self, options: DictionaryOptions) -> Result<DictionaryId> {
        let mut state = self.engine.0.lock();
        let id = state.next_dictionary;
        state.next_dictionary += 1;
        state.dictionaries.insert(id, (options, Versions::new()));
        Ok(DictionaryId(id))
    }

    /// Drops a dictionary as part of this transaction; older snapshots still see it.
    pub fn drop_dictionary(&mut self, dictionary: DictionaryId) -> Result<()> {
        let _ = dictionary;
        Ok(())
    }

    /// The value of `key`: this transaction's own write, else the snapshot's. Takes no lock.
    pub fn get(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        match self.writes.read().get(&(dictionary.0, key.to_vec())) {
            Some(own) => Ok(own.clone()),
            None => read(&self.engine, dictionary, key, self.snapshot),
        }
    }

    /// Locks `key` exclusively (may wait), then returns its newest value. Under
    /// [`OnConflict::Fail`] a commit newer than the snapshot is a `WriteConflict`.
    pub fn get_for_update(
        &mut self,
        dictionary: DictionaryId,
        key: &[u8],
    ) -> Result<Option<Value>> {
        self.lock(dictionary, key)?;
        match self.writes.read().get(&(dictionary.0, key.to_vec())) {
            Some(own) => Ok(own.clone()),
            None => read(&self.engine, dictionary, key, u64::MAX),
        }
    }

    /// Locks `key` exclusively without writing it. Conflicts as [`Txn::put`] does.
    pub fn lock(&mut self, dictionary: DictionaryId, key: &[u8]) -> Result<()> {
        let mut state = self.engine.0.lock();
        let place = (dictionary.0, key.to_vec());
        match state.locks.get(&place) {
            Some(owner) if *owner == self.id => return Ok(()),
            Some(_) => return Err(Error::LockTimeout { waited_ms: 0 }),
            None => {}
        }
        if self.options.on_conflict == OnConflict::Fail
            && let Some((_, versions)) = state.dictionaries.get(&dictionary.0)
            && let Some(history) = versions.get(key)
            && history.last().is_some_and(|(ts, _)| *ts > self.snapshot)
        {
            return Err(Error::WriteConflict);
        }
        state.locks.insert(place.clone(), self.id);
        self.locked.push(place);
        Ok(())
    }

    /// Writes `key` whatever it held. Locks it first.
    pub fn put(&mut self, dictionary: DictionaryId, key: &[u8], value: &[u8]) -> Result<()> {
        self.lock(dictionary, key)?;
        self.writes.write().insert((dictionary.0, key.to_vec()), Some(Value(value.into())));
        Ok(())
    }

    /// Writes `key` only if it holds nothing, in the newest committed state and in this
    /// transaction; says whether it wrote. Locks the key either way: the unique check.
    pub fn insert(&mut self, dictionary: DictionaryId, key: &[u8], value: &[u8]) -> Result<bool> {
        if self.get_for_update(dictionary, key)?.is_some() {
            return Ok(false);
        }
        self.put(dictionary, key, value)?;
        Ok(true)
    }

    /// Deletes `key`, present or not. Locks it first.
    pub fn delete(&mut self, dictionary: DictionaryId, key: &[u8]) -> Result<()> {
        self.lock(dictionary, key)?;
        self.writes.write().insert((dictionary.0, key.to_vec()), None);
        Ok(())
    }

    /// A cursor over the snapshot and this transaction's writes as of now.
    pub fn cursor(
        &self,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        let writes = self.writes.read();
        Cursor::over(&self.engine, dictionary, range, direction, self.snapshot, &writes)
    }

    /// Marks a place to roll back to (a statement's start).
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.writes.read().clone())
    }

    /// Undoes the writes since `savepoint`; locks stay.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        *self.writes.write() = savepoint.0;
    }

    /// Makes the writes visible and durable as asked. May wait for the disk.
    pub fn commit(self, durability: Durability) -> Result<Timestamp> {
        let _ = durability;
        let mut state = self.engine.0.lock();
        state.newest += 1;
        let ts = state.newest;
        for ((dictionary, key), value) in std::mem::take(&mut *self.writes.write()) {
            if let Some((_, versions)) = state.dictionaries.get_mut(&dictionary) {
                versions.entry(key).or_default().push((ts, value));
            }
        }
        Ok(Timestamp(ts))
    }

    /// Forgets the writes and opens the locks.
    pub fn abort(self) {}
}

impl Drop for Txn {
    fn drop(&mut self) {
        let mut state = self.engine.0.lock();
        for place in self.locked.drain(..) {
            state.locks.remove(&place);
        }
    }
}

fn read(
    engine: &Engine,
    dictionary: DictionaryId,
    key: &[u8],
    timestamp: u64,
) -> Result<Option<Value>> {
    let state = engine.0.lock();
    let (_, versions) =
        state.dictionaries.get(&dictionary.0).ok_or(Error::NoSuchDictionary(dictionary))?;
    Ok(versions.get(key).and_then(|history| visible(history, timestamp)))
}

fn visible(history: &[(u64, Option<Value>)], timestamp: u64) -> Option<Value> {
    history.iter().rev().find(|(ts, _)| *ts <= timestamp).and_then(|(_, value)| value.clone())
}

/// Walks a range of one dictionary in one snapshot. Owned: no lifetime, `Send`, may be parked.
pub struct Cursor {
    entries: Vec<(Vec<u8>, Value)>,
    next: usize,
    direction: Direction,
}

impl Cursor {
    fn over(
        engine: &Engine,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
        timestamp: u64,
        writes: &Writes,
    ) -> Result<Self> {
        let state = engine.0.lock();
        let (_, versions) =
            state.dictionaries.get(&dictionary.0).ok_or(Error::NoSuchDictionary(dictionary))?;
        let own = writes.iter().filter(|((d, _), _)| *d == dictionary.0);
        let keys: BTreeSet<&Vec<u8>> = versions.keys().chain(own.map(|((_, k), _)| k)).collect();
        let mut entries: Vec<(Vec<u8>, Value)> = Vec::new();
        for key in keys {
            let inside =
                std::ops::RangeBounds::contains(&(range.lower.as_ref(), range.upper.as_ref()), key);
            let value = match writes.get(&(dictionary.0, key.clone())) {
                Some(own) => own.clone(),
                None => versions.get(key).and_then(|history| visible(history, timestamp)),
            };
            if let (true, Some(value)) = (inside, value) {
                entries.push((key.clone(), value));
            }
        }
        if direction == Direction::Backward {
            entries.reverse();
        }
        Ok(Self { entries, next: 0, direction })
    }

    /// The next entry; the slices live until the next call. May read the disk.
    #[expect(clippy::should_implement_trait, reason = "lends from itself, so not an Iterator")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.next += 1;
        Ok(self.entries.get(self.next - 1).map(|(key, value)| (&key[..], &value[..])))
    }

    /// Skips ahead, in the cursor's direction, to the first entry at or past `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        while let Some((at, _)) = self.entries.get(self.next) {
            let before = match self.direction {
                Direction::Forward => &at[..] < key,
                Direction::Backward => &at[..] > key,
            };
            if !before {
                break;
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Gives back pinned memory until the next call; the place is kept.
    pub fn park(&mut self) {}
}
