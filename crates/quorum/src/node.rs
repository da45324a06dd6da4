//! One member's consensus: the raft crate's `RawNode`, and what it lacks.
//!
//! | What raft does | What is done here |
//! |---|---|
//! | draws its timeouts from the thread's generator | they are set again, from the given numbers, after each change of term or role, before anything looks at them |
//! | panics on what cannot be | `check` refuses it first |
//! | takes it that a winner's log is synced | a member whose log is not, neither campaigns nor counts votes |
//! | a leader sends at once | not before its own vote is synced: a set of one voter elects itself without asking |
//! | looks up its own progress in the leader | a leader that is no voter any more steps down as soon as it applies that |
//! | turns a change of members that cannot be now into an empty entry | it is refused before it is proposed |
//! | counts a descriptor's bytes | bytes of records are counted here |
//!
//! Always true: between two calls, raft's election timeout is `timeout`; what is in `held` waits for a
//! sync that was asked for; everything handed out as committed is applied to the configuration.

use std::collections::{BTreeSet, VecDeque};

use raft::eraftpb::HardState as RaftHardState;
use raft::{Changer, ProgressState, RawNode, SnapshotStatus, StateRole};

use crate::check::{View, check, content};
use crate::entry::{Change, Configuration, Content, Descriptor, Entry, MemberId, Position};
use crate::error::{Error, Result};
use crate::log::MemoryLog;
use crate::message::{Body, Message, ReadId, Snapshot};
use crate::outcome::{
    HardState, Peer, PeerPhase, ReadPoint, Ready, Role, RoleNow, Settings, Start, Status,
};
use crate::state::MAX_COUNT;
use crate::timeouts;
use crate::translate::{
    change_in, configuration_in, configuration_out, content_bytes, entry_in, entry_out, message_in,
    message_out, read_in, read_out, snapshot_in, snapshot_out,
};

/// Reads that wait for a round of heartbeats at once.
const MAX_READS: usize = 1024;

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
    settings: Settings,
    random: Box<dyn FnMut() -> u64 + Send>,
    /// The election timeout, and for which term and role it was drawn.
    timeout: usize,
    drawn_for: (u64, StateRole),
    haste: Option<Haste>,
    /// What was last reported.
    now: RoleNow,
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
    reads: u64,
}

impl Node {
    /// A node over what its member's disk holds. `random` is asked for each election timeout.
    pub fn new(
        settings: Settings,
        start: Start,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Result<Self> {
        verify_start(&settings, &start)?;
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
            timeout: timeouts::NEVER,
            drawn_for: (0, StateRole::Leader),
            haste: None,
            now: RoleNow { term: hard_state.term, ..RoleNow::default() },
            hard_state,
            written: 0,
            hard_written: 0,
            synced: 0,
            newest: 0,
            held: VecDeque::new(),
            installing: None,
            uncommitted: VecDeque::new(),
            uncommitted_bytes: 0,
            // Not from 1: answers to what was asked before a restart may still be on their way.
            reads: random() >> 1,
            raft,
            settings,
            random,
        };
        node.settle(true);
        Ok(node)
    }

    /// A tick of time has passed.
    pub fn tick(&mut self) {
        let leads = self.leads();
        let elapses = self.raft.raft.election_elapsed + 1 >= self.timeout;
        // Raft takes it that what a candidate has is synced: time stands still until it is.
        if !leads && elapses && !self.is_synced() {
            return;
        }
        self.raft.tick();
        self.settle(!leads && elapses);
    }

    /// A message has come. An error says that it was not acted on.
    pub fn receive(&mut self, message: Message) -> Result<()> {
        check(&message, &self.view())?;
        if !self.would_act_on(&message) {
            return Ok(());
        }
        let from = message.from;
        let stepped = self.raft.step(message_in(message));
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
                let leader = self.now().leader;
                let asked = leader == Some(message.from) && message.term == self.raft.raft.term;
                asked && self.may_campaign() && self.is_synced()
            }
            Body::ReadRequest(_) => self.may_read().is_ok(),
            _ => true,
        }
    }

    /// Proposes records that the member's own log holds already. Answers the entry's place; it is
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
        self.uncommitted.push_back((at.index, bytes));
        self.uncommitted_bytes += bytes;
        Ok(at)
    }

    /// Asks up to where must be applied to read what is newest now; [`Ready::reads`] answers, or never
    /// where the leader is lost meanwhile.
    pub fn read_index(&mut self) -> Result<ReadId> {
        if self.leads() {
            self.may_read()?;
        } else if self.now().leader.is_none() {
            return Err(Error::NotNow("nobody leads"));
        }
        self.reads += 1;
        let read = ReadId { member: self.settings.id, number: self.reads };
        self.raft.read_index(read_in(read));
        self.settle(false);
        Ok(read)
    }

    fn may_read(&self) -> Result<()> {
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

    /// Hands over to that voter once it has all entries. Nothing can be proposed until it leads or an
    /// election timeout has passed.
    pub fn transfer_to(&mut self, member: MemberId) -> Result<()> {
        if !self.leads() {
            return Err(Error::NotLeader);
        }
        if member == self.settings.id || !self.configuration().voters.contains(&member) {
            return Err(Error::Invalid("the leader hands over to another voter"));
        }
        self.raft.transfer_leader(member.0);
        self.settle(false);
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
    pub fn link_refused(&mut self, member: MemberId) {
        self.unreachable(member);
        if !self.leads() && self.now().leader == Some(member) {
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

    /// What is to be done now, if anything.
    pub fn ready(&mut self) -> Option<Ready> {
        let now = self.now();
        if !self.raft.has_ready() && now == self.now {
            return None;
        }
        let mut raw = self.raft.ready();
        self.newest = raw.number();
        let mut ready = Ready { commit: self.raft.raft.raft_log.committed, ..Ready::default() };
        let raft = &self.raft.raft;
        let hard_state = HardState {
            term: raft.term,
            vote: Some(MemberId(raft.vote)).filter(|vote| *vote != MemberId(0)),
        };
        if hard_state != self.hard_state {
            self.hard_state = hard_state;
            self.hard_written = self.newest;
            ready.hard_state = Some(hard_state);
        }
        if !raw.snapshot().is_empty() {
            let snapshot = snapshot_out(raw.snapshot());
            self.raft.mut_store().restart(snapshot.position);
            self.installing = Some((self.newest, snapshot.position.index));
            ready.snapshot = Some(snapshot);
        }
        let entries = raw.take_entries();
        let log = self.raft.mut_store();
        ready.cut = entries.first().map(|entry| entry.index).filter(|index| *index <= log.last());
        log.append(&entries);
        ready.entries = entries.iter().filter_map(|entry| entry_out(entry).ok()).collect();
        assert!(ready.entries.len() == entries.len(), "what was checked and kept can be read");
        let committed = raw.take_committed_entries();
        let reads = raw.take_read_states();
        let mut messages = raw.take_messages();
        messages.extend(raw.take_persisted_messages());
        self.raft.advance_append_async(raw);

        if ready.hard_state.is_some() || ready.snapshot.is_some() || !ready.entries.is_empty() {
            self.written = self.newest;
            ready.persist = Some(self.newest);
        }
        ready.send = self.hold(messages.iter().filter_map(message_out).collect());
        if self.written <= self.synced {
            self.raft.on_persist_ready(self.newest);
        }
        ready.committed = committed.iter().filter_map(|entry| entry_out(entry).ok()).collect();
        self.apply(&ready.committed);
        let point = |state: raft::ReadState| {
            let read = read_out(&state.request_ctx)?;
            Some(ReadPoint { read, index: state.index })
        };
        ready.reads = reads.into_iter().filter_map(point).collect();
        self.settle(false);
        let now = self.now();
        if now != self.now {
            self.now = now;
            ready.role = Some(now);
        }
        Some(ready)
    }

    /// Keeps back what must not go before a write is synced, and answers what may go. What a leader
    /// says promises nothing of its log but stands on its own vote; so does the answer to a heartbeat,
    /// which must not wait for a slow disk, or the leader would take this member for gone.
    fn hold(&mut self, messages: Vec<Message>) -> Vec<Message> {
        let leads = self.leads();
        let of_term =
            |message: &Message| leads || matches!(message.body, Body::HeartbeatAnswer { .. });
        let (of_term, of_log): (Vec<_>, Vec<_>) = messages.into_iter().partition(of_term);
        let mut go = Vec::new();
        for (needs, messages) in [(self.hard_written, of_term), (self.written, of_log)] {
            if needs <= self.synced {
                go.extend(messages);
            } else if !messages.is_empty() {
                self.held.push_back((needs, messages));
            }
        }
        go
    }

    /// Changes of members count from when they are decided.
    fn apply(&mut self, committed: &[Entry]) {
        let Some(last) = committed.last() else { return };
        for entry in committed {
            let changes: &[Change] = match &entry.content {
                Content::Configuration { changes, .. } if !changes.is_empty() => changes,
                Content::Joined => &[],
                _ => continue,
            };
            // One that cannot be applied changes nothing, on each member alike: the leader has
            // tried it before it proposed it.
            let _unchanged = self.raft.apply_conf_change(&change_in(changes)).is_err();
        }
        let before = self.raft.raft.raft_log.last_index();
        self.raft.advance_apply_to(last.index);
        if self.leads() && self.raft.raft.raft_log.last_index() > before {
            // Raft has appended the end of a change of members, and would send it with the next heartbeat.
            self.raft.raft.bcast_append();
        }
        while self.uncommitted.front().is_some_and(|(index, _)| *index <= last.index) {
            let bytes = self.uncommitted.pop_front().map_or(0, |(_, bytes)| bytes);
            self.uncommitted_bytes -= bytes;
        }
        let raft = &mut self.raft.raft;
        if raft.state == StateRole::Leader && !raft.promotable() {
            let term = raft.term;
            raft.become_follower(term, raft::INVALID_ID);
        }
        let kept = self.raft.store().len();
        if kept > self.settings.max_entries {
            let excess = (kept - self.settings.max_entries) as u64;
            self.compact_to(self.raft.store().base().index + excess);
        }
    }

    /// All that was to be written up to this ready is synced. Answers what may be sent now.
    pub fn persisted(&mut self, number: u64) -> Vec<Message> {
        assert!(number <= self.written, "only what was asked for is synced");
        self.synced = self.synced.max(number);
        // Readies with nothing to write wait for those before them.
        let up_to = if self.synced == self.written { self.newest } else { number };
        self.raft.on_persist_ready(up_to);
        if let Some((_, index)) = self.installing.take_if(|(by, _)| *by <= number) {
            self.raft.advance_apply_to(index);
        }
        self.settle(false);
        let mut messages = Vec::new();
        while self.held.front().is_some_and(|(needs, _)| *needs <= self.synced) {
            messages.extend(self.held.pop_front().map(|(_, held)| held).unwrap_or_default());
        }
        messages
    }

    /// Term, role, leader.
    pub fn now(&self) -> RoleNow {
        let raft = &self.raft.raft;
        let role = match raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::PreCandidate => Role::PreCandidate,
            StateRole::Candidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        };
        let leader = Some(MemberId(raft.leader_id)).filter(|leader| *leader != MemberId(0));
        RoleNow { term: raft.term, role, leader }
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

    /// The entry of that index, where it is in memory.
    pub fn entry(&self, index: u64) -> Option<Entry> {
        self.raft.store().get(index).and_then(|entry| entry_out(entry).ok())
    }

    /// Who the members are, as of what is applied.
    pub fn configuration(&self) -> Configuration {
        configuration_out(&self.raft.raft.prs().conf().to_conf_state())
    }

    /// All of it, for those who look.
    pub fn status(&self) -> Status {
        let raft = &self.raft.raft;
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
            now: self.now(),
            commit: raft.raft_log.committed,
            applied: self.applied(),
            first: self.raft.store().base().index + 1,
            last: self.last(),
            synced: raft.raft_log.persisted,
            configuration: self.configuration(),
            peers,
            uncommitted_bytes: self.uncommitted_bytes,
            handing_over_to: self.handing_over_to(),
        }
    }

    fn view(&self) -> View {
        View {
            me: self.settings.id,
            term: self.raft.raft.term,
            leader: self.now().leader,
            last: self.raft.raft.raft_log.last_index(),
            configured: !self.raft.raft.prs().conf().to_conf_state().voters.is_empty(),
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

fn verify_start(settings: &Settings, start: &Start) -> Result<()> {
    let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(Error::Start(what)) };
    ensure(settings.id != MemberId(0), "a member has an id")?;
    let ticks = settings.heartbeat_ticks > 0
        && settings.heartbeat_ticks < settings.election_ticks
        && settings.election_ticks < 1 << 20;
    ensure(ticks, "heartbeats are more frequent than elections")?;
    let bounds = settings.max_in_flight > 0 && settings.max_entries > 0;
    ensure(bounds && settings.max_message_bytes > 0, "bounds are above zero")?;
    let Start { hard_state, base, entries, applied, configuration, .. } = start;
    ensure(hard_state.term < MAX_COUNT, "its term cannot be")?;
    let known = (base.index == 0) == (base.term == 0) && base.index < MAX_COUNT;
    ensure(known, "its first entry cannot be")?;
    let mut before = *base;
    for entry in entries {
        let follows = entry.index == before.index + 1 && entry.term >= before.term.max(1);
        ensure(follows, "its entries are out of order")?;
        content(&entry.content).map_err(Error::Start)?;
        before = entry.position();
    }
    ensure(before.term < MAX_COUNT && before.index < MAX_COUNT, "its numbers cannot be")?;
    let applied = (base.index..=before.index).contains(applied);
    ensure(applied, "what was applied is not in its log")?;
    if configuration == &Configuration::default() {
        return ensure(before.index == 0, "it has entries and no configuration");
    }
    ensure(base.index > 0, "a configuration stands behind an entry")?;
    configuration.verify().map_err(Error::Start)
}
