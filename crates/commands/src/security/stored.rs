//! Users and roles as they are stored: reading and changing their documents.
//!
//! Always true: one at a time changes them, each change is one transaction, and everybody's rights are looked up again
//! before it is acknowledged.

use crate::context::Context;
use auth::scram::{Credentials, Mechanism, prepare};
use auth::{Privilege, Restrictions, RoleName, UserName, exists};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use catalog::{Collection, Namespace, Txn, TxnKind, from_engine, is_retryable};
use dispatch::fields::{Field, missing};
use engine::{Direction, KeyRange};
use errors::{Code, Error, Result};
use os::sync::MutexGuard;
use serverstate::security::Tables;
use serverstate::versions::AUTH_SCHEMA_VERSION;
use std::sync::Arc;
use std::time::Duration;

/// The most roles, privileges and mechanisms that one document names.
const MOST_LISTED: usize = 10_000;

/// A change of users and roles on its way.
pub(super) struct Change {
    txn: Txn,
    users: Arc<Collection>,
    roles: Arc<Collection>,
    /// What was stored before it.
    pub(super) tables: Arc<Tables>,
}

/// Which of the two collections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Users,
    Roles,
}

/// Carries a change out, again where another commit came in between. Waits for whoever changes users just then.
pub(super) fn change<T>(
    context: &Context<'_>,
    mut carry_out: impl FnMut(&mut Change) -> Result<T>,
) -> Result<T> {
    let service = context.service;
    let _one_at_a_time = turn(context)?;
    service.ensure_shared_secret()?;
    let names = ["system.users", "system.roles", "system.version"];
    let mut namespaces = Vec::new();
    for name in names {
        namespaces.push(Namespace::new("admin", name)?);
    }
    loop {
        context.check_interrupt()?;
        // What was changed before is to be seen.
        service.catalog.wait_complete_visible()?;
        let tables = service.user_tables()?;
        // Another client of this machine was first.
        if context.admitted.by_localhost_exception && !tables.is_empty {
            return Err(crate::gate::refusal(context.database(), context.command, context.body));
        }
        for namespace in &namespaces {
            service.catalog.ensure_system_collection(namespace)?;
        }
        let mut txn = service.catalog.begin(TxnKind::Statement);
        let open = |txn: &mut Txn, namespace: &Namespace| {
            txn.open_for_write(namespace)?
                .ok_or_else(|| Error::new(Code::WRITE_CONFLICT, format!("{namespace} was dropped")))
        };
        let attempt = (|| {
            let (users, roles) = (open(&mut txn, &namespaces[0])?, open(&mut txn, &namespaces[1])?);
            let versions = open(&mut txn, &namespaces[2])?;
            note_version(&mut txn, &versions)?;
            let mut change = Change { txn, users, roles, tables };
            let done = carry_out(&mut change)?;
            change.txn.commit()?;
            Ok(done)
        })();
        match attempt {
            Err(error) if is_retryable(&error) => {}
            other => {
                service.security.changed();
                return other;
            }
        }
    }
}

/// How often who wants to change users looks whether it may.
const LOOK: Duration = Duration::from_millis(10);

/// Waits for whoever changes users and roles just then.
pub(crate) fn turn<'a>(context: &Context<'a>) -> Result<MutexGuard<'a, ()>> {
    loop {
        context.check_interrupt()?;
        match context.service.security.try_change() {
            Some(turn) => return Ok(turn),
            None => context.service.wait(LOOK),
        }
    }
}

/// Says of which form users are, for who reads a dump.
fn note_version(txn: &mut Txn, collection: &Arc<Collection>) -> Result<()> {
    let version = doc! { "_id": "authSchema", "currentVersion": AUTH_SCHEMA_VERSION };
    let key = collection.id_key(RawBsonRef::String("authSchema"))?;
    if txn.get_for_update(collection, &key)?.is_none() {
        txn.insert_document(collection, &RawDocumentBuf::try_from(&version)?)?;
    }
    Ok(())
}

impl Change {
    fn collection(&self, of: Of) -> Arc<Collection> {
        Arc::clone(match of {
            Of::Users => &self.users,
            Of::Roles => &self.roles,
        })
    }

    /// The document of an id.
    pub(super) fn get(&mut self, of: Of, id: &str) -> Result<Option<Document>> {
        let collection = self.collection(of);
        let key = collection.id_key(RawBsonRef::String(id))?;
        let Some(bytes) = self.txn.get_for_update(&collection, &key)? else { return Ok(None) };
        Ok(Some(Document::try_from(RawDocument::from_bytes(&bytes[..])?)?))
    }

    /// Stores a document in the place of the one of its id, if there is one.
    pub(super) fn put(&mut self, of: Of, document: &Document) -> Result<()> {
        let collection = self.collection(of);
        let id = document.get_str("_id").unwrap_or_default().to_owned();
        let document = RawDocumentBuf::try_from(document)?;
        let key = collection.id_key(RawBsonRef::String(&id))?;
        match self.txn.get_for_update(&collection, &key)? {
            None => self.txn.insert_document(&collection, &document),
            Some(old) => {
                let old = RawDocument::from_bytes(&old[..])?;
                self.txn.update_document(&collection, &key, old, &document, None)
            }
        }
    }

    /// Removes the document of an id; says whether there was one.
    pub(super) fn delete(&mut self, of: Of, id: &str) -> Result<bool> {
        let collection = self.collection(of);
        let key = collection.id_key(RawBsonRef::String(id))?;
        let Some(old) = self.txn.get_for_update(&collection, &key)? else { return Ok(false) };
        let old = RawDocument::from_bytes(&old[..])?;
        self.txn.delete_document(&collection, &key, old)?;
        Ok(true)
    }

    /// Takes roles away from everybody who holds them or inherits from them.
    pub(super) fn forget_roles(&mut self, context: &Context<'_>, gone: &[RoleName]) -> Result<()> {
        for of in [Of::Users, Of::Roles] {
            for listed in all(context, of)? {
                let Ok(id) = listed.get_str("_id") else { continue };
                // The newest version, locked: what was listed may have been changed since.
                let Some(mut document) = self.get(of, id)? else { continue };
                let Ok(held) = RoleName::parse_all(&document) else { continue };
                let left: Vec<_> = held.iter().filter(|role| !gone.contains(role)).collect();
                if left.len() < held.len() {
                    document.insert("roles", documents_of(left));
                    self.put(of, &document)?;
                }
            }
        }
        Ok(())
    }
}

/// Every document of users or roles, as of now.
pub(super) fn all(context: &Context<'_>, of: Of) -> Result<Vec<Document>> {
    let name = match of {
        Of::Users => "system.users",
        Of::Roles => "system.roles",
    };
    let catalog = &context.service.catalog;
    let Some(collection) = catalog.collection(&Namespace::new("admin", name)?) else {
        return Ok(Vec::new());
    };
    let snapshot = catalog.snapshot();
    let cursor = snapshot.cursor(collection.primary(), KeyRange::all(), Direction::Forward);
    let mut cursor = cursor.map_err(from_engine)?;
    let mut documents = Vec::new();
    while let Some((_, bytes)) = cursor.next().map_err(from_engine)? {
        context.check_interrupt()?;
        documents.push(Document::try_from(RawDocument::from_bytes(bytes)?)?);
    }
    Ok(documents)
}

/// Roles as they are stored.
pub(super) fn documents_of<'a>(roles: impl IntoIterator<Item = &'a RoleName>) -> Vec<Bson> {
    roles.into_iter().map(|role| Bson::Document(role.to_document())).collect()
}

/// A name that a user or role may have.
pub(super) fn check_name<'a>(what: &str, field: &Field<'a>) -> Result<&'a str> {
    let name = field.str()?;
    if name.is_empty() {
        return Err(Error::bad_value(format!("{what} name must be non-empty")));
    }
    if name.contains('\0') {
        return Err(Error::bad_value(format!("{what} name may not contain null characters")));
    }
    if matches!(name, "__system") {
        return Err(Error::bad_value(format!("Cannot name a {what} __system")));
    }
    Ok(name)
}

/// A database that may have users and roles.
pub(super) fn check_database(what: &str, database: &str) -> Result<()> {
    catalog::check_database(database)?;
    if database == "local" {
        return Err(Error::bad_value(format!("Cannot create {what} in the local database")));
    }
    if database.contains('@') {
        // Sessions and cursors are of `user@database`: two users must not be spelled alike.
        return Err(Error::bad_value(format!(
            "Cannot create {what} in a database with an @ in its name"
        )));
    }
    Ok(())
}

/// The roles of a list: `"name"` of the command's database, or `{role, db}`.
pub(super) fn parse_roles(field: &Field<'_>, database: &str) -> Result<Vec<RoleName>> {
    let mut roles: Vec<RoleName> = Vec::new();
    for value in field.array()? {
        let role = match value? {
            RawBsonRef::String(name) => RoleName::new(name, database),
            RawBsonRef::Document(named) => {
                let (mut role, mut db) = (None, None);
                for part in dispatch::fields::inner(named, "roles") {
                    let part = part?;
                    match part.name {
                        "role" => role = Some(part.str()?),
                        "db" => db = Some(part.str()?),
                        _ => return Err(part.unknown()),
                    }
                }
                let missing = |name| missing("roles", name);
                RoleName::new(
                    role.ok_or_else(|| missing("role"))?,
                    db.ok_or_else(|| missing("db"))?,
                )
            }
            _ => return Err(Error::bad_value("Role names must be either strings or objects")),
        };
        if role.role.is_empty() || role.db.is_empty() {
            return Err(Error::bad_value("Role names must not be empty"));
        }
        if roles.len() == MOST_LISTED {
            return Err(Error::bad_value("too many roles"));
        }
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    Ok(roles)
}

/// Fails where one of these roles does not exist, or is nobody's to hold.
pub(super) fn check_roles(roles: &[RoleName], tables: &Tables) -> Result<()> {
    for role in roles {
        if role.role == "__system" || !exists(role, &tables.roles) {
            return Err(Error::new(Code::ROLE_NOT_FOUND, format!("Could not find role: {role}")));
        }
    }
    Ok(())
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

/// Fails where a privilege of a role outside `admin` is about more than its own database.
fn check_privilege(database: &str, privilege: &Privilege) -> Result<()> {
    if database == "admin" || privilege.resource.is_within(database) {
        return Ok(());
    }
    Err(Error::new(
        Code::INVALID_ROLE_MODIFICATION,
        format!(
            "Roles on the '{database}' database cannot be granted privileges that target other databases or the cluster"
        ),
    ))
}

/// Fails where a role would reach beyond what it may.
pub(crate) fn check_reach(
    name: &RoleName,
    privileges: &[Privilege],
    parents: &[RoleName],
) -> Result<()> {
    privileges.iter().try_for_each(|privilege| check_privilege(&name.db, privilege))?;
    check_parents(name, parents)
}

/// The privileges of a list, which in a role outside `admin` are about its own database.
pub(super) fn parse_privileges(field: &Field<'_>, database: &str) -> Result<Vec<Privilege>> {
    let mut privileges: Vec<Privilege> = Vec::new();
    for document in field.documents()? {
        let privilege = Privilege::parse(&Document::try_from(document)?)?;
        check_privilege(database, &privilege)?;
        if privileges.len() == MOST_LISTED {
            return Err(Error::bad_value("too many privileges"));
        }
        merge(&mut privileges, privilege);
    }
    Ok(privileges)
}

/// Puts a privilege to others; those over one resource are one.
pub(super) fn merge(privileges: &mut Vec<Privilege>, more: Privilege) {
    match privileges.iter_mut().find(|known| known.resource == more.resource) {
        Some(known) => known.actions = known.actions.union(more.actions),
        None => privileges.push(more),
    }
}

/// Takes a privilege away from others.
pub(super) fn take_away(privileges: &mut Vec<Privilege>, gone: &Privilege) {
    for known in privileges.iter_mut().filter(|known| known.resource == gone.resource) {
        known.actions = known.actions.without(gone.actions);
    }
    privileges.retain(|privilege| !privilege.actions.is_empty());
}

/// The list that a command gives or takes away, which must not be empty.
pub(super) fn given_list<T>(
    context: &Context<'_>,
    fields: &[Field<'_>],
    name: &'static str,
    parse: impl Fn(&Field<'_>, &str) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    let command = context.command.name;
    let mut given = None;
    for field in &fields[1..] {
        if field.name != name {
            return Err(field.unknown());
        }
        given = Some(parse(field, context.database())?);
    }
    let given = given.ok_or_else(|| missing(command, name))?;
    if given.is_empty() {
        return Err(Error::bad_value(format!(
            "{command} command requires a non-empty \"{name}\" array"
        )));
    }
    Ok(given)
}

/// What a command says of a role, as far as it says it.
#[derive(Default)]
pub(super) struct RoleFields {
    pub(super) privileges: Option<Vec<Privilege>>,
    pub(super) roles: Option<Vec<RoleName>>,
    pub(super) restrictions: Option<Bson>,
}

impl RoleFields {
    pub(super) fn parse(fields: &[Field<'_>], database: &str) -> Result<Self> {
        let mut given = Self::default();
        for field in &fields[1..] {
            match field.name {
                "privileges" => given.privileges = Some(parse_privileges(field, database)?),
                "roles" => given.roles = Some(parse_roles(field, database)?),
                "authenticationRestrictions" => {
                    given.restrictions = Some(parse_restrictions(field)?);
                }
                _ => return Err(field.unknown()),
            }
        }
        Ok(given)
    }
}

/// What a command says of a user, as far as it says it.
#[derive(Default)]
pub(super) struct UserFields<'a> {
    pub(super) password: Password<'a>,
    pub(super) custom: Option<Document>,
    pub(super) roles: Option<Vec<RoleName>>,
    pub(super) restrictions: Option<Bson>,
}

impl<'a> UserFields<'a> {
    pub(super) fn parse(fields: &[Field<'a>], database: &str) -> Result<Self> {
        let mut given = Self::default();
        for field in &fields[1..] {
            if given.password.take(field)? {
                continue;
            }
            match field.name {
                "customData" => given.custom = Some(Document::try_from(field.document()?)?),
                "roles" => given.roles = Some(parse_roles(field, database)?),
                "authenticationRestrictions" => {
                    given.restrictions = Some(parse_restrictions(field)?);
                }
                _ => return Err(field.unknown()),
            }
        }
        Ok(given)
    }
}

/// Puts restrictions into a stored user or role; an empty list takes those away that are there.
pub(super) fn put_restrictions(document: &mut Document, restrictions: Option<&Bson>) {
    match restrictions {
        Some(Bson::Array(none)) if none.is_empty() => {
            document.remove("authenticationRestrictions");
        }
        Some(restrictions) => {
            document.insert("authenticationRestrictions", restrictions.clone());
        }
        None => {}
    }
}

/// Privileges as they are stored.
pub(super) fn stored_privileges(privileges: &[Privilege]) -> Vec<Bson> {
    privileges.iter().map(|privilege| Bson::Document(privilege.to_document())).collect()
}

/// The restrictions of a user or role, checked, as they are stored.
pub(super) fn parse_restrictions(field: &Field<'_>) -> Result<Bson> {
    let value = Bson::try_from(field.value)?;
    let document = doc! { "authenticationRestrictions": value.clone() };
    Restrictions::parse(&document)?;
    Ok(value)
}

/// What a client gives of a password.
#[derive(Default)]
pub(super) struct Password<'a> {
    /// `pwd`.
    pub(super) given: Option<&'a str>,
    /// `digestPassword: false`: it is the digest.
    pub(super) is_digest: bool,
    /// `mechanisms`.
    pub(super) mechanisms: Option<Vec<Mechanism>>,
}

impl<'a> Password<'a> {
    /// Takes a field that is about it; says whether it was one.
    pub(super) fn take(&mut self, field: &Field<'a>) -> Result<bool> {
        match field.name {
            "pwd" => self.given = Some(field.str()?),
            "digestPassword" => self.is_digest = !field.bool()?,
            "mechanisms" => {
                let mut mechanisms = Vec::new();
                for name in field.strings()? {
                    let mechanism = Mechanism::parse(name).ok_or_else(|| {
                        Error::bad_value(format!("Unknown auth mechanism '{name}'"))
                    })?;
                    if !mechanisms.contains(&mechanism) {
                        mechanisms.push(mechanism);
                    }
                }
                if mechanisms.is_empty() {
                    return Err(Error::bad_value("mechanisms field must not be empty"));
                }
                self.mechanisms = Some(mechanisms);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The credentials that come of it. Takes some tens of milliseconds.
    pub(super) fn credentials(&self, context: &Context<'_>, user: &str) -> Result<Document> {
        let password = self.given.unwrap_or_default();
        if password.is_empty() {
            return Err(Error::bad_value("Password cannot be empty"));
        }
        let security = &context.service.security;
        let mechanisms = match &self.mechanisms {
            Some(mechanisms) => mechanisms.clone(),
            None if self.is_digest => vec![Mechanism::Sha1],
            None => security.mechanisms.lock().clone(),
        };
        let mut credentials = Document::new();
        for mechanism in mechanisms {
            if !security.is_enabled(mechanism) {
                return Err(Error::bad_value(format!(
                    "mechanism {} is not enabled on this server",
                    mechanism.name()
                )));
            }
            if self.is_digest && mechanism == Mechanism::Sha256 {
                return Err(Error::bad_value("Use of SCRAM-SHA-256 requires undigested passwords"));
            }
            context.check_interrupt()?;
            let prepared = if self.is_digest {
                password.to_owned().into()
            } else {
                prepare(mechanism, user, password)?
            };
            let mut salt = vec![0; mechanism.salt_bytes()];
            context.service.os.entropy.fill(&mut salt);
            let made =
                Credentials::derive(mechanism, &prepared, salt, security.iterations(mechanism));
            credentials.insert(mechanism.name(), made.to_document());
        }
        Ok(credentials)
    }
}

/// The number of a new user.
pub(crate) fn new_user_id(context: &Context<'_>) -> Bson {
    let mut id = [0; 16];
    context.service.os.entropy.fill(&mut id);
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: id.to_vec() })
}

/// There is no such user.
pub(super) fn no_user(name: &UserName) -> Error {
    Error::new(Code::USER_NOT_FOUND, format!("User '{name}' not found"))
}

/// There is no such role.
pub(super) fn no_role(name: &RoleName) -> Error {
    Error::new(Code::ROLE_NOT_FOUND, format!("Role '{name}' not found"))
}

/// Fails for roles that nobody changes.
pub(super) fn check_changeable(name: &RoleName) -> Result<()> {
    if auth::built_in(name).is_some() {
        return Err(Error::new(
            Code::INVALID_ROLE_MODIFICATION,
            format!("{name} is a built-in role and cannot be modified"),
        ));
    }
    Ok(())
}
