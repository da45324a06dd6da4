//! What those commands need for which it depends on what is asked: one function each.
//!
//! Always true: a part that a function cannot read asks for what only members of a set may, so that it is refused and
//! never let through unjudged.

use super::pipelines::pipeline;
use crate::needs::{Asked, MOST_DEPTH, Required, is_unique};
use auth::Action::{
    self, AppendOplogNote, ApplyOps, AuthSchemaUpgrade, BeginLoad, BeginSerializableTransaction,
    BypassDocumentValidation, ChangeCustomData, ChangeOwnCustomData, ChangeOwnPassword,
    ChangePassword, CollMod, ConvertToCapped, CreateCollection, CreateIndex, CreateRole,
    CreateUser, DropCollection, DropRole, DropUser, EnableProfiler, Find, GrantRole, Inprog,
    Insert, Internal, ListCollections, ListDatabases, Remove, RenameCollectionSameDB, RevokeRole,
    SetAuthenticationRestriction, Update, Validate, ViewRole, ViewUser,
};
use auth::{Resource, Target};
use bson::{Document, RawBsonRef, RawDocument};

fn field<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    document.get(name).ok().flatten()
}

fn text<'a>(document: &'a RawDocument, name: &str) -> Option<&'a str> {
    match field(document, name) {
        Some(RawBsonRef::String(text)) => Some(text),
        _ => None,
    }
}

fn is_true(document: &RawDocument, name: &str) -> bool {
    match field(document, name) {
        None
        | Some(
            RawBsonRef::Null
            | RawBsonRef::Boolean(false)
            | RawBsonRef::Int32(0)
            | RawBsonRef::Int64(0),
        ) => false,
        Some(_) => true,
    }
}

/// Actions on a whole name; on everything where there is none.
fn on_name(name: Option<&str>, actions: &[Action], required: &mut Required<'_>) {
    match name {
        Some(name) => required.namespace(name, actions),
        None => required.on(Target::Any, actions),
    }
}

fn bypass(asked: &Asked<'_>, required: &mut Required<'_>) {
    if asked.is_set("bypassDocumentValidation") {
        asked.on_collection(required, &[BypassDocumentValidation]);
    }
}

/// What the members of a set ask of each other: nobody holds it who logs in by a password.
pub(crate) fn internal(_: &Asked<'_>, required: &mut Required<'_>) {
    required.internal();
}

pub(crate) fn insert(asked: &Asked<'_>, required: &mut Required<'_>) {
    asked.on_collection(required, &[Insert]);
    bypass(asked, required);
}

pub(crate) fn update(asked: &Asked<'_>, required: &mut Required<'_>) {
    asked.on_collection(required, &[Update]);
    let statements = asked.documents("updates");
    if statements.iter().any(|one| is_true(one, "upsert")) {
        asked.on_collection(required, &[Insert]);
    }
    if !statements.iter().all(|one| is_unique(one)) {
        required.internal();
    }
    bypass(asked, required);
}

pub(crate) fn find_and_modify(asked: &Asked<'_>, required: &mut Required<'_>) {
    asked.on_collection(required, &[Find]);
    asked.on_collection(required, if asked.surely_says("remove") { &[Remove] } else { &[Update] });
    // One that is read as a yes here and as a no there, or the other way round, needs both.
    if asked.is_set("remove") {
        asked.on_collection(required, &[Remove]);
    }
    if asked.is_set("upsert") {
        asked.on_collection(required, &[Insert]);
    }
    bypass(asked, required);
}

pub(crate) fn bulk_write(asked: &Asked<'_>, required: &mut Required<'_>) {
    let namespaces = asked.documents("nsInfo");
    for operation in asked.documents("ops") {
        let Some(Ok((kind, RawBsonRef::Int32(at)))) = operation.iter().next() else {
            // Numbers of another kind are no index that we know how to read.
            required.internal();
            continue;
        };
        let of = usize::try_from(at).ok().and_then(|at| namespaces.get(at));
        let name = of.and_then(|of| text(of, "ns"));
        let mut actions = match kind.as_str() {
            "insert" => vec![Insert],
            "update" if is_true(operation, "upsert") => vec![Update, Insert],
            "update" => vec![Update],
            "delete" => vec![Remove],
            _ => vec![Internal],
        };
        if asked.is_set("bypassDocumentValidation") {
            actions.push(BypassDocumentValidation);
        }
        if !is_unique(operation) || of.is_some_and(|of| !is_unique(of)) {
            required.internal();
        }
        on_name(name, &actions, required);
    }
}

pub(crate) fn aggregate(asked: &Asked<'_>, required: &mut Required<'_>) {
    pipeline(asked, asked.collection().unwrap_or_default(), asked.field("pipeline"), required);
}

/// A transaction that locks what it reads keeps others from writing: that is a writer's right.
pub(crate) fn begin_transaction(asked: &Asked<'_>, required: &mut Required<'_>) {
    let isolation = asked.field("isolation");
    if !matches!(isolation, None | Some(RawBsonRef::String("mvcc" | "readUncommitted"))) {
        required.database(asked.database, &[BeginSerializableTransaction]);
    }
}

/// The collection that is loaded is named by a field, with or without the database.
pub(crate) fn begin_load(asked: &Asked<'_>, required: &mut Required<'_>) {
    match asked.field("ns") {
        Some(RawBsonRef::String(name)) => {
            let own = name.strip_prefix(asked.database).and_then(|rest| rest.strip_prefix('.'));
            required.collection(asked.database, own.unwrap_or(name), &[BeginLoad]);
        }
        _ => required.internal(),
    }
}

pub(crate) fn map_reduce(asked: &Asked<'_>, required: &mut Required<'_>) {
    asked.on_collection(required, &[Find]);
    match asked.field("out") {
        Some(RawBsonRef::String(name)) => {
            required.collection(asked.database, name, &[Insert, Remove]);
        }
        Some(RawBsonRef::Document(out)) => {
            if !is_unique(out) {
                required.internal();
            }
            let database = text(out, "db").unwrap_or(asked.database);
            for (how, actions) in [
                ("replace", &[Insert, Remove][..]),
                ("merge", &[Insert, Update]),
                ("reduce", &[Find, Insert, Update]),
            ] {
                match field(out, how) {
                    Some(RawBsonRef::String(name)) => required.collection(database, name, actions),
                    None => {}
                    Some(_) => required.internal(),
                }
            }
        }
        _ => {}
    }
    bypass(asked, required);
}

/// The command of a name within another one.
fn command_within(
    asked: &Asked<'_>,
    database: &str,
    body: &RawDocument,
    required: &mut Required<'_>,
) {
    let name = body.iter().next().and_then(Result::ok).map_or("", |(name, _)| name.as_str());
    let Some(needs) = (asked.needs_of)(name).filter(|_| asked.depth < MOST_DEPTH) else {
        required.internal();
        return;
    };
    if !is_unique(body) {
        required.internal();
    }
    needs.of(&asked.within(database, body), required);
}

/// `explain` needs what the command needs that it explains.
pub(crate) fn explain(asked: &Asked<'_>, required: &mut Required<'_>) {
    match asked.first() {
        Some(RawBsonRef::Document(inner)) => command_within(asked, asked.database, inner, required),
        _ => {
            required.internal();
        }
    }
}

/// What each entry does, and the right to have entries done.
pub(crate) fn apply_ops(asked: &Asked<'_>, required: &mut Required<'_>) {
    required.cluster(&[ApplyOps]);
    let Some(RawBsonRef::Array(entries)) = asked.first() else {
        required.internal();
        return;
    };
    for entry in entries {
        let Ok(RawBsonRef::Document(entry)) = entry else {
            required.internal();
            continue;
        };
        if !is_unique(entry) {
            required.internal();
        }
        let name = text(entry, "ns");
        if asked.is_set("bypassDocumentValidation") {
            on_name(name, &[BypassDocumentValidation], required);
        }
        match text(entry, "op") {
            Some("n") => required.cluster(&[AppendOplogNote]),
            Some("i") => on_name(name, &[Insert], required),
            // An update of what is not there inserts it.
            Some("u") => on_name(name, &[Update, Insert], required),
            Some("d") => on_name(name, &[Remove], required),
            Some("c") => match (name.and_then(|name| name.split_once('.')), field(entry, "o")) {
                (Some((database, _)), Some(RawBsonRef::Document(inner))) => {
                    command_within(asked, database, inner, required);
                }
                _ => required.internal(),
            },
            _ => required.internal(),
        }
    }
}

/// A view shows what it is made of: who may read the view must be allowed that already.
fn view(asked: &Asked<'_>, required: &mut Required<'_>) {
    let (Some(name), Some(on)) = (asked.collection(), asked.text("viewOn")) else { return };
    if asked.may(Target::Collection(asked.database, name), Find) {
        pipeline(asked, on, asked.field("pipeline"), required);
        required.collection(asked.database, on, &[Find]);
    }
}

pub(crate) fn create(asked: &Asked<'_>, required: &mut Required<'_>) {
    let name = asked.collection().unwrap_or_default();
    let inserts = asked.may(Target::Collection(asked.database, name), Insert);
    let view_or_capped = asked.field("viewOn").is_some() || asked.is_set("capped");
    // Who may insert makes plain collections by that.
    let by = if view_or_capped || !inserts { CreateCollection } else { Insert };
    asked.on_collection(required, &[by]);
    if asked.is_set("capped") {
        asked.on_collection(required, &[ConvertToCapped]);
    }
    view(asked, required);
}

pub(crate) fn coll_mod(asked: &Asked<'_>, required: &mut Required<'_>) {
    asked.on_collection(required, &[CollMod]);
    view(asked, required);
}

pub(crate) fn clone_as_capped(asked: &Asked<'_>, required: &mut Required<'_>) {
    asked.on_collection(required, &[Find]);
    match asked.text("toCollection") {
        Some(to) => {
            required.collection(asked.database, to, &[Insert, CreateIndex, ConvertToCapped]);
        }
        None => required.internal(),
    }
}

/// Within a database its own action; over two all that it takes from the one and gives to the other.
pub(crate) fn rename_collection(asked: &Asked<'_>, required: &mut Required<'_>) {
    let (Some(from), Some(to)) = (asked.collection(), asked.text("to")) else {
        required.internal();
        return;
    };
    let database =
        |name: &str| name.split_once('.').map_or(name, |(database, _)| database).to_owned();
    if database(from) == database(to) {
        required.namespace(from, &[RenameCollectionSameDB]);
        required.namespace(to, &[RenameCollectionSameDB]);
        // Who may not read the one must not read it under the name of the other.
        let reads = |name: &str| {
            let (database, name) = name.split_once('.').unwrap_or((name, ""));
            asked.may(Target::Collection(database, name), Find)
        };
        if reads(to) && !reads(from) {
            required.namespace(from, &[Find]);
        }
    } else {
        required.namespace(from, &[Find, DropCollection]);
        required.namespace(to, &[Insert, CreateIndex, CreateCollection]);
    }
    if asked.is_set("dropTarget") {
        required.namespace(to, &[DropCollection]);
    }
}

/// `dataSize` names a whole namespace.
pub(crate) fn data_size(asked: &Asked<'_>, required: &mut Required<'_>) {
    on_name(asked.collection(), &[Find], required);
}

pub(crate) fn file_md5(asked: &Asked<'_>, required: &mut Required<'_>) {
    let root = asked.text("root").unwrap_or("fs");
    required.collection(asked.database, &format!("{root}.chunks"), &[Find]);
}

pub(crate) fn validate_db_metadata(asked: &Asked<'_>, required: &mut Required<'_>) {
    match asked.text("db") {
        Some(database) if !database.is_empty() => required.database(database, &[Validate]),
        _ => required.on(Target::Any, &[Validate]),
    }
}

/// One may list one's own collections by name; everything else is a right.
pub(crate) fn list_collections(asked: &Asked<'_>, required: &mut Required<'_>) {
    if !(asked.surely_says("nameOnly") && asked.surely_says("authorizedCollections")) {
        required.database(asked.database, &[ListCollections]);
    }
}

/// Without the right one sees the databases in which one may do something; asking for all is refused.
pub(crate) fn list_databases(asked: &Asked<'_>, required: &mut Required<'_>) {
    if matches!(asked.field("authorizedDatabases"), Some(RawBsonRef::Boolean(false))) {
        required.cluster(&[ListDatabases]);
    }
}

pub(crate) fn current_op(asked: &Asked<'_>, required: &mut Required<'_>) {
    if !asked.surely_says("$ownOps") {
        required.cluster(&[Inprog]);
    }
}

/// Reading the level is for who may read what it fills, too.
pub(crate) fn profile(asked: &Asked<'_>, required: &mut Required<'_>) {
    required.database(asked.database, &[EnableProfiler]);
}

pub(crate) fn merge_authz(asked: &Asked<'_>, required: &mut Required<'_>) {
    // Whatever `db` says: the roles that users hold may be of any database.
    let on = Target::AnyNormal;
    let drops = asked.is_set("drop");
    for (field, make, take) in [
        ("tempUsersCollection", CreateUser, DropUser),
        ("tempRolesCollection", CreateRole, DropRole),
    ] {
        let Some(name) = asked.text(field).filter(|name| !name.is_empty()) else { continue };
        required.namespace(name, &[Find]);
        required.on(on, &[make, GrantRole, RevokeRole]);
        if drops {
            required.on(on, &[take]);
        }
    }
}

/// Users that are made of what somebody has stored may have any role of any database.
pub(crate) fn auth_schema_upgrade(asked: &Asked<'_>, required: &mut Required<'_>) {
    required.cluster(&[AuthSchemaUpgrade]);
    if asked.field("from").is_some() {
        required.on(Target::AnyNormal, &[CreateUser, GrantRole]);
    }
}

// Users and roles.

/// The roles of a list: `"name"` of the command's database, or `{role, db}`.
fn roles_of<'a>(asked: &Asked<'a>, name: &str) -> Option<Vec<&'a str>> {
    let Some(RawBsonRef::Array(roles)) = asked.field(name) else {
        return asked.field(name).is_none().then(Vec::new);
    };
    roles
        .into_iter()
        .map(|role| match role {
            Ok(RawBsonRef::String(_)) => Some(asked.database),
            Ok(RawBsonRef::Document(role)) if is_unique(role) => text(role, "db"),
            _ => None,
        })
        .collect()
}

/// An action on the database of each role of a list.
fn on_roles(asked: &Asked<'_>, name: &str, action: Action, required: &mut Required<'_>) {
    match roles_of(asked, name) {
        Some(databases) => {
            for database in databases {
                required.database(database, &[action]);
            }
        }
        None => required.internal(),
    }
}

/// An action on the database of each privilege of a list; `admin` where one is not of a database.
fn on_privileges(asked: &Asked<'_>, name: &str, action: Action, required: &mut Required<'_>) {
    let Some(value) = asked.field(name) else { return };
    let RawBsonRef::Array(privileges) = value else { return required.internal() };
    for privilege in privileges {
        let resource = match privilege {
            Ok(RawBsonRef::Document(privilege)) if is_unique(privilege) => {
                match field(privilege, "resource") {
                    Some(RawBsonRef::Document(resource)) if is_unique(resource) => Some(resource),
                    _ => None,
                }
            }
            _ => None,
        };
        let resource = resource
            .and_then(|resource| Document::try_from(resource).ok())
            .and_then(|resource| Resource::parse(&resource).ok());
        match resource {
            Some(
                Resource::Database(db) | Resource::Collection(db, _) | Resource::Buckets(db, _),
            ) if !db.is_empty() => required.database(&db, &[action]),
            Some(_) => required.database("admin", &[action]),
            None => required.internal(),
        }
    }
}

fn restrictions(asked: &Asked<'_>, required: &mut Required<'_>) {
    if asked.field("authenticationRestrictions").is_some() {
        required.database(asked.database, &[SetAuthenticationRestriction]);
    }
}

pub(crate) fn create_user(asked: &Asked<'_>, required: &mut Required<'_>) {
    required.database(asked.database, &[CreateUser]);
    on_roles(asked, "roles", GrantRole, required);
    restrictions(asked, required);
}

/// One's own password and custom data are one's own, where that right is held.
pub(crate) fn update_user(asked: &Asked<'_>, required: &mut Required<'_>) {
    let is_own = asked.user.is_some_and(|user| {
        user.db == asked.database && asked.collection() == Some(user.user.as_str())
    });
    for (name, of_all, of_own) in [
        ("pwd", ChangePassword, ChangeOwnPassword),
        ("digestPassword", ChangePassword, ChangeOwnPassword),
        ("mechanisms", ChangePassword, ChangePassword),
        ("customData", ChangeCustomData, ChangeOwnCustomData),
    ] {
        if asked.field(name).is_none() {
            continue;
        }
        let may_own = is_own && asked.may(Target::Database(asked.database), of_own);
        let action = if may_own { of_own } else { of_all };
        required.database(asked.database, &[action]);
    }
    if asked.field("roles").is_some() {
        required.on(Target::AnyNormal, &[RevokeRole]);
        on_roles(asked, "roles", GrantRole, required);
    }
    restrictions(asked, required);
    if required.is_empty() {
        required.database(asked.database, &[ChangePassword]);
    }
}

pub(crate) fn grant_roles(asked: &Asked<'_>, required: &mut Required<'_>) {
    required.database(asked.database, &[]);
    on_roles(asked, "roles", GrantRole, required);
}

pub(crate) fn revoke_roles(asked: &Asked<'_>, required: &mut Required<'_>) {
    required.database(asked.database, &[]);
    on_roles(asked, "roles", RevokeRole, required);
}

pub(crate) fn create_role(asked: &Asked<'_>, required: &mut Required<'_>) {
    required.database(asked.database, &[CreateRole]);
    on_roles(asked, "roles", GrantRole, required);
    on_privileges(asked, "privileges", GrantRole, required);
    restrictions(asked, required);
}

pub(crate) fn update_role(asked: &Asked<'_>, required: &mut Required<'_>) {
    if asked.field("roles").is_some() || asked.field("privileges").is_some() {
        required.on(Target::AnyNormal, &[RevokeRole]);
    }
    on_roles(asked, "roles", GrantRole, required);
    on_privileges(asked, "privileges", GrantRole, required);
    restrictions(asked, required);
    if required.is_empty() {
        required.database(asked.database, &[GrantRole]);
    }
}

pub(crate) fn grant_privileges(asked: &Asked<'_>, required: &mut Required<'_>) {
    on_privileges(asked, "privileges", GrantRole, required);
}

pub(crate) fn revoke_privileges(asked: &Asked<'_>, required: &mut Required<'_>) {
    on_privileges(asked, "privileges", RevokeRole, required);
}

/// The values of a list, or the one that stands in its place. What cannot be read of a list is passed on as a null.
fn each<'a>(value: RawBsonRef<'a>, mut one: impl FnMut(RawBsonRef<'a>)) {
    match value {
        RawBsonRef::Array(list) => {
            list.into_iter().for_each(|value| one(value.unwrap_or(RawBsonRef::Null)));
        }
        value => one(value),
    }
}

/// One sees oneself; others by right.
pub(crate) fn users_info(asked: &Asked<'_>, required: &mut Required<'_>) {
    let one = |value: RawBsonRef<'_>, required: &mut Required<'_>| {
        let (user, db) = match value {
            RawBsonRef::String(user) => (Some(user), asked.database),
            RawBsonRef::Document(named) if is_unique(named) => match text(named, "db") {
                Some(db) => (text(named, "user"), db),
                None => return required.internal(),
            },
            _ => return required.internal(),
        };
        let is_own = asked.user.is_some_and(|own| own.db == db && user == Some(own.user.as_str()));
        if !is_own || asked.is_set("showCredentials") {
            required.database(db, &[ViewUser]);
        }
    };
    match asked.first() {
        Some(RawBsonRef::Document(document)) if field(document, "forAllDBs").is_some() => {
            required.cluster(&[ViewUser]);
        }
        Some(value @ (RawBsonRef::Array(_) | RawBsonRef::String(_) | RawBsonRef::Document(_))) => {
            each(value, |value| one(value, required));
        }
        _ => required.database(asked.database, &[ViewUser]),
    }
}

/// One sees the roles one holds; others by right.
pub(crate) fn roles_info(asked: &Asked<'_>, required: &mut Required<'_>) {
    let one = |value: RawBsonRef<'_>, required: &mut Required<'_>| match value {
        RawBsonRef::String(_) => required.database(asked.database, &[ViewRole]),
        RawBsonRef::Document(named) if is_unique(named) => match text(named, "db") {
            Some(db) => required.database(db, &[ViewRole]),
            None => required.internal(),
        },
        _ => required.internal(),
    };
    match asked.first() {
        Some(value @ (RawBsonRef::Array(_) | RawBsonRef::String(_) | RawBsonRef::Document(_))) => {
            each(value, |value| one(value, required));
        }
        _ => required.database(asked.database, &[ViewRole]),
    }
}
