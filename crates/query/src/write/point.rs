//! Writes to one document that a statement names by its `_id` and nothing else: one transaction looks it
//! up, locks it and changes it, without a plan.
//!
//! Always true: what is not there when it is looked up waits for no lock and keeps none, as where a plan finds
//! nothing. A statement of its own takes the lock and then looks, once, where nobody has to be waited for; any other
//! looks first.

use super::remembered;
use crate::context::{OpContext, StatementOutcome};
use crate::examined::note_id_lookup;
use crate::exec::copied_bytes;
use crate::point::{self, KeyValues, needs_no_plan};
use bson::raw::{RawBsonRef, RawDocument};
use catalog::{Collection, Namespace, Txn, snapshot_unavailable};
use engine::Value;
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
    /// A document for which there may have to be waited for memory first.
    Large,
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
    // A client's transaction keeps its locks, so it looks before it locks.
    let mut at_once = ctx.txn.is_none();
    loop {
        let step = |txn: &mut Txn| {
            if at_once && let Some(locked) = lock_at_once(txn, ns, id)? {
                let Locked { collection, key, newest } = locked;
                note(&collection, newest.is_some());
                let Some(newest) = newest else { return Ok(Attempt::Nothing) };
                if limits::must_wait_for(copied_bytes(newest.len())) {
                    return Ok(Attempt::Large);
                }
                let document = RawDocument::from_bytes(&newest[..])?;
                let found = Found { collection: &collection, key: &key, document };
                return change(txn, found).map(Attempt::Done);
            }
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
            let Some(Locked { collection, key, newest }) =
                lock_found(txn, ns, id, (&collection, key))?
            else {
                return Ok(Attempt::OtherCollection);
            };
            let Some(newest) = newest else { return Ok(Attempt::Nothing) };
            let document = RawDocument::from_bytes(&newest[..])?;
            let found = Found { collection: &collection, key: &key, document };
            change(txn, found).map(Attempt::Done)
        };
        let outcomes = |met: &Attempt<T>| match met {
            Attempt::Done(done) => describe(done),
            Attempt::Nothing | Attempt::Large | Attempt::OtherCollection => Vec::new(),
        };
        match remembered(ctx, step, outcomes)? {
            Attempt::Done(done) => return Ok(Some(done)),
            Attempt::Nothing => return Ok(None),
            // Nobody waits for memory with a lock in hand.
            Attempt::Large => at_once = false,
            Attempt::OtherCollection => ctx.look_again()?,
        }
    }
}

/// A document that is locked; `newest` is `None` where none stands under the key.
struct Locked {
    collection: Arc<Collection>,
    key: Vec<u8>,
    newest: Option<Value>,
}

/// Locks the document of an `_id` and reads it once, where the lock is free and the key is made of the `_id` alone.
/// `None`, and nothing was done, where it has to be looked up first.
fn lock_at_once(txn: &mut Txn, ns: &Namespace, id: RawBsonRef<'_>) -> Result<Option<Locked>> {
    let Some(collection) = txn.open_for_write_at_once(ns)? else { return Ok(None) };
    if !point::has_ids(&collection) || collection.id_index().is_some() {
        return Ok(None);
    }
    let key = collection.id_key(id)?;
    let locked = txn.get_for_update_at_once(&collection, &key)?;
    Ok(locked.map(|newest| Locked { collection, key, newest }))
}

/// Locks the document of an `_id`, which was found under a key of the collection that had the name then, and reads its
/// newest version. `None` where another collection has the name.
fn lock_found(
    txn: &mut Txn,
    ns: &Namespace,
    id: RawBsonRef<'_>,
    (found_in, key): (&Collection, Vec<u8>),
) -> Result<Option<Locked>> {
    let current = txn.open_for_write(ns)?;
    let Some(collection) = current.filter(|current| current.uuid() == found_in.uuid()) else {
        return Ok(None);
    };
    if let Some(newest) = txn.get_for_update(&collection, &key)? {
        return Ok(Some(Locked { collection, key, newest: Some(newest) }));
    }
    let (key, newest) = match txn.get_moved_for_update(&collection, id)? {
        Some((key, newest)) => (key, Some(newest)),
        None => (key, None),
    };
    Ok(Some(Locked { collection, key, newest }))
}
