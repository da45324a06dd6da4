//! Reading the history: commits in their order, from a time on, as far as they are durable.
//!
//! Always true: a tail gives each commit once, in order, and none that a crash could take back. Where
//! the log no longer holds what comes next, it fails with [`Error::HistoryLost`]: nothing is left out
//! silently. What it holds of a commit in memory is one record.

use super::History;
use crate::records::{HistoryHead, Operation, Operations, Record};
use crate::{Cause, DictionaryId, Error, Result, Timestamp};
use std::sync::Arc;
use wal::LiveReader;

/// A place in the history.
pub struct HistoryTail {
    history: Arc<History>,
    reader: LiveReader,
    /// Commits up to here were given, or are not asked for.
    time: u64,
    /// Up to this position everything is known to be durable.
    durable_end: u64,
}

/// One commit, as the history has it.
pub struct HistoryCommit {
    history: Arc<History>,
    txn: u64,
    chunks: u32,
    first_chunk: u64,
    position: u64,
    /// Its number.
    pub timestamp: Timestamp,
    /// The first of its cluster times.
    pub time: u64,
    /// How many it takes.
    pub span: u32,
    /// It is a client's transaction.
    pub is_client_transaction: bool,
    /// Its operations; of a large one those that follow its chunks.
    operations: Vec<u8>,
}

/// One thing a commit did. What it did to dictionaries as such is not told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HistoryOperation<'a> {
    /// A key was written.
    Put {
        /// In which dictionary.
        dictionary: DictionaryId,
        /// The key.
        key: &'a [u8],
        /// What it holds since.
        value: &'a [u8],
    },
    /// A key was deleted.
    Delete {
        /// In which dictionary.
        dictionary: DictionaryId,
        /// The key.
        key: &'a [u8],
    },
    /// A key's value was changed by an update.
    Update {
        /// In which dictionary.
        dictionary: DictionaryId,
        /// The key.
        key: &'a [u8],
        /// What the update was told.
        argument: &'a [u8],
    },
    /// What was noted beside the writes.
    Note(&'a [u8]),
}

/// The operations of a commit, one after the other: puts and deletes by dictionary and key, then notes
/// in the order in which they were made.
pub struct HistoryOperations<'a> {
    commit: &'a HistoryCommit,
    /// Where the next chunk is looked for.
    reader: LiveReader,
    /// Chunks that were read.
    chunks: u32,
    /// The operations of the chunk in use; `None` where it is the commit record's.
    chunk: Option<Vec<u8>>,
    /// Where in them the next one is.
    place: (usize, Option<u64>),
    position: u64,
}

impl HistoryTail {
    pub(super) fn new(history: &Arc<History>, reader: LiveReader, time: u64) -> Self {
        Self { history: Arc::clone(history), reader, time, durable_end: 0 }
    }

    /// The next commit, `None` where there is none yet. Reads the disk.
    ///
    /// # Errors
    /// [`Error::HistoryLost`] where the log no longer holds it.
    #[expect(clippy::should_implement_trait, reason = "it can fail, and goes on after the end")]
    pub fn next(&mut self) -> Result<Option<HistoryCommit>> {
        self.next_before(u64::MAX)
    }

    /// As [`HistoryTail::next`], and reads about `bytes` of log at most: `None` also where no commit
    /// was among them. [`HistoryTail::is_at_end`] tells the two apart.
    pub fn next_within(&mut self, bytes: u64) -> Result<Option<HistoryCommit>> {
        self.next_before(self.reader.position().saturating_add(bytes))
    }

    fn next_before(&mut self, most: u64) -> Result<Option<HistoryCommit>> {
        let history = Arc::clone(&self.history);
        let wal = history.log.wal();
        while self.reader.position() < most {
            if self.reader.position() >= self.durable_end {
                self.durable_end = self.history.times.durable().end;
            }
            let record = match self.reader.next_record(wal, self.durable_end) {
                // Its place went; where only that went which it has seen, or what was no commit, it goes
                // on behind.
                Err(wal::Error::Missing { .. }) => {
                    self.reader = self.history.place_again(self.time)?;
                    continue;
                }
                record => record?,
            };
            let Some(record) = record else { return Ok(None) };
            let position = record.lsn;
            if history.is_void(position) {
                continue;
            }
            let damaged = |e| Error::in_record(position, e);
            match Record::decode(record.payload).map_err(damaged)? {
                Record::Commit { txn, timestamp, chunks, history: Some(head), operations } => {
                    if head.last_time() <= self.time {
                        continue;
                    }
                    self.time = head.last_time();
                    let HistoryHead { time, span, is_client_transaction, first_chunk } = head;
                    return Ok(Some(HistoryCommit {
                        history: Arc::clone(&self.history),
                        txn,
                        chunks,
                        first_chunk,
                        position,
                        timestamp: Timestamp(timestamp),
                        time,
                        span,
                        is_client_transaction,
                        operations: operations.to_vec(),
                    }));
                }
                // Written while no history was kept.
                Record::Commit { history: None, .. } => return Err(Error::HistoryLost),
                Record::Chunk { .. }
                | Record::Abort { .. }
                | Record::Entry { .. }
                | Record::Cut(_) => {}
            }
        }
        Ok(None)
    }

    /// Whether it has given everything that is durable by now.
    pub fn is_at_end(&self) -> bool {
        self.reader.position() >= self.history.times.durable().end
    }

    /// Everything up to this time was given, or was not asked for.
    pub fn position(&self) -> u64 {
        self.time
    }

    /// Gives memory and file back; the next read opens the file again.
    pub fn park(&mut self) {
        self.reader.park();
    }

    /// Bytes of memory that it holds.
    pub fn memory_bytes(&self) -> u64 {
        self.reader.memory_bytes() as u64
    }
}

impl HistoryCommit {
    /// The last of its cluster times.
    pub fn last_time(&self) -> u64 {
        self.time.saturating_add(u64::from(self.span).saturating_sub(1))
    }

    /// Whether its operations are in the log alone, in pieces: reading them reads the disk.
    pub fn is_large(&self) -> bool {
        self.chunks > 0
    }

    /// Bytes of memory that it holds.
    pub fn memory_bytes(&self) -> u64 {
        self.operations.capacity() as u64
    }

    /// What it did. May be asked again.
    pub fn operations(&self) -> HistoryOperations<'_> {
        HistoryOperations {
            commit: self,
            reader: LiveReader::at(self.first_chunk),
            chunks: 0,
            chunk: (self.chunks > 0).then(Vec::new),
            place: (0, None),
            position: self.position,
        }
    }
}

impl HistoryOperations<'_> {
    /// The next operation, `None` behind the last. Reads the disk where the commit is large.
    ///
    /// # Errors
    /// [`Error::HistoryLost`] where the log no longer holds all of a large commit.
    #[expect(clippy::should_implement_trait, reason = "what it gives lives until the next call")]
    pub fn next(&mut self) -> Result<Option<HistoryOperation<'_>>> {
        loop {
            let from = self.place;
            let bytes = self.chunk.as_deref().unwrap_or(&self.commit.operations);
            let mut operations = Operations::at(bytes, from);
            let operation = operations.next().transpose();
            let operation = operation.map_err(|e| Error::in_record(self.position, e))?;
            self.place = operations.place(bytes);
            match operation {
                Some(
                    Operation::Create { .. }
                    | Operation::Drop { .. }
                    | Operation::Reshape { .. }
                    | Operation::Adopt { .. }
                    | Operation::Tombstone { .. },
                ) => {}
                // Read again, because what it borrows was borrowed in a turn of the loop.
                Some(_) => return self.told(from),
                None if self.chunk.is_none() => return Ok(None),
                None => self.next_chunk()?,
            }
        }
    }

    /// The operation at a place where there is one.
    fn told(&self, from: (usize, Option<u64>)) -> Result<Option<HistoryOperation<'_>>> {
        let bytes = self.chunk.as_deref().unwrap_or(&self.commit.operations);
        let operation = Operations::at(bytes, from).next().transpose();
        Ok(match operation.map_err(|e| Error::in_record(self.position, e))? {
            Some(Operation::Put { dictionary, key, value }) => {
                Some(HistoryOperation::Put { dictionary: DictionaryId(dictionary), key, value })
            }
            Some(Operation::Delete { dictionary, key }) => {
                Some(HistoryOperation::Delete { dictionary: DictionaryId(dictionary), key })
            }
            Some(Operation::Update { dictionary, key, argument }) => {
                let dictionary = DictionaryId(dictionary);
                Some(HistoryOperation::Update { dictionary, key, argument })
            }
            Some(Operation::Note { note }) => Some(HistoryOperation::Note(note)),
            _ => None,
        })
    }

    /// Reads on until the next chunk of the commit, or takes the commit record's own operations.
    fn next_chunk(&mut self) -> Result<()> {
        self.place = (0, None);
        if self.chunks == self.commit.chunks {
            self.chunk = None;
            self.position = self.commit.position;
            return Ok(());
        }
        let wal = self.commit.history.log.wal();
        loop {
            let record = lost(self.reader.next_record(wal, self.commit.position))?;
            let Some(record) = record else {
                let text = format_args!("chunk {} is missing", self.chunks);
                return Err(Error::in_record(self.commit.position, text));
            };
            let position = record.lsn;
            // Its entry may have been overwritten, and have come again.
            if self.commit.history.is_void(position) {
                continue;
            }
            match Record::decode(record.payload).map_err(|e| Error::in_record(position, e))? {
                Record::Chunk { txn, number, operations } if txn == self.commit.txn => {
                    if number != self.chunks {
                        let text = format_args!("chunk {number} is out of order");
                        return Err(Error::in_record(position, text));
                    }
                    self.chunk = Some(operations.to_vec());
                    self.position = position;
                    self.chunks += 1;
                    return Ok(());
                }
                _ => {}
            }
        }
    }
}

/// What the log has let go of is lost.
pub(super) fn lost<T>(result: wal::Result<T>) -> Result<T> {
    result.map_err(|error| match Error::from(error) {
        Error::Corruption(Cause::Log(wal::Error::Missing { .. })) => Error::HistoryLost,
        other => other,
    })
}

impl std::fmt::Debug for HistoryTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HistoryTail({})", self.time)
    }
}

impl std::fmt::Debug for HistoryCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HistoryCommit({}..={})", self.time, self.last_time())
    }
}
