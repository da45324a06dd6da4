//! What a transaction leaves in the log: one commit record, before it the chunks of a large one.
//!
//! A record is one payload of the log (`wal` frames and checksums it). Integers are little-endian,
//! `varint` is LEB128 of at most ten bytes:
//!
//! ```text
//! commit  1 u8 | version u8 | 0 u16 | chunks u32 | transaction u64 | timestamp u64 | history | operations
//! chunk   2 u8 | version u8 | 0 u16 | number u32 | transaction u64 | operations
//! abort   3 u8 | version u8 | 0 u16 | 0 u32      | transaction u64
//! entry   4 u8 | 3 u8       | 0 u16 | kind u32   | index u64 | term u64 | first timestamp u64
//!         | last timestamp u64 | last time u64 | committed index u64 | bytes u64 | checksum u32
//!         | configuration (kind 1)
//! cut     5 u8 | 3 u8       | 0 u16 | 0 u32      | index u64 | timestamp u64 | from u64
//!
//! history, in version 3 only
//!         flags u8 (1 a client's transaction) | time u64 | varint span
//!         | where there are chunks: varint position at or before the first one
//!
//! operation
//!   1 dictionary  varint id              the following puts and deletes are in it
//!   2 put         varint key length, varint value length, key, value
//!   3 delete      varint key length, key
//!   4 create      varint id, 14 bytes of options
//!   5 drop        varint id
//!   6 reshape     varint id, 14 bytes of options
//!   7 note        varint length, bytes: what readers of the history are told; version 3 only
//!   8 adopt       varint id, 14 bytes of options: a checkpoint has what is in it; version 2 only
//!   9 tombstone   varint id, varint length, part, varint length, lower end, u8, varint length, upper end:
//!                 all in a range is gone that is older than the commit; without an upper end where the u8
//!                 is 0, with one where it is 1
//!  10 update      varint key length, varint argument length, key, argument
//! ```
//!
//! Version 2 is written by an engine that keeps no history, version 3 by one that does; both are read.
//!
//! A transaction's operations are those of its chunks 0, 1, … in order, then those of its commit
//! record. Chunks without a commit record count for nothing. Each record names its dictionaries
//! again. An entry closes the records since the entry before it; a cut makes void what stands before it
//! from position `from` on (ADR 38). On disk: `docs/formats/log-records.md`.

use crate::{Compression, DictionaryOptions};
use std::cell::Cell;

/// Of an engine without a history.
pub(crate) const VERSION: u8 = 2;
/// Of one with a history.
pub(crate) const HISTORY_VERSION: u8 = 3;
const COMMIT: u8 = 1;
const CHUNK: u8 = 2;
const ABORT: u8 = 3;
const ENTRY: u8 = 4;
const CUT: u8 = 5;

const KIND_RECORDS: u32 = 0;
const KIND_CONFIGURATION: u32 = 1;
const KIND_FENCE: u32 = 2;
/// Bytes of an entry record without a configuration.
const ENTRY_BYTES: usize = 16 + 6 * 8 + 4;
/// The longest configuration that an entry has.
pub(crate) const MAX_CONFIGURATION_BYTES: usize = 1 << 20;

const OP_DICTIONARY: u8 = 1;
const OP_PUT: u8 = 2;
const OP_DELETE: u8 = 3;
const OP_CREATE: u8 = 4;
const OP_DROP: u8 = 5;
const OP_RESHAPE: u8 = 6;
const OP_NOTE: u8 = 7;
const OP_ADOPT: u8 = 8;
const OP_TOMBSTONE: u8 = 9;
const OP_UPDATE: u8 = 10;

/// The commit is a client's transaction.
const CLIENT_TRANSACTION: u8 = 1;
/// The longest head of a commit.
const HEAD_BYTES: usize = 24 + 1 + 8 + 5 + 10;

/// Bytes of a dictionary's options on disk.
pub(crate) const OPTIONS_BYTES: usize = 14;

/// A record, decoded as far as its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record<'a> {
    /// The transaction counts, at this timestamp.
    Commit {
        txn: u64,
        timestamp: u64,
        chunks: u32,
        /// Its place in the history; `None` in version 2.
        history: Option<HistoryHead>,
        operations: &'a [u8],
    },
    /// Part of a transaction that may be committed later.
    Chunk { txn: u64, number: u32, operations: &'a [u8] },
    /// The transaction's chunks may be forgotten.
    Abort { txn: u64 },
    /// What was appended since the entry before is an entry of the set's log.
    Entry { head: EntryHead, configuration: &'a [u8] },
    /// What stands before it is void: commits above a timestamp, entries from an index on.
    Cut(Cut),
}

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// Commits.
    Records,
    /// A configuration of the set, and the commits before it.
    Configuration,
    /// The first of a term, and the commits before it.
    Fence,
}

impl EntryKind {
    fn number(self) -> u32 {
        match self {
            Self::Records => KIND_RECORDS,
            Self::Configuration => KIND_CONFIGURATION,
            Self::Fence => KIND_FENCE,
        }
    }

    fn of(number: u32) -> Option<Self> {
        match number {
            KIND_RECORDS => Some(Self::Records),
            KIND_CONFIGURATION => Some(Self::Configuration),
            KIND_FENCE => Some(Self::Fence),
            _ => None,
        }
    }
}

/// One entry of the set's log: the same on every member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryHead {
    /// Its place in the set's log.
    pub index: u64,
    /// The term of the leader that made it.
    pub term: u64,
    /// What it is.
    pub kind: EntryKind,
    /// The first of its commits; above the last one where it has none.
    pub first_timestamp: u64,
    /// The last commit up to its end.
    pub last_timestamp: u64,
    /// The last cluster time up to its end.
    pub last_time: u64,
    /// What its maker knew to be committed.
    pub committed: u64,
    /// Bytes of its records, as they are sent.
    pub bytes: u64,
    /// The crc32c of those.
    pub checksum: u32,
}

/// A tail of the log is void.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    /// Entries from here on.
    pub(crate) index: u64,
    /// Commits above.
    pub(crate) timestamp: u64,
    /// Records from this position of this log on, up to the cut itself.
    pub(crate) from: u64,
}

/// A commit's place in the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HistoryHead {
    /// The first of its cluster times.
    pub(crate) time: u64,
    /// How many it takes, at least one.
    pub(crate) span: u32,
    pub(crate) is_client_transaction: bool,
    /// Where there are chunks: a position of the log at or before the first one; else 0.
    pub(crate) first_chunk: u64,
}

impl HistoryHead {
    /// The last of its cluster times.
    pub(crate) fn last_time(&self) -> u64 {
        self.time.saturating_add(u64::from(self.span).saturating_sub(1))
    }
}

/// One thing a transaction did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation<'a> {
    Put {
        dictionary: u64,
        key: &'a [u8],
        value: &'a [u8],
    },
    Delete {
        dictionary: u64,
        key: &'a [u8],
    },
    Update {
        dictionary: u64,
        key: &'a [u8],
        argument: &'a [u8],
    },
    Create {
        dictionary: u64,
        options: DictionaryOptions,
    },
    Drop {
        dictionary: u64,
    },
    Reshape {
        dictionary: u64,
        options: DictionaryOptions,
    },
    Note {
        note: &'a [u8],
    },
    /// A dictionary that was filled before: a checkpoint names it.
    Adopt {
        dictionary: u64,
        options: DictionaryOptions,
    },
    Tombstone {
        dictionary: u64,
        part: &'a [u8],
        lower: &'a [u8],
        upper: Option<&'a [u8]>,
    },
}

/// The tombstone that a commit's operation adds.
pub(crate) fn tombstone(
    timestamp: u64,
    part: &[u8],
    lower: &[u8],
    upper: Option<&[u8]>,
) -> ftree::Tombstone {
    ftree::Tombstone {
        ts: timestamp,
        lower: lower.to_vec(),
        upper: upper.map(<[u8]>::to_vec),
        part: part.to_vec(),
    }
}

/// The record cannot be read; what is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("log record: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// The head of a commit record.
#[derive(Clone, Copy)]
pub(crate) struct CommitHead {
    bytes: [u8; HEAD_BYTES],
    len: usize,
}

impl CommitHead {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
            self.len = end;
        }
    }

    fn push_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.push(&[value as u8]);
    }
}

/// In version 3 where it has a place in the history, else in version 2.
pub(crate) fn commit_head(
    txn: u64,
    timestamp: u64,
    chunks: u32,
    history: Option<HistoryHead>,
) -> CommitHead {
    let mut head = CommitHead { bytes: [0; HEAD_BYTES], len: 0 };
    head.push(&common_head(COMMIT, version_of(history.is_some()), chunks, txn));
    head.push(&timestamp.to_le_bytes());
    if let Some(history) = history {
        head.push(&[if history.is_client_transaction { CLIENT_TRANSACTION } else { 0 }]);
        head.push(&history.time.to_le_bytes());
        head.push_varint(u64::from(history.span));
        if chunks > 0 {
            head.push_varint(history.first_chunk);
        }
    }
    let read = Record::Commit { txn, timestamp, chunks, history, operations: &[] };
    debug_assert_eq!(Record::decode(head.bytes()), Ok(read), "a commit reads as it was written");
    head
}

fn version_of(has_history: bool) -> u8 {
    if has_history { HISTORY_VERSION } else { VERSION }
}

pub(crate) fn chunk_head(txn: u64, number: u32, has_history: bool) -> [u8; 16] {
    let head = common_head(CHUNK, version_of(has_history), number, txn);
    let read = Record::Chunk { txn, number, operations: &[] };
    debug_assert_eq!(Record::decode(&head), Ok(read), "a chunk reads as it was written");
    head
}

pub(crate) fn abort_record(txn: u64) -> [u8; 16] {
    let record = common_head(ABORT, VERSION, 0, txn);
    let read = Record::Abort { txn };
    debug_assert_eq!(Record::decode(&record), Ok(read), "an abort reads as it was written");
    record
}

/// The record of an entry, with its configuration where it is one.
pub(crate) fn entry_record(head: &EntryHead, configuration: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(ENTRY_BYTES + configuration.len());
    record.extend_from_slice(&common_head(ENTRY, HISTORY_VERSION, head.kind.number(), head.index));
    for number in [
        head.term,
        head.first_timestamp,
        head.last_timestamp,
        head.last_time,
        head.committed,
        head.bytes,
    ] {
        record.extend_from_slice(&number.to_le_bytes());
    }
    record.extend_from_slice(&head.checksum.to_le_bytes());
    record.extend_from_slice(configuration);
    let read = Record::Entry { head: *head, configuration };
    debug_assert_eq!(Record::decode(&record), Ok(read), "an entry reads as it was written");
    record
}

/// The record of a cut.
pub(crate) fn cut_record(cut: &Cut) -> [u8; 32] {
    let mut record = [0; 32];
    record[..16].copy_from_slice(&common_head(CUT, HISTORY_VERSION, 0, cut.index));
    record[16..24].copy_from_slice(&cut.timestamp.to_le_bytes());
    record[24..].copy_from_slice(&cut.from.to_le_bytes());
    debug_assert_eq!(
        Record::decode(&record),
        Ok(Record::Cut(*cut)),
        "a cut reads as it was written"
    );
    record
}

/// A commit record as members send it to each other, where that is another than this one: positions are
/// of one log only. `None` where it is this one.
pub(crate) fn without_position(record: &Record<'_>) -> Option<Vec<u8>> {
    match record {
        Record::Commit { txn, timestamp, chunks, history: Some(history), operations }
            if *chunks > 0 && history.first_chunk > 0 =>
        {
            let history = HistoryHead { first_chunk: 0, ..*history };
            let head = commit_head(*txn, *timestamp, *chunks, Some(history));
            Some([head.bytes(), operations].concat())
        }
        _ => None,
    }
}

fn common_head(kind: u8, version: u8, number: u32, txn: u64) -> [u8; 16] {
    let mut head = [0; 16];
    head[0] = kind;
    head[1] = version;
    head[4..8].copy_from_slice(&number.to_le_bytes());
    head[8..].copy_from_slice(&txn.to_le_bytes());
    head
}

impl<'a> Record<'a> {
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut input = Input(payload);
        let [kind, version, ..] = *input.array::<4>()?;
        if version != VERSION && version != HISTORY_VERSION {
            return Err(Malformed("a version this program does not know"));
        }
        let number = u32::from_le_bytes(*input.array()?);
        let txn = u64::from_le_bytes(*input.array()?);
        match kind {
            COMMIT => {
                let timestamp = u64::from_le_bytes(*input.array()?);
                let history = match version {
                    HISTORY_VERSION => Some(HistoryHead::decode(&mut input, number)?),
                    _ => None,
                };
                let operations = input.0;
                Ok(Self::Commit { txn, timestamp, chunks: number, history, operations })
            }
            CHUNK => Ok(Self::Chunk { txn, number, operations: input.0 }),
            ABORT => Ok(Self::Abort { txn }),
            ENTRY if version == HISTORY_VERSION => Self::entry(&mut input, number, txn),
            CUT if version == HISTORY_VERSION => {
                let timestamp = u64::from_le_bytes(*input.array()?);
                let from = u64::from_le_bytes(*input.array()?);
                if number != 0 || !input.0.is_empty() {
                    return Err(Malformed("a cut with more than there is to say"));
                }
                Ok(Self::Cut(Cut { index: txn, timestamp, from }))
            }
            _ => Err(Malformed("an unknown kind")),
        }
    }
}

impl<'a> Record<'a> {
    fn entry(input: &mut Input<'a>, kind: u32, index: u64) -> Result<Self, Malformed> {
        let mut number = || Ok::<_, Malformed>(u64::from_le_bytes(*input.array()?));
        let (term, first_timestamp, last_timestamp) = (number()?, number()?, number()?);
        let (last_time, committed, bytes) = (number()?, number()?, number()?);
        let checksum = u32::from_le_bytes(*input.array()?);
        let kind = EntryKind::of(kind).ok_or(Malformed("an unknown kind of entry"))?;
        let configuration = input.0;
        if kind != EntryKind::Configuration && !configuration.is_empty() {
            return Err(Malformed("bytes behind an entry"));
        }
        if configuration.len() > MAX_CONFIGURATION_BYTES {
            return Err(Malformed("a configuration that is too long"));
        }
        if index == 0 || first_timestamp > last_timestamp.saturating_add(1) {
            return Err(Malformed("an entry that cannot be"));
        }
        let head = EntryHead {
            index,
            term,
            kind,
            first_timestamp,
            last_timestamp,
            last_time,
            committed,
            bytes,
            checksum,
        };
        Ok(Self::Entry { head, configuration })
    }
}

impl HistoryHead {
    fn decode(input: &mut Input<'_>, chunks: u32) -> Result<Self, Malformed> {
        let is_client_transaction = match input.byte()? {
            0 => false,
            CLIENT_TRANSACTION => true,
            _ => return Err(Malformed("a flag this program does not know")),
        };
        let time = u64::from_le_bytes(*input.array()?);
        let span = u32::try_from(input.varint()?).unwrap_or(0);
        if span == 0 || time.checked_add(u64::from(span)).is_none() {
            return Err(Malformed("a span of times that cannot be"));
        }
        let first_chunk = if chunks > 0 { input.varint()? } else { 0 };
        Ok(Self { time, span, is_client_transaction, first_chunk })
    }
}

/// Writes operations one after the other.
#[derive(Default)]
pub(crate) struct Encoder {
    pub(crate) bytes: Vec<u8>,
    dictionary: Option<u64>,
}

/// Room up to here is used again by the next commit of the thread.
const MOST_ROOM: usize = 16 << 10;

thread_local! {
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Keeps the room of a record that is in the log for the next one of this thread.
pub(crate) fn keep_room(mut record: Vec<u8>) {
    if record.capacity() <= MOST_ROOM {
        record.clear();
        ROOM.set(record);
    }
}

impl Encoder {
    /// With room for about `bytes`, and at most for one record and a usual value.
    pub(crate) fn with_room(bytes: u64, record_bytes: usize) -> Self {
        let most = record_bytes.saturating_add(4 << 10);
        let room = usize::try_from(bytes).map_or(most, |bytes| bytes.min(most));
        let mut bytes = ROOM.take();
        bytes.reserve(room);
        Self { bytes, dictionary: None }
    }

    pub(crate) fn write(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Put { dictionary, key, value } => self.put(dictionary, key, value),
            Operation::Delete { dictionary, key } => {
                self.enter(dictionary);
                self.bytes.push(OP_DELETE);
                varint(&mut self.bytes, key.len() as u64);
                self.bytes.extend_from_slice(key);
            }
            Operation::Update { dictionary, key, argument } => {
                self.enter(dictionary);
                self.bytes.push(OP_UPDATE);
                varint(&mut self.bytes, key.len() as u64);
                varint(&mut self.bytes, argument.len() as u64);
                self.bytes.extend_from_slice(key);
                self.bytes.extend_from_slice(argument);
            }
            Operation::Create { dictionary, options } => {
                self.bytes.push(OP_CREATE);
                varint(&mut self.bytes, dictionary);
                self.bytes.extend_from_slice(&encode_options(&options));
            }
            Operation::Drop { dictionary } => {
                self.bytes.push(OP_DROP);
                varint(&mut self.bytes, dictionary);
            }
            Operation::Reshape { dictionary, options } => {
                self.bytes.push(OP_RESHAPE);
                varint(&mut self.bytes, dictionary);
                self.bytes.extend_from_slice(&encode_options(&options));
            }
            Operation::Note { note } => {
                self.bytes.push(OP_NOTE);
                varint(&mut self.bytes, note.len() as u64);
                self.bytes.extend_from_slice(note);
            }
            Operation::Adopt { dictionary, options } => {
                self.bytes.push(OP_ADOPT);
                varint(&mut self.bytes, dictionary);
                self.bytes.extend_from_slice(&encode_options(&options));
            }
            Operation::Tombstone { dictionary, part, lower, upper } => {
                self.bytes.push(OP_TOMBSTONE);
                varint(&mut self.bytes, dictionary);
                for bytes in [part, lower] {
                    varint(&mut self.bytes, bytes.len() as u64);
                    self.bytes.extend_from_slice(bytes);
                }
                self.bytes.push(u8::from(upper.is_some()));
                if let Some(upper) = upper {
                    varint(&mut self.bytes, upper.len() as u64);
                    self.bytes.extend_from_slice(upper);
                }
            }
        }
    }

    /// What is written most: an [`Operation::Put`].
    pub(crate) fn put(&mut self, dictionary: u64, key: &[u8], value: &[u8]) {
        self.enter(dictionary);
        self.bytes.push(OP_PUT);
        varint(&mut self.bytes, key.len() as u64);
        varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    #[inline]
    fn enter(&mut self, dictionary: u64) {
        if self.dictionary != Some(dictionary) {
            self.dictionary = Some(dictionary);
            self.bytes.push(OP_DICTIONARY);
            varint(&mut self.bytes, dictionary);
        }
    }

    /// Gives the bytes so far away and starts the next record.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.dictionary = None;
        std::mem::take(&mut self.bytes)
    }
}

/// Reads operations one after the other; ends after the first that is malformed.
pub(crate) struct Operations<'a> {
    input: Input<'a>,
    dictionary: Option<u64>,
}

impl<'a> Operations<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { input: Input(bytes), dictionary: None }
    }

    /// Goes on where [`Operations::place`] was asked, over the same bytes.
    pub(crate) fn at(bytes: &'a [u8], (at, dictionary): (usize, Option<u64>)) -> Self {
        Self { input: Input(bytes.get(at..).unwrap_or_default()), dictionary }
    }

    /// How far it has come in `bytes`, and in which dictionary it is.
    pub(crate) fn place(&self, bytes: &[u8]) -> (usize, Option<u64>) {
        (bytes.len().saturating_sub(self.input.0.len()), self.dictionary)
    }

    fn read(&mut self) -> Result<Operation<'a>, Malformed> {
        loop {
            let dictionary = self.dictionary.ok_or(Malformed("an operation outside a dictionary"));
            match self.input.byte()? {
                OP_DICTIONARY => self.dictionary = Some(self.input.varint()?),
                OP_PUT => {
                    let (key_len, value_len) = (self.input.varint()?, self.input.varint()?);
                    let key = self.input.bytes(key_len)?;
                    let value = self.input.bytes(value_len)?;
                    return Ok(Operation::Put { dictionary: dictionary?, key, value });
                }
                OP_DELETE => {
                    let key_len = self.input.varint()?;
                    let key = self.input.bytes(key_len)?;
                    return Ok(Operation::Delete { dictionary: dictionary?, key });
                }
                OP_UPDATE => {
                    let (key_len, argument_len) = (self.input.varint()?, self.input.varint()?);
                    let key = self.input.bytes(key_len)?;
                    let argument = self.input.bytes(argument_len)?;
                    return Ok(Operation::Update { dictionary: dictionary?, key, argument });
                }
                OP_CREATE => {
                    let dictionary = self.input.varint()?;
                    let options = decode_options(self.input.array()?)?;
                    return Ok(Operation::Create { dictionary, options });
                }
                OP_DROP => return Ok(Operation::Drop { dictionary: self.input.varint()? }),
                OP_RESHAPE => {
                    let dictionary = self.input.varint()?;
                    let options = decode_options(self.input.array()?)?;
                    return Ok(Operation::Reshape { dictionary, options });
                }
                OP_NOTE => {
                    let len = self.input.varint()?;
                    return Ok(Operation::Note { note: self.input.bytes(len)? });
                }
                OP_ADOPT => {
                    let dictionary = self.input.varint()?;
                    let options = decode_options(self.input.array()?)?;
                    return Ok(Operation::Adopt { dictionary, options });
                }
                OP_TOMBSTONE => return self.tombstone(),
                _ => return Err(Malformed("an unknown operation")),
            }
        }
    }
}

impl<'a> Operations<'a> {
    fn tombstone(&mut self) -> Result<Operation<'a>, Malformed> {
        let dictionary = self.input.varint()?;
        let mut bytes = || {
            let len = self.input.varint()?;
            self.input.bytes(len)
        };
        let (part, lower) = (bytes()?, bytes()?);
        let upper = match self.input.byte()? {
            0 => None,
            1 => {
                let len = self.input.varint()?;
                Some(self.input.bytes(len)?)
            }
            _ => return Err(Malformed("an end that this program does not know")),
        };
        Ok(Operation::Tombstone { dictionary, part, lower, upper })
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.input.0.is_empty() {
            return None;
        }
        let operation = self.read();
        if operation.is_err() {
            self.input = Input(&[]);
        }
        Some(operation)
    }
}

pub(crate) fn encode_options(options: &DictionaryOptions) -> [u8; OPTIONS_BYTES] {
    let (codec, level) = match options.compression {
        Compression::None => (0, 0),
        Compression::Lz4 => (1, 0),
        Compression::Zlib(level) => (2, level),
        Compression::ZstdDefault => (3, 0),
        Compression::Zstd(level) => (3, level),
    };
    let mut out = [0; OPTIONS_BYTES];
    out[0] = codec;
    out[1] = level;
    out[2..6].copy_from_slice(&options.page_size.to_le_bytes());
    out[6..10].copy_from_slice(&options.read_page_size.to_le_bytes());
    out[10..12].copy_from_slice(&options.fanout.to_le_bytes());
    out[12] = u8::from(options.leaf_filter);
    debug_assert_eq!(decode_options(&out), Ok(*options), "options read as they were written");
    out
}

pub(crate) fn decode_options(bytes: &[u8; OPTIONS_BYTES]) -> Result<DictionaryOptions, Malformed> {
    let compression = match (bytes[0], bytes[1]) {
        (0, 0) => Compression::None,
        (1, 0) => Compression::Lz4,
        (2, level) => Compression::Zlib(level),
        (3, 0) => Compression::ZstdDefault,
        (3, level) => Compression::Zstd(level),
        _ => return Err(Malformed("an unknown compression")),
    };
    if bytes[OPTIONS_BYTES - 1] != 0 {
        return Err(Malformed("an option this program does not know"));
    }
    let mut input = Input(&bytes[2..]);
    Ok(DictionaryOptions {
        compression,
        page_size: u32::from_le_bytes(*input.array()?),
        read_page_size: u32::from_le_bytes(*input.array()?),
        fanout: u16::from_le_bytes(*input.array()?),
        leaf_filter: match bytes[12] {
            0 => false,
            1 => true,
            _ => return Err(Malformed("an unknown leaf filter")),
        },
    })
}

#[inline]
pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that are read from the front.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn bytes(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed("a length beyond memory"))?;
        let (first, rest) = self.0.split_at_checked(len).ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed("a number beyond 64 bits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Vec<Operation<'static>> {
        let options = DictionaryOptions {
            compression: Compression::Zlib(6),
            page_size: 1 << 18,
            read_page_size: 8192,
            fanout: 16,
            leaf_filter: true,
        };
        vec![
            Operation::Create { dictionary: 300, options },
            Operation::Put { dictionary: 1, key: b"a", value: b"first" },
            Operation::Put { dictionary: 1, key: b"", value: b"" },
            Operation::Delete { dictionary: 300, key: b"gone" },
            Operation::Put { dictionary: 300, key: b"k", value: &[7; 200] },
            Operation::Drop { dictionary: 2 },
            Operation::Reshape { dictionary: 300, options: DictionaryOptions::default() },
        ]
    }

    fn sample_with_notes() -> Vec<Operation<'static>> {
        let notes = [Operation::Note { note: b"told" }, Operation::Note { note: b"" }];
        sample().into_iter().chain(notes).collect()
    }

    const PLACE: HistoryHead = HistoryHead {
        time: 7 << 32 | 1,
        span: 300,
        is_client_transaction: true,
        first_chunk: 4096,
    };

    fn record(operations: Vec<Operation<'_>>, history: Option<HistoryHead>) -> Vec<u8> {
        let mut encoder = Encoder::default();
        for operation in operations {
            encoder.write(operation);
        }
        let mut record = commit_head(9, 77, 2, history).bytes().to_vec();
        record.extend_from_slice(&encoder.take());
        record
    }

    fn encoded() -> Vec<u8> {
        record(sample(), None)
    }

    fn with_adoption() -> Vec<u8> {
        let options = DictionaryOptions::default();
        let adopted = Operation::Adopt { dictionary: 301, options };
        record(vec![adopted, Operation::Put { dictionary: 301, key: b"k", value: b"v" }], None)
    }

    fn with_history() -> Vec<u8> {
        record(sample_with_notes(), Some(PLACE))
    }

    #[test]
    fn what_is_written_is_read() {
        let record = encoded();
        let Ok(Record::Commit { txn: 9, timestamp: 77, chunks: 2, history: None, operations }) =
            Record::decode(&record)
        else {
            panic!("not a commit: {:?}", Record::decode(&record));
        };
        let read: Result<Vec<_>, _> = Operations::new(operations).collect();
        assert_eq!(read.unwrap(), sample());
        let record = with_history();
        let Ok(Record::Commit { history: Some(PLACE), operations, .. }) = Record::decode(&record)
        else {
            panic!("no history: {:?}", Record::decode(&record));
        };
        let read: Result<Vec<_>, _> = Operations::new(operations).collect();
        assert_eq!(read.unwrap(), sample_with_notes());
    }

    #[test]
    fn operations_go_on_where_they_stopped() {
        let record = with_history();
        let Ok(Record::Commit { operations, .. }) = Record::decode(&record) else {
            panic!("not a commit");
        };
        let (mut place, mut read) = ((0, None), Vec::new());
        loop {
            let mut rest = Operations::at(operations, place);
            let Some(operation) = rest.next() else { break };
            read.push(operation.unwrap());
            place = rest.place(operations);
        }
        assert_eq!(read, sample_with_notes());
    }

    #[test]
    fn place_in_the_history_that_cannot_be_is_refused() {
        let good = with_history();
        for (at, to) in [(24, 2), (33, 0)] {
            let mut bad = good.clone();
            bad[at] = to;
            // The span takes two bytes here: the second one goes with the first.
            if at == 33 {
                bad.remove(34);
            }
            assert!(Record::decode(&bad).is_err(), "byte {at} set to {to}");
        }
        let late = HistoryHead { time: u64::MAX - 1, span: 2, ..PLACE };
        let mut bytes = record(Vec::new(), Some(HistoryHead { time: 1, ..late }));
        bytes[25..33].copy_from_slice(&late.time.to_le_bytes());
        assert!(Record::decode(&bytes).is_err(), "times behind the last one");
    }

    #[test]
    fn golden_commit_record_is_read_and_written_the_same() {
        let golden =
            testkit::golden(env!("CARGO_MANIFEST_DIR"), "commit-record.v2.bin", &encoded());
        assert!(matches!(Record::decode(&golden), Ok(Record::Commit { timestamp: 77, .. })));
        let golden =
            testkit::golden(env!("CARGO_MANIFEST_DIR"), "commit-record.v3.bin", &with_history());
        let read = Record::decode(&golden);
        assert!(matches!(read, Ok(Record::Commit { history: Some(PLACE), .. })), "{read:?}");
        let here = env!("CARGO_MANIFEST_DIR");
        let golden = testkit::golden(here, "commit-record-adopt.v2.bin", &with_adoption());
        let Ok(Record::Commit { operations, .. }) = Record::decode(&golden) else {
            panic!("not a commit");
        };
        let first = Operations::new(operations).next();
        let is_adopted = matches!(first, Some(Ok(Operation::Adopt { dictionary: 301, .. })));
        assert!(is_adopted, "{first:?}");
    }

    #[test]
    fn golden_update_is_read_and_written_the_same() {
        let updates = vec![
            Operation::Update { dictionary: 300, key: b"k", argument: b"how it changes" },
            Operation::Update { dictionary: 300, key: b"", argument: &[7; 200] },
        ];
        let bytes = record(updates.clone(), Some(PLACE));
        let golden =
            testkit::golden(env!("CARGO_MANIFEST_DIR"), "commit-record-update.v3.bin", &bytes);
        let Ok(Record::Commit { operations, .. }) = Record::decode(&golden) else {
            panic!("not a commit");
        };
        let read: Result<Vec<_>, _> = Operations::new(operations).collect();
        assert_eq!(read.unwrap(), updates);
    }

    #[test]
    fn chunk_and_abort_heads_are_read() {
        for has_history in [false, true] {
            let mut chunk = chunk_head(5, 3, has_history).to_vec();
            chunk.extend_from_slice(b"xyz");
            let expected = Record::Chunk { txn: 5, number: 3, operations: b"xyz" };
            assert_eq!(Record::decode(&chunk), Ok(expected));
        }
        assert_eq!(Record::decode(&abort_record(6)), Ok(Record::Abort { txn: 6 }));
    }

    const ENTRY_HEAD: EntryHead = EntryHead {
        index: 12,
        term: 3,
        kind: EntryKind::Configuration,
        first_timestamp: 70,
        last_timestamp: 77,
        last_time: 7 << 32 | 3,
        committed: 11,
        bytes: 4096,
        checksum: 0x1234_5678,
    };
    const TAIL_CUT: Cut = Cut { index: 12, timestamp: 69, from: 8192 };

    #[test]
    fn golden_tombstone_record_is_read_and_written_the_same() {
        let operations = vec![
            Operation::Tombstone { dictionary: 300, part: b"", lower: b"", upper: None },
            Operation::Tombstone { dictionary: 8, part: b"part", lower: b"a", upper: Some(b"z") },
            Operation::Put { dictionary: 8, key: b"k", value: b"v" },
        ];
        let bytes = record(operations.clone(), None);
        let golden = testkit::golden(env!("CARGO_MANIFEST_DIR"), "tombstone-record.v2.bin", &bytes);
        assert_eq!(golden, bytes);
        let Ok(Record::Commit { operations: encoded, .. }) = Record::decode(&golden) else {
            panic!("not a commit");
        };
        let read: Result<Vec<_>, _> = Operations::new(encoded).collect();
        assert_eq!(read.unwrap(), operations);
        // Where an operation ends.
        for end in (1..encoded.len()).filter(|end| ![6, 18].contains(end)) {
            let read: Result<Vec<_>, _> = Operations::new(&encoded[..end]).collect();
            assert!(read.is_err(), "cut at {end}");
        }
    }

    #[test]
    fn golden_entry_and_cut_records_are_read_and_written_the_same() {
        let here = env!("CARGO_MANIFEST_DIR");
        let bytes = entry_record(&ENTRY_HEAD, b"members");
        let golden = testkit::golden(here, "entry-record.v3.bin", &bytes);
        let entry = Record::Entry { head: ENTRY_HEAD, configuration: b"members" };
        assert_eq!(Record::decode(&golden), Ok(entry));
        let golden = testkit::golden(here, "cut-record.v3.bin", &cut_record(&TAIL_CUT));
        assert_eq!(Record::decode(&golden), Ok(Record::Cut(TAIL_CUT)));
        for kind in [EntryKind::Records, EntryKind::Fence] {
            let head = EntryHead { kind, first_timestamp: 78, ..ENTRY_HEAD };
            let entry = Record::Entry { head, configuration: b"" };
            assert_eq!(Record::decode(&entry_record(&head, b"")), Ok(entry), "without commits");
        }
    }

    #[test]
    fn entries_and_cuts_that_cannot_be_are_refused() {
        let entry = |at: usize, to: u8| {
            let mut bytes = entry_record(&ENTRY_HEAD, b"");
            bytes[at] = to;
            Record::decode(&bytes).is_err()
        };
        assert!(entry(1, VERSION) && entry(4, 3) && entry(8, 0) && entry(24, 90));
        let mut not_a_configuration = entry_record(&ENTRY_HEAD, b"x");
        not_a_configuration[4] = 0;
        assert!(Record::decode(&not_a_configuration).is_err());
        let cut = cut_record(&TAIL_CUT);
        assert!(Record::decode(&[&cut[..], b"x"].concat()).is_err());
        assert!(Record::decode(&cut[..31]).is_err());
        for len in 0..ENTRY_BYTES {
            assert!(Record::decode(&entry_record(&ENTRY_HEAD, b"")[..len]).is_err());
        }
    }

    #[test]
    fn position_of_chunks_is_not_sent() {
        let record = with_history();
        let sent = without_position(&Record::decode(&record).unwrap()).unwrap();
        let Ok(Record::Commit { history: Some(head), operations, .. }) = Record::decode(&sent)
        else {
            panic!("not a commit");
        };
        assert_eq!(head, HistoryHead { first_chunk: 0, ..PLACE });
        assert_eq!(Operations::new(operations).count(), sample_with_notes().len());
        assert!(without_position(&Record::decode(&sent).unwrap()).is_none());
    }

    #[test]
    fn unknown_version_is_refused() {
        let mut record = encoded();
        record[1] = HISTORY_VERSION + 1;
        assert!(Record::decode(&record).is_err());
    }

    proptest! {
        #[test]
        fn mutated_records_never_panic(history in any::<bool>(), at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut record = if history { with_history() } else { encoded() };
            let at = at.index(record.len());
            record[at] = to;
            record.truncate(cut.index(record.len() + 1));
            if let Ok(Record::Commit { operations, .. } | Record::Chunk { operations, .. }) = Record::decode(&record) {
                prop_assert!(Operations::new(operations).count() <= record.len());
            }
        }

        #[test]
        fn varints_survive(value in any::<u64>()) {
            let mut bytes = Vec::new();
            varint(&mut bytes, value);
            prop_assert_eq!(Input(&bytes).varint(), Ok(value));
        }
    }
}
