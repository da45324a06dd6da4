//! `currentOp`: what runs now. The aggregation stage of the same name reads [`operations`] too.

use crate::connection::Connection;
use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use crate::service::Service;
use crate::writer::Writer;
use bson::{RawDocument, RawDocumentBuf};
use errors::{Error, Result};
use expr::filter::{Filter, ParseContext};
use session::{OpProgress, OpSnapshot};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) const CURRENT_OP: Command =
    Command::new("currentOp", "The operations that run now.", run).admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut idle = false;
    let mut filter = RawDocumentBuf::new();
    for field in &fields[1..] {
        match field.name {
            "$all" => idle = field.bool()?,
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
    Ok(())
}

/// One document for each running operation, and with `idle` for each quiet connection.
pub(crate) fn operations(service: &Service, idle: bool) -> Vec<RawDocumentBuf> {
    let running = service.operations.list();
    let connections = service.connections();
    let mut all = Vec::new();
    for connection in &connections {
        let operation = running.iter().find(|op| op.connection == connection.id());
        if idle || operation.is_some() {
            all.push(describe(service, connection, operation));
        }
    }
    all
}

fn describe(
    service: &Service,
    connection: &Arc<Connection>,
    operation: Option<&OpSnapshot>,
) -> RawDocumentBuf {
    let mut writer = Writer::new();
    writer.str("type", "op");
    writer.str("host", &format!("{}:{}", service.info.host, service.info.port));
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
    let bound = connection.txn_id.load(Ordering::Relaxed);
    let txn = operation.map(|operation| operation.txn).filter(|txn| *txn != 0).unwrap_or(bound);
    if txn != 0 {
        writer.number("rootTxnid", txn);
    }
    if let Some(operation) = operation {
        running(service, &mut writer, operation);
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
    writer.bool("waitingForLock", false);
}
