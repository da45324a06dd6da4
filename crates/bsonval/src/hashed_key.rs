//! The 64-bit hash of a value that hashed indexes and `$toHashedIndexKey` use, as MongoDB has it:
//! the first eight bytes of an MD5 over seed, type and value.
//!
//! Always true: numbers of any type that are the same when cut to 64-bit integers hash alike.

use crate::decimal::{Decimal, Rounding};
use crate::raw;
use bson::raw::{RawBsonRef, RawDocument};
use errors::Result;
use keystring::canonical_type;
use md5::{Digest, Md5};

/// The hash of a value.
pub fn hashed_key(value: RawBsonRef<'_>) -> Result<i64> {
    // The seed; hashed indexes never use another.
    let mut bytes = 0_i32.to_le_bytes().to_vec();
    put(&mut bytes, value, None)?;
    let digest = Md5::digest(&bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    Ok(i64::from_le_bytes(first))
}

/// Recursion is bounded by the nesting of an accepted document.
fn put(bytes: &mut Vec<u8>, value: RawBsonRef<'_>, name: Option<&str>) -> Result<()> {
    let kind = match value {
        RawBsonRef::MinKey => -1,
        RawBsonRef::Undefined => 0,
        value => i32::from(canonical_type(&value)),
    };
    bytes.extend_from_slice(&kind.to_le_bytes());
    if let Some(name) = name {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
    }
    match value {
        RawBsonRef::Document(document) => fields(bytes, document),
        RawBsonRef::Array(array) => {
            for element in raw::array_elements(array) {
                let element = element?;
                put(bytes, element.value()?, Some(element.name()))?;
            }
            bytes.extend_from_slice(&0_i32.to_le_bytes());
            Ok(())
        }
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            bytes.extend_from_slice(code.code.as_bytes());
            bytes.push(0);
            fields(bytes, code.scope)
        }
        value => {
            match whole(value) {
                Some(number) => bytes.extend_from_slice(&number.to_le_bytes()),
                None => scalar(bytes, value),
            }
            Ok(())
        }
    }
}

fn fields(bytes: &mut Vec<u8>, document: &RawDocument) -> Result<()> {
    for field in document {
        let (name, value) = field?;
        put(bytes, value, Some(name.as_str()))?;
    }
    // The end of a document counts as an element without a name.
    bytes.extend_from_slice(&0_i32.to_le_bytes());
    Ok(())
}

/// A number cut to 64 bits; NaN is 0, what does not fit the nearest that does.
fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    Some(match value {
        RawBsonRef::Int32(n) => i64::from(n),
        RawBsonRef::Int64(n) => n,
        RawBsonRef::Double(n) => n as i64,
        RawBsonRef::Decimal128(n) => {
            let n = Decimal::from_bson(n);
            if n.is_nan() {
                return Some(0);
            }
            let fits =
                if n.is_infinite() { None } else { n.round_to(0, Rounding::HalfEven).to_i64() };
            fits.unwrap_or(if n.is_negative() { i64::MIN } else { i64::MAX })
        }
        _ => return None,
    })
}

/// The value's own bytes in BSON.
fn scalar(bytes: &mut Vec<u8>, value: RawBsonRef<'_>) {
    let document = raw::document_of("", value);
    let whole = document.as_bytes();
    // Behind length, type and the empty name; before the end of the document.
    bytes.extend_from_slice(&whole[6..whole.len() - 1]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::raw::RawDocumentBuf;
    use bson::{Bson, doc};

    fn hash(value: impl Into<Bson>) -> i64 {
        let document = RawDocumentBuf::try_from(&doc! {"": value.into()}).unwrap();
        hashed_key(document.get("").unwrap().unwrap()).unwrap()
    }

    #[test]
    fn keys_are_mongodbs() {
        assert_eq!(hash(1), 5_902_408_780_260_971_510);
        assert_eq!(hash("hello"), 5_347_277_839_332_858_538);
    }

    #[test]
    fn numbers_hash_by_their_whole_part() {
        for same in [Bson::Int64(3), Bson::Double(3.0), Bson::Double(3.9)] {
            assert_eq!(hash(same), hash(3));
        }
        let decimal = Bson::Decimal128("3.0".parse().unwrap());
        assert_eq!(hash(decimal), hash(3));
        assert_ne!(hash("3"), hash(3));
        assert_eq!(hash(f64::NAN), hash(0));
    }

    #[test]
    fn names_and_order_inside_documents_count() {
        assert_ne!(hash(doc! {"a": 1, "b": 2}), hash(doc! {"b": 2, "a": 1}));
        assert_ne!(hash(doc! {"a": 1}), hash(doc! {"b": 1}));
        assert_ne!(hash(bson::bson!([1])), hash(doc! {"0": 1}));
        assert_eq!(hash(doc! {"a": 1.0}), hash(doc! {"a": 1}));
    }
}
