//! `getDefaultRWConcern` and `setDefaultRWConcern`: what holds where a client names no concern.
//!
//! Always true: the default is stored in `config.settings` before it holds, and durable before that
//! is acknowledged; a set of one starts
//! with `w: "majority"`, as MongoDB does since 5.0.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::{Bson, DateTime, RawBsonRef, doc};
use dispatch::fields::{Field, inner};
use errors::{Error, Result};
use std::sync::atomic::Ordering;

pub(crate) const GET_DEFAULT_RW_CONCERN: Command = Command::new(
    "getDefaultRWConcern",
    "The concerns that hold by default.",
    Needs::Cluster(&[Action::GetDefaultRWConcern]),
    get,
)
.admin_only();

pub(crate) const SET_DEFAULT_RW_CONCERN: Command = Command::new(
    "setDefaultRWConcern",
    "Changes the concerns that hold by default.",
    Needs::Cluster(&[Action::SetDefaultRWConcern]),
    set,
)
.admin_only()
.write_concern()
.durable();

fn check_member(context: &Context<'_>) -> Result<()> {
    if context.service.replication.is_member() {
        return Ok(());
    }
    Err(Error::location(
        51300,
        format!("'{}' is not supported on standalone nodes.", context.command.name),
    ))
}

fn get(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    check_member(context)?;
    for field in &fields[1..] {
        match field.name {
            "inMemory" => {
                field.bool()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    write(context);
    Ok(())
}

fn write(context: &mut Context<'_>) {
    let service = context.service;
    let majority = service.replication.default_is_majority.load(Ordering::Acquire);
    let w = if majority { Bson::from("majority") } else { Bson::from(1) };
    let now = DateTime::from_millis(service.os.clock.wall_ms());
    context.reply.fields_of(&doc! {
        "defaultReadConcern": { "level": "local" },
        "defaultWriteConcern": { "w": w, "wtimeout": 0 },
        "defaultWriteConcernSource": if majority { "implicit" } else { "global" },
        "defaultReadConcernSource": "implicit",
        "localUpdateWallClockTime": now,
    });
}

fn set(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    check_member(context)?;
    let mut majority = None;
    for field in &fields[1..] {
        match field.name {
            "defaultWriteConcern" => majority = Some(parse_write(field)?),
            "defaultReadConcern" => parse_read(field)?,
            _ => return Err(field.unknown()),
        }
    }
    if fields.len() == 1 {
        return Err(Error::bad_value(
            "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be \
             present",
        ));
    }
    let service = context.service;
    if let Some(majority) = majority {
        service.replication.store_default_concern(&service.catalog, majority)?;
    }
    write(context);
    Ok(())
}

/// Whether the default is to be `majority`.
fn parse_write(field: &Field<'_>) -> Result<bool> {
    let mut majority = None;
    for part in inner(field.document()?, "setDefaultRWConcern.defaultWriteConcern") {
        let part = part?;
        match (part.name, part.value) {
            ("w", RawBsonRef::String("majority")) => majority = Some(true),
            ("w", value) if dispatch::fields::as_i64(value) == Some(1) => majority = Some(false),
            ("wtimeout", value) if dispatch::fields::as_i64(value) == Some(0) => {}
            _ => return Err(part.not_yet()),
        }
    }
    majority
        .ok_or_else(|| Error::bad_value("Empty default write concern is not allowed. Specify 'w'."))
}

/// Only the level that is the default anyway; others would not be honoured.
fn parse_read(field: &Field<'_>) -> Result<()> {
    for part in inner(field.document()?, "setDefaultRWConcern.defaultReadConcern") {
        let part = part?;
        match (part.name, part.value) {
            // All three read the newest commit of a set of one.
            ("level", RawBsonRef::String("local" | "available" | "majority")) => {}
            ("level", RawBsonRef::String(level)) => {
                return Err(Error::bad_value(format!(
                    "level: '{level}' is not suitable for the default read concern"
                )));
            }
            _ => return Err(part.unknown()),
        }
    }
    Ok(())
}
