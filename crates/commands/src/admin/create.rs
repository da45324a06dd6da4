//! `create`: a collection or a view.

use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use catalog::{CollectionOptions, IndexSpec};
use errors::Result;

pub(crate) const CREATE: Command =
    Command::new("create", "Makes a collection or a view.", run).api_v1().write_concern();

/// What `create` may say; which of it can be honoured is [`CollectionOptions`]'s to know.
const KNOWN: [&str; 24] = [
    "autoIndexId",
    "capped",
    "changeStreamPreAndPostImages",
    "clusteredIndex",
    "collation",
    "compression",
    "encryptedFields",
    "expireAfterSeconds",
    "fanout",
    "idIndex",
    "indexOptionDefaults",
    "max",
    "pageSize",
    "partitioned",
    "pipeline",
    "primaryKey",
    "readPageSize",
    "size",
    "storageEngine",
    "temp",
    "timeseries",
    "validationAction",
    "validationLevel",
    "validator",
];

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    for field in &fields[1..] {
        match field.name {
            "capped" | "autoIndexId" | "temp" => {
                field.bool()?;
            }
            "size" | "max" => {
                field.i64()?;
            }
            "validator"
            | "storageEngine"
            | "timeseries"
            | "collation"
            | "idIndex"
            | "indexOptionDefaults" => {
                field.document()?;
            }
            "pipeline" => {
                field.documents()?;
            }
            "viewOn" | "validationAction" | "validationLevel" => {
                field.str()?;
            }
            name if KNOWN.contains(&name) => {}
            _ => return Err(field.unknown()),
        }
    }
    let options = CollectionOptions::parse(context.body)?;
    context.at_collection(&namespace);
    let catalog = &context.service.catalog;
    let interrupt = context.interrupt();
    match context.txn() {
        Some(txn) => txn.create_collection(&namespace, &options).map(drop)?,
        None => catalog.create_collection(&namespace, &options, &|| interrupt.check()).map(drop)?,
    }
    if let Some(series) = &options.time_series {
        let first = series.first_indexes();
        let specs = first.iter().map(|spec| IndexSpec::parse(spec)).collect::<Result<Vec<_>>>()?;
        match context.txn() {
            Some(txn) => txn.create_indexes(&namespace, &specs, &|| interrupt.check()).map(drop)?,
            // Where this fails the collection stays, and works: somebody may have written to it.
            None => {
                catalog.create_indexes(&namespace, &specs, &|| interrupt.check()).map(drop)?;
            }
        }
    }
    if let Some(note) = catalog::substitution(context.body) {
        context.reply.str("note", &note);
    }
    Ok(())
}
