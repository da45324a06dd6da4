//! What the layers above ask of a member, and what they can see of it.

use super::{Event, Ineligibility, Kinds, NeedsCopy, Replica};
use crate::error::Result;
use crate::frame::MemberReport;
use crate::journal::{HeldBack, Journal};
use crate::links::Links;
use crate::policy;
use crate::state_file::Promises;
use quorum::{Change, Configuration, MemberId, Position, ReadId, Status};
use std::collections::BTreeMap;
use std::sync::Arc;

impl<J: Journal, L: Links, P: Promises> Replica<J, L, P> {
    /// Proposes a configuration; [`quorum::Node::propose_configuration`] says when that can be.
    pub fn propose_configuration(
        &mut self,
        changes: Vec<Change>,
        document: Vec<u8>,
    ) -> Result<Position> {
        let at = self.node.propose_configuration(changes, document)?;
        self.guarded(Self::work)?;
        Ok(at)
    }

    /// Hands over to that member.
    pub fn transfer_to(&mut self, member: MemberId) -> Result<()> {
        self.node.transfer_to(member)?;
        self.guarded(Self::work)
    }

    /// Campaigns at once, where the others would vote for it.
    pub fn campaign_now(&mut self) -> Result<()> {
        self.node.campaign_now()?;
        self.guarded(Self::work)
    }

    /// Asks from where on a read is up to date; an [`Event::Read`] answers.
    pub fn read_index(&mut self) -> Result<ReadId> {
        let read = self.node.read_index()?;
        self.guarded(Self::work)?;
        Ok(read)
    }

    /// Whether and how early this member campaigns.
    pub fn set_priority(&mut self, electable: bool, rank: u32) {
        self.priority = (electable, rank);
        self.apply_priority();
    }

    /// What the members are.
    pub fn set_kinds(&mut self, kinds: Kinds) {
        self.journal.set_log_begins(kinds.log_begins);
        self.journal.set_delay(kinds.delays.get(&self.id).copied().unwrap_or(0));
        self.kinds = kinds;
    }

    /// Whether this member takes entries of others. Where it does not, they are as good as lost, and come again; it goes
    /// on voting, and answering its leader. For tests.
    pub fn set_takes_entries(&mut self, takes: bool) {
        self.takes_entries = takes;
    }

    /// How long no word from the leader comes before an election, in milliseconds; heartbeats go with it.
    pub fn set_election_timeout(&mut self, election_ms: u64) {
        self.tick_ms = policy::tick_ms(election_ms, self.election_ticks, self.least_election_ms);
        self.node.set_hand_over_ticks(policy::hand_over_ticks(self.tick_ms, self.election_ticks));
    }

    /// This member does not campaign before that time, by the clock of [`Replica::step`]; `None` ends that.
    pub fn freeze(&mut self, until_ms: Option<u64>) {
        self.ineligibility.frozen_until_ms = until_ms;
        self.apply_priority();
    }

    /// Whether the operator keeps this member from leading. The others are told.
    pub fn set_maintenance(&mut self, is_on: bool) {
        self.ineligibility.in_maintenance = is_on;
        self.apply_priority();
    }

    pub(super) fn apply_priority(&mut self) {
        let (electable, rank) = self.priority;
        self.node.set_priority(electable && self.ineligibility == Ineligibility::default(), rank);
        // The others are told at once: a leader may be looking for who takes over.
        self.reported_ms = None;
    }

    /// A copy of the leader's data and log is about to be made, which takes the place of this member's at its next
    /// start. Until then it acknowledges nothing that the copy might lack: it takes no entries, and never leads. It
    /// votes. Returns who leads; `None` where no copy is needed any more.
    ///
    /// Whatever is decided and this member had a part in is in the log of that leader now, and stays there, also
    /// where it leads no more: so the copy may be made at any time from here on.
    pub fn begin_copy(&mut self) -> Option<NeedsCopy> {
        let now = self.node.role_state();
        let needed = self.needs_copy.filter(|needed| now.leader == Some(needed.leader))?;
        self.ineligibility.copying = true;
        self.apply_priority();
        Some(needed)
    }

    /// The copy is not made: this member goes on as it is.
    pub fn end_copy(&mut self) {
        self.ineligibility.copying = false;
        self.needs_copy = None;
        self.apply_priority();
    }

    /// Whether clients' records may come into the journal: this member leads, has applied what the
    /// leaders before it decided, and is not handing over.
    pub fn is_writable(&self) -> bool {
        self.writable && self.stopped.is_none() && self.node.handing_over_to().is_none()
    }

    /// What happened since it was asked last.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Whether this member lacks what its leader's log has no more.
    pub fn needs_copy(&self) -> Option<NeedsCopy> {
        self.needs_copy
    }

    /// What this member has and does not show yet.
    pub fn held_back(&self) -> Option<HeldBack> {
        self.journal.held_back()
    }

    /// What the others last said of themselves.
    pub fn reports(&self) -> &BTreeMap<MemberId, MemberReport> {
        &self.reports
    }

    /// Grows whenever [`Replica::reports`] says something else.
    pub fn reports_version(&self) -> u64 {
        self.reports_version
    }

    /// The state of consensus.
    pub fn status(&self) -> Status {
        self.node.status()
    }

    /// Who the members are.
    pub fn configuration(&self) -> &Arc<Configuration> {
        self.node.configuration()
    }

    /// Whether a witness has let go of what a member with data lacks, because its log was as long as it may be.
    pub fn has_given_up(&self) -> bool {
        self.journal.has_given_up()
    }

    /// Why this member has stopped.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// The journal.
    pub fn journal(&mut self) -> &mut J {
        &mut self.journal
    }

    /// The links.
    pub fn links(&mut self) -> &mut L {
        &mut self.links
    }

    /// Takes the member apart.
    pub fn into_parts(self) -> (J, L, P) {
        (self.journal, self.links, self.promises)
    }
}
