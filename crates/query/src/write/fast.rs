//! An update of one document, named by its `_id`, that does not read it.

use super::apply::Change;
use super::remembered;
use crate::context::{OpContext, StatementOutcome};
use crate::fast_updates::{argument_of, needs_time};
use crate::request::UpdateStatement;
use bson::raw::RawBsonRef;
use catalog::{Namespace, Txn};
use errors::Result;
use std::sync::atomic::Ordering;

/// Writes the change of the document of an `_id` as one message, where that is allowed and possible. False where
/// it has done nothing: then the statement goes the ordinary way. Whether there is such a document is not asked.
pub(super) fn update(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    index: usize,
    statement: &UpdateStatement<'_>,
    id: RawBsonRef<'_>,
    change: &Change,
) -> Result<bool> {
    let Some(fast) = ctx.fast_updates else { return Ok(false) };
    let (RawBsonRef::Document(update), Some(touched)) = (statement.update, change.touched()) else {
        return Ok(false);
    };
    let is_plain = !(statement.multi || statement.is_delta)
        && statement.array_filters.is_none()
        && statement.constants.is_none()
        && !change.is_positional()
        && !touched.is_empty();
    let collection = ctx.catalog.collection(ns);
    let is_eligible = is_plain
        && collection.is_some_and(|collection| {
            collection.takes_fast_updates(touched)
                && (!statement.upsert || collection.indexes().is_empty())
        })
        && ctx.catalog.may_update_fast();
    if !is_eligible {
        return Ok(false);
    }
    fast.eligible.fetch_add(1, Ordering::Relaxed);
    if !fast.enabled.load(Ordering::Relaxed) {
        return Ok(false);
    }
    // The filter is the `_id` and nothing else.
    let seed = statement.upsert.then_some(statement.filter);
    let argument = argument_of(update, seed, needs_time(update).then(|| change.time()));
    let argument = (&argument[..], statement.upsert);
    let step = |txn: &mut Txn| match txn.open_for_write(ns)? {
        Some(collection) => txn.update_fast(&collection, id, touched, argument),
        None => Ok(false),
    };
    let describe = |done: &bool| match done {
        true => vec![(index, StatementOutcome::Updated { n: 1, modified: 1, upserted: None })],
        false => Vec::new(),
    };
    let done = remembered(ctx, step, describe)?;
    if done {
        fast.performed.fetch_add(1, Ordering::Relaxed);
    }
    Ok(done)
}
