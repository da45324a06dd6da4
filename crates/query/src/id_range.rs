//! Finds by a range of `_id` and nothing else, in its order: the documents are read from there on, without parsing a
//! filter, planning or choosing.
//!
//! Always true: what is found this way is what the general way finds, in the same state, in the same order and with the
//! same figures; whatever is not certain to be such a query goes that way.

use crate::context::OpContext;
use crate::cursor::QueryCursor;
use crate::exec::{LimitStage, build_access};
use crate::plan::{Access, AccessPath, IndexScan};
use crate::point::{is_plain, needs_no_plan};
use crate::request::FindRequest;
use bounds::{Collations, Intervals, of_predicate};
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use bsonval::raw;
use bsonval::types::exact_integer;
use catalog::Collection;
use errors::Result;
use matcher::Predicate;
use std::sync::Arc;

/// A cursor over the documents of a range of `_id`. `None` where the filter must be planned.
pub(crate) fn find(
    ctx: &OpContext<'_>,
    collection: &Arc<Collection>,
    filter: &RawDocument,
    request: &FindRequest<'_>,
) -> Result<Option<QueryCursor>> {
    let Some(bounds) = bounds_of(filter)? else { return Ok(None) };
    let Some(backward) = is_backward(request.sort)? else { return Ok(None) };
    if !ctx.reads_newest() || !is_read_by_id(collection) {
        return Ok(None);
    }
    let state = ctx.read_state();
    if !ctx.fits(collection, &state) {
        return Err(catalog::snapshot_unavailable());
    }
    let scan = IndexScan {
        index: None,
        expanded: None,
        bounds: vec![bounds],
        backward,
        key_limits: (None, None),
        covered: false,
        planned_multikey: 0,
        record_bounds: Vec::new(),
    };
    let access = Access { path: AccessPath::Index(scan), residual: None, sorted: true };
    let mut stage = build_access(collection, &access)?;
    if request.limit > 0 {
        stage = Box::new(LimitStage::new(stage, request.limit));
    }
    Ok(Some(QueryCursor::of_stages(stage, state, Some(Arc::clone(collection)), &ctx.interrupt)))
}

/// Whether documents are stored by their `_id` alone, compared by its bytes, and no index could be the better choice for
/// a range of it.
fn is_read_by_id(collection: &Collection) -> bool {
    let starts_otherwise = |spec: &indexkeys::IndexSpec| {
        spec.wildcard.is_none()
            && !spec.clustering
            && spec.parts.first().is_some_and(|part| part.path != "_id")
    };
    needs_no_plan(collection)
        && collection.primary_index().is_none()
        && collection.collation().is_none()
        && !collection.is_partitioned()
        && collection.order().is_none()
        && collection.indexes().iter().all(|index| starts_otherwise(index.spec()))
}

/// Where the `_id` must lie for `{_id: {$gt: …, $lt: …}}`, with one of these operators or several.
fn bounds_of(filter: &RawDocument) -> Result<Option<Intervals>> {
    let Some(only) = raw::only_plain(filter).filter(|only| only.name_bytes() == b"_id") else {
        return Ok(None);
    };
    let RawBsonRef::Document(operators) = only.value()? else { return Ok(None) };
    let mut bounds: Option<Intervals> = None;
    for operator in raw::elements(operators) {
        let operator = operator?;
        let compare: fn(RawBson) -> Predicate = match operator.name_bytes() {
            b"$gt" => Predicate::Gt,
            b"$gte" => Predicate::Gte,
            b"$lt" => Predicate::Lt,
            b"$lte" => Predicate::Lte,
            _ => return Ok(None),
        };
        let value = operator.value()?;
        if !is_plain(value) {
            return Ok(None);
        }
        let by_bytes = Collations { query: None, index: None };
        match of_predicate(&compare(value.into()), by_bytes) {
            Some(one) if one.exact => {
                let both = |bounds: Intervals| bounds.intersect(&one.intervals);
                bounds = Some(bounds.map_or_else(|| one.intervals.clone(), both));
            }
            _ => return Ok(None),
        }
    }
    Ok(bounds.filter(|bounds| !bounds.is_empty() && !bounds.is_point()))
}

/// Whether the order asked for is the descending one of `_id`. `None` where it is another.
fn is_backward(sort: Option<&RawDocument>) -> Result<Option<bool>> {
    let Some(sort) = sort.filter(|sort| !sort.is_empty()) else { return Ok(Some(false)) };
    let only = raw::only_plain(sort).filter(|only| only.name_bytes() == b"_id");
    let direction = only.map(|only| only.value()).transpose()?.and_then(exact_integer);
    Ok(match direction {
        Some(1) => Some(false),
        Some(-1) => Some(true),
        _ => None,
    })
}
