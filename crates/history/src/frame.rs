//! Frames: what a file consists of behind its first 16 bytes.
//!
//! ```text
//!  0        4        8     12       16      20         28        36
//!  ┌────────┬────────┬─────┬────────┬───────┬──────────┬─────────┬─────────┐
//!  │ length │ crc32c │kind │ raw    │ rows  │ first_ms │ last_ms │ payload │
//!  └────────┴────────┴─────┴────────┴───────┴──────────┴─────────┴─────────┘
//! ```
//!
//! Little-endian; the checksum is over everything behind it. The payload is zstd. Always true: a
//! frame whose length or checksum is wrong is the end of the file.

use crate::block::Column;
use std::io;

/// The first bytes of a file.
pub(crate) const MAGIC: &[u8; 8] = b"FERNHIST";
/// The version of everything here.
pub(crate) const VERSION: u32 = 1;
/// Magic, version, and four bytes of 0.
pub(crate) const FILE_HEADER: usize = 16;
/// A frame without its payload.
pub(crate) const HEADER: usize = 36;
/// No real payload is longer, before or after compression.
const MAX_PAYLOAD: usize = 16 << 20;
/// Small numbers, seldom written: speed matters little.
const LEVEL: i32 = 6;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The names of the columns of the blocks that follow.
    Names = 1,
    /// Rows.
    Rows = 2,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) length: usize,
    pub(crate) raw: usize,
    pub(crate) rows: usize,
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
}

/// The first bytes of every file.
pub(crate) fn file_header() -> [u8; FILE_HEADER] {
    let mut bytes = [0; FILE_HEADER];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// A whole frame around `raw`.
pub(crate) fn encode(
    kind: Kind,
    rows: usize,
    first_ms: i64,
    last_ms: i64,
    raw: &[u8],
) -> io::Result<Vec<u8>> {
    let payload = zstd::bulk::compress(raw, LEVEL)?;
    let mut bytes = vec![0; 8];
    bytes.extend((kind as u32).to_le_bytes());
    bytes.extend((raw.len() as u32).to_le_bytes());
    bytes.extend((rows as u32).to_le_bytes());
    bytes.extend(first_ms.to_le_bytes());
    bytes.extend(last_ms.to_le_bytes());
    bytes.extend(&payload);
    bytes[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// The frame at the beginning of `bytes` and its payload, where there is a whole one.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Header, &[u8])> {
    let header = bytes.get(..HEADER)?;
    let u32_at = |at: usize| header[at..].first_chunk().copied().map(u32::from_le_bytes);
    let i64_at = |at: usize| header[at..].first_chunk().copied().map(i64::from_le_bytes);
    let (length, raw) = (u32_at(0)? as usize, u32_at(12)? as usize);
    if length > MAX_PAYLOAD || raw > MAX_PAYLOAD {
        return None;
    }
    let payload = bytes.get(HEADER..HEADER + length)?;
    if crc32c::crc32c(&bytes[8..HEADER + length]) != u32_at(4)? {
        return None;
    }
    let kind = match u32_at(8)? {
        1 => Kind::Names,
        2 => Kind::Rows,
        _ => return None,
    };
    let rows = u32_at(16)? as usize;
    let header = Header { kind, length, raw, rows, first_ms: i64_at(20)?, last_ms: i64_at(28)? };
    Some((header, payload))
}

/// A payload's bytes; `None` where they are not what the header says.
pub(crate) fn unpack(header: &Header, payload: &[u8]) -> Option<Vec<u8>> {
    zstd::bulk::decompress(payload, header.raw).ok().filter(|raw| raw.len() == header.raw)
}

/// Names as bytes: a line for each, `i` before a whole number, `m` before thousandths.
pub(crate) fn encode_names(columns: &[Column]) -> Vec<u8> {
    let lines = columns.iter().map(|c| format!("{}{}\n", if c.real { 'm' } else { 'i' }, c.name));
    lines.collect::<String>().into_bytes()
}

pub(crate) fn decode_names(raw: &[u8]) -> Option<Vec<Column>> {
    let text = std::str::from_utf8(raw).ok()?;
    text.lines()
        .map(|line| {
            let (real, name) = match line.split_at_checked(1)? {
                ("i", name) => (false, name),
                ("m", name) => (true, name),
                _ => return None,
            };
            Some(Column { name: name.to_owned(), real })
        })
        .collect()
}
