//! Documents that the server itself has: those of the first stages `$currentOp`,
//! `$listLocalSessions` and `$listSessions`, and of the collections `config.transactions` and, in a set of several,
//! `local.system.replset`.
//!
//! The documents are put in front of the pipeline as a `$documents` stage, so that all that
//! follows runs as over any other source.

use crate::context::Context;
use crate::not_stored::collection;
use bson::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use catalog::Namespace;
use dispatch::fields::{Field, inner};
use dispatch::writer::Writer;
use errors::{Code, Error, Result};
use query::{AggregateTarget, CountRequest, FindRequest};
use serverstate::current_ops::{Idle, operations};

/// A count on a collection that is stored in another form, as a pipeline on the database: of one document with `n`, or none.
pub(crate) fn count_as_pipeline(
    context: &Context<'_>,
    namespace: &Namespace,
    count: &CountRequest<'_>,
) -> Result<Option<RawArrayBuf>> {
    let (filter, skip, limit, hint) = (count.filter, count.skip, count.limit, count.hint);
    let find = FindRequest { filter, skip, limit, hint, ..FindRequest::default() };
    let Some(mut stages) = find_as_pipeline(context, namespace, &find)? else { return Ok(None) };
    let mut writer = Writer::new();
    writer.str("$count", "n");
    stages.push(writer.finish());
    Ok(Some(stages))
}

/// A find on a collection that is stored in another form, as a pipeline on the database.
pub(crate) fn find_as_pipeline(
    context: &Context<'_>,
    namespace: &Namespace,
    find: &FindRequest<'_>,
) -> Result<Option<RawArrayBuf>> {
    let Some(documents) = collection(context, namespace)? else { return Ok(None) };
    if find.hint.is_some() || find.min.is_some() || find.max.is_some() || find.return_key {
        return Err(Error::bad_value(format!("{namespace} has no index to use")));
    }
    let mut stages = RawArrayBuf::new();
    stages.push(documents_stage(&documents));
    let mut push = |name: &str, value: RawBsonRef<'_>| {
        let mut writer = Writer::new();
        writer.value(name, value);
        stages.push(writer.finish());
    };
    let not_empty = |document: &&RawDocument| !document.is_empty();
    if let Some(filter) = find.filter.filter(not_empty) {
        push("$match", RawBsonRef::Document(filter));
    }
    if let Some(sort) = find.sort.filter(not_empty) {
        push("$sort", RawBsonRef::Document(sort));
    }
    if find.skip > 0 {
        push("$skip", RawBsonRef::Int64(find.skip as i64));
    }
    if find.limit > 0 {
        push("$limit", RawBsonRef::Int64(find.limit as i64));
    }
    if let Some(projection) = find.projection.filter(not_empty) {
        push("$project", RawBsonRef::Document(projection));
    }
    Ok(Some(stages))
}

/// The pipeline with its first stage made into documents, where the server is the source.
pub(super) fn with_server_source(
    context: &Context<'_>,
    target: &AggregateTarget,
    pipeline: &RawArray,
) -> Result<Option<RawArrayBuf>> {
    if let AggregateTarget::Collection(namespace) = target
        && !asks_for_stats(pipeline)
        && let Some(documents) = collection(context, namespace)?
    {
        return behind(&documents, pipeline, 0).map(Some);
    }
    let Some(first) = pipeline.into_iter().next() else { return Ok(None) };
    let RawBsonRef::Document(stage) = first? else { return Ok(None) };
    let Some(element) = stage.iter().next() else { return Ok(None) };
    let (name, value) = element?;
    let field = Field { place: "aggregate", name: name.as_str(), value };
    let documents = match field.name {
        "$currentOp" => {
            let AggregateTarget::Database(database) = target else { return Err(not_here(&field)) };
            if database != "admin" {
                return Err(Error::new(
                    Code::INVALID_NAMESPACE,
                    "$currentOp must be run against the 'admin' database with {aggregate: 1}",
                ));
            }
            current_op(context, &field)?
        }
        "$listLocalSessions" => {
            if matches!(target, AggregateTarget::Collection(_)) {
                return Err(not_here(&field));
            }
            sessions(context, &field)?
        }
        "$listSessions" => {
            let named = match target {
                AggregateTarget::Collection(ns) => ns.as_str(),
                AggregateTarget::Database(_) => "",
            };
            if named != "config.system.sessions" {
                return Err(Error::new(
                    Code::INVALID_NAMESPACE,
                    "$listSessions may only be run against config.system.sessions",
                ));
            }
            sessions(context, &field)?
        }
        _ => match super::catalog_sources::documents(context, target, &field)? {
            Some(documents) => documents,
            None => return Ok(None),
        },
    };
    behind(&documents, pipeline, 1).map(Some)
}

/// Whether a pipeline begins with what is told of a collection, and not with its documents.
fn asks_for_stats(pipeline: &RawArray) -> bool {
    let first = pipeline.into_iter().next();
    let Some(Ok(RawBsonRef::Document(stage))) = first else { return false };
    stage.iter().flatten().next().is_some_and(|(name, _)| name.as_str() == "$collStats")
}

/// The pipeline from a stage on, over these documents.
fn behind(documents: &[RawDocumentBuf], pipeline: &RawArray, from: usize) -> Result<RawArrayBuf> {
    let mut stages = RawArrayBuf::new();
    stages.push(documents_stage(documents));
    for stage in pipeline.into_iter().skip(from) {
        stages.push(stage?);
    }
    Ok(stages)
}

fn not_here(field: &Field<'_>) -> Error {
    Error::new(
        Code::INVALID_NAMESPACE,
        format!("{} must be run against a database with {{aggregate: 1}}", field.name),
    )
}

fn current_op(context: &Context<'_>, field: &Field<'_>) -> Result<Vec<RawDocumentBuf>> {
    let RawBsonRef::Document(options) = field.value else {
        return Err(Error::failed_to_parse(
            "$currentOp options must be specified in an object, but found: a value of another type",
        ));
    };
    let mut idle = Idle { connections: false, sessions: true, user: None };
    let mut all_users = false;
    for option in inner(options, "$currentOp") {
        let option = option?;
        match option.name {
            "allUsers" => all_users = option.strict_bool()?,
            "localOps" | "idleCursors" | "truncateOps" | "backtrace" => {
                option.strict_bool()?;
            }
            "idleSessions" => idle.sessions = option.strict_bool()?,
            "idleConnections" => idle.connections = option.strict_bool()?,
            _ => {
                return Err(Error::failed_to_parse(format!(
                    "Unrecognized option '{}' in $currentOp stage.",
                    option.name
                )));
            }
        }
    }
    if context.admitted.is_access_control_on && !all_users {
        idle.user = Some(context.admitted.digest());
    }
    Ok(operations(context.service, idle))
}

fn sessions(context: &Context<'_>, field: &Field<'_>) -> Result<Vec<RawDocumentBuf>> {
    let options = field.document()?;
    // The gate has judged who may see others'.
    let everybody = !context.admitted.is_access_control_on
        || !matches!(options.get("allUsers")?, None | Some(RawBsonRef::Boolean(false)))
        || options.get("users")?.is_some();
    let own = context.admitted.digest();
    let now = context.now();
    let wall = context.service.os.clock.wall_ms();
    let describe = |session: &session::SessionInfo| {
        let mut writer = Writer::new();
        let id = writer.begin_document("_id");
        writer.uuid("id", &session.id.id);
        writer.binary("uid", &session.id.user.0);
        writer.end(id);
        let idle = now.saturating_sub(session.last_use).as_millis() as i64;
        writer.date("lastUse", wall - idle);
        writer.finish()
    };
    let shown = context.service.sessions.list();
    Ok(shown.iter().filter(|session| everybody || session.id.user == own).map(describe).collect())
}

/// `{$documents: [{$literal: …}, …]}`: literal, so that no text in them is taken for a path.
fn documents_stage(documents: &[RawDocumentBuf]) -> RawDocumentBuf {
    let mut writer = Writer::new();
    let list = writer.begin_array("$documents");
    for (at, document) in documents.iter().enumerate() {
        let one = writer.begin_element(at);
        writer.document("$literal", document);
        writer.end(one);
    }
    writer.end(list);
    writer.finish()
}
