//! What a transaction reads: its own writes over its snapshot, or, where it is serializable, over the
//! newest state under locks.

use super::{EngineTxn, MAX_KEY_BYTES};
use crate::cursor::Cursor;
use crate::snapshot::{Own, own_value};
use crate::snapshots::Pinned;
use crate::writeset::Written;
use crate::{DictionaryId, Direction, KeyRange, OnConflict, Result, Snapshot, Value};
use locktree::Mode;
use std::sync::Arc;

impl EngineTxn {
    /// The value of `key`: this transaction's own write, else the snapshot's. Takes no lock, unless
    /// the transaction is serializable: then the key is locked, and what is read is the newest.
    pub fn get(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        self.get_in(Mode::Shared, dictionary, key)
    }

    /// Whether this transaction itself has put a value under `key`, which stands there.
    pub fn has_written(&self, dictionary: DictionaryId, key: &[u8]) -> Result<bool> {
        Ok(matches!(self.writes.get(dictionary.0, key)?, Some(Written::Value(_))))
    }

    /// As [`EngineTxn::get`], of what is about to be changed: a serializable transaction locks it
    /// exclusively, so that of two that change the same neither is in the other's way.
    pub fn get_to_change(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        self.get_in(Mode::Exclusive, dictionary, key)
    }

    pub(super) fn get_in(
        &self,
        mode: Mode,
        dictionary: DictionaryId,
        key: &[u8],
    ) -> Result<Option<Value>> {
        self.check_alive()?;
        self.check_not_dropped(dictionary)?;
        if let Some(own) = self.writes.get(dictionary.0, key)? {
            let updates = &*self.pinned.handle().trees.updates;
            let below = || self.committed_in(mode, dictionary, key);
            return own.over(updates, (dictionary, key), below);
        }
        if self.is_created(dictionary) {
            return own_value(self.own_tree(dictionary), key);
        }
        self.committed_in(mode, dictionary, key)
    }

    /// What was committed under `key`, as it reads it.
    fn committed_in(
        &self,
        mode: Mode,
        dictionary: DictionaryId,
        key: &[u8],
    ) -> Result<Option<Value>> {
        if let Some(readers) = self.holder.readers() {
            let handle = self.pinned.handle();
            readers.lock_key(handle, dictionary, key, mode)?;
            let found = handle.directory.newest(dictionary)?;
            let value = found.tree.get(key, u64::MAX - 1)?.map(Value::from);
            return Ok(self.unless_buried(dictionary, key, value));
        }
        let found = self.find_visible(dictionary)?;
        let value = found.tree.get(key, self.pinned.timestamp)?.map(Value::from);
        Ok(self.unless_buried(dictionary, key, value))
    }

    /// Locks `key` exclusively (may wait), then returns its newest value. Under
    /// [`OnConflict::Fail`] a commit newer than the snapshot is a `WriteConflict`.
    pub fn get_for_update(
        &mut self,
        dictionary: DictionaryId,
        key: &[u8],
    ) -> Result<Option<Value>> {
        self.lock(dictionary, key)?;
        if let Some(own) = self.writes.get(dictionary.0, key)? {
            let handle = Arc::clone(self.pinned.handle());
            let below = || self.newest_committed(dictionary, key);
            return own.over(&*handle.trees.updates, (dictionary, key), below);
        }
        if self.is_created(dictionary) {
            return own_value(self.own_tree(dictionary), key);
        }
        self.newest_committed(dictionary, key)
    }

    /// As [`EngineTxn::get_for_update`] under [`OnConflict::Latest`], where nobody has to be waited for and the
    /// transaction has written nothing to the dictionary. `None`, and nothing was done, where that is not so.
    ///
    /// [`OnConflict::Latest`]: crate::OnConflict::Latest
    pub fn get_for_update_at_once(
        &mut self,
        dictionary: DictionaryId,
        key: &[u8],
    ) -> Result<Option<Option<Value>>> {
        self.check_alive()?;
        let is_apart = self.options.on_conflict == OnConflict::Fail
            || self.is_created(dictionary)
            || self.dropped.contains(&dictionary.0)
            || self.writes.has_any(dictionary.0)?;
        if is_apart || key.len() > MAX_KEY_BYTES {
            return Ok(None);
        }
        let locks = &self.pinned.handle().locks;
        if !self.holder.lock_at_once(locks, dictionary, key, self.lock_timeout)? {
            return Ok(None);
        }
        self.newest_committed(dictionary, key).map(Some)
    }

    /// Under the key's lock the newest version is committed and stays the newest.
    pub(super) fn newest_committed(
        &mut self,
        dictionary: DictionaryId,
        key: &[u8],
    ) -> Result<Option<Value>> {
        let found = self.find_newest(dictionary)?;
        let value = found.tree.get(key, u64::MAX - 1)?.map(Value::from);
        Ok(self.unless_buried(dictionary, key, value))
    }

    /// A cursor over the snapshot and this transaction's writes as of now. A serializable
    /// transaction locks the range, and the cursor walks the newest state.
    pub fn cursor(
        &self,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        self.cursor_in(Mode::Shared, dictionary, range, direction)
    }

    /// As [`EngineTxn::cursor`], over what is about to be changed: see [`EngineTxn::get_to_change`].
    pub fn cursor_to_change(
        &self,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        self.cursor_in(Mode::Exclusive, dictionary, range, direction)
    }

    pub(super) fn cursor_in(
        &self,
        mode: Mode,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        self.check_alive()?;
        self.check_not_dropped(dictionary)?;
        let own = (self.writes.of(dictionary.0, &range, direction), self.buried(dictionary));
        if self.is_created(dictionary) {
            return Ok(match self.own_tree(dictionary) {
                Some(tree) => Cursor::over_loaded(tree, range, direction, &self.pinned, own.0),
                None => Cursor::over_writes(own.0, range, direction, &self.pinned),
            });
        }
        if let Some(readers) = self.holder.readers() {
            let handle = self.pinned.handle();
            readers.lock_range(handle, dictionary, &range, mode)?;
            let pinned = Pinned::newest(handle);
            let found = handle.directory.newest(dictionary)?;
            return Ok(Cursor::over_tree(&found, range, direction, &pinned, own));
        }
        let found = self.find_visible(dictionary)?;
        Ok(Cursor::over_tree(&found, range, direction, &self.pinned, own))
    }

    /// The state it reads, without its own writes.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.pinned, None, None)
    }

    /// What it reads, its own writes as of now included; may outlive it, unless it is serializable:
    /// then the view locks as the transaction does, and ends with it. The next write to a
    /// dictionary that it has written to copies the list of its writes while a view lives.
    pub fn view(&self) -> Snapshot {
        let own = Own {
            writes: self.writes.shared(),
            created: self.created.iter().map(|(id, _)| *id).collect(),
            dropped: self.dropped.clone(),
            loaded: self.own_trees(),
            tombstones: self.tombstones.clone(),
        };
        Snapshot::of(&self.pinned, Some(own), self.holder.readers().cloned())
    }
}
