//! `getMore`: the next batch of a parked cursor.

use crate::batch::{Filled, fill};
use crate::command::Command;
use crate::context::Context;
use bson::RawBsonRef;
use dispatch::fields::{Field, missing};
use dispatch::rules::Counter;
use errors::{Code, Error, Result};
use serverstate::{Documents, Parked};
use session::{CursorId, GetMoreRequest};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) const GET_MORE: Command =
    Command::new("getMore", "The next batch of a cursor.", run).reads(Counter::GetMore).api_v1();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let id = CursorId(fields[0].long()?);
    let mut collection = None;
    let mut batch_size = None;
    for field in &fields[1..] {
        match field.name {
            "collection" => collection = Some(field.str()?),
            "batchSize" => batch_size = Some(field.non_negative()?),
            "term" | "lastKnownCommittedOpTime" => {}
            _ => return Err(field.unknown()),
        }
    }
    let collection = collection.ok_or_else(|| missing("getMore", "collection"))?;
    if collection.is_empty() {
        return Err(Error::new(
            Code::INVALID_NAMESPACE,
            "Collection names cannot be empty".to_owned(),
        ));
    }
    let namespace = format!("{}.{collection}", context.database());
    context.connection.operation.set_namespace(context.database(), collection);
    let service = context.service;
    let number = context.connection.operation.number();
    let request = GetMoreRequest {
        namespace: &namespace,
        session: context.arguments.session,
        transaction: context.transaction(),
        connection: context.bound_to(),
        operation: number,
    };
    let mut out = service.cursors.check_out(id, request)?;
    if context.arguments.max_time_ms.is_some() && !out.cursor().await_data {
        // The cursor itself is fine and stays.
        out.park(context.started);
        return Err(Error::bad_value(
            "cannot set maxTimeMS on getMore command for a non-awaitData cursor",
        ));
    }
    let parked = out.cursor();
    let is_stream = matches!(&parked.documents, Documents::Query(c) if c.is_change_stream());
    query::restore_plan_summary(&parked.plans);
    context.figures.cursor = id.0;
    context.figures.originating.clone_from(&parked.command);
    if parked.time_left.is_some() {
        service.fail_points.check_time()?;
    }
    // Of a tail the time is the longest wait, and its end is no error.
    let time_left = parked.time_left.filter(|_| !parked.is_tailable());
    let deadline = time_left.map(|left| context.started + left);
    context.connection.operation.set_deadline(deadline);
    if let Documents::Query(cursor) = &mut parked.documents {
        cursor.resume(context.interrupt())?;
    }
    context.check_interrupt()?;
    let open = context.reply.begin_document("cursor");
    let list = context.reply.begin_array("nextBatch");
    let size = batch_size.filter(|size| *size > 0).unwrap_or(u64::MAX);
    let before = parked.returned;
    let filled = if parked.is_tailable() {
        tail(context, parked, size)
            .map_err(|error| if is_stream { resumable(error) } else { error })?
    } else {
        fill(&mut context.reply, parked, size)?
    };
    context.reply.end(list);
    if let Some(token) = &filled.resume_token {
        context.reply.document("postBatchResumeToken", token);
    }
    if context.request.op.is_legacy() {
        context.reply.number("startingFrom", before);
    }
    service.metrics.documents_returned.fetch_add(filled.count, Ordering::Relaxed);
    context.figures.returned = Some(filled.count);
    context.figures.exhausted = filled.exhausted;
    let now = context.now();
    parked.time_left = deadline.map(|deadline| deadline.saturating_sub(now));
    let mut left = 0;
    if filled.exhausted {
        drop(out);
    } else {
        if let Documents::Query(cursor) = &mut parked.documents {
            cursor.park();
        }
        parked.charge()?;
        if !out.park(now) {
            return Err(Error::new(Code::CURSOR_KILLED, "cursor was killed"));
        }
        left = id.0;
    }
    context.reply.i64("id", left);
    context.reply.str("ns", &namespace);
    context.reply.end(open);
    if context.request.exhaust_allowed && left != 0 {
        context.exhaust = Some(context.body.to_owned());
    }
    Ok(())
}

/// Whether a request opens a change stream, or asks one for more.
pub(crate) fn is_of_change_stream(context: &Context<'_>) -> bool {
    match context.command.name {
        "aggregate" => match context.body.get("pipeline") {
            Ok(Some(RawBsonRef::Array(stages))) => match stages.into_iter().next() {
                Some(Ok(RawBsonRef::Document(first))) => {
                    matches!(first.get("$changeStream"), Ok(Some(_)))
                }
                _ => false,
            },
            _ => false,
        },
        "getMore" => {
            let id = context.body.get("getMore").ok().flatten().and_then(RawBsonRef::as_i64);
            let collection = context.body.get_str("collection");
            let (Some(id), Ok(collection)) = (id, collection) else { return false };
            let request = GetMoreRequest {
                namespace: &format!("{}.{collection}", context.database()),
                session: context.arguments.session,
                transaction: None,
                connection: context.bound_to(),
                operation: context.connection.operation.number(),
            };
            let Ok(mut out) = context.service.cursors.check_out(CursorId(id), request) else {
                return false;
            };
            let is_stream =
                matches!(&out.cursor().documents, Documents::Query(c) if c.is_change_stream());
            out.park(context.now());
            is_stream
        }
        _ => false,
    }
}

/// Marks an error after which a client opens the stream again where it was.
pub(crate) fn resumable(error: Error) -> Error {
    const CODES: [Code; 17] = [
        Code(6),
        Code(7),
        Code(63),
        Code(89),
        Code(91),
        Code(133),
        Code(189),
        Code(234),
        Code(262),
        Code(10107),
        Code(11600),
        Code(11602),
        Code(13435),
        Code(13436),
        Code(9001),
        Code(150),
        Code(13388),
    ];
    if CODES.contains(&error.code()) {
        return error.with_label("ResumableChangeStreamError");
    }
    error
}

/// How long a batch of a tail waits for more where the client does not say.
const AWAIT: Duration = Duration::from_secs(1);
/// A commit wakes who waits; whether to go on waiting is asked this often.
const TURN: Duration = Duration::from_millis(100);

/// Fills a batch from the end of a capped collection, waiting for more where there is nothing.
fn tail(context: &mut Context<'_>, parked: &mut Parked, size: u64) -> Result<Filled> {
    let longest = context.arguments.max_time_ms.map_or(AWAIT, Duration::from_millis);
    let began = context.now();
    loop {
        if let Documents::Query(cursor) = &mut parked.documents {
            cursor.check_alive()?;
            cursor.refresh();
        }
        let filled = fill(&mut context.reply, parked, size)?;
        if filled.count > 0 || filled.exhausted || !parked.await_data {
            return Ok(filled);
        }
        let Documents::Query(cursor) = &mut parked.documents else { return Ok(filled) };
        loop {
            let waited = context.now().saturating_sub(began);
            let left = longest.saturating_sub(waited);
            if left.is_zero() {
                context.waited += waited;
                return Ok(filled);
            }
            if cursor.wait(context.now(), left.min(TURN)) {
                break;
            }
            context.check_interrupt()?;
        }
    }
}
