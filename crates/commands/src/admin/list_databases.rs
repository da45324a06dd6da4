//! `listDatabases`.

use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use crate::writer::Writer;
use catalog::Catalog;
use errors::Result;
use matcher::{Filter, ParseContext};

pub(crate) const LIST_DATABASES: Command =
    Command::new("listDatabases", "The databases and their sizes.", run).admin_only().api_v1();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut name_only = false;
    let mut filter = None;
    for field in &fields[1..] {
        match field.name {
            "nameOnly" => name_only = field.bool()?,
            "filter" => filter = Some(Filter::parse(field.document()?, &ParseContext::default())?),
            "authorizedDatabases" => {
                field.bool()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    let catalog = &context.service.catalog;
    let mut total = 0;
    let list = context.reply.begin_array("databases");
    let mut at = 0;
    for name in names(catalog) {
        let mut writer = Writer::new();
        writer.str("name", &name);
        let mut size = 0;
        if !name_only {
            let collections = catalog.collections(&name);
            for collection in &collections {
                let stats = catalog.stats(collection);
                size += stats.storage_bytes;
                size += stats.index_bytes();
            }
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
        }
    }
    context.reply.end(list);
    if !name_only {
        context.reply.long("totalSize", total);
        context.reply.long("totalSizeMb", total >> 20);
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
