//! `renameCollection`.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::RawBsonRef;
use catalog::Namespace;
use dispatch::fields::{Field, missing};
use errors::{Code, Error, Result};

pub(crate) const RENAME_COLLECTION: Command = Command::new(
    "renameCollection",
    "Renames a collection, also across databases.",
    Needs::Computed(asks::rename_collection),
    run,
)
.admin_only()
.write_concern();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let from = parse(context, &fields[0])?;
    let (mut to, mut drop_target, mut target_uuid) = (None, false, None);
    for field in &fields[1..] {
        match field.name {
            "to" => to = Some(parse(context, field)?),
            "dropTarget" => {
                if let RawBsonRef::Boolean(drop) = field.value {
                    drop_target = drop;
                } else {
                    // The target may be dropped if it is this one.
                    (drop_target, target_uuid) = (true, Some(field.uuid()?));
                }
            }
            "stayTemp" => {}
            _ => return Err(field.unknown()),
        }
    }
    let to = to.ok_or_else(|| missing("renameCollection", "to"))?;
    context.connection.operation.set_namespace(from.shared());
    context.check_uuid(&from)?;
    if let Some(expected) = target_uuid
        && context.service.catalog.newest(&to).is_some_and(|c| c.uuid().bytes() != expected)
    {
        return Err(Error::new(Code::NAMESPACE_EXISTS, "target namespace exists"));
    }
    let (catalog, interrupt) = (&context.service.catalog, context.interrupt());
    match context.txn() {
        Some(txn) => txn.rename_collection(&from, &to, drop_target)?,
        None => catalog.rename_collection(&from, &to, drop_target, &|| interrupt.check())?,
    }
    context.service.metrics.forget(from.as_str());
    Ok(())
}

fn parse(context: &Context<'_>, field: &Field<'_>) -> Result<Namespace> {
    context.opened(Namespace::parse(field.str()?)?)
}
