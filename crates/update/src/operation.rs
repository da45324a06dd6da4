//! One operator on one value.

use super::array::{self, Pull, Push};
use super::effect::Effect;
use super::number::{self, BitOperator};
use super::{UpdateContext, apply::Target};
use bson::raw::{RawBson, RawBsonRef};
use bsonval::path::Path;
use errors::Result;
use keystring::Collation;
use matcher::InSet;

/// What an operator does where it stands.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Set(RawBson),
    SetOnInsert(RawBson),
    Unset,
    Inc(RawBson),
    Mul(RawBson),
    Min(RawBson),
    Max(RawBson),
    CurrentDate(CurrentDateType),
    Bit(Vec<(BitOperator, RawBson)>),
    Push(Push),
    AddToSet(Vec<RawBson>),
    Pop {
        from_front: bool,
    },
    Pull(Box<Pull>),
    PullAll(InSet),
    /// The destination of a rename takes the value of the source.
    RenameTo(Path),
    /// The source of a rename goes away.
    RenameFrom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CurrentDateType {
    Date,
    Timestamp,
}

impl Operation {
    /// Whether a missing field would be made, parents and all.
    pub(super) fn creates(&self, target: &Target<'_>) -> bool {
        match self {
            Self::Set(_)
            | Self::Inc(_)
            | Self::Mul(_)
            | Self::Min(_)
            | Self::Max(_)
            | Self::CurrentDate(_)
            | Self::Bit(_)
            | Self::Push(_)
            | Self::AddToSet(_) => true,
            Self::SetOnInsert(_) => target.is_insert,
            Self::RenameTo(source) => matches!(source.get(target.document), Ok(Some(_))),
            Self::Unset
            | Self::Pop { .. }
            | Self::Pull(_)
            | Self::PullAll(_)
            | Self::RenameFrom => false,
        }
    }

    /// The effect on a value, or on a missing field.
    pub(super) fn effect<'a>(
        &'a self,
        existing: Option<RawBsonRef<'a>>,
        target: &'a Target<'a>,
        ctx: &UpdateContext,
    ) -> Result<Effect<'a>> {
        Ok(match self {
            Self::Set(value) => Effect::Value(value.as_raw_bson_ref()),
            Self::SetOnInsert(value) if target.is_insert => Effect::Value(value.as_raw_bson_ref()),
            Self::SetOnInsert(_) => Effect::Keep,
            Self::Unset | Self::RenameFrom => match existing {
                Some(_) => Effect::Remove,
                None => Effect::Keep,
            },
            Self::Inc(operand) => number::increment(operand, existing, target)?,
            Self::Mul(operand) => number::multiply(operand, existing, target)?,
            Self::Min(value) => {
                replace_if(value, existing, target.collation, std::cmp::Ordering::is_lt)
            }
            Self::Max(value) => {
                replace_if(value, existing, target.collation, std::cmp::Ordering::is_gt)
            }
            Self::CurrentDate(CurrentDateType::Date) => {
                Effect::Value(RawBsonRef::DateTime(ctx.now))
            }
            Self::CurrentDate(CurrentDateType::Timestamp) => {
                Effect::Value(RawBsonRef::Timestamp(ctx.timestamp))
            }
            Self::Bit(operands) => number::bits(operands, existing, target)?,
            Self::Push(push) => push.effect(existing, target)?,
            Self::AddToSet(values) => array::add_to_set(values, existing, target)?,
            Self::Pop { from_front } => array::pop(*from_front, existing, target)?,
            Self::Pull(pull) => {
                array::remove_if(existing, |value| pull.matches(value, target.collation))?
            }
            Self::PullAll(values) => {
                array::remove_if(existing, |value| Ok(values.contains(value, target.collation)))?
            }
            Self::RenameTo(source) => match source.get(target.document)? {
                Some(value) => Effect::Value(value),
                None => Effect::Keep,
            },
        })
    }
}

fn replace_if<'a>(
    value: &'a RawBson,
    existing: Option<RawBsonRef<'_>>,
    collation: Option<&Collation>,
    wins: fn(std::cmp::Ordering) -> bool,
) -> Effect<'a> {
    let value = value.as_raw_bson_ref();
    match existing {
        Some(existing) if !wins(bsonval::order::compare_under(value, existing, collation)) => {
            Effect::Keep
        }
        _ => Effect::Value(value),
    }
}
