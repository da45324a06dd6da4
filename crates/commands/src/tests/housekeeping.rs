//! Commands of administrators' scripts that have little or nothing to do here.

use super::*;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson};

#[test]
fn compact_frees_what_it_says_and_loses_nothing() {
    let client = Client::new();
    let documents: Vec<Document> = (0..2000).map(|i| doc! { "_id": i, "a": i % 7 }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client
        .ok("db", doc! { "delete": "c", "deletes": [{ "q": { "a": { "$lt": 5 } }, "limit": 0 }] });
    // Neither of these compacts anything.
    let estimate = || {
        let reply = client.ok("db", doc! { "compact": "c", "dryRun": true, "force": true });
        assert!(!reply.contains_key("bytesFreed"), "{reply}");
        reply.get_i32("estimatedBytesFreed").unwrap()
    };
    let before = estimate();
    assert!(before > 0, "1430 of 2000 documents are gone");
    let reply = client.ok("db", doc! { "compact": "c", "freeSpaceTargetMB": 1000 });
    assert_eq!(reply.get_i32("bytesFreed").ok(), Some(0));
    assert_eq!(estimate(), before);
    let reply = client.ok("db", doc! { "compact": "c" });
    assert!(reply.get_i32("bytesFreed").unwrap() >= 0);
    assert!(estimate() < before, "compacted, and as much to be gained as before");
    let count = client.ok("db", doc! { "count": "c", "query": { "a": { "$gte": 0 } } });
    assert_eq!(count.get_i32("n").unwrap(), 570);
    for (field, value, code) in [
        ("freeSpaceTargetMB", Bson::Int32(0), 2),
        ("freeSpaceTargetMB", Bson::String("1".into()), 14),
        ("dryRun", Bson::String("yes".into()), 14),
        ("force", Bson::String("yes".into()), 14),
        ("Force", Bson::Boolean(true), 40415),
    ] {
        let reply = client.run("db", doc! { "compact": "c", field: value });
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{field}");
    }
    client.ok("db", doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    let reply = client.run("db", doc! { "compact": "v" });
    assert_eq!(reply.get_i32("code").ok(), Some(166));
    client.fails("db", doc! { "compact": "none" }, 26, "ns not found db.none");
}

#[test]
fn equal_collections_have_equal_digests() {
    let client = Client::new();
    let documents = vec![doc! { "_id": 1, "a": "x" }, doc! { "_id": 2 }];
    client.ok("a", doc! { "insert": "c", "documents": documents.clone() });
    client.ok(
        "b",
        doc! { "insert": "c", "documents": documents.into_iter().rev().collect::<Vec<_>>() },
    );
    client.ok("b", doc! { "insert": "d", "documents": [{ "_id": 1 }] });
    let digest = |database: &str| {
        let reply = client.ok(database, doc! { "dbHash": 1 });
        let of = reply.get_document("collections").unwrap().get_str("c").unwrap().to_owned();
        (of, reply.get_str("md5").unwrap().to_owned())
    };
    let (a, b) = (digest("a"), digest("b"));
    assert_eq!(a.0, b.0);
    assert_ne!(a.1, b.1);
    let only = client.ok("b", doc! { "dbHash": 1, "collections": ["c"] });
    assert_eq!(only.get_str("md5").unwrap(), a.1);
    client.ok(
        "a",
        doc! { "update": "c", "updates": [{ "q": { "_id": 2 }, "u": { "$set": { "b": 1 } } }] },
    );
    assert_ne!(digest("a").0, b.0);
}

#[test]
fn the_digest_of_a_file_is_that_of_its_bytes() {
    let client = Client::new();
    let chunk = |n: i32, bytes: &[u8]| {
        let data = Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() };
        doc! { "files_id": "f", "n": n, "data": data }
    };
    let documents = vec![chunk(1, b"world"), chunk(0, b"hello "), doc! { "files_id": "g", "n": 0 }];
    client.ok("db", doc! { "insert": "fs.chunks", "documents": documents });
    let reply = client.ok("db", doc! { "filemd5": "f", "root": "fs" });
    assert_eq!(reply.get_i32("numChunks").unwrap(), 2);
    assert_eq!(reply.get_str("md5").unwrap(), "5eb63bbbe01eeed093cb22bb8f5acdc3");
    let none = client.ok("db", doc! { "filemd5": "none", "root": "fs" });
    assert_eq!(none.get_str("md5").unwrap(), "d41d8cd98f00b204e9800998ecf8427e");
    assert_eq!(
        client.run("db", doc! { "filemd5": "g", "root": "fs" }).get_i32("code").unwrap(),
        14
    );
    client.ok("db", doc! { "delete": "fs.chunks", "deletes": [{ "q": { "n": 0, "files_id": "f" }, "limit": 1 }] });
    assert_eq!(
        client.run("db", doc! { "filemd5": "f", "root": "fs" }).get_i32("code").unwrap(),
        10040
    );
}

#[test]
fn what_there_is_none_of_is_said_to_be_none() {
    let client = Client::new();
    client.ok("db", doc! { "planCacheClear": "c", "query": { "a": 1 } });
    client.ok("db", doc! { "planCacheClearFilters": "c" });
    let filters = client.ok("db", doc! { "planCacheListFilters": "c" });
    assert_eq!(filters.get_array("filters").unwrap(), &Vec::<Bson>::new());
    let pools = client.ok("admin", doc! { "connPoolStats": 1 });
    assert_eq!(pools.get_i32("totalCreated").unwrap(), 0);
    client.ok("admin", doc! { "dropConnections": 1, "hostAndPort": ["a:1"] });
    client.fails("admin", doc! { "fsyncUnlock": 1 }, 20, "fsyncUnlock called when not locked");
}

#[test]
fn nobody_can_log_in_where_there_are_no_users() {
    let client = Client::new();
    let start = |mechanism: &str| doc! { "saslStart": 1, "mechanism": mechanism, "payload": "" };
    client.fails("admin", start("SCRAM-SHA-256"), 18, "Authentication failed.");
    let unknown = client.run("admin", start("PLAIN"));
    assert_eq!(unknown.get_str("codeName").unwrap(), "MechanismUnavailable");
    client.fails(
        "admin",
        doc! { "saslContinue": 1, "conversationId": 1, "payload": "" },
        17,
        "No SASL session state found",
    );
    client.ok("admin", doc! { "logout": 1 });
}

#[test]
fn index_filters_are_set_listed_and_cleared() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "c", "documents": [{ "a": 1, "b": 1 }] });
    let indexes = ["a", "b"].map(|path| doc! { "key": { path: 1 }, "name": path });
    client.ok("db", doc! { "createIndexes": "c", "indexes": indexes.to_vec() });
    let find = |value: i32| doc! { "find": "c", "filter": { "a": value, "b": value } };
    let used = || {
        let explained = client.ok("db", doc! { "explain": find(2), "verbosity": "queryPlanner" });
        let planner = explained.get_document("queryPlanner").unwrap();
        let plan = planner.get_document("winningPlan").unwrap();
        let scan = plan.get_document("inputStage").unwrap();
        (scan.get_str("indexName").unwrap().to_owned(), planner.get_bool("indexFilterSet").unwrap())
    };
    let query = doc! { "a": 5, "b": 5 };
    client.fails(
        "db",
        doc! { "planCacheSetFilter": "c", "query": query.clone(), "indexes": [] },
        2,
        "required field indexes must contain at least one index",
    );
    let set = doc! { "planCacheSetFilter": "c", "query": query.clone(), "indexes": ["b"] };
    client.ok("db", set);
    assert_eq!(used(), ("b".to_owned(), true));
    let listed = client.ok("db", doc! { "planCacheListFilters": "c" });
    let shown = doc! { "query": query.clone(), "sort": {}, "projection": {}, "indexes": ["b"] };
    assert_eq!(listed.get_array("filters").unwrap(), &vec![Bson::Document(shown)]);
    client.ok("db", doc! { "planCacheClearFilters": "c", "query": query });
    assert!(!used().1);
    // What is remembered is shown, and forgotten when it is asked.
    let stats = || {
        let pipeline = [doc! { "$planCacheStats": {} }].to_vec();
        let reply = client.ok("db", doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} });
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
    };
    client.ok("db", find(1));
    assert_eq!(stats(), 1);
    client.ok("db", doc! { "planCacheClear": "c", "query": { "a": 9, "b": 9 } });
    assert_eq!(stats(), 0);
}

#[test]
fn the_feature_version_is_confirmed_or_refused() {
    let client = Client::new();
    let set = |version: &str, confirm: bool| {
        let set = doc! { "setFeatureCompatibilityVersion": version, "confirm": confirm };
        client.run("admin", set).get_i32("code").ok()
    };
    assert_eq!(set("8.0", true), None);
    assert_eq!(set("8.0", false), Some(7_369_100));
    assert_eq!(set("6.0", true), Some(4_926_900));
}

#[test]
fn search_indexes_belong_to_atlas() {
    let client = Client::new();
    client.ok("db", doc! { "create": "c" });
    for command in [
        doc! { "createSearchIndexes": "c", "indexes": [] },
        doc! { "listSearchIndexes": "c" },
        doc! { "dropSearchIndex": "c", "name": "a" },
        doc! { "aggregate": "c", "pipeline": [{ "$listSearchIndexes": {} }], "cursor": {} },
    ] {
        let reply = client.run("db", command.clone());
        assert_eq!(reply.get_i32("code").unwrap(), 31082, "{command}");
        assert!(reply.get_str("errmsg").unwrap().contains("Atlas"), "{command}");
    }
}
