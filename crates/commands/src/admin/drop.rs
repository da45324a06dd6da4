//! `drop` and `dropDatabase`.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::{Field, as_i64, missing};
use errors::{Code, Error, Result};
use serverstate::cluster_parameters::ClusterParameters;

pub(crate) const DROP: Command = Command::new(
    "drop",
    "Drops a collection or a view.",
    Needs::Collection(&[Action::DropCollection]),
    drop_collection,
)
.api_v1()
.write_concern();

pub(crate) const DROP_DATABASE: Command = Command::new(
    "dropDatabase",
    "Drops a database.",
    Needs::Database(&[Action::DropDatabase]),
    drop_database,
)
.api_v1()
.write_concern();

/// A collection that does not exist is dropped already, as in MongoDB 7.
fn drop_collection(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    context.connection.operation.set_namespace(namespace.shared());
    context.check_uuid(&namespace)?;
    if namespace.is_kept_apart() {
        namespace.check_writable()?;
    }
    let profiled = context.service.profiler.settings(namespace.database()).level > 0;
    if profiled && namespace.collection() == serverstate::profiler::COLLECTION {
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "turn off profiling before dropping system.profile collection",
        ));
    }
    let (catalog, interrupt) = (&context.service.catalog, context.interrupt());
    let dropped = match context.txn() {
        Some(txn) => txn.drop_collection(&namespace),
        None => catalog.drop_collection(&namespace, &|| interrupt.check()),
    };
    let dropped = match dropped {
        Ok(dropped) => dropped,
        Err(error) if error.code() == Code::NAMESPACE_NOT_FOUND => return Ok(()),
        Err(error) => return Err(error),
    };
    context.service.metrics.forget(namespace.as_str());
    if !dropped.is_view() {
        context.reply.number("nIndexesWas", dropped.shown_index_count() as u64);
    }
    context.reply.str("ns", namespace.as_str());
    Ok(())
}

fn drop_database(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    match as_i64(fields[0].value) {
        _ if fields[0].is_null() => return Err(missing("dropDatabase", "dropDatabase")),
        None => return Err(fields[0].wrong_types("long, int, decimal, double")),
        Some(1) => {}
        Some(_) => return Err(Error::location(5_255_100, "Have to pass 1 as 'drop' parameter")),
    }
    let service = context.service;
    let database = context.database();
    if database == "admin" {
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "Dropping the 'admin' database is prohibited.",
        ));
    }
    if database == "local" && service.replication.options().is_some() {
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "Cannot drop 'local' database while replication is active",
        ));
    }
    let collections = service.catalog.collections(database);
    let dropped = service.catalog.drop_database(database, &|| context.check_interrupt())?;
    for collection in &collections {
        service.metrics.forget(collection.namespace().as_str());
    }
    if database == "config" {
        // Parameters of all members were stored there: they have their defaults again.
        *service.cluster_parameters.lock() = ClusterParameters::load(&service.catalog)?;
    }
    if dropped > 0 {
        context.reply.str("dropped", database);
    }
    Ok(())
}
