//! Draining: the entries of a sealed memtable become runs of nodes, or leaves.
//!
//! Entries may pass a node only where nothing older waits in it for the same child, or where that
//! goes along into the leaf. That stays true while the drain runs: only drains bring anything to the
//! top, one at a time, and units below move things down, never up.

use super::policy::{self, Below};
use super::runs::{memory, span_bounds, spans};
use super::{Area, Layer, Unit};
use crate::error::Result;
use crate::memtable::{MemIter, MemTable};
use crate::message::Place;
use crate::node::{Child, Node};
use crate::tree_shared::count;
use std::sync::Arc;

impl Unit<'_> {
    /// Moves a layer below the root: a sealed memtable, or a piece of a large transaction.
    pub(super) fn drain(&mut self, root: &Node, layer: &Layer) -> Result<()> {
        let table = match layer {
            Layer::Table(table) => Arc::clone(table),
            Layer::Overlay(overlay) => {
                let hasher = &self.tree.context.hasher;
                let piece = Arc::new(MemTable::new(&self.tree.shared.cache, hasher));
                let rest = overlay.fill(&piece, self.tree.options().buffer_bytes)?;
                self.rest = rest.map(Layer::Overlay);
                piece
            }
        };
        self.drain_into(root, &table)?;
        count(&self.tree.shared.counters.drained_bytes, table.weight());
        Ok(())
    }

    /// Puts the entries of a memtable that lie in a node's range below it. Children that get
    /// enough to be worth it, and have nothing older waiting here, get theirs directly; what is
    /// left becomes one run of this node.
    fn drain_into(&mut self, node: &Node, table: &Arc<MemTable>) -> Result<()> {
        let shares = weigh(node, table);
        let direct: Vec<bool> = (0..shares.len())
            .map(|child| self.is_worth(node, child, shares[child]) && self.may_enter(node, child))
            .collect();
        let rest = spans(shares.len(), |child| shares[child] > 0 && !direct[child], |_, _| true);
        let inputs = rest.into_iter().map(|span| {
            let bounds = span_bounds(node, &span);
            Ok((vec![memory(table, &bounds)], bounds))
        });
        self.write_run(node, (None, 0), inputs)?;
        for child in (0..shares.len()).filter(|child| direct[*child]) {
            if let Child::Node(below) = &node.children[child] {
                self.drain_into(below, table)?;
            } else {
                self.rewrite(node, child..child + 1, Some((table, shares[child])))?;
                self.publish_leaves();
            }
        }
        Ok(())
    }

    /// Publishes the leaves of a drain as it goes, once they are some: else old and new pages of
    /// all of them would be in memory at its end. Their entries stay in the layer until then; that
    /// readers meet them twice does not matter, a version is what it is.
    fn publish_leaves(&mut self) {
        let bytes: u64 = self.replaced.iter().map(|leaf| leaf.content().raw_bytes).sum();
        if policy::publishes_now(bytes, self.tree.options().page_size) {
            self.publish(None);
        }
    }

    fn is_worth(&self, node: &Node, child: usize, share: u64) -> bool {
        let below = match &node.children[child] {
            Child::Empty => Below::Empty,
            Child::Leaf(leaf) => Below::Leaf(leaf.content().raw_bytes),
            Child::Node(_) => Below::Node,
        };
        policy::goes_direct(share, below, self.tree.options().page_size)
    }

    /// A leaf must be ours, with what waits for it; a node below takes newer runs whoever works on
    /// it.
    fn may_enter(&self, node: &Node, child: usize) -> bool {
        if matches!(node.children[child], Child::Node(_)) {
            return node.buffered_for(child) == 0;
        }
        let area = Area { height: node.height, bounds: node.child_bounds(child) };
        // The drain has read its root some time ago: all must still be the same.
        self.claim.extend(area, |area| self.tree.has_leaf(area, node, child))
    }
}

impl super::Tree {
    /// Whether the area is the range of a leaf now, of the one a node had there, and the same runs
    /// wait for it.
    fn has_leaf(&self, area: &Area, read: &Node, at_read: usize) -> bool {
        let state = self.pin();
        let mut node = &state.root;
        loop {
            let at = area.bounds.lower.as_ref().map_or(0, |lower| node.child_after(lower));
            match &node.children[at] {
                Child::Node(below) => node = below,
                child => {
                    return node.child_bounds(at) == area.bounds
                        && child.leaf_id() == read.children[at_read].leaf_id()
                        && waiting_runs(node, at).eq(waiting_runs(read, at_read));
                }
            }
        }
    }
}

fn waiting_runs(node: &Node, child: usize) -> impl Iterator<Item = u64> {
    node.runs.iter().filter(move |run| run.is_live(child)).map(|attached| attached.run.id())
}

/// Bytes a memtable has for each child of a node.
fn weigh(node: &Node, table: &Arc<MemTable>) -> Vec<u64> {
    let mut shares = vec![0; node.children.len()];
    let mut child = 0;
    let from = node.bounds.lower.as_ref().map(|lower| Place::behind(lower));
    let mut iter = MemIter::forward(Arc::clone(table), from).reading_ahead();
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
