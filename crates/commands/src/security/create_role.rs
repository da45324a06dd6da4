//! `createRole`.

use super::asks;
use super::stored::{
    Of, change, check_changeable, check_database, check_name, check_roles, documents_of,
    parse_privileges, parse_restrictions, parse_roles, stored_privileges,
};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{RoleDocument, RoleName};
use bson::doc;
use dispatch::fields::{Field, missing};
use errors::{Code, Error, Result};

pub(crate) const CREATE_ROLE: Command =
    Command::new("createRole", "Makes a role.", Needs::Computed(asks::create_role), run)
        .write_concern();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let database = context.database();
    let name = RoleName::new(check_name("Role", &fields[0])?, database);
    check_database("roles", database)?;
    if database == "$external" {
        return Err(Error::bad_value("Cannot create roles in the $external database"));
    }
    let (mut privileges, mut roles, mut restrictions) = (None, None, None);
    for field in &fields[1..] {
        match field.name {
            "privileges" => privileges = Some(parse_privileges(field, database)?),
            "roles" => roles = Some(parse_roles(field, database)?),
            "authenticationRestrictions" => restrictions = Some(parse_restrictions(field)?),
            _ => return Err(field.unknown()),
        }
    }
    let privileges = privileges.ok_or_else(|| missing("createRole", "privileges"))?;
    let roles = roles.ok_or_else(|| missing("createRole", "roles"))?;
    check_changeable(&name)?;
    check_parents(&name, &roles)?;
    let mut document = doc! {
        "_id": name.id(),
        "role": &name.role,
        "db": &name.db,
        "privileges": stored_privileges(&privileges),
        "roles": documents_of(&roles),
    };
    if let Some(restrictions) = restrictions {
        document.insert("authenticationRestrictions", restrictions);
    }
    RoleDocument::parse(&document)?;
    change(context, |change| {
        check_roles(&roles, &change.tables)?;
        if change.get(Of::Roles, &name.id())?.is_some() {
            return Err(Error::location(51002, format!("Role \"{name}\" already exists")));
        }
        change.put(Of::Roles, &document)
    })
}

/// A role outside `admin` inherits from its own database's only.
pub(super) fn check_parents(name: &RoleName, parents: &[RoleName]) -> Result<()> {
    if parents.contains(name) {
        return Err(Error::new(
            Code::INVALID_ROLE_MODIFICATION,
            format!("Cannot grant role {name} to itself."),
        ));
    }
    match parents.iter().find(|parent| name.db != "admin" && parent.db != name.db) {
        Some(_) => Err(Error::new(
            Code::INVALID_ROLE_MODIFICATION,
            format!(
                "Roles on the '{}' database cannot be granted roles from other databases",
                name.db
            ),
        )),
        None => Ok(()),
    }
}
