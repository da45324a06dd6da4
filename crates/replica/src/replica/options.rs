//! How a member behaves, what the members are, and what the layers above hear: plain values.

use quorum::{MemberId, Position, ReadPoint, RoleState, Settings};
use std::collections::{BTreeMap, BTreeSet};

/// How a member behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Consensus.
    pub settings: Settings,
    /// Milliseconds of a tick.
    pub tick_ms: u64,
    /// Between two reports to the others.
    pub report_ms: u64,
    /// It votes and keeps entries, applies none, and takes no writes.
    pub is_witness: bool,
}

/// What the members are, as the newest configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Those that apply nothing.
    pub witnesses: BTreeSet<MemberId>,
    /// Those that show entries so many seconds after their commit.
    pub delays: BTreeMap<MemberId, u32>,
    /// Those that may take writes, and how many priorities are above theirs.
    pub ranks: BTreeMap<MemberId, u32>,
    /// Entries up to this one are sent to nobody; see [`Journal::set_log_begins`].
    pub log_begins: u64,
}

impl Kinds {
    /// Whether that member has no data, or not all of what it has acknowledged: nobody copies it.
    pub(super) fn lacks_data(&self, member: MemberId) -> bool {
        self.witnesses.contains(&member) || self.delays.contains_key(&member)
    }
}

impl Options {
    /// The design's: ticks of 50 ms, a report every two seconds.
    pub fn new(id: MemberId) -> Self {
        Self { settings: Settings::new(id), tick_ms: 50, report_ms: 2000, is_witness: false }
    }
}

/// What the layers above must hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Another role, leader or term.
    Role(RoleState),
    /// This member leads, and what the leaders before it had decided is applied: it takes writes.
    Writable,
    /// A read may begin.
    Read(ReadPoint),
    /// A configuration is decided, and applied.
    Configured {
        /// Its entry.
        at: Position,
        /// As the layers above wrote it.
        document: Vec<u8>,
    },
}

/// A member that lacks entries which its leader does not have any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsCopy {
    /// Who leads, and said so.
    pub leader: MemberId,
    /// The place behind which the leader's log begins.
    pub log_begins: Position,
}
