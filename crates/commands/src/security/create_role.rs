//! `createRole`.

use super::asks;
use super::stored::{
    Of, RoleFields, change, check_changeable, check_database, check_name, check_parents,
    check_roles, documents_of, put_restrictions, stored_privileges,
};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{RoleDocument, RoleName};
use bson::doc;
use dispatch::fields::{Field, missing};
use errors::{Error, Result};

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
    let given = RoleFields::parse(fields, database)?;
    let RoleFields { privileges, roles, restrictions } = given;
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
    put_restrictions(&mut document, restrictions.as_ref());
    RoleDocument::parse(&document)?;
    change(context, |change| {
        check_roles(&roles, &change.tables)?;
        if change.get(Of::Roles, &name.id())?.is_some() {
            return Err(Error::location(51002, format!("Role \"{name}\" already exists")));
        }
        change.put(Of::Roles, &document)
    })
}
