//! `ping`: is anybody there?

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const PING: Command =
    Command::new("ping", "Answers, and nothing else.", Needs::NoLogin, run).api_v1();

fn run(_context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    match fields.get(1) {
        Some(field) => Err(field.unknown()),
        None => Ok(()),
    }
}
