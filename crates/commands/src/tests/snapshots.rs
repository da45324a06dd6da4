//! Reads beside changes of the metadata: a fixed state keeps its collections, and whoever reads the
//! newest state never hears of a snapshot.

use super::Client;
use crate::Service;
use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use catalog::{Catalog, CatalogOptions};
use engine::Engine;
use os::{Clock, Os};
use serverstate::replication::ReplicaSetOptions;
use serverstate::{Parts, ServerInfo, SessionRecords, SilentHost};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn statement(mut command: Document, starts: bool) -> Document {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    command.insert("lsid", doc! { "id": id });
    command.insert("txnNumber", 1_i64);
    command.insert("autocommit", false);
    if starts {
        command.insert("startTransaction", true);
        command.insert("readConcern", doc! { "level": "snapshot" });
    }
    command
}

fn batch(reply: &Document) -> &Vec<Bson> {
    reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap()
}

/// Ways to count the documents of `c`, each over another path of the code.
fn counts(client: &Client, inside: &dyn Fn(Document) -> Document) -> Vec<i64> {
    let run = |command: Document| client.ok("db", inside(command));
    let number = |value: &Bson| value.as_i64().or(value.as_i32().map(i64::from)).unwrap();
    let lookup = doc! { "$lookup": { "from": "c", "pipeline": [], "as": "all" } };
    let looked = run(doc! { "aggregate": "one", "pipeline": [lookup], "cursor": {} });
    let all = batch(&looked)[0].as_document().unwrap().get_array("all").unwrap().len();
    let piped = doc! { "aggregate": "c", "pipeline": [{ "$count": "n" }], "cursor": {} };
    let counted = run(piped);
    let counted =
        batch(&counted).first().map_or(0, |d| number(d.as_document().unwrap().get("n").unwrap()));
    let by_id = run(doc! { "find": "c", "filter": { "_id": 1 } });
    vec![
        batch(&run(doc! { "find": "c" })).len() as i64,
        batch(&run(doc! { "find": "c", "filter": { "a": { "$gte": 0 } } })).len() as i64,
        counted,
        all as i64,
        batch(&by_id).len() as i64 * 3,
        run(doc! { "distinct": "c", "key": "a" }).get_array("values").unwrap().len() as i64,
    ]
}

fn filled() -> Client {
    let client = Client::new();
    let documents: Vec<_> = (0..3).map(|id| doc! { "_id": id, "a": [id, id + 10] }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let a = doc! { "key": { "a": 1 }, "name": "a" };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [a] });
    client.ok("db", doc! { "insert": "one", "documents": [{ "_id": 1 }] });
    client
}

/// What others may do to the collection while a transaction reads it.
fn disturbances() -> Vec<Vec<(&'static str, Document)>> {
    let drop = ("db", doc! { "drop": "c" });
    let insert = ("db", doc! { "insert": "c", "documents": [{ "_id": 9, "a": 9 }] });
    vec![
        vec![drop.clone()],
        vec![("db", doc! { "dropDatabase": 1 }), ("db", doc! { "create": "one" })],
        vec![drop.clone(), insert.clone()],
        vec![drop.clone(), ("db", doc! { "create": "c", "viewOn": "one", "pipeline": [] })],
        vec![("admin", doc! { "renameCollection": "db.c", "to": "db.d" })],
        vec![("admin", doc! { "renameCollection": "db.c", "to": "db.d" }), insert],
        vec![("admin", doc! { "renameCollection": "db.one", "to": "db.c", "dropTarget": true })],
        vec![
            ("admin", doc! { "renameCollection": "db.c", "to": "db.d" }),
            ("admin", doc! { "renameCollection": "db.one", "to": "db.c" }),
        ],
        vec![
            ("admin", doc! { "renameCollection": "db.c", "to": "db.d" }),
            ("admin", doc! { "renameCollection": "db.d", "to": "db.c" }),
        ],
        vec![("db", doc! { "dropIndexes": "c", "index": "*" })],
        vec![("db", doc! { "aggregate": "one", "pipeline": [{ "$out": "c" }], "cursor": {} })],
    ]
}

#[test]
fn transaction_reads_the_documents_of_its_snapshot_whatever_became_of_the_collection() {
    for disturbance in disturbances() {
        let client = filled();
        client.ok("db", statement(doc! { "find": "one" }, true));
        let other = client.another(2);
        for (database, command) in &disturbance {
            other.ok(database, command.clone());
        }
        let found = counts(&client, &|command| statement(command, false));
        assert_eq!(found, [3, 3, 3, 3, 3, 6], "{disturbance:?}");
    }
}

#[test]
fn transaction_that_writes_to_what_others_dropped_or_renamed_conflicts() {
    let writes = [
        doc! { "insert": "c", "documents": [{ "_id": 5 }] },
        doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "b": 1 } } }] },
        doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "findAndModify": "c", "query": { "_id": 1 }, "remove": true },
    ];
    for write in writes {
        let client = filled();
        client.ok("db", statement(doc! { "find": "one" }, true));
        client.another(2).ok("db", doc! { "drop": "c" });
        let reply = client.run("db", statement(write.clone(), false));
        assert_eq!(reply.get_i32("code").ok(), Some(112), "{write} answers {reply}");
    }
}

#[test]
fn name_that_was_free_does_not_show_what_was_renamed_to_it_since() {
    let rename = doc! { "renameCollection": "db.one", "to": "db.new" };
    for tokumx in [false, true] {
        let client = filled();
        if tokumx {
            client.ok("db", doc! { "beginTransaction": 1, "isolation": "mvcc" });
            client.ok("db", doc! { "find": "c" });
        } else {
            client.ok("db", statement(doc! { "find": "c" }, true));
        }
        client.another(2).ok("admin", rename.clone());
        for command in [
            doc! { "find": "new" },
            doc! { "insert": "new", "documents": [{ "_id": 5 }] },
            doc! { "update": "new", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "b": 1 } } }] },
            doc! { "delete": "new", "deletes": [{ "q": {}, "limit": 0 }] },
        ] {
            let name = command.keys().next().unwrap().clone();
            let command = if tokumx { command } else { statement(command, false) };
            let reply = client.run("db", command);
            let code = reply.get_i32("code").or_else(|_| {
                let errors = reply.get_array("writeErrors");
                errors.and_then(|errors| errors[0].as_document().unwrap().get_i32("code"))
            });
            // A failed statement ends a session's transaction: what comes then finds none.
            let expected: &[i32] = match (name.as_str(), tokumx) {
                ("find", false) => &[246],
                // TokuMX's number for the same.
                (_, true) => &[16768, 112],
                _ => &[112, 246, 251],
            };
            assert!(expected.contains(&code.unwrap_or(0)), "{name} answers {reply}");
        }
        assert_eq!(batch(&client.another(3).ok("db", doc! { "find": "new" })).len(), 1);
    }
}

#[test]
fn read_at_a_cluster_time_goes_by_the_names_of_then() {
    let set =
        ReplicaSetOptions { name: "rs".into(), address: "localhost:1".into(), initiate: true };
    let client = Client::member(set);
    client.service.start_replication().unwrap();
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }] });
    client.ok("db", doc! { "insert": "other", "documents": [{ "_id": 3 }] });
    let snapshot = doc! { "level": "snapshot" };
    let seen = client.ok("db", doc! { "find": "c", "readConcern": snapshot });
    let at = seen.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();
    let again = doc! { "level": "snapshot", "atClusterTime": at };
    let rename = |from: &str, to: &str| {
        let rename = doc! { "renameCollection": from, "to": to, "dropTarget": true };
        client.ok("admin", rename);
    };
    rename("db.other", "db.c");
    let at_then = |name: &str| doc! { "find": name, "readConcern": &again };
    assert_eq!(batch(&client.ok("db", at_then("c"))).len(), 2);
    assert_eq!(batch(&client.ok("db", at_then("other"))).len(), 1);
    rename("db.c", "db.new");
    assert_eq!(batch(&client.ok("db", at_then("c"))).len(), 2);
    assert_eq!(client.run("db", at_then("new")).get_i32("code").ok(), Some(246));
    assert_eq!(batch(&client.ok("db", doc! { "find": "new" })).len(), 1);
}

#[test]
fn read_at_a_cluster_time_finds_what_was_dropped_since() {
    let set =
        ReplicaSetOptions { name: "rs".into(), address: "localhost:1".into(), initiate: true };
    let client = Client::member(set);
    client.service.start_replication().unwrap();
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }] });
    let snapshot = doc! { "level": "snapshot" };
    let seen = client.ok("db", doc! { "find": "c", "readConcern": snapshot });
    let at = seen.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();
    client.ok("db", doc! { "drop": "c" });
    let again = doc! { "level": "snapshot", "atClusterTime": at };
    let reply = client.ok("db", doc! { "find": "c", "readConcern": &again });
    assert_eq!(batch(&reply).len(), 2);
    // Drivers put the concern of their session into what goes on with the cursor, too.
    for goes_on in [true, false] {
        let find = doc! { "find": "c", "batchSize": 1, "readConcern": &again };
        let reply = client.ok("db", find);
        let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
        let mut more = if goes_on {
            doc! { "getMore": id, "collection": "c" }
        } else {
            doc! { "killCursors": "c", "cursors": [id] }
        };
        more.insert("readConcern", &again);
        let reply = client.ok("db", more);
        if goes_on {
            let next = reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap();
            assert_eq!(next.len(), 1);
        }
    }
}

#[test]
fn plain_operations_beside_creates_and_drops_never_hear_of_a_snapshot() {
    let client = filled();
    let done = AtomicBool::new(false);
    let operations = [
        doc! { "find": "c", "filter": { "a": { "$gte": 0 } } },
        doc! { "find": "c", "filter": { "_id": 1 } },
        doc! { "count": "c", "query": { "a": 1 } },
        doc! { "distinct": "c", "key": "a" },
        doc! { "aggregate": "c", "pipeline": [{ "$group": { "_id": "$a" } }], "cursor": {} },
        doc! {
            "aggregate": "one",
            "pipeline": [{ "$lookup": { "from": "c", "pipeline": [], "as": "c" } }],
            "cursor": {},
        },
        doc! { "update": "c", "updates": [{ "q": { "a": 1 }, "u": { "$set": { "b": 1 } } }] },
        doc! {
            "update": "c",
            "updates": [{ "q": { "a": 1 }, "u": { "$inc": { "b": 1 } }, "multi": true }],
        },
        doc! { "delete": "c", "deletes": [{ "q": { "a": 7 }, "limit": 0 }] },
        doc! { "findAndModify": "c", "query": { "a": 1 }, "update": { "$inc": { "b": 1 } } },
        doc! { "insert": "c", "documents": [{ "a": 1 }] },
        doc! { "explain": { "find": "c", "filter": { "a": 1 } }, "verbosity": "executionStats" },
        doc! { "dbHash": 1 },
        doc! { "validate": "one" },
    ];
    std::thread::scope(|scope| {
        let (done, other) = (&done, client.another(2));
        scope.spawn(move || {
            let a = doc! { "key": { "a": 1 }, "name": "a" };
            for _ in 0..150 {
                other.run("db", doc! { "drop": "c" });
                other.run("db", doc! { "createIndexes": "c", "indexes": [a.clone()] });
                other.run("db", doc! { "insert": "c", "documents": [{ "a": 1 }, { "a": 7 }] });
                other.run("db", doc! { "dropIndexes": "c", "index": "a" });
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            for operation in &operations {
                let reply = client.run("db", operation.clone());
                let refused = reply.get_i32("code").is_ok_and(|code| code == 246);
                assert!(!refused, "{operation} answers {reply}");
                assert!(!reply.contains_key("writeErrors"), "{operation} answers {reply}");
            }
        }
    });
}

/// The machine's clock, which ends whoever asks it for the date by a panic, without the hook's
/// noise, when it has been asked so many times.
struct Buggy {
    clock: Arc<dyn Clock>,
    /// Questions until the panic; 0: none.
    left: AtomicU64,
}

impl Clock for Buggy {
    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn wall_ms(&self) -> i64 {
        let count = |left: u64| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) == Ok(1) {
            resume_unwind(Box::new("planted"));
        }
        self.clock.wall_ms()
    }

    fn sleep(&self, time: Duration) {
        self.clock.sleep(time);
    }
}

/// A statement asks for the date when it begins and for each `_id` it makes; whichever question
/// ends it, nothing of half a statement can be committed.
#[test]
fn statement_that_ends_by_a_bug_takes_its_transaction_with_it() {
    let mut gone = 0;
    for questions in 1.. {
        let buggy = Arc::new(Buggy { clock: Os::real().clock, left: AtomicU64::new(0) });
        let os = Os { clock: Arc::clone(&buggy) as Arc<dyn Clock>, ..Os::real() };
        let options = CatalogOptions::new(os.clone(), std::env::temp_dir());
        let catalog = Catalog::open(Engine::temporary(), options).unwrap();
        let (info, host) = (ServerInfo::default(), Arc::new(SilentHost));
        let memory = limits::Account::new(1 << 30);
        let session_records = SessionRecords::open(&catalog).unwrap();
        let parts = Parts { catalog, session_records, os, info, host, memory, follows: false };
        let client = Client::on(Service::new(parts), 1);
        client.ok("db", doc! { "create": "c" });
        let insert = |documents: Vec<Document>| doc! { "insert": "c", "documents": documents };
        client.ok("db", statement(insert(vec![doc! { "_id": 1 }]), true));
        let half = insert(vec![doc! { "_id": 2 }, doc! { "made": "_id" }]);
        buggy.left.store(questions, Ordering::SeqCst);
        let ended = catch_unwind(AssertUnwindSafe(|| client.run("db", statement(half, false))));
        let asked_often_enough = buggy.left.swap(0, Ordering::SeqCst) == 0;
        assert_eq!(ended.is_err(), asked_often_enough);
        if !asked_often_enough {
            break;
        }
        let reply = client.run("admin", statement(doc! { "commitTransaction": 1 }, false));
        let found = batch(&client.ok("db", doc! { "find": "c" })).len();
        if reply.get_i32("code").is_ok_and(|code| code == 251) {
            gone += 1;
            assert_eq!(found, 0, "after {questions} questions");
            client.ok("db", insert(vec![doc! { "_id": 2 }]));
        } else {
            // It ended before it touched its transaction, or behind its last write.
            assert!(found == 1 || found == 3, "{found} after {questions} questions: {reply}");
        }
    }
    assert!(gone > 0, "no question is asked in the middle of the statement");
}
