//! `bulkWrite`, as a driver of MongoDB 8 sends it.

use super::*;

fn bulk(ops: Vec<Document>) -> Document {
    doc! { "bulkWrite": 1, "ops": ops, "nsInfo": [{ "ns": "db.a" }, { "ns": "other.b" }] }
}

fn with(mut command: Document, more: Document) -> Document {
    command.extend(more);
    command
}

fn items(reply: &Document) -> Vec<Document> {
    let cursor = reply.get_document("cursor").unwrap();
    assert_eq!(cursor.get_str("ns").unwrap(), "admin.$cmd.bulkWrite");
    let batch = cursor.get_array("firstBatch").unwrap();
    batch.iter().map(|item| item.as_document().unwrap().clone()).collect()
}

/// Errors, inserted, matched, modified, upserted, deleted.
fn sums(reply: &Document) -> [i32; 6] {
    ["nErrors", "nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"]
        .map(|name| reply.get_i32(name).unwrap())
}

#[test]
fn operations_of_several_collections_are_done_and_told() {
    let client = Client::new();
    let ops = vec![
        doc! { "insert": 0, "document": { "_id": 1, "x": 1 } },
        doc! { "insert": 0, "document": { "_id": 2, "x": 1 } },
        doc! { "insert": 1, "document": { "_id": 1 } },
        doc! { "update": 0, "filter": { "x": 1 }, "updateMods": { "$inc": { "x": 1 } }, "multi": true },
        doc! { "update": 0, "filter": { "_id": 9 }, "updateMods": [{ "$set": { "x": "$$y" } }],
        "upsert": true },
        doc! { "update": 0, "filter": { "_id": 1 }, "updateMods": { "x": 2 } },
        doc! { "update": 0, "filter": {}, "updateMods": { "$set": { "last": true } },
        "sort": { "_id": -1 } },
        doc! { "delete": 0, "filter": { "$expr": { "$eq": ["$x", "$$y"] } }, "multi": true },
        doc! { "delete": 1, "filter": {} },
    ];
    let reply = client.ok("admin", with(bulk(ops), doc! { "let": { "y": 7 } }));
    let done = |idx: i32, n: i32| doc! { "ok": 1.0, "idx": idx, "n": n };
    let wanted = [
        done(0, 1),
        done(1, 1),
        done(2, 1),
        with(done(3, 2), doc! { "nModified": 2 }),
        with(done(4, 1), doc! { "nModified": 0, "upserted": { "_id": 9 } }),
        with(done(5, 1), doc! { "nModified": 0 }),
        with(done(6, 1), doc! { "nModified": 1 }),
        done(7, 1),
        done(8, 1),
    ];
    assert_eq!(items(&reply), wanted);
    assert_eq!(sums(&reply), [0, 3, 4, 3, 1, 2]);
}

#[test]
fn an_error_ends_an_ordered_batch_and_only_itself_in_others() {
    let client = Client::new();
    let ops = || {
        let insert = |id: i32| doc! { "insert": 0, "document": { "_id": id } };
        let bad =
            doc! { "update": 0, "filter": { "$foo": 1 }, "updateMods": { "$set": { "a": 1 } } };
        vec![insert(1), insert(1), insert(2), bad, insert(3)]
    };
    let reply = client.ok("admin", bulk(ops()));
    let told = items(&reply);
    assert_eq!((told.len(), sums(&reply)), (2, [1, 1, 0, 0, 0, 0]));
    let failed = &told[1];
    assert_eq!(failed.get_i32("code").unwrap(), 11000);
    assert_eq!(failed.get_document("keyValue").unwrap(), &doc! { "_id": 1 });
    assert_eq!((failed.get_i32("idx").unwrap(), failed.get_f64("ok").ok()), (1, Some(0.0)));
    client.ok("db", doc! { "drop": "a" });
    let reply =
        client.ok("admin", with(bulk(ops()), doc! { "ordered": false, "errorsOnly": true }));
    let told: Vec<_> = items(&reply)
        .iter()
        .map(|item| (item.get_i32("idx").unwrap(), item.get_i32("code").unwrap()))
        .collect();
    assert_eq!((told, sums(&reply)), (vec![(1, 11000), (3, 2)], [2, 3, 0, 0, 0, 0]));
}

#[test]
fn results_beyond_the_batch_are_fetched() {
    let client = Client::new();
    let ops = (0..5).map(|id| doc! { "insert": 0, "document": { "_id": id } }).collect();
    let reply = client.ok("admin", with(bulk(ops), doc! { "cursor": { "batchSize": 2 } }));
    assert_eq!(items(&reply).len(), 2);
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = client.ok("admin", doc! { "getMore": id, "collection": "$cmd.bulkWrite" });
    let more = more.get_document("cursor").unwrap();
    assert_eq!(more.get_array("nextBatch").unwrap().len(), 3);
}

#[test]
fn what_cannot_be_read_changes_nothing() {
    let client = Client::new();
    let good = doc! { "insert": 0, "document": { "_id": 1 } };
    for (ops, code) in [
        (vec![], 16),
        (vec![good.clone(), doc! { "insert": 2, "document": {} }], 2),
        (vec![good.clone(), doc! { "insert": -1, "document": {} }], 2),
        (vec![good.clone(), doc! { "insert": 0 }], 40414),
        (vec![good.clone(), doc! { "replace": 0, "document": {} }], 40415),
        (vec![good.clone(), doc! { "update": 0, "filter": {} }], 40414),
        (vec![good.clone(), doc! { "update": 0, "filter": {}, "updateMods": 1 }], 9),
        (vec![good.clone(), doc! { "delete": 0, "filter": {}, "limit": 1 }], 40415),
    ] {
        let reply = client.run("admin", bulk(ops.clone()));
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{ops:?} gave {reply}");
    }
    assert_eq!(client.run("db", bulk(vec![good.clone()])).get_i32("code").ok(), Some(13));
    let numbers = doc! { "stmtIds": [1, 2] };
    let reply = client.run("admin", with(bulk(vec![good]), numbers));
    assert_eq!(reply.get_i32("code").ok(), Some(16));
    assert_eq!(client.ok("db", doc! { "count": "a" }).get_i32("n").unwrap(), 0);
}

fn numbered(command: Document, number: i64) -> Document {
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
    with(command, doc! { "lsid": { "id": id }, "txnNumber": number })
}

#[test]
fn sent_twice_under_one_number_it_is_done_once() {
    let options = serverstate::replication::ReplicaSetOptions {
        name: "rs".into(),
        address: "here:1".into(),
        initiate: true,
    };
    let client = Client::member(options);
    client.service.start_replication().unwrap();
    let ops = vec![
        doc! { "insert": 0, "document": { "_id": 1, "n": 0 } },
        doc! { "insert": 0, "document": { "_id": 2 } },
        doc! { "update": 0, "filter": { "_id": 1 }, "updateMods": { "$inc": { "n": 1 } } },
        doc! { "delete": 0, "filter": { "_id": 2 } },
    ];
    let command = numbered(bulk(ops), 1);
    let first = client.ok("admin", command.clone());
    let second = client.ok("admin", command);
    assert_eq!((items(&first), sums(&first)), (items(&second), sums(&second)));
    let found = client.ok("db", doc! { "find": "a" });
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch, &vec![bson::Bson::Document(doc! { "_id": 1, "n": 1 })]);
    let many = vec![doc! { "delete": 0, "filter": {}, "multi": true }];
    assert_eq!(client.run("admin", numbered(bulk(many), 2)).get_i32("code").unwrap(), 72);
}

#[test]
fn in_a_transaction_an_error_ends_it() {
    let client = Client::new();
    let start = |ops: Vec<Document>, number: i64| {
        let more = doc! { "autocommit": false, "startTransaction": true };
        client.ok("admin", with(numbered(bulk(ops), number), more))
    };
    let insert = |id: i32| doc! { "insert": 0, "document": { "_id": id } };
    let end = |name: &str, number: i64| {
        client.run("admin", with(numbered(doc! { name: 1 }, number), doc! { "autocommit": false }))
    };
    start(vec![insert(1), insert(2)], 1);
    assert_eq!(end("commitTransaction", 1).get_i32("code").ok(), None);
    assert_eq!(start(vec![insert(3), insert(1)], 2).get_i32("nErrors").unwrap(), 1);
    assert_eq!(end("commitTransaction", 2).get_i32("code").unwrap(), 251);
    assert_eq!(client.ok("db", doc! { "count": "a" }).get_i32("n").unwrap(), 2);
}
