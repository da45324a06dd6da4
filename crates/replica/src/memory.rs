//! A journal in memory, with a disk's faults: what is not synced can go, a sync can fail. For tests and
//! simulations of what stands above the seam.
//!
//! It is written as the real one: a list of lines to which everything is appended, records, entries
//! behind their records, and cuts. What it holds follows from reading the lines from the first on.
//! Nothing is ever taken out of the list but by a crash.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quorum::state::MemberState;
use quorum::{Configuration, Content, Descriptor, Entry, HardState, Older, Position};

use crate::error::{Error, Result};
use crate::journal::{Journal, LoadedLog};
use crate::payload::Payload;
use crate::state_file::Promises;

/// One commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its timestamp.
    pub ts: u64,
    /// What it did.
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Line {
    Record(Record),
    /// An entry of the last open records, in their order, as many as it describes; or of none, and
    /// then with a payload of its own; and the commit index.
    Entry(Entry, Vec<u8>, u64),
    /// Entries from this index on are void, and all open records.
    Cut(u64),
    /// Open records are void.
    DiscardOpen,
    /// The log begins anew behind a place.
    Begun(Position, Configuration),
}

/// What the lines say.
#[derive(Clone, Debug, Default)]
struct Held {
    base: Position,
    configuration: Configuration,
    entries: Vec<(Entry, Vec<u8>)>,
    open: VecDeque<Record>,
    commit: u64,
}

/// What a journal does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Syncs fail: the disk is broken.
    FailsSyncs,
    /// A bug: a sync is reported before anything is safe.
    LiesAboutSyncs,
    /// A bug: cuts are not written.
    ForgetsCuts,
    /// A bug: a start does not find the commit index.
    ForgetsCommits,
    /// A bug: of other members' entries the records are not kept.
    KeepsNoRecords,
    /// A bug: of other members' entries that come together the last is not applied.
    AppliesAllButTheLast,
}

/// The journal.
#[derive(Clone, Debug)]
pub struct MemoryJournal {
    base: Position,
    configuration: Configuration,
    lines: Vec<Line>,
    /// So many lines are safe.
    safe: usize,
    held: Held,
    /// The entries that stand, for consensus to ask for.
    older: Arc<Mutex<(Position, Vec<Entry>)>>,
    /// The first entry that can be sent to others.
    first: Arc<AtomicU64>,
    /// So many open records are gathered, by entry.
    gathered: VecDeque<usize>,
    /// Syncs that were begun: number and lines.
    syncing: VecDeque<(u64, usize)>,
    synced: u64,
    /// Other members' entries that were appended and not applied.
    unapplied: Vec<(Entry, Vec<u8>)>,
    shown: Vec<Record>,
    shown_to: u64,
    /// What it does wrong.
    pub fault: Fault,
    /// Syncs end when [`MemoryJournal::finish_syncs`] says so, not at once.
    pub slow: bool,
}

impl MemoryJournal {
    /// An empty journal behind `base`.
    pub fn new(base: Position, configuration: Configuration) -> Self {
        Self {
            base,
            configuration,
            lines: Vec::new(),
            safe: 0,
            held: Held::default(),
            older: Arc::default(),
            first: Arc::new(AtomicU64::new(base.index + 1)),
            gathered: VecDeque::new(),
            syncing: VecDeque::new(),
            synced: 0,
            unapplied: Vec::new(),
            shown: Vec::new(),
            shown_to: base.index,
            fault: Fault::None,
            slow: false,
        }
    }

    /// Takes a client's record and returns its timestamp. Only while the member is writable.
    pub fn commit(&mut self, bytes: Vec<u8>) -> u64 {
        let of_entries = self.entries().filter_map(|entry| match &entry.content {
            Content::Records(records) => Some(records.last_ts),
            _ => None,
        });
        let before = self.held.open.back().map(|record| record.ts);
        let ts = before.unwrap_or_else(|| of_entries.max().unwrap_or(0)) + 1;
        let record = Record { ts, bytes };
        self.held.open.push_back(record.clone());
        self.lines.push(Line::Record(record));
        ts
    }

    /// What is decided, in order.
    pub fn shown(&self) -> &[Record] {
        &self.shown
    }

    /// The entries that stand.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.held.entries.iter().map(|(entry, _)| entry)
    }

    /// The records of all entries that stand.
    pub fn records(&self) -> Vec<Record> {
        let of_entry = |(entry, payload): &(Entry, Vec<u8>)| match &entry.content {
            Content::Records(_) => decode(payload).unwrap_or_default(),
            _ => Vec::new(),
        };
        self.held.entries.iter().flat_map(of_entry).collect()
    }

    /// Records that belong to no entry.
    pub fn open_records(&self) -> usize {
        self.held.open.len()
    }

    /// Lets go of the first entries, as far as they are shown: they can be sent to nobody any more.
    pub fn trim(&mut self, until: u64) {
        self.first.fetch_max(until.min(self.shown_to + 1), Ordering::Relaxed);
    }

    /// What a copy of this journal's disk has: what is synced.
    #[must_use]
    pub fn copy(&self) -> Self {
        let (older, first) = (Arc::default(), self.first.load(Ordering::Relaxed));
        let mut copy = Self { older, first: Arc::new(AtomicU64::new(first)), ..self.clone() };
        copy.crash(|_| 0);
        copy
    }

    /// The oldest `most` syncs that were begun end.
    pub fn finish_syncs(&mut self, most: usize) {
        for _ in 0..most {
            let Some((number, lines)) = self.syncing.pop_front() else { return };
            self.safe = self.safe.max(lines);
            self.synced = number;
        }
    }

    /// The power goes: what was synced stays, and of the lines behind it as many as `kept` says.
    pub fn crash(&mut self, kept: impl FnOnce(usize) -> usize) {
        let behind = self.lines.len() - self.safe;
        self.lines.truncate(self.safe + kept(behind).min(behind));
        self.safe = self.lines.len();
        self.syncing.clear();
        self.synced = 0;
        self.gathered.clear();
        self.unapplied.clear();
        self.shown.clear();
        self.shown_to = self.base.index;
    }

    /// Fails where something was appended and not applied.
    fn check_applied(&self) -> Result<()> {
        let all = self.unapplied.is_empty();
        if all { Ok(()) } else { Err(damaged("what was appended is not applied")) }
    }

    fn held_payload(&self, at: Position) -> Option<Vec<u8>> {
        let place = at.index.checked_sub(self.held.base.index + 1).map(|place| place as usize);
        let found = place.and_then(|place| self.held.entries.get(place));
        let found = found.filter(|(entry, _)| entry.position() == at);
        found.map(|(_, payload)| payload.clone())
    }

    /// The entries that stand have changed from this index on.
    fn changed(&mut self, from: u64) {
        let stays = from.saturating_sub(self.held.base.index + 1) as usize;
        let mut older = self.older.lock().unwrap_or_else(PoisonError::into_inner);
        let (base, older) = &mut *older;
        *base = self.held.base;
        older.truncate(stays);
        let changed = self.held.entries.iter().skip(older.len());
        older.extend(changed.map(|(entry, _)| entry.clone()));
    }

    /// Reads the lines from the first on.
    fn read(&self) -> Result<Held> {
        let (base, configuration) = (self.base, self.configuration.clone());
        let mut held = Held { base, configuration, ..Held::default() };
        for line in &self.lines {
            match line {
                Line::Record(record) => held.open.push_back(record.clone()),
                Line::Entry(entry, payload, commit) => {
                    held.close(entry, payload)?;
                    held.commit = held.commit.max(*commit);
                }
                Line::Cut(index) => held.cut(*index),
                Line::Begun(at, configuration) => {
                    let (base, configuration) = (*at, configuration.clone());
                    held = Held { base, configuration, commit: at.index, ..Held::default() };
                }
                Line::DiscardOpen => held.open.clear(),
            }
        }
        Ok(held)
    }
}

impl Held {
    /// Makes an entry of the first open records.
    fn close(&mut self, entry: &Entry, payload: &[u8]) -> Result<()> {
        let Content::Records(records) = &entry.content else {
            self.entries.push((entry.clone(), payload.to_vec()));
            return Ok(());
        };
        let mut payload = Vec::new();
        while payload.len() < records.bytes as usize {
            let record = self.open.pop_front().ok_or_else(|| damaged("an entry lacks records"))?;
            encode(&mut payload, &record);
        }
        if crc32c::crc32c(&payload) != records.checksum {
            return Err(damaged("an entry's records are not its own"));
        }
        self.entries.push((entry.clone(), payload));
        Ok(())
    }

    fn cut(&mut self, index: u64) {
        self.entries.truncate(index.saturating_sub(self.base.index + 1) as usize);
        self.open.clear();
    }
}

impl Journal for MemoryJournal {
    fn load(&mut self) -> Result<LoadedLog> {
        self.held = self.read()?;
        self.shown_to = self.held.base.index;
        self.first.fetch_max(self.shown_to + 1, Ordering::Relaxed);
        self.changed(0);
        // What belonged to no entry when the power went is nobody's.
        self.discard_open()?;
        Ok(LoadedLog {
            base: self.held.base,
            entries: self.entries().cloned().collect(),
            commit: if self.fault == Fault::ForgetsCommits { 0 } else { self.held.commit },
            applied: self.held.base.index,
            configuration: self.held.configuration.clone(),
        })
    }

    fn describe_open(&mut self, most: u64) -> Option<Descriptor> {
        let from: usize = self.gathered.iter().sum();
        let mut payload = Vec::new();
        let (mut count, mut last_ts) = (0, 0);
        for record in self.held.open.iter().skip(from) {
            if count > 0 && payload.len() as u64 + record.bytes.len() as u64 + 12 > most {
                break;
            }
            encode(&mut payload, record);
            (count, last_ts) = (count + 1, record.ts);
        }
        if count == 0 {
            return None;
        }
        self.gathered.push_back(count);
        let checksum = crc32c::crc32c(&payload);
        Some(Descriptor { last_ts, last_time: last_ts, bytes: payload.len() as u32, checksum })
    }

    fn reset_description(&mut self) {
        self.gathered.clear();
    }

    fn open_bytes(&self) -> u64 {
        let from: usize = self.gathered.iter().sum();
        self.held.open.iter().skip(from).map(|record| record.bytes.len() as u64 + 12).sum()
    }

    fn lead(&mut self) -> Result<()> {
        Ok(())
    }

    fn write_entry(&mut self, entry: &Entry, commit: u64) -> Result<()> {
        self.check_applied()?;
        if matches!(entry.content, Content::Records(_)) {
            self.gathered
                .pop_front()
                .ok_or_else(|| damaged("there are no pending records to close"))?;
        }
        let payload = format!("time of {:?}", entry.position()).into_bytes();
        self.held.close(entry, &payload)?;
        self.changed(entry.index);
        self.lines.push(Line::Entry(entry.clone(), payload, commit));
        Ok(())
    }

    fn append(&mut self, entry: &Entry, payload: &Payload, commit: u64) -> Result<()> {
        if !self.held.open.is_empty() {
            return Err(damaged("open records lie before another member's"));
        }
        if matches!(entry.content, Content::Records(_)) {
            let records = decode(payload).ok_or_else(|| damaged("a payload is no records"))?;
            self.lines.extend(records.into_iter().map(Line::Record));
        }
        self.lines.push(Line::Entry(entry.clone(), payload.to_vec(), commit));
        self.unapplied.push((entry.clone(), payload.to_vec()));
        Ok(())
    }

    fn apply_appended(&mut self) -> Result<()> {
        let mut unapplied = std::mem::take(&mut self.unapplied);
        if self.fault == Fault::AppliesAllButTheLast {
            unapplied.pop();
        }
        for (entry, payload) in unapplied {
            if matches!(entry.content, Content::Records(_)) {
                let records = decode(&payload).ok_or_else(|| damaged("a payload is no records"))?;
                self.held.open.extend(records);
            }
            self.held.close(&entry, &payload)?;
            self.changed(entry.index);
        }
        Ok(())
    }

    fn cut(&mut self, index: u64) -> Result<()> {
        self.check_applied()?;
        if index <= self.shown_to {
            return Err(damaged("what is shown is cut off"));
        }
        self.held.cut(index);
        self.changed(index);
        self.gathered.clear();
        if self.fault != Fault::ForgetsCuts {
            self.lines.push(Line::Cut(index));
        }
        Ok(())
    }

    fn discard_open(&mut self) -> Result<()> {
        self.check_applied()?;
        self.gathered.clear();
        if !self.held.open.is_empty() {
            self.held.open.clear();
            self.lines.push(Line::DiscardOpen);
        }
        Ok(())
    }

    fn older(&self) -> Box<dyn Older> {
        let (entries, first) = (Arc::clone(&self.older), Arc::clone(&self.first));
        Box::new(OlderEntries { entries, first })
    }

    fn payload(&self, at: Position) -> Result<Option<Payload>> {
        let is_there =
            at.index >= self.first.load(Ordering::Relaxed) && self.fault != Fault::KeepsNoRecords;
        Ok(self.held_payload(at).filter(|_| is_there).map(Payload::from))
    }

    fn begin_sync(&mut self, number: u64) -> Result<()> {
        self.syncing.push_back((number, self.lines.len()));
        Ok(())
    }

    fn synced(&mut self) -> Result<u64> {
        if self.fault == Fault::FailsSyncs {
            return Err(Error::Journal("a sync failed".to_owned()));
        }
        if !self.slow {
            self.finish_syncs(usize::MAX);
        }
        if self.fault == Fault::LiesAboutSyncs {
            return Ok(self.syncing.back().map_or(self.synced, |(number, _)| *number));
        }
        Ok(self.synced)
    }

    fn committed(&mut self, entries: &[Entry], _configuration: &Configuration) -> Result<()> {
        self.check_applied()?;
        for entry in entries {
            if entry.index != self.shown_to + 1 {
                return Err(damaged("entries are applied out of order"));
            }
            let payload = self.held_payload(entry.position());
            let payload = payload.ok_or_else(|| damaged("what is decided is not there"))?;
            if matches!(entry.content, Content::Records(_)) {
                self.shown.extend(decode(&payload).unwrap_or_default());
            }
            self.shown_to = entry.index;
        }
        Ok(())
    }

    fn begin_anew(&mut self, at: Position, configuration: &Configuration) -> Result<()> {
        self.lines.push(Line::Begun(at, configuration.clone()));
        // On disk at once, as the real one's.
        self.safe = self.lines.len();
        let configuration = configuration.clone();
        self.held = Held { base: at, configuration, commit: at.index, ..Held::default() };
        self.gathered.clear();
        self.shown.clear();
        self.shown_to = at.index;
        self.first.fetch_max(at.index + 1, Ordering::Relaxed);
        self.changed(0);
        Ok(())
    }
}

struct OlderEntries {
    entries: Arc<Mutex<(Position, Vec<Entry>)>>,
    first: Arc<AtomicU64>,
}

impl OlderEntries {
    /// Where the entries begin, and all of them.
    fn with<T>(&self, work: impl FnOnce(Position, &[Entry]) -> T) -> T {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        work(entries.0, &entries.1)
    }
}

impl Older for OlderEntries {
    fn first(&self) -> u64 {
        self.first.load(Ordering::Relaxed)
    }

    fn position(&self, index: u64) -> Option<Position> {
        self.with(|base, entries| {
            if index == base.index {
                return Some(base);
            }
            let place = index.checked_sub(base.index + 1)? as usize;
            entries.get(place).map(Entry::position)
        })
    }

    fn entries(&self, low: u64, high: u64, most: usize, _most_bytes: u64) -> Vec<Entry> {
        let most = most.min(high.saturating_sub(low) as usize);
        let first = self.first();
        self.with(|base, entries| {
            let place = low.checked_sub(base.index + 1).filter(|_| low >= first);
            let found = place.map(|place| entries.iter().skip(place as usize).take(most));
            found.map(|found| found.cloned().collect()).unwrap_or_default()
        })
    }
}

fn damaged(what: &'static str) -> Error {
    Error::Journal(what.to_owned())
}

fn encode(out: &mut Vec<u8>, record: &Record) {
    out.extend_from_slice(&record.ts.to_le_bytes());
    out.extend_from_slice(&(record.bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&record.bytes);
}

fn decode(mut payload: &[u8]) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    while !payload.is_empty() {
        let (ts, rest) = payload.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        records.push(Record { ts: u64::from_le_bytes(*ts), bytes: bytes.to_vec() });
        payload = rest;
    }
    Some(records)
}

/// Term and vote in memory; always safe.
#[derive(Clone, Debug)]
pub struct MemoryPromises(MemberState);

impl MemoryPromises {
    /// Of that state.
    pub fn new(state: MemberState) -> Self {
        Self(state)
    }
}

impl Promises for MemoryPromises {
    fn state(&self) -> &MemberState {
        &self.0
    }

    fn keep(&mut self, hard: HardState, commit: u64) -> Result<()> {
        (self.0.term, self.0.vote) = (hard.term, hard.vote);
        self.0.commit_hint = self.0.commit_hint.max(commit);
        self.0.generation += 1;
        Ok(())
    }
}
