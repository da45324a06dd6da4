//! What raft can look up of the log: a window of entries, without their records.
//!
//! `base` is the entry before the window; the window ends with the last entry that was handed out to be
//! written. Indices in it ascend by one. What lies before goes by [`MemoryLog::compact_to`], and a leader may
//! still have it from who keeps it longer ([`Older`]).
//!
//! Always true: of older entries nothing is kept here. They are decided and never change, but may be gone by
//! the time they are asked for; then they are compacted, as raft calls it. Only a leader looks for them: what a
//! follower does with a message follows from its window alone.

use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry as RaftEntry, HardState, Snapshot as RaftSnapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::codec::MAX_ENTRIES;
use crate::entry::{Entry, Position};
use crate::translate::{entry_in, entry_out};

/// Older entries in one message: their records come from the disk, and the leader has to be heard of meanwhile.
const MOST_OLDER: usize = 512;

/// Who has entries from before the window: the member's own log.
pub trait Older: Send {
    /// The first that can be had. The place of the one before it is known.
    fn first(&self) -> u64;

    /// Of that index, where it can be had or is the one before the first.
    fn position(&self, index: u64) -> Option<Position>;

    /// Entries from `low` on and before `high`, in order and without gaps, `most` at most. Fewer where they
    /// have more than `most_bytes` bytes of records, or where the others cannot be had.
    fn entries(&self, low: u64, high: u64, most: usize, most_bytes: u64) -> Vec<Entry>;
}

/// The window.
pub(crate) struct MemoryLog {
    older: Option<Box<dyn Older>>,
    /// The first entry that this member, as a leader, can send.
    first: Option<u64>,
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
        let (entries, older, first, offered) = (VecDeque::new(), None, None, None);
        Self { older, first, base, entries, start, offered }
    }

    /// Who has what is before the window.
    pub(crate) fn set_older(&mut self, older: Box<dyn Older>) {
        self.older = Some(older);
    }

    /// The first entry that the log behind the window has, where that is known.
    pub(crate) fn first_in_the_log(&self) -> Option<u64> {
        self.older.as_deref().map(Older::first)
    }

    /// Whether older entries are looked for now. Asks how far back they reach.
    pub(crate) fn look_back(&mut self, looks: bool) {
        let older = self.older.as_deref().filter(|_| looks);
        let base = self.base;
        self.first = older.and_then(|older| {
            let first = older.first();
            // The base is in the log that has been written, unless that begins anew.
            let reaches = first <= base.index && older.position(base.index) == Some(base);
            reaches.then_some(first)
        });
    }

    /// Entries from before the window.
    fn older_entries(&self, low: u64, high: u64, most_bytes: u64) -> Option<Vec<RaftEntry>> {
        let older = self.older.as_deref()?;
        let high = high.min(self.base.index + 1);
        let found = older.entries(low, high, MOST_OLDER, most_bytes);
        let in_order = (low..high).zip(found).take_while(|(index, entry)| entry.index == *index);
        let mut fits = fits(most_bytes);
        let entries = in_order
            .map(|(_, entry)| entry)
            .take(MOST_OLDER)
            .take_while(|entry| fits(entry.record_bytes()));
        let entries: Vec<_> = entries.map(|entry| entry_in(&entry)).collect();
        (!entries.is_empty() || low == high).then_some(entries)
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
        self.first = None;
        self.entries.clear();
    }

    /// What a member gets that needs entries from before the window.
    pub(crate) fn offer(&mut self, snapshot: Option<RaftSnapshot>) {
        self.offered = snapshot;
    }
}

/// Says of one entry after the other whether its records go into a message of so many bytes: the first does.
fn fits(most_bytes: u64) -> impl FnMut(u64) -> bool {
    let mut bytes = 0_u64;
    move |size| {
        let first = bytes == 0;
        bytes = bytes.saturating_add(size).saturating_add(1);
        first || bytes <= most_bytes
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
            let most_bytes: Option<u64> = max_size.into();
            let looks = self.first.is_some_and(|first| first <= low) && low <= high;
            let found = most_bytes.filter(|_| looks);
            let found = found.and_then(|most_bytes| self.older_entries(low, high, most_bytes));
            return found.ok_or_else(|| StorageError::Compacted.into());
        }
        if high > self.last() + 1 || low > high {
            return Err(StorageError::Unavailable.into());
        }
        let from = (low - self.base.index - 1) as usize;
        let range = self.entries.range(from..from + (high - low) as usize);
        let Some(most) = max_size.into() else {
            return Ok(range.map(|(entry, _)| entry.clone()).collect());
        };
        let mut fits = fits(most);
        let range = range.take(MAX_ENTRIES).take_while(|(_, size)| fits(*size));
        Ok(range.map(|(entry, _)| entry.clone()).collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base.index {
            return Ok(self.base.term);
        }
        match self.get(index) {
            Some(entry) => Ok(entry.term),
            None if index < self.base.index => {
                let older = self.older.as_deref();
                let older = older.filter(|_| self.first.is_some_and(|first| first <= index + 1));
                let position = older.and_then(|older| older.position(index));
                position.map(|at| at.term).ok_or_else(|| StorageError::Compacted.into())
            }
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first.unwrap_or(self.base.index + 1))
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<RaftSnapshot> {
        let before = self.first.map_or(self.base.index, |first| first.saturating_sub(1));
        let enough = before.max(request_index);
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
    use crate::entry::{Content, Descriptor};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

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

    /// A log of entries of 100 bytes, of term 2, from this index on.
    struct From(Arc<AtomicU64>);

    impl Older for From {
        fn first(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn position(&self, index: u64) -> Option<Position> {
            (index + 1 >= self.first()).then_some(Position { term: 2, index })
        }

        fn entries(&self, low: u64, high: u64, most: usize, _most_bytes: u64) -> Vec<Entry> {
            let from = if low >= self.first() { low } else { high };
            let content = Content::Records(Descriptor { bytes: 100, ..Descriptor::default() });
            let entry = |index| Entry { term: 2, index, content: content.clone() };
            (from..high).map(entry).take(most).collect()
        }
    }

    #[test]
    fn what_is_before_the_window_comes_from_the_log_while_it_is_there() {
        let mut log = log(&[100, 100, 100]);
        log.compact_to(12);
        let first = Arc::new(AtomicU64::new(5));
        log.set_older(Box::new(From(Arc::clone(&first))));
        let context = || GetEntriesContext::empty(false);
        let refused = |log: &MemoryLog, low: u64| log.entries(low, 14, 999, context()).is_err();
        assert!(log.first_index() == Ok(13) && refused(&log, 12), "it does not look back yet");
        log.look_back(true);
        assert_eq!((log.first_index(), log.term(4), log.term(12)), (Ok(5), Ok(2), Ok(2)));
        assert_eq!(indices(&log, 5, 14, Some(404)), [5, 6, 7, 8]);
        assert_eq!(indices(&log, 5, 7, Some(404)), [5, 6]);
        assert_eq!(indices(&log, 9, 14, Some(9999)), [9, 10, 11, 12], "those behind go later");
        assert_eq!(indices(&log, 9, 14, Some(1)), [9], "a large one goes alone");
        assert!(refused(&log, 4) && log.term(3).is_err());
        assert!(log.entries(5, 14, None, context()).is_err(), "all of them are too many");
        // The log was trimmed since it was asked.
        first.store(9, Ordering::Relaxed);
        assert!(refused(&log, 8) && log.term(7).is_err() && log.term(8) == Ok(2));
        log.look_back(true);
        assert_eq!(log.first_index(), Ok(9));
        first.store(13, Ordering::Relaxed);
        log.look_back(true);
        assert!(log.first_index() == Ok(13) && refused(&log, 12), "it has no older ones");
        first.store(5, Ordering::Relaxed);
        log.look_back(false);
        assert_eq!(log.first_index(), Ok(13));
        // A log that does not have the base is not this member's any more.
        log.look_back(true);
        log.restart(Position { term: 3, index: 40 });
        assert_eq!(log.first_index(), Ok(41));
        log.look_back(true);
        assert_eq!(log.first_index(), Ok(41));
    }
}
