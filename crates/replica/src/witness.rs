//! The journal of a witness: a voter that keeps the log's entries with their records, and applies none of them.
//!
//! | Of the seam | Here |
//! |---|---|
//! | open records, leading | none: nobody writes to a witness |
//! | an entry of another member | appended to the log of entries |
//! | committed | written down from time to time, and with each change of the configuration |
//! | a place of the leader's, behind which it goes on | the log begins anew there |
//! | what all members with data have | is let go of |
//!
//! Always true: entries that a member with data lacks stay, as long as they are no more than the bound says; so a set
//! whose primary is gone gets from its witness what it acknowledged.

use quorum::{Configuration, Content, Descriptor, Entry, Older, Position};
use wal::Replay;

use crate::engine_journal::{changes_configuration, check_payload};
use crate::entry_log::{EntryLog, FoundEntries};
use crate::error::{Error, Result};
use crate::journal::{Journal, LoadedLog};
use crate::syncs::{SyncMode, Syncs};
use std::sync::Arc;

/// The journal.
pub struct WitnessJournal {
    log: EntryLog,
    syncs: Syncs,
    found: FoundEntries,
    most_bytes: u64,
}

impl WitnessJournal {
    /// Over the files of a log of entries (see [`engine::Engine::log_beside`]). Of those that a member lacks it keeps
    /// `most_bytes`.
    ///
    /// # Errors
    /// They are damaged.
    pub fn open(files: Replay, mode: SyncMode, most_bytes: u64) -> Result<Self> {
        let (log, found) = EntryLog::open(files)?;
        let synced = log.clone();
        let syncs = Syncs::start(Arc::new(move || synced.sync()), mode)?;
        Ok(Self { log, syncs, found, most_bytes })
    }

    /// Whether the log has a beginning.
    pub fn is_begun(&self) -> bool {
        self.log.is_begun()
    }

    /// The log.
    pub fn log(&self) -> &EntryLog {
        &self.log
    }

    /// The log begins behind a place. On disk when this returns.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin(&mut self, at: Position, configuration: &Configuration) -> Result<()> {
        self.log.begin(at, configuration)?;
        let decided = self.log.decided();
        self.found = FoundEntries { decided, commit: at.index, ..FoundEntries::default() };
        Ok(())
    }

    /// Ends syncs that wait for it: see [`SyncMode::WhenTold`].
    ///
    /// # Errors
    /// A sync failed.
    pub fn finish_syncs(&mut self) -> Result<()> {
        self.syncs.finish()
    }
}

impl Journal for WitnessJournal {
    fn load(&mut self) -> Result<LoadedLog> {
        let FoundEntries { decided, entries, commit, .. } = std::mem::take(&mut self.found);
        Ok(LoadedLog {
            base: decided.at,
            entries,
            commit,
            applied: decided.at.index,
            configuration: decided.configuration,
        })
    }

    fn describe_open(&mut self, _most: u64) -> Option<Descriptor> {
        None
    }

    fn reset_description(&mut self) {}

    fn open_bytes(&self) -> u64 {
        0
    }

    fn takes_writes(&self) -> bool {
        false
    }

    fn lead(&mut self) -> Result<()> {
        Err(Error::Journal("a witness takes no writes".to_owned()))
    }

    fn write_entry(&mut self, entry: &Entry, commit: u64) -> Result<()> {
        if matches!(entry.content, Content::Records(_)) {
            return Err(Error::Journal("a witness has no records of its own".to_owned()));
        }
        self.log.append(entry, &[], commit)
    }

    fn append(&mut self, entry: &Entry, payload: &[u8], commit: u64) -> Result<()> {
        self.log.append(entry, payload, commit)
    }

    fn cut(&mut self, index: u64) -> Result<()> {
        self.log.cut(index)
    }

    fn discard_open(&mut self) -> Result<()> {
        Ok(())
    }

    fn older(&self) -> Box<dyn Older> {
        self.log.older()
    }

    fn payload(&self, at: Position) -> Result<Option<Vec<u8>>> {
        self.log.payload(at)
    }

    fn check(&self, content: &Content, payload: &[u8]) -> std::result::Result<(), &'static str> {
        check_payload(content, payload)
    }

    fn has_room(&self) -> bool {
        self.log.has_room()
    }

    fn begin_sync(&mut self, number: u64) -> Result<()> {
        self.syncs.begin(number)
    }

    fn synced(&mut self) -> Result<u64> {
        self.syncs.synced()
    }

    fn committed(&mut self, entries: &[Entry], configuration: &Configuration) -> Result<()> {
        let Some(last) = entries.last() else { return Ok(()) };
        let changes = entries.iter().any(|entry| changes_configuration(&entry.content));
        self.log.decide(last.position(), configuration, changes)?;
        self.log.shorten_to(self.most_bytes)
    }

    fn begin_anew(&mut self, at: Position, configuration: &Configuration) -> Result<()> {
        self.log.begin(at, configuration)
    }

    fn others_have(&mut self, index: u64) -> Result<()> {
        self.log.forget_up_to(index)
    }
}
