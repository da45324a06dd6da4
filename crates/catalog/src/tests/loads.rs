//! Bulk loads of a connection's transaction: few documents go through the log, more past it.

use super::*;
use crate::{Isolation, Txn};
use std::time::Duration;

fn begin(catalog: &Arc<Catalog>) -> Txn {
    catalog.begin_bound(Isolation::Mvcc, Duration::from_secs(1)).unwrap()
}

fn load(txn: &mut Txn, options: &Document, indexes: &[Document]) -> Result<()> {
    let options = CollectionOptions::parse(&raw(options)).unwrap();
    let specs: Vec<_> = indexes.iter().map(index).collect();
    txn.begin_load(&ns("db.c"), &options, &specs, &never)
}

fn put(txn: &mut Txn, document: &Document) -> Result<()> {
    let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
    txn.insert_document(&collection, &raw(document))
}

fn by_a(unique: bool) -> Document {
    doc! { "key": { "a": 1 }, "name": "a", "unique": unique }
}

#[test]
fn a_load_stands_in_its_collection_once_it_is_committed() {
    for (count, primary_key) in [(3_i32, false), (300, false), (3, true), (300, true)] {
        let engine = Engine::temporary();
        let catalog = open(&engine);
        let key = doc! { "primaryKey": { "a": 1, "_id": 1 } };
        let options = if primary_key {
            key
        } else {
            doc! {}
        };
        let mut txn = begin(&catalog);
        let many = doc! { "key": { "t": 1 }, "name": "t" };
        load(&mut txn, &options, &[by_a(false), many]).unwrap();
        assert!(txn.loads_past_the_log());
        // Every third comes out of order.
        for i in 0..count {
            let id = if i % 3 == 0 { count - i } else { count + i };
            put(&mut txn, &doc! { "_id": id, "a": i % 7, "t": [i, i + 1] }).unwrap();
        }
        assert_eq!(txn.commit_load(&never).unwrap(), u64::from(count.unsigned_abs()));
        assert!(txn.loads_into().is_none());
        assert!(catalog.collection(&ns("db.c")).is_none(), "others do not see it yet");
        put(&mut txn, &doc! { "_id": -1, "a": 3 }).unwrap();
        assert_eq!(
            put(&mut txn, &doc! { "_id": -1, "a": 3 }).unwrap_err().code(),
            Code::DUPLICATE_KEY
        );
        txn.commit().unwrap();
        let count = u64::from(count.unsigned_abs()) + 1;
        assert_eq!(catalog.collection(&ns("db.c")).unwrap().count(), count);
        assert_eq!(check_valid(&catalog, "db.c").records, count);
        drop(catalog);
        let catalog = open(&engine);
        let collection = catalog.collection(&ns("db.c")).unwrap();
        assert_eq!(collection.count(), count);
        assert!(collection.index("t").unwrap().multikey_parts() != 0);
        assert_eq!(check_valid(&catalog, "db.c").records, count);
    }
}

#[test]
fn a_load_that_failed_or_is_given_up_leaves_nothing() {
    for count in [3, 300] {
        let engine = Engine::temporary();
        let catalog = open(&engine);
        let there = engine.dictionaries().len();
        for case in 0..4 {
            let mut txn = begin(&catalog);
            load(&mut txn, &doc! {}, &[by_a(true)]).unwrap();
            assert_eq!(load(&mut txn, &doc! {}, &[]).unwrap_err().code().0, 16915);
            for i in 0..count {
                put(&mut txn, &doc! { "_id": i, "a": i }).unwrap();
            }
            let savepoint = txn.savepoint();
            match case {
                0 => {}
                1 => txn.abort_load().unwrap(),
                2 => {
                    put(&mut txn, &doc! { "_id": 1, "a": -1 }).unwrap();
                    let failed = txn.commit_load(&never).unwrap_err();
                    assert_eq!(failed.code(), Code::DUPLICATE_KEY, "{failed:?}");
                    assert_eq!(txn.commit_load(&never).unwrap_err().code(), Code::OPERATION_FAILED);
                }
                _ => {
                    put(&mut txn, &doc! { "_id": -1, "a": 1 }).unwrap();
                    let failed = txn.commit_load(&never).unwrap_err();
                    assert!(failed.message().contains("index: a dup key: { a: 1 }"), "{failed:?}");
                    // What a failed statement has put in cannot be taken out by itself.
                    txn.rollback_to(savepoint);
                    assert_eq!(txn.commit_load(&never).unwrap_err().code(), Code::OPERATION_FAILED);
                    txn.abort_load().unwrap();
                    txn.commit().unwrap();
                    continue;
                }
            }
            txn.abort();
        }
        assert!(catalog.collection(&ns("db.c")).is_none());
        assert_eq!(engine.dictionaries().len(), there);
        insert(&catalog, "db.c", &doc! { "_id": 1 }).unwrap();
    }
}

#[test]
fn what_is_not_placed_by_itself_is_sorted_and_inserted() {
    let catalog = open(&Engine::temporary());
    let mut txn = begin(&catalog);
    load(&mut txn, &doc! { "partitioned": true }, &[by_a(false)]).unwrap();
    assert!(!txn.loads_past_the_log());
    for i in (0..50).rev() {
        put(&mut txn, &doc! { "_id": i, "a": i % 5 }).unwrap();
    }
    assert_eq!(txn.commit_load(&never).unwrap(), 50);
    txn.commit().unwrap();
    assert_eq!(check_valid(&catalog, "db.c").records, 50);
}

#[test]
fn a_backup_that_goes_on_has_what_is_loaded_in_its_log() {
    let engine = Engine::temporary();
    let catalog = open(&engine);
    let mut txn = begin(&catalog);
    load(&mut txn, &doc! {}, &[by_a(false)]).unwrap();
    assert!(txn.loads_past_the_log());
    for i in 0..300 {
        put(&mut txn, &doc! { "_id": i, "a": i }).unwrap();
    }
    let backup = engine.backup().unwrap();
    assert_eq!(txn.commit_load(&never).unwrap(), 300);
    txn.commit().unwrap();
    drop(backup);
    assert_eq!(check_valid(&catalog, "db.c").records, 300);
}
