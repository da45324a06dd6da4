//! A read-write transaction: a snapshot, a private write set, locks.
//!
//! Nothing of it is in a dictionary's tree or in the log before it commits (chunks of a large one
//! are in the log, and count for nothing until its commit record; what exceeds memory is in a
//! private tree). So abort forgets, and undoes nothing.

mod charge;
mod serializable;

use crate::cursor::Cursor;
use crate::dictionary::Found;
use crate::environment::Environment;
use crate::error::Oversized;
use crate::handle::{EngineHandle, LockTableRef};
use crate::holder::Holder;
use crate::live::LiveTxn;
use crate::snapshot::Own;
use crate::snapshots::{Pinned, Watch};
use crate::tuning::Tuning;
use crate::writeset::WriteSet;
use crate::{
    Committed, DictionaryId, DictionaryOptions, Direction, Durability, Error, KeyRange, OnConflict,
    Result, Snapshot, Timestamp, TxnOptions, Value,
};
use cachetable::Part;
use charge::Charge;
use locktree::{Mode, Owner};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest key the engine takes.
pub const MAX_KEY_BYTES: usize = 1 << 20;
/// The longest value the engine takes: the longest document, and room for what wraps it.
pub const MAX_VALUE_BYTES: usize = 17 << 20;

/// Where transactions together take much memory, those that take more than this spill.
const CROWDED_BYTES: u64 = 512 << 10;

/// A place in a transaction to which its writes can be rolled back.
#[derive(Debug)]
pub struct Savepoint {
    writes: usize,
    created: usize,
    dropped: usize,
    reshaped: usize,
}

/// A read-write transaction. Dropping it aborts it.
pub struct Txn {
    pub(crate) live: Arc<LiveTxn>,
    pinned: Pinned,
    options: TxnOptions,
    lock_timeout: Duration,
    pub(crate) holder: Holder,
    /// The dictionaries it has locked or written in, as looked up the first time.
    used: SmallVec<[Found; 2]>,
    pub(crate) writes: WriteSet,
    charge: Charge,
    pub(crate) created: Vec<(u64, DictionaryOptions)>,
    pub(crate) dropped: Vec<u64>,
    /// New options of dictionaries that were there before.
    pub(crate) reshaped: Vec<(u64, DictionaryOptions)>,
    /// Bytes of the write set that have waited for their room.
    pub(crate) paced: u64,
}

impl OnConflict {
    fn watch(self) -> Watch {
        match self {
            Self::Fail => Watch::Commits,
            Self::Latest => Watch::Nothing,
        }
    }
}

impl Txn {
    pub(crate) fn begin(handle: &Arc<EngineHandle>, options: TxnOptions) -> Self {
        let watch = options.on_conflict.watch();
        Self::begin_at(options, Pinned::watching(watch, handle))
    }

    pub(crate) fn begin_at(options: TxnOptions, pinned: Pinned) -> Self {
        let handle = Arc::clone(pinned.handle());
        let live = handle.live.begin(handle.stripe(), pinned.timestamp);
        let owner = Owner::new(LockTableRef(Arc::clone(&handle)), live.interrupt.clone());
        Self {
            lock_timeout: options.lock_timeout.unwrap_or(handle.options.lock_timeout),
            live,
            pinned,
            options,
            holder: Holder::Alone(Some(owner)),
            used: SmallVec::new(),
            writes: WriteSet::default(),
            charge: Charge::default(),
            created: Vec::new(),
            dropped: Vec::new(),
            reshaped: Vec::new(),
            paced: 0,
        }
    }

    /// Names this transaction in lock tables and logs.
    pub fn id(&self) -> u64 {
        self.live.id
    }

    /// The commit timestamp whose state this transaction reads.
    pub fn snapshot_timestamp(&self) -> Timestamp {
        Timestamp(self.pinned.timestamp)
    }

    /// Moves the snapshot to now; locks and writes stay. For single statements that retry.
    pub fn refresh_snapshot(&mut self) {
        let handle = Arc::clone(self.pinned.handle());
        self.pinned = Pinned::watching(self.options.on_conflict.watch(), &handle);
        self.live.snapshot.store(self.pinned.timestamp, Ordering::Relaxed);
    }

    /// Whether nothing was committed to a dictionary since its snapshot. Another commit may be
    /// on its way, unless the caller keeps it out.
    pub fn is_newest(&mut self, dictionary: DictionaryId) -> Result<bool> {
        self.check_alive()?;
        Ok(self.find_newest(dictionary)?.newest_write() <= self.pinned.timestamp)
    }

    /// Has every later use of it fail: nothing it did is kept.
    pub fn kill(&self) {
        self.environment().locks.interrupt(&self.live.interrupt);
    }

    /// How long its lock requests wait from now on.
    pub fn set_lock_timeout(&mut self, timeout: Duration) {
        self.lock_timeout = timeout;
        if let Some(readers) = self.holder.readers() {
            readers.set_lock_timeout(timeout);
        }
    }

    /// Creates a dictionary as part of this transaction.
    pub fn create_dictionary(&mut self, options: DictionaryOptions) -> Result<DictionaryId> {
        self.check_alive()?;
        let options = crate::options::validate(options)?;
        let id = self.environment().directory.new_id();
        self.created.push((id, options));
        Ok(DictionaryId(id))
    }

    /// Drops a dictionary as part of this transaction; older snapshots still see it. Waits for
    /// transactions that have written to it.
    pub fn drop_dictionary(&mut self, dictionary: DictionaryId) -> Result<()> {
        self.check_alive()?;
        if dictionary == DictionaryId::ROOT {
            return Err(Error::NoSuchDictionary(dictionary));
        }
        self.check_not_dropped(dictionary)?;
        if self.is_created(dictionary) {
            self.dropped.push(dictionary.0);
            return Ok(());
        }
        self.find_newest(dictionary)?;
        self.holder.lock_all(&self.pinned.handle().locks, dictionary, self.lock_timeout)?;
        // Somebody else may have dropped it while this one waited.
        self.find_newest(dictionary)?;
        self.dropped.push(dictionary.0);
        Ok(())
    }

    /// Changes the shape of a dictionary as part of this transaction: what is written from the
    /// commit on has it; what is stored keeps its own until work comes by, or
    /// [`crate::Engine::rewrite`]. Waits for another transaction that does the same.
    pub fn reshape_dictionary(
        &mut self,
        dictionary: DictionaryId,
        options: DictionaryOptions,
    ) -> Result<()> {
        let options = crate::options::validate(options)?;
        // One at a time, so that the options of the newest commit are those that stay. Which key
        // stands for all of the dictionary does not matter; it is the empty one.
        self.lock(dictionary, &[])?;
        match self.created.iter_mut().find(|(id, _)| *id == dictionary.0) {
            Some((_, shape)) => *shape = options,
            None => self.reshaped.push((dictionary.0, options)),
        }
        Ok(())
    }

    /// The value of `key`: this transaction's own write, else the snapshot's. Takes no lock, unless
    /// the transaction is serializable: then the key is locked, and what is read is the newest.
    pub fn get(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        self.get_in(Mode::Shared, dictionary, key)
    }

    /// As [`Txn::get`], of what is about to be changed: a serializable transaction locks it
    /// exclusively, so that of two that change the same neither is in the other's way.
    pub fn get_to_change(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        self.get_in(Mode::Exclusive, dictionary, key)
    }

    fn get_in(&self, mode: Mode, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        self.check_alive()?;
        self.check_not_dropped(dictionary)?;
        if let Some(own) = self.writes.get(dictionary.0, key)? {
            return Ok(own);
        }
        if self.is_created(dictionary) {
            return Ok(None);
        }
        if let Some(readers) = self.holder.readers() {
            let handle = self.pinned.handle();
            readers.lock_key(handle, dictionary, key, mode)?;
            let found = handle.directory.newest(dictionary)?;
            return Ok(found.tree.get(key, u64::MAX - 1)?.map(Value::from));
        }
        let found = self.find_visible(dictionary)?;
        Ok(found.tree.get(key, self.pinned.timestamp)?.map(Value::from))
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
            return Ok(own);
        }
        if self.is_created(dictionary) {
            return Ok(None);
        }
        // Under the lock the newest version is committed and stays the newest.
        let found = self.find_newest(dictionary)?;
        Ok(found.tree.get(key, u64::MAX - 1)?.map(Value::from))
    }

    /// Locks `key` exclusively without writing it. Conflicts as [`Txn::put`] does.
    pub fn lock(&mut self, dictionary: DictionaryId, key: &[u8]) -> Result<()> {
        self.check_alive()?;
        check_size(Oversized::Key, key.len(), MAX_KEY_BYTES)?;
        self.check_not_dropped(dictionary)?;
        if self.is_created(dictionary) {
            // Nobody else can see it.
            return Ok(());
        }
        self.find_newest(dictionary)?;
        let locks = &self.pinned.handle().locks;
        let granted = self.holder.lock(locks, dictionary, key, self.lock_timeout)?;
        let (snapshot, on_conflict) = (self.pinned.timestamp, self.options.on_conflict);
        let unwatched = !self.pinned.watches_commits();
        // Somebody may have dropped it while this one waited.
        let found = self.find_newest(dictionary)?;
        if on_conflict == OnConflict::Latest {
            return Ok(());
        }
        let conflict = granted.last_commit > snapshot
            || found.created > snapshot
            || ((granted.complete_since > snapshot || unwatched)
                && found.tree.newest(key)?.is_some_and(|(newest, _)| newest > snapshot));
        if conflict { Err(Error::WriteConflict) } else { Ok(()) }
    }

    /// Writes `key` whatever it held. Locks it first.
    pub fn put(&mut self, dictionary: DictionaryId, key: &[u8], value: &[u8]) -> Result<()> {
        self.lock(dictionary, key)?;
        self.write(dictionary, key, Some(value))
    }

    /// Writes `key` only if it holds nothing, in the newest committed state and in this
    /// transaction; says whether it wrote. Locks the key either way: the unique check. Reads the
    /// disk only where filters cannot answer.
    pub fn insert(&mut self, dictionary: DictionaryId, key: &[u8], value: &[u8]) -> Result<bool> {
        self.lock(dictionary, key)?;
        let present = match self.writes.get(dictionary.0, key)? {
            Some(own) => own.is_some(),
            None if self.is_created(dictionary) => false,
            None => {
                let newest = self.find_newest(dictionary)?.tree.newest(key)?;
                newest.is_some_and(|(_, is_delete)| !is_delete)
            }
        };
        if !present {
            self.write(dictionary, key, Some(value))?;
        }
        Ok(!present)
    }

    /// Deletes `key`, present or not. Locks it first.
    pub fn delete(&mut self, dictionary: DictionaryId, key: &[u8]) -> Result<()> {
        self.lock(dictionary, key)?;
        self.write(dictionary, key, None)
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
        self.write(dictionary, key, value)
    }

    /// See [`serializable`].
    fn lock_for_ranges(&mut self, dictionary: DictionaryId, key: &[u8]) -> Result<()> {
        let environment = self.pinned.handle();
        if !environment.serializable.any() {
            if self.live.writes_unlocked.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.live.writes_unlocked.store(true, Ordering::SeqCst);
            if !environment.serializable.any() {
                return Ok(());
            }
        }
        self.holder.lock(&environment.locks, dictionary, key, self.lock_timeout)?;
        Ok(())
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

    /// As [`Txn::cursor`], over what is about to be changed: see [`Txn::get_to_change`].
    pub fn cursor_to_change(
        &self,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        self.cursor_in(Mode::Exclusive, dictionary, range, direction)
    }

    fn cursor_in(
        &self,
        mode: Mode,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        self.check_alive()?;
        self.check_not_dropped(dictionary)?;
        let own = self.writes.of(dictionary.0, &range, direction);
        if self.is_created(dictionary) {
            return Ok(Cursor::over_writes(own, range, direction, &self.pinned));
        }
        if let Some(readers) = self.holder.readers() {
            let handle = self.pinned.handle();
            readers.lock_range(handle, dictionary, &range, mode)?;
            let pinned = Pinned::new(handle);
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
        };
        Snapshot::of(&self.pinned, Some(own), self.holder.readers().cloned())
    }

    /// Marks a place to roll back to (a statement's start). Costs nothing by itself; writes
    /// behind it are noted.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            writes: self.writes.savepoint(),
            created: self.created.len(),
            dropped: self.dropped.len(),
            reshaped: self.reshaped.len(),
        }
    }

    /// Undoes the writes since `savepoint`; locks stay. Where writes that were too many for memory
    /// cannot be undone for an error of the disk, the transaction is killed: it will not commit.
    #[expect(clippy::needless_pass_by_value, reason = "a place is rolled back to once")]
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        if let Err(error) = self.writes.rollback_to(savepoint.writes) {
            // Only where a spilled set cannot be read: what is left of it must not commit.
            tracing::error!(%error, txn = self.live.id, "a rollback failed: the transaction ends");
            self.environment().locks.interrupt(&self.live.interrupt);
        }
        self.created.truncate(savepoint.created);
        self.dropped.truncate(savepoint.dropped);
        self.reshaped.truncate(savepoint.reshaped);
        self.charge();
    }

    /// Makes the writes visible and durable as asked. May wait for the disk.
    ///
    /// # Errors
    /// Nothing of it is visible. Under [`Error::Stopped`] it may be in the log: only the next start
    /// knows.
    pub fn commit(self, durability: Durability) -> Result<Committed> {
        self.commit_with(durability, |_| {})
    }

    /// As [`Txn::commit`], and calls `published` once the writes are visible, before waiting for
    /// the disk: what mirrors them in memory is kept up to date there.
    pub fn commit_with(
        mut self,
        durability: Durability,
        published: impl FnOnce(Timestamp),
    ) -> Result<Committed> {
        let handle = Arc::clone(self.pinned.handle());
        handle.commits.commit(&mut self, durability, published)
    }

    /// Forgets the writes and opens the locks.
    pub fn abort(self) {}

    /// Lets the snapshot go before the locks do.
    pub(crate) fn unpin(&mut self) {
        self.pinned.release();
    }

    /// Whether a commit has anything to do.
    pub(crate) fn has_writes(&self) -> bool {
        !(self.writes.is_empty()
            && self.created.is_empty()
            && self.dropped.is_empty()
            && self.reshaped.is_empty())
    }

    fn write(&mut self, dictionary: DictionaryId, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let len = value.map_or(0, <[u8]>::len);
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
        let written = self.writes.write(dictionary.0, key, value);
        self.environment().check(written)?;
        self.live.written_bytes.store(self.writes.bytes(), Ordering::Relaxed);
        self.charge();
        Ok(())
    }

    /// The writes, with `more` bytes that come, take more memory than one transaction should, or than
    /// this one should while all transactions together take so much. Asked before they come: a value of
    /// megabytes is not first in memory and then copied.
    fn is_large(&self, more: u64) -> bool {
        let Environment { cache, options, .. } = &***self.pinned.handle();
        let memory = self.writes.memory() + more;
        memory > options.sizes.spill_bytes
            || (memory > CROWDED_BYTES && cache.held(Part::WriteSets) > cache.capacity() / 8)
    }

    /// Keeps the account of memory up to date with the writes and, now and then, the locks.
    fn charge(&mut self) {
        let Environment { cache, locks, .. } = &***self.pinned.handle();
        // A spilled set is counted as the memtable it is.
        let bytes = if self.writes.spilled().is_some() { 0 } else { self.writes.bytes() };
        if self.charge.follow(cache, bytes) {
            cache.sample(Part::Locks, locks.bytes());
        }
    }

    fn check_alive(&self) -> Result<()> {
        if self.live.interrupt.is_set() {
            return Err(Error::Interrupted);
        }
        self.environment().health.check_open()
    }

    fn is_created(&self, dictionary: DictionaryId) -> bool {
        self.created.iter().any(|(id, _)| *id == dictionary.0)
    }

    fn environment(&self) -> &Environment {
        self.pinned.handle()
    }

    /// The dictionary as the snapshot sees it.
    fn find_visible(&self, dictionary: DictionaryId) -> Result<Found> {
        match self.used(dictionary.0) {
            Some(found) if found.visible_at(self.pinned.timestamp) => Ok(found.clone()),
            Some(_) => Err(Error::NoSuchDictionary(dictionary)),
            None => self.environment().directory.at(dictionary, self.pinned.timestamp),
        }
    }

    /// The dictionary as the newest commit left it. An id means one dictionary for ever, so it is
    /// looked up once; whether it is dropped is asked each time.
    fn find_newest(&mut self, dictionary: DictionaryId) -> Result<&Found> {
        let known = self.used.iter().position(|found| found.id == dictionary.0);
        if known.is_none() {
            let found = self.environment().directory.newest(dictionary)?;
            self.used.push(found);
        }
        let at = known.unwrap_or(self.used.len() - 1);
        let found = &self.used[at];
        if found.dropped().is_some() {
            return Err(Error::NoSuchDictionary(dictionary));
        }
        Ok(found)
    }

    /// A dictionary it has locked or written in, unless that was made by itself.
    pub(crate) fn used(&self, dictionary: u64) -> Option<&Found> {
        self.used.iter().find(|found| found.id == dictionary)
    }

    fn check_not_dropped(&self, dictionary: DictionaryId) -> Result<()> {
        if self.dropped.contains(&dictionary.0) {
            return Err(Error::NoSuchDictionary(dictionary));
        }
        Ok(())
    }

    /// The dictionaries written to that still exist at commit.
    pub(crate) fn written(&self) -> impl Iterator<Item = u64> {
        self.writes.dictionaries().into_iter().filter(|id| !self.dropped.contains(id))
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        // Views may keep the holder alive.
        drop(self.holder.take());
        let handle = self.pinned.handle();
        if self.holder.readers().is_some() {
            handle.serializable.leave();
        }
        handle.live.end(handle.stripe(), self.live.id);
    }
}

impl std::fmt::Debug for Txn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Txn({} at {})", self.live.id, self.pinned.timestamp)
    }
}

fn check_size(what: Oversized, size: usize, limit: usize) -> Result<()> {
    if size > limit {
        return Err(Error::TooLarge { what, size: size as u64, limit: limit as u64 });
    }
    Ok(())
}
