//! The order of an array's elements, as `$push` with `$sort` and `$sortArray` ask for it: of the
//! elements themselves, or of values at paths inside them.
//!
//! Always true: unlike a sort of documents, an array that stands at a path is compared as a whole;
//! a path enters an array only by position. What is no document, or has nothing at the path,
//! counts as null.

use crate::order::compare_under;
use crate::path::Path;
use crate::raw;
use crate::types;
use bson::raw::{RawBsonRef, RawDocument};
use errors::{Error, Result};
use keystring::{Collation, Direction};
use std::cmp::Ordering;

/// How to order the elements of an array.
#[derive(Clone, Debug)]
pub enum ElementSort {
    /// By the elements themselves.
    Whole(Direction),
    /// By the values at these paths, the first first.
    By(Vec<(Path, Direction)>),
}

impl ElementSort {
    /// Parses `{field: 1, "other.field": -1}`.
    pub fn parse_paths(pattern: &RawDocument) -> Result<Self> {
        let mut parts = Vec::new();
        for part in raw::elements(pattern) {
            let part = part?;
            if part.name().is_empty() {
                return Err(Error::bad_value("The $sort field cannot be empty"));
            }
            if part.name().split('.').any(str::is_empty) {
                return Err(Error::bad_value(format!(
                    "The $sort field is a dotted field but has an empty part: {}",
                    part.name()
                )));
            }
            let Some(direction) = Self::direction(part.value()?) else {
                return Err(Error::bad_value("The $sort element value must be either 1 or -1"));
            };
            parts.push((Path::new(part.name()), direction));
        }
        if parts.is_empty() {
            return Err(Error::bad_value(
                "The $sort pattern is empty when it should be a set of fields.",
            ));
        }
        Ok(Self::By(parts))
    }

    /// The direction that a number stands for.
    pub fn direction(value: RawBsonRef<'_>) -> Option<Direction> {
        match types::exact_integer(value) {
            Some(1) => Some(Direction::Ascending),
            Some(-1) => Some(Direction::Descending),
            _ => None,
        }
    }

    /// The order of two elements.
    pub fn compare(
        &self,
        a: RawBsonRef<'_>,
        b: RawBsonRef<'_>,
        under: Option<&Collation>,
    ) -> Ordering {
        let directed = |order: Ordering, direction: Direction| match direction {
            Direction::Ascending => order,
            Direction::Descending => order.reverse(),
        };
        match self {
            Self::Whole(direction) => directed(compare_under(a, b, under), *direction),
            Self::By(parts) => parts
                .iter()
                .map(|(path, direction)| {
                    directed(compare_under(at(a, path), at(b, path), under), *direction)
                })
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal),
        }
    }
}

/// The value at a path, arrays entered by position only; null where there is none.
fn at<'a>(value: RawBsonRef<'a>, path: &Path) -> RawBsonRef<'a> {
    let RawBsonRef::Document(mut current) = value else { return RawBsonRef::Null };
    let Some((last, parents)) = path.components().split_last() else { return RawBsonRef::Null };
    for component in parents {
        current = match current.get(component.name()) {
            Ok(Some(RawBsonRef::Document(inner))) => inner,
            // An array is a document whose fields are its positions.
            Ok(Some(RawBsonRef::Array(inner))) => match RawDocument::from_bytes(inner.as_bytes()) {
                Ok(inner) => inner,
                Err(_) => return RawBsonRef::Null,
            },
            _ => return RawBsonRef::Null,
        };
    }
    current.get(last.name()).ok().flatten().unwrap_or(RawBsonRef::Null)
}
