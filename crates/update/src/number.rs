//! `$inc`, `$mul` and `$bit`.
//!
//! Types widen as in expressions, with one difference: a 64-bit overflow is an error, not a double.

use super::apply::Target;
use super::effect::Effect;
use bson::raw::{RawBson, RawBsonRef};
use bsonval::number::Number;
use bsonval::{show, types};
use errors::{Error, Result};

/// An operator of `$bit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BitOperator {
    And,
    Or,
    Xor,
}

pub(super) fn increment<'a>(
    operand: &'a RawBson,
    existing: Option<RawBsonRef<'_>>,
    target: &Target<'_>,
) -> Result<Effect<'a>> {
    let Some(existing) = existing else { return Ok(Effect::Value(operand.as_raw_bson_ref())) };
    arithmetic("$inc", operand, existing, target, i64::checked_add, Number::add)
}

pub(super) fn multiply<'a>(
    operand: &'a RawBson,
    existing: Option<RawBsonRef<'_>>,
    target: &Target<'_>,
) -> Result<Effect<'a>> {
    // A missing field is zero of the operand's type.
    let existing = existing.unwrap_or(RawBsonRef::Int32(0));
    arithmetic("$mul", operand, existing, target, i64::checked_mul, Number::mul)
}

fn arithmetic(
    name: &str,
    operand: &RawBson,
    existing: RawBsonRef<'_>,
    target: &Target<'_>,
    integers: fn(i64, i64) -> Option<i64>,
    numbers: fn(Number, Number) -> Number,
) -> Result<Effect<'static>> {
    let (Some(number), Some(by)) =
        (Number::from_bson(existing), Number::from_bson(operand.as_raw_bson_ref()))
    else {
        return Err(Error::type_mismatch(format!(
            "Cannot apply {name} to a value of non-numeric type. {{{}}} has the field '{}' of \
             non-numeric type {}",
            show::id_of(target.document),
            target.name(),
            types::name_of(existing)
        )));
    };
    if let (Some(a), Some(b)) = (integer(number), integer(by))
        && integers(a, b).is_none()
    {
        let kind = if matches!(number, Number::Int(_)) { "NumberInt" } else { "NumberLong" };
        return Err(Error::bad_value(format!(
            "Failed to apply {name} operations to current value (({kind}){a}) for document {{{}}}",
            show::id_of(target.document)
        )));
    }
    Ok(Effect::Owned(numbers(number, by).to_bson()))
}

fn integer(number: Number) -> Option<i64> {
    match number {
        Number::Int(n) => Some(i64::from(n)),
        Number::Long(n) => Some(n),
        Number::Double(_) | Number::Decimal(_) => None,
    }
}

pub(super) fn bits(
    operands: &[(BitOperator, RawBson)],
    existing: Option<RawBsonRef<'_>>,
    target: &Target<'_>,
) -> Result<Effect<'static>> {
    let wide = |value: RawBsonRef<'_>| matches!(value, RawBsonRef::Int64(_));
    let (mut value, mut is_long) = match existing {
        None => (0, false),
        Some(RawBsonRef::Int32(v)) => (i64::from(v), false),
        Some(RawBsonRef::Int64(v)) => (v, true),
        Some(other) => {
            return Err(Error::bad_value(format!(
                "Cannot apply $bit to a value of non-integral type.{} has the field {} of \
                 non-integer type {}",
                show::id_of(target.document),
                target.name(),
                types::name_of(other)
            )));
        }
    };
    for (operator, operand) in operands {
        let operand = operand.as_raw_bson_ref();
        is_long |= wide(operand);
        let by = types::exact_integer(operand).unwrap_or(0);
        value = match operator {
            BitOperator::And => value & by,
            BitOperator::Or => value | by,
            BitOperator::Xor => value ^ by,
        };
    }
    Ok(Effect::Owned(if is_long { RawBson::Int64(value) } else { RawBson::Int32(value as i32) }))
}
