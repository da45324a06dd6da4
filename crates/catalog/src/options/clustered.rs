//! `clusteredIndex`: a collection whose documents lie in the order of `_id`.
//!
//! Every collection does here (ADR 2), so the option gives the order a name and lets documents
//! expire by their `_id`; nothing is stored in another way.

use super::{invalid, truth, wrong_type};
use bson::raw::{CStr, RawBsonRef, RawDocumentBuf, cstr};
use errors::{Code, Error, Result};

/// What the option says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clustered {
    /// What the order is called among the indexes.
    pub name: String,
}

impl Clustered {
    /// Reads `{key: {_id: 1}, unique: true, name: …}`.
    pub(super) fn parse(key: &CStr, value: RawBsonRef<'_>) -> Result<Self> {
        let document = value.as_document().ok_or_else(|| wrong_type(key, "object"))?;
        let (mut unique, mut pattern, mut name) = (false, None, "_id_");
        for element in document {
            let (field, value) = element?;
            match field.as_str() {
                "v" => crate::index::check_version(value)?,
                "unique" => unique = truth(value),
                "key" => pattern = value.as_document(),
                "name" => {
                    name = value.as_str().filter(|name| !name.is_empty()).ok_or_else(|| {
                        Error::type_mismatch(
                            "BSON field 'create.clusteredIndex.name' is the wrong type, expected \
                             type 'string'",
                        )
                    })?;
                }
                other => {
                    return Err(Error::location(
                        40415,
                        format!("BSON field 'create.clusteredIndex.{other}' is an unknown field."),
                    ));
                }
            }
        }
        let Some(pattern) = pattern else {
            return Err(Error::location(
                40414,
                "BSON field 'create.clusteredIndex.key' is missing but a required field",
            ));
        };
        if !unique {
            return Err(Error::location(
                5979700,
                "The clusteredIndex option requires unique: true to be specified",
            ));
        }
        let mut fields = pattern.iter().flatten();
        let on_id = matches!((fields.next(), fields.next()), (Some((path, order)), None)
            if path.as_str() == "_id" && crate::options::whole_number(order) == Some(1));
        if !on_id {
            return Err(Error::new(
                Code::INVALID_INDEX_SPECIFICATION_OPTION,
                "The clusteredIndex option is only supported on the key {_id: 1}",
            ));
        }
        Ok(Self { name: name.to_owned() })
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

/// `expireAfterSeconds` of a collection: a number of seconds, or `"off"`.
pub(super) fn expire_after(value: RawBsonRef<'_>) -> Result<Option<i64>> {
    if value.as_str() == Some("off") {
        return Ok(None);
    }
    match super::whole_number(value) {
        Some(seconds) if (0..=i64::from(i32::MAX)).contains(&seconds) => Ok(Some(seconds)),
        Some(_) => {
            Err(invalid("expireAfterSeconds must be within the range of 0 to 2147483647 seconds"))
        }
        None => Err(Error::type_mismatch("'expireAfterSeconds' must be a number")),
    }
}
