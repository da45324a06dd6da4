//! `find`.

use crate::canonical::{Canonical, Purpose};
use crate::context::OpContext;
use crate::cursor::{Found, One, QueryCursor};
use crate::examined::note_id_lookup;
use crate::id_range;
use crate::index_key::{self, must_wait_to_copy};
use crate::point;
use crate::request::FindRequest;
use bson::raw::RawBsonRef;
use catalog::{Collection, Namespace};
use engine::Value;
use errors::Result;
use std::sync::Arc;
use update::projection::Flat;

/// Runs a find. A collection that does not exist is empty.
pub fn find(ctx: &mut OpContext<'_>, ns: &Namespace, request: &FindRequest<'_>) -> Result<Found> {
    if let Some(found) = by_key(ctx, ns, request)? {
        return Ok(found);
    }
    let query = Arc::new(Canonical::of_find(ctx, ns, request, Purpose::Read)?);
    if let Some(view) = query.collection.as_ref().filter(|c| c.is_view()) {
        return crate::view::find(ctx, view, request).map(Found::Rows);
    }
    let chosen = query.choose_plan(ctx, query.fields().as_ref(), Canonical::stages)?;
    let stage = chosen.stages(&query, ctx.catalog, Canonical::stages)?;
    let (state, collection) = (query.snapshot.clone(), query.collection.clone());
    Ok(Found::Rows(QueryCursor::of_stages(stage, state, collection, &ctx.interrupt)))
}

/// `{_id: value}`, a range of `_id`, or all fields of an index, and nothing else; a projection of whole fields: no plan.
fn by_key(ctx: &OpContext<'_>, ns: &Namespace, request: &FindRequest<'_>) -> Result<Option<Found>> {
    let FindRequest { filter: Some(filter), .. } = *request else { return Ok(None) };
    let plain = (request.hint, request.min, request.max, request.collation)
        == (None, None, None, None)
        && request.let_variables.is_none()
        && request.skip == 0
        && !(request.return_key || request.show_record_id);
    let is_sorted = request.sort.is_some_and(|sort| !sort.is_empty());
    let projection = request.projection.filter(|given| !given.is_empty());
    // Of orders only that of a range of `_id` comes without a plan.
    if !plain || is_sorted && (projection.is_some() || !id_range::gives(request.sort)?) {
        return Ok(None);
    }
    let shown = match projection {
        None => None,
        Some(given) => match Flat::of(given)? {
            None => return Ok(None),
            flat => flat,
        },
    };
    let id = if is_sorted { None } else { point::id_of(filter)? };
    let collection = ctx.collection(ns)?;
    match (collection, id) {
        (Some(collection), Some(id)) if point::has_ids(&collection) => {
            let found = by_id(ctx, &collection, id)?;
            if shown.is_some() && found.as_ref().is_some_and(must_wait_to_copy) {
                return Ok(None);
            }
            note_id_lookup(found.is_some());
            collection.note_id_lookup(found.is_some());
            Ok(Some(Found::One(One::new(found, shown, Some(collection)))))
        }
        (Some(collection), None) => {
            if shown.is_none()
                && let Some(rows) = id_range::find(ctx, &collection, filter, request)?
            {
                return Ok(Some(Found::Rows(rows)));
            }
            if is_sorted {
                return Ok(None);
            }
            index_key::find(ctx, &collection, filter, shown.as_ref(), request.limit)
        }
        (None, Some(_)) => {
            note_id_lookup(false);
            Ok(Some(Found::One(One::default())))
        }
        (Some(_), Some(_)) | (None, None) => Ok(None),
    }
}

/// The document of an `_id`, in the state that is read.
pub(crate) fn by_id(
    ctx: &OpContext<'_>,
    collection: &Collection,
    id: RawBsonRef<'_>,
) -> Result<Option<Value>> {
    if let Some(txn) = ctx.txn.as_deref() {
        return point::look_up(collection, id, |from, key| txn.get(from, key));
    }
    let state = ctx.read_state();
    if collection.is_partitioned() && !ctx.fits(collection, &state) {
        return Err(catalog::snapshot_unavailable());
    }
    let get = |from, key: &[u8]| state.get(from, key).map_err(catalog::from_engine);
    point::look_up(collection, id, get)
}
