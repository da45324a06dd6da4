//! `fsync`, and TokuMX's `checkpoint`: what is written so far is on stable storage.

use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use errors::{Code, Error, Result};

pub(crate) const FSYNC: Command =
    Command::new("fsync", "Puts everything written so far on stable storage.", sync).admin_only();

pub(crate) const FSYNC_UNLOCK: Command =
    Command::new("fsyncUnlock", "An error: `fsync` never locks.", unlock).admin_only();

pub(crate) const CHECKPOINT: Command =
    Command::new("checkpoint", "Writes a checkpoint now (TokuMX).", checkpoint).admin_only();

fn sync(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    for field in &fields[1..] {
        match field.name {
            "lock" => {
                if field.bool()? {
                    return Err(field.not_yet());
                }
            }
            "async" => {
                field.bool()?;
            }
            "fsyncLockAcquisitionTimeoutMillis" => {
                field.i64()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    context.service.catalog.sync()?;
    context.reply.i32("numFiles", 1);
    Ok(())
}

fn unlock(_: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    match fields.get(1) {
        Some(field) => Err(field.unknown()),
        None => Err(Error::new(Code::ILLEGAL_OPERATION, "fsyncUnlock called when not locked")),
    }
}

fn checkpoint(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    context.service.catalog.engine().checkpoint().map_err(catalog::from_engine)
}
