//! Projections that name whole fields of the document itself, to be shown or left out: `{a: 1, b: 1, _id: 0}`.
//! Made and applied without a parser and without a tree.
//!
//! Always true: what is shown is what [`Projection`](super::Projection) shows; whatever is not certain to be such a
//! projection, or is refused, is left to it.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::raw::{self, Writer};
use bsonval::{text_score, types};
use errors::Result;
use smallvec::SmallVec;

/// Each field is compared with all names: projections with more are parsed.
const MOST_NAMES: usize = 16;

/// See the top of the file.
#[derive(Clone, Debug, Default)]
pub struct Flat {
    /// Each as its length and its bytes. Usual projections need no allocation.
    names: SmallVec<[u8; 64]>,
    /// The named fields are shown, and no others; else all others are.
    includes: bool,
}

impl Flat {
    /// A projection that is not empty; `None` where it has to be parsed.
    pub fn of(given: &RawDocument) -> Result<Option<Self>> {
        let mut flat = Self::default();
        let (mut mode, mut id) = (None, None);
        for (count, element) in raw::elements(given).enumerate() {
            let element = element?;
            let value = element.value()?;
            let is_flag = matches!(
                value,
                RawBsonRef::Boolean(_)
                    | RawBsonRef::Int32(_)
                    | RawBsonRef::Int64(_)
                    | RawBsonRef::Double(_)
            );
            if !is_flag || count == MOST_NAMES {
                return Ok(None);
            }
            let (name, is_shown) = (element.name_bytes(), types::is_true(value));
            if name == b"_id" {
                if id.replace(is_shown).is_some() {
                    return Ok(None);
                }
                continue;
            }
            let agrees = *mode.get_or_insert(is_shown) == is_shown;
            if !agrees || !is_plain(name) || flat.has(name) || !flat.add(name) {
                return Ok(None);
            }
        }
        flat.includes = mode.or(id).unwrap_or(false);
        let names_id = if flat.includes { id != Some(false) } else { id == Some(false) };
        if names_id {
            flat.add(b"_id");
        }
        if !flat.includes {
            // What carries the score is no field of the document.
            flat.add(text_score::FIELD.as_bytes());
        }
        Ok(Some(flat))
    }

    /// Whether all that is shown are fields of which this is true.
    pub fn is_made_of(&self, held: impl Fn(&[u8]) -> bool) -> bool {
        self.includes && self.names().all(held)
    }

    /// The projected document.
    pub fn apply(&self, document: &RawDocument) -> Result<RawDocumentBuf> {
        let mut out = Writer::with_capacity(document.as_bytes().len());
        let open = out.begin();
        for element in raw::elements(document) {
            let element = element?;
            if self.has(element.name_bytes()) == self.includes {
                out.element(&element);
            }
        }
        out.end(open);
        out.finish()
    }

    /// Takes in a name; false where it is too long.
    fn add(&mut self, name: &[u8]) -> bool {
        let Ok(length) = u8::try_from(name.len()) else { return false };
        self.names.push(length);
        self.names.extend_from_slice(name);
        true
    }

    fn has(&self, name: &[u8]) -> bool {
        self.names().any(|known| known == name)
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.names[..];
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first()?;
            let (name, after) = after.split_at_checked(usize::from(*length))?;
            rest = after;
            Some(name)
        })
    }
}

/// Whether a name is that of a field of the document itself, and nothing else.
fn is_plain(name: &[u8]) -> bool {
    !name.is_empty() && !name.iter().any(|byte| matches!(byte, b'.' | b'$'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Projection;
    use bson::{Bson, Document, doc};
    use matcher::ParseContext;

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    fn documents() -> Vec<RawDocumentBuf> {
        let inner = doc! { "a": 1, "_id": 2 };
        let mut documents: Vec<_> = [
            doc! { "_id": 1, "a": [1, { "b": 2 }], "b": { "a": 1 }, "c": Bson::Null, "ä": "ö", "": 3 },
            doc! { "c": 1, "b": inner, "a": 2.5, "_id": "last" },
            doc! { "_id": 3 },
            doc! {},
            doc! { text_score::FIELD: 1.5, "a": 1 },
        ]
        .iter()
        .map(raw)
        .collect();
        let mut twice = RawDocumentBuf::new();
        for value in [1, 2] {
            twice.append(bson::raw::cstr!("a"), value);
            twice.append(bson::raw::cstr!("b"), value);
        }
        documents.push(twice);
        documents
    }

    #[test]
    fn flat_projection_shows_what_a_parsed_one_shows() {
        let flags = || {
            [
                Bson::Boolean(true),
                Bson::Boolean(false),
                Bson::Int32(1),
                Bson::Int32(0),
                Bson::Int64(-7),
                Bson::Int64(0),
                Bson::Double(0.5),
                Bson::Double(f64::NAN),
                Bson::Double(-0.0),
            ]
        };
        let mut given = Vec::new();
        for first in flags() {
            for name in ["a", "_id", "ä", "none"] {
                given.push(doc! { name: first.clone() });
            }
            for second in flags() {
                given.push(doc! { "a": first.clone(), "_id": second.clone() });
                given.push(doc! { "_id": second.clone(), "b": first.clone() });
                given.push(doc! { "a": first.clone(), "c": second.clone() });
            }
        }
        let (mut flat_ones, mut refused) = (0, 0);
        for given in &given {
            let flat = Flat::of(&raw(given)).unwrap();
            let parsed = Projection::parse(&raw(given), &ParseContext::default());
            let (Some(flat), Ok(parsed)) = (&flat, &parsed) else {
                assert!(flat.is_none() && parsed.is_err(), "{given}: {parsed:?}");
                refused += 1;
                continue;
            };
            flat_ones += 1;
            for document in documents() {
                let shown = flat.apply(&document).unwrap();
                assert_eq!(shown, parsed.apply(&document, None).unwrap(), "{given} {document:?}");
            }
            let fields = parsed.required_fields();
            for held in [&["a", "_id"][..], &["a", "b", "c", "ä", "none", "_id"], &[]] {
                let is_held =
                    fields.as_ref().is_some_and(|all| all.iter().all(|f| held.contains(&&**f)));
                let flat = flat.is_made_of(|name| held.iter().any(|h| h.as_bytes() == name));
                assert_eq!(flat, is_held, "{given} {held:?}");
            }
        }
        assert!(flat_ones > 100 && refused > 10, "{flat_ones} {refused}");
    }

    #[test]
    fn what_is_more_than_whole_fields_is_left_to_the_parser() {
        let many: Document = (0..17).map(|n| (format!("f{n}"), Bson::Int32(1))).collect();
        let long = "x".repeat(256);
        for given in [
            doc! { "a.b": 1 },
            doc! { "a": "$b" },
            doc! { "a": { "$slice": 1 } },
            doc! { "a": { "b": 1 } },
            doc! { "a.$": 1 },
            doc! { "$a": 1 },
            doc! { "": 1 },
            doc! { "a": Bson::Null },
            doc! { "a": 1, "b": 0 },
            doc! { "a": 0, "b": 1 },
            doc! { long: 1 },
            many,
        ] {
            assert!(Flat::of(&raw(&given)).unwrap().is_none(), "{given}");
        }
        for name in ["a", "_id"] {
            let mut twice = RawDocumentBuf::new();
            for _ in 0..2 {
                twice.append(<&bson::raw::CStr>::try_from(name).unwrap(), 1);
            }
            assert!(Flat::of(&twice).unwrap().is_none(), "{name}");
        }
    }
}
