//! `createIndexes`: builds indexes over what is stored.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::replication::commit_quorum::{self, CommitQuorum};
use auth::Action;
use bson::{RawBsonRef, RawDocument};
use dispatch::fields::{Field, as_i64, missing};
use errors::{Error, Result};
use indexkeys::IndexSpec;

pub(crate) const CREATE_INDEXES: Command = Command::new(
    "createIndexes",
    "Builds indexes.",
    Needs::Collection(&[Action::CreateIndex]),
    run,
)
.api_v1()
.write_concern();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let (mut indexes, mut ignores_unknown, mut quorum) = (None, false, None);
    for field in &fields[1..] {
        match field.name {
            "indexes" => indexes = Some(field.documents()?),
            "commitQuorum" if context.service.replication.is_member() => {
                quorum = Some(CommitQuorum::parse(field)?);
            }
            "commitQuorum" => {
                return Err(Error::bad_value("Standalones can't specify commitQuorum"));
            }
            "ignoreUnknownIndexOptions" => ignores_unknown = field.bool()?,
            _ => return Err(field.unknown()),
        }
    }
    let indexes = indexes.ok_or_else(|| missing("createIndexes", "indexes"))?;
    if indexes.is_empty() {
        return Err(Error::bad_value("Must specify at least one index to create"));
    }
    let (specs, notes) = read_specs(&indexes, ignores_unknown)?;
    context.at_collection(&namespace);
    context.check_uuid(&namespace)?;
    let (service, interrupt) = (context.service, context.interrupt());
    let holders = match &quorum {
        Some(quorum) => quorum.holders(service.replication.config().as_deref())?,
        None => None,
    };
    let check = || interrupt.check();
    let ready = || match &holders {
        Some(holders) => commit_quorum::wait(service, holders, &check),
        None => Ok(()),
    };
    let created = match context.txn() {
        Some(txn) => txn.create_indexes(&namespace, &specs, &check)?,
        None => service.catalog.create_indexes_once(&namespace, &specs, &check, &ready)?,
    };
    let reply = &mut context.reply;
    reply.number("numIndexesBefore", created.before as u64);
    reply.number("numIndexesAfter", created.after as u64);
    reply.bool("createdCollectionAutomatically", created.created_collection);
    if created.before == created.after {
        reply.str("note", "all indexes already exist");
    } else if !notes.is_empty() {
        reply.str("note", &notes.join("; "));
    }
    Ok(())
}

/// The indexes that are asked for, and what the reply says beside them.
fn read_specs(
    indexes: &[&RawDocument],
    ignores_unknown: bool,
) -> Result<(Vec<IndexSpec>, Vec<String>)> {
    let drops =
        |index: &RawDocument| matches!(index.get("dropDups"), Ok(Some(value)) if !is_false(value));
    let notes: Vec<String> = indexes
        .iter()
        .find_map(|index| indexkeys::substitution(index))
        .into_iter()
        .chain(indexes.iter().any(|index| drops(index)).then(|| DROPS_NONE.to_owned()))
        .collect();
    let specs = indexes
        .iter()
        .map(|spec| {
            if ignores_unknown {
                IndexSpec::parse(&indexkeys::known_options(spec)?)
            } else {
                IndexSpec::parse(spec)
            }
        })
        .collect::<Result<Vec<_>>>()?;
    if let Some(own) = specs.iter().find(|spec| spec.is_internal()) {
        return Err(Error::bad_value(format!("The index name '{}' is reserved", own.name)));
    }
    Ok((specs, notes))
}

/// What the reply says to who asks for `dropDups`, as TokuMX's log did.
const DROPS_NONE: &str = "dropDups drops no documents: an index with duplicate keys is not built";

fn is_false(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(value) => !value,
        RawBsonRef::Double(number) => number == 0.0,
        other => matches!(other, RawBsonRef::Null) || as_i64(other) == Some(0),
    }
}
