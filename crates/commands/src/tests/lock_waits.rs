//! Requests that wait for what an open transaction holds: how each of them ends.

use super::Client;
use bson::{Binary, Document, doc, spec::BinarySubtype};
use engine::Engine;
use std::sync::Arc;
use std::time::Duration;

/// Long enough that a test which waits for it has failed.
const FOR_EVER: Duration = Duration::from_secs(30);

fn client(lock_timeout: Duration) -> Client {
    let engine = Engine::temporary_with(|options| options.lock_timeout = lock_timeout);
    Client::over(Arc::new(serverstate::SilentHost), engine, None)
}

fn statement(mut command: Document, starts: bool) -> Document {
    command
        .insert("lsid", doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![1; 16] } });
    command.insert("txnNumber", 1_i64);
    command.insert("autocommit", false);
    if starts {
        command.insert("startTransaction", true);
    }
    command
}

fn insert(collection: &str, documents: Vec<Document>) -> Document {
    doc! { "insert": collection, "documents": documents }
}

fn increment(id: i32) -> Document {
    doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } }
}

/// A collection with two documents and a unique index; a session's transaction has changed the
/// first one, inserted a third one and made another collection.
fn session_holds(client: &Client) {
    let unique = doc! { "key": { "u": 1 }, "name": "u", "unique": true };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [unique] });
    let documents = vec![doc! { "_id": 1, "u": 1 }, doc! { "_id": 2, "u": 2 }];
    client.ok("db", insert("c", documents.clone()));
    client.ok("db", insert("source", documents));
    client.ok("db", statement(doc! { "update": "c", "updates": [increment(1)] }, true));
    client.ok("db", statement(insert("c", vec![doc! { "_id": 3, "u": 3 }]), false));
    client.ok("db", statement(insert("made", vec![doc! { "_id": 1 }]), false));
}

/// What waits for it: writes for a document or a key, changes for the collection or its name.
fn behind_a_session() -> Vec<(&'static str, Document)> {
    let delete =
        |limit: i32| doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": limit }] };
    let index = doc! { "key": { "a": 1 }, "name": "a" };
    let bulk = doc! { "bulkWrite": 1, "ops": [{ "update": 0, "filter": { "_id": 1 }, "updateMods": { "$inc": { "n": 1 } } }],
    "nsInfo": [{ "ns": "db.c" }] };
    vec![
        ("db", doc! { "update": "c", "updates": [increment(1)] }),
        ("db", doc! { "update": "c", "updates": [increment(1)], "ordered": false }),
        (
            "db",
            doc! { "update": "c", "updates": [{ "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true }] },
        ),
        (
            "db",
            doc! { "update": "c", "updates": [{ "q": { "_id": 3 }, "u": { "$inc": { "n": 1 } }, "upsert": true }] },
        ),
        ("db", delete(1)),
        ("db", delete(0)),
        (
            "db",
            doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$inc": { "n": 1 } } },
        ),
        ("db", doc! { "findAndModify": "c", "query": { "_id": 1 }, "remove": true }),
        ("db", insert("c", vec![doc! { "_id": 3, "u": 9 }])),
        ("db", insert("c", vec![doc! { "_id": 4, "u": 3 }])),
        ("admin", bulk),
        (
            "db",
            doc! { "aggregate": "source", "pipeline": [{ "$merge": { "into": "c" } }], "cursor": {} },
        ),
        ("db", doc! { "create": "made" }),
        ("db", insert("made", vec![doc! { "_id": 2 }])),
        ("db", doc! { "drop": "c" }),
        ("db", doc! { "dropDatabase": 1 }),
        ("admin", doc! { "renameCollection": "db.c", "to": "db.d" }),
        ("admin", doc! { "renameCollection": "db.source", "to": "db.made" }),
        ("db", doc! { "createIndexes": "c", "indexes": [index] }),
        ("db", doc! { "dropIndexes": "c", "index": "u" }),
        ("db", doc! { "collMod": "c", "validator": { "n": 1 } }),
        ("db", doc! { "convertToCapped": "c", "size": 100_000 }),
        ("db", doc! { "reIndex": "c", "options": { "compression": "zlib" } }),
    ]
}

/// Runs each command on a connection of its own; the code and the time of each.
fn run_all(client: &Client, commands: &[(&str, Document)]) -> Vec<(i32, Duration)> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (10..)
            .zip(commands)
            .map(|(number, (database, command))| {
                let client = client.another(number);
                scope.spawn(move || {
                    let clock = os::Os::real().clock;
                    let started = clock.monotonic();
                    let reply = client.run(database, command.clone());
                    (reply.get_i32("code").unwrap_or(0), clock.monotonic().saturating_sub(started))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn every_wait_behind_an_open_transaction_ends_with_the_lock_timeout() {
    let timeout = Duration::from_millis(400);
    let client = client(timeout);
    session_holds(&client);
    let commands = behind_a_session();
    for ((_, command), (code, time)) in commands.iter().zip(run_all(&client, &commands)) {
        assert_eq!(code, 24, "{command}");
        assert!(time >= timeout, "{command} waited {time:?}");
    }
    client.ok("admin", statement(doc! { "commitTransaction": 1 }, false));
    let count = client.ok("db", doc! { "count": "c" });
    assert_eq!(count.get_i32("n").unwrap(), 3, "nothing was in the transaction's way");
}

#[test]
fn every_wait_behind_an_open_transaction_ends_with_its_operations_time() {
    let client = client(FOR_EVER);
    session_holds(&client);
    let mut commands = behind_a_session();
    for (_, command) in &mut commands {
        command.insert("maxTimeMS", 100);
    }
    for ((_, command), (code, _)) in commands.iter().zip(run_all(&client, &commands)) {
        assert_eq!(code, 50, "{command}");
    }
}

/// Runs the commands and tells `end`, again and again until all have ended, which operations run;
/// their codes. All of them wait by the first time, or have ended by themselves.
fn codes_after(client: &Client, end: impl Fn(&[i64])) -> Vec<(Document, i32)> {
    let commands = behind_a_session();
    let codes = std::thread::scope(|scope| {
        let all = scope.spawn(|| run_all(client, &commands));
        let watcher = client.another(9);
        let clock = os::Os::real().clock;
        let started = clock.monotonic();
        while !all.is_finished() {
            let reply = watcher.ok("admin", doc! { "currentOp": 1 });
            let number = |op: &bson::Bson| {
                // Transactions that no request works in are listed, too, without a number.
                let number = op.as_document()?.get("opid")?;
                number.as_i64().or(number.as_i32().map(i64::from))
            };
            let running: Vec<i64> =
                reply.get_array("inprog").unwrap().iter().filter_map(number).collect();
            // The watcher runs, too.
            if running.len() > commands.len()
                || clock.monotonic().saturating_sub(started) > Duration::from_secs(2)
            {
                end(&running);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        all.join().unwrap()
    });
    commands.into_iter().map(|(_, c)| c).zip(codes.into_iter().map(|(code, _)| code)).collect()
}

#[test]
fn every_wait_behind_an_open_transaction_ends_when_it_is_killed() {
    let client = client(FOR_EVER);
    session_holds(&client);
    let killer = client.another(8);
    let codes = codes_after(&client, |running| {
        for number in running {
            killer.ok("admin", doc! { "killOp": 1, "op": *number });
        }
    });
    for (command, code) in codes {
        assert_eq!(code, 11601, "{command}");
    }
}

#[test]
fn the_servers_end_ends_every_wait_at_once() {
    let client = client(FOR_EVER);
    session_holds(&client);
    // Whoever is late finds the transaction gone and nothing to wait for.
    let codes = codes_after(&client, |_| client.service.end_waits());
    let ended = codes.iter().filter(|(_, code)| *code == 11600).count();
    assert!(ended > 0, "{codes:?}");
    let reply = client.run("admin", statement(doc! { "commitTransaction": 1 }, false));
    assert_eq!(reply.get_i32("code").unwrap(), 251, "the transaction ends with the server");
}

#[test]
fn statements_behind_a_connections_transaction_end_with_the_lock_timeout() {
    let client = client(Duration::from_millis(400));
    client.ok("db", insert("c", vec![doc! { "_id": 1 }]));
    client.ok("db", insert("gone", vec![doc! { "_id": 1 }]));
    client.ok("db", doc! { "beginTransaction": 1 });
    client.ok("db", doc! { "update": "c", "updates": [increment(1)] });
    client.ok("db", doc! { "drop": "gone" });
    let commands = [
        ("db", doc! { "update": "c", "updates": [increment(1)] }),
        ("db", doc! { "drop": "c" }),
        ("db", insert("gone", vec![doc! { "_id": 2 }])),
        ("db", doc! { "drop": "gone" }),
        ("db", doc! { "createIndexes": "gone", "indexes": [{ "key": { "a": 1 }, "name": "a" }] }),
    ];
    for ((_, command), (code, _)) in commands.iter().zip(run_all(&client, &commands)) {
        assert_eq!(code, 24, "{command}");
    }
    client.ok("db", doc! { "commitTransaction": 1 });
}

#[test]
fn a_serializable_reader_holds_up_what_it_has_read_and_nothing_else() {
    let client = client(FOR_EVER);
    client.ok("db", insert("c", vec![doc! { "_id": 1 }]));
    client.ok("db", doc! { "beginTransaction": 1, "isolation": "serializable" });
    client.ok("db", doc! { "find": "c" });
    let (other, third) = (client.another(2), client.another(3));
    std::thread::scope(|scope| {
        let drops = scope.spawn(|| other.run("db", doc! { "drop": "c", "maxTimeMS": 3000 }));
        // As long as that waits, others create, change and drop.
        let mut changes = 0;
        while !drops.is_finished() {
            let name = format!("x{changes}");
            third.ok("db", doc! { "create": &name });
            third.ok("db", doc! { "drop": &name });
            changes += 1;
        }
        assert_eq!(drops.join().unwrap().get_i32("code").unwrap(), 50);
        assert!(changes > 20, "{changes} changes beside a drop that waits");
    });
    client.ok("db", doc! { "commitTransaction": 1 });
    client.ok("db", doc! { "drop": "c" });
}
