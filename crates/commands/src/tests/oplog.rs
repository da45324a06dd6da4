//! The oplog from the outside.

use super::Client;
use bson::{Document, Timestamp, doc};

fn member() -> Client {
    let options = serverstate::replication::ReplicaSetOptions {
        name: "rs".into(),
        address: "localhost:1".into(),
        initiate: true,
    };
    let client = Client::member(options);
    client.service.start_replication().unwrap();
    client
}

fn find(client: &Client, mut command: Document) -> Vec<Document> {
    client.service.catalog.sync().unwrap();
    let mut whole = doc! { "find": "oplog.rs" };
    whole.extend(std::mem::take(&mut command));
    let reply = client.ok("local", whole);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|entry| entry.as_document().unwrap().clone()).collect()
}

/// What entries of the database `db` do.
fn shown(entries: &[Document]) -> Vec<String> {
    let of_db = entries.iter().filter(|entry| {
        let ns = entry.get_str("ns").unwrap();
        ns.starts_with("db.") || ns == "admin.$cmd"
    });
    of_db
        .map(|entry| {
            let object = entry.get_document("o").unwrap();
            let first = object.keys().next().map_or("", String::as_str);
            format!("{} {first}", entry.get_str("op").unwrap())
        })
        .collect()
}

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id }] }
}

fn time(entry: &Document) -> Timestamp {
    entry.get_timestamp("ts").unwrap()
}

#[test]
fn a_standalone_has_no_oplog() {
    let client = Client::new();
    assert!(find(&client, doc! {}).is_empty());
    client.ok("local", doc! { "insert": "oplog.rs", "documents": [{ "_id": 1 }] });
}

#[test]
fn every_change_is_an_entry() {
    let client = member();
    client.ok("db", insert(1));
    let update = |q: Document, u: Document| doc! { "update": "c", "updates": [{ "q": q, "u": u }] };
    client.ok("db", update(doc! { "_id": 1 }, doc! { "$set": { "a": 1 } }));
    client.ok("db", update(doc! { "_id": 1 }, doc! { "b": 1 }));
    client.ok("db", doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] });
    client.ok("db", doc! { "drop": "c" });
    let all = find(&client, doc! {});
    let expected = ["c create", "i _id", "u $v", "u _id", "d _id", "c drop"];
    assert_eq!(shown(&all), expected);
    let times: Vec<_> = all.iter().map(time).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    let mut backward = find(&client, doc! { "sort": { "$natural": -1 } });
    assert_eq!(backward.first(), all.last());
    backward.reverse();
    assert_eq!(backward, all);
    let after = |time: Timestamp| doc! { "filter": { "ts": { "$gt": time } } };
    for (at, entry) in all.iter().enumerate() {
        assert_eq!(find(&client, after(time(entry))), all[at + 1..], "{at}");
        let one = find(&client, doc! { "filter": { "ts": time(entry) } });
        assert_eq!(one, all[at..=at], "{at}");
    }
    let count = client.ok("local", doc! { "count": "oplog.rs" });
    assert_eq!(count.get_i32("n").unwrap() as usize, all.len());
    let deletes = doc! { "count": "oplog.rs", "query": { "op": "d" } };
    assert_eq!(client.ok("local", deletes).get_i32("n").unwrap(), 1);
    let pipeline = vec![doc! { "$match": { "op": "i" } }, doc! { "$project": { "o": 1 } }];
    let aggregate = doc! { "aggregate": "oplog.rs", "pipeline": pipeline, "cursor": {} };
    let reply = client.ok("local", aggregate);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch[0].as_document().unwrap(), &doc! { "o": { "_id": 1 } });
    let listed =
        client.ok("local", doc! { "listCollections": 1, "filter": { "name": "oplog.rs" } });
    let batch = listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.len(), 1);
    let stats = client.ok("local", doc! { "collStats": "oplog.rs" });
    assert!(stats.get_bool("capped").unwrap());
    let asked = doc! { "$collStats": { "count": {}, "storageStats": { "scale": 4 } } };
    let asked = doc! { "aggregate": "oplog.rs", "pipeline": [asked], "cursor": {} };
    let reply = client.ok("local", asked);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let told = batch[0].as_document().unwrap();
    let storage = told.get_document("storageStats").unwrap();
    // What it says to the command it says here.
    for counted in [told, storage] {
        assert_eq!(counted.get_i64("count").unwrap(), i64::from(stats.get_i32("count").unwrap()));
    }
    let bytes = i64::from(stats.get_i32("size").unwrap());
    assert_eq!(storage.get_i64("size").unwrap(), bytes / 4);
    assert_eq!(storage.get_i64("scaleFactor").unwrap(), 4);
    assert!(told.get_datetime("localTime").is_ok() && storage.get_bool("capped").unwrap());
    client.ok("local", doc! { "explain": { "find": "oplog.rs" } });
}

#[test]
fn nobody_writes_to_the_oplog() {
    let client = member();
    let wrong = doc! { "q": {}, "u": { "$set": { "a": 1 } } };
    for command in [
        doc! { "insert": "oplog.rs", "documents": [{ "_id": 1 }] },
        doc! { "update": "oplog.rs", "updates": [wrong] },
        doc! { "delete": "oplog.rs", "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "create": "oplog.rs" },
        doc! { "createIndexes": "oplog.rs", "indexes": [{ "key": { "a": 1 }, "name": "a" }] },
        doc! { "findAndModify": "oplog.rs", "query": {}, "remove": true },
    ] {
        let reply = client.run("local", command.clone());
        assert_eq!(reply.get_i32("code").ok(), Some(73), "{command} gave {reply}");
    }
}

/// A member whose log holds about 256 KiB.
fn member_with_a_short_log() -> Client {
    let kept = engine::HistoryOptions { bytes: 256 << 10, min_age: std::time::Duration::ZERO };
    let engine = engine::Engine::temporary_with(|options| {
        options.history = Some(kept);
        options.sizes.log_segment_bytes = 64 << 10;
        options.sizes.log_cap = 128 << 10;
        options.sizes.write_budget = 256 << 10;
        options.sizes.memtable_bytes = 64 << 10;
    });
    let options = serverstate::replication::ReplicaSetOptions {
        name: "rs".into(),
        address: "localhost:1".into(),
        initiate: true,
    };
    let client = Client::over(std::sync::Arc::new(super::SilentHost), engine, Some(options));
    client.service.start_replication().unwrap();
    client
}

/// Writes until the log no longer reaches back to `time`.
fn outgrow_the_log(client: &Client, time: u64) {
    let engine = client.service.catalog.engine();
    let mut noise = testkit::Gen::new(time);
    for _ in 0..1000 {
        // The log has it as it is: it cannot be compressed.
        let bytes = (0..2500).flat_map(|_| noise.u64().to_le_bytes()).collect();
        let binary = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes };
        client.ok("db", doc! { "insert": "c", "documents": [{ "binary": binary }] });
        while engine.step().unwrap() {}
        engine.checkpoint().unwrap();
        if engine.history().unwrap().oldest_time().unwrap() > time {
            return client.service.catalog.sync().unwrap();
        }
    }
    panic!("the log is not cut");
}

#[test]
fn a_read_that_has_given_nothing_begins_where_the_log_does() {
    let client = member_with_a_short_log();
    let history = client.service.catalog.engine().history().unwrap();
    let begin = |more: Document| {
        client.service.catalog.sync().unwrap();
        let mut find = doc! { "find": "oplog.rs", "batchSize": 0 };
        find.extend(more);
        let reply = client.ok("local", find);
        reply.get_document("cursor").unwrap().get_i64("id").unwrap()
    };
    let more = |cursor: i64, size: i32| {
        let more = doc! { "getMore": cursor, "collection": "oplog.rs", "batchSize": size };
        client.run("local", more)
    };
    let batch = |cursor: i64, size: i32| {
        let reply = more(cursor, size);
        let batch = reply.get_document("cursor").expect("no error").get_array("nextBatch").unwrap();
        batch.iter().map(|entry| entry.as_document().unwrap().clone()).collect::<Vec<_>>()
    };
    let lost = Some(136);
    let code = |cursor: i64| more(cursor, 1).get_i32("code").ok();
    outgrow_the_log(&client, history.oldest_time().unwrap());
    let forward = begin(doc! {});
    let tail = begin(doc! { "tailable": true, "awaitData": true });
    let waits = begin(doc! { "tailable": true, "filter": { "ns": "db.none" } });
    assert_eq!(code(waits), None, "it has seen the end");
    outgrow_the_log(&client, history.durable_time());
    let all = find(&client, doc! {});
    assert_eq!(batch(forward, 1), all[..1]);
    assert_eq!(batch(tail, 2), all[..2]);
    assert_eq!(code(waits), lost, "it would leave something out");
    // Backward, the end is where the log begins.
    let backward = begin(doc! { "sort": { "$natural": -1 } });
    let newest = batch(backward, 1);
    assert_eq!(newest, all[all.len() - 1..]);
    outgrow_the_log(&client, history.oldest_time().unwrap());
    let left = find(&client, doc! {});
    let mut rest = batch(backward, 1000);
    rest.reverse();
    let known = all.iter().position(|entry| *entry == left[0]).expect("some are left");
    assert_eq!(rest, all[known..all.len() - 1]);
    outgrow_the_log(&client, history.durable_time());
    assert_eq!((code(forward), code(tail)), (lost, lost));
}

#[test]
fn a_tail_gives_what_comes() {
    let client = member();
    client.ok("db", insert(1));
    client.service.catalog.sync().unwrap();
    let tail = doc! {
        "find": "oplog.rs",
        "filter": { "ns": "db.c" },
        "tailable": true,
        "awaitData": true,
        "oplogReplay": true,
    };
    let reply = client.ok("local", tail);
    let cursor = reply.get_document("cursor").unwrap();
    assert_eq!(cursor.get_array("firstBatch").unwrap().len(), 1);
    let id = cursor.get_i64("id").unwrap();
    let more = doc! { "getMore": id, "collection": "oplog.rs", "maxTimeMS": 20 };
    let next = || {
        client.service.catalog.sync().unwrap();
        let reply = client.ok("local", more.clone());
        reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap().len()
    };
    assert_eq!(next(), 0);
    client.ok("db", insert(2));
    client.ok("db", insert(3));
    assert_eq!((next(), next()), (2, 0));
}

#[test]
fn transactions_and_retried_writes_say_whose_they_are() {
    let client = member();
    let session = doc! { "id": bson::Uuid::from_bytes([7; 16]) };
    let documents = vec![doc! { "_id": 1 }, doc! { "_id": 2 }];
    client.ok(
        "db",
        doc! { "insert": "c", "documents": documents, "lsid": session.clone(), "txnNumber": 1_i64 },
    );
    let entries = find(&client, doc! { "filter": { "op": "i", "ns": "db.c" } });
    let statements: Vec<_> = entries.iter().map(|e| e.get_i32("stmtId").unwrap()).collect();
    assert_eq!(statements, [0, 1]);
    assert!(entries.iter().all(|e| e.get_i64("txnNumber").unwrap() == 1));
    let in_transaction = |mut command: Document, starts: bool| {
        command.insert("lsid", session.clone());
        command.insert("txnNumber", 2_i64);
        command.insert("autocommit", false);
        if starts {
            command.insert("startTransaction", true);
        }
        command
    };
    client.ok("db", in_transaction(insert(5), true));
    client.ok("db", in_transaction(insert(6), false));
    client.ok("admin", in_transaction(doc! { "commitTransaction": 1 }, false));
    let last = find(&client, doc! { "sort": { "$natural": -1 }, "limit": 1 }).remove(0);
    let operations = last.get_document("o").unwrap().get_array("applyOps").unwrap();
    assert_eq!(operations.len(), 2);
    assert_eq!(last.get_i64("txnNumber").unwrap(), 2);
    assert_eq!(last.get_document("lsid").unwrap().get("id"), session.get("id"));
}

#[test]
fn entries_applied_elsewhere_give_the_same() {
    let client = member();
    client.ok("db", doc! { "create": "c", "capped": false });
    let many: Vec<Document> = (0..50).map(|id| doc! { "_id": id, "a": [1, { "b": id }] }).collect();
    client.ok("db", doc! { "insert": "c", "documents": many });
    let all = doc! { "q": {}, "u": { "$inc": { "a.1.b": 1 }, "$push": { "a": 7 } }, "multi": true };
    client.ok("db", doc! { "update": "c", "updates": [all] });
    client.ok(
        "db",
        doc! { "delete": "c", "deletes": [{ "q": { "_id": { "$gt": 40 } }, "limit": 0 }] },
    );
    let index = doc! { "key": { "x": 1 }, "name": "x_1" };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    client.ok("admin", doc! { "renameCollection": "db.c", "to": "db.d" });
    let other = Client::new();
    for entry in find(&client, doc! { "batchSize": 1000 }) {
        let reply = other.run("admin", doc! { "applyOps": [entry.clone()] });
        assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{entry} gave {reply}");
    }
    let documents = |client: &Client| {
        let reply = client.ok("db", doc! { "find": "d", "batchSize": 1000 });
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone()
    };
    assert_eq!(documents(&client), documents(&other));
    assert_eq!(documents(&other).len(), 41);
    let indexes = |client: &Client| client.ok("db", doc! { "listIndexes": "d" });
    let names = |reply: &Document| {
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
        batch.len()
    };
    assert_eq!(names(&indexes(&client)), names(&indexes(&other)));
}
