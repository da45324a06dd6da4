//! Databases, collections and indexes from the outside.

use super::Client;
use bson::{Bson, doc};

fn names(reply: &bson::Document) -> Vec<String> {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|d| d.as_document().unwrap().get_str("name").unwrap().to_owned()).collect()
}

#[test]
fn collection_is_created_listed_and_dropped() {
    let client = Client::new();
    client.ok("db", doc! { "create": "b" });
    client.ok("db", doc! { "create": "a", "compression": "zlib" });
    assert_eq!(client.run("db", doc! { "create": "a" }).get_i32("code").ok(), Some(48));
    let list = client.ok("db", doc! { "listCollections": 1 });
    assert_eq!(names(&list), ["a", "b"]);
    let cursor = list.get_document("cursor").unwrap();
    assert_eq!(cursor.get_str("ns").ok(), Some("db.$cmd.listCollections"));
    assert_eq!(cursor.get_i64("id").ok(), Some(0));
    let first = cursor.get_array("firstBatch").unwrap()[0].as_document().unwrap();
    assert_eq!(first.get_document("options").unwrap(), &doc! { "compression": "zlib" });
    assert_eq!(
        first.get_document("idIndex").unwrap(),
        &doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" }
    );
    assert!(first.get_document("info").unwrap().get_binary_generic("uuid").is_err());
    let short = client.ok("db", doc! { "listCollections": 1, "nameOnly": true });
    let first = &short.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0];
    assert_eq!(first, &Bson::Document(doc! { "name": "a", "type": "collection" }));
    let dropped = client.ok("db", doc! { "drop": "a" });
    assert_eq!(dropped, doc! { "nIndexesWas": 1, "ns": "db.a", "ok": 1.0 });
    assert_eq!(client.ok("db", doc! { "drop": "a" }), doc! { "ok": 1.0 });
}

#[test]
fn list_is_parked_and_continued() {
    let client = Client::new();
    for name in ["a", "b", "c"] {
        client.ok("db", doc! { "create": name });
    }
    let list = client.ok("db", doc! { "listCollections": 1, "cursor": { "batchSize": 1 } });
    let id = list.get_document("cursor").unwrap().get_i64("id").unwrap();
    assert_ne!(id, 0);
    let more = client
        .ok("db", doc! { "getMore": id, "collection": "$cmd.listCollections", "batchSize": 5 });
    let cursor = more.get_document("cursor").unwrap();
    assert_eq!(cursor.get_array("nextBatch").unwrap().len(), 2);
    assert_eq!(cursor.get_i64("id").ok(), Some(0));
    client.fails(
        "db",
        doc! { "getMore": id, "collection": "$cmd.listCollections" },
        43,
        &format!("cursor id {id} not found"),
    );
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    let client = Client::new();
    for command in [
        doc! { "create": "c", "capped": true },
        doc! { "create": "c", "validator": { "a": { "$near": 1 } } },
        doc! { "create": "c", "timeseries": { "timeField": "t", "capped": true } },
    ] {
        assert_eq!(client.run("db", command).get_f64("ok").ok(), Some(0.0));
    }
    assert!(names(&client.ok("db", doc! { "listCollections": 1 })).is_empty());
}

#[test]
fn indexes_are_built_listed_and_dropped() {
    let client = Client::new();
    let index = doc! { "key": { "a": 1 }, "name": "a_1", "unique": true };
    let create = doc! { "createIndexes": "c", "indexes": [index] };
    let first = client.ok("db", create.clone());
    assert_eq!(
        first,
        doc! {
            "numIndexesBefore": 1, "numIndexesAfter": 2, "createdCollectionAutomatically": true,
            "ok": 1.0,
        }
    );
    let second = client.ok("db", create);
    assert_eq!(second.get_str("note").ok(), Some("all indexes already exist"));
    let list = client.ok("db", doc! { "listIndexes": "c" });
    assert_eq!(names(&list), ["_id_", "a_1"]);
    client.fails("db", doc! { "listIndexes": "x" }, 26, "ns does not exist: db.x");
    client.fails(
        "db",
        doc! { "createIndexes": "c", "indexes": [] },
        2,
        "Must specify at least one index to create",
    );
    client.ok("db", doc! { "collMod": "c", "index": { "name": "a_1", "hidden": true } });
    let dropped = client.ok("db", doc! { "dropIndexes": "c", "index": "*" });
    assert_eq!(dropped.get_i32("nIndexesWas").ok(), Some(2));
    assert_eq!(
        client.run("db", doc! { "deleteIndexes": "c", "index": "a_1" }).get_i32("code").ok(),
        Some(27)
    );
}

#[test]
fn options_of_an_index_that_change_nothing_are_shown_as_given() {
    let client = Client::new();
    let index = doc! {
        "key": { "a": 1 }, "name": "a_1", "background": true, "sparse": false, "unique": false,
        "hidden": false, "dropDups": true, "storageEngine": {}, "collation": { "locale": "simple" },
    };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index.clone()] });
    let list = client.ok("db", doc! { "listIndexes": "c" });
    let batch = list.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(
        batch[1].as_document(),
        Some(&doc! {
            "v": 2, "key": { "a": 1 }, "name": "a_1", "background": true, "sparse": false,
            "storageEngine": {},
        })
    );
    let again = client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    assert_eq!(again.get_str("note").ok(), Some("all indexes already exist"));
}

#[test]
fn hashed_indexes_are_neither_unique_nor_hashed_twice() {
    let client = Client::new();
    let create = |index: bson::Document| doc! { "createIndexes": "c", "indexes": [index] };
    client.fails(
        "db",
        create(doc! { "key": { "a": "hashed" }, "name": "x", "unique": true }),
        16764,
        "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.",
    );
    client.fails(
        "db",
        create(doc! { "key": { "a": "hashed", "b": "hashed" }, "name": "x" }),
        31303,
        "A maximum of one index field is allowed to be hashed but found 2 for 'key' { a: \
         \"hashed\", b: \"hashed\" }",
    );
    client.ok("db", create(doc! { "key": { "_id": "hashed" }, "name": "_id_hashed" }));
    let list = client.ok("db", doc! { "listIndexes": "c" });
    assert_eq!(names(&list), ["_id_", "_id_hashed"]);
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    client.ok("db", doc! { "dropIndexes": "c", "index": { "_id": "hashed" } });
}

#[test]
fn expired_documents_are_deleted_until_the_server_ends() {
    let client = Client::new();
    let index = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 0 };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    let old = bson::DateTime::from_millis(0);
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1, "at": old }, { "_id": 2 }] });
    let was = client.ok("admin", doc! { "setParameter": 1, "ttlMonitorSleepSecs": 1 });
    assert_eq!(was.get_i32("was").ok(), Some(60));
    client.fails(
        "admin",
        doc! { "setParameter": 1, "ttlMonitorSleepSecs": 0 },
        2,
        "Invalid value for parameter ttlMonitorSleepSecs: 0 is not greater than or equal to 1",
    );
    while client.ok("db", doc! { "count": "c" }).get_i32("n").unwrap() != 1 {
        client.service.wait(std::time::Duration::from_millis(20));
    }
    client.service.end_waits();
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 3, "at": old }] });
    let get = client.ok("admin", doc! { "getParameter": 1, "ttlMonitorSleepSecs": 1 });
    assert_eq!(get.get_i32("ttlMonitorSleepSecs").ok(), Some(1));
}

#[test]
fn databases_come_and_go_with_their_collections() {
    let client = Client::new();
    client.ok("one", doc! { "create": "c" });
    client.ok("two", doc! { "create": "c" });
    let list = client.ok("admin", doc! { "listDatabases": 1, "nameOnly": true });
    let all = list.get_array("databases").unwrap();
    let names: Vec<_> =
        all.iter().map(|d| d.as_document().unwrap().get_str("name").unwrap()).collect();
    assert_eq!(names, ["admin", "local", "one", "two"]);
    client.ok("admin", doc! { "renameCollection": "one.c", "to": "three.d" });
    assert_eq!(client.ok("one", doc! { "dropDatabase": 1 }), doc! { "ok": 1.0 });
    let dropped = client.ok("two", doc! { "dropDatabase": 1 });
    assert_eq!(dropped, doc! { "dropped": "two", "ok": 1.0 });
    let list = client.ok("admin", doc! { "listDatabases": 1 });
    let all = list.get_array("databases").unwrap();
    assert_eq!(all[2].as_document().unwrap().get_str("name").ok(), Some("three"));
    assert_eq!(all.len(), 3);
}

#[test]
fn statistics_have_their_shapes() {
    let client = Client::new();
    client.ok("db", doc! { "create": "c" });
    let stats = client.ok("db", doc! { "collStats": "c" });
    assert_eq!((stats.get_i32("count").ok(), stats.get_i32("nindexes").ok()), (Some(0), Some(1)));
    assert_eq!(client.ok("db", doc! { "collStats": "none" }).get_i32("nindexes").ok(), Some(0));
    let stats = client.ok("db", doc! { "dbStats": 1, "scale": 1024 });
    assert_eq!(
        (stats.get_i64("collections").ok(), stats.get_i64("scaleFactor").ok()),
        (Some(1), Some(1024))
    );
    client.fails(
        "db",
        doc! { "dbStats": 1, "scale": 0 },
        2,
        "BSON field 'scale' value must be >= 1, actual value '0'",
    );
    assert_eq!(client.ok("db", doc! { "dataSize": "db.c" }).get_i32("size").ok(), Some(0));
}

#[test]
fn validate_reports_every_index() {
    let client = Client::new();
    client
        .ok("db", doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] });
    let report = client.ok("db", doc! { "validate": "c", "full": true });
    assert_eq!(report.get_bool("valid").ok(), Some(true));
    assert_eq!(report.get_document("keysPerIndex").unwrap(), &doc! { "_id_": 0_i64, "a_1": 0_i64 });
    client.fails(
        "db",
        doc! { "validate": "x" },
        26,
        "Collection 'db.x' does not exist to validate.",
    );
}

#[test]
fn fsync_and_checkpoint_run() {
    let client = Client::new();
    assert_eq!(client.ok("admin", doc! { "fsync": 1 }).get_i32("numFiles").ok(), Some(1));
    client.ok("admin", doc! { "checkpoint": 1 });
    assert_eq!(client.run("admin", doc! { "logRotate": 1 }).get_i32("code").ok(), Some(96));
    client.ok("admin", doc! { "shutdown": 1 });
}
