//! Filters under a collation.

use super::*;

fn ignoring_case() -> ParseContext {
    let collation = raw_doc(&doc! { "locale": "en", "strength": 2 });
    ParseContext::under(bsonval::collation::parse(&collation).unwrap())
}

/// Strings compare as the collation has it, wherever they stand; patterns do not care.
#[test]
fn comparisons_follow_the_collation() {
    let ctx = ignoring_case();
    for (filter, document, expected) in [
        (doc! { "a": "x" }, doc! { "a": "X" }, true),
        (doc! { "a": "x" }, doc! { "a": "é" }, false),
        (doc! { "a": { "$ne": "x" } }, doc! { "a": "X" }, false),
        (doc! { "a": { "$in": ["B", "x", "a", 1] } }, doc! { "a": "b" }, true),
        (doc! { "$or": [{ "a": "B" }, { "a": "x" }, { "a": "a" }] }, doc! { "a": "b" }, true),
        (doc! { "a": { "$nin": ["B", "a"] } }, doc! { "a": "A" }, false),
        (doc! { "a": { "$gt": "b" } }, doc! { "a": "B" }, false),
        (doc! { "a": { "$gte": "b" } }, doc! { "a": "B" }, true),
        (doc! { "a": { "$lt": "B" } }, doc! { "a": "a" }, true),
        (doc! { "a": { "b": ["x"] } }, doc! { "a": { "b": ["X"] } }, true),
        (doc! { "a": { "b": "x" } }, doc! { "a": { "B": "x" } }, false),
        (doc! { "a": { "$elemMatch": { "$eq": "x" } } }, doc! { "a": ["y", "X"] }, true),
        (doc! { "a": { "$all": ["X", "Y"] } }, doc! { "a": ["y", "x"] }, true),
        (doc! { "a": { "$regex": "^x" } }, doc! { "a": "X" }, false),
        (doc! { "$expr": { "$eq": ["$a", "x"] } }, doc! { "a": "X" }, true),
        (doc! { "$expr": { "$eq": ["X", "x"] } }, doc! {}, true),
        (doc! { "$expr": { "$in": ["$a", ["y", "x"]] } }, doc! { "a": "X" }, true),
        (doc! { "$expr": { "$setEquals": [["a", "B"], ["b", "A", "a"]] } }, doc! {}, true),
        (doc! { "$expr": { "$eq": [{ "$max": ["a", "B"] }, "b"] } }, doc! {}, true),
        (doc! { "$expr": { "$eq": [{ "$indexOfArray": [["a", "b"], "B"] }, 1] } }, doc! {}, true),
        (
            doc! { "$expr": { "$eq": ["$$ROOT.a", { "$first": [
            { "$sortArray": { "input": ["b", "A"], "sortBy": 1 } }] }] } },
            doc! { "a": "a" },
            true,
        ),
    ] {
        let parsed = Filter::parse(&raw_doc(&filter), &ctx).unwrap();
        assert_eq!(
            parsed.matches(&raw_doc(&document)).unwrap(),
            expected,
            "{filter} on {document}"
        );
    }
}
