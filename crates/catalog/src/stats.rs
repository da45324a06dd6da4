//! What a collection weighs.

use crate::catalog::Catalog;
use crate::collection::Collection;
use engine::DictionaryId;

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
    /// Size of its entries before compression.
    pub data_bytes: u64,
    /// What it occupies on disk.
    pub storage_bytes: u64,
    /// Plans that used it since the start.
    pub uses: u64,
}

impl Catalog {
    /// Sizes of a collection; reads no data. A view weighs nothing.
    pub fn stats(&self, collection: &Collection) -> CollectionStats {
        if collection.is_view() {
            return CollectionStats::default();
        }
        let (_, storage_bytes) = self.dictionary_bytes(collection.primary);
        // Clustered on `_id`: the documents are their own index, and cost nothing beside.
        let mut indexes = vec![IndexStats { name: "_id_".to_owned(), ..IndexStats::default() }];
        for index in &collection.indexes {
            let (data_bytes, storage_bytes) = self.dictionary_bytes(index.dictionary);
            indexes.push(IndexStats {
                name: index.spec.name.clone(),
                data_bytes,
                storage_bytes,
                uses: index.uses(),
            });
        }
        CollectionStats {
            documents: collection.count(),
            data_bytes: collection.data_size(),
            storage_bytes,
            indexes,
        }
    }

    /// Bytes of a dictionary before compression, and on disk.
    fn dictionary_bytes(&self, dictionary: DictionaryId) -> (u64, u64) {
        // Dropped in this moment: it weighs nothing.
        self.engine()
            .dictionary_stats(dictionary)
            .map_or((0, 0), |stats| (stats.data_bytes, stats.stored_bytes + stats.memtable_bytes))
    }
}
