//! Making what a unit of work has written the tree: edits of the newest root, and the swap.
//!
//! A unit says what it changes as [`Edit`]s of areas, not of nodes: others publish meanwhile, and
//! nodes of the area may have been split or copied since the unit read them. Under the publish
//! lock the edits are applied to the current root, copying the path down to each area; nothing is
//! read or written there, so the lock is held for microseconds per changed node.

use super::layer::Layer;
use super::work::{Area, NewLeaves};
use super::{State, Tree};
use crate::node::{Child, Node, Parts, Shares};
use crate::options::TreeOptions;
use crate::segment::Segment;
use crate::tree_shared::count;
use os::sync::atomic::AtomicBool;
use std::sync::Arc;

/// A change of one area.
pub(super) enum Edit {
    /// What these runs have for the area is somewhere else now.
    Flushed { area: Area, runs: Vec<u64> },
    /// A run: the newest where its age is `None`.
    Attach { area: Area, run: Arc<Segment>, age: Option<u64>, shares: Shares },
    /// Leaves in the place of those that were there.
    Leaves { area: Area, leaves: NewLeaves },
    /// Two child nodes become one, if they are still small and nothing waits for them.
    Fuse { area: Area },
}

impl Edit {
    fn area(&self) -> &Area {
        match self {
            Edit::Flushed { area, .. }
            | Edit::Attach { area, .. }
            | Edit::Leaves { area, .. }
            | Edit::Fuse { area } => area,
        }
    }

    fn area_mut(&mut self) -> &mut Area {
        match self {
            Edit::Flushed { area, .. }
            | Edit::Attach { area, .. }
            | Edit::Leaves { area, .. }
            | Edit::Fuse { area } => area,
        }
    }
}

impl Tree {
    /// Applies the edits and swaps the root in; `drained` is the layer whose entries they bring
    /// below it, and what is left of it.
    pub(super) fn publish(&self, mut edits: Vec<Edit>, drained: Option<(&Layer, Option<Layer>)>) {
        let old = {
            let _swap = self.publish.lock();
            let old = self.pin();
            let mut sequence = old.sequence;
            for edit in &mut edits {
                // A level that held nothing may be gone; the newest run is at home on any top.
                let area = edit.area_mut();
                area.height = area.height.min(old.root.height);
                if let Edit::Attach { age, .. } = edit {
                    age.get_or_insert_with(|| {
                        sequence += 1;
                        sequence
                    });
                }
            }
            let options = self.options();
            let edits: Vec<&Edit> = edits.iter().collect();
            let root = self.grow(self.apply(&old.root, &edits, &options), &options);
            let mut sealed = old.sealed.clone();
            let mut flushed_ts = old.flushed_ts;
            if let Some((layer, rest)) = drained {
                let at = sealed.iter().rposition(|other| other.is(layer));
                let at = at.expect("a layer is drained once");
                if let Some(rest) = rest {
                    sealed[at] = rest;
                } else {
                    sealed.remove(at);
                    flushed_ts = flushed_ts.max(layer.flushed_ts());
                }
            }
            assert!(sequence >= old.sequence, "runs only get younger");
            assert!(flushed_ts >= old.flushed_ts, "what is flushed stays flushed");
            assert!(sealed.len() <= old.sealed.len(), "work seals nothing");
            let active = Arc::clone(&old.active);
            // The active memtable stays, so inserts need not wait for the slots.
            let installed = AtomicBool::new(true);
            let tombstones = old.tombstones.clone();
            let state = State { active, sealed, root, flushed_ts, sequence, tombstones, installed };
            self.pins.publish(&Arc::new(state));
            old
        };
        // What nobody else can see any more is freed here, outside the lock.
        drop(old);
    }

    /// A copy of the node with the edits that meet its range: one node, or several.
    fn apply(&self, node: &Node, edits: &[&Edit], options: &TreeOptions) -> Vec<Arc<Node>> {
        let mut parts = Parts::of(node);
        // From the right, so that places further left stay.
        for (at, child) in node.children.iter().enumerate().rev() {
            let Child::Node(child) = child else { break };
            let inside = |edit: &&&Edit| {
                let area = edit.area();
                area.height < node.height && area.bounds.meets(&child.bounds)
            };
            let inside: Vec<&Edit> = edits.iter().filter(inside).copied().collect();
            if !inside.is_empty() {
                let nodes = self.apply(child, &inside, options);
                count(&self.shared.counters.node_splits, nodes.len() as u64 - 1);
                parts.replace_node(at, nodes);
            }
        }
        for edit in edits.iter().filter(|edit| edit.area().height == node.height) {
            self.edit(&mut parts, edit, options);
        }
        parts.close(options, &self.shared)
    }

    fn edit(&self, parts: &mut Parts, edit: &Edit, options: &TreeOptions) {
        let bounds = &edit.area().bounds;
        match edit {
            Edit::Flushed { runs, .. } => {
                let children = parts.children_in(bounds);
                // A merge, which takes in every child, makes reads hardly cheaper.
                if children.len() < parts.children.len() || children.len() == 1 {
                    parts.pay_reads();
                }
                parts.flushed(children, |run| runs.contains(&run));
            }
            Edit::Attach { run, age, shares, .. } => {
                parts.attach(Arc::clone(run), age.unwrap_or(u64::MAX), shares);
            }
            Edit::Leaves { leaves, .. } => {
                let children = parts.children_in(bounds);
                let there = parts.children[children.clone()].iter().map(Child::leaf_id);
                assert!(there.eq(leaves.replaced.iter().copied()), "leaves changed under a claim");
                parts.replace(children, leaves.children.clone(), leaves.pivots.clone());
            }
            Edit::Fuse { .. } => {
                let children = parts.children_in(bounds);
                parts.fuse_nodes(children, options, &self.shared);
            }
        }
    }

    /// One root over these nodes, no higher than needed.
    pub(super) fn grow(&self, mut nodes: Vec<Arc<Node>>, options: &TreeOptions) -> Arc<Node> {
        while nodes.len() > 1 {
            count(&self.shared.counters.node_splits, nodes.len() as u64 - 1);
            count(&self.shared.counters.root_grows, 1);
            let mut parts = Parts::over(nodes[0].height + 1, Child::Empty);
            parts.replace_node(0, nodes);
            nodes = parts.close(options, &self.shared);
        }
        let mut root = nodes.pop().expect("a node closes as at least one");
        while let ([Child::Node(only)], []) = (&root.children[..], &root.runs[..]) {
            count(&self.shared.counters.root_shrinks, 1);
            root = Arc::clone(only);
        }
        root
    }
}
