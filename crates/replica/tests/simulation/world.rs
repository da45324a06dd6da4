//! Members, network and clients in one process, from one seed; and what must hold.
//!
//! 1. What a client was told is done is in the journal of each later leader that takes writes.
//! 2. What members show is the same at the same timestamp, and no member goes back while it runs.
//! 3. What is shown is never cut off (the journal refuses it, and a member that stops fails the test).
//! 4. A witness, which some sets have, takes no writes and hands over what it leads.
//! 5. A delayed member, which some sets have, shows nothing before its time and takes no writes.
//! 6. Once all is well, all members hold the same entries and show the same, and there is no record without an
//!    entry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use quorum::{Change, Configuration, MemberId, Role, Settings, Standing};
use replica::{Error, Event, Frame, Journal as _, Kinds, Links, Options, Replica};
use testkit::Gen;

use crate::Planted;
use crate::machine::{DELAYED, Machine, Outcome};

type Check = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(what()) }
}

#[derive(Default)]
struct Outbox(Vec<(MemberId, Frame)>);

impl Links for Outbox {
    fn send(&mut self, to: MemberId, frame: Frame) {
        self.0.push((to, frame));
    }
}

type Simulated<M> = Replica<<M as Machine>::Journal, Outbox, <M as Machine>::Promises>;

struct Member<M: Machine> {
    id: MemberId,
    machine: M,
    running: Option<Simulated<M>>,
    down_until: u64,
    paused_until: u64,
    /// Answers that clients wait for: the term, what was written, and by what it is known.
    waiting: Vec<(u64, u64, M::Ticket)>,
    /// The last timestamp that it has shown since its start, and ever.
    shown: u64,
    ever_shown: u64,
    copying: Option<Copying<M>>,
}

/// A member makes a copy of another one's disk.
struct Copying<M: Machine> {
    from: MemberId,
    /// When it looks at the other one's disk, and when it starts with what it got.
    looks_at: u64,
    starts_at: u64,
    copy: Option<M::Journal>,
}

pub(crate) struct World<M: Machine> {
    random: Gen,
    now_ms: u64,
    members: Vec<Member<M>>,
    planted: Planted,
    /// By when, who sent it to whom.
    on_the_way: BTreeMap<(u64, u64), (MemberId, MemberId, Vec<u8>)>,
    frames: u64,
    loss: u64,
    delay_ms: u64,
    cut: BTreeSet<(MemberId, MemberId)>,
    calm: bool,
    operations: u64,
    /// What clients were told is done, with the term of the leader that said so.
    acknowledged: BTreeMap<u64, u64>,
    /// What was shown at each timestamp, in short.
    shown: BTreeMap<u64, u64>,
    terms: BTreeMap<u64, MemberId>,
    /// Votes and applies nothing, where the set has such a member.
    witness: Option<MemberId>,
    /// For how many seconds [`DELAYED`] holds back what it shows; 0 where it does not.
    delay: u32,
    /// The delay that it knows of.
    told_delay: u32,
    /// Whether there is such a member.
    has_delayed: bool,
    /// When a commit of each timestamp was made first.
    written: BTreeMap<u64, u64>,
    /// Entries that consensus has in memory.
    max_entries: usize,
    /// Members that need entries from before those, by the leader's term.
    late: BTreeMap<(MemberId, u64), u64>,
    pub(crate) voided: u64,
    /// How often such a member got them all.
    pub(crate) came_back: u64,
    /// How often a member started with a copy.
    pub(crate) copied: u64,
    /// How often a witness led.
    pub(crate) led_by_witness: u64,
    /// How often a delayed member showed something, and how often it led.
    pub(crate) shown_late: u64,
    pub(crate) led_by_delayed: u64,
}

const TICK_MS: u64 = 10;

fn place(member: MemberId) -> usize {
    member.0 as usize - 1
}

impl<M: Machine> World<M> {
    pub(crate) fn new(seed: u64, voters: u64, planted: Planted) -> Self {
        let mut random = Gen::new(seed);
        let configuration = Configuration::of_voters((1..=voters).map(MemberId));
        let member = |id: u64| Member {
            id: MemberId(id),
            machine: M::new(id, seed, &configuration, planted),
            running: None,
            down_until: 0,
            paused_until: 0,
            waiting: Vec::new(),
            shown: 0,
            ever_shown: 0,
            copying: None,
        };
        Self {
            members: (1..=voters + 1).map(member).collect(),
            loss: [0, 60, 12, 5][random.below(4) as usize],
            delay_ms: random.below(60),
            now_ms: 0,
            planted,
            on_the_way: BTreeMap::new(),
            frames: 0,
            cut: BTreeSet::new(),
            calm: false,
            operations: 0,
            acknowledged: BTreeMap::new(),
            shown: BTreeMap::new(),
            terms: BTreeMap::new(),
            max_entries: [4, 20, 1 << 16][random.below(3) as usize],
            late: BTreeMap::new(),
            voided: 0,
            came_back: 0,
            copied: 0,
            led_by_witness: 0,
            shown_late: 0,
            led_by_delayed: 0,
            delay: if M::HAS_DELAYS { [0, 1, 2][(seed % 3) as usize] } else { 0 },
            told_delay: if M::HAS_DELAYS { [0, 1, 2][(seed % 3) as usize] } else { 0 },
            has_delayed: M::HAS_DELAYS && seed % 4 != 3,
            written: BTreeMap::new(),
            witness: (M::HAS_WITNESSES && seed % 4 != 1).then_some(MemberId(voters)),
            random,
        }
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.len() as u64
    }

    pub(crate) fn leaders(&self) -> u64 {
        self.terms.len() as u64
    }

    /// Faults for a while, then none, and all that goes on must come to an end.
    pub(crate) fn run(&mut self, steps: u64) -> Check {
        for _ in 0..steps {
            self.step()?;
            self.trouble()?;
        }
        self.heal()
    }

    fn step(&mut self) -> Check {
        self.now_ms += 5;
        while let Some(entry) = self.on_the_way.first_entry() {
            if entry.key().0 > self.now_ms {
                break;
            }
            let (from, to, bytes) = entry.remove();
            self.arrive(from, to, &bytes)?;
        }
        for at in 0..self.members.len() {
            let mut wall_ms = self.members[at].machine.wall_ms(self.now_ms);
            if self.planted == Planted::ShownEarly && self.members[at].id == DELAYED {
                wall_ms += 1000;
            }
            if self.members[at].running.is_none() && self.members[at].down_until <= self.now_ms {
                self.start(at)?;
            }
            if self.members[at].paused_until > self.now_ms {
                continue;
            }
            let syncs = if self.calm { 9 } else { self.random.below(3) };
            let (now_ms, random) = (self.now_ms, &mut self.random);
            let member = &mut self.members[at];
            let mut done = Ok(());
            if let Some(replica) = &mut member.running {
                let journal = replica.journal();
                done = member.machine.background(journal, random);
                done = done.and_then(|()| member.machine.finish_syncs(journal, syncs));
                let stepped = replica.step(Duration::from_millis(now_ms), wall_ms);
                done = done.and(stepped.map(drop).map_err(|error| error.to_string()));
            }
            if self.lost_power(at) {
                continue;
            }
            done.map_err(|error| format!("{}: {error}", self.members[at].id))?;
            self.look(at)?;
            self.go_on_copying(at);
        }
        Ok(())
    }

    /// A member that needs a copy makes one, which takes its time.
    fn go_on_copying(&mut self, at: usize) {
        let now = self.now_ms;
        let member = &mut self.members[at];
        let Some(replica) = &mut member.running else { return };
        let Some(mut copying) = member.copying.take() else {
            let begun = match self.planted {
                Planted::TakenWhileCopying => replica.needs_copy(),
                _ => replica.needs_copy().and_then(|_| replica.begin_copy()),
            };
            let Some(needed) = begun else { return };
            let from = match self.planted {
                Planted::CopiedFromAnybody => {
                    MemberId(self.random.below(self.members.len() as u64) + 1)
                }
                _ => needed.leader,
            };
            let looks_at = now + self.random.below(900);
            let starts_at = looks_at + self.random.below(900);
            self.members[at].copying = Some(Copying { from, looks_at, starts_at, copy: None });
            return;
        };
        if copying.copy.is_none() && now >= copying.looks_at {
            let has_data = Some(copying.from) != self.witness;
            let from = &mut self.members[place(copying.from)].running;
            let from = from.as_mut().filter(|_| has_data);
            copying.copy = from.and_then(|from| M::copy(from.journal()));
            if copying.copy.is_none() {
                // Its source is gone.
                if let Some(replica) = &mut self.members[at].running {
                    replica.end_copy();
                }
                return;
            }
        }
        let member = &mut self.members[at];
        if copying.copy.is_none() || now < copying.starts_at {
            member.copying = Some(copying);
            return;
        }
        if let (Some(replica), Some(copy)) = (member.running.take(), copying.copy) {
            let (_, _, promises) = replica.into_parts();
            member.machine.replace(copy, promises);
            member.waiting.clear();
            self.copied += 1;
        }
    }

    /// Whether the power of a member has gone; then it is down.
    fn lost_power(&mut self, at: usize) -> bool {
        let is_down = self.members[at].machine.is_down() && self.members[at].running.is_some();
        if is_down {
            self.crash(at);
        }
        is_down
    }

    fn start(&mut self, at: usize) -> Check {
        let mut seed = Gen::new(self.random.u64());
        let member = &mut self.members[at];
        let started = member.machine.start(&mut self.random);
        if member.machine.is_down() {
            member.down_until = self.now_ms + 50;
            return Ok(());
        }
        let (journal, promises) =
            started.map_err(|error| format!("{} cannot start: {error}", member.id))?;
        member.shown = 0;
        let is_witness = self.witness == Some(member.id);
        let is_late = is_witness || (self.has_delayed && member.id == DELAYED);
        let settings = Settings {
            election_ticks: 10,
            heartbeat_ticks: 2,
            rank: if is_late { 20 } else { at as u32 % 3 },
            max_in_flight: 4,
            max_message_bytes: 300,
            max_uncommitted_bytes: 3000,
            max_entries: self.max_entries,
            ..Settings::new(member.id)
        };
        let knows_itself = self.planted != Planted::WitnessTakesWrites;
        let is_witness = is_witness && knows_itself;
        let options = Options { settings, tick_ms: TICK_MS, report_ms: 100, is_witness };
        let random = Box::new(move || seed.u64());
        let id = member.id;
        let replica = Replica::new(options, journal, Outbox::default(), promises, random);
        let mut replica = replica.map_err(|error| format!("{id} cannot start: {error}"))?;
        if id == DELAYED && replica.held_back().is_none() {
            // It went before it held anything back: all that its log says is decided is shown.
            self.told_delay = 0;
        }
        replica.set_kinds(self.kinds());
        self.members[at].running = Some(replica);
        self.delay_is_told(at)
    }

    fn kinds(&self) -> Kinds {
        let mut kinds = Kinds { witnesses: self.witness.into_iter().collect(), ..Kinds::default() };
        if self.holds_back() && self.planted != Planted::DelayedTakesWrites {
            kinds.delays.insert(DELAYED, self.delay);
        }
        if self.planted != Planted::WitnessLeadsOn {
            let all = (1..=self.members.len() as u64).map(MemberId);
            let is_delayed = |id| self.has_delayed && id == DELAYED;
            kinds.ranks = all
                .filter(|id| Some(*id) != self.witness && !is_delayed(*id))
                .map(|id| (id, (id.0 as u32 - 1) % 3))
                .collect();
        }
        kinds
    }

    fn holds_back(&self) -> bool {
        self.has_delayed && self.delay > 0
    }

    /// Another delay, or none.
    fn change_delay(&mut self) -> Check {
        if !self.has_delayed {
            return Ok(());
        }
        self.delay = self.random.below(3) as u32;
        let kinds = self.kinds();
        for replica in self.members.iter_mut().filter_map(|member| member.running.as_mut()) {
            replica.set_kinds(kinds.clone());
        }
        self.delay_is_told(place(DELAYED))
    }

    /// A member learns of the delay, by a change or because it starts: what it shows by then, which was decided
    /// before, is held to the delay that it knew.
    fn delay_is_told(&mut self, at: usize) -> Check {
        if !self.has_delayed || self.members[at].id != DELAYED {
            return Ok(());
        }
        let Member { running, machine, .. } = &mut self.members[at];
        let Some(replica) = running else { return Ok(()) };
        let (ts, _) = machine.shown(replica.journal())?;
        let takes_writes = replica.is_writable();
        let told = std::mem::replace(&mut self.delay, self.told_delay);
        self.check_time(at, ts, takes_writes)?;
        self.delay = told;
        self.told_delay = told;
        Ok(())
    }

    fn arrive(&mut self, from: MemberId, to: MemberId, bytes: &[u8]) -> Check {
        let at = place(to);
        if self.members[at].paused_until > self.now_ms {
            self.frames += 1;
            let later = (self.members[at].paused_until, self.frames);
            self.on_the_way.insert(later, (from, to, bytes.to_vec()));
            return Ok(());
        }
        let Some(replica) = &mut self.members[at].running else { return Ok(()) };
        let frame = Frame::decode(bytes).map_err(|error| error.to_string())?;
        let received = replica.receive(from, frame);
        if self.lost_power(at) {
            return Ok(());
        }
        match received {
            Ok(()) | Err(Error::Quorum(quorum::Error::NoMember { .. })) => {}
            Err(error) => return Err(format!("{to} hears from {from}: {error}")),
        }
        self.look(at)
    }

    /// Takes out what a member sends and says, and checks it.
    fn look(&mut self, at: usize) -> Check {
        let id = self.members[at].id;
        let Some(replica) = &mut self.members[at].running else { return Ok(()) };
        let status = replica.status();
        // Who answers, and needs what is no longer in the leader's memory.
        let late = |peer: &&quorum::Peer| peer.active && peer.matched + 1 < status.first;
        for peer in status.peers.iter().filter(late) {
            self.late.insert((peer.member, status.role_state.term), peer.matched);
        }
        for peer in status.peers.iter().filter(|peer| peer.matched + 1 >= status.first) {
            let came = self.late.remove(&(peer.member, status.role_state.term));
            self.came_back += u64::from(came.is_some());
        }
        let frames = std::mem::take(&mut replica.links().0);
        let events = replica.take_events();
        for (to, frame) in frames {
            self.send(id, to, &frame);
        }
        for event in events {
            match event {
                Event::Role(now) if now.role == Role::Leader => {
                    self.led_by_witness += u64::from(self.witness == Some(id));
                    self.led_by_delayed += u64::from(self.holds_back() && id == DELAYED);
                    let leader = *self.terms.entry(now.term).or_insert(id);
                    ensure(leader == id, || format!("term {} has two leaders", now.term))?;
                }
                Event::Role(_) => self.answer(at),
                Event::Writable if self.witness == Some(id) => {
                    return Err("a witness takes writes".to_owned());
                }
                Event::Writable if self.holds_back() && id == DELAYED => {
                    return Err("a delayed member takes writes".to_owned());
                }
                Event::Writable => self.check_leader(at)?,
                Event::Read(_) | Event::Configured { .. } => {}
            }
        }
        self.check_shown(at)?;
        self.answer(at);
        Ok(())
    }

    fn send(&mut self, from: MemberId, to: MemberId, frame: &Frame) {
        let lost = self.loss > 0 && !self.calm && self.random.one_in(self.loss);
        if self.cut.contains(&(from, to)) || lost || place(to) >= self.members.len() {
            return;
        }
        let bytes = frame.encode();
        let times = if !self.calm && self.random.one_in(30) { 2 } else { 1 };
        for _ in 0..times {
            let delay = if self.calm { 1 } else { 1 + self.random.below(self.delay_ms + 1) };
            self.frames += 1;
            self.on_the_way.insert((self.now_ms + delay, self.frames), (from, to, bytes.clone()));
        }
    }

    fn check_leader(&mut self, at: usize) -> Check {
        let Member { running, machine, .. } = &mut self.members[at];
        let Some(replica) = running else { return Ok(()) };
        let term = replica.status().role_state.term;
        let has = machine.operations(replica.journal());
        let lost = self.acknowledged.iter().find(|(op, of)| **of < term && !has.contains(op));
        ensure(lost.is_none(), || format!("the leader of term {term} lacks {lost:?}"))
    }

    fn check_shown(&mut self, at: usize) -> Check {
        if self.witness == Some(self.members[at].id) {
            // It applies nothing.
            return Ok(());
        }
        let Member { running, machine, .. } = &mut self.members[at];
        let Some(replica) = running else { return Ok(()) };
        let (ts, digest) = machine.shown(replica.journal())?;
        // Who is told of a delay while it leads hands over before it holds anything back.
        let shows_all = replica.is_writable() || replica.held_back().is_none();
        self.check_time(at, ts, shows_all)?;
        let before = self.members[at].shown;
        ensure(ts >= before, || format!("member {} shows {ts} behind {before}", at + 1))?;
        self.members[at].shown = ts;
        let first = *self.shown.entry(ts).or_insert(digest);
        ensure(first == digest, || format!("member {} shows another state at {ts}", at + 1))
    }

    /// Nothing is shown before its time.
    fn check_time(&mut self, at: usize, ts: u64, shows_all: bool) -> Check {
        let (id, ever_shown) = (self.members[at].id, self.members[at].ever_shown);
        self.members[at].ever_shown = ever_shown.max(ts);
        if id != DELAYED || !self.holds_back() || ts <= ever_shown || shows_all {
            return Ok(());
        }
        self.shown_late += 1;
        let written = self.written.get(&ts).copied().unwrap_or(0);
        let (delay, now) = (self.delay, self.now_ms);
        ensure(written + u64::from(delay) * 1000 <= now, || {
            format!(
                "what was written at {written} is shown at {now}, with a delay of {delay} seconds"
            )
        })
    }

    /// Tells clients what is done.
    fn answer(&mut self, at: usize) {
        let member = &mut self.members[at];
        let Some(replica) = &mut member.running else { return };
        let now = replica.status().role_state;
        let early = self.planted == Planted::AnsweredBeforeCommitted;
        let Member { machine, waiting, .. } = member;
        waiting.retain(|(term, op, ticket)| {
            let leads = now.role == Role::Leader && now.term == *term;
            match machine.outcome(replica.journal(), ticket, leads) {
                Outcome::Pending if !early => return true,
                Outcome::Void => self.voided += 1,
                Outcome::Done | Outcome::Pending => {
                    self.acknowledged.insert(*op, now.term);
                }
            }
            false
        });
    }

    /// One thing at random, often none.
    fn trouble(&mut self) -> Check {
        let at = self.random.below(self.members.len() as u64) as usize;
        let me = self.members[at].id;
        match self.random.below(150) {
            0 | 1 => self.crash(at),
            2 => self.members[at].paused_until = self.now_ms + self.random.below(300),
            3 => {
                let other = MemberId(self.random.below(self.members.len() as u64) + 1);
                self.cut.insert((me, other));
            }
            4 => {
                for other in (1..=self.members.len() as u64).map(MemberId) {
                    self.cut.extend([(me, other), (other, me)]);
                }
            }
            5 | 6 => self.cut.clear(),
            7 => self.change(at),
            8 => {
                let to = MemberId(self.random.below(self.members.len() as u64) + 1);
                let replica = self.members[at].running.as_mut();
                let _refused = replica.map(|replica| replica.transfer_to(to));
            }
            9 => {
                let other = MemberId(self.random.below(self.members.len() as u64) + 1);
                let replica = self.members[at].running.as_mut();
                let _done = replica.map(|replica| replica.link_lost(other));
            }
            10 => self.members[at].machine.crash_soon(&mut self.random),
            91 => {
                // It is away while the others write, and start again.
                self.crash(at);
                self.members[at].down_until = self.now_ms + 500 + self.random.below(2000);
            }
            92..=95 => {
                let Self { members, random, .. } = self;
                let Member { running, machine, .. } = &mut members[at];
                if let Some(replica) = running {
                    machine.trim(replica.journal(), random);
                }
            }
            96 | 97 => self.change_delay()?,
            11..=90 => self.write(),
            _ => {}
        }
        self.look(at)
    }

    fn write(&mut self) {
        for member in &mut self.members {
            let Some(replica) = member.running.as_mut().filter(|replica| replica.is_writable())
            else {
                continue;
            };
            // More than one may think that it leads; each has its clients.
            for _ in 0..=self.random.below(3) {
                self.operations += 1;
                let (term, op) = (replica.status().role_state.term, self.operations);
                let (journal, random) = (replica.journal(), &mut self.random);
                if let Some(ticket) = member.machine.commit(journal, op, random) {
                    member.waiting.push((term, op, ticket));
                    let newest = member.machine.newest(replica.journal());
                    self.written.entry(newest).or_insert(self.now_ms);
                }
            }
        }
        for at in 0..self.members.len() {
            self.lost_power(at);
        }
    }

    fn change(&mut self, at: usize) {
        let standing = [Standing::Voter, Standing::Voter, Standing::Learner, Standing::Gone];
        let changes = (0..=self.random.below(2)).map(|_| Change {
            member: MemberId(self.random.below(self.members.len() as u64) + 1),
            standing: standing[self.random.below(4) as usize],
        });
        let changes: Vec<Change> = changes.collect();
        if (self.witness.is_some() || self.has_delayed) && !self.keeps_data(&changes) {
            return;
        }
        let at = self.writable().unwrap_or(at);
        let replica = self.members[at].running.as_mut();
        let _refused = replica.map(|replica| replica.propose_configuration(changes, vec![7; 5]));
    }

    /// Whether a change leaves the witness what it is, and two voters that may take writes.
    fn keeps_data(&self, changes: &[Change]) -> bool {
        let Some(leader) = self.writable().and_then(|at| self.members[at].running.as_ref()) else {
            return false;
        };
        let mut voters = leader.configuration().voters.clone();
        for change in changes {
            match change.standing {
                Standing::Voter => voters.insert(change.member),
                _ => voters.remove(&change.member),
            };
        }
        let witness = self.witness.unwrap_or_default();
        let touched = changes.iter().any(|change| change.member == witness);
        let is_delayed = |voter: MemberId| self.has_delayed && voter == DELAYED;
        voters.retain(|voter| *voter != witness && !is_delayed(*voter));
        !touched && voters.len() >= 2
    }

    fn writable(&self) -> Option<usize> {
        let leads = |member: &Member<M>| member.running.as_ref().is_some_and(Replica::is_writable);
        self.members.iter().position(leads)
    }

    fn crash(&mut self, at: usize) {
        let member = &mut self.members[at];
        let Some(replica) = member.running.take() else { return };
        let (journal, _, promises) = replica.into_parts();
        member.machine.crash(journal, promises, &mut self.random);
        member.down_until = self.now_ms + self.random.below(500);
        member.waiting.clear();
        member.copying = None;
        let id = member.id;
        self.on_the_way.retain(|_, (_, to, _)| *to != id);
        for other in 0..self.members.len() {
            if self.random.one_in(2)
                && let Some(replica) = &mut self.members[other].running
            {
                let _done = replica.port_closed(id);
            }
        }
    }

    /// All is well again: all members of the set must come to hold the same.
    fn heal(&mut self) -> Check {
        self.calm = true;
        self.cut.clear();
        for member in &mut self.members {
            (member.down_until, member.paused_until) = (0, 0);
        }
        for _ in 0..4000 {
            self.step()?;
            if self.is_settled() {
                return Ok(());
            }
        }
        Err(format!("no progress after all is well: {}", self.describe()))
    }

    /// A leader takes writes, nothing waits, and everybody in the set has what it has.
    fn is_settled(&mut self) -> bool {
        let Some(at) = self.writable() else { return false };
        let Some(leader) = &mut self.members[at].running else { return false };
        let configuration = Arc::clone(leader.configuration());
        let last = leader.status().last;
        let settled =
            leader.status().commit_index == last.index && leader.journal().open_bytes() == 0;
        let witness = self.witness;
        let shown = self.members[at].shown;
        if shown == 0 {
            self.write();
        }
        if !settled || configuration.is_joint() || shown == 0 {
            return false;
        }
        configuration.members().into_iter().all(|id| {
            let Member { running, machine, shown: of, .. } = &mut self.members[place(id)];
            let Some(replica) = running else { return false };
            replica.status().last == last
                && replica.status().commit_index == last.index
                && (witness == Some(id) || (*of == shown && machine.is_settled(replica.journal())))
        })
    }

    fn describe(&self) -> String {
        let nodes = self.members.iter().filter_map(|member| member.running.as_ref());
        let lines: Vec<_> = nodes.map(|replica| format!("{:?}", replica.status())).collect();
        lines.join("\n")
    }
}
