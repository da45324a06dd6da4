//! `createUser`.

use super::asks;
use super::stored::{
    Of, Password, change, check_database, check_name, check_roles, documents_of, new_user_id,
    parse_restrictions, parse_roles,
};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{UserDocument, UserName};
use bson::{Document, doc};
use dispatch::fields::{Field, missing};
use errors::{Error, Result};

pub(crate) const CREATE_USER: Command =
    Command::new("createUser", "Makes a user.", Needs::Computed(asks::create_user), run)
        .write_concern();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let database = context.database();
    let name = UserName::new(check_name("User", &fields[0])?, database);
    check_database("users", database)?;
    let (mut password, mut roles) = (Password::default(), None);
    let (mut custom, mut restrictions) = (None, None);
    for field in &fields[1..] {
        if password.take(field)? {
            continue;
        }
        match field.name {
            "customData" => custom = Some(Document::try_from(field.document()?)?),
            "roles" => roles = Some(parse_roles(field, database)?),
            "authenticationRestrictions" => restrictions = Some(parse_restrictions(field)?),
            _ => return Err(field.unknown()),
        }
    }
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
    if let Some(restrictions) = restrictions {
        document.insert("authenticationRestrictions", restrictions);
    }
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
