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
use crate::payload::Payload;
use crate::syncs::{SyncMode, Syncs};
use std::sync::Arc;

/// The journal.
pub struct WitnessJournal {
    log: EntryLog,
    syncs: Syncs,
    found: FoundEntries,
    most_bytes: u64,
    /// What all members with data have, once they were heard of.
    others_have: u64,
    /// The first entry that was left where the log became as long as it may be.
    shortened_to: u64,
    /// How often in a row it was told that somebody lacks what is gone by that, and has got no further.
    lacking: u32,
    has_given_up: bool,
}

/// Members tell every two seconds how far they are. Behind so many times without a step somebody is away, and not just
/// busy.
const AWAY: u32 = 3;

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
        Ok(Self {
            log,
            syncs,
            found,
            most_bytes,
            others_have: 0,
            shortened_to: 0,
            lacking: 0,
            has_given_up: false,
        })
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
        Ok(std::mem::take(&mut self.found).into())
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

    fn append(&mut self, entry: &Entry, payload: &Payload, commit: u64) -> Result<()> {
        self.log.append(entry, payload, commit)
    }

    fn apply_appended(&mut self) -> Result<()> {
        Ok(())
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

    fn payload(&self, at: Position) -> Result<Option<Payload>> {
        Ok(self.log.payload(at)?.map(Payload::from))
    }

    fn check(&self, content: &Content, payload: &Payload) -> std::result::Result<(), &'static str> {
        check_payload(content, payload)
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.log.has_room(bytes)
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
        let first = self.log.first();
        self.log.shorten_to(self.most_bytes)?;
        let begins = self.log.first();
        if begins > first {
            self.shortened_to = begins;
        }
        Ok(())
    }

    fn begin_anew(&mut self, at: Position, configuration: &Configuration) -> Result<()> {
        (self.shortened_to, self.lacking, self.has_given_up) = (0, 0, false);
        self.log.begin(at, configuration)
    }

    fn others_have(&mut self, index: u64) -> Result<()> {
        let before = std::mem::replace(&mut self.others_have, index);
        let lacks = index.saturating_add(1) < self.shortened_to;
        self.lacking = if lacks && index == before { self.lacking.saturating_add(1) } else { 0 };
        self.has_given_up = lacks && (self.has_given_up || self.lacking >= AWAY);
        self.log.forget_up_to(index)
    }

    fn has_given_up(&self) -> bool {
        self.has_given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::sim::SimOs;
    use quorum::MemberId;
    use std::path::Path;
    use telemetry::Registry;
    use wal::{Metrics, Wal, WalOptions};

    const BASE: Position = Position { term: 1, index: 1 };

    /// Entries from one index to the one before another, decided, and on disk.
    fn decide(journal: &mut WitnessJournal, configuration: &Configuration, from: u64, to: u64) {
        for index in from..to {
            let payload = Payload::from(vec![7; 1000]);
            let records = Descriptor {
                last_ts: index,
                last_time: index,
                bytes: payload.len() as u32,
                checksum: crc32c::crc32c(&payload),
            };
            let entry = Entry { term: 1, index, content: Content::Records(records) };
            journal.append(&entry, &payload, index - 1).unwrap();
            journal.log.decide(entry.position(), configuration, true).unwrap();
            journal.begin_sync(index).unwrap();
            journal.apply_appended().unwrap();
            journal.committed(&[entry], configuration).unwrap();
        }
    }

    #[test]
    fn what_a_member_lacks_is_given_up_at_the_bound_and_that_is_said() {
        let sim = SimOs::new(1);
        let options = WalOptions {
            segment_bytes: 16 << 10,
            recycle: 1,
            buffer_bytes: 4 << 10,
            compress_from: wal::NEVER_COMPRESS,
        };
        let metrics = Metrics::new(&Registry::new());
        let files = Wal::open(&sim.os(), Path::new("/entries"), options, metrics).unwrap();
        let configuration = Configuration::of_voters([1, 2, 3].map(MemberId));
        let mut journal = WitnessJournal::open(files, SyncMode::Inline, 256 << 10).unwrap();
        journal.begin(BASE, &configuration).unwrap();
        // All have what there is: what goes is needed by nobody.
        for from in (2..1002).step_by(100) {
            decide(&mut journal, &configuration, from, from + 100);
            journal.others_have(from + 99).unwrap();
        }
        assert!(!journal.has_given_up() && journal.log.first() > 900);
        // One is away, and the log is shorter than the bound yet.
        decide(&mut journal, &configuration, 1002, 1102);
        journal.others_have(1001).unwrap();
        assert!(!journal.has_given_up() && journal.log.first() <= 1002);
        decide(&mut journal, &configuration, 1102, 1502);
        assert!(journal.log.first() > 1002);
        // Who is busy gets on.
        for index in 1001..1010 {
            journal.others_have(index).unwrap();
            assert!(!journal.has_given_up());
        }
        let said = [0; 4].map(|_| {
            journal.others_have(1010).unwrap();
            journal.has_given_up()
        });
        assert_eq!(said, [false, false, false, true]);
        // It comes back, and has caught up.
        journal.others_have(1011).unwrap();
        assert!(journal.has_given_up());
        journal.others_have(1501).unwrap();
        assert!(!journal.has_given_up());
    }
}
