//! `updateRole`.

use super::asks;
use super::stored::{
    Of, RoleFields, change, check_changeable, check_parents, check_roles, documents_of, no_role,
    put_restrictions, stored_privileges,
};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{RoleDocument, RoleName, closes_cycle};
use dispatch::fields::Field;
use errors::{Code, Error, Result};

pub(crate) const UPDATE_ROLE: Command =
    Command::new("updateRole", "Changes a role.", Needs::Computed(asks::update_role), run)
        .write_concern();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let database = context.database();
    let name = RoleName::new(fields[0].str()?, database);
    let given = RoleFields::parse(fields, database)?;
    let RoleFields { privileges, roles, restrictions } = given;
    if privileges.is_none() && roles.is_none() && restrictions.is_none() {
        return Err(Error::bad_value("Must specify at least one field to update in updateRole"));
    }
    check_changeable(&name)?;
    check_parents(&name, roles.as_deref().unwrap_or_default())?;
    change(context, |change| {
        let mut document = change.get(Of::Roles, &name.id())?.ok_or_else(|| no_role(&name))?;
        if let Some(privileges) = &privileges {
            document.insert("privileges", stored_privileges(privileges));
        }
        if let Some(roles) = &roles {
            check_roles(roles, &change.tables)?;
            check_cycle(&name, roles, change)?;
            document.insert("roles", documents_of(roles));
        }
        put_restrictions(&mut document, restrictions.as_ref());
        RoleDocument::parse(&document)?;
        change.put(Of::Roles, &document)
    })
}

/// A role that inherited from itself would be nobody's to understand.
pub(super) fn check_cycle(
    name: &RoleName,
    parents: &[RoleName],
    change: &super::stored::Change,
) -> Result<()> {
    if closes_cycle(name, parents, &change.tables.roles) {
        return Err(Error::new(
            Code::INVALID_ROLE_MODIFICATION,
            format!("Granting these roles to {name} would introduce a cycle in the role graph."),
        ));
    }
    Ok(())
}
