//! What stood under a name in an older state: for whoever reads a fixed state, a transaction's or
//! that of a cluster time, while others drop, rename and create.
//!
//! Always true: the collection that is found is one whose documents the state has, under this name. A name
//! that had none then and has one now gives that one, so that reading it fails instead of finding nothing;
//! where the state has that one under another name, looking it up fails.

use crate::catalog::Catalog;
use crate::data::txn::Txn;
use crate::failure::from_engine;
use crate::metadata::collection::Collection;
use crate::metadata::counts::Stripe;
use crate::metadata::namespace::Namespace;
use crate::metadata::records;
use engine::{DictionaryId, Direction, Snapshot, Value};
use errors::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Catalog {
    /// The collection or view of this name in a state. May read the disk.
    pub fn collection_in(
        &self,
        namespace: &Namespace,
        state: &Snapshot,
    ) -> Result<Option<Arc<Collection>>> {
        let current = self.collection(namespace);
        let is_there = |collection: &Arc<Collection>| {
            !collection.is_view()
                && state.has_dictionary(collection.primary)
                && !collection.is_renamed_after(state)
        };
        // What locks its reads sees the newest state.
        if state.locks() || current.as_ref().is_some_and(is_there) {
            return Ok(current);
        }
        let get = |key: &[u8]| state.get(DictionaryId::ROOT, key).map_err(from_engine);
        let Some(record) = get(&records::namespace_key(namespace))? else {
            return match current {
                Some(current) if current.is_renamed_after(state) => Err(renamed_since(&current)),
                current => Ok(current),
            };
        };
        let (past, _) = self.read_collection(&record)?;
        read_masks(&past, &get)?;
        if let Some(current) = current.filter(|current| current.number == past.number) {
            let is_same = current.primary == past.primary;
            let past = || in_past_partitions(past, &current);
            return Ok(Some(if is_same { Arc::clone(&current) } else { past() }));
        }
        Ok(Some(Arc::new(past)))
    }
}

/// The state has the collection that has the name now, but not under it.
fn renamed_since(collection: &Collection) -> Error {
    let namespace = &collection.namespace;
    Error::new(
        Code::SNAPSHOT_UNAVAILABLE,
        format!("{namespace} got its name by a rename after the state that is read"),
    )
}

/// Reads the multikey masks of a state.
fn read_masks(past: &Collection, get: &dyn Fn(&[u8]) -> Result<Option<Value>>) -> Result<()> {
    for index in &past.indexes {
        let mask = get(&records::multikey_key(index.dictionary))?;
        let mask = mask.map_or(0, |value| records::read_multikey(&value));
        index.state.observed.store(mask, Ordering::Release);
        index.state.persisted.store(mask, Ordering::Release);
    }
    Ok(())
}

/// A collection as it was before partitions came or went. Of what lives longer than a version it has that of
/// the current one; the counts of partitions that went are lost.
fn in_past_partitions(past: Collection, current: &Collection) -> Arc<Collection> {
    let mut partitions = past.partitions.clone();
    for partition in &mut partitions.list {
        let known = current.partitions.list.iter().find(|known| known.number == partition.number);
        if let Some(known) = known {
            partition.shared = Arc::clone(&known.shared);
        }
    }
    let mut past = past.with_partitions(partitions);
    past.shared = Arc::clone(&current.shared);
    Arc::new(past)
}

impl Catalog {
    /// How many documents a collection has in a state: the sum of its stripes there, a handful of records. `None` where
    /// the state has no such collection, locks what it reads, or documents were made uncounted, for that takes a walk
    /// over them. May read the disk.
    pub fn count_in(&self, collection: &Arc<Collection>, state: &Snapshot) -> Result<Option<u64>> {
        if state.locks()
            || !state.has_dictionary(collection.primary)
            || collection.counts_are_unknown()
        {
            return Ok(None);
        }
        let mut documents = 0_i64;
        for store in collection.stores() {
            let keys = Stripe::keys(store.number);
            let mut cursor =
                state.cursor(DictionaryId::ROOT, keys, Direction::Forward).map_err(from_engine)?;
            while let Some((key, value)) = cursor.next().map_err(from_engine)? {
                limits::poll()?;
                let stripe = Stripe::read(key, value);
                documents += stripe.map_or(0, |(_, stripe)| stripe.documents);
            }
        }
        Ok(Some(u64::try_from(documents).unwrap_or(0)))
    }
}

impl Txn {
    /// How many documents of a collection this transaction sees: those of the state that it reads, and what it has
    /// changed itself. `None` as for [`Catalog::count_in`].
    pub fn count_in(&self, collection: &Arc<Collection>) -> Result<Option<u64>> {
        let Some(before) = self.catalog.count_in(collection, &self.engine.view())? else {
            return Ok(None);
        };
        let own: i64 =
            collection.stores().iter().map(|store| self.own_documents(store.number)).sum();
        Ok(Some(before.saturating_add_signed(own)))
    }

    /// The collection whose documents this transaction reads: as it made it, else as it was in the
    /// state that it reads. May read the disk.
    pub fn collection_to_read(&self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        match self.names.find(namespace) {
            Some(own) => Ok(own.cloned()),
            None if self.reads_a_fixed_state() => {
                self.catalog.collection_in(namespace, &self.engine.snapshot())
            }
            None => Ok(self.found(namespace)),
        }
    }

    /// What is read of a fixed state is found in the collection that had the name then, and in its dictionaries and
    /// partitions of then, and would be written to those of now: that they are others is a conflict.
    pub(crate) fn check_still_the_same(&self, collection: &Collection) -> Result<()> {
        let namespace = &collection.namespace;
        if !self.reads_a_fixed_state() || self.names.find(namespace).is_some() {
            return Ok(());
        }
        let state = self.engine.snapshot();
        let changed = |what: &str| {
            let text = format!("{namespace} was {what} after this transaction began");
            Err(Error::new(Code::WRITE_CONFLICT, text))
        };
        if collection.is_renamed_after(&state) {
            return changed("renamed");
        }
        if collection.is_view() || state.has_dictionary(collection.primary) {
            return Ok(());
        }
        if collection.is_partitioned() {
            return changed("divided in other partitions");
        }
        // A delete of everything has put other dictionaries in the place of those of then.
        let past = self.catalog.collection_in(namespace, &state)?;
        let is_other = |past: Arc<Collection>| {
            past.number == collection.number && past.primary != collection.primary
        };
        if past.is_some_and(is_other) { changed("emptied") } else { Ok(()) }
    }

    /// A connection's transaction does not write to what was made after its state: it is told what its reads are told.
    pub(crate) fn check_was_there(&self, collection: &Collection) -> Result<()> {
        let namespace = &collection.namespace;
        if !self.is_connections()
            || !self.reads_a_fixed_state()
            || self.names.find(namespace).is_some()
        {
            return Ok(());
        }
        let state = self.engine.snapshot();
        let is_there = state.has_dictionary(collection.primary)
            || self
                .catalog
                .collection_in(namespace, &state)?
                .is_some_and(|found| found.primary != collection.primary);
        if is_there {
            return Ok(());
        }
        Err(Error::new(
            Code::SNAPSHOT_UNAVAILABLE,
            format!("{namespace} was made after this transaction began"),
        ))
    }

    /// There is no collection to write to; where the state that is read has one, somebody dropped
    /// it, which is a conflict.
    pub(crate) fn absent_for_write(&self, namespace: &Namespace) -> Result<()> {
        match self.collection_to_read(namespace)? {
            Some(_) => Err(Error::new(
                Code::WRITE_CONFLICT,
                format!("{namespace} was dropped or renamed after this transaction began"),
            )),
            None => Ok(()),
        }
    }
}
