//! `compact`: what waits in buffers is moved down, what nobody sees any more is dropped.
//!
//! There is nothing here that must be compacted to stay fast or small. For scripts that run it, it
//! is `reIndex` without options: reads and writes go on, `currentOp` says how far it is. Where a
//! client names what must be free at least, it is held against the estimate that a dry run gives.

use super::auto_compact::free_space_target;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use catalog::{IndexSelector, ReindexProgress};
use dispatch::fields::Field;
use engine::Rewrite;
use errors::Result;

pub(crate) const COMPACT: Command = Command::new(
    "compact",
    "Moves down what waits in a collection's buffers.",
    Needs::Collection(&[Action::Compact]),
    run,
);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let (mut dry, mut target_mb) = (false, 0);
    for field in fields[1..].iter().filter(|field| !field.is_null()) {
        match field.name {
            // On a replica set's primary MongoDB wants to be asked twice; here nothing is blocked.
            "force" => {
                field.bool()?;
            }
            "dryRun" => dry = field.bool()?,
            "freeSpaceTargetMB" => target_mb = free_space_target(field)?,
            _ => return Err(field.unknown()),
        }
    }
    context.at_collection(&namespace);
    let catalog = &context.service.catalog;
    let collection = catalog.require(&namespace)?;
    if collection.is_view() {
        return Err(super::is_a_view(&namespace));
    }
    let estimate = catalog.reclaimable_bytes(&collection);
    if dry {
        context.reply.number("estimatedBytesFreed", estimate);
        return Ok(());
    }
    if estimate < (target_mb as u64).saturating_mul(1 << 20) {
        context.reply.number("bytesFreed", 0);
        return Ok(());
    }
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
