//! `killSessions` and its kin: end sessions with everything that runs in them.
//!
//! Always true: without users every session is nobody's, so that a list of users names none of them.
//! Fields that these commands do not know do not matter to them, as in MongoDB.

use super::parse_list;
use crate::command::Command;
use crate::context::Context;
use bson::RawBsonRef;
use dispatch::arguments::EMPTY_USER;
use dispatch::fields::{Field, inner, missing, type_name};
use errors::{Error, Result};
use serverstate::ServerState;
use session::SessionId;
use std::collections::BTreeSet;

pub(crate) const KILL_SESSIONS: Command =
    Command::new("killSessions", "Stops what runs in the given sessions.", kill);

pub(crate) const KILL_ALL_SESSIONS: Command =
    Command::new("killAllSessions", "Stops what runs in all sessions.", kill_all);

pub(crate) const KILL_ALL_SESSIONS_BY_PATTERN: Command = Command::new(
    "killAllSessionsByPattern",
    "Stops what runs in the sessions of a pattern.",
    kill_by_pattern,
);

fn kill(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let list = parse_list(&fields[0])?;
    // Without users an empty list means every session, as it means all of one's own with them.
    let sessions = if list.is_empty() { all(context.service) } else { list.into_iter().collect() };
    stop(context, &sessions);
    Ok(())
}

fn kill_all(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut named = false;
    for (at, value) in fields[0].array()?.into_iter().enumerate() {
        let value = value?;
        if !matches!(value, RawBsonRef::Null) {
            parse_user(&fields[0], at, value)?;
            named = true;
        }
    }
    if !named {
        stop(context, &all(context.service));
    }
    Ok(())
}

fn kill_by_pattern(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let patterns = fields[0].documents()?;
    let everybody = all(context.service);
    let mut sessions = BTreeSet::new();
    if patterns.is_empty() {
        sessions.clone_from(&everybody);
    }
    for pattern in patterns {
        let (mut one, mut is_ours) = (None, true);
        for part in inner(pattern, "KillAllSessionsByPattern") {
            let part = part?;
            match part.name {
                "lsid" => one = Some(dispatch::arguments::parse_lsid(&Field { ..part })?),
                "uid" => match part.value {
                    RawBsonRef::Binary(digest) => is_ours &= digest.bytes == EMPTY_USER,
                    _ => return Err(part.wrong_type("binData")),
                },
                // Who would kill in the name of others; there is nobody to ask whether he may.
                "users" | "roles" => {
                    for (at, user) in part.array()?.into_iter().enumerate() {
                        parse_name(&part, at, user?)?;
                    }
                }
                _ => return Err(part.unknown()),
            }
        }
        match one {
            _ if !is_ours => {}
            Some(id) => {
                sessions.insert(id);
            }
            None => sessions.extend(&everybody),
        }
    }
    stop(context, &sessions);
    Ok(())
}

/// `{user: <name>, db: <name>}`, both there.
fn parse_user(list: &Field<'_>, at: usize, value: RawBsonRef<'_>) -> Result<()> {
    let RawBsonRef::Document(user) = value else { return Err(wrong_element(list, at, value)) };
    let (mut name, mut database) = (false, false);
    for part in inner(user, "KillAllSessionsCmd.killAllSessions") {
        let part = part?;
        let given = match part.name {
            "user" => &mut name,
            "db" => &mut database,
            _ => return Err(part.unknown()),
        };
        if !part.is_null() {
            part.str()?;
            *given = true;
        }
    }
    for (given, name) in [(name, "user"), (database, "db")] {
        if !given {
            return Err(missing("KillAllSessionsCmd.killAllSessions", name));
        }
    }
    Ok(())
}

/// `{user: <name>, db: <name>}` or `{role: <name>, db: <name>}`.
fn parse_name(list: &Field<'_>, at: usize, value: RawBsonRef<'_>) -> Result<()> {
    let RawBsonRef::Document(name) = value else { return Err(wrong_element(list, at, value)) };
    for part in inner(name, "KillAllSessionsByPattern") {
        let part = part?;
        match part.name {
            "user" | "role" | "db" => part.str()?,
            _ => return Err(part.unknown()),
        };
    }
    Ok(())
}

fn wrong_element(list: &Field<'_>, at: usize, value: RawBsonRef<'_>) -> Error {
    Error::type_mismatch(format!(
        "BSON field '{}.{}.{at}' is the wrong type '{}', expected type 'object'",
        list.place,
        list.name,
        type_name(value)
    ))
}

fn all(service: &ServerState) -> BTreeSet<SessionId> {
    service.sessions.list().iter().map(|session| session.id).collect()
}

/// Stops what runs in these sessions, but not the command that says so.
fn stop(context: &Context<'_>, sessions: &BTreeSet<SessionId>) {
    let service = context.service;
    service.operations.kill_sessions(sessions, context.connection.operation.number());
    for id in sessions {
        service.sessions.end(*id);
        service.numbered.remove(*id);
    }
    service.kill_cursors_of(sessions);
}
