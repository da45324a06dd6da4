//! `count`: from the collection's own count, from index entries alone, or from the documents.

use crate::canonical::{Canonical, Purpose, collation_of, parse_filter};
use crate::context::OpContext;
use crate::examined::{note_id_lookup, note_way};
use crate::exec::{CountScan, ExecContext, PlanStage, build_access};
use crate::find;
use crate::index_key;
use crate::plan::Access;
use crate::point::{self, needs_no_plan};
use crate::request::CountRequest;
use catalog::{Catalog, Collection, Namespace};
use errors::Result;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Counts documents; without a filter it looks at no data.
pub fn count(ctx: &mut OpContext<'_>, ns: &Namespace, request: &CountRequest<'_>) -> Result<i64> {
    let collection = ctx.collection(ns)?;
    if let Some(found) = by_id(ctx, collection.as_deref(), request)? {
        return Ok(windowed(u64::from(found), request));
    }
    if let CountRequest { filter: Some(filter), hint: None, collation: None, .. } = *request
        && let Some(collection) = &collection
        && let Some(found) = index_key::count(ctx, collection, filter, enough(request))?
    {
        return Ok(windowed(found, request));
    }
    let collation = collation_of(request.collation, collection.as_deref())?;
    let filter = parse_filter(request.filter, None, collation, ctx)?;
    if let Some(view) = collection.as_ref().filter(|c| c.is_view()) {
        return crate::view::count(ctx, view, request);
    }
    let everything = filter.matches_everything();
    let query =
        Arc::new(Canonical::of_filter(ctx, collection, filter, request.hint, Purpose::Read)?);
    if everything
        && request.hint.is_none()
        && let Some(all) = kept(ctx, query.collection.as_ref())?
    {
        note_way("RECORD_STORE_FAST_COUNT", None);
        return Ok(windowed(all, request));
    }
    let chosen = query.choose_plan(ctx, Some(&BTreeSet::new()), counting)?;
    let mut stage = chosen.stages(&query, ctx.catalog, counting)?;
    let exec = ExecContext::new(&query.snapshot, &*ctx.interrupt);
    let (mut found, enough) = (0, enough(request));
    while found < enough && stage.advance(&exec)? {
        found += 1;
    }
    Ok(windowed(found, request))
}

/// So many documents tell as much as all.
fn enough(request: &CountRequest<'_>) -> u64 {
    match request.limit {
        0 => u64::MAX,
        limit => limit.saturating_add(request.skip),
    }
}

/// `{_id: value}` and nothing else: whether there is such a document, by a lookup without a plan.
fn by_id(
    ctx: &OpContext<'_>,
    collection: Option<&Collection>,
    request: &CountRequest<'_>,
) -> Result<Option<bool>> {
    let CountRequest { filter: Some(filter), hint: None, collation: None, .. } = *request else {
        return Ok(None);
    };
    let Some(collection) = collection.filter(|collection| needs_no_plan(collection)) else {
        return Ok(None);
    };
    let Some(id) = point::id_of(filter)? else { return Ok(None) };
    let found = find::by_id(ctx, collection, id)?.is_some();
    note_id_lookup(found);
    collection.note_id_lookup(found);
    Ok(Some(found))
}

/// The count that is kept of all documents, of the state that is read; `None` where that takes a walk over them.
pub(crate) fn kept(
    ctx: &OpContext<'_>,
    collection: Option<&Arc<Collection>>,
) -> Result<Option<u64>> {
    let Some(collection) = collection else { return Ok(Some(0)) };
    if collection.counts_are_unknown() {
        return Ok(None);
    }
    match (&ctx.txn, &ctx.snapshot) {
        (Some(txn), _) => txn.count_in(collection),
        (None, Some(state)) => ctx.catalog.count_in(collection, state),
        (None, None) => Ok(Some(collection.count())),
    }
}

pub(crate) fn windowed(found: u64, request: &CountRequest<'_>) -> i64 {
    let left = found.saturating_sub(request.skip);
    let n = if request.limit == 0 { left } else { left.min(request.limit) };
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The cheapest stages that yield one row per document.
pub(crate) fn counting(
    query: &Canonical,
    _: &Arc<Catalog>,
    access: &Access,
) -> Result<Box<dyn PlanStage>> {
    let Some(collection) = &query.collection else {
        return Ok(Box::new(crate::exec::EmptyStage::default()));
    };
    match CountScan::of(collection, access)? {
        Some(scan) => Ok(scan),
        None => build_access(collection, access),
    }
}
