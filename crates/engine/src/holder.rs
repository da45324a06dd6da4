//! Who holds a transaction's locks: itself, or, where its reads lock too, itself together with its
//! cursors and views, which may outlive a statement.
//!
//! Always true: the locks open when the transaction ends, whoever still has a view of it; a view
//! then fails instead of reading without a lock.

use crate::environment::Environment;
use crate::handle::LockTableRef;
use crate::{DictionaryId, Error, KeyRange, Result};
use locktree::{Granted, LockTable, Locks, Mode, Owner, Range};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The locks of one transaction.
pub(crate) enum Holder {
    /// Its writes lock. `None` once it has ended.
    Alone(Option<Owner<LockTableRef>>),
    /// Its reads lock too.
    Shared(Arc<SharedLocks>),
}

impl Holder {
    /// Locks a key exclusively. May wait.
    #[inline]
    pub(crate) fn lock(
        &mut self,
        table: &LockTable,
        dictionary: DictionaryId,
        key: &[u8],
        lock_timeout: Duration,
    ) -> Result<Granted> {
        self.with(|owner| table.acquire(owner, dictionary.0, key, Mode::Exclusive, lock_timeout))
    }

    /// Locks a key exclusively, as the first that it locks; `None` where it waits in the queue, on no thread.
    pub(crate) fn lock_or_queue(
        &mut self,
        table: &LockTable,
        dictionary: DictionaryId,
        key: &[u8],
        lock_timeout: Duration,
    ) -> Result<Option<Granted>> {
        let mode = Mode::Exclusive;
        self.with(|owner| table.acquire_or_queue(owner, dictionary.0, key, mode, lock_timeout))
    }

    /// Whether it has locked nothing, and would not lock what it reads.
    pub(crate) fn holds_nothing(&self) -> bool {
        matches!(self, Self::Alone(Some(owner)) if owner.holds_nothing())
    }

    /// The locks, where it waits for the first of them on no thread.
    pub(crate) fn take_queued(&mut self) -> Option<Owner<LockTableRef>> {
        match self {
            Self::Alone(owner) => owner.take_if(|owner| owner.is_queued()),
            Self::Shared(_) => None,
        }
    }

    /// Locks a key exclusively where nobody has to be waited for; says whether it did.
    pub(crate) fn lock_at_once(
        &mut self,
        table: &LockTable,
        dictionary: DictionaryId,
        key: &[u8],
        lock_timeout: Duration,
    ) -> Result<bool> {
        let mode = Mode::Exclusive;
        self.with(|owner| table.acquire_at_once(owner, dictionary.0, key, mode, lock_timeout))
    }

    /// Whether a key was the last that it locked, exclusively.
    pub(crate) fn has_just_locked(&self, dictionary: DictionaryId, key: &[u8]) -> bool {
        match self {
            Self::Alone(Some(owner)) => owner.has_just_locked(dictionary.0, key, Mode::Exclusive),
            Self::Alone(None) | Self::Shared(_) => false,
        }
    }

    /// Locks a range exclusively, gaps included. May wait.
    pub(crate) fn lock_range(
        &mut self,
        table: &LockTable,
        dictionary: DictionaryId,
        range: &KeyRange,
        lock_timeout: Duration,
    ) -> Result<()> {
        let range = Range { lower: range.lower.clone(), upper: range.upper.clone() };
        self.with(|owner| {
            table.acquire_range(owner, dictionary.0, range, Mode::Exclusive, lock_timeout)
        })
    }

    /// Locks all of a dictionary exclusively. May wait.
    pub(crate) fn lock_all(
        &mut self,
        table: &LockTable,
        dictionary: DictionaryId,
        lock_timeout: Duration,
    ) -> Result<()> {
        self.with(|owner| {
            table.acquire_range(owner, dictionary.0, Range::all(), Mode::Exclusive, lock_timeout)
        })
    }

    #[inline]
    fn with<T>(
        &mut self,
        lock: impl FnOnce(&mut Locks) -> Result<T, locktree::Error>,
    ) -> Result<T> {
        match self {
            Self::Alone(Some(owner)) => Ok(lock(owner)?),
            Self::Alone(None) => Err(Error::Interrupted),
            Self::Shared(readers) => readers.with(lock),
        }
    }

    /// The locks, to open them.
    pub(crate) fn take(&mut self) -> Option<Owner<LockTableRef>> {
        match self {
            Self::Alone(owner) => owner.take(),
            Self::Shared(readers) => readers.owner.lock().take(),
        }
    }

    /// Opens the locks, in the place where they are. With `commit`, the keys remember the timestamp.
    #[inline]
    pub(crate) fn release(&mut self, commit: Option<u64>) {
        match self {
            Self::Alone(locks) => {
                if let Some(owner) = locks {
                    owner.release_in_place(commit);
                }
                *locks = None;
            }
            Self::Shared(readers) => {
                let taken = readers.owner.lock().take();
                if let Some(owner) = taken {
                    owner.release(commit);
                }
            }
        }
    }

    /// Those who lock what they read.
    pub(crate) fn readers(&self) -> Option<&Arc<SharedLocks>> {
        match self {
            Self::Alone(_) => None,
            Self::Shared(readers) => Some(readers),
        }
    }
}

/// The locks of a serializable transaction, as its cursors and views share them. They are used by
/// one thread at a time; one that waits for a lock keeps the others out.
pub(crate) struct SharedLocks {
    /// `None` once the transaction has ended.
    owner: Mutex<Option<Owner<LockTableRef>>>,
    lock_timeout_nanos: AtomicU64,
}

impl SharedLocks {
    pub(crate) fn new(owner: Owner<LockTableRef>, lock_timeout: Duration) -> Arc<Self> {
        let readers =
            Self { owner: Mutex::new(Some(owner)), lock_timeout_nanos: AtomicU64::new(0) };
        readers.set_lock_timeout(lock_timeout);
        Arc::new(readers)
    }

    /// How long reads wait for locks from now on.
    pub(crate) fn set_lock_timeout(&self, lock_timeout: Duration) {
        let nanos = u64::try_from(lock_timeout.as_nanos()).unwrap_or(u64::MAX);
        self.lock_timeout_nanos.store(nanos, Ordering::Relaxed);
    }

    fn lock_timeout(&self) -> Duration {
        Duration::from_nanos(self.lock_timeout_nanos.load(Ordering::Relaxed))
    }

    /// Locks a key before it is read. May wait.
    pub(crate) fn lock_key(
        &self,
        environment: &Environment,
        dictionary: DictionaryId,
        key: &[u8],
        mode: Mode,
    ) -> Result<()> {
        let lock_timeout = self.lock_timeout();
        self.with(|owner| environment.locks.acquire(owner, dictionary.0, key, mode, lock_timeout))?;
        Ok(())
    }

    /// Locks a range, gaps included, before it is read. May wait.
    pub(crate) fn lock_range(
        &self,
        environment: &Environment,
        dictionary: DictionaryId,
        range: &KeyRange,
        mode: Mode,
    ) -> Result<()> {
        let lock_timeout = self.lock_timeout();
        let range = Range { lower: range.lower.clone(), upper: range.upper.clone() };
        self.with(|owner| {
            environment.locks.acquire_range(owner, dictionary.0, range, mode, lock_timeout)
        })
    }

    fn with<T>(&self, lock: impl FnOnce(&mut Locks) -> Result<T, locktree::Error>) -> Result<T> {
        match &mut *self.owner.lock() {
            Some(owner) => Ok(lock(owner)?),
            None => Err(Error::Interrupted),
        }
    }
}
