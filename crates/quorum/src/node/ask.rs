//! What the layer above asks of a node: proposals, reads, and what it tells of its links.

use std::collections::BTreeSet;

use raft::{Changer, SnapshotStatus};

use super::{Haste, Node};
use crate::check::content;
use crate::entry::{Change, Content, Descriptor, Entry, MemberId, Position};
use crate::error::{Error, Result};
use crate::message::{ReadId, Snapshot};
use crate::translate::{change_in, configuration_out, content_bytes, read_in, snapshot_in};

/// Reads that wait for a round of heartbeats at once.
const MAX_READS: usize = 1024;

impl Node {
    /// Proposes records that the member's own log holds already. Returns the entry's position; it is
    /// decided when [`Ready::committed`] has it in this term, and void when another term's entry comes
    /// in its place.
    pub fn propose(&mut self, records: Descriptor) -> Result<Position> {
        self.may_propose(u64::from(records.bytes))?;
        self.propose_content(&Content::Records(records))
    }

    /// Proposes a configuration. Where it changes who the members are, the set goes through a joint
    /// configuration, which ends by itself. One at a time, and none before the leader's first entry is
    /// committed.
    pub fn propose_configuration(
        &mut self,
        changes: Vec<Change>,
        document: Vec<u8>,
    ) -> Result<Position> {
        self.may_propose(document.len() as u64)?;
        let asked = Content::Configuration { changes, document };
        content(&asked).map_err(Error::Invalid)?;
        let raft = &self.raft.raft;
        if !raft.commit_to_current_term() {
            return Err(Error::NotNow("the leader's first entry is not committed"));
        }
        if raft.has_pending_conf() || raft.prs().conf().to_conf_state().auto_leave {
            return Err(Error::NotNow("a change of the configuration is under way"));
        }
        if let Content::Configuration { changes, .. } = &asked
            && !changes.is_empty()
        {
            self.verify_change(changes)?;
        }
        self.propose_content(&asked)
    }

    fn verify_change(&self, changes: &[Change]) -> Result<()> {
        let named: BTreeSet<MemberId> = changes.iter().map(|change| change.member).collect();
        if named.len() < changes.len() {
            return Err(Error::Invalid("a change names a member twice"));
        }
        let asked = change_in(changes);
        let made = Changer::new(self.raft.raft.prs()).enter_joint(true, &asked.changes);
        let (made, _) = made.map_err(|_| Error::Invalid("the change leaves no voter"))?;
        configuration_out(&made.to_conf_state()).verify().map_err(Error::Invalid)
    }

    fn may_propose(&self, bytes: u64) -> Result<()> {
        if !self.leads() {
            return Err(Error::NotLeader);
        }
        if self.raft.raft.lead_transferee.is_some() {
            return Err(Error::NotNow("the leader is handing over"));
        }
        let most = self.settings.max_uncommitted_bytes;
        if self.uncommitted_bytes > 0 && self.uncommitted_bytes + bytes > most {
            return Err(Error::NotNow("too many bytes are not decided"));
        }
        if self.uncommitted.len() >= self.settings.max_entries {
            return Err(Error::NotNow("too many entries are not decided"));
        }
        Ok(())
    }

    fn propose_content(&mut self, asked: &Content) -> Result<Position> {
        let bytes = content_bytes(asked);
        let proposed = match asked {
            Content::Configuration { changes, .. } if !changes.is_empty() => {
                self.raft.propose_conf_change(bytes, change_in(changes))
            }
            _ => self.raft.propose(Vec::new(), bytes),
        };
        self.settle(false);
        proposed.map_err(|_| Error::NotNow("the leader takes nothing now"))?;
        let at = self.last();
        let bytes = Entry { term: at.term, index: at.index, content: asked.clone() }.record_bytes();
        // The entry goes with what is decided by now.
        self.told = self.raft.raft.raft_log.committed;
        self.uncommitted.push_back((at.index, bytes));
        self.uncommitted_bytes += bytes;
        Ok(at)
    }

    /// Asks up to where must be applied to read what is newest now; [`Ready::reads`] answers, or never
    /// where the leader is lost meanwhile.
    pub fn read_index(&mut self) -> Result<ReadId> {
        if self.leads() {
            self.may_read()?;
        } else if self.role_state().leader.is_none() {
            return Err(Error::NotNow("nobody leads"));
        }
        self.reads += 1;
        let read = ReadId { member: self.settings.id, number: self.reads };
        self.raft.read_index(read_in(read));
        self.settle(false);
        Ok(read)
    }

    pub(super) fn may_read(&self) -> Result<()> {
        let raft = &self.raft.raft;
        if !self.leads() {
            return Err(Error::NotLeader);
        }
        if !raft.commit_to_current_term() {
            return Err(Error::NotNow("the leader's first entry is not committed"));
        }
        if raft.pending_read_count() >= MAX_READS {
            return Err(Error::NotNow("too many reads wait"));
        }
        Ok(())
    }

    /// Asks for votes at once, beginning with the question whether it would get them. Where the leader
    /// is still heard by a majority it would not, and nothing changes.
    pub fn campaign_now(&mut self) -> Result<()> {
        if self.leads() || !self.may_campaign() {
            return Err(Error::Invalid("this member does not campaign"));
        }
        if !self.is_synced() {
            return Err(Error::NotNow("this member's log is not synced"));
        }
        let stepped = self.raft.campaign();
        self.settle(true);
        stepped.map_err(|_| Error::NotNow("this member does not campaign now"))
    }

    /// The port of that member is closed: its process is gone. Where it led, this member gives its
    /// lease up and campaigns within a few ticks.
    pub fn port_closed(&mut self, member: MemberId) {
        self.unreachable(member);
        if self.handing_over_to() == Some(member) {
            self.end_transfer();
        }
        if !self.leads() && self.role_state().leader == Some(member) {
            self.haste = Some(Haste { gone: member, term: self.raft.raft.term, attempts: 0 });
            self.settle(true);
        }
    }

    /// What was sent to that member is lost.
    pub fn unreachable(&mut self, member: MemberId) {
        self.raft.report_unreachable(member.0);
        self.settle(false);
    }

    /// A snapshot that was sent has arrived, or never will.
    pub fn snapshot_sent(&mut self, member: MemberId, arrived: bool) {
        let status = if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.raft.report_snapshot(member.0, status);
        self.settle(false);
    }

    /// What members get that need entries which are gone; `None` while there is nothing to offer.
    pub fn offer_snapshot(&mut self, snapshot: Option<&Snapshot>) -> Result<()> {
        if let Some(snapshot) = snapshot {
            snapshot.configuration.verify().map_err(Error::Invalid)?;
            if snapshot.position.index == 0 || snapshot.position.index > self.applied() {
                return Err(Error::Invalid("a snapshot is of what is applied"));
            }
        }
        self.raft.mut_store().offer(snapshot.map(snapshot_in));
        Ok(())
    }

    /// What members get that need entries which are gone is the place behind which this leader's log begins, and
    /// nothing else: who does not have it, and gets such a snapshot, needs a copy of the data, which comes on
    /// another way. See [`Node::holds`].
    pub fn offer_where_the_log_begins(&mut self) -> Result<()> {
        let log = &self.raft.raft.raft_log;
        let index = log.first_index().saturating_sub(1).min(self.applied());
        let Ok(term) = log.term(index) else { return Ok(()) };
        let position = Position { term, index };
        if index == 0 {
            return self.offer_snapshot(None);
        }
        let configuration = (*self.configuration).clone();
        self.offer_snapshot(Some(&Snapshot { position, configuration, data: Vec::new() }))
    }

    /// Whether this member's log has that entry, or everything that is decided up to it: a snapshot of that place
    /// changes nothing here, but that the leader learns of it.
    pub fn holds(&self, at: Position) -> bool {
        let log = &self.raft.raft.raft_log;
        log.committed > at.index || log.match_term(at.index, at.term)
    }

    /// Whether this member may campaign, and how early compared with the others.
    pub fn set_priority(&mut self, electable: bool, rank: u32) {
        let same = (self.settings.electable, self.settings.rank) == (electable, rank);
        (self.settings.electable, self.settings.rank) = (electable, rank);
        self.settle(!same);
    }

    /// Forgets entries up to that index, as far as they are applied.
    pub fn compact_to(&mut self, index: u64) {
        let index = index.min(self.applied());
        self.raft.mut_store().compact_to(index);
    }
}
