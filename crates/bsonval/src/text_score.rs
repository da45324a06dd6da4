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
/// The name under which `{$meta: "scoreDetails"}` stands, behind the score.
pub const DETAILS_FIELD: &str = "$fern:scoreDetails";
const DETAILS_HEADER: &[u8] = b"\x03$fern:scoreDetails\0";
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

/// The document with its score, and how that came about where somebody asks.
pub fn with_details(
    document: &RawDocument,
    score: f64,
    details: Option<&RawDocument>,
) -> RawDocumentBuf {
    let Some(details) = details else { return with(document, score) };
    let bytes = document.as_bytes();
    let mut writer = Writer::with_capacity(bytes.len() + OWN + details.as_bytes().len() + 32);
    let open = writer.begin();
    writer.value(FIELD, RawBsonRef::Double(score));
    writer.value(DETAILS_FIELD, RawBsonRef::Document(details));
    writer.bytes(&bytes[4..bytes.len() - 1]);
    writer.end(open);
    writer.finish().expect("two fields before the fields of a document make a document")
}

/// Where the document's own fields begin, behind the score and its details.
fn own_from(bytes: &[u8]) -> usize {
    let Some(rest) = bytes.get(OWN..).and_then(|rest| rest.strip_prefix(DETAILS_HEADER)) else {
        return OWN;
    };
    let length = rest.first_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    let from = OWN + DETAILS_HEADER.len() + length;
    if from < bytes.len() { from } else { OWN }
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
    writer.bytes(&bytes[own_from(bytes)..bytes.len() - 1]);
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
    fn details_come_and_go_with_the_score() {
        let plain = RawDocumentBuf::try_from(&doc! { "_id": 1, "a": "x" }).unwrap();
        let details = RawDocumentBuf::try_from(&doc! { "value": 0.5, "details": [1] }).unwrap();
        let carried = with_details(&plain, 0.5, Some(&details));
        assert_eq!(of(&carried), Some(0.5));
        assert_eq!(carried.get_document(DETAILS_FIELD).unwrap(), &*details);
        assert_eq!(strip(carried), plain);
        assert_eq!(strip(with_details(&plain, 0.5, None)), plain);
    }

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
