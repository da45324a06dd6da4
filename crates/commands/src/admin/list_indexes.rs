//! `listIndexes`.

use super::is_a_view;
use super::list_collections::primary_spec;
use crate::batch::{CursorOptions, first_batch, parse_list_cursor};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use serverstate::Documents;

pub(crate) const LIST_INDEXES: Command = Command::new(
    "listIndexes",
    "The indexes of a collection.",
    Needs::CollectionOrUuid(&[Action::ListIndexes]),
    run,
)
.api_v1();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace_or_uuid(&fields[0], Action::ListIndexes)?;
    let mut build_uuids = false;
    let mut wanted = CursorOptions { batch_size: Some(u64::MAX), ..CursorOptions::default() };
    for field in &fields[1..] {
        match field.name {
            "cursor" => wanted = parse_list_cursor(field, "listIndexes.cursor")?,
            // An index that is being built is not listed, so there is nothing to tell.
            "includeBuildUUIDs" => build_uuids = field.bool()?,
            "includeIndexBuildInfo" => {
                if field.bool()? && build_uuids {
                    return Err(Error::new(
                        Code::INVALID_OPTIONS,
                        "The includeBuildUUIDs flag and includeIndexBuildInfo flag cannot both be \
                         set to true",
                    ));
                }
                if field.bool()? {
                    return Err(field.not_yet());
                }
            }
            _ => return Err(field.unknown()),
        }
    }
    context.at_collection(&namespace);
    context.check_uuid(&namespace)?;
    let catalog = &context.service.catalog;
    let collection = match context.txn() {
        Some(txn) => txn.collection(&namespace),
        None => catalog.collection(&namespace),
    };
    let collection = collection.ok_or_else(|| {
        Error::new(Code::NAMESPACE_NOT_FOUND, format!("ns does not exist: {namespace}"))
    })?;
    if collection.is_view() {
        return Err(is_a_view(&namespace));
    }
    let mut list = Vec::new();
    // Measurements are told apart by their time; the order of `_id` is not shown with them.
    if collection.options().time_series.is_none() {
        list.push(primary_spec(&collection));
    }
    list.extend(collection.shown_indexes().map(|index| index.spec().shown.clone()));
    first_batch(context, namespace.as_str(), Documents::list(list), None, &wanted)
}
