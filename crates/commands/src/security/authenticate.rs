//! `authenticate`: the way in by certificates, which there are none of, and of old clients, which is shut.

use super::sasl::unavailable;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const AUTHENTICATE: Command =
    Command::new("authenticate", "Refused: a login is by SCRAM.", Needs::Nobody, run)
        .api_v1()
        .unprofiled();

fn run(_: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mechanism = fields.iter().find(|field| field.name == "mechanism");
    let mechanism = mechanism.map(Field::str).transpose()?;
    Err(unavailable(mechanism.unwrap_or("MONGODB-CR")))
}
