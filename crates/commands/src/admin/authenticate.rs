//! The commands by which a client says who it is: there are no users yet, so nobody is known.

use crate::command::Command;
use crate::context::Context;
use dispatch::fields::{Field, missing};
use errors::{Code, Error, Result};

pub(crate) const SASL_START: Command =
    Command::new("saslStart", "Refused: there are no users yet.", start).api_v1();
pub(crate) const SASL_CONTINUE: Command =
    Command::new("saslContinue", "Refused: nothing was started.", go_on).api_v1();
pub(crate) const LOGOUT: Command = Command::new("logout", "Nobody is logged in.", logout);

fn start(_: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (mut mechanism, mut payload) = (None, false);
    for field in &fields[1..] {
        match field.name {
            "mechanism" => mechanism = Some(field.str()?),
            "payload" => payload = true,
            "autoAuthorize" => {
                field.i64()?;
            }
            "options" => {
                field.document()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    let mechanism = mechanism.ok_or_else(|| missing("saslStart", "mechanism"))?;
    if !payload {
        return Err(missing("saslStart", "payload"));
    }
    match mechanism {
        "SCRAM-SHA-1" | "SCRAM-SHA-256" => {
            Err(Error::new(Code::AUTHENTICATION_FAILED, "Authentication failed."))
        }
        other => Err(Error::new(
            Code::MECHANISM_UNAVAILABLE,
            format!(
                "Received authentication for mechanism {other} which is unknown or not enabled"
            ),
        )),
    }
}

fn go_on(_: &mut Context<'_>, _: &[Field<'_>]) -> Result<()> {
    Err(Error::new(Code::PROTOCOL_ERROR, "No SASL session state found"))
}

fn logout(_: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    fields[1..].first().map_or(Ok(()), |field| Err(field.unknown()))
}
