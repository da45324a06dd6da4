//! `listCollections`.

use crate::batch::{CursorOptions, first_batch, parse_list_cursor};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::not_stored;
use crate::security::asks;
use auth::Target;
use bson::RawDocumentBuf;
use catalog::{Collection, Namespace};
use dispatch::fields::Field;
use dispatch::writer::Writer;
use errors::Result;
use matcher::{Filter, ParseContext};
use serverstate::Documents;

pub(crate) const LIST_COLLECTIONS: Command = Command::new(
    "listCollections",
    "The collections and views of a database.",
    Needs::Computed(asks::list_collections),
    run,
)
.api_v1();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut wanted = CursorOptions { batch_size: Some(u64::MAX), ..CursorOptions::default() };
    let mut name_only = false;
    let mut filter = None;
    let mut only_own = false;
    for field in &fields[1..] {
        match field.name {
            "cursor" => wanted = parse_list_cursor(field, "listCollections.cursor")?,
            "nameOnly" => name_only = field.strict_bool()?,
            "filter" => filter = Some(Filter::parse(field.document()?, &ParseContext::default())?),
            "authorizedCollections" => only_own = field.strict_bool()?,
            _ => return Err(field.unknown()),
        }
    }
    let database = context.database();
    catalog::check_database(database)?;
    let mut list = Vec::new();
    let catalog = &context.service.catalog;
    let collections = match context.txn() {
        Some(txn) => txn.collections(database),
        None => catalog.collections(database),
    };
    let own = context.admitted.identity.clone().filter(|_| only_own && name_only);
    let is_own = |name: &str| match &own {
        Some(own) => !own.rights.grants.actions_on(Target::Collection(database, name)).is_empty(),
        None => true,
    };
    for collection in collections {
        if !is_own(collection.namespace().collection()) {
            continue;
        }
        // The filter sees everything, also where only names are wanted.
        let full = describe(&collection);
        let passes = match &filter {
            Some(filter) => filter.matches(&full)?,
            None => true,
        };
        if passes {
            list.push(if name_only { name_and_type(&collection) } else { full });
        }
    }
    for (name, full) in of_another_form(context, database)? {
        let passes = match &filter {
            _ if !is_own(name) => false,
            Some(filter) => filter.matches(&full)?,
            None => true,
        };
        if passes {
            list.push(if name_only { name_alone(name) } else { full });
        }
    }
    context.connection.operation.set_namespace(&format!("{database}.$cmd.listCollections").into());
    let namespace = format!("{database}.$cmd.listCollections");
    first_batch(context, &namespace, Documents::list(list), None, &wanted)
}

/// What are collections to clients, and are not stored as such: their names, and what is told of them.
fn of_another_form(
    context: &Context<'_>,
    database: &str,
) -> Result<Vec<(&'static str, RawDocumentBuf)>> {
    let mut list: Vec<(&'static str, RawDocumentBuf)> =
        oplog_in(context, database).map(|oplog| ("oplog.rs", oplog)).into_iter().collect();
    if database == "local" && not_stored::set_configuration(context)?.is_some() {
        let name = "system.replset";
        let mut writer = Writer::new();
        writer.str("name", name);
        writer.str("type", "collection");
        let options = writer.begin_document("options");
        writer.end(options);
        let info = writer.begin_document("info");
        writer.bool("readOnly", true);
        writer.end(info);
        list.push((name, writer.finish()));
    }
    Ok(list)
}

/// The oplog, which is a collection of `local` to clients.
fn oplog_in(context: &Context<'_>, database: &str) -> Option<RawDocumentBuf> {
    let namespace = Namespace::parse(Namespace::OPLOG).ok()?;
    let catalog = &context.service.catalog;
    if database != namespace.database() || !catalog.is_oplog(&namespace) {
        return None;
    }
    let history = catalog.engine().history()?;
    let mut writer = Writer::new();
    writer.str("name", namespace.collection());
    writer.str("type", "collection");
    let options = writer.begin_document("options");
    writer.bool("capped", true);
    writer.number("size", history.options().bytes);
    writer.bool("autoIndexId", false);
    writer.end(options);
    let info = writer.begin_document("info");
    writer.bool("readOnly", false);
    writer.end(info);
    Some(writer.finish())
}

fn name_alone(name: &str) -> RawDocumentBuf {
    let mut writer = Writer::new();
    writer.str("name", name);
    writer.str("type", "collection");
    writer.finish()
}

fn name_and_type(collection: &Collection) -> RawDocumentBuf {
    let mut writer = Writer::new();
    write_name(&mut writer, collection);
    writer.finish()
}

fn write_name(writer: &mut Writer, collection: &Collection) {
    writer.str("name", collection.namespace().collection());
    writer.str("type", kind_of(collection));
}

/// What kind of collection it is shown as.
pub(crate) fn kind_of(collection: &Collection) -> &'static str {
    match collection.options() {
        _ if collection.is_view() => "view",
        options if options.time_series.is_some() => "timeseries",
        _ => "collection",
    }
}

pub(crate) fn describe(collection: &Collection) -> RawDocumentBuf {
    let mut writer = Writer::new();
    write_name(&mut writer, collection);
    writer.document("options", &collection.options().shown);
    let info = writer.begin_document("info");
    writer.bool("readOnly", collection.is_view());
    // MongoDB shows measurements through a view of their buckets, and a view has none.
    if !collection.is_view() && collection.options().time_series.is_none() {
        writer.uuid("uuid", &collection.uuid().bytes());
    }
    writer.end(info);
    let options = collection.options();
    if !collection.is_view() && options.clustered.is_none() && options.time_series.is_none() {
        let index = writer.begin_document("idIndex");
        write_id_index(&mut writer, collection);
        writer.end(index);
    }
    writer.finish()
}

/// The index that is the collection itself: on `_id`, or its primary key.
pub(crate) fn primary_spec(collection: &Collection) -> RawDocumentBuf {
    if let Some(index) = collection.primary_index() {
        return index.spec().shown.clone();
    }
    let mut id = Writer::new();
    write_id_index(&mut id, collection);
    id.finish()
}

/// The index on `_id`, which every collection has.
pub(crate) fn write_id_index(writer: &mut Writer, collection: &Collection) {
    writer.i32("v", 2);
    let key = writer.begin_document("key");
    writer.i32("_id", 1);
    writer.end(key);
    let options = collection.options();
    writer.str("name", options.id_index_name());
    if options.clustered.is_some() {
        writer.bool("unique", true);
    }
    if let Some(collation) = collection.collation() {
        writer.document("collation", &bsonval::collation::to_document(collation));
    }
    if options.clustered.is_some() {
        if let Some(seconds) = options.expire_after_seconds {
            writer.number("expireAfterSeconds", seconds.max(0) as u64);
        }
        writer.bool("clustered", true);
    }
}
