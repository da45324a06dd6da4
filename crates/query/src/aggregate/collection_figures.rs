//! What `$collStats` tells of a collection, and of the oplog, which is none.

use super::oplog_collection::no_oplog;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, DateTime, Document, doc};
use bsonval::types::option_integer;
use catalog::{Catalog, Collection, Namespace};
use errors::{Code, Error, Result};

/// Bytes of log that an entry of the oplog is taken for.
const ENTRY_BYTES: u64 = 256;

/// The oplog's figures. It is the log itself: how many entries it has is an estimate.
#[derive(Clone, Copy, Debug)]
pub struct OplogFigures {
    /// How many it may have.
    pub entries: u64,
    /// What each is taken for.
    pub entry_bytes: u64,
    /// Of the log.
    pub bytes: u64,
    /// As long as it may be.
    pub most_bytes: u64,
}

impl OplogFigures {
    /// Those of this member; `None` where it has no oplog.
    pub fn of(catalog: &Catalog) -> Result<Option<Self>> {
        let Some(history) = catalog.engine().history() else { return Ok(None) };
        let stats = history.stats().map_err(catalog::from_engine)?;
        Ok(Some(Self {
            entries: stats.bytes / ENTRY_BYTES,
            entry_bytes: ENTRY_BYTES,
            bytes: stats.bytes,
            most_bytes: stats.options.bytes,
        }))
    }
}

/// The document of `$collStats`: as much as its argument asks for.
pub(super) fn coll_stats(
    catalog: &Catalog,
    ns: &Namespace,
    asked: &RawDocument,
) -> Result<Document> {
    let mut out = doc! {
        "ns": ns.as_str(),
        "localTime": DateTime::from_millis(catalog.os().clock.wall_ms()),
    };
    let storage = match asked.get("storageStats") {
        Ok(Some(RawBsonRef::Document(storage))) => Some(Scale::of(storage)?),
        _ => None,
    };
    let (count, figures) = if catalog.is_oplog(ns) {
        let oplog = OplogFigures::of(catalog)?.ok_or_else(no_oplog)?;
        (oplog.entries, storage.map(|scale| oplog_storage(&oplog, scale)))
    } else {
        let collection = catalog.collection(ns).ok_or_else(|| {
            Error::new(Code::NAMESPACE_NOT_FOUND, format!("Collection [{ns}] not found."))
        })?;
        let stats = catalog.stats(&collection);
        (stats.documents, storage.map(|scale| storage_stats(&collection, &stats, scale)))
    };
    let is_asked = |name: &str| matches!(asked.get(name), Ok(Some(_)));
    if is_asked("count") {
        out.insert("count", figure(count));
    }
    if let Some(figures) = figures {
        out.insert("storageStats", figures);
    }
    if is_asked("latencyStats") {
        let none = || doc! { "latency": 0_i64, "ops": 0_i64 };
        out.insert(
            "latencyStats",
            doc! { "reads": none(), "writes": none(), "commands": none(), "transactions": none() },
        );
    }
    Ok(out)
}

/// What sizes are divided by.
#[derive(Clone, Copy)]
struct Scale(u64);

impl Scale {
    fn of(storage: &RawDocument) -> Result<Self> {
        let scale = match storage.get("scale") {
            Ok(None | Some(RawBsonRef::Null)) | Err(_) => return Ok(Self(1)),
            Ok(Some(value)) => option_integer(value).and_then(|scale| u64::try_from(scale).ok()),
        };
        match scale {
            Some(scale) if scale >= 1 => Ok(Self(scale)),
            _ => Err(Error::bad_value(
                "BSON field '$collStats.storageStats.scale' value must be >= 1",
            )),
        }
    }

    fn size(self, bytes: u64) -> Bson {
        figure(bytes / self.0)
    }
}

fn figure(number: u64) -> Bson {
    Bson::Int64(i64::try_from(number).unwrap_or(i64::MAX))
}

fn storage_stats(
    collection: &Collection,
    stats: &catalog::CollectionStats,
    scale: Scale,
) -> Document {
    let shown = || stats.indexes.iter().filter(|index| index.is_shown());
    let sizes: Document =
        shown().map(|index| (index.name.clone(), scale.size(index.beside_bytes()))).collect();
    let total: u64 = stats.index_bytes();
    let mut storage = doc! {
        "size": scale.size(stats.data_bytes),
        "count": figure(stats.documents),
        "avgObjSize": figure(stats.data_bytes / stats.documents.max(1)),
        "numOrphanDocs": 0,
        "storageSize": scale.size(stats.storage_bytes),
        "freeStorageSize": 0,
        "capped": collection.cap().is_some(),
        "nindexes": shown().count() as i32,
        "indexBuilds": [],
        "totalIndexSize": scale.size(total),
        "totalSize": scale.size(stats.storage_bytes + total),
        "indexSizes": sizes,
        "scaleFactor": figure(scale.0),
    };
    if let Some(cap) = collection.cap() {
        storage.insert("max", figure(cap.documents.unwrap_or(0)));
        storage.insert("maxSize", scale.size(cap.bytes));
    }
    storage
}

fn oplog_storage(oplog: &OplogFigures, scale: Scale) -> Document {
    doc! {
        "size": scale.size(oplog.bytes),
        "count": figure(oplog.entries),
        "avgObjSize": figure(oplog.entry_bytes),
        "numOrphanDocs": 0,
        "storageSize": scale.size(oplog.bytes),
        "freeStorageSize": 0,
        "capped": true,
        "nindexes": 0,
        "indexBuilds": [],
        "totalIndexSize": 0_i64,
        "totalSize": scale.size(oplog.bytes),
        "indexSizes": {},
        "scaleFactor": figure(scale.0),
        "max": 0_i64,
        "maxSize": scale.size(oplog.most_bytes),
    }
}
