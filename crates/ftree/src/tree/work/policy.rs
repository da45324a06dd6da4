//! What a tree does next, and how it writes it: pure functions of plain numbers, without a lock and
//! without a look at the disk. What the engine decides about all trees is in its own policy.
//!
//! | Question | Function |
//! |---|---|
//! | how much a call does | [`work_limits`] |
//! | whether a memtable is drained before anything else | [`drain_comes_first`] |
//! | whether a layer may go to disk | [`may_be_drained`] |
//! | what a node needs most | [`node_needs`] |
//! | what is said where no unit was found | [`without_unit`] |
//! | whether entries of a memtable pass a node | [`goes_direct`] |
//! | when a drain publishes | [`publishes_now`] |
//! | how a leaf is compressed | [`is_written_lightly`] |
//!
//! What is always true: the same arguments give the same answer. Each rule of ADR 18 and 23 is a
//! row of a table in the tests.

#[cfg(test)]
mod tests;

use super::{Effort, Progress};
use crate::node::{NEEDED, Score};

/// A node this far over its budget is read badly, and then other units are done between two drains:
/// one for each step further, so that writers, who wait for drains, are slowed little by little and
/// not at once. 2000 is nine runs of eight that a node may have (ADR 23).
const OVERDUE: Score = Score(2000);
/// See [`OVERDUE`]: score for one unit more (ADR 23).
const OVERDUE_STEP: u64 = 250;
/// The most units between two drains: as before ADR 23, when it was all of them at once.
const MOST_BETWEEN_DRAINS: u64 = 16;
/// Where buffers hold so many times more than their budgets, as many bytes go into leaves between
/// two drains as a drain brings; with less over, in proportion less. So what waits in buffers is
/// bounded however long somebody writes (ADR 23).
const MOST_OVER: u64 = 3;
/// A node far over its bytes may have so many times more runs (ADR 23).
const MANY_WHERE_MUCH: usize = 4;
/// A leaf that is rewritten costs its size; buffered, a share of it would cost about so many times
/// the share over its way down.
const BUFFERING_COST: u64 = 4;
/// A leaf of no more than one part in so many of a page is rewritten whatever comes: it is new.
const SMALL_LEAF: u64 = 16;
/// Runs for a child node are at least one part in so many of a leaf's size: shorter ones would
/// fill nodes with what each read has to look into.
const LEAST_RUN: u64 = 2;
/// A drain publishes its leaves when those they replace make so many of full size (ADR 18).
const LEAVES_AT_ONCE: u64 = 8;

/// How far a call of [`Tree::work`](super::Tree::work) goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WorkLimits {
    /// The least score that is worked on.
    pub(super) min_score: Score,
    /// Only as many merges run as the engine allows.
    pub(super) limits_merges: bool,
    /// Leaves with versions that nobody sees are rewritten, and what tombstones cover is swept.
    pub(super) rewrites_garbage: bool,
    /// Lightly compressed leaves are rewritten.
    pub(super) rewrites_lightly_compressed: bool,
}

/// How far a call goes that is willing to do so much.
pub(super) fn work_limits(effort: Effort) -> WorkLimits {
    let is_needed = matches!(effort, Effort::Needed | Effort::Paced);
    WorkLimits {
        min_score: if is_needed { NEEDED } else { Score(1) },
        limits_merges: effort == Effort::Paced,
        rewrites_garbage: matches!(effort, Effort::Idle | Effort::IdleWithoutWrites),
        rewrites_lightly_compressed: effort == Effort::IdleWithoutWrites,
    }
}

/// Whether a layer may go to disk whose newest version is at or below `newest`: not as long as some of it
/// may be overwritten, where commits above `drains_to` may (ADR 38).
pub(super) fn may_be_drained(newest: u64, drains_to: Option<u64>) -> bool {
    drains_to.is_none_or(|drains_to| newest <= drains_to)
}

/// What has happened since the last drain, and what waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct DrainLoad {
    /// The score of the most urgent node.
    pub(super) urgency: u64,
    /// Units since the last drain.
    pub(super) units: u32,
    /// Bytes that they have moved into leaves.
    pub(super) flushed: u64,
    /// Bytes that the last drain brought.
    pub(super) drained: u64,
    /// Bytes in all buffers.
    pub(super) buffered: u64,
    /// Of those, bytes over the budgets.
    pub(super) excess: u64,
}

/// Whether a sealed memtable is drained before anything else. It frees memory, so it is, but for
/// what is overdue: units where a node is far over its budget, bytes where all buffers are.
pub(super) fn drain_comes_first(load: &DrainLoad) -> bool {
    let due_units = load.urgency.saturating_sub(OVERDUE.0) / OVERDUE_STEP;
    u64::from(load.units) >= due_units.min(MOST_BETWEEN_DRAINS) && load.flushed >= due_bytes(load)
}

/// Bytes that should go into leaves before the next drain.
fn due_bytes(load: &DrainLoad) -> u64 {
    debug_assert!(load.excess <= load.buffered, "what is over a budget is in a buffer");
    let within = load.buffered.saturating_sub(load.excess).max(1);
    let over = u128::from(load.drained) * u128::from(load.excess);
    let due = u64::try_from(over / u128::from(within * MOST_OVER)).unwrap_or(u64::MAX);
    due.min(load.drained.saturating_mul(2))
}

/// One node's buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct NodeLoad {
    /// How many of its newest runs can be read.
    pub(super) sound_runs: usize,
    /// How many of its newest runs make a tier; 0 for none.
    pub(super) tier: usize,
    /// Bytes that wait in its runs.
    pub(super) buffered: u64,
    /// Of those, bytes that others are moving on: as good as gone.
    pub(super) moved_by_others: u64,
    /// Two neighbouring leaves of it are small, and can be read.
    pub(super) fuses_leaves: bool,
    /// Two neighbouring child nodes of it are small.
    pub(super) fuses_nodes: bool,
    /// It was urgent under options that have changed since.
    pub(super) is_stale: bool,
}

/// What a node may hold, from the tree's options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NodeBudget {
    /// Bytes in its buffers.
    pub(super) bytes: u64,
    /// Bytes above which a merge would be too large, and move nothing on.
    pub(super) most_merged: u64,
    /// Runs.
    pub(super) runs: usize,
    /// Runs of like size that are merged into one.
    pub(super) tier: usize,
    /// Only what is over the budget is worked on.
    pub(super) only_needed: bool,
}

/// What a node needs most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeNeed {
    /// So many of its newest runs are made one.
    Merge(usize),
    /// Its heaviest child gets what waits for it.
    Flush,
    /// Two small leaves become one.
    FuseLeaves,
    /// Two small child nodes become one.
    FuseNodes,
    /// It is written again with the tree's present options.
    ApplyOptions,
    /// Nothing.
    Nothing,
}

/// What a node needs most: the merge of too many runs, its heaviest child where it is over its
/// budget, a merge of a tier, a fuse. In idle time whatever is buffered is flushed down.
pub(super) fn node_needs(node: &NodeLoad, budget: &NodeBudget) -> NodeNeed {
    debug_assert!(node.moved_by_others <= node.buffered, "what moves was in the buffers");
    // Far over its bytes it needs them moved on, which a merge does not do: it would only write
    // them once more.
    let much = node.buffered > budget.most_merged;
    let many = if much { budget.runs * MANY_WHERE_MUCH } else { budget.runs };
    // A run that cannot be read is merged no more, nor what is older.
    let tier = node.tier.min(node.sound_runs);
    if node.sound_runs > many {
        return NodeNeed::Merge(tier);
    }
    if node.buffered - node.moved_by_others > budget.bytes {
        return NodeNeed::Flush;
    }
    if tier >= budget.tier {
        NodeNeed::Merge(tier)
    } else if node.fuses_leaves {
        NodeNeed::FuseLeaves
    } else if node.fuses_nodes {
        NodeNeed::FuseNodes
    } else if !budget.only_needed {
        NodeNeed::Flush
    } else if node.is_stale {
        NodeNeed::ApplyOptions
    } else {
        NodeNeed::Nothing
    }
}

/// Why no unit was found.
#[expect(clippy::struct_excessive_bools, reason = "four facts, each of which can be or not")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct NoUnit {
    /// There was a merge, and as many as may be are under way.
    pub(super) was_deferred: bool,
    /// There is a sealed memtable.
    pub(super) has_sealed: bool,
    /// Others are at work.
    pub(super) has_other_workers: bool,
    /// Something is urgent enough.
    pub(super) is_urgent: bool,
}

/// What is said where no unit was found.
pub(super) fn without_unit(why: NoUnit) -> Progress {
    if why.was_deferred {
        Progress::Deferred
    } else if why.has_sealed || (why.has_other_workers && why.is_urgent) {
        Progress::Busy
    } else {
        Progress::Idle
    }
}

/// What a drain finds below a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Below {
    /// A leaf nobody has written to.
    Empty,
    /// A leaf of so many bytes.
    Leaf(u64),
    /// A node.
    Node,
}

/// Whether a child's share of a memtable, in bytes, is worth passing the node's buffer.
pub(super) fn goes_direct(share: u64, below: Below, page_size: u64) -> bool {
    match below {
        _ if share == 0 => false,
        Below::Empty => true,
        Below::Leaf(size) => share * BUFFERING_COST >= size || size <= page_size / SMALL_LEAF,
        Below::Node => share >= page_size / LEAST_RUN,
    }
}

/// Whether a drain publishes the leaves it has written, which replace so many bytes: else old and
/// new pages of all of them would be in memory at its end.
pub(super) fn publishes_now(replaced_bytes: u64, page_size: u64) -> bool {
    replaced_bytes >= page_size * LEAVES_AT_ONCE
}

/// Whether a leaf is compressed fast and not well: it is in use, and written straight from a
/// memtable, so it will not live long. Not where the options ask for nothing better.
pub(super) fn is_written_lightly(from_memtable: bool, in_use: bool, lighter_exists: bool) -> bool {
    from_memtable && in_use && lighter_exists
}
