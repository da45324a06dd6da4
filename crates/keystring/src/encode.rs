//! Values to key bytes.
//!
//! A part is a lead byte for the type (for numbers and booleans also for the value) and a payload
//! that says itself where it ends. No lead byte is below 0x0A or above 0xF0, so `0x00` can end a
//! container and `0xFE` can follow everything. Strings end with `0x00`; inside, `0x00` and `0x01`
//! are written `0x01 0x01` and `0x01 0x02`.

use crate::decode::int_width;
use crate::number::{self, Number, class};
use crate::order::canonical_type;
use crate::type_bits::TypeBits;
use crate::{Collation, Error, MAX_DEPTH, Result};
use bson::Bson;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

/// Lead bytes of everything that is no number (see [`class`] for those).
pub(crate) mod lead {
    pub(crate) const END: u8 = 0x00;
    pub(crate) const MIN_KEY: u8 = 0x0A;
    pub(crate) const UNDEFINED: u8 = 0x0E;
    pub(crate) const NULL: u8 = 0x14;
    pub(crate) const STRING: u8 = 0x3C;
    pub(crate) const DOCUMENT: u8 = 0x46;
    pub(crate) const ARRAY: u8 = 0x50;
    pub(crate) const BINARY: u8 = 0x5A;
    pub(crate) const OBJECT_ID: u8 = 0x64;
    pub(crate) const FALSE: u8 = 0x6E;
    pub(crate) const TRUE: u8 = 0x6F;
    pub(crate) const DATE: u8 = 0x78;
    pub(crate) const TIMESTAMP: u8 = 0x82;
    pub(crate) const REGEX: u8 = 0x8C;
    pub(crate) const DB_POINTER: u8 = 0x96;
    pub(crate) const CODE: u8 = 0xA0;
    pub(crate) const CODE_WITH_SCOPE: u8 = 0xAA;
    pub(crate) const MAX_KEY: u8 = 0xF0;
    /// Above every lead byte and every inverted one.
    pub(crate) const AFTER: u8 = 0xFE;
}

/// Which way a part of a key sorts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smallest first.
    #[default]
    Ascending,
    /// Largest first: the part's bytes are inverted.
    Descending,
}

impl Direction {
    /// The other way.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Self::Ascending => Self::Descending,
            Self::Descending => Self::Ascending,
        }
    }
}

/// Where a bound stands among the keys that begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discriminator {
    /// Not after any of them: the prefix itself.
    Before,
    /// After all of them.
    After,
}

/// Builds one key, part by part.
#[derive(Clone, Debug, Default)]
pub struct KeyBuilder {
    bytes: Vec<u8>,
    types: TypeBits,
}

impl KeyBuilder {
    /// An empty key.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty key that writes into `buffer` (cleared first), so that its allocation is reused.
    pub fn reusing(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self { bytes: buffer, types: TypeBits::default() }
    }

    /// Appends one value. On error nothing is appended.
    pub fn append(&mut self, value: RawBsonRef<'_>, direction: Direction) -> Result<()> {
        self.append_under(value, direction, None)
    }

    /// Appends one value with the sort keys of its strings in their place; `None` keeps the
    /// strings. On error nothing is appended.
    pub fn append_under(
        &mut self,
        value: RawBsonRef<'_>,
        direction: Direction,
        collation: Option<&Collation>,
    ) -> Result<()> {
        let start = self.bytes.len();
        if let Err(error) = encode(self, value, collation, 0) {
            self.bytes.truncate(start);
            return Err(error);
        }
        if direction == Direction::Descending {
            for byte in &mut self.bytes[start..] {
                *byte = !*byte;
            }
        }
        Ok(())
    }

    /// Appends one deserialised value.
    pub fn append_bson(&mut self, value: &Bson, direction: Direction) -> Result<()> {
        let raw = RawBson::try_from(value.clone())?;
        self.append(raw.as_raw_bson_ref(), direction)
    }

    /// Appends bytes that are a key themselves, such as the `_id` that makes an entry unique.
    pub fn append_bytes(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
    }

    /// Turns the key into a bound of the range of keys that begin with it. The last thing to append.
    pub fn append_discriminator(&mut self, discriminator: Discriminator) {
        if discriminator == Discriminator::After {
            self.bytes.push(lead::AFTER);
        }
    }

    /// The bytes so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The type bits so far.
    pub fn type_bits(&self) -> &TypeBits {
        &self.types
    }

    /// Forgets everything, keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.types.clear();
    }

    /// The key and its type bits.
    pub fn finish(self) -> (Vec<u8>, TypeBits) {
        (self.bytes, self.types)
    }

    /// The key alone, for bounds and lookups.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Where encoded bytes go: a key, or a hasher.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
    fn type_bit(&mut self, bit: bool);
}

impl Sink for KeyBuilder {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn type_bit(&mut self, bit: bool) {
        self.types.push(bit);
    }
}

/// Writes one value in ascending form.
pub(crate) fn encode<S: Sink>(
    out: &mut S,
    value: RawBsonRef<'_>,
    collation: Option<&Collation>,
    depth: usize,
) -> Result<()> {
    use RawBsonRef as V;
    if depth > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    match value {
        V::MinKey => out.put(&[lead::MIN_KEY]),
        V::Undefined => out.put(&[lead::UNDEFINED]),
        V::Null => out.put(&[lead::NULL]),
        V::Int32(_) | V::Int64(_) | V::Double(_) | V::Decimal128(_) => put_number(out, value),
        V::String(v) => {
            out.type_bit(false);
            put_collated(out, v, collation);
        }
        V::Symbol(v) => {
            out.type_bit(true);
            put_collated(out, v, collation);
        }
        V::Document(v) => {
            out.put(&[lead::DOCUMENT]);
            put_fields(out, v, collation, depth)?;
        }
        V::Array(v) => {
            out.put(&[lead::ARRAY]);
            for element in v {
                encode(out, element?, collation, depth + 1)?;
            }
            out.put(&[lead::END]);
        }
        V::Binary(v) => {
            out.put(&[lead::BINARY]);
            put_length(out, v.bytes.len());
            out.put(&[v.subtype.into()]);
            out.put(v.bytes);
        }
        V::ObjectId(v) => {
            out.put(&[lead::OBJECT_ID]);
            out.put(&v.bytes());
        }
        V::Boolean(v) => out.put(&[if v { lead::TRUE } else { lead::FALSE }]),
        V::DateTime(v) => {
            out.put(&[lead::DATE]);
            out.put(&(v.timestamp_millis() as u64 ^ 1 << 63).to_be_bytes());
        }
        V::Timestamp(v) => {
            out.put(&[lead::TIMESTAMP]);
            out.put(&v.time.to_be_bytes());
            out.put(&v.increment.to_be_bytes());
        }
        V::RegularExpression(v) => {
            put_string(out, lead::REGEX, v.pattern.as_str());
            put_text(out, v.options.as_str());
        }
        V::DbPointer(_) => {
            let (namespace, id) = db_pointer_parts(value).unwrap_or_default();
            out.put(&[lead::DB_POINTER]);
            put_length(out, namespace.len());
            out.put(&namespace);
            out.put(&id);
        }
        V::JavaScriptCode(v) => put_string(out, lead::CODE, v),
        V::JavaScriptCodeWithScope(v) => {
            put_string(out, lead::CODE_WITH_SCOPE, v.code);
            put_fields(out, v.scope, None, depth)?;
        }
        V::MaxKey => out.put(&[lead::MAX_KEY]),
    }
    Ok(())
}

fn put_fields<S: Sink>(
    out: &mut S,
    document: &RawDocument,
    collation: Option<&Collation>,
    depth: usize,
) -> Result<()> {
    for field in document {
        let (name, value) = field?;
        // The order of documents asks for type, then name, then value; a number's lead byte already
        // tells its value, so the type stands apart.
        out.put(&[canonical_type(&value) + lead::MIN_KEY]);
        put_text(out, name.as_str());
        encode(out, value, collation, depth + 1)?;
    }
    out.put(&[lead::END]);
    Ok(())
}

fn put_number<S: Sink>(out: &mut S, value: RawBsonRef<'_>) {
    // Of most whole numbers the bytes tell the type, see `default_type`.
    match value {
        RawBsonRef::Int32(v) if v > 0 => return put_usual_integer(out, v as u64),
        RawBsonRef::Int64(v) if v > i64::from(i32::MAX) => return put_usual_integer(out, v as u64),
        _ => {}
    }
    let Some(number) = Number::of(value) else { return };
    let encoded = number::encode(number);
    let bytes = encoded.as_bytes();
    out.put(bytes);
    let kind = match value {
        RawBsonRef::Int32(_) => NumberType::Int32,
        RawBsonRef::Int64(_) => NumberType::Int64,
        RawBsonRef::Double(_) => NumberType::Double,
        _ => NumberType::Decimal,
    };
    let negative_zero = matches!(value, RawBsonRef::Double(v) if v == 0.0 && v.is_sign_negative());
    if kind == default_type(bytes) {
        out.type_bit(false);
        return;
    }
    out.type_bit(true);
    out.type_bit(kind as u8 & 1 != 0);
    out.type_bit(kind as u8 & 2 != 0);
    if kind == NumberType::Double && bytes[0] == class::ZERO {
        out.type_bit(negative_zero);
    }
    if let RawBsonRef::Decimal128(v) = value {
        for byte in v.bytes() {
            for bit in 0..8 {
                out.type_bit(byte >> bit & 1 == 1);
            }
        }
    }
}

/// As [`number::encode`] has it, and a type bit.
fn put_usual_integer<S: Sink>(out: &mut S, magnitude: u64) {
    let shifted = magnitude << 1;
    let skip = shifted.leading_zeros() as usize / 8;
    let mut bytes = [0; 9];
    bytes[1..].copy_from_slice(&shifted.to_be_bytes());
    bytes[skip] = class::INT_8 - skip as u8;
    out.put(&bytes[skip..]);
    out.type_bit(false);
}

/// The four number types as the type bits write them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberType {
    Int32 = 0,
    Int64 = 1,
    Double = 2,
    Decimal = 3,
}

/// The type a number most likely had, told from its bytes in ascending form.
pub(crate) fn default_type(bytes: &[u8]) -> NumberType {
    match bytes[0] {
        class::ZERO => NumberType::Int32,
        class::NEGATIVE_INT_8..=class::NEGATIVE_INT_1 | class::INT_1..=class::INT_8 => {
            let negative = bytes[0] < class::ZERO;
            let mut shifted: u64 = 0;
            for byte in &bytes[1..=usize::from(int_width(bytes[0]))] {
                shifted = shifted << 8 | u64::from(if negative { !*byte } else { *byte });
            }
            if shifted & 1 == 1 {
                NumberType::Double
            } else if shifted >> 1 <= 0x7FFF_FFFF + u64::from(negative) {
                NumberType::Int32
            } else {
                NumberType::Int64
            }
        }
        _ => NumberType::Double,
    }
}

fn put_string<S: Sink>(out: &mut S, lead: u8, text: &str) {
    out.put(&[lead]);
    put_text(out, text);
}

fn put_collated<S: Sink>(out: &mut S, text: &str, collation: Option<&Collation>) {
    out.put(&[lead::STRING]);
    match collation {
        Some(collation) => put_escaped(out, &collation.sort_key(text)),
        None => put_escaped(out, text.as_bytes()),
    }
}

fn put_text<S: Sink>(out: &mut S, text: &str) {
    put_escaped(out, text.as_bytes());
}

fn put_escaped<S: Sink>(out: &mut S, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte <= 1) {
        out.put(&rest[..at]);
        out.put(&[1, rest[at] + 1]);
        rest = &rest[at + 1..];
    }
    out.put(rest);
    out.put(&[lead::END]);
}

/// One byte below 254, otherwise 254 and four bytes: shorter sorts first.
fn put_length<S: Sink>(out: &mut S, length: usize) {
    if length < 0xFE {
        out.put(&[length as u8]);
    } else {
        out.put(&[0xFE]);
        out.put(&(length as u32).to_be_bytes());
    }
}

/// Namespace and id of a pointer. The `bson` crate keeps them to itself, so they are read from
/// the bytes it writes.
pub(crate) fn db_pointer_parts(value: RawBsonRef<'_>) -> Option<(Vec<u8>, [u8; 12])> {
    let mut document = RawDocumentBuf::new();
    document.append(bson::raw::cstr!(""), value);
    // size 4, type 1, empty name 1; then size 4, namespace, 0, id 12; then the end.
    let bytes = document.as_bytes();
    let body = bytes.get(6..bytes.len() - 1)?;
    let id = body.len().checked_sub(12)?;
    let namespace = body.get(4..id.checked_sub(1)?)?.to_vec();
    Some((namespace, body[id..].try_into().ok()?))
}
