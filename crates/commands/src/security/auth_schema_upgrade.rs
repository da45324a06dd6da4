//! `authSchemaUpgrade`: users as MongoDB before 3.0 and TokuMX stored them become users of today, with their passwords.
//!
//! `{authSchemaUpgrade: 1}` looks at `admin.system.users`, where `mongorestore` has put users of MongoDB 2.6.
//! `{authSchemaUpgrade: 1, from: "old_users"}` looks at the collection of that name in each database, into which somebody
//! has restored the database's `system.users`, and leaves it as it is.
//!
//! Always true: all or nothing is stored; who exists already stays as it is, so that a second run changes nothing; whoever
//! is not carried over is named with the reason.

use super::asks;
use super::stored::{Change, Of, all, change, new_user_id};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::old_users::{OldLogin, OldUser, digest_of, replace_digest};
use auth::scram::Mechanism;
use auth::{RoleName, UserDocument, UserName, exists};
use bson::{Bson, Document, RawDocument, doc};
use catalog::{Namespace, from_engine};
use dispatch::fields::Field;
use engine::{Direction, KeyRange};
use errors::{Code, Error, Result};
use serverstate::security::Tables;
use std::collections::BTreeMap;

pub(crate) const AUTH_SCHEMA_UPGRADE: Command = Command::new(
    "authSchemaUpgrade",
    "Carries users of old versions over.",
    Needs::Computed(asks::auth_schema_upgrade),
    run,
)
.admin_only()
.write_concern();

/// The most old users that are looked at, and their bytes: a collection of something else is not read to its end.
const MOST_USERS: usize = 100_000;
const MOST_BYTES: usize = 64 << 20;

/// What became of old users.
#[derive(Default)]
struct Report {
    upgraded: Vec<Bson>,
    left: Vec<Bson>,
}

impl Report {
    fn leave(&mut self, database: &str, user: &str, why: &str) {
        self.left.push(doc! { "user": user, "db": database, "reason": why }.into());
    }
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut from = None;
    for field in &fields[1..] {
        match field.name {
            "from" => from = Some(field.str()?),
            // There is one step, and no shard.
            "maxSteps" if field.i64()? > 0 => {}
            "maxSteps" => {
                return Err(Error::bad_value(
                    "maxSteps argument to authSchemaUpgrade must be positive",
                ));
            }
            "upgradeShardServers" => {
                field.bool()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    if from.is_some() && !context.admitted.is_access_control_on {
        check_is_local(context)?;
    }
    let report = match from {
        Some(name) => carry_over(context, name)?,
        None => in_place(context)?,
    };
    context.reply.bool("done", true);
    context.reply.bson("upgraded", &Bson::Array(report.upgraded));
    context.reply.bson("notUpgraded", &Bson::Array(report.left));
    Ok(())
}

/// While nobody is asked who he is, only a client on this machine brings users, as with a dump.
fn check_is_local(context: &Context<'_>) -> Result<()> {
    if context.connection.info().is_of_this_machine() {
        return Ok(());
    }
    let text = "users are taken over from clients on this machine only";
    Err(Error::new(Code::UNAUTHORIZED, text))
}

fn salt(context: &Context<'_>) -> Vec<u8> {
    let mut salt = vec![0; Mechanism::Sha1.salt_bytes()];
    context.service.os.entropy.fill(&mut salt);
    salt
}

/// Gives users in `admin.system.users` credentials of today in the place of a digest.
fn in_place(context: &Context<'_>) -> Result<Report> {
    let mut changed = BTreeMap::new();
    let mut report = Report::default();
    let iterations = context.service.security.iterations(Mechanism::Sha1);
    for mut document in all(context, Of::Users)? {
        context.check_interrupt()?;
        let before = document.clone();
        let id = document.get_str("_id").unwrap_or_default().to_owned();
        match digest_of(&document) {
            Ok(None) => {}
            Ok(Some(digest)) => {
                replace_digest(&mut document, &digest, salt(context), iterations);
                document.entry("userId").or_insert_with(|| new_user_id(context));
                changed.insert(id, (before, document));
            }
            Err(error) => report.leave("admin", &id, error.message()),
        }
    }
    if changed.is_empty() {
        return Ok(report);
    }
    let upgraded = change(context, |change| {
        let mut upgraded = Vec::new();
        for (id, (before, document)) in &changed {
            // Whoever was changed since has a new password, or is gone.
            if change.get(Of::Users, id)?.is_some_and(|now| now == *before) {
                change.put(Of::Users, document)?;
                upgraded.push(Bson::from(id));
            }
        }
        Ok(upgraded)
    })?;
    Ok(Report { upgraded, ..report })
}

/// Makes users of the documents in the collections of a name.
fn carry_over(context: &Context<'_>, collection: &str) -> Result<Report> {
    let mut report = Report::default();
    let users = read_old(context, collection, &mut report)?;
    let iterations = context.service.security.iterations(Mechanism::Sha1);
    let mut documents = Vec::new();
    for user in users.values() {
        context.check_interrupt()?;
        match user.to_document(new_user_id(context), salt(context), iterations) {
            Some(document) => documents.push((user, document)),
            None => report.leave(
                &user.name.db,
                &user.name.user,
                "its database has no document with its password among these",
            ),
        }
    }
    let (upgraded, left) = change(context, |change| {
        let (mut upgraded, mut left) = (Vec::new(), Report::default());
        for (user, document) in &documents {
            if make(change, user, document.clone(), &mut left)? {
                upgraded.push(Bson::from(user.name.id()));
            } else {
                left.leave(&user.name.db, &user.name.user, "a user of this name exists");
            }
        }
        Ok((upgraded, left.left))
    })?;
    report.left.extend(left);
    Ok(Report { upgraded, ..report })
}

/// Stores a user, unless one of its name is stored. Roles that there are not are left out, and told of.
fn make(
    change: &mut Change,
    user: &OldUser,
    mut document: Document,
    report: &mut Report,
) -> Result<bool> {
    if change.get(Of::Users, &user.name.id())?.is_some() {
        return Ok(false);
    }
    let (held, gone) = split_roles(&user.roles, &change.tables);
    for role in gone {
        let text = format!("made without the role {role}, which does not exist");
        report.leave(&user.name.db, &user.name.user, &text);
    }
    document.insert("roles", super::stored::documents_of(held));
    UserDocument::parse(&document)?;
    change.put(Of::Users, &document)?;
    Ok(true)
}

/// Roles that exist and may be held, and those that do not.
fn split_roles<'a>(
    roles: &'a [RoleName],
    tables: &Tables,
) -> (Vec<&'a RoleName>, Vec<&'a RoleName>) {
    roles.iter().partition(|role| role.role != "__system" && exists(role, &tables.roles))
}

/// The users that are stored in the collections of a name, each once: what several databases grant to one of them is
/// together.
fn read_old(
    context: &Context<'_>,
    collection: &str,
    report: &mut Report,
) -> Result<BTreeMap<UserName, OldUser>> {
    let mut users: BTreeMap<UserName, OldUser> = BTreeMap::new();
    for (database, document) in old_documents(context, collection)? {
        context.check_interrupt()?;
        let user = match OldUser::parse(&document, &database) {
            Ok(user) => user,
            Err(error) => {
                let name = document.get_str("user").unwrap_or("?");
                report.leave(&database, name, error.message());
                continue;
            }
        };
        match users.get_mut(&user.name) {
            None => {
                users.insert(user.name.clone(), user);
            }
            Some(known) => {
                known.roles.extend(user.roles);
                if matches!(known.login, OldLogin::Elsewhere) {
                    known.login = user.login;
                }
                known.custom = known.custom.take().or(user.custom);
            }
        }
    }
    Ok(users)
}

/// The documents of the collections of a name, with the database of each.
fn old_documents(context: &Context<'_>, name: &str) -> Result<Vec<(String, Document)>> {
    let catalog = &context.service.catalog;
    let (mut documents, mut bytes) = (Vec::new(), 0);
    let mut is_found = false;
    let snapshot = catalog.snapshot();
    for database in catalog.databases() {
        let namespace = Namespace::new(&database, name)?;
        let Some(collection) = catalog.collection(&namespace).filter(|found| !found.is_view())
        else {
            continue;
        };
        is_found = true;
        let cursor = snapshot.cursor(collection.primary(), KeyRange::all(), Direction::Forward);
        let mut cursor = cursor.map_err(from_engine)?;
        while let Some((_, document)) = cursor.next().map_err(from_engine)? {
            context.check_interrupt()?;
            bytes += document.len();
            if documents.len() == MOST_USERS || bytes > MOST_BYTES {
                return Err(Error::bad_value(format!(
                    "the collections {name} have too much for users"
                )));
            }
            let document = Document::try_from(RawDocument::from_bytes(document)?)?;
            documents.push((database.clone(), document));
        }
    }
    if !is_found {
        let text = format!("no database has a collection {name}");
        return Err(Error::new(Code::NAMESPACE_NOT_FOUND, text));
    }
    Ok(documents)
}
