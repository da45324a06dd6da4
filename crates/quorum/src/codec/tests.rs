//! What is written is read, what is damaged is refused, and the bytes never change unseen.

use super::*;
use proptest::prelude::*;

/// One message of each kind, with every part of it filled.
fn samples() -> Vec<Message> {
    let read = ReadId { member: MemberId(3), number: 9 };
    let at = |term, index| Position { term, index };
    let changes = vec![
        Change { member: MemberId(4), standing: Standing::Voter },
        Change { member: MemberId(5), standing: Standing::Learner },
        Change { member: MemberId(6), standing: Standing::Gone },
    ];
    let records =
        Descriptor { last_ts: 77, last_time: 1 << 33, bytes: 4096, checksum: 0xdead_beef };
    let contents = [
        Content::Fence,
        Content::Records(records),
        Content::Configuration { changes, document: b"a document".to_vec() },
        Content::Joined,
    ];
    let entries = contents.into_iter().enumerate();
    let entries = entries.map(|(i, content)| Entry { term: 2, index: 11 + i as u64, content });
    let set = |ids: &[u64]| ids.iter().copied().map(MemberId).collect();
    let configuration = Configuration {
        voters: set(&[1, 2]),
        learners: set(&[3]),
        outgoing: set(&[2, 4]),
        learners_next: set(&[4]),
    };
    let bodies = [
        Body::Append { previous: at(2, 10), commit: 8, entries: entries.collect() },
        Body::Accepted { index: 14, commit: 8 },
        Body::Refused { index: 10, hint: at(1, 7), commit: 6 },
        Body::VoteRequest { pre: true, transfer: false, last: at(2, 14), commit: at(2, 8) },
        Body::VoteRequest { pre: false, transfer: true, last: at(2, 14), commit: at(2, 8) },
        Body::Vote { pre: true, granted: false, commit: at(2, 8) },
        Body::Vote { pre: false, granted: true, commit: at(0, 0) },
        Body::Heartbeat { commit: 8, read: Some(read) },
        Body::HeartbeatAnswer { commit: 8, read: None },
        Body::CampaignNow,
        Body::ReadRequest(read),
        Body::ReadAnswer { read, index: 8 },
        Body::Snapshot(Snapshot { position: at(2, 8), configuration, data: b"where".to_vec() }),
    ];
    let message = |body| Message { from: MemberId(1), to: MemberId(2), term: 3, body };
    bodies.into_iter().map(message).collect()
}

#[test]
fn each_message_is_read_as_it_was_written_and_its_bytes_are_those_of_before() {
    let mut all = Vec::new();
    for message in samples() {
        let bytes = encode(&message);
        assert_eq!(decode(&bytes).unwrap(), message);
        all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        all.extend_from_slice(&bytes);
    }
    testkit::golden(env!("CARGO_MANIFEST_DIR"), "raft-messages.v1.bin", &all);
}

#[test]
fn a_message_that_is_cut_or_continued_is_refused() {
    for message in samples() {
        let mut bytes = encode(&message);
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{message:?} cut to {length}");
        }
        bytes.push(0);
        assert_eq!(decode(&bytes), Err(malformed("bytes behind its end")));
    }
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = encode(&samples()[0]);
    bytes[0] = 2;
    assert_eq!(decode(&bytes), Err(Error::Version { found: 2, known: 1 }));
}

#[test]
fn counts_beyond_the_bounds_are_refused_before_anything_is_allocated() {
    let check = |kind: u8, before: usize, count: u32, room: usize, what| {
        let mut bytes = vec![VERSION, kind];
        bytes.resize(26 + before, 0);
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.resize(bytes.len() + room, 0);
        assert_eq!(decode(&bytes), Err(malformed(what)));
    };
    check(APPEND, 24, MAX_ENTRIES as u32 + 1, 8000, "too many entries");
    check(APPEND, 24, u32::MAX, 0, "too many entries");
    check(APPEND, 24, MAX_ENTRIES as u32, 16, "it ends too early");
    check(SNAPSHOT, 16, MAX_MEMBERS as u32 + 1, 8000, "too many members");
    check(SNAPSHOT, 32, MAX_SNAPSHOT as u32 + 1, 0, "too long a snapshot");
    check(SNAPSHOT, 16, 2, 64, "members out of order");
}

fn positions() -> impl Strategy<Value = Position> {
    any::<(u64, u64)>().prop_map(|(term, index)| Position { term, index })
}

fn reads() -> impl Strategy<Value = ReadId> {
    any::<(u64, u64)>().prop_map(|(member, number)| ReadId { member: MemberId(member), number })
}

fn contents() -> impl Strategy<Value = Content> {
    let standings =
        prop_oneof![Just(Standing::Voter), Just(Standing::Learner), Just(Standing::Gone)];
    let change = (any::<u64>(), standings)
        .prop_map(|(member, standing)| Change { member: MemberId(member), standing });
    let records =
        any::<(u64, u64, u32, u32)>().prop_map(|(last_ts, last_time, bytes, checksum)| {
            Content::Records(Descriptor { last_ts, last_time, bytes, checksum })
        });
    let document = prop::collection::vec(any::<u8>(), 0..50);
    let configuration = (prop::collection::vec(change, 0..5), document)
        .prop_map(|(changes, document)| Content::Configuration { changes, document });
    prop_oneof![Just(Content::Fence), Just(Content::Joined), records, configuration]
}

fn bodies() -> impl Strategy<Value = Body> {
    let entries = (positions(), contents()).prop_map(|(at, content)| Entry {
        term: at.term,
        index: at.index,
        content,
    });
    let set = || prop::collection::btree_set(any::<u64>().prop_map(MemberId), 0..5);
    let configuration =
        (set(), set(), set(), set()).prop_map(|(voters, learners, outgoing, next)| Configuration {
            voters,
            learners,
            outgoing,
            learners_next: next,
        });
    let flags = any::<(bool, bool)>;
    prop_oneof![
        (positions(), any::<u64>(), prop::collection::vec(entries, 0..6))
            .prop_map(|(previous, commit, entries)| Body::Append { previous, commit, entries }),
        any::<(u64, u64)>().prop_map(|(index, commit)| Body::Accepted { index, commit }),
        (any::<u64>(), positions(), any::<u64>()).prop_map(|(index, hint, commit)| Body::Refused {
            index,
            hint,
            commit
        }),
        (flags(), positions(), positions()).prop_map(|((pre, transfer), last, commit)| {
            Body::VoteRequest { pre, transfer, last, commit }
        }),
        (flags(), positions()).prop_map(|((pre, granted), commit)| Body::Vote {
            pre,
            granted,
            commit
        }),
        (any::<u64>(), prop::option::of(reads()))
            .prop_map(|(commit, read)| Body::Heartbeat { commit, read }),
        (any::<u64>(), prop::option::of(reads()))
            .prop_map(|(commit, read)| Body::HeartbeatAnswer { commit, read }),
        Just(Body::CampaignNow),
        reads().prop_map(Body::ReadRequest),
        (reads(), any::<u64>()).prop_map(|(read, index)| Body::ReadAnswer { read, index }),
        (positions(), configuration, prop::collection::vec(any::<u8>(), 0..50)).prop_map(
            |(position, configuration, data)| {
                Body::Snapshot(Snapshot { position, configuration, data })
            }
        ),
    ]
}

proptest! {
    #[test]
    fn whatever_is_said_is_read_as_it_was_written(
        (from, to, term) in any::<(u64, u64, u64)>(),
        body in bodies(),
    ) {
        let message = Message { from: MemberId(from), to: MemberId(to), term, body };
        prop_assert_eq!(decode(&encode(&message)).unwrap(), message);
    }

    #[test]
    fn what_can_be_read_is_written_with_the_same_bytes(
        body in bodies(),
        (place, byte) in any::<(u16, u8)>(),
    ) {
        let message = Message { from: MemberId(1), to: MemberId(2), term: 3, body };
        let mut bytes = encode(&message);
        let place = usize::from(place) % bytes.len();
        bytes[place] ^= byte;
        if let Ok(read) = decode(&bytes) {
            prop_assert_eq!(encode(&read), bytes);
        }
    }
}
