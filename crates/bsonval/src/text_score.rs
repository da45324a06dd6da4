//! How a document carries its scores through a plan and a pipeline.
//!
//! What stages know of a document and is no field of it stands in front of its own fields, under names
//! that no client can ask for, in this order: the text score of the search that found it, the score
//! that a stage gave it, and how that came about. `{$meta: "textScore"}`, `{$meta: "score"}` and
//! `{$meta: "scoreDetails"}` read them wherever they stand. What is not wanted, or not there, is left
//! out; documents without any are what they are.
//!
//! Always true: a document that a client sees, or that is written, has none: who hands one out asks
//! [`strip`] first, and `$$ROOT` is without them.

use crate::raw::Writer;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use errors::{Code, Error};

/// The name that the text score stands under.
pub const FIELD: &str = "$fern:textScore";
/// The name that a stage's score stands under.
pub const SCORE_FIELD: &str = "$fern:score";
/// The name under which stands how that came about.
pub const DETAILS_FIELD: &str = "$fern:scoreDetails";
/// What the name `{$meta: …}` knows the text score by.
pub const META: &str = "textScore";
/// What it knows the score by.
pub const SCORE_META: &str = "score";
/// The types and names, as they stand behind the document's length.
const TEXT_HEADER: &[u8] = b"\x01$fern:textScore\0";
const SCORE_HEADER: &[u8] = b"\x01$fern:score\0";
const DETAILS_HEADER: &[u8] = b"\x03$fern:scoreDetails\0";
/// Where the first field of a document stands.
const FIRST: usize = 4;

/// Whether a field of this name is none of the document's own.
pub fn is_hidden(name: &str) -> bool {
    [FIELD, SCORE_FIELD, DETAILS_FIELD].contains(&name)
}

/// What stands in front of a document's own fields.
struct Carried<'d> {
    text: Option<f64>,
    score: Option<f64>,
    details: Option<&'d RawDocument>,
    /// Where its own fields begin.
    own: usize,
}

impl<'d> Carried<'d> {
    fn of(document: &'d RawDocument) -> Self {
        let bytes = document.as_bytes();
        let mut carried = Self { text: None, score: None, details: None, own: FIRST };
        carried.text = carried.number(bytes, TEXT_HEADER);
        carried.score = carried.number(bytes, SCORE_HEADER);
        if let Some(rest) = bytes.get(carried.own..).and_then(|b| b.strip_prefix(DETAILS_HEADER))
            && let Some(length) = rest.first_chunk::<4>()
            && let Some(details) = rest.get(..u32::from_le_bytes(*length) as usize)
        {
            carried.details = RawDocument::from_bytes(details).ok();
            carried.own += DETAILS_HEADER.len() + details.len();
        }
        carried
    }

    fn number(&mut self, bytes: &[u8], header: &[u8]) -> Option<f64> {
        let number = bytes.get(self.own..)?.strip_prefix(header)?.first_chunk::<8>()?;
        self.own += header.len() + number.len();
        Some(f64::from_le_bytes(*number))
    }
}

/// The document's own fields behind what `front` writes.
fn behind(
    document: &RawDocument,
    own: usize,
    front: impl FnOnce(&mut Writer),
) -> errors::Result<RawDocumentBuf> {
    let bytes = document.as_bytes();
    let mut writer = Writer::with_capacity(bytes.len() + 64);
    let open = writer.begin();
    front(&mut writer);
    writer.bytes(&bytes[own..bytes.len() - 1]);
    writer.end(open);
    writer.finish()
}

/// The document with its text score.
pub fn with(document: &RawDocument, score: f64) -> RawDocumentBuf {
    behind(document, FIRST, |writer| writer.value(FIELD, RawBsonRef::Double(score)))
        .expect("a field before the fields of a document makes a document")
}

/// The document with a stage's score, and how that came about where somebody asks; what it had of both
/// goes, its text score stays.
pub fn with_score(
    document: &RawDocument,
    score: f64,
    details: Option<&RawDocument>,
) -> RawDocumentBuf {
    let carried = Carried::of(document);
    behind(document, carried.own, |writer| {
        if let Some(text) = carried.text {
            writer.value(FIELD, RawBsonRef::Double(text));
        }
        writer.value(SCORE_FIELD, RawBsonRef::Double(score));
        if let Some(details) = details {
            writer.value(DETAILS_FIELD, RawBsonRef::Document(details));
        }
    })
    .expect("fields before the fields of a document make a document")
}

/// The document `to` with all that `from` carries.
pub fn carry(from: &RawDocument, to: RawDocumentBuf) -> RawDocumentBuf {
    let own = Carried::of(from).own;
    if own == FIRST {
        return to;
    }
    behind(&to, Carried::of(&to).own, |writer| writer.bytes(&from.as_bytes()[FIRST..own]))
        .expect("fields before the fields of a document make a document")
}

/// The text score that a document carries.
pub fn of(document: &RawDocument) -> Option<f64> {
    Carried::of(document).text
}

/// The score that a stage gave it; else its text score.
pub fn score_of(document: &RawDocument) -> Option<f64> {
    let carried = Carried::of(document);
    carried.score.or(carried.text)
}

/// How the score came about.
pub fn details_of(document: &RawDocument) -> Option<&RawDocument> {
    Carried::of(document).details
}

/// The document without what it carries; `None` where it carries nothing.
pub fn without(document: &RawDocument) -> Option<RawDocumentBuf> {
    let own = Carried::of(document).own;
    if own == FIRST { None } else { behind(document, own, |_| ()).ok() }
}

/// The document without what it carries.
pub fn strip(document: RawDocumentBuf) -> RawDocumentBuf {
    without(&document).unwrap_or(document)
}

/// The error of who asks for a text score where nothing is searched.
pub fn unavailable() -> Error {
    missing("text score")
}

/// The error of who asks for what no stage has given.
pub fn missing(what: &str) -> Error {
    Error::new(
        Code::location(40218),
        format!("query requires {what} metadata, but it is not available"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    fn raw(document: &bson::Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    #[test]
    fn what_is_carried_comes_and_goes() {
        let details = raw(&doc! { "value": 0.5, "details": [1] });
        for plain in [doc! {}, doc! { "_id": 1, "a": { "b": "c" } }].map(|d| raw(&d)) {
            for (text, score, detail) in [
                (None, None, None),
                (Some(1.5), None, None),
                (None, Some(0.5), None),
                (None, Some(0.5), Some(&*details)),
                (Some(1.5), Some(0.5), None),
                (Some(1.5), Some(0.5), Some(&*details)),
            ] {
                let mut carried = plain.clone();
                if let Some(text) = text {
                    carried = with(&carried, text);
                }
                if let Some(score) = score {
                    // Only the last one stays.
                    carried = with_score(&carried, 9.0, Some(&details));
                    carried = with_score(&carried, score, detail);
                }
                assert_eq!(of(&carried), text);
                assert_eq!(score_of(&carried), score.or(text));
                assert_eq!(details_of(&carried), detail);
                assert_eq!(without(&carried), (carried != plain).then(|| plain.clone()));
                let other = raw(&doc! { "other": 1 });
                let moved = carry(&carried, other.clone());
                assert_eq!((of(&moved), score_of(&moved)), (text, score.or(text)));
                assert_eq!(details_of(&moved), detail);
                assert_eq!(strip(moved), other);
                let hidden = carried.iter().filter(|e| is_hidden(e.as_ref().unwrap().0.as_str()));
                let count = [text.is_some(), score.is_some(), detail.is_some()];
                assert_eq!(hidden.count(), count.into_iter().filter(|there| *there).count());
            }
        }
    }

    #[test]
    fn damaged_details_are_no_details() {
        let details = raw(&doc! { "value": 0.5 });
        let mut bytes = with_score(&raw(&doc! { "_id": 1 }), 0.5, Some(&details)).into_bytes();
        let at = FIRST + SCORE_HEADER.len() + 8 + DETAILS_HEADER.len();
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let document = RawDocumentBuf::from_bytes(bytes).unwrap();
        assert_eq!((score_of(&document), details_of(&document)), (Some(0.5), None));
    }
}
