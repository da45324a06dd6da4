//! `killOp`: tells a running operation to stop.

use crate::command::Command;
use crate::context::Context;
use crate::gate::refusal;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::{Field, missing};
use errors::{Code, Error, Result};

pub(crate) const KILL_OP: Command =
    Command::new("killOp", "Tells a running operation to stop.", Needs::Login, run).admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut number = None;
    for field in &fields[1..] {
        match field.name {
            "op" => number = Some(field.i64()?),
            _ => return Err(field.unknown()),
        }
    }
    let Some(number) = number else { return Err(missing("killOp", "op")) };
    // An operation that ended meanwhile is no error: it stopped, as was asked.
    if let Ok(number) = u64::try_from(number) {
        if !context.admitted.may_cluster(Action::Killop) {
            let own = context.admitted.digest();
            let running = context.service.operations.list();
            if !running.iter().any(|op| op.number == number && op.user == own) {
                return Err(refusal(context.database(), context.command, context.body));
            }
        }
        context.service.operations.kill(number, Code::INTERRUPTED);
    } else {
        return Err(Error::bad_value(format!("invalid op : {number}")));
    }
    context.reply.str("info", "attempting to kill op");
    Ok(())
}
