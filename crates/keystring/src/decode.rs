//! Key bytes back to values.
//!
//! Always true: any bytes give values or [`Error::Damaged`]; nothing is allocated beyond what the
//! bytes themselves hold, and nesting is bounded.

use crate::encode::{Direction, NumberType, default_type, lead};
use crate::number::{TWO_63, class};
use crate::order::canonical_type_bson;
use crate::type_bits::BitReader;
use crate::{Error, MAX_DEPTH, Result};
use bson::raw::{CString, RawDocument};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, Timestamp, oid::ObjectId};

/// The values of a whole key: one part per direction, nothing after them.
pub fn decode(key: &[u8], type_bits: &[u8], directions: &[Direction]) -> Result<Vec<Bson>> {
    let (values, end) = decode_prefix(key, type_bits, directions)?;
    if end != key.len() {
        return Err(Error::Damaged { offset: end, reason: "bytes after the last part" });
    }
    Ok(values)
}

/// The values of the first parts of a key, one per direction, and the offset after them.
pub fn decode_prefix(
    key: &[u8],
    type_bits: &[u8],
    directions: &[Direction],
) -> Result<(Vec<Bson>, usize)> {
    let mut reader = Reader::new(key, type_bits);
    let mut values = Vec::with_capacity(directions.len().min(key.len()));
    for direction in directions {
        reader.turn(*direction);
        values.push(reader.value(0)?);
    }
    Ok((values, reader.at))
}

/// As [`decode`], of a key made under a collation: a text comes as its sort key, a character for a
/// byte, as [`crate::Collation::transform`] makes it.
pub fn decode_collated(
    key: &[u8],
    type_bits: &[u8],
    directions: &[Direction],
) -> Result<Vec<Bson>> {
    let mut reader = Reader::new(key, type_bits);
    reader.collated = true;
    let mut values = Vec::with_capacity(directions.len().min(key.len()));
    for direction in directions {
        reader.turn(*direction);
        values.push(reader.value(0)?);
    }
    if reader.at != key.len() {
        return reader.damaged("bytes after the last part");
    }
    Ok(values)
}

/// The offset after the first parts of a key, one per direction.
pub fn skip(key: &[u8], directions: &[Direction]) -> Result<usize> {
    let mut reader = Reader::new(key, &[]);
    for direction in directions {
        reader.turn(*direction);
        reader.skip_value()?;
    }
    Ok(reader.at)
}

struct Reader<'a> {
    key: &'a [u8],
    at: usize,
    /// 0xFF while a descending part is read.
    mask: u8,
    types: BitReader<'a>,
    /// Strings are sort keys.
    collated: bool,
}

impl<'a> Reader<'a> {
    fn new(key: &'a [u8], type_bits: &'a [u8]) -> Self {
        Self { key, at: 0, mask: 0, types: BitReader::new(type_bits), collated: false }
    }

    fn turn(&mut self, direction: Direction) {
        self.mask = if direction == Direction::Descending { 0xFF } else { 0 };
    }

    fn damaged<T>(&self, reason: &'static str) -> Result<T> {
        Err(Error::Damaged { offset: self.at, reason })
    }

    fn byte(&mut self) -> Result<u8> {
        let Some(byte) = self.key.get(self.at) else { return self.damaged("the key ends early") };
        self.at += 1;
        Ok(byte ^ self.mask)
    }

    fn take(&mut self, len: usize) -> Result<Vec<u8>> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.key.len());
        let Some(end) = end else { return self.damaged("the key ends early") };
        let bytes = self.key[self.at..end].iter().map(|byte| byte ^ self.mask).collect();
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(bytes)
    }

    fn length(&mut self) -> Result<usize> {
        match self.byte()? {
            0xFE => {
                let length = u32::from_be_bytes(self.array()?) as usize;
                if length < 0xFE {
                    self.damaged("a long form of a short length")
                } else {
                    Ok(length)
                }
            }
            0xFF => self.damaged("no length begins so"),
            short => Ok(usize::from(short)),
        }
    }

    fn text(&mut self) -> Result<String> {
        let bytes = self.escaped()?;
        let Ok(text) = String::from_utf8(bytes) else { return self.damaged("text is not UTF-8") };
        Ok(text)
    }

    fn escaped(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            match self.byte()? {
                lead::END => break,
                1 => match self.byte()? {
                    escaped @ 1..=2 => bytes.push(escaped - 1),
                    _ => return self.damaged("no such escape"),
                },
                byte => bytes.push(byte),
            }
        }
        Ok(bytes)
    }

    fn cstring(&mut self) -> Result<CString> {
        match CString::try_from(self.text()?) {
            Ok(text) => Ok(text),
            Err(_) => self.damaged("a NUL inside a name"),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Bson> {
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        let lead = self.byte()?;
        Ok(match lead {
            lead::MIN_KEY => Bson::MinKey,
            lead::UNDEFINED => Bson::Undefined,
            lead::NULL => Bson::Null,
            class::NAN..=class::LARGE => self.number(lead)?,
            lead::STRING => {
                let symbol = self.types.next();
                let text = if self.collated {
                    self.escaped()?.into_iter().map(char::from).collect()
                } else {
                    self.text()?
                };
                if symbol { Bson::Symbol(text) } else { Bson::String(text) }
            }
            lead::DOCUMENT => Bson::Document(self.document(depth)?),
            lead::ARRAY => {
                let mut elements = Vec::new();
                while self.peek()? != lead::END {
                    elements.push(self.value(depth + 1)?);
                }
                self.at += 1;
                Bson::Array(elements)
            }
            lead::BINARY => {
                let length = self.length()?;
                let subtype = BinarySubtype::from(self.byte()?);
                Bson::Binary(Binary { subtype, bytes: self.take(length)? })
            }
            lead::OBJECT_ID => Bson::ObjectId(ObjectId::from_bytes(self.array()?)),
            lead::FALSE => Bson::Boolean(false),
            lead::TRUE => Bson::Boolean(true),
            lead::DATE => {
                let millis = (u64::from_be_bytes(self.array()?) ^ 1 << 63) as i64;
                Bson::DateTime(DateTime::from_millis(millis))
            }
            lead::TIMESTAMP => Bson::Timestamp(Timestamp {
                time: u32::from_be_bytes(self.array()?),
                increment: u32::from_be_bytes(self.array()?),
            }),
            lead::REGEX => {
                let (pattern, options) = (self.cstring()?, self.cstring()?);
                Bson::RegularExpression(bson::Regex { pattern, options })
            }
            lead::DB_POINTER => self.db_pointer()?,
            lead::CODE => Bson::JavaScriptCode(self.text()?),
            lead::CODE_WITH_SCOPE => {
                let code = self.text()?;
                let scope = self.document(depth)?;
                Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code, scope })
            }
            lead::MAX_KEY => Bson::MaxKey,
            _ => {
                self.at -= 1;
                return self.damaged("no type begins so");
            }
        })
    }

    fn peek(&mut self) -> Result<u8> {
        let byte = self.byte()?;
        self.at -= 1;
        Ok(byte)
    }

    fn document(&mut self, depth: usize) -> Result<Document> {
        let mut fields = Document::new();
        loop {
            let kind = self.byte()?;
            if kind == lead::END {
                return Ok(fields);
            }
            let name = self.text()?;
            let value = self.value(depth + 1)?;
            if canonical_type_bson(&value) + lead::MIN_KEY != kind {
                return self.damaged("a field's type and its value disagree");
            }
            fields.insert(name, value);
        }
    }

    fn db_pointer(&mut self) -> Result<Bson> {
        let length = self.length()?;
        let namespace = self.take(length)?;
        let id: [u8; 12] = self.array()?;
        if std::str::from_utf8(&namespace).is_err() {
            return self.damaged("text is not UTF-8");
        }
        // Size 4, type 0x0C, empty name, size 4, namespace, 0, id, end.
        let total = 4 + 1 + 1 + 4 + namespace.len() + 1 + 12 + 1;
        let mut bytes = Vec::with_capacity(total);
        bytes.extend_from_slice(&(total as u32).to_le_bytes());
        bytes.extend_from_slice(&[0x0C, 0]);
        bytes.extend_from_slice(&(namespace.len() as u32 + 1).to_le_bytes());
        bytes.extend_from_slice(&namespace);
        bytes.push(0);
        bytes.extend_from_slice(&id);
        bytes.push(0);
        match RawDocument::from_bytes(&bytes)?.get("")? {
            Some(value) => Ok(Bson::try_from(value)?),
            None => self.damaged("no pointer"),
        }
    }

    /// The fixed bytes and the tail of a number, in ascending form, lead byte first.
    fn number_bytes(&mut self, lead: u8) -> Result<Vec<u8>> {
        let flip = if lead < class::ZERO { 0xFF } else { 0 };
        let head = match lead {
            class::NAN | class::ZERO => return Ok(vec![lead]),
            class::NEGATIVE_INT_8..=class::NEGATIVE_INT_1 | class::INT_1..=class::INT_8 => {
                int_width(lead)
            }
            _ => 8,
        };
        let is_int = !matches!(lead, class::NEGATIVE_LARGE | class::NEGATIVE_SMALL)
            && !matches!(lead, class::SMALL | class::LARGE);
        let mut bytes = vec![lead];
        bytes.extend(self.take(usize::from(head))?);
        let more = |bytes: &[u8]| bytes.last().is_some_and(|last| (last ^ flip) & 1 == 1);
        if is_int && more(&bytes) {
            bytes.extend(self.take(8)?);
        } else if is_int {
            return Ok(bytes);
        }
        if more(&bytes) {
            bytes.extend(self.take(17)?);
        }
        Ok(bytes)
    }

    fn number(&mut self, lead: u8) -> Result<Bson> {
        let bytes = self.number_bytes(lead)?;
        let negative = lead < class::ZERO;
        let kind = if self.types.next() {
            match self.types.bits(2) {
                0 => NumberType::Int32,
                1 => NumberType::Int64,
                2 => NumberType::Double,
                _ => NumberType::Decimal,
            }
        } else {
            default_type(&bytes)
        };
        if kind == NumberType::Decimal {
            return Ok(Bson::Decimal128(Decimal128::from_bytes(
                self.types.bits(128).to_le_bytes(),
            )));
        }
        let plain: Vec<u8> =
            bytes[1..].iter().map(|byte| if negative { !byte } else { *byte }).collect();
        let magnitude = match lead {
            class::NAN => return Ok(Bson::Double(f64::NAN)),
            class::ZERO => match kind {
                NumberType::Int32 => return Ok(Bson::Int32(0)),
                NumberType::Int64 => return Ok(Bson::Int64(0)),
                _ => return Ok(Bson::Double(if self.types.next() { -0.0 } else { 0.0 })),
            },
            class::SMALL | class::LARGE | class::NEGATIVE_SMALL | class::NEGATIVE_LARGE => {
                let bits = be(&plain[..8]) >> 1;
                let double = f64::from_bits(bits);
                if kind == NumberType::Int64 && negative && double == TWO_63 {
                    return Ok(Bson::Int64(i64::MIN));
                }
                double
            }
            _ => {
                let width = usize::from(int_width(lead));
                let whole = be(&plain[..width]) >> 1;
                if kind != NumberType::Double {
                    return self.integer(kind, whole as i64, negative);
                }
                let fraction = plain.get(width..width + 8).map_or(0, be) >> 1;
                whole as f64 + fraction as f64 / TWO_63
            }
        };
        if kind != NumberType::Double {
            return self.damaged("a fraction that claims to be an integer");
        }
        Ok(Bson::Double(if negative { -magnitude } else { magnitude }))
    }

    fn integer(&self, kind: NumberType, whole: i64, negative: bool) -> Result<Bson> {
        let value = if negative { -whole } else { whole };
        match (kind, i32::try_from(value)) {
            (NumberType::Int32, Ok(value)) => Ok(Bson::Int32(value)),
            (NumberType::Int32, Err(_)) => self.damaged("an int32 that does not fit"),
            _ => Ok(Bson::Int64(value)),
        }
    }

    /// Passes over a value without building it; nesting costs a counter, not the stack.
    fn skip_value(&mut self) -> Result<()> {
        // What each open container holds: fields (true) or elements (false).
        let mut open: Vec<bool> = Vec::new();
        loop {
            let mut lead = self.byte()?;
            if lead == lead::END && !open.is_empty() {
                open.pop();
            } else {
                if open.last() == Some(&true) {
                    self.skip_text()?;
                    lead = self.byte()?;
                }
                self.skip_payload(lead, &mut open)?;
            }
            if open.is_empty() {
                return Ok(());
            }
            if open.len() > MAX_DEPTH + 1 {
                return Err(Error::TooDeep);
            }
        }
    }

    fn skip_payload(&mut self, lead: u8, open: &mut Vec<bool>) -> Result<()> {
        match lead {
            lead::MIN_KEY
            | lead::UNDEFINED
            | lead::NULL
            | lead::FALSE
            | lead::TRUE
            | lead::MAX_KEY => {}
            class::NAN..=class::LARGE => {
                self.number_bytes(lead)?;
            }
            lead::STRING | lead::CODE => self.skip_text()?,
            lead::DOCUMENT => open.push(true),
            lead::ARRAY => open.push(false),
            lead::BINARY => {
                let length = self.length()?;
                self.skip_bytes(length + 1)?;
            }
            lead::OBJECT_ID => self.skip_bytes(12)?,
            lead::DATE | lead::TIMESTAMP => self.skip_bytes(8)?,
            lead::REGEX => {
                self.skip_text()?;
                self.skip_text()?;
            }
            lead::DB_POINTER => {
                let length = self.length()?;
                self.skip_bytes(length + 12)?;
            }
            lead::CODE_WITH_SCOPE => {
                self.skip_text()?;
                open.push(true);
            }
            _ => return self.damaged("no type begins so"),
        }
        Ok(())
    }

    fn skip_text(&mut self) -> Result<()> {
        while self.byte()? != lead::END {}
        Ok(())
    }

    fn skip_bytes(&mut self, len: usize) -> Result<()> {
        if len > self.key.len() - self.at {
            return self.damaged("the key ends early");
        }
        self.at += len;
        Ok(())
    }
}

/// How many bytes the integer part of such a number has.
pub(crate) fn int_width(lead: u8) -> u8 {
    if lead < class::ZERO { class::NEGATIVE_INT_1 - lead + 1 } else { lead - class::INT_1 + 1 }
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
