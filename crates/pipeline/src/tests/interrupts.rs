//! Every operator, accumulator and stage of the registries over a large input ends with its operation.
//!
//! `maxTimeMS`, `killOp` and a shutdown all answer where the interrupt is asked, so the interrupt here
//! stands for each of them: it says no whenever it is asked. What runs to its end over the large input
//! without asking is found. An operator without a row is found too.

use super::memory::World;
use super::{array, context};
use crate::Pipeline;
use bson::raw::{RawBson, RawDocumentBuf};
use bson::{Bson, DateTime, Document, Timestamp, bson, doc};
use errors::{Code, Error, Result};
use expr::agg::{Expression, ParseContext, Variables};
use matcher::{Filter, MatchDetails, ParseContext as FilterContext};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use update::{Update, UpdateContext};

/// Elements of the large arrays and fields of the large document.
const LARGE: i32 = 20_000;

/// Says no.
#[derive(Default)]
struct Killed {
    asked: AtomicU32,
}

impl limits::Interrupt for Killed {
    fn check(&self) -> Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(Code::INTERRUPTED, "operation was interrupted"))
    }
}

/// Never says no.
struct Never;

impl limits::Interrupt for Never {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Runs work whose operation is killed, and says what it came to and how long it took.
fn killed<T>(work: impl FnOnce() -> Result<T>) -> (Result<T>, Duration) {
    let account = limits::Account::new(1 << 30);
    let _scope = limits::enter(Arc::new(Killed::default()), account);
    #[expect(clippy::disallowed_methods, reason = "the time it takes to stop is what is told")]
    let started = std::time::Instant::now();
    let done = work();
    (done, started.elapsed())
}

/// Must have been stopped; the longest is told at the end.
struct Worst(Duration, String);

impl Worst {
    fn none() -> Self {
        Self(Duration::ZERO, String::new())
    }

    fn stopped<T>(&mut self, what: &str, (done, took): (Result<T>, Duration)) {
        match done {
            Ok(_) => panic!("{what} ran to its end"),
            Err(error) => assert_eq!(error.code(), Code::INTERRUPTED, "{what}: {error}"),
        }
        // What is wanted is 50 ms; the bound is for a slow build on a loaded machine.
        assert!(took < Duration::from_secs(5), "{what} took {took:?}");
        if took > self.0 {
            *self = Self(took, what.to_owned());
        }
    }

    #[expect(clippy::print_stdout, reason = "a figure for whoever runs the test")]
    fn tell(&self, of: &str) {
        println!("{of}: the slowest to stop was {} with {:?}", self.1, self.0);
    }
}

/// A document of large values: `a` and `b` are arrays of numbers, `c` is the same as `a`.
fn large() -> RawDocumentBuf {
    let numbers = |from: i32| Bson::Array((from..from + LARGE).map(Bson::Int32).collect());
    let pairs = (0..LARGE).map(|n| bson!([format!("k{n}"), n])).collect();
    let object: Document = (0..LARGE).map(|n| (format!("k{n}"), Bson::Int32(n))).collect();
    let document = doc! {
        "_id": 1, "n": LARGE, "a": numbers(0), "b": numbers(LARGE / 2), "c": numbers(0),
        "ones": vec![1; LARGE as usize], "zeros": vec![0; LARGE as usize],
        "documents": (0..LARGE).map(|n| bson!({"x": n, "y": {"z": n}})).collect::<Vec<_>>(),
        "pairs": Bson::Array(pairs), "object": object,
        "text": "ab".repeat(1 << 20), "other": "AB".repeat(1 << 20),
        "line": {"type": "LineString", "coordinates":
            (0..LARGE).map(|n| bson!([f64::from(n) / 1000.0, f64::from(n % 7)])).collect::<Vec<_>>()},
    };
    RawDocumentBuf::try_from(&document).unwrap()
}

/// How an operator of expressions is tried.
enum Row {
    /// Over values of bounded size, once for each element of a large array, `$$this`.
    Each(Bson),
    /// As it stands: the operator itself goes over something large.
    Whole(Bson),
}

fn expression_row(name: &str) -> Option<Row> {
    use Row::{Each, Whole};
    // Always 1, and not known to be.
    let one = bson!({"$add": [1, {"$mod": ["$$this", 1]}]});
    let text = bson!({"$toString": one.clone()});
    let date = bson!({"$toDate": {"$toLong": one.clone()}});
    let list = bson!([one.clone(), 2, 3]);
    let object = bson!({"k": one.clone()});
    Some(match name {
        "$abs" | "$acos" | "$acosh" | "$asin" | "$asinh" | "$atan" | "$atanh" | "$bitNot"
        | "$ceil" | "$cos" | "$cosh" | "$degreesToRadians" | "$exp" | "$floor" | "$isNumber"
        | "$ln" | "$log10" | "$not" | "$radiansToDegrees" | "$round" | "$sigmoid" | "$sin"
        | "$sinh" | "$sqrt" | "$tan" | "$tanh" | "$toBool" | "$toDecimal" | "$toDouble"
        | "$toInt" | "$toLong" | "$toString" | "$trunc" | "$type" | "$isArray" | "$expr"
        | "$literal" | "$const" => Each(one),
        "$add" | "$and" | "$atan2" | "$bitAnd" | "$bitOr" | "$bitXor" | "$divide" | "$ifNull"
        | "$mod" | "$multiply" | "$or" | "$pow" | "$subtract" => Each(bson!([one, 1])),
        "$log" => Each(bson!([one, 10])),
        "$cond" => Each(bson!([one, 1, 2])),
        "$switch" => Each(bson!({"branches": [{"case": one, "then": 1}]})),
        "$let" => Each(bson!({"vars": {"x": one}, "in": "$$x"})),
        "$rand" => Each(bson!({})),
        "$meta" => Each(bson!("indexKey")),
        "$function" => {
            Each(bson!({"body": "function(x) { return x }", "args": ["$$this"], "lang": "js"}))
        }
        "$toDate" => Each(bson!({"$toLong": one})),
        "$toObjectId" => Each(bson!({"$concat": [{"$toString": one}, "0".repeat(23)]})),
        "$toUUID" => Each(bson!({"$concat": [
            {"$toString": one}, "0000000-0000-4000-8000-000000000000"]})),
        "$convert" => Each(bson!({"input": one, "to": "string"})),
        "$binarySize" => Each(text),
        "$first" => Each(bson!([list])),
        "$bsonSize" => Each(object),
        "$tsIncrement" | "$tsSecond" => Each(bson!({"$ifNull": [
            {"$literal": Timestamp { time: 1, increment: 1 }}, one]})),
        "$dateAdd" | "$dateSubtract" => {
            Each(bson!({"startDate": date, "unit": "day", "amount": 1}))
        }
        "$dateDiff" => Each(bson!({"startDate": date.clone(), "endDate": date, "unit": "day"})),
        "$dateTrunc" => Each(bson!({"date": date, "unit": "day"})),
        "$dateToParts" | "$dateToString" => Each(bson!({"date": date})),
        "$dateFromParts" => Each(bson!({"year": {"$add": [2000, one]}})),
        "$dateFromString" => Each(bson!({"dateString": {"$concat": ["200", text, "-01-01"]}})),
        "$year" | "$month" | "$week" | "$hour" | "$minute" | "$second" | "$millisecond"
        | "$dayOfMonth" | "$dayOfWeek" | "$dayOfYear" | "$isoDayOfWeek" | "$isoWeek"
        | "$isoWeekYear" => Each(date),
        // Each comparison goes over two large values.
        "$cmp" | "$eq" | "$gt" | "$gte" | "$lt" | "$lte" | "$ne" => Each(bson!(["$a", "$c"])),
        "$getField" => Each(bson!({"field": "absent", "input": "$object"})),
        "$toHashedIndexKey" => Each(bson!("$a")),

        "$allElementsTrue" => Whole(bson!(["$ones"])),
        "$anyElementTrue" => Whole(bson!(["$zeros"])),
        "$arrayElemAt" => Whole(bson!(["$a", LARGE - 1])),
        "$arrayToObject" => Whole(bson!("$pairs")),
        "$avg" | "$max" | "$min" | "$stdDevPop" | "$stdDevSamp" | "$sum" | "$size" | "$last"
        | "$reverseArray" => Whole(bson!("$a")),
        "$concat" => Whole(bson!(["$text", "$text"])),
        "$concatArrays" | "$setDifference" | "$setEquals" | "$setIntersection" | "$setIsSubset"
        | "$setUnion" => Whole(bson!(["$a", "$b"])),
        "$filter" => Whole(bson!({"input": "$a", "cond": {"$in": ["$$this", "$b"]}})),
        "$map" => Whole(bson!({"input": "$a", "in": {"$indexOfArray": ["$b", "$$this"]}})),
        "$reduce" => Whole(bson!({"input": "$a", "initialValue": 0, "in": {"$add": [
            "$$value", {"$reduce": {"input": "$a", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}},
        ]}})),
        "$firstN" | "$lastN" | "$maxN" | "$minN" => Whole(bson!({"n": LARGE / 2, "input": "$a"})),
        "$in" => Whole(bson!([-1, "$a"])),
        "$indexOfArray" => Whole(bson!(["$a", -1])),
        "$indexOfBytes" | "$indexOfCP" => Whole(bson!(["$text", "zz"])),
        "$median" => Whole(bson!({"input": "$a", "method": "approximate"})),
        "$percentile" => Whole(bson!({"input": "$a", "p": [0.5], "method": "approximate"})),
        "$mergeObjects" => Whole(bson!(["$object", "$object"])),
        "$objectToArray" => Whole(bson!("$object")),
        "$range" => Whole(bson!([0, "$n"])),
        "$regexMatch" | "$regexFind" | "$regexFindAll" => {
            Whole(bson!({"input": "$text", "regex": "(a|b)+(.)\\2z"}))
        }
        "$replaceAll" => Whole(bson!({"input": "$text", "find": "a", "replacement": "cc"})),
        "$replaceOne" => Whole(bson!({"input": "$text", "find": "zz", "replacement": "cc"})),
        "$setField" => Whole(bson!({"field": "new", "input": "$object", "value": 1})),
        "$unsetField" => Whole(bson!({"field": "absent", "input": "$object"})),
        "$slice" => Whole(bson!(["$a", LARGE / 2])),
        "$sortArray" => Whole(bson!({"input": "$documents", "sortBy": {"y.z": -1}})),
        "$split" => Whole(bson!(["$text", "b"])),
        "$strLenCP" | "$strLenBytes" | "$toLower" | "$toUpper" => Whole(bson!("$text")),
        "$strcasecmp" => Whole(bson!(["$text", "$other"])),
        "$substr" | "$substrBytes" | "$substrCP" => Whole(bson!(["$text", 1_000_000, 500_000])),
        "$trim" | "$ltrim" | "$rtrim" => Whole(bson!({"input": "$text", "chars": "ab"})),
        "$zip" => Whole(bson!({"inputs": ["$a", "$b"]})),
        _ => return None,
    })
}

fn variables() -> Arc<Variables> {
    Arc::new(Variables::new(DateTime::from_millis(0), 1))
}

fn bson_of(value: &Bson) -> RawBson {
    RawBson::try_from(value.clone()).unwrap()
}

#[test]
fn every_expression_operator_stops() {
    let (document, variables, mut worst) = (large(), variables(), Worst::none());
    for name in expr::agg::operator_names() {
        let row = expression_row(name).unwrap_or_else(|| panic!("{name} has no row"));
        let expression = match row {
            Row::Whole(argument) => bson!({name: argument}),
            Row::Each(argument) => bson!({"$map": {"input": "$a", "in": {name: argument}}}),
        };
        let raw = bson_of(&expression);
        let parsed = match Expression::parse(raw.as_raw_bson_ref(), &ParseContext::new()) {
            Ok(parsed) => parsed.optimize(),
            // What needs something that this operation does not have.
            Err(error) if name == "$meta" => {
                assert_ne!(error.code(), Code::INTERRUPTED);
                continue;
            }
            Err(error) => panic!("{expression}: {error}"),
        };
        let done = killed(|| parsed.evaluate(&document, &variables).map(drop));
        worst.stopped(&expression.to_string(), done);
    }
    worst.tell("expressions");
}

/// The argument of a filter operator under a field, and the field.
fn filter_row(name: &str) -> Option<(&'static str, Bson)> {
    let ring = bson!([[[0, 0], [30, 0], [30, 30], [0, 30], [0, 0]]]);
    let area = bson!({"$geometry": {"type": "Polygon", "coordinates": ring}});
    Some(match name {
        "$all" => ("a", bson!([LARGE - 1, LARGE - 2, -1])),
        "$eq" | "$gt" | "$gte" | "$lt" | "$lte" => {
            ("documents.y.z", Bson::Int32(if name.starts_with("$l") { -1 } else { LARGE + 1 }))
        }
        "$ne" => ("documents.y.z", Bson::Int32(-1)),
        "$in" | "$nin" => ("a", bson!([-1, -2, -3])),
        "$exists" => ("documents.q", bson!(true)),
        "$type" => ("a", bson!("string")),
        "$mod" => ("a", bson!([LARGE + 1, LARGE])),
        "$size" => ("a", bson!(LARGE + 1)),
        "$regex" | "$options" => ("text", bson!("(a|b)+(.)\\2z")),
        "$elemMatch" => ("documents", bson!({"x": -1})),
        "$not" => ("a", bson!({"$lt": 0})),
        "$bitsAllClear" | "$bitsAnyClear" => ("ones", bson!(1)),
        "$bitsAllSet" | "$bitsAnySet" => ("zeros", bson!(1)),
        "$geoWithin" | "$within" | "$geoIntersects" => ("line", area),
        _ => return None,
    })
}

/// A filter with an operator in the place of a field's name.
fn top_row(name: &str) -> Option<Bson> {
    let never = bson!({"documents.x": -1});
    Some(match name {
        "$and" | "$or" | "$nor" => bson!([never]),
        "$expr" => bson!({"$in": [-1, "$a"]}),
        "$jsonSchema" => {
            bson!({"properties": {"a": {"items": {"minimum": 0}, "uniqueItems": true}}})
        }
        _ => return None,
    })
}

/// Filter operators that do not go over a document: they annotate, draw, or are answered by an index.
const NOT_OVER_VALUES: &[&str] = &[
    "$comment",
    "$alwaysTrue",
    "$alwaysFalse",
    "$sampleRate",
    "$text",
    "$where",
    "$near",
    "$nearSphere",
    "$geoNear",
    "$maxDistance",
    "$minDistance",
    "$uniqueDocs",
    // Cannot be reached by a client.
    "$ref",
    "$id",
    "$db",
    "$eqIgnoringCase",
];

#[test]
fn every_filter_operator_stops() {
    let (document, mut worst) = (large(), Worst::none());
    let ctx = FilterContext { names: ParseContext::new(), variables: variables(), text: true };
    let [top, under_field] = matcher::operator_names();
    for (name, is_top) in
        top.iter().map(|name| (*name, true)).chain(under_field.iter().map(|name| (*name, false)))
    {
        if NOT_OVER_VALUES.contains(&name) {
            continue;
        }
        let filter = if is_top {
            let argument = top_row(name).unwrap_or_else(|| panic!("{name} has no row"));
            doc! {name: argument}
        } else {
            let (field, argument) = filter_row(name).unwrap_or_else(|| panic!("{name} has no row"));
            if name == "$options" {
                doc! {field: {"$regex": argument, "$options": "i"}}
            } else {
                doc! {field: {name: argument}}
            }
        };
        let parsed = RawDocumentBuf::try_from(&filter).unwrap();
        let parsed = Filter::parse(&parsed, &ctx).unwrap_or_else(|e| panic!("{filter}: {e}"));
        worst.stopped(&filter.to_string(), killed(|| parsed.matches(&document)));
    }
    worst.tell("filters");
}

fn update_row(name: &str) -> Option<Document> {
    Some(match name {
        "$addToSet" => doc! {"a": {"$each": [-1, -2]}},
        "$pop" => doc! {"a": 1},
        "$pull" => doc! {"documents": {"x": {"$lt": 0}}},
        "$pullAll" => doc! {"a": [-1, -2]},
        "$push" => doc! {"a": {"$each": [-1], "$sort": -1, "$slice": 5}},
        "$inc" | "$mul" => doc! {"object.k1": 2},
        "$bit" => doc! {"object.k1": {"or": 2}},
        "$max" => doc! {"object.k1": 1_000_000},
        "$min" => doc! {"object.k1": -1},
        "$set" => doc! {"documents.$[].x": 2},
        "$unset" => doc! {"documents.$[].x": ""},
        "$currentDate" => doc! {"object.now": true},
        "$rename" => doc! {"object.k1": "object.new"},
        // Does nothing to a document that is there; the walk is the same.
        "$setOnInsert" => doc! {"object.new": 1},
        _ => return None,
    })
}

#[test]
fn every_update_operator_stops() {
    let (document, mut worst) = (large(), Worst::none());
    let ctx = FilterContext { names: ParseContext::new(), variables: variables(), text: true };
    let now = UpdateContext {
        details: MatchDetails::default(),
        now: DateTime::from_millis(0),
        timestamp: Timestamp { time: 1, increment: 1 },
        keep_empty_timestamps: false,
    };
    for name in update::operator_names() {
        let argument = update_row(name).unwrap_or_else(|| panic!("{name} has no row"));
        let update = bson!({name: argument});
        let parsed = bson_of(&update);
        let refused = |_: &bson::raw::RawArray| unreachable!("not a pipeline");
        let parsed = Update::parse(parsed.as_raw_bson_ref(), None, &ctx, &refused)
            .unwrap_or_else(|error| panic!("{update}: {error}"));
        worst.stopped(&update.to_string(), killed(|| parsed.apply(&document, &now)));
    }
    worst.tell("updates");
}

fn accumulator_argument(name: &str) -> Option<Bson> {
    let sorted = bson!({"sortBy": {"x": 1}, "output": "$x"});
    Some(match name {
        "$sum" | "$avg" | "$min" | "$max" | "$first" | "$last" | "$push" | "$addToSet"
        | "$stdDevPop" | "$stdDevSamp" => bson!("$x"),
        "$concatArrays" | "$setUnion" => bson!("$list"),
        "$count" => bson!({}),
        "$mergeObjects" => bson!("$object"),
        "$firstN" | "$lastN" | "$minN" | "$maxN" => bson!({"n": 100, "input": "$x"}),
        "$top" | "$bottom" => sorted,
        "$topN" | "$bottomN" => bson!({"n": 100, "sortBy": {"x": 1}, "output": "$x"}),
        "$median" => bson!({"input": "$x", "method": "approximate"}),
        "$percentile" => bson!({"input": "$x", "p": [0.5], "method": "approximate"}),
        "$accumulator" => bson!({
            "init": "function() { return 0 }", "accumulate": "function(s, x) { return s + x }",
            "accumulateArgs": ["$x"], "merge": "function(a, b) { return a + b }", "lang": "js",
        }),
        _ => return None,
    })
}

fn window_argument(name: &str) -> Option<Bson> {
    if let Some(argument) = accumulator_argument(name) {
        return Some(argument);
    }
    Some(match name {
        "$rank" | "$denseRank" | "$documentNumber" => bson!({}),
        "$shift" => bson!({"output": "$x", "by": 1}),
        "$expMovingAvg" => bson!({"input": "$x", "N": 5}),
        "$derivative" | "$integral" | "$minMaxScaler" => bson!({"input": "$x"}),
        "$covariancePop" | "$covarianceSamp" => bson!(["$x", "$x"]),
        "$linearFill" | "$locf" => bson!("$x"),
        _ => return None,
    })
}

fn stage_row(name: &str) -> Option<Bson> {
    Some(match name {
        "$addFields" | "$set" => bson!({"y": "$x"}),
        "$bucket" => bson!({"groupBy": "$x", "boundaries": [0, 1_000_000]}),
        "$bucketAuto" => bson!({"groupBy": "$x", "buckets": 5}),
        "$count" => bson!("n"),
        "$densify" => bson!({"field": "x", "range": {"step": 0.5, "bounds": "full"}}),
        "$documents" => bson!({"$map": {"input": {"$range": [0, 20_000]}, "in": {"x": "$$this"}}}),
        "$facet" => bson!({"all": [{"$match": {"x": -1}}]}),
        "$fill" => bson!({"sortBy": {"x": 1}, "output": {"y": {"method": "locf"}}}),
        "$graphLookup" => bson!({"from": "c", "startWith": "$x", "connectFromField": "next",
            "connectToField": "x", "as": "found"}),
        "$group" => bson!({"_id": "$x"}),
        "$limit" | "$skip" => bson!(1_000_000),
        "$lookup" => bson!({"from": "c", "localField": "x", "foreignField": "x", "as": "found"}),
        "$match" | "$sort" => bson!({"x": -1}),
        "$project" => bson!({"x": 1}),
        "$unset" => bson!("object"),
        "$rankFusion" => bson!({"input": {"pipelines": {"up": [{"$sort": {"x": 1}}],
            "down": [{"$sort": {"x": -1}}]}}}),
        "$redact" => bson!("$$KEEP"),
        "$score" => bson!({"score": "$x", "normalization": "minMaxScaler"}),
        "$scoreFusion" => bson!({"input": {"normalization": "minMaxScaler", "pipelines": {
            "up": [{"$score": {"score": "$x"}}],
            "down": [{"$score": {"score": {"$subtract": [0, "$x"]}}}]}},
            "combination": {"method": "expression", "expression": {"$add": ["$$up", "$$down"]}}}),
        "$replaceRoot" => bson!({"newRoot": {"x": "$x"}}),
        "$replaceWith" => bson!({"x": "$x"}),
        "$sample" => bson!({"size": 3000}),
        "$setWindowFields" => bson!({"sortBy": {"x": 1}, "output": {"y": {"$sum": "$x"}}}),
        "$sortByCount" => bson!("$x"),
        "$unionWith" => bson!("c"),
        "$unwind" => bson!("$list"),
        _ => return None,
    })
}

/// Stages whose documents come from the environment, or go there: it asks the interrupt itself.
const OF_THE_ENVIRONMENT: &[&str] =
    &["$changeStream", "$changeStreamSplitLargeEvent", "$out", "$merge", "$geoNear"];

/// A world of many small documents.
fn many() -> Arc<World> {
    let documents: Vec<Document> = (0..3000)
        .map(|n| doc! {"_id": n, "x": n, "next": n + 1, "list": [n, n + 1], "object": {"a": n}})
        .collect();
    World::with(&[("c", &documents)])
}

fn stops(world: &Arc<World>, stages: &[Document], worst: &mut Worst) {
    let ctx = context();
    let pipeline =
        Pipeline::parse(&array(stages), &ctx).unwrap_or_else(|e| panic!("{stages:?}: {e}"));
    let done = killed(|| {
        let mut source = world.run(&pipeline, &ctx)?;
        while source.next()?.is_some() {}
        Ok(())
    });
    worst.stopped(&format!("{stages:?}"), done);
}

#[test]
fn every_stage_accumulator_and_window_function_stops() {
    let (world, mut worst) = (many(), Worst::none());
    let metadata: Vec<&str> = vec![
        "$collStats",
        "$currentOp",
        "$indexStats",
        "$listCatalog",
        "$listClusterCatalog",
        "$listLocalSessions",
        "$listSessions",
        "$planCacheStats",
        "$querySettings",
        "$queryStats",
    ];
    for (name, refused) in crate::stage::names() {
        if refused.is_some() || OF_THE_ENVIRONMENT.contains(&name) || metadata.contains(&name) {
            continue;
        }
        let argument = stage_row(name).unwrap_or_else(|| panic!("{name} has no row"));
        stops(&world, &[doc! {name: argument}], &mut worst);
    }
    for name in expr::accumulator::operator_names(false) {
        let argument = accumulator_argument(name).unwrap_or_else(|| panic!("{name} has no row"));
        stops(&world, &[doc! {"$group": {"_id": null, "y": {name: argument}}}], &mut worst);
    }
    for name in crate::stage::window::names() {
        let argument = window_argument(name).unwrap_or_else(|| panic!("{name} has no row"));
        let mut output = doc! {name: argument};
        if name == "$derivative" {
            output.insert("window", doc! {"documents": [-1, 0]});
        }
        let stage = doc! {"$setWindowFields": {"sortBy": {"x": 1}, "output": {"y": output}}};
        stops(&world, &[stage], &mut worst);
    }
    worst.tell("stages");
}

#[test]
fn what_a_stage_cannot_hold_is_spilled_or_refused() {
    let rows: Vec<Document> =
        (0..2000).map(|n| doc! {"_id": n, "text": "x".repeat(1000), "n": n % 7}).collect();
    let world = World::with(&[("c", &rows)]);
    let run = |stages: &[Document]| -> Result<usize> {
        // Room for a third of the documents.
        let account = limits::Account::new(700 << 10);
        let _scope = limits::enter(Arc::new(Never), Arc::clone(&account));
        let ctx = context();
        let pipeline = Pipeline::parse(&array(stages), &ctx)?;
        let mut source = world.run(&pipeline, &ctx)?;
        let mut count = 0;
        while source.next()?.is_some() {
            count += 1;
        }
        drop(source);
        assert_eq!(account.total(), 0, "{stages:?}");
        Ok(count)
    };
    for (stage, count) in [
        (doc! {"$sort": {"n": 1, "text": -1}}, 2000),
        (doc! {"$group": {"_id": "$_id", "text": {"$push": "$text"}}}, 2000),
        (doc! {"$bucketAuto": {"groupBy": "$n", "buckets": 3}}, 3),
        (
            doc! {"$setWindowFields": {"sortBy": {"n": 1}, "output": {"r": {"$denseRank": {}}}}},
            2000,
        ),
        (doc! {"$facet": {"n": [{"$count": "n"}]}}, 1),
        (doc! {"$sample": {"size": 1900}}, 1900),
        (doc! {"$score": {"score": "$n", "normalization": "minMaxScaler"}}, 2000),
        (
            doc! {"$scoreFusion": {"input": {"normalization": "none", "pipelines": {"n": [
            {"$score": {"score": "$n"}}, {"$limit": 9}]}}}},
            9,
        ),
        (
            doc! {"$rankFusion": {"input": {"pipelines": {"n": [{"$sort": {"n": 1}}, {"$limit": 9}]}}}},
            9,
        ),
        (
            doc! {"$lookup": {"from": "c", "localField": "_id", "foreignField": "_id", "as": "f",
            "pipeline": [{"$project": {"n": 1}}]}},
            2000,
        ),
    ] {
        if stage.contains_key("$lookup") {
            // Asks for each of a few documents.
            let few = [doc! {"$limit": 3}, stage];
            assert_eq!(run(&few).unwrap(), 3, "{few:?}");
            continue;
        }
        assert_eq!(
            run(std::slice::from_ref(&stage)).unwrap_or_else(|e| panic!("{stage}: {e}")),
            count,
            "{stage}"
        );
    }
    for stage in [
        doc! {"$group": {"_id": null, "all": {"$push": "$text"}}},
        doc! {"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"all": {"$push": "$text",
        "window": {"documents": ["unbounded", "current"]}}}}},
        doc! {"$bucketAuto": {"groupBy": "$n", "buckets": 1, "output": {"all": {"$push": "$text"}}}},
        doc! {"$rankFusion": {"input": {"pipelines": {"n": [{"$sort": {"n": 1}}]}}}},
        doc! {"$scoreFusion": {"input": {"normalization": "none",
        "pipelines": {"n": [{"$score": {"score": "$n"}}]}}}},
    ] {
        let error = run(std::slice::from_ref(&stage)).expect_err("there is no room");
        assert_eq!(error.code(), Code::EXCEEDED_MEMORY_LIMIT, "{stage}: {error}");
    }
}

#[test]
fn a_value_that_has_no_room_is_refused_before_it_is_made() {
    let (document, variables) = (large(), variables());
    let account = limits::Account::new(64 << 10);
    let _scope = limits::enter(Arc::new(Never), Arc::clone(&account));
    for expression in [
        bson!({"$range": [0, "$n"]}),
        bson!({"$concatArrays": ["$a", "$b"]}),
        bson!({"$map": {"input": "$a", "in": {"x": "$$this"}}}),
        bson!({"$filter": {"input": "$a", "cond": true}}),
        bson!({"$setUnion": ["$a", "$b"]}),
        bson!({"$sortArray": {"input": "$a", "sortBy": 1}}),
        bson!({"$zip": {"inputs": ["$a", "$b"]}}),
        bson!({"$reduce": {"input": "$a", "initialValue": "", "in": {"$concat": ["$$value", "12345"]}}}),
        bson!({"$reduce": {"input": "$a", "initialValue": [], "in": {"$setUnion": ["$$value", ["$$this"]]}}}),
        bson!({"$objectToArray": "$object"}),
        bson!({"$mergeObjects": ["$object", {"a": 1}]}),
        bson!({"$toUpper": "$text"}),
        bson!({"$split": ["$text", "b"]}),
        bson!({"$replaceAll": {"input": "$text", "find": "a", "replacement": "b"}}),
        bson!({"$regexFindAll": {"input": "$text", "regex": "a"}}),
        bson!(["$a", "$b"]),
        bson!({"a": "$a", "b": "$b"}),
    ] {
        let raw = bson_of(&expression);
        let parsed = Expression::parse(raw.as_raw_bson_ref(), &ParseContext::new()).unwrap();
        // A compiled pattern.
        let before = account.total();
        let error = parsed.evaluate(&document, &variables).expect_err("there is no room");
        assert_eq!(error.code(), Code::EXCEEDED_MEMORY_LIMIT, "{expression}: {error}");
        assert_eq!(account.total(), before, "{expression}");
    }
}
