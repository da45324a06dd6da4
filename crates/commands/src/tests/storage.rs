//! The storage shape from the outside: asked for, defaulted, changed, shown.

use super::Client;
use bson::{Document, doc};

/// `indexDetails` of one index.
fn details(client: &Client, collection: &str, index: &str) -> Document {
    let stats = client.ok("db", doc! { "collStats": collection });
    let all = stats.get_array("indexDetails").unwrap().clone();
    let mut all = all.into_iter().map(|one| one.as_document().unwrap().clone());
    all.find(|one| one.get_str("name").ok() == Some(index)).unwrap()
}

fn shape(client: &Client, collection: &str, index: &str) -> (String, i64, i64, i64) {
    let found = details(client, collection, index);
    let number = |name: &str| i64::from(found.get_i32(name).unwrap());
    let compression = found.get_str("compression").unwrap().to_owned();
    (compression, number("pageSize"), number("readPageSize"), number("fanout"))
}

fn index(name: &str, options: Document) -> Document {
    let mut index = doc! { "key": { name: 1 }, "name": name };
    index.extend(options);
    index
}

#[test]
fn shape_is_taken_from_the_index_then_the_collection_then_the_server() {
    let client = Client::new();
    let was = client.ok("admin", doc! { "setParameter": 1, "defaultCompression": "zlib" });
    assert_eq!(was, doc! { "was": "zstd", "ok": 1.0 });
    let was = client.ok("admin", doc! { "setParameter": 1, "defaultPageSize": "2MB" });
    assert_eq!(was, doc! { "was": 1048576_i64, "ok": 1.0 });
    client.ok("db", doc! { "create": "c", "fanout": 16, "pageSize": "512k" });
    let a = index("a", doc! { "compression": "lz4" });
    client.ok("db", doc! { "createIndexes": "c", "indexes": [a, index("b", doc! {})] });
    assert_eq!(shape(&client, "c", "_id_"), ("zlib".into(), 512 << 10, 16 << 10, 16));
    assert_eq!(shape(&client, "c", "a"), ("lz4".into(), 512 << 10, 16 << 10, 16));
    assert_eq!(shape(&client, "c", "b"), ("zlib".into(), 512 << 10, 16 << 10, 16));
    client.ok("db", doc! { "insert": "d", "documents": [{ "_id": 1 }] });
    assert_eq!(shape(&client, "d", "_id_"), ("zlib".into(), 2 << 20, 16 << 10, 64));
    let all = client.ok("admin", doc! { "getParameter": "*" });
    assert_eq!(all.get_str("defaultCompression").ok(), Some("zlib"));
    assert_eq!(all.get_i32("defaultFanout").ok(), Some(64));
}

#[test]
fn defaults_are_refused_as_options_are() {
    let client = Client::new();
    for (name, value, code) in [
        ("defaultCompression", "best", 16442),
        ("defaultPageSize", "none", 2),
        ("defaultFanout", "3", 17288),
    ] {
        let reply = client.run("admin", doc! { "setParameter": 1, name: value });
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{name}");
    }
}

#[test]
fn stand_ins_for_other_compressors_are_said() {
    let client = Client::new();
    let reply = client.ok("db", doc! { "create": "c", "compression": "quicklz" });
    assert_eq!(reply.get_str("note").ok(), Some("compression 'quicklz' is carried out by lz4"));
    let lzma = index("a", doc! { "compression": "lzma" });
    let reply = client.ok("db", doc! { "createIndexes": "c", "indexes": [lzma] });
    assert!(reply.get_str("note").unwrap().contains("zstd at level 19"));
    assert_eq!(shape(&client, "c", "a").0, "zstd:19");
    let plain = client.ok("db", doc! { "create": "d", "compression": "none" });
    assert_eq!(plain, doc! { "ok": 1.0 });
    assert_eq!(shape(&client, "d", "_id_").0, "uncompressed");
}

#[test]
fn mongodbs_own_storage_options_are_honoured() {
    let client = Client::new();
    let engine = |text: &str| doc! { "wiredTiger": { "configString": text } };
    client.ok(
        "db",
        doc! {
            "create": "c",
            "storageEngine": engine("block_compressor=zlib"),
            "indexOptionDefaults": { "storageEngine": engine("block_compressor=snappy") },
        },
    );
    let own = index("b", doc! { "storageEngine": engine("block_compressor=none") });
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index("a", doc! {}), own] });
    let compression = |index| shape(&client, "c", index).0;
    assert_eq!(
        [compression("_id_"), compression("a"), compression("b")],
        ["zlib", "lz4", "uncompressed"]
    );
    let refused = client.run("db", doc! { "create": "d", "storageEngine": { "mmapv1": {} } });
    assert_eq!(refused.get_i32("code").ok(), Some(72));
}

#[test]
fn coll_mod_changes_what_is_written_from_now_on() {
    let client = Client::new();
    client.ok("db", doc! { "create": "c", "compression": "lz4" });
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index("a", doc! {})] });
    client.ok("db", doc! { "collMod": "c", "compression": "zlib", "readPageSize": "64k" });
    assert_eq!(shape(&client, "c", "_id_"), ("zlib".into(), 1 << 20, 64 << 10, 64));
    assert_eq!(shape(&client, "c", "a").0, "lz4");
    client.ok("db", doc! { "collMod": "c", "index": { "name": "a", "compression": "none" } });
    assert_eq!(shape(&client, "c", "a").0, "uncompressed");
    let list = client.ok("db", doc! { "listCollections": 1 });
    let first = &list.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0];
    let options = first.as_document().unwrap().get_document("options").unwrap();
    assert_eq!(options, &doc! { "compression": "zlib", "readPageSize": "64k" });
    let refused = client.run("db", doc! { "collMod": "c", "compression": "best" });
    assert_eq!(refused.get_i32("code").ok(), Some(16442));
}

#[test]
fn index_details_count_uses_and_entries() {
    let client = Client::new();
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index("a", doc! {})] });
    let documents: Vec<_> = (0..10).map(|n| doc! { "_id": n, "a": [n, n + 100] }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client.ok("db", doc! { "delete": "c", "deletes": [{ "q": { "_id": 3 }, "limit": 1 }] });
    client.ok("db", doc! { "find": "c", "filter": { "a": { "$gte": 105 } } });
    let a = details(&client, "c", "a");
    let read = |from: &Document, name: &str| from.get_i32(name).unwrap();
    assert_eq!([read(&a, "inserts"), read(&a, "deletes")], [20, 2]);
    assert_eq!([read(&a, "queries"), read(&a, "nscanned"), read(&a, "nscannedObjects")], [1, 5, 5]);
    let id = details(&client, "c", "_id_");
    assert_eq!([read(&id, "count"), read(&id, "inserts"), read(&id, "deletes")], [9, 10, 1]);
    assert!(id.get_f64("avgObjSize").unwrap() > 20.0 && read(&id, "size") > 180);
}

#[test]
fn re_index_rewrites_what_is_stored_in_another_shape() {
    let client = Client::new();
    client.ok("db", doc! { "create": "c", "compression": "none", "pageSize": "64k" });
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index("a", doc! {})] });
    for batch in 0..10 {
        let documents: Vec<_> = (0..500)
            .map(|n| doc! { "_id": batch * 500 + n, "a": format!("{:08}", n % 7), "b": "long ".repeat(40) })
            .collect();
        client.ok("db", doc! { "insert": "c", "documents": documents });
    }
    client.ok("admin", doc! { "checkpoint": 1 });
    let tidy = client.ok("db", doc! { "reIndex": "c" });
    assert!(!tidy.contains_key("was"), "{tidy}");
    assert_eq!(tidy.get_i32("nIndexes").ok(), Some(2));
    let size = |index| details(&client, "c", index).get_i32("storageSize").unwrap();
    let (before, index_before) = (size("_id_"), size("a"));
    let command = doc! { "reIndex": "c", "index": "_id_", "options": { "compression": "zlib" } };
    let reply = client.ok("db", command);
    let was = doc! { "pageSize": 65536, "readPageSize": 16384, "fanout": 64, "compression": "uncompressed" };
    assert_eq!(reply.get_document("was").unwrap(), &was);
    assert!(size("_id_") * 4 < before, "{} of {before}", size("_id_"));
    assert_eq!(size("a"), index_before);
    let options = doc! { "compression": "quicklz", "pageSize": "1MB" };
    let reply = client.ok("db", doc! { "reIndex": "c", "options": options });
    let was = reply.get_document("was").unwrap();
    assert_eq!(was.get_document("_id_").unwrap().get_str("compression").ok(), Some("zlib"));
    assert_eq!(was.get_document("a").unwrap().get_str("compression").ok(), Some("uncompressed"));
    assert!(reply.get_str("note").unwrap().contains("lz4"));
    assert!(size("a") < index_before);
    assert_eq!(shape(&client, "c", "a"), ("lz4".into(), 1 << 20, 16 << 10, 64));
    let valid = client.ok("db", doc! { "validate": "c" });
    assert_eq!(valid.get_bool("valid").ok(), Some(true), "{valid}");
    assert_eq!(valid.get_i64("nrecords").ok(), Some(5000));
}

#[test]
fn re_index_refuses_what_it_cannot_do() {
    let client = Client::new();
    client.ok("db", doc! { "create": "c" });
    client.ok("db", doc! { "create": "v", "viewOn": "c" });
    for (command, code) in [
        (doc! { "reIndex": "c", "options": { "colour": "red" } }, 17234),
        (doc! { "reIndex": "c", "options": { "compression": "best" } }, 16442),
        (doc! { "reIndex": "c", "index": "x" }, 27),
        (doc! { "reIndex": "c", "index": 1 }, 14),
        (doc! { "reIndex": "none" }, 26),
        (doc! { "reIndex": "v" }, 166),
        (doc! { "reIndex": "c", "how": 1 }, 40415),
    ] {
        let reply = client.run("db", command.clone());
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{command}: {reply}");
    }
}

/// As a dump of TokuMX tells of it.
#[test]
fn the_index_on_id_is_described_as_its_collection() {
    let client = Client::new();
    let of_id = |options: Document| {
        let mut index = doc! { "key": { "_id": 1 }, "name": "_id_", "unique": true };
        index.extend(options);
        index
    };
    let code = |command: Document| client.run("db", command).get_i32("code").unwrap_or(0);
    let create = |name: &str, options: Document, index: Document| {
        let mut create = doc! { "create": name, "idIndex": of_id(index) };
        create.extend(options);
        code(create)
    };
    let zlib = || doc! { "compression": "zlib", "pageSize": "64k" };
    // What the collection does not say itself is taken.
    assert_eq!(create("c", doc! {}, zlib()), 0);
    assert_eq!(shape(&client, "c", "_id_"), ("zlib".into(), 64 << 10, 16 << 10, 64));
    assert_eq!(
        code(doc! { "create": "c", "compression": "zlib", "pageSize": "64k" }),
        0,
        "the same"
    );
    assert_eq!(create("d", zlib(), doc! { "clustering": true, "compression": "zlib" }), 0);
    assert_eq!(create("e", zlib(), doc! { "compression": "lz4" }), 197);
    let keyed = || doc! { "primaryKey": { "a": 1, "_id": 1 }, "compression": "zlib" };
    assert_eq!(create("k", keyed(), doc! { "clustering": true }), 197);
    assert_eq!(create("k", keyed(), doc! { "pageSize": "64k" }), 197);
    assert_eq!(create("k", keyed(), doc! { "compression": "zlib" }), 0);
    let again =
        |name: &str, index: Document| code(doc! { "createIndexes": name, "indexes": [index] });
    assert_eq!(again("c", of_id(zlib())), 0);
    assert_eq!(again("c", of_id(doc! { "clustering": true })), 0);
    assert_eq!(again("c", of_id(doc! { "compression": "lz4" })), 85);
    assert_eq!(again("k", of_id(doc! { "clustering": true })), 85);
    let primary = |options: Document| {
        let mut index = doc! {
            "key": { "a": 1, "_id": 1 }, "name": "primaryKey", "unique": true, "clustering": true,
        };
        index.extend(options);
        index
    };
    assert_eq!(again("k", primary(doc! { "compression": "zlib" })), 0);
    assert_eq!(again("k", primary(doc! { "compression": "lz4" })), 85);
}

#[test]
fn who_asks_for_drop_dups_is_told_that_none_are_dropped() {
    let client = Client::new();
    for (value, notes) in [(bson::Bson::from(true), true), (0.into(), false), (false.into(), false)]
    {
        client.run("db", doc! { "drop": "c" });
        let asked = index("a", doc! { "dropDups": value });
        let reply = client.ok("db", doc! { "createIndexes": "c", "indexes": [asked] });
        assert_eq!(reply.contains_key("note"), notes, "{reply}");
    }
}

#[test]
fn plain_indexes_are_counted_whatever_waits_in_their_buffers() {
    let client = Client::new();
    let documents: Vec<_> = (0..100).map(|id| doc! { "_id": id, "a": id }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index("a", doc! {}), index("b", doc! { "sparse": true })] });
    for step in [1, 1000] {
        let change = doc! { "q": {}, "u": { "$inc": { "a": step } }, "multi": true };
        client.ok("db", doc! { "update": "c", "updates": [change] });
    }
    client.ok(
        "db",
        doc! { "delete": "c", "deletes": [{ "q": { "_id": { "$lt": 10 } }, "limit": 0 }] },
    );
    let found = details(&client, "c", "a");
    assert_eq!(found.get_i32("count").unwrap(), 90, "{found}");
    assert!(
        found.get_i32("size").unwrap() > 0 && found.get_f64("avgObjSize").unwrap() > 1.0,
        "{found}"
    );
    let stats = client.ok("db", doc! { "collStats": "c" });
    let number = |name: &str| stats.get_i32(name).unwrap();
    assert_eq!((number("nindexes"), number("nindexesbeingbuilt")), (3, 3));
}
