//! Schemas keyword by keyword: what matches, what is told, what is refused.
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better")]

use crate::{Filter, ParseContext, Validator};
use bson::raw::RawDocumentBuf;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, bson, doc};
use errors::Code;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

/// `schema` is asked about the value of field `a`.
fn check(schema: Document, yes: &[Bson], no: &[Bson]) {
    let whole = doc! {"$jsonSchema": {"properties": {"a": schema.clone()}}};
    let filter = Filter::parse(&raw(&whole), &ParseContext::default()).unwrap();
    for (values, expected) in [(yes, true), (no, false)] {
        for value in values {
            let document = raw(&doc! {"a": value.clone()});
            assert_eq!(filter.matches(&document).unwrap(), expected, "{schema} of {value}");
        }
    }
    assert!(filter.matches(&raw(&doc! {})).unwrap(), "{schema} of nothing");
    let again = Filter::parse(&raw(&filter.to_document()), &ParseContext::default()).unwrap();
    assert_eq!(again.to_document(), filter.to_document());
}

fn refused(schema: Document, code: Code, message: &str) {
    let whole = raw(&doc! {"$jsonSchema": schema.clone()});
    let error = Filter::parse(&whole, &ParseContext::default()).expect_err(&schema.to_string());
    assert_eq!((error.code(), error.message()), (code, message), "{schema}");
}

/// What is told of field `a` under `schema`.
fn told(schema: Document, value: Bson, expected: &[Document]) {
    told_of(
        doc! {"properties": {"a": schema}},
        doc! {"a": value},
        &[doc! {"operatorName": "properties", "propertiesNotSatisfied": [
        {"propertyName": "a", "details": expected}]}],
    );
}

fn told_of(schema: Document, document: Document, expected: &[Document]) {
    let validator = raw(&doc! {"$jsonSchema": schema.clone()});
    let validator = Validator::parse(&validator, &ParseContext::default()).unwrap();
    let document = raw(&document);
    assert!(!validator.passes(&document).unwrap(), "{schema}");
    let told = validator.explain(&document).unwrap();
    let expected = doc! {"operatorName": "$jsonSchema", "schemaRulesNotSatisfied": expected};
    assert_eq!(told, expected, "{schema}");
}

#[test]
fn types_by_json_and_by_bson_name() {
    let text = || bson!("x");
    check(doc! {"type": "string"}, &[text()], &[bson!(1), bson!(["x"]), bson!(null)]);
    check(doc! {"type": "number"}, &[bson!(1), bson!(1.5), Bson::Int64(1)], &[text()]);
    check(doc! {"bsonType": "int"}, &[bson!(1)], &[bson!(1.0), Bson::Int64(1)]);
    check(doc! {"bsonType": ["int", "string"]}, &[bson!(1), text()], &[bson!(1.0)]);
    check(doc! {"type": "boolean"}, &[bson!(true)], &[bson!(1)]);
    check(doc! {"type": "array"}, &[bson!([])], &[bson!({})]);
}

#[test]
fn numbers_and_strings() {
    check(doc! {"minimum": 1}, &[bson!(1), bson!(1.5), bson!("x")], &[bson!(0.5), bson!(-1)]);
    check(doc! {"minimum": 1, "exclusiveMinimum": true}, &[bson!(1.5)], &[bson!(1)]);
    check(doc! {"maximum": 1, "exclusiveMaximum": false}, &[bson!(1)], &[bson!(2)]);
    check(
        doc! {"multipleOf": 2.5},
        &[bson!(5), bson!(0), bson!(-2.5), bson!("x")],
        &[bson!(1), bson!(f64::NAN), bson!(f64::INFINITY)],
    );
    check(doc! {"minLength": 2}, &[bson!("äö"), bson!(1)], &[bson!("ä")]);
    check(doc! {"maxLength": 1}, &[bson!("ä"), bson!("")], &[bson!("ab")]);
    check(doc! {"pattern": "^a.c"}, &[bson!("abcd"), bson!(5)], &[bson!("xabc")]);
}

#[test]
fn arrays() {
    check(
        doc! {"minItems": 1, "maxItems": 2},
        &[bson!([1]), bson!(5)],
        &[bson!([]), bson!([1, 2, 3])],
    );
    check(
        doc! {"uniqueItems": true},
        &[bson!([1, "1", [1], {"a": 1}])],
        &[bson!([1, 1.0]), bson!([{"a": 1, "b": 2}, {"b": 2, "a": 1}])],
    );
    check(doc! {"items": {"type": "number"}}, &[bson!([]), bson!([1, 2])], &[bson!([1, "x"])]);
    let list = bson!([{"type": "number"}, {"type": "string"}]);
    check(doc! {"items": list.clone()}, &[bson!([1]), bson!([1, "x", 5])], &[bson!([1, 2])]);
    check(
        doc! {"items": list.clone(), "additionalItems": false},
        &[bson!([1, "x"])],
        &[bson!([1, "x", 5])],
    );
    check(
        doc! {"items": list, "additionalItems": {"minimum": 5}},
        &[bson!([1, "x", 5])],
        &[bson!([1, "x", 4])],
    );
    // Without a list of schemas nothing is additional.
    check(doc! {"additionalItems": false}, &[bson!([1])], &[]);
}

#[test]
fn objects() {
    check(doc! {"required": ["x", "y"]}, &[bson!({"x": 1, "y": 1}), bson!(1)], &[bson!({"x": 1})]);
    check(doc! {"minProperties": 1, "maxProperties": 1}, &[bson!({"x": 1})], &[bson!({})]);
    check(
        doc! {"patternProperties": {"^n": {"type": "number"}}, "properties": {"x": {}},
        "additionalProperties": false},
        &[bson!({"n1": 1, "x": "y"})],
        &[bson!({"n1": "x"}), bson!({"z": 1})],
    );
    check(
        doc! {"properties": {"x": {}}, "additionalProperties": {"type": "string"}},
        &[bson!({"x": 1, "y": "s"})],
        &[bson!({"y": 1})],
    );
    check(
        doc! {"dependencies": {"x": ["y"], "z": {"required": ["w"]}}},
        &[bson!({"y": 1}), bson!({"x": 1, "y": 1}), bson!({"z": 1, "w": 1})],
        &[bson!({"x": 1}), bson!({"z": 1})],
    );
}

#[test]
fn logic_and_enumerations() {
    let parts = bson!([{"minimum": 3}, {"multipleOf": 2}]);
    check(doc! {"allOf": parts.clone()}, &[bson!(4)], &[bson!(5), bson!(2)]);
    check(doc! {"anyOf": parts.clone()}, &[bson!(5), bson!(2)], &[bson!(1)]);
    check(doc! {"oneOf": parts}, &[bson!(5), bson!(2)], &[bson!(4), bson!(1)]);
    check(doc! {"not": {"type": "string"}}, &[bson!(1)], &[bson!("x")]);
    check(
        doc! {"enum": [1, "x", {"a": 1, "b": [2]}]},
        &[bson!(1.0), bson!({"b": [2], "a": 1})],
        &[bson!(2), bson!([1]), bson!({"a": 1})],
    );
}

#[test]
fn the_document_itself_is_an_object() {
    let matches = |schema: Document, document: Document| {
        let whole = doc! {"$jsonSchema": schema};
        let filter = Filter::parse(&raw(&whole), &ParseContext::default()).unwrap();
        filter.matches(&raw(&document)).unwrap()
    };
    assert!(matches(doc! {"bsonType": "object", "required": ["a"]}, doc! {"a": 1}));
    assert!(!matches(doc! {"type": "string"}, doc! {"a": 1}));
    assert!(matches(doc! {"minimum": 5, "minLength": 9, "minItems": 3}, doc! {}));
    assert!(!matches(doc! {"enum": [{"a": 1}]}, doc! {"a": 2}));
    assert!(!matches(doc! {"additionalProperties": false}, doc! {"a": 2}));
}

#[test]
fn encrypted_values_by_subtype_and_former_type() {
    let mut bytes = vec![1; 17];
    bytes.push(2);
    let sealed = Bson::Binary(Binary { subtype: BinarySubtype::Encrypted, bytes });
    check(doc! {"encrypt": {}}, std::slice::from_ref(&sealed), &[bson!(1)]);
    check(doc! {"encrypt": {"bsonType": "string"}}, std::slice::from_ref(&sealed), &[]);
    told(
        doc! {"encrypt": {"bsonType": "number"}},
        sealed,
        &[doc! {"operatorName": "encrypt", "reason": "encrypted value has wrong type"}],
    );
}

#[test]
fn schemas_that_are_refused() {
    refused(doc! {"integer": 1}, Code::FAILED_TO_PARSE, "Unknown $jsonSchema keyword: integer");
    refused(
        doc! {"$ref": "x"},
        Code::FAILED_TO_PARSE,
        "$jsonSchema keyword '$ref' is not currently supported",
    );
    refused(
        doc! {"type": "integer"},
        Code::FAILED_TO_PARSE,
        "$jsonSchema type 'integer' is not currently supported.",
    );
    refused(doc! {"bsonType": "foo"}, Code::BAD_VALUE, "Unknown type name alias: foo");
    refused(doc! {"type": "int"}, Code::BAD_VALUE, "Unknown type name alias: int");
    refused(
        doc! {"type": "string", "bsonType": "string"},
        Code::FAILED_TO_PARSE,
        "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
    );
    refused(
        doc! {"type": ["string", "string"]},
        Code::FAILED_TO_PARSE,
        "$jsonSchema keyword 'type' has duplicate value: string",
    );
    refused(
        doc! {"type": []},
        Code::FAILED_TO_PARSE,
        "$jsonSchema keyword 'type' must name at least one type",
    );
    refused(
        doc! {"exclusiveMaximum": true},
        Code::FAILED_TO_PARSE,
        "$jsonSchema keyword 'maximum' must be a present if exclusiveMaximum is present",
    );
    refused(
        doc! {"minLength": -1},
        Code::FAILED_TO_PARSE,
        "Expected a non-negative number in: minLength: -1",
    );
    refused(doc! {"minLength": 1.5}, Code::FAILED_TO_PARSE, "Expected an integer: minLength: 1.5");
    refused(
        doc! {"multipleOf": 0},
        Code::FAILED_TO_PARSE,
        "$jsonSchema keyword 'multipleOf' must have a positive value",
    );
    refused(
        doc! {"required": []},
        Code::FAILED_TO_PARSE,
        "$jsonSchema keyword 'required' cannot be an empty array",
    );
    refused(
        doc! {"enum": [1, 1.0]},
        Code::FAILED_TO_PARSE,
        "$jsonSchema keyword 'enum' array cannot contain duplicate values.",
    );
    refused(
        doc! {"properties": {"a": 1}},
        Code::TYPE_MISMATCH,
        "Nested schema for $jsonSchema property 'a' must be an object",
    );
    refused(
        doc! {"allOf": []},
        Code::BAD_VALUE,
        "$jsonSchema keyword 'allOf' must be a non-empty array",
    );
    refused(
        doc! {"items": [1]},
        Code::TYPE_MISMATCH,
        "$jsonSchema keyword 'items' requires that each element of the array is an object, but \
         found a int",
    );
    let elem = doc! {"a": {"$elemMatch": {"$jsonSchema": {}}}};
    let error = Filter::parse(&raw(&elem), &ParseContext::default()).unwrap_err();
    assert_eq!(error.code(), Code::BAD_VALUE);
    let mut deep = doc! {};
    for _ in 0..110 {
        deep = doc! {"not": deep};
    }
    let deep = raw(&doc! {"$jsonSchema": deep});
    let error = Filter::parse(&deep, &ParseContext::default()).unwrap_err();
    assert_eq!(error.code(), Code::FAILED_TO_PARSE);
}

#[test]
fn broken_rules_are_told_in_mongodbs_words() {
    let comparison = |name: &str, bound: i32, value: i32| {
        doc! {"operatorName": name, "specifiedAs": {name: bound}, "reason": "comparison failed",
        "consideredValue": value}
    };
    told(doc! {"minimum": 1}, bson!(0), &[comparison("minimum", 1, 0)]);
    told(
        doc! {"type": "string", "minLength": 4},
        bson!(1),
        &[
            doc! {"operatorName": "minLength", "specifiedAs": {"minLength": 4},
            "reason": "type did not match", "consideredType": "int", "expectedType": "string",
            "consideredValue": 1},
            doc! {"operatorName": "type", "specifiedAs": {"type": "string"},
            "reason": "type did not match", "consideredValue": 1, "consideredType": "int"},
        ],
    );
    told(
        doc! {"items": {"properties": {"b": {"minimum": 2}}}},
        bson!([{"b": 2}, {"b": 1}]),
        &[doc! {"operatorName": "items",
        "reason": "At least one item did not match the sub-schema", "itemIndex": 1, "details": [
            {"operatorName": "properties", "propertiesNotSatisfied": [
                {"propertyName": "b", "details": [comparison("minimum", 2, 1)]}]}]}],
    );
    told(
        doc! {"items": [{"type": "number"}, {"type": "string"}], "additionalItems": false},
        bson!([1, 2, 3]),
        &[
            doc! {"operatorName": "items", "details": [{"itemIndex": 1, "details": [
            {"operatorName": "type", "specifiedAs": {"type": "string"},
            "reason": "type did not match", "consideredValue": 2, "consideredType": "int"}]}]},
            doc! {"operatorName": "additionalItems", "specifiedAs": {"additionalItems": false},
            "reason": "found additional items", "additionalItems": [3]},
        ],
    );
    told(
        doc! {"uniqueItems": true},
        bson!([1, 2, 2]),
        &[doc! {"operatorName": "uniqueItems", "specifiedAs": {"uniqueItems": true},
        "reason": "found a duplicate item", "consideredValue": [1, 2, 2], "duplicatedValue": 2}],
    );
    told(
        doc! {"allOf": [{"minimum": 1}, {"maximum": 3}]},
        bson!(4),
        &[doc! {"operatorName": "allOf", "schemasNotSatisfied": [
        {"index": 1, "details": [comparison("maximum", 3, 4)]}]}],
    );
    told(
        doc! {"oneOf": [{"minimum": 1}, {"maximum": 5}]},
        bson!(4),
        &[doc! {"operatorName": "oneOf", "reason": "more than one subschema matched",
        "matchingSchemaIndexes": [0, 1]}],
    );
    told(
        doc! {"not": {}},
        bson!(4),
        &[doc! {"operatorName": "not", "reason": "child expression matched"}],
    );
    told(
        doc! {"enum": [1]},
        bson!([1]),
        &[doc! {"operatorName": "enum", "specifiedAs": {"enum": [1]},
        "reason": "value was not found in enum", "consideredValue": [1]}],
    );
}

#[test]
fn broken_rules_about_properties_name_them() {
    told_of(
        doc! {"required": ["b", "a", "c"], "properties": {"c": {}}, "additionalProperties": false},
        doc! {"_id": 1, "c": 1},
        &[
            doc! {"operatorName": "additionalProperties",
            "specifiedAs": {"additionalProperties": false}, "additionalProperties": ["_id"]},
            doc! {"operatorName": "required", "specifiedAs": {"required": ["b", "a", "c"]},
            "missingProperties": ["a", "b"]},
        ],
    );
    told_of(
        doc! {"dependencies": {"a": ["b", "c"]}, "minProperties": 5},
        doc! {"a": 1, "b": 1},
        &[
            doc! {"operatorName": "minProperties", "specifiedAs": {"minProperties": 5},
            "reason": "specified number of properties was not satisfied", "numberOfProperties": 2},
            doc! {"operatorName": "dependencies", "failingDependencies": [
            {"conditionalProperty": "a", "missingProperties": ["c"]}]},
        ],
    );
    told_of(
        doc! {"patternProperties": {"^s": {"bsonType": "string"}}},
        doc! {"s1": 1},
        &[doc! {"operatorName": "patternProperties", "details": [
        {"propertyName": "s1", "regexMatched": "^s", "details": [
            {"operatorName": "bsonType", "specifiedAs": {"bsonType": "string"},
            "reason": "type did not match", "consideredValue": 1, "consideredType": "int"}]}]}],
    );
}

#[test]
fn titles_and_descriptions_are_repeated() {
    let validator = doc! {"$jsonSchema": {"title": "T", "properties": {
    "a": {"description": "D", "bsonType": "int"}}}};
    let validator = Validator::parse(&raw(&validator), &ParseContext::default()).unwrap();
    let told = validator.explain(&raw(&doc! {"a": "x"})).unwrap();
    assert_eq!(
        told,
        doc! {"operatorName": "$jsonSchema", "title": "T", "schemaRulesNotSatisfied": [
        {"operatorName": "properties", "propertiesNotSatisfied": [
            {"propertyName": "a", "description": "D", "details": [
                {"operatorName": "bsonType", "specifiedAs": {"bsonType": "int"},
                "reason": "type did not match", "consideredValue": "x",
                "consideredType": "string"}]}]}]}
    );
    let nor = doc! {"$nor": [{"$jsonSchema": {"required": ["a"]}}]};
    let nor = Validator::parse(&raw(&nor), &ParseContext::default()).unwrap();
    assert_eq!(
        nor.explain(&raw(&doc! {"a": 1})).unwrap(),
        doc! {"operatorName": "$nor", "clausesSatisfied": [
        {"index": 0, "details": {"operatorName": "$jsonSchema", "reason": "schema matched"}}]}
    );
}
