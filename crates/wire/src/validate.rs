//! The one walk over the bytes of a received document.
//!
//! `bson`'s raw documents check lazily, element by element, when somebody looks. Here every
//! element is looked at once, so that nobody above meets a malformed one. Checked: lengths,
//! types, terminators, UTF-8 of keys and strings, booleans, old-style binaries, nesting depth.
//!
//! Invariants:
//! 1. Recursion is as deep as the document nests, and that is at most [`MAX_DEPTH`].
//! 2. What passes here is read by `bson` without an error, at every level (a property test).

use bson::RawDocument;
use bsonval::raw;
use errors::{Code, Error, Result};

/// The largest document a client may store (`maxBsonObjectSize` of `hello`).
pub const MAX_DOCUMENT_SIZE: usize = 16 * 1024 * 1024;

/// The largest document on the wire: a full-sized one plus what a command wraps around it.
pub const MAX_INTERNAL_DOCUMENT_SIZE: usize = MAX_DOCUMENT_SIZE + 16 * 1024;

/// How deep documents and arrays may nest, the outermost one counted (MongoDB's default).
pub const MAX_DEPTH: usize = 200;

/// The smallest code-with-scope: its length, an empty string, an empty document.
const MIN_CODE_WITH_SCOPE: usize = 4 + 5 + 5;

/// Checks that `bytes` are exactly one well-formed document.
///
/// # Errors
/// `InvalidBSON`, `Overflow` when it nests too deep.
pub fn validate(bytes: &[u8]) -> Result<&RawDocument> {
    validate_fields(bytes, |_, _, _| ())
}

/// `InvalidBSON` with a reason.
pub(crate) fn invalid(reason: &str) -> Error {
    Error::new(Code::INVALID_BSON, format!("invalid BSON: {reason}"))
}

/// `BSONObjectTooLarge`, also for lengths no document can have.
pub(crate) fn too_large(declared: i32) -> Error {
    Error::new(
        Code::BSON_OBJECT_TOO_LARGE,
        format!(
            "BSONObj size: {declared} (0x{declared:X}) is invalid. Size must be between 0 and \
             {MAX_INTERNAL_DOCUMENT_SIZE}(16MB)"
        ),
    )
}

/// The same; `seen` is told the type, the name and the value of each field of the document itself.
pub(crate) fn validate_fields<'a>(
    bytes: &'a [u8],
    seen: impl FnMut(u8, &'a [u8], &'a [u8]),
) -> Result<&'a RawDocument> {
    check_fields(bytes, 1, seen)?;
    RawDocument::from_bytes(bytes).map_err(|error| invalid(&error.to_string()))
}

fn check_document(bytes: &[u8], depth: usize) -> Result<()> {
    check_fields(bytes, depth, |_, _, _| ())
}

#[inline]
fn check_fields<'a>(
    bytes: &'a [u8],
    depth: usize,
    mut seen: impl FnMut(u8, &'a [u8], &'a [u8]),
) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::new(
            Code::OVERFLOW,
            format!("BSONObj exceeds maximum nested object depth: {MAX_DEPTH}"),
        ));
    }
    if declared_length(bytes) != Some(bytes.len()) {
        return Err(invalid("a document's length is not the length of its bytes"));
    }
    let Some((0, elements)) = bytes[4..].split_last() else {
        return Err(invalid("a document is not terminated"));
    };
    let mut rest = elements;
    while let Some((&kind, tail)) = rest.split_first() {
        if kind == 0 {
            return Err(invalid("a document ends before its length says"));
        }
        let (key, value) = split_cstr(tail)?;
        let size = value_size(kind, value, depth).map_err(|error| in_field(error, key))?;
        let Some((value, behind)) = value.split_at_checked(size) else {
            return Err(in_field(overrun(), key));
        };
        seen(kind, key, value);
        rest = behind;
    }
    Ok(())
}

/// Checks the value at the start of `value` and returns its size; the size may still be larger
/// than `value` for the fixed-width kinds, which the caller checks once for all.
fn value_size(kind: u8, value: &[u8], depth: usize) -> Result<usize> {
    Ok(match kind {
        // double, date, timestamp, int64
        0x01 | 0x09 | 0x11 | 0x12 => 8,
        // string, code, symbol
        0x02 | 0x0D | 0x0E => check_string(value)?,
        // document, array
        0x03 | 0x04 => {
            let document = prefixed(value)?;
            check_document(document, depth + 1)?;
            document.len()
        }
        0x05 => check_binary(value)?,
        // undefined, null, min key, max key
        0x06 | 0x0A | 0xFF | 0x7F => 0,
        0x07 => 12,
        0x08 => match value.first() {
            Some(0 | 1) => 1,
            Some(_) => return Err(invalid("a boolean is neither 0 nor 1")),
            None => return Err(overrun()),
        },
        0x0B => {
            let (pattern, rest) = split_cstr(value)?;
            let (options, _) = split_cstr(rest)?;
            pattern.len() + options.len() + 2
        }
        // DBPointer: a string and an ObjectId
        0x0C => check_string(value)? + 12,
        0x0F => check_code_with_scope(value, depth)?,
        0x10 => 4,
        0x13 => 16,
        _ => return Err(invalid(&format!("unrecognized BSON type {kind}"))),
    })
}

/// A string: its length with the terminator, UTF-8, the terminator. Returns the whole size.
fn check_string(value: &[u8]) -> Result<usize> {
    let length = declared_length(value)
        .filter(|n| *n >= 1)
        .ok_or_else(|| invalid("a string's length is not positive"))?;
    let bytes = value[4..].get(..length).ok_or_else(overrun)?;
    let Some((0, text)) = bytes.split_last() else {
        return Err(invalid("a string is not terminated"));
    };
    check_utf8(text)?;
    Ok(4 + length)
}

fn check_binary(value: &[u8]) -> Result<usize> {
    let length =
        declared_length(value).ok_or_else(|| invalid("a binary's length is negative or cut"))?;
    let (subtype, rest) = value[4..].split_first().ok_or_else(overrun)?;
    let data = rest.get(..length).ok_or_else(overrun)?;
    // Subtype 2 repeats its length inside.
    if *subtype == 2 && declared_length(data).and_then(|n| n.checked_add(4)) != Some(length) {
        return Err(invalid("an old binary's inner length is wrong"));
    }
    Ok(5 + length)
}

fn check_code_with_scope(value: &[u8], depth: usize) -> Result<usize> {
    let whole = declared_length(value)
        .filter(|n| *n >= MIN_CODE_WITH_SCOPE)
        .and_then(|n| value.get(..n))
        .ok_or_else(|| invalid("a code with scope has a wrong length"))?;
    let code = check_string(&whole[4..])?;
    let scope = prefixed(&whole[4 + code..])?;
    check_document(scope, depth + 1)?;
    if 4 + code + scope.len() != whole.len() {
        return Err(invalid("a code with scope has a wrong length"));
    }
    Ok(whole.len())
}

/// The bytes of the document at the start of `value`, as many as its own prefix says.
fn prefixed(value: &[u8]) -> Result<&[u8]> {
    declared_length(value).filter(|n| *n >= 5).and_then(|n| value.get(..n)).ok_or_else(overrun)
}

fn declared_length(bytes: &[u8]) -> Option<usize> {
    usize::try_from(i32::from_le_bytes(*bytes.first_chunk::<4>()?)).ok()
}

/// Splits a zero-terminated string off, without its terminator.
fn split_cstr(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let (end, is_ascii) =
        raw::name_end(bytes).ok_or_else(|| invalid("a key or pattern is not terminated"))?;
    if !is_ascii {
        check_utf8(&bytes[..end])?;
    }
    Ok((&bytes[..end], &bytes[end + 1..]))
}

fn check_utf8(text: &[u8]) -> Result<()> {
    match std::str::from_utf8(text) {
        Ok(_) => Ok(()),
        Err(_) => Err(invalid("a string is not valid UTF-8")),
    }
}

fn overrun() -> Error {
    invalid("a value reaches beyond its document")
}

/// Names the innermost field at fault; the outer ones would only make the message long.
fn in_field(error: Error, key: &[u8]) -> Error {
    if error.code() != Code::INVALID_BSON || error.message().contains(" in element ") {
        return error;
    }
    let key = String::from_utf8_lossy(&key[..key.len().min(128)]);
    Error::new(
        Code::INVALID_BSON,
        format!("{} in element with field name '{key}'", error.message()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, doc, rawdoc};

    fn code_of(bytes: &[u8]) -> Code {
        validate(bytes).unwrap_err().code()
    }

    fn nested(levels: usize) -> Vec<u8> {
        let mut document = rawdoc! {};
        for _ in 1..levels {
            document = rawdoc! { "a": document };
        }
        document.into_bytes()
    }

    /// One document with every type there is.
    pub(super) fn every_type() -> Vec<u8> {
        let document = doc! {
            "double": 1.5, "string": "grün", "doc": { "x": 1 }, "array": [1, "2", [3]],
            "bin": Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] }),
            "old": Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::BinaryOld, bytes: vec![3] }),
            "undefined": Bson::Undefined, "oid": bson::oid::ObjectId::new(), "bool": true,
            "date": bson::DateTime::from_millis(-1), "null": Bson::Null,
            "regex": Bson::RegularExpression(bson::Regex { pattern: bson::raw::cstr!("^a").into(), options: bson::raw::cstr!("i").into() }),
            "code": Bson::JavaScriptCode("f()".into()),
            "scope": Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code: "g()".into(), scope: doc! { "y": 2 } }),
            "symbol": Bson::Symbol("s".into()), "int": 7, "ts": Bson::Timestamp(bson::Timestamp { time: 1, increment: 2 }),
            "long": 8_i64, "decimal": "1.25".parse::<bson::Decimal128>().unwrap(), "min": Bson::MinKey, "max": Bson::MaxKey,
        };
        document.to_vec().unwrap()
    }

    #[test]
    fn every_type_passes() {
        validate(&every_type()).unwrap();
        validate(rawdoc! {}.as_bytes()).unwrap();
    }

    #[test]
    fn every_cut_of_a_document_is_refused() {
        let whole = every_type();
        for end in 0..whole.len() {
            assert_eq!(code_of(&whole[..end]), Code::INVALID_BSON, "cut at {end}");
            let mut patched = whole[..end].to_vec();
            if end >= 5 {
                patched[..4].copy_from_slice(&(end as u32).to_le_bytes());
                patched[end - 1] = 0;
                // A cut exactly between two elements is a document of its own.
                if let Ok(document) = validate(&patched) {
                    assert!(document.iter().all(|element| element.is_ok()));
                }
            }
        }
    }

    #[test]
    fn nesting_up_to_the_limit_passes_and_one_more_overflows() {
        validate(&nested(MAX_DEPTH)).unwrap();
        assert_eq!(code_of(&nested(MAX_DEPTH + 1)), Code::OVERFLOW);
        assert_eq!(code_of(&nested(20_000)), Code::OVERFLOW);
    }

    #[test]
    fn damaged_values_name_the_field() {
        let check = |find: &[u8], replace: &[u8]| {
            let mut bytes = every_type();
            let at = bytes.windows(find.len()).position(|w| w == find).unwrap();
            bytes[at..at + replace.len()].copy_from_slice(replace);
            validate(&bytes).unwrap_err().message().to_owned()
        };
        assert!(check(b"bool\0\x01", b"bool\0\x02").contains("'bool'"));
        assert!(check("grün".as_bytes(), b"gr\xFF\xFFn").contains("UTF-8"));
        assert!(check(b"string\0\x06\0\0\0", b"string\0\0\0\0\0").contains("'string'"));
        assert!(check(b"old\0\x05\0\0\0\x02\x01", b"old\0\x05\0\0\0\x02\x02").contains("'old'"));
        assert!(check(b"\x10int", b"\x20int").contains("type 32"));
    }

    #[test]
    fn lengths_no_document_can_have_are_refused() {
        for length in [i32::MIN, -1, 0, 4, 6, i32::MAX] {
            let mut bytes = vec![0; 5];
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            assert_eq!(code_of(&bytes), Code::INVALID_BSON);
        }
    }
}
