//! `dropIndexes`, which TokuMX's time called `deleteIndexes`.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawBsonRef;
use catalog::IndexSelector;
use dispatch::fields::{Field, missing, type_name};
use errors::{Code, Error, Result};

pub(crate) const DROP_INDEXES: Command = Command::new(
    "dropIndexes",
    "Drops indexes by name or key pattern.",
    Needs::Collection(&[Action::DropIndex]),
    run,
)
.aliases(&["deleteIndexes"])
.api_v1()
.write_concern();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let mut selectors = None;
    for field in &fields[1..] {
        match field.name {
            "index" => selectors = Some(parse(field)?),
            _ => return Err(field.unknown()),
        }
    }
    let selectors = selectors.ok_or_else(|| missing("dropIndexes", "index"))?;
    let all = matches!(selectors[..], [IndexSelector::All]);
    context.at_collection(&namespace);
    context.check_uuid(&namespace)?;
    let (catalog, interrupt) = (&context.service.catalog, context.interrupt());
    let was = match context.txn() {
        Some(txn) => txn.drop_indexes(&namespace, &selectors)?,
        None => catalog.drop_indexes(&namespace, &selectors, &|| interrupt.check())?,
    };
    context.reply.number("nIndexesWas", was as u64);
    if all {
        context.reply.str("msg", "non-_id indexes dropped for collection");
    }
    Ok(())
}

fn parse<'a>(field: &Field<'a>) -> Result<Vec<IndexSelector<'a>>> {
    match field.value {
        RawBsonRef::String("*") => Ok(vec![IndexSelector::All]),
        RawBsonRef::String(name) => Ok(vec![IndexSelector::Name(name)]),
        RawBsonRef::Document(key) => Ok(vec![IndexSelector::Key(key)]),
        RawBsonRef::Array(names) => {
            let mut list: Vec<IndexSelector<'_>> = Vec::new();
            for (at, name) in names.into_iter().enumerate() {
                match name? {
                    // Named twice, it is gone when it is looked for again.
                    RawBsonRef::String(name)
                        if list.iter().any(
                            |one| matches!(one, IndexSelector::Name(other) if *other == name),
                        ) =>
                    {
                        return Err(Error::new(
                            Code::INDEX_NOT_FOUND,
                            format!("index not found with name [{name}]"),
                        ));
                    }
                    RawBsonRef::String(name) => list.push(IndexSelector::Name(name)),
                    other => {
                        return Err(Error::type_mismatch(format!(
                            "BSON field 'dropIndexes.index.{at}' is the wrong type '{}', expected \
                             type 'string'",
                            type_name(other)
                        )));
                    }
                }
            }
            Ok(list)
        }
        _ => Err(field.wrong_types("string, object")),
    }
}
