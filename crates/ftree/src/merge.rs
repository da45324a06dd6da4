//! Many ordered sources as one: the tournament under cursors, drains and flushes.
//!
//! Sources are given newest first. Always true: the entry on top is the least one (the greatest,
//! going backward) of all sources, and of equal versions the newest source's.

use crate::error::Result;
use crate::memtable::MemIter;
use crate::message::{Direction, Entry, head};
use crate::overlay::OverlayIter;
use crate::rows::RowsIter;
use crate::segment::SegmentIter;
use crate::sort_run::RunIter;
use std::cmp::Ordering;

/// One ordered stream of entries.
pub(crate) enum MergeSource {
    Memory(MemIter),
    Segment(Box<SegmentIter>),
    Overlay(Box<OverlayIter>),
    Rows(RowsIter),
    Run(Box<RunIter>),
}

impl MergeSource {
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        match self {
            MergeSource::Memory(iter) => iter.entry(),
            MergeSource::Segment(iter) => iter.entry(),
            MergeSource::Overlay(iter) => iter.entry(),
            MergeSource::Rows(iter) => iter.entry(),
            MergeSource::Run(iter) => iter.entry(),
        }
    }

    /// May read the disk.
    pub(crate) fn advance(&mut self) -> Result<()> {
        match self {
            MergeSource::Memory(iter) => {
                iter.advance();
                Ok(())
            }
            MergeSource::Segment(iter) => iter.advance(),
            MergeSource::Overlay(iter) => iter.advance(),
            MergeSource::Rows(iter) => {
                iter.advance();
                Ok(())
            }
            MergeSource::Run(iter) => iter.advance(),
        }
    }
}

/// Merges sources; they all go in the same direction.
pub(crate) struct Merge {
    sources: Vec<MergeSource>,
    /// The first eight bytes of each source's key.
    heads: Vec<u64>,
    /// Sources that have an entry, the one on top last.
    ranked: Vec<usize>,
    direction: Direction,
}

impl Merge {
    pub(crate) fn new(sources: Vec<MergeSource>, direction: Direction) -> Self {
        let count = sources.len();
        let mut merge =
            Self { sources, heads: vec![0; count], ranked: Vec::with_capacity(count), direction };
        for source in 0..count {
            merge.rank(source);
        }
        merge
    }

    /// The entry on top.
    pub(crate) fn top(&self) -> Option<Entry<'_>> {
        self.sources[*self.ranked.last()?].entry()
    }

    /// The entry on top and the number of its source, the newest being 0.
    pub(crate) fn top_from(&self) -> Option<(Entry<'_>, usize)> {
        let source = *self.ranked.last()?;
        Some((self.sources[source].entry()?, source))
    }

    /// Steps over the entry on top. May read the disk.
    pub(crate) fn advance(&mut self) -> Result<()> {
        if let Some(source) = self.ranked.pop() {
            self.sources[source].advance()?;
            self.rank(source);
        }
        Ok(())
    }

    /// Sources, newest first.
    pub(crate) fn sources(&self) -> &[MergeSource] {
        &self.sources
    }

    /// Sources back, newest first; the merge is over.
    pub(crate) fn into_sources(self) -> Vec<MergeSource> {
        self.sources
    }

    /// Puts a source where its entry belongs; runs of one source stay on top for one comparison.
    fn rank(&mut self, source: usize) {
        let Some(entry) = self.sources[source].entry() else { return };
        debug_assert!(!self.ranked.contains(&source), "a source is ranked once");
        self.heads[source] = head(entry.key);
        let beats = |other: usize| self.order(source, other) == Ordering::Less;
        let place = match self.ranked.last() {
            Some(top) if !beats(*top) => self.ranked.partition_point(|other| beats(*other)),
            _ => self.ranked.len(),
        };
        self.ranked.insert(place, source);
    }

    /// Less: the first source's entry comes out before the second's.
    fn order(&self, left: usize, right: usize) -> Ordering {
        let by_head = self.heads[left].cmp(&self.heads[right]);
        let by_place = by_head.then_with(|| {
            let place = |source: usize| self.sources[source].entry().map(|entry| entry.place());
            place(left).cmp(&place(right))
        });
        let directed = match self.direction {
            Direction::Forward => by_place,
            Direction::Backward => by_place.reverse(),
        };
        directed.then(left.cmp(&right))
    }
}
