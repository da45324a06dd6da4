//! The one account of memory: who holds how much of the bound.
//!
//! Always true: a byte is counted before it is allocated and until it is freed, whoever frees it;
//! the total is the sum of the parts. What is freed of [`MemoryKind::Compressed`] counts on in part, as
//! [`MemoryKind::Holes`], for as long as the allocator cannot give it to anybody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a frame costs beside its bytes: its header, its slot and its place in the map.
pub(crate) const OVERHEAD: usize = 160;

/// The allocator puts objects smaller than this into slabs with others of their size, and keeps all of
/// a slab for as long as one of them lives.
pub(crate) const SLAB_BYTES: usize = 16 << 10;
/// The share (numerator, denominator) of a freed page's bytes that is counted as a hole: measured
/// with pages of 8 to 14 KiB that were freed one by one, in no order of their addresses.
const HOLE_SHARE: (u64, u64) = (5, 8);
/// Holes are counted up to one part in so many of the compressed pages that are left: those fill the
/// slabs there are.
const MAX_HOLES_DIVISOR: u64 = 2;

/// What memory is held for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryKind {
    /// Frames of pages, block indexes and filters: what eviction takes from.
    Frames,
    /// Pages kept compressed: taken from too.
    Compressed,
    /// Nodes, and trees as such, idle ones too.
    Nodes,
    /// Block indexes and filters of runs that stay in memory.
    Filters,
    /// Compression dictionaries that are ready to decode with.
    Dictionaries,
    /// Memtables, sealed ones that a cursor still reads included.
    Memtables,
    /// Uncommitted writes, and what savepoints need to take them back.
    WriteSets,
    /// Locks.
    Locks,
    /// What merges and cursors read ahead, and segments being written.
    Buffers,
    /// What a recovery holds of transactions whose end it has not met.
    Recovery,
    /// Pages that found no room because everything was pinned.
    Bypass,
    /// Lent to clients' requests and replies, while these take more than their usual share.
    Lent,
    /// What describes collections and indexes.
    Catalog,
    /// What trees that are used often have once for each stripe.
    Slots,
    /// What compressed pages that are gone have left in slabs with others that are not.
    Holes,
    /// The log's buffers: records that are not written yet, and room for more.
    Log,
    /// The queue of pages that scans left behind.
    Scanned,
}

impl MemoryKind {
    /// Every part, in the order of [`Parts`].
    pub const ALL: [MemoryKind; 17] = [
        MemoryKind::Frames,
        MemoryKind::Compressed,
        MemoryKind::Nodes,
        MemoryKind::Filters,
        MemoryKind::Dictionaries,
        MemoryKind::Memtables,
        MemoryKind::WriteSets,
        MemoryKind::Locks,
        MemoryKind::Buffers,
        MemoryKind::Recovery,
        MemoryKind::Bypass,
        MemoryKind::Lent,
        MemoryKind::Catalog,
        MemoryKind::Slots,
        MemoryKind::Holes,
        MemoryKind::Log,
        MemoryKind::Scanned,
    ];

    /// As status pages name it.
    pub fn name(self) -> &'static str {
        match self {
            MemoryKind::Frames => "frames",
            MemoryKind::Compressed => "compressed",
            MemoryKind::Nodes => "nodes",
            MemoryKind::Filters => "filters",
            MemoryKind::Dictionaries => "compressionDictionaries",
            MemoryKind::Memtables => "memtables",
            MemoryKind::WriteSets => "writeSets",
            MemoryKind::Locks => "locks",
            MemoryKind::Buffers => "buffers",
            MemoryKind::Recovery => "recovery",
            MemoryKind::Bypass => "bypass",
            MemoryKind::Lent => "lent",
            MemoryKind::Catalog => "catalog",
            MemoryKind::Slots => "slots",
            MemoryKind::Holes => "holes",
            MemoryKind::Log => "log",
            MemoryKind::Scanned => "scanned",
        }
    }
}

/// Bytes held by each part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parts([u64; MemoryKind::ALL.len()]);

impl Parts {
    /// What one part holds.
    pub fn of(&self, kind: MemoryKind) -> u64 {
        self.0[kind as usize]
    }

    /// What all of them hold.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each part's name and bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        MemoryKind::ALL.into_iter().map(|kind| (kind.name(), self.of(kind)))
    }
}

/// A counter on a cache line of its own: parts change from different threads.
#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

pub(crate) struct Account {
    capacity: AtomicU64,
    total: Line,
    parts: [Line; MemoryKind::ALL.len()],
}

impl Account {
    pub(crate) fn new(capacity: u64) -> Arc<Self> {
        Arc::new(Self {
            capacity: AtomicU64::new(capacity),
            total: Line::default(),
            parts: Default::default(),
        })
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(crate) fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    /// How far the parts together are over the bound.
    pub(crate) fn excess(&self) -> u64 {
        self.total.0.load(Ordering::Relaxed).saturating_sub(self.capacity())
    }

    pub(crate) fn held(&self, kind: MemoryKind) -> u64 {
        self.parts[kind as usize].0.load(Ordering::Relaxed)
    }

    pub(crate) fn parts(&self) -> Parts {
        Parts(MemoryKind::ALL.map(|kind| self.held(kind)))
    }

    /// Says that a part now holds `bytes`, whatever it held before.
    pub(crate) fn sample(&self, kind: MemoryKind, bytes: u64) {
        let before = self.parts[kind as usize].0.swap(bytes, Ordering::Relaxed);
        // Wrapping: the sum is exact whatever the order of the swaps.
        self.total.0.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    fn add(&self, kind: MemoryKind, bytes: u64) {
        self.total.0.fetch_add(bytes, Ordering::Relaxed);
        self.added(kind, bytes);
    }

    /// Behind the total.
    fn added(&self, kind: MemoryKind, bytes: u64) {
        self.parts[kind as usize].0.fetch_add(bytes, Ordering::Relaxed);
        if in_slabs(kind, bytes) {
            let filled = self.fit_holes(|holes| holes.saturating_sub(hole_bytes(bytes)));
            self.total.0.fetch_add(filled, Ordering::Relaxed);
        }
    }

    fn sub(&self, kind: MemoryKind, bytes: u64) {
        let before = self.parts[kind as usize].0.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{kind:?} gives back {bytes} bytes and holds {before}");
        // In one step with what it leaves: nobody may take that in between.
        let left = if in_slabs(kind, bytes) {
            self.fit_holes(|holes| holes + hole_bytes(bytes))
        } else {
            0
        };
        self.total.0.fetch_sub(bytes.wrapping_sub(left), Ordering::Relaxed);
    }

    /// A new page fills a hole where there is one, one that goes leaves one. Says by how much holes
    /// grew, wrapping. Pages that go at once may count one too many, until the next comes or goes.
    fn fit_holes(&self, change: impl Fn(u64) -> u64) -> u64 {
        let most = self.held(MemoryKind::Compressed) / MAX_HOLES_DIVISOR;
        let holes = &self.parts[MemoryKind::Holes as usize].0;
        let fit = |holes: u64| change(holes).min(most);
        let before =
            holes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |holes| Some(fit(holes)));
        before.map_or(0, |before| fit(before).wrapping_sub(before))
    }
}

fn in_slabs(kind: MemoryKind, bytes: u64) -> bool {
    kind == MemoryKind::Compressed && bytes < SLAB_BYTES as u64
}

/// What a page of `bytes` leaves as a hole.
fn hole_bytes(bytes: u64) -> u64 {
    let (kind, of) = HOLE_SHARE;
    bytes / of * kind
}

/// What `bytes` on the heap really take: the allocator has four sizes from one power of two to
/// the next.
pub(crate) fn footprint(bytes: usize) -> usize {
    let step = (bytes.max(1).next_power_of_two() / 8).max(16);
    bytes.next_multiple_of(step)
}

/// Bytes of the bound that are taken; given back when dropped.
pub struct Reservation {
    bytes: u64,
    kind: MemoryKind,
    account: Arc<Account>,
}

impl Reservation {
    /// Takes `bytes`, over the bound or not.
    pub(crate) fn new(kind: MemoryKind, bytes: u64, account: &Arc<Account>) -> Self {
        account.add(kind, bytes);
        Self { bytes, kind, account: Arc::clone(account) }
    }

    /// Takes `bytes`, only where they fit.
    pub(crate) fn within_bound(
        kind: MemoryKind,
        bytes: u64,
        account: &Arc<Account>,
    ) -> Option<Self> {
        let capacity = account.capacity();
        let fits = |total: u64| total.checked_add(bytes).filter(|after| *after <= capacity);
        account.total.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        account.added(kind, bytes);
        Some(Self { bytes, kind, account: Arc::clone(account) })
    }

    /// What it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` from now on. Growing makes no room: see [`crate::CacheTable::resize`].
    pub(crate) fn set(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.account.add(self.kind, bytes - self.bytes);
        } else {
            self.account.sub(self.kind, self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.sub(self.kind, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_pages_that_go_leave_holes_until_others_come_or_all_are_gone() {
        let account = Account::new(1 << 20);
        let page = |_| Reservation::new(MemoryKind::Compressed, 8000, &account);
        let mut pages: Vec<_> = (0..100).map(page).collect();
        assert_eq!((account.held(MemoryKind::Holes), account.parts().total()), (0, 800_000));
        pages.truncate(70);
        assert_eq!(account.held(MemoryKind::Holes), 150_000);
        assert_eq!(account.parts().total(), 710_000);
        pages.extend((0..10).map(page));
        assert_eq!(
            (pages.len(), account.held(MemoryKind::Holes)),
            (80, 100_000),
            "new pages fill holes"
        );
        pages.truncate(10);
        assert_eq!(account.held(MemoryKind::Holes), 40_000, "ten pages lie in ten slabs at most");
        pages.clear();
        let large = Reservation::new(MemoryKind::Compressed, 1 << 16, &account);
        drop(large);
        assert_eq!(account.parts(), Parts::default());
        assert_eq!(account.total.0.load(Ordering::Relaxed), 0);
    }
}
