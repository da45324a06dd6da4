//! One buffer of immutable bytes that carries its own accounting.

use crate::account::{OVERHEAD, Reservation, SLAB_BYTES, footprint};
use std::ops::Deref;
use std::sync::Arc;

/// What a processor's cache holds as one.
const LINE: usize = 64;

struct Body {
    /// The frame's bytes from `start` on.
    bytes: Vec<u8>,
    start: usize,
    room: Reservation,
}

/// A pinned frame: its bytes stay as they are for as long as it, or a clone of it, lives.
#[derive(Clone)]
pub struct Frame(Arc<Body>);

impl Frame {
    pub(crate) fn new(mut bytes: Vec<u8>, room: Reservation) -> Self {
        if places(bytes.len()) > 1 {
            return Self::copied(&bytes, room);
        }
        bytes.shrink_to_fit();
        Self::of((bytes, 0), room)
    }

    /// A frame of the same bytes.
    pub(crate) fn copied(bytes: &[u8], room: Reservation) -> Self {
        Self::of(staggered(bytes), room)
    }

    fn of((bytes, start): (Vec<u8>, usize), room: Reservation) -> Self {
        let counted = room.bytes() >= (bytes.len() - start) as u64;
        assert!(counted, "a frame's bytes are counted before they are there");
        Self(Arc::new(Body { bytes, start, room }))
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
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0.bytes[self.0.start..]
    }
}

/// The same bytes from some place on, in no more memory: frames that all began with a page of memory
/// would have their first bytes, which every search reads, in the few lines of a processor's cache that
/// beginnings of pages share.
fn staggered(bytes: &[u8]) -> (Vec<u8>, usize) {
    let places = places(bytes.len());
    if places == 1 {
        return (bytes.to_vec(), 0);
    }
    let room = footprint(bytes.len());
    let mut moved: Vec<u8> = Vec::with_capacity(room);
    // Neighbours in memory lie apart in what they share.
    let start = (moved.as_ptr().addr() / SLAB_BYTES).wrapping_mul(7) % places * LINE;
    moved.resize(start, 0);
    moved.extend_from_slice(bytes);
    debug_assert!(moved.len() <= room, "a frame takes no more than it is charged for");
    (moved, start)
}

/// At how many places so many bytes may begin, in the memory that they take anyway.
fn places(length: usize) -> usize {
    if length < SLAB_BYTES { 1 } else { (footprint(length) - length) / LINE + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staggered_bytes_are_the_same_in_no_more_memory() {
        for length in [
            0,
            1,
            100,
            SLAB_BYTES - 1,
            SLAB_BYTES,
            SLAB_BYTES + 1,
            SLAB_BYTES + 4000,
            20_480,
            20_481,
            300_000,
        ] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 31) as u8).collect();
            let (moved, start) = staggered(&bytes);
            assert_eq!(moved[start..], bytes, "{length}");
            assert!(footprint(moved.len()) == footprint(length), "{length} at {start}");
            assert!(moved.capacity() <= footprint(length) || length < SLAB_BYTES, "{length}");
        }
    }

    #[test]
    fn large_frames_begin_at_many_places() {
        let frames: Vec<_> = (0..64).map(|_| staggered(&vec![1; SLAB_BYTES + 1])).collect();
        let places: std::collections::BTreeSet<usize> = frames.iter().map(|(_, at)| *at).collect();
        assert!(places.len() > 8, "{places:?}");
    }
}
