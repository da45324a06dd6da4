//! Building and dropping indexes, and changing their options.
//!
//! From → to: an index is filled while reads and writes go on (`online.rs`); then the collection's
//! record is written in one transaction, under the exclusive metadata lock. One build of a
//! collection runs at a time, others wait. An index that becomes unique is built again
//! (`unique.rs`).

mod online;
mod unique;

use crate::catalog::Catalog;
use crate::data::metadata_lock::{Check, MetadataGuard, lock_name};
use crate::data::notes::NotedCommand;
use crate::ddl::collections::write_record;
use crate::ddl::partitions::parts_of;
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index, clone_index, with_indexes};
use crate::metadata::collection_map::NameChange;
use crate::metadata::namespace::Namespace;
use crate::metadata::options::TimeSeries;
use crate::metadata::records::{drop_index, new_index};
use bson::raw::RawDocument;
use bsonval::show::document as document_text;
use engine::{Direction, KeyRange, Timestamp};
use errors::{Code, Error, Result};
use indexkeys::{IndexChange, IndexSpec, StorageOptions, same_pattern};
use online::Build;
use parking_lot::{ArcMutexGuard, RawMutex};
use std::sync::Arc;
use std::time::Duration;

/// The most indexes a collection may have, `_id` included.
pub(crate) const MAX_INDEXES: usize = 64;
/// How often who waits for another build looks whether to go on waiting.
const TURN: Duration = Duration::from_millis(100);

pub(crate) type BuildTurn = ArcMutexGuard<RawMutex, ()>;

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

impl Catalog {
    /// Builds indexes, creating the collection where it does not exist. Existing ones are left
    /// alone. `check` is asked now and then whether to go on. Waits for the collection's writers
    /// at its begin and at its end; in between reads and writes go on.
    pub fn create_indexes(
        self: &Arc<Self>,
        namespace: &Namespace,
        specs: &[IndexSpec],
        check: Check<'_>,
    ) -> Result<CreatedIndexes> {
        self.create_indexes_once(namespace, specs, check, &|| Ok(()))
    }

    /// As [`Catalog::create_indexes`]. A build over documents is committed once `ready` has returned, which may wait.
    pub fn create_indexes_once(
        self: &Arc<Self>,
        namespace: &Namespace,
        specs: &[IndexSpec],
        check: Check<'_>,
        ready: Check<'_>,
    ) -> Result<CreatedIndexes> {
        let created_collection = self.newest(namespace).is_none();
        if let Some(created) = self.create_indexes_of_empty(namespace, specs, check)? {
            return Ok(CreatedIndexes { created_collection, ..created });
        }
        let (collection, guard, _ddl_guard) = self.lock_for_build(namespace, check)?;
        let before = collection.shown_index_count();
        let wanted = missing_indexes(&collection, specs)?;
        if wanted.is_empty() {
            return Ok(CreatedIndexes { before, after: before, created_collection });
        }
        let after = before + wanted.len();
        if after > MAX_INDEXES {
            return Err(too_many_indexes(namespace, &wanted[0]));
        }
        self.build_online(&collection, guard, wanted, (check, ready), |build, visible| {
            self.make_visible(&collection, build, visible)
        })?;
        Ok(CreatedIndexes { before, after, created_collection })
    }

    /// Makes indexes of a collection without documents in one commit, where commits are held back: it goes ahead of what
    /// readers see, where a build waits for a majority at each of its steps. `None` where there are documents.
    fn create_indexes_of_empty(
        &self,
        namespace: &Namespace,
        specs: &[IndexSpec],
        check: Check<'_>,
    ) -> Result<Option<CreatedIndexes>> {
        if !self.holds_back() {
            return Ok(None);
        }
        let found = self.ensure_collection(namespace)?;
        if found.is_view() {
            return Ok(None);
        }
        let turn = Self::take_build_turn(&found, check)?;
        let guard = self.keep_writers_out(&found, check)?;
        let newest = self.newest(namespace).filter(|newest| newest.number == found.number);
        let Some(collection) = newest else { return Ok(None) };
        let wanted = missing_indexes(&collection, specs)?;
        let before = collection.shown_index_count();
        let after = before + wanted.len();
        let created = CreatedIndexes { before, after, created_collection: false };
        let Some(first) = wanted.first() else { return Ok(Some(created)) };
        if after > MAX_INDEXES {
            return Err(too_many_indexes(namespace, first));
        }
        if !self.is_empty_now(&collection)? {
            return Ok(None);
        }
        let (mut txn, made) = self.begin_change(check, |txn| {
            lock_name(txn, namespace)?;
            wanted.iter().map(|spec| self.make_index(txn, &collection, spec)).collect()
        })?;
        let made: Vec<Index> = made;
        let with_made = |created| {
            let mut indexes = collection.indexes.clone();
            indexes.extend(made.iter().map(|index| Arc::new(clone_index(index, created))));
            with_indexes(&collection, indexes)
        };
        let ddl_guard = self.ddl_lock.take(&mut txn);
        self.tell(&mut txn, || {
            let told = made.iter().filter(|index| !index.spec.is_internal());
            let build_id = self.new_uuid().bytes();
            NotedCommand::indexed(&collection, told, build_id).into_iter().collect()
        })?;
        write_record(&mut txn, &with_made(Timestamp(0))).map_err(from_engine)?;
        self.commit_names(txn, |committed| NameChange::version(&Arc::new(with_made(committed))))?;
        drop((ddl_guard, guard, turn));
        Ok(Some(created))
    }

    /// The dictionaries of an index that has no entries yet, as part of `txn`.
    fn make_index(
        &self,
        txn: &mut engine::EngineTxn,
        collection: &Collection,
        spec: &IndexSpec,
    ) -> Result<Index> {
        let shape = self.shape_of_index(&collection.options, spec);
        let mut create = || txn.create_dictionary(shape).map_err(from_engine);
        let dictionary = create()?;
        let parts = parts_of(collection, &mut create)?;
        let mut index = new_index(spec.clone(), &collection.options, dictionary, Timestamp(0));
        index.parts = parts;
        Ok(index)
    }

    /// Whether a collection has no documents in the newest complete state. The caller keeps writers out.
    fn is_empty_now(&self, collection: &Arc<Collection>) -> Result<bool> {
        if collection.count() > 0 {
            return Ok(false);
        }
        let state = self.statement_snapshot();
        for store in collection.stores() {
            let documents = state.cursor(store.primary, KeyRange::all(), Direction::Forward);
            if documents.map_err(from_engine)?.next().map_err(from_engine)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Builds indexes while the collection's writers go on, and, once `ready` has returned, has `show` commit them with
    /// no writer left; it says whether they became visible.
    fn build_online(
        self: &Arc<Self>,
        collection: &Arc<Collection>,
        guard: MetadataGuard,
        wanted: Vec<IndexSpec>,
        (check, ready): (Check<'_>, Check<'_>),
        show: impl FnOnce(&Build, &mut bool) -> Result<()>,
    ) -> Result<()> {
        let mut build = Build::begin(self, collection, wanted)?;
        drop(guard);
        let mut built = build.run(check).and_then(|()| ready());
        // Also a build that failed has to have the writers out, before it stops asking for changes.
        let guard = loop {
            match self.keep_writers_out(collection, &|| Ok(())) {
                Ok(guard) => break guard,
                Err(_) => built = built.and_then(|()| check()),
            }
        };
        let built = built.and_then(|()| self.wait_complete_visible());
        let built = built.and_then(|()| build.catch_up(check).map(drop));
        let mut visible = false;
        let built = built.and_then(|()| show(&build, &mut visible));
        // What is visible stays, also where the disk then failed the commit.
        if visible {
            build.end();
        } else {
            build.abandon()?;
        }
        drop(guard);
        built
    }

    /// The collection, created where it does not exist, locked against changes, and the right to
    /// build.
    pub(crate) fn lock_for_build(
        self: &Arc<Self>,
        namespace: &Namespace,
        check: Check<'_>,
    ) -> Result<(Arc<Collection>, MetadataGuard, BuildTurn)> {
        loop {
            let found = self.ensure_collection(namespace)?;
            if found.is_view() {
                return Err(Error::new(
                    Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                    format!("Cannot create indexes on a view: {namespace}"),
                ));
            }
            let build_guard = Self::take_build_turn(&found, check)?;
            let guard = self.lock_metadata(&found, check)?;
            match self.collection(namespace) {
                Some(current) if current.number == found.number => {
                    return Ok((current, guard, build_guard));
                }
                _ => {}
            }
        }
    }

    /// The right to build indexes of a collection, or to change its partitions.
    pub(crate) fn take_build_turn(collection: &Collection, check: Check<'_>) -> Result<BuildTurn> {
        loop {
            if let Some(turn) = collection.shared.building.try_lock_arc_for(TURN) {
                return Ok(turn);
            }
            check()?;
        }
    }

    /// Commits the built indexes to the collection as it stands now.
    fn make_visible(
        &self,
        collection: &Collection,
        build: &Build,
        visible: &mut bool,
    ) -> Result<()> {
        // What changed meanwhile (options, other indexes) stays changed.
        let current = self.newest(&collection.namespace);
        let Some(current) = current.filter(|current| current.number == collection.number) else {
            return Err(Error::new(
                Code::INDEX_BUILD_ABORTED,
                format!(
                    "Index build aborted: collection {} was dropped or renamed",
                    collection.namespace
                ),
            ));
        };
        // A transaction may have made indexes meanwhile: both may be too much.
        let specs: Vec<IndexSpec> = build.indexes.iter().map(|index| index.spec.clone()).collect();
        let still_missing = missing_indexes(&current, &specs)?;
        if let Some(first) = specs.first()
            && current.indexes.len() + 1 + specs.len() > MAX_INDEXES
        {
            return Err(too_many_indexes(&current.namespace, first));
        }
        if still_missing.len() < specs.len() {
            return Err(Error::new(
                Code::INDEX_BUILD_ABORTED,
                format!(
                    "Index build aborted: somebody else made the same index of {} meanwhile",
                    current.namespace
                ),
            ));
        }
        let with_built = |created| {
            let mut indexes = current.indexes.clone();
            indexes.extend(build.indexes.iter().map(|index| Arc::new(clone_index(index, created))));
            with_indexes(&current, indexes)
        };
        let (mut txn, ()) = self.begin_change(&|| Ok(()), |txn| {
            write_record(txn, &with_built(Timestamp(0))).map_err(from_engine)?;
            build.finish(txn)
        })?;
        let ddl_guard = self.ddl_lock.take(&mut txn);
        self.tell(&mut txn, || {
            let made = build.indexes.iter().filter(|index| !index.spec.is_internal());
            NotedCommand::indexed(&current, made, self.new_uuid().bytes()).into_iter().collect()
        })?;
        let committed = self.commit_names(txn, |created| {
            *visible = true;
            NameChange::version(&Arc::new(with_built(created)))
        });
        drop(ddl_guard);
        committed
    }

    /// Drops indexes; says how many there were, `_id` included. Waits for the writers.
    pub fn drop_indexes(
        &self,
        namespace: &Namespace,
        selectors: &[IndexSelector<'_>],
        check: Check<'_>,
    ) -> Result<usize> {
        self.change_indexes(namespace, check, |collection, txn| {
            let mut kept = collection.indexes.clone();
            for selector in selectors {
                for name in selected(collection, *selector)? {
                    let Some(at) = kept.iter().position(|index| index.spec.name == name) else {
                        continue;
                    };
                    drop_index(txn, &kept.remove(at)).map_err(from_engine)?;
                }
            }
            Ok((collection.shown_index_count(), kept))
        })
    }

    /// Changes options of one index; gives back the options it had.
    pub fn change_index(
        &self,
        namespace: &Namespace,
        selector: IndexSelector<'_>,
        change: IndexChange,
        check: Check<'_>,
    ) -> Result<IndexChange> {
        self.change_indexes(namespace, check, |collection, _| {
            if collection.is_partitioned() && change.prepare_unique == Some(true) {
                return Err(Error::location(
                    17351,
                    "indexes of a partitioned collection do not become unique",
                ));
            }
            let names = selected(collection, selector).map_err(|error| match error.code() {
                Code::INVALID_OPTIONS if is_primary(collection, selector) => Error::new(
                    Code::INVALID_OPTIONS,
                    "the options of the primary key cannot be changed",
                ),
                Code::INVALID_OPTIONS if change.hidden.is_some() => {
                    Error::bad_value("can't hide _id index")
                }
                Code::INVALID_OPTIONS => {
                    Error::new(Code::INVALID_OPTIONS, "the _id field does not support TTL indexes")
                }
                Code::INDEX_NOT_FOUND => cannot_find(namespace, selector),
                _ => error,
            })?;
            let mut indexes = collection.indexes.clone();
            let mut before = IndexChange::default();
            for index in indexes.iter_mut().filter(|index| names.contains(&index.spec.name)) {
                let requested = change;
                let mut change = change;
                if index.spec.unique {
                    change.prepare_unique = None;
                }
                before = IndexChange {
                    hidden: Some(index.spec.hidden),
                    expire_after_seconds: index.spec.expire_after_seconds,
                    // A unique index has no need of it.
                    prepare_unique: if index.spec.unique {
                        requested.prepare_unique
                    } else {
                        Some(index.spec.prepare_unique)
                    },
                    unique: false,
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
        check: Check<'_>,
        change: impl Fn(&Collection, &mut engine::EngineTxn) -> Result<(T, Vec<Arc<Index>>)>,
    ) -> Result<T> {
        let (collection, guard) = self.lock_newest(namespace, check)?;
        if collection.is_view() {
            return Err(Error::new(
                Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                format!("Namespace {namespace} is a view, not a collection"),
            ));
        }
        let (mut txn, (result, indexes)) = self.begin_change(check, |txn| {
            lock_name(txn, namespace)?;
            change(&collection, txn)
        })?;
        let ddl_guard = self.ddl_lock.take(&mut txn);
        self.tell(&mut txn, || {
            let mut told = NotedCommand::unindexed_all(&collection, &indexes);
            told.extend(indexes.iter().filter_map(|index| changed_index(&collection, index)));
            told
        })?;
        self.commit_changed(txn, with_indexes(&collection, indexes))?;
        drop(ddl_guard);
        drop(guard);
        Ok(result)
    }
}

/// What is told of an index whose options are others than those that the collection has.
fn changed_index(collection: &Collection, index: &Index) -> Option<NotedCommand> {
    let old = collection.indexes.iter().find(|old| old.dictionary == index.dictionary)?;
    if old.spec.shown == index.spec.shown {
        return None;
    }
    let fill = |out: &mut bsonval::raw::Writer| {
        let open = out.begin_document("index");
        out.value("name", bson::raw::RawBsonRef::String(&index.spec.name));
        let spec = &index.spec;
        if spec.hidden != old.spec.hidden {
            out.value("hidden", bson::raw::RawBsonRef::Boolean(spec.hidden));
        }
        if spec.prepare_unique != old.spec.prepare_unique {
            out.value("prepareUnique", bson::raw::RawBsonRef::Boolean(spec.prepare_unique));
        }
        if spec.expire_after_seconds != old.spec.expire_after_seconds
            && let Some(seconds) = spec.expire_after_seconds
        {
            out.value("expireAfterSeconds", bson::raw::RawBsonRef::Int64(seconds));
        }
        out.end(open);
    };
    NotedCommand::modified(collection, fill, Some(&old.spec.shown))
}

/// What `collMod` says of an index that is not there.
fn cannot_find(namespace: &Namespace, selector: IndexSelector<'_>) -> Error {
    let index = match selector {
        IndexSelector::All => "*".to_owned(),
        IndexSelector::Name(name) => name.to_owned(),
        IndexSelector::Key(key) => document_text(key),
    };
    Error::new(Code::INDEX_NOT_FOUND, format!("cannot find index {index} for ns {namespace}"))
}

/// The specifications that do not exist yet; conflicts with existing ones are errors.
pub(crate) fn missing_indexes(
    collection: &Collection,
    specs: &[IndexSpec],
) -> Result<Vec<IndexSpec>> {
    let mut wanted: Vec<IndexSpec> = Vec::new();
    for spec in specs {
        let mut spec = spec.in_collection(collection.collation())?;
        if spec.is_id() {
            check_id(collection, &spec)?;
            continue;
        }
        // The primary key is the collection, and has its shape.
        let primary = collection.primary_index.as_ref();
        if primary.is_some_and(|index| index.spec.name == spec.name)
            && has_its_shape(collection, &spec)
        {
            spec.storage = StorageOptions::default();
        }
        if collection.options.time_series.is_some() {
            TimeSeries::check_index(&spec)?;
        }
        check_in_partitions(collection, &spec)?;
        if collection.order.is_some() && spec.expire_after_seconds.is_some() {
            return Err(Error::new(
                Code::CANNOT_CREATE_INDEX,
                "Cannot create TTL index on a capped collection",
            ));
        }
        let existing = collection.primary_index.iter().chain(&collection.indexes);
        let existing = existing.map(|index| &index.spec);
        let existing = existing.filter(|known| spec.is_internal() || !known.is_internal());
        let known: Vec<&IndexSpec> = existing.chain(wanted.iter()).collect();
        let mut exists = false;
        for known in &known {
            exists |= conflict(known, &spec)?;
        }
        let other = known.iter().find(|known| known.is_text());
        if let (Some(other), true, false) = (other, spec.is_text(), exists) {
            return Err(Error::new(
                Code::CANNOT_CREATE_INDEX,
                format!(
                    "only one text index per collection allowed, found existing text index \"{}\"",
                    other.name
                ),
            ));
        }
        if !exists {
            wanted.push(spec);
        }
    }
    Ok(wanted)
}

/// Whether what a specification says of the shape is what the collection says of its own.
fn has_its_shape(collection: &Collection, spec: &IndexSpec) -> bool {
    let shape = collection.options.storage;
    spec.storage.or(shape) == shape
}

/// Refuses a description of the index on `_id` that is not what the index is: the collection itself, or one beside its
/// primary key.
fn check_id(collection: &Collection, spec: &IndexSpec) -> Result<()> {
    let is_clustering = collection.options.primary_key.is_none();
    if has_its_shape(collection, spec) && (is_clustering || !spec.clustering) {
        return Ok(());
    }
    Err(Error::new(
        Code::INDEX_OPTIONS_CONFLICT,
        format!(
            "the index on _id of {} is made with its collection, and of another shape than {} asks for",
            collection.namespace,
            document_text(&spec.shown)
        ),
    ))
}

/// Refuses a unique index that could have one key in several partitions. Documents with the same values in
/// the fields by which partitions are told stand in one, or in few that are looked at.
fn check_in_partitions(collection: &Collection, spec: &IndexSpec) -> Result<()> {
    if !collection.is_partitioned() || !(spec.unique || spec.prepare_unique) {
        return Ok(());
    }
    let holds = |path: &str| spec.parts.iter().any(|part| part.path == path);
    let holds_key = match &collection.options.primary_key {
        None => holds("_id"),
        Some(key) => key
            .parts()
            .split_last()
            .is_some_and(|(_, leading)| leading.iter().all(|part| holds(&part.path))),
    };
    if holds_key && !spec.prepare_unique && spec.collation.as_ref() == collection.collation() {
        return Ok(());
    }
    Err(Error::location(
        17351,
        format!(
            "a unique index of the partitioned collection {} must contain the fields of its primary \
             key before _id, in the collection's collation",
            collection.namespace
        ),
    ))
}

pub(crate) fn too_many_indexes(namespace: &Namespace, first: &IndexSpec) -> Error {
    Error::new(
        Code::CANNOT_CREATE_INDEX,
        format!(
            "add index fails, too many indexes for {namespace} key:{}",
            document_text(&first.key)
        ),
    )
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

pub(crate) fn selected(
    collection: &Collection,
    selector: IndexSelector<'_>,
) -> Result<Vec<String>> {
    let no_id = || match &collection.options.clustered {
        None => Error::new(Code::INVALID_OPTIONS, "cannot drop _id index"),
        Some(_) => Error::location(5979800, "Cannot drop the clustered index."),
    };
    let no_primary = || Error::new(Code::INVALID_OPTIONS, "cannot drop the primary key");
    let names = |indexes: &[Arc<Index>]| indexes.iter().map(|i| i.spec.name.clone()).collect();
    let shown = collection.shown_indexes().filter(|index| !index.spec.is_id());
    let shown: Vec<Arc<Index>> = shown.cloned().collect();
    match selector {
        IndexSelector::All => Ok(names(&shown)),
        IndexSelector::Name(name) if name == collection.options.id_index_name() => Err(no_id()),
        IndexSelector::Name(name) => match shown.iter().find(|index| index.spec.name == name) {
            Some(index) => Ok(names(std::slice::from_ref(index))),
            None if is_primary(collection, selector) => Err(no_primary()),
            None => Err(Error::new(
                Code::INDEX_NOT_FOUND,
                format!("index not found with name [{name}]"),
            )),
        },
        IndexSelector::Key(key) => {
            let found: Vec<Arc<Index>> =
                shown.into_iter().filter(|index| same_pattern(&index.spec.key, key)).collect();
            match &found[..] {
                [] if is_id_pattern(key) => Err(no_id()),
                [] if is_primary(collection, selector) => Err(no_primary()),
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

/// Whether the primary key is meant, in a collection where it is not `_id` alone.
pub(crate) fn is_primary(collection: &Collection, selector: IndexSelector<'_>) -> bool {
    collection.primary_index().is_some_and(|index| match selector {
        IndexSelector::All => false,
        IndexSelector::Name(name) => index.spec.name == name,
        IndexSelector::Key(key) => same_pattern(&index.spec.key, key),
    })
}

pub(crate) fn is_id_pattern(key: &RawDocument) -> bool {
    let mut fields = key.iter().flatten();
    matches!((fields.next(), fields.next()), (Some((name, value)), None)
        if name.as_str() == "_id" && value.as_str().is_none())
}

#[cfg(test)]
mod tests;
