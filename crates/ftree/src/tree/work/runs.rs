//! Moving runs: merging those of one node, flushing them into a child node, writing new ones.

use super::{Area, Edit, Unit};
use crate::error::Result;
use crate::key_updates::{KeyUpdates, MergeRules, NewestBelow};
use crate::memtable::{MemIter, MemTable};
use crate::merge::{Merge, MergeSource};
use crate::message::{Direction, Entry, Place};
use crate::node::{Attached, Node, Shares};
use crate::retain::Retain;
use crate::segment::{Bounds, Reading, Role, Segment, SegmentBuilder, SegmentIter};
use crate::tree_shared::count;
use std::ops::Range;
use std::sync::Arc;

impl Unit<'_> {
    /// Makes the newest runs of a node one, without what was flushed already.
    pub(super) fn merge_runs(&mut self, node: &Node, newest: usize) -> Result<()> {
        let merged = &node.runs[..newest];
        let some = |child: usize| merged.iter().any(|run| run.is_live(child));
        let same = |one, other| merged.iter().all(|run| run.is_live(one) == run.is_live(other));
        let inputs = spans(node.children.len(), some, same).into_iter().map(|span| {
            let bounds = span_bounds(node, &span);
            let live = merged.iter().filter(|attached| attached.is_live(span.start));
            Ok((segments(live, &bounds)?, bounds))
        });
        let area = Area { height: node.height, bounds: node.bounds.clone() };
        self.edits.push(Edit::Flushed { area, runs: ids(merged) });
        // As new as its newest part: what came meanwhile is newer.
        self.write_run(node, (Some(merged[0].sequence), newest), inputs)
    }

    /// Moves what waits for a child node into a run of it.
    pub(super) fn flush_child(&mut self, node: &Node, child: usize, below: &Node) -> Result<()> {
        let bounds = node.child_bounds(child);
        let live: Vec<&Attached> = node.runs.iter().filter(|run| run.is_live(child)).collect();
        let area = Area::of_child(node, child);
        self.failed = Some(area.clone());
        let sources = segments(live.iter().copied(), &bounds)?;
        self.edits.push(Edit::Flushed { area, runs: ids(live) });
        self.write_run(below, (None, 0), std::iter::once(Ok((sources, bounds))))
    }

    /// Writes the merged inputs, which ascend, as one run of `target`, of an age or the newest, in the place of
    /// so many of its newest. Nothing comes of it where nothing was left of them.
    pub(super) fn write_run(
        &mut self,
        target: &Node,
        (age, replaced): (Option<u64>, usize),
        inputs: impl Iterator<Item = Result<(Vec<MergeSource>, Bounds)>>,
    ) -> Result<()> {
        let tree = self.tree;
        let mut retain = Retain::new(self.visibility, false).under(self.tombstones.as_deref());
        let mut builder: Option<SegmentBuilder> = None;
        let mut bytes = vec![0; target.children.len()];
        let mut child = 0;
        for input in inputs {
            let (sources, bounds) = input?;
            let below = |key: &[u8]| Some(target.newest_ts_below(target.child_of(key), replaced));
            self.merge(sources, &bounds, (&mut retain, &below), |entry, _| {
                while target.pivots.get(child).is_some_and(|pivot| entry.key > &pivot[..]) {
                    child += 1;
                }
                bytes[child] += entry.weight();
                builder
                    .get_or_insert_with(|| {
                        SegmentBuilder::new(&tree.shared, &tree.options(), Role::Run)
                    })
                    .add(entry)
            })?;
        }
        self.count_dropped(&retain);
        if let Some(builder) = builder {
            let area = Area { height: target.height, bounds: target.bounds.clone() };
            let shares = Shares { places: target.places(), bytes };
            self.edits.push(Edit::Attach { area, run: builder.finish()?, age, shares });
        }
        Ok(())
    }

    /// Hands what is to be kept of the merged sources to `out`, in order. `below` says of a key a timestamp at
    /// or above all that lies below what is written; `None` where nothing does.
    pub(super) fn merge(
        &self,
        sources: Vec<MergeSource>,
        bounds: &Bounds,
        (retain, below): (&mut Retain<'_>, NewestBelow<'_>),
        mut out: impl FnMut(Entry<'_>, u64) -> Result<()>,
    ) -> Result<()> {
        let mut merge = Merge::new(sources, Direction::Forward);
        let mut bytes = 0;
        let rules = MergeRules {
            updates: &*self.tree.context.updates,
            tree: self.tree.id(),
            visibility: self.visibility,
            tombstones: self.tombstones.as_deref(),
            below,
        };
        let mut gathered = KeyUpdates::default();
        while let Some((entry, source)) = merge.top_from() {
            // Memtables have no bound of their own.
            if !bounds.reaches(entry.key) {
                break;
            }
            bytes += entry.weight();
            if gathered.is_of(entry.key) {
                gathered.push(&rules, entry, source);
            } else {
                if gathered.is_open() {
                    self.close(&mut gathered, &rules, retain, &mut out)?;
                }
                if retain.keep(entry) {
                    if entry.message.is_update() {
                        gathered.open(entry, source);
                    } else {
                        out(entry, retain.dropped_bytes)?;
                    }
                }
            }
            merge.advance()?;
        }
        if gathered.is_open() {
            self.close(&mut gathered, &rules, retain, &mut out)?;
        }
        count(&self.tree.shared.counters.merged_bytes, bytes);
        Ok(())
    }

    /// Hands out what is to be kept of a key with updates. The sources of the merge still keep the large
    /// values that it refers to.
    fn close(
        &self,
        gathered: &mut KeyUpdates,
        rules: &MergeRules<'_>,
        retain: &mut Retain<'_>,
        out: &mut impl FnMut(Entry<'_>, u64) -> Result<()>,
    ) -> Result<()> {
        let shared = &self.tree.shared;
        let load = |reference: &[u8]| shared.read_large(shared.decode_large(reference)?);
        retain.note_dropped(gathered.close(rules, load)?);
        gathered.entries().try_for_each(|entry| out(entry, retain.dropped_bytes))
    }

    pub(super) fn count_dropped(&self, retain: &Retain<'_>) {
        count(&self.tree.shared.counters.dropped_versions, retain.dropped_versions);
        count(&self.tree.shared.counters.dropped_deletes, retain.dropped_deletes);
    }
}

/// Ranges of neighbouring children that have something and are of the `same` state.
pub(super) fn spans(
    children: usize,
    something: impl Fn(usize) -> bool,
    same: impl Fn(usize, usize) -> bool,
) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for child in (0..children).filter(|child| something(*child)) {
        match spans.last_mut() {
            Some(span) if span.end == child && same(span.start, child) => span.end = child + 1,
            _ => spans.push(child..child + 1),
        }
    }
    spans
}

pub(super) fn span_bounds(node: &Node, span: &Range<usize>) -> Bounds {
    let lower = node.child_bounds(span.start).lower;
    Bounds { lower, upper: node.child_bounds(span.end - 1).upper }
}

pub(super) fn memory(table: &Arc<MemTable>, bounds: &Bounds) -> MergeSource {
    let from = bounds.lower.as_ref().map(|lower| Place::behind(lower));
    MergeSource::Memory(MemIter::forward(Arc::clone(table), from).reading_ahead())
}

pub(super) fn segment(segment: &Arc<Segment>, bounds: &Bounds) -> Result<MergeSource> {
    let bounds = bounds.clone();
    let iter = SegmentIter::new(
        Arc::clone(segment),
        bounds,
        None,
        Direction::Forward,
        Reading::Streaming,
    )?;
    Ok(MergeSource::Segment(Box::new(iter)))
}

pub(super) fn segments<'a>(
    attached: impl Iterator<Item = &'a Attached>,
    bounds: &Bounds,
) -> Result<Vec<MergeSource>> {
    attached.map(|attached| segment(&attached.run, bounds)).collect()
}

pub(super) fn ids<'a>(attached: impl IntoIterator<Item = &'a Attached>) -> Vec<u64> {
    attached.into_iter().map(|attached| attached.run.id()).collect()
}
