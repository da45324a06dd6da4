//! What every segment and node of one tree needs: its files, its cache, its counters, and what keeps
//! the segments of large values and compression dictionaries.

use crate::block::BlockHandle;
use blockfile::{BlockFile, DictionaryDecompressor, SegmentId};
use cachetable::{CacheTable, Reservation};
use os::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// What a tree shares with segments and nodes that outlive it.
pub(crate) struct TreeShared {
    pub(crate) tree: u64,
    pub(crate) blocks: BlockFile,
    pub(crate) cache: Arc<CacheTable>,
    pub(crate) counters: LazyCounters,
    /// Some node's read debt has reached the price of a flush.
    pub(crate) has_read_flush: AtomicBool,
    pub(crate) large: LargeValues,
    pub(crate) dictionaries: CompressionDictionaries,
    /// The tree is closed, not dropped: segments stay on disk when their memory goes.
    keep: AtomicBool,
}

/// The counters of a tree from its first count on: idle trees are many, and have counted nothing.
#[derive(Default)]
pub(crate) struct LazyCounters(OnceLock<Box<Counters>>);

impl LazyCounters {
    /// None before the first count.
    pub(crate) fn get(&self) -> Option<&Counters> {
        self.0.get().map(|counters| &**counters)
    }
}

impl std::ops::Deref for LazyCounters {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        self.0.get_or_init(Box::default)
    }
}

/// What one tree counts.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) segments: AtomicU64,
    pub(crate) page_reads: AtomicU64,
    pub(crate) filter_passes: AtomicU64,
    pub(crate) filter_refusals: AtomicU64,
    pub(crate) filter_misses: AtomicU64,
    pub(crate) runs_written: AtomicU64,
    pub(crate) drains: AtomicU64,
    pub(crate) drained_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) leaves_written: AtomicU64,
    pub(crate) leaves_kept: AtomicU64,
    pub(crate) leaf_splits: AtomicU64,
    pub(crate) leaf_fuses: AtomicU64,
    pub(crate) node_splits: AtomicU64,
    pub(crate) node_fuses: AtomicU64,
    pub(crate) root_grows: AtomicU64,
    pub(crate) root_shrinks: AtomicU64,
    pub(crate) rewrites: AtomicU64,
    pub(crate) leaves_swept: AtomicU64,
    pub(crate) merged_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) dropped_versions: AtomicU64,
    pub(crate) dropped_deletes: AtomicU64,
    pub(crate) large_values: AtomicU64,
    pub(crate) compression_dictionaries: AtomicU64,
    pub(crate) unfreed: AtomicU64,
}

impl Counters {
    pub(crate) fn filter(&self, passes: bool) {
        let counter = if passes { &self.filter_passes } else { &self.filter_refusals };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl TreeShared {
    pub(crate) fn new(tree: u64, blocks: BlockFile, cache: Arc<CacheTable>) -> Arc<Self> {
        let counters = LazyCounters::default();
        let (wanted, keep) = (AtomicBool::new(false), AtomicBool::new(true));
        let (large, dictionaries) = Default::default();
        let has_read_flush = wanted;
        Arc::new(Self { tree, blocks, cache, counters, has_read_flush, large, dictionaries, keep })
    }

    /// Says whether segments stay on disk when their memory goes: true while a tree is being
    /// opened and once it is closed.
    pub(crate) fn keep_segments(&self, keep: bool) {
        self.keep.store(keep, Ordering::Release);
    }

    /// Nobody can see the segment any more: its frames and its extent go. The block file hands
    /// the extent out again only after a checkpoint without it.
    pub(crate) fn release(&self, segment: u64, pages: u32) {
        self.cache.forget(segment, pages);
        if !self.keep.load(Ordering::Acquire) && self.blocks.free(SegmentId(segment)).is_err() {
            // A stopped file frees nothing; the next start finds the segment unreferenced.
            count(&self.counters.unfreed, 1);
        }
    }
}

/// Keeps one large value's segment.
pub(crate) struct Large {
    id: u64,
    shared: Arc<TreeShared>,
}

impl Large {
    pub(crate) fn new(id: u64, shared: &Arc<TreeShared>) -> Self {
        Self { id, shared: Arc::clone(shared) }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        {
            let mut large = self.shared.large.0.lock();
            if large.get(&self.id).is_some_and(|kept| kept.strong_count() == 0) {
                large.remove(&self.id);
            }
        }
        self.shared.release(self.id, 1);
    }
}

/// The large values that something in memory keeps.
#[derive(Default)]
pub(crate) struct LargeValues(pub(crate) Mutex<BTreeMap<u64, Weak<Large>>>);

/// A dictionary on the disk; its segment is freed with its last leaf.
pub(crate) struct CompressionDictionary {
    pub(crate) shared: Arc<TreeShared>,
    pub(crate) segment: u64,
    /// The only page of the segment.
    pub(crate) block: BlockHandle,
    /// What decodes pages, once it was needed, where there was room for it.
    pub(crate) ready: OnceLock<(DictionaryDecompressor, Reservation)>,
}

impl CompressionDictionary {
    pub(crate) fn new(segment: u64, block: BlockHandle, shared: &Arc<TreeShared>) -> Self {
        Self { shared: Arc::clone(shared), segment, block, ready: OnceLock::new() }
    }
}

impl Drop for CompressionDictionary {
    fn drop(&mut self) {
        {
            let mut kept = self.shared.dictionaries.kept.lock();
            if kept.get(&self.segment).is_some_and(|kept| kept.strong_count() == 0) {
                kept.remove(&self.segment);
            }
        }
        self.shared.release(self.segment, 1);
    }
}

/// The dictionaries of one tree, and when the next one is made.
#[derive(Default)]
pub(crate) struct CompressionDictionaries {
    /// Those that something in memory keeps. The greatest number is the newest.
    pub(crate) kept: Mutex<BTreeMap<u64, Weak<CompressionDictionary>>>,
    /// Raw bytes of leaves that were written since the newest one was made, or since the tree was opened.
    pub(crate) written: AtomicU64,
    /// How often the tree has made one since it was opened.
    pub(crate) made: AtomicU64,
}
