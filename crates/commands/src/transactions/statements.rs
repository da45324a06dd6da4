//! What retryable writes remember: a row for each statement, or run of inserts, that was done.
//!
//! On disk: `docs/formats/session-records.md`.
//!
//! ```text
//!  version │ kind │ number i64 │ wall clock, ms i64 │ what it did
//!    u8    │  u8  │     LE     │         LE         │ BSON or a count
//! ```
//!
//! Always true: in memory only the numbers of the statements are kept; what they did is read from
//! its row when it is asked for again.

use crate::context::Context;
use crate::fail_point::FailPoints;
use crate::session_records::SessionRecords;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use catalog::Txn;
use errors::{Code, Error, Result};
use query::{FindAndModifyResult, StatementLog, StatementOutcome};
use session::SessionId;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 18;

/// Statements with consecutive numbers under one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    first: u32,
    count: u32,
}

/// What a row says was done.
#[derive(Debug)]
pub(crate) enum Saved {
    /// The transaction of this number was committed.
    Committed,
    Statement(StatementOutcome),
}

/// A row's value.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) number: i64,
    pub(crate) wall_ms: i64,
    pub(crate) saved: Saved,
}

impl Row {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, body) = match &self.saved {
            Saved::Committed => (0, Vec::new()),
            Saved::Statement(StatementOutcome::Inserted(count)) => {
                (1, count.to_le_bytes().to_vec())
            }
            Saved::Statement(StatementOutcome::Updated { n, modified, upserted }) => {
                let mut body = RawDocumentBuf::new();
                body.append(cstr!("n"), *n as i64);
                body.append(cstr!("m"), *modified as i64);
                if let Some(id) = upserted {
                    body.append(cstr!("u"), id.as_raw_bson_ref());
                }
                (2, body.into_bytes())
            }
            Saved::Statement(StatementOutcome::Deleted(n)) => (3, n.to_le_bytes().to_vec()),
            Saved::Statement(StatementOutcome::FoundAndModified(found)) => {
                let mut body = RawDocumentBuf::new();
                body.append(cstr!("n"), found.n as i64);
                if let Some(existing) = found.updated_existing {
                    body.append(cstr!("e"), existing);
                }
                if let Some(id) = &found.upserted {
                    body.append(cstr!("u"), id.as_raw_bson_ref());
                }
                if let Some(value) = &found.value {
                    body.append(cstr!("v"), RawBsonRef::Document(value));
                }
                (4, body.into_bytes())
            }
        };
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
        bytes.extend_from_slice(&[VERSION, kind]);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.wall_ms.to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let Some((head, body)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Err(damaged("too short"));
        };
        if head[0] != VERSION {
            return Err(damaged("unknown version"));
        }
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&head[at..at + 8]);
            i64::from_le_bytes(eight)
        };
        let (wall_ms, kind) = (number(10), head[1]);
        let number = number(2);
        let saved = match kind {
            0 => Saved::Committed,
            1 => Saved::Statement(StatementOutcome::Inserted(u32::from_le_bytes(fixed(body)?))),
            2 => Saved::Statement(decode_update(RawDocument::from_bytes(body)?)?),
            3 => Saved::Statement(StatementOutcome::Deleted(u64::from_le_bytes(fixed(body)?))),
            4 => Saved::Statement(decode_find(RawDocument::from_bytes(body)?)?),
            _ => return Err(damaged("unknown kind")),
        };
        Ok(Self { number, wall_ms, saved })
    }

    /// The statements it is about; `None` for a whole transaction.
    pub(crate) fn run(&self, first: u32) -> Option<Run> {
        match &self.saved {
            Saved::Committed => None,
            Saved::Statement(StatementOutcome::Inserted(count)) => {
                Some(Run { first, count: *count })
            }
            Saved::Statement(_) => Some(Run { first, count: 1 }),
        }
    }
}

fn fixed<const N: usize>(body: &[u8]) -> Result<[u8; N]> {
    body.try_into().map_err(|_| damaged("wrong length"))
}

fn count(body: &RawDocument, name: &str) -> Result<u64> {
    u64::try_from(body.get_i64(name).map_err(damaged)?).map_err(damaged)
}

fn decode_update(body: &RawDocument) -> Result<StatementOutcome> {
    let upserted = body.get("u")?.map(RawBson::from);
    Ok(StatementOutcome::Updated { n: count(body, "n")?, modified: count(body, "m")?, upserted })
}

fn decode_find(body: &RawDocument) -> Result<StatementOutcome> {
    Ok(StatementOutcome::FoundAndModified(FindAndModifyResult {
        n: count(body, "n")?,
        updated_existing: body.get("e")?.and_then(RawBsonRef::as_bool),
        upserted: body.get("u")?.map(RawBson::from),
        value: body.get("v")?.and_then(RawBsonRef::as_document).map(ToOwned::to_owned),
    }))
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::new(Code::INTERNAL_ERROR, format!("damaged session record: {what}"))
}

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

/// The memory of one request.
pub(crate) struct Log<'a> {
    records: &'a SessionRecords,
    session: SessionId,
    number: i64,
    wall_ms: i64,
    ids: Ids,
    /// Done by earlier requests, ascending; these alone can be met again.
    known: Vec<Run>,
    executed: Vec<Run>,
    pending: Vec<Run>,
    /// The numbers of the statements that were not done again.
    pub(crate) retried: Vec<i32>,
    /// Asked for each statement that is about to commit.
    fail_points: &'a FailPoints,
    /// A fail point wants the connection closed.
    pub(crate) hangs_up: bool,
}

impl<'a> Log<'a> {
    pub(super) fn new(context: &Context<'a>, session: SessionId, number: i64) -> Result<Self> {
        let service = context.service;
        Ok(Self {
            records: &service.session_records,
            session,
            number,
            wall_ms: service.os.clock.wall_ms(),
            ids: Ids::parse(context.body)?,
            known: Vec::new(),
            executed: Vec::new(),
            pending: Vec::new(),
            retried: Vec::new(),
            fail_points: &service.fail_points,
            hangs_up: false,
        })
    }

    /// Takes over what earlier requests of the number have done.
    pub(super) fn recall(&mut self, mut known: Vec<Run>) {
        known.sort_unstable_by_key(|run| run.first);
        self.known = known;
    }

    /// All that was done under the number by now.
    pub(super) fn into_runs(mut self) -> Vec<Run> {
        self.known.append(&mut self.executed);
        self.known
    }

    /// Whether this request has changed anything.
    pub(super) fn wrote(&self) -> bool {
        !self.executed.is_empty()
    }

    /// Refuses a statement that touches many documents: it commits in parts.
    pub(crate) fn check_one(log: Option<&Self>, multi: bool) -> Result<()> {
        if log.is_none() || !multi {
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
        let saved = Saved::Statement(outcome);
        let row = Row { number: self.number, wall_ms: self.wall_ms, saved };
        self.records.put(txn, &self.session.0, first, &row.encode())?;
        self.pending.extend(row.run(first));
        Ok(())
    }
}

impl StatementLog for Log<'_> {
    fn done(&mut self, statement: usize) -> Result<Option<StatementOutcome>> {
        let id = self.ids.of(statement);
        let behind = self.known.partition_point(|run| run.first <= id);
        let run = self.known[..behind].last().filter(|run| id - run.first < run.count);
        let Some(run) = run else { return Ok(None) };
        let stored = self.records.one(&self.session.0, run.first)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    fn rows() -> Vec<Row> {
        let upserted = Some(RawBson::Int32(5));
        let found = FindAndModifyResult {
            n: 1,
            updated_existing: Some(false),
            upserted: upserted.clone(),
            value: Some(RawDocumentBuf::new()),
        };
        let outcomes = [
            StatementOutcome::Inserted(7),
            StatementOutcome::Updated { n: 1, modified: 0, upserted },
            StatementOutcome::Deleted(1),
            StatementOutcome::FoundAndModified(found),
        ];
        let statements = outcomes.map(Saved::Statement);
        std::iter::once(Saved::Committed)
            .chain(statements)
            .map(|saved| Row { number: 3, wall_ms: 4, saved })
            .collect()
    }

    #[test]
    fn rows_are_those_of_version_1() {
        let mut written = String::new();
        for row in rows() {
            for byte in row.encode() {
                write!(written, "{byte:02x}").unwrap();
            }
            written.push('\n');
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/session-rows-v1.hex");
        if std::env::var("FERN_GOLDEN").is_ok_and(|mode| mode == "write") {
            std::fs::write(path, &written).unwrap();
        }
        assert_eq!(written, std::fs::read_to_string(path).unwrap());
    }

    #[test]
    fn rows_read_back_and_damage_is_an_error() {
        for row in rows() {
            let bytes = row.encode();
            let read = Row::decode(&bytes).unwrap();
            assert_eq!((read.number, read.wall_ms), (3, 4));
            assert_eq!(read.encode(), bytes);
            for end in 0..bytes.len() {
                drop(Row::decode(&bytes[..end]));
            }
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 0xFF;
                drop(Row::decode(&flipped));
            }
        }
        assert!(Row::decode(&[]).is_err());
    }
}
