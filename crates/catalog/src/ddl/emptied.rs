//! Deletes of ranges of record keys, told in one step whatever the number of documents.
//!
//! Where nothing is left of a store, a collection's or a partition's: nobody else writes to the collection from here on [`Txn::empty_stores`]; the stores that hold
//! nothing outside the range are given other, empty dictionaries in the place of theirs, and the documents
//! are taken off their counts; all of it is part of the transaction. So a delete of everything costs what a
//! few records cost, and the dictionaries' bytes are free at the next checkpoint. Elsewhere
//! [`Txn::delete_range`] locks the range and adds a tombstone to the documents and to each index, in which it
//! is compared with the record keys of the entries; what it covers is swept in the background.
//!
//! Always true:
//! 1. The collection keeps its identity, its number, its partitions and what is counted of its use.
//! 2. A state from before has the dictionaries of then, with all that stood in them; whoever looked the collection up before
//!    and takes a state after it finds it not whole there and looks again ([`Collection::is_whole_in`]).
//! 3. Where anything else than waiting a moment would be needed, nothing is done: documents can always be
//!    deleted one by one.

use crate::catalog::Catalog;
use crate::data::metadata_lock::METADATA_SLICE;
use crate::data::names::Taken;
use crate::data::txn::Txn;
use crate::ddl::collections::{has_own_layout, write_record};
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index, with_indexes};
use crate::metadata::records;
use engine::{DictionaryId, Direction, EngineTxn, KeyRange, Snapshot};
use errors::Result;
use std::ops::Bound;
use std::sync::Arc;

/// Fewer documents are deleted one by one: that costs less than dictionaries that come and go, or ranges that
/// every read has to ask.
const LEAST_DOCUMENTS: u64 = 1000;

/// Where there are indexes, at least one document in so many of its store is deleted with its range: the sweep
/// rewrites an index as a whole, at about a tenth of what deleting each of its entries costs.
const LEAST_SHARE: u64 = 8;

/// Documents that are counted between two questions whether to go on.
const CHECK_EVERY: u64 = 1000;

/// What a delete of a range did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RangeDeleted {
    /// Documents that went.
    pub documents: u64,
    /// None is left in the range: else the caller deletes the others one by one.
    pub is_complete: bool,
}

impl Catalog {
    /// Whether deletes in a collection may be told by a range instead of one by one: not where each delete is
    /// told to others, nor where documents are kept in another way than by their keys alone.
    pub fn may_delete_ranges(&self, collection: &Collection) -> bool {
        !self.tells()
            && !collection.is_view()
            && collection.order.is_none()
            && collection.options.time_series.is_none()
            && has_own_layout(&collection.namespace)
    }

    /// Whether a delete of this range of record keys meets enough documents of a store to be told by the range.
    /// Reads some of them.
    pub fn has_range_to_delete(
        &self,
        collection: &Arc<Collection>,
        range: &KeyRange,
        state: &Snapshot,
    ) -> Result<bool> {
        if !self.may_delete_ranges(collection) {
            return Ok(false);
        }
        for place in collection.stores_in(range) {
            let store = &collection.stores()[place];
            if store.count() < LEAST_DOCUMENTS {
                continue;
            }
            let mut cursor = state
                .cursor(store.primary, range.clone(), Direction::Forward)
                .map_err(from_engine)?;
            let mut met = 0;
            while met < LEAST_DOCUMENTS && cursor.next().map_err(from_engine)?.is_some() {
                met += 1;
            }
            if met == LEAST_DOCUMENTS {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The places among [`Collection::stores`] of those that hold documents in a range of record keys, enough of
/// them, and none outside of it. May read the disk.
fn stores_within(
    collection: &Arc<Collection>,
    range: &KeyRange,
    state: &Snapshot,
) -> Result<Vec<usize>> {
    let mut within = Vec::new();
    for place in collection.stores_in(range) {
        let store = &collection.stores()[place];
        if store.count() >= LEAST_DOCUMENTS && lies_within(store.primary, range, state)? {
            within.push(place);
        }
    }
    Ok(within)
}

/// Whether a dictionary has no key outside a range.
fn lies_within(dictionary: DictionaryId, range: &KeyRange, state: &Snapshot) -> Result<bool> {
    let below = match &range.lower {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(Bound::Excluded(key.clone())),
        Bound::Excluded(key) => Some(Bound::Included(key.clone())),
    };
    let above = match &range.upper {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(Bound::Excluded(key.clone())),
        Bound::Excluded(key) => Some(Bound::Included(key.clone())),
    };
    let below = below.map(|upper| KeyRange { lower: Bound::Unbounded, upper });
    let above = above.map(|lower| KeyRange { lower, upper: Bound::Unbounded });
    for outside in below.into_iter().chain(above) {
        let mut cursor =
            state.cursor(dictionary, outside, Direction::Forward).map_err(from_engine)?;
        if cursor.next().map_err(from_engine)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Txn {
    /// Deletes the documents of a range of record keys, as far as that can be done without looking at each of
    /// them: stores that have no others are emptied, in the others the range is deleted from the documents
    /// and from every index. Part of a statement's transaction that has not written yet. May wait a moment for
    /// whoever has written in the range, and reads the documents in it once, to count them.
    pub fn delete_range(&mut self, of: &Collection, range: &KeyRange) -> Result<RangeDeleted> {
        let emptied = self.empty_stores(of, range)?;
        let mut done = RangeDeleted { documents: emptied, is_complete: true };
        if self.is_clients() {
            return Ok(RangeDeleted::default());
        }
        // Another one may have other keys.
        let current = self.open_for_write(&of.namespace)?;
        let Some(collection) = current.filter(|current| current.number == of.number) else {
            return Ok(RangeDeleted::default());
        };
        for place in collection.stores_in(range) {
            let store = &collection.stores()[place];
            if emptied > 0 && self.own_documents(store.number) < 0 || store.count() == 0 {
                continue;
            }
            match self.delete_range_of(store, range)? {
                Some(documents) => done.documents += documents,
                None => done.is_complete = false,
            }
        }
        Ok(done)
    }

    /// `None` where the documents are to be deleted one by one.
    fn delete_range_of(
        &mut self,
        store: &Arc<Collection>,
        range: &KeyRange,
    ) -> Result<Option<u64>> {
        if store.count() < LEAST_DOCUMENTS || store.shared.changes().is_some() {
            return Ok(None);
        }
        let parts = store.indexes.iter().map(|index| index.keys.record_part());
        let Some(parts) = parts.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let savepoint = self.savepoint();
        if !self.bury(store.primary, range, &[])? {
            return Ok(None);
        }
        let (documents, bytes) = self.count_range(store, range)?;
        let share = if store.indexes.is_empty() { u64::MAX } else { LEAST_SHARE };
        let mut is_worth =
            documents >= LEAST_DOCUMENTS && documents.saturating_mul(share) >= store.count();
        for (index, part) in store.indexes.iter().zip(&parts) {
            if is_worth {
                is_worth = self.bury(index.dictionary, range, part)?;
            }
        }
        if !is_worth {
            self.rollback_to(savepoint);
            return Ok(None);
        }
        self.count(store, -(documents as i64), -(bytes as i64));
        store.shared.used.wrote(0, documents as usize);
        Ok(Some(documents))
    }

    /// Deletes a range of a dictionary; says whether it did. Who has written there and has not committed is
    /// waited for no longer than a moment: one by one, only what he has changed is.
    fn bury(&mut self, dictionary: DictionaryId, range: &KeyRange, part: &[u8]) -> Result<bool> {
        let lock_timeout = self.lock_timeout();
        self.engine.set_lock_timeout(lock_timeout.min(METADATA_SLICE));
        let deleted = self.engine.tombstone(dictionary, range, part);
        self.engine.set_lock_timeout(lock_timeout);
        match deleted {
            Err(engine::Error::LockTimeout { .. }) => Ok(false),
            deleted => deleted.map_err(|error| self.failed(error)),
        }
    }

    /// The documents in a range of a store, and their bytes, as they are now that nobody else writes there.
    fn count_range(&self, store: &Collection, range: &KeyRange) -> Result<(u64, u64)> {
        let state = self.catalog.snapshot();
        let cursor = state.cursor(store.primary, range.clone(), Direction::Forward);
        let mut cursor = cursor.map_err(from_engine)?;
        let (mut documents, mut bytes) = (0_u64, 0);
        while let Some((_, document)) = cursor.next().map_err(from_engine)? {
            documents += 1;
            bytes += document.len() as u64;
            if documents.is_multiple_of(CHECK_EVERY) {
                limits::poll()?;
            }
        }
        Ok((documents, bytes))
    }

    /// Empties the stores of a collection that have documents in a range of record keys and none outside of
    /// it; says how many documents that were. Part of a statement's transaction that has not written yet;
    /// from then on nobody else writes to the collection until its end. Nothing is done where that cannot be
    /// had within a moment.
    fn empty_stores(&mut self, of: &Collection, range: &KeyRange) -> Result<u64> {
        let namespace = &of.namespace;
        if self.is_clients() || self.has_writes() {
            return Ok(0);
        }
        let Some(taken) = self.take_at_once(of)? else { return Ok(0) };
        let state = self.catalog.snapshot();
        let places = stores_within(&taken, range, &state)?;
        drop(state);
        let stores: Vec<_> = places.iter().map(|place| &taken.stores()[*place]).collect();
        let documents: u64 = stores.iter().map(|store| store.count()).sum();
        if documents == 0 {
            self.taken.pop();
            return Ok(0);
        }
        let catalog = Arc::clone(&self.catalog);
        let emptied = catalog.with_emptied(&mut self.engine, &taken, &places);
        let emptied = Arc::new(emptied.map_err(|error| self.failed(error))?);
        self.open_for_write(namespace)?;
        let written = write_record(&mut self.engine, &emptied);
        written.map_err(|error| self.failed(error))?;
        self.names.set(namespace, Some(Arc::clone(&emptied)));
        self.replace_touched(&emptied);
        for place in places {
            let (before, store) = (&taken.stores()[place], &emptied.stores()[place]);
            let (documents, bytes) = (before.count(), before.data_size());
            self.count(store, -(documents as i64), -(bytes as i64));
            store.shared.used.wrote(0, documents as usize);
        }
        Ok(documents)
    }

    /// The collection, where within a moment nobody else is inside of it and no index is built of it; until
    /// this transaction ends that stays so.
    fn take_at_once(&mut self, of: &Collection) -> Result<Option<Arc<Collection>>> {
        let namespace = &of.namespace;
        let Some(found) = self.found(namespace) else { return Ok(None) };
        if found.number != of.number || !self.catalog.may_delete_ranges(&found) {
            return Ok(None);
        }
        let Some(turn) = found.shared.building.try_lock_arc() else { return Ok(None) };
        let metadata = &found.shared.metadata;
        let guard = self.catalog.waiting(|| metadata.try_write_arc_for(METADATA_SLICE));
        let Some(guard) = guard else { return Ok(None) };
        let Some(current) = self.found(namespace) else { return Ok(None) };
        if current.number != found.number || current.shared.changes().is_some() {
            return Ok(None);
        }
        let soon = self.catalog.os().clock.monotonic().saturating_add(METADATA_SLICE);
        let engine = self.catalog.engine();
        if !engine.wait_complete_visible_until(Some(soon)).map_err(from_engine)? {
            return Ok(None);
        }
        let number = current.number;
        self.taken.push(Taken { number, _guard: guard, _client: None, _turn: Some(turn) });
        Ok(Some(current))
    }
}

impl Catalog {
    /// A collection whose stores at `places` have other dictionaries than before.
    fn with_emptied(
        &self,
        txn: &mut EngineTxn,
        collection: &Collection,
        places: &[usize],
    ) -> engine::Result<Collection> {
        let mut replace = |dictionary: DictionaryId| {
            let shape = self.engine().dictionary_stats(dictionary)?.options;
            txn.drop_dictionary(dictionary)?;
            txn.create_dictionary(shape)
        };
        // Of a partitioned collection what stands for it is another one too: it tells which partitions a
        // state has.
        let primary = replace(collection.primary)?;
        let mut partitions = collection.partitions.clone();
        let mut indexes = Vec::with_capacity(collection.indexes.len());
        if collection.is_partitioned() {
            let mut numbers = Vec::with_capacity(places.len());
            for place in places {
                let partition = &mut partitions.list[*place];
                partition.primary = replace(partition.primary)?;
                numbers.push(partition.number);
            }
            for index in &collection.indexes {
                let mut changed = moved(index, index.dictionary);
                for number in &numbers {
                    if let Some(part) = changed.parts.get_mut(number) {
                        *part = replace(*part)?;
                    }
                }
                indexes.push(Arc::new(changed));
            }
        } else {
            for index in &collection.indexes {
                indexes.push(Arc::new(moved(index, replace(index.dictionary)?)));
            }
        }
        for (before, after) in collection.indexes.iter().zip(&indexes) {
            if before.dictionary != after.dictionary {
                records::move_multikey(txn, before, after.dictionary)?;
            }
        }
        let primary_index = collection.primary_index.as_ref();
        // Without indexes first: each has a part in every partition of the new list.
        let mut emptied = with_indexes(collection, Vec::new());
        emptied.primary_index = primary_index.map(|index| Arc::new(moved(index, primary)));
        (emptied.indexes, emptied.primary) = (indexes, primary);
        Ok(emptied.with_partitions(partitions))
    }
}

/// An index that stands in this dictionary.
fn moved(index: &Index, dictionary: DictionaryId) -> Index {
    Index {
        spec: index.spec.clone(),
        dictionary,
        logical: if index.logical == index.dictionary { dictionary } else { index.logical },
        parts: index.parts.clone(),
        created: index.created,
        state: Arc::clone(&index.state),
        keys: index.keys.clone(),
    }
}
