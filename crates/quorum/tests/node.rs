//! The rules of a node, each on a small set whose messages arrive at once and whose disks sync when
//! the test says so.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, VecDeque};

use quorum::{
    Body, Change, Configuration, Content, Descriptor, Entry, Error, HardState, MemberId, Message,
    Node, Position, Ready, Role, Settings, Standing, Start,
};
use testkit::Gen;

const ELECTION: usize = 10;

fn id(member: u64) -> MemberId {
    MemberId(member)
}

fn start(voters: &[u64]) -> Start {
    Start {
        hard_state: HardState { term: 1, vote: None },
        base: Position { term: 1, index: 1 },
        applied: 1,
        configuration: Configuration::of_voters(voters.iter().copied().map(MemberId)),
        ..Start::default()
    }
}

fn settings(member: u64) -> Settings {
    let (election_ticks, hand_over_ticks) = (ELECTION, ELECTION / 2);
    Settings { election_ticks, hand_over_ticks, heartbeat_ticks: 2, ..Settings::new(id(member)) }
}

fn node_with(settings: Settings, start: Start) -> Node {
    let mut random = Gen::new(settings.id.0);
    Node::new(settings, start, Box::new(move || random.u64())).unwrap()
}

fn records(bytes: u32) -> Descriptor {
    Descriptor { bytes, ..Descriptor::default() }
}

/// Nodes whose messages arrive at once. Those in `silent` hear and say nothing.
struct Set {
    nodes: BTreeMap<MemberId, Node>,
    silent: Vec<MemberId>,
    done: Vec<(MemberId, Ready)>,
}

impl Set {
    fn of(voters: &[u64], change: impl Fn(&mut Settings)) -> Self {
        let node = |member: &u64| {
            let mut settings = settings(*member);
            change(&mut settings);
            (id(*member), node_with(settings, start(voters)))
        };
        Self { nodes: voters.iter().map(node).collect(), silent: Vec::new(), done: Vec::new() }
    }

    /// A set of three led by 1, its first entry committed.
    fn led() -> Self {
        let mut set = Self::of(&[1, 2, 3], |_| {});
        set.at(1).campaign_now().unwrap();
        set.settle();
        assert_eq!(set.at(1).role_state().role, Role::Leader);
        set
    }

    fn at(&mut self, member: u64) -> &mut Node {
        self.nodes.get_mut(&id(member)).unwrap()
    }

    fn leaders(&self) -> Vec<u64> {
        let leads =
            self.nodes.iter().filter(|(id, node)| node.leads() && !self.silent.contains(id));
        leads.map(|(id, _)| id.0).collect()
    }

    /// All that is to be done, until nothing is.
    fn settle(&mut self) {
        let mut on_the_way = VecDeque::new();
        loop {
            for (id, node) in &mut self.nodes {
                while let Some(ready) = node.ready() {
                    on_the_way.extend(ready.send.clone());
                    if let Some(number) = ready.persist {
                        on_the_way.extend(node.persisted(number));
                    }
                    self.done.push((*id, ready));
                }
            }
            let Some(message) = on_the_way.pop_front() else { return };
            if [message.from, message.to].iter().any(|id| self.silent.contains(id)) {
                continue;
            }
            if let Some(node) = self.nodes.get_mut(&message.to) {
                let shown = format!("{message:?}");
                let heard = node.receive(message);
                assert!(
                    matches!(heard, Ok(()) | Err(Error::NoMember { .. })),
                    "{heard:?}: {shown}"
                );
            }
        }
    }

    fn tick(&mut self, times: usize) {
        for _ in 0..times {
            self.nodes.values_mut().for_each(Node::tick);
            self.settle();
        }
    }

    fn committed(&self, member: u64) -> Vec<&Entry> {
        let of = self.done.iter().filter(|(by, _)| *by == id(member));
        of.flat_map(|(_, ready)| &ready.committed).collect()
    }
}

#[test]
fn what_a_leader_proposes_is_committed_once_and_in_order_on_all() {
    let mut set = Set::led();
    for bytes in 0..5 {
        set.at(1).propose(records(bytes)).unwrap();
    }
    set.settle();
    set.tick(3);
    for member in 1..=3 {
        let contents: Vec<_> = set.committed(member).iter().map(|e| e.content.clone()).collect();
        let mut expected = vec![Content::Fence];
        expected.extend((0..5).map(|bytes| Content::Records(records(bytes))));
        assert_eq!(contents, expected, "member {member}");
    }
    assert_eq!(set.at(2).propose(records(1)), Err(Error::NotLeader));
}

#[test]
fn a_follower_acknowledges_what_is_synced_and_nothing_before() {
    let mut set = Set::led();
    let follower = set.at(2);
    let entry = Entry { term: 2, index: 3, content: Content::Records(records(9)) };
    let previous = Position { term: 2, index: 2 };
    let body = Body::Append { previous, commit: 2, entries: vec![entry] };
    follower.receive(Message { from: id(1), to: id(2), term: 2, body }).unwrap();
    let ready = follower.ready().unwrap();
    assert!(ready.send.is_empty(), "{ready:?}");
    // A heartbeat's answer says nothing of the log, and does not wait for a slow disk.
    let beat = Body::Heartbeat { commit: 2, read: None };
    follower.receive(Message { from: id(1), to: id(2), term: 2, body: beat }).unwrap();
    let behind = follower.ready().unwrap();
    assert!(behind.persist.is_none());
    assert!(matches!(behind.send[..], [Message { body: Body::HeartbeatAnswer { .. }, .. }]));
    let said = follower.persisted(ready.persist.unwrap());
    assert!(matches!(said[0].body, Body::Accepted { index: 3, .. }), "{said:?}");
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn a_vote_goes_out_once_it_is_synced() {
    let mut node = node_with(settings(1), start(&[1, 2, 3]));
    let at = Position { term: 1, index: 1 };
    let body = Body::VoteRequest { pre: false, transfer: false, last: at, commit: at };
    node.receive(Message { from: id(2), to: id(1), term: 2, body }).unwrap();
    let ready = node.ready().unwrap();
    assert_eq!(ready.hard_state, Some(HardState { term: 2, vote: Some(id(2)) }));
    assert!(ready.send.is_empty());
    let said = node.persisted(ready.persist.unwrap());
    assert!(matches!(said[0].body, Body::Vote { granted: true, pre: false, .. }), "{said:?}");
}

#[test]
fn a_lone_voter_says_nothing_as_leader_before_its_own_vote_is_synced() {
    let mut begin = start(&[1]);
    begin.configuration.learners.insert(id(2));
    let mut node = node_with(settings(1), begin);
    node.campaign_now().unwrap();
    assert!(node.leads(), "it needs nobody");
    let ready = node.ready().unwrap();
    assert_eq!(ready.hard_state, Some(HardState { term: 2, vote: Some(id(1)) }));
    assert!(ready.send.is_empty(), "after a crash it could lead this term again: {ready:?}");
    let said = node.persisted(ready.persist.unwrap());
    assert!(said.iter().any(|message| matches!(message.body, Body::Append { .. })), "{said:?}");
}

#[test]
fn a_lone_voter_with_an_unsynced_log_does_not_campaign() {
    let mut set = Set::led();
    let entry = Entry { term: 2, index: 3, content: Content::Records(records(9)) };
    let previous = Position { term: 2, index: 2 };
    let body = Body::Append { previous, commit: 2, entries: vec![entry] };
    let follower = set.at(2);
    follower.receive(Message { from: id(1), to: id(2), term: 2, body }).unwrap();
    let ready = follower.ready().unwrap();
    for _ in 0..ELECTION * 4 {
        follower.tick();
    }
    assert_eq!(follower.role_state().role, Role::Follower);
    assert!(matches!(follower.campaign_now(), Err(Error::NotNow(_))));
    follower.persisted(ready.persist.unwrap());
    (0..ELECTION * 2).for_each(|_| follower.tick());
    assert_eq!(follower.role_state().role, Role::PreCandidate);
}

#[test]
fn a_closed_port_ends_the_lease_and_another_member_leads_within_ticks() {
    for voters in [&[1, 2, 3][..], &[1, 2, 3, 4, 5]] {
        let mut set = Set::of(voters, |_| {});
        set.at(1).campaign_now().unwrap();
        set.settle();
        set.silent.push(id(1));
        for member in &voters[1..] {
            set.at(*member).port_closed(id(1));
        }
        let led = (1..=8).any(|_| {
            set.tick(1);
            !set.leaders().is_empty()
        });
        assert!(led, "nobody leads after 8 ticks");
    }
}

#[test]
fn who_hears_the_leader_still_refuses_a_member_that_thinks_it_is_gone() {
    let mut set = Set::led();
    set.tick(1);
    set.at(2).port_closed(id(1));
    set.tick(6);
    assert_eq!(set.leaders(), [1]);
    assert_eq!(set.at(1).role_state().term, 2, "nobody's term has grown");
}

#[test]
fn a_member_that_may_not_campaign_never_does_and_is_never_handed_to() {
    let mut set = Set::led();
    set.at(2).set_priority(false, 0);
    set.at(1).transfer_to(id(2)).unwrap();
    set.settle();
    assert_eq!(set.leaders(), [1], "it refuses");
    assert!(matches!(set.at(2).campaign_now(), Err(Error::Invalid(_))));
    set.silent.push(id(1));
    set.at(2).port_closed(id(1));
    set.tick(ELECTION * 3);
    assert_eq!(set.leaders(), [3], "and votes for others");
}

#[test]
fn a_member_of_higher_rank_waits_longer() {
    let mut firsts = BTreeMap::new();
    for seed in 0..20 {
        let node = |member: u64| {
            let settings = Settings { rank: 6 * (member as u32 - 1), ..settings(member) };
            let mut random = Gen::new(seed * 3 + member);
            let random = Box::new(move || random.u64());
            (id(member), Node::new(settings, start(&[1, 2, 3]), random).unwrap())
        };
        let nodes = (1..=3).map(node).collect();
        let mut set = Set { nodes, silent: Vec::new(), done: Vec::new() };
        set.tick(ELECTION * 3);
        *firsts.entry(set.leaders()[0]).or_insert(0) += 1;
    }
    assert_eq!(firsts, BTreeMap::from([(1, 20)]));
}

#[test]
fn a_leader_hands_over_and_takes_nothing_meanwhile() {
    let mut set = Set::led();
    assert!(set.at(1).transfer_to(id(1)).is_err() && set.at(1).transfer_to(id(9)).is_err());
    set.at(1).transfer_to(id(3)).unwrap();
    assert_eq!(set.at(1).status().handing_over_to, Some(id(3)));
    assert_eq!(set.at(1).propose(records(1)), Err(Error::NotNow("the leader is handing over")));
    set.settle();
    assert_eq!(set.leaders(), [3]);
}

/// Whether 3 leads after so many ticks at most.
fn leads_within(set: &mut Set, ticks: usize) -> bool {
    (0..ticks).any(|_| {
        set.tick(1);
        set.leaders() == [3]
    })
}

#[test]
fn a_member_that_was_not_reached_is_asked_again_to_take_over() {
    let mut set = Set::led();
    set.silent.push(id(3));
    set.at(1).transfer_to(id(3)).unwrap();
    set.settle();
    // What it was asked is lost with its link.
    set.at(1).unreachable(id(3));
    set.silent.clear();
    assert!(leads_within(&mut set, 3));
    // So is what was sent while it still lacked an entry.
    let mut set = Set::led();
    set.silent.push(id(3));
    set.at(1).propose(records(1)).unwrap();
    set.settle();
    set.at(1).transfer_to(id(3)).unwrap();
    set.settle();
    set.at(1).unreachable(id(3));
    set.silent.clear();
    assert!(leads_within(&mut set, 5));
}

#[test]
fn a_member_that_could_not_take_over_just_then_is_asked_again() {
    let mut set = Set::led();
    // It refuses once, and is able a moment later.
    set.at(3).set_priority(false, 0);
    set.at(1).transfer_to(id(3)).unwrap();
    set.settle();
    assert_eq!(set.leaders(), [1]);
    set.at(3).set_priority(true, 0);
    assert!(leads_within(&mut set, 2));
}

#[test]
fn a_leader_goes_on_soon_where_nobody_takes_over() {
    let mut set = Set::led();
    set.silent.push(id(3));
    set.at(1).transfer_to(id(3)).unwrap();
    set.tick(ELECTION / 2);
    assert_eq!(set.at(1).handing_over_to(), None);
    set.at(1).propose(records(1)).unwrap();
    // It is told that there is nothing to wait for.
    set.at(1).transfer_to(id(3)).unwrap();
    set.at(1).end_transfer();
    set.at(1).propose(records(1)).unwrap();
    // A member that comes on is waited for.
    set.silent.clear();
    set.tick(2);
    assert_eq!(set.at(3).last(), set.at(1).last());
}

#[test]
fn a_leader_that_hands_over_again_and_again_notices_that_nobody_hears_it() {
    let mut set = Set::led();
    for tick in 0..3 * ELECTION {
        let to = 2 + (tick as u64 % 2);
        let _refused = set.at(1).transfer_to(id(to));
        set.silent = vec![id(2), id(3)];
        set.tick(1);
        set.at(1).end_transfer();
    }
    assert!(!set.at(1).leads(), "it leads on with nobody who follows");
}

fn change(member: u64, standing: Standing) -> Change {
    Change { member: id(member), standing }
}

#[test]
fn a_removed_leader_steps_down_and_the_others_go_on() {
    let mut set = Set::led();
    let gone = vec![change(1, Standing::Gone)];
    set.at(1).propose_configuration(gone, b"without 1".to_vec()).unwrap();
    set.settle();
    assert_eq!(set.at(1).role_state().role, Role::Follower);
    assert_eq!(**set.at(1).configuration(), Configuration::of_voters([id(2), id(3)]));
    set.tick(ELECTION * 3);
    let leader = set.leaders()[0];
    assert_ne!(leader, 1);
    set.at(leader).propose(records(5)).unwrap();
    set.settle();
    set.tick(3);
    assert_eq!(set.at(2).last(), set.at(3).last());
    assert_eq!(**set.at(3).configuration(), Configuration::of_voters([id(2), id(3)]));
}

#[test]
fn changes_of_members_that_cannot_be_are_refused_before_they_are_proposed() {
    let mut set = Set::of(&[1, 2, 3], |_| {});
    let ask = |set: &mut Set, changes: &[Change]| {
        set.at(1).propose_configuration(changes.to_vec(), Vec::new()).err()
    };
    let add = change(4, Standing::Voter);
    assert_eq!(ask(&mut set, &[add]), Some(Error::NotLeader));
    // 1 wins, but nobody has its first entry yet.
    set.at(1).campaign_now().unwrap();
    let ready = set.at(1).ready().unwrap();
    drop(set.at(1).persisted(ready.persist.unwrap_or_default()));
    for pre in [true, false] {
        let (term, granted) = (2, true);
        let body = Body::Vote { pre, granted, commit: Position::default() };
        set.at(1).receive(Message { from: id(2), to: id(1), term, body }).unwrap();
        while let Some(ready) = set.at(1).ready() {
            ready.persist.into_iter().for_each(|number| drop(set.at(1).persisted(number)));
        }
    }
    assert!(set.at(1).leads());
    assert!(matches!(ask(&mut set, &[add]), Some(Error::NotNow(_))), "no entry of its own yet");

    let mut set = Set::led();
    let all_gone = [1, 2, 3].map(|member| change(member, Standing::Gone));
    assert!(matches!(ask(&mut set, &all_gone), Some(Error::Invalid(_))));
    assert!(matches!(ask(&mut set, &[add, add]), Some(Error::Invalid(_))));
    assert!(matches!(ask(&mut set, &[change(0, Standing::Voter)]), Some(Error::Invalid(_))));
    assert_eq!(ask(&mut set, &[add]), None);
    let under_way = Error::NotNow("a change of the configuration is under way");
    assert_eq!(ask(&mut set, &[add]), Some(under_way));
    set.settle();
    let configuration = set.at(1).configuration();
    assert_eq!(**configuration, Configuration::of_voters([1, 2, 3, 4].map(MemberId)));
    assert_eq!(ask(&mut set, &[]), None, "settings alone");
}

#[test]
fn what_is_not_decided_is_bounded_by_the_bytes_of_its_records() {
    let mut set = Set::of(&[1, 2, 3], |settings| settings.max_uncommitted_bytes = 1000);
    set.at(1).campaign_now().unwrap();
    set.settle();
    set.at(1).propose(records(5000)).unwrap();
    assert!(matches!(set.at(1).propose(records(1)), Err(Error::NotNow(_))), "one large one goes");
    set.settle();
    set.at(1).propose(records(600)).unwrap();
    assert!(set.at(1).propose(records(600)).is_err());
    set.at(1).propose(records(400)).unwrap();
    assert_eq!(set.at(1).status().uncommitted_bytes, 1000);
    set.settle();
    assert_eq!(set.at(1).status().uncommitted_bytes, 0);
}

#[test]
fn entries_in_memory_are_bounded() {
    let mut set = Set::of(&[1, 2, 3], |settings| settings.max_entries = 20);
    set.at(1).campaign_now().unwrap();
    set.settle();
    for _ in 0..100 {
        set.at(1).propose(records(1)).unwrap();
        set.settle();
    }
    let status = set.at(1).status();
    assert_eq!(status.last.index - status.first + 1, 20);
    set.silent = vec![id(2), id(3)];
    let taken = (0..100).take_while(|_| set.at(1).propose(records(0)).is_ok()).count();
    assert_eq!(taken, 20);
}

#[test]
fn a_read_waits_for_a_round_of_the_majority() {
    let mut set = Set::led();
    let of_leader = set.at(1).read_index().unwrap();
    let of_follower = set.at(2).read_index().unwrap();
    set.settle();
    let points: Vec<_> = set.done.iter().flat_map(|(_, ready)| &ready.reads).copied().collect();
    let of = |read| points.iter().find(|point| point.read == read).map(|point| point.index);
    assert_eq!((of(of_leader), of(of_follower)), (Some(2), Some(2)));
    set.silent = vec![id(2), id(3)];
    let read = set.at(1).read_index().unwrap();
    set.settle();
    assert!(!set.done.iter().flat_map(|(_, r)| &r.reads).any(|point| point.read == read));
    let bounded = (0..5000).take_while(|_| set.at(1).read_index().is_ok()).count();
    assert!(bounded < 2000, "reads that wait are bounded");
}

#[test]
fn a_leader_without_its_majority_steps_down() {
    let mut set = Set::led();
    set.silent = vec![id(1)];
    (0..ELECTION * 3).for_each(|_| set.at(1).tick());
    assert_eq!(set.at(1).role_state().role, Role::Follower);
}

#[test]
fn a_start_that_contradicts_itself_is_refused() {
    let check = |change: &dyn Fn(&mut Start, &mut Settings)| {
        let (mut begin, mut settings) = (start(&[1, 2]), settings(1));
        let entry = |term, index| Entry { term, index, content: Content::Fence };
        begin.entries = vec![entry(1, 2), entry(2, 3)];
        change(&mut begin, &mut settings);
        Node::new(settings, begin, Box::new(|| 0)).err()
    };
    assert_eq!(check(&|_, _| {}), None);
    assert_eq!(check(&|s, _| s.commit = 99), None, "the log may have been cut by a crash");
    let refused = |change: &dyn Fn(&mut Start, &mut Settings)| {
        assert!(matches!(check(change), Some(Error::Start(_))));
    };
    refused(&|s, _| s.applied = 4);
    refused(&|s, _| s.applied = 0);
    refused(&|s, _| s.entries[1].index = 4);
    refused(&|s, _| s.entries[0].term = 9);
    refused(&|s, _| s.base = Position { term: 0, index: 1 });
    refused(&|s, _| s.base = Position::default());
    refused(&|s, _| s.configuration = Configuration::default());
    refused(&|s, _| s.hard_state.term = u64::MAX);
    refused(&|s, _| s.entries[1].term = u64::MAX);
    refused(&|_, settings| settings.id = id(0));
    refused(&|_, settings| settings.heartbeat_ticks = ELECTION);
    refused(&|_, settings| settings.max_in_flight = 0);
}

#[test]
fn the_same_calls_do_the_same() {
    let run = || {
        let mut set = Set::of(&[1, 2, 3], |_| {});
        set.tick(ELECTION * 4);
        let leader = set.leaders()[0];
        set.at(leader).propose(records(3)).unwrap();
        set.tick(5);
        set.silent.push(id(leader));
        set.tick(ELECTION * 4);
        set.done
    };
    assert_eq!(run(), run());
}
