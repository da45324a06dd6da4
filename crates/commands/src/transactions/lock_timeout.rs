//! `setClientLockTimeout` (TokuMX): how long the connection's requests wait for locks, inside of its transactions and
//! outside. A session's transactions wait as long as `maxTransactionLockRequestTimeoutMillis` says.

use super::bound::lock_timeout;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use errors::{Error, Result};
use std::sync::atomic::Ordering;

pub(crate) const SET_CLIENT_LOCK_TIMEOUT: Command = Command::new(
    "setClientLockTimeout",
    "How long this connection's requests wait for locks, in ms (TokuMX).",
    Needs::Login,
    run,
);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let millis = fields[0].i64()?;
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    if millis < 0 {
        return Err(Error::location(17356, "lock timeout must be >= 0"));
    }
    let was = lock_timeout(context.service, context.connection).as_millis();
    context.connection.lock_timeout_ms.store(millis, Ordering::Relaxed);
    context.reply.number("was", u64::try_from(was).unwrap_or(u64::MAX));
    Ok(())
}
