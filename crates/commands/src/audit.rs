//! What the audit log is told: who did what, to what, and what came of it, in MongoDB's form.
//!
//! ```text
//! {atype, ts, uuid, local, remote, users: [{user, db}], roles: [{role, db}], param, result}
//! ```
//!
//! | told | when |
//! |---|---|
//! | `authenticate` | a login has ended, well or not |
//! | `startup`, `shutdown` | the server starts, or ends by itself or a signal |
//! | `authCheck` | a request was refused; with `auditAuthorizationSuccess` each that was let through, too |
//! | `localhostException` | a request was let through that makes the first user |
//! | `clientMetadata` | a client has said what it is, in its first `hello` |
//! | a row of [`AUDITED`] | its command has ended, well or not, before it is answered; so has an entry of `applyOps` |
//! | `createCollection`, `renameCollection` | a write, or `$out`, has made a collection by itself |
//! | `createDatabase` | a collection was made that is the first of its database |
//!
//! What the server deletes because it has expired is not told, nor are documents that clients write: as in MongoDB.
//!
//! Always true: an event is with the system before its request is answered; where that fails the request is answered
//! with that, and nothing more is done by this server, unless `auditFailureIsFatal` is false. No secret field of a
//! command is in an event.

use crate::command::Command;
use crate::context::Context;
use crate::redact::redacted;
use auth::RoleName;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, RawDocument, doc};
use catalog::MadeName;
use dispatch::ConnectionInfo;
use errors::{Code, Error, Result};
use serverstate::{Connection, LogEvent, ServerState, Severity};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

/// What is told of a command, by its name.
struct Row {
    command: &'static str,
    kind: &'static str,
    /// One event for each of these, or one of all.
    params: fn(&str, &Document) -> Vec<Document>,
}

const fn row(
    command: &'static str,
    kind: &'static str,
    params: fn(&str, &Document) -> Vec<Document>,
) -> Row {
    Row { command, kind, params }
}

/// The commands that are told of.
const AUDITED: &[Row] = &[
    row("create", "createCollection", |db, body| {
        one(of_collection(db, body, &["viewOn", "pipeline"]))
    }),
    row("drop", "dropCollection", |db, body| one(of_collection(db, body, &[]))),
    row("dropDatabase", "dropDatabase", |db, _| one(doc! { "ns": db })),
    row("createIndexes", "createIndex", |db, body| {
        let listed = body.get_array("indexes").map_or(&[][..], Vec::as_slice);
        let specs = listed.iter().filter_map(Bson::as_document);
        specs
            .map(|spec| {
                let name = spec.get("name").cloned().unwrap_or(Bson::Null);
                let mut param = of_collection(db, body, &[]);
                param.extend(doc! { "indexName": name, "indexSpec": spec.clone() });
                param
            })
            .collect()
    }),
    row("dropIndexes", "dropIndex", |db, body| {
        let mut param = of_collection(db, body, &[]);
        param.insert("indexName", body.get("index").cloned().unwrap_or(Bson::Null));
        one(param)
    }),
    row("addPartition", "addPartition", |db, body| one(of_collection(db, body, &["newMax"]))),
    row("dropPartition", "dropPartition", |db, body| one(of_collection(db, body, &["id", "max"]))),
    row("renameCollection", "renameCollection", |_, body| {
        one(doc! { "old": first(body), "new": body.get("to").cloned().unwrap_or(Bson::Null) })
    }),
    row("createUser", "createUser", |db, body| one(of_user(db, body))),
    row("updateUser", "updateUser", |db, body| {
        let mut param = of_user(db, body);
        param.insert("passwordChanged", body.contains_key("pwd"));
        one(param)
    }),
    row("dropUser", "dropUser", |db, body| one(of_user(db, body))),
    row("dropAllUsersFromDatabase", "dropAllUsersFromDatabase", |db, _| one(doc! { "db": db })),
    row("grantRolesToUser", "grantRolesToUser", |db, body| one(of_user(db, body))),
    row("revokeRolesFromUser", "revokeRolesFromUser", |db, body| one(of_user(db, body))),
    row("createRole", "createRole", |db, body| one(of_role(db, body))),
    row("updateRole", "updateRole", |db, body| one(of_role(db, body))),
    row("dropRole", "dropRole", |db, body| one(of_role(db, body))),
    row("dropAllRolesFromDatabase", "dropAllRolesFromDatabase", |db, _| one(doc! { "db": db })),
    row("grantRolesToRole", "grantRolesToRole", |db, body| one(of_role(db, body))),
    row("revokeRolesFromRole", "revokeRolesFromRole", |db, body| one(of_role(db, body))),
    row("grantPrivilegesToRole", "grantPrivilegesToRole", |db, body| one(of_role(db, body))),
    row("revokePrivilegesFromRole", "revokePrivilegesFromRole", |db, body| one(of_role(db, body))),
    row("_mergeAuthzCollections", "directAuthMutation", |_, body| one(body.clone())),
    row("authSchemaUpgrade", "directAuthMutation", |_, body| one(body.clone())),
    row("logout", "logout", |_, _| one(Document::new())),
    row("replSetInitiate", "replSetReconfig", |_, body| one(doc! { "new": first(body) })),
    row("replSetReconfig", "replSetReconfig", |_, body| one(doc! { "new": first(body) })),
    row("setClusterParameter", "setClusterParameter", |_, body| {
        one(doc! { "requested": first(body) })
    }),
    row("getClusterParameter", "getClusterParameter", |_, body| {
        one(doc! { "requested": first(body) })
    }),
    row("logRotate", "rotateLog", |_, _| one(Document::new())),
    row("rotateCertificates", "rotateCertificates", |_, body| {
        one(with(Document::new(), body, &["message"]))
    }),
    row("backupStart", "backup", |_, body| one(doc! { "target": first(body) })),
    row("logApplicationMessage", "applicationMessage", |_, body| one(doc! { "msg": first(body) })),
];

fn one(param: Document) -> Vec<Document> {
    vec![param]
}

/// The value of a command's first field.
fn first(body: &Document) -> Bson {
    body.values().next().cloned().unwrap_or(Bson::Null)
}

fn of_collection(db: &str, body: &Document, more: &[&str]) -> Document {
    let name = match first(body) {
        Bson::String(name) => name,
        other => other.to_string(),
    };
    with(doc! { "ns": format!("{db}.{name}") }, body, more)
}

fn of_user(db: &str, body: &Document) -> Document {
    with(doc! { "user": first(body), "db": db }, body, &["customData", "roles"])
}

fn of_role(db: &str, body: &Document) -> Document {
    with(doc! { "role": first(body), "db": db }, body, &["roles", "privileges"])
}

fn with(mut param: Document, body: &Document, names: &[&str]) -> Document {
    for name in names {
        if let Some(value) = body.get(name) {
            param.insert(*name, value.clone());
        }
    }
    param
}

/// A side of a connection.
fn side(text: &str) -> Document {
    if let Ok(at) = text.parse::<SocketAddr>() {
        doc! { "ip": at.ip().to_string(), "port": i32::from(at.port()) }
    } else {
        doc! { "unix": text }
    }
}

fn event(
    state: &ServerState,
    connection: &Connection,
    kind: &str,
    param: Document,
    result: Code,
) -> Document {
    // Who cannot be looked up just now is nobody in the log, too.
    let identity = state.identity(connection).ok().flatten();
    let users: Vec<Bson> = identity
        .iter()
        .map(|who| doc! { "user": &who.name.user, "db": &who.name.db }.into())
        .collect();
    let roles = identity.iter().flat_map(|who| &who.rights.resolved.roles);
    let roles: Vec<Bson> = roles.map(RoleName::to_document).map(Bson::Document).collect();
    let ConnectionInfo { local, remote, .. } = connection.info();
    let uuid = connection.audit_id(&state.os).to_vec();
    doc! {
        "atype": kind,
        "ts": bson::DateTime::from_millis(state.os.clock.wall_ms()),
        "uuid": Binary { subtype: BinarySubtype::Uuid, bytes: uuid },
        "local": side(local),
        "remote": side(remote),
        "users": users,
        "roles": roles,
        "param": param,
        "result": result.0,
    }
}

/// What the server does by itself: it starts, or ends.
pub(crate) fn of_server(state: &ServerState, kind: &str, param: Document) -> Result<()> {
    let event = doc! {
        "atype": kind,
        "ts": bson::DateTime::from_millis(state.os.clock.wall_ms()),
        "local": { "port": i32::from(state.info.port) },
        "remote": { "isSystemUser": true },
        "users": [],
        "roles": [],
        "param": param,
        "result": 0,
    };
    tell(state, &event)
}

/// Tells the audit log; an error where that cannot be written and this is fatal, and from then on nothing is done.
fn tell(state: &ServerState, event: &Document) -> Result<()> {
    let Some(audit) = state.host.audit() else { return Ok(()) };
    let is_fatal = state.audit_failure_is_fatal.load(Ordering::Relaxed);
    match audit.record(event) {
        Ok(()) if is_fatal => Ok(()),
        Ok(()) => {
            if state.audit_failed.swap(false, Ordering::SeqCst) {
                let message = "The audit log can be written again";
                log(state, Severity::Warning, 9_016_791, message, Document::new());
            }
            Ok(())
        }
        Err(why) => {
            let is_first = !state.audit_failed.swap(true, Ordering::SeqCst);
            if is_first {
                let message = if is_fatal { CANNOT_BE_WRITTEN } else { IS_NOT_TOLD };
                log(state, Severity::Error, 9_016_771, message, doc! { "reason": why });
            }
            if !is_fatal {
                return Ok(());
            }
            if is_first {
                state.host.fail("the audit log cannot be written");
            }
            Err(broken())
        }
    }
}

const CANNOT_BE_WRITTEN: &str =
    "The audit log cannot be written: the server ends, for nothing may be done that is not told";
const IS_NOT_TOLD: &str = "The audit log cannot be written: what is done is not told, and the server goes on (auditFailureIsFatal)";

fn log(
    state: &ServerState,
    severity: Severity,
    id: i32,
    message: &'static str,
    attributes: Document,
) {
    let (component, context) = ("ACCESS", "audit");
    state.host.log(&LogEvent { severity, component, id, context, message, attributes });
}

fn broken() -> Error {
    Error::new(Code::INTERNAL_ERROR, "the audit log cannot be written, and the server ends")
}

/// Refuses everything once an event was lost.
pub(crate) fn check(state: &ServerState) -> Result<()> {
    let is_lost = state.audit_failed.load(Ordering::Relaxed)
        && state.audit_failure_is_fatal.load(Ordering::Relaxed);
    if is_lost { Err(broken()) } else { Ok(()) }
}

/// A command has ended. What came of it, or that it could not be told.
#[cold]
pub(crate) fn ended(context: &Context<'_>, result: Result<()>) -> Result<()> {
    let name = context.command.name;
    tell_made_names(context)?;
    let Some(row) = AUDITED.iter().find(|row| row.command == name) else { return result };
    let body = Document::try_from(&*context.shown).unwrap_or_default();
    let code = result.as_ref().err().map_or(Code(0), Error::code);
    for param in (row.params)(context.request.database, &body) {
        let event = event(context.service, context.connection, row.kind, param, code);
        tell(context.service, &event)?;
    }
    result
}

/// Whether the audit log is told of a command when it has ended, or of what it has made.
pub(crate) fn tells_of_end(context: &Context<'_>) -> bool {
    catalog::has_made_names() || AUDITED.iter().any(|row| row.command == context.command.name)
}

/// Tells of the collections that a command has made without saying so: a write makes its own, `$out` one that is
/// renamed.
fn tell_made_names(context: &Context<'_>) -> Result<()> {
    for made in catalog::take_made_names() {
        if let MadeName::Created(name, true) = &made {
            let param = doc! { "ns": name.database() };
            let event =
                event(context.service, context.connection, "createDatabase", param, Code(0));
            tell(context.service, &event)?;
        }
        let (command, kind, param) = match made {
            MadeName::Created(name, _) => {
                ("create", "createCollection", doc! { "ns": name.as_str() })
            }
            MadeName::Renamed(from, to) => {
                let param = doc! { "old": from.as_str(), "new": to.as_str() };
                ("renameCollection", "renameCollection", param)
            }
        };
        // What the command is for has a row of its own.
        if command != context.command.name {
            tell(
                context.service,
                &event(context.service, context.connection, kind, param, Code(0)),
            )?;
        }
    }
    Ok(())
}

/// Whether a request was let through.
#[cold]
pub(crate) fn checked(
    state: &ServerState,
    connection: &Connection,
    database: &str,
    (command, body): (&Command, &RawDocument),
    result: Code,
) -> Result<()> {
    let is_refusal = result != Code(0);
    if !is_refusal && !state.audit_successes.load(Ordering::Relaxed) {
        return Ok(());
    }
    let args = Document::try_from(&*redacted(command, database, body)).unwrap_or_default();
    let ns = match args.values().next() {
        Some(Bson::String(name)) => format!("{database}.{name}"),
        _ => database.to_owned(),
    };
    let param = doc! { "command": command.name, "ns": ns, "args": args };
    tell(state, &event(state, connection, "authCheck", param, result))
}

/// A login has ended.
#[cold]
pub(crate) fn logged_in(
    context: &Context<'_>,
    user: &auth::UserName,
    mechanism: &str,
    result: Code,
) -> Result<()> {
    let param = doc! { "user": &user.user, "db": &user.db, "mechanism": mechanism };
    tell(
        context.service,
        &event(context.service, context.connection, "authenticate", param, result),
    )
}

/// A request was let through because there is nobody yet who could log in.
#[cold]
pub(crate) fn by_localhost_exception(
    state: &ServerState,
    connection: &Connection,
    database: &str,
    command: &Command,
) -> Result<()> {
    let param = doc! { "command": command.name, "db": database };
    tell(state, &event(state, connection, "localhostException", param, Code(0)))
}

/// A client has said what it is.
pub(crate) fn client_metadata(context: &Context<'_>, client: &RawDocument) -> Result<()> {
    let (state, connection) = (context.service, context.connection);
    let param = doc! {
        "localEndpoint": side(&connection.info().local),
        "clientMetadata": Document::try_from(client).unwrap_or_default(),
    };
    tell(state, &event(state, connection, "clientMetadata", param, Code(0)))
}

#[cfg(test)]
mod tests {
    use super::AUDITED;
    use crate::registry::COMMANDS;
    use bson::doc;

    #[test]
    fn rows_are_of_commands_and_tell_no_password() {
        for (at, row) in AUDITED.iter().enumerate() {
            assert!(COMMANDS.iter().any(|command| command.name == row.command), "{}", row.command);
            assert!(AUDITED[..at].iter().all(|other| other.command != row.command));
            let body = doc! { row.command: "x", "pwd": "MARK", "roles": [], "to": "y", "indexes": [{ "name": "i" }] };
            for param in (row.params)("d", &body) {
                let told = row.kind == "directAuthMutation" || !param.to_string().contains("MARK");
                assert!(told, "{}: {param}", row.command);
            }
        }
    }
}
