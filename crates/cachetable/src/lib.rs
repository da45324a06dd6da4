//! One bound over an engine's memory, and the pages that share it: immutable byte buffers found by
//! segment and page.
//!
//! Eviction has two stages: a page that is not used loses its frame and stays compressed; not used
//! again it goes. A page met by a long scan goes first, so that a scan does not push out what is
//! used.
//!
//! Always true:
//! 1. Everything an engine holds is counted in one account of named [`MemoryKind`]s. A frame
//!    is admitted only where the total stays within the capacity: a miss evicts before it
//!    allocates. What cannot be evicted because it is pinned stays counted until it is dropped.
//! 2. Frames are clean copies of immutable bytes: eviction never writes.
//! 3. Where nothing can be evicted, a read goes on with a private buffer ([`MemoryKind::Bypass`]) that
//!    never enters the table; a [`Reservation`] is never refused.
//!
//! Lock order: the writing of a large value, the queue of scanned pages,
//! then one shard at a time, nothing else inside.
#![forbid(unsafe_code)]

mod account;
mod decoded;
mod frame;
mod large_loads;
mod shard;
mod stats;
#[cfg(test)]
mod tests;

pub use account::{MemoryKind, Parts, Reservation};
pub use frame::Frame;
pub use stats::{Amount, Evictions, Level, Misses, Stats};

use account::Account;
use decoded::Decoded;
use large_loads::LargeLoads;
use os::sync::Mutex;
use shard::{ScanEviction, Shard};
use stats::Counters;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Enough that two dozen threads seldom meet in one.
const SHARDS: usize = 64;
/// Shorter pages than this are not expected: bounds the queue of scanned ones.
const SHORT_PAGE: u64 = 1024;

/// Of pages of this size and more some are loaded at a time, and what their stored and decoded bytes take
/// meanwhile is counted; that of smaller ones is in no account.
const LARGE_PAGE: usize = 1 << 20;

/// Large pages that are loaded at a time take this part of the capacity, or are one.
const LARGE_LOADS_SHARE: u64 = 8;

/// Names a frame: a segment, which is never reused while frames of it are cached, and a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameKey {
    /// The segment's id.
    pub segment: u64,
    /// The page within the segment, or a number the owner chose for its metadata.
    pub page: u32,
}

/// Which frames stay longer unused, in rounds of the clock hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictionPriority {
    /// Pages of entries.
    Page,
    /// Block indexes and filters: one of them saves a read of many pages' searches.
    Index,
}

impl EvictionPriority {
    fn rounds(self) -> u8 {
        match self {
            EvictionPriority::Page => 1,
            EvictionPriority::Index => 3,
        }
    }
}

/// Why a page is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Somebody asked for it.
    Demand,
    /// Somebody will ask for it.
    Prefetch,
    /// A long scan passes by, or it was just written: it goes before everything else, unless
    /// somebody else uses it.
    Scan,
}

/// What is known of a page before it is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageInfo {
    /// Its decoded length in bytes.
    pub raw_len: usize,
    /// How long it stays.
    pub priority: EvictionPriority,
    /// Which level of the tree it is of.
    pub level: Level,
    /// Why it is loaded.
    pub access: Access,
}

/// Brings a page into memory.
pub trait Loader {
    /// What can go wrong.
    type Error;

    /// The page's stored bytes. May do I/O.
    fn read(&self) -> Result<Cow<'_, [u8]>, Self::Error>;

    /// Makes `bytes`, which hold anything, the page's decoded bytes. Checks them: what is there then is handed
    /// out as it is.
    fn decode(&self, stored: &[u8], bytes: &mut Vec<u8>) -> Result<(), Self::Error>;

    /// A clock, in microseconds.
    fn now_us(&self) -> u64;
}

/// The table; shared by every tree of an engine.
pub struct CacheTable {
    shards: Box<[Shard]>,
    account: Arc<Account>,
    counters: Counters,
    /// Pages scans left behind, oldest first; some are gone or were used again since.
    scanned: Mutex<VecDeque<FrameKey>>,
    /// Large pages that are being read and decoded, which takes twice their size beside the frame.
    loading_large: LargeLoads,
    /// Held while a large value is compressed and written, which takes twice its size beside it.
    writing_large: Mutex<()>,
    /// Pages stay compressed when their frames go.
    keeps_compressed: AtomicBool,
    /// The shard the next eviction starts at.
    hand: AtomicUsize,
}

impl CacheTable {
    /// A table whose frames and reservations together take at most `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            account: Account::new(capacity),
            counters: Counters::default(),
            scanned: Mutex::default(),
            loading_large: LargeLoads::default(),
            writing_large: Mutex::default(),
            keeps_compressed: AtomicBool::new(false),
            hand: AtomicUsize::new(0),
        }
    }

    /// Whether pages read from now on stay compressed when their frames go. At first they do not.
    pub fn set_keeps_compressed(&self, compressing: bool) {
        self.keeps_compressed.store(compressing, Ordering::Relaxed);
    }

    /// What [`CacheTable::set_keeps_compressed`] was told last.
    pub fn keeps_compressed(&self) -> bool {
        self.keeps_compressed.load(Ordering::Relaxed)
    }

    /// The frame of `key`, if it is in memory. Does no I/O.
    pub fn get(&self, key: FrameKey) -> Option<Frame> {
        self.shard(key).get(key, false)
    }

    /// The same for a walk over many pages: what only walks come by goes first all the same.
    pub fn get_passing(&self, key: FrameKey) -> Option<Frame> {
        self.shard(key).get(key, true)
    }

    /// Whether [`CacheTable::get`] would find the frame. Uses and counts nothing.
    pub fn contains(&self, key: FrameKey) -> bool {
        self.shard(key).contains(key)
    }

    /// Whether a load of the frame would not read the disk: the page is here, decoded or compressed. Uses and counts nothing.
    pub fn is_in_memory(&self, key: FrameKey) -> bool {
        self.shard(key).is_in_memory(key)
    }

    /// Loads the frame of `key`, which [`CacheTable::get`] did not find: from the page's compressed
    /// bytes, or from the disk. Room is made before the loader allocates; it may do I/O, no lock is
    /// held meanwhile. Two threads that miss at once both load, and the first one's frame stays; a large page is
    /// loaded by one of them.
    pub fn load<L: Loader>(
        &self,
        key: FrameKey,
        page: PageInfo,
        loader: &L,
    ) -> Result<Frame, L::Error> {
        let started = loader.now_us();
        let shard = self.shard(key);
        let large = page.raw_len >= LARGE_PAGE;
        let _within_their_bound = large.then(|| {
            let most = self.capacity() / LARGE_LOADS_SHARE;
            self.loading_large.begin(key, 3 * page.raw_len as u64, most)
        });
        if large && let Some(frame) = shard.get(key, false) {
            return Ok(frame);
        }
        let kept = shard.compressed(key);
        let from_disk = kept.is_none();
        // The frame's room first: what passes must not keep the page out of the table.
        let room = self.make_room(MemoryKind::Frames, page.raw_len);
        let _while_decoding =
            large.then(|| self.reserve(MemoryKind::Buffers, 2 * page.raw_len as u64));
        let mut decoded = Decoded::for_page(page.raw_len);
        let compressed = if let Some(kept) = kept {
            loader.decode(&kept, &mut decoded)?;
            Some(kept)
        } else {
            let stored = loader.read()?;
            loader.decode(&stored, &mut decoded)?;
            self.keep(page, stored)
        };
        let took = loader.now_us().saturating_sub(started);
        self.counters.missed(from_disk, took);
        if from_disk {
            os::Waits::add(os::Wait::DiskRead, Duration::from_micros(took));
        }
        if page.access == Access::Prefetch {
            self.counters.prefetches.fetch_add(1, Ordering::Relaxed);
        }
        // More bytes than room was made for is a damaged length the loader let pass.
        let Some(room) = room.filter(|_| decoded.len() <= page.raw_len) else {
            self.counters.bypasses.fetch_add(1, Ordering::Relaxed);
            return Ok(self.outside(MemoryKind::Bypass, decoded.take()));
        };
        let frame = shard.insert(key, &page, decoded.frame(room), compressed);
        if page.access == Access::Scan {
            self.pass_by(key);
        }
        Ok(frame)
    }

    /// Takes in a page that was just written, so that the next reader does not decode it again.
    /// Where there is no room left it `may_evict` others; otherwise it stays out.
    pub fn admit(&self, key: FrameKey, page: PageInfo, bytes: &[u8], may_evict: bool) {
        let room = if may_evict {
            self.make_room(MemoryKind::Frames, bytes.len())
        } else {
            Reservation::within_bound(MemoryKind::Frames, Frame::cost(bytes.len()), &self.account)
        };
        if let Some(room) = room {
            self.shard(key).insert(key, &page, Frame::new(bytes.to_vec(), room), None);
            if page.access == Access::Scan {
                self.pass_by(key);
            }
        }
    }

    /// A frame outside the table that stays until its owner drops it, counted as `kind`.
    pub fn frame_outside(&self, kind: MemoryKind, bytes: Vec<u8>) -> Frame {
        let frame = self.outside(kind, bytes);
        self.shrink();
        frame
    }

    /// Sets `bytes` of the capacity aside for memory held elsewhere. Evicts to make room first, but
    /// never refuses: the caller's memory may exist already.
    pub fn reserve(&self, kind: MemoryKind, bytes: u64) -> Reservation {
        let within = self.room_for(kind, bytes);
        within.unwrap_or_else(|| Reservation::new(kind, bytes, &self.account))
    }

    /// Runs `write`, which takes so many bytes beside the value that it writes. Large ones one at a time:
    /// several at once would take a small cache's bound several times.
    pub fn while_writing<T>(&self, bytes: u64, write: impl FnOnce() -> T) -> T {
        let large = bytes >= LARGE_PAGE as u64;
        let _one_at_a_time = large.then(|| self.writing_large.lock());
        let _memory = self.reserve(MemoryKind::Buffers, bytes);
        debug_assert!(
            self.held(MemoryKind::Buffers) >= bytes,
            "memory is counted before it is used"
        );
        write()
    }

    /// Changes what a reservation holds. Evicts to make room, but never refuses.
    pub fn resize(&self, reservation: &mut Reservation, bytes: u64) {
        let grows = bytes > reservation.bytes();
        reservation.set(bytes);
        if grows {
            self.shrink();
        }
    }

    /// Reports what a kind of memory that keeps its own count holds by now. Evicts to make room.
    pub fn report_held(&self, kind: MemoryKind, bytes: u64) {
        self.account.sample(kind, bytes);
        self.shrink();
    }

    /// Counts a read ahead of which the table saw nothing.
    pub fn count_prefetch(&self, used: bool) {
        self.counters.prefetched_outside(used);
    }

    /// What memory of a kind is held.
    pub fn held(&self, kind: MemoryKind) -> u64 {
        self.account.held(kind)
    }

    /// What is held of each kind.
    pub fn parts(&self) -> Parts {
        self.account.parts()
    }

    /// The bound.
    pub fn capacity(&self) -> u64 {
        self.account.capacity()
    }

    /// Changes the bound; evicts at once where it shrank.
    pub fn set_capacity(&self, capacity: u64) {
        self.account.set_capacity(capacity);
        self.shrink();
    }

    /// Microseconds that those who wanted a page have waited for the disk, all together.
    pub fn waited_for_disk(&self) -> u64 {
        self.counters.waited_for_disk()
    }

    /// Forgets pages `0..pages` of a segment that is no more.
    pub fn forget(&self, segment: u64, pages: u32) {
        for page in 0..pages {
            let key = FrameKey { segment, page };
            self.shard(key).remove(key, &self.counters);
        }
    }

    /// The counters as they are now. Walks the slots.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            capacity_bytes: self.capacity(),
            parts: self.account.parts(),
            ..self.counters.read()
        };
        for shard in &self.shards {
            let [frames, compressed, hits, prefetches_used] = shard.figures();
            stats.frames += frames;
            stats.compressed += compressed;
            stats.hits += hits;
            stats.prefetches_used += prefetches_used;
        }
        stats
    }

    fn shard(&self, key: FrameKey) -> &Shard {
        &self.shards[(shard::mix(key) >> 48) as usize % SHARDS]
    }

    fn outside(&self, kind: MemoryKind, bytes: Vec<u8>) -> Frame {
        let room = Reservation::new(kind, Frame::cost(bytes.len()), &self.account);
        Frame::new(bytes, room)
    }

    /// Keeps the stored bytes of a page that was read, where that is wanted and pays: they take a
    /// quarter less than the frame, or lower.
    fn keep(&self, page: PageInfo, stored: Cow<'_, [u8]>) -> Option<Frame> {
        let wanted = self.keeps_compressed.load(Ordering::Relaxed)
            && page.priority == EvictionPriority::Page
            && page.access != Access::Scan
            && stored.len() / 3 <= page.raw_len / 4;
        let room =
            wanted.then(|| self.make_room(MemoryKind::Compressed, stored.len())).flatten()?;
        Some(Frame::new(stored.into_owned(), room))
    }

    /// Admits `length` bytes, evicting as needed; `None` where everything is pinned.
    fn make_room(&self, kind: MemoryKind, length: usize) -> Option<Reservation> {
        self.room_for(kind, Frame::cost(length))
    }

    /// Evicts until there is room; `None` where nothing has anything left to give.
    fn room_for(&self, kind: MemoryKind, bytes: u64) -> Option<Reservation> {
        loop {
            if let Some(room) = Reservation::within_bound(kind, bytes, &self.account) {
                return Some(room);
            }
            if !self.evict(bytes) {
                return None;
            }
        }
    }

    fn shrink(&self) {
        while self.account.excess() > 0 {
            if !self.evict(self.account.excess()) {
                return;
            }
        }
    }

    /// Evicts about `wanted` bytes; false where nothing had anything to give.
    fn evict(&self, wanted: u64) -> bool {
        let mut freed = self.evict_scanned(wanted);
        for _ in 0..SHARDS * shard::MOST_ROUNDS {
            if freed >= wanted {
                break;
            }
            // One round of one shard after the other: all hands keep about the same pace.
            let next = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            freed += self.shards[next].evict(wanted - freed, &self.counters);
        }
        freed > 0
    }

    /// Evicts what scans left behind, oldest first; says how many bytes went.
    fn evict_scanned(&self, wanted: u64) -> u64 {
        let mut freed = 0;
        while freed < wanted {
            let mut once = self.scanned.lock();
            let Some(key) = once.pop_front() else { break };
            match self.shard(key).evict_scanned(key, &self.counters) {
                ScanEviction::Evicted(bytes) => freed += bytes,
                ScanEviction::Stale => {}
                ScanEviction::Pinned => {
                    // The scan is at it; the others are about as young.
                    once.push_back(key);
                    break;
                }
            }
        }
        freed
    }

    /// Notes a page of a long scan.
    fn pass_by(&self, key: FrameKey) {
        let mut once = self.scanned.lock();
        let before = once.capacity();
        once.push_back(key);
        if once.len() as u64 > self.capacity() / SHORT_PAGE + SHARDS as u64 {
            once.retain(|key| self.shard(*key).contains(*key));
            let kept = once.len() * 2;
            once.shrink_to(kept);
        }
        if once.capacity() != before {
            let bytes = once.capacity() * size_of::<FrameKey>();
            self.account.sample(MemoryKind::Scanned, bytes as u64);
        }
    }
}
