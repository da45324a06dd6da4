//! `killSessions` and its kin: end sessions with everything that runs in them.

use super::parse_list;
use crate::context::Context;
use crate::fields::{Field, inner};
use crate::registry::Command;
use crate::service::Service;
use errors::Result;
use session::SessionId;

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
    no_more(fields)?;
    // Without users an empty list means every session, as it means all of one's own with them.
    if list.is_empty() {
        stop_all(context.service, own(context));
    } else {
        stop(context.service, &list, own(context));
    }
    Ok(())
}

/// The users in the list do not matter: without authentication all sessions are nobody's.
fn kill_all(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    for user in fields[0].documents()? {
        for part in inner(user, "killAllSessions") {
            let part = part?;
            match part.name {
                "user" | "db" => {
                    part.str()?;
                }
                _ => return Err(part.unknown()),
            }
        }
    }
    no_more(fields)?;
    stop_all(context.service, own(context));
    Ok(())
}

fn kill_by_pattern(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let patterns = fields[0].documents()?;
    no_more(fields)?;
    if patterns.is_empty() {
        stop_all(context.service, own(context));
        return Ok(());
    }
    let mut list = Vec::new();
    for pattern in patterns {
        let mut everything = true;
        for part in inner(pattern, "KillAllSessionsByPattern") {
            let part = part?;
            match part.name {
                "lsid" => {
                    everything = false;
                    list.push(crate::arguments::parse_lsid(&Field { ..part })?);
                }
                "uid" | "users" | "roles" => {}
                _ => return Err(part.unknown()),
            }
        }
        if everything {
            stop_all(context.service, own(context));
            return Ok(());
        }
    }
    stop(context.service, &list, own(context));
    Ok(())
}

fn no_more(fields: &[Field<'_>]) -> Result<()> {
    fields.get(1).map_or(Ok(()), |field| Err(field.unknown()))
}

/// The number of the command itself, which must not stop itself.
fn own(context: &Context<'_>) -> u64 {
    context.connection.operation.number()
}

fn stop_all(service: &Service, own: u64) {
    let mut list: Vec<SessionId> = service.sessions.list().iter().map(|s| s.id).collect();
    list.sort_unstable();
    stop(service, &list, own);
}

fn stop(service: &Service, list: &[SessionId], own: u64) {
    for id in list {
        service.operations.kill_session(*id, own);
        service.sessions.end(*id);
        service.numbered.remove(*id);
    }
    service.kill_cursors_of(list);
}
