//! `replSetSyncFrom`: from whom this member gets what the others write. In this server that is the primary, whoever that
//! is: so a request for it is granted, and one for another member refused (ADR 65).

use super::initiate::configured;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use serverstate::replication::Role;
use serverstate::replication::config::member::with_port;

pub(crate) const REPL_SET_SYNC_FROM: Command = Command::new(
    "replSetSyncFrom",
    "Tells a secondary to follow that member: granted for the primary, which every member follows.",
    Needs::Cluster(&[Action::ReplSetStateChange]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let config = configured(context)?;
    fields.get(1).map_or(Ok(()), |field| Err(field.unknown()))?;
    let said = fields[0].str()?;
    let service = context.service;
    let replication = &service.replication;
    let role = replication.role(&service.os);
    let refuse = |code: Code, why: String| Err(Error::new(code, why));
    let port = service.info.port;
    let Some(own) = replication.own(&config, port) else {
        let text = "Removed and uninitialized nodes do not sync";
        return refuse(Code::NOT_SECONDARY, text.to_owned());
    };
    match role {
        Role::Arbiter => return refuse(Code::NOT_SECONDARY, "arbiters don't sync".to_owned()),
        Role::Primary => return refuse(Code::NOT_SECONDARY, "primaries don't sync".to_owned()),
        _ => {}
    }
    let target = with_port(said).and_then(|host| config.members.iter().find(|m| m.host == host));
    let Some(target) = target else {
        let text = format!("Could not find member \"{said}\" in replica set");
        return refuse(Code::NODE_NOT_FOUND, text);
    };
    if target.id == own.id {
        return refuse(Code::INVALID_OPTIONS, "I cannot sync from myself".to_owned());
    }
    if target.arbiter_only {
        let text = format!("Cannot sync from \"{said}\" because it is an arbiter");
        return refuse(Code::INVALID_OPTIONS, text);
    }
    let Some(primary) = replication.primary(&config, role, port) else {
        let text = format!(
            "I cannot reach the requested member: {said}: no member is known to be primary"
        );
        return refuse(Code::HOST_UNREACHABLE, text);
    };
    if primary.id != target.id {
        let text = format!(
            "Cannot sync from \"{said}\": entries and copies come from the primary, which is {}, and from no other member",
            primary.host
        );
        return refuse(Code::INVALID_OPTIONS, text);
    }
    context.reply.str("syncFromRequested", &target.host);
    context.reply.str("prevSyncTarget", &primary.host);
    Ok(())
}
