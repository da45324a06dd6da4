//! `usersInfo`.

use super::asks;
use super::stored::{Of, all};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{RoleName, UserName, resolve};
use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use dispatch::fields::{Field, inner, missing};
use errors::{Error, Result};
use matcher::{Filter, ParseContext};

pub(crate) const USERS_INFO: Command = Command::new(
    "usersInfo",
    "The users of a database, or some.",
    Needs::Computed(asks::users_info),
    run,
);

/// Which users are meant.
enum Selection {
    Database,
    Everywhere,
    These(Vec<UserName>),
}

#[expect(clippy::struct_excessive_bools, reason = "flags, as the client gives them")]
#[derive(Default)]
struct Shown {
    credentials: bool,
    custom: bool,
    privileges: bool,
    restrictions: bool,
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let wanted = parse(&fields[0], context.database())?;
    let mut shown = Shown { custom: true, ..Shown::default() };
    let mut filter = None;
    for field in &fields[1..] {
        match field.name {
            "showCredentials" => shown.credentials = field.bool()?,
            "showCustomData" => shown.custom = field.bool()?,
            "showPrivileges" => shown.privileges = field.bool()?,
            "showAuthenticationRestrictions" => shown.restrictions = field.bool()?,
            "filter" => filter = Some(Filter::parse(field.document()?, &ParseContext::default())?),
            _ => return Err(field.unknown()),
        }
    }
    if (shown.privileges || shown.restrictions) && !matches!(wanted, Selection::These(_)) {
        return Err(Error::new(
            errors::Code::ILLEGAL_OPERATION,
            "Privilege or restriction details require exact-match usersInfo queries.",
        ));
    }
    let database = context.database();
    let mut found = Vec::new();
    for stored in all(context, Of::Users)? {
        let name = UserName::new(
            stored.get_str("user").unwrap_or_default(),
            stored.get_str("db").unwrap_or_default(),
        );
        let meant = match &wanted {
            Selection::Database => name.db == database,
            Selection::Everywhere => true,
            Selection::These(names) => names.contains(&name),
        };
        if !meant {
            continue;
        }
        let described = RawDocumentBuf::try_from(&describe(context, stored, &shown)?)?;
        if match &filter {
            Some(filter) => filter.matches(&described)?,
            None => true,
        } {
            found.push(described);
        }
    }
    let list = context.reply.begin_array("users");
    for (at, user) in found.iter().enumerate() {
        context.reply.element_document(at, user);
    }
    context.reply.end(list);
    Ok(())
}

fn describe(context: &Context<'_>, mut stored: Document, shown: &Shown) -> Result<Document> {
    let credentials = stored.remove("credentials");
    let restrictions = stored.remove("authenticationRestrictions");
    if !shown.custom {
        stored.remove("customData");
    }
    if let Some(Bson::Document(credentials)) = credentials {
        let names: Vec<&str> =
            credentials.keys().map(String::as_str).filter(|name| *name != "external").collect();
        if !names.is_empty() {
            stored.insert("mechanisms", names);
        }
        if shown.credentials {
            stored.insert("credentials", credentials);
        }
    }
    if shown.restrictions {
        stored.insert("authenticationRestrictions", restrictions.unwrap_or(Bson::Array(vec![])));
    }
    if shown.privileges {
        let tables = context.service.user_tables()?;
        let held = RoleName::parse_all(&stored).unwrap_or_default();
        let resolved = resolve(&held, &tables.roles);
        stored.insert("inheritedRoles", super::stored::documents_of(&resolved.roles));
        let mut privileges = Vec::new();
        for privilege in resolved.privileges {
            super::stored::merge(&mut privileges, privilege);
        }
        stored.insert("inheritedPrivileges", super::stored::stored_privileges(&privileges));
    }
    Ok(stored)
}

fn parse(field: &Field<'_>, database: &str) -> Result<Selection> {
    let one = |value: RawBsonRef<'_>| match value {
        RawBsonRef::String(user) => Ok(UserName::new(user, database)),
        RawBsonRef::Document(named) => parse_name(named),
        _ => Err(Error::bad_value("User names must be either strings or objects")),
    };
    Ok(match field.value {
        RawBsonRef::Document(all) if all.get("forAllDBs")?.is_some() => Selection::Everywhere,
        RawBsonRef::Array(list) => {
            let mut names = Vec::new();
            for value in list {
                names.push(one(value?)?);
            }
            Selection::These(names)
        }
        value @ (RawBsonRef::String(_) | RawBsonRef::Document(_)) => {
            Selection::These(vec![one(value)?])
        }
        _ => {
            if field.i64()? != 1 {
                return Err(Error::bad_value("usersInfo takes 1, a name, or a list of names"));
            }
            Selection::Database
        }
    })
}

fn parse_name(named: &RawDocument) -> Result<UserName> {
    let (mut user, mut db) = (None, None);
    for part in inner(named, "usersInfo") {
        let part = part?;
        match part.name {
            "user" => user = Some(part.str()?),
            "db" => db = Some(part.str()?),
            _ => return Err(part.unknown()),
        }
    }
    Ok(UserName::new(
        user.ok_or_else(|| missing("usersInfo", "user"))?,
        db.ok_or_else(|| missing("usersInfo", "db"))?,
    ))
}
