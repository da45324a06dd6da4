//! `rotateMasterKey`: the data keys of an encrypted directory are wrapped with the master key that the operator keeps now.
//!
//! The operator has put the new key in the place of the old one, and keeps the old one until this has answered.

use crate::admin::rotate_data_key;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Code, Error, Result};

pub(crate) const ROTATE_MASTER_KEY: Command = Command::new(
    "rotateMasterKey",
    "Wraps the data keys of encryption at rest with the master key that is kept now.",
    Needs::Cluster(&[Action::RotateCertificates]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let service = context.service;
    let new = match service.host.read_master_key() {
        None => return Err(rotate_data_key::not_encrypted()),
        Some(Err(text)) => return Err(Error::new(Code::OPERATION_FAILED, text)),
        Some(Ok(new)) => new,
    };
    let rotated = service.catalog.engine().rotate_master_key(new);
    rotate_data_key::answer(context, "The data keys are wrapped with another master key", rotated)
}
