//! Numeric operators at the ends of the four types: infinities, NaN, and what is too large for
//! digits behind the point.

use super::*;

/// An operator, its arguments, and what comes out, as text: a NaN equals itself there.
fn table(rows: &[(&str, Bson, Bson)]) {
    for (operator, arguments, expected) in rows {
        let expression = Bson::Document(doc! { *operator: arguments.clone() });
        let found = run(&expression, &doc! {}).unwrap_or_else(|e| panic!("{expression}: {e}"));
        assert_eq!(format!("{found:?}"), format!("{:?}", Some(expected)), "{expression}");
    }
}

const UP: f64 = f64::INFINITY;
const DOWN: f64 = f64::NEG_INFINITY;

#[test]
fn rounding_keeps_what_has_no_digits_to_lose() {
    let largest = dec("9.999999999999999999999999999999999E+6144");
    let least = dec("-9.999999999999999999999999999999999E+6144");
    for operator in ["$round", "$trunc"] {
        for value in [
            UP.into(),
            DOWN.into(),
            f64::NAN.into(),
            dec("Infinity"),
            dec("-Infinity"),
            dec("NaN"),
            1e308.into(),
            (-1e308).into(),
            f64::MAX.into(),
            9_007_199_254_740_991.0.into(),
            largest.clone(),
            least.clone(),
            dec("1E+40"),
            Bson::Int32(i32::MIN),
            Bson::Int64(i64::MAX),
        ] {
            table(&[
                (operator, value.clone(), value.clone()),
                (operator, bson!([value.clone(), 0]), value.clone()),
                (operator, bson!([value.clone(), 5]), value.clone()),
            ]);
        }
        table(&[
            (operator, 5e-324.into(), 0.0.into()),
            (operator, (-5e-324).into(), (-0.0).into()),
            (operator, dec("1E-6143"), dec("0")),
            (operator, dec("1.000"), dec("1")),
            // 34 digits are there already, so that no zero can be added.
            (
                operator,
                bson!([dec("1.123456789012345678901234567890123"), 100]),
                dec("1.123456789012345678901234567890123"),
            ),
            (operator, bson!([dec("1.1"), 33]), dec("1.100000000000000000000000000000000")),
            (operator, bson!([123_456_789_012_344.1, -20]), 0.0.into()),
        ]);
    }
}

#[test]
fn whole_numbers_above_and_below() {
    for operator in ["$floor", "$ceil"] {
        for value in [UP.into(), DOWN.into(), f64::NAN.into(), 1e308.into(), Bson::Int64(i64::MIN)]
        {
            table(&[(operator, value.clone(), value)]);
        }
        // A decimal that cannot be written without an exponent is no number here.
        for text in ["Infinity", "-Infinity", "NaN", "9E+6144", "-9E+6144", "1E+34"] {
            table(&[(operator, dec(text), dec("NaN"))]);
        }
        table(&[(operator, dec("1E+33"), dec("1000000000000000000000000000000000"))]);
    }
    table(&[
        ("$floor", (-5e-324).into(), (-1.0).into()),
        ("$ceil", 5e-324.into(), 1.0.into()),
        ("$floor", dec("-1E-6143"), dec("-1")),
        ("$ceil", dec("1E-6143"), dec("1")),
    ]);
}

#[test]
fn other_operators_at_the_ends() {
    table(&[
        ("$abs", DOWN.into(), UP.into()),
        ("$abs", dec("-Infinity"), dec("Infinity")),
        ("$abs", Bson::Int32(i32::MIN), Bson::Int64(1 << 31)),
        ("$sqrt", UP.into(), UP.into()),
        ("$sqrt", dec("Infinity"), dec("Infinity")),
        ("$sqrt", dec("NaN"), dec("NaN")),
        ("$exp", DOWN.into(), 0.0.into()),
        ("$ln", UP.into(), UP.into()),
        ("$add", bson!([UP, 1, 2_i64]), UP.into()),
        ("$add", bson!([UP, DOWN]), f64::NAN.into()),
        ("$add", bson!([dec("Infinity"), DOWN]), dec("NaN")),
        ("$subtract", bson!([1, UP]), DOWN.into()),
        ("$multiply", bson!([UP, -1]), DOWN.into()),
        ("$multiply", bson!([UP, 0]), f64::NAN.into()),
        ("$multiply", bson!([dec("-Infinity"), 2]), dec("-Infinity")),
        ("$divide", bson!([1, UP]), 0.0.into()),
        ("$divide", bson!([UP, UP]), f64::NAN.into()),
        ("$sum", bson!([UP, DOWN]), f64::NAN.into()),
        ("$avg", bson!([UP, 1]), UP.into()),
        ("$avg", bson!([dec("Infinity"), 1]), dec("Infinity")),
        ("$max", bson!([f64::NAN, DOWN]), DOWN.into()),
        ("$min", bson!([f64::NAN, DOWN]), f64::NAN.into()),
    ]);
    fails_with(doc! {"$abs": i64::MIN}, 28680);
    fails_with(doc! {"$sqrt": DOWN}, 28714);
    fails_with(doc! {"$sqrt": dec("-Infinity")}, 28714);
    fails_with(doc! {"$ln": DOWN}, 28766);
}

#[test]
fn dates_of_object_ids_have_signed_seconds() {
    let id = |hex: &str| Bson::ObjectId(ObjectId::parse_str(hex).unwrap());
    for (hex, expected) in [
        ("7fffffff0000000000000000", "2038-01-19T03:14:07Z"),
        ("800000000000000000000000", "1901-12-13T20:45:52Z"),
        ("ffffffff0000000000000000", "1969-12-31T23:59:59Z"),
    ] {
        check(doc! {"$toDate": id(hex)}, date(expected));
        check(
            doc! {"$dateAdd": {"startDate": id(hex), "unit": "day", "amount": 0}},
            date(expected),
        );
    }
    check(doc! {"$year": id("ffffffff0000000000000000")}, 1969);
}
