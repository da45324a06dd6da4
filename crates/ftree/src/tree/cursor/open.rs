//! The sources under a cursor: all layers above the root, and the runs and the leaf of one child.
//!
//! What several sources need first and is not in memory is read at once. A walk that has proved
//! sequential has the next child's sources read while it goes over this one's.
//!
//! Always true: what was read ahead is used only for the segment it was read from; where reading
//! ahead fails, the walk reads again and reports what it meets.

use super::super::layer::memory;
use super::super::{State, Tree};
use crate::error::Result;
use crate::merge::{Merge, MergeSource};
use crate::message::{Direction, Entry, Place};
use crate::node::{Child, Node, reads};
use crate::readers::{Pending, ReadPool};
use crate::segment::{Ahead, Bounds, Pace, Reading, Segment, SegmentIter};
use crate::tombstones::TombstoneBug;
use cachetable::Access;
use std::sync::Arc;

/// The active memtable, a leaf, and a run or two.
const SOURCES: usize = 4;

/// When the child is exhausted the next one is opened; the layers' sources go on.
pub(super) struct Open {
    pub(super) merge: Merge,
    /// The child's range: entries beyond it wait for the next child.
    pub(super) bounds: Bounds,
    pub(super) state: Arc<State>,
    /// The node right above the child.
    pub(super) node: Arc<Node>,
    /// Entries of the child that a plain leaf would have spared: deleted ones, those hidden by newer ones, and those
    /// that were found among other sources', memtables included.
    pub(super) skipped: u64,
    /// Going forward: the entry on top was returned, or decides that its key is not.
    pub(super) is_passed: bool,
    direction: Direction,
    /// What the next child's segments will need first.
    upcoming: Vec<Upcoming>,
}

struct Upcoming {
    segment: u64,
    ahead: Pending<Result<Ahead>>,
}

impl Open {
    pub(super) fn at(
        tree: &Tree,
        state: Arc<State>,
        place: Option<Place<'_>>,
        direction: Direction,
    ) -> Result<Self> {
        let sources = layers_of(&state, place, direction)?;
        let mut open = Self::over_nothing(state, direction);
        open.over_child(tree, sources, place, Pace::default())?;
        Ok(open)
    }

    /// Goes on with the child behind `place`, in another state.
    pub(super) fn in_state(self, tree: &Tree, state: Arc<State>, place: Place<'_>) -> Result<Self> {
        let pace = self.pace();
        let sources = layers_of(&state, Some(place), self.direction)?;
        let mut open = Self::over_nothing(state, self.direction);
        open.upcoming = self.upcoming;
        open.over_child(tree, sources, Some(place), pace)?;
        Ok(open)
    }

    fn over_nothing(state: Arc<State>, direction: Direction) -> Self {
        let merge = Merge::new(Vec::new(), direction);
        let (bounds, upcoming) = (Bounds::default(), Vec::new());
        let node = Arc::clone(&state.root);
        Self { merge, bounds, state, node, skipped: 0, is_passed: false, direction, upcoming }
    }

    /// Goes on with the child behind `place`, in the same state.
    pub(super) fn at_next_child(mut self, tree: &Tree, place: Place<'_>) -> Result<Self> {
        let pace = self.pace();
        let merge = std::mem::replace(&mut self.merge, Merge::new(Vec::new(), self.direction));
        let mut sources = merge.into_sources();
        sources.retain(|source| !matches!(source, MergeSource::Segment(_)));
        self.over_child(tree, sources, Some(place), pace)?;
        Ok(self)
    }

    /// Whether a tombstone covers a version that a reader at `at` would see.
    #[inline]
    pub(super) fn hides(&self, entry: Entry<'_>, at: u64) -> bool {
        self.state.tombstones.is_some() && self.is_under_tombstone(entry, at)
    }

    fn is_under_tombstone(&self, entry: Entry<'_>, at: u64) -> bool {
        match &self.state.tombstones {
            None => false,
            Some(tombstones) if tombstones.planted == Some(TombstoneBug::BackwardIgnores) => {
                self.direction == Direction::Forward && tombstones.hides_entry(entry, at)
            }
            Some(tombstones) => tombstones.hides_entry(entry, at),
        }
    }

    /// The entry on top, going forward; `None` where it is the next child's, or there is none. Walks over the child's own
    /// segments end with it.
    #[inline]
    pub(super) fn top_of_child(&self) -> Option<Entry<'_>> {
        match self.merge.top_source()? {
            MergeSource::Segment(iter) => {
                let entry = iter.entry()?;
                debug_assert!(self.bounds.reaches(entry.key), "a walk within the child's range");
                Some(entry)
            }
            source => source.entry().filter(|entry| self.bounds.reaches(entry.key)),
        }
    }

    /// Where the next child begins; `None` at the tree's end.
    pub(super) fn edge(&self) -> Option<&Arc<[u8]>> {
        match self.direction {
            Direction::Forward => self.bounds.upper.as_ref(),
            Direction::Backward => self.bounds.lower.as_ref(),
        }
    }

    /// The walk will go on behind `place`: if it is sequential, what it needs there is read now.
    pub(super) fn expect(&mut self, tree: &Tree, place: Place<'_>) {
        let readers = &tree.context().readers;
        if !readers.has_threads() || !self.pace().is_sequential() {
            return;
        }
        let (segments, bounds) = child_at(&self.state, Some(place), self.direction, |_, _| {});
        let direction = self.direction;
        let upcoming = segments.into_iter().map(|segment| {
            let bounds = bounds.clone();
            let id = segment.id();
            let ahead = readers.start(move || segment.read_ahead(&bounds, direction));
            Upcoming { segment: id, ahead }
        });
        self.upcoming = upcoming.collect();
    }

    fn pace(&self) -> Pace {
        let paces = self.merge.sources().iter().map(|source| match source {
            MergeSource::Segment(iter) => iter.pace(),
            _ => Pace::default(),
        });
        paces.max().unwrap_or_default()
    }

    /// Adds to the layers' sources those of the child that has `place`.
    fn over_child(
        &mut self,
        tree: &Tree,
        mut sources: Vec<MergeSource>,
        place: Option<Place<'_>>,
        pace: Pace,
    ) -> Result<()> {
        let mut above = &self.state.root;
        let (segments, bounds) = child_at(&self.state, place, self.direction, |node, child| {
            tree.note_reads(node, reads::opened(node.live_runs(child)));
            above = node;
        });
        (self.node, self.skipped, self.is_passed) = (Arc::clone(above), 0, false);
        let mut upcoming = std::mem::take(&mut self.upcoming);
        let mut iters = Vec::with_capacity(segments.len());
        for segment in segments {
            let ahead = upcoming.iter().position(|upcoming| upcoming.segment == segment.id());
            let ahead = ahead.and_then(|at| upcoming.swap_remove(at).ahead.wait().ok());
            let mut iter =
                SegmentIter::unopened(segment, bounds.clone(), self.direction, Reading::Cached)?;
            iter.expedite(pace, ahead);
            iters.push(Box::new(iter));
        }
        read_together(&mut iters, place, &tree.context().readers)?;
        for iter in &mut iters {
            iter.begin(place)?;
        }
        sources.extend(iters.into_iter().map(MergeSource::Segment));
        self.merge = Merge::new(sources, self.direction);
        self.bounds = bounds;
        Ok(())
    }
}

/// The sources above the root, newest first, with room for those of a child.
fn layers_of(
    state: &State,
    place: Option<Place<'_>>,
    direction: Direction,
) -> Result<Vec<MergeSource>> {
    let mut sources = Vec::with_capacity(state.sealed.len() + SOURCES);
    sources.push(memory(Arc::clone(&state.active), place, direction));
    for layer in &state.sealed {
        sources.push(layer.source(place, direction)?);
    }
    Ok(sources)
}

/// The segments that have keys of the child with `place`, newest first, and its range. Visits the
/// nodes on the way down.
fn child_at<'a>(
    state: &'a State,
    place: Option<Place<'_>>,
    direction: Direction,
    mut visit: impl FnMut(&'a Arc<Node>, usize),
) -> (Vec<Arc<Segment>>, Bounds) {
    let mut segments = Vec::new();
    let mut node = &state.root;
    loop {
        let child = match (place, direction) {
            (None, Direction::Forward) => 0,
            (None, Direction::Backward) => node.children.len() - 1,
            // Behind every version of the key: the child of what follows it.
            (Some(place), Direction::Forward) if place.ts == 0 => node.child_after(place.key),
            (Some(place), _) => node.child_of(place.key),
        };
        let live = node.runs.iter().filter(|attached| attached.is_live(child));
        segments.extend(live.map(|attached| Arc::clone(&attached.run)));
        visit(node, child);
        match &node.children[child] {
            Child::Node(below) => node = below,
            Child::Leaf(leaf) => {
                segments.push(Arc::clone(leaf));
                return (segments, node.child_bounds(child));
            }
            Child::Empty => return (segments, node.child_bounds(child)),
        }
    }
}

/// Finds each walk's first page; those that are not in memory are read at once.
fn read_together(
    iters: &mut [Box<SegmentIter>],
    place: Option<Place<'_>>,
    readers: &Arc<ReadPool>,
) -> Result<()> {
    let mut missing = Vec::new();
    for (at, iter) in iters.iter_mut().enumerate() {
        missing.extend(iter.find(place)?.map(|page| (at, page)));
    }
    if missing.len() < 2 || !readers.has_threads() {
        return Ok(());
    }
    let errands: Vec<_> = missing
        .into_iter()
        .map(|(at, (segment, block))| {
            (at, readers.start(move || segment.load_page(block, Access::Demand)))
        })
        .collect();
    for (at, errand) in errands {
        if let Ok(frame) = errand.wait() {
            iters[at].hold(frame);
        }
    }
    Ok(())
}
