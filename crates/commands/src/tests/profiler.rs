//! The profiler: what it tells of operations, and when.

use super::*;
use bson::Bson;

fn client() -> Client {
    let client = Client::new();
    let documents: Vec<Document> = (0..200).map(|i| doc! { "_id": i, "k": i % 10 }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let index = doc! { "key": { "k": 1 }, "name": "k_1" };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    client
}

/// The entries so far, without those of the profiler's own settings and queries.
fn entries(client: &Client) -> Vec<Document> {
    let filter = doc! { "ns": { "$nin": ["db.$cmd", "db.system.profile"] } };
    let found =
        client.ok("db", doc! { "find": "system.profile", "filter": filter, "batchSize": 1000 });
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|entry| entry.as_document().unwrap().clone()).collect()
}

/// Some fields of an entry, as far as it has them.
fn some(entry: &Document, names: &[&str]) -> Document {
    let field = |name: &&str| entry.get(*name).map(|value| ((*name).to_owned(), value.clone()));
    names.iter().filter_map(field).collect()
}

const LOOKED: [&str; 5] = ["op", "planSummary", "keysExamined", "docsExamined", "nreturned"];

/// The one entry that a command makes at level 2.
fn entry_of(client: &Client, command: Document) -> Document {
    let before = entries(client).len();
    client.run("db", command);
    let mut after = entries(client).split_off(before);
    assert_eq!(after.len(), 1);
    after.remove(0)
}

#[test]
fn entries_tell_what_reads_looked_at() {
    let client = client();
    client.ok("db", doc! { "profile": 2 });
    let looked = |op: &str, plan: &str, keys: i64, documents: i64, returned: Option<i64>| {
        let mut all = doc! {
            "op": op, "planSummary": plan, "keysExamined": keys, "docsExamined": documents,
        };
        all.extend(returned.map(|n| ("nreturned".to_owned(), Bson::Int64(n))));
        all
    };
    let find = |filter: Document| doc! { "find": "c", "filter": filter };
    let by_k = doc! { "$match": { "k": 3 } };
    let lookup = doc! { "$lookup": {
    "from": "c", "localField": "_id", "foreignField": "_id", "as": "same" } };
    for (command, wanted) in [
        (find(doc! { "_id": 5 }), looked("query", "IDHACK", 1, 1, Some(1))),
        (find(doc! { "_id": -5 }), looked("query", "IDHACK", 0, 0, Some(0))),
        (find(doc! { "k": 3 }), looked("query", "IXSCAN { k: 1 }", 20, 20, Some(20))),
        (find(doc! { "x": 3 }), looked("query", "COLLSCAN", 0, 200, Some(0))),
        (doc! { "find": "none" }, looked("query", "EOF", 0, 0, Some(0))),
        (
            doc! { "count": "c", "query": { "k": 3 } },
            looked("command", "COUNT_SCAN { k: 1 }", 20, 0, None),
        ),
        (
            doc! { "aggregate": "c", "pipeline": [by_k, lookup], "cursor": {} },
            looked("command", "IXSCAN { k: 1 }, IDHACK", 40, 40, Some(20)),
        ),
    ] {
        let entry = entry_of(&client, command.clone());
        assert_eq!(some(&entry, &LOOKED), wanted, "{command}");
        assert_eq!(entry.get_document("command").unwrap(), &command);
    }
    let sorted = entry_of(&client, doc! { "find": "c", "sort": { "x": 1 } });
    let more = some(&sorted, &["ns", "hasSortStage", "cursorExhausted", "nreturned", "protocol"]);
    assert_eq!(
        more,
        doc! { "ns": "db.c", "hasSortStage": true, "nreturned": 101_i64, "protocol": "op_msg" }
    );
    for name in ["cursorid", "responseLength", "millis", "numYield"] {
        assert!(sorted.get_i64(name).is_ok(), "{name}");
    }
    assert!(sorted.get_datetime("ts").is_ok());
    let cursor = sorted.get_i64("cursorid").unwrap();
    let rest = entry_of(&client, doc! { "getMore": cursor, "collection": "c" });
    assert_eq!(
        some(&rest, &["op", "nreturned", "cursorExhausted", "planSummary"]),
        doc! {
            "op": "getmore", "nreturned": 99_i64, "cursorExhausted": true, "planSummary": "COLLSCAN",
        }
    );
    let originating = rest.get_document("originatingCommand").unwrap();
    assert_eq!(originating, &doc! { "find": "c", "sort": { "x": 1 } });
}

#[test]
fn entries_tell_what_writes_did() {
    let client = client();
    client.ok("db", doc! { "profile": 2 });
    let names = ["op", "planSummary", "nMatched", "nModified", "ninserted", "ndeleted", "upsert"];
    let update = doc! { "q": { "k": 3 }, "u": { "$set": { "x": 1 } }, "multi": true };
    let upsert = doc! { "q": { "_id": -1 }, "u": { "$set": { "x": 1 } }, "upsert": true };
    let delete = doc! { "q": { "_id": 7 }, "limit": 1 };
    for (command, wanted) in [
        (
            doc! { "insert": "c", "documents": [{ "_id": 900 }, { "_id": 901 }] },
            doc! { "op": "insert", "ninserted": 2_i64 },
        ),
        (
            doc! { "update": "c", "updates": [update.clone()] },
            doc! { "op": "update", "planSummary": "IXSCAN { k: 1 }", "nMatched": 20_i64,
            "nModified": 20_i64 },
        ),
        (
            doc! { "update": "c", "updates": [upsert] },
            doc! { "op": "update", "planSummary": "IDHACK", "nMatched": 0_i64,
            "nModified": 0_i64, "upsert": true },
        ),
        (
            doc! { "delete": "c", "deletes": [delete] },
            doc! { "op": "remove", "planSummary": "IDHACK", "ndeleted": 1_i64 },
        ),
    ] {
        let entry = entry_of(&client, command.clone());
        assert_eq!(some(&entry, &names), wanted, "{command}");
    }
    let entry = entry_of(&client, doc! { "update": "c", "updates": [update.clone()] });
    assert_eq!(entry.get_document("command").unwrap(), &update);
    let failed = entry_of(&client, doc! { "find": "c", "filter": { "$foo": 1 } });
    assert_eq!(
        some(&failed, &["ok", "errName", "errCode"]),
        doc! {
            "ok": 0, "errName": "BadValue", "errCode": 2,
        }
    );
    let long = "x".repeat(60 << 10);
    let entry = entry_of(&client, doc! { "find": "c", "filter": { "x": long } });
    assert!(entry.get_document("command").unwrap().contains_key("$truncated"));
}

#[test]
fn levels_are_a_databases_and_the_rest_is_the_servers() {
    let client = client();
    let ask = || client.ok("db", doc! { "profile": -1 });
    let settings = |reply: &Document| some(reply, &["was", "slowms", "sampleRate", "filter"]);
    let filter = doc! { "nreturned": 20 };
    let set = doc! { "profile": 1, "slowms": 7, "sampleRate": 0.5, "filter": filter.clone() };
    let before = client.ok("db", set);
    assert_eq!(settings(&before), doc! { "was": 0, "slowms": 100, "sampleRate": 1.0 });
    let wanted = doc! { "was": 1, "slowms": 7, "sampleRate": 0.5, "filter": filter };
    assert_eq!(settings(&ask()), wanted);
    let other = client.ok("other", doc! { "profile": -1 });
    assert_eq!(settings(&other), doc! { "was": 0, "slowms": 7, "sampleRate": 0.5 });
    // The filter picks, however fast an operation was.
    client.ok("db", doc! { "find": "c", "filter": { "k": 3 } });
    client.ok("db", doc! { "find": "c", "filter": { "_id": 3 } });
    assert_eq!(entries(&client).len(), 1);
    client.ok("db", doc! { "profile": 1, "filter": "unset", "slowms": 0, "sampleRate": 0 });
    assert!(!ask().contains_key("filter"));
    client.ok("db", doc! { "find": "c" });
    assert_eq!(entries(&client).len(), 1);
    client.ok("db", doc! { "profile": 1, "sampleRate": 1 });
    client.ok("db", doc! { "find": "c" });
    assert_eq!(entries(&client).len(), 2);
    client.ok("db", doc! { "profile": 0 });
    client.ok("db", doc! { "find": "c" });
    assert_eq!(entries(&client).len(), 2);
    for (wrong, code) in [
        (doc! { "sampleRate": 2 }, 2),
        (doc! { "filter": 1 }, 2),
        (doc! { "filter": { "$foo": 1 } }, 2),
        (doc! { "foo": 1 }, 40415),
    ] {
        let mut command = doc! { "profile": 1 };
        command.extend(wrong);
        assert_eq!(client.run("db", command.clone()).get_i32("code").unwrap(), code, "{command}");
    }
}

#[test]
fn the_profile_is_capped_and_the_servers_own() {
    let client = client();
    client.ok("db", doc! { "profile": 2 });
    let stats = client.ok("db", doc! { "collStats": "system.profile" });
    assert!(stats.get_bool("capped").unwrap());
    let insert = doc! { "insert": "system.profile", "documents": [{}] };
    let refused = client.run("db", insert);
    let code = refused.get_i32("code").ok().or_else(|| {
        let errors = refused.get_array("writeErrors").ok()?;
        errors[0].as_document()?.get_i32("code").ok()
    });
    assert_eq!(code, Some(73), "{refused}");
    let drop = doc! { "drop": "system.profile" };
    assert_eq!(client.run("db", drop.clone()).get_i32("code").unwrap(), 20);
    client.ok("db", doc! { "profile": 0 });
    client.ok("db", drop);
}

#[test]
fn level_from_the_start_is_every_databases_until_it_sets_its_own() {
    let client = Client::new();
    client.service.profile_all(2);
    assert_eq!(client.ok("db", doc! { "profile": -1 }).get_i32("was").unwrap(), 2);
    let absent = client.ok("nobody", doc! { "find": "c" });
    assert!(absent.get_document("cursor").is_ok());
    assert!(!client.service.catalog.database_exists("nobody"), "profiling makes no database");
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    client.ok("other", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    assert_eq!(entries(&client).len(), 1);
    client.ok("db", doc! { "profile": 0 });
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 2 }] });
    assert_eq!(entries(&client).len(), 1);
    client.ok("other", doc! { "find": "c" });
    let others = client.ok("other", doc! { "count": "system.profile" });
    assert_eq!(others.get_i32("n").unwrap(), 2);
    client.ok("db", doc! { "profile": 2 });
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 3 }] });
    assert_eq!(entries(&client).len(), 2);
}

#[test]
fn entry_tells_how_long_its_operation_waited_for_a_lock() {
    let client = client();
    let holder = client.another(2);
    client.ok("db", doc! { "profile": 2 });
    let set = doc! { "q": { "_id": 1 }, "u": { "$set": { "k": 1 } } };
    let update = doc! { "update": "c", "updates": [set] };
    let alone = entry_of(&client, update.clone());
    let waited = |entry: &Document| {
        let storage = entry.get_document("storage").ok()?;
        storage.get_document("timeWaitingMicros").ok()?.get_i64("lock").ok()
    };
    assert_eq!(waited(&alone), None, "{alone}");
    holder.ok("db", doc! { "beginTransaction": 1 });
    holder.ok("db", update.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| client.ok("db", update));
        let running = doc! { "currentOp": 1, "waitingForLock": true };
        while holder.ok("admin", running.clone()).get_array("inprog").unwrap().is_empty() {
            std::thread::yield_now();
        }
        holder.ok("db", doc! { "commitTransaction": 1 });
    });
    let all = entries(&client);
    assert_eq!(all.iter().filter(|entry| waited(entry).is_some_and(|time| time > 0)).count(), 1);
}

#[test]
fn frequent_slow_scans_ask_for_an_index_until_there_is_one() {
    let client = Client::new();
    let documents: Vec<Document> =
        (0..2000).map(|i| doc! { "_id": i, "a": i, "b": i % 2 }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client.ok("db", doc! { "profile": 0, "slowms": 0 });
    let find = doc! { "find": "c", "filter": { "b": { "$gt": 0 }, "a": 7 } };
    let advice = || client.service.index_advice();
    for _ in 0..4 {
        client.ok("db", find.clone());
        client.ok("db", doc! { "count": "c", "query": { "b": { "$gte": 0 } } });
        // Every second document is found: no index would help.
        client.ok("db", doc! { "find": "c", "filter": { "b": 1 } });
    }
    assert_eq!(advice(), Vec::<String>::new());
    client.ok("db", find.clone());
    client.ok("db", doc! { "find": "c", "filter": { "b": 1 } });
    let told = advice();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("db.c: 5 slow operations looked at 2000 documents each to find 1"));
    assert!(told[0].contains("{ a: 1, b: 1 }"), "{told:?}");
    assert!(advice().is_empty(), "once");
    let update = doc! { "q": { "x": 1 }, "u": { "$set": { "y": 1 } } };
    for _ in 0..5 {
        client.ok("db", doc! { "update": "c", "updates": [update.clone()] });
    }
    let index = doc! { "key": { "x": 1 }, "name": "x_1" };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    assert!(advice().is_empty(), "it is there");
    let group = doc! { "$group": { "_id": "$b", "n": { "$sum": 1 } } };
    for _ in 0..5 {
        client.ok("db", doc! { "count": "c", "query": { "n": 1 } });
        let pipeline = [doc! { "$match": { "m": 1 } }, group.clone()];
        client.ok("db", doc! { "aggregate": "c", "pipeline": &pipeline[..], "cursor": {} });
        // All of it is wanted.
        let pipeline = [doc! { "$match": { "b": { "$lt": 2 } } }, group.clone()];
        client.ok("db", doc! { "aggregate": "c", "pipeline": &pipeline[..], "cursor": {} });
    }
    let told = advice();
    assert_eq!(told.len(), 2, "counts and pipelines say what they look for: {told:?}");
    assert!(told.iter().any(|text| text.contains("{ m: 1 }")), "{told:?}");
    assert!(told.iter().any(|text| text.contains("{ n: 1 }")), "{told:?}");
}
