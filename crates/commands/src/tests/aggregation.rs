//! Pipelines from the outside.

use super::Client;
use bson::{Bson, Document, doc};

fn filled() -> Client {
    let client = Client::new();
    let documents: Vec<_> = (0..250).map(|i| doc! { "_id": i, "a": i % 10 }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client
}

fn batch(reply: &Document) -> &[Bson] {
    reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap()
}

#[test]
fn pipeline_runs_in_batches() {
    let client = filled();
    let aggregate = |cursor: Document| {
        doc! { "aggregate": "c", "pipeline": [{ "$match": { "a": { "$lt": 5 } } }], "cursor": cursor }
    };
    let first = client.ok("db", aggregate(doc! {}));
    assert_eq!(batch(&first).len(), 101);
    let id = first.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = client.ok("db", doc! { "getMore": id, "collection": "c" });
    let cursor = more.get_document("cursor").unwrap();
    assert_eq!(
        (cursor.get_array("nextBatch").unwrap().len(), cursor.get_i64("id").ok()),
        (24, Some(0))
    );
    assert!(batch(&client.ok("db", aggregate(doc! { "batchSize": 0 }))).is_empty());
}

#[test]
fn malformed_pipelines_are_refused() {
    let client = Client::new();
    client.fails(
        "db",
        doc! { "aggregate": "c", "pipeline": [] },
        9,
        "The 'cursor' option is required, except for aggregate with the explain argument",
    );
    client.fails(
        "db",
        doc! { "aggregate": "c", "pipeline": 1, "cursor": {} },
        14,
        "'pipeline' option must be specified as an array",
    );
    client.fails(
        "db",
        doc! { "aggregate": "c", "pipeline": [1], "cursor": {} },
        14,
        "Each element of the 'pipeline' array must be an object",
    );
    client.fails(
        "db",
        doc! { "aggregate": "c", "pipeline": [], "cursor": { "batchSize": -1 } },
        2,
        "BSON field 'batchSize' value must be >= 0, actual value '-1'",
    );
    client.fails(
        "db",
        doc! { "aggregate": "c", "pipeline": [], "cursor": "x" },
        14,
        "cursor field must be missing or an object",
    );
    client.fails(
        "db",
        doc! { "aggregate": 2, "pipeline": [], "cursor": {} },
        9,
        "Invalid command format: the 'aggregate' field must specify a collection name or 1",
    );
    client.fails(
        "db",
        doc! { "aggregate": "c", "pipeline": [{ "$foo": {} }], "cursor": {} },
        40324,
        "Unrecognized pipeline stage name: '$foo'",
    );
}

#[test]
fn database_pipelines_have_sources_of_their_own() {
    let client = Client::new();
    let run = |database: &str, stage: Document| {
        client.ok(
            database,
            doc! { "aggregate": 1, "pipeline": [stage, { "$limit": 5 }], "cursor": {} },
        )
    };
    let documents = run("db", doc! { "$documents": [{ "a": 1 }, { "a": 2 }] });
    assert_eq!(batch(&documents).len(), 2);
    assert_eq!(
        documents.get_document("cursor").unwrap().get_str("ns").ok(),
        Some("db.$cmd.aggregate")
    );
    let running = run("admin", doc! { "$currentOp": {} });
    assert_eq!(batch(&running).len(), 1);
    client.ok("admin", doc! { "startSession": 1 });
    assert_eq!(batch(&run("db", doc! { "$listLocalSessions": {} })).len(), 1);
}

#[test]
fn explained_pipeline_needs_no_cursor() {
    let client = filled();
    let explained = client.ok(
        "db",
        doc! { "aggregate": "c", "pipeline": [{ "$match": { "a": 1 } }], "explain": true },
    );
    assert!(explained.get_document("serverInfo").is_ok());
    client.ok("db", doc! { "explain": { "aggregate": "c", "pipeline": [], "cursor": {} } });
}

#[test]
fn merge_that_must_not_match_names_the_key_it_met() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "from", "documents": [{ "_id": 7, "a": 1 }] });
    client.ok("db", doc! { "insert": "to", "documents": [{ "_id": 7 }] });
    let merge = doc! { "$merge": { "into": "to", "whenMatched": "fail" } };
    let reply = client.run("db", doc! { "aggregate": "from", "pipeline": [merge], "cursor": {} });
    assert_eq!(reply.get_i32("code").ok(), Some(11000), "{reply}");
    assert_eq!(reply.get_document("keyPattern").ok(), Some(&doc! { "_id": 1 }));
    assert_eq!(reply.get_document("keyValue").ok(), Some(&doc! { "_id": 7 }));
}
