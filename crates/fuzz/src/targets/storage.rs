//! What comes from the disk: keys, pages, superblocks, tables.

use crate::Target;
use blockfile::format::{Superblock, decode_table};
use blockfile::{Compression, PageContext};
use bson::{Bson, doc};
use keystring::{Direction, KeyBuilder};

/// Key strings with their type bits: the input's first byte says how many bytes are type bits.
pub(super) const KEY: Target = Target {
    name: "key",
    corpus: || {
        let values = [
            Bson::Int32(5),
            Bson::Double(-0.5),
            Bson::String("a\0b".into()),
            Bson::Document(doc! { "a": [1, 2.5, Bson::Null] }),
            Bson::ObjectId(bson::oid::ObjectId::from_bytes([9; 12])),
        ];
        let mut all = Vec::new();
        for pair in values.windows(2) {
            let mut key = KeyBuilder::new();
            for value in pair {
                key.append_bson(value, Direction::Ascending).expect("a shallow value");
            }
            let (bytes, types) = key.finish();
            let mut input = vec![types.as_bytes().len() as u8];
            input.extend_from_slice(types.as_bytes());
            input.extend_from_slice(&bytes);
            all.push(input);
        }
        all
    },
    start: || {
        Box::new(|bytes| {
            let Some((&length, rest)) = bytes.split_first() else { return };
            let (types, key) = rest.split_at((length as usize).min(rest.len()));
            for directions in [[Direction::Ascending; 2], [Direction::Descending; 2]] {
                let _ = keystring::decode(key, types, &directions).is_ok();
                let _ = keystring::skip(key, &directions).is_ok();
            }
        })
    },
};

const CONTEXT: PageContext = PageContext { dictionary: 7, segment: 9, page: 3 };

/// A page of a segment. A changed page must be refused, whatever was changed.
pub(super) const PAGE: Target = Target {
    name: "page",
    corpus: pages,
    start: || {
        let good = pages();
        Box::new(move |bytes| {
            let mut out = Vec::new();
            if let Ok(length) = blockfile::decode_page(CONTEXT, bytes, &mut out) {
                assert!(
                    good.iter().any(|page| page[..] == bytes[..length]),
                    "a damaged page was accepted"
                );
            }
        })
    },
};

fn pages() -> Vec<Vec<u8>> {
    let raw: Vec<u8> = (0..4000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
    [Compression::None, Compression::Lz4, Compression::Zlib(6), Compression::Zstd(3)]
        .into_iter()
        .map(|method| {
            let mut out = Vec::new();
            blockfile::encode_page(CONTEXT, method, &raw, &mut out);
            out
        })
        .collect()
}

/// A superblock.
pub(super) const SUPERBLOCK: Target = Target {
    name: "superblock",
    corpus: || vec![include_bytes!("../../../blockfile/tests/golden/superblock.bin").to_vec()],
    start: || {
        Box::new(|bytes| {
            let _ = Superblock::decode(bytes).is_some();
        })
    },
};

/// A translation table.
pub(super) const TRANSLATION: Target = Target {
    name: "translation",
    corpus: || vec![include_bytes!("../../../blockfile/tests/golden/translation.bin").to_vec()],
    start: || {
        Box::new(|bytes| {
            let _ = decode_table(bytes).is_ok();
        })
    },
};
