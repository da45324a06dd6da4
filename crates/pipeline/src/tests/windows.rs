//! `$setWindowFields`, `$fill`, `$densify` and rounded buckets by table.
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better")]

use super::memory::World;
use super::{check, fails, fails_with, run};
use crate::{ExecOptions, LookupHint};
use bson::{Bson, DateTime, Document, doc};
use std::sync::atomic::Ordering;

/// The values of `v` after a window stage with this output over `x` ascending.
fn check_values(documents: &[Document], output: Document, expected: &[Bson]) {
    let stage = doc! {"$setWindowFields": {"sortBy": {"x": 1}, "output": {"v": output.clone()}}};
    let world = World::with(&[("c", documents)]);
    let found = run(&world, &[stage]).unwrap();
    let found: Vec<Bson> = found.iter().map(|d| d.get("v").cloned().unwrap()).collect();
    // By text, where a NaN equals itself.
    assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{output}");
}

/// `x` is 1, 2, 4, 7 and `y` is 1, 3, null, 5.
fn four() -> Vec<Document> {
    vec![
        doc! {"x": 4, "y": null},
        doc! {"x": 1, "y": 1},
        doc! {"x": 7, "y": 5},
        doc! {"x": 2, "y": 3},
    ]
}

fn list(values: impl IntoIterator<Item = impl Into<Bson>>) -> Vec<Bson> {
    values.into_iter().map(Into::into).collect()
}

#[test]
fn windows_of_documents() {
    let sum = |low: Bson, high: Bson| doc! {"$sum": "$y", "window": {"documents": [low, high]}};
    let word = |text: &str| Bson::from(text);
    check_values(&four(), sum(word("unbounded"), word("current")), &list([1, 4, 4, 9]));
    check_values(&four(), sum(word("current"), word("unbounded")), &list([9, 8, 5, 5]));
    check_values(&four(), sum((-1).into(), 1.into()), &list([4, 4, 8, 5]));
    check_values(&four(), sum(1.into(), 2.into()), &list([3, 5, 5, 0]));
    check_values(&four(), sum((-9).into(), (-2).into()), &list([0, 0, 1, 4]));
    check_values(&four(), doc! {"$sum": "$y"}, &list([9, 9, 9, 9]));
    check_values(
        &four(),
        doc! {"$push": "$x", "window": {"documents": [-1, 0]}},
        &[bson::bson!([1]), bson::bson!([1, 2]), bson::bson!([2, 4]), bson::bson!([4, 7])],
    );
    check_values(
        &four(),
        doc! {"$max": "$y", "window": {"documents": [-1, 0]}},
        &list([1, 3, 3, 5]),
    );
    check_values(
        &four(),
        doc! {"$first": "$x", "window": {"documents": [-1, 0]}},
        &list([1, 1, 2, 4]),
    );
    check_values(
        &four(),
        doc! {"$last": "$x", "window": {"documents": [0, 1]}},
        &list([2, 4, 7, 7]),
    );
}

#[test]
fn windows_of_lists_documents_and_scales() {
    let documents = [
        doc! {"x": 1, "l": [1, 2]},
        doc! {"x": 2, "l": [2]},
        doc! {"x": 5},
        doc! {"x": 9, "l": [3]},
    ];
    let last_two = doc! {"documents": [-1, 0]};
    check_values(
        &documents,
        doc! {"$concatArrays": "$l", "window": last_two.clone()},
        &[bson::bson!([1, 2]), bson::bson!([1, 2, 2]), bson::bson!([2]), bson::bson!([3])],
    );
    check_values(
        &documents,
        doc! {"$setUnion": "$l", "window": last_two.clone()},
        &[bson::bson!([1, 2]), bson::bson!([1, 2]), bson::bson!([2]), bson::bson!([3])],
    );
    check_values(
        &documents,
        doc! {"$mergeObjects": {"a": "$l"}, "window": last_two},
        &[
            bson::bson!({"a": [1, 2]}),
            bson::bson!({"a": [2]}),
            bson::bson!({"a": [2]}),
            bson::bson!({"a": [3]}),
        ],
    );
    check_values(&documents, doc! {"$minMaxScaler": "$x"}, &list([0.0, 0.125, 0.5, 1.0]));
    check_values(
        &documents,
        doc! {"$minMaxScaler": {"input": "$x", "min": 10, "max": 90}},
        &list([10.0, 20.0, 50.0, 90.0]),
    );
}

#[test]
fn windows_of_values_and_of_time() {
    check_values(
        &four(),
        doc! {"$push": "$x", "window": {"range": [-2, 2]}},
        &[bson::bson!([1, 2]), bson::bson!([1, 2, 4]), bson::bson!([2, 4]), bson::bson!([7])],
    );
    check_values(
        &four(),
        doc! {"$count": {}, "window": {"range": ["unbounded", -1.5]}},
        &list([0, 0, 2, 3]),
    );
    let day = |n: i64| DateTime::from_millis(n * 86_400_000);
    let dates = [doc! {"x": day(0)}, doc! {"x": day(1)}, doc! {"x": day(1)}, doc! {"x": day(3)}];
    check_values(
        &dates,
        doc! {"$count": {}, "window": {"range": [-1, "current"], "unit": "day"}},
        &list([1, 3, 3, 1]),
    );
    let stage = |window: Document| {
        doc! {"$setWindowFields": {"sortBy": {"a": 1}, "output": {"v": {"$count": {}, "window": window}}}}
    };
    fails(
        &[stage(doc! {"range": [-1, 1], "unit": "day"})],
        5429513,
        "Invalid range: Expected the sortBy field to be a Date, but it was int",
    );
}

#[test]
fn ranks_shifts_and_averages() {
    let tied = [doc! {"x": 5}, doc! {"x": 3}, doc! {"x": 5}, doc! {"x": 9}];
    check_values(&tied, doc! {"$rank": {}}, &list([1, 2, 2, 4]));
    check_values(&tied, doc! {"$denseRank": {}}, &list([1, 2, 2, 3]));
    check_values(&tied, doc! {"$documentNumber": {}}, &list([1, 2, 3, 4]));
    check_values(
        &four(),
        doc! {"$shift": {"output": "$x", "by": -1, "default": "none"}},
        &[Bson::from("none"), 1.into(), 2.into(), 4.into()],
    );
    check_values(
        &four(),
        doc! {"$shift": {"output": "$y", "by": 2}},
        &[Bson::Null, 5.into(), Bson::Null, Bson::Null],
    );
    check_values(
        &four(),
        doc! {"$expMovingAvg": {"input": "$y", "alpha": 0.5}},
        &[Bson::from(1), 2.0.into(), 2.0.into(), 3.5.into()],
    );
    check_values(
        &four(),
        doc! {"$expMovingAvg": {"input": "$x", "N": 3}},
        &[Bson::from(1), 1.5.into(), 2.75.into(), 4.875.into()],
    );
}

#[test]
fn slopes_areas_and_covariances() {
    let line = [doc! {"x": 0, "y": 0}, doc! {"x": 1, "y": 2}, doc! {"x": 3, "y": 6}];
    check_values(
        &line,
        doc! {"$derivative": {"input": "$y"}, "window": {"documents": [-1, 0]}},
        &[Bson::Null, 2.0.into(), 2.0.into()],
    );
    check_values(
        &line,
        doc! {"$integral": {"input": "$y"}, "window": {"documents": ["unbounded", "current"]}},
        &[Bson::from(0), 1.0.into(), 9.0.into()],
    );
    check_values(
        &line,
        doc! {"$integral": {"input": "$y"}, "window": {"documents": [-1, "current"]}},
        &[Bson::from(0), 1.0.into(), 8.0.into()],
    );
    let hours = [
        doc! {"x": DateTime::from_millis(0), "y": 10},
        doc! {"x": DateTime::from_millis(1_800_000), "y": 20},
    ];
    check_values(
        &hours,
        doc! {"$derivative": {"input": "$y", "unit": "hour"}, "window": {"documents": [-1, 0]}},
        &[Bson::Null, 20.0.into()],
    );
    check_values(
        &hours,
        doc! {"$integral": {"input": "$y", "unit": "hour"}},
        &[Bson::from(7.5), 7.5.into()],
    );
    let even = [doc! {"x": 0, "y": 0}, doc! {"x": 2, "y": 4}, doc! {"x": 4, "y": 8}];
    check_values(
        &even,
        doc! {"$covarianceSamp": ["$x", "$y"], "window": {"documents": [-1, 0]}},
        &[Bson::Null, 4.0.into(), 4.0.into()],
    );
    let pop = doc! {"$covariancePop": ["$x", "$y"], "window": {"documents": [0, 0]}};
    check_values(&line, pop, &list([0.0, 0.0, 0.0]));
}

#[test]
fn covariances_over_infinities_come_back_to_numbers() {
    let (up, down) = (f64::INFINITY, f64::NEG_INFINITY);
    let rows = [
        doc! {"x": 0, "y": 0},
        doc! {"x": 2, "y": 4},
        doc! {"x": 4, "y": up},
        doc! {"x": 6, "y": 12},
        doc! {"x": 8, "y": 16},
        doc! {"x": 10, "y": down},
    ];
    check_values(
        &rows,
        doc! {"$covariancePop": ["$x", "$y"], "window": {"documents": ["unbounded", "current"]}},
        &[0.0.into(), 2.0.into(), up.into(), up.into(), up.into(), Bson::from(f64::NAN)],
    );
    check_values(
        &rows[..5],
        doc! {"$covarianceSamp": ["$x", "$y"], "window": {"documents": [-1, 0]}},
        &[Bson::Null, 4.0.into(), Bson::Null, Bson::Null, 4.0.into()],
    );
    check_values(
        &[doc! {"x": 1, "y": f64::NAN}, doc! {"x": 1, "y": "text"}],
        doc! {"$covariancePop": ["$x", "$y"], "window": {"documents": ["unbounded", "current"]}},
        &[Bson::Null, Bson::Null],
    );
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    check_values(
        &[doc! {"x": 1, "y": decimal("1")}, doc! {"x": 3, "y": decimal("2")}],
        doc! {"$covariancePop": ["$x", "$y"], "window": {"documents": ["unbounded", "current"]}},
        &[0.0.into(), decimal("0.5")],
    );
}

#[test]
fn gaps_are_filled() {
    let gaps = [
        doc! {"x": 0, "y": null},
        doc! {"x": 1, "y": 10},
        doc! {"x": 2},
        doc! {"x": 4, "y": null},
        doc! {"x": 5, "y": 30},
        doc! {"x": 6},
    ];
    let null = Bson::Null;
    check_values(
        &gaps,
        doc! {"$locf": "$y"},
        &[null.clone(), 10.into(), 10.into(), 10.into(), 30.into(), 30.into()],
    );
    check_values(
        &gaps,
        doc! {"$linearFill": "$y"},
        &[null.clone(), 10.into(), 15.0.into(), 25.0.into(), 30.into(), null],
    );
    check(
        &gaps[1..4],
        &[
            doc! {"$fill": {"sortBy": {"x": 1}, "output": {"y": {"method": "locf"}, "z": {"value": {"$add": ["$x", 1]}}}}},
        ],
        &[
            doc! {"x": 1, "y": 10, "z": 2},
            doc! {"x": 2, "y": 10, "z": 3},
            doc! {"x": 4, "y": 10, "z": 5},
        ],
    );
    check(
        &[doc! {"p": {"q": 2}, "y": 1}, doc! {"p": {"q": 1}}, doc! {"p": {"q": 2}}],
        &[doc! {"$fill": {"partitionByFields": ["p.q"], "output": {"y": {"method": "locf"}}}}],
        &[
            doc! {"p": {"q": 1}, "y": null},
            doc! {"p": {"q": 2}, "y": 1},
            doc! {"p": {"q": 2}, "y": 1},
        ],
    );
    fails(
        &[doc! {"$fill": {"output": {"y": {"method": "up"}}}}],
        6050202,
        "Method must be either locf or linear",
    );
    fails_with(&[doc! {"$fill": {"output": {"y": {"method": "linear"}}}}], 605001);
    fails_with(&[doc! {"$fill": {"output": {"y": {}}}}], 6050200);
}

#[test]
fn partitions_are_apart_and_dotted_outputs_nest() {
    check(
        &[doc! {"p": "b", "x": 2}, doc! {"p": "a", "x": 9}, doc! {"x": 1}, doc! {"p": "b", "x": 1}],
        &[doc! {"$setWindowFields": {
            "partitionBy": "$p", "sortBy": {"x": -1},
            "output": {"w.n": {"$documentNumber": {}}, "total": {"$sum": "$x"}},
        }}],
        &[
            doc! {"x": 1, "w": {"n": 1}, "total": 1},
            doc! {"p": "a", "x": 9, "w": {"n": 1}, "total": 9},
            doc! {"p": "b", "x": 2, "w": {"n": 1}, "total": 3},
            doc! {"p": "b", "x": 1, "w": {"n": 2}, "total": 3},
        ],
    );
    check(&[doc! {"a": 1}], &[doc! {"$setWindowFields": {"output": {}}}], &[doc! {"a": 1}]);
    check(&[], &[doc! {"$setWindowFields": {"output": {"n": {"$sum": 1}}}}], &[]);
    fails_with(
        &[
            doc! {"$set": {"p": [1]}},
            doc! {"$setWindowFields": {"partitionBy": "$p", "output": {"n": {"$sum": 1}}}},
        ],
        14,
    );
}

#[test]
fn malformed_windows_are_refused() {
    let of =
        |output: Document| doc! {"$setWindowFields": {"sortBy": {"a": 1}, "output": {"v": output}}};
    let unsorted = |output: Document| doc! {"$setWindowFields": {"output": {"v": output}}};
    fails_with(&[doc! {"$setWindowFields": 5}], 9);
    fails(
        &[doc! {"$setWindowFields": {"sortBy": {"a": 1}}}],
        40414,
        "BSON field '$setWindowFields.output' is missing but a required field",
    );
    fails(
        &[doc! {"$setWindowFields": {"output": {}, "x": 1}}],
        40415,
        "BSON field '$setWindowFields.x' is an unknown field.",
    );
    fails(&[of(doc! {"$nope": "$a"})], 9, "Unrecognized window function, $nope");
    let scaler = |argument: Document| of(doc! {"$minMaxScaler": argument});
    fails_with(&[scaler(doc! {"input": "$a", "min": 1})], 9);
    fails_with(&[scaler(doc! {"input": "$a", "min": 1, "max": 1})], 9);
    fails_with(&[scaler(doc! {"input": "$a", "min": "$a", "max": 1})], 9);
    fails_with(&[scaler(doc! {"min": 1, "max": 2})], 9);
    fails(&[of(doc! {"$nope": 1})], 9, "Unrecognized window function, $nope");
    fails(
        &[unsorted(doc! {"$sum": 1, "window": {"documents": [0, 1]}})],
        5339901,
        "Document-based bounds require a sortBy",
    );
    fails(
        &[unsorted(doc! {"$sum": 1, "window": {"range": [0, 1]}})],
        5339902,
        "Range-based bounds require sortBy a single field",
    );
    fails_with(&[of(doc! {"$sum": 1, "window": {"documents": [1, 0]}})], 5339900);
    fails_with(&[of(doc! {"$sum": 1, "window": {"documents": [0.5, 1]}})], 9);
    fails_with(&[of(doc! {"$sum": 1, "window": {"documents": [0]}})], 9);
    fails_with(&[of(doc! {"$sum": 1, "window": {"documents": [0, 1], "unit": "day"}})], 9);
    fails(
        &[of(doc! {"$rank": {}, "window": {}})],
        5371601,
        "Rank style window functions take no other arguments",
    );
    fails(
        &[unsorted(doc! {"$rank": {}})],
        5371602,
        "$rank must be specified with a top level sortBy expression with exactly one element",
    );
    fails(&[of(doc! {"$rank": 1})], 5371603, "$rank must be specified with '{}' as the value");
    fails_with(&[of(doc! {"$expMovingAvg": {"input": "$a", "alpha": 1}})], 9);
    fails_with(&[of(doc! {"$derivative": {"input": "$a"}})], 9);
    fails_with(&[of(doc! {"$sum": 1, "$avg": 1})], 9);
}

#[test]
fn a_partition_larger_than_memory_spills_and_states_that_do_are_refused() {
    let text = "x".repeat(200);
    let many: Vec<Document> =
        (0..3000).map(|n| doc! {"p": n % 2, "x": n * 7919 % 3000, "text": &text}).collect();
    let stages = [
        doc! {"$setWindowFields": {"partitionBy": "$p", "sortBy": {"x": 1}, "output": {
            "s": {"$sum": "$x", "window": {"documents": [-700, 700]}},
            "e": {"$first": "$x", "window": {"documents": [-700, 700]}},
        }}},
        doc! {"$unset": "text"},
    ];
    let in_memory = run(&World::with(&[("c", &many)]), &stages).unwrap();
    let small = ExecOptions { memory_limit_bytes: 100_000, allow_disk_use: true };
    let world = World::with_options(&[("c", &many)], small, LookupHint::Hash);
    assert_eq!(run(&world, &stages).unwrap(), in_memory);
    assert!(world.spills.load(Ordering::Relaxed) > 2);
    let none = ExecOptions { memory_limit_bytes: 100_000, allow_disk_use: false };
    let unsorted = [doc! {"$setWindowFields": {"output": {"s": {"$sum": "$x"}}}}];
    let world = World::with_options(&[("c", &many)], none, LookupHint::Hash);
    assert_eq!(run(&world, &unsorted).unwrap_err().code().0, 5643011);
    let pushes = [doc! {"$setWindowFields": {"output": {"s": {"$push": "$text"}}}}];
    let world = World::with_options(&[("c", &many)], small, LookupHint::Hash);
    assert_eq!(run(&world, &pushes).unwrap_err().code().0, 5414201);
}

fn densify(range: Document) -> Document {
    doc! {"$densify": {"field": "x", "range": range}}
}

#[test]
fn densify_makes_what_is_missing() {
    let some = [doc! {"x": 0, "k": 1}, doc! {"x": 3}, doc! {"x": null}, doc! {"x": 6}];
    check(
        &some,
        &[densify(doc! {"step": 2, "bounds": "full"})],
        &[
            doc! {"x": null},
            doc! {"x": 0, "k": 1},
            doc! {"x": 2},
            doc! {"x": 3},
            doc! {"x": 4},
            doc! {"x": 6},
        ],
    );
    check(
        &some[..2],
        &[densify(doc! {"step": 2, "bounds": [-2, 5]})],
        &[doc! {"x": -2}, doc! {"x": 0, "k": 1}, doc! {"x": 2}, doc! {"x": 3}, doc! {"x": 4}],
    );
    check(&[], &[densify(doc! {"step": 1, "bounds": [0, 2]})], &[doc! {"x": 0}, doc! {"x": 1}]);
    let month = |text: &str| DateTime::parse_rfc3339_str(text).unwrap();
    check(
        &[doc! {"x": month("2024-01-31T00:00:00Z")}, doc! {"x": month("2024-04-30T00:00:00Z")}],
        &[densify(doc! {"step": 1, "unit": "month", "bounds": "full"})],
        &[
            doc! {"x": month("2024-01-31T00:00:00Z")},
            doc! {"x": month("2024-02-29T00:00:00Z")},
            doc! {"x": month("2024-03-31T00:00:00Z")},
            doc! {"x": month("2024-04-30T00:00:00Z")},
        ],
    );
}

#[test]
fn densify_keeps_partitions_apart() {
    let coffee = [
        doc! {"v": "A", "x": 600},
        doc! {"v": "A", "x": 750},
        doc! {"v": "A", "x": 950},
        doc! {"v": "G", "x": 1250},
        doc! {"v": "G", "x": 1700},
    ];
    let stage = |bounds: &str| {
        doc! {"$densify": {"field": "x", "partitionByFields": ["v"],
        "range": {"step": 200, "bounds": bounds}}}
    };
    let values = |bounds: &str, variety: &str| -> Vec<i32> {
        let found = run(&World::with(&[("c", &coffee)]), &[stage(bounds)]).unwrap();
        let mine = found.iter().filter(|d| d.get_str("v").unwrap() == variety);
        mine.map(|d| d.get_i32("x").unwrap()).collect()
    };
    assert_eq!(values("full", "A"), [600, 750, 800, 950, 1000, 1200, 1400, 1600]);
    assert_eq!(values("full", "G"), [600, 800, 1000, 1200, 1250, 1400, 1600, 1700]);
    assert_eq!(values("partition", "A"), [600, 750, 800, 950]);
    assert_eq!(values("partition", "G"), [1250, 1450, 1650, 1700]);
}

#[test]
fn malformed_densify_is_refused() {
    fails(
        &[densify(doc! {"step": -1, "bounds": "full"})],
        5733401,
        "The step parameter in a range statement must be a strictly positive numeric value",
    );
    fails_with(&[densify(doc! {"step": 1, "bounds": [1]})], 5733403);
    fails_with(&[densify(doc! {"step": 1, "bounds": [2, 1]})], 5733402);
    fails_with(&[densify(doc! {"step": 1, "bounds": "partition"})], 5733408);
    fails_with(&[densify(doc! {"step": 1, "bounds": "some"})], 5946802);
    fails_with(&[densify(doc! {"step": 1.5, "unit": "day", "bounds": "full"})], 6586400);
    fails_with(&[densify(doc! {"step": 1, "bounds": [0, 1], "unit": "day"})], 5733409);
    fails_with(
        &[doc! {"$densify": {"field": "$x", "range": {"step": 1, "bounds": "full"}}}],
        16410,
    );
    fails_with(
        &[doc! {"$set": {"x": "text"}}, densify(doc! {"step": 1, "bounds": "full"})],
        5733201,
    );
    fails_with(&[densify(doc! {"step": 1, "bounds": [0, 600_000]})], 5897900);
}

#[test]
fn bucket_boundaries_are_rounded_to_a_series() {
    let numbers: Vec<Document> = (0..100).map(|n| doc! {"_id": n, "x": n}).collect();
    let stage = |buckets: i32, series: &str| {
        doc! {"$bucketAuto": {"groupBy": "$x", "buckets": buckets, "granularity": series}}
    };
    let bucket = |min: f64, max: f64, count: i32| {
        doc! {"_id": {"min": min, "max": max}, "count": count}
    };
    check(
        &numbers,
        &[stage(5, "R20")],
        &[
            bucket(0.0, 20.0, 20),
            bucket(20.0, 40.0, 20),
            bucket(40.0, 63.0, 23),
            bucket(63.0, 90.0, 27),
            bucket(90.0, 100.0, 10),
        ],
    );
    check(
        &numbers,
        &[stage(4, "POWERSOF2")],
        &[bucket(0.0, 32.0, 32), bucket(32.0, 64.0, 32), bucket(64.0, 128.0, 36)],
    );
    check(
        &[doc! {"x": 0}, doc! {"x": 0}, doc! {"x": 7}],
        &[stage(2, "1-2-5")],
        &[bucket(0.0, 5.0, 2), bucket(5.0, 10.0, 1)],
    );
    fails(&[stage(2, "R7")], 40257, "Unknown rounding granularity 'R7'");
}
