//! A bulk load in a connection's transaction: documents go past the log into a collection that the
//! transaction has made, and stand in it once the load is committed.
//!
//! | from | to | by |
//! |---|---|---|
//! | none | begun | [`Txn::begin_load`], which makes the collection and its indexes, empty |
//! | begun | begun | [`Txn::insert_document`]: documents that ascend by the primary key are written at once, others and the entries of indexes are sorted, all on a thread behind the connection |
//! | begun | none | [`Txn::commit_load`]: the transaction sees the documents; others do when it commits |
//! | begun | none | [`Txn::abort_load`]: the collection goes |
//! | begun | failed | an error that cannot be undone by itself: what is left is to abort it |
//!
//! Where the log is to have everything, and for collections whose documents have no one place
//! ([`is_loadable`]), documents are only sorted, and inserted as any others when the load is committed.

use crate::data::documents::{AllKeys, all_keys, duplicate_id, duplicate_key};
use crate::data::keys_behind::KeyFailure;
use crate::data::metadata_lock::Check;
use crate::data::txn::Txn;
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, required_id};
use crate::metadata::namespace::Namespace;
use crate::metadata::options::CollectionOptions;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::spec::ElementType;
use bsonval::raw::elements;
use engine::{
    DictionaryId, DictionaryOptions, FillError, FillTarget, LoadBehind, Loaded, PutRow, Sorted,
    Sorter, Twice,
};
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
enum Rows {
    /// Nothing goes past the log: documents are sorted.
    Sorted(Box<Sorter>),
    Behind(Box<Behind>),
}

/// Documents and entries on their way past the log.
struct Behind {
    rows: LoadBehind,
    /// The entries of a document without arrays and documents in it can be made behind: nothing about
    /// them is refused, and no index becomes multikey.
    makes_keys: bool,
    /// Why they could not be made all the same.
    failure: KeyFailure,
}

impl Behind {
    fn new(collection: &Arc<Collection>, txn: &Txn, sorter: Sorter) -> Result<Self> {
        let makes_keys = collection.indexes.iter().all(|index| index.keys.is_of_values());
        let failure = KeyFailure::default();
        let (of_rows, of_keys) = (Arc::clone(collection), failure.clone());
        let derive = move |key: &[u8], document: &[u8], put: &mut PutRow<'_>| {
            let keys = RawDocument::from_bytes(document)
                .map_err(Error::from)
                .and_then(|document| all_keys(&of_rows, document, key));
            let keys = keys.map_err(|error| of_keys.keep(error))?;
            for (space, keys) in (DOCUMENTS + 1..).zip(&keys) {
                keys.entries.iter().try_for_each(|entry| put(space, &entry.key, &entry.value))?;
            }
            Ok(())
        };
        let (id, shape) = (collection.primary, txn.shape(collection.primary));
        let rows = txn.catalog.engine().start_load_behind(id, shape, sorter, Arc::new(derive));
        Ok(Self { rows: rows.map_err(from_engine)?, makes_keys, failure })
    }

    /// Adds a document; `masks` learns what it makes multikey.
    fn add(
        &mut self,
        collection: &Collection,
        document: &RawDocument,
        key: &[u8],
        masks: &mut [u32],
    ) -> Result<engine::Result<()>> {
        let is_behind = self.makes_keys && is_flat(document)?;
        // An error of the keys changes nothing.
        let keys = if is_behind { AllKeys::new() } else { all_keys(collection, document, key)? };
        let ascends = self.rows.last_key().is_none_or(|last| last < key);
        let mut put = if ascends {
            self.rows.put(key, document.as_bytes(), is_behind)
        } else {
            self.rows.sort(DOCUMENTS, key, document.as_bytes(), is_behind)
        };
        for ((space, keys), mask) in (DOCUMENTS + 1..).zip(&keys).zip(masks) {
            for entry in &keys.entries {
                put = put.and_then(|()| self.rows.sort(space, &entry.key, &entry.value, false));
            }
            *mask |= keys.multikey;
        }
        Ok(put)
    }

    fn finish(self) -> Result<(Loaded, Sorter)> {
        let Self { rows, failure, .. } = self;
        rows.finish().map_err(|error| failure.cause(error))
    }
}

/// Whether no value of a document is an array or a document.
fn is_flat(document: &RawDocument) -> Result<bool> {
    for element in elements(document) {
        let of = element?.element_type();
        if matches!(of, ElementType::Array | ElementType::EmbeddedDocument) {
            return Ok(false);
        }
    }
    Ok(true)
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
        let put = match self.rows.as_mut().ok_or_else(failed_before)? {
            Rows::Sorted(sorter) => {
                sorter.put(DOCUMENTS, &key, document.as_bytes()).map_err(from_engine)
            }
            Rows::Behind(behind) => {
                let put = behind.add(collection, document, &key, &mut self.masks)?;
                put.map_err(|error| behind.failure.cause(error))
            }
        };
        if put.is_err() {
            self.fail();
        }
        put?;
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
        let sorter = engine.sorter();
        let rows = if engine.may_load() && is_loadable(&collection) {
            Rows::Behind(Box::new(Behind::new(&collection, self, sorter)?))
        } else {
            Rows::Sorted(Box::new(sorter))
        };
        let masks = vec![0; collection.indexes.len()];
        let rows = Some(rows);
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
        matches!(rows, Some(Rows::Behind(_)))
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
        let rows = load.rows.take().ok_or_else(failed_before)?;
        let (collection, documents) = (Arc::clone(&load.collection), load.documents);
        let (bytes, masks) = (load.bytes, load.masks.clone());
        let (first, sorter) = match rows {
            Rows::Behind(behind) => behind.finish()?,
            Rows::Sorted(sorter) => {
                let sorted = sorter.finish().map_err(from_engine)?;
                let mut walk = sorted.walk(DOCUMENTS).map_err(from_engine)?;
                let next =
                    || Ok(walk.next().map_err(from_engine)?.map(|(_, document)| document.to_vec()));
                self.insert_sorted(&collection, next, check)?;
                return Ok(documents as u64);
            }
        };
        let sorted = Arc::new(sorter.finish().map_err(from_engine)?);
        let all_bytes = (bytes as u64).saturating_add(sorted.row_bytes());
        let mut is_adopted = all_bytes >= LEAST_LOADED_BYTES;
        let loaded = self.fill(&collection, first, &sorted, is_adopted, check)?;
        if is_adopted {
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

    /// Fills the dictionary of the documents, and where it is wanted those of the indexes.
    fn fill(
        &self,
        collection: &Arc<Collection>,
        first: Loaded,
        sorted: &Arc<Sorted>,
        with_indexes: bool,
        check: Check<'_>,
    ) -> Result<Vec<Loaded>> {
        let (mut targets, mut loaded) = (Vec::new(), Vec::new());
        if sorted.bytes_of(DOCUMENTS) == 0 {
            // All ascended: they are in their place.
            loaded.push(first);
        } else {
            let (id, options) = (collection.primary, self.shape(collection.primary));
            targets.push(FillTarget { space: DOCUMENTS, id, options, beside: Some(first) });
        }
        let indexes = collection.indexes.iter().filter(|_| with_indexes);
        for (space, index) in (DOCUMENTS + 1..).zip(indexes) {
            let (id, options) = (index.dictionary, self.shape(index.dictionary));
            targets.push(FillTarget { space, id, options, beside: None });
        }
        let mut asked = Ok(());
        let beside = targets.iter().filter_map(|target| target.beside.as_ref());
        let total = sorted.row_count() + beside.map(Loaded::row_count).sum::<u64>();
        let mut go_on = |done| {
            limits::note_progress("Bulk load: writing documents and index entries", done, total);
            asked = check();
            asked.is_ok()
        };
        let never = Arc::new(|_: u32, _: &[u8], _: &[u8], _: &[u8]| false);
        let filled = self.catalog.engine().fill(sorted, targets, never, &mut go_on);
        asked?;
        match filled {
            Ok(filled) => loaded.extend(filled),
            Err(FillError::Engine(error)) => return Err(from_engine(error)),
            Err(FillError::Twice(twice)) => return Err(held_twice(collection, twice)?),
            Err(FillError::Stopped) => return Err(failed_before()),
        }
        Ok(loaded)
    }

    /// The options of a dictionary that this transaction has made.
    fn shape(&self, dictionary: DictionaryId) -> DictionaryOptions {
        self.engine.created_shape(dictionary).unwrap_or_default()
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

/// The error that two documents have one key.
fn held_twice(collection: &Collection, twice: Twice) -> Result<Error> {
    let Twice { space, key, values } = twice;
    let [value, second] = values;
    let index = collection.indexes.get((space as usize).wrapping_sub(DOCUMENTS as usize + 1));
    let Some(index) = index else {
        let document = RawDocument::from_bytes(&second)?;
        return Ok(duplicate_id(collection, required_id(document)?));
    };
    if index.spec.unique || index.spec.is_id() {
        return Ok(duplicate_key(collection, index, &IndexKey { key, value }));
    }
    let text = format!("an entry of {} stands twice", index.spec.name);
    Ok(Error::new(Code::INTERNAL_ERROR, text))
}
