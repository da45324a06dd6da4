//! Partitioned collections: where documents stand, what comes and goes, who reads what meanwhile.

use super::*;
use crate::data::txn::Txn;
use crate::ddl::partitions::PartitionSelector;
use bson::Bson;
use engine::{DictionaryId, Direction, KeyRange, Snapshot};

/// Creates a collection partitioned by `pattern`, with ends at these values of its first field.
pub(super) fn create(catalog: &Arc<Catalog>, name: &str, pattern: &Document, ends: &[i32]) {
    let options = doc! { "partitioned": true, "primaryKey": pattern };
    let options = CollectionOptions::parse(&raw(&options)).unwrap();
    catalog.create_collection(&ns(name), &options, &never).unwrap();
    let field = pattern.keys().next().unwrap();
    for end in ends {
        let mut max = doc! { "_id": Bson::MaxKey };
        max.insert(field, *end);
        add(catalog, name, Some(max)).unwrap();
    }
}

#[expect(clippy::needless_pass_by_value, reason = "calls read as tables")]
fn add(catalog: &Arc<Catalog>, name: &str, new_max: Option<Document>) -> Result<()> {
    let new_max = new_max.as_ref().map(raw);
    catalog.add_partition(&ns(name), new_max.as_deref(), &never)
}

fn drop_id(catalog: &Arc<Catalog>, name: &str, id: u64) -> Result<usize> {
    catalog.drop_partitions(&ns(name), PartitionSelector::Id(id), &never)
}

fn drop_up_to(catalog: &Arc<Catalog>, name: &str, max: &Document) -> Result<usize> {
    catalog.drop_partitions(&ns(name), PartitionSelector::UpTo(&raw(max)), &never)
}

/// The `_id`s in each partition, in the order of the documents.
fn ids_in(catalog: &Catalog, name: &str, state: &Snapshot) -> Vec<Vec<i32>> {
    let collection = catalog.collection_in(&ns(name), state).unwrap().unwrap();
    let of = |store: &Arc<Collection>| {
        let cursor = state.cursor(store.primary(), KeyRange::all(), Direction::Forward);
        let mut cursor = cursor.unwrap();
        let mut ids = Vec::new();
        while let Some((_, document)) = cursor.next().unwrap() {
            ids.push(RawDocument::from_bytes(document).unwrap().get_i32("_id").unwrap());
        }
        ids
    };
    collection.stores().iter().map(of).collect()
}

fn ids(catalog: &Catalog, name: &str) -> Vec<Vec<i32>> {
    ids_in(catalog, name, &catalog.snapshot())
}

/// The partitions' numbers and ends.
fn partitions(catalog: &Catalog, name: &str) -> Vec<(u64, Option<Document>)> {
    let collection = catalog.collection(&ns(name)).unwrap();
    let max = |max: &RawDocumentBuf| Document::try_from(max).unwrap();
    let list = collection.partitions().iter();
    list.map(|partition| (partition.id, partition.max.as_ref().map(max))).collect()
}

#[test]
fn documents_stand_in_the_partition_of_their_key_and_move_with_it() {
    let engine = Engine::temporary();
    let catalog = open(&engine);
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 }, &[10, 20]);
    build(&catalog, "db.c", &doc! { "key": { "x": 1 }, "name": "x" }).unwrap();
    for (id, a) in [(1, 5), (2, 15), (3, 25), (4, 10), (5, 20)] {
        insert(&catalog, "db.c", &doc! { "_id": id, "a": a, "x": [id, -id] }).unwrap();
    }
    assert_eq!(ids(&catalog, "db.c"), [vec![1, 4], vec![2, 5], vec![3]]);
    let collection = catalog.collection(&ns("db.c")).unwrap();
    assert_eq!(collection.count(), 5);
    let counts: Vec<u64> = collection.stores().iter().map(|store| store.count()).collect();
    assert_eq!(counts, [2, 2, 1]);
    // From the first partition to the last, and within one.
    primary_key::change(&catalog, "db.c", &doc! { "_id": 1, "a": 99, "x": 1 }).unwrap();
    primary_key::change(&catalog, "db.c", &doc! { "_id": 5, "a": 11, "x": 5 }).unwrap();
    assert_eq!(ids(&catalog, "db.c"), [vec![4], vec![5, 2], vec![3, 1]]);
    let report = check_valid(&catalog, "db.c");
    assert_eq!(
        report.keys_per_index,
        [("primaryKey".to_owned(), 5), ("_id_".to_owned(), 5), ("x".to_owned(), 8)]
    );
    let reopened = open(&engine);
    assert_eq!(ids(&reopened, "db.c"), [vec![4], vec![5, 2], vec![3, 1]]);
    let collection = reopened.collection(&ns("db.c")).unwrap();
    assert_eq!((collection.count(), collection.data_size()), {
        let before = catalog.collection(&ns("db.c")).unwrap();
        (before.count(), before.data_size())
    });
    assert!(collection.index("x").unwrap().multikey_parts() != 0);
    check_valid(&reopened, "db.c");
    catalog.rename_collection(&ns("db.c"), &ns("db.d"), false, &never).unwrap();
    check_valid(&catalog, "db.d");
    insert(&catalog, "db.d", &doc! { "_id": 6, "a": 12 }).unwrap();
    assert_eq!(ids(&catalog, "db.d")[1], [5, 6, 2]);
    let before = engine.dictionaries().len();
    catalog.drop_collection(&ns("db.d"), &never).unwrap();
    assert_eq!(
        engine.dictionaries().len(),
        before - 3 * 4,
        "three partitions and what stands for them"
    );
}

#[test]
fn a_partition_goes_with_its_dictionaries_and_its_range_goes_to_the_next() {
    let engine = Engine::temporary();
    let catalog = open(&engine);
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 }, &[10, 20, 30]);
    build(&catalog, "db.c", &doc! { "key": { "x": 1 }, "name": "x" }).unwrap();
    for a in [5, 15, 25, 35] {
        insert(&catalog, "db.c", &doc! { "_id": a, "a": a, "x": [a] }).unwrap();
    }
    let before = engine.dictionaries().len();
    assert_eq!(drop_id(&catalog, "db.c", 1).unwrap(), 1);
    assert_eq!(engine.dictionaries().len(), before - 3, "another one stands for the collection");
    assert_eq!(ids(&catalog, "db.c"), [vec![5], vec![25], vec![35]]);
    // It is of the partition that ends at 30 now.
    insert(&catalog, "db.c", &doc! { "_id": 16, "a": 16 }).unwrap();
    assert_eq!(ids(&catalog, "db.c"), [vec![5], vec![16, 25], vec![35]]);
    // Without the last one the one before it has no end.
    assert_eq!(drop_id(&catalog, "db.c", 3).unwrap(), 1);
    insert(&catalog, "db.c", &doc! { "_id": 99, "a": 99 }).unwrap();
    assert_eq!(ids(&catalog, "db.c"), [vec![5], vec![16, 25, 99]]);
    assert_eq!(partitions(&catalog, "db.c")[1], (2, None));
    assert_eq!(catalog.collection(&ns("db.c")).unwrap().count(), 4);
    check_valid(&catalog, "db.c");
    // Numbers are not used again.
    add(&catalog, "db.c", None).unwrap();
    assert_eq!(
        partitions(&catalog, "db.c"),
        [
            (0, Some(doc! { "a": 10, "_id": Bson::MaxKey })),
            (2, Some(doc! { "a": 99, "_id": 99 })),
            (4, None)
        ]
    );
    assert_eq!(drop_up_to(&catalog, "db.c", &doc! { "a": 99, "_id": 98 }).unwrap(), 1);
    assert_eq!(drop_up_to(&catalog, "db.c", &doc! { "a": 99 }).unwrap(), 0, "null is before 99");
    assert_eq!(drop_up_to(&catalog, "db.c", &doc! { "a": 99, "_id": 99 }).unwrap(), 1);
    assert_eq!(ids(&catalog, "db.c"), [Vec::<i32>::new()]);
    let reopened = open(&engine);
    assert_eq!(reopened.collection(&ns("db.c")).unwrap().count(), 0);
    assert!(
        reopened.collection(&ns("db.c")).unwrap().index("x").unwrap().multikey_parts() != 0,
        "the mark is of the index, whichever partition it came from"
    );
    check_valid(&reopened, "db.c");
}

#[test]
fn what_cannot_be_done_to_partitions_has_tokumxs_numbers() {
    let catalog = open(&Engine::temporary());
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 }, &[]);
    let max = |a: i32| Some(doc! { "a": a });
    let code = |result: Result<()>| result.unwrap_err().code().0;
    assert_eq!(code(add(&catalog, "db.c", None)), 17248, "nothing to end it at");
    add(&catalog, "db.c", max(10)).unwrap();
    for a in [9, 10] {
        assert_eq!(code(add(&catalog, "db.c", max(a))), 17249);
    }
    insert(&catalog, "db.c", &doc! { "_id": 1, "a": 20 }).unwrap();
    for a in [15, 20] {
        assert_eq!(code(add(&catalog, "db.c", max(a))), 17250, "its _id is null");
    }
    add(&catalog, "db.c", Some(doc! { "a": 20, "_id": 1 })).unwrap();
    assert_eq!(code(add(&catalog, "db.c", Some(doc! { "b": 5 }))), 2);
    assert_eq!(code(add(&catalog, "db.c", Some(doc! { "a": [5] }))), 17205);
    let largest = doc! { "a": Bson::MaxKey, "_id": Bson::MaxKey };
    assert_eq!(code(add(&catalog, "db.c", Some(largest.clone()))), 2);
    assert_eq!(drop_id(&catalog, "db.c", 9).unwrap_err().code().0, 2);
    assert_eq!(drop_up_to(&catalog, "db.c", &largest).unwrap_err().code().0, 17252);
    assert_eq!(drop_id(&catalog, "db.c", 0).unwrap(), 1);
    assert_eq!(drop_id(&catalog, "db.c", 1).unwrap(), 1);
    assert_eq!(drop_id(&catalog, "db.c", 2).unwrap_err().code().0, 17252);
    insert(&catalog, "db.plain", &doc! { "_id": 1 }).unwrap();
    assert_eq!(code(add(&catalog, "db.plain", None)), Code::ILLEGAL_OPERATION.0);
    assert_eq!(code(add(&catalog, "db.none", None)), Code::NAMESPACE_NOT_FOUND.0);
    for (key, collation, code) in [
        (doc! { "x": 1 }, None, 17351),
        (doc! { "x": 1, "_id": 1 }, None, 17351),
        (doc! { "x": 1, "a": 1 }, Some(doc! { "locale": "en" }), 17351),
    ] {
        let mut spec = doc! { "key": key, "name": "u", "unique": true };
        spec.extend(collation.map(|collation| ("collation".to_owned(), collation.into())));
        assert_eq!(build(&catalog, "db.c", &spec).unwrap_err().code().0, code);
    }
    let prepared = doc! { "key": { "a": 1 }, "name": "u", "prepareUnique": true };
    assert_eq!(build(&catalog, "db.c", &prepared).unwrap_err().code().0, 17351);
    let refused = catalog.convert_to_capped(&ns("db.c"), 4096, &never).unwrap_err();
    assert_eq!(refused.code(), Code::INVALID_OPTIONS);
    let options = CollectionOptions::parse(&raw(&doc! { "partitioned": true })).unwrap();
    let refused = catalog.create_collection(&ns("admin.c"), &options, &never).unwrap_err();
    assert_eq!(refused.code(), Code::INVALID_OPTIONS);
}

#[test]
fn an_id_is_unique_in_its_partition_and_where_it_is_the_key() {
    let catalog = open(&Engine::temporary());
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 }, &[10]);
    insert(&catalog, "db.c", &doc! { "_id": 1, "a": 1 }).unwrap();
    let refused = insert(&catalog, "db.c", &doc! { "_id": 1, "a": 2 }).unwrap_err();
    assert_eq!(refused.code(), Code::DUPLICATE_KEY);
    // As in TokuMX nobody looks into the other partitions.
    insert(&catalog, "db.c", &doc! { "_id": 1, "a": 11 }).unwrap();
    assert_eq!(ids(&catalog, "db.c"), [vec![1], vec![1]]);
    let collection = catalog.collection(&ns("db.c")).unwrap();
    assert!(!collection.has_unique_ids());
    // Where both come to stand in one partition the second is refused, and nothing has changed.
    let refused = primary_key::change(&catalog, "db.c", &doc! { "_id": 1, "a": 12 }).unwrap_err();
    assert_eq!(refused.code(), Code::DUPLICATE_KEY);
    check_valid(&catalog, "db.c");
    create(&catalog, "db.by_id", &doc! { "_id": 1 }, &[10]);
    let collection = catalog.collection(&ns("db.by_id")).unwrap();
    assert!(collection.has_unique_ids());
    for id in [5, 15] {
        insert(&catalog, "db.by_id", &doc! { "_id": id }).unwrap();
        let refused = insert(&catalog, "db.by_id", &doc! { "_id": id }).unwrap_err();
        assert_eq!(refused.code(), Code::DUPLICATE_KEY);
    }
    assert_eq!(ids(&catalog, "db.by_id"), [vec![5], vec![15]]);
    check_valid(&catalog, "db.by_id");
}

#[test]
fn unique_indexes_with_the_partition_key_hold_over_the_end_of_a_partition() {
    let catalog = open(&Engine::temporary());
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 }, &[]);
    // Documents with `a: 10` stand on both sides of this end.
    add(&catalog, "db.c", Some(doc! { "a": 10, "_id": 50 })).unwrap();
    let unique = doc! { "key": { "u": 1, "a": 1 }, "name": "u", "unique": true };
    build(&catalog, "db.c", &unique).unwrap();
    insert(&catalog, "db.c", &doc! { "_id": 1, "a": 10, "u": 7 }).unwrap();
    for document in [doc! { "_id": 99, "a": 10, "u": 7 }, doc! { "_id": 2, "a": 10, "u": 7 }] {
        let refused = insert(&catalog, "db.c", &document).unwrap_err();
        assert_eq!(refused.code(), Code::DUPLICATE_KEY);
        assert!(refused.message().contains("index: u dup key: { u: 7, a: 10 }"), "{refused}");
    }
    insert(&catalog, "db.c", &doc! { "_id": 99, "a": 10, "u": 8 }).unwrap();
    let refused = primary_key::change(&catalog, "db.c", &doc! { "_id": 99, "a": 10, "u": 7 });
    assert_eq!(refused.unwrap_err().code(), Code::DUPLICATE_KEY);
    insert(&catalog, "db.c", &doc! { "_id": 100, "a": 11, "u": 7 }).unwrap();
    // By a move.
    let refused = primary_key::change(&catalog, "db.c", &doc! { "_id": 100, "a": 10, "u": 7 });
    assert_eq!(refused.unwrap_err().code(), Code::DUPLICATE_KEY);
    // A document does not stand in its own way.
    primary_key::change(&catalog, "db.c", &doc! { "_id": 1, "a": 11, "u": 9 }).unwrap();
    primary_key::change(&catalog, "db.c", &doc! { "_id": 100, "a": 10, "u": 7 }).unwrap();
    check_valid(&catalog, "db.c");
    // A build finds what stands on both sides.
    catalog.drop_indexes(&ns("db.c"), &[IndexSelector::Name("u")], &never).unwrap();
    insert(&catalog, "db.c", &doc! { "_id": 3, "a": 10, "u": 7 }).unwrap();
    assert_eq!(build(&catalog, "db.c", &unique).unwrap_err().code(), Code::DUPLICATE_KEY);
    let engine = catalog.engine().clone();
    assert_eq!(engine.dictionaries().len(), open(&engine).engine().dictionaries().len());
    check_valid(&catalog, "db.c");
}

#[test]
fn who_reads_an_older_state_finds_the_partitions_of_then() {
    let catalog = open(&Engine::temporary());
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 }, &[10, 20]);
    build(&catalog, "db.c", &doc! { "key": { "x": 1 }, "name": "x" }).unwrap();
    for a in [5, 15, 25] {
        insert(&catalog, "db.c", &doc! { "_id": a, "a": a, "x": [a] }).unwrap();
    }
    let old = catalog.snapshot();
    let version = catalog.collection(&ns("db.c")).unwrap();
    assert!(version.is_whole_in(&old));
    drop_id(&catalog, "db.c", 0).unwrap();
    assert!(!version.is_whole_in(&catalog.snapshot()), "what it lists is gone");
    let version = catalog.collection(&ns("db.c")).unwrap();
    add(&catalog, "db.c", None).unwrap();
    insert(&catalog, "db.c", &doc! { "_id": 35, "a": 35 }).unwrap();
    assert!(!version.is_whole_in(&catalog.snapshot()), "it does not know the newest one");
    assert!(catalog.collection(&ns("db.c")).unwrap().is_whole_in(&catalog.snapshot()));
    assert_eq!(ids_in(&catalog, "db.c", &old), [vec![5], vec![15], vec![25]]);
    assert_eq!(ids(&catalog, "db.c"), [vec![15], vec![25], vec![35]]);
    let then = catalog.collection_in(&ns("db.c"), &old).unwrap().unwrap();
    assert!(then.index("x").unwrap().multikey_parts() != 0);
    catalog.drop_collection(&ns("db.c"), &never).unwrap();
    assert_eq!(ids_in(&catalog, "db.c", &old), [vec![5], vec![15], vec![25]]);
}

/// A client's transaction on the state of now.
fn begin(catalog: &Arc<Catalog>) -> Txn {
    catalog.begin_clients(None, std::time::Duration::from_millis(20))
}

#[test]
fn a_transaction_from_before_conflicts_and_one_inside_is_waited_for() {
    let catalog = open(&Engine::temporary());
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 }, &[10]);
    insert(&catalog, "db.c", &doc! { "_id": 1, "a": 1 }).unwrap();
    for change in [0, 1] {
        let mut txn = begin(&catalog);
        if change == 0 {
            add(&catalog, "db.c", Some(doc! { "a": 20 })).unwrap();
        } else {
            drop_id(&catalog, "db.c", 0).unwrap();
        }
        let refused = txn.open_for_write(&ns("db.c")).unwrap_err();
        assert_eq!(refused.code(), Code::WRITE_CONFLICT);
        txn.abort();
    }
    let mut txn = begin(&catalog);
    let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
    txn.insert_document(&collection, &raw(&doc! { "_id": 2, "a": 15 })).unwrap();
    let refused = add(&catalog, "db.c", Some(doc! { "a": 30 })).unwrap_err();
    assert_eq!(refused.code(), Code::LOCK_TIMEOUT);
    txn.commit().unwrap();
    add(&catalog, "db.c", Some(doc! { "a": 30 })).unwrap();
    // Over several partitions, whole or not at all.
    let mut txn = begin(&catalog);
    let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
    txn.insert_document(&collection, &raw(&doc! { "_id": 3, "a": 99 })).unwrap();
    let savepoint = txn.savepoint();
    txn.insert_document(&collection, &raw(&doc! { "_id": 4, "a": 16 })).unwrap();
    primary_key::change_in(&mut txn, "db.c", &doc! { "_id": 2, "a": 98 }).unwrap();
    assert_eq!(txn.documents_added(&collection), 2);
    txn.rollback_to(savepoint);
    assert_eq!(txn.documents_added(&collection), 1);
    primary_key::change_in(&mut txn, "db.c", &doc! { "_id": 2, "a": 97 }).unwrap();
    txn.commit().unwrap();
    assert_eq!(ids(&catalog, "db.c"), [vec![], vec![], vec![2, 3]]);
    assert_eq!(catalog.collection(&ns("db.c")).unwrap().count(), 2);
    check_valid(&catalog, "db.c");
}

#[test]
fn a_transaction_makes_a_partitioned_collection_whole_or_not_at_all() {
    let engine = Engine::temporary();
    let catalog = open(&engine);
    let options = doc! { "partitioned": true, "primaryKey": { "a": 1, "_id": 1 } };
    let options = CollectionOptions::parse(&raw(&options)).unwrap();
    let before = engine.dictionaries().len();
    for commits in [false, true] {
        let isolation = Isolation::Mvcc;
        let wait = std::time::Duration::from_millis(20);
        let mut txn = catalog.begin_bound(isolation, wait).unwrap();
        txn.create_collection(&ns("db.c"), &options).unwrap();
        let savepoint = txn.savepoint();
        txn.create_collection(&ns("db.d"), &options).unwrap();
        let other = txn.open_for_write(&ns("db.d")).unwrap().unwrap();
        txn.insert_document(&other, &raw(&doc! { "_id": 9, "a": 9 })).unwrap();
        txn.rollback_to(savepoint);
        let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
        txn.insert_document(&collection, &raw(&doc! { "_id": 1, "a": 1 })).unwrap();
        let spec = index(&doc! { "key": { "x": 1 }, "name": "x" });
        txn.create_indexes(&ns("db.c"), &[spec], &never).unwrap();
        if commits {
            txn.commit().unwrap();
        } else {
            txn.abort();
            assert_eq!(engine.dictionaries().len(), before);
        }
    }
    assert_eq!(ids(&catalog, "db.c"), [vec![1]]);
    assert!(catalog.collection(&ns("db.d")).is_none());
    let report = check_valid(&catalog, "db.c");
    assert_eq!(report.keys_per_index.len(), 3);
    check_valid(&open(&engine), "db.c");
}

#[test]
fn an_index_is_built_in_every_partition_while_documents_change() {
    let catalog = open(&Engine::temporary());
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 }, &[100, 200]);
    for a in 0..300 {
        insert(&catalog, "db.c", &doc! { "_id": a, "a": a, "x": a % 7 }).unwrap();
    }
    std::thread::scope(|scope| {
        let catalog = &catalog;
        scope.spawn(move || {
            for at in 0..200 {
                let (id, a) = (at * 3 % 300, (at * 37) % 300);
                let _may_conflict =
                    primary_key::change(catalog, "db.c", &doc! { "_id": id, "a": a, "x": -1 });
            }
        });
        for name in ["x", "y"] {
            let spec = doc! { "key": { "x": 1 }, "name": name, "sparse": name == "y" };
            build(catalog, "db.c", &spec).unwrap();
            // It waits for the build, or the build for it.
            drop(add(catalog, "db.c", Some(doc! { "a": 1000 + name.len() as i32 })));
        }
    });
    check_valid(&catalog, "db.c");
    let collection = catalog.collection(&ns("db.c")).unwrap();
    let parts: Vec<usize> = collection.indexes.iter().map(|index| index.parts.len()).collect();
    assert!(parts.iter().all(|count| *count == collection.partitions().len()), "{parts:?}");
}

#[test]
fn the_entries_of_an_index_are_merged_in_both_directions() {
    let catalog = open(&Engine::temporary());
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 }, &[10, 20]);
    build(&catalog, "db.c", &doc! { "key": { "x": 1 }, "name": "x" }).unwrap();
    for a in 0..30 {
        insert(&catalog, "db.c", &doc! { "_id": a, "a": a, "x": (a * 11) % 30 }).unwrap();
    }
    let collection = catalog.collection(&ns("db.c")).unwrap();
    let index = collection.index("x").unwrap();
    let dictionaries: Vec<DictionaryId> =
        (0..3).map(|place| collection.index_at(index, place)).collect();
    let state = catalog.snapshot();
    let values = |direction: Direction, seeks: bool| -> Vec<i32> {
        let open =
            |dictionary, range| state.cursor(dictionary, range, direction).map_err(from_engine);
        let mut cursor =
            IndexCursor::open(&dictionaries, KeyRange::all(), direction, open).unwrap();
        let mut values = Vec::new();
        let target = {
            let mut builder = keystring::KeyBuilder::new();
            builder.append(RawBsonRef::Int32(20), keystring::Direction::Ascending).unwrap();
            builder.into_bytes()
        };
        if seeks && direction == Direction::Forward {
            cursor.seek(&target).unwrap();
        }
        while let Some((key, value)) = cursor.next().unwrap() {
            values.push(index.keys().values(key, value).unwrap()[0].as_i32().unwrap());
            if values.len() % 4 == 0 {
                cursor.park();
            }
            if seeks && direction == Direction::Backward && values.len() == 2 {
                cursor.seek(&target).unwrap();
            }
        }
        values
    };
    assert_eq!(values(Direction::Forward, false), (0..30).collect::<Vec<_>>());
    assert_eq!(values(Direction::Backward, false), (0..30).rev().collect::<Vec<_>>());
    assert_eq!(values(Direction::Forward, true), (20..30).collect::<Vec<_>>());
    // Entries of 20 are behind the bare value.
    let backward: Vec<i32> = [29, 28].into_iter().chain((0..20).rev()).collect();
    assert_eq!(values(Direction::Backward, true), backward);
}
