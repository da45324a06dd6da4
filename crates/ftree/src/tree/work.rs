//! Background work, one unit at a time: what to do next, and doing it.
//!
//! From → to:
//! sealed layer → runs in nodes, or leaves where that is cheap ([`Tree::drain_into`]);
//! runs of a node → one run ([`Tree::merge_runs`]);
//! runs' shares of a child → a run in the child node, or a new leaf ([`Tree::flush_child`]);
//! two small neighbours → one ([`Tree::fuse`]).
//!
//! Always true: units of one tree exclude each other (`work` lock), so what a unit read of the
//! root is still true when it publishes; a unit that fails leaves the tree as it was.

use super::layer::Layer;
use super::publish::{Path, replace_child};
use super::{State, Tree};
use crate::bytes::common_prefix;
use crate::error::Result;
use crate::home::count;
use crate::memtable::{MemIter, MemTable};
use crate::merge::{Merge, Source};
use crate::message::{Direction, Entry, Place, Visibility};
use crate::node::{Attached, Child, NEEDED, Node, Parts, Score};
use crate::options::TreeOptions;
use crate::retain::Retain;
use crate::segment::{Bounds, Reading, Role, Segment, SegmentBuilder, SegmentIter};
use std::ops::Range;
use std::sync::Arc;

/// How much a call of [`Tree::work`] is willing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Only what is over its budget.
    Needed,
    /// Anything that makes reads cheaper: the cleaner.
    Idle,
}

/// What a call of [`Tree::work`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There is nothing to do.
    Idle,
    /// Another thread works on this tree, or an insert into a sealed memtable is ending.
    Busy,
    /// One unit is done.
    Done(Work),
}

/// A unit of work that was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A sealed memtable, or a piece of a large transaction, became runs and leaves.
    Drain,
    /// Runs of one node became one run.
    Merge,
    /// A child got what waited for it.
    Flush,
    /// Two neighbours became one.
    Fuse,
    /// Leaves were written anew, or a node took on the tree's new shape.
    Rewrite,
}

impl Tree {
    /// Does one unit of background work. May read and write the disk for as long as a memtable's
    /// worth of entries takes. Deterministic when called from one thread. After an error the tree
    /// is as it was, and the same work is tried again by the next call.
    pub fn work(&self, visibility: &Visibility, effort: Effort) -> Result<Progress> {
        let Some(mut since_drain) = self.work.try_lock() else { return Ok(Progress::Busy) };
        let state = self.pin();
        let mut unit = Unit { tree: self, visibility, sequence: state.sequence };
        let urgent = state.root.score_below;
        if let Some(layer) = state.sealed.last()
            && (urgent < OVERDUE || *since_drain >= BETWEEN_DRAINS)
        {
            match layer {
                Layer::Table(table) if !table.quiet() => return Ok(Progress::Busy),
                Layer::Table(table) => unit.drain(&state, table, layer, None)?,
                Layer::Overlay(overlay) => {
                    let piece = Arc::new(MemTable::new());
                    let rest = overlay.fill(&piece, self.options().buffer_bytes)?;
                    unit.drain(&state, &piece, layer, rest.map(Layer::Overlay))?;
                }
            }
            *since_drain = 0;
            return Ok(Progress::Done(Work::Drain));
        }
        *since_drain += 1;
        let enough = match effort {
            Effort::Needed => NEEDED,
            Effort::Idle => Score(1),
        };
        if urgent >= enough {
            return Ok(Progress::Done(unit.improve(&state)?));
        }
        if effort == Effort::Idle
            && let Some((path, node, child)) = garbage(&state.root, visibility.oldest())
        {
            let (nodes, work) = unit.flush_leaves(&node, child..child + 1, Work::Flush)?;
            unit.publish(path, nodes, work, false);
            return Ok(Progress::Done(work));
        }
        Ok(Progress::Idle)
    }
}

/// Draining comes first, it frees memory; but a node this far over its budget is read badly, and
/// then so many other units are done between two drains.
const OVERDUE: Score = Score(3000);
const BETWEEN_DRAINS: u32 = 16;

struct Unit<'a> {
    tree: &'a Tree,
    visibility: &'a Visibility,
    sequence: u64,
}

impl Unit<'_> {
    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn close(&self, parts: Parts) -> Vec<Arc<Node>> {
        parts.close(&self.tree.options(), &self.tree.home)
    }

    // --- draining ---

    /// Moves a memtable below the root: a sealed layer, or a piece of one of which `rest` is left.
    fn drain(
        &mut self,
        state: &State,
        table: &Arc<MemTable>,
        layer: &Layer,
        rest: Option<Layer>,
    ) -> Result<()> {
        let nodes = self.drain_into(&state.root, table)?;
        let root = self.tree.raise(Path::new(), nodes);
        let counters = &self.tree.home.counters;
        count(&counters.drains, 1);
        count(&counters.drained_bytes, table.weight());
        self.tree.publish_root(root, self.sequence, Some((layer, rest)));
        Ok(())
    }

    /// Puts the entries of a memtable that lie in a node's range below it. Children that get
    /// enough to be worth it, and have nothing older waiting here, get theirs directly; what is
    /// left becomes one run of this node.
    fn drain_into(&mut self, node: &Node, table: &Arc<MemTable>) -> Result<Vec<Arc<Node>>> {
        let shares = weigh(node, table);
        let direct: Vec<bool> = (0..shares.len())
            .map(|child| node.waiting(child) == 0 && self.is_worth(node, child, shares[child]))
            .collect();
        let mut parts = Parts::of(node);
        let rest = spans(shares.len(), |child| shares[child] > 0 && !direct[child], |_, _| true);
        let inputs = rest.into_iter().map(|span| {
            let bounds = span_bounds(node, &span);
            Ok((vec![memory(table, &bounds)], bounds))
        });
        if let Some((run, shares)) = self.write_run(node, inputs)? {
            let sequence = self.next_sequence();
            parts.attach(run, sequence, shares);
        }
        for child in (0..shares.len()).rev().filter(|child| direct[*child]) {
            if let Child::Node(below) = &node.children[child] {
                let nodes = self.drain_into(below, table)?;
                count(&self.tree.home.counters.node_splits, nodes.len() as u64 - 1);
                replace_child(&mut parts, child, nodes);
            } else {
                let new = self.rewrite(node, child..child + 1, Some((table, shares[child])))?;
                parts.replace(child..child + 1, new.children, new.pivots);
            }
        }
        Ok(self.close(parts))
    }

    fn is_worth(&self, node: &Node, child: usize, share: u64) -> bool {
        let page_size = self.tree.options().page_size;
        match &node.children[child] {
            _ if share == 0 => false,
            Child::Empty => true,
            // A leaf that is rewritten costs its size; buffered it would cost about four times
            // the share over its way down.
            Child::Leaf(leaf) => {
                let size = leaf.content().raw_bytes;
                share * 4 >= size || size <= page_size / 16
            }
            // Runs shorter than this would fill nodes with slivers.
            Child::Node(_) => share >= page_size / 2,
        }
    }

    // --- improving ---

    fn improve(&mut self, state: &State) -> Result<Work> {
        let (path, node) = most_urgent(&state.root);
        let (nodes, work) = self.improve_node(&node)?;
        self.publish(path, nodes, work, node.height > 1);
        Ok(work)
    }

    fn publish(&self, path: Path, nodes: Vec<Arc<Node>>, work: Work, above_leaves: bool) {
        let root = self.tree.raise(path, nodes);
        let counters = &self.tree.home.counters;
        let counter = match work {
            Work::Merge => &counters.merges,
            Work::Flush => &counters.flushes,
            Work::Fuse if above_leaves => &counters.node_fuses,
            Work::Fuse => &counters.leaf_fuses,
            Work::Drain => &counters.drains,
            Work::Rewrite => &counters.rewrites,
        };
        count(counter, 1);
        self.tree.publish_root(root, self.sequence, None);
    }

    fn improve_node(&mut self, node: &Node) -> Result<(Vec<Arc<Node>>, Work)> {
        let options = &self.tree.options();
        let tier = node.tier(options);
        if node.runs.len() > options.max_runs {
            return self.merge_runs(node, node.runs.len());
        }
        if node.buffered <= options.buffer_bytes {
            if tier > 0 {
                return self.merge_runs(node, tier);
            }
            if let Some(left) = node.leaves_to_fuse(options) {
                return self.flush_leaves(node, left..left + 2, Work::Fuse);
            }
            if let Some(left) = node.nodes_to_fuse(options) {
                return self.fuse(node, left);
            }
        }
        match node.heaviest_child() {
            Some(child) => self.flush_child(node, child),
            // It was urgent under the options the tree had before: closed anew it no longer is.
            None => Ok((self.close(Parts::of(node)), Work::Rewrite)),
        }
    }

    /// Makes the newest `count` runs one, without what was flushed already.
    fn merge_runs(&mut self, node: &Node, count: usize) -> Result<(Vec<Arc<Node>>, Work)> {
        let merged = &node.runs[..count];
        let some = |child: usize| merged.iter().any(|run| run.is_live(child));
        let same = |one, other| merged.iter().all(|run| run.is_live(one) == run.is_live(other));
        let inputs = spans(node.children.len(), some, same).into_iter().map(|span| {
            let bounds = span_bounds(node, &span);
            let live = merged.iter().filter(|attached| attached.is_live(span.start));
            Ok((segments(live, &bounds)?, bounds))
        });
        let written = self.write_run(node, inputs)?;
        let mut parts = Parts::of(node);
        // The merged run is as new as its newest part; nothing newer came meanwhile.
        let sequence = merged[0].sequence;
        parts.runs.drain(..count);
        if let Some((run, shares)) = written {
            parts.attach(run, sequence, shares);
        }
        Ok((self.close(parts), Work::Merge))
    }

    fn flush_child(&mut self, node: &Node, child: usize) -> Result<(Vec<Arc<Node>>, Work)> {
        let Child::Node(below) = &node.children[child] else {
            return self.flush_leaves(node, child..child + 1, Work::Flush);
        };
        let bounds = node.child_bounds(child);
        let live = node.runs.iter().filter(|attached| attached.is_live(child));
        let input = (segments(live, &bounds)?, bounds);
        let mut child_parts = Parts::of(below);
        if let Some((run, shares)) = self.write_run(below, std::iter::once(Ok(input)))? {
            let sequence = self.next_sequence();
            child_parts.attach(run, sequence, shares);
        }
        let mut parts = Parts::of(node);
        parts.flushed(child..child + 1);
        replace_child(&mut parts, child, self.close(child_parts));
        Ok((self.close(parts), Work::Flush))
    }

    fn flush_leaves(
        &mut self,
        node: &Node,
        children: Range<usize>,
        work: Work,
    ) -> Result<(Vec<Arc<Node>>, Work)> {
        let new = self.rewrite(node, children.clone(), None)?;
        let mut parts = Parts::of(node);
        parts.flushed(children.clone());
        parts.replace(children, new.children, new.pivots);
        Ok((self.close(parts), work))
    }

    /// Makes a node's two neighbouring child nodes one, once nothing waits for either of them.
    fn fuse(&mut self, node: &Node, left: usize) -> Result<(Vec<Arc<Node>>, Work)> {
        for child in [left, left + 1] {
            if node.waiting(child) > 0 {
                return self.flush_child(node, child);
            }
        }
        let (Child::Node(one), Child::Node(other)) =
            (&node.children[left], &node.children[left + 1])
        else {
            unreachable!("nodes_to_fuse found two nodes");
        };
        let mut fused = Parts::of(one);
        fused.fuse(Arc::clone(&node.pivots[left]), Parts::of(other));
        let children = self.close(fused).into_iter().map(Child::Node).collect::<Vec<_>>();
        assert_eq!(children.len(), 1, "fused nodes fit into one");
        let mut parts = Parts::of(node);
        parts.replace(left..left + 2, children, Vec::new());
        Ok((self.close(parts), Work::Fuse))
    }

    // --- writing ---

    /// Writes the merged inputs, which ascend, as one run; counts what it has for each child of
    /// `target`. `None` where nothing was left of them.
    fn write_run(
        &self,
        target: &Node,
        inputs: impl Iterator<Item = Result<(Vec<Source>, Bounds)>>,
    ) -> Result<Option<(Arc<Segment>, Vec<u64>)>> {
        let mut retain = Retain::new(self.visibility, false);
        let mut builder: Option<SegmentBuilder> = None;
        let mut shares = vec![0; target.children.len()];
        let mut child = 0;
        for input in inputs {
            let (sources, bounds) = input?;
            self.merge(sources, &bounds, &mut retain, |entry| {
                while target.pivots.get(child).is_some_and(|pivot| entry.key > &pivot[..]) {
                    child += 1;
                }
                shares[child] += entry.weight();
                let tree = self.tree;
                builder
                    .get_or_insert_with(|| {
                        SegmentBuilder::new(&tree.home, &tree.options(), Role::Run)
                    })
                    .add(entry)
            })?;
        }
        self.count_dropped(&retain);
        builder.map(|builder| Ok((builder.finish()?, shares))).transpose()
    }

    /// New leaves for a range of a height-1 node's children: what waits here, what `table` has,
    /// and what the old leaves hold.
    fn rewrite(
        &self,
        node: &Node,
        children: Range<usize>,
        table: Option<(&Arc<MemTable>, u64)>,
    ) -> Result<NewLeaves> {
        let options = &self.tree.options();
        let incoming: u64 = children.clone().map(|child| node.waiting(child)).sum::<u64>()
            + table.map_or(0, |(_, share)| share);
        let mut leaves = LeafWriter::new(self.tree, incoming);
        let mut retain = Retain::new(self.visibility, true);
        let single = children.len() == 1;
        for child in children {
            let bounds = node.child_bounds(child);
            let live = node.runs.iter().filter(|attached| attached.is_live(child));
            let mut sources = Vec::new();
            sources.extend(table.map(|(table, _)| memory(table, &bounds)));
            sources.extend(segments(live, &bounds)?);
            if let Child::Leaf(leaf) = &node.children[child] {
                let first = sources.iter().filter_map(Source::entry).map(|entry| entry.key).min();
                let behind = first.is_some_and(|first| first > &leaf.content().max_key[..]);
                if single && behind && leaf.content().raw_bytes >= options.page_size / 2 {
                    // Everything comes behind a leaf that is full enough: it stays as it is.
                    leaves.keep(leaf);
                } else {
                    leaves.expect(leaf.content().raw_bytes);
                    sources.push(segment(leaf, &bounds)?);
                }
            }
            self.merge(sources, &bounds, &mut retain, |entry| leaves.add(entry))?;
        }
        self.count_dropped(&retain);
        leaves.finish()
    }

    /// Hands what is to be kept of the merged sources to `out`, in order.
    fn merge(
        &self,
        sources: Vec<Source>,
        bounds: &Bounds,
        retain: &mut Retain<'_>,
        mut out: impl FnMut(Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut merge = Merge::new(sources, Direction::Forward);
        let mut bytes = 0;
        while let Some(entry) = merge.top() {
            // Memtables have no bound of their own.
            if !bounds.reaches(entry.key) {
                break;
            }
            bytes += entry.weight();
            if retain.keep(entry) {
                out(entry)?;
            }
            merge.advance()?;
        }
        count(&self.tree.home.counters.merged_bytes, bytes);
        Ok(())
    }

    fn count_dropped(&self, retain: &Retain<'_>) {
        count(&self.tree.home.counters.dropped_versions, retain.dropped_versions);
        count(&self.tree.home.counters.dropped_deletes, retain.dropped_deletes);
    }
}

/// Leaves as they are written.
struct LeafWriter<'a> {
    tree: &'a Tree,
    options: TreeOptions,
    /// Raw bytes that will come, at most.
    expected: u64,
    builder: Option<SegmentBuilder>,
    leaves: Vec<Arc<Segment>>,
}

/// Children in the place of old ones.
struct NewLeaves {
    children: Vec<Child>,
    pivots: Vec<Arc<[u8]>>,
}

impl<'a> LeafWriter<'a> {
    fn new(tree: &'a Tree, expected: u64) -> Self {
        Self { tree, options: tree.options(), expected, builder: None, leaves: Vec::new() }
    }

    fn keep(&mut self, leaf: &Arc<Segment>) {
        count(&self.tree.home.counters.leaves_kept, 1);
        self.leaves.push(Arc::clone(leaf));
    }

    fn expect(&mut self, more: u64) {
        self.expected += more;
    }

    /// Where to cut: one leaf up to half over its size, else even pieces.
    fn target(&self) -> u64 {
        let size = self.options.page_size;
        if self.expected <= size * 3 / 2 {
            return size * 2;
        }
        let pieces = (self.expected + size / 2) / size;
        self.expected.div_ceil(pieces)
    }

    fn add(&mut self, entry: Entry<'_>) -> Result<()> {
        let target = self.target();
        if self
            .builder
            .as_ref()
            .is_some_and(|builder| builder.size() >= target && builder.last_key() != entry.key)
        {
            self.cut()?;
        }
        let (home, options) = (&self.tree.home, &self.options);
        self.builder
            .get_or_insert_with(|| SegmentBuilder::new(home, options, Role::Leaf))
            .add(entry)
    }

    fn cut(&mut self) -> Result<()> {
        if let Some(builder) = self.builder.take() {
            self.leaves.push(builder.finish()?);
            count(&self.tree.home.counters.leaves_written, 1);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<NewLeaves> {
        self.cut()?;
        if self.leaves.len() > 1 {
            count(&self.tree.home.counters.leaf_splits, self.leaves.len() as u64 - 1);
        }
        let pivots = self
            .leaves
            .windows(2)
            .map(|pair| separator(&pair[0].content().max_key, &pair[1].content().min_key));
        let pivots = pivots.collect();
        let mut children: Vec<Child> = self.leaves.into_iter().map(Child::Leaf).collect();
        if children.is_empty() {
            children.push(Child::Empty);
        }
        Ok(NewLeaves { children, pivots })
    }
}

/// A short key `s` with `left <= s < right`.
fn separator(left: &[u8], right: &[u8]) -> Arc<[u8]> {
    let shared = common_prefix(left, right);
    match right.get(..=shared) {
        Some(short) if short.len() < right.len() => short.into(),
        _ => left.into(),
    }
}

/// Down the way of the highest score, to the node it is of.
fn most_urgent(root: &Arc<Node>) -> (Path, Arc<Node>) {
    let mut path = Path::new();
    let mut node = Arc::clone(root);
    while node.score < node.score_below {
        let urgent = node.children.iter().position(|child| match child {
            Child::Node(below) => below.score_below == node.score_below,
            _ => false,
        });
        let child = urgent.expect("a score comes from the node or a child");
        let Child::Node(below) = node.children[child].clone() else {
            unreachable!("only nodes have scores");
        };
        path.push((node, child));
        node = below;
    }
    (path, node)
}

/// A leaf that is worth rewriting for the versions and deletes nobody sees any more.
fn garbage(root: &Arc<Node>, oldest: u64) -> Option<(Path, Arc<Node>, usize)> {
    if root.garbage_below == 0 {
        return None;
    }
    for (at, child) in root.children.iter().enumerate().filter(|(_, child)| child.garbage() > 0) {
        match child {
            // All of it can go: no snapshot is older than the leaf's newest version.
            Child::Leaf(leaf) if leaf.content().max_ts <= oldest => {
                return Some((Path::new(), Arc::clone(root), at));
            }
            Child::Node(below) => {
                if let Some((mut path, node, child)) = garbage(below, oldest) {
                    path.insert(0, (Arc::clone(root), at));
                    return Some((path, node, child));
                }
            }
            Child::Leaf(_) | Child::Empty => {}
        }
    }
    None
}

/// Bytes a memtable has for each child of a node.
fn weigh(node: &Node, table: &Arc<MemTable>) -> Vec<u64> {
    let mut shares = vec![0; node.children.len()];
    let mut child = 0;
    let from = node.bounds.lower.as_ref().map(|lower| Place::behind(lower));
    let mut iter = MemIter::forward(Arc::clone(table), from);
    while let Some(entry) = iter.entry() {
        if !node.bounds.reaches(entry.key) {
            break;
        }
        while node.pivots.get(child).is_some_and(|pivot| entry.key > &pivot[..]) {
            child += 1;
        }
        shares[child] += entry.weight();
        iter.advance();
    }
    shares
}

/// Ranges of neighbouring children that have something and are of the `same` state.
fn spans(
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

fn span_bounds(node: &Node, span: &Range<usize>) -> Bounds {
    let lower = node.child_bounds(span.start).lower;
    Bounds { lower, upper: node.child_bounds(span.end - 1).upper }
}

fn memory(table: &Arc<MemTable>, bounds: &Bounds) -> Source {
    let from = bounds.lower.as_ref().map(|lower| Place::behind(lower));
    Source::Memory(MemIter::forward(Arc::clone(table), from))
}

fn segment(segment: &Arc<Segment>, bounds: &Bounds) -> Result<Source> {
    let bounds = bounds.clone();
    let iter = SegmentIter::forward(Arc::clone(segment), bounds, None, Reading::Streaming)?;
    Ok(Source::Segment(Box::new(iter)))
}

fn segments<'a>(
    attached: impl Iterator<Item = &'a Attached>,
    bounds: &Bounds,
) -> Result<Vec<Source>> {
    attached.map(|attached| segment(&attached.run, bounds)).collect()
}
