//! Inserts, updates, deletes and findAndModify as clients see them.

use super::*;

pub(super) fn delete_all(room: &Room, filter: Document, only_one: bool) -> u64 {
    let filter = raw(&filter);
    let statement = DeleteStatement { filter: &filter, only_one, hint: None, collation: None };
    let request = DeleteRequest { deletes: &[statement], ordered: true, let_variables: None };
    delete(&mut room.ctx(), &room.ns, &request).unwrap().n
}

#[test]
fn missing_ids_are_made_and_come_first() {
    let room = Room::with(&[doc! { "a": 1 }, doc! { "a": 2, "_id": 5 }]);
    let found = room.find(doc! {});
    assert_eq!(found.len(), 2);
    for document in found {
        assert_eq!(document.keys().next().unwrap(), "_id");
    }
}

#[test]
fn an_ordered_batch_stops_at_its_error_and_an_unordered_one_goes_on() {
    let documents = [doc! { "_id": 1 }, doc! { "_id": 1 }, doc! { "_id": [2] }, doc! { "_id": 3 }];
    let raws: Vec<RawDocumentBuf> = documents.iter().map(raw).collect();
    let refs: Vec<&bson::RawDocument> = raws.iter().map(AsRef::as_ref).collect();
    for (ordered, n, failed) in [(true, 1, vec![1]), (false, 2, vec![1, 2])] {
        let room = Room::new();
        let request = InsertRequest { documents: &refs, ordered };
        let result = insert(&mut room.ctx(), &room.ns, &request).unwrap();
        assert_eq!(result.n, n);
        let indexes: Vec<usize> = result.errors.iter().map(|error| error.index).collect();
        assert_eq!(indexes, failed);
        assert_eq!(result.errors[0].error.code(), Code::DUPLICATE_KEY);
        assert_eq!(room.find(doc! {}).len() as u64, n);
        room.check_valid();
    }
}

#[test]
fn a_large_batch_goes_in_several_transactions() {
    let documents: Vec<Document> = (0..2500).map(|i| doc! { "_id": i, "a": i }).collect();
    let room = Room::with(&documents);
    assert_eq!(room.catalog.collection(&room.ns).unwrap().count(), 2500);
    assert_eq!(delete_all(&room, doc! { "a": { "$gte": 100 } }, false), 2400);
    assert_eq!(room.find(doc! {}).len(), 100);
    room.check_valid();
}

#[test]
fn deletes_take_one_or_all() {
    let documents: Vec<Document> = (0..10).map(|i| doc! { "_id": i, "a": i % 2 }).collect();
    let room = Room::with(&documents);
    room.index(doc! { "key": { "a": 1 } });
    assert_eq!(delete_all(&room, doc! { "a": 1 }, true), 1);
    assert_eq!(delete_all(&room, doc! { "a": 1 }, false), 4);
    assert_eq!(delete_all(&room, doc! { "a": 1 }, false), 0);
    assert_eq!(room.catalog.collection(&room.ns).unwrap().count(), 5);
    room.check_valid();
}

#[test]
fn system_collections_are_refused() {
    let room = Room::new();
    let ns = Namespace::parse("db.system.foo").unwrap();
    let request = InsertRequest { documents: &[], ordered: true };
    let error = insert(&mut room.ctx(), &ns, &request).unwrap_err();
    assert_eq!(error.code(), Code::INVALID_NAMESPACE);
}

pub(super) struct Ask {
    filter: Document,
    update: Bson,
    multi: bool,
    upsert: bool,
}

pub(super) fn ask(filter: Document, update: Document) -> Ask {
    Ask { filter, update: Bson::Document(update), multi: false, upsert: false }
}

/// A statement without options.
pub(super) fn plain<'a>(
    filter: &'a bson::RawDocument,
    update: RawBsonRef<'a>,
) -> UpdateStatement<'a> {
    UpdateStatement {
        filter,
        update,
        multi: false,
        upsert: false,
        array_filters: None,
        hint: None,
        collation: None,
        constants: None,
        sort: None,
        is_delta: false,
    }
}

impl Ask {
    pub(super) fn multi(mut self) -> Self {
        self.multi = true;
        self
    }

    pub(super) fn upsert(mut self) -> Self {
        self.upsert = true;
        self
    }

    pub(super) fn run(self, room: &Room) -> UpdateResult {
        let filter = raw(&self.filter);
        let update = bson::RawBson::try_from(self.update).unwrap();
        let statement = UpdateStatement {
            multi: self.multi,
            upsert: self.upsert,
            ..plain(&filter, update.as_raw_bson_ref())
        };
        let request = UpdateRequest { updates: &[statement], ordered: true, let_variables: None };
        update_of(room, &request)
    }
}

fn update_of(room: &Room, request: &UpdateRequest<'_>) -> UpdateResult {
    update(&mut room.ctx(), &room.ns, request).unwrap()
}

#[test]
fn updates_change_one_or_all_and_count_what_they_did() {
    let documents: Vec<Document> = (0..10).map(|i| doc! { "_id": i, "a": i % 2, "n": 0 }).collect();
    let room = Room::with(&documents);
    room.index(doc! { "key": { "a": 1, "n": 1 } });
    let done = ask(doc! { "a": 1 }, doc! { "$inc": { "n": 1 } }).run(&room);
    assert_eq!((done.n, done.n_modified), (1, 1));
    let done = ask(doc! { "a": 1 }, doc! { "$set": { "n": 1 } }).multi().run(&room);
    assert_eq!((done.n, done.n_modified), (5, 4));
    let done = ask(doc! { "n": 7 }, doc! { "$set": { "n": 1 } }).multi().run(&room);
    assert_eq!((done.n, done.n_modified), (0, 0));
    assert_eq!(room.find(doc! { "a": 1, "n": 1 }).len(), 5);
    room.check_valid();
}

#[test]
fn an_update_by_the_scanned_key_meets_each_document_once() {
    let documents: Vec<Document> = (0..50).map(|i| doc! { "_id": i, "n": i }).collect();
    let room = Room::with(&documents);
    room.index(doc! { "key": { "n": 1 } });
    let done = ask(doc! { "n": { "$gte": 0 } }, doc! { "$inc": { "n": 10 } }).multi().run(&room);
    assert_eq!((done.n, done.n_modified), (50, 50));
    let sum: i32 = room.find(doc! {}).iter().map(|d| d.get_i32("n").unwrap()).sum();
    assert_eq!(sum, 50 * 49 / 2 + 500);
    room.check_valid();
}

#[test]
fn upserts_insert_what_the_filter_pins_and_then_update_it() {
    let room = Room::new();
    let done = ask(doc! { "a": 5 }, doc! { "$inc": { "n": 1 } }).upsert().run(&room);
    assert_eq!((done.n, done.n_modified, done.upserted.len()), (1, 0, 1));
    let done = ask(doc! { "a": 5 }, doc! { "$inc": { "n": 1 } }).upsert().run(&room);
    assert_eq!((done.n, done.n_modified, done.upserted.len()), (1, 1, 0));
    let found = room.find(doc! {});
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].get_i32("a").unwrap(), found[0].get_i32("n").unwrap()), (5, 2));
    let done = ask(doc! { "_id": "x" }, doc! { "b": 1 }).upsert().run(&room);
    assert_eq!(done.upserted, [(0, bson::RawBson::String("x".to_owned()))]);
}

#[test]
fn a_duplicate_made_by_an_update_is_a_write_error() {
    let room = Room::with(&[doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 2 }]);
    room.index(doc! { "key": { "a": 1 }, "unique": true });
    let done = ask(doc! { "_id": 1 }, doc! { "$set": { "a": 2 } }).run(&room);
    assert_eq!(done.errors[0].error.code(), Code::DUPLICATE_KEY);
    let done = ask(doc! { "_id": 3, "a": 2 }, doc! { "$set": { "b": 2 } }).upsert().run(&room);
    assert_eq!(done.errors[0].error.code(), Code::DUPLICATE_KEY);
    room.check_valid();
}

#[test]
fn find_and_modify_gives_the_document_before_or_after() {
    let documents: Vec<Document> = (0..5).map(|i| doc! { "_id": i, "n": 10 - i }).collect();
    let room = Room::with(&documents);
    let (filter, sort, inc, fields) = (
        raw(&doc! { "n": { "$gt": 0 } }),
        raw(&doc! { "n": 1 }),
        raw(&doc! { "$inc": { "n": 100 } }),
        raw(&doc! { "n": 1, "_id": 0 }),
    );
    let request = FindAndModifyRequest {
        filter: Some(&filter),
        sort: Some(&sort),
        update: Some(RawBsonRef::Document(&inc)),
        projection: Some(&fields),
        ..FindAndModifyRequest::default()
    };
    let run = |request: &FindAndModifyRequest<'_>| {
        find_and_modify(&mut room.ctx(), &room.ns, request).unwrap()
    };
    let show = |result: &FindAndModifyResult| {
        result.value.as_deref().map(|value| Document::try_from(value).unwrap())
    };
    let result = run(&request);
    assert_eq!(show(&result), Some(doc! { "n": 6 }));
    assert_eq!((result.n, result.updated_existing), (1, Some(true)));
    let result = run(&FindAndModifyRequest { return_new: true, ..request });
    assert_eq!(show(&result), Some(doc! { "n": 107 }));
    let remove = FindAndModifyRequest { remove: true, update: None, projection: None, ..request };
    let result = run(&remove);
    assert_eq!(show(&result), Some(doc! { "_id": 2, "n": 8 }));
    assert_eq!((result.n, result.updated_existing), (1, None));
    let none = raw(&doc! { "z": 1 });
    let upsert = FindAndModifyRequest { filter: Some(&none), upsert: true, ..request };
    let result = run(&FindAndModifyRequest { return_new: true, ..upsert });
    assert_eq!(show(&result), Some(doc! { "n": 100 }));
    assert!(result.upserted.is_some());
    assert_eq!(
        run(&FindAndModifyRequest {
            upsert: false,
            filter: Some(&raw(&doc! { "z": 9 })),
            ..request
        })
        .value,
        None
    );
    room.check_valid();
}

#[test]
fn covered_queries_fetch_nothing_but_documents_with_nulls() {
    let documents: Vec<Document> = (0..20)
        .map(|i| {
            if i == 7 {
                doc! { "_id": i, "a": 3 }
            } else {
                doc! { "_id": i, "a": i % 5, "b": i }
            }
        })
        .collect();
    let room = Room::with(&documents);
    room.index(doc! { "key": { "a": 1, "b": 1 } });
    let (filter, fields) = (raw(&doc! { "a": 3 }), raw(&doc! { "b": 1, "_id": 0 }));
    let request =
        FindRequest { filter: Some(&filter), projection: Some(&fields), ..FindRequest::default() };
    let found = room.find_with(&request).unwrap();
    let expected = [doc! {}, doc! { "b": 3 }, doc! { "b": 8 }, doc! { "b": 13 }, doc! { "b": 18 }];
    assert_eq!(found, expected);
    let explained =
        explain_find(&mut room.ctx(), &room.ns, &request, Verbosity::ExecutionStats).unwrap();
    let explained = Document::try_from(&*explained).unwrap();
    assert_eq!(stages(&explained), ["PROJECTION_COVERED", "IXSCAN"]);
    let stats = explained.get_document("executionStats").unwrap();
    assert_eq!(stats.get_i32("totalDocsExamined").unwrap(), 1);
}

#[test]
fn concurrent_increments_and_upserts_lose_nothing() {
    let room = Room::new();
    room.index(doc! { "key": { "k": 1 }, "unique": true });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for i in 0..50 {
                    let done = ask(doc! { "k": i % 5 }, doc! { "$inc": { "n": 1 } }).upsert();
                    let done = done.run(&room);
                    assert!(done.errors.is_empty(), "{:?}", done.errors);
                    assert_eq!(done.n, 1);
                }
            });
        }
    });
    let found = room.find(doc! {});
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|document| document.get_i32("n").unwrap() == 40), "{found:?}");
    room.check_valid();
}

#[test]
fn an_update_of_an_element_reaches_indexes_that_pass_through_its_array() {
    let room = Room::with(&[doc! { "_id": 1, "a": [{ "c": 0 }] }]);
    room.index(doc! { "key": { "a.c": 1 } });
    let done = ask(doc! { "_id": 1 }, doc! { "$set": { "a.0": 7 } }).run(&room);
    assert_eq!(done.n_modified, 1);
    room.check_valid();
}

pub(super) fn some_update() -> impl Strategy<Value = Document> {
    let value = || {
        prop_oneof![
            (0..4).prop_map(Bson::Int32),
            Just(Bson::Null),
            prop::collection::vec(0..4, 0..3)
                .prop_map(|v| Bson::Array(v.into_iter().map(Bson::Int32).collect())),
            (0..4).prop_map(|n| Bson::Document(doc! { "c": n })),
            prop::collection::vec(0..4, 0..3).prop_map(|v| Bson::Array(
                v.into_iter().map(|n| Bson::Document(doc! { "c": n })).collect()
            )),
        ]
    };
    let path =
        || prop_oneof![Just("a"), Just("a.0"), Just("a.c"), Just("a.0.c"), Just("n"), Just("z")];
    prop_oneof![
        4 => (path(), value()).prop_map(|(p, v)| doc! { "$set": { p: v } }),
        2 => path().prop_map(|p| doc! { "$unset": { p: 1 } }),
        1 => (path(), 0..4).prop_map(|(p, n)| doc! { "$inc": { p: n } }),
        1 => (path(), value()).prop_map(|(p, v)| doc! { "$push": { p: v } }),
        1 => (path(), value()).prop_map(|(p, v)| doc! { "$pull": { p: v } }),
        1 => Just(doc! { "$rename": { "a": "n" } }),
        1 => Just(doc! { "$set": { "a.$[].c": 3 } }),
        1 => value().prop_map(|v| doc! { "a": v }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn indexes_follow_any_update(
        updates in prop::collection::vec((0..6, some_update(), any::<bool>(), any::<bool>()), 1..25),
    ) {
        let room = Room::new();
        room.index(doc! { "key": { "a": 1 } });
        room.index(doc! { "key": { "a.c": 1, "n": -1 }, "sparse": true });
        room.index(doc! { "key": { "a.0": 1 } });
        room.index(doc! { "key": { "n": 1 }, "unique": true, "sparse": true, "name": "u" });
        room.index(doc! { "key": { "n": -1 }, "clustering": true });
        let mut upserted = 0;
        for (id, update, multi, by_index) in updates {
            let multi = multi && update.keys().all(|key| key.starts_with('$'));
            let filter = if by_index { doc! { "a": id } } else { doc! { "_id": id } };
            let mut statement = ask(filter, update);
            if multi {
                statement = statement.multi();
            }
            if !by_index {
                statement = statement.upsert();
            }
            upserted += statement.run(&room).upserted.len() as u64;
        }
        let count = room.catalog.collection(&room.ns).unwrap().count();
        prop_assert_eq!(count, upserted);
        room.check_valid();
    }
}

#[test]
fn documents_expire_by_their_dates_only() {
    let now = os::Os::real().clock.wall_ms();
    let date = |seconds_ago: i64| bson::DateTime::from_millis(now - seconds_ago * 1000);
    let room = Room::with(&[
        doc! { "_id": 1, "at": date(100) },
        doc! { "_id": 2, "at": date(5) },
        doc! { "_id": 3, "at": "long ago" },
        doc! { "_id": 4 },
        doc! { "_id": 5, "at": [date(5), date(100)] },
        doc! { "_id": 6, "at": 0 },
    ]);
    room.index(doc! { "key": { "at": 1 }, "expireAfterSeconds": 60 });
    let never: Arc<dyn Interrupt> = Arc::new(Uninterrupted);
    assert_eq!(expire_documents(&room.catalog, &never).unwrap(), 2);
    let mut left: Vec<i32> = room.find(doc! {}).iter().map(|d| d.get_i32("_id").unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, [2, 3, 4, 6]);
    room.check_valid();
}

#[test]
fn the_monitor_expires_by_itself_and_ends_when_dropped() {
    let now = os::Os::real().clock.wall_ms();
    let room = Room::with(&[doc! { "_id": 1, "at": bson::DateTime::from_millis(now - 5000) }]);
    room.index(doc! { "key": { "at": 1 }, "expireAfterSeconds": 1 });
    let (told, passes) = std::sync::mpsc::channel();
    let period = std::time::Duration::from_millis(1);
    let monitor = TtlMonitor::start(&room.catalog, &Arc::default(), period, move |pass| {
        let _sent = told.send(pass.unwrap());
    })
    .unwrap();
    assert_eq!(passes.recv().unwrap(), 1);
    drop(monitor);
    assert!(passes.iter().all(|deleted| deleted == 0));
}

#[test]
fn partial_indexes_hold_and_serve_only_what_their_filter_means() {
    let documents: Vec<Document> =
        (0..20).map(|i| doc! { "_id": i, "a": i % 4, "k": i / 4 }).collect();
    let room = Room::with(&documents);
    room.index(doc! { "key": { "k": 1 }, "partialFilterExpression": { "a": { "$gte": 3 } } });
    let plan = |filter: Document| stages(&room.explain(filter, doc! {}));
    assert_eq!(plan(doc! { "k": 2, "a": 3 }), ["FETCH", "IXSCAN"]);
    assert_eq!(plan(doc! { "k": 2, "a": { "$gt": 3 } }), ["FETCH", "IXSCAN"]);
    assert_eq!(plan(doc! { "k": 2 }), ["COLLSCAN"]);
    assert_eq!(plan(doc! { "k": 2, "a": { "$gte": 2 } }), ["COLLSCAN"]);
    assert_eq!(room.find(doc! { "k": 2, "a": 3 }).len(), 1);
    ask(doc! { "_id": 0 }, doc! { "$set": { "a": 9 } }).run(&room);
    assert_eq!(room.find(doc! { "k": 0, "a": { "$gte": 3 } }).len(), 2);
    let report = room.catalog.validate(&room.ns, &|| Ok(())).unwrap();
    assert_eq!(report.keys_per_index[1].1, 6);
    room.check_valid();
}

#[test]
fn a_full_disk_is_an_error_of_the_statements_that_find_no_room() {
    let sim = os::sim::SimOs::new(1);
    sim.set_faults(os::sim::Faults { capacity_bytes: 64 << 20, ..os::sim::Faults::default() });
    let os = os::Os { vfs: sim.os().vfs, ..os::Os::real() };
    let mut options = engine::Options::new("/data");
    options.cache_size = 64 << 20;
    options.background = engine::Background::ManualThreads;
    let engine = Engine::open(os, Arc::new(telemetry::Registry::new()), options).unwrap();
    let options = CatalogOptions::new(os::Os::real(), std::env::temp_dir());
    let catalog = Catalog::open(engine, options).unwrap();
    let room = Room { catalog, ns: Namespace::parse("db.c").unwrap() };
    let text = |seed: i32| -> String {
        // Not to be compressed.
        let mut state = seed as u64 + 1;
        let letter = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(32 + (state >> 58) as u8)
        };
        (0..1 << 20).map(letter).collect()
    };
    let codes = |errors: &[WriteError]| -> Vec<(usize, Code)> {
        errors.iter().map(|error| (error.index, error.error.code())).collect()
    };
    let full = Code::OUT_OF_DISK_SPACE;
    let mut count = 0;
    let errors = loop {
        assert!(count < 64, "the disk never fills");
        let result = room.insert(&[doc! { "_id": count, "text": text(count) }]);
        if !result.errors.is_empty() {
            assert_eq!(result.n, 0);
            break result.errors;
        }
        count += 1;
    };
    assert!(count > 1, "nothing fits");
    assert_eq!(codes(&errors), [(0, full)]);
    let batch: Vec<_> = (100..103).map(|id| raw(&doc! { "_id": id, "text": text(id) })).collect();
    let documents: Vec<&bson::RawDocument> = batch.iter().map(AsRef::as_ref).collect();
    for (ordered, failed) in [(true, 1), (false, 3)] {
        let request = InsertRequest { documents: &documents, ordered };
        let result = insert(&mut room.ctx(), &room.ns, &request).unwrap();
        assert_eq!(result.n, 0);
        let expected: Vec<_> = (0..failed).map(|index| (index, full)).collect();
        assert_eq!(codes(&result.errors), expected);
    }
    let (filter, change) = (raw(&doc! { "_id": 0 }), raw(&doc! { "$set": { "more": text(7) } }));
    let statement = || plain(&filter, RawBsonRef::Document(&change));
    let request =
        UpdateRequest { updates: &[statement(), statement()], ordered: false, let_variables: None };
    let result = update(&mut room.ctx(), &room.ns, &request).unwrap();
    assert_eq!((result.n, codes(&result.errors)), (0, vec![(0, full), (1, full)]));
    assert_eq!(room.find(doc! {}).len(), count as usize);
    room.check_valid();
}
