//! A bulk load in a connection's transaction: documents go past the log into a collection that the
//! transaction has made, and stand in it once the load is committed.
//!
//! | from | to | by |
//! |---|---|---|
//! | none | begun | [`Txn::begin_load`], which makes the collection and its indexes, empty |
//! | begun | begun | [`Txn::insert_document`]: documents that ascend by the primary key are written at once, others and the entries of indexes are sorted |
//! | begun | none | [`Txn::commit_load`]: the transaction sees the documents; others do when it commits |
//! | begun | none | [`Txn::abort_load`]: the collection goes |
//! | begun | failed | an error that cannot be undone by itself: what is left is to abort it |
//!
//! Where the log is to have everything, and for collections whose documents have no one place
//! ([`is_loadable`]), documents are only sorted, and inserted as any others when the load is committed.

use crate::data::documents::{all_keys, duplicate_id, duplicate_key};
use crate::data::metadata_lock::Check;
use crate::data::txn::Txn;
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index, required_id};
use crate::metadata::namespace::Namespace;
use crate::metadata::options::CollectionOptions;
use bson::raw::{RawDocument, RawDocumentBuf};
use engine::{DictionaryId, Load, Loaded, Sorted, Sorter};
use errors::{Code, Error, Result};
use indexkeys::{IndexKey, IndexSpec};
use std::sync::Arc;

/// The space in which documents are sorted; those of the indexes come behind it.
const DOCUMENTS: u32 = 0;
/// Fewer bytes go through the log: a checkpoint would take longer.
const LEAST_LOADED_BYTES: u64 = if cfg!(test) { 400 } else { 4 << 20 };
/// Rows between two questions whether to go on.
const CHECK_EVERY: u64 = 10_000;

/// A load that was begun.
pub(crate) struct Loading {
    collection: Arc<Collection>,
    /// `None` once it has failed.
    rows: Option<Rows>,
    documents: i64,
    bytes: i64,
    /// What is multikey of each index.
    masks: Vec<u32>,
}

/// What was inserted so far.
struct Rows {
    /// Documents that came in the order of the primary key; `None` where nothing goes past the log.
    ascending: Option<Load>,
    sorter: Sorter,
}

/// Whether documents and entries of such a collection may be placed without a look at others.
fn is_loadable(collection: &Collection) -> bool {
    !collection.is_partitioned() && collection.options.time_series.is_none()
}

fn failed_before() -> Error {
    Error::new(
        Code::OPERATION_FAILED,
        "the bulk load has failed: it can only be aborted with abortLoad",
    )
}

impl Loading {
    /// Documents so far: what a savepoint remembers.
    pub(crate) fn documents(&self) -> i64 {
        self.documents
    }

    /// It can only be aborted from now on.
    pub(crate) fn fail(&mut self) {
        self.rows = None;
    }

    pub(crate) fn is_of(&self, collection: &Collection) -> bool {
        self.collection.number == collection.number
    }

    fn add(&mut self, collection: &Arc<Collection>, document: &RawDocument) -> Result<()> {
        let key = collection.record_key(document)?;
        let rows = self.rows.as_mut().ok_or_else(failed_before)?;
        let put = if let Some(ascending) = &mut rows.ascending {
            // An error of the keys changes nothing.
            let keys = all_keys(collection, document, &key)?;
            let ascends = ascending.last_key().is_none_or(|last| last < &key[..]);
            let mut put = if ascends {
                ascending.put(&key, document.as_bytes())
            } else {
                rows.sorter.put(DOCUMENTS, &key, document.as_bytes())
            };
            for (number, keys) in (0..).zip(&keys) {
                for entry in &keys.entries {
                    put = put.and_then(|()| {
                        rows.sorter.put(DOCUMENTS + 1 + number, &entry.key, &entry.value)
                    });
                }
                self.masks[number as usize] |= keys.multikey;
            }
            put
        } else {
            rows.sorter.put(DOCUMENTS, &key, document.as_bytes())
        };
        if put.is_err() {
            self.fail();
        }
        put.map_err(from_engine)?;
        self.documents += 1;
        self.bytes += document.as_bytes().len() as i64;
        Ok(())
    }
}

impl Txn {
    /// Begins a load into a new collection, whose indexes are given.
    pub fn begin_load(
        &mut self,
        namespace: &Namespace,
        options: &CollectionOptions,
        indexes: &[IndexSpec],
        check: Check<'_>,
    ) -> Result<()> {
        if self.load.is_some() {
            return Err(Error::location(16915, "a bulk load is in progress already"));
        }
        if self.collection(namespace).is_some() {
            let text = format!("cannot bulk load into {namespace}: the collection exists");
            return Err(Error::location(16873, text));
        }
        self.create_collection(namespace, options)?;
        if !indexes.is_empty() {
            self.create_indexes(namespace, indexes, check)?;
        }
        let Some(collection) = self.open_for_write(namespace)? else {
            return Err(crate::catalog::not_found(namespace));
        };
        let engine = self.catalog.engine();
        let ascending = if engine.may_load() && is_loadable(&collection) {
            Some(self.start(collection.primary)?)
        } else {
            None
        };
        let sorter = engine.sorter();
        let masks = vec![0; collection.indexes.len()];
        let rows = Some(Rows { ascending, sorter });
        self.load = Some(Box::new(Loading { collection, rows, documents: 0, bytes: 0, masks }));
        Ok(())
    }

    /// The collection into which a load goes on.
    pub fn loads_into(&self) -> Option<&Namespace> {
        self.load.as_ref().map(|load| load.collection.namespace())
    }

    /// Whether what is loaded goes past the log.
    pub fn loads_past_the_log(&self) -> bool {
        let rows = self.load.as_ref().and_then(|load| load.rows.as_ref());
        rows.is_some_and(|rows| rows.ascending.is_some())
    }

    /// A document of the collection that is being loaded.
    pub(crate) fn load_document(
        &mut self,
        collection: &Arc<Collection>,
        document: &RawDocument,
    ) -> Result<()> {
        match &mut self.load {
            Some(load) => load.add(collection, document),
            None => Err(failed_before()),
        }
    }

    /// Has what was loaded stand in the collection; says how many documents. Takes as long as sorting and
    /// writing the entries of the indexes does, and a checkpoint.
    ///
    /// # Errors
    /// A unique key that two documents have, a full disk: then the load can only be aborted.
    pub fn commit_load(&mut self, check: Check<'_>) -> Result<u64> {
        let Some(load) = &mut self.load else {
            return Err(Error::location(16876, "no bulk load is in progress to be committed"));
        };
        let Rows { ascending, sorter } = load.rows.take().ok_or_else(failed_before)?;
        let (collection, documents) = (Arc::clone(&load.collection), load.documents);
        let (bytes, masks) = (load.bytes, load.masks.clone());
        let sorted = sorter.finish();
        let Some(ascending) = ascending else {
            let mut walk = sorted.walk(DOCUMENTS).map_err(from_engine)?;
            let next =
                || Ok(walk.next().map_err(from_engine)?.map(|(_, document)| document.to_vec()));
            self.insert_sorted(&collection, next, check)?;
            return Ok(documents as u64);
        };
        let first = ascending.finish().map_err(from_engine)?;
        let first = self.merge(&collection, first, &sorted, check)?;
        let all_bytes = (bytes as u64).saturating_add(sorted.row_bytes());
        let mut loaded = vec![first];
        let mut is_adopted = all_bytes >= LEAST_LOADED_BYTES;
        if is_adopted {
            self.fill_indexes(&collection, &sorted, check, &mut loaded)?;
            self.catalog.engine().make_durable(&loaded).map_err(from_engine)?;
            check()?;
            // A backup that began meanwhile has to find everything in the log.
            is_adopted = loaded.iter().all(Loaded::is_adoptable);
        }
        if !is_adopted {
            let mut rows = loaded[0].rows();
            let next =
                || Ok(rows.next().map_err(from_engine)?.map(|(_, document)| document.to_vec()));
            self.insert_sorted(&collection, next, check)?;
            return Ok(documents as u64);
        }
        for loaded in loaded {
            self.engine.adopt(loaded).map_err(from_engine)?;
        }
        for (index, mask) in collection.indexes.iter().zip(masks) {
            self.note_multikey(index, mask);
        }
        collection.shared.used.wrote(documents as usize, 0);
        self.count(&collection, documents, bytes);
        self.load = None;
        Ok(documents as u64)
    }

    /// Inserts documents as any others.
    fn insert_sorted(
        &mut self,
        collection: &Arc<Collection>,
        mut next: impl FnMut() -> Result<Option<Vec<u8>>>,
        check: Check<'_>,
    ) -> Result<()> {
        // Until it has succeeded it has failed.
        let load = self.load.take();
        let mut inserted = Ok(());
        let mut documents = 0_u64;
        while inserted.is_ok() {
            documents += 1;
            inserted = match next() {
                Ok(Some(bytes)) => RawDocumentBuf::from_bytes(bytes)
                    .map_err(Error::from)
                    .and_then(|document| self.insert_document(collection, &document)),
                Ok(None) => return Ok(()),
                Err(error) => Err(error),
            };
            if documents.is_multiple_of(CHECK_EVERY) {
                inserted = inserted.and_then(|()| check());
            }
        }
        self.load = load;
        inserted
    }

    /// Fills the dictionaries of the indexes.
    fn fill_indexes(
        &self,
        collection: &Arc<Collection>,
        sorted: &Sorted,
        check: Check<'_>,
        loaded: &mut Vec<Loaded>,
    ) -> Result<()> {
        for (number, index) in (0..).zip(&collection.indexes) {
            let mut load = self.start(index.dictionary)?;
            let mut walk = sorted.walk(DOCUMENTS + 1 + number).map_err(from_engine)?;
            let (mut last, mut rows) = (Vec::new(), 0_u64);
            while let Some((key, value)) = walk.next().map_err(from_engine)? {
                rows += 1;
                if rows.is_multiple_of(CHECK_EVERY) {
                    check()?;
                }
                if rows > 1 && key == last {
                    let entry = IndexKey { key: key.to_vec(), value: value.to_vec() };
                    return Err(held_twice(collection, index, &entry));
                }
                load.put(key, value).map_err(from_engine)?;
                key.clone_into(&mut last);
            }
            loaded.push(load.finish().map_err(from_engine)?);
        }
        Ok(())
    }

    /// The documents that ascended, and those that did not.
    fn merge(
        &self,
        collection: &Arc<Collection>,
        first: Loaded,
        sorted: &Sorted,
        check: Check<'_>,
    ) -> Result<Loaded> {
        let mut others = sorted.walk(DOCUMENTS).map_err(from_engine)?;
        let owned =
            |row: Option<(&[u8], &[u8])>| row.map(|(key, value)| (key.to_vec(), value.to_vec()));
        let mut right = owned(others.next().map_err(from_engine)?);
        if right.is_none() {
            return Ok(first);
        }
        let mut rows = first.rows();
        // What is read stays until it is read; its number is the other one's from now on.
        drop(first);
        let mut load = self.start(collection.primary)?;
        let mut left = owned(rows.next().map_err(from_engine)?);
        let (mut last, mut count) = (None, 0_u64);
        loop {
            let takes_left = match (&left, &right) {
                (Some((left, _)), Some((right, _))) => left <= right,
                (left, _) => left.is_some(),
            };
            let taken = if takes_left {
                let next = owned(rows.next().map_err(from_engine)?);
                std::mem::replace(&mut left, next)
            } else {
                let next = owned(others.next().map_err(from_engine)?);
                std::mem::replace(&mut right, next)
            };
            let Some((key, value)) = taken else { break };
            count += 1;
            if count.is_multiple_of(CHECK_EVERY) {
                check()?;
            }
            if last.as_ref() == Some(&key) {
                let document = RawDocument::from_bytes(&value)?;
                return Err(duplicate_id(collection, required_id(document)?));
            }
            load.put(&key, &value).map_err(from_engine)?;
            last = Some(key);
        }
        load.finish().map_err(from_engine)
    }

    fn start(&self, dictionary: DictionaryId) -> Result<Load> {
        let shape = self.engine.created_shape(dictionary).unwrap_or_default();
        self.catalog.engine().start_load(dictionary, shape).map_err(from_engine)
    }

    /// Ends the load as if it had never begun, and its collection with it.
    pub fn abort_load(&mut self) -> Result<()> {
        let Some(load) = &self.load else {
            return Err(Error::location(16888, "no bulk load is in progress to be aborted"));
        };
        let namespace = load.collection.namespace().clone();
        self.drop_collection(&namespace)?;
        self.load = None;
        Ok(())
    }
}

/// Two documents have one key of an index.
fn held_twice(collection: &Collection, index: &Index, entry: &IndexKey) -> Error {
    if index.spec.unique || index.spec.is_id() {
        return duplicate_key(collection, index, entry);
    }
    Error::new(Code::INTERNAL_ERROR, format!("an entry of {} stands twice", index.spec.name))
}
