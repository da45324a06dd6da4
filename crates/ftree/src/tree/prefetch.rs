//! Reading at once what a batch of point reads would read one after the other.

use super::{Layer, State, Tree};
use crate::block::BlockHandle;
use crate::error::Result;
use crate::memtable::hash;
use crate::node::Child;
use crate::segment::Segment;
use crate::tree_shared::count;
use blockfile::SegmentId;
use cachetable::{Access, MemoryKind};
use os::{Wait, Waits};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Pages that are read at a time take at most this part of the cache, decoded: they are to be there still when they
/// are asked for.
const SHARE: u64 = 16;

impl Tree {
    /// Brings into memory what [`Tree::get`] of these keys at `ts` is going to need, several pages
    /// at once; says how many pages had to be waited for. A hint: errors are left to who reads the keys, and where the
    /// disk is not asked for several pages at once and there are no reader threads nothing is done.
    pub fn prefetch<K: AsRef<[u8]>>(&self, keys: &[K], ts: u64) -> usize {
        let (blocks, readers) = (&self.context.blocks, &self.context.readers);
        if !blocks.reads_at_once() && !readers.has_threads() {
            return 0;
        }
        let missing = self.missing_pages(keys, ts);
        if blocks.reads_at_once() {
            self.read_together(&missing)
        } else {
            let read = |(segment, block): &Missing| {
                let (segment, block) = (Arc::clone(segment), *block);
                // Whoever reads the page reports what is wrong with it.
                readers.start(move || segment.load_page(block, Access::Prefetch).is_ok())
            };
            let errands: Vec<_> = missing.iter().map(read).collect();
            for errand in errands {
                let _read = errand.wait();
            }
            missing.len()
        }
    }

    /// The pages that are not in memory, as many of them as may be read at a time.
    fn missing_pages<K: AsRef<[u8]>>(&self, keys: &[K], ts: u64) -> Vec<Missing> {
        let state = self.pin();
        let mut seen = HashSet::new();
        let mut missing = Vec::new();
        let mut room = self.context.cache.capacity() / SHARE;
        for key in keys {
            let Ok(Some((segment, block))) = state.missing_page(key.as_ref(), ts) else { continue };
            if seen.insert((segment.id(), block.page.page)) {
                // A damaged index may give a page any length.
                let bytes = block.raw_len.max(block.page.len);
                let Some(left) = room.checked_sub(u64::from(bytes)) else { break };
                room = left;
                missing.push((segment, block));
            }
        }
        missing
    }

    /// Reads and decodes pages; what does not succeed is left out. Says how many had to be waited for.
    fn read_together(&self, missing: &[Missing]) -> usize {
        if missing.is_empty() {
            return 0;
        }
        let blocks = &self.context.blocks;
        let stored = missing.iter().map(|(_, block)| blocks.most_read_bytes(block.page)).sum();
        let _memory = self.context.cache.reserve(MemoryKind::Buffers, stored);
        let place = |(segment, block): &Missing| (SegmentId(segment.id()), block.page);
        let pages: Vec<_> = missing.iter().map(place).collect();
        let started = blocks.now_us();
        let batch = blocks.read_pages(&pages);
        let took = blocks.now_us().saturating_sub(started);
        Waits::add(Wait::DiskRead, Duration::from_micros(took));
        for ((segment, block), stored) in missing.iter().zip(batch.pages()) {
            if let Some(stored) = stored {
                count(&segment.shared().counters.page_reads, 1);
                // Whoever reads the page reports what is wrong with it.
                let _read = segment.load_stored(*block, stored, Access::Prefetch);
            }
        }
        batch.waited()
    }
}

/// A page that is not in memory.
type Missing = (Arc<Segment>, BlockHandle);

impl State {
    /// The page in which a reader most likely finds `key`, if it is not in memory. May read block
    /// indexes and filters.
    fn missing_page(&self, key: &[u8], ts: u64) -> Result<Option<(Arc<Segment>, BlockHandle)>> {
        let in_memory = self.active.hash(key);
        let sealed = self.sealed.iter().filter_map(Layer::table);
        if std::iter::once(&self.active)
            .chain(sealed)
            .any(|table| table.get(key, in_memory, ts).is_some())
        {
            return Ok(None);
        }
        let hash = hash(key);
        let mut node = &self.root;
        let segment = loop {
            let child = node.child_of(key);
            let mut live = node.runs.iter().filter(|attached| attached.is_live(child));
            if let Some(attached) = live.find(|attached| attached.run.has(key, hash)) {
                break &attached.run;
            }
            match &node.children[child] {
                Child::Node(below) => node = below,
                Child::Leaf(leaf) => break leaf,
                Child::Empty => return Ok(None),
            }
        };
        let missing = segment.missing_page(key, ts)?;
        Ok(missing.map(|block| (Arc::clone(segment), block)))
    }
}
