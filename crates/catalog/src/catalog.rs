//! The catalog: which collections exist, by name.
//!
//! The map in memory is the truth for lookups and equals `ROOT`: a change is committed to the
//! engine first and then swapped in, under the [`DdlLock`], so that changes happen one by one. Where commits are held
//! back it is swapped in once it is visible; who changes or writes finds it before ([`Catalog::newest`]).
//!
//! Lock order: metadata locks of collections, by namespace → a name's lock in `ROOT` → the DDL lock
//! → the map → the engine.

use crate::failure::from_engine;
use crate::metadata::collection::Collection;
use crate::metadata::collection_map::CollectionMap;
use crate::metadata::counts::{self, Stripe};
use crate::metadata::ddl_lock::DdlLock;
use crate::metadata::namespace::Namespace;
use crate::metadata::options::CollectionOptions;
use crate::metadata::records;
use crate::shape;
use engine::{DictionaryOptions, Direction, Engine, KeyRange, LogWait, Snapshot};
use errors::{Code, Error, Result};
use indexkeys::IndexSpec;
use indexkeys::StorageOptions;
use os::{Os, Wait, Waits};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The rooms a catalog needs beside the engine.
#[derive(Clone)]
pub struct CatalogOptions {
    /// Clock, randomness and files.
    pub os: Os,
    /// Where sorts and groups may spill.
    pub temporary_directory: PathBuf,
}

impl CatalogOptions {
    /// Both.
    pub fn new(os: Os, temporary_directory: PathBuf) -> Self {
        Self { os, temporary_directory }
    }
}

/// Databases, collections and indexes over one engine.
pub struct Catalog {
    engine: Engine,
    options: CatalogOptions,
    pub(crate) namespaces: Arc<CollectionMap>,
    pub(crate) ddl_lock: DdlLock,
    /// The shape of what is created without one.
    storage_defaults: RwLock<StorageOptions>,
    /// See `left_out.rs`.
    pub(crate) leaves_out_indexes: AtomicBool,
}

impl Catalog {
    /// Reads what the engine holds, and takes over the writing. Refuses a format newer than this code.
    pub fn open(engine: Engine, options: CatalogOptions) -> Result<Arc<Self>> {
        let catalog = Self::following(engine, options)?;
        catalog.take_over()?;
        Ok(catalog)
    }

    /// Reads what the engine holds and writes nothing: for a member of a set that another one leads. Refuses a
    /// format newer than this code.
    pub fn following(engine: Engine, options: CatalogOptions) -> Result<Arc<Self>> {
        let mut namespaces = BTreeMap::new();
        let mut by_number = BTreeMap::new();
        let mut stripes = Vec::new();
        let mut masks = BTreeMap::new();
        let snapshot = engine.snapshot();
        let mut cursor = snapshot
            .cursor(counts::DICTIONARY, KeyRange::all(), Direction::Forward)
            .map_err(from_engine)?;
        while let Some((key, value)) = cursor.next().map_err(from_engine)? {
            match key.first() {
                _ if key == records::VERSION_KEY => {
                    check_version(value)?;
                }
                Some(&records::NAMESPACE_PREFIX) => {
                    let collection = Arc::new(records::read_collection(value)?);
                    by_number.insert(collection.number, Arc::clone(&collection));
                    for store in collection.stores() {
                        by_number.insert(store.number, Arc::clone(store));
                    }
                    namespaces.insert(collection.namespace.as_str().to_owned(), collection);
                }
                Some(&counts::PREFIX) => stripes.extend(Stripe::read(key, value)),
                Some(&records::MULTIKEY_PREFIX) => {
                    if let Some(Ok(dictionary)) = key.get(1..).map(<[u8; 8]>::try_from) {
                        masks.insert(u64::from_be_bytes(dictionary), records::read_multikey(value));
                    }
                }
                _ => {}
            }
        }
        let mut next_number = 1;
        for (number, stripe) in stripes {
            next_number = next_number.max(number + 1);
            if let Some(collection) = by_number.get(&number) {
                collection.shared.counts.load(stripe);
            }
        }
        for (number, collection) in &by_number {
            next_number = next_number.max(number + 1);
            for index in &collection.indexes {
                let mask = masks.get(&index.logical.0).copied().unwrap_or(0);
                index.state.observed.store(mask, Ordering::Release);
                index.state.persisted.store(mask, Ordering::Release);
            }
        }
        engine.ask_while_waiting(|| limits::check_wait().is_ok());
        Ok(Arc::new(Self {
            namespaces: Arc::new(CollectionMap::new(namespaces, engine.clone())),
            engine,
            options,
            ddl_lock: DdlLock::new(next_number),
            storage_defaults: RwLock::default(),
            leaves_out_indexes: AtomicBool::new(false),
        }))
    }

    /// Takes over the writing: what others began and did not end is dropped, unfinished builds and temporary
    /// collections. Nobody else writes, and whoever followed has ended. To be called once by who writes, and
    /// again each time it leads anew.
    pub fn take_over(&self) -> Result<()> {
        if self.leaves_out_indexes() {
            let text = "a member without indexes (buildIndexes: false) takes no writes";
            return Err(Error::new(Code::NOT_WRITABLE_PRIMARY, text));
        }
        let state = self.engine.snapshot();
        let unfinished = records::unfinished(&state)?;
        let is_new =
            state.get(counts::DICTIONARY, records::VERSION_KEY).map_err(from_engine)?.is_none();
        drop(state);
        if !unfinished.is_empty() {
            records::drop_unfinished(&self.engine, &unfinished)?;
        }
        self.sweep_temporary()?;
        if is_new {
            self.write_version()?;
        }
        Ok(())
    }

    /// Tells the engine what the metadata in memory take, so that its cache makes room for them. Looks at every
    /// collection; called every few seconds.
    pub fn count_memory(&self) {
        let namespaces = self.namespaces.read();
        let bytes = namespaces.values().map(|collection| collection.memory_bytes()).sum::<usize>();
        drop(namespaces);
        self.engine.set_catalog_bytes(bytes as u64);
    }

    fn write_version(&self) -> Result<()> {
        let mut txn = self.engine.begin(engine::TxnOptions::default());
        txn.allow_within_red_zone();
        txn.put(counts::DICTIONARY, records::VERSION_KEY, &records::VERSION.to_le_bytes())
            .map_err(from_engine)?;
        txn.commit(engine::Durability::Buffered).map_err(from_engine)?.visible();
        Ok(())
    }

    /// The storage engine below. For its statistics, checkpoints and shutdown, not for data.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whether commits are held back: complete before others see them.
    pub(crate) fn holds_back(&self) -> bool {
        self.engine.holds_back()
    }

    /// Clock, randomness and files.
    pub fn os(&self) -> &Os {
        &self.options.os
    }

    /// Where sorts and groups may spill.
    pub fn temporary_directory(&self) -> &std::path::Path {
        &self.options.temporary_directory
    }

    /// The shape of collections and indexes that are created without one.
    pub fn storage_defaults(&self) -> StorageOptions {
        *self.storage_defaults.read()
    }

    /// Changes it, for what is created from now on. It is not kept over a restart.
    pub fn set_storage_defaults(&self, defaults: StorageOptions) {
        *self.storage_defaults.write() = defaults;
    }

    /// Counts the time of `wait` as waited for a lock, on this thread.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let clock = &self.os().clock;
        let started = clock.monotonic();
        let result = wait();
        Waits::add(Wait::Lock, clock.monotonic().saturating_sub(started));
        result
    }

    /// A read-only view of everything committed by now. Take it *after* looking up collections
    /// and *before* planning: then every index seen is in it, and every multikey mark covers it.
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// Counts the changes of what stands under names: who sees the same count again would find the same.
    pub(crate) fn changes_of_names(&self) -> u64 {
        self.namespaces.changes()
    }

    /// The collection or view of this name.
    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.namespaces.read().get(namespace.as_str()).cloned()
    }

    /// The collection, or the error for commands that need one.
    pub fn require(&self, namespace: &Namespace) -> Result<Arc<Collection>> {
        self.collection(namespace).ok_or_else(|| not_found(namespace))
    }

    /// The collections and views of a database, by name.
    pub fn collections(&self, database: &str) -> Vec<Arc<Collection>> {
        let (from, to) = (format!("{database}."), format!("{database}/"));
        self.namespaces
            .read()
            .range::<str, _>((Bound::Included(from.as_str()), Bound::Excluded(to.as_str())))
            .map(|(_, collection)| Arc::clone(collection))
            .collect()
    }

    /// The names of the databases, ascending. A database exists while it has collections. Looks at one
    /// collection of each.
    pub fn databases(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let namespaces = self.namespaces.read();
        let mut from = String::new();
        while let Some((_, collection)) =
            namespaces.range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded)).next()
        {
            let name = collection.namespace.database();
            // The collections of a database stand side by side behind "name."; this comes behind all.
            from = format!("{name}/");
            names.push(name.to_owned());
        }
        names.sort();
        names
    }

    /// Whether the database has a collection.
    pub fn database_exists(&self, database: &str) -> bool {
        !self.collections(database).is_empty()
    }

    /// Counts the commits that changed documents of users or roles, this server's and other members'; counted when
    /// they are visible, before they are acknowledged.
    pub fn account_changes(&self) -> u64 {
        self.namespaces.account_changes()
    }

    pub(crate) fn accounts_changed(&self) {
        self.namespaces.accounts_changed();
    }

    /// Fails where nothing can be written any more: the storage engine stopped.
    pub fn check_running(&self) -> Result<()> {
        self.engine.check_running().map_err(from_engine)
    }

    /// Makes every commit so far durable on this member's disk (`j: true`, `fsync`). Whether others see them
    /// is waited for with [`Catalog::settle`].
    pub fn sync(&self) -> Result<()> {
        self.engine.sync().map_err(from_engine)
    }

    /// As [`Catalog::sync`] for what is committed when `wait` was made, where nobody else is about to bring it to disk;
    /// `false` where somebody is ([`engine::Engine::watch_sync`]).
    pub fn sync_or_join(&self, wait: &LogWait) -> Result<bool> {
        self.engine.sync_or_join(wait).map_err(from_engine)
    }
}

/// `ns not found`.
pub(crate) fn not_found(namespace: &Namespace) -> Error {
    Error::new(Code::NAMESPACE_NOT_FOUND, format!("ns not found {namespace}"))
}

fn check_version(value: &[u8]) -> Result<()> {
    match value.try_into().map(u32::from_le_bytes) {
        Ok(records::VERSION) => Ok(()),
        other => Err(Error::new(
            Code::UNSUPPORTED_FORMAT,
            format!("the catalog's format is {other:?}, this server reads {}", records::VERSION),
        )),
    }
}

impl Catalog {
    /// The shape of a new collection's documents.
    pub(crate) fn shape_of_collection(&self, options: &CollectionOptions) -> DictionaryOptions {
        let base = DictionaryOptions { leaf_filter: true, ..DictionaryOptions::default() };
        shape::over(&options.storage.or(self.storage_defaults()), base)
    }

    /// The shape of a new index: its own, else the collection's for indexes, else the
    /// collection's, else the server's.
    pub(crate) fn shape_of_index(
        &self,
        collection: &CollectionOptions,
        spec: &IndexSpec,
    ) -> DictionaryOptions {
        let base = DictionaryOptions { leaf_filter: spec.unique, ..DictionaryOptions::default() };
        let inherited = collection.index_storage.or(collection.storage);
        shape::over(&spec.storage.or(inherited).or(self.storage_defaults()), base)
    }
}
