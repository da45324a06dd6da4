//! OP_QUERY and its OP_REPLY: the handshake of every driver, and the whole life of old ones.
//!
//! OP_QUERY: `flags u32, namespace cstring, skip i32, numberToReturn i32, query, [fields]`.
//! OP_REPLY: `flags u32, cursorId i64, startingFrom i32, numberReturned i32, documents...`.

use crate::header::{HEADER_SIZE, Header, opcode, seal};
use crate::reader::Reader;
use crate::validate::invalid;
use bson::RawDocument;
use errors::Result;

/// The flag word of an OP_QUERY; unknown bits are carried, not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueryFlags(pub u32);

impl QueryFlags {
    /// Keep the cursor open at the end of a capped collection.
    pub const TAILABLE: Self = Self(1 << 1);
    /// A secondary may answer.
    pub const SECONDARY_OK: Self = Self(1 << 2);
    /// Reads the oplog from a time on; servers find that out themselves.
    pub const OPLOG_REPLAY: Self = Self(1 << 3);
    /// The cursor does not time out.
    pub const NO_CURSOR_TIMEOUT: Self = Self(1 << 4);
    /// Wait for data at the end of a tailable cursor.
    pub const AWAIT_DATA: Self = Self(1 << 5);
    /// Stream all batches without being asked.
    pub const EXHAUST: Self = Self(1 << 6);
    /// Answer with what is there when a shard is down.
    pub const PARTIAL: Self = Self(1 << 7);

    /// Are all bits of `other` set here?
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A decoded OP_QUERY.
#[derive(Clone, Copy, Debug)]
pub struct OpQuery<'a> {
    /// The flags as sent.
    pub flags: QueryFlags,
    /// `database.collection`; a command when the collection is `$cmd`.
    pub namespace: &'a str,
    /// Documents to skip.
    pub skip: i32,
    /// Documents in the first batch; negative: that many and no cursor; 0: the server decides.
    pub number_to_return: i32,
    /// The filter, or `{$query, $orderby, ...}`, or the command.
    pub query: &'a RawDocument,
    /// The projection.
    pub fields: Option<&'a RawDocument>,
}

impl<'a> OpQuery<'a> {
    /// Decodes a whole frame (its header has been checked).
    pub(crate) fn decode(frame: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(&frame[HEADER_SIZE..]);
        let query = Self {
            flags: QueryFlags(reader.u32()?),
            namespace: reader.cstr()?,
            skip: reader.i32()?,
            number_to_return: reader.i32()?,
            query: reader.document()?,
            fields: if reader.is_empty() { None } else { Some(reader.document()?) },
        };
        if !reader.is_empty() {
            return Err(invalid("bytes are left after the query"));
        }
        Ok(query)
    }
}

/// Appends an OP_QUERY; for tools and tests that speak as a client.
pub fn encode_query(out: &mut Vec<u8>, request_id: i32, query: &OpQuery<'_>) {
    let start = Header::append(out, request_id, 0, opcode::QUERY);
    out.extend_from_slice(&query.flags.0.to_le_bytes());
    out.extend_from_slice(query.namespace.as_bytes());
    out.push(0);
    out.extend_from_slice(&query.skip.to_le_bytes());
    out.extend_from_slice(&query.number_to_return.to_le_bytes());
    out.extend_from_slice(query.query.as_bytes());
    if let Some(fields) = query.fields {
        out.extend_from_slice(fields.as_bytes());
    }
    seal(out, start);
}

/// The flag word of an OP_REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReplyFlags(pub u32);

impl ReplyFlags {
    /// The cursor of a get-more is not known.
    pub const CURSOR_NOT_FOUND: Self = Self(1);
    /// The query failed; the one document holds `$err`.
    pub const QUERY_FAILURE: Self = Self(1 << 1);
    /// Set in every reply of a server that knows await-data.
    pub const AWAIT_CAPABLE: Self = Self(1 << 3);
}

/// An OP_REPLY, decoded or about to be encoded.
#[derive(Clone, Debug)]
pub struct OpReply<'a> {
    /// The flags.
    pub flags: ReplyFlags,
    /// The cursor to continue with, 0 when there is none.
    pub cursor_id: i64,
    /// How many documents earlier replies held.
    pub starting_from: i32,
    /// The documents.
    pub documents: Vec<&'a RawDocument>,
}

impl<'a> OpReply<'a> {
    /// Decodes a whole frame (its header has been checked); for those who speak as a client.
    pub(crate) fn decode(frame: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(&frame[HEADER_SIZE..]);
        let flags = ReplyFlags(reader.u32()?);
        let cursor_id = reader.i64()?;
        let starting_from = reader.i32()?;
        let number = reader.i32()?;
        let mut documents = Vec::new();
        while !reader.is_empty() {
            documents.push(reader.document()?);
        }
        if usize::try_from(number) != Ok(documents.len()) {
            return Err(invalid("the reply holds another number of documents than it says"));
        }
        Ok(Self { flags, cursor_id, starting_from, documents })
    }
}

/// Appends an OP_REPLY.
pub fn encode_reply(out: &mut Vec<u8>, request_id: i32, response_to: i32, reply: &OpReply<'_>) {
    let start = Header::append(out, request_id, response_to, opcode::REPLY);
    out.extend_from_slice(&reply.flags.0.to_le_bytes());
    out.extend_from_slice(&reply.cursor_id.to_le_bytes());
    out.extend_from_slice(&reply.starting_from.to_le_bytes());
    out.extend_from_slice(&(reply.documents.len() as u32).to_le_bytes());
    for document in &reply.documents {
        out.extend_from_slice(document.as_bytes());
    }
    seal(out, start);
}
