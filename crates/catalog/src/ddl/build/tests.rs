//! Builds with writers beside them: the writes are done from the build's own questions whether to
//! go on, so each run is the same.

use crate::{Catalog, CatalogOptions, CollectionOptions, Namespace, TxnKind};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use engine::Engine;
use errors::{Code, Error, Result};
use indexkeys::IndexSpec;
use proptest::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;

fn open(engine: &Engine) -> Arc<Catalog> {
    let options = CatalogOptions::new(os::Os::real(), std::env::temp_dir());
    Catalog::open(engine.clone(), options).unwrap()
}

fn ns() -> Namespace {
    Namespace::parse("db.c").unwrap()
}

fn spec(spec: &Document) -> IndexSpec {
    IndexSpec::parse(&RawDocumentBuf::try_from(spec).unwrap()).unwrap()
}

/// Puts or deletes a document; false where an index refused it.
fn change(catalog: &Arc<Catalog>, id: i32, new: Option<&Document>) -> bool {
    let mut txn = catalog.begin(TxnKind::Statement);
    let collection = txn.open_for_write(&ns()).unwrap().unwrap();
    let key = collection.find_record_key(RawBsonRef::Int32(id), |d, key| txn.get(d, key));
    let key = key.unwrap().unwrap_or_default();
    let old = txn.get_for_update(&collection, &key).unwrap();
    let old = old.as_ref().map(|old| RawDocument::from_bytes(&old[..]).unwrap());
    let raw = new.map(|new| RawDocumentBuf::try_from(new).unwrap());
    let changed = match (old, &raw) {
        (Some(old), Some(new)) => txn.update_document(&collection, &key, old, new, None),
        (None, Some(new)) => txn.insert_document(&collection, new),
        (Some(old), None) => txn.delete_document(&collection, &key, old),
        (None, None) => Ok(()),
    };
    txn.commit().unwrap();
    changed.is_ok()
}

/// Builds; `beside` runs at each question while writers may write.
fn build(catalog: &Arc<Catalog>, specs: &[IndexSpec], beside: impl FnMut()) -> Result<()> {
    let beside = RefCell::new(beside);
    let collection = catalog.ensure_collection(&ns()).unwrap();
    let check = || {
        if !collection.shared.metadata.is_locked_exclusive() {
            (beside.borrow_mut())();
        }
        Ok(())
    };
    catalog.create_indexes(&ns(), specs, &check).map(drop)
}

fn validate(catalog: &Arc<Catalog>) {
    let report = catalog.validate(&ns(), &|| Ok(())).unwrap();
    assert!(report.valid(), "{:?}", report.errors);
}

fn step() -> impl Strategy<Value = (i32, Option<Document>)> {
    let values = prop::collection::vec(0..30_i32, 0..3);
    (0..40, prop::option::weighted(0.8, (values, 0..60_i32)))
        .prop_map(|(id, new)| (id, new.map(|(a, u)| doc! { "_id": id, "a": a, "u": u })))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn index_built_beside_writers_agrees_with_the_documents(
        steps in prop::collection::vec(step(), 60..200),
        unique in any::<bool>(),
        has_primary_key in any::<bool>(),
    ) {
        let engine = Engine::temporary();
        let catalog = open(&engine);
        if has_primary_key {
            // A change of what is indexed moves the document.
            let options = doc! { "primaryKey": { "u": -1, "_id": 1 } };
            let options = RawDocumentBuf::try_from(&options).unwrap();
            let options = CollectionOptions::parse(&options).unwrap();
            catalog.create_collection(&ns(), &options, &|| Ok(())).unwrap();
        }
        catalog.ensure_collection(&ns()).unwrap();
        let (first, beside) = steps.split_at(40);
        for (id, new) in first {
            change(&catalog, *id, new.as_ref());
        }
        let specs = [
            spec(&doc! { "key": { "a": 1 }, "name": "a" }),
            spec(&doc! { "key": { "u": 1 }, "name": "u", "unique": unique, "sparse": true }),
        ];
        let dictionaries = engine.dictionaries().len();
        let mut left = beside.chunks(3);
        let built = build(&catalog, &specs, || {
            for (id, new) in left.next().into_iter().flatten() {
                change(&catalog, *id, new.as_ref());
            }
        });
        match built {
            Ok(()) => prop_assert_eq!(engine.dictionaries().len(), dictionaries + 2),
            Err(error) => {
                prop_assert_eq!(error.code(), Code::DUPLICATE_KEY);
                prop_assert!(unique);
                prop_assert_eq!(engine.dictionaries().len(), dictionaries);
            }
        }
        validate(&catalog);
        // Writers maintain what was built, and note nothing any more.
        for (id, new) in first {
            change(&catalog, *id, new.as_ref());
        }
        validate(&catalog);
    }
}

fn filled(count: i32) -> Arc<Catalog> {
    let catalog = open(&Engine::temporary());
    catalog.ensure_collection(&ns()).unwrap();
    for id in 0..count {
        assert!(change(&catalog, id, Some(&doc! { "_id": id, "u": id })));
    }
    catalog
}

#[test]
fn documents_that_trade_their_unique_keys_are_no_duplicates() {
    let catalog = filled(30);
    let unique = spec(&doc! { "key": { "u": 1 }, "name": "u", "unique": true });
    let mut traded = false;
    build(&catalog, &[unique], || {
        if !std::mem::replace(&mut traded, true) {
            for (id, u) in [(3, -1), (7, 3), (3, 7), (20, 100), (21, 20), (20, 21)] {
                assert!(change(&catalog, id, Some(&doc! { "_id": id, "u": u })));
            }
        }
    })
    .unwrap();
    validate(&catalog);
    assert!(!change(&catalog, 50, Some(&doc! { "_id": 50, "u": 7 })));
}

#[test]
fn duplicate_that_came_beside_the_build_fails_it() {
    let catalog = filled(30);
    let unique = spec(&doc! { "key": { "u": 1 }, "name": "u", "unique": true });
    let double = || {
        change(&catalog, 77, Some(&doc! { "_id": 77, "u": 5 }));
    };
    let error = build(&catalog, std::slice::from_ref(&unique), double).unwrap_err();
    assert_eq!(error.code(), Code::DUPLICATE_KEY);
    assert!(catalog.collection(&ns()).unwrap().indexes().is_empty());
    assert!(change(&catalog, 77, None));
    build(&catalog, &[unique], || ()).unwrap();
    validate(&catalog);
}

#[test]
fn interrupted_build_leaves_nothing_and_drop_ends_one() {
    let catalog = filled(30);
    let plain = [spec(&doc! { "key": { "u": 1 }, "name": "u" })];
    let stop = || Err(Error::new(Code::INTERRUPTED, "enough"));
    let error = catalog.create_indexes(&ns(), &plain, &stop).unwrap_err();
    assert_eq!(error.code(), Code::INTERRUPTED);
    assert!(change(&catalog, 1, None));
    validate(&catalog);
    let mut dropped = false;
    let error = build(&catalog, &plain, || {
        if !std::mem::replace(&mut dropped, true) {
            catalog.drop_collection(&ns(), &|| Ok(())).unwrap();
        }
    });
    assert_eq!(error.unwrap_err().code(), Code::INDEX_BUILD_ABORTED);
    assert!(catalog.collection(&ns()).is_none());
}
