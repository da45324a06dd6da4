//! What can be seen of a node.

use raft::{ProgressState, StateRole};
use std::sync::Arc;

use super::Node;
use crate::entry::{Configuration, Entry, MemberId, Position};
use crate::outcome::{Peer, PeerPhase, Role, RoleState, Status};
use crate::translate::{configuration_out, entry_out};

impl Node {
    /// Term, role, leader.
    pub fn role_state(&self) -> RoleState {
        let raft = &self.raft.raft;
        let role = match raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::PreCandidate => Role::PreCandidate,
            StateRole::Candidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        };
        let leader = Some(MemberId(raft.leader_id)).filter(|leader| *leader != MemberId(0));
        RoleState { term: raft.term, role, leader }
    }

    /// Whether this member leads.
    pub fn leads(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// To whom this leader hands over.
    pub fn handing_over_to(&self) -> Option<MemberId> {
        self.raft.raft.lead_transferee.map(MemberId)
    }

    /// The last entry.
    pub fn last(&self) -> Position {
        let log = &self.raft.raft.raft_log;
        Position { term: log.last_term(), index: log.last_index() }
    }

    /// Up to where entries were handed out as committed.
    pub fn applied(&self) -> u64 {
        self.raft.raft.raft_log.applied
    }

    /// The place up to which entries were handed out as committed, where it is known.
    pub fn applied_position(&self) -> Option<Position> {
        let index = self.applied();
        let term = self.raft.raft.raft_log.term(index).ok().filter(|term| *term > 0)?;
        Some(Position { term, index })
    }

    /// The entry of that index, where it is in memory.
    pub fn entry(&self, index: u64) -> Option<Entry> {
        self.raft.store().get(index).and_then(|entry| entry_out(entry).ok())
    }

    /// Who the members are, as of what is applied.
    pub fn configuration(&self) -> &Arc<Configuration> {
        &self.configuration
    }

    /// All of it, for those who look.
    pub fn status(&self) -> Status {
        let raft = &self.raft.raft;
        debug_assert_eq!(
            *self.configuration,
            configuration_out(&raft.prs().conf().to_conf_state())
        );
        let mut peers = Vec::new();
        if self.leads() {
            let peer = |(id, progress): (&u64, &raft::Progress)| Peer {
                member: MemberId(*id),
                matched: progress.matched,
                next: progress.next_idx,
                phase: match progress.state {
                    ProgressState::Probe => PeerPhase::Probing,
                    ProgressState::Replicate => PeerPhase::Replicating,
                    ProgressState::Snapshot => PeerPhase::Snapshot,
                },
                active: progress.recent_active || *id == raft.id,
            };
            peers.extend(raft.prs().iter().map(peer));
            peers.sort_unstable_by_key(|peer| peer.member);
        }
        Status {
            id: self.settings.id,
            role_state: self.role_state(),
            commit_index: raft.raft_log.committed,
            applied_index: self.applied(),
            first: self.raft.store().base().index + 1,
            last: self.last(),
            synced_index: raft.raft_log.persisted,
            configuration: Arc::clone(&self.configuration),
            peers,
            uncommitted_bytes: self.uncommitted_bytes,
            handing_over_to: self.handing_over_to(),
        }
    }
}
