//! `backupStatus`: how far the backup is that is being written; where none is, why the last one failed.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Code, Error, Result};

pub(crate) const BACKUP_STATUS: Command = Command::new(
    "backupStatus",
    "Tells how far the backup is that is being written.",
    Needs::Cluster(&[Action::Backup]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let backups = &context.service.backups;
    let progress = backups.progress().ok_or_else(|| {
        let failure = backups.failure().map(|what| format!("; the last one failed: {what}"));
        let text = format!("no backup is being written{}", failure.unwrap_or_default());
        Error::new(Code::ILLEGAL_OPERATION, text)
    })?;
    let reply = &mut context.reply;
    let part = progress.bytes_done as f64 / progress.bytes_total.max(1) as f64;
    reply.f64("percent", part * 100.0);
    reply.number("bytesDone", progress.bytes_done);
    reply.number("bytesTotal", progress.bytes_total);
    reply.number("bytesSince", progress.bytes_since);
    let files = reply.begin_document("files");
    reply.number("done", progress.files_done);
    reply.number("total", progress.files_total);
    reply.end(files);
    let current = reply.begin_document("current");
    reply.str("source", &progress.source.to_string_lossy());
    reply.str("dest", &progress.target.to_string_lossy());
    let bytes = reply.begin_document("bytes");
    reply.number("done", progress.file_done);
    reply.number("total", progress.file_total);
    reply.end(bytes);
    reply.end(current);
    Ok(())
}
