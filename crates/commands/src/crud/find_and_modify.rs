//! `findAndModify`.

use super::explain::{verbosity_of, write_explain};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::RawBsonRef;
use catalog::Namespace;
use dispatch::fields::Field;
use dispatch::rules::Counter;
use errors::{Error, Result};
use query::FindAndModifyRequest;
use std::sync::atomic::Ordering;

pub(crate) const FIND_AND_MODIFY: Command = Command::new(
    "findAndModify",
    "Changes or removes one document and returns it.",
    Needs::Computed(asks::find_and_modify),
    run,
)
.aliases(&["findandmodify"])
.writes(Counter::Command)
.api_v1()
.explains(explain);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (namespace, request) = parse(context, fields)?;
    context.at_collection(&namespace);
    let metrics = &context.service.metrics;
    let mut op = context.op();
    let result = query::find_and_modify(&mut op, &namespace, &request)?;
    match (request.remove, result.upserted.is_some()) {
        (true, _) => metrics.documents_deleted.fetch_add(result.n, Ordering::Relaxed),
        (false, true) => metrics.documents_inserted.fetch_add(1, Ordering::Relaxed),
        (false, false) => metrics.documents_updated.fetch_add(result.n, Ordering::Relaxed),
    };
    match (request.remove, result.upserted.is_some()) {
        (true, _) => context.figures.deleted = Some(result.n),
        (false, true) => context.figures.upserted = 1,
        (false, false) => context.figures.modified = Some(result.n),
    }
    context.figures.returned = Some(u64::from(result.value.is_some()));
    let reply = &mut context.reply;
    let last = reply.begin_document("lastErrorObject");
    reply.number("n", result.n);
    if let Some(existing) = result.updated_existing {
        reply.bool("updatedExisting", existing);
    }
    if let Some(id) = &result.upserted {
        reply.value("upserted", id.as_raw_bson_ref());
    }
    reply.end(last);
    match &result.value {
        Some(document) => reply.document("value", document),
        None => reply.value("value", RawBsonRef::Null),
    }
    Ok(())
}

fn explain(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (namespace, request) = parse(context, fields)?;
    context.at_collection(&namespace);
    let verbosity = verbosity_of(context);
    let mut op = context.op();
    let plan = query::explain_find_and_modify(&mut op, &namespace, &request, verbosity)?;
    write_explain(context, &plan);
    Ok(())
}

fn parse<'a>(
    context: &Context<'a>,
    fields: &[Field<'a>],
) -> Result<(Namespace, FindAndModifyRequest<'a>)> {
    let namespace = context.namespace(&fields[0])?;
    let mut request = FindAndModifyRequest::default();
    for field in &fields[1..] {
        parse_field(&mut request, field)?;
    }
    check(&request)?;
    Ok((namespace, request))
}

fn parse_field<'a>(request: &mut FindAndModifyRequest<'a>, field: &Field<'a>) -> Result<()> {
    match field.name {
        "remove" => request.remove = field.bool()?,
        "new" => request.return_new = field.bool()?,
        "upsert" => request.upsert = field.bool()?,
        "bypassDocumentValidation" | "bypassEmptyTsReplacement" => {
            field.bool()?;
        }
        "query" | "sort" | "fields" | "update" | "hint" if field.is_null() => {}
        "query" => request.filter = Some(field.document()?),
        "sort" => request.sort = Some(field.document()?),
        "fields" => request.projection = Some(field.document()?),
        "update" => {
            if !matches!(field.value, RawBsonRef::Document(_) | RawBsonRef::Array(_)) {
                return Err(Error::failed_to_parse(
                    "Update argument must be either an object or an array",
                ));
            }
            request.update = Some(field.value);
        }
        "arrayFilters" => {
            field.documents()?;
            request.array_filters = Some(field.array()?);
        }
        "hint" => request.hint = Some(field.hint()?),
        "collation" => request.collation = Some(field.document()?),
        "let" => request.let_variables = Some(field.document()?),
        "stmtId" => {}
        _ => return Err(field.unknown()),
    }
    Ok(())
}

fn check(request: &FindAndModifyRequest<'_>) -> Result<()> {
    let refusal = if request.remove {
        if request.update.is_some() {
            Some("Cannot specify both an update and remove=true")
        } else if request.upsert {
            Some("Cannot specify both upsert=true and remove=true ")
        } else if request.return_new {
            Some(
                "Cannot specify both new=true and remove=true; 'remove' always returns the \
                 deleted document",
            )
        } else if request.array_filters.is_some() {
            Some("Cannot specify arrayFilters and remove=true")
        } else {
            None
        }
    } else if request.update.is_none() {
        Some("Either an update or remove=true must be specified")
    } else {
        None
    };
    refusal.map_or(Ok(()), |text| Err(Error::failed_to_parse(text)))
}
