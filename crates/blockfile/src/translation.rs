//! The translation table: which segment is where.
//!
//! ```text
//! 0   u32  magic "FTRT" (0x54525446)
//! 4   u16  version, 2
//! 6   u16  kind: 0 = the whole table, 1 = changes to the table before it in its chain
//! 8   u64  number of entries
//! 16  …    entries, segment ids ascending:
//!          varint  id minus the id before (the first: minus 0), never 0
//!          varint  data file number, 0
//!          varint  first unit
//!          varint  length in bytes; 0 in a change, with unit and kind 0: the segment is gone
//!          u8      kind, the engine's business
//! ```
//!
//! A change says where a segment is now, whether or not it was there before, or that one that was
//! there is gone.
//!
//! Varints are LEB128. Blobs carry the checksum, so the table has none.
//!
//! On disk: `docs/formats/translation-table.md`.

use std::collections::BTreeMap;

use crate::UNIT;
use crate::allocator::Extent;

const MAGIC: u32 = u32::from_le_bytes(*b"FTRT");
const VERSION: u16 = 2;
const WHOLE: u16 = 0;
const CHANGES: u16 = 1;
/// id, file, unit, length of one byte each, and the kind.
const MIN_ENTRY_BYTES: u64 = 5;

/// The number of a segment: never 0, never used twice in the life of a file once a checkpoint
/// has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl std::fmt::Display for SegmentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Where a segment is and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// First 4 KiB unit in the file.
    pub unit: u64,
    /// Length in bytes, never 0.
    pub bytes: u64,
    /// What the engine keeps in it.
    pub kind: u8,
}

impl Entry {
    /// The units it occupies.
    pub fn extent(&self) -> Extent {
        Extent { unit: self.unit, units: self.bytes.div_ceil(UNIT) }
    }
}

/// Where a segment is, or that it is gone.
pub type Change = (SegmentId, Option<Entry>);

/// The table's bytes. Ids must ascend.
pub fn encode_table(entries: impl Iterator<Item = (SegmentId, Entry)>) -> Vec<u8> {
    encode(WHOLE, entries.map(|(id, entry)| (id, Some(entry))))
}

/// The bytes of changes. Ids must ascend.
pub fn encode_changes(changes: &[Change]) -> Vec<u8> {
    encode(CHANGES, changes.iter().copied())
}

fn encode(kind: u16, entries: impl Iterator<Item = Change>) -> Vec<u8> {
    const GONE: Entry = Entry { unit: 0, bytes: 0, kind: 0 };
    let mut out = Vec::new();
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    let mut count = 0_u64;
    let mut previous = 0;
    for (id, entry) in entries {
        assert!(id.0 > previous, "segment ids ascend");
        assert!(entry.is_none_or(|entry| entry.bytes > 0), "a segment has at least one byte");
        let entry = entry.unwrap_or(GONE);
        put_varint(&mut out, id.0 - previous);
        put_varint(&mut out, 0);
        put_varint(&mut out, entry.unit);
        put_varint(&mut out, entry.bytes);
        out.push(entry.kind);
        previous = id.0;
        count += 1;
    }
    out[8..16].copy_from_slice(&count.to_le_bytes());
    out
}

/// Reads a table; the error says what is wrong. Extents may still overlap: the allocator checks.
pub fn decode_table(bytes: &[u8]) -> Result<Vec<(SegmentId, Entry)>, &'static str> {
    let entries = decode(WHOLE, bytes)?.into_iter();
    let entry = |(id, entry): Change| Some((id, entry?));
    entries.map(entry).collect::<Option<_>>().ok_or("a whole table names a segment that is gone")
}

/// Reads changes; the error says what is wrong.
pub fn decode_changes(bytes: &[u8]) -> Result<Vec<Change>, &'static str> {
    decode(CHANGES, bytes)
}

/// The table of a chain: `parts[0]` is a full table, the others are changes, in the order in which
/// they were written. An empty chain gives an empty table.
pub fn fold_tables(parts: &[impl AsRef<[u8]>]) -> Result<BTreeMap<SegmentId, Entry>, &'static str> {
    let Some((whole, changes)) = parts.split_first() else { return Ok(BTreeMap::new()) };
    let mut table: BTreeMap<_, _> = decode_table(whole.as_ref())?.into_iter().collect();
    for part in changes {
        for (id, entry) in decode_changes(part.as_ref())? {
            let before = match entry {
                Some(entry) => table.insert(id, entry),
                None => table.remove(&id),
            };
            if entry.is_none() && before.is_none() {
                return Err("a change drops a segment that is not there");
            }
        }
    }
    Ok(table)
}

fn decode(kind: u16, bytes: &[u8]) -> Result<Vec<Change>, &'static str> {
    let (header, mut rest) = bytes.split_first_chunk::<16>().ok_or("translation table is short")?;
    if header[..4] != MAGIC.to_le_bytes() || header[4..6] != VERSION.to_le_bytes() {
        return Err("not a translation table of a known version");
    }
    if header[6..8] != kind.to_le_bytes() {
        return Err("translation table of another kind than its place in the chain");
    }
    let mut count = [0; 8];
    count.copy_from_slice(&header[8..]);
    let count = u64::from_le_bytes(count);
    if count > rest.len() as u64 / MIN_ENTRY_BYTES {
        return Err("translation table names more entries than it holds");
    }
    let mut entries = Vec::with_capacity(count as usize);
    let mut previous = 0_u64;
    for _ in 0..count {
        let (id, entry) = take_entry(&mut rest, previous).ok_or("translation entry is invalid")?;
        previous = id.0;
        entries.push((id, entry));
    }
    if !rest.is_empty() {
        return Err("translation table has bytes after its last entry");
    }
    debug_assert!(entries.is_sorted_by_key(|(id, _)| *id), "entries are read as ids ascend");
    Ok(entries)
}

fn take_entry(rest: &mut &[u8], previous: u64) -> Option<Change> {
    let step = take_varint(rest)?;
    let file = take_varint(rest)?;
    let unit = take_varint(rest)?;
    let bytes = take_varint(rest)?;
    let (kind, after) = rest.split_first()?;
    *rest = after;
    let gone = bytes == 0;
    if step == 0 || file != 0 || gone && (unit != 0 || *kind != 0) {
        return None;
    }
    let id = previous.checked_add(step)?;
    Some((SegmentId(id), (!gone).then_some(Entry { unit, bytes, kind: *kind })))
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a LEB128 number; `None` where it is cut, longer than needed or above `u64`.
fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for at in 0..10 {
        let byte = *rest.get(at)?;
        let part = u64::from(byte & 0x7f);
        if at == 9 && part > 1 || at > 0 && byte == 0 {
            return None;
        }
        value |= part << (7 * at);
        if byte & 0x80 == 0 {
            *rest = &rest[at + 1..];
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries(raw: &[(u64, u64, u64, u8)]) -> Vec<(SegmentId, Entry)> {
        let mut id = 0;
        let mut out = Vec::new();
        for (step, unit, bytes, kind) in raw {
            id += step;
            out.push((SegmentId(id), Entry { unit: *unit, bytes: *bytes, kind: *kind }));
        }
        out
    }

    #[test]
    fn empty_table_is_a_header() {
        let bytes = encode_table(std::iter::empty());
        assert_eq!(bytes.len(), 16);
        assert_eq!(decode_table(&bytes), Ok(Vec::new()));
    }

    #[test]
    fn lying_count_allocates_nothing() {
        let mut bytes = encode_table(entries(&[(1, 2, 3, 4)]).into_iter());
        bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(decode_table(&bytes).is_err());
    }

    #[test]
    fn changes_fold_into_the_table() {
        let entry = |unit| Entry { unit, bytes: 5, kind: 1 };
        let id = SegmentId;
        let whole = encode_table([(id(1), entry(10)), (id(4), entry(40))].into_iter());
        let change =
            encode_changes(&[(id(1), None), (id(4), Some(entry(44))), (id(9), Some(entry(90)))]);
        let folded = fold_tables(&[&whole, &change]).unwrap();
        let expected = BTreeMap::from([(id(4), entry(44)), (id(9), entry(90))]);
        assert_eq!(folded, expected);
        assert!(fold_tables(&[&whole, &change, &change]).is_err(), "1 is gone already");
        assert!(fold_tables(&[&change]).is_err() && fold_tables(&[&whole, &whole]).is_err());
        let none: [&[u8]; 0] = [];
        assert_eq!(fold_tables(&none), Ok(BTreeMap::new()));
    }

    proptest! {
        #[test]
        fn tables_come_back(
            raw in prop::collection::vec((1_u64..1 << 50, any::<u64>(), 1_u64.., any::<u8>()), 0..50)
        ) {
            let entries = entries(&raw);
            let bytes = encode_table(entries.iter().copied());
            prop_assert_eq!(decode_table(&bytes), Ok(entries));
            for cut in 0..bytes.len() {
                prop_assert!(decode_table(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn mutated_tables_never_panic(
            raw in prop::collection::vec((1_u64..9, 0_u64..900, 1_u64..9999, any::<u8>()), 0..20),
            at: prop::sample::Index,
            value: u8,
        ) {
            let mut bytes = encode_table(entries(&raw).into_iter());
            let at = at.index(bytes.len());
            bytes[at] = value;
            if let Ok(back) = decode_changes(&bytes) {
                prop_assert_eq!(encode_changes(&back), &bytes[..]);
            }
            if let Ok(back) = decode_table(&bytes) {
                // what decodes is canonical: the same bytes come out again
                prop_assert_eq!(encode_table(back.into_iter()), bytes);
            }
        }
    }
}
