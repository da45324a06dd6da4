//! What a command has acknowledged as durable is there after a crash: every command of the registry
//! that leaves something behind has a row here.

use super::Client;
use crate::registry::COMMANDS;
use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use engine::Engine;
use os::sim::{Fault, SimOs, Survival};
use serverstate::SilentHost;
use serverstate::replication::ReplicaSetOptions;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A server on a disk that can crash.
struct Machine {
    disk: SimOs,
    member: bool,
    client: Client,
}

impl Machine {
    fn new(member: bool, initiated: bool) -> Self {
        let disk = SimOs::new(1);
        let client = Self::start(&disk.os(), member, initiated);
        Self { disk, member, client }
    }

    fn start(os: &os::Os, member: bool, initiate: bool) -> Client {
        let name = || "rs".to_owned();
        let address = || "localhost:1".to_owned();
        let set = member.then(|| ReplicaSetOptions { name: name(), address: address(), initiate });
        let kept = engine::HistoryOptions { bytes: u64::MAX, min_age: std::time::Duration::ZERO };
        let engine =
            Engine::temporary_on_with(os, |options| options.history = member.then_some(kept));
        let client = Client::over(Arc::new(SilentHost), engine, set);
        client.service.start_replication().unwrap();
        client.service.test_commands.store(true, Ordering::Relaxed);
        client
    }

    /// The power goes and comes back: what was not synced is gone.
    fn crash(self) -> Client {
        self.disk.crash();
        drop(self.client);
        Self::start(&self.disk.reboot_with(Survival::Nothing), self.member, false)
    }
}

/// How sure what a command did is when it is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AckDurability {
    /// As the write concern asks.
    AsAsked,
    /// Durable, whatever is asked; it takes no write concern.
    Always,
    /// As before, on a member of a set alone. Its node is given no configuration first where it is
    /// the command that gives one.
    AlwaysOnMember { initiated: bool },
    /// It leaves nothing behind of which a crash could take something away.
    Nothing,
}

struct Row {
    command: &'static str,
    before: Vec<(&'static str, Document)>,
    run: (&'static str, Document),
    kept: fn(&Client) -> bool,
    durability: AckDurability,
}

fn row(
    run: (&'static str, Document),
    before: &[(&'static str, Document)],
    kept: fn(&Client) -> bool,
) -> Row {
    let name = run.1.keys().next().unwrap().clone();
    let command = COMMANDS.iter().find(|command| command.name == name).unwrap().name;
    Row { command, before: before.to_vec(), run, kept, durability: AckDurability::AsAsked }
}

impl Row {
    fn with_durability(mut self, durability: AckDurability) -> Self {
        self.durability = durability;
        self
    }
}

fn ids(client: &Client, collection: &str) -> Vec<i32> {
    let find = doc! { "find": collection, "sort": { "_id": 1 } };
    let reply = client.ok("db", find);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|d| d.as_document().unwrap().get_i32("_id").unwrap()).collect()
}

fn first(client: &Client, command: Document) -> Vec<Document> {
    let reply = client.run("db", command);
    let Ok(cursor) = reply.get_document("cursor") else { return Vec::new() };
    let batch = cursor.get_array("firstBatch").unwrap();
    batch.iter().map(|d| d.as_document().unwrap().clone()).collect()
}

fn batch_len(reply: &Document) -> usize {
    reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
}

fn collections(client: &Client) -> Vec<String> {
    let mut found: Vec<_> = first(client, doc! { "listCollections": 1 })
        .iter()
        .map(|c| c.get_str("name").unwrap().to_owned())
        .collect();
    found.sort();
    found
}

fn has(client: &Client, name: &str) -> bool {
    collections(client).iter().any(|known| known == name)
}

fn options(client: &Client) -> Document {
    let found = first(client, doc! { "listCollections": 1, "filter": { "name": "c" } });
    found[0].get_document("options").unwrap().clone()
}

fn index(client: &Client, name: &str) -> Option<Document> {
    let found = first(client, doc! { "listIndexes": "c" });
    found.into_iter().find(|index| index.get_str("name").ok() == Some(name))
}

fn statement(mut command: Document, starts: bool) -> Document {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    command.insert("lsid", doc! { "id": id });
    command.insert("txnNumber", 1_i64);
    command.insert("autocommit", false);
    if starts {
        command.insert("startTransaction", true);
    }
    command
}

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id, "a": id }] }
}

fn indexed() -> Document {
    doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] }
}

fn writes() -> Vec<Row> {
    let one = &[("db", insert(1))];
    let merge = |stage: Document| {
        doc! { "aggregate": "c", "pipeline": [stage], "cursor": {} }
    };
    vec![
        row(("db", insert(1)), &[], |c| ids(c, "c") == [1]),
        row(
            ("db", doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "b": 5 } }] }),
            one,
            |c| first(c, doc! { "find": "c", "filter": { "b": 5 } }).len() == 1,
        ),
        row(
            ("db", doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] }),
            one,
            |c| ids(c, "c").is_empty(),
        ),
        row(
            (
                "admin",
                doc! {
                    "bulkWrite": 1,
                    "ops": [{ "insert": 0, "document": { "_id": 2 } }],
                    "nsInfo": [{ "ns": "db.c" }],
                },
            ),
            &[],
            |c| ids(c, "c") == [2],
        ),
        row(
            ("db", doc! { "findAndModify": "c", "query": { "_id": 1 }, "remove": true }),
            one,
            |c| ids(c, "c").is_empty(),
        ),
        row(("db", merge(doc! { "$out": "d" })), one, |c| ids(c, "d") == [1]),
        row(("db", merge(doc! { "$merge": "d" })), one, |c| ids(c, "d") == [1]),
        row(
            (
                "db",
                doc! {
                    "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": { "batchSize": 0 },
                },
            ),
            one,
            |c| ids(c, "d") == [1],
        ),
        row(
            (
                "db",
                doc! {
                    "mapReduce": "c",
                    "map": "function() { emit(this._id, 1) }",
                    "reduce": "function(key, values) { return 1 }",
                    "out": "d",
                },
            ),
            one,
            |c| has(c, "d"),
        ),
        row(
            ("admin", statement(doc! { "commitTransaction": 1 }, false)),
            &[("db", indexed()), ("db", statement(insert(1), true))],
            |c| ids(c, "c") == [1],
        ),
        row(
            ("admin", doc! { "commitTransaction": 1 }),
            &[("db", indexed()), ("db", doc! { "beginTransaction": 1 }), ("db", insert(1))],
            |c| ids(c, "c") == [1],
        ),
        row(
            ("admin", statement(doc! { "abortTransaction": 1 }, false)),
            &[("db", indexed()), ("db", statement(insert(1), true))],
            |c| ids(c, "c").is_empty(),
        )
        .with_durability(AckDurability::Nothing),
    ]
}

fn partitions(client: &Client) -> i64 {
    client.ok("db", doc! { "getPartitionInfo": "c" }).get_i64("numPartitions").unwrap()
}

fn definitions() -> Vec<Row> {
    let one = &[("db", insert(1))];
    let with_index = &[("db", insert(1)), ("db", indexed())];
    let capped = &[("db", doc! { "create": "c", "capped": true, "size": 9999 }), ("db", insert(1))];
    let view = &[("db", doc! { "create": "c", "viewOn": "x", "pipeline": [] })];
    let user = doc! { "_id": "db.me", "user": "me", "db": "db", "credentials": { "external": true }, "roles": [] };
    let add = ("db", doc! { "addPartition": "c", "newMax": { "_id": 5 } });
    let partitioned = &[("db", doc! { "create": "c", "partitioned": true }), ("db", insert(1))];
    let in_two = &[partitioned[0].clone(), partitioned[1].clone(), add.clone()];
    let users = &[("admin", doc! { "insert": "tempusers", "documents": [user] })];
    let old = doc! { "user": "me", "pwd": "0123456789abcdef0123456789abcdef", "roles": [] };
    let old_users = &[("db", doc! { "insert": "old", "documents": [old] })];
    vec![
        row(("db", doc! { "create": "c", "validationLevel": "moderate" }), &[], |c| {
            has(c, "c") && options(c).get_str("validationLevel").ok() == Some("moderate")
        }),
        row(("db", indexed()), one, |c| index(c, "a").is_some()),
        row(("db", doc! { "drop": "c" }), one, |c| !has(c, "c")),
        row(("db", doc! { "dropDatabase": 1 }), one, |c| collections(c).is_empty()),
        row(("db", doc! { "dropIndexes": "c", "index": "a" }), with_index, |c| {
            has(c, "c") && index(c, "a").is_none()
        }),
        row(
            ("db", doc! { "collMod": "c", "index": { "name": "a", "hidden": true } }),
            with_index,
            |c| index(c, "a").is_some_and(|index| index.get_bool("hidden").is_ok()),
        ),
        row(("db", doc! { "collMod": "c", "validationAction": "warn" }), one, |c| {
            options(c).get_str("validationAction").ok() == Some("warn")
        }),
        row(("db", doc! { "collMod": "c", "viewOn": "y", "pipeline": [] }), view, |c| {
            options(c).get_str("viewOn").ok() == Some("y")
        }),
        row(("db", doc! { "convertToCapped": "c", "size": 9999 }), one, |c| {
            options(c).get_bool("capped").ok() == Some(true)
        }),
        row(
            ("db", doc! { "cloneCollectionAsCapped": "c", "toCollection": "d", "size": 9999 }),
            one,
            |c| ids(c, "d") == [1],
        ),
        row(add, partitioned, |c| partitions(c) == 2 && ids(c, "c") == [1]),
        row(("db", doc! { "dropPartition": "c", "id": 0 }), in_two, |c| {
            partitions(c) == 1 && ids(c, "c").is_empty()
        }),
        row(("db", doc! { "emptycapped": "c" }), capped, |c| ids(c, "c").is_empty()),
        row(
            ("db", doc! { "reIndex": "c", "index": "a", "options": { "compression": "none" } }),
            with_index,
            |c| index(c, "a").is_some_and(|index| index.to_string().contains("\"none\"")),
        ),
        row(
            ("admin", doc! { "applyOps": [{ "op": "i", "ns": "db.c", "o": { "_id": 9 } }] }),
            one,
            |c| ids(c, "c").contains(&9),
        ),
        row(
            (
                "admin",
                doc! { "_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers" },
            ),
            users,
            |c| c.ok("admin", doc! { "count": "system.users" }).get_i32("n").ok() == Some(1),
        ),
        row(("admin", doc! { "authSchemaUpgrade": 1, "from": "old" }), old_users, |c| {
            c.ok("admin", doc! { "count": "system.users" }).get_i32("n").ok() == Some(1)
        }),
        row(
            (
                "admin",
                doc! { "setClusterParameter": { "defaultMaxTimeMS": { "readOperations": 5000 } } },
            ),
            &[],
            |c| {
                let reply = c.ok("admin", doc! { "getClusterParameter": "defaultMaxTimeMS" });
                reply.to_string().contains("5000")
            },
        )
        .with_durability(AckDurability::Always),
        row(("admin", doc! { "renameCollection": "db.c", "to": "db.d" }), one, |c| {
            collections(c) == ["d"]
        }),
        row(("db", doc! { "profile": 1 }), &[], |c| has(c, "system.profile"))
            .with_durability(AckDurability::Always),
        row(
            ("admin", doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": { "w": 1 } }),
            &[],
            |c| {
                let reply = c.ok("admin", doc! { "getDefaultRWConcern": 1 });
                reply.get_document("defaultWriteConcern").unwrap().get_i32("w").ok() == Some(1)
            },
        )
        .with_durability(AckDurability::AlwaysOnMember { initiated: true }),
        row(("admin", doc! { "replSetResizeOplog": 1, "size": 1500.0 }), &[], |c| {
            let history = c.service.catalog.engine().history();
            history.is_some_and(|history| history.options().bytes == 1500 << 20)
        })
        .with_durability(AckDurability::AlwaysOnMember { initiated: true }),
        row(("admin", doc! { "replSetExpireOplog": 1, "expireOplogDays": 3 }), &[], |c| {
            let history = c.service.catalog.engine().history();
            history.is_some_and(|history| history.options().min_age.as_secs() == 3 * 86_400)
        })
        .with_durability(AckDurability::AlwaysOnMember { initiated: true }),
        row(("admin", doc! { "replSetInitiate": {} }), &[], |c| {
            c.run("admin", doc! { "replSetGetConfig": 1 }).get_f64("ok").ok() == Some(1.0)
        })
        .with_durability(AckDurability::AlwaysOnMember { initiated: false }),
        row(
            (
                "admin",
                doc! {
                    "replSetReconfig": {
                        "_id": "rs",
                        "version": 77,
                        "members": [{ "_id": 0, "host": "localhost:1" }],
                    },
                },
            ),
            &[],
            |c| {
                let reply = c.run("admin", doc! { "replSetGetConfig": 1 });
                reply.get_document("config").unwrap().get_i32("version").ok() == Some(77)
            },
        )
        .with_durability(AckDurability::AlwaysOnMember { initiated: true }),
        row(
            ("admin", doc! { "setFeatureCompatibilityVersion": "7.0", "confirm": true }),
            &[],
            |c| {
                let find = doc! { "find": "system.version", "filter": { "version": "7.0" } };
                batch_len(&c.ok("admin", find)) == 1
            },
        )
        .with_durability(AckDurability::Always),
        row(
            ("admin", doc! { "applyOps": [{ "op": "i", "ns": "db.c", "o": { "_id": 3 } }] }),
            one,
            |c| ids(c, "c") == [1, 3],
        ),
        row(
            (
                "admin",
                doc! {
                    "_mergeAuthzCollections": 1,
                    "tempUsersCollection": "admin.tempusers",
                    "drop": false,
                    "db": "",
                },
            ),
            &[(
                "admin",
                doc! {
                    "insert": "tempusers",
                    "documents": [{ "_id": "db.u", "user": "u", "db": "db", "credentials": { "external": true }, "roles": [] }],
                },
            )],
            |c| batch_len(&c.ok("admin", doc! { "find": "system.users" })) == 1,
        ),
        row(("admin", doc! { "getLastError": 1 }), &[], |_| true)
            .with_durability(AckDurability::Nothing),
    ]
}

/// The commands about users and roles.
fn accounts() -> Vec<Row> {
    fn text(c: &Client, name: &str) -> String {
        c.ok("admin", doc! { "find": name }).to_string()
    }
    fn users(c: &Client) -> String {
        text(c, "system.users")
    }
    fn roles(c: &Client) -> String {
        text(c, "system.roles")
    }
    let read = doc! { "resource": { "db": "db", "collection": "c" }, "actions": ["find"] };
    let user = |roles: &[&str]| {
        let mechanisms = ["SCRAM-SHA-1"];
        doc! { "createUser": "u", "pwd": "p", "roles": roles.to_vec(), "mechanisms": mechanisms.to_vec() }
    };
    let role = |name: &str, privileges: Vec<Document>, roles: &[&str]| {
        doc! { "createRole": name, "privileges": privileges, "roles": roles.to_vec() }
    };
    let some_user = &[("db", user(&["read"]))];
    let some_role = &[("db", role("r", vec![read.clone()], &["readWrite"]))];
    vec![
        row(("db", user(&[])), &[], |c| users(c).contains("db.u")),
        row(("db", doc! { "updateUser": "u", "customData": { "a": "mark" } }), some_user, |c| {
            users(c).contains("mark")
        }),
        row(("db", doc! { "dropUser": "u" }), some_user, |c| !users(c).contains("db.u")),
        row(("db", doc! { "dropAllUsersFromDatabase": 1 }), some_user, |c| {
            !users(c).contains("db.u")
        }),
        row(("db", doc! { "grantRolesToUser": "u", "roles": ["dbAdmin"] }), some_user, |c| {
            users(c).contains("dbAdmin")
        }),
        row(("db", doc! { "revokeRolesFromUser": "u", "roles": ["read"] }), some_user, |c| {
            !users(c).contains("read")
        }),
        row(("db", role("r", vec![], &[])), &[], |c| roles(c).contains("db.r")),
        row(("db", doc! { "updateRole": "r", "roles": ["dbAdmin"] }), some_role, |c| {
            roles(c).contains("dbAdmin")
        }),
        row(("db", doc! { "dropRole": "r" }), some_role, |c| !roles(c).contains("db.r")),
        row(("db", doc! { "dropAllRolesFromDatabase": 1 }), some_role, |c| {
            !roles(c).contains("db.r")
        }),
        row(("db", doc! { "grantRolesToRole": "r", "roles": ["dbAdmin"] }), some_role, |c| {
            roles(c).contains("dbAdmin")
        }),
        row(("db", doc! { "revokeRolesFromRole": "r", "roles": ["readWrite"] }), some_role, |c| {
            !roles(c).contains("readWrite")
        }),
        row(
            (
                "db",
                doc! { "grantPrivilegesToRole": "r", "privileges": [
                    { "resource": { "db": "db", "collection": "mark" }, "actions": ["find"] },
                ] },
            ),
            some_role,
            |c| roles(c).contains("mark"),
        ),
        row(
            ("db", doc! { "revokePrivilegesFromRole": "r", "privileges": [read] }),
            some_role,
            |c| !roles(c).contains("find"),
        ),
    ]
}

fn rows() -> Vec<Row> {
    let mut rows = writes();
    rows.extend(definitions());
    rows.extend(accounts());
    rows
}

fn with_concern(run: &Document, concern: Option<&Document>) -> Document {
    let mut command = run.clone();
    if let Some(concern) = concern {
        command.insert("writeConcern", concern.clone());
    }
    command
}

/// Runs what comes before a row, durable when it returns.
fn prepare(machine: &Machine, row: &Row) {
    for (database, command) in &row.before {
        machine.client.ok(database, command.clone());
    }
    machine.client.service.catalog.sync().unwrap();
}

/// Runs a row and crashes at once; says whether what it did is there afterwards.
fn survives(row: &Row, member: bool, initiated: bool, concern: Option<&Document>) -> bool {
    let machine = Machine::new(member, initiated);
    prepare(&machine, row);
    machine.client.ok(row.run.0, with_concern(&row.run.1, concern));
    assert!((row.kept)(&machine.client), "{}: it did nothing", row.run.1);
    (row.kept)(&machine.crash())
}

#[test]
fn every_command_that_leaves_something_behind_has_a_row() {
    let rows: BTreeSet<&str> = rows().iter().map(|row| row.command).collect();
    let due: BTreeSet<&str> = COMMANDS
        .iter()
        .filter(|command| command.writes_data())
        .map(|command| command.name)
        .collect();
    assert_eq!(rows, due);
}

#[test]
fn what_was_acknowledged_as_durable_survives_a_crash_at_once_after() {
    let journal = doc! { "w": 1, "j": true };
    let majority = doc! { "w": "majority" };
    for row in rows() {
        let check = |member, initiated, concern: Option<&Document>| {
            let survived = survives(&row, member, initiated, concern);
            assert!(survived, "{} under {concern:?}, member {member}: gone", row.run.1);
        };
        match row.durability {
            AckDurability::AsAsked => {
                check(false, false, Some(&journal));
                check(true, true, Some(&journal));
                check(true, true, Some(&majority));
                // The default of a set is the majority.
                check(true, true, None);
                // So that what is checked is what the wait was for.
                let unsynced = survives(&row, false, false, Some(&doc! { "w": 1 }));
                assert!(!unsynced, "{} is on disk though nobody asked for it", row.run.1);
            }
            AckDurability::Always => {
                check(false, false, None);
                check(true, true, None);
            }
            AckDurability::AlwaysOnMember { initiated } => check(true, initiated, None),
            AckDurability::Nothing => {}
        }
    }
}

#[test]
fn write_whose_wait_for_the_disk_failed_happened_and_says_what_failed() {
    // Rewriting goes to the disk before the wait does, and finds it full there.
    let waits_first =
        |row: &&Row| row.durability == AckDurability::AsAsked && row.command != "reIndex";
    for row in rows().iter().filter(waits_first) {
        let machine = Machine::new(false, false);
        prepare(&machine, row);
        let Machine { disk, client, .. } = &machine;
        // The next call is the wait's: these commands do not go to the disk by themselves.
        disk.fault_at(disk.syscalls() + 1, Fault::NoSpace);
        let concern = doc! { "w": 1, "j": true };
        let reply = client.ok(row.run.0, with_concern(&row.run.1, Some(&concern)));
        let failed = reply.get_document("writeConcernError");
        let failed = failed.unwrap_or_else(|_| panic!("{} answers {reply}", row.run.1));
        assert_eq!(failed.get_i32("code").ok(), Some(14031), "{reply}");
        assert_eq!(failed.get_str("codeName").ok(), Some("OutOfDiskSpace"));
        let asked = failed.get_document("errInfo").unwrap().get_document("writeConcern").unwrap();
        let sent = doc! { "w": 1, "j": true, "wtimeout": 0, "provenance": "clientSupplied" };
        assert_eq!(asked, &sent);
        assert!(!reply.contains_key("errorLabels"), "{reply}");
        assert!((row.kept)(client), "{}: taken back", row.run.1);
        client.service.catalog.sync().unwrap();
        assert!((row.kept)(&machine.crash()), "{}: gone", row.run.1);
    }
}

#[test]
fn command_that_is_always_durable_says_that_what_it_did_is_not_on_disk() {
    for row in rows().iter().filter(|row| row.durability == AckDurability::Always) {
        let machine = Machine::new(false, false);
        prepare(&machine, row);
        let Machine { disk, client, .. } = &machine;
        disk.fault_at(disk.syscalls() + 1, Fault::NoSpace);
        let reply = client.run(row.run.0, row.run.1.clone());
        let told = reply.get_document("writeConcernError").unwrap_or(&reply);
        assert_eq!(told.get_i32("code").ok(), Some(14031), "{} answers {reply}", row.run.1);
        // Nobody asked for a write concern: it is the default's.
        if let Ok(info) = told.get_document("errInfo") {
            let concern = doc! { "w": 1, "wtimeout": 0, "provenance": "implicitDefault" };
            assert_eq!(info, &doc! { "writeConcern": concern }, "{}", row.run.1);
        }
    }
}

#[test]
fn transaction_that_is_visible_and_not_durable_is_committed_and_sent_again_becomes_durable() {
    let machine = Machine::new(true, true);
    let client = &machine.client;
    client.ok("db", insert(1));
    client.ok("db", statement(insert(2), true));
    client.service.catalog.sync().unwrap();
    let commit = doc! { "commitTransaction": 1, "writeConcern": { "w": "majority" } };
    let commit = statement(commit, false);
    machine.disk.fault_at(machine.disk.syscalls() + 1, Fault::NoSpace);
    let reply = client.ok("admin", commit.clone());
    let failed = reply.get_document("writeConcernError").unwrap();
    assert_eq!(failed.get_i32("code").ok(), Some(14031), "{reply}");
    assert!(!reply.contains_key("errorLabels"), "{reply}");
    assert_eq!(ids(client, "c"), [1, 2]);
    let again = client.ok("admin", commit);
    assert!(!again.contains_key("writeConcernError"), "{again}");
    assert_eq!(ids(&machine.crash(), "c"), [1, 2]);
}

#[test]
fn what_a_command_did_before_it_failed_is_as_durable_as_asked() {
    let machine = Machine::new(false, false);
    let client = &machine.client;
    let documents: Vec<_> = (0..20).map(|id| doc! { "_id": id }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client.ok("db", doc! { "create": "d" });
    client.service.catalog.sync().unwrap();
    let fails = doc! { "$cond": [{ "$eq": ["$_id", 15] }, { "$toInt": "no number" }, 1] };
    let reply = client.run(
        "db",
        doc! {
            "aggregate": "c",
            "pipeline": [{ "$sort": { "_id": 1 } }, { "$set": { "b": fails } }, { "$merge": "d" }],
            "cursor": {},
            "writeConcern": { "w": 1, "j": true },
        },
    );
    assert_eq!(reply.get_f64("ok").ok(), Some(0.0), "{reply}");
    let done = ids(client, "d");
    assert!(!done.is_empty(), "it failed before it did anything");
    assert_eq!(ids(&machine.crash(), "d"), done);
}

#[test]
fn merge_waits_for_the_disk_once() {
    let machine = Machine::new(true, true);
    let client = &machine.client;
    let documents: Vec<_> = (0..500).map(|id| doc! { "_id": id }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let before = client.service.catalog.engine().stats().log.syncs;
    let merge = doc! { "$merge": { "into": "d", "on": "_id" } };
    client.ok("db", doc! { "aggregate": "c", "pipeline": [merge], "cursor": {} });
    let syncs = client.service.catalog.engine().stats().log.syncs - before;
    assert!(syncs < 20, "{syncs} syncs of the log for one command");
    assert_eq!(client.ok("db", doc! { "count": "d" }).get("n"), Some(&Bson::Int32(500)));
}
