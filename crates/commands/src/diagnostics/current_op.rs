//! `currentOp`: what runs now, and which transactions are open though nothing runs in them.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::RawDocumentBuf;
use dispatch::fields::Field;
use errors::{Error, Result};
use matcher::{Filter, ParseContext};
use serverstate::current_ops::{Idle, operations};

pub(crate) const CURRENT_OP: Command = Command::new(
    "currentOp",
    "The operations that run now.",
    Needs::Computed(asks::current_op),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut idle = Idle { connections: false, sessions: true, user: None };
    let mut filter = RawDocumentBuf::new();
    for field in &fields[1..] {
        match field.name {
            "$all" => idle.connections = field.bool()?,
            "$ownOps" => {
                let own = field.bool()? && context.admitted.is_access_control_on;
                idle.user = own.then(|| context.admitted.digest());
            }
            "$truncateOps" => {
                field.bool()?;
            }
            name => {
                let key = <&bson::raw::CStr>::try_from(name)
                    .map_err(|_| Error::bad_value("field name with a NUL byte"))?;
                filter.append(key, field.value);
            }
        }
    }
    let filter = Filter::parse(&filter, &ParseContext::default())?;
    let list = context.reply.begin_array("inprog");
    let mut at = 0;
    for operation in operations(context.service, idle) {
        if filter.matches(&operation)? {
            context.reply.element_document(at, &operation);
            at += 1;
        }
    }
    context.reply.end(list);
    if context.service.write_gate.is_closed() {
        context.reply.bool("fsyncLock", true);
        let text = "use db.fsyncUnlock() to terminate the fsync write/snapshot lock";
        context.reply.str("info", text);
    }
    Ok(())
}
