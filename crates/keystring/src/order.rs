//! The order of values: first by canonical type, then by value.
//!
//! Always true: the order is total. NaN equals NaN and is the smallest number, `-0.0` equals `0.0`,
//! and numbers of any two types compare as the exact numbers they stand for.

use crate::number::{self, Number};
use crate::{Collation, MAX_DEPTH, encode};
use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument};
use bson::{Bson, Document};
use std::cmp::Ordering;

/// The rank of a value's type in MongoDB's order. Values of different rank never compare equal;
/// a comparison operator only matches values of its operand's rank ("type bracketing").
pub fn canonical_type(value: &RawBsonRef<'_>) -> u8 {
    match value {
        RawBsonRef::MinKey => 1,
        RawBsonRef::Undefined => 2,
        RawBsonRef::Null => 5,
        RawBsonRef::Int32(_)
        | RawBsonRef::Int64(_)
        | RawBsonRef::Double(_)
        | RawBsonRef::Decimal128(_) => 10,
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => 15,
        RawBsonRef::Document(_) => 20,
        RawBsonRef::Array(_) => 25,
        RawBsonRef::Binary(_) => 30,
        RawBsonRef::ObjectId(_) => 35,
        RawBsonRef::Boolean(_) => 40,
        RawBsonRef::DateTime(_) => 45,
        RawBsonRef::Timestamp(_) => 47,
        RawBsonRef::RegularExpression(_) => 50,
        RawBsonRef::DbPointer(_) => 55,
        RawBsonRef::JavaScriptCode(_) => 60,
        RawBsonRef::JavaScriptCodeWithScope(_) => 65,
        RawBsonRef::MaxKey => 127,
    }
}

/// [`canonical_type`] over a deserialised value.
pub fn canonical_type_bson(value: &Bson) -> u8 {
    match value {
        Bson::Document(_) => 20,
        Bson::Array(_) => 25,
        Bson::JavaScriptCodeWithScope(_) => 65,
        Bson::DbPointer(_) => 55,
        scalar => scalar_ref(scalar).map_or(0, |v| canonical_type(&v)),
    }
}

/// Compares two values in MongoDB's order.
pub fn compare(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    compare_at(a, b, None, 0)
}

/// [`compare`] with strings in a language's order; `None` compares bytes.
pub fn compare_under(
    a: RawBsonRef<'_>,
    b: RawBsonRef<'_>,
    collation: Option<&Collation>,
) -> Ordering {
    compare_at(a, b, collation, 0)
}

/// Whether two values are equal in MongoDB's order (`1` equals `1.0`).
pub fn equal(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> bool {
    compare(a, b).is_eq()
}

/// Compares two documents field by field: type, then name, then value; the shorter first.
pub fn compare_documents(a: &RawDocument, b: &RawDocument) -> Ordering {
    documents(a, b, None, 0)
}

fn compare_at(
    a: RawBsonRef<'_>,
    b: RawBsonRef<'_>,
    collation: Option<&Collation>,
    depth: usize,
) -> Ordering {
    use RawBsonRef as V;
    match (a, b) {
        (V::Int32(a), V::Int32(b)) => a.cmp(&b),
        (V::String(a) | V::Symbol(a), V::String(b) | V::Symbol(b)) => match collation {
            Some(collation) => collation.compare_text(a, b),
            None => a.as_bytes().cmp(b.as_bytes()),
        },
        (V::JavaScriptCode(a), V::JavaScriptCode(b)) => a.as_bytes().cmp(b.as_bytes()),
        (V::ObjectId(a), V::ObjectId(b)) => a.bytes().cmp(&b.bytes()),
        (V::DateTime(a), V::DateTime(b)) => a.timestamp_millis().cmp(&b.timestamp_millis()),
        (V::Boolean(a), V::Boolean(b)) => a.cmp(&b),
        (V::Timestamp(a), V::Timestamp(b)) => (a.time, a.increment).cmp(&(b.time, b.increment)),
        (V::Document(a), V::Document(b)) => documents(a, b, collation, depth),
        (V::Array(a), V::Array(b)) => arrays(a, b, collation, depth),
        (V::Binary(a), V::Binary(b)) => (a.bytes.len().cmp(&b.bytes.len()))
            .then_with(|| u8::from(a.subtype).cmp(&u8::from(b.subtype)))
            .then_with(|| a.bytes.cmp(b.bytes)),
        (V::RegularExpression(a), V::RegularExpression(b)) => {
            let parts = |r: bson::raw::RawRegexRef<'_>| {
                (r.pattern.as_str().to_owned(), r.options.as_str().to_owned())
            };
            parts(a).cmp(&parts(b))
        }
        (V::DbPointer(_), V::DbPointer(_)) => encode::db_pointer_parts(a)
            .map(|(ns, id)| (ns.len(), ns, id))
            .cmp(&encode::db_pointer_parts(b).map(|(ns, id)| (ns.len(), ns, id))),
        (V::JavaScriptCodeWithScope(a), V::JavaScriptCodeWithScope(b)) => (a.code.as_bytes())
            .cmp(b.code.as_bytes())
            .then_with(|| documents(a.scope, b.scope, None, depth)),
        (a, b) => match (Number::of(a), Number::of(b)) {
            (Some(a), Some(b)) => number::compare(a, b),
            _ => canonical_type(&a).cmp(&canonical_type(&b)),
        },
    }
}

fn documents(
    a: &RawDocument,
    b: &RawDocument,
    collation: Option<&Collation>,
    depth: usize,
) -> Ordering {
    if depth >= MAX_DEPTH {
        return a.as_bytes().cmp(b.as_bytes());
    }
    let (mut a, mut b) = (a.iter(), b.iter());
    loop {
        // A malformed rest counts as the end: documents are validated before they are stored.
        let (left, right) = (a.next().and_then(Result::ok), b.next().and_then(Result::ok));
        let ((left_name, left), (right_name, right)) = match (left, right) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(left), Some(right)) => (left, right),
        };
        let order = canonical_type(&left)
            .cmp(&canonical_type(&right))
            .then_with(|| left_name.as_str().as_bytes().cmp(right_name.as_str().as_bytes()))
            .then_with(|| compare_at(left, right, collation, depth + 1));
        if order.is_ne() {
            return order;
        }
    }
}

fn arrays(a: &RawArray, b: &RawArray, collation: Option<&Collation>, depth: usize) -> Ordering {
    if depth >= MAX_DEPTH {
        return a.as_bytes().cmp(b.as_bytes());
    }
    let (mut a, mut b) = (a.into_iter(), b.into_iter());
    loop {
        let (left, right) = (a.next().and_then(Result::ok), b.next().and_then(Result::ok));
        let order = match (left, right) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(left), Some(right)) => compare_at(left, right, collation, depth + 1),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// [`compare`] over deserialised values.
pub fn compare_bson(a: &Bson, b: &Bson) -> Ordering {
    match (a, b) {
        (Bson::Document(a), Bson::Document(b)) => bson_documents(a, b),
        (Bson::Array(a), Bson::Array(b)) => {
            let unequal =
                a.iter().zip(b).map(|(a, b)| compare_bson(a, b)).find(|order| order.is_ne());
            unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => match (scalar_ref(a), scalar_ref(b)) {
            (Some(a), Some(b)) => compare(a, b),
            _ => canonical_type_bson(a).cmp(&canonical_type_bson(b)).then_with(|| {
                // Pointers and scoped code: rare enough to be rewritten as raw bytes first.
                match (RawBson::try_from(a.clone()), RawBson::try_from(b.clone())) {
                    (Ok(a), Ok(b)) => compare(a.as_raw_bson_ref(), b.as_raw_bson_ref()),
                    _ => Ordering::Equal,
                }
            }),
        },
    }
}

/// [`equal`] over deserialised values.
pub fn equal_bson(a: &Bson, b: &Bson) -> bool {
    compare_bson(a, b).is_eq()
}

fn bson_documents(a: &Document, b: &Document) -> Ordering {
    for ((left_name, left), (right_name, right)) in a.iter().zip(b) {
        let order = canonical_type_bson(left)
            .cmp(&canonical_type_bson(right))
            .then_with(|| left_name.as_bytes().cmp(right_name.as_bytes()))
            .then_with(|| compare_bson(left, right));
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// The borrowed form of a value that holds no document.
fn scalar_ref(value: &Bson) -> Option<RawBsonRef<'_>> {
    Some(match value {
        Bson::Double(v) => RawBsonRef::Double(*v),
        Bson::String(v) => RawBsonRef::String(v),
        Bson::Boolean(v) => RawBsonRef::Boolean(*v),
        Bson::Null => RawBsonRef::Null,
        Bson::RegularExpression(v) => RawBsonRef::RegularExpression(bson::raw::RawRegexRef {
            pattern: v.pattern.as_ref(),
            options: v.options.as_ref(),
        }),
        Bson::JavaScriptCode(v) => RawBsonRef::JavaScriptCode(v),
        Bson::Int32(v) => RawBsonRef::Int32(*v),
        Bson::Int64(v) => RawBsonRef::Int64(*v),
        Bson::Timestamp(v) => RawBsonRef::Timestamp(*v),
        Bson::Binary(v) => {
            RawBsonRef::Binary(bson::raw::RawBinaryRef { subtype: v.subtype, bytes: &v.bytes })
        }
        Bson::ObjectId(v) => RawBsonRef::ObjectId(*v),
        Bson::DateTime(v) => RawBsonRef::DateTime(*v),
        Bson::Symbol(v) => RawBsonRef::Symbol(v),
        Bson::Decimal128(v) => RawBsonRef::Decimal128(*v),
        Bson::Undefined => RawBsonRef::Undefined,
        Bson::MaxKey => RawBsonRef::MaxKey,
        Bson::MinKey => RawBsonRef::MinKey,
        Bson::Document(_)
        | Bson::Array(_)
        | Bson::JavaScriptCodeWithScope(_)
        | Bson::DbPointer(_) => return None,
    })
}
