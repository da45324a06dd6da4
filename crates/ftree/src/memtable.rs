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
use crate::message::{Entry, HEADER_WEIGHT, Message, Place};
use arena::Arena;
use cachetable::CacheTable;
use index::Index;
use order::{Batch, Ordered};
use os::Padded;
use os::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use record::{Record, Target};
use std::sync::{Arc, OnceLock};

/// Entries that are added together.
pub(crate) const MOST_TOGETHER: usize = 32;

/// What one commit did to one key: the key, the commit's timestamp, what it did.
pub type Version<'a> = (&'a [u8], u64, Message<'a>);

/// The hash that filters on disk are made of.
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// A memtable: active until it is sealed, then read-only until it is drained. Until its first entry it is
/// small: most trees are idle.
pub(crate) struct MemTable {
    hasher: KeyHasher,
    body: OnceLock<Box<Body>>,
    /// Threads inside [`MemTable::insert`] that met no body.
    makers: AtomicUsize,
    sealed: AtomicBool,
    /// Every commit up to here had finished inserting when the table was sealed.
    flushed_ts: AtomicU64,
    /// Nothing in it is newer, where that is known; set before the sealed table is shown to anybody.
    newest_ts: AtomicU64,
    cache: Arc<CacheTable>,
}

/// What a memtable has from its first entry on.
struct Body {
    index: Index,
    order: Ordered,
    /// Threads inside [`MemTable::insert`].
    writers: Writers,
    // Last: everything above points into it.
    arena: Arena,
}

impl MemTable {
    /// An empty one; its memory is taken from the cache's bound.
    pub(crate) fn new(cache: &Arc<CacheTable>, hasher: &KeyHasher) -> Self {
        Self {
            hasher: hasher.clone(),
            body: OnceLock::new(),
            makers: AtomicUsize::new(0),
            sealed: AtomicBool::new(false),
            flushed_ts: AtomicU64::new(0),
            newest_ts: AtomicU64::new(0),
            cache: Arc::clone(cache),
        }
    }

    /// The hash by which this table, and every other with the same hasher, knows a key.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// Adds an entry; false where the table is sealed and the caller must take the new one. An
    /// entry that is there already (same key and timestamp) stays once.
    pub(crate) fn insert(&self, key: &[u8], hash: u64, ts: u64, message: Message<'_>) -> bool {
        self.insert_with(|body| {
            if let Some(record) = self.link(body, hash, Entry { key, ts, message }) {
                body.order.insert(&body.arena, record);
            }
        })
    }

    /// Adds at most [`MOST_TOGETHER`] entries; as [`MemTable::insert`] otherwise. Takes less time than one after the
    /// other where their places are scattered over memory, or where many are of one key.
    pub(crate) fn insert_all(&self, versions: &[Version<'_>]) -> bool {
        assert!(versions.len() <= MOST_TOGETHER, "more are added in parts");
        self.insert_with(|body| {
            let mut hashes = [0; MOST_TOGETHER];
            for ((key, _, _), hash) in versions.iter().zip(&mut hashes) {
                *hash = self.hasher.hash(key);
                body.index.fetch(*hash);
            }
            let (mut new, mut count) = ([std::ptr::null_mut(); MOST_TOGETHER], 0);
            for ((key, ts, message), hash) in versions.iter().zip(hashes) {
                let entry = Entry { key, ts: *ts, message: *message };
                if let Some(record) = self.link(body, hash, entry) {
                    new[count] = record;
                    count += 1;
                }
            }
            body.order.insert_all(&body.arena, &new[..count]);
        })
    }

    /// Calls `insert` where the table is not sealed; says whether it did.
    fn insert_with(&self, insert: impl FnOnce(&Body)) -> bool {
        let Some(body) = self.body.get() else {
            // Either the sealer sees us here, or we see the seal: see `is_quiescent`.
            let _maker = Writer::enter(&self.makers);
            if self.sealed.load(Ordering::SeqCst) {
                return false;
            }
            let body = self.body.get_or_init(|| Box::new(Body::new(&self.cache)));
            return self.insert_into(body, insert);
        };
        self.insert_into(body, insert)
    }

    fn insert_into(&self, body: &Body, insert: impl FnOnce(&Body)) -> bool {
        let writer = body.writers.enter();
        if self.sealed.load(Ordering::SeqCst) {
            return false;
        }
        insert(body);
        drop(writer);
        true
    }

    /// Makes an entry's record and links it into the index; `None` where it is there already.
    fn link(&self, body: &Body, hash: u64, entry: Entry<'_>) -> Option<*mut Record> {
        let Entry { key, ts, message } = entry;
        assert!(ts != 0 && ts != u64::MAX, "timestamps 0 and MAX are places, not versions");
        let record = Record::new(&body.arena, key, ts, message);
        let weight = entry.weight();
        body.index.insert(&body.arena, &self.hasher, hash, record, weight).then_some(record)
    }

    /// No insert starts after this; [`MemTable::is_quiescent`] tells when the last one has ended.
    pub(crate) fn seal(&self, flushed_ts: u64) {
        self.flushed_ts.store(flushed_ts, Ordering::Relaxed);
        let before = self.sealed.swap(true, Ordering::SeqCst);
        assert!(!before, "a memtable is sealed once");
    }

    /// Nothing was inserted since the seal: later commits count as inside too.
    pub(crate) fn raise_flushed_ts(&self, flushed_ts: u64) {
        self.flushed_ts.fetch_max(flushed_ts, Ordering::Relaxed);
    }

    /// Sealed, and nobody is inside `insert` any more. Who makes the body is counted from before it looks
    /// at the seal until it has inserted; so where nobody is, a body that is not here will never be.
    pub(crate) fn is_quiescent(&self) -> bool {
        self.sealed.load(Ordering::SeqCst)
            && self.makers.load(Ordering::SeqCst) == 0
            && self.body.get().is_none_or(|body| body.writers.none())
    }

    pub(crate) fn flushed_ts(&self) -> u64 {
        self.flushed_ts.load(Ordering::Relaxed)
    }

    /// It is sealed, and nothing in it is newer than this.
    pub(crate) fn set_newest_ts(&self, newest_ts: u64) {
        self.newest_ts.store(newest_ts, Ordering::Relaxed);
    }

    /// A timestamp at or above all in it; 0 where nobody asks for one.
    pub(crate) fn newest_ts(&self) -> u64 {
        self.newest_ts.load(Ordering::Relaxed)
    }

    pub(crate) fn entries(&self) -> u64 {
        self.body.get().map_or(0, |body| body.index.totals().0)
    }

    /// Key and value bytes put in, with headers: what a drain writes.
    pub(crate) fn weight(&self) -> u64 {
        self.body.get().map_or(0, |body| body.index.totals().1)
    }

    /// Key and value bytes put in.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.weight().saturating_sub(self.entries() * HEADER_WEIGHT)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.body.get().map_or(0, |body| body.arena.bytes())
    }

    /// The version of `key` a reader at `ts` sees here.
    pub(crate) fn get(&self, key: &[u8], hash: u64, ts: u64) -> Option<(u64, Message<'_>)> {
        let record = self.body.get()?.index.find(key, hash)?.visible(ts)?;
        Some((record.ts(), record.message()))
    }

    /// The versions of `key` from the one a reader at `ts` sees here on, newest first.
    pub(crate) fn versions(
        &self,
        key: &[u8],
        hash: u64,
        ts: u64,
    ) -> impl Iterator<Item = (u64, Message<'_>)> {
        let newest = self.body.get().and_then(|body| body.index.find(key, hash));
        let visible = newest.and_then(|record| record.visible(ts));
        std::iter::successors(visible, |record| record.older())
            .map(|record| (record.ts(), record.message()))
    }

    /// Fills the batch with records at or behind the target.
    fn forward(&self, target: &Target<'_>, batch: &mut Batch) {
        if let Some(body) = self.body.get() {
            body.order.forward(target, batch);
        }
    }

    /// Fills the batch with records before the target; with none where there is no record.
    fn backward(&self, target: &Target<'_>, batch: &mut Batch) {
        if let Some(body) = self.body.get() {
            body.order.backward(target, batch);
        }
    }
}

impl Body {
    fn new(cache: &Arc<CacheTable>) -> Self {
        Self {
            index: Index::new(),
            order: Ordered::new(),
            writers: Writers::default(),
            arena: Arena::new(cache, size_of::<Self>()),
        }
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
        Writer::enter(&self.0[os::stripe() % self.0.len()].0)
    }

    fn none(&self) -> bool {
        self.0.iter().all(|slot| slot.0.load(Ordering::SeqCst) == 0)
    }
}

impl<'a> Writer<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "a writer leaves once");
    }
}

/// Walks a memtable in order, either way. Entries inserted meanwhile may or may not be met.
pub(crate) struct MemIter {
    batch: Box<Batch>,
    at: usize,
    forward: bool,
    /// How often it went on, up to [`FEW_STEPS`]: then it is taken for a walk over many entries.
    steps: u8,
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
        table.forward(&target, &mut batch);
        Self { batch, at: 0, forward: true, steps: 0, table }
    }

    /// For a walk that is known to be over many entries: records are scattered over memory, and it asks for those that
    /// come next while it looks at one, as others do that have gone on [`FEW_STEPS`] times.
    pub(crate) fn reading_ahead(mut self) -> Self {
        self.steps = FEW_STEPS;
        self.fetch_first();
        self
    }

    /// Entries strictly before `before`, descending; all of them for `None`.
    pub(crate) fn backward(table: Arc<MemTable>, before: Option<Place<'_>>) -> Self {
        let mut batch = Box::new(Batch::empty());
        table.backward(&Target::new(before), &mut batch);
        Self { batch, at: 0, forward: false, steps: 0, table }
    }

    /// The entry under the iterator.
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        self.record().map(Record::entry)
    }

    fn record(&self) -> Option<&Record> {
        // SAFETY: what a batch holds are records of the table's arena.
        self.ahead(0).map(|record| unsafe { &*record })
    }

    /// The record so many entries on, as far as the batch goes.
    fn ahead(&self, steps: usize) -> Option<*const Record> {
        let at = self.at + steps;
        (at < self.batch.count)
            .then(|| self.batch.records[if self.forward { at } else { self.batch.count - 1 - at }])
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
        } else {
            // SAFETY: as in `record`; slot 0 is the least record of the batch.
            let least = unsafe { &*self.batch.records[0] };
            let target = Target::new(Some(least.entry_place()));
            self.table.backward(&target, &mut self.batch);
        }
        self.fetch_first();
    }

    /// At the beginning of a batch, and of reading ahead.
    fn fetch_first(&self) {
        if self.steps >= FEW_STEPS {
            (0..=HEADS_AHEAD).filter_map(|steps| self.ahead(steps)).for_each(|record| {
                fetch_line(record, 0);
            });
        }
    }

    fn fetch_next(&mut self) {
        if self.steps < FEW_STEPS {
            self.steps += 1;
            self.fetch_first();
            return;
        }
        if let Some(record) = self.ahead(HEADS_AHEAD) {
            fetch_line(record, 0);
        }
        if let Some(record) = self.ahead(RECORDS_AHEAD) {
            (1..RECORD_LINES).for_each(|line| fetch_line(record, line));
        }
    }
}

/// Who has gone on so often goes on, most likely: a lookup by an index looks at one entry, or at two.
const FEW_STEPS: u8 = 2;
/// So far ahead of use a record's head is asked for, …
const HEADS_AHEAD: usize = 8;
/// … and so far the whole record: memory takes as long as a few entries.
const RECORDS_AHEAD: usize = 4;
/// Cache lines of a record of usual size; the rest of a longer one the processor foresees.
const RECORD_LINES: usize = 9;

fn fetch_line(record: *const Record, line: usize) {
    fetch(record.cast::<u8>().wrapping_add(line * LINE_BYTES));
}
