//! The `sortBy` of `$sortArray`: a direction, or a pattern of dotted paths.

use crate::agg::Value;
use crate::agg::value::List;
use bson::raw::RawBsonRef;
use bsonval::number::Number;
use bsonval::sort::ElementSort;
use bsonval::types::name_of;
use errors::{Error, Result};
use keystring::Collation;

/// How to order values.
#[derive(Clone, Debug)]
pub(crate) struct SortBy(ElementSort);

impl SortBy {
    pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        if let RawBsonRef::Document(pattern) = value {
            return ElementSort::parse_paths(pattern).map(Self);
        }
        if Number::from_bson(value).is_none() {
            return Err(Error::location(
                15974,
                format!(
                    "Illegal key in $sort specification: the sort direction must be 1 or -1, \
                     found {}",
                    name_of(value)
                ),
            ));
        }
        ElementSort::direction(value)
            .map(|direction| Self(ElementSort::Whole(direction)))
            .ok_or_else(|| {
                Error::location(
                    15975,
                    "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
                )
            })
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
        let Some(mut elements) = input.references()? else {
            return Err(Error::location(
                2942504,
                format!(
                    "The input argument to $sortArray must be an array, but was of type: {}",
                    input.type_name()
                ),
            ));
        };
        elements.sort_by(|a, b| self.0.compare(a, b, under))?;
        List::of(elements.iter().copied())
    }
}
