//! Resume tokens: `{_data: <hex>}`, in MongoDB's version 1 layout.
//!
//! ```text
//! 82 time u64 BE │ 2B02 version 1 │ 29 a mark, or 2C0100 an event │ operation in its transaction, a number
//! 6E or 6F: of an invalidate │ [5A 10 04 uuid 16] │ [document key, a key string │ [fragment]] │ 04
//! ```
//!
//! Tools read the time from bytes 1 to 8. Tokens sort, as text, as their events do; a mark sorts before
//! the events of its time.
//!
//! Always true: any text decodes to a token or to an error.

use crate::Time;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::raw::document_of;
use errors::{Code, Error, Result};
use keystring::{Direction, KeyBuilder};

const TIMESTAMP: u8 = 0x82;
const VERSION_1: [u8; 2] = [0x2B, 0x02];
const MARK: [u8; 1] = [0x29];
const EVENT: [u8; 3] = [0x2C, 0x01, 0x00];
const FALSE: u8 = 0x6E;
const TRUE: u8 = 0x6F;
const UUID: [u8; 3] = [0x5A, 0x10, 0x04];
const END: u8 = 0x04;
const OBJECT: u8 = 70;
const ARRAY: u8 = 80;
/// The longest token that is looked at: a document's key and what stands around it.
const MAX_BYTES: usize = 2 << 20;

/// Where a stream stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// The time of the event, or all before which was seen.
    pub time: Time,
    /// An event; else a high-water mark, which stands before the events of its time.
    pub is_event: bool,
    /// Its place in its transaction.
    pub operation: u64,
    /// It is of the invalidate behind the event.
    pub from_invalidate: bool,
    /// The collection.
    pub uuid: Option<[u8; 16]>,
    /// The document's key, and the fragment of the event, as they stand in the token.
    pub identifier: Vec<u8>,
}

impl Token {
    /// A high-water-mark token: everything before `time` was delivered.
    pub fn high_water_mark(time: Time) -> Self {
        Self {
            time,
            is_event: false,
            operation: 0,
            from_invalidate: false,
            uuid: None,
            identifier: Vec::new(),
        }
    }

    /// Of an event on a document, or on no document.
    pub fn event(
        time: Time,
        operation: u64,
        uuid: Option<[u8; 16]>,
        key: Option<&RawDocument>,
    ) -> Result<Self> {
        let mut identifier = Vec::new();
        if let Some(key) = key {
            value_into(&mut identifier, RawBsonRef::Document(key), 0)?;
        }
        Ok(Self { time, is_event: true, operation, from_invalidate: false, uuid, identifier })
    }

    /// The token of the invalidate that follows this event.
    #[must_use]
    pub fn invalidate(&self) -> Self {
        Self { from_invalidate: true, ..self.clone() }
    }

    /// The token of a part of the event.
    pub fn fragment(&self, number: i32) -> Result<Self> {
        let mut builder = KeyBuilder::new();
        let appended = builder.append(RawBsonRef::Int32(number), Direction::Ascending);
        appended.map_err(|error| Error::new(Code::INTERNAL_ERROR, error.to_string()))?;
        let mut token = self.clone();
        token.identifier.extend_from_slice(builder.as_bytes());
        Ok(token)
    }

    /// The number of the fragment whose token this is, where `whole` is the token of its event.
    pub fn fragment_of(&self, whole: &Self) -> Option<i32> {
        let rest = self.identifier.strip_prefix(&whole.identifier[..])?;
        match keystring::decode(rest, &[], &[Direction::Ascending]).ok()?.first()? {
            bson::Bson::Int32(number) => Some(*number),
            _ => None,
        }
    }

    /// What orders tokens.
    pub fn place(&self) -> (Time, bool, u64, bool) {
        (self.time, self.is_event, self.operation, self.from_invalidate)
    }

    /// The token's bytes.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![TIMESTAMP];
        bytes.extend_from_slice(&self.time.0.to_be_bytes());
        bytes.extend_from_slice(&VERSION_1);
        bytes.extend_from_slice(if self.is_event { &EVENT } else { &MARK });
        let mut builder = KeyBuilder::new();
        let number = i64::try_from(self.operation).unwrap_or(i64::MAX);
        // A number nests nothing: it always has a key.
        let _encoded = builder.append(RawBsonRef::Int64(number), Direction::Ascending);
        bytes.extend_from_slice(builder.as_bytes());
        bytes.push(if self.from_invalidate { TRUE } else { FALSE });
        if let Some(uuid) = &self.uuid {
            bytes.extend_from_slice(&UUID);
            bytes.extend_from_slice(uuid);
        }
        bytes.extend_from_slice(&self.identifier);
        bytes.push(END);
        bytes
    }

    /// As text: two upper-case hexadecimal digits a byte.
    pub fn to_text(&self) -> String {
        use std::fmt::Write;
        self.bytes().iter().fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _written = write!(text, "{byte:02X}");
            text
        })
    }

    /// `{_data: …}`.
    pub fn to_document(&self) -> RawDocumentBuf {
        document_of("_data", RawBsonRef::String(&self.to_text()))
    }

    /// Reads what a client gives: `{_data: …}`.
    pub fn from_document(document: &RawDocument) -> Result<Self> {
        match document.get("_data") {
            Ok(Some(RawBsonRef::String(text))) => Self::from_text(text),
            Ok(Some(other)) => Err(Error::type_mismatch(format!(
                "BSON field '_data' is the wrong type '{}', expected type 'string'",
                bsonval::types::name_of(other)
            ))),
            Ok(None) => Err(Error::location(
                40647,
                "Bad resume token: _data of missing or of wrong type".to_owned(),
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a token's text.
    pub fn from_text(text: &str) -> Result<Self> {
        let bytes = hexadecimal(text).ok_or_else(|| invalid("it is not hexadecimal"))?;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let mut rest = Rest(bytes);
        rest.expect(&[TIMESTAMP])?;
        let time = u64::from_be_bytes(*rest.array()?);
        if rest.expect(&VERSION_1).is_err() {
            return Err(invalid("only tokens of version 1 are known"));
        }
        let is_event = match rest.0.first() {
            Some(byte) if *byte == MARK[0] => {
                rest.expect(&MARK)?;
                false
            }
            _ => {
                rest.expect(&EVENT)?;
                true
            }
        };
        let operation = rest.number()?;
        let from_invalidate = match rest.array::<1>()? {
            [FALSE] => false,
            [TRUE] => true,
            _ => return Err(invalid("no boolean")),
        };
        let uuid = match rest.0.first() {
            Some(byte) if *byte == UUID[0] => {
                rest.expect(&UUID)?;
                Some(*rest.array()?)
            }
            _ => None,
        };
        let (end, identifier) = rest.0.split_last().ok_or_else(|| invalid("it ends too early"))?;
        if *end != END {
            return Err(invalid("it does not end"));
        }
        check_identifier(identifier)?;
        Ok(Self {
            time: Time(time),
            is_event,
            operation,
            from_invalidate,
            uuid,
            identifier: identifier.to_vec(),
        })
    }
}

/// A value as MongoDB's key strings have it. They say the type of a document's field by the first byte
/// of its type's keys, ours by its rank; all else is the same.
fn value_into(out: &mut Vec<u8>, value: RawBsonRef<'_>, depth: usize) -> Result<()> {
    if depth > keystring::MAX_DEPTH {
        return Err(Error::new(Code::OVERFLOW, "a document's key nests too deep"));
    }
    match value {
        RawBsonRef::Document(document) => {
            out.push(OBJECT);
            for (name, value) in document.iter().collect::<bson::error::Result<Vec<_>>>()? {
                out.push(type_of(value));
                out.extend_from_slice(name.as_str().as_bytes());
                out.push(0);
                value_into(out, value, depth + 1)?;
            }
            out.push(0);
        }
        RawBsonRef::Array(array) => {
            out.push(ARRAY);
            for element in array {
                value_into(out, element?, depth + 1)?;
            }
            out.push(0);
        }
        other => {
            let mut builder = KeyBuilder::new();
            let appended = builder.append(other, Direction::Ascending);
            appended.map_err(|error| Error::new(Code::INTERNAL_ERROR, error.to_string()))?;
            out.extend_from_slice(builder.as_bytes());
        }
    }
    Ok(())
}

/// The first byte of keys of a value's type; of numbers that of the middle ones.
fn type_of(value: RawBsonRef<'_>) -> u8 {
    match value {
        RawBsonRef::MinKey => 10,
        RawBsonRef::Undefined => 14,
        RawBsonRef::Null => 20,
        RawBsonRef::Int32(_)
        | RawBsonRef::Int64(_)
        | RawBsonRef::Double(_)
        | RawBsonRef::Decimal128(_) => 30,
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => 60,
        RawBsonRef::Document(_) => OBJECT,
        RawBsonRef::Array(_) => ARRAY,
        RawBsonRef::Binary(_) => 90,
        RawBsonRef::ObjectId(_) => 100,
        RawBsonRef::Boolean(_) => 110,
        RawBsonRef::DateTime(_) => 120,
        RawBsonRef::Timestamp(_) => 130,
        RawBsonRef::RegularExpression(_) => 140,
        RawBsonRef::DbPointer(_) => 150,
        RawBsonRef::JavaScriptCode(_) => 160,
        RawBsonRef::JavaScriptCodeWithScope(_) => 170,
        RawBsonRef::MaxKey => 240,
    }
}

/// A key and the number of a fragment at most.
fn check_identifier(bytes: &[u8]) -> Result<()> {
    let mut rest = bytes;
    for _ in 0..2 {
        if rest.is_empty() {
            return Ok(());
        }
        let length = keystring::skip(rest, &[Direction::Ascending]);
        let length = length.map_err(|_| invalid("a damaged key"))?;
        rest = rest.get(length..).unwrap_or_default();
    }
    if rest.is_empty() { Ok(()) } else { Err(invalid("more than a key")) }
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * MAX_BYTES {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    digits.chunks(2).map(pair).collect()
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn expect(&mut self, bytes: &[u8]) -> Result<()> {
        let rest = self.0.strip_prefix(bytes);
        self.0 = rest.ok_or_else(|| invalid("not what stands in a token here"))?;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        let cut = self.0.split_first_chunk();
        let (first, rest) = cut.ok_or_else(|| invalid("it ends too early"))?;
        self.0 = rest;
        Ok(first)
    }

    /// A whole number that is not negative.
    fn number(&mut self) -> Result<u64> {
        let damaged = |_: keystring::Error| invalid("no number");
        let (values, length) =
            keystring::decode_prefix(self.0, &[], &[Direction::Ascending]).map_err(damaged)?;
        self.0 = self.0.get(length..).unwrap_or_default();
        let number = match values.first() {
            Some(bson::Bson::Int32(number)) => u64::try_from(*number).ok(),
            Some(bson::Bson::Int64(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        number.ok_or_else(|| invalid("no number"))
    }
}

fn invalid(what: &str) -> Error {
    Error::new(Code::INVALID_RESUME_TOKEN, format!("Invalid resume token: {what}"))
}

#[cfg(test)]
mod tests;
