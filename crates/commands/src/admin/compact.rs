//! `compact`: what waits in buffers is moved down, what nobody sees any more is dropped.
//!
//! There is nothing here that must be compacted to stay fast or small. For scripts that run it, it
//! is `reIndex` without options: reads and writes go on, `currentOp` says how far it is.

use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use catalog::storage::Rewrite;
use catalog::{IndexSelector, ReindexProgress};
use errors::Result;

pub(crate) const COMPACT: Command =
    Command::new("compact", "Moves down what waits in a collection's buffers.", run);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    for field in &fields[1..] {
        match field.name {
            // On a replica set's primary MongoDB wants to be asked twice; here nothing is blocked.
            "force" => {
                field.bool()?;
            }
            "dryRun" => {
                if field.bool()? {
                    return Err(field.not_yet());
                }
            }
            "freeSpaceTargetMB" => return Err(field.not_yet()),
            _ => return Err(field.unknown()),
        }
    }
    context.at_collection(&namespace);
    let catalog = &context.service.catalog;
    let stored = || -> Result<u64> {
        let collection = catalog.require(&namespace)?;
        let indexes = catalog.stats(&collection).indexes;
        Ok(indexes.iter().map(|index| index.storage_bytes).sum())
    };
    let before = stored()?;
    let operation = &context.connection.operation;
    let report = |progress: ReindexProgress<'_>| {
        let ReindexProgress { index, done_bytes, total_bytes } = progress;
        operation.set_progress(&format!("compact: {namespace}.${index}"), done_bytes, total_bytes);
        context.check_interrupt()
    };
    catalog.rewrite_indexes(&namespace, IndexSelector::All, Rewrite::Untidy, &report)?;
    let freed = before.saturating_sub(stored()?);
    context.reply.number("bytesFreed", freed);
    Ok(())
}
