//! Connections to other servers, of which a single node has none: `connPoolStats` and
//! `dropConnections` say so.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const CONN_POOL_STATS: Command = Command::new(
    "connPoolStats",
    "Connections to other servers: none.",
    Needs::Cluster(&[Action::ConnPoolStats]),
    stats,
);
pub(crate) const DROP_CONNECTIONS: Command = Command::new(
    "dropConnections",
    "Drops connections to other servers: none.",
    Needs::Cluster(&[Action::DropConnections]),
    drop_them,
)
.admin_only();

fn stats(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let reply = &mut context.reply;
    for name in [
        "numClientConnections",
        "numAScopedConnections",
        "totalInUse",
        "totalAvailable",
        "totalLeased",
        "totalCreated",
        "totalRefreshing",
    ] {
        reply.i32(name, 0);
    }
    for name in ["pools", "hosts", "replicaSets"] {
        let none = reply.begin_document(name);
        reply.end(none);
    }
    Ok(())
}

fn drop_them(_: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    for field in &fields[1..] {
        match field.name {
            "hostAndPort" => {
                field.strings()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    Ok(())
}
