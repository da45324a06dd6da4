//! `setFeatureCompatibilityVersion`: the one there is may be confirmed, others are refused.

use super::build_info::FEATURE_VERSION;
use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use errors::{Error, Result};

pub(crate) const SET_FEATURE_VERSION: Command = Command::new(
    "setFeatureCompatibilityVersion",
    "Confirms the version that data is compatible with.",
    run,
)
.admin_only()
.write_concern();

fn run(_: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let version = fields[0].str()?;
    let mut confirmed = false;
    for field in &fields[1..] {
        match field.name {
            "confirm" => confirmed = field.bool()?,
            _ => return Err(field.unknown()),
        }
    }
    if version != FEATURE_VERSION {
        return Err(Error::bad_value(format!(
            "Invalid feature compatibility version value '{version}'; expected '{FEATURE_VERSION}'"
        )));
    }
    if !confirmed {
        return Err(Error::location(
            7369100,
            "Once you have upgraded to this version you will not be able to downgrade. Please run \
             the command with 'confirm: true'",
        ));
    }
    Ok(())
}
