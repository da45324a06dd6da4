//! Writes to one document that a statement names by its `_id` and nothing else: one transaction looks it
//! up, locks it and changes it, without a plan.
//!
//! Always true: what is not there when it is looked up takes no lock, as where a plan finds nothing.

use super::remembered;
use crate::context::{OpContext, StatementOutcome};
use crate::examined::note_id_lookup;
use crate::exec::copied_bytes;
use crate::plan_cache::PlanCache;
use crate::point::{self, KeyValues};
use bson::raw::{RawBsonRef, RawDocument};
use catalog::{Collection, Namespace, Txn, snapshot_unavailable};
use errors::Result;
use std::sync::Arc;

/// The document to change: its collection, its key there, and what it holds now.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) collection: &'a Arc<Collection>,
    pub(super) key: &'a [u8],
    pub(super) document: &'a RawDocument,
}

/// What a transaction met under the `_id`.
enum Attempt<T> {
    /// Nothing when it was looked up, or nothing any more when it was locked.
    Nothing,
    /// The collection is another one by now.
    OtherCollection,
    Done(T),
}

/// The `_id` by which a statement names its document. `None` where it must be planned: by its filter,
/// by what the collection is, or because an operator has said which indexes queries may use.
pub(super) fn id_of<'a>(
    collection: Option<&Collection>,
    filter: &'a RawDocument,
) -> Result<Option<RawBsonRef<'a>>> {
    let applies = collection.is_none_or(needs_no_plan);
    if applies { point::id_of(filter) } else { Ok(None) }
}

/// The values of the primary key by which a statement names its document, as [`id_of`].
pub(super) fn key_of<'a>(
    collection: &Collection,
    filter: &'a RawDocument,
) -> Result<Option<KeyValues<'a>>> {
    if needs_no_plan(collection) { point::key_of(collection, filter) } else { Ok(None) }
}

fn needs_no_plan(collection: &Collection) -> bool {
    point::has_ids(collection) && !PlanCache::of(collection).has_filters()
}

/// Has `change` change the document of an `_id`; `None` where there is none. `describe` tells a
/// retryable write's memory of it, see [`remembered`].
pub(super) fn write<T>(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    id: RawBsonRef<'_>,
    mut change: impl FnMut(&mut Txn, Found<'_>) -> Result<T>,
    describe: impl Fn(&T) -> Vec<(usize, StatementOutcome)>,
) -> Result<Option<T>> {
    let mut noted = false;
    let mut note = |collection: &Collection, found: bool| {
        if !std::mem::replace(&mut noted, true) {
            note_id_lookup(found);
            collection.note_id_lookup(found);
        }
    };
    loop {
        let step = |txn: &mut Txn| {
            let Some(collection) = txn.collection_to_read(ns)? else { return Ok(Attempt::Nothing) };
            if !point::has_ids(&collection) {
                // It was another one a moment ago.
                return Err(snapshot_unavailable());
            }
            let key = collection.find_record_key(id, |index, id_key| txn.get(index, id_key))?;
            let length = match &key {
                Some(key) => {
                    let value = txn.get_to_change(collection.primary_of(key), key)?;
                    value.map(|value| value.len())
                }
                None => None,
            };
            note(&collection, length.is_some());
            let (Some(key), Some(length)) = (key, length) else { return Ok(Attempt::Nothing) };
            limits::admit(copied_bytes(length))?;
            let current = txn.open_for_write(ns)?;
            let Some(current) = current.filter(|current| current.uuid() == collection.uuid())
            else {
                return Ok(Attempt::OtherCollection);
            };
            let (key, newest) = match txn.get_for_update(&current, &key)? {
                Some(newest) => (key, newest),
                None => match txn.get_moved_for_update(&current, id)? {
                    Some(moved) => moved,
                    None => return Ok(Attempt::Nothing),
                },
            };
            let document = RawDocument::from_bytes(&newest[..])?;
            change(txn, Found { collection: &current, key: &key, document }).map(Attempt::Done)
        };
        let outcomes = |met: &Attempt<T>| match met {
            Attempt::Done(done) => describe(done),
            Attempt::Nothing | Attempt::OtherCollection => Vec::new(),
        };
        match remembered(ctx, step, outcomes)? {
            Attempt::Done(done) => return Ok(Some(done)),
            Attempt::Nothing => return Ok(None),
            Attempt::OtherCollection => ctx.look_again()?,
        }
    }
}
