//! What runs now, and which transactions are open though nothing runs in them, as documents: for
//! `currentOp`, the aggregation stage of the same name, and the log.

use crate::connection::Connection;
use crate::state::ServerState;
use bson::{Bson, RawDocument, RawDocumentBuf};
use catalog::ShownLock;
use dispatch::writer::Writer;
use session::{OpProgress, OpSnapshot, SessionId, UserDigest};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Which of those that do nothing are shown beside running operations.
#[derive(Clone, Copy)]
pub struct Idle {
    /// Quiet connections. One with a transaction is shown in any case.
    pub connections: bool,
    /// Sessions with an open transaction.
    pub sessions: bool,
    /// Only those of this user; of everybody without.
    pub user: Option<UserDigest>,
}

/// One document for each running operation, and for who does nothing as `idle` says.
pub fn operations(state: &ServerState, idle: Idle) -> Vec<RawDocumentBuf> {
    let running = state.operations.list();
    let waiting = state.catalog.locks(0);
    let mut all = Vec::new();
    for connection in &state.connections() {
        let operation = running.iter().find(|op| op.connection == connection.id());
        let theirs = operation.map(|operation| operation.user);
        if idle.user.is_some() && theirs != idle.user {
            continue;
        }
        if idle.connections || operation.is_some() || bound_txn(connection) != 0 {
            all.push(describe(state, connection, operation, &waiting));
        }
    }
    if idle.sessions {
        all.extend(idle_sessions(state, |id, _| idle.user.is_none_or(|user| user == id.user)));
    }
    all
}

/// What runs in a transaction, or the session or connection that has it open.
pub fn who_has(state: &ServerState, txn: u64) -> Option<RawDocumentBuf> {
    let running = state.operations.list();
    for connection in &state.connections() {
        let operation = running.iter().find(|op| op.connection == connection.id());
        if bound_txn(connection) == txn || operation.is_some_and(|op| op.txn == txn) {
            return Some(describe(state, connection, operation, &[]));
        }
    }
    idle_sessions(state, |_, open| open == txn).pop()
}

fn bound_txn(connection: &Connection) -> u64 {
    connection.txn_id.load(Ordering::Relaxed)
}

/// Sessions whose transaction waits for its client, of those transactions that are `wanted`.
fn idle_sessions(
    state: &ServerState,
    wanted: impl Fn(SessionId, u64) -> bool,
) -> Vec<RawDocumentBuf> {
    let now = state.os.clock.monotonic();
    let mut all = Vec::new();
    let _nothing_taken = state.numbered.edit_idle(|id, session| -> Option<()> {
        let number = session.number;
        if let Some(open) = session.open().filter(|open| wanted(id, open.txn.id())) {
            let mut writer = Writer::new();
            writer.str("type", "idleSession");
            writer.str("host", &host(state));
            writer.str("desc", "inactive transaction");
            writer.bool("active", false);
            let lsid = writer.begin_document("lsid");
            writer.uuid("id", &id.id);
            writer.binary("uid", &id.user.0);
            writer.end(lsid);
            writer.number("rootTxnid", open.txn.id());
            let transaction = writer.begin_document("transaction");
            let parameters = writer.begin_document("parameters");
            writer.long("txnNumber", number.cast_unsigned());
            writer.bool("autocommit", false);
            writer.end(parameters);
            let age = now.saturating_sub(open.started);
            writer.long("timeOpenMicros", age.as_micros() as u64);
            writer.end(transaction);
            writer.bool("waitingForLock", false);
            all.push(writer.finish());
        }
        None
    });
    all
}

fn host(state: &ServerState) -> String {
    format!("{}:{}", state.info.host, state.info.port)
}

fn describe(
    state: &ServerState,
    connection: &Arc<Connection>,
    operation: Option<&OpSnapshot>,
    waiting: &[ShownLock],
) -> RawDocumentBuf {
    let mut writer = Writer::new();
    writer.str("type", "op");
    writer.str("host", &host(state));
    writer.str("desc", &format!("conn{}", connection.id()));
    writer.i32("connectionId", connection.id() as i32);
    writer.str("client", &connection.info.remote);
    if let Some(client) = connection.client_metadata() {
        if let Ok(Some(bson::RawBsonRef::Document(application))) = client.get("application")
            && let Ok(Some(bson::RawBsonRef::String(name))) = application.get("name")
        {
            writer.str("appName", name);
        }
        writer.document("clientMetadata", client);
    }
    writer.bool("active", operation.is_some());
    let now = bson::DateTime::from_millis(state.os.clock.wall_ms());
    if let Ok(text) = now.try_to_rfc3339_string() {
        writer.str("currentOpTime", &text);
    }
    let txn = operation.map(|operation| operation.txn).filter(|txn| *txn != 0);
    let txn = txn.unwrap_or_else(|| bound_txn(connection));
    if txn != 0 {
        writer.number("rootTxnid", txn);
    }
    if let Some(operation) = operation {
        running(state, &mut writer, operation);
        let waits = waiting.iter().find(|lock| txn != 0 && lock.txn == txn);
        writer.bool("waitingForLock", waits.is_some());
        writer.bool("waitingForWriteConcern", operation.awaits_members);
        if let Some(lock) = waits {
            let open = writer.begin_document("lockRequest");
            lock_request(&mut writer, lock, state.os.clock.wall_ms());
            writer.end(open);
        }
    }
    writer.finish()
}

fn running(state: &ServerState, writer: &mut Writer, operation: &OpSnapshot) {
    let time = state.os.clock.monotonic().saturating_sub(operation.started);
    writer.bool("threaded", true);
    writer.number("opid", operation.number);
    if let Some(session) = operation.session {
        let lsid = writer.begin_document("lsid");
        writer.uuid("id", &session.id);
        writer.binary("uid", &session.user.0);
        writer.end(lsid);
    }
    writer.long("secs_running", time.as_secs());
    writer.long("microsecs_running", time.as_micros() as u64);
    let kind = match operation.name {
        "find" => "query",
        "getMore" => "getmore",
        "insert" => "insert",
        "update" => "update",
        "delete" => "remove",
        _ => "command",
    };
    writer.str("op", kind);
    writer.str("ns", &operation.namespace);
    if let Ok(command) = RawDocument::from_bytes(&operation.command[..]) {
        writer.document("command", command);
    } else {
        let command = writer.begin_document("command");
        writer.str("$truncated", operation.name);
        writer.end(command);
    }
    if operation.kill_pending {
        writer.bool("killPending", true);
    }
    if let Some(progress) = &operation.progress {
        let percent = (progress.done * 100).checked_div(progress.total).unwrap_or(100);
        let OpProgress { message, done, total } = progress;
        writer.str("msg", &format!("{message} {done}/{total} {percent}%"));
        let place = writer.begin_document("progress");
        writer.number("done", *done);
        writer.number("total", *total);
        writer.end(place);
    }
    writer.i32("numYields", 0);
}

/// Who wants which lock since when, and one of those who have it, by TokuMX's names.
pub fn lock_request(writer: &mut Writer, lock: &ShownLock, now_ms: i64) {
    writer.str("index", &lock.index);
    writer.number("requestingTxnid", lock.txn);
    writer.number("blockingTxnid", lock.blockers.first().copied().unwrap_or_default());
    let waited = i64::try_from(lock.waiting_ms.unwrap_or_default()).unwrap_or(0);
    writer.date("started", now_ms.saturating_sub(waited));
    lock_bounds(writer, &lock.bounds);
}

/// The two ends of what a lock covers.
pub fn lock_bounds(writer: &mut Writer, bounds: &[Bson; 2]) {
    writer.bson("bounds", &Bson::Array(bounds.to_vec()));
}
