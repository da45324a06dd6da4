//! What can go wrong in the engine, as its callers see it.

use crate::DictionaryId;

/// What a fallible engine call returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way an engine call fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction committed a newer version of the key after this one's snapshot.
    #[error("write conflict")]
    WriteConflict,
    /// The lock was not granted within the transaction's lock timeout.
    #[error("lock not granted within {waited_ms} ms")]
    LockTimeout {
        /// How long the request waited, in milliseconds.
        waited_ms: u64,
    },
    /// Waiting for the lock would close a cycle of waiters; this transaction is the victim.
    #[error("deadlock")]
    Deadlock,
    /// The dictionary does not exist, or not in this snapshot.
    #[error("dictionary {0:?} does not exist in this snapshot")]
    NoSuchDictionary(DictionaryId),
    /// A key or value is larger than the engine takes.
    #[error("{what} of {size} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// `"key"`, `"value"` or `"transaction"`.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The disk is full, or past the red zone; reads go on.
    #[error("no space left: {0}")]
    NoSpace(String),
    /// Bytes on disk are not what was written.
    #[error("corruption: {0}")]
    Corruption(String),
    /// The operating system refused.
    #[error("i/o error: {0}")]
    Io(String),
    /// Another process holds the data directory.
    #[error("data directory is locked by another process: {0}")]
    Locked(String),
    /// The engine stopped after an unrecoverable error, or was closed.
    #[error("engine stopped: {0}")]
    Stopped(String),
    /// The transaction was killed.
    #[error("transaction was killed")]
    Interrupted,
    /// An option has a value that cannot be honoured.
    #[error("invalid option: {0}")]
    InvalidOption(String),
}

impl From<locktree::Error> for Error {
    fn from(error: locktree::Error) -> Self {
        use locktree::Error as E;
        match error {
            E::Timeout { waited_ms, .. } => Self::LockTimeout { waited_ms },
            E::Deadlock { .. } => Self::Deadlock,
            E::Interrupted => Self::Interrupted,
            E::OutOfLocks { bytes } => {
                Self::TooLarge { what: "transaction's lock set", size: bytes, limit: bytes / 2 }
            }
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<ftree::Error> for Error {
    fn from(error: ftree::Error) -> Self {
        match error {
            ftree::Error::Blocks(error) => error.into(),
            ftree::Error::Corruption { .. } => Self::Corruption(error.to_string()),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<blockfile::Error> for Error {
    fn from(error: blockfile::Error) -> Self {
        use blockfile::Error as E;
        match error {
            E::NoSpace { .. } => Self::NoSpace(error.to_string()),
            E::Corruption { .. } => Self::Corruption(error.to_string()),
            E::Version { .. } => Self::InvalidOption(error.to_string()),
            E::Stopped { cause } => Self::Stopped(cause),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<wal::Error> for Error {
    fn from(error: wal::Error) -> Self {
        use wal::Error as E;
        match error {
            E::NoSpace { .. } => Self::NoSpace(error.to_string()),
            E::Corruption { .. } | E::Missing { .. } => Self::Corruption(error.to_string()),
            E::Version { .. } => Self::InvalidOption(error.to_string()),
            E::Stopped { cause } => Self::Stopped(cause),
            other => Self::Io(other.to_string()),
        }
    }
}
