//! What the lock that orders commits guards.
//!
//! Always true: both the timestamp and the cluster time given last only grow, but where a tail of the log is
//! overwritten.

use crate::chunk_lists::ChunkLists;
use crate::entries::Entries;
use crate::open_records::OpenRecords;

/// Guarded by the lock that orders commits.
#[derive(Default)]
pub(crate) struct CommitOrder {
    /// The timestamp given last.
    pub(crate) newest: u64,
    /// The last cluster time given; only where history is kept.
    pub(crate) time: u64,
    /// The history wants to know of the first commit from this position on.
    pub(crate) next_history_point: u64,
    /// What is not closed by an entry yet; only where commits are held back.
    pub(crate) open: OpenRecords,
    /// The entries of the set's log.
    pub(crate) entries: Entries,
    /// Of other members' transactions whose commit has not come yet.
    pub(crate) chunked: ChunkLists,
    /// Only where commits are held back: transactions may not commit, this member does not lead.
    pub(crate) refuses_writes: bool,
    /// The log's index wants to know of the first commit from this position on.
    pub(crate) next_point: u64,
}

impl CommitOrder {
    /// A record of another member's entry stands in the log, which is so long as members send it.
    pub(crate) fn note_sent(&mut self, place: wal::Place, bytes: usize) {
        let newest = (self.newest, self.time);
        self.open.note_sent((place.begin, place.end), bytes, newest);
    }
}
