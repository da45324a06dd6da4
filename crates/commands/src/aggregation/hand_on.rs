//! A pipeline that writes, sent to a secondary: the secondary hands the command on to the primary.
//!
//! From → to: a client's `aggregate` with `$out` or `$merge` and a read preference that lets a secondary answer becomes
//! a command of this member to the primary; the primary's answer becomes the client's.
//!
//! Always true: what is handed on was judged here with the rights of the client who sent it, and has nothing of his
//! session; what the primary has done is acknowledged by the primary, and this member shows it before it answers.

use crate::context::Context;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use dispatch::OpKind;
use dispatch::arguments::Arguments;
use dispatch::write_concern::WriteConcern;
use errors::{Code, Error, Result};
use links::{Answer, Connection, HostAndPort};
use serverstate::replication::Role;
use std::time::Duration;

/// For opening the connection.
const CONNECTS: Duration = Duration::from_secs(10);
/// A command without a limit of its own ends with the client, its kill, or the primary.
const ANSWERS: Duration = Duration::from_hours(30 * 24);
/// The answer is a cursor without documents, or an error.
const MOST_BYTES: usize = 1 << 20;
/// What concerns the client's session, its API and the choice of a member.
const NOT_HANDED_ON: [&str; 9] = [
    "lsid",
    "txnNumber",
    "autocommit",
    "startTransaction",
    "$clusterTime",
    "$readPreference",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
];
/// What an answer has from the primary that this member says for itself.
const NOT_HANDED_BACK: [&str; 3] = ["ok", "$clusterTime", "operationTime"];

/// Whether a command that writes is one that a secondary hands on.
pub(crate) fn is_handed_on(
    context: &Context<'_>,
    arguments: &Arguments<'_>,
    role: Role,
    body: &RawDocument,
) -> bool {
    context.command.name == "aggregate"
        && role == Role::Secondary
        && arguments.secondary_ok
        && arguments.numbered.is_none()
        && context.request.op == OpKind::Msg
        && !(context.admitted.is_access_control_on && mentions_roles(body))
}

/// Whether a pipeline asks for the sender's roles, which on the primary would be this member's.
fn mentions_roles(body: &RawDocument) -> bool {
    let wanted = b"USER_ROLES";
    body.as_bytes().windows(wanted.len()).any(|bytes| bytes == wanted)
}

/// Whether this member is a secondary, which writes nothing itself.
pub(super) fn is_secondary(context: &Context<'_>) -> bool {
    context.service.replication.role(&context.service.os) == Role::Secondary
}

/// Has the primary do the command, and answers what it answers.
pub(super) fn to_primary(context: &mut Context<'_>) -> Result<()> {
    if context.bound.is_some() {
        return Err(not_primary());
    }
    let answer = ask(context)?;
    // The primary has acknowledged it as the client asked for: there is nothing left to wait for.
    context.arguments.write_concern = WriteConcern::default();
    follow(context, &answer.body)?;
    if !answer.is_done {
        return Err(error_of(&answer.body));
    }
    for field in &answer.body {
        let (name, value) = field?;
        if !NOT_HANDED_BACK.contains(&name.as_str()) {
            context.reply.value(name.as_str(), value);
        }
    }
    Ok(())
}

fn ask(context: &Context<'_>) -> Result<Answer> {
    let (service, replication) = (context.service, &context.service.replication);
    let config = replication.config().ok_or_else(not_primary)?;
    let primary = replication.primary(&config, Role::Secondary, service.info.port);
    let host = &primary.ok_or_else(not_primary)?.host;
    let unreachable = |why: String| {
        Error::new(Code::HOST_UNREACHABLE, format!("the primary at {host} does not answer: {why}"))
    };
    let to: HostAndPort = host.parse().map_err(|_| not_primary())?;
    let command = handed_on(context.body)?;
    let ended = || service.is_stopping() || context.check_interrupt().is_err();
    os::about_to_wait();
    let asked = Connection::open(&service.dialer, &to, CONNECTS, &ended)
        .and_then(|mut primary| primary.hand_on(&command, ANSWERS, MOST_BYTES, &ended));
    // Where nobody waits any more that is the reason, and not that the connection ended.
    context.check_interrupt()?;
    asked.map_err(unreachable)
}

/// The command as this member sends it.
fn handed_on(body: &RawDocument) -> Result<RawDocumentBuf> {
    let mut command = RawDocumentBuf::new();
    for field in body {
        let (name, value) = field?;
        if !NOT_HANDED_ON.contains(&name.as_str()) {
            command.append(name, value);
        }
    }
    Ok(command)
}

/// Waits until this member shows what the primary wrote: what it answers then has a time that includes it, so that
/// a session that reads here has it.
fn follow(context: &Context<'_>, answer: &RawDocument) -> Result<()> {
    match answer.get("operationTime")? {
        Some(RawBsonRef::Timestamp(time)) => {
            context.service.replication.clock.check_reached("afterClusterTime", time)
        }
        _ => Ok(()),
    }
}

fn error_of(answer: &RawDocument) -> Error {
    let code = answer.get_i32("code").map_or(Code::UNKNOWN_ERROR, Code);
    Error::new(code, answer.get_str("errmsg").unwrap_or("the primary gives no reason"))
}

fn not_primary() -> Error {
    Error::new(Code::NOT_WRITABLE_PRIMARY, "not primary")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn what_is_of_the_clients_session_stays_here() {
        let body = rawdoc! {
            "aggregate": "a", "pipeline": [{ "$out": "b" }], "cursor": {}, "lsid": { "id": 1 },
            "$clusterTime": { "clusterTime": 1 }, "$readPreference": { "mode": "secondary" },
            "maxTimeMS": 5, "writeConcern": { "w": "majority" }, "apiVersion": "1", "$db": "test",
        };
        let expected = rawdoc! {
            "aggregate": "a", "pipeline": [{ "$out": "b" }], "cursor": {}, "maxTimeMS": 5,
            "writeConcern": { "w": "majority" }, "$db": "test",
        };
        assert_eq!(handed_on(&body).unwrap(), expected);
    }

    #[test]
    fn roles_of_the_sender_are_found_wherever_they_stand() {
        let asks = rawdoc! { "aggregate": 1, "pipeline": [{ "$set": { "r": "$$USER_ROLES" } }] };
        assert!(mentions_roles(&asks));
        assert!(!mentions_roles(&rawdoc! { "aggregate": 1, "pipeline": [{ "$out": "ROLES" }] }));
    }

    #[test]
    fn an_error_of_the_primary_is_the_clients() {
        let error = error_of(&rawdoc! { "ok": 0.0, "code": 17152, "errmsg": "no" });
        assert_eq!((error.code(), error.message()), (Code(17152), "no"));
        assert_eq!(error_of(&rawdoc! { "ok": 0 }).code(), Code::UNKNOWN_ERROR);
    }
}
