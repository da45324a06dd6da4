//! `$push`, `$addToSet`, `$pop`, `$pull` and `$pullAll`.

use super::apply::Target;
use super::effect::Effect;
use bson::raw::{RawArray, RawBson, RawBsonRef};
use bsonval::order::compare_under;
use bsonval::raw::{self, Writer};
use bsonval::sort::ElementSort;
use bsonval::{show, types};
use errors::{Error, Result};
use keystring::{Collation, Direction, KeyBuilder};
use matcher::{Filter, Pattern};
use std::collections::BTreeSet;

/// A parsed `$push`.
#[derive(Clone, Debug, Default)]
pub(super) struct Push {
    pub(super) each: Vec<RawBson>,
    pub(super) position: Option<i64>,
    pub(super) slice: Option<i64>,
    pub(super) sort: Option<ElementSort>,
}

impl Push {
    pub(super) fn effect(
        &self,
        existing: Option<RawBsonRef<'_>>,
        target: &Target<'_>,
    ) -> Result<Effect<'static>> {
        let array = match existing {
            None => None,
            Some(RawBsonRef::Array(array)) => Some(array),
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "The field '{}' must be an array but is of type {} in document {{{}}}",
                    target.path(),
                    types::name_of(other),
                    show::id_of(target.document)
                )));
            }
        };
        if self.position.is_none() && self.slice.is_none() && self.sort.is_none() {
            return append(array, &self.each);
        }
        let mut values = elements(array)?;
        let length = values.len() as i64;
        let position = match self.position {
            None => length,
            Some(position) if position < 0 => (length.saturating_add(position)).max(0),
            Some(position) => position.min(length),
        } as usize;
        values.splice(position..position, self.each.iter().map(RawBson::as_raw_bson_ref));
        if let Some(sort) = &self.sort {
            values = limits::sort_by(values, |a, b| sort.compare(*a, *b, target.collation))?;
        }
        match self.slice {
            Some(slice) if slice < 0 => {
                let drop = values.len().saturating_sub(slice.unsigned_abs() as usize);
                values.drain(..drop);
            }
            Some(slice) => values.truncate(slice as usize),
            None => {}
        }
        body(values).map(Effect::Array)
    }
}

fn elements(array: Option<&RawArray>) -> Result<Vec<RawBsonRef<'_>>> {
    array.map_or(Ok(Vec::new()), |array| raw::values(array).collect())
}

fn body<'a>(values: impl IntoIterator<Item = RawBsonRef<'a>>) -> Result<Vec<u8>> {
    let mut writer = Writer::default();
    let open = writer.begin();
    for (position, value) in values.into_iter().enumerate() {
        limits::poll()?;
        writer.value(&position.to_string(), value);
    }
    writer.end(open);
    Ok(writer.into_bytes())
}

/// The array's bytes with values behind them: no element is decoded.
fn append(array: Option<&RawArray>, values: &[RawBson]) -> Result<Effect<'static>> {
    let mut writer = Writer::with_capacity(array.map_or(0, |a| a.as_bytes().len()) + 64);
    let open = writer.begin();
    let mut length = 0;
    if let Some(array) = array {
        for element in raw::array_elements(array) {
            // The stored names are kept only if they are what positions say.
            writer.element_as(&length.to_string(), &element?);
            length += 1;
        }
    }
    for value in values {
        limits::poll()?;
        writer.value(&length.to_string(), value.as_raw_bson_ref());
        length += 1;
    }
    writer.end(open);
    Ok(Effect::Array(writer.into_bytes()))
}

pub(super) fn add_to_set(
    values: &[RawBson],
    existing: Option<RawBsonRef<'_>>,
    target: &Target<'_>,
) -> Result<Effect<'static>> {
    let array = match existing {
        None => None,
        Some(RawBsonRef::Array(array)) => Some(array),
        Some(other) => {
            return Err(Error::bad_value(format!(
                "Cannot apply $addToSet to non-array field. Field named '{}' has non-array type {}",
                target.name(),
                types::name_of(other)
            )));
        }
    };
    let fresh = if let [value] = values {
        let value = value.as_raw_bson_ref();
        let mut present = false;
        for element in elements(array)? {
            present = present || compare_under(element, value, target.collation).is_eq();
        }
        if present { Vec::new() } else { values.to_vec() }
    } else {
        let mut seen = BTreeSet::new();
        for element in elements(array)? {
            seen.insert(key(element, target.collation)?);
        }
        let mut fresh = Vec::new();
        for value in values {
            if seen.insert(key(value.as_raw_bson_ref(), target.collation)?) {
                fresh.push(value.clone());
            }
        }
        fresh
    };
    if fresh.is_empty() && array.is_some() {
        return Ok(Effect::Keep);
    }
    append(array, &fresh)
}

fn key(value: RawBsonRef<'_>, collation: Option<&Collation>) -> Result<Vec<u8>> {
    let mut builder = KeyBuilder::new();
    limits::poll_work(1 + raw::size_of_ref(value) / limits::BYTES_PER_UNIT)?;
    match builder.append_under(value, Direction::Ascending, collation) {
        Ok(()) => Ok(builder.into_bytes()),
        Err(error) => Err(Error::bad_value(error.to_string())),
    }
}

pub(super) fn pop(
    front: bool,
    existing: Option<RawBsonRef<'_>>,
    target: &Target<'_>,
) -> Result<Effect<'static>> {
    match existing {
        None => Ok(Effect::Keep),
        Some(RawBsonRef::Array(array)) => {
            let mut values = elements(Some(array))?;
            if values.is_empty() {
                return Ok(Effect::Keep);
            }
            values.remove(if front { 0 } else { values.len() - 1 });
            body(values).map(Effect::Array)
        }
        Some(other) => Err(Error::type_mismatch(format!(
            "Path '{}' contains an element of non-array type '{}'",
            target.path(),
            types::name_of(other)
        ))),
    }
}

/// Which elements a `$pull` removes.
#[derive(Clone, Debug)]
pub(super) enum Pull {
    /// Elements equal to it.
    Equal(RawBson),
    /// Text it matches.
    Pattern(Pattern),
    /// Elements satisfying operators.
    Value(Filter),
    /// Documents matching a filter.
    Document(Filter),
}

impl Pull {
    pub(super) fn matches(
        &self,
        value: RawBsonRef<'_>,
        collation: Option<&Collation>,
    ) -> Result<bool> {
        match (self, value) {
            (Self::Equal(operand), value) => {
                Ok(compare_under(operand.as_raw_bson_ref(), value, collation).is_eq())
            }
            (Self::Pattern(pattern), RawBsonRef::String(text) | RawBsonRef::Symbol(text)) => {
                pattern.is_match(text)
            }
            (Self::Pattern(pattern), RawBsonRef::RegularExpression(regex)) => {
                Ok(pattern.is_same(regex))
            }
            (Self::Value(filter), value) => filter.matches_value(value),
            (Self::Document(filter), RawBsonRef::Document(document)) => filter.matches(document),
            _ => Ok(false),
        }
    }
}

/// Removes the elements for which `condition` holds.
pub(super) fn remove_if(
    existing: Option<RawBsonRef<'_>>,
    condition: impl Fn(RawBsonRef<'_>) -> Result<bool>,
) -> Result<Effect<'static>> {
    let array = match existing {
        None => return Ok(Effect::Keep),
        Some(RawBsonRef::Array(array)) => array,
        Some(_) => return Err(Error::bad_value("Cannot apply $pull to a non-array value")),
    };
    let mut kept = Vec::new();
    let mut removed = false;
    for value in raw::values(array) {
        let value = value?;
        if condition(value)? {
            removed = true;
        } else {
            kept.push(value);
        }
    }
    if removed { body(kept).map(Effect::Array) } else { Ok(Effect::Keep) }
}
