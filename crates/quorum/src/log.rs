//! What raft can look up of the log: a window of entries, without their records.
//!
//! `base` is the entry before the window; the window ends with the last entry that was handed out to be
//! written. Indices in it ascend by one. What lies before goes by [`MemoryLog::compact_to`].

use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry as RaftEntry, HardState, Snapshot as RaftSnapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::codec::MAX_ENTRIES;
use crate::entry::Position;
use crate::translate::entry_out;

/// The window.
pub(crate) struct MemoryLog {
    base: Position,
    /// With the bytes of records that each stands for.
    entries: VecDeque<(RaftEntry, u64)>,
    start: RaftState,
    offered: Option<RaftSnapshot>,
}

impl MemoryLog {
    /// A window behind `base`.
    pub(crate) fn new(base: Position, hard_state: HardState, members: ConfState) -> Self {
        let start = RaftState::new(hard_state, members);
        Self { base, entries: VecDeque::new(), start, offered: None }
    }

    /// The entry before the window.
    pub(crate) fn base(&self) -> Position {
        self.base
    }

    /// The last index.
    pub(crate) fn last(&self) -> u64 {
        self.base.index + self.entries.len() as u64
    }

    /// Entries in it.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry of that index.
    pub(crate) fn get(&self, index: u64) -> Option<&RaftEntry> {
        let place = index.checked_sub(self.base.index + 1)?;
        self.entries.get(usize::try_from(place).ok()?).map(|(entry, _)| entry)
    }

    /// Appends entries in order, after cutting off what stands at or behind the first of them.
    pub(crate) fn append(&mut self, entries: &[RaftEntry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            first.index > self.base.index && first.index <= self.last() + 1,
            "entries are appended without a gap"
        );
        self.entries.truncate((first.index - self.base.index - 1) as usize);
        let sized = |entry: &RaftEntry| {
            let bytes = entry_out(entry).map_or(0, |entry| entry.record_bytes());
            (entry.clone(), bytes)
        };
        self.entries.extend(entries.iter().map(sized));
    }

    /// Forgets the entries up to `index`, which stays as the base.
    pub(crate) fn compact_to(&mut self, index: u64) {
        let Some(term) = self.get(index).map(|entry| entry.term) else { return };
        self.entries.drain(..(index - self.base.index) as usize);
        self.base = Position { term, index };
    }

    /// Begins anew behind a snapshot.
    pub(crate) fn restart(&mut self, base: Position) {
        self.base = base;
        self.entries.clear();
    }

    /// What a member gets that needs entries from before the window.
    pub(crate) fn offer(&mut self, snapshot: Option<RaftSnapshot>) {
        self.offered = snapshot;
    }
}

impl Storage for MemoryLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.start.clone())
    }

    /// At most `max_size` bytes of records and at least one entry; all of them where raft sets no bound,
    /// because it then looks for changes of members among those it has not applied.
    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<RaftEntry>> {
        if low <= self.base.index {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last() + 1 || low > high {
            return Err(StorageError::Unavailable.into());
        }
        let from = (low - self.base.index - 1) as usize;
        let range = self.entries.range(from..from + (high - low) as usize);
        let Some(most) = max_size.into() else {
            return Ok(range.map(|(entry, _)| entry.clone()).collect());
        };
        let mut bytes = 0_u64;
        let fits = |size: &u64| {
            let first = bytes == 0;
            bytes = bytes.saturating_add(*size).saturating_add(1);
            first || bytes <= most
        };
        let mut fits = fits;
        let range = range.take(MAX_ENTRIES).take_while(|(_, size)| fits(size));
        Ok(range.map(|(entry, _)| entry.clone()).collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base.index {
            return Ok(self.base.term);
        }
        match self.get(index) {
            Some(entry) => Ok(entry.term),
            None if index < self.base.index => Err(StorageError::Compacted.into()),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<RaftSnapshot> {
        let enough = self.base.index.max(request_index);
        let offered = self.offered.as_ref();
        match offered.filter(|snapshot| snapshot.get_metadata().index >= enough) {
            Some(snapshot) => Ok(snapshot.clone()),
            None => Err(StorageError::SnapshotTemporarilyUnavailable.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Content, Descriptor, Entry};
    use crate::translate::entry_in;

    fn entry(term: u64, index: u64, bytes: u32) -> RaftEntry {
        let content = Content::Records(Descriptor { bytes, ..Descriptor::default() });
        entry_in(&Entry { term, index, content })
    }

    fn log(sizes: &[u32]) -> MemoryLog {
        let base = Position { term: 1, index: 10 };
        let mut log = MemoryLog::new(base, HardState::default(), ConfState::default());
        for (index, bytes) in (11..).zip(sizes) {
            log.append(&[entry(2, index, *bytes)]);
        }
        log
    }

    fn indices(log: &MemoryLog, low: u64, high: u64, most: Option<u64>) -> Vec<u64> {
        let found = log.entries(low, high, most, GetEntriesContext::empty(false)).unwrap();
        found.iter().map(|entry| entry.index).collect()
    }

    #[test]
    fn a_message_takes_as_many_entries_as_their_records_allow_and_one_at_least() {
        let log = log(&[100, 100, 5000, 100]);
        assert_eq!(indices(&log, 11, 15, None), [11, 12, 13, 14]);
        assert_eq!(indices(&log, 11, 15, Some(202)), [11, 12]);
        assert_eq!(indices(&log, 11, 15, Some(201)), [11]);
        assert_eq!(indices(&log, 13, 15, Some(10)), [13], "a large one goes alone");
        assert_eq!(indices(&log, 14, 14, Some(10)), [0_u64; 0]);
        let context = || GetEntriesContext::empty(false);
        assert!(log.entries(10, 15, None, context()).is_err());
        assert!(log.entries(11, 16, None, context()).is_err());
    }

    #[test]
    fn an_entry_cuts_off_what_stood_in_its_place() {
        let mut log = log(&[1, 1, 1]);
        log.append(&[entry(3, 12, 1)]);
        assert_eq!(log.last(), 12);
        assert_eq!(log.term(12).unwrap(), 3);
        assert_eq!(log.term(10).unwrap(), 1);
        assert!(log.term(13).is_err() && log.term(9).is_err());
    }

    #[test]
    fn the_last_forgotten_entry_stays_as_the_base() {
        let mut log = log(&[1, 1, 1]);
        log.compact_to(12);
        assert_eq!(log.base(), Position { term: 2, index: 12 });
        assert_eq!(indices(&log, 13, 14, None), [13]);
        log.compact_to(99);
        log.compact_to(3);
        assert_eq!(log.len(), 1, "what is not there is not forgotten");
    }
}
