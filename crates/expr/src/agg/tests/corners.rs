//! Corners of the manual: types of results, codes of errors, what is constant where.

use super::*;
use bson::Binary;
use bson::spec::BinarySubtype;

fn binary(subtype: BinarySubtype, bytes: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype, bytes: bytes.to_vec() })
}

#[test]
fn sums_and_products_go_step_by_step() {
    check(doc! {"$add": [0.1, 0.2, 0.3]}, 0.1 + 0.2 + 0.3);
    check(doc! {"$add": [i32::MAX, 1, -1]}, i32::MAX);
    check(doc! {"$add": [i64::MAX, 1, -1]}, 9_223_372_036_854_775_808.0);
    check(doc! {"$add": [dec("1.5"), 0.1]}, dec("1.600000000000000"));
    check(doc! {"$add": [1, date("2020-01-01T00:00:00Z"), 1.5]}, date("2020-01-01T00:00:00.003Z"));
    check(doc! {"$multiply": [i32::MAX, 2, 0]}, 0);
    check(doc! {"$multiply": [1_i64 << 62, 4]}, (1_u128 << 64) as f64);
    check(doc! {"$multiply": [2.5, dec("2")]}, dec("5.00000000000000"));
}

#[test]
fn numbers_have_their_own_codes() {
    fails_with(doc! {"$mod": [5, dec("0")]}, 5_733_415);
    fails_with(doc! {"$mod": [5, 0]}, 16610);
    fails_with(doc! {"$bitNot": 1.5}, 14);
    fails_with(doc! {"$bitNot": "a"}, 28765);
    fails_with(doc! {"$atan2": [1, "a"]}, 51045);
    check(doc! {"$atan2": [null, "a"]}, Bson::Null);
    check(doc! {"$round": [dec("1.5"), 3]}, dec("1.500"));
    check(doc! {"$ceil": dec("1E+3")}, dec("1000"));
    check(doc! {"$round": [1.255, 2]}, 1.25);
    check(doc! {"$ln": dec("10")}, dec("2.302585092994045684017991454684364"));
    check(doc! {"$pow": [dec("4"), dec("0.5")]}, dec("2"));
    check(doc! {"$sigmoid": 0}, 0.5);
    check(doc! {"$sigmoid": "$nope"}, Bson::Null);
}

#[test]
fn lists_are_looked_at_in_order() {
    fails_with(doc! {"$concatArrays": [1, null]}, 28664);
    check(doc! {"$concatArrays": [null, 1]}, Bson::Null);
    fails_with(doc! {"$indexOfArray": [[1], 1, -1]}, 9_711_601);
    fails_with(doc! {"$zip": {"inputs": "$a"}}, 34461);
    fails_with(doc! {"$zip": {"inputs": [[1]], "useLongestLength": 1}}, 34463);
    fails_with(doc! {"$zip": {"inputs": [[1]], "x": 1}}, 34464);
    check(
        doc! {"$sortArray": {"input": [{"a": [0, 5]}, {"a": 1}, 7], "sortBy": {"a": 1}}},
        bson!([7, {"a": 1}, {"a": [0, 5]}]),
    );
    let by = |by: Document, input: Bson| {
        doc! {"$sortArray": {"input": {"$literal": input}, "sortBy": by}}
    };
    check(
        by(doc! {"a": 1}, bson!([{"a": [3, 1]}, {"a": [2]}])),
        bson!([{"a": [2]}, {"a": [3, 1]}]),
    );
    check(
        by(doc! {"a": -1, "b": -1}, bson!([{"a": [1], "b": [1]}, {"a": [1], "b": [2]}])),
        bson!([{"a": [1], "b": [2]}, {"a": [1], "b": [1]}]),
    );
    check(
        by(doc! {"a.1": 1}, bson!([{"a": [0, 9]}, {"a": [5, 3]}, {"a": 1}])),
        bson!([{"a": 1}, {"a": [5, 3]}, {"a": [0, 9]}]),
    );
    check(by(doc! {"a.b": 1}, bson!([{"a": [{"b": 1}]}, {}])), bson!([{"a": [{"b": 1}]}, {}]));
    check(by(doc! {"$a": 1}, bson!([{"$a": 2}, {"$a": 1}])), bson!([{"$a": 1}, {"$a": 2}]));
    fails_with(by(doc! {}, bson!([])), 2);
    fails_with(by(doc! {"a": "asc"}, bson!([])), 2);
    fails_with(by(doc! {"a..b": 1}, bson!([])), 2);
    fails_with(doc! {"$firstN": {"n": 1}}, 5_787_907);
    fails_with(doc! {"$arrayToObject": {"$literal": [{"k": "a", "v": 1}, 1]}}, 40391);
}

#[test]
fn quantiles_of_lists_and_of_numbers() {
    let median = |input: Bson| doc! {"$median": {"input": input, "method": "approximate"}};
    check(median(bson!([3, "x", 1, 2])), 2.0);
    check(median(bson!(5)), 5.0);
    check(median(bson!("x")), Bson::Null);
    let percentile = |p: Bson| {
        doc! {"$percentile": {"input": [10, 20, 30, 40], "p": p, "method": "approximate"}}
    };
    check(percentile(bson!([0, 0.5, 1])), bson!([10.0, 20.0, 40.0]));
    fails_with(percentile(bson!([])), 7_750_301);
    fails_with(percentile(bson!(["a"])), 7_750_302);
    fails_with(percentile(bson!([1.5])), 7_750_303);
    fails_with(percentile(bson!(["$a"])), 7_750_300);
    fails_with(doc! {"$median": {"input": 1, "method": "exact"}}, 2);
    fails_with(doc! {"$percentile": 1}, 7_436_200);
}

#[test]
fn bytes_become_text_and_numbers_and_back() {
    let bytes = binary(BinarySubtype::Generic, &[0, 1, 2, 255]);
    let text = "867dee52-c331-484e-92d1-c56479b8e67e";
    let uuid = run(&bson!({"$toUUID": text}), &doc! {}).unwrap().unwrap();
    check(doc! {"$toString": uuid.clone()}, text);
    check(doc! {"$toString": bytes.clone()}, "AAEC/w==");
    for (format, expected) in [("hex", "000102FF"), ("base64url", "AAEC_w"), ("base64", "AAEC/w==")]
    {
        let to = doc! {"$convert": {"input": bytes.clone(), "to": "string", "format": format}};
        check(to, expected);
        let back = doc! {"$convert": {"input": expected, "to": "binData", "format": format}};
        check(back, bytes.clone());
    }
    check(doc! {"$toInt": bytes.clone()}, i32::from_le_bytes([0, 1, 2, 255]));
    check(
        doc! {"$convert": {"input": bytes.clone(), "to": "long", "byteOrder": "big"}},
        i64::from(i32::from_be_bytes([0, 1, 2, 255])),
    );
    check(
        doc! {"$convert": {"input": 42, "to": {"type": "binData", "subtype": 128}, "byteOrder": "big"}},
        binary(BinarySubtype::UserDefined(128), &[0, 0, 0, 42]),
    );
    fails_with(doc! {"$convert": {"input": "a", "to": "binData"}}, 4_341_115);
    fails_with(doc! {"$convert": {"input": "a", "to": "binData", "format": "x"}}, 4_341_125);
    fails_with(doc! {"$convert": {"input": "a", "to": "binData", "format": 1}}, 4_341_114);
    fails_with(
        doc! {"$convert": {"input": 1, "to": {"type": "binData", "subtype": 77}}},
        4_341_107,
    );
    fails_with(doc! {"$convert": {"input": 1, "to": "long", "byteOrder": "x"}}, 9_130_002);
    fails_with(doc! {"$toUUID": "x"}, 241);
    fails_with(doc! {"$toInt": binary(BinarySubtype::Generic, &[1, 2, 3])}, 241);
    check(doc! {"$toBool": bytes}, true);
    check(doc! {"$toBool": {"$literal": {}}}, true);
    check(doc! {"$binarySize": "añ"}, 3);
    fails_with(doc! {"$binarySize": 1}, 51276);
}

#[test]
fn doubles_become_the_shortest_text() {
    check(doc! {"$toString": 0.1 + 0.2}, "0.30000000000000004");
    check(doc! {"$toString": 1e15}, "1000000000000000");
    check(doc! {"$toString": 1e16}, "1e+16");
    check(doc! {"$toString": 1.5e-7}, "1.5e-07");
}

#[test]
fn dates_have_their_own_codes() {
    let on = date("2021-03-14T10:20:30Z");
    check(doc! {"$isoWeekYear": on.clone()}, 2021_i64);
    check(doc! {"$isoWeek": on.clone()}, 10);
    fails_with(doc! {"$dateFromParts": {"isoWeekYear": 0}}, 31095);
    fails_with(doc! {"$dateAdd": {"startDate": on.clone(), "unit": 1, "amount": 1}}, 5_439_013);
    let trunc = |unit: &str| {
        doc! {"$dateTrunc": {"date": on.clone(), "unit": unit, "startOfWeek": "x"}}
    };
    fails_with(trunc("week"), 5_439_016);
    check(trunc("day"), date("2021-03-14T00:00:00Z"));
    let least = doc! {"$dateSubtract": {"startDate": on, "unit": "day", "amount": i64::MIN}};
    fails_with(least, 6_045_000);
    let partly = doc! {"$dateFromString": {"dateString": "2018-01", "format": "%Y-%m"}};
    fails_with(partly, 241);
}

#[test]
fn the_field_to_set_is_a_constant() {
    let set = |field: Bson| {
        doc! {"$setField": {"field": field, "input": {"a": 1}, "value": 2}}
    };
    check(set(bson!({"$concat": ["a", "b"]})), doc! {"a": 1, "ab": 2});
    fails_with(set(bson!("$a")), 4_161_108);
    fails_with(set(bson!({"$toLower": "$a"})), 4_161_106);
    fails_with(set(bson!(1)), 4_161_107);
}

#[test]
fn the_roles_of_who_asks_are_what_the_command_was_given() {
    let role = bson!({"_id": "db.read", "role": "read", "db": "db"});
    check("$$USER_ROLES", bson!([role]));
    check("$$USER_ROLES.role", bson!(["read"]));
    check(doc! {"$in": ["db.read", "$$USER_ROLES._id"]}, true);
    // Where nobody asks there is no such variable, and an empty answer would be a wrong one.
    let nobody = Variables::new(DateTime::from_millis(0), 0);
    let parsed = Expression::parse(RawBsonRef::String("$$USER_ROLES"), &ParseContext::new());
    let error = parsed.unwrap().optimize().evaluate(empty_document(), &nobody).unwrap_err();
    assert_eq!(error.code().0, 51144);
}
