//! Blobs: the translation table and the engine's root, as a chain of checksummed chunks.
//!
//! A chunk is one extent:
//!
//! ```text
//! 0   u32  magic "FBLB" (0x424c4246)
//! 4   u32  payload bytes, at most 1 MiB
//! 8   u64  unit of the next chunk, 0 for the last
//! 16  u32  units of the next chunk, 0 for the last
//! 20  u32  number of the chunk in its chain, from 0
//! 24  u64  xxh3-64 of bytes 0..24 and the payload, seeded with the generation
//! 32  …    payload, then zeros to the unit's end
//! ```
//!
//! On disk: `docs/formats/superblock.md`, section "blobs".

use xxhash_rust::xxh3::Xxh3;

use crate::UNIT;
use crate::allocator::Extent;

const MAGIC: u32 = u32::from_le_bytes(*b"FBLB");
const HEADER: usize = 32;
/// Payload of one chunk: short enough to find a place in a fragmented file.
pub const MAX_CHUNK_PAYLOAD: usize = 1 << 20;

/// Where a blob starts, how long it is and what it hashes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobPointer {
    /// First unit of the first chunk.
    pub unit: u64,
    /// Units of the first chunk.
    pub units: u32,
    /// Payload bytes of all chunks.
    pub bytes: u64,
    /// xxh3-64 of the whole payload.
    pub checksum: u64,
}

impl BlobPointer {
    /// No blob.
    pub const NONE: Self = Self { unit: 0, units: 0, bytes: 0, checksum: 0 };

    /// Whether it points at nothing.
    pub fn is_none(&self) -> bool {
        self.units == 0
    }

    pub(crate) fn encode(&self) -> [u8; 28] {
        let mut out = [0; 28];
        out[..8].copy_from_slice(&self.unit.to_le_bytes());
        out[8..12].copy_from_slice(&self.units.to_le_bytes());
        out[12..20].copy_from_slice(&self.bytes.to_le_bytes());
        out[20..28].copy_from_slice(&self.checksum.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; 28]) -> Self {
        Self {
            unit: u64_at(bytes, 0),
            units: u32_at(bytes, 8),
            bytes: u64_at(bytes, 12),
            checksum: u64_at(bytes, 20),
        }
    }
}

/// One decoded chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Where the next one is; `None` for the last.
    pub next: Option<Extent>,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// Units a chunk with this payload takes.
pub(crate) fn chunk_units(payload: usize) -> u64 {
    ((HEADER + payload) as u64).div_ceil(UNIT)
}

impl<'a> Chunk<'a> {
    /// Appends the chunk, padded to whole units.
    pub fn encode(&self, generation: u64, number: u32, out: &mut os::AlignedBuf) {
        let start = out.len();
        let next = self.next.unwrap_or(Extent { unit: 0, units: 0 });
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..8].copy_from_slice(&(self.payload.len() as u32).to_le_bytes());
        header[8..16].copy_from_slice(&next.unit.to_le_bytes());
        header[16..20].copy_from_slice(&(next.units as u32).to_le_bytes());
        header[20..24].copy_from_slice(&number.to_le_bytes());
        let sum = checksum(generation, &header[..24], self.payload);
        header[24..32].copy_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(self.payload);
        out.resize(start + (out.len() - start).next_multiple_of(UNIT as usize), 0);
    }

    /// Reads a chunk; `None` where it is not the chunk of this generation and number.
    pub fn decode(generation: u64, number: u32, bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let payload = rest.get(..u32_at(header, 4) as usize)?;
        if u32_at(header, 0) != MAGIC
            || u32_at(header, 20) != number
            || checksum(generation, &header[..24], payload) != u64_at(header, 24)
        {
            return None;
        }
        let next = Extent { unit: u64_at(header, 8), units: u64::from(u32_at(header, 16)) };
        Some(Self { next: (next.units != 0).then_some(next), payload })
    }
}

fn checksum(generation: u64, header: &[u8], payload: &[u8]) -> u64 {
    let mut hash = Xxh3::with_seed(generation);
    hash.update(header);
    hash.update(payload);
    hash.digest()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(out)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chunks_come_back_and_damage_is_seen(
            payload in prop::collection::vec(any::<u8>(), 0..9000),
            next: Option<u32>,
            at: prop::sample::Index,
        ) {
            let next = next.map(|unit| Extent { unit: u64::from(unit), units: 3 });
            let mut bytes = os::AlignedBuf::new();
            Chunk { next, payload: &payload }.encode(7, 2, &mut bytes);
            prop_assert_eq!(bytes.len() as u64, chunk_units(payload.len()) * UNIT);
            let back = Chunk::decode(7, 2, &bytes);
            prop_assert_eq!(back, Some(Chunk { next, payload: &payload }));
            prop_assert_eq!(Chunk::decode(8, 2, &bytes), None);
            prop_assert_eq!(Chunk::decode(7, 1, &bytes), None);
            let at = at.index(HEADER + payload.len());
            bytes[at] ^= 0x40;
            prop_assert_eq!(Chunk::decode(7, 2, &bytes), None);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Chunk::decode(0, 0, &bytes), None);
        }
    }
}
