//! `compactStructuredEncryptionData` and `cleanupStructuredEncryptionData`: the upkeep of collections with encrypted
//! fields.
//!
//! Always true: both are refused, to who might run them, for no collection has encrypted fields: Queryable Encryption is
//! refused wherever it begins (`encryptedFields`, `encryptionInformation`, `$encStr…`).

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Code, Error, Result};

pub(crate) const COMPACT_ENCRYPTION: Command = Command::new(
    "compactStructuredEncryptionData",
    "Refused: no collection has encrypted fields.",
    Needs::Collection(&[Action::CompactStructuredEncryptionData]),
    run,
);
pub(crate) const CLEANUP_ENCRYPTION: Command = Command::new(
    "cleanupStructuredEncryptionData",
    "Refused: no collection has encrypted fields.",
    Needs::Collection(&[Action::CleanupStructuredEncryptionData]),
    run,
);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    context.namespace(&fields[0])?;
    Err(Error::new(
        Code::NOT_IMPLEMENTED,
        format!("{} is not supported by this version of FernDB", context.command.name),
    ))
}
