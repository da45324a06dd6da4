//! One buffer of immutable bytes, and the accounting every buffer carries with it.
//!
//! Always true: a byte is counted before it is allocated and until it is freed, whoever frees it.

use crate::Stats;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a frame costs beside its bytes: its header, its slot and its place in the map.
pub(crate) const OVERHEAD: usize = 128;

/// Counters shared by the table and everything that outlives its stay in the table.
pub(crate) struct Shared {
    capacity: AtomicU64,
    used: AtomicU64,
    reserved: AtomicU64,
    bypass: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    evicted: AtomicU64,
    bypasses: AtomicU64,
}

impl Shared {
    pub(crate) fn new(capacity: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            capacity: AtomicU64::new(capacity),
            used: zero(),
            reserved: zero(),
            bypass: zero(),
            hits: zero(),
            misses: zero(),
            evictions: zero(),
            evicted: zero(),
            bypasses: zero(),
        }
    }

    pub(crate) fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    /// How far frames and reservations are over the bound.
    pub(crate) fn excess(&self) -> u64 {
        let taken = self.used.load(Ordering::Relaxed) + self.reserved.load(Ordering::Relaxed);
        taken.saturating_sub(self.capacity.load(Ordering::Relaxed))
    }

    pub(crate) fn count_lookup(&self, hit: bool) {
        let counter = if hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_eviction(&self, bytes: u64) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
        self.evicted.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self, frames: u64) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            capacity_bytes: read(&self.capacity),
            used_bytes: read(&self.used),
            reserved_bytes: read(&self.reserved),
            bypass_bytes: read(&self.bypass),
            frames,
            hits: read(&self.hits),
            misses: read(&self.misses),
            evictions: read(&self.evictions),
            evicted_bytes: read(&self.evicted),
            bypasses: read(&self.bypasses),
        }
    }
}

#[derive(Clone, Copy)]
enum Account {
    Used,
    Reserved,
    Bypass,
}

/// Bytes of the bound that are taken; given back when dropped.
pub struct Reservation {
    bytes: u64,
    account: Account,
    shared: Arc<Shared>,
}

impl Reservation {
    /// Takes `bytes`, over the bound or not.
    pub(crate) fn new(bytes: u64, shared: &Arc<Shared>) -> Self {
        Self::taken(bytes, Account::Reserved, shared)
    }

    /// Takes `bytes` for a frame, only where they fit.
    pub(crate) fn within_bound(bytes: u64, shared: &Arc<Shared>) -> Option<Self> {
        let capacity = shared.capacity.load(Ordering::Relaxed);
        let fits = |used: u64| {
            let after = used + bytes;
            (after + shared.reserved.load(Ordering::Relaxed) <= capacity).then_some(after)
        };
        shared.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Self { bytes, account: Account::Used, shared: Arc::clone(shared) })
    }

    /// What it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn taken(bytes: u64, account: Account, shared: &Arc<Shared>) -> Self {
        let taken = Self { bytes, account, shared: Arc::clone(shared) };
        taken.counter().fetch_add(bytes, Ordering::Relaxed);
        taken
    }

    fn counter(&self) -> &AtomicU64 {
        match self.account {
            Account::Used => &self.shared.used,
            Account::Reserved => &self.shared.reserved,
            Account::Bypass => &self.shared.bypass,
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.counter().fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

pub(crate) struct Body {
    bytes: Box<[u8]>,
    room: Reservation,
}

impl Body {
    pub(crate) fn frame(bytes: Box<[u8]>, room: Reservation) -> Frame {
        Frame(Arc::new(Self { bytes, room }))
    }

    /// A frame that never enters the table because nothing could be evicted for it.
    pub(crate) fn bypass(bytes: Box<[u8]>, shared: &Arc<Shared>) -> Frame {
        shared.bypasses.fetch_add(1, Ordering::Relaxed);
        let size = (bytes.len() + OVERHEAD) as u64;
        Self::frame(bytes, Reservation::taken(size, Account::Bypass, shared))
    }
}

/// A pinned frame: its bytes stay as they are for as long as it, or a clone of it, lives.
#[derive(Clone)]
pub struct Frame(Arc<Body>);

impl Frame {
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
