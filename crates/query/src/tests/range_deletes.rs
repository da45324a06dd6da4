//! Deletes of everything in a range of record keys.

use super::partitions::divide;
use super::writes::delete_all;
use super::*;
use ::catalog::{Collection, Txn};
use std::time::Duration;

/// A document for each number, some of whose indexed fields are arrays.
fn documents(numbers: std::ops::Range<i32>) -> Vec<Document> {
    let array = |i: i32| vec![Bson::Int32(i % 7), Bson::Int32(i % 3)];
    numbers
        .map(|i| doc! { "_id": i, "k": i / 1500, "u": i * 7, "t": array(i), "s": format!("s{}", i % 50) })
        .collect()
}

fn filled(room: &Room, count: i32) {
    assert!(room.insert(&documents(0..count)).errors.is_empty());
    room.index(doc! { "key": { "t": 1 } });
    room.index(doc! { "key": { "u": 1, "k": 1 }, "unique": true });
    room.index(doc! { "key": { "s": 1 } });
}

fn collection(room: &Room) -> Arc<Collection> {
    room.catalog.collection(&room.ns).unwrap()
}

/// The stage that explain shows for a delete.
fn explained(room: &Room, filter: &Document, only_one: bool) -> String {
    let filter = raw(filter);
    let statement = DeleteStatement { filter: &filter, only_one, hint: None, collation: None };
    let request = DeleteRequest { deletes: &[statement], ordered: true, let_variables: None };
    let explained =
        explain_delete(&mut room.ctx(), &room.ns, &request, Verbosity::QueryPlanner).unwrap();
    stages(&Document::try_from(&*explained).unwrap()).remove(0)
}

fn begin(room: &Room) -> Txn {
    room.catalog.begin_clients(None, Duration::from_millis(20))
}

#[test]
fn a_collection_that_is_emptied_goes_at_once_and_can_be_filled_again() {
    let room = Room::new();
    filled(&room, 1200);
    let before = collection(&room);
    let old = room.catalog.snapshot();
    assert_eq!(explained(&room, &doc! {}, false), "DELETE_RANGE");
    assert_eq!(delete_all(&room, doc! {}, false), 1200);
    let after = collection(&room);
    assert_ne!(before.primary(), after.primary(), "another dictionary has its place");
    assert_eq!((after.uuid(), after.count(), after.data_size()), (before.uuid(), 0, 0));
    assert_eq!(room.find(doc! {}).len(), 0);
    assert_eq!(room.find(doc! { "t": 1 }).len(), 0);
    room.check_valid();
    // The same keys, also those of the unique index.
    assert!(room.insert(&documents(0..1100)).errors.is_empty());
    assert_eq!(room.find(doc! { "u": 77 }).len(), 1);
    assert_eq!(
        room.find(doc! { "t": 1 }).len(),
        room.find(doc! { "$or": [{ "t.0": 1 }, { "t.1": 1 }] }).len()
    );
    room.check_valid();
    let then = room.catalog.collection_in(&room.ns, &old).unwrap().unwrap();
    assert_eq!(room.catalog.count_in(&then, &old).unwrap(), Some(1200));
    assert_eq!(then.primary(), before.primary());
    // What was made anew is there after a start.
    let options = CatalogOptions::new(os::Os::real(), std::env::temp_dir());
    let catalog = Catalog::open(room.catalog.engine().clone(), options).unwrap();
    let opened = Room { catalog, ns: room.ns.clone() };
    assert_eq!(collection(&opened).count(), 1100);
    assert!(collection(&opened).index("t_1").unwrap().multikey_parts() != 0);
    opened.check_valid();
}

#[test]
fn partitions_within_a_range_go_at_once_and_the_rest_one_by_one() {
    let room = Room::of(&doc! { "partitioned": true, "primaryKey": { "k": 1, "_id": 1 } });
    divide(&room, "k", &[0, 1, 2]);
    filled(&room, 6000);
    let primaries =
        || -> Vec<_> { collection(&room).stores().iter().map(|s| s.primary()).collect() };
    let before = primaries();
    let filter = doc! { "k": { "$gte": 1, "$lte": 2 }, "_id": { "$gte": 0 } };
    assert_eq!(explained(&room, &filter, false), "DELETE", "the second field is no range of keys");
    let filter = doc! { "k": { "$lt": 2 } };
    assert_eq!(explained(&room, &filter, false), "DELETE_RANGE");
    assert_eq!(delete_all(&room, filter, false), 3000);
    let after = primaries();
    assert!(before[0] != after[0] && before[1] != after[1], "they are others");
    assert_eq!(before[2..], after[2..]);
    let counts: Vec<u64> = collection(&room).stores().iter().map(|store| store.count()).collect();
    assert_eq!(counts, [0, 0, 1500, 1500]);
    assert_eq!(collection(&room).partitions().len(), 4, "partitions stay");
    room.check_valid();
    // Half of a partition and all of the next.
    let filter = raw(&doc! { "k": 2, "_id": { "$lt": 4000 } });
    let filter = Document::try_from(&filter).unwrap();
    assert_eq!(delete_all(&room, filter, false), 1000);
    assert_eq!(delete_all(&room, doc! { "k": { "$gte": 2 } }, false), 2000);
    assert_eq!(collection(&room).count(), 0);
    assert_eq!(room.find(doc! {}).len(), 0);
    room.check_valid();
    assert!(room.insert(&documents(0..6000)).errors.is_empty());
    assert_eq!(collection(&room).count(), 6000);
    room.check_valid();
}

#[test]
fn what_is_no_whole_range_goes_one_by_one() {
    let room = Room::new();
    filled(&room, 1200);
    let primary = collection(&room).primary();
    for (filter, only_one) in [
        (doc! { "t": { "$gte": 0 } }, false),
        (doc! { "_id": { "$gte": 0 }, "s": "s1" }, false),
        (doc! { "_id": { "$gt": 300 } }, false),
        (doc! { "_id": { "$in": (0..1100).collect::<Vec<_>>() } }, false),
        (doc! {}, true),
    ] {
        assert_eq!(explained(&room, &filter, only_one), "DELETE", "{filter}");
    }
    let mut txn = begin(&room);
    let mut ctx = room.ctx();
    ctx.txn = Some(&mut txn);
    let filter = raw(&doc! {});
    let statement =
        DeleteStatement { filter: &filter, only_one: false, hint: None, collation: None };
    let request = DeleteRequest { deletes: &[statement], ordered: true, let_variables: None };
    assert_eq!(delete(&mut ctx, &room.ns, &request).unwrap().n, 1200);
    txn.abort();
    // Somebody is inside with a document of his own: that one stays.
    let mut txn = begin(&room);
    let inside = txn.open_for_write(&room.ns).unwrap().unwrap();
    txn.insert_document(&inside, &raw(&doc! { "_id": 5000, "u": 1, "k": 0 })).unwrap();
    assert_eq!(delete_all(&room, doc! {}, false), 1200);
    assert_eq!(collection(&room).primary(), primary);
    txn.commit().unwrap();
    assert_eq!(room.find(doc! {}).len(), 1);
    room.check_valid();
}

#[test]
fn a_transaction_from_before_a_range_was_deleted_conflicts() {
    let room = Room::new();
    filled(&room, 1200);
    let mut txn = begin(&room);
    assert_eq!(delete_all(&room, doc! { "_id": { "$gte": 0 } }, false), 1200);
    let refused = txn.open_for_write(&room.ns).unwrap_err();
    assert_eq!(refused.code(), Code::WRITE_CONFLICT);
    let mut ctx = room.ctx();
    ctx.txn = Some(&mut txn);
    let mut cursor = find(&mut ctx, &room.ns, &FindRequest::default()).unwrap();
    let mut found = 0;
    while cursor.next().unwrap().is_some() {
        found += 1;
    }
    assert_eq!(found, 1200, "it sees what was there when it began");
    room.check_valid();
}

/// All that the background has to do.
fn settle(room: &Room) {
    let engine = room.catalog.engine();
    for _ in 0..20 {
        while engine.step().unwrap() {}
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn ids(room: &Room, filter: Document, hint: Option<Document>) -> Vec<i32> {
    let (filter, hint) = (raw(&filter), hint.as_ref().map(raw));
    let request = FindRequest {
        filter: Some(&filter),
        hint: hint.as_ref().map(|hint| RawBsonRef::Document(hint)),
        ..FindRequest::default()
    };
    let found = room.find_with(&request).unwrap();
    let mut ids: Vec<i32> = found.iter().map(|one| one.get_i32("_id").unwrap()).collect();
    ids.sort_unstable();
    ids
}

/// What is found by every index is what there should be.
fn check_ids(room: &Room, expected: &[i32]) {
    assert_eq!(collection(room).count(), expected.len() as u64);
    assert_eq!(ids(room, doc! {}, None), expected);
    for (filter, key) in [
        (doc! { "t": { "$gte": 0 } }, doc! { "t": 1 }),
        (doc! { "u": { "$gte": 0 } }, doc! { "u": 1, "k": 1 }),
        (doc! { "s": { "$gte": "" } }, doc! { "s": 1 }),
        (doc! { "k": { "$gte": 0 } }, doc! { "k": -1, "s": 1 }),
    ] {
        assert_eq!(ids(room, filter, Some(key.clone())), expected, "{key}");
    }
}

fn filled_with_ranges(room: &Room, count: i32) {
    filled(room, count);
    room.index(doc! { "key": { "k": -1, "s": 1 } });
}

#[test]
fn a_range_goes_from_the_documents_and_from_every_index() {
    let room = Room::with_ranges();
    filled_with_ranges(&room, 5000);
    let old = room.catalog.snapshot();
    let filter = doc! { "_id": { "$gte": 500, "$lt": 4200 } };
    assert_eq!(explained(&room, &filter, false), "DELETE_RANGE");
    let primary = collection(&room).primary();
    assert_eq!(delete_all(&room, filter.clone(), false), 3700);
    assert_eq!(primary, collection(&room).primary());
    let engine = room.catalog.engine().clone();
    let left: Vec<i32> = (0..500).chain(4200..5000).collect();
    check_ids(&room, &left);
    room.check_valid();
    // Of what is gone each key can be used again.
    assert!(room.insert(&documents(1000..1200)).errors.is_empty());
    assert_eq!(room.insert(&documents(100..101)).errors.len(), 1);
    let with: Vec<i32> = (0..500).chain(1000..1200).chain(4200..5000).collect();
    check_ids(&room, &with);
    room.check_valid();
    let then = room.catalog.collection_in(&room.ns, &old).unwrap().unwrap();
    assert_eq!(room.catalog.count_in(&then, &old).unwrap(), Some(5000));
    settle(&room);
    let entries = engine.dictionary_stats(primary).unwrap().entries;
    assert!(entries <= 5200, "{entries}: no document was deleted by itself");
    engine.checkpoint().unwrap();
    drop((old, then));
    settle(&room);
    check_ids(&room, &with);
    room.check_valid();
    // Fewer than are worth it.
    assert_eq!(explained(&room, &doc! { "_id": { "$lt": 300 } }, false), "DELETE");
    assert_eq!(delete_all(&room, doc! { "_id": { "$lt": 1100 } }, false), 600);
    let left: Vec<i32> = (1100..1200).chain(4200..5000).collect();
    check_ids(&room, &left);
    room.check_valid();
}

#[test]
fn a_prefix_of_the_primary_key_is_a_range() {
    let room = Room::with_ranges();
    let options = doc! { "primaryKey": { "k": 1, "_id": 1 } };
    let options = CollectionOptions::parse(&raw(&options)).unwrap();
    room.catalog.create_collection(&room.ns, &options, &|| Ok(())).unwrap();
    filled_with_ranges(&room, 6000);
    for (filter, deleted) in [
        (doc! { "k": 2 }, 1500),
        (doc! { "k": 0, "_id": { "$gte": 200 } }, 1300),
        (doc! { "k": { "$gt": 0, "$lt": 3 } }, 1500),
    ] {
        assert_eq!(explained(&room, &filter, false), "DELETE_RANGE", "{filter}");
        assert_eq!(delete_all(&room, filter, false), deleted);
        room.check_valid();
    }
    let left: Vec<i32> = (0..200).chain(4500..6000).collect();
    check_ids(&room, &left);
    assert_eq!(ids(&room, doc! { "_id": 100 }, None), [100]);
    assert_eq!(ids(&room, doc! { "_id": 700 }, None), []);
    settle(&room);
    check_ids(&room, &left);
    room.check_valid();
}

#[test]
fn ranges_agree_with_a_set_whatever_happens_between() {
    for seed in 0..4_u64 {
        let room = Room::with_ranges();
        filled_with_ranges(&room, 3000);
        let mut model: std::collections::BTreeSet<i32> = (0..3000).collect();
        let mut state = seed;
        let mut random = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut held = Vec::new();
        for _ in 0..25 {
            let at = i32::try_from(random(3000)).unwrap();
            let to = at + i32::try_from(random(2500)).unwrap();
            match random(8) {
                0..3 => {
                    let n = model.range(at..to).count();
                    let filter = doc! { "_id": { "$gte": at, "$lt": to } };
                    assert_eq!(delete_all(&room, filter, false), n as u64, "{at}..{to}");
                    model.retain(|id| !(at..to).contains(id));
                }
                3..6 => {
                    let missing: Vec<Document> = documents(at..to.min(at + 900))
                        .into_iter()
                        .filter(|one| !model.contains(&one.get_i32("_id").unwrap()))
                        .collect();
                    model.extend(missing.iter().map(|one| one.get_i32("_id").unwrap()));
                    if !missing.is_empty() {
                        assert!(room.insert(&missing).errors.is_empty());
                    }
                }
                6 => held.push((room.catalog.snapshot(), model.clone())),
                _ => settle(&room),
            }
            if random(5) == 0 {
                held.clear();
            }
            check_ids(&room, &model.iter().copied().collect::<Vec<_>>());
        }
        for (state, model) in &held {
            let then = room.catalog.collection_in(&room.ns, state).unwrap().unwrap();
            assert_eq!(room.catalog.count_in(&then, state).unwrap(), Some(model.len() as u64));
            let mut ctx = room.ctx();
            ctx.snapshot = Some(state.clone());
            let mut cursor = find(&mut ctx, &room.ns, &FindRequest::default()).unwrap();
            let mut found = 0;
            while cursor.next().unwrap().is_some() {
                found += 1;
            }
            assert_eq!(found, model.len());
        }
        room.check_valid();
        settle(&room);
        room.check_valid();
    }
}
