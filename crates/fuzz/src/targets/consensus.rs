//! What members say to each other of the log, and the file in which one keeps its promises.

use crate::Target;
use bson::{RawDocument, rawdoc};
use links::LinkHello;
use membership::SetDocument;
use quorum::state::{BLOCK_BYTES, MemberState};
use quorum::{Body, Content, Descriptor, Entry, MemberId, Message, Position, ReadId, codec};
use replica::{Frame, MemberReport};

/// A message between members.
pub(super) const RAFT_MESSAGE: Target = Target {
    name: "raft-message",
    corpus: || {
        let previous = Position { term: 2, index: 7 };
        let read = ReadId { member: MemberId(2), number: 4 };
        let configuration = Content::Configuration { changes: Vec::new(), document: vec![7; 9] };
        let contents = [Content::Fence, Content::Records(Descriptor::default()), configuration];
        let entries = (8..).zip(contents);
        let entries = entries.map(|(index, content)| Entry { term: 2, index, content }).collect();
        let bodies = [
            Body::Append { previous, commit: 5, entries },
            Body::VoteRequest { pre: true, transfer: false, last: previous, commit: previous },
            Body::Heartbeat { commit: 5, read: Some(read) },
        ];
        let message = |body| Message { from: MemberId(1), to: MemberId(2), term: 3, body };
        bodies.into_iter().map(|body| codec::encode(&message(body))).collect()
    },
    start: || {
        Box::new(|bytes| {
            if let Ok(message) = codec::decode(bytes) {
                assert_eq!(codec::encode(&message), bytes, "a message has one form");
            }
        })
    },
};

/// A frame of a link.
pub(super) const REPLICA_FRAME: Target = Target {
    name: "replica-frame",
    corpus: || {
        let payload = b"records".to_vec();
        let records = Descriptor { bytes: 7, ..Descriptor::default() };
        let entries = vec![Entry { term: 2, index: 8, content: Content::Records(records) }];
        let previous = Position { term: 2, index: 7 };
        let body = Body::Append { previous, commit: 5, entries };
        let message = Message { from: MemberId(1), to: MemberId(2), term: 3, body };
        let report = MemberReport { from: MemberId(1), term: 3, ..MemberReport::default() };
        let append = Frame::Consensus { message, payloads: vec![payload.into()] };
        vec![append.encode(), Frame::Report(report).encode()]
    },
    start: || {
        Box::new(|bytes| {
            if let Ok(frame) = Frame::decode(bytes) {
                // Of a packed payload there are more forms than the one that is written.
                let again = Frame::decode(&frame.encode());
                assert_eq!(again.as_ref().ok(), Some(&frame), "a frame is read as it was written");
            }
        })
    },
};

fn hello() -> LinkHello {
    LinkHello {
        set: "rs".to_owned(),
        set_id: bson::oid::ObjectId::from_bytes([7; 12]),
        from: MemberId(1),
        to: MemberId(2),
        lineage: 0,
        start: 9,
        connection: 3,
    }
}

/// What a member says to open a link.
pub(super) const LINK_HELLO: Target = Target {
    name: "link-hello",
    corpus: || vec![hello().encode().into_bytes()],
    start: || {
        Box::new(|bytes| {
            if let Ok(document) = RawDocument::from_bytes(bytes)
                && let Ok(hello) = LinkHello::decode(document)
            {
                let again = LinkHello::decode(&hello.encode());
                assert_eq!(again, Ok(hello), "a hello is read as it was written");
            }
        })
    },
};

/// What is answered to that.
pub(super) const LINK_ANSWER: Target = Target {
    name: "link-answer",
    corpus: || {
        let message = |body: &RawDocument| {
            let mut message = Vec::new();
            wire::encode_msg(&mut message, 1, 1, wire::MsgFlags::NONE, body);
            message
        };
        vec![
            message(&rawdoc! { "fernLink": hello().encode(), "ok": 1.0 }),
            message(&rawdoc! { "ok": 0.0, "errmsg": "the link is refused" }),
        ]
    },
    start: || {
        Box::new(|bytes| {
            if let Err(reason) = links::read_answer(bytes) {
                assert!(!reason.contains('\n'), "a reason is one line");
            }
        })
    },
};

/// The two blocks of a member's state.
pub(super) const RAFT_STATE: Target = Target {
    name: "raft-state",
    corpus: || {
        let state =
            MemberState { term: 9, vote: Some(MemberId(3)), ..MemberState::new(MemberId(1)) };
        let block = state.encode().expect("its name is short");
        vec![[block, block].concat()]
    },
    start: || {
        Box::new(|bytes| {
            let (first, second) = bytes.split_at(bytes.len().min(BLOCK_BYTES));
            if let Ok(found) = MemberState::read(first, second) {
                let block = found.state.encode().expect("what is read can be written");
                let again = MemberState::read(&block, &block).expect("and read again");
                assert_eq!(again.state, found.state, "a state is read as it was written");
            }
        })
    },
};

/// What a set's configuration is in the log, in `set.state` and in `_fernJoin`.
pub(super) const SET_DOCUMENT: Target = Target {
    name: "set-document",
    corpus: || {
        let member = |id: i32| bson::doc! { "_id": id, "host": format!("h{id}:1"), "priority": f64::from(id) };
        let config = bson::doc! { "_id": "rs", "members": [member(0), member(1)] };
        let ids = [(0, MemberId(7)), (1, MemberId(u64::MAX))].into();
        let document = SetDocument::new(config, &ids).and_then(|document| document.encode());
        vec![document.unwrap_or_default()]
    },
    start: || {
        Box::new(|bytes| {
            if let Ok(document) = SetDocument::decode(bytes) {
                let again = document.encode().and_then(|bytes| SetDocument::decode(&bytes));
                assert_eq!(again.ok(), Some(document), "a document is read as it was written");
            }
        })
    },
};
