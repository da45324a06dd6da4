//! Replies of commands as JSON for the page: numbers are numbers, dates milliseconds since 1970.
//!
//! Always true: a value that JSON cannot say is said as text; nothing fails.

use bson::{RawArray, RawBsonRef, RawDocument};
use serde_json::{Map, Value};

/// A document as an object; a field that cannot be read ends it.
pub(crate) fn object(document: &RawDocument) -> Value {
    let fields = document.iter().map_while(Result::ok);
    Value::Object(fields.map(|(key, value)| (key.to_string(), json(value))).collect::<Map<_, _>>())
}

fn list(array: &RawArray) -> Value {
    array.into_iter().map_while(Result::ok).map(json).collect()
}

fn json(value: RawBsonRef<'_>) -> Value {
    match value {
        RawBsonRef::Double(number) => number.into(),
        RawBsonRef::String(text) => text.into(),
        RawBsonRef::Document(inner) => object(inner),
        RawBsonRef::Array(items) => list(items),
        RawBsonRef::Boolean(value) => value.into(),
        RawBsonRef::Null | RawBsonRef::Undefined => Value::Null,
        RawBsonRef::Int32(number) => number.into(),
        RawBsonRef::Int64(number) => number.into(),
        RawBsonRef::DateTime(at) => at.timestamp_millis().into(),
        RawBsonRef::ObjectId(id) => id.to_hex().into(),
        other => match bson::Bson::try_from(other) {
            Ok(value) => value.to_string().into(),
            Err(_) => Value::Null,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn values_become_what_the_page_reads() {
        let document = rawdoc! {
            "a": 1, "b": 5_i64, "c": 0.5, "d": bson::DateTime::from_millis(7), "e": [true, null],
            "f": { "g": "h" }, "n": f64::NAN,
        };
        assert_eq!(
            object(&document),
            serde_json::json!({
                "a": 1, "b": 5, "c": 0.5, "d": 7, "e": [true, null], "f": { "g": "h" }, "n": null,
            })
        );
    }
}
