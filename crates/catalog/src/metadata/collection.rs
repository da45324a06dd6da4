//! A collection as it stands in memory: its dictionaries, indexes and shared counters.
//!
//! A [`Collection`] is one immutable version of the metadata; a change to it makes a new one, and
//! what lives longer than a version (lock, counts, index statistics) hangs below it in `Arc`s.
//!
//! Always true:
//! 1. An index's `observed` multikey mask covers every committed document before that document's
//!    commit is visible; it only grows. A plan made after its snapshot was taken may trust it.
//! 2. `persisted` is a subset of `observed` and is what `ROOT` holds.

use crate::metadata::arrivals::Arrivals;
use crate::metadata::counts::Counts;
use crate::metadata::extension::Extension;
use crate::metadata::namespace::Namespace;
use crate::metadata::options::CollectionOptions;
use bson::Uuid;
use bson::raw::RawBsonRef;
use engine::{DictionaryId, Snapshot, Timestamp};
use errors::Result;
use indexkeys::IndexSpec;
use keystring::Collation;
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// One version of a collection's metadata.
#[derive(Debug)]
pub struct Collection {
    pub(crate) namespace: Namespace,
    pub(crate) uuid: Uuid,
    /// Numbers collections for as long as the data directory lives; survives renames.
    pub(crate) number: u64,
    pub(crate) options: CollectionOptions,
    pub(crate) primary: DictionaryId,
    /// Of a capped collection: the order of arrival.
    pub(crate) order: Option<DictionaryId>,
    pub(crate) indexes: Vec<Arc<Index>>,
    pub(crate) shared: Arc<Shared>,
}

/// What all versions of one collection share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Held shared by every write until its commit, exclusively by changes to the metadata.
    /// Lock order: this before any lock of the engine; two collections by ascending namespace.
    pub(crate) metadata: Arc<RwLock<()>>,
    /// Clients' transactions that hold it, and may do so for long.
    pub(crate) clients_inside: AtomicUsize,
    pub(crate) counts: Counts,
    pub(crate) dropped: AtomicBool,
    /// Wakes who waits at the end of a capped collection.
    pub(crate) arrivals: Arrivals,
    /// How the documents were reached by `_id`, or by a walk over all of them.
    pub(crate) used: UseCounters,
    /// Held by the one build of indexes. Taken before `metadata`.
    pub(crate) building: Arc<Mutex<()>>,
    /// Set while an index is built; changed under the exclusive metadata lock only.
    changes: RwLock<Option<Arc<ChangeLog>>>,
    has_changes: AtomicBool,
    /// What readers keep with the collection.
    pub(crate) extension: Extension,
}

impl Shared {
    /// The collection is gone: its cursors end.
    pub(crate) fn end(&self) {
        self.dropped.store(true, Ordering::Release);
        self.arrivals.tell();
    }

    /// Has writers note which documents they change, or no longer.
    pub(crate) fn note_changes(&self, changes: Option<&Arc<ChangeLog>>) {
        *self.changes.write() = changes.cloned();
        self.has_changes.store(changes.is_some(), Ordering::Release);
    }

    /// Where to note changes, if anybody asks for them. To be asked under the metadata lock.
    pub(crate) fn changes(&self) -> Option<Arc<ChangeLog>> {
        if !self.has_changes.load(Ordering::Acquire) {
            return None;
        }
        self.changes.read().clone()
    }
}

/// Where writers note which documents they change while an index is built.
#[derive(Debug)]
pub(crate) struct ChangeLog {
    dictionary: DictionaryId,
    next: AtomicU64,
}

impl ChangeLog {
    pub(crate) fn new(dictionary: DictionaryId) -> Self {
        Self { dictionary, next: AtomicU64::new(0) }
    }

    pub(crate) fn dictionary(&self) -> DictionaryId {
        self.dictionary
    }

    /// A row nobody else writes: a number, then the document's id key.
    pub(crate) fn row(&self, id: &[u8]) -> Vec<u8> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        [&number.to_be_bytes()[..], id].concat()
    }

    /// The id key in a row.
    pub(crate) fn id_of(row: &[u8]) -> &[u8] {
        row.get(size_of::<u64>()..).unwrap_or_default()
    }
}

/// What a collection's metadata take beside its names and documents: its maps, counts and locks.
const COLLECTION_BYTES: usize = size_of::<Collection>() + size_of::<Shared>() + 256;
/// The same of an index.
const INDEX_BYTES: usize = size_of::<Index>() + size_of::<IndexState>() + 96;

impl Collection {
    /// What the query layer keeps with the collection. There is place for one type.
    pub fn extension<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.shared.extension.get()
    }

    /// Bytes of memory that its metadata take, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let options = self.options.shown.as_bytes().len() + 2 * self.namespace.as_str().len();
        let indexes = self.indexes.iter().map(|index| {
            let spec = &index.spec;
            let documents = spec.shown.as_bytes().len() + spec.key.as_bytes().len();
            INDEX_BYTES + 2 * documents + spec.name.len()
        });
        COLLECTION_BYTES + options + indexes.sum::<usize>()
    }

    /// `database.collection`.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The identity that survives renames.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// What it was created with.
    pub fn options(&self) -> &CollectionOptions {
        &self.options
    }

    /// Whether this is a view, which has no documents of its own.
    pub fn is_view(&self) -> bool {
        self.options.view.is_some()
    }

    /// The dictionary of the documents, by the keystring of `_id`.
    pub fn primary(&self) -> DictionaryId {
        self.primary
    }

    /// Whether everything of it is there in a state: false where the state is that after a drop, of
    /// it or of one of its indexes, which this version of the metadata does not know of yet.
    pub fn is_whole_in(&self, state: &Snapshot) -> bool {
        let indexes = self.indexes.iter().map(|index| index.dictionary);
        self.is_view()
            || std::iter::once(self.primary)
                .chain(self.order)
                .chain(indexes)
                .all(|dictionary| state.has_dictionary(dictionary))
    }

    /// The collation where an operation or an index does not say, and in the keys of the
    /// documents; `None` compares bytes.
    pub fn collation(&self) -> Option<&Collation> {
        self.options.collation.as_ref()
    }

    /// The dictionary key of the document with this `_id`.
    pub fn id_key(&self, id: RawBsonRef<'_>) -> Result<Vec<u8>> {
        indexkeys::id_key(id, self.collation())
    }

    /// Whether a document whose `_id` makes `id_key` may stand under `key`.
    pub(crate) fn is_record_key(&self, key: &[u8], id_key: &[u8]) -> bool {
        let shared = self.options.time_series.is_some();
        key.strip_prefix(id_key)
            .is_some_and(|rest| rest.is_empty() || (shared && indexkeys::is_suffix(rest)))
    }

    /// Whether one `_id` is that of one document: not of measurements.
    pub fn has_unique_ids(&self) -> bool {
        self.options.time_series.is_none()
    }

    /// The secondary indexes. The one on `_id` is the primary dictionary itself.
    pub fn indexes(&self) -> &[Arc<Index>] {
        &self.indexes
    }

    /// The secondary indexes that clients see.
    pub fn shown_indexes(&self) -> impl Iterator<Item = &Arc<Index>> {
        self.indexes.iter().filter(|index| !index.spec.is_internal())
    }

    /// How many indexes clients see, the one on `_id` counted.
    pub fn shown_index_count(&self) -> usize {
        self.shown_indexes().count() + 1
    }

    /// The secondary index of this name.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.spec.name == name)
    }

    /// How many documents are committed now. Exact, and takes no look at the data.
    pub fn count(&self) -> u64 {
        self.shared.counts.documents()
    }

    /// The documents' size in bytes, as BSON.
    pub fn data_size(&self) -> u64 {
        self.shared.counts.bytes()
    }

    /// Counts one plan over the documents themselves, and how many of them it looked at.
    pub fn note_scanned(&self, documents: u64) {
        self.shared.used.query();
        self.shared.used.scanned(documents, documents);
    }

    /// Whether it was dropped since this version was looked up; its cursors must end.
    pub fn is_dropped(&self) -> bool {
        self.shared.dropped.load(Ordering::Acquire)
    }
}

/// One secondary index.
#[derive(Debug)]
pub struct Index {
    pub(crate) spec: IndexSpec,
    pub(crate) dictionary: DictionaryId,
    /// The commit that made it visible; older snapshots cannot use it.
    pub(crate) created: Timestamp,
    pub(crate) state: Arc<IndexState>,
    pub(crate) keys: indexkeys::KeyMaker,
}

/// What all versions of one index share.
#[derive(Debug, Default)]
pub(crate) struct IndexState {
    /// Bit `i` is set where part `i` has met an array, committed or not.
    pub(crate) observed: AtomicU32,
    /// The bits that a commit has written to `ROOT`.
    pub(crate) persisted: AtomicU32,
    pub(crate) used: UseCounters,
}

/// How an index was used since the server started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexUse {
    /// Plans that used it.
    pub queries: u64,
    /// Entries that plans looked at.
    pub scanned: u64,
    /// Documents they then fetched.
    pub scanned_objects: u64,
    /// Entries added.
    pub inserts: u64,
    /// Entries removed.
    pub deletes: u64,
}

/// Counts the use of one index. Most are never used: the counters are made by the first use.
#[derive(Debug, Default)]
pub(crate) struct UseCounters(OnceLock<Box<Counters>>);

/// Readers and writers count on lines of their own.
#[derive(Debug, Default)]
struct Counters {
    reads: Padded<[AtomicU64; 3]>,
    writes: Padded<[AtomicU64; 2]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Padded<T>(T);

impl UseCounters {
    fn counters(&self) -> &Counters {
        self.0.get_or_init(Box::default)
    }

    pub(crate) fn query(&self) {
        self.counters().reads.0[0].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn scanned(&self, entries: u64, documents: u64) {
        let reads = &self.counters().reads.0;
        reads[1].fetch_add(entries, Ordering::Relaxed);
        reads[2].fetch_add(documents, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self, inserts: usize, deletes: usize) {
        for (at, count) in [inserts, deletes].into_iter().enumerate() {
            if count > 0 {
                let counter = &self.counters().writes.0[at];
                counter.fetch_add(count as u64, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn read(&self) -> IndexUse {
        let Some(counters) = self.0.get() else { return IndexUse::default() };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ([queries, scanned, scanned_objects], [inserts, deletes]) =
            (counters.reads.0.each_ref().map(read), counters.writes.0.each_ref().map(read));
        IndexUse { queries, scanned, scanned_objects, inserts, deletes }
    }
}

impl Index {
    /// What the index is.
    pub fn spec(&self) -> &IndexSpec {
        &self.spec
    }

    /// Its dictionary.
    pub fn dictionary(&self) -> DictionaryId {
        self.dictionary
    }

    /// Makes and reads its keys.
    pub fn keys(&self) -> &indexkeys::KeyMaker {
        &self.keys
    }

    /// Bit `i` is set where part `i` has met an array. Read it after taking the snapshot.
    pub fn multikey_parts(&self) -> u32 {
        self.state.observed.load(Ordering::Acquire)
    }

    /// The commit that made it visible.
    pub fn created(&self) -> Timestamp {
        self.created
    }

    /// Counts one use by a plan.
    pub fn note_use(&self) {
        self.state.used.query();
    }

    /// Counts what a plan that used it looked at.
    pub fn note_scanned(&self, entries: u64, documents: u64) {
        self.state.used.scanned(entries, documents);
    }

    /// How it was used since the server started.
    pub fn used(&self) -> IndexUse {
        self.state.used.read()
    }
}

/// The next version of the collection, with these indexes.
pub(crate) fn with_indexes(collection: &Collection, indexes: Vec<Arc<Index>>) -> Collection {
    Collection {
        namespace: collection.namespace.clone(),
        uuid: collection.uuid,
        number: collection.number,
        options: collection.options.clone(),
        primary: collection.primary,
        order: collection.order,
        indexes,
        shared: Arc::clone(&collection.shared),
    }
}

/// The index as a part of another version, which is there from `created` on.
pub(crate) fn clone_index(index: &Index, created: Timestamp) -> Index {
    Index {
        spec: index.spec.clone(),
        dictionary: index.dictionary,
        created,
        state: Arc::clone(&index.state),
        keys: index.keys.clone(),
    }
}
