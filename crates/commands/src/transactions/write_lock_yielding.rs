//! `setWriteLockYielding` (TokuMX): whether this connection's operations end early where somebody
//! waits for a database's write lock.
//!
//! Always honoured, for there is no such lock: nobody has to yield to it. The setting is kept, so
//! that scripts which restore what `was` read back what they set.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use errors::Result;
use std::sync::atomic::Ordering;

pub(crate) const SET_WRITE_LOCK_YIELDING: Command = Command::new(
    "setWriteLockYielding",
    "Kept for scripts: there is no write lock to yield to (TokuMX).",
    Needs::Login,
    run,
);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let yields = fields[0].bool()?;
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let was = context.connection.yields_write_lock.swap(yields, Ordering::Relaxed);
    context.reply.bool("was", was);
    Ok(())
}
