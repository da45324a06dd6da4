//! The entries of a set's log that this member's log holds.
//!
//! Always true: indexes ascend by one; an entry's records stand before its own record, in the order of entries,
//! and none of another entry is among them; records of entries themselves may be. Of what an entry holds
//! nothing is here: it is read from the log. `before` ≤ `base` ≤ what is committed ≤ the last: entries up to
//! `base` are decided and in the checkpoint, and are known only so that others can get them.

use crate::open_records::GatheredRecords;
use crate::records::{EntryHead, EntryKind};
use std::collections::VecDeque;
use std::sync::Arc;

/// The term of the entry with index 1, which is where sets' logs begin: no record of it is in the log.
pub(crate) const FIRST_TERM: u64 = 1;

/// An entry, and where it stands in this member's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) head: EntryHead,
    /// Its first record; its own one where it has none.
    pub(crate) start: u64,
    /// Behind the last of its records.
    pub(crate) until: u64,
    /// Its own record.
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

impl EntryId {
    /// What the next entry says of its records where it has none.
    pub(crate) fn without_records(&self) -> GatheredRecords {
        let (last_timestamp, last_time) = (self.timestamp, self.time);
        GatheredRecords { last_timestamp, last_time, bytes: 0, checksum: 0 }
    }
}

impl From<&EntryHead> for EntryId {
    fn from(head: &EntryHead) -> Self {
        let EntryHead { index, term, last_timestamp, last_time, .. } = *head;
        Self { index, term, timestamp: last_timestamp, time: last_time }
    }
}

/// Entries that stay in memory though the checkpoint has them, for members that were away: some 120 MB of
/// them. Who needs older ones needs another member's state as well.
pub(crate) const MOST_OLDER: usize = 1_000_000;

/// The entries that are known, the oldest first.
#[derive(Default)]
pub(crate) struct Entries {
    /// The entry before those.
    before: EntryId,
    /// The entry of the newest checkpoint.
    base: EntryId,
    list: VecDeque<Entry>,
    /// Entries up to here are known to be committed.
    committed: u64,
    /// The configurations that count behind entries, as they were told: the last at or before `before`, and
    /// those since.
    configurations: VecDeque<(u64, Arc<[u8]>)>,
}

impl Entries {
    pub(crate) fn behind(before: EntryId) -> Self {
        Self { before, base: before, committed: before.index, ..Self::default() }
    }

    /// Older ones, up to that of the checkpoint, which a start has found in the log. Of the first of them the
    /// entry before is not known, so that it becomes that; the beginning of a set's log is.
    pub(crate) fn look_back(&mut self, older: Vec<Entry>) {
        debug_assert!(self.before == self.base, "it looks back once");
        let reaches = older.last().is_some_and(|last| EntryId::from(&last.head) == self.base);
        let Some(first) = older.first().filter(|_| reaches) else { return };
        let begins = first.head.index == 2;
        self.before = if begins {
            let timestamp = first.head.first_timestamp.saturating_sub(1);
            // When its last commit was is asked of the last entry only.
            EntryId { index: 1, term: FIRST_TERM, timestamp, time: 0 }
        } else {
            EntryId::from(&first.head)
        };
        for entry in older.into_iter().skip(usize::from(!begins)).rev() {
            self.list.push_front(entry);
        }
        self.forget_older(MOST_OLDER);
    }

    /// A checkpoint is complete, which has the entries up to this one.
    pub(crate) fn checkpointed(&mut self, index: u64) {
        if let Some(base) = self.id_of(index).filter(|base| base.index > self.base.index) {
            self.base = base;
        }
        self.forget_older(MOST_OLDER);
    }

    /// Lets go of the oldest where the checkpoint has more than `most`.
    fn forget_older(&mut self, most: usize) {
        for _ in most..self.older() {
            self.forget_first();
        }
        self.forget_configurations();
    }

    /// How many there are that the checkpoint has.
    fn older(&self) -> usize {
        let older = self.base.index.saturating_sub(self.before.index);
        usize::try_from(older).unwrap_or(usize::MAX).min(self.list.len())
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.list.pop_front() {
            self.before = EntryId::from(&first.head);
            if self.before.index > self.base.index {
                self.base = self.before;
            }
        }
    }

    /// The last one.
    pub(crate) fn last(&self) -> EntryId {
        self.list.back().map_or(self.before, |last| EntryId::from(&last.head))
    }

    /// The one before the first that is known.
    pub(crate) fn before(&self) -> EntryId {
        self.before
    }

    /// That of the newest checkpoint, with which a start begins.
    pub(crate) fn base(&self) -> EntryId {
        self.base
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

    /// The last one that is known to be committed.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// Entries up to this one are committed.
    pub(crate) fn commit(&mut self, index: u64) {
        self.committed = self.committed.max(index);
    }

    /// The newest entry that is surely committed where commits up to `timestamp` are (entries without commits
    /// behind it need not be), and for which the configuration is known. And where the records begin that it
    /// does not close, if there are any.
    pub(crate) fn surely_committed(&self, timestamp: u64) -> (EntryId, Option<u64>) {
        // What the checkpoint before this one has stays decided.
        let older = self.older();
        let behind = self.list.partition_point(|entry| entry.head.last_timestamp <= timestamp);
        let has_commits = |head: &EntryHead| head.first_timestamp <= head.last_timestamp;
        let is_sure =
            |entry: &Entry| entry.head.index <= self.committed || has_commits(&entry.head);
        let sure = self.list.range(..behind.max(older)).rposition(is_sure);
        let mut count = sure.map_or(0, |at| at + 1).max(older);
        let mut changes = self.list.iter().enumerate().take(count).skip(older).rev();
        while let Some((at, change)) =
            changes.find(|(_, entry)| entry.head.kind == EntryKind::Configuration)
        {
            let last = self.list.get(count.saturating_sub(1)).map_or(0, |last| last.head.index);
            if self.configurations.iter().any(|(told, _)| (change.head.index..=last).contains(told))
            {
                break;
            }
            // What it has changed is not known: up to before it, it is.
            count = at;
        }
        let last = count.checked_sub(1).and_then(|at| self.list.get(at));
        let next = self.list.range(count..).map(|entry| entry.start).min();
        (last.map_or(self.before, |last| EntryId::from(&last.head)), next)
    }

    /// Where the records begin of entries from `index` on. One without records begins with its own, behind
    /// which those of the next one need not stand.
    pub(crate) fn records_from(&self, index: u64) -> Option<u64> {
        let list = self.list.iter().rev().take_while(|entry| entry.head.index >= index);
        list.map(|entry| entry.start).min()
    }

    /// This configuration counts behind the entry `index`. What counted before the first entry is forgotten
    /// where a later one will do.
    pub(crate) fn configure(&mut self, index: u64, configuration: Arc<[u8]>) {
        if configuration.is_empty()
            || self.configurations.back().is_some_and(|(told, _)| *told >= index)
        {
            return;
        }
        self.configurations.push_back((index, configuration));
        self.forget_configurations();
    }

    /// The configuration that counts behind an entry, where it was told since the last change up to there.
    /// And with which entry.
    pub(crate) fn configuration_at(&self, index: u64) -> Option<(u64, Arc<[u8]>)> {
        self.configurations.iter().rev().find(|(told, _)| *told <= index).cloned()
    }

    fn forget_configurations(&mut self) {
        while self.configurations.get(1).is_some_and(|(next, _)| *next <= self.before.index) {
            self.configurations.pop_front();
        }
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
            && first.start < position
            && self.list.len() > 1
        {
            self.forget_first();
        }
        self.forget_configurations();
    }

    /// Those behind an index.
    pub(crate) fn behind_index(&self, index: u64) -> impl Iterator<Item = &Entry> {
        let known = index.saturating_sub(self.before.index);
        let skipped = usize::try_from(known).unwrap_or(usize::MAX).min(self.list.len());
        self.list.range(skipped..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        Entry { head, start, until: start + 50, end: start + 50, behind: start + 60 }
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
        for (committed, timestamp, index, next) in [
            (0, 44, 4, Some(500)),
            (0, 45, 5, Some(600)),
            (6, 45, 6, Some(700)),
            (0, 49, 7, Some(800)),
            (7, 60, 7, Some(800)),
            (8, 49, 8, None),
            // What is committed and not visible yet is in no checkpoint.
            (8, 45, 6, Some(700)),
        ] {
            let mut entries = entries();
            entries.commit(committed);
            let (sure, from) = entries.surely_committed(timestamp);
            assert_eq!((sure.index, from), (index, next), "{committed}, {timestamp}");
        }
    }

    #[test]
    fn a_checkpoint_names_no_entry_whose_configuration_is_not_known() {
        let told = |indexes: &[u64]| {
            let mut entries = entries();
            for at in [1, 3] {
                entries.list[at].head.kind = EntryKind::Configuration;
            }
            entries.commit(8);
            for index in indexes {
                entries.configure(*index, index.to_le_bytes().as_slice().into());
            }
            let sure = entries.surely_committed(49).0.index;
            let known = entries.configuration_at(sure).map(|(_, known)| known[0]);
            (sure, known)
        };
        assert_eq!(told(&[4]), (5, Some(4)));
        assert_eq!(told(&[4, 6]), (7, Some(6)));
        assert_eq!(told(&[4, 7]), (7, Some(7)));
        assert_eq!(told(&[4, 8]), (8, Some(8)), "one behind both will do");
        assert_eq!(told(&[4, 6, 8]), (8, Some(8)));
        let mut entries = entries();
        entries.configure(4, (*b"old").into());
        entries.configure(6, (*b"new").into());
        entries.trim(750);
        assert_eq!(entries.configuration_at(6), Some((6, (*b"new").into())));
        assert_eq!(entries.configurations.len(), 1);
    }

    #[test]
    fn records_of_an_entry_may_stand_before_the_one_before_it() {
        let mut entries = entries();
        entries.list[3].start = 650;
        assert_eq!(entries.surely_committed(45), (entries.id_of(5).unwrap(), Some(600)));
        entries.commit(6);
        assert_eq!(entries.surely_committed(45).1, Some(650));
        assert_eq!(
            [7, 8, 9].map(|index| entries.records_from(index)),
            [Some(650), Some(650), None]
        );
    }

    #[test]
    fn entries_are_cut_and_trimmed() {
        let mut entries = entries();
        entries.cut(7);
        assert_eq!((entries.last().index, entries.last().timestamp), (6, 45));
        assert!(entries.get(7).is_none());
        entries.trim(650);
        assert_eq!((entries.before().index, entries.id_of(5).map(|id| id.index)), (5, Some(5)));
    }

    #[test]
    fn older_entries_are_known_and_change_nothing_of_what_is_decided() {
        let list = || (5..9).map(|index| entry(index, (index, index))).collect::<Vec<_>>();
        let base = EntryId::from(&list()[3].head);
        let mut entries = Entries::behind(base);
        entries.look_back(list());
        // Nobody knows the entry before the first.
        assert_eq!((entries.before().index, entries.base(), entries.last()), (5, base, base));
        assert_eq!(
            entries.behind_index(6).map(|entry| entry.head.index).collect::<Vec<_>>(),
            [7, 8]
        );
        assert_eq!(entries.committed(), 8);
        assert_eq!(entries.surely_committed(0), (base, None), "not before the last checkpoint");
        assert!(entries.push(entry(9, (9, 9))));
        assert_eq!(entries.surely_committed(0), (base, Some(900)));
        assert_eq!((entries.surely_committed(9).0.index, entries.records_from(9)), (9, Some(900)));
        entries.cut(9);
        assert_eq!(entries.last(), base);
        // What does not end with the checkpoint's entry is not taken.
        for not_these in [Vec::new(), list()[..3].to_vec()] {
            let mut entries = Entries::behind(base);
            entries.look_back(not_these);
            assert_eq!((entries.before(), entries.behind_index(0).count()), (base, 0));
        }
        let mut entries = Entries::behind(EntryId::from(&entry(3, (3, 3)).head));
        entries.look_back(vec![entry(2, (2, 2)), entry(3, (3, 3))]);
        let first = EntryId { index: 1, term: 1, timestamp: 1, time: 0 };
        assert_eq!((entries.before(), entries.get(2).is_some()), (first, true), "the beginning");
    }

    #[test]
    fn the_oldest_go_where_there_are_too_many_and_none_that_the_checkpoint_lacks() {
        let mut entries = entries();
        entries.forget_older(0);
        assert_eq!(entries.before().index, 4, "the checkpoint has none of them");
        entries.checkpointed(7);
        assert_eq!((entries.before().index, entries.base().index), (4, 7));
        entries.forget_older(2);
        assert_eq!((entries.before().index, entries.base().index), (5, 7));
        entries.forget_older(0);
        assert_eq!((entries.before().index, entries.last().index), (7, 8));
    }
}
