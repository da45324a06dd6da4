//! Nodes: pivots, children, and the runs that wait to be flushed into the children.
//!
//! A node is immutable and stays in memory. Work on it makes a changed copy ([`Parts`]) that
//! replaces it, and copies of its ancestors up to the root; the objects it names are shared.
//!
//! Invariants, checked by `verify`:
//! 1. Pivots ascend strictly; child `i` holds keys `k` with `pivots[i - 1] < k <= pivots[i]`.
//! 2. Runs stand newest first; bit `i` of a run's `live` says that its keys of child `i` are not
//!    yet flushed there, and then its `shares[i]` is above zero. The mask plays the part of a
//!    flushed watermark per child: a flush takes all runs' shares of a child at once.
//!    Runs of one age (parts of a split node that were merged apart and met again when the node
//!    was fused) have no live child in common.
//! 3. A run without a live child is not in the node; a run may be live in several nodes.
//! 4. There are at most 64 children (the mask's width) and at least one.
//!
//! On disk: `docs/formats/node.md`.

mod codec;
mod parts;
pub(crate) mod reads;

pub(crate) use codec::{ChildImage, Loader, NodeImage, decode, encode};
pub(crate) use parts::{Parts, Shares};

use crate::message::head;
use crate::options::TreeOptions;
use crate::segment::{Bounds, Segment};
use cachetable::Reservation;
use reads::Reads;
use std::sync::{Arc, OnceLock};

/// What a child is.
#[derive(Clone)]
pub(crate) enum Child {
    /// A leaf nobody has written to.
    Empty,
    Leaf(Arc<Segment>),
    Node(Arc<Node>),
}

impl Child {
    /// Raw bytes of a leaf.
    pub(crate) fn leaf_bytes(&self) -> u64 {
        match self {
            Child::Leaf(leaf) => leaf.content().raw_bytes,
            Child::Empty | Child::Node(_) => 0,
        }
    }

    /// The segment of a leaf.
    pub(crate) fn leaf_id(&self) -> Option<u64> {
        match self {
            Child::Leaf(leaf) => Some(leaf.id()),
            Child::Empty | Child::Node(_) => None,
        }
    }

    /// Bytes of leaves below that are to be compressed as the options say.
    pub(crate) fn lightly_compressed_bytes(&self) -> u64 {
        match self {
            Child::Leaf(leaf) if leaf.is_lightly_compressed() => leaf.content().raw_bytes,
            Child::Node(node) => node.lightly_compressed_below,
            Child::Leaf(_) | Child::Empty => 0,
        }
    }

    /// A timestamp at or above all in it.
    pub(crate) fn newest_ts(&self) -> u64 {
        match self {
            Child::Leaf(leaf) => leaf.content().max_ts,
            Child::Node(node) => node.newest_ts,
            Child::Empty => 0,
        }
    }

    /// Entries below that a rewrite could drop.
    pub(crate) fn garbage(&self) -> u64 {
        match self {
            Child::Leaf(leaf) => leaf.content().garbage(),
            Child::Node(node) => node.garbage_below,
            Child::Empty => 0,
        }
    }
}

/// A run as one node sees it.
#[derive(Clone)]
pub(crate) struct Attached {
    pub(crate) run: Arc<Segment>,
    /// Age: greater is newer, whatever node.
    pub(crate) sequence: u64,
    pub(crate) live: u64,
    /// Bytes that wait for each child, 0 where the run is not live for it.
    pub(crate) shares: Box<[u64]>,
}

impl Attached {
    pub(crate) fn is_live(&self, child: usize) -> bool {
        self.live >> child & 1 == 1
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.shares.iter().sum()
    }
}

/// The most urgent thing to do below a node, and how urgent it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Score(pub(crate) u64);

/// At this score work must be done; below it only idle time is spent.
pub(crate) const NEEDED: Score = Score(1000);

/// One immutable node.
pub(crate) struct Node {
    /// Distance to the leaves; 1 is right above them.
    pub(crate) height: u32,
    pub(crate) bounds: Bounds,
    pub(crate) pivots: Box<[Arc<[u8]>]>,
    heads: Box<[u64]>,
    pub(crate) children: Box<[Child]>,
    pub(crate) runs: Box<[Attached]>,
    /// Bytes in its runs that wait.
    pub(crate) buffered: u64,
    /// The same, with everything below.
    pub(crate) buffered_below: u64,
    /// Bytes over budget here and below: what must still be moved.
    pub(crate) excess_below: u64,
    /// Entries in leaves below that a rewrite could drop.
    pub(crate) garbage_below: u64,
    /// A timestamp at or above all in its runs and below.
    pub(crate) newest_ts: u64,
    /// Bytes of leaves below that are to be compressed as the options say.
    pub(crate) lightly_compressed_below: u64,
    /// Its own most urgent work.
    pub(crate) score: Score,
    /// The most urgent work here or below.
    pub(crate) score_below: Score,
    /// What reads have paid for its runs.
    pub(crate) reads: Reads,
    /// The segment a checkpoint stored it in.
    pub(crate) stored: OnceLock<StoredNode>,
    _memory: Reservation,
}

/// A node's place on disk; freed with the node.
pub(crate) struct StoredNode {
    pub(crate) id: u64,
    pub(crate) page: blockfile::PageRef,
    pub(crate) shared: Arc<crate::tree_shared::TreeShared>,
}

impl Drop for StoredNode {
    fn drop(&mut self) {
        self.shared.release(self.id, 0);
    }
}

impl Node {
    /// The child whose range has `key`.
    pub(crate) fn child_of(&self, key: &[u8]) -> usize {
        let key_head = head(key);
        let (mut low, mut high) = (0, self.pivots.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let order = self.heads[middle].cmp(&key_head);
            if order.then_with(|| self.pivots[middle][..].cmp(key)).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The first child with keys greater than `key`.
    pub(crate) fn child_after(&self, key: &[u8]) -> usize {
        self.pivots.partition_point(|pivot| &pivot[..] <= key)
    }

    /// The ranges of all children.
    pub(crate) fn places(&self) -> Vec<Bounds> {
        (0..self.children.len()).map(|child| self.child_bounds(child)).collect()
    }

    /// The range of a child.
    pub(crate) fn child_bounds(&self, child: usize) -> Bounds {
        parts::bounds_of(&self.pivots, &self.bounds, child)
    }

    /// Runs a read of a child meets here.
    pub(crate) fn live_runs(&self, child: usize) -> u64 {
        self.runs.iter().filter(|attached| attached.is_live(child)).count() as u64
    }

    /// A timestamp at or above all that lies below this node's newest runs, as many as said, for a child.
    pub(crate) fn newest_ts_below(&self, child: usize, runs: usize) -> u64 {
        let older = self.runs.iter().skip(runs).filter(|attached| attached.is_live(child));
        let in_runs = older.map(|attached| attached.run.content().max_ts).max();
        in_runs.unwrap_or(0).max(self.children[child].newest_ts())
    }

    /// What flushing the heaviest child costs, in bytes merged; 0 where nothing waits.
    fn price(&self) -> u64 {
        let waiting = (0..self.children.len()).map(|child| (self.buffered_for(child), child));
        match waiting.max() {
            Some((bytes, child)) if bytes > 0 => bytes + self.children[child].leaf_bytes(),
            _ => 0,
        }
    }

    /// Bytes that wait for a child.
    pub(crate) fn buffered_for(&self, child: usize) -> u64 {
        self.runs.iter().map(|attached| attached.shares[child]).sum()
    }

    /// Newest runs of like size, or of any where there are too many, to be merged into one: how many
    /// from the front; 0 for none.
    pub(crate) fn tier(&self, options: &TreeOptions) -> usize {
        let many = self.runs.len() > options.max_runs;
        let mut sum = 0;
        let mut count = 0;
        for attached in &self.runs {
            let bytes = attached.bytes();
            // A run much larger than all newer ones together waits for its own like.
            if count > 0 && bytes > sum * 2 && !many {
                break;
            }
            if count >= options.tier && sum + bytes > options.most_merged() {
                break;
            }
            sum += bytes;
            count += 1;
        }
        if count >= options.tier { count } else { 0 }
    }

    /// Two neighbouring leaves of which one is small, together no larger than one leaf.
    pub(crate) fn leaves_to_fuse(&self, options: &TreeOptions) -> Option<usize> {
        if self.height != 1 {
            return None;
        }
        let size = |child: usize| self.children[child].leaf_bytes() + self.buffered_for(child);
        (1..self.children.len()).map(|right| right - 1).find(|left| {
            let (a, b) = (size(*left), size(left + 1));
            a.min(b) < options.page_size / 4 && a + b <= options.page_size
        })
    }

    /// Two neighbouring nodes with few children each.
    pub(crate) fn nodes_to_fuse(&self, options: &TreeOptions) -> Option<usize> {
        let count = |child: &Child| match child {
            Child::Node(node) => Some(node.children.len()),
            _ => None,
        };
        self.children.windows(2).position(|pair| match (count(&pair[0]), count(&pair[1])) {
            (Some(a), Some(b)) => a.min(b) <= options.fanout / 4 && a + b <= options.fanout * 3 / 4,
            _ => false,
        })
    }

    pub(crate) fn own_score(&self, options: &TreeOptions) -> Score {
        let mut score = 0;
        if self.buffered > options.buffer_bytes {
            score = score.max(1000 + self.buffered * 100 / options.buffer_bytes.max(1));
        }
        if self.runs.len() > options.max_runs {
            score = score.max(1000 + self.runs.len() as u64 * 1000 / options.max_runs as u64);
        }
        if score == 0 && self.tier(options) > 0 {
            score = 1050;
        }
        let fuse = self.leaves_to_fuse(options).is_some() || self.nodes_to_fuse(options).is_some();
        if score == 0 && fuse {
            score = 1000;
        }
        if score == 0 && self.buffered > 0 {
            score = 1 + self.buffered * 500 / options.buffer_bytes.max(1);
        }
        Score(score)
    }

    fn excess(&self, options: &TreeOptions) -> u64 {
        self.buffered.saturating_sub(options.buffer_bytes)
    }
}
