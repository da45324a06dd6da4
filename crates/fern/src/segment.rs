//! One run or leaf, read whole: every checksum, order, bounds, filter, counts, footer.

use blockfile::format::Entry;
use blockfile::{DictionaryDecompressor, PAGE_HEADER_BYTES, PageRef, page_stored_len};
use ftree::format::{
    BlockFacts, PageEntry, PageValue, SegmentFacts, block_facts, filter_passes, footer_facts,
    large_facts, read_page,
};
use std::collections::BTreeSet;

use crate::datafile::DataFile;
use crate::findings::Findings;
use crate::tree::Range;

/// The kind of a run's segment in the block file.
pub(crate) const RUN_KIND: u8 = 1;
/// The kind of a leaf's.
pub(crate) const LEAF_KIND: u8 = 2;
/// The same of a leaf that is lightly compressed while it is in use (ADR 18).
pub(crate) const LIGHT_LEAF_KIND: u8 = 5;
/// The kind of a large value's.
pub(crate) const VALUE_KIND: u8 = 4;

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) pages: u64,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// Reads a run or leaf of a tree and checks it against what its node says.
pub(crate) fn check(
    data: &DataFile,
    tree: u64,
    kinds: &[u8],
    facts: &SegmentFacts,
    range: &Range,
    findings: &mut Findings,
) -> Amount {
    let mut check = Check {
        data,
        tree,
        facts,
        range,
        findings,
        amount: Amount::default(),
        filter: None,
        last: None,
        sums: [0; 8],
        large: BTreeSet::new(),
        whole: true,
        dictionary: None,
    };
    let Some(entry) = data.table.get(&facts.segment) else {
        check.damage(0, None, "named by a node, but not in the translation table");
        return check.amount;
    };
    if !kinds.contains(&entry.kind) {
        let what = format!("should be of kind {} and is of kind {}", kinds[0], entry.kind);
        check.damage(0, None, what);
    }
    if entry.bytes != facts.stored_bytes {
        check.damage(0, None, "its length differs from what the node says");
    }
    match data.dictionary(tree, facts) {
        Ok(dictionary) => check.dictionary = dictionary,
        Err(what) => check.damage(0, None, what),
    }
    check.all(entry);
    check.amount
}

struct Check<'a> {
    data: &'a DataFile,
    tree: u64,
    facts: &'a SegmentFacts,
    range: &'a Range,
    findings: &'a mut Findings,
    amount: Amount,
    filter: Option<Vec<u8>>,
    /// The last entry's key and timestamp.
    last: Option<(Vec<u8>, u64)>,
    /// Entries, keys, deletes, key bytes, value bytes, raw bytes, large values and their bytes.
    sums: [u64; 8],
    /// Segments of large values: several versions may refer to one.
    large: BTreeSet<u64>,
    /// No page was damaged, so counts must agree.
    whole: bool,
    /// What its pages of entries were compressed with.
    dictionary: Option<DictionaryDecompressor>,
}

/// The least place a page covers, and where the page is.
struct Slot {
    place: Option<(Vec<u8>, u64)>,
    page: PageRef,
    raw_len: Option<u32>,
}

impl Check<'_> {
    fn all(&mut self, entry: &Entry) {
        let index = self.block(entry, self.facts.index).map(|raw| self.index(&raw));
        let slots = match index {
            Some(Some(slots)) => slots,
            _ => self.walk(entry),
        };
        if let Some(block) = self.facts.filter {
            self.filter = self.block(entry, block);
            let checked = self.filter.as_ref().map(|filter| filter_passes(filter, b""));
            if let Some(Err(what)) = checked {
                self.damage(block.page.offset, Some(block.page.page), what);
                self.filter = None;
            }
        }
        self.footer(entry);
        if slots.len() != self.facts.pages as usize {
            self.whole = false;
        }
        for slot in slots {
            self.page(entry, &slot);
        }
        self.counts();
    }

    /// The index or the filter.
    fn block(&mut self, entry: &Entry, block: BlockFacts) -> Option<Vec<u8>> {
        let raw = self.read(entry, block.page, false)?;
        if raw.len() != block.raw_len as usize {
            self.damage(block.page.offset, Some(block.page.page), "its decoded length differs");
            return None;
        }
        Some(raw)
    }

    /// Pages of entries may be compressed with the dictionary.
    fn read(&mut self, entry: &Entry, page: PageRef, of_entries: bool) -> Option<Vec<u8>> {
        let dictionary = self.dictionary.as_ref().filter(|_| of_entries);
        let segment = self.facts.segment;
        match self.data.compressed_page(self.tree, segment, entry, page, dictionary) {
            Ok(raw) => {
                self.amount.pages += 1;
                self.amount.bytes += u64::from(page.len);
                Some(raw)
            }
            Err(what) => {
                self.damage(page.offset, Some(page.page), what);
                None
            }
        }
    }

    /// Where each page is, from the block index; none where it cannot be believed.
    fn index(&mut self, raw: &[u8]) -> Option<Vec<Slot>> {
        let own = self.facts.index.page;
        let slots = read_page(raw).and_then(|entries| {
            let slots = entries.into_iter().enumerate().map(|(at, (key, ts, value))| {
                let PageValue::Put(value) = value else {
                    return Err("block index entry does not say where its page is");
                };
                let block = block_facts(&value, at as u32)?;
                let (page, raw_len) = (block.page, Some(block.raw_len));
                Ok(Slot { place: Some((key, ts)), page, raw_len })
            });
            let slots = slots.collect::<Result<Vec<_>, &'static str>>()?;
            let mut end = 0_u64;
            for slot in &slots {
                if slot.page.offset != end {
                    return Err("block index leaves a gap between pages");
                }
                end = end.saturating_add(u64::from(slot.page.len));
            }
            if end != own.offset || slots.len() != self.facts.pages as usize {
                return Err("block index does not name every page");
            }
            Ok(slots)
        });
        slots.map_err(|what| self.damage(own.offset, Some(own.page), what)).ok()
    }

    /// Where each page is, from one page's header to the next: where the index is damaged.
    fn walk(&mut self, entry: &Entry) -> Vec<Slot> {
        let mut slots = Vec::new();
        let (mut offset, end) = (0, self.facts.index.page.offset);
        for page in 0..self.facts.pages {
            let header = self.data.read_in(entry, offset, PAGE_HEADER_BYTES as u64);
            let length = header.ok().and_then(|header| page_stored_len(&header));
            let length = length.and_then(|length| u32::try_from(length).ok());
            let next = length.map(|length| offset.saturating_add(u64::from(length)));
            let (Some(len), Some(next)) = (length, next.filter(|next| *next <= end)) else {
                let what = "the page's length is damaged, and so is the index: pages from here on \
                            are not found";
                self.damage(offset, Some(page), what);
                break;
            };
            slots.push(Slot { place: None, page: PageRef { page, len, offset }, raw_len: None });
            offset = next;
        }
        slots
    }

    fn footer(&mut self, entry: &Entry) {
        let last = self.facts.filter.unwrap_or(self.facts.index).page;
        let offset = last.offset.saturating_add(u64::from(last.len));
        let page = last.page.saturating_add(1);
        let Ok(len) = u32::try_from(entry.bytes.saturating_sub(offset)) else {
            return self.damage(offset, Some(page), "footer is too long");
        };
        let place = PageRef { page, len, offset };
        let Some(raw) = self.read(entry, place, false) else { return };
        let expected = SegmentFacts { stored_bytes: 0, ..self.facts.clone() };
        match footer_facts(&raw) {
            Ok(facts) if facts == expected => {}
            Ok(_) => self.damage(offset, Some(page), "footer differs from what the node says"),
            Err(what) => self.damage(offset, Some(page), what),
        }
    }

    fn page(&mut self, entry: &Entry, slot: &Slot) {
        let PageRef { page, offset, .. } = slot.page;
        let Some(raw) = self.read(entry, slot.page, true) else {
            self.whole = false;
            return;
        };
        if slot.raw_len.is_some_and(|raw_len| raw.len() != raw_len as usize) {
            self.damage(offset, Some(page), "page length differs from its index");
        }
        let entries = match read_page(&raw) {
            Ok(entries) => entries,
            Err(what) => {
                self.whole = false;
                return self.damage(offset, Some(page), what);
            }
        };
        self.sums[5] += raw.len() as u64;
        if let Some(what) = self.entries(slot, &entries) {
            self.damage(offset, Some(page), what);
        }
    }

    /// Order, bounds and filter of a page's entries; the first thing wrong.
    fn entries(&mut self, slot: &Slot, entries: &[PageEntry]) -> Option<&'static str> {
        let mut wrong = None;
        let mut found = |what| {
            wrong.get_or_insert(what);
        };
        if let (Some((key, ts)), Some((first, first_ts, _))) = (&slot.place, entries.first()) {
            let behind =
                self.last.as_ref().is_none_or(|last| before((&last.0, last.1), (key, *ts)));
            if !behind || before((first, *first_ts), (key, *ts)) {
                found("the block index separates this page from the one before wrongly");
            }
        }
        for (key, ts, value) in entries {
            let last = self.last.as_ref();
            if last.is_some_and(|last| !before((&last.0, last.1), (key, *ts))) {
                found("entries are out of order");
            }
            if !self.range.contains(key) {
                found("a key is outside its leaf");
            }
            if key < &self.facts.min_key || key > &self.facts.max_key {
                found("a key is outside what the node says of the segment");
            }
            if !(self.facts.min_ts..=self.facts.max_ts).contains(ts) {
                found("a timestamp is outside what the node says of the segment");
            }
            if last.is_none_or(|last| last.0 != *key) {
                self.sums[1] += 1;
                let missed = |filter: &Vec<u8>| filter_passes(filter, key) == Ok(false);
                if self.filter.as_ref().is_some_and(missed) {
                    found("the filter misses a key");
                }
            }
            self.sums[0] += 1;
            self.sums[3] += key.len() as u64;
            match value {
                PageValue::Put(value) | PageValue::Update(value) => {
                    self.sums[4] += value.len() as u64;
                }
                PageValue::Delete => self.sums[2] += 1,
                PageValue::Large(reference) => self.large(reference),
            }
            match &mut self.last {
                Some(last) => {
                    last.0.clone_from(key);
                    last.1 = *ts;
                }
                None => self.last = Some((key.clone(), *ts)),
            }
        }
        self.amount.entries += entries.len() as u64;
        wrong
    }

    /// A value in a segment of its own.
    fn large(&mut self, reference: &[u8]) {
        let at = match large_facts(reference) {
            Ok(at) => at,
            Err(what) => return self.damage(0, None, what),
        };
        self.sums[4] += u64::from(at.block.raw_len);
        self.sums[6] += u64::from(self.large.insert(at.segment));
        self.sums[7] += u64::from(at.block.page.len);
        if self.facts.large.binary_search(&at.segment).is_err() {
            let what = format!("it refers to large value {} and does not name it", at.segment);
            self.damage(0, None, what);
        }
        let checked = match self.data.table.get(&at.segment) {
            None => Err("large value is not in the translation table".to_owned()),
            Some(entry) if entry.kind != VALUE_KIND => {
                Err(format!("should be of kind {VALUE_KIND} and is of kind {}", entry.kind))
            }
            Some(entry) => match self.data.page(self.tree, at.segment, entry, at.block.page) {
                Ok(raw) if raw.len() == at.block.raw_len as usize => Ok(()),
                Ok(_) => Err("large value's length differs from its reference".to_owned()),
                Err(what) => Err(what),
            },
        };
        match checked {
            Ok(()) => {
                self.amount.pages += 1;
                self.amount.bytes += u64::from(at.block.page.len);
            }
            Err(what) => {
                self.findings.damage(self.data.damage_in(self.tree, at.segment, 0, what).page(0));
            }
        }
    }

    fn counts(&mut self) {
        let facts = self.facts;
        let said = [
            facts.entries,
            facts.keys,
            facts.deletes,
            facts.key_bytes,
            facts.value_bytes,
            facts.raw_bytes,
            facts.large.len() as u64,
            facts.large_bytes,
        ];
        let greatest = self.last.as_ref().is_some_and(|last| last.0 == facts.max_key);
        if self.whole && (self.sums != said || !greatest) {
            self.damage(0, None, "counts or greatest key differ from what the node says");
        }
    }

    fn damage(&mut self, offset: u64, page: Option<u32>, what: impl Into<String>) {
        let damage = self.data.damage_in(self.tree, self.facts.segment, offset, what);
        self.findings.damage(match page {
            Some(page) => damage.page(page),
            None => damage,
        });
    }
}

/// Keys ascend; of one key newer versions come first.
fn before(left: (&[u8], u64), right: (&[u8], u64)) -> bool {
    left.0 < right.0 || left.0 == right.0 && left.1 > right.1
}

/// Checks the pages of a segment that no readable node names, under whichever dictionary its
/// first page belongs to. False where that is none of `trees`: then nothing can be said.
pub(crate) fn check_unnamed(
    data: &DataFile,
    segment: u64,
    trees: &[u64],
    findings: &mut Findings,
) -> bool {
    let Some(entry) = data.table.get(&segment) else { return false };
    let mut owner = None;
    let (mut offset, mut page) = (0, 0);
    while offset < entry.bytes {
        let header = data.read_in(entry, offset, PAGE_HEADER_BYTES as u64);
        let length = header.ok().and_then(|header| page_stored_len(&header));
        let len = length.and_then(|length| u32::try_from(length).ok()).unwrap_or(u32::MAX);
        let here = PageRef { page, len, offset };
        let read = |tree: u64| data.page(tree, segment, entry, here);
        match owner {
            None => owner = trees.iter().copied().find(|tree| read(*tree).is_ok()),
            Some(tree) => {
                if let Err(what) = read(tree) {
                    let damage = data.damage_in(tree, segment, offset, what);
                    findings.damage(damage.page(page));
                }
            }
        }
        if owner.is_none() {
            return false;
        }
        offset = offset.saturating_add(u64::from(len));
        page += 1;
    }
    true
}
