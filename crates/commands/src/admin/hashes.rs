//! `dbHash` and `filemd5`: digests by which clients compare what two servers hold.
//!
//! Always true: a digest is of one snapshot, of the documents' bytes in the order of `_id`, or of a
//! `GridFS` file's bytes from its beginning.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use auth::Action;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{RawDocumentBuf, doc};
use catalog::{Collection, IndexCursor, Namespace, from_engine};
use dispatch::fields::{Field, missing};
use engine::{DictionaryId, Direction, KeyRange, Snapshot};
use errors::{Code, Error, Result};
use md5::{Digest, Md5};
use query::FindRequest;

pub(crate) const DB_HASH: Command = Command::new(
    "dbHash",
    "A digest of each collection of a database.",
    Needs::Database(&[Action::DbHash]),
    db_hash,
)
.aliases(&["dbhash"]);

pub(crate) const FILE_MD5: Command = Command::new(
    "filemd5",
    "The digest of a GridFS file, for old drivers.",
    Needs::Computed(asks::file_md5),
    file_md5,
);

/// Documents between two questions whether to go on.
const PERIOD: u64 = 128;

fn db_hash(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut wanted = None;
    for field in &fields[1..] {
        match field.name {
            "collections" => wanted = Some(field.strings()?),
            _ => return Err(field.unknown()),
        }
    }
    let database = context.database();
    catalog::check_database(database)?;
    let catalog = &context.service.catalog;
    let start = catalog.os().clock.monotonic();
    let collections = catalog.collections(database);
    let snapshot = catalog.snapshot();
    let mut whole = Md5::new();
    let mut digests = Vec::new();
    for collection in &collections {
        let name = collection.namespace().collection();
        let asked = wanted.as_ref().is_none_or(|names| names.is_empty() || names.contains(&name));
        if collection.is_view() || name.starts_with("system.") || !asked {
            continue;
        }
        let digest = digest_of(context, &snapshot, collection)?;
        whole.update(&digest);
        digests.push((collection, digest));
    }
    let elapsed = catalog.os().clock.monotonic().saturating_sub(start);
    let host = format!("{}:{}", context.service.info.host, context.service.info.port);
    let reply = &mut context.reply;
    reply.str("host", &host);
    let list = reply.begin_document("collections");
    for (collection, digest) in &digests {
        reply.str(collection.namespace().collection(), digest);
    }
    reply.end(list);
    let capped = reply.begin_array("capped");
    let names = digests.iter().filter(|(collection, _)| collection.cap().is_some());
    for (at, (collection, _)) in names.enumerate() {
        reply.element_str(at, collection.namespace().collection());
    }
    reply.end(capped);
    let uuids = reply.begin_document("uuids");
    for (collection, _) in &digests {
        reply.uuid(collection.namespace().collection(), &collection.uuid().bytes());
    }
    reply.end(uuids);
    reply.str("md5", &text(whole));
    reply.number("timeMillis", elapsed.as_millis() as u64);
    Ok(())
}

/// The digest of the documents in the order of `_id`, whatever they are clustered by.
fn digest_of(
    context: &Context<'_>,
    snapshot: &Snapshot,
    collection: &Collection,
) -> Result<String> {
    let mut digest = Md5::new();
    let by_id = collection.id_index();
    let dictionaries: Vec<DictionaryId> = (0..collection.partitions().len().max(1))
        .map(|place| match by_id {
            None => collection.primary_at(place),
            Some(index) => collection.index_at(index, place),
        })
        .collect();
    let open = |dictionary, range| {
        snapshot.cursor(dictionary, range, Direction::Forward).map_err(from_engine)
    };
    let range = KeyRange::all();
    let mut cursor = IndexCursor::open(&dictionaries, range, Direction::Forward, open)?;
    let mut seen = 0_u64;
    while let Some((key, value)) = cursor.next()? {
        if seen.is_multiple_of(PERIOD) {
            context.check_interrupt()?;
        }
        seen += 1;
        match by_id {
            None => digest.update(value),
            Some(index) => {
                let record_key = index.keys().record_key_of(key, value)?;
                let document = snapshot.get(collection.primary_of(record_key), record_key);
                let document = document.map_err(from_engine)?;
                digest.update(document.as_deref().unwrap_or_default());
            }
        }
    }
    Ok(text(digest))
}

fn file_md5(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let id = fields[0].value;
    let mut root = None;
    for field in &fields[1..] {
        match field.name {
            "root" => root = Some(field.str()?),
            _ => return Err(field.unknown()),
        }
    }
    let root = root.ok_or_else(|| missing("filemd5", "root"))?;
    let namespace = Namespace::new(context.database(), &format!("{root}.chunks"))?;
    context.at_collection(&namespace);
    let mut filter = RawDocumentBuf::new();
    filter.append(bson::raw::cstr!("files_id"), id);
    let sort = RawDocumentBuf::try_from(&doc! { "files_id": 1, "n": 1 })?;
    let find = FindRequest { filter: Some(&filter), sort: Some(&sort), ..FindRequest::default() };
    let mut digest = Md5::new();
    let mut chunks = 0_u64;
    let mut op = context.op();
    let mut rows = query::find(&mut op, &namespace, &find)?.into_cursor();
    while let Some(chunk) = rows.next()? {
        digest.update(chunk_of(chunk, chunks)?);
        chunks += 1;
    }
    drop((rows, op));
    context.reply.number("numChunks", chunks);
    context.reply.str("md5", &text(digest));
    Ok(())
}

/// The bytes of the chunk that must come next.
fn chunk_of(chunk: &RawDocument, expected: u64) -> Result<&[u8]> {
    let number = chunk.get("n")?.and_then(dispatch::fields::as_i64);
    if number != i64::try_from(expected).ok() {
        return Err(Error::location(
            10040,
            format!("chunks out of order: expected {expected}, found {number:?}"),
        ));
    }
    match chunk.get("data")? {
        Some(RawBsonRef::Binary(data)) => Ok(data.bytes),
        _ => Err(Error::new(Code::TYPE_MISMATCH, "the data of a chunk must be binary")),
    }
}

/// A digest in hexadecimal.
fn text(digest: Md5) -> String {
    use std::fmt::Write;
    digest.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}
