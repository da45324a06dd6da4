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

mod filling;

use crate::catalog::Catalog;
use crate::data::documents::{difference, duplicate_key, stores_sharing};
use crate::ddl::partitions::parts_of;
use crate::failure::from_engine;
use crate::metadata::collection::{ChangeLog, Collection, Index, clone_index, with_indexes};
use crate::metadata::records;
use crate::metadata::records::drop_unfinished;
use bson::raw::RawDocument;
use engine::{
    DictionaryId, DictionaryOptions, Direction, Durability, Engine, EngineTxn, KeyRange,
    OnConflict, Snapshot, Timestamp, TxnOptions,
};
use errors::{Code, Error, Result};
use indexkeys::{IndexKey, IndexSpec, RecordKey};
use std::collections::BTreeSet;
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
            Some(bytes) => {
                let document = RawDocument::from_bytes(bytes)?;
                keys(index, document, RecordKey::of(document, id)?)
            }
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

/// Makes a dictionary that a crash does not leave behind.
fn create(txn: &mut EngineTxn, dictionary: DictionaryId, shape: DictionaryOptions) -> Result<()> {
    txn.create_dictionary_as(dictionary, shape).map_err(from_engine)?;
    mark(txn, dictionary)
}

/// Has the next start drop a dictionary, unless its index is there then.
fn mark(txn: &mut EngineTxn, dictionary: DictionaryId) -> Result<()> {
    txn.put(DictionaryId::ROOT, &records::building_key(dictionary), &[]).map_err(from_engine)
}

fn keys(index: &Index, document: &RawDocument, record: RecordKey<'_>) -> Result<Vec<IndexKey>> {
    let keys = index.keys.make(document, record)?;
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
