//! `currentOp`: what runs now, and which transactions are open though nothing runs in them. The
//! aggregation stage of the same name reads [`operations`] too.

use crate::connection::Connection;
use crate::context::Context;
use crate::diagnostics::show_locks;
use crate::fields::Field;
use crate::registry::Command;
use crate::service::Service;
use crate::writer::Writer;
use bson::{RawDocument, RawDocumentBuf};
use catalog::ShownLock;
use errors::{Error, Result};
use matcher::{Filter, ParseContext};
use session::{OpProgress, OpSnapshot};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) const CURRENT_OP: Command =
    Command::new("currentOp", "The operations that run now.", run).admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut idle = Idle { connections: false, sessions: true };
    let mut filter = RawDocumentBuf::new();
    for field in &fields[1..] {
        match field.name {
            "$all" => idle.connections = field.bool()?,
            "$ownOps" | "$truncateOps" => {
                field.bool()?;
            }
            name => {
                let key = <&bson::raw::CStr>::try_from(name)
                    .map_err(|_| Error::bad_value("field name with a NUL byte"))?;
                filter.append(key, field.value);
            }
        }
    }
    let filter = Filter::parse(&filter, &ParseContext::default())?;
    let list = context.reply.begin_array("inprog");
    let mut at = 0;
    for operation in operations(context.service, idle) {
        if filter.matches(&operation)? {
            context.reply.element_document(at, &operation);
            at += 1;
        }
    }
    context.reply.end(list);
    if context.service.write_gate.is_closed() {
        context.reply.bool("fsyncLock", true);
        let text = "use db.fsyncUnlock() to terminate the fsync write/snapshot lock";
        context.reply.str("info", text);
    }
    Ok(())
}

/// Which of those that do nothing are shown beside running operations.
#[derive(Clone, Copy)]
pub(crate) struct Idle {
    /// Quiet connections. One with a transaction is shown in any case.
    pub(crate) connections: bool,
    /// Sessions with an open transaction.
    pub(crate) sessions: bool,
}

/// One document for each running operation, and for who does nothing as `idle` says.
pub(crate) fn operations(service: &Service, idle: Idle) -> Vec<RawDocumentBuf> {
    let running = service.operations.list();
    let waiting = service.catalog.locks(0);
    let mut all = Vec::new();
    for connection in &service.connections() {
        let operation = running.iter().find(|op| op.connection == connection.id());
        if idle.connections || operation.is_some() || bound_txn(connection) != 0 {
            all.push(describe(service, connection, operation, &waiting));
        }
    }
    if idle.sessions {
        all.extend(idle_sessions(service, |_| true));
    }
    all
}

/// What runs in a transaction, or the session or connection that has it open.
pub(crate) fn who_has(service: &Service, txn: u64) -> Option<RawDocumentBuf> {
    let running = service.operations.list();
    for connection in &service.connections() {
        let operation = running.iter().find(|op| op.connection == connection.id());
        if bound_txn(connection) == txn || operation.is_some_and(|op| op.txn == txn) {
            return Some(describe(service, connection, operation, &[]));
        }
    }
    idle_sessions(service, |open| open == txn).pop()
}

fn bound_txn(connection: &Connection) -> u64 {
    connection.txn_id.load(Ordering::Relaxed)
}

/// Sessions whose transaction waits for its client, of those transactions that are `wanted`.
fn idle_sessions(service: &Service, wanted: impl Fn(u64) -> bool) -> Vec<RawDocumentBuf> {
    let now = service.os.clock.monotonic();
    let mut all = Vec::new();
    let _nothing_taken = service.numbered.edit_idle(|id, state| -> Option<()> {
        let number = state.number;
        if let Some(open) = state.open().filter(|open| wanted(open.txn.id())) {
            let mut writer = Writer::new();
            writer.str("type", "idleSession");
            writer.str("host", &host(service));
            writer.str("desc", "inactive transaction");
            writer.bool("active", false);
            let lsid = writer.begin_document("lsid");
            writer.uuid("id", &id.0);
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

fn host(service: &Service) -> String {
    format!("{}:{}", service.info.host, service.info.port)
}

fn describe(
    service: &Service,
    connection: &Arc<Connection>,
    operation: Option<&OpSnapshot>,
    waiting: &[ShownLock],
) -> RawDocumentBuf {
    let mut writer = Writer::new();
    writer.str("type", "op");
    writer.str("host", &host(service));
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
    let now = bson::DateTime::from_millis(service.os.clock.wall_ms());
    if let Ok(text) = now.try_to_rfc3339_string() {
        writer.str("currentOpTime", &text);
    }
    let txn = operation.map(|operation| operation.txn).filter(|txn| *txn != 0);
    let txn = txn.unwrap_or_else(|| bound_txn(connection));
    if txn != 0 {
        writer.number("rootTxnid", txn);
    }
    if let Some(operation) = operation {
        running(service, &mut writer, operation);
        let waits = waiting.iter().find(|lock| txn != 0 && lock.txn == txn);
        writer.bool("waitingForLock", waits.is_some());
        if let Some(lock) = waits {
            let open = writer.begin_document("lockRequest");
            show_locks::request(&mut writer, lock, service.os.clock.wall_ms());
            writer.end(open);
        }
    }
    writer.finish()
}

fn running(service: &Service, writer: &mut Writer, operation: &OpSnapshot) {
    let time = service.os.clock.monotonic().saturating_sub(operation.started);
    writer.bool("threaded", true);
    writer.number("opid", operation.number);
    if let Some(session) = operation.session {
        let lsid = writer.begin_document("lsid");
        writer.uuid("id", &session.0);
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
