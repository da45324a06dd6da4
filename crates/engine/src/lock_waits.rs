//! Statements that wait for a lock on no thread: the first lock that a transaction wants is queued for, the transaction
//! ends, and who ran the statement runs it again when the lock was granted.
//!
//! ```text
//!  Deferring::begin(true, None) … the statement runs, and fails with Error::Queued … Deferring::end() → LockWait
//!  LockWait::call_when_settled … the lock is granted: called
//!  Deferring::begin(true, LockWait) … the next transaction that begins goes on as that one: it holds the lock
//! ```
//!
//! Always true: nothing was done by a statement that is to be run again, for none is queued where its thread has
//! committed since `begin`, or its transaction holds locks or has written; the transaction keeps its id and its place in
//! the queue, and stays among those that are open; who drops a [`LockWait`] ends it.

use crate::handle::{EngineHandle, LockTableRef};
use crate::live::LiveTxn;
use crate::thread_commits;
use locktree::Owner;
use os::Call;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    /// What the thread's commits were when a statement began that may be run again.
    static BEGAN: Cell<Option<u64>> = const { Cell::new(None) };
    /// For the next transaction that begins.
    static GOES_ON: Cell<Option<LockWait>> = const { Cell::new(None) };
    /// Of the transaction that has ended by waiting.
    static WAITS: Cell<Option<LockWait>> = const { Cell::new(None) };
}

/// A transaction that waits for its first lock, or has been granted it. Dropping it ends the transaction.
pub struct LockWait(Option<Box<Waiting>>);

/// What such a transaction is made of.
pub(crate) struct Waiting {
    pub(crate) owner: Owner<LockTableRef>,
    pub(crate) live: Arc<LiveTxn>,
    /// That it has begun by.
    pub(crate) handle: Arc<EngineHandle>,
}

impl LockWait {
    pub(crate) fn new(waiting: Waiting) -> Self {
        Self(Some(Box::new(waiting)))
    }

    /// What it is made of, once.
    pub(crate) fn take(mut self) -> Option<Waiting> {
        self.0.take().map(|waiting| *waiting)
    }

    /// When the lock's time is over, by the engine's clock: the statement fails then, when it is run again.
    pub fn until(&self) -> Option<Duration> {
        self.0.as_ref().and_then(|waiting| waiting.owner.waits_until())
    }

    /// Has `call` made when the statement is to be run again; at once where it is by now. It may be made without a
    /// reason.
    pub fn call_when_settled(&self, call: Call) {
        if let Some(waiting) = &self.0 {
            waiting.handle.locks.call_when_settled(&waiting.owner, call);
        }
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        let Some(waiting) = self.0.take() else { return };
        let Waiting { owner, live, handle } = *waiting;
        debug_assert_eq!(owner.txn(), live.id, "its locks are its own");
        drop(owner);
        handle.live.end(handle.stripe(), live.id, false);
    }
}

impl std::fmt::Debug for LockWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let txn = self.0.as_ref().map(|waiting| waiting.live.id);
        f.debug_tuple("LockWait").field(&txn).finish()
    }
}

/// While it lives, statements on this thread are run by somebody who runs them again where they fail with
/// [`crate::Error::Queued`].
pub struct Deferring(PhantomData<*const ()>);

impl Deferring {
    /// A statement begins, or is run again with what its last run has left. Where `may_queue` is not set it waits for
    /// locks on its thread.
    pub fn begin(may_queue: bool, goes_on: Option<LockWait>) -> Self {
        BEGAN.set(may_queue.then(thread_commits));
        GOES_ON.set(goes_on);
        Self(PhantomData)
    }

    /// The statement has ended; what it waits for, where it is to be run again.
    pub fn end(self) -> Option<LockWait> {
        WAITS.take()
    }
}

impl Drop for Deferring {
    fn drop(&mut self) {
        BEGAN.set(None);
        drop((GOES_ON.take(), WAITS.take()));
    }
}

/// Whether the statement on this thread may end where it would have to wait for its first lock; with a planted bug even
/// where it has committed.
pub(crate) fn may_queue(committed_too: bool) -> bool {
    BEGAN.get().is_some_and(|began| committed_too || began == thread_commits())
}

/// The transaction that waits goes on when the statement is run again.
pub(crate) fn keep(waiting: Waiting) {
    debug_assert!(
        waiting.owner.is_queued() && waiting.owner.holds_nothing(),
        "it waits for its first lock"
    );
    debug_assert!(may_queue(false), "it has done nothing, and somebody runs it again");
    WAITS.set(Some(LockWait::new(waiting)));
}

/// What the next transaction that begins on this thread goes on as.
pub(crate) fn goes_on() -> Option<Waiting> {
    GOES_ON.take().and_then(LockWait::take)
}
