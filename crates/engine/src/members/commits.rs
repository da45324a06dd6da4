//! What the commits of an entry did, for who keeps some of it in memory and has not made them himself.
//!
//! Always true: commits are told in their order, each with all that it did, visible or not.

use super::entry_records::{Records, wrong};
use super::lost;
use crate::environment::Environment;
use crate::records::{Operation, Operations, Record};
use crate::written::WrittenDictionaries;
use crate::{DictionaryId, Engine, Error, Result, Timestamp};
use wal::LiveReader;

/// One thing that is told of an entry's commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitStep<'a> {
    /// The commit that ends with the next [`CommitStep::End`] gave a key a value, or deleted it (`None`).
    Write {
        /// In which dictionary.
        dictionary: DictionaryId,
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: Option<&'a [u8]>,
    },
    /// It changed a key's value by an update with this argument.
    Update {
        /// In which dictionary.
        dictionary: DictionaryId,
        /// The key.
        key: &'a [u8],
        /// What the update is told.
        argument: &'a [u8],
    },
    /// That was all of this commit.
    End(Timestamp),
}

impl Engine {
    /// The dictionaries to whose keys the commits of an entry have written, where that is known: of an entry of another
    /// member that is one of the newest.
    pub fn written_dictionaries(
        &self,
        index: u64,
    ) -> Option<impl ExactSizeIterator<Item = DictionaryId> + use<>> {
        match self.environment().commits.order.lock().open.written_dictionaries(index) {
            WrittenDictionaries::Known(known) => Some(known.into_iter().map(DictionaryId)),
            WrittenDictionaries::Unknown => None,
        }
    }

    /// Tells what the commits of an entry did. Reads the disk, and waits for it, where the entry is none of the
    /// newest or has a large transaction.
    ///
    /// # Errors
    /// [`Error::HistoryLost`] where the log does not hold it; and what `tell` answers.
    pub fn each_commit(
        &self,
        index: u64,
        tell: &mut dyn FnMut(CommitStep<'_>) -> Result<()>,
    ) -> Result<()> {
        let records = self.entry_records(index)?;
        for record in Records(&records) {
            let record = record?;
            let decoded = Record::decode(record).map_err(|_| wrong("a record cannot be read"))?;
            let Record::Commit { timestamp, chunks, operations, .. } = decoded else { continue };
            if chunks > 0 {
                self.environment().each_chunk(index, timestamp, tell)?;
            }
            each_write(operations, tell)?;
            tell(CommitStep::End(Timestamp(timestamp)))?;
        }
        Ok(())
    }
}

impl Environment {
    /// Tells what stands in the chunks of a commit of an entry.
    fn each_chunk(
        &self,
        index: u64,
        timestamp: u64,
        tell: &mut dyn FnMut(CommitStep<'_>) -> Result<()>,
    ) -> Result<()> {
        let entry = self.commits.order.lock().entries.get(index).copied();
        let entry = entry.ok_or(Error::HistoryLost)?;
        let wal = self.log.wal();
        if wal.synced_lsn() < entry.until {
            self.log.sync_to(entry.until)?;
        }
        let mut reader = LiveReader::at(entry.start);
        while let Some(record) = lost(reader.next_record(wal, entry.until))? {
            let decoded = Record::decode(record.payload);
            let decoded = decoded.map_err(|e| Error::in_record(record.lsn, e))?;
            if let Record::Commit { txn, timestamp: of, history: Some(head), .. } = decoded
                && of == timestamp
            {
                let (until, mut chunks) = (record.lsn, LiveReader::at(head.first_chunk));
                while let Some(chunk) = lost(chunks.next_record(wal, until))? {
                    if self.is_void(chunk.lsn) {
                        continue;
                    }
                    let decoded = Record::decode(chunk.payload);
                    match decoded.map_err(|e| Error::in_record(chunk.lsn, e))? {
                        Record::Chunk { txn: of, operations, .. } if of == txn => {
                            each_write(operations, tell)?;
                        }
                        _ => {}
                    }
                }
                return Ok(());
            }
        }
        Err(Error::in_record(entry.start, "a commit of an entry is missing"))
    }
}

fn each_write(operations: &[u8], tell: &mut dyn FnMut(CommitStep<'_>) -> Result<()>) -> Result<()> {
    for operation in Operations::new(operations) {
        let (dictionary, key, value) =
            match operation.map_err(|_| wrong("a record cannot be read"))? {
                Operation::Put { dictionary, key, value } => (dictionary, key, Some(value)),
                Operation::Delete { dictionary, key } => (dictionary, key, None),
                Operation::Update { dictionary, key, argument } => {
                    let dictionary = DictionaryId(dictionary);
                    tell(CommitStep::Update { dictionary, key, argument })?;
                    continue;
                }
                _ => continue,
            };
        tell(CommitStep::Write { dictionary: DictionaryId(dictionary), key, value })?;
    }
    Ok(())
}
