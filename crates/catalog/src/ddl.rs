//! Changes to the set of collections: create, drop, rename.
//!
//! From → to: the collection's exclusive metadata lock is taken, then the mutex `ddl`; the change is
//! committed to the engine, the map in memory follows as soon as it is visible (also where the
//! disk then fails the commit), the locks open. A crash in between leaves the
//! engine's state, which the next start reads.

use crate::build::with_indexes;
use crate::catalog::{Catalog, Ddl};
use crate::collection::{Collection, Shared};
use crate::counts::{self, Stripe};
use crate::failure::from_engine;
use crate::metadata;
use crate::namespace::Namespace;
use crate::options::CollectionOptions;
use crate::sweep::TEMPORARY_PREFIX;
use bson::Uuid;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use engine::{DictionaryId, DictionaryOptions, Durability, TxnOptions};
use errors::{Code, Error, Result};
use parking_lot::{ArcRwLockWriteGuard, RawRwLock};
use std::sync::Arc;
use std::time::Duration;

/// How long a change of the metadata keeps new writers out while it waits for those inside…
pub(crate) const METADATA_TURN: Duration = Duration::from_millis(100);
/// …and how often it tries, letting writers pass in between, before it gives up.
const METADATA_TURNS: u32 = 600;

/// Asked between the turns of a wait whether to go on.
pub type Check<'a> = &'a dyn Fn() -> Result<()>;

impl Catalog {
    /// Creates a collection or view. Fails with `NamespaceExists` where the name is taken.
    pub fn create_collection(
        &self,
        namespace: &Namespace,
        options: &CollectionOptions,
        check: Check<'_>,
    ) -> Result<Arc<Collection>> {
        self.create_collection_as(namespace, options, None, check)
    }

    /// As [`Catalog::create_collection`], under the UUID that the collection has elsewhere. Fails
    /// with `NamespaceExists` where another has it here.
    pub fn create_collection_as(
        &self,
        namespace: &Namespace,
        options: &CollectionOptions,
        uuid: Option<Uuid>,
        check: Check<'_>,
    ) -> Result<Arc<Collection>> {
        namespace.check_writable()?;
        if let Some(existing) = self.collection(namespace) {
            return Err(exists(namespace, &existing));
        }
        let txn = self.lock_name(namespace, check)?;
        let mut ddl = self.ddl.lock();
        if let Some(existing) = self.collection(namespace) {
            return Err(exists(namespace, &existing));
        }
        if let Some(other) = uuid.and_then(|uuid| self.collection_of(uuid)) {
            return Err(Error::new(
                Code::NAMESPACE_EXISTS,
                format!("the UUID for {namespace} belongs to {}", other.namespace),
            ));
        }
        self.create_locked(&mut ddl, txn, namespace, options, uuid)
    }

    /// The collection with this UUID. Looks at all of them.
    pub fn collection_of(&self, uuid: Uuid) -> Option<Arc<Collection>> {
        self.namespaces.read().values().find(|collection| collection.uuid == uuid).cloned()
    }

    /// The collection, created with default options where it does not exist.
    pub fn ensure_collection(&self, namespace: &Namespace) -> Result<Arc<Collection>> {
        if let Some(existing) = self.collection(namespace) {
            return Ok(existing);
        }
        namespace.check_writable()?;
        self.ensure_system_collection(namespace)
    }

    /// As [`Catalog::ensure_collection`], also for names that no client may write to. For what the
    /// server keeps in documents of its own.
    pub fn ensure_system_collection(&self, namespace: &Namespace) -> Result<Arc<Collection>> {
        if let Some(existing) = self.collection(namespace) {
            return Ok(existing);
        }
        let txn = self.lock_name(namespace, &|| Ok(()))?;
        let mut ddl = self.ddl.lock();
        match self.collection(namespace) {
            Some(existing) => Ok(existing),
            None => {
                let options = CollectionOptions::default();
                self.create_locked(&mut ddl, txn, namespace, &options, None)
            }
        }
    }

    /// A transaction that holds a name. Waits for a client's transaction that is creating it, and
    /// before the mutex `ddl`, so that nobody else waits for that.
    fn lock_name(&self, namespace: &Namespace, check: Check<'_>) -> Result<engine::Txn> {
        let key = metadata::namespace_key(namespace);
        let mut attempts = 0;
        loop {
            let options = TxnOptions { lock_timeout: Some(METADATA_TURN), ..TxnOptions::default() };
            let mut txn = self.engine().begin(options);
            match txn.lock(DictionaryId::ROOT, &key) {
                Ok(()) => return Ok(txn),
                Err(engine::Error::WriteConflict | engine::Error::LockTimeout { .. })
                    if attempts < METADATA_TURNS =>
                {
                    attempts += 1;
                    check()?;
                }
                Err(error) => return Err(from_engine(error)),
            }
        }
    }

    /// A number that no collection has had.
    pub(crate) fn new_number(&self) -> u64 {
        let mut ddl = self.ddl.lock();
        ddl.next_number += 1;
        ddl.next_number - 1
    }

    fn create_locked(
        &self,
        ddl: &mut Ddl,
        mut txn: engine::Txn,
        namespace: &Namespace,
        options: &CollectionOptions,
        uuid: Option<Uuid>,
    ) -> Result<Arc<Collection>> {
        self.check_case(namespace.database())?;
        options.validation.check_place(namespace)?;
        if options.view.is_some() {
            self.check_view(namespace, options)?;
        }
        let storage = self.shape_of_collection(options);
        let primary = match options.view {
            Some(_) => DictionaryId(0),
            None => txn.create_dictionary(storage).map_err(from_engine)?,
        };
        let order = create_order(&mut txn, options, storage)?;
        let collection = Collection {
            namespace: namespace.clone(),
            uuid: uuid.unwrap_or_else(|| self.new_uuid()),
            number: ddl.next_number,
            options: options.clone(),
            primary,
            order,
            indexes: Vec::new(),
            shared: Arc::new(Shared::default()),
        };
        ddl.next_number += 1;
        self.commit_changed(txn, collection)
    }

    pub(crate) fn check_case(&self, database: &str) -> Result<()> {
        match self
            .databases()
            .into_iter()
            .find(|known| known != database && known.eq_ignore_ascii_case(database))
        {
            None => Ok(()),
            Some(known) => Err(Error::new(
                Code::DATABASE_DIFFER_CASE,
                format!(
                    "db already exists with different case already have: [{known}] trying to \
                     create [{database}]"
                ),
            )),
        }
    }

    /// Drops a collection with its indexes; says what it was. Waits for its writers.
    pub fn drop_collection(
        &self,
        namespace: &Namespace,
        check: Check<'_>,
    ) -> Result<Arc<Collection>> {
        let (collection, guard) = self.lock_current(namespace, check)?;
        let _ddl = self.ddl.lock();
        let mut txn = self.engine().begin(TxnOptions::default());
        drop_records(&mut txn, &collection).map_err(from_engine)?;
        let dropped = txn.commit_with(Durability::Buffered, |_| {
            self.namespaces.write().remove(namespace.as_str());
            collection.shared.end();
        });
        dropped.map_err(from_engine)?;
        drop(guard);
        Ok(collection)
    }

    /// Drops every collection of a database; says how many there were.
    pub fn drop_database(&self, database: &str, check: Check<'_>) -> Result<usize> {
        crate::namespace::check_database(database)?;
        let (collections, guards, _ddl) = loop {
            let collections = self.collections(database);
            let guards: Vec<_> =
                collections.iter().map(|c| lock_metadata(c, check)).collect::<Result<_>>()?;
            let ddl = self.ddl.lock();
            let now = self.collections(database);
            if now.iter().map(|c| c.number).eq(collections.iter().map(|c| c.number)) {
                break (now, guards, ddl);
            }
        };
        let mut txn = self.engine().begin(TxnOptions::default());
        for collection in &collections {
            drop_records(&mut txn, collection).map_err(from_engine)?;
        }
        let dropped = txn.commit_with(Durability::Buffered, |_| {
            let mut namespaces = self.namespaces.write();
            for collection in &collections {
                namespaces.remove(collection.namespace.as_str());
                collection.shared.end();
            }
        });
        dropped.map_err(from_engine)?;
        drop(guards);
        Ok(collections.len())
    }

    /// Renames a collection, also into another database; with `drop_target` over an existing one.
    pub fn rename_collection(
        &self,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
        check: Check<'_>,
    ) -> Result<()> {
        let guards = self.lock_pair(from, to, check)?;
        let _ddl = self.ddl.lock();
        let target = self.collection(to);
        let source = check_rename(from, to, self.collection(from), target.as_ref(), drop_target)?;
        if target.is_none() {
            self.check_case(to.database())?;
        }
        let mut txn = self.engine().begin(TxnOptions::default());
        if let Some(target) = &target {
            drop_records(&mut txn, target).map_err(from_engine)?;
        }
        let renamed = Arc::new(renamed(&source, to));
        txn.delete(DictionaryId::ROOT, &metadata::namespace_key(from)).map_err(from_engine)?;
        write_record(&mut txn, &renamed).map_err(from_engine)?;
        let committed = txn.commit_with(Durability::Buffered, |_| {
            let mut namespaces = self.namespaces.write();
            namespaces.remove(from.as_str());
            namespaces.insert(to.as_str().to_owned(), renamed);
            drop(namespaces);
            if let Some(target) = &target {
                target.shared.end();
            }
        });
        committed.map_err(from_engine)?;
        drop(guards);
        Ok(())
    }

    /// Changes what is demanded of documents: some of `validator`, `validationLevel`,
    /// `validationAction`. Waits for the writers; what is stored is not looked at.
    pub fn change_validation(
        &self,
        namespace: &Namespace,
        change: &RawDocument,
        check: Check<'_>,
    ) -> Result<()> {
        let (collection, guard) = self.lock_current(namespace, check)?;
        if let (true, Some(Ok((name, _)))) = (collection.is_view(), change.iter().next()) {
            return Err(Error::new(
                Code::INVALID_OPTIONS,
                format!("option not supported on a view: {}", name.as_str()),
            ));
        }
        let options = collection.options.with_validation(change)?;
        options.validation.check_place(namespace)?;
        let _ddl = self.ddl.lock();
        let txn = self.engine().begin(TxnOptions::default());
        self.commit_changed(txn, with_options(&collection, options))?;
        drop(guard);
        Ok(())
    }

    /// Changes what a view is of: another source, another pipeline.
    pub fn change_view(
        &self,
        namespace: &Namespace,
        on: Option<&str>,
        pipeline: Option<&RawArray>,
        check: Check<'_>,
    ) -> Result<()> {
        let (collection, guard) = self.lock_current(namespace, check)?;
        let options = collection.options.with_view(on, pipeline)?;
        let _ddl = self.ddl.lock();
        self.check_view(namespace, &options)?;
        let txn = self.engine().begin(TxnOptions::default());
        self.commit_changed(txn, with_options(&collection, options))?;
        drop(guard);
        Ok(())
    }

    /// Changes how long documents live, or the pace of measurements.
    pub fn change_layout(
        &self,
        namespace: &Namespace,
        expire_after: Option<RawBsonRef<'_>>,
        time_series: Option<&RawDocument>,
        check: Check<'_>,
    ) -> Result<()> {
        let (collection, guard) = self.lock_current(namespace, check)?;
        let options = collection.options.with_layout(expire_after, time_series)?;
        let _ddl = self.ddl.lock();
        let txn = self.engine().begin(TxnOptions::default());
        self.commit_changed(txn, with_options(&collection, options))?;
        drop(guard);
        Ok(())
    }

    /// The collection's current version under its exclusive metadata lock.
    pub(crate) fn lock_current(
        &self,
        namespace: &Namespace,
        check: Check<'_>,
    ) -> Result<(Arc<Collection>, MetadataGuard)> {
        loop {
            let found = self.require(namespace)?;
            let guard = lock_metadata(&found, check)?;
            let current = self.require(namespace)?;
            if current.number == found.number {
                return Ok((current, guard));
            }
        }
    }

    /// Locks what stands under both names, in the order of the names.
    fn lock_pair(
        &self,
        a: &Namespace,
        b: &Namespace,
        check: Check<'_>,
    ) -> Result<Vec<MetadataGuard>> {
        let (first, second) = if a <= b { (a, b) } else { (b, a) };
        loop {
            let look =
                || [self.collection(first), self.collection(second).filter(|_| first != second)];
            let found = look();
            let guards: Vec<_> =
                found.iter().flatten().map(|c| lock_metadata(c, check)).collect::<Result<_>>()?;
            let number = |c: &Option<Arc<Collection>>| c.as_ref().map(|c| c.number);
            if look().iter().map(number).eq(found.iter().map(number)) {
                return Ok(guards);
            }
        }
    }

    /// Ends a change of the catalog: the collection's record is written with whatever else `txn`
    /// did, and its new version is what others find from the commit on.
    pub(crate) fn commit_changed(
        &self,
        mut txn: engine::Txn,
        changed: Collection,
    ) -> Result<Arc<Collection>> {
        let changed = Arc::new(changed);
        write_record(&mut txn, &changed).map_err(from_engine)?;
        let committed = txn.commit_with(Durability::Buffered, |_| self.publish(&changed));
        committed.map_err(from_engine)?;
        Ok(changed)
    }

    /// Swaps a collection's new version into the map.
    pub(crate) fn publish(&self, collection: &Arc<Collection>) {
        self.namespaces
            .write()
            .insert(collection.namespace.as_str().to_owned(), Arc::clone(collection));
    }

    pub(crate) fn new_uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.os().entropy.fill(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid::from_bytes(bytes)
    }
}

/// Refuses what cannot be renamed so; the collection that can.
pub(crate) fn check_rename(
    from: &Namespace,
    to: &Namespace,
    source: Option<Arc<Collection>>,
    target: Option<&Arc<Collection>>,
    drop_target: bool,
) -> Result<Arc<Collection>> {
    let source = source.ok_or_else(|| {
        Error::new(Code::NAMESPACE_NOT_FOUND, format!("Source collection {from} does not exist"))
    })?;
    if source.is_view() {
        return Err(Error::new(
            Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
            format!("cannot rename view: {from}"),
        ));
    }
    // What `$out` has filled takes its name so.
    if source.options.time_series.is_some() && !from.collection().starts_with(TEMPORARY_PREFIX) {
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            format!("cannot rename the time-series collection {from}"),
        ));
    }
    if from == to {
        return Err(Error::new(Code::ILLEGAL_OPERATION, "Can't rename a collection to itself"));
    }
    from.check_writable()?;
    to.check_writable()?;
    match target {
        Some(_) if !drop_target => {
            Err(Error::new(Code::NAMESPACE_EXISTS, "target namespace exists"))
        }
        Some(target) if target.is_view() => Err(Error::new(
            Code::NAMESPACE_EXISTS,
            format!("a view already exists with that name: {to}"),
        )),
        _ => Ok(source),
    }
}

/// The collection under another name.
pub(crate) fn renamed(collection: &Collection, to: &Namespace) -> Collection {
    let indexes = collection.indexes.clone();
    Collection { namespace: to.clone(), ..with_indexes(collection, indexes) }
}

/// While it lives, no write is inside the collection.
pub(crate) type MetadataGuard = ArcRwLockWriteGuard<RawRwLock, ()>;

/// Waits until no write is inside the collection, and keeps them out. An open transaction that
/// has written there is waited for a minute; it may itself wait for somebody who waits for us, and
/// its own locks give up much sooner.
pub(crate) fn lock_metadata(collection: &Collection, check: Check<'_>) -> Result<MetadataGuard> {
    for _ in 0..METADATA_TURNS {
        if let Some(guard) = collection.shared.metadata.try_write_arc_for(METADATA_TURN) {
            return Ok(guard);
        }
        check()?;
    }
    let waited = METADATA_TURN * METADATA_TURNS;
    Err(lock_timeout('X', &collection.namespace, waited))
}

/// The refusal of whoever waited too long for a collection.
pub(crate) fn lock_timeout(mode: char, namespace: &Namespace, waited: Duration) -> Error {
    let mode = if mode == 'X' { "X" } else { "IX" };
    Error::new(
        Code::LOCK_TIMEOUT,
        format!("Unable to acquire {mode} lock on '{namespace}' within {}ms.", waited.as_millis()),
    )
}

/// The collection with other options.
pub(crate) fn with_options(collection: &Collection, options: CollectionOptions) -> Collection {
    Collection { options, ..with_indexes(collection, collection.indexes.clone()) }
}

/// The order dictionary of a collection that is to be capped.
pub(crate) fn create_order(
    txn: &mut engine::Txn,
    options: &CollectionOptions,
    storage: DictionaryOptions,
) -> Result<Option<DictionaryId>> {
    let capped = options.capped.map(|_| txn.create_dictionary(storage));
    capped.transpose().map_err(from_engine)
}

/// Writes a collection's record as part of `txn`.
pub(crate) fn write_record(txn: &mut engine::Txn, collection: &Collection) -> engine::Result<()> {
    let record = metadata::write_collection(collection);
    let key = metadata::namespace_key(&collection.namespace);
    txn.put(DictionaryId::ROOT, &key, record.as_bytes())
}

/// Drops an index's dictionary and its mask as part of `txn`.
pub(crate) fn drop_index_records(
    txn: &mut engine::Txn,
    dictionary: DictionaryId,
) -> engine::Result<()> {
    txn.drop_dictionary(dictionary)?;
    // Written only inside the collection, which nobody is now.
    txn.write_covered(DictionaryId::ROOT, &metadata::multikey_key(dictionary), None)
}

/// Drops everything of a collection as part of `txn`, which is the only writer inside.
pub(crate) fn drop_records(txn: &mut engine::Txn, collection: &Collection) -> engine::Result<()> {
    if !collection.is_view() {
        txn.drop_dictionary(collection.primary)?;
    }
    if let Some(order) = collection.order {
        txn.drop_dictionary(order)?;
    }
    for index in &collection.indexes {
        drop_index_records(txn, index.dictionary)?;
    }
    for number in collection.shared.counts.stripe_numbers() {
        txn.write_covered(counts::DICTIONARY, &Stripe::key(collection.number, number), None)?;
    }
    txn.delete(DictionaryId::ROOT, &metadata::namespace_key(&collection.namespace))
}

pub(crate) fn exists(namespace: &Namespace, existing: &Collection) -> Error {
    let what = if existing.is_view() { "A view" } else { "Collection" };
    let message = match what {
        "Collection" => format!("Collection {namespace} already exists."),
        _ => format!("{what} already exists. NS: {namespace}"),
    };
    Error::new(Code::NAMESPACE_EXISTS, message)
}
