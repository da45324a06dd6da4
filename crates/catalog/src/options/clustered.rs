//! `clusteredIndex`: a collection whose documents lie in the order of `_id`.
//!
//! Every collection does here (ADR 2), so the option gives the order a name and lets documents
//! expire by their `_id`; nothing is stored in another way.

use super::{invalid, invalid_type, wrong_type};
use bson::raw::{CStr, RawBsonRef, RawDocumentBuf, cstr};
use bsonval::types::{option_bool, option_integer};
use errors::{Code, Error, Result};

/// What the option says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clustered {
    /// What the order is called among the indexes.
    pub name: String,
}

impl Clustered {
    /// Reads `{key: {_id: 1}, unique: true, name: …}`, or false for a collection without the option.
    pub(super) fn parse(key: &CStr, value: RawBsonRef<'_>) -> Result<Option<Self>> {
        let document = match (value, option_bool(value)) {
            (RawBsonRef::Document(document), _) => document,
            (_, Some(false)) => return Ok(None),
            (_, Some(true)) => {
                return Err(Error::location(
                    5_979_703,
                    "The 'clusteredIndex' legacy format {clusteredIndex: <bool>} is only supported \
                     for time-series buckets",
                ));
            }
            _ => return Err(wrong_type(key, "object")),
        };
        let (mut unique, mut pattern, mut name) = (None, None, "_id_");
        for element in document {
            let (field, value) = element?;
            let place = || format!("create.clusteredIndex.{}", field.as_str());
            match (field.as_str(), value) {
                (_, RawBsonRef::Null | RawBsonRef::Undefined) => {}
                ("v", value) => match option_integer(value) {
                    Some(2) => {}
                    Some(_) => {
                        return Err(Error::location(
                            5_979_704,
                            "Invalid index version for a clustered index: only 2 is supported",
                        ));
                    }
                    None => return Err(invalid_type(&place(), value, "int")),
                },
                ("unique", value) => {
                    let given = option_bool(value);
                    unique = Some(given.ok_or_else(|| invalid_type(&place(), value, "bool"))?);
                }
                ("key", RawBsonRef::Document(document)) => pattern = Some(document),
                ("key", value) => return Err(invalid_type(&place(), value, "object")),
                ("name", RawBsonRef::String(text)) => name = text,
                ("name", value) => return Err(invalid_type(&place(), value, "string")),
                _ => {
                    return Err(Error::location(
                        40415,
                        format!("BSON field '{}' is an unknown field.", place()),
                    ));
                }
            }
        }
        let missing = |name: &str| {
            Error::location(
                40414,
                format!(
                    "BSON field 'create.clusteredIndex.{name}' is missing but a required field"
                ),
            )
        };
        let pattern = pattern.ok_or_else(|| missing("key"))?;
        if !unique.ok_or_else(|| missing("unique"))? {
            return Err(Error::location(
                5_979_700,
                "The clusteredIndex option requires unique: true to be specified",
            ));
        }
        let mut fields = pattern.iter().flatten();
        let on_id = matches!((fields.next(), fields.next()), (Some((path, order)), None)
            if path.as_str() == "_id" && bsonval::types::exact_integer(order) == Some(1));
        if !on_id {
            return Err(Error::new(
                Code::INVALID_INDEX_SPECIFICATION_OPTION,
                "The clusteredIndex option is only supported on the key {_id: 1}",
            ));
        }
        Ok(Some(Self { name: name.to_owned() }))
    }

    /// As `listCollections` shows it.
    pub(super) fn shown(&self) -> RawDocumentBuf {
        let mut key = RawDocumentBuf::new();
        key.append(cstr!("_id"), 1);
        let mut shown = RawDocumentBuf::new();
        shown.append(cstr!("v"), 2);
        shown.append(cstr!("key"), key);
        shown.append(cstr!("name"), self.name.as_str());
        shown.append(cstr!("unique"), true);
        shown
    }
}

/// `expireAfterSeconds` of `collMod`: a number of seconds, or `"off"`.
pub(super) fn expire_after(value: RawBsonRef<'_>) -> Result<Option<i64>> {
    match value {
        RawBsonRef::String("off") => Ok(None),
        RawBsonRef::String(other) => Err(invalid(&format!(
            "expireAfterSeconds must be a number or \"off\", got \"{other}\""
        ))),
        value => seconds(value).map(Some),
    }
}

/// `expireAfterSeconds` of a collection.
pub(super) fn seconds(value: RawBsonRef<'_>) -> Result<i64> {
    match option_integer(value) {
        Some(seconds) if (0..=i64::from(i32::MAX)).contains(&seconds) => Ok(seconds),
        Some(_) => {
            Err(invalid("expireAfterSeconds must be within the range of 0 to 2147483647 seconds"))
        }
        None => Err(invalid_type("create.expireAfterSeconds", value, "long")),
    }
}
