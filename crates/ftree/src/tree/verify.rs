//! Reading a whole tree and checking every invariant it has.

use super::Tree;
use crate::Direction;
use crate::error::{Error, Result};
use crate::memtable::hash;
use crate::message::{Message, Place};
use crate::node::{Child, Node};
use crate::segment::{Bounds, Reading, Segment, SegmentIter};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What [`Tree::verify`] found in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Nodes checked.
    pub nodes: u64,
    /// Leaves read.
    pub leaves: u64,
    /// Runs read.
    pub runs: u64,
    /// Entries read.
    pub entries: u64,
}

impl Tree {
    /// Reads every page of the tree and checks checksums, order, ranges, filters, counts and the
    /// nodes' bookkeeping; the first damage is the error. Reads past the cache.
    pub fn verify(&self) -> Result<Report> {
        let state = self.pin();
        let mut check = Check { tree: self, report: Report::default(), seen: BTreeSet::new() };
        check.node(&state.root, &Bounds::default())?;
        Ok(check.report)
    }
}

struct Check<'a> {
    tree: &'a Tree,
    report: Report,
    /// Runs read: several nodes may share one.
    seen: BTreeSet<u64>,
}

impl Check<'_> {
    fn node(&mut self, node: &Node, bounds: &Bounds) -> Result<()> {
        self.report.nodes += 1;
        self.require(&node.bounds == bounds, "node bounds differ from its place")?;
        let ascending = node.pivots.is_sorted_by(|left, right| left < right);
        self.require(ascending, "pivots do not ascend")?;
        let inside = node.pivots.iter().all(|pivot| bounds.contains(pivot));
        self.require(inside, "pivot outside its node")?;
        let width = node.children.len();
        self.require(node.pivots.len() + 1 == width, "pivots and children differ in number")?;
        let ages = node.runs.is_sorted_by(|newer, older| newer.sequence >= older.sequence);
        self.require(ages, "runs are not ordered by age")?;
        for attached in &node.runs {
            self.require(attached.shares.len() == width && attached.live != 0, "run is dead")?;
            for child in 0..width {
                let agree = attached.is_live(child) == (attached.shares[child] > 0);
                self.require(agree, "run's mask and shares differ")?;
            }
            let twins = node.runs.iter().filter(|other| other.sequence == attached.sequence);
            let live = twins.fold(0, |live, other| live + other.live.count_ones());
            let together = node.runs.iter().filter(|other| other.sequence == attached.sequence);
            let union = together.fold(0, |live, other| live | other.live);
            self.require(live == union.count_ones(), "runs of one age share a child")?;
            if self.seen.insert(attached.run.id()) {
                self.report.runs += 1;
                self.segment(&attached.run, &Bounds::default(), true)?;
            }
        }
        for (at, child) in node.children.iter().enumerate() {
            let bounds = node.child_bounds(at);
            match child {
                Child::Node(below) => {
                    self.require(below.height + 1 == node.height, "node at the wrong height")?;
                    self.node(below, &bounds)?;
                }
                Child::Leaf(leaf) => {
                    self.require(node.height == 1, "leaf at the wrong height")?;
                    self.report.leaves += 1;
                    self.segment(leaf, &bounds, false)?;
                }
                Child::Empty => self.require(node.height == 1, "leaf at the wrong height")?,
            }
        }
        Ok(())
    }

    fn segment(
        &mut self,
        segment: &Arc<Segment>,
        bounds: &Bounds,
        may_have_updates: bool,
    ) -> Result<()> {
        let all = Bounds::default();
        let mut iter = SegmentIter::new(
            Arc::clone(segment),
            all,
            None,
            Direction::Forward,
            Reading::Streaming,
        )?;
        segment.check_footer()?;
        let content = segment.content();
        let mut last: Option<(Vec<u8>, u64)> = None;
        let (mut entries, mut keys, mut deletes, mut large) = (0, 0, 0, BTreeSet::new());
        while let Some(entry) = iter.entry() {
            let damage = |what| Err(segment.corruption(0, what));
            if let Some((key, ts)) = &last
                && (Place { key, ts: *ts }) >= entry.place()
            {
                return damage("entries are out of order");
            }
            if entry.message.is_update() && !may_have_updates {
                return damage("update in a leaf");
            }
            if !bounds.contains(entry.key) {
                return damage("key outside its leaf");
            }
            if entries == 0 && entry.key != &content.min_key[..] {
                return damage("least key differs");
            }
            if entry.ts < content.min_ts || entry.ts > content.max_ts {
                return damage("timestamp outside its segment");
            }
            if last.as_ref().is_none_or(|(key, _)| key != entry.key) {
                segment.check_filter(hash(entry.key))?;
                keys += 1;
            }
            entries += 1;
            deletes += u64::from(entry.message == Message::Delete);
            if let Message::Large(reference) = entry.message {
                let at = self.tree.shared.decode_large(reference)?;
                if segment.descriptor().large.binary_search(&at.segment).is_err() {
                    return damage("large value that its segment does not name");
                }
                self.tree.shared.read_large(at)?;
                large.insert(at.segment);
            }
            last = Some((entry.key.to_vec(), entry.ts));
            iter.advance()?;
        }
        self.report.entries += entries;
        let counts = (entries, keys, deletes) == (content.entries, content.keys, content.deletes);
        let greatest = last.is_some_and(|(key, _)| key == content.max_key[..]);
        if !counts || !greatest || large.len() != segment.descriptor().large.len() {
            return Err(segment.corruption(0, "counts or greatest key differ"));
        }
        Ok(())
    }

    fn require(&self, holds: bool, what: &'static str) -> Result<()> {
        if holds {
            return Ok(());
        }
        Err(Error::Corruption { tree: self.tree.id(), segment: 0, page: 0, what })
    }
}
