//! `replSetStepDown`: the primary hands over to another member, and is not elected for so many seconds. That of a set
//! of one rests, and then elects itself again.

use super::initiate::configured;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use membership::{MemberId, Membership, Refusal};
use serverstate::replication::Role;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const REPL_SET_STEP_DOWN: Command = Command::new(
    "replSetStepDown",
    "Hands over being primary; a set of one needs `force`.",
    Needs::Cluster(&[Action::ReplSetStateChange]),
    run,
)
.admin_only();

const DEFAULT_SECONDS: u64 = 60;
/// How long the others have to catch up, unless the client says otherwise.
const CATCH_UP_SECONDS: u64 = 10;
/// After how long a member is asked again that did not take over. It may be because this primary has not heard yet
/// that it is gone, or frozen; clients write meanwhile.
const ASKED_AGAIN: Duration = Duration::from_secs(3);
/// How often who waits looks whether its operation goes on.
const LOOK: Duration = Duration::from_millis(25);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    configured(context)?;
    let seconds = match fields[0].i64()? {
        0 => DEFAULT_SECONDS,
        seconds => u64::try_from(seconds)
            .map_err(|_| Error::bad_value("stepdown period must be a positive integer"))?,
    };
    let (mut force, mut catch_up) = (false, None);
    for field in &fields[1..] {
        match field.name {
            "force" => force = field.bool()?,
            "secondaryCatchUpPeriodSecs" => catch_up = Some(field.non_negative()?),
            _ => return Err(field.unknown()),
        }
    }
    if catch_up.is_some_and(|catch_up| catch_up > seconds) {
        return Err(Error::bad_value(
            "stepdown period must be longer than secondaryCatchUpPeriodSecs",
        ));
    }
    let service = context.service;
    if service.replication.role(&service.os) != Role::Primary {
        return Err(Error::new(Code::NOT_WRITABLE_PRIMARY, "not primary so can't step down"));
    }
    if let Some(membership) = service.replication.membership() {
        let catch_up = Duration::from_secs(catch_up.unwrap_or(CATCH_UP_SECONDS).min(seconds));
        let Some(_in_turn) = membership.begin_step_down() else {
            return Err(Error::new(
                Code::CONFLICTING_OPERATION_IN_PROGRESS,
                "This node is already in the process of stepping down",
            ));
        };
        // Before it hands over: whoever leads next may be told to step down at once, and must not choose this member.
        membership.freeze(Some(context.now().saturating_add(Duration::from_secs(seconds))));
        let handed_over = hand_over(context, membership, catch_up);
        if handed_over.is_err() && membership.view().leads() {
            membership.freeze(None);
        }
        return handed_over;
    }
    if !force {
        // There is no secondary, so none will catch up however long we wait.
        return Err(nobody_caught_up());
    }
    service.replication.step_down(context.now() + Duration::from_secs(seconds));
    // What runs meets the new role when it writes next; what rests ends here.
    service.abort_transactions();
    service.topology_changed();
    Ok(())
}

fn nobody_caught_up() -> Error {
    Error::new(
        Code::EXCEEDED_TIME_LIMIT,
        "No electable secondaries caught up. Please use the replSetStepDown command with the \
         argument {force: true} to force node to step down.",
    )
}

/// This member leads no more when this returns. Where none is ready it goes on, also where the client says
/// `force`: a set of several is never left without a primary on purpose. Nobody takes writes while a member is waited for
/// that does not take over: another one is asked next, and this one only after a while.
fn hand_over(context: &Context<'_>, membership: &Membership, catch_up: Duration) -> Result<()> {
    let until = context.now().saturating_add(catch_up);
    let mut failed: BTreeMap<MemberId, Duration> = BTreeMap::new();
    loop {
        failed.retain(|_, at| context.now() < at.saturating_add(ASKED_AGAIN));
        if let Some(asked) = membership.hand_over_but(|member| failed.contains_key(&member)) {
            loop {
                match asked.wait(LOOK) {
                    Some(Ok(())) => return Ok(()),
                    Some(Err(Refusal::NotInTime(member))) => {
                        failed.insert(member, context.now());
                        break;
                    }
                    Some(Err(_not_ready)) => break,
                    None => context.check_interrupt()?,
                }
            }
        }
        if !membership.view().leads() {
            return Ok(());
        }
        context.check_interrupt()?;
        if context.now() >= until {
            return Err(nobody_caught_up());
        }
        context.service.wait(LOOK);
    }
}
