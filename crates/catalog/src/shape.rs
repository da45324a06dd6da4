//! The storage shape that users ask for, as the engine takes and tells it.

use engine::{Compression, DictionaryOptions};
use indexkeys::StorageOptions;

/// The engine's options: those of `base` where nothing else is set.
pub(crate) fn over(storage: &StorageOptions, base: DictionaryOptions) -> DictionaryOptions {
    let read_page_size = storage.read_page_size.unwrap_or(base.read_page_size);
    DictionaryOptions {
        compression: storage.compression.map_or(base.compression, engines),
        // One of the two may be a default that the other outgrows or undercuts.
        page_size: storage.page_size.unwrap_or(base.page_size.max(read_page_size)),
        read_page_size: read_page_size.min(storage.page_size.unwrap_or(u32::MAX)),
        fanout: storage.fanout.unwrap_or(base.fanout),
        leaf_filter: base.leaf_filter,
    }
}

fn engines(asked: indexkeys::Compression) -> Compression {
    match asked {
        indexkeys::Compression::None => Compression::None,
        indexkeys::Compression::Lz4 => Compression::Lz4,
        indexkeys::Compression::Zlib(level) => Compression::Zlib(level),
        indexkeys::Compression::ZstdDefault => Compression::ZstdDefault,
        indexkeys::Compression::Zstd(level) => Compression::Zstd(level),
    }
}

/// What a dictionary's compression is called in replies.
pub fn compression_name(compression: Compression) -> String {
    indexkeys::compression_name(match compression {
        Compression::None => indexkeys::Compression::None,
        Compression::Lz4 => indexkeys::Compression::Lz4,
        Compression::Zlib(level) => indexkeys::Compression::Zlib(level),
        Compression::ZstdDefault => indexkeys::Compression::ZstdDefault,
        Compression::Zstd(level) => indexkeys::Compression::Zstd(level),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_size_moves_the_other_only_where_it_must() {
        let base = DictionaryOptions::default();
        let small = StorageOptions { page_size: Some(8 << 10), ..Default::default() };
        let small = over(&small, base);
        assert_eq!((small.page_size, small.read_page_size), (8 << 10, 8 << 10));
        let base = DictionaryOptions { page_size: 64 << 10, ..base };
        let wide = StorageOptions { read_page_size: Some(128 << 10), ..Default::default() };
        assert_eq!(
            (over(&wide, base).page_size, over(&wide, base).read_page_size),
            (128 << 10, 128 << 10)
        );
    }
}
