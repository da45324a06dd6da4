//! Choosing the next unit of work: what is most urgent and nobody is at already.
//!
//! Draining comes first, because it frees memory, but for what is overdue; then the node with the
//! highest score, in it the merge of too many runs, the heaviest child where it is over its budget,
//! a merge of a tier, a fuse. In idle time whatever is buffered is flushed down, and leaves that
//! are full of dead versions or lightly compressed are rewritten.

use super::claims::{Area, Claim, ClaimTable};
use super::{Effort, Layer, Tree};
use crate::node::{Child, NEEDED, Node, Score};
use crate::options::TreeOptions;
use crate::segment::Bounds;
use os::sync::atomic::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// A node this far over its budget is read badly, and then other units are done between two drains:
/// one for each step further, so that writers, who wait for drains, are slowed little by little and
/// not at once.
const OVERDUE: Score = Score(2000);
const OVERDUE_STEP: u64 = 250;
const BETWEEN_DRAINS: u64 = 16;
/// And where buffers hold so many times more than their budgets, as many bytes go into leaves between
/// two drains as a drain brings; with less over, in proportion less. So what waits in buffers is bounded
/// however long somebody writes.
const MOST_OVER: u64 = 3;
/// A node far over its bytes may have so many times more runs.
const MANY_WHERE_MUCH: usize = 4;

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
    /// Make two small child nodes one.
    Fuse { area: Area },
    /// Let a node take on options that have changed: it was urgent under those before.
    Close { area: Area },
}

impl Plan {
    /// What the unit must claim before it starts; a drain claims otherwise.
    pub(super) fn area(&self) -> Option<Area> {
        let area = |node: &Node, bounds| Some(Area { height: node.height, bounds });
        match self {
            Plan::Drain { .. } => None,
            Plan::Merge { node, .. } => area(node, node.bounds.clone()),
            Plan::Flush { node, child, .. } => Some(Area::of_child(node, *child)),
            // The node with two leaves may not be cut between them meanwhile.
            Plan::Rewrite { node, children } if children.len() > 1 => {
                area(node, node.bounds.clone())
            }
            Plan::Rewrite { node, children } => Some(Area::of_child(node, children.start)),
            Plan::Fuse { area } | Plan::Close { area } => Some(area.clone()),
        }
    }

    /// Bytes that it moves from buffers into leaves.
    fn flushed_bytes(&self) -> u64 {
        match self {
            Plan::Rewrite { node, children } => {
                children.clone().map(|child| node.waiting(child)).sum()
            }
            _ => 0,
        }
    }
}

/// Bytes that should go into leaves before the next drain, where the last one brought so many.
fn due(root: &Node, drained: u64) -> u64 {
    let within = root.buffered_below.saturating_sub(root.excess_below).max(1);
    let over = u128::from(drained) * u128::from(root.excess_below);
    u64::try_from(over / u128::from(within * MOST_OVER)).unwrap_or(u64::MAX).min(drained * 2)
}

/// What there is to do.
pub(super) enum Chosen<'a> {
    Unit(Plan, Claim<'a>),
    /// Something, but others are at it.
    Busy,
    /// Merges, and others are at as many as may be.
    Deferred,
    Nothing,
}

impl Tree {
    /// The most urgent unit that meets no claim, claimed.
    pub(super) fn choose(&self, oldest: u64, effort: Effort) -> Chosen<'_> {
        let mut claims = self.claims.table();
        // Pinned behind the lock: what was published by a unit that holds no claim any more is
        // in it.
        let state = self.pin();
        let layer = state.sealed.last();
        let quiescent = |layer: &&Layer| layer.table().is_none_or(|table| table.is_quiescent());
        let drainable = layer.filter(quiescent).filter(|_| !claims.is_draining());
        let urgent = state.root.score_below;
        let enough = match effort {
            Effort::Needed | Effort::Paced => NEEDED,
            Effort::Wanted | Effort::Idle | Effort::Quiet => Score(1),
        };
        if effort == Effort::Wanted {
            // Asked for again by whoever reads on while we look.
            self.home.wanted.store(false, Ordering::Relaxed);
            let plan = wanted(&claims, &state.root);
            let Some((plan, area)) = plan.and_then(|plan| plan.area().map(|area| (plan, area)))
            else {
                return Chosen::Nothing;
            };
            self.home.wanted.store(true, Ordering::Relaxed);
            return Chosen::Unit(plan, self.claims.claim(&mut claims, area));
        }
        let between = urgent.0.saturating_sub(OVERDUE.0) / OVERDUE_STEP;
        let drain_first = u64::from(claims.since_drain) >= between.min(BETWEEN_DRAINS)
            && claims.flushed >= due(&state.root, claims.drained);
        let (mut plan, mut permit, mut deferred) = (None, None, false);
        if !(drain_first && drainable.is_some()) {
            let options = &self.options();
            let best = |merges| {
                let mut search = Search { claims: &claims, options, enough, merges, best: None };
                search.visit(&state.root);
                search.best.map(|(_, plan)| plan)
            };
            plan = best(true);
            if matches!(plan, Some(Plan::Merge { .. })) {
                permit = self.context.merge_limiter.begin(effort == Effort::Paced);
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
        if plan.is_none() && matches!(effort, Effort::Idle | Effort::Quiet) {
            plan = garbage(&claims, &state.root, oldest);
        }
        if plan.is_none() && effort == Effort::Quiet {
            plan = lightly_compressed(&claims, &state.root);
        }
        let Some((plan, area)) = plan.and_then(|plan| plan.area().map(|area| (plan, area))) else {
            let busy = layer.is_some() || (claims.is_busy() && urgent >= enough);
            return match deferred {
                true => Chosen::Deferred,
                false if busy => Chosen::Busy,
                false => Chosen::Nothing,
            };
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
    enough: Score,
    /// Merges, too.
    merges: bool,
    best: Option<(Score, Plan)>,
}

impl Search<'_> {
    fn visit(&mut self, node: &Arc<Node>) {
        // In idle time reads add to the score, which scores further up do not know of.
        let idle = self.enough < NEEDED;
        let better = |score: Score, best: &Option<(Score, Plan)>| {
            best.as_ref().is_none_or(|(best, _)| score > *best)
        };
        if node.score_below < self.enough || !(idle || better(node.score_below, &self.best)) {
            return;
        }
        let reads = if idle { node.reads.noted() >> 10 } else { 0 };
        let score = Score(node.score.0 + reads);
        if node.score >= self.enough
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
        // A run that cannot be read is merged no more, nor what is older.
        let sound = self.claims.sound_runs(node);
        let merge = |newest| {
            let plan = Plan::Merge { node: Arc::clone(node), newest };
            if self.merges { free(plan) } else { None }
        };
        // Far over its bytes it needs them moved on, which a merge does not do: it would only write
        // them once more.
        let much = node.buffered > options.most_merged();
        let many = if much { options.max_runs * MANY_WHERE_MUCH } else { options.max_runs };
        if sound > many {
            return merge(node.tier(options).min(sound));
        }
        // What others are moving on is as good as gone.
        let movable = movable(self.claims, node);
        let moving: u64 = node.buffered - movable.iter().map(|(bytes, _)| bytes).sum::<u64>();
        if node.buffered - moving <= options.buffer_bytes {
            let tier = node.tier(options).min(sound);
            if tier >= options.tier {
                return merge(tier);
            }
            if let Some(left) = node.leaves_to_fuse(options)
                && self.claims.is_readable(node, left..left + 2)
            {
                let node = Arc::clone(node);
                return free(Plan::Rewrite { node, children: left..left + 2 });
            }
            if let Some(left) = node.nodes_to_fuse(options) {
                return free(fuse(node, left));
            }
            if self.enough >= NEEDED {
                let area = Area { height: node.height, bounds: node.bounds.clone() };
                let stale = node.own_score(options) < NEEDED;
                return if stale { free(Plan::Close { area }) } else { None };
            }
        }
        heaviest(movable).map(|child| flush(node, child))
    }
}

/// Bytes that wait for children, those that somebody can and nobody does move on yet.
fn movable(claims: &ClaimTable, node: &Node) -> Vec<(u64, usize)> {
    let children = (0..node.children.len()).map(|child| (node.waiting(child), child));
    let waiting = children.filter(|(bytes, _)| *bytes > 0);
    waiting.filter(|(_, child)| claims.is_sound(&Area::of_child(node, *child))).collect()
}

fn heaviest(movable: Vec<(u64, usize)>) -> Option<usize> {
    let order = |(bytes, child): &(u64, usize)| (*bytes, std::cmp::Reverse(*child));
    movable.into_iter().max_by_key(order).map(|(_, child)| child)
}

/// The flush that reads have paid most for.
fn wanted(claims: &ClaimTable, root: &Arc<Node>) -> Option<Plan> {
    fn visit(claims: &ClaimTable, node: &Arc<Node>, best: &mut Option<(u64, Plan)>) {
        let noted = node.reads.noted();
        if node.reads.is_due()
            && best.as_ref().is_none_or(|(most, _)| noted > *most)
            && let Some(child) = heaviest(movable(claims, node))
        {
            *best = Some((noted, flush(node, child)));
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
fn fuse(node: &Arc<Node>, left: usize) -> Plan {
    if let Some(child) = [left, left + 1].into_iter().find(|child| node.waiting(*child) > 0) {
        return flush(node, child);
    }
    let lower = node.child_bounds(left).lower;
    let bounds = Bounds { lower, upper: node.child_bounds(left + 1).upper };
    Plan::Fuse { area: Area { height: node.height, bounds } }
}

fn flush(node: &Arc<Node>, child: usize) -> Plan {
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
fn lightly_compressed(claims: &ClaimTable, node: &Arc<Node>) -> Option<Plan> {
    let mut light =
        node.children.iter().enumerate().filter(|(_, child)| child.lightly_compressed_bytes() > 0);
    light.find_map(|(at, child)| match child {
        Child::Node(below) => lightly_compressed(claims, below),
        _ => Some(flush(node, at))
            .filter(|plan| plan.area().is_some_and(|area| claims.is_sound(&area))),
    })
}

/// A leaf that is worth rewriting for the versions and deletes nobody sees any more.
fn garbage(claims: &ClaimTable, node: &Arc<Node>, oldest: u64) -> Option<Plan> {
    if node.garbage_below == 0 {
        return None;
    }
    let mut dirty = node.children.iter().enumerate().filter(|(_, child)| child.garbage() > 0);
    dirty.find_map(|(at, child)| match child {
        // All of it can go: no snapshot is older than the leaf's newest version.
        Child::Leaf(leaf) if leaf.content().max_ts <= oldest => Some(flush(node, at))
            .filter(|plan| plan.area().is_some_and(|area| claims.is_sound(&area))),
        Child::Node(below) => garbage(claims, below, oldest),
        Child::Leaf(_) | Child::Empty => None,
    })
}
