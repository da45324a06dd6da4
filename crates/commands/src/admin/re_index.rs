//! `reIndex`: rewrites a collection and its indexes, in another storage shape if asked.
//!
//! With `options` the new shape is committed first, then everything is rewritten in it; without,
//! what waits in buffers is moved down and what nobody sees any more is dropped. Reads and writes
//! go on meanwhile; `currentOp` says how far it is, `killOp` ends it and leaves what is done.

use super::stats::write_shape;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawBsonRef;
use catalog::{IndexSelector, ReindexProgress};
use dispatch::fields::Field;
use engine::Rewrite;
use errors::Result;

pub(crate) const RE_INDEX: Command = Command::new(
    "reIndex",
    "Rewrites a collection and its indexes, also in another shape.",
    Needs::Collection(&[Action::ReIndex]),
    run,
)
.aliases(&["reindex"])
.write_concern();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let mut selector = IndexSelector::All;
    let mut options = None;
    for field in &fields[1..] {
        match field.name {
            "index" => {
                selector = match field.value {
                    RawBsonRef::String("*") => IndexSelector::All,
                    RawBsonRef::String(name) => IndexSelector::Name(name),
                    RawBsonRef::Document(key) => IndexSelector::Key(key),
                    _ => return Err(field.wrong_types("string, object")),
                };
            }
            "options" => options = Some(field.document()?).filter(|options| !options.is_empty()),
            _ => return Err(field.unknown()),
        }
    }
    context.at_collection(&namespace);
    let catalog = &context.service.catalog;
    let check = || context.check_interrupt();
    let before = match options {
        Some(options) => catalog.reshape_indexes(&namespace, selector, options, &check)?,
        None => Vec::new(),
    };
    let what = if options.is_some() { Rewrite::All } else { Rewrite::Untidy };
    let operation = &context.connection.operation;
    let report = |progress: ReindexProgress<'_>| {
        let ReindexProgress { index, done_bytes, total_bytes } = progress;
        operation.set_progress(&format!("reIndex: {namespace}.${index}"), done_bytes, total_bytes);
        context.check_interrupt()
    };
    catalog.rewrite_indexes(&namespace, selector, what, &report)?;
    let collection = catalog.require_newest(&namespace)?;
    let reply = &mut context.reply;
    let count = collection.shown_index_count() as u64;
    reply.number("nIndexesWas", count);
    reply.number("nIndexes", count);
    let list = reply.begin_array("indexes");
    let primary = super::list_collections::primary_spec(&collection);
    let specs = collection.shown_indexes().map(|index| index.spec().shown.clone());
    for (at, spec) in std::iter::once(primary).chain(specs).enumerate() {
        reply.element_document(at, &spec);
    }
    reply.end(list);
    if let [only] = &before[..] {
        let was = reply.begin_document("was");
        write_shape(reply, &only.was);
        reply.end(was);
    } else if !before.is_empty() {
        let was = reply.begin_document("was");
        for index in &before {
            let one = reply.begin_document(&index.name);
            write_shape(reply, &index.was);
            reply.end(one);
        }
        reply.end(was);
    }
    if let Some(note) = options.and_then(indexkeys::substitution) {
        reply.str("note", &note);
    }
    Ok(())
}
