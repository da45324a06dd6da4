//! Values as MongoDB's error messages and logs print them: `{ a: 1, b: [ "x" ] }`.

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use std::fmt::Write as _;

/// Nesting beyond this is printed as `...`.
const MAX_DEPTH: usize = 100;

/// A document.
pub fn document(document: &RawDocument) -> String {
    let mut out = String::new();
    put_document(&mut out, document, 0);
    out
}

/// A value.
pub fn value(value: RawBsonRef<'_>) -> String {
    let mut out = String::new();
    put_value(&mut out, value, 0);
    out
}

/// A field: `name: value`.
pub fn field(name: &str, value: RawBsonRef<'_>) -> String {
    let mut out = format!("{name}: ");
    put_value(&mut out, value, 0);
    out
}

/// A document's `_id` as messages name the document: `_id: 1`, or `no id`.
pub fn id_of(document: &RawDocument) -> String {
    match document.get("_id") {
        Ok(Some(id)) => field("_id", id),
        _ => "no id".to_owned(),
    }
}

fn put_document(out: &mut String, document: &RawDocument, depth: usize) {
    if depth > MAX_DEPTH {
        out.push_str("...");
        return;
    }
    let mut separator = "{ ";
    for element in document.iter().map_while(Result::ok) {
        out.push_str(separator);
        out.push_str(element.0.as_str());
        out.push_str(": ");
        put_value(out, element.1, depth + 1);
        separator = ", ";
    }
    out.push_str(if separator == "{ " { "{}" } else { " }" });
}

fn put_array(out: &mut String, array: &RawArray, depth: usize) {
    if depth > MAX_DEPTH {
        out.push_str("...");
        return;
    }
    let mut separator = "[ ";
    for value in array.into_iter().map_while(Result::ok) {
        out.push_str(separator);
        put_value(out, value, depth + 1);
        separator = ", ";
    }
    out.push_str(if separator == "[ " { "[]" } else { " ]" });
}

fn put_value(out: &mut String, value: RawBsonRef<'_>, depth: usize) {
    // Writing to a string cannot fail.
    let _infallible = match value {
        RawBsonRef::Double(v) => write!(out, "{}", double(v)),
        RawBsonRef::String(v) | RawBsonRef::Symbol(v) => write!(out, "\"{v}\""),
        RawBsonRef::Array(v) => {
            put_array(out, v, depth);
            Ok(())
        }
        RawBsonRef::Document(v) => {
            put_document(out, v, depth);
            Ok(())
        }
        RawBsonRef::Boolean(v) => write!(out, "{v}"),
        RawBsonRef::Null => write!(out, "null"),
        RawBsonRef::RegularExpression(v) => write!(out, "/{}/{}", v.pattern, v.options),
        RawBsonRef::JavaScriptCode(v) => write!(out, "{v}"),
        RawBsonRef::JavaScriptCodeWithScope(v) => {
            let _infallible = write!(out, "CodeWScope( {}, ", v.code);
            put_document(out, v.scope, depth + 1);
            out.push(')');
            Ok(())
        }
        RawBsonRef::Int32(v) => write!(out, "{v}"),
        RawBsonRef::Int64(v) => write!(out, "{v}"),
        RawBsonRef::Timestamp(v) => write!(out, "Timestamp({}, {})", v.time, v.increment),
        RawBsonRef::Binary(v) => {
            let hex: Vec<String> = v.bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            write!(out, "BinData({}, {})", u8::from(v.subtype), hex.concat())
        }
        RawBsonRef::ObjectId(v) => write!(out, "ObjectId('{}')", v.to_hex()),
        RawBsonRef::DateTime(v) => write!(out, "new Date({})", v.timestamp_millis()),
        RawBsonRef::Decimal128(v) => write!(out, "{v}"),
        RawBsonRef::Undefined => write!(out, "undefined"),
        RawBsonRef::MaxKey => write!(out, "MaxKey"),
        RawBsonRef::MinKey => write!(out, "MinKey"),
        RawBsonRef::DbPointer(_) => write!(out, "DBRef"),
    };
}

/// A double as C++ streams print it with 16 digits; whole numbers carry `.0`.
pub fn double(v: f64) -> String {
    if v.is_nan() {
        return "nan".to_owned();
    }
    if v.is_infinite() {
        return if v > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if v.fract() == 0.0 && v.abs() < 1e15 { format!("{v:.1}") } else { format!("{v:?}") }
}
