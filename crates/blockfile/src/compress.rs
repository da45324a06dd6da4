//! The compression methods of pages, each a pure function from bytes to bytes. With a dictionary: [`crate::compression_dictionary`].
//!
//! zstd and zlib contexts are kept per thread, since making one costs more than a 16 KiB page.

use std::cell::RefCell;

/// zlib's level where none is given.
pub const DEFAULT_ZLIB_LEVEL: u8 = 6;
/// zstd's level where none is given: 25 µs to decompress a 16 KiB page at the usual ratio.
pub const DEFAULT_ZSTD_LEVEL: u8 = 3;

/// How a dictionary's pages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// Fastest.
    Lz4,
    /// Level 1 to 9.
    Zlib(u8),
    /// Level 1 to 22.
    Zstd(u8),
}

impl Default for Compression {
    fn default() -> Self {
        Self::Zstd(DEFAULT_ZSTD_LEVEL)
    }
}

/// The first byte of a page header.
pub(crate) const METHOD_NONE: u8 = 0;
const METHOD_LZ4: u8 = 1;
const METHOD_ZLIB: u8 = 2;
const METHOD_ZSTD: u8 = 3;
/// With the compression dictionary that its segment names.
pub(crate) const METHOD_ZSTD_DICTIONARY: u8 = 4;

impl Compression {
    /// Method and level, as stored in a dictionary's options.
    pub fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::None => [METHOD_NONE, 0],
            Self::Lz4 => [METHOD_LZ4, 0],
            Self::Zlib(level) => [METHOD_ZLIB, level],
            Self::Zstd(level) => [METHOD_ZSTD, level],
        }
    }

    /// The reverse of [`Compression::to_bytes`]; `None` for what no version wrote.
    pub fn from_bytes(bytes: [u8; 2]) -> Option<Self> {
        match bytes {
            [METHOD_NONE, 0] => Some(Self::None),
            [METHOD_LZ4, 0] => Some(Self::Lz4),
            [METHOD_ZLIB, level @ 1..=9] => Some(Self::Zlib(level)),
            [METHOD_ZSTD, level @ 1..=22] => Some(Self::Zstd(level)),
            _ => None,
        }
    }

    pub(crate) fn method(self) -> u8 {
        self.to_bytes()[0]
    }
}

thread_local! {
    static ZSTD_OUT: RefCell<Option<(u8, zstd::bulk::Compressor<'static>)>> = const { RefCell::new(None) };
    static ZSTD_IN: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    static ZLIB_OUT: RefCell<Option<(u8, flate2::Compress)>> = const { RefCell::new(None) };
    static ZLIB_IN: RefCell<Option<flate2::Decompress>> = const { RefCell::new(None) };
}

/// Appends the compressed form of `raw` to `out` where it is shorter than `raw`; otherwise leaves
/// `out` as it was and says `false`.
pub fn compress(method: Compression, raw: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    if raw.len() < 2 || method == Compression::None {
        return false;
    }
    // one byte less than raw: what does not fit is not worth storing compressed; only lz4 insists
    // on room for its worst case
    let most = raw.len() - 1;
    let room = match method {
        Compression::Lz4 => lz4_flex::block::get_maximum_output_size(raw.len()),
        _ => most,
    };
    out.resize(start + room, 0);
    let written = match method {
        Compression::None => None,
        Compression::Lz4 => lz4_flex::block::compress_into(raw, &mut out[start..]).ok(),
        Compression::Zlib(level) => deflate(level, raw, &mut out[start..]),
        Compression::Zstd(level) => zstd_compress(level, raw, &mut out[start..]),
    };
    let written = written.filter(|len| *len <= most);
    out.truncate(start + written.unwrap_or(0));
    written.is_some()
}

fn zstd_compress(level: u8, raw: &[u8], out: &mut [u8]) -> Option<usize> {
    ZSTD_OUT.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(kept_level, _)| *kept_level != level) {
            *kept = Some((level, zstd::bulk::Compressor::new(i32::from(level)).ok()?));
        }
        let (_, compressor) = kept.as_mut()?;
        compressor.compress_to_buffer(raw, out).ok()
    })
}

fn deflate(level: u8, raw: &[u8], out: &mut [u8]) -> Option<usize> {
    ZLIB_OUT.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(kept_level, _)| *kept_level != level) {
            let fresh = flate2::Compress::new(flate2::Compression::new(u32::from(level)), true);
            *kept = Some((level, fresh));
        }
        let (_, compressor) = kept.as_mut()?;
        compressor.reset();
        match compressor.compress(raw, out, flate2::FlushCompress::Finish) {
            Ok(flate2::Status::StreamEnd) => Some(compressor.total_out() as usize),
            _ => None,
        }
    })
}

/// Fills `out`, whose length is the raw length, from `stored`. `false` where the bytes are not the
/// method's (the first of [`Compression::to_bytes`]), or not of that length.
pub fn decompress(method: u8, stored: &[u8], out: &mut [u8]) -> bool {
    let written = match method {
        METHOD_NONE if stored.len() == out.len() => {
            out.copy_from_slice(stored);
            Some(out.len())
        }
        METHOD_LZ4 => lz4_flex::block::decompress_into(stored, out).ok(),
        METHOD_ZLIB => inflate(stored, out),
        METHOD_ZSTD => zstd_decompress(stored, out),
        _ => None,
    };
    written == Some(out.len())
}

fn zstd_decompress(stored: &[u8], out: &mut [u8]) -> Option<usize> {
    ZSTD_IN.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = zstd::bulk::Decompressor::new().ok();
        }
        kept.as_mut()?.decompress_to_buffer(stored, out).ok()
    })
}

fn inflate(stored: &[u8], out: &mut [u8]) -> Option<usize> {
    ZLIB_IN.with_borrow_mut(|kept| {
        let decompressor = kept.get_or_insert_with(|| flate2::Decompress::new(true));
        decompressor.reset(true);
        match decompressor.decompress(stored, out, flate2::FlushDecompress::Finish) {
            Ok(flate2::Status::StreamEnd) if decompressor.total_in() == stored.len() as u64 => {
                Some(decompressor.total_out() as usize)
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_survive_their_two_bytes() {
        let methods =
            [Compression::None, Compression::Lz4, Compression::Zlib(9), Compression::Zstd(22)];
        for method in methods {
            assert_eq!(Compression::from_bytes(method.to_bytes()), Some(method));
        }
        for bytes in [[0, 1], [1, 1], [2, 0], [2, 10], [3, 0], [3, 23], [4, 0]] {
            assert_eq!(Compression::from_bytes(bytes), None);
        }
    }

    #[test]
    fn zstd_is_told_the_size_of_a_page_in_advance() {
        let words = (0..).map(|n: u32| format!("{} fern ", n * n % 9973));
        let page: Vec<u8> = words.flat_map(String::into_bytes).take(16 << 10).collect();
        for level in [1, 3, 19, 22] {
            let mut stored = Vec::new();
            assert!(compress(Compression::Zstd(level), &page, &mut stored));
            // A frame's header: magic, then flags. Told the size, it chooses its parameters for it, and says
            // that the window is the page; the size is in the two bytes that follow, less 256.
            assert_eq!(stored[..4], 0xFD2F_B528_u32.to_le_bytes());
            assert_eq!(
                stored[4] & 0b1110_0000,
                0b0110_0000,
                "a single segment of two bytes of size"
            );
            assert_eq!(stored[5..7], (page.len() as u16 - 256).to_le_bytes());
        }
    }

    #[test]
    fn levels_may_alternate_on_one_thread() {
        let raw = b"fern fern fern fern fern fern fern fern".repeat(20);
        for method in [Compression::Zstd(1), Compression::Zlib(1)] {
            for method in [method, Compression::Zstd(19), Compression::Zlib(9), Compression::Lz4] {
                let mut stored = vec![7];
                assert!(compress(method, &raw, &mut stored));
                assert!(stored.len() < raw.len());
                let mut back = vec![0; raw.len()];
                assert!(decompress(method.method(), &stored[1..], &mut back));
                assert_eq!(back, raw);
            }
        }
    }
}
