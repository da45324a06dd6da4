//! What a replica cannot do, and why.

use quorum::{MemberId, Position};

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What a replica cannot do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes that are no frame of any version that this program reads.
    #[error("no frame: {what}")]
    Malformed {
        /// What is wrong with them.
        what: &'static str,
    },
    /// A frame of a newer program.
    #[error("a frame of version {found}; this program reads up to {known}")]
    Version {
        /// Its version.
        found: u8,
        /// The newest known one.
        known: u8,
    },
    /// A frame whose records are not those that its entry describes.
    #[error("the records of {at:?} from {from} are not what their entry says: {what}")]
    Records {
        /// Who sent them.
        from: MemberId,
        /// Which entry.
        at: Position,
        /// What differs.
        what: &'static str,
    },
    /// A frame that came over the link of another member than it says.
    #[error("a frame of {says} came over the link of {from}")]
    WrongLink {
        /// Whose link.
        from: MemberId,
        /// Who it says it is from.
        says: MemberId,
    },
    /// Consensus refuses.
    #[error(transparent)]
    Quorum(#[from] quorum::Error),
    /// The journal refuses: this member acknowledges nothing any more.
    #[error("the journal: {0}")]
    Journal(String),
    /// The file with term and vote cannot be written or read: the same.
    #[error("the state of this member: {0}")]
    State(String),
    /// An earlier error has stopped this member.
    #[error("this member has stopped: {0}")]
    Stopped(String),
}
