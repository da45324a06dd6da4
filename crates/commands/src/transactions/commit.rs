//! `commitTransaction` and `abortTransaction`.

use super::statements::{Row, Saved};
use super::{Phase, abort, end_cursors};
use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use catalog::Durability;
use errors::{Code, Error, Result};
use std::sync::atomic::Ordering;

pub(crate) const COMMIT_TRANSACTION: Command =
    Command::new("commitTransaction", "Makes a session's transaction visible.", commit)
        .admin_only()
        .api_v1()
        .write_concern();

pub(crate) const ABORT_TRANSACTION: Command =
    Command::new("abortTransaction", "Undoes a session's transaction.", undo)
        .admin_only()
        .api_v1()
        .write_concern();

fn parse(context: &Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    for field in &fields[1..] {
        match field.name {
            // Names the shard that coordinates; clients send it to whoever gave it to them.
            "recoveryToken" => {
                field.document()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    if context.state.is_none() {
        return Err(Error::new(
            Code::COMMAND_FAILED,
            format!("{} must be run within a transaction", context.command.name),
        ));
    }
    Ok(())
}

fn commit(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    parse(context, fields)?;
    let service = context.service;
    let synced = context.arguments.write_concern.synced;
    let Some(state) = &mut context.state else { return Ok(()) };
    let (id, number) = (state.id(), state.number);
    let Some(open) = state.take_open() else {
        // Sent again after it committed; it must be as durable as it is asked for now.
        return if synced { service.catalog.sync() } else { Ok(()) };
    };
    let mut txn = open.txn;
    let wrote = txn.has_writes();
    if wrote {
        let row = Row { number, wall_ms: service.os.clock.wall_ms(), saved: Saved::Committed };
        txn.put_session_row(&id.0, 0, &row.encode())?;
    }
    let durability = if synced { Durability::Synced } else { Durability::Buffered };
    let committed = txn.commit(durability);
    end_cursors(service, id, number);
    // What a transaction has only read may be another's whose commit is not on disk yet: told as
    // durable, it must not be lost.
    let committed = match committed {
        Ok(_) if synced && !wrote => service.catalog.sync(),
        other => other.map(drop),
    };
    match committed {
        Ok(()) => {
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
    parse(context, fields)?;
    let service = context.service;
    if let Some(state) = &mut context.state {
        let id = state.id();
        abort(service, state, id);
    }
    Ok(())
}
