//! TokuMX's transactions, which are bound to a connection.

use super::Client;
use bson::{Document, doc};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id, "n": 0 }] }
}

fn increment(id: i32) -> Document {
    doc! { "update": "c", "updates": [{ "q": { "_id": id }, "u": { "$inc": { "n": 1 } } }] }
}

fn begin(client: &Client, isolation: &str) {
    let reply = client.ok("db", doc! { "beginTransaction": 1, "isolation": isolation });
    assert_eq!(reply.get_str("status").unwrap(), "transaction began");
}

fn commit(client: &Client) {
    let reply = client.ok("db", doc! { "commitTransaction": 1 });
    assert_eq!(reply.get_str("status").unwrap(), "transaction committed");
}

fn roll_back(client: &Client) {
    let reply = client.ok("db", doc! { "rollbackTransaction": 1 });
    assert_eq!(reply.get_str("status").unwrap(), "transaction rolled back");
}

fn code(client: &Client, command: Document) -> i32 {
    client.run("db", command).get_i32("code").unwrap_or(0)
}

/// `_id` and `n` of every document.
fn all(client: &Client) -> Vec<(i32, i32)> {
    let find = doc! { "find": "c", "filter": {}, "sort": { "_id": 1 } };
    let reply = client.ok("db", find);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let pair = |d: &Document| (d.get_i32("_id").unwrap(), d.get_i32("n").unwrap());
    batch.iter().map(|d| pair(d.as_document().unwrap())).collect()
}

#[test]
fn statements_are_seen_inside_at_once_and_outside_after_the_commit() {
    let client = Client::new();
    let other = client.another(2);
    client.ok("db", insert(1));
    for isolation in ["mvcc", "readUncommitted"] {
        begin(&client, isolation);
        client.ok("db", insert(2));
        client.ok("db", increment(1));
        assert_eq!(all(&client), [(1, 1), (2, 0)], "{isolation}");
        assert_eq!(all(&other), [(1, 0)], "{isolation}");
        roll_back(&client);
        assert_eq!(all(&client), [(1, 0)], "{isolation}");
    }
    begin(&client, "mvcc");
    client.ok("db", insert(2));
    client.ok("db", doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 0 }] });
    commit(&client);
    assert_eq!(all(&other), [(2, 0)]);
}

#[test]
fn levels_and_ends_are_checked_in_tokumx_words() {
    let client = Client::new();
    let bad = "invalid isolation passed in";
    client.fails("db", doc! { "beginTransaction": 1, "isolation": 1 }, 16738, bad);
    client.fails("db", doc! { "beginTransaction": 1, "isolation": "x" }, 16739, bad);
    let none = "no transaction exists to be committed";
    client.fails("db", doc! { "commitTransaction": 1 }, 16788, none);
    for name in ["rollbackTransaction", "abortTransaction"] {
        client.fails("db", doc! { name: 1 }, 16789, "no transaction exists to be rolled back");
    }
    client.ok("db", doc! { "beginTransaction": 1 });
    client.fails("db", doc! { "beginTransaction": 1 }, 16787, "transaction already exists");
    client.ok("admin", doc! { "abortTransaction": 1 });
    assert_eq!(code(&client, doc! { "commitTransaction": 1 }), 16788);
}

#[test]
fn snapshot_is_of_the_start_under_mvcc_and_of_each_statement_below() {
    let client = Client::new();
    let other = client.another(2);
    client.ok("db", insert(1));
    begin(&client, "mvcc");
    other.ok("db", increment(1));
    assert_eq!(all(&client), [(1, 0)]);
    assert_eq!(client.ok("db", doc! { "count": "c" }).get_i32("n").unwrap(), 1);
    other.ok("db", insert(2));
    assert_eq!(client.ok("db", doc! { "count": "c" }).get_i32("n").unwrap(), 1);
    assert_eq!(code(&client, increment(1)), 16759, "changed since the snapshot");
    roll_back(&client);
    begin(&client, "readUncommitted");
    other.ok("db", increment(1));
    assert_eq!(all(&client), [(1, 2), (2, 0)]);
    client.ok("db", increment(1));
    commit(&client);
    assert_eq!(all(&client), [(1, 3), (2, 0)]);
}

#[test]
fn failed_statement_undoes_only_itself() {
    let client = Client::new();
    client.ok(
        "db",
        doc! { "insert": "c", "documents": [
            { "_id": 1, "n": 1 }, { "_id": 2, "n": 2 }, { "_id": 3, "n": 3 },
        ] },
    );
    let unique = doc! { "key": { "u": 1 }, "name": "u", "unique": true, "sparse": true };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [unique] });
    begin(&client, "mvcc");
    client.ok("db", increment(1));
    let twice = client.ok("db", insert(2));
    assert_eq!(twice.get_array("writeErrors").unwrap().len(), 1);
    // The second document is refused; the first of the statement goes back too.
    let many = doc! { "update": "c", "updates": [
        { "q": { "_id": { "$gt": 1 } }, "u": { "$inc": { "n": 10 }, "$set": { "u": 1 } }, "multi": true },
    ] };
    let reply = client.ok("db", many);
    assert_eq!(reply.get_i32("n").unwrap(), 0, "{reply}");
    assert_eq!(reply.get_array("writeErrors").unwrap().len(), 1);
    assert_eq!(code(&client, doc! { "find": "c", "filter": { "$no": 1 } }), 2);
    assert_eq!(all(&client), [(1, 2), (2, 2), (3, 3)]);
    commit(&client);
    assert_eq!(all(&client), [(1, 2), (2, 2), (3, 3)]);
}

#[test]
fn locks_that_are_held_are_refused_and_the_transaction_goes_on() {
    let client = Client::new();
    let other = client.another(2);
    client.ok("db", insert(1));
    client.ok("db", insert(2));
    begin(&client, "mvcc");
    client.ok("db", increment(1));
    begin(&other, "mvcc");
    other.ok("db", increment(2));
    other.ok("db", doc! { "setClientLockTimeout": 0 });
    let text = "Lock not granted. Try restarting the transaction.";
    other.fails("db", increment(1), 16759, text);
    commit(&other);
    commit(&client);
    assert_eq!(all(&client), [(1, 1), (2, 1)]);
}

/// Keeps the log's lines.
#[derive(Default)]
struct Lines(Mutex<Vec<Document>>);

impl serverstate::Host for Lines {
    fn log(&self, event: &serverstate::LogEvent<'_>) {
        let mut line = doc! { "msg": event.message, "ctx": event.context };
        line.insert("attr", event.attributes.clone());
        self.0.lock().unwrap().push(line);
    }

    fn recent_log(&self, _: &str) -> Option<(Vec<String>, u64)> {
        None
    }

    fn rotate_log(&self) -> Result<(), String> {
        Ok(())
    }

    fn shut_down(&self, _: Duration) {}

    fn network(&self) -> serverstate::Network {
        serverstate::Network::default()
    }
}

#[test]
fn refused_lock_is_a_line_in_the_log_that_names_who_has_it() {
    let lines = Arc::new(Lines::default());
    let client = Client::with_host(Arc::<Lines>::clone(&lines));
    let other = client.another(2);
    client.ok("db", insert(1));
    begin(&client, "mvcc");
    client.ok("db", increment(1));
    begin(&other, "mvcc");
    other.ok("db", doc! { "setClientLockTimeout": 0 });
    other.fails("db", increment(1), 16759, "Lock not granted. Try restarting the transaction.");
    let line = lines.0.lock().unwrap().pop().unwrap();
    let text = |name| line.get_str(name).unwrap();
    assert_eq!((text("msg"), text("ctx")), ("Lock not granted", "conn2"));
    let attributes = line.get_document("attr").unwrap();
    assert_eq!(attributes.get_str("reason").unwrap(), "timeout");
    let lock = attributes.get_document("lockNotGranted").unwrap();
    assert_eq!(lock.get_str("index").unwrap(), "db.c.$_id_");
    assert_eq!(lock.get_array("bounds").unwrap()[0], bson::bson!({ "_id": 1 }));
    let blocking = attributes.get_document("blockingOp").unwrap();
    assert_eq!(blocking.get_str("desc").unwrap(), "conn1");
    let blocker = lock.get_i64("blockingTxnid").unwrap();
    assert_eq!(i64::from(blocking.get_i32("rootTxnid").unwrap()), blocker);
}

#[test]
fn current_op_says_who_waits_for_whom() {
    let client = Client::new();
    let (other, third) = (client.another(2), client.another(3));
    client.ok("db", insert(1));
    begin(&client, "mvcc");
    client.ok("db", increment(1));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| other.ok("db", increment(1)));
        let filter = doc! { "currentOp": 1, "waitingForLock": true };
        let found = loop {
            let reply = third.ok("admin", filter.clone());
            if let Some(bson::Bson::Document(found)) = reply.get_array("inprog").unwrap().first() {
                break found.clone();
            }
            std::thread::yield_now();
        };
        assert_eq!(found.get_str("desc").unwrap(), "conn2");
        let request = found.get_document("lockRequest").unwrap();
        assert_eq!(request.get_str("index").unwrap(), "db.c.$_id_");
        let blocker = request.get_i32("blockingTxnid").unwrap();
        let holds = third.ok("admin", doc! { "currentOp": 1, "rootTxnid": blocker });
        let holds = holds.get_array("inprog").unwrap()[0].as_document().unwrap();
        assert_eq!(holds.get_str("desc").unwrap(), "conn1");
        assert!(!holds.get_bool("active").unwrap());
        commit(&client);
        waits.join().unwrap();
    });
    assert_eq!(all(&client), [(1, 2)]);
}

#[test]
fn deadlock_is_found_at_once_and_has_one_victim() {
    let client = Client::new();
    let other = client.another(2);
    for id in [1, 2] {
        client.ok("db", insert(id));
    }
    begin(&client, "readUncommitted");
    begin(&other, "readUncommitted");
    client.ok("db", increment(1));
    other.ok("db", increment(2));
    let codes = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let got = code(&client, increment(2));
            client.ok(
                "db",
                doc! { if got == 0 { "commitTransaction" } else { "rollbackTransaction" }: 1 },
            );
            got
        });
        let got = code(&other, increment(1));
        other.ok(
            "db",
            doc! { if got == 0 { "commitTransaction" } else { "rollbackTransaction" }: 1 },
        );
        [first.join().unwrap(), got]
    });
    assert!(codes == [0, 16760] || codes == [16760, 0], "{codes:?}");
    assert_eq!(all(&client), [(1, 1), (2, 1)]);
}

/// In whose statements another transaction's delete comes between the look and the lock.
#[test]
fn a_document_deleted_between_look_and_lock_is_not_looked_for_again_and_again() {
    let client = Client::new();
    let other = client.another(2);
    for filter in [doc! { "_id": 1 }, doc! { "n": 0 }] {
        let sorted = doc! { "n": 1 };
        for command in [
            doc! { "update": "c", "updates": [{ "q": &filter, "u": { "$set": { "x": 1 } } }] },
            doc! { "update": "c", "updates": [{ "q": &filter, "u": { "$set": { "x": 1 } }, "multi": true }] },
            doc! { "delete": "c", "deletes": [{ "q": &filter, "limit": 1 }] },
            doc! { "delete": "c", "deletes": [{ "q": &filter, "limit": 0 }] },
            doc! { "findAndModify": "c", "query": &filter, "update": { "$set": { "x": 1 } } },
            doc! { "findAndModify": "c", "query": &filter, "sort": &sorted, "remove": true },
        ] {
            client.ok("db", insert(1));
            begin(&other, "readUncommitted");
            other.ok("db", doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] });
            begin(&client, "readUncommitted");
            let mut limited = command.clone();
            limited.insert("maxTimeMS", 10_000);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| client.run("db", limited));
                std::thread::sleep(Duration::from_millis(100));
                commit(&other);
                let reply = waits.join().unwrap();
                assert!(reply.get_f64("ok").unwrap() > 0.5, "{command}: {reply}");
                let n = reply.get_i32("n").unwrap_or(0);
                assert_eq!(n, 0, "{command}: {reply}");
            });
            commit(&client);
            assert_eq!(all(&client), [], "{command}");
        }
    }
}

#[test]
fn transaction_ends_with_its_connection() {
    let client = Client::new();
    let other = client.another(2);
    client.ok("db", insert(1));
    begin(&client, "mvcc");
    client.ok("db", increment(1));
    client.service.close_connection(&client.connection);
    other.ok("db", increment(1));
    assert_eq!(all(&other), [(1, 1)]);
}

#[test]
fn cursors_end_with_their_transaction_and_are_its_own() {
    let client = Client::new();
    let documents: Vec<_> = (0..9).map(|id| doc! { "_id": id, "n": 0 }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let open = |client: &Client| {
        let reply = client.ok("db", doc! { "find": "c", "batchSize": 2 });
        let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
        doc! { "getMore": id, "collection": "c", "batchSize": 2 }
    };
    let outside = open(&client);
    begin(&client, "mvcc");
    assert_eq!(code(&client, outside.clone()), 16813);
    let inside = open(&client);
    client.ok("db", inside.clone());
    let other = client.another(2);
    assert_eq!(code(&other, inside.clone()), 16813);
    client.ok("db", doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] });
    client.ok("db", inside.clone());
    commit(&client);
    assert_eq!(code(&client, inside), 43);
    client.ok("db", outside);
}

#[test]
fn what_cannot_be_undone_is_refused() {
    let client = Client::new();
    client.ok("db", insert(1));
    begin(&client, "mvcc");
    client.fails(
        "db",
        doc! { "dropDatabase": 1 },
        16777,
        "Cannot dropDatabase in a multi-statement transaction.",
    );
    let refused = "cannot run command inside of multi statement transaction";
    client.fails("db", doc! { "profile": -1 }, 16786, refused);
    client.fails("admin", doc! { "checkpoint": 1 }, 16786, refused);
    for command in [doc! { "collMod": "c" }, doc! { "reIndex": "c" }] {
        assert_eq!(code(&client, command.clone()), 16786, "{command}");
    }
    assert_eq!(code(&client, doc! { "find": "c", "tailable": true }), 16812);
    client.ok("db", doc! { "ping": 1 });
    commit(&client);
}

#[test]
fn collection_made_in_a_transaction_goes_with_it() {
    let client = Client::new();
    let other = client.another(2);
    begin(&client, "mvcc");
    client.ok("db", doc! { "create": "made" });
    client.ok("db", insert(1));
    assert_eq!(all(&client), [(1, 0)]);
    assert!(all(&other).is_empty());
    roll_back(&client);
    assert!(client.service.catalog.collections("db").is_empty());
    begin(&client, "mvcc");
    client.ok("db", insert(1));
    commit(&client);
    assert_eq!(all(&other), [(1, 0)]);
}

#[test]
fn numbered_requests_do_not_mix_with_it() {
    let client = Client::new();
    client.ok("db", insert(1));
    begin(&client, "mvcc");
    let lsid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
    let mut retryable = increment(1);
    retryable.extend(doc! { "lsid": { "id": lsid }, "txnNumber": 1_i64 });
    assert_eq!(code(&client, retryable.clone()), 263);
    let mut statement = retryable;
    statement.extend(doc! { "autocommit": false, "startTransaction": true });
    assert_eq!(code(&client, statement.clone()), 263);
    roll_back(&client);
    client.ok("db", statement);
    assert_eq!(all(&client), [(1, 0)]);
}

#[test]
fn lock_timeout_of_a_connection_is_its_own() {
    let client = Client::new();
    let set = |client: &Client, ms: i64| {
        client.ok("db", doc! { "setClientLockTimeout": ms }).get_i32("was").unwrap()
    };
    assert_eq!([set(&client, 7), set(&client, 0), set(&client, 9)], [4000, 7, 0]);
    assert_eq!(set(&client.another(2), 1), 4000);
    assert_eq!(code(&client, doc! { "setClientLockTimeout": -1 }), 17356);
    let yields = |yields: bool| {
        client.ok("db", doc! { "setWriteLockYielding": yields }).get_bool("was").unwrap()
    };
    assert_eq!([yields(true), yields(false), yields(false)], [false, true, false]);
}

#[test]
fn lock_timeout_holds_outside_of_transactions_and_from_when_it_is_set() {
    let (client, other) = {
        let client = Client::new();
        let other = client.another(2);
        (client, other)
    };
    client.ok("db", insert(1));
    begin(&client, "mvcc");
    client.ok("db", increment(1));
    let failed = |client: &Client| code(client, increment(1));
    other.ok("db", doc! { "setClientLockTimeout": 0 });
    assert_eq!(failed(&other), 24);
    let drop = doc! { "drop": "c" };
    assert_eq!(code(&other, drop), 24, "a change of metadata waits no longer");
    let third = client.another(3);
    let was = client.ok("admin", doc! { "setParameter": 1, "lockTimeout": 0 });
    assert_eq!(was.get_i64("was").unwrap(), 4000);
    assert_eq!(failed(&third), 24);
    begin(&third, "readUncommitted");
    assert_eq!(code(&third, increment(1)), 16759);
    roll_back(&third);
    commit(&client);
    third.ok("db", increment(1));
}

#[test]
fn a_numbered_end_means_the_connections_transaction_where_the_session_has_none() {
    let client = Client::new();
    client.ok("db", insert(1));
    let id = bson::Uuid::from_bytes([7; 16]);
    let end = |name: &str, number: i64| {
        doc! { name: 1, "lsid": { "id": id }, "txnNumber": number, "autocommit": false }
    };
    for (name, database) in
        [("commitTransaction", "db"), ("abortTransaction", "admin"), ("rollbackTransaction", "db")]
    {
        begin(&client, "mvcc");
        client.ok("db", increment(1));
        client.ok(database, end(name, 0));
        assert_eq!(code(&client, doc! { "commitTransaction": 1 }), 16788, "it has ended");
        assert_eq!(code(&client, end("commitTransaction", 0)), 16788);
    }
    assert_eq!(all(&client), [(1, 1)]);
    // A session's own that is open is meant by its number.
    let mut numbered = insert(2);
    numbered.extend(doc! { "lsid": { "id": id }, "txnNumber": 1_i64, "autocommit": false, "startTransaction": true });
    client.ok("db", numbered);
    begin(&client, "mvcc");
    let reply = client.run("admin", end("commitTransaction", 1));
    assert_eq!(reply.get_i32("code").unwrap(), 263, "two transactions, and it is not said which");
    roll_back(&client);
    client.ok("admin", end("commitTransaction", 1));
    assert_eq!(all(&client), [(1, 1), (2, 0)]);
    // The end of what was refused here is none of it; the last number of the session is.
    begin(&client, "mvcc");
    for number in [2, 7] {
        let reply = client.run("admin", end("abortTransaction", number));
        assert_eq!(reply.get_i32("code").unwrap(), 263, "{number}");
    }
    client.ok("db", increment(2));
    client.ok("db", end("commitTransaction", 1));
    assert_eq!(all(&client), [(1, 1), (2, 1)]);
}

/// Its transactions wait for no lock.
fn with_no_lock_timeout(client: &Client) {
    client.ok("db", doc! { "setClientLockTimeout": 0 });
}

#[test]
fn serializable_reads_do_not_change_until_the_end() {
    let client = Client::new();
    let other = client.another(2);
    with_no_lock_timeout(&other);
    for id in [1, 2] {
        client.ok("db", insert(id));
    }
    begin(&client, "serializable");
    client.ok("db", doc! { "find": "c", "filter": { "_id": 1 } });
    begin(&other, "mvcc");
    assert_eq!(code(&other, increment(1)), 16759);
    other.ok("db", increment(2));
    commit(&other);
    assert_eq!(all(&client), [(1, 0), (2, 1)], "the newest state, and the range is locked now");
    begin(&other, "mvcc");
    assert_eq!(code(&other, insert(3)), 16759, "no phantom");
    commit(&client);
    other.ok("db", insert(3));
    commit(&other);
}

#[test]
fn serializable_write_skew_has_a_victim() {
    let client = Client::new();
    let other = client.another(2);
    for id in [1, 2] {
        client.ok("db", insert(id));
    }
    with_no_lock_timeout(&other);
    for client in [&client, &other] {
        begin(client, "serializable");
        assert_eq!(all(client).len(), 2);
    }
    assert_eq!(code(&other, increment(2)), 16759);
    roll_back(&other);
    client.ok("db", increment(1));
    commit(&client);
}

#[test]
fn serializable_scans_of_an_index_keep_its_entries_and_documents() {
    let client = Client::new();
    let other = client.another(2);
    with_no_lock_timeout(&other);
    let by_n = doc! { "key": { "n": 1 }, "name": "n" };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [by_n] });
    let documents: Vec<_> = (0..9).map(|id| doc! { "_id": id, "n": id * 10, "x": 0 }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let find = doc! { "find": "c", "filter": { "n": { "$gte": 20, "$lte": 40 } } };
    let count = |client: &Client| {
        let reply = client.ok("db", find.clone());
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
    };
    begin(&client, "serializable");
    assert_eq!(count(&client), 3);
    begin(&other, "readUncommitted");
    let set = |id: i32, change: Document| {
        doc! { "update": "c", "updates": [{ "q": { "_id": id }, "u": { "$set": change } }] }
    };
    for (command, refused) in [
        (set(8, doc! { "n": 30 }), true),
        (set(3, doc! { "x": 1 }), true),
        (set(8, doc! { "n": 81 }), false),
        (doc! { "insert": "c", "documents": [{ "_id": 20, "n": 25 }] }, true),
        (doc! { "insert": "c", "documents": [{ "_id": 21, "n": 50 }] }, false),
        (doc! { "insert": "c", "documents": [{ "_id": 22, "n": [1, 99] }] }, false),
    ] {
        let expected = if refused { 16759 } else { 0 };
        assert_eq!(code(&other, command.clone()), expected, "{command}");
    }
    // It would make the index multikey, which the reader's plan has ruled out.
    assert_eq!(code(&other, doc! { "commitTransaction": 1 }), 16759);
    assert_eq!(count(&client), 3);
    commit(&client);
}

#[test]
fn serializable_reader_of_a_missing_collection_keeps_it_missing() {
    let client = Client::new();
    let other = client.another(2);
    with_no_lock_timeout(&other);
    begin(&client, "serializable");
    assert!(all(&client).is_empty());
    begin(&other, "mvcc");
    assert_eq!(code(&other, insert(1)), 16759);
    client.ok("db", insert(1));
    commit(&client);
    assert_eq!(all(&client), [(1, 0)]);
}

#[test]
fn serializable_updates_of_one_document_queue() {
    let client = Client::new();
    client.ok("db", insert(1));
    let clients: Vec<Client> = (2..6).map(|id| client.another(id)).collect();
    std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(move || {
                for _ in 0..25 {
                    begin(client, "serializable");
                    client.ok("db", increment(1));
                    commit(client);
                }
            });
        }
    });
    assert_eq!(all(&client), [(1, 100)]);
}

#[test]
fn live_transactions_and_those_who_wait_are_shown() {
    let client = Client::new();
    let other = client.another(2);
    client.ok("db", insert(1));
    begin(&client, "mvcc");
    client.ok("db", increment(1));
    let shown = client.ok("db", doc! { "showLiveTransactions": 1 });
    let one = shown.get_array("transactions").unwrap()[0].as_document().unwrap();
    let lock = one.get_array("rowLocks").unwrap()[0].as_document().unwrap();
    assert_eq!(lock.get_str("index").unwrap(), "db.c.$_id_");
    assert_eq!(lock.get_array("bounds").unwrap().len(), 2);
    let holder = one.get_i32("txnid").unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| other.ok("db", increment(1)));
        let third = client.another(3);
        let request = loop {
            let command = doc! { "showPendingLockRequests": 1, "cursor": {} };
            let reply = third.ok("db", command);
            let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
            if let Some(request) = batch.first() {
                break request.as_document().unwrap().clone();
            }
            std::thread::yield_now();
        };
        assert_eq!(request.get_i32("blockingTxnid").unwrap(), holder);
        assert_eq!(request.get_str("index").unwrap(), "db.c.$_id_");
        assert!(request.get_datetime("started").is_ok());
        let find = |txn: i32| {
            let reply = third.ok("admin", doc! { "currentOp": 1, "$all": true, "rootTxnid": txn });
            let all = reply.get_array("inprog").unwrap().clone();
            all.iter()
                .map(|op| op.as_document().unwrap().get_str("desc").unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(find(holder), ["conn1"]);
        assert_eq!(find(request.get_i32("requestingTxnid").unwrap()), ["conn2"]);
        commit(&client);
        waits.join().unwrap();
    });
    let shown = client.ok("db", doc! { "showPendingLockRequests": 1 });
    assert!(shown.get_array("requests").unwrap().is_empty());
    assert_eq!(all(&client), [(1, 2)]);
}

#[test]
fn update_and_delete_of_many_are_all_or_nothing() {
    let client = Client::new();
    let documents: Vec<_> = (0..2500).map(|id| doc! { "_id": id, "n": 0, "u": id }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let unique = doc! { "key": { "u": 1 }, "name": "u", "unique": true };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [unique] });
    // The last but one meets the last: it is refused, and 2,498 before it go back.
    let shift = |by: i32| {
        doc! { "update": "c", "updates": [
            { "q": {}, "u": [{ "$set": { "n": 1, "u": { "$cond": [
                { "$eq": ["$_id", 2498] }, { "$add": ["$u", by] }, "$u",
            ] } } }], "multi": true },
        ] }
    };
    let count =
        |n: i32| client.ok("db", doc! { "count": "c", "query": { "n": n } }).get_i32("n").unwrap();
    let reply = client.ok("db", shift(1));
    assert_eq!(reply.get_array("writeErrors").unwrap().len(), 1, "{reply}");
    assert_eq!((reply.get_i32("n").unwrap(), count(1)), (0, 0));
    let reply = client.ok("db", shift(10_000));
    assert_eq!((reply.get_i32("nModified").unwrap(), count(1)), (2500, 2500));
    let delete = doc! { "delete": "c", "deletes": [{ "q": { "n": 1 }, "limit": 0 }] };
    assert_eq!(client.ok("db", delete).get_i32("n").unwrap(), 2500);
    assert_eq!(client.ok("db", doc! { "count": "c" }).get_i32("n").unwrap(), 0);
}

#[test]
fn statement_never_meets_a_document_that_it_has_moved() {
    let client = Client::new();
    let by_n = doc! { "key": { "n": 1 }, "name": "n" };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [by_n] });
    let documents: Vec<_> = (0..2500).map(|id| doc! { "_id": id, "n": id % 2 }).collect();
    begin(&client, "mvcc");
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let jump = doc! { "update": "c", "updates": [
        { "q": { "n": { "$in": [0, 1, 10, 11] } }, "u": { "$inc": { "n": 10 } }, "multi": true },
    ] };
    assert_eq!(client.ok("db", jump).get_i32("nModified").unwrap(), 2500);
    let low = doc! { "count": "c", "query": { "n": { "$lt": 20 } } };
    assert_eq!(client.ok("db", low).get_i32("n").unwrap(), 2500);
    commit(&client);
}

#[test]
fn old_batch_insert_is_all_or_nothing() {
    let client = Client::new();
    let send = |ordered: bool, ids: [i32; 3]| {
        let documents: Vec<_> = ids.iter().map(|id| doc! { "_id": id, "n": 0 }).collect();
        let command = doc! { "insert": "c", "documents": documents, "ordered": ordered };
        let body = bson::RawDocumentBuf::try_from(&command).unwrap();
        let request = dispatch::Request {
            database: "db",
            body: &body,
            sequences: &[],
            op: dispatch::OpKind::Legacy { goes_on: false },
            exhaust_allowed: false,
            request_id: 1,
            waited_until: None,
            waker: None,
            finisher: None,
        };
        let reply = client.service.run(&client.connection, &request).document;
        let reply = Document::try_from(&reply).unwrap();
        (reply.get_i32("n").unwrap(), reply.get_array("writeErrors").map_or(0, Vec::len))
    };
    assert_eq!(send(true, [1, 2, 1]), (0, 1));
    assert!(all(&client).is_empty());
    assert_eq!(send(true, [1, 2, 3]), (3, 0));
    assert_eq!(send(false, [4, 3, 5]), (2, 1), "continueOnError");
    assert_eq!(all(&client).len(), 5);
}
