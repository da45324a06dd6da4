//! `cursorInfo`: how many cursors there are, for clients of servers before MongoDB 3.2.
//!
//! Always true: the figures are those of `serverStatus.metrics.cursor`.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const CURSOR_INFO: Command = Command::new(
    "cursorInfo",
    "How many cursors there are, for old clients.",
    Needs::Cluster(&[Action::ServerStatus]),
    run,
);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let stats = context.service.cursors.stats();
    let reply = &mut context.reply;
    reply.str("note", "deprecated, use server status metrics");
    reply.number("clientCursors_size", stats.open);
    reply.number("totalOpen", stats.open);
    reply.number("pinned", stats.pinned);
    reply.number("totalNoTimeout", stats.no_timeout);
    reply.number("timedOut", stats.timed_out);
    Ok(())
}
