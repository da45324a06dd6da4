//! `commitTransaction` and `abortTransaction`, on a server that is no replica set member.
//!
//! With a transaction number they were refused before they came here, as any command is.

use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use errors::{Code, Error, Result};

pub(crate) const COMMIT_TRANSACTION: Command =
    Command::new("commitTransaction", "Refused on a standalone server.", run)
        .admin_only()
        .api_v1()
        .write_concern();

pub(crate) const ABORT_TRANSACTION: Command =
    Command::new("abortTransaction", "Refused on a standalone server.", run)
        .admin_only()
        .api_v1()
        .write_concern();

fn run(context: &mut Context<'_>, _fields: &[Field<'_>]) -> Result<()> {
    Err(Error::new(
        Code::COMMAND_FAILED,
        format!("{} must be run within a transaction", context.command.name),
    ))
}
