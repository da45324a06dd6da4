//! Compression dictionaries: what pages that look alike have in common, so that a small page is compressed as well as a large one
//! alone. A tree makes one from some of its pages and keeps it in a segment of its own.
//!
//! Always true: a page that was compressed with one is decoded with that one or not at all. zstd writes the number of
//! the dictionary into what it compresses, and compares.

use std::cell::RefCell;
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict};

/// Longer ones are not taken: nobody makes them.
const MOST_BYTES: usize = 64 << 10;

/// What [`train_dictionary`] takes of memory beside the pages, at most: counts of a million pieces of text, twice (10.7 MB were measured).
pub const TRAINING_BYTES: u64 = 12 << 20;

/// What a [`DictionaryDecompressor`] takes of memory beside the bytes it was made of: zstd's tables.
pub const DECOMPRESSOR_BYTES: u64 = 28 << 10;

thread_local! {
    static OUT: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static IN: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Makes a dictionary of at most `most` bytes from pages that lie one behind the other, of these lengths. None where they have too
/// little in common, or are too few. Takes some 50 ms for 256 KiB.
pub fn train_dictionary(pages: &[u8], lengths: &[usize], most: usize) -> Option<Vec<u8>> {
    assert_eq!(pages.len(), lengths.iter().sum::<usize>(), "every page is there");
    zstd::dict::from_continuous(pages, lengths, most).ok()
}

/// Compresses pages with a dictionary, by zstd.
pub struct DictionaryCompressor(CDict<'static>);

impl DictionaryCompressor {
    /// At a level of zstd, 1 to 22. None where the bytes are not a dictionary's.
    pub fn new(dictionary: &[u8], level: u8) -> Option<Self> {
        is_trained(dictionary).then(|| CDict::try_create(dictionary, i32::from(level)))?.map(Self)
    }

    /// Into `out`, where it is shorter than that; says how long it is.
    pub(crate) fn compress(&self, raw: &[u8], out: &mut [u8]) -> Option<usize> {
        OUT.with_borrow_mut(|kept| {
            if kept.is_none() {
                *kept = CCtx::try_create();
            }
            kept.as_mut()?.compress_using_cdict(out, raw, &self.0).ok()
        })
    }
}

/// Decodes pages that were compressed with a dictionary.
pub struct DictionaryDecompressor(DDict<'static>);

impl DictionaryDecompressor {
    /// None where the bytes are not a dictionary's.
    pub fn new(dictionary: &[u8]) -> Option<Self> {
        is_trained(dictionary).then(|| DDict::try_create(dictionary))?.map(Self)
    }

    /// Into `out`, as far as there is room; says how much.
    pub(crate) fn decompress(&self, stored: &[u8], out: &mut [u8]) -> Option<usize> {
        IN.with_borrow_mut(|kept| {
            if kept.is_none() {
                *kept = DCtx::try_create();
            }
            kept.as_mut()?.decompress_using_ddict(out, stored, &self.0).ok()
        })
    }
}

/// It has a number and tables. Other bytes would be taken for text alone, and pages would not name it.
fn is_trained(dictionary: &[u8]) -> bool {
    dictionary.len() <= MOST_BYTES && zstd::zstd_safe::get_dict_id_from_dict(dictionary).is_some()
}

impl std::fmt::Debug for DictionaryCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DictionaryCompressor").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for DictionaryDecompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DictionaryDecompressor").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of rows that look alike, one behind the other, and their lengths.
    fn pages(seed: usize) -> (Vec<u8>, Vec<usize>) {
        let row = |n: usize| format!("ticker=T{:05} open={} source=feed-{seed};", n * 7919, n * 31);
        let pages: Vec<_> = (0..64)
            .map(|page| (0..40).map(|n| row(page * 40 + n)).collect::<String>().into_bytes())
            .collect();
        (pages.concat(), pages.iter().map(Vec::len).collect())
    }

    fn trained(seed: usize) -> Vec<u8> {
        let (text, lengths) = pages(seed);
        train_dictionary(&text, &lengths, 4096).expect("rows look alike")
    }

    #[test]
    fn pages_come_back_with_their_dictionary_and_with_no_other() {
        let (text, lengths) = pages(1);
        let page = &text[..lengths[0]];
        let compressor = DictionaryCompressor::new(&trained(1), 3).unwrap();
        let mut stored = vec![0; page.len()];
        let length = compressor.compress(page, &mut stored).unwrap();
        let mut alone = Vec::new();
        assert!(crate::compress(crate::Compression::Zstd(3), page, &mut alone));
        assert!(length < alone.len(), "{length} bytes with a dictionary, {} alone", alone.len());
        let mut back = vec![0; page.len()];
        let own = DictionaryDecompressor::new(&trained(1)).unwrap();
        assert_eq!(own.decompress(&stored[..length], &mut back), Some(page.len()));
        assert_eq!(back, page);
        let other = DictionaryDecompressor::new(&trained(2)).unwrap();
        assert_eq!(other.decompress(&stored[..length], &mut back), None);
        assert_eq!(own.decompress(&stored[..length - 1], &mut back), None);
    }

    #[test]
    fn training_is_the_same_each_time() {
        assert_eq!(trained(1), trained(1));
    }

    #[test]
    fn what_is_not_a_dictionary_is_refused() {
        let trained = trained(1);
        for bytes in [&b""[..], b"fern", &trained[..8], &[7; 5000], &vec![0; MOST_BYTES + 1]] {
            assert!(DictionaryCompressor::new(bytes, 3).is_none());
            assert!(DictionaryDecompressor::new(bytes).is_none());
        }
        assert!(train_dictionary(b"", &[], 4096).is_none());
        assert!(train_dictionary(b"short", &[5], 4096).is_none());
    }

    #[test]
    fn a_damaged_dictionary_ends_nothing() {
        let trained = trained(1);
        let (text, lengths) = pages(1);
        let mut stored = vec![0; lengths[0]];
        let compressor = DictionaryCompressor::new(&trained, 3).unwrap();
        let length = compressor.compress(&text[..lengths[0]], &mut stored).unwrap();
        for at in (0..trained.len()).step_by(3) {
            let mut damaged = trained.clone();
            damaged[at] ^= 0x55;
            if let Some(compressor) = DictionaryCompressor::new(&damaged, 3) {
                let _either = compressor.compress(&text[..lengths[0]], &mut vec![0; lengths[0]]);
            }
            if let Some(decompressor) = DictionaryDecompressor::new(&damaged) {
                let _either = decompressor.decompress(&stored[..length], &mut vec![0; lengths[0]]);
            }
        }
    }
}
