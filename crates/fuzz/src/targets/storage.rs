//! What comes from the disk: keys, pages, superblocks, tables.

use crate::Target;
use blockfile::format::{
    BlobPointer, Entry, Superblock, decode_changes, encode_changes, encode_table, fold_tables,
};
use blockfile::{Compression, PageContext, SegmentId};
use bson::{Bson, doc};
use engine::{BackupManifest, Since};
use keystring::{Direction, KeyBuilder};
use wal::format::{
    FrameKind, SegmentHeader, Uncompressed, compressed_payload, decode_frame, encode_frame,
};

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

/// Whether the fuzzer sees what is compared, so that it writes the right checksum by itself: then a
/// changed page or frame may well be accepted.
const FORGES_CHECKSUMS: bool = cfg!(fuzzing);

/// A page of a segment. A changed page must be refused, whatever was changed.
pub(super) const PAGE: Target = Target {
    name: "page",
    corpus: pages,
    start: || {
        let good = pages();
        Box::new(move |bytes| {
            let mut out = Vec::new();
            if let Ok(length) = blockfile::decode_page(CONTEXT, None, None, bytes, &mut out) {
                let unchanged = good.iter().any(|page| page[..] == bytes[..length]);
                assert!(unchanged || FORGES_CHECKSUMS, "a damaged page was accepted");
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
            blockfile::encode_page(CONTEXT, method.into(), None, &raw, &mut out);
            out
        })
        .collect()
}

/// A superblock.
pub(super) const SUPERBLOCK: Target = Target {
    name: "superblock",
    corpus: || {
        let blob = BlobPointer { unit: 9, units: 2, bytes: 5000, checksum: 77 };
        let block = Superblock {
            file_id: 5,
            generation: 3,
            lsn: 4096,
            written_ms: 1,
            next_segment: 12,
            table: blob,
            root: blob,
            encrypted: false,
        };
        vec![block.encode().to_vec()]
    },
    start: || {
        Box::new(|bytes| {
            let _ = Superblock::decode(bytes).is_some();
        })
    },
};

/// What a backup says of itself, which has one spelling.
pub(super) const BACKUP: Target = Target {
    name: "backup",
    corpus: || {
        let since = Since { id: 4, superblocks: 5, directory: "/backups/monday".into() };
        let whole = BackupManifest { id: 1, data_file: 2, superblocks: 3, since: None };
        vec![whole.encode(), BackupManifest { since: Some(since), ..whole }.encode()]
    },
    start: || {
        Box::new(|bytes| {
            if let Ok(manifest) = BackupManifest::decode(bytes) {
                assert_eq!(manifest.encode(), bytes, "a backup's file has one spelling");
            }
        })
    },
};

/// A translation table.
pub(super) const TRANSLATION: Target = Target {
    name: "translation",
    corpus: || {
        let entry = |n| (SegmentId(n), Entry { unit: n * 10, bytes: n * 1000, kind: 1 });
        let whole = encode_table((1..40).map(entry));
        let changes = [(SegmentId(3), None), (SegmentId(50), Some(entry(50).1))];
        vec![whole, encode_changes(&changes)]
    },
    start: || {
        Box::new(|bytes| {
            if let Ok(changes) = decode_changes(bytes) {
                assert_eq!(encode_changes(&changes), bytes, "changes have one encoding");
            }
            let _ = fold_tables(&[bytes]).is_ok();
        })
    },
};

const SALT: u64 = 0x5A17;
const LSN: u64 = 64;

/// A frame of the log. A changed frame must be refused, whatever was changed.
pub(super) const LOG_FRAME: Target = Target {
    name: "log-frame",
    corpus: log_frames,
    start: || {
        let good = log_frames();
        Box::new(move |bytes| {
            if let Some(frame) = decode_frame(SALT, LSN, bytes) {
                if frame.kind == FrameKind::Compressed {
                    let _either = Uncompressed::default().read(frame.payload);
                }
                let mut again = Vec::new();
                encode_frame(frame.kind, SALT, LSN, frame.payload, &mut again);
                assert!(good.contains(&again) || FORGES_CHECKSUMS, "a damaged frame was accepted");
            }
        })
    },
};

fn log_frames() -> Vec<Vec<u8>> {
    let compressed = compressed_payload(b"head", &[7; 500]).expect("it becomes shorter");
    [
        (FrameKind::Data, &b"a commit of some length"[..]),
        (FrameKind::Mark, &[1; 8]),
        (FrameKind::Compressed, &compressed),
    ]
    .into_iter()
    .map(|(kind, payload)| {
        let mut out = Vec::new();
        encode_frame(kind, SALT, LSN, payload, &mut out);
        out
    })
    .collect()
}

/// The header of a log segment.
pub(super) const LOG_SEGMENT: Target = Target {
    name: "log-segment",
    corpus: || {
        let header = SegmentHeader {
            number: 4,
            salt: SALT,
            first_lsn: LSN,
            body_bytes: 65536,
            previous: 3,
            key: None,
        };
        vec![header.encode().to_vec()]
    },
    start: || {
        Box::new(|bytes| {
            let _ = SegmentHeader::decode(4, bytes).is_some();
        })
    },
};

/// A record of the log: commits, chunks, entries, cuts.
pub(super) const LOG_RECORD: Target = Target {
    name: "log-record",
    corpus: || {
        vec![
            include_bytes!("../../../engine/tests/golden/commit-record.v2.bin").to_vec(),
            include_bytes!("../../../engine/tests/golden/commit-record.v3.bin").to_vec(),
            include_bytes!("../../../engine/tests/golden/entry-record.v3.bin").to_vec(),
            include_bytes!("../../../engine/tests/golden/cut-record.v3.bin").to_vec(),
        ]
    },
    start: || {
        Box::new(|bytes| {
            let _either = engine::format::read_record(bytes);
            let puts = engine::format::root_puts(bytes);
            assert!(puts.len() <= bytes.len(), "a put takes bytes");
        })
    },
};
