//! What the server says about itself.

use super::Client;
use bson::{Bson, doc};

#[test]
fn hello_says_what_drivers_ask() {
    let client = Client::new();
    let hello = client.ok("admin", doc! { "hello": 1, "compression": ["zstd", "x", "snappy"] });
    let names: Vec<_> = hello.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "helloOk",
            "isWritablePrimary",
            "topologyVersion",
            "maxBsonObjectSize",
            "maxMessageSizeBytes",
            "maxWriteBatchSize",
            "localTime",
            "logicalSessionTimeoutMinutes",
            "connectionId",
            "minWireVersion",
            "maxWireVersion",
            "readOnly",
            "compression",
            "ok"
        ]
    );
    assert_eq!(hello.get_i32("maxWireVersion").ok(), Some(25));
    assert_eq!(
        hello.get_array("compression").unwrap(),
        &[Bson::from("zstd"), Bson::from("snappy")]
    );
    let old = client.ok("admin", doc! { "ismaster": 1 });
    assert_eq!(old.get_bool("ismaster").ok(), Some(true));
    assert!(!old.contains_key("isWritablePrimary"));
}

#[test]
fn awaitable_hello_waits_its_time_out_and_streams() {
    let client = Client::new();
    let hello = client.ok("admin", doc! { "hello": 1 });
    let topology = hello.get_document("topologyVersion").unwrap().clone();
    let again = doc! { "hello": 1, "topologyVersion": topology, "maxAwaitTimeMS": 30 };
    let before = std::time::Duration::from_millis(30);
    let clock = &client.service.os.clock;
    let start = clock.monotonic();
    let reply = client.reply("admin", &again, true);
    assert!(clock.monotonic() >= start + before);
    assert!(reply.exhaust.is_some());
    client.service.end_waits();
    let endless =
        doc! { "hello": 1, "topologyVersion": topology_of(&hello), "maxAwaitTimeMS": 1_000_000 };
    assert!(client.reply("admin", &endless, true).exhaust.is_none());
}

/// A driver waited ten seconds for the new primary where the role changed between its answer and the next wait.
#[test]
fn a_stream_of_hellos_misses_no_change_of_the_topology() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let client = Client::new();
    let topology = topology_of(&client.ok("admin", doc! { "hello": 1 }));
    let hello = doc! { "hello": 1, "topologyVersion": topology, "maxAwaitTimeMS": 1 };
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                client.service.replication.topology.fetch_add(1, Relaxed);
            }
        });
        let wrong = (0..1000).find(|_| {
            let reply = client.reply("admin", &hello, true);
            let of = |bytes| topology_of(&bson::Document::try_from(bytes).unwrap());
            of(&reply.document) != of(&reply.exhaust.unwrap())
        });
        ends.store(true, Relaxed);
        assert_eq!(wrong, None, "the next wait is for what comes after the answer");
    });
}

/// Finding 2 of the network's stage 0.
#[test]
fn awaitable_hello_holds_no_thread_and_waits_for_ten_minutes_at_most() {
    let client = Client::new();
    let topology = topology_of(&client.ok("admin", doc! { "hello": 1 }));
    let woken = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counting = std::sync::Arc::clone(&woken);
    client.service.on_change(std::sync::Arc::new(move || {
        counting.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }));
    let hello = doc! { "hello": 1, "topologyVersion": topology, "maxAwaitTimeMS": i64::MAX };
    let body = bson::RawDocumentBuf::try_from(&hello).unwrap();
    let request = dispatch::Request {
        database: "admin",
        body: &body,
        sequences: &[],
        op: dispatch::OpKind::Msg,
        exhaust_allowed: true,
        request_id: 1,
        waited_until: None,
        waker: None,
        finisher: None,
    };
    let before = client.service.os.clock.monotonic();
    let waits = |waited_until| {
        let request = dispatch::Request { waited_until, ..request };
        client.service.run(&client.connection, &request).wait
    };
    let until = waits(None).expect("it returns at once and asks to be run again");
    let minutes = std::time::Duration::from_mins;
    assert!((before + minutes(10)..before + minutes(11)).contains(&until), "{until:?}");
    assert_eq!(waits(Some(until)), Some(until), "woken early, it waits on");
    client.service.end_waits();
    assert_eq!(woken.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(waits(Some(until)), None, "the server ends");
}

/// Keeps what is logged.
#[derive(Default)]
struct Listening(parking_lot::Mutex<Vec<(String, bson::Document)>>);

impl serverstate::Host for Listening {
    fn log(&self, event: &serverstate::LogEvent<'_>) {
        self.0.lock().push((event.message.to_owned(), event.attributes.clone()));
    }

    fn recent_log(&self, _name: &str) -> Option<(Vec<String>, u64)> {
        None
    }

    fn rotate_log(&self) -> Result<(), String> {
        Ok(())
    }

    fn shut_down(&self, _timeout: std::time::Duration) {}

    fn network(&self) -> serverstate::Network {
        serverstate::Network::default()
    }
}

#[test]
fn the_wait_of_an_awaitable_hello_is_not_slow() {
    let host = std::sync::Arc::new(Listening::default());
    let listening: std::sync::Arc<Listening> = std::sync::Arc::clone(&host);
    let client = Client::with_host(host);
    client.ok("admin", doc! { "setParameter": 1, "slowOpThresholdMs": 300 });
    let hello = client.ok("admin", doc! { "hello": 1 });
    listening.0.lock().clear();
    client.ok(
        "admin",
        doc! { "hello": 1, "topologyVersion": topology_of(&hello), "maxAwaitTimeMS": 400 },
    );
    assert!(listening.0.lock().is_empty());
    client.ok("admin", doc! { "setParameter": 1, "slowOpThresholdMs": 0 });
    assert_eq!(listening.0.lock().len(), 1);
    client.ok("db", doc! { "insert": "c", "documents": [{ "a": 1 }, { "a": 2 }] });
    listening.0.lock().clear();
    client.ok("db", doc! { "find": "c", "filter": { "a": 2 } });
    let (message, told) = listening.0.lock().remove(0);
    assert_eq!(message, "Slow query");
    let wanted = doc! {
        "type": "command", "ns": "db.c", "command": { "find": "c", "filter": { "a": 2 } },
        "planSummary": "COLLSCAN", "keysExamined": 0_i64, "docsExamined": 2_i64,
        "cursorExhausted": true, "numYields": 0_i64, "nreturned": 1_i64, "locks": {},
    };
    let names: Vec<_> = wanted.keys().map(String::as_str).collect();
    let told_names: Vec<_> = told.keys().map(String::as_str).collect();
    let rest = ["reslen", "remote", "protocol", "durationMillis"];
    assert_eq!(told_names, [&names[..], &rest].concat());
    assert!(wanted.iter().all(|(name, value)| told.get(name) == Some(value)), "{told}");
}

fn topology_of(hello: &bson::Document) -> bson::Document {
    hello.get_document("topologyVersion").unwrap().clone()
}

#[test]
fn hello_with_half_a_wait_is_refused() {
    let client = Client::new();
    let hello = client.ok("admin", doc! { "hello": 1 });
    let alone = doc! { "hello": 1, "topologyVersion": topology_of(&hello) };
    assert_eq!(client.run("admin", alone).get_i32("code").ok(), Some(31368));
    assert_eq!(
        client.run("admin", doc! { "hello": 1, "maxAwaitTimeMS": 1 }).get_i32("code").ok(),
        Some(51759)
    );
}

#[test]
fn client_metadata_is_kept_once() {
    let client = Client::new();
    let metadata = doc! { "driver": { "name": "d", "version": "1" }, "os": { "type": "Linux" } };
    client.ok("admin", doc! { "hello": 1, "client": metadata.clone() });
    assert!(client.connection.client_metadata().is_some());
    let again = client.run("admin", doc! { "hello": 1, "client": metadata });
    assert_eq!(again.get_i32("code").ok(), Some(186));
}

#[test]
fn build_info_names_both_versions() {
    let client = Client::new();
    let info = client.ok("test", doc! { "buildinfo": 1 });
    assert!(info.get_str("version").unwrap().starts_with("8.0."));
    assert_eq!(info.get_str("ferndb").ok(), Some("0.1.0"));
    assert_eq!(info.get_i32("bits").ok(), Some(64));
    assert!(info.get_array("modules").unwrap().is_empty());
    assert!(!info.contains_key("ferretdb"));
}

#[test]
fn small_questions_have_their_shapes() {
    let client = Client::new();
    assert_eq!(
        client.ok("admin", doc! { "whatsmyuri": 1 }).get_str("you").ok(),
        Some("127.0.0.1:1")
    );
    let options = client.ok("admin", doc! { "getCmdLineOpts": 1 });
    assert_eq!(options.get_document("parsed").unwrap(), &doc! { "net": { "port": 1 } });
    let status = client.ok("admin", doc! { "connectionStatus": 1 });
    assert_eq!(
        status.get_document("authInfo").unwrap(),
        &doc! { "authenticatedUsers": [], "authenticatedUserRoles": [] }
    );
    let host = client.ok("admin", doc! { "hostInfo": 1 });
    assert_eq!(host.get_document("system").unwrap().get_str("hostname").ok(), Some("here"));
    let commands = client.ok("admin", doc! { "listCommands": 1 });
    assert!(commands.get_document("commands").unwrap().contains_key("find"));
    client.fails("admin", doc! { "getLog": "x" }, 96, "No log named 'x'");
    client.ok("admin", doc! { "getLog": "startupWarnings" });
}

#[test]
fn parameters_are_read_and_set() {
    let client = Client::new();
    let all = client.ok("admin", doc! { "getParameter": "*" });
    assert_eq!(all.get_bool("enableTestCommands").ok(), Some(false));
    let version = client.ok("admin", doc! { "getParameter": 1, "featureCompatibilityVersion": 1 });
    assert_eq!(
        version.get_document("featureCompatibilityVersion").unwrap(),
        &doc! { "version": "8.0" }
    );
    let set = client.ok("admin", doc! { "setParameter": 1, "cursorTimeoutMillis": 5 });
    assert_eq!(set.get_i64("was").ok(), Some(600_000));
    let read = client.ok("admin", doc! { "getParameter": 1, "cursorTimeoutMillis": 1 });
    assert_eq!(read.get_i64("cursorTimeoutMillis").ok(), Some(5));
    assert!(client.service.keeps_history());
    let off = doc! { "setParameter": 1, "diagnosticDataCollectionEnabled": false };
    assert_eq!(client.ok("admin", off).get_bool("was").ok(), Some(true));
    assert!(!client.service.keeps_history());
    for (rate, taken) in [(0, true), (65_536, true), (i64::MAX, true), (65_535, false), (-1, false)]
    {
        let set = client.run("admin", doc! { "setParameter": 1, "initialSyncThrottle": rate });
        assert_eq!(set.get_i32("code").ok(), (!taken).then_some(2), "{rate}: {set}");
    }
    client.fails("admin", doc! { "getParameter": 1, "x": 1 }, 72, "no option found to get");
    assert_eq!(
        client.run("admin", doc! { "setParameter": 1, "x": 1 }).get_i32("code").ok(),
        Some(72)
    );
}

#[test]
fn server_status_has_what_mongostat_decodes() {
    let client = Client::new();
    let status = client.ok("admin", doc! { "serverStatus": 1, "recordStats": 0, "asserts": 0 });
    assert!(status.get_f64("uptime").unwrap().fract().abs() < f64::EPSILON);
    assert!(!status.contains_key("asserts") && !status.contains_key("wiredTiger"));
    let counters = status.get_document("opcounters").unwrap();
    assert_eq!(counters.get_i64("command").ok(), Some(1));
    let engine = status.get_document("storageEngine").unwrap();
    assert_eq!(engine.get_str("name").ok(), Some("fern"));
    let runs = status.get_document("metrics").unwrap().get_document("commands").unwrap();
    assert_eq!(runs.get_document("serverStatus").unwrap().get_i64("total").ok(), Some(0));
}

#[test]
fn current_op_shows_itself_and_kill_op_needs_a_number() {
    let client = Client::new();
    let other = client.another(2);
    let running = client.ok("admin", doc! { "currentOp": 1 });
    let list = running.get_array("inprog").unwrap();
    assert_eq!(list.len(), 1);
    let op = list[0].as_document().unwrap();
    assert_eq!(op.get_str("desc").ok(), Some("conn1"));
    assert_eq!(op.get_document("command").unwrap().get_i32("currentOp").ok(), Some(1));
    let all = client.ok("admin", doc! { "currentOp": 1, "$all": true });
    assert_eq!(all.get_array("inprog").unwrap().len(), 2);
    assert_eq!(client.run("admin", doc! { "killOp": 1 }).get_i32("code").ok(), Some(40414));
    let killed = other.ok("admin", doc! { "killOp": 1, "op": op.get_i32("opid").unwrap() });
    assert_eq!(killed.get_str("info").ok(), Some("attempting to kill op"));
    client.service.close_connection(&other.connection);
    assert_eq!(client.service.connections().len(), 1);
}

#[test]
fn engine_status_and_ft_show_the_same_figures() {
    let client = Client::new();
    let documents: Vec<_> = (0..500).map(|n| doc! { "_id": n, "a": "text ".repeat(50) }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client.ok("db", doc! { "reIndex": "c" });
    client.ok("admin", doc! { "checkpoint": 1 });
    client.ok("db", doc! { "find": "c", "filter": { "_id": 7 } });
    let status = client.ok("admin", doc! { "engineStatus": 1 });
    let ft = client.ok("admin", doc! { "serverStatus": 1 }).get_document("ft").unwrap().clone();
    let names: Vec<_> = ft.keys().map(String::as_str).collect();
    let expected = [
        "fsync",
        "log",
        "cachetable",
        "checkpoint",
        "serializeTime",
        "locktree",
        "compressionRatio",
        "alerts",
    ];
    assert_eq!(names, expected);
    let place = |path: &str| {
        let mut names: Vec<_> = path.split('.').collect();
        let last = names.pop().unwrap();
        let inner = names.iter().fold(&ft, |inner, name| inner.get_document(name).unwrap());
        inner.get(last).unwrap().clone()
    };
    for (path, key) in [
        ("checkpoint.count", "CP_CHECKPOINT_COUNT"),
        ("log.bytes", "LOGGER_BYTES_WRITTEN"),
        ("cachetable.size.limit", "CT_SIZE_LIMIT"),
        ("cachetable.miss.count", "CT_MISS"),
        ("compressionRatio.leaf", "FT_DISK_FLUSH_LEAF_COMPRESSION_RATIO"),
    ] {
        assert_eq!(&place(path), status.get(key).unwrap(), "{path}");
    }
    assert!(place("compressionRatio.leaf").as_f64().unwrap() > 2.0, "{ft}");
    assert!(status.get_i64("FT_DISK_FLUSH_LEAF").unwrap() > 0);
    assert_eq!(place("checkpoint.count").as_i64(), Some(1));
    assert_eq!(place("alerts.panic string").as_str(), Some(""));
    assert_eq!(place("alerts.filesystem status").as_str(), Some("OK"));
    let scaled = client.ok("admin", doc! { "serverStatus": 1, "ft": { "scale": 1024 } });
    let scaled = scaled.get_document("ft").unwrap().get_document("cachetable").unwrap().clone();
    let limit = scaled.get_document("size").unwrap().get_i64("limit").unwrap();
    assert_eq!(Some(limit), place("cachetable.size.limit").as_i64().map(|bytes| bytes / 1024));
    let bad = client.run("admin", doc! { "serverStatus": 1, "ft": { "scale": 0 } });
    assert_eq!(bad.get_i32("code").ok(), Some(2));
    let without = client.ok("admin", doc! { "serverStatus": 1, "ft": 0 });
    assert!(!without.contains_key("ft"));
}
