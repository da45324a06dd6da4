//! Pages: the unit that is compressed, checksummed and read.
//!
//! ```text
//! 0   u8   compression method (0 none, 1 lz4, 2 zlib, 3 zstd)
//! 1   u8   flags, 0
//! 2   u16  reserved, 0
//! 4   u32  stored length
//! 8   u32  raw length
//! 12  u64  checksum
//! 20  …    stored bytes
//! ```
//!
//! The checksum is xxh3-64 of the stored bytes, seeded with the xxh3-64 of the page's address
//! (dictionary, segment, page) and the first 12 header bytes. So a page that was flipped, torn,
//! or read from where another page lives never decodes.
//!
//! On disk: `docs/formats/page.md`.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::compress::{Compression, METHOD_NONE, compress, decompress};

/// Bytes before a page's stored bytes.
pub const PAGE_HEADER_BYTES: usize = 20;

/// The longest raw page: above the longest document with its keys.
pub const MAX_PAGE_BYTES: usize = 64 << 20;

/// The address of a page, covered by its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageContext {
    /// The dictionary it belongs to.
    pub dictionary: u64,
    /// The segment it is in.
    pub segment: u64,
    /// Its number in the segment.
    pub page: u32,
}

/// Why a page does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// Fewer bytes than the header, or than the header says.
    #[error("page is cut short")]
    Short,
    /// Not the bytes that were written for this address.
    #[error("page checksum differs")]
    Checksum,
    /// The checksum is right and the header is not one we write.
    #[error("page header is invalid")]
    Header,
    /// The checksum is right and the bytes do not decompress.
    #[error("page does not decompress")]
    Compression,
}

impl PageError {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Short => "page is cut short",
            Self::Checksum => "page checksum differs",
            Self::Header => "page header is invalid",
            Self::Compression => "page does not decompress",
        }
    }
}

/// Appends the page to `out`. What does not get shorter is stored as it is.
pub fn encode_page(context: PageContext, method: Compression, raw: &[u8], out: &mut Vec<u8>) {
    assert!(raw.len() <= MAX_PAGE_BYTES, "a page is at most MAX_PAGE_BYTES");
    let start = out.len();
    out.resize(start + PAGE_HEADER_BYTES, 0);
    let method = if compress(method, raw, out) {
        method.method()
    } else {
        out.extend_from_slice(raw);
        METHOD_NONE
    };
    let (header, stored) = out[start..].split_at_mut(PAGE_HEADER_BYTES);
    header[0] = method;
    header[4..8].copy_from_slice(&(stored.len() as u32).to_le_bytes());
    header[8..12].copy_from_slice(&(raw.len() as u32).to_le_bytes());
    let sum = checksum(context, &header[..12], stored);
    header[12..20].copy_from_slice(&sum.to_le_bytes());
    let length = page_stored_len(&out[start..]);
    debug_assert_eq!(length, Some(out.len() - start), "a page says how long it is");
}

/// Replaces `out` with the raw bytes of the page that starts at `bytes[0]`; says how many bytes
/// of `bytes` the page took. On an error `out` holds nothing meaningful.
pub fn decode_page(
    context: PageContext,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<usize, PageError> {
    let header = bytes.first_chunk::<PAGE_HEADER_BYTES>().ok_or(PageError::Short)?;
    let stored_len = u32_at(header, 4) as usize;
    let raw_len = u32_at(header, 8) as usize;
    let end = PAGE_HEADER_BYTES.checked_add(stored_len).ok_or(PageError::Short)?;
    let stored = bytes.get(PAGE_HEADER_BYTES..end).ok_or(PageError::Short)?;
    let mut sum = [0; 8];
    sum.copy_from_slice(&header[12..20]);
    if checksum(context, &header[..12], stored) != u64::from_le_bytes(sum) {
        return Err(PageError::Checksum);
    }
    if raw_len > MAX_PAGE_BYTES || header[1..4] != [0; 3] {
        return Err(PageError::Header);
    }
    out.clear();
    out.resize(raw_len, 0);
    if decompress(header[0], stored, out) { Ok(end) } else { Err(PageError::Compression) }
}

/// The whole length (header and stored bytes) of the page whose header starts at `bytes[0]`, not
/// yet checked against its checksum. For readers that walk pages.
pub fn page_stored_len(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<PAGE_HEADER_BYTES>()?;
    PAGE_HEADER_BYTES.checked_add(u32_at(header, 4) as usize)
}

fn checksum(context: PageContext, header: &[u8], stored: &[u8]) -> u64 {
    let mut address = [0; 32];
    address[..8].copy_from_slice(&context.dictionary.to_le_bytes());
    address[8..16].copy_from_slice(&context.segment.to_le_bytes());
    address[16..20].copy_from_slice(&context.page.to_le_bytes());
    address[20..].copy_from_slice(header);
    xxh3_64_with_seed(stored, xxh3_64(&address))
}

fn u32_at(header: &[u8; PAGE_HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HERE: PageContext = PageContext { dictionary: 3, segment: 70, page: 5 };
    const METHODS: [Compression; 4] =
        [Compression::None, Compression::Lz4, Compression::Zlib(6), Compression::Zstd(3)];

    fn encoded(method: Compression, raw: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_page(HERE, method, raw, &mut out);
        out
    }

    #[test]
    fn every_method_returns_the_bytes() {
        let noise: Vec<u8> =
            (0..4000_u32).map(|i| (i.wrapping_mul(2654435761) >> 24) as u8).collect();
        for method in METHODS {
            for raw in [&b""[..], b"x", &noise, &b"ab".repeat(9000)] {
                let mut page = encoded(method, raw);
                let len = page.len();
                assert!(len <= raw.len() + PAGE_HEADER_BYTES);
                assert_eq!(page_stored_len(&page), Some(len));
                page.extend_from_slice(b"the next page");
                let mut back = Vec::new();
                assert_eq!(decode_page(HERE, &page, &mut back), Ok(len));
                assert_eq!(back, raw);
            }
        }
    }

    #[test]
    fn incompressible_page_is_stored_raw() {
        let mut noise = vec![0; 1000];
        let mut state = 1_u64;
        for byte in &mut noise {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (state >> 56) as u8;
        }
        for method in METHODS {
            let page = encoded(method, &noise);
            assert_eq!((page[0], page.len()), (METHOD_NONE, 1000 + PAGE_HEADER_BYTES));
        }
    }

    #[test]
    fn page_of_another_address_is_refused() {
        let page = encoded(Compression::Lz4, &[1; 500]);
        let others = [
            PageContext { dictionary: 4, ..HERE },
            PageContext { segment: 71, ..HERE },
            PageContext { page: 6, ..HERE },
        ];
        for other in others {
            let refused = decode_page(other, &page, &mut Vec::new());
            assert_eq!(refused, Err(PageError::Checksum));
        }
    }

    #[test]
    fn every_flipped_bit_is_caught() {
        let page = encoded(Compression::Zstd(3), &b"fern".repeat(30));
        for bit in 0..page.len() * 8 {
            let mut bad = page.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_page(HERE, &bad, &mut Vec::new()).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _refused = decode_page(HERE, &bytes, &mut Vec::new());
            let _length = page_stored_len(&bytes);
        }

        #[test]
        fn arbitrary_stored_bytes_behind_a_right_checksum_never_panic(
            method in 0_u8..5,
            raw_len in 0_u32..2000,
            stored in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut page = vec![method, 0, 0, 0];
            page.extend_from_slice(&(stored.len() as u32).to_le_bytes());
            page.extend_from_slice(&raw_len.to_le_bytes());
            let sum = checksum(HERE, &page, &stored);
            page.extend_from_slice(&sum.to_le_bytes());
            page.extend_from_slice(&stored);
            let _either = decode_page(HERE, &page, &mut Vec::new());
        }

        #[test]
        fn any_bytes_come_back(raw in prop::collection::vec(any::<u8>(), 0..5000), m in 0_usize..4) {
            let mut back = Vec::new();
            decode_page(HERE, &encoded(METHODS[m], &raw), &mut back).unwrap();
            prop_assert_eq!(back, raw);
        }
    }
}
