//! `fsync` with and without a lock, `fsyncUnlock`, and TokuMX's `checkpoint`: what is written so far is
//! on stable storage.
//!
//! What is always true of the lock: it is the server's, not a connection's; while it is held no client
//! writes and no document expires, and the files of the newest checkpoint and the log from it on stay
//! as they are, so that a copy of the data directory taken meanwhile opens like the directory itself.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawBsonRef;
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use serverstate::write_gate::GateHold;
use std::time::Duration;

pub(crate) const FSYNC: Command = Command::new(
    "fsync",
    "Puts everything written so far on stable storage; locks out writes.",
    Needs::Cluster(&[Action::Fsync]),
    sync,
)
.admin_only();

pub(crate) const FSYNC_UNLOCK: Command = Command::new(
    "fsyncUnlock",
    "Takes back one lock of `fsync`.",
    Needs::Cluster(&[Action::Unlock]),
    unlock,
)
.admin_only();

pub(crate) const CHECKPOINT: Command = Command::new(
    "checkpoint",
    "Writes a checkpoint now (TokuMX).",
    Needs::Cluster(&[Action::Checkpoint]),
    checkpoint,
)
.admin_only();

/// How long the lock waits for commands that write, unless the client says otherwise.
const TIMEOUT_MS: i32 = 90_000;

fn sync(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (mut lock, mut timeout_ms) = (false, TIMEOUT_MS);
    for field in fields[1..].iter().filter(|field| !field.is_null()) {
        match field.name {
            "lock" => lock = field.bool()?,
            "async" => {
                field.bool()?;
            }
            "fsyncLockAcquisitionTimeoutMillis" => {
                let RawBsonRef::Int32(millis) = field.value else {
                    return Err(field.wrong_type("int"));
                };
                timeout_ms = millis;
            }
            _ => return Err(field.unknown()),
        }
    }
    let service = context.service;
    if !lock {
        service.catalog.sync()?;
        context.reply.i32("numFiles", 1);
        return Ok(());
    }
    let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    let hold = || -> Result<GateHold> {
        service.pause_expiry();
        let backup = service.catalog.engine().backup().map_err(catalog::from_engine);
        match backup.and_then(|backup| service.catalog.sync().map(|()| backup)) {
            Ok(backup) => Ok(Box::new(backup)),
            Err(error) => {
                service.resume_expiry();
                Err(error)
            }
        }
    };
    let check = || context.check_interrupt();
    let count = service.write_gate.close(&*service.os.clock, timeout, check, hold)?;
    context.reply.str("info", "now locked against writes, use db.fsyncUnlock() to unlock");
    context.reply.long("lockCount", count);
    context.reply.str("seeAlso", "http://dochub.mongodb.org/core/fsynccommand");
    Ok(())
}

/// Fields that it does not know do not matter to it, as in MongoDB: whoever locked must get out.
fn unlock(context: &mut Context<'_>, _: &[Field<'_>]) -> Result<()> {
    let service = context.service;
    let Some(left) = service.write_gate.unlock() else {
        return Err(Error::new(Code::ILLEGAL_OPERATION, "fsyncUnlock called when not locked"));
    };
    if left == 0 {
        service.resume_expiry();
    }
    context.reply.str("info", "fsyncUnlock completed");
    context.reply.long("lockCount", left);
    Ok(())
}

fn checkpoint(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    context.service.catalog.engine().checkpoint().map_err(catalog::from_engine)
}
