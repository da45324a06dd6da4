//! What the log and clients bring to those who follow changes: notes, diffs, resume tokens.

use crate::Target;
use bson::raw::RawDocumentBuf;
use bson::{Document, doc};
use oplog::Time;
use oplog::notes::{Decoder, Notes};
use oplog::token::Token;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("a good document")
}

/// The notes of a commit.
pub(super) const NOTES: Target = Target {
    name: "notes",
    corpus: || {
        let mut notes = Notes::new(false);
        let slot = notes.slot(7, [1; 16], "db.c");
        notes.insert(slot, b"key1", 30);
        notes.insert(slot, b"key2", 30);
        notes.update(slot, b"key1", &raw(&doc! { "u": { "a": 1 } }));
        notes.overwritten(slot, b"key1", &raw(&doc! { "_id": 1 }));
        notes.delete(slot, b"key1", &raw(&doc! { "_id": 1 }));
        notes.statements(0, 2);
        notes.each().map(<[u8]>::to_vec).collect()
    },
    start: || {
        Box::new(|bytes| {
            let mut decoder = Decoder::default();
            let _read = decoder.read(bytes, |_, _| Ok(()));
        })
    },
};

/// A resume token, as text.
pub(super) const TOKEN: Target = Target {
    name: "token",
    corpus: || {
        let time = Time(0x612E_8513_0000_0001);
        let event = Token::event(time, 3, Some([7; 16]), Some(&raw(&doc! { "_id": "x" })));
        let event = event.expect("a good key");
        let part = event.fragment(2).expect("a number");
        let all = [Token::high_water_mark(time), event.invalidate(), event, part];
        all.iter().map(|token| token.to_text().into_bytes()).collect()
    },
    start: || {
        Box::new(|bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(token) = Token::from_text(text) {
                let again = Token::from_text(&token.to_text()).expect("what is written is read");
                assert_eq!(again.place(), token.place(), "a token is read as it was written");
            }
        })
    },
};

/// Two documents: their diff is described, and an input that is no diff is as well.
pub(super) const DIFF: Target = Target {
    name: "diff",
    corpus: || {
        let both = doc! { "a": { "x": [1, { "y": 2 }] }, "b": { "x": [1, { "y": 3 }, 4] } };
        vec![raw(&both).into_bytes(), raw(&doc! { "d": { "u": { "a": 1 } } }).into_bytes()]
    },
    start: || {
        Box::new(|bytes| {
            let Ok(document) = wire::validate(bytes) else { return };
            if let (Ok(a), Ok(b)) = (document.get_document("a"), document.get_document("b"))
                && let Ok(Some(diff)) = oplog::diff::diff(a, b, None)
            {
                oplog::description::describe(&diff, true).expect("a diff can be described");
            }
            let _described = oplog::description::describe(document, true);
        })
    },
};
