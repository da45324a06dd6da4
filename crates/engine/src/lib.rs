//! The storage engine's API: environment, dictionaries, transactions, checkpoint, recovery.
//!
//! A dictionary maps byte keys to byte values in memcmp order. All changes go through a [`EngineTxn`];
//! all reads see one snapshot. Nothing here knows BSON.
//!
//! What is always true:
//! 1. A commit is all there or not there: for readers (it is published at once), after a crash
//!    (one log record decides), in a backup.
//! 2. What `Durability::Synced` acknowledged survives; what survives is a prefix of the commits.
//! 3. Uncommitted writes are in no tree.
//! 4. Memory is bounded by `cacheSize`: everything is counted in the cache table's one account, and
//!    pages go where the rest grows; the rest has bounds of its own.
#![forbid(unsafe_code)]

mod adjustable;
mod archiver;
mod backup;
mod buried;
mod checkpoint;
mod chunk_lists;
mod commit;
mod commit_order;
mod counters;
mod cursor;
mod dictionary;
mod directory_lock;
mod engine;
mod entries;
mod entry_bytes;
mod environment;
mod error;
pub mod format;
mod handle;
mod health;
mod helper;
mod history;
mod holder;
mod interrupt;
mod keys;
mod live;
mod load;
mod lock_waits;
mod log;
mod log_wait;
mod maintenance;
mod members;
mod memory;
mod open_records;
mod options;
mod records;
mod recovery;
mod rewrite;
mod schedule;
mod settings;
mod snapshot;
mod snapshots;
mod sorter;
mod stats;
mod step;
mod submitted;
#[cfg(any(test, feature = "testing"))]
mod testing;
mod times;
mod tuning;
mod txn;
mod types;
mod unapplied;
mod unsettled;
mod watermarks;
mod writes;
mod writeset;
mod written;

pub use adjustable::Adjustable;
pub use archiver::ArchiveStatus;
pub use backup::{
    BACKUP_FILE, Backup, BackupChain, BackupManifest, BackupProgress, CopiedFile, DataPiece,
    ReceivedFile, Receiving, Since, StoredBackup, take_received,
};
pub use blockfile::{FileParts, PageStats};
pub use cachetable::{Amount, Evictions, MemoryKind, Misses, Parts, Stats as CacheStats};
pub use checkpoint::CheckpointStats;
pub use commit::{outside_request, thread_commits};
pub use cursor::Cursor;
pub use engine::{DictionaryStats, Engine};
pub use entries::EntryId;
pub use entry_bytes::{CompressedPart, EntryBytes};
pub use error::{Cause, Error, Oversized, Result};
pub use ftree::{
    Applied, Direction, KeyRange, PlantedUpdateBug, RecordPart, TombstoneBug, UpdatePlace, Updates,
    thread_page_reads,
};
pub use history::{
    History, HistoryCommit, HistoryOperation, HistoryOperations, HistoryOptions, HistoryStats,
    HistoryTail,
};
pub use keys::Encryption;
pub use live::TxnInfo;
pub use load::{
    AreSame, Derive, FillError, FillTarget, Load, LoadBehind, Loaded, LoadedRows, PutRow,
    SortBehind, Twice,
};
pub use lock_waits::{Deferring, LockWait};
pub use locktree::{LockInfo, Refusal};
pub use log_wait::LogWait;
pub use members::{CommitStep, EntryBounds, EntryRecords, MAX_ENTRY_BYTES};
pub use open_records::GatheredRecords;
pub use options::{
    Compression, DictionaryId, DictionaryOptions, Durability, OnConflict, TxnOptions,
};
pub use records::{EntryHead, EntryKind};
pub use recovery::Recovered;
pub use rewrite::Rewrite;
pub use settings::{Background, Options, PlantedBug, Showing, Sizes};
pub use snapshot::Snapshot;
pub use snapshots::CommitState;
pub use sorter::{Sorted, SortedWalk, Sorter};
pub use stats::{Pages, Stats};
pub use submitted::{Seen, Submitted, limit_waits};
pub use txn::{
    EngineTxn, MAX_KEY_BYTES, MAX_NOTE_BYTES, MAX_UPDATE_BYTES, MAX_VALUE_BYTES, Savepoint,
};
pub use types::{Committed, Timestamp, Value};
pub use unsettled::{DecisionWatch, SettleOutcome, Unsettled, forget_unsettled};
pub use wal::{SyncWatch, SyncedFile};
pub use watermarks::{Complete, Visible};
