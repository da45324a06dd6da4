//! `rotateDataKey`: what an encrypted directory stores from now on is encrypted with a new data key.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::doc;
use dispatch::fields::Field;
use engine::Encryption;
use errors::{Code, Error, Result};
use serverstate::{LogEvent, Severity};

pub(crate) const ROTATE_DATA_KEY: Command = Command::new(
    "rotateDataKey",
    "Adds a data key of encryption at rest, for what is stored from then on.",
    Needs::Cluster(&[Action::RotateCertificates]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let engine = context.service.catalog.engine();
    if engine.encryption().is_none() {
        return Err(not_encrypted());
    }
    let rotated = engine.rotate_data_key();
    answer(context, "What is stored is encrypted with a new data key from now on", rotated)
}

pub(super) fn not_encrypted() -> Error {
    Error::new(Code::ILLEGAL_OPERATION, "the data directory is not encrypted")
}

/// Tells the log and the client which keys there are now.
pub(super) fn answer(
    context: &mut Context<'_>,
    message: &'static str,
    rotated: engine::Result<Encryption>,
) -> Result<()> {
    let keys = rotated.map_err(|error| Error::new(Code::OPERATION_FAILED, error.to_string()))?;
    let Encryption { master, newest_key, keys: count } = keys;
    context.service.host.log(&LogEvent {
        severity: Severity::Info,
        component: "STORAGE",
        id: 9_016_790,
        context: &format!("conn{}", context.connection.id()),
        message,
        attributes: doc! {
            "masterFingerprint": master.to_string(),
            "newestDataKey": i32::from(newest_key),
        },
    });
    context.reply.str("masterFingerprint", &master.to_string());
    context.reply.long("dataKeys", count as u64);
    context.reply.long("newestDataKey", newest_key.into());
    Ok(())
}
