//! Segments: the immutable sorted extents that runs and leaves are made of.
//!
//! ```text
//!   page 0 │ page 1 │ … │ page n−1 │ block index │ filter, if any │ footer page
//! ```
//!
//! Every part is a page of the block file (checksummed alone, and compressed alone or with a dictionary). The block index
//! names the least place of each page and where it lies; a page is found by one search in it, so
//! a cold point read reads one page once the index is in memory.
//!
//! Always true: pages ascend and do not overlap; a segment's extent is freed when the last state
//! that can see it is gone.
//!
//! On disk: `docs/formats/segment.md`.

mod ahead;
mod build;
mod iter;
mod load;

pub(crate) use ahead::{Ahead, Pace};
pub(crate) use build::SegmentBuilder;
pub(crate) use iter::{Bounds, Reading, SegmentIter};
pub use load::thread_page_reads;

use crate::block::{BlockHandle, decode_block, encode_block, read_block};
use crate::bytes::{Reader, put_bytes, put_varint};
use crate::error::{Error, Result};
use crate::large::LargeRef;
use crate::message::{Kind, Place};
use crate::page::PageView;
use crate::tree_shared::{CompressionDictionary, Large, TreeShared, count};
use blockfile::{MAX_PAGE_BYTES, PAGE_HEADER_BYTES, PageRef, SegmentId};
use cachetable::{Frame, Level};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// What a segment is for: it decides where its index and filter are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// A buffer: index and filter stay in memory, as long as those of all runs are few.
    Run,
    /// A leaf: index and filter are cache frames with a better rank.
    Leaf,
    /// A leaf in use, compressed fast rather than well; rewritten when its tree is idle.
    LightLeaf,
}

/// The kind a segment has in the block file.
impl Role {
    pub(crate) fn number(self) -> u8 {
        match self {
            Role::Run => 1,
            Role::Leaf => 2,
            Role::LightLeaf => 5,
        }
    }

    /// The role of a leaf by the kind it was written as.
    pub(crate) fn of_leaf(kind: Option<u8>) -> Self {
        if kind == Some(Role::LightLeaf.number()) { Role::LightLeaf } else { Role::Leaf }
    }

    fn level(self) -> Level {
        match self {
            Role::Run => Level::Nonleaf,
            Role::Leaf | Role::LightLeaf => Level::Leaf,
        }
    }
}

/// What a segment holds, known without reading it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Content {
    pub(crate) entries: u64,
    /// Different keys among them.
    pub(crate) keys: u64,
    pub(crate) deletes: u64,
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
    /// Decoded bytes of the pages.
    pub(crate) raw_bytes: u64,
    /// Bytes of the whole segment on disk.
    pub(crate) stored_bytes: u64,
    /// Bytes on disk of the large values it refers to.
    pub(crate) large_bytes: u64,
    pub(crate) min_ts: u64,
    pub(crate) max_ts: u64,
    pub(crate) min_key: Box<[u8]>,
    pub(crate) max_key: Box<[u8]>,
}

impl Content {
    /// Entries of a leaf that go, if no snapshot needs them, once it is rewritten; 0 where they
    /// are too few to be worth it.
    pub(crate) fn garbage(&self) -> u64 {
        let garbage = self.deletes + (self.entries - self.keys);
        if garbage * 4 >= self.entries { garbage } else { 0 }
    }
}

/// Everything needed to read a segment; what nodes store of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Descriptor {
    pub(crate) id: u64,
    /// Pages of entries.
    pub(crate) pages: u32,
    pub(crate) index: BlockHandle,
    pub(crate) filter: Option<BlockHandle>,
    pub(crate) content: Content,
    /// Segments of the large values its entries refer to, ascending.
    pub(crate) large: Box<[u64]>,
    /// What its pages of entries were compressed with.
    pub(crate) dictionary: Option<LargeRef>,
}

/// One immutable sorted extent; freed with its last reference.
pub(crate) struct Segment {
    shared: Arc<TreeShared>,
    role: Role,
    descriptor: Descriptor,
    /// A run's index and filter, once they were needed, where there was room for them.
    resident: OnceLock<load::Resident>,
    /// What the descriptor names.
    _large: Box<[Arc<Large>]>,
    dictionary: Option<Arc<CompressionDictionary>>,
}

/// A version found in a segment: where its value lies.
pub(crate) struct Found {
    pub(crate) ts: u64,
    pub(crate) kind: Kind,
    pub(crate) frame: Frame,
    pub(crate) payload: Range<usize>,
}

impl Segment {
    pub(crate) fn new(shared: &Arc<TreeShared>, role: Role, descriptor: Descriptor) -> Arc<Self> {
        shared.counters.segments.fetch_add(1, Ordering::Relaxed);
        let large = descriptor.large.iter().map(|id| shared.keep_large(*id)).collect();
        let dictionary = descriptor.dictionary.map(|at| shared.keep_dictionary(at));
        let (shared, resident) = (Arc::clone(shared), OnceLock::new());
        Arc::new(Self { shared, role, descriptor, resident, _large: large, dictionary })
    }

    pub(crate) fn id(&self) -> u64 {
        self.descriptor.id
    }

    pub(crate) fn pages(&self) -> u32 {
        self.descriptor.pages
    }

    /// A leaf that waits to be compressed as its options say.
    pub(crate) fn is_lightly_compressed(&self) -> bool {
        self.role == Role::LightLeaf
    }

    pub(crate) fn content(&self) -> &Content {
        &self.descriptor.content
    }

    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The version of `key` a reader at `ts` sees here. May read the disk: nothing where the
    /// filter says no, else the index (once) and one page.
    pub(crate) fn get(&self, key: &[u8], hash: u64, ts: u64) -> Result<Option<Found>> {
        let content = &self.descriptor.content;
        if key < &content.min_key[..] || key > &content.max_key[..] || !self.may_contain(hash)? {
            return Ok(None);
        }
        let index = self.index()?;
        let place = Place { key, ts };
        let mut page = self.page_of(&index, place)?;
        loop {
            let frame = self.page(page, &index)?;
            let view = self.view(&frame, page)?;
            let slot = view.lower_bound(place);
            if slot < view.count() {
                let entry = view.entry(slot);
                if !view.has_key(&entry, key) {
                    if self.descriptor.filter.is_some() {
                        count(&self.shared.counters.filter_misses, 1);
                    }
                    return Ok(None);
                }
                let payload = entry.payload.0..entry.payload.1;
                return Ok(Some(Found { ts: entry.ts, kind: entry.kind, frame, payload }));
            }
            // Older versions of the key may go on in the next page.
            page += 1;
            if page >= self.descriptor.pages || !self.page_starts_with(&index, page, key)? {
                return Ok(None);
            }
        }
    }

    /// Whether `key` is probably here; errors are left to who reads it.
    pub(crate) fn has(&self, key: &[u8], hash: u64) -> bool {
        let content = &self.descriptor.content;
        key >= &content.min_key[..]
            && key <= &content.max_key[..]
            && self.may_contain(hash).unwrap_or(false)
    }

    /// The page a reader of `key` at `ts` needs first, if it is not in memory.
    pub(crate) fn missing_page(&self, key: &[u8], ts: u64) -> Result<Option<BlockHandle>> {
        let index = self.index()?;
        let page = self.page_of(&index, Place { key, ts })?;
        if self.is_in_memory(page) { Ok(None) } else { self.block(&index, page).map(Some) }
    }

    /// The page whose places include `place`.
    pub(crate) fn page_of(&self, index: &Frame, place: Place<'_>) -> Result<u32> {
        let view = self.index_view(index)?;
        let at = view.lower_bound(place);
        if at < view.count() {
            let entry = view.entry(at);
            if entry.ts == place.ts && view.has_key(&entry, place.key) {
                return Ok(at as u32);
            }
        }
        Ok(at.saturating_sub(1) as u32)
    }

    /// The last page that has places strictly before `place`, if there is one.
    pub(crate) fn page_before(&self, index: &Frame, place: Place<'_>) -> Result<Option<u32>> {
        Ok(self.index_view(index)?.lower_bound(place).checked_sub(1).map(|at| at as u32))
    }

    fn page_starts_with(&self, index: &Frame, page: u32, key: &[u8]) -> Result<bool> {
        let view = self.index_view(index)?;
        Ok(view.has_key(&view.entry(page as usize), key))
    }

    /// Where a page lies.
    pub(crate) fn block(&self, index: &Frame, page: u32) -> Result<BlockHandle> {
        let view = self.index_view(index)?;
        let entry = view.entry(page as usize);
        decode_block(view.payload(&entry), page)
            .filter(|block| block.raw_len as usize <= MAX_PAGE_BYTES)
            .filter(|block| block.page.len as usize <= MAX_PAGE_BYTES + PAGE_HEADER_BYTES)
            .ok_or_else(|| self.corruption(page, "block index entry does not parse"))
    }

    fn index_view<'a>(&self, index: &'a Frame) -> Result<PageView<'a>> {
        let view = PageView::open(index)
            .map_err(|what| self.corruption(self.descriptor.index.page.page, what))?;
        if view.count() != self.descriptor.pages as usize {
            let page = self.descriptor.index.page.page;
            return Err(self.corruption(page, "block index does not name every page"));
        }
        Ok(view)
    }

    /// A loaded page's parts.
    pub(crate) fn view<'a>(&self, frame: &'a [u8], page: u32) -> Result<PageView<'a>> {
        PageView::open(frame).map_err(|what| self.corruption(page, what))
    }

    pub(crate) fn shared(&self) -> &TreeShared {
        &self.shared
    }

    pub(crate) fn corruption(&self, page: u32, what: &'static str) -> Error {
        Error::Corruption { tree: self.shared.tree, segment: self.descriptor.id, page, what }
    }

    /// The footer says what the node says of the segment: for `verify`.
    pub(crate) fn check_footer(&self) -> Result<()> {
        let last = self.descriptor.filter.unwrap_or(self.descriptor.index).page;
        let offset = last.offset.saturating_add(u64::from(last.len));
        let page = last.page + 1;
        let length = self.descriptor.content.stored_bytes.saturating_sub(offset);
        let len = u32::try_from(length).map_err(|_| self.corruption(page, "footer is too long"))?;
        let place = PageRef { page, len, offset };
        let mut bytes = Vec::new();
        let id = SegmentId(self.descriptor.id);
        self.shared.blocks.read_page(self.shared.tree, id, place, &mut bytes)?;
        let mut expected = self.descriptor.clone();
        expected.content.stored_bytes = 0;
        if Descriptor::decode(&mut Reader::new(&bytes)) != Some(expected) {
            return Err(self.corruption(page, "footer differs from the node"));
        }
        Ok(())
    }

    /// Every key of a run passes its filter: for `verify`.
    pub(crate) fn check_filter(&self, hash: u64) -> Result<()> {
        if self.may_contain(hash)? {
            return Ok(());
        }
        let page = self.descriptor.filter.map_or(0, |block| block.page.page);
        Err(self.corruption(page, "filter misses a key of its segment"))
    }
}

impl Segment {
    /// Its pages leave the cache, whoever still holds the segment.
    pub(crate) fn let_go_of_pages(&self) {
        self.shared.cache.forget(self.descriptor.id, self.descriptor.pages + 2);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.shared.release(self.descriptor.id, self.descriptor.pages + 2);
    }
}

/// Ascending numbers, at most `most`, each as its distance from the one before.
fn read_ids(reader: &mut Reader<'_>, most: u64) -> Option<Box<[u64]>> {
    let count = reader.varint().filter(|count| *count <= most)?;
    let mut ids = Vec::new();
    let mut last = 0_u64;
    for _ in 0..count {
        let step = reader.varint().filter(|step| *step > 0)?;
        last = last.checked_add(step)?;
        ids.push(last);
    }
    Some(ids.into())
}

impl Descriptor {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.id);
        put_varint(out, u64::from(self.pages));
        encode_block(self.index, out);
        out.push(u8::from(self.filter.is_some()) | u8::from(self.dictionary.is_some()) << 1);
        if let Some(filter) = self.filter {
            encode_block(filter, out);
        }
        if let Some(dictionary) = self.dictionary {
            put_varint(out, dictionary.segment);
            encode_block(dictionary.block, out);
        }
        let content = &self.content;
        for number in [
            content.entries,
            content.keys,
            content.deletes,
            content.key_bytes,
            content.value_bytes,
            content.raw_bytes,
            content.stored_bytes,
            content.large_bytes,
            content.min_ts,
            content.max_ts - content.min_ts,
        ] {
            put_varint(out, number);
        }
        put_bytes(out, &content.min_key);
        put_bytes(out, &content.max_key);
        put_varint(out, self.large.len() as u64);
        let mut last = 0;
        for id in &self.large {
            put_varint(out, id - last);
            last = *id;
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let id = reader.varint()?;
        let pages: u32 = reader.number()?;
        // The index and the filter are the pages behind the last one.
        pages.checked_add(2)?;
        let index = read_block(reader, pages)?;
        let parts = reader.byte().filter(|parts| *parts <= 3)?;
        let filter = match parts & 1 {
            0 => None,
            _ => Some(read_block(reader, pages + 1)?),
        };
        let dictionary = match parts & 2 {
            0 => None,
            _ => Some(LargeRef::read(reader)?),
        };
        let mut numbers = [0; 10];
        for number in &mut numbers {
            *number = reader.varint()?;
        }
        if numbers[1] > numbers[0] || numbers[2] > numbers[0] {
            return None;
        }
        // Far beyond any disk: such numbers are damage, and sums of others cannot overflow.
        if numbers[..8].iter().any(|number| *number >= 1 << 48) {
            return None;
        }
        let [
            entries,
            keys,
            deletes,
            key_bytes,
            value_bytes,
            raw_bytes,
            stored_bytes,
            large_bytes,
            min_ts,
            span,
        ] = numbers;
        let content = Content {
            entries,
            keys,
            deletes,
            key_bytes,
            value_bytes,
            raw_bytes,
            stored_bytes,
            large_bytes,
            min_ts,
            max_ts: min_ts.checked_add(span)?,
            min_key: reader.bytes()?.into(),
            max_key: reader.bytes()?.into(),
        };
        let large = read_ids(reader, content.entries)?;
        (pages > 0).then_some(Self { id, pages, index, filter, content, large, dictionary })
    }
}
