//! What a failing document is told: `check(validator, document, details)`.
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better")]

use super::*;
use bson::doc;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn check(validator: Document, document: Document, expected: Document) {
    let parsed = Validator::parse(&raw(&validator), &ParseContext::default()).unwrap();
    let document = raw(&document);
    assert!(!parsed.passes(&document).unwrap(), "{validator} should refuse");
    assert_eq!(parsed.explain(&document).unwrap(), expected, "{validator}");
}

#[test]
fn comparisons_tell_what_they_considered() {
    check(
        doc! {"a": 1},
        doc! {"a": 2},
        doc! {"operatorName": "$eq", "specifiedAs": {"a": 1}, "reason": "comparison failed",
        "consideredValue": 2},
    );
    check(
        doc! {"a": {"$gt": 5}},
        doc! {"a": [1, 2]},
        doc! {"operatorName": "$gt", "specifiedAs": {"a": {"$gt": 5}},
        "reason": "comparison failed", "consideredValues": [1, 2, [1, 2]]},
    );
    check(
        doc! {"a": {"$lt": 5}},
        doc! {"b": 1},
        doc! {"operatorName": "$lt", "specifiedAs": {"a": {"$lt": 5}},
        "reason": "field was missing"},
    );
    check(
        doc! {"a": {"$ne": 5}},
        doc! {"a": 5},
        doc! {"operatorName": "$ne", "specifiedAs": {"a": {"$ne": 5}},
        "reason": "comparison succeeded", "consideredValue": 5},
    );
    let many: Vec<i32> = (0..11).collect();
    check(
        doc! {"a": 50},
        doc! {"a": many.clone()},
        doc! {"operatorName": "$eq", "specifiedAs": {"a": 50}, "reason": "comparison failed",
        "consideredValues": &many[..10], "consideredValuesTruncated": true},
    );
}

#[test]
fn connectives_name_the_clauses_to_blame() {
    let second = doc! {"operatorName": "$eq", "specifiedAs": {"b": 1},
    "reason": "comparison failed", "consideredValue": 2};
    check(
        doc! {"a": 1, "b": 1},
        doc! {"a": 1, "b": 2},
        doc! {"operatorName": "$and", "clausesNotSatisfied": [
        {"index": 1, "details": second.clone()}]},
    );
    check(
        doc! {"$or": [{"b": 1}, {"b": {"$exists": false}}]},
        doc! {"b": 2},
        doc! {"operatorName": "$or", "clausesNotSatisfied": [
        {"index": 0, "details": second},
        {"index": 1, "details": {"operatorName": "$exists",
            "specifiedAs": {"b": {"$exists": false}}, "reason": "path does exist"}}]},
    );
    check(
        doc! {"$nor": [{"a": 7}, {"a": {"$in": [1, 2]}}]},
        doc! {"a": 1},
        doc! {"operatorName": "$nor", "clausesSatisfied": [
        {"index": 1, "details": {"operatorName": "$in", "specifiedAs": {"a": {"$in": [1, 2]}},
            "reason": "matching value found in array", "consideredValue": 1}}]},
    );
    check(
        doc! {"a": {"$not": {"$gt": 3}}},
        doc! {"a": 4},
        doc! {"operatorName": "$not", "details": {"operatorName": "$gt",
        "specifiedAs": {"a": {"$gt": 3}}, "reason": "comparison succeeded",
        "consideredValue": 4}},
    );
}

#[test]
fn each_operator_has_its_reason() {
    let one = |operator: &str, operand: Bson, value: Bson, reason: &str| {
        check(
            doc! {"a": {operator: operand.clone()}},
            doc! {"a": value.clone()},
            doc! {"operatorName": operator, "specifiedAs": {"a": {operator: operand}},
            "reason": reason, "consideredValue": value},
        );
    };
    one("$mod", bson::bson!([2, 0]), 3.into(), "$mod did not evaluate to expected remainder");
    one("$size", 2.into(), bson::bson!([1]), "array length was not equal to given size");
    one("$bitsAllSet", bson::bson!([1]), 1.into(), "bitwise operator failed to match");
    one("$regex", "^x".into(), "y".into(), "regular expression did not match");
    one("$nin", bson::bson!([1]), 1.into(), "matching value found in array");
    one(
        "$all",
        bson::bson!([1, 2]),
        bson::bson!([1]),
        "array did not contain all specified values",
    );
    one(
        "$elemMatch",
        bson::bson!({"$gt": 5}),
        bson::bson!([1]),
        "array did not satisfy the child predicate",
    );
    check(
        doc! {"a": {"$type": "string"}},
        doc! {"a": 1},
        doc! {"operatorName": "$type", "specifiedAs": {"a": {"$type": "string"}},
        "reason": "type did not match", "consideredValue": 1, "consideredType": "int"},
    );
    check(
        doc! {"a": {"$mod": [2, 0]}},
        doc! {"a": "x"},
        doc! {"operatorName": "$mod", "specifiedAs": {"a": {"$mod": [2, 0]}},
        "reason": "type did not match", "consideredType": "string",
        "expectedTypes": ["decimal", "double", "int", "long"], "consideredValue": "x"},
    );
    check(
        doc! {"$expr": {"$eq": ["$a", 1]}},
        doc! {"a": 2},
        doc! {"operatorName": "$expr", "specifiedAs": {"$expr": {"$eq": ["$a", 1]}},
        "reason": "expression did not match", "expressionResult": false},
    );
    check(
        doc! {"$alwaysFalse": 1},
        doc! {},
        doc! {"operatorName": "$alwaysFalse", "specifiedAs": {"$alwaysFalse": 1},
        "reason": "expression always evaluates to false"},
    );
}

#[test]
fn the_failing_document_is_named_by_its_id() {
    let parsed = Validator::parse(&raw(&doc! {"a": 1}), &ParseContext::default()).unwrap();
    let info = parsed.error_info(&raw(&doc! {"_id": 7, "a": 2})).unwrap();
    assert_eq!(info.get_i32("failingDocumentId").unwrap(), 7);
    assert_eq!(info.get_document("details").unwrap().get_str("operatorName").unwrap(), "$eq");
    assert!(Validator::parse(&raw(&doc! {"$bad": 1}), &ParseContext::default()).is_err());
}
