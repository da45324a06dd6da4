//! Who writes to a collection and who changes it, and how long the one waits for the other.
//!
//! | who waits | for | at most |
//! |---|---|---|
//! | a statement | a command that changes the collection | until that ends |
//! | a statement | a client's transaction that has the collection for itself | `lockTimeout` |
//! | a client's transaction | either of these | as long as it waits for a lock |
//! | a command that changes it | statements that write to it | a minute |
//! | a command that changes it | a client's transaction that has written to it | `lockTimeout` |
//! | a command that changes it | locks of names and dictionaries | `lockTimeout` |
//!
//! What is always true:
//! 1. Each wait ends soon after its operation was killed, its time is over or the server stops.
//! 2. Changes are committed one by one ([`crate::metadata::ddl_lock`]), and nothing is waited for under that lock:
//!    what a change locks is locked before ([`Catalog::begin_change`]), and then a lock that is not
//!    free is an error. So one change that waits holds up no other.

use crate::catalog::Catalog;
use crate::failure::{from_engine, is_retryable};
use crate::metadata::collection::{Collection, Shared};
use crate::metadata::namespace::Namespace;
use crate::metadata::records;
use engine::{DictionaryId, TxnOptions};
use errors::{Code, Error, Result};
use os::Clock;
use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, RawRwLock};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a change of the metadata keeps new writers out while it waits for those inside; it tries
/// again and again, and lets writers pass in between.
pub(crate) const METADATA_SLICE: Duration = Duration::from_millis(100);
/// How long a change waits for statements, which end by themselves.
const MOST_WAIT: Duration = Duration::from_mins(1);
/// How often a write that waits asks whether to go on.
const SLICE: Duration = Duration::from_millis(25);

/// Asked between the slices of a wait whether to go on.
pub type Check<'a> = &'a dyn Fn() -> Result<()>;

/// While it lives, no write is inside the collection.
pub(crate) type MetadataGuard = ArcRwLockWriteGuard<RawRwLock, ()>;

/// A client's transaction has written to a collection, or has it for itself, while this lives.
pub(crate) struct ClientInside(Arc<Shared>);

impl ClientInside {
    pub(crate) fn new(collection: &Collection) -> Self {
        collection.shared.clients_inside.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&collection.shared))
    }
}

impl Drop for ClientInside {
    fn drop(&mut self) {
        self.0.clients_inside.fetch_sub(1, Ordering::Relaxed);
    }
}

/// While it lives, nobody changes the collection.
pub(crate) struct WriterGuard {
    _guard: ArcRwLockReadGuard<RawRwLock, ()>,
    _client: Option<ClientInside>,
}

impl WriterGuard {
    /// The guard, where nobody changes the collection now.
    pub(crate) fn try_enter(collection: &Collection, is_client: bool) -> Option<Self> {
        let guard = collection.shared.metadata.try_read_arc()?;
        Some(Self::new(guard, collection, is_client))
    }

    /// Waits for `lock_timeout`; a statement goes on waiting where it is no client's transaction
    /// that it waits for.
    pub(crate) fn enter(
        clock: &dyn Clock,
        collection: &Collection,
        lock_timeout: Duration,
        is_client: bool,
    ) -> Result<Self> {
        let metadata = &collection.shared.metadata;
        let gives_up = || is_client || has_clients_inside(collection);
        let guard = wait(clock, lock_timeout, gives_up, |slice| metadata.try_read_arc_for(slice))?;
        let guard =
            guard.ok_or_else(|| lock_timed_out('I', &collection.namespace, lock_timeout))?;
        Ok(Self::new(guard, collection, is_client))
    }

    fn new(
        guard: ArcRwLockReadGuard<RawRwLock, ()>,
        collection: &Collection,
        is_client: bool,
    ) -> Self {
        Self { _guard: guard, _client: is_client.then(|| ClientInside::new(collection)) }
    }
}

fn has_clients_inside(collection: &Collection) -> bool {
    collection.shared.clients_inside.load(Ordering::Relaxed) > 0
}

/// Tries for `lock_timeout` and, as long as `gives_up` says no, longer. Fails where the operation
/// on this thread may not go on waiting.
pub(crate) fn wait<T>(
    clock: &dyn Clock,
    lock_timeout: Duration,
    gives_up: impl Fn() -> bool,
    mut try_for: impl FnMut(Duration) -> Option<T>,
) -> Result<Option<T>> {
    let started = clock.monotonic();
    loop {
        let waited = clock.monotonic().saturating_sub(started);
        let left = lock_timeout.saturating_sub(waited);
        if left.is_zero() && gives_up() {
            return Ok(None);
        }
        limits::check_wait()?;
        let slice = if left.is_zero() { SLICE } else { left.min(SLICE) };
        if let Some(got) = try_for(slice) {
            return Ok(Some(got));
        }
    }
}

thread_local! {
    /// How long this thread's request waits for locks, where its client has said so.
    static LOCK_TIMEOUT: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// A request begins on this thread: its statements, and the changes of metadata that it makes, wait so long for locks;
/// without a time as long as the engine says.
pub fn set_lock_timeout(own: Option<Duration>) {
    LOCK_TIMEOUT.set(own);
}

impl Catalog {
    /// How long this thread's request waits for locks outside of transactions.
    pub(crate) fn lock_timeout(&self) -> Duration {
        LOCK_TIMEOUT.get().unwrap_or_else(|| self.engine().adjustable().lock_timeout())
    }

    /// Waits until no write is inside the collection, and keeps them out. What was written there is visible
    /// when this returns.
    pub(crate) fn lock_metadata(
        &self,
        collection: &Collection,
        check: Check<'_>,
    ) -> Result<MetadataGuard> {
        let guard = self.keep_writers_out(collection, check)?;
        self.wait_complete_visible()?;
        Ok(guard)
    }

    /// As [`Catalog::lock_metadata`]; what was written is complete, but may not be visible yet.
    pub(crate) fn keep_writers_out(
        &self,
        collection: &Collection,
        check: Check<'_>,
    ) -> Result<MetadataGuard> {
        let clock = &self.os().clock;
        let started = clock.monotonic();
        loop {
            if let Some(guard) = collection.shared.metadata.try_write_arc_for(METADATA_SLICE) {
                return Ok(guard);
            }
            let waited = clock.monotonic().saturating_sub(started);
            let is_over = waited >= self.lock_timeout() && has_clients_inside(collection)
                || waited >= MOST_WAIT;
            if is_over {
                return Err(lock_timed_out('X', &collection.namespace, waited));
            }
            check()?;
            limits::check_wait()?;
        }
    }

    /// A transaction for a change of the metadata, in which `prepare` has locked and done everything
    /// that may have to wait for others. `prepare` starts over, in a new transaction, as long as
    /// somebody else is in its way.
    pub(crate) fn begin_change<T>(
        &self,
        check: Check<'_>,
        mut prepare: impl FnMut(&mut engine::EngineTxn) -> Result<T>,
    ) -> Result<(engine::EngineTxn, T)> {
        let clock = &self.os().clock;
        let lock_timeout = self.lock_timeout();
        let started = clock.monotonic();
        loop {
            let slice = Some(METADATA_SLICE.min(lock_timeout));
            let options = TxnOptions { lock_timeout: slice, ..TxnOptions::default() };
            let mut txn = if self.holds_back() {
                // Over the changes before it, which readers may not see yet.
                self.engine().begin_newest(options)
            } else {
                self.engine().begin(options)
            };
            let error = match prepare(&mut txn) {
                Ok(prepared) => return Ok((txn, prepared)),
                Err(error) => error,
            };
            if !is_retryable(&error) && error.code() != Code::LOCK_TIMEOUT {
                return Err(error);
            }
            let waited = clock.monotonic().saturating_sub(started);
            if waited >= lock_timeout {
                let waited_ms = waited.as_millis() as u64;
                return Err(from_engine(engine::Error::LockTimeout { waited_ms }));
            }
            check()?;
            limits::check_wait()?;
        }
    }
}

/// Locks a name, whether there is something under it or not. Part of [`Catalog::begin_change`].
pub(crate) fn lock_name(txn: &mut engine::EngineTxn, namespace: &Namespace) -> Result<()> {
    txn.lock(DictionaryId::ROOT, &records::namespace_key(namespace)).map_err(from_engine)
}

/// The refusal of whoever waited too long for a collection.
pub(crate) fn lock_timed_out(mode: char, namespace: &Namespace, waited: Duration) -> Error {
    let mode = if mode == 'X' { "X" } else { "IX" };
    Error::new(
        Code::LOCK_TIMEOUT,
        format!("Unable to acquire {mode} lock on '{namespace}' within {}ms.", waited.as_millis()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::sim::SimOs;

    #[test]
    fn waits_end_with_the_lock_timeout_only_where_they_may_give_up() {
        let clock = SimOs::new(1).os().clock;
        // (who may give up, tries until it is free) → granted, tries made
        for (gives_up, free_at, granted, tries) in
            [(true, 3, true, 3), (true, 100, false, 40), (false, 100, true, 100)]
        {
            let mut tried = 0;
            let got = wait(
                &*clock,
                Duration::from_secs(1),
                || gives_up,
                |slice| {
                    clock.sleep(slice);
                    tried += 1;
                    (tried == free_at).then_some(())
                },
            );
            assert_eq!((got.unwrap().is_some(), tried), (granted, tries));
        }
    }
}
