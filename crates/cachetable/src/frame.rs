//! One buffer of immutable bytes that carries its own accounting.

use crate::account::{OVERHEAD, Reservation, footprint};
use std::ops::Deref;
use std::sync::Arc;

struct Body {
    bytes: Box<[u8]>,
    room: Reservation,
}

/// A pinned frame: its bytes stay as they are for as long as it, or a clone of it, lives.
#[derive(Clone)]
pub struct Frame(Arc<Body>);

impl Frame {
    pub(crate) fn new(bytes: Vec<u8>, room: Reservation) -> Self {
        Self(Arc::new(Body { bytes: bytes.into_boxed_slice(), room }))
    }

    /// What a frame of so many bytes takes of the bound.
    pub(crate) fn cost(length: usize) -> u64 {
        (footprint(length) + OVERHEAD) as u64
    }

    /// What it takes of the bound.
    pub(crate) fn charge(&self) -> u64 {
        self.0.room.bytes()
    }

    /// True where only the holder asks: under the shard's lock, that is nobody but the table.
    pub(crate) fn is_unpinned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Deref for Frame {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}
