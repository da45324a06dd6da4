//! BSON as relaxed extended JSON, for the details of a log line.

use bson::Bson;
use bson::spec::BinarySubtype;
use serde_json::{Map, Number, Value, json};

/// Documents deeper than this are cut: a log line is read by people.
const MAX_DEPTH: usize = 20;

/// A document's fields.
pub(crate) fn fields(document: &bson::Document) -> Map<String, Value> {
    object(document, 0)
}

fn object(document: &bson::Document, depth: usize) -> Map<String, Value> {
    if depth >= MAX_DEPTH {
        return Map::new();
    }
    document.iter().map(|(key, value)| (key.clone(), value_of(value, depth))).collect()
}

fn value_of(value: &Bson, depth: usize) -> Value {
    match value {
        Bson::Double(number) => Number::from_f64(*number)
            .map_or_else(|| json!({ "$numberDouble": number.to_string() }), Value::Number),
        Bson::String(text) | Bson::Symbol(text) => json!(text),
        Bson::Document(document) => Value::Object(object(document, depth + 1)),
        Bson::Array(_) if depth >= MAX_DEPTH => json!([]),
        Bson::Array(items) => items.iter().map(|item| value_of(item, depth + 1)).collect(),
        Bson::Boolean(value) => json!(value),
        Bson::Null => Value::Null,
        Bson::Int32(number) => json!(number),
        Bson::Int64(number) => json!(number),
        Bson::ObjectId(id) => json!({ "$oid": id.to_hex() }),
        Bson::DateTime(date) => match date.try_to_rfc3339_string() {
            Ok(text) => json!({ "$date": text }),
            Err(_) => json!({ "$date": { "$numberLong": date.timestamp_millis().to_string() } }),
        },
        Bson::Timestamp(stamp) => {
            json!({ "$timestamp": { "t": stamp.time, "i": stamp.increment } })
        }
        Bson::Decimal128(number) => json!({ "$numberDecimal": number.to_string() }),
        Bson::RegularExpression(regex) => json!({ "$regularExpression": {
            "pattern": regex.pattern.as_str(), "options": regex.options.as_str(),
        } }),
        Bson::Binary(binary) => binary_value(binary),
        Bson::JavaScriptCode(code) => json!({ "$code": code }),
        Bson::JavaScriptCodeWithScope(code) => {
            json!({ "$code": code.code, "$scope": object(&code.scope, depth + 1) })
        }
        Bson::Undefined => json!({ "$undefined": true }),
        Bson::MinKey => json!({ "$minKey": 1 }),
        Bson::MaxKey => json!({ "$maxKey": 1 }),
        Bson::DbPointer(_) => json!("DBPointer"),
    }
}

fn binary_value(binary: &bson::Binary) -> Value {
    let shown = binary.bytes.iter().take(64);
    let hex = shown.fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    if binary.subtype == BinarySubtype::Uuid && binary.bytes.len() == 16 {
        let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
        return json!({ "$uuid": uuid });
    }
    let more = if binary.bytes.len() > 64 { "..." } else { "" };
    json!({ "$binary": { "hex": format!("{hex}{more}"), "bytes": binary.bytes.len() } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    #[test]
    fn values_are_written_as_extended_json() {
        let id = bson::oid::ObjectId::from_bytes([1; 12]);
        let document = doc! {
            "a": 1, "b": [2_i64, 1.5, f64::NAN], "id": id, "d": bson::DateTime::from_millis(0),
            "u": bson::Uuid::from_bytes([0xAB; 16]), "n": Bson::Null,
        };
        assert_eq!(
            Value::Object(fields(&document)),
            json!({
                "a": 1, "b": [2, 1.5, { "$numberDouble": "NaN" }],
                "id": { "$oid": "010101010101010101010101" },
                "d": { "$date": "1970-01-01T00:00:00Z" },
                "u": { "$uuid": "abababab-abab-abab-abab-abababababab" }, "n": null,
            })
        );
    }

    #[test]
    fn deep_documents_are_cut() {
        let mut document = doc! {};
        for _ in 0..100 {
            document = doc! { "a": document };
        }
        assert!(Value::Object(fields(&document)).to_string().len() < 200);
    }
}
