//! What a member of a set does with its log: closing entries, appending those of a leader, reading them, and
//! overwriting a tail.
//!
//! Always true:
//! 1. Entries follow each other: index by one, terms and commits ascending.
//! 2. What a follower appends is checked first: its checksum, its order, each record. Where any of it cannot
//!    be, nothing is appended.
//! 3. None of it makes a commit visible: [`Engine::committed`] does. A follower's commits are complete when they are in
//!    the trees, which is after they are in the log.
//! 4. A leader's clients commit while its entries are made: what is gathered takes no more records, and is
//!    closed later, in the same order.
//!
//! The bytes of an entry are its records, each behind its length as u32, without positions of chunks, which
//! are of one log only.

mod append;
mod apply;
mod commits;
mod entry_records;
mod forget;
mod pieces;

pub use commits::CommitStep;
pub use entry_records::EntryRecords;

use crate::commit_order::CommitOrder;
use crate::entries::{Entries, Entry, EntryId, FIRST_TERM};
use crate::entry_bytes::EntryBytes;
use crate::environment::Environment;
use crate::open_records::{GatheredRecords, Part};
use crate::records::{self, EntryHead, EntryKind, Record};
use crate::{DictionaryId, Engine, Error, Result};
use std::borrow::Cow;
use std::sync::Arc;
use wal::LiveReader;

/// The longest entry that is appended or read as one.
pub const MAX_ENTRY_BYTES: u64 = 1 << 30;

/// The entries that a member's log holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryBounds {
    /// The newest that the last checkpoint has: a start begins behind it. It and those before it are decided.
    pub before: EntryId,
    /// The first whose records can be read, which may be one that the checkpoint has; above the last where
    /// there is none. Of the entry before it [`Engine::entry`] knows the term.
    pub first_readable: u64,
    /// The last one.
    pub last: EntryId,
}

impl Engine {
    /// Describes the next records of clients that no entry has and that were not gathered, some MiB of them at
    /// most unless it is one longer record; `None` where there are none. They are closed by an entry later on;
    /// what comes meanwhile is not among them.
    pub fn gather(&self) -> Option<GatheredRecords> {
        self.environment().commits.order.lock().open.gather()
    }

    /// What was gathered and not closed is as if it had not been gathered.
    pub fn ungather(&self) {
        self.environment().commits.order.lock().open.ungather();
    }

    /// Bytes of clients' records that no entry has and that were not gathered.
    pub fn open_bytes(&self) -> u64 {
        self.environment().commits.order.lock().open.bytes()
    }

    /// Closes what was gathered first by an entry, or what would be gathered next; other kinds than
    /// [`EntryKind::Records`] have none. The entry is in the log then, and on disk after [`Engine::sync`].
    /// `None` for records where there are none. `committed` is the index that is known to be committed; a
    /// configuration has bytes, other entries have none.
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

    /// Whether memory has room for entries of a leader. Where it has not, they are to come later:
    /// [`Engine::append_entry`] waits for nobody.
    pub fn has_room_for_entries(&self, bytes: u64) -> bool {
        let environment = self.environment();
        if !environment.schedule.has_room_for_entries() {
            return false;
        }
        // A record is framed, and no shorter than half of what frames it.
        let framed = bytes.saturating_mul(3);
        let made = environment.health.check(environment.log.wal().make_files_for(framed));
        // Of another error whoever appends is told.
        !matches!(made, Err(Error::NoSpace(_)))
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
        let records = EntryRecords::read(records.to_vec().into())?;
        self.append_read_entry(head, configuration, &records)?;
        self.apply_appended()
    }

    /// The same, of records that were read before, into the log alone: its commits are complete after
    /// [`Engine::apply_appended`], which may come behind several entries, and beside the sync of them. Nobody else writes
    /// until then.
    ///
    /// # Errors
    /// As [`Engine::append_entry`].
    pub fn append_read_entry(
        &self,
        head: &EntryHead,
        configuration: &[u8],
        records: &EntryRecords,
    ) -> Result<()> {
        self.environment().append_entry(head, configuration, records)
    }

    /// What was appended of a leader's entries goes into the trees: their commits are complete when this returns.
    ///
    /// # Errors
    /// [`Error::Stopped`]: not all of it did; the next start finds it in the log.
    pub fn apply_appended(&self) -> Result<()> {
        self.environment().apply_appended()
    }

    /// An entry with its configuration and its records, as they are sent to other members. Reads the disk.
    ///
    /// # Errors
    /// [`Error::HistoryLost`] where the log does not hold it.
    pub fn read_entry(&self, index: u64) -> Result<(EntryHead, Vec<u8>, Vec<u8>)> {
        self.environment().read_entry(index)
    }

    /// The records of an entry, as they are sent to other members. Those of the newest entries are in memory;
    /// else it reads the disk, and may wait for it.
    ///
    /// # Errors
    /// [`Error::HistoryLost`] where the log does not hold it.
    pub fn entry_records(&self, index: u64) -> Result<EntryBytes> {
        let kept = {
            let order = self.environment().commits.order.lock();
            match order.entries.get(index) {
                Some(entry) if entry.head.bytes == 0 => Some(EntryBytes::default()),
                _ => order.open.kept(index),
            }
        };
        match kept {
            Some(kept) => Ok(kept),
            None => self.read_entry(index).map(|(_, _, records)| records.into()),
        }
    }

    /// Which entries there are.
    pub fn entries(&self) -> EntryBounds {
        let mut order = self.environment().commits.order.lock();
        order.entries.trim(self.environment().log.wal().first_lsn());
        let (before, last) = (order.entries.base(), order.entries.last());
        EntryBounds { before, first_readable: order.entries.before().index + 1, last }
    }

    /// What is known of the entries behind `index`, as far as the log has them.
    pub fn entry_heads(&self, index: u64) -> Vec<EntryHead> {
        let order = self.environment().commits.order.lock();
        order.entries.behind_index(index).map(|entry| entry.head).collect()
    }

    /// The same of `most` of them, from `index` on, where it is known.
    pub fn entry_heads_from(&self, index: u64, most: usize) -> Vec<EntryHead> {
        let order = self.environment().commits.order.lock();
        if order.entries.get(index).is_none() {
            return Vec::new();
        }
        let list = order.entries.behind_index(index.saturating_sub(1)).take(most);
        list.map(|entry| entry.head).collect()
    }

    /// The last entry that is known to be committed.
    pub fn committed_index(&self) -> u64 {
        self.environment().commits.order.lock().entries.committed()
    }

    /// The configuration that was told as counting behind an entry, or behind one before it: see
    /// [`Engine::configured`].
    pub fn configuration_at(&self, index: u64) -> Option<Arc<[u8]>> {
        let order = self.environment().commits.order.lock();
        order.entries.configuration_at(index).map(|(_, told)| told)
    }

    /// As [`Engine::commit_entries_up_to`], where the configuration of the set changed with the entries up to this
    /// one: `configuration` counts behind it. What it says is not looked at; checkpoints keep it, and name no
    /// entry behind a change that was not told.
    ///
    /// # Errors
    /// As [`Engine::commit_entries_up_to`].
    pub fn apply_configuration(&self, index: u64, configuration: &[u8]) -> Result<()> {
        self.environment().commit_entries_up_to(index, Some(configuration))
    }

    /// From now on commits are held back, as with [`Showing::Committed`](crate::Showing::Committed): an empty
    /// directory becomes a member's. The next start is to be told so by its options.
    ///
    /// # Errors
    /// There are commits, or no history is kept.
    pub fn hold_back(&self) -> Result<()> {
        let environment = self.environment();
        let order = environment.commits.order.lock();
        if environment.snapshots.holds_back() {
            return Ok(());
        }
        if environment.history.is_none() || order.newest > 0 {
            let text = "commits are held back from the first one on, and a history is kept";
            return Err(Error::InvalidOption(text.to_owned()));
        }
        environment.snapshots.hold_back();
        Ok(())
    }

    /// The set's log begins: all commits so far are of the entry `(term, index)` or before it, which is
    /// committed, and `configuration` counts behind it. On disk when this returns. The entry with index 1 is of
    /// term 1: a start relies on it.
    ///
    /// # Errors
    /// There are entries already, or commits that are not visible.
    pub fn begin_entries(&self, (term, index): (u64, u64), configuration: &[u8]) -> Result<()> {
        self.environment().begin_entries((term, index), configuration)?;
        self.checkpoint()
    }

    /// Whether somebody waits for a commit that no entry has and that was not gathered.
    pub fn is_open_awaited(&self) -> bool {
        let awaited = self.environment().snapshots.awaited();
        let order = self.environment().commits.order.lock();
        let gathered = order.open.gathered_to().unwrap_or(order.entries.last().timestamp);
        awaited > gathered
    }

    /// Has `notify` called whenever somebody waits for a newer commit than anybody before, on the thread of who waits:
    /// it must not wait itself. The first call counts.
    pub fn when_awaited(&self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.environment().snapshots.set_notify(notify);
    }

    /// How many must wait before `notify` of [`Engine::when_awaited`] is called: none at first.
    pub fn notify_from(&self, waiting: u64) {
        self.environment().snapshots.notify_from(waiting);
    }

    /// How many wait for commits to become visible.
    pub fn waiting(&self) -> u64 {
        self.environment().snapshots.waiting()
    }

    /// How many were told that their commit is visible, since this was asked last.
    pub fn take_released(&self) -> u64 {
        self.environment().snapshots.take_released()
    }

    /// From now on no transaction commits, and those that are open never will: this member does not lead.
    /// Those whose commit has its timestamp complete it.
    pub fn forbid_writes(&self) {
        let mut order = self.environment().commits.order.lock();
        order.refuses_writes = true;
        self.environment().snapshots.begin_era();
        drop(order);
        self.environment().free_space.set_follows(true);
    }

    /// Transactions that begin from now on may commit: this member leads. Those that are open never will: they
    /// may have looked at what is kept beside the data as another leader's commits had left it.
    pub fn allow_writes(&self) {
        self.environment().free_space.set_follows(false);
        let mut order = self.environment().commits.order.lock();
        order.refuses_writes = false;
        self.environment().snapshots.begin_era();
    }

    /// Term and last commit of an entry that is known.
    pub fn entry(&self, index: u64) -> Option<EntryId> {
        self.environment().commits.order.lock().entries.id_of(index)
    }

    /// Makes void all entries from `index` on, and what is not closed by one: consensus has others. Nobody
    /// writes meanwhile ([`Engine::forbid_writes`]); it waits for those whose commit is being completed. On
    /// disk when this returns.
    ///
    /// # Errors
    /// The index is not known. [`Error::Stopped`] where commits that a majority has would be void: the set's
    /// promise was broken.
    pub fn cut(&self, index: u64) -> Result<()> {
        self.environment().forget_from(Some(index))
    }

    /// Lets go of dictionaries that this member does not keep, though the set's log makes them and writes to them: what it
    /// says of them from here on is passed over, as it is of one that was dropped. All of them are visible, and no reader
    /// knows of them. To be asked again at each start: an older checkpoint may have them still.
    pub fn leave_out(&self, dictionaries: impl IntoIterator<Item = DictionaryId>) {
        let environment = self.environment();
        let visible = environment.snapshots.visible().get();
        for id in dictionaries {
            assert!(id != DictionaryId::ROOT, "a member has the directory of the layers above");
            if let Some(found) = environment.directory.find(id.0) {
                debug_assert!(found.created <= visible, "whoever names it has seen its commit");
                // At a commit that stays: no tail that becomes void brings it back.
                found.drop_at(visible);
            }
        }
    }

    /// Makes void what no entry closes: this member leads no more. As [`Engine::cut`]; nothing is written
    /// where nothing is open.
    pub fn discard_open(&self) -> Result<()> {
        self.environment().forget_from(None)
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
            let is_records = kind == EntryKind::Records;
            let part = order.open.describe_first().filter(|_| is_records).map(|part| {
                let Part { start, until, records, .. } = part;
                (*start, *until, *records)
            });
            if is_records && part.is_none() {
                return Ok(None);
            }
            let records = part.map_or(last.without_records(), |(_, _, records)| records);
            if index != last.index + 1 || term < last.term {
                let text = format!("entry {index} of term {term} follows {last:?}");
                return Err(Error::InvalidOption(text));
            }
            let head = EntryHead {
                index,
                term,
                kind,
                first_timestamp: last.timestamp + 1,
                last_timestamp: records.last_timestamp,
                last_time: records.last_time,
                committed,
                bytes: records.bytes,
                checksum: records.checksum,
            };
            let record = records::entry_record(&head, configuration);
            // What it closes was taken from clients already: a leader that cannot write it leads no more.
            let priority = wal::Priority::GivesSpaceBack;
            let pieces = [&record[..]];
            let record = wal::NewRecord::plain(&pieces);
            let appended = self.log.wal().try_append(&record, priority);
            if let Some(wal::Place { begin: end, end: behind }) = self.health.check(appended)? {
                let (start, until) = part.map_or((end, end), |(start, until, _)| (start, until));
                if is_records {
                    order.open.close(index);
                }
                let follows = order.entries.push(Entry { head, start, until, end, behind });
                debug_assert!(follows, "entries follow each other");
                after_fence(&mut order, &head);
                drop(order);
                self.log.grew(behind);
                return Ok(Some(head));
            }
            drop(order);
            self.health.check(self.log.wal().make_room(&record, priority))?;
        }
    }

    /// Entries up to `index` are committed; where one of them changed the configuration, this one counts.
    pub(crate) fn commit_entries_up_to(
        &self,
        index: u64,
        configuration: Option<&[u8]>,
    ) -> Result<()> {
        let id = {
            let mut order = self.commits.order.lock();
            let Some(id) = order.entries.id_of(index) else {
                return Err(Error::InvalidOption(format!("entry {index} is not known")));
            };
            if let Some(configuration) = configuration {
                order.entries.configure(index, configuration.into());
            }
            order.entries.commit(index);
            let mut needed = self.log.needed.lock();
            order.chunked.decide(index, |txn, first| needed.chunks_end(txn, first, None));
            id
        };
        self.advance_commit_point(id.timestamp)
    }

    fn begin_entries(&self, (term, index): (u64, u64), configuration: &[u8]) -> Result<()> {
        let mut order = self.commits.order.lock();
        let all_visible = self.snapshots.visible().get() == order.newest;
        if !self.snapshots.holds_back() || order.entries.last().index > 0 || !all_visible {
            let text = "a set's log begins where nothing of one is, and all commits are visible";
            return Err(Error::InvalidOption(text.to_owned()));
        }
        if index == 1 && term != FIRST_TERM {
            return Err(Error::InvalidOption(format!("entry 1 is of term {FIRST_TERM}")));
        }
        let (timestamp, time) = (order.newest, order.time);
        order.entries = Entries::behind(EntryId { index, term, timestamp, time });
        order.entries.configure(index, configuration.into());
        order.open.cut(0);
        Ok(())
    }

    fn read_entry(&self, index: u64) -> Result<(EntryHead, Vec<u8>, Vec<u8>)> {
        let wal = self.log.wal();
        let found = {
            let mut order = self.commits.order.lock();
            order.entries.trim(wal.first_lsn());
            order.entries.get(index).copied()
        };
        let Some(Entry { head, start, until, end, behind }) = found else {
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
            // Entries before it may be closed among its records or behind them, later ones begin there.
            if record.lsn >= until || matches!(decoded, Record::Entry { .. }) {
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

/// With a new term, a transaction of another leader whose commit has not come yet will never be.
fn after_fence(order: &mut CommitOrder, head: &EntryHead) {
    if head.kind == EntryKind::Fence {
        order.chunked.note_fence(head.index);
    }
}

/// What the log has let go of is lost.
fn lost<T>(result: wal::Result<T>) -> Result<T> {
    result.map_err(|error| match error {
        wal::Error::Missing { .. } => Error::HistoryLost,
        other => other.into(),
    })
}
