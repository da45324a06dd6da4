//! `createUser`.

use super::asks;
use super::stored::{
    Of, UserFields, change, check_database, check_name, check_roles, documents_of, new_user_id,
    put_restrictions,
};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{UserDocument, UserName};
use bson::doc;
use dispatch::fields::{Field, missing};
use errors::{Error, Result};

pub(crate) const CREATE_USER: Command =
    Command::new("createUser", "Makes a user.", Needs::Computed(asks::create_user), run)
        .write_concern()
        .secret(&["pwd"]);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let database = context.database();
    let name = UserName::new(check_name("User", &fields[0])?, database);
    check_database("users", database)?;
    let given = UserFields::parse(fields, database)?;
    let UserFields { password, custom, roles, restrictions } = given;
    let roles = roles.ok_or_else(|| missing("createUser", "roles"))?;
    let credentials = if database == "$external" {
        if password.given.is_some() {
            return Err(Error::bad_value(
                "Cannot set the password for users defined on the '$external' database",
            ));
        }
        doc! { "external": true }
    } else {
        if password.given.is_none() {
            return Err(Error::bad_value(
                "Must provide a 'pwd' field for all user documents, except those with '$external' as the user's source db",
            ));
        }
        password.credentials(context, &name.user)?
    };
    let mut document = doc! {
        "_id": name.id(),
        "userId": new_user_id(context),
        "user": &name.user,
        "db": &name.db,
        "credentials": credentials,
    };
    if let Some(custom) = custom {
        document.insert("customData", custom);
    }
    document.insert("roles", documents_of(&roles));
    put_restrictions(&mut document, restrictions.as_ref());
    // What is stored is what can be read again.
    UserDocument::parse(&document)?;
    change(context, |change| {
        check_roles(&roles, &change.tables)?;
        if change.get(Of::Users, &name.id())?.is_some() {
            return Err(Error::location(51003, format!("User \"{name}\" already exists")));
        }
        change.put(Of::Users, &document)
    })
}
