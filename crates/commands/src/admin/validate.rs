//! `validate`: walks a collection and its indexes and says whether they agree.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Code, Error, Result};

pub(crate) const VALIDATE: Command = Command::new(
    "validate",
    "Checks documents and indexes against each other.",
    Needs::Collection(&[Action::Validate]),
    run,
);

const NON_COMPLIANT: &str =
    "Detected one or more documents not compliant with the collection's schema.";

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let (mut full, mut background) = (false, false);
    for field in &fields[1..] {
        match field.name {
            // Every validate walks everything; there is nothing less…
            "full" => full = field.bool()?,
            "scandata" | "metadata" | "enforceFastCount" | "checkBSONConformance" => {
                field.bool()?;
            }
            // …and it walks a snapshot, so that nobody waits for it.
            "background" => background = field.bool()?,
            "repair" | "fixMultikey" => {
                if field.bool()? {
                    return Err(field.not_yet());
                }
            }
            _ => return Err(field.unknown()),
        }
    }
    if full && background {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            "Running the validate command with both { background: true } and { full: true } is \
             not supported.",
        ));
    }
    context.at_collection(&namespace);
    let interrupt = context.interrupt();
    let check = || interrupt.check();
    let report =
        context.service.catalog.validate(&namespace, &check).map_err(|error| {
            match error.code() {
                Code::NAMESPACE_NOT_FOUND => Error::new(
                    error.code(),
                    format!("Collection '{namespace}' does not exist to validate."),
                ),
                _ => error,
            }
        })?;
    let mut warnings = Vec::new();
    if report.non_compliant > 0 {
        warnings.push(NON_COMPLIANT.to_owned());
    }
    let reply = &mut context.reply;
    reply.str("ns", namespace.as_str());
    reply.long("nInvalidDocuments", report.invalid_documents);
    reply.long("nNonCompliantDocuments", report.non_compliant);
    reply.long("nrecords", report.records);
    reply.i32("nIndexes", report.keys_per_index.len() as i32);
    let keys = reply.begin_document("keysPerIndex");
    for (name, entries) in &report.keys_per_index {
        reply.long(name, *entries);
    }
    reply.end(keys);
    let details = reply.begin_document("indexDetails");
    for (name, _) in &report.keys_per_index {
        let one = reply.begin_document(name);
        reply.bool("valid", !report.invalid_indexes.contains(name));
        reply.end(one);
    }
    reply.end(details);
    reply.bool("valid", report.valid());
    reply.bool("repaired", false);
    for (name, texts) in [
        ("warnings", &warnings),
        ("errors", &report.errors),
        ("extraIndexEntries", &Vec::new()),
        ("missingIndexEntries", &Vec::new()),
        ("corruptRecords", &Vec::new()),
    ] {
        let list = reply.begin_array(name);
        for (at, text) in texts.iter().enumerate() {
            reply.element_str(at, text);
        }
        reply.end(list);
    }
    Ok(())
}
