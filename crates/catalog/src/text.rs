//! BSON in the one-line form MongoDB uses inside messages: `{ a: 1, b: "x" }`.

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use std::fmt::Write;

/// How deep a value is written before it is cut to `...`.
const MAX_DEPTH: usize = 40;

/// A document as it stands in error messages.
pub fn document_text(document: &RawDocument) -> String {
    let mut out = String::new();
    write_document(&mut out, document, 0);
    out
}

/// A value as it stands in error messages.
pub fn value_text(value: RawBsonRef<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, value, 0);
    out
}

fn write_document(out: &mut String, document: &RawDocument, depth: usize) {
    if depth > MAX_DEPTH {
        out.push_str("{ ... }");
        return;
    }
    let mut separator = " ";
    out.push('{');
    for (key, value) in document.iter().flatten() {
        out.push_str(separator);
        out.push_str(key.as_str());
        out.push_str(": ");
        write_value(out, value, depth + 1);
        separator = ", ";
    }
    out.push_str(if separator == " " { "}" } else { " }" });
}

fn write_array(out: &mut String, array: &RawArray, depth: usize) {
    if depth > MAX_DEPTH {
        out.push_str("[ ... ]");
        return;
    }
    let mut separator = " ";
    out.push('[');
    for value in array.into_iter().flatten() {
        out.push_str(separator);
        write_value(out, value, depth + 1);
        separator = ", ";
    }
    out.push_str(if separator == " " { "]" } else { " ]" });
}

/// A double the way MongoDB prints it: a whole number keeps one decimal.
fn write_double(out: &mut String, value: f64) {
    let written = if value.is_nan() {
        out.push_str("nan.0");
        Ok(())
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "inf" } else { "-inf" });
        Ok(())
    } else if value.fract() == 0.0 && value.abs() < 1e15 {
        write!(out, "{value:.1}")
    } else {
        write!(out, "{value}")
    };
    debug_assert!(written.is_ok());
}

fn write_value(out: &mut String, value: RawBsonRef<'_>, depth: usize) {
    let written = match value {
        RawBsonRef::Double(v) => {
            write_double(out, v);
            Ok(())
        }
        RawBsonRef::String(v) | RawBsonRef::Symbol(v) => write!(out, "\"{v}\""),
        RawBsonRef::Document(v) => {
            write_document(out, v, depth);
            Ok(())
        }
        RawBsonRef::Array(v) => {
            write_array(out, v, depth);
            Ok(())
        }
        RawBsonRef::Binary(v) => write_binary(out, v.subtype, v.bytes),
        RawBsonRef::ObjectId(v) => write!(out, "ObjectId('{v}')"),
        RawBsonRef::Boolean(v) => write!(out, "{v}"),
        RawBsonRef::DateTime(v) => write!(out, "new Date({})", v.timestamp_millis()),
        RawBsonRef::Null => out.write_str("null"),
        RawBsonRef::Undefined => out.write_str("undefined"),
        RawBsonRef::RegularExpression(v) => {
            write!(out, "/{}/{}", v.pattern.as_str(), v.options.as_str())
        }
        RawBsonRef::JavaScriptCode(v) => out.write_str(v),
        RawBsonRef::JavaScriptCodeWithScope(v) => {
            let _ = write!(out, "CodeWScope( {}, ", v.code);
            write_document(out, v.scope, depth + 1);
            out.write_str(")")
        }
        RawBsonRef::Int32(v) => write!(out, "{v}"),
        RawBsonRef::Int64(v) => write!(out, "{v}"),
        RawBsonRef::Timestamp(v) => write!(out, "Timestamp({}, {})", v.time, v.increment),
        RawBsonRef::Decimal128(v) => write!(out, "{v}"),
        RawBsonRef::MinKey => out.write_str("MinKey"),
        RawBsonRef::MaxKey => out.write_str("MaxKey"),
        RawBsonRef::DbPointer(_) => out.write_str("DBRef(...)"),
    };
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
}

fn write_binary(out: &mut String, subtype: BinarySubtype, bytes: &[u8]) -> std::fmt::Result {
    if subtype == BinarySubtype::Uuid && bytes.len() == 16 {
        out.push_str("UUID(\"");
        for (i, byte) in bytes.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                out.push('-');
            }
            write!(out, "{byte:02x}")?;
        }
        return out.write_str("\")");
    }
    write!(out, "BinData({}, ", u8::from(subtype))?;
    for byte in bytes {
        write!(out, "{byte:02X}")?;
    }
    out.write_str(")")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{RawDocumentBuf, doc};

    #[test]
    fn documents_read_as_in_messages() {
        let raw = RawDocumentBuf::try_from(
            &doc! { "a": 1, "b": "x", "c": 2.0, "d": [1_i64, { "e": null }], "f": {}, "g": true },
        )
        .unwrap();
        assert_eq!(
            document_text(&raw),
            "{ a: 1, b: \"x\", c: 2.0, d: [ 1, { e: null } ], f: {}, g: true }"
        );
    }
}
