//! Finds and counts by all fields of one index and nothing else: one entry is looked up, or those of one key are gone
//! through, without parsing a filter, planning or choosing.
//!
//! Always true: what is found this way is what the general way finds, by the same index, in the same state, in the same
//! order and with the same figures; whatever is not certain to be such a query goes that way.

mod rows;

use crate::context::OpContext;
use crate::cursor::{Found, InterruptSlot, One, QueryCursor};
use crate::examined::{note_entry_lookup, note_way};
use crate::exec::copied_bytes;
use crate::point::{is_plain, needs_no_plan};
use bson::raw::{RawBsonRef, RawDocument};
use bsonval::raw;
use catalog::{Collection, Index, from_engine};
use engine::Value;
use errors::Result;
use indexkeys::{IndexSpec, PartKind, bad_key};
use keystring::KeyBuilder;
use rows::{Entries, EntryRows};
use smallvec::SmallVec;
use std::sync::Arc;
use update::projection::Flat;

/// Filters with more fields are parsed.
const MOST_FIELDS: usize = 4;

/// The fields of a filter and the values that they are to have.
type Wanted<'a> = SmallVec<[(&'a [u8], RawBsonRef<'a>); MOST_FIELDS]>;

/// What has these values, of which `shown` is shown, at most `limit` of it, or all for 0. `None` where the filter must be
/// planned.
pub(crate) fn find(
    ctx: &OpContext<'_>,
    collection: &Arc<Collection>,
    filter: &RawDocument,
    shown: Option<&Flat>,
    limit: u64,
) -> Result<Option<Found>> {
    let Some(entries) = entries_of(ctx, collection, filter)? else { return Ok(None) };
    let index = &entries.index;
    // What the entries tell is not read from documents.
    let parts = &index.spec().parts;
    let is_held =
        |name: &[u8]| name == b"_id" || parts.iter().any(|part| part.path.as_bytes() == name);
    if shown.is_some_and(|shown| shown.is_made_of(is_held)) {
        return Ok(None);
    }
    let kept = Some(Arc::clone(collection));
    if index.spec().unique {
        let found = read(&entries)?;
        if shown.is_some() && found.as_ref().is_some_and(must_wait_to_copy) {
            return Ok(None);
        }
        note_entry_lookup(index, found.is_some());
        return Ok(Some(Found::One(One::new(found, shown.cloned(), kept))));
    }
    note_way("IXSCAN", Some(index));
    let interrupt = InterruptSlot::of(&ctx.interrupt);
    let rows = EntryRows::new(entries, shown.cloned(), limit, Arc::clone(&interrupt));
    Ok(Some(Found::Rows(QueryCursor::new(Box::new(rows), kept, interrupt))))
}

/// How many documents have these values, up to `most`. `None` where the filter must be planned.
pub(crate) fn count(
    ctx: &OpContext<'_>,
    collection: &Arc<Collection>,
    filter: &RawDocument,
    most: u64,
) -> Result<Option<u64>> {
    let Some(entries) = entries_of(ctx, collection, filter)? else { return Ok(None) };
    note_way("COUNT_SCAN", Some(&entries.index));
    entries.count(most, &*ctx.interrupt).map(Some)
}

/// The entries of what has these values. `None` where the filter must be planned.
fn entries_of(
    ctx: &OpContext<'_>,
    collection: &Arc<Collection>,
    filter: &RawDocument,
) -> Result<Option<Entries>> {
    let is_usual = ctx.reads_newest() && !collection.is_partitioned();
    if !is_usual || collection.indexes().is_empty() || !needs_no_plan(collection) {
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
    let Some(values) = key_of(index, &wanted)? else { return Ok(None) };
    let (collection, index) = (Arc::clone(collection), Arc::clone(index));
    Ok(Some(Entries { collection, index, values, state }))
}

/// Whether there may have to be waited for memory before a document can be copied, with nothing pinned.
pub(crate) fn must_wait_to_copy(document: &Value) -> bool {
    limits::must_wait_for(copied_bytes(document.len()))
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

/// The index over these fields, where there is one alone and nothing else could be chosen.
fn index_for<'c>(collection: &'c Collection, wanted: &Wanted<'_>) -> Option<&'c Arc<Index>> {
    let indexes = collection.indexes();
    if indexes.iter().any(|index| index.spec().clustering) {
        // Such an index holds the documents, and may be the better choice.
        return None;
    }
    let is_wanted = |path: &str| wanted.iter().any(|(name, _)| *name == path.as_bytes());
    let is_over = |index: &&Arc<Index>| {
        let parts = &index.spec().parts;
        parts.len() == wanted.len() && parts.iter().all(|part| is_wanted(&part.path))
    };
    let only_of = |unique: bool| {
        let mut over = indexes.iter().filter(is_over).filter(|one| one.spec().unique == unique);
        if let (Some(index), None) = (over.next(), over.next()) { Some(index) } else { None }
    };
    // What finds one document at most is taken, whatever else there is.
    let index = if indexes.iter().any(|index| index.spec().unique && is_over(&index)) {
        only_of(true)?
    } else {
        only_of(false).filter(|index| is_without_rival(collection, index, is_wanted))?
    };
    serves(index.spec(), collection).then_some(index)
}

/// Whether these fields are the beginning of no other index, which might be the better choice.
fn is_without_rival(
    collection: &Collection,
    index: &Arc<Index>,
    is_wanted: impl Fn(&str) -> bool,
) -> bool {
    collection.primary_index().into_iter().chain(collection.indexes()).all(|other| {
        let spec = other.spec();
        let is_bounded = || spec.parts.first().is_some_and(|part| is_wanted(&part.path));
        Arc::ptr_eq(other, index) || spec.hidden || spec.wildcard.is_none() && !is_bounded()
    })
}

fn serves(spec: &IndexSpec, collection: &Collection) -> bool {
    !spec.hidden
        && spec.partial.is_none()
        && spec.wildcard.is_none()
        && spec.parts.iter().all(|part| part.kind == PartKind::Value)
        && spec.collation.as_ref() == collection.collation()
}

/// The bytes of the values, in the index's order.
fn key_of(index: &Index, wanted: &Wanted<'_>) -> Result<Option<Vec<u8>>> {
    let (spec, directions) = (index.spec(), index.keys().directions());
    let mut builder = KeyBuilder::new();
    for (part, direction) in spec.parts.iter().zip(directions) {
        let value = wanted.iter().find(|(name, _)| *name == part.path.as_bytes());
        let Some((_, value)) = value else { return Ok(None) };
        builder.append_under(*value, *direction, spec.collation.as_ref()).map_err(bad_key)?;
    }
    Ok(Some(builder.into_bytes()))
}

/// The document of the one entry of a unique index.
fn read(entries: &Entries) -> Result<Option<Value>> {
    let Entries { collection, index, values, state } = entries;
    let entry = state.get(collection.index_at(index, 0), values).map_err(from_engine)?;
    let Some(entry) = entry else { return Ok(None) };
    let record_key = index.keys().record_key_of(values, &entry)?;
    state.get(collection.primary_of(record_key), record_key).map_err(from_engine)
}
