//! What can be done to a capped collection beside its use: made of another, copied, emptied.

use crate::context::Context;
use crate::fields::{Field, missing};
use crate::registry::Command;
use errors::{Code, Error, Result};
use std::sync::atomic::Ordering;

pub(crate) const CONVERT_TO_CAPPED: Command =
    Command::new("convertToCapped", "Makes a collection capped.", convert).write_concern();

pub(crate) const CLONE_AS_CAPPED: Command = Command::new(
    "cloneCollectionAsCapped",
    "Copies the end of a collection into a new capped one.",
    clone,
)
.write_concern();

pub(crate) const EMPTY_CAPPED: Command =
    Command::new("emptycapped", "Empties a capped collection (test commands only).", empty)
        .write_concern();

fn convert(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let mut size = None;
    for field in &fields[1..] {
        match field.name {
            "size" => size = Some(field.i64()?),
            _ => return Err(field.unknown()),
        }
    }
    let size = size.ok_or_else(|| missing("convertToCapped", "size"))?;
    context.at_collection(&namespace);
    let check = || context.check_interrupt();
    context.service.catalog.convert_to_capped(&namespace, size, &check)
}

fn clone(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let from = context.namespace(&fields[0])?;
    let (mut to, mut size) = (None, None);
    for field in &fields[1..] {
        match field.name {
            "toCollection" => to = Some(context.namespace(field)?),
            "size" => size = Some(field.i64()?),
            "temp" => {
                field.bool()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    let to = to.ok_or_else(|| missing("cloneCollectionAsCapped", "toCollection"))?;
    let size = size.ok_or_else(|| missing("cloneCollectionAsCapped", "size"))?;
    context.at_collection(&from);
    let check = || context.check_interrupt();
    context.service.catalog.clone_as_capped(&from, &to, size, &check)
}

fn empty(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if !context.service.test_commands.load(Ordering::Relaxed) {
        return Err(Error::new(Code::COMMAND_NOT_FOUND, "no such command: 'emptycapped'"));
    }
    let namespace = context.namespace(&fields[0])?;
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    context.at_collection(&namespace);
    context.service.catalog.empty_capped(&namespace)
}
