//! Random inputs, nested deep in whatever each parser follows: an error or an answer, never the end of
//! the stack. Values nest up to the 200 levels that `wire` lets through; dotted paths have more parts.
//!
//! `FERN_DEPTH_CASES=100000` makes it the long form.

use super::memory::World;
use super::{array, context};
use crate::Pipeline;
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use bson::{Bson, DateTime, Timestamp, bson, doc};
use bsonval::SortPattern;
use expr::agg::{Expression, ParseContext, Variables};
use matcher::{Filter, MatchDetails, ParseContext as FilterContext};
use std::sync::Arc;
use update::{Projection, Update, UpdateContext};

/// Cases of the short form: a few seconds.
const CASES: u32 = 2000;

/// splitmix64
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    /// Mostly near the limits, sometimes far beyond.
    fn depth(&mut self) -> usize {
        match self.below(20) {
            0 => self.below(2500),
            1..5 => 150 + self.below(150),
            _ => self.below(150),
        }
    }
}

/// How deep BSON may nest that a client sends.
const MAX_LEVELS: usize = 200;

/// What a level of nesting looks like; `"X"` stands for the next.
type Wrapper = fn() -> Bson;

const EXPRESSIONS: &[Wrapper] = &[
    || bson!({"$not": ["X"]}),
    || bson!({"$and": ["X", true]}),
    || bson!({"a": "X"}),
    || bson!(["X"]),
    || bson!({"$add": [1, "X"]}),
    || bson!({"$cond": ["X", 1, 2]}),
    || bson!({"$let": {"vars": {"v": "X"}, "in": 1}}),
    || bson!({"$map": {"input": [1], "in": "X"}}),
    || bson!({"$filter": {"input": ["X"], "cond": true}}),
    || bson!({"$reduce": {"input": [1], "initialValue": 1, "in": "X"}}),
    || bson!({"$switch": {"branches": [{"case": "X", "then": 1}], "default": 1}}),
    || bson!({"$sortArray": {"input": ["X"], "sortBy": 1}}),
    || bson!({"$regexMatch": {"input": {"$toString": "X"}, "regex": "a"}}),
    || bson!({"$convert": {"input": "X", "to": "string", "onError": "x"}}),
    || bson!({"$expr": "X"}),
    || bson!({"$literal": "X"}),
    || bson!({"$getField": {"field": "a", "input": "X"}}),
];

const FILTERS: &[Wrapper] = &[
    || bson!({"$and": ["X"]}),
    || bson!({"$nor": ["X"]}),
    || bson!({"a": {"$elemMatch": "X"}}),
    || bson!({"a": "X"}),
    || bson!({"a": {"$in": ["X"]}}),
    || bson!({"a": {"$not": {"$elemMatch": "X"}}}),
    || bson!({"a": {"$eq": "X"}}),
    || bson!({"$expr": "X"}),
    || bson!({"$jsonSchema": "X"}),
];

const SCHEMAS: &[Wrapper] = &[
    || bson!({"properties": {"a": "X"}}),
    || bson!({"items": "X"}),
    || bson!({"items": ["X"]}),
    || bson!({"allOf": ["X"]}),
    || bson!({"oneOf": ["X"]}),
    || bson!({"not": "X"}),
    || bson!({"patternProperties": {"a": "X"}}),
    || bson!({"additionalProperties": "X"}),
    || bson!({"dependencies": {"a": "X"}}),
    || bson!({"enum": ["X"]}),
];

const PROJECTIONS: &[Wrapper] = &[
    || bson!({"a": "X"}),
    || bson!({"a": {"$elemMatch": "X"}}),
    || bson!({"a": {"$add": [1, "X"]}}),
];

const STAGES: &[Wrapper] = &[
    || bson!([{"$facet": {"a": "X"}}]),
    || bson!([{"$lookup": {"from": "c", "pipeline": "X", "as": "x"}}]),
    || bson!([{"$unionWith": {"coll": "c", "pipeline": "X"}}]),
    || bson!([{"$match": {"$and": [{"a": {"$elemMatch": "X"}}]}}]),
    || bson!([{"$project": {"a": "X"}}]),
];

const GEOMETRIES: &[Wrapper] = &[
    || bson!({"type": "GeometryCollection", "geometries": ["X"]}),
    || bson!({"type": "Polygon", "coordinates": ["X"]}),
    || bson!(["X"]),
];

fn put(inside: RawBsonRef<'_>, wrapper: RawBsonRef<'_>) -> RawBson {
    match wrapper {
        RawBsonRef::String("X") => inside.into(),
        RawBsonRef::Document(document) => {
            let mut built = RawDocumentBuf::new();
            for element in document.iter_elements() {
                let element = element.unwrap();
                built.append(element.key(), put(inside, element.value().unwrap()));
            }
            RawBson::Document(built)
        }
        RawBsonRef::Array(list) => {
            RawBson::Array(list.into_iter().map(|value| put(inside, value.unwrap())).collect())
        }
        other => other.into(),
    }
}

/// How many levels lie around the `"X"`; `None` where there is none.
fn levels_of(wrapper: &Bson) -> Option<usize> {
    match wrapper {
        Bson::String(text) if text == "X" => Some(0),
        Bson::Array(list) => list.iter().find_map(levels_of).map(|levels| levels + 1),
        Bson::Document(document) => document.values().find_map(levels_of).map(|levels| levels + 1),
        _ => None,
    }
}

fn nested(random: &mut Random, wrappers: &[Wrapper], innermost: Bson) -> RawBson {
    // Often the same one all the way: what is checked at one kind of level only is found so.
    let same = (random.below(2) == 0).then(|| random.below(wrappers.len()));
    let mut value = RawBson::try_from(innermost).unwrap();
    let mut levels = 4;
    for _ in 0..random.depth() {
        let at = same.unwrap_or_else(|| random.below(wrappers.len()));
        let wrapper = wrappers[at]();
        levels += levels_of(&wrapper).unwrap_or(0);
        if levels > MAX_LEVELS {
            break;
        }
        let wrapper = RawBson::try_from(wrapper).unwrap();
        value = put(value.as_raw_bson_ref(), wrapper.as_raw_bson_ref());
    }
    value
}

/// Each parser once, and what it made over a deep document.
fn one_round(random: &mut Random) {
    let variables = Arc::new(Variables::new(DateTime::from_millis(0), 1));
    let ctx =
        FilterContext { names: ParseContext::new(), variables: Arc::clone(&variables), text: true };
    let deep = nested(random, &[|| bson!({"a": "X"}), || bson!({"a": ["X"]})], bson!({"a": 1}));
    let RawBson::Document(deep) = deep else { unreachable!("a document all the way") };
    let other = nested(random, EXPRESSIONS, bson!(1));

    let value = nested(random, EXPRESSIONS, bson!("$a.a"));
    if let Ok(parsed) = Expression::parse(value.as_raw_bson_ref(), &ParseContext::new()) {
        drop(parsed.optimize().evaluate(&deep, &variables));
    }
    let filters = [
        nested(random, FILTERS, bson!({"a": 1})),
        {
            let schema = nested(random, SCHEMAS, bson!({"type": "object"}));
            let shell = RawBson::try_from(bson!({"$jsonSchema": "X"})).unwrap();
            put(schema.as_raw_bson_ref(), shell.as_raw_bson_ref())
        },
        {
            let geometry =
                nested(random, GEOMETRIES, bson!({"type": "Point", "coordinates": [1, 1]}));
            let shell =
                RawBson::try_from(bson!({"a": {"$geoIntersects": {"$geometry": "X"}}})).unwrap();
            put(geometry.as_raw_bson_ref(), shell.as_raw_bson_ref())
        },
    ];
    for filter in &filters {
        let RawBson::Document(filter) = filter else { continue };
        if let Ok(parsed) = Filter::parse(filter, &ctx) {
            drop(parsed.matches(&deep));
            drop(parsed.equalities_for_upsert());
            drop(parsed.to_document());
        }
    }
    if let RawBson::Document(projection) = nested(random, PROJECTIONS, bson!(1))
        && let Ok(parsed) = Projection::parse(&projection, &ctx)
    {
        drop(parsed);
    }
    let now = UpdateContext {
        details: MatchDetails::default(),
        now: DateTime::from_millis(0),
        timestamp: Timestamp { time: 1, increment: 1 },
        keep_empty_timestamps: false,
    };
    let refused = |_: &bson::raw::RawArray| Err(errors::Error::bad_value("no pipeline"));
    let shells: [Wrapper; 5] = [
        || bson!({"$set": {"a": "X"}}),
        || bson!({"$pull": {"a": "X"}}),
        || bson!({"$push": {"a": {"$each": ["X"]}}}),
        || bson!({"$addToSet": {"a": "X"}}),
        || bson!("X"),
    ];
    let shell = RawBson::try_from(shells[random.below(5)]()).unwrap();
    let update = put(other.as_raw_bson_ref(), shell.as_raw_bson_ref());
    if let Ok(parsed) = Update::parse(update.as_raw_bson_ref(), None, &ctx, &refused) {
        drop(parsed.apply(&deep, &now));
    }
    let path = vec!["a"; random.depth().max(1)].join(".");
    if let Ok(pattern) = SortPattern::parse(&RawDocumentBuf::try_from(&doc! {&path: 1}).unwrap()) {
        drop(pattern.key(&deep, None));
    }
    drop(Expression::field(&path).map(|field| field.evaluate(&deep, &variables).map(drop)));
    if let RawBson::Array(stages) = nested(random, STAGES, bson!([]))
        && let Ok(parsed) = Pipeline::parse(&stages, &context())
    {
        drop(parsed.optimize());
    }
    drop(array(&[]));
    let (a, b) = (RawBsonRef::Document(&deep), other.as_raw_bson_ref());
    assert!(keystring::compare(a, a).is_eq() && keystring::compare(b, b).is_eq());
    let mut key = keystring::KeyBuilder::new();
    drop(key.append_under(b, keystring::Direction::Ascending, None));
    drop(expr::agg::value_to_string(b));
}

#[test]
fn no_depth_of_any_input_ends_the_process() {
    let cases = std::env::var("FERN_DEPTH_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    // As much as a worker of the server has.
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        let mut random = Random(1);
        // Each round is about ten inputs.
        (0..cases / 10).for_each(|_| one_round(&mut random));
    });
    thread.unwrap().join().unwrap();
}

#[test]
fn the_longest_pipeline_runs_or_is_refused() {
    let stages: Vec<_> = (0..1000)
        .map(|at| match at % 4 {
            0 => doc! {"$addFields": {"a": {"$add": ["$_id", 1]}}},
            1 => doc! {"$match": {"a": {"$gte": 0}}},
            2 => doc! {"$unwind": "$a"},
            _ => doc! {"$lookup": {"from": "c", "localField": "_id", "foreignField": "_id", "as": "f"}},
        })
        .collect();
    let work = move || {
        let world = World::with(&[("c", &[doc! {"_id": 1}])]);
        let ctx = context();
        let pipeline = Pipeline::parse(&array(&stages), &ctx)?;
        let mut source = world.run(&pipeline, &ctx)?;
        source.next().map(|found| assert!(found.is_some()))
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    if let Err(error) = thread.unwrap().join().unwrap() {
        assert_eq!(error.code(), errors::Code::OVERFLOW, "{error}");
    }
}

const STACK_BYTES: usize = 2 << 20;
