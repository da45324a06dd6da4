//! Filling new indexes while reads and writes go on.
//!
//! ```text
//! begin    under the exclusive metadata lock, for a moment: dictionaries, a change log, a snapshot
//! fill     the documents of the snapshot, entries sorted      writers note what they change
//! catch up what was noted: entries of the document as of the last snapshot out, as of a new one in
//! finish   under the exclusive lock again, for a moment: the last few, then the index is there
//! ```
//!
//! Always true:
//! 1. The index holds the entries of exactly the documents of `seen`, once a step is done; only the
//!    builder writes to it.
//! 2. A document that differs between `seen` and now is in the change log, or its writer has not
//!    committed yet.
//! 3. A marker in `ROOT` names each dictionary until the commit that makes the index visible; a
//!    crash before leaves markers, and the next start drops what they name.

use crate::catalog::Catalog;
use crate::data::documents::{difference, duplicate_key};
use crate::failure::from_engine;
use crate::metadata::collection::{ChangeLog, Collection, Index};
use crate::metadata::records;
use crate::metadata::records::drop_unfinished;
use bson::raw::RawDocument;
use engine::{
    DictionaryId, DictionaryOptions, Direction, Durability, Engine, KeyRange, OnConflict, Snapshot,
    Sorter, Timestamp, TxnOptions,
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
    changes: Arc<ChangeLog>,
    seen: Snapshot,
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
        let mut indexes = Vec::new();
        for spec in specs {
            let options = catalog.shape_of_index(&collection.options, &spec);
            let dictionary = create(&mut txn, options)?;
            indexes.push(records::new_index(
                spec,
                collection.collation(),
                dictionary,
                Timestamp(0),
            ));
        }
        let changes = Arc::new(ChangeLog::new(create(&mut txn, DictionaryOptions::default())?));
        txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
        collection.shared.note_changes(Some(&changes));
        let seen = engine.snapshot();
        let (engine, collection) = (engine.clone(), Arc::clone(collection));
        Ok(Self { engine, collection, indexes, changes, seen })
    }

    fn dictionaries(&self) -> Vec<DictionaryId> {
        let indexes = self.indexes.iter().map(|index| index.dictionary);
        indexes.chain([self.changes.dictionary()]).collect()
    }

    /// The build failed: as if it had never been. The caller holds the exclusive metadata lock.
    pub(super) fn abandon(&self) -> Result<()> {
        self.collection.shared.note_changes(None);
        drop_unfinished(&self.engine, &self.dictionaries())
    }

    /// Writes what makes the indexes visible, but for the collection's record. The caller holds the
    /// exclusive metadata lock since before the last [`Build::catch_up`].
    pub(super) fn finish(&self, txn: &mut engine::EngineTxn) -> Result<()> {
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
    fn fill(&self, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let sorter = self.sort(check)?;
        for (number, index) in self.indexes.iter().enumerate() {
            let mut sorted = sorter.sorted(number as u64);
            let mut txn = self.begin_step();
            let (mut bytes, mut entries) = (0, 0);
            while let Some((key, value)) = sorted.next().map_err(from_engine)? {
                txn.write_covered(index.dictionary, key, Some(value)).map_err(from_engine)?;
                bytes += key.len() + value.len();
                entries += 1;
                if bytes >= CHUNK_BYTES || entries >= CHUNK_DOCUMENTS {
                    self.check(check)?;
                    txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
                    txn = self.begin_step();
                    (bytes, entries) = (0, 0);
                }
            }
            txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
        }
        Ok(())
    }

    /// The entries of the first snapshot's documents, a space for each index.
    fn sort(&self, check: &dyn Fn() -> Result<()>) -> Result<Sorter> {
        let mut cursor = self
            .seen
            .cursor(self.collection.primary, KeyRange::all(), Direction::Forward)
            .map_err(from_engine)?;
        let mut sorter = self.engine.sorter();
        let mut documents = 0;
        while let Some((id, value)) = cursor.next().map_err(from_engine)? {
            let document = RawDocument::from_bytes(value)?;
            for (number, index) in self.indexes.iter().enumerate() {
                let space = number as u64;
                for entry in keys(index, document, id)? {
                    if index.spec.unique
                        && let Some(held) = sorter.get(space, &entry.key).map_err(from_engine)?
                        && index.keys.id_of(&entry.key, &held)? != id
                    {
                        return Err(duplicate_key(&self.collection, index, &entry));
                    }
                    sorter.put(space, &entry.key, &entry.value).map_err(from_engine)?;
                }
            }
            documents += 1;
            if documents % CHUNK_DOCUMENTS == 0 {
                self.check(check)?;
            }
        }
        Ok(sorter)
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
                ids.insert(ChangeLog::id_of(row).to_vec());
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
            let index = &self.indexes[index];
            if !add(&mut txn, index, &id, &entry)? {
                return Err(duplicate_key(&self.collection, index, &entry));
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
        txn: &mut engine::EngineTxn,
        id: &[u8],
        now: &Snapshot,
        refused: &mut Vec<Refused>,
    ) -> Result<()> {
        let primary = self.collection.primary;
        let before = self.seen.get(primary, id).map_err(from_engine)?;
        let after = now.get(primary, id).map_err(from_engine)?;
        if before.as_deref() == after.as_deref() {
            return Ok(());
        }
        let keys_of = |index: &Index, document: Option<&[u8]>| match document {
            Some(bytes) => keys(index, RawDocument::from_bytes(bytes)?, id),
            None => Ok(Vec::new()),
        };
        for (number, index) in self.indexes.iter().enumerate() {
            let (old, new) =
                (keys_of(index, before.as_deref())?, keys_of(index, after.as_deref())?);
            let (gone, added) = difference(&old, &new);
            for entry in gone {
                remove(txn, index, id, entry)?;
            }
            for (entry, _) in added {
                if !add(txn, index, id, entry)? {
                    let (id, entry) = (id.to_vec(), entry.clone());
                    refused.push(Refused { index: number, id, entry });
                }
            }
        }
        Ok(())
    }

    fn begin_step(&self) -> engine::EngineTxn {
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

/// A dictionary that a crash does not leave behind.
fn create(txn: &mut engine::EngineTxn, options: DictionaryOptions) -> Result<DictionaryId> {
    let dictionary = txn.create_dictionary(options).map_err(from_engine)?;
    txn.put(DictionaryId::ROOT, &records::building_key(dictionary), &[]).map_err(from_engine)?;
    Ok(dictionary)
}

fn keys(index: &Index, document: &RawDocument, record: &[u8]) -> Result<Vec<IndexKey>> {
    let keys = index.keys.make(document, RecordKey::of(document, record)?)?;
    index.state.observed.fetch_or(keys.multikey, Ordering::AcqRel);
    Ok(keys.entries)
}

/// False where the index is unique and another document holds the key.
fn add(txn: &mut engine::EngineTxn, index: &Index, id: &[u8], entry: &IndexKey) -> Result<bool> {
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

fn remove(txn: &mut engine::EngineTxn, index: &Index, id: &[u8], entry: &IndexKey) -> Result<()> {
    if !index.spec.unique {
        return txn.write_covered(index.dictionary, &entry.key, None).map_err(from_engine);
    }
    if is_held_by(txn, index, id, entry)? {
        txn.delete(index.dictionary, &entry.key).map_err(from_engine)?;
    }
    Ok(())
}

/// Whether a unique index's entry is this document's.
fn is_held_by(
    txn: &mut engine::EngineTxn,
    index: &Index,
    id: &[u8],
    entry: &IndexKey,
) -> Result<bool> {
    let held = txn.get_for_update(index.dictionary, &entry.key).map_err(from_engine)?;
    held.map_or(Ok(false), |value| Ok(index.keys.id_of(&entry.key, &value)? == id))
}
