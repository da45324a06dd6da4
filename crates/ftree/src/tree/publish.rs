//! Making changed nodes the tree: path copies up to a new root, and the swap.

use super::layer::Layer;
use super::{State, Tree};
use crate::home::count;
use crate::node::{Child, Node, Parts};
use os::sync::atomic::AtomicBool;
use std::sync::Arc;

/// A node and which of its children the path goes through, from the root down.
pub(super) type Path = Vec<(Arc<Node>, usize)>;

impl Tree {
    /// The root that has `nodes` in the place the path leads to.
    pub(super) fn raise(&self, path: Path, mut nodes: Vec<Arc<Node>>) -> Arc<Node> {
        for (parent, child) in path.into_iter().rev() {
            let mut parts = Parts::of(&parent);
            if nodes.len() > 1 {
                count(&self.home.counters.node_splits, nodes.len() as u64 - 1);
            }
            replace_child(&mut parts, child, nodes);
            nodes = parts.close(&self.options(), &self.home);
        }
        while nodes.len() > 1 {
            count(&self.home.counters.node_splits, nodes.len() as u64 - 1);
            count(&self.home.counters.root_grows, 1);
            let mut parts = Parts::over(nodes[0].height + 1, Child::Empty);
            replace_child(&mut parts, 0, nodes);
            nodes = parts.close(&self.options(), &self.home);
        }
        let mut root = nodes.pop().expect("a node closes as at least one");
        while let ([Child::Node(only)], []) = (&root.children[..], &root.runs[..]) {
            count(&self.home.counters.root_shrinks, 1);
            root = Arc::clone(only);
        }
        root
    }

    /// Swaps the root in; `drained` is the layer whose entries it now holds, and what is left.
    pub(super) fn publish_root(
        &self,
        root: Arc<Node>,
        sequence: u64,
        drained: Option<(&Layer, Option<Layer>)>,
    ) {
        let old = {
            let _swap = self.publish.lock();
            let old = self.pin();
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
            let active = Arc::clone(&old.active);
            // The active memtable stays, so inserts need not wait for the slots.
            let settled = AtomicBool::new(true);
            let state = State { active, sealed, root, flushed_ts, sequence, settled };
            self.pins.publish(&Arc::new(state));
            old
        };
        // What nobody else can see any more is freed here, outside the lock.
        drop(old);
    }
}

/// Puts nodes in the place of one child.
pub(super) fn replace_child(parts: &mut Parts, child: usize, nodes: Vec<Arc<Node>>) {
    let uppers = nodes.iter().take(nodes.len() - 1).map(|node| {
        node.bounds.upper.clone().expect("only the last of several nodes can be open above")
    });
    let pivots = uppers.collect();
    let children = nodes.into_iter().map(Child::Node).collect();
    parts.replace(child..child + 1, children, pivots);
}
