//! The shape of a query: what is asked, without the values it is asked with; and its hash, by which
//! `explain` and an operator tell that two queries are of one kind.
//!
//! Always true: two commands that differ in nothing but values of the same types have one shape;
//! another field, operator, order, projection or collation is another shape. The hash is of this
//! server's shapes: it is not the one that MongoDB has for the same query.

use bson::raw::{RawBsonRef, RawDocument};
use dispatch::fields::type_name;
use dispatch::writer::Writer;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// The fields of a command that are part of its shape, for the commands that have one.
fn shaped_fields(command: &str) -> Option<&'static [&'static str]> {
    Some(match command {
        "find" => &[
            "filter",
            "projection",
            "sort",
            "hint",
            "collation",
            "let",
            "min",
            "max",
            "skip",
            "limit",
            "singleBatch",
            "returnKey",
            "showRecordId",
            "tailable",
            "awaitData",
        ],
        "distinct" => &["key", "query", "collation", "hint"],
        "aggregate" => &["pipeline", "collation", "let", "hint", "explain", "allowDiskUse"],
        _ => return None,
    })
}

/// The hash of a command's shape, in hexadecimal; none for commands that are no queries.
pub(crate) fn hash(database: &str, command: &str, body: &RawDocument) -> Option<String> {
    let fields = shaped_fields(command)?;
    let mut shape = Writer::new();
    shape.str("db", database);
    shape.str("command", command);
    for (at, element) in body.iter().enumerate() {
        let (name, value) = element.ok()?;
        let name = name.as_str();
        match (at, name) {
            (0, _) => shape.value("collection", value),
            // What an order, a projection, a key and a collation say is no value.
            (_, "sort" | "projection" | "hint" | "collation" | "key") => shape.value(name, value),
            (_, name) if fields.contains(&name) => put(&mut shape, name, value),
            _ => {}
        }
    }
    let digest = Sha256::digest(shape.finish().as_bytes());
    let mut hash = String::with_capacity(64);
    for byte in digest {
        write!(hash, "{byte:02X}").ok()?;
    }
    Some(hash)
}

/// Stages whose argument says what to do rather than with what.
const VERBATIM: [&str; 3] = ["$sort", "$unset", "$count"];

/// Writes a value as its type, and what holds values as what it holds.
fn put(shape: &mut Writer, name: &str, value: RawBsonRef<'_>) {
    match value {
        _ if VERBATIM.contains(&name) => shape.value(name, value),
        RawBsonRef::Document(document) => {
            let open = shape.begin_document(name);
            for (name, value) in document.iter().flatten() {
                put(shape, name.as_str(), value);
            }
            shape.end(open);
        }
        RawBsonRef::Array(array) => {
            let documents = array.into_iter().flatten().any(|one| {
                matches!(one, RawBsonRef::Document(_) | RawBsonRef::Array(_))
                    || matches!(one, RawBsonRef::String(text) if text.starts_with('$'))
            });
            // A list of values is of one shape however long it is.
            if !documents {
                let mut types: Vec<_> = array.into_iter().flatten().map(kind).collect();
                types.sort_unstable();
                types.dedup();
                return shape.str(name, &format!("?array<{}>", types.join(" ")));
            }
            let open = shape.begin_document(name);
            for (at, one) in array.into_iter().flatten().enumerate() {
                put(shape, &at.to_string(), one);
            }
            shape.end(open);
        }
        // A path or a variable is part of what is asked.
        RawBsonRef::String(text) if text.starts_with('$') => shape.str(name, text),
        value => shape.str(name, &format!("?{}", kind(value))),
    }
}

/// The type of a value; all numbers are one.
fn kind(value: RawBsonRef<'_>) -> &'static str {
    match type_name(value) {
        "int" | "long" | "double" | "decimal" => "number",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, RawDocumentBuf, doc};

    fn of(command: &str, body: &Document) -> Option<String> {
        hash("db", command, &RawDocumentBuf::try_from(body).expect("a document"))
    }

    #[test]
    fn values_are_no_part_of_a_shape_and_all_else_is() {
        let find = |body: Document| {
            let mut command = doc! { "find": "c" };
            command.extend(body);
            of("find", &command).expect("a find has a shape")
        };
        let first = find(doc! { "filter": { "a": 1, "b": { "$in": [1, 2] } }, "limit": 5 });
        assert_eq!(first.len(), 64);
        for same in [
            doc! { "filter": { "a": 2.5, "b": { "$in": [7] } }, "limit": 100_i64 },
            doc! { "filter": { "a": 1, "b": { "$in": [1, 2] } }, "limit": 5, "batchSize": 3,
            "comment": "x", "$db": "db" },
        ] {
            assert_eq!(find(same.clone()), first, "{same}");
        }
        for other in [
            doc! { "filter": { "a": "x", "b": { "$in": [1, 2] } }, "limit": 5 },
            doc! { "filter": { "c": 1, "b": { "$in": [1, 2] } }, "limit": 5 },
            doc! { "filter": { "a": 1, "b": { "$nin": [1, 2] } }, "limit": 5 },
            doc! { "filter": { "a": 1, "b": { "$in": [1, 2] } } },
            doc! { "filter": { "a": 1, "b": { "$in": [1, 2] } }, "limit": 5, "sort": { "a": 1 } },
        ] {
            assert_ne!(find(other.clone()), first, "{other}");
        }
        let up = find(doc! { "sort": { "a": 1 } });
        assert_ne!(up, find(doc! { "sort": { "a": -1 } }));
        let stages =
            |stage: Document| of("aggregate", &doc! { "aggregate": "c", "pipeline": [stage] });
        assert_eq!(stages(doc! { "$match": { "a": 1 } }), stages(doc! { "$match": { "a": 9 } }));
        assert_ne!(stages(doc! { "$sort": { "a": 1 } }), stages(doc! { "$sort": { "a": -1 } }));
        assert_ne!(
            stages(doc! { "$group": { "_id": "$a" } }),
            stages(doc! { "$group": { "_id": "$b" } })
        );
        assert_eq!(of("update", &doc! { "update": "c" }), None);
    }
}
