//! `aggregate`, on a collection or on a database.

use super::hand_on;
use super::sources::with_server_source;
use crate::batch::{CursorOptions, first_batch};
use crate::command::Command;
use crate::context::Context;
use crate::crud::explain::{verbosity_of, write_explain};
use crate::needs::Needs;
use crate::security::asks;
use bson::{RawArray, RawBsonRef, RawDocument};
use dispatch::fields::{Field, inner, missing};
use dispatch::read_concern::Level;
use dispatch::rules::Counter;
use errors::{Code, Error, Result};
use query::{AggregateRequest, AggregateTarget, Verbosity};
use serverstate::Documents;

pub(crate) const AGGREGATE: Command =
    Command::new("aggregate", "Runs a pipeline.", Needs::Computed(asks::aggregate), run)
        .reads(Counter::Command)
        .write_concern()
        .api_v1()
        .explains(explain);

struct Aggregate<'a> {
    target: AggregateTarget,
    namespace: String,
    request: AggregateRequest<'a>,
    cursor: bool,
    explain: bool,
    batch_size: Option<u64>,
}

fn run<'a>(context: &mut Context<'a>, fields: &[Field<'a>]) -> Result<()> {
    let aggregate = parse(context, fields)?;
    if aggregate.explain {
        context.verbosity = Verbosity::QueryPlanner;
        return write_plan(context, &aggregate);
    }
    if !aggregate.cursor {
        return Err(Error::failed_to_parse(
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    }
    let written_by = written_by(aggregate.request.pipeline)?;
    let writes = written_by.is_some();
    if context.arguments.read_concern.level == Some(Level::Linearizable)
        && let Some(stage) = written_by
    {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            format!("{stage} cannot be used with a 'linearizable' read concern level"),
        ));
    }
    if writes && hand_on::is_secondary(context) {
        return hand_on::to_primary(context);
    }
    let replaced = with_server_source(context, &aggregate.target, aggregate.request.pipeline)?;
    let (mut request, mut target) = (aggregate.request, aggregate.target);
    if let Some(pipeline) = &replaced {
        request.pipeline = pipeline;
        // The documents are the server's: whatever collection was named, none is read.
        target = AggregateTarget::Database(context.database().to_owned());
    }
    check_stream_concern(context, request.pipeline)?;
    let mut op = context.op();
    let cursor = query::aggregate(&mut op, &target, &request)?;
    let await_data = cursor.is_change_stream();
    // What is written is acknowledged by this command's write concern, and not left to a getMore, which has none.
    let batch_size = aggregate.batch_size.filter(|_| !writes);
    let wanted = CursorOptions { batch_size, await_data, ..CursorOptions::default() };
    first_batch(context, &aggregate.namespace, Documents::Query(cursor), None, &wanted)
}

/// A change stream tells of what a majority has.
fn check_stream_concern(context: &Context<'_>, pipeline: &RawArray) -> Result<()> {
    let level = context.arguments.read_concern.level;
    let Some(RawBsonRef::Document(first)) = pipeline.into_iter().next().transpose()? else {
        return Ok(());
    };
    if first.get("$changeStream")?.is_none() || matches!(level, None | Some(Level::Majority)) {
        return Ok(());
    }
    Err(Error::new(
        Code::INVALID_OPTIONS,
        "$changeStream cannot run with a readConcern other than 'majority'",
    ))
}

/// The stage of a pipeline that writes, where it has one.
fn written_by(pipeline: &RawArray) -> Result<Option<&'static str>> {
    for stage in pipeline {
        if let RawBsonRef::Document(stage) = stage? {
            for name in ["$out", "$merge"] {
                if stage.get(name)?.is_some() {
                    return Ok(Some(name));
                }
            }
        }
    }
    Ok(None)
}

fn explain<'a>(context: &mut Context<'a>, fields: &[Field<'a>]) -> Result<()> {
    let aggregate = parse(context, fields)?;
    write_plan(context, &aggregate)
}

fn write_plan(context: &mut Context<'_>, aggregate: &Aggregate<'_>) -> Result<()> {
    let verbosity = verbosity_of(context);
    let mut op = context.op();
    let plan = query::explain_aggregate(&mut op, &aggregate.target, &aggregate.request, verbosity)?;
    write_explain(context, &plan);
    Ok(())
}

fn parse<'a>(context: &mut Context<'a>, fields: &[Field<'a>]) -> Result<Aggregate<'a>> {
    let (target, namespace) = parse_target(context, &fields[0])?;
    let mut pipeline = None;
    let mut aggregate = Aggregate {
        target,
        namespace,
        request: AggregateRequest {
            pipeline: empty(),
            let_variables: None,
            hint: None,
            collation: None,
            allow_disk_use: None,
        },
        cursor: false,
        explain: false,
        batch_size: None,
    };
    for field in &fields[1..] {
        match field.name {
            "pipeline" => pipeline = Some(parse_pipeline(context, field)?),
            "cursor" => {
                aggregate.cursor = true;
                aggregate.batch_size = parse_cursor(field)?;
            }
            "explain" => aggregate.explain = field.bool()?,
            "let" => aggregate.request.let_variables = Some(field.document()?),
            "hint" => aggregate.request.hint = Some(field.hint()?),
            "collation" => aggregate.request.collation = Some(field.document()?),
            "allowDiskUse" => aggregate.request.allow_disk_use = Some(field.strict_bool()?),
            "bypassDocumentValidation" | "bypassEmptyTsReplacement" => {
                field.bool()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    aggregate.request.pipeline = pipeline.ok_or_else(|| missing("aggregate", "pipeline"))?;
    Ok(aggregate)
}

fn empty() -> &'static RawArray {
    static EMPTY: std::sync::LazyLock<bson::RawArrayBuf> =
        std::sync::LazyLock::new(bson::RawArrayBuf::new);
    &EMPTY
}

fn parse_target(context: &mut Context<'_>, field: &Field<'_>) -> Result<(AggregateTarget, String)> {
    if let RawBsonRef::String(_) = field.value {
        let namespace = context.namespace(field)?;
        context.at_collection(&namespace);
        context.check_uuid(&namespace)?;
        let name = namespace.as_str().to_owned();
        return Ok((AggregateTarget::Collection(namespace), name));
    }
    if dispatch::fields::as_i64(field.value) != Some(1) {
        return Err(Error::failed_to_parse(
            "Invalid command format: the 'aggregate' field must specify a collection name or 1",
        ));
    }
    if context.arguments.collection_uuid.is_some() {
        return Err(Error::location(
            4_928_901,
            "collectionUUID is not supported with collectionless aggregation",
        ));
    }
    let database = context.database();
    catalog::check_database(database)?;
    context.connection.operation.set_namespace(&format!("{database}.$cmd.aggregate").into());
    let name = format!("{database}.$cmd.aggregate");
    Ok((AggregateTarget::Database(database.to_owned()), name))
}

/// Stages that API version 1 leaves out.
const NOT_IN_API_V1: [&str; 6] = [
    "$currentOp",
    "$indexStats",
    "$listLocalSessions",
    "$listSessions",
    "$planCacheStats",
    "$search",
];

fn parse_pipeline<'a>(context: &Context<'a>, field: &Field<'a>) -> Result<&'a RawArray> {
    let RawBsonRef::Array(pipeline) = field.value else {
        return Err(Error::type_mismatch("'pipeline' option must be specified as an array"));
    };
    for stage in pipeline {
        let RawBsonRef::Document(stage) = stage? else {
            return Err(Error::type_mismatch(
                "Each element of the 'pipeline' array must be an object",
            ));
        };
        if context.arguments.is_strict() {
            check_strict(stage)?;
        }
    }
    Ok(pipeline)
}

fn check_strict(stage: &RawDocument) -> Result<()> {
    match stage.iter_elements().next() {
        Some(Ok(element)) if NOT_IN_API_V1.contains(&element.key().as_str()) => Err(Error::new(
            Code::API_STRICT_ERROR,
            format!(
                "stage {} is not allowed with 'apiStrict: true' in API Version 1",
                element.key().as_str()
            ),
        )),
        _ => Ok(()),
    }
}

fn parse_cursor(field: &Field<'_>) -> Result<Option<u64>> {
    let RawBsonRef::Document(cursor) = field.value else {
        return Err(Error::type_mismatch("cursor field must be missing or an object"));
    };
    let mut batch_size = None;
    for part in inner(cursor, "cursor") {
        let part = part?;
        match part.name {
            "batchSize" => batch_size = Some(part.non_negative()?),
            _ => {
                return Err(Error::location(
                    40415,
                    format!("BSON field 'cursor.{}' is an unknown field.", part.name),
                ));
            }
        }
    }
    Ok(batch_size)
}
