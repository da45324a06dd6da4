//! What a collection weighs.

use crate::catalog::Catalog;
use crate::metadata::collection::Collection;
use crate::metadata::collection::IndexUse;
use engine::{DictionaryId, DictionaryOptions, DictionaryStats};

/// Sizes of one collection.
#[derive(Clone, Debug, Default)]
pub struct CollectionStats {
    /// Documents, exact.
    pub documents: u64,
    /// Their size as BSON, exact.
    pub data_bytes: u64,
    /// What the primary dictionary occupies on disk.
    pub storage_bytes: u64,
    /// The indexes; `_id_`, which is the primary dictionary itself, is the first.
    pub indexes: Vec<IndexStats>,
}

/// Sizes of one index.
#[derive(Clone, Debug, Default)]
pub struct IndexStats {
    /// Its name.
    pub name: String,
    /// Entries; of `_id_` the documents, exact, of others about as many as there are.
    pub entries: u64,
    /// Size of its entries before compression.
    pub data_bytes: u64,
    /// What it occupies on disk.
    pub storage_bytes: u64,
    /// It is the collection itself, and costs nothing beside: `_id_`.
    pub is_collection: bool,
    /// The shape of what is written to it.
    pub options: DictionaryOptions,
    /// How it was used since the start.
    pub used: IndexUse,
}

impl Catalog {
    /// Sizes of a collection; reads no data. A view weighs nothing.
    pub fn stats(&self, collection: &Collection) -> CollectionStats {
        if collection.is_view() {
            return CollectionStats::default();
        }
        let primary = self.dictionary(collection.primary);
        let documents = collection.count();
        // Clustered on `_id`: the documents are their own index.
        let mut indexes = vec![IndexStats {
            name: collection.options.id_index_name().to_owned(),
            entries: documents,
            data_bytes: collection.data_size(),
            storage_bytes: primary.stored_bytes + primary.memtable_bytes,
            is_collection: true,
            options: primary.options,
            used: collection.shared.used.read(),
        }];
        for index in &collection.indexes {
            let stats = self.dictionary(index.dictionary);
            indexes.push(IndexStats {
                name: index.spec.name.clone(),
                entries: stats.entries,
                data_bytes: stats.data_bytes,
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
        let primary = self.dictionary(collection.primary);
        let indexes = collection.indexes.iter().map(|index| self.dictionary(index.dictionary));
        let all = indexes.chain([primary]);
        let stored: u64 = all.map(|stats| stats.stored_bytes + stats.memtable_bytes).sum();
        // Versions beyond one of each document are old ones or mark what was deleted.
        let old = u128::from(primary.entries.saturating_sub(collection.count()));
        let share = u128::from(stored) * old / u128::from(primary.entries.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    fn dictionary(&self, dictionary: DictionaryId) -> DictionaryStats {
        // Dropped in this moment: it weighs nothing.
        self.engine().dictionary_stats(dictionary).unwrap_or_default()
    }
}

impl CollectionStats {
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
