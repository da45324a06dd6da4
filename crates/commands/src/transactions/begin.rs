//! How a numbered request begins or goes on: numbers only grow, and each means one thing.

use super::no_such;
use crate::context::Context;
use catalog::ToldSession;
use dispatch::arguments::Numbered;
use errors::{Code, Error, Result};
use serverstate::session_rows::StatementRun;
use serverstate::{Open, Phase, ServerState, SessionState};
use session::SessionId;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A statement of a transaction, its commit or its abort.
pub(super) fn transaction(
    context: &Context<'_>,
    state: &mut SessionState,
    numbered: Numbered,
    id: SessionId,
) -> Result<()> {
    let Numbered { number, starts, .. } = numbered;
    if number < state.number {
        return Err(too_old(format!(
            "Cannot start transaction {number} on session {id} because a newer transaction \
                 {} has already started on this session.",
            state.number
        )));
    }
    if starts {
        if number == state.number {
            return Err(Error::location(
                50911,
                format!(
                    "Cannot start a transaction at given transaction number {number} a transaction \
                     with the same number is in state {}",
                    name(&state.phase)
                ),
            ));
        }
        context.service.abort_session(state, id);
        let open = begin(context, number, id)?;
        *state = SessionState { number, phase: Phase::Open(Box::new(open)) };
        return Ok(());
    }
    if number > state.number
        || matches!(state.phase, Phase::Retryable(_) | Phase::Recorded | Phase::Fresh)
    {
        return Err(no_such(format!(
            "Given transaction number {number} does not match any in-progress transactions. The \
             active transaction number is {}",
            state.number
        )));
    }
    match state.phase {
        Phase::Aborted => {
            Err(no_such(format!("Transaction with {{ txnNumber: {number} }} has been aborted.")))
        }
        Phase::Committed if context.command.name != "commitTransaction" => Err(Error::new(
            Code::TRANSACTION_COMMITTED,
            format!("Transaction with {{ txnNumber: {number} }} has been committed."),
        )),
        _ => Ok(()),
    }
}

fn begin(context: &Context<'_>, number: i64, id: SessionId) -> Result<Open> {
    let service = context.service;
    // Only a time that the client names needs a state of its own: nobody is told that of now.
    let concern = &context.arguments.read_concern;
    let state = concern.at.map(|time| service.replication.clock.state_at(time)).transpose()?;
    let lock_timeout = Duration::from_millis(service.lock_timeout_ms.load(Ordering::Relaxed));
    let mut txn = service.catalog.begin_clients(state.as_ref(), lock_timeout);
    txn.tell_session(ToldSession { id: id.id, user: id.user.0, number });
    service.transactions.started.fetch_add(1, Ordering::Relaxed);
    Ok(Open { txn, started: context.started })
}

/// A retryable write: what of it was done before.
pub(super) fn retryable(
    service: &ServerState,
    state: &mut SessionState,
    number: i64,
    id: SessionId,
) -> Result<Vec<StatementRun>> {
    if number < state.number {
        return Err(too_old(format!(
            "Retryable write with txnNumber {number} is prohibited on session {id} because a newer \
             retryable write with txnNumber {} has already started on this session.",
            state.number
        )));
    }
    if number > state.number {
        service.abort_session(state, id);
        *state = SessionState { number, phase: Phase::Retryable(Vec::new()) };
    }
    match &mut state.phase {
        Phase::Retryable(runs) => Ok(std::mem::take(runs)),
        _ => Err(Error::new(
            Code::INCOMPLETE_TRANSACTION_HISTORY,
            format!(
                "Cannot retry a retryable write with txnNumber {number} on session {id}: the \
                 number was used by a transaction"
            ),
        )),
    }
}

fn too_old(message: String) -> Error {
    Error::new(Code::TRANSACTION_TOO_OLD, message)
}

/// What MongoDB calls the state of a transaction number.
fn name(phase: &Phase) -> &'static str {
    match phase {
        Phase::Fresh => "TxnState::None",
        Phase::Open(_) => "TxnState::InProgress",
        Phase::Committed => "TxnState::Committed",
        Phase::Aborted => "TxnState::AbortedWithoutPrepare",
        Phase::Retryable(_) | Phase::Recorded => "TxnState::ExecutedRetryableWrite",
    }
}
