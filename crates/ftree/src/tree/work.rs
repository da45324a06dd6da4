//! Background work, a unit at a time: choosing it, doing it, publishing it.
//!
//! From → to:
//! sealed layer → runs in nodes, or leaves where that is cheap (`drain`);
//! runs of a node → one run (`runs`, merge);
//! runs' shares of a child → a run in the child node (`runs`, flush), or a new leaf (`leaves`);
//! two small neighbours → one.
//!
//! Always true: a unit works on what it has claimed ([`claims`]), several run side by side where
//! their claims are disjoint; a unit that fails leaves the tree as it was, but for a drain's leaves
//! that were published already: their entries are in the layer too, which is drained again.

mod claims;
mod drain;
mod leaves;
mod plan;
mod policy;
mod rewrite;
mod runs;
mod sweep;

pub(super) use claims::{Area, Claims};
pub(super) use leaves::{NewLeaves, separator};
pub use rewrite::{Step, Walk};
pub(super) use sweep::Sweep;

use super::Tree;
use super::layer::Layer;
use super::publish::Edit;
use crate::error::{Error, Result};
use crate::message::Visibility;
use crate::segment::Segment;
use crate::tombstones::Tombstones;
use crate::tree_shared::count;
use claims::Claim;
use plan::{Chosen, Plan};
use rewrite::LargeRewrite;
use std::sync::Arc;

/// How much a call of [`Tree::work`] is willing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Only what is over its budget.
    Needed,
    /// The same, and no merge beside as many as may be under way
    /// ([`MergeLimiter`](crate::MergeLimiter)).
    Paced,
    /// Only what reads have asked for ([`Debt::wanted`](super::Debt::wanted)).
    ReadFlush,
    /// Anything that makes reads cheaper: the cleaner.
    Idle,
    /// The same where nobody has written for a while: also lightly compressed leaves.
    IdleWithoutWrites,
}

/// What a call of [`Tree::work`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There is nothing to do.
    Idle,
    /// Other threads are at all there is to do, or an insert into a sealed memtable is ending.
    Busy,
    /// There is nothing to do but merges, and as many as may be are under way.
    Deferred,
    /// One unit is done.
    Done(Work),
}

/// A unit of work that was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A sealed memtable, or a piece of a large transaction, became runs and leaves.
    Drain,
    /// Runs of one node became one run.
    Merge,
    /// A child got what waited for it.
    Flush,
    /// Two neighbours became one.
    Fuse,
    /// Leaves were rewritten, or a node took on the tree's new shape.
    Rewrite,
}

impl Tree {
    /// Does one unit of background work, beside other threads that do theirs. May read and write
    /// the disk for as long as a memtable's worth of entries takes. Deterministic when called
    /// from one thread. After an error nothing is lost, and the same work is tried again by the
    /// next call.
    pub fn work(&self, visibility: &Visibility, effort: Effort) -> Result<Progress> {
        // First: what it lets go of unread need not be moved any more.
        if policy::work_limits(effort).rewrites_garbage
            && let Some(done @ Progress::Done(_)) = self.sweep(visibility)?
        {
            return Ok(done);
        }
        let (plan, claim) = match self.choose(visibility, effort) {
            Chosen::Unit(plan, claim) => (plan, claim),
            Chosen::None(progress) => return Ok(progress),
        };
        let mut unit = Unit::new(self, visibility, claim);
        let work = match unit.carry_out(&plan) {
            Ok(work) => work,
            Err(error) => {
                self.blame(&plan, unit.failed.as_ref(), &error);
                return Err(error);
            }
        };
        let drained = match &plan {
            Plan::Drain { layer, .. } => Some((layer, unit.rest.take())),
            _ => None,
        };
        unit.publish(drained);
        self.count_unit(&plan, work);
        Ok(Progress::Done(work))
    }

    /// What failed because bytes on disk are damaged is not tried again: the same units elsewhere
    /// go on, and what is damaged is left as it is, to be read as far as it can be.
    fn blame(&self, plan: &Plan, failed: Option<&Area>, error: &Error) {
        let Some(segment) = error.damaged_segment() else { return };
        let mut claims = self.claims.table();
        match plan {
            Plan::Merge { node, newest } => {
                let merged = runs::ids(&node.runs[..*newest]);
                let known = merged.contains(&segment);
                claims.condemn_runs(if known { vec![segment] } else { merged }, error);
            }
            _ => {
                if let Some(area) = failed {
                    claims.condemn(area.clone(), error);
                }
            }
        }
    }

    /// What background work has found damaged since the tree was opened, and leaves alone.
    pub fn damage(&self) -> Vec<String> {
        self.claims.table().damage()
    }

    fn count_unit(&self, plan: &Plan, work: Work) {
        let counters = &self.shared.counters;
        let counter = match (work, plan) {
            (Work::Drain, _) => &counters.drains,
            (Work::Merge, _) => &counters.merges,
            (Work::Flush, _) => &counters.flushes,
            (Work::Fuse, Plan::Fuse { .. }) => &counters.node_fuses,
            (Work::Fuse, _) => &counters.leaf_fuses,
            (Work::Rewrite, _) => &counters.rewrites,
        };
        count(counter, 1);
    }
}

/// A unit being carried out: what it has written since it last published is only in its edits.
struct Unit<'a> {
    tree: &'a Tree,
    visibility: &'a Visibility,
    edits: Vec<Edit>,
    /// Where it was when it failed, if it was reading there.
    failed: Option<Area>,
    /// What a drain leaves of its layer.
    rest: Option<Layer>,
    /// Leaves are rewritten also where they could stay.
    large_rewrite: Option<LargeRewrite>,
    /// What tombstones cover is got rid of: no leaf stays as it is.
    sweeps: bool,
    /// As they were when it began.
    tombstones: Option<Arc<Tombstones>>,
    /// Leaves that were rewritten since the last publish.
    replaced: Vec<Arc<Segment>>,
    claim: Claim<'a>,
}

impl<'a> Unit<'a> {
    fn new(tree: &'a Tree, visibility: &'a Visibility, claim: Claim<'a>) -> Self {
        Self {
            tree,
            visibility,
            edits: Vec::new(),
            failed: None,
            rest: None,
            large_rewrite: None,
            sweeps: false,
            tombstones: tree.pin().tombstones.clone(),
            replaced: Vec::new(),
            claim,
        }
    }

    /// Makes what was written so far the tree's. Units hold the root they began with, and with it
    /// leaves that are no more: their pages go now, who still reads there may have to load again.
    fn publish(&mut self, drained: Option<(&Layer, Option<Layer>)>) {
        self.tree.publish(std::mem::take(&mut self.edits), drained);
        for leaf in self.replaced.drain(..) {
            leaf.let_go_of_pages();
        }
    }

    fn carry_out(&mut self, plan: &Plan) -> Result<Work> {
        match plan {
            Plan::Drain { root, layer } => {
                self.drain(root, layer)?;
                Ok(Work::Drain)
            }
            Plan::Merge { node, newest } => {
                self.merge_runs(node, *newest)?;
                Ok(Work::Merge)
            }
            Plan::Flush { node, child, below } => {
                self.flush_child(node, *child, below)?;
                Ok(Work::Flush)
            }
            Plan::Rewrite { node, children } => {
                self.flush_leaves(node, children.clone())?;
                Ok(if children.len() > 1 { Work::Fuse } else { Work::Flush })
            }
            Plan::ApplyOptions { area } => {
                // Whatever is edited is closed again.
                self.edits.push(Edit::Flushed { area: area.clone(), runs: Vec::new() });
                Ok(Work::Rewrite)
            }
            Plan::Free { node, children, runs } => {
                self.free_leaves(node, children.clone(), runs);
                Ok(Work::Rewrite)
            }
            Plan::Forget { node, child, runs } => {
                let (area, runs) = (Area::of_child(node, *child), runs.clone());
                self.edits.push(Edit::Flushed { area, runs });
                Ok(Work::Rewrite)
            }
            Plan::Fuse { area } => {
                self.edits.push(Edit::Fuse { area: area.clone() });
                Ok(Work::Fuse)
            }
        }
    }
}
