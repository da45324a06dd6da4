//! The `sortBy` of `$sortArray`: a direction, or a pattern of dotted paths.

use crate::agg::value::List;
use crate::agg::{Value, empty_document, type_name};
use crate::number::Number;
use crate::sort::SortPattern;
use bson::raw::RawBsonRef;
use errors::{Error, Result};
use keystring::Collation;
use limits::{Growth, Part};

/// What a key takes beside its bytes: where it stands, and what the allocator adds.
const KEY_OVERHEAD_BYTES: usize = 32;

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
        let Some(mut elements) = input.references()? else {
            return Err(Error::location(
                2942504,
                format!(
                    "The input argument to $sortArray must be an array, but was of type: {}",
                    input.type_name()
                ),
            ));
        };
        match self {
            Self::Whole(descending) => {
                elements.sort_by(|a, b| {
                    let order = crate::order::compare_under(a, b, under);
                    if *descending { order.reverse() } else { order }
                })?;
                List::of(elements.iter().copied())
            }
            Self::Fields(pattern) => {
                let mut memory = Growth::new(Part::Values);
                let mut keys: Vec<Box<[u8]>> = Vec::new();
                let mut bytes = 0;
                for element in elements.iter() {
                    let document = element.as_document().unwrap_or(empty_document());
                    let key = pattern.key(document, under)?.into_boxed_slice();
                    bytes += key.len() + KEY_OVERHEAD_BYTES;
                    memory.reach(bytes)?;
                    keys.push(key);
                }
                let order = limits::sorted_order(&keys, |a, b| {
                    limits::note_work(a.len().min(b.len()) / limits::BYTES_PER_UNIT);
                    a.cmp(b)
                })?;
                List::of(order.into_iter().map(|at| elements[at as usize]))
            }
        }
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
