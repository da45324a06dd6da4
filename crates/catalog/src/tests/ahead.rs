//! Changes of names where commits are held back: they go ahead of what readers see.

use super::statements::Member;
use super::*;
use crate::data::txn::TxnKind;
use std::time::Duration;

fn names(catalog: &Catalog) -> Vec<String> {
    let all = catalog.collections("db");
    all.iter().map(|collection| collection.namespace().collection().to_owned()).collect()
}

fn newest_names(catalog: &Catalog) -> Vec<String> {
    let all = catalog.newest_collections("db");
    all.iter().map(|collection| collection.namespace().collection().to_owned()).collect()
}

fn drop_index(catalog: &Catalog, name: &str) -> Result<usize> {
    catalog.drop_indexes(&ns("db.new"), &[IndexSelector::Name(name)], &never)
}

/// All that a client can do to names, without anybody to decide it.
fn change_everything(catalog: &Arc<Catalog>) {
    catalog.create_collection(&ns("db.new"), &CollectionOptions::default(), &never).unwrap();
    build(catalog, "db.new", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    build(catalog, "db.new", &doc! { "key": { "b": 1 }, "name": "b_1" }).unwrap();
    insert(catalog, "db.new", &doc! { "_id": 1, "a": [1, 2], "b": 1 }).unwrap();
    assert_eq!(drop_index(catalog, "b_1").unwrap(), 3);
    assert_eq!(drop_index(catalog, "b_1").unwrap_err().code(), Code::INDEX_NOT_FOUND);
    insert(catalog, "db.implied", &doc! { "_id": 1 }).unwrap();
    insert(catalog, "db.implied", &doc! { "_id": 2 }).unwrap();
    catalog.rename_collection(&ns("db.implied"), &ns("db.renamed"), false, &never).unwrap();
    let taken = catalog.rename_collection(&ns("db.renamed"), &ns("db.new"), false, &never);
    assert_eq!(taken.unwrap_err().code(), Code::NAMESPACE_EXISTS);
    catalog.drop_collection(&ns("db.c"), &never).unwrap();
    assert_eq!(
        catalog.drop_collection(&ns("db.c"), &never).unwrap_err().code(),
        Code::NAMESPACE_NOT_FOUND
    );
    insert(catalog, "db.c", &doc! { "_id": 7 }).unwrap();
    catalog.drop_collection(&ns("db.c"), &never).unwrap();
    insert(catalog, "db.c", &doc! { "_id": 8 }).unwrap();
    insert(catalog, "db.c", &doc! { "_id": 9 }).unwrap();
}

#[test]
fn changes_of_names_wait_for_nobody_and_readers_find_them_once_they_are_visible() {
    let member = Member::new();
    let catalog = &member.catalog;
    change_everything(catalog);
    assert_eq!(names(catalog), ["c"], "readers see nothing of it");
    assert_eq!(member.shown(), 1);
    assert!(!catalog.collection(&ns("db.c")).unwrap().is_dropped());
    assert_eq!(newest_names(catalog), ["c", "new", "renamed"]);
    assert!(member.timed_out(), "the answer waits");
    member.decide();
    catalog.settle().unwrap();
    assert_eq!(names(catalog), ["c", "new", "renamed"]);
    assert_eq!(member.shown(), 2);
    assert_eq!(catalog.collection(&ns("db.renamed")).unwrap().count(), 2);
    let new = catalog.collection(&ns("db.new")).unwrap();
    assert_eq!(new.index("a_1").unwrap().multikey_parts(), 1);
    assert!(new.index("b_1").is_none());
    member.decided(|catalog| {
        for name in ["db.c", "db.new", "db.renamed"] {
            check_valid(catalog, name);
        }
    });
    member.check();
}

#[test]
fn overwritten_changes_of_names_leave_nothing() {
    let member = Member::new();
    let catalog = &member.catalog;
    for _ in 0..3 {
        change_everything(catalog);
        member.lose_tail();
        assert_eq!(
            catalog.settle().unwrap_err().code(),
            Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE
        );
        assert_eq!(names(catalog), ["c"]);
        assert_eq!(newest_names(catalog), ["c"]);
        assert_eq!(member.shown(), 1);
        member.check();
    }
    change_everything(catalog);
    member.decide();
    assert_eq!(names(catalog), ["c", "new", "renamed"]);
    member.check();
}

#[test]
fn a_dropped_database_is_there_for_readers_until_that_is_visible() {
    let member = Member::new();
    let catalog = &member.catalog;
    insert(catalog, "db.d", &doc! { "_id": 1 }).unwrap();
    assert_eq!(catalog.drop_database("db", &never).unwrap(), 2);
    assert_eq!(catalog.drop_database("db", &never).unwrap(), 0);
    assert_eq!(names(catalog), ["c"]);
    let reader = catalog.collection(&ns("db.c")).unwrap();
    insert(catalog, "DB.c", &doc! { "_id": 1 }).unwrap();
    let case = insert(catalog, "db.c", &doc! { "_id": 1 }).unwrap_err();
    assert_eq!(case.code(), Code::DATABASE_DIFFER_CASE);
    assert!(!reader.is_dropped());
    member.decide();
    assert!(reader.is_dropped());
    assert_eq!(catalog.databases(), ["DB"]);
}

#[test]
fn who_finds_a_name_that_nobody_sees_yet_waits_with_the_answer() {
    let member = Member::new();
    let catalog = &member.catalog;
    catalog.create_collection(&ns("db.new"), &CollectionOptions::default(), &never).unwrap();
    forget_statements();
    assert!(catalog.collection(&ns("db.new")).is_none());
    assert!(!member.timed_out(), "a reader has found nothing");
    let again = catalog.create_collection(&ns("db.new"), &CollectionOptions::default(), &never);
    assert_eq!(again.unwrap_err().code(), Code::NAMESPACE_EXISTS);
    assert!(member.timed_out());
    member.lose_tail();
    assert!(catalog.settle().is_err(), "there is no such collection");
}

#[test]
fn a_clients_transaction_waits_for_the_names_that_it_writes_to() {
    let member = Member::new();
    let catalog = &member.catalog;
    let wait = Duration::from_millis(30);
    member.decided(delete_all);
    build(catalog, "db.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    catalog.create_collection(&ns("db.new"), &CollectionOptions::default(), &never).unwrap();
    // A session's meets a conflict, one of a connection is told how long it has waited.
    for name in ["db.c", "db.new"] {
        let mut txn = catalog.begin_clients(None, wait);
        let late = txn.open_for_write(&ns(name)).unwrap_err();
        assert_eq!(late.code(), Code::WRITE_CONFLICT);
        drop(txn);
        let mut txn = catalog.begin_bound(Isolation::ReadCommitted, wait).unwrap();
        let late = txn.open_for_write(&ns(name)).unwrap_err();
        assert_eq!(late.code(), Code::LOCK_TIMEOUT);
    }
    let mut txn = catalog.begin_bound(Isolation::ReadCommitted, wait).unwrap();
    let late = txn.create_collection(&ns("db.new"), &CollectionOptions::default());
    assert_eq!(late.unwrap_err().code(), Code::LOCK_TIMEOUT);
    drop(txn);
    member.decided(|catalog| {
        let mut txn =
            catalog.begin_bound(Isolation::ReadCommitted, Duration::from_secs(9)).unwrap();
        let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
        txn.insert_document(&collection, &raw(&doc! { "_id": 5, "a": 5 })).unwrap();
        let made = txn.create_collection(&ns("db.new"), &CollectionOptions::default());
        assert_eq!(made.unwrap_err().code(), Code::NAMESPACE_EXISTS);
        txn.commit().unwrap();
    });
    member.check();
}

#[test]
fn names_of_a_clients_transaction_go_ahead_of_readers_with_its_commit() {
    let member = Member::new();
    let catalog = &member.catalog;
    let made = || {
        let mut txn = catalog.begin_clients(None, Duration::from_millis(30));
        let options = CollectionOptions::default();
        let collection = txn.create_collection(&ns("db.new"), &options).unwrap();
        txn.open_for_write(&ns("db.new")).unwrap();
        txn.insert_document(&collection, &raw(&doc! { "_id": 1 })).unwrap();
        txn.commit().unwrap();
        insert(catalog, "db.new", &doc! { "_id": 2 }).unwrap();
    };
    made();
    member.lose_tail();
    assert!(catalog.newest(&ns("db.new")).is_none());
    catalog.settle().unwrap_err();
    made();
    assert!(catalog.collection(&ns("db.new")).is_none());
    member.decide();
    assert_eq!(catalog.collection(&ns("db.new")).unwrap().count(), 2);
    member.decided(|catalog| check_valid(catalog, "db.new"));
}

#[test]
fn users_count_as_changed_when_that_is_visible() {
    let member = Member::new();
    let catalog = &member.catalog;
    let before = catalog.account_changes();
    let users = ns("admin.system.users");
    catalog.ensure_system_collection(&users).unwrap();
    insert(catalog, "admin.system.users", &doc! { "_id": "a" }).unwrap();
    assert_eq!(catalog.account_changes(), before);
    member.decide();
    let made = catalog.account_changes();
    assert!(made > before);
    insert(catalog, "admin.system.users", &doc! { "_id": "b" }).unwrap();
    assert_eq!(catalog.account_changes(), made);
    member.lose_tail();
    insert(catalog, "admin.system.users", &doc! { "_id": "c" }).unwrap();
    let lost = catalog.account_changes();
    member.decide();
    assert!(catalog.account_changes() > lost);
}

#[test]
fn a_wait_in_the_middle_of_a_change_ends_with_the_limit() {
    let member = Member::new();
    let catalog = &member.catalog;
    insert(catalog, "db.c", &doc! { "_id": 1 }).unwrap();
    limit_waits(Some(Duration::from_millis(20)));
    let late = catalog.convert_to_capped(&ns("db.c"), 1 << 20, &never).unwrap_err();
    assert_eq!(late.code(), Code::WRITE_CONCERN_TIMEOUT);
    let spec = doc! { "key": { "a": 1 }, "name": "a_1" };
    let late = build(catalog, "db.c", &spec).unwrap_err();
    assert_eq!(late.code(), Code::WRITE_CONCERN_TIMEOUT, "a build needs a majority at each step");
    limit_waits(None);
    member.decide();
    member.decided(|catalog| build(catalog, "db.c", &spec).map(drop)).unwrap();
    member.check();
}

fn delete_all(catalog: &Arc<Catalog>) {
    let mut txn = catalog.begin(TxnKind::Statement);
    let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
    let key = indexkeys::id_key(RawBsonRef::Int32(0), None).unwrap();
    let found = txn.get_for_update(&collection, &key).unwrap().unwrap();
    let found = RawDocument::from_bytes(&found[..]).unwrap();
    txn.delete_document(&collection, &key, found).unwrap();
    txn.commit_visible().unwrap();
}

#[test]
fn a_clients_transaction_that_takes_a_collection_over_waits_for_the_one_that_has_its_name() {
    let member = Member::new();
    let catalog = &member.catalog;
    let wait = Duration::from_millis(30);
    catalog.drop_collection(&ns("db.c"), &never).unwrap();
    catalog.create_collection(&ns("db.c"), &CollectionOptions::default(), &never).unwrap();
    let mut txn = catalog.begin_clients(None, wait);
    assert_eq!(txn.drop_collection(&ns("db.c")).unwrap_err().code(), Code::WRITE_CONFLICT);
    drop(txn);
    member.decided(|catalog| {
        let mut txn =
            catalog.begin_bound(Isolation::ReadCommitted, Duration::from_secs(9)).unwrap();
        txn.drop_collection(&ns("db.c")).unwrap();
        txn.commit().unwrap();
    });
    assert!(names(catalog).is_empty());
}
