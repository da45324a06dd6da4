//! A hot backup: a checkpoint whose files may be copied while the engine goes on.
//!
//! While a [`Backup`] lives, nothing it names is overwritten and the log is kept from the
//! checkpoint on, each of its files under the name it has. Copy the data file first, then the log segments; opening the copy is a recovery.

use crate::environment::Environment;
use crate::{Result, Timestamp};
use std::path::PathBuf;
use std::sync::Arc;

/// The files of a consistent copy. Dropping it ends the backup.
pub struct Backup {
    environment: Arc<Environment>,
    _pin: blockfile::Pin,
    log_position: u64,
    timestamp: Timestamp,
}

impl Backup {
    /// Writes a checkpoint and holds it. May take as long as a checkpoint.
    pub(crate) fn begin(environment: &Arc<Environment>) -> Result<Self> {
        // First the hold, so that the checkpoint does not trim what the copy needs.
        let log_position = environment.log.needed.lock().hold();
        environment.wal().hold_names();
        let pin = environment.blocks.pin();
        let backup = Self {
            environment: Arc::clone(environment),
            _pin: pin,
            log_position,
            timestamp: environment.snapshots.visible().timestamp(),
        };
        environment.checkpoints.write()?;
        Ok(backup)
    }

    /// Every commit up to here is in the copy.
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// The data file.
    pub fn data_file(&self) -> PathBuf {
        self.environment.blocks.path().to_path_buf()
    }

    /// The log's directory: all segment files in it belong to the copy.
    pub fn log_dir(&self) -> PathBuf {
        self.environment.options.log_dir()
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.environment.wal().release_names();
        self.environment.log.needed.lock().release(self.log_position);
    }
}

impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backup({:?})", self.timestamp)
    }
}
