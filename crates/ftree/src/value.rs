//! A value as a read returns it: bytes that stay valid without a copy where that pays.

use crate::memtable::MemTable;
use cachetable::Frame;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Values up to here are copied: a copy costs less than the shared counter of a pin, and a value
/// that is kept long must not keep a whole memtable or frame.
const COPY_BYTES: usize = 1024;

/// Owned bytes of one value; derefs to a slice. Large values pin the frame or memtable they are
/// in: drop them, or copy them with [`Value::into_vec`], before keeping them long.
pub struct Value(Inner);

enum Inner {
    Owned(Box<[u8]>),
    Frame(Frame, Range<usize>),
    Memory { bytes: *const [u8], _table: Arc<MemTable> },
}

// SAFETY: the pointer is to bytes that never change and that the `Arc` beside it keeps alive.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    /// Bytes of its own.
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        Self(Inner::Owned(bytes.into_boxed_slice()))
    }

    /// `bytes` lie in `table`'s memory.
    pub(crate) fn in_memory(table: &Arc<MemTable>, bytes: &[u8]) -> Self {
        if bytes.len() <= COPY_BYTES {
            return Self(Inner::Owned(bytes.into()));
        }
        Self(Inner::Memory { bytes: std::ptr::from_ref(bytes), _table: Arc::clone(table) })
    }

    /// `range` lies within `frame`.
    pub(crate) fn in_frame(frame: Frame, range: Range<usize>) -> Self {
        if range.len() <= COPY_BYTES {
            return Self(Inner::Owned(frame[range].into()));
        }
        Self(Inner::Frame(frame, range))
    }

    /// The value without its first `count` bytes, of which it has at least so many.
    pub(crate) fn behind(self, count: usize) -> Self {
        Self(match self.0 {
            Inner::Owned(bytes) => Inner::Owned(bytes[count..].into()),
            Inner::Frame(frame, range) => Inner::Frame(frame, range.start + count..range.end),
            Inner::Memory { bytes, _table: table } => {
                // SAFETY: as in `deref`.
                let bytes = unsafe { &(&*bytes)[count..] };
                Inner::Memory { bytes: std::ptr::from_ref(bytes), _table: table }
            }
        })
    }

    /// The same bytes, in memory that is theirs alone.
    #[must_use]
    pub fn detached(self) -> Self {
        Self(match self.0 {
            owned @ Inner::Owned(_) => owned,
            pinned => Inner::Owned(Self(pinned).to_vec().into_boxed_slice()),
        })
    }

    /// The bytes on their own.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Inner::Owned(bytes) => bytes.into_vec(),
            _ => self.to_vec(),
        }
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Owned(bytes) => bytes,
            Inner::Frame(frame, range) => &frame[range.clone()],
            // SAFETY: `in_memory` took the pointer from the table's arena, which `_table` keeps.
            Inner::Memory { bytes, .. } => unsafe { &**bytes },
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Value({} bytes)", self.len())
    }
}
