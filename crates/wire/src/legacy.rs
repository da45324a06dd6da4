//! The fire-and-forget operations of clients from the time before OP_MSG.
//!
//! Each begins, after the header, with a word that is a flag word (insert) or reserved (the
//! others). None but get-more has a reply; errors are asked for later with `getLastError`.

use crate::header::{HEADER_SIZE, Header, opcode, seal};
use crate::reader::Reader;
use crate::validate::invalid;
use bson::RawDocument;
use errors::Result;

/// OP_INSERT: `flags u32, namespace cstring, documents...`.
#[derive(Clone, Debug)]
pub struct Insert<'a> {
    /// Bit 0: go on after an error.
    pub flags: u32,
    /// `database.collection`.
    pub namespace: &'a str,
    /// At least one document.
    pub documents: Vec<&'a RawDocument>,
}

impl<'a> Insert<'a> {
    pub(crate) fn decode(frame: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(&frame[HEADER_SIZE..]);
        let (flags, namespace) = (reader.u32()?, reader.cstr()?);
        let mut documents = vec![reader.document()?];
        while !reader.is_empty() {
            documents.push(reader.document()?);
        }
        Ok(Self { flags, namespace, documents })
    }

    /// Appends the message; for tools and tests that speak as a client.
    pub fn encode(&self, out: &mut Vec<u8>, request_id: i32) {
        let start = begin(out, request_id, opcode::INSERT, self.flags, self.namespace);
        for document in &self.documents {
            out.extend_from_slice(document.as_bytes());
        }
        seal(out, start);
    }
}

/// OP_UPDATE: `0 u32, namespace cstring, flags u32, selector, update`.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// `database.collection`.
    pub namespace: &'a str,
    /// Bit 0: upsert; bit 1: multi.
    pub flags: u32,
    /// Which documents.
    pub selector: &'a RawDocument,
    /// What to do with them.
    pub update: &'a RawDocument,
}

impl<'a> Update<'a> {
    pub(crate) fn decode(frame: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(&frame[HEADER_SIZE..]);
        reader.u32()?;
        let update = Self {
            namespace: reader.cstr()?,
            flags: reader.u32()?,
            selector: reader.document()?,
            update: reader.document()?,
        };
        at_end(&reader, update)
    }

    /// Appends the message; for tools and tests that speak as a client.
    pub fn encode(&self, out: &mut Vec<u8>, request_id: i32) {
        let start = begin(out, request_id, opcode::UPDATE, 0, self.namespace);
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(self.selector.as_bytes());
        out.extend_from_slice(self.update.as_bytes());
        seal(out, start);
    }
}

/// OP_DELETE: `0 u32, namespace cstring, flags u32, selector`.
#[derive(Clone, Copy, Debug)]
pub struct Delete<'a> {
    /// `database.collection`.
    pub namespace: &'a str,
    /// Bit 0: only the first match.
    pub flags: u32,
    /// Which documents.
    pub selector: &'a RawDocument,
}

impl<'a> Delete<'a> {
    pub(crate) fn decode(frame: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(&frame[HEADER_SIZE..]);
        reader.u32()?;
        let delete =
            Self { namespace: reader.cstr()?, flags: reader.u32()?, selector: reader.document()? };
        at_end(&reader, delete)
    }

    /// Appends the message; for tools and tests that speak as a client.
    pub fn encode(&self, out: &mut Vec<u8>, request_id: i32) {
        let start = begin(out, request_id, opcode::DELETE, 0, self.namespace);
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(self.selector.as_bytes());
        seal(out, start);
    }
}

/// OP_GET_MORE: `0 u32, namespace cstring, numberToReturn i32, cursorId i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetMore<'a> {
    /// `database.collection`.
    pub namespace: &'a str,
    /// Documents in this batch, 0: the server decides.
    pub number_to_return: i32,
    /// The cursor.
    pub cursor_id: i64,
}

impl<'a> GetMore<'a> {
    pub(crate) fn decode(frame: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(&frame[HEADER_SIZE..]);
        reader.u32()?;
        let more = Self {
            namespace: reader.cstr()?,
            number_to_return: reader.i32()?,
            cursor_id: reader.i64()?,
        };
        at_end(&reader, more)
    }

    /// Appends the message; for tools and tests that speak as a client.
    pub fn encode(&self, out: &mut Vec<u8>, request_id: i32) {
        let start = begin(out, request_id, opcode::GET_MORE, 0, self.namespace);
        out.extend_from_slice(&self.number_to_return.to_le_bytes());
        out.extend_from_slice(&self.cursor_id.to_le_bytes());
        seal(out, start);
    }
}

/// OP_KILL_CURSORS: `0 u32, count i32, cursorId i64...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillCursors {
    /// The cursors.
    pub cursor_ids: Vec<i64>,
}

impl KillCursors {
    pub(crate) fn decode(frame: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(&frame[HEADER_SIZE..]);
        reader.u32()?;
        let count = usize::try_from(reader.i32()?).ok();
        if count.and_then(|n| n.checked_mul(8)) != Some(reader.rest().len()) {
            return Err(invalid("kill-cursors holds another number of cursors than it says"));
        }
        let mut cursor_ids = Vec::with_capacity(reader.rest().len() / 8);
        while !reader.is_empty() {
            cursor_ids.push(reader.i64()?);
        }
        Ok(Self { cursor_ids })
    }

    /// Appends the message; for tools and tests that speak as a client.
    pub fn encode(&self, out: &mut Vec<u8>, request_id: i32) {
        let start = Header::append(out, request_id, 0, opcode::KILL_CURSORS);
        out.extend_from_slice(&0_u32.to_le_bytes());
        out.extend_from_slice(&(self.cursor_ids.len() as u32).to_le_bytes());
        for id in &self.cursor_ids {
            out.extend_from_slice(&id.to_le_bytes());
        }
        seal(out, start);
    }
}

/// The header, the first word and the namespace; returns where the message starts.
fn begin(out: &mut Vec<u8>, request_id: i32, op: i32, word: u32, namespace: &str) -> usize {
    let start = Header::append(out, request_id, 0, op);
    out.extend_from_slice(&word.to_le_bytes());
    out.extend_from_slice(namespace.as_bytes());
    out.push(0);
    start
}

fn at_end<T>(reader: &Reader<'_>, value: T) -> Result<T> {
    if reader.is_empty() { Ok(value) } else { Err(invalid("bytes are left after the message")) }
}
