//! Filling an empty tree with rows in order: leaves one behind the other, then the nodes over them, in
//! one swap.
//!
//! Nobody reads the tree meanwhile, and nothing of the rows is anywhere else: what is dropped before
//! [`TreeLoader::finish`] leaves nothing. Each row is written once.

use super::work::separator;
use super::{State, Tree};
use crate::error::Result;
use crate::message::{Entry, Message};
use crate::node::{Child, Parts};
use crate::options::TreeOptions;
use crate::segment::{Bounds, Role, Segment, SegmentBuilder};
use crate::tree_shared::count;
use os::sync::atomic::AtomicBool;
use std::sync::Arc;

/// Leaves of a tree that is being filled.
pub struct TreeLoader {
    tree: Arc<Tree>,
    options: TreeOptions,
    ts: u64,
    builder: Option<SegmentBuilder>,
    leaves: Vec<Arc<Segment>>,
    rows: u64,
}

impl TreeLoader {
    /// For an empty tree that nobody else writes to or reads. Every row is a put of commit `ts`, which is
    /// neither 0 nor `u64::MAX`.
    pub fn new(tree: &Arc<Tree>, ts: u64) -> Self {
        assert!(ts > 0 && ts < u64::MAX, "no commit has the timestamp {ts}");
        let options = tree.options();
        Self { tree: Arc::clone(tree), options, ts, builder: None, leaves: Vec::new(), rows: 0 }
    }

    /// The key added last, unless nothing was.
    pub fn last_key(&self) -> Option<&[u8]> {
        match &self.builder {
            Some(builder) => Some(builder.last_key()),
            None => self.leaves.last().map(|leaf| &leaf.content().max_key[..]),
        }
    }

    /// Adds the next row; its key is greater than the one before. May write to the disk; after an error
    /// the loader is of no more use.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        assert!(self.last_key().is_none_or(|last| last < key), "rows that are loaded ascend");
        if self.builder.as_ref().is_some_and(|builder| builder.size() >= self.options.page_size) {
            self.cut()?;
        }
        let (shared, options) = (&self.tree.shared, &self.options);
        let open = || SegmentBuilder::new(shared, options, Role::Leaf);
        let message = Message::Put(value);
        self.builder.get_or_insert_with(open).add(Entry { key, ts: self.ts, message })?;
        self.rows += 1;
        Ok(())
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes over the rows of another loader of the same tree and timestamp, whose keys are greater. Writes
    /// what is left of both.
    pub fn append(&mut self, mut next: Self) -> Result<()> {
        assert!(Arc::ptr_eq(&self.tree, &next.tree) && self.ts == next.ts, "parts of one tree");
        self.cut()?;
        next.cut()?;
        let ends = |leaf: Option<&Arc<Segment>>| leaf.map(|leaf| leaf.content().max_key.clone());
        let begins = next.leaves.first().map(|leaf| &leaf.content().min_key);
        let ascends = match (ends(self.leaves.last()), begins) {
            (Some(last), Some(first)) => last < *first,
            _ => true,
        };
        assert!(ascends, "rows that are loaded ascend");
        self.leaves.append(&mut next.leaves);
        self.rows += next.rows;
        Ok(())
    }

    /// Writes what was added so far, so that nothing of it is in memory.
    pub fn cut(&mut self) -> Result<()> {
        if let Some(builder) = self.builder.take() {
            self.leaves.push(builder.finish()?);
            count(&self.tree.shared.counters.leaves_written, 1);
        }
        Ok(())
    }

    /// Makes the rows the tree's. Writes what is left of them.
    pub fn finish(mut self) -> Result<()> {
        self.cut()?;
        let between = |pair: &[Arc<Segment>]| {
            separator(&pair[0].content().max_key, &pair[1].content().min_key)
        };
        let pivots = self.leaves.windows(2).map(between).collect();
        let children: Vec<Child> = self.leaves.into_iter().map(Child::Leaf).collect();
        if children.is_empty() {
            return Ok(());
        }
        let tree = &self.tree;
        let (bounds, runs) = (Bounds::default(), Vec::new());
        let parts = Parts { height: 1, bounds, pivots, children, runs, reads: (0, 0) };
        let root = tree.grow(parts.close(&self.options, &tree.shared), &self.options);
        let _swap = tree.publish.lock();
        let state = tree.pin();
        let is_empty = matches!(&state.root.children[..], [Child::Empty])
            && state.root.runs.is_empty()
            && state.sealed.is_empty()
            && state.active.entries() == 0;
        assert!(is_empty, "what is loaded was empty");
        let next = State {
            active: Arc::clone(&state.active),
            sealed: Vec::new(),
            root,
            flushed_ts: state.flushed_ts,
            sequence: state.sequence,
            tombstones: state.tombstones.clone(),
            // The active memtable stays.
            installed: AtomicBool::new(true),
        };
        tree.pins.publish(&Arc::new(next));
        Ok(())
    }
}

impl std::fmt::Debug for TreeLoader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TreeLoader({} rows)", self.rows)
    }
}
