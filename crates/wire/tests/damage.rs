//! Arbitrary and mutated bytes never panic, and what passes can be read without surprise.
//!
//! This is the frame decoder's fuzz target on the stable toolchain.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use bson::{RawBsonRef, RawDocument, doc, rawdoc};
use proptest::prelude::*;
use wire::{Codec, Compressor, Message, MsgFlags, OpQuery, OpReply};

/// Reads every element at every level.
fn read_on(document: &RawDocument) {
    for element in document {
        let (key, value) = element.expect("validated");
        let _: &str = key.as_str();
        read_value(value);
    }
}

fn read_value(value: RawBsonRef<'_>) {
    match value {
        RawBsonRef::Document(inner) => read_on(inner),
        RawBsonRef::Array(array) => array.into_iter().for_each(|v| read_value(v.expect("checked"))),
        RawBsonRef::JavaScriptCodeWithScope(code) => read_on(code.scope),
        _ => {}
    }
}

fn drive(frame: &[u8]) {
    if let Ok((plain, _)) = Codec::new().decompress(frame) {
        drive_plain(&plain);
    }
    drive_plain(frame);
}

fn drive_plain(frame: &[u8]) {
    let Ok((_, message)) = wire::decode(frame) else { return };
    match message {
        Message::Msg(msg) => {
            read_on(msg.body);
            let database = msg.body.get("$db").expect("checked");
            assert_eq!(msg.database().ok(), database.and_then(RawBsonRef::as_str));
            msg.sequences.iter().flat_map(|(_, d)| d.iter().copied()).for_each(read_on);
        }
        Message::Query(OpQuery { query, fields, .. }) => {
            read_on(query);
            fields.into_iter().for_each(read_on);
        }
        Message::Reply(OpReply { documents, .. }) => {
            documents.into_iter().for_each(read_on);
        }
        Message::Insert(insert) => insert.documents.into_iter().for_each(read_on),
        _ => {}
    }
}

fn samples() -> Vec<Vec<u8>> {
    let body =
        rawdoc! { "insert": "c", "$db": "t", "documents": [{ "a": [1, "x", { "y": 2.5 }] }] };
    let rich = doc! {
        "r": bson::Bson::RegularExpression(bson::Regex {
            pattern: bson::raw::cstr!("a").into(), options: bson::raw::cstr!("i").into() }),
        "c": bson::Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
            code: "x".into(), scope: doc! { "z": [true] } }),
        "b": bson::Bson::Binary(bson::Binary {
            subtype: bson::spec::BinarySubtype::BinaryOld, bytes: vec![1, 2, 3] }),
        "s": bson::Bson::Symbol("s".into()),
    };
    let rich = bson::RawDocumentBuf::try_from(&rich).unwrap();
    let mut frames = Vec::new();
    for flags in [MsgFlags::NONE, MsgFlags::CHECKSUM_PRESENT] {
        let mut frame = Vec::new();
        let sequences = [("u", vec![rich.as_ref()])];
        wire::encode_msg_with_sequences(&mut frame, 1, 0, flags, &body, &sequences);
        for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd]
        {
            let mut packed = Vec::new();
            Codec::new().compress(&frame, compressor, &mut packed).unwrap();
            frames.push(packed);
        }
        frames.push(frame);
    }
    // The legacy operations share one skeleton: a word, a namespace, words and documents.
    for opcode in [2001_i32, 2002, 2004, 2005, 2006, 2007, 1] {
        let mut frame = vec![0; 4];
        frame.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend_from_slice(&opcode.to_le_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(b"t.c\0");
        if matches!(opcode, 2001 | 2006) {
            frame.extend_from_slice(&[1, 0, 0, 0]);
        } else if matches!(opcode, 2004 | 2005) {
            frame.extend_from_slice(&[0; 8]);
        }
        frame.extend_from_slice(rich.as_bytes());
        frame.extend_from_slice(body.as_bytes());
        let length = frame.len() as u32;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        frames.push(frame);
    }
    frames
}

#[test]
fn samples_are_whole_before_they_are_damaged() {
    let good = samples()
        .iter()
        .filter(|frame| wire::decode(frame).is_ok() || Codec::new().decompress(frame).is_ok())
        .count();
    // 10 OP_MSG, insert, update, query; the others exist to be refused.
    assert_eq!(good, 13);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(mut frame in prop::collection::vec(any::<u8>(), 16..300),
                                   op in prop::sample::select(vec![1, 2001, 2002, 2004, 2005, 2006, 2007, 2012, 2013])) {
        drive(&frame);
        let length = frame.len() as u32;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        frame[12..16].copy_from_slice(&i32::to_le_bytes(op));
        drive(&frame);
    }

    #[test]
    fn mutated_frames_never_panic(which in any::<prop::sample::Index>(),
                                  edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
                                  cut in any::<prop::sample::Index>(), fix_length in any::<bool>()) {
        let samples = samples();
        let mut frame = which.get(&samples).clone();
        for (at, byte) in edits {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        drive(&frame);
        frame.truncate(cut.index(frame.len()));
        if fix_length && frame.len() >= 4 {
            let length = frame.len() as u32;
            frame[..4].copy_from_slice(&length.to_le_bytes());
        }
        drive(&frame);
    }

    #[test]
    fn validated_documents_are_read_without_surprise(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3)) {
        let frame = samples().swap_remove(4);
        let Ok((_, Message::Msg(msg))) = wire::decode(&frame) else { panic!("sample 4 is OP_MSG") };
        let mut bytes = msg.sequences[0].1[0].as_bytes().to_vec();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(document) = wire::validate(&bytes) {
            read_on(document);
            // `bson`'s own reader agrees, to an owned document.
            prop_assert!(bson::Document::try_from(document).is_ok());
        }
    }
}
