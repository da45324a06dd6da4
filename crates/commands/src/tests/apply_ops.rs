//! `applyOps` and what else restores a dump.

use super::*;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Timestamp};

fn uuid(byte: u8) -> Binary {
    Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] }
}

fn batch(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
}

fn all(client: &Client, collection: &str) -> Vec<Document> {
    batch(&client.ok("db", doc! { "find": collection, "sort": { "_id": 1 } }))
}

fn apply(client: &Client, entries: Vec<Document>) -> Document {
    client.run("admin", doc! { "applyOps": entries })
}

/// Applies entries that must all be done.
fn applied(client: &Client, entries: Vec<Document>) {
    let done: Vec<Bson> = vec![Bson::Boolean(true); entries.len()];
    let reply = apply(client, entries);
    assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{reply}");
    assert_eq!(reply.get_array("results").unwrap(), &done, "{reply}");
}

fn command(object: Document) -> Document {
    doc! { "op": "c", "ns": "db.$cmd", "o": object }
}

fn insert(object: Document) -> Document {
    doc! { "op": "i", "ns": "db.c", "o": object }
}

fn update(id: i32, object: Document) -> Document {
    doc! { "op": "u", "ns": "db.c", "o2": { "_id": id }, "o": object }
}

#[test]
fn documents_come_change_and_go() {
    let client = Client::new();
    client.ok("db", doc! { "create": "c" });
    let empty = Timestamp { time: 0, increment: 0 };
    let entries = || {
        vec![
            doc! { "op": "n", "ns": "", "o": { "msg": "nothing" } },
            insert(doc! { "_id": 1, "a": 1, "t": empty }),
            insert(doc! { "_id": 2, "a": { "b": [1, 2] } }),
            insert(doc! { "_id": 3, "gone": true }),
            update(1, doc! { "$v": 1, "$set": { "a": 2, "n.m": 1 }, "$unset": { "x": true } }),
            update(
                2,
                doc! { "$v": 2, "diff": { "sa": { "sb": { "a": true, "u0": 9 } }, "i": { "z": 1 } } },
            ),
            update(1, doc! { "$set": { "k": 1 } }),
            doc! { "op": "d", "ns": "db.c", "o": { "_id": 3 }, "ts": empty, "wall": bson::DateTime::MIN },
            doc! { "op": "d", "ns": "db.none", "o": { "_id": 3 } },
        ]
    };
    // Twice is once.
    for _ in 0..2 {
        let reply = apply(&client, entries());
        assert_eq!(reply.get_i32("applied").unwrap(), 8, "{reply}");
        assert!(
            reply.get_array("results").unwrap().iter().all(|done| *done == Bson::Boolean(true))
        );
        assert_eq!(
            all(&client, "c"),
            [
                doc! { "_id": 1, "a": 2, "t": empty, "n": { "m": 1 }, "k": 1 },
                doc! { "_id": 2, "a": { "b": [9, 2] }, "z": 1 },
            ]
        );
    }
    applied(&client, vec![update(2, doc! { "_id": 2, "whole": 1 })]);
    assert_eq!(all(&client, "c")[1], doc! { "_id": 2, "whole": 1 });
    // `b` is an upsert.
    let mut missing = update(9, doc! { "$v": 2, "diff": { "i": { "a": 1 } } });
    let reply = apply(&client, vec![missing.clone(), insert(doc! { "_id": 4 })]);
    assert_eq!(reply.get_i32("code").unwrap(), 8);
    assert_eq!(reply.get_array("results").unwrap(), &[false.into(), Bson::from(true)]);
    let mut of_history = missing.clone();
    of_history.insert("ts", Timestamp { time: 7, increment: 1 });
    applied(&client, vec![of_history]);
    assert_eq!(all(&client, "c").last().unwrap(), &doc! { "_id": 4 });
    missing.insert("b", true);
    applied(&client, vec![missing]);
    assert_eq!(all(&client, "c").last().unwrap(), &doc! { "_id": 9, "a": 1 });
}

#[test]
fn what_cannot_be_applied_is_told() {
    let client = Client::new();
    client.ok("db", doc! { "create": "c" });
    let nowhere =
        |op: &str| doc! { "op": op, "ns": "db.none", "o": { "_id": 1 }, "o2": { "_id": 1 } };
    for (entries, code, results) in [
        (vec![insert(doc! { "_id": 1 }), nowhere("i"), insert(doc! { "_id": 2 })], 26, "+-"),
        (vec![nowhere("u")], 26, "-"),
        (vec![insert(doc! { "a": 1 })], 4, "-"),
        (vec![update(1, doc! { "$v": 3 })], 4_772_600, "-"),
        (vec![update(1, doc! { "$v": 2, "diff": { "bad": 1 } })], 8, "-"),
        (vec![command(doc! { "drop": "none" })], 0, "+"),
        (vec![command(doc! { "dropIndexes": "c", "index": "none" })], 27, "-"),
        (vec![command(doc! { "aggregate": "c" })], 2, "-"),
        (vec![command(doc! { "create": "c", "capped": true, "size": 4096 })], 48, "-"),
    ] {
        let reply = apply(&client, entries.clone());
        assert_eq!(reply.get_i32("code").unwrap_or(0), code, "{entries:?} gave {reply}");
        let done = reply.get_array("results").unwrap().iter();
        let done: String =
            done.map(|d| if *d == Bson::Boolean(true) { '+' } else { '-' }).collect();
        assert_eq!(done, results, "{entries:?}");
    }
    for (fields, code) in [
        (doc! { "preCondition": [{ "ns": "db.c", "q": {}, "res": {} }] }, 6_711_600),
        (doc! { "alwaysUpsert": true }, 6_711_601),
        (doc! { "prepare": true }, 2),
        (doc! { "oplogApplicationMode": "Wrong" }, 2),
        (doc! { "unknown": 1 }, 40_415),
    ] {
        let mut whole = doc! { "applyOps": [] };
        whole.extend(fields.clone());
        assert_eq!(client.run("admin", whole).get_i32("code").unwrap(), code, "{fields}");
    }
    for entry in [
        doc! { "op": "x", "ns": "db.c", "o": {} },
        doc! { "op": "i", "o": {} },
        doc! { "op": "i", "ns": "db.c" },
    ] {
        assert_eq!(apply(&client, vec![entry]).get_f64("ok").ok(), Some(0.0));
    }
    let drop = command(doc! { "dropDatabase": 1 });
    let both = apply(&client, vec![drop.clone(), insert(doc! { "_id": 1 })]);
    assert_eq!(both.get_i32("code").unwrap(), 6_275_900);
    applied(&client, vec![drop]);
    let nested =
        (0..30).fold(insert(doc! { "_id": 1 }), |inner, _| command(doc! { "applyOps": [inner] }));
    assert_eq!(apply(&client, vec![nested]).get_i32("code").unwrap(), 9);
}

#[test]
fn collections_keep_their_uuids() {
    let client = Client::new();
    let of = |name: &str| {
        let list =
            batch(&client.ok("db", doc! { "listCollections": 1, "filter": { "name": name } }));
        list.first().map(|found| found.get_document("info").unwrap().get("uuid").cloned().unwrap())
    };
    let with = |mut entry: Document, byte: u8| {
        entry.insert("ui", uuid(byte));
        entry
    };
    let create = || {
        with(
            command(
                doc! { "create": "c", "idIndex": { "v": 2, "key": { "_id": 1 }, "name": "_id_" } },
            ),
            7,
        )
    };
    applied(&client, vec![create()]);
    applied(&client, vec![create()]);
    assert_eq!(of("c"), Some(Bson::Binary(uuid(7))));
    let other = with(command(doc! { "create": "other" }), 7);
    assert_eq!(apply(&client, vec![other]).get_i32("code").unwrap(), 48);
    let clash = with(command(doc! { "create": "c" }), 8);
    assert_eq!(apply(&client, vec![clash]).get_i32("code").unwrap(), 48);
    applied(&client, vec![with(insert(doc! { "_id": 1 }), 7)]);
    let reply = apply(&client, vec![with(insert(doc! { "_id": 2 }), 9)]);
    assert_eq!(reply.get_array("results").unwrap(), &[Bson::from(false)]);
    // Indexes, options and names, by UUID whatever the name.
    applied(
        &client,
        vec![
            with(
                command(doc! { "createIndexes": "x", "v": 2, "key": { "a": 1 }, "name": "a_1" }),
                7,
            ),
            with(
                command(
                    doc! { "commitIndexBuild": "c", "indexes": [{ "v": 2, "key": { "b": 1 }, "name": "b_1" }], "indexBuildUUID": uuid(1) },
                ),
                7,
            ),
            command(doc! { "startIndexBuild": "c", "indexes": [] }),
            with(command(doc! { "collMod": "c", "index": { "name": "b_1", "hidden": true } }), 7),
            with(command(doc! { "dropIndexes": "c", "index": "a_1" }), 7),
            command(doc! { "renameCollection": "db.c", "to": "db.d", "dropTarget": uuid(3) }),
        ],
    );
    let indexes = batch(&client.ok("db", doc! { "listIndexes": "d" }));
    let names: Vec<_> = indexes.iter().map(|index| index.get_str("name").unwrap()).collect();
    assert_eq!(names, ["_id_", "b_1"]);
    assert_eq!(of("d"), Some(Bson::Binary(uuid(7))));
    let restarted = client.restarted(2);
    let list = batch(&restarted.ok("db", doc! { "listCollections": 1 }));
    assert_eq!(list[0].get_document("info").unwrap().get("uuid"), Some(&Bson::Binary(uuid(7))));
    applied(&client, vec![with(command(doc! { "drop": "d" }), 7)]);
    assert_eq!(of("d"), None);
    let gone = with(command(doc! { "drop": "d" }), 7);
    assert_eq!(apply(&client, vec![gone]).get_i32("code").unwrap(), 26);
}

#[test]
fn users_and_roles_of_a_dump_are_kept() {
    let client = Client::new();
    let version = client.ok("admin", doc! { "getParameter": 1, "authSchemaVersion": 1 });
    assert_eq!(version.get_i32("authSchemaVersion").unwrap(), 5);
    let user = |db: &str, name: &str, secret: i32| {
        doc! { "_id": format!("{db}.{name}"), "user": name, "db": db, "credentials": { "external": true }, "customData": secret, "roles": [] }
    };
    let role = doc! { "_id": "admin.r", "role": "r", "db": "admin", "privileges": [], "roles": [] };
    let merge = |users: Vec<Document>, fields: Document| {
        client.ok("admin", doc! { "drop": "tempusers" });
        client.ok("admin", doc! { "insert": "tempusers", "documents": users });
        let mut merge =
            doc! { "_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers" };
        merge.extend(fields);
        client.run("admin", merge)
    };
    let kept = |collection: &str| -> Vec<String> {
        let found = batch(&client.ok("admin", doc! { "find": collection, "sort": { "_id": 1 } }));
        let shown = |u: &Document| {
            format!("{}:{}", u.get_str("_id").unwrap(), u.get_i32("customData").unwrap_or(0))
        };
        found.iter().map(shown).collect()
    };
    client.ok("admin", doc! { "insert": "temproles", "documents": [role] });
    let both = doc! { "tempRolesCollection": "admin.temproles", "drop": false, "db": "" };
    assert_eq!(
        merge(vec![user("admin", "a", 1), user("db", "b", 1)], both).get_f64("ok").ok(),
        Some(1.0)
    );
    assert_eq!(kept("system.users"), ["admin.a:1", "db.b:1"]);
    assert_eq!(kept("system.roles"), ["admin.r:0"]);
    merge(
        vec![user("db", "b", 2), user("db", "c", 2), user("admin", "d", 2)],
        doc! { "db": "db", "drop": false },
    );
    assert_eq!(kept("system.users"), ["admin.a:1", "db.b:1", "db.c:2"]);
    merge(vec![user("db", "b", 3), user("db", "e", 3)], doc! { "db": "db", "drop": true });
    assert_eq!(kept("system.users"), ["admin.a:1", "db.b:3", "db.e:3"]);
    merge(vec![user("db", "e", 3)], doc! { "db": "db", "drop": true });
    assert_eq!(kept("system.users"), ["admin.a:1", "db.e:3"]);
    let named =
        merge(vec![doc! { "_id": 1, "user": "x", "db": "db" }], doc! { "db": "", "drop": true });
    assert_eq!(named.get_i32("code").unwrap(), 9);
    assert_eq!(kept("system.users"), ["admin.a:1", "db.e:3"]);
    // No account is left by somebody from elsewhere, nor by another way than this.
    let away = ConnectionInfo { remote: "10.0.0.9:5".into(), local: "10.0.0.1:1".into() };
    let away = Client {
        service: Arc::clone(&client.service),
        connection: client.service.open_connection(away),
    };
    let merge_it = doc! { "_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers" };
    assert_eq!(away.run("admin", merge_it).get_i32("code").unwrap(), 13);
    let planted = doc! { "op": "i", "ns": "admin.system.users", "o": user("admin", "evil", 1) };
    assert_eq!(apply(&client, vec![planted]).get_f64("ok").ok(), Some(0.0));
    assert_eq!(kept("system.users"), ["admin.a:1", "db.e:3"]);
    let nothing = client.run("admin", doc! { "_mergeAuthzCollections": 1, "drop": true, "db": "" });
    assert_eq!(nothing.get_i32("code").unwrap(), 2);
}
