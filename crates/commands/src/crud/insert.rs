//! `insert`.

use super::write_reply::{batch, write_errors, wrong_collection};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use dispatch::fields::Field;
use dispatch::rules::Counter;
use errors::Result;
use query::{Atomicity, InsertRequest};
use std::sync::atomic::Ordering;

pub(crate) const INSERT: Command =
    Command::new("insert", "Stores documents.", Needs::Computed(asks::insert), run)
        .writes(Counter::Insert)
        .api_v1()
        .sequences(&["documents"]);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let mut ordered = true;
    let mut documents = None;
    for field in &fields[1..] {
        match field.name {
            "documents" => documents = Some(*field),
            "ordered" => ordered = field.bool()?,
            // Honoured by `Context::op`.
            "bypassDocumentValidation" | "bypassEmptyTsReplacement" => {
                field.bool()?;
            }
            "stmtId" | "stmtIds" => {}
            _ => return Err(field.unknown()),
        }
    }
    let documents = batch(context, documents.as_ref(), "documents")?;
    context.at_collection(&namespace);
    let errors = wrong_collection(context, &namespace, documents.len(), ordered);
    if !errors.is_empty() {
        context.reply.number("n", 0);
        write_errors(context, &errors);
        return Ok(());
    }
    let service = context.service;
    service.metrics.count(Counter::Insert, documents.len() as u64);
    // As in TokuMX: OP_INSERT without `continueOnError` is all or nothing.
    let atomicity = if ordered && context.request.op.is_legacy() {
        Atomicity::Insert
    } else {
        Atomicity::Statement
    };
    let mut op = context.op();
    op.atomicity = atomicity;
    let request = InsertRequest { documents: &documents, ordered };
    let result = query::insert(&mut op, &namespace, &request)?;
    service.metrics.documents_inserted.fetch_add(result.n, Ordering::Relaxed);
    context.figures.inserted = Some(result.n);
    context.reply.number("n", result.n);
    write_errors(context, &result.errors);
    Ok(())
}
