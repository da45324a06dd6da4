//! Finds by all fields of an index, and projections of whole fields: what is found without a plan is what plans find.

use super::model::{document, path, primary_key, scalar};
use super::*;
use catalog::IndexUse;

/// What a find gives and tells.
#[derive(PartialEq, Debug)]
struct Outcome {
    found: Vec<Document>,
    used: Vec<IndexUse>,
    figures: String,
    summary: Option<String>,
}

pub(super) fn uses(room: &Room) -> Vec<IndexUse> {
    let Some(collection) = room.catalog.collection(&room.ns) else { return Vec::new() };
    room.catalog.stats(&collection).indexes.into_iter().map(|one| one.used).collect()
}

/// What a find tells, and whether it was planned. Parked between its documents.
fn told(
    room: &Room,
    (filter, projection): (&Document, &Document),
    planned: bool,
) -> (Outcome, bool) {
    let (filter, projection, nothing) = (raw(filter), raw(projection), raw(&doc! {}));
    let request = FindRequest {
        filter: Some(&filter),
        projection: Some(&projection),
        let_variables: planned.then_some(&*nothing),
        ..FindRequest::default()
    };
    let before = uses(room);
    let _of_before = take_examined();
    let mut cursor = find(&mut room.ctx(), &room.ns, &request).unwrap();
    let is_planned = cursor.is_planned();
    let mut found = Vec::new();
    while let Some(document) = cursor.next().unwrap() {
        found.push(Document::try_from(document).unwrap());
        cursor.park();
        cursor.resume(Arc::new(Uninterrupted)).unwrap();
    }
    assert!(cursor.next().unwrap().is_none(), "a cursor stays at its end");
    drop(cursor);
    (told_since(room, &before, found), is_planned)
}

/// What was told since the uses of indexes were these.
fn told_since(room: &Room, before: &[IndexUse], found: Vec<Document>) -> Outcome {
    let examined = take_examined();
    let figures = format!("{} {}", examined.keys, examined.documents);
    let used = uses(room).into_iter().zip(before).map(|(after, before)| IndexUse {
        queries: after.queries - before.queries,
        scanned: after.scanned - before.scanned,
        scanned_objects: after.scanned_objects - before.scanned_objects,
        ..IndexUse::default()
    });
    let used = used.collect();
    Outcome { found, used, figures, summary: examined.plan_summary() }
}

/// A find is planned or not, as the table says, and gives and tells the same in both ways.
fn check(room: &Room, filter: &Document, projection: &Document, is_planned: bool) -> Outcome {
    let (at_once, without) = told(room, (filter, projection), false);
    let (planned, with) = told(room, (filter, projection), true);
    assert!(with);
    assert_eq!(without, is_planned, "{filter} {projection}");
    assert_eq!(at_once, planned, "{filter} {projection}");
    at_once
}

/// What a count gives and tells.
fn counted(room: &Room, filter: &Document, skip: u64, limit: u64) -> (i64, Outcome) {
    let filter = raw(filter);
    let request = CountRequest { filter: Some(&filter), skip, limit, ..CountRequest::default() };
    let before = uses(room);
    let _of_before = take_examined();
    let n = count(&mut room.ctx(), &room.ns, &request).unwrap();
    (n, told_since(room, &before, Vec::new()))
}

/// A count gives and tells the same with a plan and without.
fn check_count(room: &Room, filter: &Document, (skip, limit): (u64, u64)) {
    let planned: Document =
        filter.iter().map(|(path, value)| (path.clone(), doc! { "$eq": value }.into())).collect();
    let at_once = counted(room, filter, skip, limit);
    assert_eq!(at_once, counted(room, &planned, skip, limit), "{filter} {skip} {limit}");
}

fn people() -> Room {
    let room = Room::with(&[
        doc! { "_id": 1, "a": 5.0, "b": 1, "c": "x", "d": { "e": 3 }, "f": 1, "k": 1, "w": 1 },
        doc! { "_id": 2, "a": [6, 7, 7], "b": 1, "c": "y", "d": [{ "e": 4 }, { "e": 5 }], "k": 1 },
        doc! { "_id": 3, "a": "text", "b": 2, "c": "x", "d": { "e": "4" }, "f": 3, "k": 1 },
        doc! { "_id": 4, "b": 3, "c": "x", "d": 4, "g": "Other", "h": 40, "k": 2, "l": 1 },
        doc! { "_id": 5, "a": 5_i64, "b": 1, "c": "y", "g": "other", "h": 1, "l": 1, "m": 1 },
        doc! { "_id": 6, "a": [5, 7], "p": [{ "q": 1, "r": 2 }, { "q": 3, "r": 4 }], "n": 1, "m": 2 },
    ]);
    for key in [
        doc! { "a": 1 },
        doc! { "b": -1, "c": 1 },
        doc! { "d.e": 1 },
        doc! { "p.q": 1, "p.r": 1 },
        doc! { "k": 1 },
        doc! { "k": 1, "x": 1 },
        doc! { "l": "hashed" },
        doc! { "m": 1 },
        doc! { "n": 1 },
    ] {
        room.index(doc! { "key": key });
    }
    room.index(doc! { "key": { "f": -1 }, "sparse": true });
    let insensitive = doc! { "locale": "en", "strength": 1 };
    room.index(doc! { "key": { "g": 1 }, "collation": insensitive });
    let partial = doc! { "h": { "$gt": 10 } };
    room.index(doc! { "key": { "h": 1 }, "partialFilterExpression": partial.clone() });
    room.index(
        doc! { "key": { "m": 1, "a": 1 }, "partialFilterExpression": partial, "hidden": true },
    );
    room.index(doc! { "key": { "n": -1 }, "name": "hidden", "hidden": true });
    room
}

#[test]
fn what_is_found_without_a_plan_is_what_plans_find() {
    let room = people();
    let cases = [
        (doc! { "a": 5 }, 3, false),
        (doc! { "a": 7 }, 2, false),
        (doc! { "a": "text" }, 1, false),
        (doc! { "a": "Text" }, 0, false),
        (doc! { "b": 1, "c": "y" }, 2, false),
        (doc! { "c": "x", "b": 2 }, 1, false),
        (doc! { "d.e": 5 }, 1, false),
        (doc! { "d.e": "4" }, 1, false),
        (doc! { "f": 3 }, 1, false),
        (doc! { "m": 1 }, 1, false),
        (doc! { "a": Bson::Null }, 1, true),
        (doc! { "a": [6, 7, 7] }, 1, true),
        (doc! { "a": { "$gte": 5 } }, 4, true),
        (doc! { "a": 5, "f": 1 }, 1, true),
        (doc! { "a": 5, "_id": 1 }, 1, true),
        (doc! { "b": 1 }, 3, true),
        (doc! { "p.q": 1, "p.r": 4 }, 1, true),
        (doc! { "k": 1 }, 3, true),
        (doc! { "l": 1 }, 2, true),
        (doc! { "g": "other" }, 1, true),
        (doc! { "h": 40 }, 1, true),
        // Two indexes over the same fields, also where one of them is hidden.
        (doc! { "n": 1 }, 1, true),
        (doc! { "w": 1 }, 1, true),
        (doc! { "d.0": 4 }, 0, true),
        (doc! {}, 6, true),
    ];
    for (filter, count, is_planned) in &cases {
        let told = check(&room, filter, &doc! {}, *is_planned);
        assert_eq!(told.found.len(), *count, "{filter}");
        if *is_planned {
            continue;
        }
        for window in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            check_count(&room, filter, window);
        }
        // What explain tells is what was taken.
        let explained = room.explain(filter.clone(), doc! {});
        assert_eq!(stages(&explained), ["FETCH", "IXSCAN"], "{filter}");
        let planner = explained.get_document("queryPlanner").unwrap();
        assert!(planner.get_array("rejectedPlans").unwrap().is_empty(), "{filter}");
        let scan = planner.get_document("winningPlan").unwrap().get_document("inputStage").unwrap();
        let key = raw(scan.get_document("keyPattern").unwrap());
        let summary = format!("IXSCAN {}", bsonval::show::document(&key));
        assert_eq!(told.summary, Some(summary), "{filter}");
        let run = explained.get_document("executionStats").unwrap();
        let examined = |name: &str| run.get_i32(name).unwrap();
        let figures =
            format!("{} {}", examined("totalKeysExamined"), examined("totalDocsExamined"));
        assert_eq!(told.figures, figures, "{filter}");
    }
}

#[test]
fn projections_of_whole_fields_need_no_plan_where_no_index_has_all_that_is_shown() {
    let room = people();
    room.index(doc! { "key": { "u": 1 }, "unique": true, "sparse": true });
    room.insert(&[doc! { "_id": 7, "u": 1, "v": 2 }]);
    for (filter, projection, is_planned) in [
        (doc! { "_id": 1 }, doc! { "b": 1 }, false),
        (doc! { "_id": 1 }, doc! { "b": true, "_id": 0 }, false),
        (doc! { "_id": 1 }, doc! { "_id": 1 }, false),
        (doc! { "_id": 1 }, doc! { "a": 0, "d": 0 }, false),
        (doc! { "_id": 100 }, doc! { "a": 1 }, false),
        (doc! { "_id": 1 }, doc! { "d.e": 1 }, true),
        (doc! { "_id": 1 }, doc! { "a": { "$add": [1, 2] } }, true),
        (doc! { "m": 1 }, doc! { "b": 1 }, false),
        (doc! { "a": 7 }, doc! { "b": 0 }, false),
        (doc! { "m": 1 }, doc! { "m": 1 }, true),
        (doc! { "m": 1 }, doc! { "_id": 1 }, true),
        (doc! { "m": 1 }, doc! { "m": 1, "_id": 0 }, true),
        (doc! { "u": 1 }, doc! { "v": 1 }, false),
        (doc! { "u": 1 }, doc! { "u": 1 }, true),
    ] {
        check(&room, &filter, &projection, is_planned);
    }
    let told = check(&room, &doc! { "a": 7 }, &doc! { "c": 1, "_id": 0 }, false);
    assert_eq!(told.found, [doc! { "c": "y" }, doc! {}]);
}

#[test]
fn finds_by_an_id_are_counted_as_uses_of_its_index() {
    for options in [doc! {}, doc! { "primaryKey": { "k": 1, "_id": 1 } }] {
        let room = Room::of(&options);
        room.insert(&[doc! { "_id": 1, "k": 1 }]);
        for id in [1, 2] {
            let told = check(&room, &doc! { "_id": id }, &doc! {}, false);
            let queries: Vec<_> = told.used.iter().map(|one| one.queries).collect();
            assert_eq!(queries.iter().sum::<u64>(), 1, "{options} {queries:?}");
        }
    }
}

#[test]
fn a_limit_holds_for_whoever_takes_the_rows() {
    let room = Room::with(&(0..3).map(|n| doc! { "_id": n, "a": 1 }).collect::<Vec<_>>());
    room.index(doc! { "key": { "a": 1 } });
    let filter = raw(&doc! { "a": 1 });
    for limit in [1, 2, 5] {
        let request = FindRequest { filter: Some(&filter), limit, ..FindRequest::default() };
        let mut cursor = find(&mut room.ctx(), &room.ns, &request).unwrap();
        let mut found = 0;
        while cursor.next().unwrap().is_some() {
            found += 1;
        }
        assert_eq!(found, limit.min(3));
    }
}

#[test]
fn rows_are_those_of_the_state_at_the_beginning_and_end_with_the_collection() {
    let room = Room::with(&(0..300).map(|n| doc! { "_id": n, "a": n % 2 }).collect::<Vec<_>>());
    room.index(doc! { "key": { "a": 1 } });
    let filter = raw(&doc! { "a": 1 });
    let request = FindRequest { filter: Some(&filter), ..FindRequest::default() };
    let mut cursor = find(&mut room.ctx(), &room.ns, &request).unwrap();
    assert!(!cursor.is_planned());
    let mut next = || Document::try_from(cursor.next().unwrap().unwrap()).unwrap();
    assert_eq!(next(), doc! { "_id": 1, "a": 1 });
    cursor.park();
    room.insert(&[doc! { "_id": 2.5, "a": 1 }]);
    assert_eq!(writes::delete_all(&room, doc! { "_id": 5 }, true), 1);
    cursor.resume(Arc::new(Uninterrupted)).unwrap();
    let mut ids = Vec::new();
    while let Some(document) = cursor.next().unwrap() {
        ids.push(document.get_i32("_id").unwrap());
    }
    assert_eq!(ids, (3..300).step_by(2).collect::<Vec<_>>());
    let mut cursor = find(&mut room.ctx(), &room.ns, &request).unwrap();
    cursor.next().unwrap();
    cursor.park();
    room.catalog.drop_collection(&room.ns, &|| Ok(())).unwrap();
    assert_eq!(cursor.resume(Arc::new(Uninterrupted)).unwrap_err().code(), Code::QUERY_PLAN_KILLED);
}

#[test]
fn rows_end_when_their_operation_is_interrupted() {
    let room = Room::with(&(0..300).map(|n| doc! { "_id": n, "a": 1 }).collect::<Vec<_>>());
    room.index(doc! { "key": { "a": 1 } });
    let filter = raw(&doc! { "a": 1 });
    let request = FindRequest { filter: Some(&filter), ..FindRequest::default() };
    let read = read_when_stopped(&room, &request);
    assert!(read < 200, "{read}");
}

#[test]
fn transactions_and_operators_indexes_are_planned_for() {
    let room = people();
    let filter = raw(&doc! { "a": 5 });
    let request = FindRequest { filter: Some(&filter), ..FindRequest::default() };
    let mut txn = room.catalog.begin_clients(None, std::time::Duration::ZERO);
    let mut ctx = room.ctx();
    ctx.txn = Some(&mut txn);
    assert!(find(&mut ctx, &room.ns, &request).unwrap().is_planned());
    drop(ctx);
    drop(txn);
    check(&room, &doc! { "a": 5 }, &doc! {}, false);
    room.index(doc! { "key": { "b.$**": 1 } });
    check(&room, &doc! { "a": 5 }, &doc! {}, true);
}

fn projection() -> impl Strategy<Value = Document> {
    let named = prop::collection::btree_set(prop_oneof![Just("a"), Just("b"), Just("z")], 0..3);
    (named, any::<bool>(), prop::option::of(any::<bool>())).prop_map(|(names, shown, id)| {
        let mut projection: Document =
            names.into_iter().map(|name| (name.to_owned(), Bson::Boolean(shown))).collect();
        projection.extend(id.map(|id| ("_id".to_owned(), Bson::Boolean(id))));
        projection
    })
}

/// Options of an index, and fields that no index has twice.
const OPTIONS: [(&str, i32); 4] = [("unique", 1), ("sparse", 1), ("hidden", 1), ("none", 1)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn equalities_find_and_tell_without_a_plan_what_plans_do(
        documents in prop::collection::vec(document(), 1..12),
        chosen in prop::collection::vec((0..7_usize, 0..OPTIONS.len()), 0..4),
        primary_key in primary_key(),
        filters in prop::collection::vec(
            (prop::collection::btree_map(path(), scalar(), 1..3), projection()), 4),
    ) {
        let room = Room::of(&primary_key);
        for (at, option) in chosen {
            let key: Document = model::INDEXES[at]
                .iter()
                .map(|(path, direction)| ((*path).to_owned(), Bson::Int32(*direction)))
                .collect();
            let mut spec = doc! { "key": key, "name": format!("{at}") };
            if OPTIONS[option].0 != "none" {
                spec.insert(OPTIONS[option].0, true);
            }
            let spec = IndexSpec::parse(&raw(&spec)).unwrap();
            drop(room.catalog.create_indexes(&room.ns, &[spec], &|| Ok(())));
        }
        for (id, document) in documents.iter().enumerate() {
            let mut whole = doc! { "_id": id as i32 };
            whole.extend(document.clone());
            room.insert(&[whole]);
        }
        for (filter, projection) in filters {
            let filter: Document =
                filter.into_iter().map(|(path, value)| (path.to_owned(), value)).collect();
            let (at_once, is_planned) = told(&room, (&filter, &projection), false);
            if is_planned {
                continue;
            }
            let planned = told(&room, (&filter, &projection), true).0;
            prop_assert_eq!(at_once, planned, "{} {}", filter, projection);
            check_count(&room, &filter, (0, 0));
        }
    }
}
