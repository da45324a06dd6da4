//! Collections whose documents are clustered by other fields before `_id`.

use super::*;
use crate::data::txn::Txn;
use engine::{Direction, KeyRange};

/// Creates a collection with a primary key.
pub(super) fn create(catalog: &Arc<Catalog>, name: &str, pattern: &Document) {
    let options = options(pattern);
    catalog.create_collection(&ns(name), &options, &never).unwrap();
}

fn options(pattern: &Document) -> CollectionOptions {
    CollectionOptions::parse(&raw(&doc! { "primaryKey": pattern })).unwrap()
}

/// The documents as they stand.
fn stored(catalog: &Catalog, name: &str) -> Vec<Document> {
    let collection = catalog.collection(&ns(name)).unwrap();
    let snapshot = catalog.snapshot();
    let cursor = snapshot.cursor(collection.primary(), KeyRange::all(), Direction::Forward);
    let mut cursor = cursor.unwrap();
    let mut all = Vec::new();
    while let Some((_, document)) = cursor.next().unwrap() {
        all.push(Document::try_from(RawDocument::from_bytes(document).unwrap()).unwrap());
    }
    all
}

/// Gives the document of this `_id` another form, in a statement of its own.
pub(super) fn change(catalog: &Arc<Catalog>, name: &str, new: &Document) -> Result<()> {
    let mut txn = catalog.begin(TxnKind::Statement);
    let changed = change_in(&mut txn, name, new);
    txn.commit()?;
    changed
}

pub(super) fn change_in(txn: &mut Txn, name: &str, new: &Document) -> Result<()> {
    let collection = txn.open_for_write(&ns(name))?.unwrap();
    let new = raw(new);
    let id = new.get("_id")?.unwrap();
    let key = collection.find_record_key(id, |dictionary, key| txn.get(dictionary, key))?.unwrap();
    let old = txn.get_for_update(&collection, &key)?.unwrap();
    txn.update_document(&collection, &key, RawDocument::from_bytes(&old[..])?, &new, None)
}

#[test]
fn documents_stand_in_the_order_of_the_key_and_move_with_it() {
    let engine = Engine::temporary();
    let catalog = open(&engine);
    create(&catalog, "db.c", &doc! { "a": 1, "b.c": -1, "_id": 1 });
    build(&catalog, "db.c", &doc! { "key": { "x": 1 }, "name": "x" }).unwrap();
    build(&catalog, "db.c", &doc! { "key": { "x": 1, "_id": 1 }, "name": "u", "unique": true })
        .unwrap();
    for (id, a, c) in [(1, 2, 1), (2, 1, 1), (3, 1, 2)] {
        insert(&catalog, "db.c", &doc! { "_id": id, "a": a, "b": { "c": c }, "x": id }).unwrap();
    }
    let ids = |catalog: &Catalog| -> Vec<i32> {
        stored(catalog, "db.c").iter().map(|document| document.get_i32("_id").unwrap()).collect()
    };
    assert_eq!(ids(&catalog), [3, 2, 1]);
    change(&catalog, "db.c", &doc! { "_id": 3, "a": 3, "b": { "c": 0 }, "x": 9 }).unwrap();
    assert_eq!(ids(&catalog), [2, 1, 3]);
    // Another type of the same number stands where it stood.
    change(&catalog, "db.c", &doc! { "_id": 2, "a": 1.0, "b": { "c": 1_i64 }, "x": 2 }).unwrap();
    assert_eq!(ids(&catalog), [2, 1, 3]);
    let report = check_valid(&catalog, "db.c");
    let names: Vec<(&str, u64)> =
        report.keys_per_index.iter().map(|(name, keys)| (&name[..], *keys)).collect();
    assert_eq!(names, [("primaryKey", 3), ("_id_", 3), ("x", 3), ("u", 3)]);
    let reopened = open(&engine);
    assert_eq!(ids(&reopened), [2, 1, 3]);
    check_valid(&reopened, "db.c");
    catalog.rename_collection(&ns("db.c"), &ns("db.d"), false, &never).unwrap();
    check_valid(&catalog, "db.d");
    let before = engine.dictionaries().len();
    catalog.drop_collection(&ns("db.d"), &never).unwrap();
    assert_eq!(engine.dictionaries().len(), before - 4);
}

#[test]
fn an_id_is_that_of_one_document_wherever_it_stands() {
    let catalog = open(&Engine::temporary());
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 });
    insert(&catalog, "db.c", &doc! { "_id": 1, "a": 1 }).unwrap();
    for a in [1, 2] {
        let refused = insert(&catalog, "db.c", &doc! { "_id": 1, "a": a }).unwrap_err();
        assert_eq!(refused.code(), Code::DUPLICATE_KEY);
        assert_eq!(
            refused.message(),
            "E11000 duplicate key error collection: db.c index: _id_ dup key: { _id: 1 }"
        );
    }
    for value in [bson::bson!([]), bson::bson!([1])] {
        let refused = insert(&catalog, "db.c", &doc! { "_id": 2, "a": value.clone() }).unwrap_err();
        assert_eq!(refused.code().0, 17205);
        let refused = change(&catalog, "db.c", &doc! { "_id": 1, "a": value }).unwrap_err();
        assert_eq!(refused.code().0, 17205);
    }
    assert_eq!(stored(&catalog, "db.c"), [doc! { "_id": 1, "a": 1 }]);
    check_valid(&catalog, "db.c");
}

#[test]
fn a_move_is_rolled_back_whole() {
    let catalog = open(&Engine::temporary());
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 });
    build(&catalog, "db.c", &doc! { "key": { "u": 1 }, "name": "u", "unique": true }).unwrap();
    for id in [1, 2] {
        insert(&catalog, "db.c", &doc! { "_id": id, "a": id, "u": id }).unwrap();
    }
    let before = stored(&catalog, "db.c");
    let refused = change(&catalog, "db.c", &doc! { "_id": 1, "a": 9, "u": 2 }).unwrap_err();
    assert_eq!(refused.code(), Code::DUPLICATE_KEY);
    assert_eq!(stored(&catalog, "db.c"), before);
    let mut txn = catalog.begin(TxnKind::Transaction);
    change_in(&mut txn, "db.c", &doc! { "_id": 1, "a": 5, "u": 5 }).unwrap();
    let savepoint = txn.savepoint();
    change_in(&mut txn, "db.c", &doc! { "_id": 1, "a": 0, "u": 1 }).unwrap();
    change_in(&mut txn, "db.c", &doc! { "_id": 2, "a": 0, "u": 5 }).unwrap();
    txn.rollback_to(savepoint);
    change_in(&mut txn, "db.c", &doc! { "_id": 2, "a": 1, "u": 1 }).unwrap();
    txn.commit().unwrap();
    let after = [doc! { "_id": 2, "a": 1, "u": 1 }, doc! { "_id": 1, "a": 5, "u": 5 }];
    assert_eq!(stored(&catalog, "db.c"), after);
    check_valid(&catalog, "db.c");
}

#[test]
fn who_writes_to_a_document_that_was_moved_meets_a_conflict() {
    let catalog = open(&Engine::temporary());
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 });
    insert(&catalog, "db.c", &doc! { "_id": 1, "a": 1 }).unwrap();
    let mut late = catalog.begin(TxnKind::Transaction);
    change(&catalog, "db.c", &doc! { "_id": 1, "a": 2 }).unwrap();
    let refused = change_in(&mut late, "db.c", &doc! { "_id": 1, "a": 3 }).unwrap_err();
    assert_eq!(refused.code(), Code::WRITE_CONFLICT);
    late.abort();
    // A statement finds where it stands now.
    let mut txn = catalog.begin(TxnKind::Statement);
    let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
    let (key, found) =
        txn.get_moved_for_update(&collection, RawBsonRef::Int32(1)).unwrap().unwrap();
    let found = RawDocument::from_bytes(&found[..]).unwrap().to_owned();
    assert_eq!((found.get_i32("a").unwrap(), key), (2, collection.record_key(&found).unwrap()));
    assert!(txn.get_moved_for_update(&collection, RawBsonRef::Int32(2)).unwrap().is_none());
}

#[test]
fn an_entry_that_names_the_place_before_a_move_is_found() {
    for name in ["x", "_id_"] {
        let catalog = open(&Engine::temporary());
        create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 });
        build(&catalog, "db.c", &doc! { "key": { "x": 1 }, "name": "x" }).unwrap();
        let old = doc! { "_id": 1, "a": 1, "x": 5 };
        insert(&catalog, "db.c", &old).unwrap();
        change(&catalog, "db.c", &doc! { "_id": 1, "a": 2, "x": 5 }).unwrap();
        check_valid(&catalog, "db.c");
        let collection = catalog.collection(&ns("db.c")).unwrap();
        let index = collection.index(name).unwrap();
        let old = raw(&old);
        let record_key = collection.record_key(&old).unwrap();
        let record = indexkeys::RecordKey::of(&old, &record_key).unwrap();
        let stale = index.keys.make(&old, record).unwrap().entries.remove(0);
        let mut txn = catalog.begin(TxnKind::Statement);
        txn.engine.put(index.dictionary, &stale.key, &stale.value).unwrap();
        txn.engine.commit(engine::Durability::Buffered).unwrap().visible();
        let report = catalog.validate(&ns("db.c"), &never).unwrap();
        assert_eq!(report.invalid_indexes, [name], "{:?}", report.errors);
    }
}

#[test]
fn strings_stand_in_the_order_of_the_collections_collation() {
    let catalog = open(&Engine::temporary());
    let options = doc! {
        "primaryKey": { "a": -1, "_id": 1 }, "collation": { "locale": "en", "strength": 1 },
    };
    let options = CollectionOptions::parse(&raw(&options)).unwrap();
    catalog.create_collection(&ns("db.c"), &options, &never).unwrap();
    build(&catalog, "db.c", &doc! { "key": { "x": 1 }, "name": "x" }).unwrap();
    for (id, a) in [("p", "B"), ("q", "b"), ("r", "C"), ("s", "a")] {
        insert(&catalog, "db.c", &doc! { "_id": id, "a": a, "x": 1 }).unwrap();
    }
    let ids: Vec<Document> = stored(&catalog, "db.c");
    let ids: Vec<&str> = ids.iter().map(|document| document.get_str("_id").unwrap()).collect();
    assert_eq!(ids, ["r", "p", "q", "s"]);
    let refused = insert(&catalog, "db.c", &doc! { "_id": "P", "a": "z" }).unwrap_err();
    assert_eq!(refused.code(), Code::DUPLICATE_KEY);
    check_valid(&catalog, "db.c");
}

#[test]
fn the_primary_key_and_the_index_on_id_stay() {
    let catalog = open(&Engine::temporary());
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 });
    build(&catalog, "db.c", &doc! { "key": { "x": 1 }, "name": "x" }).unwrap();
    let made = build(&catalog, "db.c", &doc! { "key": { "_id": 1 }, "name": "_id_" }).unwrap();
    assert_eq!((made.before, made.after), (3, 3));
    let same = doc! {
        "key": { "a": 1, "_id": 1 }, "name": "primaryKey", "unique": true, "clustering": true,
    };
    assert_eq!(build(&catalog, "db.c", &same).unwrap().after, 3);
    let other = doc! { "key": { "b": 1 }, "name": "primaryKey" };
    let refused = build(&catalog, "db.c", &other).unwrap_err();
    assert_eq!(refused.code(), Code::INDEX_KEY_SPECS_CONFLICT);
    let (id, key) = (raw(&doc! { "_id": 1 }), raw(&doc! { "a": 1, "_id": 1 }));
    for (selector, text) in [
        (IndexSelector::Name("_id_"), "cannot drop _id index"),
        (IndexSelector::Key(&id), "cannot drop _id index"),
        (IndexSelector::Name("primaryKey"), "cannot drop the primary key"),
        (IndexSelector::Key(&key), "cannot drop the primary key"),
    ] {
        let refused = catalog.drop_indexes(&ns("db.c"), &[selector], &never).unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::INVALID_OPTIONS, text));
    }
    assert_eq!(catalog.drop_indexes(&ns("db.c"), &[IndexSelector::All], &never).unwrap(), 3);
    let collection = catalog.collection(&ns("db.c")).unwrap();
    assert_eq!((collection.shown_index_count(), collection.indexes().len()), (2, 1));
    let shape = raw(&doc! { "compression": "none" });
    let reshape = |selector| {
        let all = catalog.reshape_indexes(&ns("db.c"), selector, &shape, &never).unwrap();
        all.into_iter().map(|index| index.name).collect::<Vec<_>>()
    };
    assert_eq!(reshape(IndexSelector::All), ["primaryKey", "_id_"]);
    assert_eq!(reshape(IndexSelector::Key(&id)), ["_id_"]);
    assert_eq!(reshape(IndexSelector::Name("_id_")), ["_id_"]);
    assert_eq!(reshape(IndexSelector::Key(&key)), ["primaryKey"]);
    insert(&catalog, "db.c", &doc! { "_id": 1, "a": 1 }).unwrap();
    check_valid(&catalog, "db.c");
    let refused = catalog.convert_to_capped(&ns("db.c"), 4096, &never).unwrap_err();
    assert_eq!(refused.code(), Code::INVALID_OPTIONS);
}

#[test]
fn the_servers_own_collections_have_no_other_primary_key_than_id() {
    let catalog = open(&Engine::temporary());
    let key = options(&doc! { "a": 1, "_id": 1 });
    for name in ["admin.c", "config.settings", "local.c"] {
        let refused = catalog.create_collection(&ns(name), &key, &never).unwrap_err();
        assert_eq!(refused.code(), Code::INVALID_OPTIONS, "{name}");
    }
    create(&catalog, "db.c", &doc! { "a": 1, "_id": 1 });
    let refused = catalog.rename_collection(&ns("db.c"), &ns("config.c"), false, &never);
    assert_eq!(refused.unwrap_err().code(), Code::INVALID_OPTIONS);
}

#[test]
fn a_transaction_makes_a_collection_with_a_primary_key() {
    let engine = Engine::temporary();
    let catalog = open(&engine);
    let mut txn = catalog.begin_clients(None, std::time::Duration::from_secs(1));
    txn.create_collection(&ns("db.c"), &options(&doc! { "a": -1, "_id": 1 })).unwrap();
    let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
    for id in [1, 2] {
        let document = raw(&doc! { "_id": id, "a": id });
        txn.insert_document(&collection, &document).unwrap();
    }
    change_in(&mut txn, "db.c", &doc! { "_id": 1, "a": 3 }).unwrap();
    txn.commit().unwrap();
    let expected = [doc! { "_id": 1, "a": 3 }, doc! { "_id": 2, "a": 2 }];
    assert_eq!(stored(&catalog, "db.c"), expected);
    assert_eq!(stored(&open(&engine), "db.c"), expected);
    check_valid(&catalog, "db.c");
}
