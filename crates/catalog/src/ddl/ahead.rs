//! Changes of names where commits are held back: they go ahead of what readers see, as statements do.
//!
//! From → to: a change is committed while it keeps out who else would change or write there; from then on its locks
//! are open, and those find the names that it left ([`Catalog::newest`]); its answer waits until readers see it
//! ([`Catalog::settle`]), as that of a statement; readers find its names then.
//!
//! Always true:
//! 1. Who finds a name that readers do not see yet remembers that for its thread: its answer waits for it, an error too.
//! 2. A client's transaction, which reads what is visible, waits until the names that it changes or writes to are.

use crate::catalog::{Catalog, not_found};
use crate::data::metadata_lock::{Check, MetadataGuard, lock_timed_out};
use crate::data::txn::Txn;
use crate::failure::from_engine;
use crate::metadata::collection::Collection;
use crate::metadata::collection_map::NameChange;
use crate::metadata::namespace::Namespace;
use engine::{Durability, Seen, Timestamp};
use errors::{Code, Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// More changes of names than these wait for readers only by those who made them.
const MOST_WAITING: usize = 1000;

impl Catalog {
    /// The collection or view of this name, once all is visible that is complete: for who changes it or writes to it.
    pub fn newest(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        let found = self.namespaces.newest(namespace.as_str());
        if let Some(seen) = found.waits_for {
            self.engine().remember(seen);
        }
        found.collection
    }

    /// The same, or the error for commands that need one.
    pub fn require_newest(&self, namespace: &Namespace) -> Result<Arc<Collection>> {
        self.newest(namespace).ok_or_else(|| not_found(namespace))
    }

    /// The same of a database, by name.
    pub(crate) fn newest_collections(&self, database: &str) -> Vec<Arc<Collection>> {
        if !self.holds_back() {
            return self.collections(database);
        }
        let (from, to) = (format!("{database}."), format!("{database}/"));
        let (found, waits_for) = self.namespaces.newest_between(&from, &to);
        if let Some(seen) = waits_for {
            self.engine().remember(seen);
        }
        found
    }

    /// Commits a change of names, which the caller keeps others from: no reader sees the names before the commit, and
    /// from then on everybody does. Where commits are held back the caller's thread remembers it.
    pub(crate) fn commit_names(
        &self,
        mut txn: engine::EngineTxn,
        change: impl FnOnce(Timestamp) -> NameChange,
    ) -> Result<()> {
        if !self.holds_back() {
            let committed = txn.commit_with(Durability::Buffered, |committed| {
                self.namespaces.apply(change(committed), committed);
            });
            committed.map_err(from_engine)?.visible();
            return Ok(());
        }
        let seen = txn.submit_in_place(|| {}).map_err(from_engine)?;
        self.engine().remember(seen);
        self.push_names(seen, change(seen.timestamp()))
    }

    /// As [`Catalog::commit_names`], of a commit that is complete.
    pub(crate) fn push_names(&self, seen: Seen, change: NameChange) -> Result<()> {
        let waiting = self.namespaces.push(seen, change);
        let names = Arc::downgrade(&self.namespaces);
        self.engine().when_visible(seen, move || {
            if let Some(names) = names.upgrade() {
                names.settle();
            }
        });
        if waiting > MOST_WAITING {
            self.engine().wait_visible(seen).map_err(from_engine)?;
        }
        Ok(())
    }

    /// The newest version of a collection under its exclusive metadata lock. What was written there may not be visible
    /// yet.
    pub(crate) fn lock_newest(
        &self,
        namespace: &Namespace,
        check: Check<'_>,
    ) -> Result<(Arc<Collection>, MetadataGuard)> {
        let lock = |found: &Collection| self.keep_writers_out(found, check);
        self.lock_what_stands(namespace, lock, || self.require_newest(namespace))
    }

    /// The collection's current version under its exclusive metadata lock. What was written there is visible.
    pub(crate) fn lock_current(
        &self,
        namespace: &Namespace,
        check: Check<'_>,
    ) -> Result<(Arc<Collection>, MetadataGuard)> {
        let lock = |found: &Collection| self.lock_metadata(found, check);
        self.lock_what_stands(namespace, lock, || self.require(namespace))
    }

    /// Locks what stands under a name, until a look behind that finds the same collection.
    fn lock_what_stands(
        &self,
        namespace: &Namespace,
        lock: impl Fn(&Collection) -> Result<MetadataGuard>,
        look: impl Fn() -> Result<Arc<Collection>>,
    ) -> Result<(Arc<Collection>, MetadataGuard)> {
        loop {
            let found = self.require_newest(namespace)?;
            let guard = lock(&found)?;
            let there = look()?;
            if there.number == found.number {
                return Ok((there, guard));
            }
        }
    }

    /// Waits until readers see what stands under a name; says whether there was something to wait for.
    fn wait_for_name(&self, namespace: &Namespace, lock_timeout: Duration) -> Result<bool> {
        let Some(seen) = self.namespaces.newest(namespace.as_str()).waits_for else {
            return Ok(false);
        };
        let deadline = self.os().clock.monotonic().saturating_add(lock_timeout);
        let is_visible = self.engine().wait_visible_until(seen, Some(deadline));
        if !is_visible.map_err(from_engine)? {
            return Err(lock_timed_out('I', namespace, lock_timeout));
        }
        Ok(true)
    }
}

impl Txn {
    /// What this transaction finds under a name that it has not changed: a statement what is complete, any other one
    /// what readers see.
    pub(crate) fn found(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        if self.is_ahead() {
            self.catalog.newest(namespace)
        } else {
            self.catalog.collection(namespace)
        }
    }

    /// Before a transaction that reads what is visible changes a name or writes there: waits until readers see what
    /// stands there; says whether there was something to wait for. To be called while others are kept from the name.
    pub(crate) fn wait_for_name(&self, namespace: &Namespace) -> Result<bool> {
        if self.is_ahead() || !self.catalog.namespaces.has_waiting() {
            return Ok(false);
        }
        match self.catalog.wait_for_name(namespace, self.lock_timeout()) {
            Err(error) if error.code() == Code::LOCK_TIMEOUT => Err(self.late(error)),
            other => other,
        }
    }

    /// What a session's transaction waited for will mostly have been changed when it comes.
    fn late(&self, error: Error) -> Error {
        if self.is_clients() && !self.is_connections() {
            return from_engine(engine::Error::WriteConflict);
        }
        error
    }
}
