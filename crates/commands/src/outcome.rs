//! What came of a command, and what is done with that before it is answered: by who has run it, or later
//! ([`crate::unfinished`]).
//!
//! Always true: an answer ends in the same way whether its request waited without a thread or not.

use crate::command::Command;
use crate::replication::acknowledgement::Acknowledged;
use crate::replication::reply::write_topology_of_error;
use crate::replication::{cluster_time, write_concern};
use crate::transactions::labels::LabelFacts;
use catalog::Namespace;
use dispatch::reply::{write_error, write_labels};
use dispatch::write_concern::WriteConcern;
use dispatch::writer::Writer;
use errors::{Code, Error, Result};
use limits::{Charge, Part};
use serverstate::{Connection, ServerState};
use session::{CursorId, SessionId};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Smaller replies are not charged: the worker that sends one holds as much anyway.
const SMALL_REPLY: usize = 16 << 10;

/// What came of a command.
pub(crate) struct Outcome {
    pub(crate) result: Result<()>,
    /// What was done is not as sure as was asked for.
    pub(crate) not_durable: Option<Error>,
}

impl Outcome {
    /// What a command and the wait behind it came to.
    pub(crate) fn of(command: &Command, result: Result<()>, acknowledged: Acknowledged) -> Self {
        match acknowledged {
            Acknowledged::Answers(Ok(())) => Self { result, not_durable: None },
            // Where the reply has no place for it, the wait's error is the command's.
            Acknowledged::Answers(Err(error)) if !command.takes_write_concern => {
                Self { result: result.and(Err(error)), not_durable: None }
            }
            Acknowledged::Answers(Err(error)) => Self { result, not_durable: Some(error) },
            // Nobody sees what was done, or it is not known whether anybody will.
            Acknowledged::Fails(error) => Self { result: Err(error), not_durable: None },
        }
    }

    /// With labels at its error.
    pub(crate) fn labelled(self, label: impl FnOnce(Error) -> Error) -> Self {
        Self { result: self.result.map_err(label), ..self }
    }
}

/// Ends a reply with what came of its command, and of the wait behind it.
pub(crate) fn write_outcome(
    state: &ServerState,
    reply: &mut Writer,
    (command, concern): (&Command, &WriteConcern<'_>),
    outcome: &Outcome,
    labels: Option<LabelFacts>,
) {
    match &outcome.result {
        Ok(()) => reply.ok(),
        Err(error) => {
            reply.clear();
            write_error(reply, error);
            write_topology_of_error(state, reply, error.code());
        }
    }
    if command.takes_write_concern {
        // Beside an error too: it may be one for something that was done before.
        let not_durable = outcome.not_durable.as_ref();
        write_concern::write_error(concern, &state.replication, not_durable, reply);
        if let (Ok(()), Some(error), Some(labels)) = (&outcome.result, not_durable, labels) {
            write_labels(reply, labels.label_of_concern(error.code()).as_slice());
        }
    }
    cluster_time::write(state, reply);
}

/// Counts a command that has ended.
pub(crate) fn count_run(state: &ServerState, position: usize, failed: bool) {
    let runs = &state.metrics.runs[position];
    runs.total.fetch_add(1, Ordering::Relaxed);
    if failed {
        runs.failed.fetch_add(1, Ordering::Relaxed);
        state.metrics.user_asserts.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts the time that a command took.
pub(crate) fn count_time(
    state: &ServerState,
    command: &Command,
    collection: Option<&Namespace>,
    time: Duration,
) {
    state.metrics.finish(command.class, time);
    if let Some(namespace) = collection {
        let exists = || state.catalog.collection(namespace).is_some();
        state.metrics.top(namespace.as_str(), command.counter, time, exists);
    }
}

/// What a reply of so many bytes holds until it is sent; at first it was admitted for more.
pub(crate) fn reply_memory(
    state: &ServerState,
    admitted: Option<Charge>,
    bytes: usize,
) -> Option<Charge> {
    match admitted {
        Some(mut charge) => {
            charge.set(bytes as u64);
            Some(charge)
        }
        None if bytes > SMALL_REPLY => {
            Some(state.memory.charge_regardless(Part::Replies, bytes as u64))
        }
        None => None,
    }
}

/// A cursor that waited for the connection's request is left to nobody.
pub(crate) fn drop_own_cursor(state: &ServerState, connection: &Connection) {
    let own = connection.own_cursor.swap(0, Ordering::Relaxed);
    if own != 0 {
        state.cursors.drop_awaited(CursorId(own), connection.id());
    }
}

/// What a numbered request's session has done under a leadership that is over may have been taken back: the next
/// request reads what became of it.
pub(crate) fn forget_session(state: &ServerState, session: Option<SessionId>, code: Code) {
    let is_of_role =
        matches!(code, Code::NOT_WRITABLE_PRIMARY | Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
    if is_of_role
        && state.replication.is_of_several()
        && let Some(session) = session
    {
        // An open transaction is aborted by the end of the role; a fail point ends none.
        state.numbered.remove_if(session, |state| state.open().is_none());
    }
}
