//! The interface to the log and to the engine above it.
//!
//! Records come into a leader's journal from its clients, in the order of their timestamps, and are *open*
//! until an entry is made of them: [`Journal::describe_open`] says what is open, consensus gives the entry its
//! place, [`Journal::write_entry`] writes it behind its records. On the other members entry and records come
//! together, by [`Journal::append`]; while the disk brings them to safety, [`Journal::apply_appended`] puts them where
//! they will be read.
//!
//! An entry's *payload* is what must go to the other members beside it: of records their raw bytes, of
//! other entries whatever the journal wrote with them (a time, for instance).

use quorum::{Configuration, Content, Descriptor, Entry, Older, Position};

use crate::entry_log::FoundEntries;
use crate::error::Result;
use crate::payload::Payload;

/// What [`Journal::load`] found: the log at a start.
#[derive(Clone, Debug, Default)]
pub struct LoadedLog {
    /// The entry before `entries`.
    pub base: Position,
    /// The entries, in order, as they stand after all cuts.
    pub entries: Vec<Entry>,
    /// The commit index that stands with the last entry, or more.
    pub commit: u64,
    /// The last entry that was applied for good.
    pub applied: u64,
    /// The configuration as of `applied`.
    pub configuration: Configuration,
}

impl From<FoundEntries> for LoadedLog {
    /// What a log of entries has, of which everything that is decided is applied, or need not be.
    fn from(found: FoundEntries) -> Self {
        let FoundEntries { decided, entries, commit, .. } = found;
        Self {
            base: decided.at,
            entries,
            commit,
            applied: decided.at.index,
            configuration: decided.configuration,
        }
    }
}

/// Bytes that an entry takes in a log, about: of a small one most are not its records'.
pub(crate) fn log_bytes(entry: &Entry) -> u64 {
    const OWN_RECORD: u64 = 256;
    entry.record_bytes() + OWN_RECORD
}

/// What a delayed member has and does not show yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// For how many seconds.
    pub seconds: u32,
    /// The timestamp and the time of the newest commit that it shows.
    pub shown: (u64, u64),
    /// Entries that are decided and not shown, and the bytes that they take, rounded up.
    pub entries: u64,
    /// See there.
    pub bytes: u64,
    /// There is no room for the whole delay: entries are shown as late as the room allows.
    pub is_short: bool,
}

/// The log of a member.
pub trait Journal {
    /// Reads the log. Called once, first.
    fn load(&mut self) -> Result<LoadedLog>;

    /// Fails where nothing can be written any more: a member that cannot must not lead on, though nobody writes.
    fn check_running(&self) -> Result<()> {
        Ok(())
    }

    /// Describes open records, in their order, `most` bytes of them and one at least; `None` where
    /// none is open. What was described stays open until its entry is written, and the next call
    /// goes on behind it.
    fn describe_open(&mut self, most: u64) -> Option<Descriptor>;

    /// Forgets what was described and is still open: the next call of `describe_open` begins with
    /// it again.
    fn reset_description(&mut self);

    /// Bytes of records that are open and not described.
    fn open_bytes(&self) -> u64;

    /// Whether somebody waits for those.
    fn is_open_awaited(&self) -> bool {
        true
    }

    /// How many wait for open records, as far as that is known.
    fn waiting(&self) -> u64 {
        u64::MAX
    }

    /// How many were told that what they waited for is decided, since this was asked last.
    fn take_released(&mut self) -> u64 {
        0
    }

    /// How many must wait for open records before this member's thread is woken for them.
    fn wake_from(&self, _waiting: u64) {}

    /// This member leads, and what the leaders before it decided is applied: clients' records may come, until
    /// [`Journal::discard_open`] or [`Journal::cut`].
    fn lead(&mut self) -> Result<()>;

    /// Writes an entry that this member made itself; of open records it is made of those that were
    /// described first. The commit index is written with it, and a start must find it again: see
    /// [`quorum::Ready::commit`].
    fn write_entry(&mut self, entry: &Entry, commit: u64) -> Result<()>;

    /// Writes an entry of another member into the log, with its payload, which was checked against it, and the
    /// commit index. Behind some of these, and [`Journal::begin_sync`], comes [`Journal::apply_appended`], before
    /// anything else that changes the log or is told of it.
    fn append(&mut self, entry: &Entry, payload: &Payload, commit: u64) -> Result<()>;

    /// What was appended is put where it will be read, once it is decided.
    fn apply_appended(&mut self) -> Result<()>;

    /// Entries from `index` on, and all open records, are void: the next entry has that index.
    fn cut(&mut self, index: u64) -> Result<()>;

    /// Open records are void: this member leads no more.
    fn discard_open(&mut self) -> Result<()>;

    /// The entries that consensus no longer has in memory, for members that were away.
    fn older(&self) -> Box<dyn Older>;

    /// The payload of an entry, be it in consensus' memory or older; `None` where that entry is not there (any more).
    fn payload(&self, at: Position) -> Result<Option<Payload>>;

    /// Whether a payload can be that of an entry with this content; its length and checksum are checked. What
    /// is wrong with it otherwise. Nothing that passes makes [`Journal::append`] fail, where it comes in its
    /// place.
    fn check(
        &self,
        _content: &Content,
        _payload: &Payload,
    ) -> std::result::Result<(), &'static str> {
        Ok(())
    }

    /// Whether there is room for entries of another member that are so many bytes, in memory and on the disk. Where
    /// there is none, they are as good as lost: they come again. Where there is, appending them does not fail for want of it.
    fn has_room(&self, _bytes: u64) -> bool {
        true
    }

    /// Begins to sync all that was written so far, as number `number`; numbers ascend.
    fn begin_sync(&mut self, number: u64) -> Result<()>;

    /// The newest number that is synced, and with it all before it.
    fn synced(&mut self) -> Result<u64>;

    /// These entries are decided: apply and show them. In order, each once, and none is empty.
    /// `configuration` is that which counts behind the last of them.
    fn committed(&mut self, entries: &[Entry], configuration: &Configuration) -> Result<()>;

    /// Of a witness: the log begins anew behind a place up to which all is decided, and `configuration` counts there.
    /// On disk when this returns.
    fn begin_anew(&mut self, _at: Position, _configuration: &Configuration) -> Result<()> {
        Err(crate::error::Error::Journal("this member's log is not begun anew".to_owned()))
    }

    /// Entries up to this one are sent to nobody, though the log has them: the set was forced to go on behind it, and
    /// what its configuration is since then follows from no entry.
    fn set_log_begins(&mut self, _index: u64) {}

    /// Whether clients' records may come where this member leads. Of one that keeps entries without applying them, or
    /// applies them later, they may not.
    fn takes_writes(&self) -> bool {
        true
    }

    /// So many seconds after its commit an entry is shown at the earliest.
    fn set_delay(&mut self, _seconds: u32) {}

    /// Shows what is decided and, at this time of the day, old enough: some of it. Returns whether there was any.
    fn show_due(&mut self, _wall_ms: i64) -> Result<bool> {
        Ok(false)
    }

    /// What is held back by a delay; `None` of a journal that shows what is decided.
    fn held_back(&self) -> Option<HeldBack> {
        None
    }

    /// Of a witness: its log is as long as it may be, and what a member with data lacks was let go of.
    fn has_given_up(&self) -> bool {
        false
    }

    /// All members with data have the entries up to this one, and have applied them.
    fn others_have(&mut self, _index: u64) -> Result<()> {
        Ok(())
    }
}
