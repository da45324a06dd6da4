//! Transactions and retryable writes of sessions: how a numbered request meets the
//! session's state ([`SessionState`]).
//!
//! What is always true:
//! 1. A statement that fails takes its whole transaction with it, as in MongoDB.
//! 2. What a retryable write or a commit did is durable in the same transaction as its doing, so
//!    the same number sent again, also after a crash, finds it done.

mod begin;
pub(crate) mod begin_transaction;
pub(crate) mod bound;
pub(crate) mod commit;
pub(crate) mod labels;
pub(crate) mod load;
pub(crate) mod lock_timeout;
mod records;
mod rules;
pub(crate) mod write_lock_yielding;

pub(crate) use records::records;
pub(crate) use rules::{check, is_end};

use crate::context::Context;
use errors::{Code, Error, Result};
use serverstate::{Phase, RetryableWrite, SessionState};
use std::sync::atomic::Ordering;

/// Statements of a retryable write that a session keeps in memory. There are many sessions.
const KEPT_RUNS: usize = 16;

/// Takes the session's state for a numbered request, and begins what begins with it. May wait for
/// another request of the same session.
pub(crate) fn enter(context: &mut Context<'_>) -> Result<()> {
    let (Some(numbered), Some(id)) = (context.arguments.numbered, context.arguments.session) else {
        return Ok(());
    };
    let service = context.service;
    let operation = context.connection.operation.number();
    let mut state = service.numbered.check_out(
        id,
        operation,
        || SessionState { number: i64::MIN, phase: Phase::Fresh },
        || context.check_interrupt(),
    )?;
    let recorded = matches!(state.phase, Phase::Recorded) && numbered.number == state.number;
    if state.number == i64::MIN || recorded {
        *state = SessionState::load(&service.session_records, id)?;
    }
    service.expire_session(&mut state, id, context.started);
    if numbered.in_transaction {
        begin::transaction(context, &mut state, numbered, id)?;
    } else {
        let mut write = RetryableWrite::new(service, id, numbered.number, context.body)?;
        write.recall(begin::retryable(service, &mut state, numbered.number, id)?);
        context.retryable = Some(Box::new(write));
    }
    context.state = Some(state);
    Ok(())
}

/// Gives the session's state back; a failed statement aborts its transaction.
pub(crate) fn leave(context: &mut Context<'_>, failed: bool) {
    let Some(mut state) = context.state.take() else { return };
    if let Some(write) = context.retryable.take() {
        let figures = &context.service.transactions;
        if !write.retried.is_empty() {
            // What they did may not be visible yet: the answer waits for it.
            drop(context.service.catalog.statement_snapshot());
            figures.retried_commands.fetch_add(1, Ordering::Relaxed);
            figures.retried_statements.fetch_add(write.retried.len() as u64, Ordering::Relaxed);
            if !failed {
                let list = context.reply.begin_array("retriedStmtIds");
                for (at, id) in write.retried.iter().enumerate() {
                    context.reply.element_i32(at, *id);
                }
                context.reply.end(list);
            }
        }
        context.hang_up |= write.hangs_up;
        context.wrote = write.wrote();
        let runs = write.into_runs();
        let kept = runs.len() <= KEPT_RUNS;
        state.phase = if kept { Phase::Retryable(runs) } else { Phase::Recorded };
        return;
    }
    if failed {
        let id = state.id();
        context.service.abort_session(&mut state, id);
    }
}

/// The refusal of a number whose transaction is not there (any more).
fn no_such(message: String) -> Error {
    Error::new(Code::NO_SUCH_TRANSACTION, message)
}
