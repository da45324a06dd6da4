//! `$score` and `$scoreFusion`: their arguments, what the scores are, and where they go.

use super::pipelines::over;
use super::*;
use bson::bson;

#[test]
fn score_reads_its_expression_and_how_it_is_normalized() {
    let score = |spec: Bson, code| over(bson!([{ "$score": spec }]), code);
    let with = |extra: Document, code| {
        let mut spec = doc! { "score": "$a" };
        spec.extend(extra);
        score(Bson::Document(spec), code)
    };
    let of = |expression: Bson, code| score(bson!({ "score": expression }), code);
    let setup = [doc! { "insert": "c", "documents": [{ "_id": 1, "a": 5, "s": "x" }] }];
    check(
        &setup,
        vec![
            score(bson!(5), 9),
            score(Bson::Null, 9),
            score(bson!({}), 40414),
            score(bson!({ "scores": 1 }), 40415),
            of(bson!("$a"), 0),
            of(bson!(2.5), 0),
            of(decimal("2.5"), 0),
            of(bson!({ "$ad": [1] }), 168),
            of(bson!("$$a"), 17276),
            of(bson!("$s"), 14),
            of(bson!("$missing"), 14),
            of(Bson::Null, 14),
            of(Bson::Boolean(true), 14),
            of(bson!({ "$meta": "score" }), 40218),
            of(bson!({ "$meta": "textScore" }), 40218),
            with(doc! { "normalization": "none" }, 0),
            with(doc! { "normalization": "sigmoid" }, 0),
            with(doc! { "normalization": "minMaxScaler" }, 0),
            with(doc! { "normalization": Bson::Null }, 0),
            with(doc! { "normalization": "Sigmoid" }, 2),
            with(doc! { "normalization": 1.0 }, 14),
            with(doc! { "weight": 0 }, 0),
            with(doc! { "weight": 1_i64 }, 0),
            with(doc! { "weight": decimal("0.5") }, 0),
            with(doc! { "weight": -0.5 }, 2),
            with(doc! { "weight": 1.5 }, 2),
            with(doc! { "weight": f64::NAN }, 2),
            with(doc! { "weight": "1" }, 14),
            with(doc! { "weight": true }, 14),
            with(doc! { "scoreDetails": true }, 0),
            with(doc! { "scoreDetails": 1 }, 14),
            (doc! { "aggregate": 1, "pipeline": [{ "$score": { "score": 1 } }], "cursor": {} }, 73),
            (doc! { "find": "c", "sort": { "s": { "$meta": "score" } } }, 31138),
            over(bson!([{ "$sort": { "s": { "$meta": "score" } } }]), 40218),
            over(
                bson!([{ "$score": { "score": 1 } }, { "$sort": { "s": { "$meta": "score" } } }]),
                0,
            ),
            over(
                bson!([{ "$score": { "score": 1 } }, { "$project": { "s": { "$meta": "scoreDetails" } } }]),
                40218,
            ),
            over(
                bson!([{ "$score": { "score": 1 } }, { "$project": { "s": { "$meta": "textScore" } } }]),
                40218,
            ),
            // A document made of several has no score any more.
            over(
                bson!([{ "$score": { "score": 1 } }, { "$group": { "_id": "$a" } },
                    { "$project": { "s": { "$meta": "score" } } }]),
                40218,
            ),
            over(
                bson!([{ "$score": { "score": 1 } }, { "$lookup": { "from": "c", "as": "x",
                    "pipeline": [{ "$project": { "s": { "$meta": "score" } } }] } }]),
                40218,
            ),
        ],
    );
}

#[test]
fn score_fusion_reads_its_pipelines_and_how_they_are_combined() {
    let fusion = |spec: Bson, code| over(bson!([{ "$scoreFusion": spec }]), code);
    let input = |input: Bson, code| fusion(bson!({ "input": input }), code);
    let pipelines = |pipelines: Bson, code| {
        input(bson!({ "pipelines": pipelines, "normalization": "none" }), code)
    };
    let one = |stages: Bson, code| pipelines(bson!({ "p": stages }), code);
    let score = bson!([{ "$score": { "score": "$a" } }]);
    let after = |stage: Document, code| one(bson!([{ "$score": { "score": "$a" } }, stage]), code);
    let with = |extra: Document, code| {
        let pipelines = doc! { "p": score.clone(), "q": score.clone() };
        let mut spec = doc! { "input": { "pipelines": pipelines, "normalization": "none" } };
        spec.extend(extra);
        fusion(Bson::Document(spec), code)
    };
    let combined = |combination: Document, code| with(doc! { "combination": combination }, code);
    let by = |expression: Bson, code| {
        combined(doc! { "method": "expression", "expression": expression }, code)
    };
    let whole =
        bson!({ "input": { "pipelines": { "p": score.clone() }, "normalization": "none" } });
    let near = doc! { "near": { "type": "Point", "coordinates": [0, 0] }, "distanceField": "d" };
    let setup = [doc! { "insert": "c", "documents": [{ "_id": 1, "a": 5 }] }];
    check(
        &setup,
        vec![
            fusion(bson!(5), 9),
            fusion(bson!({}), 40414),
            fusion(bson!({ "input": Bson::Null }), 40414),
            input(bson!({}), 40414),
            input(bson!({ "pipelines": { "p": score.clone() } }), 40414),
            input(bson!({ "pipelines": { "p": score.clone() }, "normalization": "max" }), 2),
            input(bson!({ "pipelines": { "p": score.clone() }, "normalization": 1 }), 14),
            input(bson!({ "pipelines": {}, "normalization": "none", "other": 1 }), 40415),
            pipelines(bson!({}), 2),
            pipelines(bson!({ "": score.clone() }), 15998),
            pipelines(bson!({ "$foo": score.clone() }), 16410),
            pipelines(bson!({ "a.b": score.clone() }), 16412),
            one(score.clone(), 0),
            one(bson!(5), 14),
            one(bson!([]), 9_402_503),
            one(bson!([{ "$match": { "a": 1 } }]), 9_402_500),
            one(bson!([{ "$match": { "a": 1 } }, { "$sort": { "a": 1 } }]), 9_402_500),
            one(bson!([{ "$project": { "a": 1 } }]), 9_402_500),
            one(bson!([{ "$match": { "a": 1 } }, { "$score": { "score": 1 } }]), 0),
            one(bson!([{ "$search": {} }]), 31082),
            one(bson!([{ "$vectorSearch": {} }]), 31082),
            one(bson!([{ "$scoreFusion": whole.clone() }]), 10_473_003),
            after(doc! { "$scoreFusion": whole.clone() }, 10_170_100),
            after(doc! { "$project": { "a": 1 } }, 9_402_502),
            after(doc! { "$out": "o" }, 9_402_502),
            after(doc! { "$geoNear": near }, 9_402_502),
            after(doc! { "$limit": 1 }, 0),
            after(doc! { "$limit": 0 }, 15958),
            after(doc! { "notAStage": 1 }, 40324),
            after(doc! {}, 40323),
            with(doc! { "bogus": 1 }, 40415),
            with(doc! { "scoreDetails": 1 }, 14),
            with(doc! { "scoreDetails": true }, 0),
            with(doc! { "combination": 5 }, 14),
            with(doc! { "combination": Bson::Null }, 0),
            combined(doc! {}, 0),
            combined(doc! { "bogus": 1 }, 40415),
            combined(doc! { "method": "avg" }, 0),
            combined(doc! { "method": "sum" }, 2),
            combined(doc! { "method": 1 }, 14),
            combined(doc! { "method": "expression" }, 10_017_300),
            combined(doc! { "method": "avg", "expression": 1 }, 10_017_300),
            combined(doc! { "expression": 1 }, 10_017_300),
            combined(
                doc! { "method": "expression", "expression": 1, "weights": { "p": 1 } },
                10_017_301,
            ),
            combined(doc! { "weights": { "p": 2.5 } }, 0),
            combined(doc! { "weights": 1 }, 14),
            combined(doc! { "weights": { "p": "x" } }, 13118),
            combined(doc! { "weights": { "p": -1 } }, 9_460_300),
            combined(doc! { "weights": { "P": 1 } }, 9_967_500),
            combined(doc! { "weights": { "p": 1, "q": 1, "r": 1 } }, 9_460_301),
            by(bson!({ "$add": ["$$p", "$$q"] }), 0),
            by(bson!("$$r"), 17276),
            by(bson!("$a"), 0),
            by(bson!("$missing"), 14),
            by(Bson::Null, 14),
            by(bson!("$$ROOT"), 14),
            over(bson!([{ "$match": {} }, { "$scoreFusion": whole.clone() }]), 10_170_100),
            (
                doc! { "aggregate": 1, "pipeline": [{ "$scoreFusion": whole.clone() }], "cursor": {} },
                73,
            ),
            over(bson!([{ "$facet": { "f": [{ "$scoreFusion": whole.clone() }] } }]), 40600),
        ],
    );
    let series = [doc! { "create": "c", "timeseries": { "timeField": "t" } }];
    check(&series, vec![one(score.clone(), 10_557_301)]);
    // A name that no variable can have is refused where it would be one.
    let named = |combination: Document, code| {
        fusion(
            bson!({ "input": { "pipelines": { "P": score.clone() }, "normalization": "none" },
                "combination": combination }),
            code,
        )
    };
    let upper = doc! { "method": "expression", "expression": 1 };
    check(&[], vec![named(doc! {}, 0), named(upper, 9)]);
}

fn run(client: &Client, collection: &str, pipeline: Bson) -> Vec<Document> {
    let command = doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} };
    let reply = client.ok("db", command);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|one| one.as_document().unwrap().clone()).collect()
}

fn ids(documents: &[Document]) -> Vec<i32> {
    documents.iter().map(|one| one.get_i32("_id").unwrap()).collect()
}

fn scores(documents: &[Document]) -> Vec<f64> {
    documents.iter().map(|one| one.get_f64("s").unwrap()).collect()
}

fn three() -> Client {
    let client = Client::new();
    client.ok(
        "db",
        doc! { "insert": "c", "documents": [
            { "_id": 1, "a": 30, "b": 0, "text": "apple" },
            { "_id": 2, "a": 20, "b": 4, "text": "apple apple pear" },
            { "_id": 3, "a": 10, "b": 2, "text": "plum" },
        ] },
    );
    client.ok(
        "db",
        doc! { "createIndexes": "c", "indexes": [{ "key": { "text": "text" }, "name": "t" }] },
    );
    client
}

/// The score, shown as `s`.
fn shown() -> Document {
    doc! { "$project": { "s": { "$meta": "score" } } }
}

#[test]
fn a_score_is_normalized_and_weighed() {
    let client = three();
    let sorted = doc! { "$sort": { "any": { "$meta": "score" } } };
    for (spec, expected_ids, expected) in [
        (doc! { "score": "$a" }, [1, 2, 3], [30.0, 20.0, 10.0]),
        (doc! { "score": { "$add": ["$a", "$b"] }, "weight": 0.5 }, [1, 2, 3], [15.0, 12.0, 6.0]),
        (
            doc! { "score": "$b", "normalization": "minMaxScaler", "weight": 0.5 },
            [2, 3, 1],
            [0.5, 0.25, 0.0],
        ),
        (doc! { "score": 7, "normalization": "minMaxScaler" }, [1, 2, 3], [0.0, 0.0, 0.0]),
        (
            doc! { "score": "$b", "normalization": "sigmoid" },
            [2, 3, 1],
            [4.0, 2.0, 0.0].map(|x: f64| 1.0 / (1.0 + (-x).exp())),
        ),
        (
            doc! { "score": { "$cond": ["$b", { "$ln": "$b" }, f64::NAN] } },
            [2, 3, 1],
            [4.0_f64.ln(), 2.0_f64.ln(), f64::NAN],
        ),
    ] {
        let found = run(&client, "c", bson!([{ "$score": spec.clone() }, sorted.clone(), shown()]));
        assert_eq!(ids(&found), expected_ids, "{spec}");
        for (found, expected) in scores(&found).into_iter().zip(expected) {
            let same = Some(found) == Some(expected) || (found.is_nan() && expected.is_nan());
            assert!(same, "{spec}: {found}");
        }
    }
    // The last score counts, and may be made of the one before.
    let twice = run(
        &client,
        "c",
        bson!([
            { "$score": { "score": "$a" } },
            { "$score": { "score": { "$multiply": [{ "$meta": "score" }, 2] } } },
            shown(),
        ]),
    );
    assert_eq!(scores(&twice), [60.0, 40.0, 20.0]);
    let details = run(
        &client,
        "c",
        bson!([
            { "$match": { "_id": 2 } },
            { "$score": { "score": "$a", "normalization": "none", "weight": 0.5,
                "scoreDetails": true } },
            { "$project": { "d": { "$meta": "scoreDetails" } } },
        ]),
    );
    let mut details = details[0].get_document("d").unwrap().clone();
    assert!(details.remove("description").is_some());
    let expected = doc! { "value": 10.0, "rawScore": 20.0, "normalization": "none", "weight": 0.5,
    "expression": "\"$a\"", "details": [] };
    assert_eq!(details, expected);
}

#[test]
fn a_score_goes_with_its_document_and_no_further() {
    let client = three();
    let scored = doc! { "$score": { "score": "$a", "scoreDetails": true } };
    let whole = doc! { "_id": 1, "a": 30, "b": 0, "text": "apple" };
    assert_eq!(run(&client, "c", bson!([scored.clone()]))[0], whole);
    for stage in [
        doc! { "$set": { "x": 1 } },
        doc! { "$project": { "a": 1 } },
        doc! { "$project": { "b": 0 } },
        doc! { "$replaceWith": { "_id": "$_id" } },
        doc! { "$unwind": "$a" },
        doc! { "$redact": "$$KEEP" },
        doc! { "$match": { "a": { "$gt": 1 } } },
        doc! { "$match": { "$expr": { "$gt": [{ "$meta": "score" }, 1] } } },
        doc! { "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "n": { "$rank": {} } } } },
        doc! { "$lookup": { "from": "c", "localField": "a", "foreignField": "a", "as": "f" } },
    ] {
        let all = bson!([scored.clone(), stage.clone(), { "$sort": { "_id": 1 } },
            { "$project": { "s": { "$meta": "score" }, "d": { "$meta": "scoreDetails" } } }]);
        let found = run(&client, "c", all);
        assert_eq!(scores(&found), [30.0, 20.0, 10.0], "{stage}");
        assert_eq!(
            found[0].get_document("d").unwrap().get_f64("value").ok(),
            Some(30.0),
            "{stage}"
        );
    }
    let pushed = run(
        &client,
        "c",
        bson!([scored.clone(), { "$group": { "_id": 1, "all": { "$push": "$$ROOT" },
            "best": { "$max": { "$meta": "score" } } } }]),
    );
    assert_eq!(pushed[0].get_array("all").unwrap()[0].as_document(), Some(&whole));
    assert_eq!(pushed[0].get_f64("best").ok(), Some(30.0));
    // Into stages within, and out of a union; never out of the pipeline.
    let facet = run(
        &client,
        "c",
        bson!([scored.clone(), { "$facet": { "s": [shown(), { "$limit": 1 }], "w": [{ "$limit": 1 }],
            "own": [{ "$score": { "score": "$b" } }, { "$sort": { "s": { "$meta": "score" } } }] } }]),
    );
    assert_eq!(facet[0].get_array("s").unwrap()[0], bson!({ "_id": 1, "s": 30.0 }));
    assert_eq!(facet[0].get_array("w").unwrap()[0], Bson::Document(whole.clone()));
    let own = facet[0].get_array("own").unwrap();
    assert_eq!(own[0].as_document().unwrap().get_i32("_id").ok(), Some(2));
    assert_eq!(own[2].as_document(), Some(&whole));
    let union = |first: Document, last: Document| {
        let inner = [doc! { "$score": { "score": { "$add": ["$a", 5] } } }];
        run(
            &client,
            "c",
            bson!([first, { "$unionWith": { "coll": "c", "pipeline": inner.as_slice() } }, last]),
        )
    };
    let sorted = doc! { "$sort": { "s": { "$meta": "score" } } };
    assert_eq!(ids(&union(scored.clone(), sorted)), [1, 1, 2, 2, 3, 3]);
    let last = doc! { "$match": { "_id": 1 } };
    assert_eq!(union(doc! { "$limit": 3 }, last), [whole.clone(), whole.clone()]);
    let lookup = run(
        &client,
        "c",
        bson!([{ "$limit": 1 }, { "$lookup": { "from": "c", "as": "f", "pipeline": [
            scored.clone(), { "$sort": { "s": { "$meta": "score" } } }, { "$limit": 1 },
            { "$set": { "s": { "$meta": "score" } } },
        ] } }, { "$project": { "f": 1 } }]),
    );
    let mut with = whole.clone();
    with.insert("s", 30.0);
    assert_eq!(lookup[0].get_array("f").unwrap()[0].as_document(), Some(&with));
    run(&client, "c", bson!([scored, { "$out": "kept" }]));
    assert_eq!(run(&client, "kept", bson!([{ "$sort": { "_id": 1 } }]))[0], whole);
}

#[test]
fn a_text_score_is_a_score_until_another_is_given() {
    let client = three();
    let search = doc! { "$match": { "$text": { "$search": "apple" } } };
    let both = doc! { "$project": { "s": { "$meta": "score" }, "t": { "$meta": "textScore" } } };
    let sorted = doc! { "$sort": { "s": { "$meta": "score" }, "_id": 1 } };
    let found = run(&client, "c", bson!([search.clone(), sorted.clone(), both.clone()]));
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|one| one.get("s") == one.get("t")), "{found:?}");
    let texts: Vec<f64> = found.iter().map(|one| one.get_f64("t").unwrap()).collect();
    assert!(texts[0] >= texts[1]);
    let given = bson!([search.clone(), { "$score": { "score": { "$subtract": [0, { "$meta": "textScore" }] } } },
        sorted, both]);
    let turned = run(&client, "c", given);
    for one in &turned {
        assert_eq!(one.get_f64("s").ok(), Some(-one.get_f64("t").unwrap()));
    }
    assert_eq!(turned.last().unwrap().get("t"), found[0].get("t"));
    // As an input.
    let fused = run(
        &client,
        "c",
        bson!([{ "$scoreFusion": { "input": { "normalization": "none", "pipelines": {
            "found": [search], "low": [{ "$score": { "score": 0 } }],
        } }, "combination": { "method": "expression", "expression": "$$found" } } }, shown()]),
    );
    assert_eq!(scores(&fused), [texts[0], texts[1], 0.0]);
}

#[test]
fn score_fusion_combines_what_the_pipelines_give() {
    let client = three();
    client.ok(
        "db",
        doc! { "create": "v", "viewOn": "c", "pipeline": [{ "$match": { "a": { "$gt": 10 } } }] },
    );
    // By `a` all of 30, 20, 10; by `b` only 4 and 2.
    let input = |normalization: &str| {
        doc! { "normalization": normalization, "pipelines": {
            "p": [{ "$score": { "score": "$a", "scoreDetails": true } }],
            "q": [{ "$match": { "b": { "$gt": 0 } } }, { "$score": { "score": "$b" } }],
        } }
    };
    let fuse = |collection: &str, normalization: &str, combination: Document| {
        let spec = doc! { "input": input(normalization), "combination": combination };
        run(&client, collection, bson!([{ "$scoreFusion": spec }, shown()]))
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let by = |expression: Bson| doc! { "method": "expression", "expression": expression };
    for (normalization, combination, expected_ids, expected) in [
        ("none", doc! {}, [1, 2, 3], [15.0, 12.0, 6.0]),
        ("none", doc! { "method": "avg", "weights": { "q": 10 } }, [2, 1, 3], [30.0, 15.0, 15.0]),
        ("none", doc! { "weights": { "p": 0, "q": 0 } }, [1, 2, 3], [0.0, 0.0, 0.0]),
        ("minMaxScaler", doc! {}, [2, 1, 3], [0.75, 0.5, 0.0]),
        ("minMaxScaler", doc! { "weights": { "p": 4 } }, [1, 2, 3], [2.0, 1.5, 0.0]),
        (
            "sigmoid",
            doc! {},
            [2, 3, 1],
            [
                f64::midpoint(sigmoid(20.0), sigmoid(4.0)),
                f64::midpoint(sigmoid(10.0), sigmoid(2.0)),
                sigmoid(30.0) / 2.0,
            ],
        ),
        ("none", by(bson!({ "$subtract": ["$$q", "$$p"] })), [3, 2, 1], [-8.0, -16.0, -30.0]),
        ("none", by(bson!({ "$multiply": ["$$q", "$b"] })), [2, 3, 1], [16.0, 4.0, 0.0]),
    ] {
        let found = fuse("c", normalization, combination.clone());
        assert_eq!(ids(&found), expected_ids, "{normalization} {combination}");
        assert_eq!(scores(&found), expected, "{normalization} {combination}");
    }
    // Views are looked through.
    let view = fuse("v", "none", doc! {});
    assert_eq!((ids(&view), scores(&view)), (vec![1, 2], vec![15.0, 12.0]));
    let spec = doc! { "input": input("none"), "scoreDetails": true,
    "combination": by(bson!({ "$add": ["$$p", "$$q"] })) };
    let fused = run(
        &client,
        "c",
        bson!([{ "$scoreFusion": spec.clone() }, { "$match": { "_id": 1 } },
            { "$project": { "d": { "$meta": "scoreDetails" } } }]),
    );
    let details = fused[0].get_document("d").unwrap();
    assert_eq!(details.get_f64("value").ok(), Some(30.0));
    assert_eq!(details.get_str("normalization").ok(), Some("none"));
    let combination = details.get_document("combination").unwrap();
    assert_eq!(combination.get_str("method").ok(), Some("custom expression"));
    assert!(combination.get_str("expression").unwrap().contains("$$q"));
    let parts = details.get_array("details").unwrap();
    let mut first = parts[0].as_document().unwrap().clone();
    let inner = first.remove("details").unwrap();
    assert_eq!(inner.as_document().unwrap().get_f64("rawScore").ok(), Some(30.0));
    let expected = doc! { "inputPipelineName": "p", "inputPipelineRawScore": 30.0, "weight": 1.0,
    "value": 30.0 };
    assert_eq!(first, expected);
    let expected = doc! { "inputPipelineName": "q", "inputPipelineRawScore": 0.0, "weight": 1.0,
    "value": 0.0, "details": [] };
    assert_eq!(parts[1].as_document(), Some(&expected));
    // Whole documents come without their scores, within other stages too.
    let whole = doc! { "_id": 1, "a": 30, "b": 0, "text": "apple" };
    assert_eq!(run(&client, "c", bson!([{ "$scoreFusion": spec.clone() }]))[0], whole);
    let lookup = run(
        &client,
        "c",
        bson!([{ "$limit": 1 }, { "$lookup": { "from": "c", "as": "f",
            "pipeline": [{ "$scoreFusion": spec.clone() }] } }]),
    );
    assert_eq!(lookup[0].get_array("f").unwrap()[0].as_document(), Some(&whole));
    let union = run(
        &client,
        "c",
        bson!([{ "$limit": 1 }, { "$unionWith": { "coll": "c",
            "pipeline": [{ "$scoreFusion": spec.clone() }, { "$limit": 1 }] } }]),
    );
    assert_eq!(union, [whole.clone(), whole]);
    let explain = doc! { "explain": { "aggregate": "c", "cursor": {}, "pipeline": [
        { "$scoreFusion": spec },
    ] } };
    assert!(client.ok("db", explain).contains_key("stages"));
}

#[test]
fn ranks_by_a_score_are_shared_by_equals() {
    let client = three();
    let found = run(
        &client,
        "c",
        bson!([{ "$rankFusion": { "input": { "pipelines": { "p": [
            { "$score": { "score": { "$mod": ["$a", 20] } } },
            { "$sort": { "s": { "$meta": "score" } } },
        ] } } } }, shown()]),
    );
    assert_eq!(ids(&found), [1, 3, 2]);
    assert_eq!(scores(&found), [1.0 / 61.0, 1.0 / 61.0, 1.0 / 63.0]);
}
