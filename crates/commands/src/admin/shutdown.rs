//! `shutdown`: the server's clean end.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::Result;
use std::time::Duration;

pub(crate) const SHUTDOWN: Command =
    Command::new("shutdown", "Ends the server cleanly.", Needs::Cluster(&[Action::Shutdown]), run)
        .admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    // Until then running operations may end by themselves; by default they are interrupted at once.
    let mut timeout = 0;
    for field in &fields[1..] {
        match field.name {
            "force" => {
                field.bool()?;
            }
            "timeoutSecs" => timeout = field.non_negative()?,
            _ => return Err(field.unknown()),
        }
    }
    context.service.host.shut_down(Duration::from_secs(timeout));
    Ok(())
}
