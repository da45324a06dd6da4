//! `idIndex`: the description of the index that every collection has, which it may only repeat. As `mongodump` of TokuMX
//! left it, it says the shape of the collection, too.

use super::invalid_type;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::types::option_integer;
use errors::{Code, Error, Result};
use indexkeys::values::truth;
use indexkeys::{IndexSpec, STORAGE_OPTIONS, StorageOptions};

/// Reads the option; its key can be no other than `{_id: 1}`. It is clustering where the collection has no other primary
/// key.
pub(super) fn parse(document: &RawDocument, is_clustering: bool) -> Result<IndexSpec> {
    let required = |name: &str| {
        Error::failed_to_parse(format!(
            "The '{name}' field is a required property of an index specification"
        ))
    };
    let key = match document.get("key")? {
        None => return Err(required("key")),
        Some(RawBsonRef::Document(key)) => key,
        Some(other) => return Err(invalid_type("create.idIndex.key", other, "object")),
    };
    match document.get("name")? {
        None => return Err(required("name")),
        Some(RawBsonRef::String(_)) => {}
        Some(other) => return Err(invalid_type("create.idIndex.name", other, "string")),
    }
    let mut plain = RawDocumentBuf::new();
    for element in document {
        let (name, value) = element?;
        match name.as_str() {
            "key" | "name" | "ns" | "collation" => plain.append(name, value),
            "v" => {
                check_version(value)?;
                plain.append(name, value);
            }
            "unique" if truth(value) => {}
            "clustering" if truth(value) == is_clustering => {}
            other if STORAGE_OPTIONS.contains(&other) => {}
            other => {
                return Err(Error::new(
                    Code::INVALID_INDEX_SPECIFICATION_OPTION,
                    format!("The field '{other}' is not valid for an _id index specification"),
                ));
            }
        }
    }
    let mut parts = key.iter().flatten();
    let on_id = matches!((parts.next(), parts.next()), (Some((path, order)), None)
        if path.as_str() == "_id" && bsonval::types::exact_integer(order) == Some(1));
    if !on_id {
        return Err(Error::bad_value(
            "The field 'key' for an _id index must be {_id: 1}, but got another key pattern",
        ));
    }
    IndexSpec::parse(&plain)
}

/// The shape that the description names: the collection's own, for `_id_` is the collection itself.
pub(super) fn storage(document: &RawDocument) -> Result<StorageOptions> {
    let mut storage = StorageOptions::default();
    for element in document {
        let (name, value) = element?;
        if STORAGE_OPTIONS.contains(&name.as_str()) {
            storage.take(name.as_str(), value)?;
        }
    }
    Ok(storage)
}

fn check_version(value: RawBsonRef<'_>) -> Result<()> {
    let Some(version) = option_integer(value) else {
        return Err(invalid_type("create.idIndex.v", value, "number"));
    };
    if bsonval::types::exact_integer(value).is_none() {
        return Err(Error::bad_value("Index version must be representable as a 32-bit integer"));
    }
    if !matches!(version, 1 | 2) {
        return Err(Error::new(
            Code::CANNOT_CREATE_INDEX,
            format!("Invalid index specification: cannot create an index with v={version}"),
        ));
    }
    Ok(())
}
