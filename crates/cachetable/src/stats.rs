//! What the table counts.

use crate::account::Parts;
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whose page it is: an internal node's buffer's, or a leaf's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Of a run: a buffer of an internal node.
    Nonleaf,
    /// Of a leaf.
    Leaf,
}

/// How often, and how many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// How often.
    pub count: u64,
    /// Bytes of memory freed by it.
    pub bytes: u64,
}

impl Add for Amount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { count: self.count + other.count, bytes: self.bytes + other.bytes }
    }
}

/// Evictions of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Evictions {
    /// Of runs.
    pub nonleaf: Amount,
    /// Of leaves.
    pub leaf: Amount,
}

impl Evictions {
    /// Of both.
    pub fn total(&self) -> Amount {
        self.nonleaf + self.leaf
    }
}

/// Misses of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Misses {
    /// How many.
    pub count: u64,
    /// Microseconds they took in all.
    pub micros: u64,
}

/// The table in figures. Monotone, except bytes and frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// The bound.
    pub capacity_bytes: u64,
    /// Who holds how much of it.
    pub parts: Parts,
    /// Pages in the table that can be read as they are.
    pub frames: u64,
    /// Pages in the table that are only there compressed.
    pub compressed: u64,
    /// Lookups that found their frame.
    pub hits: u64,
    /// Pages read from the disk.
    pub full_misses: Misses,
    /// Pages decompressed from memory.
    pub partial_misses: Misses,
    /// Pages that now are only there compressed.
    pub partial_evictions: Evictions,
    /// Pages that are gone.
    pub full_evictions: Evictions,
    /// Loads that found no room because everything was pinned.
    pub bypasses: u64,
    /// Pages, and stretches of a scan, read before somebody asked for them.
    pub prefetches: u64,
    /// Those that were asked for afterwards.
    pub prefetches_used: u64,
    /// Those that went before anybody asked.
    pub prefetches_wasted: u64,
}

impl Stats {
    /// Lookups that did not find their frame.
    pub fn misses(&self) -> u64 {
        self.full_misses.count + self.partial_misses.count
    }
}

#[derive(Default)]
struct Amounts {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Amounts {
    fn read(&self) -> Amount {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Amount { count: read(&self.count), bytes: read(&self.bytes) }
    }

    fn add(&self, count: u64, bytes: u64) {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    full_misses: Amounts,
    partial_misses: Amounts,
    partial: [Amounts; 2],
    full: [Amounts; 2],
    pub(crate) bypasses: AtomicU64,
    pub(crate) prefetches: AtomicU64,
    /// Beside what the shards count.
    prefetches_used: AtomicU64,
    prefetches_wasted: AtomicU64,
}

/// What left memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// The frame; the page stays compressed.
    Partial,
    /// All of the page.
    Full,
}

impl Counters {
    pub(crate) fn missed(&self, from_disk: bool, micros: u64) {
        let misses = if from_disk { &self.full_misses } else { &self.partial_misses };
        misses.add(1, micros);
    }

    pub(crate) fn waited_for_disk(&self) -> u64 {
        self.full_misses.read().bytes
    }

    pub(crate) fn evicted(&self, eviction: Eviction, level: Level, bytes: u64) {
        let counters = match eviction {
            Eviction::Partial => &self.partial,
            Eviction::Full => &self.full,
        };
        counters[level as usize].add(1, bytes);
    }

    pub(crate) fn prefetched_outside(&self, used: bool) {
        self.prefetches.fetch_add(1, Ordering::Relaxed);
        let counter = if used { &self.prefetches_used } else { &self.prefetches_wasted };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wasted(&self) {
        self.prefetches_wasted.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters; what the shards and the account know stays zero.
    pub(crate) fn read(&self) -> Stats {
        let misses = |amounts: &Amounts| {
            let Amount { count, bytes: micros } = amounts.read();
            Misses { count, micros }
        };
        let both = |[nonleaf, leaf]: &[Amounts; 2]| Evictions {
            nonleaf: nonleaf.read(),
            leaf: leaf.read(),
        };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            full_misses: misses(&self.full_misses),
            partial_misses: misses(&self.partial_misses),
            partial_evictions: both(&self.partial),
            full_evictions: both(&self.full),
            bypasses: read(&self.bypasses),
            prefetches: read(&self.prefetches),
            prefetches_used: read(&self.prefetches_used),
            prefetches_wasted: read(&self.prefetches_wasted),
            ..Stats::default()
        }
    }
}
