//! `startSession`: makes a session id for clients that cannot.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use errors::Result;
use session::{SessionId, Sessions};

pub(crate) const START_SESSION: Command =
    Command::new("startSession", "Makes a logical session.", Needs::Login, run);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let mut id = [0; 16];
    context.service.os.entropy.fill(&mut id);
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    let user = context.admitted.digest();
    context.service.touch_session(SessionId { id, user }, context.started)?;
    let open = context.reply.begin_document("id");
    context.reply.uuid("id", &id);
    if context.admitted.is_access_control_on {
        context.reply.binary("uid", &user.0);
    }
    context.reply.end(open);
    context.reply.i32("timeoutMinutes", (Sessions::TIMEOUT.as_secs() / 60) as i32);
    Ok(())
}
