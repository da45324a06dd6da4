//! `update`.

use super::explain::{verbosity_of, write_explain};
use super::write_reply::{batch, write_errors, wrong_collection};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::{RawBsonRef, RawDocument};
use catalog::Namespace;
use dispatch::fields::{Field, inner_of, missing};
use dispatch::rules::Counter;
use errors::{Code, Error, Result};
use matcher::ParseContext;
use pipeline::{Pipeline, PipelineContext};
use query::{UpdateRequest, UpdateStatement};
use serverstate::RetryableWrite;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

pub(crate) const UPDATE: Command =
    Command::new("update", "Changes documents.", Needs::Computed(asks::update), run)
        .writes(Counter::Update)
        .api_v1()
        .sequences(&["updates"])
        .explains(explain);

const PLACE: &str = "update.updates";

struct Update<'a> {
    namespace: Namespace,
    /// Mostly one.
    statements: SmallVec<[UpdateStatement<'a>; 1]>,
    ordered: bool,
    let_variables: Option<&'a RawDocument>,
}

impl Update<'_> {
    fn request(&self) -> UpdateRequest<'_> {
        UpdateRequest {
            updates: &self.statements,
            ordered: self.ordered,
            let_variables: self.let_variables,
        }
    }
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let update = parse(context, fields)?;
    for statement in &update.statements {
        RetryableWrite::check_one(context.retryable.as_deref(), statement.multi)?;
    }
    context.at_collection(&update.namespace);
    let count = update.statements.len();
    let errors = wrong_collection(context, &update.namespace, count, update.ordered);
    if !errors.is_empty() {
        context.reply.number("n", 0);
        context.reply.number("nModified", 0);
        write_errors(context, &errors);
        return Ok(());
    }
    let metrics = &context.service.metrics;
    metrics.count(Counter::Update, update.statements.len() as u64);
    let mut op = context.op();
    let result = query::update(&mut op, &update.namespace, &update.request())?;
    metrics.documents_updated.fetch_add(result.n_modified, Ordering::Relaxed);
    let upserted = result.upserted.len() as u64;
    context.figures.matched = Some(result.n - upserted);
    context.figures.modified = Some(result.n_modified);
    context.figures.upserted = upserted;
    let reply = &mut context.reply;
    reply.number("n", result.n);
    if !result.upserted.is_empty() {
        let list = reply.begin_array("upserted");
        for (at, (index, id)) in result.upserted.iter().enumerate() {
            let one = reply.begin_element(at);
            reply.i32("index", *index as i32);
            reply.value("_id", id.as_raw_bson_ref());
            reply.end(one);
        }
        reply.end(list);
    }
    reply.number("nModified", result.n_modified);
    write_errors(context, &result.errors);
    Ok(())
}

fn explain(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let update = parse(context, fields)?;
    if update.statements.len() != 1 {
        return Err(one_only());
    }
    context.at_collection(&update.namespace);
    context.check_uuid(&update.namespace)?;
    let verbosity = verbosity_of(context);
    let mut op = context.op();
    let plan = query::explain_update(&mut op, &update.namespace, &update.request(), verbosity)?;
    write_explain(context, &plan);
    Ok(())
}

/// A batch is explained one statement at a time.
pub(crate) fn one_only() -> Error {
    Error::new(Code::INVALID_LENGTH, "explained write batches must be of size 1")
}

fn parse<'a>(context: &Context<'a>, fields: &[Field<'a>]) -> Result<Update<'a>> {
    let namespace = context.namespace(&fields[0])?;
    let mut updates = None;
    let mut ordered = true;
    let mut let_variables = None;
    for field in &fields[1..] {
        match field.name {
            "updates" => updates = Some(field),
            "ordered" => ordered = field.bool()?,
            "let" => let_variables = Some(field.document()?),
            "bypassDocumentValidation" | "bypassEmptyTsReplacement" => {
                field.bool()?;
            }
            "stmtId" | "stmtIds" => {}
            _ => return Err(field.unknown()),
        }
    }
    let batch = batch(context, updates, "updates")?;
    let mut statements = SmallVec::<[UpdateStatement<'_>; 1]>::with_capacity(batch.len());
    for document in &*batch {
        statements.push(parse_statement(document)?);
    }
    for statement in &statements {
        check_stage_names(context, statement.update)?;
    }
    Ok(Update { namespace, statements, ordered, let_variables })
}

/// A pipeline with a stage nobody knows fails the command, not only its statement.
fn check_stage_names(context: &Context<'_>, update: RawBsonRef<'_>) -> Result<()> {
    let RawBsonRef::Array(stages) = update else { return Ok(()) };
    let parse = PipelineContext::on_database(context.database(), ParseContext::default());
    match Pipeline::parse(stages, &parse) {
        Err(error) if error.code() == Code::location(40324) => Err(error),
        _ => Ok(()),
    }
}

fn parse_statement(document: &RawDocument) -> Result<UpdateStatement<'_>> {
    let mut statement = blank(document);
    let (mut filter, mut update) = (None, None);
    for field in inner_of(document, PLACE, &["q", "u", "multi", "upsert"]) {
        let field = field?;
        match field.name {
            "q" | "c" | "sort" | "multi" | "upsert" | "arrayFilters" | "collation"
                if field.is_null() => {}
            "q" => filter = Some(field.document()?),
            "u" => update = Some(field.value),
            "c" => statement.constants = Some(field.document()?),
            "sort" => statement.sort = Some(field.document()?),
            "sampleId" | "upsertSupplied" => {}
            _ => shared_field(&mut statement, &field)?,
        }
    }
    statement.filter = filter.ok_or_else(|| missing(PLACE, "q"))?;
    statement.update = update.ok_or_else(|| missing(PLACE, "u"))?;
    check_update_value(&statement)?;
    Ok(statement)
}

/// A statement that waits for its fields, the filter among them.
pub(crate) fn blank(document: &RawDocument) -> UpdateStatement<'_> {
    UpdateStatement {
        filter: document,
        update: RawBsonRef::Null,
        multi: false,
        upsert: false,
        array_filters: None,
        hint: None,
        collation: None,
        constants: None,
        sort: None,
        is_delta: false,
    }
}

/// Reads a field that has the same name in `bulkWrite`, and refuses what neither knows.
pub(crate) fn shared_field<'a>(
    statement: &mut UpdateStatement<'a>,
    field: &Field<'a>,
) -> Result<()> {
    match field.name {
        "multi" => statement.multi = field.strict_bool()?,
        "upsert" => statement.upsert = field.strict_bool()?,
        "arrayFilters" => {
            field.documents()?;
            statement.array_filters = Some(field.array()?);
        }
        "hint" => statement.hint = Some(field.hint()?),
        "collation" => statement.collation = Some(field.document()?),
        _ => return Err(field.unknown()),
    }
    Ok(())
}

/// Refuses what cannot be an update, and a sort that would choose among all.
pub(crate) fn check_update_value(statement: &UpdateStatement<'_>) -> Result<()> {
    if !matches!(statement.update, RawBsonRef::Document(_) | RawBsonRef::Array(_)) {
        return Err(Error::failed_to_parse("Update argument must be either an object or an array"));
    }
    if statement.multi && statement.sort.is_some() {
        return Err(Error::failed_to_parse("Cannot specify sort with multi=true"));
    }
    Ok(())
}
