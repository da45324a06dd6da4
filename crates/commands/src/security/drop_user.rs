//! `dropUser` and `dropAllUsersFromDatabase`.

use super::stored::{Of, all, change, no_user};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{Action, UserName};
use dispatch::fields::Field;
use errors::Result;

pub(crate) const DROP_USER: Command =
    Command::new("dropUser", "Removes a user.", Needs::Database(&[Action::DropUser]), one)
        .write_concern();

pub(crate) const DROP_ALL_USERS: Command = Command::new(
    "dropAllUsersFromDatabase",
    "Removes the users of a database.",
    Needs::Database(&[Action::DropUser]),
    everyone,
)
.write_concern();

fn one(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let name = UserName::new(fields[0].str()?, context.database());
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    change(context, |change| {
        if change.delete(Of::Users, &name.id())? { Ok(()) } else { Err(no_user(&name)) }
    })
}

fn everyone(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let database = context.database();
    let gone = change(context, |change| {
        let mut gone = 0;
        for document in all(context, Of::Users)? {
            if document.get_str("db").is_ok_and(|db| db == database) {
                let id = document.get_str("_id").unwrap_or_default();
                gone += u64::from(change.delete(Of::Users, id)?);
            }
        }
        Ok(gone)
    })?;
    context.reply.number("n", gone);
    Ok(())
}
