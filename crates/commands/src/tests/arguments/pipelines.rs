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

#[test]
fn rank_fusion_reads_its_pipelines_and_weights() {
    let fusion = |spec: Bson, code| over(bson!([{ "$rankFusion": spec }]), code);
    let input =
        |pipelines: Bson, code| fusion(bson!({ "input": { "pipelines": pipelines } }), code);
    let one = |stages: Bson, code| input(bson!({ "p": stages }), code);
    let sort = bson!([{ "$sort": { "a": -1 } }]);
    let after = |stage: Document, code| one(bson!([{ "$sort": { "a": -1 } }, stage]), code);
    let with = |extra: Document, code| {
        let mut spec = doc! { "input": { "pipelines": { "p": sort.clone() } } };
        spec.extend(extra);
        fusion(Bson::Document(spec), code)
    };
    let weight = |name: &str, weight: Bson, code| {
        with(doc! { "combination": { "weights": { name: weight } } }, code)
    };
    let nested = bson!({ "input": { "pipelines": { "q": [{ "$sort": { "a": -1 } }] } } });
    let near = doc! { "near": { "type": "Point", "coordinates": [0, 0] }, "distanceField": "d" };
    let long = Bson::Array(
        std::iter::once(bson!({ "$sort": { "a": -1 } }))
            .chain((0..1000).map(|_| bson!({ "$skip": 0 })))
            .collect(),
    );
    check(
        &[],
        vec![
            fusion(bson!(5), 9),
            fusion(Bson::Null, 9),
            fusion(bson!({}), 40414),
            fusion(bson!({ "input": null }), 40414),
            fusion(bson!({ "input": {} }), 40414),
            fusion(bson!({ "input": { "Pipelines": {} } }), 40415),
            input(Bson::Null, 40414),
            input(bson!({}), 2),
            input(bson!({ "": sort.clone() }), 15998),
            input(bson!({ "$foo": sort.clone() }), 16410),
            input(bson!({ "a.b": sort.clone() }), 16412),
            one(sort.clone(), 0),
            one(bson!(5), 14),
            one(bson!([]), 9_834_300),
            one(bson!([{ "$match": { "a": 1 } }]), 9_191_100),
            one(bson!([{ "$sample": { "size": 1 } }]), 9_191_100),
            one(bson!([{ "$sort": {} }]), 15976),
            one(bson!([{ "$rankFusion": nested.clone() }]), 10_473_002),
            one(long, 7_749_501),
            after(doc! { "$limit": 0 }, 15958),
            after(doc! { "$project": { "a": 1 } }, 9_191_103),
            after(doc! { "$lookup": { "from": "c", "as": "x" } }, 9_191_103),
            after(doc! { "$out": "o" }, 9_191_103),
            after(doc! { "$geoNear": near }, 9_191_103),
            after(doc! { "$rankFusion": nested.clone() }, 10_170_100),
            after(doc! { "notAStage": 1 }, 40324),
            after(doc! {}, 40323),
            after(doc! { "$match": { "a": 1 }, "$limit": 1 }, 40323),
            with(doc! { "bogus": 1 }, 40415),
            with(doc! { "combination": {} }, 40414),
            with(doc! { "combination": { "weights": Bson::Null } }, 40414),
            with(doc! { "combination": { "weights": {}, "method": 1 } }, 40415),
            with(doc! { "combination": 5 }, 14),
            with(doc! { "combination": Bson::Null, "scoreDetails": Bson::Null }, 0),
            with(doc! { "scoreDetails": 1 }, 14),
            weight("p", Bson::Int32(0), 0),
            weight("p", Bson::Double(f64::INFINITY), 0),
            weight("p", bson!("x"), 13118),
            weight("p", Bson::Boolean(true), 13118),
            weight("p", Bson::Null, 13118),
            weight("p", Bson::Int32(-1), 9_460_300),
            weight("p", decimal("NaN"), 9_460_300),
            weight("P", Bson::Int32(1), 9_967_500),
            with(doc! { "combination": { "weights": { "p": 1, "q": 1 } } }, 9_460_301),
            over(bson!([{ "$match": {} }, { "$rankFusion": nested.clone() }]), 10_170_100),
            (doc! { "aggregate": 1, "pipeline": [{ "$rankFusion": nested }], "cursor": {} }, 73),
            over(bson!([{ "$project": { "s": { "$meta": "score" } } }]), 40218),
        ],
    );
    let series = [doc! { "create": "c", "timeseries": { "timeField": "t" } }];
    check(&series, vec![one(bson!([{ "$sort": { "a": -1 } }]), 10_557_301)]);
}

#[test]
fn rank_fusion_adds_what_the_ranks_are_worth() {
    let client = Client::new();
    let documents = vec![
        doc! { "_id": 1, "a": 30, "b": 10 },
        doc! { "_id": 2, "a": 20, "b": 30 },
        doc! { "_id": 3, "a": 10, "b": 20 },
    ];
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client.ok(
        "db",
        doc! { "create": "v", "viewOn": "c", "pipeline": [{ "$match": { "a": { "$gt": 10 } } }] },
    );
    let run = |collection: &str, pipeline: Bson| {
        let command = doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} };
        let reply = client.ok("db", command);
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.iter().map(|one| one.as_document().unwrap().clone()).collect::<Vec<_>>()
    };
    let both = bson!({ "p": [{ "$sort": { "a": -1 } }], "q": [{ "$sort": { "b": -1 } }] });
    let score = |ranks: &[(f64, f64)]| -> f64 {
        ranks.iter().map(|(weight, rank)| weight / (60.0 + rank)).fold(0.0, |sum, part| sum + part)
    };
    let fused = run(
        "c",
        bson!([
            { "$rankFusion": { "input": { "pipelines": both.clone() }, "scoreDetails": true } },
            { "$project": { "s": { "$meta": "score" }, "d": { "$meta": "scoreDetails" } } },
        ]),
    );
    let ids: Vec<i32> = fused.iter().map(|one| one.get_i32("_id").unwrap()).collect();
    assert_eq!(ids, [2, 1, 3]);
    assert_eq!(fused[0].get_f64("s").ok(), Some(score(&[(1.0, 2.0), (1.0, 1.0)])));
    let details = fused[0].get_document("d").unwrap();
    assert_eq!(details.get_f64("value").ok(), fused[0].get_f64("s").ok());
    let parts = details.get_array("details").unwrap();
    let part = doc! { "inputPipelineName": "p", "rank": 2, "weight": 1.0, "details": [] };
    assert_eq!(parts[0].as_document().unwrap(), &part);

    // Whole documents come without their score, also where they are gathered.
    let plain = run(
        "c",
        bson!([
            { "$rankFusion": { "input": { "pipelines": both.clone() }, "scoreDetails": true } },
            { "$group": { "_id": null, "all": { "$push": "$$ROOT" } } },
        ]),
    );
    let all = plain[0].get_array("all").unwrap();
    assert_eq!(all[0].as_document().unwrap(), &doc! { "_id": 2, "a": 20, "b": 30 });
    let whole = run("c", bson!([{ "$rankFusion": { "input": { "pipelines": both.clone() } } }]));
    assert_eq!(whole[0], doc! { "_id": 2, "a": 20, "b": 30 });

    let weighed = run(
        "c",
        bson!([
            { "$rankFusion": { "input": { "pipelines": both.clone() },
                "combination": { "weights": { "p": 2 } } } },
            { "$project": { "s": { "$meta": "score" } } },
        ]),
    );
    assert_eq!(weighed[0].get_i32("_id").ok(), Some(1));
    assert_eq!(weighed[0].get_f64("s").ok(), Some(score(&[(2.0, 1.0), (1.0, 3.0)])));

    // Equal keys have one rank, and equal scores come by their ids.
    client.ok(
        "db",
        doc! { "insert": "t", "documents": [
            { "_id": "c", "a": 1 }, { "_id": "a", "a": 1 }, { "_id": "b", "a": 0 },
        ] },
    );
    let ties = run(
        "t",
        bson!([
            { "$rankFusion": { "input": { "pipelines": { "p": [{ "$sort": { "a": -1 } }] } } } },
            { "$project": { "s": { "$meta": "score" } } },
        ]),
    );
    let ids: Vec<&str> = ties.iter().map(|one| one.get_str("_id").unwrap()).collect();
    assert_eq!(ids, ["a", "c", "b"]);
    assert_eq!(ties[1].get_f64("s").ok(), Some(score(&[(1.0, 1.0)])));
    assert_eq!(ties[2].get_f64("s").ok(), Some(score(&[(1.0, 3.0)])));

    // A document that a pipeline did not find has no rank there; views are looked through.
    let view = run(
        "v",
        bson!([
            { "$rankFusion": { "scoreDetails": true, "input": { "pipelines": {
                "p": [{ "$match": { "_id": 1 } }, { "$sort": { "a": 1 } }],
                "q": [{ "$sort": { "b": 1 } }],
            } } } },
            { "$project": { "d": { "$meta": "scoreDetails" } } },
        ]),
    );
    assert_eq!(view.len(), 2);
    let parts = view[1].get_document("d").unwrap().get_array("details").unwrap();
    assert_eq!(parts[0].as_document().unwrap(), &doc! { "inputPipelineName": "p", "rank": "NA" });
    client.ok(
        "db",
        doc! { "aggregate": "c", "cursor": {}, "pipeline": [
            { "$rankFusion": { "input": { "pipelines": both } } }, { "$out": "kept" },
        ] },
    );
    let kept = run("kept", bson!([{ "$sort": { "_id": 1 } }]));
    assert_eq!(kept[0], doc! { "_id": 1, "a": 30, "b": 10 });
    let explain = doc! { "explain": { "aggregate": "c", "cursor": {}, "pipeline": [
        { "$rankFusion": { "input": { "pipelines": { "p": [{ "$sort": { "a": 1 } }] } } } },
    ] } };
    assert!(client.ok("db", explain).contains_key("stages"));
}
