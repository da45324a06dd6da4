//! Finds by a range of `_id`: what is found without a plan is what plans find.

use super::index_key::uses;
use super::model::{scalar, sort};
use super::*;
use catalog::IndexUse;

/// What a find gives and tells.
#[derive(PartialEq, Debug)]
struct Outcome {
    found: Vec<String>,
    used: Vec<IndexUse>,
    figures: String,
}

/// A find of these parts; by a plan where it has variables, even if none.
struct Parts {
    filter: RawDocumentBuf,
    sort: RawDocumentBuf,
    limit: u64,
    variables: Option<RawDocumentBuf>,
}

impl Parts {
    fn new(filter: &Document, sort: &Document, limit: u64) -> Self {
        Self { filter: raw(filter), sort: raw(sort), limit, variables: None }
    }

    fn request(&self) -> FindRequest<'_> {
        FindRequest {
            filter: Some(&self.filter),
            sort: Some(&self.sort),
            limit: self.limit,
            let_variables: self.variables.as_deref(),
            ..FindRequest::default()
        }
    }

    fn is_planned(&self, room: &Room) -> bool {
        let collection = room.catalog.collection(&room.ns).unwrap();
        let found = crate::id_range::find(&room.ctx(), &collection, &self.filter, &self.request());
        let _of_this = take_examined();
        found.unwrap().is_none()
    }

    /// What it gives and tells, parked between its documents.
    fn outcome(&self, room: &Room) -> Outcome {
        let before = uses(room);
        let _of_before = take_examined();
        let mut cursor = find(&mut room.ctx(), &room.ns, &self.request()).unwrap();
        let mut found = Vec::new();
        while let Some(document) = cursor.next().unwrap() {
            // As text: NaN is not itself.
            found.push(format!("{document:?}"));
            cursor.park();
            cursor.resume(Arc::new(Uninterrupted)).unwrap();
        }
        drop(cursor);
        let examined = take_examined();
        let Examined { keys, documents, scanned, found_by_scan, sorts, .. } = examined;
        let numbers = [keys, documents, scanned, found_by_scan];
        let figures = format!("{numbers:?} {sorts} {:?}", examined.plan_summary());
        let used = uses(room).into_iter().zip(before).map(|(after, before)| IndexUse {
            queries: after.queries - before.queries,
            scanned: after.scanned - before.scanned,
            scanned_objects: after.scanned_objects - before.scanned_objects,
            ..after
        });
        Outcome { found, used: used.collect(), figures }
    }

    /// What it gives and tells without a plan, which is what it does with one.
    fn check(mut self, room: &Room) -> Outcome {
        let at_once = self.outcome(room);
        self.variables = Some(raw(&doc! {}));
        assert_eq!(at_once, self.outcome(room), "{:?} {:?} {}", self.filter, self.sort, self.limit);
        at_once
    }
}

fn of_many_types() -> Room {
    let id = bson::oid::ObjectId::from_bytes([7; 12]);
    let date = bson::DateTime::from_millis(5);
    let binary = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1] };
    let room = Room::with(&[
        doc! { "_id": 1 },
        doc! { "_id": 2.5 },
        doc! { "_id": 3_i64 },
        doc! { "_id": f64::NAN },
        doc! { "_id": "a" },
        doc! { "_id": "b" },
        doc! { "_id": id },
        doc! { "_id": date },
        doc! { "_id": binary },
        doc! { "_id": { "a": 1 } },
        doc! { "_id": Bson::Null, "b": 1 },
    ]);
    room.index(doc! { "key": { "b": 1 } });
    room
}

#[test]
fn ranges_of_one_value_s_type_need_no_plan() {
    let room = of_many_types();
    let id = bson::oid::ObjectId::from_bytes([0; 12]);
    let date = bson::DateTime::from_millis(0);
    // A filter, an order, how many at most, whether it is planned, and how many are found.
    for (filter, sort, limit, is_planned, count) in [
        (doc! { "_id": { "$gte": 1 } }, doc! {}, 0, false, 3),
        (doc! { "_id": { "$gt": 1 } }, doc! { "_id": 1 }, 0, false, 2),
        (doc! { "_id": { "$lte": 3 } }, doc! { "_id": -1 }, 2, false, 2),
        (doc! { "_id": { "$gt": 1_i64, "$lt": 3 } }, doc! { "_id": 1.0 }, 5, false, 1),
        (doc! { "_id": { "$gte": "a" } }, doc! { "_id": 1 }, 1, false, 1),
        (doc! { "_id": { "$lt": "b" } }, doc! {}, 0, false, 1),
        (doc! { "_id": { "$gte": id } }, doc! {}, 0, false, 1),
        (doc! { "_id": { "$gt": date } }, doc! {}, 0, false, 1),
        (doc! { "_id": { "$gt": 3, "$lt": 1 } }, doc! {}, 0, true, 0),
        (doc! { "_id": { "$gt": 3, "$lt": "a" } }, doc! {}, 0, true, 0),
        (doc! { "_id": { "$gte": 3, "$lte": 3 } }, doc! {}, 0, true, 1),
        (doc! { "_id": { "$gte": 1.0 } }, doc! {}, 0, true, 3),
        (doc! { "_id": { "$gte": f64::NAN } }, doc! {}, 0, true, 1),
        (doc! { "_id": { "$gte": Bson::Null } }, doc! {}, 0, true, 1),
        (doc! { "_id": { "$gte": { "a": 1 } } }, doc! {}, 0, true, 1),
        (doc! { "_id": { "$gte": 1, "$ne": 3 } }, doc! {}, 0, true, 2),
        (doc! { "_id": { "a": 1 } }, doc! {}, 0, true, 1),
        (doc! { "_id": {} }, doc! {}, 0, true, 0),
        (doc! { "_id": { "$gte": 1 }, "b": 1 }, doc! {}, 0, true, 0),
        (doc! { "b": { "$gte": 1 } }, doc! {}, 0, true, 1),
        (doc! { "_id": { "$gte": 1 } }, doc! { "b": 1 }, 0, true, 3),
        (doc! { "_id": { "$gte": 1 } }, doc! { "_id": 1, "b": 1 }, 0, true, 3),
    ] {
        let parts = Parts::new(&filter, &sort, limit);
        assert_eq!(parts.is_planned(&room), is_planned, "{filter} {sort}");
        assert_eq!(parts.check(&room).found.len(), count, "{filter} {sort} {limit}");
    }
}

#[test]
fn a_range_is_planned_for_where_something_else_might_be_better_or_compares_otherwise() {
    let parts = || Parts::new(&doc! { "_id": { "$gte": "a" } }, &doc! {}, 0);
    assert!(!parts().is_planned(&of_many_types()));
    for key in [doc! { "_id": 1, "b": 1 }, doc! { "$**": 1 }] {
        let room = of_many_types();
        room.index(doc! { "key": key.clone() });
        assert!(parts().is_planned(&room), "{key}");
        parts().check(&room);
    }
    let room = of_many_types();
    room.index(doc! { "key": { "b": 1, "c": 1 }, "clustering": true });
    assert!(parts().is_planned(&room));
    for options in [
        doc! { "capped": true, "size": 100_000 },
        doc! { "collation": { "locale": "en", "strength": 1 } },
        doc! { "primaryKey": { "a": 1, "_id": 1 } },
    ] {
        let room = Room::of(&options);
        room.insert(&[doc! { "_id": "A" }, doc! { "_id": "b" }]);
        assert!(parts().is_planned(&room), "{options}");
        parts().check(&room);
    }
    let room = of_many_types();
    let mut txn = room.catalog.begin_clients(None, std::time::Duration::ZERO);
    let mut ctx = room.ctx();
    ctx.txn = Some(&mut txn);
    let collection = room.catalog.collection(&room.ns).unwrap();
    let (given, filter) = (parts(), raw(&doc! { "_id": { "$gte": "a" } }));
    assert!(crate::id_range::find(&ctx, &collection, &filter, &given.request()).unwrap().is_none());
}

#[test]
fn documents_are_those_of_the_state_at_the_beginning_and_end_with_the_collection() {
    let room = Room::with(&(0..300).map(|n| doc! { "_id": n }).collect::<Vec<_>>());
    let parts = Parts::new(&doc! { "_id": { "$gte": 1 } }, &doc! { "_id": 1 }, 0);
    let mut cursor = find(&mut room.ctx(), &room.ns, &parts.request()).unwrap();
    assert!(!cursor.is_planned());
    assert_eq!(Document::try_from(cursor.next().unwrap().unwrap()).unwrap(), doc! { "_id": 1 });
    cursor.park();
    room.insert(&[doc! { "_id": 2.5 }]);
    assert_eq!(writes::delete_all(&room, doc! { "_id": 5 }, true), 1);
    cursor.resume(Arc::new(Uninterrupted)).unwrap();
    let mut ids = Vec::new();
    while let Some(document) = cursor.next().unwrap() {
        ids.push(document.get_i32("_id").unwrap());
    }
    assert_eq!(ids, (2..300).collect::<Vec<_>>());
    assert!(cursor.next().unwrap().is_none(), "a cursor stays at its end");
    let mut cursor = find(&mut room.ctx(), &room.ns, &parts.request()).unwrap();
    cursor.next().unwrap();
    cursor.park();
    room.catalog.drop_collection(&room.ns, &|| Ok(())).unwrap();
    assert_eq!(cursor.resume(Arc::new(Uninterrupted)).unwrap_err().code(), Code::QUERY_PLAN_KILLED);
}

#[test]
fn documents_end_when_their_operation_is_interrupted() {
    let room = Room::with(&(0..300).map(|n| doc! { "_id": n }).collect::<Vec<_>>());
    let parts = Parts::new(&doc! { "_id": { "$gte": 1 } }, &doc! {}, 0);
    let read = read_when_stopped(&room, &parts.request());
    assert!(read < 200, "{read}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn ranges_find_and_tell_without_a_plan_what_plans_do(
        ids in prop::collection::vec(scalar(), 1..12),
        key in prop::sample::select(vec!["none", "a", "b"]),
        finds in prop::collection::vec((
            prop::collection::btree_map(
                prop::sample::select(vec!["$gt", "$gte", "$lt", "$lte"]), scalar(), 1..3),
            prop_oneof![Just(doc! {}), Just(doc! { "_id": 1 }), Just(doc! { "_id": -1 }), sort()],
            0..4_u64,
        ), 4),
    ) {
        let room = Room::new();
        if key != "none" {
            room.index(doc! { "key": { key: 1 } });
        }
        for (at, id) in ids.into_iter().enumerate() {
            // Some may not be an `_id`, or are there already.
            room.insert(&[doc! { "_id": id, "a": at as i32 }]);
        }
        for (operators, sort, limit) in finds {
            let operators: Document =
                operators.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            Parts::new(&doc! { "_id": operators }, &sort, limit).check(&room);
        }
    }
}
