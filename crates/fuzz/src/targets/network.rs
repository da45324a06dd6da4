//! What comes from the network: frames, compressed frames, documents.

use crate::Target;
use bson::raw::{RawDocumentBuf, cstr};
use bson::{Bson, Document, doc};
use wire::{Codec, Compressor, MsgFlags};

/// A whole frame, of any opcode.
pub(super) const FRAME: Target = Target {
    name: "frame",
    corpus: frames,
    start: || {
        Box::new(|bytes| {
            if let Ok((_, wire::Message::Msg(message))) = wire::decode(bytes) {
                assert!(message.body.as_bytes().len() <= bytes.len());
                let database = message.body.get("$db").expect("checked");
                assert_eq!(
                    message.database().ok(),
                    database.and_then(bson::raw::RawBsonRef::as_str)
                );
            }
        })
    },
};

/// A compressed frame, unpacked and then decoded.
pub(super) const COMPRESSED: Target = Target {
    name: "compressed",
    corpus: || {
        let mut codec = Codec::new();
        let mut all = Vec::new();
        for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
            for frame in frames() {
                let mut out = Vec::new();
                codec.compress(&frame, compressor, &mut out).expect("a whole frame");
                all.push(out);
            }
        }
        all
    },
    start: || {
        let mut codec = Codec::new();
        Box::new(move |bytes| {
            if let Ok((frame, _)) = codec.decompress(bytes) {
                let _ = wire::decode(&frame).is_ok();
            }
        })
    },
};

/// A document: what `validate` lets through must decode without surprise.
pub(super) const DOCUMENT: Target = Target {
    name: "document",
    corpus: || documents().iter().map(|d| raw(d).into_bytes()).collect(),
    start: || {
        Box::new(|bytes| {
            if let Ok(document) = wire::validate(bytes) {
                Document::try_from(document).expect("validated bytes decode");
            }
        })
    },
};

pub(crate) fn documents() -> Vec<Document> {
    vec![
        doc! { "hello": 1, "$db": "admin" },
        doc! { "find": "c", "filter": { "a": { "$gt": 5, "$lt": 9.5 } }, "sort": { "a": -1 },
        "projection": { "a": 1 }, "limit": 3_i64, "$db": "d" },
        doc! { "insert": "c", "documents": [ { "_id": 1, "a": [1, [2, { "b": "c" }]] } ],
        "$db": "d" },
        doc! { "update": "c", "updates": [ { "q": { "a": 1 }, "u": { "$set": { "a.b": 2 } },
        "upsert": true } ], "$db": "d" },
        doc! { "aggregate": "c", "pipeline": [ { "$match": { "a": 1 } },
        { "$group": { "_id": "$a", "n": { "$sum": 1 } } } ], "cursor": {}, "$db": "d" },
        doc! { "x": Bson::MinKey, "y": Bson::Null, "z": bson::oid::ObjectId::from_bytes([7; 12]),
        "t": bson::Timestamp { time: 1, increment: 2 }, "b": true,
        "d": bson::DateTime::from_millis(5),
        "r": bson::Regex { pattern: cstr!("^a").into(), options: cstr!("i").into() },
        "n": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] } },
    ]
}

pub(super) fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("a good document")
}

fn frames() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for document in documents() {
        let body = raw(&document);
        for flags in [MsgFlags::default(), MsgFlags::CHECKSUM_PRESENT] {
            let mut out = Vec::new();
            wire::encode_msg_with_sequences(
                &mut out,
                1,
                0,
                flags,
                &body,
                &[("documents", vec![&*body, &*body])],
            );
            all.push(out);
        }
        let mut out = Vec::new();
        let query = wire::OpQuery {
            flags: wire::QueryFlags::default(),
            namespace: "admin.$cmd",
            skip: 0,
            number_to_return: -1,
            query: &body,
            fields: None,
        };
        wire::encode_query(&mut out, 1, &query);
        all.push(out);
    }
    all
}
