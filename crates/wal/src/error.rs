//! What can go wrong in the log, with the place.

use std::io;
use std::path::{Path, PathBuf};

use crate::Lsn;

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong in the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk refused.
    #[error("{operation} {}: {source}", file.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        file: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// The disk is full; what was appended stays in memory, and the same call works later.
    #[error("no space left for the log in {}", file.display())]
    NoSpace {
        /// Which file should have grown.
        file: PathBuf,
    },
    /// Bytes that were safe on disk are not what was written.
    #[error("corruption in {} at {offset} (lsn {lsn}): {what}", file.display())]
    Corruption {
        /// In which file.
        file: PathBuf,
        /// At which byte of it.
        offset: u64,
        /// At which position of the log.
        lsn: Lsn,
        /// What is wrong.
        what: &'static str,
    },
    /// The log does not reach where it must: files are gone.
    #[error("the log in {} holds {first}..{end} and is needed from {wanted}", dir.display())]
    Missing {
        /// The log's directory.
        dir: PathBuf,
        /// Where the caller wants to start.
        wanted: Lsn,
        /// Where the log starts.
        first: Lsn,
        /// Where it ends.
        end: Lsn,
    },
    /// A segment was written by a newer version of the format.
    #[error("{} has log version {found}, this program reads up to {known}", file.display())]
    Version {
        /// Which file.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The newest this program knows.
        known: u32,
    },
    /// Keys are there and the log is plain, or the other way round.
    #[error(
        "the log in {} is {}",
        dir.display(),
        if *is_encrypted { "encrypted, and no key was given" } else { "not encrypted, and a key was given" }
    )]
    Keys {
        /// The log's directory.
        dir: PathBuf,
        /// Whether the log is.
        is_encrypted: bool,
    },
    /// The archive cannot be written to by this log.
    #[error("the log archive {} {what}", dir.display())]
    Archive {
        /// The archive's directory.
        dir: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// One append is longer than the log allows.
    #[error("a log record of {bytes} bytes is longer than {most}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// An earlier failure stopped the log; the process must restart and recover.
    #[error("the log is stopped: {cause}")]
    Stopped {
        /// The first failure.
        cause: String,
    },
}

impl Error {
    /// The file, or for a log that is not whole the directory, that it is about.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Io { file, .. }
            | Self::NoSpace { file }
            | Self::Corruption { file, .. }
            | Self::Version { file, .. } => Some(file),
            Self::Missing { dir, .. } | Self::Keys { dir, .. } | Self::Archive { dir, .. } => {
                Some(dir)
            }
            Self::TooLong { .. } | Self::Stopped { .. } => None,
        }
    }

    pub(crate) fn io(operation: &'static str, file: &Path, source: io::Error) -> Self {
        let file = file.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { file },
            _ => Self::Io { operation, file, source },
        }
    }
}
