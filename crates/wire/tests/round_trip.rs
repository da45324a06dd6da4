//! What is encoded is decoded to the same, through every packer.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use wire::{
    Codec, Compressor, Delete, Error, GetMore, Insert, KillCursors, Message, MsgFlags, OpQuery,
    OpReply, QueryFlags, ReplyFlags, Update, decode, encode_msg, encode_msg_head,
    encode_msg_with_sequences, encode_query, encode_reply, opcode,
};

fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1, "$db": "admin" }
}

fn close_reason(frame: &[u8]) -> String {
    match decode(frame) {
        Err(Error::Close(reason)) => reason,
        other => panic!("expected a close, got {other:?}"),
    }
}

fn answer_code(frame: &[u8]) -> i32 {
    match decode(frame) {
        Err(Error::Answer(error)) => error.code().0,
        other => panic!("expected an answer, got {other:?}"),
    }
}

fn msg(flags: MsgFlags, sections: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&(20 + sections.len() as u32).to_le_bytes());
    frame.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(&opcode::MSG.to_le_bytes());
    frame.extend_from_slice(&flags.0.to_le_bytes());
    frame.extend_from_slice(sections);
    frame
}

fn body_section(document: &RawDocument) -> Vec<u8> {
    [&[0], document.as_bytes()].concat()
}

fn sequence_section(name: &str, documents: &[&RawDocument]) -> Vec<u8> {
    let inside: Vec<u8> = documents.iter().flat_map(|d| d.as_bytes()).copied().collect();
    let size = (4 + name.len() + 1 + inside.len()) as u32;
    [&[1], &size.to_le_bytes()[..], name.as_bytes(), &[0], &inside].concat()
}

#[test]
fn op_msg_with_sequences_and_checksum_comes_back() {
    let documents = [rawdoc! { "_id": 1 }, rawdoc! { "_id": 2, "x": "y" }];
    let sequences =
        vec![("documents", documents.iter().map(AsRef::as_ref).collect()), ("empty", vec![])];
    for flags in [MsgFlags::NONE, MsgFlags::CHECKSUM_PRESENT, MsgFlags::MORE_TO_COME] {
        let mut frame = b"earlier".to_vec();
        encode_msg_with_sequences(&mut frame, 9, 4, flags, &ping(), &sequences);
        let (header, message) = decode(&frame[7..]).unwrap();
        assert_eq!((header.request_id, header.response_to), (9, 4));
        let Message::Msg(msg) = message else { panic!("not OP_MSG") };
        assert_eq!((msg.flags, msg.body), (flags, ping().as_ref()));
        assert_eq!(msg.sequences, sequences);
    }
}

#[test]
fn sequence_may_come_before_the_body() {
    let document = rawdoc! { "a": 1 };
    let sections = [sequence_section("documents", &[&document]), body_section(&ping())].concat();
    let frame = msg(MsgFlags::NONE, &sections);
    let (_, Message::Msg(msg)) = decode(&frame).unwrap() else { panic!("not OP_MSG") };
    assert_eq!(msg.body, ping().as_ref());
    assert_eq!(msg.sequences.len(), 1);
}

#[test]
fn the_database_is_what_the_body_says_first_and_as_a_string() {
    let long = "x".repeat(300);
    let bytes = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![] };
    for (body, database) in [
        (ping(), Ok("admin")),
        (rawdoc! { "$db": "first", "ping": 1, "$db": "second" }, Ok("first")),
        (rawdoc! { "ping": 1, "lsid": { "$db": "inner" }, "$db": "" }, Ok("")),
        (rawdoc! { "ping": 1, "$db": "ünlike" }, Ok("ünlike")),
        (rawdoc! { "ping": 1, "$db": &*long }, Ok(&*long)),
        (rawdoc! { "ping": 1, "lsid": { "$db": "inner" } }, Err(40571)),
        (rawdoc! { "ping": 1, "$dbs": "x", "$d": "x" }, Err(40571)),
        (rawdoc! { "ping": 1, "$db": bson::RawBson::Null }, Err(14)),
        (rawdoc! { "ping": 1, "$db": true }, Err(14)),
        (rawdoc! { "ping": 1, "$db": 7 }, Err(14)),
        (rawdoc! { "ping": 1, "$db": {} }, Err(14)),
        (rawdoc! { "ping": 1, "$db": bytes.clone() }, Err(14)),
        (rawdoc! { "ping": 1, "$db": bson::RawBson::Symbol("x".to_owned()) }, Err(14)),
    ] {
        let frame = msg(MsgFlags::NONE, &body_section(&body));
        let (_, Message::Msg(msg)) = decode(&frame).unwrap() else { panic!("not OP_MSG") };
        assert_eq!(msg.database().map_err(|error| error.code().0), database, "{body:?}");
    }
}

#[test]
fn op_query_and_op_reply_come_back() {
    let (query, fields) = (rawdoc! { "isMaster": 1 }, rawdoc! { "_id": 0 });
    let sent = OpQuery {
        flags: QueryFlags::SECONDARY_OK,
        namespace: "admin.$cmd",
        skip: 3,
        number_to_return: -1,
        query: &query,
        fields: Some(&fields),
    };
    let mut frame = Vec::new();
    encode_query(&mut frame, 5, &sent);
    let (header, Message::Query(got)) = decode(&frame).unwrap() else { panic!("not a query") };
    assert_eq!(header.request_id, 5);
    assert_eq!((got.flags, got.skip, got.number_to_return), (sent.flags, 3, -1));
    assert_eq!((got.query, got.fields), (query.as_ref(), Some(fields.as_ref())));
    assert_eq!(got.namespace, sent.namespace);

    let reply = OpReply {
        flags: ReplyFlags::AWAIT_CAPABLE,
        cursor_id: 77,
        starting_from: 2,
        documents: vec![&query, &fields],
    };
    let mut frame = Vec::new();
    encode_reply(&mut frame, 6, 5, &reply);
    let (header, Message::Reply(got)) = decode(&frame).unwrap() else { panic!("not a reply") };
    assert_eq!(header.response_to, 5);
    assert_eq!((got.flags, got.cursor_id, got.starting_from), (reply.flags, 77, 2));
    assert_eq!(got.documents, reply.documents);
}

#[test]
fn old_writes_get_more_and_kill_cursors_come_back() {
    let (one, two) = (rawdoc! { "a": 1 }, rawdoc! { "b": 2 });
    let mut frame = Vec::new();
    let documents: Vec<&RawDocument> = vec![&one, &two];
    Insert { flags: 1, namespace: "d.c", documents: documents.clone() }.encode(&mut frame, 5);
    let (header, Message::Insert(got)) = decode(&frame).unwrap() else { panic!("not an insert") };
    assert_eq!((header.request_id, got.flags, got.namespace), (5, 1, "d.c"));
    assert_eq!(got.documents, documents);

    frame.clear();
    Update { namespace: "d.c", flags: 3, selector: &one, update: &two }.encode(&mut frame, 6);
    let (_, Message::Update(got)) = decode(&frame).unwrap() else { panic!("not an update") };
    assert_eq!((got.namespace, got.flags), ("d.c", 3));
    assert_eq!((got.selector, got.update), (one.as_ref(), two.as_ref()));

    frame.clear();
    Delete { namespace: "d.c", flags: 1, selector: &one }.encode(&mut frame, 7);
    let (_, Message::Delete(got)) = decode(&frame).unwrap() else { panic!("not a delete") };
    assert_eq!((got.namespace, got.flags, got.selector), ("d.c", 1, one.as_ref()));

    frame.clear();
    let more = GetMore { namespace: "d.c", number_to_return: -4, cursor_id: i64::MIN };
    more.encode(&mut frame, 8);
    let (_, Message::GetMore(got)) = decode(&frame).unwrap() else { panic!("not a get-more") };
    assert_eq!(got, more);

    frame.clear();
    let kill = KillCursors { cursor_ids: vec![1, -2, i64::MAX] };
    kill.encode(&mut frame, 9);
    let (_, Message::KillCursors(got)) = decode(&frame).unwrap() else { panic!("not a kill") };
    assert_eq!(got, kill);
}

#[test]
fn head_and_body_are_the_message() {
    let body = rawdoc! { "ping": 1, "filler": "abc".repeat(2_000) };
    let (mut whole, mut head) = (vec![7], vec![7]);
    encode_msg(&mut whole, 3, 2, MsgFlags::MORE_TO_COME, &body);
    encode_msg_head(&mut head, 3, 2, MsgFlags::MORE_TO_COME, body.as_bytes().len());
    head.extend_from_slice(body.as_bytes());
    assert_eq!(head, whole);
}

#[test]
fn every_packer_gives_the_frame_back() {
    let long = rawdoc! { "ping": 1, "filler": "abc".repeat(20_000) };
    let mut codec = Codec::new();
    for document in [ping(), long] {
        let mut plain = Vec::new();
        encode_msg(&mut plain, 3, 2, MsgFlags::CHECKSUM_PRESENT, &document);
        for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd]
        {
            let mut packed = Vec::new();
            codec.compress(&plain, compressor, &mut packed).unwrap();
            let (unpacked, found) = codec.decompress(&packed).unwrap();
            assert_eq!((unpacked.as_slice(), found), (plain.as_slice(), compressor));
        }
    }
}

#[test]
fn packed_messages_do_not_nest_and_do_not_lie() {
    let mut codec = Codec::new();
    let mut plain = Vec::new();
    encode_msg(&mut plain, 3, 2, MsgFlags::NONE, &ping());
    for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let mut once = Vec::new();
        codec.compress(&plain, compressor, &mut once).unwrap();
        assert!(close_reason(&once).contains("OP_COMPRESSED inside"));
        let mut twice = Vec::new();
        codec.compress(&once, compressor, &mut twice).unwrap();
        assert!(matches!(codec.decompress(&twice), Err(Error::Close(_))));
        for declared in [i32::MIN, -1, 0, 1, 48_000_001, i32::MAX] {
            let mut lie = once.clone();
            lie[20..24].copy_from_slice(&declared.to_le_bytes());
            assert!(matches!(codec.decompress(&lie), Err(Error::Close(_))), "{declared}");
        }
        let mut unknown = once.clone();
        unknown[24] = 9;
        assert!(matches!(codec.decompress(&unknown), Err(Error::Close(_))));
    }
}

#[test]
fn a_bomb_is_cut_off_at_the_size_it_declared() {
    let mut codec = Codec::new();
    let document = rawdoc! { "filler": "a".repeat(15_000_000) };
    let mut plain = Vec::new();
    encode_msg(&mut plain, 3, 2, MsgFlags::NONE, &document);
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let mut packed = Vec::new();
        codec.compress(&plain, compressor, &mut packed).unwrap();
        packed[20..24].copy_from_slice(&1000_u32.to_le_bytes());
        assert!(matches!(codec.decompress(&packed), Err(Error::Close(_))));
    }
}

#[test]
fn wrong_checksum_closes() {
    let mut frame = Vec::new();
    encode_msg(&mut frame, 1, 0, MsgFlags::CHECKSUM_PRESENT, &ping());
    for at in [4, 16 + 3, 25, frame.len() - 1] {
        let mut damaged = frame.clone();
        damaged[at] ^= 0x10;
        assert!(close_reason(&damaged).contains("checksum"), "byte {at}");
    }
    let mut short = msg(MsgFlags::CHECKSUM_PRESENT, &[1, 2, 3]);
    assert!(close_reason(&short).contains("checksum"));
    short[0] = 99;
    assert!(close_reason(&short).contains("declares 99"));
}

#[test]
fn refused_sections_have_mongodbs_codes() {
    let body = body_section(&ping());
    let sequence = sequence_section("documents", &[&rawdoc! {}]);
    let check = |flags: u32, sections: &[&[u8]], code| {
        assert_eq!(answer_code(&msg(MsgFlags(flags), &sections.concat())), code);
    };
    check(4, &[&body], 223);
    check(1 << 15, &[&body], 223);
    check(0, &[&body, &body], 40430);
    check(0, &[&body, &sequence, &sequence], 40431);
    check(0, &[&body, &[2]], 40432);
    let many = |count: usize| {
        let sections =
            (0..count).map(|at| sequence_section(&format!("s{at}"), &[])).collect::<Vec<_>>();
        [body.clone(), sections.concat()].concat()
    };
    check(0, &[&many(17)], 40432);
    assert!(decode(&msg(MsgFlags(0), &many(16))).is_ok());
    check(0, &[&body, &sequence_section("ping", &[])], 40433);
    check(0, &[&sequence], 40587);
    check(0, &[], 40587);
    check(0, &[&body, &[1, 200, 0, 0, 0, b'x', 0]], 22);
    check(0, &[&body, &[1, 3, 0, 0, 0, b'x', 0]], 22);
    check(0, &[&[0, 255, 255, 255, 127]], 10334);
    check(0, &[&[0, 4, 0, 0, 0]], 10334);
    check(0, &[&[0, 9, 0, 0, 0, 0]], 22);
    // Optional flags that nobody knows are ignored.
    assert!(decode(&msg(MsgFlags(1 << 31), &body)).is_ok());
}

#[test]
fn unknown_opcode_closes() {
    let mut frame = msg(MsgFlags::NONE, &body_section(&ping()));
    for op in [0_i32, 2, 1000, 2003, 2010, 2011, 2014, -1] {
        frame[12..16].copy_from_slice(&op.to_le_bytes());
        assert!(close_reason(&frame).contains("opcode"), "{op}");
    }
}
