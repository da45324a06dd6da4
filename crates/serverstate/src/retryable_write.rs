//! What the request of a retryable write remembers while it runs, and writes beside what it does.
//!
//! Always true: in memory only the numbers of the statements are kept; what they did is read from
//! its row when it is asked for again.

use crate::fail_point::FailPoints;
use crate::session_records::SessionRecords;
use crate::session_rows::{Row, Saved, StatementRun};
use crate::state::ServerState;
use bson::{RawBsonRef, RawDocument};
use catalog::{ToldSession, Txn};
use errors::{Code, Error, Result};
use query::{StatementLog, StatementOutcome};
use session::SessionId;

/// The numbers of a batch's statements.
enum Ids {
    From(u32),
    Each(Vec<u32>),
}

impl Ids {
    fn parse(body: &RawDocument) -> Result<Self> {
        let number = |value: RawBsonRef<'_>| {
            let number = dispatch::fields::as_i64(value)
                .ok_or_else(|| Error::type_mismatch("a statement's number must be an int"))?;
            u32::try_from(number)
                .map_err(|_| Error::bad_value("a statement's number must not be negative"))
        };
        if let Some(RawBsonRef::Array(list)) = body.get("stmtIds")? {
            let each = list.into_iter().map(|value| number(value?)).collect::<Result<_>>()?;
            return Ok(Self::Each(each));
        }
        Ok(Self::From(body.get("stmtId")?.map_or(Ok(0), number)?))
    }

    fn of(&self, statement: usize) -> u32 {
        match self {
            Self::From(first) => first.saturating_add(statement as u32),
            Self::Each(list) => list.get(statement).copied().unwrap_or(u32::MAX),
        }
    }
}

/// What one request remembers of what was done under its number.
pub struct RetryableWrite<'a> {
    records: &'a SessionRecords,
    session: SessionId,
    number: i64,
    wall_ms: i64,
    ids: Ids,
    /// Done by earlier requests, ascending; these alone can be met again.
    known: Vec<StatementRun>,
    executed: Vec<StatementRun>,
    pending: Vec<StatementRun>,
    /// The numbers of the statements that were not done again.
    pub retried: Vec<i32>,
    /// Asked for each statement that is about to commit.
    fail_points: &'a FailPoints,
    /// A fail point wants the connection closed.
    pub hangs_up: bool,
}

impl<'a> RetryableWrite<'a> {
    /// What the request of a number will remember, whose statements `body` numbers.
    pub fn new(
        state: &'a ServerState,
        session: SessionId,
        number: i64,
        body: &RawDocument,
    ) -> Result<Self> {
        Ok(Self {
            records: &state.session_records,
            session,
            number,
            wall_ms: state.os.clock.wall_ms(),
            ids: Ids::parse(body)?,
            known: Vec::new(),
            executed: Vec::new(),
            pending: Vec::new(),
            retried: Vec::new(),
            fail_points: &state.fail_points,
            hangs_up: false,
        })
    }

    /// Takes over what earlier requests of the number have done.
    pub fn recall(&mut self, mut known: Vec<StatementRun>) {
        known.sort_unstable_by_key(|run| run.first);
        self.known = known;
    }

    /// All that was done under the number by now.
    pub fn into_runs(mut self) -> Vec<StatementRun> {
        self.known.append(&mut self.executed);
        self.known
    }

    /// Whether this request has changed anything.
    pub fn wrote(&self) -> bool {
        !self.executed.is_empty()
    }

    /// Refuses a statement that touches many documents: it commits in parts.
    pub fn check_one(write: Option<&Self>, multi: bool) -> Result<()> {
        if write.is_none() || !multi {
            return Ok(());
        }
        Err(Error::new(
            Code::INVALID_OPTIONS,
            "Cannot use (or request) retryable writes with multi=true",
        ))
    }

    fn meet_fail_point(&mut self) -> Result<()> {
        let Some(point) = self.fail_points.before_commit() else { return Ok(()) };
        self.hangs_up |= point.close;
        point.code.map_or(Ok(()), |code| {
            Err(Error::new(
                Code(code),
                "Failing commit via 'onPrimaryTransactionalWrite' failpoint",
            ))
        })
    }

    fn put(&mut self, txn: &mut Txn, first: u32, outcome: StatementOutcome) -> Result<()> {
        let changes = changes_of(&outcome);
        txn.tell_statements(first, changes);
        let saved = Saved::Statement(outcome);
        let row = Row { number: self.number, wall_ms: self.wall_ms, saved };
        self.records.put(txn, &self.session.key(), first, &row.encode())?;
        let SessionId { id, user } = self.session;
        txn.tell_session(ToldSession { id, user: user.0, number: self.number });
        self.pending.extend(row.run(first));
        Ok(())
    }
}

/// How many documents a statement changed, at most.
fn changes_of(outcome: &StatementOutcome) -> u64 {
    match outcome {
        StatementOutcome::Inserted(count) => u64::from(*count),
        StatementOutcome::Updated { upserted: Some(_), .. }
        | StatementOutcome::FoundAndModified(_) => 1,
        StatementOutcome::Updated { modified, .. } => *modified,
        StatementOutcome::Deleted(count) => *count,
    }
}

impl StatementLog for RetryableWrite<'_> {
    fn done(&mut self, statement: usize) -> Result<Option<StatementOutcome>> {
        let id = self.ids.of(statement);
        let behind = self.known.partition_point(|run| run.first <= id);
        let run = self.known[..behind].last().filter(|run| id - run.first < run.count);
        let Some(run) = run else { return Ok(None) };
        let stored = self.records.one(&self.session.key(), run.first)?;
        let damaged = |what| self.records.refuse_or_damaged(what);
        let stored = stored.ok_or_else(|| damaged("the row of a statement is missing"))?;
        match Row::decode(&stored)? {
            Row { number, saved: Saved::Statement(outcome), .. } if number == self.number => {
                self.retried.push(id as i32);
                Ok(Some(outcome))
            }
            _ => Err(damaged("the row of a statement is another's")),
        }
    }

    fn write(&mut self, txn: &mut Txn, statement: usize, outcome: &StatementOutcome) -> Result<()> {
        let statements = match outcome {
            StatementOutcome::Inserted(count) => *count,
            _ => 1,
        };
        for _ in 0..statements {
            self.meet_fail_point()?;
        }
        if let (StatementOutcome::Inserted(count), Ids::Each(_)) = (outcome, &self.ids) {
            return (statement..statement + *count as usize).try_for_each(|one| {
                let first = self.ids.of(one);
                self.put(txn, first, StatementOutcome::Inserted(1))
            });
        }
        let first = self.ids.of(statement);
        self.put(txn, first, outcome.clone())
    }

    fn ended(&mut self, committed: bool) {
        if committed {
            self.executed.append(&mut self.pending);
        }
        self.pending.clear();
    }
}
