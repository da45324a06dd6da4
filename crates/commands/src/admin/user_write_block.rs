//! `setUserWriteBlockMode`: keeps users from writing while data moves to another cluster.
//!
//! Always true: it is refused. A standalone has no such mode, as in MongoDB. A member has no users yet,
//! and whoever is not asked for a user may write all the same: a server that answered yes would be
//! thought to be closed.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::{Field, missing};
use errors::{Code, Error, Result};

pub(crate) const SET_USER_WRITE_BLOCK_MODE: Command = Command::new(
    "setUserWriteBlockMode",
    "Refused: there are no users to keep from writing.",
    Needs::Cluster(&[Action::SetUserWriteBlockMode]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let name = context.command.name;
    let mut global = None;
    for field in &fields[1..] {
        match field.name {
            "global" => global = Some(field.strict_bool()?),
            "reason" if field.is_null() => {}
            "reason" => drop(field.str()?),
            _ => return Err(field.unknown()),
        }
    }
    if global.is_none() {
        return Err(missing(name, "global"));
    }
    if !context.service.replication.is_member() {
        let text = format!("{name} cannot be run on standalones");
        return Err(Error::new(Code::ILLEGAL_OPERATION, text));
    }
    Err(Error::new(
        Code::NOT_IMPLEMENTED,
        format!("{name} is not supported by this version of FernDB, which has no users to block"),
    ))
}
