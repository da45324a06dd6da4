//! Stages whose arguments the command checks.

use super::*;
use bson::bson;

/// A pipeline over `c`, and the code it answers.
pub(super) fn over(pipeline: Bson, code: i32) -> (Document, i32) {
    (doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} }, code)
}

#[test]
fn the_server_is_asked_of_a_database() {
    check(
        &[],
        vec![
            over(bson!([{ "$documents": [{ "a": 1 }] }]), 73),
            over(bson!([{ "$currentOp": {} }]), 73),
            over(bson!([{ "$listLocalSessions": {} }]), 73),
        ],
    );
}

#[test]
fn merge_reads_its_target_and_modes() {
    let merge = |spec: Bson, code| over(bson!([{ "$merge": spec }]), code);
    let into = |into: Bson, code| merge(bson!({ "into": into }), code);
    let on = |on: Bson, code| merge(bson!({ "into": "t", "on": on }), code);
    let modes = |matched: Bson, not: Bson, code| {
        merge(bson!({ "into": "t", "whenMatched": matched, "whenNotMatched": not }), code)
    };
    check(
        &[],
        vec![
            merge(bson!("t"), 0),
            merge(bson!(""), 73),
            merge(bson!({}), 40414),
            merge(bson!({ "into": "t", "other": 1 }), 40415),
            into(bson!(""), 5_786_800),
            into(bson!(5), 51178),
            into(bson!("system.test"), 31319),
            into(bson!({ "coll": null }), 5_786_801),
            into(bson!({ "coll": 5 }), 14),
            into(bson!({ "db": 5, "coll": "t" }), 14),
            into(bson!({ "db": null, "coll": "t" }), 0),
            into(bson!({ "coll": "t", "x": 1 }), 40415),
            into(bson!({ "db": "admin", "coll": "t" }), 31320),
            into(bson!({ "db": "local", "coll": "t" }), 31320),
            on(Bson::Null, 51186),
            on(bson!(5), 51186),
            on(bson!([5]), 51134),
            on(bson!(["valid", null]), 51134),
            on(bson!([]), 51187),
            on(bson!(""), 40352),
            on(bson!("$field"), 16410),
            on(bson!("field."), 40353),
            on(bson!([".field"]), 15998),
            on(bson!("a..b"), 15998),
            on(bson!("a\0b"), 16411),
            on(bson!(["_id", "_id"]), 31465),
            on(bson!("other"), 51183),
            modes(bson!("keepExisting"), bson!("discard"), 51181),
            modes(bson!("keepExisting"), bson!("fail"), 51181),
            modes(bson!("fail"), bson!("discard"), 51181),
            modes(bson!("fail"), bson!("fail"), 51181),
            modes(bson!("fail"), bson!("insert"), 0),
            modes(bson!([{ "$set": { "a": 1 } }]), bson!("discard"), 0),
            modes(bson!("other"), bson!("insert"), 2),
            modes(bson!("merge"), bson!("other"), 2),
            modes(bson!(5), bson!("insert"), 51191),
            modes(bson!("merge"), bson!(5), 14),
            modes(bson!("merge"), Bson::Null, 0),
            merge(bson!({ "into": "t", "let": 5 }), 14),
            merge(bson!({ "into": "t", "let": { "a": 1 } }), 51199),
            merge(bson!({ "into": "t", "whenMatched": [], "let": { "new": 1 } }), 51273),
        ],
    );
}

#[test]
fn out_reads_its_target() {
    let out = |spec: Bson, code| over(bson!([{ "$out": spec }]), code);
    let setup = [
        doc! { "create": "capped", "capped": true, "size": 4096 },
        doc! { "create": "view", "viewOn": "c" },
    ];
    check(
        &setup,
        vec![
            out(bson!("t"), 0),
            out(bson!(""), 73),
            out(bson!(5), 16990),
            out(bson!({ "db": 5, "coll": "t" }), 14),
            out(bson!({ "db": "db", "coll": 5 }), 14),
            out(bson!({ "db": "db" }), 40414),
            out(bson!({ "db": "db", "coll": "t", "x": 1 }), 40415),
            out(bson!({ "db": "admin", "coll": "t" }), 31321),
            out(bson!({ "db": "config", "coll": "t" }), 31321),
            out(bson!("system.x"), 17385),
            out(bson!("capped"), 17152),
            out(bson!("view"), 166),
            over(bson!([{ "$out": "t" }, { "$match": {} }]), 40601),
            over(bson!([{ "$facet": { "a": [{ "$out": "t" }] } }]), 40600),
        ],
    );
}

#[test]
fn stages_that_tell_of_the_server_check_their_arguments_and_place() {
    let on = |database: Bson, pipeline: Bson, code| {
        (doc! { "aggregate": database, "pipeline": pipeline, "cursor": {} }, code)
    };
    let list = |spec: Bson, code| on(bson!(1), bson!([{ "$listClusterCatalog": spec }]), code);
    check(
        &[],
        vec![
            list(bson!({}), 0),
            list(bson!({ "shards": true, "balancingConfiguration": false }), 0),
            list(bson!({ "shards": null }), 14),
            list(bson!({ "balancingConfiguration": 1 }), 14),
            list(bson!({ "Shards": true }), 40415),
            list(bson!(5), 9_621_302),
            list(Bson::Null, 9_621_302),
            on(bson!("c"), bson!([{ "$listClusterCatalog": {} }]), 9_621_301),
            on(bson!(1), bson!([{ "$match": {} }, { "$listClusterCatalog": {} }]), 73),
            on(
                bson!(1),
                bson!([{ "$listClusterCatalog": {} }, { "$listClusterCatalog": {} }]),
                40602,
            ),
            on(bson!("c"), bson!([{ "$listCatalog": {} }]), 0),
            on(bson!("c"), bson!([{ "$listCatalog": { "x": 1 } }]), 6_200_600),
            on(bson!(1), bson!([{ "$listCatalog": {} }]), 73),
            on(bson!(1), bson!([{ "$queryStats": {} }]), 73),
            on(bson!(1), bson!([{ "$querySettings": {} }]), 73),
        ],
    );
    let client = Client::new();
    let admin = |stage: Document| {
        code(&client, "admin", doc! { "aggregate": 1, "pipeline": [stage], "cursor": {} })
    };
    let stats = |spec: Bson| admin(doc! { "$queryStats": spec });
    let transform = |algorithm: Bson, key: Bson| {
        stats(bson!({ "transformIdentifiers": { "algorithm": algorithm, "hmacKey": key } }))
    };
    let key = Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![1; 32] });
    assert_eq!(stats(bson!({})), 0);
    assert_eq!(transform(bson!("hmac-sha-256"), key.clone()), 0);
    assert_eq!(transform(bson!("other"), key), 2);
    assert_eq!(transform(bson!("hmac-sha-256"), bson!(5)), 14);
    assert_eq!(stats(bson!({ "x": 1 })), 40415);
    assert_eq!(stats(bson!(5)), 9);
    assert_eq!(admin(doc! { "$querySettings": {} }), 0);
    assert_eq!(admin(doc! { "$querySettings": 5 }), 7_746_800);
    assert_eq!(admin(doc! { "$querySettings": { "x": 1 } }), 40415);
}

#[test]
fn the_cluster_catalog_lists_what_list_collections_does() {
    let client = Client::new();
    client.ok("db", doc! { "create": "c", "capped": true, "size": 4096 });
    client.ok("db", doc! { "create": "v", "viewOn": "c" });
    client.ok("other", doc! { "create": "d" });
    let run = |database: &str, stage: Document| {
        let command = doc! { "aggregate": 1, "pipeline": [stage, { "$sort": { "ns": 1 } }],
        "cursor": {} };
        let reply = client.ok(database, command);
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.iter().map(|one| one.as_document().unwrap().clone()).collect::<Vec<_>>()
    };
    let list = run("db", doc! { "$listClusterCatalog": { "shards": true } });
    assert_eq!(list.len(), 2);
    assert_eq!(list[0].get_str("ns").ok(), Some("db.c"));
    assert_eq!(list[0].get_str("type").ok(), Some("collection"));
    assert_eq!(list[0].get_document("options").unwrap(), &doc! { "capped": true, "size": 4096 });
    assert_eq!(list[0].get_bool("sharded").ok(), Some(false));
    assert!(list[0].get_array("shards").unwrap().is_empty());
    assert_eq!(list[1].get_str("type").ok(), Some("view"));
    assert!(!list[1].contains_key("idIndex"));
    assert_eq!(run("none", doc! { "$listClusterCatalog": {} }).len(), 0);
    assert_eq!(run("admin", doc! { "$listClusterCatalog": {} }).len(), 3);
    let catalog = run("admin", doc! { "$listCatalog": {} });
    assert_eq!(catalog.len(), 3);
    let indexes = catalog[0].get_document("md").unwrap().get_array("indexes").unwrap();
    assert_eq!(indexes.len(), 1);
}

#[test]
fn explain_tells_the_hash_of_a_querys_shape() {
    let client = Client::new();
    let hash = |command: Document| {
        let reply = client.ok("db", doc! { "explain": command });
        reply.get_str("queryShapeHash").ok().map(str::to_owned)
    };
    let first = hash(doc! { "find": "c", "filter": { "a": 1 } });
    assert_eq!(first.as_ref().map(String::len), Some(64));
    assert_eq!(hash(doc! { "find": "c", "filter": { "a": 2 } }), first);
    assert_ne!(hash(doc! { "find": "d", "filter": { "a": 2 } }), first);
    assert!(hash(doc! { "aggregate": "c", "pipeline": [], "cursor": {} }).is_some());
    assert!(hash(doc! { "distinct": "c", "key": "a" }).is_some());
    assert_eq!(hash(doc! { "count": "c" }), None);
}
