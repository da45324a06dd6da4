//! Databases, collections, indexes and documents as dictionaries of the engine.
//!
//! The only database room that sees the engine: what the floors above need of it is re-exported
//! here. A collection is a primary dictionary (keystring of `_id` → BSON) and one dictionary per
//! secondary index; the catalog's own records live in the engine's `ROOT` dictionary.
//!
//! Always true:
//! 1. A document and its index entries change in one engine transaction.
//! 2. Metadata in memory follows the engine: committed first, published after.
#![forbid(unsafe_code)]

mod build;
mod cap;
mod capped;
mod catalog;
mod collection;
mod counts;
mod ddl;
mod documents;
mod extension;
mod failure;
pub mod index;
mod locks;
mod metadata;
mod namespace;
mod options;
mod past;
mod pending;
mod reader;
mod reindex;
mod session_records;
mod shape;
mod stats;
mod sweep;
mod system;
/// BSON in the one-line form MongoDB uses inside messages.
pub mod text {
    pub use bsonval::show::{document as document_text, value as value_text};
}
mod ddl_lock;
mod txn;
mod validate;
mod validation;
mod values;
mod views;

pub use build::{CreatedIndexes, IndexChange, IndexSelector, same_pattern};
pub use cap::Cap;
pub use capped::{arrival_key, arrival_of, arrivals_from};
pub use catalog::{Catalog, CatalogOptions};
pub use collection::{Collection, Index, IndexUse};
pub use ddl_lock::Check;
pub use documents::{MAX_DOCUMENT_BYTES, MAX_DOCUMENT_DEPTH, check_document};
/// The engine's own names, for the floors that do not see it.
pub use engine::{
    Cursor, DictionaryId, Direction, Engine, KeyRange, Snapshot, Timestamp, Value,
    besides_the_task, thread_commits,
};
pub use failure::{DEADLOCK, from_engine, is_retryable, snapshot_unavailable};
pub use index::{INTERNAL_TIME_INDEX, IndexSpec, default_index_name, known_options};
pub use locks::ShownLock;
pub use namespace::{Namespace, check_database};
pub use options::{Clustered, CollectionOptions, TimeSeries, View, view_pipeline};
pub use pending::Names;
pub use reader::Reader;
pub use reindex::{ReindexProgress, Reindexed};
pub use session_records::{SESSION_BYTES, SessionRow};
pub use shape::{STORAGE_OPTIONS, StorageOptions, compression_name, substitution};
pub use stats::{CollectionStats, IndexStats};
pub use sweep::TEMPORARY_PREFIX;
pub use txn::{Isolation, Savepoint, Txn, TxnKind};
pub use validate::ValidateReport;
pub use validation::Validation;
pub use views::MAX_VIEW_DEPTH;
/// The engine itself, for the server that opens it.
pub mod storage {
    pub use engine::*;
}

#[cfg(test)]
mod tests;
