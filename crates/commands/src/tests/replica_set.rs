//! The replica set of one from the outside.

use super::Client;
use bson::{Binary, Document, Timestamp, doc, spec::BinarySubtype};

fn started(initiate: bool) -> Client {
    let options = serverstate::replication::ReplicaSetOptions {
        name: "rs".into(),
        address: "localhost:1".into(),
        initiate,
    };
    let client = Client::member(options);
    client.service.start_replication().unwrap();
    client
}

fn time(reply: &Document) -> Timestamp {
    reply.get_timestamp("operationTime").unwrap()
}

fn id(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id }] }
}

#[test]
fn member_without_a_configuration_waits_for_one() {
    let client = started(false);
    let hello = client.ok("admin", doc! { "hello": 1 });
    assert_eq!(hello.get_bool("isWritablePrimary").ok(), Some(false));
    assert_eq!(hello.get_bool("isreplicaset").ok(), Some(true));
    for (command, code) in [
        (doc! { "replSetGetStatus": 1 }, 94),
        (doc! { "replSetGetConfig": 1 }, 94),
        (
            doc! { "replSetInitiate": { "_id": "other", "members": [{ "_id": 0, "host": "a:1" }] } },
            93,
        ),
        (doc! { "replSetInitiate": { "_id": "rs", "members": [{ "_id": 0, "host": "a:2" }] } }, 74),
        (doc! { "insert": "c", "documents": [{}] }, 10107),
        (doc! { "find": "c" }, 13436),
    ] {
        let reply = client.run("admin", command.clone());
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{command} gave {reply}");
    }
    client.ok("admin", doc! { "replSetInitiate": {} });
    let hello = client.ok("admin", doc! { "hello": 1 });
    assert_eq!(hello.get_str("setName").ok(), Some("rs"));
    assert_eq!(hello.get_bool("isWritablePrimary").ok(), Some(true));
    assert_eq!(hello.get_str("primary").ok(), Some("localhost:1"));
    client.fails("admin", doc! { "replSetInitiate": {} }, 23, "already initialized");
    client.ok("db", id(1));
}

#[test]
fn a_set_of_several_begins_where_every_host_is_free_and_empty() {
    let two = |other: &str| {
        let members = [doc! { "_id": 0, "host": "127.0.0.1:1" }, doc! { "_id": 1, "host": other }];
        doc! { "replSetInitiate": { "_id": "rs", "members": members.to_vec() } }
    };
    let refused = |client: &Client, command: Document, code: i32, words: &str| {
        let reply = client.run("admin", command.clone());
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{command} gave {reply}");
        assert!(reply.get_str("errmsg").unwrap().contains(words), "{command} gave {reply}");
    };
    let client = started(false);
    refused(&client, doc! { "_fernMember": 2 }, 2, "speaks version 2");
    refused(&client, doc! { "_fernJoin": 1 }, 2, "needs document and founder");
    let nothing = Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2, 3] };
    let unreadable = doc! { "_fernJoin": 1, "document": nothing, "founder": 1_i64 };
    refused(&client, unreadable, 93, "the set's document");
    refused(&Client::new(), doc! { "_fernMember": 1 }, 76, "replSet");
    // An empty one asks: nobody listens at these ports.
    let directory = tempfile::tempdir().unwrap();
    let client = empty_member(directory.path());
    refused(&client, two("127.0.0.1:2"), 74, "127.0.0.1:1 failed with nobody listens there");
    let asked = client.ok("admin", doc! { "_fernMember": 1 });
    assert!(asked.get_i64("member").unwrap() != 0 && !asked.get_bool("hasData").unwrap());
    assert_eq!(
        (asked.get_i64("founder").ok(), asked.get_str("setName").ok()),
        (Some(0), Some("rs"))
    );
    for (what, why) in [
        (doc! { "buildIndexes": false }, "priority must be 0 when buildIndexes=false"),
        (doc! { "secondaryDelaySecs": 1 }, "priority must be 0"),
        (doc! { "slaveDelay": 1 }, "priority must be 0"),
        (doc! { "secondaryDelaySecs": 1, "arbiterOnly": true }, "not for arbiters"),
    ] {
        let mut command = two("127.0.0.1:2");
        let config = command.get_document_mut("replSetInitiate").unwrap();
        let member = config.get_array_mut("members").unwrap()[1].as_document_mut().unwrap();
        member.extend(what);
        refused(&client, command, 93, why);
    }
    for setting in ["heartbeatIntervalMillis", "catchUpTimeoutMillis", "heartbeatTimeoutSecs"] {
        let mut command = two("127.0.0.1:2");
        let config = command.get_document_mut("replSetInitiate").unwrap();
        config.insert("settings", doc! { setting: 77 });
        refused(&client, command, 93, setting);
    }
    client.fails("local", id(1), 10107, "not primary");
    for command in [
        doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": { "w": 1 } },
        doc! { "setClusterParameter": { "defaultMaxTimeMS": { "readOperations": 1 } } },
        doc! { "setFeatureCompatibilityVersion": "7.0", "confirm": true },
        doc! { "create": "c" },
    ] {
        refused(&client, command, 10107, "not primary");
    }
    refused(&client, doc! { "profile": 2 }, 20, "keeps no profile");
    assert!(!client.ok("admin", doc! { "_fernMember": 1 }).get_bool("hasData").unwrap());
    // It is still empty, and may be a set of one.
    client.ok("admin", doc! { "replSetInitiate": {} });
    client.ok("db", id(1));
    // It may grow, where the others answer.
    refused(&client, doc! { "replSetReconfig": grown(&client) }, 74, "nobody listens there");
}

/// The configuration of a set of one with one member more.
fn grown(client: &Client) -> Document {
    let mut config = client.ok("admin", doc! { "replSetGetConfig": 1 });
    let mut config = config.get_document_mut("config").unwrap().clone();
    config.insert("version", 2);
    config.get_array_mut("members").unwrap().push(doc! { "_id": 1, "host": "localhost:2" }.into());
    config
}

/// A member that has written nothing yet.
fn empty_member(directory: &std::path::Path) -> Client {
    let options = serverstate::replication::ReplicaSetOptions {
        name: "rs".into(),
        address: "localhost:1".into(),
        initiate: false,
    };
    let client = Client::following(options, directory);
    client.service.start_replication().unwrap();
    client
}

#[test]
fn expressions_read_the_cluster_time_of_a_member() {
    let client = started(true);
    let inserted = time(&client.ok("db", id(1)));
    let set = doc! { "$set": { "seen": "$$CLUSTER_TIME" } };
    client.ok("db", doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": [set.clone()] }] });
    let later = doc! { "$expr": { "$lt": ["$seen", "$$CLUSTER_TIME"] } };
    let found = client.ok("db", doc! { "find": "c", "filter": later.clone() });
    let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
    let seen = found[0].as_document().unwrap().get_timestamp("seen").unwrap();
    assert!(seen >= inserted && seen <= time(&client.ok("db", doc! { "count": "c" })));
    assert_eq!(client.ok("db", doc! { "count": "c", "query": later }).get_i32("n").unwrap(), 1);
    // The stage's own writes and its pipelines inside read it too.
    let merge = doc! { "$merge": { "into": "c", "on": "_id", "whenMatched": [set.clone()] } };
    let inner = doc! { "$lookup": { "from": "c", "pipeline": [set], "as": "inner" } };
    client.ok("db", doc! { "aggregate": "c", "pipeline": [inner, merge], "cursor": {} });
    let standalone = Client::new();
    let pipeline = vec![doc! { "$documents": [{ "t": "$$CLUSTER_TIME" }] }];
    let alone = doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {} };
    let text = "Builtin variable '$$CLUSTER_TIME' is not available";
    standalone.fails("db", alone, 51144, text);
}

#[test]
fn configuration_and_times_survive_a_restart() {
    let client = started(true);
    let first = time(&client.ok("db", id(1)));
    let hello = client.ok("admin", doc! { "hello": 1 });
    let again = client.restarted(1);
    again.service.start_replication().unwrap();
    let later = again.ok("admin", doc! { "hello": 1 });
    assert_eq!(hello.get("setVersion"), later.get("setVersion"));
    assert!(
        hello.get_object_id("electionId").unwrap() < later.get_object_id("electionId").unwrap()
    );
    let next = time(&again.ok("db", doc! { "ping": 1 }));
    assert!((first.time, first.increment) < (next.time, next.increment));
    let status = again.ok("admin", doc! { "replSetGetStatus": 1 });
    assert_eq!((status.get_i32("myState").ok(), status.get_i64("term").ok()), (Some(1), Some(2)));
}

#[test]
fn time_moves_with_writes_and_reads_wait_for_none() {
    let client = started(true);
    let (one, two) = (time(&client.ok("db", id(1))), time(&client.ok("db", id(2))));
    assert!((one.time, one.increment) < (two.time, two.increment));
    assert_eq!(time(&client.ok("db", doc! { "ping": 1 })), two);
    let read = |concern: Document| client.run("db", doc! { "find": "c", "readConcern": concern });
    assert_eq!(read(doc! { "afterClusterTime": two }).get_f64("ok").ok(), Some(1.0));
    let future = Timestamp { time: two.time + 100, increment: 1 };
    assert_eq!(read(doc! { "afterClusterTime": future }).get_i32("code").ok(), Some(72));
    assert_eq!(read(doc! { "level": "linearizable" }).get_f64("ok").ok(), Some(1.0));
    let gossip = doc! { "ping": 1, "$clusterTime": { "clusterTime": future } };
    assert_eq!(time(&client.ok("db", gossip)), future);
    let far = doc! { "ping": 1, "$clusterTime": { "clusterTime": Timestamp { time: u32::MAX, increment: 1 } } };
    assert_eq!(client.run("db", far).get_i32("code").ok(), Some(205));
}

#[test]
fn security_finding_13_a_client_moves_the_clock_by_a_day_at_most() {
    let client = started(true);
    let now = time(&client.ok("db", id(1)));
    for (ahead, expected) in [(23 * 3600, None), (25 * 3600, Some(205)), (364 * 86_400, Some(205))]
    {
        let seen = Timestamp { time: now.time + ahead, increment: 1 };
        let told = doc! { "ping": 1, "$clusterTime": { "clusterTime": seen } };
        assert_eq!(client.run("db", told).get_i32("code").ok(), expected, "{ahead}");
    }
    assert!(time(&client.ok("db", id(2))).time < now.time + 24 * 3600);
}

#[test]
fn snapshot_reads_can_be_repeated_at_their_time() {
    let client = started(true);
    client.ok("db", id(1));
    let read = |at: Option<Timestamp>| {
        let mut concern = doc! { "level": "snapshot" };
        if let Some(at) = at {
            concern.insert("atClusterTime", at);
        }
        client.run("db", doc! { "find": "c", "readConcern": concern })
    };
    let first = read(None);
    let cursor = first.get_document("cursor").unwrap();
    let at = cursor.get_timestamp("atClusterTime").unwrap();
    let newest = time(&client.ok("db", id(2)));
    let again = read(Some(at));
    let again = again.get_document("cursor").unwrap();
    assert_eq!(again.get_array("firstBatch").unwrap().len(), 1);
    let now = read(Some(newest));
    assert_eq!(now.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 2);
    let seen = |reply: &Document| {
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
    };
    let between = time(&client.ok("db", id(3)));
    client.ok("db", id(4));
    assert_eq!(seen(&read(Some(between))), 3, "within the window every state is kept");
    let window = |seconds: i32| {
        doc! { "setParameter": 1, "minSnapshotHistoryWindowInSeconds": seconds }
    };
    client.ok("admin", window(0));
    assert_eq!(read(Some(between)).get_i32("code").ok(), Some(239), "nobody kept that state");
    assert_eq!(seen(&read(Some(at))), 1, "a state that was read is kept for longer");
    client.ok("admin", window(5));
    let late = time(&client.ok("db", id(5)));
    client.ok("db", id(6));
    assert_eq!(seen(&read(Some(late))), 5);
}

#[test]
fn transaction_starts_at_a_time_of_the_window() {
    let client = started(true);
    let at = time(&client.ok("db", id(1)));
    client.ok("db", id(2));
    let lsid = doc! { "id": bson::Uuid::from_bytes([1; 16]) };
    let statement = |mut command: Document| {
        command.extend(doc! { "lsid": lsid.clone(), "txnNumber": 1_i64, "autocommit": false });
        command
    };
    let mut first = statement(doc! { "find": "c" });
    first.extend(doc! {
        "startTransaction": true, "readConcern": { "level": "snapshot", "atClusterTime": at },
    });
    let reply = client.ok("db", first);
    assert_eq!(reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 1);
    let conflict = client.run("db", statement(id(2)));
    assert_eq!(conflict.get_i32("code").ok(), Some(112), "it came since: {conflict}");
}

#[test]
fn write_concern_that_one_node_cannot_give_is_told_beside_the_result() {
    let client = started(true);
    for (w, code) in [(bson::Bson::from(2), 100), (bson::Bson::from("nowhere"), 79)] {
        let command = doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": w } };
        let reply = client.ok("db", command);
        assert_eq!(reply.get_i32("n").ok(), Some(1));
        let error = reply.get_document("writeConcernError").unwrap();
        assert_eq!(error.get_i32("code").ok(), Some(code));
    }
}

#[test]
fn stepped_down_node_refuses_writes_and_ends_transactions() {
    let client = started(true);
    client.ok("db", id(1));
    let lsid = doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![1; 16] } };
    let mut write = id(2);
    write.extend(doc! { "lsid": lsid.clone(), "txnNumber": 0_i64, "autocommit": false, "startTransaction": true });
    client.ok("db", write);
    assert_eq!(client.run("admin", doc! { "replSetStepDown": 60 }).get_i32("code").ok(), Some(262));
    client.ok("admin", doc! { "replSetStepDown": 60, "force": true });
    assert_eq!(client.run("db", id(3)).get_i32("code").ok(), Some(10107));
    assert_eq!(client.run("db", doc! { "find": "c" }).get_i32("code").ok(), Some(13435));
    let preference = doc! { "find": "c", "$readPreference": { "mode": "nearest" } };
    let reply = client.ok("db", preference);
    assert_eq!(reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 1);
    let hello = client.ok("admin", doc! { "hello": 1 });
    assert_eq!(hello.get_bool("secondary").ok(), Some(true));
}

#[test]
fn node_in_maintenance_shows_nothing_and_a_frozen_one_is_not_elected() {
    let client = started(true);
    client.ok("db", id(1));
    let freeze = |seconds: i32| doc! { "replSetFreeze": seconds };
    let maintenance = |begins: bool| doc! { "replSetMaintenance": begins };
    for of_a_primary in [freeze(60), freeze(0), maintenance(true), maintenance(false)] {
        assert_eq!(client.run("admin", of_a_primary).get_i32("code").ok(), Some(95));
    }
    assert_eq!(client.run("admin", freeze(-1)).get_i32("code").ok(), Some(2));
    client.ok("admin", doc! { "replSetStepDown": 60, "force": true });
    client.ok("admin", maintenance(true));
    client.ok("admin", maintenance(true));
    let find = || client.run("db", doc! { "find": "c", "$readPreference": { "mode": "nearest" } });
    let state = || client.ok("admin", doc! { "replSetGetStatus": 1 }).get_i32("myState").ok();
    for _ in 0..2 {
        assert_eq!(find().get_i32("code").ok(), Some(13436));
        assert_eq!(state(), Some(3));
        let hello = client.ok("admin", doc! { "hello": 1 });
        assert_eq!(hello.get_bool("secondary").ok(), Some(false));
        client.ok("admin", freeze(0));
        client.ok("admin", freeze(60));
        client.ok("admin", maintenance(false));
    }
    assert_eq!(find().get_f64("ok").ok(), Some(1.0));
    assert_eq!(state(), Some(2));
    assert_eq!(client.run("admin", maintenance(false)).get_i32("code").ok(), Some(96));
    let reply = client.ok("admin", freeze(0));
    assert_eq!(reply.get_str("info").ok(), Some("unfreezing"));
    let hello = client.ok("admin", doc! { "hello": 1 });
    assert_eq!(hello.get_bool("isWritablePrimary").ok(), Some(true));
}

#[test]
fn errors_tell_the_topology_and_the_write_concern_too() {
    let client = started(true);
    client.ok("db", doc! { "create": "c" });
    let create = doc! { "create": "c", "capped": true, "size": 4096, "writeConcern": { "w": 2 } };
    let reply = client.run("db", create);
    assert_eq!(reply.get_i32("code").ok(), Some(48));
    assert_eq!(reply.get_document("writeConcernError").unwrap().get_i32("code").ok(), Some(100));
    let end = |w: i32| {
        let reply = client.run(
            "admin",
            doc! {
                "commitTransaction": 1, "lsid": { "id": bson::Uuid::from_bytes([1; 16]) },
                "txnNumber": 1_i64, "autocommit": false, "writeConcern": { "w": w },
            },
        );
        assert_eq!(reply.get_i32("code").ok(), Some(251), "{reply}");
        reply.contains_key("errorLabels")
    };
    assert!(end(1), "it is over, and can be done again");
    assert!(!end(2), "another member could have it");
    client.ok("admin", doc! { "replSetStepDown": 5, "force": true });
    let hello = client.ok("admin", doc! { "hello": 1 });
    let refused = client.run("db", id(1));
    assert_eq!(refused.get_i32("code").ok(), Some(10107));
    assert_eq!(refused.get("topologyVersion").unwrap(), hello.get("topologyVersion").unwrap());
}

#[test]
fn reconfiguration_needs_a_newer_version() {
    let client = started(true);
    let config = client.ok("admin", doc! { "replSetGetConfig": 1 });
    let mut config = config.get_document("config").unwrap().clone();
    let reply = client.run("admin", doc! { "replSetReconfig": config.clone() });
    assert_eq!(reply.get_i32("code").ok(), Some(103));
    config.insert("version", 2);
    client.ok("admin", doc! { "replSetReconfig": config });
    assert_eq!(client.ok("admin", doc! { "hello": 1 }).get_i32("setVersion").ok(), Some(2));
}

#[test]
fn default_write_concern_is_kept() {
    let client = started(true);
    let w = |reply: &Document| {
        reply.get_document("defaultWriteConcern").unwrap().get("w").unwrap().clone()
    };
    assert_eq!(w(&client.ok("admin", doc! { "getDefaultRWConcern": 1 })), "majority".into());
    client.ok("admin", doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": { "w": 1 } });
    let again = client.restarted(1);
    again.service.start_replication().unwrap();
    assert_eq!(w(&again.ok("admin", doc! { "getDefaultRWConcern": 1 })), 1.into());
}

#[test]
fn oplog_goes_by_its_age_where_one_is_set() {
    let client = started(true);
    let set = |days: i64, hours: i64| {
        let set =
            doc! { "replSetExpireOplog": 1, "expireOplogDays": days, "expireOplogHours": hours };
        client.run("admin", set).get_i32("code").unwrap_or(0)
    };
    let told = || {
        let told = client.ok("admin", doc! { "replGetExpireOplog": 1 });
        let number = |name| told.get_i32(name).unwrap();
        (number("expireOplogDays"), number("expireOplogHours"), told.contains_key("note"))
    };
    assert_eq!(told(), (0, 0, true), "it goes by its length");
    assert_eq!([set(0, 0), set(-1, 0), set(i64::MAX, 1)], [2, 2, 2]);
    assert_eq!((set(4, 26), told()), (0, (5, 2, false)));
    let history = client.service.catalog.engine().history().unwrap();
    let said = history.options();
    assert_eq!((said.bytes, said.min_age.as_secs()), (0, 122 * 3600));
    // It holds at the next start, and a length beside it from then on.
    history.resize(engine::HistoryOptions { bytes: 7, ..said });
    let again = client.restarted(1);
    again.service.start_replication().unwrap();
    assert_eq!(history.options(), said);
    client.ok("admin", doc! { "replSetResizeOplog": 1, "size": 990 });
    assert_eq!(told(), (5, 2, true));
    Client::new().fails("admin", doc! { "replSetExpireOplog": 1 }, 26, "oplog does not exist");
    Client::new().fails("admin", doc! { "replGetExpireOplog": 1 }, 26, "oplog does not exist");
}

#[test]
fn oplog_is_resized_within_limits() {
    let client = started(true);
    let resize = |more: Document| {
        let mut command = doc! { "replSetResizeOplog": 1 };
        command.extend(more);
        client.run("admin", command)
    };
    for (more, code) in [
        (doc! { "size": 989.9 }, 51024),
        (doc! { "size": -1 }, 51024),
        (doc! { "size": 1024.0 * 1024.0 * 1024.0 + 1.0 }, 51024),
        (doc! { "size": f64::NAN }, 51024),
        (doc! { "size": "990" }, 14),
        (doc! { "minRetentionHours": -0.5 }, 51024),
        (doc! { "size": 990, "more": 1 }, 40415),
    ] {
        let reply = resize(more.clone());
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{more} gave {reply}");
    }
    let history = client.service.catalog.engine().history().unwrap();
    let before = history.options();
    for (more, bytes, seconds) in [
        (doc! {}, before.bytes, 0),
        (doc! { "size": 990_i64 }, 990 << 20, 0),
        (doc! { "minRetentionHours": 0.5 }, 990 << 20, 1800),
        (doc! { "size": 1000.0, "minRetentionHours": 0 }, 1000 << 20, 0),
    ] {
        assert_eq!(resize(more.clone()).get_f64("ok").ok(), Some(1.0));
        let now = history.options();
        assert_eq!((now.bytes, now.min_age.as_secs()), (bytes, seconds), "{more}");
    }
    // It holds at the next start.
    history.resize(before);
    let again = client.restarted(1);
    again.service.start_replication().unwrap();
    assert_eq!(history.options().bytes, 1000 << 20);
    let standalone = Client::new();
    let resize = doc! { "replSetResizeOplog": 1, "size": 990 };
    standalone.fails("admin", resize, 26, "oplog does not exist");
}
