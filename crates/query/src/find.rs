//! `find`.

use crate::canonical::{Canonical, Purpose};
use crate::context::OpContext;
use crate::cursor::{InterruptSlot, QueryCursor, Rows};
use crate::examined::note_id_lookup;
use crate::exec::{ExecContext, PlanStage};
use crate::point;
use crate::request::FindRequest;
use bson::raw::RawDocument;
use catalog::Namespace;
use engine::Snapshot;
use errors::Result;
use std::sync::Arc;

/// Runs a find. A collection that does not exist is empty.
pub fn find(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &FindRequest<'_>,
) -> Result<QueryCursor> {
    if let Some(rows) = by_id(ctx, ns, request)? {
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

/// `{_id: value}` and nothing else: a lookup, no plan.
fn by_id(
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
    let id = if plain { point::id_of(filter)? } else { None };
    let Some(id) = id else { return Ok(None) };
    let collection = ctx.collection(ns)?;
    let found = match &collection {
        Some(collection) if !point::has_ids(collection) => return Ok(None),
        Some(collection) => {
            if let Some(txn) = ctx.txn.as_deref() {
                point::look_up(collection, id, |from, key| txn.get(from, key))?
            } else {
                let state = ctx.read_state();
                if collection.is_partitioned() && !ctx.fits(collection, &state) {
                    return Err(catalog::snapshot_unavailable());
                }
                point::look_up(collection, id, |from, key| {
                    state.get(from, key).map_err(catalog::from_engine)
                })?
            }
        }
        None => None,
    };
    note_id_lookup(found.is_some());
    Ok(Some(QueryCursor::of_one(found, collection)))
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
