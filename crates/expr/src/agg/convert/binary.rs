//! Binary data to text and numbers and back, as `$convert` does it.

use super::{Options, failure, unsupported};
use crate::agg::{Value, value_to_string};
use bson::Binary;
use bson::raw::{RawBinaryRef, RawBson, RawBsonRef};
use bson::spec::BinarySubtype;
use errors::{Error, Result};
use std::fmt::Write as _;

/// How bytes are written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// UUIDs as such, all else in base 64.
    Auto,
    Base64,
    Base64Url,
    Hex,
    Utf8,
    Uuid,
}

impl Format {
    /// Reads the `format` argument; `None` where null.
    pub(super) fn read(value: &Value<'_>) -> Result<Option<Self>> {
        let Some(name) = named(value, "format", 4341114)? else { return Ok(None) };
        Ok(Some(match name {
            "auto" => Self::Auto,
            "base64" => Self::Base64,
            "base64url" => Self::Base64Url,
            "hex" => Self::Hex,
            "utf8" => Self::Utf8,
            "uuid" => Self::Uuid,
            other => {
                return Err(Error::location(
                    4341125,
                    format!("Invalid 'format' argument for $convert: {other}"),
                ));
            }
        }))
    }
}

/// Reads the `byteOrder` argument: whether the greatest byte comes first.
pub(super) fn read_byte_order(value: &Value<'_>) -> Result<bool> {
    match named(value, "byteOrder", 9130001)? {
        None | Some("little") => Ok(false),
        Some("big") => Ok(true),
        Some(other) => Err(Error::location(
            9130002,
            format!("Invalid 'byteOrder' argument for $convert: {other}"),
        )),
    }
}

fn named<'v>(value: &'v Value<'_>, argument: &str, code: i32) -> Result<Option<&'v str>> {
    if value.is_nullish() {
        return Ok(None);
    }
    value.as_str().map(Some).ok_or_else(|| {
        Error::location(
            code,
            format!(
                "$convert requires that '{argument}' be a string, found: {} with value {}",
                value.type_name(),
                value_to_string(value.bson())
            ),
        )
    })
}

fn format_of(value: &Value<'_>, options: Options, target: &str) -> Result<Format> {
    options.format.ok_or_else(|| {
        Error::location(
            4341115,
            format!(
                "Format must be speficied when converting from '{}' to '{target}'",
                value.type_name()
            ),
        )
    })
}

pub(super) fn to_text(
    value: &Value<'_>,
    binary: RawBinaryRef<'_>,
    options: Options,
) -> Result<String> {
    let refuse = |reason: &str| {
        failure(format!(
            "Failed to convert '{}' to string in $convert with no onError value: {reason}",
            value_to_string(value.bson())
        ))
    };
    let is_uuid = binary.subtype == BinarySubtype::Uuid && binary.bytes.len() == 16;
    match format_of(value, options, "string")? {
        Format::Auto | Format::Uuid if is_uuid => Ok(uuid_text(binary.bytes)),
        Format::Auto | Format::Base64 => Ok(base64(binary.bytes, *b"+/", true)),
        Format::Base64Url => Ok(base64(binary.bytes, *b"-_", false)),
        Format::Hex => Ok(hex(binary.bytes).to_ascii_uppercase()),
        Format::Utf8 => std::str::from_utf8(binary.bytes)
            .map(str::to_owned)
            .map_err(|_| refuse("BinData does not represent a valid UTF-8 string")),
        Format::Uuid => Err(refuse("BinData does not represent a valid UUID")),
    }
}

/// A signed number of one of these sizes.
pub(super) fn to_integer(
    value: &Value<'_>,
    binary: RawBinaryRef<'_>,
    sizes: &[usize],
    options: Options,
) -> Result<i64> {
    let bytes = ordered(value, binary, sizes, options)?;
    // The sign of the greatest byte goes on upwards.
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(&bytes);
    Ok(i64::from_le_bytes(wide))
}

pub(super) fn to_double(
    value: &Value<'_>,
    binary: RawBinaryRef<'_>,
    options: Options,
) -> Result<f64> {
    let bytes = ordered(value, binary, &[4, 8], options)?;
    Ok(match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => f64::from(f32::from_le_bytes(four)),
        Err(_) => f64::from_le_bytes(<[u8; 8]>::try_from(bytes.as_slice()).unwrap_or_default()),
    })
}

/// The bytes, least first.
fn ordered(
    value: &Value<'_>,
    binary: RawBinaryRef<'_>,
    sizes: &[usize],
    options: Options,
) -> Result<Vec<u8>> {
    if !sizes.contains(&binary.bytes.len()) {
        return Err(failure(format!(
            "Failed to convert '{}' to number in $convert because of invalid length: {}",
            value_to_string(value.bson()),
            binary.bytes.len()
        )));
    }
    let mut bytes = binary.bytes.to_vec();
    if options.big_endian {
        bytes.reverse();
    }
    Ok(bytes)
}

/// To binary data of a subtype.
pub(super) fn from_value(value: &Value<'_>, subtype: u8, options: Options) -> Result<RawBson> {
    let number = |mut bytes: Vec<u8>| {
        if options.big_endian {
            bytes.reverse();
        }
        bytes
    };
    let bytes = match value.bson() {
        RawBsonRef::Int32(n) => number(n.to_le_bytes().to_vec()),
        RawBsonRef::Int64(n) => number(n.to_le_bytes().to_vec()),
        RawBsonRef::Double(n) => number(n.to_le_bytes().to_vec()),
        RawBsonRef::String(text) => {
            let format = format_of(value, options, "binData")?;
            from_text(text, format, subtype).map_err(|reason| {
                failure(format!(
                    "Failed to parse BinData '{text}' in $convert with no onError value: {reason}"
                ))
            })?
        }
        RawBsonRef::Binary(binary) if u8::from(binary.subtype) == subtype => binary.bytes.to_vec(),
        RawBsonRef::Binary(_) => {
            return Err(failure(
                "Conversions between different BinData subtypes are not supported",
            ));
        }
        _ => return Err(unsupported(value, "binData")),
    };
    Ok(RawBson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes }))
}

fn from_text(text: &str, format: Format, subtype: u8) -> Result<Vec<u8>, &'static str> {
    if (format == Format::Uuid) != (subtype == 4) {
        return Err("Only the 'uuid' format is allowed with the UUID subtype");
    }
    match format {
        Format::Auto => Err("Invalid format 'auto'"),
        Format::Base64 => from_base64(text, *b"+/", true),
        Format::Base64Url => from_base64(text, *b"-_", false),
        Format::Hex => from_hex(text).ok_or("Input is not a valid hex string."),
        Format::Utf8 => Ok(text.as_bytes().to_vec()),
        Format::Uuid => from_uuid(text).ok_or("Input is not a valid UUID string."),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes every write");
        text
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

fn uuid_text(bytes: &[u8]) -> String {
    let mut text = hex(bytes);
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    text
}

fn from_uuid(text: &str) -> Option<Vec<u8>> {
    let parts: Vec<&str> = text.split('-').collect();
    let sizes: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    if sizes != [8, 4, 4, 4, 12] {
        return None;
    }
    from_hex(&parts.concat())
}

/// The 64 digits: letters, numbers, and two that differ.
fn digit(value: u8, last: [u8; 2]) -> u8 {
    match value {
        0..26 => b'A' + value,
        26..52 => b'a' + value - 26,
        52..62 => b'0' + value - 52,
        62 => last[0],
        _ => last[1],
    }
}

fn base64(bytes: &[u8], last: [u8; 2], padded: bool) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let part = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = part(0) << 16 | part(1) << 8 | part(2);
        for at in 0..4 {
            if at <= chunk.len() {
                let value = (bits >> (18 - 6 * at)) as u8 & 0x3f;
                text.push(char::from(digit(value, last)));
            } else if padded {
                text.push('=');
            }
        }
    }
    text
}

fn from_base64(text: &str, last: [u8; 2], padded: bool) -> Result<Vec<u8>, &'static str> {
    let refuse = "Input is not a valid base64 string.";
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    let fits = text.len().is_multiple_of(4) && padding <= 2;
    if !fits && (padded || padding > 0) || body.len() % 4 == 1 {
        return Err(refuse);
    }
    let mut bytes = Vec::with_capacity(body.len() / 4 * 3 + 2);
    for chunk in body.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for at in 0..4 {
            let value = match chunk.get(at) {
                None => 0,
                Some(byte) => (0..64).find(|n| digit(*n, last) == *byte).ok_or(refuse)?,
            };
            bits = bits << 6 | u32::from(value);
        }
        let whole = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
        bytes.extend_from_slice(&whole[..chunk.len() - 1]);
    }
    Ok(bytes)
}
