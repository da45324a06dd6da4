//! What a commit tells of itself: notes in the log, oplog entries, change events, resume tokens.
//!
//! From → to: the catalog writes [`notes`] into a commit's record; whoever reads the log puts them
//! together with what the record writes ([`commit`]) and makes [`entry`] or [`event`] of each
//! operation. Bytes in, bytes out: no storage, no clock.
//!
//! Always true:
//! 1. Bytes from the log or from a client are checked: damage is an error, never a panic.
//! 2. The same commit gives the same entries, events and tokens, whenever it is read.
#![forbid(unsafe_code)]

pub mod commit;
pub mod description;
pub mod diff;
pub mod entry;
pub mod event;
pub mod notes;
pub mod token;

/// A time of the cluster: seconds in the upper half, a counter within the second in the lower.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// As BSON shows it.
    pub fn timestamp(self) -> bson::Timestamp {
        bson::Timestamp { time: (self.0 >> 32) as u32, increment: self.0 as u32 }
    }
}

impl From<bson::Timestamp> for Time {
    fn from(timestamp: bson::Timestamp) -> Self {
        Self(u64::from(timestamp.time) << 32 | u64::from(timestamp.increment))
    }
}

/// Notes that nobody wrote.
pub(crate) fn damaged(what: &str) -> errors::Error {
    errors::Error::new(errors::Code::INTERNAL_ERROR, format!("damaged notes of a commit: {what}"))
}
