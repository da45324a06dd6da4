//! `reIndex`: another storage shape for a collection's dictionaries, and rewriting them.
//!
//! From → to: the new options are committed under the collection's metadata lock, in the catalog's
//! records and in the engine together [`Catalog::reshape_indexes`]; from then on what is written
//! has the new shape. Then the engine rewrites what is stored, piece by piece, while reads and
//! writes go on [`Catalog::rewrite_indexes`]. A crash in between leaves the new options and a
//! dictionary of both shapes, which reads as before; another `reIndex` rewrites the rest.

use crate::catalog::{Catalog, not_found};
use crate::data::metadata_lock::{Check, lock_name};
use crate::ddl::build::{IndexSelector, is_id_pattern, selected};
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, clone_index, with_indexes};
use crate::metadata::namespace::Namespace;
use crate::shape;
use bson::raw::RawDocument;
use engine::{DictionaryId, DictionaryOptions, Rewrite};
use errors::{Code, Error, Result};
use indexkeys::StorageOptions;
use std::sync::Arc;

/// What the index that is the collection itself is called, also where it has a name of its own.
const ID_INDEX: &str = "_id_";

/// One index and the shape it had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reindexed {
    /// Its name.
    pub name: String,
    /// The shape before.
    pub was: DictionaryOptions,
}

/// How far a rewrite has come, over all indexes it was asked for.
#[derive(Clone, Copy, Debug)]
pub struct ReindexProgress<'a> {
    /// The index it is at.
    pub index: &'a str,
    /// Bytes behind it, uncompressed.
    pub done_bytes: u64,
    /// Bytes in all, as they were at the start.
    pub total_bytes: u64,
}

impl Catalog {
    /// Changes the storage shape of indexes, `_id_` being the collection itself; says what each
    /// had. Waits for the collection's writers; nothing is rewritten.
    pub fn reshape_indexes(
        &self,
        namespace: &Namespace,
        selector: IndexSelector<'_>,
        change: &RawDocument,
        check: Check<'_>,
    ) -> Result<Vec<Reindexed>> {
        let storage = StorageOptions::parse(change)?;
        let (collection, guard) = self.lock_current(namespace, check)?;
        let chosen = chosen(&collection, selector)?;
        let (mut txn, before) = self.begin_change(check, |txn| {
            lock_name(txn, namespace)?;
            let mut before = Vec::new();
            for (name, dictionary) in &chosen {
                let was = self.engine().dictionary_stats(*dictionary).map_err(from_engine)?.options;
                txn.reshape_dictionary(*dictionary, shape::over(&storage, was))
                    .map_err(from_engine)?;
                before.push(Reindexed { name: name.clone(), was });
            }
            Ok(before)
        })?;
        let mut indexes = collection.indexes.clone();
        for index in &mut indexes {
            if chosen.iter().any(|(_, dictionary)| *dictionary == index.dictionary) {
                let mut changed = clone_index(index, index.created);
                changed.spec = index.spec.with_storage(change)?;
                *index = Arc::new(changed);
            }
        }
        let mut changed = with_indexes(&collection, indexes);
        if chosen.iter().any(|(_, dictionary)| *dictionary == collection.primary) {
            changed.options = collection.options.with_storage(change)?;
        }
        let ddl_guard = self.ddl_lock.take(&mut txn);
        self.commit_changed(txn, changed)?;
        drop((ddl_guard, guard));
        Ok(before)
    }

    /// Rewrites indexes while reads and writes go on, at the engine's own pace. `report` is
    /// told how far it is, several times a second, and ends it by an error: what is done then
    /// stays done.
    pub fn rewrite_indexes(
        &self,
        namespace: &Namespace,
        selector: IndexSelector<'_>,
        what: Rewrite,
        report: &dyn Fn(ReindexProgress<'_>) -> Result<()>,
    ) -> Result<()> {
        let collection = self.require(namespace)?;
        let chosen = chosen(&collection, selector)?;
        let engine = self.engine();
        let gone = |error: engine::Error| match error {
            engine::Error::NoSuchDictionary(_) => not_found(namespace),
            other => from_engine(other),
        };
        let mut totals = Vec::new();
        for (_, dictionary) in &chosen {
            totals.push(engine.rewrite_bytes(*dictionary, what).map_err(gone)?);
        }
        let total_bytes = totals.iter().sum();
        let mut before = 0;
        for ((name, dictionary), bytes) in chosen.iter().zip(totals) {
            let mut stopped = Ok(());
            let mut go_on = |done: u64| {
                let done_bytes = before + done.min(bytes);
                stopped = report(ReindexProgress { index: name, done_bytes, total_bytes });
                stopped.is_ok()
            };
            engine.rewrite(*dictionary, what, &mut go_on).map_err(gone)?;
            stopped?;
            before += bytes;
        }
        Ok(())
    }
}

/// The indexes that are meant, with their dictionaries; `_id_` is the collection itself.
fn chosen(
    collection: &Collection,
    selector: IndexSelector<'_>,
) -> Result<Vec<(String, DictionaryId)>> {
    if collection.is_view() {
        return Err(Error::new(
            Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
            format!("Namespace {} is a view, not a collection", collection.namespace),
        ));
    }
    let id_name = collection.options.id_index_name();
    let id = || (id_name.to_owned(), collection.primary);
    let meant = match selector {
        IndexSelector::Name(name) if name == ID_INDEX || name == id_name => return Ok(vec![id()]),
        IndexSelector::Key(key) if is_id_pattern(key) => return Ok(vec![id()]),
        other => selected(collection, other)?,
    };
    let all = matches!(selector, IndexSelector::All).then(id);
    let named = collection
        .indexes
        .iter()
        .filter(|index| meant.contains(&index.spec.name))
        .map(|index| (index.spec.name.clone(), index.dictionary));
    Ok(all.into_iter().chain(named).collect())
}
