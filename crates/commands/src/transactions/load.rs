//! TokuMX's `beginLoad`, `commitLoad` and `abortLoad`: a bulk load in a transaction of the connection.
//!
//! Always true: what is loaded is the transaction's. Others see it when that commits, and it goes with it; the
//! transaction neither commits nor rolls back while a load goes on.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::RawBsonRef;
use bson::raw::RawDocumentBuf;
use catalog::{CollectionOptions, Namespace, Txn};
use dispatch::fields::{Field, missing};
use errors::{Code, Error, Result};
use indexkeys::IndexSpec;

pub(crate) const BEGIN_LOAD: Command = Command::new(
    "beginLoad",
    "Begins to fill a new collection past the log, in a transaction of the connection (TokuMX).",
    Needs::Computed(asks::begin_load),
    begin,
);

pub(crate) const COMMIT_LOAD: Command = Command::new(
    "commitLoad",
    "Builds the indexes of what was loaded, which then is the transaction's (TokuMX).",
    Needs::Login,
    commit,
);

pub(crate) const ABORT_LOAD: Command =
    Command::new("abortLoad", "Undoes what was loaded (TokuMX).", Needs::Login, abort);

/// What the collection that is being loaded does not take meanwhile.
const REFUSED: [&str; 8] = [
    "bulkWrite",
    "createIndexes",
    "delete",
    "drop",
    "dropIndexes",
    "findAndModify",
    "renameCollection",
    "update",
];

/// What a reply says where documents are written as any others.
const THROUGH_THE_LOG: &str =
    "what is loaded is sorted, and then written through the log, which is to have everything here";

fn begin(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (mut namespace, mut indexes, mut options) = (None, Vec::new(), None);
    for field in &fields[1..] {
        match field.name {
            "ns" => namespace = Some(named(context, field)?),
            "indexes" => indexes = field.documents()?,
            "options" => options = Some(field.document()?),
            _ => return Err(field.unknown()),
        }
    }
    if context.bound.is_none() {
        return Err(Error::location(16892, "must be in a transaction to begin a bulk load"));
    }
    let namespace = namespace.ok_or_else(|| missing("beginLoad", "ns"))?;
    let none = RawDocumentBuf::new();
    let options = options.unwrap_or(&none);
    if namespace.collection().starts_with("system.") {
        return Err(Error::location(16998, "cannot bulk load a system collection"));
    }
    if options.get("natural")?.is_some() {
        return Err(Error::location(17000, "cannot bulk load a collection in natural order"));
    }
    let options = CollectionOptions::parse(options)?;
    if options.capped.is_some() {
        return Err(Error::location(16999, "cannot bulk load a capped collection"));
    }
    let mut specs = Vec::new();
    for index in indexes {
        let of_another = match index.get("ns")? {
            Some(RawBsonRef::String(name)) => {
                name != namespace.as_str() && name != namespace.collection()
            }
            _ => false,
        };
        if of_another {
            let text = format!("an index of another collection than {namespace}: {index:?}");
            return Err(Error::bad_value(text));
        }
        specs.push(IndexSpec::parse(index)?);
    }
    context.at_collection(&namespace);
    let interrupt = context.interrupt();
    let Some(txn) = context.txn() else { return Err(no_transaction()) };
    txn.begin_load(&namespace, &options, &specs, &|| interrupt.check())?;
    let passes = txn.loads_past_the_log();
    context.reply.str("status", "load began");
    if !passes {
        context.reply.str("note", THROUGH_THE_LOG);
    }
    Ok(())
}

fn no_transaction() -> Error {
    Error::location(16892, "must be in a transaction to begin a bulk load")
}

/// A collection by its name, or by its name behind that of the database.
fn named(context: &Context<'_>, field: &Field<'_>) -> Result<Namespace> {
    let database = context.request.database;
    let RawBsonRef::String(name) = field.value else { return context.namespace(field) };
    let own = name.strip_prefix(database).and_then(|rest| rest.strip_prefix('.'));
    context.opened(Namespace::new(database, own.unwrap_or(name))?)
}

fn commit(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let interrupt = context.interrupt();
    let loads = context.bound.is_some();
    let Some(txn) = context.txn().filter(|_| loads) else {
        return Err(Error::location(16876, "no bulk load is in progress to be committed"));
    };
    let documents = txn.commit_load(&|| interrupt.check())?;
    context.reply.str("status", "load committed");
    context.reply.number("n", documents);
    Ok(())
}

fn abort(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let loads = context.bound.is_some();
    let Some(txn) = context.txn().filter(|_| loads) else {
        return Err(Error::location(16888, "no bulk load is in progress to be aborted"));
    };
    txn.abort_load()?;
    context.reply.str("status", "load aborted");
    Ok(())
}

/// Refuses what changes the collection that a transaction is loading in another way than by inserts.
pub(crate) fn refuse(txn: &Txn, command: &str, named: &str, database: &str) -> Result<()> {
    let Some(loading) = txn.loads_into().filter(|_| REFUSED.contains(&command)) else {
        return Ok(());
    };
    let is_it = named == loading.collection() && database == loading.database();
    if is_it || named == loading.as_str() || command == "bulkWrite" {
        return Err(Error::new(
            Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
            format!("{command} cannot run on {loading} while it is bulk loaded: only inserts can"),
        ));
    }
    Ok(())
}
