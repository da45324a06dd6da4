//! `whatsmyuri`: the client's address as we see it.

use crate::arguments::Fields;
use crate::context::Context;
use crate::registry::Command;
use errors::Result;

pub(crate) const WHATS_MY_URI: Command =
    Command::new("whatsmyuri", "The client's address as the server sees it.", run);

fn run(context: &mut Context<'_>, _fields: Fields<'_>) -> Result<()> {
    context.reply.str("you", &context.connection.info.remote);
    Ok(())
}
