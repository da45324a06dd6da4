//! `killCursors`.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::{Field, missing};
use errors::Result;
use session::{CursorId, UserDigest};
use std::collections::BTreeSet;

pub(crate) const KILL_CURSORS: Command =
    Command::new("killCursors", "Ends cursors.", Needs::Login, run).goes_by_its_cursors().api_v1();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let collection = fields[0].collection()?;
    let mut cursors = None;
    for field in &fields[1..] {
        match field.name {
            "cursors" => cursors = Some(parse_ids(field)?),
            _ => return Err(field.unknown()),
        }
    }
    let cursors = cursors.ok_or_else(|| missing("killCursors", "cursors"))?;
    if context.request.op.is_legacy() {
        kill_by_number(context, &cursors);
        return Ok(());
    }
    let namespace = format!("{}.{collection}", context.database());
    let (mut killed, mut absent) = (Vec::new(), Vec::new());
    for id in cursors {
        match context.service.cursors.kill(id, &namespace, |user| may_end(context, user)) {
            Some(dead) => {
                context.service.stop_runner(dead);
                killed.push(id);
            }
            None => absent.push(id),
        }
    }
    let reply = &mut context.reply;
    for (name, ids) in [
        ("cursorsKilled", &killed),
        ("cursorsNotFound", &absent),
        ("cursorsAlive", &Vec::new()),
        ("cursorsUnknown", &Vec::new()),
    ] {
        let list = reply.begin_array(name);
        for (at, id) in ids.iter().enumerate() {
            reply.element_i64(at, id.0);
        }
        reply.end(list);
    }
    Ok(())
}

/// Whether the client may end a cursor of this user: its own, and others' by right.
fn may_end(context: &Context<'_>, user: UserDigest) -> bool {
    user == context.admitted.digest() || context.admitted.may_cluster(Action::KillAnyCursor)
}

/// OP_KILL_CURSORS names no collection and gets no reply.
fn kill_by_number(context: &Context<'_>, ids: &[CursorId]) {
    let condemned: BTreeSet<CursorId> = ids.iter().copied().collect();
    for dead in context
        .service
        .cursors
        .kill_where(|cursor| condemned.contains(&cursor.id) && may_end(context, cursor.user))
    {
        context.service.stop_runner(dead);
    }
}

fn parse_ids(field: &Field<'_>) -> Result<Vec<CursorId>> {
    let mut ids = Vec::new();
    for (at, element) in field.array()?.into_iter().enumerate() {
        let name = format!("{}.{at}", field.name);
        let one = Field { place: field.place, name: &name, value: element? };
        ids.push(CursorId(one.long()?));
    }
    Ok(ids)
}
