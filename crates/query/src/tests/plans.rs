//! Which plan a query gets, and what it counts.

use super::*;

fn numbers() -> Room {
    let documents: Vec<Document> = (0..100)
        .map(|i| doc! { "_id": i, "a": i % 10, "b": i, "t": [i % 3, i % 5], "s": format!("s{i:02}") })
        .collect();
    let room = Room::with(&documents);
    room.index(doc! { "key": { "a": 1, "b": -1 } });
    room.index(doc! { "key": { "b": 1 } });
    room.index(doc! { "key": { "t": 1 } });
    room.index(doc! { "key": { "s": 1 }, "unique": true });
    room
}

pub(super) fn check(
    room: &Room,
    filter: Document,
    sort: Document,
    expected: &[&str],
    keys: i32,
    docs: i32,
) {
    let explained = room.explain(filter.clone(), sort);
    assert_eq!(stages(&explained), expected, "{filter}: {explained}");
    let stats = explained.get_document("executionStats").unwrap();
    assert_eq!(stats.get_i32("totalKeysExamined").unwrap(), keys, "{filter}: {stats}");
    assert_eq!(stats.get_i32("totalDocsExamined").unwrap(), docs, "{filter}: {stats}");
}

#[test]
fn plans_use_what_the_indexes_offer() {
    let room = numbers();
    check(&room, doc! { "_id": 5 }, doc! {}, &["IDHACK"], 1, 1);
    check(&room, doc! { "_id": { "$gte": 95 } }, doc! {}, &["FETCH", "IXSCAN"], 5, 5);
    check(&room, doc! { "a": 3 }, doc! {}, &["FETCH", "IXSCAN"], 10, 10);
    check(&room, doc! { "a": 3, "b": { "$gt": 50 } }, doc! {}, &["FETCH", "IXSCAN"], 5, 5);
    check(&room, doc! { "a": 3 }, doc! { "b": 1 }, &["FETCH", "IXSCAN"], 10, 10);
    check(&room, doc! { "a": 3 }, doc! { "s": 1 }, &["SORT", "FETCH", "IXSCAN"], 10, 10);
    check(&room, doc! {}, doc! { "a": -1, "b": 1 }, &["FETCH", "IXSCAN"], 100, 100);
    check(&room, doc! {}, doc! { "a": 1, "b": 1 }, &["SORT", "COLLSCAN"], 0, 100);
    check(&room, doc! { "c": 1 }, doc! {}, &["COLLSCAN"], 0, 100);
    check(&room, doc! { "s": { "$regex": "^s1" } }, doc! {}, &["FETCH", "IXSCAN"], 10, 10);
    check(
        &room,
        doc! { "a": { "$in": [1, 2] }, "b": { "$lt": 20 } },
        doc! {},
        &["FETCH", "IXSCAN"],
        4,
        4,
    );
    check(&room, doc! {}, doc! { "_id": -1 }, &["FETCH", "IXSCAN"], 100, 100);
}

#[test]
fn clustering_indexes_hold_the_documents() {
    let room = Room::new();
    room.index(doc! { "key": { "c": 1 }, "clustering": true });
    room.index(doc! { "key": { "d": 1 }, "clustering": true, "unique": true, "sparse": true });
    room.index(doc! { "key": { "e": "hashed" }, "clustering": true });
    let more: Vec<_> = (0..20)
        .map(|i| doc! { "_id": 200 + i, "c": [i, i + 100], "d": i, "e": i % 4, "long": "x".repeat(200) })
        .collect();
    assert!(room.insert(&more).errors.is_empty());
    check(&room, doc! { "c": { "$gt": 110 } }, doc! {}, &["IXSCAN"], 9, 0);
    check(&room, doc! { "c": { "$gt": 110 }, "long": "" }, doc! {}, &["IXSCAN"], 9, 0);
    check(&room, doc! { "d": { "$lt": 5 } }, doc! { "d": -1 }, &["IXSCAN"], 5, 0);
    check(&room, doc! { "e": 3 }, doc! {}, &["IXSCAN"], 5, 0);
    for (filter, expected) in [
        (doc! { "c": { "$in": [3, 103] } }, 3..4),
        (doc! { "c": { "$gt": 110 } }, 11..20),
        (doc! { "d": { "$lt": 5 }, "long": "x".repeat(200) }, 0..5),
        (doc! { "$or": [{ "d": 7 }, { "c": 107 }] }, 7..8),
    ] {
        assert_eq!(room.find(filter.clone()), more[expected].to_vec(), "{filter}");
    }
    room.check_valid();
}

#[test]
fn wildcard_indexes_serve_every_path_they_hold() {
    let room = Room::new();
    room.index(doc! { "key": { "$**": 1 }, "wildcardProjection": { "secret": 0 } });
    let documents: Vec<Document> = (0..50)
        .map(|i| doc! { "_id": i, "p": { "n": i, "t": [i % 5, "x"] }, "secret": i, "z": i % 2 })
        .collect();
    assert!(room.insert(&documents).errors.is_empty());
    check(&room, doc! { "p.n": { "$gte": 47 } }, doc! {}, &["FETCH", "IXSCAN"], 3, 3);
    check(
        &room,
        doc! { "p.n": { "$in": [3, 5] }, "z": { "$gt": 0 } },
        doc! {},
        &["FETCH", "IXSCAN"],
        2,
        2,
    );
    check(&room, doc! { "p.t": 4 }, doc! {}, &["FETCH", "IXSCAN"], 10, 10);
    check(&room, doc! { "$or": [{ "p.n": 1 }, { "p.n": 2 }] }, doc! {}, &["FETCH", "IXSCAN"], 2, 2);
    for filter in [
        doc! { "secret": 5 },
        doc! { "p.t": null },
        doc! { "p": { "n": 1 } },
        doc! { "p.n": { "$exists": false } },
        doc! { "p.t": [1, "x"] },
        doc! { "p.t.0": 1 },
        doc! { "_id": { "$type": "int" }, "secret": { "$gt": 4 } },
    ] {
        let explained = room.explain(filter.clone(), doc! {});
        assert!(!stages(&explained).contains(&"IXSCAN".to_owned()), "{filter}: {explained}");
    }
    let plan = room.explain(doc! { "p.n": 7 }, doc! {});
    let scan = plan.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    let scan = scan.get_document("inputStage").unwrap();
    assert_eq!(scan.get_document("keyPattern").unwrap(), &doc! { "$_path": 1, "p.n": 1 });
    let bounds = doc! { "$_path": ["[\"p.n\", \"p.n\"]"], "p.n": ["[7, 7]"] };
    assert_eq!(scan.get_document("indexBounds").unwrap(), &bounds);
    room.check_valid();
}

#[test]
fn a_hinted_wildcard_index_that_cannot_answer_is_an_error() {
    let room = Room::new();
    room.index(doc! { "key": { "a.$**": 1 } });
    room.insert(&[doc! { "_id": 1, "a": 1, "b": 1 }]);
    let find = |filter: Document| {
        let (filter, hint) = (raw(&filter), raw(&doc! { "a.$**": 1 }));
        let hint = Some(RawBsonRef::Document(&hint));
        room.find_with(&FindRequest { filter: Some(&filter), hint, ..FindRequest::default() })
    };
    assert_eq!(find(doc! { "a": 1 }).unwrap().len(), 1);
    assert_eq!(find(doc! { "b": 1 }).unwrap_err().code(), Code::NO_QUERY_EXECUTION_PLANS);
}

#[test]
fn a_middle_range_skips_to_the_next_value() {
    let room = numbers();
    let explained = room.explain(doc! { "a": { "$gte": 2 }, "b": { "$gt": 97 } }, doc! {});
    let stats = explained.get_document("executionStats").unwrap();
    assert_eq!(stats.get_i32("nReturned").unwrap(), 2, "{explained}");
    assert!(stats.get_i32("totalKeysExamined").unwrap() < 25, "{explained}");
}

#[test]
fn bounds_are_shown_as_mongodb_shows_them() {
    let room = numbers();
    let explained = room.explain(doc! { "a": 3, "b": { "$gt": 50, "$lte": 60 } }, doc! {});
    let scan = explained
        .get_document("queryPlanner")
        .and_then(|d| d.get_document("winningPlan"))
        .and_then(|d| d.get_document("inputStage"))
        .unwrap();
    assert_eq!(
        scan.get_document("indexBounds").unwrap(),
        &doc! { "a": ["[3, 3]"], "b": ["[60, 50)"] }
    );
    assert_eq!(scan.get_str("indexName").unwrap(), "a_1_b_-1");
    assert_eq!(scan.get_str("direction").unwrap(), "forward");
}

#[test]
fn multikey_parts_are_not_cut_by_two_ranges() {
    let room = Room::with(&[doc! { "_id": 1, "t": [1, 9] }, doc! { "_id": 2, "t": 5 }]);
    room.index(doc! { "key": { "t": 1 } });
    let found = room.find(doc! { "t": { "$gt": 4, "$lt": 6 } });
    assert_eq!(found.len(), 2);
    let found = room.find(doc! { "t": { "$elemMatch": { "$gt": 4, "$lt": 6 } } });
    assert!(found.is_empty());
}

#[test]
fn or_uses_an_index_per_branch_and_each_document_once() {
    let room = numbers();
    let explained = room.explain(doc! { "$or": [{ "a": 3 }, { "b": { "$lt": 5 } }] }, doc! {});
    assert_eq!(stages(&explained), ["OR"]);
    let stats = explained.get_document("executionStats").unwrap();
    assert_eq!(stats.get_i32("nReturned").unwrap(), 14);
    assert_eq!(stats.get_i32("totalDocsExamined").unwrap(), 15);
}

#[test]
fn hints_choose_and_unknown_ones_are_errors() {
    let room = numbers();
    let filter = raw(&doc! { "a": 3 });
    let ask = |hint: RawBsonRef<'_>| {
        let request =
            FindRequest { filter: Some(&filter), hint: Some(hint), ..FindRequest::default() };
        room.find_with(&request)
    };
    for hint in
        [doc! { "b": 1 }, doc! { "_id": 1 }, doc! { "$natural": -1 }, doc! { "a": 1, "b": -1 }]
    {
        assert_eq!(ask(RawBsonRef::Document(&raw(&hint))).unwrap().len(), 10, "{hint}");
    }
    assert_eq!(ask(RawBsonRef::String("s_1")).unwrap().len(), 10);
    assert_eq!(ask(RawBsonRef::String("nope")).unwrap_err().code(), Code::BAD_VALUE);
    let last = ask(RawBsonRef::Document(&raw(&doc! { "$natural": -1 }))).unwrap();
    assert_eq!(last[0].get_i32("_id").unwrap(), 93);
}

#[test]
fn min_and_max_limit_the_hinted_index() {
    let room = numbers();
    let (hint, min, max) = (raw(&doc! { "b": 1 }), raw(&doc! { "b": 10 }), raw(&doc! { "b": 13 }));
    let request = FindRequest {
        hint: Some(RawBsonRef::Document(&hint)),
        min: Some(&min),
        max: Some(&max),
        ..FindRequest::default()
    };
    assert_eq!(room.find_with(&request).unwrap().len(), 3);
    let error = room.find_with(&FindRequest { hint: None, ..request }).unwrap_err();
    assert_eq!(error.code().0, 51173);
    let error = room.find_with(&FindRequest { max: Some(&min), ..request }).unwrap_err();
    assert_eq!(error.code().0, 51175);
}

#[test]
fn counts_look_at_as_little_as_they_can() {
    let room = numbers();
    let count = |filter: Document, skip, limit| {
        let filter = raw(&filter);
        let request =
            CountRequest { filter: Some(&filter), skip, limit, ..CountRequest::default() };
        count(&mut room.ctx(), &room.ns, &request).unwrap()
    };
    assert_eq!(count(doc! {}, 0, 0), 100);
    assert_eq!(count(doc! {}, 90, 0), 10);
    assert_eq!(count(doc! {}, 0, 7), 7);
    assert_eq!(count(doc! { "a": 3 }, 2, 5), 5);
    assert_eq!(count(doc! { "t": { "$gte": 0 } }, 0, 0), 100);
    assert_eq!(count(doc! { "b": { "$ne": 5 } }, 0, 0), 99);
    let filter = raw(&doc! { "a": 3 });
    let request = CountRequest { filter: Some(&filter), ..CountRequest::default() };
    let explained =
        explain_count(&mut room.ctx(), &room.ns, &request, Verbosity::ExecutionStats).unwrap();
    let explained = Document::try_from(&*explained).unwrap();
    assert_eq!(stages(&explained), ["COUNT", "COUNT_SCAN"]);
    let stats = explained.get_document("executionStats").unwrap();
    assert_eq!(stats.get_i32("totalDocsExamined").unwrap(), 0);
}

#[test]
fn distinct_unwinds_arrays_and_keeps_types_apart() {
    let room = Room::with(&[
        doc! { "_id": 1, "a": [1, 2], "b": { "c": "x" } },
        doc! { "_id": 2, "a": 2.0, "b": [{ "c": "y" }, { "c": "x" }] },
        doc! { "_id": 3 },
    ]);
    let ask = |key: &str| -> Vec<Bson> {
        let request = DistinctRequest { key, filter: None, hint: None, collation: None };
        let values: RawArrayBuf = distinct(&mut room.ctx(), &room.ns, &request).unwrap();
        values.into_iter().map(|v| Bson::try_from(v.unwrap()).unwrap()).collect()
    };
    assert_eq!(ask("a"), [Bson::Int32(1), Bson::Int32(2)]);
    assert_eq!(ask("b.c"), [Bson::from("x"), Bson::from("y")]);
}

#[test]
fn cursors_end_when_the_collection_is_dropped() {
    let room = numbers();
    let mut cursor = find(&mut room.ctx(), &room.ns, &FindRequest::default()).unwrap();
    let first = cursor.next().unwrap().unwrap().to_owned();
    cursor.push_front(first.clone());
    cursor.park();
    cursor.resume(Arc::new(Uninterrupted)).unwrap();
    assert_eq!(cursor.next().unwrap().unwrap(), &*first);
    cursor.park();
    room.catalog.drop_collection(&room.ns, &|| Ok(())).unwrap();
    let error = cursor.resume(Arc::new(Uninterrupted)).unwrap_err();
    assert_eq!(error.code(), Code::QUERY_PLAN_KILLED);
}

#[test]
fn an_interrupt_ends_a_scan() {
    struct Killed;
    impl Interrupt for Killed {
        fn check(&self) -> Result<()> {
            Err(errors::Error::new(Code::MAX_TIME_MS_EXPIRED, "operation exceeded time limit"))
        }
    }
    let documents: Vec<Document> = (0..300).map(|i| doc! { "_id": i }).collect();
    let room = Room::with(&documents);
    let filter = raw(&doc! { "a": 1 });
    let mut ctx = OpContext::new(&room.catalog, Arc::new(Killed));
    let request = FindRequest { filter: Some(&filter), ..FindRequest::default() };
    let error = find(&mut ctx, &room.ns, &request).unwrap().next().unwrap_err();
    assert_eq!(error.code(), Code::MAX_TIME_MS_EXPIRED);
}

#[test]
fn hashed_indexes_serve_equality_and_nothing_else() {
    let documents: Vec<Document> =
        (0..40).map(|i| doc! { "_id": i, "a": i % 10, "b": i % 4 }).collect();
    let room = Room::with(&documents);
    room.insert(&[doc! { "_id": 100 }]);
    room.index(doc! { "key": { "a": "hashed" } });
    room.index(doc! { "key": { "b": 1, "a": "hashed" } });
    room.index(doc! { "key": { "_id": "hashed" }, "name": "h" });
    let plan = |filter: Document, sort: Document| stages(&room.explain(filter, sort));
    assert_eq!(plan(doc! { "a": 3 }, doc! {}), ["FETCH", "IXSCAN"]);
    assert_eq!(plan(doc! { "a": { "$in": [3, 4] } }, doc! {}), ["FETCH", "IXSCAN"]);
    assert_eq!(plan(doc! { "a": { "$gt": 3 } }, doc! {}), ["COLLSCAN"]);
    assert!(plan(doc! {}, doc! { "a": 1 }).contains(&"SORT".to_owned()));
    assert_eq!(room.find(doc! { "a": 3.0 }).len(), 4);
    assert_eq!(room.find(doc! { "a": { "$in": [3, 4] } }).len(), 8);
    assert_eq!(room.find(doc! { "a": { "$gt": 7 } }).len(), 8);
    assert_eq!(room.find(doc! { "a": null }).len(), 1);
    assert_eq!(room.find(doc! { "a": { "$exists": false } }).len(), 1);
    assert_eq!(room.find(doc! { "b": 1, "a": 3 }).len(), 2);
    assert_eq!(room.find(doc! { "b": { "$gte": 2 }, "a": 3 }).len(), 2);
    assert_eq!(room.find(doc! { "$or": [{ "a": 3 }, { "a": 4 }] }).len(), 8);
    let refused = room.insert(&[doc! { "_id": 200, "a": [1] }]);
    assert_eq!(refused.errors[0].error.code().0, 16766);
    room.check_valid();
}
