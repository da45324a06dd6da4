//! `usersInfo`: there are no users yet, and it says so.

use crate::command::Command;
use crate::context::Context;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const USERS_INFO: Command =
    Command::new("usersInfo", "The users of a database: none yet.", run);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    for field in &fields[1..] {
        match field.name {
            "showCredentials"
            | "showCustomData"
            | "showPrivileges"
            | "showAuthenticationRestrictions" => {
                field.bool()?;
            }
            "filter" => {
                field.document()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    let list = context.reply.begin_array("users");
    context.reply.end(list);
    Ok(())
}
