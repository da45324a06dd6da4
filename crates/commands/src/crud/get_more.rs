//! `getMore`: the next batch of a parked cursor.
//!
//! Always true: one that waits at the end of a tail holds no thread where whoever runs it can run it again, and
//! it waits no longer than from its first run on.

use crate::batch::{Filled, fill};
use crate::command::Command;
use crate::context::Context;
use crate::gate::refusal;
use crate::needs::Needs;
use bson::RawBsonRef;
use dispatch::fields::{Field, missing};
use dispatch::rules::Counter;
use errors::{Code, Error, Result};
use query::QueryCursor;
use serverstate::{Documents, Parked};
use session::{CursorGuard, CursorId, GetMoreRequest, Waiter};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) const GET_MORE: Command =
    Command::new("getMore", "The next batch of a cursor.", Needs::Login, run)
        .reads(Counter::GetMore)
        .goes_by_its_cursors()
        .api_v1();

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
    let namespace: Arc<str> = format!("{}.{collection}", context.database()).into();
    context.connection.operation.set_namespace(&namespace);
    let service = context.service;
    let number = context.connection.operation.number();
    let request = GetMoreRequest {
        namespace: &namespace,
        user: context.admitted.digest(),
        session: context.arguments.session,
        transaction: context.transaction(),
        connection: context.bound_to(),
        operation: number,
    };
    let has_waited = context.request.waited_until.is_some();
    let mut out = if has_waited {
        service.cursors.check_out_awaited(id, context.connection.id(), number)?
    } else {
        service.cursors.check_out(id, request)?
    };
    // What was allowed when it was opened may not be any more.
    if !out.cursor().required.iter().all(|privilege| context.admitted.may(privilege)) {
        out.park(context.started);
        return Err(refusal(context.database(), context.command, context.body));
    }
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
    if parked.time_left.is_some() && !has_waited {
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
        let tailed = tail(context, parked, size);
        match tailed.map_err(|error| if is_stream { resumable(error) } else { error })? {
            Tailed::Filled(filled) => filled,
            Tailed::Waits(until, waiter) => return park_until(context, out, until, waiter),
        }
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
                user: context.admitted.digest(),
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

/// What came of a batch at the end of a tail.
enum Tailed {
    /// This goes to the client.
    Filled(Filled),
    /// Nothing yet: the request is to be run again at this server time, or when it is told of news.
    Waits(Duration, Waiter),
}

/// What a batch has found at the end of a tail.
#[derive(Clone, Copy)]
struct AtEnd {
    /// There are documents, or there will be no more.
    is_filled: bool,
    /// The client wants to wait for more.
    awaits: bool,
    /// What is left of the time that it may wait.
    left: Duration,
    /// The request can be run again.
    can_park: bool,
}

/// What is to be done at the end of a tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Answer,
    /// Wait on no thread.
    Park,
    /// Wait on this thread, so long at most, and look again.
    Wait(Duration),
}

fn decide(at: AtEnd) -> Next {
    if at.is_filled || !at.awaits || at.left.is_zero() {
        return Next::Answer;
    }
    if at.can_park { Next::Park } else { Next::Wait(at.left.min(TURN)) }
}

/// Fills a batch from the end of a tail. Where there is nothing it waits for more.
fn tail(context: &mut Context<'_>, parked: &mut Parked, size: u64) -> Result<Tailed> {
    let longest = context.arguments.max_time_ms.map_or(AWAIT, Duration::from_millis);
    let first = context.request.waited_until;
    let until = first.unwrap_or_else(|| context.started.saturating_add(longest));
    loop {
        if let Documents::Query(cursor) = &mut parked.documents {
            cursor.check_alive()?;
            cursor.refresh();
        }
        let filled = fill(&mut context.reply, parked, size)?;
        let Documents::Query(cursor) = &parked.documents else {
            return Ok(Tailed::Filled(filled));
        };
        let now = context.now();
        let mut next = decide(AtEnd {
            is_filled: filled.count > 0 || filled.exhausted,
            awaits: parked.await_data,
            left: until.saturating_sub(now),
            can_park: context.request.waker.is_some(),
        });
        if next == Next::Answer {
            return Ok(Tailed::Filled(filled));
        }
        context.check_wait()?;
        if next == Next::Park {
            let waiter = waiter(context, cursor);
            // What was written before it was to be told of news must be found now.
            if cursor.has_news() {
                continue;
            }
            match waiter {
                Some(waiter) => return Ok(Tailed::Waits(until, waiter)),
                None => next = Next::Wait(TURN.min(until.saturating_sub(now))),
            }
        }
        if let Next::Wait(time) = next {
            cursor.wait(now, time);
            context.waited += context.now().saturating_sub(now);
        }
    }
}

/// Has the request run again when there is news for the cursor.
fn waiter(context: &Context<'_>, cursor: &QueryCursor) -> Option<Waiter> {
    let wake = context.request.waker.map(|maker| (maker.0)())?;
    let watch = cursor.watch(&wake)?;
    Some(Waiter { connection: context.connection.id(), wake, watch })
}

/// Keeps the cursor for this request, which waits for more on no thread.
fn park_until(
    context: &mut Context<'_>,
    mut out: CursorGuard<'_, Parked>,
    until: Duration,
    waiter: Waiter,
) -> Result<()> {
    if let Documents::Query(cursor) = &mut out.cursor().documents {
        cursor.park();
    }
    // Where that goes nobody is left to ask for it.
    context.connection.own_cursor.store(out.id().0, Ordering::Relaxed);
    if !out.await_more(waiter, context.now()) {
        return Err(Error::new(Code::CURSOR_KILLED, "cursor was killed"));
    }
    context.wait = Some(until);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_at_the_end_of_a_tail_does_so_on_no_thread_where_that_can_be() {
        let (short, long) = (Duration::from_millis(30), Duration::from_secs(9));
        // Filled, awaits, time left, can be run again.
        let table = [
            ((true, true, long, true), Next::Answer),
            ((false, false, long, true), Next::Answer),
            ((false, true, Duration::ZERO, true), Next::Answer),
            ((false, true, long, true), Next::Park),
            ((false, true, long, false), Next::Wait(TURN)),
            ((false, true, short, false), Next::Wait(short)),
        ];
        for ((is_filled, awaits, left, can_park), next) in table {
            let at = AtEnd { is_filled, awaits, left, can_park };
            assert_eq!(decide(at), next, "{is_filled} {awaits} {left:?} {can_park}");
        }
    }
}
