//! `replSetFreeze` and `replSetMaintenance`: an operator keeps a secondary from becoming primary, for a while or until
//! further notice. Both are forgotten by a restart, as in MongoDB.

use super::initiate::configured;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use serverstate::replication::Role;
use std::time::Duration;

pub(crate) const REPL_SET_FREEZE: Command = Command::new(
    "replSetFreeze",
    "Keeps a secondary from being elected for so many seconds.",
    Needs::Cluster(&[Action::ReplSetStateChange]),
    freeze,
)
.admin_only();

pub(crate) const REPL_SET_MAINTENANCE: Command = Command::new(
    "replSetMaintenance",
    "A secondary shows nothing and is not elected until that is taken back.",
    Needs::Cluster(&[Action::ReplSetStateChange]),
    maintenance,
)
.admin_only();

fn check_arguments(fields: &[Field<'_>]) -> Result<()> {
    fields.get(1).map_or(Ok(()), |field| Err(field.unknown()))
}

fn freeze(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    configured(context)?;
    check_arguments(fields)?;
    let seconds = u64::try_from(fields[0].i64()?)
        .map_err(|_| Error::bad_value("replSetFreeze takes a number of seconds, 0 to end it"))?;
    let service = context.service;
    if service.replication.role(&service.os) == Role::Primary {
        let text = "cannot freeze node when primary or running for election. state: Primary";
        return Err(Error::new(Code::NOT_SECONDARY, text));
    }
    let until = (seconds > 0).then(|| context.now().saturating_add(Duration::from_secs(seconds)));
    match service.replication.membership() {
        Some(membership) => membership.freeze(until),
        // It waits for its own election after it stepped down.
        None => service.replication.step_down(until.unwrap_or_default()),
    }
    match seconds {
        0 => context.reply.str("info", "unfreezing"),
        1 => context.reply.str("warning", "you really want to freeze for only 1 second?"),
        _ => {}
    }
    Ok(())
}

fn maintenance(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    configured(context)?;
    check_arguments(fields)?;
    let begins = fields[0].bool()?;
    let service = context.service;
    if service.replication.role(&service.os) == Role::Primary {
        let text = "primaries can't modify maintenance mode";
        return Err(Error::new(Code::NOT_SECONDARY, text));
    }
    if !service.replication.set_maintenance(begins) {
        return Err(Error::new(Code::OPERATION_FAILED, "already out of maintenance mode"));
    }
    service.topology_changed();
    Ok(())
}
