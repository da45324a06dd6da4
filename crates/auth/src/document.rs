//! Reading the documents in which users and roles are stored: strictly, for whoever writes one wrongly must not
//! be granted more than was meant.

use bson::{Bson, Document};
use errors::{Code, Error, Result};

/// The refusal of a stored or given document.
pub(crate) fn refuse(message: &str) -> Error {
    Error::new(Code::FAILED_TO_PARSE, message)
}

/// The text of a field that must be there.
pub(crate) fn text<'a>(document: &'a Document, name: &str) -> Result<&'a str> {
    match document.get(name) {
        Some(Bson::String(text)) => Ok(text),
        _ => Err(refuse(&format!("there is no text in the field '{name}'"))),
    }
}

/// The array of a field; one that is not there is empty.
pub(crate) fn array<'a>(document: &'a Document, name: &str) -> Result<&'a [Bson]> {
    match document.get(name) {
        Some(Bson::Array(array)) => Ok(array),
        None => Ok(&[]),
        Some(_) => Err(refuse(&format!("the field '{name}' is no array"))),
    }
}
