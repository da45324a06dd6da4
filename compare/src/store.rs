//! One interface over every engine: four tables, a session for each thread.

use anyhow::{Result, bail};
use std::path::Path;
use std::sync::Arc;

mod fern;
#[cfg(feature = "rocksdb")]
mod peers;

/// What a worker is told to open.
#[derive(Clone, Debug)]
pub struct Settings {
    pub cache_bytes: u64,
    pub direct: bool,
}

/// An open engine.
pub trait Store: Send + Sync {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>>;
    /// Called every 100 ms: brings the log to the disk.
    fn flush_log(&self) -> Result<()>;
    /// Finishes background work, so that the settled state can be measured.
    fn settle(&self) -> Result<()>;
    fn close(&self) -> Result<()>;
    /// When checkpoints ran since the last call: begin and end, in milliseconds since 1970. Empty
    /// for engines that do not tell.
    fn checkpoints(&self) -> Vec<(i64, i64)> {
        Vec::new()
    }
    /// The engine's own counters, for the record.
    fn counters(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// One thread's way into the engine.
pub trait Session: Send {
    fn begin(&mut self) -> Result<()>;
    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()>;
    /// Adds to the number in a value's first eight bytes, without reading the value.
    fn add(&mut self, _table: usize, _key: &[u8], _amount: u64) -> Result<()> {
        bail!("this engine has nothing of that kind")
    }
    fn commit(&mut self) -> Result<()>;
    fn abort(&mut self);
    /// Reads into `into` (its length is set); says whether the key was there. Within a transaction
    /// what is read may be written.
    fn get(&mut self, table: usize, key: &[u8], into: &mut Vec<u8>) -> Result<bool>;
    /// Walks `limit` entries from `from`; returns (entries, bytes).
    fn scan(&mut self, table: usize, from: &[u8], limit: u64) -> Result<(u64, u64)>;
    /// Walks `limit` entries of the first index from `from` and gets each one's row; the last is
    /// left in `into`. Returns the rows.
    fn fetch(&mut self, from: &[u8], limit: u64, into: &mut Vec<u8>) -> Result<u64>;
}

/// The transaction met another one and is to be tried again.
#[derive(Debug)]
pub struct Conflict;

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("write conflict")
    }
}

impl std::error::Error for Conflict {}

/// Where the row's key begins in an entry of the first index.
pub const ROW_AT: usize = 12;

/// Opens the engine of that name.
pub fn open(name: &str, directory: &Path, settings: &Settings) -> Result<Arc<dyn Store>> {
    match name {
        "fern" => fern::open(directory, settings),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => peers::open(name, directory, settings),
        #[cfg(feature = "peers")]
        "wiredtiger" | "lmdb" => peers::open(name, directory, settings),
        _ => bail!("no engine `{name}`"),
    }
}
