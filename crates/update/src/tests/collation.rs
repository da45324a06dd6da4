//! Updates under a collation.

use super::*;

fn ignoring_case() -> ParseContext {
    let collation = raw_doc(&doc! { "locale": "en", "strength": 2 });
    ParseContext::under(bsonval::collation::parse(&collation).unwrap())
}

#[test]
fn updates_follow_the_collation() {
    let ctx = ignoring_case();
    let at = UpdateContext {
        details: MatchDetails::default(),
        now: DateTime::from_millis(0),
        timestamp: Timestamp { time: 0, increment: 0 },
        keep_empty_timestamps: false,
    };
    for (update, expected) in [
        (doc! { "$addToSet": { "a": "X" } }, doc! { "a": ["b", "X", "C"] }),
        (
            doc! { "$addToSet": { "a": { "$each": ["B", "c", "D", "d"] } } },
            doc! { "a": ["b", "X", "C", "D"] },
        ),
        (doc! { "$pull": { "a": "B" } }, doc! { "a": ["X", "C"] }),
        (doc! { "$pull": { "a": { "$gte": "c" } } }, doc! { "a": ["b"] }),
        (doc! { "$pullAll": { "a": ["x", "c"] } }, doc! { "a": ["b"] }),
        (
            doc! { "$push": { "a": { "$each": ["D"], "$sort": 1 } } },
            doc! { "a": ["b", "C", "D", "X"] },
        ),
        (doc! { "$min": { "a.0": "A" } }, doc! { "a": ["A", "X", "C"] }),
        (doc! { "$max": { "a.0": "B" } }, doc! { "a": ["b", "X", "C"] }),
    ] {
        let given = raw_doc(&update);
        let refuse = |_: &RawArray| Err(Error::bad_value("no pipeline"));
        let parsed = Update::parse(RawBsonRef::Document(&given), None, &ctx, &refuse).unwrap();
        let before = raw_doc(&doc! { "a": ["b", "X", "C"] });
        let after = parsed.apply(&before, &at).unwrap().document;
        assert_eq!(Document::try_from(&after).unwrap(), expected, "{update}");
    }
}
