//! What sessions have done, durable with what they did: rows of a dictionary of their own, written
//! in the transactions that they are about. On disk: `docs/formats/session-records.md`.
//!
//! A row's key is the session's 16 bytes and a statement's number; what the value means is the
//! concern of `transactions`. Rows of a session's older transactions stay until their statement
//! numbers come again or the session is forgotten.
//!
//! Always true: only the session itself writes its rows, one request at a time, so they need no
//! lock of their own and cannot conflict.

use crate::session_rows::damaged;
use catalog::{Catalog, SESSION_RECORDS, Txn, TxnKind, from_engine};
use engine::{Cursor, DictionaryId, Direction, KeyRange, Snapshot, Value};
use errors::{Code, Error, Result};
use parking_lot::RwLock;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of a session's name.
const SESSION_BYTES: usize = 16;
/// Rows looked at in one transaction when old ones are forgotten.
const CHUNK_ROWS: usize = 1000;

/// One row: the statement's number and the value.
pub(crate) type SessionRow = (u32, Vec<u8>);

fn key(session: &[u8; SESSION_BYTES], statement: u32) -> [u8; SESSION_BYTES + 4] {
    let mut key = [0; SESSION_BYTES + 4];
    key[..SESSION_BYTES].copy_from_slice(session);
    key[SESSION_BYTES..].copy_from_slice(&statement.to_be_bytes());
    key
}

/// The rows of all sessions.
pub struct SessionRecords {
    catalog: Arc<Catalog>,
    /// Where they stand, while this server writes them. Who follows looks it up each time: what it has seen
    /// may be taken back.
    dictionary: RwLock<Option<DictionaryId>>,
}

impl SessionRecords {
    /// The records of a catalog, made where there are none yet. Waits for the disk.
    pub fn open(catalog: &Arc<Catalog>) -> Result<Self> {
        let records = Self::following(catalog);
        records.take_over()?;
        Ok(records)
    }

    /// Those of a catalog that follows another member's: nothing is written before [`SessionRecords::take_over`].
    pub fn following(catalog: &Arc<Catalog>) -> Self {
        Self { catalog: Arc::clone(catalog), dictionary: RwLock::new(None) }
    }

    /// Makes the dictionary where there is none: this server writes from now on. Waits for the disk.
    pub fn take_over(&self) -> Result<()> {
        let made = self.catalog.side_dictionary(SESSION_RECORDS)?;
        *self.dictionary.write() = Some(made);
        Ok(())
    }

    /// Another member writes from now on.
    pub fn follow(&self) {
        *self.dictionary.write() = None;
    }

    /// Where they stand; `None` where nobody has made them yet.
    fn dictionary(&self) -> Result<Option<DictionaryId>> {
        if let Some(known) = *self.dictionary.read() {
            return Ok(Some(known));
        }
        self.catalog.find_side_dictionary(SESSION_RECORDS)
    }

    /// Where rows are written; an error on a server that follows.
    fn writable(&self) -> Result<DictionaryId> {
        let known = *self.dictionary.read();
        known.ok_or_else(|| Error::new(Code::NOT_WRITABLE_PRIMARY, "not primary"))
    }

    /// Rows in a range, in a state of now; `None` where there never were any.
    fn rows(&self, state: &Snapshot, range: KeyRange) -> Result<Option<Cursor>> {
        let Some(dictionary) = self.dictionary()? else { return Ok(None) };
        let cursor = state.cursor(dictionary, range, Direction::Forward);
        cursor.map(Some).map_err(from_engine)
    }

    /// Writes a row as part of a transaction.
    pub fn put(
        &self,
        txn: &mut Txn,
        session: &[u8; SESSION_BYTES],
        statement: u32,
        value: &[u8],
    ) -> Result<()> {
        txn.write_aside(self.writable()?, &key(session, statement), Some(value))
    }

    /// A session's rows, by statement, of what it has done so far: also what others do not see yet.
    pub fn of(&self, session: &[u8; SESSION_BYTES]) -> Result<Vec<SessionRow>> {
        let range = KeyRange {
            lower: Bound::Included(key(session, 0).to_vec()),
            upper: Bound::Included(key(session, u32::MAX).to_vec()),
        };
        let mut rows = Vec::new();
        let state = self.catalog.statement_snapshot();
        let Some(mut cursor) = self.rows(&state, range)? else { return Ok(rows) };
        while let Some((key, value)) = cursor.next().map_err(from_engine)? {
            if let Some(Ok(statement)) = key.get(SESSION_BYTES..).map(<[u8; 4]>::try_from) {
                rows.push((u32::from_be_bytes(statement), value.to_vec()));
            }
        }
        Ok(rows)
    }

    /// One row's value.
    pub fn one(&self, session: &[u8; SESSION_BYTES], statement: u32) -> Result<Option<Value>> {
        let Some(dictionary) = self.dictionary()? else { return Ok(None) };
        let state = self.catalog.statement_snapshot();
        state.get(dictionary, &key(session, statement)).map_err(from_engine)
    }

    /// Shows every row of every session, by session and statement.
    pub fn each(
        &self,
        mut show: impl FnMut(&[u8; SESSION_BYTES], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(mut cursor) = self.rows(&self.catalog.snapshot(), KeyRange::all())? else {
            return Ok(());
        };
        while let Some((key, value)) = cursor.next().map_err(from_engine)? {
            if let Some(session) = key.first_chunk() {
                show(session, value)?;
            }
        }
        Ok(())
    }

    /// A row is not what the session's state in memory says. On a member of a set of several what wrote it was taken
    /// back meanwhile.
    pub(crate) fn refuse_or_damaged(&self, what: &str) -> Error {
        if self.catalog.engine().holds_back() {
            let text =
                "what this session did here was taken back: another member was primary since";
            return Error::new(Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE, text);
        }
        damaged(what)
    }

    /// Deletes the rows that `is_old` picks by session and value; says how many.
    pub fn forget(&self, is_old: impl Fn(&[u8; SESSION_BYTES], &[u8]) -> bool) -> Result<u64> {
        let Some(mut cursor) = self.rows(&self.catalog.snapshot(), KeyRange::all())? else {
            return Ok(0);
        };
        let dictionary = self.writable()?;
        let mut forgotten = 0;
        let mut txn = self.catalog.begin(TxnKind::Statement);
        let mut rows = 0;
        while let Some((key, value)) = cursor.next().map_err(from_engine)? {
            let Some(session) = key.first_chunk() else { continue };
            if is_old(session, value) {
                txn.write_aside(dictionary, key, None)?;
                forgotten += 1;
                rows += 1;
            }
            if rows == CHUNK_ROWS {
                txn.commit()?;
                txn = self.catalog.begin(TxnKind::Statement);
                rows = 0;
            }
        }
        txn.commit()?;
        Ok(forgotten)
    }
}
