//! The settings of a dictionary and of a transaction.

use crate::{Error, Result};
use std::time::Duration;

/// Names a dictionary for as long as the data directory lives; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DictionaryId(pub u64);

impl DictionaryId {
    /// The dictionary that exists from the first start: the catalog's own.
    pub const ROOT: Self = Self(1);
}

/// How pages of a dictionary are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Stored as they are.
    None,
    /// LZ4.
    Lz4,
    /// zlib at a level from 1 to 9.
    Zlib(u8),
    /// zstd at level 3, the default.
    #[default]
    ZstdDefault,
    /// zstd at a level from 1 to 22.
    Zstd(u8),
}

/// The shape of one dictionary: of what is written to it, while what is stored keeps its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DictionaryOptions {
    /// Page compression.
    pub compression: Compression,
    /// Size of a leaf segment in bytes (`pageSize`).
    pub page_size: u32,
    /// Size of one page, the unit of reading and compressing, in bytes (`readPageSize`).
    pub read_page_size: u32,
    /// Children per node (`fanout`).
    pub fanout: u16,
    /// Keep filters on leaf segments too: unique checks then read nothing for new keys.
    pub leaf_filter: bool,
}

impl Default for DictionaryOptions {
    fn default() -> Self {
        Self {
            compression: Compression::ZstdDefault,
            page_size: 1 << 20,
            read_page_size: 16 << 10,
            fanout: 64,
            leaf_filter: false,
        }
    }
}

/// What a write does when the key changed after the transaction's snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnConflict {
    /// Fails with [`crate::Error::WriteConflict`]: snapshot isolation for multi-statement
    /// transactions.
    #[default]
    Fail,
    /// Goes on over the newest committed version: single statements, which lock, re-read with
    /// [`crate::EngineTxn::get_for_update`] and decide again.
    Latest,
}

/// How a transaction behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxnOptions {
    /// See [`OnConflict`].
    pub on_conflict: OnConflict,
    /// How long a lock request may wait; `None` takes the engine's setting, zero never waits.
    pub lock_timeout: Option<Duration>,
}

/// When a commit may return.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Once it is in the log's buffer; the log is flushed every `logFlushPeriod`.
    #[default]
    Buffered,
    /// Once the log is on stable storage up to it (`j: true`); where it has written nothing, up to
    /// what it can have read.
    Synced,
}

/// Refuses shapes that cannot work.
pub(crate) fn validate(options: DictionaryOptions) -> Result<DictionaryOptions> {
    let bad = |text: String| Err(Error::InvalidOption(text));
    if !(4096..=16 << 20).contains(&options.page_size) {
        return bad(format!("pageSize of {} bytes is not in 4 KiB..16 MiB", options.page_size));
    }
    if !(1024..=1 << 20).contains(&options.read_page_size) {
        let size = options.read_page_size;
        return bad(format!("readPageSize of {size} bytes is not in 1 KiB..1 MiB"));
    }
    if options.read_page_size > options.page_size {
        return bad("readPageSize is above pageSize".to_owned());
    }
    if !(4..=64).contains(&options.fanout) {
        return bad(format!("fanout of {} is not in 4..64", options.fanout));
    }
    match options.compression {
        Compression::Zlib(level) if !(1..=9).contains(&level) => {
            bad(format!("zlib level {level} is not in 1..9"))
        }
        Compression::Zstd(level) if !(1..=22).contains(&level) => {
            bad(format!("zstd level {level} is not in 1..22"))
        }
        _ => Ok(options),
    }
}
