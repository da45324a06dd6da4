//! A pipeline that writes, sent to a secondary: the secondary hands the command on to the primary.
//!
//! From → to: a client's `aggregate` with `$out` or `$merge` and a read preference that lets a secondary answer becomes
//! a command of this member to the primary; the primary's answer becomes the client's.
//!
//! Always true: what is handed on was judged here with the rights of the client who sent it, and has nothing of his
//! session; what the primary has done is acknowledged by the primary, and this member shows it before it answers.

use crate::context::Context;
use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use dispatch::arguments::Arguments;
use dispatch::write_concern::WriteConcern;
use dispatch::{OpKind, labels};
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
const NOT_HANDED_BACK: [&str; 4] = ["ok", "$clusterTime", "operationTime", "topologyVersion"];
/// What an error says of itself in its own way, beside that.
const OF_AN_ERROR: [&str; 5] = ["code", "codeName", "errInfo", "errmsg", "errorLabels"];

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

/// The primary's error, with all that it says beside its code and its text.
fn error_of(answer: &RawDocument) -> Error {
    let code = answer.get_i32("code").map_or(Code::UNKNOWN_ERROR, Code);
    let text = answer.get_str("errmsg").unwrap_or("the primary gives no reason");
    let mut error = Error::new(code, text);
    if let Ok(info) = answer.get_document("errInfo")
        && let Ok(info) = Document::try_from(info)
    {
        error = error.with_info(info);
    }
    let said = answer.get_array("errorLabels").into_iter().flatten().flatten();
    let said: Vec<&str> = said.filter_map(RawBsonRef::as_str).collect();
    error = labels::labelled(error, &said);
    let own = |name: &str| NOT_HANDED_BACK.contains(&name) || OF_AN_ERROR.contains(&name);
    let beside = answer.iter().flatten().filter(|(name, _)| !own(name.as_str()));
    let beside: Document = beside
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), Bson::try_from(value).ok()?)))
        .collect();
    if beside.is_empty() { error } else { error.with_extra(beside) }
}

fn not_primary() -> Error {
    Error::new(Code::NOT_WRITABLE_PRIMARY, "not primary")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;
    use dispatch::Reply;

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

    #[test]
    fn all_that_an_error_of_the_primary_says_is_handed_back() {
        let said = rawdoc! {
            "ok": 0.0, "errmsg": "no", "code": 121, "codeName": "DocumentValidationFailure",
            "keyPattern": { "a": 1 }, "keyValue": { "a": 5 },
            "writeErrors": [{ "index": 0, "code": 121, "errInfo": { "why": 1 } }],
            "writeConcernError": { "code": 64, "codeName": "WriteConcernTimeout", "errmsg": "late" },
            "errInfo": { "failingDocumentId": 7 },
            "errorLabels": ["RetryableWriteError", "NoWritesPerformed"],
        };
        let mut from_primary = said.clone();
        from_primary.append(bson::raw::cstr!("operationTime"), 1);
        from_primary.append(bson::raw::cstr!("topologyVersion"), rawdoc! { "counter": 5 });
        assert_eq!(Reply::error(&error_of(&from_primary)).document, said);
        for label in labels::ALL {
            let error = error_of(&rawdoc! { "ok": 0, "errorLabels": [label] });
            assert_eq!(error.labels(), [label]);
        }
    }
}
