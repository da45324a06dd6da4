//! `replSetStepDown`: the primary of a set of one rests, and then elects itself again.

use super::initiate::configured;
use crate::command::Command;
use crate::context::Context;
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use serverstate::replication::Role;
use std::time::Duration;

pub(crate) const REPL_SET_STEP_DOWN: Command =
    Command::new("replSetStepDown", "Rests from being primary; needs `force`.", run).admin_only();

const DEFAULT_SECONDS: u64 = 60;

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    configured(context)?;
    let seconds = match fields[0].i64()? {
        0 => DEFAULT_SECONDS,
        seconds => u64::try_from(seconds)
            .map_err(|_| Error::bad_value("stepdown period must be a positive integer"))?,
    };
    let (mut force, mut catch_up) = (false, 0);
    for field in &fields[1..] {
        match field.name {
            "force" => force = field.bool()?,
            "secondaryCatchUpPeriodSecs" => catch_up = field.non_negative()?,
            _ => return Err(field.unknown()),
        }
    }
    if catch_up > seconds {
        return Err(Error::bad_value(
            "stepdown period must be longer than secondaryCatchUpPeriodSecs",
        ));
    }
    let service = context.service;
    if service.replication.role(&service.os) != Role::Primary {
        return Err(Error::new(Code::NOT_WRITABLE_PRIMARY, "not primary so can't step down"));
    }
    if !force {
        // There is no secondary, so none will catch up however long we wait.
        return Err(Error::new(
            Code::EXCEEDED_TIME_LIMIT,
            "No electable secondaries caught up. Please use the replSetStepDown command with the \
             argument {force: true} to force node to step down.",
        ));
    }
    service.replication.step_down(context.now() + Duration::from_secs(seconds));
    // What runs meets the new role when it writes next; what rests ends here.
    service.abort_transactions();
    service.topology_changed();
    Ok(())
}
