//! Sort keys, corner by corner.
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better")]

use super::*;
use bson::{Document, doc};

fn raw_doc(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn key(pattern: &Document, document: &Document) -> Vec<u8> {
    SortPattern::parse(&raw_doc(pattern)).unwrap().key(&raw_doc(document), None).unwrap()
}

/// The documents stand in the order the pattern sorts them into.
fn check(pattern: Document, documents: &[Document]) {
    let pattern = &pattern;
    for pair in documents.windows(2) {
        assert!(key(pattern, &pair[0]) < key(pattern, &pair[1]), "{pattern}: {pair:?}");
    }
}

fn check_equal(pattern: Document, a: Document, b: Document) {
    assert_eq!(key(&pattern, &a), key(&pattern, &b));
}

fn check_error(pattern: Document, code: i32) {
    assert_eq!(SortPattern::parse(&raw_doc(&pattern)).unwrap_err().code().0, code);
}

#[test]
fn fields_are_compared_in_order_of_the_pattern() {
    check(
        doc! {"a": 1, "b": -1},
        &[doc! {"a": 1, "b": 2}, doc! {"a": 1, "b": 1}, doc! {"a": 2, "b": 9}],
    );
    check(doc! {"a.b": -1}, &[doc! {"a": {"b": "x"}}, doc! {"a": {"b": 3}}, doc! {"a": 5}]);
}

#[test]
fn missing_counts_as_null_and_an_empty_array_is_below_it() {
    check_equal(doc! {"a": 1}, doc! {}, doc! {"a": null});
    check_equal(doc! {"a.b": 1}, doc! {"a": [{}]}, doc! {"a": {"b": null}});
    check(doc! {"a": 1}, &[doc! {"a": []}, doc! {}, doc! {"a": 1}]);
}

#[test]
fn an_array_counts_with_its_first_element_under_the_direction() {
    check(doc! {"a": 1}, &[doc! {"a": [5, 1]}, doc! {"a": 2}, doc! {"a": [3, 9]}]);
    check(doc! {"a": -1}, &[doc! {"a": [3, 9]}, doc! {"a": [5, 1]}, doc! {"a": 2}]);
    check(doc! {"a.b": 1}, &[doc! {"a": [{"b": 7}, {"b": 1}]}, doc! {"a": {"b": 2}}]);
    check(doc! {"a.1": 1}, &[doc! {"a": [9, 1]}, doc! {"a": [0, 2]}]);
}

#[test]
fn parts_through_one_array_come_from_one_element() {
    let pattern = doc! {"a.b": 1, "a.c": 1};
    let both = doc! {"a": [{"b": 1, "c": 9}, {"b": 2, "c": 1}]};
    check_equal(pattern, both, doc! {"a": {"b": 1, "c": 9}});
}

#[test]
fn parallel_arrays_cannot_be_sorted_by() {
    let pattern = SortPattern::parse(&raw_doc(&doc! {"a": 1, "b": 1})).unwrap();
    let error = pattern.key(&raw_doc(&doc! {"a": [1], "b": [2]}), None).unwrap_err();
    assert_eq!(error.code(), Code::BAD_VALUE);
}

#[test]
fn malformed_specifications_have_mongodbs_codes() {
    check_error(doc! {"a": 0}, 15975);
    check_error(doc! {"a": 2}, 15975);
    check_error(doc! {"a": "x"}, 15974);
    check_error(doc! {"": 1}, 40352);
    check_error(doc! {"a.": 1}, 40353);
    check_error(doc! {"a..b": 1}, 15998);
    check_error(doc! {"$a": 1}, 16410);
    check_error(doc! {"r.$ids": 1}, 16410);
    let reference = |id: i32| doc! {"r": {"$ref": "c", "$id": id}};
    let pattern = doc! {"r.$id": 1};
    assert!(key(&pattern, &reference(1)) < key(&pattern, &reference(2)));
    check_error((0..33).map(|n| (format!("f{n}"), bson::Bson::Int32(1))).collect(), 13103);
}

#[test]
fn the_text_score_sorts_from_the_best() {
    let given = raw_doc(&doc! {"s": {"$meta": "textScore"}, "a": 1});
    let pattern = SortPattern::parse(&given).unwrap();
    assert!(pattern.uses_text_score());
    assert_eq!(pattern.to_document(), given);
    let key = |score: Option<f64>, a: i32| {
        let document = raw_doc(&doc! {"s": [1, 2], "a": a});
        let scored = score.map(|score| text_score::with(&document, score));
        pattern.key(scored.as_ref().unwrap_or(&document), None).unwrap()
    };
    assert!(key(Some(2.0), 5) < key(Some(1.5), 1));
    assert!(key(Some(1.5), 1) < key(Some(1.5), 2));
    assert!(key(Some(0.1), 9) < key(None, 1));
}

#[test]
fn a_score_sorts_where_documents_carry_one() {
    let given = raw_doc(&doc! {"s": {"$meta": "score"}, "_id": 1});
    assert_eq!(SortPattern::parse(&given).unwrap_err().code().0, 31138);
    for (field, of_text) in [(text_score::FIELD, true), (text_score::SCORE_FIELD, false)] {
        let pattern = SortPattern::parse_scored(&given, Some(field)).unwrap();
        assert_eq!((pattern.uses_score(), pattern.uses_text_score()), (true, of_text));
        assert_eq!(pattern.to_document(), given);
        let key = |score: f64| {
            let document = raw_doc(&doc! {"_id": 1});
            let document = text_score::with(&document, if of_text { score } else { 1.0 });
            let document = text_score::with_score(&document, score, None);
            pattern.key(&document, None).unwrap()
        };
        assert!(key(2.0) < key(1.5));
        assert!(key(0.0) < key(f64::NAN));
    }
}
