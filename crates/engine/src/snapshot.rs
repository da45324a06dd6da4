//! A consistent read-only view: one timestamp, and over it, for a transaction's own reads, its
//! writes as they were when the view was taken.

use crate::buried::{Buried, OwnTombstone};
use crate::cursor::Cursor;
use crate::dictionary::Found;
use crate::handle::EngineHandle;
use crate::holder::SharedLocks;
use crate::snapshots::Pinned;
use crate::writeset::SharedWrites;
use crate::{DictionaryId, Direction, Error, KeyRange, Result, Timestamp, Value};
use ftree::Tree;
use locktree::Mode;
use std::sync::Arc;

/// A consistent read-only view. Cheap to clone; keeps its versions alive while it or one of its
/// cursors lives.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) pinned: Pinned,
    own: Option<Arc<Own>>,
    /// Of a serializable transaction: its reads lock, and see the newest state.
    readers: Option<Arc<SharedLocks>>,
}

/// What a transaction had done when a view of it was taken.
pub(crate) struct Own {
    pub(crate) writes: SharedWrites,
    pub(crate) created: Vec<u64>,
    pub(crate) dropped: Vec<u64>,
    /// Of the created ones, those that it has adopted.
    pub(crate) loaded: Vec<(u64, Arc<Tree>)>,
    pub(crate) tombstones: Vec<OwnTombstone>,
}

impl Snapshot {
    pub(crate) fn new(handle: &Arc<EngineHandle>) -> Self {
        Self { pinned: Pinned::new(handle), own: None, readers: None }
    }

    pub(crate) fn of(pinned: &Pinned, own: Option<Own>, readers: Option<Arc<SharedLocks>>) -> Self {
        Self { pinned: pinned.clone(), own: own.map(Arc::new), readers }
    }

    /// Whether its reads lock, and so see the newest state.
    pub fn locks(&self) -> bool {
        self.readers.is_some()
    }

    /// Whether the dictionary is there in this state, as it was committed.
    pub fn has_dictionary(&self, dictionary: DictionaryId) -> bool {
        self.find(dictionary).is_ok()
    }

    /// The commit timestamp this view shows.
    pub fn timestamp(&self) -> Timestamp {
        Timestamp(self.pinned.timestamp)
    }

    /// The value of `key`, if it has one. May read the disk.
    pub fn get(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        self.pinned.handle().health.check_open()?;
        if let Some(own) = &self.own {
            own.check_not_dropped(dictionary)?;
            if let Some(write) = own.writes.get(dictionary.0, key)? {
                let updates = &*self.pinned.handle().trees.updates;
                return write.over(updates, (dictionary, key), || self.committed(dictionary, key));
            }
            if own.created.contains(&dictionary.0) {
                return own_value(own.tree(dictionary), key);
            }
        }
        self.committed(dictionary, key)
    }

    /// What was committed under `key`, unless the transaction whose view it is has deleted it by a range.
    fn committed(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        let buried = self.buried(dictionary);
        let shown = |value: Option<Value>| match buried {
            None => value,
            Some(buried) => value.filter(|value| !buried.has(key, value)),
        };
        if let Some(readers) = &self.readers {
            let handle = self.pinned.handle();
            readers.lock_key(handle, dictionary, key, Mode::Shared)?;
            let dictionary = handle.directory.newest(dictionary)?;
            return Ok(shown(dictionary.tree.get(key, u64::MAX - 1)?.map(Value::from)));
        }
        let dictionary = self.find(dictionary)?;
        let value = dictionary.tree.get(key, self.pinned.timestamp)?;
        Ok(shown(value.map(Value::from)))
    }

    /// Brings into memory what [`Snapshot::get`] of these keys is going to read, several pages at
    /// once; says how many of them had to be waited for. Only a hint, and worth it where
    /// [`crate::thread_page_reads`] shows that reads touch the disk. May read the disk.
    pub fn prefetch<K: AsRef<[u8]>>(&self, dictionary: DictionaryId, keys: &[K]) -> Result<usize> {
        self.pinned.handle().health.check_open()?;
        // What its own transaction has created nobody else can find.
        if self.own.as_ref().is_some_and(|own| own.created.contains(&dictionary.0)) {
            return Ok(0);
        }
        let dictionary = self.find(dictionary)?;
        Ok(dictionary.tree.prefetch(keys, self.pinned.timestamp))
    }

    /// What the transaction whose view it is has deleted by ranges.
    fn buried(&self, dictionary: DictionaryId) -> Option<Buried> {
        let own = self.own.as_ref().filter(|own| !own.tombstones.is_empty())?;
        let record_part = self.pinned.handle().options.record_part;
        Buried::of(&own.tombstones, dictionary, record_part)
    }

    fn find(&self, dictionary: DictionaryId) -> Result<Found> {
        self.pinned.handle().directory.at(dictionary, self.pinned.timestamp)
    }

    /// A cursor over `range`. It owns what it needs and may be parked between calls.
    pub fn cursor(
        &self,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        self.pinned.handle().health.check_open()?;
        let mut writes = None;
        let buried = self.buried(dictionary);
        if let Some(own) = &self.own {
            own.check_not_dropped(dictionary)?;
            writes = own.writes.of(dictionary.0, &range, direction);
            if own.created.contains(&dictionary.0) {
                return Ok(match own.tree(dictionary) {
                    Some(tree) => Cursor::over_loaded(tree, range, direction, &self.pinned, writes),
                    None => Cursor::over_writes(writes, range, direction, &self.pinned),
                });
            }
        }
        if let Some(readers) = &self.readers {
            let handle = self.pinned.handle();
            readers.lock_range(handle, dictionary, &range, Mode::Shared)?;
            let pinned = Pinned::newest(handle);
            let dictionary = handle.directory.newest(dictionary)?;
            return Ok(Cursor::over_tree(&dictionary, range, direction, &pinned, (writes, buried)));
        }
        let dictionary = self.find(dictionary)?;
        Ok(Cursor::over_tree(&dictionary, range, direction, &self.pinned, (writes, buried)))
    }
}

/// The value in a dictionary that nobody else knows of: its newest.
pub(crate) fn own_value(tree: Option<&Arc<Tree>>, key: &[u8]) -> Result<Option<Value>> {
    let Some(tree) = tree else { return Ok(None) };
    Ok(tree.get(key, u64::MAX - 1)?.map(Value::from))
}

impl Own {
    fn tree(&self, dictionary: DictionaryId) -> Option<&Arc<Tree>> {
        self.loaded.iter().find(|(id, _)| *id == dictionary.0).map(|(_, tree)| tree)
    }

    fn check_not_dropped(&self, dictionary: DictionaryId) -> Result<()> {
        if self.dropped.contains(&dictionary.0) {
            return Err(Error::NoSuchDictionary(dictionary));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.pinned.timestamp)
    }
}
