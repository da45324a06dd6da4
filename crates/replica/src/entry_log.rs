//! A log of entries with their records, and nothing else: for members that keep entries without applying them.
//!
//! ```text
//!  append ─► wal ─► synced ─► read again, by index, until they are let go of
//! ```
//!
//! It is a redo log's files (`wal`) with records of its own (`records.rs`, `docs/formats/entry-log.md`). In memory there
//! is a place every 64 KiB and the indices at which terms begin, so that a log of a gigabyte takes some hundred KiB.
//!
//! Always true:
//! 1. What was synced is found by the next opening, in order, less what was cut off or let go of.
//! 2. What is decided is never cut off, and says so on disk before the entries before it are let go of.
//! 3. A damaged file is an error, and never a shorter log.

mod places;
mod records;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use os::sync::Mutex;
use quorum::{Configuration, Content, Entry, Older, Position};
use wal::{LiveReader, Lsn, NewRecord, Replay, Wal};

use crate::error::{Error, Result};
use places::{Loading, Places};
use records::{LogRecord, MAX_PART};

/// Room that an append finds: more than a frame of entries takes, but for one longer entry.
const ROOM: u64 = 8 << 20;
/// Entries, and bytes, behind which it is written again what is decided: so much is looked at by an opening.
const MARK_ENTRIES: u64 = 4096;
const MARK_BYTES: u64 = 16 << 20;

/// The log. Clones are the same log.
#[derive(Clone)]
pub struct EntryLog(Arc<Shared>);

struct Shared {
    wal: Wal,
    state: Mutex<State>,
}

/// What is known to be decided, and the configuration that counts behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) at: Position,
    pub(crate) configuration: Configuration,
}

struct State {
    places: Places,
    decided: Decided,
    /// The index of what was written last of that, and behind which position it is written.
    mark: (u64, Lsn),
    /// The index of the newest of those that is on disk.
    synced_mark: u64,
    /// Entries that are not on disk yet, and the position behind each.
    unsynced: VecDeque<(Entry, Lsn)>,
    /// Where the entry of that index can be read next.
    reader: Option<(u64, LiveReader)>,
}

/// What an opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundEntries {
    pub(crate) decided: Decided,
    /// The entries behind that.
    pub(crate) entries: Vec<Entry>,
    /// The newest commit index that was written.
    pub(crate) commit: u64,
    /// Behind which entries which configuration counts, as far as that is still written there.
    pub(crate) configurations: Vec<(u64, Configuration)>,
}

fn failed(error: &wal::Error) -> Error {
    Error::Journal(error.to_string())
}

/// Results of the files as those of a journal.
fn written<T>(result: wal::Result<T>) -> Result<T> {
    result.map_err(|error| failed(&error))
}

impl EntryLog {
    /// Reads the log, and opens it for writing.
    pub(crate) fn open(mut replay: Replay) -> Result<(Self, FoundEntries)> {
        let mut loading = Loading::default();
        // Of a log whose first files were let go of, the first that is left may begin within a record.
        let mut may_be_within = replay.first_lsn() > 0;
        loop {
            let record = match replay.next_record() {
                Err(wal::Error::Corruption { .. }) if may_be_within => {
                    may_be_within = false;
                    if written(replay.skip_damage())?.is_none() {
                        break;
                    }
                    continue;
                }
                read => written(read)?,
            };
            let Some(record) = record else { break };
            may_be_within = false;
            let lsn = record.lsn;
            let taken = LogRecord::decode(record.payload).and_then(|said| loading.take(said, lsn));
            taken.map_err(|what| Error::Journal(format!("the log of entries at {lsn}: {what}")))?;
        }
        let wal = written(replay.start_writing())?;
        let found =
            loading.end().map_err(|what| Error::Journal(format!("the log of entries: {what}")))?;
        let (places, found) = found;
        let at = found.decided.at.index;
        let state = State {
            places,
            decided: found.decided.clone(),
            mark: (at, wal.next_lsn()),
            synced_mark: at,
            unsynced: VecDeque::new(),
            reader: None,
        };
        Ok((Self(Arc::new(Shared { wal, state: Mutex::new(state) })), found))
    }

    /// Whether it has a beginning.
    pub fn is_begun(&self) -> bool {
        self.0.state.lock().places.last().index > 0
    }

    /// The last entry.
    pub fn last(&self) -> Position {
        self.0.state.lock().places.last()
    }

    /// The first entry that can be read.
    pub fn first(&self) -> u64 {
        self.0.state.lock().places.first()
    }

    pub(crate) fn position(&self, index: u64) -> Option<Position> {
        self.0.state.lock().places.position(index)
    }

    /// The last entry that is on disk, with all before it.
    pub(crate) fn synced_index(&self) -> u64 {
        let mut state = self.0.state.lock();
        self.0.forget_synced(&mut state);
        let last = state.places.last().index;
        state.unsynced.front().map_or(last, |(first, _)| first.index.saturating_sub(1))
    }

    /// Bytes from the entry of that index on, rounded up.
    pub(crate) fn bytes_from(&self, index: u64) -> u64 {
        let state = self.0.state.lock();
        if index > state.places.last().index {
            return 0;
        }
        let begins = state.places.point_before(index);
        begins.map_or(0, |begins| self.0.wal.next_lsn().saturating_sub(begins))
    }

    pub(crate) fn decided(&self) -> Decided {
        self.0.state.lock().decided.clone()
    }

    /// Bytes of its files.
    pub fn disk_bytes(&self) -> u64 {
        self.0.wal.disk_bytes()
    }

    /// Begins anew behind a place up to which everything is decided. On disk when it returns.
    pub(crate) fn begin(&self, at: Position, configuration: &Configuration) -> Result<()> {
        let record = LogRecord::Begun { at, configuration: configuration.clone() };
        let decided = Decided { at, configuration: configuration.clone() };
        self.replace(&record, Places::behind(at), decided)
    }

    /// It has no beginning any more: what it held is elsewhere. On disk when it returns.
    pub(crate) fn end(&self) -> Result<()> {
        self.replace(&LogRecord::Ended, Places::default(), Decided::default())
    }

    fn replace(&self, record: &LogRecord<'_>, places: Places, decided: Decided) -> Result<()> {
        let wal = &self.0.wal;
        let start = wal.next_lsn();
        let end = written(wal.append(&[&record.encode()]))?;
        written(wal.sync())?;
        let mut state = self.0.state.lock();
        (state.mark, state.synced_mark) = ((decided.at.index, end), decided.at.index);
        (state.places, state.decided) = (places, decided);
        state.unsynced.clear();
        state.reader = None;
        drop(state);
        written(wal.trim(start))
    }

    /// Whether the disk has room for what a frame brings.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let made = self.0.wal.make_files_for(bytes.saturating_mul(3).max(ROOM));
        // Of another error whoever appends is told.
        !matches!(made, Err(wal::Error::NoSpace { .. }))
    }

    /// Appends an entry; one that follows an earlier one than the last cuts off what is behind that.
    pub(crate) fn append(&self, entry: &Entry, payload: &[u8], commit: u64) -> Result<()> {
        let at = entry.position();
        let mut state = self.0.state.lock();
        let last = state.places.last();
        if at.index != last.index + 1 || at.term < last.term {
            return Err(Error::Journal(format!("{at:?} does not follow {last:?}")));
        }
        let start = self.0.wal.next_lsn();
        let parts: Vec<&[u8]> = payload.chunks(MAX_PART).collect();
        let (inline, before) =
            parts.split_last().map_or((&[][..], &[][..]), |(last, all)| (*last, all));
        for (number, part) in (0_u32..).zip(before) {
            self.0.append(&records::part_head(number), part)?;
        }
        let head = records::entry_head(entry, commit, before.len() as u32);
        let end = self.0.append(&head, inline)?;
        state.places.push(at, start);
        state.unsynced.push_back((entry.clone(), end));
        self.0.forget_synced(&mut state);
        Ok(())
    }

    /// Entries from `index` on are void. Said on disk by the entry that takes the place of the first of them.
    pub(crate) fn cut(&self, index: u64) -> Result<()> {
        let mut state = self.0.state.lock();
        if index <= state.decided.at.index {
            return Err(Error::Journal(format!("entry {index} is decided and cannot be cut off")));
        }
        state.places.cut(index);
        state.unsynced.retain(|(entry, _)| entry.index < index);
        state.reader = None;
        Ok(())
    }

    /// Everything up to `at` is decided, and `configuration` counts behind it. Written where that must be found by the
    /// next opening (`must`), or where much has come since.
    pub(crate) fn decide(
        &self,
        at: Position,
        configuration: &Configuration,
        must: bool,
    ) -> Result<()> {
        let mut state = self.0.state.lock();
        if at.index < state.decided.at.index {
            // Consensus tells a member that has started again what its log began behind.
            return Ok(());
        }
        state.decided = Decided { at, configuration: configuration.clone() };
        let (index, behind) = state.mark;
        let is_due = at.index.saturating_sub(index) >= MARK_ENTRIES
            || self.0.wal.next_lsn().saturating_sub(behind) >= MARK_BYTES;
        if !must && !is_due {
            return Ok(());
        }
        self.0.look_at_mark(&mut state);
        let record = LogRecord::Decided { at, configuration: configuration.clone() }.encode();
        state.mark = (at.index, written(self.0.wal.append(&[&record]))?);
        Ok(())
    }

    /// Entries up to `index` are not needed any more, but for the place of that one: whole files of them go, as far as it
    /// is on disk that they are decided.
    pub(crate) fn forget_up_to(&self, index: u64) -> Result<()> {
        let mut state = self.0.state.lock();
        self.0.look_at_mark(&mut state);
        let until = index.min(state.synced_mark);
        let Some(lsn) = state.places.forget_before(until) else { return Ok(()) };
        state.reader = None;
        drop(state);
        written(self.0.wal.trim(lsn))
    }

    /// Lets go of the oldest entries until the log is no longer than that, as far as it may.
    pub(crate) fn shorten_to(&self, bytes: u64) -> Result<()> {
        if self.disk_bytes() <= bytes {
            return Ok(());
        }
        let from = self.0.wal.next_lsn().saturating_sub(bytes);
        let index = self.0.state.lock().places.first_from(from);
        index.map_or(Ok(()), |index| self.forget_up_to(index))
    }

    pub(crate) fn sync(&self) -> std::result::Result<(), String> {
        self.0.wal.sync().map_err(|error| error.to_string())
    }

    /// The records of an entry; `None` where they are not there, or not on disk yet.
    pub(crate) fn payload(&self, at: Position) -> Result<Option<Vec<u8>>> {
        let found = self.0.read(&mut self.0.state.lock(), at.index)?;
        Ok(found.filter(|(entry, _)| entry.position() == at).map(|(_, payload)| payload))
    }

    /// An entry with its records.
    pub(crate) fn read(&self, index: u64) -> Result<Option<(Entry, Vec<u8>)>> {
        self.0.read(&mut self.0.state.lock(), index)
    }

    /// What consensus asks for entries that it has no more in memory.
    pub(crate) fn older(&self) -> Box<dyn Older> {
        Box::new(OlderEntries(self.clone()))
    }
}

impl Shared {
    /// Appends a record; says where it ends.
    fn append(&self, head: &[u8], body: &[u8]) -> Result<u64> {
        let head = [head];
        let body = self.wal.body(body);
        written(self.wal.append_record(&NewRecord::new(&head, &body)))
    }

    fn forget_synced(&self, state: &mut State) {
        let synced = self.wal.synced_lsn();
        while state.unsynced.front().is_some_and(|(_, end)| *end <= synced) {
            state.unsynced.pop_front();
        }
    }

    fn look_at_mark(&self, state: &mut State) {
        let (index, end) = state.mark;
        if end <= self.wal.synced_lsn() {
            state.synced_mark = index;
        }
    }

    fn read(&self, state: &mut State, index: u64) -> Result<Option<(Entry, Vec<u8>)>> {
        let Some(at) = state.places.position(index).filter(|at| at.index >= state.places.first())
        else {
            return Ok(None);
        };
        self.forget_synced(state);
        if let Some((entry, _)) = state.unsynced.iter().find(|(entry, _)| entry.index == index) {
            // Records are read once they are on disk; other entries have none.
            let has_records = matches!(entry.content, Content::Records(_));
            return Ok((!has_records).then(|| (entry.clone(), Vec::new())));
        }
        let ahead = state.reader.take().filter(|(next, _)| *next == index);
        if let Some((_, mut reader)) = ahead
            && let Some(found) = self.next_entry(&mut reader)?
            && found.0.position() == at
        {
            state.reader = Some((index + 1, reader));
            return Ok(Some(found));
        }
        let Some(lsn) = state.places.point_before(index) else { return Ok(None) };
        let mut reader = LiveReader::at(lsn);
        while let Some(found) = self.next_entry(&mut reader)? {
            if found.0.position() == at {
                state.reader = Some((index + 1, reader));
                return Ok(Some(found));
            }
            if found.0.index >= index {
                return Err(Error::Journal(format!("{at:?} is not where the log has it")));
            }
        }
        Ok(None)
    }

    /// The next entry that is on disk, with its records.
    fn next_entry(&self, reader: &mut LiveReader) -> Result<Option<(Entry, Vec<u8>)>> {
        let mut before = Vec::new();
        let until = self.wal.synced_lsn();
        while let Some(record) = written(reader.next_record(&self.wal, until))? {
            let lsn = record.lsn;
            let said = LogRecord::decode(record.payload)
                .map_err(|what| Error::Journal(format!("the log of entries at {lsn}: {what}")))?;
            match said {
                LogRecord::Part { number, bytes } => {
                    if number == 0 {
                        before.clear();
                    }
                    before.extend_from_slice(bytes);
                }
                LogRecord::Entry { entry, payload, parts, .. } => {
                    if parts == 0 {
                        // Those of an entry that was not whole when the power went.
                        before.clear();
                    }
                    before.extend_from_slice(payload);
                    return Ok(Some((entry, before)));
                }
                LogRecord::Begun { .. } | LogRecord::Decided { .. } | LogRecord::Ended => {}
            }
        }
        Ok(None)
    }
}

struct OlderEntries(EntryLog);

impl Older for OlderEntries {
    fn first(&self) -> u64 {
        self.0.first()
    }

    fn position(&self, index: u64) -> Option<Position> {
        self.0.position(index)
    }

    /// Where one cannot be read, those before it are answered.
    fn entries(&self, low: u64, high: u64, most: usize, most_bytes: u64) -> Vec<Entry> {
        let mut bytes = 0_u64;
        let mut entries = Vec::new();
        for index in (low..high).take(most) {
            if bytes > most_bytes {
                break;
            }
            let Ok(Some((entry, payload))) = self.0.read(index) else { break };
            bytes = bytes.saturating_add(payload.len() as u64);
            entries.push(entry);
        }
        entries
    }
}
