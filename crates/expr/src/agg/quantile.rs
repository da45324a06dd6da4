//! `$percentile` and `$median`: their options, as expressions and as accumulators take them, and the
//! numbers they ask for; as expressions, of the numbers of one array.

use crate::agg::eval::Scope;
use crate::agg::parse::{Node, expression};
use crate::agg::{Expression, ParseContext, Value, parse_fields, value_to_string};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument};
use bsonval::number::Number;
use bsonval::raw;
use bsonval::types::name_of;
use errors::{Error, Result};
use limits::{Growth, Part};

/// A parsed call.
#[derive(Clone, Debug)]
pub(crate) struct Quantile {
    pub(crate) input: Node,
    probabilities: Vec<f64>,
    /// `$percentile` gives a list, `$median` the one number.
    as_array: bool,
}

impl Quantile {
    pub(crate) fn parse(
        name: &str,
        value: RawBsonRef<'_>,
        ctx: &ParseContext,
        depth: usize,
    ) -> Result<Self> {
        let as_array = name == "$percentile";
        let RawBsonRef::Document(document) = value else {
            return Err(Error::location(
                if as_array { 7436200 } else { 7436201 },
                format!(
                    "specification must be an object; found {name}: {}",
                    value_to_string(value)
                ),
            ));
        };
        let (input, probabilities) = options(name, document, ctx)?;
        Ok(Self { input: expression(input, ctx, depth)?, probabilities, as_array })
    }

    /// Of an array its numbers, of a number itself; anything else has none.
    pub(crate) fn evaluate<'a>(&'a self, scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        let mut numbers = Vec::new();
        let mut memory = Growth::new(Part::Values);
        match input.bson() {
            RawBsonRef::Array(array) => {
                for element in raw::values(array) {
                    memory.reach((numbers.len() + 1) * size_of::<f64>())?;
                    numbers.extend(Number::from_bson(element?).map(Number::to_f64));
                }
            }
            other => numbers.extend(Number::from_bson(other).map(Number::to_f64)),
        }
        Ok(match percentiles(&self.probabilities, numbers, self.as_array) {
            RawBson::Null => Value::NULL,
            found => found.into(),
        })
    }
}

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
    let probabilities = match (name, p) {
        ("$median", None) => None,
        ("$median", Some(_)) => return Err(unknown("p")),
        (_, p) => Some(p),
    };
    let input = input.ok_or_else(|| missing("input"))?;
    let probabilities = probabilities.map(|p| p.ok_or_else(|| missing("p"))).transpose()?;
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
                name_of(other)
            )));
        }
    }
    let probabilities = probabilities.map_or(Ok(vec![0.5]), |p| read_probabilities(p, ctx))?;
    Ok((input, probabilities))
}

fn read_probabilities(value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Vec<f64>> {
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
    let mut probabilities = Vec::new();
    for probability in list {
        let probability = probability?;
        let number =
            Number::from_bson(probability).ok_or_else(|| refuse(7750302, probability))?.to_f64();
        if !(0.0..=1.0).contains(&number) {
            return Err(refuse(7750303, probability));
        }
        probabilities.push(number);
    }
    Ok(probabilities)
}

/// The smallest number that at least the share `p` of all numbers do not exceed.
pub(crate) fn percentiles(probabilities: &[f64], mut numbers: Vec<f64>, as_array: bool) -> RawBson {
    numbers.sort_by(f64::total_cmp);
    let pick = |p: &f64| {
        let rank = (p * numbers.len() as f64).ceil() as usize;
        numbers.get(rank.saturating_sub(1)).map_or(RawBson::Null, |n| RawBson::Double(*n))
    };
    if as_array {
        return RawBson::Array(probabilities.iter().map(pick).collect::<RawArrayBuf>());
    }
    probabilities.first().map_or(RawBson::Null, pick)
}
