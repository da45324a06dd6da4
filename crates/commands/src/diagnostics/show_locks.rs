//! `showLiveTransactions` and `showPendingLockRequests` (TokuMX): who holds which locks, and who
//! waits for whom.

use crate::batch::parse_list_cursor;
use crate::batch::{CursorOptions, first_batch};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawDocumentBuf;
use catalog::ShownLock;
use dispatch::fields::Field;
use dispatch::writer::Writer;
use errors::Result;
use serverstate::Documents;
use serverstate::current_ops::{lock_bounds, lock_request};
use std::collections::BTreeMap;

/// Locks that are listed at most, of all transactions together.
const MAX_LOCKS: usize = 20_000;

pub(crate) const SHOW_LIVE_TRANSACTIONS: Command = Command::new(
    "showLiveTransactions",
    "The transactions that live, and their locks, up to 20,000 (TokuMX).",
    Needs::Cluster(&[Action::Inprog]),
    live,
);

pub(crate) const SHOW_PENDING_LOCK_REQUESTS: Command = Command::new(
    "showPendingLockRequests",
    "The lock requests that wait, and for whom (TokuMX).",
    Needs::Cluster(&[Action::Inprog]),
    pending,
);

fn live(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let catalog = &context.service.catalog;
    let mut locks: BTreeMap<u64, Vec<ShownLock>> = BTreeMap::new();
    for lock in catalog.locks(MAX_LOCKS) {
        if lock.waiting_ms.is_none() {
            locks.entry(lock.txn).or_default().push(lock);
        }
    }
    let describe = |txn: engine::TxnInfo| {
        let mut writer = Writer::new();
        writer.number("txnid", txn.id);
        let list = writer.begin_array("rowLocks");
        for (at, lock) in locks.remove(&txn.id).unwrap_or_default().into_iter().enumerate() {
            let one = writer.begin_element(at);
            writer.str("index", &lock.index);
            lock_bounds(&mut writer, &lock.bounds);
            writer.end(one);
        }
        writer.end(list);
        writer.finish()
    };
    let list = catalog.engine().live_transactions().into_iter().map(describe).collect();
    reply(context, fields, "transactions", list)
}

fn pending(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let now = context.service.os.clock.wall_ms();
    let mut list = Vec::new();
    for lock in context.service.catalog.locks(0) {
        if lock.waiting_ms.is_some() {
            let mut writer = Writer::new();
            lock_request(&mut writer, &lock, now);
            list.push(writer.finish());
        }
    }
    reply(context, fields, "requests", list)
}

/// The list in the reply itself, or as a cursor where one is asked for.
fn reply(
    context: &mut Context<'_>,
    fields: &[Field<'_>],
    name: &str,
    list: Vec<RawDocumentBuf>,
) -> Result<()> {
    let mut cursor: Option<CursorOptions> = None;
    for field in &fields[1..] {
        match field.name {
            "cursor" => cursor = Some(parse_list_cursor(field, "cursor")?),
            _ => return Err(field.unknown()),
        }
    }
    if let Some(wanted) = cursor {
        let namespace = format!("{}.$cmd.{}", context.database(), context.command.name);
        return first_batch(context, &namespace, Documents::list(list), None, &wanted);
    }
    let open = context.reply.begin_array(name);
    for (at, document) in list.iter().enumerate() {
        context.reply.element_document(at, document);
    }
    context.reply.end(open);
    Ok(())
}
