//! The catalog's records in the `ROOT` dictionary. On disk: `docs/formats/catalog.md`.
//!
//! | key | value |
//! |---|---|
//! | `v` | format version, u32 LE |
//! | `n` namespace | the collection, BSON, `v: 3` to `v: 6` |
//! | `s` | the dictionary of the sessions' records, u64 LE |
//! | `b` dictionary u64 BE | empty: an index build that has not finished |
//! | `m` dictionary u64 BE | multikey mask of an index, u32 LE |
//! | `c` collection u64 BE, stripe u32 BE | documents i64 LE, bytes i64 LE |
//!
//! Always true: what is read back is checked; a record of a newer version is refused.

use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index, IndexState, Shared};
use crate::metadata::namespace::Namespace;
use crate::metadata::options::CollectionOptions;
use crate::metadata::partitions::{IndexParts, Partition, Partitions};
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, Uuid};
use engine::{
    DictionaryId, Direction, Durability, Engine, KeyRange, Snapshot, Timestamp, TxnOptions,
};
use errors::{Code, Error, Result};
use indexkeys::{IndexSpec, KeyMaker};
use keystring::SORT_KEY_VERSION;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where the format's version stands.
pub(crate) const VERSION_KEY: &[u8] = b"v";
/// The format this code writes and reads.
pub(crate) const VERSION: u32 = 3;
/// The version of the record of a collection whose documents may share their `_id`: what knows
/// nothing of that must not read it.
const SHARED_IDS_VERSION: u32 = 4;
/// The version of the record of a collection whose primary key is not `_id` alone: what knows nothing of
/// that must not read it.
const PRIMARY_KEY_VERSION: u32 = 5;
/// The version of the record of a partitioned collection: what knows nothing of that must not read it.
const PARTITIONED_VERSION: u32 = 6;
/// What a primary key is called among the indexes, as in TokuMX.
const PRIMARY_NAME: &str = "primaryKey";
/// Key prefix of the collections.
pub(crate) const NAMESPACE_PREFIX: u8 = b'n';

/// Key prefix of the multikey masks.
pub(crate) const MULTIKEY_PREFIX: u8 = b'm';
/// Key prefix of the markers of unfinished index builds.
pub(crate) const BUILDING_PREFIX: u8 = b'b';

/// The key of a collection's record.
pub(crate) fn namespace_key(namespace: &Namespace) -> Vec<u8> {
    let mut key = vec![NAMESPACE_PREFIX];
    key.extend_from_slice(namespace.as_str().as_bytes());
    key
}

/// The key of an index's multikey mask.
pub(crate) fn multikey_key(dictionary: DictionaryId) -> [u8; 9] {
    let mut key = [MULTIKEY_PREFIX; 9];
    key[1..].copy_from_slice(&dictionary.0.to_be_bytes());
    key
}

/// The key that marks an index as being built.
pub(crate) fn building_key(dictionary: DictionaryId) -> [u8; 9] {
    let mut key = [BUILDING_PREFIX; 9];
    key[1..].copy_from_slice(&dictionary.0.to_be_bytes());
    key
}

/// Of which dictionary such a key says that an index is being built in it.
pub(crate) fn building_dictionary(key: &[u8]) -> Option<DictionaryId> {
    let number = key.get(1..)?.try_into().ok()?;
    Some(DictionaryId(u64::from_be_bytes(number)))
}

/// A multikey mask; a record of the wrong size counts as "all parts", which is always safe.
pub(crate) fn read_multikey(value: &[u8]) -> u32 {
    value.try_into().map_or(u32::MAX, u32::from_le_bytes)
}

/// The record of a collection.
pub(crate) fn write_collection(collection: &Collection) -> RawDocumentBuf {
    let mut indexes = RawArrayBuf::new();
    for index in &collection.indexes {
        let mut entry = RawDocumentBuf::new();
        entry.append(cstr!("spec"), &index.spec.shown);
        entry.append(cstr!("dictionary"), index.dictionary.0 as i64);
        if collection.is_partitioned() {
            entry.append(cstr!("parts"), parts_array(collection, index));
        }
        indexes.push(entry);
    }
    let mut record = RawDocumentBuf::new();
    let version = match collection {
        _ if collection.is_partitioned() => PARTITIONED_VERSION,
        _ if collection.primary_index.is_some() => PRIMARY_KEY_VERSION,
        _ if !collection.has_unique_ids() => SHARED_IDS_VERSION,
        _ => VERSION,
    };
    record.append(cstr!("v"), version as i32);
    record.append(cstr!("ns"), collection.namespace.as_str());
    record.append(
        cstr!("uuid"),
        &Binary { subtype: BinarySubtype::Uuid, bytes: collection.uuid.bytes().to_vec() },
    );
    record.append(cstr!("number"), collection.number as i64);
    record.append(cstr!("primary"), collection.primary.0 as i64);
    if let Some(order) = collection.order {
        record.append(cstr!("order"), order.0 as i64);
    }
    record.append(cstr!("options"), &collection.options.shown);
    record.append(cstr!("indexes"), indexes);
    if collection.is_partitioned() {
        record.append(cstr!("partitions"), partitions_array(&collection.partitions));
        record.append(cstr!("nextPartition"), collection.partitions.next_id as i64);
    }
    if has_sort_keys(collection) {
        record.append(cstr!("sortKeys"), SORT_KEY_VERSION);
    }
    record
}

/// The dictionaries of an index in the partitions, in their order.
fn parts_array(collection: &Collection, index: &Index) -> RawArrayBuf {
    let mut parts = RawArrayBuf::new();
    for partition in &collection.partitions.list {
        let part = index.parts.get(&partition.number);
        parts.push(part.expect("an index has a part in every partition").0 as i64);
    }
    parts
}

fn partitions_array(partitions: &Partitions) -> RawArrayBuf {
    let mut list = RawArrayBuf::new();
    for partition in &partitions.list {
        let mut entry = RawDocumentBuf::new();
        entry.append(cstr!("id"), partition.id as i64);
        entry.append(cstr!("number"), partition.number as i64);
        entry.append(cstr!("primary"), partition.primary.0 as i64);
        if let Some(max) = &partition.max {
            entry.append(cstr!("max"), max);
        }
        entry.append(cstr!("created"), DateTime::from_millis(partition.created_ms));
        list.push(entry);
    }
    list
}

/// The partitions that a record lists; none where it lists none. Their counts are still empty.
fn read_partitions(
    record: &RawDocument,
    options: &CollectionOptions,
    shared: &Shared,
) -> Result<Partitions> {
    if record.get("partitions")?.is_some() != options.partitioned {
        return Err(damaged("a partitioned collection lists its partitions, others have none"));
    }
    if !options.partitioned {
        return Ok(Partitions::default());
    }
    let mut list = Vec::new();
    for entry in record.get_array("partitions").map_err(damaged)? {
        let entry = entry?.as_document().ok_or_else(|| damaged("partition"))?;
        let max = match entry.get("max")? {
            None => None,
            Some(max) => Some(max.as_document().ok_or_else(|| damaged("max"))?.to_owned()),
        };
        list.push(Partition {
            id: number(entry, "id")?,
            max,
            created_ms: entry.get_datetime("created").map_err(damaged)?.timestamp_millis(),
            number: number(entry, "number")?,
            primary: DictionaryId(number(entry, "primary")?),
            shared: Arc::new(shared.of_partition()),
        });
    }
    let next_id = number(record, "nextPartition")?;
    Partitions::new(options, list, next_id).map_err(damaged)
}

/// Where the entries of an index stand in these partitions.
fn read_parts(entry: &RawDocument, partitions: &Partitions) -> Result<IndexParts> {
    if partitions.is_empty() {
        return Ok(IndexParts::new());
    }
    let mut numbers = partitions.list.iter().map(|partition| partition.number);
    let mut parts = IndexParts::new();
    for part in entry.get_array("parts").map_err(damaged)? {
        let part = part?.as_i64().and_then(|part| u64::try_from(part).ok());
        let (Some(part), Some(number)) = (part, numbers.next()) else {
            return Err(damaged("parts of an index"));
        };
        parts.insert(number, DictionaryId(part));
    }
    if parts.len() != partitions.list.len() {
        return Err(damaged("an index has a part in every partition"));
    }
    Ok(parts)
}

/// Whether some of its keys hold sort keys, which only the rules that made them can read.
fn has_sort_keys(collection: &Collection) -> bool {
    !collection.is_view()
        && (collection.options.collation.is_some()
            || collection.indexes.iter().any(|index| index.spec.collation.is_some()))
}

/// Reads a collection's record; its counts and multikey masks are still empty.
pub(crate) fn read_collection(value: &[u8]) -> Result<Collection> {
    let record = RawDocument::from_bytes(value)?;
    match record.get("v")? {
        Some(RawBsonRef::Int32(v)) if (VERSION..=PARTITIONED_VERSION).contains(&(v as u32)) => {}
        other => {
            return Err(Error::new(
                Code::UNSUPPORTED_FORMAT,
                format!("catalog record of unknown version {other:?}"),
            ));
        }
    }
    let ns = Namespace::parse(record.get_str("ns").map_err(damaged)?)?;
    let uuid = record.get_binary("uuid").map_err(damaged)?;
    let uuid: [u8; 16] = uuid.bytes.try_into().map_err(|_| damaged("uuid"))?;
    let options = CollectionOptions::parse(record.get_document("options").map_err(damaged)?)?;
    let shared = Arc::new(Shared::default());
    let partitions = read_partitions(record, &options, &shared)?;
    let mut indexes = Vec::new();
    for entry in record.get_array("indexes").map_err(damaged)? {
        let entry = entry?.as_document().ok_or_else(|| damaged("index"))?;
        let mut spec = IndexSpec::parse(entry.get_document("spec").map_err(damaged)?)?;
        spec.inherits_collation = false;
        let dictionary = DictionaryId(number(entry, "dictionary")?);
        let mut index = new_index(spec, &options, dictionary, Timestamp(0));
        index.parts = read_parts(entry, &partitions)?;
        indexes.push(Arc::new(index));
    }
    let on_id = indexes.first().is_some_and(|index: &Arc<Index>| index.spec.is_id());
    if on_id != options.primary_key.is_some() {
        return Err(damaged("an index on _id goes with a primary key that is not _id alone"));
    }
    let order = match record.get("order")? {
        None => None,
        Some(_) => Some(DictionaryId(number(record, "order")?)),
    };
    if order.is_some() != options.capped.is_some() {
        return Err(damaged("a capped collection has an order, others have none"));
    }
    let primary = DictionaryId(number(record, "primary")?);
    let collection = Collection {
        namespace: ns,
        uuid: Uuid::from_bytes(uuid),
        number: number(record, "number")?,
        primary_index: primary_index(&options, primary)?,
        options: Arc::new(options),
        primary,
        order,
        indexes,
        shared,
        partitions,
        owner: None,
    }
    .assembled();
    match record.get("sortKeys")? {
        None if !has_sort_keys(&collection) => Ok(collection),
        Some(RawBsonRef::Int32(SORT_KEY_VERSION)) => Ok(collection),
        other => Err(Error::new(
            Code::UNSUPPORTED_FORMAT,
            format!(
                "the collation keys of {} are of version {other:?}, this server makes \
                 {SORT_KEY_VERSION}",
                collection.namespace
            ),
        )),
    }
}

/// An index that no document has entered yet, in a collection of these options.
pub(crate) fn new_index(
    spec: IndexSpec,
    options: &CollectionOptions,
    dictionary: DictionaryId,
    created: Timestamp,
) -> Index {
    let keys = KeyMaker::new(&spec, options.collation.clone()).under(options.primary_key.clone());
    Index {
        spec,
        dictionary,
        logical: dictionary,
        parts: IndexParts::new(),
        created,
        state: Arc::new(IndexState::default()),
        keys,
    }
}

/// The primary key of a collection of these options as an index, where it is not `_id` alone.
pub(crate) fn primary_index(
    options: &CollectionOptions,
    dictionary: DictionaryId,
) -> Result<Option<Arc<Index>>> {
    let Some(key) = &options.primary_key else { return Ok(None) };
    let mut spec = RawDocumentBuf::new();
    spec.append(cstr!("key"), key.pattern().to_owned());
    spec.append(cstr!("name"), PRIMARY_NAME);
    spec.append(cstr!("unique"), true);
    spec.append(cstr!("clustering"), true);
    let spec = IndexSpec::parse(&spec)?.in_collection(options.collation.as_ref())?;
    let keys = KeyMaker::of_records(&spec, Arc::clone(key));
    let mut index = new_index(spec, options, dictionary, Timestamp(0));
    index.keys = keys;
    Ok(Some(Arc::new(index)))
}

/// The index on `_id` of a collection of these options, where it is not the collection itself.
pub(crate) fn id_index(options: &CollectionOptions) -> Result<Option<IndexSpec>> {
    if options.primary_key.is_none() {
        return Ok(None);
    }
    let mut key = RawDocumentBuf::new();
    key.append(cstr!("_id"), 1);
    let mut spec = RawDocumentBuf::new();
    spec.append(cstr!("key"), key);
    spec.append(cstr!("name"), "_id_");
    IndexSpec::parse(&spec)?.in_collection(options.collation.as_ref()).map(Some)
}

fn number(document: &RawDocument, key: &str) -> Result<u64> {
    let value = document.get_i64(key).map_err(damaged)?;
    u64::try_from(value).map_err(damaged)
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::new(Code::INTERNAL_ERROR, format!("damaged catalog record: {what}"))
}

/// Drops an index and its mask as part of `txn`.
pub(crate) fn drop_index(txn: &mut engine::EngineTxn, index: &Index) -> engine::Result<()> {
    for part in index.parts.values() {
        txn.drop_dictionary(*part)?;
    }
    drop_index_records(txn, index.dictionary)
}

/// Drops a dictionary and the mask of its number as part of `txn`.
fn drop_index_records(txn: &mut engine::EngineTxn, dictionary: DictionaryId) -> engine::Result<()> {
    txn.drop_dictionary(dictionary)?;
    // Written only inside the collection, which nobody is now.
    txn.write_covered(DictionaryId::ROOT, &multikey_key(dictionary), None)
}

/// The mask of an index that moves to another dictionary stands under the number of that one.
pub(crate) fn move_multikey(
    txn: &mut engine::EngineTxn,
    index: &Index,
    to: DictionaryId,
) -> engine::Result<()> {
    let mask = index.state.persisted.load(Ordering::Acquire);
    // Written only inside the collection, which nobody else is now.
    txn.write_covered(DictionaryId::ROOT, &multikey_key(index.dictionary), None)?;
    if mask == 0 {
        return Ok(());
    }
    txn.write_covered(DictionaryId::ROOT, &multikey_key(to), Some(&mask.to_le_bytes()))
}

/// The dictionaries of builds that have not ended, in a state.
pub(crate) fn unfinished(state: &Snapshot) -> Result<Vec<DictionaryId>> {
    let range = KeyRange {
        lower: Bound::Included(vec![BUILDING_PREFIX]),
        upper: Bound::Excluded(vec![BUILDING_PREFIX + 1]),
    };
    let mut cursor =
        state.cursor(DictionaryId::ROOT, range, Direction::Forward).map_err(from_engine)?;
    let mut dictionaries = Vec::new();
    while let Some((key, _)) = cursor.next().map_err(from_engine)? {
        dictionaries.extend(building_dictionary(key));
    }
    Ok(dictionaries)
}

/// Drops the dictionaries of builds that a crash interrupted.
pub(crate) fn drop_unfinished(engine: &Engine, dictionaries: &[DictionaryId]) -> Result<()> {
    let mut txn = engine.begin(TxnOptions::default());
    for dictionary in dictionaries {
        drop_index_records(&mut txn, *dictionary).map_err(from_engine)?;
        txn.delete(DictionaryId::ROOT, &building_key(*dictionary)).map_err(from_engine)?;
    }
    txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::collection::clone_index;
    use bson::{Bson, doc};
    use std::fmt::Write;

    fn fixed() -> Collection {
        let raw = |document: &bson::Document| RawDocumentBuf::try_from(document).unwrap();
        let spec = doc! { "key": { "a": 1, "b.c": -1 }, "name": "x", "unique": true };
        let spec = IndexSpec::parse(&raw(&spec)).unwrap();
        let options =
            doc! { "compression": "lz4", "pageSize": "1m", "capped": true, "size": 4096_i64 };
        let options = CollectionOptions::parse(&raw(&options)).unwrap();
        Collection {
            namespace: Namespace::parse("db.coll").unwrap(),
            uuid: Uuid::from_bytes([7; 16]),
            number: 3,
            primary: DictionaryId(12),
            order: Some(DictionaryId(14)),
            primary_index: None,
            indexes: vec![Arc::new(new_index(spec, &options, DictionaryId(13), Timestamp(0)))],
            options: Arc::new(options),
            shared: Arc::new(Shared::default()),
            partitions: Partitions::default(),
            owner: None,
        }
    }

    fn fixed_with_a_primary_key() -> Collection {
        let options = doc! { "primaryKey": { "a.b": -1, "_id": 1 } };
        let options = RawDocumentBuf::try_from(&options).unwrap();
        let options = CollectionOptions::parse(&options).unwrap();
        let id = id_index(&options).unwrap().unwrap();
        let id = new_index(id, &options, DictionaryId(14), Timestamp(0));
        let other =
            new_index(fixed().indexes[0].spec.clone(), &options, DictionaryId(13), Timestamp(0));
        Collection {
            order: None,
            primary_index: primary_index(&options, DictionaryId(12)).unwrap(),
            indexes: vec![Arc::new(id), Arc::new(other)],
            options: Arc::new(options),
            ..fixed()
        }
    }

    /// Two partitions, of which the first ends at `{a.b: 5, _id: MaxKey}`.
    fn fixed_with_partitions() -> Collection {
        let options = doc! { "primaryKey": { "a.b": 1, "_id": 1 }, "partitioned": true };
        let options = RawDocumentBuf::try_from(&options).unwrap();
        let options = CollectionOptions::parse(&options).unwrap();
        let mut id = id_index(&options)
            .unwrap()
            .map(|spec| new_index(spec, &options, DictionaryId(14), Timestamp(0)));
        let id = id.as_mut().unwrap();
        id.parts = IndexParts::from([(4, DictionaryId(16)), (5, DictionaryId(18))]);
        let max = RawDocumentBuf::try_from(&doc! { "a.b": 5, "_id": Bson::MaxKey }).unwrap();
        let partition = |id, max, primary| Partition {
            id,
            max,
            created_ms: 1_700_000_000_000 + id as i64,
            number: 4 + id,
            primary: DictionaryId(primary),
            shared: Arc::default(),
        };
        let list = vec![partition(0, Some(max), 15), partition(1, None, 17)];
        Collection {
            order: None,
            primary_index: primary_index(&options, DictionaryId(12)).unwrap(),
            indexes: vec![Arc::new(clone_index(id, Timestamp(0)))],
            partitions: Partitions::new(&options, list, 2).unwrap(),
            options: Arc::new(options),
            ..fixed()
        }
        .assembled()
    }

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    }

    #[test]
    fn records_are_those_of_version_3() {
        let golden = include_str!("../../golden/collection-v3.hex");
        let golden: String = golden.split_whitespace().collect();
        assert_eq!(hexadecimal(write_collection(&fixed()).as_bytes()), golden);
    }

    #[test]
    fn records_with_a_primary_key_are_those_of_version_5() {
        let golden = include_str!("../../golden/collection-v5.hex");
        let golden: String = golden.split_whitespace().collect();
        let written = write_collection(&fixed_with_a_primary_key());
        assert_eq!(hexadecimal(written.as_bytes()), golden);
        let read = read_collection(written.as_bytes()).unwrap();
        assert_eq!(
            (read.primary_name(), read.id_index().unwrap().dictionary.0),
            ("primaryKey", 14)
        );
        assert!(read.id_index().unwrap().spec.unique && read.primary_index.unwrap().is_primary());
        let mut without = bson::Document::try_from(&written).unwrap();
        without.get_array_mut("indexes").unwrap().remove(0);
        let without = RawDocumentBuf::try_from(&without).unwrap();
        assert_eq!(read_collection(without.as_bytes()).unwrap_err().code(), Code::INTERNAL_ERROR);
    }

    #[test]
    fn records_with_partitions_are_those_of_version_6() {
        let golden = include_str!("../../golden/collection-v6.hex");
        let golden: String = golden.split_whitespace().collect();
        let written = write_collection(&fixed_with_partitions());
        assert_eq!(hexadecimal(written.as_bytes()), golden);
        let read = Arc::new(read_collection(written.as_bytes()).unwrap());
        let stores = read.stores().iter();
        let stores: Vec<_> = stores
            .map(|store| (store.number, store.primary.0, store.indexes[0].dictionary.0))
            .collect();
        assert_eq!(stores, [(4, 15, 16), (5, 17, 18)]);
        assert_eq!(write_collection(&read).as_bytes(), written.as_bytes());
        for damage in ["partitions", "nextPartition", "indexes"] {
            let mut without = bson::Document::try_from(&written).unwrap();
            without.remove(damage);
            let without = RawDocumentBuf::try_from(&without).unwrap();
            let error = read_collection(without.as_bytes()).unwrap_err();
            assert_eq!(error.code(), Code::INTERNAL_ERROR, "{damage}");
        }
        let mut fewer = bson::Document::try_from(&written).unwrap();
        fewer.get_array_mut("partitions").unwrap().remove(0);
        let fewer = RawDocumentBuf::try_from(&fewer).unwrap();
        assert_eq!(read_collection(fewer.as_bytes()).unwrap_err().code(), Code::INTERNAL_ERROR);
        for at in 0..written.as_bytes().len() {
            let mut damaged = written.as_bytes().to_vec();
            damaged[at] ^= 0xFF;
            drop(read_collection(&damaged));
        }
    }

    #[test]
    fn a_record_says_that_ids_may_be_shared() {
        let raw = |document: &bson::Document| RawDocumentBuf::try_from(document).unwrap();
        let mut collection = fixed();
        collection.order = None;
        let options = doc! { "timeseries": { "timeField": "t" } };
        collection.options = Arc::new(CollectionOptions::parse(&raw(&options)).unwrap());
        let written = write_collection(&collection);
        assert_eq!(written.get_i32("v").unwrap(), 4);
        assert!(!read_collection(written.as_bytes()).unwrap().has_unique_ids());
        assert_eq!(write_collection(&fixed()).get_i32("v").unwrap(), 3);
        let mut newer = bson::Document::try_from(&written).unwrap();
        newer.insert("v", 7);
        let refused = read_collection(raw(&newer).as_bytes()).err().unwrap();
        assert_eq!(refused.code(), Code::UNSUPPORTED_FORMAT);
    }

    #[test]
    fn records_read_back() {
        let written = write_collection(&fixed());
        let read = read_collection(written.as_bytes()).unwrap();
        assert_eq!(read.namespace.as_str(), "db.coll");
        assert_eq!((read.number, read.primary), (3, DictionaryId(12)));
        assert_eq!(read.indexes[0].spec.shown, fixed().indexes[0].spec.shown);
        assert_eq!(read.options, fixed().options);
        assert_eq!(write_collection(&read).as_bytes(), written.as_bytes());
    }

    #[test]
    fn sort_keys_of_other_rules_are_refused() {
        let raw = |document: &bson::Document| RawDocumentBuf::try_from(document).unwrap();
        let mut collection = fixed();
        let options = doc! { "collation": { "locale": "de", "strength": 1 } };
        collection.options = Arc::new(CollectionOptions::parse(&raw(&options)).unwrap());
        collection.order = None;
        let written = write_collection(&collection);
        let read = read_collection(written.as_bytes()).unwrap();
        assert_eq!(read.collation(), collection.collation());
        assert!(read.collation().is_some() && read.indexes[0].spec.collation.is_none());
        let mut other = bson::Document::try_from(&written).unwrap();
        for version in [Bson::Int32(SORT_KEY_VERSION + 1), Bson::Null] {
            other.insert("sortKeys", version);
            let error = read_collection(raw(&other).as_bytes()).unwrap_err();
            assert_eq!(error.code(), Code::UNSUPPORTED_FORMAT);
        }
    }

    #[test]
    fn damaged_records_are_errors() {
        let written = write_collection(&fixed());
        let written = written.as_bytes();
        for at in 0..written.len() {
            let mut damaged = written.to_vec();
            damaged[at] ^= 0xFF;
            // It may still be a record, with another name; it must not panic.
            drop(read_collection(&damaged));
            drop(read_collection(&written[..at]));
        }
        let newer = doc! { "v": 7, "ns": "db.c" };
        let newer = RawDocumentBuf::try_from(&newer).unwrap();
        let error = read_collection(newer.as_bytes()).unwrap_err();
        assert_eq!(error.code(), Code::UNSUPPORTED_FORMAT);
    }
}
