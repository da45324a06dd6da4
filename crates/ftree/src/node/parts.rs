//! A node being changed: opened, edited, and closed again as one or several nodes.

use super::reads::Reads;
use super::{Attached, Child, Node, Score};
use crate::message::head;
use crate::options::{MAX_FANOUT, TreeOptions};
use crate::segment::{Bounds, Segment};
use crate::tree_shared::TreeShared;
use cachetable::MemoryKind;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// What a node in memory costs beside its keys and shares.
const NODE_BYTES: usize = 300;
const CHILD_BYTES: usize = 80;
const RUN_BYTES: usize = 300;
/// Memory for each large value that a run or leaf names, about.
const LARGE_BYTES: usize = 100;

/// The range of a child of a node with these pivots and bounds.
pub(super) fn bounds_of(pivots: &[Arc<[u8]>], bounds: &Bounds, child: usize) -> Bounds {
    let lower = match child.checked_sub(1) {
        Some(left) => Some(Arc::clone(&pivots[left])),
        None => bounds.lower.clone(),
    };
    Bounds { lower, upper: pivots.get(child).or(bounds.upper.as_ref()).cloned() }
}

/// How a run's bytes are spread over the children of the node it was written for.
pub(crate) struct Shares {
    pub(crate) places: Vec<Bounds>,
    pub(crate) bytes: Vec<u64>,
}

impl Shares {
    /// The same over other children: the node may have been split or fused meanwhile. A child gets
    /// a share where the run may have keys of it.
    fn spread(&self, children: &[Bounds], run: &Segment) -> Box<[u64]> {
        assert_eq!(self.places.len(), self.bytes.len(), "every place has its bytes");
        if self.places == children {
            return self.bytes.as_slice().into();
        }
        let content = run.content();
        let mut shares = vec![0; children.len()];
        for (place, bytes) in self.places.iter().zip(&self.bytes).filter(|(_, bytes)| **bytes > 0) {
            let here = |child: &usize| {
                let bounds = &children[*child];
                bounds.meets(place) && bounds.overlaps(&content.min_key, &content.max_key)
            };
            let met: Vec<usize> = (0..children.len()).filter(here).collect();
            for child in &met {
                shares[*child] += (bytes / met.len() as u64).max(1);
            }
        }
        shares.into()
    }
}

/// The pieces of one node.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) height: u32,
    pub(crate) bounds: Bounds,
    pub(crate) pivots: Vec<Arc<[u8]>>,
    pub(crate) children: Vec<Child>,
    pub(crate) runs: Vec<Attached>,
    /// What reads have noted, and what of it is left once a child was flushed.
    pub(crate) reads: (u64, u64),
}

impl Parts {
    /// A node with one child over every key.
    pub(crate) fn over(height: u32, child: Child) -> Self {
        Self {
            height,
            bounds: Bounds::default(),
            pivots: Vec::new(),
            children: vec![child],
            runs: Vec::new(),
            reads: (0, 0),
        }
    }

    pub(crate) fn of(node: &Node) -> Self {
        Self {
            height: node.height,
            bounds: node.bounds.clone(),
            pivots: node.pivots.to_vec(),
            children: node.children.to_vec(),
            runs: node.runs.to_vec(),
            reads: (node.reads.noted(), node.reads.paid()),
        }
    }

    fn child_bounds(&self, child: usize) -> Bounds {
        bounds_of(&self.pivots, &self.bounds, child)
    }

    /// The ranges of all children.
    pub(crate) fn places(&self) -> Vec<Bounds> {
        (0..self.children.len()).map(|child| self.child_bounds(child)).collect()
    }

    /// The children that lie within bounds, which cut none of them.
    pub(crate) fn children_in(&self, bounds: &Bounds) -> Range<usize> {
        let lower = bounds.lower.as_ref();
        let start = lower.map_or(0, |key| self.pivots.partition_point(|pivot| pivot <= key));
        let upper = bounds.upper.as_ref();
        let end =
            upper.map_or(self.pivots.len(), |key| self.pivots.partition_point(|pivot| pivot < key));
        for child in [start, end] {
            assert!(bounds.encloses(&self.child_bounds(child)), "a change cuts through a child");
        }
        start..end + 1
    }

    /// What waited in some runs for these children is somewhere else now.
    pub(crate) fn flushed(&mut self, children: Range<usize>, of: impl Fn(u64) -> bool) {
        for attached in self.runs.iter_mut().filter(|attached| of(attached.run.id())) {
            attached.shares[children.clone()].fill(0);
        }
    }

    /// A child got what waited for it: the debt of reads is paid as far as that goes.
    pub(crate) fn pay_reads(&mut self) {
        self.reads.0 = self.reads.1;
    }

    /// Puts `new` in the place of a range of children; `pivots` separate the new ones. What
    /// still waits for the old ones is divided among the new ones; where they are several, none
    /// of a run that waits may have been flushed to some of them before. The node may be too wide
    /// until it is closed.
    pub(crate) fn replace(&mut self, old: Range<usize>, new: Vec<Child>, pivots: Vec<Arc<[u8]>>) {
        assert!(!new.is_empty() && pivots.len() + 1 == new.len(), "pivots separate children");
        let there = old.start < old.end && old.end <= self.children.len();
        assert!(there, "children that are replaced are there");
        let count = new.len();
        let inner = old.start..old.end - 1;
        self.pivots.splice(inner, pivots);
        self.children.splice(old.clone(), new);
        let places: Vec<Bounds> =
            (old.start..old.start + count).map(|child| self.child_bounds(child)).collect();
        for attached in &mut self.runs {
            let waiting: u64 = attached.shares[old.clone()].iter().sum();
            let divided = places.iter().map(|bounds| {
                let content = attached.run.content();
                let here = waiting > 0 && bounds.overlaps(&content.min_key, &content.max_key);
                if here { (waiting / count as u64).max(1) } else { 0 }
            });
            let mut shares = attached.shares.to_vec();
            shares.splice(old.clone(), divided.collect::<Vec<_>>());
            attached.shares = shares.into();
            attached.live = 0;
        }
    }

    /// Puts nodes in the place of one child.
    pub(crate) fn replace_node(&mut self, child: usize, nodes: Vec<Arc<Node>>) {
        let adjoin = |pair: &[Arc<Node>]| pair[0].bounds.upper == pair[1].bounds.lower;
        debug_assert!(nodes.windows(2).all(adjoin), "the parts of a node are neighbours");
        let uppers = nodes.iter().take(nodes.len() - 1).map(|node| {
            node.bounds.upper.clone().expect("only the last of several nodes can be open above")
        });
        let pivots = uppers.collect();
        let children = nodes.into_iter().map(Child::Node).collect();
        self.replace(child..child + 1, children, pivots);
    }

    /// Adds a run of this age, which nothing was flushed from yet.
    pub(crate) fn attach(&mut self, run: Arc<Segment>, sequence: u64, shares: &Shares) {
        let shares = shares.spread(&self.places(), &run);
        let at = self.runs.partition_point(|attached| attached.sequence > sequence);
        self.runs.insert(at, Attached { run, sequence, live: 0, shares });
    }

    /// Makes two child nodes one where that is still wanted: both are there, small, and nothing
    /// waits for them.
    pub(crate) fn fuse_nodes(
        &mut self,
        pair: Range<usize>,
        options: &TreeOptions,
        shared: &TreeShared,
    ) {
        let quiet = self.runs.iter().all(|run| run.shares[pair.clone()].iter().all(|s| *s == 0));
        let [Child::Node(left), Child::Node(right)] = &self.children[pair.clone()] else { return };
        if !quiet || left.children.len() + right.children.len() > options.fanout {
            return;
        }
        let mut fused = Self::of(left);
        fused.fuse(Arc::clone(&self.pivots[pair.start]), Self::of(right));
        let child = Child::Node(fused.close_one(options, shared));
        self.replace(pair, vec![child], Vec::new());
    }

    /// Takes in the right neighbour, `pivot` between the two. Runs both have are one.
    pub(crate) fn fuse(&mut self, pivot: Arc<[u8]>, right: Self) {
        assert_eq!(self.height, right.height, "nodes of one height are fused");
        let (left_width, right_width) = (self.children.len(), right.children.len());
        self.bounds.upper = right.bounds.upper;
        self.pivots.push(pivot);
        self.pivots.extend(right.pivots);
        self.children.extend(right.children);
        assert_eq!(self.pivots.len() + 1, self.children.len(), "pivots separate children");
        for attached in &mut self.runs {
            let theirs = right.runs.iter().find(|theirs| theirs.run.id() == attached.run.id());
            let mut shares = attached.shares.to_vec();
            match theirs {
                Some(theirs) => shares.extend_from_slice(&theirs.shares),
                None => shares.resize(left_width + right_width, 0),
            }
            attached.shares = shares.into();
        }
        for mut theirs in right.runs {
            if self.runs.iter().all(|ours| ours.run.id() != theirs.run.id()) {
                let mut shares = vec![0; left_width];
                shares.extend_from_slice(&theirs.shares);
                theirs.shares = shares.into();
                self.runs.push(theirs);
            }
        }
        self.runs.sort_by_key(|attached| std::cmp::Reverse(attached.sequence));
    }

    /// Closes the node: as one, or as several where it has more children than `fanout`. At the
    /// tree's right edge the left ones stay full, so that ascending loads fill their nodes.
    pub(crate) fn close(self, options: &TreeOptions, shared: &TreeShared) -> Vec<Arc<Node>> {
        let width = options.fanout.min(MAX_FANOUT);
        let count = self.children.len();
        if count <= width {
            return vec![self.close_one(options, shared)];
        }
        let pieces = count.div_ceil(width);
        let each = if self.bounds.upper.is_none() { width } else { count.div_ceil(pieces) };
        let mut nodes = Vec::with_capacity(pieces);
        let mut start = 0;
        while start < count {
            let end = (start + each).min(count);
            nodes.push(self.slice(start..end).close_one(options, shared));
            start = end;
        }
        nodes
    }

    fn slice(&self, children: Range<usize>) -> Self {
        assert!(children.start < children.end, "a node has at least one child");
        let first = self.child_bounds(children.start);
        let last = self.child_bounds(children.end - 1);
        let runs = self.runs.iter().map(|attached| Attached {
            run: Arc::clone(&attached.run),
            sequence: attached.sequence,
            live: 0,
            shares: attached.shares[children.clone()].into(),
        });
        Self {
            height: self.height,
            bounds: Bounds { lower: first.lower, upper: last.upper },
            pivots: self.pivots[children.start..children.end - 1].to_vec(),
            children: self.children[children.clone()].to_vec(),
            runs: runs.collect(),
            reads: self.reads,
        }
    }

    pub(super) fn close_one(mut self, options: &TreeOptions, shared: &TreeShared) -> Arc<Node> {
        assert!(self.children.len() <= MAX_FANOUT && self.pivots.len() + 1 == self.children.len());
        assert!(self.pivots.is_sorted_by(|left, right| left < right), "pivots ascend");
        debug_assert!(self.children_fit(), "children lie one level below, each in its place");
        let aged = self.runs.is_sorted_by(|newer, older| newer.sequence >= older.sequence);
        debug_assert!(aged, "runs stand newest first");
        for attached in &mut self.runs {
            assert_eq!(attached.shares.len(), self.children.len(), "a run has a share per child");
            attached.live = 0;
            for (child, share) in attached.shares.iter().enumerate() {
                attached.live |= u64::from(*share > 0) << child;
            }
        }
        self.runs.retain(|attached| attached.live != 0);
        let below = |read: fn(&Node) -> u64| -> u64 {
            let nodes = self.children.iter().filter_map(|child| match child {
                Child::Node(node) => Some(read(node)),
                _ => None,
            });
            nodes.sum()
        };
        let buffered: u64 = self.runs.iter().map(Attached::bytes).sum();
        let in_runs = self.runs.iter().map(|attached| attached.run.content().max_ts).max();
        let in_children = self.children.iter().map(Child::newest_ts).max();
        let memory = self.memory();
        let mut node = Node {
            height: self.height,
            heads: self.pivots.iter().map(|pivot| head(pivot)).collect(),
            buffered,
            buffered_below: buffered + below(|node| node.buffered_below),
            excess_below: below(|node| node.excess_below),
            newest_ts: in_runs.max(in_children).unwrap_or(0),
            garbage_below: self.children.iter().map(Child::garbage).sum(),
            lightly_compressed_below: self
                .children
                .iter()
                .map(Child::lightly_compressed_bytes)
                .sum(),
            bounds: self.bounds,
            pivots: self.pivots.into(),
            children: self.children.into(),
            runs: self.runs.into(),
            score: Score(0),
            score_below: Score(0),
            reads: Reads::default(),
            stored: OnceLock::new(),
            _memory: shared.cache.reserve(MemoryKind::Nodes, memory),
        };
        node.score = node.own_score(options);
        node.reads = Reads::new(self.reads.0, node.price());
        node.excess_below += node.excess(options);
        let below = node.children.iter().map(|child| match child {
            Child::Node(node) => node.score_below,
            _ => Score(0),
        });
        node.score_below = below.max().unwrap_or_default().max(node.score);
        Arc::new(node)
    }

    fn children_fit(&self) -> bool {
        self.children.iter().enumerate().all(|(at, child)| match child {
            Child::Node(node) => {
                node.height + 1 == self.height && node.bounds == self.child_bounds(at)
            }
            Child::Empty | Child::Leaf(_) => self.height == 1,
        })
    }

    fn memory(&self) -> u64 {
        let keys: usize = self.pivots.iter().map(|pivot| pivot.len() + 40).sum();
        let leaves = self.children.iter().map(|child| match child {
            Child::Leaf(leaf) => {
                let keys = leaf.content().min_key.len() + leaf.content().max_key.len();
                keys + size_of::<Segment>() + leaf.descriptor().large.len() * LARGE_BYTES
            }
            _ => 0,
        });
        let runs = self.runs.iter().map(|attached| {
            let large = attached.run.descriptor().large.len() * LARGE_BYTES;
            attached.shares.len() * 8 + RUN_BYTES + large
        });
        let own = NODE_BYTES + self.children.len() * CHILD_BYTES;
        (own + keys + leaves.sum::<usize>() + runs.sum::<usize>()) as u64
    }
}
