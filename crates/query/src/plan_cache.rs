//! What a collection remembers of its queries: which plan a trial chose for a shape, and which
//! indexes an operator allows.
//!
//! A first trial's choice is remembered but not used: the next query of the shape is tried again,
//! and where its choice costs no more than was remembered it becomes active. A plan that later
//! costs much more than it did in its trial is tried again (`crate::plan_choice`).
//!
//! Always true: a choice is used only while the collection has the indexes it was made among; the
//! memory of all choices of the process is bounded.

mod admin;

pub use admin::{
    clear_filters, clear_plan_cache, clear_plan_of, list_filters, plan_cache_stats, set_filter,
};

use crate::index_filter::IndexFilter;
use crate::plan::{Route, Shape};
use bson::raw::RawDocumentBuf;
use bson::{DateTime, Document};
use catalog::Collection;
use limits::KeyMap;
use parking_lot::Mutex;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// Choices of one collection.
const MAX_ENTRIES: usize = 1000;
/// Bytes that the choices of all collections may take, where nothing else was said.
const MAX_BYTES: usize = 32 << 20;
/// What a choice takes beside its shape and what is shown of it.
const ENTRY_BYTES: usize = 512;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static MOST_BYTES: AtomicUsize = AtomicUsize::new(MAX_BYTES);

/// From now on the choices of all collections take no more than so many bytes, nor than 32 MiB.
pub fn bound_plan_caches(bytes: usize) {
    MOST_BYTES.store(bytes.min(MAX_BYTES), Ordering::Relaxed);
}

/// Bytes that the choices of all collections take.
pub fn plan_cache_bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

fn most_bytes() -> usize {
    MOST_BYTES.load(Ordering::Relaxed)
}

/// See the top of the file.
#[derive(Debug, Default)]
pub(crate) struct PlanCache {
    entries: Mutex<Entries>,
    has_filters: AtomicBool,
    filters: Mutex<KeyMap<Shape, Arc<IndexFilter>>>,
}

#[derive(Debug, Default)]
struct Entries {
    of: KeyMap<Shape, Entry>,
    /// Counts uses, to tell which were used last.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    indexes: u64,
    route: Route,
    /// What the plan cost in its trial.
    works: u64,
    active: bool,
    used: u64,
    made: DateTime,
    shown: Shown,
    bytes: usize,
}

/// What `$planCacheStats` shows of a choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) query: Document,
    pub(crate) sort: Document,
    pub(crate) plan: Document,
    /// An operator had said which indexes may serve it.
    pub(crate) filtered: bool,
    /// The statistics and the score of each plan of the trial.
    pub(crate) trial: Vec<(Document, f64)>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A choice that may be used.
pub(crate) struct Remembered {
    pub(crate) route: Route,
    pub(crate) works: u64,
}

/// A trial's choice.
pub(crate) struct Choice {
    pub(crate) route: Route,
    pub(crate) works: u64,
    pub(crate) made: DateTime,
    pub(crate) shown: Shown,
}

impl PlanCache {
    pub(crate) fn of(collection: &Collection) -> Arc<Self> {
        collection.extension()
    }

    /// The active choice for a shape.
    pub(crate) fn find(&self, shape: &Shape, collection: &Collection) -> Option<Remembered> {
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let clock = entries.clock;
        let entry = entries.of.get_mut(shape)?;
        if !entry.active || entry.indexes != fingerprint(collection) {
            return None;
        }
        entry.used = clock;
        Some(Remembered { route: entry.route.clone(), works: entry.works })
    }

    /// Whether a choice for a shape can be remembered.
    pub(crate) fn has_room_for(&self, shape: &Shape) -> bool {
        shape.is_short()
            && (BYTES.load(Ordering::Relaxed) < most_bytes() / 2
                || !self.entries.lock().of.is_empty())
    }

    /// A plan costs much more than it did: the next queries try again.
    pub(crate) fn doubt(&self, shape: &Shape) {
        if let Some(entry) = self.entries.lock().of.get_mut(shape) {
            entry.active = false;
        }
    }

    /// Remembers what a trial chose.
    pub(crate) fn note(&self, shape: Shape, collection: &Collection, choice: Choice) {
        if !shape.is_short() {
            return;
        }
        let indexes = fingerprint(collection);
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let known = entries.of.get(&shape).filter(|entry| entry.indexes == indexes);
        let (works, active) = match known {
            Some(known) if choice.works <= known.works => (choice.works, true),
            Some(known) => (known.works.saturating_mul(2).max(1), false),
            None => (choice.works, false),
        };
        let size = |document: &Document| {
            RawDocumentBuf::try_from(document).map_or(0, |bytes| bytes.as_bytes().len())
        };
        let Choice { route, made, shown, .. } = choice;
        let bytes = ENTRY_BYTES
            + shape.len()
            + size(&shown.query)
            + size(&shown.plan)
            + shown.trial.iter().map(|(statistics, _)| size(statistics)).sum::<usize>();
        entries.of.remove(&shape);
        while entries.of.len() >= MAX_ENTRIES
            || BYTES.load(Ordering::Relaxed) + bytes > most_bytes() && !entries.of.is_empty()
        {
            entries.forget_oldest();
        }
        if BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes > most_bytes() {
            BYTES.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        let used = entries.clock;
        entries.of.insert(shape, Entry { indexes, route, works, active, used, made, shown, bytes });
    }

    /// Whether an operator has said of any query which indexes it may use.
    pub(crate) fn has_filters(&self) -> bool {
        self.has_filters.load(Ordering::Acquire)
    }

    /// The indexes that queries of a shape may use, where an operator has said.
    pub(crate) fn filter(&self, shape: impl FnOnce() -> Shape) -> Option<Arc<IndexFilter>> {
        if !self.has_filters() {
            return None;
        }
        self.filters.lock().get(&shape()).cloned()
    }
}

impl Entries {
    fn forget_oldest(&mut self) {
        let oldest = self.of.iter().min_by_key(|(_, entry)| entry.used).map(|(shape, _)| shape);
        if let Some(shape) = oldest.cloned() {
            self.of.remove(&shape);
        }
    }
}

/// The indexes among which a choice is made.
fn fingerprint(collection: &Collection) -> u64 {
    let mut hash = Xxh3::new();
    for index in collection.indexes() {
        hash.write_u64(index.dictionary().0);
        hash.write_u8(u8::from(index.spec().hidden));
    }
    hash.finish()
}
