//! How a leader hands over, and for how long it waits for the member that is to take over.
//!
//! While it waits nothing can be proposed, so it waits for a member that comes on, and for no other one. Raft asks that member
//! once to campaign, and waits for an election timeout whatever becomes of the question; and each hand-over puts off the
//! moment at which a leader notices that no majority hears it. Here the question is repeated with each tick, and time goes on
//! as it would without the hand-over.

use super::Node;
use crate::entry::MemberId;
use crate::error::{Error, Result};

/// A hand-over that is under way.
#[derive(Clone, Copy)]
pub(super) struct HandOver {
    /// Ticks since it began, and since the member was seen to get entries.
    since_begun: usize,
    since_progress: usize,
    /// What the member had then.
    matched: u64,
}

impl Node {
    /// Hands over to that voter once it has all entries. Nothing can be proposed until it leads, or this ends: it does
    /// nothing for [`crate::Settings::hand_over_ticks`], an election timeout has passed, or its port is closed.
    pub fn transfer_to(&mut self, member: MemberId) -> Result<()> {
        if !self.leads() {
            return Err(Error::NotLeader);
        }
        if member == self.settings.id || !self.configuration().voters.contains(&member) {
            return Err(Error::Invalid("the leader hands over to another voter"));
        }
        if self.handing_over_to() == Some(member) {
            return Ok(());
        }
        let since_quorum = self.raft.raft.election_elapsed;
        self.raft.transfer_leader(member.0);
        self.raft.raft.election_elapsed = since_quorum;
        let matched = self.matched(member);
        self.hand_over = Some(HandOver { since_begun: 0, since_progress: 0, matched });
        self.settle(false);
        Ok(())
    }

    /// This leader goes on: the member that it hands over to cannot lead.
    pub fn end_transfer(&mut self) {
        self.raft.raft.abort_leader_transfer();
        self.hand_over = None;
    }

    /// After how many ticks a member that is handed over to and does nothing is waited for no more.
    pub fn set_hand_over_ticks(&mut self, ticks: usize) {
        self.settings.hand_over_ticks = ticks;
    }

    /// A tick of time has passed, before which this leader handed over to `to`.
    pub(super) fn go_on_handing_over(&mut self, to: Option<MemberId>) {
        let (Some(to), Some(before), true) = (to, self.hand_over, self.leads()) else {
            self.hand_over = None;
            return;
        };
        let matched = self.matched(to);
        let since_progress = if matched > before.matched { 0 } else { before.since_progress + 1 };
        let now = HandOver { since_begun: before.since_begun + 1, since_progress, matched };
        let is_over = now.since_begun >= self.settings.election_ticks
            || now.since_progress >= self.settings.hand_over_ticks;
        if is_over {
            self.end_transfer();
            return;
        }
        self.hand_over = Some(now);
        // Raft has ended it where it was time to look for a quorum.
        self.raft.raft.lead_transferee = Some(to.0);
        if matched == self.raft.raft.raft_log.last_index() {
            self.raft.raft.send_timeout_now(to.0);
        }
    }

    fn matched(&self, member: MemberId) -> u64 {
        self.raft.raft.prs().get(member.0).map_or(0, |progress| progress.matched)
    }
}
