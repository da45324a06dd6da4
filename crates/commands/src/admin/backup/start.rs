//! `backupStart`: writes everything into an empty directory of this machine while the server goes on, and answers
//! when it is there. With `since` only what an earlier backup does not have.
//!
//! Always true: nothing is written outside of `backupRoot`, whatever links lead there; a backup that is stopped or
//! fails leaves a directory in which no server starts. What it holds is the state at its end, not at its beginning.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::doc;
use dispatch::fields::Field;
use engine::format::UNFINISHED_BACKUP;
use engine::{BackupProgress, StoredBackup};
use errors::{Code, Error, Result};
use serverstate::{LogEvent, Severity};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const BACKUP_START: Command = Command::new(
    "backupStart",
    "Copies all data into a directory of the server's machine while it goes on.",
    Needs::Cluster(&[Action::Backup]),
    run,
)
.admin_only();

/// The longest wait until it is looked whether the operation goes on.
const LOOK: Duration = Duration::from_millis(50);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut since = None;
    for field in &fields[1..] {
        match field.name {
            "since" => since = Some(field.str()?),
            _ => return Err(field.unknown()),
        }
    }
    let service = context.service;
    if service.catalog.leaves_out_indexes() {
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "this member has no indexes (buildIndexes: false), and neither would its backup: ask a member that has \
             them, or dump this one (mongodump)",
        ));
    }
    let running = service.backups.begin()?;
    let target = target(context, fields[0].str()?)?;
    let since = since.map(|named| earlier(context, named)).transpose()?;
    let operation = &context.connection.operation;
    // Since when, and with how many bytes, it is waited for the throttle: each piece for itself, so that a new rate
    // holds from the next one on.
    let (mut copied_at, mut before) = (context.now(), 0);
    let mut stopped = None;
    let mut look = |progress: &BackupProgress| {
        running.tell(progress);
        operation.set_progress("backup", progress.bytes_done, progress.bytes_total);
        let piece = progress.bytes_done - before;
        loop {
            // The backup's own errors are of the disk: this one is kept beside it.
            if let Err(error) = context.check_wait() {
                stopped = Some(error);
                return Err(engine::Error::InvalidOption("the backup was stopped".to_owned()));
            }
            let now = context.now();
            let left = service.backups.rate.pause_after(piece, now.saturating_sub(copied_at));
            if left.is_zero() {
                (copied_at, before) = (now, progress.bytes_done);
                return Ok(());
            }
            service.wait(left.min(LOOK));
        }
    };
    let engine = service.catalog.engine();
    let backup = engine.backup().map_err(catalog::from_engine)?;
    let written = backup.write_to(&service.os, &target, since.as_ref(), &mut look);
    drop(backup);
    let done = match (written, stopped) {
        (Ok(done), _) => done,
        (Err(_), Some(stopped)) => return Err(stopped),
        (Err(error), None) => return Err(failed(context, &target, error)),
    };
    service.backups.succeeded();
    service.host.log(&LogEvent {
        severity: Severity::Info,
        component: "STORAGE",
        id: 9_016_775,
        context: &format!("conn{}", context.connection.id()),
        message: "A backup was written",
        attributes: doc! {
            "target": target.display().to_string(),
            "bytes": done.bytes_done as i64,
            "files": done.files_done as i64,
            "bytesSince": done.bytes_since as i64,
        },
    });
    context.reply.number("bytes", done.bytes_done);
    context.reply.number("files", done.files_done);
    if since.is_some() {
        context.reply.number("bytesSince", done.bytes_since);
    }
    Ok(())
}

/// Tells the log and `backupStatus` why a backup has failed.
fn failed(context: &Context<'_>, target: &Path, error: engine::Error) -> Error {
    let target = target.display().to_string();
    let mut attributes = doc! { "target": &target, "error": error.to_string() };
    if let engine::Error::Corruption(cause) = &error {
        attributes.extend(
            cause.dictionary().map(|number| ("dictionary".to_owned(), (number as i64).into())),
        );
        if let Some((segment, page)) = cause.page() {
            attributes.extend(doc! { "segment": segment as i64, "page": i64::from(page) });
        }
    }
    context.service.backups.failed(format!("{target}: {error}"));
    context.service.host.log(&LogEvent {
        severity: Severity::Error,
        component: "STORAGE",
        id: 9_016_820,
        context: &format!("conn{}", context.connection.id()),
        message: "A backup has failed",
        attributes,
    });
    match error {
        engine::Error::InvalidOption(text) => Error::bad_value(text),
        error => catalog::from_engine(error),
    }
}

/// Whether a directory is below `--backupRoot`: where it really is.
fn below_root(context: &Context<'_>, named: &str) -> Result<PathBuf> {
    let refused = |text: String| Err(Error::new(Code::BAD_VALUE, text));
    let Some(root) = &context.service.info.backup_root else {
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "backupStart writes below the directory that --backupRoot (storage.fern.backupRoot) names, and none is \
             named",
        ));
    };
    let path = Path::new(named);
    if !path.is_absolute() {
        return refused(format!("{named} is no absolute path"));
    }
    let (root, path) = (real(root)?, real(path)?);
    if !path.starts_with(&root) {
        return refused(format!("{named} is not below the server's backupRoot"));
    }
    Ok(path)
}

fn real(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path)
        .map_err(|error| Error::bad_value(format!("{}: {error}", path.display())))
}

/// The earlier backup that is built on.
fn earlier(context: &Context<'_>, named: &str) -> Result<StoredBackup> {
    let path = below_root(context, named)?;
    StoredBackup::read(&context.service.os, &path).map_err(|error| match error {
        engine::Error::InvalidOption(text) => Error::bad_value(text),
        error => Error::bad_value(format!("{named} cannot be built on: {error}")),
    })
}

/// The directory that is to be written to.
fn target(context: &Context<'_>, named: &str) -> Result<PathBuf> {
    let path = below_root(context, named)?;
    let refused = |text: String| Err(Error::new(Code::BAD_VALUE, text));
    let options = context.service.catalog.engine().options();
    for own in [&options.dir].into_iter().chain(options.log_dir.as_ref()) {
        let own = real(own)?;
        if path.starts_with(&own) || own.starts_with(&path) {
            return refused(format!(
                "{named} is the server's own data directory, or one in or above it"
            ));
        }
    }
    let mut entries =
        std::fs::read_dir(&path).map_err(|error| Error::bad_value(format!("{named}: {error}")))?;
    // What a backup has left that was not finished is written over.
    if entries.next().is_some() && !path.join(UNFINISHED_BACKUP).exists() {
        return refused(format!("{named} is not empty"));
    }
    Ok(path)
}
