//! `_mergeAuthzCollections`: users and roles of a dump, which `mongorestore` has put into temporary
//! collections, become those of this server.
//!
//! Always true: users and roles come and go in one transaction, all or nothing. While nobody is asked who he
//! is, only a client on this machine brings any, as MongoDB lets only such a one make the first user: whoever
//! reaches an open server over a network cannot leave an account for the day on which users are asked for.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use crate::security::stored::{check_reach, new_user_id, turn};
use auth::old_users::{digest_of, replace_digest};
use auth::scram::Mechanism;
use auth::{RoleDocument, RoleName, UserDocument};
use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use catalog::{Collection, Namespace, Txn, TxnKind, from_engine, is_retryable};
use dispatch::fields::Field;
use engine::{Direction, KeyRange, Snapshot};
use errors::{Code, Error, Result};
use serverstate::versions::{AUTH_SCHEMA_VERSION, FEATURE_VERSION};
use std::sync::Arc;

pub(crate) const MERGE_AUTHZ_COLLECTIONS: Command = Command::new(
    "_mergeAuthzCollections",
    "Takes over the users and roles of a dump.",
    Needs::Computed(asks::merge_authz),
    run,
)
.admin_only()
.write_concern();

/// One kind of what is merged: where it is, where it is kept, and the field that names one.
struct Part {
    source: Arc<Collection>,
    target: Namespace,
    name_field: &'static str,
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let asks = context.admitted.is_access_control_on;
    if !asks && !context.connection.info().is_of_this_machine() {
        return Err(Error::new(
            Code::UNAUTHORIZED,
            "users and roles are taken over from clients on this machine only",
        ));
    }
    let (mut users, mut roles, mut database, mut drops) = (None, None, "", false);
    for field in &fields[1..] {
        match field.name {
            "tempUsersCollection" => users = Some(field.str()?).filter(|name| !name.is_empty()),
            "tempRolesCollection" => roles = Some(field.str()?).filter(|name| !name.is_empty()),
            "db" => database = field.str()?,
            "drop" => drops = field.bool()?,
            _ => return Err(field.unknown()),
        }
    }
    if users.is_none() && roles.is_none() {
        return Err(Error::bad_value(
            "Must provide at least one of \"tempUsersCollection\" and \"tempRolesCollection\"",
        ));
    }
    let _one_at_a_time = turn(context)?;
    context.service.ensure_shared_secret()?;
    // What was changed before is to be seen.
    context.service.catalog.wait_complete_visible()?;
    let catalog = &context.service.catalog;
    let mut parts = Vec::new();
    for (source, target, name_field) in
        [(users, "system.users", "user"), (roles, "system.roles", "role")]
    {
        let Some(source) = source.map(Namespace::parse).transpose()? else { continue };
        let source = context.opened(source)?;
        // A dump without any has made no collection.
        let Some(source) = catalog.collection(&source) else { continue };
        let target = Namespace::new("admin", target)?;
        parts.push(Part { source, target, name_field });
    }
    let versions = Namespace::new("admin", "system.version")?;
    loop {
        context.check_interrupt()?;
        for target in parts.iter().map(|part| &part.target).chain([&versions]) {
            catalog.ensure_system_collection(target)?;
        }
        let mut txn = catalog.begin(TxnKind::Statement);
        let merged = parts
            .iter()
            .try_for_each(|part| merge(context, &mut txn, part, database, drops))
            .and_then(|()| note_versions(&mut txn, &versions));
        match merged.and_then(|()| txn.commit()) {
            Err(error) if is_retryable(&error) => {}
            other => {
                context.service.security.changed();
                return other.map(drop);
            }
        }
    }
}

/// What a dump of these users says of their form and of the data's: without it no tool takes them.
fn note_versions(txn: &mut Txn, namespace: &Namespace) -> Result<()> {
    let collection = open(txn, namespace)?;
    for version in [
        doc! { "_id": "authSchema", "currentVersion": AUTH_SCHEMA_VERSION },
        doc! { "_id": "featureCompatibilityVersion", "version": FEATURE_VERSION },
    ] {
        let version = RawDocumentBuf::try_from(&version)?;
        let id = version.get("_id")?.unwrap_or(RawBsonRef::Null);
        if txn.get_for_update(&collection, &collection.id_key(id)?)?.is_none() {
            txn.insert_document(&collection, &version)?;
        }
    }
    Ok(())
}

fn open(txn: &mut Txn, namespace: &Namespace) -> Result<Arc<Collection>> {
    txn.open_for_write(namespace)?
        .ok_or_else(|| Error::new(Code::WRITE_CONFLICT, format!("{namespace} was dropped")))
}

fn merge(
    context: &Context<'_>,
    txn: &mut Txn,
    part: &Part,
    database: &str,
    drops: bool,
) -> Result<()> {
    let target = open(txn, &part.target)?;
    let snapshot = context.service.catalog.snapshot();
    for_each(context, &snapshot, &part.source, |document| {
        let (of, name) = (text(document, "db")?, text(document, part.name_field)?);
        if !database.is_empty() && of != database {
            return Ok(());
        }
        check(part, document).map_err(|error| {
            Error::new(
                error.code(),
                format!("{name} of {of} is not taken over: {}", error.message()),
            )
        })?;
        let upgraded = without_digest(context, document)?;
        let document = upgraded.as_deref().unwrap_or(document);
        let key = target.id_key(RawBsonRef::String(&format!("{of}.{name}")))?;
        match txn.get_for_update(&target, &key)? {
            None => txn.insert_document(&target, document),
            // A user or role that exists stays as it is: the user may be the one who restores.
            Some(_) if !drops => Ok(()),
            Some(old) => {
                let old = RawDocument::from_bytes(&old[..])?;
                txn.update_document(&target, &key, old, document, None)
            }
        }
    })?;
    if !drops {
        return Ok(());
    }
    for_each(context, &snapshot, &target, |document| {
        let Some(id) = document.get("_id")? else { return Ok(()) };
        let concerned = database.is_empty() || text(document, "db")? == database;
        let kept = snapshot.get(part.source.primary(), &part.source.id_key(id)?);
        if !concerned || kept.map_err(from_engine)?.is_some() {
            return Ok(());
        }
        let key = target.id_key(id)?;
        match txn.get_for_update(&target, &key)? {
            Some(gone) => txn.delete_document(&target, &key, RawDocument::from_bytes(&gone[..])?),
            None => Ok(()),
        }
    })
}

/// A user of MongoDB 2.6 with credentials of today in the place of its digest, by which nobody logs in any more.
fn without_digest(context: &Context<'_>, document: &RawDocument) -> Result<Option<RawDocumentBuf>> {
    if !matches!(document.get("credentials")?, Some(RawBsonRef::Document(of)) if of.get("MONGODB-CR")?.is_some())
    {
        return Ok(None);
    }
    let mut upgraded = Document::try_from(document)?;
    let Some(digest) = digest_of(&upgraded)? else { return Ok(None) };
    let mut salt = vec![0; Mechanism::Sha1.salt_bytes()];
    context.service.os.entropy.fill(&mut salt);
    let iterations = context.service.security.iterations(Mechanism::Sha1);
    replace_digest(&mut upgraded, &digest, salt, iterations);
    upgraded.entry("userId").or_insert_with(|| new_user_id(context));
    Ok(Some(RawDocumentBuf::try_from(&upgraded)?))
}

/// Refuses what no command would have made: what is not understood, and what would give more than its database has.
fn check(part: &Part, document: &RawDocument) -> Result<()> {
    let document = Document::try_from(document)?;
    let is_of_members = |role: &RoleName| role.role == "__system";
    let (reserved, roles) = if part.name_field == "user" {
        let user = UserDocument::parse(&document)?;
        (user.name.user == "__system", user.roles)
    } else {
        let role = RoleDocument::parse(&document)?;
        check_reach(&role.name, &role.privileges, &role.roles)?;
        (is_of_members(&role.name), role.roles)
    };
    if reserved || roles.iter().any(is_of_members) {
        return Err(Error::bad_value("__system is for the members of a set"));
    }
    Ok(())
}

/// Goes over the documents of a collection as they are in a snapshot.
fn for_each(
    context: &Context<'_>,
    snapshot: &Snapshot,
    collection: &Collection,
    mut step: impl FnMut(&RawDocument) -> Result<()>,
) -> Result<()> {
    let cursor = snapshot.cursor(collection.primary(), KeyRange::all(), Direction::Forward);
    let mut cursor = cursor.map_err(from_engine)?;
    while let Some((_, document)) = cursor.next().map_err(from_engine)? {
        context.check_interrupt()?;
        step(RawDocument::from_bytes(document)?)?;
    }
    Ok(())
}

fn text<'a>(document: &'a RawDocument, name: &str) -> Result<&'a str> {
    match document.get(name)? {
        Some(RawBsonRef::String(text)) => Ok(text),
        _ => Err(Error::bad_value(format!("a user or role has no text in '{name}'"))),
    }
}
