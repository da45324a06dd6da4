//! `killSessions` and its kin: end sessions with everything that runs in them.
//!
//! Always true: where nobody is asked for users every session is nobody's, so that a list of users names none of
//! them. Fields that these commands do not know do not matter to them, as in MongoDB.

use super::parse_list;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use auth::UserName;
use bson::RawBsonRef;
use dispatch::fields::{Field, inner, missing, type_name};
use errors::{Error, Result};
use serverstate::ServerState;
use session::{SessionId, UserDigest};
use std::collections::BTreeSet;

pub(crate) const KILL_SESSIONS: Command =
    Command::new("killSessions", "Stops what runs in the given sessions.", Needs::Login, kill);

pub(crate) const KILL_ALL_SESSIONS: Command = Command::new(
    "killAllSessions",
    "Stops what runs in all sessions.",
    Needs::Cluster(&[Action::KillAnySession]),
    kill_all,
);

pub(crate) const KILL_ALL_SESSIONS_BY_PATTERN: Command = Command::new(
    "killAllSessionsByPattern",
    "Stops what runs in the sessions of a pattern.",
    Needs::Cluster(&[Action::KillAnySession]),
    kill_by_pattern,
);

fn kill(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let own = context.admitted.digest();
    let list = parse_list(&fields[0], own)?;
    // An empty list means all of one's own, which is every session where nobody is asked for users.
    let sessions =
        if list.is_empty() { of(context.service, own) } else { list.into_iter().collect() };
    stop(context, &sessions);
    Ok(())
}

fn kill_all(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut named = Vec::new();
    for (at, value) in fields[0].array()?.into_iter().enumerate() {
        let value = value?;
        if !matches!(value, RawBsonRef::Null) {
            named.push(parse_user(&fields[0], at, value)?);
        }
    }
    let mut sessions = all(context.service);
    if !named.is_empty() {
        sessions.retain(|session| named.contains(&session.user));
    }
    stop(context, &sessions);
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
        let (mut one, mut users) = (None, Vec::new());
        for part in inner(pattern, "KillAllSessionsByPattern") {
            let part = part?;
            match part.name {
                "lsid" => {
                    let (id, user) = dispatch::arguments::parse_any_lsid(&Field { ..part })?;
                    one = Some(SessionId { id, user: user.unwrap_or(context.admitted.digest()) });
                }
                "uid" => match part.value {
                    RawBsonRef::Binary(digest) => users.push(digest.bytes.to_vec()),
                    _ => return Err(part.wrong_type("binData")),
                },
                // In whose name it is done; whoever may do it at all may do it in any.
                "users" | "roles" => {
                    for (at, user) in part.array()?.into_iter().enumerate() {
                        parse_name(&part, at, user?)?;
                    }
                }
                _ => return Err(part.unknown()),
            }
        }
        let meant = |session: &SessionId| users.iter().all(|user| session.user.0[..] == user[..]);
        match one {
            Some(id) => sessions.extend(Some(id).filter(meant)),
            None => sessions.extend(everybody.iter().copied().filter(meant)),
        }
    }
    stop(context, &sessions);
    Ok(())
}

/// `{user: <name>, db: <name>}`, both there.
fn parse_user(list: &Field<'_>, at: usize, value: RawBsonRef<'_>) -> Result<UserDigest> {
    let RawBsonRef::Document(user) = value else { return Err(wrong_element(list, at, value)) };
    let (mut name, mut database) = (None, None);
    for part in inner(user, "KillAllSessionsCmd.killAllSessions") {
        let part = part?;
        let given = match part.name {
            "user" => &mut name,
            "db" => &mut database,
            _ => return Err(part.unknown()),
        };
        if !part.is_null() {
            *given = Some(part.str()?);
        }
    }
    let place = "KillAllSessionsCmd.killAllSessions";
    let name = name.ok_or_else(|| missing(place, "user"))?;
    let database = database.ok_or_else(|| missing(place, "db"))?;
    Ok(UserDigest(UserName::new(name, database).digest()))
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

/// The sessions of a user.
fn of(service: &ServerState, user: UserDigest) -> BTreeSet<SessionId> {
    all(service).into_iter().filter(|session| session.user == user).collect()
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
