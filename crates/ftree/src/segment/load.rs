//! Bringing a segment's parts into memory: pages of entries, the block index, the filter.
//!
//! Always true: what comes back was checked: its checksum, its length, and every entry of it. So
//! reading it afterwards cannot fail, however often it is demoted and decoded again.

use super::{BlockHandle, Role, Segment};
use crate::error::Result;
use crate::filter;
use crate::page::PageView;
use crate::tree_shared::{TreeShared, count};
use blockfile::{DictionaryDecompressor, SegmentId};
use cachetable::{Access, EvictionPriority, Frame, FrameKey, Loader, MemoryKind, PageInfo};
use std::borrow::Cow;
use std::cell::Cell;

/// Indexes and filters of runs stay in memory up to this share of the cache; those of further runs
/// are frames with a better rank. So what must be resident stays small however much is buffered.
/// Large enough for what a burst leaves at a cache of a tenth of the data: a look at a run whose
/// filter is not in memory reads all of the filter.
const RESIDENT_SHARE: u64 = 4;

thread_local! {
    static THREAD_READS: Cell<u64> = const { Cell::new(0) };
}

/// Pages this thread has read from the disk: whoever compares two answers knows whether what it
/// did in between was in memory.
pub fn thread_page_reads() -> u64 {
    THREAD_READS.get()
}

type Check = fn(&[u8]) -> Result<(), &'static str>;

fn check_page(bytes: &[u8]) -> Result<(), &'static str> {
    PageView::open(bytes)?.check()
}

/// A run's block index and filter.
pub(super) struct Resident {
    index: Frame,
    filter: Option<Frame>,
}

/// One page on its way into the cache.
struct Loading<'a> {
    segment: &'a Segment,
    block: BlockHandle,
    check: Check,
    /// Its stored bytes, where they were read already.
    stored: Option<&'a [u8]>,
    /// What it was compressed with.
    dictionary: Option<&'a DictionaryDecompressor>,
}

impl Loader for Loading<'_> {
    type Error = crate::Error;

    fn read(&self) -> Result<Cow<'_, [u8]>> {
        if let Some(stored) = self.stored {
            return Ok(Cow::Borrowed(stored));
        }
        let TreeShared { blocks, counters, .. } = self.segment.shared();
        count(&counters.page_reads, 1);
        THREAD_READS.set(THREAD_READS.get() + 1);
        Ok(Cow::Owned(blocks.read_stored_page(SegmentId(self.segment.id()), self.block.page)?))
    }

    fn decode(&self, stored: &[u8], bytes: &mut Vec<u8>) -> Result<()> {
        self.segment.decode_checked(self.block, self.dictionary, stored, self.check, bytes)
    }

    fn now_us(&self) -> u64 {
        self.segment.shared().blocks.now_us()
    }
}

impl Segment {
    /// False where the key is certainly not here.
    pub(super) fn may_contain(&self, hash: u64) -> Result<bool> {
        let Some(block) = self.descriptor.filter else { return Ok(true) };
        let passes = match self.resident()? {
            Some(Resident { filter: Some(filter), .. }) => filter::may_contain(filter, hash),
            _ => filter::may_contain(&self.cached(block, filter::check)?, hash),
        };
        self.shared.counters.filter(passes);
        Ok(passes)
    }

    /// The block index, from memory where it is resident or cached.
    pub(crate) fn index(&self) -> Result<Frame> {
        match self.resident()? {
            Some(resident) => Ok(resident.index.clone()),
            None => self.cached(self.descriptor.index, check_page),
        }
    }

    /// A run's index and filter, where they stay in memory.
    fn resident(&self) -> Result<Option<&Resident>> {
        if self.role != Role::Run {
            return Ok(None);
        }
        if let Some(resident) = self.resident.get() {
            return Ok(Some(resident));
        }
        let (index, filter) = (self.descriptor.index, self.descriptor.filter);
        let cache = &self.shared.cache;
        let bytes = u64::from(index.raw_len) + filter.map_or(0, |block| u64::from(block.raw_len));
        if cache.held(MemoryKind::Filters) + bytes > cache.capacity() / RESIDENT_SHARE {
            return Ok(None);
        }
        let index = self.resident_part(index, check_page)?;
        let filter = filter.map(|block| self.resident_part(block, filter::check)).transpose()?;
        Ok(Some(self.resident.get_or_init(|| Resident { index, filter })))
    }

    fn resident_part(&self, block: BlockHandle, check: Check) -> Result<Frame> {
        let loading = Loading { segment: self, block, check, stored: None, dictionary: None };
        let mut bytes = Vec::new();
        loading.decode(&loading.read()?, &mut bytes)?;
        Ok(self.shared.cache.frame_outside(MemoryKind::Filters, bytes))
    }

    /// A page of entries, through the cache.
    pub(crate) fn page(&self, page: u32, index: &Frame) -> Result<Frame> {
        match self.cached_page(page) {
            Some(frame) => Ok(frame),
            None => self.load_page(self.block(index, page)?, Access::Demand),
        }
    }

    /// A page of entries that is in the cache.
    pub(crate) fn cached_page(&self, page: u32) -> Option<Frame> {
        self.shared.cache.get(self.frame_key(page))
    }

    /// The same for a walk over many pages.
    pub(crate) fn passed_page(&self, page: u32) -> Option<Frame> {
        self.shared.cache.get_passing(self.frame_key(page))
    }

    /// Whether a page of entries is in the cache. Does not count as a use.
    pub(crate) fn is_cached(&self, page: u32) -> bool {
        self.shared.cache.contains(self.frame_key(page))
    }

    /// Whether a page of entries is in the cache, decoded or not. Does not count as a use.
    pub(super) fn is_in_memory(&self, page: u32) -> bool {
        self.shared.cache.is_in_memory(self.frame_key(page))
    }

    /// Most of its pages are in the cache. Does not count as a use.
    pub(crate) fn is_mostly_cached(&self) -> bool {
        let pages = self.descriptor.pages;
        let cached = (0..pages).filter(|page| self.is_cached(*page)).count();
        cached * 2 > pages as usize
    }

    /// Reads a page of entries into the cache.
    pub(crate) fn load_page(&self, block: BlockHandle, entry: Access) -> Result<Frame> {
        self.load_entries(block, None, entry)
    }

    /// Decodes a page of entries, whose stored bytes were read already, into the cache.
    pub(crate) fn load_stored(
        &self,
        block: BlockHandle,
        stored: &[u8],
        entry: Access,
    ) -> Result<Frame> {
        self.load_entries(block, Some(stored), entry)
    }

    /// Decodes and checks a page of entries.
    pub(crate) fn decode(
        &self,
        block: BlockHandle,
        stored: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        self.with_dictionary(|dictionary| {
            self.decode_checked(block, dictionary, stored, check_page, bytes)
        })
    }

    /// Pages of entries may be compressed with a dictionary; what the segment has beside them is not. It is made ready before the
    /// cache is asked for the page, which may read the disk.
    fn with_dictionary<T>(
        &self,
        decode: impl FnOnce(Option<&DictionaryDecompressor>) -> Result<T>,
    ) -> Result<T> {
        match &self.dictionary {
            Some(dictionary) => dictionary.with_decompressor(|ready| decode(Some(ready))),
            None => decode(None),
        }
    }

    fn load_entries(
        &self,
        block: BlockHandle,
        stored: Option<&[u8]>,
        entry: Access,
    ) -> Result<Frame> {
        self.with_dictionary(|dictionary| {
            let check: Check = check_page;
            self.load(&Loading { segment: self, block, check, stored, dictionary }, entry)
        })
    }

    /// Reads stored bytes, of several pages at once.
    pub(crate) fn read_stored(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.shared.blocks.read(SegmentId(self.descriptor.id), offset, bytes)?;
        Ok(())
    }

    /// A block index or a filter, through the cache.
    fn cached(&self, block: BlockHandle, check: Check) -> Result<Frame> {
        if let Some(frame) = self.shared.cache.get(self.frame_key(block.page.page)) {
            return Ok(frame);
        }
        let loading = Loading { segment: self, block, check, stored: None, dictionary: None };
        self.load(&loading, Access::Demand)
    }

    fn load(&self, loading: &Loading<'_>, entry: Access) -> Result<Frame> {
        let number = loading.block.page.page;
        let page = PageInfo {
            raw_len: loading.block.raw_len as usize,
            priority: if number < self.descriptor.pages {
                EvictionPriority::Page
            } else {
                EvictionPriority::Index
            },
            level: self.role.level(),
            access: entry,
        };
        self.shared.cache.load(self.frame_key(number), page, loading)
    }

    fn frame_key(&self, page: u32) -> FrameKey {
        FrameKey { segment: self.descriptor.id, page }
    }

    /// What was decoded is what the index promised, and well formed.
    fn decode_checked(
        &self,
        block: BlockHandle,
        dictionary: Option<&DictionaryDecompressor>,
        stored: &[u8],
        check: Check,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let id = SegmentId(self.descriptor.id);
        self.shared.blocks.decode(self.shared.tree, id, block.page, dictionary, stored, bytes)?;
        if bytes.len() != block.raw_len as usize {
            return Err(self.corruption(block.page.page, "page length differs from its index"));
        }
        check(bytes).map_err(|what| self.corruption(block.page.page, what))
    }
}
