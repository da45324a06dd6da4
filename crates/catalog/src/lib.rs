//! Databases, collections, indexes and documents as dictionaries of the engine.
//!
//! The only crate that knows which dictionaries there are and what lies in them. A collection is a
//! primary dictionary (keystring of `_id` → BSON) and one dictionary per secondary index, of the keys
//! that `indexkeys` makes; the catalog's own records live in the engine's `ROOT` dictionary.
//!
//! Always true:
//! 1. A document and its index entries change in one engine transaction.
//! 2. Metadata in memory follows the engine: committed first, published after.
#![forbid(unsafe_code)]

mod arrivals;
mod build;
mod cap;
mod capped;
mod catalog;
mod collection;
mod counts;
mod ddl;
mod ddl_lock;
mod documents;
mod extension;
mod failure;
mod locks;
mod metadata;
mod metadata_lock;
mod names;
mod namespace;
mod observer;
mod options;
mod past;
mod pending;
mod reader;
mod reindex;
mod shape;
mod side;
mod stats;
mod sweep;
mod system;
mod txn;
mod validate;
mod validation;
mod views;

pub use build::{CreatedIndexes, IndexSelector};
pub use cap::Cap;
pub use capped::{arrival_key, arrival_of, arrivals_from};
pub use catalog::{Catalog, CatalogOptions};
pub use collection::{Collection, Index, IndexUse};
pub use documents::{MAX_DOCUMENT_BYTES, MAX_DOCUMENT_DEPTH, check_document};
pub use failure::{DEADLOCK, from_engine, is_retryable, snapshot_unavailable};
pub use locks::ShownLock;
pub use metadata_lock::Check;
pub use names::Names;
pub use namespace::{Namespace, check_database};
pub use observer::OpObserver;
pub use options::{Clustered, CollectionOptions, TimeSeries, View, view_pipeline};
pub use reader::Reader;
pub use reindex::{ReindexProgress, Reindexed};
pub use shape::compression_name;
pub use side::SESSION_RECORDS;
pub use stats::{CollectionStats, IndexStats};
pub use sweep::TEMPORARY_PREFIX;
pub use txn::{Isolation, Savepoint, Txn, TxnKind};
pub use validate::ValidateReport;
pub use validation::Validation;
pub use views::MAX_VIEW_DEPTH;

#[cfg(test)]
mod tests;
