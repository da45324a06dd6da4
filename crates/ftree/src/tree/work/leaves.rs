//! Writing leaves: what waits for a range of them, merged into what they hold.

use super::policy;
use super::rewrite::LargeRewrite;
use super::runs::{ids, memory, segment, segments, span_bounds};
use super::{Area, Edit, Tree, Unit};
use crate::bytes::common_prefix;
use crate::error::Result;
use crate::memtable::MemTable;
use crate::merge::MergeSource;
use crate::message::{Entry, Message};
use crate::node::{Child, Node};
use crate::options::TreeOptions;
use crate::retain::Retain;
use crate::segment::{Role, Segment, SegmentBuilder};
use crate::tree_shared::count;
use std::ops::Range;
use std::sync::Arc;

impl Unit<'_> {
    /// Gives a range of leaves what waits for them.
    pub(super) fn flush_leaves(&mut self, node: &Node, children: Range<usize>) -> Result<()> {
        self.rewrite(node, children, None)
    }

    /// As [`Unit::write_leaves`]; remembers where it failed.
    pub(super) fn rewrite(
        &mut self,
        node: &Node,
        children: Range<usize>,
        table: Option<(&Arc<MemTable>, u64)>,
    ) -> Result<()> {
        let area = Area { height: node.height, bounds: span_bounds(node, &children) };
        let written = self.write_leaves(node, children, table);
        self.failed = written.is_err().then_some(area);
        written
    }

    /// Writes new leaves for a range of a height-1 node's children: what waits here, what `table` has,
    /// and what the old leaves hold.
    fn write_leaves(
        &mut self,
        node: &Node,
        children: Range<usize>,
        table: Option<(&Arc<MemTable>, u64)>,
    ) -> Result<()> {
        let options = self.tree.options();
        let incoming: u64 = children.clone().map(|child| node.buffered_for(child)).sum::<u64>()
            + table.map_or(0, |(_, share)| share);
        let mut leaves = LeafWriter::new(self.tree, options, incoming);
        leaves.large_rewrite = self.large_rewrite.take();
        let mut retain = Retain::new(self.visibility, true).under(self.tombstones.as_deref());
        let may_keep = children.len() == 1 && self.large_rewrite.is_none() && !self.sweeps;
        let bounds = span_bounds(node, &children);
        let (mut runs, mut replaced) = (Vec::new(), Vec::new());
        for child in children {
            let bounds = node.child_bounds(child);
            let live = node.runs.iter().filter(|attached| attached.is_live(child));
            runs.extend(ids(live.clone()));
            replaced.push(node.children[child].leaf_id());
            let mut sources = Vec::new();
            sources.extend(table.map(|(table, _)| memory(table, &bounds)));
            sources.extend(segments(live, &bounds)?);
            if let Child::Leaf(leaf) = &node.children[child] {
                let first =
                    sources.iter().filter_map(MergeSource::entry).map(|entry| entry.key).min();
                let behind = first.is_some_and(|first| first > &leaf.content().max_key[..]);
                if may_keep && behind && leaf.content().raw_bytes >= options.page_size / 2 {
                    // Everything comes behind a leaf that is full enough: it stays as it is.
                    leaves.keep(leaf);
                } else {
                    leaves.expect(leaf.content().raw_bytes);
                    leaves.displaces = leaf.is_mostly_cached();
                    let lighter = options.light_compression() != options.compression;
                    if policy::is_written_lightly(table.is_some(), leaves.displaces, lighter) {
                        leaves.role = Role::LightLeaf;
                    }
                    sources.push(segment(leaf, &bounds)?);
                    self.replaced.push(Arc::clone(leaf));
                }
            }
            self.merge(sources, &bounds, (&mut retain, &|_| None), |entry, dropped| {
                leaves.dropped = dropped;
                leaves.add(entry)
            })?;
        }
        self.large_rewrite = leaves.large_rewrite.take();
        let leaves = leaves.finish(replaced)?;
        self.count_dropped(&retain);
        let area = Area { height: node.height, bounds };
        self.edits.push(Edit::Flushed { area: area.clone(), runs });
        self.edits.push(Edit::Leaves { area, leaves });
        Ok(())
    }
}

/// Leaves as they are written.
struct LeafWriter<'a> {
    tree: &'a Tree,
    options: TreeOptions,
    /// Raw bytes that will come, at most: of every version of every key.
    expected: u64,
    /// Of those that came, bytes nobody sees any more.
    dropped: u64,
    /// Bytes of the leaves that are written.
    written: u64,
    /// The leaf whose entries come is in use.
    displaces: bool,
    role: Role,
    /// The large values that are rewritten, too.
    large_rewrite: Option<LargeRewrite>,
    builder: Option<SegmentBuilder>,
    leaves: Vec<Arc<Segment>>,
}

/// Leaves in the place of old ones.
pub(in crate::tree) struct NewLeaves {
    pub(in crate::tree) children: Vec<Child>,
    pub(in crate::tree) pivots: Vec<Arc<[u8]>>,
    /// The segments of the old ones.
    pub(in crate::tree) replaced: Vec<Option<u64>>,
}

impl<'a> LeafWriter<'a> {
    fn new(tree: &'a Tree, options: TreeOptions, expected: u64) -> Self {
        Self {
            tree,
            options,
            expected,
            dropped: 0,
            written: 0,
            displaces: false,
            role: Role::Leaf,
            large_rewrite: None,
            builder: None,
            leaves: Vec::new(),
        }
    }

    fn keep(&mut self, leaf: &Arc<Segment>) {
        count(&self.tree.shared.counters.leaves_kept, 1);
        self.leaves.push(Arc::clone(leaf));
    }

    fn expect(&mut self, more: u64) {
        self.expected += more;
    }

    /// Where to cut: one leaf up to half over its size, else even pieces. What will come loses as
    /// much to newer versions as what came.
    fn target(&self, building: u64) -> u64 {
        let size = self.options.page_size;
        let kept = (self.written + building) as f64;
        let expected = (self.expected as f64 * kept / (kept + self.dropped as f64)) as u64;
        if expected <= size * 3 / 2 {
            return size * 2;
        }
        let pieces = (expected + size / 2) / size;
        expected.div_ceil(pieces)
    }

    fn add(&mut self, entry: Entry<'_>) -> Result<()> {
        if self.builder.as_ref().is_some_and(|builder| {
            builder.size() >= self.target(builder.size()) && builder.last_key() != entry.key
        }) {
            self.cut()?;
        }
        let (shared, options, displaces) = (&self.tree.shared, &self.options, self.displaces);
        let value;
        let entry = match (entry.message, &mut self.large_rewrite) {
            (Message::Large(reference), Some(large_rewrite)) => {
                match large_rewrite.take(entry.key, shared, reference)? {
                    Some(taken) => {
                        value = taken;
                        Entry { message: Message::Put(&value.0), ..entry }
                    }
                    None => entry,
                }
            }
            _ => entry,
        };
        let role = self.role;
        self.builder
            .get_or_insert_with(|| SegmentBuilder::new(shared, options, role).displacing(displaces))
            .add(entry)
    }

    fn cut(&mut self) -> Result<()> {
        if let Some(builder) = self.builder.take() {
            self.written += builder.size();
            self.leaves.push(builder.finish()?);
            count(&self.tree.shared.counters.leaves_written, 1);
        }
        Ok(())
    }

    fn finish(mut self, replaced: Vec<Option<u64>>) -> Result<NewLeaves> {
        self.cut()?;
        if self.leaves.len() > 1 {
            count(&self.tree.shared.counters.leaf_splits, self.leaves.len() as u64 - 1);
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
        Ok(NewLeaves { children, pivots, replaced })
    }
}

/// A short key `s` with `left <= s < right`.
pub(in crate::tree) fn separator(left: &[u8], right: &[u8]) -> Arc<[u8]> {
    let shared = common_prefix(left, right);
    match right.get(..=shared) {
        Some(short) if short.len() < right.len() => short.into(),
        _ => left.into(),
    }
}
