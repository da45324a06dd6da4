//! Appending a leader's entry to the log: its records as they came, then its own record.
//!
//! ```text
//!  entry  ─► checked ─► log: its records and its own, as many together as fit     append.rs
//!                        │    (a sync of the log may begin here)
//!                        └─► trees ─► complete                                    apply.rs
//! ```
//!
//! Always true:
//! 1. All of an entry is checked before any of it is appended.
//! 2. What is in the log and not in the trees is [`Unapplied`], in the order of the log. Until it is in the trees its
//!    commits are not complete: no reader, no drain and no checkpoint counts them.
//! 3. Where a record cannot be appended, those before it go into the trees: a tail of them can be made void.

use super::after_fence;
use super::entry_records::{EntryRecords, Records, wrong};
use crate::chunk_lists::Chunked;
use crate::commit_order::CommitOrder;
use crate::entries::Entry;
use crate::environment::Environment;
use crate::records::{self, CommitHead, EntryHead, EntryKind, HistoryHead, Record};
use crate::settings::PlantedBug;
use crate::times::Place;
use crate::unapplied::{ChunksOfCommit, Unapplied, UnappliedCommit};
use crate::{Error, Result};
use cachetable::Reservation;
use smallvec::SmallVec;
use wal::{Body, NewRecord, Priority};

/// So many records are appended together at most, and so many bytes of them, unless one is longer.
const TOGETHER: usize = 32;
const BYTES_TOGETHER: usize = 256 << 10;

/// A record that is to be appended.
struct Next<'a> {
    kind: Kind,
    /// Of a commit with chunks, which are elsewhere in this log than in its leader's.
    own_head: Option<CommitHead>,
    head: &'a [u8],
    /// With the memory for what is long of it.
    body: (Body<'a>, Option<Reservation>),
    /// Its bytes, as members send it.
    sent: usize,
}

enum Kind {
    Commit { timestamp: u64, history: HistoryHead, commit: UnappliedCommit },
    Chunk { txn: u64, number: u32 },
    Abort { txn: u64 },
    Entry,
}

/// An entry on its way into the log.
struct Appending<'a> {
    head: &'a EntryHead,
    records: &'a EntryRecords,
    /// Ids of transactions that its records have are below this.
    txns_below: u64,
    appended: SmallVec<[UnappliedCommit; 1]>,
}

/// What is appended next.
#[derive(Default)]
struct Group<'a> {
    next: SmallVec<[Next<'a>; 2]>,
    bytes: usize,
}

impl Environment {
    /// Appends an entry to the log: see [`Environment::apply_appended`].
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
        let own = records::entry_record(head, configuration);
        let mut appending = Appending { head, records, txns_below: 0, appended: SmallVec::new() };
        let appended = self.append_records(&own, &mut appending);
        let commits = appending.appended;
        if !commits.is_empty() {
            self.plant(head);
            self.unapplied.lock().push(Unapplied {
                records: records.bytes().clone(),
                changes_dictionaries: records.change_dictionaries(),
                commits,
            });
        }
        if appended.is_err() {
            self.apply_appended()?;
        }
        appended
    }

    /// A bug, for tests to find: what is only in the log counts as complete.
    fn plant(&self, head: &EntryHead) {
        if self.options.sizes.planted == Some(PlantedBug::CompleteBeforeApplied) {
            self.snapshots.publish_all(head.last_timestamp);
        }
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

    /// Appends an entry's records, and `own`, which closes it.
    fn append_records<'a>(&self, own: &'a [u8], appending: &mut Appending<'a>) -> Result<()> {
        let records = appending.records;
        let mut group = Group::default();
        let mut end = 0;
        for record in Records(records.bytes()) {
            let record = record?;
            end += 4 + record.len();
            self.add_record(record, end, &mut group, appending)?;
            if group.next.len() >= TOGETHER || group.bytes >= BYTES_TOGETHER {
                self.append_together(&mut group, appending)?;
            }
        }
        group.next.push(Next {
            kind: Kind::Entry,
            own_head: None,
            head: own,
            body: (Body::plain(&[]), None),
            sent: 0,
        });
        self.append_together(&mut group, appending)
    }

    /// Adds a record that ends at `end` of the entry's records.
    fn add_record<'a>(
        &self,
        record: &'a [u8],
        end: usize,
        group: &mut Group<'a>,
        appending: &mut Appending<'a>,
    ) -> Result<()> {
        let malformed = |_| wrong("a record cannot be read");
        let sent = record.len();
        let all = appending.records.bytes();
        // Operations are the last part of a record.
        let parts = |operations: &'a [u8]| {
            let block = all.block(end - operations.len()..end);
            (&record[..sent - operations.len()], self.log.body_of(operations, block))
        };
        group.bytes += sent;
        match Record::decode(record).map_err(malformed)? {
            Record::Chunk { txn, number, operations } => {
                appending.txns_below = appending.txns_below.max(txn.saturating_add(1));
                let (head, body) = parts(operations);
                let kind = Kind::Chunk { txn, number };
                group.next.push(Next { kind, own_head: None, head, body, sent });
            }
            Record::Abort { txn } => {
                let (kind, body) = (Kind::Abort { txn }, (Body::plain(&[]), None));
                group.next.push(Next { kind, own_head: None, head: record, body, sent });
            }
            Record::Commit { txn, timestamp, chunks, history: Some(history), operations } => {
                appending.txns_below = appending.txns_below.max(txn.saturating_add(1));
                let pieces = self.chunks_of(txn, chunks, group, appending)?;
                let first_chunk = pieces.map_or(0, |pieces| pieces.first);
                let history = HistoryHead { first_chunk, ..history };
                // Of one without chunks it is as it came.
                let own_head =
                    pieces.map(|_| records::commit_head(txn, timestamp, chunks, Some(history)));
                let (head, body) = parts(operations);
                let operations = end - operations.len()..end;
                let commit = UnappliedCommit { timestamp, position: 0, operations, pieces };
                let kind = Kind::Commit { timestamp, history, commit };
                group.next.push(Next { kind, own_head, head, body, sent });
            }
            _ => return Err(wrong("a record of another kind")),
        }
        Ok(())
    }

    /// The chunks of a transaction whose commit has come; `None` where it has none.
    fn chunks_of(
        &self,
        txn: u64,
        count: u32,
        group: &mut Group<'_>,
        appending: &mut Appending<'_>,
    ) -> Result<Option<ChunksOfCommit>> {
        if count == 0 {
            return Ok(None);
        }
        // The first one may be among those that are to be appended.
        self.append_together(group, appending)?;
        let chunked = self.commits.order.lock().chunked.newest(txn);
        let chunked = chunked.filter(|chunked| chunked.fence.is_none());
        let first = chunked.map(|chunked| chunked.first);
        let first = first.ok_or_else(|| wrong("chunks of a commit are missing"))?;
        Ok(Some(ChunksOfCommit { txn, count, first }))
    }

    /// Appends what is next, under one lock as far as there is room.
    fn append_together(&self, group: &mut Group<'_>, appending: &mut Appending<'_>) -> Result<()> {
        let Group { next, bytes } = group;
        if next.is_empty() {
            return Ok(());
        }
        self.live.taken_below(appending.txns_below);
        self.schedule.make_room_for_entries(*bytes as u64)?;
        let heads: SmallVec<[[&[u8]; 1]; TOGETHER]> = next
            .iter()
            .map(|next| [next.own_head.as_ref().map_or(next.head, CommitHead::bytes)])
            .collect();
        let records: SmallVec<[NewRecord<'_>; TOGETHER]> = heads
            .iter()
            .zip(next.iter())
            .map(|(head, next)| NewRecord::new(head, &next.body.0))
            .collect();
        let mut places = SmallVec::<[wal::Place; TOGETHER]>::new();
        let (wal, health) = (self.log.wal(), &self.health);
        let mut at = 0;
        while let Some(first) = records.get(at) {
            let mut order = self.commits.order.lock();
            places.clear();
            let told = |place| places.push(place);
            health.check(wal.try_append_all(&records[at..], Priority::Ordinary, told))?;
            for place in &places {
                self.note_appended(&mut order, &next[at], *place, appending);
                at += 1;
            }
            drop(order);
            match places.last() {
                Some(last) => self.log.grew(last.end),
                None => health.check(wal.make_room(first, Priority::Ordinary))?,
            }
        }
        drop(records);
        drop(heads);
        next.clear();
        *bytes = 0;
        Ok(())
    }

    /// A record stands in the log.
    fn note_appended(
        &self,
        order: &mut CommitOrder,
        next: &Next<'_>,
        place: wal::Place,
        appending: &mut Appending<'_>,
    ) {
        match &next.kind {
            Kind::Chunk { txn, number } => {
                order.note_sent(place, next.sent);
                if *number == 0 {
                    self.log.needed.lock().chunk(*txn, place.begin);
                    order.chunked.begin(*txn, Chunked { first: place.begin, fence: None });
                }
            }
            Kind::Abort { txn } => {
                order.note_sent(place, next.sent);
                if let Some(first) = order.chunked.end(*txn) {
                    self.log.needed.lock().chunks_end(*txn, first, None);
                }
            }
            Kind::Commit { timestamp, history, commit } => {
                self.note_commit(order, (*timestamp, history), commit, place);
                order.note_sent(place, next.sent);
                let position = place.begin;
                let operations = commit.operations.clone();
                appending.appended.push(UnappliedCommit { position, operations, ..*commit });
            }
            Kind::Entry => self.note_entry(order, place, appending),
        }
    }

    fn note_commit(
        &self,
        order: &mut CommitOrder,
        (timestamp, history): (u64, &HistoryHead),
        commit: &UnappliedCommit,
        place: wal::Place,
    ) {
        let wal::Place { begin: position, end } = place;
        order.newest = timestamp;
        order.time = history.last_time();
        if let Some(kept) = &self.history {
            kept.times().given(Place { timestamp, time: order.time, end });
            if commit.pieces.is_some() || position >= order.next_history_point {
                let chunks = commit.pieces.map_or(0, |pieces| pieces.count);
                order.next_history_point = kept.note_commit(history, chunks, position);
            }
        }
        if commit.pieces.is_some() || position >= order.next_point {
            let mut needed = self.log.needed.lock();
            order.next_point = needed.commit(timestamp, position);
            if let Some(ChunksOfCommit { txn, first, .. }) = commit.pieces {
                let ended = order.chunked.end(txn);
                debug_assert_eq!(ended, Some(first), "nobody else appends");
                needed.chunks_end(txn, first, Some(timestamp));
            }
        }
    }

    fn note_entry(&self, order: &mut CommitOrder, place: wal::Place, appending: &Appending<'_>) {
        let (head, records) = (appending.head, appending.records);
        let wal::Place { begin: end, end: behind } = place;
        let part = order.open.first().map(|part| (part.start, part.until));
        let (start, until) = part.unwrap_or((end, end));
        order.open.close_as(head.index, records.bytes(), records.writes_to());
        self.log.set_entry_bytes(order.open.memory_bytes());
        after_fence(order, head);
        let follows = order.entries.push(Entry { head: *head, start, until, end, behind });
        debug_assert!(follows, "that it follows was checked");
    }
}
