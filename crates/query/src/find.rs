//! `find`.

use crate::canonical::{Canonical, Purpose};
use crate::context::OpContext;
use crate::cursor::{Found, InterruptSlot, One, QueryCursor, Rows};
use crate::examined::note_id_lookup;
use crate::exec::{ExecContext, PlanStage};
use crate::index_key::{self, must_wait_to_copy};
use crate::point;
use crate::request::FindRequest;
use bson::raw::{RawBsonRef, RawDocument};
use catalog::{Collection, Namespace};
use engine::{Snapshot, Value};
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
    let interrupt = InterruptSlot::of(&ctx.interrupt);
    let snapshot = query.snapshot.clone();
    let rows = StageRows { stage, snapshot, interrupt: Arc::clone(&interrupt) };
    let cursor = QueryCursor::new(Box::new(rows), query.collection.clone(), interrupt);
    Ok(Found::Rows(cursor))
}

/// `{_id: value}`, or all fields of an index, and nothing else; a projection of whole fields: a lookup, no plan.
fn by_key(ctx: &OpContext<'_>, ns: &Namespace, request: &FindRequest<'_>) -> Result<Option<Found>> {
    let FindRequest { filter: Some(filter), .. } = *request else { return Ok(None) };
    let plain = request.sort.is_none_or(RawDocument::is_empty)
        && (request.hint, request.min, request.max, request.collation) == (None, None, None, None)
        && request.let_variables.is_none()
        && request.skip == 0
        && !(request.return_key || request.show_record_id);
    if !plain {
        return Ok(None);
    }
    let shown = match request.projection.filter(|given| !given.is_empty()) {
        None => None,
        Some(given) => match Flat::of(given)? {
            None => return Ok(None),
            flat => flat,
        },
    };
    let id = point::id_of(filter)?;
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
        (Some(collection), None) => index_key::find(ctx, &collection, filter, shown.as_ref()),
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

/// Stages that run by themselves on a snapshot.
pub(crate) struct StageRows {
    pub(crate) stage: Box<dyn PlanStage>,
    pub(crate) snapshot: Snapshot,
    pub(crate) interrupt: Arc<InterruptSlot>,
}

impl Rows for StageRows {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        let exec = ExecContext::new(&self.snapshot, &*self.interrupt);
        if !self.stage.advance(&exec)? {
            return Ok(None);
        }
        self.stage.row().document().map(Some)
    }

    fn park(&mut self) {
        self.stage.park();
        self.stage.release_row();
    }
}
