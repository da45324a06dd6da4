//! Values too large for pages: each in a segment of its own, which merges pass by.
//!
//! An entry then holds a reference (`Message::Large`), and a run or leaf names the segments its
//! entries refer to. Always true: in memory every run and leaf keeps what it names, so a value's
//! segment is freed with the last run or leaf that refers to it. Nothing is counted on disk, and
//! nothing is garbage: one segment, one value.
//!
//! On disk: `docs/formats/segment.md`, section "large values".

use crate::block::{BlockHandle, encode_block, read_block};
use crate::bytes::{Reader, put_varint};
use crate::error::{Error, Result};
use crate::tree_shared::{Large, TreeShared, count};
use blockfile::{Compression, MAX_PAGE_BYTES, PAGE_HEADER_BYTES, SegmentId};
use cachetable::{Access, EvictionPriority, Frame, FrameKey, Level, Loader, PageInfo};
use std::borrow::Cow;
use std::sync::{Arc, Weak};

/// The kind such segments have in the block file; runs are 1, leaves 2, nodes 3.
const VALUE_KIND: u8 = 4;

/// Where a large value is: what its entry holds instead. A compression dictionary is named so, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LargeRef {
    pub(crate) segment: u64,
    /// The only page of the segment.
    pub(crate) block: BlockHandle,
}

impl LargeRef {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.segment);
        encode_block(self.block, out);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let at = Self::read(&mut reader)?;
        (reader.remaining() == 0).then_some(at)
    }

    /// At the beginning of what is left.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (segment, block) = (reader.varint()?, read_block(reader, 0)?);
        let sound = block.page.offset == 0
            && block.raw_len as usize <= MAX_PAGE_BYTES
            && block.page.len as usize <= MAX_PAGE_BYTES + PAGE_HEADER_BYTES;
        sound.then_some(Self { segment, block })
    }
}

impl TreeShared {
    /// Writes a value to a segment of its own.
    pub(crate) fn write_large(
        self: &Arc<Self>,
        compression: Compression,
        value: &[u8],
    ) -> Result<(LargeRef, Arc<Large>)> {
        // What it is compressed to, and what is on its way to the disk.
        let beside = 2 * value.len() as u64;
        let (page, stored, segment) = self.cache.while_writing(beside, || -> Result<_> {
            let mut writer = self.blocks.start_segment(VALUE_KIND);
            let page = writer.append_page(self.tree, compression, value)?;
            let stored = writer.len();
            Ok((page, stored, writer.finish()?.0))
        })?;
        count(&self.counters.written_bytes, stored);
        count(&self.counters.large_values, 1);
        let block = BlockHandle { page, raw_len: value.len() as u32 };
        Ok((LargeRef { segment, block }, self.keep_large(segment)))
    }

    /// What a descriptor names: kept from now on, whoever else keeps it.
    pub(crate) fn keep_large(self: &Arc<Self>, id: u64) -> Arc<Large> {
        let mut large = self.large.0.lock();
        if let Some(kept) = large.get(&id).and_then(Weak::upgrade) {
            return kept;
        }
        let kept = Arc::new(Large::new(id, self));
        large.insert(id, Arc::downgrade(&kept));
        kept
    }

    /// What a source of a merge keeps; `None` for a reference to something it does not name.
    pub(crate) fn find_large(&self, id: u64) -> Option<Arc<Large>> {
        self.large.0.lock().get(&id).and_then(Weak::upgrade)
    }

    /// A large value, through the cache. The caller keeps the run or leaf with the reference. May
    /// read the disk.
    pub(crate) fn load_large(&self, reference: &[u8], entry: Access) -> Result<Frame> {
        self.load_named(self.decode_large(reference)?, entry)
    }

    /// What a reference names, through the cache. The caller keeps its segment. May read the disk.
    pub(crate) fn load_named(&self, at: LargeRef, entry: Access) -> Result<Frame> {
        let key = FrameKey { segment: at.segment, page: 0 };
        if let Some(frame) = self.cache.get(key) {
            return Ok(frame);
        }
        let raw_len = at.block.raw_len as usize;
        let page = PageInfo {
            raw_len,
            priority: EvictionPriority::Page,
            level: Level::Leaf,
            access: entry,
        };
        self.cache.load(key, page, &Loading { shared: self, at })
    }

    pub(crate) fn decode_large(&self, reference: &[u8]) -> Result<LargeRef> {
        let damaged = || self.large_corruption(0, "reference to a large value does not parse");
        LargeRef::decode(reference).ok_or_else(damaged)
    }

    /// Reads and checks a large value, past the cache.
    pub(crate) fn read_large(&self, at: LargeRef) -> Result<Vec<u8>> {
        let loading = Loading { shared: self, at };
        let mut bytes = Vec::new();
        loading.decode(&loading.read()?, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn large_corruption(&self, segment: u64, what: &'static str) -> Error {
        Error::Corruption { tree: self.tree, segment, page: 0, what }
    }
}

/// One large value on its way into memory.
struct Loading<'a> {
    shared: &'a TreeShared,
    at: LargeRef,
}

impl Loader for Loading<'_> {
    type Error = Error;

    fn read(&self) -> Result<Cow<'_, [u8]>> {
        let TreeShared { blocks, counters, .. } = self.shared;
        count(&counters.page_reads, 1);
        let id = SegmentId(self.at.segment);
        Ok(Cow::Owned(blocks.read_stored_page(id, self.at.block.page)?))
    }

    fn decode(&self, stored: &[u8], bytes: &mut Vec<u8>) -> Result<()> {
        let LargeRef { segment, block } = self.at;
        let TreeShared { blocks, tree, .. } = self.shared;
        blocks.decode(*tree, SegmentId(segment), block.page, None, stored, bytes)?;
        if bytes.len() != block.raw_len as usize {
            return Err(self
                .shared
                .large_corruption(segment, "its length differs from its reference"));
        }
        Ok(())
    }

    fn now_us(&self) -> u64 {
        self.shared.blocks.now_us()
    }
}
