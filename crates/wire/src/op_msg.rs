//! OP_MSG: a body document, document sequences beside it, an optional checksum.
//!
//! After the header: `flagBits u32, sections..., [crc32c u32]`. A section is a kind byte and then
//! kind 0: one document, the body; kind 1: `size i32, name cstring, documents...`.
//!
//! What is always true of a decoded [`OpMsg`]: there is exactly one body, sequence names differ
//! from each other and from the body's fields, a checksum that was present was right.

use crate::error::{Error, Result};
use crate::header::{HEADER_SIZE, Header, opcode, seal, seal_before};
use crate::reader::Reader;
use crate::validate::{invalid, validate_fields};
use bson::RawDocument;
use bson::spec::ElementType;
use bsonval::raw;
use errors::Code;

const STRING: u8 = ElementType::String as u8;

/// A document sequence: the field it stands for and its documents.
pub type Sequence<'a> = (&'a str, Vec<&'a RawDocument>);

/// The flag word of an OP_MSG. The low 16 bits are required: an unknown one is refused; the high
/// 16 are optional: an unknown one is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MsgFlags(pub u32);

impl MsgFlags {
    /// No flag at all.
    pub const NONE: Self = Self(0);
    /// The message ends with a CRC-32C of everything before it.
    pub const CHECKSUM_PRESENT: Self = Self(1);
    /// The sender expects no reply (requests) or will send more by itself (replies).
    pub const MORE_TO_COME: Self = Self(2);
    /// The client can take several replies to one request.
    pub const EXHAUST_ALLOWED: Self = Self(1 << 16);

    const REQUIRED_BITS: u32 = 0xFFFF;
    const KNOWN_REQUIRED: u32 = 3;

    /// Are all bits of `other` set here?
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of flags.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A decoded OP_MSG.
#[derive(Clone, Debug)]
pub struct OpMsg<'a> {
    /// The flags as sent.
    pub flags: MsgFlags,
    /// The command.
    pub body: &'a RawDocument,
    /// The type and the value of its `$db`, where it has one.
    database: Option<(u8, &'a [u8])>,
    /// Arrays of the command that travelled beside it, in the order sent.
    pub sequences: Vec<Sequence<'a>>,
}

impl<'a> OpMsg<'a> {
    /// The database that the command is sent to.
    ///
    /// # Errors
    /// There is no `$db`, or it is no string.
    pub fn database(&self) -> errors::Result<&'a str> {
        let (kind, value) = self.database.ok_or_else(|| {
            errors::Error::location(40571, "OP_MSG requests require a $db argument")
        })?;
        // Behind its length, and before its NUL.
        let text = match kind {
            STRING => value.get(4..value.len() - 1),
            _ => None,
        };
        let database = text.and_then(|text| std::str::from_utf8(text).ok());
        database.ok_or_else(|| errors::Error::type_mismatch("$db must be a string"))
    }

    /// Decodes a whole frame (its header has been checked).
    pub(crate) fn decode(frame: &'a [u8]) -> Result<Self> {
        let flags = peek_msg_flags(frame)
            .ok_or_else(|| Error::close("OP_MSG shorter than its flag word"))?;
        let sections = checked_sections(frame, flags)?;
        let unknown = flags.0 & MsgFlags::REQUIRED_BITS & !MsgFlags::KNOWN_REQUIRED;
        if unknown != 0 {
            return Err(Error::Answer(errors::Error::new(
                Code::ILLEGAL_OP_MSG_FLAG,
                format!("Message contains illegal flags value: Ob{:032b}", flags.0),
            )));
        }
        Ok(read_sections(sections, flags)?)
    }
}

/// The flags of an OP_MSG frame, readable even when its contents are refused: a message with
/// `MORE_TO_COME` is never answered, not even with an error.
pub fn peek_msg_flags(frame: &[u8]) -> Option<MsgFlags> {
    let word = frame.get(HEADER_SIZE..)?.first_chunk::<4>()?;
    Some(MsgFlags(u32::from_le_bytes(*word)))
}

/// The bytes of the sections, after the checksum (if any) was found to be right.
fn checked_sections(frame: &[u8], flags: MsgFlags) -> Result<&[u8]> {
    let start = HEADER_SIZE + 4;
    if !flags.contains(MsgFlags::CHECKSUM_PRESENT) {
        return Ok(&frame[start..]);
    }
    let Some((covered, stored)) = frame.split_last_chunk::<4>() else {
        return Err(Error::close("OP_MSG too short for its checksum"));
    };
    if covered.len() < start {
        return Err(Error::close("OP_MSG too short for its checksum"));
    }
    if crc32c::crc32c(covered) != u32::from_le_bytes(*stored) {
        return Err(Error::close("OP_MSG checksum does not match contents"));
    }
    Ok(&covered[start..])
}

/// No command has more than two; each is compared with all others and with the body.
const MOST_SEQUENCES: usize = 16;

fn read_sections(sections: &[u8], flags: MsgFlags) -> errors::Result<OpMsg<'_>> {
    let mut reader = Reader::new(sections);
    let mut body = None;
    let mut database = None;
    // Marks of the body's fields.
    let mut named = 0;
    let mut sequences: Vec<Sequence<'_>> = Vec::new();
    while !reader.is_empty() {
        match reader.u8()? {
            0 => {
                if body.is_some() {
                    return Err(errors::Error::location(
                        40430,
                        "Multiple body sections in message",
                    ));
                }
                body = Some(validate_fields(reader.document_bytes()?, |kind, name, value| {
                    if name == b"$db" {
                        database.get_or_insert((kind, value));
                    }
                    named |= mark_of(name);
                })?);
            }
            1 => {
                let sequence = read_sequence(&mut reader)?;
                if sequences.iter().any(|(name, _)| *name == sequence.0) {
                    return Err(errors::Error::location(
                        40431,
                        format!("Duplicate document sequence: {}", sequence.0),
                    ));
                }
                if sequences.len() == MOST_SEQUENCES {
                    return Err(errors::Error::location(
                        40432,
                        format!("a message has at most {MOST_SEQUENCES} document sequences"),
                    ));
                }
                sequences.push(sequence);
            }
            kind => {
                return Err(errors::Error::location(40432, format!("Unknown section kind {kind}")));
            }
        }
    }
    let body =
        body.ok_or_else(|| errors::Error::location(40587, "OP_MSG messages must have a body"))?;
    for (name, _) in &sequences {
        if named & mark_of(name.as_bytes()) != 0
            && raw::names(body).flatten().any(|field| field == name.as_bytes())
        {
            return Err(errors::Error::location(
                40433,
                format!("Duplicate field between body and document sequence {name}"),
            ));
        }
    }
    Ok(OpMsg { flags, body, database, sequences })
}

/// One bit of a name. Names of one mark may differ; with few fields most names have none of theirs.
fn mark_of(name: &[u8]) -> u64 {
    let first = name.first().copied().unwrap_or_default();
    1 << ((name.len() ^ usize::from(first)) % 64)
}

fn read_sequence<'a>(reader: &mut Reader<'a>) -> errors::Result<Sequence<'a>> {
    let size = usize::try_from(reader.i32()?)
        .ok()
        .and_then(|size| size.checked_sub(4))
        .ok_or_else(|| invalid("a document sequence is shorter than its own length"))?;
    let mut inside = Reader::new(reader.take(size)?);
    let name = inside.cstr()?;
    let mut documents = Vec::new();
    while !inside.is_empty() {
        documents.push(inside.document()?);
    }
    Ok((name, documents))
}

/// Appends an OP_MSG with one body section; a checksum if the flags ask for one.
pub fn encode_msg(
    out: &mut Vec<u8>,
    request_id: i32,
    response_to: i32,
    flags: MsgFlags,
    body: &RawDocument,
) {
    encode_msg_with_sequences(out, request_id, response_to, flags, body, &[]);
}

/// Appends an OP_MSG with one body section up to the body, which is sent behind it and takes
/// `body_bytes`; without a checksum.
pub fn encode_msg_head(
    out: &mut Vec<u8>,
    request_id: i32,
    response_to: i32,
    flags: MsgFlags,
    body_bytes: usize,
) {
    let start = Header::append(out, request_id, response_to, opcode::MSG);
    out.extend_from_slice(&flags.0.to_le_bytes());
    out.push(0);
    seal_before(out, start, body_bytes);
}

/// Appends an OP_MSG with a body and document sequences; a checksum if the flags ask for one.
pub fn encode_msg_with_sequences(
    out: &mut Vec<u8>,
    request_id: i32,
    response_to: i32,
    flags: MsgFlags,
    body: &RawDocument,
    sequences: &[Sequence<'_>],
) {
    out.reserve(HEADER_SIZE + 9 + body.as_bytes().len());
    let start = Header::append(out, request_id, response_to, opcode::MSG);
    out.extend_from_slice(&flags.0.to_le_bytes());
    out.push(0);
    out.extend_from_slice(body.as_bytes());
    for (name, documents) in sequences {
        out.push(1);
        let size_at = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        for document in documents {
            out.extend_from_slice(document.as_bytes());
        }
        seal(out, size_at);
    }
    if flags.contains(MsgFlags::CHECKSUM_PRESENT) {
        // The checksum covers the final length, so the length is written first.
        out.extend_from_slice(&[0; 4]);
        seal(out, start);
        let end = out.len() - 4;
        let checksum = crc32c::crc32c(&out[start..end]);
        out[end..].copy_from_slice(&checksum.to_le_bytes());
    } else {
        seal(out, start);
    }
}
