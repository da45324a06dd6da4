//! What each accumulator makes of a list of documents, whole and in merged parts.

use super::*;
use bson::raw::RawDocumentBuf;
use bson::{Bson, DateTime, Document, bson, doc};

fn spec(accumulator: &Document) -> Result<AccumulatorSpec> {
    let raw = RawDocumentBuf::try_from(accumulator).unwrap();
    let element = raw.iter_elements().next().unwrap().unwrap();
    AccumulatorSpec::parse(element.key().as_str(), element.value()?, &ParseContext::new())
}

#[expect(clippy::needless_pass_by_value, reason = "tables of literals read better")]
fn check(accumulator: Document, documents: &[Document], expected: impl Into<Bson>) {
    let spec = spec(&accumulator).unwrap();
    let expected = expected.into();
    let variables = Variables::new(DateTime::from_millis(0), 0);
    let raws: Vec<_> = documents.iter().map(|d| RawDocumentBuf::try_from(d).unwrap()).collect();
    let gather = |documents: &[RawDocumentBuf]| {
        let mut state = spec.start(RawBsonRef::Null, &variables).unwrap();
        for document in documents {
            spec.add(&mut state, document, &variables).unwrap();
        }
        state
    };
    let whole = Bson::try_from(gather(&raws).finish().unwrap()).unwrap();
    assert_eq!(whole, expected, "{accumulator}");
    for cut in 0..=raws.len() {
        let mut merged = spec.start(RawBsonRef::Null, &variables).unwrap();
        for part in [&raws[..cut], &raws[cut..]] {
            spec.merge(&mut merged, gather(part).partial().as_raw_bson_ref()).unwrap();
        }
        let merged = Bson::try_from(merged.finish().unwrap()).unwrap();
        assert_eq!(merged, expected, "{accumulator} cut at {cut}");
    }
}

fn documents() -> Vec<Document> {
    vec![
        doc! {"a": 3, "s": "x"},
        doc! {"a": 1, "s": "y"},
        doc! {"s": "x"},
        doc! {"a": 2.0, "s": null},
        doc! {"a": 3_i64, "s": "z", "o": {"k": 1}},
        doc! {"a": "text", "o": {"k": 2, "l": 3}},
    ]
}

#[test]
fn merged_parts_finish_like_the_whole() {
    let d = documents();
    check(doc! {"$sum": "$a"}, &d, 9.0);
    check(doc! {"$sum": 1}, &d, 6);
    check(doc! {"$count": {}}, &d, 6);
    check(doc! {"$avg": "$a"}, &d, 2.25);
    check(doc! {"$min": "$a"}, &d, 1);
    check(doc! {"$max": "$a"}, &d, "text");
    check(doc! {"$first": "$a"}, &d, 3);
    check(doc! {"$last": "$s"}, &d, Bson::Null);
    check(doc! {"$push": "$a"}, &d, bson!([3, 1, 2.0, 3_i64, "text"]));
    check(doc! {"$addToSet": "$a"}, &d, bson!([3, 1, 2.0, "text"]));
    check(doc! {"$mergeObjects": "$o"}, &d, doc! {"k": 2, "l": 3});
    check(doc! {"$firstN": {"n": 2, "input": "$a"}}, &d, bson!([3, 1]));
    check(doc! {"$lastN": {"n": 2, "input": "$a"}}, &d, bson!([3_i64, "text"]));
    check(doc! {"$minN": {"n": 2, "input": "$a"}}, &d, bson!([1, 2.0]));
    check(doc! {"$maxN": {"n": 3, "input": "$a"}}, &d, bson!(["text", 3, 3_i64]));
    check(doc! {"$top": {"sortBy": {"a": -1}, "output": "$s"}}, &d, Bson::Null);
    check(
        doc! {"$topN": {"n": 2, "sortBy": {"a": 1}, "output": ["$a", "$s"]}},
        &d,
        bson!([[null, "x"], [1, "y"]]),
    );
    check(doc! {"$bottom": {"sortBy": {"a": 1}, "output": "$a"}}, &d, "text");
    check(
        doc! {"$bottomN": {"n": 2, "sortBy": {"a": 1}, "output": "$a"}},
        &d,
        bson!([3_i64, "text"]),
    );
    check(doc! {"$median": {"input": "$a", "method": "approximate"}}, &d, 2.0);
    check(
        doc! {"$percentile": {"input": "$a", "p": [0.0, 1.0], "method": "approximate"}},
        &d,
        bson!([1.0, 3.0]),
    );
}

#[test]
fn nothing_accumulated_has_a_value_too() {
    check(doc! {"$sum": "$a"}, &[], 0);
    check(doc! {"$avg": "$a"}, &[], Bson::Null);
    check(doc! {"$min": "$a"}, &[], Bson::Null);
    check(doc! {"$stdDevPop": "$a"}, &[], Bson::Null);
    check(doc! {"$push": "$a"}, &[], bson!([]));
    check(doc! {"$mergeObjects": "$a"}, &[], doc! {});
    check(doc! {"$stdDevPop": "$a"}, &[doc! {"a": 1}, doc! {"a": 3}], 1.0);
}

#[test]
fn malformed_accumulators_are_refused() {
    let code = |accumulator: Document| spec(&accumulator).unwrap_err().code().0;
    assert_eq!(code(doc! {"$nope": 1}), 15952);
    assert_eq!(code(doc! {"$sum": [1, 2]}), 40237);
    assert_eq!(code(doc! {"$count": 1}), 14);
    assert_eq!(code(doc! {"$firstN": {"input": 1}}), 5787906);
    assert_eq!(code(doc! {"$topN": {"sortBy": {"a": 1}, "output": 1}}), 5788003);
}

#[test]
fn accumulators_follow_the_collation() {
    let collation = RawDocumentBuf::try_from(&doc! { "locale": "en", "strength": 2 }).unwrap();
    let variables = Variables::new(DateTime::from_millis(0), 0)
        .with_collation(bsonval::collation::parse(&collation).unwrap());
    for (accumulator, expected) in [
        (doc! { "$addToSet": "$a" }, Bson::from(vec!["b", "A", "c"])),
        (doc! { "$min": "$a" }, "A".into()),
        (doc! { "$max": "$a" }, "c".into()),
        (doc! { "$maxN": { "input": "$a", "n": 2 } }, vec!["c", "C"].into()),
        (doc! { "$bottom": { "output": "$a", "sortBy": { "a": -1 } } }, "A".into()),
    ] {
        let spec = spec(&accumulator).unwrap();
        let mut state = spec.start(RawBsonRef::Null, &variables).unwrap();
        for text in ["b", "A", "c", "B", "C"] {
            let document = RawDocumentBuf::try_from(&doc! { "a": text }).unwrap();
            spec.add(&mut state, &document, &variables).unwrap();
        }
        assert_eq!(Bson::try_from(state.finish().unwrap()).unwrap(), expected, "{accumulator}");
    }
}
