//! Reading at once what a batch of point reads would read one after the other.

use super::{Layer, State, Tree};
use crate::block::BlockHandle;
use crate::error::Result;
use crate::memtable::hash;
use crate::node::Child;
use crate::segment::Segment;
use cachetable::Access;
use std::collections::HashSet;
use std::sync::Arc;

impl Tree {
    /// Brings into memory what [`Tree::get`] of these keys at `ts` is going to need, several pages
    /// at once; says how many pages were read. A hint: errors are left to who reads the keys, and
    /// where there are no reader threads nothing is done.
    pub fn prefetch<K: AsRef<[u8]>>(&self, keys: &[K], ts: u64) -> usize {
        let readers = &self.context.readers;
        if !readers.has_threads() {
            return 0;
        }
        let state = self.pin();
        let mut seen = HashSet::new();
        let mut errands = Vec::new();
        for key in keys {
            let Ok(Some((segment, block))) = state.missing_page(key.as_ref(), ts) else { continue };
            if seen.insert((segment.id(), block.page.page)) {
                // Whoever reads the page reports what is wrong with it.
                errands.push(
                    readers.start(move || segment.load_page(block, Access::Prefetch).is_ok()),
                );
            }
        }
        let pages = errands.len();
        for errand in errands {
            let _read = errand.wait();
        }
        pages
    }
}

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
