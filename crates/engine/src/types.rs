//! Small types that every call uses.

use crate::Result;
use os::SharedBytes;
use std::ops::Deref;

/// A commit timestamp: commits are ordered by it, snapshots are named by it. 0 is before all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

/// A commit that is visible to every reader from now on. Whether it is also on disk as was asked is
/// a second question: the wait for the log can fail (the disk is full) when nothing can be taken
/// back any more. Whoever acknowledges the commit has to tell the two apart.
#[must_use = "the commit is visible; whether it is on disk as asked is in here"]
#[derive(Debug)]
pub struct Committed {
    timestamp: Timestamp,
    time: u64,
    durable: Result<()>,
}

impl Committed {
    pub(crate) fn new(timestamp: u64, time: u64, durable: Result<()>) -> Self {
        Self { timestamp: Timestamp(timestamp), time, durable }
    }

    /// The last of its cluster times; 0 where no history is kept, or nothing was written.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Where the commit stands among all commits, for those who do not promise durability, or
    /// wait for it by themselves.
    pub fn visible(self) -> Timestamp {
        self.timestamp
    }

    /// The same where the commit is on disk as was asked.
    ///
    /// # Errors
    /// Why it is not. The commit is visible nevertheless, and must not be repeated.
    pub fn durable(self) -> Result<Timestamp> {
        self.durable.map(|()| self.timestamp)
    }
}

/// Owned bytes of one value; derefs to a slice. A large one may keep a page or a memtable in
/// memory while it lives: copy the bytes before keeping it for long.
pub struct Value(Bytes);

enum Bytes {
    Shared(SharedBytes),
    Tree(ftree::Value),
}

impl Value {
    pub(crate) fn shared(bytes: &SharedBytes) -> Self {
        Self(Bytes::Shared(bytes.clone()))
    }

    /// The same bytes, in memory that is theirs alone: they keep no page and no memtable.
    #[must_use]
    pub fn detached(self) -> Self {
        Self(match self.0 {
            Bytes::Tree(value) => Bytes::Tree(value.detached()),
            shared @ Bytes::Shared(_) => shared,
        })
    }

    /// The bytes on their own.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Bytes::Shared(bytes) => bytes.to_vec(),
            Bytes::Tree(value) => value.into_vec(),
        }
    }
}

impl From<ftree::Value> for Value {
    fn from(value: ftree::Value) -> Self {
        Self(Bytes::Tree(value))
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Shared(bytes) => bytes,
            Bytes::Tree(value) => value,
        }
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        match &self.0 {
            Bytes::Shared(bytes) => Self::shared(bytes),
            Bytes::Tree(value) => Self(Bytes::Shared(value[..].into())),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Value {}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Value({} bytes)", self.len())
    }
}
