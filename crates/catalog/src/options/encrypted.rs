//! `encryptedFields`: read, so that what is wrong with it is said, and then refused.
//!
//! Always true: no collection has encrypted fields; queryable encryption is not built.

use super::invalid_type;
use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use errors::{Code, Error, Result};

/// What else the collection is to be.
pub(super) struct Beside {
    pub(super) capped: bool,
    /// A view or a collection of measurements.
    pub(super) view_or_series: bool,
}

/// Refuses the option, in the words for what is wrong with it where something is.
pub(super) fn refuse(value: RawBsonRef<'_>, beside: &Beside) -> Result<()> {
    let document = value
        .as_document()
        .ok_or_else(|| invalid_type("create.encryptedFields", value, "object"))?;
    let fields = match document.get("fields")? {
        None | Some(RawBsonRef::Null) => {
            return Err(Error::location(
                40414,
                "BSON field 'create.encryptedFields.fields' is missing but a required field",
            ));
        }
        Some(RawBsonRef::Array(fields)) => fields,
        Some(other) => return Err(invalid_type("create.encryptedFields.fields", other, "array")),
    };
    let mut paths = Vec::new();
    for field in fields {
        match field? {
            RawBsonRef::Null => {}
            RawBsonRef::Document(field) => {
                let path = check_field(field)?;
                if paths.contains(&path) {
                    return Err(Error::location(6_338_402, "Duplicate paths are not allowed"));
                }
                paths.push(path);
            }
            other => return Err(invalid_type("create.encryptedFields.fields.0", other, "object")),
        }
    }
    if beside.view_or_series {
        return Err(Error::location(
            6_346_401,
            "Encrypted fields are not supported on views or time-series collections",
        ));
    }
    if beside.capped {
        return Err(Error::location(
            6_367_301,
            "Encrypted fields are not supported on capped collections",
        ));
    }
    Err(Error::new(Code::NOT_IMPLEMENTED, "encrypted collections are not supported by FernDB"))
}

fn check_field(field: &RawDocument) -> Result<&str> {
    let place = |name: &str| format!("create.encryptedFields.fields.{name}");
    let missing = |name: &str| {
        Error::location(
            40414,
            format!("BSON field '{}' is missing but a required field", place(name)),
        )
    };
    let path = match field.get("path")? {
        None | Some(RawBsonRef::Null) => return Err(missing("path")),
        Some(RawBsonRef::String(path)) => path,
        Some(other) => return Err(invalid_type(&place("path"), other, "string")),
    };
    match field.get("keyId")? {
        None | Some(RawBsonRef::Null) => return Err(missing("keyId")),
        Some(RawBsonRef::Binary(id)) if id.subtype == BinarySubtype::Uuid => {
            if id.bytes.len() != 16 {
                return Err(Error::new(
                    Code::INVALID_UUID,
                    "uuid must be a 16-byte binary field with UUID (4) subtype",
                ));
            }
        }
        Some(other) => return Err(invalid_type(&place("keyId"), other, "binData")),
    }
    if path.is_empty() {
        return Err(Error::location(6_316_402, "Encrypted field must have a non-empty path"));
    }
    if path.contains('\0') {
        return Err(Error::location(9_867_600, "Encrypted field path cannot contain a NUL byte"));
    }
    if path == "_id" || path.starts_with("_id.") {
        return Err(Error::location(6_316_403, "Cannot encrypt _id or its subfields"));
    }
    match field.get("bsonType")? {
        None | Some(RawBsonRef::Null) => Ok(path),
        Some(RawBsonRef::String(name @ ("null" | "undefined" | "minKey" | "maxKey"))) => {
            Err(Error::location(6_338_406, format!("Cannot encrypt a field of type '{name}'")))
        }
        Some(name @ RawBsonRef::String(_)) => {
            bsonval::types::TypeSet::default().add(name)?;
            Ok(path)
        }
        Some(other) => Err(invalid_type(&place("bsonType"), other, "string")),
    }
}
