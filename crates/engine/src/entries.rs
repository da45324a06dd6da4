//! The entries of a set's log that this member's log holds, and what is not closed by one yet.
//!
//! Always true: indexes ascend by one; an entry's records stand together, right before its own record. Of
//! what an entry holds nothing is here: it is read from the log.

use crate::records::EntryHead;
use std::collections::VecDeque;

/// An entry, and where it stands in this member's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) head: EntryHead,
    /// Its first record, where that is known: at a start the log may be read from the middle of it.
    pub(crate) start: Option<u64>,
    /// Behind its records: its own record.
    pub(crate) end: u64,
    /// Behind its own record.
    pub(crate) behind: u64,
}

/// The last entry of a log's beginning that is known only by its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntryId {
    /// Its place in the set's log; 0 is before all.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// The last commit up to its end.
    pub timestamp: u64,
    /// The last cluster time up to its end.
    pub time: u64,
}

impl From<&EntryHead> for EntryId {
    fn from(head: &EntryHead) -> Self {
        let EntryHead { index, term, last_timestamp, last_time, .. } = *head;
        Self { index, term, timestamp: last_timestamp, time: last_time }
    }
}

/// The records since the last entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct OpenEntry {
    /// The first one, where there is one.
    pub(crate) start: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

impl OpenEntry {
    /// A record was appended at a position. Its bytes are those that members send to each other.
    pub(crate) fn append(&mut self, position: u64, pieces: &[&[u8]]) {
        self.start.get_or_insert(position);
        let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.checksum = crc32c::crc32c_append(self.checksum, &len.to_le_bytes());
        for piece in pieces {
            self.checksum = crc32c::crc32c_append(self.checksum, piece);
        }
        self.bytes = self.bytes.saturating_add(4 + u64::from(len));
    }
}

/// The entries that are known, the oldest first.
#[derive(Default)]
pub(crate) struct Entries {
    /// The entry before those.
    before: EntryId,
    list: VecDeque<Entry>,
    /// Entries up to here are known to be committed.
    committed: u64,
}

impl Entries {
    pub(crate) fn behind(before: EntryId) -> Self {
        Self { before, list: VecDeque::new(), committed: before.index }
    }

    /// The last one.
    pub(crate) fn last(&self) -> EntryId {
        self.list.back().map_or(self.before, |last| EntryId::from(&last.head))
    }

    /// The one before the first that is known.
    pub(crate) fn before(&self) -> EntryId {
        self.before
    }

    pub(crate) fn get(&self, index: u64) -> Option<&Entry> {
        let first = self.list.front()?.head.index;
        let entry = self.list.get(usize::try_from(index.checked_sub(first)?).ok()?)?;
        debug_assert_eq!(entry.head.index, index, "indexes ascend by one");
        Some(entry)
    }

    /// What is known of the entry with this index, which may be the one before all that are known.
    pub(crate) fn id_of(&self, index: u64) -> Option<EntryId> {
        if index == self.before.index {
            return Some(self.before);
        }
        self.get(index).map(|entry| EntryId::from(&entry.head))
    }

    /// The newest entry all of whose commits are at or below `timestamp`.
    pub(crate) fn last_up_to(&self, timestamp: u64) -> EntryId {
        let behind = self.list.partition_point(|entry| entry.head.last_timestamp <= timestamp);
        let last = behind.checked_sub(1).and_then(|at| self.list.get(at));
        last.map_or(self.before, |last| EntryId::from(&last.head))
    }

    /// Entries up to this one are committed.
    pub(crate) fn commit(&mut self, index: u64) {
        self.committed = self.committed.max(index);
    }

    /// The newest entry that is surely committed where commits up to `timestamp` are: entries without
    /// commits behind it need not be. And where the records begin that it does not close.
    pub(crate) fn surely_committed(&self, timestamp: u64, open: &OpenEntry) -> (EntryId, u64) {
        let behind = self.list.partition_point(|entry| entry.head.last_timestamp <= timestamp);
        let has_commits = |head: &EntryHead| head.first_timestamp <= head.last_timestamp;
        let is_sure =
            |entry: &Entry| entry.head.index <= self.committed || has_commits(&entry.head);
        let count = self.list.iter().take(behind).rposition(is_sure).map_or(0, |at| at + 1);
        let last = count.checked_sub(1).and_then(|at| self.list.get(at));
        let next = self.list.get(count).map(|next| next.start.unwrap_or(next.end));
        let next = next.unwrap_or(u64::MAX).min(open.start.unwrap_or(u64::MAX));
        (last.map_or(self.before, |last| EntryId::from(&last.head)), next)
    }

    /// One more; false where it does not follow.
    pub(crate) fn push(&mut self, entry: Entry) -> bool {
        let last = self.last();
        let follows = entry.head.index == last.index + 1
            && entry.head.term >= last.term
            && entry.head.last_timestamp >= last.timestamp;
        if follows {
            self.list.push_back(entry);
        }
        follows
    }

    /// Entries from `index` on are void.
    pub(crate) fn cut(&mut self, index: u64) {
        while self.list.back().is_some_and(|last| last.head.index >= index) {
            self.list.pop_back();
        }
    }

    /// The log begins at `position` now: entries whose records are gone are no longer known.
    pub(crate) fn trim(&mut self, position: u64) {
        while let Some(first) = self.list.front()
            && first.start.is_none_or(|start| start < position)
            && self.list.len() > 1
        {
            self.before = EntryId::from(&first.head);
            self.list.pop_front();
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntryKind;

    fn entry(index: u64, (first, last): (u64, u64)) -> Entry {
        let head = EntryHead {
            index,
            term: 1,
            kind: EntryKind::Records,
            first_timestamp: first,
            last_timestamp: last,
            last_time: last * 10,
            committed: 0,
            bytes: 0,
            checksum: 0,
        };
        let start = index * 100;
        Entry { head, start: Some(start), end: start + 50, behind: start + 60 }
    }

    fn entries() -> Entries {
        let mut entries = Entries::behind(EntryId { index: 4, term: 1, timestamp: 40, time: 400 });
        for (index, commits) in [(5, (41, 45)), (6, (46, 45)), (7, (46, 49)), (8, (50, 49))] {
            assert!(entries.push(entry(index, commits)));
        }
        assert!(!entries.push(entry(10, (50, 52))), "one is missing");
        assert!(!entries.push(entry(9, (46, 48))), "commits go back");
        entries
    }

    #[test]
    fn entries_without_commits_are_not_surely_committed() {
        let none = OpenEntry::default();
        let open = OpenEntry { start: Some(870), ..OpenEntry::default() };
        for (committed, timestamp, open, index, next) in [
            (0, 44, none, 4, 500),
            (0, 45, none, 5, 600),
            (6, 45, none, 6, 700),
            (0, 49, none, 7, 800),
            (7, 60, none, 7, 800),
            (8, 49, none, 8, u64::MAX),
            (8, 49, open, 8, 870),
            // What is committed and not visible yet is in no checkpoint.
            (8, 45, none, 6, 700),
        ] {
            let mut entries = entries();
            entries.commit(committed);
            let (sure, from) = entries.surely_committed(timestamp, &open);
            assert_eq!((sure.index, from), (index, next), "{committed}, {timestamp}");
        }
    }

    #[test]
    fn entries_are_cut_and_trimmed() {
        let mut entries = entries();
        entries.cut(7);
        assert_eq!((entries.last().index, entries.last().timestamp), (6, 45));
        assert!(entries.get(7).is_none());
        entries.trim(650);
        assert_eq!((entries.before().index, entries.id_of(5).map(|id| id.index)), (5, Some(5)));
        assert_eq!(entries.last_up_to(45).index, 6);
    }
}
