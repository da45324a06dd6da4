//! `grantPrivilegesToRole` and `revokePrivilegesFromRole`.

use super::asks;
use super::stored::{
    Of, change, check_changeable, given_list, merge, no_role, parse_privileges, stored_privileges,
    take_away,
};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{RoleDocument, RoleName};
use dispatch::fields::Field;
use errors::Result;

pub(crate) const GRANT_PRIVILEGES: Command = Command::new(
    "grantPrivilegesToRole",
    "Gives privileges to a role.",
    Needs::Computed(asks::grant_privileges),
    grant,
)
.write_concern();

pub(crate) const REVOKE_PRIVILEGES: Command = Command::new(
    "revokePrivilegesFromRole",
    "Takes privileges away from a role.",
    Needs::Computed(asks::revoke_privileges),
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
    let privileges = given_list(context, fields, "privileges", parse_privileges)?;
    check_changeable(&name)?;
    change(context, |change| {
        let mut document = change.get(Of::Roles, &name.id())?.ok_or_else(|| no_role(&name))?;
        let mut held = RoleDocument::parse(&document)?.privileges;
        for privilege in &privileges {
            if grants {
                merge(&mut held, privilege.clone());
            } else {
                take_away(&mut held, privilege);
            }
        }
        document.insert("privileges", stored_privileges(&held));
        change.put(Of::Roles, &document)
    })
}
