//! Filling the dictionaries of new indexes with the entries of a snapshot's documents.
//!
//! ```text
//!  documents ─▶ thread: entries ─▶ sorter ─▶ leaves past the log     where there are enough
//!                                         └▶ steps through the log   where they are few, or it is to have everything
//! ```

use super::{Build, CHUNK_BYTES, CHUNK_DOCUMENTS, create, keys, mark};
use crate::data::documents::duplicate_key;
use crate::data::keys_behind::KeyFailure;
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index};
use bson::raw::RawDocument;
use engine::{
    Derive, Direction, Durability, FillError, FillTarget, KeyRange, Loaded, PutRow, Sorted, Twice,
};
use errors::Result;
use indexkeys::{IndexKey, RecordKey};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

/// Entries of fewer bytes go through the log: a checkpoint would take longer.
const LEAST_LOADED_BYTES: u64 = if cfg!(test) { 400 } else { 4 << 20 };

/// What `currentOp` says of a build, in MongoDB's words.
const SCANNING: &str = "Index Build: scanning collection";
const INSERTING: &str = "Index Build: inserting keys from external sorter into index";

impl Build {
    /// The documents of the first snapshot: their entries are sorted first, because a tree that is
    /// filled in order writes each of them once.
    pub(super) fn fill(&mut self, check: &dyn Fn() -> Result<()>) -> Result<()> {
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
            let failure = KeyFailure::default();
            let entries = entries_behind(store, self.space(place, 0), &failure);
            let mut behind = self.engine.sort_behind(sorter, entries);
            let mut cursor = self
                .seen
                .cursor(store.primary, KeyRange::all(), Direction::Forward)
                .map_err(from_engine)?;
            while let Some((id, value)) = cursor.next().map_err(from_engine)? {
                behind.put(id, value).map_err(|error| failure.cause(error))?;
                documents += 1;
                if documents % CHUNK_DOCUMENTS == 0 {
                    let (done, known) = (documents as u64, self.collection.count());
                    limits::note_progress(SCANNING, done, known.max(done));
                    self.check(check)?;
                }
            }
            sorter = behind.finish().map_err(|error| failure.cause(error))?;
        }
        Ok(Arc::new(sorter.finish().map_err(from_engine)?))
    }
}

/// Whether two entries with one key may be there: they are of one document, or the index is not unique.
fn are_of_one(index: &Index, key: &[u8], one: &[u8], other: &[u8]) -> Result<bool> {
    let record = |value| index.keys.record_key_of(key, value);
    Ok(!index.spec.unique || record(one)? == record(other)?)
}

/// Makes the entries of a store's documents on a thread; those of its first index are sorted in the space
/// `first`. `failure` learns why it cannot.
fn entries_behind(store: &Arc<Collection>, first: u32, failure: &KeyFailure) -> Arc<Derive> {
    let (store, failure) = (Arc::clone(store), failure.clone());
    Arc::new(move |id: &[u8], document: &[u8], put: &mut PutRow<'_>| {
        let of_document = || -> Result<_> {
            let document = RawDocument::from_bytes(document)?;
            Ok((document, RecordKey::of(document, id)?))
        };
        let (document, record) = of_document().map_err(|error| failure.keep(error))?;
        for (space, index) in (first..).zip(&store.indexes) {
            let entries = keys(index, document, record).map_err(|error| failure.keep(error))?;
            entries.iter().try_for_each(|entry| put(space, &entry.key, &entry.value))?;
        }
        Ok(())
    })
}
