//! The `sortBy` of `$sortArray`: a direction, or a pattern of dotted paths.

use crate::agg::{Value, empty_document, type_name};
use crate::number::Number;
use crate::sort::SortPattern;
use bson::raw::{RawArrayBuf, RawBsonRef};
use errors::{Error, Result};
use keystring::Collation;

/// How to order values.
#[derive(Clone, Debug)]
pub(crate) enum SortBy {
    /// The values themselves; `true` is descending.
    Whole(bool),
    /// Documents by fields, as a sort has them; what is no document has no field.
    Fields(SortPattern),
}

impl SortBy {
    pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let RawBsonRef::Document(pattern) = value else {
            return direction(value).map(Self::Whole);
        };
        let pattern = SortPattern::parse(pattern)?;
        if pattern.is_empty() {
            return Err(Error::location(15976, "$sort stage must have at least one sort key"));
        }
        Ok(Self::Fields(pattern))
    }

    /// The array in order; equal elements keep their order.
    pub(crate) fn sort<'a>(
        &self,
        input: &Value<'a>,
        under: Option<&Collation>,
    ) -> Result<Value<'a>> {
        if input.is_nullish() {
            return Ok(Value::NULL);
        }
        let Some(mut elements) = input.elements()? else {
            return Err(Error::location(
                2942504,
                format!(
                    "The input argument to $sortArray must be an array, but was of type: {}",
                    input.type_name()
                ),
            ));
        };
        match self {
            Self::Whole(descending) => elements.sort_by(|a, b| {
                let order = keystring::compare_under(a.bson(), b.bson(), under);
                if *descending { order.reverse() } else { order }
            }),
            Self::Fields(pattern) => {
                let mut keyed = Vec::with_capacity(elements.len());
                for element in elements {
                    let document = element.as_document().unwrap_or(empty_document());
                    keyed.push((pattern.key(document, under)?, element));
                }
                keyed.sort_by(|a, b| a.0.cmp(&b.0));
                elements = keyed.into_iter().map(|(_, element)| element).collect();
            }
        }
        Ok(elements.iter().map(Value::bson).collect::<RawArrayBuf>().into())
    }
}

/// `true` for -1.
fn direction(value: RawBsonRef<'_>) -> Result<bool> {
    let Some(number) = Number::from_bson(value) else {
        return Err(Error::location(
            15974,
            format!(
                "Illegal key in $sort specification: the sort direction must be 1 or -1, found {}",
                type_name(value)
            ),
        ));
    };
    match number.to_exact_i64() {
        Some(1) => Ok(false),
        Some(-1) => Ok(true),
        _ => Err(Error::location(
            15975,
            "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
        )),
    }
}
