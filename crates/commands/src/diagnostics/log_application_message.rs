//! `logApplicationMessage`: an application writes a line of its own into the audit log.
//!
//! Always true: where the event cannot be written the command fails; where there is no audit log it does nothing.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::Result;

/// The event itself is told as that of any audited command, when this one has ended.
pub(crate) const LOG_APPLICATION_MESSAGE: Command = Command::new(
    "logApplicationMessage",
    "Writes a message of an application into the audit log.",
    Needs::Cluster(&[Action::ApplicationMessage]),
    run,
)
.admin_only();

fn run(_: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    fields[0].str()?;
    match fields.get(1) {
        Some(field) => Err(field.unknown()),
        None => Ok(()),
    }
}
