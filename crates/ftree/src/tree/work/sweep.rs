//! The sweep: what tombstones cover is got rid of, so that they can go.
//!
//! From → to: the tombstones that no snapshot is older than and whose memtables are drained are swept together,
//! by one walk over the tree from left to right [`Tree::sweep`]. Where a segment lies wholly inside of one
//! and is older, it is let go of unread. What else may hold something older is moved down to its leaf, as a
//! rewrite does, and the leaf is rewritten once; merges drop what is dead. At the end the tombstones go.
//!
//! Always true:
//! 1. A step is one unit of work, claimed and published as any other. A walk keeps a key and nothing on
//!    disk: after a start it begins again.
//! 2. Behind the walk nothing is left that is older than a tombstone of it and covered: the levels above a
//!    leaf are rid of it before the leaf is, and what comes later is newer.

use super::claims::{Area, Claim, ClaimTable};
use super::plan::Plan;
use super::{NewLeaves, Progress, Tree, Unit, Work};
use crate::error::Result;
use crate::message::Visibility;
use crate::node::{Attached, Child, Node};
use crate::segment::{Bounds, Content};
use crate::tombstones::{Tombstone, TombstoneBug};
use crate::tree::publish::Edit;
use crate::tree_shared::count;
use std::ops::Range;
use std::sync::Arc;

/// Children that one call passes without finding anything to do.
const MOST_PASSED: usize = 4096;

/// Where a sweep is.
pub(in crate::tree) struct Sweep {
    /// Up to this key everything is swept; `None` at the start.
    behind: Option<Arc<[u8]>>,
    swept: Vec<Tombstone>,
}

impl Sweep {
    fn meets(&self, bounds: &Bounds) -> bool {
        self.swept.iter().any(|one| one.meets(bounds))
    }

    /// Something that is dead may be in a segment, within bounds.
    fn is_of(&self, content: &Content, bounds: &Bounds) -> bool {
        self.swept.iter().any(|one| one.is_of(content, bounds))
    }

    /// All that a segment has within bounds is dead.
    fn has_all_of(&self, content: &Content, bounds: &Bounds) -> bool {
        self.swept.iter().any(|one| one.has_all_of(content, bounds))
    }

    /// The runs of a node that hold something dead for a child.
    fn runs<'n>(&self, node: &'n Node, child: usize, bounds: &Bounds) -> Vec<&'n Attached> {
        let live = node.runs.iter().filter(|attached| attached.is_live(child));
        live.filter(|attached| self.is_of(attached.run.content(), bounds)).collect()
    }

    /// Of those, the ones that hold nothing else for it.
    fn dead_runs(&self, runs: &[&Attached], bounds: &Bounds) -> Vec<u64> {
        let dead = runs.iter().filter(|attached| self.has_all_of(attached.run.content(), bounds));
        dead.map(|attached| attached.run.id()).collect()
    }

    /// Whether a child is a leaf that is dead as a whole.
    fn is_dead(&self, node: &Node, child: usize) -> bool {
        matches!(&node.children[child], Child::Leaf(leaf)
            if self.has_all_of(leaf.content(), &node.child_bounds(child)))
    }
}

/// What a step has to do.
enum Next<'a> {
    Busy,
    /// Nothing, up to this key; `None` is the end.
    Pass(Option<Arc<[u8]>>),
    /// Work on what is there.
    Unit(Plan, Claim<'a>, After),
}

/// Where the walk is after a unit.
enum After {
    /// Where it was: there may be more to do.
    Same,
    /// Behind this key.
    Behind(Arc<[u8]>),
    /// At the end.
    End,
}

impl After {
    fn behind(upper: Option<Arc<[u8]>>) -> Self {
        upper.map_or(Self::End, Self::Behind)
    }
}

impl Tree {
    /// Takes the sweep of tombstones one unit further; `None` where there is nothing to be swept now. May read
    /// and write the disk for a leaf's worth of bytes.
    pub(super) fn sweep(&self, visibility: &Visibility) -> Result<Option<Progress>> {
        if self.pin().tombstones.is_none() {
            return Ok(None);
        }
        // One thread at a time: another one does something else.
        let Some(mut slot) = self.sweep.try_lock() else { return Ok(None) };
        if slot.is_none() {
            *slot = self.new_sweep(visibility).map(Box::new);
        }
        let Some(sweep) = slot.as_mut() else { return Ok(None) };
        for _ in 0..MOST_PASSED {
            let (plan, claim, after) = match self.next_to_sweep(sweep) {
                Next::Busy => return Ok(Some(Progress::Busy)),
                Next::Pass(Some(key)) => {
                    sweep.behind = Some(key);
                    continue;
                }
                Next::Pass(None) => {
                    self.retire(&sweep.swept);
                    *slot = None;
                    return Ok(Some(Progress::Done(Work::Rewrite)));
                }
                Next::Unit(plan, claim, after) => (plan, claim, after),
            };
            let mut unit = Unit::new(self, visibility, claim);
            unit.sweeps = true;
            unit.carry_out(&plan)?;
            unit.publish(None);
            count(&self.shared.counters.rewrites, 1);
            match after {
                After::Same => {}
                After::Behind(key) => sweep.behind = Some(key),
                After::End => {
                    self.retire(&sweep.swept);
                    *slot = None;
                }
            }
            return Ok(Some(Progress::Done(Work::Rewrite)));
        }
        Ok(Some(Progress::Done(Work::Rewrite)))
    }

    /// A sweep of all tombstones that can go once nothing of theirs is left.
    fn new_sweep(&self, visibility: &Visibility) -> Option<Sweep> {
        let state = self.pin();
        let planted = state.tombstones.as_ref().and_then(|tombstones| tombstones.planted);
        let until = if planted == Some(TombstoneBug::FreesSeen) {
            state.flushed_ts
        } else {
            visibility.oldest().min(state.flushed_ts)
        };
        let ready = state.tombstone_list().iter().filter(|one| one.ts <= until);
        let swept: Vec<Tombstone> = ready.cloned().collect();
        (!swept.is_empty()).then_some(Sweep { behind: None, swept })
    }

    fn next_to_sweep(&self, sweep: &Sweep) -> Next<'_> {
        let mut claims = self.claims.table();
        // Pinned behind the lock, as every unit that claims does.
        let mut node = Arc::clone(&self.pin().root);
        loop {
            let child = sweep.behind.as_deref().map_or(0, |key| node.child_after(key));
            let bounds = node.child_bounds(child);
            if !sweep.meets(&bounds) {
                return Next::Pass(bounds.upper);
            }
            let runs = sweep.runs(&node, child, &bounds);
            let dead = sweep.dead_runs(&runs, &bounds);
            let is_mixed = dead.len() < runs.len();
            let Child::Node(below) = &node.children[child] else {
                return self.sweep_leaves(sweep, &mut claims, &node, child, is_mixed, dead);
            };
            let below = Arc::clone(below);
            if runs.is_empty() {
                node = below;
                continue;
            }
            let plan = if is_mixed {
                Plan::Flush { node: Arc::clone(&node), child, below }
            } else {
                Plan::Forget { node: Arc::clone(&node), child, runs: dead }
            };
            return self.claim_to_sweep(&mut claims, plan, After::Same);
        }
    }

    fn sweep_leaves(
        &self,
        sweep: &Sweep,
        claims: &mut ClaimTable,
        node: &Arc<Node>,
        child: usize,
        is_mixed: bool,
        dead: Vec<u64>,
    ) -> Next<'_> {
        let bounds = node.child_bounds(child);
        if sweep.is_dead(node, child) {
            let end = (child..node.children.len()).find(|at| !sweep.is_dead(node, *at));
            let children = child..end.unwrap_or(node.children.len());
            return self.claim_to_sweep(claims, plan_free(sweep, node, children), After::Same);
        }
        let is_of_leaf = matches!(&node.children[child], Child::Leaf(leaf)
            if sweep.is_of(leaf.content(), &bounds));
        if is_mixed || is_of_leaf {
            let plan = Plan::Rewrite { node: Arc::clone(node), children: child..child + 1 };
            return self.claim_to_sweep(claims, plan, After::behind(bounds.upper));
        }
        if dead.is_empty() {
            return Next::Pass(bounds.upper);
        }
        let plan = Plan::Forget { node: Arc::clone(node), child, runs: dead };
        self.claim_to_sweep(claims, plan, After::Same)
    }

    fn claim_to_sweep(&self, claims: &mut ClaimTable, plan: Plan, after: After) -> Next<'_> {
        let Some(area) = plan.area().filter(|area| claims.is_sound(area)) else {
            return Next::Busy;
        };
        Next::Unit(plan, self.claims.claim(claims, area), after)
    }
}

/// Leaves that are dead, neighbours of each other, with the runs that are.
fn plan_free(sweep: &Sweep, node: &Arc<Node>, children: Range<usize>) -> Plan {
    let runs = children.clone().map(|child| {
        let bounds = node.child_bounds(child);
        sweep.dead_runs(&sweep.runs(node, child, &bounds), &bounds)
    });
    Plan::Free { runs: runs.collect(), node: Arc::clone(node), children }
}

impl Unit<'_> {
    /// Lets go of leaves, unread, and of what waits for each of them in these runs.
    pub(super) fn free_leaves(&mut self, node: &Node, children: Range<usize>, runs: &[Vec<u64>]) {
        let mut replaced = Vec::with_capacity(children.len());
        for (child, runs) in children.clone().zip(runs) {
            self.edits
                .push(Edit::Flushed { area: Area::of_child(node, child), runs: runs.clone() });
            replaced.push(node.children[child].leaf_id());
            if let Child::Leaf(leaf) = &node.children[child] {
                self.replaced.push(Arc::clone(leaf));
            }
        }
        count(&self.tree.shared.counters.leaves_swept, children.len() as u64);
        let bounds = super::runs::span_bounds(node, &children);
        let area = Area { height: node.height, bounds };
        let leaves = NewLeaves { children: vec![Child::Empty], pivots: Vec::new(), replaced };
        self.edits.push(Edit::Leaves { area, leaves });
    }
}
