//! One field of a command, read into the type the command wants or refused in MongoDB's words.
//!
//! Always true: a refusal names the field as `command.field` and the type as MongoDB spells it.

use bson::{RawArray, RawBsonRef, RawDocument, spec::BinarySubtype};
use bsonval::raw;
use errors::{Code, Error, Result};
use smallvec::SmallVec;

/// A field and the place it stands in (`find`, `insert.documents.0`), for error texts.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    /// What it is a field of.
    pub place: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its value.
    pub value: RawBsonRef<'a>,
}

/// The documents of an array of which there is mostly one.
pub type Documents<'a> = SmallVec<[&'a RawDocument; 1]>;

/// What MongoDB calls a value's type.
pub fn type_name(value: RawBsonRef<'_>) -> &'static str {
    match value {
        RawBsonRef::Double(_) => "double",
        RawBsonRef::String(_) => "string",
        RawBsonRef::Array(_) => "array",
        RawBsonRef::Document(_) => "object",
        RawBsonRef::Boolean(_) => "bool",
        RawBsonRef::Null => "null",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::JavaScriptCode(_) => "javascript",
        RawBsonRef::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        RawBsonRef::Int32(_) => "int",
        RawBsonRef::Int64(_) => "long",
        RawBsonRef::Timestamp(_) => "timestamp",
        RawBsonRef::Binary(_) => "binData",
        RawBsonRef::ObjectId(_) => "objectId",
        RawBsonRef::DateTime(_) => "date",
        RawBsonRef::Symbol(_) => "symbol",
        RawBsonRef::Decimal128(_) => "decimal",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::MaxKey => "maxKey",
        RawBsonRef::MinKey => "minKey",
        RawBsonRef::DbPointer(_) => "dbPointer",
    }
}

/// A number as a whole one, as MongoDB reads it; `None` for what is no number.
pub fn as_i64(value: RawBsonRef<'_>) -> Option<i64> {
    bsonval::types::option_integer(value)
}

impl<'a> Field<'a> {
    /// The refusal for a value of another type than the one wanted.
    pub fn wrong_type(&self, wanted: &str) -> Error {
        Error::type_mismatch(format!(
            "BSON field '{}.{}' is the wrong type '{}', expected type '{wanted}'",
            self.place,
            self.name,
            type_name(self.value)
        ))
    }

    /// The refusal where several types would do. The misplaced quote is MongoDB 7's own.
    pub fn wrong_types(&self, wanted: &str) -> Error {
        Error::type_mismatch(format!(
            "BSON field '{}.{}' is the wrong type '{}', expected types '[{wanted}']",
            self.place,
            self.name,
            type_name(self.value)
        ))
    }

    /// The refusal of a field nobody knows.
    pub fn unknown(&self) -> Error {
        Error::location(
            40415,
            format!("BSON field '{}.{}' is an unknown field.", self.place, self.name),
        )
    }

    /// The refusal of something real that is not built yet.
    pub fn not_yet(&self) -> Error {
        Error::new(
            Code::NOT_IMPLEMENTED,
            format!("{}.{} is not supported by this version of FernDB", self.place, self.name),
        )
    }

    /// Whether the value is null, which MongoDB takes for "not given" in most optional fields.
    pub fn is_null(&self) -> bool {
        matches!(self.value, RawBsonRef::Null)
    }

    /// The document.
    pub fn document(&self) -> Result<&'a RawDocument> {
        match self.value {
            RawBsonRef::Document(document) => Ok(document),
            _ => Err(self.wrong_type("object")),
        }
    }

    /// The array.
    pub fn array(&self) -> Result<&'a RawArray> {
        match self.value {
            RawBsonRef::Array(array) => Ok(array),
            _ => Err(self.wrong_type("array")),
        }
    }

    /// The string.
    pub fn str(&self) -> Result<&'a str> {
        match self.value {
            RawBsonRef::String(text) => Ok(text),
            _ => Err(self.wrong_type("string")),
        }
    }

    /// A boolean and nothing else.
    pub fn strict_bool(&self) -> Result<bool> {
        match self.value {
            RawBsonRef::Boolean(value) => Ok(value),
            _ => Err(self.wrong_type("bool")),
        }
    }

    /// A boolean, or a number standing for one.
    pub fn bool(&self) -> Result<bool> {
        let given = bsonval::types::option_bool(self.value);
        given.ok_or_else(|| self.wrong_types("bool, long, int, decimal, double"))
    }

    /// A whole number of any numeric type.
    pub fn i64(&self) -> Result<i64> {
        as_i64(self.value).ok_or_else(|| self.wrong_types("long, int, decimal, double"))
    }

    /// A whole number not below zero (`skip`, `limit`, `batchSize`).
    pub fn non_negative(&self) -> Result<u64> {
        let number = self.i64()?;
        u64::try_from(number).map_err(|_| {
            Error::bad_value(format!(
                "BSON field '{}' value must be >= 0, actual value '{number}'",
                self.name
            ))
        })
    }

    /// A cursor id: a long and nothing else.
    pub fn long(&self) -> Result<i64> {
        match self.value {
            RawBsonRef::Int64(number) => Ok(number),
            _ => Err(self.wrong_type("long")),
        }
    }

    /// A UUID.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        match self.value {
            RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Uuid => {
                <[u8; 16]>::try_from(binary.bytes).map_err(|_| {
                    Error::new(
                        Code::INVALID_UUID,
                        "uuid must be a 16-byte binary field with UUID (4) subtype",
                    )
                })
            }
            RawBsonRef::Binary(_) => Err(Error::type_mismatch(format!(
                "BSON field '{}.{}' is the wrong binData type '{}', expected type 'UUID'",
                self.place,
                self.name,
                match self.value {
                    RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Generic =>
                        "general",
                    _ => "unknown",
                }
            ))),
            _ => Err(self.wrong_type("binData")),
        }
    }

    /// An index's name or key pattern.
    pub fn hint(&self) -> Result<RawBsonRef<'a>> {
        match self.value {
            RawBsonRef::String(_) | RawBsonRef::Document(_) => Ok(self.value),
            _ => Err(Error::failed_to_parse("Hint must be a string or an object")),
        }
    }

    /// The elements of an array of documents.
    pub fn documents(&self) -> Result<Vec<&'a RawDocument>> {
        self.few_documents().map(SmallVec::into_vec)
    }

    /// The same, of which there is mostly one.
    pub fn few_documents(&self) -> Result<Documents<'a>> {
        let mut list = Documents::new();
        for (at, element) in raw::values(self.array()?).enumerate() {
            match element? {
                RawBsonRef::Document(document) => list.push(document),
                other => {
                    return Err(Error::type_mismatch(format!(
                        "BSON field '{}.{}.{at}' is the wrong type '{}', expected type 'object'",
                        self.place,
                        self.name,
                        type_name(other)
                    )));
                }
            }
        }
        Ok(list)
    }

    /// An array of strings.
    pub fn strings(&self) -> Result<Vec<&'a str>> {
        let mut list = Vec::new();
        for (at, element) in self.array()?.into_iter().enumerate() {
            match element? {
                RawBsonRef::String(text) => list.push(text),
                other => {
                    return Err(Error::type_mismatch(format!(
                        "BSON field '{}.{at}' is the wrong type '{}', expected type 'string'",
                        self.name,
                        type_name(other)
                    )));
                }
            }
        }
        Ok(list)
    }

    /// A collection's name; numbers and the like have a refusal of their own.
    pub fn collection(&self) -> Result<&'a str> {
        match self.value {
            RawBsonRef::String(name) => Ok(name),
            other => Err(Error::new(
                Code::INVALID_NAMESPACE,
                format!("collection name has invalid type {}", type_name(other)),
            )),
        }
    }
}

/// Walks the fields of an inner document (`updates[0]`, `cursor`) under its place.
pub fn inner<'a>(
    document: &'a RawDocument,
    place: &'a str,
) -> impl Iterator<Item = Result<Field<'a>>> {
    raw::elements(document).map(move |element| {
        let element = element?;
        Ok(Field { place, name: element.name(), value: element.value()? })
    })
}

/// The same; of fields with `usual` names nobody needs to look at these as text.
pub fn inner_of<'a>(
    document: &'a RawDocument,
    place: &'a str,
    usual: &'static [&'static str],
) -> impl Iterator<Item = Result<Field<'a>>> {
    raw::elements(document).map(move |element| {
        let element = element?;
        let named = |name: &&&str| name.as_bytes() == element.name_bytes();
        let name = usual.iter().find(named).map_or_else(|| element.name(), |name| *name);
        Ok(Field { place, name, value: element.value()? })
    })
}

/// The refusal of a command that lacks a field it needs.
pub fn missing(place: &str, name: &str) -> Error {
    Error::location(40414, format!("BSON field '{place}.{name}' is missing but a required field"))
}
