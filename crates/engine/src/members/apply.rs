//! Appending a leader's entry: its records go into the log as they came, and its commits into the trees.
//!
//! Always true: all of an entry is checked before any of it is appended. Its commits are published in their
//! order; that nobody else writes meanwhile is the caller's word.

use super::pieces::Pieces;
use crate::chunk_lists::Chunked;
use crate::commit_order::CommitOrder;
use crate::entries::Entry;
use crate::environment::Environment;
use crate::open_records::NewRecord;
use crate::records::{self, EntryHead, EntryKind, HistoryHead, Operation, Operations, Record};
use crate::recovery::{Piece, each_needed};
use crate::times::Place;
use crate::{Error, Result};
use ftree::Message;

/// A follower appends whatever its leader says.
#[expect(clippy::unnecessary_wraps, reason = "others may refuse")]
fn any(_: &CommitOrder) -> Result<()> {
    Ok(())
}

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
pub(super) struct Commits {
    /// Timestamp and first time of the first one.
    first: (u64, u64),
    /// Timestamp and last time of the last one.
    pub(super) last: (u64, u64),
}

/// Looks at each record of an entry; `None` where there are no commits among them.
pub(super) fn commits_of(records: &[u8]) -> Result<Option<Commits>> {
    let mut commits: Option<Commits> = None;
    let malformed = |_| wrong("a record cannot be read");
    for record in Records(records) {
        let operations = match Record::decode(record?).map_err(malformed)? {
            Record::Commit { timestamp, history: Some(place), operations, .. } => {
                let last = (timestamp, place.last_time());
                match &mut commits {
                    Some(commits) => {
                        let follows = timestamp == commits.last.0.saturating_add(1);
                        if !follows || place.time <= commits.last.1 {
                            return Err(wrong("a commit is out of order"));
                        }
                        commits.last = last;
                    }
                    None => commits = Some(Commits { first: (timestamp, place.time), last }),
                }
                operations
            }
            Record::Chunk { operations, .. } => operations,
            Record::Abort { .. } => continue,
            Record::Commit { history: None, .. } | Record::Entry { .. } | Record::Cut(_) => {
                return Err(wrong("a record of another kind"));
            }
        };
        for operation in Operations::new(operations) {
            match operation.map_err(malformed)? {
                Operation::Create { options, .. } | Operation::Reshape { options, .. } => {
                    let shape = crate::options::validate(options);
                    shape.map_err(|_| wrong("the shape of a dictionary"))?;
                }
                Operation::Adopt { .. } => {
                    return Err(wrong("a dictionary that is not in the log"));
                }
                _ => {}
            }
        }
    }
    Ok(commits)
}

impl Environment {
    pub(super) fn append_entry(
        &self,
        head: &EntryHead,
        configuration: &[u8],
        records: &[u8],
    ) -> Result<()> {
        if !self.snapshots.holds_back() {
            return Err(Error::InvalidOption("every complete commit is shown".to_owned()));
        }
        self.check_entry(head, configuration, records)?;
        for record in Records(records) {
            self.append_record(record?)?;
        }
        let record = records::entry_record(head, configuration);
        let follows = self.commits.append_in_order(&[&record], any, |order, end, behind| {
            let part = order.open.first().map(|part| (part.start, part.until));
            let (start, until) = part.unwrap_or((end, end));
            order.open.close(head.index);
            super::after_fence(order, head);
            order.entries.push(Entry { head: *head, start, until, end, behind })
        })?;
        debug_assert!(follows, "that it follows was checked");
        Ok(())
    }

    /// Takes a record of an entry in, which is in the log now.
    fn take_in(&self, order: &mut CommitOrder, place: (u64, u64), record: &[u8]) {
        let newest = (order.newest, order.time);
        order.open.append(&NewRecord { place, pieces: &[record], newest, joins: true });
        self.log.set_entry_bytes(order.open.memory_bytes());
    }

    /// Fails where the entry does not follow what is there, or is not what its head says.
    fn check_entry(&self, head: &EntryHead, configuration: &[u8], records: &[u8]) -> Result<()> {
        let (last, newest, time, is_open) = {
            let order = self.commits.order.lock();
            (order.entries.last(), order.newest, order.time, !order.open.is_empty())
        };
        let follows = head.index == last.index.saturating_add(1) && head.term >= last.term;
        if !follows || is_open || head.first_timestamp != newest.saturating_add(1) {
            return Err(wrong("it does not follow what is there"));
        }
        let is_configuration = head.kind == EntryKind::Configuration;
        if is_configuration == configuration.is_empty()
            || configuration.len() > records::MAX_CONFIGURATION_BYTES
        {
            return Err(wrong("its configuration"));
        }
        if records.len() as u64 != head.bytes || crc32c::crc32c(records) != head.checksum {
            return Err(wrong("its checksum"));
        }
        if (head.kind == EntryKind::Records) == records.is_empty() {
            return Err(wrong("it has records, or none, against its kind"));
        }
        let Some(commits) = commits_of(records)? else {
            let is_same = (head.last_timestamp, head.last_time) == (newest, time);
            return if is_same { Ok(()) } else { Err(wrong("its last commit")) };
        };
        if commits.first.0 != newest.saturating_add(1) || commits.first.1 <= time {
            return Err(wrong("a commit is out of order"));
        }
        if commits.last != (head.last_timestamp, head.last_time) {
            return Err(wrong("its last commit"));
        }
        Ok(())
    }

    fn append_record(&self, record: &[u8]) -> Result<()> {
        let malformed = |_| wrong("a record cannot be read");
        match Record::decode(record).map_err(malformed)? {
            Record::Chunk { txn, number, .. } => {
                self.live.taken_below(txn.saturating_add(1));
                self.commits.append_in_order(&[record], any, |order, position, end| {
                    self.take_in(order, (position, end), record);
                    if number == 0 {
                        self.log.needed.lock().chunk(txn, position);
                        order.chunked.begin(txn, Chunked { first: position, fence: None });
                    }
                })
            }
            Record::Abort { txn } => {
                self.commits.append_in_order(&[record], any, |order, position, end| {
                    self.take_in(order, (position, end), record);
                    if let Some(first) = order.chunked.end(txn) {
                        self.log.needed.lock().chunks_end(txn, first, None);
                    }
                })
            }
            Record::Commit { txn, timestamp, chunks, history: Some(history), operations } => {
                self.live.taken_below(txn.saturating_add(1));
                self.schedule.make_room_for_entries(operations.len() as u64)?;
                let chunked = self.commits.order.lock().chunked.newest(txn);
                let chunked = chunked.filter(|chunked| chunks > 0 && chunked.fence.is_none());
                let first = chunked.map(|chunked| chunked.first);
                if chunks > 0 && first.is_none() {
                    return Err(wrong("chunks of a commit are missing"));
                }
                let history = HistoryHead { first_chunk: first.unwrap_or(0), ..history };
                let own = records::commit_head(txn, timestamp, chunks, Some(history));
                let pieces = [own.bytes(), operations];
                let position =
                    self.commits.append_in_order(&pieces, any, |order, position, end| {
                        order.newest = timestamp;
                        order.time = history.last_time();
                        self.take_in(order, (position, end), record);
                        if let Some(kept) = &self.history {
                            kept.times().given(Place { timestamp, time: order.time, end });
                            let next = kept.note_commit(&history, chunks, position);
                            order.next_history_point = next;
                        }
                        let mut needed = self.log.needed.lock();
                        order.next_point = needed.commit(timestamp, position);
                        if let Some(first) = first {
                            let ended = order.chunked.end(txn);
                            debug_assert_eq!(ended, Some(first), "nobody else appends");
                            needed.chunks_end(txn, first, Some(timestamp));
                        }
                        position
                    })?;
                match first {
                    Some(first) => {
                        let commit = Pieces { txn, chunks, timestamp, first, position, operations };
                        self.apply_pieces(&commit)?;
                    }
                    None => self.apply(position, timestamp, operations)?,
                }
                self.publish(timestamp)
            }
            _ => Err(wrong("a record of another kind")),
        }
    }

    fn apply(&self, position: u64, timestamp: u64, operations: &[u8]) -> Result<()> {
        self.change_dictionaries(position, timestamp, operations)?;
        self.insert(position, timestamp, operations)
    }

    /// What operations do to dictionaries as a whole.
    pub(super) fn change_dictionaries(
        &self,
        position: u64,
        timestamp: u64,
        operations: &[u8],
    ) -> Result<()> {
        for operation in Operations::new(operations) {
            match operation.map_err(|e| Error::in_record(position, e))? {
                Operation::Create { dictionary, options }
                    if self.directory.find(dictionary).is_none() =>
                {
                    self.directory.create(dictionary, options, timestamp);
                }
                Operation::Reshape { dictionary, options } => {
                    if let Some(found) = self.directory.find(dictionary) {
                        let visible = self.snapshots.visible();
                        self.directory.reshape_held_back(&found, options, timestamp, visible);
                    }
                }
                Operation::Drop { dictionary } => {
                    if let Some(found) = self.directory.find(dictionary) {
                        found.drop_at(timestamp);
                    }
                }
                Operation::Tombstone { dictionary, part, lower, upper } => {
                    self.bury(dictionary, records::tombstone(timestamp, part, lower, upper))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What operations write to keys, into memtables.
    pub(super) fn insert(&self, position: u64, timestamp: u64, operations: &[u8]) -> Result<()> {
        let piece = Piece { position, timestamp, operations: Vec::new() };
        let mut written = Vec::new();
        each_needed(self, &piece, operations, |dictionary, key, message: Message<'_>| {
            if dictionary.tree.insert(key, timestamp, message) {
                written.push(dictionary.id);
            }
            Ok(())
        })?;
        written.sort_unstable();
        written.dedup();
        for id in written {
            if let Some(dictionary) = self.directory.find(id) {
                self.schedule.account(&dictionary);
            }
        }
        Ok(())
    }

    fn publish(&self, timestamp: u64) -> Result<()> {
        // No lock was taken: who has one and does not see the commit yet has to look.
        self.locks.not_remembered(timestamp);
        if !self.snapshots.publish(timestamp) {
            return Err(self.health.stop("an earlier commit was never published"));
        }
        self.commits.became_visible();
        self.counters.commits.inc();
        Ok(())
    }
}
