//! The translation table in memory: where each segment is, and what the next checkpoint has to say
//! about that.
//!
//! What is always true: a segment whose entry differs from what the newest completed checkpoint
//! says of it is `touched`.

use std::collections::{BTreeMap, BTreeSet};

use crate::checkpoint::CheckpointMark;
use crate::translation::{Change, Entry, SegmentId};

/// A segment's place, and when it was freed.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) entry: Entry,
    pub(crate) dropped: Option<u64>,
    /// The newest completed checkpoint names it.
    saved: bool,
}

impl Slot {
    pub(crate) fn is_live(&self) -> bool {
        self.dropped.is_none()
    }
}

#[derive(Default)]
pub(crate) struct Table {
    slots: BTreeMap<u64, Slot>,
    touched: BTreeSet<u64>,
}

impl Table {
    /// What a completed checkpoint says.
    pub(crate) fn load(entries: impl Iterator<Item = (SegmentId, Entry)>) -> Self {
        let slot = |entry| Slot { entry, dropped: None, saved: true };
        let slots = entries.map(|(id, entry)| (id.0, slot(entry))).collect();
        Self { slots, touched: BTreeSet::new() }
    }

    pub(crate) fn get(&self, id: SegmentId) -> Option<&Slot> {
        self.slots.get(&id.0)
    }

    /// Segments nobody has freed, ids ascending.
    pub(crate) fn live(&self) -> impl Iterator<Item = (SegmentId, &Slot)> {
        let live = self.slots.iter().filter(|(_, slot)| slot.is_live());
        live.map(|(id, slot)| (SegmentId(*id), slot))
    }

    pub(crate) fn add(&mut self, id: SegmentId, entry: Entry) {
        let before = self.slots.insert(id.0, Slot { entry, dropped: None, saved: false });
        assert!(before.is_none(), "the number of a segment is used once");
        self.touched.insert(id.0);
    }

    /// Freed at this epoch; answers its entry, `None` where it is not live.
    pub(crate) fn free(&mut self, id: SegmentId, epoch: u64) -> Option<Entry> {
        let slot = self.slots.get_mut(&id.0).filter(|slot| slot.is_live())?;
        slot.dropped = Some(epoch);
        self.touched.insert(id.0);
        Some(slot.entry)
    }

    /// A live segment that was at `from` is now at `to`; false where it was not there any more.
    pub(crate) fn relocate(&mut self, id: SegmentId, from: u64, to: u64) -> bool {
        let slot = self.slots.get_mut(&id.0);
        let Some(slot) = slot.filter(|slot| slot.is_live() && slot.entry.unit == from) else {
            return false;
        };
        slot.entry.unit = to;
        self.touched.insert(id.0);
        true
    }

    /// Nobody can see it any more, and the newest checkpoint does not name it.
    pub(crate) fn remove(&mut self, id: SegmentId) {
        self.slots.remove(&id.0);
        self.touched.remove(&id.0);
    }

    /// All a checkpoint says: what the one before said, with its changes, ids ascending. Segments
    /// that came after the changes were taken are not in it.
    pub(crate) fn whole(&self, changes: &[Change]) -> Vec<(SegmentId, Entry)> {
        let unchanged = |id: u64| changes.binary_search_by_key(&id, |(id, _)| id.0).is_err();
        let old = self.slots.iter().filter(|(id, slot)| slot.saved && unchanged(**id));
        let mut entries: Vec<_> = old.map(|(id, slot)| (SegmentId(*id), slot.entry)).collect();
        entries.extend(changes.iter().filter_map(|(id, entry)| Some((*id, (*entry)?))));
        entries.sort_unstable_by_key(|(id, _)| *id);
        entries
    }

    /// What a checkpoint says differently from the one before it: where a segment is now, or that
    /// it is gone. It goes back by [`Table::put_back`], or is said by [`Table::saved`].
    pub(crate) fn take_changes(&mut self, mark: CheckpointMark) -> Vec<Change> {
        let mut changes = Vec::with_capacity(self.touched.len());
        for id in std::mem::take(&mut self.touched) {
            let Some(slot) = self.slots.get(&id) else { continue };
            let named = id < mark.next_id && shows(mark, slot);
            if named || slot.saved {
                changes.push((SegmentId(id), named.then_some(slot.entry)));
            }
            // The checkpoint after this one will have to say it again.
            if id >= mark.next_id || named && !slot.is_live() {
                self.touched.insert(id);
            }
        }
        changes
    }

    pub(crate) fn put_back(&mut self, changes: Vec<Change>) {
        self.touched.extend(changes.into_iter().map(|(id, _)| id.0));
    }

    /// The checkpoint that says these changes is complete.
    pub(crate) fn saved(&mut self, changes: &[Change]) {
        for (id, entry) in changes {
            if let Some(slot) = self.slots.get_mut(&id.0) {
                slot.saved = entry.is_some();
            }
        }
    }
}

/// Live at the mark, for a segment that was begun before it.
fn shows(mark: CheckpointMark, slot: &Slot) -> bool {
    slot.dropped.is_none_or(|dropped| dropped >= mark.epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(unit: u64) -> Entry {
        Entry { unit, bytes: 1, kind: 0 }
    }

    #[test]
    fn checkpoint_says_each_difference_once() {
        let mut table = Table::default();
        let mark = |epoch, next_id| CheckpointMark { epoch, next_id, frees: 0 };
        let id = SegmentId;
        for number in 1..=4 {
            table.add(id(number), entry(number));
        }
        let first = table.take_changes(mark(0, 4));
        assert_eq!(first.len(), 3, "the fourth is behind the mark");
        table.put_back(first.clone());
        let first = table.take_changes(mark(0, 4));
        table.saved(&first);
        table.free(id(2), 0).unwrap();
        assert!(table.relocate(id(3), 3, 30) && !table.relocate(id(2), 2, 20));
        table.free(id(4), 1).unwrap();
        // The second was freed after this mark, the fourth too.
        let second = table.take_changes(mark(0, 9));
        let said = vec![(id(2), Some(entry(2))), (id(3), Some(entry(30))), (id(4), Some(entry(4)))];
        assert_eq!(second, said);
        table.saved(&second);
        let third = table.take_changes(mark(2, 9));
        assert_eq!(third, vec![(id(2), None), (id(4), None)]);
        table.saved(&third);
        table.remove(id(2));
        table.remove(id(4));
        assert_eq!(table.take_changes(mark(2, 9)), []);
        assert_eq!(table.whole(&[]), vec![(id(1), entry(1)), (id(3), entry(30))]);
    }

    #[test]
    fn segment_that_comes_between_changes_and_whole_is_in_neither() {
        let mut table = Table::default();
        let (mark, id) = (CheckpointMark { epoch: 0, next_id: 9, frees: 0 }, SegmentId);
        table.add(id(1), entry(1));
        let changes = table.take_changes(mark);
        table.add(id(2), entry(2));
        assert_eq!(table.whole(&changes), vec![(id(1), entry(1))]);
        table.saved(&changes);
        assert_eq!(table.take_changes(mark), vec![(id(2), Some(entry(2)))]);
    }
}
