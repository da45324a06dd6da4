//! `logRotate`.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Code, Error, Result};

pub(crate) const LOG_ROTATE: Command =
    Command::new("logRotate", "Starts a new log file.", Needs::Cluster(&[Action::LogRotate]), run)
        .admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    context
        .service
        .host
        .rotate_log()
        .map_err(|text| Error::new(Code::OPERATION_FAILED, format!("Log rotation failed: {text}")))
}
