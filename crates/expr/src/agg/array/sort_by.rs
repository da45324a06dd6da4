//! The `sortBy` of `$sortArray` and `$topN`: a direction, or a pattern of dotted paths.

use crate::agg::path::{document_value, split};
use crate::agg::{Value, type_name};
use crate::number::Number;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument};
use errors::{Error, Result};
use keystring::Collation;
use std::cmp::Ordering;

/// How to order values.
#[derive(Clone, Debug)]
pub(crate) enum SortBy {
    /// The values themselves; `true` is descending.
    Whole(bool),
    /// Documents by fields, each with its direction.
    Fields(Vec<(Vec<String>, bool)>),
}

impl SortBy {
    pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        match value {
            RawBsonRef::Document(pattern) => Self::parse_fields(pattern),
            other => direction(other).map(Self::Whole),
        }
    }

    pub(crate) fn parse_fields(pattern: &RawDocument) -> Result<Self> {
        let mut fields = Vec::new();
        for element in pattern.iter_elements() {
            let element = element?;
            fields.push((split(element.key().as_str())?, direction(element.value()?)?));
        }
        if fields.is_empty() {
            return Err(Error::location(15976, "$sort stage must have at least one sort key"));
        }
        Ok(Self::Fields(fields))
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
        let Some(elements) = input.elements()? else {
            return Err(Error::location(
                2942504,
                format!(
                    "The input argument to $sortArray must be an array, but was of type: {}",
                    input.type_name()
                ),
            ));
        };
        let mut keyed = Vec::with_capacity(elements.len());
        for element in &elements {
            keyed.push((self.key(element.bson())?, element));
        }
        keyed.sort_by(|a, b| self.compare(&a.0, &b.0, under));
        Ok(keyed.iter().map(|(_, element)| element.bson()).collect::<RawArrayBuf>().into())
    }

    /// What is compared of a value.
    pub(crate) fn key<'v>(&self, value: RawBsonRef<'v>) -> Result<Vec<Value<'v>>> {
        match self {
            Self::Whole(_) => Ok(vec![Value::Ref(value)]),
            Self::Fields(fields) => fields
                .iter()
                .map(|(path, _)| {
                    value
                        .as_document()
                        .map_or(Ok(Value::Missing), |document| document_value(document, path))
                })
                .collect(),
        }
    }

    pub(crate) fn compare(
        &self,
        a: &[Value<'_>],
        b: &[Value<'_>],
        under: Option<&Collation>,
    ) -> Ordering {
        for (at, (x, y)) in a.iter().zip(b).enumerate() {
            let descending = match self {
                Self::Whole(descending) => *descending,
                Self::Fields(fields) => fields.get(at).is_some_and(|(_, descending)| *descending),
            };
            // A missing field sorts with null.
            let order = keystring::compare_under(
                x.get().unwrap_or(RawBsonRef::Null),
                y.get().unwrap_or(RawBsonRef::Null),
                under,
            );
            if order.is_ne() {
                return if descending { order.reverse() } else { order };
            }
        }
        Ordering::Equal
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
