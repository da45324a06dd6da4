//! What can be wrong with keys and encrypted bytes, each in a sentence for the operator.

use crate::fingerprint::Fingerprint;
use std::io;

/// Of the whole crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why keys are not taken, or bytes do not open.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator's file is no key.
    #[error("{0}")]
    KeyFile(&'static str),
    /// The operator's file is somebody else's.
    #[error("it belongs to the user {0}, and must be the server's own or root's")]
    Owner(u32),
    /// The file of wrapped keys was made with another master key.
    #[error(
        "fern.keys was made with another master key (fingerprint {made_with}; the one given has {given})"
    )]
    OtherMaster {
        /// Of the master that the file names.
        made_with: Fingerprint,
        /// Of the master that was tried.
        given: Fingerprint,
    },
    /// No slot of the file of wrapped keys is whole.
    #[error("fern.keys is damaged: {0}")]
    Damaged(&'static str),
    /// A newer program wrote it.
    #[error("a newer program wrote fern.keys (version {0})")]
    Newer(u32),
    /// No data key has this number.
    #[error("fern.keys has no data key {0}")]
    NoSuchKey(u32),
    /// There is no room for another data key.
    #[error("fern.keys holds as many data keys as it can")]
    Full,
    /// What was encrypted is not what is there, or was encrypted for another place or with another key.
    #[error("encrypted bytes do not decrypt: they were changed, or encrypted with another key")]
    NotAuthentic,
    /// What the disk says.
    #[error(transparent)]
    Io(#[from] io::Error),
}
