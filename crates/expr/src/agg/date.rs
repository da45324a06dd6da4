//! Date operators. A date is milliseconds since 1970 in UTC; calendars and zones come in only
//! where an operator asks for them.

pub(crate) mod civil;
pub(crate) mod format;
mod steps;
pub(crate) mod zone;

pub(crate) use format::parse_any;

use crate::agg::Value;
use crate::agg::convert::value_to_string;
use crate::agg::eval::{Scope, optional};
use crate::agg::function::Named;
use crate::agg::parse::Node;
use bson::DateTime;
use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};
use bsonval::number::Number;
use civil::Civil;
use errors::{Code, Error, Result};
use zone::Zone;

pub(super) const NAMED: &[Named] = &[
    Named {
        name: "$dateToParts",
        args: &["date", "timezone", "iso8601"],
        required: 1,
        codes: (40524, 40520, 40522),
        eval: date_to_parts,
    },
    Named {
        name: "$dateFromParts",
        args: &[
            "year",
            "month",
            "day",
            "hour",
            "minute",
            "second",
            "millisecond",
            "timezone",
            "isoWeekYear",
            "isoWeek",
            "isoDayOfWeek",
        ],
        required: 0,
        codes: (40519, 40518, 40516),
        eval: date_from_parts,
    },
    Named {
        name: "$dateToString",
        args: &["date", "format", "timezone", "onNull"],
        required: 1,
        codes: (18629, 18534, 18628),
        eval: date_to_string,
    },
    Named {
        name: "$dateFromString",
        args: &["dateString", "format", "timezone", "onError", "onNull"],
        required: 1,
        codes: (40540, 40541, 40542),
        eval: date_from_string,
    },
    Named {
        name: "$dateAdd",
        args: &["startDate", "unit", "amount", "timezone"],
        required: 3,
        codes: (5166400, 5166401, 5166402),
        eval: |args, scope| steps::date_add(args, scope, "$dateAdd", 1),
    },
    Named {
        name: "$dateSubtract",
        args: &["startDate", "unit", "amount", "timezone"],
        required: 3,
        codes: (5166400, 5166401, 5166402),
        eval: |args, scope| steps::date_add(args, scope, "$dateSubtract", -1),
    },
    Named {
        name: "$dateDiff",
        args: &["startDate", "endDate", "unit", "timezone", "startOfWeek"],
        required: 3,
        codes: (5166301, 5166302, 5166303),
        eval: steps::date_diff,
    },
    Named {
        name: "$dateTrunc",
        args: &["date", "unit", "binSize", "timezone", "startOfWeek"],
        required: 2,
        codes: (5439007, 5439008, 5439009),
        eval: steps::date_trunc,
    },
];

macro_rules! parts {
    ($($name:literal => $read:ident $part:expr),* $(,)?) => {
        static PARTS: &[Named] = &[$(Named {
            name: $name,
            args: &["date", "timezone"],
            required: 1,
            codes: (40535, 40535, 40539),
            eval: |args, scope| $read(args, scope, $part),
        }),*];
    };
}

parts! {
    "$dayOfMonth" => part |c| i64::from(c.day),
    "$dayOfWeek" => part |c| i64::from(c.weekday()) + 1,
    "$dayOfYear" => part Civil::day_of_year,
    "$hour" => part |c| i64::from(c.hour),
    "$isoDayOfWeek" => part |c| i64::from((c.weekday() + 6) % 7) + 1,
    "$isoWeek" => part |c| c.iso_week().1,
    "$isoWeekYear" => long_part |c| c.iso_week().0,
    "$millisecond" => part |c| i64::from(c.millisecond),
    "$minute" => part |c| i64::from(c.minute),
    "$month" => part |c| i64::from(c.month),
    "$second" => part |c| i64::from(c.second),
    "$week" => part Civil::week_of_year,
    "$year" => part |c| c.year,
}

/// The operator that takes one part of a date (`$year` and its kin).
pub(crate) fn part_named(name: &str) -> Option<&'static Named> {
    PARTS.iter().find(|part| part.name == name)
}

pub(crate) fn part_names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.name)
}

fn part<'a>(
    args: &'a [Option<Node>],
    scope: &Scope<'_, 'a>,
    pick: fn(&Civil) -> i64,
) -> Result<Value<'a>> {
    let date = optional(args[0].as_ref(), scope)?;
    let Some(zone) = read_zone(args[1].as_ref(), scope)? else { return Ok(Value::NULL) };
    if date.is_nullish() {
        return Ok(Value::NULL);
    }
    let at = millis(&date)?;
    Ok(Value::int(pick(&Civil::from_millis(zone.to_local(at))) as i32))
}

/// The one part that is a 64-bit integer.
fn long_part<'a>(
    args: &'a [Option<Node>],
    scope: &Scope<'_, 'a>,
    pick: fn(&Civil) -> i64,
) -> Result<Value<'a>> {
    Ok(match part(args, scope, pick)?.get() {
        Some(RawBsonRef::Int32(n)) => Value::Ref(RawBsonRef::Int64(i64::from(n))),
        _ => Value::NULL,
    })
}

/// When an `ObjectId` was made. Its seconds have a sign, so that what a clock says past January 2038
/// reads as a time before 1970: so MongoDB sorts and shows it.
pub(crate) fn object_id_millis(id: ObjectId) -> i64 {
    let [a, b, c, d, ..] = id.bytes();
    i64::from(i32::from_be_bytes([a, b, c, d])) * 1000
}

/// The instant of a date, timestamp or ObjectId.
pub(crate) fn instant(value: &Value<'_>) -> Option<i64> {
    match value.bson() {
        RawBsonRef::DateTime(at) => Some(at.timestamp_millis()),
        RawBsonRef::Timestamp(at) => Some(i64::from(at.time) * 1000),
        RawBsonRef::ObjectId(id) => Some(object_id_millis(id)),
        _ => None,
    }
}

fn millis(value: &Value<'_>) -> Result<i64> {
    instant(value).ok_or_else(|| {
        Error::location(
            16006,
            format!("can't convert from BSON type {} to Date", value.type_name()),
        )
    })
}

/// The time zone argument: UTC where absent, `None` where null.
fn read_zone<'a>(node: Option<&'a Node>, scope: &Scope<'_, 'a>) -> Result<Option<Zone>> {
    let Some(node) = node else { return Ok(Some(Zone::Utc)) };
    let value = node.evaluate(scope)?;
    if value.is_nullish() {
        return Ok(None);
    }
    match value.as_str() {
        Some(name) => Zone::parse(name).map(Some),
        None => Err(Error::location(
            40517,
            format!("timezone must evaluate to a string, found {}", value.type_name()),
        )),
    }
}

fn date_value<'a>(millis: i64) -> Value<'a> {
    Value::Ref(RawBsonRef::DateTime(DateTime::from_millis(millis)))
}

fn date_to_parts<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    let date = optional(args[0].as_ref(), scope)?;
    let Some(zone) = read_zone(args[1].as_ref(), scope)? else { return Ok(Value::NULL) };
    let iso = optional(args[2].as_ref(), scope)?;
    let iso = match iso.get() {
        None => false,
        Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(Value::NULL),
        Some(RawBsonRef::Boolean(iso)) => iso,
        Some(_) => {
            return Err(Error::location(
                40521,
                format!("iso8601 must evaluate to a bool, found {}", iso.type_name()),
            ));
        }
    };
    if date.is_nullish() {
        return Ok(Value::NULL);
    }
    let c = Civil::from_millis(zone.to_local(millis(&date)?));
    let mut built = RawDocumentBuf::new();
    if iso {
        let (year, week) = c.iso_week();
        built.append(cstr!("isoWeekYear"), year as i32);
        built.append(cstr!("isoWeek"), week as i32);
        built.append(cstr!("isoDayOfWeek"), ((c.weekday() + 6) % 7 + 1) as i32);
    } else {
        built.append(cstr!("year"), c.year as i32);
        built.append(cstr!("month"), c.month as i32);
        built.append(cstr!("day"), c.day as i32);
    }
    built.append(cstr!("hour"), c.hour as i32);
    built.append(cstr!("minute"), c.minute as i32);
    built.append(cstr!("second"), c.second as i32);
    built.append(cstr!("millisecond"), c.millisecond as i32);
    Ok(built.into())
}

/// A part of `$dateFromParts`; `None` where it is null.
fn from_part<'a>(
    args: &'a [Option<Node>],
    scope: &Scope<'_, 'a>,
    at: usize,
    name: &str,
    default: i64,
    range: std::ops::RangeInclusive<i64>,
) -> Result<Option<i64>> {
    let Some(node) = &args[at] else { return Ok(Some(default)) };
    let value = node.evaluate(scope)?;
    if value.is_nullish() {
        return Ok(None);
    }
    let number =
        Number::from_bson(value.bson()).and_then(Number::to_exact_i64).ok_or_else(|| {
            Error::location(
                40515,
                format!(
                    "'{name}' must evaluate to an integer, found {} with value {}",
                    value.type_name(),
                    value_to_string(value.bson())
                ),
            )
        })?;
    if !range.contains(&number) {
        let (low, high) = (range.start(), range.end());
        return Err(match name {
            "year" | "isoWeekYear" => Error::location(
                if name == "year" { 40523 } else { 31095 },
                format!(
                    "'{name}' must evaluate to an integer in the range {low} to {high}, found \
                     {number}"
                ),
            ),
            _ => Error::location(
                31034,
                format!(
                    "'{name}' must evaluate to a value in the range [{low}, {high}]; value \
                     {number} is not in range"
                ),
            ),
        });
    }
    Ok(Some(number))
}

fn date_from_parts<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    const WIDE: std::ops::RangeInclusive<i64> = -32768..=32767;
    let iso = args[8].is_some();
    if args[0].is_none() && !iso {
        return Err(Error::location(
            40516,
            "$dateFromParts requires either 'year' or 'isoWeekYear' to be present",
        ));
    }
    if iso && (args[0].is_some() || args[1].is_some() || args[2].is_some()) {
        return Err(Error::location(
            40489,
            "$dateFromParts does not allow mixing natural dates with ISO dates",
        ));
    }
    if !iso && (args[9].is_some() || args[10].is_some()) {
        return Err(Error::location(
            40525,
            "$dateFromParts does not allow mixing natural dates with ISO dates",
        ));
    }
    let (names, slots) = if iso {
        (["isoWeekYear", "isoWeek", "isoDayOfWeek"], [8, 9, 10])
    } else {
        (["year", "month", "day"], [0, 1, 2])
    };
    let first = from_part(args, scope, slots[0], names[0], 1970, 1..=9999)?;
    let second = from_part(args, scope, slots[1], names[1], 1, WIDE)?;
    let third = from_part(args, scope, slots[2], names[2], 1, WIDE)?;
    let hour = from_part(args, scope, 3, "hour", 0, WIDE)?;
    let minute = from_part(args, scope, 4, "minute", 0, WIDE)?;
    let all = i64::MIN / 4_000_000..=i64::MAX / 4_000_000;
    let second_of = from_part(args, scope, 5, "second", 0, all.clone())?;
    let millisecond = from_part(args, scope, 6, "millisecond", 0, all)?;
    let zone = read_zone(args[7].as_ref(), scope)?;
    let all: Option<Vec<i64>> =
        [first, second, third, hour, minute, second_of, millisecond].into_iter().collect();
    let (Some(parts), Some(zone)) = (all, zone) else { return Ok(Value::NULL) };
    let days = if iso { civil::days_from_iso_week } else { civil::days_from_parts };
    let local = days(parts[0], parts[1], parts[2]) * civil::DAY_MS
        + parts[3] * 3_600_000
        + parts[4] * 60_000
        + parts[5] * 1000
        + parts[6];
    Ok(date_value(zone.to_utc(local)))
}

fn date_to_string<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    let date = optional(args[0].as_ref(), scope)?;
    let format_value = optional(args[1].as_ref(), scope)?;
    let zone = read_zone(args[2].as_ref(), scope)?;
    if !format_value.is_nullish() && format_value.as_str().is_none() {
        return Err(Error::location(
            18533,
            "$dateToString requires that 'format' be a string, found: ".to_owned()
                + format_value.type_name()
                + " with value "
                + &value_to_string(format_value.bson()),
        ));
    }
    if let Some(text) = format_value.as_str() {
        format::check_print_format(text)?;
    }
    if date.is_nullish() {
        return args[3].as_ref().map_or(Ok(Value::NULL), |node| node.evaluate(scope));
    }
    let Some(zone) = zone else { return Ok(Value::NULL) };
    let text = match format_value.as_str() {
        Some(text) => text,
        None if args[1].is_some() => return Ok(Value::NULL),
        None if zone.is_utc() => "%Y-%m-%dT%H:%M:%S.%LZ",
        None => "%Y-%m-%dT%H:%M:%S.%L",
    };
    Ok(Value::string(format::print(text, millis(&date)?, &zone)?))
}

fn date_from_string<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    let text = optional(args[0].as_ref(), scope)?;
    let format_value = optional(args[1].as_ref(), scope)?;
    let zone = read_zone(args[2].as_ref(), scope)?;
    if !format_value.is_nullish() && format_value.as_str().is_none() {
        return Err(Error::location(
            40684,
            format!(
                "$dateFromString requires that 'format' be a string, found: {} with value {}",
                format_value.type_name(),
                value_to_string(format_value.bson())
            ),
        ));
    }
    if let Some(pattern) = format_value.as_str() {
        format::check_parse_format(pattern)?;
    }
    if text.is_nullish() {
        return args[4].as_ref().map_or(Ok(Value::NULL), |node| node.evaluate(scope));
    }
    let (Some(zone), false) = (zone, args[1].is_some() && format_value.is_nullish()) else {
        return Ok(Value::NULL);
    };
    let parsed = match (text.as_str(), format_value.as_str()) {
        (None, _) => Err(Error::new(
            Code::CONVERSION_FAILURE,
            format!(
                "$dateFromString requires that 'dateString' be a string, found: {} with value {}",
                text.type_name(),
                value_to_string(text.bson())
            ),
        )),
        (Some(text), None) => parse_any(text, &zone),
        (Some(text), Some(pattern)) => format::parse(pattern, text, &zone),
    };
    match (parsed, &args[3]) {
        (Ok(at), _) => Ok(date_value(at)),
        (Err(error), Some(node)) if error.code() == Code::CONVERSION_FAILURE => {
            node.evaluate(scope)
        }
        (Err(error), _) => Err(error),
    }
}
