//! What sessions have done, durable with what they did: rows of a dictionary of their own, written
//! in the transactions that they are about. On disk: `docs/formats/session-records.md`.
//!
//! A row's key is the session's 16 bytes and a statement's number; what the value means is the
//! concern of the floor above. Rows of a session's older transactions stay until their statement
//! numbers come again or the session is forgotten.
//!
//! Always true: only the session itself writes its rows, one request at a time, so they need no
//! lock of their own and cannot conflict.

use crate::catalog::Catalog;
use crate::failure::from_engine;
use crate::metadata;
use crate::txn::{Txn, TxnKind};
use engine::{
    DictionaryId, DictionaryOptions, Direction, Durability, Engine, KeyRange, TxnOptions, Value,
};
use errors::Result;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of a session's name.
pub const SESSION_BYTES: usize = 16;
/// Rows looked at in one transaction when old ones are forgotten.
const CHUNK_ROWS: usize = 1000;

/// One row: the statement's number and the value.
pub type SessionRow = (u32, Vec<u8>);

fn key(session: &[u8; SESSION_BYTES], statement: u32) -> [u8; SESSION_BYTES + 4] {
    let mut key = [0; SESSION_BYTES + 4];
    key[..SESSION_BYTES].copy_from_slice(session);
    key[SESSION_BYTES..].copy_from_slice(&statement.to_be_bytes());
    key
}

/// The dictionary of the rows, made where it does not exist yet.
pub(crate) fn open(engine: &Engine) -> Result<DictionaryId> {
    let root = engine.snapshot();
    if let Some(stored) =
        root.get(DictionaryId::ROOT, metadata::SESSIONS_KEY).map_err(from_engine)?
        && let Ok(id) = stored[..].try_into()
    {
        return Ok(DictionaryId(u64::from_le_bytes(id)));
    }
    let mut txn = engine.begin(TxnOptions::default());
    let made = txn.create_dictionary(DictionaryOptions::default()).map_err(from_engine)?;
    txn.put(DictionaryId::ROOT, metadata::SESSIONS_KEY, &made.0.to_le_bytes())
        .map_err(from_engine)?;
    txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
    Ok(made)
}

impl Txn {
    /// Writes a row as part of this transaction.
    pub fn put_session_row(
        &mut self,
        session: &[u8; SESSION_BYTES],
        statement: u32,
        value: &[u8],
    ) -> Result<()> {
        let key = key(session, statement);
        self.engine.write_covered(self.catalog.session_rows, &key, Some(value)).map_err(from_engine)
    }
}

impl Catalog {
    /// A session's rows, by statement.
    pub fn session_rows(&self, session: &[u8; SESSION_BYTES]) -> Result<Vec<SessionRow>> {
        let range = KeyRange {
            lower: Bound::Included(key(session, 0).to_vec()),
            upper: Bound::Included(key(session, u32::MAX).to_vec()),
        };
        let snapshot = self.snapshot();
        let mut cursor =
            snapshot.cursor(self.session_rows, range, Direction::Forward).map_err(from_engine)?;
        let mut rows = Vec::new();
        while let Some((key, value)) = cursor.next().map_err(from_engine)? {
            if let Some(Ok(statement)) = key.get(SESSION_BYTES..).map(<[u8; 4]>::try_from) {
                rows.push((u32::from_be_bytes(statement), value.to_vec()));
            }
        }
        Ok(rows)
    }

    /// One row's value.
    pub fn session_row(
        &self,
        session: &[u8; SESSION_BYTES],
        statement: u32,
    ) -> Result<Option<Value>> {
        self.snapshot().get(self.session_rows, &key(session, statement)).map_err(from_engine)
    }

    /// Shows every row of every session, by session and statement.
    pub fn each_session_row(
        &self,
        mut show: impl FnMut(&[u8; SESSION_BYTES], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut cursor = self
            .snapshot()
            .cursor(self.session_rows, KeyRange::all(), Direction::Forward)
            .map_err(from_engine)?;
        while let Some((key, value)) = cursor.next().map_err(from_engine)? {
            if let Some(session) = key.first_chunk() {
                show(session, value)?;
            }
        }
        Ok(())
    }

    /// Deletes the rows that `is_old` picks by session and value; says how many.
    pub fn forget_session_rows(
        self: &Arc<Self>,
        is_old: impl Fn(&[u8; SESSION_BYTES], &[u8]) -> bool,
    ) -> Result<u64> {
        let snapshot = self.snapshot();
        let mut cursor = snapshot
            .cursor(self.session_rows, KeyRange::all(), Direction::Forward)
            .map_err(from_engine)?;
        let mut forgotten = 0;
        let mut txn = self.begin(TxnKind::Statement);
        let mut rows = 0;
        while let Some((key, value)) = cursor.next().map_err(from_engine)? {
            let Some(session) = key.first_chunk() else { continue };
            if is_old(session, value) {
                txn.engine.write_covered(self.session_rows, key, None).map_err(from_engine)?;
                forgotten += 1;
                rows += 1;
            }
            if rows == CHUNK_ROWS {
                txn.commit()?;
                txn = self.begin(TxnKind::Statement);
                rows = 0;
            }
        }
        txn.commit()?;
        Ok(forgotten)
    }
}
