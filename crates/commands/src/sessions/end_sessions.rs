//! `endSessions` and `refreshSessions`: the client's word on which sessions it still uses.

use super::parse_list;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use errors::Result;
use std::collections::BTreeSet;

pub(crate) const END_SESSIONS: Command = Command::new(
    "endSessions",
    "Ends sessions, with their cursors and open transactions.",
    Needs::Login,
    end,
)
.api_v1();

pub(crate) const REFRESH_SESSIONS: Command =
    Command::new("refreshSessions", "Keeps sessions from expiring.", Needs::Login, refresh)
        .api_v1();

fn end(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let list: BTreeSet<_> =
        parse_list(&fields[0], context.admitted.digest())?.into_iter().collect();
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    for id in &list {
        context.service.sessions.end(*id);
        context.service.numbered.remove(*id);
    }
    context.service.kill_cursors_of(&list);
    Ok(())
}

fn refresh(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let list = parse_list(&fields[0], context.admitted.digest())?;
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    for id in list {
        context.service.touch_session(id, context.started)?;
    }
    Ok(())
}
