//! Writing a segment from entries in order, page by page as they fill.

use super::{BlockHandle, Content, Descriptor, Role, Segment, encode_block};
use crate::bytes::common_prefix;
use crate::compression_dictionary::{GatheredPage, LeafDictionary};
use crate::error::Result;
use crate::filter;
use crate::large::LargeRef;
use crate::memtable::hash;
use crate::message::{Entry, Message};
use crate::options::TreeOptions;
use crate::page::PageBuilder;
use crate::tree_shared::{Large, TreeShared, count};
use blockfile::{Compression, PageCompression, SegmentWriter};
use cachetable::{Access as Enters, EvictionPriority, FrameKey, MemoryKind, PageInfo, Reservation};
use std::sync::Arc;

/// Gathers one page, writes the others as they fill. Dropped unfinished it leaves nothing.
pub(crate) struct SegmentBuilder {
    shared: Arc<TreeShared>,
    role: Role,
    options: TreeOptions,
    compression: Compression,
    writer: SegmentWriter,
    page: PageBuilder,
    index: PageBuilder,
    /// The separator and timestamp under which the page being gathered will be indexed.
    page_start: (Vec<u8>, u64),
    hashes: Option<Vec<u64>>,
    content: Content,
    pages: u32,
    last_key: Vec<u8>,
    /// What the entries refer to.
    large: Vec<Arc<Large>>,
    /// The reference being written.
    reference: Vec<u8>,
    raw: Vec<u8>,
    dictionary: LeafDictionary,
    /// It takes the place of pages that are used: others make room for its own in the cache.
    displaces: bool,
    admitted: Admitted,
    /// What all of this takes of the cache's bound.
    memory: Reservation,
}

/// A hash while it is gathered, and its filter's bits twice while they are built.
const HASH_BYTES: usize = 8 + 3;

/// Pages that are compressed with a dictionary have this part of the bytes of others.
const SHARED_PART: usize = 2;
/// A dictionary is made of this part of a leaf…
const TRAINING_PART: u64 = 4;
/// …and of no more than this: more takes longer and gains hardly anything.
const MOST_TRAINING: u64 = 128 << 10;

impl SegmentBuilder {
    pub(crate) fn new(shared: &Arc<TreeShared>, options: &TreeOptions, role: Role) -> Self {
        let filtered = role == Role::Run || options.leaf_filter;
        let writer = shared.blocks.start_segment(role.number());
        let admitted = Admitted { shared: Arc::clone(shared), segment: writer.id().0, pages: 0 };
        Self {
            shared: Arc::clone(shared),
            role,
            options: *options,
            compression: match role {
                Role::Run => options.fast_compression(),
                Role::Leaf => options.compression,
                Role::LightLeaf => options.light_compression(),
            },
            writer,
            page: PageBuilder::default(),
            index: PageBuilder::default(),
            page_start: (Vec::new(), u64::MAX),
            hashes: filtered.then(Vec::new),
            content: Content { min_ts: u64::MAX, ..Content::default() },
            pages: 0,
            last_key: Vec::new(),
            large: Vec::new(),
            reference: Vec::new(),
            raw: Vec::new(),
            dictionary: LeafDictionary::Without,
            displaces: false,
            admitted,
            memory: shared.cache.reserve(MemoryKind::Buffers, 0),
        }
    }

    /// Whether what it replaces is in use, so that others make room for it in the cache.
    pub(crate) fn displacing(mut self, displaces: bool) -> Self {
        self.displaces = displaces;
        self
    }

    /// Raw bytes so far.
    pub(crate) fn size(&self) -> u64 {
        self.content.raw_bytes + if self.page.is_empty() { 0 } else { self.page.size() as u64 }
    }

    /// The key added last.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Adds the next entry in order. May write to the disk; the first one may read it.
    pub(crate) fn add(&mut self, entry: Entry<'_>) -> Result<()> {
        let mut reference = std::mem::take(&mut self.reference);
        let added = match entry.message {
            Message::Put(value) if value.len() > self.options.large_above() => {
                let (at, kept) = self.shared.write_large(self.options.compression, value)?;
                reference.clear();
                at.encode(&mut reference);
                self.refer_to(at, kept);
                self.add_small(Entry { message: Message::Large(&reference), ..entry })
            }
            Message::Large(bytes) => {
                // The source of the entry keeps the value until this segment does.
                let at = self.shared.decode_large(bytes)?;
                let kept = self.shared.find_large(at.segment).ok_or_else(|| {
                    self.shared.large_corruption(at.segment, "no segment names this large value")
                })?;
                self.refer_to(at, kept);
                self.add_small(entry)
            }
            Message::Put(_) | Message::Delete | Message::Update(_) => {
                self.content.value_bytes += entry.message.payload().len() as u64;
                self.add_small(entry)
            }
        };
        self.reference = reference;
        added
    }

    fn refer_to(&mut self, at: LargeRef, kept: Arc<Large>) {
        self.content.value_bytes += u64::from(at.block.raw_len);
        self.content.large_bytes += u64::from(at.block.page.len);
        self.large.push(kept);
    }

    fn add_small(&mut self, entry: Entry<'_>) -> Result<()> {
        let first = self.content.entries == 0;
        if first && self.role == Role::Leaf {
            let TreeOptions { compression, page_size, .. } = self.options;
            self.dictionary = self.shared.leaf_dictionary(compression, page_size);
        }
        let new_key = first || self.last_key != entry.key;
        debug_assert!(first || self.last_key.as_slice() <= entry.key);
        let grown = self.page.size() + entry.key.len() + entry.message.payload().len();
        if !self.page.is_empty() && grown > self.page_bytes() {
            self.finish_page()?;
            self.page_start = if new_key {
                let shared = common_prefix(&self.last_key, entry.key);
                (entry.key[..=shared].to_vec(), u64::MAX)
            } else {
                (entry.key.to_vec(), entry.ts)
            };
        }
        self.page.add(entry);
        if new_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(entry.key);
            if let Some(hashes) = &mut self.hashes {
                hashes.push(hash(entry.key));
            }
        }
        let content = &mut self.content;
        if first {
            content.min_key = entry.key.into();
        }
        content.entries += 1;
        content.keys += u64::from(new_key);
        content.deletes += u64::from(entry.message == Message::Delete);
        content.key_bytes += entry.key.len() as u64;
        content.min_ts = content.min_ts.min(entry.ts);
        content.max_ts = content.max_ts.max(entry.ts);
        Ok(())
    }

    /// Raw bytes of a page. With a dictionary half of them are compressed as well.
    fn page_bytes(&self) -> usize {
        match self.dictionary {
            LeafDictionary::Without => self.options.read_page_size,
            LeafDictionary::Gathering(_) | LeafDictionary::With(..) => {
                self.options.read_page_size / SHARED_PART
            }
        }
    }

    fn finish_page(&mut self) -> Result<()> {
        let mut raw = std::mem::take(&mut self.raw);
        self.page.finish(&mut raw);
        self.content.raw_bytes += raw.len() as u64;
        let start = std::mem::take(&mut self.page_start);
        let mut gathered = 0;
        if let LeafDictionary::Gathering(pages) = &mut self.dictionary {
            pages.push(GatheredPage { start, raw });
            gathered = pages.iter().map(|page| page.raw.len()).sum();
            let enough = (self.options.page_size / TRAINING_PART).min(MOST_TRAINING);
            if gathered as u64 >= enough {
                self.make_dictionary()?;
                gathered = 0;
            }
        } else {
            self.write_page(&start, &raw)?;
            self.raw = raw;
        }
        let hashes = self.hashes.as_ref().map_or(0, Vec::capacity) * HASH_BYTES;
        let bytes = self.writer.buffered_bytes() + hashes + self.raw.capacity() * 4 + gathered;
        self.shared.cache.resize(&mut self.memory, bytes as u64);
        Ok(())
    }

    /// Makes a dictionary of the pages that were gathered for it, where these are enough, and writes them.
    fn make_dictionary(&mut self) -> Result<()> {
        let LeafDictionary::Gathering(pages) = &mut self.dictionary else { return Ok(()) };
        let pages = std::mem::take(pages);
        self.dictionary = self.shared.make_dictionary(self.compression, &pages)?;
        pages.iter().try_for_each(|page| self.write_page(&page.start, &page.raw))
    }

    fn write_page(&mut self, start: &(Vec<u8>, u64), raw: &[u8]) -> Result<()> {
        let page = match &self.dictionary {
            LeafDictionary::With(_, dictionary) => {
                let compression = PageCompression::With(dictionary);
                self.writer.append_page(self.shared.tree, compression, raw)?
            }
            _ => self.writer.append_page(self.shared.tree, self.compression, raw)?,
        };
        let block = BlockHandle { page, raw_len: raw.len() as u32 };
        self.admit(block, EvictionPriority::Page, raw);
        let mut payload = Vec::with_capacity(16);
        encode_block(block, &mut payload);
        let (key, ts) = start;
        self.index.add(Entry { key, ts: *ts, message: Message::Put(&payload) });
        self.pages += 1;
        Ok(())
    }

    /// What was just written is likely to be read: it stays in memory where there is room.
    fn admit(&mut self, block: BlockHandle, rank: EvictionPriority, raw: &[u8]) {
        let key = FrameKey { segment: self.writer.id().0, page: block.page.page };
        let level = self.role.level();
        let page = PageInfo { raw_len: raw.len(), priority: rank, level, access: Enters::Scan };
        self.shared.cache.admit(key, page, raw, self.displaces);
        self.admitted.pages = block.page.page + 1;
    }

    fn append(&mut self, raw: &[u8], compression: Compression) -> Result<BlockHandle> {
        let page = self.writer.append_page(self.shared.tree, compression, raw)?;
        Ok(BlockHandle { page, raw_len: raw.len() as u32 })
    }

    /// Writes what is left and makes the segment readable. The segment has at least one entry.
    pub(crate) fn finish(mut self) -> Result<Arc<Segment>> {
        assert!(self.content.entries > 0, "a segment has at least one entry");
        assert!(self.content.keys <= self.content.entries, "a key has at least one entry");
        assert!(self.content.min_ts <= self.content.max_ts, "timestamps lie between their bounds");
        self.finish_page()?;
        self.make_dictionary()?;
        if self.role == Role::Leaf {
            self.shared.wrote_leaf(self.content.raw_bytes);
        }
        let dictionary = match &self.dictionary {
            LeafDictionary::With(dictionary, _) => Some(dictionary.at()),
            _ => None,
        };
        let mut raw = std::mem::take(&mut self.raw);
        self.index.finish(&mut raw);
        let index = self.append(&raw, self.compression)?;
        let filter = match self.hashes.take() {
            Some(hashes) => Some(self.append(&filter::build(&hashes), Compression::None)?),
            None => None,
        };
        if self.role != Role::Run {
            self.admit(index, EvictionPriority::Index, &raw);
        }
        self.content.max_key = self.last_key.as_slice().into();
        let mut large: Vec<u64> = self.large.iter().map(|kept| kept.id()).collect();
        large.sort_unstable();
        large.dedup();
        let large = large.into();
        let mut descriptor = Descriptor {
            id: self.writer.id().0,
            pages: self.pages,
            index,
            filter,
            content: self.content,
            large,
            dictionary,
        };
        raw.clear();
        descriptor.encode(&mut raw);
        self.writer.append_page(self.shared.tree, Compression::None, &raw)?;
        descriptor.content.stored_bytes = self.writer.len();
        self.writer.finish()?;
        count(&self.shared.counters.written_bytes, descriptor.content.stored_bytes);
        if self.role == Role::Run {
            count(&self.shared.counters.runs_written, 1);
        }
        self.admitted.pages = 0;
        Ok(Segment::new(&self.shared, self.role, descriptor))
    }
}

/// Pages of an unfinished segment that are in the cache already: they go with it.
struct Admitted {
    shared: Arc<TreeShared>,
    segment: u64,
    pages: u32,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.shared.cache.forget(self.segment, self.pages);
    }
}
