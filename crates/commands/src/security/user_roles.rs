//! `grantRolesToUser` and `revokeRolesFromUser`.

use super::asks;
use super::stored::{Of, change, check_roles, documents_of, no_user, parse_roles};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{RoleName, UserName};
use dispatch::fields::{Field, missing};
use errors::{Error, Result};

pub(crate) const GRANT_ROLES_TO_USER: Command = Command::new(
    "grantRolesToUser",
    "Gives roles to a user.",
    Needs::Computed(asks::grant_roles),
    grant,
)
.write_concern();

pub(crate) const REVOKE_ROLES_FROM_USER: Command = Command::new(
    "revokeRolesFromUser",
    "Takes roles away from a user.",
    Needs::Computed(asks::revoke_roles),
    revoke,
)
.write_concern();

fn grant(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    edit(context, fields, |held, more| {
        for role in more {
            if !held.contains(role) {
                held.push(role.clone());
            }
        }
    })
}

fn revoke(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    edit(context, fields, |held, gone| held.retain(|role| !gone.contains(role)))
}

fn edit(
    context: &mut Context<'_>,
    fields: &[Field<'_>],
    how: impl Fn(&mut Vec<RoleName>, &[RoleName]),
) -> Result<()> {
    let name = UserName::new(fields[0].str()?, context.database());
    let mut roles = None;
    for field in &fields[1..] {
        match field.name {
            "roles" => roles = Some(parse_roles(field, context.database())?),
            _ => return Err(field.unknown()),
        }
    }
    let roles = roles.ok_or_else(|| missing(context.command.name, "roles"))?;
    if roles.is_empty() {
        return Err(Error::bad_value(format!(
            "{} command requires a non-empty \"roles\" array",
            context.command.name
        )));
    }
    change(context, |change| {
        check_roles(&roles, &change.tables)?;
        let mut document = change.get(Of::Users, &name.id())?.ok_or_else(|| no_user(&name))?;
        let mut held = RoleName::parse_all(&document)?;
        how(&mut held, &roles);
        document.insert("roles", documents_of(&held));
        change.put(Of::Users, &document)
    })
}
