//! `find`.

use super::explain::{verbosity_of, write_explain};
use crate::aggregation::sources::find_as_pipeline;
use crate::batch::{CursorOptions, batch_of_one, first_batch, is_whole_in_batch};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawArray;
use catalog::Namespace;
use dispatch::fields::Field;
use dispatch::rules::Counter;
use errors::{Error, Result};
use query::{AggregateRequest, AggregateTarget, FindRequest, Found, OpContext, QueryCursor};
use serverstate::Documents;

pub(crate) const FIND: Command =
    Command::new("find", "Reads documents.", Needs::CollectionOrUuid(&[Action::Find]), run)
        .reads(Counter::Query)
        .api_v1()
        .explains(explain);

struct Find<'a> {
    namespace: Namespace,
    request: FindRequest<'a>,
    wanted: CursorOptions,
    tailable: bool,
    await_data: bool,
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut find = Find::of(context.namespace_or_uuid(&fields[0], Action::Find)?);
    find.parse(&fields[1..])?;
    context.at_collection(&find.namespace);
    context.check_uuid(&find.namespace)?;
    // The limit is applied once, here or below; below knows when to stop sorting.
    let limit = (find.request.limit > 0).then_some(find.request.limit);
    let pipeline = find_as_pipeline(context, &find.namespace, &find.request)?;
    let mut op = context.op();
    let found = match &pipeline {
        None if op.catalog.is_oplog(&find.namespace) => {
            Found::Rows(query::find_oplog(&op, &find.namespace, &find.request, find.tailable)?)
        }
        None if find.tailable => {
            Found::Rows(query::find_tailable(&mut op, &find.namespace, &find.request)?)
        }
        None => query::find(&mut op, &find.namespace, &find.request)?,
        Some(pipeline) => Found::Rows(over_server(&mut op, &find, pipeline)?),
    };
    let namespace = find.namespace.as_str();
    match found {
        Found::One(mut one) if is_whole_in_batch(limit, &find.wanted) => {
            batch_of_one(context, namespace, one.document()?)
        }
        found => {
            let documents = Documents::Query(found.into_cursor());
            first_batch(context, namespace, documents, limit, &find.wanted)
        }
    }
}

/// A find on documents that the server itself has.
fn over_server(
    op: &mut OpContext<'_>,
    find: &Find<'_>,
    pipeline: &RawArray,
) -> Result<QueryCursor> {
    let request = AggregateRequest {
        pipeline,
        let_variables: find.request.let_variables,
        hint: None,
        collation: find.request.collation,
        allow_disk_use: find.request.allow_disk_use,
    };
    let database = find.namespace.database().to_owned();
    query::aggregate(op, &AggregateTarget::Database(database), &request)
}

fn explain(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut find = Find::of(context.namespace_or_uuid(&fields[0], Action::Find)?);
    find.parse(&fields[1..])?;
    context.at_collection(&find.namespace);
    context.check_uuid(&find.namespace)?;
    let verbosity = verbosity_of(context);
    let mut op = context.op();
    let plan = if op.catalog.is_oplog(&find.namespace) {
        query::explain_oplog(&find.namespace, find.request.filter)?
    } else {
        query::explain_find(&mut op, &find.namespace, &find.request, verbosity)?
    };
    write_explain(context, &plan);
    Ok(())
}

impl<'a> Find<'a> {
    fn of(namespace: Namespace) -> Self {
        Self {
            namespace,
            request: FindRequest::default(),
            wanted: CursorOptions::default(),
            tailable: false,
            await_data: false,
        }
    }

    /// Takes the fields behind the name; filled in its place, as it is large.
    fn parse(&mut self, fields: &[Field<'a>]) -> Result<()> {
        for field in fields {
            parse_field(self, field)?;
        }
        if self.await_data && !self.tailable {
            return Err(Error::failed_to_parse(
                "Cannot set 'awaitData' without also setting 'tailable'",
            ));
        }
        if self.tailable && self.wanted.single_batch {
            return Err(Error::bad_value(
                "cannot use tailable option with the 'singleBatch' option",
            ));
        }
        self.wanted.await_data = self.await_data;
        Ok(())
    }
}

fn parse_field<'a>(find: &mut Find<'a>, field: &Field<'a>) -> Result<()> {
    let request = &mut find.request;
    match field.name {
        "filter" => request.filter = Some(field.document()?),
        "projection" => request.projection = Some(field.document()?),
        "sort" => request.sort = Some(field.document()?),
        "hint" => request.hint = Some(field.hint()?),
        "skip" => request.skip = field.non_negative()?,
        "limit" => request.limit = field.non_negative()?,
        "batchSize" => find.wanted.batch_size = Some(field.non_negative()?),
        "singleBatch" => find.wanted.single_batch = field.bool()?,
        "noCursorTimeout" => find.wanted.no_timeout = field.bool()?,
        "let" => request.let_variables = Some(field.document()?),
        "collation" => request.collation = Some(field.document()?),
        "min" => request.min = Some(field.document()?),
        "max" => request.max = Some(field.document()?),
        "returnKey" => request.return_key = field.bool()?,
        "showRecordId" => request.show_record_id = field.bool()?,
        "allowDiskUse" => request.allow_disk_use = Some(field.bool()?),
        "tailable" => find.tailable = field.bool()?,
        "awaitData" => find.await_data = field.bool()?,
        "allowPartialResults" | "oplogReplay" | "readOnce" => {
            field.bool()?;
        }
        "requestResumeToken" | "resumeAfter" | "startAt" => return Err(field.not_yet()),
        _ => return Err(field.unknown()),
    }
    Ok(())
}
