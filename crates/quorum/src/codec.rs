//! Messages as bytes, and back. Nothing else of this crate reads bytes from outside but
//! [`crate::state`].
//!
//! ```text
//! message   version u8, 1 │ kind u8 │ from u64 │ to u64 │ term u64 │ body
//! ```
//!
//! Little-endian. A body is read to its end: bytes left over are refused, so are counts and lengths
//! beyond the bounds below, and values that no program of this version writes. Decoding allocates no more
//! than the bytes it was given justify.
//!
//! On the wire: `docs/formats/raft-messages.md`.

use std::collections::BTreeSet;

use crate::entry::{
    Change, Configuration, Content, Descriptor, Entry, MAX_MEMBERS, MemberId, Position, Standing,
};
use crate::error::{Error, Result};
use crate::message::{Body, Message, ReadId, Snapshot};

/// The version this program writes.
pub const VERSION: u8 = 1;
/// Entries in one message at most; a sender stops before.
pub const MAX_ENTRIES: usize = 4096;
/// Bytes of a configuration document at most: fifty members with tags are a tenth of it.
pub const MAX_DOCUMENT: usize = 256 << 10;
/// Bytes of a snapshot's description at most.
pub const MAX_SNAPSHOT: usize = 1 << 20;

/// The bytes of a message.
pub fn encode(message: &Message) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL_BYTES);
    out.push(VERSION);
    out.push(kind(&message.body));
    for number in [message.from.0, message.to.0, message.term] {
        put_u64(&mut out, number);
    }
    put_body(&mut out, &message.body);
    out
}

/// Room that is made at once: a message with one entry fits.
const USUAL_BYTES: usize = 160;

/// A message from bytes.
pub fn decode(bytes: &[u8]) -> Result<Message> {
    let mut input = Input(bytes);
    let version = input.u8()?;
    if version != VERSION {
        return Err(Error::Version { found: version, known: VERSION });
    }
    let kind = input.u8()?;
    let (from, to, term) = (MemberId(input.u64()?), MemberId(input.u64()?), input.u64()?);
    let body = body(kind, &mut input)?;
    match input.0 {
        [] => Ok(Message { from, to, term, body }),
        _ => Err(malformed("bytes behind its end")),
    }
}

/// The bytes of an entry's content, as they are in a message.
pub fn encode_content(content: &Content) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL_BYTES);
    put_content(&mut out, content);
    out
}

/// An entry's content from exactly these bytes.
pub fn decode_content(bytes: &[u8]) -> Result<Content> {
    content_of(bytes)
}

/// The bytes of a configuration, as they are in a message.
pub fn encode_configuration(configuration: &Configuration) -> Vec<u8> {
    let mut out = Vec::new();
    put_configuration(&mut out, configuration);
    out
}

/// A configuration from exactly these bytes. What it says may be impossible: [`Configuration::verify`].
pub fn decode_configuration(bytes: &[u8]) -> Result<Configuration> {
    let mut input = Input(bytes);
    let configuration = input.configuration()?;
    if input.0.is_empty() { Ok(configuration) } else { Err(malformed("bytes behind its end")) }
}

const APPEND: u8 = 1;
const ACCEPTED: u8 = 2;
const REFUSED: u8 = 3;
const VOTE_REQUEST: u8 = 4;
const VOTE: u8 = 5;
const HEARTBEAT: u8 = 6;
const HEARTBEAT_ANSWER: u8 = 7;
const CAMPAIGN_NOW: u8 = 8;
const READ_REQUEST: u8 = 9;
const READ_ANSWER: u8 = 10;
const SNAPSHOT: u8 = 11;

fn kind(body: &Body) -> u8 {
    match body {
        Body::Append { .. } => APPEND,
        Body::Accepted { .. } => ACCEPTED,
        Body::Refused { .. } => REFUSED,
        Body::VoteRequest { .. } => VOTE_REQUEST,
        Body::Vote { .. } => VOTE,
        Body::Heartbeat { .. } => HEARTBEAT,
        Body::HeartbeatAnswer { .. } => HEARTBEAT_ANSWER,
        Body::CampaignNow => CAMPAIGN_NOW,
        Body::ReadRequest(_) => READ_REQUEST,
        Body::ReadAnswer { .. } => READ_ANSWER,
        Body::Snapshot(_) => SNAPSHOT,
    }
}

fn put_body(out: &mut Vec<u8>, body: &Body) {
    match body {
        Body::Append { previous, commit, entries } => {
            put_position(out, *previous);
            put_u64(out, *commit);
            put_u32(out, entries.len());
            for entry in entries {
                put_entry(out, entry);
            }
        }
        Body::Accepted { index, commit } => {
            put_u64(out, *index);
            put_u64(out, *commit);
        }
        Body::Refused { index, hint, commit } => {
            put_u64(out, *index);
            put_position(out, *hint);
            put_u64(out, *commit);
        }
        Body::VoteRequest { pre, transfer, last, commit } => {
            out.push(u8::from(*pre) | u8::from(*transfer) << 1);
            put_position(out, *last);
            put_position(out, *commit);
        }
        Body::Vote { pre, granted, commit } => {
            out.push(u8::from(*pre) | u8::from(*granted) << 1);
            put_position(out, *commit);
        }
        Body::Heartbeat { commit, read } | Body::HeartbeatAnswer { commit, read } => {
            put_u64(out, *commit);
            out.push(u8::from(read.is_some()));
            if let Some(read) = read {
                put_read(out, *read);
            }
        }
        Body::CampaignNow => {}
        Body::ReadRequest(read) => put_read(out, *read),
        Body::ReadAnswer { read, index } => {
            put_read(out, *read);
            put_u64(out, *index);
        }
        Body::Snapshot(snapshot) => {
            put_position(out, snapshot.position);
            put_configuration(out, &snapshot.configuration);
            put_bytes(out, &snapshot.data);
        }
    }
}

fn body(kind: u8, input: &mut Input<'_>) -> Result<Body> {
    Ok(match kind {
        APPEND => {
            let (previous, commit) = (input.position()?, input.u64()?);
            let count = input.count(MAX_ENTRIES, "too many entries")?;
            let entries = (0..count).map(|_| input.entry()).collect::<Result<_>>()?;
            Body::Append { previous, commit, entries }
        }
        ACCEPTED => Body::Accepted { index: input.u64()?, commit: input.u64()? },
        REFUSED => {
            Body::Refused { index: input.u64()?, hint: input.position()?, commit: input.u64()? }
        }
        VOTE_REQUEST => {
            let (pre, transfer) = input.two_flags()?;
            Body::VoteRequest { pre, transfer, last: input.position()?, commit: input.position()? }
        }
        VOTE => {
            let (pre, granted) = input.two_flags()?;
            Body::Vote { pre, granted, commit: input.position()? }
        }
        HEARTBEAT => Body::Heartbeat { commit: input.u64()?, read: input.perhaps_read()? },
        HEARTBEAT_ANSWER => {
            Body::HeartbeatAnswer { commit: input.u64()?, read: input.perhaps_read()? }
        }
        CAMPAIGN_NOW => Body::CampaignNow,
        READ_REQUEST => Body::ReadRequest(input.read()?),
        READ_ANSWER => Body::ReadAnswer { read: input.read()?, index: input.u64()? },
        SNAPSHOT => Body::Snapshot(Snapshot {
            position: input.position()?,
            configuration: input.configuration()?,
            data: input.bytes(MAX_SNAPSHOT, "too long a snapshot")?,
        }),
        _ => return Err(malformed("an unknown kind")),
    })
}

const FENCE: u8 = 0;
const RECORDS: u8 = 1;
const CONFIGURATION: u8 = 2;
const JOINED: u8 = 3;

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put_position(out, entry.position());
    put_content(out, &entry.content);
}

/// The bytes of a content, as they are in a message; also what raft keeps of it.
pub(crate) fn put_content(out: &mut Vec<u8>, content: &Content) {
    match content {
        Content::Fence => out.push(FENCE),
        Content::Joined => out.push(JOINED),
        Content::Records(descriptor) => {
            out.push(RECORDS);
            put_u64(out, descriptor.last_ts);
            put_u64(out, descriptor.last_time);
            out.extend_from_slice(&descriptor.bytes.to_le_bytes());
            out.extend_from_slice(&descriptor.checksum.to_le_bytes());
        }
        Content::Configuration { changes, document } => {
            out.push(CONFIGURATION);
            put_u32(out, changes.len());
            for change in changes {
                put_u64(out, change.member.0);
                out.push(match change.standing {
                    Standing::Voter => 0,
                    Standing::Learner => 1,
                    Standing::Gone => 2,
                });
            }
            put_bytes(out, document);
        }
    }
}

/// A content from exactly these bytes.
pub(crate) fn content_of(bytes: &[u8]) -> Result<Content> {
    let mut input = Input(bytes);
    let content = input.content()?;
    if input.0.is_empty() { Ok(content) } else { Err(malformed("bytes behind its end")) }
}

fn put_configuration(out: &mut Vec<u8>, configuration: &Configuration) {
    let Configuration { voters, learners, outgoing, learners_next } = configuration;
    for set in [voters, learners, outgoing, learners_next] {
        put_u32(out, set.len());
        for member in set {
            put_u64(out, member.0);
        }
    }
}

fn put_position(out: &mut Vec<u8>, position: Position) {
    put_u64(out, position.term);
    put_u64(out, position.index);
}

fn put_read(out: &mut Vec<u8>, read: ReadId) {
    put_u64(out, read.member.0);
    put_u64(out, read.number);
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).expect("what is sent is bounded far below");
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn malformed(what: &'static str) -> Error {
    Error::Malformed { what }
}

/// What is left to read.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk().ok_or(malformed("it ends too early"))?;
        self.0 = tail;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8> {
        self.fixed::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32> {
        self.fixed().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.fixed().map(u64::from_le_bytes)
    }

    /// A count of things that each take at least a byte.
    fn count(&mut self, most: usize, what: &'static str) -> Result<usize> {
        let count = self.u32()? as usize;
        if count > most {
            return Err(malformed(what));
        }
        if count > self.0.len() {
            return Err(malformed("it ends too early"));
        }
        Ok(count)
    }

    fn bytes(&mut self, most: usize, what: &'static str) -> Result<Vec<u8>> {
        let length = self.count(most, what)?;
        let (head, tail) = self.0.split_at_checked(length).ok_or(malformed("it ends too early"))?;
        self.0 = tail;
        Ok(head.to_vec())
    }

    fn two_flags(&mut self) -> Result<(bool, bool)> {
        match self.u8()? {
            flags @ 0..=3 => Ok((flags & 1 != 0, flags & 2 != 0)),
            _ => Err(malformed("unknown flags")),
        }
    }

    fn position(&mut self) -> Result<Position> {
        Ok(Position { term: self.u64()?, index: self.u64()? })
    }

    fn read(&mut self) -> Result<ReadId> {
        Ok(ReadId { member: MemberId(self.u64()?), number: self.u64()? })
    }

    fn perhaps_read(&mut self) -> Result<Option<ReadId>> {
        match self.u8()? {
            0 => Ok(None),
            1 => self.read().map(Some),
            _ => Err(malformed("unknown flags")),
        }
    }

    fn entry(&mut self) -> Result<Entry> {
        let Position { term, index } = self.position()?;
        Ok(Entry { term, index, content: self.content()? })
    }

    fn content(&mut self) -> Result<Content> {
        Ok(match self.u8()? {
            FENCE => Content::Fence,
            JOINED => Content::Joined,
            RECORDS => Content::Records(Descriptor {
                last_ts: self.u64()?,
                last_time: self.u64()?,
                bytes: self.u32()?,
                checksum: self.u32()?,
            }),
            CONFIGURATION => {
                let count = self.count(MAX_MEMBERS, "too many changes")?;
                let changes = (0..count).map(|_| self.change()).collect::<Result<_>>()?;
                let document = self.bytes(MAX_DOCUMENT, "too long a configuration")?;
                Content::Configuration { changes, document }
            }
            _ => return Err(malformed("an unknown content")),
        })
    }

    fn change(&mut self) -> Result<Change> {
        let member = MemberId(self.u64()?);
        let standing = match self.u8()? {
            0 => Standing::Voter,
            1 => Standing::Learner,
            2 => Standing::Gone,
            _ => return Err(malformed("an unknown standing")),
        };
        Ok(Change { member, standing })
    }

    fn configuration(&mut self) -> Result<Configuration> {
        Ok(Configuration {
            voters: self.members()?,
            learners: self.members()?,
            outgoing: self.members()?,
            learners_next: self.members()?,
        })
    }

    /// A set, in ascending order: a configuration has one form only.
    fn members(&mut self) -> Result<BTreeSet<MemberId>> {
        let count = self.count(MAX_MEMBERS, "too many members")?;
        let mut members = BTreeSet::new();
        for _ in 0..count {
            let member = MemberId(self.u64()?);
            if members.last().is_some_and(|last| *last >= member) {
                return Err(malformed("members out of order"));
            }
            members.insert(member);
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests;
