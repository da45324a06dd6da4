//! `count`.

use super::explain::{verbosity_of, write_explain};
use crate::aggregation::sources::count_as_pipeline;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawArray;
use catalog::Namespace;
use dispatch::fields::{Field, as_i64};
use dispatch::rules::Counter;
use errors::{Error, Result};
use query::{AggregateRequest, AggregateTarget, CountRequest, OpContext};

pub(crate) const COUNT: Command =
    Command::new("count", "Counts documents.", Needs::CollectionOrUuid(&[Action::Find]), run)
        .reads(Counter::Command)
        .api_v1()
        .explains(explain);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (namespace, request) = parse(context, fields)?;
    context.at_collection(&namespace);
    context.check_uuid(&namespace)?;
    let pipeline = count_as_pipeline(context, &namespace, &request)?;
    let mut op = context.op();
    let n = match &pipeline {
        Some(pipeline) => over_server(&mut op, &namespace, &request, pipeline)?,
        None if op.catalog.is_oplog(&namespace) => query::count_oplog(&op, &namespace, &request)?,
        None => query::count(&mut op, &namespace, &request)?,
    };
    context.reply.number("n", u64::try_from(n).unwrap_or(0));
    Ok(())
}

/// A count of documents that the server itself has.
fn over_server(
    op: &mut OpContext<'_>,
    namespace: &Namespace,
    count: &CountRequest<'_>,
    pipeline: &RawArray,
) -> Result<i64> {
    let request = AggregateRequest {
        pipeline,
        let_variables: None,
        hint: None,
        collation: count.collation,
        allow_disk_use: None,
    };
    let database = namespace.database().to_owned();
    let mut rows = query::aggregate(op, &AggregateTarget::Database(database), &request)?;
    let counted = rows.next()?.map(|row| row.get("n")).transpose()?.flatten();
    Ok(counted.and_then(as_i64).unwrap_or(0))
}

fn explain(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (namespace, request) = parse(context, fields)?;
    context.at_collection(&namespace);
    context.check_uuid(&namespace)?;
    let verbosity = verbosity_of(context);
    let mut op = context.op();
    let plan = if op.catalog.is_oplog(&namespace) {
        query::explain_oplog(&namespace, request.filter)?
    } else {
        query::explain_count(&mut op, &namespace, &request, verbosity)?
    };
    write_explain(context, &plan);
    Ok(())
}

fn parse<'a>(
    context: &mut Context<'_>,
    fields: &[Field<'a>],
) -> Result<(Namespace, CountRequest<'a>)> {
    let namespace = context.namespace_or_uuid(&fields[0], Action::Find)?;
    let mut request = CountRequest::default();
    for field in &fields[1..] {
        match field.name {
            _ if field.is_null() => {}
            "query" => request.filter = Some(field.document()?),
            "skip" => request.skip = field.non_negative()?,
            // A negative limit is a limit: old shells sent it so.
            "limit" => match field.i64()? {
                i64::MIN => {
                    return Err(Error::bad_value(
                        "Limit value for count cannot be min long: -9223372036854775808",
                    ));
                }
                limit => request.limit = limit.unsigned_abs(),
            },
            "hint" => request.hint = Some(field.hint()?),
            "collation" => request.collation = Some(field.document()?),
            "fields" => {
                field.document()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    Ok((namespace, request))
}
