//! `replGetExpireOplog` and `replSetExpireOplog` (TokuMX): after which age the oplog goes.
//!
//! It is the age that `oplogMinRetentionHours` names, of an oplog without a length: what is younger stays, what is older
//! goes. Always true: what was said is stored before it is acknowledged.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use engine::HistoryOptions;
use errors::{Code, Error, Result};
use serverstate::replication::oplog_size::{MOST_HOURS, resize};

pub(crate) const REPL_GET_EXPIRE_OPLOG: Command = Command::new(
    "replGetExpireOplog",
    "After which age the oplog goes (TokuMX).",
    Needs::Cluster(&[Action::ReplSetGetConfig]),
    get,
)
.admin_only();

pub(crate) const REPL_SET_EXPIRE_OPLOG: Command = Command::new(
    "replSetExpireOplog",
    "Changes after which age the oplog goes (TokuMX).",
    Needs::Cluster(&[Action::ReplSetResizeOplog]),
    set,
)
.admin_only()
.durable();

const HOURS_OF_A_DAY: u64 = 24;

fn no_oplog() -> Error {
    Error::new(Code::NAMESPACE_NOT_FOUND, "oplog does not exist")
}

fn get(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let history = context.service.catalog.engine().history().ok_or_else(no_oplog)?;
    let HistoryOptions { bytes, min_age } = history.options();
    let hours = min_age.as_secs() / 3600;
    let reply = &mut context.reply;
    reply.number("expireOplogDays", hours / HOURS_OF_A_DAY);
    reply.number("expireOplogHours", hours % HOURS_OF_A_DAY);
    if bytes > 0 {
        reply.str(
            "note",
            &format!("the oplog is kept up to a length of {bytes} bytes, also where it is older"),
        );
    }
    Ok(())
}

fn set(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (mut days, mut hours) = (0, 0);
    for field in &fields[1..] {
        match field.name {
            "expireOplogDays" => days = whole(field)?,
            "expireOplogHours" => hours = whole(field)?,
            _ => return Err(field.unknown()),
        }
    }
    let service = context.service;
    if !service.replication.is_member() {
        return Err(no_oplog());
    }
    if service.replication.is_of_several() {
        // What it says is of this member alone, which has no place for that yet.
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "the oplog's age on a member of a replica set of several is set at its start, with --expireOplogDays \
             and --expireOplogHours",
        ));
    }
    let all = days.saturating_mul(HOURS_OF_A_DAY).saturating_add(hours);
    if all == 0 {
        return Err(Error::bad_value(
            "an oplog of no age keeps nothing: replSetResizeOplog gives it a length",
        ));
    }
    if all as f64 > MOST_HOURS {
        return Err(Error::bad_value(format!("an age of {all} hours is above {MOST_HOURS}")));
    }
    resize(&service.catalog, Some(0.0), Some(all as f64))
}

fn whole(field: &Field<'_>) -> Result<u64> {
    u64::try_from(field.i64()?)
        .map_err(|_| Error::bad_value(format!("BSON field '{}' value must be >= 0", field.name)))
}
