//! `whatsmyuri`: the client's address as we see it.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const WHATS_MY_URI: Command =
    Command::new("whatsmyuri", "The client's address as the server sees it.", Needs::NoLogin, run);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    context.reply.str("you", &context.connection.info().remote);
    Ok(())
}
