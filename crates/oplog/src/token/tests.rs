//! Tokens are those of MongoDB, sort as events, and anything else is refused.

use super::*;
use bson::doc;
use bson::oid::ObjectId;
use proptest::prelude::*;

/// As MongoDB publishes it: an event on a document with an `ObjectId`.
const PUBLISHED: &str = "82612E8513000000012B022C0100296E5A1004";
const MARK_TEXT: &str = "8263B0F3B3000000012B0229296E04";

fn raw(document: &bson::Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02X}").expect("a string takes it");
        text
    })
}

#[test]
fn a_token_is_written_as_mongodb_writes_it() {
    let uuid = *b"0123456789abcdef";
    let id = ObjectId::from_bytes([7; 12]);
    let key = raw(&doc! {"_id": id});
    let time = Time(0x612E_8513_0000_0001);
    let token = Token::event(time, 0, Some(uuid), Some(&key)).unwrap();
    let text = token.to_text();
    let uuid = hex(&uuid);
    let expected = format!("{PUBLISHED}{uuid}46645F696400640707070707070707070707070004");
    assert_eq!(text, expected);
    assert_eq!(Token::from_text(&text).unwrap(), token);
}

#[test]
fn a_mark_is_written_as_mongodb_writes_it() {
    let mark = Token::high_water_mark(Time(0x63B0_F3B3_0000_0001));
    assert_eq!(mark.to_text(), MARK_TEXT);
    assert_eq!(Token::from_text(MARK_TEXT).unwrap(), mark);
}

#[test]
fn tokens_sort_as_their_events() {
    let (early, late) = (Time(5 << 32 | 1), Time(5 << 32 | 2));
    let event = |time, operation| {
        Token::event(time, operation, Some([9; 16]), Some(&raw(&doc! {"_id": 1}))).unwrap()
    };
    let ordered = [
        Token::high_water_mark(early),
        event(early, 0),
        event(early, 0).invalidate(),
        event(early, 1),
        event(early, 300),
        Token::high_water_mark(late),
        event(late, 0),
    ];
    for pair in ordered.windows(2) {
        assert!(pair[0].to_text() < pair[1].to_text(), "{pair:?}");
        assert!(pair[0].place() < pair[1].place(), "{pair:?}");
    }
}

#[test]
fn a_fragment_names_its_event() {
    let whole = Token::event(Time(1), 0, None, Some(&raw(&doc! {"_id": "x"}))).unwrap();
    let part = whole.fragment(3).unwrap();
    assert_eq!(Token::from_text(&part.to_text()).unwrap().fragment_of(&whole), Some(3));
    assert_eq!(whole.fragment_of(&whole), None);
}

#[test]
fn what_is_no_token_is_refused() {
    for (text, code) in [
        ("", 260),
        ("82", 260),
        ("8", 260),
        ("zz", 260),
        ("8263B0F3B3000000012B0429296E04", 260),
        ("8263B0F3B3000000012B0229296E", 260),
        ("8263B0F3B3000000012B0229296EFF04", 260),
    ] {
        assert_eq!(Token::from_text(text).unwrap_err().code().0, code, "{text}");
    }
    assert_eq!(Token::from_document(&raw(&doc! {})).unwrap_err().code().0, 40647);
    assert_eq!(Token::from_document(&raw(&doc! {"_data": 1})).unwrap_err().code().0, 14);
}

proptest! {
    #[test]
    fn any_token_is_read_as_it_was_written(
        time in any::<u64>(), operation in 0..1_000_000_u64, invalidate: bool,
        uuid in prop::option::of(any::<[u8; 16]>()), id in prop::option::of(any::<i64>()),
    ) {
        let key = id.map(|id| raw(&doc! {"_id": id}));
        let mut token = Token::event(Time(time), operation, uuid, key.as_deref()).unwrap();
        token.from_invalidate = invalidate;
        prop_assert_eq!(Token::from_text(&token.to_text()).unwrap(), token);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let text = hex(&bytes);
        let _read = Token::from_text(&text);
        let _read = Token::from_text(&format!("{PUBLISHED}{text}"));
    }
}
