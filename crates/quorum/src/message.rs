//! What members say to each other about the log, as plain values: [`crate::codec`] makes bytes of
//! them, and `translate` what the raft crate understands.
//!
//! A message says nothing that is not checked by its receiver before it is acted on.

use crate::entry::{Configuration, Entry, MemberId, Position};

/// Names one read that waits for a round of heartbeats: who asked, and that member's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId {
    /// Who asked.
    pub member: MemberId,
    /// The how-manyth of its questions.
    pub number: u64,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who says it.
    pub from: MemberId,
    /// To whom.
    pub to: MemberId,
    /// The sender's term; for a pre-vote the term it would have; 0 only for [`Body::ReadRequest`].
    pub term: u64,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The leader: these entries stand behind `previous`.
    Append {
        /// The entry before the first of `entries`.
        previous: Position,
        /// The leader's commit index.
        commit: u64,
        /// In order, without gaps.
        entries: Vec<Entry>,
    },
    /// My log is yours up to `index`, and synced that far.
    Accepted {
        /// The last entry that is the leader's.
        index: u64,
        /// The follower's commit index.
        commit: u64,
    },
    /// I do not have the entry that yours stand behind.
    Refused {
        /// Which one was asked for.
        index: u64,
        /// The last place at which the logs may still be equal.
        hint: Position,
        /// The follower's commit index.
        commit: u64,
    },
    /// Vote for me.
    VoteRequest {
        /// Only: would you.
        pre: bool,
        /// The leader asked me to, so a lease does not count.
        transfer: bool,
        /// The candidate's last entry.
        last: Position,
        /// The candidate's commit index, and the term of that entry.
        commit: Position,
    },
    /// The answer.
    Vote {
        /// To a pre-vote.
        pre: bool,
        /// Yes.
        granted: bool,
        /// Of one who refuses: its commit index and the term of that entry, else 0.
        commit: Position,
    },
    /// The leader is there.
    Heartbeat {
        /// As far as the receiver's log is known to be the leader's.
        commit: u64,
        /// The newest read that waits for answers.
        read: Option<ReadId>,
    },
    /// And I am here.
    HeartbeatAnswer {
        /// The follower's commit index.
        commit: u64,
        /// As asked.
        read: Option<ReadId>,
    },
    /// The leader hands over: campaign at once.
    CampaignNow,
    /// Up to where must I have applied to read what is newest now?
    ReadRequest(ReadId),
    /// Up to here.
    ReadAnswer {
        /// Which question.
        read: ReadId,
        /// The commit index that was confirmed.
        index: u64,
    },
    /// What you need is in no log any more: begin with this.
    Snapshot(Snapshot),
}

/// The state of a member up to a place of the log, described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last entry in it.
    pub position: Position,
    /// The configuration as of that entry.
    pub configuration: Configuration,
    /// Where to get it from; written and read by the layers above.
    pub data: Vec<u8>,
}
