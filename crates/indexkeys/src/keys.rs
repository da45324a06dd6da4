//! The keys a document has in an index, and reading them back.
//!
//! An entry of a non-unique index is `keystring(parts) ++ record key` → type bits of all of it; of a
//! unique index `keystring(parts)` → record key ++ type bits. The record key is the keystring of the
//! collection's primary key, mostly `_id` alone (see [`RecordKey`]). Type bits are empty for the usual
//! types, so most entries have an empty value. An entry of a clustering index holds its document too:
//! the value's length as a varint, the value, the document. Under a collation strings are sort keys:
//! those of the parts under the index's, those of the record key under the collection's. Parts of
//! geometry hold cells, see [`geo`]. On disk: `docs/formats/catalog.md`.
//!
//! A primary key that is not `_id` alone is read as a clustering index too, whose entries are the
//! records themselves: [`KeyMaker::of_records`].
//!
//! Arrays, as MongoDB has it: an array on a path gives one key per element, a missing field is
//! null, an empty array at the end of a path is undefined, two arrays side by side are refused.

mod geo;

use super::record_key::{PrimaryKey, RecordKey, bad_key};
use super::text::{TextKeys, plain_value};
use super::wildcard::WildcardValue;
use super::{IndexSpec, PartKind, Wildcard};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::{Bson, RawBson};
use bsonval::path::{Component, array_index};
use bsonval::{Path, raw};
use errors::{Code, Error, Result};
use keystring::{Collation, Direction, KeyBuilder};
use matcher::Filter;
use smallvec::SmallVec;
use std::sync::Arc;

/// Bytes of entries that a document may have in an index where they multiply: by paths, by arrays of
/// several parts, by the document itself.
const MAX_BYTES: usize = 64 << 20;
/// What an entry's key usually needs.
const ENTRY_BYTES: usize = 64;

/// One entry of an index's dictionary.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IndexKey {
    /// The dictionary's key.
    pub key: Vec<u8>,
    /// The dictionary's value.
    pub value: Vec<u8>,
}

/// The entries of one document, ascending and distinct.
#[derive(Clone, Debug, Default)]
pub struct DocumentKeys {
    /// What the dictionary holds.
    pub entries: Vec<IndexKey>,
    /// Bit `i` is set where part `i` met an array.
    pub multikey: u32,
}

/// Makes and reads the keys of one index.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent options, not states")]
pub struct KeyMaker {
    paths: Vec<Vec<String>>,
    directions: Vec<Direction>,
    pub(crate) unique: bool,
    pub(crate) clustering: bool,
    sparse: bool,
    partial: Option<Box<Filter>>,
    /// The part that is hashed.
    hashed: Option<usize>,
    /// The part that is two values of an entry, a path and what stands there; `paths` leaves it out.
    wildcard: Option<Wildcard>,
    /// The parts that are terms and scores.
    text: Option<Box<TextKeys>>,
    /// What the parts hold, where some hold geometry.
    geo: Option<Box<geo::GeoParts>>,
    /// The collation of the parts.
    collation: Option<Collation>,
    /// The collation in record keys.
    record_collation: Option<Collation>,
    /// The fields in record keys, where `_id` is not the only one.
    primary_key: Option<Arc<PrimaryKey>>,
    /// The entries are the records themselves.
    holds_records: bool,
}

/// Where one part of the key stands while a document is taken apart.
#[derive(Clone, Copy)]
enum PartValue<'a> {
    /// Found, or missing.
    Done(Option<RawBsonRef<'a>>),
    /// The path goes on from this component, in the document at hand.
    Pending(usize),
    /// The path met an array; it goes on from this component in each element.
    AtArray(usize),
}

enum Found<'a> {
    Value(Option<RawBsonRef<'a>>),
    Array(&'a RawArray, usize),
}

type PartValues<'a> = SmallVec<[PartValue<'a>; 4]>;

/// What a hashed part holds of a value: MongoDB's own hash, equal for values that compare as equal.
/// On disk, so it never changes.
pub fn hash(value: RawBsonRef<'_>, collation: Option<&Collation>) -> Result<i64> {
    match collation.filter(|_| keystring::is_collatable(value)) {
        None => bsonval::hashed_key(value),
        Some(collation) => {
            bsonval::hashed_key(collation.transform(value).map_err(bad_key)?.as_raw_bson_ref())
        }
    }
}

/// Refuses a document that would have too much in an index, before it fills the memory.
pub(super) fn check_bytes(bytes: usize) -> Result<()> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(Error::new(
        Code::CANNOT_BUILD_INDEX_KEYS,
        format!("the entries of one document in one index may not exceed {MAX_BYTES} bytes"),
    ))
}

/// A list without room for more. Collected ones have room for four at least, and indexes are many.
fn without_spare_room<T>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list: Vec<T> = items.collect();
    list.shrink_to_fit();
    list
}

impl KeyMaker {
    /// Of an index of a collection whose record keys have this collation.
    pub fn new(spec: &IndexSpec, record_collation: Option<Collation>) -> Self {
        Self {
            paths: without_spare_room(
                spec.parts
                    .iter()
                    .filter(|part| part.kind != PartKind::Wildcard)
                    .map(|part| without_spare_room(part.path.split('.').map(str::to_owned))),
            ),
            directions: spec
                .parts
                .iter()
                .flat_map(|part| {
                    let own =
                        if part.descending { Direction::Descending } else { Direction::Ascending };
                    let path = (part.kind == PartKind::Wildcard).then_some(Direction::Ascending);
                    path.into_iter().chain([own])
                })
                .collect(),
            unique: spec.unique,
            clustering: spec.clustering,
            sparse: spec.sparse,
            hashed: spec.parts.iter().position(|part| part.kind == PartKind::Hashed),
            wildcard: spec.wildcard.clone(),
            text: spec.text.as_ref().map(|text| Box::new(TextKeys::new(text))),
            geo: geo::GeoParts::of(spec).map(Box::new),
            partial: spec.partial.as_ref().map(|partial| Box::new(partial.filter.clone())),
            collation: spec.collation.clone(),
            record_collation,
            primary_key: None,
            holds_records: false,
        }
    }

    /// The same in a collection whose documents are clustered by this key.
    #[must_use]
    pub fn under(self, primary_key: Option<Arc<PrimaryKey>>) -> Self {
        Self { primary_key, ..self }
    }

    /// Of a primary key that is read as an index. It makes no keys: the records are its entries.
    pub fn of_records(spec: &IndexSpec, primary_key: Arc<PrimaryKey>) -> Self {
        let collation = spec.collation.clone();
        Self { holds_records: true, ..Self::new(spec, collation).under(Some(primary_key)) }
    }

    /// Whether a document without arrays has one entry, of the values of its fields, or none.
    pub fn is_of_values(&self) -> bool {
        self.partial.is_none()
            && self.hashed.is_none()
            && self.wildcard.is_none()
            && self.text.is_none()
            && self.geo.is_none()
            && !self.holds_records
    }

    /// Whether the entries are the records themselves.
    pub fn holds_records(&self) -> bool {
        self.holds_records
    }

    /// The direction of each value of a record key.
    pub(crate) fn record_directions(&self) -> &[Direction] {
        self.primary_key.as_ref().map_or(&[Direction::Ascending], |key| key.directions())
    }

    /// The direction of each value of an entry: one a part, two for a wildcard.
    pub fn directions(&self) -> &[Direction] {
        &self.directions
    }

    /// Whether a change below these paths may change a document's entries.
    pub fn depends_on(&self, touched: &[Path]) -> bool {
        self.partial.is_some()
            || self.clustering
            || self.primary_key.as_ref().is_some_and(|key| key.depends_on(touched))
            || self.wildcard.as_ref().is_some_and(|part| part.depends_on(touched, overlap))
            || self.paths.iter().any(|part| touched.iter().any(|path| overlap(part, path)))
            || self.text.as_ref().is_some_and(|text| match &text.paths {
                None => !touched.is_empty(),
                Some(paths) => {
                    paths.iter().any(|part| touched.iter().any(|path| overlap(part, path)))
                }
            })
    }

    /// Whether two versions of a document surely have the same entries: the fields that the index's paths begin with
    /// have the same values, to the byte.
    pub fn has_same_values(&self, old: &RawDocument, new: &RawDocument) -> bool {
        let is_same = |path: &Vec<String>| {
            let value = |document| raw::field_by_bytes(document, &path[0]);
            match (value(old), value(new)) {
                (Ok(Some(RawBsonRef::Double(old))), Ok(Some(RawBsonRef::Double(new)))) => {
                    old.to_bits() == new.to_bits()
                }
                (Ok(old), Ok(new)) => old == new,
                _ => false,
            }
        };
        let depends_on_these_alone =
            self.is_of_values() && !self.clustering && self.primary_key.is_none();
        depends_on_these_alone && self.paths.iter().all(is_same)
    }

    /// The entries of a document.
    pub fn make(&self, document: &RawDocument, record: RecordKey<'_>) -> Result<DocumentKeys> {
        assert!(!self.holds_records, "what is written to the records is no entry of an index");
        let Some(key) = &self.primary_key else { return self.make_behind(document, record) };
        let leading = key.leading_values(document)?;
        self.make_behind(document, record.behind(&leading))
    }

    /// The entries of a document whose record key is known with all its values.
    fn make_behind(&self, document: &RawDocument, record: RecordKey<'_>) -> Result<DocumentKeys> {
        let mut keys = DocumentKeys::default();
        if let Some(filter) = &self.partial
            && !filter.matches(document)?
        {
            return Ok(keys);
        }
        if let Some(text) = &self.text {
            return self.make_text(text, document, record);
        }
        if self.hashed.is_some() {
            keys = self.make_hashed(document, record)?;
            self.cluster(&mut keys, document)?;
            return Ok(keys);
        }
        if let Some(geo) = &self.geo {
            keys = self.make_geo(geo, document, record)?;
            self.cluster(&mut keys, document)?;
            return Ok(keys);
        }
        if self.wildcard.is_none()
            && let Some(part_values) = self.values_without_arrays(document)?
        {
            keys.entries.extend(self.entry_unless_missing(&part_values, record)?);
            self.cluster(&mut keys, document)?;
            return Ok(keys);
        }
        let part_values: PartValues<'_> =
            self.paths.iter().map(|_| PartValue::Pending(0)).collect();
        let wildcard = self.wildcard.as_ref().map(|part| part.values(document)).transpose()?;
        let wildcard = wildcard.unwrap_or_default();
        if let (Some(part), true) = (&self.wildcard, wildcard.met_array) {
            keys.multikey |= 1 << (part.at() + 1);
        }
        let values = &wildcard.list[..];
        let mut expansion = Expansion { maker: self, record, keys: &mut keys, values, bytes: 0 };
        expansion.expand(document, part_values)?;
        if keys.entries.len() > 1 {
            keys.entries.sort_unstable();
            keys.entries.dedup_by(|b, a| a.key == b.key);
        }
        self.cluster(&mut keys, document)?;
        Ok(keys)
    }

    /// The values of a document that has no array on the paths, as most have none.
    fn values_without_arrays<'a>(
        &self,
        document: &'a RawDocument,
    ) -> Result<Option<PartValues<'a>>> {
        let mut part_values = PartValues::new();
        for path in &self.paths {
            let Found::Value(value) = walk(document, path, 0)? else { return Ok(None) };
            part_values.push(PartValue::Done(value));
        }
        Ok(Some(part_values))
    }

    /// The entry of these values; none in a sparse index where all are missing.
    fn entry_unless_missing(
        &self,
        part_values: &PartValues<'_>,
        record: RecordKey<'_>,
    ) -> Result<Option<IndexKey>> {
        let all_missing =
            part_values.iter().all(|part_value| matches!(part_value, PartValue::Done(None)));
        if self.sparse && all_missing {
            return Ok(None);
        }
        self.entry(part_values, record).map(Some)
    }

    /// Where the value of one of `paths` stands in an entry.
    fn place(&self, at: usize) -> usize {
        match &self.wildcard {
            Some(part) if at >= part.at() => at + 2,
            _ => at,
        }
    }

    /// Puts the document into its entries, where the index is clustering.
    fn cluster(&self, keys: &mut DocumentKeys, document: &RawDocument) -> Result<()> {
        if !self.clustering {
            return Ok(());
        }
        // One entry is as large as its document may be; several may be too much.
        if keys.entries.len() > 1 {
            check_bytes(keys.entries.len().saturating_mul(document.as_bytes().len()))?;
        }
        for entry in &mut keys.entries {
            let own = std::mem::take(&mut entry.value);
            entry.value.reserve_exact(own.len() + document.as_bytes().len() + 4);
            put_length(&mut entry.value, own.len());
            entry.value.extend_from_slice(&own);
            entry.value.extend_from_slice(document.as_bytes());
        }
        Ok(())
    }

    /// An entry's value as an index that is not clustering has it, and the document.
    fn split_document<'a>(&self, value: &'a [u8]) -> Result<(&'a [u8], &'a [u8])> {
        if !self.clustering {
            return Ok((value, &[]));
        }
        if self.holds_records {
            return Ok((&[], value));
        }
        take_length(value)
            .and_then(|(len, rest)| rest.split_at_checked(len))
            .ok_or_else(|| Error::new(Code::INTERNAL_ERROR, "damaged entry of a clustering index"))
    }

    /// The document in an entry of a clustering index; `None` in others.
    pub fn document_of<'a>(&self, value: &'a [u8]) -> Result<Option<&'a [u8]>> {
        Ok(if self.clustering { Some(self.split_document(value)?.1) } else { None })
    }

    /// The one entry of a document in a hashed index, which takes no arrays.
    fn make_hashed(&self, document: &RawDocument, record: RecordKey<'_>) -> Result<DocumentKeys> {
        let mut part_values: PartValues<'_> = PartValues::new();
        for (at, path) in self.paths.iter().enumerate() {
            let value = without_arrays(document, path)?;
            part_values.push(PartValue::Done(match value {
                _ if self.hashed != Some(at) => value,
                // A missing field is still missing, for sparse indexes; `entry` hashes its null.
                None => None,
                Some(value) => Some(RawBsonRef::Int64(hash(value, self.collation.as_ref())?)),
            }));
        }
        let mut keys = DocumentKeys::default();
        let all_missing =
            part_values.iter().all(|part_value| matches!(part_value, PartValue::Done(None)));
        if self.sparse && all_missing {
            return Ok(keys);
        }
        if let Some(at) = self.hashed
            && matches!(part_values[at], PartValue::Done(None))
        {
            part_values[at] =
                PartValue::Done(Some(RawBsonRef::Int64(hash(RawBsonRef::Null, None)?)));
        }
        keys.entries.push(self.entry(&part_values, record)?);
        Ok(keys)
    }

    /// An entry for each distinct term of a document's texts.
    fn make_text(
        &self,
        text: &TextKeys,
        document: &RawDocument,
        record: RecordKey<'_>,
    ) -> Result<DocumentKeys> {
        let term_at = text.index.prefix();
        let mut others: SmallVec<[Option<RawBsonRef<'_>>; 4]> = SmallVec::new();
        for (at, path) in self.paths.iter().enumerate() {
            let is_text = (term_at..=term_at + 1).contains(&at);
            others.push(if is_text { None } else { plain_value(document, path)? });
        }
        let mut keys = DocumentKeys::default();
        for (term, score) in &text.index.fields().scores(document)? {
            let term = fulltext::index_term(term);
            let mut part_values: PartValues<'_> =
                others.iter().map(|value| PartValue::Done(*value)).collect();
            part_values[term_at] = PartValue::Done(Some(RawBsonRef::String(&term)));
            part_values[term_at + 1] = PartValue::Done(Some(RawBsonRef::Double(*score)));
            keys.entries.push(self.entry(&part_values, record)?);
        }
        keys.entries.sort_unstable();
        Ok(keys)
    }

    fn entry(&self, part_values: &PartValues<'_>, record: RecordKey<'_>) -> Result<IndexKey> {
        let mut builder = KeyBuilder::reusing(Vec::with_capacity(ENTRY_BYTES));
        for (part_value, direction) in part_values.iter().zip(&self.directions) {
            let value = match part_value {
                PartValue::Done(Some(value)) => *value,
                _ => RawBsonRef::Null,
            };
            builder.append_under(value, *direction, self.collation.as_ref()).map_err(bad_key)?;
        }
        let parts_end = builder.as_bytes().len();
        record.append_to(&mut builder, self.record_directions(), self.record_collation.as_ref())?;
        let (mut key, bits) = builder.finish();
        let suffix = record.suffix(&key[parts_end..])?;
        if !self.unique {
            key.extend_from_slice(suffix);
            return Ok(IndexKey { key, value: bits.as_bytes().to_vec() });
        }
        if !suffix.is_empty() {
            return Err(Error::new(
                Code::INTERNAL_ERROR,
                "a unique index of a collection whose documents may share their _id",
            ));
        }
        let mut value = key.split_off(parts_end);
        value.extend_from_slice(bits.as_bytes());
        Ok(IndexKey { key, value })
    }

    /// The key of the record that an entry points to.
    pub fn record_key_of<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Result<&'a [u8]> {
        if self.holds_records {
            return Ok(key);
        }
        if self.unique {
            let (value, _) = self.split_document(value)?;
            let end = keystring::skip(value, self.record_directions()).map_err(bad_key)?;
            return Ok(&value[..end]);
        }
        let start = keystring::skip(key, &self.directions).map_err(bad_key)?;
        Ok(&key[start..])
    }

    /// The part of a key of an index that is not unique before the record key.
    pub fn values_of<'a>(&self, key: &'a [u8]) -> Result<&'a [u8]> {
        let end = keystring::skip(key, &self.directions).map_err(bad_key)?;
        Ok(&key[..end])
    }

    /// Whether entries tell the values they were made of: sort keys do not.
    pub fn can_return_values(&self) -> bool {
        self.collation.is_none() && self.record_collation.is_none() && !self.holds_records
    }

    /// The values of an entry: the parts, then those of the record key, of which `_id` is the last, with
    /// their exact types. Under a collation strings come as their sort keys, see
    /// [`keystring::decode_collated`].
    pub fn values(&self, key: &[u8], value: &[u8]) -> Result<Vec<Bson>> {
        let mut directions: SmallVec<[Direction; 8]> = self.directions.iter().copied().collect();
        directions.extend_from_slice(self.record_directions());
        let (value, _) = self.split_document(value)?;
        let decode =
            if self.can_return_values() { keystring::decode } else { keystring::decode_collated };
        if !self.unique && self.can_return_values() {
            // What follows `_id` tells apart measurements that share it.
            let (values, _) = keystring::decode_prefix(key, value, &directions).map_err(bad_key)?;
            return Ok(values);
        }
        if !self.unique {
            let end = keystring::skip(key, &directions).map_err(bad_key)?;
            return decode(&key[..end], value, &directions).map_err(bad_key);
        }
        let end = keystring::skip(value, self.record_directions()).map_err(bad_key)?;
        let whole = [key, &value[..end]].concat();
        decode(&whole, &value[end..], &directions).map_err(bad_key)
    }

    /// The part values of an entry's key, for messages: types are the default ones, and sort keys
    /// are shown in hexadecimal, as MongoDB does.
    pub fn parts_of(&self, key: &[u8], value: &[u8]) -> Vec<RawBson> {
        self.values(key, value)
            .map(|values| {
                values
                    .into_iter()
                    .take(self.directions.len())
                    .map(|value| RawBson::try_from(value).unwrap_or(RawBson::Null))
                    .map(|value| match value {
                        RawBson::String(key) if self.collation.is_some() => {
                            RawBson::String(hexadecimal(key.chars().map(|c| c as u8)))
                        }
                        value => value,
                    })
                    .collect()
            })
            .unwrap_or_default()
    }
}

/// `0x…`, as messages show a sort key.
pub fn hexadecimal(bytes: impl IntoIterator<Item = u8>) -> String {
    bytes.into_iter().fold("0x".to_owned(), |mut text, byte| {
        text.extend(
            [byte >> 4, byte & 0xF]
                .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])),
        );
        text
    })
}

/// Appends a length as LEB128.
fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// A length and what follows it.
fn take_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut length = 0;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return Some((length, &bytes[at + 1..]));
        }
    }
    None
}

/// Whether one path may lead into the other. `a.0` leads into `a.c`: a number may stand for the
/// element that the other path passes through, so numbers are left out of the comparison.
fn overlap(part: &[String], touched: &Path) -> bool {
    // Most paths differ at once, and begin with no number.
    if let (Some(name), Some(other)) = (part.first(), touched.components().first())
        && name != other.name()
        && other.index().is_none()
        && array_index(name).is_none()
    {
        return false;
    }
    let fields = part.iter().map(String::as_str).filter(|name| array_index(name).is_none());
    let touched = touched.components().iter().filter(|c| c.index().is_none()).map(Component::name);
    fields.zip(touched).all(|(a, b)| a == b)
}

struct Expansion<'k, 'i> {
    maker: &'k KeyMaker,
    record: RecordKey<'i>,
    keys: &'k mut DocumentKeys,
    /// What the wildcard part holds.
    values: &'k [WildcardValue<'i>],
    /// Of its entries: arrays in other parts multiply them.
    bytes: usize,
}

impl Expansion<'_, '_> {
    /// Resolves the pending parts in `document`; depth is bounded by the paths' lengths.
    fn expand<'a>(
        &mut self,
        document: &'a RawDocument,
        mut part_values: PartValues<'a>,
    ) -> Result<()> {
        let mut array: Option<(&'a RawArray, &str)> = None;
        for (at, part_value) in part_values.iter_mut().enumerate() {
            let PartValue::Pending(from) = *part_value else { continue };
            let path = &self.maker.paths[at];
            match walk(document, path, from)? {
                Found::Value(value) => *part_value = PartValue::Done(value),
                Found::Array(found, next) => {
                    let name = path[next - 1].as_str();
                    match array {
                        Some((known, other)) if !std::ptr::eq(known, found) => {
                            return Err(Error::new(
                                Code::CANNOT_INDEX_PARALLEL_ARRAYS,
                                format!("cannot index parallel arrays [{name}] [{other}]"),
                            ));
                        }
                        _ => array = Some((found, name)),
                    }
                    self.keys.multikey |= 1 << self.maker.place(at);
                    *part_value = PartValue::AtArray(next);
                }
            }
        }
        let Some((array, _)) = array else { return self.emit(&part_values) };
        let mut empty = true;
        for element in array {
            empty = false;
            self.expand_element(element?, &part_values)?;
        }
        if empty {
            self.expand_element(RawBsonRef::Undefined, &part_values)?;
        }
        Ok(())
    }

    fn expand_element<'a>(
        &mut self,
        element: RawBsonRef<'a>,
        part_values: &PartValues<'a>,
    ) -> Result<()> {
        let mut inner = part_values.clone();
        let document = element.as_document();
        for (part_value, path) in inner.iter_mut().zip(&self.maker.paths) {
            if let PartValue::AtArray(next) = *part_value {
                *part_value = match document {
                    _ if next == path.len() => PartValue::Done(Some(element)),
                    Some(_) => PartValue::Pending(next),
                    None => PartValue::Done(None),
                };
            }
        }
        match document {
            Some(document) => self.expand(document, inner),
            None => self.emit(&inner),
        }
    }

    fn emit(&mut self, part_values: &PartValues<'_>) -> Result<()> {
        if let Some(part) = &self.maker.wildcard {
            for value in self.values {
                let mut all: PartValues<'_> = part_values.iter().copied().collect();
                all.insert(part.at(), PartValue::Done(Some(value.path())));
                all.insert(part.at() + 1, PartValue::Done(Some(value.value)));
                let entry = self.maker.entry(&all, self.record)?;
                self.bytes += entry.key.len() + entry.value.len();
                check_bytes(self.bytes)?;
                self.keys.entries.push(entry);
            }
            return Ok(());
        }
        let entry = self.maker.entry_unless_missing(part_values, self.record)?;
        self.keys.entries.extend(entry);
        Ok(())
    }
}

/// Follows `path` from component `from` through documents until it ends or meets an array.
fn walk<'a>(document: &'a RawDocument, path: &[String], from: usize) -> Result<Found<'a>> {
    let mut at = from;
    let mut value = raw::field_by_bytes(document, &path[at])?;
    at += 1;
    loop {
        match value {
            Some(RawBsonRef::Array(array)) => {
                let Some(position) = path.get(at).and_then(|name| name.parse::<usize>().ok())
                else {
                    return Ok(Found::Array(array, at));
                };
                let Some(element) = array.get(position)? else {
                    return Ok(Found::Array(array, at));
                };
                refuse_ambiguous(array, &path[at])?;
                value = Some(element);
                at += 1;
            }
            value if at == path.len() => return Ok(Found::Value(value)),
            Some(RawBsonRef::Document(inner)) => {
                value = raw::field_by_bytes(inner, &path[at])?;
                at += 1;
            }
            _ => return Ok(Found::Value(None)),
        }
    }
}

/// Follows `path` through documents; an array on it is an error.
fn without_arrays<'a>(
    document: &'a RawDocument,
    path: &[String],
) -> Result<Option<RawBsonRef<'a>>> {
    let mut value = Some(RawBsonRef::Document(document));
    for (at, name) in path.iter().enumerate() {
        let Some(RawBsonRef::Document(inner)) = value else { return Ok(None) };
        value = raw::field_by_bytes(inner, name)?;
        if matches!(value, Some(RawBsonRef::Array(_))) {
            return Err(Error::location(
                16766,
                format!(
                    "hashed indexes do not currently support array values. Found array at path: {}",
                    path[..=at].join(".")
                ),
            ));
        }
    }
    Ok(value)
}

/// `a.0` cannot mean both an element and a field of the elements.
fn refuse_ambiguous(array: &RawArray, name: &str) -> Result<()> {
    for element in array {
        if let RawBsonRef::Document(document) = element?
            && document.get(name)?.is_some()
        {
            return Err(Error::location(
                16746,
                format!(
                    "Ambiguous field name found in array (do not use numeric field names in \
                     embedded elements in an array), field: '{name}'"
                ),
            ));
        }
    }
    Ok(())
}

/// The keystring of the number 7, for tests.
#[cfg(test)]
pub(super) const SEVEN: [u8; 2] = [0x2b, 0x0e];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id_key;
    use bson::{Document, RawDocumentBuf, bson, doc};

    fn maker(spec: Document) -> KeyMaker {
        let mut spec = spec;
        spec.insert("name", "x");
        KeyMaker::new(&IndexSpec::parse(&RawDocumentBuf::try_from(&spec).unwrap()).unwrap(), None)
    }

    #[test]
    fn same_values_make_the_same_entries() {
        let raw = |document: &Document| RawDocumentBuf::try_from(document).unwrap();
        let values = || {
            [
                bson!(1),
                bson!(1_i64),
                bson!(1.0),
                bson!(0.0),
                bson!(-0.0),
                bson!("a"),
                bson!(null),
                bson!([1, 2]),
                bson!([1, 2.0]),
                bson!({ "b": 1 }),
                bson!({ "b": 1.0 }),
            ]
        };
        let documents: Vec<_> = values()
            .into_iter()
            .flat_map(|value| [doc! { "a": value.clone(), "c": 1 }, doc! { "c": 1, "a": value }])
            .chain([doc! { "c": 1 }, doc! { "c": 2 }])
            .map(|mut document| {
                document.insert("_id", 7);
                raw(&document)
            })
            .collect();
        let partial = doc! { "c": { "$gt": 1 } };
        for spec in [
            doc! { "key": { "a": 1 } },
            doc! { "key": { "a.b": 1, "c": -1 } },
            doc! { "key": { "a": 1 }, "partialFilterExpression": partial },
            doc! { "key": { "a": 1 }, "clustering": true },
            doc! { "key": { "a.$**": 1 } },
        ] {
            let (maker, mut same) = (maker(spec.clone()), 0);
            for old in &documents {
                for new in &documents {
                    if maker.has_same_values(old, new) {
                        same += 1;
                        let id = id_key(RawBsonRef::Int32(7), None).unwrap();
                        let of = |document| {
                            maker.make(document, RecordKey::of(document, &id).unwrap()).unwrap()
                        };
                        let (old_keys, new_keys) = (of(old), of(new));
                        assert_eq!(old_keys.entries, new_keys.entries, "{spec}: {old:?} {new:?}");
                    }
                }
            }
            let is_of_values = spec.len() == 1 && !format!("{spec}").contains("$**");
            assert_eq!(same > 0, is_of_values, "{spec}");
        }
    }

    #[test]
    fn a_wildcard_part_is_a_path_and_a_value() {
        let path = |path: &str| Bson::try_from(Wildcard::path_value(path)).unwrap();
        let found =
            |key: Document, document: Document| parts(doc! { "key": key }, &document).unwrap();
        assert_eq!(
            found(
                doc! { "a": 1, "w.$**": -1, "z": 1 },
                doc! { "a": [1, 2], "w": { "x": 5 }, "z": 9 }
            ),
            [
                [bson!(1), path("w.x"), bson!(5), bson!(9)],
                [bson!(2), path("w.x"), bson!(5), bson!(9)],
            ]
        );
        assert_eq!(
            found(doc! { "$**": 1 }, doc! { "_id": 7, "a": [3, { "b": 1 }] }),
            [[path("a"), bson!(3)], [path("a.b"), bson!(1)]]
        );
        assert!(found(doc! { "w.$**": 1 }, doc! { "a": 1 }).is_empty());
        let many = |count: i32| (0..count).map(Bson::Int32).collect::<Vec<_>>();
        let product = doc! { "a": many(4000), "w": many(4000) };
        let refused = parts(doc! { "key": { "a": 1, "w.$**": 1 } }, &product).unwrap_err();
        assert_eq!(refused.code(), Code::CANNOT_BUILD_INDEX_KEYS);
        let maker = maker(doc! { "key": { "a": 1, "w.$**": 1, "z": 1 } });
        let raw = RawDocumentBuf::try_from(&doc! { "w": [1], "z": [2] }).unwrap();
        assert_eq!(
            maker.make(&raw, RecordKey::new(RawBsonRef::Int32(7), &SEVEN)).unwrap().multikey,
            0b1100
        );
    }

    fn parts(spec: Document, document: &Document) -> Result<Vec<Vec<Bson>>> {
        let maker = maker(spec);
        let raw = RawDocumentBuf::try_from(document).unwrap();
        let keys = maker.make(&raw, RecordKey::new(RawBsonRef::Int32(7), &SEVEN))?;
        Ok(keys
            .entries
            .iter()
            .map(|entry| {
                assert_eq!(
                    maker.record_key_of(&entry.key, &entry.value).unwrap(),
                    id_key(RawBsonRef::Int32(7), None).unwrap()
                );
                let part = maker.record_part().unwrap();
                assert_eq!(
                    crate::record_part(&part, &entry.key, Some(&entry.value)),
                    maker.record_key_of(&entry.key, &entry.value).ok()
                );
                let mut values = maker.values(&entry.key, &entry.value).unwrap();
                assert_eq!(values.pop(), Some(Bson::Int32(7)));
                values
            })
            .collect())
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads as a table")]
    fn check(key: Document, document: Document, expected: Bson) {
        for unique in [false, true] {
            let found = parts(doc! { "key": key.clone(), "unique": unique }, &document).unwrap();
            let found: Vec<Bson> = found.into_iter().map(Bson::Array).collect();
            assert_eq!(Bson::Array(found), expected, "{key} of {document}");
        }
    }

    #[test]
    fn arrays_and_missing_fields_give_mongodbs_keys() {
        check(doc! { "a": 1 }, doc! { "a": 5 }, bson!([[5]]));
        check(doc! { "a": 1 }, doc! {}, bson!([[null]]));
        check(doc! { "a": 1 }, doc! { "a": [3, 1, 3] }, bson!([[1], [3]]));
        check(doc! { "a": -1 }, doc! { "a": [3, 1] }, bson!([[3], [1]]));
        check(doc! { "a": 1 }, doc! { "a": [] }, bson!([[(Bson::Undefined)]]));
        check(doc! { "a": 1 }, doc! { "a": [[1, 2]] }, bson!([[[1, 2]]]));
        check(doc! { "a.b": 1 }, doc! { "a": { "b": 1 } }, bson!([[1]]));
        check(doc! { "a.b": 1 }, doc! { "a": [1, { "b": 2 }] }, bson!([[null], [2]]));
        check(doc! { "a.b": 1 }, doc! { "a": [] }, bson!([[null]]));
        check(
            doc! { "a.b": 1 },
            doc! { "a": [{ "b": [1, 2] }, { "b": 3 }] },
            bson!([[1], [2], [3]]),
        );
        check(
            doc! { "a.b": 1, "a.c": -1 },
            doc! { "a": [{ "b": 1, "c": 2 }, { "b": 3 }] },
            bson!([[1, 2], [3, null]]),
        );
        check(doc! { "a": 1, "b": 1 }, doc! { "a": [1, 2], "b": 9 }, bson!([[1, 9], [2, 9]]));
        check(doc! { "a.0": 1 }, doc! { "a": [5, 6] }, bson!([[5]]));
        check(doc! { "a.0.b": 1 }, doc! { "a": [{ "b": 4 }, { "b": 6 }] }, bson!([[4]]));
        check(doc! { "a": 1 }, doc! { "a": 5.0 }, bson!([[5.0]]));
    }

    #[test]
    fn hashed_parts_hold_hashes() {
        let hashed = |value: Bson| {
            let raw = RawBson::try_from(value).unwrap();
            Bson::Int64(hash(raw.as_raw_bson_ref(), None).unwrap())
        };
        let spec = doc! { "key": { "a": 1, "b.c": "hashed" } };
        let found = parts(spec.clone(), &doc! { "a": 1, "b": { "c": 5 } }).unwrap();
        assert_eq!(found, [[bson!(1), hashed(bson!(5.0))]]);
        let found = parts(spec.clone(), &doc! { "b": 1 }).unwrap();
        assert_eq!(found, [[Bson::Null, hashed(Bson::Null)]]);
        assert_ne!(hashed(bson!("5")), hashed(bson!(5)));
        for (document, at) in [(doc! { "b": [{ "c": 1 }] }, "b"), (doc! { "a": [] }, "a")] {
            let error = parts(spec.clone(), &document).unwrap_err();
            assert_eq!(error.code().0, 16766);
            assert!(error.message().ends_with(&format!("path: {at}")), "{error}");
        }
        assert!(
            parts(doc! { "key": { "a": "hashed" }, "sparse": true }, &doc! {}).unwrap().is_empty()
        );
    }

    #[test]
    fn entries_end_in_the_record_key_and_tell_its_values() {
        let pattern = RawDocumentBuf::try_from(&doc! { "b": -1, "_id": 1 }).unwrap();
        let primary = Arc::new(PrimaryKey::parse(&pattern).unwrap().unwrap());
        let raw =
            RawDocumentBuf::try_from(&doc! { "_id": 7, "a": [1.0, 2.0], "b": 5_i64 }).unwrap();
        let record = primary.record_key(&raw, RawBsonRef::Int32(7), None).unwrap();
        for unique in [false, true] {
            let maker = maker(doc! { "key": { "a": 1 }, "unique": unique });
            let maker = maker.under(Some(Arc::clone(&primary)));
            let keys = maker.make(&raw, RecordKey::of(&raw, &record).unwrap()).unwrap();
            let values = [1.0, 2.0].map(|a| [bson!(a), bson!(5_i64), bson!(7)].to_vec());
            for (entry, values) in keys.entries.iter().zip(values) {
                let IndexKey { key, value } = entry;
                assert_eq!(maker.record_key_of(key, value).unwrap(), record);
                let part = maker.record_part().unwrap();
                assert_eq!(crate::record_part(&part, key, Some(value)), Some(&record[..]));
                assert_eq!(
                    crate::record_part(&part, key, None),
                    (!unique).then_some(&record[..]),
                    "where it is in the key the value is not needed"
                );
                assert_eq!(maker.values(key, value).unwrap(), values);
                assert_eq!(maker.parts_of(key, value).len(), 1);
            }
            assert_eq!(keys.entries.len(), 2);
            assert!(maker.depends_on(&[Path::new("b.x")]) && !maker.depends_on(&[Path::new("c")]));
            let other = maker.make(&raw, RecordKey::of(&raw, &record[1..]).unwrap()).unwrap_err();
            assert_eq!(other.code(), Code::INTERNAL_ERROR);
        }
    }

    #[test]
    fn hashes_on_disk_do_not_change() {
        let hash = |value| hash(value, None).unwrap();
        assert_eq!(hash(RawBsonRef::Int32(1)), hash(RawBsonRef::Double(1.0)));
        assert_eq!(hash(RawBsonRef::String("fern")), -4_200_878_547_170_977_923);
    }

    #[test]
    fn many_entries_that_each_hold_their_document_are_refused() {
        let document = doc! { "a": (0..3000).map(Bson::Int32).collect::<Vec<_>>() };
        assert_eq!(parts(doc! { "key": { "a": 1 } }, &document).unwrap().len(), 3000);
        let error = parts(doc! { "key": { "a": 1 }, "clustering": true }, &document).unwrap_err();
        assert_eq!(error.code(), Code::CANNOT_BUILD_INDEX_KEYS);
    }

    #[test]
    fn parallel_arrays_are_refused() {
        let error =
            parts(doc! { "key": { "a": 1, "b": 1 } }, &doc! { "a": [1], "b": [2] }).unwrap_err();
        assert_eq!(error.code(), Code::CANNOT_INDEX_PARALLEL_ARRAYS);
        assert_eq!(error.message(), "cannot index parallel arrays [b] [a]");
    }

    #[test]
    fn sparse_leaves_out_only_documents_without_any_field() {
        let spec = doc! { "key": { "a": 1, "b": 1 }, "sparse": true };
        assert!(parts(spec.clone(), &doc! { "c": 1 }).unwrap().is_empty());
        assert_eq!(parts(spec, &doc! { "b": 1 }).unwrap().len(), 1);
    }

    #[test]
    fn multikey_marks_name_the_parts() {
        let maker = maker(doc! { "key": { "a": 1, "b.c": 1 } });
        let raw = RawDocumentBuf::try_from(&doc! { "a": 1, "b": [{ "c": 1 }] }).unwrap();
        assert_eq!(
            maker.make(&raw, RecordKey::new(RawBsonRef::Int32(7), &SEVEN)).unwrap().multikey,
            0b10
        );
    }
}
