//! `logRotate`: of the log, the audit log, or both.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawBsonRef;
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use serverstate::AuditSink;

pub(crate) const LOG_ROTATE: Command =
    Command::new("logRotate", "Starts a new log file.", Needs::Cluster(&[Action::LogRotate]), run)
        .admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let host = &context.service.host;
    let audit = || host.audit().map_or(Ok(()), AuditSink::rotate);
    let rotated = match fields[0].value {
        RawBsonRef::String("server") => host.rotate_log(),
        RawBsonRef::String("audit") => audit(),
        RawBsonRef::String(other) => {
            return Err(Error::new(
                Code::NO_SUCH_KEY,
                format!("Unknown log type '{other}': \"server\" and \"audit\" are known"),
            ));
        }
        _ => host.rotate_log().and_then(|()| audit()),
    };
    rotated
        .map_err(|text| Error::new(Code::OPERATION_FAILED, format!("Log rotation failed: {text}")))
}
