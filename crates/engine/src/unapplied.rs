//! What of a leader's entries is in the log and not in the trees yet: `members/append.rs`.

use crate::entry_bytes::EntryBytes;
use smallvec::SmallVec;
use std::ops::Range;

/// An entry that is in the log and not in the trees.
pub(crate) struct Unapplied {
    pub(crate) records: EntryBytes,
    /// Whether any of them does something to a dictionary as a whole.
    pub(crate) changes_dictionaries: bool,
    /// In the order of their timestamps.
    pub(crate) commits: SmallVec<[UnappliedCommit; 1]>,
}

pub(crate) struct UnappliedCommit {
    pub(crate) timestamp: u64,
    /// Where its record stands in the log.
    pub(crate) position: u64,
    /// Its operations, as far as they stand in its own record: where they lie in the entry's records.
    pub(crate) operations: Range<usize>,
    /// Of one whose other operations are in chunks.
    pub(crate) pieces: Option<ChunksOfCommit>,
}

#[derive(Clone, Copy)]
pub(crate) struct ChunksOfCommit {
    pub(crate) txn: u64,
    pub(crate) count: u32,
    /// Where the first one stands.
    pub(crate) first: u64,
}
