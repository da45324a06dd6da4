//! What a transaction writes: each key is locked, or covered by the lock of another, before it goes
//! into the private write set; a set that takes too much memory spills.

use super::{EngineTxn, MAX_KEY_BYTES, MAX_VALUE_BYTES};
use crate::environment::Environment;
use crate::error::Oversized;
use crate::snapshot::own_value;
use crate::tuning::Tuning;
use crate::writeset::{Written, payload_len};
use crate::{DictionaryId, Error, OnConflict, Result};
use cachetable::MemoryKind;
use ftree::Message;
use std::sync::atomic::Ordering;

/// Where transactions together take much memory, those that take more than this spill.
const CROWDED_BYTES: u64 = 512 << 10;

impl EngineTxn {
    /// Locks `key` exclusively without writing it. Conflicts as [`EngineTxn::put`] does.
    pub fn lock(&mut self, dictionary: DictionaryId, key: &[u8]) -> Result<()> {
        self.check_alive()?;
        check_size(Oversized::Key, key.len(), MAX_KEY_BYTES)?;
        self.check_not_dropped(dictionary)?;
        if self.is_created(dictionary) {
            // Nobody else can see it.
            return Ok(());
        }
        let (snapshot, on_conflict) = (self.pinned.timestamp, self.options.on_conflict);
        if on_conflict == OnConflict::Latest && self.holder.has_just_locked(dictionary, key) {
            // As when it was locked: under the key's lock nobody drops the dictionary.
            return Ok(());
        }
        let place = self.look_up_newest(dictionary)?;
        self.not_dropped(place)?;
        let locks = &self.pinned.handle().locks;
        // Names are few, and locked for a moment.
        let may_queue = dictionary != DictionaryId::ROOT
            && self.holder.holds_nothing()
            && !self.has_writes()
            && self.may_be_run_again();
        let granted = if may_queue {
            let queued = self.holder.lock_or_queue(locks, dictionary, key, self.lock_timeout)?;
            self.is_queued = queued.is_none();
            queued.ok_or(Error::Queued)?
        } else {
            self.holder.lock(locks, dictionary, key, self.lock_timeout)?
        };
        let unwatched = !self.pinned.watches_commits();
        // Somebody may have dropped it while this one waited.
        let found = self.not_dropped(place)?;
        if on_conflict == OnConflict::Latest {
            return Ok(());
        }
        let conflict = granted.last_commit > snapshot
            || found.created > snapshot
            || ((granted.complete_since > snapshot || unwatched)
                && found.tree.newest_ts(key)?.is_some_and(|newest| newest > snapshot));
        if conflict { Err(Error::WriteConflict) } else { Ok(()) }
    }

    /// Writes `key` whatever it held. Locks it first.
    pub fn put(&mut self, dictionary: DictionaryId, key: &[u8], value: &[u8]) -> Result<()> {
        self.lock(dictionary, key)?;
        self.write(dictionary, key, Message::Put(value))
    }

    /// Writes `key` only if it holds nothing, in the newest committed state and in this
    /// transaction; says whether it wrote. Locks the key either way: the unique check. Reads the
    /// disk only where filters cannot answer.
    pub fn insert(&mut self, dictionary: DictionaryId, key: &[u8], value: &[u8]) -> Result<bool> {
        self.lock(dictionary, key)?;
        let present = match self.writes.get(dictionary.0, key)? {
            Some(Written::Value(_)) => true,
            Some(Written::Deleted) => false,
            Some(Written::Update(_)) => self.get_for_update(dictionary, key)?.is_some(),
            None if self.is_created(dictionary) => {
                own_value(self.own_tree(dictionary), key)?.is_some()
            }
            None => {
                let found = self.find_newest(dictionary)?;
                let is_there = found.tree.newest(key)?.is_some_and(|(_, is_delete)| !is_delete);
                is_there && (self.tombstones.is_empty() || self.has_newest(dictionary, key)?)
            }
        };
        if !present {
            self.write(dictionary, key, Message::Put(value))?;
        }
        Ok(!present)
    }

    /// Whether there is a value that this transaction has not deleted by a range. Under the key's lock.
    #[cold]
    fn has_newest(&mut self, dictionary: DictionaryId, key: &[u8]) -> Result<bool> {
        let value = self.find_newest(dictionary)?.tree.get(key, u64::MAX - 1)?;
        Ok(self.unless_buried(dictionary, key, value.map(crate::Value::from)).is_some())
    }

    /// Deletes `key`, present or not. Locks it first.
    pub fn delete(&mut self, dictionary: DictionaryId, key: &[u8]) -> Result<()> {
        self.lock(dictionary, key)?;
        self.write(dictionary, key, Message::Delete)
    }

    /// Writes (or with `None` deletes) `key` without a lock and without a conflict check. Only
    /// for keys that are **covered**: every writer of this key holds the lock of one other key,
    /// in this or another dictionary. A secondary index entry that contains the record's id is
    /// covered by the record's own key.
    pub fn write_covered(
        &mut self,
        dictionary: DictionaryId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        self.check_alive()?;
        check_size(Oversized::Key, key.len(), MAX_KEY_BYTES)?;
        self.check_not_dropped(dictionary)?;
        if !self.is_created(dictionary) {
            self.find_newest(dictionary)?;
            // `ROOT` is read by key alone.
            if dictionary != DictionaryId::ROOT {
                self.lock_for_ranges(dictionary, key)?;
            }
        }
        self.write(dictionary, key, value.map_or(Message::Delete, Message::Put))
    }

    /// See [`serializable`].
    pub(super) fn lock_for_ranges(&mut self, dictionary: DictionaryId, key: &[u8]) -> Result<()> {
        if !self.locks_for_ranges() {
            return Ok(());
        }
        let environment = self.pinned.handle();
        self.holder.lock(&environment.locks, dictionary, key, self.lock_timeout)?;
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        dictionary: DictionaryId,
        key: &[u8],
        message: Message<'_>,
    ) -> Result<()> {
        let len = payload_len(message);
        check_size(Oversized::Value, len, MAX_VALUE_BYTES)?;
        if self.writes.spilled().is_none() && self.is_large(len as u64) {
            let spill = self.environment().commits.start_spill(self.live.id);
            let spilled = self.writes.spill_to(spill);
            self.environment().check(spilled)?;
        }
        let unpaced = self.writes.bytes().saturating_sub(self.paced);
        if unpaced >= Tuning::STANDARD.piece_bytes && self.writes.spilled().is_none() {
            self.environment().schedule.make_room(unpaced)?;
            self.paced += unpaced;
        }
        let written = self.writes.write(dictionary.0, key, message);
        self.environment().check(written)?;
        self.live.written_bytes.store(self.writes.bytes(), Ordering::Relaxed);
        self.charge();
        Ok(())
    }

    /// The writes, with `more` bytes that come, take more memory than one transaction should, or than
    /// this one should while all transactions together take so much. Asked before they come: a value of
    /// megabytes is not first in memory and then copied.
    pub(super) fn is_large(&self, more: u64) -> bool {
        let Environment { cache, options, .. } = &***self.pinned.handle();
        let memory = self.writes.memory() + more;
        memory > options.sizes.spill_bytes
            || (memory > CROWDED_BYTES && cache.held(MemoryKind::WriteSets) > cache.capacity() / 8)
    }

    /// Keeps the account of memory up to date with the writes and, now and then, the locks.
    pub(super) fn charge(&mut self) {
        let Environment { cache, locks, .. } = &***self.pinned.handle();
        // A spilled set is counted as the memtable it is.
        let bytes = if self.writes.spilled().is_some() { 0 } else { self.writes.bytes() };
        let bytes = bytes + self.notes.as_ref().map_or(0, |notes| notes.bytes());
        if self.charge.follow(cache, bytes) {
            cache.report_held(MemoryKind::Locks, locks.bytes());
        }
    }
}

pub(super) fn check_size(what: Oversized, size: usize, limit: usize) -> Result<()> {
    if size > limit {
        return Err(Error::TooLarge { what, size: size as u64, limit: limit as u64 });
    }
    Ok(())
}
