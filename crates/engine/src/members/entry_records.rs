//! The records of an entry of another member, as bytes that were read to their end once.
//!
//! Always true: what an [`EntryRecords`] says of its bytes it has read in them; they never change.

use crate::entry_bytes::EntryBytes;
use crate::records::{Operation, Operations, Record};
use crate::written::WrittenDictionaries;
use crate::{Error, Result};

/// The records of an entry, one after the other.
pub(super) struct Records<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Result<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self
            .0
            .split_first_chunk::<4>()
            .and_then(|(len, rest)| rest.split_at_checked(u32::from_le_bytes(*len) as usize));
        let Some((record, rest)) = record else {
            self.0 = &[];
            return Some(Err(wrong("a record ends behind the entry")));
        };
        self.0 = rest;
        Some(Ok(record))
    }
}

pub(super) fn wrong(what: &str) -> Error {
    Error::Corruption(format!("an entry that was sent: {what}").into())
}

/// The commits of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commits {
    /// Timestamp and first time of the first one.
    pub(super) first: (u64, u64),
    /// Timestamp and last time of the last one.
    pub(super) last: (u64, u64),
}

/// Records that [`crate::Engine::append_read_entry`] takes, where they come in their place. Clones share them.
#[derive(Clone, Debug)]
pub struct EntryRecords {
    bytes: EntryBytes,
    checksum: u32,
    /// `None` where there are none among them.
    commits: Option<Commits>,
    changes_dictionaries: bool,
    writes_to: WrittenDictionaries,
}

impl EntryRecords {
    /// Looks at each record.
    ///
    /// # Errors
    /// [`Error::Corruption`] where one cannot be read, or is none that an entry has.
    pub fn read(bytes: EntryBytes) -> Result<Self> {
        let checksum = crc32c::crc32c(&bytes);
        let writes_to = WrittenDictionaries::default();
        let mut records =
            Self { bytes, checksum, commits: None, changes_dictionaries: false, writes_to };
        let bytes = records.bytes.clone();
        for record in Records(&bytes) {
            let operations = match Record::decode(record?).map_err(malformed)? {
                Record::Commit { timestamp, chunks, history: Some(place), operations, .. } => {
                    if chunks > 0 {
                        // They may be of an entry before this one.
                        records.writes_to = WrittenDictionaries::Unknown;
                    }
                    records.take_commit(timestamp, (place.time, place.last_time()))?;
                    operations
                }
                Record::Chunk { operations, .. } => operations,
                Record::Abort { .. } => continue,
                Record::Commit { history: None, .. } | Record::Entry { .. } | Record::Cut(_) => {
                    return Err(wrong("a record of another kind"));
                }
            };
            for operation in Operations::new(operations) {
                let operation = operation.map_err(malformed)?;
                if let Operation::Put { dictionary, .. }
                | Operation::Delete { dictionary, .. }
                | Operation::Update { dictionary, .. } = operation
                {
                    records.writes_to.add(dictionary);
                }
                records.changes_dictionaries |= changes_dictionaries(&operation)?;
            }
        }
        Ok(records)
    }

    fn take_commit(&mut self, timestamp: u64, (first, last): (u64, u64)) -> Result<()> {
        let Some(commits) = &mut self.commits else {
            self.commits = Some(Commits { first: (timestamp, first), last: (timestamp, last) });
            return Ok(());
        };
        let follows = timestamp == commits.last.0.saturating_add(1);
        if !follows || first <= commits.last.1 {
            return Err(wrong("a commit is out of order"));
        }
        commits.last = (timestamp, last);
        Ok(())
    }

    /// Whether they can be those of an entry that ends with this commit, or the one before it where they have none.
    pub fn end_with(&self, last_timestamp: u64, last_time: u64) -> bool {
        self.commits.is_none_or(|commits| commits.last == (last_timestamp, last_time))
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> &EntryBytes {
        &self.bytes
    }

    /// The crc32c of their bytes.
    pub(super) fn checksum(&self) -> u32 {
        self.checksum
    }

    pub(super) fn commits(&self) -> Option<&Commits> {
        self.commits.as_ref()
    }

    /// To which dictionaries' keys they write.
    pub(super) fn writes_to(&self) -> &WrittenDictionaries {
        &self.writes_to
    }

    /// Whether any of them does something to a dictionary as a whole.
    pub(super) fn change_dictionaries(&self) -> bool {
        self.changes_dictionaries
    }
}

fn malformed(_: crate::records::Malformed) -> Error {
    wrong("a record cannot be read")
}

/// Whether an operation does something to a dictionary as a whole; fails where no entry has it.
fn changes_dictionaries(operation: &Operation<'_>) -> Result<bool> {
    match operation {
        Operation::Create { options, .. } | Operation::Reshape { options, .. } => {
            crate::options::validate(*options)
                .map(|_| true)
                .map_err(|_| wrong("the shape of a dictionary"))
        }
        Operation::Adopt { .. } => Err(wrong("a dictionary that is not in the log")),
        Operation::Drop { .. } | Operation::Tombstone { .. } => Ok(true),
        Operation::Put { .. }
        | Operation::Delete { .. }
        | Operation::Update { .. }
        | Operation::Note { .. } => Ok(false),
    }
}
