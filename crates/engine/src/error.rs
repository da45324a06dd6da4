//! What can go wrong in the engine, as its callers see it.
//!
//! A failure of the disk keeps the error of the crate that met it, and so the file, segment, page or
//! log position as fields: nothing is to be read out of a text.

use crate::DictionaryId;
use std::io;
use std::path::{Path, PathBuf};

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
    /// The lock is not free, and the transaction waits for it on no thread: the statement is to be run again
    /// ([`crate::Deferring`]).
    #[error("the lock is waited for without a thread")]
    Queued,
    /// Waiting for the lock would close a cycle of waiters; this transaction is the victim.
    #[error("deadlock")]
    Deadlock,
    /// The dictionary does not exist, or not in this snapshot.
    #[error("dictionary {0:?} does not exist in this snapshot")]
    NoSuchDictionary(DictionaryId),
    /// A key or value is larger than the engine takes.
    #[error("{what} of {size} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// What is too large.
        what: Oversized,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The disk is full, or past the red zone; reads go on.
    #[error("no space left: {0}")]
    NoSpace(#[source] Cause),
    /// Bytes on disk are not what was written.
    #[error("corruption: {0}")]
    Corruption(#[source] Cause),
    /// The operating system refused.
    #[error("i/o error: {0}")]
    Io(#[source] Cause),
    /// Another process holds the data directory.
    #[error("data directory is locked by another process: {0}")]
    Locked(String),
    /// The engine stopped after an unrecoverable error, or was closed.
    #[error("engine stopped: {0}")]
    Stopped(String),
    /// The transaction was killed.
    #[error("transaction was killed")]
    Interrupted,
    /// The commit was written, and is not known to be on a majority of the set: it may become visible, or
    /// be overwritten.
    #[error("the commit is not decided yet")]
    Undecided,
    /// The commit was written, and no majority of the set has it in the time that this thread waits for one
    /// ([`crate::limit_waits`]): it may become visible, or be overwritten.
    #[error("no majority has the commit in time")]
    NotInTime,
    /// Another member's commits have taken the place of this one: nobody has seen it, nobody will.
    #[error("the commit was overwritten")]
    Overwritten,
    /// The transaction writes, and this member does not lead its set, or did not all the time since the
    /// transaction began.
    #[error("this member does not lead its set")]
    NotLeader,
    /// The history does not reach back to the time that was asked for, or no longer does.
    #[error("the history no longer reaches back to the time that was asked for")]
    HistoryLost,
    /// The data directory is encrypted, and the right key is not there.
    #[error("{0}")]
    Keys(String),
    /// An option has a value that cannot be honoured.
    #[error("invalid option: {0}")]
    InvalidOption(String),
}

/// What a size limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oversized {
    /// A key.
    Key,
    /// A value.
    Value,
    /// What a transaction tells readers of the history at once.
    Note,
    /// All that one transaction writes.
    Transaction,
    /// The locks of one transaction.
    LockSet,
}

impl std::fmt::Display for Oversized {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::Note => "note",
            Self::Transaction => "transaction",
            Self::LockSet => "transaction's lock set",
        })
    }
}

/// Who met a failure of the disk, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// A tree; with its number, segment and page.
    #[error(transparent)]
    Tree(#[from] ftree::Error),
    /// The data file; with the byte, segment and page.
    #[error(transparent)]
    Blocks(#[from] blockfile::Error),
    /// The log; with the segment file and the position.
    #[error(transparent)]
    Log(#[from] wal::Error),
    /// A file of the data directory outside both.
    #[error("{operation} {}: {source}", file.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        file: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A record of the log that says what cannot be.
    #[error("log position {position}: {what}")]
    Record {
        /// Where it begins, as a position in bytes.
        position: u64,
        /// What is wrong.
        what: String,
    },
    /// What has no place on the disk.
    #[error("{0}")]
    Other(String),
}

impl From<String> for Cause {
    fn from(what: String) -> Self {
        Self::Other(what)
    }
}

impl Cause {
    /// The file that it is about, where that is known.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Tree(ftree::Error::Blocks(error)) | Self::Blocks(error) => error.file(),
            Self::Log(error) => error.file(),
            Self::File { file, .. } => Some(file),
            _ => None,
        }
    }

    /// The segment of the data file and the page of it, where bytes of one are damaged. The segment is
    /// 0 outside of segments, the page where it is not known.
    pub fn page(&self) -> Option<(u64, u32)> {
        match self {
            Self::Tree(
                ftree::Error::Corruption { segment, page, .. }
                | ftree::Error::Blocks(blockfile::Error::Corruption { segment, page, .. }),
            )
            | Self::Blocks(blockfile::Error::Corruption { segment, page, .. }) => {
                Some((*segment, *page))
            }
            _ => None,
        }
    }

    /// The dictionary whose bytes are damaged, where that is known.
    pub fn dictionary(&self) -> Option<u64> {
        match self {
            Self::Tree(ftree::Error::Corruption { tree, .. }) => Some(*tree),
            _ => None,
        }
    }

    /// The position of the log, in bytes, where the log's bytes are damaged.
    pub fn log_position(&self) -> Option<u64> {
        match self {
            Self::Log(wal::Error::Corruption { lsn, .. }) => Some(*lsn),
            Self::Record { position, .. } => Some(*position),
            _ => None,
        }
    }
}

impl Error {
    /// A record of the log at this position says what cannot be.
    pub(crate) fn in_record(position: u64, what: impl std::fmt::Display) -> Self {
        Self::Corruption(Cause::Record { position, what: what.to_string() })
    }
}

impl From<locktree::Error> for Error {
    fn from(error: locktree::Error) -> Self {
        use locktree::Error as E;
        match error {
            E::Timeout { waited_ms, .. } => Self::LockTimeout { waited_ms },
            E::Deadlock { .. } => Self::Deadlock,
            E::Interrupted => Self::Interrupted,
            E::OutOfLocks { bytes } => {
                Self::TooLarge { what: Oversized::LockSet, size: bytes, limit: bytes / 2 }
            }
            other => Self::Io(Cause::Other(other.to_string())),
        }
    }
}

impl From<ftree::Error> for Error {
    fn from(error: ftree::Error) -> Self {
        match error {
            ftree::Error::Blocks(error) => error.into(),
            ftree::Error::Corruption { .. } => Self::Corruption(error.into()),
            other => Self::Io(other.into()),
        }
    }
}

impl From<blockfile::Error> for Error {
    fn from(error: blockfile::Error) -> Self {
        use blockfile::Error as E;
        match error {
            E::NoSpace { .. } => Self::NoSpace(error.into()),
            E::Corruption { .. } => Self::Corruption(error.into()),
            E::Version { .. } => Self::InvalidOption(error.to_string()),
            E::Keys { .. } => Self::Keys(error.to_string()),
            E::Stopped { cause } => Self::Stopped(cause),
            other => Self::Io(other.into()),
        }
    }
}

impl From<wal::Error> for Error {
    fn from(error: wal::Error) -> Self {
        use wal::Error as E;
        match error {
            E::NoSpace { .. } => Self::NoSpace(error.into()),
            E::Corruption { .. } | E::Missing { .. } => Self::Corruption(error.into()),
            E::Version { .. } | E::Archive { .. } => Self::InvalidOption(error.to_string()),
            E::Keys { .. } => Self::Keys(error.to_string()),
            E::Stopped { cause } => Self::Stopped(cause),
            other => Self::Io(other.into()),
        }
    }
}

/// On a full disk there is nothing to do but to wait for room.
pub(crate) fn ignore_no_space(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::NoSpace(_)) => Ok(()),
        other => other,
    }
}
