//! Members, disks and network in one process, from one seed; and what must hold at each step.
//!
//! 1. A term has one leader.
//! 2. Logs that hold the same index and term are equal up to it.
//! 3. What is committed is in the log of each later leader, and is never another entry.
//! 4. What a member applied it never applies again or otherwise, over restarts too.
//! 5. A read sees what was committed when it was asked for.
//! 6. No honest member says what another one takes for impossible.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use quorum::{
    Body, Change, Configuration, Content, Descriptor, Entry, Error, MemberId, Message, Node,
    Position, Ready, Role, Settings, Snapshot, Standing, codec,
};
use testkit::Gen;

use crate::disk::{Disk, Image, Kept, Log, Write};
use crate::network::{Network, Weather};

/// A bug that the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    VoteNotSynced,
    AcknowledgedBeforeSync,
    CutIgnored,
    CommitForgotten,
    OlderOfAnotherPlace,
}

pub(crate) type Check = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(what()) }
}

/// The hash of a log up to an entry, from that of the log before it.
pub(crate) fn link(before: u64, entry: &Entry) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, entry.term, entry.index, format!("{:?}", entry.content)).hash(&mut hasher);
    hasher.finish()
}

/// Where a member is in the list.
fn place(member: MemberId) -> usize {
    member.0 as usize - 1
}

struct Member {
    id: MemberId,
    disk: Disk,
    node: Option<Node>,
    kept: Arc<Mutex<Kept>>,
    /// Hashes of its log, from its base on.
    chain: BTreeMap<u64, u64>,
    /// Writes that will be synced: when, and of which ready.
    syncing: Vec<(u64, u64)>,
    applied: u64,
    paused_until: u64,
    down_until: u64,
    reads: BTreeMap<u64, u64>,
    writes: u64,
    /// The newest write with a term, and the newest that is synced.
    hard: u64,
    synced: u64,
}

pub(crate) struct World {
    random: Gen,
    now: u64,
    members: Vec<Member>,
    network: Network,
    planted: Planted,
    leaders: BTreeMap<u64, MemberId>,
    places: BTreeMap<(u64, u64), u64>,
    /// Hash and the lowest term in which somebody saw it committed.
    committed: BTreeMap<u64, (u64, u64)>,
    proposed: u64,
    calm: bool,
    /// What was applied is on disk; else a start applies the whole log again, as far as that says what is
    /// decided.
    keeps_applied: bool,
    /// Entries that consensus has in memory.
    max_entries: usize,
    pub(crate) changes_done: u64,
    pub(crate) snapshots_done: u64,
    pub(crate) reads_done: u64,
    pub(crate) cuts_done: u64,
    pub(crate) older_given: u64,
}

const SPARE: u64 = 2;

impl World {
    pub(crate) fn new(seed: u64, voters: u64, planted: Planted) -> Self {
        let mut random = Gen::new(seed);
        let weather = Weather {
            delay: random.below(8),
            loss: [0, 50, 10, 4][random.below(4) as usize],
            repeats: [0, 20, 5][random.below(3) as usize],
            ordered: random.one_in(2),
        };
        let configuration = Configuration::of_voters((1..=voters).map(MemberId));
        let member = |id: u64| {
            let known = if id <= voters { configuration.clone() } else { Configuration::default() };
            let image = Image::new(known);
            Member {
                id: MemberId(id),
                applied: image.applied,
                disk: Disk::new(
                    image,
                    planted == Planted::CutIgnored,
                    planted == Planted::VoteNotSynced,
                ),
                node: None,
                kept: Arc::default(),
                chain: BTreeMap::new(),
                syncing: Vec::new(),
                paused_until: 0,
                down_until: 0,
                reads: BTreeMap::new(),
                writes: 0,
                hard: 0,
                synced: 0,
            }
        };
        Self {
            members: (1..=voters + SPARE).map(member).collect(),
            network: Network::new(weather),
            now: 0,
            planted,
            leaders: BTreeMap::new(),
            places: BTreeMap::from([((1, 1), 0)]),
            committed: BTreeMap::from([(1, (0, 1))]),
            proposed: 0,
            calm: false,
            keeps_applied: planted != Planted::CommitForgotten && random.one_in(2),
            changes_done: 0,
            snapshots_done: 0,
            reads_done: 0,
            cuts_done: 0,
            older_given: 0,
            max_entries: [4, 8, 30, 1 << 16][random.below(4) as usize],
            random,
        }
    }

    /// Faults for a while, then none, and all that goes on must come to an end.
    pub(crate) fn run(&mut self, steps: u64) -> Check {
        for at in 0..self.members.len() {
            self.start(at)?;
        }
        for _ in 0..steps {
            self.step()?;
            self.trouble()?;
        }
        self.heal()
    }

    fn start(&mut self, at: usize) -> Check {
        let mut seed = Gen::new(self.random.u64());
        let member = &mut self.members[at];
        let image = &member.disk.synced;
        let mut chain = BTreeMap::from([(image.base.index, image.base_chain)]);
        for entry in &image.entries {
            let before = chain[&(entry.index - 1)];
            chain.insert(entry.index, link(before, entry));
        }
        let settings = Settings {
            election_ticks: 10,
            heartbeat_ticks: 2,
            rank: at as u32 % 3,
            max_in_flight: 4,
            max_message_bytes: 200,
            max_uncommitted_bytes: 2000,
            max_entries: self.max_entries,
            ..Settings::new(member.id)
        };
        let node = Node::new(settings, image.start(), Box::new(move || seed.u64()));
        let mut node = node.map_err(|error| format!("{} cannot start: {error}", member.id))?;
        member.kept = Arc::new(Mutex::new(Kept::new(image)));
        let planted = self.planted == Planted::OlderOfAnotherPlace;
        node.set_older(Box::new(Log(Arc::clone(&member.kept), planted)));
        ensure(image.applied <= member.applied, || "applied from nowhere".to_owned())?;
        member.applied = image.applied;
        (member.node, member.chain) = (Some(node), chain);
        member.reads.clear();
        let known: Vec<_> = member.chain.iter().map(|(index, hash)| (*index, *hash)).collect();
        let applied = member.applied;
        for (index, hash) in known.into_iter().filter(|(index, _)| *index <= applied && *index > 0)
        {
            let expected = self.committed.get(&index).map(|(hash, _)| *hash);
            ensure(expected == Some(hash), || format!("{index} was applied and is another entry"))?;
        }
        Ok(())
    }

    fn step(&mut self) -> Check {
        self.now += 1;
        self.network.advance();
        while let Some((from, to, bytes)) = self.network.arrived() {
            self.arrive(from, to, bytes)?;
        }
        for at in 0..self.members.len() {
            let now = self.now;
            let slow = !self.calm && self.random.one_in(8);
            let member = &mut self.members[at];
            if member.node.is_none() && member.down_until <= now {
                self.start(at)?;
            }
            let member = &mut self.members[at];
            if member.paused_until > now {
                continue;
            }
            if let Some(node) = &mut member.node
                && !slow
            {
                node.tick();
            }
            self.sync(at);
            self.work(at)?;
        }
        Ok(())
    }

    fn arrive(&mut self, from: MemberId, to: MemberId, bytes: Vec<u8>) -> Check {
        let message = codec::decode(&bytes).map_err(|error| format!("{error}"))?;
        let is_snapshot = matches!(message.body, Body::Snapshot(_));
        let at = place(to);
        let member = &mut self.members[at];
        if member.paused_until > self.now {
            self.network.put_back(from, to, bytes);
            return Ok(());
        }
        let Some(node) = &mut member.node else {
            self.report_snapshot(from, to, false);
            return Ok(());
        };
        let shown = format!("{message:?}");
        match node.receive(message) {
            Ok(()) | Err(Error::NoMember { .. }) => {}
            Err(error) => return Err(format!("{error}: {shown}")),
        }
        if is_snapshot {
            self.report_snapshot(from, to, true);
        }
        self.work(at)
    }

    fn send(&mut self, messages: &[Message]) {
        for message in messages {
            let (from, to) = (message.from, message.to);
            let goes = self.network.send(from, to, &codec::encode(message), &mut self.random);
            if !goes && matches!(message.body, Body::Snapshot(_)) {
                self.report_snapshot(from, to, false);
            }
        }
    }

    fn report_snapshot(&mut self, from: MemberId, to: MemberId, arrived: bool) {
        let at = place(from);
        if let Some(node) = &mut self.members[at].node {
            node.snapshot_sent(to, arrived);
        }
    }

    /// Syncs what is due.
    fn sync(&mut self, at: usize) {
        let member = &mut self.members[at];
        let now = self.now;
        let due = member.syncing.iter().filter(|(when, _)| *when <= now).count();
        for (_, number) in member.syncing.drain(..due).collect::<Vec<_>>() {
            let member = &mut self.members[at];
            member.disk.sync(number);
            member.synced = number;
            // Acknowledged already, where that bug is planted.
            if self.planted != Planted::AcknowledgedBeforeSync
                && let Some(node) = &mut member.node
            {
                let messages = node.persisted(number);
                self.send(&messages);
            }
        }
    }

    /// Does what the node says.
    fn work(&mut self, at: usize) -> Check {
        self.older_given += self.members[at].kept.lock().unwrap().take_given();
        while let Some(ready) = self.members[at].node.as_mut().and_then(Node::ready) {
            self.write(at, &ready)?;
            self.lead(at, &ready)?;
            self.send(&ready.send);
            self.apply(at, &ready)?;
            self.ask_for_sync(at, &ready);
        }
        Ok(())
    }

    fn write(&mut self, at: usize, ready: &Ready) -> Check {
        let member = &mut self.members[at];
        let number = ready.persist.unwrap_or(member.writes);
        member.writes = number;
        if let Some(hard) = ready.hard_state {
            member.disk.write(number, Write::Hard(hard));
            member.hard = number;
        }
        if let Some(snapshot) = &ready.snapshot {
            let hash = u64::from_le_bytes(snapshot.data[..].try_into().unwrap());
            let index = snapshot.position.index;
            let expected = self.committed.get(&index).map(|(hash, _)| *hash);
            ensure(expected == Some(hash), || format!("a snapshot of {index} is another log"))?;
            member.disk.write(number, Write::Restart(snapshot.clone()));
            member.chain = BTreeMap::from([(index, hash)]);
            member.kept.lock().unwrap().restart(snapshot.position);
            member.applied = index;
            self.snapshots_done += 1;
        }
        if let Some(index) = ready.cut {
            ensure(index > member.applied, || format!("{index} was applied and is cut off"))?;
            member.disk.write(number, Write::Cut(index));
            member.chain.split_off(&index);
            member.kept.lock().unwrap().cut(index);
            self.cuts_done += 1;
        }
        // A lone voter that elected itself has told nobody of its term yet, and may lead it again.
        let told = member.hard <= member.synced || !member.node.as_ref().is_some_and(Node::leads);
        if !ready.entries.is_empty() && self.planted != Planted::CommitForgotten {
            member.disk.write(number, Write::Commit(ready.commit));
        }
        for entry in &ready.entries {
            let before = member.chain.get(&(entry.index - 1));
            let before = *before.ok_or_else(|| format!("{} is behind a gap", entry.index))?;
            let hash = link(before, entry);
            if told {
                self.places.entry((entry.term, entry.index)).or_insert(hash);
            }
            let known = self.places.get(&(entry.term, entry.index));
            ensure(known.is_none_or(|known| *known == hash), || {
                format!("two logs differ before {:?}", entry.position())
            })?;
            member.chain.insert(entry.index, hash);
            member.kept.lock().unwrap().push(entry);
            member.disk.write(number, Write::Append(entry.clone()));
        }
        Ok(())
    }

    fn lead(&mut self, at: usize, ready: &Ready) -> Check {
        let Some(now) = ready.role.filter(|now| now.role == Role::Leader) else { return Ok(()) };
        let member = &self.members[at];
        let leader = *self.leaders.entry(now.term).or_insert(member.id);
        ensure(leader == member.id, || format!("term {} has two leaders", now.term))?;
        let before = self.committed.iter().rev().find(|(_, (_, term))| *term < now.term);
        if let Some((index, (hash, _))) = before {
            let (base, _) = member.chain.first_key_value().unwrap();
            let has = member.chain.get(index);
            ensure(base > index || has == Some(hash), || {
                format!("the leader of term {} lacks {index}, which is committed", now.term)
            })?;
        }
        Ok(())
    }

    fn apply(&mut self, at: usize, ready: &Ready) -> Check {
        let member = &mut self.members[at];
        let Some(node) = &member.node else { return Ok(()) };
        let term = node.role_state().term;
        for entry in &ready.committed {
            let index = entry.index;
            ensure(index == member.applied + 1, || format!("{index} is applied out of order"))?;
            member.applied = index;
            let hash = *member.chain.get(&index).ok_or("an entry is committed and not there")?;
            let seen = self.committed.entry(index).or_insert((hash, term));
            ensure(seen.0 == hash, || format!("{index} is committed as two entries"))?;
            seen.1 = seen.1.min(term);
            if matches!(entry.content, Content::Joined) {
                self.changes_done += 1;
            }
        }
        if self.keeps_applied && !ready.committed.is_empty() {
            let write = Write::Applied(member.applied, (**node.configuration()).clone());
            member.disk.write(member.writes, write);
        }
        for point in &ready.reads {
            if let Some(asked) = member.reads.remove(&point.read.number) {
                ensure(point.index >= asked, || "a read sees an old state".to_owned())?;
                self.reads_done += 1;
            }
        }
        Ok(())
    }

    fn ask_for_sync(&mut self, at: usize, ready: &Ready) {
        let Some(number) = ready.persist else { return };
        let delay = if self.calm { 0 } else { self.random.below(4) };
        let member = &mut self.members[at];
        let earliest = member.syncing.last().map_or(0, |(when, _)| *when);
        member.syncing.push(((self.now + delay).max(earliest), number));
        if self.planted == Planted::AcknowledgedBeforeSync
            && let Some(node) = &mut member.node
        {
            let messages = node.persisted(number);
            self.send(&messages);
        }
    }

    /// One thing at random, often none.
    fn trouble(&mut self) -> Check {
        let at = self.random.below(self.members.len() as u64) as usize;
        match self.random.below(120) {
            0 | 1 => self.crash(at),
            71..=80 if self.planted == Planted::VoteNotSynced => self.crash(at),
            2 => self.members[at].paused_until = self.now + self.random.below(60),
            3 => {
                let other = self.random.below(self.members.len() as u64) + 1;
                self.network.cut.insert((self.members[at].id, MemberId(other)));
            }
            4 => {
                // Cut off from all, in both directions.
                let me = self.members[at].id;
                for other in (1..=self.members.len() as u64).map(MemberId) {
                    self.network.cut.extend([(me, other), (other, me)]);
                }
            }
            5 | 6 => self.network.cut.clear(),
            7 => self.change(at),
            8 => {
                let to = MemberId(self.random.below(self.members.len() as u64) + 1);
                let _refused = self.members[at].node.as_mut().map(|node| node.transfer_to(to));
            }
            9 | 10 => self.compact(at),
            11..=14 => self.read(at),
            15 => {
                let _refused = self.members[at].node.as_mut().map(Node::campaign_now);
            }
            16..=70 => self.propose(at),
            _ => {}
        }
        self.work(at)
    }

    fn crash(&mut self, at: usize) {
        let id = self.members[at].id;
        let member = &mut self.members[at];
        if member.node.take().is_none() {
            return;
        }
        member.disk.crash(&mut self.random);
        member.syncing.clear();
        (member.writes, member.hard, member.synced) = (0, 0, 0);
        // A vote is given twice by who comes back at once.
        let longest = if self.planted == Planted::VoteNotSynced { 3 } else { 80 };
        member.down_until = self.now + self.random.below(longest);
        for sender in self.network.drop_for(id) {
            self.report_snapshot(sender, id, false);
        }
        // Some see at once that the port is closed.
        for other in 0..self.members.len() {
            if self.random.one_in(2)
                && let Some(node) = &mut self.members[other].node
            {
                node.port_closed(id);
            }
        }
    }

    fn propose(&mut self, at: usize) {
        self.proposed += 1;
        let descriptor = Descriptor {
            last_ts: self.proposed,
            last_time: self.now,
            bytes: self.random.below(150) as u32,
            checksum: self.random.u64() as u32,
        };
        // Whoever leads, and a member that may not, or may not any more.
        let at = (0..self.members.len()).find(|at| self.leads(*at)).unwrap_or(at);
        let _refused = self.members[at].node.as_mut().map(|node| node.propose(descriptor));
    }

    fn leads(&self, at: usize) -> bool {
        self.members[at].node.as_ref().is_some_and(Node::leads)
    }

    fn change(&mut self, at: usize) {
        let at = (0..self.members.len()).find(|at| self.leads(*at)).unwrap_or(at);
        let mut changes = Vec::new();
        for _ in 0..=self.random.below(3) {
            let member = MemberId(self.random.below(self.members.len() as u64) + 1);
            let standing = match self.random.below(5) {
                0..=2 => Standing::Voter,
                3 => Standing::Learner,
                _ => Standing::Gone,
            };
            changes.push(Change { member, standing });
        }
        if self.random.one_in(4) {
            changes.clear();
        }
        let document = format!("configuration of {}", self.now).into_bytes();
        let node = self.members[at].node.as_mut();
        let _refused = node.map(|node| node.propose_configuration(changes, document));
    }

    fn compact(&mut self, at: usize) {
        // Before the entry goes that says which term it ends with.
        self.offer(at);
        let keep = self.random.below(10);
        let member = &mut self.members[at];
        let Some(node) = &mut member.node else { return };
        let index = member.disk.synced.applied.saturating_sub(keep);
        if index <= member.disk.synced.base.index || member.disk.synced.entries.is_empty() {
            return;
        }
        node.compact_to(index);
        member.kept.lock().unwrap().compact(index);
        member.disk.write(member.writes, Write::Compact(index));
        member.chain = member.chain.split_off(&index);
    }

    /// What a leader has to give to those who come too late.
    fn offer(&mut self, at: usize) {
        let member = &mut self.members[at];
        let Some(node) = &mut member.node else { return };
        let index = member.applied;
        // A snapshot that is being written is applied once it is safe.
        let is_there = index > 0 && index <= node.applied();
        let Some(hash) = member.chain.get(&index).filter(|_| is_there) else { return };
        let Some(position) = member.kept.lock().unwrap().position(index) else { return };
        let snapshot = Snapshot {
            position,
            configuration: (**node.configuration()).clone(),
            data: hash.to_le_bytes().to_vec(),
        };
        node.offer_snapshot(Some(&snapshot)).unwrap();
    }

    fn read(&mut self, at: usize) {
        self.offer(at);
        let newest = self.committed.last_key_value().map_or(0, |(index, _)| *index);
        let member = &mut self.members[at];
        if let Some(Ok(read)) = member.node.as_mut().map(Node::read_index) {
            member.reads.insert(read.number, newest);
        }
    }

    /// All is well again: the set must find a leader, end its change and commit something new on
    /// every member.
    fn heal(&mut self) -> Check {
        self.calm = true;
        self.network.cut.clear();
        self.network.weather = Weather { delay: 1, loss: 0, repeats: 0, ordered: true };
        for member in &mut self.members {
            (member.paused_until, member.down_until) = (0, 0);
        }
        let mut goal = None;
        for _ in 0..4000 {
            self.step()?;
            let Some(at) = (0..self.members.len()).find(|at| self.leads_newest(*at)) else {
                continue;
            };
            self.offer(at);
            let node = self.members[at].node.as_mut().unwrap();
            let configuration = Arc::clone(node.configuration());
            if configuration.is_joint() {
                continue;
            }
            // What an earlier leader proposed may be void.
            if goal.is_none_or(|goal: Position| goal.term < node.role_state().term) {
                goal = node.propose(Descriptor::default()).ok();
            }
            let all: BTreeSet<MemberId> = configuration.members();
            let everywhere = all
                .iter()
                .all(|id| goal.is_some_and(|goal| self.members[place(*id)].applied >= goal.index));
            if everywhere {
                return Ok(());
            }
        }
        Err(format!("no progress after all is well: {}", self.describe()))
    }

    fn leads_newest(&self, at: usize) -> bool {
        let newest = self.members.iter().filter_map(|member| member.node.as_ref());
        let newest = newest.map(|node| node.role_state().term).max();
        self.leads(at)
            && self.members[at].node.as_ref().map(|node| node.role_state().term) == newest
    }

    fn describe(&self) -> String {
        let nodes = self.members.iter().filter_map(|member| member.node.as_ref());
        let lines: Vec<_> = nodes.map(|node| format!("{:?}", node.status())).collect();
        lines.join("\n")
    }
}
