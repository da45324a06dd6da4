//! `grantRolesToRole` and `revokeRolesFromRole`.

use super::asks;
use super::stored::{
    Of, change, check_changeable, check_parents, check_roles, documents_of, given_list, no_role,
    parse_roles,
};
use super::update_role::check_cycle;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::RoleName;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const GRANT_ROLES_TO_ROLE: Command = Command::new(
    "grantRolesToRole",
    "Lets a role inherit from roles.",
    Needs::Computed(asks::grant_roles),
    grant,
)
.write_concern();

pub(crate) const REVOKE_ROLES_FROM_ROLE: Command = Command::new(
    "revokeRolesFromRole",
    "Lets a role inherit from roles no more.",
    Needs::Computed(asks::revoke_roles),
    revoke,
)
.write_concern();

fn grant(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    edit(context, fields, true)
}

fn revoke(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    edit(context, fields, false)
}

fn edit(context: &mut Context<'_>, fields: &[Field<'_>], grants: bool) -> Result<()> {
    let name = RoleName::new(fields[0].str()?, context.database());
    let roles = given_list(context, fields, "roles", parse_roles)?;
    check_changeable(&name)?;
    if grants {
        check_parents(&name, &roles)?;
    }
    change(context, |change| {
        check_roles(&roles, &change.tables)?;
        let mut document = change.get(Of::Roles, &name.id())?.ok_or_else(|| no_role(&name))?;
        let mut held = RoleName::parse_all(&document)?;
        if grants {
            check_cycle(&name, &roles, change)?;
            let new: Vec<_> = roles.iter().filter(|role| !held.contains(role)).cloned().collect();
            held.extend(new);
        } else {
            held.retain(|role| !roles.contains(role));
        }
        document.insert("roles", documents_of(&held));
        change.put(Of::Roles, &document)
    })
}
