//! One member's consensus: the raft crate's `RawNode`, and what it lacks.
//!
//! | What raft does | What is done here |
//! |---|---|
//! | draws its timeouts from the thread's generator | they are set again, from the given numbers, after each change of term or role, before anything looks at them |
//! | panics on what cannot be | `check` refuses it first |
//! | takes it that a winner's log is synced | a member whose log is not, neither campaigns nor counts votes |
//! | a leader sends at once | not before its own vote is synced: a set of one voter elects itself without asking |
//! | asks a member once to take over, and waits for an election timeout | `hand_over`: asked with each tick, and waited for while it comes on |
//! | looks up its own progress in the leader | a leader that is no voter any more steps down as soon as it applies that |
//! | turns a change of members that cannot be now into an empty entry | it is refused before it is proposed |
//! | counts a descriptor's bytes | bytes of records are counted here |
//!
//! Always true: between two calls, raft's election timeout is `timeout`; what is in `held` waits for a
//! sync that was asked for; everything handed out as committed is applied to the configuration; `configuration` is raft's.

mod ask;
mod begin;
mod hand_over;
mod look;
mod ready;

use std::collections::VecDeque;
use std::sync::Arc;

use raft::eraftpb::HardState as RaftHardState;
use raft::{RawNode, StateRole};

use crate::check::{View, check};
use crate::entry::{Configuration, MemberId};
use crate::error::{Error, Result};
use crate::log::{MemoryLog, Older};
use crate::message::{Body, Message};
use crate::outcome::{HardState, RoleState, Settings, Start};
use crate::state::MAX_COUNT;
use crate::timeouts;
use crate::translate::{configuration_in, configuration_out, entry_in, message_in};

/// The leader's port was found closed, and nobody leads since.
#[derive(Clone, Copy)]
struct Haste {
    gone: MemberId,
    term: u64,
    attempts: u32,
}

/// One member.
pub struct Node {
    raft: RawNode<MemoryLog>,
    /// Who the members are. Raft's own form of it is made of sets each time that somebody looks.
    configuration: Arc<Configuration>,
    settings: Settings,
    random: Box<dyn FnMut() -> u64 + Send>,
    /// The election timeout, and for which term and role it was drawn.
    timeout: usize,
    drawn_for: (u64, StateRole),
    haste: Option<Haste>,
    /// What was last reported.
    role_state: RoleState,
    hard_state: HardState,
    /// Numbers of the newest ready with something to write, the newest with a hard state, the newest
    /// that was synced.
    written: u64,
    hard_written: u64,
    synced: u64,
    newest: u64,
    /// Messages, each with the write that must be synced before they go.
    held: VecDeque<(u64, Vec<Message>)>,
    /// A snapshot that is being written: by which ready, up to which index.
    installing: Option<(u64, u64)>,
    /// Index and bytes of what this leader proposed and nobody decided.
    uncommitted: VecDeque<(u64, u64)>,
    uncommitted_bytes: u64,
    /// The last decided entry that the others were told of as such, where that waits for what is proposed next; else 0.
    told: u64,
    reads: u64,
    /// How the hand-over that is under way goes.
    hand_over: Option<hand_over::HandOver>,
}

impl Node {
    /// A node over what its member's disk holds. `random` is asked for each election timeout.
    pub fn new(
        settings: Settings,
        start: Start,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Result<Self> {
        begin::verify_start(&settings, &start)?;
        let Start { mut hard_state, commit, base, entries, applied, configuration } = start;
        let last = base.index + entries.len() as u64;
        let newest = entries.last().map_or(base.term, |entry| entry.term);
        if newest > hard_state.term {
            // The log got further than the term did. No vote was given in that term: it would have
            // been synced first.
            hard_state = HardState { term: newest, vote: None };
        }
        let known = RaftHardState {
            term: hard_state.term,
            vote: hard_state.vote.unwrap_or_default().0,
            commit: commit.min(last).max(applied),
            ..RaftHardState::default()
        };
        let mut log = MemoryLog::new(base, known, configuration_in(&configuration));
        log.append(&entries.iter().map(entry_in).collect::<Vec<_>>());
        let config = raft::Config {
            id: settings.id.0,
            election_tick: settings.election_ticks,
            heartbeat_tick: settings.heartbeat_ticks,
            applied,
            max_size_per_msg: settings.max_message_bytes,
            max_inflight_msgs: settings.max_in_flight,
            check_quorum: true,
            pre_vote: true,
            min_election_tick: settings.election_ticks,
            max_election_tick: usize::MAX,
            max_committed_size_per_ready: settings.max_message_bytes,
            ..raft::Config::default()
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let raft = RawNode::new(&config, log, &silent)
            .map_err(|_| Error::Start("raft refuses its settings"))?;
        let mut random = random;
        let mut node = Self {
            configuration: Arc::default(),
            timeout: timeouts::NEVER,
            drawn_for: (0, StateRole::Leader),
            haste: None,
            role_state: RoleState { term: hard_state.term, ..RoleState::default() },
            hard_state,
            written: 0,
            hard_written: 0,
            synced: 0,
            newest: 0,
            held: VecDeque::new(),
            installing: None,
            uncommitted: VecDeque::new(),
            uncommitted_bytes: 0,
            told: 0,
            // Not from 1: answers to what was asked before a restart may still be on their way.
            reads: random() >> 1,
            hand_over: None,
            raft,
            settings,
            random,
        };
        node.look_at_configuration();
        node.settle(true);
        Ok(node)
    }

    /// Who has the entries that are no longer in memory. Asked while this member leads, for members that were
    /// away.
    pub fn set_older(&mut self, older: Box<dyn Older>) {
        self.raft.mut_store().set_older(older);
        self.look_back();
    }

    /// From now on the others hear of what is decided with the next entries, or where this is said by
    /// [`Node::tell_what_is_decided`]: a message less for each entry of a leader that is busy.
    pub fn tell_decisions_later(&mut self) {
        self.raft.raft.skip_bcast_commit(true);
    }

    /// Tells the others what is decided, where they were not told with entries since. Called after what is to be proposed
    /// was proposed.
    pub fn tell_what_is_decided(&mut self) {
        let committed = self.raft.raft.raft_log.committed;
        if self.leads() && committed > self.told {
            self.told = committed;
            self.raft.raft.bcast_append();
        }
    }

    /// How far back the log reaches is asked anew with each tick and each change of the role; between, what has
    /// gone since counts as gone where it is asked for.
    fn look_back(&mut self) {
        let leads = self.leads();
        if leads && let Some(first) = self.raft.store().first_in_the_log() {
            // What the log has let go of cannot be sent, though the window knows of it.
            self.compact_to(first.saturating_sub(1));
        }
        self.raft.mut_store().look_back(leads);
    }

    /// A tick of time has passed.
    pub fn tick(&mut self) {
        let leads = self.leads();
        let elapses = self.raft.raft.election_elapsed + 1 >= self.timeout;
        // Raft takes it that what a candidate has is synced: time stands still until it is.
        if !leads && elapses && !self.is_synced() {
            return;
        }
        self.look_back();
        let handing_over_to = self.handing_over_to();
        self.raft.tick();
        self.go_on_handing_over(handing_over_to);
        self.settle(!leads && elapses);
    }

    /// A message has come. An error says that it was not acted on.
    pub fn receive(&mut self, message: Message) -> Result<()> {
        check(&message, &self.view())?;
        if !self.would_act_on(&message) {
            return Ok(());
        }
        let from = message.from;
        let brings_configuration = matches!(message.body, Body::Snapshot(_));
        if message.term > self.raft.raft.term {
            // It leads no more, and is a follower before raft looks at the log.
            self.raft.mut_store().look_back(false);
        }
        let stepped = self.raft.step(message_in(message));
        if brings_configuration {
            self.look_at_configuration();
        }
        self.settle(false);
        match stepped {
            Ok(()) => Ok(()),
            Err(raft::Error::StepPeerNotFound) => Err(Error::NoMember { from }),
            Err(_) => Err(Error::Impossible { from, what: "raft refuses it" }),
        }
    }

    /// Whether raft gets the message at all. One that it does not get is as good as lost.
    fn would_act_on(&self, message: &Message) -> bool {
        match message.body {
            Body::Vote { .. } => self.is_synced(),
            Body::CampaignNow => {
                let leader = self.role_state().leader;
                let asked = leader == Some(message.from) && message.term == self.raft.raft.term;
                asked && self.may_campaign() && self.is_synced()
            }
            Body::ReadRequest(_) => self.may_read().is_ok(),
            _ => true,
        }
    }

    fn view(&self) -> View {
        View {
            me: self.settings.id,
            term: self.raft.raft.term,
            leader: self.role_state().leader,
            last: self.raft.raft.raft_log.last_index(),
            configured: !self.configuration.voters.is_empty(),
        }
    }

    /// After whatever may have changed who the members are.
    fn look_at_configuration(&mut self) {
        let now = configuration_out(&self.raft.raft.prs().conf().to_conf_state());
        if now != *self.configuration {
            self.configuration = Arc::new(now);
        }
    }

    /// Whether all that was written is synced, and nothing waits to be written.
    fn is_synced(&self) -> bool {
        let log = &self.raft.raft.raft_log;
        self.written <= self.synced && log.persisted == log.last_index()
    }

    fn may_campaign(&self) -> bool {
        let raft = &self.raft.raft;
        self.settings.electable && raft.promotable() && raft.term + 1 < MAX_COUNT
    }

    /// After each call: sees to it that the election timeout is ours. It is drawn anew with each change
    /// of term or role and after each attempt, and only then, so that the same calls draw as often.
    fn settle(&mut self, anew: bool) {
        let raft = &self.raft.raft;
        let now = (raft.term, raft.state);
        let votes_for_another = raft.vote != 0 && raft.vote != raft.id;
        let leader = MemberId(raft.leader_id);
        self.haste = self.haste.filter(|haste| {
            let still_gone = leader == haste.gone && raft.term == haste.term;
            (leader == MemberId(0) || still_gone) && !(votes_for_another && raft.term > haste.term)
        });
        if anew || now != self.drawn_for {
            self.drawn_for = now;
            self.draw();
            self.look_back();
        }
        if now.1 != StateRole::Leader {
            self.forget_proposals();
        }
        self.raft.raft.set_randomized_election_timeout(self.timeout);
    }

    fn draw(&mut self) {
        let (election, rank) = (self.settings.election_ticks, self.settings.rank);
        let haste = self.haste.filter(|haste| haste.attempts < timeouts::HASTY_ATTEMPTS);
        if haste.is_some() {
            // The lease is over: this member votes for others, and its own silence is long enough.
            self.raft.raft.election_elapsed = election;
        }
        self.haste = haste.map(|haste| Haste { attempts: haste.attempts + 1, ..haste });
        if !self.settings.electable || self.raft.raft.term + 1 >= MAX_COUNT {
            self.timeout = timeouts::NEVER;
            return;
        }
        let random = (self.random)();
        self.timeout = match haste {
            Some(haste) => timeouts::hasty(election, rank, haste.attempts, random),
            None => timeouts::usual(election, rank, random),
        };
    }

    fn forget_proposals(&mut self) {
        self.uncommitted.clear();
        self.uncommitted_bytes = 0;
    }
}
