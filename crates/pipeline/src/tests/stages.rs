//! Each stage by table, malformed ones by code and text, and the optimiser's rearrangements.

use super::memory::World;
use super::{array, check, context, fails, fails_with, raw, run, sorted};
use crate::stage::{Part, StageInput, StageSpec};
use crate::{DocumentSource, ExecOptions, LookupHint, Pipeline, PipelineStage, UpdatePipeline};
use bson::raw::{RawBson, RawDocumentBuf};
use bson::{Bson, Document, bson, doc};
use errors::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn people() -> Vec<Document> {
    vec![
        doc! {"_id": 1, "name": "ann", "age": 30, "tags": ["a", "b"]},
        doc! {"_id": 2, "name": "bob", "age": 20, "tags": []},
        doc! {"_id": 3, "name": "cid", "age": 40},
        doc! {"_id": 4, "name": "dan", "age": 20, "tags": ["b"]},
    ]
}

#[test]
fn match_sort_skip_limit() {
    check(
        &people(),
        &[
            doc! {"$match": {"age": {"$gte": 20}}},
            doc! {"$sort": {"age": 1, "_id": -1}},
            doc! {"$skip": 1},
            doc! {"$limit": 2},
            doc! {"$project": {"name": 1, "_id": 0}},
        ],
        &[doc! {"name": "bob"}, doc! {"name": "ann"}],
    );
}

#[test]
fn project_includes_excludes_and_computes() {
    let d =
        [doc! {"_id": 1, "a": {"b": 1, "c": 2}, "l": [{"b": 1, "c": 2}, 5, [{"b": 3}]], "x": 7}];
    check(&d, &[doc! {"$project": {"a.b": 1}}], &[doc! {"_id": 1, "a": {"b": 1}}]);
    check(&d, &[doc! {"$project": {"l.b": 1, "_id": 0}}], &[doc! {"l": [{"b": 1}, [{"b": 3}]]}]);
    check(
        &d,
        &[doc! {"$project": {"l.b": 0, "a": 0, "x": 0}}],
        &[doc! {"_id": 1, "l": [{"c": 2}, 5, [{}]]}],
    );
    check(&d, &[doc! {"$project": {"_id": 0, "y": "$x", "x": 1}}], &[doc! {"x": 7, "y": 7}]);
    check(
        &d,
        &[doc! {"$project": {"a": {"c": 1, "d": "$x"}}}],
        &[doc! {"_id": 1, "a": {"c": 2, "d": 7}}],
    );
    check(&d, &[doc! {"$project": {"n": {"m": "$x"}}}], &[doc! {"_id": 1, "n": {"m": 7}}]);
    check(&d, &[doc! {"$project": {"y": ["$x", "$no"]}}], &[doc! {"_id": 1, "y": [7, null]}]);
    check(&d, &[doc! {"$project": {"_id": 0}}, doc! {"$project": {"x": 1}}], &[doc! {"x": 7}]);
    check(&d, &[doc! {"$project": {"x": {"$literal": 1}}}], &[doc! {"_id": 1, "x": 1}]);
    fails(
        &[doc! {"$project": {"a": 1, "b": 0}}],
        31254,
        "Invalid $project :: caused by :: Cannot do exclusion on field b in inclusion projection",
    );
    fails_with(&[doc! {"$project": {"a": 0, "b": 1}}], 31253);
    fails_with(&[doc! {"$project": {}}], 51272);
    fails_with(&[doc! {"$project": 1}], 15969);
    fails_with(&[doc! {"$project": {"a": 1, "a.b": 1}}], 31249);
    fails_with(&[doc! {"$project": {"a.b": 1, "a": 1}}], 31250);
    fails_with(&[doc! {"$project": {"a": {}}}], 51270);
}

#[test]
fn add_fields_replaces_in_place_and_appends() {
    let d = [doc! {"_id": 1, "a": 1, "b": {"c": 2}, "l": [1, {"x": 1}]}];
    check(
        &d,
        &[doc! {"$addFields": {"n": "$a", "a": {"$add": ["$a", 1]}, "b.d": 5}}],
        &[doc! {"_id": 1, "a": 2, "b": {"c": 2, "d": 5}, "l": [1, {"x": 1}], "n": 1}],
    );
    check(
        &d,
        &[doc! {"$set": {"l.y": 9, "b": "$$REMOVE"}}],
        &[doc! {"_id": 1, "a": 1, "l": [{"y": 9}, {"x": 1, "y": 9}]}],
    );
    check(&d, &[doc! {"$unset": ["a", "b.c", "l"]}], &[doc! {"_id": 1, "b": {}}]);
    check(&d, &[doc! {"$unset": "l"}, doc! {"$unset": "b"}], &[doc! {"_id": 1, "a": 1}]);
    fails_with(&[doc! {"$set": 1}], 40272);
    fails_with(&[doc! {"$unset": 1}], 31002);
    fails_with(&[doc! {"$unset": []}], 31119);
}

#[test]
fn group_gathers_by_equal_keys() {
    check(
        &people(),
        &[
            doc! {"$group": {"_id": "$age", "n": {"$sum": 1}, "names": {"$push": "$name"}}},
            doc! {"$sort": {"_id": 1}},
        ],
        &[
            doc! {"_id": 20, "n": 2, "names": ["bob", "dan"]},
            doc! {"_id": 30, "n": 1, "names": ["ann"]},
            doc! {"_id": 40, "n": 1, "names": ["cid"]},
        ],
    );
    check(
        &[doc! {"k": 1}, doc! {"k": 1.0}, doc! {"k": null}, doc! {}],
        &[doc! {"$group": {"_id": "$k", "n": {"$count": {}}}}],
        &[doc! {"_id": 1, "n": 2}, doc! {"_id": null, "n": 2}],
    );
    check(
        &people(),
        &[doc! {"$group": {"_id": null, "max": {"$max": "$age"}, "avg": {"$avg": "$age"}}}],
        &[doc! {"_id": null, "max": 40, "avg": 27.5}],
    );
    check(
        &people(),
        &[doc! {"$match": {"age": 20}}, doc! {"$group": {"_id": {"a": "$age", "m": "$no"}}}],
        &[doc! {"_id": {"a": 20}}],
    );
    fails(&[doc! {"$group": {}}], 15955, "a group specification must include an _id");
    fails(
        &[doc! {"$group": {"_id": 1, "x": 1}}],
        40234,
        "The field 'x' must be an accumulator object",
    );
    fails(&[doc! {"$group": {"_id": 1, "x": {"$no": 1}}}], 15952, "unknown group operator '$no'");
    fails(
        &[doc! {"$group": {"_id": 1, "x.y": {"$sum": 1}}}],
        40235,
        "The field name 'x.y' cannot contain '.'",
    );
    fails_with(&[doc! {"$group": 1}], 15947);
}

#[test]
fn unwind_makes_one_document_per_element() {
    check(
        &people(),
        &[doc! {"$unwind": "$tags"}, doc! {"$project": {"tags": 1}}],
        &[doc! {"_id": 1, "tags": "a"}, doc! {"_id": 1, "tags": "b"}, doc! {"_id": 4, "tags": "b"}],
    );
    check(
        &people(),
        &[
            doc! {"$unwind": {"path": "$tags", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": true}},
            doc! {"$project": {"tags": 1, "i": 1}},
        ],
        &[
            doc! {"_id": 1, "tags": "a", "i": 0_i64},
            doc! {"_id": 1, "tags": "b", "i": 1_i64},
            doc! {"_id": 2, "i": null},
            doc! {"_id": 3, "i": null},
            doc! {"_id": 4, "tags": "b", "i": 0_i64},
        ],
    );
    check(&[doc! {"a": {"b": 5}}], &[doc! {"$unwind": "$a.b"}], &[doc! {"a": {"b": 5}}]);
    fails_with(&[doc! {"$unwind": "a"}], 28818);
    fails_with(&[doc! {"$unwind": 1}], 15981);
    fails_with(&[doc! {"$unwind": {}}], 28812);
    fails_with(&[doc! {"$unwind": {"path": "$a", "x": 1}}], 28811);
}

#[test]
fn counts() {
    check(&people(), &[doc! {"$count": "n"}], &[doc! {"n": 4}]);
    check(&[], &[doc! {"$count": "n"}], &[]);
    check(
        &people(),
        &[doc! {"$sortByCount": "$age"}, doc! {"$limit": 1}],
        &[doc! {"_id": 20, "count": 2}],
    );
    fails_with(&[doc! {"$count": 1}], 40156);
    fails_with(&[doc! {"$count": "$x"}], 40158);
    fails_with(&[doc! {"$sortByCount": "x"}], 40148);
}

#[test]
fn replace_root_wants_documents() {
    check(&[doc! {"a": {"b": 1}}], &[doc! {"$replaceRoot": {"newRoot": "$a"}}], &[doc! {"b": 1}]);
    check(
        &[doc! {"_id": 1, "a": {"b": 1}}],
        &[doc! {"$replaceWith": {"$mergeObjects": ["$a", {"id": "$_id"}]}}],
        &[doc! {"b": 1, "id": 1}],
    );
    fails_with(&[doc! {"$replaceRoot": {"newRoot": "$a"}}], 40228);
    fails_with(&[doc! {"$replaceRoot": 1}], 40229);
}

#[test]
fn buckets() {
    check(
        &people(),
        &[doc! {"$bucket": {"groupBy": "$age", "boundaries": [0, 30, 40], "default": "old",
        "output": {"n": {"$sum": 1}, "names": {"$push": "$name"}}}}],
        &[
            doc! {"_id": 0, "n": 2, "names": ["bob", "dan"]},
            doc! {"_id": 30, "n": 1, "names": ["ann"]},
            doc! {"_id": "old", "n": 1, "names": ["cid"]},
        ],
    );
    fails_with(&[doc! {"$bucket": {"groupBy": "$a", "boundaries": [1]}}], 40192);
    fails_with(&[doc! {"$bucket": {"groupBy": "$a", "boundaries": [2, 1]}}], 40194);
    fails_with(&[doc! {"$bucket": {"groupBy": "$a", "boundaries": [1, "x"]}}], 40193);
    fails_with(&[doc! {"$bucket": {"groupBy": "$a", "boundaries": [5, 6]}}], 40066);
    check(
        &[doc! {"v": 1}, doc! {"v": 2}, doc! {"v": 2}, doc! {"v": 3}],
        &[doc! {"$bucketAuto": {"groupBy": "$v", "buckets": 2}}],
        &[
            doc! {"_id": {"min": 1, "max": 3}, "count": 3},
            doc! {"_id": {"min": 3, "max": 3}, "count": 1},
        ],
    );
}

#[test]
fn facets_see_the_same_documents() {
    check(
        &people(),
        &[doc! {"$facet": {
            "young": [{"$match": {"age": {"$lt": 30}}}, {"$count": "n"}],
            "names": [{"$sort": {"_id": -1}}, {"$limit": 1}, {"$project": {"name": 1}}],
        }}],
        &[doc! {"young": [{"n": 2}], "names": [{"_id": 4, "name": "dan"}]}],
    );
    fails_with(&[doc! {"$facet": {}}], 40169);
    fails_with(&[doc! {"$facet": {"a": 1}}], 40170);
    fails_with(&[doc! {"$facet": {"a": [{"$facet": {"b": []}}]}}], 40600);
}

#[test]
fn sample_takes_as_many_as_asked() {
    let documents: Vec<_> = (0..100).map(|i| doc! {"_id": i}).collect();
    let world = World::with(&[("c", &documents)]);
    let pipeline = Pipeline::parse(&array(&[doc! {"$sample": {"size": 10}}]), &context()).unwrap();
    let found = super::collect(world.run(&pipeline, &context()).unwrap()).unwrap();
    let distinct: std::collections::BTreeSet<_> =
        found.iter().map(|d| d.get_i32("_id").unwrap()).collect();
    assert_eq!((found.len(), distinct.len()), (10, 10));
    fails_with(&[doc! {"$sample": {"size": -1}}], 28747);
    fails_with(&[doc! {"$sample": {}}], 28749);
}

#[test]
fn redact_prunes_levels() {
    check(
        &[
            doc! {"_id": 1, "level": 1, "a": {"level": 5, "x": 1}, "l": [{"level": 1}, {"level": 9}, 3]},
        ],
        &[doc! {"$redact": {"$cond": [{"$lte": ["$level", 3]}, "$$DESCEND", "$$PRUNE"]}}],
        &[doc! {"_id": 1, "level": 1, "l": [{"level": 1}, 3]}],
    );
    fails_with(&[doc! {"$redact": 1}], 17053);
}

fn orders() -> (Vec<Document>, Vec<Document>) {
    let orders = vec![
        doc! {"_id": 1, "item": "a"},
        doc! {"_id": 2, "item": ["a", "c"]},
        doc! {"_id": 3},
        doc! {"_id": 4, "item": "z"},
    ];
    let stock = vec![
        doc! {"_id": 10, "sku": "a", "n": 5},
        doc! {"_id": 11, "sku": ["b", "c"], "n": 7},
        doc! {"_id": 12, "sku": null, "n": 9},
        doc! {"_id": 13, "n": 11},
        doc! {"_id": 14, "sku": "a", "n": 1},
    ];
    (orders, stock)
}

/// The same lookup by hash table, by asking per document, and by a table that does not fit.
fn lookups(stages: &[Document]) -> Vec<Document> {
    let (orders, stock) = orders();
    let collections: [(&str, &[Document]); 2] = [("c", &orders), ("stock", &stock)];
    let by_hash = run(&World::with(&collections), stages).unwrap();
    let asking = World::with_options(&collections, ExecOptions::default(), LookupHint::Index);
    assert_eq!(run(&asking, stages).unwrap(), by_hash, "{stages:?}");
    let options = ExecOptions { memory_limit_bytes: 100, allow_disk_use: true };
    let small = World::with_options(&collections, options, LookupHint::Hash);
    assert_eq!(run(&small, stages).unwrap(), by_hash, "{stages:?}");
    by_hash
}

fn ids(found: &[Document]) -> Vec<Vec<i32>> {
    found
        .iter()
        .map(|d| {
            let list = d.get_array("m").unwrap().iter();
            list.map(|m| m.as_document().unwrap().get_i32("_id").unwrap()).collect()
        })
        .collect()
}

#[test]
fn lookup_joins_arrays_by_element_and_missing_as_null() {
    let found = lookups(&[
        doc! {"$lookup": {"from": "stock", "localField": "item", "foreignField": "sku", "as": "m"}},
    ]);
    assert_eq!(ids(&found), [vec![10, 14], vec![10, 11, 14], vec![12, 13], vec![]]);
}

#[test]
fn lookup_pipelines_see_variables_of_the_outer_document() {
    let found = lookups(&[doc! {"$lookup": {
        "from": "stock",
        "let": {"wanted": "$item"},
        "pipeline": [{"$match": {"$expr": {"$and": [{"$eq": ["$sku", "$$wanted"]}, {"$gt": ["$n", 2]}]}}}],
        "as": "m",
    }}]);
    assert_eq!(ids(&found), [vec![10], vec![], vec![13], vec![]]);
    let found = lookups(&[doc! {"$lookup": {
        "from": "stock", "localField": "item", "foreignField": "sku",
        "let": {"id": "$_id"},
        "pipeline": [{"$sort": {"n": 1}}, {"$set": {"outer": "$$id"}}],
        "as": "m",
    }}]);
    assert_eq!(ids(&found)[1], [14, 10, 11]);
    assert_eq!(
        found[1].get_array("m").unwrap()[0].as_document().unwrap().get_i32("outer").unwrap(),
        2
    );
}

#[test]
fn uncorrelated_lookup_runs_once() {
    let (orders, stock) = orders();
    let world = World::with(&[("c", &orders), ("stock", &stock)]);
    let stages = [
        doc! {"$lookup": {"from": "stock", "pipeline": [{"$match": {"n": {"$gt": 8}}}], "as": "m"}},
    ];
    let pipeline = Pipeline::parse(&array(&stages), &context()).unwrap();
    let found = super::collect(world.run(&pipeline, &context()).unwrap()).unwrap();
    assert_eq!(ids(&found), vec![vec![12, 13]; 4]);
    assert_eq!(world.aggregations.load(Ordering::Relaxed), 1);
}

#[test]
fn lookup_then_unwind_streams_the_matches() {
    let found = lookups(&[
        doc! {"$lookup": {"from": "stock", "localField": "item", "foreignField": "sku", "as": "m"}},
        doc! {"$unwind": {"path": "$m", "preserveNullAndEmptyArrays": true, "includeArrayIndex": "i"}},
        doc! {"$project": {"m": "$m._id", "i": 1}},
    ]);
    assert_eq!(found.len(), 8);
    assert_eq!(found[7], doc! {"_id": 4, "i": null});
}

#[test]
fn malformed_lookups_are_refused() {
    fails_with(&[doc! {"$lookup": {"from": "x", "localField": "a", "foreignField": "b"}}], 9);
    fails_with(&[doc! {"$lookup": {"from": "x", "as": "m"}}], 9);
    fails_with(&[doc! {"$lookup": {"from": "x", "as": "m", "localField": "a"}}], 9);
    fails_with(&[doc! {"$lookup": {"from": "x", "as": "m", "pipeline": [{"$out": "y"}]}}], 51047);
    fails_with(&[doc! {"$lookup": 1}], 9);
}

#[test]
fn graph_lookup_walks_breadth_first_and_ends_in_cycles() {
    let staff = [
        doc! {"_id": 1, "name": "top", "boss": "low"},
        doc! {"_id": 2, "name": "mid", "boss": "top"},
        doc! {"_id": 3, "name": "low", "boss": "mid"},
    ];
    for hint in [LookupHint::Hash, LookupHint::Index] {
        let world = World::with_options(
            &[("c", &staff[2..]), ("staff", &staff)],
            ExecOptions::default(),
            hint,
        );
        let stages = [doc! {"$graphLookup": {
            "from": "staff", "startWith": "$boss", "connectFromField": "boss",
            "connectToField": "name", "as": "up", "depthField": "depth",
        }}];
        let found = run(&world, &stages).unwrap();
        let up: Vec<_> = found[0]
            .get_array("up")
            .unwrap()
            .iter()
            .map(|d| d.as_document().unwrap())
            .map(|d| (d.get_i32("_id").unwrap(), d.get_i64("depth").unwrap()))
            .collect();
        assert_eq!(up, [(2, 0), (1, 1), (3, 2)]);
    }
}

#[test]
fn union_appends_another_collection() {
    let world =
        World::with(&[("c", &[doc! {"_id": 1}]), ("d", &[doc! {"_id": 2}, doc! {"_id": 3}])]);
    let stages = [doc! {"$unionWith": {"coll": "d", "pipeline": [{"$match": {"_id": 3}}]}}];
    assert_eq!(run(&world, &stages).unwrap(), [doc! {"_id": 1}, doc! {"_id": 3}]);
    assert_eq!(run(&world, &[doc! {"$unionWith": "d"}]).unwrap().len(), 3);
}

#[test]
fn documents_are_written_in_the_pipeline() {
    check(
        &people(),
        &[doc! {"$documents": [{"$literal": {"a": "$x"}}, {"b": {"$add": [1, 1]}}]}],
        &[doc! {"a": "$x"}, doc! {"b": 2}],
    );
    fails_with(&[doc! {"$documents": 1}], 5858203);
    fails_with(&[doc! {"$match": {}}, doc! {"$documents": []}], 40602);
}

#[test]
fn out_replaces_and_merge_merges() {
    let world = World::with(&[("c", &people()), ("t", &[doc! {"_id": 1, "x": 1, "age": 0}])]);
    let project = doc! {"$project": {"age": 1}};
    let first = doc! {"$match": {"_id": {"$lte": 2}}};
    let merge = |spec: Bson| [first.clone(), project.clone(), doc! {"$merge": spec}];
    assert_eq!(run(&world, &merge(bson!("t"))).unwrap(), []);
    assert_eq!(
        world.content("t"),
        [doc! {"_id": 1, "x": 1, "age": 30}, doc! {"_id": 2, "age": 20}]
    );
    run(&world, &merge(bson!({"into": "t", "whenMatched": [{"$set": {"sum": {"$add": ["$age", "$$new.age"]}}}], "whenNotMatched": "discard"}))).unwrap();
    assert_eq!(world.content("t")[0], doc! {"_id": 1, "x": 1, "age": 30, "sum": 60});
    run(&world, &merge(bson!({"into": "t", "whenMatched": "replace"}))).unwrap();
    assert_eq!(world.content("t")[0], doc! {"_id": 1, "age": 30});
    let error = run(&world, &merge(bson!({"into": "t", "whenMatched": "fail"}))).unwrap_err();
    assert_eq!(error.code().0, 11000);
    run(&world, &[first.clone(), project.clone(), doc! {"$out": "t"}]).unwrap();
    assert_eq!(world.content("t"), [doc! {"_id": 1, "age": 30}, doc! {"_id": 2, "age": 20}]);
    fails(
        &[doc! {"$out": "t"}, doc! {"$match": {}}],
        40601,
        "$out can only be the final stage in the pipeline",
    );
    fails_with(&[doc! {"$merge": {"into": "t", "bad": 1}}], 40415);
}

#[test]
fn malformed_pipelines_are_refused() {
    fails(&[doc! {"$nope": 1}], 40324, "Unrecognized pipeline stage name: '$nope'");
    fails_with(&[doc! {}], 40323);
    fails_with(&[doc! {"$match": {}, "$limit": 1}], 40323);
    fails(&[doc! {"$match": 1}], 15959, "the match filter must be an expression in an object");
    fails(&[doc! {"$limit": 0}], 15958, "the limit must be positive");
    fails(
        &[doc! {"$limit": "x"}],
        5107201,
        "invalid argument to $limit stage: Expected a number in: $limit: \"x\"",
    );
    fails(
        &[doc! {"$skip": -1}],
        5107200,
        "invalid argument to $skip stage: Expected a non-negative number in: $skip: -1",
    );
    fails_with(&[doc! {"$sort": 1}], 15973);
    fails_with(&[doc! {"$sort": {}}], 15976);
    fails_with(&[doc! {"$indexStats": {"x": 1}}], 28803);
    fails_with(&[doc! {"$indexStats": 1}], 28803);
    fails_with(&[doc! {"$collStats": {"x": {}}}], 40415);
    fails_with(&[doc! {"$collStats": {"count": 1}}], 14);
    fails_with(&[doc! {"$collStats": {"storageStats": {"x": 1}}}], 40415);
    fails_with(&[doc! {"$collStats": {"storageStats": {"scale": "a"}}}], 14);
    fails_with(&[doc! {"$collStats": {"storageStats": {"verbose": 1}}}], 14);
    fails_with(&[doc! {"$collStats": 1}], 5447000);
    fails_with(&[doc! {"$unionWith": {"coll": 1}}], 14);
    fails_with(&[doc! {"$out": {"db": "d"}}], 40414);
    fails_with(&[doc! {"$out": {"db": "d", "coll": "c", "x": 1}}], 40415);
    let deep = (0..30).fold(
        doc! {"$limit": 1},
        |inner, _| doc! {"$lookup": {"from": "x", "as": "y", "pipeline": [inner]}},
    );
    fails_with(&[deep], 232);
}

fn optimised(stages: &[Document]) -> Vec<&'static str> {
    let pipeline = Pipeline::parse(&array(stages), &context()).unwrap().optimize();
    pipeline.stages().iter().map(PipelineStage::name).collect()
}

#[test]
fn matches_move_before_what_they_do_not_concern() {
    let set = doc! {"$set": {"x": 1}};
    assert_eq!(optimised(&[set.clone(), doc! {"$match": {"a": 1}}]), ["$match", "$set"]);
    assert_eq!(optimised(&[set.clone(), doc! {"$match": {"x.y": 1}}]), ["$set", "$match"]);
    assert_eq!(optimised(&[set, doc! {"$match": {"x": 1, "a": 1}}]), ["$match", "$set", "$match"]);
    assert_eq!(
        optimised(&[
            doc! {"$sort": {"a": 1}},
            doc! {"$match": {"b": 1}},
            doc! {"$match": {"c": 1}}
        ]),
        ["$match", "$sort"]
    );
    assert_eq!(
        optimised(&[doc! {"$unwind": "$a"}, doc! {"$match": {"a": 1, "b": 1}}]),
        ["$match", "$unwind", "$match"]
    );
    assert_eq!(
        optimised(&[doc! {"$project": {"a": 1}}, doc! {"$match": {"a.b": 1}}]),
        ["$match", "$project"]
    );
    assert_eq!(
        optimised(&[doc! {"$project": {"a": 1}}, doc! {"$match": {"b": 1}}]),
        ["$project", "$match"]
    );
    assert_eq!(optimised(&[doc! {"$limit": 3}, doc! {"$match": {"a": 1}}]), ["$limit", "$match"]);
}

#[test]
fn limits_reach_the_sort() {
    let stages = [
        doc! {"$sort": {"a": 1}},
        doc! {"$project": {"a": 1}},
        doc! {"$skip": 5},
        doc! {"$limit": 10},
        doc! {"$limit": 7},
    ];
    let pipeline = Pipeline::parse(&array(&stages), &context()).unwrap().optimize();
    let names: Vec<_> = pipeline.stages().iter().map(PipelineStage::name).collect();
    assert_eq!(names, ["$sort", "$skip", "$limit", "$project"]);
    let PipelineStage::Sort(sort) = &pipeline.stages()[0] else { panic!("a sort") };
    assert_eq!(sort.limit, Some(12));
}

#[test]
fn chance_within_a_stage_is_seen() {
    let graph = |restriction: Document| {
        let stage = doc! {"$graphLookup": {
            "from": "x", "startWith": "$a", "connectFromField": "a", "connectToField": "b",
            "as": "found", "restrictSearchWithMatch": restriction,
        }};
        Pipeline::parse(&array(&[stage]), &context()).unwrap().is_uncorrelated()
    };
    assert!(graph(doc! {"c": 1}));
    assert!(!graph(doc! {"$sampleRate": 0.5}));
}

/// A stage that says nothing of itself but what it must.
#[derive(Debug)]
struct Silent;

impl StageSpec for Silent {
    fn name(&self) -> &'static str {
        "$silent"
    }

    fn argument(&self) -> RawBson {
        RawBson::Null
    }

    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(run.input)
    }
}

#[test]
fn nothing_moves_over_a_stage_that_does_not_say_so() {
    let after = array(&[doc! {"$match": {"a": 1}}, doc! {"$limit": 1}]);
    let mut stages = vec![PipelineStage::other(Silent)];
    stages.extend(Pipeline::parse(&after, &context()).unwrap().into_stages());
    let pipeline = Pipeline::from_stages(stages).optimize();
    let names: Vec<_> = pipeline.stages().iter().map(PipelineStage::name).collect();
    assert_eq!(names, ["$silent", "$match", "$limit"]);
    assert_eq!(pipeline.needed_fields(), None);
}

#[test]
fn needed_fields_stop_at_the_first_exhaustive_stage() {
    let needed = |stages: &[Document]| {
        Pipeline::parse(&array(stages), &context())
            .unwrap()
            .needed_fields()
            .map(|fields| fields.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(needed(&[doc! {"$match": {"a": 1}}]), None);
    assert_eq!(needed(&[doc! {"$count": "n"}]), Some(vec![]));
    assert_eq!(
        needed(&[doc! {"$match": {"a.b": 1}}, doc! {"$group": {"_id": "$c", "s": {"$sum": "$d"}}}]),
        Some(vec!["a.b".into(), "c".into(), "d".into()])
    );
    assert_eq!(
        needed(&[doc! {"$project": {"x": 1, "y": "$z"}}]),
        Some(vec!["_id".into(), "x".into(), "z".into()])
    );
    assert_eq!(needed(&[doc! {"$group": {"_id": null, "all": {"$push": "$$ROOT"}}}]), None);
}

#[test]
fn update_pipelines_allow_one_to_one_stages_only() {
    use update::PipelineUpdate;
    let parse = |stages: &[Document]| UpdatePipeline::parse(&array(stages), &context().parse);
    let update = parse(&[doc! {"$set": {"b": {"$add": ["$a", 1]}}}, doc! {"$unset": "a"}]).unwrap();
    let document = RawDocumentBuf::try_from(&doc! {"_id": 1, "a": 1}).unwrap();
    assert_eq!(
        Document::try_from(&*update.apply(&document).unwrap()).unwrap(),
        doc! {"_id": 1, "b": 2}
    );
    let error = parse(&[doc! {"$match": {}}]).unwrap_err();
    assert_eq!(
        (error.code().0, error.message()),
        (72, "$match is not allowed to be used within an update")
    );
}

#[test]
fn group_order_is_that_of_first_sight() {
    let world = World::with(&[("c", &people())]);
    let found = run(&world, &[doc! {"$group": {"_id": "$age"}}]).unwrap();
    assert_eq!(found, [doc! {"_id": 30}, doc! {"_id": 20}, doc! {"_id": 40}]);
    assert_eq!(sorted(found).len(), raw(&people()).len() - 1);
    assert_eq!(Arc::strong_count(&world), 1);
}

#[test]
fn stages_describe_themselves() {
    let stages = [
        doc! {"$match": {"a": {"$eq": 1}}},
        doc! {"$group": {"_id": "$a", "n": {"$sum": 1}}},
        doc! {"$project": {"n": true}},
        doc! {"$limit": 3_i64},
        doc! {"$replaceRoot": {"newRoot": "$x"}},
        doc! {"$unwind": {"path": "$a.b", "includeArrayIndex": "i"}},
        doc! {"$lookup": {"from": "x", "localField": "a", "foreignField": "b", "as": "c"}},
        doc! {"$out": {"db": "d", "coll": "e"}},
    ];
    let pipeline = Pipeline::parse(&array(&stages), &context()).unwrap();
    let shown: Vec<_> =
        pipeline.stages().iter().map(|s| Document::try_from(&*s.to_document()).unwrap()).collect();
    assert_eq!(shown, stages);
}
