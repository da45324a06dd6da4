//! Building and dropping indexes, and changing their options.
//!
//! From → to: an index is filled under the collection's exclusive metadata lock, in transactions
//! of bounded size; a marker in `ROOT` names its dictionary until the last transaction, which
//! writes the collection's record and removes the marker. A crash before that leaves a marker, and
//! the next start drops what it names [`drop_unfinished`]. Readers go on all the time.

use crate::catalog::Catalog;
use crate::collection::{Collection, Index};
use crate::ddl::{drop_index_records, lock_metadata, write_record};
use crate::documents::duplicate_key;
use crate::failure::from_engine;
use crate::index::IndexSpec;
use crate::metadata;
use crate::namespace::Namespace;
use crate::text::document_text;
use bson::raw::{RawBsonRef, RawDocument};
use engine::{
    DictionaryId, Direction, Durability, Engine, KeyRange, OnConflict, Timestamp, TxnOptions,
};
use errors::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The most indexes a collection may have, `_id` included.
const MAX_INDEXES: usize = 64;
/// A build commits after this many bytes of entries…
const CHUNK_BYTES: usize = 4 << 20;
/// …or after this many documents.
const CHUNK_DOCUMENTS: usize = 10_000;

/// What `createIndexes` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreatedIndexes {
    /// Indexes before, `_id` included.
    pub before: usize,
    /// Indexes after.
    pub after: usize,
    /// The collection did not exist.
    pub created_collection: bool,
}

/// Which indexes `dropIndexes` means.
#[derive(Clone, Copy, Debug)]
pub enum IndexSelector<'a> {
    /// `"*"`: all but `_id`.
    All,
    /// By name.
    Name(&'a str),
    /// By key pattern.
    Key(&'a RawDocument),
}

/// What `collMod` may change about an index.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexChange {
    /// Hide it from the planner, or show it again.
    pub hidden: Option<bool>,
    /// A new `expireAfterSeconds`.
    pub expire_after_seconds: Option<i64>,
}

impl Catalog {
    /// Builds indexes, creating the collection where it does not exist. Existing ones are left
    /// alone. `check` is asked now and then whether to go on. Waits for the collection's writers
    /// and keeps them out until it is done.
    pub fn create_indexes(
        self: &Arc<Self>,
        namespace: &Namespace,
        specs: &[IndexSpec],
        check: &dyn Fn() -> Result<()>,
    ) -> Result<CreatedIndexes> {
        let created_collection = self.collection(namespace).is_none();
        let (collection, guard) = loop {
            let found = self.ensure_collection(namespace)?;
            if found.is_view() {
                return Err(Error::new(
                    Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                    format!("Cannot create indexes on a view: {namespace}"),
                ));
            }
            let guard = lock_metadata(&found)?;
            match self.collection(namespace) {
                Some(current) if current.number == found.number => break (current, guard),
                _ => {}
            }
        };
        let before = collection.indexes.len() + 1;
        let wanted = missing_indexes(&collection, specs)?;
        if wanted.is_empty() {
            return Ok(CreatedIndexes { before, after: before, created_collection });
        }
        let after = before + wanted.len();
        if after > MAX_INDEXES {
            return Err(Error::new(
                Code::CANNOT_CREATE_INDEX,
                format!(
                    "add index fails, too many indexes for {namespace} key:{}",
                    document_text(&wanted[0].key)
                ),
            ));
        }
        let built = build(self.engine(), &collection, wanted, check)?;
        let mut indexes = collection.indexes.clone();
        indexes.extend(built.iter().map(|index| Arc::new(clone_index(index, Timestamp(0)))));
        let record = with_indexes(&collection, indexes);
        let ddl = self.ddl.lock();
        let mut txn = self.engine().begin(TxnOptions::default());
        write_record(&mut txn, &record)?;
        for index in &built {
            txn.delete(DictionaryId::ROOT, &metadata::building_key(index.dictionary))
                .map_err(from_engine)?;
            let mask = index.state.observed.load(Ordering::Acquire);
            txn.put(
                DictionaryId::ROOT,
                &metadata::multikey_key(index.dictionary),
                &mask.to_le_bytes(),
            )
            .map_err(from_engine)?;
            index.state.persisted.store(mask, Ordering::Release);
        }
        let committed = txn.commit_with(Durability::Buffered, |created| {
            let mut indexes = collection.indexes.clone();
            indexes.extend(built.iter().map(|index| Arc::new(clone_index(index, created))));
            self.publish(&Arc::new(with_indexes(&collection, indexes)));
        });
        committed.map_err(from_engine)?;
        drop(ddl);
        drop(guard);
        Ok(CreatedIndexes { before, after, created_collection })
    }

    /// Drops indexes; says how many there were, `_id` included. Waits for the writers.
    pub fn drop_indexes(
        &self,
        namespace: &Namespace,
        selectors: &[IndexSelector<'_>],
    ) -> Result<usize> {
        self.change_indexes(namespace, |collection, txn| {
            let mut kept = collection.indexes.clone();
            for selector in selectors {
                for name in selected(collection, *selector)? {
                    let Some(at) = kept.iter().position(|index| index.spec.name == name) else {
                        continue;
                    };
                    drop_index_records(txn, kept.remove(at).dictionary)?;
                }
            }
            Ok((collection.indexes.len() + 1, kept))
        })
    }

    /// Changes options of one index; gives back the options it had.
    pub fn change_index(
        &self,
        namespace: &Namespace,
        selector: IndexSelector<'_>,
        change: IndexChange,
    ) -> Result<IndexChange> {
        self.change_indexes(namespace, |collection, _| {
            let names = selected(collection, selector).map_err(|error| match error.code() {
                Code::INVALID_OPTIONS => Error::bad_value("can't hide _id index"),
                _ => error,
            })?;
            let mut indexes = collection.indexes.clone();
            let mut before = IndexChange::default();
            for index in indexes.iter_mut().filter(|index| names.contains(&index.spec.name)) {
                before = IndexChange {
                    hidden: Some(index.spec.hidden),
                    expire_after_seconds: index.spec.expire_after_seconds,
                };
                let mut changed = clone_index(index, index.created);
                changed.spec = index.spec.with_change(change)?;
                *index = Arc::new(changed);
            }
            Ok((before, indexes))
        })
    }

    fn change_indexes<T>(
        &self,
        namespace: &Namespace,
        change: impl Fn(&Collection, &mut engine::Txn) -> Result<(T, Vec<Arc<Index>>)>,
    ) -> Result<T> {
        let (collection, guard) = self.lock_current(namespace)?;
        if collection.is_view() {
            return Err(Error::new(
                Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                format!("Namespace {namespace} is a view, not a collection"),
            ));
        }
        let ddl = self.ddl.lock();
        let mut txn = self.engine().begin(TxnOptions::default());
        let (result, indexes) = change(&collection, &mut txn)?;
        let changed = Arc::new(with_indexes(&collection, indexes));
        write_record(&mut txn, &changed)?;
        let committed = txn.commit_with(Durability::Buffered, |_| self.publish(&changed));
        committed.map_err(from_engine)?;
        drop(ddl);
        drop(guard);
        Ok(result)
    }
}

/// Drops the dictionaries of builds that a crash interrupted.
pub(crate) fn drop_unfinished(engine: &Engine, dictionaries: &[DictionaryId]) -> Result<()> {
    let mut txn = engine.begin(TxnOptions::default());
    for dictionary in dictionaries {
        drop_index_records(&mut txn, *dictionary)?;
        txn.delete(DictionaryId::ROOT, &metadata::building_key(*dictionary))
            .map_err(from_engine)?;
    }
    txn.commit(Durability::Buffered).map_err(from_engine)?;
    Ok(())
}

/// The specifications that do not exist yet; conflicts with existing ones are errors.
pub(crate) fn missing_indexes(
    collection: &Collection,
    specs: &[IndexSpec],
) -> Result<Vec<IndexSpec>> {
    let mut wanted: Vec<IndexSpec> = Vec::new();
    for spec in specs {
        if spec.is_id() {
            continue;
        }
        let existing = collection.indexes.iter().map(|index| &index.spec);
        let known: Vec<&IndexSpec> = existing.chain(wanted.iter()).collect();
        let mut exists = false;
        for known in known {
            exists |= conflict(known, spec)?;
        }
        if !exists {
            wanted.push(spec.clone());
        }
    }
    Ok(wanted)
}

/// Whether `known` already is what `spec` asks for; an error where both cannot be.
fn conflict(known: &IndexSpec, spec: &IndexSpec) -> Result<bool> {
    let both = || {
        format!(
            "Requested index: {}, existing index: {}",
            document_text(&spec.shown),
            document_text(&known.shown)
        )
    };
    match (known.name == spec.name, known.same_signature(spec)) {
        (false, false) => Ok(false),
        (true, false) => Err(Error::new(
            Code::INDEX_KEY_SPECS_CONFLICT,
            format!(
                "An existing index has the same name as the requested index. When index names are \
                 not specified, they are auto generated and can cause conflicts. Please refer to \
                 our documentation. {}",
                both()
            ),
        )),
        (true, true) if known.same_options(spec) => Ok(true),
        (true, true) => Err(Error::new(
            Code::INDEX_OPTIONS_CONFLICT,
            format!(
                "An equivalent index already exists with the same name but different options. {}",
                both()
            ),
        )),
        (false, true) if known.same_options(spec) => Err(Error::new(
            Code::INDEX_OPTIONS_CONFLICT,
            format!("Index already exists with a different name: {}", known.name),
        )),
        (false, true) => Err(Error::new(
            Code::INDEX_OPTIONS_CONFLICT,
            format!(
                "An equivalent index already exists with a different name and options. {}",
                both()
            ),
        )),
    }
}

fn selected(collection: &Collection, selector: IndexSelector<'_>) -> Result<Vec<String>> {
    let no_id = || Error::new(Code::INVALID_OPTIONS, "cannot drop _id index");
    let names = |indexes: &[Arc<Index>]| indexes.iter().map(|i| i.spec.name.clone()).collect();
    match selector {
        IndexSelector::All => Ok(names(&collection.indexes)),
        IndexSelector::Name("_id_") => Err(no_id()),
        IndexSelector::Name(name) => match collection.index(name) {
            Some(index) => Ok(names(std::slice::from_ref(index))),
            None => Err(Error::new(
                Code::INDEX_NOT_FOUND,
                format!("index not found with name [{name}]"),
            )),
        },
        IndexSelector::Key(key) => {
            let found: Vec<Arc<Index>> = collection
                .indexes
                .iter()
                .filter(|index| same_pattern(&index.spec.key, key))
                .cloned()
                .collect();
            match &found[..] {
                [] if is_id_pattern(key) => Err(no_id()),
                [] => Err(Error::new(
                    Code::INDEX_NOT_FOUND,
                    format!("can't find index with key: {}", document_text(key)),
                )),
                [_] => Ok(names(&found)),
                _ => Err(Error::new(
                    Code::AMBIGUOUS_INDEX_KEY_PATTERN,
                    format!(
                        "{} indexes found for key: {}, identify by name instead.",
                        found.len(),
                        document_text(key)
                    ),
                )),
            }
        }
    }
}

/// Whether two key patterns name the same fields in the same order and directions.
pub fn same_pattern(a: &RawDocument, b: &RawDocument) -> bool {
    keystring::compare_documents(a, b).is_eq()
}

fn is_id_pattern(key: &RawDocument) -> bool {
    let mut fields = key.iter().flatten();
    matches!((fields.next(), fields.next()), (Some((name, value)), None)
        if name.as_str() == "_id" && value.as_str().is_none())
}

pub(crate) fn with_indexes(collection: &Collection, indexes: Vec<Arc<Index>>) -> Collection {
    Collection {
        namespace: collection.namespace.clone(),
        uuid: collection.uuid,
        number: collection.number,
        options: collection.options.clone(),
        primary: collection.primary,
        indexes,
        shared: Arc::clone(&collection.shared),
    }
}

fn clone_index(index: &Index, created: Timestamp) -> Index {
    Index {
        spec: index.spec.clone(),
        dictionary: index.dictionary,
        created,
        state: Arc::clone(&index.state),
        keys: index.keys.clone(),
    }
}

/// Makes the dictionaries, marked as unfinished, and fills them.
fn build(
    engine: &Engine,
    collection: &Collection,
    specs: Vec<IndexSpec>,
    check: &dyn Fn() -> Result<()>,
) -> Result<Vec<Index>> {
    let mut txn = engine.begin(TxnOptions::default());
    let mut indexes = Vec::new();
    for spec in specs {
        let options = spec.storage.dictionary(&collection.options.storage, spec.unique);
        let dictionary = txn.create_dictionary(options).map_err(from_engine)?;
        txn.put(DictionaryId::ROOT, &metadata::building_key(dictionary), &[])
            .map_err(from_engine)?;
        indexes.push(metadata::new_index(spec, dictionary, Timestamp(0)));
    }
    txn.commit(Durability::Buffered).map_err(from_engine)?;
    match fill(engine, collection, &indexes, check) {
        Ok(()) => Ok(indexes),
        Err(error) => {
            let dictionaries: Vec<DictionaryId> = indexes.iter().map(|i| i.dictionary).collect();
            drop_unfinished(engine, &dictionaries)?;
            Err(error)
        }
    }
}

fn fill(
    engine: &Engine,
    collection: &Collection,
    indexes: &[Index],
    check: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let options = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };
    let snapshot = engine.snapshot();
    let mut cursor = snapshot
        .cursor(collection.primary, KeyRange::all(), Direction::Forward)
        .map_err(from_engine)?;
    let mut txn = engine.begin(options);
    let (mut bytes, mut documents) = (0, 0);
    while let Some((_, value)) = cursor.next().map_err(from_engine)? {
        let document = RawDocument::from_bytes(value)?;
        for index in indexes {
            bytes += add_document(&mut txn, collection, index, document)?;
        }
        documents += 1;
        if bytes >= CHUNK_BYTES || documents >= CHUNK_DOCUMENTS {
            check()?;
            txn.commit(Durability::Buffered).map_err(from_engine)?;
            txn = engine.begin(options);
            (bytes, documents) = (0, 0);
        }
    }
    txn.commit(Durability::Buffered).map_err(from_engine)?;
    Ok(())
}

fn add_document(
    txn: &mut engine::Txn,
    collection: &Collection,
    index: &Index,
    document: &RawDocument,
) -> Result<usize> {
    let id = document.get("_id")?.unwrap_or(RawBsonRef::Null);
    let keys = index.keys.make(document, id)?;
    index.state.observed.fetch_or(keys.multikey, Ordering::AcqRel);
    let mut bytes = 0;
    for entry in &keys.entries {
        bytes += entry.key.len() + entry.value.len();
        if !index.spec.unique {
            txn.write_covered(index.dictionary, &entry.key, Some(&entry.value))
                .map_err(from_engine)?;
        } else if !txn.insert(index.dictionary, &entry.key, &entry.value).map_err(from_engine)? {
            return Err(duplicate_key(collection, index, entry));
        }
    }
    Ok(bytes)
}
