//! What an offline reader learns from the engine's own bytes: checkpoint root, log records, and
//! the names of files.
//!
//! Always true: any bytes may be handed in; the answer is what they say, or what is wrong.

use crate::checkpoint::CheckpointRoot;
use crate::dictionary::staged::STAGED;
use crate::records::{Operation, Operations, Record};
use crate::{DictionaryId, DictionaryOptions, Timestamp};

/// The file a running engine holds locked.
pub const LOCK_FILE: &str = crate::directory_lock::LOCK_FILE;
/// The file of a directory whose backup is being written, or was not written to its end.
pub const UNFINISHED_BACKUP: &str = crate::directory_lock::UNFINISHED_BACKUP;
/// The file that names the format of the directory.
pub const VERSION_FILE: &str = crate::directory_lock::VERSION_FILE;
/// What is in it.
pub const VERSION_TEXT: &str = crate::directory_lock::VERSION_TEXT;
/// What is in it where the directory holds an incremental backup.
pub const INCREMENTAL_TEXT: &str = crate::directory_lock::INCREMENTAL_TEXT;
/// The log's directory in the data directory, unless the server was told otherwise.
pub const LOG_DIR: &str = crate::settings::LOG_DIR;

/// What a checkpoint root says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootFacts {
    /// Dictionaries created or dropped up to here are as listed.
    pub timestamp: Timestamp,
    /// The log was synced up to here before the root was written.
    pub log_end: u64,
    /// Dictionary ids below are taken.
    pub next_dictionary: u64,
    /// Transaction ids below are taken.
    pub next_txn: u64,
    /// No commit before it has a later cluster time; 0 where there never was one.
    pub time: u64,
    /// From which position on the log is history, where it is.
    pub history_from: Option<u64>,
    /// Ids ascending.
    pub dictionaries: Vec<DictionaryFacts>,
}

/// What a checkpoint root says of one dictionary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DictionaryFacts {
    /// Its number.
    pub id: DictionaryId,
    /// The commit that created it.
    pub created: Timestamp,
    /// Every commit up to this is in the image, which may itself know of fewer.
    pub flushed: Timestamp,
    /// Its shape.
    pub options: DictionaryOptions,
    /// Its tree's image: for `ftree::format`.
    pub image: Vec<u8>,
}

impl DictionaryFacts {
    /// Whether it was filled past the log, and no commit up to the checkpoint has made it.
    pub fn is_staged(&self) -> bool {
        self.created.0 == STAGED
    }
}

/// Reads a checkpoint root from its chain: a whole one first, then the changes since.
pub fn read_root(parts: &[impl AsRef<[u8]>]) -> Result<RootFacts, &'static str> {
    let (whole, changes) = parts.split_first().ok_or("there is none")?;
    let root = CheckpointRoot::fold(whole.as_ref(), changes).map_err(|e| e.0)?;
    let dictionaries = root.dictionaries.iter().map(|d| DictionaryFacts {
        id: DictionaryId(d.id),
        created: Timestamp(d.created),
        flushed: Timestamp(d.flushed_in(&root)),
        options: d.options,
        image: d.image.clone(),
    });
    Ok(RootFacts {
        timestamp: Timestamp(root.timestamp),
        log_end: root.log_end,
        next_dictionary: root.next_dictionary,
        next_txn: root.next_txn,
        time: root.time,
        history_from: root.history_from,
        dictionaries: dictionaries.collect(),
    })
}

/// What a record of the log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// The transaction counts, at this timestamp, with so many chunks before it.
    Commit {
        /// When.
        timestamp: Timestamp,
        /// Records that belong to it.
        chunks: u32,
    },
    /// Part of a transaction that may be committed later.
    Chunk {
        /// Its place among them.
        number: u32,
    },
    /// The transaction's chunks count for nothing.
    Abort,
    /// The records since the last one are an entry of a set's log; its index stands in the place of a
    /// transaction.
    Entry {
        /// The term of its leader.
        term: u64,
        /// The last commit up to its end.
        timestamp: Timestamp,
    },
    /// What stands before it, from a position on, is void; the first void entry stands in the place of a
    /// transaction.
    Cut {
        /// Commits above are void.
        timestamp: Timestamp,
        /// The position.
        from: u64,
    },
}

/// What a record of the log says, operations counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordFacts {
    /// Whose record it is.
    pub txn: u64,
    /// What it is.
    pub kind: RecordKind,
    /// Puts in it.
    pub puts: u64,
    /// Deletes in it.
    pub deletes: u64,
    /// Updates.
    pub updates: u64,
    /// Dictionaries created in it.
    pub creates: u64,
    /// Dictionaries dropped in it.
    pub drops: u64,
    /// Changes of a dictionary's options in it.
    pub reshapes: u64,
    /// Notes in it.
    pub notes: u64,
    /// Deletes of ranges in it.
    pub tombstones: u64,
    /// Of a commit: the first and the last of its cluster times, where it has some.
    pub times: Option<(u64, u64)>,
}

/// What a commit record writes into the catalog's own dictionary: when, the keys, the values. Of
/// other records, and behind an operation that cannot be read, nothing.
pub fn root_puts(payload: &[u8]) -> Vec<(Timestamp, &[u8], &[u8])> {
    let Ok(Record::Commit { timestamp, operations, .. }) = Record::decode(payload) else {
        return Vec::new();
    };
    let puts = Operations::new(operations).filter_map(|operation| match operation {
        Ok(Operation::Put { dictionary, key, value }) if dictionary == DictionaryId::ROOT.0 => {
            Some((Timestamp(timestamp), key, value))
        }
        _ => None,
    });
    puts.collect()
}

/// Reads one record of the log, all its operations.
pub fn read_record(payload: &[u8]) -> Result<RecordFacts, &'static str> {
    let mut times = None;
    let (txn, kind, operations) = match Record::decode(payload).map_err(|e| e.0)? {
        Record::Commit { txn, timestamp, chunks, history, operations } => {
            times = history.map(|head| (head.time, head.last_time()));
            (txn, RecordKind::Commit { timestamp: Timestamp(timestamp), chunks }, operations)
        }
        Record::Chunk { txn, number, operations } => {
            (txn, RecordKind::Chunk { number }, operations)
        }
        Record::Abort { txn } => (txn, RecordKind::Abort, &[][..]),
        Record::Entry { head, .. } => {
            let timestamp = Timestamp(head.last_timestamp);
            (head.index, RecordKind::Entry { term: head.term, timestamp }, &[][..])
        }
        Record::Cut(cut) => {
            let timestamp = Timestamp(cut.timestamp);
            (cut.index, RecordKind::Cut { timestamp, from: cut.from }, &[][..])
        }
    };
    let mut facts = RecordFacts {
        txn,
        kind,
        puts: 0,
        deletes: 0,
        updates: 0,
        creates: 0,
        drops: 0,
        reshapes: 0,
        notes: 0,
        tombstones: 0,
        times,
    };
    for operation in Operations::new(operations) {
        match operation.map_err(|e| e.0)? {
            Operation::Put { .. } => facts.puts += 1,
            Operation::Delete { .. } => facts.deletes += 1,
            Operation::Update { .. } => facts.updates += 1,
            Operation::Create { .. } | Operation::Adopt { .. } => facts.creates += 1,
            Operation::Drop { .. } => facts.drops += 1,
            Operation::Reshape { .. } => facts.reshapes += 1,
            Operation::Note { .. } => facts.notes += 1,
            Operation::Tombstone { .. } => facts.tombstones += 1,
        }
    }
    Ok(facts)
}
