//! What can go wrong in a data file, with the place.

use std::io;
use std::path::{Path, PathBuf};

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong in a data file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk refused.
    #[error("{operation} {} at {offset}: {source}", file.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// In which file.
        file: PathBuf,
        /// At which byte.
        offset: u64,
        /// What the disk said.
        source: io::Error,
    },
    /// The disk is full; nothing changed, and the same call works later.
    #[error("no space left for {needed} bytes in {}", file.display())]
    NoSpace {
        /// In which file.
        file: PathBuf,
        /// Bytes that were asked for.
        needed: u64,
    },
    /// The bytes on disk are not what was written.
    #[error("corruption in {} at {offset} (segment {segment}, page {page}): {what}", file.display())]
    Corruption {
        /// In which file.
        file: PathBuf,
        /// At which byte; 0 where there is no one place.
        offset: u64,
        /// In which segment; 0 outside segments.
        segment: u64,
        /// In which page of it; 0 where not known.
        page: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// The file was written by a newer version of the format.
    #[error("{} has format version {found}, this program reads up to {known}", file.display())]
    Version {
        /// Which file.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The newest this program knows.
        known: u32,
    },
    /// Keys are there and the file is plain, or the other way round. Nothing was written.
    #[error(
        "the data file {} is {}",
        file.display(),
        if *is_encrypted { "encrypted, and no key was given" } else { "not encrypted, and a key was given" }
    )]
    Keys {
        /// Which file.
        file: PathBuf,
        /// Whether the file is.
        is_encrypted: bool,
    },
    /// An earlier failed sync stopped writing; the process must restart and recover.
    #[error("the data file is stopped: {cause}")]
    Stopped {
        /// The first failure.
        cause: String,
    },
}

impl Error {
    /// The file that it is about.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Io { file, .. }
            | Self::NoSpace { file, .. }
            | Self::Corruption { file, .. }
            | Self::Keys { file, .. }
            | Self::Version { file, .. } => Some(file),
            Self::Stopped { .. } => None,
        }
    }
}
