//! The rules of a replica, each on a set of three over journals in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use quorum::state::MemberState;
use quorum::{
    Body, Configuration, Content, Descriptor, Entry, MemberId, Message, Position, Settings,
    Snapshot,
};
use replica::memory::{Fault, MemoryJournal, MemoryPromises};
use replica::{Error, Event, Frame, Links, Options, Replica};
use testkit::Gen;

#[derive(Default)]
struct Outbox(Vec<(MemberId, Frame)>);

impl Links for Outbox {
    fn send(&mut self, to: MemberId, frame: Frame) {
        self.0.push((to, frame));
    }
}

type Tested = Replica<MemoryJournal, Outbox, MemoryPromises>;

fn id(member: u64) -> MemberId {
    MemberId(member)
}

fn voters() -> Configuration {
    Configuration::of_voters([1, 2, 3].map(MemberId))
}

const BASE: Position = Position { term: 1, index: 1 };

fn replica(member: u64) -> Tested {
    let settings = Settings { max_message_bytes: 64 << 20, ..Settings::new(id(member)) };
    let options = Options { settings, ..Options::new(id(member)) };
    let mut random = Gen::new(member);
    let journal = MemoryJournal::new(BASE, voters());
    let promises = MemoryPromises::new(MemberState::new(id(member)));
    Replica::new(options, journal, Outbox::default(), promises, Box::new(move || random.u64()))
        .unwrap()
}

struct Set {
    members: Vec<Tested>,
    now_ms: u64,
    /// Nothing reaches or leaves them.
    silent: Vec<u64>,
    /// What they say is on its way, and does not arrive.
    arriving: Vec<u64>,
    most_payload_bytes: u64,
    /// Sent so far.
    frames: usize,
}

impl Set {
    fn new() -> Self {
        let members = (1..=3).map(replica).collect();
        Self {
            members,
            now_ms: 0,
            silent: Vec::new(),
            arriving: Vec::new(),
            most_payload_bytes: 0,
            frames: 0,
        }
    }

    /// A set that 1 leads and that takes writes.
    fn led() -> Self {
        let mut set = Self::new();
        set.at(1).campaign_now().unwrap();
        set.pass(10);
        assert!(set.at(1).is_writable());
        assert!(set.at(1).take_events().contains(&Event::Writable));
        set
    }

    fn at(&mut self, member: u64) -> &mut Tested {
        &mut self.members[member as usize - 1]
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        for from in self.arriving.clone() {
            for to in 1..=3 {
                if to != from && !self.silent.contains(&from) {
                    self.at(to).frame_arriving(id(from)).unwrap();
                }
            }
        }
        let is_quiet = (0..100).any(|_| !self.exchange());
        assert!(is_quiet, "they never stop talking");
    }

    /// Each works, then gets what the others have sent; whether there was anything.
    fn exchange(&mut self) -> bool {
        let mut frames = Vec::new();
        for member in 1..=3 {
            let now_ms = self.now_ms;
            let replica = self.at(member);
            let _stopped = replica.step(Duration::from_millis(now_ms), 0);
            let sent = std::mem::take(&mut replica.links().0);
            frames.extend(sent.into_iter().map(|(to, frame)| (member, to.0, frame)));
        }
        let any = !frames.is_empty();
        self.frames += frames.len();
        for (from, to, frame) in frames {
            let bytes = frame.payload_bytes() as u64;
            self.most_payload_bytes = self.most_payload_bytes.max(bytes);
            let is_whole = !self.arriving.contains(&from);
            if is_whole && !self.silent.contains(&from) && !self.silent.contains(&to) {
                let _stopped = self.at(to).receive(id(from), frame);
            }
        }
        any
    }

    fn shown(&mut self, member: u64) -> Vec<Vec<u8>> {
        self.at(member).journal().shown().iter().map(|record| record.bytes.clone()).collect()
    }
}

#[test]
fn what_is_written_on_the_leader_is_shown_by_all() {
    let mut set = Set::led();
    for n in 0..10_u8 {
        set.at(1).journal().commit(vec![n]);
    }
    set.pass(1);
    set.pass(1000);
    let expected: Vec<_> = (0..10_u8).map(|n| vec![n]).collect();
    for member in 1..=3 {
        assert_eq!(set.shown(member), expected, "member {member}");
    }
    // One sync, one entry: what came together goes together.
    assert_eq!(set.at(2).journal().entries().count(), 2);
    assert!(!set.at(2).is_writable());
    assert_eq!(set.at(3).reports()[&id(1)].from, id(1));
}

#[test]
fn what_comes_while_an_entry_is_on_its_way_goes_into_the_next() {
    let mut set = Set::led();
    let last = |set: &mut Set| set.at(1).status().last.index;
    let before = last(&mut set);
    set.silent = vec![2, 3];
    set.at(1).journal().commit(b"one".to_vec());
    set.pass(1);
    assert_eq!(last(&mut set), before + 1);
    for byte in b'a'..=b'c' {
        set.at(1).journal().commit(vec![byte]);
        set.pass(0);
        assert_eq!(last(&mut set), before + 1, "one is on its way");
        assert!(set.at(1).looks_again() <= Duration::from_millis(2));
    }
    set.pass(2);
    assert_eq!(last(&mut set), before + 2, "and takes long");
    // The answer comes, and with it those who wait for the next one.
    set.silent.clear();
    (0..100).for_each(|_| set.pass(50));
    set.at(1).journal().commit(b"more".to_vec());
    set.pass(0);
    assert_eq!(last(&mut set), before + 3);
    assert!(set.at(1).looks_again() > Duration::from_secs(1), "there is nothing to look at");
    assert_eq!(set.shown(2).len(), 5);
}

#[test]
fn an_idle_leader_tells_at_once_what_is_decided_and_a_busy_one_with_the_next_entry() {
    let mut set = Set::led();
    set.at(1).journal().commit(b"one".to_vec());
    let idle = set.frames;
    set.pass(1);
    assert_eq!(set.shown(2), [b"one"], "without a heartbeat");
    let alone = set.frames - idle;
    // While one entry is decided the next one waits.
    let busy = set.frames;
    set.at(1).journal().commit(b"two".to_vec());
    // The entry goes to the others, their answers come back.
    assert!(set.exchange() && set.exchange());
    set.at(1).journal().commit(b"three".to_vec());
    set.pass(0);
    assert_eq!(set.shown(3).len(), 3);
    let both = set.frames - busy;
    assert!(both < 2 * alone, "{both} frames for two entries, {alone} for one");
}

#[test]
fn a_closed_port_makes_another_leader_in_a_fraction_of_the_timeout() {
    let mut set = Set::led();
    set.silent.push(1);
    set.at(2).port_closed(id(1)).unwrap();
    set.at(3).port_closed(id(1)).unwrap();
    let led = (1..=8).find(|_| {
        set.pass(50);
        set.at(2).is_writable() || set.at(3).is_writable()
    });
    assert!(led.is_some(), "not within 400 ms");
}

#[test]
fn what_a_deposed_leader_had_open_is_gone_and_nobody_shows_it() {
    let mut set = Set::led();
    set.at(1).journal().commit(b"kept".to_vec());
    set.pass(1);
    set.silent.push(1);
    set.at(1).journal().commit(b"in an entry that nobody gets".to_vec());
    set.pass(1);
    assert_eq!(set.at(1).journal().entries().count(), 3);
    set.at(1).journal().commit(b"in no entry".to_vec());
    set.at(2).port_closed(id(1)).unwrap();
    set.at(3).port_closed(id(1)).unwrap();
    (0..20).for_each(|_| set.pass(50));
    let leader = if set.at(2).is_writable() { 2 } else { 3 };
    set.at(leader).journal().commit(b"of the next leader".to_vec());
    set.silent.clear();
    (0..40).for_each(|_| set.pass(50));
    for member in 1..=3 {
        assert_eq!(set.shown(member), [b"kept".to_vec(), b"of the next leader".to_vec()]);
        assert_eq!(set.at(member).journal().open_records(), 0);
    }
}

#[test]
fn a_failed_sync_stops_a_member_and_the_others_go_on() {
    let mut set = Set::led();
    set.at(1).journal().fault = Fault::FailsSyncs;
    set.at(1).journal().commit(b"lost with its disk".to_vec());
    set.pass(1);
    assert!(set.at(1).stopped().is_some() && !set.at(1).is_writable());
    assert!(matches!(set.at(1).step(Duration::from_millis(99), 0), Err(Error::Stopped(_))));
    let beat = Message {
        from: id(2),
        to: id(1),
        term: 9,
        body: Body::Heartbeat { commit: 0, read: None },
    };
    let frame = Frame::Consensus { message: beat, payloads: Vec::new() };
    assert!(matches!(set.at(1).receive(id(2), frame), Err(Error::Stopped(_))));
    (0..100).for_each(|_| set.pass(50));
    assert!(set.at(2).is_writable() || set.at(3).is_writable());
    assert!(set.at(2).reports()[&id(1)].stopped, "and they are told");
}

/// How long 1 takes no writes, in steps of 10 ms, where it hands over to 2 and goes on leading.
fn pause_of_a_hand_over(set: &mut Set) -> u64 {
    set.at(1).transfer_to(id(2)).unwrap();
    assert!(!set.at(1).is_writable());
    let mut waited = 0;
    while !set.at(1).is_writable() {
        assert!(waited < 10_000, "it never goes on");
        set.pass(10);
        waited += 10;
    }
    waited
}

#[test]
fn who_cannot_take_over_says_so_at_once() {
    let mut set = Set::led();
    set.pass(1);
    // Nobody was told yet.
    set.at(2).freeze(Some(1_000_000));
    assert!(pause_of_a_hand_over(&mut set) <= 20);
    set.at(1).journal().commit(b"goes on".to_vec());
    set.pass(10);
    assert_eq!(set.shown(3), [b"goes on"]);
    set.at(2).freeze(None);
    set.pass(10);
    set.at(2).set_maintenance(true);
    assert!(pause_of_a_hand_over(&mut set) <= 20);
}

#[test]
fn who_is_frozen_while_it_is_handed_over_to_is_waited_for_no_more() {
    let mut set = Set::led();
    set.at(2).set_takes_entries(false);
    set.at(1).journal().commit(b"one".to_vec());
    set.pass(10);
    set.at(1).transfer_to(id(2)).unwrap();
    set.pass(10);
    assert!(!set.at(1).is_writable(), "it waits for a member that is behind");
    set.at(2).freeze(Some(1_000_000));
    set.pass(10);
    assert!(set.at(1).is_writable());
}

#[test]
fn who_is_gone_is_not_waited_for_and_who_is_halted_not_for_long() {
    let mut set = Set::led();
    set.silent.push(2);
    let halted = pause_of_a_hand_over(&mut set);
    assert!((500..=1100).contains(&halted), "{halted} ms");
    // However long it is until an election begins.
    set.at(1).set_election_timeout(10_000);
    let halted = pause_of_a_hand_over(&mut set);
    assert!((500..=1500).contains(&halted), "{halted} ms");
    set.at(1).transfer_to(id(2)).unwrap();
    set.at(1).port_closed(id(2)).unwrap();
    assert!(set.at(1).is_writable());
}

fn append(payload: &[u8], checksum: u32) -> Frame {
    let records = Descriptor { last_ts: 1, last_time: 1, bytes: payload.len() as u32, checksum };
    let entry = Entry { term: 2, index: 2, content: Content::Records(records) };
    let body = Body::Append { previous: BASE, commit: 1, entries: vec![entry] };
    let message = Message { from: id(2), to: id(1), term: 2, body };
    Frame::Consensus { message, payloads: vec![payload.to_vec().into()] }
}

#[test]
fn frames_that_are_not_what_they_say_change_nothing() {
    let mut one = replica(1);
    let before = one.status();
    let refused = one.receive(id(2), append(b"records", 7));
    assert!(matches!(refused, Err(Error::Records { .. })), "{refused:?}");
    let refused = one.receive(id(3), append(b"records", crc32c::crc32c(b"records")));
    assert!(matches!(refused, Err(Error::WrongLink { .. })), "{refused:?}");
    let position = Position { term: 2, index: 9 };
    let snapshot = Snapshot { position, configuration: voters(), data: Vec::new() };
    let body = Body::Snapshot(snapshot);
    let message = Message { from: id(2), to: id(1), term: 2, body };
    // Where the log of somebody begins who does not lead here is not this one's business.
    one.receive(id(2), Frame::Consensus { message, payloads: Vec::new() }).unwrap();
    assert_eq!((one.needs_copy(), one.begin_copy()), (None, None));
    assert_eq!(one.status(), before);
    assert!(one.stopped().is_none(), "another member's fault is not this one's");
}

#[test]
fn who_makes_a_copy_promises_nothing() {
    let mut one = replica(1);
    let from_two = |body| {
        let message = Message { from: id(2), to: id(1), term: 2, body };
        Frame::Consensus { message, payloads: Vec::new() }
    };
    let log_begins = |position| {
        let configuration = voters();
        from_two(Body::Snapshot(Snapshot { position, configuration, data: Vec::new() }))
    };
    let far = Position { term: 2, index: 9 };
    one.receive(id(2), from_two(Body::Heartbeat { commit: 1, read: None })).unwrap();
    assert_eq!(one.begin_copy(), None, "nobody said that it needs one");
    one.receive(id(2), log_begins(far)).unwrap();
    let needed = one.needs_copy().unwrap();
    assert_eq!((needed.leader, needed.log_begins), (id(2), far));
    assert_eq!(one.begin_copy(), Some(needed));
    let answers = |one: &mut Tested, frame| {
        // The first thing that it writes is its term.
        for now_ms in [1, 2] {
            one.step(Duration::from_millis(now_ms), 0).unwrap();
        }
        one.links().0.clear();
        one.receive(id(2), frame).unwrap();
        !one.links().0.is_empty()
    };
    let nothing = || from_two(Body::Append { previous: BASE, commit: 1, entries: Vec::new() });
    assert!(!answers(&mut one, log_begins(BASE)), "not even of what it has");
    assert!(!answers(&mut one, nothing()));
    one.end_copy();
    assert_eq!(one.needs_copy(), None);
    assert!(answers(&mut one, log_begins(BASE)));
    assert!(answers(&mut one, nothing()));
}

#[test]
fn a_frame_that_takes_longer_than_an_election_timeout_arrives() {
    let mut set = Set::led();
    let term = set.at(1).status().role_state.term;
    set.at(1).journal().commit(vec![b'a']);
    set.arriving.push(1);
    for _ in 0..200 {
        set.pass(50);
    }
    assert!(set.at(1).is_writable(), "its followers answer");
    assert_eq!(set.at(1).status().role_state.term, term, "nobody campaigns");
    assert!(set.shown(1).is_empty());
    set.arriving.clear();
    for _ in 0..20 {
        set.pass(50);
    }
    for member in 1..=3 {
        assert_eq!(set.shown(member), [vec![b'a']], "member {member}");
    }
    // What comes of who does not lead is no word of a leader.
    set.arriving.push(2);
    set.silent.push(1);
    for _ in 0..200 {
        set.pass(50);
    }
    assert!(!set.at(1).is_writable());
    assert_ne!(set.at(3).status().role_state.leader, Some(id(1)), "it waits for nobody");
}

#[test]
fn who_takes_no_entries_answers_and_gets_them_later() {
    let mut set = Set::led();
    for follower in [2, 3] {
        set.at(follower).set_takes_entries(false);
    }
    set.at(1).journal().commit(vec![b'a']);
    let term = set.at(1).status().role_state.term;
    // Long enough for a leader that hears nothing to step down, and for those that hear nothing to campaign.
    for _ in 0..200 {
        set.pass(50);
    }
    assert_eq!(set.at(1).status().role_state.term, term, "nobody campaigns");
    assert!(set.at(1).is_writable(), "its followers answer");
    assert!(set.shown(1).is_empty(), "nobody has it but who wrote it");
    set.at(2).set_takes_entries(true);
    for _ in 0..20 {
        set.pass(50);
    }
    assert_eq!((set.shown(1), set.shown(2)), (vec![vec![b'a']], vec![vec![b'a']]));
    assert!(set.shown(3).is_empty());
    set.at(3).set_takes_entries(true);
    for _ in 0..20 {
        set.pass(50);
    }
    assert_eq!(set.shown(3), [vec![b'a']]);
}

#[test]
fn a_frame_holds_as_many_payloads_as_fit() {
    let mut set = Set::led();
    set.silent.push(3);
    for _ in 0..20 {
        set.at(1).journal().commit(vec![7; 4 << 20]);
        set.pass(1);
    }
    // 3 comes back and is sent all of it.
    set.silent.clear();
    set.most_payload_bytes = 0;
    (0..100).for_each(|_| set.pass(50));
    assert_eq!(set.shown(3).len(), 20);
    assert!(set.most_payload_bytes > 16 << 20, "many at once");
    assert!(set.most_payload_bytes < replica::MAX_FRAME as u64, "and not too many");
}

#[test]
fn a_member_starts_from_what_its_journal_holds() {
    let mut set = Set::led();
    set.at(1).journal().commit(b"one".to_vec());
    set.pass(1);
    set.pass(1000);
    let two = set.members.remove(1);
    let (mut journal, _, promises) = two.into_parts();
    journal.crash(|_| 0);
    let options = Options::new(id(2));
    let again =
        Replica::new(options, journal, Outbox::default(), promises, Box::new(|| 3)).unwrap();
    set.members.insert(1, again);
    assert_eq!(set.shown(2), Vec::<Vec<u8>>::new());
    (0..20).for_each(|_| set.pass(50));
    assert_eq!(set.shown(2), [b"one".to_vec()]);
    let other = MemoryPromises::new(MemberState::new(id(9)));
    let journal = MemoryJournal::new(BASE, voters());
    let refused =
        Replica::new(Options::new(id(2)), journal, Outbox::default(), other, Box::new(|| 3));
    assert!(matches!(refused.err(), Some(Error::State(_))));
}
