//! A hot backup: a checkpoint whose files may be copied while the engine goes on.
//!
//! While a [`Backup`] lives, nothing it names is overwritten and the log is kept from the
//! checkpoint on, each of its files under the name it has. Copy the data file first, then the log segments; opening the copy is a recovery.
//!
//! A copy on this machine is written by [`Backup::write_to`], as a whole or with what an earlier one does not have
//! (`local.rs`, `chain.rs`).
//!
//! Who copies it piece by piece, over hours and while other checkpoints are written, asks for the parts: first
//! those of the data file, whose superblocks it takes from here, then the log's.

mod chain;
mod local;
mod manifest;
mod pages;
mod receive;
mod written;

pub use chain::{BackupChain, DataPiece, StoredBackup};
pub use local::BackupProgress;
pub use manifest::{BACKUP_FILE, BackupManifest, Since};
pub use receive::{CopiedFile, ReceivedFile, Receiving, take_received};

use crate::environment::Environment;
use crate::error::Cause;
use crate::keys::keys_file;
use crate::{Error, Result, Timestamp};
use blockfile::FileParts;
use os::OpenOptions;
use pages::Owners;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wal::SyncedFile;

/// The files of a consistent copy. Dropping it ends the backup.
pub struct Backup {
    environment: Arc<Environment>,
    pin: blockfile::Pin,
    log_position: u64,
    timestamp: Timestamp,
    /// Of the segments that the checkpoint names, and others.
    owners: Owners,
    /// What is loaded and not in the copy is not adopted meanwhile.
    begun: u64,
}

impl Backup {
    /// Writes a checkpoint and holds it. May take as long as a checkpoint.
    pub(crate) fn begin(environment: &Arc<Environment>) -> Result<Self> {
        // First the hold, so that the checkpoint does not trim what the copy needs.
        let log_position = environment.log.needed.lock().hold();
        environment.wal().hold_names();
        let pin = environment.blocks.pin();
        let begun = environment.directory.staging.begin_backup();
        if let Some(keys) = &environment.keys {
            keys.begin_copy();
        }
        let mut backup = Self {
            environment: Arc::clone(environment),
            pin,
            log_position,
            timestamp: environment.snapshots.visible().timestamp(),
            owners: Owners::default(),
            begun,
        };
        // Before and behind it: what the checkpoint names may be gone soon.
        backup.owners.add(&environment.directory);
        environment.checkpoints.write()?;
        backup.owners.add(&environment.directory);
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

    /// What of the data file has to be copied now: then it opens as this backup's checkpoint, or a later one.
    pub fn data_parts(&self) -> Result<FileParts> {
        Ok(self.environment.blocks.parts(&self.pin)?)
    }

    /// Bytes of the data file, for who copies a part of it. Touches the disk.
    pub fn read_data(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read_data_into(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// As [`Backup::read_data`], into memory that is there.
    pub fn read_data_into(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        Ok(self.environment.blocks.read_stored(offset, into)?)
    }

    /// What of the log has to be copied now: all that is synced. Asked when the data file has been copied.
    pub fn log_parts(&self) -> Vec<SyncedFile> {
        self.environment.wal().synced_files(self.log_position)
    }

    /// Bytes of a file of the log, for who copies a part of it. Touches the disk.
    ///
    /// # Errors
    /// The file does not have them.
    pub fn read_log(&self, file: &Path, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read_log_into(file, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// As [`Backup::read_log`], into memory that is there.
    ///
    /// # Errors
    /// As there.
    pub fn read_log_into(&self, file: &Path, offset: u64, into: &mut [u8]) -> Result<()> {
        let failed = |source: io::Error| {
            Error::Io(Cause::File { operation: "read", file: file.to_path_buf(), source })
        };
        let vfs = &self.environment.os.vfs;
        let opened = vfs.open(file, OpenOptions::read_only()).map_err(failed)?;
        opened.read_exact_at(into, offset).map_err(failed)
    }

    /// `fern.keys`, as it is now: it belongs to the copy of an encrypted directory.
    pub fn keys_file(&self) -> Result<Option<Vec<u8>>> {
        keys_file(&self.environment.os, &self.environment.options.dir)
    }

    /// The data keys, for who has made this public key; none where the directory is not encrypted.
    pub fn data_keys_for(
        &self,
        receiver: &[u8; crypt::PUBLIC_KEY_BYTES],
    ) -> Result<Option<Vec<u8>>> {
        let Some(keys) = self.environment.blocks.keys() else { return Ok(None) };
        let given = keys.encrypt_for(receiver, &*self.environment.os.entropy);
        given.map(Some).map_err(|error| Error::Keys(error.to_string()))
    }

    /// The log's directory: all segment files in it belong to the copy.
    pub fn log_dir(&self) -> PathBuf {
        self.environment.options.log_dir()
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.environment.directory.staging.end_backup(self.begun);
        if let Some(keys) = &self.environment.keys {
            keys.end_copy();
        }
        self.environment.wal().release_names();
        self.environment.log.needed.lock().release(self.log_position);
    }
}

impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backup({:?})", self.timestamp)
    }
}
