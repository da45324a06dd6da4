//! Segment files: names and headers.
//!
//! ```text
//! 0     [8]  magic "FERNLOG\0"
//! 8     u32  format version: 3, or 4 where the payloads are encrypted; before records were compressed 1 and 2
//! 12    u32  number of the data key; 0 in a plain log
//! 16    u64  number of the segment, as in its name
//! 24    u64  salt of the epoch
//! 32    u64  LSN of the first byte of the body
//! 40    u64  bytes of the body
//! 48    u64  number of the segment before, 0 for none
//! 56    [16] salt of the epoch's key; zeros in a plain log
//! 72    …    zeros
//! 508   u32  crc32c of bytes 0..508
//! 512   the same again, so that one damaged sector loses no segment
//! 1024  body
//! ```
//!
//! A file that was let go of, to be used again, has in the header's place a mark that says so: magic
//! `FERNFREE`, zeros, crc32c at 508, twice. Zeros are a lost header there, and no mark.

use crypt::{KeyNumber, SALT_BYTES};

use crate::Lsn;

/// Bytes before the body.
pub const HEADER_BYTES: usize = 1024;
/// The formats of a log whose payloads are plain: the first is of programs that did not compress records.
const PLAIN_VERSIONS: [u32; 2] = [1, 3];
/// The formats of one whose payloads are encrypted.
const ENCRYPTED_VERSIONS: [u32; 2] = [2, 4];
/// The newest that is known.
pub(crate) const VERSION: u32 = 4;

/// The name of a file that was made ahead of its use.
pub(crate) const PREPARED_NAME: &str = "log.prepared";

const COPY: usize = 512;
const MAGIC: &[u8; 8] = b"FERNLOG\0";
const FREE_MAGIC: &[u8; 8] = b"FERNFREE";
const PREFIX: &str = "log.";
const SUFFIX: &str = ".fernlog";

/// The name of a segment's file.
pub fn segment_name(number: u64) -> String {
    format!("{PREFIX}{number:08}{SUFFIX}")
}

/// The number in a file's name; `None` where it is no segment.
pub fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let number = digits.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}

/// Where the key of an encrypted epoch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochKey {
    /// The data key.
    pub number: KeyNumber,
    /// What the epoch's key is derived from it with.
    pub salt: [u8; SALT_BYTES],
}

/// What the header of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// As in the name.
    pub number: u64,
    /// Of the epoch that wrote it.
    pub salt: u64,
    /// Position of the first body byte.
    pub first_lsn: Lsn,
    /// Length of the body.
    pub body_bytes: u64,
    /// Number of the segment that holds the bytes before; 0 for none.
    pub previous: u64,
    /// Of the epoch that wrote it, where its payloads are encrypted.
    pub key: Option<EpochKey>,
}

/// Why a header does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Invalid,
    Version(u32),
}

impl SegmentHeader {
    /// One past the last position the body can hold.
    pub fn end_lsn(&self) -> Lsn {
        self.first_lsn.saturating_add(self.body_bytes)
    }

    /// Both copies.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut copy = [0; COPY];
        copy[..8].copy_from_slice(MAGIC);
        let [_, version] = if self.key.is_some() { ENCRYPTED_VERSIONS } else { PLAIN_VERSIONS };
        copy[8..12].copy_from_slice(&version.to_le_bytes());
        if let Some(EpochKey { number, salt }) = &self.key {
            copy[12..16].copy_from_slice(&u32::from(number.0).to_le_bytes());
            copy[56..56 + SALT_BYTES].copy_from_slice(salt);
        }
        copy[16..24].copy_from_slice(&self.number.to_le_bytes());
        copy[24..32].copy_from_slice(&self.salt.to_le_bytes());
        copy[32..40].copy_from_slice(&self.first_lsn.to_le_bytes());
        copy[40..48].copy_from_slice(&self.body_bytes.to_le_bytes());
        copy[48..56].copy_from_slice(&self.previous.to_le_bytes());
        let out = twice(copy);
        debug_assert_eq!(Self::decode(self.number, &out), Some(*self), "it reads as written");
        out
    }

    /// Reads the header of the segment with this number from either copy.
    pub fn decode(number: u64, bytes: &[u8]) -> Option<Self> {
        Self::decode_either(number, bytes).ok()
    }

    /// Whether these bytes begin with the header of any segment, whatever the file is called.
    pub(crate) fn is_one(bytes: &[u8]) -> bool {
        copies(bytes).any(|copy| Self::decode_copy(u64_at(copy, 16), copy).is_ok())
    }

    pub(crate) fn decode_either(number: u64, bytes: &[u8]) -> Result<Self, HeaderError> {
        let first = Self::decode_copy(number, bytes.get(..COPY).unwrap_or_default());
        let second = || Self::decode_copy(number, bytes.get(COPY..).unwrap_or_default());
        match first {
            Err(HeaderError::Invalid) => second(),
            known => known,
        }
    }

    fn decode_copy(number: u64, bytes: &[u8]) -> Result<Self, HeaderError> {
        let copy: &[u8; COPY] = bytes.first_chunk().ok_or(HeaderError::Invalid)?;
        if &copy[..8] != MAGIC || !is_whole(copy) {
            return Err(HeaderError::Invalid);
        }
        let key = match u32_at(copy, 8) {
            version if PLAIN_VERSIONS.contains(&version) => None,
            version if ENCRYPTED_VERSIONS.contains(&version) => Some(EpochKey {
                number: KeyNumber(
                    u16::try_from(u32_at(copy, 12)).map_err(|_| HeaderError::Invalid)?,
                ),
                salt: *copy[56..].first_chunk().ok_or(HeaderError::Invalid)?,
            }),
            other => return Err(HeaderError::Version(other)),
        };
        let header = Self {
            number: u64_at(copy, 16),
            salt: u64_at(copy, 24),
            first_lsn: u64_at(copy, 32),
            body_bytes: u64_at(copy, 40),
            previous: u64_at(copy, 48),
            key,
        };
        // far from the end of numbers, so that sums of positions never overflow
        let end = header.first_lsn.checked_add(header.body_bytes);
        let fits = end.is_some_and(|end| end < 1 << 62);
        let aligned = (header.first_lsn | header.body_bytes).is_multiple_of(8);
        let numbers = header.number == number && header.previous < number;
        let usable = fits && aligned && numbers && header.body_bytes != 0;
        if usable { Ok(header) } else { Err(HeaderError::Invalid) }
    }
}

/// What takes the place of the header in a file that is let go of.
pub(crate) fn free_mark() -> [u8; HEADER_BYTES] {
    let mut copy = [0; COPY];
    copy[..8].copy_from_slice(FREE_MAGIC);
    twice(copy)
}

/// Whether a file that begins with these bytes was let go of.
pub(crate) fn is_free(bytes: &[u8]) -> bool {
    copies(bytes).any(|copy| &copy[..8] == FREE_MAGIC && is_whole(copy))
}

/// Both copies of what is told once, with their checksums.
fn twice(mut copy: [u8; COPY]) -> [u8; HEADER_BYTES] {
    let crc = crc32c::crc32c(&copy[..508]);
    copy[508..].copy_from_slice(&crc.to_le_bytes());
    let mut out = [0; HEADER_BYTES];
    out[..COPY].copy_from_slice(&copy);
    out[COPY..].copy_from_slice(&copy);
    out
}

fn copies(bytes: &[u8]) -> impl Iterator<Item = &[u8; COPY]> {
    bytes[..bytes.len().min(HEADER_BYTES)].chunks_exact(COPY).filter_map(<[u8]>::first_chunk)
}

fn is_whole(copy: &[u8; COPY]) -> bool {
    crc32c::crc32c(&copy[..508]) == u32_at(copy, 508)
}

fn u32_at(bytes: &[u8; COPY], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; COPY], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: SegmentHeader = SegmentHeader {
        number: 12,
        salt: 99,
        first_lsn: 4096,
        body_bytes: 800,
        previous: 10,
        key: None,
    };

    #[test]
    fn an_encrypted_epoch_says_where_its_key_comes_from() {
        let key = Some(EpochKey { number: KeyNumber(3), salt: [5; SALT_BYTES] });
        let bytes = SegmentHeader { key, ..SAMPLE }.encode();
        assert_eq!((bytes[8], SAMPLE.encode()[8]), (4, 3));
        assert_eq!(SegmentHeader::decode(12, &bytes), Some(SegmentHeader { key, ..SAMPLE }));
    }

    #[test]
    fn names_and_numbers_agree() {
        assert_eq!(segment_name(7), "log.00000007.fernlog");
        for number in [0, 7, 99_999_999, 100_000_000, u64::MAX] {
            assert_eq!(segment_number(&segment_name(number)), Some(number));
        }
        for name in ["log.7.fernlog", "log.+0000007.fernlog", "log.00000007", "fern.data", ""] {
            assert_eq!(segment_number(name), None, "{name}");
        }
    }

    #[test]
    fn either_copy_is_enough() {
        let bytes = SAMPLE.encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(12, &bad), Some(SAMPLE));
        }
        assert_eq!(SegmentHeader::decode(13, &bytes), None);
        assert_eq!(SegmentHeader::decode(12, &[0; HEADER_BYTES]), None);
    }

    #[test]
    fn a_file_that_was_let_go_of_is_told_from_one_that_lost_its_header() {
        let mark = free_mark();
        assert!(is_free(&mark) && !SegmentHeader::is_one(&mark));
        assert_eq!(SegmentHeader::decode(12, &mark), None);
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = mark;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(is_free(&bad), "either copy is enough");
        }
        assert!(
            !is_free(&[0; HEADER_BYTES]) && !is_free(&SAMPLE.encode()) && !is_free(&mark[..100])
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
            prop_assert_eq!(SegmentHeader::decode(1, &bytes), None);
            if bytes.len() >= COPY {
                bytes[..8].copy_from_slice(MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
                let crc = crc32c::crc32c(&bytes[..508]);
                bytes[508..512].copy_from_slice(&crc.to_le_bytes());
                let _either = SegmentHeader::decode(u64_at(bytes.first_chunk().unwrap(), 16), &bytes);
            }
        }
    }
}
