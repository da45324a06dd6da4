//! `delete`.

use super::explain::{verbosity_of, write_explain};
use super::update::one_only;
use super::write_reply::{batch, write_errors, wrong_collection};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawDocument;
use catalog::Namespace;
use dispatch::fields::{Field, inner_of, missing};
use dispatch::rules::Counter;
use errors::{Error, Result};
use query::{DeleteRequest, DeleteStatement};
use serverstate::RetryableWrite;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

pub(crate) const DELETE: Command =
    Command::new("delete", "Removes documents.", Needs::Collection(&[Action::Remove]), run)
        .writes(Counter::Delete)
        .api_v1()
        .sequences(&["deletes"])
        .explains(explain);

const PLACE: &str = "delete.deletes";

struct Delete<'a> {
    namespace: Namespace,
    /// Mostly one.
    statements: SmallVec<[DeleteStatement<'a>; 1]>,
    ordered: bool,
    let_variables: Option<&'a RawDocument>,
}

impl Delete<'_> {
    fn request(&self) -> DeleteRequest<'_> {
        DeleteRequest {
            deletes: &self.statements,
            ordered: self.ordered,
            let_variables: self.let_variables,
        }
    }
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let delete = parse(context, fields)?;
    for statement in &delete.statements {
        RetryableWrite::check_one(context.retryable.as_deref(), !statement.only_one)?;
    }
    context.at_collection(&delete.namespace);
    let count = delete.statements.len();
    let errors = wrong_collection(context, &delete.namespace, count, delete.ordered);
    if !errors.is_empty() {
        context.reply.number("n", 0);
        write_errors(context, &errors);
        return Ok(());
    }
    let metrics = &context.service.metrics;
    metrics.count(Counter::Delete, delete.statements.len() as u64);
    let mut op = context.op();
    let result = query::delete(&mut op, &delete.namespace, &delete.request())?;
    metrics.documents_deleted.fetch_add(result.n, Ordering::Relaxed);
    context.figures.deleted = Some(result.n);
    context.reply.number("n", result.n);
    write_errors(context, &result.errors);
    Ok(())
}

fn explain(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let delete = parse(context, fields)?;
    if delete.statements.len() != 1 {
        return Err(one_only());
    }
    context.at_collection(&delete.namespace);
    context.check_uuid(&delete.namespace)?;
    let verbosity = verbosity_of(context);
    let mut op = context.op();
    let plan = query::explain_delete(&mut op, &delete.namespace, &delete.request(), verbosity)?;
    write_explain(context, &plan);
    Ok(())
}

fn parse<'a>(context: &Context<'a>, fields: &[Field<'a>]) -> Result<Delete<'a>> {
    let namespace = context.namespace(&fields[0])?;
    let mut deletes = None;
    let mut ordered = true;
    let mut let_variables = None;
    for field in &fields[1..] {
        match field.name {
            "deletes" => deletes = Some(field),
            "ordered" => ordered = field.bool()?,
            "let" => let_variables = Some(field.document()?),
            "bypassDocumentValidation" | "stmtId" | "stmtIds" => {}
            _ => return Err(field.unknown()),
        }
    }
    let batch = batch(context, deletes, "deletes")?;
    let mut statements = SmallVec::<[_; 1]>::with_capacity(batch.len());
    for document in &*batch {
        statements.push(parse_statement(document)?);
    }
    Ok(Delete { namespace, statements, ordered, let_variables })
}

fn parse_statement(document: &RawDocument) -> Result<DeleteStatement<'_>> {
    let mut statement =
        DeleteStatement { filter: document, only_one: false, hint: None, collation: None };
    let (mut filter, mut limit) = (None, None);
    for field in inner_of(document, PLACE, &["q", "limit"]) {
        let field = field?;
        match field.name {
            "q" | "limit" | "collation" if field.is_null() => {}
            "q" => filter = Some(field.document()?),
            "limit" => limit = Some(field.i64()?),
            "sampleId" => {}
            _ => shared_field(&mut statement, &field)?,
        }
    }
    statement.filter = filter.ok_or_else(|| missing(PLACE, "q"))?;
    statement.only_one = match limit.ok_or_else(|| missing(PLACE, "limit"))? {
        0 => false,
        1 => true,
        other => {
            return Err(Error::failed_to_parse(format!(
                "The limit field in delete objects must be 0 or 1. Got {other}"
            )));
        }
    };
    Ok(statement)
}

/// Reads a field that has the same name in `bulkWrite`, and refuses what neither knows.
pub(crate) fn shared_field<'a>(
    statement: &mut DeleteStatement<'a>,
    field: &Field<'a>,
) -> Result<()> {
    match field.name {
        "hint" => statement.hint = Some(field.hint()?),
        "collation" => statement.collation = Some(field.document()?),
        _ => return Err(field.unknown()),
    }
    Ok(())
}
