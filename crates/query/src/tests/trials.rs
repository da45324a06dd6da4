//! Plans that only the data can tell apart: trials, what is remembered of them, and the plans that
//! exist only because a trial can prove them.

use super::model::{INDEXES, document, filter, ids, scalar, sort};
use super::*;
use crate::canonical::{Canonical, Purpose};
use crate::exec::ExecContext;
use crate::plan::{Access, AccessPath};
use crate::{
    clear_filters, clear_plan_cache, explain_find, list_filters, plan_cache_stats, set_filter,
    take_examined,
};
use bsonval::SortPattern;

/// `count` documents made from their numbers, after these indexes.
fn room(indexes: &[Document], count: i32, make: impl Fn(i32) -> Document) -> Room {
    let room = Room::new();
    room.catalog.ensure_collection(&room.ns).unwrap();
    for key in indexes {
        room.index(doc! { "key": key.clone(), "name": key.keys().cloned().collect::<String>() });
    }
    let documents: Vec<Document> = (0..count)
        .map(|id| {
            let mut whole = doc! { "_id": id };
            whole.extend(make(id));
            whole
        })
        .collect();
    for chunk in documents.chunks(1000) {
        room.insert(chunk);
    }
    room
}

fn winner(explained: &Document) -> String {
    let mut names = String::new();
    let mut left =
        vec![explained.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap()];
    while let Some(plan) = left.pop() {
        names += plan.get_str("stage").unwrap();
        names += plan.get_str("indexName").unwrap_or_default();
        names.push(' ');
        left.extend(plan.get_document("inputStage").ok());
        left.extend(
            plan.get_array("inputStages").into_iter().flatten().filter_map(Bson::as_document),
        );
    }
    names
}

fn examined(explained: &Document) -> (i32, i32) {
    let statistics = explained.get_document("executionStats").unwrap();
    let number = |name| statistics.get_i32(name).unwrap();
    (number("totalKeysExamined"), number("totalDocsExamined"))
}

#[test]
fn a_trial_prefers_the_index_that_finds_less() {
    let make = |i| doc! { "a": i % 2, "b": i % 500 };
    let room = room(&[doc! { "a": 1 }, doc! { "b": 1 }], 2000, make);
    let filter = raw(&doc! { "a": 1, "b": 7 });
    let request = FindRequest { filter: Some(&filter), ..FindRequest::default() };
    let explained =
        explain_find(&mut room.ctx(), &room.ns, &request, Verbosity::AllPlansExecution).unwrap();
    let explained = Document::try_from(&*explained).unwrap();
    assert_eq!(winner(&explained), "FETCH IXSCANb ");
    let rejected =
        explained.get_document("queryPlanner").unwrap().get_array("rejectedPlans").unwrap();
    assert_eq!(rejected.len(), 2, "the other index, and both: {rejected:?}");
    let tried =
        explained.get_document("executionStats").unwrap().get_array("allPlansExecution").unwrap();
    assert_eq!(tried.len(), 3);
    assert_eq!(tried[0].as_document().unwrap().get_i32("nReturned").unwrap(), 4);
    assert_eq!(room.find(doc! { "a": 1, "b": 7 }).len(), 4);
}

#[test]
fn a_choice_is_used_once_a_second_trial_confirms_it() {
    let make = |i| doc! { "a": i % 2, "b": i % 500 };
    let room = room(&[doc! { "a": 1 }, doc! { "b": 1 }], 2000, make);
    let stats = || plan_cache_stats(&room.catalog, &room.ns);
    assert!(stats().is_empty());
    room.find(doc! { "a": 1, "b": 7 });
    let [first] = &stats()[..] else { panic!("one shape") };
    assert!(!first.get_bool("isActive").unwrap());
    room.find(doc! { "a": 1, "b": 9 });
    let [second] = &stats()[..] else { panic!("the same shape") };
    assert!(second.get_bool("isActive").unwrap());
    assert_eq!(second.get("queryHash"), first.get("queryHash"));
    let plan = second.get_document("cachedPlan").unwrap();
    assert_eq!(plan.get_document("inputStage").unwrap().get_str("indexName").unwrap(), "b");
    assert_eq!(room.find(doc! { "a": 1, "b": 11 }).len(), 4);
    // Another shape is another choice.
    room.find(doc! { "a": 1, "b": { "$gt": 490 } });
    assert_eq!(stats().len(), 2);
    // Of one index there is nothing to choose.
    room.find(doc! { "b": 3 });
    assert_eq!(stats().len(), 2);
    clear_plan_cache(&room.catalog.collection(&room.ns).unwrap());
    assert!(stats().is_empty());
}

#[test]
fn a_plan_that_costs_much_more_than_it_did_is_doubted_before_it_answers() {
    // `a` tells nothing of the first thousand, `b` nothing of the others.
    let make = |i| {
        if i < 1000 {
            doc! { "a": 0, "b": i }
        } else {
            doc! { "a": i, "b": -1 }
        }
    };
    let room = room(&[doc! { "a": 1 }, doc! { "b": 1 }], 5000, make);
    for b in [5, 6] {
        assert_eq!(ids(&room.find(doc! { "a": 0, "b": b })), [b]);
    }
    take_examined();
    assert_eq!(ids(&room.find(doc! { "a": 0, "b": 8 })), [8]);
    assert_eq!(take_examined().plan_summary().as_deref(), Some("IXSCAN { b: 1 }"));
    assert_eq!(ids(&room.find(doc! { "a": 3000, "b": -1 })), [3000]);
    let examined = take_examined();
    assert!(examined.plan_summary().unwrap().ends_with("IXSCAN { a: 1 }"));
    assert!(examined.keys < 200, "{examined:?}");
    let stats = plan_cache_stats(&room.catalog, &room.ns);
    let plan = stats[0].get_document("cachedPlan").unwrap();
    assert_eq!(plan.get_document("inputStage").unwrap().get_str("indexName").unwrap(), "a");
}

#[test]
fn lists_of_values_come_in_the_order_of_the_next_part() {
    let make = |i| doc! { "a": i % 10, "b": (i * 7) % 1000 };
    let room = room(&[doc! { "a": 1, "b": 1 }], 1000, make);
    let filter = raw(&doc! { "a": { "$in": [1, 3, 5] } });
    let sort = raw(&doc! { "b": -1 });
    let request = FindRequest {
        filter: Some(&filter),
        sort: Some(&sort),
        limit: 5,
        ..FindRequest::default()
    };
    let explained =
        explain_find(&mut room.ctx(), &room.ns, &request, Verbosity::ExecutionStats).unwrap();
    let explained = Document::try_from(&*explained).unwrap();
    assert!(winner(&explained).starts_with("LIMIT SORT_MERGE "), "{}", winner(&explained));
    assert!(examined(&explained).0 <= 8, "{:?}", examined(&explained));
    let found = room.find_with(&request).unwrap();
    let mut expected: Vec<i32> =
        (0..1000).filter(|i| [1, 3, 5].contains(&(i % 10))).map(|i| (i * 7) % 1000).collect();
    expected.sort_unstable_by(|a, b| b.cmp(a));
    let found: Vec<i32> = found.iter().map(|found| found.get_i32("b").unwrap()).collect();
    assert_eq!(found, expected[..5]);
    let or = doc! { "$or": [{ "a": 1 }, { "a": 2, "b": { "$gt": 5 } }] };
    assert!(winner(&room.explain(or, doc! { "b": 1 })).starts_with("SORT_MERGE "));
}

#[test]
fn two_indexes_are_read_together_where_each_finds_too_much() {
    let make = |i| doc! { "a": i % 50, "b": i % 49 };
    let room = room(&[doc! { "a": 1 }, doc! { "b": 1 }], 20_000, make);
    let explained = room.explain(doc! { "a": 7, "b": 11 }, doc! {});
    assert_eq!(winner(&explained).split(' ').next_back(), Some(""));
    assert!(winner(&explained).starts_with("FETCH AND_HASH "), "{}", winner(&explained));
    assert!(examined(&explained).1 <= 10, "{:?}", examined(&explained));
    let expected: Vec<i32> = (0..20_000).filter(|i| i % 50 == 7 && i % 49 == 11).collect();
    assert_eq!(ids(&room.find(doc! { "a": 7, "b": 11 })), expected);
}

#[test]
fn a_later_part_is_searched_below_the_few_values_of_the_first() {
    let indexes = [doc! { "few": 1, "b": 1 }, doc! { "many": 1, "c": 1 }];
    let make = |i| doc! { "few": i % 4, "many": i, "b": i / 4, "c": i / 4 };
    let room = room(&indexes, 12_000, make);
    let explained = room.explain(doc! { "b": 17 }, doc! {});
    assert_eq!(winner(&explained), "FETCH IXSCANfewb ");
    assert!(examined(&explained).0 < 20, "{:?}", examined(&explained));
    let mut found = ids(&room.find(doc! { "b": 17 }));
    found.sort_unstable();
    assert_eq!(found, [68, 69, 70, 71]);
    assert_eq!(winner(&room.explain(doc! { "c": 17 }, doc! {})), "COLLSCAN ");
}

#[test]
fn an_operators_filter_goes_before_scores_trials_and_hints() {
    let make = |i| doc! { "a": i % 2, "b": i % 500 };
    let room = room(&[doc! { "a": 1 }, doc! { "b": 1 }], 2000, make);
    let shape = raw(&doc! { "a": 0, "b": 0 });
    let query = FindRequest { filter: Some(&shape), ..FindRequest::default() };
    let key = raw(&doc! { "a": 1 });
    set_filter(&room.ctx(), &room.ns, &query, &[RawBsonRef::Document(&key)]).unwrap();
    let explained = room.explain(doc! { "a": 1, "b": 7 }, doc! {});
    assert_eq!(winner(&explained), "FETCH IXSCANa ");
    let planner = explained.get_document("queryPlanner").unwrap();
    assert!(planner.get_bool("indexFilterSet").unwrap());
    let hinted = raw(&doc! { "a": 1, "b": 9 });
    take_examined();
    room.find_with(&FindRequest {
        filter: Some(&hinted),
        hint: Some(RawBsonRef::String("b")),
        ..FindRequest::default()
    })
    .unwrap();
    assert_eq!(take_examined().plan_summary().as_deref(), Some("IXSCAN { a: 1 }"));
    // Another shape is free.
    assert_eq!(winner(&room.explain(doc! { "b": 7 }, doc! {})), "FETCH IXSCANb ");
    let collection = room.catalog.collection(&room.ns).unwrap();
    assert_eq!(list_filters(&collection).len(), 1);
    clear_filters(&room.ctx(), &room.ns, Some(&query)).unwrap();
    assert!(list_filters(&collection).is_empty());
    assert_eq!(winner(&room.explain(doc! { "a": 1, "b": 7 }, doc! {})), "FETCH IXSCANb ");
}

/// What a plan finds.
fn run(room: &Room, query: &Canonical, access: &Access) -> Result<Vec<Document>> {
    let mut stage = query.stages(&room.catalog, access)?;
    let exec = ExecContext::new(&query.snapshot, &Uninterrupted);
    let mut found = Vec::new();
    while stage.advance(&exec)? {
        found.push(Document::try_from(stage.row().document()?).unwrap());
    }
    Ok(found)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Not only the plan that wins.
    #[test]
    fn every_plan_gives_what_a_collection_scan_gives(
        documents in prop::collection::vec(document(), 1..12),
        chosen in prop::collection::btree_set(0..INDEXES.len(), 2..5),
        both in prop::collection::vec(filter(), 1..4),
        list in prop::option::of((prop_oneof![Just("a"), Just("b")],
            prop::collection::vec(scalar(), 1..4))),
        sort in sort(),
    ) {
        let room = Room::new();
        room.catalog.ensure_collection(&room.ns).unwrap();
        for at in chosen {
            let key: Document = INDEXES[at]
                .iter()
                .map(|(path, direction)| ((*path).to_owned(), Bson::Int32(*direction)))
                .collect();
            let spec = doc! { "key": key, "name": format!("{at}") };
            let spec = IndexSpec::parse(&raw(&spec)).unwrap();
            drop(room.catalog.create_indexes(&room.ns, &[spec], &|| Ok(())));
        }
        for (id, document) in documents.iter().enumerate() {
            let mut whole = doc! { "_id": id as i32 };
            whole.extend(document.clone());
            room.insert(&[whole]);
        }
        let mut conjuncts = both;
        conjuncts.extend(list.map(|(path, values)| doc! { path: { "$in": values } }));
        let (filter, sort) = (raw(&doc! { "$and": conjuncts }), raw(&sort));
        let request =
            FindRequest { filter: Some(&filter), sort: Some(&sort), ..FindRequest::default() };
        let natural = raw(&doc! { "$natural": 1 });
        let hint = Some(RawBsonRef::Document(&natural));
        let Ok(expected) = room.find_with(&FindRequest { hint, ..request }) else { return Ok(()) };
        let query = Canonical::of_find(&room.ctx(), &room.ns, &request, Purpose::Read).unwrap();
        let decision = query.decide(None).unwrap();
        let pattern = SortPattern::parse(&sort).unwrap();
        let keys = |documents: &[Document]| -> Vec<Vec<u8>> {
            documents.iter().map(|d| pattern.key(&raw(d), None).unwrap()).collect()
        };
        let sorted = |found: &[Document]| {
            let mut ids = ids(found);
            ids.sort_unstable();
            ids
        };
        let plans = std::iter::once(&decision.winner).chain(&decision.rivals);
        for access in plans.chain(&decision.rejected) {
            let found = run(&room, &query, access).unwrap();
            prop_assert_eq!(sorted(&expected), sorted(&found), "{:?} by {:?}", filter, access);
            prop_assert_eq!(keys(&expected), keys(&found), "order of {:?} by {:?}", filter, access);
        }
        // Tried, confirmed, remembered.
        for _ in 0..3 {
            let found = room.find_with(&request).unwrap();
            prop_assert_eq!(sorted(&expected), sorted(&found));
            prop_assert_eq!(keys(&expected), keys(&found));
        }
    }
}

#[test]
fn the_random_plans_are_of_every_kind() {
    let make = |i| doc! { "a": i % 3, "b": i % 5 };
    let room = room(&[doc! { "a": 1, "c": 1 }, doc! { "b": 1 }], 100, make);
    let plans = |filter: Document, sort: Document| {
        let (filter, sort) = (raw(&filter), raw(&sort));
        let request =
            FindRequest { filter: Some(&filter), sort: Some(&sort), ..FindRequest::default() };
        let query = Canonical::of_find(&room.ctx(), &room.ns, &request, Purpose::Read).unwrap();
        let decision = query.decide(None).unwrap();
        std::iter::once(decision.winner).chain(decision.rivals).collect::<Vec<_>>()
    };
    let both = plans(doc! { "a": 1, "b": 2 }, doc! {});
    assert!(both.iter().any(|plan| matches!(plan.path, AccessPath::Intersection(_))));
    let merge = plans(doc! { "a": { "$in": [1, 2] } }, doc! { "c": 1 });
    assert!(merge.iter().any(|plan| matches!(plan.path, AccessPath::Merge(_))));
}

#[test]
fn a_bound_on_an_array_leaves_no_order_of_its_other_fields() {
    let room = Room::new();
    room.catalog.ensure_collection(&room.ns).unwrap();
    room.index(doc! { "key": { "a.c": 1, "a.d": 1 }, "name": "ac" });
    room.insert(&[
        doc! { "_id": 1, "a": [{ "c": 1, "d": 5 }, { "c": 2, "d": 0 }] },
        doc! { "_id": 2, "a": [{ "c": 1, "d": 3 }] },
    ]);
    let sort = raw(&doc! { "a.d": 1 });
    for filter in [doc! { "a.c": 1 }, doc! { "a.c": { "$in": [1, 7] } }] {
        let filter = raw(&filter);
        let request =
            FindRequest { filter: Some(&filter), sort: Some(&sort), ..FindRequest::default() };
        // The first document's least `d` is 0, in the element that the filter does not mean.
        assert_eq!(ids(&room.find_with(&request).unwrap()), [1, 2]);
    }
}
