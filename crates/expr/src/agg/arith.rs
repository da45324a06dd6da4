//! Arithmetic, trigonometry and the statistical operators as expressions (`$sum: ["$a", "$b"]`).
//!
//! Types promote int → long → double → decimal; integers that overflow become the next wider type.

mod totals;

use crate::agg::Value;
use crate::agg::compare::compare;
use crate::agg::function::{ANY, Function, any_nullish, function, ordered, take};
use bson::DateTime;
use bson::raw::RawBsonRef;
use bsonval::decimal::{Decimal, Rounding, functions};
use bsonval::number::{Number, Sum};
use bsonval::raw;
use errors::{Code, Error, Result};
use keystring::Collation;
use std::cmp::Ordering;
use totals::{Product, Total};

pub(super) const TABLE: &[Function] = &[
    function("$abs", 1, 1, abs),
    function("$add", 0, ANY, add),
    function("$ceil", 1, 1, ceil),
    function("$divide", 2, 2, divide),
    function("$exp", 1, 1, exp),
    function("$floor", 1, 1, floor),
    function("$ln", 1, 1, ln),
    function("$log", 2, 2, log),
    function("$log10", 1, 1, log10),
    function("$mod", 2, 2, modulo),
    function("$multiply", 0, ANY, multiply),
    function("$pow", 2, 2, pow),
    function("$round", 1, 2, round),
    function("$sqrt", 1, 1, sqrt),
    function("$subtract", 2, 2, subtract),
    function("$trunc", 1, 2, trunc),
    function("$avg", 0, ANY, avg),
    ordered("$max", 0, ANY, max),
    ordered("$min", 0, ANY, min),
    function("$stdDevPop", 0, ANY, std_dev_pop),
    function("$stdDevSamp", 0, ANY, std_dev_samp),
    function("$sum", 0, ANY, sum),
    function("$acos", 1, 1, |args| {
        trig(args, "$acos", (f64::acos, functions::acos), Some((-1.0, 1.0, true)))
    }),
    function("$acosh", 1, 1, |args| {
        trig(args, "$acosh", (f64::acosh, functions::acosh), Some((1.0, f64::INFINITY, true)))
    }),
    function("$asin", 1, 1, |args| {
        trig(args, "$asin", (f64::asin, functions::asin), Some((-1.0, 1.0, true)))
    }),
    function("$asinh", 1, 1, |args| trig(args, "$asinh", (f64::asinh, functions::asinh), None)),
    function("$atan", 1, 1, |args| trig(args, "$atan", (f64::atan, functions::atan), None)),
    function("$atan2", 2, 2, atan2),
    function("$atanh", 1, 1, |args| {
        trig(args, "$atanh", (f64::atanh, functions::atanh), Some((-1.0, 1.0, true)))
    }),
    function("$cos", 1, 1, |args| trig(args, "$cos", (f64::cos, functions::cos), Some(FINITE))),
    function("$cosh", 1, 1, |args| trig(args, "$cosh", (f64::cosh, functions::cosh), None)),
    function("$degreesToRadians", 1, 1, |args| {
        scaled(args, "$degreesToRadians", std::f64::consts::PI / 180.0, functions::PI_OVER_180)
    }),
    function("$radiansToDegrees", 1, 1, |args| {
        scaled(args, "$radiansToDegrees", 180.0 / std::f64::consts::PI, functions::OVER_PI_180)
    }),
    function("$sin", 1, 1, |args| trig(args, "$sin", (f64::sin, functions::sin), Some(FINITE))),
    function("$sinh", 1, 1, |args| trig(args, "$sinh", (f64::sinh, functions::sinh), None)),
    function("$tan", 1, 1, |args| trig(args, "$tan", (f64::tan, functions::tan), Some(FINITE))),
    function("$tanh", 1, 1, |args| trig(args, "$tanh", (f64::tanh, functions::tanh), None)),
];

/// Everything but the infinities.
const FINITE: (f64, f64, bool) = (f64::NEG_INFINITY, f64::INFINITY, false);

/// A number as a value.
pub(crate) fn number_value<'a>(number: Number) -> Value<'a> {
    Value::Ref(match number {
        Number::Int(n) => RawBsonRef::Int32(n),
        Number::Long(n) => RawBsonRef::Int64(n),
        Number::Double(n) => RawBsonRef::Double(n),
        Number::Decimal(n) => RawBsonRef::Decimal128(n.to_bson()),
    })
}

fn number(value: &Value<'_>) -> Option<Number> {
    value.get().and_then(Number::from_bson)
}

/// The single numeric argument of a unary operator; `None` for null.
fn unary(args: &[Value<'_>], name: &str) -> Result<Option<Number>> {
    let value = &args[0];
    if value.is_nullish() {
        return Ok(None);
    }
    number(value).map(Some).ok_or_else(|| {
        Error::location(
            28765,
            format!("{name} only supports numeric types, not {}", value.type_name()),
        )
    })
}

fn type_mismatch<'a>(message: String) -> Result<Value<'a>> {
    Err(Error::type_mismatch(message))
}

fn add<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    // Up to the date, and what comes behind it.
    let (mut total, mut date) = (Total::default(), None);
    for value in args.iter() {
        if value.is_nullish() {
            return Ok(Value::NULL);
        }
        match (value.bson(), date) {
            (RawBsonRef::DateTime(_), Some(_)) => {
                return Err(Error::location(16612, "only one date allowed in an $add expression"));
            }
            (RawBsonRef::DateTime(base), None) => {
                date = Some(shift_date(base, total.result(), false)?);
            }
            (other, base) => {
                let Some(number) = Number::from_bson(other) else {
                    return type_mismatch(format!(
                        "$add only supports numeric or date types, not {}",
                        value.type_name()
                    ));
                };
                match base {
                    None => total.add(number),
                    Some(base) => date = Some(shift_date(base, number, false)?),
                }
            }
        }
    }
    Ok(date.map_or_else(|| number_value(total.result()), date_value))
}

fn date_value<'a>(at: DateTime) -> Value<'a> {
    Value::Ref(RawBsonRef::DateTime(at))
}

/// A date moved by milliseconds (fractions round to the nearest).
fn shift_date(base: DateTime, by: Number, back: bool) -> Result<DateTime> {
    let millis = match by {
        Number::Int(n) => Some(i64::from(n)),
        Number::Long(n) => Some(n),
        Number::Double(n) => bsonval::number::exact_i64(n.round()),
        Number::Decimal(n) => n.round_to(0, Rounding::HalfEven).to_i64(),
    };
    let from = base.timestamp_millis();
    millis
        .and_then(|by| if back { from.checked_sub(by) } else { from.checked_add(by) })
        .map(DateTime::from_millis)
        .ok_or_else(|| Error::new(Code::OVERFLOW, "date overflow"))
}

fn subtract<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if any_nullish(args) {
        return Ok(Value::NULL);
    }
    if let (Some(a), Some(b)) = (number(&args[0]), number(&args[1])) {
        return Ok(number_value(a.sub(b)));
    }
    match (args[0].bson(), args[1].bson()) {
        (RawBsonRef::DateTime(a), RawBsonRef::DateTime(b)) => a
            .timestamp_millis()
            .checked_sub(b.timestamp_millis())
            .map(|n| Value::Ref(RawBsonRef::Int64(n)))
            .ok_or_else(|| Error::new(Code::OVERFLOW, "date overflow in $subtract")),
        (RawBsonRef::DateTime(a), _) if number(&args[1]).is_some() => {
            shift_date(a, number(&args[1]).unwrap_or(Number::Int(0)), true).map(date_value)
        }
        _ => type_mismatch(format!(
            "can't $subtract {} from {}",
            args[1].type_name(),
            args[0].type_name()
        )),
    }
}

fn multiply<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let mut product = Product::default();
    for value in args.iter() {
        if value.is_nullish() {
            return Ok(Value::NULL);
        }
        match number(value) {
            Some(factor) => product.multiply(factor),
            None => {
                return type_mismatch(format!(
                    "$multiply only supports numeric types, not {}",
                    value.type_name()
                ));
            }
        }
    }
    Ok(number_value(product.result()))
}

fn divide<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if any_nullish(args) {
        return Ok(Value::NULL);
    }
    let (Some(a), Some(b)) = (number(&args[0]), number(&args[1])) else {
        return type_mismatch(format!(
            "$divide only supports numeric types, not {} and {}",
            args[0].type_name(),
            args[1].type_name()
        ));
    };
    if b.is_zero() {
        return Err(Error::bad_value("can't $divide by zero"));
    }
    Ok(number_value(match (a, b) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(a.to_decimal().div(b.to_decimal()))
        }
        _ => Number::Double(a.to_f64() / b.to_f64()),
    }))
}

fn modulo<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if any_nullish(args) {
        return Ok(Value::NULL);
    }
    let (Some(a), Some(b)) = (number(&args[0]), number(&args[1])) else {
        return Err(Error::location(
            16611,
            format!(
                "$mod only supports numeric types, not {} and {}",
                args[0].type_name(),
                args[1].type_name()
            ),
        ));
    };
    if b.is_zero() {
        let decimal = matches!(a, Number::Decimal(_)) || matches!(b, Number::Decimal(_));
        return Err(Error::location(if decimal { 5733415 } else { 16610 }, "can't $mod by zero"));
    }
    Ok(number_value(match (a, b) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(a.to_decimal().rem(b.to_decimal()))
        }
        (Number::Double(_), _) | (_, Number::Double(_)) => Number::Double(a.to_f64() % b.to_f64()),
        // wrapping: i64::MIN % -1 is 0
        (Number::Int(x), Number::Int(y)) => Number::Int(x.wrapping_rem(y)),
        _ => {
            Number::Long(a.to_exact_i64().unwrap_or(0).wrapping_rem(b.to_exact_i64().unwrap_or(1)))
        }
    }))
}

fn abs<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let Some(n) = unary(args, "$abs")? else { return Ok(Value::NULL) };
    Ok(number_value(match n {
        Number::Int(n) => n.checked_abs().map_or(Number::Long(1 << 31), Number::Int),
        Number::Long(n) => Number::Long(
            n.checked_abs()
                .ok_or_else(|| Error::location(28680, "can't take $abs of long long min"))?,
        ),
        Number::Double(n) => Number::Double(n.abs()),
        Number::Decimal(n) => Number::Decimal(n.abs()),
    }))
}

fn ceil<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    to_whole(args, "$ceil", f64::ceil, Rounding::Ceiling)
}

fn floor<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    to_whole(args, "$floor", f64::floor, Rounding::Floor)
}

fn to_whole<'a>(
    args: &[Value<'a>],
    name: &str,
    double: fn(f64) -> f64,
    decimal: Rounding,
) -> Result<Value<'a>> {
    Ok(match unary(args, name)? {
        None => Value::NULL,
        Some(Number::Double(n)) => number_value(Number::Double(double(n))),
        Some(Number::Decimal(n)) => number_value(Number::Decimal(n.quantized(0, decimal))),
        Some(integer) => number_value(integer),
    })
}

fn round<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    round_at(args, "$round", Rounding::HalfEven)
}

fn trunc<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    round_at(args, "$trunc", Rounding::Truncate)
}

fn round_at<'a>(args: &[Value<'a>], name: &str, rounding: Rounding) -> Result<Value<'a>> {
    if args[0].is_nullish() {
        return Ok(Value::NULL);
    }
    let n = number(&args[0]).ok_or_else(|| {
        Error::location(
            51081,
            format!("{name} only supports numeric types, not {}", args[0].type_name()),
        )
    })?;
    let places = match args.get(1) {
        None => 0,
        Some(value) if value.is_nullish() => return Ok(Value::NULL),
        Some(value) => places(value, name)?,
    };
    Ok(number_value(match n {
        Number::Double(n) => Number::Double(round_double(n, places, rounding)),
        Number::Decimal(n) => Number::Decimal(round_decimal(n, places, rounding)),
        integer if places >= 0 => integer,
        integer => round_integer(integer, places, rounding)?,
    }))
}

fn places(value: &Value<'_>, name: &str) -> Result<i32> {
    let places = number(value).and_then(Number::to_exact_i64).ok_or_else(|| {
        Error::location(51082, format!("precision argument to  {name} must be a integral value"))
    })?;
    i32::try_from(places).ok().filter(|n| (-20..=100).contains(n)).ok_or_else(|| {
        Error::location(
            51083,
            format!(
                "cannot apply {name} with precision value {places} value must be in [-20, 100]"
            ),
        )
    })
}

fn round_double(n: f64, places: i32, rounding: Rounding) -> f64 {
    if !n.is_finite() {
        return n;
    }
    if places == 0 && n.abs() < 1e15 {
        return if rounding == Rounding::Truncate { n.trunc() } else { n.round_ties_even() };
    }
    let rounded = Decimal::from_f64_exact(n).quantized(places, rounding);
    if rounded.is_nan() { n } else { rounded.to_f64() }
}

/// What cannot be written to the asked place (it is infinite, or too large for as many digits) is
/// as round as it gets.
fn round_decimal(n: Decimal, places: i32, rounding: Rounding) -> Decimal {
    let rounded = n.quantized(places, rounding);
    if rounded.is_nan() { n } else { rounded }
}

fn round_integer(n: Number, places: i32, rounding: Rounding) -> Result<Number> {
    let long = n.to_exact_i64().unwrap_or(0);
    let rounded = Decimal::from_i64(long).round_to(places, rounding).to_i64().ok_or_else(|| {
        Error::location(
            51080,
            "invalid conversion from Decimal128 result in $round resulting \
                                from arguments: value out of range",
        )
    })?;
    Ok(match (n, i32::try_from(rounded)) {
        (Number::Int(_), Ok(small)) => Number::Int(small),
        _ => Number::Long(rounded),
    })
}

/// Applies a function in the number's own kind.
fn apply<'a>(n: Number, (double, decimal): Pair) -> Value<'a> {
    number_value(match n {
        Number::Decimal(n) => Number::Decimal(decimal(n)),
        other => Number::Double(double(other.to_f64())),
    })
}

fn exp<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    Ok(unary(args, "$exp")?.map_or(Value::NULL, |n| apply(n, (f64::exp, functions::exp))))
}

fn sqrt<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let Some(n) = unary(args, "$sqrt")? else { return Ok(Value::NULL) };
    if n.to_f64() < 0.0 {
        return Err(Error::location(28714, "$sqrt's argument must be greater than or equal to 0"));
    }
    Ok(apply(n, (f64::sqrt, Decimal::sqrt)))
}

fn positive(n: Number, code: i32, what: &str) -> Result<()> {
    if n.to_f64() > 0.0 || n.is_nan() {
        return Ok(());
    }
    let shown = crate::agg::value_to_string(n.to_bson().as_raw_bson_ref());
    Err(Error::location(code, format!("{what} must be a positive number, but is {shown}")))
}

/// A decimal that is not a number gives a double that is none.
fn logarithm<'a>(n: Number, f: Pair) -> Value<'a> {
    if n.is_nan() { number_value(Number::Double(f64::NAN)) } else { apply(n, f) }
}

fn ln<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let Some(n) = unary(args, "$ln")? else { return Ok(Value::NULL) };
    positive(n, 28766, "$ln's argument")?;
    Ok(logarithm(n, (f64::ln, functions::ln)))
}

fn log10<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let Some(n) = unary(args, "$log10")? else { return Ok(Value::NULL) };
    positive(n, 28761, "$log10's argument")?;
    Ok(logarithm(n, (f64::log10, functions::log10)))
}

fn log<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if any_nullish(args) {
        return Ok(Value::NULL);
    }
    let need = |value: &Value<'_>, code, what| {
        number(value).ok_or_else(|| {
            Error::location(
                code,
                format!("$log's {what} must be numeric, not {}", value.type_name()),
            )
        })
    };
    let n = need(&args[0], 28756, "argument")?;
    let base = need(&args[1], 28757, "base")?;
    positive(n, 28758, "$log's argument")?;
    let b = base.to_f64();
    if b <= 0.0 || (b - 1.0).abs() == 0.0 {
        let shown = crate::agg::value_to_string(base.to_bson().as_raw_bson_ref());
        return Err(Error::location(
            28759,
            format!("$log's base must be a positive number not equal to 1, but is {shown}"),
        ));
    }
    let decimal = matches!(n, Number::Decimal(_)) || matches!(base, Number::Decimal(_));
    Ok(number_value(if decimal && !n.is_nan() && !base.is_nan() {
        Number::Decimal(functions::log(n.to_decimal(), base.to_decimal()))
    } else {
        Number::Double(n.to_f64().ln() / b.ln())
    }))
}

fn pow<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if any_nullish(args) {
        return Ok(Value::NULL);
    }
    let need = |value: &Value<'_>, code, what| {
        number(value).ok_or_else(|| {
            Error::location(
                code,
                format!("$pow's {what} must be numeric, not {}", value.type_name()),
            )
        })
    };
    let base = need(&args[0], 28762, "base")?;
    let exponent = need(&args[1], 28763, "exponent")?;
    if base.is_zero() && exponent.to_f64() < 0.0 {
        return Err(Error::location(28764, "$pow cannot take a base of 0 and a negative exponent"));
    }
    Ok(number_value(match (base, exponent) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(base.to_decimal().pow(exponent.to_decimal()))
        }
        (Number::Double(_), _) | (_, Number::Double(_)) => {
            Number::Double(base.to_f64().powf(exponent.to_f64()))
        }
        _ => integer_pow(base, exponent),
    }))
}

/// Whole powers stay whole while they fit, and int when both sides are int and it fits.
fn integer_pow(base: Number, exponent: Number) -> Number {
    let (b, e) = (base.to_exact_i64().unwrap_or(0), exponent.to_exact_i64().unwrap_or(0));
    let whole = match (b, e) {
        (1, _) => Some(1),
        (0, 1..) => Some(0),
        (-1, _) => Some(if e % 2 == 0 { 1 } else { -1 }),
        _ => u32::try_from(e).ok().and_then(|e| b.checked_pow(e)),
    };
    match whole {
        None => Number::Double(base.to_f64().powf(exponent.to_f64())),
        Some(n) => match (base, exponent, i32::try_from(n)) {
            (Number::Int(_), Number::Int(_), Ok(small)) => Number::Int(small),
            _ => Number::Long(n),
        },
    }
}

/// Degrees in radians and back: by one factor.
fn scaled<'a>(args: &[Value<'a>], name: &str, double: f64, decimal: &str) -> Result<Value<'a>> {
    let Some(n) = unary(args, name)? else { return Ok(Value::NULL) };
    Ok(number_value(match n {
        Number::Decimal(n) => {
            Number::Decimal(n.mul(Decimal::parse(decimal).unwrap_or(Decimal::NAN)))
        }
        other => Number::Double(other.to_f64() * double),
    }))
}

/// The same function of doubles and of decimals.
type Pair = (fn(f64) -> f64, fn(Decimal) -> Decimal);

fn trig<'a>(
    args: &[Value<'a>],
    name: &str,
    f: Pair,
    range: Option<(f64, f64, bool)>,
) -> Result<Value<'a>> {
    let Some(n) = unary(args, name)? else { return Ok(Value::NULL) };
    let x = n.to_f64();
    if let Some((low, high, inclusive)) = range.filter(|_| !x.is_nan()) {
        let inside = if inclusive { x >= low && x <= high } else { x > low && x < high };
        if !inside {
            let (open, close) = if inclusive { ('[', ']') } else { ('(', ')') };
            let show = crate::agg::double_to_string;
            return Err(Error::location(
                50989,
                format!(
                    "cannot apply {name} to {}, value must be in {open}{},{}{close}",
                    show(x),
                    show(low),
                    show(high)
                ),
            ));
        }
    }
    Ok(apply(n, f))
}

fn atan2<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let mut sides = [Number::Int(0); 2];
    for ((value, side), code) in args.iter().zip(&mut sides).zip([51044, 51045]) {
        if value.is_nullish() {
            return Ok(Value::NULL);
        }
        *side = number(value).ok_or_else(|| {
            Error::location(
                code,
                format!("$atan2 only supports numeric types, not {}", value.type_name()),
            )
        })?;
    }
    let [y, x] = sides;
    Ok(number_value(match (y, x) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(functions::atan2(y.to_decimal(), x.to_decimal()))
        }
        _ => Number::Double(y.to_f64().atan2(x.to_f64())),
    }))
}

/// Visits the operands of `$sum` and its kin: the elements of a single array, else the arguments.
fn for_each_operand<'v>(
    args: &'v [Value<'_>],
    mut visit: impl FnMut(RawBsonRef<'v>),
) -> Result<()> {
    if let [only] = args
        && let Some(array) = only.as_array()
    {
        return raw::values(array).try_for_each(|element| element.map(&mut visit));
    }
    args.iter().map(Value::bson).for_each(visit);
    Ok(())
}

fn sum<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let mut total = Sum::default();
    for_each_operand(args, |value| {
        if let Some(n) = Number::from_bson(value) {
            total.add(n);
        }
    })?;
    Ok(number_value(total.result()))
}

fn avg<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let (mut total, mut count) = (Sum::default(), 0_u64);
    for_each_operand(args, |value| {
        if let Some(n) = Number::from_bson(value) {
            total.add(n);
            count += 1;
        }
    })?;
    Ok(average(total, count).map_or(Value::NULL, number_value))
}

/// The mean; `None` of nothing.
pub(crate) fn average(total: Sum, count: u64) -> Option<Number> {
    if count == 0 {
        return None;
    }
    Some(match total.result() {
        Number::Decimal(n) => Number::Decimal(n.div(Decimal::from_i64(count as i64))),
        _ => Number::Double(total.to_f64() / count as f64),
    })
}

fn min<'a>(args: &mut [Value<'a>], under: Option<&Collation>) -> Result<Value<'a>> {
    extreme(args, under, Ordering::Less)
}

fn max<'a>(args: &mut [Value<'a>], under: Option<&Collation>) -> Result<Value<'a>> {
    extreme(args, under, Ordering::Greater)
}

fn extreme<'a>(
    args: &mut [Value<'a>],
    under: Option<&Collation>,
    wanted: Ordering,
) -> Result<Value<'a>> {
    let mut best: Option<Value<'a>> = None;
    let mut visit = |value: Value<'a>| {
        let better = best.as_ref().is_none_or(|best| compare(&value, best, under) == wanted);
        if better && !value.is_nullish() {
            best = Some(value);
        }
    };
    match args {
        [only] if only.as_array().is_some() => {
            only.elements().into_iter().flatten().try_for_each(|value| value.map(&mut visit))?;
        }
        _ => (0..args.len()).for_each(|at| visit(take(args, at))),
    }
    Ok(best.unwrap_or(Value::NULL))
}

fn std_dev_pop<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    std_dev(args, 0)
}

fn std_dev_samp<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    std_dev(args, 1)
}

fn std_dev<'a>(args: &mut [Value<'a>], less: u64) -> Result<Value<'a>> {
    let mut spread = Spread::default();
    for_each_operand(args, |value| {
        if let Some(n) = Number::from_bson(value) {
            spread.add(n.to_f64());
        }
    })?;
    Ok(spread.deviation(less).map_or(Value::NULL, |x| Value::Ref(RawBsonRef::Double(x))))
}

/// Count, mean and sum of squared differences (Welford), mergeable (Chan).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) squares: f64,
}

impl Spread {
    pub(crate) fn add(&mut self, x: f64) {
        self.count += 1;
        let delta = x - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (x - self.mean);
    }

    /// Takes out a number that was added before.
    pub(crate) fn remove(&mut self, x: f64) {
        if self.count <= 1 {
            *self = Self::default();
            return;
        }
        self.count -= 1;
        let delta = x - self.mean;
        self.mean -= delta / self.count as f64;
        self.squares = (self.squares - delta * (x - self.mean)).max(0.0);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        let total = (self.count + other.count) as f64;
        let delta = other.mean - self.mean;
        self.mean += delta * other.count as f64 / total;
        self.squares +=
            other.squares + delta * delta * self.count as f64 * other.count as f64 / total;
        self.count += other.count;
    }

    /// The deviation with `less` degrees of freedom taken off; `None` where there are too few.
    pub(crate) fn deviation(self, less: u64) -> Option<f64> {
        (self.count > less).then(|| (self.squares / (self.count - less) as f64).sqrt())
    }
}
