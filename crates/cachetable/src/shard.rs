//! One part of the table: a map and a clock over its slots, under one short lock.
//!
//! Always true: the map and the slots name each other; pins are taken under the lock, so a frame
//! that is unpinned under the exclusive lock can go.

use crate::FrameKey;
use crate::frame::{Frame, Shared};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};

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
    frame: Frame,
    /// Rounds of the hand it still survives.
    rounds: AtomicU8,
    most_rounds: u8,
}

#[derive(Default)]
struct Content {
    map: HashMap<FrameKey, usize, BuildHasherDefault<KeyHasher>>,
    slots: Vec<Slot>,
    hand: usize,
}

#[derive(Default)]
pub(crate) struct Shard(RwLock<Content>);

impl Shard {
    pub(crate) fn get(&self, key: FrameKey) -> Option<Frame> {
        let content = self.0.read();
        let slot = &content.slots[*content.map.get(&key)?];
        // Stored only where it changes, so that hits on a hot frame share its cache line.
        if slot.rounds.load(Ordering::Relaxed) != slot.most_rounds {
            slot.rounds.store(slot.most_rounds, Ordering::Relaxed);
        }
        Some(slot.frame.clone())
    }

    /// Adds a frame; where another thread was first, its frame wins and ours goes.
    pub(crate) fn insert(&self, key: FrameKey, frame: Frame, rounds: u8) -> Frame {
        let mut content = self.0.write();
        if let Some(slot) = content.map.get(&key) {
            return content.slots[*slot].frame.clone();
        }
        let slot = Slot {
            key,
            frame: frame.clone(),
            // New frames start one round short: a scan's pages go before pages that were hit.
            rounds: AtomicU8::new(rounds - 1),
            most_rounds: rounds,
        };
        let at = content.slots.len();
        content.slots.push(slot);
        content.map.insert(key, at);
        frame
    }

    pub(crate) fn remove(&self, key: FrameKey) {
        let mut content = self.0.write();
        if let Some(at) = content.map.get(&key).copied() {
            drop(content.take(at));
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.read().slots.len() as u64
    }

    /// Moves the hand until `wanted` bytes are free or every frame was passed often enough to
    /// lose all its rounds; says how many bytes went.
    pub(crate) fn evict(&self, wanted: u64, shared: &Shared) -> u64 {
        let mut gone = Vec::new();
        let mut freed = 0;
        {
            let mut content = self.0.write();
            let mut steps = content.slots.len() * 4;
            while freed < wanted && steps > 0 && !content.slots.is_empty() {
                steps -= 1;
                if content.hand >= content.slots.len() {
                    content.hand = 0;
                }
                let at = content.hand;
                let slot = &content.slots[at];
                let rounds = slot.rounds.load(Ordering::Relaxed);
                if !slot.frame.is_unpinned() {
                    content.hand += 1;
                } else if rounds > 0 {
                    slot.rounds.store(rounds - 1, Ordering::Relaxed);
                    content.hand += 1;
                } else {
                    let frame = content.take(at);
                    freed += frame.charge();
                    shared.count_eviction(frame.charge());
                    gone.push(frame);
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
    fn take(&mut self, at: usize) -> Frame {
        let slot = self.slots.swap_remove(at);
        self.map.remove(&slot.key);
        if let Some(moved) = self.slots.get(at) {
            self.map.insert(moved.key, at);
        }
        slot.frame
    }
}
