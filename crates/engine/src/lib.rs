//! The storage engine's API: environment, dictionaries, transactions, checkpoint, recovery.
//!
//! A dictionary maps byte keys to byte values in memcmp order. All changes go through a [`Txn`];
//! all reads see one snapshot. Nothing here knows BSON.
#![forbid(unsafe_code)]

mod error;
mod options;
mod scaffold;

pub use error::{Error, Result};
pub use options::{
    Compression, DictionaryId, DictionaryOptions, Durability, OnConflict, TxnOptions,
};
pub use scaffold::{
    Cursor, Direction, Engine, KeyRange, Savepoint, Snapshot, Timestamp, Txn, Value,
};
