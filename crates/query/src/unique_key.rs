//! Finds of one document by all fields of a unique index and nothing else: two lookups, without parsing a filter,
//! planning or choosing.
//!
//! Always true: what is found this way is what the general way finds, by the same index, in the same state and with
//! the same figures; whatever is not certain to be such a query goes that way.

use crate::context::OpContext;
use crate::examined::note_entry_lookup;
use crate::point::{is_plain, needs_no_plan};
use bson::raw::{RawBsonRef, RawDocument};
use bsonval::raw;
use catalog::{Collection, Index, from_engine};
use engine::{Snapshot, Value};
use errors::Result;
use indexkeys::{IndexSpec, PartKind, bad_key};
use keystring::KeyBuilder;
use smallvec::SmallVec;
use std::sync::Arc;

/// Filters with more fields are parsed.
const MOST_FIELDS: usize = 4;

/// The fields of a filter and the values that they are to have.
type Wanted<'a> = SmallVec<[(&'a [u8], RawBsonRef<'a>); MOST_FIELDS]>;

/// What was found; the inner `None` where the index has no such entry. The outer one where the filter must be planned.
#[expect(clippy::option_option, reason = "nothing found, and not looked for, are two things")]
pub(crate) fn look_up(
    ctx: &OpContext<'_>,
    collection: &Collection,
    filter: &RawDocument,
) -> Result<Option<Option<Value>>> {
    let is_usual = ctx.reads_newest() && !collection.is_partitioned();
    if !is_usual || !has_unique_index(collection) || !needs_no_plan(collection) {
        return Ok(None);
    }
    let Some(wanted) = wanted_by(filter)? else { return Ok(None) };
    let Some(index) = index_for(collection, &wanted) else { return Ok(None) };
    let state = ctx.read_state();
    if !ctx.fits(collection, &state) {
        return Err(catalog::snapshot_unavailable());
    }
    // Of several parts different elements of arrays might have the values.
    let is_exact = wanted.len() == 1 || index.multikey_parts() == 0;
    if index.created() > state.timestamp() || !is_exact {
        return Ok(None);
    }
    let found = read(collection, index, &wanted, &state)?;
    note_entry_lookup(index, found.is_some());
    Ok(Some(found))
}

fn has_unique_index(collection: &Collection) -> bool {
    collection.indexes().iter().any(|index| index.spec().unique && !index.spec().is_id())
}

/// The fields of a filter, where each is named plainly and compared by its value alone.
fn wanted_by(filter: &RawDocument) -> Result<Option<Wanted<'_>>> {
    let mut wanted = Wanted::new();
    for element in raw::elements(filter) {
        let element = element?;
        let (name, value) = (element.name_bytes(), element.value()?);
        if wanted.len() == MOST_FIELDS || !is_plain_path(name) || !is_plain(value) {
            return Ok(None);
        }
        wanted.push((name, value));
    }
    Ok((!wanted.is_empty()).then_some(wanted))
}

/// Whether a name is a path that is no operator, not the `_id`, and names no elements of arrays.
fn is_plain_path(name: &[u8]) -> bool {
    let names_field =
        |part: &[u8]| part.first().is_some_and(|byte| *byte != b'$' && !byte.is_ascii_digit());
    name != b"_id" && name.split(|byte| *byte == b'.').all(names_field)
}

/// The unique index over these fields, where there is one alone and nothing else could be chosen.
fn index_for<'c>(collection: &'c Collection, wanted: &Wanted<'_>) -> Option<&'c Arc<Index>> {
    let indexes = collection.indexes();
    if indexes.iter().any(|index| index.spec().clustering) {
        // Such an index holds the documents, and may be the better choice.
        return None;
    }
    let is_over = |index: &&Arc<Index>| {
        let parts = &index.spec().parts;
        let is_wanted = |path: &str| wanted.iter().any(|(name, _)| *name == path.as_bytes());
        index.spec().unique
            && parts.len() == wanted.len()
            && parts.iter().all(|part| is_wanted(&part.path))
    };
    let mut over = indexes.iter().filter(is_over);
    let (index, None) = (over.next()?, over.next()) else { return None };
    serves(index.spec(), collection).then_some(index)
}

fn serves(spec: &IndexSpec, collection: &Collection) -> bool {
    !spec.hidden
        && spec.partial.is_none()
        && spec.wildcard.is_none()
        && spec.parts.iter().all(|part| part.kind == PartKind::Value)
        && spec.collation.as_ref() == collection.collation()
}

fn read(
    collection: &Collection,
    index: &Index,
    wanted: &Wanted<'_>,
    state: &Snapshot,
) -> Result<Option<Value>> {
    let (spec, directions) = (index.spec(), index.keys().directions());
    let mut builder = KeyBuilder::new();
    for (part, direction) in spec.parts.iter().zip(directions) {
        let value = wanted.iter().find(|(name, _)| *name == part.path.as_bytes());
        let Some((_, value)) = value else { return Ok(None) };
        builder.append_under(*value, *direction, spec.collation.as_ref()).map_err(bad_key)?;
    }
    let key = builder.into_bytes();
    let entry = state.get(collection.index_at(index, 0), &key).map_err(from_engine)?;
    let Some(entry) = entry else { return Ok(None) };
    let record_key = index.keys().record_key_of(&key, &entry)?;
    state.get(collection.primary_of(record_key), record_key).map_err(from_engine)
}
