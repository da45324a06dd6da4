//! Every structure of the data file against its committed bytes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use blockfile::format::{
    BlobPointer, Chunk, Entry, Extent, Link, Superblock, decode_changes, decode_table,
    decrypt_root, encode_changes, encode_table, encrypt_root,
};
use blockfile::{
    Compression, DictionaryCompressor, DictionaryDecompressor, PageCompression, PageContext,
    PageError, SegmentId, decode_page, encode_page, train_dictionary,
};
use crypt::{KeyRing, KeysFile, MasterKey, Purpose};
use os::sim::SimOs;
use std::path::Path;
use testkit::{golden, golden_to_decode};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn superblock() {
    let expected = Superblock {
        file_id: 0x1234_5678_9abc_def0_0fed_cba9_8765_4321,
        generation: 42,
        lsn: 987_654_320,
        written_ms: 1_704_067_200_000,
        next_segment: 1001,
        table: BlobPointer { unit: 77, units: 3, bytes: 9000, checksum: 0xabcd },
        root: BlobPointer { unit: 80, units: 1, bytes: 5, checksum: 0xef01 },
        encrypted: false,
    };
    let committed = golden(HERE, "superblock.bin", &expected.encode());
    assert_eq!(Superblock::decode(&committed), Some(expected));
    let expected = Superblock { encrypted: true, ..expected };
    let committed = golden(HERE, "superblock-encrypted.bin", &expected.encode());
    assert_eq!(Superblock::decode(&committed), Some(expected));
}

#[test]
fn translation_table() {
    let expected = vec![
        (SegmentId(1), Entry { unit: 2, bytes: 1, kind: 0 }),
        (SegmentId(2), Entry { unit: 3, bytes: 4096, kind: 1 }),
        (SegmentId(300), Entry { unit: 1 << 30, bytes: 1 << 20, kind: 255 }),
    ];
    let committed = golden(HERE, "table.bin", &encode_table(expected.iter().copied()));
    assert_eq!(decode_table(&committed), Ok(expected));
}

#[test]
fn translation_changes() {
    let expected = vec![
        (SegmentId(2), None),
        (SegmentId(3), Some(Entry { unit: 9, bytes: 70, kind: 2 })),
        (SegmentId(300), Some(Entry { unit: 5, bytes: 1 << 20, kind: 255 })),
    ];
    let committed = golden(HERE, "table-changes.bin", &encode_changes(&expected));
    assert_eq!(decode_changes(&committed), Ok(expected));
}

#[test]
fn blob_link() {
    let previous = BlobPointer { unit: 77, units: 3, bytes: 9000, checksum: 0xabcd };
    let expected = Link { previous, generation: 41 };
    let committed = golden(HERE, "link.bin", &expected.encode());
    assert_eq!(Link::split(42, &committed), Some((expected, &b""[..])));
}

#[test]
fn blob_chunk() {
    let next = Some(Extent { unit: 9, units: 2 });
    let expected = Chunk { next, payload: b"a blob's bytes" };
    let mut encoded = os::AlignedBuf::new();
    expected.encode(6, 3, &mut encoded);
    let committed = golden(HERE, "chunk.bin", &encoded);
    assert_eq!(Chunk::decode(6, 3, &committed), Some(expected));
}

#[test]
fn pages() {
    let context = PageContext { dictionary: 7, segment: 300, page: 12 };
    let raw = b"the fern unrolls its fronds; ".repeat(12);
    let cases = [
        ("page-none.bin", Compression::None),
        ("page-lz4.bin", Compression::Lz4),
        ("page-zlib.bin", Compression::Zlib(6)),
        ("page-zstd.bin", Compression::Zstd(3)),
    ];
    for (name, method) in cases {
        let mut encoded = Vec::new();
        encode_page(context, method.into(), None, &raw, &mut encoded);
        let committed = match method {
            Compression::None => golden(HERE, name, &encoded),
            _ => golden_to_decode(HERE, name, &encoded),
        };
        assert_eq!(committed[0], method.to_bytes()[0]);
        let mut back = Vec::new();
        assert_eq!(decode_page(context, None, None, &committed, &mut back), Ok(committed.len()));
        assert_eq!(back, raw);
    }
}

#[test]
fn page_compressed_with_a_dictionary() {
    let row = |n: usize| format!("frond {n:04} of fern {:03}; ", n * 7919 % 1000);
    let page = |page: usize| (0..20).map(|n| row(page * 20 + n)).collect::<String>().into_bytes();
    let pages: Vec<_> = (0..40).map(page).collect();
    let lengths: Vec<_> = pages.iter().map(Vec::len).collect();
    let trained = train_dictionary(&pages.concat(), &lengths, 1024).unwrap();
    let trained = golden_to_decode(HERE, "compression-dictionary.bin", &trained);
    let context = PageContext { dictionary: 7, segment: 300, page: 12 };
    let compressor = DictionaryCompressor::new(&trained, 3).unwrap();
    let mut encoded = Vec::new();
    encode_page(context, PageCompression::With(&compressor), None, &pages[3], &mut encoded);
    let committed = golden_to_decode(HERE, "page-zstd-dictionary.bin", &encoded);
    assert_eq!(committed[0], 4);
    let decompressor = DictionaryDecompressor::new(&trained).unwrap();
    let mut back = Vec::new();
    let decoded = decode_page(context, None, Some(&decompressor), &committed, &mut back);
    assert_eq!(decoded, Ok(committed.len()));
    assert_eq!(back, pages[3]);
    let refused = decode_page(context, None, None, &committed, &mut back);
    assert_eq!(refused, Err(PageError::NoDictionary));
}

/// The keys of the golden file of `fern.keys`, whose master key is 32 sevens.
fn keys(os: &os::Os) -> KeyRing {
    let slot = include_bytes!("../../crypt/tests/golden/keys.v1.bin");
    os.vfs.create_dir_all(Path::new("/d")).unwrap();
    let file = os.vfs.open(Path::new("/d/fern.keys"), os::OpenOptions::create()).unwrap();
    file.write_all_at(slot, 0).unwrap();
    let master = MasterKey::parse(b"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=").unwrap();
    KeysFile::read(&*os.vfs, Path::new("/d"), &master).unwrap()
}

#[test]
fn what_is_encrypted() {
    let os = SimOs::new(3).os();
    let keys = keys(&os);
    let context = PageContext { dictionary: 7, segment: 300, page: 12 };
    let raw = b"the fern unrolls its fronds; ".repeat(12);
    let fresh = keys.fresh(Purpose::DataFile, &*os.entropy);
    let mut encoded = Vec::new();
    encode_page(context, Compression::None.into(), Some(&fresh), &raw, &mut encoded);
    let committed = golden(HERE, "page-encrypted.bin", &encoded);
    let mut back = Vec::new();
    assert_eq!(decode_page(context, Some(&keys), None, &committed, &mut back), Ok(committed.len()));
    assert_eq!(back, raw);
    let previous = BlobPointer { unit: 77, units: 3, bytes: 9000, checksum: 0xabcd };
    let link = Link { previous, generation: 41 }.encode();
    let place = (&link[..], 42);
    let encoded = encrypt_root(&keys, &*os.entropy, place, &raw);
    let committed = golden(HERE, "root-encrypted.bin", &encoded);
    assert_eq!(decrypt_root(&keys, place, &committed), Ok(raw));
}
