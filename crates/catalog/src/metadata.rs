//! What is known of collections, and how it is recorded: names, options, indexes, counts.
//!
//! Always true: nothing here changes a collection; a version of its metadata that exists is complete.

pub(crate) mod arrivals;
pub(crate) mod cap;
pub(crate) mod collection;
pub(crate) mod collection_map;
pub(crate) mod counts;
pub(crate) mod ddl_lock;
pub(crate) mod extension;
pub(crate) mod namespace;
pub(crate) mod options;
pub(crate) mod partitions;
pub(crate) mod records;
pub(crate) mod validation;
