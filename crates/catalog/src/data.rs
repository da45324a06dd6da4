//! Documents and the transactions they are read and written in.
//!
//! Always true: a document and its index entries change in one engine transaction.

pub(crate) mod documents;
pub(crate) mod fast;
pub(crate) mod index_cursor;
pub(crate) mod keys_behind;
pub(crate) mod load;
pub(crate) mod locks;
pub(crate) mod metadata_lock;
pub(crate) mod names;
pub(crate) mod notes;
pub(crate) mod past;
pub(crate) mod reader;
pub(crate) mod side;
pub(crate) mod statements;
pub(crate) mod stats;
pub(crate) mod system;
pub(crate) mod txn;
pub(crate) mod views;
