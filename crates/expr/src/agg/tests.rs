//! Tables of expressions: what each yields for a document.

mod corners;
mod extremes;
mod nasty;

use super::*;
use bson::raw::{RawArrayBuf, RawDocumentBuf};
use bson::{Bson, DateTime, Decimal128, Document, bson, doc, oid::ObjectId, rawdoc};
use std::sync::Arc;

fn run(expression: &Bson, document: &Document) -> Result<Option<Bson>> {
    let raw = RawDocumentBuf::try_from(document).unwrap();
    let value = RawBson::try_from(expression.clone()).unwrap();
    let mut roles = RawArrayBuf::new();
    roles.push(rawdoc! { "_id": "db.read", "role": "read", "db": "db" });
    let variables = Variables::new(DateTime::from_millis(1000), 7).with_user_roles(Arc::new(roles));
    let parsed = Expression::parse(value.as_raw_bson_ref(), &ParseContext::new())?;
    let plain = parsed.evaluate(&raw, &variables)?.into_owned();
    let folded = parsed.optimize();
    let again = folded.evaluate(&raw, &variables)?.into_owned();
    if folded.dependencies() == Dependencies::default() {
        // By text, where a NaN equals itself.
        let (plain, again) = (format!("{plain:?}"), format!("{again:?}"));
        assert_eq!(plain, again, "folding changed {expression}");
    }
    Ok(again.map(|value| Bson::try_from(value).unwrap()))
}

#[expect(clippy::needless_pass_by_value, reason = "tables of literals read better")]
fn check_on(document: Document, expression: impl Into<Bson>, expected: impl Into<Bson>) {
    let (expression, expected) = (expression.into(), expected.into());
    let found = run(&expression, &document);
    assert_eq!(found.expect("evaluates"), Some(expected), "{expression} on {document}");
}

fn check(expression: impl Into<Bson>, expected: impl Into<Bson>) {
    check_on(doc! {}, expression, expected);
}

#[expect(clippy::needless_pass_by_value, reason = "tables of literals read better")]
fn check_missing(document: Document, expression: impl Into<Bson>) {
    let expression = expression.into();
    assert_eq!(run(&expression, &document).expect("evaluates"), None, "{expression}");
}

fn check_error(expression: impl Into<Bson>, code: i32, message: &str) {
    let expression = expression.into();
    let error = run(&expression, &doc! {}).expect_err("fails");
    assert_eq!((error.code().0, error.message()), (code, message), "{expression}");
}

fn fails_with(expression: impl Into<Bson>, code: i32) {
    let expression = expression.into();
    let error = run(&expression, &doc! {}).expect_err("fails");
    assert_eq!(error.code().0, code, "{expression}: {error}");
}

fn date(text: &str) -> Bson {
    Bson::DateTime(DateTime::parse_rfc3339_str(text).unwrap())
}

fn dec(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

#[test]
fn arithmetic_promotes_types() {
    check(doc! {"$add": [1, 2]}, 3);
    check(doc! {"$add": [1, 2_i64]}, 3_i64);
    check(doc! {"$add": [1, 2.5]}, 3.5);
    check(doc! {"$add": [i32::MAX, 1]}, 2_147_483_648_i64);
    check(doc! {"$add": [i64::MAX, 1]}, 9_223_372_036_854_775_808.0);
    check(doc! {"$add": [dec("1.5"), 1]}, dec("2.5"));
    check(doc! {"$add": []}, 0);
    check(doc! {"$add": [1, null]}, Bson::Null);
    check(doc! {"$add": [1, "$nope"]}, Bson::Null);
    check(doc! {"$add": [date("2020-01-01T00:00:00Z"), 1000]}, date("2020-01-01T00:00:01Z"));
    check(doc! {"$subtract": [5, 7]}, -2);
    check(
        doc! {"$subtract": [date("2020-01-01T00:00:01Z"), date("2020-01-01T00:00:00Z")]},
        1000_i64,
    );
    check(doc! {"$subtract": [date("2020-01-01T00:00:01Z"), 1000]}, date("2020-01-01T00:00:00Z"));
    check(doc! {"$multiply": [3, 4]}, 12);
    check(doc! {"$multiply": [1 << 20, 1 << 20]}, 1_i64 << 40);
    check(doc! {"$divide": [1, 4]}, 0.25);
    check(doc! {"$divide": [dec("1"), 4]}, dec("0.25"));
    check(doc! {"$mod": [7, 3]}, 1);
    check(doc! {"$mod": [-7.5, 2]}, -1.5);
    check(doc! {"$mod": [i64::MIN, -1_i64]}, 0_i64);
    check(doc! {"$abs": -5}, 5);
    check(doc! {"$abs": i32::MIN}, 2_147_483_648_i64);
    check(doc! {"$ceil": 7.2}, 8.0);
    check(doc! {"$floor": -2.1}, -3.0);
    check(doc! {"$floor": 5}, 5);
    check(doc! {"$sqrt": 25}, 5.0);
    check(doc! {"$pow": [2, 10]}, 1024);
    check(doc! {"$pow": [2, 40]}, 1_i64 << 40);
    check(doc! {"$pow": [2, -1]}, 0.5);
    check(doc! {"$pow": [2, 100]}, 2_f64.powi(100));
    check(doc! {"$exp": 0}, 1.0);
    check(doc! {"$ln": 1}, 0.0);
    check(doc! {"$log10": 1000}, 1000_f64.log10());
    check(doc! {"$log": [8, 2]}, 3.0);
}

#[test]
fn arithmetic_refuses_other_types() {
    check_error(
        doc! {"$add": [1, "a"]},
        14,
        "$add only supports numeric or date types, not string",
    );
    fails_with(doc! {"$add": [date("2020-01-01T00:00:01Z"), date("2020-01-01T00:00:01Z")]}, 16612);
    check_error(doc! {"$subtract": [1, "a"]}, 14, "can't $subtract string from int");
    check_error(doc! {"$divide": [1, 0]}, 2, "can't $divide by zero");
    fails_with(doc! {"$mod": [1, 0]}, 16610);
    fails_with(doc! {"$sqrt": -1}, 28714);
    fails_with(doc! {"$abs": "x"}, 28765);
    fails_with(doc! {"$abs": i64::MIN}, 28680);
    fails_with(doc! {"$pow": [0, -1]}, 28764);
    check_error(
        doc! {"$subtract": [1]},
        16020,
        "Expression $subtract takes exactly 2 arguments. 1 were passed in.",
    );
}

#[test]
fn rounding_to_places() {
    check(doc! {"$round": [2.5]}, 2.0);
    check(doc! {"$round": [3.5]}, 4.0);
    check(doc! {"$round": [19.25, 1]}, 19.2);
    check(doc! {"$round": [1234, -2]}, 1200);
    check(doc! {"$trunc": [-9.99, 1]}, -9.9);
    check(doc! {"$trunc": 7.9}, 7.0);
    check(doc! {"$round": [dec("1.25"), 1]}, dec("1.2"));
    fails_with(doc! {"$round": [1, 101]}, 51083);
    fails_with(doc! {"$round": [1, 1.5]}, 51082);
}

#[test]
fn comparison_orders_across_types() {
    check(doc! {"$eq": [1, 1.0]}, true);
    check(doc! {"$cmp": [1, "a"]}, -1);
    check(doc! {"$gt": [bson!([1]), doc! {"a": 1}]}, true);
    check(doc! {"$lt": ["$missing", null]}, true);
    check(doc! {"$eq": ["$missing", null]}, false);
    check(doc! {"$eq": ["$missing", "$gone"]}, true);
    check(doc! {"$gte": [2, 2]}, true);
    check(doc! {"$ne": ["a", "b"]}, true);
}

#[test]
fn conditions_are_lazy() {
    check(doc! {"$and": []}, true);
    check(doc! {"$or": []}, false);
    check(doc! {"$and": [1, "", 0]}, false);
    check(doc! {"$or": [false, {"$eq": [1, 1]}, {"$divide": [1, "$zero"]}]}, true);
    check(doc! {"$not": [0]}, true);
    check(doc! {"$cond": [true, 1, 2]}, 1);
    check(doc! {"$cond": {"if": false, "then": 1, "else": 2}}, 2);
    check(doc! {"$ifNull": ["$a", "$b", 5]}, 5);
    check_missing(doc! {}, doc! {"$ifNull": [null, "$b"]});
    check(doc! {"$switch": {"branches": [{"case": false, "then": 1}, {"case": 1, "then": 2}]}}, 2);
    check(doc! {"$switch": {"branches": [{"case": false, "then": 1}], "default": 9}}, 9);
    fails_with(doc! {"$switch": {"branches": [{"case": false, "then": 1}]}}, 40066);
    fails_with(doc! {"$switch": {"branches": []}}, 40068);
    fails_with(doc! {"$cond": {"if": 1, "then": 2}}, 17082);
    fails_with(doc! {"$cond": [1, 2]}, 16020);
}

#[test]
fn paths_map_over_arrays_and_take_no_index() {
    let document = doc! {"a": [{"b": 1}, {"b": 2}, 3, {"c": 4}, [{"b": 5}]], "x": {"y": {"z": 1}}};
    check_on(document.clone(), "$a.b", bson!([1, 2, [5]]));
    check_on(document.clone(), "$x.y.z", 1);
    check_on(document.clone(), "$a.0", bson!([[]]));
    check_missing(document.clone(), "$x.nope");
    check_missing(document.clone(), "$x.y.z.w");
    check_on(document.clone(), "$$ROOT.x.y", doc! {"z": 1});
    check_on(document.clone(), "$$CURRENT.x.y.z", 1);
    check_on(doc! {"a": 1}, "$$ROOT", doc! {"a": 1});
    check("$$NOW", DateTime::from_millis(1000));
    check_missing(doc! {}, "$$REMOVE");
    fails_with("$", 16872);
    check_error("$$nope", 17276, "Use of undefined variable: nope");
    fails_with("$a..b", 15998);
    fails_with("$a.", 40353);
    fails_with("$a.$b", 16410);
    let reference = doc! {"r": [{"$ref": "c", "$id": 7, "$db": "d"}, {"$ref": "e", "$id": 8}]};
    check_on(reference.clone(), "$r.$id", bson!([7, 8]));
    check_on(reference.clone(), "$r.$ref", bson!(["c", "e"]));
    check_on(reference.clone(), "$$ROOT.r.$db", bson!(["d"]));
    check_on(reference, doc! {"$let": {"vars": {"x": "$r"}, "in": "$$x.$id"}}, bson!([7, 8]));
    fails_with("$r.$ids", 16410);
    fails_with("$r.$id.$x", 16410);
}

#[test]
fn objects_and_arrays_are_built() {
    check_on(
        doc! {"x": 1},
        doc! {"a": "$x", "b": "$nope", "c": {"d": 2}},
        doc! {"a": 1, "c": {"d": 2}},
    );
    check_on(doc! {"x": 1}, bson!(["$x", "$nope"]), bson!([1, null]));
    check(doc! {"$literal": "$x"}, "$x");
    check(doc! {"$literal": {"$add": [1]}}, doc! {"$add": [1]});
    fails_with(doc! {"$add": [1], "$subtract": [1]}, 15983);
    check_error(doc! {"$nope": 1}, 168, "Unrecognized expression '$nope'");
}

#[test]
fn variables_are_scoped() {
    check(doc! {"$let": {"vars": {"x": 2, "y": 3}, "in": {"$multiply": ["$$x", "$$y"]}}}, 6);
    check(
        doc! {"$let": {"vars": {"x": 1}, "in": {"$let": {"vars": {"x": 2, "y": "$$x"},
        "in": ["$$x", "$$y"]}}}},
        bson!([2, 1]),
    );
    check_on(doc! {"a": {"b": 5}}, doc! {"$let": {"vars": {"CURRENT": "$a"}, "in": "$b"}}, 5);
    check_on(
        doc! {"a": [1, 2, 3]},
        doc! {"$map": {"input": "$a", "as": "x", "in": {"$add": ["$$x", 1]}}},
        bson!([2, 3, 4]),
    );
    check(
        doc! {"$map": {"input": [1, 2], "in": {"$map": {"input": [10], "as": "y", "in": {"$add": ["$$this", "$$y"]}}}}},
        bson!([[11], [12]]),
    );
    check(
        doc! {"$filter": {"input": [1, 2, 3, 4], "cond": {"$gt": ["$$this", 1]}, "limit": 2}},
        bson!([2, 3]),
    );
    check(
        doc! {"$reduce": {"input": [1, 2, 3], "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}},
        6,
    );
    check(
        doc! {"$reduce": {"input": ["a", "b"], "initialValue": "", "in": {"$concat": ["$$value", "$$this"]}}},
        "ab",
    );
    check(doc! {"$map": {"input": null, "in": 1}}, Bson::Null);
    fails_with(doc! {"$map": {"input": 1, "in": 1}}, 16883);
    fails_with(doc! {"$filter": {"input": 1, "cond": 1}}, 28651);
    fails_with(doc! {"$reduce": {"input": 1, "initialValue": 0, "in": 1}}, 40080);
    fails_with(doc! {"$let": {"vars": {"X": 1}, "in": 1}}, 9);
    fails_with(doc! {"$map": {"input": [1]}}, 16882);
}

#[test]
fn objects_merge_and_turn_into_arrays() {
    check(
        doc! {"$mergeObjects": [{"a": 1, "b": 2}, null, {"b": 3, "c": 4}]},
        doc! {"a": 1, "b": 3, "c": 4},
    );
    check_on(doc! {"l": [{"a": 1}, {"b": 2}]}, doc! {"$mergeObjects": "$l"}, doc! {"a": 1, "b": 2});
    check(doc! {"$mergeObjects": [null]}, doc! {});
    fails_with(doc! {"$mergeObjects": [1]}, 40400);
    check(doc! {"$objectToArray": {"a": 1}}, bson!([{"k": "a", "v": 1}]));
    check(
        doc! {"$arrayToObject": {"$literal": [["a", 1], ["b", 2], ["a", 3]]}},
        doc! {"a": 3, "b": 2},
    );
    check(doc! {"$arrayToObject": {"$literal": [{"k": "a", "v": 1}]}}, doc! {"a": 1});
    fails_with(doc! {"$arrayToObject": {"$literal": [["a", 1], {"k": "a", "v": 1}]}}, 40396);
    fails_with(doc! {"$arrayToObject": {"$literal": [1]}}, 40398);
    fails_with(doc! {"$arrayToObject": {"$literal": [["a"]]}}, 40397);
    check_on(doc! {"a.b": 7}, doc! {"$getField": "a.b"}, 7);
    check(doc! {"$getField": {"field": "x", "input": {"x": 3}}}, 3);
    check(
        doc! {"$setField": {"field": "a.b", "input": {"x": 1}, "value": 2}},
        doc! {"x": 1, "a.b": 2},
    );
    check(
        doc! {"$setField": {"field": "x", "input": {"x": 1, "y": 2}, "value": "$$REMOVE"}},
        doc! {"y": 2},
    );
    check(doc! {"$unsetField": {"field": "x", "input": {"x": 1, "y": 2}}}, doc! {"y": 2});
    check(doc! {"$bsonSize": {"a": 1}}, 12);
}

#[test]
fn arrays() {
    let l = bson!([10, 20, 30]);
    check_on(doc! {"l": l.clone()}, doc! {"$arrayElemAt": ["$l", -1]}, 30);
    check_missing(doc! {"l": l.clone()}, doc! {"$arrayElemAt": ["$l", 5]});
    check_missing(doc! {"l": l.clone()}, doc! {"$arrayElemAt": ["$l", -5]});
    check_on(doc! {"l": l.clone()}, doc! {"$first": "$l"}, 10);
    check_on(doc! {"l": l.clone()}, doc! {"$last": "$l"}, 30);
    check(doc! {"$concatArrays": [[1], [2, 3], []]}, bson!([1, 2, 3]));
    check(doc! {"$concatArrays": [[1], null]}, Bson::Null);
    fails_with(doc! {"$concatArrays": [[1], 2]}, 28664);
    check(doc! {"$in": [2, [1, 2.0]]}, true);
    fails_with(doc! {"$in": [2, 3]}, 40081);
    check(doc! {"$indexOfArray": [[1, 2, 1], 1, 1]}, 2);
    check(doc! {"$indexOfArray": [[1, 2, 1], 9]}, -1);
    check(doc! {"$isArray": [[1]]}, true);
    check(doc! {"$isArray": "x"}, false);
    check(doc! {"$range": [0, 10, 3]}, bson!([0, 3, 6, 9]));
    check(doc! {"$range": [3, 0, -1]}, bson!([3, 2, 1]));
    check(doc! {"$range": [0, 0]}, bson!([]));
    fails_with(doc! {"$range": [0, 1, 0]}, 34449);
    fails_with(doc! {"$range": [0, i32::MAX]}, 146);
    check(doc! {"$reverseArray": [[1, 2]]}, bson!([2, 1]));
    check_on(doc! {"l": l.clone()}, doc! {"$size": "$l"}, 3);
    fails_with(doc! {"$size": 1}, 17124);
    check_on(doc! {"l": l.clone()}, doc! {"$slice": ["$l", 2]}, bson!([10, 20]));
    check_on(doc! {"l": l.clone()}, doc! {"$slice": ["$l", -2]}, bson!([20, 30]));
    check_on(doc! {"l": l.clone()}, doc! {"$slice": ["$l", 1, 1]}, bson!([20]));
    check_on(doc! {"l": l.clone()}, doc! {"$slice": ["$l", -9, 1]}, bson!([10]));
    fails_with(doc! {"$slice": [[1], 0, 0]}, 28729);
    check(doc! {"$zip": {"inputs": [[1, 2], ["a"]]}}, bson!([[1, "a"]]));
    check(
        doc! {"$zip": {"inputs": [[1, 2], ["a"]], "useLongestLength": true, "defaults": [0, "z"]}},
        bson!([[1, "a"], [2, "z"]]),
    );
    check(doc! {"$firstN": {"n": 2, "input": [1, 2, 3]}}, bson!([1, 2]));
    check(doc! {"$lastN": {"n": 2, "input": [1, 2, 3]}}, bson!([2, 3]));
    check(doc! {"$maxN": {"n": 2, "input": [1, null, 3, 2]}}, bson!([3, 2]));
    check(doc! {"$minN": {"n": 2, "input": [1, null, 3, 2]}}, bson!([1, 2]));
    check(doc! {"$sortArray": {"input": [3, 1, 2], "sortBy": -1}}, bson!([3, 2, 1]));
    check(
        doc! {"$sortArray": {"input": [{"a": 2, "b": 1}, {"a": 1}, {"a": 2, "b": 0}], "sortBy": {"a": 1, "b": 1}}},
        bson!([{"a": 1}, {"a": 2, "b": 0}, {"a": 2, "b": 1}]),
    );
}

#[test]
fn sets_take_equal_numbers_as_one() {
    check(doc! {"$setEquals": [[1, 2, 2], [2.0, 1]]}, true);
    check(doc! {"$setIntersection": [[3, 1, 2], [2, 3, 5]]}, bson!([2, 3]));
    check(doc! {"$setUnion": [[3, 1], [2, 1]]}, bson!([1, 2, 3]));
    check(doc! {"$setDifference": [[3, 1, 3, 2], [1]]}, bson!([3, 2]));
    check(doc! {"$setIsSubset": [[1], [1, 2]]}, true);
    check(doc! {"$anyElementTrue": [[0, false, 1]]}, true);
    check(doc! {"$allElementsTrue": [[1, null]]}, false);
    check(doc! {"$allElementsTrue": [[]]}, true);
    fails_with(doc! {"$setUnion": [1]}, 17043);
}

#[test]
fn strings() {
    check(doc! {"$concat": ["a", "b"]}, "ab");
    check(doc! {"$concat": ["a", null]}, Bson::Null);
    fails_with(doc! {"$concat": ["a", 1]}, 16702);
    check(doc! {"$toUpper": "aé"}, "Aé");
    check(doc! {"$toLower": null}, "");
    check(doc! {"$strLenCP": "aé"}, 2);
    check(doc! {"$strLenBytes": "aé"}, 3);
    check(doc! {"$strcasecmp": ["Ab", "aB"]}, 0);
    check(doc! {"$substrCP": ["caféx", 3, 5]}, "éx");
    check(doc! {"$substrBytes": ["hello", 1, 3]}, "ell");
    check(doc! {"$substr": ["hello", 1, -1]}, "ello");
    check(doc! {"$substr": [1234, 0, 2]}, "12");
    fails_with(doc! {"$substrBytes": ["é", 1, 1]}, 28656);
    fails_with(doc! {"$substrBytes": ["é", 0, 1]}, 28657);
    check(doc! {"$split": ["a-b-", "-"]}, bson!(["a", "b", ""]));
    fails_with(doc! {"$split": ["a", ""]}, 40087);
    check(doc! {"$indexOfBytes": ["cafétéria", "t"]}, 5);
    check(doc! {"$indexOfCP": ["cafétéria", "t"]}, 4);
    check(doc! {"$indexOfCP": ["abcabc", "a", 1]}, 3);
    check(doc! {"$indexOfCP": ["abc", "c", 0, 2]}, -1);
    check(doc! {"$indexOfCP": [null, "c"]}, Bson::Null);
    check(doc! {"$trim": {"input": "  a \n"}}, "a");
    check(doc! {"$ltrim": {"input": "xxaxx", "chars": "x"}}, "axx");
    check(doc! {"$rtrim": {"input": "xxaxx", "chars": "x"}}, "xxa");
    fails_with(doc! {"$trim": {"input": 1}}, 50699);
    check(doc! {"$replaceOne": {"input": "aXbX", "find": "X", "replacement": "-"}}, "a-bX");
    check(doc! {"$replaceAll": {"input": "aXbX", "find": "X", "replacement": "-"}}, "a-b-");
    check(doc! {"$replaceAll": {"input": null, "find": "X", "replacement": "-"}}, Bson::Null);
    fails_with(doc! {"$replaceAll": {"input": 1, "find": "X", "replacement": "-"}}, 51746);
}

#[test]
fn regular_expressions() {
    check(doc! {"$regexMatch": {"input": "Hello", "regex": "^h", "options": "i"}}, true);
    check(doc! {"$regexMatch": {"input": null, "regex": "x"}}, false);
    check(
        doc! {"$regexFind": {"input": "éab", "regex": "(a)(z)?"}},
        doc! {"match": "a", "idx": 1, "captures": ["a", null]},
    );
    check(doc! {"$regexFind": {"input": "b", "regex": "a"}}, Bson::Null);
    check(
        doc! {"$regexFindAll": {"input": "a1b22", "regex": "[0-9]+"}},
        bson!([{"match": "1", "idx": 1, "captures": []}, {"match": "22", "idx": 3, "captures": []}]),
    );
    check(doc! {"$size": {"$regexFindAll": {"input": "ééé", "regex": ""}}}, 4);
    // Classes are of ASCII, also in text that is not.
    for (pattern, matches) in
        [("\\w", 2), ("\\d", 1), ("\\bé", 0), ("[[:alpha:]]", 1), ("(?i)É", 1)]
    {
        let all = doc! {"$regexFindAll": {"input": "é a٣1", "regex": pattern}};
        check(doc! {"$size": all}, matches);
    }
    // Far from quadratic: this takes minutes where every match reads the whole text again.
    for (text, matches) in [("é ".repeat(200_000), 200_000), ("e ".repeat(200_000), 200_000)] {
        check(doc! {"$size": {"$regexFindAll": {"input": text, "regex": "[eé]"}}}, matches);
    }
    fails_with(doc! {"$regexMatch": {"input": 1, "regex": "x"}}, 51104);
    fails_with(doc! {"$regexMatch": {"input": "a", "regex": "("}}, 51111);
    fails_with(doc! {"$regexMatch": {"regex": "("}}, 31022);
}

#[test]
fn conversions() {
    check(doc! {"$toInt": "12"}, 12);
    check(doc! {"$toInt": 2.9}, 2);
    check(doc! {"$toLong": true}, 1_i64);
    check(doc! {"$toDouble": "1.5e3"}, 1500.0);
    check(doc! {"$toDecimal": 2.5}, dec("2.50000000000000"));
    check(doc! {"$toBool": "false"}, true);
    check(doc! {"$toBool": 0.0}, false);
    check(doc! {"$toString": 1.5}, "1.5");
    check(doc! {"$toString": 3.0}, "3");
    check(doc! {"$toString": 1e20}, "1e+20");
    check(doc! {"$toString": date("2018-03-27T16:58:51.538Z")}, "2018-03-27T16:58:51.538Z");
    check(doc! {"$toDate": 1000_i64}, DateTime::from_millis(1000));
    check(doc! {"$toDate": "2018-03-20"}, date("2018-03-20T00:00:00Z"));
    let id = "5ab9cbfa31c2ab715d42129e";
    check(doc! {"$toObjectId": id}, ObjectId::parse_str(id).unwrap());
    check(doc! {"$convert": {"input": "x", "to": "int", "onError": "no"}}, "no");
    check(doc! {"$convert": {"input": null, "to": "int", "onNull": "none"}}, "none");
    check(doc! {"$convert": {"input": 5, "to": 2}}, "5");
    check_error(
        doc! {"$toInt": "abc"},
        241,
        "Failed to parse number 'abc' in $convert with no onError value: Did not consume any digits",
    );
    check_error(
        doc! {"$toInt": date("2018-03-20T00:00:00Z")},
        241,
        "Unsupported conversion from date to int in $convert with no onError value",
    );
    fails_with(doc! {"$toInt": 1e20}, 241);
    fails_with(doc! {"$toInt": "99999999999"}, 241);
    fails_with(doc! {"$convert": {"input": 5, "to": "nope"}}, 2);
    check(doc! {"$type": "$nope"}, "missing");
    check(doc! {"$type": 1}, "int");
    check(doc! {"$isNumber": 1.5}, true);
    check(doc! {"$isNumber": "1"}, false);
}

#[test]
fn double_text_has_sixteen_digits() {
    for (n, text) in [
        (0.1, "0.1"),
        (1e15, "1000000000000000"),
        (1e16, "1e+16"),
        (1e-5, "1e-05"),
        (123456.789, "123456.789"),
        (-2.5, "-2.5"),
        (0.0001, "0.0001"),
        (1.0 / 3.0, "0.3333333333333333"),
    ] {
        assert_eq!(double_to_string(n), text);
    }
}

#[test]
fn date_parts_and_zones() {
    let at = date("2017-01-02T03:04:05.006Z");
    check(doc! {"$year": at.clone()}, 2017);
    check(doc! {"$month": [at.clone()]}, 1);
    check(doc! {"$dayOfMonth": at.clone()}, 2);
    check(doc! {"$hour": {"date": at.clone(), "timezone": "America/New_York"}}, 22);
    check(doc! {"$hour": {"date": at.clone(), "timezone": "+0530"}}, 8);
    check(doc! {"$minute": at.clone()}, 4);
    check(doc! {"$second": at.clone()}, 5);
    check(doc! {"$millisecond": at.clone()}, 6);
    check(doc! {"$dayOfWeek": at.clone()}, 2);
    check(doc! {"$dayOfYear": at.clone()}, 2);
    check(doc! {"$week": at.clone()}, 1);
    check(doc! {"$isoWeek": at.clone()}, 1);
    check(doc! {"$isoWeekYear": date("2017-01-01T00:00:00Z")}, 2016_i64);
    check(doc! {"$isoDayOfWeek": date("2017-01-01T00:00:00Z")}, 7);
    check(doc! {"$year": null}, Bson::Null);
    fails_with(doc! {"$year": "x"}, 16006);
    fails_with(doc! {"$year": {"date": at.clone(), "timezone": "Mars/Olympus"}}, 40485);
    check(
        doc! {"$dateToParts": {"date": at.clone()}},
        doc! {"year": 2017, "month": 1, "day": 2, "hour": 3, "minute": 4, "second": 5, "millisecond": 6},
    );
    check(
        doc! {"$dateToParts": {"date": at.clone(), "iso8601": true}},
        doc! {"isoWeekYear": 2017, "isoWeek": 1, "isoDayOfWeek": 1, "hour": 3, "minute": 4, "second": 5, "millisecond": 6},
    );
    check(
        doc! {"$dateFromParts": {"year": 2017, "month": 2, "day": 8, "hour": 12}},
        date("2017-02-08T12:00:00Z"),
    );
    check(
        doc! {"$dateFromParts": {"year": 2016, "month": 14, "day": 0}},
        date("2017-01-31T00:00:00Z"),
    );
    check(
        doc! {"$dateFromParts": {"isoWeekYear": 2017, "isoWeek": 6, "isoDayOfWeek": 3}},
        date("2017-02-08T00:00:00Z"),
    );
    check(
        doc! {"$dateFromParts": {"year": 2016, "month": 12, "day": 31, "hour": 23, "timezone": "America/New_York"}},
        date("2017-01-01T04:00:00Z"),
    );
    fails_with(doc! {"$dateFromParts": {"year": 0}}, 40523);
}

#[test]
fn dates_as_text() {
    let at = date("2014-01-01T08:15:39.736Z");
    check(doc! {"$dateToString": {"date": at.clone()}}, "2014-01-01T08:15:39.736Z");
    check(doc! {"$dateToString": {"date": at.clone(), "format": "%Y-%m-%d"}}, "2014-01-01");
    check(
        doc! {"$dateToString": {"date": at.clone(), "format": "%H:%M:%S:%L%z", "timezone": "America/New_York"}},
        "03:15:39:736-0500",
    );
    check(
        doc! {"$dateToString": {"date": at.clone(), "format": "%j %U %V %G %u %w %Z %%", "timezone": "+04:30"}},
        "001 00 01 2014 3 4 +270 %",
    );
    check(doc! {"$dateToString": {"date": null, "onNull": "none"}}, "none");
    fails_with(doc! {"$dateToString": {"date": at.clone(), "format": "%Q"}}, 18536);
    fails_with(doc! {"$dateToString": {"date": at.clone(), "format": "%"}}, 18535);
    for (text, expected) in [
        ("2017-02-08T12:10:40.787Z", "2017-02-08T12:10:40.787Z"),
        ("2017-02-08", "2017-02-08T00:00:00Z"),
        ("2017-02-08T12:10:40+0200", "2017-02-08T10:10:40Z"),
        ("2017-02-08 12:10 America/New_York", "2017-02-08T17:10:00Z"),
        ("July 4, 2017", "2017-07-04T00:00:00Z"),
        ("Tue, 4 Jul 2017 10:00:00 GMT", "2017-07-04T10:00:00Z"),
        ("20170704T101112Z", "2017-07-04T10:11:12Z"),
        ("07/04/2017", "2017-07-04T00:00:00Z"),
    ] {
        check(doc! {"$dateFromString": {"dateString": text}}, date(expected));
    }
    check(
        doc! {"$dateFromString": {"dateString": "06-15-2018", "format": "%m-%d-%Y"}},
        date("2018-06-15T00:00:00Z"),
    );
    check(
        doc! {"$dateFromString": {"dateString": "2017-02-08", "timezone": "America/New_York"}},
        date("2017-02-08T05:00:00Z"),
    );
    let by = |format: &str, text: &str, expected: &str| {
        check(doc! {"$dateFromString": {"dateString": text, "format": format}}, date(expected));
    };
    by("%Y-%j", "2020-366", "2020-12-31T00:00:00Z");
    by("%G-W%V-%u", "2018-W06-7", "2018-02-11T00:00:00Z");
    by("%d %b %Y", "7 Feb 2018", "2018-02-07T00:00:00Z");
    by("%B %d, %Y", "February 7, 2018", "2018-02-07T00:00:00Z");
    by("%Y-%m-%dT%H:%M:%S.%LZ", "2018-02-07T01:02:03.5Z", "2018-02-07T01:02:03.500Z");
    by("%Y-%m-%d %z", "2018-02-07 +0530", "2018-02-06T18:30:00Z");
    by("%Y-%m-%d %Z", "2018-02-07 +330", "2018-02-06T18:30:00Z");
    for (format, text) in [
        ("%Y-%j", "2019-367"),
        ("%G-W%V-%u", "2018-W54-1"),
        ("%G-W%V-%u", "2018-W06-8"),
        ("%Y-%m-%d", "2018-02-30"),
        ("%Y-%m-%d", "2018-13-01"),
        ("%H:%M", "10:20"),
        ("%Y-%m-%d %G", "2018-02-07 2018"),
        ("%Y-%m", "2018-02-07"),
    ] {
        fails_with(doc! {"$dateFromString": {"dateString": text, "format": format}}, 241);
    }
    fails_with(doc! {"$dateFromString": {"dateString": "rubbish"}}, 241);
    fails_with(doc! {"$dateFromString": {"dateString": 5}}, 241);
    check(doc! {"$dateFromString": {"dateString": "rubbish", "onError": 1}}, 1);
}

#[test]
fn dates_move_by_calendar() {
    let add = |start: &str, unit: &str, amount: i32| {
        doc! {"$dateAdd": {"startDate": date(start), "unit": unit, "amount": amount}}
    };
    check(add("2020-01-31T00:00:00Z", "month", 1), date("2020-02-29T00:00:00Z"));
    check(add("2020-12-31T00:00:00Z", "day", 1), date("2021-01-01T00:00:00Z"));
    check(add("2020-12-31T00:00:00Z", "hour", -1), date("2020-12-30T23:00:00Z"));
    check(add("2020-02-29T00:00:00Z", "year", 1), date("2021-02-28T00:00:00Z"));
    check(add("2020-01-01T00:00:00Z", "quarter", 2), date("2020-07-01T00:00:00Z"));
    check(
        doc! {"$dateAdd": {"startDate": date("2021-03-13T12:00:00Z"), "unit": "day", "amount": 1, "timezone": "America/New_York"}},
        date("2021-03-14T11:00:00Z"),
    );
    check(
        doc! {"$dateSubtract": {"startDate": date("2020-03-31T00:00:00Z"), "unit": "month", "amount": 1}},
        date("2020-02-29T00:00:00Z"),
    );
    let diff = |from: &str, to: &str, unit: &str| {
        doc! {"$dateDiff": {"startDate": date(from), "endDate": date(to), "unit": unit}}
    };
    check(diff("2020-12-31T23:59:59Z", "2021-01-01T00:00:00Z", "year"), 1_i64);
    check(diff("2020-01-01T00:00:00Z", "2020-01-31T23:00:00Z", "month"), 0_i64);
    check(diff("2021-01-02T00:00:00Z", "2021-01-03T00:00:00Z", "week"), 1_i64);
    check(diff("2021-01-03T00:00:00Z", "2021-01-09T00:00:00Z", "week"), 0_i64);
    check(diff("2021-01-03T00:30:00Z", "2021-01-02T23:30:00Z", "hour"), -1_i64);
    let trunc = |at: &str, unit: &str, bin: i32| {
        doc! {"$dateTrunc": {"date": date(at), "unit": unit, "binSize": bin}}
    };
    check(trunc("2021-03-20T11:30:05Z", "hour", 1), date("2021-03-20T11:00:00Z"));
    check(trunc("2021-03-20T11:30:05Z", "month", 1), date("2021-03-01T00:00:00Z"));
    check(trunc("2021-03-20T11:30:05Z", "quarter", 2), date("2021-01-01T00:00:00Z"));
    check(trunc("2021-03-20T11:30:05Z", "week", 1), date("2021-03-14T00:00:00Z"));
    check(
        doc! {"$dateTrunc": {"date": date("2021-03-20T11:30:05Z"), "unit": "week", "binSize": 2, "timezone": "America/Los_Angeles", "startOfWeek": "Monday"}},
        date("2021-03-15T07:00:00Z"),
    );
    fails_with(add("2020-01-01T00:00:00Z", "eon", 1), 9);
    fails_with(trunc("2020-01-01T00:00:00Z", "day", 0), 5439018);
}

#[test]
fn statistics_as_expressions() {
    check(doc! {"$sum": [1, 2, "x", 3.5]}, 6.5);
    check_on(doc! {"l": [1, 2, 3]}, doc! {"$sum": "$l"}, 6);
    check_on(doc! {"l": [1, 2]}, doc! {"$sum": ["$l", 3]}, 3);
    check(doc! {"$avg": [1, 2]}, 1.5);
    check(doc! {"$avg": []}, Bson::Null);
    check(doc! {"$min": [3, null, 1]}, 1);
    check(doc! {"$max": [3, "a", 1]}, "a");
    check(doc! {"$stdDevPop": [1, 3]}, 1.0);
    check(doc! {"$stdDevSamp": [1]}, Bson::Null);
}

#[test]
fn trigonometry_and_bits() {
    check(doc! {"$sin": 0}, 0.0);
    check(doc! {"$acos": 1}, 0.0);
    fails_with(doc! {"$acos": 2}, 50989);
    check(doc! {"$degreesToRadians": 180}, std::f64::consts::PI);
    check(doc! {"$atan2": [0, 1]}, 0.0);
    check(doc! {"$bitAnd": [6, 3]}, 2);
    check(doc! {"$bitOr": [6, 1_i64]}, 7_i64);
    check(doc! {"$bitXor": [6, 3]}, 5);
    check(doc! {"$bitNot": 0}, -1);
}

#[test]
fn rand_is_below_one_and_not_folded() {
    let parsed = Expression::parse(
        RawBson::try_from(bson!({"$rand": {}})).unwrap().as_raw_bson_ref(),
        &ParseContext::new(),
    )
    .unwrap()
    .optimize();
    let variables = Variables::new(DateTime::from_millis(0), 1);
    let draw = || parsed.evaluate(empty_document(), &variables).unwrap().bson().as_f64().unwrap();
    let (a, b) = (draw(), draw());
    assert!(a.total_cmp(&b).is_ne() && (0.0..1.0).contains(&a) && (0.0..1.0).contains(&b));
}

#[test]
fn dependencies_name_the_fields() {
    let expression = bson!({"$add": ["$a.b", "$c", "$$ROOT.d"]});
    let value = RawBson::try_from(expression).unwrap();
    let parsed = Expression::parse(value.as_raw_bson_ref(), &ParseContext::new()).unwrap();
    let found = parsed.dependencies();
    assert_eq!(found.fields.iter().collect::<Vec<_>>(), ["a.b", "c", "d"]);
    assert!(!found.whole);
}

/// A worker's stack is 2 MiB; a debug build needs several times what a release build does.
fn on_half_a_workers_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(1 << 20).spawn(work).unwrap().join().unwrap();
}

fn nested(levels: usize, wrap: fn(Bson) -> Bson) -> Bson {
    (0..levels).fold(bson!(1), |inner, _| wrap(inner))
}

#[test]
fn the_deepest_expression_runs_on_a_small_stack() {
    on_half_a_workers_stack(|| {
        check(nested(195, |inner| bson!({"$abs": inner})), 1);
        check(nested(95, |inner| bson!({"$cond": {"if": inner, "then": 1, "else": 2}})), 1);
        check(nested(95, |inner| bson!({"$let": {"vars": {"x": 1}, "in": inner}})), 1);
        check(nested(95, |inner| bson!({"$add": [inner]})), 1);
    });
}

#[test]
fn levels_count_as_bson_counts_them() {
    on_half_a_workers_stack(|| {
        fails_with(nested(250, |inner| bson!({"$abs": inner})), 15);
        fails_with(nested(110, |inner| bson!({"$cond": {"if": inner, "then": 1, "else": 2}})), 15);
        fails_with(nested(110, |inner| bson!({"$add": [inner]})), 15);
    });
}

#[test]
fn a_reduce_that_grows_its_value_is_as_any_other() {
    let reduce = |input: Bson, initial: Bson, body: Bson| {
        doc! {"$reduce": {"input": input, "initialValue": initial, "in": body}}
    };
    let lists = bson!([[1], [2, 3], [], [1]]);
    check(
        reduce(lists.clone(), bson!([0]), bson!({"$concatArrays": ["$$value", "$$this"]})),
        bson!([0, 1, 2, 3, 1]),
    );
    check(
        reduce(lists.clone(), bson!([9]), bson!({"$setUnion": ["$$value", "$$this"]})),
        bson!([1, 2, 3, 9]),
    );
    check(
        reduce(
            bson!([1, 2, 3]),
            bson!([10]),
            bson!({"$concatArrays": ["$$value", [{"$add": ["$$this", {"$last": "$$value"}]}]]}),
        ),
        bson!([10, 11, 13, 16]),
    );
    check(
        reduce(
            bson!([3, 1, 3, 2, 1]),
            bson!([]),
            bson!({"$cond": [
                {"$in": ["$$this", "$$value"]}, "$$value", {"$concatArrays": ["$$value", ["$$this"]]},
            ]}),
        ),
        bson!([3, 1, 2]),
    );
    check(
        reduce(
            bson!([{"a": 1}, {"b": 2}, null, {"a": 3}]),
            Bson::Null,
            bson!({"$mergeObjects": ["$$value", "$$this"]}),
        ),
        doc! {"a": 3, "b": 2},
    );
    check(
        reduce(
            bson!(["a", "b"]),
            bson!(">"),
            bson!({"$concat": ["$$value", "$$this", "-", "$$value"]}),
        ),
        ">a->b->a->",
    );
    let joined = bson!({"$concatArrays": ["$$value", "$$this"]});
    check(reduce(bson!([[1], null]), bson!([]), joined.clone()), Bson::Null);
    fails_with(reduce(bson!([[1], 2]), bson!([]), joined.clone()), 28664);
    fails_with(reduce(bson!([[1]]), bson!(7), joined), 28664);
    let united = bson!({"$setUnion": ["$$value", "$$this"]});
    check(reduce(bson!([[1], null]), bson!([]), united.clone()), Bson::Null);
    fails_with(reduce(bson!([[1], 2]), bson!([]), united), 17043);
    let merged = bson!({"$mergeObjects": ["$$value", "$$this"]});
    fails_with(reduce(bson!([{"a": 1}, 2]), bson!({}), merged.clone()), 40400);
    check(reduce(bson!([]), bson!({"z": 1}), merged), doc! {"z": 1});
}

#[test]
fn values_that_nest_too_deeply_are_not_walked() {
    let nest = doc! {"$reduce": {
        "input": {"$range": [0, 5000]}, "initialValue": {"a": 1}, "in": ["$$value"],
    }};
    fails_with(doc! {"$let": {"vars": {"x": nest}, "in": "$$x.a"}}, 15);
}

#[test]
fn command_let_values_reach_expressions() {
    let mut ctx = ParseContext::new();
    let mut variables = Variables::new(DateTime::from_millis(0), 1);
    let lets = RawDocumentBuf::try_from(&doc! {"x": {"$add": [1, 2]}}).unwrap();
    variables.define_let(&lets, &mut ctx).unwrap();
    let value = RawBson::try_from(bson!({"$multiply": ["$$x", 2]})).unwrap();
    let parsed = Expression::parse(value.as_raw_bson_ref(), &ctx).unwrap();
    let found = parsed.evaluate(empty_document(), &variables).unwrap();
    assert_eq!(found.bson(), RawBsonRef::Int32(6));
    let bad = RawDocumentBuf::try_from(&doc! {"y": "$field"}).unwrap();
    assert!(variables.define_let(&bad, &mut ctx).is_err());
}
