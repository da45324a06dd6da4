//! The chunks of other members' transactions whose commit has not come yet.
//!
//! Leaders of earlier programs gave transaction ids that chunks of another leader had in their log. So two lists of chunks may
//! have one id, and which of them stays in the log is not decided before an entry of the later term is: an earlier
//! leader's entries may take the place of the later ones again, and bring the commit of the first list.
//!
//! Always true:
//! 1. What comes next under an id is of the newest list that has it.
//! 2. A list ends by its commit, by an abort, where its first chunk is void, or once an entry of a later term is
//!    committed. Whoever ends it tells the log's index that its chunks are not needed, once.

use std::collections::BTreeMap;

/// The chunks of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chunked {
    /// Where the first one is in the log.
    pub(crate) first: u64,
    /// The first entry of a later term: once that is committed, their commit never comes.
    pub(crate) fence: Option<u64>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct ChunkLists {
    /// (Transaction, position of the first chunk) → the first entry of a later term.
    fences: BTreeMap<(u64, u64), Option<u64>>,
}

impl ChunkLists {
    /// A list begins here, or is known to have begun.
    pub(crate) fn begin(&mut self, txn: u64, chunked: Chunked) {
        let before = self.fences.insert((txn, chunked.first), chunked.fence);
        debug_assert_eq!(before, None, "one list begins at a position");
    }

    /// That of the transaction that this id is of now.
    pub(crate) fn newest(&self, txn: u64) -> Option<Chunked> {
        let (&(_, first), &fence) = self.fences.range((txn, 0)..=(txn, u64::MAX)).next_back()?;
        Some(Chunked { first, fence })
    }

    /// The newest list of this id is over: where its first chunk is.
    pub(crate) fn end(&mut self, txn: u64) -> Option<u64> {
        let first = self.newest(txn)?.first;
        self.fences.remove(&(txn, first));
        Some(first)
    }

    /// An entry of a later term comes.
    pub(crate) fn note_fence(&mut self, index: u64) {
        for fence in self.fences.values_mut() {
            fence.get_or_insert(index);
        }
    }

    /// Entries up to `index` are committed: ends the lists whose commit cannot come any more. Each is told with its
    /// transaction and the position of its first chunk.
    pub(crate) fn decide(&mut self, index: u64, mut tell: impl FnMut(u64, u64)) {
        self.fences.retain(|(txn, first), fence| {
            let is_over = fence.is_some_and(|fence| fence <= index);
            if is_over {
                tell(*txn, *first);
            }
            !is_over
        });
    }

    /// Entries from `index` on, and records from `from` on, are void. Lists from before may still get their commit: other
    /// members may have it in an entry that comes again. What a void entry says of them is void.
    pub(crate) fn cut(&mut self, from: u64, index: u64) {
        self.fences.retain(|(_, first), _| *first < from);
        for fence in self.fences.values_mut() {
            *fence = fence.filter(|fence| *fence < index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(first: u64) -> Chunked {
        Chunked { first, fence: None }
    }

    fn decided(lists: &mut ChunkLists, index: u64) -> Vec<(u64, u64)> {
        let mut told = Vec::new();
        lists.decide(index, |txn, first| told.push((txn, first)));
        told
    }

    #[test]
    fn two_lists_of_one_id_are_kept_until_it_is_decided_which_one_counts() {
        let mut lists = ChunkLists::default();
        lists.begin(3, at(100));
        lists.note_fence(7);
        lists.begin(3, at(200));
        lists.begin(2, at(300));
        assert_eq!(lists.newest(3), Some(at(200)));
        assert_eq!(decided(&mut lists, 6), []);
        assert_eq!(decided(&mut lists, 7), [(3, 100)]);
        assert_eq!(decided(&mut lists, 7), [], "it is told once");
        assert_eq!((lists.end(3), lists.end(3), lists.end(2)), (Some(200), None, Some(300)));
    }

    #[test]
    fn the_first_counts_again_where_the_later_one_is_void() {
        let mut lists = ChunkLists::default();
        lists.begin(3, at(100));
        lists.note_fence(7);
        lists.begin(3, at(200));
        lists.cut(150, 7);
        assert_eq!(lists.newest(3), Some(at(100)), "and so does the entry of a later term not");
        assert_eq!(decided(&mut lists, 9), []);
        assert_eq!((lists.end(3), lists.end(3)), (Some(100), None));
    }
}
