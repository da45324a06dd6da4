//! What a tree holds and what it did, and what it still owes.

use super::Tree;
use super::layer::Layer;
use crate::node::{Child, Node};
use crate::segment::Segment;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Work the tree still owes, for pacing writers and choosing what to work on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Debt {
    /// Memory of the active memtable.
    pub active_bytes: u64,
    /// Memory of sealed memtables, which draining frees.
    pub sealed_bytes: u64,
    /// Sealed memtables, and large transactions not yet below the root.
    pub sealed: usize,
    /// Bytes in buffers on disk.
    pub buffered_bytes: u64,
    /// Bytes in buffers over their budgets: must be flushed on.
    pub excess_bytes: u64,
    /// Entries in leaves, hidden or deleted, that idle work drops once no snapshot needs them.
    pub garbage_entries: u64,
    /// Ranges that were deleted and not swept yet: idle work does that once no snapshot is older.
    pub tombstones: usize,
    /// Bytes of lightly compressed leaves; [`Effort::IdleWithoutWrites`](super::Effort::IdleWithoutWrites) work
    /// rewrites them.
    pub lightly_compressed_bytes: u64,
    /// Reads have paid for a flush: [`Effort::ReadFlush`](super::Effort::ReadFlush) finds it.
    pub wanted: bool,
    /// How urgent the most urgent work on disk is: 1000 and above is needed, 0 is none.
    pub urgency: u64,
}

/// Figures of one tree. Sizes count every version on disk; counters count since the tree was
/// opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Entries in memtables, versions and deletes included.
    pub memory_entries: u64,
    /// Memory of memtables.
    pub memory_bytes: u64,
    /// Key and value bytes in memtables.
    pub memory_data_bytes: u64,
    /// Entries on disk, versions and deletes included.
    pub disk_entries: u64,
    /// Different keys in each segment, summed: about the documents where little is buffered.
    pub disk_keys: u64,
    /// Deletes among them.
    pub disk_deletes: u64,
    /// Key bytes before compression.
    pub key_bytes: u64,
    /// Value bytes before compression.
    pub value_bytes: u64,
    /// Bytes of decoded pages.
    pub raw_bytes: u64,
    /// Bytes of segments on disk, large values included.
    pub stored_bytes: u64,
    /// Of them, bytes of large values, each as often as a leaf or run refers to it.
    pub large_bytes: u64,
    /// Levels of nodes.
    pub height: u32,
    /// Nodes.
    pub nodes: u64,
    /// Leaves.
    pub leaves: u64,
    /// Runs.
    pub runs: u64,
    /// Bytes waiting in runs.
    pub buffered_bytes: u64,
    /// Memtables drained.
    pub drains: u64,
    /// Bytes they held.
    pub drained_bytes: u64,
    /// Children flushed.
    pub flushes: u64,
    /// Merges of runs.
    pub merges: u64,
    /// Leaves written.
    pub leaves_written: u64,
    /// Leaves left as they were because everything new came behind them.
    pub leaves_kept: u64,
    /// Leaves that became more than one.
    pub leaf_splits: u64,
    /// Pairs of leaves that became one.
    pub leaf_fuses: u64,
    /// Nodes that became more than one.
    pub node_splits: u64,
    /// Pairs of nodes that became one.
    pub node_fuses: u64,
    /// Levels added.
    pub root_grows: u64,
    /// Levels taken away.
    pub root_shrinks: u64,
    /// Units that only took on changed options, or were asked for by a rewrite.
    pub rewrites: u64,
    /// Leaves that were let go of unread, as tombstones cover them.
    pub leaves_swept: u64,
    /// Bytes of entries read by drains, flushes and merges.
    pub merged_bytes: u64,
    /// Bytes of segments written.
    pub written_bytes: u64,
    /// Values written to segments of their own.
    pub large_values: u64,
    /// Compression dictionaries made of leaves' pages.
    pub compression_dictionaries: u64,
    /// Versions dropped because nobody sees them.
    pub dropped_versions: u64,
    /// Deletes dropped at the bottom.
    pub dropped_deletes: u64,
    /// Pages read and decoded.
    pub page_reads: u64,
    /// Filter checks that let a key pass.
    pub filter_passes: u64,
    /// Filter checks that saved a search.
    pub filter_refusals: u64,
    /// Searches that found nothing although a filter had let the key pass.
    pub filter_misses: u64,
    /// Runs written.
    pub runs_written: u64,
}

impl Tree {
    /// What the tree owes now. Touches no disk.
    pub fn debt(&self) -> Debt {
        let state = self.pin();
        Debt {
            active_bytes: state.active.bytes(),
            sealed_bytes: state
                .sealed
                .iter()
                .filter_map(Layer::table)
                .map(|table| table.bytes())
                .sum(),
            sealed: state.sealed.len(),
            buffered_bytes: state.root.buffered_below,
            excess_bytes: state.root.excess_below,
            garbage_entries: state.root.garbage_below,
            tombstones: state.tombstone_list().len(),
            lightly_compressed_bytes: state.root.lightly_compressed_below,
            wanted: self.shared.has_read_flush.load(Ordering::Relaxed),
            urgency: state.root.score_below.0,
        }
    }

    /// Whether reads have paid for work that nothing else asks for ([`Debt::wanted`]). One load.
    pub fn is_wanted(&self) -> bool {
        self.shared.has_read_flush.load(Ordering::Relaxed)
    }

    /// What the tree has counted since it was opened; sizes are zero. Touches no lock.
    pub fn counters(&self) -> Stats {
        let Some(counters) = self.shared.counters.get() else { return Stats::default() };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            drains: read(&counters.drains),
            drained_bytes: read(&counters.drained_bytes),
            flushes: read(&counters.flushes),
            merges: read(&counters.merges),
            leaves_written: read(&counters.leaves_written),
            leaves_kept: read(&counters.leaves_kept),
            leaf_splits: read(&counters.leaf_splits),
            leaf_fuses: read(&counters.leaf_fuses),
            node_splits: read(&counters.node_splits),
            node_fuses: read(&counters.node_fuses),
            root_grows: read(&counters.root_grows),
            root_shrinks: read(&counters.root_shrinks),
            rewrites: read(&counters.rewrites),
            leaves_swept: read(&counters.leaves_swept),
            merged_bytes: read(&counters.merged_bytes),
            written_bytes: read(&counters.written_bytes),
            large_values: read(&counters.large_values),
            compression_dictionaries: read(&counters.compression_dictionaries),
            dropped_versions: read(&counters.dropped_versions),
            dropped_deletes: read(&counters.dropped_deletes),
            page_reads: read(&counters.page_reads),
            filter_passes: read(&counters.filter_passes),
            filter_refusals: read(&counters.filter_refusals),
            filter_misses: read(&counters.filter_misses),
            runs_written: read(&counters.runs_written),
            ..Stats::default()
        }
    }

    /// Figures of the tree. Walks its nodes, touches no disk.
    pub fn stats(&self) -> Stats {
        let state = self.pin();
        let mut stats = Stats {
            memory_entries: state.memtables().map(|table| table.entries()).sum(),
            memory_bytes: state.memtables().map(|table| table.bytes()).sum(),
            memory_data_bytes: state.memtables().map(|table| table.data_bytes()).sum(),
            height: state.root.height,
            buffered_bytes: state.root.buffered_below,
            ..self.counters()
        };
        let mut segments = BTreeMap::new();
        visit(&state.root, &mut |node| {
            stats.nodes += 1;
            for child in &node.children {
                if let Child::Leaf(leaf) = child {
                    stats.leaves += 1;
                    segments.insert(leaf.id(), Arc::clone(leaf));
                }
            }
            for attached in &node.runs {
                let new = segments.insert(attached.run.id(), Arc::clone(&attached.run)).is_none();
                stats.runs += u64::from(new);
            }
        });
        for segment in segments.values() {
            stats.add(segment);
        }
        stats
    }

    /// The segments the tree is made of on disk now: what a sweep of orphans must keep.
    pub fn segments(&self) -> Vec<u64> {
        let state = self.pin();
        let mut ids = Vec::new();
        visit(&state.root, &mut |node| {
            ids.extend(node.stored.get().map(|stored| stored.id));
            let leaves = node.children.iter().filter_map(|child| match child {
                Child::Leaf(leaf) => Some(leaf),
                _ => None,
            });
            for segment in node.runs.iter().map(|attached| &attached.run).chain(leaves) {
                ids.push(segment.id());
                ids.extend_from_slice(&segment.descriptor().large);
                ids.extend(segment.descriptor().dictionary.map(|at| at.segment));
            }
        });
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

impl Stats {
    /// Adds what another tree has counted.
    pub fn add_counters(&mut self, other: &Self) {
        self.drains += other.drains;
        self.drained_bytes += other.drained_bytes;
        self.flushes += other.flushes;
        self.merges += other.merges;
        self.leaves_written += other.leaves_written;
        self.leaves_kept += other.leaves_kept;
        self.leaf_splits += other.leaf_splits;
        self.leaf_fuses += other.leaf_fuses;
        self.node_splits += other.node_splits;
        self.node_fuses += other.node_fuses;
        self.root_grows += other.root_grows;
        self.root_shrinks += other.root_shrinks;
        self.rewrites += other.rewrites;
        self.leaves_swept += other.leaves_swept;
        self.merged_bytes += other.merged_bytes;
        self.written_bytes += other.written_bytes;
        self.compression_dictionaries += other.compression_dictionaries;
        self.dropped_versions += other.dropped_versions;
        self.dropped_deletes += other.dropped_deletes;
        self.page_reads += other.page_reads;
        self.filter_passes += other.filter_passes;
        self.filter_refusals += other.filter_refusals;
        self.filter_misses += other.filter_misses;
        self.runs_written += other.runs_written;
    }

    fn add(&mut self, segment: &Segment) {
        let content = segment.content();
        self.disk_entries += content.entries;
        self.disk_keys += content.keys;
        self.disk_deletes += content.deletes;
        self.key_bytes += content.key_bytes;
        self.value_bytes += content.value_bytes;
        self.raw_bytes += content.raw_bytes;
        self.stored_bytes += content.stored_bytes + content.large_bytes;
        self.large_bytes += content.large_bytes;
    }
}

/// Every node from here down.
pub(super) fn visit(node: &Node, see: &mut impl FnMut(&Node)) {
    see(node);
    for child in &node.children {
        if let Child::Node(below) = child {
            visit(below, see);
        }
    }
}
