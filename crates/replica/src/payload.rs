//! What goes to other members beside an entry.
//!
//! Always true: its packed form is made once, by who needs it first, however many members it goes to. What it says of its
//! records is read once.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

use crate::packing;
use engine::{EntryBytes, EntryRecords};

/// The payload of an entry. Clones are the same payload.
#[derive(Clone)]
pub struct Payload(Arc<Shared>);

struct Shared {
    bytes: EntryBytes,
    /// `None` where packing saves nothing.
    packed: OnceLock<Option<Box<[u8]>>>,
    /// The same of those parts that are there compressed.
    joined: OnceLock<Option<Box<[u8]>>>,
    /// `None` where they cannot be an entry's.
    records: OnceLock<Option<EntryRecords>>,
}

/// A payload for as long as somebody else has it.
pub(crate) struct WeakPayload(Weak<Shared>);

impl Payload {
    /// Its packed form, where that is shorter: in one frame of zstd.
    pub(crate) fn packed(&self) -> Option<&[u8]> {
        self.0.packed.get_or_init(|| packing::pack(&self.0.bytes)).as_deref()
    }

    /// The same in several frames, where parts of it are there compressed.
    pub(crate) fn joined(&self) -> Option<&[u8]> {
        if self.0.bytes.compressed().is_empty() {
            return self.packed();
        }
        self.0.joined.get_or_init(|| packing::join(&self.0.bytes)).as_deref()
    }

    /// Bytes of memory that it takes, about; without what is made to send it.
    pub fn memory_bytes(&self) -> usize {
        self.0.bytes.memory_bytes()
    }

    /// The records of an entry that it is, for an engine; `None` where it is none.
    pub(crate) fn records(&self) -> Option<&EntryRecords> {
        let read = || EntryRecords::read(self.0.bytes.clone()).ok();
        self.0.records.get_or_init(read).as_ref()
    }

    pub(crate) fn downgrade(&self) -> WeakPayload {
        WeakPayload(Arc::downgrade(&self.0))
    }
}

impl WeakPayload {
    pub(crate) fn upgrade(&self) -> Option<Payload> {
        self.0.upgrade().map(Payload)
    }
}

impl From<EntryBytes> for Payload {
    fn from(bytes: EntryBytes) -> Self {
        let (packed, joined) = (OnceLock::new(), OnceLock::new());
        Self(Arc::new(Shared { bytes, packed, joined, records: OnceLock::new() }))
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(EntryBytes::from(bytes))
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_packed_once_for_all_who_have_it() {
        let one = Payload::from(vec![7; 100_000]);
        let (two, later) = (one.clone(), one.downgrade());
        let packed = one.packed().unwrap();
        assert!(packed.len() < 1000);
        assert!(std::ptr::eq(packed, two.packed().unwrap()));
        drop(one);
        assert_eq!(later.upgrade(), Some(two));
        assert_eq!(later.upgrade(), None);
        assert_eq!(Payload::from(vec![7; 10]).packed(), None);
    }
}
