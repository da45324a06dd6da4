//! The collation document: what is accepted, what is refused and how, what is shown.

use super::*;
use crate::accumulator::AccumulatorSpec;
use crate::filter::{Filter, MatchDetails, ParseContext};
use crate::update::{Update, UpdateContext};
use bson::{Bson, DateTime, Document, Timestamp, doc};

fn raw_doc(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn read(document: &Document) -> Result<Option<Collation>> {
    parse(&raw_doc(document))
}

fn ignoring_case() -> ParseContext {
    ParseContext::under(read(&doc! { "locale": "en", "strength": 2 }).unwrap())
}

#[test]
fn a_collation_is_shown_in_full_and_reads_back() {
    for (given, differs) in [
        (doc! { "locale": "en_US" }, doc! {}),
        (doc! { "locale": "fr_CA" }, doc! { "backwards": true }),
        (doc! { "locale": "da" }, doc! { "caseFirst": "upper" }),
        (doc! { "locale": "th" }, doc! { "alternate": "shifted" }),
        (doc! { "locale": "de@collation=phonebook" }, doc! {}),
        (doc! { "locale": "en", "strength": 2.9 }, doc! { "strength": 2 }),
        (
            doc! { "locale": "en", "strength": 1_i64, "caseLevel": true },
            doc! { "strength": 1, "caseLevel": true },
        ),
        (
            doc! { "locale": "en", "maxVariable": "space", "normalization": true, "version": "57.1" },
            doc! { "maxVariable": "space", "normalization": true },
        ),
    ] {
        let collation = read(&given).unwrap().unwrap();
        let mut expected = doc! {
            "locale": given.get_str("locale").unwrap(), "caseLevel": false, "caseFirst": "off",
            "strength": 3, "numericOrdering": false, "alternate": "non-ignorable",
            "maxVariable": "punct", "normalization": false, "backwards": false, "version": "57.1",
        };
        expected.extend(differs);
        let shown = Document::try_from(&to_document(&collation)).unwrap();
        assert_eq!(shown, expected);
        assert!(shown.keys().eq(expected.keys()), "{shown}");
        assert_eq!(read(&shown).unwrap(), Some(collation));
    }
    assert_eq!(read(&doc! { "locale": "simple" }).unwrap(), None);
}

#[test]
fn wrong_documents_are_refused_with_mongodbs_codes() {
    for (document, code) in [
        (doc! {}, 40414),
        (doc! { "strength": 1 }, 40414),
        (doc! { "locale": 1 }, 14),
        (doc! { "locale": "en", "colour": 1 }, 40415),
        (doc! { "locale": "xx" }, 2),
        (doc! { "locale": "" }, 2),
        (doc! { "locale": "en-US" }, 2),
        (doc! { "locale": "de@collation=search" }, 2),
        (doc! { "locale": "en", "strength": 0 }, 2),
        (doc! { "locale": "en", "strength": 6 }, 2),
        (doc! { "locale": "en", "strength": -1 }, 2),
        (doc! { "locale": "en", "strength": "2" }, 14),
        (doc! { "locale": "en", "caseFirst": "first" }, 2),
        (doc! { "locale": "en", "caseFirst": "upper", "strength": 2 }, 2),
        (doc! { "locale": "da", "strength": 2 }, 2),
        (doc! { "locale": "fr", "backwards": true, "strength": 1 }, 2),
        (doc! { "locale": "en", "alternate": "yes" }, 2),
        (doc! { "locale": "en", "maxVariable": "symbol" }, 2),
        (doc! { "locale": "en", "caseLevel": 1 }, 14),
        (doc! { "locale": "en", "version": "60" }, 161),
    ] {
        assert_eq!(read(&document).unwrap_err().code().0, code, "{document}");
    }
}

/// Strings compare as the collation has it, wherever they stand; patterns do not care.
#[test]
fn comparisons_follow_the_collation() {
    let ctx = ignoring_case();
    for (filter, document, expected) in [
        (doc! { "a": "x" }, doc! { "a": "X" }, true),
        (doc! { "a": "x" }, doc! { "a": "é" }, false),
        (doc! { "a": { "$ne": "x" } }, doc! { "a": "X" }, false),
        (doc! { "a": { "$in": ["B", "x", "a", 1] } }, doc! { "a": "b" }, true),
        (doc! { "$or": [{ "a": "B" }, { "a": "x" }, { "a": "a" }] }, doc! { "a": "b" }, true),
        (doc! { "a": { "$nin": ["B", "a"] } }, doc! { "a": "A" }, false),
        (doc! { "a": { "$gt": "b" } }, doc! { "a": "B" }, false),
        (doc! { "a": { "$gte": "b" } }, doc! { "a": "B" }, true),
        (doc! { "a": { "$lt": "B" } }, doc! { "a": "a" }, true),
        (doc! { "a": { "b": ["x"] } }, doc! { "a": { "b": ["X"] } }, true),
        (doc! { "a": { "b": "x" } }, doc! { "a": { "B": "x" } }, false),
        (doc! { "a": { "$elemMatch": { "$eq": "x" } } }, doc! { "a": ["y", "X"] }, true),
        (doc! { "a": { "$all": ["X", "Y"] } }, doc! { "a": ["y", "x"] }, true),
        (doc! { "a": { "$regex": "^x" } }, doc! { "a": "X" }, false),
        (doc! { "$expr": { "$eq": ["$a", "x"] } }, doc! { "a": "X" }, true),
        (doc! { "$expr": { "$eq": ["X", "x"] } }, doc! {}, true),
        (doc! { "$expr": { "$in": ["$a", ["y", "x"]] } }, doc! { "a": "X" }, true),
        (doc! { "$expr": { "$setEquals": [["a", "B"], ["b", "A", "a"]] } }, doc! {}, true),
        (doc! { "$expr": { "$eq": [{ "$max": ["a", "B"] }, "b"] } }, doc! {}, true),
        (doc! { "$expr": { "$eq": [{ "$indexOfArray": [["a", "b"], "B"] }, 1] } }, doc! {}, true),
        (
            doc! { "$expr": { "$eq": ["$$ROOT.a", { "$first": [
            { "$sortArray": { "input": ["b", "A"], "sortBy": 1 } }] }] } },
            doc! { "a": "a" },
            true,
        ),
    ] {
        let parsed = Filter::parse(&raw_doc(&filter), &ctx).unwrap();
        assert_eq!(
            parsed.matches(&raw_doc(&document)).unwrap(),
            expected,
            "{filter} on {document}"
        );
    }
}

#[test]
fn updates_follow_the_collation() {
    let ctx = ignoring_case();
    let at = UpdateContext {
        details: MatchDetails::default(),
        now: DateTime::from_millis(0),
        timestamp: Timestamp { time: 0, increment: 0 },
        keep_empty_timestamps: false,
    };
    for (update, expected) in [
        (doc! { "$addToSet": { "a": "X" } }, doc! { "a": ["b", "X", "C"] }),
        (
            doc! { "$addToSet": { "a": { "$each": ["B", "c", "D", "d"] } } },
            doc! { "a": ["b", "X", "C", "D"] },
        ),
        (doc! { "$pull": { "a": "B" } }, doc! { "a": ["X", "C"] }),
        (doc! { "$pull": { "a": { "$gte": "c" } } }, doc! { "a": ["b"] }),
        (doc! { "$pullAll": { "a": ["x", "c"] } }, doc! { "a": ["b"] }),
        (
            doc! { "$push": { "a": { "$each": ["D"], "$sort": 1 } } },
            doc! { "a": ["b", "C", "D", "X"] },
        ),
        (doc! { "$min": { "a.0": "A" } }, doc! { "a": ["A", "X", "C"] }),
        (doc! { "$max": { "a.0": "B" } }, doc! { "a": ["b", "X", "C"] }),
    ] {
        let given = raw_doc(&update);
        let refuse = |_: &bson::raw::RawArray| Err(Error::bad_value("no pipeline"));
        let parsed = Update::parse(RawBsonRef::Document(&given), None, &ctx, &refuse).unwrap();
        let before = raw_doc(&doc! { "a": ["b", "X", "C"] });
        let after = parsed.apply(&before, &at).unwrap().document;
        assert_eq!(Document::try_from(&after).unwrap(), expected, "{update}");
    }
}

#[test]
fn accumulators_follow_the_collation() {
    let ctx = ignoring_case();
    for (accumulator, expected) in [
        (doc! { "$addToSet": "$a" }, Bson::from(vec!["b", "A", "c"])),
        (doc! { "$min": "$a" }, "A".into()),
        (doc! { "$max": "$a" }, "c".into()),
        (doc! { "$maxN": { "input": "$a", "n": 2 } }, vec!["c", "C"].into()),
        (doc! { "$bottom": { "output": "$a", "sortBy": { "a": -1 } } }, "A".into()),
    ] {
        let given = raw_doc(&accumulator);
        let element = given.iter_elements().next().unwrap().unwrap();
        let (name, value) = (element.key().as_str(), element.value().unwrap());
        let spec = AccumulatorSpec::parse(name, value, &ctx.names).unwrap();
        let mut state = spec.start(RawBsonRef::Null, &ctx.variables).unwrap();
        for text in ["b", "A", "c", "B", "C"] {
            spec.add(&mut state, &raw_doc(&doc! { "a": text }), &ctx.variables).unwrap();
        }
        assert_eq!(Bson::try_from(state.finish().unwrap()).unwrap(), expected, "{accumulator}");
    }
}
