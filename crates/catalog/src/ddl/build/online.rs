//! Filling new indexes while reads and writes go on.
//!
//! ```text
//! begin    under the exclusive metadata lock, for a moment: a change log, a snapshot
//! fill     the documents of the snapshot, entries sorted and  writers note what they change
//!          then loaded past the log, or, where they are few
//!          or the log is to have everything, written
//! catch up what was noted: entries of the document as of the last snapshot out, as of a new one in
//! finish   under the exclusive lock again, for a moment: the last few, then the index is there
//! ```
//!
//! Always true:
//! 1. The index holds the entries of exactly the documents of `seen`, once a step is done; only the
//!    builder writes to it.
//! 2. A document that differs between `seen` and now is in the change log, or its writer has not
//!    committed yet.
//! 3. A marker in `ROOT` names each dictionary from the commit that made it until the one that makes the
//!    index visible; a crash before leaves markers, and the next start drops what they name.
//! 4. What is loaded is in a checkpoint before its dictionary is there.

use crate::catalog::Catalog;
use crate::data::documents::{difference, duplicate_key, stores_sharing};
use crate::ddl::partitions::parts_of;
use crate::failure::from_engine;
use crate::metadata::collection::{ChangeLog, Collection, Index, clone_index, with_indexes};
use crate::metadata::records;
use crate::metadata::records::drop_unfinished;
use bson::raw::RawDocument;
use engine::{
    DictionaryId, DictionaryOptions, Direction, Durability, Engine, EngineTxn, FillError,
    FillTarget, KeyRange, Loaded, OnConflict, Snapshot, Sorted, Timestamp, Twice, TxnOptions,
};
use errors::{Code, Error, Result};
use indexkeys::{IndexKey, IndexSpec, RecordKey};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A step commits after this many bytes of entries…
const CHUNK_BYTES: usize = 4 << 20;
/// …or after this many documents.
const CHUNK_DOCUMENTS: usize = if cfg!(test) { 8 } else { 10_000 };
/// With fewer changes left, writers are kept out while they are caught up with.
const FEW_CHANGES: usize = if cfg!(test) { 2 } else { 1000 };
/// Writers that are always faster are kept out after so many attempts.
const MOST_PASSES: usize = 50;

/// Entries of fewer bytes go through the log: a checkpoint would take longer.
const LEAST_LOADED_BYTES: u64 = if cfg!(test) { 400 } else { 4 << 20 };

/// What `currentOp` says of a build, in MongoDB's words.
const SCANNING: &str = "Index Build: scanning collection";
const INSERTING: &str = "Index Build: inserting keys from external sorter into index";

/// Indexes of one collection that are being built.
pub(super) struct Build {
    engine: Engine,
    pub(super) collection: Arc<Collection>,
    pub(super) indexes: Vec<Index>,
    /// The shape of each index's dictionaries.
    shapes: Vec<DictionaryOptions>,
    /// Their dictionaries are there.
    is_made: bool,
    /// The collection with these indexes alone: its stores have the dictionaries that are filled. No
    /// partition comes or goes during a build.
    filled: Arc<Collection>,
    changes: Arc<ChangeLog>,
    seen: Snapshot,
}

impl Drop for Build {
    fn drop(&mut self) {
        let unfinished = &self.collection.shared.unfinished_indexes;
        unfinished.fetch_sub(self.indexes.len(), Ordering::Relaxed);
    }
}

/// An entry that another document still holds.
struct Refused {
    index: usize,
    id: Vec<u8>,
    entry: IndexKey,
}

impl Build {
    /// Makes the dictionaries, and has writers note their changes from now on. The caller holds the
    /// exclusive metadata lock.
    pub(super) fn begin(
        catalog: &Catalog,
        collection: &Arc<Collection>,
        specs: Vec<IndexSpec>,
    ) -> Result<Self> {
        let engine = catalog.engine();
        let mut txn = engine.begin(TxnOptions::default());
        let (mut indexes, mut shapes) = (Vec::new(), Vec::new());
        for spec in specs {
            shapes.push(catalog.shape_of_index(&collection.options, &spec));
            let dictionary = engine.new_dictionary_id();
            let mut index = records::new_index(spec, &collection.options, dictionary, Timestamp(0));
            index.parts = parts_of(collection, &mut || Ok(engine.new_dictionary_id()))?;
            indexes.push(index);
        }
        let alone = indexes.iter().map(|index| Arc::new(clone_index(index, Timestamp(0))));
        let filled = Arc::new(with_indexes(collection, alone.collect()));
        let noted = engine.new_dictionary_id();
        create(&mut txn, noted, DictionaryOptions::default())?;
        let changes = Arc::new(ChangeLog::new(noted));
        txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
        collection.shared.note_changes(Some(&changes));
        let seen = engine.snapshot();
        let (engine, collection) = (engine.clone(), Arc::clone(collection));
        collection.shared.unfinished_indexes.fetch_add(indexes.len(), Ordering::Relaxed);
        Ok(Self { engine, collection, indexes, shapes, is_made: false, filled, changes, seen })
    }

    fn dictionaries(&self) -> Vec<DictionaryId> {
        let mut all = vec![self.changes.dictionary()];
        if self.is_made {
            all.extend(self.shaped().map(|(dictionary, _)| dictionary));
        }
        all
    }

    /// The dictionaries of the indexes, each with its shape: those that stand for the whole index where there
    /// are partitions, too.
    fn shaped(&self) -> impl Iterator<Item = (DictionaryId, DictionaryOptions)> {
        self.indexes.iter().zip(&self.shapes).flat_map(|(index, shape)| {
            let parts = index.parts.values().copied();
            std::iter::once(index.dictionary).chain(parts).map(|dictionary| (dictionary, *shape))
        })
    }

    /// The indexes in every store, each with the space in which its entries are sorted.
    fn parts(&self) -> impl Iterator<Item = (u32, &Arc<Index>)> {
        let stores = self.filled.stores().iter();
        (0..).zip(stores.flat_map(|store| &store.indexes))
    }

    /// The space for the entries of the index at `number` in the store at `place`.
    fn space(&self, place: usize, number: usize) -> u32 {
        (place * self.indexes.len() + number) as u32
    }

    /// The build failed: as if it had never been. The caller holds the exclusive metadata lock.
    pub(super) fn abandon(&self) -> Result<()> {
        self.collection.shared.note_changes(None);
        drop_unfinished(&self.engine, &self.dictionaries())
    }

    /// Writes what makes the indexes visible, but for the collection's record. The caller holds the
    /// exclusive metadata lock since before the last [`Build::catch_up`].
    pub(super) fn finish(&self, txn: &mut EngineTxn) -> Result<()> {
        for dictionary in self.dictionaries() {
            txn.delete(DictionaryId::ROOT, &records::building_key(dictionary))
                .map_err(from_engine)?;
        }
        txn.drop_dictionary(self.changes.dictionary()).map_err(from_engine)?;
        for index in &self.indexes {
            let mask = index.state.observed.load(Ordering::Acquire);
            let key = records::multikey_key(index.dictionary);
            txn.put(DictionaryId::ROOT, &key, &mask.to_le_bytes()).map_err(from_engine)?;
            index.state.persisted.store(mask, Ordering::Release);
        }
        Ok(())
    }

    /// The build is visible: writers maintain the indexes themselves. Still under the lock.
    pub(super) fn end(&self) {
        self.collection.shared.note_changes(None);
    }

    /// Everything until only a few changes are left. `check` is asked now and then whether to go on.
    pub(super) fn run(&mut self, check: &dyn Fn() -> Result<()>) -> Result<()> {
        self.fill(check)?;
        for _ in 0..MOST_PASSES {
            if self.catch_up(check)? <= FEW_CHANGES {
                break;
            }
        }
        Ok(())
    }

    /// The documents of the first snapshot: their entries are sorted first, because a tree that is
    /// filled in order writes each of them once.
    fn fill(&mut self, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let sorted = self.sort(check)?;
        self.check_partitions(&sorted, check)?;
        let is_loaded = sorted.row_bytes() >= LEAST_LOADED_BYTES && self.engine.may_load();
        if !(is_loaded && self.load(&sorted, check)?) {
            self.write(&sorted, check)?;
        }
        Ok(())
    }

    /// Has the entries loaded past the log; false where a backup began meanwhile, which would lack them:
    /// then nothing has come of it.
    fn load(&mut self, sorted: &Arc<Sorted>, check: &dyn Fn() -> Result<()>) -> Result<bool> {
        let loaded = self.fill_past_the_log(sorted, check)?;
        self.engine.make_durable(&loaded).map_err(from_engine)?;
        self.check(check)?;
        if !loaded.iter().all(Loaded::is_adoptable) {
            return Ok(false);
        }
        let known: BTreeSet<_> = loaded.iter().map(Loaded::id).collect();
        let mut txn = self.begin_step();
        for (dictionary, shape) in
            self.shaped().filter(|(dictionary, _)| !known.contains(dictionary))
        {
            create(&mut txn, dictionary, shape)?;
        }
        for loaded in loaded {
            mark(&mut txn, loaded.id())?;
            txn.adopt(loaded).map_err(from_engine)?;
        }
        txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
        self.is_made = true;
        Ok(true)
    }

    /// Fills the dictionaries of all parts, several at a time.
    fn fill_past_the_log(
        &self,
        sorted: &Arc<Sorted>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<Loaded>> {
        let target = |(space, index): (u32, &Arc<Index>)| {
            let options = self.shapes[space as usize % self.shapes.len()];
            FillTarget { space, id: index.dictionary, options, beside: None }
        };
        let targets = self.parts().map(target).collect();
        let indexes: Vec<_> = self.parts().map(|(_, index)| Arc::clone(index)).collect();
        let are_same = move |space: u32, key: &[u8], one: &[u8], other: &[u8]| {
            let index = &indexes[space as usize];
            are_of_one(index, key, one, other).unwrap_or(false)
        };
        let mut asked = Ok(());
        let total = sorted.row_count();
        let mut go_on = |done| {
            limits::note_progress(INSERTING, done, total);
            asked = self.check(check);
            asked.is_ok()
        };
        let filled = self.engine.fill(sorted, targets, Arc::new(are_same), &mut go_on);
        asked?;
        match filled {
            Ok(loaded) => Ok(loaded),
            Err(FillError::Engine(error)) => Err(from_engine(error)),
            Err(FillError::Twice(Twice { space, key, values: [value, other] })) => {
                let index = &self.indexes[space as usize % self.indexes.len()];
                are_of_one(index, &key, &value, &other)?;
                Err(duplicate_key(&self.collection, index, &IndexKey { key, value }))
            }
            Err(FillError::Stopped) => Err(from_engine(engine::Error::Interrupted)),
        }
    }

    /// Has the entries written as any others.
    fn write(&mut self, sorted: &Sorted, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut txn = self.begin_step();
        for (dictionary, shape) in self.shaped() {
            create(&mut txn, dictionary, shape)?;
        }
        txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
        self.is_made = true;
        let (mut done, total) = (0, sorted.row_count());
        for (space, index) in self.parts() {
            let mut txn = self.begin_step();
            let (mut bytes, mut entries) = (0, 0);
            self.each(sorted, space, index, check, |key, value| {
                done += 1;
                if done % CHUNK_DOCUMENTS as u64 == 0 {
                    limits::note_progress(INSERTING, done, total);
                }
                txn.write_covered(index.dictionary, key, Some(value)).map_err(from_engine)?;
                bytes += key.len() + value.len();
                entries += 1;
                if bytes >= CHUNK_BYTES || entries >= CHUNK_DOCUMENTS {
                    let step = std::mem::replace(&mut txn, self.begin_step());
                    step.commit(Durability::Buffered).map_err(from_engine)?.visible();
                    (bytes, entries) = (0, 0);
                }
                Ok(())
            })?;
            txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
        }
        Ok(())
    }

    /// Hands out the entries of a space, each key once. Refuses two documents with one key of a unique index.
    fn each(
        &self,
        sorted: &Sorted,
        space: u32,
        index: &Index,
        check: &dyn Fn() -> Result<()>,
        mut put: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut walk = sorted.walk(space).map_err(from_engine)?;
        let mut last = IndexKey { key: Vec::new(), value: Vec::new() };
        let mut entries = 0;
        while let Some((key, value)) = walk.next().map_err(from_engine)? {
            entries += 1;
            if entries % CHUNK_DOCUMENTS == 0 {
                self.check(check)?;
            }
            if entries > 1 && key == last.key {
                self.check_same(index, &last, key, value)?;
                continue;
            }
            put(key, value)?;
            for (bytes, with) in [(&mut last.key, key), (&mut last.value, value)] {
                bytes.clear();
                bytes.extend_from_slice(with);
            }
        }
        Ok(())
    }

    /// Two entries of one key are those of one document, where the index is unique.
    fn check_same(&self, index: &Index, entry: &IndexKey, key: &[u8], value: &[u8]) -> Result<()> {
        if are_of_one(index, key, &entry.value, value)? {
            return Ok(());
        }
        Err(duplicate_key(&self.collection, index, entry))
    }

    /// Refuses two documents with one key of a unique index in different partitions. Such an index has the
    /// fields by which partitions are told: few can have the same.
    fn check_partitions(&self, sorted: &Sorted, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let stores = self.filled.stores();
        if stores.len() < 2 {
            return Ok(());
        }
        for (number, index) in
            self.indexes.iter().enumerate().filter(|(_, index)| index.spec.unique)
        {
            let mut walks = Vec::new();
            for place in 0..stores.len() {
                walks.push(sorted.walk(self.space(place, number)).map_err(from_engine)?);
            }
            let mut heap = BinaryHeap::new();
            for (place, walk) in walks.iter_mut().enumerate() {
                let row = walk.next().map_err(from_engine)?;
                heap.extend(row.map(|(key, value)| Reverse((key.to_vec(), value.to_vec(), place))));
            }
            let (mut last, mut entries): (Option<IndexKey>, usize) = (None, 0);
            while let Some(Reverse((key, value, place))) = heap.pop() {
                entries += 1;
                if entries % CHUNK_DOCUMENTS == 0 {
                    self.check(check)?;
                }
                if let Some(last) = last.as_ref().filter(|last| last.key == key) {
                    self.check_same(index, last, &key, &value)?;
                }
                last = Some(IndexKey { key, value });
                let row = walks[place].next().map_err(from_engine)?;
                heap.extend(row.map(|(key, value)| Reverse((key.to_vec(), value.to_vec(), place))));
            }
        }
        Ok(())
    }

    /// The entries of the first snapshot's documents, a space for each index in each store.
    fn sort(&self, check: &dyn Fn() -> Result<()>) -> Result<Arc<Sorted>> {
        let mut sorter = self.engine.sorter();
        let mut documents = 0;
        for (place, store) in self.filled.stores().iter().enumerate() {
            let mut cursor = self
                .seen
                .cursor(store.primary, KeyRange::all(), Direction::Forward)
                .map_err(from_engine)?;
            while let Some((id, value)) = cursor.next().map_err(from_engine)? {
                let document = RawDocument::from_bytes(value)?;
                for (number, index) in store.indexes.iter().enumerate() {
                    let space = self.space(place, number);
                    for entry in keys(index, document, id)? {
                        sorter.put(space, &entry.key, &entry.value).map_err(from_engine)?;
                    }
                }
                documents += 1;
                if documents % CHUNK_DOCUMENTS == 0 {
                    let (done, known) = (documents as u64, self.collection.count());
                    limits::note_progress(SCANNING, done, known.max(done));
                    self.check(check)?;
                }
            }
        }
        Ok(Arc::new(sorter.finish().map_err(from_engine)?))
    }

    /// Brings the indexes from the last snapshot to now; returns how many changes that were.
    pub(super) fn catch_up(&mut self, check: &dyn Fn() -> Result<()>) -> Result<usize> {
        let now = self.engine.snapshot();
        let mut noted = now
            .cursor(self.changes.dictionary(), KeyRange::all(), Direction::Forward)
            .map_err(from_engine)?;
        let (mut changes, mut refused) = (0, Vec::new());
        loop {
            let (mut rows, mut ids) = (Vec::new(), BTreeSet::new());
            while rows.len() < CHUNK_DOCUMENTS
                && let Some((row, _)) = noted.next().map_err(from_engine)?
            {
                ids.insert(ChangeLog::record_key_of(row).to_vec());
                rows.push(row.to_vec());
            }
            if rows.is_empty() {
                break;
            }
            changes += rows.len();
            self.check(check)?;
            let mut txn = self.begin_step();
            for id in &ids {
                self.change(&mut txn, id, &now, &mut refused)?;
            }
            for row in &rows {
                txn.write_covered(self.changes.dictionary(), row, None).map_err(from_engine)?;
            }
            txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
        }
        // Who held those keys may have given them up since.
        let mut txn = self.begin_step();
        for Refused { index, id, entry } in refused {
            if !self.add(&mut txn, index, &id, &entry)? {
                return Err(duplicate_key(&self.collection, &self.indexes[index], &entry));
            }
        }
        txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
        self.seen = now;
        Ok(changes)
    }

    /// One document's entries, from the last snapshot's to those of `now`. The same again does no
    /// harm.
    fn change(
        &self,
        txn: &mut EngineTxn,
        id: &[u8],
        now: &Snapshot,
        refused: &mut Vec<Refused>,
    ) -> Result<()> {
        let store = self.filled.store_of(id);
        let primary = store.primary;
        let before = self.seen.get(primary, id).map_err(from_engine)?;
        let after = now.get(primary, id).map_err(from_engine)?;
        if before.as_deref() == after.as_deref() {
            return Ok(());
        }
        let keys_of = |index: &Index, document: Option<&[u8]>| match document {
            Some(bytes) => keys(index, RawDocument::from_bytes(bytes)?, id),
            None => Ok(Vec::new()),
        };
        for (number, index) in store.indexes.iter().enumerate() {
            let (old, new) =
                (keys_of(index, before.as_deref())?, keys_of(index, after.as_deref())?);
            let (gone, added) = difference(&old, &new);
            for entry in gone {
                remove(txn, index, id, entry)?;
            }
            for (entry, _) in added {
                if !self.add(txn, number, id, entry)? {
                    let (id, entry) = (id.to_vec(), entry.clone());
                    refused.push(Refused { index: number, id, entry });
                }
            }
        }
        Ok(())
    }

    /// Adds an entry of the index at `number`; false where it is unique and another document holds the key.
    fn add(&self, txn: &mut EngineTxn, number: usize, id: &[u8], entry: &IndexKey) -> Result<bool> {
        let own = self.filled.store_of(id);
        if self.indexes[number].spec.unique {
            for place in stores_sharing(&self.filled, id)? {
                let other = &self.filled.stores()[place];
                let theirs = other.indexes[number].dictionary;
                if other.number != own.number
                    && txn.get_for_update(theirs, &entry.key).map_err(from_engine)?.is_some()
                {
                    return Ok(false);
                }
            }
        }
        add(txn, &own.indexes[number], id, entry)
    }

    fn begin_step(&self) -> EngineTxn {
        let options = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };
        self.engine.begin(options)
    }

    fn check(&self, check: &dyn Fn() -> Result<()>) -> Result<()> {
        if self.collection.is_dropped() {
            return Err(Error::new(
                Code::INDEX_BUILD_ABORTED,
                format!(
                    "Index build aborted: collection {} was dropped",
                    self.collection.namespace
                ),
            ));
        }
        check()
    }
}

/// Whether two entries with one key may be there: they are of one document, or the index is not unique.
fn are_of_one(index: &Index, key: &[u8], one: &[u8], other: &[u8]) -> Result<bool> {
    let record = |value| index.keys.record_key_of(key, value);
    Ok(!index.spec.unique || record(one)? == record(other)?)
}

/// Makes a dictionary that a crash does not leave behind.
fn create(txn: &mut EngineTxn, dictionary: DictionaryId, shape: DictionaryOptions) -> Result<()> {
    txn.create_dictionary_as(dictionary, shape).map_err(from_engine)?;
    mark(txn, dictionary)
}

/// Has the next start drop a dictionary, unless its index is there then.
fn mark(txn: &mut EngineTxn, dictionary: DictionaryId) -> Result<()> {
    txn.put(DictionaryId::ROOT, &records::building_key(dictionary), &[]).map_err(from_engine)
}

fn keys(index: &Index, document: &RawDocument, record: &[u8]) -> Result<Vec<IndexKey>> {
    let keys = index.keys.make(document, RecordKey::of(document, record)?)?;
    index.state.observed.fetch_or(keys.multikey, Ordering::AcqRel);
    Ok(keys.entries)
}

/// False where the index is unique and another document holds the key.
fn add(txn: &mut EngineTxn, index: &Index, id: &[u8], entry: &IndexKey) -> Result<bool> {
    if !index.spec.unique {
        return txn
            .write_covered(index.dictionary, &entry.key, Some(&entry.value))
            .map_err(from_engine)
            .map(|()| true);
    }
    let added = txn.insert(index.dictionary, &entry.key, &entry.value).map_err(from_engine)?;
    if added {
        return Ok(true);
    }
    let own = is_held_by(txn, index, id, entry)?;
    if own {
        txn.put(index.dictionary, &entry.key, &entry.value).map_err(from_engine)?;
    }
    Ok(own)
}

fn remove(txn: &mut EngineTxn, index: &Index, id: &[u8], entry: &IndexKey) -> Result<()> {
    if !index.spec.unique {
        return txn.write_covered(index.dictionary, &entry.key, None).map_err(from_engine);
    }
    if is_held_by(txn, index, id, entry)? {
        txn.delete(index.dictionary, &entry.key).map_err(from_engine)?;
    }
    Ok(())
}

/// Whether a unique index's entry is this document's.
fn is_held_by(txn: &mut EngineTxn, index: &Index, id: &[u8], entry: &IndexKey) -> Result<bool> {
    let held = txn.get_for_update(index.dictionary, &entry.key).map_err(from_engine)?;
    held.map_or(Ok(false), |value| Ok(index.keys.record_key_of(&entry.key, &value)? == id))
}
