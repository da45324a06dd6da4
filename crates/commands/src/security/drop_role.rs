//! `dropRole` and `dropAllRolesFromDatabase`: who held a role holds it no more.

use super::stored::{Of, all, change, check_changeable, no_role};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{Action, RoleName};
use dispatch::fields::Field;
use errors::Result;

pub(crate) const DROP_ROLE: Command =
    Command::new("dropRole", "Removes a role.", Needs::Database(&[Action::DropRole]), one)
        .write_concern();

pub(crate) const DROP_ALL_ROLES: Command = Command::new(
    "dropAllRolesFromDatabase",
    "Removes the roles of a database.",
    Needs::Database(&[Action::DropRole]),
    every,
)
.write_concern();

fn one(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let name = RoleName::new(fields[0].str()?, context.database());
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    check_changeable(&name)?;
    change(context, |change| {
        if change.get(Of::Roles, &name.id())?.is_none() {
            return Err(no_role(&name));
        }
        change.forget_roles(context, std::slice::from_ref(&name))?;
        change.delete(Of::Roles, &name.id()).map(drop)
    })
}

fn every(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let database = context.database();
    let gone = change(context, |change| {
        let mut gone = Vec::new();
        for document in all(context, Of::Roles)? {
            if let (Ok(role), Ok(db)) = (document.get_str("role"), document.get_str("db"))
                && db == database
            {
                gone.push(RoleName::new(role, db));
            }
        }
        change.forget_roles(context, &gone)?;
        for name in &gone {
            change.delete(Of::Roles, &name.id())?;
        }
        Ok(gone.len())
    })?;
    context.reply.number("n", gone as u64);
    Ok(())
}
