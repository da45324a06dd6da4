//! `insert`: batches of documents, many in one engine transaction.
//!
//! Always true: a document that fails leaves nothing; the others of the batch stay, unless the
//! batch is to be all or nothing ([`Atomicity::Insert`]).

use super::apply::next_timestamp;
use super::{
    CHUNK_BYTES, CHUNK_DOCUMENTS, UntilFull, as_a_whole, check_target, is_full, new_object_id,
    note, remembered,
};
use crate::context::{Atomicity, OpContext, StatementOutcome};
use crate::fast_updates::FastUpdates;
use crate::request::{InsertRequest, InsertResult, WriteError};
use bson::Timestamp;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::spec::ElementType;
use bsonval::raw::{self, Element};
use catalog::{Collection, Namespace, Txn, check_value};
use errors::{Code, Error, Result};
use limits::MAX_DOCUMENT_BYTES;
use os::Os;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use update::check_stored_id;

/// Inserts documents, creating the collection where it does not exist.
pub fn insert(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &InsertRequest<'_>,
) -> Result<InsertResult> {
    let exists = check_target(ctx, ns)?.is_some();
    if ctx.atomicity != Atomicity::Insert {
        return insert_parts(ctx, (ns, exists), request);
    }
    let mut failed = None;
    let inserted = as_a_whole(ctx, |ctx| {
        let result = insert_parts(ctx, (ns, exists), request)?;
        match result.errors.into_iter().next() {
            Some(error) => Err(failed.insert(error).error.clone()),
            None => Ok(result.n),
        }
    });
    match (inserted, failed) {
        (Ok(n), _) => Ok(InsertResult { n, ..InsertResult::default() }),
        (Err(error), Some(failed)) if error.code() == failed.error.code() => {
            Ok(InsertResult { errors: vec![failed], ..InsertResult::default() })
        }
        (Err(error), _) => Err(error),
    }
}

/// `exists`: there was a collection of that name a moment ago.
fn insert_parts(
    ctx: &mut OpContext<'_>,
    (ns, mut exists): (&Namespace, bool),
    request: &InsertRequest<'_>,
) -> Result<InsertResult> {
    let mut result = InsertResult::default();
    let done = done_before(ctx, request.documents.len())?;
    result.n = done.iter().filter(|done| **done).count() as u64;
    let (mut next, mut space) = (0, UntilFull::default());
    let unchecked = |fast: &FastUpdates| fast.skips_unique_checks.load(Ordering::Relaxed);
    let insert_one: InsertOne = if ctx.fast_updates.is_some_and(unchecked) {
        Txn::insert_unchecked
    } else {
        Txn::insert_document
    };
    while next < request.documents.len() {
        let end = chunk_end(request.documents, next);
        let chunk = prepare(ctx, &request.documents[next..end]);
        let skip = done.get(next..end).unwrap_or_default();
        let step =
            |txn: &mut Txn| insert_chunk(txn, ns, (&chunk, skip), insert_one, request.ordered);
        let outcomes = |part: &InsertResult| {
            runs_of(part, skip, end - next, request.ordered)
                .map(|(first, count)| (next + first, StatementOutcome::Inserted(count)))
                .collect()
        };
        let insert = || {
            if !std::mem::take(&mut exists) {
                ensure(ctx, ns)?;
            }
            remembered(ctx, step, outcomes)
        };
        let part = match space.run(insert) {
            Err(error) if is_full(&error) => none_of(end - next, skip, &error, request.ordered),
            part => part?,
        };
        result.n += part.n;
        let mut stop = false;
        for WriteError { index, error } in part.errors {
            stop |= note(&mut result.errors, next + index, error, request.ordered)?;
        }
        if stop {
            break;
        }
        next = end;
    }
    Ok(result)
}

/// A chunk for which there was no room.
fn none_of(count: usize, skip: &[bool], error: &Error, ordered: bool) -> InsertResult {
    let missing = (0..count).filter(|index| skip.get(*index) != Some(&true));
    let errors = missing.map(|index| WriteError { index, error: error.clone() });
    let errors = errors.take(if ordered { 1 } else { count }).collect();
    InsertResult { errors, ..InsertResult::default() }
}

/// Which documents of a retryable write were inserted when it was sent before; empty where it is
/// none.
fn done_before(ctx: &mut OpContext<'_>, count: usize) -> Result<Vec<bool>> {
    if ctx.statements.is_none() {
        return Ok(Vec::new());
    }
    (0..count).map(|index| Ok(ctx.done(index)?.is_some())).collect()
}

/// The documents that a chunk has inserted, as runs of neighbours: the first and how many.
fn runs_of(
    part: &InsertResult,
    skip: &[bool],
    count: usize,
    ordered: bool,
) -> impl Iterator<Item = (usize, u32)> {
    let failed = |index: usize| part.errors.iter().any(|error| error.index == index);
    let end = part.errors.first().filter(|_| ordered).map_or(count, |error| error.index);
    let mut runs: Vec<(usize, u32)> = Vec::new();
    for index in 0..end {
        if skip.get(index) == Some(&true) || failed(index) {
            continue;
        }
        match runs.last_mut() {
            Some((first, length)) if *first + *length as usize == index => *length += 1,
            _ => runs.push((index, 1)),
        }
    }
    runs.into_iter()
}

/// Creates the collection outside of a statement's own transaction: others may use it at once.
fn ensure(ctx: &OpContext<'_>, ns: &Namespace) -> Result<()> {
    if ctx.txn.is_none() {
        ctx.catalog.ensure_collection(ns)?;
    }
    Ok(())
}

fn chunk_end(documents: &[&RawDocument], start: usize) -> usize {
    let mut bytes = 0;
    let mut end = start;
    while end < documents.len() && end - start < CHUNK_DOCUMENTS && bytes < CHUNK_BYTES {
        bytes += documents[end].as_bytes().len();
        end += 1;
    }
    end
}

/// What asks for the time of the write.
const EMPTY_TIMESTAMP: RawBsonRef<'_> = RawBsonRef::Timestamp(Timestamp { time: 0, increment: 0 });

/// A document fit for storing, or why it is not. Made once, however often the chunk repeats.
type Prepared<'a> = Result<Cow<'a, RawDocument>>;

fn prepare<'a>(ctx: &OpContext<'_>, documents: &[&'a RawDocument]) -> SmallVec<[Prepared<'a>; 1]> {
    let (os, keep) = (ctx.catalog.os(), ctx.keep_empty_timestamps);
    let mut prepared = SmallVec::with_capacity(documents.len());
    for document in documents {
        prepared.push(fit(os, document, keep));
    }
    prepared
}

/// A document of a client as it is stored, or why it is not.
pub(crate) fn fit<'a>(
    os: &Os,
    document: &'a RawDocument,
    keep_empty_timestamps: bool,
) -> Prepared<'a> {
    let fitted = checked_as_stored(os, document, keep_empty_timestamps, true)?;
    check_size(&fitted)?;
    Ok(fitted)
}

/// Refuses what is larger than a document may be.
pub(crate) fn check_size(document: &RawDocument) -> Result<()> {
    let size = document.as_bytes().len();
    if size > MAX_DOCUMENT_BYTES {
        return Err(Error::new(
            Code::BAD_VALUE,
            format!(
                "object to insert too large. size in bytes: {size}, max size: {MAX_DOCUMENT_BYTES}"
            ),
        ));
    }
    Ok(())
}

/// A document as it is stored. `_id` is its first field, made where the client gave none, and
/// refused where it stands twice or has a value that no `_id` has; empty timestamps at the top
/// become the time of now, unless they are to be kept.
pub(crate) fn as_stored<'a>(
    os: &Os,
    document: &'a RawDocument,
    keep_empty_timestamps: bool,
) -> Prepared<'a> {
    // Its values were checked, or made by the server.
    checked_as_stored(os, document, keep_empty_timestamps, false)
}

/// The same, which checks each value where that was not done.
fn checked_as_stored<'a>(
    os: &Os,
    document: &'a RawDocument,
    keep_empty_timestamps: bool,
    checks_values: bool,
) -> Prepared<'a> {
    let (mut id, mut id_is_first, mut has_two, mut fills) = (None, false, false, false);
    let may_fill =
        |field: &Element<'_>| !keep_empty_timestamps && field.is_of(ElementType::Timestamp);
    // Most fields are none of these: there is nothing to be done for them.
    let matters = |field: &Element<'_>| {
        field.name_bytes() == b"_id"
            || may_fill(field)
            || (checks_values && !field.is_readable_leaf())
    };
    let mut fields = raw::elements(document);
    let all = fields.left();
    while let Some(field) = fields.next_of(matters) {
        let field = field?;
        if checks_values {
            check_value(&field)?;
        }
        if field.name_bytes() == b"_id" {
            has_two |= id.replace(field.value()?).is_some();
            id_is_first = fields.left() + field.bytes().len() == all;
        } else if may_fill(&field) {
            fills |= field.value()? == EMPTY_TIMESTAMP;
        }
    }
    if has_two {
        return Err(Error::bad_value("can't have multiple _id fields in one document"));
    }
    if let Some(id) = id {
        check_stored_id(id)?;
    }
    if id_is_first && !fills {
        return Ok(Cow::Borrowed(document));
    }
    let mut stored = RawDocumentBuf::new();
    stored.append(cstr!("_id"), id.unwrap_or_else(|| RawBsonRef::ObjectId(new_object_id(os))));
    for element in document {
        let (name, value) = element?;
        if name.as_str() == "_id" {
            continue;
        }
        if fills && value == EMPTY_TIMESTAMP {
            stored.append(name, RawBsonRef::Timestamp(next_timestamp(os.clock.wall_ms())));
        } else {
            stored.append(name, value);
        }
    }
    Ok(Cow::Owned(stored))
}

/// How a document comes into its collection.
type InsertOne = fn(&mut Txn, &Arc<Collection>, &RawDocument) -> Result<()>;

fn insert_chunk(
    txn: &mut Txn,
    ns: &Namespace,
    (documents, skip): (&[Prepared<'_>], &[bool]),
    insert_one: InsertOne,
    ordered: bool,
) -> Result<InsertResult> {
    let Some(collection) = txn.open_for_write(ns)? else {
        // Dropped since `ensure`, or to be made by the client's transaction.
        txn.ensure_collection(ns)?;
        return insert_chunk(txn, ns, (documents, skip), insert_one, ordered);
    };
    let mut result = InsertResult::default();
    for (index, prepared) in documents.iter().enumerate() {
        if skip.get(index) == Some(&true) {
            continue;
        }
        let inserted = match prepared {
            Ok(document) => insert_one(txn, &collection, document),
            Err(error) => Err(error.clone()),
        };
        match inserted {
            Ok(()) => result.n += 1,
            // Whatever else the chunk brings has no room either.
            Err(error) if is_full(&error) => return Err(error),
            Err(error) => {
                if note(&mut result.errors, index, error, ordered)? {
                    break;
                }
            }
        }
    }
    Ok(result)
}
