//! Appending a leader's entry: its records go into the log as they came, and its commits into the trees.
//!
//! Always true: all of an entry is checked before any of it is appended. Its commits are published together, when all of
//! them are in the trees; that nobody else writes meanwhile is the caller's word.

use super::entry_records::{EntryRecords, Records, wrong};
use super::pieces::Pieces;
use crate::chunk_lists::Chunked;
use crate::commit_order::CommitOrder;
use crate::dictionary::Found;
use crate::entries::Entry;
use crate::environment::Environment;
use crate::records::{self, EntryHead, EntryKind, HistoryHead, Operation, Operations, Record};
use crate::recovery::{key_write, needed_dictionary};
use crate::times::Place;
use crate::writeset::WRITES_TOGETHER;
use crate::{Error, Result};
use ftree::Version;
use smallvec::SmallVec;
use wal::NewRecord;

/// A follower appends whatever its leader says.
#[expect(clippy::unnecessary_wraps, reason = "others may refuse")]
fn any(_: &CommitOrder) -> Result<()> {
    Ok(())
}

impl Environment {
    pub(super) fn append_entry(
        &self,
        head: &EntryHead,
        configuration: &[u8],
        records: &EntryRecords,
    ) -> Result<()> {
        if !self.snapshots.holds_back() {
            return Err(Error::InvalidOption("every complete commit is shown".to_owned()));
        }
        self.check_entry(head, configuration, records)?;
        let inserts = Inserts::into(self);
        let mut appending = Appending { records, complete: 0, commits: 0, inserts };
        let appended = self.append_records(&mut appending);
        // Also where a later one has failed: these are complete.
        appending.inserts.finish();
        self.publish(&appending);
        appended?;
        let record = records::entry_record(head, configuration);
        let pieces = [&record[..]];
        let record = NewRecord::plain(&pieces);
        let follows = self.commits.append_in_order(&record, any, |order, place| {
            let wal::Place { begin: end, end: behind } = place;
            let part = order.open.first().map(|part| (part.start, part.until));
            let (start, until) = part.unwrap_or((end, end));
            order.open.close_as(head.index, records.bytes(), records.writes_to());
            self.log.set_entry_bytes(order.open.memory_bytes());
            super::after_fence(order, head);
            order.entries.push(Entry { head: *head, start, until, end, behind })
        })?;
        debug_assert!(follows, "that it follows was checked");
        Ok(())
    }

    /// Fails where the entry does not follow what is there, or is not what its head says.
    fn check_entry(
        &self,
        head: &EntryHead,
        configuration: &[u8],
        records: &EntryRecords,
    ) -> Result<()> {
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
        if records.bytes().len() as u64 != head.bytes || records.checksum() != head.checksum {
            return Err(wrong("its checksum"));
        }
        if (head.kind == EntryKind::Records) == records.bytes().is_empty() {
            return Err(wrong("it has records, or none, against its kind"));
        }
        let Some(commits) = records.commits() else {
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

    fn append_records(&self, appending: &mut Appending<'_>) -> Result<()> {
        let all = appending.records.bytes();
        let mut records = Records(all);
        while let Some(record) = records.next() {
            self.append_record(record?, all.len() - records.0.len(), appending)?;
        }
        Ok(())
    }

    /// Appends a record that ends there in the entry's bytes.
    fn append_record<'a>(
        &self,
        record: &'a [u8],
        end: usize,
        appending: &mut Appending<'a>,
    ) -> Result<()> {
        let malformed = |_| wrong("a record cannot be read");
        let bytes = record.len();
        let sent = appending.records.bytes();
        // Operations are the last part of a record.
        let body = |operations: &'a [u8]| {
            let block = sent.block(end - operations.len()..end);
            (&record[..bytes - operations.len()], self.log.body_of(operations, block))
        };
        match Record::decode(record).map_err(malformed)? {
            Record::Chunk { txn, number, operations } => {
                self.live.taken_below(txn.saturating_add(1));
                let (head, (body, _room)) = body(operations);
                let pieces = [head];
                let record = NewRecord::new(&pieces, &body);
                self.commits.append_in_order(&record, any, |order, place| {
                    order.note_sent(place, bytes);
                    if number == 0 {
                        self.log.needed.lock().chunk(txn, place.begin);
                        order.chunked.begin(txn, Chunked { first: place.begin, fence: None });
                    }
                })
            }
            Record::Abort { txn } => {
                self.commits.append_in_order(&NewRecord::plain(&[record]), any, |order, place| {
                    order.note_sent(place, bytes);
                    if let Some(first) = order.chunked.end(txn) {
                        self.log.needed.lock().chunks_end(txn, first, None);
                    }
                })
            }
            Record::Commit { txn, timestamp, chunks, history: Some(history), operations } => {
                self.live.taken_below(txn.saturating_add(1));
                self.schedule.make_room_for_entries(operations.len() as u64)?;
                let first = self.first_chunk(txn, chunks)?;
                let history = HistoryHead { first_chunk: first.unwrap_or(0), ..history };
                // Of one without chunks it is as it came.
                let own =
                    first.map(|_| records::commit_head(txn, timestamp, chunks, Some(history)));
                let (head, (body, _room)) = body(operations);
                let pieces = [own.as_ref().map_or(head, |own| own.bytes())];
                let record = NewRecord::new(&pieces, &body);
                let position = self.commits.append_in_order(&record, any, |order, place| {
                    let wal::Place { begin: position, end } = place;
                    order.newest = timestamp;
                    order.time = history.last_time();
                    order.note_sent(place, bytes);
                    if let Some(kept) = &self.history {
                        kept.times().given(Place { timestamp, time: order.time, end });
                        if chunks > 0 || position >= order.next_history_point {
                            let next = kept.note_commit(&history, chunks, position);
                            order.next_history_point = next;
                        }
                    }
                    if first.is_some() || position >= order.next_point {
                        let mut needed = self.log.needed.lock();
                        order.next_point = needed.commit(timestamp, position);
                        if let Some(first) = first {
                            let ended = order.chunked.end(txn);
                            debug_assert_eq!(ended, Some(first), "nobody else appends");
                            needed.chunks_end(txn, first, Some(timestamp));
                        }
                    }
                    position
                })?;
                if let Some(first) = first {
                    // What earlier commits wrote to the same keys goes in before.
                    appending.inserts.finish();
                    let commit = Pieces { txn, chunks, timestamp, first, position, operations };
                    self.apply_pieces(&commit)?;
                } else {
                    if appending.records.change_dictionaries() {
                        appending.inserts.finish();
                        self.change_dictionaries(position, timestamp, operations)?;
                    }
                    appending.inserts.add_all((position, timestamp), operations)?;
                }
                appending.complete = timestamp;
                appending.commits += 1;
                Ok(())
            }
            _ => Err(wrong("a record of another kind")),
        }
    }

    /// The first chunk of a transaction whose commit has come; `None` where it has none.
    fn first_chunk(&self, txn: u64, chunks: u32) -> Result<Option<u64>> {
        if chunks == 0 {
            return Ok(None);
        }
        let chunked = self.commits.order.lock().chunked.newest(txn);
        let chunked = chunked.filter(|chunked| chunked.fence.is_none());
        let first = chunked.map(|chunked| chunked.first);
        first.map(Some).ok_or_else(|| wrong("chunks of a commit are missing"))
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
        let mut inserts = Inserts::into(self);
        let added = inserts.add_all((position, timestamp), operations);
        inserts.finish();
        added
    }

    /// The commits of an entry are complete. Nobody else writes: no earlier one is on its way.
    fn publish(&self, appending: &Appending<'_>) {
        if appending.commits == 0 {
            return;
        }
        // No lock was taken: who has one and does not see the last commit yet has to look.
        self.locks.not_remembered(appending.complete);
        self.snapshots.publish_all(appending.complete);
        self.commits.became_visible();
        self.counters.commits.add(appending.commits);
    }
}

/// How far an entry was appended.
struct Appending<'a> {
    records: &'a EntryRecords,
    /// Commits up to this timestamp are in the trees, or in `inserts`.
    complete: u64,
    /// How many of the entry.
    commits: u64,
    inserts: Inserts<'a>,
}

/// Writes of commits on their way into memtables: those to one dictionary go in together, whichever commits they are of.
struct Inserts<'a> {
    environment: &'a Environment,
    /// The dictionary of the versions.
    into: Option<Found>,
    versions: SmallVec<[Version<'a>; WRITES_TOGETHER]>,
}

impl<'a> Inserts<'a> {
    fn into(environment: &'a Environment) -> Self {
        Self { environment, into: None, versions: SmallVec::new() }
    }

    /// What a commit wrote to keys, whose record is at `position`.
    fn add_all(&mut self, (position, timestamp): (u64, u64), operations: &'a [u8]) -> Result<()> {
        for operation in Operations::new(operations) {
            let operation = operation.map_err(|e| Error::in_record(position, e))?;
            let Some((id, key, message)) = key_write(&operation) else { continue };
            if self.into.as_ref().is_none_or(|into| into.id != id) {
                self.insert();
                self.into = needed_dictionary(self.environment, id, (position, timestamp))?;
            } else if self.versions.len() >= WRITES_TOGETHER {
                self.insert();
            }
            if self.into.is_some() {
                self.versions.push((key, timestamp, message));
            }
        }
        Ok(())
    }

    fn insert(&mut self) {
        if let (Some((_, newest, _)), Some(dictionary)) = (self.versions.last(), &self.into) {
            dictionary.written_at(*newest);
            if dictionary.tree.insert_versions(&self.versions) {
                self.environment.schedule.account(dictionary);
            }
        }
        self.versions.clear();
    }

    /// All that was added is in memtables. What comes next looks for its dictionary anew.
    fn finish(&mut self) {
        self.insert();
        self.into = None;
    }
}
