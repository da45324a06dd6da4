//! What goes into a node at its start, and what comes out of it: plain values.

use crate::entry::{Configuration, Entry, MemberId, Position};
use crate::message::{Message, ReadId, Snapshot};
use std::sync::Arc;

/// How a node behaves. Times are in ticks.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who this is.
    pub id: MemberId,
    /// Silence after which followers look for another leader; also the lease in which they stay with it.
    pub election_ticks: usize,
    /// Between two heartbeats of a leader; less than `election_ticks`.
    pub heartbeat_ticks: usize,
    /// A member that is handed over to, and does nothing for so long, is waited for no more.
    pub hand_over_ticks: usize,
    /// 0 for the members of the highest priority; each rank waits a tenth of `election_ticks` longer.
    pub rank: u32,
    /// Whether it may campaign: no for priority 0, frozen and stopping members.
    pub electable: bool,
    /// Messages with entries on their way to one member.
    pub max_in_flight: usize,
    /// Bytes of records in one message; one entry at least goes.
    pub max_message_bytes: u64,
    /// Bytes of records that a leader has proposed and nobody has decided.
    pub max_uncommitted_bytes: u64,
    /// Entries in memory; beyond it the oldest applied ones go, and come from [`crate::Older`].
    pub max_entries: usize,
}

impl Settings {
    /// The design's: ticks of 50 ms, two seconds of silence, a heartbeat every quarter of one.
    pub fn new(id: MemberId) -> Self {
        Self {
            id,
            election_ticks: 40,
            heartbeat_ticks: 5,
            hand_over_ticks: 20,
            rank: 0,
            electable: true,
            max_in_flight: 16,
            max_message_bytes: 1 << 20,
            max_uncommitted_bytes: 64 << 20,
            max_entries: 1 << 16,
        }
    }
}

/// Where a node begins: what its member's disk holds.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The newest term that was synced.
    pub hard_state: HardState,
    /// The commit index that was written with the last synced entries ([`Ready::commit`]), or more.
    pub commit: u64,
    /// The entry before `entries`.
    pub base: Position,
    /// The entries that are on disk, without gaps.
    pub entries: Vec<Entry>,
    /// Up to where entries were applied.
    pub applied: u64,
    /// The configuration as of `applied`. Empty for a member that has not been told; it waits for a
    /// snapshot, and its log is empty.
    pub configuration: Configuration,
}

/// What must be synced before a vote goes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The newest term.
    pub term: u64,
    /// Whom it voted for in that term.
    pub vote: Option<MemberId>,
}

/// What a member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It follows, or waits for somebody to follow.
    #[default]
    Follower,
    /// It asks whether it would be elected.
    PreCandidate,
    /// It asks for votes.
    Candidate,
    /// It leads.
    Leader,
}

/// A member's term, role and leader, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleState {
    /// The term.
    pub term: u64,
    /// What this member is in it.
    pub role: Role,
    /// Who leads, as far as this member knows.
    pub leader: Option<MemberId>,
}

/// A read that may begin once `index` is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPoint {
    /// As [`crate::Node::read_index`] named it.
    pub read: ReadId,
    /// Up to where must be applied.
    pub index: u64,
}

/// What is to be done, in this order: write, send, apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Where something is to be written: once all of it is synced, [`crate::Node::persisted`] is told
    /// this number. Writes of several readies are synced in their order.
    pub persist: Option<u64>,
    /// Term and vote to write.
    pub hard_state: Option<HardState>,
    /// The log begins anew behind this, and nothing of it stays.
    pub snapshot: Option<Snapshot>,
    /// The log from this index on is void; written before `entries`.
    pub cut: Option<u64>,
    /// Entries to append.
    pub entries: Vec<Entry>,
    /// To send at once. What may only go once it is synced comes out of [`crate::Node::persisted`].
    pub send: Vec<Message>,
    /// Entries that are decided now, each once and in order.
    pub committed: Vec<Entry>,
    /// The commit index. It is written with `entries` and synced with them: who has an entry that was
    /// appended behind a change of members must know for ever that the change is decided. A member
    /// that forgot it could be elected by the members before the change, beside a leader of those after it.
    pub commit: u64,
    /// Reads that may begin.
    pub reads: Vec<ReadPoint>,
    /// Who leads, where that or the term changed.
    pub role: Option<RoleState>,
}

/// How far another member is, as its leader knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Who.
    pub member: MemberId,
    /// Its log is the leader's, and synced, up to here.
    pub matched: u64,
    /// Entries go to it from here on.
    pub next: u64,
    /// How they go.
    pub phase: PeerPhase,
    /// It answered within the last election timeout.
    pub active: bool,
}

/// How entries go to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerPhase {
    /// One message at a time, until it is known where the logs meet.
    Probing,
    /// As they come.
    Replicating,
    /// Not before a snapshot has arrived.
    Snapshot,
}

/// The state of a node, for those who look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who this is.
    pub id: MemberId,
    /// Term, role, leader.
    pub role_state: RoleState,
    /// The commit index.
    pub commit_index: u64,
    /// What was handed out as committed, and counts as applied for changes of members.
    pub applied_index: u64,
    /// The first entry in memory.
    pub first: u64,
    /// The last entry.
    pub last: Position,
    /// The last entry that is synced here.
    pub synced_index: u64,
    /// The members.
    pub configuration: Arc<Configuration>,
    /// On a leader: the others and itself, by id.
    pub peers: Vec<Peer>,
    /// Bytes of records that were proposed and are not decided.
    pub uncommitted_bytes: u64,
    /// To whom the leader hands over.
    pub handing_over_to: Option<MemberId>,
}
