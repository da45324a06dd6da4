//! How a block of sorted rows is laid out, so that it compresses well and fast.
//!
//! The rows ascend: the first bytes of a key hardly differ from those of the key above it. What follows are
//! often numbers and a record key, of which some bytes are always the same and others cannot be compressed
//! at all. So the keys of one length are stored by *column*: the first byte of each, then the second, and
//! so on. A column is stored as it is, or as the differences to the row above it, whichever repeats more;
//! what hardly repeats is set aside, where no compressor spends time on it.
//!
//! Always true: what is decoded is what was encoded, and bytes that were not encoded here give an error and
//! no more memory than [`MOST_BYTES`].
//!
//! The layout is described in `docs/formats/segment.md`, section "sorted runs".

use crate::bytes::{Reader, put_varint};
use crate::message::{Entry, Message};
use blockfile::{Compression, MAX_PAGE_BYTES, compress, decompress};

/// The first byte of a block.
const VERSION: u8 = 1;
/// Keys of one length have columns where there are at least so many of them…
const LEAST_ROWS: usize = 64;
/// …and they are no longer than this. Longer ones are texts, which a compressor knows better.
const MOST_COLUMNS: usize = 64;
/// Rows of a column that are looked at before it is laid out.
const SAMPLE: usize = 512;
/// A block has no more bytes of rows: it is a page, and a row of any length fits in one.
const MOST_BYTES: u64 = MAX_PAGE_BYTES as u64;

const CUT_SHORT: &str = "a block of sorted rows is cut short";

/// Rows one behind the other, ascending.
#[derive(Default)]
pub(super) struct RowBlock {
    /// Key and value of each.
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// Where a row ends.
#[derive(Clone, Copy)]
struct Place {
    key_end: u32,
    end: u32,
    /// The value is a reference to one that lies elsewhere.
    is_large: bool,
}

impl RowBlock {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8], is_large: bool) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.places.push(Place { key_end, end: self.bytes.len() as u32, is_large });
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Bytes of the rows.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Memory it takes.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * size_of::<Place>()
    }

    fn start(&self, row: usize) -> usize {
        row.checked_sub(1).map_or(0, |before| self.places[before].end as usize)
    }

    pub(super) fn key(&self, row: usize) -> &[u8] {
        &self.bytes[self.start(row)..self.places[row].key_end as usize]
    }

    /// A row, if there are so many.
    pub(super) fn entry(&self, row: usize) -> Option<Entry<'_>> {
        let place = self.places.get(row)?;
        let (key, value) =
            self.bytes[self.start(row)..place.end as usize].split_at(self.key(row).len());
        let message = if place.is_large { Message::Large(value) } else { Message::Put(value) };
        Some(Entry { key, ts: 0, message })
    }

    /// Where the rows begin whose keys have columns: by the length of the keys, ascending.
    fn groups(&self) -> Vec<(usize, Vec<u32>)> {
        let mut counts = [0; MOST_COLUMNS + 1];
        for row in 0..self.len() {
            if let Some(count) = counts.get_mut(self.key(row).len()) {
                *count += 1;
            }
        }
        let lengths = (1..=MOST_COLUMNS).filter(|length| counts[*length] >= LEAST_ROWS);
        let starts = |length| {
            let rows = (0..self.len()).filter(|row| self.key(*row).len() == length);
            (length, rows.map(|row| self.start(row) as u32).collect())
        };
        lengths.map(starts).collect()
    }
}

/// How a column is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    Plain,
    /// Each byte less the one above it.
    Differences,
    /// As it is, and not compressed.
    Aside,
}

impl Layout {
    const ALL: [Self; 3] = [Self::Plain, Self::Differences, Self::Aside];

    /// Which is best, by the first bytes of the column.
    fn of(column: &[u8]) -> Self {
        let sample = &column[..column.len().min(SAMPLE)];
        let rows = sample.len() as u64;
        let plain = repeats(sample.iter().copied());
        let differences = repeats(differences(sample));
        // Of even bytes two in 256 are the same; where it is one pair in 64, an eighth could be saved.
        if plain.max(differences) < rows * rows / 64 + rows {
            Self::Aside
        } else if differences > plain {
            Self::Differences
        } else {
            Self::Plain
        }
    }
}

fn differences(column: &[u8]) -> impl Iterator<Item = u8> {
    let above = [0].into_iter().chain(column.iter().copied());
    column.iter().zip(above).map(|(byte, above)| byte.wrapping_sub(above))
}

/// Pairs of bytes that are the same, each with itself among them.
fn repeats(bytes: impl Iterator<Item = u8>) -> u64 {
    let mut counts = [0_u64; 256];
    for byte in bytes {
        counts[usize::from(byte)] += 1;
    }
    counts.iter().map(|count| count * count).sum()
}

/// What encoding and decoding need beside the rows, kept from block to block.
#[derive(Default)]
pub(super) struct Scratch {
    compressed: Vec<u8>,
    aside: Vec<u8>,
    column: Vec<u8>,
}

impl Scratch {
    /// Memory it takes.
    pub(super) fn memory(&self) -> usize {
        self.compressed.capacity() + self.aside.capacity() + self.column.capacity()
    }
}

/// Appends a block.
pub(super) fn encode(
    block: &RowBlock,
    compression: Compression,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) {
    let Scratch { compressed, aside, column } = scratch;
    compressed.clear();
    aside.clear();
    put_varint(compressed, block.len() as u64);
    for row in 0..block.len() {
        put_varint(compressed, block.key(row).len() as u64);
    }
    for place in 0..block.len() {
        let Place { key_end, end, is_large } = block.places[place];
        put_varint(compressed, u64::from(end - key_end) << 1 | u64::from(is_large));
    }
    let groups = block.groups();
    for (length, starts) in &groups {
        for at in 0..*length {
            column.clear();
            column.extend(starts.iter().map(|start| block.bytes[*start as usize + at]));
            let layout = Layout::of(column);
            compressed.push(layout as u8);
            match layout {
                Layout::Plain => compressed.extend_from_slice(column),
                Layout::Differences => compressed.extend(differences(column)),
                Layout::Aside => aside.extend_from_slice(column),
            }
        }
    }
    let has_columns = |key: &[u8]| groups.iter().any(|(length, _)| *length == key.len());
    for row in 0..block.len() {
        let key = block.key(row);
        if !has_columns(key) {
            compressed.extend_from_slice(key);
        }
    }
    for row in 0..block.len() {
        let Place { key_end, end, .. } = block.places[row];
        compressed.extend_from_slice(&block.bytes[key_end as usize..end as usize]);
    }
    column.clear();
    let is_shorter = compress(compression, compressed, column);
    let stored: &[u8] = if is_shorter { column } else { compressed };
    out.extend_from_slice(&[VERSION, compression.to_bytes()[0] * u8::from(is_shorter)]);
    put_varint(out, compressed.len() as u64);
    put_varint(out, stored.len() as u64);
    out.extend_from_slice(stored);
    out.extend_from_slice(aside);
}

/// The rows of a block.
pub(super) fn decode(
    bytes: &[u8],
    scratch: &mut Scratch,
    block: &mut RowBlock,
) -> Result<(), &'static str> {
    let mut reader = Reader::new(bytes);
    if reader.byte() != Some(VERSION) {
        return Err("a block of sorted rows has an unknown version");
    }
    let method = reader.byte().ok_or(CUT_SHORT)?;
    let mut length = || reader.varint().filter(|length| *length <= MOST_BYTES).ok_or(CUT_SHORT);
    let (raw, stored) = (length()? as usize, length()? as usize);
    let stored = reader.take(stored).ok_or(CUT_SHORT)?;
    let compressed = &mut scratch.compressed;
    compressed.resize(raw, 0);
    if !decompress(method, stored, compressed) {
        return Err("a block of sorted rows cannot be decompressed");
    }
    decode_rows(Reader::new(compressed), reader, block)
}

fn decode_rows<'a>(
    mut compressed: Reader<'a>,
    mut aside: Reader<'a>,
    block: &mut RowBlock,
) -> Result<(), &'static str> {
    decode_places(&mut compressed, aside.remaining(), block)?;
    let groups = block.groups();
    for (length, starts) in &groups {
        for at in 0..*length {
            let layout = compressed.byte().ok_or(CUT_SHORT)?;
            let layout = Layout::ALL.get(usize::from(layout));
            let layout = layout.ok_or("a column of sorted rows has an unknown layout")?;
            let source = if *layout == Layout::Aside { &mut aside } else { &mut compressed };
            let column = source.take(starts.len()).ok_or(CUT_SHORT)?;
            let mut above = 0_u8;
            for (start, byte) in starts.iter().zip(column) {
                let byte = match layout {
                    Layout::Differences => above.wrapping_add(*byte),
                    Layout::Plain | Layout::Aside => *byte,
                };
                block.bytes[*start as usize + at] = byte;
                above = byte;
            }
        }
    }
    let has_columns = |length: usize| groups.iter().any(|(others, _)| *others == length);
    for row in 0..block.len() {
        let (start, end) = (block.start(row), block.places[row].key_end as usize);
        if !has_columns(end - start) {
            let key = compressed.take(end - start).ok_or(CUT_SHORT)?;
            block.bytes[start..end].copy_from_slice(key);
        }
    }
    for place in &block.places {
        let (start, end) = (place.key_end as usize, place.end as usize);
        let value = compressed.take(end - start).ok_or(CUT_SHORT)?;
        block.bytes[start..end].copy_from_slice(value);
    }
    let is_all = compressed.remaining() == 0 && aside.remaining() == 0;
    if is_all { Ok(()) } else { Err("a block of sorted rows is too long") }
}

/// Where the rows lie; makes room for as many bytes as there are.
fn decode_places(
    compressed: &mut Reader<'_>,
    aside: usize,
    block: &mut RowBlock,
) -> Result<(), &'static str> {
    block.clear();
    // Each row has two lengths.
    let most = compressed.remaining() as u64 / 2;
    let rows = compressed.varint().filter(|rows| *rows <= most).ok_or(CUT_SHORT)?;
    for _ in 0..rows {
        let length = compressed.varint().filter(|length| *length <= MOST_BYTES);
        let key_end = length.ok_or(CUT_SHORT)? as u32;
        block.places.push(Place { key_end, end: 0, is_large: false });
    }
    let mut end = 0;
    for place in &mut block.places {
        let value = compressed.varint().filter(|value| *value >> 1 <= MOST_BYTES);
        let value = value.ok_or(CUT_SHORT)?;
        let key_end = end + u64::from(place.key_end);
        end = key_end + (value >> 1);
        // No more than there is, before anything is allocated.
        if end > (compressed.remaining() + aside) as u64 || end > MOST_BYTES {
            return Err(CUT_SHORT);
        }
        *place = Place { key_end: key_end as u32, end: end as u32, is_large: value & 1 == 1 };
    }
    block.bytes.resize(end as usize, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Gen;

    const ZSTD: Compression = Compression::Zstd(1);

    type Rows = Vec<(Vec<u8>, Vec<u8>, bool)>;

    fn encoded(rows: &Rows, compression: Compression) -> Vec<u8> {
        let mut block = RowBlock::default();
        for (key, value, is_large) in rows {
            block.push(key, value, *is_large);
        }
        let mut out = Vec::new();
        encode(&block, compression, &mut Scratch::default(), &mut out);
        out
    }

    fn decoded(bytes: &[u8]) -> Result<Rows, &'static str> {
        let mut block = RowBlock::default();
        decode(bytes, &mut Scratch::default(), &mut block)?;
        let rows = (0..block.len()).map(|row| match block.entry(row).unwrap() {
            Entry { key, message: Message::Large(value), .. } => (key.into(), value.into(), true),
            Entry { key, message, .. } => (key.into(), message.payload().into(), false),
        });
        Ok(rows.collect())
    }

    fn some_rows(random: &mut Gen) -> Rows {
        let lengths = [0, 1, 12, 30, 64, 65, 200];
        let mut rows = Rows::new();
        for _ in 0..random.below(600) {
            let most = if random.one_in(30) { 7 } else { 4 };
            let length = lengths[random.below(most) as usize];
            let mut key = vec![3; length];
            for byte in key.iter_mut().step_by(2) {
                *byte = random.below(256) as u8;
            }
            rows.push((key, random.value(20), random.one_in(10)));
        }
        rows.sort();
        rows
    }

    #[test]
    fn rows_come_back_as_they_were() {
        for seed in 0..300 {
            let rows = some_rows(&mut Gen::new(seed));
            for compression in [ZSTD, Compression::None] {
                assert_eq!(decoded(&encoded(&rows, compression)), Ok(rows.clone()), "seed {seed}");
            }
        }
    }

    #[test]
    fn damage_gives_an_error_or_other_rows_and_nothing_worse() {
        let mut refused = 0;
        for seed in 0..300 {
            let mut random = Gen::new(seed);
            let mut bytes = encoded(&some_rows(&mut random), Compression::None);
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            if random.one_in(3) {
                bytes.truncate(random.below(bytes.len() as u64) as usize);
            }
            refused += u32::from(decoded(&bytes).is_err());
        }
        assert!(refused > 100, "{refused}");
    }

    #[test]
    fn a_column_is_laid_out_as_its_bytes_repeat() {
        let mut random = Gen::new(1);
        let mut scattered =
            |most: u64| -> Vec<u8> { (0..SAMPLE).map(|_| random.below(most) as u8).collect() };
        assert_eq!(Layout::of(&scattered(256)), Layout::Aside);
        assert_eq!(Layout::of(&scattered(5)), Layout::Plain);
        assert_eq!(Layout::of(&[7; 100]), Layout::Plain);
        let ascending: Vec<u8> = (0..SAMPLE).map(|row| (row * 2) as u8).collect();
        assert_eq!(Layout::of(&ascending), Layout::Differences);
    }

    #[test]
    fn keys_of_an_index_take_little_more_than_what_is_random_in_them() {
        let mut random = Gen::new(2);
        // A number of eight bytes, of which the rows ascend, an object id of one process.
        let mut rows = Rows::new();
        for _ in 0..2000 {
            let number = random.below(u64::MAX).to_be_bytes();
            let counter = random.below(1 << 18) as u32;
            let id =
                [&[0x64, 0x65, 0x99, 0x2b, 3, 11, 0x6b, 9, 1][..], &counter.to_be_bytes()[1..]]
                    .concat();
            rows.push(([&[0x2b], &number[..], &[0x64], &id[..]].concat(), Vec::new(), false));
        }
        rows.sort();
        let bytes = encoded(&rows, ZSTD).len() as f64 / rows.len() as f64;
        // 64 bits less the 11 that the order says, and 18.
        assert!(bytes < 71.0 / 8.0 * 1.12, "{bytes} bytes a row");
    }
}
