//! The two watermarks of commits, as two types.
//!
//! *Complete* is a commit such that it and all before it have every write in their trees. *Visible* is the
//! newest commit that may be shown: to readers, to merges that drop what nobody sees, to images on disk.
//! They are the same, unless the engine holds commits back until a majority of its set has them
//! ([`Showing::Committed`](crate::Showing::Committed)).
//!
//! Always true: what is visible is complete, so `Visible` is at or below `Complete`. There is no way from
//! one to the other: whoever has one says which it means.

use crate::Timestamp;

/// Every commit up to here has all its writes in its trees.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Complete(u64);

/// Every commit up to here may be shown, and none behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Visible(u64);

impl Complete {
    pub(crate) fn at(timestamp: u64) -> Self {
        Self(timestamp)
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }

    /// The newest commit that is complete.
    pub fn timestamp(self) -> Timestamp {
        Timestamp(self.0)
    }
}

impl Visible {
    pub(crate) fn at(timestamp: u64) -> Self {
        Self(timestamp)
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }

    /// The newest commit that is visible.
    pub fn timestamp(self) -> Timestamp {
        Timestamp(self.0)
    }
}
