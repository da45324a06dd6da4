//! Key and range locks: who may write what, who waits for whom, and who gives up.
//!
//! A lock is on (dictionary, key bytes), shared or exclusive, and is held until its transaction
//! ends. What is always true:
//! 1. Requests for one key are granted in the order they came; only an upgrade (shared →
//!    exclusive by a holder) goes first.
//! 2. A request that would close a cycle of waiters is refused at once: the requester is the
//!    victim. The graph is exact, so nobody is refused for a cycle that is not there.
//! 3. A request waits no longer than its timeout; with a timeout of zero it never waits. It ends
//!    sooner where its operation may not go on ([`LockTable::ask_while_waiting`]).
//! 4. While a snapshot older than a commit lives, the table remembers the commit's timestamp on
//!    the keys it wrote, so that a blind write finds a conflict without reading the tree. Where
//!    it had to forget, it says so ([`Granted::complete_since`]) and the caller reads.
//!
//! 5. A request may stay in its queue with no thread asleep ([`LockTable::acquire_or_queue`]); whoever goes on with it
//!    is called with no lock of the table held.
//!
//! Lock order: `waits` (the queues and the graph) → one shard → nothing. The uncontended path
//! takes one shard only. Each waiting request has its own small mutex and condition variable,
//! taken last.
#![forbid(unsafe_code)]

mod escalate;
mod inspect;
#[cfg(all(test, shuttle))]
mod interleavings;
mod ordered;
mod owner;
mod queued;
mod range;
mod shard;
mod table;
#[cfg(test)]
mod tests;
mod wait;

pub use inspect::{LockInfo, Refusal, Stats};
pub use owner::{Interrupt, Locks, Owner};
pub use range::Range;
pub use table::{LockTable, Options, Waiting};

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Mode {
    /// Others may hold it shared too.
    Shared,
    /// Nobody else holds it.
    Exclusive,
}

impl Mode {
    /// Whether two transactions may hold the same key in these modes.
    pub fn compatible(self, other: Self) -> bool {
        self == Self::Shared && other == Self::Shared
    }
}

/// What the table knows about a key that has just been locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The newest commit on the key that the table remembers; 0 where it remembers none.
    pub last_commit: u64,
    /// Every commit newer than this timestamp would be remembered. A transaction whose snapshot
    /// is older must ask the tree.
    pub complete_since: u64,
}

/// Why a lock was not granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not granted in time.
    #[error("lock not granted within {waited_ms} ms; transaction {blocker} holds it")]
    Timeout {
        /// How long the request waited.
        waited_ms: u64,
        /// One of the transactions in its way.
        blocker: u64,
    },
    /// Waiting would close a cycle of waiters.
    #[error("deadlock: waiting for transaction {blocker} would close a cycle")]
    Deadlock {
        /// One of the transactions in its way.
        blocker: u64,
    },
    /// The transaction was killed, or its operation may not go on waiting.
    #[error("interrupted")]
    Interrupted,
    /// The table is at its memory limit and the transaction's locks could not be escalated.
    #[error("lock table is full: {bytes} bytes of locks held")]
    OutOfLocks {
        /// Bytes of locks held by everybody.
        bytes: u64,
    },
}
