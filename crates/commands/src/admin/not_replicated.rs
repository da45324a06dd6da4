//! Questions about a replica set, answered as a server that is in none answers them.

use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use errors::{Code, Error, Result};

pub(crate) const REPL_SET_GET_STATUS: Command =
    Command::new("replSetGetStatus", "Refused on a standalone server.", no_set).admin_only();

pub(crate) const REPL_SET_GET_CONFIG: Command =
    Command::new("replSetGetConfig", "Refused on a standalone server.", no_set).admin_only();

pub(crate) const REPL_SET_INITIATE: Command =
    Command::new("replSetInitiate", "Refused on a standalone server.", not_started).admin_only();

pub(crate) const GET_DEFAULT_RW_CONCERN: Command =
    Command::new("getDefaultRWConcern", "Refused on a standalone server.", no_defaults)
        .admin_only();

pub(crate) const SET_DEFAULT_RW_CONCERN: Command =
    Command::new("setDefaultRWConcern", "Refused on a standalone server.", no_defaults)
        .admin_only()
        .write_concern();

fn no_set(_context: &mut Context<'_>, _fields: &[Field<'_>]) -> Result<()> {
    Err(Error::new(Code::NO_REPLICATION_ENABLED, "not running with --replSet"))
}

fn not_started(_context: &mut Context<'_>, _fields: &[Field<'_>]) -> Result<()> {
    Err(Error::new(
        Code::NO_REPLICATION_ENABLED,
        "This node was not started with replication enabled.",
    ))
}

fn no_defaults(context: &mut Context<'_>, _fields: &[Field<'_>]) -> Result<()> {
    Err(Error::location(
        51300,
        format!("'{}' is not supported on standalone nodes.", context.command.name),
    ))
}
