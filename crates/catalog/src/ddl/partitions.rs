//! Partitions come and go.
//!
//! From → to: the collection's turn to build is taken, then its exclusive metadata lock; dictionaries are
//! made or dropped and the record is written in one transaction of the engine; the new version is published
//! by its commit. So an index is never built over partitions that change, and a crash leaves the collection
//! before or after.
//!
//! Always true:
//! 1. A partition that goes is a drop of its dictionaries: its documents are not looked at.
//! 2. Every document stays where it is: the last partition ends behind all that it holds before another one
//!    begins there, and the range of one that goes is empty when the next one takes it over.

use crate::catalog::Catalog;
use crate::data::metadata_lock::{Check, MetadataGuard, lock_name};
use crate::data::notes::NotedCommand;
use crate::ddl::build::BuildTurn;
use crate::ddl::collections::{drop_counts, write_record};
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index, clone_index, with_indexes};
use crate::metadata::collection_map::NameChange;
use crate::metadata::namespace::Namespace;
use crate::metadata::partitions::{
    IndexParts, MAX_PARTITIONS, NamedKey, Partition, Partitions, complete_key, key_of_document,
};
use bson::raw::{RawDocument, RawDocumentBuf};
use engine::{DictionaryId, DictionaryOptions, Direction, EngineTxn, KeyRange};
use errors::{Code, Error, Result};
use std::sync::Arc;

/// Which partitions `dropPartition` means.
#[derive(Clone, Copy, Debug)]
pub enum PartitionSelector<'a> {
    /// That of this `_id`.
    Id(u64),
    /// Those whose largest key is not above this one.
    UpTo(&'a RawDocument),
}

/// The collection's indexes and partitions are these from now on, and this dictionary stands for it.
fn changed(
    collection: &Collection,
    indexes: Vec<Arc<Index>>,
    partitions: Partitions,
    primary: DictionaryId,
) -> Collection {
    // Without indexes first: each has a part in every partition of the new list.
    let mut changed = with_indexes(collection, Vec::new());
    (changed.indexes, changed.primary) = (indexes, primary);
    changed.with_partitions(partitions)
}

/// A partition that is to be, and the indexes with their parts in it.
pub(crate) struct MadePartition {
    pub(crate) partition: Partition,
    pub(crate) indexes: Vec<Arc<Index>>,
}

/// The dictionaries of a new index in the partitions of a collection; none where it is not partitioned.
pub(crate) fn parts_of(
    collection: &Collection,
    create: &mut dyn FnMut() -> Result<DictionaryId>,
) -> Result<IndexParts> {
    let list = collection.partitions().iter();
    list.map(|partition| Ok((partition.number, create()?))).collect()
}

impl Catalog {
    /// Makes the dictionaries of a partition without an end as part of `txn`. They are shaped as those of
    /// the partitions before it.
    pub(crate) fn make_partition(
        &self,
        txn: &mut EngineTxn,
        collection: &Collection,
        id: u64,
        number: u64,
    ) -> Result<MadePartition> {
        let shape = self.shape_of_partitions(collection);
        let primary = txn.create_dictionary(shape).map_err(from_engine)?;
        let mut indexes = Vec::with_capacity(collection.indexes.len());
        for index in &collection.indexes {
            let new = self.shape_of_index(&collection.options, &index.spec);
            let part = txn.create_dictionary(self.shape_like(index.dictionary, new));
            let mut with_part = clone_index(index, index.created);
            with_part.parts.insert(number, part.map_err(from_engine)?);
            indexes.push(Arc::new(with_part));
        }
        let shared = Arc::new(collection.shared.of_partition());
        let created_ms = self.os().clock.wall_ms();
        let partition = Partition { id, max: None, created_ms, number, primary, shared };
        Ok(MadePartition { partition, indexes })
    }

    /// The shape of a dictionary that is there, of others this one.
    fn shape_like(&self, dictionary: DictionaryId, new: DictionaryOptions) -> DictionaryOptions {
        self.engine().dictionary_stats(dictionary).map_or(new, |stats| stats.options)
    }

    fn shape_of_partitions(&self, collection: &Collection) -> DictionaryOptions {
        self.shape_like(collection.primary, self.shape_of_collection(&collection.options))
    }

    /// Another empty dictionary to stand for a collection whose partitions change: no state has it that has
    /// the partitions from before.
    fn replace_primary(
        &self,
        txn: &mut EngineTxn,
        collection: &Collection,
    ) -> Result<DictionaryId> {
        let shape = self.shape_of_partitions(collection);
        txn.drop_dictionary(collection.primary).map_err(from_engine)?;
        txn.create_dictionary(shape).map_err(from_engine)
    }

    /// Ends the last partition at `new_max`, or where none is given at the largest key that it holds, and
    /// begins another one behind it. Waits for the collection's writers, and for a build of indexes.
    pub fn add_partition(
        &self,
        namespace: &Namespace,
        new_max: Option<&RawDocument>,
        check: Check<'_>,
    ) -> Result<()> {
        let (collection, guard, turn) = self.lock_partitions(namespace, check)?;
        let before = &collection.partitions;
        if before.list.len() >= MAX_PARTITIONS {
            let text = format!("{namespace} has {MAX_PARTITIONS} partitions, which is the most");
            return Err(Error::new(Code::ILLEGAL_OPERATION, text));
        }
        let max = self.end_of_last(&collection, new_max)?;
        let (mut txn, (made, primary)) = self.begin_change(check, |txn| {
            lock_name(txn, namespace)?;
            let number = self.ddl_lock.new_number();
            let made = self.make_partition(txn, &collection, before.next_id, number)?;
            Ok((made, self.replace_primary(txn, &collection)?))
        })?;
        let mut list = before.list.clone();
        if let Some(last) = list.last_mut() {
            last.max = Some(max.clone());
        }
        list.push(made.partition);
        let options = &collection.options;
        let after = Partitions::new(options, list, before.next_id + 1)?;
        let ddl_guard = self.ddl_lock.take(&mut txn);
        self.tell(&mut txn, || {
            NotedCommand::partition_added(&collection, &max).into_iter().collect()
        })?;
        self.commit_changed(txn, changed(&collection, made.indexes, after, primary))?;
        drop((ddl_guard, guard, turn));
        Ok(())
    }

    /// Where the last partition is to end.
    fn end_of_last(
        &self,
        collection: &Arc<Collection>,
        new_max: Option<&RawDocument>,
    ) -> Result<RawDocumentBuf> {
        let options = &collection.options;
        let last = collection.partitions().len() - 1;
        let snapshot = self.snapshot();
        let primary = collection.primary_at(last);
        let cursor = snapshot.cursor(primary, KeyRange::all(), Direction::Backward);
        let mut cursor = cursor.map_err(from_engine)?;
        let greatest = cursor.next().map_err(from_engine)?;
        let max = match (new_max, greatest) {
            (Some(given), _) => complete_key(options, given)?,
            (None, Some((_, document))) => {
                key_of_document(options, RawDocument::from_bytes(document)?)?
            }
            (None, None) => {
                return Err(Error::location(
                    17248,
                    "the last partition is empty: say with newMax where it is to end",
                ));
            }
        };
        let named = NamedKey::new(options, &max)?;
        if last > 0 && !collection.partitions.ends_before(last - 1, &named) {
            return Err(Error::location(
                17249,
                "newMax must be greater than the max of every partition before the last one",
            ));
        }
        if greatest.is_some_and(|(key, _)| named.is_below(key)) {
            return Err(Error::location(
                17250,
                "newMax must not be less than the greatest primary key in the collection",
            ));
        }
        Ok(max)
    }

    /// Drops partitions with all that they hold; says how many. Where the last one goes the one before it
    /// has no end any more. Waits for the collection's writers, and for a build of indexes.
    pub fn drop_partitions(
        &self,
        namespace: &Namespace,
        selector: PartitionSelector<'_>,
        check: Check<'_>,
    ) -> Result<usize> {
        let (collection, guard, turn) = self.lock_partitions(namespace, check)?;
        let before = &collection.partitions;
        let (gone, mut kept) = split(&collection, selector)?;
        if gone.is_empty() {
            return Ok(0);
        }
        let Some(last) = kept.last_mut() else {
            return Err(Error::location(
                17252,
                format!("the only partition of {namespace} cannot be dropped: drop the collection"),
            ));
        };
        last.max = None;
        let options = &collection.options;
        let after = Partitions::new(options, kept, before.next_id)?;
        let (mut txn, primary) = self.begin_change(check, |txn| {
            lock_name(txn, namespace)?;
            for partition in &gone {
                let parts = collection.indexes.iter().map(|index| index.parts[&partition.number]);
                for dictionary in parts.chain([partition.primary]) {
                    txn.drop_dictionary(dictionary).map_err(from_engine)?;
                }
                drop_counts(txn, partition.number, &partition.shared).map_err(from_engine)?;
            }
            self.replace_primary(txn, &collection)
        })?;
        let without = |index: &Arc<Index>| {
            let mut index = clone_index(index, index.created);
            index.parts.retain(|number, _| gone.iter().all(|gone| gone.number != *number));
            Arc::new(index)
        };
        let indexes = collection.indexes.iter().map(without).collect();
        let ddl_guard = self.ddl_lock.take(&mut txn);
        self.tell(&mut txn, || {
            let told = gone.iter().map(|gone| NotedCommand::partition_dropped(&collection, gone));
            told.flatten().collect()
        })?;
        let after = Arc::new(changed(&collection, indexes, after, primary));
        write_record(&mut txn, &after).map_err(from_engine)?;
        self.commit_names(txn, |_| NameChange {
            ended: gone.iter().map(|partition| Arc::clone(&partition.shared)).collect(),
            ..NameChange::version(&after)
        })?;
        drop((ddl_guard, guard, turn));
        Ok(gone.len())
    }

    /// A partitioned collection that nobody writes to and no index is built of.
    fn lock_partitions(
        &self,
        namespace: &Namespace,
        check: Check<'_>,
    ) -> Result<(Arc<Collection>, MetadataGuard, BuildTurn)> {
        loop {
            let found = self.require_newest(namespace)?;
            check_partitioned(&found)?;
            let turn = Self::take_build_turn(&found, check)?;
            let guard = self.lock_metadata(&found, check)?;
            let current = self.require(namespace)?;
            if current.number == found.number {
                return Ok((current, guard, turn));
            }
        }
    }
}

/// Refuses a collection that is not partitioned.
pub fn check_partitioned(collection: &Collection) -> Result<()> {
    if collection.is_partitioned() {
        return Ok(());
    }
    let text = format!("{} is not partitioned", collection.namespace);
    Err(Error::new(Code::ILLEGAL_OPERATION, text))
}

/// The partitions that are meant, and the others.
fn split(
    collection: &Collection,
    selector: PartitionSelector<'_>,
) -> Result<(Vec<Partition>, Vec<Partition>)> {
    let list = collection.partitions();
    let named = match selector {
        PartitionSelector::Id(id) if list.iter().all(|partition| partition.id != id) => {
            return Err(Error::bad_value(format!(
                "{} has no partition with _id {id}",
                collection.namespace
            )));
        }
        PartitionSelector::Id(_) => None,
        PartitionSelector::UpTo(key) => {
            let key = complete_key(&collection.options, key)?;
            Some(NamedKey::new_or_largest(&collection.options, &key)?)
        }
    };
    let is_meant = |(at, partition): &(usize, Partition)| match (selector, &named) {
        (PartitionSelector::Id(id), _) => partition.id == id,
        (PartitionSelector::UpTo(_), Some(Some(key))) => collection.partitions.ends_up_to(*at, key),
        // The largest key of all.
        (PartitionSelector::UpTo(_), _) => true,
    };
    let (gone, kept): (Vec<_>, Vec<_>) = list.iter().cloned().enumerate().partition(is_meant);
    let partitions = |list: Vec<(usize, Partition)>| list.into_iter().map(|(_, one)| one).collect();
    Ok((partitions(gone), partitions(kept)))
}
