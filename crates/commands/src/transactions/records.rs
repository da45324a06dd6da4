//! What `config.transactions` shows: a document for each session that has left a record.

use bson::{RawDocumentBuf, Timestamp};
use dispatch::writer::Writer;
use errors::Result;
use serverstate::ServerState;
use serverstate::session_rows::{Row, Saved};
use session::UserDigest;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The sessions' newest records in MongoDB's shape. A record keeps the wall clock of its write, so
/// the time of the operation is told by its second.
pub(crate) fn records(service: &ServerState) -> Result<Vec<RawDocumentBuf>> {
    let mut newest: BTreeMap<[u8; 16], Row> = BTreeMap::new();
    service.session_records.each(|session, value| {
        let row = Row::decode(value)?;
        if newest.get(session).is_none_or(|known| known.number <= row.number) {
            newest.insert(*session, row);
        }
        Ok(())
    })?;
    let term = service.replication.term.load(Ordering::Acquire);
    Ok(newest.iter().map(|(session, row)| describe(session, row, term)).collect())
}

fn describe(session: &[u8; 16], row: &Row, term: i64) -> RawDocumentBuf {
    let mut writer = Writer::new();
    let id = writer.begin_document("_id");
    writer.uuid("id", session);
    writer.binary("uid", &UserDigest::NOBODY.0);
    writer.end(id);
    writer.i64("txnNum", row.number);
    let time = writer.begin_document("lastWriteOpTime");
    let second = u32::try_from(row.wall_ms / 1000).unwrap_or(0);
    writer.timestamp("ts", Timestamp { time: second, increment: 1 });
    writer.i64("t", term);
    writer.end(time);
    writer.date("lastWriteDate", row.wall_ms);
    if matches!(row.saved, Saved::Committed) {
        writer.str("state", "committed");
    }
    writer.finish()
}
