//! `collStats`, `dbStats` and `dataSize`: what is stored and what it weighs.
//!
//! Always true: counts are exact; sizes on disk are the engine's own.

use super::is_a_view;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::not_stored;
use crate::security::asks;
use auth::Action;
use bson::RawBsonRef;
use catalog::{Collection, CollectionStats, Namespace};
use dispatch::fields::{Field, as_i64};
use dispatch::writer::Writer;
use engine::DictionaryOptions;
use errors::{Error, Result};

pub(crate) const COLL_STATS: Command = Command::new(
    "collStats",
    "A collection's counts and sizes.",
    Needs::Collection(&[Action::CollStats]),
    coll_stats,
)
.aliases(&["collstats"]);

pub(crate) const DB_STATS: Command = Command::new(
    "dbStats",
    "A database's counts and sizes.",
    Needs::Database(&[Action::DbStats]),
    db_stats,
)
.aliases(&["dbstats"]);

pub(crate) const DATA_SIZE: Command = Command::new(
    "dataSize",
    "The size of a collection's documents.",
    Needs::Computed(asks::data_size),
    data_size,
)
.aliases(&["datasize"]);

fn parse_scale(field: &Field<'_>) -> Result<u64> {
    if field.is_null() {
        return Ok(1);
    }
    let scale =
        as_i64(field.value).ok_or_else(|| field.wrong_types("long, int, decimal, double"))?;
    match u64::try_from(scale) {
        Ok(scale) if scale >= 1 => Ok(scale),
        _ => Err(Error::bad_value(format!(
            "BSON field 'scale' value must be >= 1, actual value '{scale}'"
        ))),
    }
}

/// The oplog's figures. It is the log itself: how many entries it has is an estimate.
fn oplog_stats(context: &mut Context<'_>, namespace: &Namespace, scale: u64) -> Result<()> {
    let Some(oplog) = query::OplogFigures::of(&context.service.catalog)? else { return Ok(()) };
    let reply = &mut context.reply;
    reply.str("ns", namespace.as_str());
    reply.number("size", oplog.bytes / scale);
    reply.number("count", oplog.entries);
    reply.number("avgObjSize", oplog.entry_bytes);
    reply.number("numOrphanDocs", 0);
    reply.number("storageSize", oplog.bytes / scale);
    reply.number("freeStorageSize", 0);
    reply.bool("capped", true);
    reply.number("max", 0);
    reply.number("maxSize", oplog.most_bytes / scale);
    reply.number("nindexes", 0);
    let builds = reply.begin_array("indexBuilds");
    reply.end(builds);
    reply.number("totalIndexSize", 0);
    reply.number("totalSize", oplog.bytes / scale);
    let sizes = reply.begin_document("indexSizes");
    reply.end(sizes);
    reply.number("scaleFactor", scale);
    Ok(())
}

fn coll_stats(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let mut scale = 1;
    for field in &fields[1..] {
        match field.name {
            "scale" => scale = parse_scale(field)?,
            "waitForLock" | "numericOnly" => {
                field.bool()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    context.at_collection(&namespace);
    if context.service.catalog.is_oplog(&namespace) {
        return oplog_stats(context, &namespace, scale);
    }
    let held = not_stored::collection(context, &namespace)?;
    let catalog = &context.service.catalog;
    let collection = catalog.collection(&namespace);
    if collection.as_ref().is_some_and(|collection| collection.is_view()) {
        return Err(is_a_view(&namespace));
    }
    let reply = &mut context.reply;
    reply.str("ns", namespace.as_str());
    let mut stats =
        collection.as_ref().map(|collection| catalog.stats(collection)).unwrap_or_default();
    if let Some(documents) = &held {
        stats.documents = documents.len() as u64;
        stats.data_bytes = documents.iter().map(|document| document.as_bytes().len() as u64).sum();
    }
    let index_bytes: u64 = stats.index_bytes();
    reply.number("size", stats.data_bytes / scale);
    reply.number("count", stats.documents);
    if let Some(average) = stats.data_bytes.checked_div(stats.documents) {
        reply.number("avgObjSize", average);
    }
    reply.number("numOrphanDocs", 0);
    reply.number("storageSize", stats.storage_bytes / scale);
    reply.number("freeStorageSize", 0);
    let cap = collection.as_ref().and_then(|collection| collection.cap());
    reply.bool("capped", cap.is_some());
    if let Some(cap) = cap {
        reply.number("max", cap.documents.unwrap_or(0));
        reply.number("maxSize", cap.bytes / scale);
        reply.number("cappedCount", stats.documents);
        reply.number("cappedSizeMax", cap.bytes / scale);
        reply.number("cappedSizeCurrent", stats.data_bytes / scale);
    }
    let shown = || stats.indexes.iter().filter(|index| index.is_shown());
    let built = shown().count();
    let unfinished = collection.as_ref().map_or(0, |known| catalog.unfinished_indexes(known));
    reply.number("nindexes", built as u64);
    // TokuMX's: what is there together with what is being built.
    reply.number("nindexesbeingbuilt", (built + unfinished) as u64);
    let builds = reply.begin_array("indexBuilds");
    reply.end(builds);
    reply.number("totalIndexSize", index_bytes / scale);
    reply.number("totalIndexStorageSize", index_bytes / scale);
    reply.number("totalSize", (stats.storage_bytes + index_bytes) / scale);
    let sizes = reply.begin_document("indexSizes");
    for index in shown() {
        reply.number(&index.name, index.beside_bytes() / scale);
    }
    reply.end(sizes);
    write_details(reply, &stats, scale, true);
    if let Some(collection) = collection.filter(|collection| collection.is_partitioned()) {
        let partitions = catalog.partition_stats(&collection);
        write_partitions(reply, &collection, &partitions, scale);
    }
    reply.number("scaleFactor", scale);
    Ok(())
}

/// TokuMX's view of the indexes. How they are used is counted of the whole collection alone.
fn write_details(reply: &mut Writer, stats: &CollectionStats, scale: u64, uses: bool) {
    let details = reply.begin_array("indexDetails");
    for (at, index) in stats.indexes.iter().filter(|index| index.is_shown()).enumerate() {
        let one = reply.begin_element(at);
        reply.str("name", &index.name);
        reply.number("count", index.entries);
        reply.number("size", index.data_bytes / scale);
        let average = index.data_bytes as f64 / index.entries.max(1) as f64;
        reply.f64("avgObjSize", average);
        reply.number("storageSize", index.storage_bytes / scale);
        write_shape(reply, &index.options);
        if uses {
            reply.number("queries", index.used.queries);
            reply.number("nscanned", index.used.scanned);
            reply.number("nscannedObjects", index.used.scanned_objects);
            reply.number("inserts", index.used.inserts);
            reply.number("deletes", index.used.deletes);
        }
        reply.end(one);
    }
    reply.end(details);
}

/// What each partition weighs, as TokuMX tells it.
fn write_partitions(
    reply: &mut Writer,
    collection: &Collection,
    all: &[CollectionStats],
    scale: u64,
) {
    let list = reply.begin_array("partitions");
    for (at, (stats, partition)) in all.iter().zip(collection.partitions()).enumerate() {
        let one = reply.begin_element(at);
        reply.long("_id", partition.id);
        reply.number("count", stats.documents);
        reply.number(
            "nindexes",
            stats.indexes.iter().filter(|index| index.is_shown()).count() as u64,
        );
        reply.number("size", stats.data_bytes / scale);
        reply.number("storageSize", stats.storage_bytes / scale);
        reply.number("totalIndexSize", stats.index_bytes() / scale);
        reply.number("totalIndexStorageSize", stats.index_bytes() / scale);
        write_details(reply, stats, scale, false);
        reply.end(one);
    }
    reply.end(list);
}

/// The storage shape, as TokuMX spells it.
pub(crate) fn write_shape(reply: &mut Writer, options: &DictionaryOptions) {
    reply.number("pageSize", u64::from(options.page_size));
    reply.number("readPageSize", u64::from(options.read_page_size));
    reply.number("fanout", u64::from(options.fanout));
    reply.str("compression", &catalog::compression_name(options.compression));
}

fn db_stats(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut scale = 1;
    let mut free_storage = false;
    for field in &fields[1..] {
        match field.name {
            "scale" => scale = parse_scale(field)?,
            "freeStorage" => free_storage = field.bool()?,
            _ => return Err(field.unknown()),
        }
    }
    let database = context.database();
    catalog::check_database(database)?;
    let catalog = &context.service.catalog;
    let (mut collections, mut views, mut documents, mut indexes) = (0_u64, 0_u64, 0_u64, 0_u64);
    let (mut data, mut storage, mut index_storage) = (0_u64, 0_u64, 0_u64);
    for collection in catalog.collections(database) {
        if collection.is_view() {
            views += 1;
            continue;
        }
        let stats = catalog.stats(&collection);
        collections += 1;
        documents += stats.documents;
        data += stats.data_bytes;
        storage += stats.storage_bytes;
        indexes += stats.indexes.iter().filter(|index| index.is_shown()).count() as u64;
        index_storage += stats.index_bytes();
    }
    let scaled = |bytes: u64| bytes as f64 / scale as f64;
    let reply = &mut context.reply;
    reply.str("db", database);
    reply.long("collections", collections);
    reply.long("views", views);
    reply.long("objects", documents);
    reply.f64("avgObjSize", if documents == 0 { 0.0 } else { data as f64 / documents as f64 });
    reply.f64("dataSize", scaled(data));
    reply.f64("storageSize", scaled(storage));
    if free_storage {
        reply.f64("freeStorageSize", 0.0);
    }
    reply.long("indexes", indexes);
    reply.f64("indexSize", scaled(index_storage));
    reply.f64("indexStorageSize", scaled(index_storage));
    if free_storage {
        reply.f64("indexFreeStorageSize", 0.0);
    }
    reply.f64("totalSize", scaled(storage + index_storage));
    reply.long("scaleFactor", scale);
    let space = context.service.os.vfs.space(context.service.info.data_directory.as_ref());
    if let Ok(space) = space {
        context.reply.f64("fsUsedSize", scaled(space.total.saturating_sub(space.available)));
        context.reply.f64("fsTotalSize", scaled(space.total));
    }
    Ok(())
}

fn data_size(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let RawBsonRef::String(name) = fields[0].value else {
        return Err(fields[0].wrong_type("string"));
    };
    let namespace = context.opened(Namespace::parse(name)?)?;
    for field in &fields[1..] {
        match field.name {
            "estimate" => {
                field.bool()?;
            }
            "keyPattern" | "min" | "max" => {
                if !field.document()?.is_empty() {
                    return Err(field.not_yet());
                }
            }
            _ => return Err(field.unknown()),
        }
    }
    let collection = context.service.catalog.collection(&namespace);
    let (size, count) =
        collection.map_or((0, 0), |collection| (collection.data_size(), collection.count()));
    let millis = context.now().saturating_sub(context.started).as_millis() as i32;
    context.reply.bool("estimate", false);
    context.reply.number("size", size);
    context.reply.number("numObjects", count);
    context.reply.i32("millis", millis);
    Ok(())
}
