//! What a client writes in documents: filters, updates, projections, sorts, expressions.

use crate::Target;
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{DateTime, Document, Timestamp, doc, oid::ObjectId};
use bsonval::SortPattern;
use matcher::{Filter, MatchDetails, ParseContext};
use update::{PipelineUpdate, Projection, Update, UpdateContext};

/// `{d: document, f: filter, u: update, af: array filters, p: projection, s: sort}`: each is parsed,
/// and what parses is applied to the document. Results must be documents that the server accepts.
pub(super) const LANGUAGE: Target = Target {
    name: "language",
    corpus: || {
        let raw = |d: &Document| RawDocumentBuf::try_from(d).expect("a good document").into_bytes();
        corpus().iter().map(raw).collect()
    },
    start: || {
        Box::new(|bytes| {
            if let Ok(document) = wire::validate(bytes) {
                apply_all(document);
            }
        })
    },
};

fn part<'a>(document: &'a RawDocument, name: &str) -> Option<&'a RawDocument> {
    document.get_document(name).ok()
}

fn apply_all(input: &RawDocument) {
    // With text searches; those that no index answers are errors where they are asked.
    let ctx = ParseContext { text: true, ..ParseContext::default() };
    let empty = RawDocumentBuf::new();
    let document = part(input, "d").unwrap_or(&empty);
    let mut details = MatchDetails { array_index: Some(0) };
    let filter = part(input, "f").and_then(|f| Filter::parse(f, &ctx).ok());
    if let Some(filter) = &filter {
        if let Ok(Some(found)) = filter.matches_with_details(document) {
            details = found;
        }
        let shown = RawDocumentBuf::try_from(&filter.to_document()).expect("it can be shown");
        Filter::parse(&shown, &ctx).expect("what is shown can be parsed");
    }
    if let Some(Ok(sort)) = part(input, "s").map(SortPattern::parse) {
        let _key = sort.key(document, None);
    }
    if let Some(Ok(projection)) = part(input, "p").map(|p| Projection::parse(p, &ctx))
        && let Ok(projected) = projection.apply(document, Some(&details))
    {
        wire::validate(projected.as_bytes()).expect("a projected document is well formed");
    }
    if let Ok(Some(update)) = input.get("u") {
        check_update(update, input.get_array("af").ok(), document, filter.as_ref(), details, &ctx);
    }
}

#[derive(Debug)]
struct Unchanged;

impl PipelineUpdate for Unchanged {
    fn apply(&self, document: &RawDocument) -> errors::Result<RawDocumentBuf> {
        Ok(document.to_owned())
    }
}

fn check_update(
    update: RawBsonRef<'_>,
    array_filters: Option<&RawArray>,
    document: &RawDocument,
    filter: Option<&Filter>,
    details: MatchDetails,
    ctx: &ParseContext,
) {
    let pipeline =
        |_: &RawArray| -> errors::Result<Box<dyn PipelineUpdate>> { Ok(Box::new(Unchanged)) };
    let Ok(update) = Update::parse(update, array_filters, ctx, &pipeline) else { return };
    let now = UpdateContext {
        details,
        now: DateTime::from_millis(0),
        timestamp: Timestamp { time: 1, increment: 1 },
        keep_empty_timestamps: false,
    };
    if let Ok(outcome) = update.apply(document, &now) {
        wire::validate(outcome.document.as_bytes()).expect("an updated document is well formed");
    }
    let all = Filter::all();
    let id = ObjectId::from_bytes([0; 12]);
    if let Ok(made) = update.upsert(filter.unwrap_or(&all), &now, id) {
        wire::validate(made.as_bytes()).expect("an upserted document is well formed");
    }
}

fn corpus() -> Vec<Document> {
    let document = doc! {
        "_id": 1, "a": [1, { "b": 2, "c": [3, 4] }, [5]], "b": { "c": "text", "d": null }, "n": 7.5,
    };
    vec![
        doc! {
            "d": &document,
            "f": { "a.b": 2, "$or": [{ "n": { "$gt": 5, "$mod": [7, 0] } }, { "b.c": { "$in": ["x", 1] } }] },
            "u": { "$set": { "a.1.b": 9, "x.y": 1 }, "$inc": { "n": 1 }, "$push": { "a": { "$each": [1], "$slice": -3, "$sort": 1 } } },
            "p": { "a": { "$slice": [1, 2] }, "b.c": 1, "z": { "$add": ["$n", 1] } },
            "s": { "a.b": 1, "n": -1 },
        },
        doc! {
            "d": &document,
            "f": { "a": { "$elemMatch": { "b": { "$gte": 1 } } }, "b.c": { "$regex": "^t", "$options": "i" } },
            "u": { "$unset": { "b": "" }, "$rename": { "n": "m" }, "$set": { "a.$[e].b": 1, "a.$.q": 2 } },
            "af": [{ "e.b": 2 }],
            "p": { "a": { "$elemMatch": { "b": 2 } }, "n": 0 },
            "s": { "b": 1 },
        },
        doc! {
            "d": &document,
            "f": { "$expr": { "$eq": ["$n", 7.5] }, "a": { "$all": [1], "$size": 3 }, "n": { "$type": "number", "$bitsAllSet": [0] } },
            "u": { "$pull": { "a": { "b": 2 } }, "$addToSet": { "b.e": 1 }, "$pop": { "a": 1 }, "$min": { "n": 1 }, "$currentDate": { "t": true } },
            "p": { "_id": 0, "a.c": 0 },
            "s": { "a.0": 1 },
        },
        doc! { "d": &document, "f": { "_id": 1, "x": { "$not": { "$exists": true } } }, "u": { "k": 1 } },
    ]
}
