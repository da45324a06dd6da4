//! Partitioned collections: which partitions plans read, and in which order rows come.

use super::plans::check;
use super::writes::{ask, delete_all};
use super::*;

/// A hundred documents in the order of `k`, ten of each value, in partitions that end at 2, 5 and 7.
pub(super) fn divided() -> Room {
    let room = Room::of(&doc! { "partitioned": true, "primaryKey": { "k": 1, "_id": 1 } });
    divide(&room, "k", &[2, 5, 7]);
    let documents: Vec<Document> = (0..100)
        .map(|i| doc! { "_id": i, "k": i % 10, "b": i * 37 % 100, "t": [i % 3, i % 5] })
        .collect();
    assert!(room.insert(&documents).errors.is_empty());
    room.index(doc! { "key": { "b": 1 } });
    room.index(doc! { "key": { "t": 1 } });
    room
}

/// Ends partitions at these values of a field.
pub(super) fn divide(room: &Room, field: &str, ends: &[i32]) {
    for end in ends {
        let max = raw(&doc! { field: *end, "_id": Bson::MaxKey });
        room.catalog.add_partition(&room.ns, Some(&max), &|| Ok(())).unwrap();
    }
}

/// The partitions that a plan reads.
fn read(room: &Room, filter: &Document, sort: &Document) -> Vec<i64> {
    let explained = room.explain(filter.clone(), sort.clone());
    let mut plan =
        explained.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    while let Ok(input) = plan.get_document("inputStage") {
        plan = input;
    }
    assert_eq!(plan.get_i32("numPartitions").unwrap(), 4);
    let read = plan.get_array("partitionsScanned").unwrap();
    read.iter().map(|id| id.as_i64().unwrap()).collect()
}

#[test]
fn plans_read_the_partitions_that_the_filter_leaves() {
    let room = divided();
    let none = doc! {};
    for (filter, expected) in [
        (doc! {}, &[0, 1, 2, 3][..]),
        (doc! { "k": 2 }, &[0]),
        (doc! { "k": { "$gt": 2 } }, &[1, 2, 3]),
        (doc! { "k": { "$gte": 6, "$lte": 7 } }, &[2]),
        (doc! { "k": { "$in": [0, 9] } }, &[0, 3]),
        (doc! { "k": { "$lt": 0 } }, &[0]),
        (doc! { "k": "x" }, &[3]),
        (doc! { "b": 50 }, &[0, 1, 2, 3]),
        (doc! { "b": { "$gte": 50 }, "k": { "$in": [3, 8] } }, &[1, 3]),
        (doc! { "t": 1, "k": 4 }, &[1]),
    ] {
        assert_eq!(read(&room, &filter, &none), expected, "{filter}");
    }
    check(&room, doc! { "k": 3 }, doc! {}, &["IXSCAN"], 10, 0);
    check(&room, doc! {}, doc! { "k": -1, "_id": -1 }, &["IXSCAN"], 100, 0);
    check(&room, doc! {}, doc! { "b": 1 }, &["FETCH", "IXSCAN"], 100, 100);
    check(&room, doc! { "b": { "$lt": 10 } }, doc! { "b": -1 }, &["FETCH", "IXSCAN"], 10, 10);
    check(&room, doc! {}, doc! {}, &["COLLSCAN"], 0, 100);
    // One in each partition may have it.
    check(&room, doc! { "_id": 5 }, doc! {}, &["FETCH", "IXSCAN"], 1, 1);
}

#[test]
fn rows_come_in_the_order_of_one_index() {
    let room = divided();
    let values = |filter: Document, sort: Document, field: &str| -> Vec<i32> {
        let (filter, sort) = (raw(&filter), raw(&sort));
        let request =
            FindRequest { filter: Some(&filter), sort: Some(&sort), ..FindRequest::default() };
        let found = room.find_with(&request).unwrap();
        found.iter().map(|document| document.get_i32(field).unwrap()).collect()
    };
    assert_eq!(values(doc! {}, doc! { "b": 1 }, "b"), (0..100).collect::<Vec<_>>());
    assert_eq!(values(doc! {}, doc! { "b": -1 }, "b"), (0..100).rev().collect::<Vec<_>>());
    let all = values(doc! {}, doc! { "k": 1, "_id": 1 }, "_id");
    let natural = room.find(doc! {});
    let natural: Vec<i32> = natural.iter().map(|d| d.get_i32("_id").unwrap()).collect();
    assert_eq!(all, natural);
    let several = values(doc! { "t": { "$in": [0, 1] } }, doc! { "_id": 1 }, "_id");
    let expected: Vec<i32> = (0..100).filter(|i| i % 3 < 2 || i % 5 < 2).collect();
    assert_eq!(several, expected, "each document once");
}

#[test]
fn updates_move_documents_to_other_partitions_once() {
    let room = divided();
    let done = ask(doc! { "k": { "$gte": 0 } }, doc! { "$inc": { "k": 3 } }).multi().run(&room);
    assert_eq!((done.n, done.n_modified), (100, 100));
    let found = room.find(doc! {});
    assert!(
        found.iter().all(|d| { d.get_i32("k").unwrap() == d.get_i32("_id").unwrap() % 10 + 3 })
    );
    let collection = room.catalog.collection(&room.ns).unwrap();
    let counts: Vec<u64> = collection.stores().iter().map(|store| store.count()).collect();
    assert_eq!(counts, [0, 30, 20, 50]);
    let done = ask(doc! { "_id": 7 }, doc! { "$set": { "k": 0 } }).run(&room);
    assert_eq!(done.n_modified, 1);
    assert_eq!(delete_all(&room, doc! { "k": { "$lt": 5 } }, false), 21);
    room.check_valid();
}

#[test]
fn a_collection_without_a_primary_key_is_divided_by_id() {
    let room = Room::of(&doc! { "partitioned": true });
    for end in [10, 20, 30] {
        let max = raw(&doc! { "_id": end });
        room.catalog.add_partition(&room.ns, Some(&max), &|| Ok(())).unwrap();
    }
    let documents: Vec<Document> = (0..40).map(|i| doc! { "_id": i, "b": 40 - i }).collect();
    assert!(room.insert(&documents).errors.is_empty());
    room.index(doc! { "key": { "b": 1 }, "unique": false });
    assert_eq!(read(&room, &doc! { "_id": 15 }, &doc! {}), [1]);
    assert_eq!(read(&room, &doc! { "_id": { "$gt": 20, "$lte": 31 } }, &doc! {}), [2, 3]);
    assert_eq!(
        read(&room, &doc! { "b": { "$lt": 5 }, "_id": { "$gt": 35 } }, &doc! { "b": 1 }),
        [3]
    );
    check(&room, doc! { "_id": 15 }, doc! {}, &["IDHACK"], 1, 1);
    assert_eq!(room.find(doc! { "_id": 15 }), [doc! { "_id": 15, "b": 25 }]);
    assert_eq!(room.find(doc! {}), documents);
    let done = ask(doc! { "_id": 35 }, doc! { "$set": { "b": 1 } }).run(&room);
    assert_eq!(done.n_modified, 1);
    room.check_valid();
}
