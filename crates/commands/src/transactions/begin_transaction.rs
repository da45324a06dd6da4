//! `beginTransaction` (TokuMX): a transaction that is bound to the connection.

use super::bound;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::RawBsonRef;
use catalog::Isolation;
use dispatch::fields::Field;
use errors::{Error, Result};
use serverstate::Bound;
use serverstate::replication::Role;
use std::sync::atomic::Ordering;

pub(crate) const BEGIN_TRANSACTION: Command = Command::new(
    "beginTransaction",
    "Begins a transaction of the connection (TokuMX).",
    Needs::Computed(asks::begin_transaction),
    run,
);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut isolation = Isolation::Mvcc;
    for field in &fields[1..] {
        match field.name {
            "isolation" => isolation = parse(field)?,
            _ => return Err(field.unknown()),
        }
    }
    let (service, connection) = (context.service, context.connection);
    let role = service.replication.role(&service.os);
    if isolation == Isolation::Serializable && !matches!(role, Role::Standalone | Role::Primary) {
        return Err(Error::location(
            16807,
            "Cannot set multi statement transaction to serializable on machine that is not primary",
        ));
    }
    if connection.has_bound() {
        return Err(Error::location(16787, "transaction already exists"));
    }
    let lock_timeout = bound::lock_timeout(service, connection);
    let txn = service.catalog.begin_bound(isolation, lock_timeout).map_err(bound::inside)?;
    connection.txn_id.store(txn.id(), Ordering::Relaxed);
    *connection.bound.lock() = Some(Box::new(Bound { txn }));
    service.transactions.started.fetch_add(1, Ordering::Relaxed);
    context.reply.str("status", "transaction began");
    Ok(())
}

fn parse(field: &Field<'_>) -> Result<Isolation> {
    match field.value {
        RawBsonRef::String("mvcc") => Ok(Isolation::Mvcc),
        RawBsonRef::String("serializable") => Ok(Isolation::Serializable),
        RawBsonRef::String("readUncommitted") => Ok(Isolation::ReadCommitted),
        RawBsonRef::String(_) => Err(Error::location(16739, "invalid isolation passed in")),
        _ => Err(Error::location(16738, "invalid isolation passed in")),
    }
}
