//! Pages: the unit that is compressed, checksummed and read.
//!
//! ```text
//! 0   u8   compression method (0 none, 1 lz4, 2 zlib, 3 zstd, 4 zstd with a dictionary)
//! 1   u8   flags: bit 0, encrypted
//! 2   u16  number of the data key; 0 where it is not encrypted
//! 4   u32  stored length
//! 8   u32  raw length
//! 12  u64  checksum
//! 20  …    stored bytes; encrypted: salt [16] · encrypted bytes · tag [16]
//! ```
//!
//! The checksum is xxh3-64 of the stored bytes, seeded with the xxh3-64 of the page's address
//! (dictionary, segment, page) and the first 12 header bytes. So a page that was flipped, torn,
//! or read from where another page lives never decodes.
//!
//! A page is compressed, then encrypted. The key is derived from the segment's salt, the nonce is the
//! page's number; address and header are bound to the tag. For the checksum of an encrypted page the
//! dictionary counts as 0: which one it is is not known to who checks without a key.
//!
//! On disk: `docs/formats/page.md`.

use crypt::{FreshKey, KeyNumber, KeyRing, Nonce, Purpose, SALT_BYTES, TAG_BYTES};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::compress::{Compression, METHOD_NONE, METHOD_ZSTD_DICTIONARY, compress, decompress};
use crate::compression_dictionary::{DictionaryCompressor, DictionaryDecompressor};

/// Bytes before a page's stored bytes.
pub const PAGE_HEADER_BYTES: usize = 20;

/// The longest raw page: above the longest document with its keys.
pub const MAX_PAGE_BYTES: usize = 64 << 20;

const ENCRYPTED: u8 = 1;

/// How one page is compressed.
#[derive(Clone, Copy, Debug)]
pub enum PageCompression<'a> {
    /// By itself.
    Alone(Compression),
    /// With what it has in common with others.
    With(&'a DictionaryCompressor),
}

impl From<Compression> for PageCompression<'_> {
    fn from(method: Compression) -> Self {
        Self::Alone(method)
    }
}

impl PageCompression<'_> {
    /// Bytes that a page takes in a file that is not encrypted.
    pub fn stored_bytes(self, raw: &[u8]) -> usize {
        let mut out = Vec::new();
        self.compress(raw, &mut out);
        PAGE_HEADER_BYTES + out.len()
    }

    /// Appends the compressed form of `raw` to `out` where it is shorter than `raw`, and says by which method; otherwise
    /// appends `raw`.
    fn compress(self, raw: &[u8], out: &mut Vec<u8>) -> u8 {
        let start = out.len();
        let method = match self {
            Self::Alone(method) => compress(method, raw, out).then_some(method.method()),
            Self::With(dictionary) => {
                out.resize(start + raw.len().saturating_sub(1), 0);
                let written = dictionary.compress(raw, &mut out[start..]);
                out.truncate(start + written.unwrap_or(0));
                written.map(|_| METHOD_ZSTD_DICTIONARY)
            }
        };
        method.unwrap_or_else(|| {
            out.extend_from_slice(raw);
            METHOD_NONE
        })
    }
}

/// The address of a page, covered by its checksum, or its tag.
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
    /// It was compressed with a dictionary, and who reads it has none.
    #[error("page needs a compression dictionary that its segment does not name")]
    NoDictionary,
    /// The checksum is right, and the tag is not: it was changed by somebody, or belongs elsewhere.
    #[error("page does not decrypt")]
    NotAuthentic,
    /// It is encrypted, and there is no key.
    #[error("page is encrypted, and there is no key for it")]
    NoKey,
    /// It is not encrypted, and there are keys, so that it has to be.
    #[error("page is not encrypted, in a file that is")]
    Plain,
}

impl PageError {
    /// What is wrong, in a phrase.
    pub fn text(self) -> &'static str {
        match self {
            Self::Short => "page is cut short",
            Self::Checksum => "page checksum differs",
            Self::Header => "page header is invalid",
            Self::Compression => "page does not decompress",
            Self::NoDictionary => {
                "page needs a compression dictionary that its segment does not name"
            }
            Self::NotAuthentic => "page does not decrypt",
            Self::NoKey => "page is encrypted, and there is no key for it",
            Self::Plain => "page is not encrypted, in a file that is",
        }
    }
}

/// Appends the page to `out`. What does not get shorter is stored as it is. With the key of its segment
/// it is encrypted.
pub fn encode_page(
    context: PageContext,
    compression: PageCompression<'_>,
    key: Option<&FreshKey>,
    raw: &[u8],
    out: &mut Vec<u8>,
) {
    assert!(raw.len() <= MAX_PAGE_BYTES, "a page is at most MAX_PAGE_BYTES");
    let start = out.len();
    let body = start + PAGE_HEADER_BYTES + if key.is_some() { SALT_BYTES } else { 0 };
    out.resize(body, 0);
    let method = compression.compress(raw, out);
    let tag_bytes = if key.is_some() { TAG_BYTES } else { 0 };
    let stored_len = out.len() - start - PAGE_HEADER_BYTES + tag_bytes;
    let header = &mut out[start..start + PAGE_HEADER_BYTES];
    header[0] = method;
    header[4..8].copy_from_slice(&(stored_len as u32).to_le_bytes());
    header[8..12].copy_from_slice(&(raw.len() as u32).to_le_bytes());
    if let Some(key) = key {
        header[1] = ENCRYPTED;
        header[2..4].copy_from_slice(&key.number.0.to_le_bytes());
        let bound = address(context, &header[..12]);
        out[body - SALT_BYTES..body].copy_from_slice(&key.salt);
        let tag = key.cipher.encrypt(nonce(context), &bound, &mut out[body..]);
        out.extend_from_slice(&tag.expect("a page is shorter than what the cipher can encrypt"));
    }
    let (header, stored) = out[start..].split_at_mut(PAGE_HEADER_BYTES);
    let sum = checksum(context, &header[..12], stored);
    header[12..20].copy_from_slice(&sum.to_le_bytes());
    let length = page_stored_len(&out[start..]);
    debug_assert_eq!(length, Some(out.len() - start), "a page says how long it is");
}

/// Replaces `out` with the raw bytes of the page that starts at `bytes[0]`; says how many bytes
/// of `bytes` the page took. With keys it has to be encrypted. The compression dictionary is the one that its segment names.
/// On an error `out` holds nothing meaningful.
pub fn decode_page(
    context: PageContext,
    keys: Option<&KeyRing>,
    dictionary: Option<&DictionaryDecompressor>,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<usize, PageError> {
    let (header, stored) = checked(context, bytes)?;
    let end = PAGE_HEADER_BYTES + stored.len();
    let raw_len = u32_at(header, 8) as usize;
    if raw_len > MAX_PAGE_BYTES {
        return Err(PageError::Header);
    }
    let decrypted;
    let compressed = match (header[1], keys) {
        (0, None) if header[2..4] == [0; 2] => stored,
        (0, None) => return Err(PageError::Header),
        (0, Some(_)) => return Err(PageError::Plain),
        (ENCRYPTED, None) => return Err(PageError::NoKey),
        (ENCRYPTED, Some(keys)) => {
            decrypted = decrypt(context, keys, header, stored)?;
            &decrypted[..]
        }
        _ => return Err(PageError::Header),
    };
    // What is there already is overwritten, not made zero before.
    out.resize(raw_len, 0);
    let whole = match (header[0], dictionary) {
        (METHOD_ZSTD_DICTIONARY, None) => return Err(PageError::NoDictionary),
        (METHOD_ZSTD_DICTIONARY, Some(dictionary)) => {
            dictionary.decompress(compressed, out) == Some(raw_len)
        }
        (method, _) => decompress(method, compressed, out),
    };
    if whole { Ok(end) } else { Err(PageError::Compression) }
}

/// How many bytes the page that starts at `bytes[0]` takes, by its checksum alone: of an encrypted page,
/// for who has no key. The dictionary of the address does not count.
pub fn check_encrypted_page(context: PageContext, bytes: &[u8]) -> Result<usize, PageError> {
    check_stored_page(context, true, bytes)
}

/// How many bytes the page that starts at `bytes[0]` takes, by its checksum alone. Where the file is encrypted the
/// page has to be, and the dictionary of the address does not count.
pub fn check_stored_page(
    context: PageContext,
    is_encrypted: bool,
    bytes: &[u8],
) -> Result<usize, PageError> {
    let (header, stored) = checked(context, bytes)?;
    match (header[1], is_encrypted) {
        (0, false) | (ENCRYPTED, true) => Ok(PAGE_HEADER_BYTES + stored.len()),
        (0, true) => Err(PageError::Plain),
        _ => Err(PageError::Header),
    }
}

/// Header and stored bytes, whose checksum is right.
fn checked(
    context: PageContext,
    bytes: &[u8],
) -> Result<(&[u8; PAGE_HEADER_BYTES], &[u8]), PageError> {
    let header = bytes.first_chunk::<PAGE_HEADER_BYTES>().ok_or(PageError::Short)?;
    let stored_len = u32_at(header, 4) as usize;
    let end = PAGE_HEADER_BYTES.checked_add(stored_len).ok_or(PageError::Short)?;
    let stored = bytes.get(PAGE_HEADER_BYTES..end).ok_or(PageError::Short)?;
    let mut sum = [0; 8];
    sum.copy_from_slice(&header[12..20]);
    if checksum(context, &header[..12], stored) != u64::from_le_bytes(sum) {
        return Err(PageError::Checksum);
    }
    Ok((header, stored))
}

/// The compressed bytes of an encrypted page.
fn decrypt(
    context: PageContext,
    keys: &KeyRing,
    header: &[u8; PAGE_HEADER_BYTES],
    stored: &[u8],
) -> Result<Vec<u8>, PageError> {
    let (salt, encrypted) = stored.split_first_chunk().ok_or(PageError::Header)?;
    let number = KeyNumber(u16::from_le_bytes([header[2], header[3]]));
    let cipher = keys.cipher(number, Purpose::DataFile, salt).map_err(|_| PageError::NoKey)?;
    let mut bytes = encrypted.to_vec();
    let bound = address(context, &header[..12]);
    let plain = cipher.decrypt(nonce(context), &bound, &mut bytes);
    let length = plain.map_err(|_| PageError::NotAuthentic)?.len();
    bytes.truncate(length);
    Ok(bytes)
}

/// A segment's key encrypts each page of it once.
fn nonce(context: PageContext) -> Nonce {
    Nonce::counted(u64::from(context.page), 0)
}

/// The whole length (header and stored bytes) of the page whose header starts at `bytes[0]`, not
/// yet checked against its checksum. For readers that walk pages.
pub fn page_stored_len(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<PAGE_HEADER_BYTES>()?;
    PAGE_HEADER_BYTES.checked_add(u32_at(header, 4) as usize)
}

fn checksum(context: PageContext, header: &[u8], stored: &[u8]) -> u64 {
    let dictionary = if header[1] == ENCRYPTED { 0 } else { context.dictionary };
    let address = address(PageContext { dictionary, ..context }, header);
    xxh3_64_with_seed(stored, xxh3_64(&address))
}

/// What says where a page belongs and what it is.
fn address(context: PageContext, header: &[u8]) -> [u8; 32] {
    let mut address = [0; 32];
    address[..8].copy_from_slice(&context.dictionary.to_le_bytes());
    address[8..16].copy_from_slice(&context.segment.to_le_bytes());
    address[16..20].copy_from_slice(&context.page.to_le_bytes());
    address[20..].copy_from_slice(header);
    address
}

fn u32_at(header: &[u8; PAGE_HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[cfg(test)]
mod tests;
