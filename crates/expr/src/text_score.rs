//! How a document carries its text score through a plan and a pipeline.
//!
//! The score stands in front of the document's own fields, under a name that no client can ask for.
//! `{$meta: "textScore"}` reads it wherever it stands. Where a score is not wanted, or not there,
//! documents are what they are.
//!
//! Always true: a document that a client sees, or that is written, has none: who hands one out asks
//! [`strip`] first, and `$$ROOT` is without it.

use crate::raw::Writer;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use errors::{Code, Error};

/// The name it stands under.
pub const FIELD: &str = "$fern:textScore";
/// What the name `{$meta: …}` knows it by.
pub const META: &str = "textScore";
/// The field's type and name, as they stand behind the document's length.
const HEADER: &[u8] = b"\x01$fern:textScore\0";
/// Where the document's own fields begin.
const OWN: usize = 4 + HEADER.len() + 8;

/// The document with its score.
pub fn with(document: &RawDocument, score: f64) -> RawDocumentBuf {
    let bytes = document.as_bytes();
    let mut writer = Writer::with_capacity(bytes.len() + OWN);
    let open = writer.begin();
    writer.value(FIELD, RawBsonRef::Double(score));
    writer.bytes(&bytes[4..bytes.len() - 1]);
    writer.end(open);
    writer.finish().expect("a field before the fields of a document makes a document")
}

/// The score that a document carries.
pub fn of(document: &RawDocument) -> Option<f64> {
    let bytes = document.as_bytes();
    if bytes.get(4..4 + HEADER.len())? != HEADER {
        return None;
    }
    let score = bytes.get(4 + HEADER.len()..OWN)?;
    Some(f64::from_le_bytes(score.try_into().ok()?))
}

/// The document without its score; `None` where it carries none.
pub fn without(document: &RawDocument) -> Option<RawDocumentBuf> {
    of(document)?;
    let bytes = document.as_bytes();
    let mut writer = Writer::with_capacity(bytes.len());
    let open = writer.begin();
    writer.bytes(&bytes[OWN..bytes.len() - 1]);
    writer.end(open);
    writer.finish().ok()
}

/// The document without its score.
pub fn strip(document: RawDocumentBuf) -> RawDocumentBuf {
    without(&document).unwrap_or(document)
}

/// The error of who asks for a score where nothing is searched.
pub fn unavailable() -> Error {
    Error::new(Code::location(40218), "query requires text score metadata, but it is not available")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    #[test]
    fn a_score_comes_and_goes() {
        for document in [doc! {}, doc! { "_id": 1, "a": { "b": "c" } }] {
            let plain = RawDocumentBuf::try_from(&document).unwrap();
            assert_eq!((of(&plain), without(&plain)), (None, None));
            let scored = with(&plain, 1.5);
            assert_eq!(of(&scored), Some(1.5));
            assert_eq!(scored.get(FIELD).unwrap(), Some(RawBsonRef::Double(1.5)));
            assert_eq!(strip(scored), plain);
        }
    }
}
