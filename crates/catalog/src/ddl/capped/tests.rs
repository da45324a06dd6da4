//! Capped collections: what stays, what goes, and in which order it is read.

use super::*;
use crate::CatalogOptions;
use bson::raw::RawDocumentBuf;
use bson::{Document, doc};
use engine::Engine;
use indexkeys::id_key;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

fn open(engine: &Engine) -> Arc<Catalog> {
    let options = CatalogOptions::new(os::Os::real(), std::env::temp_dir());
    Catalog::open(engine.clone(), options).unwrap()
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn name() -> Namespace {
    Namespace::parse("db.c").unwrap()
}

fn capped(options: &Document) -> Arc<Catalog> {
    let catalog = open(&Engine::temporary());
    let options = CollectionOptions::parse(&raw(options)).unwrap();
    catalog.create_collection(&name(), &options, &|| Ok(())).unwrap();
    catalog
}

fn write(catalog: &Arc<Catalog>, step: impl Fn(&mut Txn, &Arc<Collection>) -> Result<()>) {
    let mut txn = catalog.begin(TxnKind::Statement);
    let collection = txn.open_for_write(&name()).unwrap().unwrap();
    step(&mut txn, &collection).unwrap();
    txn.commit().unwrap();
}

fn insert(catalog: &Arc<Catalog>, id: i32, text: &str) {
    let document = raw(&doc! { "_id": id, "t": text });
    write(catalog, |txn, collection| txn.insert_document(collection, &document));
}

fn insert_all(catalog: &Arc<Catalog>, ids: impl IntoIterator<Item = i32>) {
    for id in ids {
        insert(catalog, id, "x");
    }
}

fn key(id: i32) -> Vec<u8> {
    id_key(bson::RawBsonRef::Int32(id), None).unwrap()
}

fn stored(txn: &mut Txn, collection: &Collection, id: i32) -> RawDocumentBuf {
    let value = txn.get_for_update(collection, &key(id)).unwrap().unwrap();
    RawDocument::from_bytes(&value[..]).unwrap().to_owned()
}

/// The `_id`s in the order of arrival; everything is checked to agree.
fn ids(catalog: &Arc<Catalog>) -> Vec<i32> {
    let report = catalog.validate(&name(), &|| Ok(())).unwrap();
    assert!(report.valid(), "{:?}", report.errors);
    let collection = catalog.collection(&name()).unwrap();
    let snapshot = catalog.snapshot();
    let order = collection.order().unwrap();
    let mut cursor = snapshot.cursor(order, arrivals_from(0), Direction::Forward).unwrap();
    let mut ids = Vec::new();
    while let Some((_, id)) = cursor.next().unwrap() {
        let document = snapshot.get(collection.primary(), id).unwrap().unwrap();
        ids.push(RawDocument::from_bytes(&document[..]).unwrap().get_i32("_id").unwrap());
    }
    ids
}

#[test]
fn the_oldest_make_room_by_number_and_by_size() {
    let catalog = capped(&doc! { "capped": true, "size": 100_000, "max": 3 });
    insert_all(&catalog, [5, 1, 4, 2, 3]);
    assert_eq!(ids(&catalog), [4, 2, 3]);
    let bytes = raw(&doc! { "_id": 1, "t": "x" }).as_bytes().len() as i64;
    let catalog = capped(&doc! { "capped": true, "size": 2 * bytes });
    insert_all(&catalog, [5, 1, 4]);
    assert_eq!(ids(&catalog), [1, 4]);
    let large = raw(&doc! { "_id": 9, "t": "x".repeat(100) });
    let mut txn = catalog.begin(TxnKind::Statement);
    let collection = txn.open_for_write(&name()).unwrap().unwrap();
    let error = txn.insert_document(&collection, &large).unwrap_err();
    assert_eq!(error.message(), "object to insert exceeds cappedMaxSize");
    txn.commit().unwrap();
    assert_eq!(ids(&catalog), [1, 4]);
}

#[test]
fn growth_is_paid_by_the_next_insert() {
    let catalog = capped(&doc! { "capped": true, "size": 120 });
    insert_all(&catalog, [1, 2, 3]);
    write(&catalog, |txn, collection| {
        let old = stored(txn, collection, 3);
        let new = raw(&doc! { "_id": 3, "t": "x".repeat(80) });
        txn.update_document(collection, &key(3), &old, &new, None)
    });
    assert_eq!(ids(&catalog), [1, 2, 3]);
    insert(&catalog, 4, "");
    assert_eq!(ids(&catalog), [4]);
}

#[test]
fn order_and_cap_survive_reopening() {
    let engine = Engine::temporary();
    let catalog = open(&engine);
    let options = raw(&doc! { "capped": true, "size": 10_000, "max": 2 });
    let options = CollectionOptions::parse(&options).unwrap();
    catalog.create_collection(&name(), &options, &|| Ok(())).unwrap();
    insert_all(&catalog, [9, 8]);
    drop(catalog);
    let catalog = open(&engine);
    insert(&catalog, 1, "x");
    assert_eq!(ids(&catalog), [8, 1]);
    catalog.change_cap(&name(), None, Some(5), &|| Ok(())).unwrap();
    insert_all(&catalog, [7, 6, 5, 4]);
    assert_eq!(ids(&catalog), [1, 7, 6, 5, 4]);
    catalog.empty_capped(&name()).unwrap();
    assert_eq!(ids(&catalog), [0; 0]);
    insert(&catalog, 2, "x");
    catalog.drop_collection(&name(), &|| Ok(())).unwrap();
}

#[test]
fn a_collection_becomes_capped_where_it_stands() {
    let catalog = open(&Engine::temporary());
    catalog.ensure_collection(&name()).unwrap();
    let index = raw(&doc! { "key": { "t": 1 }, "name": "t_1" });
    let index = indexkeys::IndexSpec::parse(&index).unwrap();
    catalog.create_indexes(&name(), &[index], &|| Ok(())).unwrap();
    insert_all(&catalog, 0..10);
    let bytes = raw(&doc! { "_id": 1, "t": "x" }).as_bytes().len() as i64;
    catalog.convert_to_capped(&name(), 4 * bytes, &|| Ok(())).unwrap();
    assert_eq!(ids(&catalog), [6, 7, 8, 9]);
    assert!(catalog.collection(&name()).unwrap().indexes().is_empty());
    insert(&catalog, 0, "x");
    assert_eq!(ids(&catalog), [7, 8, 9, 0]);
    catalog.convert_to_capped(&name(), 2 * bytes, &|| Ok(())).unwrap();
    assert_eq!(ids(&catalog), [9, 0]);
    let copy = Namespace::parse("db.copy").unwrap();
    catalog.clone_as_capped(&name(), &copy, bytes, &|| Ok(())).unwrap();
    assert_eq!(catalog.collection(&copy).unwrap().count(), 1);
}

#[test]
fn clients_transactions_do_not_write_to_it() {
    let catalog = capped(&doc! { "capped": true, "size": 1000 });
    let mut txn = catalog.begin_clients(None, Duration::from_millis(5));
    let error = txn.open_for_write(&name()).unwrap_err();
    assert_eq!(error.code(), Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION);
}

#[test]
fn who_waits_at_the_end_is_woken_by_a_commit() {
    let catalog = capped(&doc! { "capped": true, "size": 1000 });
    let collection = catalog.collection(&name()).unwrap();
    let seen = collection.commits_seen();
    assert!(!collection.wait_for_commit(seen, Duration::ZERO));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| collection.wait_for_commit(seen, Duration::from_mins(5)));
        insert(&catalog, 1, "x");
        assert!(waiting.join().unwrap());
    });
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let call = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let watch = collection.watch_commits(Arc::new(call));
    let seen = collection.commits_seen();
    insert(&catalog, 2, "x");
    insert(&catalog, 3, "x");
    assert_eq!(calls.load(Ordering::Relaxed), 1, "the first is told, and then no more");
    assert!(collection.commits_seen() > seen);
    drop(watch);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(i32, usize),
    Delete(i32),
    Update(i32, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12, 0_usize..60).prop_map(|(id, size)| Step::Insert(id, size)),
        1 => (0..12).prop_map(Step::Delete),
        2 => (0..12, 0_usize..60).prop_map(|(id, size)| Step::Update(id, size)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_a_queue_with_a_limit(steps in prop::collection::vec(step(), 1..40)) {
        let catalog = capped(&doc! { "capped": true, "size": 300, "max": 5 });
        let mut model: Vec<(i32, usize)> = Vec::new();
        let size_of = |text: usize| raw(&doc! { "_id": 1, "t": "x".repeat(text) }).as_bytes().len();
        for step in steps {
            match step {
                Step::Insert(id, text) => {
                    if model.iter().any(|(known, _)| *known == id) {
                        continue;
                    }
                    insert(&catalog, id, &"x".repeat(text));
                    model.push((id, size_of(text)));
                    while model.len() > 5 || model.iter().map(|(_, size)| size).sum::<usize>() > 300 {
                        model.remove(0);
                    }
                }
                Step::Delete(id) => {
                    let Some(at) = model.iter().position(|(known, _)| *known == id) else { continue };
                    model.remove(at);
                    write(&catalog, |txn, collection| {
                        let old = stored(txn, collection, id);
                        txn.delete_document(collection, &key(id), &old)
                    });
                }
                Step::Update(id, text) => {
                    let Some(at) = model.iter().position(|(known, _)| *known == id) else { continue };
                    model[at].1 = size_of(text);
                    write(&catalog, |txn, collection| {
                        let old = stored(txn, collection, id);
                        let new = raw(&doc! { "_id": id, "t": "x".repeat(text) });
                        txn.update_document(collection, &key(id), &old, &new, None)
                    });
                }
            }
            prop_assert_eq!(ids(&catalog), model.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        }
    }
}
