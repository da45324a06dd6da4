//! Databases, collections, indexes and documents as dictionaries of the engine.
//!
//! The only crate that knows which dictionaries there are and what lies in them. A collection is a
//! primary dictionary (record key, mostly the keystring of `_id` → BSON) and one dictionary per
//! secondary index, of the keys that `indexkeys` makes; the catalog's own records live in the engine's `ROOT` dictionary.
//!
//! Always true:
//! 1. A document and its index entries change in one engine transaction.
//! 2. Metadata in memory follows the engine: committed first, published after.
#![forbid(unsafe_code)]

mod catalog;
mod data;
mod ddl;
mod failure;
mod follow;
mod left_out;
mod metadata;
mod shape;

pub use catalog::{Catalog, CatalogOptions};
pub use data::documents::{MAX_DOCUMENT_DEPTH, check_document, check_value};
pub use data::index_cursor::IndexCursor;
pub use data::locks::ShownLock;
pub use data::metadata_lock::Check;
pub use data::metadata_lock::set_lock_timeout;
pub use data::names::Names;
pub use data::notes::{Changed, ToldSession};
pub use data::reader::Reader;
pub use data::side::SESSION_RECORDS;
pub use data::statements::{NotSettled, forget_statements};
pub use data::stats::{CollectionStats, IndexStats};
pub use data::txn::{Isolation, Savepoint, Txn, TxnKind};
pub use data::views::MAX_VIEW_DEPTH;
pub use ddl::build::{CreatedIndexes, IndexSelector};
pub use ddl::capped::{arrival_key, arrival_of, arrivals_from};
pub use ddl::emptied::RangeDeleted;
pub use ddl::made::{MadeName, has_made_names, keep_made_names, take_made_names};
pub use ddl::partitions::{PartitionSelector, check_partitioned};
pub use ddl::reindex::{ReindexProgress, Reindexed};
pub use ddl::sweep::TEMPORARY_PREFIX;
pub use ddl::validate::ValidateReport;
pub use engine::{DecisionWatch, LogWait, SettleOutcome, SyncWatch, Unsettled, limit_waits};
pub use failure::{DEADLOCK, QUEUED, from_engine, is_retryable, snapshot_unavailable};
pub use follow::{Changes, Follower};
pub use indexkeys::record_part;
pub use metadata::cap::Cap;
pub use metadata::collection::{Collection, Index, IndexUse};
pub use metadata::namespace::{Namespace, check_database};
pub use metadata::options::{
    Clustered, CollectionOptions, PartitionEvery, TimeSeries, View, view_pipeline,
};
pub use metadata::partitions::Partition;
pub use metadata::validation::Validation;
pub use shape::compression_name;

#[cfg(test)]
mod tests;
