//! What a collection weighs.

use crate::catalog::Catalog;
use crate::metadata::collection::Collection;
use crate::metadata::collection::IndexUse;
use engine::{DictionaryId, DictionaryOptions, DictionaryStats};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sizes of one collection.
#[derive(Clone, Debug, Default)]
pub struct CollectionStats {
    /// Documents, exact.
    pub documents: u64,
    /// Their size as BSON, exact.
    pub data_bytes: u64,
    /// What the primary dictionary occupies on disk.
    pub storage_bytes: u64,
    /// The indexes; the primary key, which is the primary dictionary itself, is the first.
    pub indexes: Vec<IndexStats>,
}

/// Sizes of one index.
#[derive(Clone, Debug, Default)]
pub struct IndexStats {
    /// Its name.
    pub name: String,
    /// Entries; of the primary key the documents, exact, of others about as many as there are.
    pub entries: u64,
    /// Size of its entries before compression.
    pub data_bytes: u64,
    /// What it occupies on disk.
    pub storage_bytes: u64,
    /// It is the collection itself, and costs nothing beside: mostly `_id_`.
    pub is_collection: bool,
    /// The shape of what is written to it.
    pub options: DictionaryOptions,
    /// How it was used since the start.
    pub used: IndexUse,
}

impl Catalog {
    /// Indexes of a collection that are being built now.
    pub fn unfinished_indexes(&self, collection: &Collection) -> usize {
        collection.shared.unfinished_indexes.load(Ordering::Relaxed)
    }

    /// Sizes of a collection; reads no data. A view weighs nothing.
    pub fn stats(&self, collection: &Arc<Collection>) -> CollectionStats {
        if collection.is_view() {
            return CollectionStats::default();
        }
        if !collection.is_partitioned() {
            return self.store_stats(collection);
        }
        let partitions = self.partition_stats(collection);
        let mut sum =
            CollectionStats { indexes: self.empty_index_stats(collection), ..Default::default() };
        for partition in partitions {
            sum.add(&partition);
        }
        sum
    }

    /// Sizes of each partition of a collection; how indexes are used is counted of the whole alone.
    pub fn partition_stats(&self, collection: &Arc<Collection>) -> Vec<CollectionStats> {
        let stores = collection.stores().iter().filter(|store| store.is_partition());
        stores.map(|store| self.store_stats(store)).collect()
    }

    /// The indexes of a partitioned collection and how they are used, without their weights.
    fn empty_index_stats(&self, collection: &Collection) -> Vec<IndexStats> {
        let one = |name: &str, dictionary, is_collection, used| IndexStats {
            name: name.to_owned(),
            is_collection,
            options: self.dictionary(dictionary).options,
            used,
            ..IndexStats::default()
        };
        let indexes = collection
            .indexes
            .iter()
            .map(|index| one(&index.spec.name, index.dictionary, false, index.state.used.read()));
        let primary = collection.primary_used();
        let primary = one(collection.primary_name(), collection.primary, true, primary);
        std::iter::once(primary).chain(indexes).collect()
    }

    fn store_stats(&self, collection: &Collection) -> CollectionStats {
        let primary = self.dictionary(collection.primary);
        let documents = collection.count();
        // Clustered on the primary key: the documents are their own index.
        let mut indexes = vec![IndexStats {
            name: collection.primary_name().to_owned(),
            entries: documents,
            data_bytes: collection.data_size(),
            storage_bytes: primary.stored_bytes + primary.memtable_bytes,
            is_collection: true,
            options: primary.options,
            used: collection.primary_used(),
        }];
        for index in &collection.indexes {
            let stats = self.dictionary(index.dictionary);
            // What lies in the tree is counted with the versions and deletes that wait in its buffers.
            let (entries, data_bytes) = if index.has_each_once() {
                (documents, scaled(stats.data_bytes, documents, stats.entries))
            } else {
                (stats.entries, stats.data_bytes)
            };
            indexes.push(IndexStats {
                name: index.spec.name.clone(),
                entries,
                data_bytes,
                storage_bytes: stats.stored_bytes + stats.memtable_bytes,
                is_collection: false,
                options: stats.options,
                used: index.state.used.read(),
            });
        }
        CollectionStats {
            documents,
            data_bytes: collection.data_size(),
            storage_bytes: primary.stored_bytes + primary.memtable_bytes,
            indexes,
        }
    }

    /// About how many bytes on disk are of documents that nobody sees any more, and of their entries in
    /// indexes; reads no data.
    pub fn reclaimable_bytes(&self, collection: &Collection) -> u64 {
        if collection.is_view() {
            return 0;
        }
        let primaries =
            (0..collection.partitions().len().max(1)).map(|at| collection.primary_at(at));
        let entries: u64 = primaries.map(|primary| self.dictionary(primary).entries).sum();
        let all = collection.dictionaries().map(|dictionary| self.dictionary(dictionary));
        let stored: u64 = all.map(|stats| stats.stored_bytes + stats.memtable_bytes).sum();
        // Versions beyond one of each document are old ones or mark what was deleted.
        let old = u128::from(entries.saturating_sub(collection.count()));
        let share = u128::from(stored) * old / u128::from(entries.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    fn dictionary(&self, dictionary: DictionaryId) -> DictionaryStats {
        // Dropped in this moment: it weighs nothing.
        self.engine().dictionary_stats(dictionary).unwrap_or_default()
    }
}

impl CollectionStats {
    /// Adds a partition's sizes to those of its collection.
    fn add(&mut self, partition: &Self) {
        self.documents += partition.documents;
        self.data_bytes += partition.data_bytes;
        self.storage_bytes += partition.storage_bytes;
        for (index, part) in self.indexes.iter_mut().zip(&partition.indexes) {
            index.entries += part.entries;
            index.data_bytes += part.data_bytes;
            index.storage_bytes += part.storage_bytes;
        }
    }

    /// Bytes on disk of the indexes beside the documents.
    pub fn index_bytes(&self) -> u64 {
        self.indexes.iter().map(IndexStats::beside_bytes).sum()
    }
}

impl IndexStats {
    /// Whether clients see it.
    pub fn is_shown(&self) -> bool {
        self.name != indexkeys::INTERNAL_TIME_INDEX
    }

    /// Bytes on disk that it costs beside the documents.
    pub fn beside_bytes(&self) -> u64 {
        if self.is_collection { 0 } else { self.storage_bytes }
    }
}

/// `bytes` of so many entries, for another number of them.
fn scaled(bytes: u64, wanted: u64, entries: u64) -> u64 {
    let bytes = u128::from(bytes) * u128::from(wanted) / u128::from(entries.max(1));
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
