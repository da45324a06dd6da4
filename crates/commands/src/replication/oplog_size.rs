//! `replSetResizeOplog`: how much history this member keeps from now on.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawBsonRef;
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use serverstate::replication::oplog_size::{LEAST_MEGABYTES, MOST_MEGABYTES, resize};

pub(crate) const REPL_SET_RESIZE_OPLOG: Command = Command::new(
    "replSetResizeOplog",
    "Changes how much history is kept.",
    Needs::Cluster(&[Action::ReplSetResizeOplog]),
    run,
)
.admin_only()
.durable();

/// What the number of MongoDB's check of a field's range is.
const OUT_OF_RANGE: i32 = 51024;

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let service = context.service;
    let (mut size, mut hours) = (None, None);
    for field in fields.get(1..).unwrap_or_default() {
        match field.name {
            "size" => size = number(field, LEAST_MEGABYTES, MOST_MEGABYTES)?,
            "minRetentionHours" => hours = number(field, 0.0, f64::MAX)?,
            _ => return Err(field.unknown()),
        }
    }
    if !service.replication.is_member() {
        return Err(Error::new(Code::NAMESPACE_NOT_FOUND, "oplog does not exist"));
    }
    if service.replication.is_of_several() {
        // What it says is of this member alone, which has no place for that yet.
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "the oplog of a member of a replica set of several is sized at its start, with --oplogSize and \
             --oplogMinRetentionHours",
        ));
    }
    if size.is_none() && hours.is_none() {
        return Ok(());
    }
    resize(&service.catalog, size, hours)
}

/// A number within limits; nothing where the field is null.
fn number(field: &Field<'_>, least: f64, most: f64) -> Result<Option<f64>> {
    let value = match field.value {
        RawBsonRef::Double(value) => value,
        RawBsonRef::Int32(value) => f64::from(value),
        RawBsonRef::Int64(value) => value as f64,
        RawBsonRef::Null => return Ok(None),
        _ => return Err(field.wrong_types("double, int, decimal, long")),
    };
    let limit = if value < least || value.is_nan() {
        Some((">=", least))
    } else if value > most {
        Some(("<=", most))
    } else {
        None
    };
    match limit {
        None => Ok(Some(value)),
        Some((relation, limit)) => Err(Error::location(
            OUT_OF_RANGE,
            format!(
                "BSON field '{}' value must be {relation} {limit}, actual value '{value}'",
                field.name
            ),
        )),
    }
}
