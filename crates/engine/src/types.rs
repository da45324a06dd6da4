//! Small types that every call uses.

use std::ops::Deref;
use std::sync::Arc;

/// A commit timestamp: commits are ordered by it, snapshots are named by it. 0 is before all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

/// Owned bytes of one value; derefs to a slice. A large one may keep a page or a memtable in
/// memory while it lives: copy the bytes before keeping it for long.
pub struct Value(Bytes);

enum Bytes {
    Shared(Arc<[u8]>),
    Tree(ftree::Value),
}

impl Value {
    pub(crate) fn shared(bytes: &Arc<[u8]>) -> Self {
        Self(Bytes::Shared(Arc::clone(bytes)))
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
