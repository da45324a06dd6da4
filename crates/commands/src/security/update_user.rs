//! `updateUser`.

use super::asks;
use super::stored::{
    Of, UserFields, change, check_name, check_roles, documents_of, no_user, put_restrictions,
};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{UserDocument, UserName};
use bson::Document;
use dispatch::fields::Field;
use errors::{Error, Result};

pub(crate) const UPDATE_USER: Command =
    Command::new("updateUser", "Changes a user.", Needs::Computed(asks::update_user), run)
        .write_concern()
        .secret(&["pwd"]);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let database = context.database();
    let name = UserName::new(check_name("User", &fields[0])?, database);
    let given = UserFields::parse(fields, database)?;
    let UserFields { password, custom, roles, restrictions } = given;
    let changes_mechanisms = password.mechanisms.is_some();
    if password.given.is_none()
        && custom.is_none()
        && roles.is_none()
        && restrictions.is_none()
        && !changes_mechanisms
    {
        return Err(Error::bad_value("Must specify at least one field to update in updateUser"));
    }
    if database == "$external" && (password.given.is_some() || changes_mechanisms) {
        return Err(Error::bad_value(
            "Cannot set the password for users defined on the '$external' database",
        ));
    }
    let credentials = match password.given {
        Some(_) => Some(password.credentials(context, &name.user)?),
        None => None,
    };
    change(context, |change| {
        let mut document = change.get(Of::Users, &name.id())?.ok_or_else(|| no_user(&name))?;
        if let Some(credentials) = &credentials {
            document.insert("credentials", credentials.clone());
        } else if let Some(left) = &password.mechanisms {
            // Without the password none can be added.
            let stored = document.get_document("credentials").cloned().unwrap_or_default();
            let mut kept = Document::new();
            for mechanism in left {
                let Some(one) = stored.get(mechanism.name()) else {
                    return Err(Error::bad_value(
                        "mechanisms field must be a subset of previously set mechanisms",
                    ));
                };
                kept.insert(mechanism.name(), one.clone());
            }
            document.insert("credentials", kept);
        }
        if let Some(custom) = &custom {
            document.insert("customData", custom.clone());
        }
        if let Some(roles) = &roles {
            check_roles(roles, &change.tables)?;
            document.insert("roles", documents_of(roles));
        }
        put_restrictions(&mut document, restrictions.as_ref());
        UserDocument::parse(&document)?;
        change.put(Of::Users, &document)
    })
}
