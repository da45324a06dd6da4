//! Projections, corner by corner: `check(projection, document, projected)`.
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better")]

use super::*;
use bson::{Document, doc};

fn raw_doc(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn parse(projection: &Document) -> Result<Projection> {
    Projection::parse(&raw_doc(projection), &ParseContext::default())
}

fn run(projection: &Document, document: &Document, index: Option<usize>) -> Result<Document> {
    let details = MatchDetails { array_index: index };
    let projected = parse(projection)?.apply(&raw_doc(document), Some(&details))?;
    Ok(Document::try_from(&*projected)?)
}

fn check(projection: Document, document: Document, expected: Document) {
    let result = run(&projection, &document, None);
    let result = result.unwrap_or_else(|error| panic!("{projection}: {error:?}"));
    // Field order counts.
    assert_eq!(result.to_string(), expected.to_string(), "{projection} of {document}");
}

fn check_error(projection: Document, code: i32, text: &str) {
    let error = parse(&projection).expect_err(&format!("{projection} should be refused"));
    assert_eq!(error.code().0, code, "{projection}: {error}");
    assert!(error.message().contains(text), "{projection}: {error}");
}

#[test]
fn inclusion_keeps_named_fields_in_the_documents_order() {
    let whole = || doc! {"_id": 1, "a": 1, "b": 2, "c": 3};
    check(doc! {"c": 1, "a": true}, whole(), doc! {"_id": 1, "a": 1, "c": 3});
    check(doc! {"a": 1, "_id": 0}, whole(), doc! {"a": 1});
    check(doc! {"_id": 1}, whole(), doc! {"_id": 1});
    check(doc! {"a": 5.5}, whole(), doc! {"_id": 1, "a": 1});
    check(doc! {"x": 1}, whole(), doc! {"_id": 1});
    check(doc! {}, whole(), whole());
}

#[test]
fn exclusion_keeps_the_rest() {
    let whole = || doc! {"_id": 1, "a": 1, "b": {"x": 1, "y": 2}};
    check(doc! {"a": 0}, whole(), doc! {"_id": 1, "b": {"x": 1, "y": 2}});
    check(doc! {"_id": 0}, whole(), doc! {"a": 1, "b": {"x": 1, "y": 2}});
    check(doc! {"_id": 0, "b.x": false}, whole(), doc! {"a": 1, "b": {"y": 2}});
    check(doc! {"_id": 1, "a": 0}, whole(), doc! {"_id": 1, "b": {"x": 1, "y": 2}});
}

#[test]
fn paths_go_through_documents_and_arrays() {
    check(doc! {"a.b": 1}, doc! {"a": {"b": 1, "c": 2}}, doc! {"a": {"b": 1}});
    check(doc! {"a": {"b": 1}}, doc! {"a": {"b": 1, "c": 2}}, doc! {"a": {"b": 1}});
    check(doc! {"a.b": 1}, doc! {"a": 5, "c": 1}, doc! {});
    check(doc! {"a.b": 1}, doc! {"a": {}}, doc! {"a": {}});
    check(
        doc! {"a.b": 1},
        doc! {"a": [1, {"b": 1, "c": 2}, {"c": 3}, [{"b": 2, "c": 1}, 7]]},
        doc! {"a": [{"b": 1}, {}, [{"b": 2}]]},
    );
    check(
        doc! {"a.b": 0},
        doc! {"a": [1, {"b": 1, "c": 2}, [{"b": 2}]]},
        doc! {"a": [1, {"c": 2}, [{}]]},
    );
    check(
        doc! {"a.b": 1, "a.c": 1},
        doc! {"a": {"c": 1, "d": 2, "b": 3}},
        doc! {"a": {"c": 1, "b": 3}},
    );
}

#[test]
fn computed_fields_follow() {
    check(
        doc! {"s": {"$add": ["$a", "$b"]}, "a": 1},
        doc! {"_id": 1, "a": 1, "b": 2},
        doc! {"_id": 1, "a": 1, "s": 3},
    );
    check(doc! {"x": "$a.b"}, doc! {"_id": 1, "a": {"b": 5}}, doc! {"_id": 1, "x": 5});
    check(doc! {"x": "$missing", "y": "lit"}, doc! {"_id": 1}, doc! {"_id": 1, "y": "lit"});
    check(doc! {"_id": "$a"}, doc! {"_id": 1, "a": 2}, doc! {"_id": 2});
    check(
        doc! {"a.x": "$k"},
        doc! {"k": 7, "a": [{"x": 1, "y": 2}, 5]},
        doc! {"a": [{"x": 7}, {"x": 7}]},
    );
    check(doc! {"a.x": "$k"}, doc! {"k": 7}, doc! {"a": {"x": 7}});
    check(doc! {"a": ["$k", 1]}, doc! {"k": 7}, doc! {"a": [7, 1]});
}

#[test]
fn slices_cut_arrays() {
    let whole = || doc! {"_id": 1, "a": [1, 2, 3, 4], "b": 1};
    let cut = |slice: bson::Bson| run(&doc! {"a": {"$slice": slice}}, &whole(), None).unwrap();
    let with = |a: bson::Bson| doc! {"_id": 1, "a": a, "b": 1};
    assert_eq!(cut(bson::bson!(2)), with(bson::bson!([1, 2])));
    assert_eq!(cut(bson::bson!(-2)), with(bson::bson!([3, 4])));
    assert_eq!(cut(bson::bson!(0)), with(bson::bson!([])));
    assert_eq!(cut(bson::bson!(-9)), with(bson::bson!([1, 2, 3, 4])));
    assert_eq!(cut(bson::bson!([1, 2])), with(bson::bson!([2, 3])));
    assert_eq!(cut(bson::bson!([-3, 2])), with(bson::bson!([2, 3])));
    assert_eq!(cut(bson::bson!([9, 2])), with(bson::bson!([])));
    check(doc! {"a": {"$slice": 1}, "b": 1}, whole(), doc! {"_id": 1, "a": [1], "b": 1});
    check(doc! {"a": {"$slice": 1}, "b": 0}, whole(), doc! {"_id": 1, "a": [1]});
    check(doc! {"b": {"$slice": 1}}, whole(), whole());
    check(doc! {"x.y": {"$slice": 1}}, doc! {"x": [{"y": [1, 2]}, 3]}, doc! {"x": [{"y": [1]}, 3]});
    check(doc! {"_id": 0, "a": {"$slice": ["$a", 1]}}, whole(), doc! {"a": [1]});
    check_error(doc! {"a": {"$slice": [1, 0]}}, 28724, "First argument to $slice must be an array");
    check_error(doc! {"a": {"$slice": "x"}}, 28667, "Invalid $slice syntax");
}

#[test]
fn elem_match_shows_the_first_matching_element() {
    let whole = || doc! {"_id": 1, "a": [{"x": 1}, {"x": 2, "y": 1}, {"x": 2}], "b": 1};
    check(doc! {"a": {"$elemMatch": {"x": 2}}}, whole(), doc! {"_id": 1, "a": [{"x": 2, "y": 1}]});
    check(
        doc! {"a": {"$elemMatch": {"x": 2}}, "b": 1},
        whole(),
        doc! {"_id": 1, "b": 1, "a": [{"x": 2, "y": 1}]},
    );
    check(doc! {"_id": 0, "a": {"$elemMatch": {"x": 9}}}, whole(), doc! {});
    check(doc! {"a": {"$elemMatch": {"$gt": 1}}}, doc! {"a": [1, 2, 3]}, doc! {"a": [2]});
    check(doc! {"a": {"$elemMatch": {"x": 1}}}, doc! {"a": {"x": 1}}, doc! {});
    check_error(doc! {"a": {"$elemMatch": 1}}, 31274, "object required");
    check_error(
        doc! {"a.b": {"$elemMatch": {}}},
        31275,
        "Cannot use $elemMatch projection on a nested field",
    );
}

#[test]
fn the_positional_operator_shows_the_matched_element() {
    let at = |projection: Document, document: Document, index| run(&projection, &document, index);
    assert_eq!(
        at(doc! {"a.$": 1}, doc! {"_id": 1, "a": [1, 2], "b": 1}, Some(1)).unwrap(),
        doc! {"_id": 1, "a": [2]}
    );
    assert_eq!(
        at(doc! {"a.b.$": 1}, doc! {"a": {"b": [1, 2], "c": 1}}, Some(0)).unwrap(),
        doc! {"a": {"b": [1]}}
    );
    assert_eq!(
        at(doc! {"a.b.$": 1}, doc! {"a": [{"b": 1}, {"b": 2}]}, Some(1)).unwrap(),
        doc! {"a": [{"b": 2}]}
    );
    assert_eq!(at(doc! {"a.$": 1}, doc! {"a": 5}, None).unwrap(), doc! {"a": 5});
    assert_eq!(at(doc! {"a.$": 1}, doc! {"a": [1]}, None).unwrap_err().code().0, 51246);
    assert_eq!(at(doc! {"a.$": 1}, doc! {"a": [1]}, Some(5)).unwrap_err().code().0, 51247);
    check_error(doc! {"a.$": 1, "b.$": 1}, 31276, "more than one positional");
    check_error(doc! {"a.$": 0}, 31395, "cannot be used with exclusion");
    check_error(doc! {"a.$": "x"}, 31271, "cannot be used with a literal");
    check_error(doc! {"a.$.b": 1}, 31394, "As of 4.4");
    check_error(
        doc! {"a.$": 1, "b": {"$elemMatch": {}}},
        31255,
        "positional operator and $elemMatch",
    );
    assert!(parse(&doc! {"a.$": 1}).unwrap().is_positional());
}

#[test]
fn metadata_is_shown_where_it_is_known() {
    let projection = parse(&doc! {"k": {"$meta": "sortKey"}}).unwrap();
    assert!(projection.needs_sort_key());
    let meta = Metadata { sort_key: Some(RawBson::Int32(5)), ..Metadata::default() };
    let shown = projection.apply_with(&raw_doc(&doc! {"a": 1}), &meta).unwrap();
    assert_eq!(Document::try_from(&*shown).unwrap(), doc! {"a": 1, "k": 5});
    check_error(doc! {"k": {"$meta": "textScore"}}, 40218, "text score metadata");
    check_error(doc! {"k": {"$meta": "foo"}}, 17308, "Unsupported argument to $meta: foo");
}

#[test]
fn malformed_projections_have_mongodbs_errors() {
    check_error(
        doc! {"a": 1, "b": 0},
        31254,
        "Cannot do exclusion on field b in inclusion projection",
    );
    check_error(
        doc! {"a": 0, "b": 1},
        31253,
        "Cannot do inclusion on field b in exclusion projection",
    );
    check_error(doc! {"a": 0, "b": "$c"}, 31252, "Cannot use expression other than $meta");
    check_error(doc! {"a": 1, "a.b": 1}, 31249, "Path collision at a.b remaining portion b");
    check_error(doc! {"a.b": 1, "a": 1}, 31250, "Path collision at a");
    check_error(doc! {"a": {}}, 51270, "An empty sub-projection is not a valid value");
    check_error(doc! {"": 1}, 40352, "empty string");
    check_error(doc! {"a.": 1}, 40353, "must not end with");
    check_error(doc! {"a..b": 1}, 15998, "may not be empty");
    check_error(doc! {"$a": 1}, 16410, "may not start with '$'");
    check_error(doc! {"a": {"$foo": 1}}, 31325, "Unknown expression $foo");
    let somewhere = doc! {"a": {"$elemMatch": {"x": 1, "$where": "1"}}};
    check_error(somewhere, 2, "$where can only be applied to the top-level document");
}

#[test]
fn required_fields_are_what_an_index_must_hold() {
    let required = |projection: Document| {
        let fields = parse(&projection).unwrap().required_fields();
        fields.map(|fields| fields.into_iter().collect::<Vec<_>>())
    };
    let some = |fields: &[&str]| Some(fields.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>());
    assert_eq!(required(doc! {"a": 1}), some(&["_id", "a"]));
    assert_eq!(required(doc! {"a.b": 1, "_id": 0}), some(&["a.b"]));
    assert_eq!(required(doc! {"s": {"$add": ["$a", "$b"]}, "_id": 0}), some(&["a", "b"]));
    assert_eq!(required(doc! {"s": "$$ROOT"}), None);
    assert_eq!(required(doc! {"a": 0}), None);
}
