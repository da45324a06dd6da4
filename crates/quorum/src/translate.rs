//! Between our values and those of the raft crate.
//!
//! What raft keeps of an entry: of a plain one the content's bytes as data, none for a fence, which raft
//! makes by itself; of a change of members the content's bytes as context. The data of such an entry is
//! protobuf and is read by nobody but the leader that made it. So no bytes from outside are ever
//! parsed as protobuf.

use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
    Entry as RaftEntry, EntryType, Message as RaftMessage, MessageType, Snapshot as RaftSnapshot,
};

use crate::codec::{content_of, put_content};
use crate::entry::{Change, Configuration, Content, Entry, MemberId, Position, Standing};
use crate::error::Result;
use crate::message::{Body, Message, ReadId, Snapshot};

/// The bytes that raft keeps of a content.
pub(crate) fn content_bytes(content: &Content) -> Vec<u8> {
    let mut bytes = Vec::new();
    match content {
        // As raft makes them itself.
        Content::Fence | Content::Joined => {}
        _ => put_content(&mut bytes, content),
    }
    bytes
}

/// Whether raft must know that the entry changes who the members are.
fn changes_members(content: &Content) -> bool {
    match content {
        Content::Configuration { changes, .. } => !changes.is_empty(),
        Content::Joined => true,
        Content::Fence | Content::Records(_) => false,
    }
}

/// An entry as raft keeps it.
pub(crate) fn entry_in(entry: &Entry) -> RaftEntry {
    let mut made = RaftEntry { term: entry.term, index: entry.index, ..RaftEntry::default() };
    let bytes = content_bytes(&entry.content);
    if changes_members(&entry.content) {
        made.set_entry_type(EntryType::EntryConfChangeV2);
        made.context = bytes.into();
    } else {
        made.data = bytes.into();
    }
    made
}

/// An entry that raft kept.
pub(crate) fn entry_out(entry: &RaftEntry) -> Result<Entry> {
    let content = match entry.get_entry_type() {
        EntryType::EntryNormal if entry.data.is_empty() => Content::Fence,
        EntryType::EntryNormal => content_of(&entry.data)?,
        _ if entry.context.is_empty() => Content::Joined,
        _ => content_of(&entry.context)?,
    };
    Ok(Entry { term: entry.term, index: entry.index, content })
}

/// A change of members, as raft takes it: always by way of a joint configuration, which the leader
/// leaves by itself. No changes: leave it.
pub(crate) fn change_in(changes: &[Change]) -> ConfChangeV2 {
    let mut made = ConfChangeV2::default();
    if !changes.is_empty() {
        made.set_transition(ConfChangeTransition::Implicit);
    }
    let single = |change: &Change| {
        let mut single = ConfChangeSingle { node_id: change.member.0, ..Default::default() };
        single.set_change_type(match change.standing {
            Standing::Voter => ConfChangeType::AddNode,
            Standing::Learner => ConfChangeType::AddLearnerNode,
            Standing::Gone => ConfChangeType::RemoveNode,
        });
        single
    };
    made.changes = changes.iter().map(single).collect::<Vec<_>>().into();
    made
}

/// A configuration as raft takes it.
pub(crate) fn configuration_in(configuration: &Configuration) -> ConfState {
    let Configuration { voters, learners, outgoing, learners_next } = configuration;
    let list = |set: &std::collections::BTreeSet<MemberId>| {
        set.iter().map(|member| member.0).collect::<Vec<u64>>()
    };
    ConfState {
        voters: list(voters),
        learners: list(learners),
        voters_outgoing: list(outgoing),
        learners_next: list(learners_next),
        auto_leave: configuration.is_joint(),
        ..ConfState::default()
    }
}

/// A configuration from raft's.
pub(crate) fn configuration_out(state: &ConfState) -> Configuration {
    let set = |list: &[u64]| list.iter().copied().map(MemberId).collect();
    Configuration {
        voters: set(&state.voters),
        learners: set(&state.learners),
        outgoing: set(&state.voters_outgoing),
        learners_next: set(&state.learners_next),
    }
}

/// A snapshot as raft takes it.
pub(crate) fn snapshot_in(snapshot: &Snapshot) -> RaftSnapshot {
    let mut made = RaftSnapshot { data: snapshot.data.clone().into(), ..RaftSnapshot::default() };
    let metadata = made.mut_metadata();
    metadata.index = snapshot.position.index;
    metadata.term = snapshot.position.term;
    metadata.set_conf_state(configuration_in(&snapshot.configuration));
    made
}

/// A snapshot from raft's.
pub(crate) fn snapshot_out(snapshot: &RaftSnapshot) -> Snapshot {
    let metadata = snapshot.get_metadata();
    Snapshot {
        position: Position { term: metadata.term, index: metadata.index },
        configuration: configuration_out(metadata.get_conf_state()),
        data: snapshot.data.to_vec(),
    }
}

/// The bytes by which raft knows a read.
pub(crate) fn read_in(read: ReadId) -> Vec<u8> {
    [read.member.0.to_le_bytes(), read.number.to_le_bytes()].concat()
}

/// A read from its bytes.
pub(crate) fn read_out(bytes: &[u8]) -> Option<ReadId> {
    let (member, rest) = bytes.split_first_chunk()?;
    let number = rest.try_into().ok().map(u64::from_le_bytes)?;
    Some(ReadId { member: MemberId(u64::from_le_bytes(*member)), number })
}

/// A message as raft takes it.
pub(crate) fn message_in(message: Message) -> RaftMessage {
    let Message { from, to, term, body } = message;
    let mut made = RaftMessage { from: from.0, to: to.0, term, ..RaftMessage::default() };
    let read_entry = |read| vec![RaftEntry { data: read_in(read).into(), ..RaftEntry::default() }];
    let kind = match body {
        Body::Append { previous, commit, entries } => {
            (made.log_term, made.index, made.commit) = (previous.term, previous.index, commit);
            made.entries = entries.iter().map(entry_in).collect::<Vec<_>>().into();
            MessageType::MsgAppend
        }
        Body::Accepted { index, commit } => {
            (made.index, made.commit) = (index, commit);
            MessageType::MsgAppendResponse
        }
        Body::Refused { index, hint, commit } => {
            (made.index, made.commit, made.reject) = (index, commit, true);
            (made.log_term, made.reject_hint) = (hint.term, hint.index);
            MessageType::MsgAppendResponse
        }
        Body::VoteRequest { pre, transfer, last, commit } => {
            (made.log_term, made.index) = (last.term, last.index);
            (made.commit_term, made.commit) = (commit.term, commit.index);
            if transfer {
                made.context = raft::CAMPAIGN_TRANSFER.to_vec().into();
            }
            if pre { MessageType::MsgRequestPreVote } else { MessageType::MsgRequestVote }
        }
        Body::Vote { pre, granted, commit } => {
            (made.reject, made.commit_term, made.commit) = (!granted, commit.term, commit.index);
            if pre {
                MessageType::MsgRequestPreVoteResponse
            } else {
                MessageType::MsgRequestVoteResponse
            }
        }
        Body::Heartbeat { commit, read } => {
            made.commit = commit;
            made.context = read.map(read_in).unwrap_or_default().into();
            MessageType::MsgHeartbeat
        }
        Body::HeartbeatAnswer { commit, read } => {
            made.commit = commit;
            made.context = read.map(read_in).unwrap_or_default().into();
            MessageType::MsgHeartbeatResponse
        }
        Body::CampaignNow => MessageType::MsgTimeoutNow,
        Body::ReadRequest(read) => {
            made.entries = read_entry(read).into();
            MessageType::MsgReadIndex
        }
        Body::ReadAnswer { read, index } => {
            made.index = index;
            made.entries = read_entry(read).into();
            MessageType::MsgReadIndexResp
        }
        Body::Snapshot(snapshot) => {
            made.set_snapshot(snapshot_in(&snapshot));
            MessageType::MsgSnapshot
        }
    };
    made.set_msg_type(kind);
    made
}

/// A message that raft wants to send; `None` for those that are no business of other members.
pub(crate) fn message_out(message: &RaftMessage) -> Option<Message> {
    let of_commit = Position { term: message.commit_term, index: message.commit };
    let of_log = Position { term: message.log_term, index: message.index };
    let commit = message.commit;
    let of_read = || message.entries.first().and_then(|entry| read_out(&entry.data));
    let body = match message.get_msg_type() {
        MessageType::MsgAppend => Body::Append {
            previous: of_log,
            commit,
            entries: message.entries.iter().map(entry_out).collect::<Result<_>>().ok()?,
        },
        MessageType::MsgAppendResponse if message.reject => Body::Refused {
            index: message.index,
            hint: Position { term: message.log_term, index: message.reject_hint },
            commit,
        },
        MessageType::MsgAppendResponse => Body::Accepted { index: message.index, commit },
        kind @ (MessageType::MsgRequestVote | MessageType::MsgRequestPreVote) => {
            Body::VoteRequest {
                pre: kind == MessageType::MsgRequestPreVote,
                transfer: message.context[..] == *raft::CAMPAIGN_TRANSFER,
                last: of_log,
                commit: of_commit,
            }
        }
        kind @ (MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse) => {
            Body::Vote {
                pre: kind == MessageType::MsgRequestPreVoteResponse,
                granted: !message.reject,
                commit: of_commit,
            }
        }
        MessageType::MsgHeartbeat => Body::Heartbeat { commit, read: read_out(&message.context) },
        MessageType::MsgHeartbeatResponse => {
            Body::HeartbeatAnswer { commit, read: read_out(&message.context) }
        }
        MessageType::MsgTimeoutNow => Body::CampaignNow,
        MessageType::MsgReadIndex => Body::ReadRequest(of_read()?),
        MessageType::MsgReadIndexResp => {
            Body::ReadAnswer { read: of_read()?, index: message.index }
        }
        MessageType::MsgSnapshot => Body::Snapshot(snapshot_out(message.get_snapshot())),
        _ => return None,
    };
    let (from, to) = (MemberId(message.from), MemberId(message.to));
    Some(Message { from, to, term: message.term, body })
}
