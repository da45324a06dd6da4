//! Hints: which index a client insists on.

use crate::plan::id_parts;
use bson::raw::{RawBsonRef, RawDocument};
use catalog::{Collection, Index};
use errors::{Error, Result};
use indexkeys::same_pattern;
use std::sync::Arc;

/// A hint that was understood.
#[derive(Clone, Debug)]
pub(crate) enum Hint {
    /// `{$natural: ±1}`: the collection itself.
    Natural {
        /// From the end.
        backward: bool,
    },
    /// The index on `_id` where that is the collection itself.
    Id,
    /// Any other index.
    Index(Arc<Index>),
}

/// Reads a hint. An index that does not exist is an error, an empty document is no hint.
pub(crate) fn parse(
    collection: Option<&Collection>,
    hint: Option<RawBsonRef<'_>>,
) -> Result<Option<Hint>> {
    let Some(hint) = hint else { return Ok(None) };
    match hint {
        RawBsonRef::String(name) => by_name(collection, name).map(Some),
        RawBsonRef::Document(key) if key.is_empty() => Ok(None),
        RawBsonRef::Document(key) => by_key(collection, key).map(Some),
        _ => Err(Error::failed_to_parse("Hint must be a string or an object")),
    }
}

fn by_name(collection: Option<&Collection>, name: &str) -> Result<Hint> {
    if name == "$natural" {
        return Ok(Hint::Natural { backward: false });
    }
    let Some(collection) = collection else { return Ok(Hint::Id) };
    let is_id = name == "_id_" || name == collection.options().id_index_name();
    if is_id && collection.primary_index().is_none() {
        return Ok(Hint::Id);
    }
    let primary = collection.primary_index().filter(|index| index.spec().name == name);
    primary
        .or_else(|| collection.index(name))
        .filter(|index| !index.spec().hidden)
        .map(|index| Hint::Index(Arc::clone(index)))
        .ok_or_else(missing)
}

fn by_key(collection: Option<&Collection>, key: &RawDocument) -> Result<Hint> {
    if let Some(direction) = key.get("$natural")? {
        let backward = match direction {
            RawBsonRef::Int32(n) => n < 0,
            RawBsonRef::Int64(n) => n < 0,
            RawBsonRef::Double(n) => n < 0.0,
            _ => return Err(Error::bad_value("$natural hint must be 1 or -1")),
        };
        return Ok(Hint::Natural { backward });
    }
    let Some(collection) = collection else { return Ok(Hint::Id) };
    let mut fields = key.iter().flatten();
    if let (Some((name, value)), None) = (fields.next(), fields.next())
        && name.as_str() == id_parts()[0].path
        && value.as_str().is_none()
    {
        let index = collection.id_index().map(|index| Hint::Index(Arc::clone(index)));
        return Ok(index.unwrap_or(Hint::Id));
    }
    let found: Vec<&Arc<Index>> = collection
        .primary_index()
        .into_iter()
        .chain(collection.indexes())
        .filter(|index| !index.spec().hidden && same_pattern(&index.spec().key, key))
        .collect();
    match found[..] {
        [] => Err(missing()),
        [index] => Ok(Hint::Index(Arc::clone(index))),
        _ => Err(Error::new(
            errors::Code::INDEX_NOT_FOUND,
            format!(
                "Hint matched multiple indexes, must hint by index name. Matched: {}",
                found.iter().map(|i| i.spec().name.as_str()).collect::<Vec<_>>().join(", ")
            ),
        )),
    }
}

fn missing() -> Error {
    Error::bad_value(
        "error processing query: planner returned error :: caused by :: hint provided does not \
         correspond to an existing index",
    )
}
