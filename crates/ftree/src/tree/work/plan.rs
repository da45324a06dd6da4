//! Choosing the next unit of work: what is most urgent and nobody is at already.
//!
//! Draining comes first, because it frees memory, but for what is overdue; then the node with the
//! highest score, in it the merge of too many runs, the heaviest child where it is over its budget,
//! a merge of a tier, a fuse. In idle time whatever is buffered is flushed down, and leaves that
//! are full of dead versions or lightly compressed are rewritten.

use super::claims::{Area, Claim, ClaimTable};
use super::policy::{self, DrainLoad, NoUnit, NodeBudget, NodeLoad, NodeNeed};
use super::{Effort, Layer, Progress, Tree};
use crate::message::Visibility;
use crate::node::{Child, NEEDED, Node, Score};
use crate::options::TreeOptions;
use crate::segment::Bounds;
use os::sync::atomic::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// One unit of work to be done.
pub(super) enum Plan {
    /// Empty the oldest sealed layer, or a piece of it.
    Drain { root: Arc<Node>, layer: Layer },
    /// Make the newest runs one.
    Merge { node: Arc<Node>, newest: usize },
    /// Move what waits for a child node into it.
    Flush { node: Arc<Node>, child: usize, below: Arc<Node> },
    /// New leaves from what waits for these and what they hold.
    Rewrite { node: Arc<Node>, children: Range<usize> },
    /// Let go of leaves, unread, and of what these runs have for each.
    Free { node: Arc<Node>, children: Range<usize>, runs: Vec<Vec<u64>> },
    /// Let go of what these runs have for a child.
    Forget { node: Arc<Node>, child: usize, runs: Vec<u64> },
    /// Make two small child nodes one.
    Fuse { area: Area },
    /// Write the node again with the tree's present options; its score was that of the old ones.
    ApplyOptions { area: Area },
}

impl Plan {
    /// What the unit must claim before it starts; a drain claims otherwise.
    pub(super) fn area(&self) -> Option<Area> {
        let area = |node: &Node, bounds| Some(Area { height: node.height, bounds });
        match self {
            Plan::Drain { .. } => None,
            Plan::Merge { node, .. } => area(node, node.bounds.clone()),
            Plan::Flush { node, child, .. } | Plan::Forget { node, child, .. } => {
                Some(Area::of_child(node, *child))
            }
            // The node with two leaves may not be cut between them meanwhile.
            Plan::Rewrite { node, children } | Plan::Free { node, children, .. }
                if children.len() > 1 =>
            {
                area(node, node.bounds.clone())
            }
            Plan::Rewrite { node, children } | Plan::Free { node, children, .. } => {
                Some(Area::of_child(node, children.start))
            }
            Plan::Fuse { area } | Plan::ApplyOptions { area } => Some(area.clone()),
        }
    }

    /// Bytes that it moves from buffers into leaves.
    fn flushed_bytes(&self) -> u64 {
        match self {
            Plan::Rewrite { node, children } => {
                children.clone().map(|child| node.buffered_for(child)).sum()
            }
            _ => 0,
        }
    }
}

/// What there is to do.
pub(super) enum Chosen<'a> {
    Unit(Plan, Claim<'a>),
    /// None: what is said about it.
    None(Progress),
}

impl Tree {
    /// The most urgent unit that meets no claim, claimed.
    pub(super) fn choose(&self, visibility: &Visibility, effort: Effort) -> Chosen<'_> {
        let mut claims = self.claims.table();
        // Pinned behind the lock: what was published by a unit that holds no claim any more is
        // in it.
        let state = self.pin();
        let may_drain =
            |layer: &&Layer| policy::may_be_drained(layer.newest_ts(), visibility.drains_to());
        let layer = state.sealed.last().filter(may_drain);
        let quiescent = |layer: &&Layer| layer.table().is_none_or(|table| table.is_quiescent());
        let drainable = layer.filter(quiescent).filter(|_| !claims.is_draining());
        let urgent = state.root.score_below;
        let limits = policy::work_limits(effort);
        let min_score = limits.min_score;
        if effort == Effort::ReadFlush {
            // Asked for again by whoever reads on while we look.
            self.shared.has_read_flush.store(false, Ordering::Relaxed);
            let plan = plan_read_flush(&claims, &state.root);
            let Some((plan, area)) = plan.and_then(|plan| plan.area().map(|area| (plan, area)))
            else {
                return Chosen::None(Progress::Idle);
            };
            self.shared.has_read_flush.store(true, Ordering::Relaxed);
            return Chosen::Unit(plan, self.claims.claim(&mut claims, area));
        }
        let drain_first = policy::drain_comes_first(&DrainLoad {
            urgency: urgent.0,
            units: claims.since_drain,
            flushed: claims.flushed,
            drained: claims.drained,
            buffered: state.root.buffered_below,
            excess: state.root.excess_below,
        });
        let (mut plan, mut permit, mut deferred) = (None, None, false);
        if !(drain_first && drainable.is_some()) {
            let options = &self.options();
            let best = |merges| {
                let mut search =
                    Search { claims: &claims, options, min_score, may_merge: merges, best: None };
                search.visit(&state.root);
                search.best.map(|(_, plan)| plan)
            };
            plan = best(true);
            if matches!(plan, Some(Plan::Merge { .. })) {
                permit = self.context.merge_limiter.begin(limits.limits_merges);
                deferred = permit.is_none();
            }
            if deferred {
                plan = best(false);
            }
        }
        if plan.is_none()
            && let Some(layer) = drainable
        {
            (claims.since_drain, claims.flushed) = (0, 0);
            claims.drained = layer.table().map_or(0, |table| table.weight());
            let plan = Plan::Drain { root: Arc::clone(&state.root), layer: layer.clone() };
            return Chosen::Unit(plan, self.claims.claim_drain(&mut claims));
        }
        if plan.is_none() && limits.rewrites_garbage {
            plan = plan_garbage_rewrite(&claims, &state.root, visibility.oldest());
        }
        if plan.is_none() && limits.rewrites_lightly_compressed {
            plan = plan_recompression(&claims, &state.root);
        }
        let Some((plan, area)) = plan.and_then(|plan| plan.area().map(|area| (plan, area))) else {
            let (sealed, others) = (layer.is_some(), claims.is_busy());
            let why = NoUnit {
                was_deferred: deferred,
                has_sealed: sealed,
                has_other_workers: others,
                is_urgent: urgent >= min_score,
            };
            return Chosen::None(policy::without_unit(why));
        };
        claims.since_drain += 1;
        claims.flushed += plan.flushed_bytes();
        let claim = self.claims.claim(&mut claims, area).with_permit(permit);
        Chosen::Unit(plan, claim)
    }
}

/// Looks for the best unit below a node.
struct Search<'a> {
    claims: &'a ClaimTable,
    options: &'a TreeOptions,
    min_score: Score,
    /// Merges, too.
    may_merge: bool,
    best: Option<(Score, Plan)>,
}

impl Search<'_> {
    fn visit(&mut self, node: &Arc<Node>) {
        // In idle time reads add to the score, which scores further up do not know of.
        let idle = self.min_score < NEEDED;
        let better = |score: Score, best: &Option<(Score, Plan)>| {
            best.as_ref().is_none_or(|(best, _)| score > *best)
        };
        if node.score_below < self.min_score || !(idle || better(node.score_below, &self.best)) {
            return;
        }
        let reads = if idle { node.reads.noted() >> 10 } else { 0 };
        let score = Score(node.score.0 + reads);
        if node.score >= self.min_score
            && better(score, &self.best)
            && let Some(plan) = self.plan(node)
        {
            self.best = Some((score, plan));
        }
        for child in &node.children {
            if let Child::Node(below) = child {
                self.visit(below);
            }
        }
    }

    /// What this node needs most, unless somebody is at it.
    fn plan(&self, node: &Arc<Node>) -> Option<Plan> {
        let options = self.options;
        let free = |plan: Plan| plan.area().filter(|area| self.claims.is_free(area)).map(|_| plan);
        let movable = claimable_children(self.claims, node);
        let to_fuse = node
            .leaves_to_fuse(options)
            .filter(|left| self.claims.is_readable(node, *left..left + 2));
        let nodes_to_fuse = node.nodes_to_fuse(options);
        let load = NodeLoad {
            sound_runs: self.claims.sound_runs(node),
            tier: node.tier(options),
            buffered: node.buffered,
            moved_by_others: node.buffered - movable.iter().map(|(bytes, _)| bytes).sum::<u64>(),
            fuses_leaves: to_fuse.is_some(),
            fuses_nodes: nodes_to_fuse.is_some(),
            is_stale: node.own_score(options) < NEEDED,
        };
        let budget = NodeBudget {
            bytes: options.buffer_bytes,
            most_merged: options.most_merged(),
            runs: options.max_runs,
            tier: options.tier,
            only_needed: self.min_score >= NEEDED,
        };
        match policy::node_needs(&load, &budget) {
            NodeNeed::Merge(newest) => {
                let plan = Plan::Merge { node: Arc::clone(node), newest };
                if self.may_merge { free(plan) } else { None }
            }
            NodeNeed::Flush => heaviest(movable).map(|child| plan_push_down(node, child)),
            NodeNeed::FuseLeaves => to_fuse.and_then(|left| {
                let node = Arc::clone(node);
                free(Plan::Rewrite { node, children: left..left + 2 })
            }),
            NodeNeed::FuseNodes => nodes_to_fuse.and_then(|left| free(plan_fuse(node, left))),
            NodeNeed::ApplyOptions => {
                let area = Area { height: node.height, bounds: node.bounds.clone() };
                free(Plan::ApplyOptions { area })
            }
            NodeNeed::Nothing => None,
        }
    }
}

/// Bytes that wait for children, those that somebody can and nobody does move on yet.
fn claimable_children(claims: &ClaimTable, node: &Node) -> Vec<(u64, usize)> {
    let children = (0..node.children.len()).map(|child| (node.buffered_for(child), child));
    let waiting = children.filter(|(bytes, _)| *bytes > 0);
    waiting.filter(|(_, child)| claims.is_sound(&Area::of_child(node, *child))).collect()
}

fn heaviest(movable: Vec<(u64, usize)>) -> Option<usize> {
    let order = |(bytes, child): &(u64, usize)| (*bytes, std::cmp::Reverse(*child));
    movable.into_iter().max_by_key(order).map(|(_, child)| child)
}

/// The flush that reads have paid most for.
fn plan_read_flush(claims: &ClaimTable, root: &Arc<Node>) -> Option<Plan> {
    fn visit(claims: &ClaimTable, node: &Arc<Node>, best: &mut Option<(u64, Plan)>) {
        let noted = node.reads.noted();
        if node.reads.is_due()
            && best.as_ref().is_none_or(|(most, _)| noted > *most)
            && let Some(child) = heaviest(claimable_children(claims, node))
        {
            *best = Some((noted, plan_push_down(node, child)));
        }
        for child in &node.children {
            if let Child::Node(below) = child {
                visit(claims, below, best);
            }
        }
    }
    let mut best = None;
    visit(claims, root, &mut best);
    best.map(|(_, plan)| plan)
}

/// Two child nodes are fused once nothing waits for either of them.
fn plan_fuse(node: &Arc<Node>, left: usize) -> Plan {
    if let Some(child) = [left, left + 1].into_iter().find(|child| node.buffered_for(*child) > 0) {
        return plan_push_down(node, child);
    }
    let lower = node.child_bounds(left).lower;
    let bounds = Bounds { lower, upper: node.child_bounds(left + 1).upper };
    Plan::Fuse { area: Area { height: node.height, bounds } }
}

fn plan_push_down(node: &Arc<Node>, child: usize) -> Plan {
    let node = Arc::clone(node);
    match &node.children[child] {
        Child::Node(below) => {
            let below = Arc::clone(below);
            Plan::Flush { node, child, below }
        }
        _ => Plan::Rewrite { node, children: child..child + 1 },
    }
}

/// A lightly compressed leaf.
fn plan_recompression(claims: &ClaimTable, node: &Arc<Node>) -> Option<Plan> {
    let mut candidates =
        node.children.iter().enumerate().filter(|(_, child)| child.lightly_compressed_bytes() > 0);
    candidates.find_map(|(at, child)| match child {
        Child::Node(below) => plan_recompression(claims, below),
        _ => Some(plan_push_down(node, at))
            .filter(|plan| plan.area().is_some_and(|area| claims.is_sound(&area))),
    })
}

/// A leaf that is worth rewriting for the versions and deletes nobody sees any more.
fn plan_garbage_rewrite(claims: &ClaimTable, node: &Arc<Node>, oldest: u64) -> Option<Plan> {
    if node.garbage_below == 0 {
        return None;
    }
    let mut with_garbage =
        node.children.iter().enumerate().filter(|(_, child)| child.garbage() > 0);
    with_garbage.find_map(|(at, child)| match child {
        // All of it can go: no snapshot is older than the leaf's newest version.
        Child::Leaf(leaf) if leaf.content().max_ts <= oldest => Some(plan_push_down(node, at))
            .filter(|plan| plan.area().is_some_and(|area| claims.is_sound(&area))),
        Child::Node(below) => plan_garbage_rewrite(claims, below, oldest),
        Child::Leaf(_) | Child::Empty => None,
    })
}
