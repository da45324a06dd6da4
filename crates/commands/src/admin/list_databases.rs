//! `listDatabases`.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use auth::Action;
use catalog::Catalog;
use dispatch::fields::Field;
use dispatch::writer::Writer;
use errors::Result;
use matcher::{Filter, ParseContext};

pub(crate) const LIST_DATABASES: Command = Command::new(
    "listDatabases",
    "The databases and their sizes.",
    Needs::Computed(asks::list_databases),
    run,
)
.admin_only()
.api_v1();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut name_only = false;
    let mut filter = None;
    let mut only_own = false;
    for field in &fields[1..] {
        match field.name {
            "nameOnly" => name_only = field.bool()?,
            "filter" => filter = Some(Filter::parse(field.document()?, &ParseContext::default())?),
            "authorizedDatabases" => only_own = field.bool()?,
            _ => return Err(field.unknown()),
        }
    }
    let catalog = &context.service.catalog;
    let (mut total, mut total_uncompressed) = (0, 0);
    let list = context.reply.begin_array("databases");
    let mut at = 0;
    // Without the right to list them all one sees those in which one may do something.
    let sees_all = !only_own && context.admitted.may_cluster(Action::ListDatabases);
    let own = context.admitted.identity.clone().filter(|_| !sees_all);
    for name in names(catalog) {
        if own.as_ref().is_some_and(|own| !own.rights.grants.knows_database(&name)) {
            continue;
        }
        let mut writer = Writer::new();
        writer.str("name", &name);
        let (mut size, mut uncompressed) = (0, 0);
        if !name_only {
            let collections = catalog.collections(&name);
            for collection in &collections {
                let stats = catalog.stats(collection);
                size += stats.storage_bytes;
                size += stats.index_bytes();
                uncompressed += stats.data_bytes;
            }
            // TokuMX's: what the documents are without compression.
            writer.long("size", uncompressed);
            writer.long("sizeOnDisk", size);
            writer.bool("empty", collections.is_empty());
        }
        let entry = writer.finish();
        let passes = match &filter {
            Some(filter) => filter.matches(&entry)?,
            None => true,
        };
        if passes {
            context.reply.element_document(at, &entry);
            at += 1;
            total += size;
            total_uncompressed += uncompressed;
        }
    }
    context.reply.end(list);
    if !name_only {
        context.reply.long("totalSize", total);
        context.reply.long("totalSizeMb", total >> 20);
        context.reply.long("totalUncompressedSize", total_uncompressed);
    }
    Ok(())
}

/// The databases with collections, and the two every server has.
fn names(catalog: &Catalog) -> Vec<String> {
    let mut names = catalog.databases();
    names.extend(["admin".to_owned(), "local".to_owned()]);
    names.sort_unstable();
    names.dedup();
    names
}
