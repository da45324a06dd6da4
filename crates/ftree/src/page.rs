//! Pages (basements): sorted entries that are searched in place.
//!
//! ```text
//! 0   u8   version, 1
//! 1   u8   flags; bit 0: offsets take four bytes instead of two
//! 2   u16  reserved, 0
//! 4   u32  count, at least 1
//! 8   u64  base: the least timestamp in the page
//! 16  u32  prefix length, then the prefix: what all keys of the page start with
//!          heads    count × u32: the next four key bytes, as a number that orders as they do
//!          offsets  count × u16 or u32: where each entry starts in the entry area
//!          entries  varint key length without the prefix, key bytes behind the head,
//!                   varint timestamp − base, varint payload length × 8 + kind, payload
//! ```
//!
//! Invariants, checked by [`PageView::check`] on everything that comes from disk: all offsets and
//! lengths lie within the page, entries ascend by key and descend by timestamp.
//!
//! The same layout holds block indexes: key and timestamp name the least place of a page, the
//! payload says where it is. On disk: `docs/formats/segment.md`, `docs/formats/message.md`.

use crate::bytes::{Reader, common_prefix, put_u32, put_u64, put_varint, u16_at, u32_at, u64_at};
use crate::fetch::fetch;
use crate::message::{Entry, Kind, Place};
use std::cmp::Ordering;
use std::ops::Range;

const VERSION: u8 = 1;
const WIDE: u8 = 1;
const HEADER_BYTES: usize = 20;
const HEAD_BYTES: usize = 4;
const KIND_BITS: u32 = 3;
/// What an entry adds besides key and payload: head, offset, and three short varints.
const ENTRY_OVERHEAD: usize = 8;

fn suffix_head(suffix: &[u8]) -> u32 {
    let mut bytes = [0; HEAD_BYTES];
    let taken = suffix.len().min(HEAD_BYTES);
    bytes[..taken].copy_from_slice(&suffix[..taken]);
    u32::from_be_bytes(bytes)
}

/// Gathers entries of one page.
#[derive(Default)]
pub(crate) struct PageBuilder {
    /// Keys and payloads of the entries, one behind the other.
    bytes: Vec<u8>,
    entries: Vec<Pending>,
    /// What all keys so far share.
    prefix: usize,
    least_ts: u64,
}

struct Pending {
    key: Range<usize>,
    end: usize,
    ts: u64,
    kind: Kind,
}

impl PageBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// About how long the page would be now.
    pub(crate) fn size(&self) -> usize {
        let saved = self.prefix * self.entries.len().saturating_sub(1);
        HEADER_BYTES + self.bytes.len() + self.entries.len() * ENTRY_OVERHEAD - saved
    }

    /// Adds the next entry in order.
    pub(crate) fn add(&mut self, entry: Entry<'_>) {
        self.prefix = match self.entries.first() {
            Some(first) => {
                let first = &self.bytes[first.key.clone()];
                common_prefix(&first[..self.prefix], entry.key)
            }
            None => entry.key.len(),
        };
        self.least_ts =
            if self.entries.is_empty() { entry.ts } else { self.least_ts.min(entry.ts) };
        debug_assert!(self.prefix <= entry.key.len(), "every key of a page has its prefix");
        let start = self.bytes.len();
        self.bytes.extend_from_slice(entry.key);
        let key = start..self.bytes.len();
        self.bytes.extend_from_slice(entry.message.payload());
        let end = self.bytes.len();
        self.entries.push(Pending { key, end, ts: entry.ts, kind: entry.message.kind() });
    }

    /// Writes the page over `out` and starts the next one.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        out.clear();
        assert!(!self.entries.is_empty(), "a page has at least one entry");
        let wide = self.bytes.len() + self.entries.len() * 32 > usize::from(u16::MAX);
        out.extend_from_slice(&[VERSION, if wide { WIDE } else { 0 }, 0, 0]);
        put_u32(out, self.entries.len() as u32);
        put_u64(out, self.least_ts);
        put_u32(out, self.prefix as u32);
        let first = &self.entries[0].key;
        out.extend_from_slice(&self.bytes[first.start..first.start + self.prefix]);
        for pending in &self.entries {
            let suffix = &self.bytes[pending.key.start + self.prefix..pending.key.end];
            put_u32(out, suffix_head(suffix));
        }
        let offsets = out.len();
        let width = if wide { 4 } else { 2 };
        out.resize(offsets + self.entries.len() * width, 0);
        let area = out.len();
        for (at, pending) in self.entries.iter().enumerate() {
            let offset = (out.len() - area) as u32;
            assert!(wide || u16::try_from(offset).is_ok(), "offsets fit their width");
            let slot = offsets + at * width;
            out[slot..slot + width].copy_from_slice(&offset.to_le_bytes()[..width]);
            let suffix = &self.bytes[pending.key.start + self.prefix..pending.key.end];
            put_varint(out, suffix.len() as u64);
            out.extend_from_slice(suffix.get(HEAD_BYTES..).unwrap_or_default());
            put_varint(out, pending.ts - self.least_ts);
            let payload = &self.bytes[pending.key.end..pending.end];
            put_varint(out, (payload.len() as u64) << KIND_BITS | pending.kind as u64);
            out.extend_from_slice(payload);
        }
        let entries = PageView::parse(out).map(|page| page.count());
        debug_assert_eq!(entries, Some(self.entries.len()), "a page reads as it was written");
        self.bytes.clear();
        self.entries.clear();
        self.prefix = 0;
    }
}

/// Where the fixed parts of a page are.
#[derive(Clone, Copy, Default)]
pub(crate) struct PageParts {
    count: usize,
    base: u64,
    heads: usize,
    offsets: usize,
    wide: bool,
    area: usize,
}

/// A page's bytes with its fixed parts found.
#[derive(Clone, Copy)]
pub(crate) struct PageView<'a> {
    bytes: &'a [u8],
    prefix: &'a [u8],
    parts: PageParts,
}

/// One entry where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageEntry<'a> {
    head: u32,
    /// Key bytes behind the prefix and the head.
    rest: &'a [u8],
    suffix_len: usize,
    pub(crate) ts: u64,
    pub(crate) kind: Kind,
    /// Where the payload is in the page.
    pub(crate) payload: (usize, usize),
}

impl<'a> PageView<'a> {
    /// Finds the parts; says what is wrong where the fixed parts do not fit the bytes.
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self, &'static str> {
        Self::parse(bytes).ok_or("page header does not fit the page")
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (version, flags) = (*bytes.first()?, *bytes.get(1)?);
        if version != VERSION || flags & !WIDE != 0 || u16_at(bytes, 2)? != 0 {
            return None;
        }
        let wide = flags & WIDE != 0;
        let count = u32_at(bytes, 4)? as usize;
        let base = u64_at(bytes, 8)?;
        let prefix_len = u32_at(bytes, 16)? as usize;
        let heads = HEADER_BYTES.checked_add(prefix_len)?;
        let prefix = bytes.get(HEADER_BYTES..heads)?;
        let offsets = heads.checked_add(count.checked_mul(HEAD_BYTES)?)?;
        let area = offsets.checked_add(count.checked_mul(if wide { 4 } else { 2 })?)?;
        (count > 0 && area <= bytes.len()).then_some(())?;
        Some(Self { bytes, prefix, parts: PageParts { count, base, heads, offsets, wide, area } })
    }

    /// The same bytes again: parts are found once for all looks at a page.
    #[inline]
    pub(crate) fn again(bytes: &'a [u8], parts: PageParts) -> Self {
        let prefix = bytes.get(HEADER_BYTES..parts.heads).unwrap_or_default();
        debug_assert!(parts.area <= bytes.len(), "parts are of other bytes");
        Self { bytes, prefix, parts }
    }

    pub(crate) fn parts(&self) -> PageParts {
        self.parts
    }

    /// Checks every entry, so that [`PageView::entry`] cannot fail afterwards.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let mut last: Option<PageEntry<'_>> = None;
        for at in 0..self.parts.count {
            let entry = self.decode(at).ok_or("page entry does not fit the page")?;
            if entry.suffix_len < HEAD_BYTES {
                let unused = u32::MAX >> (8 * entry.suffix_len as u32);
                if entry.head & unused != 0 {
                    return Err("page head does not match its key");
                }
            }
            if last.is_some_and(|last| last.compare(&entry) != Ordering::Less) {
                return Err("page entries are out of order");
            }
            last = Some(entry);
        }
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        self.parts.count
    }

    /// The entry in a slot below `count` of a checked page.
    pub(crate) fn entry(&self, at: usize) -> PageEntry<'a> {
        debug_assert!(at < self.parts.count, "entry {at} of {}", self.parts.count);
        self.decode(at).expect("the page was checked when it was loaded")
    }

    /// Writes an entry's key over `key`.
    pub(crate) fn key(&self, entry: &PageEntry<'_>, key: &mut Vec<u8>) {
        key.clear();
        self.begin_key(key);
        self.end_key(entry, key);
    }

    /// Adds what all keys of the page begin with.
    pub(crate) fn begin_key(&self, key: &mut Vec<u8>) {
        key.extend_from_slice(self.prefix);
    }

    /// Writes the rest of an entry's key behind that, over what is there.
    #[inline]
    pub(crate) fn end_key(&self, entry: &PageEntry<'_>, key: &mut Vec<u8>) {
        key.truncate(self.prefix.len());
        debug_assert_eq!(key, self.prefix, "it begins as all keys of the page");
        let head = entry.head.to_be_bytes();
        key.extend_from_slice(&head[..entry.suffix_len.min(HEAD_BYTES)]);
        key.extend_from_slice(entry.rest);
    }

    /// The payload's bytes.
    pub(crate) fn payload(&self, entry: &PageEntry<'_>) -> &'a [u8] {
        &self.bytes[entry.payload.0..entry.payload.1]
    }

    /// The first slot whose entry is at or behind `place`; `count` where there is none.
    pub(crate) fn lower_bound(&self, place: Place<'_>) -> usize {
        let shared = place.key.len().min(self.prefix.len());
        match place.key[..shared].cmp(&self.prefix[..shared]) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.parts.count,
            Ordering::Equal if shared < self.prefix.len() => return 0,
            Ordering::Equal => {}
        }
        let suffix = &place.key[shared..];
        let head = suffix_head(suffix);
        let (mut low, mut high) = (0, self.parts.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            let order = self.head(middle).cmp(&head).then_with(|| {
                self.entry(middle).compare_tail(suffix).then(place.ts.cmp(&self.entry(middle).ts))
            });
            if order == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// True where the entry's key is `key`.
    pub(crate) fn has_key(&self, entry: &PageEntry<'_>, key: &[u8]) -> bool {
        key.strip_prefix(self.prefix).is_some_and(|suffix| {
            suffix_head(suffix) == entry.head && entry.compare_tail(suffix) == Ordering::Equal
        })
    }

    #[inline]
    fn head(&self, at: usize) -> u32 {
        u32_at(self.bytes, self.parts.heads + at * HEAD_BYTES)
            .expect("heads were measured by `parse`")
    }

    /// Asks the processor for an entry that is wanted soon, if there is one.
    pub(crate) fn fetch(&self, at: usize) {
        if let Some(start) = self.start(at)
            && let Some(entry) = self.bytes.get(start..)
        {
            fetch(entry.as_ptr());
        }
    }

    #[inline]
    fn start(&self, at: usize) -> Option<usize> {
        if at >= self.parts.count {
            return None;
        }
        let offset = if self.parts.wide {
            u32_at(self.bytes, self.parts.offsets + at * 4)? as usize
        } else {
            usize::from(u16_at(self.bytes, self.parts.offsets + at * 2)?)
        };
        self.parts.area.checked_add(offset)
    }

    fn decode(&self, at: usize) -> Option<PageEntry<'a>> {
        let start = self.start(at)?;
        let mut reader = Reader::new(self.bytes.get(start..)?);
        let suffix_len: usize = reader.number()?;
        let rest = reader.take(suffix_len.saturating_sub(HEAD_BYTES))?;
        let ts = self.parts.base.checked_add(reader.varint()?)?;
        let tagged = reader.varint()?;
        let kind = Kind::from_number((tagged & ((1 << KIND_BITS) - 1)) as u8)?;
        let length = usize::try_from(tagged >> KIND_BITS).ok()?;
        let from = self.bytes.len() - reader.remaining();
        reader.take(length)?;
        let payload = (from, from + length);
        Some(PageEntry { head: self.head(at), rest, suffix_len, ts, kind, payload })
    }
}

impl PageEntry<'_> {
    /// Compares this key with a suffix that has the same head.
    fn compare_tail(&self, suffix: &[u8]) -> Ordering {
        let rest = suffix.get(HEAD_BYTES..).unwrap_or_default();
        self.rest.cmp(rest).then(self.suffix_len.cmp(&suffix.len()))
    }

    /// Orders entries of one page.
    fn compare(&self, other: &Self) -> Ordering {
        self.head
            .cmp(&other.head)
            .then_with(|| self.rest.cmp(other.rest))
            .then_with(|| self.suffix_len.cmp(&other.suffix_len))
            .then_with(|| other.ts.cmp(&self.ts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<(Vec<u8>, std::cmp::Reverse<u64>), Option<Vec<u8>>>;

    fn model() -> impl Strategy<Value = Model> {
        let key = prop_oneof![
            prop::collection::vec(0u8..3, 0..7),
            prop::collection::vec(any::<u8>(), 0..12)
                .prop_map(|tail| [&b"shared"[..], &tail].concat()),
        ];
        let ts = (1u64..1 << 40).prop_map(std::cmp::Reverse);
        let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..50));
        prop::collection::btree_map((key, ts), value, 1..60)
    }

    fn build(model: &Model) -> Vec<u8> {
        let mut builder = PageBuilder::default();
        for ((key, ts), value) in model {
            let message = value.as_deref().map_or(Message::Delete, Message::Put);
            builder.add(Entry { key, ts: ts.0, message });
        }
        let mut out = Vec::new();
        builder.finish(&mut out);
        out
    }

    proptest! {
        #[test]
        fn page_gives_back_its_entries_and_finds_every_place(model in model(), wide in any::<bool>()) {
            let mut model = model;
            if wide {
                model.insert((b"zzzz".to_vec(), std::cmp::Reverse(5)), Some(vec![9; 70_000]));
            }
            let bytes = build(&model);
            let view = PageView::open(&bytes).unwrap();
            view.check().unwrap();
            prop_assert_eq!(view.count(), model.len());
            let mut key = Vec::new();
            for (at, ((expected, ts), value)) in model.iter().enumerate() {
                let entry = view.entry(at);
                view.key(&entry, &mut key);
                prop_assert_eq!((&key, entry.ts), (expected, ts.0));
                let message = Message::of(entry.kind, view.payload(&entry));
                prop_assert_eq!(message.value(), value.as_deref());
                prop_assert!(view.has_key(&entry, expected));
                prop_assert_eq!(view.lower_bound(Place { key: expected, ts: ts.0 }), at);
            }
            let keys: Vec<_> = model.keys().collect();
            for probe in [&b""[..], b"s", b"shared", b"sharee", &[0, 1], &[1], &[255; 9]] {
                for ts in [0, 77, 1 << 39, u64::MAX] {
                    let place = (probe.to_vec(), std::cmp::Reverse(ts));
                    let expected = keys.iter().filter(|key| ***key < place).count();
                    prop_assert_eq!(view.lower_bound(Place { key: probe, ts }), expected);
                }
            }
        }

        #[test]
        fn mutated_page_is_refused_or_reads_without_panic(
            model in model(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = build(&model);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Ok(view) = PageView::open(&bytes) && view.check().is_ok() {
                let mut key = Vec::new();
                for at in 0..view.count() {
                    let entry = view.entry(at);
                    view.key(&entry, &mut key);
                    let _payload = view.payload(&entry);
                    let _slot = view.lower_bound(Place { key: &key, ts: entry.ts });
                }
            }
        }
    }
}
