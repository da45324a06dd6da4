//! The catalog against an engine in memory: what is written, dropped, renamed, counted, reopened.

use super::*;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use engine::Engine;
use errors::{Code, Result};
use indexkeys::{IndexChange, IndexSpec};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

mod ahead;
mod fast;
mod follow;
mod loads;
mod partitions;
mod primary_key;
mod statements;

fn open(engine: &Engine) -> Arc<Catalog> {
    let options = CatalogOptions::new(os::Os::real(), std::env::temp_dir());
    Catalog::open(engine.clone(), options).unwrap()
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

fn index(spec: &Document) -> IndexSpec {
    IndexSpec::parse(&raw(spec)).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of an interrupt check")]
fn never() -> Result<()> {
    Ok(())
}

fn build(catalog: &Arc<Catalog>, name: &str, spec: &Document) -> Result<CreatedIndexes> {
    catalog.create_indexes(&ns(name), &[index(spec)], &never)
}

fn insert(catalog: &Arc<Catalog>, name: &str, document: &Document) -> Result<()> {
    catalog.ensure_collection(&ns(name))?;
    let mut txn = catalog.begin(TxnKind::Statement);
    let collection = txn.open_for_write(&ns(name))?.unwrap();
    let result = txn.insert_document(&collection, &raw(document));
    txn.commit()?;
    result
}

fn check_valid(catalog: &Catalog, name: &str) -> ValidateReport {
    let report = catalog.validate(&ns(name), &never).unwrap();
    assert!(report.valid(), "{:?}", report.errors);
    report
}

#[test]
fn counts_and_indexes_survive_reopening() {
    let engine = Engine::temporary();
    let catalog = open(&engine);
    build(&catalog, "db.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    for i in 0..20 {
        insert(&catalog, "db.c", &doc! { "_id": i, "a": [i, i + 1] }).unwrap();
    }
    drop(catalog);
    let catalog = open(&engine);
    let collection = catalog.collection(&ns("db.c")).unwrap();
    assert_eq!(collection.count(), 20);
    assert!(collection.index("a_1").unwrap().multikey_parts() != 0);
    assert_eq!(check_valid(&catalog, "db.c").keys_per_index[1].1, 40);
    insert(&catalog, "db.c", &doc! { "_id": 99 }).unwrap();
    assert_eq!(catalog.collection(&ns("db.c")).unwrap().count(), 21);
}

#[test]
fn duplicate_keys_are_named_as_mongodb_names_them() {
    let catalog = open(&Engine::temporary());
    let unique = doc! { "key": { "a": 1, "b.c": -1 }, "name": "u", "unique": true };
    build(&catalog, "db.c", &unique).unwrap();
    insert(&catalog, "db.c", &doc! { "_id": 1, "a": "x", "b": { "c": 2 } }).unwrap();
    let error = insert(&catalog, "db.c", &doc! { "_id": 2, "a": "x", "b": { "c": 2.0 } });
    let error = error.unwrap_err();
    assert_eq!(error.code(), Code::DUPLICATE_KEY);
    assert_eq!(
        error.message(),
        "E11000 duplicate key error collection: db.c index: u dup key: { a: \"x\", b.c: 2.0 }"
    );
    assert_eq!(
        error.extra().unwrap(),
        &doc! { "keyPattern": { "a": 1, "b.c": -1 }, "keyValue": { "a": "x", "b.c": 2.0 } }
    );
    let error = insert(&catalog, "db.c", &doc! { "_id": 1 }).unwrap_err();
    assert_eq!(
        error.message(),
        "E11000 duplicate key error collection: db.c index: _id_ dup key: { _id: 1 }"
    );
    assert_eq!(catalog.collection(&ns("db.c")).unwrap().count(), 1);
    check_valid(&catalog, "db.c");
}

#[test]
fn building_a_unique_index_over_duplicates_leaves_nothing() {
    let catalog = open(&Engine::temporary());
    insert(&catalog, "db.c", &doc! { "_id": 1, "a": 5 }).unwrap();
    insert(&catalog, "db.c", &doc! { "_id": 2, "a": 5 }).unwrap();
    let unique = doc! { "key": { "a": 1 }, "name": "a_1", "unique": true };
    assert_eq!(build(&catalog, "db.c", &unique).unwrap_err().code(), Code::DUPLICATE_KEY);
    assert!(catalog.collection(&ns("db.c")).unwrap().indexes().is_empty());
    let plain = doc! { "key": { "a": 1 }, "name": "a_1" };
    let created = build(&catalog, "db.c", &plain).unwrap();
    assert_eq!((created.before, created.after), (1, 2));
    assert_eq!(build(&catalog, "db.c", &plain).unwrap().before, 2);
    check_valid(&catalog, "db.c");
}

#[test]
fn index_conflicts_have_mongodbs_codes() {
    let catalog = open(&Engine::temporary());
    build(&catalog, "db.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    let code = |spec: Document| build(&catalog, "db.c", &spec).unwrap_err().code();
    assert_eq!(code(doc! { "key": { "b": 1 }, "name": "a_1" }), Code::INDEX_KEY_SPECS_CONFLICT);
    assert_eq!(code(doc! { "key": { "a": 1 }, "name": "other" }), Code::INDEX_OPTIONS_CONFLICT);
    assert_eq!(
        code(doc! { "key": { "a": 1 }, "name": "a_1", "unique": true }),
        Code::INDEX_KEY_SPECS_CONFLICT
    );
    assert_eq!(
        code(doc! { "key": { "a": 1 }, "name": "a_1", "expireAfterSeconds": 5 }),
        Code::INDEX_OPTIONS_CONFLICT
    );
    build(&catalog, "db.c", &doc! { "key": { "a": 1 }, "name": "s", "sparse": true }).unwrap();
    for i in 0..61 {
        let field = format!("f{i}");
        build(&catalog, "db.c", &doc! { "key": { &field: 1 }, "name": &field }).unwrap();
    }
    assert_eq!(
        code(doc! { "key": { "z": 1 }, "name": "z" }),
        Code::CANNOT_CREATE_INDEX,
        "the 65th index"
    );
}

#[test]
fn specifications_that_cannot_be_honoured_are_refused() {
    for (spec, code) in [
        (doc! { "key": {}, "name": "x" }, 67),
        (doc! { "key": { "a": 0 }, "name": "x" }, 67),
        (doc! { "key": { "a": "geoHaystack" }, "name": "x" }, 67),
        (doc! { "key": { "a": "nonsense" }, "name": "x" }, 67),
        (doc! { "key": { "a": true }, "name": "x" }, 67),
        (doc! { "key": { "": 1 }, "name": "x" }, 67),
        (doc! { "key": { "a..b": 1 }, "name": "x" }, 67),
        (doc! { "key": { "$a": 1 }, "name": "x" }, 67),
        (doc! { "key": { "a.$**": 0 }, "name": "x" }, 67),
        (doc! { "key": { "a.$**.b": 1 }, "name": "x" }, 67),
        (doc! { "key": { "$**": "hashed" }, "name": "x" }, 67),
        (doc! { "key": { "$**": 1, "a": 1 }, "name": "x" }, 67),
        (doc! { "key": { "a.$**": 1, "b.$**": 1 }, "name": "x" }, 67),
        (doc! { "key": { "$**": 1 }, "name": "x", "unique": true }, 67),
        (doc! { "key": { "$**": 1 }, "name": "x", "sparse": true }, 67),
        (doc! { "key": { "$**": 1 }, "name": "x", "expireAfterSeconds": 1 }, 67),
        (doc! { "key": { "a": 1 }, "name": "x", "wildcardProjection": { "a": 1 } }, 2),
        (doc! { "key": { "a": 1 }, "name": "" }, 67),
        (doc! { "key": { "a": 1 }, "name": "_id_" }, 2),
        (doc! { "key": { "a": 1 } }, 9),
        (doc! { "name": "a" }, 9),
        (doc! { "key": 1, "name": "a" }, 14),
        (doc! { "key": { "a": 1 }, "name": "x", "foo": 1 }, 197),
        (doc! { "key": { "_id": 1 }, "name": "_id_", "sparse": true }, 197),
        (doc! { "key": { "a": 1, "b": 1 }, "name": "x", "expireAfterSeconds": 1 }, 67),
    ] {
        let error = IndexSpec::parse(&raw(&spec)).unwrap_err();
        assert_eq!(error.code().0, code, "{spec}: {error}");
    }
}

#[test]
fn databases_are_named_once_whatever_their_names_begin_with() {
    let catalog = open(&Engine::temporary());
    for name in ["a-b.x", "a.x", "a.y.z", "a.y", "a0.x", "ab.a/b", "b.x", "ab.c"] {
        insert(&catalog, name, &doc! { "_id": 1 }).unwrap();
    }
    assert_eq!(catalog.databases(), ["a", "a-b", "a0", "ab", "b"]);
    let error = insert(&catalog, "AB.x", &doc! { "_id": 1 }).unwrap_err();
    assert_eq!(error.code(), Code::DATABASE_DIFFER_CASE);
}

#[test]
fn dropping_and_renaming_move_the_documents() {
    let catalog = open(&Engine::temporary());
    insert(&catalog, "db.c", &doc! { "_id": 1, "a": 5 }).unwrap();
    build(&catalog, "db.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    insert(&catalog, "other.d", &doc! { "_id": 1 }).unwrap();
    let error = catalog.rename_collection(&ns("db.c"), &ns("other.d"), false, &never).unwrap_err();
    assert_eq!(error.code(), Code::NAMESPACE_EXISTS);
    catalog.rename_collection(&ns("db.c"), &ns("other.d"), true, &never).unwrap();
    assert_eq!(catalog.databases(), ["other"]);
    assert_eq!(catalog.collection(&ns("other.d")).unwrap().count(), 1);
    assert_eq!(check_valid(&catalog, "other.d").keys_per_index.len(), 2);
    let names = [IndexSelector::Name("a_1")];
    assert_eq!(catalog.drop_indexes(&ns("other.d"), &names, &never).unwrap(), 2);
    let error = catalog.drop_indexes(&ns("other.d"), &names, &never).unwrap_err();
    assert_eq!(error.message(), "index not found with name [a_1]");
    let old = catalog.collection(&ns("other.d")).unwrap();
    catalog.drop_collection(&ns("other.d"), &never).unwrap();
    assert!(old.is_dropped());
    assert!(catalog.databases().is_empty());
    let error = catalog.drop_collection(&ns("other.d"), &never).unwrap_err();
    assert_eq!(error.code(), Code::NAMESPACE_NOT_FOUND);
}

#[test]
fn hidden_and_ttl_options_change_and_show() {
    let catalog = open(&Engine::temporary());
    build(&catalog, "db.c", &doc! { "key": { "a": 1 }, "name": "a_1", "expireAfterSeconds": 10 })
        .unwrap();
    let change = IndexChange {
        hidden: Some(true),
        expire_after_seconds: Some(20),
        ..IndexChange::default()
    };
    let before =
        catalog.change_index(&ns("db.c"), IndexSelector::Name("a_1"), change, &never).unwrap();
    assert_eq!((before.hidden, before.expire_after_seconds), (Some(false), Some(10)));
    let collection = catalog.collection(&ns("db.c")).unwrap();
    let spec = collection.index("a_1").unwrap().spec();
    assert!(spec.hidden);
    assert_eq!(spec.shown.get_i32("expireAfterSeconds").unwrap(), 20);
}

#[test]
fn an_aborted_array_leaves_no_lost_multikey_mark() {
    let engine = Engine::temporary();
    let catalog = open(&engine);
    build(&catalog, "db.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    let mut aborted = catalog.begin(TxnKind::Statement);
    let collection = aborted.open_for_write(&ns("db.c")).unwrap().unwrap();
    aborted.insert_document(&collection, &raw(&doc! { "_id": 1, "a": [1] })).unwrap();
    insert(&catalog, "db.c", &doc! { "_id": 2, "a": [1] }).unwrap();
    aborted.abort();
    drop(catalog);
    let catalog = open(&engine);
    assert!(catalog.collection(&ns("db.c")).unwrap().index("a_1").unwrap().multikey_parts() != 0);
}

fn value() -> impl Strategy<Value = bson::Bson> {
    let leaf = prop_oneof![
        (0..4).prop_map(bson::Bson::Int32),
        (0..4).prop_map(|n| bson::Bson::Double(f64::from(n))),
        Just(bson::Bson::Null),
        "[ab]".prop_map(bson::Bson::String),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(bson::Bson::Array),
            prop::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|map| bson::Bson::Document(map.into_iter().collect())),
        ]
    })
}

#[expect(clippy::large_enum_variant, reason = "a few dozen live at a time")]
#[derive(Clone, Debug)]
enum Step {
    Put(i32, bson::Bson, bson::Bson),
    Delete(i32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..8, value(), value()).prop_map(|(id, a, b)| Step::Put(id, a, b)),
        1 => (0..8).prop_map(Step::Delete),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn indexes_agree_with_documents_after_any_changes(
        steps in prop::collection::vec(step(), 1..30),
        build_after in 0..30_usize,
        layout in 0_u8..3,
    ) {
        let catalog = open(&Engine::temporary());
        let specs = [
            doc! { "key": { "a": 1 }, "name": "a" },
            doc! { "key": { "a.b": -1, "b": 1 }, "name": "ab", "sparse": true },
            doc! { "key": { "b": 1 }, "name": "u", "unique": true, "sparse": true },
        ];
        let specs: Vec<IndexSpec> = specs.iter().map(index).collect();
        match layout {
            0 => drop(catalog.ensure_collection(&ns("db.c")).unwrap()),
            1 => primary_key::create(&catalog, "db.c", &doc! { "b": -1, "a.b": 1, "_id": 1 }),
            _ => partitions::create(&catalog, "db.c", &doc! { "b": 1, "_id": 1 }, &[0, 2]),
        }
        let mut model: BTreeMap<i32, Document> = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            if at == build_after {
                drop(catalog.create_indexes(&ns("db.c"), &specs, &never));
            }
            let mut txn = catalog.begin(TxnKind::Statement);
            let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
            let (Step::Put(id, ..) | Step::Delete(id)) = step;
            let key = collection.find_record_key(RawBsonRef::Int32(*id), |d, key| txn.get(d, key));
            let key = key.unwrap().unwrap_or_default();
            let old = txn.get_for_update(&collection, &key).unwrap();
            let old = old.as_ref().map(|old| RawDocument::from_bytes(&old[..]).unwrap());
            prop_assert_eq!(old.is_some(), model.contains_key(id));
            let (result, new) = match (step, old) {
                (Step::Put(_, a, b), old) => {
                    let new = doc! { "_id": id, "a": a.clone(), "b": b.clone() };
                    let result = match old {
                        Some(old) => txn.update_document(&collection, &key, old, &raw(&new), None),
                        None => txn.insert_document(&collection, &raw(&new)),
                    };
                    (result, Some(new))
                }
                (Step::Delete(_), Some(old)) => {
                    (txn.delete_document(&collection, &key, old), None)
                }
                (Step::Delete(_), None) => (Ok(()), None),
            };
            match (result, new) {
                (Ok(()), Some(new)) => { model.insert(*id, new); }
                (Ok(()), None) => { model.remove(id); }
                (Err(error), _) => {
                    let code = error.code();
                    prop_assert!(
                        code == Code::DUPLICATE_KEY
                            || code == Code::CANNOT_INDEX_PARALLEL_ARRAYS
                            || layout > 0 && code.0 == 17205,
                        "{}", error
                    );
                }
            }
            txn.commit().unwrap();
        }
        let report = check_valid(&catalog, "db.c");
        prop_assert_eq!(report.records, model.len() as u64);
        for expected in model.values() {
            let collection = catalog.collection(&ns("db.c")).unwrap();
            let expected = raw(expected);
            let key = collection.record_key(&expected).unwrap();
            let primary = collection.primary_of(&key);
            let held = catalog.snapshot().get(primary, &key).unwrap().unwrap();
            prop_assert_eq!(&held[..], expected.as_bytes());
        }
    }
}

#[test]
fn document_refused_by_an_index_leaves_nothing() {
    let catalog = open(&Engine::temporary());
    build(&catalog, "db.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    build(&catalog, "db.c", &doc! { "key": { "b": 1 }, "name": "b_1" }).unwrap();
    let key_beyond_the_engine = doc! { "_id": 1, "a": 5, "b": "x".repeat(2 << 20) };
    insert(&catalog, "db.c", &key_beyond_the_engine).unwrap_err();
    insert(&catalog, "db.c", &doc! { "_id": 3, "a": 1 }).unwrap();
    assert_eq!(catalog.collection(&ns("db.c")).unwrap().count(), 1);
    assert_eq!(check_valid(&catalog, "db.c").records, 1);
}

/// Somebody else has filled the disk beyond the red zone before the first start: the catalog opens, and
/// says why it takes nothing.
#[test]
fn first_start_beyond_the_red_zone_reads_and_refuses_writes() {
    let sim = os::sim::SimOs::new(1);
    let capacity_bytes = 256 << 20;
    sim.set_faults(os::sim::Faults { capacity_bytes, ..os::sim::Faults::default() });
    let os = os::Os { vfs: sim.os().vfs, ..os::Os::real() };
    os.vfs.create_dir_all(std::path::Path::new("/other")).unwrap();
    let path = std::path::Path::new("/other/ballast");
    let ballast = os.vfs.open(path, os::OpenOptions::create()).unwrap();
    // Five percent are the red zone.
    for mib in 0..256 - 6 {
        ballast.write_all_at(&vec![1; 1 << 20], mib << 20).unwrap();
    }
    ballast.sync_all().unwrap();
    let options = || engine::Options {
        cache_size: 64 << 20,
        fs_redzone_percent: 5,
        background: engine::Background::Manual,
        ..engine::Options::new("/data")
    };
    let engine = Engine::open(os.clone(), Arc::new(telemetry::Registry::new()), options()).unwrap();
    let catalog = open(&engine);
    let side = catalog.side_dictionary(b"s").unwrap();
    assert!(catalog.collection(&ns("db.c")).is_none());
    let error = insert(&catalog, "db.c", &doc! { "_id": 1 }).unwrap_err();
    assert_eq!(error.code().name(), "OutOfDiskSpace");
    drop((catalog, engine));
    drop(ballast);
    os.vfs.remove_file(path).unwrap();
    let engine = Engine::open(os, Arc::new(telemetry::Registry::new()), options()).unwrap();
    let catalog = open(&engine);
    assert_eq!(catalog.side_dictionary(b"s").unwrap(), side);
    insert(&catalog, "db.c", &doc! { "_id": 1 }).unwrap();
}

/// A full disk fails the wait for the log after the writes are visible: they are no failure here (the
/// service waits for the disk, and tells the client), and what the catalog holds in memory follows what
/// the engine holds.
#[test]
fn commit_that_the_disk_fails_late_still_counts() {
    let sim = os::sim::SimOs::new(1);
    let os = os::Os { vfs: sim.os().vfs, ..os::Os::real() };
    let mut options = engine::Options::new("/data");
    options.cache_size = 64 << 20;
    options.fs_redzone_percent = 0;
    options.log_flush_period = std::time::Duration::ZERO;
    options.background = engine::Background::ManualThreads;
    let engine = Engine::open(os, Arc::new(telemetry::Registry::new()), options).unwrap();
    let catalog = open(&engine);
    insert(&catalog, "db.c", &doc! { "_id": 1 }).unwrap();
    // The next call finds no space: it is of the commit's own wait.
    let on_full_disk = |change: &dyn Fn()| {
        let before = sim.syscalls();
        sim.fault_at(before + 1, os::sim::Fault::NoSpace);
        change();
        assert!(sim.syscalls() > before, "the commit has not waited for the disk");
    };

    on_full_disk(&|| insert(&catalog, "db.c", &doc! { "_id": 2 }).unwrap());
    let collection = catalog.collection(&ns("db.c")).unwrap();
    assert_eq!(collection.count(), 2);
    insert(&catalog, "db.c", &doc! { "_id": 3 }).unwrap();
    assert_eq!(collection.count(), 3);

    on_full_disk(&|| {
        catalog.rename_collection(&ns("db.c"), &ns("db.d"), false, &never).unwrap();
    });
    assert!(catalog.collection(&ns("db.c")).is_none());
    on_full_disk(&|| {
        catalog.ensure_collection(&ns("db.e")).unwrap();
    });
    insert(&catalog, "db.e", &doc! { "_id": 1 }).unwrap();
    on_full_disk(&|| {
        catalog.drop_collection(&ns("db.e"), &never).unwrap();
    });
    insert(&catalog, "db.e", &doc! { "_id": 2 }).unwrap();
    engine.sync().unwrap();

    for catalog in [Arc::clone(&catalog), open(&engine)] {
        assert_eq!(catalog.collection(&ns("db.d")).unwrap().count(), 3);
        assert_eq!(catalog.collection(&ns("db.e")).unwrap().count(), 1);
        check_valid(&catalog, "db.d");
        check_valid(&catalog, "db.e");
    }
}
