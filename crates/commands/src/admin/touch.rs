//! `touch`: reads a collection into memory, for clients of servers before MongoDB 4.2 and of TokuMX.
//!
//! Always true: what does not fit into the cache is read all the same, and leaves memory again.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use catalog::Namespace;
use dispatch::fields::Field;
use errors::{Error, Result};

pub(crate) const TOUCH: Command = Command::new(
    "touch",
    "Reads a collection's documents or indexes into memory.",
    Needs::Cluster(&[Action::Touch]),
    run,
);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    // Who may touch on the server may touch every collection: none is judged by its name.
    let namespace = Namespace::new(context.database(), fields[0].collection()?)?;
    let (mut documents, mut indexes) = (false, false);
    for field in &fields[1..] {
        match field.name {
            "data" => documents = field.bool()?,
            "index" => indexes = field.bool()?,
            _ => return Err(field.unknown()),
        }
    }
    if !documents && !indexes {
        return Err(Error::bad_value("must specify at least one of (data:true, index:true)"));
    }
    context.at_collection(&namespace);
    let collection = context.service.catalog.require(&namespace)?;
    if collection.is_view() {
        return Err(super::is_a_view(&namespace));
    }
    for (name, wanted, of_documents) in [("data", documents, true), ("indexes", indexes, false)] {
        if !wanted {
            continue;
        }
        let started = context.now();
        let interrupt = context.interrupt();
        let check = || interrupt.check();
        let read = context.service.catalog.touch(&collection, of_documents, &check)?;
        let millis = context.now().saturating_sub(started).as_millis();
        let read = i32::try_from(read).unwrap_or(i32::MAX);
        let part = context.reply.begin_document(name);
        if !of_documents {
            context.reply.i32("num", read);
        }
        context.reply.i32("numRanges", read);
        context.reply.i32("millis", i32::try_from(millis).unwrap_or(i32::MAX));
        context.reply.end(part);
    }
    Ok(())
}
