//! `updateRole`.

use super::asks;
use super::create_role::check_parents;
use super::stored::{
    Of, change, check_changeable, check_roles, documents_of, no_role, parse_privileges,
    parse_restrictions, parse_roles, stored_privileges,
};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{RoleDocument, RoleName, closes_cycle};
use bson::Bson;
use dispatch::fields::Field;
use errors::{Code, Error, Result};

pub(crate) const UPDATE_ROLE: Command =
    Command::new("updateRole", "Changes a role.", Needs::Computed(asks::update_role), run)
        .write_concern();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let database = context.database();
    let name = RoleName::new(fields[0].str()?, database);
    let (mut privileges, mut roles, mut restrictions) = (None, None, None);
    for field in &fields[1..] {
        match field.name {
            "privileges" => privileges = Some(parse_privileges(field, database)?),
            "roles" => roles = Some(parse_roles(field, database)?),
            "authenticationRestrictions" => restrictions = Some(parse_restrictions(field)?),
            _ => return Err(field.unknown()),
        }
    }
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
        match &restrictions {
            Some(Bson::Array(none)) if none.is_empty() => {
                document.remove("authenticationRestrictions");
            }
            Some(restrictions) => {
                document.insert("authenticationRestrictions", restrictions.clone());
            }
            None => {}
        }
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
