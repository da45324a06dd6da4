//! Filters, corner by corner: `check(filter, document, matches)`.
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better")]

use super::*;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Decimal128, Document, doc};
use errors::Code;
use proptest::prelude::*;

mod collation;
mod depth;
mod plain;

fn raw_doc(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn parse(filter: &Document) -> Result<Filter> {
    Filter::parse(&raw_doc(filter), &ParseContext::default())
}

fn check(filter: Document, document: Document, expected: bool) {
    let parsed = parse(&filter).unwrap_or_else(|error| panic!("{filter}: {error:?}"));
    let matched = parsed.matches(&raw_doc(&document)).unwrap();
    assert_eq!(matched, expected, "{filter} on {document}");
    // What explain shows means the same.
    let again = parse(&parsed.to_document()).unwrap();
    assert_eq!(again.matches(&raw_doc(&document)).unwrap(), expected, "{}", again.to_document());
}

/// The filter matches the first list and not the second.
fn check_all(filter: Document, yes: &[Document], no: &[Document]) {
    for document in yes {
        check(filter.clone(), document.clone(), true);
    }
    for document in no {
        check(filter.clone(), document.clone(), false);
    }
}

fn check_error(filter: Document, code: Code, text: &str) {
    let error = parse(&filter).expect_err(&format!("{filter} should be refused"));
    assert_eq!(error.code(), code, "{filter}: {error}");
    assert!(error.message().contains(text), "{filter}: {error}");
}

fn dec(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

fn regex(pattern: &str, options: &str) -> Bson {
    Bson::RegularExpression(bson::Regex {
        pattern: pattern.try_into().unwrap(),
        options: options.try_into().unwrap(),
    })
}

#[test]
fn regions_match_the_geometry_in_them() {
    let square = |low: i32, high: i32| {
        let corners = [[low, low], [high, low], [high, high], [low, high], [low, low]];
        let corners: Vec<Bson> = corners.iter().map(|corner| Bson::from(corner.to_vec())).collect();
        doc! {"type": "Polygon", "coordinates": [corners]}
    };
    let point = |x: i32, y: i32| doc! {"type": "Point", "coordinates": [x, y]};
    let line = doc! {"type": "LineString", "coordinates": [[1, 1], [20, 1]]};
    check_all(
        doc! {"a": {"$geoWithin": {"$geometry": square(0, 10)}}},
        &[
            doc! {"a": point(1, 1)},
            doc! {"a": [1, 1]},
            doc! {"a": {"lng": 1, "lat": 1}},
            doc! {"a": [point(50, 50), point(1, 1)]},
            doc! {"a": [[50, 50], [1, 1]]},
            doc! {"a": square(1, 2)},
        ],
        &[
            doc! {"a": point(11, 1)},
            doc! {"a": line.clone()},
            doc! {"a": 5},
            doc! {"a": {"type": "Point"}},
            doc! {"a": {"type": "Point", "coordinates": [500, 1]}},
            doc! {},
        ],
    );
    check_all(
        doc! {"a": {"$geoIntersects": {"$geometry": square(0, 10)}}},
        &[doc! {"a": line}, doc! {"a": [1, 1]}, doc! {"a": square(-5, 50)}],
        &[doc! {"a": point(11, 1)}, doc! {"a": square(20, 30)}],
    );
    check_all(
        doc! {"a": {"$not": {"$geoWithin": {"$box": [[0, 0], [5, 5]]}}}},
        &[doc! {"a": [6, 6]}, doc! {}, doc! {"a": "x"}],
        &[doc! {"a": [1, 1]}],
    );
    check_all(
        doc! {"a": {"$elemMatch": {"p": {"$geoWithin": {"$center": [[0, 0], 5]}}, "b": 1}}},
        &[doc! {"a": [{"p": [1, 1], "b": 1}]}],
        &[doc! {"a": [{"p": [1, 1], "b": 2}, {"p": [9, 9], "b": 1}]}],
    );
    let near = doc! {"a": {"$near": [0, 0], "$minDistance": 1, "$maxDistance": 5}};
    let near = Filter::parse_query(&raw_doc(&near), &ParseContext::default()).unwrap();
    for (document, expected) in [
        (doc! {"a": [3, 4]}, true),
        (doc! {"a": [3, 5]}, false),
        (doc! {"a": [[3, 4], [0, 0]]}, false),
        (doc! {"a": "x"}, false),
    ] {
        assert_eq!(near.matches(&raw_doc(&document)).unwrap(), expected, "{document}");
    }
    let extra = doc! {"a": {"$geoWithin": {"$box": [[0, 0], [5, 5]]}, "$gt": 5}};
    check_error(extra, Code::BAD_VALUE, "can't parse extra field: $gt: 5");
}

#[test]
fn equality_is_by_value_across_number_types() {
    check_all(
        doc! {"a": 1},
        &[doc! {"a": 1}, doc! {"a": 1_i64}, doc! {"a": 1.0}, doc! {"a": dec("1.0")}],
        &[doc! {"a": 2}, doc! {"a": "1"}, doc! {"a": true}, doc! {}, doc! {"b": 1}],
    );
    check_all(doc! {"a": dec("0.1")}, &[doc! {"a": dec("0.10")}], &[doc! {"a": 0.1}]);
    check_all(doc! {"a": -0.0}, &[doc! {"a": 0}, doc! {"a": dec("-0")}], &[]);
    check_all(doc! {"a": "x"}, &[doc! {"a": Bson::Symbol("x".into())}], &[doc! {"a": "X"}]);
}

#[test]
fn null_also_means_missing() {
    check_all(
        doc! {"a": null},
        &[doc! {"a": null}, doc! {}, doc! {"a": Bson::Undefined}, doc! {"a": [1, null]}],
        &[doc! {"a": 0}, doc! {"a": []}, doc! {"a": false}],
    );
    check_all(
        doc! {"a.b": null},
        &[doc! {"a": 5}, doc! {"a": {}}, doc! {}, doc! {"a": [{}]}, doc! {"a": [{"b": 1}, {}]}],
        &[doc! {"a": []}, doc! {"a": [1, 2]}, doc! {"a": [{"b": 1}]}],
    );
    check_all(doc! {"a": {"$ne": null}}, &[doc! {"a": 0}, doc! {"a": []}], &[doc! {}]);
    check_all(doc! {"a": {"$gte": null}}, &[doc! {}, doc! {"a": null}], &[doc! {"a": 1}]);
    check_all(doc! {"a": {"$gt": null}}, &[], &[doc! {}, doc! {"a": null}, doc! {"a": 1}]);
    check_all(doc! {"a": {"$in": [null, 5]}}, &[doc! {}, doc! {"a": 5}], &[doc! {"a": 6}]);
    check_all(doc! {"a": {"$nin": [null, 5]}}, &[doc! {"a": 6}], &[doc! {}, doc! {"a": 5}]);
}

#[test]
fn comparisons_match_only_their_own_kind() {
    check_all(
        doc! {"a": {"$gt": 5}},
        &[doc! {"a": 6}, doc! {"a": 5.5}, doc! {"a": dec("5.1")}, doc! {"a": f64::INFINITY}],
        &[doc! {"a": 5}, doc! {"a": "6"}, doc! {"a": true}, doc! {"a": {}}, doc! {}],
    );
    check_all(doc! {"a": {"$lt": "b"}}, &[doc! {"a": "a"}], &[doc! {"a": 1}, doc! {"a": "b"}]);
    check_all(
        doc! {"a": {"$gte": false}},
        &[doc! {"a": true}, doc! {"a": false}],
        &[doc! {"a": 1}],
    );
    check_all(doc! {"a": {"$lt": {"x": 2}}}, &[doc! {"a": {"x": 1}}], &[doc! {"a": {"x": 2}}]);
    check_all(
        doc! {"a": {"$gt": Bson::MinKey}},
        &[doc! {"a": 1}, doc! {"a": "x"}, doc! {}],
        &[doc! {"a": Bson::MinKey}],
    );
    check_all(doc! {"a": {"$lt": Bson::MaxKey}}, &[doc! {"a": {}}], &[doc! {"a": Bson::MaxKey}]);
}

#[test]
fn nan_is_only_comparable_with_itself() {
    let nan = || doc! {"a": f64::NAN};
    check_all(doc! {"a": f64::NAN}, &[nan(), doc! {"a": dec("NaN")}], &[doc! {"a": 0}]);
    check_all(doc! {"a": {"$lte": f64::NAN}}, &[nan()], &[doc! {"a": 0}]);
    check_all(doc! {"a": {"$gte": f64::NAN}}, &[nan()], &[doc! {"a": 0}]);
    check_all(doc! {"a": {"$lt": f64::NAN}}, &[], &[nan(), doc! {"a": 0}]);
    check_all(doc! {"a": {"$lt": 5}}, &[doc! {"a": f64::NEG_INFINITY}], &[nan()]);
}

#[test]
fn an_array_matches_by_an_element_or_as_a_whole() {
    check_all(
        doc! {"a": 2},
        &[doc! {"a": [1, 2]}, doc! {"a": 2}],
        &[doc! {"a": [[2]]}, doc! {"a": []}],
    );
    check_all(
        doc! {"a": [1, 2]},
        &[doc! {"a": [1, 2]}, doc! {"a": [[1, 2], 3]}],
        &[doc! {"a": [2, 1]}, doc! {"a": [1, 2, 3]}, doc! {"a": 1}],
    );
    check_all(doc! {"a": []}, &[doc! {"a": []}, doc! {"a": [[]]}], &[doc! {}, doc! {"a": [1]}]);
    check_all(doc! {"a": {"$gt": 5, "$lt": 3}}, &[doc! {"a": [1, 9]}], &[doc! {"a": [4]}]);
    check_all(doc! {"a": {"$gt": [1]}}, &[doc! {"a": [2]}, doc! {"a": [1, 0]}], &[doc! {"a": 2}]);
    check_all(doc! {"a": {"$ne": 2}}, &[doc! {"a": [1, 3]}, doc! {}], &[doc! {"a": [1, 2]}]);
    check_all(doc! {"a": {"$exists": true}}, &[doc! {"a": []}, doc! {"a": null}], &[doc! {}]);
    check_all(
        doc! {"a.b": {"$exists": false}},
        &[doc! {"a": []}, doc! {}],
        &[doc! {"a": [{"b": 1}]}],
    );
}

#[test]
fn paths_go_through_arrays_and_positions() {
    check_all(
        doc! {"a.b": 1},
        &[doc! {"a": {"b": 1}}, doc! {"a": [{"b": 1}]}, doc! {"a": [{"b": [0, 1]}]}],
        &[doc! {"a": [[{"b": 1}]]}, doc! {"a": {"b": {"c": 1}}}, doc! {"a.b": 1}],
    );
    check_all(
        doc! {"a.1": 7},
        &[doc! {"a": [5, 7]}, doc! {"a": {"1": 7}}, doc! {"a": [{"1": 7}]}],
        &[doc! {"a": [7, 5]}, doc! {"a": [5, [7]]}, doc! {"a": [7]}],
    );
    check_all(
        doc! {"a.0.b": 1},
        &[doc! {"a": [{"b": 1}]}, doc! {"a": [{"0": {"b": 1}}]}, doc! {"a": [[{"b": 1}]]}],
        &[doc! {"a": [{"b": 2}, {"b": 1}]}],
    );
    check_all(doc! {"a.00": 1}, &[doc! {"a": {"00": 1}}], &[doc! {"a": [1]}]);
}

#[test]
fn documents_are_equal_field_by_field_in_order() {
    check_all(
        doc! {"a": {"x": 1, "y": 2}},
        &[doc! {"a": {"x": 1.0, "y": 2}}, doc! {"a": [{"x": 1, "y": 2}]}],
        &[doc! {"a": {"y": 2, "x": 1}}, doc! {"a": {"x": 1}}, doc! {"a": {"x": 1, "y": 2, "z": 3}}],
    );
    check_all(doc! {"a": {}}, &[doc! {"a": {}}], &[doc! {"a": {"x": 1}}, doc! {}]);
    let reference = doc! {"$ref": "c", "$id": 5};
    check_all(
        doc! {"r": &reference},
        &[doc! {"r": &reference}],
        &[doc! {"r": {"$ref": "c", "$id": 6}}],
    );
    check_all(doc! {"r.$id": 5}, &[doc! {"r": &reference}], &[doc! {"r": {"$ref": "c"}}]);
}

#[test]
fn logical_operators_combine() {
    check_all(
        doc! {"$or": [{"a": 1}, {"b": 2}]},
        &[doc! {"a": 1}, doc! {"b": 2}],
        &[doc! {"a": 2, "b": 1}],
    );
    check_all(doc! {"$and": [{"a": 1}, {"a": 2}]}, &[doc! {"a": [1, 2]}], &[doc! {"a": 1}]);
    check_all(doc! {"$nor": [{"a": 1}, {"b": 2}]}, &[doc! {}], &[doc! {"a": 1}, doc! {"b": 2}]);
    check_all(
        doc! {"a": {"$not": {"$gt": 5}}},
        &[doc! {}, doc! {"a": 5}, doc! {"a": "x"}],
        &[doc! {"a": 6}],
    );
    check_all(
        doc! {"a": {"$not": regex("^x", "")}},
        &[doc! {"a": "y"}, doc! {}],
        &[doc! {"a": "xy"}],
    );
    check_all(doc! {"$alwaysTrue": 1}, &[doc! {}], &[]);
    check_all(doc! {"$alwaysFalse": 1}, &[], &[doc! {}]);
    check_all(doc! {"$comment": "why", "a": 1}, &[doc! {"a": 1}], &[doc! {}]);
    check_all(doc! {}, &[doc! {}, doc! {"a": 1}], &[]);
    check_all(doc! {"$or": [{}, {"a": 1}]}, &[doc! {}], &[]);
    check_all(doc! {"$nor": [{}]}, &[], &[doc! {}]);
}

#[test]
fn expressions_are_conditions() {
    check_all(
        doc! {"$expr": {"$gt": ["$a", "$b"]}},
        &[doc! {"a": 2, "b": 1}, doc! {"a": "x", "b": 1}],
        &[doc! {"a": 1, "b": 2}, doc! {}],
    );
    check_all(
        doc! {"c": 1, "$or": [{"$expr": {"$eq": ["$a", 1]}}, {"b": 1}]},
        &[doc! {"c": 1, "a": 1}, doc! {"c": 1, "b": 1}],
        &[doc! {"c": 1}, doc! {"a": 1}],
    );
    let mut ctx = ParseContext::default();
    let id = ctx.names.define("low").unwrap();
    let mut variables = Variables::clone(&ctx.variables);
    variables.set(id, Some(RawBson::Int32(5)));
    ctx.variables = Arc::new(variables);
    let filter = raw_doc(&doc! {"$expr": {"$gt": ["$a", "$$low"]}});
    let filter = Filter::parse(&filter, &ctx).unwrap();
    assert!(filter.matches(&raw_doc(&doc! {"a": 6})).unwrap());
    assert!(!filter.matches(&raw_doc(&doc! {"a": 5})).unwrap());
}

#[test]
fn in_and_nin_take_values_and_patterns() {
    check_all(
        doc! {"a": {"$in": [1, "x", regex("^y", "")]}},
        &[doc! {"a": 1.0}, doc! {"a": "x"}, doc! {"a": "yes"}, doc! {"a": [0, 1]}],
        &[doc! {"a": 2}, doc! {"a": "no"}, doc! {}],
    );
    check_all(doc! {"a": {"$in": []}}, &[], &[doc! {}, doc! {"a": 1}]);
    check_all(doc! {"a": {"$nin": []}}, &[doc! {}, doc! {"a": 1}], &[]);
    check_all(doc! {"a": {"$in": [[1, 2]]}}, &[doc! {"a": [1, 2]}], &[doc! {"a": 1}]);
    check_all(doc! {"a": {"$in": [f64::NAN]}}, &[doc! {"a": f64::NAN}], &[doc! {"a": 1}]);
}

#[test]
fn regular_expressions_match_text() {
    check_all(
        doc! {"a": regex("^ab+c$", "i")},
        &[doc! {"a": "ABBC"}, doc! {"a": ["x", "abc"]}, doc! {"a": regex("^ab+c$", "i")}],
        &[doc! {"a": "ac"}, doc! {"a": 5}, doc! {}, doc! {"a": regex("^ab+c$", "")}],
    );
    check_all(
        doc! {"a": {"$regex": "B", "$options": "i"}},
        &[doc! {"a": "abc"}],
        &[doc! {"a": "c"}],
    );
    check_all(doc! {"a": {"$options": "s", "$regex": "a.c"}}, &[doc! {"a": "a\nc"}], &[]);
    check_all(
        doc! {"a": {"$regex": "^c$", "$options": "m"}},
        &[doc! {"a": "b\nc"}],
        &[doc! {"a": "bc"}],
    );
    check_all(
        doc! {"a": {"$regex": "a b # c", "$options": "x"}},
        &[doc! {"a": "ab"}],
        &[doc! {"a": "a b"}],
    );
    check_all(doc! {"a": {"$regex": regex("x", ""), "$options": "i"}}, &[doc! {"a": "X"}], &[]);
    check_all(doc! {"a": {"$regex": "^.$"}}, &[doc! {"a": "é"}], &[doc! {"a": "éé"}]);
    check_all(
        doc! {"a": {"$eq": regex("x", "")}},
        &[doc! {"a": regex("x", "")}],
        &[doc! {"a": "x"}],
    );
    check_all(doc! {"a": {"$regex": "(?=b)b(?<!a)"}}, &[doc! {"a": "b"}], &[doc! {"a": "ac"}]);
}

#[test]
fn element_operators_ask_for_type_and_presence() {
    check_all(
        doc! {"a": {"$type": "int"}},
        &[doc! {"a": 1}, doc! {"a": ["x", 1]}],
        &[doc! {"a": 1.0}],
    );
    check_all(doc! {"a": {"$type": 2}}, &[doc! {"a": "x"}], &[doc! {"a": 1}, doc! {}]);
    check_all(
        doc! {"a": {"$type": "number"}},
        &[doc! {"a": 1}, doc! {"a": dec("1")}],
        &[doc! {"a": "1"}],
    );
    check_all(
        doc! {"a": {"$type": "array"}},
        &[doc! {"a": []}, doc! {"a": [[1]]}],
        &[doc! {"a": 1}],
    );
    check_all(
        doc! {"a": {"$type": ["string", 10]}},
        &[doc! {"a": "x"}, doc! {"a": null}],
        &[doc! {}],
    );
    check_all(doc! {"a": {"$type": -1}}, &[doc! {"a": Bson::MinKey}], &[doc! {"a": Bson::MaxKey}]);
    check_all(doc! {"a": {"$exists": 0}}, &[doc! {}], &[doc! {"a": null}]);
}

#[test]
fn arrays_are_asked_for_size_members_and_elements() {
    check_all(
        doc! {"a": {"$size": 2}},
        &[doc! {"a": [1, 2]}],
        &[doc! {"a": [1]}, doc! {"a": [[1, 2]]}, doc! {"a": 2}],
    );
    check_all(doc! {"a": {"$size": 0.0}}, &[doc! {"a": []}], &[doc! {}]);
    check_all(doc! {"a.b": {"$size": 1}}, &[doc! {"a": [{"b": [1]}]}], &[doc! {"a": [{"b": 1}]}]);
    check_all(
        doc! {"a": {"$all": [1, 2]}},
        &[doc! {"a": [2, 1, 3]}],
        &[doc! {"a": [1]}, doc! {"a": 1}],
    );
    check_all(doc! {"a": {"$all": [1]}}, &[doc! {"a": 1}, doc! {"a": [1]}], &[doc! {}]);
    check_all(
        doc! {"a": {"$all": [[1, 2]]}},
        &[doc! {"a": [1, 2]}, doc! {"a": [[1, 2]]}],
        &[doc! {"a": [2]}],
    );
    check_all(doc! {"a": {"$all": []}}, &[], &[doc! {"a": []}, doc! {}]);
    check_all(doc! {"a": {"$all": [null]}}, &[doc! {}], &[doc! {"a": 1}]);
    check_all(
        doc! {"a": {"$all": [{"$elemMatch": {"x": 1}}, {"$elemMatch": {"y": 2}}]}},
        &[doc! {"a": [{"x": 1}, {"y": 2}]}],
        &[doc! {"a": [{"x": 1}]}],
    );
    check_all(
        doc! {"a": {"$elemMatch": {"x": 1, "y": {"$gt": 5}}}},
        &[doc! {"a": [{"x": 1, "y": 6}]}],
        &[doc! {"a": [{"x": 1}, {"y": 6}]}, doc! {"a": {"x": 1, "y": 6}}, doc! {"a": []}],
    );
    check_all(
        doc! {"a": {"$elemMatch": {"$gt": 3, "$lt": 5}}},
        &[doc! {"a": [1, 4]}],
        &[doc! {"a": [1, 9]}, doc! {"a": 4}, doc! {"a": [[4]]}],
    );
    check_all(
        doc! {"a": {"$elemMatch": {"$elemMatch": {"$eq": 4}}}},
        &[doc! {"a": [[4]]}],
        &[doc! {"a": [4]}],
    );
    check_all(doc! {"a": {"$elemMatch": {"0": 4}}}, &[doc! {"a": [[4]]}], &[doc! {"a": [[5, 4]]}]);
    check_all(
        doc! {"a": {"$elemMatch": {"$or": [{"x": 1}, {"x": 2}]}}},
        &[doc! {"a": [{"x": 2}]}],
        &[doc! {"a": [{"x": 3}]}],
    );
    check_all(
        doc! {"a": {"$elemMatch": {"$not": {"$gt": 3}}}},
        &[doc! {"a": [9, 1]}],
        &[doc! {"a": [9]}],
    );
    check_all(
        doc! {"a": {"$elemMatch": {"$nin": [1, 2]}}},
        &[doc! {"a": [1, 3]}],
        &[doc! {"a": [1, 2]}],
    );
    check_all(
        doc! {"a.b": {"$elemMatch": {"$eq": 1}}},
        &[doc! {"a": [{"b": [1]}]}],
        &[doc! {"a": [{"b": 1}]}],
    );
}

#[test]
fn modulo_cuts_towards_zero() {
    check_all(
        doc! {"a": {"$mod": [4, 0]}},
        &[
            doc! {"a": 8},
            doc! {"a": 8.9},
            doc! {"a": -4},
            doc! {"a": dec("12.7")},
            doc! {"a": [1, 4]},
        ],
        &[doc! {"a": 5}, doc! {"a": "4"}, doc! {"a": f64::NAN}, doc! {"a": f64::INFINITY}, doc! {}],
    );
    check_all(doc! {"a": {"$mod": [4, -1]}}, &[doc! {"a": -5}], &[doc! {"a": 3}]);
    check_all(doc! {"a": {"$mod": [-1, 0]}}, &[doc! {"a": i64::MIN}], &[]);
    check_all(doc! {"a": {"$mod": [3.9, 1.5]}}, &[doc! {"a": 4}], &[doc! {"a": 3}]);
}

#[test]
fn bits_are_tested_in_numbers_and_binary_data() {
    let binary = |bytes: &[u8]| {
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() })
    };
    check_all(
        doc! {"a": {"$bitsAllSet": [1, 2]}},
        &[doc! {"a": 6}, doc! {"a": 7.0}, doc! {"a": -1}, doc! {"a": binary(&[6])}],
        &[doc! {"a": 2}, doc! {"a": 6.5}, doc! {"a": "x"}, doc! {}],
    );
    check_all(doc! {"a": {"$bitsAllClear": 3}}, &[doc! {"a": 4}], &[doc! {"a": 5}]);
    check_all(doc! {"a": {"$bitsAnySet": binary(&[0, 1])}}, &[doc! {"a": 256}], &[doc! {"a": 255}]);
    check_all(doc! {"a": {"$bitsAnyClear": [0, 200]}}, &[doc! {"a": 1}], &[doc! {"a": -1}]);
}

#[test]
fn details_point_at_the_matching_element() {
    let index = |filter: Document, document: Document| {
        let details = parse(&filter).unwrap().matches_with_details(&raw_doc(&document)).unwrap();
        details.expect("the document matches").array_index
    };
    assert_eq!(index(doc! {"a": 2}, doc! {"a": [1, 2]}), Some(1));
    assert_eq!(index(doc! {"a": 2}, doc! {"a": 2}), None);
    assert_eq!(index(doc! {"a.b": 2}, doc! {"a": [{"b": [0]}, {"b": [0, 0, 2]}]}), Some(1));
    assert_eq!(index(doc! {"a": {"$elemMatch": {"b": 2}}}, doc! {"a": [{}, {"b": 2}]}), Some(1));
    assert_eq!(index(doc! {"a": {"$ne": 2}}, doc! {"a": [1, 3]}), None);
    assert_eq!(index(doc! {"x": 1, "a": 2}, doc! {"x": 1, "a": [0, 0, 2]}), Some(2));
}

#[test]
fn details_tell_nothing_of_alternatives() {
    let index = |filter: Document| {
        let document = raw_doc(&doc! {"a": [1, 2, 3], "b": [7, 8]});
        let details = parse(&filter).unwrap().matches_with_details(&document).unwrap();
        details.expect("the document matches").array_index
    };
    assert_eq!(index(doc! {"$or": [{"a": 2}, {"b": 9}]}), None);
    assert_eq!(index(doc! {"$or": [{"a": {"$gt": 1}}, {"a": {"$lt": 0}}]}), None);
    // The parts of an alternative that fails are not what matched either.
    assert_eq!(index(doc! {"b": 8, "$or": [{"a": 3, "b": 9}, {"c": null}]}), Some(1));
    // Equalities on one path are one `$in`, and a lone alternative is none.
    assert_eq!(index(doc! {"$or": [{"a": 3}, {"a": 9}]}), Some(2));
    assert_eq!(index(doc! {"$or": [{"a": 2}]}), Some(1));
    assert_eq!(index(doc! {"$and": [{"a": 2}]}), Some(1));
}

#[test]
fn malformed_filters_have_mongodbs_errors() {
    let bad = |filter, text| check_error(filter, Code::BAD_VALUE, text);
    bad(doc! {"a": {"$foo": 1}}, "unknown operator: $foo");
    bad(doc! {"$foo": 1}, "unknown top level operator: $foo. If you have a field name");
    bad(doc! {"a": {"$gt": 1, "b": 2}}, "unknown operator: b");
    bad(doc! {"$or": 1}, "$or must be an array");
    bad(doc! {"$or": []}, "$and/$or/$nor must be a nonempty array");
    bad(doc! {"$and": [1]}, "$or/$and/$nor entries need to be full objects");
    bad(doc! {"a": {"$in": 1}}, "$in needs an array");
    bad(doc! {"a": {"$nin": {}}}, "$nin needs an array");
    bad(doc! {"a": {"$in": [{"$gt": 1}]}}, "cannot nest $ under $in");
    bad(doc! {"a": {"$all": 1}}, "$all needs an array");
    bad(doc! {"a": {"$all": [{"$gt": 1}]}}, "no $ expressions in $all");
    bad(doc! {"a": {"$all": [{"$elemMatch": {}}, 1]}}, "$all/$elemMatch has to be consistent");
    bad(doc! {"a": {"$elemMatch": 1}}, "$elemMatch needs an Object");
    bad(doc! {"a": {"$not": 1}}, "$not needs a regex or a document");
    bad(doc! {"a": {"$not": {}}}, "$not cannot be empty");
    bad(doc! {"a": {"$not": {"b": 1}}}, "unknown operator: b");
    bad(doc! {"a": {"$size": -1}}, "Expected a non-negative number in: $size: -1");
    bad(doc! {"a": {"$size": 1.5}}, "Expected an integer: $size: 1.5");
    bad(doc! {"a": {"$size": "x"}}, "Expected a number in: $size: \"x\"");
    bad(doc! {"a": {"$mod": 1}}, "malformed mod, needs to be an array");
    bad(doc! {"a": {"$mod": [1]}}, "malformed mod, not enough elements");
    bad(doc! {"a": {"$mod": [1, 2, 3]}}, "malformed mod, too many elements");
    bad(doc! {"a": {"$mod": ["x", 0]}}, "malformed mod, divisor not a number");
    bad(doc! {"a": {"$mod": [0, 0]}}, "divisor cannot be 0");
    bad(doc! {"a": {"$type": "foo"}}, "Unknown type name alias: foo");
    bad(doc! {"a": {"$type": 99}}, "Invalid numerical type code: 99");
    bad(
        doc! {"a": {"$gt": regex("x", "")}},
        "Can't have RegEx as arg to predicate over field 'a'.",
    );
    bad(doc! {"a": {"$ne": regex("x", "")}}, "Can't have regex as arg to $ne.");
    bad(doc! {"a": {"$gt": Bson::Undefined}}, "cannot compare to undefined");
    bad(doc! {"a": {"$options": "i"}}, "$options needs a $regex");
    bad(doc! {"a": {"$regex": 5}}, "$regex has to be a string");
    bad(doc! {"$where": 1}, "$where got bad type");
    let text = doc! {"$text": {"$search": "x"}};
    bad(text, "$text is not allowed in this context");
    let near = doc! {"a": {"$near": [0, 0]}};
    check_error(near, Code::location(5626500), "$near, and $nearSphere are not allowed in this");
    let nested = doc! {"a": {"$elemMatch": {"$expr": true}}};
    check_error(nested, Code::BAD_VALUE, "$expr can only be applied to the top-level");
    check_error(doc! {"a": {"$type": []}}, Code::FAILED_TO_PARSE, "must match at least one type");
    check_error(doc! {"a": {"$type": {}}}, Code::TYPE_MISMATCH, "must be represented as");
    check_error(
        doc! {"a": {"$regex": "("}},
        Code::location(51091),
        "Regular expression is invalid",
    );
    check_error(
        doc! {"a": {"$regex": "a", "$options": "q"}},
        Code::location(51108),
        "invalid flag",
    );
    check_error(doc! {"a": {"$bitsAllSet": -1}}, Code::FAILED_TO_PARSE, "non-negative");
}

#[test]
fn nesting_beyond_the_limit_is_refused() {
    let mut filter = doc! {"a": 1};
    for _ in 0..MAX_DEPTH {
        filter = doc! {"$and": [filter]};
    }
    check_error(filter, Code::BAD_VALUE, "exceeded maximum query tree depth");
    let mut filter = doc! {"$gt": 1};
    for _ in 0..MAX_DEPTH {
        filter = doc! {"$not": filter};
    }
    check_error(doc! {"a": filter}, Code::BAD_VALUE, "exceeded maximum query tree depth");
}

#[test]
fn an_upsert_takes_equalities() {
    let taken = |filter: Document| {
        let found = parse(&filter).unwrap().equalities_for_upsert();
        found.map(|found| {
            let fields = found.into_iter();
            fields
                .map(|(path, value)| (path.as_str().to_owned(), Bson::try_from(value).unwrap()))
                .collect::<Document>()
        })
    };
    assert_eq!(
        taken(doc! {"a": 1, "b.c": {"$eq": 2}, "d": {"$gt": 3}}).unwrap(),
        doc! {"a": 1, "b.c": 2}
    );
    assert_eq!(
        taken(doc! {"$and": [{"a": 1}, {"b": {"$in": [2]}}]}).unwrap(),
        doc! {"a": 1, "b": 2}
    );
    assert_eq!(taken(doc! {"$or": [{"a": 1}]}).unwrap(), doc! {"a": 1});
    assert_eq!(taken(doc! {"$or": [{"a": 1}, {"b": 1}]}).unwrap(), doc! {});
    assert_eq!(taken(doc! {"a": {"$all": [1]}}).unwrap(), doc! {"a": 1});
    assert_eq!(taken(doc! {"a": regex("x", ""), "b": {"$ne": 1}}).unwrap(), doc! {});
    let conflict = |filter| taken(filter).unwrap_err().code();
    assert_eq!(conflict(doc! {"a": {"$all": [1, 2]}}), Code::NOT_SINGLE_VALUE_FIELD);
    assert_eq!(conflict(doc! {"$and": [{"a": 1}, {"a.b": 1}]}), Code::NOT_SINGLE_VALUE_FIELD);
}

#[test]
fn the_canonical_form_is_flat() {
    let check = |filter: Document, canonical: Document| {
        assert_eq!(parse(&filter).unwrap().to_document(), canonical);
    };
    check(doc! {"a": 1}, doc! {"a": {"$eq": 1}});
    check(
        doc! {"$and": [{"a": 1}, {"$and": [{"b": 2}]}]},
        doc! {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": 2}}]},
    );
    check(doc! {"$or": [{"a": 2}, {"a": 1}]}, doc! {"a": {"$in": [1, 2]}});
    check(doc! {"a": {"$in": [5]}}, doc! {"a": {"$eq": 5}});
    check(doc! {"a": {"$ne": 5}}, doc! {"a": {"$not": {"$eq": 5}}});
    check(doc! {"a": {"$not": {"$not": {"$gt": 5}}}}, doc! {"a": {"$gt": 5}});
    check(doc! {"a": {"$exists": false}}, doc! {"a": {"$not": {"$exists": true}}});
    check(doc! {}, doc! {});
    let shown = parse(&doc! {"a": 1, "b": {"$gt": "x"}}).unwrap().to_string();
    assert_eq!(shown, "{ $and: [ { a: { $eq: 1 } }, { b: { $gt: \"x\" } } ] }");
}

#[test]
fn a_stored_regular_expression_is_no_pattern() {
    check_all(
        doc! {"$or": [{"a": {"$eq": regex("x", "")}}, {"a": 1}]},
        &[doc! {"a": regex("x", "")}, doc! {"a": 1}],
        &[doc! {"a": "x"}],
    );
}

#[test]
fn anchored_patterns_have_a_prefix() {
    let prefix =
        |source: &str, options: &str| Pattern::new(source, options).unwrap().literal_prefix();
    let some = |text: &str, complete| Some((text.to_owned(), complete));
    assert_eq!(prefix("^abc", ""), some("abc", true));
    assert_eq!(prefix("^abc.*", "s"), some("abc", true));
    assert_eq!(prefix("^abc.*", ""), some("abc", false));
    assert_eq!(prefix("^ab*", ""), some("a", false));
    assert_eq!(prefix("^ab+", ""), some("ab", false));
    assert_eq!(prefix(r"^a\.b\d", ""), some("a.b", false));
    assert_eq!(prefix("^a$", ""), some("a", false));
    assert_eq!(prefix("abc", ""), None);
    assert_eq!(prefix("^a|b", ""), None);
    assert_eq!(prefix("^a", "i"), None);
}

fn small_value() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        (0i32..3).prop_map(Bson::Int32),
        (0i32..3).prop_map(|v| Bson::Double(f64::from(v))),
        "[ab]".prop_map(Bson::String),
        Just(Bson::Null),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Bson::Array),
            proptest::collection::vec(("[ab0]", inner), 0..3)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    })
}

fn small_document() -> impl Strategy<Value = Document> {
    proptest::collection::vec(("[ab]", small_value()), 0..3).prop_map(|f| f.into_iter().collect())
}

fn small_filter() -> impl Strategy<Value = Document> {
    let path = prop_oneof![Just("a"), Just("b"), Just("a.b"), Just("a.0"), Just("a.b.a")];
    let leaf =
        (path, small_value(), 0..9usize).prop_map(|(path, value, operator)| match operator {
            0 => doc! {path: {"$eq": value}},
            1 => doc! {path: {"$gt": value}},
            2 => doc! {path: {"$lte": value}},
            3 => doc! {path: {"$in": [value, 1]}},
            4 => doc! {path: {"$ne": value}},
            5 => doc! {path: {"$exists": value != Bson::Null}},
            6 => doc! {path: {"$elemMatch": {"$eq": value}}},
            7 => doc! {path: {"$not": {"$lt": value}}},
            _ => doc! {path: {"$all": [value]}},
        });
    leaf.prop_recursive(3, 10, 3, |inner| {
        (proptest::collection::vec(inner, 1..3), 0..3usize).prop_map(|(parts, connective)| {
            let name = ["$and", "$or", "$nor"][connective];
            doc! {name: parts}
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn normalising_changes_nothing(filter in small_filter(), document in small_document()) {
        let raw_filter = raw_doc(&filter);
        let plain = parse::filter(&raw_filter, &ParseContext::default()).unwrap();
        let document = raw_doc(&document);
        let expected = matches::matches(&plain, &document, &ParseContext::default().variables, None).unwrap();
        let normalised = parse(&filter).unwrap();
        prop_assert_eq!(normalised.matches(&document).unwrap(), expected);
        let shown = parse(&normalised.to_document()).unwrap();
        prop_assert_eq!(shown.matches(&document).unwrap(), expected);
    }

    #[test]
    fn arbitrary_documents_never_panic_the_parser(filter in small_document()) {
        if let Ok(filter) = parse(&filter) {
            let document = raw_doc(&doc! {"a": [1, {"b": 2}]});
            prop_assert!(filter.matches(&document).is_ok());
        }
    }
}

#[test]
fn text_searches_stand_where_mongodb_has_them() {
    let ctx = ParseContext { text: true, ..ParseContext::default() };
    let text = || doc! {"$text": {"$search": "x"}};
    let check = |filter: Document, code: Code, message: &str| {
        let error = Filter::parse(&raw_doc(&filter), &ctx).unwrap_err();
        assert_eq!(error.code(), code, "{filter}: {error}");
        assert!(error.message().contains(message), "{filter}: {error}");
    };
    check(doc! {"$nor": [text()]}, Code::BAD_VALUE, "text expression not allowed in nor");
    check(doc! {"$or": [text(), text()]}, Code::BAD_VALUE, "Too many text expressions");
    check(doc! {"a": {"$elemMatch": text()}}, Code::BAD_VALUE, "top-level document");
    check(doc! {"$text": "x"}, Code::BAD_VALUE, "$text expects an object");
    check(doc! {"$text": {}}, Code::NO_SUCH_KEY, "Missing expected field \"$search\"");
    check(doc! {"$text": {"$search": 1}}, Code::TYPE_MISMATCH, "Expected string, found int");
    check(doc! {"$text": {"$search": "a", "$x": 1}}, Code::BAD_VALUE, "extra fields in $text");
    let caseless = doc! {"$text": {"$search": "a", "$caseSensitive": 1}};
    check(caseless, Code::TYPE_MISMATCH, "\"$caseSensitive\" had the wrong type");

    let filter = Filter::parse(&raw_doc(&doc! {"a": 1, "$or": [text(), {"b": 2}]}), &ctx).unwrap();
    assert!(filter.text().is_some());
    let error = Filter::parse(&raw_doc(&text()), &ctx).unwrap().matches(&raw_doc(&doc! {}));
    assert_eq!(error.unwrap_err().code(), Code::INDEX_NOT_FOUND);
}

#[test]
fn a_bound_text_search_matches_by_itself() {
    let fields = fulltext::Fields::new(
        [("t".to_owned(), 1.0)].into(),
        fulltext::Language::English,
        "language".to_owned(),
        fulltext::Version::Three,
    );
    let fields = Arc::new(fields);
    let ctx = ParseContext { text: true, ..ParseContext::default() };
    let matches = |search: &str, document: Document| {
        let filter = raw_doc(&doc! {"$text": {"$search": search}, "a": 1});
        let filter = Filter::parse(&filter, &ctx).unwrap().bind_text(&fields).unwrap();
        filter.matches(&raw_doc(&document)).unwrap()
    };
    assert!(matches("coffee", doc! {"t": "Coffees", "a": 1}));
    assert!(!matches("coffee", doc! {"t": "Coffees", "a": 2}));
    assert!(!matches("coffee", doc! {"u": "Coffees", "a": 1}));
    assert!(!matches("coffee -black", doc! {"t": "black coffee", "a": 1}));
}
