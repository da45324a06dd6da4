//! Reading and writing documents from the outside.

use super::Client;
use bson::{Bson, Document, doc};

/// A collection `db.c` of `count` documents `{_id: i, a: i % 10}`.
fn filled(count: i32) -> Client {
    let client = Client::new();
    let documents: Vec<_> = (0..count).map(|i| doc! { "_id": i, "a": i % 10 }).collect();
    for part in documents.chunks(1000) {
        client.ok("db", doc! { "insert": "c", "documents": part });
    }
    client
}

fn cursor(reply: &Document) -> &Document {
    reply.get_document("cursor").unwrap()
}

fn id(reply: &Document) -> i64 {
    cursor(reply).get_i64("id").unwrap()
}

fn batch(reply: &Document) -> &[Bson] {
    let cursor = cursor(reply);
    cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).unwrap()
}

#[test]
fn duplicate_key_is_a_write_error() {
    let client = filled(1);
    let insert = |ordered: bool| {
        doc! {
            "insert": "c", "ordered": ordered,
            "documents": [{ "_id": 0 }, { "_id": if ordered { 100 } else { 200 } }],
        }
    };
    let error = doc! {
        "index": 0, "code": 11000, "keyPattern": { "_id": 1 }, "keyValue": { "_id": 0 },
        "errmsg": "E11000 duplicate key error collection: db.c index: _id_ dup key: { _id: 0 }",
    };
    assert_eq!(
        client.ok("db", insert(true)),
        doc! { "n": 0, "writeErrors": [error.clone()], "ok": 1.0 }
    );
    assert_eq!(client.ok("db", insert(false)), doc! { "n": 1, "writeErrors": [error], "ok": 1.0 });
}

#[test]
fn first_batch_is_101_documents_and_the_rest_comes_at_once() {
    let client = filled(250);
    let first = client.ok("db", doc! { "find": "c" });
    assert_eq!(batch(&first).len(), 101);
    let more = client.ok("db", doc! { "getMore": id(&first), "collection": "c" });
    assert_eq!((batch(&more).len(), id(&more)), (149, 0));
    assert_eq!(client.service.cursors.stats().open, 0);
}

#[test]
fn batch_sizes_are_kept_exactly() {
    let client = filled(10);
    let empty = client.ok("db", doc! { "find": "c", "batchSize": 0 });
    assert!(batch(&empty).is_empty() && id(&empty) != 0);
    let next = |size: i32| {
        client.ok("db", doc! { "getMore": id(&empty), "collection": "c", "batchSize": size })
    };
    assert_eq!(batch(&next(4)).len(), 4);
    let full = next(6);
    assert_eq!((batch(&full).len(), id(&full)), (6, id(&empty)));
    let last = next(1);
    assert_eq!((batch(&last).len(), id(&last)), (0, 0));
}

#[test]
fn limit_and_single_batch_end_the_cursor() {
    let client = filled(10);
    let limited = client.ok("db", doc! { "find": "c", "limit": 4, "batchSize": 4 });
    assert_eq!((batch(&limited).len(), id(&limited)), (4, 0));
    let limited = client.ok("db", doc! { "find": "c", "limit": 5, "batchSize": 4 });
    let more = client.ok("db", doc! { "getMore": id(&limited), "collection": "c" });
    assert_eq!((batch(&more).len(), id(&more)), (1, 0));
    let single = client.ok("db", doc! { "find": "c", "batchSize": 3, "singleBatch": true });
    assert_eq!((batch(&single).len(), id(&single)), (3, 0));
    let exact = client.ok("db", doc! { "find": "c", "batchSize": 10 });
    assert_ne!(id(&exact), 0);
}

#[test]
fn batch_stops_before_sixteen_mebibytes() {
    let client = Client::new();
    let large = "x".repeat(6 << 20);
    for i in 0..4 {
        client.ok("db", doc! { "insert": "c", "documents": [{ "_id": i, "t": &large }] });
    }
    let first = client.ok("db", doc! { "find": "c" });
    assert_eq!(batch(&first).len(), 2);
    let more = client.ok("db", doc! { "getMore": id(&first), "collection": "c" });
    assert_eq!((batch(&more).len(), id(&more)), (2, 0));
    let ids: Vec<_> = batch(&first)
        .iter()
        .chain(batch(&more))
        .map(|d| d.as_document().unwrap().get_i32("_id").unwrap())
        .collect();
    assert_eq!(ids, [0, 1, 2, 3]);
}

#[test]
fn cursor_keeps_its_snapshot() {
    let client = filled(10);
    let first = client.ok("db", doc! { "find": "c", "batchSize": 2 });
    client.ok("db", doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] });
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 100 }] });
    let more = client.ok("db", doc! { "getMore": id(&first), "collection": "c" });
    assert_eq!(batch(&more).len(), 8);
    assert_eq!(batch(&client.ok("db", doc! { "find": "c" })).len(), 1);
}

#[test]
fn cursors_are_killed_and_owned() {
    let client = filled(10);
    let open = || id(&client.ok("db", doc! { "find": "c", "batchSize": 2 }));
    let (one, two) = (open(), open());
    let killed = client.ok("db", doc! { "killCursors": "c", "cursors": [one, 5_i64] });
    assert_eq!(
        killed,
        doc! {
            "cursorsKilled": [one], "cursorsNotFound": [5_i64], "cursorsAlive": [],
            "cursorsUnknown": [], "ok": 1.0,
        }
    );
    let gone = format!("cursor id {one} not found");
    client.fails("db", doc! { "getMore": one, "collection": "c" }, 43, &gone);
    client.fails(
        "db",
        doc! { "getMore": two, "collection": "x" },
        13,
        "Requested getMore on namespace 'db.x', but cursor belongs to a different namespace db.c",
    );
    client.ok("db", doc! { "getMore": two, "collection": "c", "batchSize": 1 });
    let dropped = open();
    client.ok("db", doc! { "drop": "c" });
    let reply = client.run("db", doc! { "getMore": dropped, "collection": "c" });
    assert_eq!(reply.get_i32("code").ok(), Some(175));
}

#[test]
fn idle_cursor_times_out() {
    let client = filled(10);
    client.ok("admin", doc! { "setParameter": 1, "cursorTimeoutMillis": 1 });
    let plain = client.ok("db", doc! { "find": "c", "batchSize": 2 });
    let kept = client.ok("db", doc! { "find": "c", "batchSize": 2, "noCursorTimeout": true });
    client.service.os.clock.sleep(std::time::Duration::from_millis(3));
    client.service.housekeep();
    let reply = client.run("db", doc! { "getMore": id(&plain), "collection": "c" });
    assert_eq!(reply.get_i32("code").ok(), Some(43));
    client.ok("db", doc! { "getMore": id(&kept), "collection": "c" });
}

#[test]
fn exhaust_get_more_streams_until_the_end() {
    let client = filled(10);
    let first = client.ok("db", doc! { "find": "c", "batchSize": 4 });
    let more = doc! { "getMore": id(&first), "collection": "c", "batchSize": 4 };
    assert!(client.reply("db", &more, true).exhaust.is_some());
    assert!(client.reply("db", &more, true).exhaust.is_none());
}

#[test]
fn stream_that_the_client_left_ends_its_cursor_and_no_other() {
    let client = filled(10);
    let more = |first: &Document| doc! { "getMore": id(first), "collection": "c", "batchSize": 2 };
    let other = client.another(2);
    let [streamed, asked, left] =
        [&other, &other, &client].map(|c| c.ok("db", doc! { "find": "c", "batchSize": 2 }));
    assert!(other.reply("db", &more(&streamed), true).exhaust.is_some());
    client.service.close_connection(&other.connection);
    let gone = client.run("db", more(&streamed));
    assert_eq!(gone.get_i32("code").ok(), Some(43), "{gone}");
    client.ok("db", more(&asked));
    // One whose stream has ended is as any other.
    let other = client.another(3);
    assert!(other.reply("db", &more(&left), true).exhaust.is_some());
    other.ok("db", more(&left));
    client.service.close_connection(&other.connection);
    client.ok("db", more(&left));
}

#[test]
fn tailable_needs_a_capped_collection() {
    let client = filled(1);
    let reply = client.run("db", doc! { "find": "c", "tailable": true, "awaitData": true });
    assert_eq!(reply.get_i32("code").ok(), Some(2));
    assert!(
        reply
            .get_str("errmsg")
            .unwrap()
            .ends_with("tailable cursor requested on non capped collection")
    );
    client.fails(
        "db",
        doc! { "find": "c", "awaitData": true },
        9,
        "Cannot set 'awaitData' without also setting 'tailable'",
    );
}

#[test]
fn write_batches_are_bounded() {
    let client = Client::new();
    client.fails(
        "db",
        doc! { "insert": "c", "documents": [] },
        16,
        "Write batch sizes must be between 1 and 100000. Got 0 operations.",
    );
    client.fails(
        "db",
        doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 2 }] },
        9,
        "The limit field in delete objects must be 0 or 1. Got 2",
    );
    client.fails(
        "db",
        doc! { "update": "c", "updates": [{ "q": {}, "u": 1 }] },
        9,
        "Update argument must be either an object or an array",
    );
}

#[test]
fn documents_come_in_sections_too() {
    let client = Client::new();
    let body = bson::RawDocumentBuf::try_from(&doc! { "insert": "c" }).unwrap();
    let document = bson::RawDocumentBuf::try_from(&doc! { "_id": 1 }).unwrap();
    let run = |name: &str| {
        let sequences = [(name, vec![&*document])];
        let request = dispatch::Request {
            database: "db",
            body: &body,
            sequences: &sequences,
            op: dispatch::OpKind::Msg,
            exhaust_allowed: false,
            request_id: 1,
            waited_until: None,
            waker: None,
            finisher: None,
        };
        Document::try_from(&client.service.run(&client.connection, &request).document).unwrap()
    };
    assert_eq!(run("documents"), doc! { "n": 1, "ok": 1.0 });
    assert_eq!(run("foo").get_i32("code").ok(), Some(40415));
}

#[test]
fn count_and_distinct_read_filters() {
    let client = filled(100);
    let count = doc! { "count": "c", "query": { "a": 3 }, "skip": 2, "limit": -5 };
    assert_eq!(client.ok("db", count), doc! { "n": 5, "ok": 1.0 });
    let distinct =
        client.ok("db", doc! { "distinct": "c", "key": "a", "query": { "_id": { "$lt": 3 } } });
    assert_eq!(distinct, doc! { "values": [0, 1, 2], "ok": 1.0 });
    assert_eq!(client.ok("db", doc! { "count": "none" }), doc! { "n": 0, "ok": 1.0 });
}

#[test]
fn explain_shows_command_and_server() {
    let client = filled(10);
    let explain =
        doc! { "explain": { "find": "c", "filter": { "_id": 1 } }, "verbosity": "executionStats" };
    let plan = client.ok("db", explain);
    assert!(plan.get_document("queryPlanner").is_ok());
    assert_eq!(plan.get_document("executionStats").unwrap().get_i32("nReturned").ok(), Some(1));
    assert_eq!(
        plan.get_document("command").unwrap(),
        &doc! { "find": "c", "filter": { "_id": 1 }, "$db": "db" }
    );
    assert!(plan.get_document("serverInfo").is_ok());
    client.fails(
        "db",
        doc! { "explain": { "foo": 1 } },
        59,
        "Explain failed due to unknown command: foo",
    );
    let verbosity = doc! { "explain": { "find": "c" }, "verbosity": "x" };
    assert_eq!(client.run("db", verbosity).get_i32("code").ok(), Some(2));
}

#[test]
fn durable_writes_are_acknowledged() {
    let client = Client::new();
    for concern in [doc! { "j": true }, doc! { "w": "majority" }, doc! { "w": 1, "j": false }] {
        client.ok("db", doc! { "insert": "c", "documents": [{}], "writeConcern": concern });
    }
}

#[test]
fn killed_session_ends_its_cursors() {
    let client = filled(10);
    let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![3; 16] };
    let lsid = doc! { "id": uuid };
    let first = client.ok("db", doc! { "find": "c", "batchSize": 2, "lsid": lsid.clone() });
    let without = doc! { "getMore": id(&first), "collection": "c" };
    assert_eq!(client.run("db", without).get_i32("code").ok(), Some(50737));
    client.ok("admin", doc! { "endSessions": [lsid.clone()] });
    let with = doc! { "getMore": id(&first), "collection": "c", "lsid": lsid };
    assert_eq!(client.run("db", with).get_i32("code").ok(), Some(43));
}

#[test]
fn writes_and_reads_are_counted() {
    let client = filled(10);
    client.ok("db", doc! { "find": "c" });
    let status = client.ok("admin", doc! { "serverStatus": 1 });
    let counters = status.get_document("opcounters").unwrap();
    assert_eq!(
        (counters.get_i64("insert").ok(), counters.get_i64("query").ok()),
        (Some(10), Some(1))
    );
    let documents = status.get_document("metrics").unwrap().get_document("document").unwrap();
    assert_eq!(documents.get_i64("returned").ok(), Some(10));
    let top = client.ok("admin", doc! { "top": 1 });
    let used = top.get_document("totals").unwrap().get_document("db.c").unwrap();
    assert_eq!(used.get_document("queries").unwrap().get_i64("count").ok(), Some(1));
    // Finding 5 of the network's stage 0: names are free.
    for at in 0..100 {
        client.ok("db", doc! { "find": format!("no{at}") });
        client.ok("db", doc! { "count": format!("no{at}") });
    }
    client.ok("db", doc! { "drop": "c" });
    let top = client.ok("admin", doc! { "top": 1 });
    let names = top.get_document("totals").unwrap().keys();
    assert_eq!(names.filter(|name| *name != "note").count(), 0, "{top}");
}
