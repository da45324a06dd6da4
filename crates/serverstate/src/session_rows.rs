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

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use errors::{Code, Error, Result};
use query::{FindAndModifyResult, StatementOutcome};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 18;

/// Statements with consecutive numbers under one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatementRun {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// What a row says was done.
#[derive(Debug)]
pub enum Saved {
    /// The transaction of this number was committed.
    Committed,
    /// A statement, and what it did.
    Statement(StatementOutcome),
}

/// A row's value.
#[derive(Debug)]
pub struct Row {
    /// The transaction number.
    pub number: i64,
    /// When it was written, in milliseconds since 1970.
    pub wall_ms: i64,
    /// What was done.
    pub saved: Saved,
}

impl Row {
    /// The row's bytes.
    pub fn encode(&self) -> Vec<u8> {
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

    /// Reads a row; damage is an error.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
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
    pub fn run(&self, first: u32) -> Option<StatementRun> {
        match &self.saved {
            Saved::Committed => None,
            Saved::Statement(StatementOutcome::Inserted(count)) => {
                Some(StatementRun { first, count: *count })
            }
            Saved::Statement(_) => Some(StatementRun { first, count: 1 }),
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

pub(crate) fn damaged(what: impl std::fmt::Display) -> Error {
    Error::new(Code::INTERNAL_ERROR, format!("damaged session record: {what}"))
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
