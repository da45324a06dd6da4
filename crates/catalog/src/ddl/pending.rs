//! Collections and indexes that a client's transaction makes, renames and drops: others see it from
//! its commit on.
//!
//! From → to: a name that is taken is locked in `ROOT`, so that of two transactions one conflicts; a
//! committed collection that changes has its metadata locked exclusively until the transaction
//! ends; records and dictionaries are written like any document; the commit brings the map up to
//! date while all of that is still locked. An abort leaves nothing.
//!
//! Always true:
//! 1. Of a committed collection that it changed, the transaction alone writes documents.
//! 2. Rolled back to a savepoint, the names are those of then; locks stay.

use crate::catalog::not_found;
use crate::data::metadata_lock::{Check, ClientInside, lock_timed_out, wait};
use crate::data::names::{Names, Taken};
use crate::data::notes::NotedCommand;
use crate::data::txn::Txn;
use crate::ddl::build::{
    CreatedIndexes, IndexSelector, MAX_INDEXES, missing_indexes, selected, too_many_indexes,
};
use crate::ddl::collections::{check_rename, drop_records, exists, renamed, write_record};
use crate::ddl::made::{self, MadeName};
use crate::ddl::partitions::parts_of;
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index, clone_index, with_indexes};
use crate::metadata::collection_map::NameChange;
use crate::metadata::namespace::Namespace;
use crate::metadata::options::CollectionOptions;
use crate::metadata::records::{self, drop_index};
use bson::raw::RawDocument;
use engine::{DictionaryId, Direction, KeyRange, Timestamp};
use errors::{Code, Error, Result};
use indexkeys::{IndexSpec, RecordKey};
use std::sync::Arc;

/// Documents that are indexed between two questions whether to go on.
const CHECK_EVERY: u64 = 1000;

/// The profiler writes there, and must not have to wait for a client.
const PROFILE: &str = "system.profile";

impl Names {
    /// What its commit does to the names that others find.
    pub(crate) fn change(&self, committed: Timestamp) -> NameChange {
        let version = |collection: &Arc<Collection>| since(collection, &self.built, committed);
        let changed = self.changed.iter();
        NameChange {
            names: changed.map(|(name, now)| (name.clone(), now.as_ref().map(version))).collect(),
            ended: self.ended.iter().map(|ended| Arc::clone(&ended.shared)).collect(),
            renames: true,
            changes_accounts: false,
        }
    }
}

/// The collection, with indexes that older snapshots do not see marked so.
fn since(
    collection: &Arc<Collection>,
    built: &[DictionaryId],
    committed: Timestamp,
) -> Arc<Collection> {
    let is_new = |index: &Arc<Index>| built.contains(&index.dictionary);
    if !collection.indexes.iter().any(is_new) {
        return Arc::clone(collection);
    }
    let indexes = collection.indexes.iter().map(|index| {
        if is_new(index) { Arc::new(clone_index(index, committed)) } else { Arc::clone(index) }
    });
    Arc::new(with_indexes(collection, indexes.collect()))
}

impl Txn {
    /// The collection as this transaction sees it: as it made it, else the committed one.
    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        match self.names.find(namespace) {
            Some(own) => own.cloned(),
            None => self.found(namespace),
        }
    }

    /// The collections and views of a database as this transaction sees them, by name.
    pub fn collections(&self, database: &str) -> Vec<Arc<Collection>> {
        let mut all = self.catalog.collections(database);
        all.retain(|collection| self.names.find(&collection.namespace).is_none());
        let own = self.names.changed.iter().filter_map(|(_, collection)| collection.clone());
        all.extend(own.filter(|own| own.namespace.database() == database));
        all.sort_by(|a, b| a.namespace.cmp(&b.namespace));
        all
    }

    /// What it has made of the names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Makes the collection where it does not exist: as part of a client's transaction, at once
    /// for a statement of its own.
    pub fn ensure_collection(&mut self, namespace: &Namespace) -> Result<Arc<Collection>> {
        if !self.is_clients() {
            return self.catalog.ensure_collection(namespace);
        }
        match self.collection(namespace) {
            Some(existing) => Ok(existing),
            None => self.create_collection(namespace, &CollectionOptions::default()),
        }
    }

    /// Creates a collection as part of this transaction. Fails with `NamespaceExists` where the
    /// name is taken.
    pub fn create_collection(
        &mut self,
        namespace: &Namespace,
        options: &CollectionOptions,
    ) -> Result<Arc<Collection>> {
        namespace.check_writable()?;
        if options.view.is_some() {
            return Err(Error::new(
                Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                "Cannot create a view in a multi-document transaction.",
            ));
        }
        if let Some(existing) = self.collection(namespace) {
            return Err(exists(namespace, &existing));
        }
        self.catalog.check_case(namespace.database())?;
        options.validation.check_place(namespace)?;
        self.lock_free_name(namespace)?;
        let (catalog, engine) = (Arc::clone(&self.catalog), &mut self.engine);
        let uuid = catalog.new_uuid();
        let mut number = || catalog.ddl_lock.new_number();
        let made = catalog.make_collection(engine, namespace, options, uuid, &mut number)?;
        let collection = Arc::new(made);
        let written = write_record(&mut self.engine, &collection);
        written.map_err(|error| self.failed(error))?;
        self.names.made.push(collection.number);
        self.names.set(namespace, Some(Arc::clone(&collection)));
        self.note_told(NotedCommand::created(&collection))?;
        made::note(|| {
            let all = self.collections(namespace.database());
            let is_first = all.iter().all(|other| other.namespace() == namespace);
            MadeName::Created(namespace.clone(), is_first)
        });
        Ok(collection)
    }

    /// Locks a name under which this transaction sees nothing; nobody else takes it then.
    fn lock_free_name(&mut self, namespace: &Namespace) -> Result<()> {
        let locked = self.engine.lock(DictionaryId::ROOT, &records::namespace_key(namespace));
        locked.map_err(|error| self.failed(error))?;
        self.wait_for_name(namespace)?;
        match self.collection(namespace) {
            Some(existing) => Err(exists(namespace, &existing)),
            None => Ok(()),
        }
    }

    /// Drops a collection with its indexes as part of this transaction; says what it was. Waits
    /// for its writers as long as for a lock.
    pub fn drop_collection(&mut self, namespace: &Namespace) -> Result<Arc<Collection>> {
        let collection = self.take_over(namespace)?;
        self.drop_taken(&collection)?;
        self.names.set(namespace, None);
        self.note_told(NotedCommand::dropped(&collection))?;
        Ok(collection)
    }

    fn drop_taken(&mut self, collection: &Arc<Collection>) -> Result<()> {
        let dropped = drop_records(&mut self.engine, collection);
        dropped.map_err(|error| self.failed(error))?;
        self.forget_touched(collection.number);
        self.names.unindexed.extend(collection.indexes.iter().map(|index| index.dictionary));
        if !self.names.has_made(collection.number) {
            self.names.ended.push(Arc::clone(collection));
        }
        Ok(())
    }

    /// Renames a collection as part of this transaction; with `drop_target` over an existing one.
    pub fn rename_collection(
        &mut self,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
    ) -> Result<()> {
        let target = self.collection(to);
        check_rename(from, to, self.collection(from), target.as_ref(), drop_target)?;
        let source = self.take_over(from)?;
        let target = if target.is_some() {
            Some(self.take_over(to)?)
        } else {
            self.catalog.check_case(to.database())?;
            self.lock_free_name(to)?;
            None
        };
        if let Some(target) = &target {
            self.drop_taken(target)?;
        }
        let deleted = self.engine.delete(DictionaryId::ROOT, &records::namespace_key(from));
        deleted.map_err(|error| self.failed(error))?;
        let collection = Arc::new(renamed(&source, to));
        self.names.set(from, None);
        self.replace_version(&collection)?;
        self.note_told(NotedCommand::renamed(&source, to, target.as_deref()))
    }

    /// Drops indexes as part of this transaction; says how many there were, `_id` included.
    pub fn drop_indexes(
        &mut self,
        namespace: &Namespace,
        selectors: &[IndexSelector<'_>],
    ) -> Result<usize> {
        let collection = self.take_over(namespace)?;
        if collection.is_view() {
            return Err(Error::new(
                Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                format!("Namespace {namespace} is a view, not a collection"),
            ));
        }
        let mut kept = collection.indexes.clone();
        for selector in selectors {
            for name in selected(&collection, *selector)? {
                let Some(at) = kept.iter().position(|index| index.spec.name == name) else {
                    continue;
                };
                let index = kept.remove(at);
                let dropped = drop_index(&mut self.engine, &index);
                dropped.map_err(|error| self.failed(error))?;
                self.names.unindexed.push(index.dictionary);
            }
        }
        self.note_told(NotedCommand::unindexed_all(&collection, &kept))?;
        let changed = Arc::new(with_indexes(&collection, kept));
        self.replace_version(&changed)?;
        Ok(collection.shown_index_count())
    }

    /// Makes indexes as part of this transaction. Existing ones are left alone. A session's
    /// transaction may do it only for a collection that it made and that is still empty; that of
    /// a connection for every collection, of which it is the only writer from then on.
    pub fn create_indexes(
        &mut self,
        namespace: &Namespace,
        specs: &[IndexSpec],
        check: Check<'_>,
    ) -> Result<CreatedIndexes> {
        let created_collection = self.collection(namespace).is_none();
        let mut collection = match self.collection(namespace) {
            Some(found) => found,
            None => self.ensure_collection(namespace)?,
        };
        if collection.is_view() {
            return Err(Error::new(
                Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                format!("Cannot create indexes on a view: {namespace}"),
            ));
        }
        let wanted = missing_indexes(&collection, specs)?;
        let before = collection.shown_index_count();
        let after = before + wanted.len();
        let unchanged = CreatedIndexes { before, after, created_collection };
        let Some(first) = wanted.first() else { return Ok(unchanged) };
        if after > MAX_INDEXES {
            return Err(too_many_indexes(namespace, first));
        }
        let is_made = self.names.has_made(collection.number);
        let is_fresh = is_made && self.documents_added(&collection) == 0;
        if !(is_fresh || self.is_connections()) {
            return Err(Error::new(
                Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                format!(
                    "Cannot create new indexes on existing collection {namespace} in a \
                     multi-document transaction."
                ),
            ));
        }
        if !is_made {
            let seen = collection;
            collection = self.take_over(namespace)?;
            self.see_newest(&collection)?;
            if !Arc::ptr_eq(&seen, &collection) {
                // The indexes may be others than those that were compared.
                return self.create_indexes(namespace, specs, check);
            }
        }
        let mut indexes = collection.indexes.clone();
        for spec in wanted {
            let options = self.catalog.shape_of_index(&collection.options, &spec);
            let mut create = || self.engine.create_dictionary(options).map_err(from_engine);
            let dictionary = create()?;
            let parts = parts_of(&collection, &mut create)?;
            let options = collection.options();
            let mut index = records::new_index(spec, options, dictionary, Timestamp(0));
            index.parts = parts;
            let index = Arc::new(index);
            self.fill_index(&collection, &index, check)?;
            if !is_made {
                self.names.built.push(dictionary);
            }
            indexes.push(index);
        }
        let known = collection.indexes.len();
        let made = indexes.iter().skip(known).map(|index| &**index);
        let build_id = self.catalog.new_uuid().bytes();
        self.note_told(NotedCommand::indexed(&collection, made, build_id))?;
        let changed = Arc::new(with_indexes(&collection, indexes));
        self.replace_version(&changed)?;
        Ok(unchanged)
    }

    /// Writes the entries of every document that this transaction sees.
    fn fill_index(
        &mut self,
        collection: &Arc<Collection>,
        index: &Arc<Index>,
        check: Check<'_>,
    ) -> Result<()> {
        let mut documents = 0_u64;
        let mut with_index = with_indexes(collection, vec![Arc::clone(index)]);
        // Of the stores it is the only index.
        with_index.primary_index = None;
        let with_index = Arc::new(with_index.assembled());
        for store in with_index.stores() {
            let index = &store.indexes[0];
            let mut cursor = self.cursor(store.primary, KeyRange::all(), Direction::Forward)?;
            while let Some((key, value)) = cursor.next().map_err(|error| self.failed(error))? {
                let document = RawDocument::from_bytes(value)?;
                let keys = index.keys.make(document, RecordKey::of(document, key)?)?;
                self.note_multikey(index, keys.multikey);
                for entry in &keys.entries {
                    self.add_entry(store, index, entry)?;
                }
                self.check_other_stores(&with_index, store, key, std::slice::from_ref(&keys))?;
                documents += 1;
                if documents.is_multiple_of(CHECK_EVERY) {
                    check()?;
                }
            }
        }
        Ok(())
    }

    /// A version of a collection with other indexes takes the place of the one before.
    fn replace_version(&mut self, collection: &Arc<Collection>) -> Result<()> {
        let written = write_record(&mut self.engine, collection);
        written.map_err(|error| self.failed(error))?;
        self.names.set(&collection.namespace, Some(Arc::clone(collection)));
        self.replace_touched(collection);
        Ok(())
    }

    /// Has every writer but this transaction out of a collection until it ends; the version that
    /// it changes. Waits for them as long as for a lock.
    fn take_over(&mut self, namespace: &Namespace) -> Result<Arc<Collection>> {
        let missing = || not_found(namespace);
        let found = self.collection(namespace).ok_or_else(missing)?;
        let number = found.number;
        if self.names.has_made(number) || self.taken.iter().any(|taken| taken.number == number) {
            return Ok(found);
        }
        if namespace.collection() == PROFILE {
            let text = format!("Cannot change {namespace} in a multi-document transaction.");
            return Err(Error::new(Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION, text));
        }
        let lock_timeout = self.lock_timeout();
        // A build that begins now does not hear of what was written before it.
        let build = || found.shared.changes().map(|changes| changes.dictionary());
        let before = build();
        // Its own share would be in its way.
        let was_inside = self.release(number);
        let clock = &self.catalog.os().clock;
        let metadata = &found.shared.metadata;
        let guard = self.catalog.waiting(|| match metadata.try_write_arc() {
            Some(guard) => Ok(Some(guard)),
            None => {
                wait(&**clock, lock_timeout, || true, |slice| metadata.try_write_arc_for(slice))
            }
        });
        let (guard, refusal) = match guard {
            Ok(guard) => (guard, lock_timed_out('X', namespace, lock_timeout)),
            Err(ended) => (None, ended),
        };
        let current = self.catalog.newest(namespace);
        let is_same = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &found))
            && build() == before;
        match guard {
            Some(guard) if is_same || !was_inside => match current {
                Some(current) if current.number == number => {
                    // What it goes on to index is read from snapshots.
                    if let Err(error) = self.catalog.wait_complete_visible() {
                        if was_inside {
                            // Its share is gone.
                            self.engine.kill();
                        }
                        return Err(error);
                    }
                    let client = Some(ClientInside::new(&current));
                    self.taken.push(Taken { number, _guard: guard, _client: client, _turn: None });
                    Ok(current)
                }
                Some(_) => {
                    drop(guard);
                    self.wait_for_name(namespace)?;
                    self.take_over(namespace)
                }
                None => Err(missing()),
            },
            guard => {
                drop(guard);
                let is_back = is_same && self.reacquire(number) && build() == before;
                if was_inside && !is_back {
                    // Somebody has changed what its writes were made for.
                    self.engine.kill();
                }
                Err(refusal)
            }
        }
    }

    /// What was committed after its snapshot is not in its sight, and would not be indexed.
    fn see_newest(&mut self, collection: &Collection) -> Result<()> {
        if self.sees_each_state() {
            self.engine.refresh_snapshot();
            return Ok(());
        }
        for place in 0..collection.partitions.list.len().max(1) {
            let is_newest = self.engine.is_newest(collection.primary_at(place));
            if !is_newest.map_err(|error| self.failed(error))? {
                return Err(from_engine(engine::Error::WriteConflict));
            }
        }
        Ok(())
    }
}
