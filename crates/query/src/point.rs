//! Queries for one document by its `_id` and nothing else: answered by a lookup, without parsing a
//! filter, planning or choosing.
//!
//! Always true: what is found this way is what the general way finds, in the same state and with the
//! same figures; whatever is not certain to be such a query goes that way.

use crate::plan_cache::PlanCache;
use bson::raw::{RawBsonRef, RawDocument};
use bsonval::raw;
use catalog::Collection;
use engine::{DictionaryId, Value};
use errors::Result;
use limits::Spare;
use smallvec::SmallVec;

thread_local! {
    /// What the thread's last lookup has looked for.
    static KEY: Spare = const { Spare::new(1024) };
}

/// One value for each field of a primary key.
pub(crate) type KeyValues<'a> = SmallVec<[RawBsonRef<'a>; 4]>;

/// The `_id` that a filter names, where it names nothing else and compares it by its value alone.
pub(crate) fn id_of(filter: &RawDocument) -> Result<Option<RawBsonRef<'_>>> {
    let Some(only) = raw::only_plain(filter).filter(|only| only.name_bytes() == b"_id") else {
        return Ok(None);
    };
    let id = only.value()?;
    Ok(is_plain(id).then_some(id))
}

/// Whether a filter compares a field with this by its value alone.
pub(crate) fn is_plain(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::ObjectId(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::String(_)
            | RawBsonRef::Binary(_)
            | RawBsonRef::DateTime(_)
    )
}

/// The values of the primary key that a filter names, in the key's order, where it names each of its fields and
/// nothing else, and compares them by their values alone.
pub(crate) fn key_of<'a>(
    collection: &Collection,
    filter: &'a RawDocument,
) -> Result<Option<KeyValues<'a>>> {
    let Some(primary) = &collection.options().primary_key else {
        return Ok(id_of(filter)?.map(|id| KeyValues::from_slice(&[id])));
    };
    let parts = primary.parts();
    // The fields of a key differ: with as many in the filter, each of them found, there is no other in it.
    if raw::elements(filter).count() != parts.len() {
        return Ok(None);
    }
    let mut values = KeyValues::new();
    for part in parts {
        match raw::field(filter, &part.path)? {
            Some(value) if is_plain(value) => values.push(value),
            _ => return Ok(None),
        }
    }
    Ok(Some(values))
}

/// The document of an `_id` in the state that `get` reads. Two lookups where the primary key is not `_id`
/// alone.
pub(crate) fn look_up(
    collection: &Collection,
    id: RawBsonRef<'_>,
    get: impl Fn(DictionaryId, &[u8]) -> Result<Option<Value>>,
) -> Result<Option<Value>> {
    let Some(record_key) = collection.find_record_key_in(KEY.with(Spare::take), id, &get)? else {
        return Ok(None);
    };
    let found = get(collection.primary_of(&record_key), &record_key);
    KEY.with(|spare| spare.keep(record_key));
    found
}

/// Whether a document is named by its `_id` alone here, and no operator has said which indexes queries may use.
pub(crate) fn needs_no_plan(collection: &Collection) -> bool {
    has_ids(collection) && !PlanCache::of(collection).has_filters()
}

/// Whether an `_id` is that of one stored document of this collection.
pub(crate) fn has_ids(collection: &Collection) -> bool {
    !collection.is_view() && collection.has_unique_ids()
}
