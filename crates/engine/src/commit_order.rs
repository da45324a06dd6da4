//! What the lock that orders commits guards.
//!
//! Always true: both the timestamp and the cluster time given last only grow.

/// Guarded by the lock that orders commits.
#[derive(Default)]
pub(crate) struct CommitOrder {
    /// The timestamp given last.
    pub(crate) newest: u64,
    /// The last cluster time given; only where history is kept.
    pub(crate) time: u64,
    /// The history wants to know of the first commit from this position on.
    pub(crate) next_history_point: u64,
    /// The log's index wants to know of the first commit from this position on.
    pub(crate) next_point: u64,
}
