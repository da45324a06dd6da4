//! Deletes of whole ranges of record keys, which are told in one step instead of document by document.

use crate::context::{Atomicity, OpContext};
use crate::exec::one_range;
use crate::plan::record_intervals;
use crate::request::DeleteStatement;
use bounds::Intervals;
use catalog::Collection;
use engine::KeyRange;
use errors::Result;
use keystring::Direction;
use matcher::Filter;
use std::sync::Arc;

/// The range of record keys whose documents a statement deletes, where that can be done in one step for some
/// of them at least; `None` where they are deleted one by one. May read the disk.
pub(crate) fn deletes_range(
    ctx: &OpContext<'_>,
    collection: Option<&Arc<Collection>>,
    statement: &DeleteStatement<'_>,
    filter: &Filter,
) -> Result<Option<KeyRange>> {
    let Some(collection) = collection else { return Ok(None) };
    let is_one_by_one = statement.only_one
        || statement.hint.is_some()
        || ctx.txn.is_some()
        || ctx.atomicity == Atomicity::Part
        || !ctx.catalog.may_delete_ranges(collection);
    if is_one_by_one {
        return Ok(None);
    }
    let Some(range) = record_range(collection, filter)? else { return Ok(None) };
    let state = ctx.catalog.snapshot();
    let is_worth = collection.is_whole_in(&state)
        && ctx.catalog.has_range_to_delete(collection, &range, &state)?;
    Ok(is_worth.then_some(range))
}

/// The range of record keys whose documents are exactly those that the filter matches; `None` where the filter
/// says anything else, or where they lie in several ranges.
fn record_range(collection: &Collection, filter: &Filter) -> Result<Option<KeyRange>> {
    let Some(intervals) = record_intervals(collection, filter) else { return Ok(None) };
    if intervals.iter().all(Intervals::is_all) {
        return Ok(Some(KeyRange::all()));
    }
    let ascending = [Direction::Ascending];
    let primary = collection.primary_index();
    let directions = primary.map_or(&ascending[..], |index| index.keys().directions());
    one_range(&intervals, directions, collection.collation())
}
