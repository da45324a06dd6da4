//! What a member of a set does with its log: closing entries, appending those of a leader, reading them, and
//! overwriting a tail.
//!
//! Always true:
//! 1. Entries follow each other: index by one, terms and commits ascending.
//! 2. What a follower appends is checked first: its checksum, its order, each record. Where any of it cannot
//!    be, nothing is appended.
//! 3. None of it makes a commit visible: [`Engine::committed`] does.
//!
//! The bytes of an entry are its records, each behind its length as u32, without positions of chunks, which
//! are of one log only.

mod apply;

use crate::commit_order::CommitOrder;
use crate::entries::{Entry, EntryId, OpenEntry};
use crate::environment::Environment;
use crate::records::{self, EntryHead, EntryKind, Record};
use crate::{Engine, Error, Result, Timestamp};
use std::borrow::Cow;
use wal::LiveReader;

/// The longest entry that is appended or read as one.
pub const MAX_ENTRY_BYTES: u64 = 1 << 30;

/// The entries that a member's log holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryBounds {
    /// The entry before the first that is known.
    pub before: EntryId,
    /// The first whose records can be read; above the last where there is none.
    pub first_readable: u64,
    /// The last one.
    pub last: EntryId,
}

impl Engine {
    /// Closes what was appended since the last entry by an entry, which is in the log then, and on disk after
    /// [`Engine::sync`]. `None` for [`EntryKind::Records`] where there is nothing. `committed` is the index
    /// that is known to be committed; a configuration has bytes, other entries have none.
    ///
    /// # Errors
    /// The index does not follow, or the engine shows every complete commit.
    pub fn close_entry(
        &self,
        (term, index): (u64, u64),
        kind: EntryKind,
        configuration: &[u8],
        committed: u64,
    ) -> Result<Option<EntryHead>> {
        self.environment().close_entry((term, index), kind, configuration, committed)
    }

    /// Appends an entry of the leader: its records, then itself. Its commits are complete when this returns,
    /// and on disk after [`Engine::sync`]. Nobody else writes.
    ///
    /// # Errors
    /// [`Error::Corruption`] where the bytes are not what the head says: nothing is appended.
    pub fn append_entry(
        &self,
        head: &EntryHead,
        configuration: &[u8],
        records: &[u8],
    ) -> Result<()> {
        self.environment().append_entry(head, configuration, records)
    }

    /// An entry with its configuration and its records, as they are sent to other members. Reads the disk.
    ///
    /// # Errors
    /// [`Error::HistoryLost`] where the log does not hold it.
    pub fn read_entry(&self, index: u64) -> Result<(EntryHead, Vec<u8>, Vec<u8>)> {
        self.environment().read_entry(index)
    }

    /// Which entries there are.
    pub fn entries(&self) -> EntryBounds {
        let order = self.environment().commits.order.lock();
        let last = order.entries.last();
        let readable = order.entries.iter().find(|entry| entry.start.is_some());
        let first_readable = readable.map_or(last.index + 1, |entry| entry.head.index);
        EntryBounds { before: order.entries.before(), first_readable, last }
    }

    /// Term and last commit of an entry that is known.
    pub fn entry(&self, index: u64) -> Option<EntryId> {
        self.environment().commits.order.lock().entries.id_of(index)
    }

    /// Makes void all entries from `index` on, and what is not closed by one: consensus has others. Nobody
    /// writes meanwhile, and nobody reads what is not visible. On disk when this returns.
    ///
    /// # Errors
    /// The index is not known. [`Error::Stopped`] where commits that a majority has would be void: the set's
    /// promise was broken.
    pub fn cut(&self, index: u64) -> Result<()> {
        let last = index.checked_sub(1).and_then(|last| self.entry(last));
        let Some(last) = last else {
            return Err(Error::InvalidOption(format!("entry {index} does not follow a known one")));
        };
        self.environment().forget_after(last.timestamp, index)
    }

    /// Makes void all commits above `timestamp`, as [`Engine::cut`] does, where there are no entries.
    pub fn forget_after(&self, timestamp: Timestamp) -> Result<()> {
        let index = {
            let order = self.environment().commits.order.lock();
            order.entries.last_up_to(timestamp.0).index + 1
        };
        self.environment().forget_after(timestamp.0, index)
    }
}

impl Environment {
    fn close_entry(
        &self,
        (term, index): (u64, u64),
        kind: EntryKind,
        configuration: &[u8],
        committed: u64,
    ) -> Result<Option<EntryHead>> {
        if !self.snapshots.holds_back() {
            return Err(Error::InvalidOption("every complete commit is shown".to_owned()));
        }
        let is_configuration = kind == EntryKind::Configuration;
        if configuration.len() > records::MAX_CONFIGURATION_BYTES
            || is_configuration == configuration.is_empty()
        {
            return Err(Error::InvalidOption(
                "a configuration has bytes, within bounds".to_owned(),
            ));
        }
        loop {
            let mut order = self.commits.order.lock();
            let last = order.entries.last();
            let open = order.open;
            if kind == EntryKind::Records && open.start.is_none() {
                return Ok(None);
            }
            if index != last.index + 1 || term < last.term {
                let text = format!("entry {index} of term {term} follows {last:?}");
                return Err(Error::InvalidOption(text));
            }
            let head = EntryHead {
                index,
                term,
                kind,
                first_timestamp: last.timestamp + 1,
                last_timestamp: order.newest,
                last_time: order.time,
                committed,
                bytes: open.bytes,
                checksum: open.checksum,
            };
            let record = records::entry_record(&head, configuration);
            let priority = wal::Priority::Ordinary;
            let appended = self.log.wal().try_append(&[&record], priority);
            if let Some(behind) = self.health.check(appended)? {
                let end = behind - wal::format::frame_bytes(record.len()) as u64;
                let start = Some(open.start.unwrap_or(end));
                order.open = OpenEntry::default();
                let follows = order.entries.push(Entry { head, start, end, behind });
                debug_assert!(follows, "entries follow each other");
                self.after_fence(&mut order, kind);
                return Ok(Some(head));
            }
            drop(order);
            self.health.check(self.log.wal().make_room(record.len(), priority))?;
        }
    }

    /// With a new term, a transaction of another leader whose commit has not come yet will never be.
    fn after_fence(&self, order: &mut CommitOrder, kind: EntryKind) {
        if kind == EntryKind::Fence {
            let mut needed = self.log.needed.lock();
            for (txn, first) in std::mem::take(&mut order.chunked) {
                needed.chunks_end(txn, first, None);
            }
        }
    }

    fn read_entry(&self, index: u64) -> Result<(EntryHead, Vec<u8>, Vec<u8>)> {
        let wal = self.log.wal();
        let found = {
            let mut order = self.commits.order.lock();
            order.entries.trim(wal.first_lsn());
            order.entries.get(index).copied()
        };
        let Some(Entry { head, start: Some(start), end, behind }) = found else {
            return Err(Error::HistoryLost);
        };
        if head.bytes > MAX_ENTRY_BYTES {
            return Err(Error::InvalidOption(format!("entry {index} is too long")));
        }
        if wal.synced_lsn() < behind {
            self.log.sync_to(behind)?;
        }
        let mut reader = LiveReader::at(start);
        let (mut bytes, mut configuration) = (Vec::new(), Vec::new());
        while let Some(record) = lost(reader.next_record(wal, behind))? {
            let decoded = Record::decode(record.payload);
            let decoded = decoded.map_err(|e| Error::in_record(record.lsn, e))?;
            if record.lsn >= end {
                if let Record::Entry { configuration: found, .. } = decoded {
                    configuration = found.to_vec();
                }
                break;
            }
            // A part that was overwritten before the rest was closed.
            if self.is_void(record.lsn) {
                continue;
            }
            let sent = records::without_position(&decoded);
            let sent = sent.map_or(Cow::Borrowed(record.payload), Cow::Owned);
            let len = u32::try_from(sent.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(&sent);
        }
        if bytes.len() as u64 != head.bytes || crc32c::crc32c(&bytes) != head.checksum {
            let text = format_args!("entry {index} does not have the records it was closed with");
            return Err(Error::in_record(start, text));
        }
        Ok((head, configuration, bytes))
    }
}

/// What the log has let go of is lost.
fn lost<T>(result: wal::Result<T>) -> Result<T> {
    result.map_err(|error| match error {
        wal::Error::Missing { .. } => Error::HistoryLost,
        other => other.into(),
    })
}
