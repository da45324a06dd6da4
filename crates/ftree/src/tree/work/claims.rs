//! Who works where: areas that units of work have claimed, so that units run side by side.
//!
//! An [`Area`] is a range of keys at one height. What a unit *takes away* or replaces there (runs'
//! shares that sink, runs that become one run, leaves) is its own as long as it holds the claim.
//! What may happen in a claimed area all the same, because it commutes: newer runs arrive from
//! above, nodes below are replaced, nodes split.
//!
//! | Unit | Claims |
//! |---|---|
//! | drain | that it drains; at height 1 the range of each leaf it rewrites |
//! | merge of a node's runs | the node |
//! | flush to a child node | the child's range at the parent's height |
//! | flush to a leaf, rewriting a leaf | the leaf's range at height 1 |
//! | fuse of two leaves | their node |
//! | fuse of two nodes | their ranges at the parent's height |
//!
//! Always true: claims of two units do not meet; a unit reads the state it works on after it has
//! claimed, and gives its claim back after it has published. So what it read is still so.

use crate::error::Error;
use crate::merge_limiter::MergePermit;
use crate::node::Node;
use crate::segment::Bounds;
use os::sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;

/// A range of keys at one height: 1 is right above the leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::tree) struct Area {
    pub(in crate::tree) height: u32,
    pub(in crate::tree) bounds: Bounds,
}

impl Area {
    /// A child's range at its node's height.
    pub(super) fn of_child(node: &Node, child: usize) -> Self {
        Self { height: node.height, bounds: node.child_bounds(child) }
    }

    pub(in crate::tree) fn meets(&self, other: &Self) -> bool {
        self.height == other.height && self.bounds.meets(&other.bounds)
    }
}

/// The claims on one tree.
#[derive(Default)]
pub(in crate::tree) struct Claims(Mutex<ClaimTable>);

/// Everything that is decided under one lock.
#[derive(Default)]
pub(super) struct ClaimTable {
    held: Vec<(u64, Area)>,
    newest_ticket: u64,
    /// The ticket of the unit that drains.
    draining: Option<u64>,
    /// Units since the last drain…
    pub(super) since_drain: u32,
    /// …bytes they have moved into leaves, and bytes that drain brought.
    pub(super) flushed: u64,
    pub(super) drained: u64,
    /// Where a flush cannot read what it must, and why.
    condemned: Vec<(Area, String)>,
    /// Runs that cannot be read through, and why.
    condemned_runs: BTreeMap<u64, String>,
}

impl ClaimTable {
    pub(super) fn is_free(&self, area: &Area) -> bool {
        self.held.iter().all(|(_, held)| !held.meets(area))
    }

    /// Free, and not damaged as far as is known.
    pub(super) fn is_sound(&self, area: &Area) -> bool {
        self.is_free(area) && self.condemned.iter().all(|(damaged, _)| !damaged.meets(area))
    }

    /// None of the children is known to be damaged.
    pub(super) fn is_readable(&self, node: &Node, mut children: Range<usize>) -> bool {
        children.all(|child| {
            let area = Area::of_child(node, child);
            self.condemned.iter().all(|(damaged, _)| !damaged.meets(&area))
        })
    }

    /// How many of a node's newest runs are not known to be damaged.
    pub(super) fn sound_runs(&self, node: &Node) -> usize {
        let damaged = |id: u64| self.condemned_runs.contains_key(&id);
        let first = node.runs.iter().position(|attached| damaged(attached.run.id()));
        first.unwrap_or(node.runs.len())
    }

    pub(super) fn condemn(&mut self, area: Area, error: &Error) {
        self.condemned.push((area, error.to_string()));
    }

    pub(super) fn condemn_runs(&mut self, runs: Vec<u64>, error: &Error) {
        self.condemned_runs.extend(runs.into_iter().map(|run| (run, error.to_string())));
    }

    pub(super) fn damage(&self) -> Vec<String> {
        let areas = self.condemned.iter().map(|(_, why)| why);
        let mut all: Vec<String> = areas.chain(self.condemned_runs.values()).cloned().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// Some unit is at work.
    pub(super) fn is_busy(&self) -> bool {
        self.draining.is_some() || !self.held.is_empty()
    }
}

/// What one unit has claimed; given back when dropped.
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    ticket: u64,
    /// Of a merge, its permit.
    permit: Option<MergePermit<'a>>,
}

impl Claims {
    pub(super) fn table(&self) -> MutexGuard<'_, ClaimTable> {
        self.0.lock()
    }

    /// A claim of one area, which is free.
    pub(super) fn claim(&self, claims: &mut ClaimTable, area: Area) -> Claim<'_> {
        debug_assert!(claims.is_free(&area));
        let claim = self.ticket(claims);
        claims.held.push((claim.ticket, area));
        claim
    }

    /// The claim of the one unit that drains.
    pub(super) fn claim_drain(&self, claims: &mut ClaimTable) -> Claim<'_> {
        debug_assert!(!claims.is_draining());
        let claim = self.ticket(claims);
        claims.draining = Some(claim.ticket);
        claim
    }

    fn ticket(&self, claims: &mut ClaimTable) -> Claim<'_> {
        claims.newest_ticket += 1;
        Claim { claims: self, ticket: claims.newest_ticket, permit: None }
    }
}

impl<'a> Claim<'a> {
    /// Keeps a merge's permit for as long as the claim is held.
    pub(super) fn with_permit(self, permit: Option<MergePermit<'a>>) -> Self {
        let mut claim = self;
        claim.permit = permit;
        claim
    }

    /// Claims one area more, if it is free and `still` finds there what the unit counts on.
    pub(super) fn extend(&self, area: Area, still: impl FnOnce(&Area) -> bool) -> bool {
        let mut claims = self.claims.table();
        let granted = claims.is_sound(&area) && still(&area);
        if granted {
            claims.held.push((self.ticket, area));
        }
        granted
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut claims = self.claims.table();
        let held = claims.held.iter().any(|(ticket, _)| *ticket == self.ticket);
        debug_assert!(held || claims.draining == Some(self.ticket), "a claim is given back once");
        claims.held.retain(|(ticket, _)| *ticket != self.ticket);
        claims.draining = claims.draining.filter(|ticket| *ticket != self.ticket);
    }
}
