//! Transactions and retryable writes from the outside.

use super::Client;
use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use std::sync::atomic::Ordering;

fn lsid(byte: u8) -> Document {
    doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] } }
}

/// A command as a statement of session `byte`'s transaction `number`.
fn statement(mut command: Document, byte: u8, number: i64, starts: bool) -> Document {
    command.insert("lsid", lsid(byte));
    command.insert("txnNumber", number);
    command.insert("autocommit", false);
    if starts {
        command.insert("startTransaction", true);
    }
    command
}

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id, "n": 0 }] }
}

fn increment(id: i32) -> Document {
    doc! { "update": "c", "updates": [{ "q": { "_id": id }, "u": { "$inc": { "n": 1 } } }] }
}

fn end(client: &Client, what: &str, byte: u8, number: i64) -> Document {
    client.run("admin", statement(doc! { what: 1 }, byte, number, false))
}

fn ids(client: &Client, find: Document) -> Vec<i32> {
    let reply = client.ok("db", find);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|d| d.as_document().unwrap().get_i32("_id").unwrap()).collect()
}

fn find() -> Document {
    doc! { "find": "c", "filter": {}, "sort": { "_id": 1 } }
}

fn code(reply: &Document) -> i32 {
    reply.get_i32("code").unwrap_or(0)
}

fn labels(reply: &Document) -> Vec<&str> {
    let list = reply.get_array("errorLabels").map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Bson::as_str).collect()
}

#[test]
fn writes_are_seen_inside_at_once_and_outside_after_the_commit() {
    let client = Client::new();
    client.ok("db", insert(1));
    client.ok("db", statement(insert(2), 1, 0, true));
    assert_eq!(ids(&client, statement(find(), 1, 0, false)), [1, 2]);
    assert_eq!(ids(&client, find()), [1]);
    let pipeline =
        doc! { "aggregate": "c", "pipeline": [{ "$sort": { "_id": -1 } }], "cursor": {} };
    assert_eq!(ids(&client, statement(pipeline, 1, 0, false)), [2, 1]);
    assert_eq!(code(&end(&client, "commitTransaction", 1, 0)), 0);
    assert_eq!(ids(&client, find()), [1, 2]);
    assert_eq!(code(&end(&client, "commitTransaction", 1, 0)), 0, "sent again");
    assert_eq!(code(&end(&client, "abortTransaction", 1, 0)), 256);
}

#[test]
fn aborted_transaction_leaves_nothing_and_is_gone() {
    let client = Client::new();
    client.ok("db", insert(1));
    client.ok("db", statement(insert(2), 1, 4, true));
    assert_eq!(code(&end(&client, "abortTransaction", 1, 4)), 0);
    assert_eq!(ids(&client, find()), [1]);
    let late = client.run("db", statement(insert(3), 1, 4, false));
    assert_eq!((code(&late), labels(&late)), (251, vec!["TransientTransactionError"]));
    let late = end(&client, "commitTransaction", 1, 4);
    assert_eq!((code(&late), labels(&late)), (251, vec!["TransientTransactionError"]));
}

#[test]
fn numbers_only_grow() {
    let client = Client::new();
    client.ok("db", statement(insert(1), 1, 5, true));
    for (number, starts, expected) in [(4, true, 225), (5, true, 50911), (6, false, 251)] {
        let reply = client.run("db", statement(insert(2), 1, number, starts));
        assert_eq!(code(&reply), expected, "{number}");
    }
    let mut retry = insert(3);
    retry.extend(doc! { "lsid": lsid(1), "txnNumber": 5_i64 });
    assert_eq!(code(&client.run("db", retry)), 217);
    client.ok("db", statement(insert(2), 1, 6, true));
    assert!(ids(&client, find()).is_empty(), "a newer transaction aborts the older one");
}

#[test]
fn second_writer_of_a_document_conflicts() {
    let client = Client::new();
    client.ok("db", insert(1));
    client.ok("db", statement(increment(1), 1, 0, true));
    let reply = client.run("db", statement(increment(1), 2, 0, true));
    assert_eq!((code(&reply), labels(&reply)), (112, vec!["TransientTransactionError"]));
    assert_eq!(code(&end(&client, "commitTransaction", 1, 0)), 0);
    assert_eq!(code(&end(&client, "commitTransaction", 2, 0)), 251, "the conflict aborted it");
    client.ok("db", statement(find(), 2, 1, true));
    client.ok("db", increment(1));
    let reply = client.run("db", statement(increment(1), 2, 1, false));
    assert_eq!(code(&reply), 112, "changed since the snapshot");
}

#[test]
fn failed_statement_aborts_the_transaction() {
    let client = Client::new();
    client.ok("db", insert(1));
    client.ok("db", statement(insert(2), 1, 0, true));
    let reply = client.run("db", statement(insert(1), 1, 0, false));
    assert_eq!(reply.get_array("writeErrors").unwrap().len(), 1);
    assert_eq!(code(&end(&client, "commitTransaction", 1, 0)), 251);
    assert_eq!(ids(&client, find()), [1]);
}

#[test]
fn collections_and_indexes_come_with_the_commit() {
    let client = Client::new();
    let names = |client: &Client| {
        let reply = client.ok("db", doc! { "listCollections": 1 });
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
    };
    let index = |name: &str| doc! { "createIndexes": name, "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] };
    client.ok("db", statement(doc! { "create": "made" }, 1, 0, true));
    client.ok("db", statement(index("made"), 1, 0, false));
    client.ok("db", statement(insert(1), 1, 0, false));
    client.ok(
        "db",
        statement(doc! { "insert": "made", "documents": [{ "a": [1, 2] }] }, 1, 0, false),
    );
    let by_index = doc! { "find": "made", "filter": { "a": 2 }, "projection": { "_id": 1 } };
    let inside = client.ok("db", statement(by_index, 1, 0, false));
    let batch = inside.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
    assert_eq!(batch.len(), 1);
    assert_eq!(names(&client), 0);
    assert_eq!(code(&end(&client, "commitTransaction", 1, 0)), 0);
    assert_eq!(names(&client), 2);
    client.ok("db", doc! { "validate": "made", "full": true });
    let reply = client.run("db", statement(index("c"), 1, 1, true));
    assert_eq!(code(&reply), 263);
    client.ok("db", statement(doc! { "create": "gone" }, 1, 2, true));
    assert_eq!(code(&end(&client, "abortTransaction", 1, 2)), 0);
    assert_eq!(names(&client), 2);
    client.ok("db", doc! { "create": "gone" });
}

#[test]
fn cursor_of_a_transaction_keeps_what_it_saw_and_dies_with_it() {
    let client = Client::new();
    for id in 1..=4 {
        client.ok("db", insert(id));
    }
    let mut first = find();
    first.insert("batchSize", 2);
    let reply = client.ok("db", statement(first, 1, 0, true));
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = || doc! { "getMore": id, "collection": "c", "batchSize": 1 };
    let mut outside = more();
    outside.insert("lsid", lsid(1));
    assert_eq!(code(&client.run("db", outside)), 50741);
    client.ok("db", statement(insert(5), 1, 0, false));
    client.ok("db", statement(more(), 1, 0, false));
    assert_eq!(code(&end(&client, "commitTransaction", 1, 0)), 0);
    let late = client.run("db", statement(more(), 1, 0, false));
    assert_eq!(code(&late), 256);
}

#[test]
fn what_has_no_place_in_a_transaction_is_refused() {
    let client = Client::new();
    client.ok("db", insert(1));
    for (database, command, expected) in [
        ("db", doc! { "count": "c" }, 263),
        ("db", doc! { "drop": "c" }, 263),
        ("admin", find(), 263),
        ("db", doc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {} }, 263),
        ("db", doc! { "find": "c", "readConcern": { "level": "linearizable" } }, 72),
        ("db", doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 1 } }, 72),
    ] {
        let reply = client.run(database, statement(command.clone(), 9, 0, true));
        assert_eq!(code(&reply), expected, "{command} gave {reply}");
    }
    let mut bare = doc! { "find": "c", "txnNumber": 1_i64, "lsid": lsid(3) };
    assert_eq!(code(&client.run("db", bare.clone())), 50768);
    bare.remove("lsid");
    assert_eq!(code(&client.run("db", bare)), 72);
    for part in [doc! { "autocommit": true }, doc! { "startTransaction": true }] {
        let mut command = doc! { "find": "c", "txnNumber": 1_i64, "lsid": lsid(3) };
        command.extend(part);
        assert_eq!(code(&client.run("db", command)), 72);
    }
}

#[test]
fn old_transactions_and_ended_sessions_are_aborted() {
    let client = Client::new();
    client.ok("db", insert(1));
    client.ok("db", statement(increment(1), 1, 0, true));
    client.service.transaction_lifetime_secs.store(0, Ordering::Relaxed);
    client.service.housekeep();
    client.ok("db", increment(1));
    assert_eq!(code(&end(&client, "commitTransaction", 1, 0)), 251);
    client.service.transaction_lifetime_secs.store(60, Ordering::Relaxed);
    for ending in ["endSessions", "killSessions"] {
        client.ok("db", statement(increment(1), 2, 0, true));
        client.ok("admin", doc! { ending: [lsid(2)] });
        client.ok("db", increment(1));
        assert_eq!(code(&end(&client, "commitTransaction", 2, 0)), 251);
    }
}

/// A command as a retryable write of session 1.
fn retryable(mut command: Document, number: i64) -> Document {
    command.extend(doc! { "lsid": lsid(1), "txnNumber": number });
    command
}

#[test]
fn the_same_write_sent_twice_is_done_once() {
    let client = Client::new();
    let batch = doc! { "insert": "c", "documents": [{ "_id": 1, "n": 0 }, { "_id": 2 }] };
    let writes = [
        (batch, 0),
        (increment(1), 1),
        (
            doc! { "update": "c", "updates": [{ "q": { "_id": 7 }, "u": { "$inc": { "n": 1 } }, "upsert": true }] },
            2,
        ),
        (
            doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$inc": { "n": 1 } }, "new": true },
            3,
        ),
        (doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }] }, 4),
    ];
    for (write, number) in writes {
        let mut first = client.ok("db", retryable(write.clone(), number));
        let mut second = client.ok("db", retryable(write.clone(), number));
        assert!(second.remove("retriedStmtIds").is_some(), "{write}");
        assert_eq!(first, second, "{write}");
        // As after a restart: what is known is on disk.
        client.service.numbered.remove(session::SessionId::of_nobody([1; 16]));
        let mut third = client.ok("db", retryable(write.clone(), number));
        third.remove("retriedStmtIds");
        first.remove("retriedStmtIds");
        assert_eq!(first, third, "{write}");
    }
    assert_eq!(ids(&client, find()), [2, 7]);
    let old = client.run("db", retryable(increment(2), 3));
    assert_eq!(code(&old), 225);
}

#[test]
fn a_session_keeps_no_long_list_of_statements_and_still_knows_them() {
    let client = Client::new();
    let one = |n: i32| doc! { "q": { "_id": n }, "u": { "$inc": { "n": 1 } }, "upsert": true };
    let updates: Vec<Document> = (0..40).map(one).collect();
    let batch = doc! { "update": "c", "updates": updates };
    let first = client.ok("db", retryable(batch.clone(), 7));
    client.service.numbered.edit_idle(|_, state| {
        assert!(matches!(state.phase, serverstate::Phase::Recorded), "it is on disk");
        None::<()>
    });
    let mut second = client.ok("db", retryable(batch, 7));
    let retried = second.remove("retriedStmtIds");
    assert_eq!(retried.and_then(|list| list.as_array().map(Vec::len)), Some(40));
    assert_eq!(first, second);
    let counted = client.ok("db", doc! { "count": "c", "query": { "n": 1 } });
    assert_eq!(counted.get_i32("n").ok(), Some(40), "each was done once");
    let old = client.run("db", retryable(increment(2), 6));
    assert_eq!(code(&old), 225, "its number is known");
    let commit = doc! { "commitTransaction": 1, "autocommit": false };
    assert_eq!(code(&client.run("admin", retryable(commit, 7))), 251, "it is no transaction");
    client.ok("db", retryable(increment(2), 8));
}

#[test]
fn retried_batch_does_only_what_is_missing() {
    let client = Client::new();
    let half = doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }] };
    client.ok("db", retryable(half, 0));
    client.ok("db", doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] });
    let whole = doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }, { "_id": 3 }] };
    let reply = client.ok("db", retryable(whole, 0));
    assert_eq!(reply.get_i32("n").ok(), Some(3));
    assert_eq!(ids(&client, find()), [2, 3]);
}

#[test]
fn old_records_are_forgotten() {
    let client = Client::new();
    client.ok("db", retryable(insert(1), 0));
    assert_eq!(client.service.forget_old_records().unwrap(), 0);
    assert_eq!(client.service.session_records.of(&[1; 16]).unwrap().len(), 1);
    let gone = client.service.session_records.forget(|_, _| true).unwrap();
    assert_eq!(gone, 1);
    assert!(client.service.session_records.of(&[1; 16]).unwrap().is_empty());
}

#[test]
fn error_before_any_write_says_so() {
    let client = Client::new();
    client.service.test_commands.store(true, Ordering::Relaxed);
    client.ok("db", insert(1));
    client.ok("db", insert(2));
    let point = |mode: Document| {
        let data = doc! { "failBeforeCommitExceptionCode": 11600, "closeConnection": false };
        client.ok(
            "admin",
            doc! { "configureFailPoint": "onPrimaryTransactionalWrite", "mode": mode, "data": data },
        );
    };
    let both = doc! { "update": "c", "updates": [
        { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } },
        { "q": { "_id": 2 }, "u": { "$inc": { "n": 1 } } },
    ] };
    point(doc! { "times": 1 });
    let reply = client.run("db", retryable(both.clone(), 0));
    assert_eq!(labels(&reply), ["RetryableWriteError", "NoWritesPerformed"], "{reply}");
    point(doc! { "skip": 1 });
    let reply = client.run("db", retryable(both.clone(), 0));
    assert_eq!(labels(&reply), ["RetryableWriteError"], "the first update was done: {reply}");
    point(doc! { "times": 1 });
    let reply = client.run("db", retryable(both.clone(), 0));
    assert_eq!(labels(&reply), ["RetryableWriteError", "NoWritesPerformed"], "{reply}");
    client.ok("db", retryable(both, 0));
    let sum = client.ok(
        "db",
        doc! { "aggregate": "c", "cursor": {}, "pipeline": [
            { "$group": { "_id": 0, "n": { "$sum": "$n" } } },
        ] },
    );
    let batch = sum.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch[0].as_document().unwrap().get_i32("n").ok(), Some(2));
}

#[test]
fn records_are_shown_as_a_collection() {
    let client = Client::new();
    client.ok("db", retryable(insert(1), 7));
    client.ok("db", retryable(insert(2), 8));
    client.ok("db", statement(insert(3), 2, 4, true));
    assert_eq!(code(&end(&client, "commitTransaction", 2, 4)), 0);
    client.ok("db", statement(insert(4), 3, 1, true));
    let read = |command: Document| {
        let reply = client.ok("config", command);
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone()
    };
    let number = |found: &Bson| found.as_document().unwrap().get_i64("txnNum").unwrap();
    let all = read(doc! { "find": "transactions", "sort": { "txnNum": 1 } });
    assert_eq!(all.iter().map(number).collect::<Vec<_>>(), [4, 8], "an open one has no record");
    let committed = all[0].as_document().unwrap();
    assert_eq!(committed.get_str("state").ok(), Some("committed"));
    let id = committed.get_document("_id").unwrap();
    assert_eq!(id.get_binary_generic("uid").map(Vec::len).ok(), Some(32));
    let date = committed.get_datetime("lastWriteDate").unwrap().timestamp_millis();
    let time = committed.get_document("lastWriteOpTime").unwrap().get_timestamp("ts").unwrap();
    assert_eq!(i64::from(time.time), date / 1000);
    let retried = all[1].as_document().unwrap();
    assert!(!retried.contains_key("state"));
    let filter = doc! { "_id.id": lsid(1).get("id").unwrap().clone() };
    let one = doc! { "find": "transactions", "filter": filter, "projection": { "txnNum": 1 } };
    let one = read(one);
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].as_document().unwrap().len(), 2);
    let page = doc! { "find": "transactions", "sort": { "txnNum": -1 }, "skip": 1, "limit": 1 };
    assert_eq!(number(&read(page)[0]), 4);
    let count = doc! { "aggregate": "transactions", "pipeline": [{ "$count": "n" }], "cursor": {} };
    assert_eq!(read(count)[0].as_document().unwrap().get_i32("n").ok(), Some(2));
    let write = doc! { "insert": "transactions", "documents": [{ "_id": 1 }] };
    assert_eq!(code(&client.run("config", write)), 73);
}

#[test]
fn wrong_numbers_and_unknown_transactions_leave_the_session_as_it_was() {
    let client = Client::new();
    let transient = vec!["TransientTransactionError"];
    for what in ["commitTransaction", "abortTransaction"] {
        let reply = end(&client, what, 1, 3);
        assert_eq!((code(&reply), labels(&reply)), (251, transient.clone()), "{what}");
        assert_eq!(reply.get_str("codeName").ok(), Some("NoSuchTransaction"));
    }
    client.ok("db", statement(insert(1), 1, 5, true));
    for (number, starts, expected, name) in [
        (4, true, 225, "TransactionTooOld"),
        (4, false, 225, "TransactionTooOld"),
        (5, true, 50911, "Location50911"),
        (6, false, 251, "NoSuchTransaction"),
        (-1, true, 72, "InvalidOptions"),
    ] {
        let reply = client.run("db", statement(insert(2), 1, number, starts));
        assert_eq!(code(&reply), expected, "{number}: {reply}");
        assert_eq!(reply.get_str("codeName").ok(), Some(name));
        let label = if expected == 251 { transient.clone() } else { Vec::new() };
        assert_eq!(labels(&reply), label, "{number}");
    }
    for number in [4_i64, 6] {
        let reply = end(&client, "commitTransaction", 1, number);
        assert_eq!(code(&reply), if number == 4 { 225 } else { 251 });
    }
    client.ok("db", statement(insert(3), 1, 5, false));
    assert_eq!(code(&end(&client, "commitTransaction", 1, 5)), 0);
    assert_eq!(ids(&client, find()), [1, 3], "the transaction went on unharmed");
}

#[test]
fn session_of_another_user_is_refused() {
    let client = Client::new();
    let with_user = |digest: Vec<u8>| {
        let mut id = lsid(1);
        id.insert("uid", Binary { subtype: BinarySubtype::Generic, bytes: digest });
        client.run("db", doc! { "find": "c", "lsid": id })
    };
    let reply = with_user(vec![7; 32]);
    assert_eq!((code(&reply), reply.get_str("codeName").unwrap()), (13, "Unauthorized"));
    assert_eq!(client.service.sessions.len(), 0);
    assert_eq!(code(&with_user(session::UserDigest::NOBODY.0.to_vec())), 0);
    let inner = doc! { "id": lsid(1).get("id").unwrap().clone(), "txnNumber": 1_i64 };
    assert_eq!(code(&client.run("db", doc! { "find": "c", "lsid": inner })), 238);
}

#[test]
fn oversize_writes_are_refused_and_abort_only_their_transaction() {
    let client = Client::new();
    client.ok("db", insert(1));
    client.ok("db", statement(insert(2), 1, 0, true));
    let large = "x".repeat(17 << 20);
    let write = doc! { "insert": "c", "documents": [{ "_id": 3, "x": large }] };
    let reply = client.run("db", statement(write, 1, 0, false));
    let told = match reply.get_array("writeErrors") {
        Ok(errors) => errors[0].as_document().unwrap().get_i32("code").unwrap(),
        Err(_) => code(&reply),
    };
    assert_eq!(told, 2, "BadValue, as MongoDB says of an insert: {reply}");
    assert_eq!(code(&end(&client, "commitTransaction", 1, 0)), 251);
    client.ok("db", statement(insert(4), 1, 1, true));
    assert_eq!(code(&end(&client, "commitTransaction", 1, 1)), 0);
    assert_eq!(ids(&client, find()), [1, 4]);
}

#[test]
fn change_of_metadata_that_waits_for_a_transaction_can_be_stopped() {
    let client = Client::new();
    client.ok("db", insert(1));
    client.ok("db", statement(increment(1), 1, 0, true));
    for mut change in [
        doc! { "drop": "c" },
        doc! { "dropDatabase": 1 },
        doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] },
        doc! { "dropIndexes": "c", "index": "*" },
        doc! { "collMod": "c", "validator": {} },
    ] {
        change.insert("maxTimeMS", 1);
        assert_eq!(code(&client.run("db", change.clone())), 50, "{change}");
    }
    let rename = doc! { "renameCollection": "db.c", "to": "db.d", "maxTimeMS": 1 };
    assert_eq!(code(&client.run("admin", rename)), 50);
    client.ok("db", statement(doc! { "create": "made" }, 1, 0, false));
    let create = doc! { "create": "made", "maxTimeMS": 1 };
    assert_eq!(code(&client.run("db", create)), 50);
    assert_eq!(code(&end(&client, "commitTransaction", 1, 0)), 0);
    client.ok("db", doc! { "drop": "c" });
}

#[test]
fn fail_point_stops_or_cuts_a_retryable_write() {
    let client = Client::new();
    client.service.test_commands.store(true, Ordering::Relaxed);
    let set = |data: Document| {
        client.ok(
            "admin",
            doc! { "configureFailPoint": "onPrimaryTransactionalWrite", "mode": { "times": 1 }, "data": data },
        );
    };
    set(doc! { "failBeforeCommitExceptionCode": 1, "closeConnection": false });
    assert_eq!(code(&client.run("db", retryable(insert(1), 0))), 1);
    set(doc! { "failBeforeCommitExceptionCode": 1 });
    assert!(client.reply("db", &retryable(insert(1), 0), false).hang_up);
    assert!(ids(&client, find()).is_empty());
    set(doc! {});
    assert!(client.reply("db", &retryable(insert(1), 1), false).hang_up);
    assert_eq!(ids(&client, find()), [1]);
    let again = client.ok("db", retryable(insert(1), 1));
    assert_eq!(again.get_i32("n").ok(), Some(1));
}
