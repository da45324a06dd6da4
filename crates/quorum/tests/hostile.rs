//! Messages that no honest member sends, to nodes in every role: nothing panics, and what is refused
//! changes nothing.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use quorum::{
    Body, Change, Configuration, Content, Descriptor, Entry, HardState, MemberId, Message, Node,
    Position, ReadId, Settings, Snapshot, Standing, Start,
};
use testkit::Gen;

/// Numbers at the edges of everything, and around what the node has.
const NUMBERS: [u64; 16] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 63, (1 << 62) - 1, 1 << 62, u64::MAX - 1, u64::MAX];

struct Liar(Gen);

impl Liar {
    fn number(&mut self) -> u64 {
        // Mostly what could be.
        let most = if self.0.one_in(4) { NUMBERS.len() as u64 } else { 11 };
        NUMBERS[self.0.below(most) as usize]
    }

    fn position(&mut self) -> Position {
        Position { term: self.number(), index: self.number() }
    }

    fn member(&mut self) -> MemberId {
        MemberId(self.number())
    }

    fn members(&mut self) -> std::collections::BTreeSet<MemberId> {
        (0..self.0.below(4)).map(|_| self.member()).collect()
    }

    fn content(&mut self) -> Content {
        match self.0.below(4) {
            0 => Content::Fence,
            1 => Content::Joined,
            2 => Content::Records(Descriptor { bytes: u32::MAX, ..Descriptor::default() }),
            _ => {
                let standings = [Standing::Voter, Standing::Learner, Standing::Gone];
                let change = |liar: &mut Self| Change {
                    member: liar.member(),
                    standing: standings[liar.0.below(3) as usize],
                };
                let changes = (0..self.0.below(4)).map(|_| change(self)).collect();
                Content::Configuration { changes, document: self.0.bytes(20) }
            }
        }
    }

    fn entries(&mut self, behind: Position) -> Vec<Entry> {
        let mut before = behind;
        let mut entries = Vec::new();
        for _ in 0..self.0.below(4) {
            let mut place = Position { term: before.term, index: before.index.wrapping_add(1) };
            if self.0.one_in(4) {
                place = self.position();
            }
            before = place;
            entries.push(Entry { term: place.term, index: place.index, content: self.content() });
        }
        entries
    }

    fn body(&mut self) -> Body {
        let flag = |liar: &mut Self| liar.0.one_in(2);
        let read = ReadId { member: self.member(), number: self.number() };
        match self.0.below(13) {
            0..=2 => {
                let previous = self.position();
                let entries = self.entries(previous);
                Body::Append { previous, commit: self.number(), entries }
            }
            3 => Body::Accepted { index: self.number(), commit: self.number() },
            4 => {
                Body::Refused { index: self.number(), hint: self.position(), commit: self.number() }
            }
            5 => Body::VoteRequest {
                pre: flag(self),
                transfer: flag(self),
                last: self.position(),
                commit: self.position(),
            },
            6 => Body::Vote { pre: flag(self), granted: flag(self), commit: self.position() },
            7 => Body::Heartbeat { commit: self.number(), read: flag(self).then_some(read) },
            8 => Body::HeartbeatAnswer { commit: self.number(), read: flag(self).then_some(read) },
            9 => Body::CampaignNow,
            10 => Body::ReadRequest(read),
            11 => Body::ReadAnswer { read, index: self.number() },
            _ => Body::Snapshot(Snapshot {
                position: self.position(),
                configuration: Configuration {
                    voters: self.members(),
                    learners: self.members(),
                    outgoing: self.members(),
                    learners_next: self.members(),
                },
                data: self.0.bytes(20),
            }),
        }
    }

    fn message(&mut self) -> Message {
        let to = if self.0.one_in(20) { self.member() } else { MemberId(1) };
        Message { from: self.member(), to, term: self.number(), body: self.body() }
    }
}

fn node(seed: u64) -> Node {
    let known = !seed.is_multiple_of(5);
    let voters = [&[1, 2, 3][..], &[1], &[1, 2], &[2, 3]][(seed % 4) as usize];
    let entry = |index| Entry { term: 1 + index / 3, index, content: Content::Fence };
    let begin = Start {
        hard_state: HardState { term: 3, vote: None },
        commit: 3,
        base: Position { term: 1, index: 1 },
        entries: (2..7).map(entry).collect(),
        applied: 2,
        configuration: Configuration::of_voters(voters.iter().copied().map(MemberId)),
    };
    let settings = Settings {
        election_ticks: 4,
        heartbeat_ticks: 1,
        max_in_flight: 2,
        max_message_bytes: 100,
        max_entries: 50,
        ..Settings::new(MemberId(1))
    };
    let mut random = Gen::new(seed);
    let begin = if known { begin } else { Start::default() };
    Node::new(settings, begin, Box::new(move || random.u64())).unwrap()
}

#[test]
fn no_message_makes_a_node_panic() {
    let mut refused = 0;
    let mut led = 0;
    for seed in 0..4000 {
        let mut liar = Liar(Gen::new(seed));
        let mut node = node(seed);
        let mut unsynced = Vec::new();
        for _ in 0..60 {
            match liar.0.below(12) {
                0 => (0..liar.0.below(12)).for_each(|_| node.tick()),
                1 => drop(node.campaign_now()),
                2 => drop(node.propose(Descriptor::default())),
                3 => {
                    let change = Change { member: liar.member(), standing: Standing::Voter };
                    drop(node.propose_configuration(vec![change], Vec::new()));
                }
                4 => drop(node.transfer_to(liar.member())),
                5 => {
                    node.port_closed(liar.member());
                    node.snapshot_sent(liar.member(), true);
                    drop(node.read_index());
                }
                6 => node.compact_to(liar.number()),
                _ => {
                    let before = node.status();
                    let message = liar.message();
                    let shown = format!("{message:?}");
                    if let Err(error) = node.receive(message) {
                        assert_eq!(node.status(), before, "{error} has changed it: {shown}");
                        refused += 1;
                    }
                }
            }
            // Disks sync late, or never.
            while let Some(ready) = node.ready() {
                unsynced.extend(ready.persist);
            }
            if liar.0.one_in(3) {
                unsynced.drain(..).for_each(|number| drop(node.persisted(number)));
            }
            led += u64::from(node.leads());
        }
    }
    assert!(refused > 10_000 && led > 10_000, "{refused} refused, {led} times a leader");
}
