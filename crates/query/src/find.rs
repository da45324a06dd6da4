//! `find`.

use crate::canonical::{Canonical, Purpose};
use crate::context::OpContext;
use crate::cursor::{InterruptSlot, QueryCursor, Rows};
use crate::examined::note_id_lookup;
use crate::exec::{ExecContext, PlanStage};
use crate::point;
use crate::request::FindRequest;
use crate::unique_key;
use bson::raw::{RawBsonRef, RawDocument};
use catalog::{Collection, Namespace};
use engine::{Snapshot, Value};
use errors::Result;
use std::sync::Arc;

/// Runs a find. A collection that does not exist is empty.
pub fn find(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &FindRequest<'_>,
) -> Result<QueryCursor> {
    if let Some(rows) = by_key(ctx, ns, request)? {
        return Ok(rows);
    }
    let query = Arc::new(Canonical::of_find(ctx, ns, request, Purpose::Read)?);
    if let Some(view) = query.collection.as_ref().filter(|c| c.is_view()) {
        return crate::view::find(ctx, view, request);
    }
    let chosen = query.choose_plan(ctx, query.fields().as_ref(), Canonical::stages)?;
    let stage = chosen.stages(&query, ctx.catalog, Canonical::stages)?;
    let interrupt = InterruptSlot::of(&ctx.interrupt);
    let snapshot = query.snapshot.clone();
    let rows = StageRows { stage, snapshot, interrupt: Arc::clone(&interrupt) };
    Ok(QueryCursor::new(Box::new(rows), query.collection.clone(), interrupt))
}

/// `{_id: value}`, or all fields of a unique index, and nothing else: a lookup, no plan.
fn by_key(
    ctx: &OpContext<'_>,
    ns: &Namespace,
    request: &FindRequest<'_>,
) -> Result<Option<QueryCursor>> {
    let FindRequest { filter: Some(filter), .. } = *request else { return Ok(None) };
    let plain = request.projection.is_none_or(RawDocument::is_empty)
        && request.sort.is_none_or(RawDocument::is_empty)
        && (request.hint, request.min, request.max, request.collation) == (None, None, None, None)
        && request.let_variables.is_none()
        && request.skip == 0
        && !(request.return_key || request.show_record_id);
    if !plain {
        return Ok(None);
    }
    let id = point::id_of(filter)?;
    let collection = ctx.collection(ns)?;
    let found = match (&collection, id) {
        (Some(collection), Some(id)) if point::has_ids(collection) => {
            let found = by_id(ctx, collection, id)?;
            note_id_lookup(found.is_some());
            found
        }
        (Some(collection), None) => match unique_key::look_up(ctx, collection, filter)? {
            Some(found) => found,
            None => return Ok(None),
        },
        (None, Some(_)) => {
            note_id_lookup(false);
            None
        }
        (Some(_), Some(_)) | (None, None) => return Ok(None),
    };
    Ok(Some(QueryCursor::of_one(found, collection)))
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
