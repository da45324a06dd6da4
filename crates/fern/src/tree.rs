//! A tree's nodes, walked from the image in the checkpoint root; leaves and runs are not read.

use std::collections::{BTreeMap, BTreeSet};

use blockfile::PageRef;
use engine::format::DictionaryFacts;
use ftree::format::{ChildFacts, NodeFacts, RunFacts, SegmentFacts, image_facts, node_facts};

use crate::datafile::DataFile;
use crate::findings::{Damage, Findings};

/// The kind of a node's segment in the block file.
pub(crate) const NODE_KIND: u8 = 3;

/// The keys a node or leaf may hold: above the lower bound, not above the upper one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) lower: Option<Vec<u8>>,
    pub(crate) upper: Option<Vec<u8>>,
}

impl Range {
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.lower.as_ref().is_none_or(|lower| key > &lower[..])
            && self.upper.as_ref().is_none_or(|upper| key <= &upper[..])
    }
}

/// One node.
pub(crate) struct NodeRow {
    /// Its segment; none for the root, which is in the image.
    pub(crate) segment: Option<u64>,
    pub(crate) height: u32,
    pub(crate) children: usize,
    pub(crate) runs: usize,
    pub(crate) buffered: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) lower: Option<Vec<u8>>,
}

/// What a walk over the nodes of one tree found.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) id: u64,
    pub(crate) height: u32,
    pub(crate) nodes: Vec<NodeRow>,
    /// Segment → what its node says, and the keys it may hold.
    pub(crate) leaves: BTreeMap<u64, (SegmentFacts, Range)>,
    pub(crate) runs: BTreeMap<u64, SegmentFacts>,
    /// Bytes that wait in runs.
    pub(crate) buffered: u64,
    /// Some node could not be read: the figures are of a part.
    pub(crate) partial: bool,
}

impl Tree {
    /// Walks the nodes of one dictionary.
    pub(crate) fn walk(
        data: &DataFile,
        dictionary: &DictionaryFacts,
        findings: &mut Findings,
    ) -> Self {
        let tree = Self { id: dictionary.id.0, ..Self::default() };
        let mut walk = Walk { data, findings, tree, sequence: 0 };
        walk.image(dictionary);
        walk.tree
    }

    /// Leaves and runs.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &SegmentFacts> {
        self.leaves.values().map(|(leaf, _)| leaf).chain(self.runs.values())
    }

    /// The sum of a figure over leaves and runs.
    pub(crate) fn sum(&self, figure: impl Fn(&SegmentFacts) -> u64) -> u64 {
        self.segments().map(figure).fold(0, u64::saturating_add)
    }

    /// All segments it is made of.
    pub(crate) fn segment_ids(&self) -> impl Iterator<Item = u64> {
        let nodes = self.nodes.iter().filter_map(|node| node.segment);
        // Several runs may refer to one large value, and leaves to one compression dictionary.
        let named = |facts: &SegmentFacts| {
            let dictionary = facts.dictionary.map(|at| at.segment);
            facts.large.iter().copied().chain(dictionary).collect::<Vec<_>>()
        };
        let named: BTreeSet<u64> = self.segments().flat_map(named).collect();
        nodes.chain(self.segments().map(|facts| facts.segment)).chain(named)
    }
}

struct Walk<'a> {
    data: &'a DataFile,
    findings: &'a mut Findings,
    tree: Tree,
    /// The greatest age a run may have.
    sequence: u64,
}

impl Walk<'_> {
    fn image(&mut self, dictionary: &DictionaryFacts) {
        let image = match image_facts(&dictionary.image) {
            Ok(image) => image,
            Err(what) => {
                self.tree.partial = true;
                return self.damage(None, what);
            }
        };
        if image.flushed_ts > dictionary.flushed.0 {
            self.damage(None, "the image's flushed timestamp is after the checkpoint root's");
        }
        self.sequence = image.sequence;
        self.tree.height = image.root.height;
        let bytes = dictionary.image.len() as u64;
        self.node(None, &image.root, &Range::default(), (bytes, bytes));
    }

    /// `sizes`: raw and stored bytes of the node itself.
    fn node(&mut self, segment: Option<u64>, node: &NodeFacts, range: &Range, sizes: (u64, u64)) {
        if node.lower != range.lower || node.upper != range.upper {
            self.damage(segment, "the node's bounds differ from its place");
        }
        if !node.pivots.is_sorted_by(|left, right| left < right)
            || !node.pivots.iter().all(|pivot| range.contains(pivot))
        {
            self.damage(segment, "pivots do not ascend within the node's bounds");
        }
        self.runs(segment, node);
        let waiting = node.runs.iter().flat_map(|run| &run.shares);
        let buffered = waiting.fold(0_u64, |sum, share| sum.saturating_add(*share));
        self.tree.buffered = self.tree.buffered.saturating_add(buffered);
        self.tree.nodes.push(NodeRow {
            segment,
            height: node.height,
            children: node.children.len(),
            runs: node.runs.len(),
            buffered,
            raw_bytes: sizes.0,
            stored_bytes: sizes.1,
            lower: range.lower.clone(),
        });
        for (at, child) in node.children.iter().enumerate() {
            let lower = at.checked_sub(1).and_then(|left| node.pivots.get(left));
            let range = Range {
                lower: lower.or(range.lower.as_ref()).cloned(),
                upper: node.pivots.get(at).or(range.upper.as_ref()).cloned(),
            };
            match child {
                ChildFacts::Empty => {}
                ChildFacts::Leaf(leaf) => self.leaf(segment, leaf, range),
                ChildFacts::Node { segment: below, page } => {
                    self.child_node(*below, *page, node.height - 1, &range);
                }
            }
        }
    }

    /// Height and bounds are checked before anything below is read, so that damaged nodes cannot
    /// name each other in a circle.
    fn child_node(&mut self, segment: u64, page: PageRef, height: u32, range: &Range) {
        let node = match self.read_node(segment, page) {
            Ok(node) => node,
            Err(what) => {
                self.tree.partial = true;
                let damage = self.data.damage_in(self.tree.id, segment, page.offset, what);
                return self.findings.damage(damage.page(page.page));
            }
        };
        let (facts, raw_bytes) = node;
        let fits =
            facts.height == height && facts.lower == range.lower && facts.upper == range.upper;
        if !fits {
            self.tree.partial = true;
            return self.damage(Some(segment), "the node does not fit its parent");
        }
        self.node(Some(segment), &facts, range, (raw_bytes, u64::from(page.len)));
    }

    fn read_node(&self, segment: u64, page: PageRef) -> Result<(NodeFacts, u64), String> {
        let entry = self.data.table.get(&segment);
        let entry = entry.ok_or("a node is named that is not in the translation table")?;
        if entry.kind != NODE_KIND {
            return Err(format!("a node is named, but the segment is of kind {}", entry.kind));
        }
        if page.offset != 0 || u64::from(page.len) != entry.bytes {
            return Err("the node's page is not its whole segment".to_owned());
        }
        let raw = self.data.page(self.tree.id, segment, entry, page)?;
        Ok((node_facts(&raw)?, raw.len() as u64))
    }

    fn leaf(&mut self, parent: Option<u64>, leaf: &SegmentFacts, range: Range) {
        let old = self.tree.leaves.insert(leaf.segment, (leaf.clone(), range));
        if old.is_some() {
            self.damage(parent, format!("leaf {} is named twice", leaf.segment));
        }
    }

    /// Ages descend; the live masks (the watermarks of what was flushed) fit their runs.
    fn runs(&mut self, segment: Option<u64>, node: &NodeFacts) {
        if !node.runs.is_sorted_by(|newer, older| newer.age >= older.age) {
            self.damage(segment, "runs are not ordered by age");
        }
        for (at, run) in node.runs.iter().enumerate() {
            let name = format!("run {}", run.run.segment);
            if run.age > self.sequence {
                self.damage(segment, format!("{name} is newer than the tree's image"));
            }
            if run.shares.len() != node.children.len() || run.shares.iter().all(|s| *s == 0) {
                self.damage(segment, format!("{name} waits for no child"));
            }
            let both = |other: &RunFacts| {
                let pairs = run.shares.iter().zip(&other.shares);
                other.age == run.age && pairs.into_iter().any(|(a, b)| *a > 0 && *b > 0)
            };
            if node.runs[..at].iter().any(both) {
                self.damage(segment, format!("{name} waits for a child with another of its age"));
            }
            match self.tree.runs.insert(run.run.segment, run.run.clone()) {
                Some(known) if known != run.run => {
                    self.damage(segment, format!("{name} is described differently by two nodes"));
                }
                _ => {}
            }
        }
    }

    fn damage(&mut self, segment: Option<u64>, what: impl Into<String>) {
        let damage = match segment {
            Some(segment) => self.data.damage_in(self.tree.id, segment, 0, what),
            None => Damage::of(&self.data.path, what).tree(self.tree.id),
        };
        self.findings.damage(damage);
    }
}
