//! A primary, a secondary and a witness: what the primary and the witness have acknowledged without the secondary is
//! there when the primary is gone for good and the secondary comes back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use quorum::state::MemberState;
use quorum::{Change, Configuration, MemberId, Position, Settings, Standing};
use replica::memory::{Fault, MemoryJournal, MemoryPromises};
use replica::{Event, Frame, Kinds, Links, Options, Promises as _, Replica};

const BASE: Position = Position { term: 1, index: 1 };
const PRIMARY: u64 = 1;
const SECONDARY: u64 = 2;
const WITNESS: u64 = 3;

#[derive(Default)]
struct Outbox(Vec<(MemberId, Frame)>);

impl Links for Outbox {
    fn send(&mut self, to: MemberId, frame: Frame) {
        self.0.push((to, frame));
    }
}

type Member = Replica<MemoryJournal, Outbox, MemoryPromises>;

/// Members that hear each other at once.
struct Set {
    running: BTreeMap<u64, Member>,
    now_ms: u64,
    took_writes: BTreeMap<u64, bool>,
}

fn configuration(voters: &[u64]) -> Configuration {
    Configuration::of_voters(voters.iter().copied().map(MemberId))
}

fn member(id: u64, journal: MemoryJournal, promises: MemoryPromises) -> Member {
    let is_witness = id == WITNESS;
    let rank = if is_witness { 20 } else { id as u32 - 1 };
    let settings =
        Settings { election_ticks: 10, heartbeat_ticks: 2, rank, ..Settings::new(MemberId(id)) };
    let options = Options { settings, tick_ms: 10, report_ms: 50, is_witness };
    let mut random = id;
    let next = Box::new(move || {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(id);
        random >> 32
    });
    let mut member = Replica::new(options, journal, Outbox::default(), promises, next).unwrap();
    member.set_kinds(Kinds {
        witnesses: [MemberId(WITNESS)].into(),
        ranks: [(MemberId(PRIMARY), 0), (MemberId(SECONDARY), 1)].into(),
        log_begins: 0,
        delays: BTreeMap::new(),
    });
    member
}

fn new_member(id: u64, voters: &[u64], fault: Fault) -> Member {
    let mut journal = MemoryJournal::new(BASE, configuration(voters));
    journal.fault = fault;
    member(id, journal, MemoryPromises::new(MemberState::new(MemberId(id))))
}

impl Set {
    fn new(voters: &[u64], fault_of_witness: Fault) -> Self {
        let fault = |id| if id == WITNESS { fault_of_witness } else { Fault::None };
        let running = voters.iter().map(|id| (*id, new_member(*id, voters, fault(*id)))).collect();
        Self { running, now_ms: 0, took_writes: BTreeMap::new() }
    }

    fn step(&mut self) {
        self.now_ms += 10;
        let mut frames = Vec::new();
        for (id, member) in &mut self.running {
            member.step(Duration::from_millis(self.now_ms), self.now_ms as i64).unwrap();
            let wrote = member.take_events().contains(&Event::Writable);
            *self.took_writes.entry(*id).or_default() |= wrote;
            frames.extend(member.links().0.drain(..).map(|(to, frame)| (*id, to, frame)));
        }
        for (from, to, frame) in frames {
            if let Some(member) = self.running.get_mut(&to.0) {
                let _not_a_member_yet = member.receive(MemberId(from), frame);
            }
        }
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&mut Self) -> bool) -> Result<(), String> {
        for _ in 0..3000 {
            if is_so(self) {
                return Ok(());
            }
            self.step();
        }
        let states: Vec<_> = self.running.values().map(Replica::status).collect();
        Err(format!("{what}: {states:#?}"))
    }

    fn takes_writes(&mut self, id: u64) -> bool {
        self.running.get(&id).is_some_and(Replica::is_writable)
    }

    fn write(&mut self, on: u64, text: &str) -> Result<(), String> {
        let member = self.running.get_mut(&on).ok_or("it does not run")?;
        member.journal().commit(text.as_bytes().to_vec());
        self.until("not acknowledged", |set| set.shows(on, text))
    }

    fn shows(&mut self, id: u64, text: &str) -> bool {
        let Some(member) = self.running.get_mut(&id) else { return false };
        member.journal().shown().iter().any(|record| record.bytes == text.as_bytes())
    }

    /// A member is killed; what it had on disk is returned.
    fn kill(&mut self, id: u64) -> (MemoryJournal, MemoryPromises) {
        let (mut journal, _, promises) = self.running.remove(&id).unwrap().into_parts();
        journal.crash(|_| 0);
        (journal, MemoryPromises::new(promises.state().clone()))
    }
}

/// The secondary is down, the primary writes on with the witness and is lost for good, the secondary comes back.
fn primary_is_lost(fault_of_witness: Fault) -> Result<(), String> {
    let mut set = Set::new(&[PRIMARY, SECONDARY, WITNESS], fault_of_witness);
    set.until("nobody leads", |set| set.takes_writes(PRIMARY))?;
    set.write(PRIMARY, "all three")?;
    set.until("the secondary does not follow", |set| set.shows(SECONDARY, "all three"))?;
    let (journal, promises) = set.kill(SECONDARY);
    for n in 0..50 {
        set.write(PRIMARY, &format!("without the secondary {n}"))?;
    }
    set.kill(PRIMARY);
    for _ in 0..100 {
        set.step();
    }
    assert!(!set.took_writes[&WITNESS], "a witness that is alone takes no writes");
    set.running.insert(SECONDARY, member(SECONDARY, journal, promises));
    set.until("the secondary does not lead", |set| set.takes_writes(SECONDARY))?;
    for n in 0..50 {
        let text = format!("without the secondary {n}");
        if !set.shows(SECONDARY, &text) {
            return Err(format!("{text} was acknowledged, and is lost"));
        }
    }
    assert!(!set.took_writes[&WITNESS], "a witness takes no writes");
    set.write(SECONDARY, "by the secondary")
}

#[test]
fn what_a_lost_primary_acknowledged_with_its_witness_is_there() {
    primary_is_lost(Fault::None).unwrap();
    // A witness that votes and keeps places only, as MongoDB's arbiters keep nothing, cannot give it.
    assert!(primary_is_lost(Fault::KeepsNoRecords).is_err(), "a planted bug is not found");
}

#[test]
fn a_new_witness_begins_where_its_leader_is() {
    let mut set = Set::new(&[PRIMARY, SECONDARY], Fault::None);
    set.until("nobody leads", |set| set.takes_writes(PRIMARY)).unwrap();
    for n in 0..20 {
        set.write(PRIMARY, &format!("before {n}")).unwrap();
    }
    // Nobody has the beginning of the log any more, neither on disk nor in memory.
    for id in [PRIMARY, SECONDARY] {
        set.running.get_mut(&id).unwrap().journal().trim(15);
    }
    set.step();
    set.running.insert(WITNESS, new_member(WITNESS, &[PRIMARY], Fault::None));
    for standing in [Standing::Learner, Standing::Voter] {
        let changes = vec![Change { member: MemberId(WITNESS), standing }];
        let leader = set.running.get_mut(&PRIMARY).unwrap();
        let at = leader.propose_configuration(changes, vec![7]).unwrap();
        set.until("the witness does not follow", |set| {
            let view = set.running[&WITNESS].status();
            view.applied_index > at.index && !view.configuration.is_joint()
        })
        .unwrap();
    }
    assert!(set.running[&WITNESS].needs_copy().is_none());
    let configuration = set.running[&WITNESS].configuration();
    assert_eq!(**configuration, self::configuration(&[PRIMARY, SECONDARY, WITNESS]));
    // It counts, over a restart too.
    set.kill(SECONDARY);
    let (journal, promises) = set.kill(WITNESS);
    set.running.insert(WITNESS, member(WITNESS, journal, promises));
    set.until("nobody leads", |set| set.takes_writes(PRIMARY)).unwrap();
    set.write(PRIMARY, "with the witness").unwrap();
}
