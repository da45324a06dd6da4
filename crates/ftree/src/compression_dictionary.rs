//! Compression dictionaries of a tree: what its leaves' pages have in common, so that pages are half as large, and half the work to
//! decode, at the same number of bytes on the disk.
//!
//! A dictionary is made of the first pages of a leaf that is being written, once the tree has written so many bytes of leaves that it pays,
//! and again each time it has written four times as many. It is the only page of a segment of its own, and leaves that were
//! compressed with it name that segment. Always true: in memory every leaf keeps what it names, so a dictionary's segment is freed with the last leaf
//! that needs it, as that of a large value is. What is ready to decode with takes a small part of the cache at most.
//!
//! On disk: `docs/formats/segment.md`, section "compression dictionaries".

use crate::block::BlockHandle;
use crate::error::{Error, Result};
use crate::large::LargeRef;
use crate::tree_shared::{CompressionDictionaries, CompressionDictionary, TreeShared, count};
use blockfile::{
    Compression, DECOMPRESSOR_BYTES, DictionaryCompressor, DictionaryDecompressor, PageCompression,
    TRAINING_BYTES, train_dictionary,
};
use cachetable::{Access, Frame, MemoryKind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The kind such segments have in the block file.
const DICTIONARY_KIND: u8 = 6;
/// The longest dictionary: what more text gains is less than what it takes of memory.
const MOST_BYTES: usize = 4 << 10;
/// Leaves of so many page sizes are written before the first dictionary is made: making one takes as long as compressing some of
/// them, and small trees have none.
const FIRST_LEAVES: u64 = 16;
/// The next one is made when so many times as much has been written.
const GROWTH: u64 = 4;
/// At least so many pages are what it is made of, or there are not enough.
const LEAST_PAGES: usize = 16;
/// Those that are ready to decode with take one part in so many of the cache. Further ones are made ready for each page,
/// of bytes that the cache keeps as it keeps pages.
const READY_SHARE: u64 = 32;
/// zstd's levels up to this one, the default, compress with a dictionary at level 1: that is as small as this level alone and
/// takes no more time, while with a dictionary this level takes half as much again.
const AS_GOOD_AS_LEVEL_1: u8 = 3;
/// So small a part of what is stored is as good as nothing.
const NEARLY: usize = 50;
/// Making one takes this part of the cache at most, else the tree does without.
const TRAINING_SHARE: u64 = 3;

/// What a new leaf does about a dictionary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    /// Without one.
    Without,
    /// With the newest there is.
    WithNewest,
    /// It makes one.
    Makes,
}

/// The decision. `written` are raw bytes since the newest one was made, `made` how many were made since the tree was opened,
/// `leaf` the raw bytes of a leaf.
fn plan(written: u64, made: u64, has_one: bool, leaf: u64) -> Plan {
    // What was made before the tree was opened counts as the first.
    let grown = made.max(u64::from(has_one)).min(16) as u32;
    let needed = leaf.saturating_mul(FIRST_LEAVES).saturating_mul(GROWTH.saturating_pow(grown));
    match (written >= needed, has_one) {
        (true, _) => Plan::Makes,
        (false, true) => Plan::WithNewest,
        (false, false) => Plan::Without,
    }
}

/// The level of zstd at which pages are compressed with a dictionary, where they are to be as small as at `level` alone.
fn level_with_dictionary(level: u8) -> u8 {
    if level <= AS_GOOD_AS_LEVEL_1 { 1 } else { level }
}

/// Whether pages take no more of the disk with a dictionary than pages of twice the size do by themselves. Those are as large as a tree's
/// without one; nearly so is enough, as smaller pages are less work.
fn gains(dictionary: &DictionaryCompressor, alone: Compression, pages: &[GatheredPage]) -> bool {
    let with = |page: &GatheredPage| PageCompression::With(dictionary).stored_bytes(&page.raw);
    let with: usize = pages.iter().map(with).sum();
    let mut twice = Vec::new();
    let mut stored = 0;
    for pair in pages.chunks(2) {
        twice.clear();
        for page in pair {
            twice.extend_from_slice(&page.raw);
        }
        stored += PageCompression::Alone(alone).stored_bytes(&twice);
    }
    with <= stored + stored / NEARLY
}

/// How a leaf that is being written uses a dictionary.
pub(crate) enum LeafDictionary {
    /// Not at all.
    Without,
    /// Its pages are gathered until there are enough to make one.
    Gathering(Vec<GatheredPage>),
    /// Each page is compressed with it.
    With(Arc<CompressionDictionary>, DictionaryCompressor),
}

/// A page that waits for the dictionary, and under which place it is indexed.
pub(crate) struct GatheredPage {
    pub(crate) start: (Vec<u8>, u64),
    pub(crate) raw: Vec<u8>,
}

impl TreeShared {
    /// What a new leaf of `leaf` raw bytes, compressed so, does about a dictionary. May read the disk. Where the newest dictionary
    /// cannot be read the leaf does without: who reads a leaf that needs it reports that.
    pub(crate) fn leaf_dictionary(&self, compression: Compression, leaf: u64) -> LeafDictionary {
        let Compression::Zstd(level) = compression else { return LeafDictionary::Without };
        let dictionaries = &self.dictionaries;
        let written = dictionaries.written.load(Ordering::Relaxed);
        let made = dictionaries.made.load(Ordering::Relaxed);
        let newest = dictionaries.newest();
        match plan(written, made, newest.is_some(), leaf) {
            Plan::Makes if self.has_room_to_train() && dictionaries.takes_its_turn(written) => {
                LeafDictionary::Gathering(Vec::new())
            }
            Plan::Without => LeafDictionary::Without,
            Plan::Makes | Plan::WithNewest => newest
                .and_then(|newest| newest.leaf_dictionary(level))
                .unwrap_or(LeafDictionary::Without),
        }
    }

    fn has_room_to_train(&self) -> bool {
        TRAINING_BYTES <= self.cache.capacity() / TRAINING_SHARE
    }

    /// A leaf that could have a dictionary has so many raw bytes.
    pub(crate) fn wrote_leaf(&self, raw_bytes: u64) {
        self.dictionaries.written.fetch_add(raw_bytes, Ordering::Relaxed);
    }

    /// Makes a dictionary of gathered pages and writes it to the disk; without one where these have too little in common, or pages
    /// of twice the size are smaller by themselves.
    pub(crate) fn make_dictionary(
        self: &Arc<Self>,
        compression: Compression,
        pages: &[GatheredPage],
    ) -> Result<LeafDictionary> {
        let Compression::Zstd(level) = compression else { return Ok(LeafDictionary::Without) };
        if pages.len() < LEAST_PAGES {
            return Ok(LeafDictionary::Without);
        }
        let text: usize = pages.iter().map(|page| page.raw.len()).sum();
        let trained = self.cache.while_writing(TRAINING_BYTES + text as u64, || {
            let lengths: Vec<usize> = pages.iter().map(|page| page.raw.len()).collect();
            let mut text = Vec::with_capacity(text);
            for page in pages {
                text.extend_from_slice(&page.raw);
            }
            train_dictionary(&text, &lengths, MOST_BYTES)
        });
        let Some(bytes) = trained else { return Ok(LeafDictionary::Without) };
        let compressor = DictionaryCompressor::new(&bytes, level_with_dictionary(level));
        let Some(compressor) = compressor.filter(|it| gains(it, compression, pages)) else {
            return Ok(LeafDictionary::Without);
        };
        let mut writer = self.blocks.start_segment(DICTIONARY_KIND);
        let page = writer.append_page(self.tree, compression, &bytes)?;
        let stored = writer.len();
        let segment = writer.finish()?.0;
        count(&self.counters.written_bytes, stored);
        count(&self.counters.compression_dictionaries, 1);
        let block = BlockHandle { page, raw_len: bytes.len() as u32 };
        let kept = self.keep_dictionary(LargeRef { segment, block });
        Ok(LeafDictionary::With(kept, compressor))
    }

    /// What a descriptor names: kept from now on, whoever else keeps it.
    pub(crate) fn keep_dictionary(self: &Arc<Self>, at: LargeRef) -> Arc<CompressionDictionary> {
        let mut kept = self.dictionaries.kept.lock();
        if let Some(dictionary) = kept.get(&at.segment).and_then(Weak::upgrade) {
            return dictionary;
        }
        let dictionary = Arc::new(CompressionDictionary::new(at.segment, at.block, self));
        kept.insert(at.segment, Arc::downgrade(&dictionary));
        dictionary
    }
}

impl CompressionDictionaries {
    fn newest(&self) -> Option<Arc<CompressionDictionary>> {
        self.kept.lock().values().rev().find_map(Weak::upgrade)
    }

    /// One leaf makes the next dictionary, not all that are being written.
    fn takes_its_turn(&self, written: u64) -> bool {
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let first = self.written.compare_exchange(written, 0, order, failed).is_ok();
        self.made.fetch_add(u64::from(first), Ordering::Relaxed);
        first
    }
}

impl CompressionDictionary {
    /// Where it lies.
    pub(crate) fn at(&self) -> LargeRef {
        LargeRef { segment: self.segment, block: self.block }
    }

    fn leaf_dictionary(self: Arc<Self>, level: u8) -> Option<LeafDictionary> {
        let bytes = self.bytes().ok()?;
        let compressor = DictionaryCompressor::new(&bytes, level_with_dictionary(level))?;
        Some(LeafDictionary::With(self, compressor))
    }

    /// Runs `decode` with what decodes pages. The first time it reads the disk.
    pub(crate) fn with_decompressor<T>(
        &self,
        decode: impl FnOnce(&DictionaryDecompressor) -> Result<T>,
    ) -> Result<T> {
        if let Some((ready, _)) = self.ready.get() {
            return decode(ready);
        }
        let bytes = self.bytes()?;
        let decompressor = DictionaryDecompressor::new(&bytes).ok_or_else(|| self.corruption())?;
        let cache = &self.shared.cache;
        let takes = DECOMPRESSOR_BYTES + bytes.len() as u64;
        let held = cache.held(MemoryKind::Dictionaries);
        if held + takes > cache.capacity() / READY_SHARE {
            return decode(&decompressor);
        }
        let memory = cache.reserve(MemoryKind::Dictionaries, takes);
        let (ready, _) = self.ready.get_or_init(|| (decompressor, memory));
        decode(ready)
    }

    /// Through the cache, as a large value: where it is made ready for each page it is not read for each.
    fn bytes(&self) -> Result<Frame> {
        self.shared.load_named(self.at(), Access::Demand)
    }

    fn corruption(&self) -> Error {
        let what = "compression dictionary is not one";
        Error::Corruption { tree: self.shared.tree, segment: self.segment, page: 0, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_is_made_when_the_tree_has_grown() {
        let leaf = 1 << 20;
        let table = [
            // written, made, has one: plan
            (0, 0, false, Plan::Without),
            (leaf * 16 - 1, 0, false, Plan::Without),
            (leaf * 16, 0, false, Plan::Makes),
            (0, 1, true, Plan::WithNewest),
            (leaf * 64 - 1, 1, true, Plan::WithNewest),
            (leaf * 64, 1, true, Plan::Makes),
            (leaf * 255, 2, true, Plan::WithNewest),
            (leaf * 256, 2, true, Plan::Makes),
            // What was made did not last, or was none.
            (leaf * 63, 1, false, Plan::Without),
            (leaf * 64, 1, false, Plan::Makes),
            // Opened with one.
            (leaf * 63, 0, true, Plan::WithNewest),
            (leaf * 64, 0, true, Plan::Makes),
            // As much as no disk has.
            ((1 << 56) - 1, 1000, true, Plan::WithNewest),
            (1 << 56, 1000, true, Plan::Makes),
        ];
        for (written, made, has_one, expected) in table {
            assert_eq!(plan(written, made, has_one, leaf), expected, "{written} {made} {has_one}");
        }
    }
    fn gathered(raw: impl Iterator<Item = Vec<u8>>) -> Vec<GatheredPage> {
        raw.map(|raw| GatheredPage { start: (Vec::new(), 0), raw }).collect()
    }

    #[test]
    fn a_dictionary_is_kept_where_half_the_page_is_as_small() {
        let noise = |n: usize| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let row = |n: usize| format!("ticker=T{:05} open={:x} source=feed;", n % 1000, noise(n));
        let alike = |page: usize| (0..40).flat_map(|n| row(page * 40 + n).into_bytes()).collect();
        let alike = gathered((0..64).map(alike));
        let lengths: Vec<_> = alike.iter().map(|page| page.raw.len()).collect();
        let text: Vec<_> = alike.iter().flat_map(|page| page.raw.clone()).collect();
        let trained = train_dictionary(&text, &lengths, MOST_BYTES).unwrap();
        let dictionary = DictionaryCompressor::new(&trained, 1).unwrap();
        let zstd = Compression::Zstd(3);
        assert!(gains(&dictionary, zstd, &alike));
        // Pages of which each repeats itself, and no other.
        let own = |page: usize| {
            let word = |at: usize| (page * 31 + at * 7919) as u32 ^ 0x5bd1_e995;
            let words: Vec<u8> = (0..32).flat_map(|at| word(at).to_le_bytes()).collect();
            words.repeat(16)
        };
        let pairs = (0..64).map(|page| own(page / 2));
        assert!(!gains(&dictionary, zstd, &gathered(pairs)));
    }
}
