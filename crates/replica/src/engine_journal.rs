//! The redo log of an engine as a member's journal.
//!
//! | Of the seam | In the engine |
//! |---|---|
//! | open records | commits that no entry closes; [`engine::Engine::gather`] seals a part of them |
//! | an entry without records | an entry record; of a configuration, with its content as bytes |
//! | a cut | a cut record, on disk before memory forgets; writers are refused first, and waited for |
//! | applying | at [`Journal::apply_appended`]: the commits are complete, and held back |
//! | committed | they become visible, and the [`Observer`] hears of them |
//! | the configuration as of what was applied | told with the entry behind which it counts; the checkpoint keeps it |
//!
//! A start begins with the newest entry of the checkpoint: what is behind it is decided again, from the commit
//! index that stands with the entries. What was visible by then is not told to the observer again.
//!
//! Always true: transactions commit from [`Journal::lead`] until [`Journal::discard_open`] or
//! [`Journal::cut`], and those that were open at either end never do.

mod older;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{CommitStep, DictionaryId, Engine, EntryHead, EntryKind, Timestamp};
use os::sync::Mutex;
use quorum::{Configuration, Content, Descriptor, Entry, Older, Position, codec};

use crate::error::{Error, Result};
use crate::journal::{Journal, LoadedLog};
use crate::observer::{Observed, Observer};
use crate::payload::{Payload, WeakPayload};
use crate::syncs::{SyncMode, Syncs};
use older::OlderEntries;

/// Payloads that are found again while they are on their way to a member: messages to several are made one after the
/// other.
const MOST_SENDING: usize = 64;

/// The journal.
pub struct EngineJournal<O> {
    engine: Engine,
    observer: O,
    syncs: Syncs,
    /// Entries up to here were told to the observer, or need not be.
    observed_index: u64,
    /// Entries of this member's clients since its start that are not decided.
    own: BTreeSet<u64>,
    /// Entries up to this one are sent to nobody.
    log_begins: Arc<AtomicU64>,
    /// Payloads that somebody may still be sending.
    sending: Mutex<VecDeque<(Position, WeakPayload)>>,
}

fn failed(error: &engine::Error) -> Error {
    Error::Journal(error.to_string())
}

/// Results of the engine as those of a journal.
pub(crate) fn journal_result<T>(result: engine::Result<T>) -> Result<T> {
    result.map_err(|error| failed(&error))
}

impl<O: Observer> EngineJournal<O> {
    /// Over an engine that holds commits back ([`engine::Showing::Committed`]). Its state is what is visible:
    /// whoever observes begins with that.
    ///
    /// # Errors
    /// Where there is no thread for syncs.
    pub fn new(engine: Engine, observer: O, mode: SyncMode) -> Result<Self> {
        let log = engine.clone();
        let sync = Arc::new(move || log.sync().map_err(|error| error.to_string()));
        let syncs = Syncs::start(sync, mode)?;
        let observed_index = engine.committed_index();
        // Clients' commits come when it leads.
        engine.forbid_writes();
        let (own, log_begins) = (BTreeSet::new(), Arc::default());
        let sending = Mutex::default();
        Ok(Self { engine, observer, syncs, observed_index, own, log_begins, sending })
    }

    /// Makes an engine's directory the beginning of a set's log: its commits are those of the entry `at`,
    /// behind which `configuration` counts. On disk when it returns.
    ///
    /// # Errors
    /// There is a log already, or commits that are not visible.
    pub fn begin(engine: &Engine, at: Position, configuration: &Configuration) -> Result<()> {
        let configuration = codec::encode_configuration(configuration);
        journal_result(engine.begin_entries((at.term, at.index), &configuration))
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Who observes.
    pub fn observer(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Ends syncs that wait for it: see [`SyncMode::WhenTold`].
    ///
    /// # Errors
    /// A sync failed.
    pub fn finish_syncs(&mut self) -> Result<()> {
        self.syncs.finish()
    }

    fn position(&self, index: u64) -> Option<Position> {
        position(&self.engine, index)
    }

    /// The payload of an entry, where it is on its way to another member.
    fn is_sent(&self, at: Position) -> Option<Payload> {
        let sending = self.sending.lock();
        let (_, payload) = sending.iter().rev().find(|(position, _)| *position == at)?;
        payload.upgrade()
    }

    fn sends(&self, at: Position, payload: Payload) -> Payload {
        let mut sending = self.sending.lock();
        if sending.len() >= MOST_SENDING {
            sending.pop_front();
        }
        sending.push_back((at, payload.downgrade()));
        payload
    }

    /// Entries up to this one are sent to nobody: shared with who answers for what is older.
    pub(crate) fn log_begins(&self) -> &Arc<AtomicU64> {
        &self.log_begins
    }

    /// Shows entries that are decided; where `configuration` is there, it counts behind the last of them.
    pub(crate) fn show(
        &mut self,
        entries: &[Entry],
        configuration: Option<&Configuration>,
    ) -> Result<()> {
        let Some(last) = entries.last() else { return Ok(()) };
        for entry in entries {
            let at = entry.position();
            if self.position(at.index) != Some(at) {
                return Err(Error::Journal(format!("committed entry {at:?} is not in the log")));
            }
            let has_records = matches!(entry.content, Content::Records(_));
            let is_own = self.own.remove(&entry.index);
            if has_records && entry.index > self.observed_index && !is_own {
                self.tell(entry.index)?;
            }
        }
        if let Some(configuration) = configuration {
            let configuration = codec::encode_configuration(configuration);
            journal_result(self.engine.apply_configuration(last.index, &configuration))?;
        } else {
            journal_result(self.engine.commit_entries_up_to(last.index))?;
        }
        if last.index > self.observed_index {
            self.observed_index = last.index;
            let visible = self.engine.visible().timestamp();
            let shown = self.observer.visible(visible);
            shown.map_err(|error| cannot_follow(&error))?;
        }
        Ok(())
    }

    /// Whether the observer is told of an entry's commits: not where they have written to nothing that it follows.
    fn is_told_of(&mut self, index: u64) -> Result<bool> {
        let Some(written) = self.engine.written_dictionaries(index) else { return Ok(true) };
        let has_none = written.len() == 0;
        for dictionary in written {
            if self.observer.follows(dictionary).map_err(|error| cannot_follow(&error))? {
                return Ok(true);
            }
        }
        // Whoever observes hears of each entry at least once.
        Ok(has_none)
    }

    /// Tells the observer of an entry's commits, and shows what stands alone.
    fn tell(&mut self, index: u64) -> Result<()> {
        if !self.is_told_of(index)? {
            return Ok(());
        }
        let Self { engine, observer, .. } = self;
        let mut refused = None;
        // Of the dictionary that the commit at hand wrote to last, whether the observer follows it.
        let mut follows = None;
        let read = engine.each_commit(index, &mut |step| {
            let done = match step {
                CommitStep::Write { dictionary, key, value } => {
                    match asked(&mut follows, observer, dictionary) {
                        Ok(true) => observer.read(dictionary, key, value),
                        Ok(false) => Ok(()),
                        Err(error) => Err(error),
                    }
                }
                // The catalog makes none of its records this way.
                CommitStep::Update { .. } => Ok(()),
                CommitStep::End(commit) => match ended(&mut follows, observer, commit) {
                    Ok(true) => {
                        let before = Timestamp(commit.0.saturating_sub(1));
                        engine.advance_commit_point(before)?;
                        let shown = observer.visible(before);
                        engine.advance_commit_point(commit)?;
                        shown.and_then(|()| observer.visible(commit))
                    }
                    Ok(false) => Ok(()),
                    Err(error) => Err(error),
                },
            };
            done.map_err(|error| {
                refused = Some(error);
                engine::Error::Interrupted
            })
        });
        match refused {
            Some(error) => Err(cannot_follow(&error)),
            None => journal_result(read),
        }
    }
}

fn cannot_follow(error: &str) -> Error {
    Error::Journal(format!("the catalog cannot follow the commits: {error}"))
}

/// Whether the observer follows a dictionary, which it was asked of the one before.
fn asked<O: Observer>(
    before: &mut Option<(DictionaryId, bool)>,
    observer: &mut O,
    dictionary: DictionaryId,
) -> Observed<bool> {
    match before {
        Some((of, follows)) if *of == dictionary => Ok(*follows),
        _ => {
            let follows = observer.follows(dictionary)?;
            *before = Some((dictionary, follows));
            Ok(follows)
        }
    }
}

/// A commit's writes were told: what the observer follows may be something else behind it.
fn ended<O: Observer>(
    follows: &mut Option<(DictionaryId, bool)>,
    observer: &mut O,
    commit: Timestamp,
) -> Observed<bool> {
    *follows = None;
    observer.before_visible(commit)
}

impl<O: Observer> Journal for EngineJournal<O> {
    fn load(&mut self) -> Result<LoadedLog> {
        let before = self.engine.entries().before;
        let mut entries = Vec::new();
        for head in self.engine.entry_heads(before.index) {
            let content = content_of(&self.engine, &head)?;
            entries.push(Entry { term: head.term, index: head.index, content });
        }
        let stored = self.engine.configuration_at(before.index);
        let configuration = match stored {
            Some(stored) => codec::decode_configuration(&stored)?,
            None => Configuration::default(),
        };
        Ok(LoadedLog {
            base: Position { term: before.term, index: before.index },
            entries,
            commit: self.engine.committed_index(),
            applied: before.index,
            configuration,
        })
    }

    fn check_running(&self) -> Result<()> {
        journal_result(self.engine.check_running())
    }

    fn describe_open(&mut self, most: u64) -> Option<Descriptor> {
        debug_assert!(most >= crate::MAX_ENTRY_BYTES, "parts are cut when their records come");
        let records = self.engine.gather()?;
        Some(Descriptor {
            last_ts: records.last_timestamp,
            last_time: records.last_time,
            // A longer one is refused when it is closed: it is not what was gathered.
            bytes: u32::try_from(records.bytes).unwrap_or(u32::MAX),
            checksum: records.checksum,
        })
    }

    fn reset_description(&mut self) {
        self.engine.ungather();
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
        self.engine.notify_from(waiting);
    }

    fn lead(&mut self) -> Result<()> {
        self.engine.allow_writes();
        Ok(())
    }

    fn write_entry(&mut self, entry: &Entry, commit: u64) -> Result<()> {
        let (kind, content) = kind_of(&entry.content);
        let place = (entry.term, entry.index);
        let head = journal_result(self.engine.close_entry(place, kind, &content, commit))?;
        let head =
            head.ok_or_else(|| Error::Journal("there are no pending records to close".into()))?;
        if matches!(entry.content, Content::Records(_)) {
            if content_of(&self.engine, &head)? != entry.content {
                return Err(Error::Journal("an entry is not of what was gathered".into()));
            }
            self.own.insert(entry.index);
        }
        Ok(())
    }

    fn append(&mut self, entry: &Entry, payload: &Payload, commit: u64) -> Result<()> {
        let last = self.engine.entries().last;
        let (kind, content) = kind_of(&entry.content);
        let (last_timestamp, last_time, checksum) = match &entry.content {
            Content::Records(records) => (records.last_ts, records.last_time, records.checksum),
            _ => (last.timestamp, last.time, 0),
        };
        let head = EntryHead {
            index: entry.index,
            term: entry.term,
            kind,
            first_timestamp: last.timestamp.saturating_add(1),
            last_timestamp,
            last_time,
            committed: commit,
            bytes: payload.len() as u64,
            checksum,
        };
        match payload.records() {
            Some(records) => {
                journal_result(self.engine.append_read_entry(&head, &content, records))
            }
            None => {
                Err(Error::Journal(format!("the records of {:?} cannot be read", entry.position())))
            }
        }
    }

    fn apply_appended(&mut self) -> Result<()> {
        journal_result(self.engine.apply_appended())
    }

    fn cut(&mut self, index: u64) -> Result<()> {
        self.engine.forbid_writes();
        journal_result(self.engine.cut(index))?;
        self.own.split_off(&index);
        Ok(())
    }

    fn discard_open(&mut self) -> Result<()> {
        self.engine.forbid_writes();
        journal_result(self.engine.discard_open())
    }

    fn older(&self) -> Box<dyn Older> {
        Box::new(OlderEntries::new(&self.engine, &self.log_begins))
    }

    fn payload(&self, at: Position) -> Result<Option<Payload>> {
        let log_begins = self.log_begins.load(Ordering::Relaxed);
        if self.position(at.index) != Some(at) || at.index <= log_begins {
            return Ok(None);
        }
        if let Some(payload) = self.is_sent(at) {
            return Ok(Some(payload));
        }
        match self.engine.entry_records(at.index) {
            Ok(records) => Ok(Some(self.sends(at, records.into()))),
            Err(engine::Error::HistoryLost) => Ok(None),
            // This member does not need it any more: it must not stop because another one does.
            Err(engine::Error::Corruption(_)) if at.index <= self.engine.entries().before.index => {
                Ok(None)
            }
            Err(error) => Err(failed(&error)),
        }
    }

    fn check(&self, content: &Content, payload: &Payload) -> std::result::Result<(), &'static str> {
        check_payload(content, payload)
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.engine.has_room_for_entries(bytes)
    }

    fn set_log_begins(&mut self, index: u64) {
        self.log_begins.store(index, Ordering::Relaxed);
    }

    fn begin_sync(&mut self, number: u64) -> Result<()> {
        self.syncs.begin(number)
    }

    fn synced(&mut self) -> Result<u64> {
        self.syncs.synced()
    }

    fn committed(&mut self, entries: &[Entry], configuration: &Configuration) -> Result<()> {
        let changes = entries.iter().any(|entry| changes_configuration(&entry.content));
        self.show(entries, changes.then_some(configuration))
    }
}

/// Whether another configuration counts behind an entry with this content.
pub(crate) fn changes_configuration(content: &Content) -> bool {
    matches!(content, Content::Configuration { .. } | Content::Joined)
}

/// Whether an engine would take these as the records of an entry with this content.
pub(crate) fn check_payload(
    content: &Content,
    payload: &Payload,
) -> std::result::Result<(), &'static str> {
    match content {
        Content::Records(_) if payload.is_empty() => Err("there are none"),
        Content::Records(records) => {
            let (last_ts, last_time) = (records.last_ts, records.last_time);
            let read = payload.records();
            let ends = read.is_some_and(|read| read.end_with(last_ts, last_time));
            if ends { Ok(()) } else { Err("they cannot be read") }
        }
        _ if payload.is_empty() => Ok(()),
        _ => Err("there are some"),
    }
}

pub(crate) fn position(engine: &Engine, index: u64) -> Option<Position> {
    engine.entry(index).map(|id| Position { term: id.term, index: id.index })
}

pub(crate) fn content_of(engine: &Engine, head: &EntryHead) -> Result<Content> {
    Ok(match head.kind {
        EntryKind::Fence => Content::Fence,
        EntryKind::Records => Content::Records(Descriptor {
            last_ts: head.last_timestamp,
            last_time: head.last_time,
            bytes: u32::try_from(head.bytes)
                .map_err(|_| Error::Journal("an entry of more than 4 GiB".to_owned()))?,
            checksum: head.checksum,
        }),
        EntryKind::Configuration => {
            let (_, content, _) = journal_result(engine.read_entry(head.index))?;
            codec::decode_content(&content)?
        }
    })
}

/// What an entry is in the log; its content where it has no records.
fn kind_of(content: &Content) -> (EntryKind, Vec<u8>) {
    match content {
        Content::Records(_) => (EntryKind::Records, Vec::new()),
        Content::Fence => (EntryKind::Fence, Vec::new()),
        Content::Configuration { .. } | Content::Joined => {
            (EntryKind::Configuration, codec::encode_content(content))
        }
    }
}
