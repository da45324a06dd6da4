//! `find`.

use crate::canonical::{Canonical, Purpose};
use crate::context::OpContext;
use crate::cursor::{InterruptSlot, QueryCursor, Rows};
use crate::examined::note_id_lookup;
use crate::exec::{ExecContext, PlanStage};
use crate::request::FindRequest;
use bson::raw::{RawBsonRef, RawDocument};
use bsonval::raw;
use catalog::Namespace;
use engine::{Snapshot, Value};
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
    let settled = query.settle(ctx, query.fields().as_ref(), Canonical::stages)?;
    let stage = settled.stages(&query, ctx.catalog, Canonical::stages)?;
    let interrupt = InterruptSlot::of(&ctx.interrupt);
    let snapshot = query.snapshot.clone();
    let rows = StageRows { stage, snapshot, interrupt: Arc::clone(&interrupt) };
    Ok(QueryCursor::new(Box::new(rows), query.collection.clone(), interrupt))
}

/// `{_id: value}` and nothing else: one lookup, no plan.
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
    let mut fields = raw::elements(filter);
    let (Some(first), None, true) = (fields.next(), fields.next(), plain) else { return Ok(None) };
    let first = first?;
    let (name, id) = (first.name(), first.value()?);
    let simple = matches!(
        id,
        RawBsonRef::ObjectId(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::String(_)
            | RawBsonRef::Binary(_)
            | RawBsonRef::DateTime(_)
    );
    if name != "_id" || !simple {
        return Ok(None);
    }
    let collection = ctx.collection(ns)?;
    let found = match &collection {
        Some(collection) if collection.is_view() || !collection.has_unique_ids() => {
            return Ok(None);
        }
        Some(collection) => match ctx.txn.as_deref() {
            Some(txn) => txn.get(collection.primary(), &collection.id_key(id)?)?,
            None => ctx
                .read_state()
                .get(collection.primary(), &collection.id_key(id)?)
                .map_err(catalog::from_engine)?,
        },
        None => None,
    };
    note_id_lookup(found.is_some());
    let rows = Box::new(OneRow { next: found, current: None });
    Ok(Some(QueryCursor::new(rows, collection, InterruptSlot::of(&ctx.interrupt))))
}

/// At most one document.
struct OneRow {
    next: Option<Value>,
    current: Option<Value>,
}

impl Rows for OneRow {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        self.current = self.next.take();
        match &self.current {
            Some(value) => Ok(Some(RawDocument::from_bytes(&value[..])?)),
            None => Ok(None),
        }
    }
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
