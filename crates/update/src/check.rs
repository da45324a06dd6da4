//! What a stored document must be.

use bson::raw::{RawBsonRef, RawDocument};
use bsonval::path::is_reserved_name;
use bsonval::{raw, show, types};
use errors::{Code, Error, Result};
use limits::MAX_DOCUMENT_BYTES;

/// How deep stored documents may nest: some levels below what a message may, so that a stored
/// document still fits into replies around it.
pub const MAX_STORED_DEPTH: usize = 180;

pub(super) fn size(document: &RawDocument) -> Result<()> {
    length(document.as_bytes().len())
}

/// Refuses a document that grows past what may be stored, while it is made.
pub(super) fn length(bytes: usize) -> Result<()> {
    if bytes > MAX_DOCUMENT_BYTES {
        return Err(Error::location(
            17419,
            format!("Resulting document after update is larger than {MAX_DOCUMENT_BYTES}"),
        ));
    }
    Ok(())
}

pub(super) fn depth(document: &RawDocument) -> Result<()> {
    if depth_of(RawBsonRef::Document(document), 0)? > MAX_STORED_DEPTH {
        return Err(too_deep());
    }
    Ok(())
}

pub(super) fn too_deep() -> Error {
    Error::new(
        Code::OVERFLOW,
        format!("Document exceeds maximum nested object depth: {MAX_STORED_DEPTH}"),
    )
}

/// How many levels of documents and arrays a value has. Stops counting beyond the limit.
pub(super) fn depth_of(value: RawBsonRef<'_>, around: usize) -> Result<usize> {
    let elements = match value {
        RawBsonRef::Document(document) => raw::elements(document),
        RawBsonRef::Array(array) => raw::array_elements(array),
        _ => return Ok(around),
    };
    let mut deepest = around + 1;
    if deepest > MAX_STORED_DEPTH {
        return Ok(deepest);
    }
    for element in elements {
        let value = element?.value()?;
        if matches!(value, RawBsonRef::Document(_) | RawBsonRef::Array(_)) {
            deepest = deepest.max(depth_of(value, around + 1)?);
        }
    }
    Ok(deepest)
}

pub(super) fn dollar_prefixed(field: &str, path: &str) -> Error {
    Error::new(
        Code::DOLLAR_PREFIXED_FIELD_NAME,
        format!(
            "The dollar ($) prefixed field '{field}' in '{path}' is not allowed in the context of \
             an update's replacement document. Consider using an aggregation pipeline with \
             $replaceWith."
        ),
    )
}

/// Refuses a replacement with a `$` name at its top, and one that nests too deep.
pub(super) fn replacement(document: &RawDocument) -> Result<()> {
    let mut deepest = 1;
    for element in raw::elements(document) {
        let element = element?;
        if element.name_bytes().first() == Some(&b'$') {
            return Err(dollar_prefixed(element.name(), element.name()));
        }
        if element.is_nested() {
            deepest = deepest.max(depth_of(element.value()?, 1)?);
        }
    }
    if deepest > MAX_STORED_DEPTH { Err(too_deep()) } else { Ok(()) }
}

pub(super) fn immutable_id(path: &str) -> Error {
    Error::new(
        Code::IMMUTABLE_FIELD,
        format!("Performing an update on the path '{path}' would modify the immutable field '_id'"),
    )
}

pub(super) fn altered_id(id: RawBsonRef<'_>) -> Error {
    Error::new(
        Code::IMMUTABLE_FIELD,
        format!(
            "After applying the update, the (immutable) field '_id' was found to have been altered \
             to {}",
            show::field("_id", id)
        ),
    )
}

/// Whether a value may be stored as `_id`: no array, no regular expression, not undefined, and no
/// `$` names inside.
pub fn check_stored_id(id: RawBsonRef<'_>) -> Result<()> {
    match id {
        RawBsonRef::Array(_) | RawBsonRef::RegularExpression(_) | RawBsonRef::Undefined => {
            Err(Error::new(
                Code::INVALID_ID_FIELD,
                format!("The '_id' value cannot be of type {}", types::name_of(id)),
            ))
        }
        RawBsonRef::Document(document) => {
            for element in raw::elements(document) {
                let name = element?.name();
                if is_reserved_name(name) {
                    return Err(Error::new(
                        Code::DOLLAR_PREFIXED_FIELD_NAME,
                        format!(
                            "_id fields may not contain '$'-prefixed fields: {name} is not valid \
                             for storage."
                        ),
                    ));
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
