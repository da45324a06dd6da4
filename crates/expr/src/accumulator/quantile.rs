//! The options of `$percentile` and `$median`, and the numbers they ask for.

use crate::agg::{Expression, ParseContext, parse_fields, type_name, value_to_string};
use crate::number::Number;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument};
use errors::{Error, Result};

/// `input`, and the shares of `p` (of `$median` the half).
pub(crate) fn options<'v>(
    name: &str,
    document: &'v RawDocument,
    ctx: &ParseContext,
) -> Result<(RawBsonRef<'v>, Vec<f64>)> {
    let unknown = |other: &str| {
        Error::location(40415, format!("BSON field '{name}.{other}' is an unknown field."))
    };
    let [input, p, method] = parse_fields(document, ["input", "p", "method"], unknown)?;
    let missing = |field: &str| {
        Error::location(
            40414,
            format!("BSON field '{name}.{field}' is missing but a required field"),
        )
    };
    let shares = match (name, p) {
        ("$median", None) => None,
        ("$median", Some(_)) => return Err(unknown("p")),
        (_, p) => Some(p),
    };
    let input = input.ok_or_else(|| missing("input"))?;
    let shares = shares.map(|p| p.ok_or_else(|| missing("p"))).transpose()?;
    match method.ok_or_else(|| missing("method"))? {
        RawBsonRef::String("approximate") => {}
        RawBsonRef::String(_) => {
            return Err(Error::bad_value(
                "Currently only 'approximate' can be used as percentile 'method'.",
            ));
        }
        other => {
            return Err(Error::type_mismatch(format!(
                "BSON field '{name}.method' is the wrong type '{}', expected type 'string'",
                type_name(other)
            )));
        }
    }
    let shares = shares.map_or(Ok(vec![0.5]), |p| read_shares(p, ctx))?;
    Ok((input, shares))
}

fn read_shares(value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Vec<f64>> {
    let expression = Expression::parse(value, ctx)?.optimize();
    let Some(constant) = expression.as_constant() else {
        return Err(Error::location(
            7750300,
            format!(
                "The $percentile 'p' field must be an array of constant values, but found value: \
                 {}.",
                value_to_string(value)
            ),
        ));
    };
    let refuse = |code: i32, found: RawBsonRef<'_>| {
        Error::location(
            code,
            format!(
                "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but \
                 found: {}",
                value_to_string(found)
            ),
        )
    };
    let Some(RawBson::Array(list)) = constant.filter(|value| match value {
        RawBson::Array(list) => !list.is_empty(),
        _ => false,
    }) else {
        return Err(refuse(7750301, constant.map_or(RawBsonRef::Null, RawBson::as_raw_bson_ref)));
    };
    let mut shares = Vec::new();
    for share in list {
        let share = share?;
        let number = Number::from_bson(share).ok_or_else(|| refuse(7750302, share))?.to_f64();
        if !(0.0..=1.0).contains(&number) {
            return Err(refuse(7750303, share));
        }
        shares.push(number);
    }
    Ok(shares)
}

/// The smallest number that at least the share `p` of all numbers do not exceed.
pub(crate) fn of(wanted: &[f64], mut numbers: Vec<f64>, as_array: bool) -> RawBson {
    numbers.sort_by(f64::total_cmp);
    let pick = |p: &f64| {
        let rank = (p * numbers.len() as f64).ceil() as usize;
        numbers.get(rank.saturating_sub(1)).map_or(RawBson::Null, |n| RawBson::Double(*n))
    };
    if as_array {
        return RawBson::Array(wanted.iter().map(pick).collect::<RawArrayBuf>());
    }
    wanted.first().map_or(RawBson::Null, pick)
}
