//! Partitions: ranges of record keys whose documents and index entries stand in dictionaries of their own,
//! so that a range goes by dropping dictionaries.
//!
//! To what reads and writes documents a partition is a collection of its own without a name, its *store*: it
//! has the dictionaries, the count and the number. Everything else it has from its collection.
//!
//! Always true of a partitioned collection:
//! 1. Its partitions ascend. Each but the last has a largest key, so every record key is in exactly one.
//! 2. Its own dictionaries (`primary`, those of its indexes) are empty. They stand for it and its indexes in
//!    states of the engine, and multikey marks bear the numbers of those of indexes. Whenever a partition
//!    comes or goes another `primary` takes the place of the one before: a state that has the `primary` of a
//!    version has exactly that version's partitions.
//! 3. The stores are made of the partitions and the indexes alone ([`Collection::assembled`]), one for each
//!    partition, in their order.

use crate::metadata::collection::{Collection, Index, Shared};
use crate::metadata::options::CollectionOptions;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::raw::{self, Writer};
use bsonval::show::document as document_text;
use engine::{DictionaryId, KeyRange};
use errors::{Code, Error, Result};
use indexkeys::{LeadingValues, bad_key};
use keystring::{Direction, Discriminator, KeyBuilder};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// The most partitions a collection may have: every version of its metadata lists them all.
pub(crate) const MAX_PARTITIONS: usize = 4096;

/// The dictionaries of one index in the partitions, by the numbers of their stores.
pub(crate) type IndexParts = BTreeMap<u64, DictionaryId>;

/// A range of record keys.
#[derive(Clone, Debug)]
pub struct Partition {
    /// What `dropPartition` calls it. The next one has a larger number; none is used twice.
    pub id: u64,
    /// The values of the largest primary key it may hold; `None` of the last partition, which has no end.
    pub max: Option<RawDocumentBuf>,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: i64,
    /// Numbers its store among collections.
    pub(crate) number: u64,
    pub(crate) primary: DictionaryId,
    pub(crate) shared: Arc<Shared>,
}

/// The partitions of one version of a collection; none where it is not partitioned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partitions {
    pub(crate) list: Vec<Partition>,
    pub(crate) next_id: u64,
    ends: Vec<UpperEnd>,
    stores: Vec<Arc<Collection>>,
}

/// The end of a partition, as bytes of record keys.
#[derive(Clone, PartialEq, Eq, Debug)]
struct UpperEnd {
    /// The largest key.
    key: Vec<u8>,
    /// No record key is `key` itself, which stands behind all keys that begin with what precedes its last
    /// byte.
    is_open: bool,
}

/// Which partition holds a record key.
fn partition_of(ends: &[UpperEnd], key: &[u8]) -> usize {
    ends.partition_point(|end| &end.key[..] < key)
}

/// The partitions that a range of record keys meets.
fn partitions_in(ends: &[UpperEnd], range: &KeyRange) -> Range<usize> {
    let first = match &range.lower {
        Bound::Unbounded => 0,
        Bound::Included(key) => {
            let at = partition_of(ends, key);
            let is_behind = ends.get(at).is_some_and(|end| end.is_open && end.key == *key);
            at + usize::from(is_behind)
        }
        Bound::Excluded(key) => ends.partition_point(|end| end.key <= *key),
    };
    let end = match &range.upper {
        Bound::Unbounded => ends.len() + 1,
        Bound::Included(key) | Bound::Excluded(key) => partition_of(ends, key) + 1,
    };
    first..end.max(first)
}

/// The fields of the primary key and their directions.
fn key_fields(options: &CollectionOptions) -> SmallVec<[(&str, Direction); 4]> {
    match &options.primary_key {
        None => SmallVec::from_iter([("_id", Direction::Ascending)]),
        Some(key) => {
            let paths = key.parts().iter().map(|part| &part.path[..]);
            paths.zip(key.directions().iter().copied()).collect()
        }
    }
}

/// The end of a partition with this largest key. Fails where the key has no end that another partition
/// could begin behind.
fn upper_end(options: &CollectionOptions, max: &RawDocument) -> Result<UpperEnd> {
    end_of_key(options, max)?.ok_or_else(|| {
        Error::bad_value(format!(
            "{} leaves no keys for the partition behind it",
            document_text(max)
        ))
    })
}

/// The end of the keys up to this one; `None` where it is the largest of all.
fn end_of_key(options: &CollectionOptions, max: &RawDocument) -> Result<Option<UpperEnd>> {
    let fields = key_fields(options);
    let mut values: SmallVec<[RawBsonRef<'_>; 4]> = SmallVec::new();
    for element in max {
        values.push(element?.1);
    }
    if values.len() != fields.len() {
        return Err(Error::bad_value(format!(
            "{} has not the fields of the primary key",
            document_text(max)
        )));
    }
    // Every key that begins with the values before them is smaller.
    let mut kept = values.len();
    while kept > 0
        && matches!(values[kept - 1], RawBsonRef::MaxKey)
        && fields[kept - 1].1 == Direction::Ascending
    {
        kept -= 1;
    }
    if kept == 0 {
        return Ok(None);
    }
    let collation = options.collation.as_ref();
    let mut builder = KeyBuilder::new();
    for (value, (_, direction)) in values.iter().zip(&fields).take(kept) {
        builder.append_under(*value, *direction, collation).map_err(bad_key)?;
    }
    let is_open = kept < values.len();
    if is_open {
        builder.append_discriminator(Discriminator::After);
    }
    Ok(Some(UpperEnd { key: builder.into_bytes(), is_open }))
}

fn document_of<'a>(
    fields: impl Iterator<Item = (&'a str, RawBsonRef<'a>)>,
) -> Result<RawDocumentBuf> {
    let mut out = Writer::with_capacity(64);
    let open = out.begin();
    for (name, value) in fields {
        out.value(name, value);
    }
    out.end(open);
    out.finish()
}

/// A key that a client names, `{time: …}`, with all fields of the primary key: those it leaves out are null.
pub(crate) fn complete_key(
    options: &CollectionOptions,
    given: &RawDocument,
) -> Result<RawDocumentBuf> {
    let fields = key_fields(options);
    let roots = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
    for element in given {
        let (name, _) = element?;
        let name = name.as_str();
        if !fields.iter().any(|(path, _)| *path == name || roots(path) == name) {
            return Err(Error::bad_value(format!("'{name}' is not in the primary key")));
        }
    }
    let leading = match &options.primary_key {
        None => LeadingValues::new(),
        Some(key) => key.leading_values(given)?,
    };
    let mut values = Vec::with_capacity(fields.len());
    for (at, (path, _)) in fields.iter().enumerate() {
        let by_name = raw::field(given, path)?;
        let value = by_name.or_else(|| leading.get(at).copied()).unwrap_or(RawBsonRef::Null);
        match value {
            RawBsonRef::Array(_) => return Err(Error::location(17205, refused("an array", path))),
            RawBsonRef::RegularExpression(_) => {
                return Err(Error::location(17208, refused("a regular expression", path)));
            }
            RawBsonRef::Undefined => {
                return Err(Error::location(17210, refused("an undefined value", path)));
            }
            value => values.push((*path, value)),
        }
    }
    document_of(values.into_iter())
}

/// The key before all whose first field has this value.
pub(crate) fn start_of(
    options: &CollectionOptions,
    first: RawBsonRef<'_>,
) -> Result<RawDocumentBuf> {
    let values = key_fields(options).into_iter().enumerate().map(|(at, (path, direction))| {
        let value = match direction {
            _ if at == 0 => first,
            Direction::Ascending => RawBsonRef::MinKey,
            Direction::Descending => RawBsonRef::MaxKey,
        };
        (path, value)
    });
    document_of(values)
}

fn refused(what: &str, path: &str) -> String {
    format!("{what} cannot be in the primary key, found at '{path}'")
}

/// The primary key of a stored document.
pub(crate) fn key_of_document(
    options: &CollectionOptions,
    document: &RawDocument,
) -> Result<RawDocumentBuf> {
    let id = crate::metadata::collection::required_id(document)?;
    let mut values: SmallVec<[RawBsonRef<'_>; 4]> = match &options.primary_key {
        None => SmallVec::new(),
        Some(key) => key.leading_values(document)?.into_iter().collect(),
    };
    values.push(id);
    document_of(key_fields(options).into_iter().map(|(path, _)| path).zip(values))
}

/// How a key that a client names lies to the end of a partition, and to what stands in it.
pub(crate) struct NamedKey(UpperEnd);

impl NamedKey {
    /// Of a key with all fields.
    pub(crate) fn new(options: &CollectionOptions, key: &RawDocument) -> Result<Self> {
        upper_end(options, key).map(Self)
    }

    /// The same; `None` where it is the largest key of all.
    pub(crate) fn new_or_largest(
        options: &CollectionOptions,
        key: &RawDocument,
    ) -> Result<Option<Self>> {
        Ok(end_of_key(options, key)?.map(Self))
    }

    /// Whether a record key is larger.
    pub(crate) fn is_below(&self, record_key: &[u8]) -> bool {
        &self.0.key[..] < record_key
    }
}

impl Partitions {
    /// The partitions of a collection with these options.
    pub(crate) fn new(
        options: &CollectionOptions,
        list: Vec<Partition>,
        next_id: u64,
    ) -> Result<Self> {
        let damaged =
            |what| Error::new(Code::INTERNAL_ERROR, format!("damaged partitions: {what}"));
        let mut ends: Vec<UpperEnd> = Vec::with_capacity(list.len());
        for (at, partition) in list.iter().enumerate() {
            match &partition.max {
                Some(max) if at + 1 < list.len() => {
                    let end = upper_end(options, max)?;
                    if ends.last().is_some_and(|before| before.key >= end.key) {
                        return Err(damaged("they do not ascend"));
                    }
                    ends.push(end);
                }
                None if at + 1 == list.len() => {}
                _ => return Err(damaged("the last one has no end, the others have one")),
            }
        }
        Ok(Self { list, next_id, ends, stores: Vec::new() })
    }

    /// Whether there are none: the collection is not partitioned.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether the partition at `at` ends before a named key.
    pub(crate) fn ends_before(&self, at: usize, key: &NamedKey) -> bool {
        self.ends.get(at).is_some_and(|end| end.key < key.0.key)
    }

    /// Whether the partition at `at` ends at a named key, or before it.
    pub(crate) fn ends_up_to(&self, at: usize, key: &NamedKey) -> bool {
        self.ends.get(at).is_some_and(|end| end.key <= key.0.key)
    }
}

impl Collection {
    /// Whether its documents stand in partitions.
    pub fn is_partitioned(&self) -> bool {
        !self.partitions.is_empty()
    }

    /// Its partitions, ascending; none where it is not partitioned.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions.list
    }

    /// The paths of the primary key's fields, of which the last is `_id`.
    pub fn primary_paths(&self) -> impl Iterator<Item = &str> {
        key_fields(&self.options).into_iter().map(|(path, _)| path)
    }

    /// What holds documents and index entries: the collection itself, or its partitions in their order.
    pub fn stores(self: &Arc<Self>) -> &[Arc<Self>] {
        if self.is_partitioned() { &self.partitions.stores } else { std::slice::from_ref(self) }
    }

    /// What holds the document of a record key.
    pub(crate) fn store_of(self: &Arc<Self>, record_key: &[u8]) -> &Arc<Self> {
        match self.partitions.stores.get(partition_of(&self.partitions.ends, record_key)) {
            Some(store) if self.is_partitioned() => store,
            _ => self,
        }
    }

    /// The place among [`Collection::stores`] of what holds the document of a record key.
    pub fn store_at(&self, record_key: &[u8]) -> usize {
        partition_of(&self.partitions.ends, record_key)
    }

    /// The dictionary in which the document of a record key stands.
    pub fn primary_of(&self, record_key: &[u8]) -> DictionaryId {
        let partition = self.partitions.list.get(partition_of(&self.partitions.ends, record_key));
        partition.map_or(self.primary, |partition| partition.primary)
    }

    /// The places among [`Collection::stores`] of those that a range of record keys meets.
    pub fn stores_in(&self, range: &KeyRange) -> Range<usize> {
        partitions_in(&self.partitions.ends, range)
    }

    /// The dictionary with the documents of the store at a place.
    pub fn primary_at(&self, place: usize) -> DictionaryId {
        self.partitions.list.get(place).map_or(self.primary, |partition| partition.primary)
    }

    /// The dictionary with the entries of an index of this collection in the store at a place.
    pub fn index_at(&self, index: &Index, place: usize) -> DictionaryId {
        let partition = self.partitions.list.get(place);
        let part = partition.and_then(|partition| index.parts.get(&partition.number));
        part.copied().unwrap_or(index.dictionary)
    }

    /// Whether this is the store of a partition.
    pub(crate) fn is_partition(&self) -> bool {
        self.owner.is_some()
    }

    /// The number of the collection that clients see.
    pub(crate) fn owner_number(&self) -> u64 {
        self.owner.unwrap_or(self.number)
    }

    /// The same with its stores made of its partitions and indexes.
    #[must_use]
    pub(crate) fn assembled(mut self) -> Self {
        let list = &self.partitions.list;
        self.partitions.stores = list.iter().map(|one| Arc::new(self.store(one))).collect();
        self
    }

    /// The same with other partitions.
    #[must_use]
    pub(crate) fn with_partitions(mut self, partitions: Partitions) -> Self {
        self.partitions = partitions;
        self.assembled()
    }

    fn store(&self, partition: &Partition) -> Self {
        let of = |index: &Index, dictionary: DictionaryId| {
            Arc::new(Index {
                spec: index.spec.clone(),
                dictionary,
                logical: index.logical,
                parts: IndexParts::new(),
                created: index.created,
                state: Arc::clone(&index.state),
                keys: index.keys.clone(),
            })
        };
        let part = |index: &Arc<Index>| {
            let part = index.parts.get(&partition.number);
            of(index, *part.expect("an index has a part in every partition"))
        };
        Self {
            namespace: self.namespace.clone(),
            uuid: self.uuid,
            number: partition.number,
            options: Arc::clone(&self.options),
            primary: partition.primary,
            order: None,
            primary_index: self.primary_index.as_ref().map(|index| of(index, partition.primary)),
            indexes: self.indexes.iter().map(part).collect(),
            shared: Arc::clone(&partition.shared),
            partitions: Partitions::default(),
            owner: Some(self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, doc};

    fn options(primary_key: bson::Document) -> CollectionOptions {
        let options = doc! { "partitioned": true, "primaryKey": primary_key };
        CollectionOptions::parse(&RawDocumentBuf::try_from(&options).unwrap()).unwrap()
    }

    fn raw(document: &bson::Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    fn key(options: &CollectionOptions, document: &bson::Document) -> Vec<u8> {
        let document = raw(document);
        let id = document.get("_id").unwrap().unwrap();
        match &options.primary_key {
            None => indexkeys::id_key(id, None).unwrap(),
            Some(key) => key.record_key(&document, id, None).unwrap(),
        }
    }

    fn ends(options: &CollectionOptions, maxes: &[bson::Document]) -> Vec<UpperEnd> {
        maxes.iter().map(|max| upper_end(options, &raw(max)).unwrap()).collect()
    }

    #[test]
    fn a_record_key_is_in_the_first_partition_whose_end_is_not_below_it() {
        let options = options(doc! { "a": 1, "_id": 1 });
        let ends = ends(
            &options,
            &[
                doc! { "a": 1000, "_id": Bson::MaxKey },
                doc! { "a": 1500, "_id": 7 },
                doc! { "a": 2000, "_id": Bson::Null },
            ],
        );
        for (a, id, partition) in [
            (Bson::Null, Bson::Int32(1), 0),
            (Bson::Int32(1000), Bson::Int32(1), 0),
            (Bson::Double(1000.0), Bson::String("x".into()), 0),
            (Bson::Double(1000.5), Bson::Int32(1), 1),
            (Bson::Int32(1500), Bson::Int32(7), 1),
            (Bson::Int32(1500), Bson::Int32(8), 2),
            (Bson::Int32(2000), Bson::Null, 2),
            (Bson::Int32(2000), Bson::Int32(0), 3),
            (Bson::String("z".into()), Bson::Int32(0), 3),
        ] {
            let key = key(&options, &doc! { "a": a.clone(), "_id": id.clone() });
            assert_eq!(partition_of(&ends, &key), partition, "{a} {id}");
        }
    }

    #[test]
    fn a_range_meets_the_partitions_that_have_some_of_its_keys() {
        let options = options(doc! { "a": 1, "_id": 1 });
        let maxes = [10, 20, 30].map(|a| doc! { "a": a, "_id": Bson::MaxKey });
        let ends = ends(&options, &maxes);
        let prefix = |a: i32, after: bool| {
            let mut builder = KeyBuilder::new();
            builder.append(RawBsonRef::Int32(a), Direction::Ascending).unwrap();
            if after {
                builder.append_discriminator(Discriminator::After);
            }
            builder.into_bytes()
        };
        let (at, after) =
            (|a| Bound::Included(prefix(a, false)), |a| Bound::Included(prefix(a, true)));
        let below = |a| Bound::Excluded(prefix(a, false));
        let up_to = |a| Bound::Excluded(prefix(a, true));
        for (lower, upper, partitions) in [
            (Bound::Unbounded, Bound::Unbounded, 0..4),
            (at(10), up_to(10), 0..1),
            (at(11), up_to(11), 1..2),
            // `$gt: 10`: nothing of the first one.
            (after(10), up_to(20), 1..2),
            (at(10), up_to(20), 0..2),
            (at(10), below(11), 0..2),
            (at(31), Bound::Unbounded, 3..4),
            (after(30), Bound::Unbounded, 3..4),
            (Bound::Unbounded, up_to(10), 0..1),
            (Bound::Excluded(prefix(30, true)), Bound::Unbounded, 3..4),
        ] {
            let range = KeyRange { lower, upper };
            assert_eq!(partitions_in(&ends, &range), partitions, "{range:?}");
        }
        assert_eq!(partitions_in(&[], &KeyRange::all()), 0..1);
    }

    #[test]
    fn descending_fields_end_where_their_smallest_values_are() {
        let options = options(doc! { "a": -1, "_id": 1 });
        let ends = ends(&options, &[doc! { "a": 5, "_id": Bson::MaxKey }]);
        for (a, partition) in [(9, 0), (5, 0), (4, 1)] {
            assert_eq!(partition_of(&ends, &key(&options, &doc! { "a": a, "_id": 1 })), partition);
        }
        // Of a descending field the largest value is the first.
        let first = doc! { "a": Bson::MaxKey, "_id": Bson::MaxKey };
        assert!(upper_end(&options, &raw(&first)).unwrap().is_open);
    }

    #[test]
    fn keys_that_clients_name_are_completed_and_checked() {
        let options = options(doc! { "a.b": 1, "c": 1, "_id": 1 });
        let null = Bson::Null;
        for (given, complete) in [
            (doc! { "a.b": 1 }, doc! { "a.b": 1, "c": &null, "_id": &null }),
            (doc! { "a": { "b": 1 }, "c": "x" }, doc! { "a.b": 1, "c": "x", "_id": &null }),
            (
                doc! { "_id": Bson::MaxKey, "c": 2, "a.b": 1 },
                doc! { "a.b": 1, "c": 2, "_id": Bson::MaxKey },
            ),
            (doc! {}, doc! { "a.b": &null, "c": &null, "_id": &null }),
        ] {
            let found = complete_key(&options, &raw(&given)).unwrap();
            assert_eq!(bson::Document::try_from(&found).unwrap(), complete);
        }
        for (given, code) in [
            (doc! { "d": 1 }, 2),
            (doc! { "c": [1] }, 17205),
            (doc! { "a": { "b": [] } }, 17205),
            (doc! { "c": Bson::Undefined }, 17210),
        ] {
            let refused = complete_key(&options, &raw(&given)).unwrap_err();
            assert_eq!(refused.code().0, code, "{given}");
        }
        let all = doc! { "a.b": Bson::MaxKey, "c": Bson::MaxKey, "_id": Bson::MaxKey };
        assert_eq!(upper_end(&options, &raw(&all)).unwrap_err().code().0, 2);
        assert_eq!(upper_end(&options, &raw(&doc! { "a.b": 1 })).unwrap_err().code().0, 2);
    }

    #[test]
    fn partitions_that_do_not_ascend_are_damage() {
        let options = options(doc! { "_id": 1 });
        let partition = |max: Option<i32>| Partition {
            id: 0,
            max: max.map(|max| raw(&doc! { "_id": max })),
            created_ms: 0,
            number: 1,
            primary: DictionaryId(9),
            shared: Arc::default(),
        };
        for (maxes, is_whole) in [
            (&[None][..], true),
            (&[Some(1), Some(2), None], true),
            (&[Some(2), Some(2), None], false),
            (&[Some(1)], false),
            (&[None, Some(1)], false),
            (&[None, None], false),
        ] {
            let list = maxes.iter().copied().map(partition).collect();
            assert_eq!(Partitions::new(&options, list, 3).is_ok(), is_whole, "{maxes:?}");
        }
    }
}
