//! An update of one document, named by all of its primary key, that does not read it.

use super::apply::Change;
use super::point::key_of;
use super::remembered;
use crate::context::{OpContext, StatementOutcome};
use crate::fast_updates::{argument_of, needs_time};
use crate::request::UpdateStatement;
use bson::raw::RawBsonRef;
use catalog::{Collection, Namespace, Txn};
use errors::Result;
use std::sync::atomic::Ordering;

/// Writes the change of the document that the filter names by its whole primary key as one message, where that is
/// allowed and possible; `id` is the `_id` by which it names it, where that is found. False where it has done nothing: then the statement goes the ordinary way. Whether there is
/// such a document is not asked.
pub(super) fn update(
    ctx: &mut OpContext<'_>,
    (ns, found, id): (&Namespace, Option<&Collection>, Option<RawBsonRef<'_>>),
    index: usize,
    statement: &UpdateStatement<'_>,
    change: &Change,
) -> Result<bool> {
    let Some(fast) = ctx.fast_updates.filter(|_| ctx.catalog.may_update_fast()) else {
        return Ok(false);
    };
    let (RawBsonRef::Document(update), Some(touched)) = (statement.update, change.touched()) else {
        return Ok(false);
    };
    let is_plain = !(statement.multi || statement.is_delta)
        && statement.array_filters.is_none()
        && statement.constants.is_none()
        && !change.is_positional()
        && !touched.is_empty();
    // The one that others see: a transaction may have found another.
    let reads_newest = ctx.reads_newest();
    let current = if reads_newest { None } else { ctx.catalog.collection(ns) };
    let found = if reads_newest { found } else { current.as_deref() };
    let takes_it = |collection: &Collection| {
        collection.takes_fast_updates(touched)
            && (!statement.upsert || collection.indexes().is_empty())
    };
    let Some(collection) = found.filter(|collection| is_plain && takes_it(collection)) else {
        return Ok(false);
    };
    // Where the primary key is the `_id` it was looked for.
    let has_key = match collection.options().primary_key {
        None if reads_newest => id.is_some(),
        _ => key_of(collection, statement.filter)?.is_some(),
    };
    if !has_key {
        return Ok(false);
    }
    fast.eligible.fetch_add(1, Ordering::Relaxed);
    if !fast.enabled.load(Ordering::Relaxed) {
        return Ok(false);
    }
    // An upsert's filter is the `_id` and nothing else: with a longer primary key there is an index on it.
    let seed = statement.upsert.then_some(statement.filter);
    let argument = argument_of(update, seed, needs_time(update).then(|| change.time()));
    let argument = (&argument[..], statement.upsert);
    let step = |txn: &mut Txn| {
        let Some(collection) = txn.open_for_write(ns)? else { return Ok(false) };
        // It may be another one by now.
        match key_of(&collection, statement.filter)? {
            Some(values) => txn.update_fast(&collection, &values, touched, argument),
            None => Ok(false),
        }
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
