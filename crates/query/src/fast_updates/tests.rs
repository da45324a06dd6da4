//! Arguments: what they do, combined and one after the other, and their bytes.

use super::*;
use bson::{Bson, Document, doc};
use proptest::prelude::*;

fn raw_of(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn argument(update: &Document, seed: Option<&Document>) -> Vec<u8> {
    let seed = seed.map(raw_of);
    argument_of(&raw_of(update), seed.as_deref(), None)
}

fn apply(
    rules: &FastUpdateRules,
    old: Option<&Document>,
    argument: &[u8],
    ts: u64,
) -> Option<Document> {
    let place = UpdatePlace { tree: 7, key: b"key", ts };
    let old_bytes = old.map(raw_of);
    match rules.apply(place, old_bytes.as_ref().map(|old| old.as_bytes()), argument) {
        Applied::Unchanged => old.cloned(),
        Applied::Value(value) => {
            Some(Document::try_from(RawDocument::from_bytes(&value[..]).unwrap()).unwrap())
        }
    }
}

#[test]
fn an_update_is_applied_to_what_is_there_and_makes_nothing() {
    let rules = FastUpdateRules::default();
    let inc = argument(&doc! { "$inc": { "a": 1 } }, None);
    assert_eq!(apply(&rules, None, &inc, 5), None);
    let old = doc! { "_id": 1, "a": 2 };
    assert_eq!(apply(&rules, Some(&old), &inc, 5), Some(doc! { "_id": 1, "a": 3 }));
}

#[test]
fn an_upsert_makes_the_document_once() {
    let rules = FastUpdateRules::default();
    let update = doc! { "$inc": { "a": 2 }, "$setOnInsert": { "b": "new" } };
    let once = argument(&update, Some(&doc! { "_id": "x" }));
    let made = doc! { "_id": "x", "a": 2, "b": "new" };
    assert_eq!(apply(&rules, None, &once, 5), Some(made));
    let twice = rules.combine(&once, &once).unwrap();
    assert!(twice.len() == once.len(), "the same again is counted");
    assert_eq!(apply(&rules, None, &twice, 5), Some(doc! { "_id": "x", "a": 4, "b": "new" }));
    let old = doc! { "_id": "x", "b": "old" };
    assert_eq!(apply(&rules, Some(&old), &twice, 5), Some(doc! { "_id": "x", "b": "old", "a": 4 }));
}

#[test]
fn what_does_not_fit_leaves_the_document_and_is_counted_once() {
    let rules = FastUpdateRules::default();
    let inc = argument(&doc! { "$inc": { "a": 1 } }, None);
    let old = doc! { "_id": 1, "a": "text" };
    assert_eq!(apply(&rules, Some(&old), &inc, 0).as_ref(), Some(&old));
    assert_eq!(rules.errors(), 0, "it may never be committed");
    for _ in 0..3 {
        assert_eq!(apply(&rules, Some(&old), &inc, 5).as_ref(), Some(&old));
    }
    assert_eq!(rules.errors(), 1);
    let failed = rules.take_failed().unwrap();
    assert!(failed.dictionary == 7 && failed.id.contains('1'), "{failed:?}");
    assert!(failed.error.contains("Cannot apply $inc"), "{failed:?}");
    assert!(rules.take_failed().is_none());
    apply(&rules, Some(&old), &rules.combine(&inc, &inc).unwrap(), 6);
    assert_eq!(rules.errors(), 3);
}

#[test]
fn what_was_set_is_overwritten_by_what_sets_the_same() {
    let rules = FastUpdateRules::default();
    let set = |a: i32, b: i32| argument(&doc! { "$set": { "a": a, "b": b } }, None);
    assert_eq!(rules.combine(&set(1, 2), &set(3, 4)).unwrap(), set(3, 4));
    let other = argument(&doc! { "$set": { "a": 5 } }, None);
    assert_ne!(rules.combine(&set(1, 2), &other).unwrap(), other);
    let below = argument(&doc! { "$set": { "a.x": 5 } }, None);
    assert_ne!(rules.combine(&below, &below).unwrap(), below, "it may fail, or not");
}

#[test]
fn argument_matches_its_golden_file() {
    let now = (DateTime::from_millis(1_700_000_000_000), Timestamp { time: 7, increment: 9 });
    let (seed, update) = (raw_of(&doc! { "_id": 1 }), raw_of(&doc! { "$inc": { "a": 1 } }));
    let bytes = argument_of(&update, Some(&seed), Some(now));
    let plain = argument_of(&update, None, None);
    let rules = FastUpdateRules::default();
    let all = rules.combine(&bytes, &rules.combine(&plain, &plain).unwrap()).unwrap();
    let golden = testkit::golden(env!("CARGO_MANIFEST_DIR"), "fast-update.v1.bin", &all);
    let read: Vec<Item<'_>> = items(&golden).collect();
    assert_eq!(read.len(), 2);
    assert_eq!((read[0].times, read[0].now, read[0].seed), (1, Some(now), Some(&*seed)));
    assert_eq!((read[1].times, read[1].update), (2, &*update));
}

fn value() -> impl Strategy<Value = Bson> {
    prop_oneof![
        (-3_i32..4).prop_map(Bson::Int32),
        prop_oneof![Just(i32::MAX), Just(i32::MIN)].prop_map(Bson::Int32),
        (-3_i64..4).prop_map(Bson::Int64),
        prop_oneof![Just(i64::MAX), Just(i64::MIN), Just(i64::MAX - 2)].prop_map(Bson::Int64),
        prop_oneof![Just(0.1), Just(1e18)].prop_map(Bson::Double),
        Just(Bson::String("text".to_owned())),
        prop::collection::vec(0..3_i32, 0..4).prop_map(Bson::from),
    ]
}

fn update() -> impl Strategy<Value = Document> {
    let field = prop_oneof![Just("a"), Just("b"), Just("c.d")];
    let operator = prop_oneof![
        4 => Just("$inc"), 2 => Just("$set"), 1 => Just("$unset"), 1 => Just("$push"), 1 => Just("$mul"),
        1 => Just("$min"), 1 => Just("$max"), 1 => Just("$addToSet"), 1 => Just("$pull"),
    ];
    (operator, field, value()).prop_map(|(operator, field, value)| {
        doc! { operator: { field: value } }
    })
}

fn statement() -> impl Strategy<Value = (Document, bool)> {
    let inc = (any::<bool>(), prop_oneof![Just(1_i32), Just(i32::MAX), Just(-2)]);
    let inc = inc.prop_map(|(long, by)| {
        let by = if long { Bson::Int64(i64::from(by)) } else { Bson::Int32(by) };
        doc! { "$inc": { "a": by } }
    });
    (prop_oneof![update(), inc], any::<bool>())
}

proptest! {
    #[test]
    fn combined_updates_do_what_they_do_one_after_the_other(
        held in prop::option::of((value(), prop::option::of(value()))),
        statements in prop::collection::vec((statement(), 1_usize..4), 1..12),
        cut in 0_usize..12,
    ) {
        let rules = FastUpdateRules::default();
        let old = held.map(|(a, b)| {
            let mut old = doc! { "_id": 1, "a": a };
            old.extend(b.map(|b| ("b".to_owned(), b)));
            old
        });
        let seed = doc! { "_id": 1 };
        let arguments: Vec<Vec<u8>> = statements
            .iter()
            .flat_map(|((update, upserts), times)| {
                let argument = argument(update, upserts.then_some(&seed));
                std::iter::repeat_n(argument, *times)
            })
            // What the parser refuses is told to the client at once.
            .filter(|argument| items(argument).all(|item| Parsed::of(item.update).is_ok()))
            .collect();
        let combined = |arguments: &[Vec<u8>]| {
            let mut arguments = arguments.iter();
            let first = arguments.next().cloned();
            first.and_then(|first| {
                arguments.try_fold(first, |older, newer| rules.combine(&older, newer))
            })
        };
        let one_by_one = arguments
            .iter()
            .fold(old.clone(), |held, argument| apply(&rules, held.as_ref(), argument, 5));
        let cut = cut.min(arguments.len());
        let parts = [combined(&arguments[..cut]), combined(&arguments[cut..])];
        let in_parts = parts
            .iter()
            .flatten()
            .fold(old.clone(), |held, argument| apply(&rules, held.as_ref(), argument, 5));
        prop_assert_eq!(&in_parts, &one_by_one);
        if let [Some(older), Some(newer)] = &parts {
            let all = rules.combine(older, newer).unwrap();
            prop_assert_eq!(apply(&rules, old.as_ref(), &all, 5), one_by_one);
        }
    }

    #[test]
    fn any_bytes_are_an_argument(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let rules = FastUpdateRules::default();
        let _made = apply(&rules, None, &bytes, 5);
        let _both = rules.combine(&bytes, &bytes);
    }
}
