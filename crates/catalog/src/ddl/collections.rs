//! Changes to the set of collections: create, drop, rename.
//!
//! From → to: the collection's exclusive metadata lock is taken, then what the change locks in the
//! engine, then the DDL lock ([`crate::metadata::ddl_lock`]); the change is committed to the engine, the map
//! in memory follows as soon as it is visible (also where the disk then fails the commit), the
//! locks open; where commits are held back they open before ([`crate::ddl::ahead`]). A crash in between leaves the engine's state, which the next start reads.

use crate::catalog::Catalog;
use crate::data::metadata_lock::{Check, MetadataGuard, lock_name};
use crate::data::notes::NotedCommand;
use crate::ddl::made::{self, MadeName};
use crate::ddl::sweep::TEMPORARY_PREFIX;
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index, Shared, with_indexes};
use crate::metadata::collection_map::NameChange;
use crate::metadata::counts::{self, Stripe};
use crate::metadata::ddl_lock::DdlGuard;
use crate::metadata::namespace::Namespace;
use crate::metadata::options::CollectionOptions;
use crate::metadata::partitions::Partitions;
use crate::metadata::records::{self, drop_index};
use bson::Uuid;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use engine::{DictionaryId, DictionaryOptions, Timestamp};
use errors::{Code, Error, Result};
use std::sync::Arc;

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
        self.check_not_oplog(namespace)?;
        if let Some(existing) = self.newest(namespace) {
            return Err(exists(namespace, &existing));
        }
        let (mut txn, ()) = self.begin_change(check, |txn| lock_name(txn, namespace))?;
        let mut ddl_guard = self.ddl_lock.take(&mut txn);
        if let Some(existing) = self.newest(namespace) {
            return Err(exists(namespace, &existing));
        }
        if let Some(other) = uuid.and_then(|uuid| self.collection_of(uuid)) {
            return Err(Error::new(
                Code::NAMESPACE_EXISTS,
                format!("the UUID for {namespace} belongs to {}", other.namespace),
            ));
        }
        self.create_locked(&mut ddl_guard, txn, namespace, options, uuid)
    }

    /// The collection with this UUID. Looks at all of them.
    pub fn collection_of(&self, uuid: Uuid) -> Option<Arc<Collection>> {
        let to_come = self.namespaces.to_come();
        let found = to_come.into_iter().find(|collection| collection.uuid == uuid);
        found.or_else(|| {
            self.namespaces.read().values().find(|collection| collection.uuid == uuid).cloned()
        })
    }

    /// The collection, created with default options where it does not exist.
    pub fn ensure_collection(&self, namespace: &Namespace) -> Result<Arc<Collection>> {
        if let Some(existing) = self.newest(namespace) {
            return Ok(existing);
        }
        namespace.check_writable()?;
        self.check_not_oplog(namespace)?;
        self.ensure_system_collection(namespace)
    }

    /// Whether it is the oplog of a member of a replica set, which is read from the history.
    pub fn is_oplog(&self, namespace: &Namespace) -> bool {
        namespace.as_str() == Namespace::OPLOG && self.tells()
    }

    /// Refuses to make the oplog, or to write to it.
    pub fn check_not_oplog(&self, namespace: &Namespace) -> Result<()> {
        if self.is_oplog(namespace) {
            let text = format!("cannot write to '{namespace}'");
            return Err(Error::new(Code::INVALID_NAMESPACE, text));
        }
        Ok(())
    }

    /// As [`Catalog::ensure_collection`], also for names that no client may write to. For what the
    /// server keeps in documents of its own.
    pub fn ensure_system_collection(&self, namespace: &Namespace) -> Result<Arc<Collection>> {
        if let Some(existing) = self.newest(namespace) {
            return Ok(existing);
        }
        let (mut txn, ()) = self.begin_change(&|| Ok(()), |txn| lock_name(txn, namespace))?;
        let mut ddl_guard = self.ddl_lock.take(&mut txn);
        if let Some(existing) = self.newest(namespace) {
            return Ok(existing);
        }
        self.create_locked(&mut ddl_guard, txn, namespace, &CollectionOptions::default(), None)
    }

    fn create_locked(
        &self,
        ddl_guard: &mut DdlGuard<'_>,
        mut txn: engine::EngineTxn,
        namespace: &Namespace,
        options: &CollectionOptions,
        uuid: Option<Uuid>,
    ) -> Result<Arc<Collection>> {
        self.check_case(namespace.database())?;
        options.validation.check_place(namespace)?;
        if options.view.is_some() {
            self.check_view(namespace, options)?;
        }
        let uuid = uuid.unwrap_or_else(|| self.new_uuid());
        let mut number = || ddl_guard.new_number();
        let collection = self.make_collection(&mut txn, namespace, options, uuid, &mut number)?;
        self.tell(&mut txn, || NotedCommand::created(&collection).into_iter().collect())?;
        let created = self.commit_changed(txn, collection)?;
        made::note(|| {
            let all = self.newest_collections(namespace.database());
            let is_first = all.iter().all(|other| other.namespace() == namespace);
            MadeName::Created(namespace.clone(), is_first)
        });
        Ok(created)
    }

    /// A collection with its dictionaries, made as part of `txn`; `number` gives numbers that no collection
    /// has had. Its record is not written yet.
    pub(crate) fn make_collection(
        &self,
        txn: &mut engine::EngineTxn,
        namespace: &Namespace,
        options: &CollectionOptions,
        uuid: Uuid,
        number: &mut dyn FnMut() -> u64,
    ) -> Result<Collection> {
        let storage = self.shape_of_collection(options);
        let primary = match options.view {
            Some(_) => DictionaryId(0),
            None => txn.create_dictionary(storage).map_err(from_engine)?,
        };
        let order = create_order(txn, options, storage)?;
        let indexes = self.create_id_index(txn, namespace, options)?;
        let mut collection = Collection {
            namespace: namespace.clone(),
            uuid,
            number: number(),
            options: Arc::new(options.clone()),
            primary,
            order,
            primary_index: records::primary_index(options, primary)?,
            indexes,
            shared: Arc::new(Shared::default()),
            partitions: Partitions::default(),
            owner: None,
        };
        if options.partitioned {
            check_own_layout(namespace, "partitions")?;
            let first = self.make_partition(txn, &collection, 0, number())?;
            collection.indexes = first.indexes;
            let partitions = Partitions::new(options, vec![first.partition], 1)?;
            collection = collection.with_partitions(partitions);
        }
        Ok(collection)
    }

    /// The index on `_id` of a collection that is to be created, where it is not the collection itself.
    fn create_id_index(
        &self,
        txn: &mut engine::EngineTxn,
        namespace: &Namespace,
        options: &CollectionOptions,
    ) -> Result<Vec<Arc<Index>>> {
        let Some(spec) = records::id_index(options)? else { return Ok(Vec::new()) };
        check_own_layout(namespace, "primary key than _id")?;
        let shape = self.shape_of_index(options, &spec);
        let dictionary = txn.create_dictionary(shape).map_err(from_engine)?;
        Ok(vec![Arc::new(records::new_index(spec, options, dictionary, Timestamp(0)))])
    }

    pub(crate) fn check_case(&self, database: &str) -> Result<()> {
        let to_come = self.namespaces.to_come();
        let to_come = to_come.iter().map(|collection| collection.namespace.database().to_owned());
        let mut known = self.databases().into_iter().chain(to_come);
        let differs = |known: &String| known != database && known.eq_ignore_ascii_case(database);
        match known.find(|known| differs(known) && !self.newest_collections(known).is_empty()) {
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
        let (collection, guard) = self.lock_newest(namespace, check)?;
        let prepare =
            |txn: &mut engine::EngineTxn| drop_records(txn, &collection).map_err(from_engine);
        let (mut txn, ()) = self.begin_change(check, prepare)?;
        let _ddl_guard = self.ddl_lock.take(&mut txn);
        self.tell(&mut txn, || NotedCommand::dropped(&collection).into_iter().collect())?;
        self.commit_names(txn, |_| NameChange {
            names: vec![(namespace.clone(), None)],
            ended: vec![Arc::clone(&collection.shared)],
            ..NameChange::default()
        })?;
        drop(guard);
        Ok(collection)
    }

    /// Drops every collection of a database; says how many there were.
    pub fn drop_database(&self, database: &str, check: Check<'_>) -> Result<usize> {
        crate::metadata::namespace::check_database(database)?;
        let same = |a: &[Arc<Collection>], b: &[Arc<Collection>]| {
            a.iter().map(|c| c.number).eq(b.iter().map(|c| c.number))
        };
        let round = || -> Result<Option<_>> {
            let found = self.newest_collections(database);
            let guards: Vec<_> =
                found.iter().map(|c| self.keep_writers_out(c, check)).collect::<Result<_>>()?;
            let collections = self.newest_collections(database);
            if !same(&found, &collections) {
                return Ok(None);
            }
            let (mut txn, ()) = self.begin_change(check, |txn| {
                let mut all = collections.iter();
                all.try_for_each(|collection| drop_records(txn, collection)).map_err(from_engine)
            })?;
            let ddl_guard = self.ddl_lock.take(&mut txn);
            let still = same(&self.newest_collections(database), &collections);
            Ok(still.then_some((collections, guards, txn, ddl_guard)))
        };
        let (collections, guards, mut txn, _ddl_guard) = loop {
            if let Some(locked) = round()? {
                break locked;
            }
        };
        if !collections.is_empty() {
            let all = collections.iter().filter_map(|collection| NotedCommand::dropped(collection));
            self.tell(&mut txn, || all.chain(NotedCommand::dropped_database(database)).collect())?;
        }
        self.commit_names(txn, |_| NameChange {
            names: collections.iter().map(|gone| (gone.namespace.clone(), None)).collect(),
            ended: collections.iter().map(|gone| Arc::clone(&gone.shared)).collect(),
            ..NameChange::default()
        })?;
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
        self.check_not_oplog(to)?;
        let (guards, (mut txn, (source, renamed, target))) = loop {
            let (guards, found) = self.lock_pair(from, to, check)?;
            let begun = self.begin_change(check, |txn| {
                let (first, second) = if from <= to { (from, to) } else { (to, from) };
                lock_name(txn, first)?;
                lock_name(txn, second)?;
                let target = self.newest(to);
                // Under its name's lock nothing is created there any more; it may have been before.
                if target.as_ref().is_some_and(|target| !found.contains(&target.number)) {
                    return Ok(None);
                }
                let source = self.newest(from);
                let source = check_rename(from, to, source, target.as_ref(), drop_target)?;
                if let Some(target) = &target {
                    drop_records(txn, target).map_err(from_engine)?;
                }
                let renamed = Arc::new(renamed(&source, to));
                txn.delete(DictionaryId::ROOT, &records::namespace_key(from))
                    .map_err(from_engine)?;
                write_record(txn, &renamed).map_err(from_engine)?;
                Ok(Some((source, renamed, target)))
            })?;
            if let (txn, Some(prepared)) = begun {
                break (guards, (txn, prepared));
            }
        };
        let _ddl_guard = self.ddl_lock.take(&mut txn);
        if target.is_none() {
            self.check_case(to.database())?;
        }
        self.tell(&mut txn, || {
            NotedCommand::renamed(&source, to, target.as_deref()).into_iter().collect()
        })?;
        self.commit_names(txn, |_| NameChange {
            names: vec![(from.clone(), None), (to.clone(), Some(renamed))],
            ended: target.iter().map(|target| Arc::clone(&target.shared)).collect(),
            renames: true,
            ..NameChange::default()
        })?;
        made::note(|| MadeName::Renamed(from.clone(), to.clone()));
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
        self.change_options(namespace, check, |collection| {
            if let (true, Some(Ok((name, _)))) = (collection.is_view(), change.iter().next()) {
                return Err(Error::new(
                    Code::INVALID_OPTIONS,
                    format!("option not supported on a view: {}", name.as_str()),
                ));
            }
            let options = collection.options.with_validation(change)?;
            options.validation.check_place(namespace)?;
            Ok(options)
        })
    }

    /// Changes what a view is of: another source, another pipeline.
    pub fn change_view(
        &self,
        namespace: &Namespace,
        on: Option<&str>,
        pipeline: Option<&RawArray>,
        check: Check<'_>,
    ) -> Result<()> {
        self.change_options(namespace, check, |view| view.options.with_view(on, pipeline))
    }

    /// Changes how long documents live, or the pace of measurements.
    pub fn change_layout(
        &self,
        namespace: &Namespace,
        expire_after: Option<RawBsonRef<'_>>,
        time_series: Option<&RawDocument>,
        check: Check<'_>,
    ) -> Result<()> {
        self.change_options(namespace, check, |collection| {
            collection.options.with_layout(expire_after, time_series)
        })
    }

    /// Says whether change streams are to tell what documents were before and after.
    pub fn change_images(
        &self,
        namespace: &Namespace,
        change: &RawDocument,
        check: Check<'_>,
    ) -> Result<()> {
        self.change_options(namespace, check, |collection| collection.options.with_images(change))
    }

    /// A change of options that asks for none is told nevertheless, as MongoDB does.
    pub fn change_nothing(&self, namespace: &Namespace) -> Result<()> {
        let collection = self.require_newest(namespace)?;
        let (mut txn, ()) = self.begin_change(&|| Ok(()), |_| Ok(()))?;
        let told = || NotedCommand::modified(&collection, |_| {}, None).into_iter().collect();
        self.tell(&mut txn, told)?;
        self.commit_names(txn, |_| NameChange::default())
    }

    /// Gives a collection or view other options, made from what it is under its metadata lock.
    fn change_options(
        &self,
        namespace: &Namespace,
        check: Check<'_>,
        change: impl FnOnce(&Collection) -> Result<CollectionOptions>,
    ) -> Result<()> {
        let (collection, guard) = self.lock_newest(namespace, check)?;
        let options = change(&collection)?;
        let (mut txn, ()) = self.begin_change(check, |txn| lock_name(txn, namespace))?;
        let _ddl_guard = self.ddl_lock.take(&mut txn);
        self.check_view(namespace, &options)?;
        self.tell(&mut txn, || {
            NotedCommand::options_changed(&collection, &options).into_iter().collect()
        })?;
        self.commit_changed(txn, with_options(&collection, options))?;
        drop(guard);
        Ok(())
    }

    /// Locks what stands under both names, in the order of the names; says the numbers of what that
    /// is.
    fn lock_pair(
        &self,
        a: &Namespace,
        b: &Namespace,
        check: Check<'_>,
    ) -> Result<(Vec<MetadataGuard>, Vec<u64>)> {
        let (first, second) = if a <= b { (a, b) } else { (b, a) };
        loop {
            let look = || [self.newest(first), self.newest(second).filter(|_| first != second)];
            let found = look();
            let locked = found.iter().flatten().map(|c| self.keep_writers_out(c, check));
            let guards: Vec<_> = locked.collect::<Result<_>>()?;
            let number = |c: &Option<Arc<Collection>>| c.as_ref().map(|c| c.number);
            if look().iter().map(number).eq(found.iter().map(number)) {
                return Ok((guards, found.iter().filter_map(number).collect()));
            }
        }
    }

    /// Ends a change of the catalog: the collection's record is written with whatever else `txn`
    /// did, and its new version is what others find from the commit on.
    pub(crate) fn commit_changed(
        &self,
        mut txn: engine::EngineTxn,
        changed: Collection,
    ) -> Result<Arc<Collection>> {
        let changed = Arc::new(changed);
        write_record(&mut txn, &changed).map_err(from_engine)?;
        self.commit_names(txn, |_| NameChange::version(&changed))?;
        Ok(changed)
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
    if source.primary_index.is_some() {
        check_own_layout(to, "primary key than _id")?;
    }
    if source.is_partitioned() {
        check_own_layout(to, "partitions")?;
    }
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

/// Whether it is not one of the server's own collections, whose layout is one for all.
pub(crate) fn has_own_layout(namespace: &Namespace) -> bool {
    !matches!(namespace.database(), "admin" | "config" | "local") && !namespace.is_system()
}

/// Refuses a layout of the client's where the server looks for documents by `_id` alone.
fn check_own_layout(namespace: &Namespace, what: &str) -> Result<()> {
    if !has_own_layout(namespace) {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            format!("the collections of the server have no other {what}: {namespace}"),
        ));
    }
    Ok(())
}

/// The collection under another name.
pub(crate) fn renamed(collection: &Collection, to: &Namespace) -> Collection {
    let indexes = collection.indexes.clone();
    Collection { namespace: to.clone(), ..with_indexes(collection, indexes) }.assembled()
}

/// The collection with other options.
pub(crate) fn with_options(collection: &Collection, options: CollectionOptions) -> Collection {
    let indexes = collection.indexes.clone();
    Collection { options: Arc::new(options), ..with_indexes(collection, indexes) }.assembled()
}

/// The order dictionary of a collection that is to be capped.
pub(crate) fn create_order(
    txn: &mut engine::EngineTxn,
    options: &CollectionOptions,
    storage: DictionaryOptions,
) -> Result<Option<DictionaryId>> {
    let capped = options.capped.map(|_| txn.create_dictionary(storage));
    capped.transpose().map_err(from_engine)
}

/// Writes a collection's record as part of `txn`.
pub(crate) fn write_record(
    txn: &mut engine::EngineTxn,
    collection: &Collection,
) -> engine::Result<()> {
    let record = records::write_collection(collection);
    let key = records::namespace_key(&collection.namespace);
    txn.put(DictionaryId::ROOT, &key, record.as_bytes())
}

/// Drops everything of a collection as part of `txn`, which is the only writer inside.
pub(crate) fn drop_records(
    txn: &mut engine::EngineTxn,
    collection: &Collection,
) -> engine::Result<()> {
    if !collection.is_view() {
        txn.drop_dictionary(collection.primary)?;
    }
    if let Some(order) = collection.order {
        txn.drop_dictionary(order)?;
    }
    for index in &collection.indexes {
        drop_index(txn, index)?;
    }
    for partition in &collection.partitions.list {
        txn.drop_dictionary(partition.primary)?;
        drop_counts(txn, partition.number, &partition.shared)?;
    }
    drop_counts(txn, collection.number, &collection.shared)?;
    txn.delete(DictionaryId::ROOT, &records::namespace_key(&collection.namespace))
}

/// Drops the count of what has this number.
pub(crate) fn drop_counts(
    txn: &mut engine::EngineTxn,
    number: u64,
    shared: &Shared,
) -> engine::Result<()> {
    if shared.counts.is_unknown() {
        txn.write_covered(counts::DICTIONARY, &Stripe::mark_key(number), None)?;
    }
    let mut stripes = shared.counts.stripe_numbers();
    stripes.try_for_each(|stripe| {
        txn.write_covered(counts::DICTIONARY, &Stripe::key(number, stripe), None)
    })
}

pub(crate) fn exists(namespace: &Namespace, existing: &Collection) -> Error {
    let what = if existing.is_view() { "A view" } else { "Collection" };
    let message = match what {
        "Collection" => format!("Collection {namespace} already exists."),
        _ => format!("{what} already exists. NS: {namespace}"),
    };
    Error::new(Code::NAMESPACE_EXISTS, message)
}
