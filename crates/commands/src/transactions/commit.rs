//! `commitTransaction` and `abortTransaction`.

use super::bound;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use errors::{Error, Result};
use serverstate::Phase;
use serverstate::session_rows::{Row, Saved};
use std::sync::atomic::Ordering;

pub(crate) const COMMIT_TRANSACTION: Command = Command::new(
    "commitTransaction",
    "Makes the session's or connection's transaction visible.",
    Needs::Login,
    commit,
)
.admin_only()
.api_v1()
.write_concern();

pub(crate) const ABORT_TRANSACTION: Command = Command::new(
    "abortTransaction",
    "Undoes the session's or connection's transaction.",
    Needs::Login,
    undo,
)
.aliases(&["rollbackTransaction"])
.admin_only()
.api_v1()
.write_concern();

fn parse(fields: &[Field<'_>]) -> Result<()> {
    for field in &fields[1..] {
        match field.name {
            // Names the shard that coordinates; clients send it to whoever gave it to them.
            "recoveryToken" => {
                field.document()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    Ok(())
}

fn commit(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    parse(fields)?;
    let service = context.service;
    let Some(state) = &mut context.state else { return commit_bound(context) };
    let (id, number) = (state.id(), state.number);
    // Sent again after it committed, it is only made as durable as it is asked for now.
    let Some(open) = state.take_open() else {
        service.catalog.remember_complete();
        return Ok(());
    };
    let mut txn = open.txn;
    if txn.has_writes() {
        let row = Row { number, wall_ms: service.os.clock.wall_ms(), saved: Saved::Committed };
        service.session_records.put(&mut txn, &id.key(), 0, &row.encode())?;
    }
    let committed = txn.commit();
    service.end_cursors(id, number);
    match committed {
        Ok(_) => {
            state.phase = Phase::Committed;
            service.transactions.committed.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        Err(error) => {
            service.transactions.aborted.fetch_add(1, Ordering::Relaxed);
            Err(error)
        }
    }
}

fn undo(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    parse(fields)?;
    let service = context.service;
    if let Some(state) = &mut context.state {
        let id = state.id();
        service.abort_session(state, id);
        return Ok(());
    }
    if loads(context) {
        return Err(Error::location(
            16890,
            "a bulk load is in progress: it is to be committed or aborted before the transaction is rolled back",
        ));
    }
    if !service.abort_bound(context.connection) {
        return Err(Error::location(16789, "no transaction exists to be rolled back"));
    }
    context.reply.str("status", "transaction rolled back");
    Ok(())
}

/// Whether the connection's transaction is in the middle of a load.
fn loads(context: &Context<'_>) -> bool {
    let bound = context.connection.bound.lock();
    bound.as_ref().is_some_and(|bound| bound.txn.loads_into().is_some())
}

/// Without a number it is the connection's transaction that is meant. It ends either way.
fn commit_bound(context: &mut Context<'_>) -> Result<()> {
    let (service, connection) = (context.service, context.connection);
    if loads(context) {
        return Err(Error::location(
            16889,
            "a bulk load is in progress: it is to be committed or aborted before the transaction is committed",
        ));
    }
    let Some(bound) = connection.bound.lock().take() else {
        return Err(Error::location(16788, "no transaction exists to be committed"));
    };
    let committed = bound.txn.commit();
    service.bound_ended(connection);
    let figures = &service.transactions;
    let counter = if committed.is_ok() { &figures.committed } else { &figures.aborted };
    counter.fetch_add(1, Ordering::Relaxed);
    committed.map_err(bound::inside)?;
    context.reply.str("status", "transaction committed");
    Ok(())
}
