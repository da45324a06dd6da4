//! Rewriting a tree because somebody asks for it: leaf by leaf from left to right, beside all
//! other work.
//!
//! A [`Walk`] holds a key and nothing else: every step begins at the root that is there then. Down
//! to the next leaf it first moves what waits in the buffers above, each level once per node; then
//! the leaf is rewritten together with what waits for it, and with its right neighbours where
//! the tree's leaves are to be larger than they are. The large values of a leaf are rewritten
//! some at a time: the leaf is then written several times, each time with newer references.
//!
//! Always true: a step is one unit of work, claimed and published as any other; what is left of
//! the walk was rewritten after the walk began.

use super::claims::{Area, Claim, ClaimTable};
use super::plan::Plan;
use super::{Tree, Unit};
use crate::error::Result;
use crate::message::Visibility;
use crate::node::{Child, Node};
use crate::tree_shared::{TreeShared, count};
use cachetable::{MemoryKind, Reservation};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of large values, as stored, after which a unit leaves the rest to the next one.
const UNIT_BYTES: u64 = 16 << 20;

/// Where a rewrite is.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Everything up to this key is rewritten; `None` at the start.
    behind: Option<Arc<[u8]>>,
    /// Above this height nothing waits any more for what comes next.
    pushed: u32,
    /// Of the leaf behind that, the large values up to this key are rewritten.
    within: Option<Arc<[u8]>>,
    /// Rewrite all leaves; else only those that something waits for, or can be dropped from.
    all: bool,
}

impl Walk {
    /// At the least key. `all`: also leaves that are as they should be but for their shape.
    pub fn new(all: bool) -> Self {
        Self { behind: None, pushed: u32::MAX, within: None, all }
    }

    fn wants(&self, node: &Node, child: usize, oldest: u64) -> bool {
        let droppable = match &node.children[child] {
            Child::Leaf(leaf) => {
                self.all
                    || leaf.is_lightly_compressed()
                    || leaf.content().garbage() > 0 && leaf.content().max_ts <= oldest
            }
            Child::Empty | Child::Node(_) => false,
        };
        droppable || node.buffered_for(child) > 0
    }
}

/// What a step of a rewrite did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Others are at work where it wants to go on: try again soon.
    Busy,
    /// It went on, past so many bytes of leaves and large values as they were before.
    Passed(u64),
    /// It came to the end, past so many bytes.
    Ended(u64),
}

/// What a step has to do.
enum Next<'a> {
    Busy,
    /// Nothing, up to this key.
    Skip(Option<Arc<[u8]>>, u64),
    /// Move what waits at this height; the walk stays.
    Push(Plan, Claim<'a>, u32),
    /// Rewrite leaves, and be behind this key.
    Leaves(Plan, Claim<'a>, Option<Arc<[u8]>>, u64),
}

impl Tree {
    /// Takes a rewrite one step further. May read and write the disk for a few leaves' worth of
    /// bytes. After an error the tree and the walk are as they were.
    pub fn rewrite(&self, walk: &mut Walk, visibility: &Visibility) -> Result<Step> {
        let (plan, claim, next) = match self.next_of(walk, visibility.oldest()) {
            Next::Busy => return Ok(Step::Busy),
            Next::Skip(key, bytes) => return Ok(walk.pass(key, bytes)),
            Next::Push(plan, claim, height) => (plan, claim, Err(height)),
            Next::Leaves(plan, claim, key, bytes) => (plan, claim, Ok((key, bytes))),
        };
        let mut unit = Unit::new(self, visibility, claim);
        unit.large_rewrite = walk.all.then(|| LargeRewrite::new(walk.within.clone()));
        unit.carry_out(&plan)?;
        unit.publish(None);
        count(&self.shared.counters.rewrites, 1);
        let large_rewrite = unit.large_rewrite.take().unwrap_or_default();
        Ok(match next {
            Ok(_) if large_rewrite.is_short => {
                walk.within = large_rewrite.reached;
                Step::Passed(large_rewrite.bytes)
            }
            Ok((key, bytes)) => walk.pass(key, bytes + large_rewrite.bytes),
            Err(height) => {
                walk.pushed = height;
                Step::Passed(0)
            }
        })
    }

    fn next_of(&self, walk: &Walk, oldest: u64) -> Next<'_> {
        let mut claims = self.claims.table();
        // Pinned behind the lock, as every unit that claims does.
        let mut node = Arc::clone(&self.pin().root);
        let behind = walk.behind.as_deref();
        loop {
            let child = behind.map_or(0, |key| node.child_after(key));
            let Child::Node(below) = &node.children[child] else {
                return self.leaves(walk, &mut claims, &node, child, oldest);
            };
            let at_its_edge = node.child_bounds(child).lower.as_deref() == behind;
            if node.height < walk.pushed && at_its_edge && node.buffered_for(child) > 0 {
                let (height, below) = (node.height, Arc::clone(below));
                let plan = Plan::Flush { node, child, below };
                return match self.claim(&mut claims, &plan) {
                    Some(claim) => Next::Push(plan, claim, height),
                    None => Next::Busy,
                };
            }
            let below = Arc::clone(below);
            node = below;
        }
    }

    /// The next leaves of a node to rewrite, from `first` on.
    fn leaves(
        &self,
        walk: &Walk,
        claims: &mut ClaimTable,
        node: &Arc<Node>,
        first: usize,
        oldest: u64,
    ) -> Next<'_> {
        let width = node.children.len();
        let bytes = |children: Range<usize>| {
            children.map(|child| node.children[child].leaf_bytes()).sum::<u64>()
        };
        let wanted = (first..width).find(|child| walk.wants(node, *child, oldest));
        let Some(start) = wanted else {
            return Next::Skip(node.bounds.upper.clone(), bytes(first..width));
        };
        let full = self.options().page_size;
        let mut end = start + 1;
        while walk.all
            && end < width
            && bytes(start..end + 1) <= full
            && walk.wants(node, end, oldest)
        {
            end += 1;
        }
        let plan = Plan::Rewrite { node: Arc::clone(node), children: start..end };
        match self.claim(claims, &plan) {
            Some(claim) => {
                Next::Leaves(plan, claim, node.child_bounds(end - 1).upper, bytes(first..end))
            }
            None => Next::Busy,
        }
    }

    fn claim(&self, claims: &mut ClaimTable, plan: &Plan) -> Option<Claim<'_>> {
        let area: Area = plan.area().filter(|area| claims.is_free(area))?;
        Some(self.claims.claim(claims, area))
    }
}

/// The large values that a unit writes again: from a key on, as many as fit.
#[derive(Default)]
pub(super) struct LargeRewrite {
    after: Option<Arc<[u8]>>,
    /// The last key whose values were taken.
    reached: Option<Arc<[u8]>>,
    /// Bytes of them, as they were stored.
    bytes: u64,
    /// Some are left.
    is_short: bool,
}

impl LargeRewrite {
    fn new(after: Option<Arc<[u8]>>) -> Self {
        Self { after, ..Self::default() }
    }

    /// The value, and what it takes of the cache's bound, where it is to be rewritten; keys come in
    /// order. May read the disk.
    pub(super) fn take(
        &mut self,
        key: &[u8],
        shared: &TreeShared,
        reference: &[u8],
    ) -> Result<Option<(Vec<u8>, Reservation)>> {
        if !self.takes(key) {
            return Ok(None);
        }
        let at = shared.decode_large(reference)?;
        self.bytes += u64::from(at.block.page.len);
        let memory = shared.cache.reserve(MemoryKind::Buffers, u64::from(at.block.raw_len));
        Ok(Some((shared.read_large(at)?, memory)))
    }

    fn takes(&mut self, key: &[u8]) -> bool {
        if self.after.as_deref().is_some_and(|after| key <= after) {
            return false;
        }
        if self.reached.as_deref() == Some(key) {
            return true;
        }
        self.is_short |= self.bytes >= UNIT_BYTES;
        if !self.is_short {
            self.reached = Some(key.into());
        }
        !self.is_short
    }
}

impl Walk {
    fn pass(&mut self, key: Option<Arc<[u8]>>, bytes: u64) -> Step {
        self.pushed = u32::MAX;
        self.within = None;
        match key {
            Some(key) => {
                self.behind = Some(key);
                Step::Passed(bytes)
            }
            None => Step::Ended(bytes),
        }
    }
}
