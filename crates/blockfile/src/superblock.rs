//! The superblock: where the newest checkpoint is. Two copies at bytes 0 and 4096 are written in
//! turn, so that one is always whole.
//!
//! ```text
//! 0    [8]  magic "FERNDATA"
//! 8    u32  format version: 2, or 3 for a file that is encrypted
//! 12   u32  unit, 4096
//! 16   u128 file id, random, made with the file
//! 32   u64  generation: 1 for an empty file, +1 per checkpoint; its parity says the slot
//! 40   u64  LSN up to which the log is contained
//! 48   i64  when it was written, milliseconds since 1970
//! 56   u64  next segment id
//! 64   [28] translation table (blob pointer)
//! 92   [28] root blob (blob pointer)
//! 120  u16  cipher, in version 3 alone: 1, AES-256-GCM
//! 122  …    zeros
//! 504  u64  xxh3-64 of bytes 0..504
//! 512  …    zeros to 4096
//! ```
//!
//! Everything that counts is in the first 512 bytes, which disks write whole.
//! A blob pointer is: u64 unit of the first chunk, u32 units of it, u64 payload bytes, u64 xxh3-64
//! of the payload; all zero for "none".
//!
//! On disk: `docs/formats/superblock.md`.

use xxhash_rust::xxh3::xxh3_64;

use crate::UNIT;
use crate::blob::BlobPointer;

/// Bytes of one slot.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// The format of a plain file.
const PLAIN_VERSION: u32 = 2;
/// The format of an encrypted file, which older programs refuse, and the newest that is known.
pub(crate) const VERSION: u32 = 3;
const AES_256_GCM: u16 = 1;
/// Units before the first extent.
pub(crate) const RESERVED_UNITS: u64 = 2;

const MAGIC: &[u8; 8] = b"FERNDATA";
const SUM_AT: usize = 504;
/// What a count of segments or checkpoints may be: so many that none is ever reached, and far from
/// where counting on would overflow.
const COUNTS: std::ops::Range<u64> = 1..1 << 62;

/// One decoded superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Random, the same for the life of the file.
    pub file_id: u128,
    /// Grows by one per checkpoint.
    pub generation: u64,
    /// The log before this position is contained.
    pub lsn: u64,
    /// When it was written, milliseconds since 1970.
    pub written_ms: i64,
    /// Segment ids below are used.
    pub next_segment: u64,
    /// The translation table.
    pub table: BlobPointer,
    /// What the engine handed in.
    pub root: BlobPointer,
    /// Pages and roots are encrypted.
    pub encrypted: bool,
}

/// Why a slot does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotError {
    Invalid,
    Version(u32),
}

impl Superblock {
    /// The bytes of a slot.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut out = [0; SUPERBLOCK_BYTES];
        out[..8].copy_from_slice(MAGIC);
        let version = if self.encrypted { VERSION } else { PLAIN_VERSION };
        out[8..12].copy_from_slice(&version.to_le_bytes());
        out[12..16].copy_from_slice(&(UNIT as u32).to_le_bytes());
        out[16..32].copy_from_slice(&self.file_id.to_le_bytes());
        out[32..40].copy_from_slice(&self.generation.to_le_bytes());
        out[40..48].copy_from_slice(&self.lsn.to_le_bytes());
        out[48..56].copy_from_slice(&self.written_ms.to_le_bytes());
        out[56..64].copy_from_slice(&self.next_segment.to_le_bytes());
        out[64..92].copy_from_slice(&self.table.encode());
        out[92..120].copy_from_slice(&self.root.encode());
        if self.encrypted {
            out[120..122].copy_from_slice(&AES_256_GCM.to_le_bytes());
        }
        let sum = xxh3_64(&out[..SUM_AT]);
        out[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads a slot; `None` where it is not a whole superblock of this format version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Self::decode_slot(bytes).ok()
    }

    pub(crate) fn decode_slot(bytes: &[u8]) -> Result<Self, SlotError> {
        let bytes: &[u8; 512] = bytes.first_chunk().ok_or(SlotError::Invalid)?;
        if &bytes[..8] != MAGIC || xxh3_64(&bytes[..SUM_AT]) != u64_at(bytes, SUM_AT) {
            return Err(SlotError::Invalid);
        }
        let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        let cipher = u16::from_le_bytes([bytes[120], bytes[121]]);
        let encrypted = match (version, cipher) {
            (PLAIN_VERSION, _) => false,
            (VERSION, AES_256_GCM) => true,
            _ => return Err(SlotError::Version(version)),
        };
        let unit = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        let low = u128::from(u64_at(bytes, 16));
        let high = u128::from(u64_at(bytes, 24));
        let decoded = Self {
            file_id: low | high << 64,
            generation: u64_at(bytes, 32),
            lsn: u64_at(bytes, 40),
            written_ms: u64_at(bytes, 48).cast_signed(),
            next_segment: u64_at(bytes, 56),
            table: BlobPointer::decode(bytes[64..92].first_chunk().ok_or(SlotError::Invalid)?),
            root: BlobPointer::decode(bytes[92..120].first_chunk().ok_or(SlotError::Invalid)?),
            encrypted,
        };
        // Counters that something could overflow are of no file that was ever written.
        let counts = [decoded.next_segment, decoded.generation];
        if u64::from(unit) != UNIT || counts.iter().any(|count| !COUNTS.contains(count)) {
            return Err(SlotError::Invalid);
        }
        Ok(decoded)
    }

    /// Where this generation is written.
    pub(crate) fn slot_offset(generation: u64) -> u64 {
        (generation % 2) * SUPERBLOCK_BYTES as u64
    }
}

fn u64_at(bytes: &[u8; 512], at: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Superblock {
        Superblock {
            file_id: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
            generation: 9,
            lsn: 1 << 40,
            written_ms: -5,
            next_segment: 77,
            table: BlobPointer { unit: 5, units: 2, bytes: 5000, checksum: 42 },
            root: BlobPointer::NONE,
            encrypted: false,
        }
    }

    #[test]
    fn fields_come_back() {
        for encrypted in [false, true] {
            let expected = Superblock { encrypted, ..sample() };
            let bytes = expected.encode();
            assert_eq!(Superblock::decode(&bytes), Some(expected));
            assert_eq!(bytes[8], if encrypted { 3 } else { 2 });
        }
    }

    #[test]
    fn every_flipped_bit_is_caught() {
        let bytes = sample().encode();
        for bit in 0..512 * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Superblock::decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn counts_that_could_overflow_are_refused() {
        for count in [0, COUNTS.end + 1, u64::MAX] {
            let superblock = Superblock { next_segment: count, ..sample() };
            assert_eq!(Superblock::decode(&superblock.encode()), None, "segment {count}");
            let superblock = Superblock { generation: count, ..sample() };
            assert_eq!(Superblock::decode(&superblock.encode()), None, "generation {count}");
        }
    }

    #[test]
    fn newer_version_is_told_apart_from_damage() {
        // Also one with a cipher that is not known.
        for (version, cipher) in [(4, 0), (4, 1), (3, 0), (3, 2)] {
            let mut bytes = sample().encode();
            (bytes[8], bytes[120]) = (version, cipher);
            let sum = xxh3_64(&bytes[..SUM_AT]);
            bytes[SUM_AT..512].copy_from_slice(&sum.to_le_bytes());
            let found = Superblock::decode_slot(&bytes);
            assert_eq!(found, Err(SlotError::Version(version.into())));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..600),
            seal: bool,
        ) {
            if seal && bytes.len() >= 512 {
                bytes[..8].copy_from_slice(MAGIC);
                let sum = xxh3_64(&bytes[..SUM_AT]);
                bytes[SUM_AT..512].copy_from_slice(&sum.to_le_bytes());
            }
            let _either = Superblock::decode(&bytes);
        }
    }
}
