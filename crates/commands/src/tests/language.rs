//! Corners of the language that real programs met, each as its command answers.

use super::*;
use bson::raw::{RawArrayBuf, RawBsonRef, cstr};
use bson::{Bson, Timestamp, bson};

const EMPTY: Timestamp = Timestamp { time: 0, increment: 0 };

fn batch(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
}

fn all(client: &Client, collection: &str) -> Vec<Document> {
    batch(&client.ok("db", doc! { "find": collection, "sort": { "_id": 1 } }))
}

fn aggregate(client: &Client, collection: &str, pipeline: Vec<Document>) -> Vec<Document> {
    batch(&client.ok("db", doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} }))
}

/// Which of the fields of the document `id` hold the empty timestamp.
fn empty_fields(client: &Client, id: i32) -> String {
    let found = batch(&client.ok("db", doc! { "find": "c", "filter": { "_id": id } })).remove(0);
    let empty = |(name, value): (&String, &Bson)| {
        let inner = value.as_document().map(|inner| inner.get("t").cloned());
        let is = |value: &Bson| *value == Bson::Timestamp(EMPTY);
        let shown = if is(value) { name.clone() } else { format!("{name}.t") };
        (is(value) || inner.flatten().as_ref().is_some_and(is)).then_some(shown)
    };
    found.iter().filter_map(empty).collect::<Vec<_>>().join(" ")
}

#[test]
fn empty_timestamps_at_the_top_become_the_time_of_the_write() {
    let client = Client::new();
    let written = |id: i32| doc! { "_id": id, "a": EMPTY, "n": { "t": EMPTY }, "b": EMPTY };
    let update = |id: i32, change: Document, upsert: bool| {
        doc! { "q": { "_id": id }, "u": change, "upsert": upsert }
    };
    let replacement = || doc! { "a": EMPTY, "n": { "t": EMPTY } };
    for (id, command, left) in [
        (1, doc! { "insert": "c", "documents": [written(1)] }, "n.t"),
        (
            2,
            doc! { "insert": "c", "documents": [written(2)], "bypassEmptyTsReplacement": true },
            "a n.t b",
        ),
        (3, doc! { "update": "c", "updates": [update(3, replacement(), true)] }, "n.t"),
        (3, doc! { "update": "c", "updates": [update(3, replacement(), false)] }, "n.t"),
        (
            3,
            doc! { "update": "c", "updates": [update(3, replacement(), false)], "bypassEmptyTsReplacement": true },
            "a n.t",
        ),
        (
            4,
            doc! { "findAndModify": "c", "query": { "_id": 4 }, "update": replacement(), "upsert": true },
            "n.t",
        ),
        (
            1,
            doc! { "update": "c", "updates": [update(1, doc! { "$set": { "s": EMPTY } }, false)] },
            "n.t s",
        ),
    ] {
        client.ok("db", command.clone());
        assert_eq!(empty_fields(&client, id), left, "{command}");
    }
    client.ok("db", doc! { "insert": "source", "documents": [written(1), written(9)], "bypassEmptyTsReplacement": true });
    for (mode, left) in [("replace", "n.t"), ("merge", "a n.t b s")] {
        client.ok(
            "db",
            doc! { "update": "c", "updates": [update(1, doc! { "$set": { "s": EMPTY } }, false)] },
        );
        let merge = doc! { "$merge": { "into": "c", "whenMatched": mode } };
        aggregate(&client, "source", vec![merge]);
        assert_eq!(empty_fields(&client, 1), left, "{mode}");
        assert_eq!(empty_fields(&client, 9), if mode == "replace" { "n.t" } else { "a n.t b" });
    }
    aggregate(&client, "source", vec![doc! { "$out": "c" }]);
    assert_eq!(empty_fields(&client, 9), "n.t");
    // An `_id` is what it is.
    client.ok("db", doc! { "insert": "ids", "documents": [{ "_id": EMPTY }] });
    assert_eq!(all(&client, "ids"), [doc! { "_id": EMPTY }]);
}

#[test]
fn an_id_stands_once_and_may_be_a_reference() {
    let client = Client::new();
    let mut twice = RawDocumentBuf::new();
    twice.append(cstr!("_id"), 1);
    twice.append(cstr!("a"), 1);
    twice.append(cstr!("_id"), 2);
    let mut documents = RawArrayBuf::new();
    documents.push(RawBsonRef::Document(&twice));
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("insert"), "c");
    body.append(cstr!("documents"), documents);
    let request = Request {
        database: "db",
        body: &body,
        sequences: &[],
        op: OpKind::Msg,
        exhaust_allowed: false,
        request_id: 1,
        waited_until: None,
        waker: None,
        finisher: None,
    };
    let reply = client.service.run(&client.connection, &request).document;
    let reply = Document::try_from(&reply).unwrap();
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().clone();
    assert_eq!(error.get_i32("code").unwrap(), 2);
    let text = "can't have multiple _id fields in one document";
    assert_eq!(error.get_str("errmsg").unwrap(), text);
    assert_eq!(all(&client, "c"), []);
    let reference = doc! { "_id": { "$ref": "x", "$id": 1 } };
    client.ok("db", doc! { "insert": "c", "documents": [reference.clone()] });
    assert_eq!(all(&client, "c"), [reference]);
    // What is written by a stage has an `_id` that any document may have.
    let bad = doc! { "aggregate": "c", "cursor": {}, "pipeline": [
    { "$set": { "_id": [1] } }, { "$merge": { "into": "d", "on": "_id" } }] };
    assert_eq!(client.run("db", bad).get_f64("ok").ok(), Some(0.0));
}

#[test]
fn distinct_values_come_in_order() {
    let client = Client::new();
    let documents: Vec<Document> =
        [bson!("b"), bson!(3), bson!(["a", 2.0]), bson!(null), bson!(3.0), bson!("B"), bson!({})]
            .into_iter()
            .enumerate()
            .map(|(at, v)| doc! { "_id": at as i32, "v": v })
            .collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client.ok("db", doc! { "create": "view", "viewOn": "c", "pipeline": [] });
    for collection in ["c", "view"] {
        let found = client.ok("db", doc! { "distinct": collection, "key": "v" });
        let expected = bson!([null, 2.0, 3, "B", "a", "b", {}]);
        assert_eq!(found.get("values"), Some(&expected), "{collection}");
    }
    let collation = doc! { "locale": "en", "strength": 2 };
    let found = client.ok("db", doc! { "distinct": "c", "key": "v", "collation": collation });
    assert_eq!(found.get("values"), Some(&bson!([null, 2.0, 3, "a", "b", {}])));
}

#[test]
fn an_identical_replacement_changes_nothing() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1, "a": 1, "b": { "c": [1] } }] });
    for (replacement, modified) in [
        (doc! { "a": 1, "b": { "c": [1] } }, 0),
        (doc! { "a": 1, "b": { "c": [1] }, "_id": 1 }, 0),
        (doc! { "_id": 1.0, "a": 1, "b": { "c": [1] } }, 0),
        (doc! { "a": 1.0, "b": { "c": [1] } }, 1),
        (doc! { "b": { "c": [1] }, "a": 1.0 }, 1),
    ] {
        let updates = vec![doc! { "q": { "_id": 1 }, "u": replacement.clone() }];
        let reply = client.ok("db", doc! { "update": "c", "updates": updates });
        let counts = (reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap());
        assert_eq!(counts, (1, modified), "{replacement}");
    }
}

#[test]
fn a_positional_change_through_alternatives_finds_no_element() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1, "a": [1, 2], "b": 5 }] });
    let change = |q: Document| {
        let updates = vec![doc! { "q": q, "u": { "$set": { "a.$": 9 } } }];
        client.run("db", doc! { "update": "c", "updates": updates })
    };
    let reply = change(doc! { "$or": [{ "a": 2 }, { "b": 9 }] });
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().clone();
    assert_eq!(error.get_i32("code").unwrap(), 2);
    let text = "The positional operator did not find the match needed from the query.";
    assert_eq!(error.get_str("errmsg").unwrap(), text);
    assert!(!change(doc! { "$or": [{ "a": 2 }, { "a": 7 }] }).contains_key("writeErrors"));
    assert_eq!(all(&client, "c"), [doc! { "_id": 1, "a": [1, 9], "b": 5 }]);
}

#[test]
fn the_fields_of_references_are_paths_like_others() {
    let client = Client::new();
    let house = |id: i32, owner: i32| {
        doc! { "_id": id, "r": { "$ref": "people", "$id": owner, "$db": "db" } }
    };
    client.ok("db", doc! { "insert": "houses", "documents": [house(1, 20), house(2, 10)] });
    client.ok("db", doc! { "insert": "people", "documents": [{ "_id": 10 }, { "_id": 20 }] });
    let index = doc! { "key": { "r.$id": 1 }, "name": "owner" };
    client.ok("db", doc! { "createIndexes": "houses", "indexes": [index] });
    let ids = |found: Vec<Document>| -> Vec<i32> {
        found.iter().map(|document| document.get_i32("_id").unwrap()).collect()
    };
    let stages = |stages: Vec<Document>| aggregate(&client, "houses", stages);
    let find = |filter: Document, sort: Document| {
        batch(&client.ok("db", doc! { "find": "houses", "filter": filter, "sort": sort }))
    };
    assert_eq!(ids(find(doc! {}, doc! { "r.$id": 1 })), [2, 1]);
    assert_eq!(ids(find(doc! { "r.$id": 20 }, doc! {})), [1]);
    assert_eq!(ids(stages(vec![doc! { "$sort": { "r.$id": 1, "r.$ref": -1 } }])), [2, 1]);
    let lookup = doc! { "$lookup": {
    "from": "people", "localField": "r.$id", "foreignField": "_id", "as": "owner" } };
    let joined = stages(vec![lookup, doc! { "$sort": { "_id": 1 } }]);
    assert_eq!(joined[0].get("owner"), Some(&bson!([{ "_id": 20 }])));
    let back = doc! { "$lookup": {
    "from": "houses", "localField": "_id", "foreignField": "r.$id", "as": "houses" } };
    let owned = aggregate(&client, "people", vec![back, doc! { "$sort": { "_id": 1 } }]);
    assert_eq!(owned[0].get_array("houses").unwrap().len(), 1);
    let linked = doc! { "$graphLookup": {
    "from": "people", "startWith": "$r.$id", "connectFromField": "x.$id",
    "connectToField": "_id", "as": "linked" } };
    assert_eq!(stages(vec![linked])[0].get_array("linked").unwrap().len(), 1);
    for (stage, first) in [
        (doc! { "$project": { "r.$id": 1 } }, doc! { "_id": 1, "r": { "$id": 20 } }),
        (doc! { "$project": { "_id": 0, "x": "$r.$ref" } }, doc! { "x": "people" }),
        (doc! { "$project": { "_id": 0, "r.$ref": 0, "r.$db": 0 } }, doc! { "r": { "$id": 20 } }),
        (doc! { "$unset": ["r.$ref", "r.$db"] }, doc! { "_id": 1, "r": { "$id": 20 } }),
        (
            doc! { "$set": { "r.$id": 7 } },
            doc! { "_id": 1, "r": { "$ref": "people", "$id": 7, "$db": "db" } },
        ),
        (
            doc! { "$group": { "_id": "$r.$db", "n": { "$sum": "$r.$id" } } },
            doc! { "_id": "db", "n": 30 },
        ),
        (doc! { "$replaceRoot": { "newRoot": { "x": "$r.$id" } } }, doc! { "x": 20 }),
    ] {
        let found = stages(vec![doc! { "$sort": { "_id": 1 } }, stage.clone()]);
        assert_eq!(found[0], first, "{stage}");
    }
    let wrong =
        doc! { "aggregate": "houses", "pipeline": [{ "$sort": { "r.$ids": 1 } }], "cursor": {} };
    assert_eq!(client.run("db", wrong).get_i32("code").unwrap(), 16410);
    let found = client.ok("db", doc! { "distinct": "houses", "key": "r.$id" });
    assert_eq!(found.get("values"), Some(&bson!([10, 20])));
    let updates = vec![doc! { "q": { "r.$id": 20 }, "u": { "$set": { "r.$id": 30 } } }];
    client.ok("db", doc! { "update": "houses", "updates": updates });
    assert_eq!(ids(find(doc! { "r.$id": 30 }, doc! {})), [1]);
}

#[test]
fn the_profiler_does_not_tell_of_its_own_command() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    client.ok("db", doc! { "profile": 2 });
    client.ok("db", doc! { "profile": -1 });
    client.ok("db", doc! { "count": "c" });
    client.ok("db", doc! { "profile": 0 });
    let entries = all(&client, "system.profile");
    let commands: Vec<_> = entries.iter().map(|e| e.get_document("command").unwrap()).collect();
    let first: Vec<&String> = commands.iter().map(|c| c.keys().next().unwrap()).collect();
    assert_eq!(first, ["count"]);
}

#[test]
fn measurements_show_the_indexes_that_mongodb_makes() {
    let client = Client::new();
    let names = |collection: &str| -> Vec<String> {
        let found = batch(&client.ok("db", doc! { "listIndexes": collection }));
        found.iter().map(|index| index.get_str("name").unwrap().to_owned()).collect()
    };
    client.ok("db", doc! { "create": "plain", "timeseries": { "timeField": "t" } });
    client
        .ok("db", doc! { "create": "meta", "timeseries": { "timeField": "t", "metaField": "m" } });
    assert_eq!(names("plain"), [""; 0]);
    assert_eq!(names("meta"), ["m_1_t_1"]);
    let list = batch(&client.ok("db", doc! { "listCollections": 1 }));
    assert!(list.iter().all(|c| !c.get_document("info").unwrap().contains_key("uuid")));
    for name in ["t_1", "by_time"] {
        let index = doc! { "key": { "t": 1 }, "name": name };
        client.ok("db", doc! { "createIndexes": "plain", "indexes": [index] });
        assert_eq!(names("plain"), [name]);
        client.ok("db", doc! { "dropIndexes": "plain", "index": { "t": 1 } });
        assert_eq!(names("plain"), [""; 0]);
    }
    client.ok("db", doc! { "dropIndexes": "plain", "index": "*" });
    let shown = aggregate(&client, "plain", vec![doc! { "$indexStats": {} }]);
    assert!(shown.iter().all(|index| index.get_document("key").unwrap().get("t").is_none()));
    // It is there all the same, for scans by time.
    let explained = client.ok(
        "db",
        doc! { "explain": {
        "find": "plain", "filter": { "t": { "$gt": bson::DateTime::MIN } } } },
    );
    assert!(explained.to_string().contains("IXSCAN"), "{explained}");
    let own = doc! { "key": { "x": 1 }, "name": indexkeys::INTERNAL_TIME_INDEX };
    let refused = client.run("db", doc! { "createIndexes": "plain", "indexes": [own] });
    assert_eq!(refused.get_i32("code").unwrap(), 2);
}

#[test]
fn out_makes_collections_of_measurements() {
    let client = Client::new();
    let at = |seconds: i64| bson::DateTime::from_millis(seconds * 1000);
    let documents: Vec<Document> =
        (0..5).map(|i| doc! { "_id": i, "t": at(i64::from(i)), "m": i % 2 }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let series = doc! { "timeField": "t", "metaField": "m" };
    let out = |target: &str, series: Document| {
        let out = doc! { "$out": { "db": "db", "coll": target, "timeseries": series } };
        client.run("db", doc! { "aggregate": "c", "pipeline": [out], "cursor": {} })
    };
    for _ in 0..2 {
        assert_eq!(out("s", series.clone()).get_f64("ok").ok(), Some(1.0));
        assert_eq!(all(&client, "s").len(), 5);
        let list =
            batch(&client.ok("db", doc! { "listCollections": 1, "filter": { "name": "s" } }));
        assert_eq!(list[0].get_str("type").unwrap(), "timeseries");
        let indexes = batch(&client.ok("db", doc! { "listIndexes": "s" }));
        assert_eq!(indexes.len(), 1);
    }
    for (target, series, code) in [
        ("c", series.clone(), 7_268_700),
        ("s", doc! { "timeField": "t" }, 7_406_103),
        ("new", doc! { "metaField": "m" }, 40_414),
    ] {
        assert_eq!(out(target, series).get_i32("code").unwrap(), code, "{target}");
    }
    assert_eq!(all(&client, "c").len(), 5);
}

#[test]
fn reads_take_a_collection_by_its_uuid() {
    let client = Client::new();
    client.ok(
        "db",
        doc! { "insert": "c", "documents": [{ "_id": 1, "a": 5 }, { "_id": 2, "a": 5 }] },
    );
    client.ok("db", doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    let listed = batch(&client.ok("db", doc! { "listCollections": 1, "filter": { "name": "c" } }));
    let uuid = listed[0].get_document("info").unwrap().get("uuid").unwrap().clone();
    let found = client.ok("db", doc! { "find": uuid.clone(), "batchSize": 1 });
    assert_eq!(found.get_document("cursor").unwrap().get_str("ns").ok(), Some("db.c"));
    let id = found.get_document("cursor").unwrap().get_i64("id").unwrap();
    client.ok("db", doc! { "getMore": id, "collection": "c" });
    let count = client.ok("db", doc! { "count": uuid.clone(), "query": { "a": 5 } });
    assert_eq!(count.get_i32("n").ok(), Some(2));
    let distinct = client.ok("db", doc! { "distinct": uuid.clone(), "key": "a" });
    assert_eq!(distinct.get("values"), Some(&bson!([5])));
    assert_eq!(batch(&client.ok("db", doc! { "listIndexes": uuid.clone() })).len(), 1);
    let explain = doc! { "explain": { "find": uuid.clone() } };
    client.ok("db", explain);
    let unknown = Bson::from(bson::Uuid::from_bytes([7; 16]));
    let generic = Bson::Binary(bson::Binary {
        subtype: bson::spec::BinarySubtype::Generic,
        bytes: vec![7; 16],
    });
    for (database, name, code) in
        [("db", unknown, 26), ("other", uuid.clone(), 26), ("db", generic, 73)]
    {
        let commands = [
            doc! { "find": name.clone() },
            doc! { "count": name.clone() },
            doc! { "distinct": name.clone(), "key": "a" },
            doc! { "listIndexes": name.clone() },
        ];
        for command in commands {
            let reply = client.run(database, command.clone());
            assert_eq!(reply.get_i32("code").ok(), Some(code), "{command} gave {reply}");
        }
    }
    // What writes is told by name.
    let reply = client.run("db", doc! { "insert": uuid, "documents": [{}] });
    assert_eq!(reply.get_i32("code").ok(), Some(73));
}

#[test]
fn names_with_a_dollar_are_no_parts_of_paths_and_may_stand_in_values() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1, "n": { "x": 1 } }] });
    for (change, code) in [
        (doc! { "$set": { "$a": 1 } }, 52),
        (doc! { "$set": { "$a.b": 1 } }, 52),
        (doc! { "$inc": { "$a": 1 } }, 52),
        (doc! { "$unset": { "$a": 1 } }, 52),
        (doc! { "$push": { "$a": 1 } }, 52),
        (doc! { "$rename": { "n": "$a" } }, 52),
        (doc! { "$set": { "a.$b": 1 } }, 52),
        (doc! { "$set": { "d": { "$b": 1 } } }, 0),
        (doc! { "$set": { "": 1 } }, 56),
        (doc! { "$set": { "a..b": 1 } }, 56),
    ] {
        let update =
            doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": change.clone() }] };
        let reply = client.ok("db", update);
        let errors = reply.get_array("writeErrors").ok();
        let first =
            errors.map_or(0, |errors| errors[0].as_document().unwrap().get_i32("code").unwrap());
        assert_eq!(first, code, "{change}");
        let modify = doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": change.clone() };
        let reply = client.run("db", modify);
        assert_eq!(reply.get_i32("code").unwrap_or(0), code, "{change}");
    }
}

#[test]
fn what_the_server_keeps_for_itself_is_not_written_by_clients() {
    let client = Client::new();
    let refused = |database: &str, collection: &str| {
        for command in [
            doc! { "insert": collection, "documents": [{}] },
            doc! { "update": collection, "updates": [{ "q": {}, "u": { "a": 1 }, "upsert": true }] },
            doc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }] },
            doc! { "findAndModify": collection, "query": {}, "update": { "a": 1 }, "upsert": true },
            doc! { "create": collection },
            doc! { "drop": collection },
        ] {
            let reply = client.run(database, command.clone());
            let errors = reply.get_array("writeErrors").ok();
            let code = errors.map_or(reply.get_i32("code").ok(), |errors| {
                errors[0].as_document().unwrap().get_i32("code").ok()
            });
            assert_eq!(code, Some(73), "{database}: {command} gave {reply}");
        }
    };
    refused("config", "clusterParameters");
    let limit = doc! { "defaultMaxTimeMS": { "readOperations": 5000 } };
    client.ok("admin", doc! { "setClusterParameter": limit });
    refused("config", "clusterParameters");
    refused("config", "transactions");
    refused("local", "replset.election");
    let kept = client.ok("admin", doc! { "getClusterParameter": "defaultMaxTimeMS" });
    let kept = kept.get_array("clusterParameters").unwrap()[0].as_document().unwrap().clone();
    assert_eq!(kept.get("readOperations"), Some(&Bson::Int64(5000)));
    // A name beside it is anybody's.
    client.ok("config", doc! { "insert": "clusterParametersOfMine", "documents": [{}] });
    // With the database go the values that were stored there.
    client.ok("config", doc! { "dropDatabase": 1 });
    let kept = client.ok("admin", doc! { "getClusterParameter": "defaultMaxTimeMS" });
    let kept = kept.get_array("clusterParameters").unwrap()[0].as_document().unwrap().clone();
    assert_eq!(kept.get("readOperations"), Some(&Bson::Int64(0)));
}

#[test]
fn raw_data_is_taken_by_every_command_and_has_a_type() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1 }], "rawData": true });
    for (value, code) in [
        (Bson::Boolean(true), None),
        (Bson::Int32(0), None),
        (Bson::Null, None),
        (Bson::String("x".into()), Some(14)),
        (bson!({}), Some(14)),
    ] {
        for command in [
            doc! { "find": "c" },
            doc! { "aggregate": "c", "pipeline": [], "cursor": {} },
            doc! { "count": "c" },
            doc! { "distinct": "c", "key": "_id" },
            doc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] },
            doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] },
            doc! { "listIndexes": "c" },
        ] {
            let mut command = command;
            command.insert("rawData", value.clone());
            let reply = client.run("db", command.clone());
            assert_eq!(reply.get_i32("code").ok(), code, "{command} gave {reply}");
        }
    }
}

#[test]
fn a_block_of_user_writes_is_refused_by_its_reason() {
    let run = |client: &Client, extra: Document| {
        let mut command = doc! { "setUserWriteBlockMode": 1 };
        command.extend(extra);
        client.run("admin", command).get_i32("code").ok()
    };
    let alone = Client::new();
    for (extra, code) in [
        (doc! {}, 40414),
        (doc! { "global": 1 }, 14),
        (doc! { "global": true, "reason": 5 }, 14),
        (doc! { "global": true, "local": true }, 40415),
        (doc! { "global": true }, 20),
    ] {
        assert_eq!(run(&alone, extra.clone()), Some(code), "{extra}");
    }
    let not_admin = alone.run("db", doc! { "setUserWriteBlockMode": 1, "global": true });
    assert_eq!(not_admin.get_i32("code").ok(), Some(13));
    let (name, address) = ("rs".to_owned(), "localhost:1".to_owned());
    let member = Client::member(serverstate::replication::ReplicaSetOptions {
        name,
        address,
        initiate: true,
    });
    member.service.start_replication().unwrap();
    assert_eq!(run(&member, doc! { "global": true }), Some(238));
}
