//! Finds by all fields of a unique index: what is found without a plan is what plans find.

use super::*;
use catalog::IndexUse;

fn room() -> Room {
    let room = Room::with(&[
        doc! { "_id": 1, "a": 5.0, "b": 1, "c": "x", "d": { "e": 3 }, "f": 1, "h": 1, "i": 1 },
        doc! { "_id": 2, "a": [6, 7], "b": 1, "c": "y", "d": [{ "e": 4 }, { "e": 5 }], "h": 20, "i": 2 },
        doc! { "_id": 3, "a": "text", "b": 2, "c": "x", "d": { "e": "4" }, "f": 3, "h": 30, "i": 3,
        "p": [{ "q": 1, "r": 2 }, { "q": 3, "r": 4 }] },
        doc! { "_id": 4, "b": 3, "c": [1, 2], "d": 4, "g": "Other", "h": 40, "i": 4 },
    ]);
    for key in [doc! { "a": 1 }, doc! { "b": -1, "c": 1 }, doc! { "d.e": 1 }, doc! { "i": 1 }] {
        room.index(doc! { "key": key, "unique": true });
    }
    for key in [doc! { "f": 1 }, doc! { "p.q": 1, "p.r": 1 }] {
        room.index(doc! { "key": key, "unique": true, "sparse": true });
    }
    let insensitive = doc! { "locale": "en", "strength": 1 };
    room.index(doc! {
        "key": { "g": 1 }, "unique": true, "sparse": true, "collation": insensitive,
    });
    let partial = doc! { "h": { "$gt": 10 } };
    room.index(doc! { "key": { "h": 1 }, "unique": true, "partialFilterExpression": partial });
    room
}

fn uses(room: &Room) -> Vec<IndexUse> {
    let collection = room.catalog.collection(&room.ns).unwrap();
    collection.indexes().iter().map(|index| index.used()).collect()
}

/// What a find gives and tells, and whether it knew that it gives one document at most.
fn told(
    room: &Room,
    filter: &Document,
    planned: bool,
) -> (Vec<Document>, Vec<IndexUse>, String, bool) {
    let (filter, nothing) = (raw(filter), raw(&doc! {}));
    let request = FindRequest {
        filter: Some(&filter),
        let_variables: planned.then_some(&*nothing),
        ..FindRequest::default()
    };
    let before = uses(room);
    let _of_before = take_examined();
    let given = crate::find(&mut room.ctx(), &room.ns, &request).unwrap();
    let is_of_one = matches!(given, Found::One(_));
    let mut cursor = given.into_cursor();
    assert_eq!(cursor.most() == Some(1), is_of_one);
    let mut found = Vec::new();
    while let Some(document) = cursor.next().unwrap() {
        found.push(Document::try_from(document).unwrap());
    }
    drop(cursor);
    let examined = take_examined();
    let figures = format!("{} {} {:?}", examined.keys, examined.documents, examined.plan_summary());
    let used = uses(room).into_iter().zip(before).map(|(after, before)| IndexUse {
        queries: after.queries - before.queries,
        scanned: after.scanned - before.scanned,
        scanned_objects: after.scanned_objects - before.scanned_objects,
        ..IndexUse::default()
    });
    (found, used.collect(), figures, is_of_one)
}

#[test]
fn what_is_found_without_a_plan_is_what_plans_find() {
    let room = room();
    let cases = [
        (doc! { "a": 5 }, true),
        (doc! { "a": 5_i64 }, true),
        (doc! { "a": 7 }, true),
        (doc! { "a": "text" }, true),
        (doc! { "a": "Text" }, true),
        (doc! { "a": 99 }, true),
        (doc! { "b": 1, "c": "y" }, true),
        (doc! { "c": "x", "b": 2 }, true),
        (doc! { "d.e": 3 }, true),
        (doc! { "d.e": 5 }, true),
        (doc! { "d.e": "4" }, true),
        (doc! { "f": 3 }, true),
        (doc! { "i": 4 }, true),
        (doc! { "a": Bson::Null }, false),
        (doc! { "a": [6, 7] }, false),
        (doc! { "a": 5.0 }, false),
        (doc! { "a": { "$gt": 5 } }, false),
        (doc! { "a": 5, "f": 1 }, false),
        (doc! { "a": 5, "_id": 1 }, false),
        (doc! { "b": 1 }, false),
        (doc! { "d.0": 4 }, false),
        (doc! { "p.q": 1, "p.r": 4 }, false),
        (doc! { "g": "other" }, false),
        (doc! { "h": 20 }, false),
        (doc! { "h": 1 }, false),
        (doc! { "$comment": "all" }, false),
        (doc! {}, false),
    ];
    for (filter, at_once) in &cases {
        let (found, used, figures, is_of_one) = told(&room, filter, false);
        let planned = told(&room, filter, true);
        // An array makes the index on b and c one of arrays: which element has which value, only a document tells.
        let at_once = *at_once && !(filter.contains_key("b") && filter.contains_key("c"));
        assert_eq!(is_of_one, at_once, "{filter}");
        assert_eq!((found, used, figures), (planned.0, planned.1, planned.2), "{filter}");
    }
    assert_eq!(told(&room, &doc! { "p.q": 1, "p.r": 4 }, false).0.len(), 1);
    assert_eq!(told(&room, &doc! { "d.e": 5 }, false).0.len(), 1);
}

#[test]
fn index_of_two_parts_is_asked_where_no_array_is_in_it_and_no_other_would_do() {
    let room =
        Room::with(&[doc! { "_id": 1, "a": 1, "b": "x" }, doc! { "_id": 2, "a": 1, "b": "y" }]);
    room.index(doc! { "key": { "a": -1, "b": 1 }, "unique": true });
    let filter = doc! { "b": "y", "a": 1 };
    let (found, used, figures, is_of_one) = told(&room, &filter, false);
    let planned = told(&room, &filter, true);
    assert!(is_of_one && found.len() == 1);
    assert_eq!((found, used, figures), (planned.0, planned.1, planned.2));
    let mut txn = room.catalog.begin_clients(None, std::time::Duration::ZERO);
    let mut ctx = room.ctx();
    ctx.txn = Some(&mut txn);
    let raw_filter = raw(&filter);
    let request = FindRequest { filter: Some(&raw_filter), ..FindRequest::default() };
    assert_eq!(find(&mut ctx, &room.ns, &request).unwrap().most(), None, "a transaction plans");
    drop(ctx);
    drop(txn);
    room.index(doc! { "key": { "b": 1, "a": 1 }, "unique": true });
    assert!(!told(&room, &filter, false).3, "two indexes: one has to be chosen");
}

#[test]
fn count_of_an_id_is_that_of_a_plan() {
    let room = Room::with(&[doc! { "_id": 1 }, doc! { "_id": "a" }, doc! { "_id": 3.0 }]);
    let counted = |filter: Document, skip: u64| {
        let filter = raw(&filter);
        let request = CountRequest { filter: Some(&filter), skip, ..CountRequest::default() };
        let _of_before = take_examined();
        let n = count(&mut room.ctx(), &room.ns, &request).unwrap();
        let examined = take_examined();
        (n, examined.keys, examined.documents, examined.plan_summary())
    };
    for id in [Bson::Int32(1), Bson::Int64(3), "a".into(), "b".into(), Bson::Int32(9)] {
        for skip in [0, 1] {
            let at_once = counted(doc! { "_id": id.clone() }, skip);
            let planned = counted(doc! { "_id": { "$eq": id.clone() } }, skip);
            assert_eq!(at_once, planned, "{id} {skip}");
        }
    }
    assert_eq!(counted(doc! { "_id": 3 }, 0).0, 1);
}
