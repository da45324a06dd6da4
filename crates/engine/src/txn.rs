//! A read-write transaction: a snapshot, a private write set, locks.
//!
//! Nothing of it is in a dictionary's tree or in the log before it commits (chunks of a large one
//! are in the log, and count for nothing until its commit record; what exceeds memory is in a
//! private tree). So abort forgets, and undoes nothing. What it reads stands in `reads`, what it writes in
//! `writes`, the dictionaries it makes and finds in `dictionaries`.

mod charge;
mod dictionaries;
mod notes;
mod reads;
mod serializable;
mod tombstones;
mod updates;
mod writes;

use crate::buried::OwnTombstone;
use crate::dictionary::Found;
use crate::environment::Environment;
use crate::handle::{EngineHandle, LockTableRef};
use crate::holder::Holder;
use crate::live::LiveTxn;
use crate::load::Loaded;
use crate::lock_waits::{self, Waiting};
use crate::settings::PlantedBug;
use crate::snapshots::{Pinned, Watch};
use crate::writeset::WriteSet;
use crate::{
    Committed, DictionaryId, DictionaryOptions, Durability, Error, OnConflict, Result, Seen,
    Submitted, Timestamp, TxnOptions,
};
use charge::Charge;
use locktree::Owner;
pub(crate) use notes::Notes;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest key the engine takes.
pub const MAX_KEY_BYTES: usize = 1 << 20;
/// The longest value the engine takes: the longest document, and room for what wraps it.
pub const MAX_VALUE_BYTES: usize = 17 << 20;
/// The longest argument of an update the engine takes.
pub const MAX_UPDATE_BYTES: usize = 64 << 10;
/// The longest note the engine takes: two documents and room for what wraps them.
pub const MAX_NOTE_BYTES: usize = 40 << 20;

/// A place in a transaction to which its writes can be rolled back.
#[derive(Debug)]
pub struct Savepoint {
    writes: usize,
    created: usize,
    adopted: usize,
    dropped: usize,
    reshaped: usize,
    notes: usize,
    tombstones: usize,
}

/// A read-write transaction. Dropping it aborts it.
#[expect(clippy::struct_excessive_bools, reason = "what became of it, independently")]
pub struct EngineTxn {
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
    /// Of the created ones, those that were filled before.
    adopted: Vec<Loaded>,
    pub(crate) dropped: Vec<u64>,
    /// New options of dictionaries that were there before.
    pub(crate) reshaped: Vec<(u64, DictionaryOptions)>,
    /// Ranges that it deletes.
    pub(crate) tombstones: Vec<OwnTombstone>,
    /// What readers of the history are told of it.
    pub(crate) notes: Option<Box<Notes>>,
    /// Bytes of the write set that have waited for their room.
    pub(crate) paced: u64,
    /// The red zone is no reason to refuse it.
    pub(crate) within_red_zone: bool,
    /// It has failed because it waits for its first lock on no thread.
    is_queued: bool,
    /// What it reads later on may be of a later one; it commits in this one alone.
    era: u64,
    is_committed: bool,
    has_ended: bool,
}

impl OnConflict {
    fn watch(self) -> Watch {
        match self {
            Self::Fail => Watch::Commits,
            Self::Latest => Watch::Nothing,
        }
    }
}

impl EngineTxn {
    pub(crate) fn begin(handle: &Arc<EngineHandle>, options: TxnOptions) -> Self {
        let watch = options.on_conflict.watch();
        Self::begin_or_go_on(options, handle, |handle| Pinned::watching(watch, handle))
    }

    /// Reads the newest complete state.
    pub(crate) fn begin_newest(handle: &Arc<EngineHandle>, options: TxnOptions) -> Self {
        Self::begin_or_go_on(options, handle, Pinned::newest)
    }

    /// Begins, or goes on as the one that has waited for a lock ([`lock_waits`]).
    fn begin_or_go_on(
        options: TxnOptions,
        handle: &Arc<EngineHandle>,
        pin: impl FnOnce(&Arc<EngineHandle>) -> Pinned,
    ) -> Self {
        let Some(Waiting { owner, live, handle }) = lock_waits::goes_on() else {
            return Self::begin_at(options, pin(handle));
        };
        let pinned = pin(&handle);
        debug_assert_eq!(owner.txn(), live.id, "its locks are its own");
        live.snapshot.store(pinned.timestamp, Ordering::Relaxed);
        Self::with_locks(options, pinned, live, owner)
    }

    pub(crate) fn begin_at(options: TxnOptions, pinned: Pinned) -> Self {
        let handle = Arc::clone(pinned.handle());
        let live = handle.live.begin(handle.stripe(), pinned.timestamp);
        let owner = Owner::new(LockTableRef(Arc::clone(&handle)), live.interrupt.clone());
        Self::with_locks(options, pinned, live, owner)
    }

    fn with_locks(
        options: TxnOptions,
        pinned: Pinned,
        live: Arc<LiveTxn>,
        owner: Owner<LockTableRef>,
    ) -> Self {
        let handle = pinned.handle();
        Self {
            lock_timeout: options.lock_timeout.unwrap_or_else(|| handle.adjustable.lock_timeout()),
            era: pinned.era(),
            live,
            pinned,
            options,
            holder: Holder::Alone(Some(owner)),
            used: SmallVec::new(),
            writes: WriteSet::default(),
            charge: Charge::default(),
            created: Vec::new(),
            adopted: Vec::new(),
            dropped: Vec::new(),
            reshaped: Vec::new(),
            tombstones: Vec::new(),
            notes: None,
            paced: 0,
            within_red_zone: false,
            is_queued: false,
            is_committed: false,
            has_ended: false,
        }
    }

    /// Has it let through on a disk beyond the red zone, where it writes little: what a start must
    /// write in an empty directory, so that there is a server that says why it refuses writes.
    pub fn allow_within_red_zone(&mut self) {
        self.within_red_zone = true;
    }

    /// Names this transaction in lock tables and logs.
    pub fn id(&self) -> u64 {
        self.live.id
    }

    /// The commit timestamp whose state this transaction reads.
    pub fn snapshot_timestamp(&self) -> Timestamp {
        Timestamp(self.pinned.timestamp)
    }

    /// The state that this transaction reads, for who waits until others may see it
    /// ([`crate::Engine::wait_visible`]).
    pub fn seen(&self) -> Seen {
        Seen { timestamp: self.pinned.timestamp, era: self.pinned.era() }
    }

    /// When its first snapshot was taken, or before.
    pub(crate) fn era(&self) -> u64 {
        self.era
    }

    /// Moves the snapshot to now; locks and writes stay. For single statements that retry.
    pub fn refresh_snapshot(&mut self) {
        let handle = Arc::clone(self.pinned.handle());
        let watch = match self.pinned.watch() {
            Watch::Newest => Watch::Newest,
            Watch::Nothing | Watch::Commits => self.options.on_conflict.watch(),
        };
        self.pinned = Pinned::watching(watch, &handle);
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

    /// Marks a place to roll back to (a statement's start). Costs nothing by itself; writes
    /// behind it are noted.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            writes: self.writes.savepoint(),
            created: self.created.len(),
            adopted: self.adopted.len(),
            dropped: self.dropped.len(),
            reshaped: self.reshaped.len(),
            notes: self.notes.as_ref().map_or(0, |notes| notes.count()),
            tombstones: self.tombstones.len(),
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
        self.adopted.truncate(savepoint.adopted);
        self.dropped.truncate(savepoint.dropped);
        self.reshaped.truncate(savepoint.reshaped);
        self.tombstones.truncate(savepoint.tombstones);
        if let Some(notes) = &mut self.notes {
            notes.truncate(savepoint.notes);
        }
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

    /// As [`EngineTxn::commit`], and calls `published` once the writes are visible, before waiting for
    /// the disk: what mirrors them in memory is kept up to date there.
    pub fn commit_with(
        mut self,
        durability: Durability,
        published: impl FnOnce(Timestamp),
    ) -> Result<Committed> {
        self.commit_in_place(durability, published)
    }

    /// As [`EngineTxn::commit_with`], of one that stays where it is, as it is large. It is of no use any more.
    pub fn commit_in_place(
        &mut self,
        durability: Durability,
        published: impl FnOnce(Timestamp),
    ) -> Result<Committed> {
        let handle = Arc::clone(self.pinned.handle());
        let committed = handle.commits.commit(self, durability, published);
        self.is_committed = committed.is_ok();
        self.end();
        committed
    }

    /// As [`EngineTxn::commit`], but does not wait until readers see it, nor for the disk.
    pub fn submit(mut self) -> Result<Submitted> {
        let handle = Arc::clone(self.pinned.handle());
        let submitted = handle.commits.submit(&mut self);
        self.is_committed = submitted.is_ok();
        submitted
    }

    /// As [`EngineTxn::submit`], of what nobody is told by itself: who waits does so with
    /// [`crate::Engine::wait_visible`], or for all that its thread has done ([`crate::Engine::remember`]).
    /// Calls `written` when it is in the log and in the trees, before anybody reads it and before its locks
    /// open: a tail is overwritten with all such calls made.
    /// As [`EngineTxn::commit_in_place`], it stays where it is.
    pub fn submit_in_place(&mut self, written: impl FnOnce()) -> Result<Seen> {
        let handle = Arc::clone(self.pinned.handle());
        let submitted = handle.commits.submit_with(self, written);
        self.is_committed = submitted.is_ok();
        self.end();
        submitted
    }

    /// Forgets the writes and opens the locks.
    pub fn abort(self) {}

    /// Lets the snapshot go before the locks do.
    pub(crate) fn unpin(&mut self) {
        self.pinned.release();
    }

    /// Whether a commit has anything to do.
    #[inline]
    pub(crate) fn has_writes(&self) -> bool {
        !(self.writes.is_empty()
            && self.created.is_empty()
            && self.dropped.is_empty()
            && self.reshaped.is_empty()
            && self.tombstones.is_empty()
            && self.notes.as_ref().is_none_or(|notes| notes.count() == 0))
    }

    /// Whether somebody runs the statement again where it ends by waiting for its first lock, and it has done nothing.
    pub(crate) fn may_be_run_again(&self) -> bool {
        let planted = self.environment().options.sizes.planted;
        lock_waits::may_queue(planted == Some(PlantedBug::RunsAgainAfterCommits))
    }

    /// Opens the locks, lets the snapshot go, and is no longer among those that are open.
    fn end(&mut self) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        if self.is_queued
            && self.may_be_run_again()
            && let Some(owner) = self.holder.take_queued()
        {
            debug_assert!(!self.has_writes(), "nothing of it is to be done twice");
            self.pinned.release();
            let (live, handle) = (Arc::clone(&self.live), Arc::clone(self.pinned.handle()));
            return lock_waits::keep(Waiting { owner, live, handle });
        }
        // Views may keep the holder alive.
        self.holder.release(None);
        self.pinned.release();
        let handle = self.pinned.handle();
        if self.holder.readers().is_some() {
            handle.serializable.leave();
        }
        handle.live.end(handle.stripe(), self.live.id, self.is_committed);
    }

    fn check_alive(&self) -> Result<()> {
        if self.live.interrupt.is_set() {
            return Err(Error::Interrupted);
        }
        self.environment().health.check_open()
    }

    pub(crate) fn handle(&self) -> &Arc<EngineHandle> {
        self.pinned.handle()
    }

    fn environment(&self) -> &Environment {
        self.pinned.handle()
    }
}

impl Drop for EngineTxn {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for EngineTxn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EngineTxn({} at {})", self.live.id, self.pinned.timestamp)
    }
}
