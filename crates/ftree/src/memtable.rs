//! The root's buffer: entries in memory, found by hash and walked in order.
//!
//! Always true: an entry, once inserted, stays and never changes until the memtable goes as a
//! whole; readers take no lock; [`MemTable::bytes`] is the memory it really took.

mod arena;
mod index;
#[cfg(all(test, shuttle))]
mod interleavings;
mod order;
mod record;
#[cfg(test)]
mod tests;

use crate::KeyHasher;
use crate::fetch::{LINE_BYTES, fetch};
use crate::message::{Entry, Message, Place};
use arena::Arena;
use cachetable::CacheTable;
use index::Index;
use order::{Batch, Ordered};
use os::Padded;
use os::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use record::{Record, Target};
use std::sync::Arc;

/// The hash that filters on disk are made of.
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// A memtable: active until it is sealed, then read-only until it is drained.
pub(crate) struct MemTable {
    hasher: KeyHasher,
    index: Index,
    order: Ordered,
    /// Threads inside [`MemTable::insert`].
    writers: Writers,
    sealed: AtomicBool,
    /// Every commit up to here had finished inserting when the table was sealed.
    flushed_ts: AtomicU64,
    // Last: everything above points into it.
    arena: Arena,
}

impl MemTable {
    /// An empty one; its memory is taken from the cache's bound.
    pub(crate) fn new(cache: &Arc<CacheTable>, hasher: &KeyHasher) -> Self {
        let arena = Arena::new(cache);
        Self {
            hasher: hasher.clone(),
            index: Index::new(),
            order: Ordered::new(),
            writers: Writers::default(),
            sealed: AtomicBool::new(false),
            flushed_ts: AtomicU64::new(0),
            arena,
        }
    }

    /// The hash by which this table, and every other with the same hasher, knows a key.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// Adds an entry; false where the table is sealed and the caller must take the new one. An
    /// entry that is there already (same key and timestamp) stays once.
    pub(crate) fn insert(&self, key: &[u8], hash: u64, ts: u64, message: Message<'_>) -> bool {
        assert!(ts != 0 && ts != u64::MAX, "timestamps 0 and MAX are places, not versions");
        let writer = self.writers.enter();
        if self.sealed.load(Ordering::SeqCst) {
            return false;
        }
        let record = Record::new(&self.arena, key, ts, message);
        let weight = Entry { key, ts, message }.weight();
        if self.index.insert(&self.arena, &self.hasher, hash, record, weight) {
            self.order.insert(&self.arena, record);
        }
        drop(writer);
        true
    }

    /// No insert starts after this; [`MemTable::quiet`] tells when the last one has ended.
    pub(crate) fn seal(&self, flushed_ts: u64) {
        self.flushed_ts.store(flushed_ts, Ordering::Relaxed);
        self.sealed.store(true, Ordering::SeqCst);
    }

    /// Nothing was inserted since the seal: later commits count as inside too.
    pub(crate) fn raise_flushed_ts(&self, flushed_ts: u64) {
        self.flushed_ts.fetch_max(flushed_ts, Ordering::Relaxed);
    }

    /// Sealed, and nobody is inside `insert` any more.
    pub(crate) fn quiet(&self) -> bool {
        self.sealed.load(Ordering::SeqCst) && self.writers.none()
    }

    pub(crate) fn flushed_ts(&self) -> u64 {
        self.flushed_ts.load(Ordering::Relaxed)
    }

    pub(crate) fn entries(&self) -> u64 {
        self.index.totals().0
    }

    /// Key and value bytes put in, with headers: what a drain writes.
    pub(crate) fn weight(&self) -> u64 {
        self.index.totals().1
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.arena.bytes()
    }

    /// The version of `key` a reader at `ts` sees here.
    pub(crate) fn get(&self, key: &[u8], hash: u64, ts: u64) -> Option<(u64, Message<'_>)> {
        let record = self.index.find(key, hash)?.visible(ts)?;
        Some((record.ts(), record.message()))
    }
}

/// Counts threads inside an insert, on several cache lines: threads seldom share one.
#[derive(Default)]
struct Writers([Padded<AtomicUsize>; 4]);

/// A thread inside an insert, until dropped.
struct Writer<'a>(&'a AtomicUsize);

impl Writers {
    /// `SeqCst` pairs with `seal`: either the sealer sees us inside, or we see the seal.
    fn enter(&self) -> Writer<'_> {
        let slot = &self.0[os::lane() % self.0.len()].0;
        slot.fetch_add(1, Ordering::SeqCst);
        Writer(slot)
    }

    fn none(&self) -> bool {
        self.0.iter().all(|slot| slot.0.load(Ordering::SeqCst) == 0)
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Walks a memtable in order, either way. Entries inserted meanwhile may or may not be met.
pub(crate) struct MemIter {
    batch: Box<Batch>,
    at: usize,
    forward: bool,
    /// Records are asked for before they are looked at.
    ahead: bool,
    table: Arc<MemTable>,
}

// SAFETY: the raw pointers of a batch point into the arena the `Arc` keeps alive; records are
// shared read-only.
unsafe impl Send for MemIter {}

impl MemIter {
    /// Entries at or behind `from`, ascending; all of them for `None`.
    pub(crate) fn forward(table: Arc<MemTable>, from: Option<Place<'_>>) -> Self {
        let mut batch = Box::new(Batch::empty());
        let target = Target::new(Some(from.unwrap_or(Place::before(&[]))));
        table.order.forward(&target, &mut batch);
        Self { batch, at: 0, forward: true, ahead: false, table }
    }

    /// For a walk over many entries, ascending: records are scattered over memory, and it asks for
    /// those that come next while it looks at one.
    pub(crate) fn reading_ahead(mut self) -> Self {
        self.ahead = true;
        self.fetch_heads();
        self
    }

    /// Entries strictly before `before`, descending; all of them for `None`.
    pub(crate) fn backward(table: Arc<MemTable>, before: Option<Place<'_>>) -> Self {
        let mut batch = Box::new(Batch::empty());
        table.order.backward(&Target::new(before), &mut batch);
        Self { batch, at: 0, forward: false, ahead: false, table }
    }

    /// The entry under the iterator.
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        self.record().map(Record::entry)
    }

    fn record(&self) -> Option<&Record> {
        if self.at >= self.batch.count {
            return None;
        }
        let slot = if self.forward { self.at } else { self.batch.count - 1 - self.at };
        // SAFETY: the first `count` slots of a batch are records of the table's arena.
        Some(unsafe { &*self.batch.records[slot] })
    }

    pub(crate) fn advance(&mut self) {
        self.at += 1;
        if self.at < self.batch.count || self.batch.count == 0 {
            self.fetch_next();
            return;
        }
        self.at = 0;
        if self.forward {
            Ordered::forward_more(&mut self.batch);
            self.fetch_heads();
        } else {
            // SAFETY: as in `record`; slot 0 is the least record of the batch.
            let least = unsafe { &*self.batch.records[0] };
            let target = Target::new(Some(least.entry_place()));
            self.table.order.backward(&target, &mut self.batch);
        }
    }

    fn fetch_heads(&self) {
        if self.ahead {
            self.batch.records[..self.batch.count].iter().for_each(|record| fetch_line(*record, 0));
        }
    }

    fn fetch_next(&self) {
        let next = self.at + RECORDS_AHEAD;
        if self.ahead && next < self.batch.count {
            (1..RECORD_LINES).for_each(|line| fetch_line(self.batch.records[next], line));
        }
    }
}

/// So far ahead of use a record is asked for as a whole: memory takes as long as a few entries.
const RECORDS_AHEAD: usize = 4;
/// Cache lines of a record of usual size; the rest of a longer one the processor foresees.
const RECORD_LINES: usize = 5;

fn fetch_line(record: *const Record, line: usize) {
    fetch(record.cast::<u8>().wrapping_add(line * LINE_BYTES));
}
