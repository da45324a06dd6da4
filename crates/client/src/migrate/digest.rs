//! A digest of a collection that does not depend on the order of its documents.
//!
//! Always true: two collections of the same documents have the same digest, wherever a server has put them. Servers
//! move `_id` to a document's front when it is written, and so does this before it hashes.

use bson::{RawDocument, RawDocumentBuf};
use xxhash_rust::xxh3::xxh3_128;

/// Of the documents so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
    /// The sum and not the exclusive or: a document that is there twice does not vanish.
    pub(crate) sum: u128,
}

impl Digest {
    pub(crate) fn add(&mut self, document: &RawDocument) {
        self.documents += 1;
        self.bytes += document.as_bytes().len() as u64;
        let moved = with_id_first(document);
        let hash = xxh3_128(moved.as_ref().map_or(document.as_bytes(), |moved| moved.as_bytes()));
        self.sum = self.sum.wrapping_add(hash);
    }
}

/// The document with `_id` at its front, where it stands elsewhere.
fn with_id_first(document: &RawDocument) -> Option<RawDocumentBuf> {
    let first = document.iter().next()?.ok()?;
    if first.0 == "_id" {
        return None;
    }
    let id = document.get("_id").ok()??;
    let mut moved = RawDocumentBuf::new();
    moved.append(bson::raw::cstr!("_id"), id);
    for element in document {
        let (name, value) = element.ok()?;
        if name != "_id" {
            moved.append(name, value);
        }
    }
    Some(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc, rawdoc};

    fn digest(documents: &[Document]) -> Digest {
        let mut digest = Digest::default();
        for document in documents {
            digest.add(&RawDocumentBuf::try_from(document).unwrap());
        }
        digest
    }

    #[test]
    fn order_does_not_matter_and_everything_else_does() {
        let (one, two) = (doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 1 });
        let both = digest(&[one.clone(), two.clone()]);
        assert_eq!(digest(&[two.clone(), one.clone()]), both);
        for other in [
            vec![one.clone()],
            vec![one.clone(), one.clone()],
            vec![one.clone(), doc! { "_id": 2_i64, "a": 1 }],
            vec![doc! { "_id": 1, "a": 2 }, two.clone()],
            vec![],
        ] {
            assert_ne!(digest(&other), both, "{other:?}");
        }
        assert_ne!(
            digest(&[doc! { "_id": 1, "a": 1, "b": 1 }]),
            digest(&[doc! { "_id": 1, "b": 1, "a": 1 }])
        );
    }

    #[test]
    fn an_id_counts_as_the_first_field() {
        assert_eq!(
            digest(&[doc! { "a": 1, "_id": 1, "b": 2 }]),
            digest(&[doc! { "_id": 1, "a": 1, "b": 2 }])
        );
        assert_eq!(with_id_first(&rawdoc! { "a": 1 }), None);
    }
}
