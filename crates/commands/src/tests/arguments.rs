//! What commands say to arguments that are not of the form they take: tables of a command's fields and
//! the code of the refusal, after MongoDB 8.2.

use super::Client;
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, Timestamp, Uuid, doc};
use dispatch::field_types::{FIELD_TYPES, Takes};

mod collections;
mod pipelines;
mod scores;

/// What a command answers: 0 where it succeeds, also for its first write error.
fn code(client: &Client, database: &str, command: Document) -> i32 {
    let reply = client.run(database, command);
    let errors = reply.get_array("writeErrors").ok();
    let first = errors.and_then(|errors| errors.first()?.as_document()?.get_i32("code").ok());
    first.or(reply.get_i32("code").ok()).unwrap_or(0)
}

/// Runs each command on a server of its own, after `setup`.
fn check(setup: &[Document], cases: Vec<(Document, i32)>) {
    let mut wrong = Vec::new();
    for (command, expected) in cases {
        let client = Client::new();
        for command in setup {
            client.ok("db", command.clone());
        }
        let shown = command.to_string();
        let database = if command.contains_key("renameCollection") { "admin" } else { "db" };
        let got = code(&client, database, command);
        if got != expected {
            let shown: String = shown.chars().take(300).collect();
            wrong.push(format!("{shown}: expected {expected}, got {got}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

/// A value of each type but null.
fn values() -> Vec<(&'static str, Bson)> {
    vec![
        ("double", Bson::Double(3.5)),
        ("string", Bson::String("x".into())),
        ("object", Bson::Document(doc! { "x": 1 })),
        ("array", Bson::Array(vec![Bson::Int32(1)])),
        ("binData", Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![1] })),
        ("objectId", Bson::ObjectId(ObjectId::new())),
        ("bool", Bson::Boolean(true)),
        ("date", Bson::DateTime(DateTime::from_millis(0))),
        (
            "regex",
            Bson::RegularExpression(bson::Regex {
                pattern: "x".try_into().unwrap(),
                options: "".try_into().unwrap(),
            }),
        ),
        ("javascript", Bson::JavaScriptCode("f()".into())),
        ("int", Bson::Int32(1)),
        ("timestamp", Bson::Timestamp(Timestamp { time: 1, increment: 1 })),
        ("long", Bson::Int64(1)),
        ("decimal", decimal("1")),
        ("minKey", Bson::MinKey),
        ("maxKey", Bson::MaxKey),
    ]
}

/// The types that a kind of field takes.
fn taken(takes: Takes) -> Option<&'static [&'static str]> {
    Some(match takes {
        Takes::AnyOrNull | Takes::Any => return None,
        Takes::BoolOrNumber => &["bool", "int", "long", "double", "decimal"],
        Takes::Bool => &["bool"],
        Takes::Integer => &["int", "long", "double", "decimal"],
        Takes::Object => &["object"],
        Takes::Objects => &["array"],
        Takes::Text => &["string"],
        Takes::Uuid => &[],
        // Spelled in the error: the test looks there.
        Takes::Variant("bool, binData") => &["bool", "binData"],
        Takes::Variant(_) => &["string", "object", "array"],
    })
}

fn first_value(command: &str) -> Bson {
    match command {
        "dropDatabase" | "listCollections" | "listDatabases" => Bson::Int32(1),
        "getMore" => Bson::Int64(1),
        "renameCollection" => Bson::String("db.c".into()),
        "explain" => Bson::Document(doc! { "find": "c" }),
        _ => Bson::String("c".into()),
    }
}

fn database(command: &str) -> &'static str {
    if matches!(command, "renameCollection" | "listDatabases") { "admin" } else { "db" }
}

#[test]
fn every_field_refuses_values_of_types_that_it_does_not_take() {
    let client = Client::new();
    for grammar in FIELD_TYPES {
        for (field, takes) in grammar.fields {
            let Some(types) = taken(*takes) else { continue };
            for (kind, value) in values().into_iter().filter(|(kind, _)| !types.contains(kind)) {
                let mut command = Document::new();
                command.insert(grammar.command, first_value(grammar.command));
                command.insert(*field, value);
                let reply = client.run(database(grammar.command), command.clone());
                assert_eq!(reply.get_i32("code").ok(), Some(14), "{command} gave {reply}");
                let text = reply.get_str("errmsg").unwrap();
                let place = format!("BSON field '{}.{field}' is the wrong ", grammar.command);
                assert!(
                    text.starts_with(&place) && text.contains(kind) || kind == "binData",
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn every_command_with_typed_fields_refuses_a_field_that_it_does_not_know() {
    let client = Client::new();
    for grammar in FIELD_TYPES {
        let mut command = Document::new();
        command.insert(grammar.command, first_value(grammar.command));
        command.insert("notAField", 1);
        let reply = client.run(database(grammar.command), command.clone());
        let text = format!("BSON field '{}.notAField' is an unknown field.", grammar.command);
        assert_eq!(reply.get_i32("code").ok(), Some(40415), "{command} gave {reply}");
        assert_eq!(reply.get_str("errmsg").ok(), Some(&text[..]));
    }
}

#[test]
fn a_collection_of_another_uuid_is_refused_by_every_command_that_can_be_told_it() {
    let client = Client::new();
    for name in ["c", "other"] {
        client.ok("db", doc! { "insert": name, "documents": [{ "a": 1 }] });
    }
    let list = client.ok("db", doc! { "listCollections": 1, "filter": { "name": "other" } });
    let batch = list.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let info = batch[0].as_document().unwrap().get_document("info").unwrap();
    let other = info.get("uuid").unwrap().clone();
    for (uuid, actual) in
        [(other, Bson::String("other".into())), (Bson::from(Uuid::from_bytes([7; 16])), Bson::Null)]
    {
        let expected = doc! {
            "db": "db", "collectionUUID": uuid.clone(), "expectedCollection": "c",
            "actualCollection": actual,
        };
        for grammar in FIELD_TYPES {
            if !grammar.fields.iter().any(|(field, _)| *field == "collectionUUID") {
                continue;
            }
            let mut command = Document::new();
            command.insert(grammar.command, first_value(grammar.command));
            command.extend(match grammar.command {
                "aggregate" => doc! { "pipeline": [], "cursor": {} },
                "collMod" => doc! { "validator": {} },
                "createIndexes" => doc! { "indexes": [{ "key": { "a": 1 }, "name": "a" }] },
                "delete" => doc! { "deletes": [{ "q": {}, "limit": 0 }] },
                "distinct" => doc! { "key": "a" },
                "dropIndexes" => doc! { "index": "*" },
                "insert" => doc! { "documents": [{}] },
                "renameCollection" => doc! { "to": "db.d" },
                "update" => doc! { "updates": [{ "q": {}, "u": { "$set": { "b": 1 } } }] },
                _ => doc! {},
            });
            command.insert("collectionUUID", uuid.clone());
            let reply = client.run(database(grammar.command), command.clone());
            let error = match reply.get_array("writeErrors") {
                Ok(errors) => errors[0].as_document().unwrap().clone(),
                Err(_) => reply.clone(),
            };
            assert_eq!(error.get_i32("code").ok(), Some(361), "{command} gave {reply}");
            for (name, value) in &expected {
                assert_eq!(error.get(name), Some(value), "{name} of {command}: {reply}");
            }
        }
        let bulk = doc! {
            "bulkWrite": 1, "ops": [{ "insert": 0, "document": {} }],
            "nsInfo": [{ "ns": "db.c", "collectionUUID": uuid.clone() }],
        };
        let reply = client.ok("admin", bulk);
        let item = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        assert_eq!(item[0].as_document().unwrap().get_i32("code").ok(), Some(361), "{reply}");
    }
    assert_eq!(client.ok("db", doc! { "count": "c" }).get_i32("n").ok(), Some(1));
}

#[test]
fn the_right_uuid_is_accepted_and_null_is_none() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "c", "documents": [{ "a": 1 }] });
    let list = client.ok("db", doc! { "listCollections": 1 });
    let batch = list.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let info = batch[0].as_document().unwrap().get_document("info").unwrap();
    let uuid = info.get("uuid").unwrap().clone();
    for uuid in [uuid, Bson::Null] {
        client.ok("db", doc! { "find": "c", "collectionUUID": uuid.clone() });
        client.ok("db", doc! { "explain": { "find": "c", "collectionUUID": uuid.clone() } });
        client.ok("db", doc! { "insert": "c", "documents": [{}], "collectionUUID": uuid });
    }
    let wrong = Bson::from(Uuid::from_bytes([1; 16]));
    let explain = doc! { "explain": { "find": "c", "collectionUUID": wrong.clone() } };
    assert_eq!(code(&client, "db", explain), 361);
    let short = Binary { subtype: BinarySubtype::Uuid, bytes: vec![0; 8] };
    assert_eq!(code(&client, "db", doc! { "drop": "c", "collectionUUID": short }), 207);
    let database = doc! { "aggregate": 1, "pipeline": [{ "$documents": [] }], "cursor": {},
    "collectionUUID": wrong };
    assert_eq!(code(&client, "db", database), 4_928_901);
}

#[test]
fn bounds_of_numbers_are_bad_values() {
    check(
        &[],
        vec![
            (doc! { "find": "c", "skip": -1 }, 2),
            (doc! { "find": "c", "limit": -1 }, 2),
            (doc! { "find": "c", "batchSize": -1 }, 2),
            (doc! { "find": "c", "limit": 2.9 }, 0),
            (doc! { "count": "c", "skip": -1_i64 }, 2),
            (doc! { "listCollections": 1, "cursor": { "batchSize": -1 } }, 2),
            (doc! { "aggregate": "c", "pipeline": [], "cursor": { "batchSize": -1 } }, 2),
            (doc! { "ping": 1, "maxTimeMS": -1 }, 2),
            (doc! { "ping": 1, "maxTimeMS": 2.5 }, 9),
            (doc! { "ping": 1, "maxTimeMS": decimal("2.5") }, 9),
            (doc! { "ping": 1, "maxTimeMS": f64::NAN }, 9),
            (doc! { "ping": 1, "maxTimeMS": f64::NEG_INFINITY }, 9),
            (doc! { "ping": 1, "maxTimeMS": decimal("Infinity") }, 9),
            (doc! { "ping": 1, "maxTimeMS": 2_147_483_648_i64 }, 2),
            (doc! { "ping": 1, "maxTimeMS": decimal("1000") }, 0),
            (doc! { "ping": 1, "maxTimeMS": -0.0 }, 0),
            (doc! { "ping": 1, "maxTimeMS": true }, 14),
        ],
    );
}
