//! The journal of a member with data: an engine's, and before it a log of entries while the member is delayed.
//!
//! ```text
//!  not delayed   append ─► engine's log and trees ─► decided: shown
//!  delayed       append ─► log of entries ─► decided, on disk and old enough ─► engine's log and trees, shown at once
//! ```
//!
//! | Another delay | What happens |
//! |---|---|
//! | from none to some | the log of entries begins behind what is decided; what is not is moved there from the engine |
//! | to another, or to none | what is due by it is shown with the next steps |
//! | none, and everything decided is shown | what is not decided is moved to the engine, the log of entries ends |
//!
//! While the log of entries has a beginning it is what this member acknowledges from; so the start finds out by it.
//! A crash within a change leaves entries in both, and the start ends the change.
//!
//! Always true:
//! 1. While there is a log of entries, all that the engine has is decided, shown, and was in that log on disk before.
//! 2. Nothing is shown before its time, unless the log of entries has no room left: then the oldest, and it is said.
//! 3. Entries leave the log of entries once a checkpoint of the engine has them.

mod front;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::Engine;
use os::sync::Mutex;
use quorum::{Configuration, Content, Descriptor, Entry, Older, Position, codec};

use crate::engine_journal::{EngineJournal, check_payload, content_of, journal_result, position};
use crate::entry_log::{EntryLog, FoundEntries};
use crate::error::{Error, Result};
use crate::journal::{HeldBack, Journal, LoadedLog};
use crate::observer::Observer;
use crate::payload::Payload;
use crate::syncs::{SyncMode, Syncs};
use front::{CombinedOlder, Front};

/// Where the log of entries of a delayed member is.
#[derive(Clone, Debug)]
pub struct DelayLog {
    /// Its directory, beside the engine's files.
    pub name: &'static str,
    /// Whether that directory is there: of a member that was never delayed it is not.
    pub exists: bool,
    /// Bytes of entries that are held back at most.
    pub most_bytes: u64,
}

/// The journal.
pub struct DelayableJournal<O> {
    engine: EngineJournal<O>,
    front: Option<Front>,
    /// The log of entries, without a beginning.
    idle: Option<EntryLog>,
    beside: DelayLog,
    mode: SyncMode,
    /// `None` until it is told: nothing that is held back is shown before.
    delay: Option<u32>,
    /// Clients' records may come.
    has_writers: bool,
    found: FoundEntries,
    syncs: SyncNumbers,
    /// The log of entries, for who asks for older entries.
    shared: Arc<Mutex<Option<EntryLog>>>,
}

/// Which sync of which log stands for which number of consensus.
#[derive(Default)]
struct SyncNumbers {
    begun: u64,
    /// Numbers of consensus, and of the sync of the log.
    pending: VecDeque<(u64, u64)>,
    synced: u64,
}

impl SyncNumbers {
    fn next(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// Everything is on disk.
    fn all_synced(&mut self) {
        if let Some((newest, _)) = self.pending.drain(..).next_back() {
            self.synced = newest;
        }
    }

    fn synced_up_to(&mut self, number: u64) -> u64 {
        while let Some((of_consensus, _)) = self.pending.pop_front_if(|(_, own)| *own <= number) {
            self.synced = of_consensus;
        }
        self.synced
    }
}

impl<O: Observer> DelayableJournal<O> {
    /// Over an engine that holds commits back, as [`EngineJournal::new`].
    ///
    /// # Errors
    /// The log of entries is damaged, or it and the engine do not fit together.
    pub fn open(engine: Engine, observer: O, mode: SyncMode, beside: DelayLog) -> Result<Self> {
        let mut journal = Self {
            engine: EngineJournal::new(engine, observer, mode.clone())?,
            front: None,
            idle: None,
            beside,
            mode,
            delay: None,
            has_writers: false,
            found: FoundEntries::default(),
            syncs: SyncNumbers::default(),
            shared: Arc::default(),
        };
        if journal.beside.exists {
            let (log, found) = journal.open_log()?;
            if log.is_begun() {
                journal.go_on(log, found)?;
            } else {
                journal.idle = Some(log);
            }
        }
        Ok(journal)
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        self.engine.engine()
    }

    /// Who observes.
    pub fn observer(&mut self) -> &mut O {
        self.engine.observer()
    }

    /// Ends syncs that wait for it: see [`SyncMode::WhenTold`].
    ///
    /// # Errors
    /// A sync failed.
    pub fn finish_syncs(&mut self) -> Result<()> {
        if let Some(front) = &self.front {
            front.syncs.finish()?;
        }
        self.engine.finish_syncs()
    }

    /// The engine gets some of what this member has, whatever the delay, and once that is shown also what is not decided:
    /// the set goes on with this member alone. Returns whether it has everything now, on disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn take_in(&mut self) -> Result<bool> {
        self.delay = Some(0);
        self.show_due(i64::MAX)?;
        Ok(self.front.is_none())
    }

    fn open_log(&self) -> Result<(EntryLog, FoundEntries)> {
        EntryLog::open(journal_result(self.engine().log_beside(self.beside.name))?)
    }

    fn set_front(&mut self, front: Front) {
        *self.shared.lock() = Some(front.log.clone());
        self.front = Some(front);
    }

    fn front_over(&self, log: EntryLog, applied: u64) -> Result<Front> {
        let synced = log.clone();
        let syncs = Syncs::start(Arc::new(move || synced.sync()), self.mode.clone())?;
        Ok(Front::new(log, syncs, applied, self.beside.most_bytes))
    }

    /// A start with a log of entries that has a beginning.
    fn go_on(&mut self, log: EntryLog, mut found: FoundEntries) -> Result<()> {
        let engine = self.engine().clone();
        let last = engine.entries().last.index;
        let common = last.min(log.last().index);
        if log.position(common).is_none() || log.position(common) != position(&engine, common) {
            let what = format!(
                "the log of entries has {:?} to {:?}, which does not follow the engine's entry {last}",
                log.first(),
                log.last(),
            );
            return Err(Error::Journal(what));
        }
        // What a change that was interrupted had not moved.
        let moved = move_entries(&engine, &log, log.last().index)?;
        found.entries.extend(moved);
        let decided = found.decided.at.index.max(engine.committed_index());
        found.commit = found.commit.max(decided);
        let applied = decided.min(last);
        let shown = entries_behind(&engine, engine.committed_index(), applied)?;
        self.engine.show(&shown, None)?;
        if last > applied {
            self.engine.cut(applied + 1)?;
        }
        let mut front = self.front_over(log, applied)?;
        front.configurations.extend(std::mem::take(&mut found.configurations));
        front.tell_configurations(&engine)?;
        self.found = found;
        self.set_front(front);
        Ok(())
    }

    /// From now on entries come into the log of entries: it begins behind what is decided.
    fn begin_front_where_due(&mut self) -> Result<()> {
        let is_due = self.front.is_none() && self.delay.is_some_and(|delay| delay > 0);
        // Who leads hands over first.
        if !is_due || self.has_writers {
            return Ok(());
        }
        let engine = self.engine().clone();
        let commit = engine.committed_index();
        let at = position(&engine, commit)
            .ok_or_else(|| Error::Journal(format!("the decided entry {commit} is not known")))?;
        let configuration = match engine.configuration_at(commit) {
            Some(told) => codec::decode_configuration(&told)?,
            None => Configuration::default(),
        };
        let log = match self.idle.take() {
            Some(log) => log,
            None => self.open_log()?.0,
        };
        log.begin(at, &configuration)?;
        let moved = move_entries(&engine, &log, commit)?;
        if !moved.is_empty() {
            self.engine.cut(commit + 1)?;
        }
        self.syncs.all_synced();
        let front = self.front_over(log, commit)?;
        self.set_front(front);
        Ok(())
    }

    /// Where nothing is to be held back any more, and everything decided is shown: entries come into the engine.
    fn end_front_where_due(&mut self) -> Result<bool> {
        let Some(front) = self.front.take_if(|front| self.delay == Some(0) && front.shows_all())
        else {
            return Ok(false);
        };
        let log = front.log;
        log.sync().map_err(Error::Journal)?;
        for index in front.applied + 1..=log.last().index {
            let (entry, payload) = front::read(&log, index)?;
            self.engine.append(&entry, &payload, front.applied)?;
            self.engine.apply_appended()?;
        }
        journal_result(self.engine().sync())?;
        // From here on the engine is what this member acknowledges from.
        log.end()?;
        self.syncs.all_synced();
        *self.shared.lock() = None;
        self.idle = Some(log);
        Ok(true)
    }
}

/// The engine's entries behind `index`, up to `until`.
fn entries_behind(engine: &Engine, index: u64, until: u64) -> Result<Vec<Entry>> {
    let heads = engine.entry_heads(index).into_iter().take_while(|head| head.index <= until);
    let entry = |head: engine::EntryHead| {
        let content = content_of(engine, &head)?;
        Ok(Entry { term: head.term, index: head.index, content })
    };
    heads.map(entry).collect()
}

/// The log of entries gets the engine's entries behind `index`. On disk when this returns.
fn move_entries(engine: &Engine, log: &EntryLog, index: u64) -> Result<Vec<Entry>> {
    let entries = entries_behind(engine, index, u64::MAX)?;
    for entry in &entries {
        let payload = journal_result(engine.entry_records(entry.index))?;
        log.append(entry, &payload, index)?;
    }
    log.sync().map_err(Error::Journal)?;
    Ok(entries)
}

impl<O: Observer> Journal for DelayableJournal<O> {
    fn load(&mut self) -> Result<LoadedLog> {
        if self.front.is_none() {
            return self.engine.load();
        }
        Ok(std::mem::take(&mut self.found).into())
    }

    fn check_running(&self) -> Result<()> {
        self.engine.check_running()
    }

    fn describe_open(&mut self, most: u64) -> Option<Descriptor> {
        self.engine.describe_open(most)
    }

    fn reset_description(&mut self) {
        self.engine.reset_description();
    }

    fn open_bytes(&self) -> u64 {
        self.engine.open_bytes()
    }

    fn is_open_awaited(&self) -> bool {
        self.engine.is_open_awaited()
    }

    fn waiting(&self) -> u64 {
        self.engine.waiting()
    }

    fn take_released(&mut self) -> u64 {
        self.engine.take_released()
    }

    fn wake_from(&self, waiting: u64) {
        self.engine.wake_from(waiting);
    }

    fn takes_writes(&self) -> bool {
        self.front.is_none()
    }

    fn lead(&mut self) -> Result<()> {
        if self.front.is_some() {
            return Err(Error::Journal("a delayed member takes no writes".to_owned()));
        }
        self.has_writers = true;
        self.engine.lead()
    }

    fn write_entry(&mut self, entry: &Entry, commit: u64) -> Result<()> {
        let Some(front) = &self.front else { return self.engine.write_entry(entry, commit) };
        if matches!(entry.content, Content::Records(_)) {
            let what = "a delayed member has no records of its own";
            return Err(Error::Journal(what.to_owned()));
        }
        front.log.append(entry, &[], commit)
    }

    fn append(&mut self, entry: &Entry, payload: &Payload, commit: u64) -> Result<()> {
        self.begin_front_where_due()?;
        match &self.front {
            Some(front) => front.log.append(entry, payload, commit),
            None => self.engine.append(entry, payload, commit),
        }
    }

    /// Of a delayed member there is nothing: its engine gets entries when they are shown.
    fn apply_appended(&mut self) -> Result<()> {
        self.engine.apply_appended()
    }

    fn cut(&mut self, index: u64) -> Result<()> {
        self.has_writers = false;
        match &self.front {
            Some(front) => front.log.cut(index),
            None => self.engine.cut(index),
        }
    }

    fn discard_open(&mut self) -> Result<()> {
        self.has_writers = false;
        self.engine.discard_open()
    }

    fn older(&self) -> Box<dyn Older> {
        Box::new(CombinedOlder { log: Arc::clone(&self.shared), engine: self.engine.older() })
    }

    fn payload(&self, at: Position) -> Result<Option<Payload>> {
        if let Some(front) = &self.front
            && at.index > self.engine.log_begins().load(Ordering::Relaxed)
            && let Some(payload) = front.log.payload(at)?
        {
            return Ok(Some(payload.into()));
        }
        self.engine.payload(at)
    }

    fn check(&self, content: &Content, payload: &Payload) -> std::result::Result<(), &'static str> {
        check_payload(content, payload)
    }

    fn has_room(&self, bytes: u64) -> bool {
        match &self.front {
            Some(front) => front.log.has_room(bytes),
            None => self.engine.has_room(bytes),
        }
    }

    fn set_log_begins(&mut self, index: u64) {
        self.engine.set_log_begins(index);
    }

    fn begin_sync(&mut self, number: u64) -> Result<()> {
        let own = self.syncs.next();
        self.syncs.pending.push_back((number, own));
        match &self.front {
            Some(front) => front.syncs.begin(own),
            None => self.engine.begin_sync(own),
        }
    }

    fn synced(&mut self) -> Result<u64> {
        let done = match &self.front {
            Some(front) => front.syncs.synced()?,
            None => self.engine.synced()?,
        };
        Ok(self.syncs.synced_up_to(done))
    }

    fn committed(&mut self, entries: &[Entry], configuration: &Configuration) -> Result<()> {
        self.begin_front_where_due()?;
        match &mut self.front {
            Some(front) => front.decide(entries, configuration),
            None => self.engine.committed(entries, configuration),
        }
    }

    fn set_delay(&mut self, seconds: u32) {
        self.delay = Some(seconds);
    }

    fn show_due(&mut self, wall_ms: i64) -> Result<bool> {
        self.begin_front_where_due()?;
        let (Some(front), Some(delay)) = (&mut self.front, self.delay) else { return Ok(false) };
        let shown = front.show_due(&mut self.engine, wall_ms, delay)?;
        if shown {
            // Who follows the history sees what is on disk.
            self.engine.begin_sync(self.syncs.next())?;
        }
        Ok(self.end_front_where_due()? || shown)
    }

    fn held_back(&self) -> Option<HeldBack> {
        let last = self.engine().entries().last;
        let front = self.front.as_ref()?;
        let shown = (last.timestamp, last.time);
        Some(front.held_back(self.delay.unwrap_or(0), shown))
    }
}
