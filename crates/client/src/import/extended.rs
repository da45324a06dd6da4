//! MongoDB's Extended JSON, canonical and relaxed, and what its tools wrote before version 2 of it.
//!
//! Always true: fields keep their order, a whole number is the smallest of int, long and double that holds it, and what
//! begins as a type (`$oid`) and is none is an error, never a document of that look. A document whose first field begins
//! with `$` and names no type stays one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{
    Binary, Bson, DateTime, DbPointer, Document, JavaScriptCodeWithScope, Regex, Timestamp, Uuid,
};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;

/// Values that a document may have: more than the longest one can hold, and few enough for memory.
const MAX_VALUES: u32 = 4 << 20;

/// Reads a value of Extended JSON; with how many values there were.
#[derive(Clone, Copy)]
pub(super) struct Extended<'a>(pub(super) &'a Cell<u32>);

impl<'de> DeserializeSeed<'de> for Extended<'_> {
    type Value = Bson;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Bson, D::Error> {
        self.0.set(self.0.get() + 1);
        if self.0.get() > MAX_VALUES {
            return Err(D::Error::custom("the document has too many values"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Extended<'_> {
    type Value = Bson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Bson, E> {
        Ok(Bson::Boolean(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Bson, E> {
        Ok(whole(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Bson, E> {
        Ok(i64::try_from(value).map_or(Bson::Double(value as f64), whole))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Bson, E> {
        Ok(Bson::Double(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Bson, E> {
        Ok(Bson::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Bson, E> {
        Ok(Bson::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Bson, E> {
        Ok(Bson::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Bson, A::Error> {
        let mut array = Vec::new();
        while let Some(value) = values.next_element_seed(self)? {
            array.push(value);
        }
        Ok(Bson::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Bson, A::Error> {
        let mut document = Document::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(self)?;
            if name.contains('\0') {
                return Err(A::Error::custom("the name of a field holds a zero byte"));
            }
            if document.insert(name, value).is_some() {
                return Err(A::Error::custom("a field stands twice in a document"));
            }
        }
        typed(document).map_err(A::Error::custom)
    }
}

/// A whole number as the smallest type that holds it, as MongoDB's tools do.
pub(super) fn whole(value: i64) -> Bson {
    i32::try_from(value).map_or(Bson::Int64(value), Bson::Int32)
}

/// The value that a document stands for; itself, where it stands for none.
fn typed(document: Document) -> Result<Bson, String> {
    let Some(first) = document.keys().next().filter(|name| name.starts_with('$')) else {
        return Ok(Bson::Document(document));
    };
    let mut names: Vec<&str> = document.keys().map(String::as_str).collect();
    names.sort_unstable();
    let (name, number) = (first.clone(), names.len());
    let value = match names.as_slice() {
        ["$oid"] => {
            text(&document, "$oid").and_then(|id| ObjectId::parse_str(id).ok()).map(Bson::ObjectId)
        }
        ["$uuid"] => text(&document, "$uuid")
            .and_then(|id| Uuid::parse_str(id).ok())
            .map(|id| Bson::Binary(Binary::from_uuid(id))),
        ["$symbol"] => text(&document, "$symbol").map(|symbol| Bson::Symbol(symbol.to_owned())),
        ["$numberInt"] => parsed(&document, "$numberInt").map(Bson::Int32),
        ["$numberLong"] => long(&document, "$numberLong").map(Bson::Int64),
        ["$numberDouble"] => double(&document).map(Bson::Double),
        ["$numberDecimal"] => parsed(&document, "$numberDecimal").map(Bson::Decimal128),
        ["$binary"] | ["$binary", "$type"] => binary(&document).map(Bson::Binary),
        ["$date"] => date(document.get("$date")).map(Bson::DateTime),
        ["$timestamp"] => timestamp(&document).map(Bson::Timestamp),
        ["$regularExpression"] => document
            .get_document("$regularExpression")
            .ok()
            .and_then(|one| regex(one, "pattern", "options")),
        // A query's operator takes what `$regex` of old had for a text.
        ["$options", "$regex"] => match document.get("$regex") {
            Some(Bson::String(_)) => regex(&document, "$regex", "$options"),
            _ => return Ok(Bson::Document(document)),
        },
        ["$code"] => text(&document, "$code").map(|code| Bson::JavaScriptCode(code.to_owned())),
        ["$code", "$scope"] => with_scope(&document),
        ["$dbPointer"] => pointer(&document),
        ["$minKey"] => is_one(&document, "$minKey").then_some(Bson::MinKey),
        ["$maxKey"] => is_one(&document, "$maxKey").then_some(Bson::MaxKey),
        ["$undefined"] => {
            document.get_bool("$undefined").ok().filter(|yes| *yes).map(|_| Bson::Undefined)
        }
        _ => return Ok(Bson::Document(document)),
    };
    value.ok_or_else(|| match number {
        1 => format!("{name} has no value of its type: {}", shown(&document)),
        _ => format!("{name} and what stands beside it are no value: {}", shown(&document)),
    })
}

fn shown(document: &Document) -> String {
    document.to_string().chars().take(80).collect()
}

fn text<'a>(document: &'a Document, name: &str) -> Option<&'a str> {
    document.get_str(name).ok()
}

fn parsed<T: std::str::FromStr>(document: &Document, name: &str) -> Option<T> {
    text(document, name).and_then(|text| text.parse().ok())
}

/// A long as a text, or as a number, which tools of before wrote.
fn long(document: &Document, name: &str) -> Option<i64> {
    match document.get(name)? {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        _ => parsed(document, name),
    }
}

fn double(document: &Document) -> Option<f64> {
    match text(document, "$numberDouble")? {
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        number if number.chars().any(|letter| letter.is_ascii_digit()) => number.parse().ok(),
        _ => None,
    }
}

fn binary(document: &Document) -> Option<Binary> {
    let (bytes, subtype) = match document.get("$binary")? {
        Bson::Document(inner) => (inner.get_str("base64").ok()?, inner.get_str("subType").ok()?),
        Bson::String(bytes) => (bytes.as_str(), text(document, "$type")?),
        _ => return None,
    };
    let subtype = BinarySubtype::from(u8::from_str_radix(subtype, 16).ok()?);
    Some(Binary { subtype, bytes: STANDARD.decode(bytes).ok()? })
}

/// A date as ISO 8601's text, as a long of milliseconds, or as a number of them.
fn date(value: Option<&Bson>) -> Option<DateTime> {
    match value? {
        Bson::Int32(millis) => Some(DateTime::from_millis(i64::from(*millis))),
        Bson::Int64(millis) => Some(DateTime::from_millis(*millis)),
        Bson::String(text) => DateTime::parse_rfc3339_str(with_colon(text)).ok(),
        _ => None,
    }
}

/// An offset as `+0000`, which tools of before wrote, as `+00:00`.
fn with_colon(text: &str) -> String {
    let offset = text.len().checked_sub(5).and_then(|at| Some((at, text.get(at..)?)));
    match offset {
        Some((at, offset))
            if offset.starts_with(['+', '-'])
                && offset[1..].bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            format!("{}:{}", &text[..at + 3], &text[at + 3..])
        }
        _ => text.to_owned(),
    }
}

fn timestamp(document: &Document) -> Option<Timestamp> {
    let parts = document.get_document("$timestamp").ok()?;
    let part = |name| long(parts, name).and_then(|number| u32::try_from(number).ok());
    Some(Timestamp { time: part("t")?, increment: part("i")? })
}

fn regex(document: &Document, pattern: &str, options: &str) -> Option<Bson> {
    let mut options: Vec<char> = text(document, options)?.chars().collect();
    // As the format wants them.
    options.sort_unstable();
    let options: String = options.into_iter().collect();
    let (pattern, options) = (text(document, pattern)?.try_into().ok()?, options.try_into().ok()?);
    Some(Bson::RegularExpression(Regex { pattern, options }))
}

fn with_scope(document: &Document) -> Option<Bson> {
    let code = text(document, "$code")?.to_owned();
    let scope = document.get_document("$scope").ok()?.clone();
    Some(Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code, scope }))
}

fn pointer(document: &Document) -> Option<Bson> {
    let pointer = document.get_document("$dbPointer").ok()?;
    let (namespace, id) = (text(pointer, "$ref")?, pointer.get_object_id("$id").ok()?);
    // The library makes one from its own form only.
    let told = bson::doc! { "$dbPointer": { "$ref": namespace, "$id": { "$oid": id.to_hex() } } };
    let made: DbPointer = bson::deserialize_from_bson(Bson::Document(told)).ok()?;
    Some(Bson::DbPointer(made))
}

fn is_one(document: &Document, name: &str) -> bool {
    document.get(name) == Some(&Bson::Int32(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::bson;

    fn read(text: &str) -> Result<Bson, String> {
        let mut text = serde_json::Deserializer::from_str(text);
        Extended(&Cell::new(0)).deserialize(&mut text).map_err(|error| error.to_string())
    }

    #[test]
    fn canonical_json_comes_back_as_it_was() {
        let document = r#"{"z":{"$oid":"65f000000000000000000001"},"a":{"$numberInt":"-1"},"b":{"$numberLong":"5"},
            "c":{"$numberDouble":"1.0"},"d":{"$numberDecimal":"1.50"},"e":{"$binary":{"base64":"AAE=","subType":"80"}},
            "f":{"$date":{"$numberLong":"-5"}},"g":{"$timestamp":{"t":4000000000,"i":1}},
            "h":{"$regularExpression":{"pattern":"a","options":"i"}},"i":{"$code":"f","$scope":{"x":{"$numberInt":"1"}}},
            "j":{"$minKey":1},"k":{"$maxKey":1},"l":{"$undefined":true},"m":{"$symbol":"s"},"n":null,"o":[true,{"p":"q"}],
            "r":{"$dbPointer":{"$ref":"a.b","$id":{"$oid":"65f000000000000000000001"}}}}"#;
        let Bson::Document(read) = read(document).unwrap() else { panic!("no document") };
        let names: String = read.keys().map(String::as_str).collect();
        assert_eq!(names, "zabcdefghijklmnor");
        assert_eq!(read.get("a"), Some(&Bson::Int32(-1)));
        assert_eq!(read.get("b"), Some(&Bson::Int64(5)));
        assert_eq!(read.get("c"), Some(&Bson::Double(1.0)));
        assert_eq!(read.get("f"), Some(&Bson::DateTime(DateTime::from_millis(-5))));
        assert_eq!(
            read.get("g"),
            Some(&Bson::Timestamp(Timestamp { time: 4_000_000_000, increment: 1 }))
        );
        assert_eq!(
            read.get("i").unwrap().element_type(),
            bson::spec::ElementType::JavaScriptCodeWithScope
        );
        assert_eq!(read.get("r").unwrap().element_type(), bson::spec::ElementType::DbPointer);
        assert_eq!(read.get("o"), Some(&bson!([true, { "p": "q" }])));
    }

    #[test]
    fn relaxed_json_and_that_of_old_tools_is_read() {
        for (text, expected) in [
            ("-1", Bson::Int32(-1)),
            ("2147483648", Bson::Int64(1 << 31)),
            ("-9223372036854775808", Bson::Int64(i64::MIN)),
            ("18446744073709551615", Bson::Double(18_446_744_073_709_551_615.0)),
            ("0.30000000000000004", Bson::Double(0.1 + 0.2)),
            ("8.41e21", Bson::Double(8.41e21)),
            (
                r#"{"$date":"2026-11-28T10:00:00.5Z"}"#,
                Bson::DateTime(DateTime::from_millis(1_795_860_000_500)),
            ),
            (
                r#"{"$date":"2026-11-28T10:00:00.500+0000"}"#,
                Bson::DateTime(DateTime::from_millis(1_795_860_000_500)),
            ),
            (r#"{"$date":5}"#, Bson::DateTime(DateTime::from_millis(5))),
            (
                r#"{"$binary":"AAE=","$type":"00"}"#,
                Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 1] }),
            ),
            (r#"{"$numberLong":5}"#, Bson::Int64(5)),
            (r#"{"$ref":"a","$id":1}"#, bson!({ "$ref": "a", "$id": 1 })),
            (
                r#"{"$regex":{"a":1},"$options":"i"}"#,
                bson!({ "$regex": { "a": 1 }, "$options": "i" }),
            ),
            (
                r#"{"$regex":"a","$options":"xi"}"#,
                read(r#"{"$regularExpression":{"pattern":"a","options":"ix"}}"#).unwrap(),
            ),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_begins_as_a_type_and_is_none_is_refused() {
        for text in [
            r#"{"$oid":"65f"}"#,
            r#"{"a":{"$numberInt":"x"}}"#,
            r#"{"$numberInt":"2147483648"}"#,
            r#"{"$numberDouble":"infinity"}"#,
            r#"{"$date":"yesterday"}"#,
            r#"{"$binary":{"base64":"?","subType":"00"}}"#,
            r#"{"$timestamp":{"t":-1,"i":1}}"#,
            r#"{"a":1,"a":2}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
