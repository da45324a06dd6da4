//! The catalog's records in the `ROOT` dictionary. On disk: `docs/formats/catalog.md`.
//!
//! | key | value |
//! |---|---|
//! | `v` | format version, u32 LE |
//! | `n` namespace | the collection, BSON, `v: 3` |
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
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;
use bson::{Binary, Uuid};
use engine::{
    DictionaryId, Direction, Durability, Engine, KeyRange, Snapshot, Timestamp, TxnOptions,
};
use errors::{Code, Error, Result};
use indexkeys::{IndexSpec, KeyMaker};
use keystring::{Collation, SORT_KEY_VERSION};
use std::ops::Bound;
use std::sync::Arc;

/// Where the format's version stands.
pub(crate) const VERSION_KEY: &[u8] = b"v";
/// The format this code writes and reads.
pub(crate) const VERSION: u32 = 3;
/// The version of the record of a collection whose documents may share their `_id`: what knows
/// nothing of that must not read it.
const SHARED_IDS_VERSION: u32 = 4;
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
        indexes.push(entry);
    }
    let mut record = RawDocumentBuf::new();
    let shares_ids = !collection.has_unique_ids();
    let version = if shares_ids { SHARED_IDS_VERSION } else { VERSION };
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
    if has_sort_keys(collection) {
        record.append(cstr!("sortKeys"), SORT_KEY_VERSION);
    }
    record
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
        Some(RawBsonRef::Int32(v)) if [VERSION, SHARED_IDS_VERSION].contains(&(v as u32)) => {}
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
    let mut indexes = Vec::new();
    for entry in record.get_array("indexes").map_err(damaged)? {
        let entry = entry?.as_document().ok_or_else(|| damaged("index"))?;
        let mut spec = IndexSpec::parse(entry.get_document("spec").map_err(damaged)?)?;
        spec.inherits_collation = false;
        let dictionary = DictionaryId(number(entry, "dictionary")?);
        indexes.push(Arc::new(new_index(
            spec,
            options.collation.as_ref(),
            dictionary,
            Timestamp(0),
        )));
    }
    let order = match record.get("order")? {
        None => None,
        Some(_) => Some(DictionaryId(number(record, "order")?)),
    };
    if order.is_some() != options.capped.is_some() {
        return Err(damaged("a capped collection has an order, others have none"));
    }
    let collection = Collection {
        namespace: ns,
        uuid: Uuid::from_bytes(uuid),
        number: number(record, "number")?,
        options,
        primary: DictionaryId(number(record, "primary")?),
        order,
        indexes,
        shared: Arc::new(Shared::default()),
    };
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

/// An index that no document has entered yet, in a collection of this collation.
pub(crate) fn new_index(
    spec: IndexSpec,
    collection: Option<&Collation>,
    dictionary: DictionaryId,
    created: Timestamp,
) -> Index {
    let keys = KeyMaker::new(&spec, collection.cloned());
    Index { spec, dictionary, created, state: Arc::new(IndexState::default()), keys }
}

fn number(document: &RawDocument, key: &str) -> Result<u64> {
    let value = document.get_i64(key).map_err(damaged)?;
    u64::try_from(value).map_err(damaged)
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::new(Code::INTERNAL_ERROR, format!("damaged catalog record: {what}"))
}

/// Drops an index's dictionary and its mask as part of `txn`.
pub(crate) fn drop_index_records(
    txn: &mut engine::EngineTxn,
    dictionary: DictionaryId,
) -> engine::Result<()> {
    txn.drop_dictionary(dictionary)?;
    // Written only inside the collection, which nobody is now.
    txn.write_covered(DictionaryId::ROOT, &multikey_key(dictionary), None)
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
        if let Some(Ok(dictionary)) = key.get(1..).map(<[u8; 8]>::try_from) {
            dictionaries.push(DictionaryId(u64::from_be_bytes(dictionary)));
        }
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
    use bson::{Bson, doc};
    use std::fmt::Write;

    fn fixed() -> Collection {
        let raw = |document: &bson::Document| RawDocumentBuf::try_from(document).unwrap();
        let spec = doc! { "key": { "a": 1, "b.c": -1 }, "name": "x", "unique": true };
        let spec = IndexSpec::parse(&raw(&spec)).unwrap();
        let options =
            doc! { "compression": "lz4", "pageSize": "1m", "capped": true, "size": 4096_i64 };
        Collection {
            namespace: Namespace::parse("db.coll").unwrap(),
            uuid: Uuid::from_bytes([7; 16]),
            number: 3,
            options: CollectionOptions::parse(&raw(&options)).unwrap(),
            primary: DictionaryId(12),
            order: Some(DictionaryId(14)),
            indexes: vec![Arc::new(new_index(spec, None, DictionaryId(13), Timestamp(0)))],
            shared: Arc::new(Shared::default()),
        }
    }

    #[test]
    fn records_are_those_of_version_3() {
        let golden = include_str!("../../golden/collection-v3.hex");
        let golden: String = golden.split_whitespace().collect();
        let mut written = String::new();
        for byte in write_collection(&fixed()).as_bytes() {
            write!(written, "{byte:02x}").unwrap();
        }
        assert_eq!(written, golden);
    }

    #[test]
    fn a_record_says_that_ids_may_be_shared() {
        let raw = |document: &bson::Document| RawDocumentBuf::try_from(document).unwrap();
        let mut collection = fixed();
        collection.order = None;
        let options = doc! { "timeseries": { "timeField": "t" } };
        collection.options = CollectionOptions::parse(&raw(&options)).unwrap();
        let written = write_collection(&collection);
        assert_eq!(written.get_i32("v").unwrap(), 4);
        assert!(!read_collection(written.as_bytes()).unwrap().has_unique_ids());
        assert_eq!(write_collection(&fixed()).get_i32("v").unwrap(), 3);
        let mut newer = bson::Document::try_from(&written).unwrap();
        newer.insert("v", 5);
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
        collection.options = CollectionOptions::parse(&raw(&options)).unwrap();
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
        let newer = doc! { "v": 5, "ns": "db.c" };
        let newer = RawDocumentBuf::try_from(&newer).unwrap();
        let error = read_collection(newer.as_bytes()).unwrap_err();
        assert_eq!(error.code(), Code::UNSUPPORTED_FORMAT);
    }
}
