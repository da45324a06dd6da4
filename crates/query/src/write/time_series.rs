//! What may be changed of measurements: the field that names their source, of all of a source at
//! once. Whatever else is refused with `InvalidOptions`, as MongoDB refuses it.

use super::apply::Change;
use crate::request::UpdateStatement;
use bsonval::Path;
use bsonval::path::Component;
use catalog::{Collection, TimeSeries};
use errors::{Code, Error, Result};
use matcher::Filter;

/// Checks an update statement against what its collection is; others than of measurements pass.
pub(super) fn check_update(
    collection: Option<&Collection>,
    statement: &UpdateStatement<'_>,
    filter: &Filter,
    change: &Change,
) -> Result<()> {
    let Some(series) = collection.and_then(|c| c.options().time_series.as_ref()) else {
        return Ok(());
    };
    let what = if !statement.multi {
        "Cannot perform a non-multi update on a time-series collection"
    } else if statement.upsert {
        "Cannot perform an upsert on a time-series collection"
    } else if series.meta_field.is_none() {
        "Cannot perform an update on a time-series collection that does not have a metaField"
    } else if !filter.expressions().is_empty() || !filter.paths().iter().all(|p| is_meta(series, p))
    {
        "Cannot perform an update on a time-series collection when querying on a field that is not \
         the metaField"
    } else if !change.touched().is_some_and(|paths| paths.iter().all(|path| is_meta(series, path)))
    {
        "Cannot perform an update on a time-series collection that updates a field that is not the \
         metaField"
    } else {
        return Ok(());
    };
    Err(Error::new(Code::INVALID_OPTIONS, what))
}

/// Refuses a findAndModify that changes a measurement.
pub(super) fn check_find_and_modify(collection: Option<&Collection>, remove: bool) -> Result<()> {
    match collection {
        Some(collection) if collection.options().time_series.is_some() && !remove => {
            Err(Error::new(
                Code::INVALID_OPTIONS,
                "Cannot perform a findAndModify that updates on a time-series collection",
            ))
        }
        _ => Ok(()),
    }
}

/// Whether a path is the meta field or below it.
fn is_meta(series: &TimeSeries, path: &Path) -> bool {
    path.components().first().map(Component::name) == series.meta_field.as_deref()
}
