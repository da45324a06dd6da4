//! What consensus refuses, and why.

use crate::entry::MemberId;

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What consensus refuses.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes that are no message of any version that this program reads.
    #[error("no message: {what}")]
    Malformed {
        /// What is wrong with them.
        what: &'static str,
    },
    /// A message of a newer program.
    #[error("a message of version {found}; this program reads up to {known}")]
    Version {
        /// Its version.
        found: u8,
        /// The newest known one.
        known: u8,
    },
    /// A message that no member can have sent if all did what they must: it was not acted on.
    #[error("member {from} says what cannot be: {what}")]
    Impossible {
        /// Who says so.
        from: MemberId,
        /// What cannot be.
        what: &'static str,
    },
    /// An answer from somebody who is no member.
    #[error("{from} is no member")]
    NoMember {
        /// Who.
        from: MemberId,
    },
    /// Only the leader can do that.
    #[error("this member is not the leader")]
    NotLeader,
    /// The leader cannot do it now; later it may.
    #[error("{0}")]
    NotNow(&'static str),
    /// What was asked for is never done.
    #[error("{0}")]
    Invalid(&'static str),
    /// What a start was given contradicts itself.
    #[error("the state to start from contradicts itself: {0}")]
    Start(&'static str),
    /// The state of a member on disk cannot be read.
    #[error("the state of this member is damaged: {0}")]
    State(&'static str),
}
