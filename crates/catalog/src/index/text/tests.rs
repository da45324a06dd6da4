//! Text indexes: what is shown of them, what is refused, their keys.

use super::*;
use crate::index::keys::SEVEN;
use crate::index::{KeyMaker, RecordKey};
use bson::{Bson, Document, bson, doc};

fn parse(spec: &Document) -> Result<IndexSpec> {
    let mut spec = spec.clone();
    if !spec.contains_key("name") {
        spec.insert("name", "x");
    }
    IndexSpec::parse(&RawDocumentBuf::try_from(&spec).unwrap())
}

fn shown(spec: &Document) -> Document {
    Document::try_from(&parse(spec).unwrap().shown).unwrap()
}

#[test]
fn specifications_are_shown_as_mongodb_does_and_taken_back() {
    let given = doc! { "key": { "p": 1, "b": "text", "a.c": "text", "s": -1 }, "name": "n", "weights": { "a.c": 5_i64, "z": 2.0 } };
    let expected = doc! {
        "v": 2,
        "key": { "p": 1, "_fts": "text", "_ftsx": 1, "s": -1 },
        "name": "n",
        "weights": { "a.c": 5, "b": 1, "z": 2 },
        "default_language": "english",
        "language_override": "language",
        "textIndexVersion": 3,
    };
    assert_eq!(shown(&given), expected);
    assert_eq!(shown(&expected), expected);
    let parsed = parse(&given).unwrap();
    let again = parse(&expected).unwrap();
    assert!(parsed.same_signature(&again) && parsed.same_options(&again));
    assert_eq!(parsed.text.as_ref().unwrap().prefix(), 1);

    let given = doc! { "key": { "$**": "text" }, "default_language": "fr", "language_override": "l", "textIndexVersion": 2, "background": true };
    let expected = doc! {
        "v": 2,
        "key": { "_fts": "text", "_ftsx": 1 },
        "name": "x",
        "background": true,
        "weights": { "$**": 1 },
        "default_language": "fr",
        "language_override": "l",
        "textIndexVersion": 2,
    };
    assert_eq!(shown(&given), expected);
    assert_eq!(shown(&expected), expected);
    let other = parse(&doc! { "key": { "b": "text" } }).unwrap();
    assert!(!other.same_options(&again));
}

#[test]
fn what_no_text_index_can_be_is_refused() {
    for (spec, message) in [
        (doc! { "key": { "a": "text", "b": 1, "c": "text" } }, "must all be adjacent"),
        (doc! { "key": { "a": "text", "b": 2 } }, "expected value 1 or -1"),
        (doc! { "key": { "a": "text", "b": "hashed" } }, "more than one index plugin"),
        (doc! { "key": { "_fts": "text" } }, "expecting _ftsx after _fts"),
        (doc! { "key": { "_fts": "text", "_ftsx": 2 } }, "expecting _ftsx:1"),
        (doc! { "key": { "_fts": "text", "_ftsx": 1 } }, "must name a field"),
        (doc! { "key": { "_ftsx": 1, "a": "text" } }, "reserved field name '_ftsx'"),
        (doc! { "key": { "a": "text" }, "weights": { "a": 0 } }, "(0,100000) but found: 0"),
        (doc! { "key": { "a": "text" }, "weights": { "a": 100_000 } }, "but found: 100000"),
        (doc! { "key": { "a": "text" }, "weights": { "a": "x" } }, "needs numeric type"),
        (doc! { "key": { "a": "text" }, "weights": { "": 1 } }, "on an empty field"),
        (doc! { "key": { "a": "text" }, "weights": { "a..b": 1 } }, "empty path component"),
        (doc! { "key": { "a": "text" }, "weights": { "a.$b": 1 } }, "$ prefix"),
        (doc! { "key": { "a": "text" }, "weights": 1 }, "'weights' must be an object"),
        (doc! { "key": { "a": "text" }, "default_language": 1 }, "needs a string type"),
        (doc! { "key": { "a": "text" }, "default_language": "elvish" }, "default_language is not"),
        (doc! { "key": { "a": "text" }, "language_override": "a.b" }, "language_override is not"),
        (doc! { "key": { "a": "text" }, "language_override": 5 }, "language_override is not"),
        (doc! { "key": { "a": "text" }, "textIndexVersion": 4 }, "bad textIndexVersion: 4"),
        (doc! { "key": { "a": "text" }, "textIndexVersion": "x" }, "must be a number"),
        (
            doc! { "key": { "a": "text" }, "collation": { "locale": "fr" } },
            "does not support collation",
        ),
        (doc! { "key": { "a": "text" }, "unique": true }, "does not support the unique option"),
        (doc! { "key": { "a": "text" }, "expireAfterSeconds": 5 }, "TTL indexes are single-field"),
    ] {
        let error = parse(&spec).unwrap_err();
        assert_eq!(error.code(), Code::CANNOT_CREATE_INDEX, "{spec}: {error}");
        assert!(error.message().contains(message), "{spec}: {error}");
    }
    parse(&doc! { "key": { "a": "text" }, "collation": { "locale": "simple" } }).unwrap();
}

fn keys(spec: &Document, document: &Document) -> Result<Bson> {
    let maker = KeyMaker::new(&parse(spec)?, None);
    let raw = RawDocumentBuf::try_from(document).unwrap();
    let made = maker.make(&raw, RecordKey::new(RawBsonRef::Int32(7), &SEVEN))?;
    assert_eq!(made.multikey, 0);
    let values = made.entries.iter().map(|entry| {
        let mut values = maker.values(&entry.key, &entry.value).unwrap();
        assert_eq!(values.pop(), Some(Bson::Int32(7)));
        Bson::Array(values)
    });
    Ok(Bson::Array(values.collect()))
}

#[test]
fn keys_are_terms_with_scores_between_values() {
    let spec = doc! { "key": { "p": 1, "a": "text", "s.t": -1 } };
    let document = doc! { "p": 5, "a": "Green teas", "s": { "t": "x" } };
    let expected = bson!([[5, "green", 0.75, "x"], [5, "tea", 0.75, "x"]]);
    assert_eq!(keys(&spec, &document).unwrap(), expected);
    let expected = bson!([[null, "tea", 1.1, null]]);
    assert_eq!(keys(&spec, &doc! { "a": "tea" }).unwrap(), expected);
    assert_eq!(keys(&spec, &doc! { "p": 5 }).unwrap(), bson!([]));
    for document in [doc! { "p": [1], "a": "tea" }, doc! { "s": [{ "t": 1 }], "a": "tea" }] {
        let error = keys(&spec, &document).unwrap_err();
        assert_eq!(error.code(), Code::CANNOT_BUILD_INDEX_KEYS, "{error}");
    }
}

#[test]
fn entries_depend_on_texts_and_their_language() {
    let maker = |key: Document| KeyMaker::new(&parse(&doc! { "key": key }).unwrap(), None);
    let depends = |maker: &KeyMaker, path: &str| maker.depends_on(&[bsonval::Path::new(path)]);
    let named = maker(doc! { "p": 1, "a.b": "text" });
    for path in ["a", "a.b", "a.0.b", "a.language", "language", "p", "p.x"] {
        assert!(depends(&named, path), "{path}");
    }
    for path in ["b", "a.c", "c.language"] {
        assert!(!depends(&named, path), "{path}");
    }
    assert!(depends(&maker(doc! { "$**": "text" }), "anything"));
}
