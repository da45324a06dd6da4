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
    #[inline]
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        match self {
            MergeSource::Memory(iter) => iter.entry(),
            MergeSource::Segment(iter) => iter.entry(),
            MergeSource::Overlay(iter) => iter.entry(),
            MergeSource::Rows(iter) => iter.entry(),
            MergeSource::Run(iter) => iter.entry(),
        }
    }

    #[inline]
    fn has_entry(&self) -> bool {
        match self {
            MergeSource::Segment(iter) => iter.has_entry(),
            source => source.entry().is_some(),
        }
    }

    #[inline]
    fn payload(&self) -> Option<&[u8]> {
        match self {
            MergeSource::Segment(iter) => iter.payload(),
            source => source.entry().map(|entry| entry.message.payload()),
        }
    }

    /// May read the disk.
    #[inline]
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
    /// Sources that have an entry, the one on top last.
    ranked: Vec<Ranked>,
    direction: Direction,
}

/// A source with an entry.
struct Ranked {
    /// The first eight bytes of its key; of one before where no other source is left.
    head: u64,
    source: usize,
}

impl Merge {
    pub(crate) fn new(sources: Vec<MergeSource>, direction: Direction) -> Self {
        let count = sources.len();
        let mut merge = Self { sources, ranked: Vec::with_capacity(count), direction };
        for source in 0..count {
            merge.rank(source);
        }
        merge
    }

    /// The entry on top.
    pub(crate) fn top(&self) -> Option<Entry<'_>> {
        self.sources[self.ranked.last()?.source].entry()
    }

    /// What that entry says.
    #[inline]
    pub(crate) fn top_payload(&self) -> Option<&[u8]> {
        self.top_source()?.payload()
    }

    /// The source of that entry.
    #[inline]
    pub(crate) fn top_source(&self) -> Option<&MergeSource> {
        Some(&self.sources[self.ranked.last()?.source])
    }

    /// The entry on top and the number of its source, the newest being 0.
    pub(crate) fn top_from(&self) -> Option<(Entry<'_>, usize)> {
        let source = self.ranked.last()?.source;
        Some((self.sources[source].entry()?, source))
    }

    /// Steps over the entry on top. May read the disk.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        if let [Ranked { source, .. }] = self.ranked[..] {
            // The others have ended: nobody is left to be compared with.
            let only = &mut self.sources[source];
            let advanced = only.advance();
            if advanced.is_err() || !only.has_entry() {
                self.ranked.clear();
            }
            return advanced;
        }
        self.advance_among_others()
    }

    fn advance_among_others(&mut self) -> Result<()> {
        if let Some(Ranked { source, .. }) = self.ranked.pop() {
            self.sources[source].advance()?;
            self.rank(source);
        }
        Ok(())
    }

    /// Whether more than one source has an entry.
    #[inline]
    pub(crate) fn is_of_several(&self) -> bool {
        self.ranked.len() > 1
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
        debug_assert!(self.ranked.iter().all(|one| one.source != source), "it is ranked once");
        let new = Ranked { head: head(entry.key), source };
        let beats = |other: &Ranked| self.order(&new, other) == Ordering::Less;
        let place = match self.ranked.last() {
            Some(top) if !beats(top) => self.ranked.partition_point(beats),
            _ => self.ranked.len(),
        };
        self.ranked.insert(place, new);
    }

    /// Less: the first source's entry comes out before the second's.
    fn order(&self, left: &Ranked, right: &Ranked) -> Ordering {
        let by_place = left.head.cmp(&right.head).then_with(|| {
            let place = |one: &Ranked| self.sources[one.source].entry().map(|entry| entry.place());
            place(left).cmp(&place(right))
        });
        let directed = match self.direction {
            Direction::Forward => by_place,
            Direction::Backward => by_place.reverse(),
        };
        directed.then(left.source.cmp(&right.source))
    }
}
