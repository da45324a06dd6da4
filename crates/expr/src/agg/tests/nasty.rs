//! Every operator over every kind of value: an error or a value, never a panic.

use super::run;
use crate::agg::function::all_names;
use bson::{Binary, Bson, DateTime, Regex, Timestamp, bson, doc, spec::BinarySubtype};
use proptest::prelude::*;

fn values() -> Vec<Bson> {
    let decimals = [
        "0",
        "-0",
        "1E6111",
        "-9.999999999999999999999999999999999E6144",
        "1E-6176",
        "NaN",
        "Infinity",
        "0.1",
    ];
    let mut all: Vec<Bson> =
        decimals.iter().map(|text| Bson::Decimal128(text.parse().unwrap())).collect();
    all.extend([0, 1, -1, 3, i32::MAX, i32::MIN].map(Bson::Int32));
    all.extend([0, -1, i64::MAX, i64::MIN, 1 << 40].map(Bson::Int64));
    all.extend(
        [0.0, -0.0, 0.5, -1e308, 1e308, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324]
            .map(Bson::Double),
    );
    all.extend(
        [0, -1, 1, i64::MAX, i64::MIN, 1 << 45].map(|ms| Bson::DateTime(DateTime::from_millis(ms))),
    );
    all.extend(
        [
            "",
            "a",
            "é",
            "day",
            "year",
            "week",
            "UTC",
            "Europe/Berlin",
            "+99:99",
            "%Y-%m-%dT%H:%M:%S.%LZ",
            "2020-02-30",
            "9999-12-31T23:59:59.999Z",
            "(",
            "a(b)?",
            "\\C",
            "int",
            "date",
            "long",
            "string",
            "décimal",
            "😀😀",
            "12",
            "-9223372036854775808",
            "1e400",
            "sunday",
        ]
        .map(|text| Bson::String(text.into())),
    );
    all.extend([
        Bson::Null,
        Bson::Undefined,
        Bson::MinKey,
        Bson::MaxKey,
        Bson::Boolean(true),
        Bson::Timestamp(Timestamp { time: u32::MAX, increment: 1 }),
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2] }),
        Bson::RegularExpression(Regex {
            pattern: "a*".try_into().unwrap(),
            options: "i".try_into().unwrap(),
        }),
        Bson::JavaScriptCode("x".into()),
        bson!([]),
        bson!([1, "a", null, [2]]),
        bson!([[1, 2], [3]]),
        bson!([["k", 1], ["l", 2]]),
        bson!([{"k": "a", "v": 1}]),
        bson!({}),
        bson!({"a": 1, "b": {"c": [1]}}),
    ]);
    all
}

fn literal(value: &Bson) -> Bson {
    bson!({"$literal": value.clone()})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_operator_panics(
        operator in 0_usize..1000,
        picks in proptest::collection::vec(0_usize..1000, 0..12),
        given in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let (values, names) = (values(), all_names());
        let (name, named) = names[operator % names.len()];
        let pick = |at: usize| literal(&values[picks.get(at).unwrap_or(&at) % values.len()]);
        let argument = if named.is_empty() {
            Bson::Array((0..picks.len().min(4)).map(pick).collect())
        } else {
            let mut object = doc! {};
            for (at, argument) in named.iter().enumerate() {
                // Mostly given, so that most cases reach the operator itself.
                if given[at] || picks.len() > 3 {
                    object.insert(*argument, pick(at));
                }
            }
            Bson::Document(object)
        };
        drop(run(&bson!({name: argument}), &doc! {}));
    }

    #[test]
    fn no_unary_operator_panics(operator in 0_usize..1000, pick in 0_usize..1000) {
        let (values, names) = (values(), all_names());
        let (name, _) = names[operator % names.len()];
        let value = literal(&values[pick % values.len()]);
        drop(run(&bson!({name: [value.clone()]}), &doc! {}));
        for part in ["$year", "$isoWeek", "$dayOfYear", "$week", "$hour", "$isoWeekYear"] {
            drop(run(&bson!({part: {"date": value.clone(), "timezone": "Asia/Tokyo"}}), &doc! {}));
        }
    }
}
