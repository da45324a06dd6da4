//! Commands of administration from the outside: parameters, locks, versions, sessions.

use super::Client;
use bson::{Binary, Bson, Decimal128, Document, doc, spec::BinarySubtype};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Each command on `admin` with the code it fails with; 0: it succeeds.
fn check(client: &Client, cases: &[(Document, i32)]) {
    for (command, expected) in cases {
        let reply = client.run("admin", command.clone());
        assert_eq!(reply.get_i32("code").unwrap_or(0), *expected, "{command} gave {reply}");
    }
}

fn set_parameter(name: &str, value: impl Into<Bson>) -> Document {
    doc! { "setParameter": 1, name: value }
}

fn parameter(client: &Client, name: &str) -> Bson {
    client.ok("admin", doc! { "getParameter": 1, name: 1 }).get(name).unwrap().clone()
}

/// Name, another value that fits, what is too much.
const OF_ENGINE: [(&str, i64, i64); 7] = [
    ("checkpointPeriod", 7, (1 << 30) + 1),
    ("cleanerPeriod", 3, (1 << 30) + 1),
    ("cleanerIterations", 9, (1 << 30) + 1),
    ("logFlushPeriod", 30, 501),
    ("journalCommitInterval", 40, 501),
    ("lockTimeout", 50, (1 << 40) + 1),
    ("fsRedzone", 8, 91),
];

#[test]
fn the_engines_parameters_hold_from_when_they_are_set() {
    let client = Client::new();
    for (name, value, too_much) in OF_ENGINE {
        let before = parameter(&client, name);
        let reply = client.ok("admin", set_parameter(name, value));
        assert_eq!(reply.get("was"), Some(&before), "{name}");
        assert_eq!(parameter(&client, name), Bson::Int64(value), "{name}");
        check(&client, &[(set_parameter(name, -1), 2), (set_parameter(name, too_much), 2)]);
        assert_eq!(parameter(&client, name), Bson::Int64(value), "{name}");
    }
    assert_eq!(parameter(&client, "logFlushPeriod"), Bson::Int64(40), "one has two names");
    let settings = client.service.catalog.engine().adjustable();
    assert_eq!(settings.checkpoint_period(), Duration::from_secs(7));
    assert_eq!(settings.cleaner_period(), Duration::from_secs(3));
    assert_eq!(settings.cleaner_iterations(), 9);
    assert_eq!(settings.log_flush_period(), Duration::from_millis(40));
    assert_eq!(settings.lock_timeout(), Duration::from_millis(50));
    assert_eq!(settings.fs_redzone_percent(), 8);
    let status = client.ok("admin", doc! { "engineStatus": 1 });
    assert!(status.to_string().contains("\"CP_PERIOD\": 7"), "{status}");
}

#[test]
fn parameters_take_values_that_fit_and_no_others() {
    let client = Client::new();
    let levels = |levels: Document| set_parameter("logComponentVerbosity", levels);
    let number = |text: &str| text.parse::<Decimal128>().unwrap();
    check(
        &client,
        &[
            (set_parameter("logLevel", 5), 0),
            (set_parameter("logLevel", 1.5), 0),
            (set_parameter("logLevel", number("1")), 0),
            (set_parameter("logLevel", true), 0),
            (set_parameter("logLevel", -1), 2),
            (set_parameter("logLevel", 6), 2),
            (set_parameter("logLevel", 1_i64 << 31), 2),
            (set_parameter("logLevel", "1"), 2),
            (set_parameter("logLevel", vec![1]), 2),
            (set_parameter("logLevel", doc! { "a": 1 }), 2),
            (set_parameter("logLevel", f64::NAN), 2),
            (set_parameter("LogLevel", 0), 72),
            (set_parameter("", 1), 72),
            (set_parameter("port", 1), 72),
            (doc! { "setParameter": 1 }, 72),
            (doc! { "setParameter": "x", "logLevel": 0, "comment": "c" }, 0),
            (set_parameter("quiet", vec![true]), 0),
            (set_parameter("quiet", doc! { "a": true }), 0),
            (set_parameter("quiet", "true"), 0),
            (set_parameter("automationServiceDescriptor", "test"), 0),
            (set_parameter("automationServiceDescriptor", 1), 14),
            (set_parameter("automationServiceDescriptor", "x".repeat(65)), 15),
            (levels(doc! { "command": { "verbosity": 2 }, "network": 3 }), 0),
            (levels(doc! { "unknown": { "verbosity": 2 } }), 2),
            (levels(doc! { "command": { "verbosity": "abc" } }), 2),
            (set_parameter("logComponentVerbosity", "abc"), 14),
            (set_parameter("featureCompatibilityVersion", "8.0"), 20),
            (set_parameter("refuseOpenBind", true), 20),
        ],
    );
    let shown = parameter(&client, "logComponentVerbosity");
    let shown = shown.as_document().unwrap();
    assert_eq!(shown.get_document("command").unwrap().get_i32("verbosity").ok(), Some(2));
    let network = shown.get_document("network").unwrap();
    assert_eq!(network.get_document("asio").unwrap(), &doc! { "verbosity": -1 });
    assert_eq!(parameter(&client, "quiet"), Bson::Boolean(true));
    let was = client.ok("admin", set_parameter("quiet", false));
    assert_eq!(was.get_bool("was").ok(), Some(true));
}

#[test]
fn a_command_that_fails_has_set_no_parameter() {
    let client = Client::new();
    client.ok("admin", set_parameter("logLevel", 0));
    check(
        &client,
        &[
            (doc! { "setParameter": 1, "logLevel": 3, "nonExistent": 1 }, 72),
            (
                doc! { "setParameter": 1, "logLevel": 3, "quiet": true, "defaultFanout": 1_000_000 },
                17288,
            ),
            (doc! { "setParameter": 1, "logComponentVerbosity": { "command": 2, "x": 1 } }, 2),
        ],
    );
    assert_eq!(parameter(&client, "logLevel"), Bson::Int32(0));
    assert_eq!(parameter(&client, "quiet"), Bson::Boolean(false));
    let levels = parameter(&client, "logComponentVerbosity");
    let command = levels.as_document().unwrap().get_document("command").unwrap();
    assert_eq!(command.get_i32("verbosity").ok(), Some(-1));
}

#[test]
fn parameters_are_listed_with_what_may_be_done_to_them() {
    let client = Client::new();
    let all =
        client.ok("admin", doc! { "getParameter": { "allParameters": true, "showDetails": true } });
    let details = |name: &str| all.get_document(name).unwrap();
    assert_eq!(
        details("logLevel"),
        &doc! { "value": 0, "settableAtRuntime": true, "settableAtStartup": true }
    );
    assert_eq!(details("enableTestCommands").get_bool("settableAtRuntime").ok(), Some(false));
    let names: Vec<_> = all.keys().filter(|name| *name != "ok").collect();
    assert!(names.is_sorted(), "{names:?}");
    let at = |when: &str| {
        client.ok("admin", doc! { "getParameter": { "allParameters": true, "setAt": when } })
    };
    assert!(at("startup").contains_key("enableTestCommands"));
    assert!(!at("runtime").contains_key("enableTestCommands"));
    check(
        &client,
        &[
            (doc! { "getParameter": { "allParameters": true, "setAt": "never" } }, 2),
            (doc! { "getParameter": { "x": true }, "logLevel": 1 }, 40415),
            (doc! { "getParameter": 1, "changeStreamOptions": 1 }, 72),
        ],
    );
}

#[test]
fn security_finding_22_parameters_of_tls_and_users_are_refused_by_name() {
    let client = Client::new();
    for name in [
        "clusterAuthMode",
        "tlsMode",
        "saslHostName",
        "opensslDiffieHellmanParameters",
        "tlsCATrusts",
        "oidcIdentityProviders",
        "saslauthdPath",
        "ldapUserCacheInvalidationInterval",
        "JWKSMinimumQuiescePeriodSecs",
        "ocspEnabled",
        "kmipKeyStatePollingSeconds",
    ] {
        let reply = client.run("admin", set_parameter(name, 1));
        assert_eq!(reply.get_i32("code").ok(), Some(238));
        assert!(reply.get_str("errmsg").unwrap().contains(name), "{reply}");
    }
}

#[test]
fn what_the_program_went_by_is_shown_and_stays() {
    let client = Client::new();
    for (name, value) in [
        ("tlsUseSystemCA", Bson::Boolean(false)),
        ("tlsX509ExpirationWarningThresholdDays", Bson::Int32(30)),
        ("opensslCipherConfig", Bson::String(String::new())),
    ] {
        assert_eq!(parameter(&client, name), value);
        let reply = client.run("admin", set_parameter(name, 1));
        assert_eq!(reply.get_i32("code").ok(), Some(20), "{reply}");
    }
}

#[test]
fn cluster_parameters_are_checked() {
    let client = Client::new();
    let set = |name: &str, value: Document| doc! { "setClusterParameter": { name: value } };
    let images = |expiry: Bson| {
        set("changeStreamOptions", doc! { "preAndPostImages": { "expireAfterSeconds": expiry } })
    };
    let get = |names: Bson| doc! { "getClusterParameter": names };
    check(
        &client,
        &[
            (images(7200.into()), 0),
            (images("off".into()), 0),
            (images("on".into()), 2),
            (images(true.into()), 2),
            (images(Bson::Int32(0)), 2),
            (set("changeStreamOptions", doc! {}), 2),
            (set("changeStreamOptions", doc! { "preAndPostImages": Bson::Null }), 2),
            (set("changeStreamOptions", doc! { "preAndPostImages": 1 }), 2),
            (set("changeStreamOptions", doc! { "$bad": 1 }), 52),
            (
                set(
                    "changeStreamOptions",
                    doc! { "preAndPostImages": { "expireAfterSeconds": 5 }, "more": 1 },
                ),
                2,
            ),
            (set("changeStreams", doc! {}), 0),
            (set("changeStreams", doc! { "expireAfterSeconds": 5000.0 }), 0),
            (set("changeStreams", doc! { "expireAfterSeconds": -1 }), 2),
            (set("changeStreams", doc! { "expireAfterSeconds": "x" }), 14),
            (set("pauseMigrationsDuringMultiUpdates", doc! { "enabled": 1 }), 14),
            (set("pauseMigrationsDuringMultiUpdates", doc! { "enabled": true }), 0),
            (set("ChangeStreams", doc! {}), 4),
            (set("logLevel", doc! { "verbosity": 1 }), 4),
            (set("", doc! { "x": 1 }), 4),
            (doc! { "setClusterParameter": {} }, 4),
            (doc! { "setClusterParameter": Bson::Null }, 40414),
            (doc! { "setClusterParameter": "x" }, 14),
            (doc! { "setClusterParameter": { "changeStreams": "x" } }, 2),
            (
                doc! { "setClusterParameter": { "changeStreams": {}, "changeStreamOptions": {} } },
                72,
            ),
            (doc! { "setClusterParameter": { "changeStreams": {} }, "unknownField": 1 }, 0),
            (
                doc! { "setClusterParameter": { "changeStreams": {} }, "writeConcern": { "w": 1 } },
                72,
            ),
            (
                doc! { "setClusterParameter": { "changeStreams": {} }, "apiVersion": "1", "apiStrict": true },
                323,
            ),
            (get("*".into()), 0),
            (get("changeStreams".into()), 0),
            (get(Bson::Array(vec!["changeStreams".into(), "changeStreams".into()])), 0),
            (get(Bson::Array(vec![])), 2),
            (get(Bson::Array(vec!["*".into()])), 4),
            (get(Bson::Array(vec!["changeStreams".into(), 1.into()])), 14),
            (get(Bson::Array(vec![Bson::Null])), 14),
            (get("".into()), 4),
            (get("**".into()), 4),
            (get(Bson::Null), 14),
            (get(1.into()), 14),
        ],
    );
    let elsewhere = client.run("db", get("*".into()));
    assert_eq!(elsewhere.get_i32("code").ok(), Some(13));
}

#[test]
fn cluster_parameters_are_kept_and_have_a_time() {
    let client = Client::new();
    let value = |client: &Client, name: &str| {
        let reply = client.ok("admin", doc! { "getClusterParameter": name });
        let list = reply.get_array("clusterParameters").unwrap();
        assert_eq!(list.len(), 1);
        list[0].as_document().unwrap().clone()
    };
    let never = value(&client, "changeStreams");
    assert_eq!(never.get_i64("expireAfterSeconds").ok(), Some(3600));
    let set = |seconds: Bson| {
        client.ok(
            "admin",
            doc! { "setClusterParameter": { "changeStreams": { "expireAfterSeconds": seconds } } },
        );
        let now = value(&client, "changeStreams");
        let time = now.get_timestamp("clusterParameterTime").unwrap();
        (now.get_i64("expireAfterSeconds").unwrap(), (time.time, time.increment))
    };
    let (one, two, same, null) = (set(5.into()), set(6.into()), set(6.into()), set(Bson::Null));
    assert_eq!((one.0, two.0, null.0), (5, 6, 3600));
    assert!((0, 0) < one.1 && one.1 < two.1 && two.1 < null.1);
    assert_eq!(two, same, "the same value is no change");
    client.ok(
        "admin",
        doc! { "setClusterParameter": { "defaultMaxTimeMS": { "readOperations": 77 } } },
    );
    let again = client.restarted(9);
    again.service.start_replication().unwrap();
    assert_eq!(value(&again, "defaultMaxTimeMS").get_i64("readOperations").ok(), Some(77));
    assert_eq!(again.service.default_max_time_ms.load(Ordering::Relaxed), 77);
    assert_eq!(value(&again, "changeStreams").get_i64("expireAfterSeconds").ok(), Some(3600));
}

#[test]
fn reads_have_the_default_time_limit_where_they_name_none() {
    let client = Client::new();
    let set = |millis: i32| {
        client.ok(
            "admin",
            doc! { "setClusterParameter": { "defaultMaxTimeMS": { "readOperations": millis } } },
        );
    };
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    set(30);
    let forever = || doc! { "find": "c", "filter": { "$where": "for (;;) {}; return 1" } };
    assert_eq!(client.run("db", forever()).get_i32("code").ok(), Some(50));
    let mut own = forever();
    own.insert("maxTimeMS", 60);
    assert_eq!(client.run("db", own).get_i32("code").ok(), Some(50));
    set(0);
    client.ok("db", doc! { "find": "c" });
}

#[test]
fn feature_versions_are_chosen_confirmed_and_kept() {
    let client = Client::new();
    let set = |version: Bson, confirm: Bson| doc! { "setFeatureCompatibilityVersion": version, "confirm": confirm };
    let yes = Bson::Boolean(true);
    for wrong in ["3.0", "99.0", "8", "8.0.0", " 7.0", "7.0 ", "", "7.5", "８.０"] {
        check(&client, &[(set(wrong.into(), yes.clone()), 4_926_900)]);
    }
    check(
        &client,
        &[
            (set("7.0".into(), false.into()), 7_369_100),
            (set("8.0".into(), Bson::Null), 7_369_100),
            (doc! { "setFeatureCompatibilityVersion": "7.0" }, 7_369_100),
            (set(8.into(), yes.clone()), 14),
            (set("8.0".into(), "x".into()), 14),
            (doc! { "setFeatureCompatibilityVersion": "7.0", "confrim": true }, 40415),
            (set("8.0".into(), yes.clone()), 0),
            (set("7.0".into(), 1.into()), 0),
        ],
    );
    let version = |client: &Client| {
        let version = parameter(client, "featureCompatibilityVersion");
        version.as_document().unwrap().get_str("version").unwrap().to_owned()
    };
    assert_eq!(version(&client), "7.0");
    let again = client.restarted(9);
    again.service.start_replication().unwrap();
    assert_eq!(version(&again), "7.0");
    let user = again.run("db", set("8.0".into(), yes));
    assert_eq!(user.get_i32("code").ok(), Some(13));
}

#[test]
fn fsync_locks_out_writes_until_all_locks_are_taken_back() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    for lock in [Bson::Boolean(true), 1.into(), 0.5.into(), Bson::Double(f64::NAN)] {
        let reply = client.ok(
            "admin",
            doc! { "fsync": 1, "lock": lock, "fsyncLockAcquisitionTimeoutMillis": -1 },
        );
        assert_eq!(reply.get_i64("lockCount").ok(), Some(1), "{reply}");
        assert!(!reply.contains_key("numFiles") && reply.contains_key("seeAlso"));
        let unlocked = client.ok("admin", doc! { "fsyncUnlock": 1, "someUnknownField": 1 });
        assert_eq!(unlocked.get_i64("lockCount").ok(), Some(0));
        assert_eq!(unlocked.get_str("info").ok(), Some("fsyncUnlock completed"));
    }
    for lock in [Bson::Boolean(false), 0.into(), Bson::Double(-0.0), Bson::Null] {
        let reply = client.ok(
            "admin",
            doc! { "fsync": 1, "lock": lock, "fsyncLockAcquisitionTimeoutMillis": Bson::Null },
        );
        assert_eq!(reply.get_i32("numFiles").ok(), Some(1));
    }
    check(
        &client,
        &[
            (doc! { "fsync": 1, "lock": "x" }, 14),
            (doc! { "fsync": 1, "lock": [true] }, 14),
            (doc! { "fsync": 1, "fsyncLockAcquisitionTimeoutMillis": 5_i64 }, 14),
            (doc! { "fsync": 1, "fsyncLockAcquisitionTimeoutMillis": 5.0 }, 14),
            (doc! { "fsync": 1, "Lock": true }, 40415),
            (doc! { "fsync": 1, "readConcern": { "level": "local" } }, 0),
            (doc! { "fsync": 1, "readConcern": { "level": Bson::Null } }, 0),
            (doc! { "fsync": 1, "readConcern": { "level": "majority" } }, 72),
            (doc! { "fsync": 1, "readConcern": { "level": "local", "bogus": 1 } }, 40415),
            (doc! { "fsync": 1, "writeConcern": { "w": 1 } }, 72),
            (doc! { "fsyncUnlock": 1 }, 20),
        ],
    );
    client.ok("admin", doc! { "fsync": 1, "lock": true });
    let twice = client.ok("admin", doc! { "fsync": 1, "lock": true });
    assert_eq!(twice.get_i64("lockCount").ok(), Some(2));
    let blocked = [
        ("db", doc! { "insert": "c", "documents": [{ "_id": 2 }], "maxTimeMS": 20 }),
        (
            "db",
            doc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }], "maxTimeMS": 20 },
        ),
        ("db", doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }], "maxTimeMS": 20 }),
        ("db", doc! { "findAndModify": "c", "query": {}, "remove": true, "maxTimeMS": 20 }),
        ("db", doc! { "create": "d", "maxTimeMS": 20 }),
        ("db", doc! { "drop": "c", "maxTimeMS": 20 }),
        (
            "db",
            doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }], "maxTimeMS": 20 },
        ),
        (
            "db",
            doc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {}, "maxTimeMS": 20 },
        ),
        ("admin", doc! { "renameCollection": "db.c", "to": "db.d", "maxTimeMS": 20 }),
    ];
    for (database, command) in blocked {
        let reply = client.run(database, command.clone());
        assert_eq!(reply.get_i32("code").ok(), Some(50), "{command} gave {reply}");
    }
    client.ok("db", doc! { "find": "c" });
    client.ok("db", doc! { "aggregate": "c", "pipeline": [], "cursor": {} });
    let operations = client.ok("admin", doc! { "currentOp": 1 });
    assert_eq!(operations.get_bool("fsyncLock").ok(), Some(true));
    // A writer that waits goes on when the last lock is taken back.
    let (other, os) = (client.another(2), os::Os::real());
    let insert = move || other.ok("db", doc! { "insert": "c", "documents": [{ "_id": 3 }] });
    let waiting = os.spawner.spawn("writer", Box::new(move || drop(insert()))).unwrap();
    os.clock.sleep(Duration::from_millis(50));
    client.ok("admin", doc! { "fsyncUnlock": 1 });
    let count = || client.ok("db", doc! { "count": "c" }).get_i32("n").unwrap();
    assert_eq!(count(), 1, "one lock is left");
    client.ok("admin", doc! { "fsyncUnlock": 1 });
    waiting.join().unwrap();
    assert_eq!(count(), 2);
}

#[test]
fn writers_behind_an_fsync_lock_end_with_the_server() {
    let client = Client::new();
    client.ok("admin", doc! { "fsync": 1, "lock": true });
    let (other, os) = (client.another(2), os::Os::real());
    let insert = move || {
        let reply = other.run("db", doc! { "insert": "c", "documents": [{ "_id": 3 }] });
        assert!(
            matches!(reply.get_i32("code"), Ok(91 | 11600)) || matches!(reply.get_i32("n"), Ok(1))
        );
    };
    let waiting = os.spawner.spawn("writer", Box::new(insert)).unwrap();
    os.clock.sleep(Duration::from_millis(50));
    client.service.end_waits();
    client.service.begin_shutdown();
    waiting.join().unwrap();
}

#[test]
fn auto_compact_runs_in_the_background_and_conflicts_with_other_options() {
    let client = Client::new();
    let documents: Vec<_> = (0..200).map(|n| doc! { "_id": n, "text": "x".repeat(200) }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    let on = |more: Document| {
        let mut command = doc! { "autoCompact": true };
        command.extend(more);
        command
    };
    let off = || client.ok("admin", doc! { "autoCompact": false, "runOnce": true });
    for space in [1.into(), 1.5.into(), Bson::Int64(1 << 40), decimal("0.51"), Bson::Null] {
        check(&client, &[(on(doc! { "freeSpaceTargetMB": space }), 0)]);
        off();
    }
    for space in [Bson::Int32(0), 0.99.into(), decimal("0.5"), Bson::Double(f64::NAN), (-1).into()]
    {
        check(&client, &[(on(doc! { "freeSpaceTargetMB": space }), 2)]);
    }
    check(
        &client,
        &[
            (on(doc! { "freeSpaceTargetMB": "1" }), 14),
            (on(doc! { "unknown": 1 }), 40415),
            (on(doc! { "freeSpaceTargetMB": 30 }), 0),
            (on(doc! { "freeSpaceTargetMB": 30 }), 0),
            (on(doc! { "freeSpaceTargetMB": 50 }), 117),
            (doc! { "autoCompact": "x" }, 14),
        ],
    );
    assert!(client.service.auto_compact.is_on());
    off();
    assert!(!client.service.auto_compact.is_on());
    // Once over everything, and it is off by itself.
    client.ok("admin", on(doc! { "runOnce": true }));
    let clock = os::Os::real().clock;
    for _ in 0..2000 {
        if !client.service.auto_compact.is_on() {
            break;
        }
        clock.sleep(Duration::from_millis(10));
    }
    assert!(!client.service.auto_compact.is_on());
    assert_eq!(client.run("db", doc! { "autoCompact": true }).get_i32("code").ok(), Some(13));
}

#[test]
fn sessions_are_killed_by_id_user_and_pattern() {
    let client = Client::new();
    let lsid =
        |byte: u8| doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] } };
    let nobody =
        Binary { subtype: BinarySubtype::Generic, bytes: session::UserDigest::NOBODY.0.to_vec() };
    let somebody = Binary { subtype: BinarySubtype::Generic, bytes: vec![1; 32] };
    let user = doc! { "user": "u", "db": "admin" };
    for (command, left) in [
        (doc! { "killSessions": [lsid(1)] }, 2),
        (doc! { "killSessions": [lsid(9)], "comment": 1 }, 3),
        (doc! { "killSessions": [] }, 0),
        (doc! { "killAllSessions": [], "unknownField": 1, "$unknown": 1 }, 0),
        (doc! { "killAllSessions": [Bson::Null] }, 0),
        (doc! { "killAllSessions": [user.clone(), user.clone()] }, 3),
        (doc! { "killAllSessionsByPattern": [{ "lsid": lsid(1) }, { "lsid": lsid(2) }] }, 1),
        (doc! { "killAllSessionsByPattern": [{ "uid": nobody }] }, 0),
        (doc! { "killAllSessionsByPattern": [{ "uid": somebody }] }, 3),
        (doc! { "killAllSessionsByPattern": [{ "users": [user], "roles": [] }] }, 0),
        (doc! { "killAllSessionsByPattern": [] }, 0),
    ] {
        client.ok("admin", doc! { "refreshSessions": [lsid(1), lsid(2), lsid(3)] });
        client.ok("db", command.clone());
        assert_eq!(client.service.sessions.len(), left, "{command}");
    }
    let short = Binary { subtype: BinarySubtype::Uuid, bytes: vec![0; 8] };
    let generic = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 16] };
    check(
        &client,
        &[
            (doc! { "killSessions": [1] }, 14),
            (doc! { "killSessions": [{}] }, 40414),
            (doc! { "killSessions": [{ "notId": 1 }] }, 40415),
            (doc! { "killSessions": [{ "id": "x" }] }, 14),
            (doc! { "killSessions": [{ "id": short }] }, 207),
            (doc! { "killSessions": [{ "id": generic }] }, 14),
            (doc! { "killAllSessions": ["x"] }, 14),
            (doc! { "killAllSessions": [{}] }, 40414),
            (doc! { "killAllSessions": [{ "user": "u" }] }, 40414),
            (doc! { "killAllSessions": [{ "db": "admin" }] }, 40414),
            (doc! { "killAllSessions": [{ "user": Bson::Null, "db": "admin" }] }, 40414),
            (doc! { "killAllSessions": [{ "user": 1, "db": "admin" }] }, 14),
            (doc! { "killAllSessions": [{ "user": "u", "db": "admin", "extra": 1 }] }, 40415),
            (doc! { "killAllSessionsByPattern": [{ "uid": 1 }] }, 14),
            (doc! { "killAllSessionsByPattern": [{ "bogus": 1 }] }, 40415),
            (doc! { "killAllSessionsByPattern": [{ "users": ["u"] }] }, 14),
        ],
    );
}

#[test]
fn what_version_one_does_not_have_is_named() {
    let client = Client::new();
    for (name, key, sparse) in [
        ("t", doc! { "a": "text" }, false),
        ("s", doc! { "b": 1 }, true),
        ("plain", doc! { "c": 1 }, false),
    ] {
        let index = doc! { "key": key, "name": name, "sparse": sparse };
        client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    }
    client.ok("db", doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    let ask = |api: Document, more: Document| {
        let mut command = doc! { "validateDBMetadata": 1, "apiParameters": api };
        command.extend(more);
        let reply = client.ok("admin", command);
        assert!(!reply.contains_key("hasMoreErrors"));
        reply.get_array("apiVersionErrors").unwrap().clone()
    };
    let strict = || doc! { "version": "1", "strict": true };
    let all = ask(strict(), doc! { "db": "db" });
    assert_eq!(all.len(), 2);
    let expected = doc! {
        "ns": "db.c", "code": 323, "codeName": "APIStrictError",
        "errmsg": "The index with name t is not allowed in API version 1.",
    };
    assert!(all.contains(&Bson::Document(expected)), "{all:?}");
    assert_eq!(ask(strict(), doc! {}).len(), 2);
    for (api, more) in [
        (doc! { "version": "1" }, doc! {}),
        (doc! { "version": "1", "strict": false, "deprecationErrors": true }, doc! {}),
        (doc! { "version": "2", "strict": true }, doc! {}),
        (strict(), doc! { "db": "elsewhere" }),
        (strict(), doc! { "db": "DB" }),
        (strict(), doc! { "collection": "v" }),
        (strict(), doc! { "collection": "$test" }),
    ] {
        assert!(ask(api.clone(), more.clone()).is_empty(), "{api} {more}");
    }
    check(
        &client,
        &[
            (doc! { "validateDBMetadata": 1 }, 40414),
            (doc! { "validateDBMetadata": 1, "apiParameters": Bson::Null }, 40414),
            (doc! { "validateDBMetadata": 1, "apiParameters": 1 }, 14),
            (doc! { "validateDBMetadata": 1, "apiParameters": { "strict": true } }, 40414),
            (doc! { "validateDBMetadata": 1, "apiParameters": { "version": 1 } }, 14),
            (doc! { "validateDBMetadata": 1, "apiParameters": { "version": "1", "x": 1 } }, 40415),
            (doc! { "validateDBMetadata": 1, "apiParameters": strict(), "db": "a.b" }, 73),
            (doc! { "validateDBMetadata": 1, "apiParameters": strict(), "db": 1 }, 14),
            (doc! { "validateDBMetadata": 1, "apiParameters": strict(), "x": 1 }, 40415),
        ],
    );
}

#[test]
fn commands_of_old_clients_answer_or_say_what_to_use() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1, "a": 1 }] });
    client.ok("db", doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] });
    let touched = client.ok("db", doc! { "touch": "c", "data": true, "index": true });
    assert_eq!(touched.get_document("data").unwrap().get_i32("numRanges").ok(), Some(1));
    assert_eq!(touched.get_document("indexes").unwrap().get_i32("num").ok(), Some(1));
    client.fails(
        "db",
        doc! { "touch": "c" },
        2,
        "must specify at least one of (data:true, index:true)",
    );
    assert_eq!(
        client.run("db", doc! { "touch": "x", "data": true }).get_i32("code").ok(),
        Some(26)
    );
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 2 }] });
    client.ok("db", doc! { "find": "c", "batchSize": 1 });
    let cursors = client.ok("db", doc! { "cursorInfo": 1 });
    assert_eq!(cursors.get_i32("totalOpen").ok(), Some(1));
    for (name, instead) in [
        ("group", "$group"),
        ("eval", "$function"),
        ("$eval", "$function"),
        ("geoNear", "$geoNear"),
    ] {
        let reply = client.run("db", doc! { name: { "ns": "c" } });
        assert_eq!(reply.get_i32("code").ok(), Some(59));
        let text = reply.get_str("errmsg").unwrap();
        assert!(text.contains(name) && text.contains(instead), "{text}");
    }
}

#[test]
fn concerns_say_where_they_come_from_in_known_words() {
    let client = Client::new();
    let read = |provenance: Bson| doc! { "find": "c", "readConcern": { "level": "local", "provenance": provenance } };
    let write = |provenance: Bson| {
        doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 1, "provenance": provenance } }
    };
    for word in ["clientSupplied", "implicitDefault", "customDefault", "getLastErrorDefaults"] {
        check(&client, &[(read(word.into()), 0), (write(word.into()), 0)]);
    }
    check(
        &client,
        &[
            (read("x".into()), 2),
            (write("x".into()), 2),
            (read(1.into()), 14),
            (write(1.into()), 14),
        ],
    );
}
