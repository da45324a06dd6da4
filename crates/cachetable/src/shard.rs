//! One part of the table: a map and a clock over its slots, under one short lock.
//!
//! A slot's page is there as a frame, compressed, or both. What the hand does to it:
//!
//! | the slot has | was used | was not used |
//! |---|---|---|
//! | a frame | loses a round | is evicted |
//! | a frame and the compressed page | loses a round; after `HOT_ROUNDS` in a row the compressed page is dropped | the frame is dropped; the compressed page gets `COMPRESSED_ROUNDS` |
//! | the compressed page | | loses a round, then is evicted |
//!
//! Always true: the map and the slots name each other; a slot has a frame or a compressed page;
//! pins are taken under the lock, so a frame that is unpinned under the exclusive lock can go.

use crate::frame::Frame;
use crate::stats::{Counters, Eviction, Level};
use crate::{Access, FrameKey, PageInfo};
use os::sync::RwLock;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Rounds a page that is only there compressed survives: it takes a third of the memory, and 3, 5
/// and 7 rounds were tried (docs/adr, two stages of eviction).
const COMPRESSED_ROUNDS: u8 = 5;
/// A frame used in so many rounds on end is not going to be evicted soon: its compressed page is
/// dropped.
const HOT_ROUNDS: u8 = 3;
/// Rounds after which every slot that is not pinned is gone.
pub(crate) const MOST_ROUNDS: usize = COMPRESSED_ROUNDS as usize + 5;
/// Set in a slot's rounds: loaded ahead, and not yet asked for.
const PREFETCHED: u8 = 0x80;

/// Spreads a key over 64 bits: multiply and fold, twice.
pub(crate) fn mix(key: FrameKey) -> u64 {
    let word = key.segment.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(key.page);
    let word = (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ (word >> 32)
}

/// Passes on what `mix`-like arithmetic made of the key's two words.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        let word = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = word ^ (word >> 29);
    }
}

struct Slot {
    key: FrameKey,
    frame: Option<Frame>,
    compressed: Option<Frame>,
    /// Rounds of the hand it still survives, and [`PREFETCHED`].
    rounds: AtomicU8,
    most_rounds: u8,
    /// Rounds on end in which it was used.
    rounds_in_use: u8,
    /// Loaded by a long scan, and not used by anybody else yet.
    is_scan: bool,
    level: Level,
}

/// What one step of the clock hand did to a slot.
enum SweepOutcome {
    Kept,
    /// It gave this back, a frame or its compressed page, and stays in the table.
    Shrunk(Frame, Option<Eviction>),
    Evicted,
}

impl Slot {
    fn sweep(&mut self) -> SweepOutcome {
        let has_page = self.frame.is_some() || self.compressed.is_some();
        assert!(has_page, "a slot has a frame or a compressed page");
        let rounds = self.rounds.get_mut();
        let used = *rounds & !PREFETCHED;
        if used > 0 {
            *rounds -= 1;
            self.rounds_in_use = self.rounds_in_use.saturating_add(1);
            if self.rounds_in_use >= HOT_ROUNDS && self.frame.is_some() {
                return match self.compressed.take_if(|compressed| compressed.is_unpinned()) {
                    Some(compressed) => SweepOutcome::Shrunk(compressed, None),
                    None => SweepOutcome::Kept,
                };
            }
            return SweepOutcome::Kept;
        }
        self.rounds_in_use = 0;
        let pinned = |frame: &Option<Frame>| frame.as_ref().is_some_and(|f| !f.is_unpinned());
        if pinned(&self.frame) || pinned(&self.compressed) {
            return SweepOutcome::Kept;
        }
        if self.compressed.is_some()
            && let Some(frame) = self.frame.take()
        {
            *rounds = COMPRESSED_ROUNDS | *rounds & PREFETCHED;
            return SweepOutcome::Shrunk(frame, Some(Eviction::Partial));
        }
        SweepOutcome::Evicted
    }

    fn charge(&self) -> u64 {
        let charge = |frame: &Option<Frame>| frame.as_ref().map_or(0, Frame::charge);
        charge(&self.frame) + charge(&self.compressed)
    }

    fn is_unused_prefetch(&self) -> bool {
        self.rounds.load(Ordering::Relaxed) & PREFETCHED != 0
    }
}

#[derive(Default)]
struct Content {
    map: HashMap<FrameKey, usize, BuildHasherDefault<KeyHasher>>,
    slots: Vec<Slot>,
    hand: usize,
}

/// On cache lines of its own: a hit writes its lock and its counter.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Shard {
    content: RwLock<Content>,
    hits: AtomicU64,
    prefetches_used: AtomicU64,
}

/// What became of a page a scan left behind.
pub(crate) enum ScanEviction {
    /// It is evicted, and so many bytes with it.
    Evicted(u64),
    /// It is in use right now.
    Pinned,
    /// It is gone, or somebody else came to use it.
    Stale,
}

impl Shard {
    /// `passing` by, a scan does not make another scan's page one that is used.
    pub(crate) fn get(&self, key: FrameKey, passing: bool) -> Option<Frame> {
        let content = self.content.read();
        let slot = &content.slots[*content.map.get(&key)?];
        debug_assert_eq!(slot.key, key, "the map and the slots name each other");
        let frame = slot.frame.clone()?;
        // Stored only where it changes, so that hits on a hot frame share its cache line.
        let rounds = slot.rounds.load(Ordering::Relaxed);
        if rounds != slot.most_rounds && !(passing && slot.is_scan) {
            if rounds & PREFETCHED == 0 {
                slot.rounds.store(slot.most_rounds, Ordering::Relaxed);
            } else {
                // What was loaded ahead is used now for the first time.
                slot.rounds.store(rounds & !PREFETCHED, Ordering::Relaxed);
                self.prefetches_used.fetch_add(1, Ordering::Relaxed);
            }
        }
        drop(content);
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(frame)
    }

    /// The compressed page, pinned.
    pub(crate) fn compressed(&self, key: FrameKey) -> Option<Frame> {
        let content = self.content.read();
        let slot = &content.slots[*content.map.get(&key)?];
        slot.compressed.clone()
    }

    pub(crate) fn contains(&self, key: FrameKey) -> bool {
        let content = self.content.read();
        content.map.get(&key).is_some_and(|at| content.slots[*at].frame.is_some())
    }

    pub(crate) fn is_in_memory(&self, key: FrameKey) -> bool {
        let content = self.content.read();
        let at = content.map.get(&key);
        at.is_some_and(|at| {
            let slot = &content.slots[*at];
            slot.frame.is_some() || slot.compressed.is_some()
        })
    }

    /// Adds a frame; where another thread was first, its frame wins and ours goes.
    pub(crate) fn insert(
        &self,
        key: FrameKey,
        page: &PageInfo,
        frame: Frame,
        compressed: Option<Frame>,
    ) -> Frame {
        let mut content = self.content.write();
        let content = &mut *content;
        let most_rounds = page.priority.rounds();
        // New frames start one round short: what is read once goes before what was used again.
        let mut rounds = most_rounds - 1;
        if let Some(at) = content.map.get(&key) {
            let slot = &mut content.slots[*at];
            if let Some(first) = &slot.frame {
                return first.clone();
            }
            slot.frame = Some(frame.clone());
            if slot.is_unused_prefetch() {
                self.prefetches_used.fetch_add(1, Ordering::Relaxed);
            }
            slot.rounds = AtomicU8::new(rounds);
            return frame;
        }
        if page.access == Access::Prefetch {
            rounds |= PREFETCHED;
        }
        let slot = Slot {
            key,
            frame: Some(frame.clone()),
            compressed,
            rounds: AtomicU8::new(rounds),
            most_rounds,
            rounds_in_use: 0,
            is_scan: page.access == Access::Scan,
            level: page.level,
        };
        let at = content.slots.len();
        content.slots.push(slot);
        content.map.insert(key, at);
        assert_eq!(content.map.len(), content.slots.len(), "every slot is named once");
        frame
    }

    pub(crate) fn remove(&self, key: FrameKey, counters: &Counters) {
        let mut content = self.content.write();
        if let Some(at) = content.map.get(&key).copied() {
            let slot = content.take(at);
            drop(content);
            if slot.is_unused_prefetch() {
                counters.wasted();
            }
        }
    }

    /// Frames, pages that are only there compressed, hits, and pages loaded ahead and used.
    pub(crate) fn figures(&self) -> [u64; 4] {
        let content = self.content.read();
        let frames = content.slots.iter().filter(|slot| slot.frame.is_some()).count();
        let compressed = content.slots.len() - frames;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [frames as u64, compressed as u64, read(&self.hits), read(&self.prefetches_used)]
    }

    /// Evicts a page a scan left behind, unless it was used again.
    pub(crate) fn evict_scanned(&self, key: FrameKey, counters: &Counters) -> ScanEviction {
        let mut content = self.content.write();
        let Some(at) = content.map.get(&key).copied() else { return ScanEviction::Stale };
        let slot = &mut content.slots[at];
        if !slot.is_scan || *slot.rounds.get_mut() > 0 {
            slot.is_scan = false;
            return ScanEviction::Stale;
        }
        if slot.frame.as_ref().is_some_and(|frame| !frame.is_unpinned()) {
            return ScanEviction::Pinned;
        }
        let slot = content.take(at);
        drop(content);
        counters.evicted(Eviction::Full, slot.level, slot.charge());
        ScanEviction::Evicted(slot.charge())
    }

    /// Moves the hand until `wanted` bytes are free, one round at most; says how many bytes went.
    pub(crate) fn evict(&self, wanted: u64, counters: &Counters) -> u64 {
        let mut gone = Vec::new();
        let mut freed = 0;
        {
            let mut content = self.content.write();
            let content = &mut *content;
            let mut steps = content.slots.len();
            while freed < wanted && steps > 0 && !content.slots.is_empty() {
                steps -= 1;
                if content.hand >= content.slots.len() {
                    content.hand = 0;
                }
                let at = content.hand;
                let slot = &mut content.slots[at];
                match slot.sweep() {
                    SweepOutcome::Kept => content.hand += 1,
                    SweepOutcome::Shrunk(frame, eviction) => {
                        if let Some(eviction) = eviction {
                            counters.evicted(eviction, slot.level, frame.charge());
                        }
                        freed += frame.charge();
                        gone.push(frame);
                        content.hand += 1;
                    }
                    SweepOutcome::Evicted => {
                        let slot = content.take(at);
                        counters.evicted(Eviction::Full, slot.level, slot.charge());
                        if slot.is_unused_prefetch() {
                            counters.wasted();
                        }
                        freed += slot.charge();
                        gone.extend(slot.frame.into_iter().chain(slot.compressed));
                    }
                }
            }
        }
        // The memory goes back outside the lock.
        drop(gone);
        freed
    }
}

impl Content {
    /// Takes a slot out; the last one moves into its place.
    fn take(&mut self, at: usize) -> Slot {
        let slot = self.slots.swap_remove(at);
        let named = self.map.remove(&slot.key);
        assert_eq!(named, Some(at), "the map and the slots name each other");
        if let Some(moved) = self.slots.get(at) {
            self.map.insert(moved.key, at);
        }
        slot
    }
}
