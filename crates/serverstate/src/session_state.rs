//! What the newest transaction number of a session stands for.
//!
//! | from | to | by |
//! |---|---|---|
//! | any older number | open, or retryable | the first request of a new number |
//! | open | committed | `commitTransaction` |
//! | open | aborted | `abortTransaction`, a failed statement, a kill, too long a life |
//! | retryable | recorded | the end of a request that remembers much |
//! | –, or recorded | retryable or committed | [`SessionState::load`], from the records on disk |
//!
//! Always true: one request at a time has a session's state; others with a number wait for it
//! ([`session::Checkouts`]).

use crate::session_records::SessionRecords;
use crate::session_rows::{Row, StatementRun};
use catalog::Txn;
use errors::Result;
use session::{CheckedOutState, SessionId};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// A session's state in the hands of the request that runs.
pub type Checked<'a> = CheckedOutState<'a, SessionState>;

/// How long a transaction may be open, unless a parameter says otherwise.
pub(crate) const LIFETIME_SECONDS: u64 = 60;
/// How long a statement of a transaction waits for locks, unless a parameter says otherwise.
pub(crate) const LOCK_TIMEOUT_MS: u64 = 5;

/// What a session's newest number stands for.
pub struct SessionState {
    /// The newest number; -1 before the first.
    pub number: i64,
    /// What became of it.
    pub phase: Phase,
}

/// See the table above.
pub enum Phase {
    /// No number was used yet.
    Fresh,
    /// A transaction that is open.
    Open(Box<Open>),
    /// A transaction that was committed.
    Committed,
    /// A transaction that was aborted.
    Aborted,
    /// A retryable write, and the statements of it that were done.
    Retryable(Vec<StatementRun>),
    /// As `Retryable`, of many statements: they are read from the records where they are asked for.
    Recorded,
}

/// An open transaction.
pub struct Open {
    /// The transaction of the collections.
    pub txn: Txn,
    /// Server time of its start.
    pub started: Duration,
}

/// Figures for `serverStatus.transactions`.
#[derive(Default)]
pub struct TxnCounters {
    /// Transactions that began.
    pub started: AtomicU64,
    /// Transactions that were committed.
    pub committed: AtomicU64,
    /// Transactions that were aborted.
    pub aborted: AtomicU64,
    /// Retryable writes of which a part was not done again.
    pub retried_commands: AtomicU64,
    /// Statements that were not done again.
    pub retried_statements: AtomicU64,
}

impl SessionState {
    /// What the records on disk tell of a session that this process has not seen yet.
    pub fn load(records: &SessionRecords, id: SessionId) -> Result<Self> {
        let mut state = Self { number: -1, phase: Phase::Fresh };
        for (statement, value) in records.of(&id.key())? {
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
    pub fn open(&mut self) -> Option<&mut Open> {
        match &mut self.phase {
            Phase::Open(open) => Some(open),
            _ => None,
        }
    }

    /// Takes an open transaction out, as aborted.
    pub fn take_open(&mut self) -> Option<Box<Open>> {
        if !matches!(self.phase, Phase::Open(_)) {
            return None;
        }
        match std::mem::replace(&mut self.phase, Phase::Aborted) {
            Phase::Open(open) => Some(open),
            _ => None,
        }
    }
}
