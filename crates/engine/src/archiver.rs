//! The archive of the log: copied to about twice a second by a thread of its own, so that a lost machine
//! loses about a second.
//!
//! Of an encrypted log the records are archived as they are stored, and beside them the data keys, wrapped by the
//! master key: without them no record could be read again.
//!
//! Always true: the log is not trimmed beyond what is in the archive. So where copying fails the log grows,
//! and its disk fills where everybody sees it, rather than the archive having a hole. The keys of what is in the archive
//! are there before it: a log gets another data key at a start alone.

use crate::error::Cause;
use crate::keys::keys_file;
use crate::log::Log;
use crate::schedule::Scheduler;
use crate::{Error, Result};
use os::{OpenOptions, Os, Padded};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wal::archive::Archive;

/// Between two copies. Moments are this far apart, and a restore to a second is to be no more than a second off.
const ROUND: Duration = Duration::from_millis(400);
/// A failure that goes on is told so often.
const TOLD_EVERY: Duration = Duration::from_mins(1);

/// How the archive of the log is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveStatus {
    /// Where it is.
    pub dir: PathBuf,
    /// Everything of the log before this is in it.
    pub archived: u64,
    /// What is synced in the log and not there yet, in bytes.
    pub behind_bytes: u64,
    /// When all that was synced was there last, in milliseconds since 1970; 0 for never.
    pub last_ms: i64,
    /// Copies that failed since the start.
    pub failures: u64,
    /// Why the last one failed, until one succeeds.
    pub error: Option<String>,
}

#[derive(Default)]
struct State {
    archive: Option<Archive>,
    /// The wrapped data keys, as they are in the archive.
    keys: Option<Vec<u8>>,
    last_ms: i64,
    failures: u64,
    error: Option<String>,
    told: Option<Duration>,
}

/// Copies the log to its archive.
pub(crate) struct Archiver {
    dir: PathBuf,
    data_dir: PathBuf,
    os: Os,
    log: Arc<Padded<Log>>,
    schedule: Arc<Scheduler>,
    state: Mutex<State>,
}

impl Archiver {
    /// From here on the log stays until it is archived.
    pub(crate) fn new(
        dir: &Path,
        data_dir: &Path,
        os: &Os,
        log: &Arc<Padded<Log>>,
        schedule: &Arc<Scheduler>,
    ) -> Self {
        log.set_archived(0);
        Self {
            dir: dir.to_path_buf(),
            data_dir: data_dir.to_path_buf(),
            os: os.clone(),
            log: Arc::clone(log),
            schedule: Arc::clone(schedule),
            state: Mutex::default(),
        }
    }

    /// Opens the archive, once the log is open, and copies what there is.
    ///
    /// # Errors
    /// It belongs to another log, or cannot be written to.
    pub(crate) fn open(&self, data_file: u128) -> Result<()> {
        let wal = self.log.wal();
        let archive =
            Archive::open(&self.os, &self.dir, data_file, wal).map_err(|error| refusal(&error))?;
        let (first, archived) = (wal.first_lsn(), archive.archived());
        tracing::info!(dir = %self.dir.display(), first, archived, "the log is archived");
        self.state.lock().archive = Some(archive);
        // Where its disk is full the server serves all the same, and says so.
        self.copy();
        Ok(())
    }

    /// What its thread does, until everything stops.
    pub(crate) fn run(&self) {
        while !self.schedule.queue.is_stopping() {
            self.schedule.queue.pause(ROUND);
            self.copy();
        }
    }

    /// Copies what was synced since; tells of a failure, and goes on.
    pub(crate) fn copy(&self) {
        let failed = self.round().err().map(|error| error.to_string());
        let now = self.os.clock.monotonic();
        let mut state = self.state.lock();
        match failed {
            None => {
                if state.error.take().is_some() {
                    tracing::info!(dir = %self.dir.display(), "the log archive is written to again");
                    state.told = None;
                }
            }
            Some(error) => {
                state.failures += 1;
                if state.told.is_none_or(|told| now.saturating_sub(told) >= TOLD_EVERY) {
                    state.told = Some(now);
                    tracing::error!(
                        dir = %self.dir.display(),
                        error,
                        failures = state.failures,
                        "the log cannot be archived: its files stay until it can"
                    );
                }
                state.error = Some(error);
            }
        }
    }

    fn round(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.archive.is_none() {
            return Ok(());
        }
        let keys = keys_file(&self.os, &self.data_dir)?;
        if let Some(bytes) = keys.filter(|bytes| state.keys.as_ref() != Some(bytes)) {
            self.copy_keys(&bytes)?;
            state.keys = Some(bytes);
        }
        let Some(archive) = &mut state.archive else { return Ok(()) };
        let copied = archive.round(self.log.wal());
        self.log.set_archived(archive.archived());
        if copied.is_ok() {
            state.last_ms = self.os.clock.wall_ms();
        }
        Ok(copied?)
    }

    /// On disk when it returns.
    fn copy_keys(&self, bytes: &[u8]) -> Result<()> {
        let (part, path) = (self.dir.join("fern.keys.part"), self.dir.join(crypt::FILE_NAME));
        let failed = |operation| {
            let file = path.clone();
            move |source| Error::Io(Cause::File { operation, file, source })
        };
        let options = OpenOptions { truncate: true, ..OpenOptions::create() };
        let file = self.os.vfs.open(&part, options).map_err(failed("create"))?;
        file.write_all_at(bytes, 0).map_err(failed("write"))?;
        file.sync_all().map_err(failed("sync"))?;
        self.os.vfs.rename(&part, &path).map_err(failed("rename"))?;
        self.os.vfs.sync_dir(&self.dir).map_err(failed("sync the directory of"))
    }

    pub(crate) fn status(&self) -> ArchiveStatus {
        let state = self.state.lock();
        let archived = state.archive.as_ref().map_or(0, Archive::archived);
        ArchiveStatus {
            dir: self.dir.clone(),
            archived,
            behind_bytes: self.log.wal().synced_lsn().saturating_sub(archived),
            last_ms: state.last_ms,
            failures: state.failures,
            error: state.error.clone(),
        }
    }

    /// Lets another process write to it.
    pub(crate) fn close(&self) {
        self.state.lock().archive = None;
    }
}

/// What keeps a start from using the archive is what the operator has named.
fn refusal(error: &wal::Error) -> Error {
    Error::InvalidOption(format!("logArchiveDir: {error}"))
}
