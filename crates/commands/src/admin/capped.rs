//! What can be done to a capped collection beside its use: made of another, copied, emptied.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use auth::Action;
use catalog::Namespace;
use dispatch::fields::{Field, as_i64};
use errors::{Code, Error, Result};
use std::sync::atomic::Ordering;

pub(crate) const CONVERT_TO_CAPPED: Command = Command::new(
    "convertToCapped",
    "Makes a collection capped.",
    Needs::Collection(&[Action::ConvertToCapped]),
    convert,
)
.write_concern();

pub(crate) const CLONE_AS_CAPPED: Command = Command::new(
    "cloneCollectionAsCapped",
    "Copies the end of a collection into a new capped one.",
    Needs::Computed(asks::clone_as_capped),
    clone,
)
.write_concern();

pub(crate) const EMPTY_CAPPED: Command = Command::new(
    "emptycapped",
    "Empties a capped collection (test commands only).",
    Needs::Collection(&[Action::Emptycapped]),
    empty,
)
.write_concern();

fn convert(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let size = positive_size(fields)?;
    refuse_series(context, &namespace, "convertToCapped")?;
    context.at_collection(&namespace);
    let check = || context.check_interrupt();
    context.service.catalog.convert_to_capped(&namespace, size, &check)
}

fn clone(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let from = context.opened(Namespace::new(context.database(), fields[0].str()?)?)?;
    // One that is not there is of the wrong type too, in MongoDB's eyes.
    let to = find(fields, "toCollection").map_or(Ok(None), |field| field.str().map(Some))?;
    let to = to.ok_or_else(|| {
        Error::type_mismatch("\"toCollection\" had the wrong type. Expected string, found missing")
    })?;
    let to = context.opened(Namespace::new(context.database(), to)?)?;
    let size = positive_size(fields)?;
    let catalog = &context.service.catalog;
    if from.is_buckets() || to.is_buckets() {
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "cloneCollectionAsCapped does not work on the buckets of a time-series collection",
        ));
    }
    for namespace in [&from, &to] {
        if catalog.collection(namespace).is_some_and(|c| c.is_view()) {
            return Err(super::is_a_view(namespace));
        }
    }
    refuse_series(context, &from, "cloneCollectionAsCapped")?;
    context.at_collection(&from);
    let check = || context.check_interrupt();
    context.service.catalog.clone_as_capped(&from, &to, size, &check)
}

fn find<'a, 'b>(fields: &'b [Field<'a>], name: &str) -> Option<&'b Field<'a>> {
    fields[1..].iter().find(|field| field.name == name)
}

/// `size`: MongoDB has one refusal for whatever is no number above zero.
fn positive_size(fields: &[Field<'_>]) -> Result<i64> {
    let size = find(fields, "size").and_then(|field| as_i64(field.value));
    size.filter(|size| *size > 0).ok_or_else(|| {
        Error::new(Code::INVALID_OPTIONS, "Capped collection size must be greater than zero")
    })
}

/// Measurements lie behind a view in MongoDB, which answers as for one.
fn refuse_series(context: &Context<'_>, namespace: &Namespace, command: &str) -> Result<()> {
    let found = context.service.catalog.collection(namespace);
    if found.is_some_and(|collection| collection.options().time_series.is_some()) {
        return Err(Error::new(
            Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
            format!("{command} is not supported on a time-series collection: {namespace}"),
        ));
    }
    Ok(())
}

fn empty(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if !context.service.test_commands.load(Ordering::Relaxed) {
        return Err(Error::new(Code::COMMAND_NOT_FOUND, "no such command: 'emptycapped'"));
    }
    let namespace = context.namespace(&fields[0])?;
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    context.at_collection(&namespace);
    context.service.catalog.empty_capped(&namespace)
}
