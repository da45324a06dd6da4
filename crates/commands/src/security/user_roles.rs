//! `grantRolesToUser` and `revokeRolesFromUser`.

use super::asks;
use super::stored::{Of, change, check_roles, documents_of, given_list, no_user, parse_roles};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{RoleName, UserName};
use dispatch::fields::Field;
use errors::Result;

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
    let roles = given_list(context, fields, "roles", parse_roles)?;
    change(context, |change| {
        check_roles(&roles, &change.tables)?;
        let mut document = change.get(Of::Users, &name.id())?.ok_or_else(|| no_user(&name))?;
        let mut held = RoleName::parse_all(&document)?;
        how(&mut held, &roles);
        document.insert("roles", documents_of(&held));
        change.put(Of::Users, &document)
    })
}
