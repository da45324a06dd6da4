//! `$dateAdd $dateSubtract $dateDiff $dateTrunc`: dates moved, counted and cut by units.
//!
//! Units up to the hour are spans of time; days and above are steps of the local calendar, so a
//! day across a clock change may last 23 or 25 hours.

use crate::agg::Value;
use crate::agg::convert::value_to_string;
use crate::agg::date::civil::{
    Civil, DAY_MS, Unit, add_units, days_from_civil, unknown_unit, weekday,
};
use crate::agg::date::{date_value, instant, read_zone};
use crate::agg::eval::{Scope, optional};
use crate::agg::parse::Node;
use bsonval::number::Number;
use errors::{Error, Result};

/// The unit argument; `None` where null.
fn read_unit<'a>(node: Option<&'a Node>, scope: &Scope<'_, 'a>, op: &str) -> Result<Option<Unit>> {
    let value = optional(node, scope)?;
    if value.is_nullish() {
        return Ok(None);
    }
    let name = value.as_str().ok_or_else(|| {
        Error::location(
            5439013,
            format!("{op} requires 'unit' to be a string, but got {}", value.type_name()),
        )
    })?;
    Unit::parse(name).map(Some).ok_or_else(|| unknown_unit(name, op))
}

pub(super) fn date_add<'a>(
    args: &'a [Option<Node>],
    scope: &Scope<'_, 'a>,
    op: &str,
    sign: i64,
) -> Result<Value<'a>> {
    let start = optional(args[0].as_ref(), scope)?;
    let unit = read_unit(args[1].as_ref(), scope, op)?;
    let amount = optional(args[2].as_ref(), scope)?;
    let zone = read_zone(args[3].as_ref(), scope)?;
    let (Some(unit), Some(zone), false) = (unit, zone, start.is_nullish() || amount.is_nullish())
    else {
        return Ok(Value::NULL);
    };
    let at = instant(&start).ok_or_else(|| {
        Error::location(
            5166403,
            format!(
                "{op} requires startDate to be convertible to a date, found {}",
                start.type_name()
            ),
        )
    })?;
    let amount =
        Number::from_bson(amount.bson()).and_then(Number::to_exact_i64).ok_or_else(|| {
            Error::location(5166405, format!("{op} expects integer amount of time units"))
        })?;
    let amount = amount.checked_mul(sign).ok_or_else(|| {
        Error::location(6045000, format!("invalid {op} 'amount' parameter value: {amount}"))
    })?;
    if unit <= Unit::Hour {
        return add_units(at, unit, amount).map(date_value);
    }
    Ok(date_value(zone.to_utc(add_units(zone.to_local(at), unit, amount)?)))
}

/// The first day of the week, 0 for Sunday; only read where the unit is a week.
fn read_week_start<'a>(
    node: Option<&'a Node>,
    scope: &Scope<'_, 'a>,
    op: &str,
    unit: Option<Unit>,
) -> Result<Option<u32>> {
    const DAYS: [&str; 7] =
        ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
    let Some(node) = node.filter(|_| unit == Some(Unit::Week)) else { return Ok(Some(0)) };
    let value = node.evaluate(scope)?;
    if value.is_nullish() {
        return Ok(None);
    }
    let name = value.as_str().ok_or_else(|| {
        Error::location(
            5439015,
            format!("{op} requires 'startOfWeek' to be a string, but got {}", value.type_name()),
        )
    })?;
    let lower = name.to_ascii_lowercase();
    let found = DAYS.iter().position(|day| *day == lower || day[..3] == *lower);
    found.map(|day| Some(day as u32)).ok_or_else(|| {
        Error::location(
            5439016,
            format!(
                "{op} parameter 'startOfWeek' value cannot be recognized as a day of a week: {name}"
            ),
        )
    })
}

pub(super) fn date_diff<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    let start = optional(args[0].as_ref(), scope)?;
    let end = optional(args[1].as_ref(), scope)?;
    let unit = read_unit(args[2].as_ref(), scope, "$dateDiff")?;
    let zone = read_zone(args[3].as_ref(), scope)?;
    let week_start = read_week_start(args[4].as_ref(), scope, "$dateDiff", unit)?;
    let (Some(unit), Some(zone), false) = (unit, zone, start.is_nullish() || end.is_nullish())
    else {
        return Ok(Value::NULL);
    };
    let Some(week_start) = week_start else { return Ok(Value::NULL) };
    let need = |value: &Value<'_>, name: &str| {
        instant(value).ok_or_else(|| {
            Error::location(
                5166307,
                format!("$dateDiff requires '{name}' to be a date, but got {}", value.type_name()),
            )
        })
    };
    let (from, to) = (need(&start, "startDate")?, need(&end, "endDate")?);
    let (from, to) = (zone.to_local(from), zone.to_local(to));
    let index = |local: i64| unit_index(local, unit, week_start);
    Ok(Value::Ref(bson::raw::RawBsonRef::Int64(index(to).saturating_sub(index(from)))))
}

/// The number of the unit a local time lies in, counted from some fixed moment.
fn unit_index(local: i64, unit: Unit, week_start: u32) -> i64 {
    if unit == Unit::Week {
        // Day 0 is a Thursday; shifted so that weeks begin where the caller says.
        let shift = i64::from((weekday(0) + 7 - week_start) % 7);
        return (local.div_euclid(DAY_MS) + shift).div_euclid(7);
    }
    if let Some(span) = unit.fixed_ms() {
        return local.div_euclid(span);
    }
    let c = Civil::from_millis(local);
    (c.year * 12 + i64::from(c.month) - 1).div_euclid(unit.months())
}

pub(super) fn date_trunc<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    let date = optional(args[0].as_ref(), scope)?;
    let unit = read_unit(args[1].as_ref(), scope, "$dateTrunc")?;
    let bin = match &args[2] {
        None => Some(1),
        Some(node) => read_bin(&node.evaluate(scope)?)?,
    };
    let zone = read_zone(args[3].as_ref(), scope)?;
    let week_start = read_week_start(args[4].as_ref(), scope, "$dateTrunc", unit)?;
    let (Some(unit), Some(bin), Some(zone), Some(week_start), false) =
        (unit, bin, zone, week_start, date.is_nullish())
    else {
        return Ok(Value::NULL);
    };
    let at = instant(&date).ok_or_else(|| {
        Error::location(
            5439012,
            format!("$dateTrunc requires 'date' to be a date, but got {}", date.type_name()),
        )
    })?;
    truncate(zone.to_local(at), unit, bin, week_start).map(|local| {
        // Spans of time are cut in local time and keep the offset of the moment itself.
        if unit <= Unit::Hour {
            date_value(local.saturating_sub(zone.offset_at(at)))
        } else {
            date_value(zone.to_utc(local))
        }
    })
}

fn read_bin(value: &Value<'_>) -> Result<Option<i64>> {
    if value.is_nullish() {
        return Ok(None);
    }
    let bin = Number::from_bson(value.bson()).and_then(Number::to_exact_i64).ok_or_else(|| {
        Error::location(
            5439017,
            format!(
                "$dateTrunc requires 'binSize' to be a 64-bit integer, but got value '{}' of \
                 type {}",
                value_to_string(value.bson()),
                value.type_name()
            ),
        )
    })?;
    if bin > 0 {
        return Ok(Some(bin));
    }
    Err(Error::location(
        5439018,
        format!("$dateTrunc requires 'binSize' to be greater than 0, but got value {bin}"),
    ))
}

/// Bins count from 2000-01-01 (weeks: from the first such weekday on or before it).
fn truncate(local: i64, unit: Unit, bin: i64, week_start: u32) -> Result<i64> {
    let overflow = || Error::location(5439005, "$dateTrunc binSize overflow");
    let epoch_days = days_from_civil(2000, 1, 1);
    if let Some(span) = unit.fixed_ms() {
        let origin_days = if unit == Unit::Week {
            epoch_days - i64::from((weekday(epoch_days) + 7 - week_start) % 7) + 7
        } else {
            epoch_days
        };
        let origin = origin_days * DAY_MS;
        let span = span.checked_mul(bin).ok_or_else(overflow)?;
        let since = local.checked_sub(origin).ok_or_else(overflow)?;
        return since
            .div_euclid(span)
            .checked_mul(span)
            .and_then(|n| n.checked_add(origin))
            .ok_or_else(overflow);
    }
    let c = Civil::from_millis(local);
    let span = unit.months().checked_mul(bin).ok_or_else(overflow)?;
    let months = (c.year - 2000) * 12 + i64::from(c.month) - 1;
    let first = months.div_euclid(span).checked_mul(span).ok_or_else(overflow)?;
    if first.abs() > 6_000_000_000 {
        return Err(overflow());
    }
    days_from_civil(2000 + first.div_euclid(12), first.rem_euclid(12) + 1, 1)
        .checked_mul(DAY_MS)
        .ok_or_else(overflow)
}
