//! What a stored document is found by: the key of its record in the primary dictionary.
//!
//! It is the keystring of the values of the collection's primary key, whose last field is `_id`; in
//! most collections that is the only one. In a time-series collection [`SUFFIX_BYTES`] more follow
//! where another measurement has the same `_id`. Strings are sort keys under the collection's
//! collation. On disk: `docs/formats/catalog.md`.
//!
//! Always true:
//! 1. The fields before `_id` hold no arrays, regular expressions or undefined values: a document that
//!    would have such is refused. A missing field is null.
//! 2. Documents with different `_id`s have different record keys.

use super::spec::{KeyPart, PartKind, parse_parts};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::Path;
use bsonval::raw;
use bsonval::show::document as document_text;
use errors::{Code, Error, Result};
use keystring::{Collation, Direction, KeyBuilder};
use smallvec::SmallVec;

/// Bytes after the `_id` in the record key of a measurement whose `_id` another one has.
const SUFFIX_BYTES: usize = 9;
/// The first of them. Scans end behind an `_id` at a byte of 255, and begin there.
const SUFFIX_MARK: u8 = 0x80;
/// What a record key usually needs.
const USUAL_BYTES: usize = 32;

/// The values of the fields of a primary key before `_id`.
pub type LeadingValues<'a> = SmallVec<[RawBsonRef<'a>; 4]>;

/// The fields by whose values a collection's documents are clustered, where `_id` is not the only one.
#[derive(Clone, PartialEq, Debug)]
pub struct PrimaryKey {
    /// As given.
    pattern: RawDocumentBuf,
    /// The last is `_id`.
    parts: Vec<KeyPart>,
    /// Of the parts before `_id`.
    paths: Vec<Vec<String>>,
    directions: Vec<Direction>,
}

impl PrimaryKey {
    /// Reads the value of `primaryKey`; `None` where it is `{_id: 1}`, as without one.
    pub fn parse(pattern: &RawDocument) -> Result<Option<Self>> {
        let parts = parse_parts(pattern)?;
        let ends_in_id = parts.last().is_some_and(|part| {
            part.path == "_id" && part.kind == PartKind::Value && !part.descending
        });
        // The direction is compared as a number by whoever wrote the pattern: `_id: 5` is no `_id: 1`.
        let one = pattern
            .iter()
            .flatten()
            .last()
            .is_some_and(|(_, value)| bsonval::types::exact_integer(value) == Some(1));
        if !(ends_in_id && one) {
            return Err(Error::location(
                17203,
                format!("the primary key must end in {{_id: 1}}, found {}", document_text(pattern)),
            ));
        }
        if let Some(part) = parts.iter().find(|part| part.kind != PartKind::Value) {
            return Err(Error::new(
                Code::CANNOT_CREATE_INDEX,
                format!("the primary key can only be made of values, '{}' is none", part.path),
            ));
        }
        let leading = &parts[..parts.len() - 1];
        if leading.is_empty() {
            return Ok(None);
        }
        let direction = |part: &KeyPart| {
            if part.descending { Direction::Descending } else { Direction::Ascending }
        };
        let components = |part: &KeyPart| part.path.split('.').map(str::to_owned).collect();
        Ok(Some(Self {
            pattern: pattern.to_owned(),
            paths: leading.iter().map(components).collect(),
            directions: parts.iter().map(direction).collect(),
            parts,
        }))
    }

    /// As given.
    pub fn pattern(&self) -> &RawDocument {
        &self.pattern
    }

    /// Its fields, of which the last is `_id`.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// The direction of each field.
    pub fn directions(&self) -> &[Direction] {
        &self.directions
    }

    /// The key of the record of a document with this `_id`.
    pub fn record_key(
        &self,
        document: &RawDocument,
        id: RawBsonRef<'_>,
        collation: Option<&Collation>,
    ) -> Result<Vec<u8>> {
        self.record_key_of_values(&self.leading_values(document)?, id, collation)
    }

    /// The key of the record of a document with these values in the fields before `_id`.
    pub fn record_key_of_values(
        &self,
        leading: &[RawBsonRef<'_>],
        id: RawBsonRef<'_>,
        collation: Option<&Collation>,
    ) -> Result<Vec<u8>> {
        assert_eq!(leading.len(), self.paths.len(), "every field before _id has a value");
        let mut builder = KeyBuilder::reusing(Vec::with_capacity(USUAL_BYTES));
        let record = RecordKey::new(id, &[]).behind(leading);
        record.append_to(&mut builder, &self.directions, collation)?;
        Ok(builder.into_bytes())
    }

    /// The values of a document in the fields before `_id`. Fails where one of them cannot be in a primary
    /// key.
    pub fn leading_values<'a>(&self, document: &'a RawDocument) -> Result<LeadingValues<'a>> {
        self.paths.iter().map(|path| value_at(document, path)).collect()
    }

    /// Whether a change below these paths may change a document's record key. `_id` does not change.
    pub fn depends_on(&self, touched: &[Path]) -> bool {
        let overlap = |path: &Vec<String>| {
            touched.iter().any(|touched| {
                let names = touched.components().iter().map(bsonval::path::Component::name);
                path.iter().map(String::as_str).zip(names).all(|(a, b)| a == b)
            })
        };
        self.paths.iter().any(overlap)
    }
}

/// The value of one field of a primary key.
fn value_at<'a>(document: &'a RawDocument, path: &[String]) -> Result<RawBsonRef<'a>> {
    let refused = |number: i32, what: &str| {
        let path = path.join(".");
        Err(Error::location(
            number,
            format!("{what} cannot be in the primary key, found at '{path}'"),
        ))
    };
    let mut value = RawBsonRef::Document(document);
    for name in path {
        let RawBsonRef::Document(inner) = value else { return Ok(RawBsonRef::Null) };
        value = raw::field(inner, name)?.unwrap_or(RawBsonRef::Null);
        if matches!(value, RawBsonRef::Array(_)) {
            return refused(17205, "an array");
        }
    }
    match value {
        RawBsonRef::RegularExpression(_) => refused(17208, "a regular expression"),
        RawBsonRef::Undefined => refused(17210, "an undefined value"),
        value => Ok(value),
    }
}

/// What a stored document is found by: the key of its record in the primary dictionary, and the
/// values that the key begins with.
#[derive(Clone, Copy, Debug)]
pub struct RecordKey<'a> {
    /// Of the primary key's fields before `_id`, once they are known.
    leading: &'a [RawBsonRef<'a>],
    id: RawBsonRef<'a>,
    bytes: &'a [u8],
}

impl<'a> RecordKey<'a> {
    /// Of a document with this `_id` under `bytes`.
    pub fn new(id: RawBsonRef<'a>, bytes: &'a [u8]) -> Self {
        Self { leading: &[], id, bytes }
    }

    /// Of the document that stands under `bytes`. What has no `_id` is damaged, and counts as null.
    pub fn of(document: &'a RawDocument, bytes: &'a [u8]) -> Result<Self> {
        Ok(Self::new(raw::field(document, "_id")?.unwrap_or(RawBsonRef::Null), bytes))
    }

    /// The same in a collection whose primary key has these values before `_id`.
    pub(super) fn behind<'b>(self, leading: &'b [RawBsonRef<'b>]) -> RecordKey<'b>
    where
        'a: 'b,
    {
        RecordKey { leading, id: self.id, bytes: self.bytes }
    }

    /// Appends its values; `_id` is the last, and ascends.
    pub(super) fn append_to(
        &self,
        builder: &mut KeyBuilder,
        directions: &[Direction],
        collation: Option<&Collation>,
    ) -> Result<()> {
        for (value, direction) in self.leading.iter().zip(directions) {
            builder.append_under(*value, *direction, collation).map_err(bad_key)?;
        }
        builder.append_under(self.id, Direction::Ascending, collation).map_err(bad_key)
    }

    /// What follows the keystring of its values: nothing, or in a time-series collection what tells
    /// measurements with one `_id` apart.
    pub(super) fn suffix(&self, values: &[u8]) -> Result<&'a [u8]> {
        self.bytes.strip_prefix(values).ok_or_else(|| {
            Error::new(Code::INTERNAL_ERROR, "stands under the key of another document")
        })
    }
}

/// The record key of a measurement whose `_id`, with this key, another one has.
pub fn shared_id_key(mut id_key: Vec<u8>, random: [u8; SUFFIX_BYTES - 1]) -> Vec<u8> {
    id_key.push(SUFFIX_MARK);
    id_key.extend_from_slice(&random);
    id_key
}

/// Whether this may follow the `_id` in the record key of such a measurement.
pub fn is_suffix(bytes: &[u8]) -> bool {
    bytes.len() == SUFFIX_BYTES && bytes[0] == SUFFIX_MARK
}

/// The keystring of an `_id` under the collection's collation: the record key where the primary key is
/// `_id` alone, else the key in the index on `_id`.
pub fn id_key(id: RawBsonRef<'_>, collation: Option<&Collation>) -> Result<Vec<u8>> {
    id_key_in(Vec::new(), id, collation)
}

/// The same, written into `room` in place of what that holds.
pub fn id_key_in(
    mut room: Vec<u8>,
    id: RawBsonRef<'_>,
    collation: Option<&Collation>,
) -> Result<Vec<u8>> {
    room.clear();
    room.reserve(USUAL_BYTES);
    let mut builder = KeyBuilder::reusing(room);
    builder.append_under(id, Direction::Ascending, collation).map_err(bad_key)?;
    Ok(builder.into_bytes())
}

/// The keystring's complaint in the client's words.
pub fn bad_key(error: keystring::Error) -> Error {
    match error {
        keystring::Error::TooDeep => Error::new(Code::OVERFLOW, error.to_string()),
        keystring::Error::Bson(text) => Error::new(Code::INVALID_BSON, text),
        other => Error::new(Code::INTERNAL_ERROR, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, Document, doc};

    fn parse(pattern: &Document) -> Result<Option<PrimaryKey>> {
        PrimaryKey::parse(&RawDocumentBuf::try_from(pattern).unwrap())
    }

    fn key_of(pattern: &Document, document: &Document) -> Result<Vec<u8>> {
        let document = RawDocumentBuf::try_from(document).unwrap();
        let id = document.get("_id").unwrap().unwrap();
        parse(pattern).unwrap().unwrap().record_key(&document, id, None)
    }

    #[test]
    fn primary_keys_end_in_id() {
        for (pattern, code) in [
            (doc! { "a": 1 }, 17203),
            (doc! { "_id": 1, "a": 1 }, 17203),
            (doc! { "a": 1, "_id": -1 }, 17203),
            (doc! { "a": 1, "_id": 5 }, 17203),
            (doc! { "a": 1, "_id": "hashed" }, 17203),
            (doc! { "_id": "hashed" }, 17203),
            (doc! {}, 67),
            (doc! { "a": "hashed", "_id": 1 }, 67),
            (doc! { "a": "2dsphere", "_id": 1 }, 67),
            (doc! { "$**": 1, "_id": 1 }, 67),
            (doc! { "a": "text", "_id": 1 }, 67),
            (doc! { "a": 0, "_id": 1 }, 67),
            (doc! { "a.": 1, "_id": 1 }, 67),
        ] {
            assert_eq!(parse(&pattern).unwrap_err().code().0, code, "{pattern}");
        }
        assert_eq!(parse(&doc! { "_id": 1 }).unwrap(), None);
        assert_eq!(parse(&doc! { "_id": 1.0 }).unwrap(), None);
        let key = parse(&doc! { "a": 1, "b.c": -1, "_id": 1 }).unwrap().unwrap();
        let paths: Vec<&str> = key.parts().iter().map(|part| &part.path[..]).collect();
        assert_eq!(paths, ["a", "b.c", "_id"]);
    }

    #[test]
    fn documents_stand_in_the_order_of_the_primary_key() {
        let pattern = doc! { "a": 1, "b.c": -1, "_id": 1 };
        let ascending = [
            doc! { "_id": 9 },
            doc! { "_id": 3, "a": 1, "b": { "c": 7 } },
            doc! { "_id": 1, "a": 1, "b": { "c": 5 } },
            doc! { "_id": 2, "a": 1, "b": { "c": 5.0 } },
            doc! { "_id": 0, "a": 1, "b": 8 },
            doc! { "_id": 0, "a": "x" },
        ];
        let keys: Vec<Vec<u8>> =
            ascending.iter().map(|document| key_of(&pattern, document).unwrap()).collect();
        assert!(keys.is_sorted() && keys.windows(2).all(|two| two[0] != two[1]));
    }

    #[test]
    fn a_primary_key_holds_no_arrays_regular_expressions_or_undefined_values() {
        let pattern = doc! { "a.b": 1, "_id": 1 };
        let regex = Bson::RegularExpression(bson::Regex {
            pattern: "x".try_into().unwrap(),
            options: "".try_into().unwrap(),
        });
        for (value, code) in [
            (Bson::Array(vec![]), 17205),
            (Bson::Document(doc! { "b": [1] }), 17205),
            (Bson::Document(doc! { "b": regex }), 17208),
            (Bson::Document(doc! { "b": Bson::Undefined }), 17210),
        ] {
            let refused = key_of(&pattern, &doc! { "_id": 1, "a": value }).unwrap_err();
            assert_eq!(refused.code().0, code);
        }
        let missing = key_of(&pattern, &doc! { "_id": 1 }).unwrap();
        assert_eq!(key_of(&pattern, &doc! { "_id": 1, "a": { "b": null } }).unwrap(), missing);
        assert_eq!(key_of(&pattern, &doc! { "_id": 1, "a": 5 }).unwrap(), missing);
    }

    #[test]
    fn changes_beside_the_primary_key_do_not_move_a_document() {
        let key = parse(&doc! { "a.b": 1, "c": 1, "_id": 1 }).unwrap().unwrap();
        for (path, depends) in
            [("a", true), ("a.b", true), ("a.b.x", true), ("a.c", false), ("c", true), ("d", false)]
        {
            assert_eq!(key.depends_on(&[Path::new(path)]), depends, "{path}");
        }
    }

    #[test]
    fn measurements_that_share_their_id_stand_behind_it_and_before_what_follows() {
        let id = id_key(RawBsonRef::Int32(7), None).unwrap();
        for random in [[0; 8], [0xFF; 8]] {
            let shared = shared_id_key(id.clone(), random);
            assert!(is_suffix(&shared[id.len()..]));
            assert!(shared > id && shared < [&id[..], &[0xFF]].concat());
        }
        assert!(!is_suffix(&[0; SUFFIX_BYTES]) && !is_suffix(&[SUFFIX_MARK]));
    }
}
