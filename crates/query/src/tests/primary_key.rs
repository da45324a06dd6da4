//! Collections that are clustered by other fields before `_id`: plans, and writes that move documents.

use super::plans::check;
use super::writes::{ask, delete_all, some_update};
use super::*;
use crate::canonical::{Canonical, Purpose};
use crate::write::{Targets, lock};
use catalog::TxnKind;
use matcher::Filter;

/// A hundred documents in the order of `k`, ten of each value.
fn numbers() -> Room {
    let room = Room::of(&doc! { "primaryKey": { "k": 1, "d.x": -1, "_id": 1 } });
    let documents: Vec<Document> = (0..100)
        .map(|i| doc! { "_id": i, "k": i % 10, "d": { "x": i % 3 }, "b": i, "s": i % 4 })
        .collect();
    assert!(room.insert(&documents).errors.is_empty());
    room.index(doc! { "key": { "b": 1 } });
    room.index(doc! { "key": { "s": 1 } });
    room
}

#[test]
fn the_primary_key_is_read_as_a_clustering_index() {
    let room = numbers();
    let scan = &["IXSCAN"][..];
    check(&room, doc! { "k": 3 }, doc! {}, scan, 10, 0);
    check(&room, doc! { "k": { "$gte": 3, "$lt": 5 } }, doc! {}, scan, 20, 0);
    check(&room, doc! { "k": 3, "d.x": 1 }, doc! {}, scan, 3, 0);
    check(&room, doc! { "k": 3, "s": 1 }, doc! { "k": 1 }, scan, 10, 0);
    check(&room, doc! {}, doc! { "k": 1 }, scan, 100, 0);
    check(&room, doc! {}, doc! { "k": -1, "d.x": 1, "_id": -1 }, scan, 100, 0);
    check(&room, doc! { "k": 3 }, doc! { "d.x": -1, "_id": 1 }, scan, 10, 0);
    check(&room, doc! {}, doc! { "k": 1, "d.x": 1 }, &["SORT", "COLLSCAN"], 0, 100);
    check(&room, doc! { "d.x": 1 }, doc! {}, &["COLLSCAN"], 0, 100);
    check(&room, doc! {}, doc! {}, &["COLLSCAN"], 0, 100);
    let explained = room.explain(doc! { "k": 3 }, doc! {});
    let plan = explained.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    assert_eq!(plan.get_str("indexName").unwrap(), "primaryKey");
    assert_eq!(plan.get_document("keyPattern").unwrap(), &doc! { "k": 1, "d.x": -1, "_id": 1 });
    assert!(plan.get_bool("clustering").unwrap() && plan.get_bool("isUnique").unwrap());
}

#[test]
fn ids_are_looked_up_in_their_own_index() {
    let room = numbers();
    check(&room, doc! { "_id": 5 }, doc! {}, &["IDHACK"], 1, 1);
    check(&room, doc! { "_id": 5, "k": 6 }, doc! {}, &["IDHACK"], 1, 1);
    check(&room, doc! { "_id": { "$gte": 95 } }, doc! {}, &["FETCH", "IXSCAN"], 5, 5);
    check(&room, doc! { "_id": { "$in": [1, 2, 200] } }, doc! {}, &["FETCH", "IXSCAN"], 2, 2);
    check(&room, doc! {}, doc! { "_id": -1 }, &["FETCH", "IXSCAN"], 100, 100);
    assert_eq!(room.find(doc! { "_id": 5 })[0].get_i32("b").unwrap(), 5);
    assert!(room.find(doc! { "_id": 500 }).is_empty());
}

#[test]
fn entries_with_equal_values_stand_in_the_order_of_the_primary_key() {
    let room = numbers();
    let indexed = &["FETCH", "IXSCAN"][..];
    check(&room, doc! { "s": 1 }, doc! { "k": 1, "d.x": -1 }, indexed, 25, 25);
    check(&room, doc! {}, doc! { "s": -1, "k": -1, "d.x": 1, "_id": -1 }, indexed, 100, 100);
    // Only the whole key before it says where an `_id` stands.
    let explained = room.explain(doc! { "s": 1 }, doc! { "_id": 1 });
    assert!(!stages(&explained).ends_with(&["FETCH".to_owned()]), "{explained}");
    let sorted: Vec<i32> = {
        let (filter, sort) = (raw(&doc! { "s": 1 }), raw(&doc! { "_id": 1 }));
        let request =
            FindRequest { filter: Some(&filter), sort: Some(&sort), ..FindRequest::default() };
        let found = room.find_with(&request).unwrap();
        found.iter().map(|document| document.get_i32("_id").unwrap()).collect()
    };
    assert!(sorted.is_sorted() && sorted.len() == 25);
}

#[test]
fn hints_name_the_primary_key_the_index_on_id_and_the_order() {
    let room = numbers();
    let find = |hint: RawBsonRef<'_>| -> Result<Vec<i32>> {
        let filter = raw(&doc! { "b": { "$lt": 12 } });
        let request =
            FindRequest { filter: Some(&filter), hint: Some(hint), ..FindRequest::default() };
        let found = room.find_with(&request)?;
        Ok(found.iter().map(|document| document.get_i32("_id").unwrap()).collect())
    };
    // Descending by `d.x` where `k` is the same: 11 has 2, 1 has 1; 10 has 1, 0 has 0.
    let by_key = [10, 0, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    let pattern = raw(&doc! { "k": 1, "d.x": -1, "_id": 1 });
    let natural = raw(&doc! { "$natural": 1 });
    let id = raw(&doc! { "_id": 1 });
    let by_id: Vec<i32> = (0..12).collect();
    assert_eq!(find(RawBsonRef::String("primaryKey")).unwrap(), by_key);
    assert_eq!(find(RawBsonRef::Document(&pattern)).unwrap(), by_key);
    assert_eq!(find(RawBsonRef::Document(&natural)).unwrap(), by_key);
    assert_eq!(find(RawBsonRef::String("_id_")).unwrap(), by_id);
    assert_eq!(find(RawBsonRef::Document(&id)).unwrap(), by_id);
    let unknown = raw(&doc! { "k": 1 });
    assert_eq!(find(RawBsonRef::Document(&unknown)).unwrap_err().code(), Code::BAD_VALUE);
}

#[test]
fn min_and_max_limit_the_primary_key() {
    let room = numbers();
    let min = raw(&doc! { "k": 2, "d.x": 1, "_id": 0 });
    let max = raw(&doc! { "k": 3, "d.x": 5, "_id": 0 });
    let request = FindRequest {
        min: Some(&min),
        max: Some(&max),
        hint: Some(RawBsonRef::String("primaryKey")),
        ..FindRequest::default()
    };
    let found = room.find_with(&request).unwrap();
    assert_eq!(found.len(), 6);
    assert!(found.iter().all(|d| d.get_i32("k").unwrap() == 2));
}

#[test]
fn indexes_whose_entries_end_in_the_primary_key_tell_the_id() {
    let room = numbers();
    let (filter, projection) = (raw(&doc! { "b": { "$gte": 97 } }), raw(&doc! { "b": 1 }));
    let request = FindRequest {
        filter: Some(&filter),
        projection: Some(&projection),
        ..FindRequest::default()
    };
    let explained =
        explain_find(&mut room.ctx(), &room.ns, &request, Verbosity::ExecutionStats).unwrap();
    let explained = Document::try_from(&*explained).unwrap();
    assert_eq!(stages(&explained), ["PROJECTION_COVERED", "IXSCAN"]);
    let expected: Vec<Document> = (97..100).map(|i| doc! { "_id": i, "b": i }).collect();
    assert_eq!(room.find_with(&request).unwrap(), expected);
}

#[test]
fn counts_and_distinct_values_come_from_the_primary_key() {
    let room = numbers();
    let filter = raw(&doc! { "k": { "$gte": 8 } });
    let request = CountRequest { filter: Some(&filter), ..CountRequest::default() };
    assert_eq!(count(&mut room.ctx(), &room.ns, &request).unwrap(), 20);
    let stage = |explained: RawDocumentBuf| stages(&Document::try_from(&*explained).unwrap());
    let explained =
        explain_count(&mut room.ctx(), &room.ns, &request, Verbosity::QueryPlanner).unwrap();
    assert_eq!(stage(explained), ["COUNT", "COUNT_SCAN"]);
    let values = room.aggregate(vec![
        doc! { "$match": { "k": { "$lt": 3 } } },
        doc! { "$group": { "_id": "$k", "n": { "$sum": 1 } } },
        doc! { "$sort": { "_id": 1 } },
    ]);
    let expected: Vec<Document> = (0..3).map(|k| doc! { "_id": k, "n": 10 }).collect();
    assert_eq!(values.unwrap(), expected);
}

#[test]
fn no_document_is_met_again_where_an_update_has_moved_it() {
    for filter in [doc! {}, doc! { "k": { "$gte": 0 } }, doc! { "b": { "$gte": 0 } }] {
        let room = Room::of(&doc! { "primaryKey": { "k": 1, "_id": 1 } });
        // More than are changed at a time.
        let documents: Vec<Document> =
            (0..2500).map(|i| doc! { "_id": i, "k": i, "b": i }).collect();
        assert!(room.insert(&documents).errors.is_empty());
        room.index(doc! { "key": { "b": 1 } });
        let update = doc! { "$inc": { "k": 1000, "b": 1 } };
        let done = ask(filter.clone(), update).multi().run(&room);
        assert_eq!((done.n, done.n_modified), (2500, 2500), "{filter}");
        let found = room.find(doc! {});
        for (at, document) in found.iter().enumerate() {
            let at = at as i32;
            assert_eq!(document, &doc! { "_id": at, "k": at + 1000, "b": at + 1 });
        }
        room.check_valid();
    }
}

#[test]
fn findandmodify_upserts_and_deletes_go_by_the_record() {
    let room = numbers();
    let sort = raw(&doc! { "k": -1, "d.x": 1 });
    let update = raw(&doc! { "$set": { "k": -1 } });
    let request = FindAndModifyRequest {
        filter: None,
        sort: Some(&sort),
        remove: false,
        update: Some(RawBsonRef::Document(&update)),
        return_new: true,
        projection: None,
        upsert: false,
        array_filters: None,
        hint: None,
        collation: None,
        let_variables: None,
    };
    let found = find_and_modify(&mut room.ctx(), &room.ns, &request).unwrap().value.unwrap();
    assert_eq!(found.get_i32("k").unwrap(), -1);
    assert_eq!(room.find(doc! {})[0].get("_id"), Document::try_from(&*found).unwrap().get("_id"));
    let done = ask(doc! { "_id": 700, "k": 4 }, doc! { "$set": { "b": 1 } }).upsert().run(&room);
    assert_eq!(done.upserted.len(), 1);
    assert_eq!(room.find(doc! { "k": 4, "b": 1 }), [doc! { "_id": 700, "k": 4, "b": 1 }]);
    // The same `_id` elsewhere is there already.
    let refused = ask(doc! { "_id": 700, "k": 5 }, doc! { "$set": { "b": 1 } }).upsert().run(&room);
    assert_eq!(refused.errors[0].error.code(), Code::DUPLICATE_KEY);
    assert_eq!(delete_all(&room, doc! { "_id": 700 }, true), 1);
    assert_eq!(delete_all(&room, doc! { "k": { "$gte": 5 } }, false), 49);
    assert_eq!(room.find(doc! {}).len(), 51);
    let done = ask(doc! { "_id": 1 }, doc! { "k": "replaced" }).run(&room);
    assert_eq!(done.n_modified, 1);
    assert_eq!(room.find(doc! { "k": "replaced" }), [doc! { "_id": 1, "k": "replaced" }]);
    room.check_valid();
}

#[test]
fn a_document_that_another_writer_moved_is_followed() {
    let room = numbers();
    let mut ctx = room.ctx();
    let filter = raw(&doc! { "k": 3, "b": 3 });
    let filter = Filter::parse_query(&filter, &matcher::ParseContext::default()).unwrap();
    let collection = room.catalog.collection(&room.ns);
    for (moved, is_followed) in [(doc! { "d.x": 7 }, true), (doc! { "k": 9 }, false)] {
        let query =
            Canonical::of_filter(&ctx, collection.clone(), filter.clone(), None, Purpose::Write);
        let mut targets = Targets::of(&ctx, query.unwrap()).unwrap().unwrap();
        let rows = targets.take(&ctx, true).unwrap();
        assert_eq!(ask(doc! { "b": 3 }, doc! { "$set": moved }).run(&room).n_modified, 1);
        let mut txn = room.catalog.begin(TxnKind::Statement);
        let open = targets.open(&mut txn, &room.ns).unwrap().unwrap();
        let locked = lock(&mut txn, &open, &filter, &rows[0]).unwrap();
        assert_eq!(locked.is_some(), is_followed);
        if let Some(locked) = locked {
            let document = locked.document().unwrap();
            assert_eq!(open.record_key(document).unwrap(), &locked.record_key[..]);
            assert_ne!(rows[0].record_key, &locked.record_key[..]);
        }
    }
    ctx.look_again().unwrap();
}

#[test]
fn documents_expire_wherever_they_stand() {
    let room = Room::of(&doc! { "primaryKey": { "k": -1, "_id": 1 } });
    let now = os::Os::real().clock.wall_ms();
    let date = |seconds_ago: i64| bson::DateTime::from_millis(now - seconds_ago * 1000);
    let documents: Vec<Document> =
        (0..10).map(|i| doc! { "_id": i, "k": i % 3, "at": date(i64::from(i) * 20) }).collect();
    assert!(room.insert(&documents).errors.is_empty());
    room.index(doc! { "key": { "at": 1 }, "expireAfterSeconds": 90 });
    let never: Arc<dyn Interrupt> = Arc::new(Uninterrupted);
    assert_eq!(expire_documents(&room.catalog, &never).unwrap(), 5);
    let left: Vec<Document> = room.find(doc! {});
    let left: Vec<i32> = left.iter().map(|document| document.get_i32("_id").unwrap()).collect();
    assert_eq!(left, [2, 1, 4, 0, 3]);
    room.check_valid();
}

/// Every update finds its document, however often others move it meanwhile.
#[test]
fn no_update_misses_a_document_that_others_move() {
    const THREADS: i32 = 4;
    const TURNS: i32 = 150;
    const DOCUMENTS: i32 = 3;
    let room = Room::of(&doc! { "primaryKey": { "k": 1, "_id": 1 } });
    let documents: Vec<Document> =
        (0..DOCUMENTS).map(|i| doc! { "_id": i, "name": i, "k": 0, "n": 0, "all": 0 }).collect();
    assert!(room.insert(&documents).errors.is_empty());
    room.index(doc! { "key": { "name": 1 } });
    room.index(doc! { "key": { "n": 1 } });
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let room = &room;
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let which = (turn + thread) % DOCUMENTS;
                    let update =
                        doc! { "$inc": { "n": 1 }, "$set": { "k": (turn * 7 + thread) % 11 } };
                    let filter = if turn % 2 == 0 { "_id" } else { "name" };
                    let done = ask(doc! { filter: which }, update).run(room);
                    assert_eq!(done.n, 1, "{filter} in turn {turn} of {thread}: {:?}", done.errors);
                    if turn % 10 == 0 {
                        let all = doc! { "$inc": { "all": 1, "k": 1 } };
                        let done = ask(doc! {}, all).multi().run(room);
                        assert_eq!(done.n, DOCUMENTS as u64, "{:?}", done.errors);
                    }
                }
            });
        }
    });
    let found = room.find(doc! {});
    let sum = |field: &str| found.iter().map(|d| d.get_i32(field).unwrap()).sum::<i32>();
    assert_eq!(sum("n"), THREADS * TURNS);
    assert_eq!(sum("all"), THREADS * TURNS / 10 * DOCUMENTS);
    room.check_valid();
}

fn by_id(room: &Room) -> Vec<Document> {
    let sort = raw(&doc! { "_id": 1 });
    room.find_with(&FindRequest { sort: Some(&sort), ..FindRequest::default() }).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// A collection with a primary key holds what one without it holds after the same statements.
    #[test]
    fn updates_do_the_same_whatever_documents_are_clustered_by(
        updates in prop::collection::vec((0..6, some_update(), any::<bool>(), any::<bool>()), 1..25),
        deletes in prop::collection::vec((0..25_usize, 0..6), 0..3),
    ) {
        let rooms = [
            Room::of(&doc! { "primaryKey": { "n": -1, "a.c": 1, "_id": 1 } }),
            Room::of(&doc! {}),
        ];
        for room in &rooms {
            room.index(doc! { "key": { "a": 1 } });
            room.index(doc! { "key": { "z": 1, "n": -1 }, "sparse": true });
            room.index(doc! { "key": { "z": 1, "_id": 1 }, "unique": true, "name": "u" });
            room.index(doc! { "key": { "n": 1 }, "clustering": true });
        }
        for (at, (id, update, multi, by_index)) in updates.into_iter().enumerate() {
            let multi = multi && update.keys().all(|key| key.starts_with('$'));
            let mut refused = false;
            let mut told = Vec::new();
            for room in &rooms {
                if refused {
                    // The primary key takes no arrays, and the whole statement is undone.
                    continue;
                }
                let filter = if by_index && multi { doc! { "a": id } } else { doc! { "_id": id } };
                let mut statement = ask(filter, update.clone());
                statement = if multi { statement.multi() } else { statement.upsert() };
                let result = statement.run(room);
                refused = result.errors.iter().any(|failed| failed.error.code().0 == 17205);
                told.push((result.n, result.n_modified, result.errors.len()));
                for (_, id) in deletes.iter().filter(|(turn, _)| *turn == at && !refused) {
                    delete_all(room, doc! { "_id": *id }, true);
                }
            }
            prop_assert!(refused || told[0] == told[1], "{:?} of {}", told, update);
            prop_assert_eq!(by_id(&rooms[0]), by_id(&rooms[1]), "after {}", update);
        }
        rooms.iter().for_each(Room::check_valid);
    }
}
