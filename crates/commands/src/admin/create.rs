//! `create`: a collection or a view.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::raw::RawBsonRef;
use bson::{RawArray, Uuid};
use catalog::{CollectionOptions, Namespace};
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use indexkeys::{IndexSpec, same_pattern};
use matcher::ParseContext;
use pipeline::{Pipeline, PipelineContext};

pub(crate) const CREATE: Command =
    Command::new("create", "Makes a collection or a view.", Needs::Computed(asks::create), run)
        .api_v1()
        .write_concern();

/// The types of its fields stand in the table of arguments; which of them can be honoured together
/// is [`CollectionOptions`]'s to know.
fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    make(context, fields, None)
}

/// Makes it, under the UUID that it has elsewhere where one is given.
pub(crate) fn make(
    context: &mut Context<'_>,
    fields: &[Field<'_>],
    uuid: Option<Uuid>,
) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let options = CollectionOptions::parse(context.body)?;
    check_expiry(context, options.expire_after_seconds)?;
    if namespace.is_buckets() && options.time_series.is_none() {
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            format!("Cannot create {namespace} without the 'timeseries' option"),
        ));
    }
    context.at_collection(&namespace);
    if let Some(view) = &options.view {
        check_view_pipeline(&namespace, &view.pipeline)?;
    }
    let catalog = &context.service.catalog;
    let interrupt = context.interrupt();
    if let Some(txn) = context.txn() {
        txn.create_collection(&namespace, &options)?;
    } else {
        let check = || interrupt.check();
        match catalog.create_collection_as(&namespace, &options, uuid, &check) {
            Err(error) if error.code() == Code::NAMESPACE_EXISTS && uuid.is_none() => {
                return is_the_same(context, &namespace, &options, error);
            }
            created => created.map(drop)?,
        }
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
    if let Some(note) = indexkeys::substitution(context.body) {
        context.reply.str("note", &note);
    }
    Ok(())
}

/// Documents cannot live longer than time has been counted, since 1970: MongoDB's bound.
pub(super) fn check_expiry(context: &Context<'_>, seconds: Option<i64>) -> Result<()> {
    let now = context.service.os.clock.wall_ms() / 1000;
    match seconds {
        Some(seconds) if seconds > now => Err(Error::new(
            Code::INVALID_OPTIONS,
            format!("expireAfterSeconds must be within the range of 0 to {now}, got {seconds}"),
        )),
        _ => Ok(()),
    }
}

/// Making what is there already, with the same options, is no error: so a client may ask twice.
fn is_the_same(
    context: &Context<'_>,
    namespace: &Namespace,
    options: &CollectionOptions,
    exists: Error,
) -> Result<()> {
    let Some(existing) = context.service.catalog.newest(namespace) else {
        return Err(exists);
    };
    if same_pattern(&existing.options().shown, &options.shown) {
        return Ok(());
    }
    let shown = bson::Document::try_from(&*existing.options().shown).unwrap_or_default();
    Err(Error::new(
        Code::NAMESPACE_EXISTS,
        format!("namespace {namespace} already exists, but with different options: {shown}"),
    ))
}

/// Refuses a view whose pipeline could not run.
pub(super) fn check_view_pipeline(namespace: &Namespace, stages: &RawArray) -> Result<()> {
    for (at, stage) in stages.into_iter().enumerate() {
        let RawBsonRef::Document(stage) = stage? else { continue };
        let Some(Ok((name, _))) = stage.iter().next() else { continue };
        let name = name.as_str();
        match name {
            "$out" | "$merge" => {
                return Err(Error::new(
                    Code::OPTION_NOT_SUPPORTED_ON_VIEW,
                    format!(
                        "The aggregation stage {name} in location {at} of the pipeline cannot be \
                         used in the view definition of {namespace}"
                    ),
                ));
            }
            "$changeStream" | "$changeStreamSplitLargeEvent" => {
                return Err(Error::new(
                    Code::OPTION_NOT_SUPPORTED_ON_VIEW,
                    format!("{name} cannot be used in the view definition of {namespace}"),
                ));
            }
            // They ask the server, which no collection has.
            "$currentOp"
            | "$listLocalSessions"
            | "$listSessions"
            | "$documents"
            | "$listClusterCatalog"
            | "$queryStats" => {
                return Err(Error::new(
                    Code::INVALID_NAMESPACE,
                    format!("{name} cannot be used in the view definition of {namespace}"),
                ));
            }
            _ => {}
        }
    }
    let place = pipeline::CollectionName {
        database: namespace.database().to_owned(),
        collection: namespace.collection().to_owned(),
    };
    let parse = ParseContext { text: true, ..ParseContext::default() };
    Pipeline::parse(stages, &PipelineContext::new(&place, parse)).map(drop)
}
