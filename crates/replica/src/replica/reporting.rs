//! What a member tells the others of itself, and what it does by what they have told.

use super::Replica;
use crate::error::Result;
use crate::frame::{Frame, MemberReport};
use crate::journal::Journal;
use crate::links::Links;
use crate::policy;
use crate::state_file::Promises;
use quorum::{Content, MemberId, Status};

impl<J: Journal, L: Links, P: Promises> Replica<J, L, P> {
    pub(super) fn report(&mut self, now_ms: u64, wall_ms: i64) -> bool {
        let due = self.reported_ms.is_none_or(|at| now_ms.saturating_sub(at) >= self.report_ms);
        if !due {
            return false;
        }
        self.reported_ms = Some(now_ms);
        let status = self.node.status();
        if self.leads {
            // The others keep what the bound allows: whoever leads next sends from its memory.
            let matched = status.peers.iter().map(|peer| peer.matched);
            self.node.compact_to(policy::forgets(status.applied_index, matched));
        }
        self.forget_what_others_have(&status);
        let members = status.configuration.members();
        let known = self.reports.len();
        self.reports.retain(|member, _| members.contains(member));
        self.reports_version += u64::from(self.reports.len() < known);
        let last = match (self.journal.held_back(), &self.applied.content) {
            (Some(held_back), _) => held_back.shown,
            (None, Content::Records(records)) => (records.last_ts, records.last_time),
            _ => (0, 0),
        };
        let report = MemberReport {
            from: self.id,
            term: status.role_state.term,
            applied: self.applied.index,
            synced: status.synced_index,
            last_ts: last.0,
            last_time: last.1,
            wall_ms,
            stopped: self.stopped.is_some(),
            in_maintenance: self.ineligibility.in_maintenance,
            frozen: self.ineligibility.frozen_until_ms.is_some(),
        };
        for member in members.into_iter().filter(|member| *member != self.id) {
            self.links.send(member, Frame::Report(report));
        }
        true
    }

    /// A witness keeps the entries that a member with data may need of it. What a member has applied and has on disk is
    /// decided, and its own for good. An error is met again by what is written next.
    fn forget_what_others_have(&mut self, status: &Status) {
        if !self.is_witness {
            return;
        }
        let has = |member: MemberId| {
            self.reports.get(&member).map_or(0, |report| report.applied.min(report.synced))
        };
        let members = status.configuration.members().into_iter();
        let with_data = members.filter(|member| !self.kinds.witnesses.contains(member));
        if let Some(index) = with_data.filter(|member| *member != self.id).map(has).min() {
            let _met_again = self.journal.others_have(index);
        }
    }

    /// Whether clients' writes come where this member leads.
    pub(super) fn may_take_writes(&self) -> bool {
        let is_delayed = self.kinds.delays.contains_key(&self.id);
        !self.is_witness && !is_delayed && self.journal.takes_writes()
    }

    /// A witness that leads, or a delayed member, hands over as soon as a member that may take writes has all entries,
    /// decided or not: what the others lack, that one may be able to give them, and the witness not (seed 671).
    pub(super) fn hand_over_without_writing(&mut self) -> Result<()> {
        if self.may_take_writes() || !self.leads || self.node.handing_over_to().is_some() {
            return Ok(());
        }
        let status = self.node.status();
        let is_able = |peer: &&quorum::Peer| {
            let report = self.reports.get(&peer.member).copied().unwrap_or_default();
            peer.member != self.id
                && peer.active
                && peer.matched == status.last.index
                // One that votes only until a change is over is handed nothing (seed 792).
                && status.configuration.voters.contains(&peer.member)
                && report.may_lead()
        };
        let able = status.peers.iter().filter(is_able);
        let ranked =
            able.filter_map(|peer| Some((self.kinds.ranks.get(&peer.member)?, peer.member)));
        let Some((_, next)) = ranked.min() else { return Ok(()) };
        // What consensus refuses now is asked for again with the next step.
        if self.node.transfer_to(next).is_err() {
            return Ok(());
        }
        self.work()
    }
}
