//! `logout`: the connection is nobody's again.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const LOGOUT: Command =
    Command::new("logout", "Ends the login of the connection.", Needs::NoLogin, run);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    context.service.log_out(context.connection);
    Ok(())
}
