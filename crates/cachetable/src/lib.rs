//! Frames in exactly bounded memory: immutable byte buffers found by segment and page.
//!
//! Always true:
//! 1. `used + reserved <= capacity` whenever a frame is admitted: a miss evicts before it
//!    allocates. What cannot be evicted because it is pinned stays counted until it is dropped.
//! 2. Frames are clean copies of immutable bytes: eviction never writes.
//! 3. Where nothing can be evicted, a read goes on with a private buffer that is counted apart
//!    ([`Stats::bypass_bytes`]) and never enters the table.
//!
//! Lock order: one shard at a time, nothing else inside.
#![forbid(unsafe_code)]

mod frame;
mod shard;
#[cfg(test)]
mod tests;

pub use frame::{Frame, Reservation};

use frame::{Body, Shared};
use shard::Shard;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Enough that two dozen threads seldom meet in one.
const SHARDS: usize = 64;

/// Names a frame: a segment, which is never reused while frames of it are cached, and a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameKey {
    /// The segment's id.
    pub segment: u64,
    /// The page within the segment, or a number the owner chose for its metadata.
    pub page: u32,
}

/// How long an unused frame stays: rounds of the clock hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rank {
    /// Pages of entries.
    Page,
    /// Block indexes and filters: one of them saves a read of many pages' searches.
    Index,
}

impl Rank {
    fn rounds(self) -> u8 {
        match self {
            Rank::Page => 1,
            Rank::Index => 3,
        }
    }
}

/// What the table counts. Monotone, except the byte figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// The bound.
    pub capacity_bytes: u64,
    /// Bytes of frames, pinned ones that left the table included.
    pub used_bytes: u64,
    /// Bytes set aside by [`CacheTable::reserve`].
    pub reserved_bytes: u64,
    /// Bytes of private buffers that found no room.
    pub bypass_bytes: u64,
    /// Frames in the table.
    pub frames: u64,
    /// Lookups that found their frame.
    pub hits: u64,
    /// Lookups that had to load.
    pub misses: u64,
    /// Frames evicted.
    pub evictions: u64,
    /// Bytes evicted.
    pub evicted_bytes: u64,
    /// Loads that found no room because everything was pinned.
    pub bypasses: u64,
}

/// The table; shared by every tree of an engine.
pub struct CacheTable {
    shards: Box<[Shard]>,
    shared: Arc<Shared>,
    /// The shard the next eviction starts at.
    hand: AtomicUsize,
}

impl CacheTable {
    /// A table whose frames and reservations together take at most `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            shared: Arc::new(Shared::new(capacity)),
            hand: AtomicUsize::new(0),
        }
    }

    /// The frame of `key`, if it is in memory. Does no I/O.
    pub fn get(&self, key: FrameKey) -> Option<Frame> {
        let found = self.shard(key).get(key);
        self.shared.count_lookup(found.is_some());
        found
    }

    /// Loads the frame of `key`, which [`CacheTable::get`] did not find. Room for `length` bytes is
    /// made before `load` allocates them; `load` may do I/O, no lock is held meanwhile. Two
    /// threads that miss at once both load, and the first one's frame stays.
    pub fn load<E>(
        &self,
        key: FrameKey,
        length: usize,
        rank: Rank,
        load: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Frame, E> {
        let room = self.make_room(length);
        let bytes = load()?.into_boxed_slice();
        match room {
            // More bytes than room was made for is a damaged length the loader let pass.
            Some(room) if bytes.len() <= length => {
                Ok(self.shard(key).insert(key, Body::frame(bytes, room), rank.rounds()))
            }
            _ => Ok(Body::bypass(bytes, &self.shared)),
        }
    }

    /// A frame outside the table that stays until its owner drops it, set aside like
    /// [`CacheTable::reserve`].
    pub fn resident(&self, bytes: Box<[u8]>) -> Frame {
        let room = self.reserve((bytes.len() + frame::OVERHEAD) as u64);
        Body::frame(bytes, room)
    }

    /// Sets `bytes` of the capacity aside for memory held elsewhere (memtables, nodes, filters).
    /// Evicts to make room, but never refuses: the caller's memory exists already.
    pub fn reserve(&self, bytes: u64) -> Reservation {
        let reservation = Reservation::new(bytes, &self.shared);
        self.shrink();
        reservation
    }

    /// Changes the bound; evicts at once where it shrank.
    pub fn set_capacity(&self, capacity: u64) {
        self.shared.set_capacity(capacity);
        self.shrink();
    }

    /// Forgets pages `0..pages` of a segment that is no more.
    pub fn forget(&self, segment: u64, pages: u32) {
        for page in 0..pages {
            let key = FrameKey { segment, page };
            self.shard(key).remove(key);
        }
    }

    /// The counters as they are now.
    pub fn stats(&self) -> Stats {
        let frames = self.shards.iter().map(Shard::len).sum();
        self.shared.stats(frames)
    }

    fn shard(&self, key: FrameKey) -> &Shard {
        &self.shards[(shard::mix(key) >> 48) as usize % SHARDS]
    }

    /// Admits `length` bytes, evicting as needed; `None` where everything is pinned.
    fn make_room(&self, length: usize) -> Option<Reservation> {
        let bytes = (length + frame::OVERHEAD) as u64;
        loop {
            if let Some(room) = Reservation::within_bound(bytes, &self.shared) {
                return Some(room);
            }
            if !self.evict(bytes) {
                return None;
            }
        }
    }

    fn shrink(&self) {
        while self.shared.excess() > 0 {
            if !self.evict(self.shared.excess()) {
                return;
            }
        }
    }

    /// Evicts about `wanted` bytes; false where no shard had anything to give.
    fn evict(&self, wanted: u64) -> bool {
        let start = self.hand.fetch_add(1, Ordering::Relaxed);
        let mut freed = 0;
        for step in 0..SHARDS {
            freed += self.shards[(start + step) % SHARDS].evict(wanted - freed, &self.shared);
            if freed >= wanted {
                break;
            }
        }
        freed > 0
    }
}
