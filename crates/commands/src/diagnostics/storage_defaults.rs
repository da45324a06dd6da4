//! The parameters `defaultCompression`, `defaultPageSize`, `defaultReadPageSize` and `defaultFanout`:
//! the storage shape of collections and indexes that are created without one.
//!
//! Always true: they change nothing that exists, and last until the server ends.

use bson::Bson;
use dispatch::fields::Field;
use engine::DictionaryOptions;
use errors::{Error, Result};
use indexkeys::StorageOptions;
use serverstate::ServerState;

/// The parameters' names.
pub(crate) const NAMES: [&str; 4] =
    ["defaultCompression", "defaultFanout", "defaultPageSize", "defaultReadPageSize"];

/// The storage option a parameter is the default of.
fn option(parameter: &str) -> Option<&'static str> {
    indexkeys::STORAGE_OPTIONS.into_iter().find(|option| {
        parameter.strip_prefix("default").is_some_and(|name| name.eq_ignore_ascii_case(option))
    })
}

/// A parameter's value: what was set, else the engine's own.
pub(crate) fn read(service: &ServerState, parameter: &str) -> Bson {
    let set = service.catalog.storage_defaults();
    let own = DictionaryOptions::default();
    match option(parameter) {
        Some("compression") => {
            let set = set.compression.map(indexkeys::compression_name);
            Bson::String(set.unwrap_or_else(|| catalog::compression_name(own.compression)))
        }
        Some("pageSize") => Bson::Int64(i64::from(set.page_size.unwrap_or(own.page_size))),
        Some("readPageSize") => {
            Bson::Int64(i64::from(set.read_page_size.unwrap_or(own.read_page_size)))
        }
        _ => Bson::Int32(i32::from(set.fanout.unwrap_or(own.fanout))),
    }
}

/// Whether a parameter would take this value; it is refused as it would be in `create`.
pub(crate) fn check(service: &ServerState, field: &Field<'_>) -> Result<()> {
    changed(service, field).map(drop)
}

/// Changes a parameter.
pub(crate) fn set(service: &ServerState, field: &Field<'_>) -> Result<()> {
    service.catalog.set_storage_defaults(changed(service, field)?);
    Ok(())
}

fn changed(service: &ServerState, field: &Field<'_>) -> Result<StorageOptions> {
    let mut defaults = service.catalog.storage_defaults();
    let taken = match option(field.name) {
        Some(option) => defaults.take(option, field.value)?,
        None => false,
    };
    if !taken {
        return Err(Error::bad_value(format!("no storage option behind {}", field.name)));
    }
    Ok(defaults)
}
