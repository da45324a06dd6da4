//! Queries for one document by its `_id` and nothing else: answered by a lookup, without parsing a
//! filter, planning or choosing.
//!
//! Always true: what is found this way is what the general way finds, in the same state and with the
//! same figures; whatever is not certain to be such a query goes that way.

use bson::raw::{RawBsonRef, RawDocument};
use bsonval::raw;
use catalog::Collection;
use engine::{DictionaryId, Value};
use errors::Result;

/// The `_id` that a filter names, where it names nothing else and compares it by its value alone.
pub(crate) fn id_of(filter: &RawDocument) -> Result<Option<RawBsonRef<'_>>> {
    let mut fields = raw::elements(filter);
    let (Some(first), None) = (fields.next(), fields.next()) else { return Ok(None) };
    let first = first?;
    if first.name_bytes() != b"_id" {
        return Ok(None);
    }
    let id = first.value()?;
    let is_plain = matches!(
        id,
        RawBsonRef::ObjectId(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::String(_)
            | RawBsonRef::Binary(_)
            | RawBsonRef::DateTime(_)
    );
    Ok(is_plain.then_some(id))
}

/// The document of an `_id` in the state that `get` reads. Two lookups where the primary key is not `_id`
/// alone.
pub(crate) fn look_up(
    collection: &Collection,
    id: RawBsonRef<'_>,
    get: impl Fn(DictionaryId, &[u8]) -> Result<Option<Value>>,
) -> Result<Option<Value>> {
    match collection.find_record_key(id, &get)? {
        Some(record_key) => get(collection.primary_of(&record_key), &record_key),
        None => Ok(None),
    }
}

/// Whether an `_id` is that of one stored document of this collection.
pub(crate) fn has_ids(collection: &Collection) -> bool {
    !collection.is_view() && collection.has_unique_ids()
}
