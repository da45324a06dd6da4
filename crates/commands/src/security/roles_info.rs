//! `rolesInfo`.

use super::asks;
use super::stored::{Of, all, documents_of, merge, stored_privileges};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{BUILT_IN, Privilege, RoleDocument, RoleName, built_in, privileges_of, resolve};
use bson::{Bson, Document, RawBsonRef, RawDocumentBuf, doc};
use dispatch::fields::{Field, inner, missing};
use errors::{Error, Result};
use serverstate::security::Tables;

pub(crate) const ROLES_INFO: Command = Command::new(
    "rolesInfo",
    "The roles of a database, or some.",
    Needs::Computed(asks::roles_info),
    run,
);

/// How privileges are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Privileges {
    None,
    OfEach,
    Together,
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let database = context.database();
    let named = parse(&fields[0], database)?;
    let (mut shown, mut built_in_too, mut restrictions) = (Privileges::None, false, false);
    for field in &fields[1..] {
        match field.name {
            "showPrivileges" => {
                shown = match field.value {
                    RawBsonRef::String("asUserFragment") => Privileges::Together,
                    _ if field.bool()? => Privileges::OfEach,
                    _ => Privileges::None,
                };
            }
            "showBuiltinRoles" => built_in_too = field.bool()?,
            "showAuthenticationRestrictions" => restrictions = field.bool()?,
            _ => return Err(field.unknown()),
        }
    }
    let tables = context.service.user_tables()?;
    let names = match named {
        Some(names) => names,
        None => of_database(context, database, built_in_too)?,
    };
    if shown == Privileges::Together {
        let resolved = resolve(&names, &tables.roles);
        let fragment = doc! {
            "roles": documents_of(&names),
            "inheritedRoles": documents_of(&resolved.roles),
            "inheritedPrivileges": stored_privileges(&together(resolved.privileges)),
        };
        context.reply.bson("userFragment", &Bson::Document(fragment));
        return Ok(());
    }
    let mut found = Vec::new();
    let stored = if restrictions { all(context, Of::Roles)? } else { Vec::new() };
    for name in &names {
        let id = name.id();
        let own = stored.iter().find(|role| role.get_str("_id").is_ok_and(|of| of == id));
        if let Some(mut role) = describe(name, &tables, shown == Privileges::OfEach) {
            if restrictions {
                let own = own.and_then(|role| role.get("authenticationRestrictions")).cloned();
                role.insert("authenticationRestrictions", own.unwrap_or(Bson::Array(vec![])));
            }
            found.push(RawDocumentBuf::try_from(&role)?);
        }
    }
    let list = context.reply.begin_array("roles");
    for (at, role) in found.iter().enumerate() {
        context.reply.element_document(at, role);
    }
    context.reply.end(list);
    Ok(())
}

/// The roles of a database.
fn of_database(context: &Context<'_>, database: &str, built_in_too: bool) -> Result<Vec<RoleName>> {
    let mut names = Vec::new();
    for stored in all(context, Of::Roles)? {
        if let Ok(role) = RoleDocument::parse(&stored)
            && role.name.db == database
        {
            names.push(role.name);
        }
    }
    if built_in_too {
        let of_here = BUILT_IN.iter().map(|role| RoleName::new(role.name, database));
        names.extend(of_here.filter(|name| built_in(name).is_some()));
    }
    Ok(names)
}

fn together(privileges: Vec<Privilege>) -> Vec<Privilege> {
    let mut merged = Vec::new();
    for privilege in privileges {
        merge(&mut merged, privilege);
    }
    merged
}

fn describe(name: &RoleName, tables: &Tables, privileges: bool) -> Option<Document> {
    let mut shown = doc! { "_id": name.id() };
    let (own, parents, is_built_in) = if let Some(role) = built_in(name) {
        (privileges_of(role, &name.db), Vec::new(), true)
    } else {
        let role = tables.roles.get(name)?;
        (role.privileges.clone(), role.roles.clone(), false)
    };
    if is_built_in {
        shown.remove("_id");
    }
    shown.insert("role", &name.role);
    shown.insert("db", &name.db);
    let inherited = resolve(&parents, &tables.roles);
    shown.insert("roles", documents_of(&parents));
    shown.insert("inheritedRoles", documents_of(&inherited.roles));
    if privileges {
        shown.insert("privileges", stored_privileges(&own));
        let all = own.into_iter().chain(inherited.privileges).collect();
        shown.insert("inheritedPrivileges", stored_privileges(&together(all)));
    }
    shown.insert("isBuiltin", is_built_in);
    Some(shown)
}

fn parse(field: &Field<'_>, database: &str) -> Result<Option<Vec<RoleName>>> {
    let one = |value: RawBsonRef<'_>| match value {
        RawBsonRef::String(role) => Ok(RoleName::new(role, database)),
        RawBsonRef::Document(named) => {
            let (mut role, mut db) = (None, None);
            for part in inner(named, "rolesInfo") {
                let part = part?;
                match part.name {
                    "role" => role = Some(part.str()?),
                    "db" => db = Some(part.str()?),
                    _ => return Err(part.unknown()),
                }
            }
            Ok(RoleName::new(
                role.ok_or_else(|| missing("rolesInfo", "role"))?,
                db.ok_or_else(|| missing("rolesInfo", "db"))?,
            ))
        }
        _ => Err(Error::bad_value("Role names must be either strings or objects")),
    };
    Ok(match field.value {
        RawBsonRef::Array(list) => {
            let mut names = Vec::new();
            for value in list {
                names.push(one(value?)?);
            }
            Some(names)
        }
        value @ (RawBsonRef::String(_) | RawBsonRef::Document(_)) => Some(vec![one(value)?]),
        _ => {
            if field.i64()? != 1 {
                return Err(Error::bad_value("rolesInfo takes 1, a name, or a list of names"));
            }
            None
        }
    })
}
