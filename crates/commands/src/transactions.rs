//! Transactions and retryable writes of sessions: what a session's state is, and how a numbered
//! request meets it.
//!
//! | from | to | function |
//! |---|---|---|
//! | any older number | open | [`SessionState::start`] |
//! | any older number | retryable | [`SessionState::start_retryable`] |
//! | open | committed | `commitTransaction` |
//! | open | aborted | `abortTransaction`, a failed statement, a kill, too long a life |
//! | retryable | recorded | [`leave`], where it remembers much |
//! | –, or recorded | retryable or committed | [`SessionState::load`], from the records on disk |
//!
//! What is always true:
//! 1. One request at a time has a session's state; others with a number wait for it.
//! 2. A statement that fails takes its whole transaction with it, as in MongoDB.
//! 3. What a retryable write or a commit did is durable in the same transaction as its doing, so
//!    the same number sent again, also after a crash, finds it done.

mod begin;
pub(crate) mod begin_transaction;
pub(crate) mod bound;
pub(crate) mod commit;
pub(crate) mod labels;
pub(crate) mod lock_timeout;
mod records;
mod rules;
pub(crate) mod statements;
pub(crate) mod write_lock_yielding;

pub(crate) use records::records;
pub(crate) use rules::{check, is_end};

use crate::context::Context;
use crate::service::Service;
use crate::session_records::SessionRecords;
use catalog::Txn;
use errors::{Code, Error, Result};
use session::{CheckedOutState, SessionId};
use statements::{Log, Row, Run};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Statements of a retryable write that a session keeps in memory. There are many sessions.
const KEPT_RUNS: usize = 16;

/// A session's state in the hands of the request that runs.
pub(crate) type Checked<'a> = CheckedOutState<'a, SessionState>;

/// How long a transaction may be open, unless a parameter says otherwise.
pub(crate) const LIFETIME_SECONDS: u64 = 60;
/// How long a statement of a transaction waits for locks, unless a parameter says otherwise.
pub(crate) const LOCK_TIMEOUT_MS: u64 = 5;

/// What a session's newest number stands for.
pub(crate) struct SessionState {
    /// The newest number; -1 before the first.
    pub(crate) number: i64,
    pub(crate) phase: Phase,
}

/// See the table above.
pub(crate) enum Phase {
    Fresh,
    Open(Box<Open>),
    Committed,
    Aborted,
    Retryable(Vec<Run>),
    /// As `Retryable`, of many statements: they are read from the records where they are asked for.
    Recorded,
}

/// An open transaction.
pub(crate) struct Open {
    pub(crate) txn: Txn,
    /// Server time of its start.
    pub(crate) started: Duration,
}

/// Figures for `serverStatus.transactions`.
#[derive(Default)]
pub(crate) struct TxnCounters {
    pub(crate) started: AtomicU64,
    pub(crate) committed: AtomicU64,
    pub(crate) aborted: AtomicU64,
    pub(crate) retried_commands: AtomicU64,
    pub(crate) retried_statements: AtomicU64,
}

impl SessionState {
    /// What the records on disk tell of a session that this process has not seen yet.
    pub(crate) fn load(records: &SessionRecords, id: SessionId) -> Result<Self> {
        let mut state = Self { number: -1, phase: Phase::Fresh };
        for (statement, value) in records.of(&id.0)? {
            let row = Row::decode(&value)?;
            if row.number < state.number {
                continue;
            }
            if row.number > state.number {
                state.number = row.number;
                state.phase = Phase::Retryable(Vec::new());
            }
            match (&mut state.phase, row.run(statement)) {
                (_, None) => state.phase = Phase::Committed,
                (Phase::Retryable(runs), Some(run)) => runs.push(run),
                _ => {}
            }
        }
        Ok(state)
    }

    /// The open transaction.
    pub(crate) fn open(&mut self) -> Option<&mut Open> {
        match &mut self.phase {
            Phase::Open(open) => Some(open),
            _ => None,
        }
    }

    /// Takes an open transaction out, as aborted.
    pub(crate) fn take_open(&mut self) -> Option<Box<Open>> {
        if !matches!(self.phase, Phase::Open(_)) {
            return None;
        }
        match std::mem::replace(&mut self.phase, Phase::Aborted) {
            Phase::Open(open) => Some(open),
            _ => None,
        }
    }
}

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
    expire(service, &mut state, id, context.started);
    if numbered.in_transaction {
        begin::transaction(context, &mut state, numbered, id)?;
    } else {
        let mut log = Log::new(context, id, numbered.number)?;
        log.recall(begin::retryable(service, &mut state, numbered.number, id)?);
        context.log = Some(Box::new(log));
    }
    context.state = Some(state);
    Ok(())
}

/// Gives the session's state back; a failed statement aborts its transaction.
pub(crate) fn leave(context: &mut Context<'_>, failed: bool) {
    let Some(mut state) = context.state.take() else { return };
    if let Some(log) = context.log.take() {
        let figures = &context.service.transactions;
        if !log.retried.is_empty() {
            figures.retried_commands.fetch_add(1, Ordering::Relaxed);
            figures.retried_statements.fetch_add(log.retried.len() as u64, Ordering::Relaxed);
            if !failed {
                let list = context.reply.begin_array("retriedStmtIds");
                for (at, id) in log.retried.iter().enumerate() {
                    context.reply.element_i32(at, *id);
                }
                context.reply.end(list);
            }
        }
        context.hang_up |= log.hangs_up;
        context.wrote = log.wrote();
        let runs = log.into_runs();
        let kept = runs.len() <= KEPT_RUNS;
        state.phase = if kept { Phase::Retryable(runs) } else { Phase::Recorded };
        return;
    }
    if failed {
        let id = state.id();
        abort(context.service, &mut state, id);
    }
}

/// Aborts an open transaction and ends its cursors; says whether there was one.
pub(crate) fn abort(service: &Service, state: &mut SessionState, id: SessionId) -> bool {
    let Some(open) = state.take_open() else { return false };
    drop(open);
    service.transactions.aborted.fetch_add(1, Ordering::Relaxed);
    end_cursors(service, id, state.number);
    true
}

/// Ends the cursors of a transaction that is over.
pub(crate) fn end_cursors(service: &Service, id: SessionId, number: i64) {
    service
        .cursors
        .kill_where(|cursor| cursor.session == Some(id) && cursor.transaction == Some(number));
}

fn expire(service: &Service, state: &mut SessionState, id: SessionId, now: Duration) {
    let lifetime = Duration::from_secs(service.transaction_lifetime_secs.load(Ordering::Relaxed));
    if state.open().is_some_and(|open| now.saturating_sub(open.started) >= lifetime) {
        abort(service, state, id);
    }
}

impl Service {
    /// Aborts idle transactions that have been open for too long.
    pub(crate) fn expire_transactions(&self, now: Duration) {
        let lifetime = Duration::from_secs(self.transaction_lifetime_secs.load(Ordering::Relaxed));
        self.abort_idle(|open| now.saturating_sub(open.started) >= lifetime);
    }

    /// Aborts every transaction that no request works in: the server ends, or steps down.
    pub fn abort_transactions(&self) {
        for connection in self.connections() {
            bound::abort(self, &connection);
        }
        self.abort_idle(|_| true);
    }

    fn abort_idle(&self, condemned: impl Fn(&Open) -> bool) {
        let dead = self.numbered.edit_idle(|id, state| {
            let is_dead = state.open().is_some_and(|open| condemned(open));
            let open = is_dead.then(|| state.take_open()).flatten();
            open.map(|open| (id, state.number, open))
        });
        for (id, number, open) in dead {
            drop(open);
            self.transactions.aborted.fetch_add(1, Ordering::Relaxed);
            end_cursors(self, id, number);
        }
    }

    /// Deletes the records of sessions that have not been used for as long as one lives.
    pub(crate) fn forget_old_records(&self) -> Result<u64> {
        let oldest = self.os.clock.wall_ms() - session::Sessions::TIMEOUT.as_millis() as i64;
        self.session_records.forget(|id, value| {
            let old = Row::decode(value).map_or(true, |row| row.wall_ms < oldest);
            old && !self.sessions.lives(SessionId(*id))
        })
    }
}

/// The refusal of a number whose transaction is not there (any more).
fn no_such(message: String) -> Error {
    Error::new(Code::NO_SUCH_TRANSACTION, message)
}
