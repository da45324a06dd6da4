//! Updates, corner by corner: `check(document, update, document after)`.
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better")]

use super::*;
use bson::{Bson, Decimal128, Document, bson, doc};
use errors::{Code, Error};
use proptest::prelude::*;

mod collation;

fn raw_doc(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn plain(document: &RawDocument) -> Document {
    Document::try_from(document).unwrap()
}

fn ctx() -> UpdateContext {
    UpdateContext {
        details: MatchDetails::default(),
        now: DateTime::from_millis(1234),
        timestamp: Timestamp { time: 7, increment: 8 },
        keep_empty_timestamps: false,
    }
}

/// A pipeline that sets the field its only stage names.
#[derive(Debug)]
struct SetOne(String);

impl PipelineUpdate for SetOne {
    fn apply(&self, document: &RawDocument) -> Result<RawDocumentBuf> {
        let mut out = document.to_owned();
        out.append(bson::raw::CString::try_from(self.0.clone())?, true);
        Ok(out)
    }
}

fn parse_with(update: Bson, filters: &[Document]) -> Result<Update> {
    let update = raw_doc(&doc! {"u": update});
    let filters = raw_doc(&doc! {"f": filters});
    let pipeline = |stages: &RawArray| -> Result<Box<dyn PipelineUpdate>> {
        match stages.get(0)? {
            Some(RawBsonRef::Document(stage)) => {
                Ok(Box::new(SetOne(raw::first_name(stage).unwrap_or_default().to_owned())))
            }
            _ => Err(Error::bad_value("no stage")),
        }
    };
    Update::parse(
        update.get("u")?.unwrap(),
        Some(filters.get_array("f").unwrap()),
        &ParseContext::default(),
        &pipeline,
    )
}

fn run(document: &Document, update: Document, filters: &[Document]) -> Result<(Document, bool)> {
    let before = raw_doc(document);
    let outcome = parse_with(Bson::Document(update), filters)?.apply(&before, &ctx())?;
    assert_eq!(outcome.modified, before.as_bytes() != outcome.document.as_bytes());
    Ok((plain(&outcome.document), outcome.modified))
}

/// Field order counts.
fn same(a: &Document, b: &Document) -> bool {
    raw_doc(a).as_bytes() == raw_doc(b).as_bytes()
}

fn check(before: Document, update: Document, after: Document) {
    let (result, modified) =
        run(&before, update.clone(), &[]).unwrap_or_else(|e| panic!("{update} on {before}: {e:?}"));
    assert!(same(&result, &after), "{update} on {before}: {result}");
    assert_eq!(modified, !same(&before, &after), "{update} on {before}");
}

fn check_noop(before: Document, update: Document) {
    check(before.clone(), update, before);
}

fn check_filtered(before: Document, update: Document, filters: &[Document], after: Document) {
    let (result, _) = run(&before, update.clone(), filters).unwrap();
    assert!(same(&result, &after), "{update} on {before}: {result}");
}

fn check_error(before: Document, update: Document, code: Code, text: &str) {
    let error = run(&before, update.clone(), &[]).expect_err(&format!("{update} on {before}"));
    assert_eq!(error.code(), code, "{update}: {error}");
    assert!(error.message().contains(text), "{update}: {error}");
}

fn dec(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

#[test]
fn set_changes_in_place_and_appends_in_order() {
    check(
        doc! {"_id": 1, "a": 1, "b": 2},
        doc! {"$set": {"a": 5}},
        doc! {"_id": 1, "a": 5, "b": 2},
    );
    check(
        doc! {"m": 0},
        doc! {"$set": {"z": 1, "b": 2, "a": 3}},
        doc! {"m": 0, "a": 3, "b": 2, "z": 1},
    );
    check(
        doc! {},
        doc! {"$set": {"x.10": 1, "x.9": 2, "x.b": 3}},
        doc! {"x": {"9": 2, "10": 1, "b": 3}},
    );
    check(doc! {}, doc! {"$set": {"a.b.c": 1}}, doc! {"a": {"b": {"c": 1}}});
    check(doc! {"a": {"x": 1}}, doc! {"$set": {"a.b": 2}}, doc! {"a": {"x": 1, "b": 2}});
    check(doc! {"a": [1, 2]}, doc! {"$set": {"a.1": 9}}, doc! {"a": [1, 9]});
    check(doc! {"a": [1]}, doc! {"$set": {"a.3": 9}}, doc! {"a": [1, null, null, 9]});
    check(
        doc! {"a": [{"b": 1}]},
        doc! {"$set": {"a.0.b": 2, "a.1.b": 3}},
        doc! {"a": [{"b": 2}, {"b": 3}]},
    );
    check(doc! {"a": 1}, doc! {"$set": {"a": 1.0}}, doc! {"a": 1.0});
    check_noop(doc! {"a": 1}, doc! {"$set": {"a": 1}});
    check_noop(doc! {"a": 1}, doc! {"$set": {}});
    check_noop(doc! {"_id": 1}, doc! {"$set": {"_id": 1}});
    check(doc! {"a": 1}, doc! {"$set": {"a": {"$x": 1}}}, doc! {"a": {"$x": 1}});
    check(
        doc! {"r": {"$ref": "c", "$id": 1}},
        doc! {"$set": {"r.$id": 2}},
        doc! {"r": {"$ref": "c", "$id": 2}},
    );
}

#[test]
fn fields_that_no_operator_names_stay_as_they_are_and_what_is_damaged_is_refused() {
    let many: Document = (0..20).map(|n| (format!("f{n}"), bson!([n, { "x": n }]))).collect();
    for n in 0..20 {
        let name = format!("f{n}");
        let mut expected = many.clone();
        expected.insert(&name, 1);
        check(many.clone(), doc! {"$set": {&name: 1}}, expected.clone());
        expected.remove(&name);
        check(many.clone(), doc! {"$unset": {name: 1}}, expected);
    }
    // A repeated name is a field of its own.
    let twice = b"\x13\0\0\0\x10a\0\x01\0\0\0\x10a\0\x02\0\0\0\0";
    let twice = RawDocument::from_bytes(twice).unwrap();
    let update = parse_with(bson!({"$inc": {"a": 5}}), &[]).unwrap();
    let outcome = update.apply(twice, &ctx()).unwrap();
    let expected = b"\x13\0\0\0\x10a\0\x06\0\0\0\x10a\0\x02\0\0\0\0";
    assert_eq!(outcome.document.as_bytes(), expected);
    // The last byte of the value is where the document ends.
    let damaged = RawDocument::from_bytes(b"\x0b\0\0\0\x10a\0\x01\0\0\0").unwrap();
    assert!(update.apply(damaged, &ctx()).is_err());
    let elsewhere = parse_with(bson!({"$inc": {"b": 5}}), &[]).unwrap();
    assert!(elsewhere.apply(damaged, &ctx()).is_err());
}

#[test]
fn unset_removes_fields_and_nulls_elements() {
    check(doc! {"a": 1, "b": 2}, doc! {"$unset": {"a": ""}}, doc! {"b": 2});
    check(doc! {"a": {"b": 1, "c": 2}}, doc! {"$unset": {"a.b": 1}}, doc! {"a": {"c": 2}});
    check(doc! {"a": [1, 2]}, doc! {"$unset": {"a.0": 1}}, doc! {"a": [null, 2]});
    check_noop(doc! {"a": 1}, doc! {"$unset": {"b": 1, "a.x": 1, "c.d": 1}});
    check_noop(doc! {"a": [1]}, doc! {"$unset": {"a.5": 1, "a.x": 1}});
}

#[test]
fn numbers_widen_and_do_not_overflow() {
    check(doc! {"a": 1}, doc! {"$inc": {"a": 2}}, doc! {"a": 3});
    check(doc! {"a": 1}, doc! {"$inc": {"a": 2_i64}}, doc! {"a": 3_i64});
    check(doc! {"a": 1}, doc! {"$inc": {"a": 0.5}}, doc! {"a": 1.5});
    check(doc! {"a": 1}, doc! {"$inc": {"a": dec("0.5")}}, doc! {"a": dec("1.5")});
    check(doc! {"a": i32::MAX}, doc! {"$inc": {"a": 1}}, doc! {"a": 2147483648_i64});
    check(doc! {}, doc! {"$inc": {"a": 5, "b.c": -1}}, doc! {"a": 5, "b": {"c": -1}});
    check_noop(doc! {"a": 1}, doc! {"$inc": {"a": 0}});
    check(doc! {"a": 3}, doc! {"$mul": {"a": 4}}, doc! {"a": 12});
    check(doc! {"a": i32::MAX}, doc! {"$mul": {"a": 2}}, doc! {"a": 4294967294_i64});
    check(
        doc! {},
        doc! {"$mul": {"a": 4, "b": 2.5, "c": 1_i64}},
        doc! {"a": 0, "b": 0.0, "c": 0_i64},
    );
    let overflow = "Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) for document {_id: 1}";
    check_error(doc! {"_id": 1, "a": i64::MAX}, doc! {"$inc": {"a": 1}}, Code::BAD_VALUE, overflow);
    check_error(
        doc! {"a": i64::MAX},
        doc! {"$mul": {"a": 2}},
        Code::BAD_VALUE,
        "Failed to apply $mul",
    );
    check_error(
        doc! {"_id": 1, "a": "x"},
        doc! {"$inc": {"a": 1}},
        Code::TYPE_MISMATCH,
        "Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 'a' of non-numeric type string",
    );
    check_error(
        doc! {"a": null},
        doc! {"$inc": {"a": 1}},
        Code::TYPE_MISMATCH,
        "non-numeric type null",
    );
    check_error(
        doc! {},
        doc! {"$inc": {"a": "x"}},
        Code::TYPE_MISMATCH,
        "Cannot increment with non-numeric argument: {a: \"x\"}",
    );
    check_error(
        doc! {},
        doc! {"$mul": {"a": "x"}},
        Code::TYPE_MISMATCH,
        "Cannot multiply with non-numeric argument: {a: \"x\"}",
    );
}

#[test]
fn min_and_max_follow_the_order_of_values() {
    check(doc! {"a": 5}, doc! {"$min": {"a": 3}}, doc! {"a": 3});
    check_noop(doc! {"a": 5}, doc! {"$min": {"a": 7}});
    check_noop(doc! {"a": 5}, doc! {"$min": {"a": 5.0}});
    check(doc! {"a": 5}, doc! {"$max": {"a": "x", "b": 1}}, doc! {"a": "x", "b": 1});
    check(doc! {"a": "x"}, doc! {"$min": {"a": 1}}, doc! {"a": 1});
}

#[test]
fn bit_combines_integers() {
    check(doc! {"a": 13}, doc! {"$bit": {"a": {"and": 10}}}, doc! {"a": 8});
    check(doc! {"a": 3}, doc! {"$bit": {"a": {"or": 5_i64}}}, doc! {"a": 7_i64});
    check(doc! {"a": 1_i64}, doc! {"$bit": {"a": {"xor": 5}}}, doc! {"a": 4_i64});
    check(doc! {}, doc! {"$bit": {"a": {"or": 5}}}, doc! {"a": 5});
    check_error(
        doc! {"a": 1.5},
        doc! {"$bit": {"a": {"or": 5}}},
        Code::BAD_VALUE,
        "non-integral type",
    );
    check_error(
        doc! {},
        doc! {"$bit": {"a": {"or": 1.5}}},
        Code::BAD_VALUE,
        "must be an Integer(32/64 bit)",
    );
    check_error(
        doc! {},
        doc! {"$bit": {"a": {"not": 1}}},
        Code::BAD_VALUE,
        "only supports 'and', 'or', and 'xor'",
    );
    check_error(
        doc! {},
        doc! {"$bit": {"a": {}}},
        Code::BAD_VALUE,
        "at least one bitwise operation",
    );
    check_error(doc! {}, doc! {"$bit": {"a": 1}}, Code::BAD_VALUE, "not compatible with a int");
}

#[test]
fn current_date_asks_the_context() {
    let date = Bson::DateTime(DateTime::from_millis(1234));
    let stamp = Bson::Timestamp(Timestamp { time: 7, increment: 8 });
    check(
        doc! {},
        doc! {"$currentDate": {"a": true, "b": {"$type": "date"}, "c": {"$type": "timestamp"}}},
        doc! {"a": date.clone(), "b": date, "c": stamp},
    );
    check_error(
        doc! {},
        doc! {"$currentDate": {"a": 1}},
        Code::BAD_VALUE,
        "int is not valid type for $currentDate",
    );
    check_error(
        doc! {},
        doc! {"$currentDate": {"a": {"$type": "x"}}},
        Code::BAD_VALUE,
        "required to be 'date' or 'timestamp'",
    );
    check_error(
        doc! {},
        doc! {"$currentDate": {"a": {"foo": 1}}},
        Code::BAD_VALUE,
        "Unrecognized $currentDate option: foo",
    );
}

#[test]
fn rename_moves_a_value() {
    check(doc! {"a": 1, "b": 2}, doc! {"$rename": {"a": "c"}}, doc! {"b": 2, "c": 1});
    check(doc! {"a": 1, "b": 2}, doc! {"$rename": {"a": "b"}}, doc! {"b": 1});
    check(doc! {"a": {"x": 1}}, doc! {"$rename": {"a.x": "b.y"}}, doc! {"a": {}, "b": {"y": 1}});
    check_noop(doc! {"b": 2}, doc! {"$rename": {"a": "b", "x.y": "z.w"}});
    let bad =
        |before, update, text| check_error(before, doc! {"$rename": update}, Code::BAD_VALUE, text);
    bad(doc! {}, doc! {"a": 1}, "The 'to' field for $rename must be a string: a: 1");
    bad(doc! {}, doc! {"a": "a"}, "The source and target field for $rename must differ: a: \"a\"");
    bad(doc! {}, doc! {"a": "a.b"}, "must not be on the same path: a: \"a.b\"");
    bad(doc! {}, doc! {"a.$": "b"}, "The source field for $rename may not be dynamic: a.$");
    bad(
        doc! {"_id": 1, "a": [1]},
        doc! {"a.0": "b"},
        "The source field cannot be an array element, 'a.0' in doc with _id: 1 has an array field called 'a'",
    );
    bad(
        doc! {"_id": 1, "a": 1, "b": []},
        doc! {"a": "b.0"},
        "The destination field cannot be an array element, 'b.0' in doc with _id: 1",
    );
}

#[test]
fn push_appends_inserts_sorts_and_slices() {
    check(doc! {"a": [1]}, doc! {"$push": {"a": 2}}, doc! {"a": [1, 2]});
    check(doc! {}, doc! {"$push": {"a": [1]}}, doc! {"a": [[1]]});
    check(doc! {"a": [1]}, doc! {"$push": {"a": {"x": 1}}}, doc! {"a": [1, {"x": 1}]});
    check(doc! {"a": [1]}, doc! {"$push": {"a": {"$each": [2, 3]}}}, doc! {"a": [1, 2, 3]});
    check(
        doc! {"a": [1, 4]},
        doc! {"$push": {"a": {"$each": [2, 3], "$position": 1}}},
        doc! {"a": [1, 2, 3, 4]},
    );
    check(
        doc! {"a": [1, 4]},
        doc! {"$push": {"a": {"$each": [2], "$position": -1}}},
        doc! {"a": [1, 2, 4]},
    );
    check(
        doc! {"a": [1]},
        doc! {"$push": {"a": {"$each": [2], "$position": 99}}},
        doc! {"a": [1, 2]},
    );
    check(
        doc! {"a": [1]},
        doc! {"$push": {"a": {"$each": [0], "$position": -99}}},
        doc! {"a": [0, 1]},
    );
    check(
        doc! {"a": [3, 1]},
        doc! {"$push": {"a": {"$each": [2], "$sort": 1}}},
        doc! {"a": [1, 2, 3]},
    );
    check(
        doc! {"a": [3, 1]},
        doc! {"$push": {"a": {"$sort": -1, "$each": [2], "$slice": 2}}},
        doc! {"a": [3, 2]},
    );
    check(
        doc! {"a": [1, 2]},
        doc! {"$push": {"a": {"$each": [3], "$slice": -2}}},
        doc! {"a": [2, 3]},
    );
    check(doc! {"a": [1, 2]}, doc! {"$push": {"a": {"$each": [], "$slice": 0}}}, doc! {"a": []});
    check(
        doc! {"a": [{"s": 2, "t": 1}, {"s": 1}]},
        doc! {"$push": {"a": {"$each": [{"s": 2, "t": 0}], "$sort": {"s": 1, "t": -1}}}},
        doc! {"a": [{"s": 1}, {"s": 2, "t": 1}, {"s": 2, "t": 0}]},
    );
    // Arrays at the path are compared as a whole; a number enters one.
    check(
        doc! {"a": [{"s": [3, 1]}, {"s": [2, 9]}]},
        doc! {"$push": {"a": {"$each": [], "$sort": {"s": 1}}}},
        doc! {"a": [{"s": [2, 9]}, {"s": [3, 1]}]},
    );
    check(
        doc! {"a": [{"s": [2, 9]}, {"s": [3, 1]}]},
        doc! {"$push": {"a": {"$each": [], "$sort": {"s.1": 1}}}},
        doc! {"a": [{"s": [3, 1]}, {"s": [2, 9]}]},
    );
    check_noop(doc! {"a": [1]}, doc! {"$push": {"a": {"$each": []}}});
    check(doc! {}, doc! {"$push": {"a": {"$each": []}}}, doc! {"a": []});
    let bad = |update, text| {
        check_error(doc! {"_id": 1, "a": 5}, doc! {"$push": update}, Code::BAD_VALUE, text);
    };
    bad(doc! {"a": 1}, "The field 'a' must be an array but is of type int in document {_id: 1}");
    bad(
        doc! {"a": {"$each": 1}},
        "The argument to $each in $push must be an array but it was of type: int",
    );
    bad(
        doc! {"a": {"$each": [], "$slice": "x"}},
        "The value for $slice must be an integer value but was given type: string",
    );
    bad(
        doc! {"a": {"$each": [], "$position": "x"}},
        "The value for $position must be an integer value, not of type: string",
    );
    bad(doc! {"a": {"$each": [], "$sort": 2}}, "The $sort is invalid");
    bad(doc! {"a": {"$each": [], "$foo": 2}}, "Unrecognized clause in $push: $foo");
}

#[test]
fn add_to_set_adds_what_is_not_there() {
    check(doc! {"a": [1]}, doc! {"$addToSet": {"a": 2}}, doc! {"a": [1, 2]});
    check_noop(doc! {"a": [1]}, doc! {"$addToSet": {"a": 1.0}});
    check(doc! {}, doc! {"$addToSet": {"a": {"$each": [1, 2, 1]}}}, doc! {"a": [1, 2]});
    check(doc! {"a": [1]}, doc! {"$addToSet": {"a": [1]}}, doc! {"a": [1, [1]]});
    check(
        doc! {"a": [{"x": 1, "y": 2}]},
        doc! {"$addToSet": {"a": {"y": 2, "x": 1}}},
        doc! {"a": [{"x": 1, "y": 2}, {"y": 2, "x": 1}]},
    );
    check(doc! {}, doc! {"$addToSet": {"a": {"$each": []}}}, doc! {"a": []});
    check_error(
        doc! {"a": 1},
        doc! {"$addToSet": {"a": 1}},
        Code::BAD_VALUE,
        "Cannot apply $addToSet to non-array field. Field named 'a' has non-array type int",
    );
    check_error(
        doc! {},
        doc! {"$addToSet": {"a": {"$each": 1}}},
        Code::TYPE_MISMATCH,
        "$each in $addToSet must be an array",
    );
}

#[test]
fn pop_pull_and_pull_all_take_elements_away() {
    check(doc! {"a": [1, 2, 3]}, doc! {"$pop": {"a": 1}}, doc! {"a": [1, 2]});
    check(doc! {"a": [1, 2, 3]}, doc! {"$pop": {"a": -1}}, doc! {"a": [2, 3]});
    check_noop(doc! {"a": []}, doc! {"$pop": {"a": 1, "b": 1}});
    check_error(
        doc! {"a": 1},
        doc! {"$pop": {"a": 1}},
        Code::TYPE_MISMATCH,
        "Path 'a' contains an element of non-array type 'int'",
    );
    check_error(
        doc! {},
        doc! {"$pop": {"a": 5}},
        Code::FAILED_TO_PARSE,
        "$pop expects 1 or -1, found: 5",
    );
    check_error(
        doc! {},
        doc! {"$pop": {"a": "x"}},
        Code::FAILED_TO_PARSE,
        "Expected a number in: a: \"x\"",
    );
    check(doc! {"a": [1, 2, 1.0]}, doc! {"$pull": {"a": 1}}, doc! {"a": [2]});
    check(doc! {"a": [1, 5, 9]}, doc! {"$pull": {"a": {"$gt": 3}}}, doc! {"a": [1]});
    check(
        doc! {"a": [{"x": 1, "y": 2}, {"x": 2}, 1]},
        doc! {"$pull": {"a": {"x": 1}}},
        doc! {"a": [{"x": 2}, 1]},
    );
    check(
        doc! {"a": [{"b": [1, 2]}, {"b": [3]}]},
        doc! {"$pull": {"a": {"b": {"$elemMatch": {"$gt": 1, "$lt": 3}}}}},
        doc! {"a": [{"b": [3]}]},
    );
    check(doc! {"a": ["xa", "b"]}, doc! {"$pull": {"a": {"$regex": "^x"}}}, doc! {"a": ["b"]});
    check(doc! {"a": [[1, 2], [1]]}, doc! {"$pull": {"a": [1, 2]}}, doc! {"a": [[1]]});
    check(doc! {"a": [1, 2, 3]}, doc! {"$pull": {"a": {"$in": [1, 3]}}}, doc! {"a": [2]});
    check_noop(doc! {"a": [1]}, doc! {"$pull": {"a": 2, "b": 1}});
    check_error(
        doc! {"a": 1},
        doc! {"$pull": {"a": 1}},
        Code::BAD_VALUE,
        "Cannot apply $pull to a non-array value",
    );
    check(
        doc! {"a": [1, 2, 3, {"x": 1}]},
        doc! {"$pullAll": {"a": [1, 3.0, {"x": 1}]}},
        doc! {"a": [2]},
    );
    check_error(
        doc! {},
        doc! {"$pullAll": {"a": 1}},
        Code::BAD_VALUE,
        "$pullAll requires an array argument but was given a int",
    );
}

#[test]
fn the_positional_operator_means_the_matched_element() {
    let mut at_1 = ctx();
    at_1.details.array_index = Some(1);
    let run = |before: Document, update: Document| {
        let parsed = parse_with(Bson::Document(update), &[]).unwrap();
        assert!(parsed.is_positional());
        parsed.apply(&raw_doc(&before), &at_1).map(|outcome| plain(&outcome.document))
    };
    assert_eq!(
        run(doc! {"a": [1, 2, 3]}, doc! {"$set": {"a.$": 9}}).unwrap(),
        doc! {"a": [1, 9, 3]}
    );
    assert_eq!(
        run(doc! {"a": [{}, {"b": 1}]}, doc! {"$inc": {"a.$.b": 1}}).unwrap(),
        doc! {"a": [{}, {"b": 2}]}
    );
    assert_eq!(
        run(doc! {"a": [{}, {}]}, doc! {"$set": {"a.$.b": 1, "a.1.c": 2}}).unwrap(),
        doc! {"a": [{}, {"b": 1, "c": 2}]}
    );
    let error = run(doc! {"a": [1, 2]}, doc! {"$set": {"a.$": 1, "a.1": 2}}).unwrap_err();
    assert_eq!(error.code(), Code::CONFLICTING_UPDATE_OPERATORS);
    check_error(
        doc! {"a": [1]},
        doc! {"$set": {"a.$": 1}},
        Code::BAD_VALUE,
        "The positional operator did not find the match needed from the query.",
    );
    check_error(
        doc! {},
        doc! {"$set": {"a.$.b.$": 1}},
        Code::BAD_VALUE,
        "Too many positional (i.e. '$') elements found in path 'a.$.b.$'",
    );
    check_error(
        doc! {},
        doc! {"$set": {"$.a": 1}},
        Code::BAD_VALUE,
        "Cannot have positional (i.e. '$') element in the first position in path '$.a'",
    );
}

#[test]
fn array_filters_choose_elements() {
    check(doc! {"a": [1, 2]}, doc! {"$inc": {"a.$[]": 10}}, doc! {"a": [11, 12]});
    check(
        doc! {"a": [{"b": [1]}, {"b": [2, 3]}]},
        doc! {"$inc": {"a.$[].b.$[]": 1}},
        doc! {"a": [{"b": [2]}, {"b": [3, 4]}]},
    );
    check(doc! {"a": [[1], [2]]}, doc! {"$inc": {"a.$[].$[]": 1}}, doc! {"a": [[2], [3]]});
    check_filtered(
        doc! {"a": [1, 5]},
        doc! {"$set": {"a.$[x]": 0}},
        &[doc! {"x": {"$gt": 3}}],
        doc! {"a": [1, 0]},
    );
    check_filtered(
        doc! {"a": [{"k": 1}, {"k": 2}]},
        doc! {"$set": {"a.$[x].v": 9}},
        &[doc! {"x.k": 2}],
        doc! {"a": [{"k": 1}, {"k": 2, "v": 9}]},
    );
    check_filtered(
        doc! {"a": [1, 5, 9]},
        doc! {"$inc": {"a.$[x]": 100}, "$set": {"b": 1}},
        &[doc! {"$or": [{"x": 1}, {"x": 9}]}],
        doc! {"a": [101, 5, 109], "b": 1},
    );
    check_filtered(
        doc! {"a": [{"k": 1}]},
        doc! {"$set": {"a.$[x].p": 1, "a.$[y].q": 2}},
        &[doc! {"x.k": 1}, doc! {"y.k": 1}],
        doc! {"a": [{"k": 1, "p": 1, "q": 2}]},
    );
    check_error(
        doc! {},
        doc! {"$set": {"a.$[]": 1}},
        Code::BAD_VALUE,
        "The path 'a' must exist in the document in order to apply array updates.",
    );
    check_error(
        doc! {"a": 1},
        doc! {"$set": {"a.$[]": 1}},
        Code::BAD_VALUE,
        "Cannot apply array updates to non-array element a: 1",
    );
    check_error(
        doc! {},
        doc! {"$set": {"a.$[x]": 1}},
        Code::BAD_VALUE,
        "No array filter found for identifier 'x' in path 'a.$[x]'",
    );
    let refused = |update: Document, filters: &[Document]| {
        parse_with(Bson::Document(update), filters).unwrap_err()
    };
    let error = refused(doc! {"$set": {"b": 1}}, &[doc! {"x": 1}]);
    assert_eq!(error.code(), Code::FAILED_TO_PARSE);
    assert!(error.message().starts_with(
        "The array filter for identifier 'x' was not used in the update { $set: { b: 1 } }"
    ));
    let code = |filters: &[Document]| refused(doc! {"$set": {"a.$[x]": 1}}, filters).code();
    assert_eq!(code(&[doc! {"x": 1}, doc! {"x": 2}]), Code::FAILED_TO_PARSE);
    assert_eq!(code(&[doc! {"x": 1, "y": 2}]), Code::FAILED_TO_PARSE);
    assert_eq!(code(&[doc! {}]), Code::FAILED_TO_PARSE);
    assert_eq!(code(&[doc! {"X": 1}]), Code::BAD_VALUE);
    let both = run(
        &doc! {"a": [1]},
        doc! {"$set": {"a.$[x]": 1, "a.$[y]": 2}},
        &[doc! {"x": 1}, doc! {"y": 1}],
    );
    assert_eq!(both.unwrap_err().code(), Code::CONFLICTING_UPDATE_OPERATORS);
}

#[test]
fn conflicting_paths_are_refused() {
    let conflict =
        |update, text| check_error(doc! {}, update, Code::CONFLICTING_UPDATE_OPERATORS, text);
    conflict(
        doc! {"$set": {"a": 1}, "$inc": {"a": 1}},
        "Updating the path 'a' would create a conflict at 'a'",
    );
    conflict(
        doc! {"$set": {"a": 1, "a.b": 2}},
        "Updating the path 'a.b' would create a conflict at 'a'",
    );
    conflict(
        doc! {"$set": {"a.b": 1, "a": 2}},
        "Updating the path 'a' would create a conflict at 'a'",
    );
    conflict(
        doc! {"$set": {"a.b.c": 1}, "$unset": {"a.b": 2}},
        "Updating the path 'a.b' would create a conflict at 'a.b'",
    );
    conflict(doc! {"$rename": {"a": "b"}, "$set": {"b": 1}}, "conflict at 'b'");
    conflict(doc! {"$set": {"a.$[]": 1, "a.0": 1}}, "conflict at 'a'");
}

#[test]
fn malformed_updates_have_mongodbs_errors() {
    check_error(
        doc! {"a": 1},
        doc! {"$set": {"a.b": 1}},
        Code::PATH_NOT_VIABLE,
        "Cannot create field 'b' in element {a: 1}",
    );
    check_error(
        doc! {"a": null},
        doc! {"$set": {"a.b": 1}},
        Code::PATH_NOT_VIABLE,
        "Cannot create field 'b' in element {a: null}",
    );
    check_error(
        doc! {"a": [1]},
        doc! {"$set": {"a.x": 1}},
        Code::PATH_NOT_VIABLE,
        "Cannot create field 'x' in element {a: [ 1 ]}",
    );
    check_error(
        doc! {},
        doc! {"$foo": {"a": 1}},
        Code::FAILED_TO_PARSE,
        "Unknown modifier: $foo. Expected a valid update modifier",
    );
    check_error(
        doc! {},
        doc! {"$set": {"a": 1}, "b": 1},
        Code::FAILED_TO_PARSE,
        "Unknown modifier: b.",
    );
    check_error(
        doc! {},
        doc! {"$set": 5},
        Code::FAILED_TO_PARSE,
        "Modifiers operate on fields but we found type int instead. For example: {$mod: {<field>: ...}} not {$set: 5}",
    );
    check_error(
        doc! {},
        doc! {"$set": {"": 1}},
        Code::EMPTY_FIELD_NAME,
        "An empty update path is not valid.",
    );
    check_error(
        doc! {},
        doc! {"$set": {"a..b": 1}},
        Code::EMPTY_FIELD_NAME,
        "The update path 'a..b' contains an empty field name",
    );
    check_error(
        doc! {},
        doc! {"$set": {"$a": 1}},
        Code::DOLLAR_PREFIXED_FIELD_NAME,
        "The dollar ($) prefixed field '$a' in '$a'",
    );
    check_error(
        doc! {"_id": 1},
        doc! {"$set": {"_id": 2}},
        Code::IMMUTABLE_FIELD,
        "Performing an update on the path '_id' would modify the immutable field '_id'",
    );
    check_error(
        doc! {"_id": {"x": 1}},
        doc! {"$unset": {"_id.x": 2}},
        Code::IMMUTABLE_FIELD,
        "'_id.x' would modify the immutable field '_id'",
    );
    check_error(
        doc! {"_id": 1},
        doc! {"_id": 2, "a": 1},
        Code::IMMUTABLE_FIELD,
        "was found to have been altered to _id: 2",
    );
    check_error(
        doc! {"a": []},
        doc! {"$set": {"a.2000000": 1}},
        Code::CANNOT_BACKFILL_ARRAY,
        "can't backfill",
    );
    let long = vec!["a"; 300].join(".");
    check_error(doc! {}, doc! {"$set": {long: 1}}, Code::OVERFLOW, "maximum nested object depth");
    let error = parse_with(bson!(5), &[]).unwrap_err();
    assert_eq!(error.code(), Code::FAILED_TO_PARSE);
}

#[test]
fn a_document_that_grows_too_large_is_refused() {
    let half = "x".repeat(9 * 1024 * 1024);
    let error = run(&doc! {"a": &half}, doc! {"$set": {"b": &half}}, &[]).unwrap_err();
    assert_eq!(error.code(), Code::location(17419));
}

#[test]
fn a_replacement_keeps_the_id_in_front() {
    check(doc! {"_id": 1, "a": 1}, doc! {"b": 2}, doc! {"_id": 1, "b": 2});
    check(doc! {"_id": 1, "a": 1}, doc! {"b": 2, "_id": 1}, doc! {"_id": 1, "b": 2});
    check(doc! {"_id": 1, "a": 1}, doc! {}, doc! {"_id": 1});
    check_noop(doc! {"_id": 1, "a": 1}, doc! {"a": 1});
    let zero = Bson::Timestamp(Timestamp { time: 0, increment: 0 });
    let now = Bson::Timestamp(Timestamp { time: 7, increment: 8 });
    check(
        doc! {"_id": 1},
        doc! {"t": zero.clone(), "n": {"t": zero.clone()}},
        doc! {"_id": 1, "t": now, "n": {"t": zero}},
    );
    check_error(
        doc! {"_id": 1},
        doc! {"a": 1, "$set": {}},
        Code::DOLLAR_PREFIXED_FIELD_NAME,
        "'$set'",
    );
    assert!(parse_with(bson!({"a": 1}), &[]).unwrap().is_replacement());
}

#[test]
fn a_pipeline_goes_through_its_trait() {
    let update = parse_with(bson!([{"x": 1}]), &[]).unwrap();
    let outcome = update.apply(&raw_doc(&doc! {"_id": 1}), &ctx()).unwrap();
    assert_eq!((plain(&outcome.document), outcome.modified), (doc! {"_id": 1, "x": true}, true));
}

#[test]
fn an_upsert_begins_with_the_filter() {
    let id = ObjectId::from_bytes([7; 12]);
    let upsert = |filter: Document, update: Bson| {
        let filter = Filter::parse(&raw_doc(&filter), &ParseContext::default()).unwrap();
        let update = parse_with(update, &[])?;
        update.upsert(&filter, &ctx(), id).map(|document| plain(&document))
    };
    let check = |filter: Document, update: Bson, expected: Document| {
        let made = upsert(filter, update).unwrap();
        assert!(same(&made, &expected), "{made}");
    };
    check(
        doc! {"b": 1, "a": 2},
        bson!({"$set": {"c": 3}}),
        doc! {"_id": id, "b": 1, "a": 2, "c": 3},
    );
    check(doc! {"a": 1, "_id": 5}, bson!({"$inc": {"n": 1}}), doc! {"_id": 5, "a": 1, "n": 1});
    check(
        doc! {"a.b": 1, "a.c": {"$gt": 1}},
        bson!({"$setOnInsert": {"x": 1}}),
        doc! {"_id": id, "a": {"b": 1}, "x": 1},
    );
    check(doc! {"a": {"$gt": 1}}, bson!({"$set": {"_id": 9}}), doc! {"_id": 9});
    check(doc! {"a": 1}, bson!({"$set": {"a": 2}}), doc! {"_id": id, "a": 2});
    check(doc! {"_id": 1, "a": 1}, bson!({"b": 2}), doc! {"_id": 1, "b": 2});
    check(doc! {"a": 1}, bson!({"b": 2, "_id": 3}), doc! {"_id": 3, "b": 2});
    check(doc! {"_id": 4, "a": 1}, bson!([{"x": 1}]), doc! {"_id": 4, "a": 1, "x": true});
    let code = |filter, update| upsert(filter, update).unwrap_err().code();
    assert_eq!(code(doc! {"_id": 1}, bson!({"_id": 2})), Code::IMMUTABLE_FIELD);
    assert_eq!(code(doc! {"_id": 1}, bson!({"$set": {"_id": 2}})), Code::IMMUTABLE_FIELD);
    assert_eq!(
        code(doc! {"a": {"$all": [1, 2]}}, bson!({"$set": {"b": 2}})),
        Code::NOT_SINGLE_VALUE_FIELD
    );
    assert_eq!(code(doc! {}, bson!({"$set": {"_id": [1]}})), Code::INVALID_ID_FIELD);
    assert_eq!(code(doc! {"a": 1}, bson!({"$set": {"a.b": 2}})), Code::PATH_NOT_VIABLE);
    check_noop(doc! {"a": 1}, doc! {"$setOnInsert": {"b": 1, "a.c": 2}});
}

#[test]
fn touched_paths_end_at_positional_components() {
    let update = parse_with(bson!({"$set": {"a.b": 1, "c.$[].d": 2}, "$rename": {"e": "f"}}), &[]);
    let update = update.unwrap();
    let touched: Vec<&str> = update.touched().unwrap().iter().map(Path::as_str).collect();
    assert_eq!(touched, ["a.b", "c", "e", "f"]);
}

fn value() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![(0i32..4).prop_map(Bson::Int32), "[ab]".prop_map(Bson::String)];
    leaf.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Bson::Array),
            proptest::collection::vec(("[abc]", inner), 0..3)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    })
}

fn document() -> impl Strategy<Value = Document> {
    proptest::collection::vec(("[abc]", value()), 0..4).prop_map(|f| f.into_iter().collect())
}

fn update() -> impl Strategy<Value = Document> {
    let path = prop_oneof![
        Just("a"),
        Just("b"),
        Just("a.b"),
        Just("a.0"),
        Just("b.c.a"),
        Just("c.$[]"),
        Just("a.$[].b"),
    ];
    let operator = prop_oneof![
        Just("$set"),
        Just("$unset"),
        Just("$inc"),
        Just("$push"),
        Just("$addToSet"),
        Just("$pull"),
        Just("$min"),
        Just("$max"),
        Just("$pop"),
        Just("$rename"),
        Just("$mul"),
        Just("$pullAll"),
    ];
    proptest::collection::vec((operator, path, value()), 1..4).prop_map(|parts| {
        let mut update = Document::new();
        for (operator, path, value) in parts {
            let fields = update.entry(operator.to_owned()).or_insert_with(|| bson!({}));
            if let Bson::Document(fields) = fields {
                fields.insert(path, value);
            }
        }
        update
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn updates_give_well_formed_documents(before in document(), update in update()) {
        if let Ok((after, modified)) = run(&before, update, &[]) {
            prop_assert_eq!(modified, !same(&before, &after));
        }
    }

    #[test]
    fn set_then_read_gives_the_value(before in document(), new in value()) {
        let (after, _) = run(&before, doc! {"$set": {"b": new.clone()}}, &[]).unwrap();
        prop_assert_eq!(after.get("b"), Some(&new));
        let (again, modified) = run(&after, doc! {"$set": {"b": new}}, &[]).unwrap();
        prop_assert_eq!((again, modified), (after, false));
    }
}
