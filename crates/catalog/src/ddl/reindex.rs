//! `reIndex`: another storage shape for a collection's dictionaries, and rewriting them.
//!
//! From → to: the new options are committed under the collection's metadata lock, in the catalog's
//! records and in the engine together [`Catalog::reshape_indexes`]; from then on what is written
//! has the new shape. Then the engine rewrites what is stored, piece by piece, while reads and
//! writes go on [`Catalog::rewrite_indexes`]. A crash in between leaves the new options and a
//! dictionary of both shapes, which reads as before; another `reIndex` rewrites the rest.

use crate::catalog::{Catalog, not_found};
use crate::data::metadata_lock::{Check, lock_name};
use crate::ddl::build::{IndexSelector, is_id_pattern, is_primary, selected};
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, clone_index, with_indexes};
use crate::metadata::namespace::Namespace;
use crate::shape;
use bson::raw::RawDocument;
use engine::{DictionaryId, DictionaryOptions, Rewrite};
use errors::{Code, Error, Result};
use indexkeys::StorageOptions;
use std::sync::Arc;

/// What the index on `_id` is called, also where it is the collection itself under a name of its own.
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
    /// Changes the storage shape of indexes, the primary key being the collection itself; says what each
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
                let is_told = before.iter().any(|told: &Reindexed| told.name == *name);
                if !is_told {
                    before.push(Reindexed { name: name.clone(), was });
                }
            }
            Ok(before)
        })?;
        let mut indexes = collection.indexes.clone();
        for index in &mut indexes {
            // The index on `_id` shows no options; the engine knows its shape.
            let is_chosen = chosen.iter().any(|(_, dictionary)| *dictionary == index.dictionary);
            if is_chosen && !index.spec.is_id() {
                let mut changed = clone_index(index, index.created);
                changed.spec = index.spec.with_storage(change)?;
                *index = Arc::new(changed);
            }
        }
        let mut changed = with_indexes(&collection, indexes);
        if chosen.iter().any(|(_, dictionary)| *dictionary == collection.primary) {
            changed.options = Arc::new(collection.options.with_storage(change)?);
            changed = changed.assembled();
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
        let collection = self.require_newest(namespace)?;
        let chosen = chosen(&collection, selector)?;
        let engine = self.engine();
        let gone = |error: engine::Error| match error {
            engine::Error::NoSuchDictionary(_) => not_found(namespace),
            other => from_engine(other),
        };
        // A partition may go meanwhile.
        let passes_over = |error: &engine::Error| {
            let is_gone = matches!(error, engine::Error::NoSuchDictionary(_));
            is_gone && collection.is_partitioned() && !collection.is_dropped()
        };
        let mut totals = Vec::new();
        for (_, dictionary) in &chosen {
            totals.push(match engine.rewrite_bytes(*dictionary, what) {
                Err(error) if passes_over(&error) => 0,
                bytes => bytes.map_err(gone)?,
            });
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
            match engine.rewrite(*dictionary, what, &mut go_on) {
                Err(error) if passes_over(&error) => {}
                rewritten => drop(rewritten.map_err(gone)?),
            }
            stopped?;
            before += bytes;
        }
        Ok(())
    }
}

/// The indexes that are meant, with their dictionaries; the primary key is the collection itself. Of a
/// partitioned collection each has several, first the one that stands for it.
fn chosen(
    collection: &Collection,
    selector: IndexSelector<'_>,
) -> Result<Vec<(String, DictionaryId)>> {
    let mut chosen = Vec::new();
    for (name, dictionary) in chosen_indexes(collection, selector)? {
        let index = collection.indexes.iter().find(|index| index.dictionary == dictionary);
        let parts: Vec<DictionaryId> = match index {
            Some(index) => index.parts.values().copied().collect(),
            None => collection.partitions().iter().map(|partition| partition.primary).collect(),
        };
        let all = std::iter::once(dictionary).chain(parts);
        chosen.extend(all.map(|dictionary| (name.clone(), dictionary)));
    }
    Ok(chosen)
}

fn chosen_indexes(
    collection: &Collection,
    selector: IndexSelector<'_>,
) -> Result<Vec<(String, DictionaryId)>> {
    if collection.is_view() {
        return Err(Error::new(
            Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
            format!("Namespace {} is a view, not a collection", collection.namespace),
        ));
    }
    let primary = || (collection.primary_name().to_owned(), collection.primary);
    let on_id = || match collection.id_index() {
        Some(index) => (index.spec.name.clone(), index.dictionary),
        None => primary(),
    };
    let meant = match selector {
        IndexSelector::Name(name) if name == collection.primary_name() => {
            return Ok(vec![primary()]);
        }
        IndexSelector::Name(ID_INDEX) => return Ok(vec![on_id()]),
        IndexSelector::Key(key) if is_id_pattern(key) => return Ok(vec![on_id()]),
        IndexSelector::Key(_) if is_primary(collection, selector) => return Ok(vec![primary()]),
        other => selected(collection, other)?,
    };
    let is_all = matches!(selector, IndexSelector::All);
    let named = collection
        .indexes
        .iter()
        .filter(|index| meant.contains(&index.spec.name) || (is_all && index.spec.is_id()))
        .map(|index| (index.spec.name.clone(), index.dictionary));
    Ok(is_all.then(primary).into_iter().chain(named).collect())
}
