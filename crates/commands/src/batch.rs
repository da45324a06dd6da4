//! Cursor batches: documents copied into the reply until it is full, and the rest parked.
//!
//! What is always true:
//! 1. A batch holds at most 16 MiB of documents, or one document.
//! 2. A document that does not fit waits for the next batch; none is cut and none is lost.
//! 3. A reply with a cursor id other than 0 has a parked cursor behind it.

use crate::context::Context;
use crate::gate;
use auth::{Privilege, Resource};
use bson::{RawDocument, RawDocumentBuf};
use dispatch::fields::{Field, inner};
use dispatch::writer::{Open, Writer};
use errors::Result;
use query::Plans;
use serverstate::{Documents, Parked};
use session::NewCursor;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Documents of a first batch for which the client names no size.
pub(crate) const FIRST_BATCH: u64 = 101;
/// Bytes of documents in one batch.
const MAX_BATCH_BYTES: usize = 16 * 1024 * 1024;
/// Type, position and end of an element, and what a reply says after its batch.
const ELEMENT_BYTES: usize = 1024;
/// A batch with less room than this is full: the next document, which may be large, would have to be kept
/// until the next batch.
const NEARLY_FULL_BYTES: usize = 4096;
/// Up to here a reply grows by doubling.
const GROWING_BYTES: usize = 2 << 20;
/// What is reserved for a first batch at most, before it is known.
const MAX_RESERVED_BYTES: usize = 128 * 1024;

/// What a client asks of a new cursor.
#[derive(Default)]
pub(crate) struct CursorOptions {
    /// `batchSize`; none takes the default.
    pub(crate) batch_size: Option<u64>,
    /// One batch and no cursor.
    pub(crate) single_batch: bool,
    /// The cursor outlives idleness.
    pub(crate) no_timeout: bool,
    /// At its end the cursor waits for more.
    pub(crate) await_data: bool,
}

/// Writes `cursor: {firstBatch, id, ns}` and parks what is left.
pub(crate) fn first_batch(
    context: &mut Context<'_>,
    namespace: &str,
    documents: Documents,
    limit: Option<u64>,
    wanted: &CursorOptions,
) -> Result<()> {
    let await_data = wanted.await_data;
    let mut parked = Parked {
        documents,
        remaining: limit,
        returned: 0,
        batch_bytes: 0,
        await_data,
        time_left: None,
        plans: Plans::default(),
        command: None,
        required: Vec::new(),
        memory: None,
    };
    let (open, list) = context.reply.begin_first_batch();
    let size = wanted.batch_size.unwrap_or(FIRST_BATCH);
    let filled = fill(&mut context.reply, &mut parked, size)?;
    context.reply.end(list);
    note_returned(context, filled.count, filled.exhausted);
    let id = if filled.exhausted || wanted.single_batch {
        0
    } else {
        parked.charge()?;
        park_new(context, namespace, parked, wanted.no_timeout)
    };
    context.figures.cursor = id;
    if let Some(token) = &filled.resume_token {
        context.reply.document("postBatchResumeToken", token);
    }
    end_cursor(context, open, id, namespace);
    Ok(())
}

/// Whether a first batch knows that a document in it was the only one. With room for just that a cursor is left, as in
/// MongoDB, whose next batch is empty.
pub(crate) fn is_whole_in_batch(limit: Option<u64>, wanted: &CursorOptions) -> bool {
    match wanted.batch_size {
        Some(0) => false,
        Some(1) => limit == Some(1),
        None | Some(_) => true,
    }
}

/// As [`first_batch`], where this document or none is the whole answer.
pub(crate) fn batch_of_one(
    context: &mut Context<'_>,
    namespace: &str,
    document: Option<&RawDocument>,
) -> Result<()> {
    let (open, list) = context.reply.begin_first_batch();
    if let Some(document) = document {
        // First: nothing large is taken before the operation is admitted for it.
        make_room(&mut context.reply, document)?;
        context.reply.reserve(document.as_bytes().len() + ELEMENT_BYTES);
        context.reply.element_document(0, document);
    }
    context.reply.end(list);
    note_returned(context, u64::from(document.is_some()), true);
    end_cursor(context, open, 0, namespace);
    Ok(())
}

fn note_returned(context: &mut Context<'_>, count: u64, exhausted: bool) {
    context.service.metrics.documents_returned.fetch_add(count, Ordering::Relaxed);
    context.figures.returned = Some(count);
    context.figures.exhausted = exhausted;
}

/// Ends `cursor` with what follows its batch.
fn end_cursor(context: &mut Context<'_>, open: Open, id: i64, namespace: &str) {
    context.reply.i64("id", id);
    context.reply.str("ns", namespace);
    if let Some((time, _)) = context.read_state {
        context.reply.timestamp("atClusterTime", time);
    }
    context.reply.end(open);
}

fn park_new(context: &Context<'_>, namespace: &str, mut parked: Parked, no_timeout: bool) -> i64 {
    let now = context.now();
    if let Documents::Query(cursor) = &mut parked.documents {
        cursor.park();
    }
    parked.plans = query::plans_taken();
    parked.command = Some(context.body.to_owned());
    parked.time_left =
        context.connection.operation.deadline().map(|deadline| deadline.saturating_sub(now));
    parked.required = gate::privileges(
        &context.admitted,
        context.registry,
        context.request,
        context.command,
        context.body,
    );
    parked.required.extend(context.resolved().map(|(namespace, actions)| Privilege {
        resource: Resource::Collection(
            namespace.database().to_owned(),
            namespace.collection().to_owned(),
        ),
        actions: *actions,
    }));
    let new = NewCursor {
        namespace: Arc::from(namespace),
        user: context.admitted.digest(),
        session: context.arguments.session,
        transaction: context.transaction(),
        connection: context.bound_to(),
        no_timeout,
        cursor: parked,
    };
    let entropy = &context.service.os.entropy;
    context.service.cursors.park_new(new, now, || entropy.next_u64()).0
}

/// What went into a batch.
pub(crate) struct Filled {
    pub(crate) count: u64,
    /// There is nothing more to come.
    pub(crate) exhausted: bool,
    /// From where a change stream would go on behind the batch.
    pub(crate) resume_token: Option<RawDocumentBuf>,
}

/// Copies documents into the open array until it holds `size`, is full, or all are there.
pub(crate) fn fill(reply: &mut Writer, parked: &mut Parked, size: u64) -> Result<Filled> {
    let start = reply.len();
    let (count, exhausted) = copy(reply, parked, size)?;
    parked.batch_bytes = reply.len() - start;
    let resume_token = match &parked.documents {
        Documents::Query(cursor) => cursor.resume_token(),
        Documents::List(_) => None,
    };
    Ok(Filled { count, exhausted, resume_token })
}

/// How many documents were copied, and whether that was all.
fn copy(reply: &mut Writer, parked: &mut Parked, size: u64) -> Result<(u64, bool)> {
    let start = reply.len();
    let mut count = 0;
    while count < size {
        if parked.remaining == Some(0) {
            return Ok((count, true));
        }
        if count > 0 && reply.len() - start + NEARLY_FULL_BYTES > MAX_BATCH_BYTES {
            return Ok((count, false));
        }
        let added = match &mut parked.documents {
            Documents::Query(cursor) => {
                let most = cursor.most().unwrap_or(u64::MAX);
                match cursor.next()? {
                    None => Added::End,
                    Some(document) if fits(reply.len() - start, count, document) => {
                        if count == 0 {
                            let more = size.min(parked.remaining.unwrap_or(size)).min(most);
                            reply.reserve(estimate(document, more, parked.batch_bytes));
                        }
                        make_room(reply, document)?;
                        reply.element_document(count as usize, document);
                        Added::Yes
                    }
                    Some(document) => {
                        let document = document.to_owned();
                        cursor.push_front(document);
                        Added::Full
                    }
                }
            }
            Documents::List(list) => match list.as_slice().first() {
                None => Added::End,
                Some(document) if fits(reply.len() - start, count, document) => {
                    make_room(reply, document)?;
                    reply.element_document(count as usize, document);
                    list.next();
                    Added::Yes
                }
                Some(_) => Added::Full,
            },
        };
        match added {
            Added::Yes => {
                count += 1;
                parked.returned += 1;
                if let Some(remaining) = &mut parked.remaining {
                    *remaining -= 1;
                }
            }
            Added::Full => return Ok((count, false)),
            Added::End => return Ok((count, !parked.is_tailable())),
        }
    }
    let exhausted = match &parked.documents {
        _ if parked.remaining == Some(0) => true,
        Documents::List(list) => list.as_slice().is_empty(),
        // Whether more is there is found out by the next batch, as in MongoDB.
        Documents::Query(_) => false,
    };
    Ok((count, exhausted))
}

/// Has the operation admitted for a reply with this document in it too. A reply that gets large gets room
/// for all that it may hold at once, so that it is not copied again and again as it grows.
fn make_room(reply: &mut Writer, document: &RawDocument) -> Result<()> {
    let bytes = reply.len() + document.as_bytes().len() + ELEMENT_BYTES;
    limits::admit(bytes)?;
    if bytes > GROWING_BYTES && bytes > reply.capacity() {
        reply.reserve_exact((MAX_BATCH_BYTES + ELEMENT_BYTES).max(bytes) - reply.len());
    }
    Ok(())
}

enum Added {
    Yes,
    Full,
    End,
}

/// Bytes that a batch of so many documents will take, by its first; no more than are worth it, or than the batch before
/// had, and some.
fn estimate(first: &RawDocument, count: u64, before: usize) -> usize {
    // Type, position and NUL of the element.
    let each = first.as_bytes().len() + 8;
    let most = MAX_RESERVED_BYTES.max((before + before / 8).min(MAX_BATCH_BYTES));
    usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(each).min(most)
}

fn fits(bytes: usize, count: u64, document: &RawDocument) -> bool {
    count == 0 || bytes + document.as_bytes().len() <= MAX_BATCH_BYTES
}

/// `cursor: {batchSize}` of the commands that list things.
pub(crate) fn parse_list_cursor(field: &Field<'_>, place: &str) -> Result<CursorOptions> {
    let mut wanted = CursorOptions::default();
    for part in inner(field.document()?, place) {
        let part = part?;
        match part.name {
            "batchSize" => wanted.batch_size = Some(part.non_negative()?),
            _ => return Err(part.unknown()),
        }
    }
    // Lists are short; their default batch is only bounded by size.
    wanted.batch_size = wanted.batch_size.or(Some(u64::MAX));
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::{MAX_BATCH_BYTES, MAX_RESERVED_BYTES, estimate};
    use bson::rawdoc;

    #[test]
    fn room_is_made_for_what_is_asked_for_or_for_as_much_as_the_batch_before_had() {
        let document = rawdoc! { "a": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0; 979] } };
        assert_eq!(document.as_bytes().len(), 992);
        // How many documents are asked for, the bytes of the batch before, and the room.
        for (count, before, room) in [
            (0, 0, 0),
            (101, 0, 101_000),
            (5000, 0, MAX_RESERVED_BYTES),
            (u64::MAX, 0, MAX_RESERVED_BYTES),
            (u64::MAX, 8000, MAX_RESERVED_BYTES),
            (5000, 4_960_000, 5_000_000),
            (u64::MAX, 800_000, 900_000),
            (10, MAX_BATCH_BYTES, 10_000),
            (u64::MAX, MAX_BATCH_BYTES, MAX_BATCH_BYTES),
        ] {
            assert_eq!(estimate(&document, count, before), room, "{count} {before}");
        }
    }
}
