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
use crate::metadata::partitions::{IndexParts, Partitions};
use bson::Uuid;
use bson::raw::{RawBsonRef, RawDocument};
use engine::{DictionaryId, Snapshot, Timestamp, Value};
use errors::{Code, Error, Result};
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
    pub(crate) options: Arc<CollectionOptions>,
    /// Of a partitioned collection it is empty, and stands for the collection in states.
    pub(crate) primary: DictionaryId,
    /// Of a capped collection: the order of arrival.
    pub(crate) order: Option<DictionaryId>,
    /// The primary key as an index that holds the documents, where it is not `_id` alone.
    pub(crate) primary_index: Option<Arc<Index>>,
    /// Those beside the documents. The first is the one on `_id` where there is a `primary_index`.
    pub(crate) indexes: Vec<Arc<Index>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) partitions: Partitions,
    /// Of the store of a partition: the number of its collection.
    pub(crate) owner: Option<u64>,
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
    /// Indexes that are being built.
    pub(crate) unfinished_indexes: AtomicUsize,
    /// Where to note changes while an index is built.
    changes: Arc<NotingChanges>,
    /// What readers keep with the collection.
    pub(crate) extension: Extension,
    /// The commit that renamed it last; 0 where none has since the start.
    renamed_at: AtomicU64,
}

/// Set while an index is built; changed under the exclusive metadata lock only.
#[derive(Debug, Default)]
struct NotingChanges {
    log: RwLock<Option<Arc<ChangeLog>>>,
    is_set: AtomicBool,
}

impl Shared {
    /// The collection is gone: its cursors end.
    pub(crate) fn end(&self) {
        self.dropped.store(true, Ordering::Release);
        self.arrivals.tell();
    }

    /// What the store of a new partition of this collection has: its own count, and the locks of the
    /// collection.
    pub(crate) fn of_partition(&self) -> Self {
        Self {
            metadata: Arc::clone(&self.metadata),
            building: Arc::clone(&self.building),
            changes: Arc::clone(&self.changes),
            ..Self::default()
        }
    }

    /// A commit gave the collection the name that it has now.
    pub(crate) fn renamed_at(&self, committed: Timestamp) {
        self.renamed_at.fetch_max(committed.0, Ordering::AcqRel);
    }

    /// Has writers note which documents they change, or no longer.
    pub(crate) fn note_changes(&self, changes: Option<&Arc<ChangeLog>>) {
        *self.changes.log.write() = changes.cloned();
        self.changes.is_set.store(changes.is_some(), Ordering::Release);
    }

    /// Where to note changes, if anybody asks for them. To be asked under the metadata lock.
    pub(crate) fn changes(&self) -> Option<Arc<ChangeLog>> {
        if !self.changes.is_set.load(Ordering::Acquire) {
            return None;
        }
        self.changes.log.read().clone()
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

    /// A row nobody else writes: a number, then the document's record key.
    pub(crate) fn row(&self, record_key: &[u8]) -> Vec<u8> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        [&number.to_be_bytes()[..], record_key].concat()
    }

    /// The record key in a row.
    pub(crate) fn record_key_of(row: &[u8]) -> &[u8] {
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
        let indexes = self.primary_index.iter().chain(&self.indexes).map(|index| {
            let spec = &index.spec;
            let documents = spec.shown.as_bytes().len() + spec.key.as_bytes().len();
            INDEX_BYTES + 2 * documents + spec.name.len()
        });
        // Every partition has a copy of the indexes' specifications.
        let copies = 1 + self.partitions.list.len();
        copies * (COLLECTION_BYTES + indexes.sum::<usize>()) + options
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

    /// Whether a state comes before the rename that gave the collection its present name.
    pub(crate) fn is_renamed_after(&self, state: &Snapshot) -> bool {
        state.timestamp().0 < self.shared.renamed_at.load(Ordering::Acquire)
    }

    /// The dictionary of the documents, by their record keys. Of a collection of the server's, which is
    /// never partitioned; elsewhere [`Collection::primary_of`] tells it.
    pub fn primary(&self) -> DictionaryId {
        self.primary
    }

    /// Every dictionary of it: also those that stand for a partitioned collection and its indexes.
    pub(crate) fn dictionaries(&self) -> impl Iterator<Item = DictionaryId> {
        let partitions = self.partitions.list.iter().map(|partition| partition.primary);
        let indexes = self.indexes.iter();
        let indexes =
            indexes.flat_map(|index| index.parts.values().copied().chain([index.dictionary]));
        let own = (!self.is_view()).then_some(self.primary);
        own.into_iter().chain(self.order).chain(partitions).chain(indexes)
    }

    /// Whether everything of it is there in a state: false where the state is that after a drop, of it or of
    /// one of its indexes, which this version of the metadata does not know of yet, and where it has other
    /// partitions.
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

    /// The keystring of an `_id`. It is the record key of its document where the primary key is `_id`
    /// alone, as in the collections that the server keeps for itself; everywhere else
    /// [`Collection::find_record_key`] tells that.
    pub fn id_key(&self, id: RawBsonRef<'_>) -> Result<Vec<u8>> {
        indexkeys::id_key(id, self.collation())
    }

    /// The key under which a document stands in the primary dictionary: the keystring of the values of
    /// the primary key.
    pub fn record_key(&self, document: &RawDocument) -> Result<Vec<u8>> {
        let id = required_id(document)?;
        match &self.options.primary_key {
            None => self.id_key(id),
            Some(key) => key.record_key(document, id, self.collation()),
        }
    }

    /// The record key of the document with this `_id`, where one may stand; of several in different
    /// partitions the first. `get` reads the state that is looked at, which is not needed where the primary
    /// key is `_id` alone.
    pub fn find_record_key(
        &self,
        id: RawBsonRef<'_>,
        get: impl Fn(DictionaryId, &[u8]) -> Result<Option<Value>>,
    ) -> Result<Option<Vec<u8>>> {
        self.find_record_key_in(Vec::new(), id, get)
    }

    /// The same, which may be written into `room`.
    pub fn find_record_key_in(
        &self,
        room: Vec<u8>,
        id: RawBsonRef<'_>,
        get: impl Fn(DictionaryId, &[u8]) -> Result<Option<Value>>,
    ) -> Result<Option<Vec<u8>>> {
        let id_key = indexkeys::id_key_in(room, id, self.collation())?;
        let Some(index) = self.id_index() else { return Ok(Some(id_key)) };
        for place in 0..self.partitions.list.len().max(1) {
            if let Some(value) = get(self.index_at(index, place), &id_key)? {
                return Ok(Some(index.keys.record_key_of(&id_key, &value)?.to_vec()));
            }
        }
        Ok(None)
    }

    /// Whether a document may stand under `key`.
    pub(crate) fn is_record_key(&self, key: &[u8], document: &RawDocument) -> Result<bool> {
        let shared = self.options.time_series.is_some();
        let rest = key.strip_prefix(&self.record_key(document)?[..]);
        Ok(rest.is_some_and(|rest| rest.is_empty() || (shared && indexkeys::is_suffix(rest))))
    }

    /// The fields whose values make record keys, and the index that they are read as, where `_id` is not
    /// the only one.
    pub fn primary_index(&self) -> Option<&Arc<Index>> {
        self.primary_index.as_ref()
    }

    /// What the order of the documents is called among the indexes.
    pub fn primary_name(&self) -> &str {
        match &self.primary_index {
            Some(index) => &index.spec.name,
            None => self.options.id_index_name(),
        }
    }

    /// The index on `_id`, where it is not the collection itself.
    pub fn id_index(&self) -> Option<&Arc<Index>> {
        self.primary_index.as_ref().and_then(|_| self.indexes.first())
    }

    /// Whether one `_id` is that of one document: not of measurements, nor where partitions end at other
    /// fields.
    pub fn has_unique_ids(&self) -> bool {
        let has_other_fields = self.is_partitioned() && self.options.primary_key.is_some();
        self.options.time_series.is_none() && !has_other_fields
    }

    /// The indexes beside the documents. Where the primary key is `_id` alone there is none on `_id`: it
    /// is the primary dictionary itself. Else that one is the first.
    pub fn indexes(&self) -> &[Arc<Index>] {
        &self.indexes
    }

    /// The indexes beside the documents that clients see.
    pub fn shown_indexes(&self) -> impl Iterator<Item = &Arc<Index>> {
        self.indexes.iter().filter(|index| !index.spec.is_internal())
    }

    /// How many indexes clients see, the order of the documents counted.
    pub fn shown_index_count(&self) -> usize {
        self.shown_indexes().count() + 1
    }

    /// The index of this name beside the documents.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.spec.name == name)
    }

    /// Whether documents may be there that were not counted: only a walk over them tells how many there are.
    pub fn counts_are_unknown(&self) -> bool {
        self.shared.counts.is_unknown()
    }

    /// How many documents are committed now. Exact, unless [`Collection::counts_are_unknown`], and takes no look
    /// at the data.
    pub fn count(&self) -> u64 {
        if !self.is_partitioned() {
            return self.shared.counts.documents();
        }
        self.partitions.list.iter().map(|partition| partition.shared.counts.documents()).sum()
    }

    /// The documents' size in bytes, as BSON.
    pub fn data_size(&self) -> u64 {
        if !self.is_partitioned() {
            return self.shared.counts.bytes();
        }
        self.partitions.list.iter().map(|partition| partition.shared.counts.bytes()).sum()
    }

    /// Counts one plan over the documents themselves, and how many of them it looked at.
    pub fn note_scanned(&self, documents: u64) {
        self.shared.used.query();
        self.shared.used.scanned(documents, documents);
    }

    /// Counts one plan that looked an `_id` up, and whether there was a document.
    pub fn note_id_lookup(&self, found: bool) {
        match self.id_index() {
            None => self.note_scanned(u64::from(found)),
            Some(index) => {
                index.note_use();
                index.note_scanned(u64::from(found), u64::from(found));
            }
        }
    }

    /// How the order of the documents was used since the server started.
    pub(crate) fn primary_used(&self) -> IndexUse {
        let mut used = self.shared.used.read();
        for partition in &self.partitions.list {
            let writes = partition.shared.used.read();
            used.inserts += writes.inserts;
            used.deletes += writes.deletes;
        }
        if let Some(index) = &self.primary_index {
            let scans = index.used();
            used.queries += scans.queries;
            used.scanned += scans.scanned;
            used.scanned_objects += scans.scanned_objects;
        }
        used
    }

    /// Whether it was dropped since this version was looked up; its cursors must end.
    pub fn is_dropped(&self) -> bool {
        self.shared.dropped.load(Ordering::Acquire)
    }
}

/// The `_id` of a document that is stored or about to be.
pub(crate) fn required_id(document: &RawDocument) -> Result<RawBsonRef<'_>> {
    bsonval::raw::field(document, "_id")?
        .ok_or_else(|| Error::new(Code::INTERNAL_ERROR, "a stored document has an _id"))
}

/// One index.
#[derive(Debug)]
pub struct Index {
    pub(crate) spec: IndexSpec,
    /// Of an index of a partitioned collection it is empty, and stands for the index in states.
    pub(crate) dictionary: DictionaryId,
    /// Under whose number its multikey mask stands: `dictionary`, in the store of a partition that of the
    /// collection's index.
    pub(crate) logical: DictionaryId,
    /// Of an index of a partitioned collection: where its entries stand.
    pub(crate) parts: IndexParts,
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

    /// Its dictionary. Where the collection is partitioned it only names the index, and
    /// [`Collection::index_at`] tells where entries stand.
    pub fn dictionary(&self) -> DictionaryId {
        self.dictionary
    }

    /// Makes and reads its keys.
    pub fn keys(&self) -> &indexkeys::KeyMaker {
        &self.keys
    }

    /// Whether it is the collection itself, in the order of its primary key.
    pub fn is_primary(&self) -> bool {
        self.keys.holds_records()
    }

    /// Bit `i` is set where part `i` has met an array. Read it after taking the snapshot.
    pub fn multikey_parts(&self) -> u32 {
        self.state.observed.load(Ordering::Acquire)
    }

    /// Whether it has exactly one entry of each document.
    pub(crate) fn has_each_once(&self) -> bool {
        let spec = &self.spec;
        let leaves_out = spec.sparse || spec.partial.is_some();
        let has_many = spec.wildcard.is_some() || spec.is_text() || spec.is_geo();
        !leaves_out && !has_many && self.multikey_parts() == 0
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
        primary_index: collection.primary_index.clone(),
        indexes,
        shared: Arc::clone(&collection.shared),
        partitions: collection.partitions.clone(),
        owner: collection.owner,
    }
    .assembled()
}

/// The index as a part of another version, which is there from `created` on.
pub(crate) fn clone_index(index: &Index, created: Timestamp) -> Index {
    Index {
        spec: index.spec.clone(),
        dictionary: index.dictionary,
        logical: index.logical,
        parts: index.parts.clone(),
        created,
        state: Arc::clone(&index.state),
        keys: index.keys.clone(),
    }
}
