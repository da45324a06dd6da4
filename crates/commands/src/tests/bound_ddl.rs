//! Collections and indexes that a connection's transaction makes, renames and drops.

use super::Client;
use bson::{Document, doc};
use std::time::Duration;

fn begin(client: &Client, isolation: &str) {
    client.ok("db", doc! { "beginTransaction": 1, "isolation": isolation });
}

fn commit(client: &Client) {
    client.ok("db", doc! { "commitTransaction": 1 });
}

fn roll_back(client: &Client) {
    client.ok("db", doc! { "rollbackTransaction": 1 });
}

fn code(client: &Client, command: Document) -> i32 {
    client.run("db", command).get_i32("code").unwrap_or(0)
}

fn insert(collection: &str, id: i32, n: i32) -> Document {
    doc! { "insert": collection, "documents": [{ "_id": id, "n": n }] }
}

fn by_n(collection: &str, unique: bool) -> Document {
    let index = doc! { "key": { "n": 1 }, "name": "n", "unique": unique };
    doc! { "createIndexes": collection, "indexes": [index] }
}

fn batch(client: &Client, command: Document) -> Vec<Document> {
    let reply = client.ok("db", command);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|found| found.as_document().unwrap().clone()).collect()
}

/// The ids of the documents with this `n`, found by the index on it.
fn found_by_n(client: &Client, collection: &str, n: i32) -> Vec<i32> {
    let find = doc! { "find": collection, "filter": { "n": n }, "hint": "n" };
    batch(client, find).iter().map(|found| found.get_i32("_id").unwrap()).collect()
}

fn ids(client: &Client, collection: &str) -> Vec<i32> {
    let find = doc! { "find": collection, "sort": { "_id": 1 } };
    batch(client, find).iter().map(|found| found.get_i32("_id").unwrap()).collect()
}

fn count(client: &Client, collection: &str) -> i32 {
    client.ok("db", doc! { "count": collection }).get_i32("n").unwrap()
}

fn names(client: &Client) -> Vec<String> {
    let list = batch(client, doc! { "listCollections": 1, "nameOnly": true });
    list.iter().map(|found| found.get_str("name").unwrap().to_owned()).collect()
}

fn indexes(client: &Client, collection: &str) -> usize {
    batch(client, doc! { "listIndexes": collection }).len()
}

/// A collection `c` with an index on `n` and three documents.
fn filled() -> (Client, Client) {
    let client = Client::new();
    let other = client.another(2);
    for id in 1..=3 {
        client.ok("db", insert("c", id, id * 10));
    }
    client.ok("db", by_n("c", false));
    (client, other)
}

#[test]
fn dropped_collection_is_there_for_others_until_the_commit() {
    for isolation in ["mvcc", "readUncommitted", "serializable"] {
        let (client, other) = filled();
        for commits in [false, true] {
            begin(&client, isolation);
            client.ok("db", insert("c", 4, 40));
            assert_eq!(client.ok("db", doc! { "drop": "c" }).get_i32("nIndexesWas").unwrap(), 2);
            assert!(ids(&client, "c").is_empty() && names(&client).is_empty(), "{isolation}");
            assert_eq!(code(&client, doc! { "listIndexes": "c" }), 26);
            assert_eq!((ids(&other, "c"), count(&other, "c")), (vec![1, 2, 3], 3), "{isolation}");
            assert_eq!(found_by_n(&other, "c", 20), [2]);
            if commits {
                commit(&client);
            } else {
                roll_back(&client);
            }
            let left = if commits { vec![] } else { vec![1, 2, 3] };
            for client in [&client, &other] {
                assert_eq!(ids(client, "c"), left, "{isolation}");
                assert_eq!(count(client, "c") as usize, left.len());
            }
        }
        client.ok("db", insert("c", 9, 9));
        assert_eq!((ids(&other, "c"), indexes(&other, "c")), (vec![9], 1));
    }
}

#[test]
fn statement_that_fails_gives_a_dropped_collection_back() {
    let (client, _) = filled();
    begin(&client, "mvcc");
    client.ok("db", insert("c", 4, 40));
    client.ok("db", doc! { "create": "d" });
    // The source is dropped with the target, or not at all.
    let rename = doc! { "renameCollection": "db.c", "to": "db.d" };
    assert_eq!(client.run("admin", rename.clone()).get_i32("code").unwrap(), 48);
    assert_eq!(ids(&client, "c"), [1, 2, 3, 4]);
    let mut over = rename;
    over.insert("dropTarget", true);
    client.ok("admin", over);
    assert_eq!((ids(&client, "d"), names(&client)), (vec![1, 2, 3, 4], vec!["d".to_owned()]));
    client.ok("db", insert("d", 5, 50));
    client.ok("db", insert("c", 1, 1));
    assert_eq!(found_by_n(&client, "d", 50), [5]);
    commit(&client);
    assert_eq!((ids(&client, "d"), ids(&client, "c")), (vec![1, 2, 3, 4, 5], vec![1]));
    assert_eq!((count(&client, "d"), count(&client, "c")), (5, 1));
    assert_eq!((indexes(&client, "d"), indexes(&client, "c")), (2, 1));
}

#[test]
fn renamed_collection_keeps_its_name_where_it_is_rolled_back() {
    let (client, other) = filled();
    begin(&client, "mvcc");
    client.ok("db", insert("c", 4, 40));
    client.ok("admin", doc! { "renameCollection": "db.c", "to": "db.d" });
    client.ok("db", insert("d", 5, 50));
    assert_eq!((ids(&client, "d"), ids(&other, "c")), (vec![1, 2, 3, 4, 5], vec![1, 2, 3]));
    assert!(ids(&client, "c").is_empty() && ids(&other, "d").is_empty());
    roll_back(&client);
    assert_eq!((ids(&client, "c"), names(&other)), (vec![1, 2, 3], vec!["c".to_owned()]));
    client.ok("db", insert("c", 4, 40));
    assert_eq!((count(&other, "c"), found_by_n(&other, "c", 40)), (4, vec![4]));
}

#[test]
fn index_of_a_collection_that_was_there_is_built_with_the_transactions_own_documents() {
    for isolation in ["mvcc", "readUncommitted", "serializable"] {
        let (client, other) = filled();
        client.ok("db", doc! { "dropIndexes": "c", "index": "n" });
        let older = other.service.catalog.snapshot();
        for commits in [false, true] {
            begin(&client, isolation);
            client.ok("db", insert("c", 4, 40));
            let reply = client.ok("db", by_n("c", true));
            let numbers = ["numIndexesBefore", "numIndexesAfter"];
            assert_eq!(numbers.map(|name| reply.get_i32(name).unwrap()), [1, 2], "{isolation}");
            client.ok("db", insert("c", 5, 50));
            let double = client.ok("db", insert("c", 6, 20));
            assert_eq!(double.get_array("writeErrors").unwrap().len(), 1);
            assert_eq!(
                (found_by_n(&client, "c", 40), found_by_n(&client, "c", 50)),
                (vec![4], vec![5])
            );
            assert_eq!((indexes(&client, "c"), indexes(&other, "c")), (2, 1));
            if commits {
                commit(&client);
            } else {
                roll_back(&client);
            }
            assert_eq!(indexes(&other, "c"), if commits { 2 } else { 1 });
        }
        drop(older);
        assert_eq!((found_by_n(&other, "c", 10), ids(&other, "c")), (vec![1], vec![1, 2, 3, 4, 5]));
        let double = other.ok("db", insert("c", 6, 20));
        assert_eq!(double.get_array("writeErrors").unwrap().len(), 1);
        other.ok("db", doc! { "validate": "c", "full": true });
    }
}

#[test]
fn unique_index_over_equal_values_fails_and_leaves_nothing() {
    let (client, _) = filled();
    client.ok("db", doc! { "dropIndexes": "c", "index": "n" });
    client.ok("db", insert("c", 4, 10));
    begin(&client, "mvcc");
    assert_eq!(code(&client, by_n("c", true)), 11000);
    assert_eq!((indexes(&client, "c"), ids(&client, "c")), (1, vec![1, 2, 3, 4]));
    client.ok("db", by_n("c", false));
    client.ok("db", doc! { "dropIndexes": "c", "index": "n" });
    assert_eq!(indexes(&client, "c"), 1);
    client.ok("db", by_n("c", false));
    commit(&client);
    assert_eq!((indexes(&client, "c"), found_by_n(&client, "c", 10)), (2, vec![1, 4]));
}

#[test]
fn index_over_what_the_snapshot_does_not_see_is_refused() {
    let (client, other) = filled();
    begin(&client, "mvcc");
    assert_eq!(ids(&client, "c"), [1, 2, 3]);
    other.ok("db", insert("c", 4, 40));
    let by_x = doc! { "createIndexes": "c", "indexes": [{ "key": { "x": 1 }, "name": "x" }] };
    assert_eq!(code(&client, by_x.clone()), 16759);
    roll_back(&client);
    begin(&client, "readUncommitted");
    client.ok("db", by_x);
    commit(&client);
    assert_eq!(indexes(&other, "c"), 3);
}

#[test]
fn changed_collection_has_one_writer_until_the_end() {
    let (client, other) = filled();
    let third = client.another(3);
    begin(&client, "mvcc");
    client.ok("db", doc! { "dropIndexes": "c", "index": "n" });
    begin(&other, "mvcc");
    other.ok("db", doc! { "setClientLockTimeout": 0 });
    for refused in
        [insert("c", 4, 40), doc! { "drop": "c" }, doc! { "dropIndexes": "c", "index": "n" }]
    {
        assert_eq!(code(&other, refused.clone()), 16759, "{refused}");
    }
    assert_eq!(found_by_n(&other, "c", 20), [2]);
    roll_back(&other);
    std::thread::scope(|scope| {
        // Outside a transaction it waits, and nobody is told of it.
        let waits = scope.spawn(|| third.ok("db", insert("c", 4, 40)));
        client.ok("db", insert("c", 5, 50));
        commit(&client);
        waits.join().unwrap();
    });
    assert_eq!((ids(&client, "c"), indexes(&client, "c")), (vec![1, 2, 3, 4, 5], 1));
}

#[test]
fn writers_inside_keep_a_drop_out() {
    let (client, other) = filled();
    begin(&other, "mvcc");
    other.ok("db", insert("c", 4, 40));
    begin(&client, "mvcc");
    client.ok("db", insert("c", 5, 50));
    client.ok("db", doc! { "setClientLockTimeout": 0 });
    assert_eq!(code(&client, doc! { "drop": "c" }), 16759);
    client.ok("db", insert("c", 6, 60));
    commit(&other);
    client.ok("db", doc! { "dropIndexes": "c", "index": "*" });
    commit(&client);
    assert_eq!((ids(&client, "c"), count(&client, "c")), (vec![1, 2, 3, 4, 5, 6], 6));
}

#[test]
fn changes_are_there_after_a_restart() {
    let (client, _) = filled();
    begin(&client, "mvcc");
    client.ok("admin", doc! { "renameCollection": "db.c", "to": "db.d" });
    client.ok("db", doc! { "dropIndexes": "d", "index": "n" });
    client.ok("db", by_n("d", true));
    client.ok("db", insert("c", 7, 70));
    client.ok("db", by_n("c", false));
    client.ok("db", doc! { "create": "gone" });
    client.ok("db", doc! { "drop": "gone" });
    commit(&client);
    let again = client.restarted(4);
    assert_eq!(names(&again), ["c", "d"]);
    assert_eq!((found_by_n(&again, "c", 70), found_by_n(&again, "d", 30)), (vec![7], vec![3]));
    assert_eq!((count(&again, "c"), count(&again, "d")), (1, 3));
    for collection in ["c", "d"] {
        let report = again.ok("db", doc! { "validate": collection, "full": true });
        assert!(report.get_bool("valid").unwrap(), "{report}");
    }
}

#[test]
fn failed_changes_leave_marks_and_counts_as_they_were() {
    let (client, other) = filled();
    client.ok("db", insert("d", 1, 1));
    begin(&client, "mvcc");
    assert_eq!(code(&client, doc! { "dropIndexes": "c", "index": ["n", "missing"] }), 27);
    let arrays = doc! { "insert": "c", "documents": [{ "_id": 7, "n": [1, 10] }] };
    client.ok("db", arrays);
    commit(&client);
    begin(&client, "mvcc");
    client.ok("db", insert("d", 9, 9));
    // It changes what the transaction is about to rename.
    other.ok("db", doc! { "collMod": "c", "validationLevel": "moderate" });
    let rename = doc! { "renameCollection": "db.c", "to": "db.d", "dropTarget": true };
    assert_eq!(client.run("admin", rename).get_i32("code").unwrap(), 16759);
    client.ok("db", insert("d", 10, 10));
    client.ok("db", doc! { "create": "e" });
    commit(&client);
    let again = client.restarted(4);
    for client in [&other, &again] {
        let range = doc! { "find": "c", "filter": { "n": { "$gt": 5, "$lt": 3 } }, "hint": "n" };
        assert_eq!(batch(client, range).len(), 1, "the mark of the arrays is there");
        assert_eq!((count(client, "d"), ids(client, "d")), (3, vec![1, 9, 10]));
        for collection in ["c", "d"] {
            let report = client.ok("db", doc! { "validate": collection, "full": true });
            assert!(report.get_bool("valid").unwrap(), "{report}");
        }
    }
    let find = doc! { "find": "d", "batchSize": 1 };
    let cursor = other.ok("db", find).get_document("cursor").unwrap().get_i64("id").unwrap();
    other.ok("db", doc! { "getMore": cursor, "collection": "d" });
}

#[test]
fn build_that_waits_for_a_transaction_has_its_documents() {
    for round in 0..5 {
        let (client, other) = filled();
        begin(&client, "mvcc");
        client.ok("db", insert("c", 4, 1));
        std::thread::scope(|scope| {
            let index = doc! { "key": { "x": 1 }, "name": "x" };
            let command = doc! { "createIndexes": "c", "indexes": [index] };
            let builds = scope.spawn(|| other.run("db", command));
            std::thread::sleep(Duration::from_millis(30 * round));
            // It has to let go of its share: the build may come between.
            let dropped = client.run("db", doc! { "dropIndexes": "c", "index": "n" });
            if dropped.get_f64("ok").ok() == Some(1.0) {
                client.ok("db", insert("c", 5, 1));
                commit(&client);
            } else {
                assert_eq!(dropped.get_i32("code").unwrap(), 16759, "{dropped}");
                client.run("db", doc! { "rollbackTransaction": 1 });
            }
            builds.join().unwrap();
        });
        let report = client.ok("db", doc! { "validate": "c", "full": true });
        assert!(report.get_bool("valid").unwrap(), "{report}");
    }
}
