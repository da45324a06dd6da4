//! Keys that are guarded before an index is unique, and what becomes of the index.

use crate::{Catalog, CatalogOptions, IndexSelector, Namespace, Txn, TxnKind};
use bson::raw::RawDocumentBuf;
use bson::{Document, doc};
use engine::Engine;
use errors::{Code, Result};
use indexkeys::{IndexChange, IndexSpec};
use std::sync::Arc;
use std::time::Duration;

const NAME: IndexSelector<'static> = IndexSelector::Name("a_1");

fn open(engine: &Engine) -> Arc<Catalog> {
    let options = CatalogOptions::new(os::Os::real(), std::env::temp_dir());
    Catalog::open(engine.clone(), options).unwrap()
}

fn ns() -> Namespace {
    Namespace::parse("db.c").unwrap()
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of an interrupt check")]
fn never() -> Result<()> {
    Ok(())
}

/// A collection with documents of these values and an index that is prepared.
fn prepared(values: &[i32]) -> Arc<Catalog> {
    let catalog = open(&Engine::temporary());
    catalog.ensure_collection(&ns()).unwrap();
    for (id, value) in (0_i32..).zip(values) {
        put(&catalog, &doc! { "_id": id, "a": value }).unwrap();
    }
    let spec = doc! { "key": { "a": 1 }, "name": "a_1", "prepareUnique": true };
    catalog.create_indexes(&ns(), &[IndexSpec::parse(&raw(&spec)).unwrap()], &never).unwrap();
    catalog
}

fn insert(txn: &mut Txn, document: &Document) -> Result<()> {
    let collection = txn.open_for_write(&ns())?.unwrap();
    txn.insert_document(&collection, &raw(document))
}

fn put(catalog: &Arc<Catalog>, document: &Document) -> Result<()> {
    let mut txn = catalog.begin(TxnKind::Statement);
    let inserted = insert(&mut txn, document);
    txn.commit()?;
    inserted
}

fn check_valid(catalog: &Catalog) {
    let report = catalog.validate(&ns(), &never).unwrap();
    assert!(report.valid(), "{:?}", report.errors);
}

#[test]
fn a_prepared_index_keeps_shared_keys_and_takes_no_more() {
    let catalog = prepared(&[1, 1, 2]);
    for value in [1, 2] {
        let refused = put(&catalog, &doc! { "_id": 9, "a": value }).unwrap_err();
        assert_eq!(refused.code(), Code::DUPLICATE_KEY);
    }
    put(&catalog, &doc! { "_id": 9, "a": [3, 3, 4] }).unwrap();
    assert!(put(&catalog, &doc! { "_id": 10, "a": 4 }).is_err());
    check_valid(&catalog);
}

#[test]
fn what_the_same_transaction_gave_up_is_free() {
    let catalog = prepared(&[1]);
    let mut txn = catalog.begin_clients(None, Duration::ZERO);
    let collection = txn.open_for_write(&ns()).unwrap().unwrap();
    let key = indexkeys::id_key(bson::RawBsonRef::Int32(0), None).unwrap();
    txn.delete_document(&collection, &key, &raw(&doc! { "_id": 0, "a": 1 })).unwrap();
    insert(&mut txn, &doc! { "_id": 5, "a": 1 }).unwrap();
    let own = insert(&mut txn, &doc! { "_id": 6, "a": 1 }).unwrap_err();
    assert_eq!(own.code(), Code::DUPLICATE_KEY);
    txn.commit().unwrap();
    assert_eq!(catalog.collection(&ns()).unwrap().count(), 1);
    check_valid(&catalog);
}

#[test]
fn a_key_taken_since_the_snapshot_is_a_conflict() {
    let catalog = prepared(&[]);
    let mut old = catalog.begin_clients(None, Duration::ZERO);
    put(&catalog, &doc! { "_id": 1, "a": 1 }).unwrap();
    let refused = insert(&mut old, &doc! { "_id": 2, "a": 1 }).unwrap_err();
    assert_eq!(refused.code(), Code::WRITE_CONFLICT);
}

#[test]
fn an_index_becomes_unique_once_no_key_is_shared() {
    let catalog = prepared(&[1, 1, 2, 3, 3, 3]);
    let refused = catalog.make_unique(&ns(), NAME, false, &never).unwrap_err();
    assert_eq!(refused.code(), Code::CANNOT_CONVERT_INDEX_TO_UNIQUE);
    let violations = refused.extra().unwrap().get_array("violations").unwrap();
    assert_eq!(violations, &[doc! { "ids": [0, 1] }.into(), doc! { "ids": [3, 4, 5] }.into()]);
    let catalog = prepared(&[1, 2, 3]);
    assert!(catalog.make_unique(&ns(), NAME, true, &never).unwrap());
    assert!(!catalog.collection(&ns()).unwrap().index("a_1").unwrap().spec().unique);
    assert!(catalog.make_unique(&ns(), NAME, false, &never).unwrap());
    assert!(!catalog.make_unique(&ns(), NAME, false, &never).unwrap());
    let collection = catalog.collection(&ns()).unwrap();
    let shown = &collection.index("a_1").unwrap().spec().shown;
    assert_eq!(
        shown.as_ref(),
        &*raw(&doc! { "v": 2, "key": { "a": 1 }, "name": "a_1", "unique": true })
    );
    let refused = put(&catalog, &doc! { "_id": 9, "a": 1 }).unwrap_err();
    assert_eq!(refused.code(), Code::DUPLICATE_KEY);
    put(&catalog, &doc! { "_id": 9, "a": 9 }).unwrap();
    check_valid(&catalog);
}

#[test]
fn an_index_that_is_not_prepared_does_not_become_unique() {
    let catalog = prepared(&[1]);
    let change = IndexChange { prepare_unique: Some(false), ..IndexChange::default() };
    let before = catalog.change_index(&ns(), NAME, change, &never).unwrap();
    assert_eq!(before.prepare_unique, Some(true));
    let refused = catalog.make_unique(&ns(), NAME, false, &never).unwrap_err();
    assert_eq!(refused.code(), Code::INVALID_OPTIONS);
    put(&catalog, &doc! { "_id": 9, "a": 1 }).unwrap();
}
