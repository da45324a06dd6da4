//! A catalog that follows another one's commits, against one that is opened anew.

use super::*;
use crate::data::txn::TxnKind;
use engine::{DictionaryId, HistoryOperation, HistoryOptions, HistoryTail};
use std::time::Duration;

/// Two catalogs over one engine: what the first writes, the second reads from the history.
struct Pair {
    engine: Engine,
    writer: Arc<Catalog>,
    reader: Arc<Catalog>,
    follower: Follower,
    tail: HistoryTail,
}

impl Pair {
    fn new() -> Self {
        let kept = HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO };
        let engine = Engine::temporary_with(|options| options.history = Some(kept));
        let writer = open(&engine);
        let reader = following(&engine);
        engine.sync().unwrap();
        let history = engine.history().unwrap();
        let tail = history.read_after(history.durable_time()).unwrap();
        let follower = Follower::new(&reader);
        Self { engine, writer, reader, follower, tail }
    }

    /// Takes over what was written; says how many commits changed names.
    fn catch_up(&mut self) -> usize {
        self.engine.sync().unwrap();
        let mut changed = 0;
        while let Some(commit) = self.tail.next().unwrap() {
            let mut changes = Changes::default();
            let mut operations = commit.operations();
            while let Some(operation) = operations.next().unwrap() {
                let (dictionary, key, value) = match operation {
                    HistoryOperation::Put { dictionary, key, value } => {
                        (dictionary, key, Some(value))
                    }
                    HistoryOperation::Delete { dictionary, key } => (dictionary, key, None),
                    HistoryOperation::Update { .. } | HistoryOperation::Note { .. } => continue,
                };
                // As whoever tells it: what it does not follow it is not told.
                if self.follower.follows(dictionary) {
                    self.follower.read(&mut changes, dictionary, key, value).unwrap();
                }
            }
            changed += usize::from(changes.changes_names());
            self.follower.before_visible(&changes);
            self.follower.after_visible(changes, commit.timestamp).unwrap();
        }
        changed
    }

    fn check(&mut self) {
        self.catch_up();
        assert_eq!(shown(&self.reader), shown(&open(&self.engine)));
        assert_eq!(shown(&self.reader), shown(&self.writer));
    }
}

fn following(engine: &Engine) -> Arc<Catalog> {
    let options = CatalogOptions::new(os::Os::real(), std::env::temp_dir());
    Catalog::following(engine.clone(), options).unwrap()
}

#[test]
fn who_follows_writes_nothing() {
    let engine = Engine::temporary();
    let catalog = following(&engine);
    assert!(catalog.databases().is_empty());
    assert!(catalog.find_side_dictionary(SESSION_RECORDS).unwrap().is_none());
    assert_eq!(engine.visible().timestamp(), engine::Timestamp(0));
    catalog.take_over().unwrap();
    let written = engine.visible().timestamp();
    assert!(written > engine::Timestamp(0));
    catalog.take_over().unwrap();
    assert_eq!(engine.visible().timestamp(), written, "there was nothing more to do");
}

#[test]
fn changes_of_users_are_counted_by_who_writes_and_by_who_follows() {
    let mut pair = Pair::new();
    let mut step = |what: &str, changes: bool, act: &dyn Fn(&Arc<Catalog>)| {
        let counts = |pair: &Pair| [pair.writer.account_changes(), pair.reader.account_changes()];
        let [writer, reader] = counts(&pair);
        act(&pair.writer);
        pair.catch_up();
        let [writer_now, reader_now] = counts(&pair);
        assert_eq!((writer_now > writer, reader_now > reader), (changes, changes), "{what}");
    };
    let id = |at: i32| doc! { "_id": format!("admin.{at}") };
    step("another collection", false, &|catalog| drop(insert(catalog, "db.c", &id(1))));
    for name in ["admin.system.users", "admin.system.roles"] {
        step(name, true, &|catalog| {
            catalog.ensure_system_collection(&ns(name)).unwrap();
            insert(catalog, name, &id(1)).unwrap();
        });
        step("a second document", true, &|catalog| drop(insert(catalog, name, &id(2))));
    }
    step("of the same name elsewhere", false, &|catalog| {
        drop(insert(catalog, "db.system.users", &id(1)));
    });
    let before = pair.reader.account_changes();
    Follower::again(&pair.reader).unwrap();
    assert!(pair.reader.account_changes() > before, "what was known may have been taken back");
}

#[test]
fn who_takes_over_ends_what_others_began() {
    let mut pair = Pair::new();
    insert(&pair.writer, "db.a", &doc! { "_id": 1, "f0": 1 }).unwrap();
    insert(&pair.writer, "db.other", &doc! { "_id": 1 }).unwrap();
    let temporary = format!("db.{TEMPORARY_PREFIX}1");
    insert(&pair.writer, &temporary, &doc! { "_id": 1 }).unwrap();
    let mut txn = pair.engine.begin(engine::TxnOptions::default());
    let made = txn.create_dictionary(engine::DictionaryOptions::default()).unwrap();
    txn.put(DictionaryId::ROOT, &metadata::records::building_key(made), &[]).unwrap();
    txn.commit(engine::Durability::Buffered).unwrap().visible();
    pair.catch_up();
    assert!(pair.reader.collection(&ns(&temporary)).is_some());
    // The reader is the writer from here on.
    let Pair { engine, reader, follower, .. } = pair;
    drop(follower);
    reader.take_over().unwrap();
    assert!(reader.collection(&ns(&temporary)).is_none());
    assert!(metadata::records::unfinished(&engine.snapshot()).unwrap().is_empty());
    assert!(reader.collection(&ns("db.other")).is_some());
    insert(&reader, "db.new", &doc! { "_id": 1 }).unwrap();
    insert(&reader, "db.a", &doc! { "_id": 2 }).unwrap();
    assert_eq!(shown(&reader), shown(&open(&engine)));
}

/// Everything that a catalog knows, but for what only clients of one server make (statistics, locks).
fn shown(catalog: &Catalog) -> Vec<String> {
    shown_of(catalog, |_| true)
}

/// The same, as if collections had no other indexes than these.
fn shown_of(catalog: &Catalog, is_shown: fn(&Index) -> bool) -> Vec<String> {
    let namespaces = catalog.namespaces.read();
    let show = |(name, collection): (&String, &Arc<Collection>)| {
        let of = |collection: &Collection| -> Vec<Arc<Index>> {
            collection.indexes.iter().filter(|index| is_shown(index)).cloned().collect()
        };
        let own = of(collection);
        let indexes: Vec<_> = own
            .iter()
            .map(|index| (&index.spec.shown, index.dictionary, index.multikey_parts()))
            .collect();
        let stores = collection.stores().iter();
        let stores: Vec<_> = stores
            .map(|store| {
                let parts = of(store).into_iter().map(|index| index.dictionary.0);
                (store.number, store.primary, parts.collect::<Vec<_>>(), store.count())
            })
            .collect();
        let counts = (collection.count(), collection.data_size(), stores);
        format!(
            "{name} {} {} {} {:?} {:?} {:?} {} {indexes:?} {counts:?}",
            collection.namespace,
            collection.uuid,
            collection.number,
            collection.options.shown,
            collection.primary,
            collection.order,
            collection.primary_name()
        )
    };
    namespaces.iter().map(show).collect()
}

const NAMES: [&str; 4] = ["db.a", "db.b", "db.c", "other.a"];

#[derive(Clone, Debug)]
enum Step {
    Create(usize, u8),
    Insert(usize, i32, bool),
    Delete(usize, i32),
    Build(usize, u8),
    DropIndexes(usize, u8),
    Hide(usize, u8, bool),
    Rename(usize, usize, bool),
    Drop(usize),
    DropDatabase(bool),
    Cap(usize),
    AddPartition(usize),
    DropPartition(usize, u64),
    Validate(usize, i32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..NAMES.len();
    let step = prop_oneof![
        3 => (name.clone(), 0_u8..6).prop_map(|(n, kind)| Step::Create(n, kind)),
        8 => (name.clone(), 0..20, any::<bool>()).prop_map(|(n, id, array)| Step::Insert(n, id, array)),
        3 => (name.clone(), 0..20).prop_map(|(n, id)| Step::Delete(n, id)),
        4 => (name.clone(), 0_u8..3).prop_map(|(n, which)| Step::Build(n, which)),
        1 => (name.clone(), 0_u8..4).prop_map(|(n, which)| Step::DropIndexes(n, which)),
        2 => (name.clone(), 0_u8..3, any::<bool>()).prop_map(|(n, which, on)| Step::Hide(n, which, on)),
        3 => (name.clone(), name.clone(), any::<bool>()).prop_map(|(a, b, over)| Step::Rename(a, b, over)),
        2 => name.clone().prop_map(Step::Drop),
        1 => any::<bool>().prop_map(Step::DropDatabase),
        1 => name.clone().prop_map(Step::Cap),
        3 => name.clone().prop_map(Step::AddPartition),
        2 => (name.clone(), 0_u64..4).prop_map(|(n, id)| Step::DropPartition(n, id)),
        2 => (name, 0..5).prop_map(|(n, level)| Step::Validate(n, level)),
    ];
    prop::collection::vec(step, 1..40)
}

/// Does a step; one that cannot be done is none.
fn run(catalog: &Arc<Catalog>, step: &Step) -> Result<()> {
    let index_name = |which: u8| format!("i{which}");
    match step {
        Step::Create(n, kind) => {
            let options = match kind {
                0 => doc! {},
                1 => doc! { "capped": true, "size": 4096 },
                2 => doc! { "viewOn": "a", "pipeline": [] },
                3 => doc! { "primaryKey": { "f2": -1, "_id": 1 } },
                4 => doc! { "primaryKey": { "f2": 1, "_id": 1 }, "partitioned": true },
                _ => doc! { "collation": { "locale": "en" } },
            };
            let options = CollectionOptions::parse(&raw(&options))?;
            catalog.create_collection(&ns(NAMES[*n]), &options, &never).map(drop)
        }
        Step::Insert(n, id, array) => {
            let value = if *array { bson::Bson::from(vec![*id, 7]) } else { (*id).into() };
            insert(
                catalog,
                NAMES[*n],
                &doc! { "_id": *id, "f0": value.clone(), "f1": value, "f2": 1 },
            )
        }
        Step::Delete(n, id) => {
            let mut txn = catalog.begin(TxnKind::Statement);
            if let Some(collection) = txn.open_for_write(&ns(NAMES[*n]))? {
                let key =
                    collection.find_record_key(RawBsonRef::Int32(*id), |d, key| txn.get(d, key));
                let key = key?.unwrap_or_default();
                if let Some(document) = txn.get_for_update(&collection, &key)? {
                    let document = RawDocument::from_bytes(&document[..])?;
                    txn.delete_document(&collection, &key, document)?;
                }
            }
            txn.commit().map(drop)
        }
        Step::Build(n, which) => {
            let key = doc! { format!("f{which}"): 1 };
            build(catalog, NAMES[*n], &doc! { "key": key, "name": index_name(*which) }).map(drop)
        }
        Step::DropIndexes(n, which) => {
            let name = index_name(*which);
            let selector = if *which < 3 { IndexSelector::Name(&name) } else { IndexSelector::All };
            catalog.drop_indexes(&ns(NAMES[*n]), &[selector], &never).map(drop)
        }
        Step::Hide(n, which, on) => {
            let change = IndexChange { hidden: Some(*on), ..IndexChange::default() };
            let name = index_name(*which);
            catalog
                .change_index(&ns(NAMES[*n]), IndexSelector::Name(&name), change, &never)
                .map(drop)
        }
        Step::Rename(from, to, over) => {
            catalog.rename_collection(&ns(NAMES[*from]), &ns(NAMES[*to]), *over, &never)
        }
        Step::Drop(n) => catalog.drop_collection(&ns(NAMES[*n]), &never).map(drop),
        Step::DropDatabase(other) => {
            catalog.drop_database(if *other { "other" } else { "db" }, &never).map(drop)
        }
        Step::AddPartition(n) => catalog.add_partition(&ns(NAMES[*n]), None, &never),
        Step::DropPartition(n, id) => {
            let selector = PartitionSelector::Id(*id);
            catalog.drop_partitions(&ns(NAMES[*n]), selector, &never).map(drop)
        }
        Step::Cap(n) => catalog.convert_to_capped(&ns(NAMES[*n]), 8192, &never),
        Step::Validate(n, level) => {
            let change =
                doc! { "validator": { "f2": { "$gte": *level } }, "validationLevel": "off" };
            catalog.change_validation(&ns(NAMES[*n]), &raw(&change), &never)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn who_follows_knows_what_an_opening_reads(steps in steps(), every in 1_usize..5) {
        let mut pair = Pair::new();
        for (at, step) in steps.iter().enumerate() {
            let _may_fail = run(&pair.writer, step);
            if at % every == 0 {
                pair.check();
            }
        }
        pair.check();
    }
}

/// A member that leads, and one without indexes that follows it by entries.
struct Bare {
    leader: Engine,
    without_indexes: Engine,
    writer: Arc<Catalog>,
    reader: Arc<Catalog>,
    follower: Follower,
}

impl Bare {
    fn new() -> Self {
        let member = || {
            Engine::temporary_with(|options| {
                let kept = HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO };
                options.history = Some(kept);
                options.showing = engine::Showing::Committed;
            })
        };
        let (leader, without_indexes) = (member(), member());
        let (writer, reader) = (following(&leader), following(&without_indexes));
        reader.leave_out_indexes().unwrap();
        let follower = Follower::new(&reader);
        let members = Self { leader, without_indexes, writer, reader, follower };
        members.decided_meanwhile(|| members.writer.take_over()).unwrap();
        members
    }

    /// What is committed while `act` runs is decided at once, as by a majority.
    fn decided_meanwhile<T>(&self, act: impl FnOnce() -> T) -> T {
        use std::sync::atomic::{AtomicBool, Ordering};
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    self.decide();
                    std::thread::sleep(Duration::from_micros(50));
                }
                self.decide();
            });
            let result = act();
            done.store(true, Ordering::Release);
            result
        })
    }

    fn decide(&self) {
        loop {
            let index = self.leader.entries().last.index + 1;
            let kind = engine::EntryKind::Records;
            let closed = self.leader.close_entry((1, index), kind, b"", index - 1).unwrap();
            if closed.is_none() {
                return;
            }
            self.leader.commit_entries_up_to(index).unwrap();
        }
    }

    fn catch_up(&mut self) {
        self.catch_up_telling(|_, _| {});
    }

    /// Takes over what the leader has, and tells of each entry.
    fn catch_up_telling(&mut self, mut tell: impl FnMut(&Engine, &engine::EntryHead)) {
        let from = self.without_indexes.entries().last.index + 1;
        for index in from..=self.leader.entries().last.index {
            let (head, configuration, records) = self.leader.read_entry(index).unwrap();
            self.without_indexes.append_entry(&head, &configuration, &records).unwrap();
            let mut changes = Changes::default();
            let Self { without_indexes: bare, follower, .. } = self;
            let mut follow = |step: engine::CommitStep<'_>| match step {
                engine::CommitStep::Write { dictionary, key, value } => {
                    follower.read(&mut changes, dictionary, key, value).unwrap();
                    Ok(())
                }
                engine::CommitStep::Update { .. } => Ok(()),
                engine::CommitStep::End(commit) => {
                    let changes = std::mem::take(&mut changes);
                    follower.before_visible(&changes);
                    bare.advance_commit_point(commit)?;
                    follower.after_visible(changes, commit).unwrap();
                    Ok(())
                }
            };
            bare.each_commit(index, &mut follow).unwrap();
            bare.commit_entries_up_to(index).unwrap();
            tell(bare, &head);
        }
    }

    fn check(&mut self) {
        self.catch_up();
        let is_on_id = |index: &Index| index.spec.is_id();
        let wanted = shown_of(&self.writer, is_on_id);
        assert_eq!(shown(&self.reader), wanted);
        let opened = following(&self.without_indexes);
        opened.leave_out_indexes().unwrap();
        assert_eq!(shown(&opened), wanted, "an opening says the same");
        // Nothing is missing but the indexes, and what is there is the same.
        let mut left_out = std::collections::BTreeSet::new();
        for collection in self.writer.namespaces.read().values() {
            for index in collection.indexes.iter().filter(|index| !is_on_id(index)) {
                left_out.extend(index.parts.values().copied().chain([index.dictionary]));
            }
        }
        let there = |engine: &Engine| -> Vec<DictionaryId> {
            engine.dictionaries().into_iter().map(|(id, _)| id).collect()
        };
        let mut wanted = there(&self.leader);
        wanted.retain(|dictionary| !left_out.contains(dictionary));
        assert_eq!(there(&self.without_indexes), wanted);
        for dictionary in wanted {
            assert_eq!(rows(&self.without_indexes, dictionary), rows(&self.leader, dictionary));
        }
    }
}

fn rows(engine: &Engine, dictionary: DictionaryId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (state, range) = (engine.snapshot(), engine::KeyRange::all());
    let mut cursor = state.cursor(dictionary, range, engine::Direction::Forward).unwrap();
    let mut rows = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        rows.push((key.to_vec(), value.to_vec()));
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn member_without_indexes_has_everything_else(steps in steps(), every in 1_usize..5) {
        let mut members = Bare::new();
        for (at, step) in steps.iter().enumerate() {
            let _may_fail = members.decided_meanwhile(|| run(&members.writer, step));
            if at % every == 0 {
                members.check();
            }
        }
        members.check();
    }
}

#[test]
fn member_without_indexes_keeps_nothing_of_one_that_is_being_built() {
    let mut members = Bare::new();
    let writer = Arc::clone(&members.writer);
    let fill =
        || (0..200).try_for_each(|id| insert(&writer, "db.a", &doc! { "_id": id, "f0": id }));
    members.decided_meanwhile(fill).unwrap();
    members.check();
    let before = members.without_indexes.dictionaries();
    let spec = doc! { "key": { "f0": 1 }, "name": "i0" };
    members.decided_meanwhile(|| build(&writer, "db.a", &spec)).unwrap();
    let (mut steps, mut made) = (0, 0);
    members.catch_up_telling(|bare, head| {
        assert_eq!(bare.dictionaries(), before, "entry {}", head.index);
        steps += 1;
        let mut count = |step: engine::CommitStep<'_>| {
            if let engine::CommitStep::Write { dictionary, .. } = step {
                made += u32::from(!before.iter().any(|(known, _)| *known == dictionary));
            }
            Ok(())
        };
        bare.each_commit(head.index, &mut count).unwrap();
    });
    assert!(steps > 2 && made >= 200, "the build has steps, and the log its rows: {steps} {made}");
    members.check();
    let refused = members.reader.take_over().unwrap_err();
    assert_eq!(refused.code(), Code::NOT_WRITABLE_PRIMARY);
}

#[test]
fn what_outlives_the_metadata_is_kept() {
    let mut pair = Pair::new();
    insert(&pair.writer, "db.a", &doc! { "_id": 1, "f0": 1 }).unwrap();
    pair.check();
    let before = pair.reader.collection(&ns("db.a")).unwrap();
    build(&pair.writer, "db.a", &doc! { "key": { "f0": 1 }, "name": "i0" }).unwrap();
    let state = pair.reader.snapshot();
    pair.writer.rename_collection(&ns("db.a"), &ns("db.b"), false, &never).unwrap();
    pair.check();
    let then = |name| pair.reader.collection_in(&ns(name), &state);
    assert_eq!(then("db.a").unwrap().unwrap().number, before.number);
    assert!(then("db.b").is_err(), "it had another name then");
    let renamed = pair.reader.collection(&ns("db.b")).unwrap();
    assert!(Arc::ptr_eq(&before.shared, &renamed.shared) && !before.is_dropped());
    assert!(
        renamed.indexes[0].created > engine::Timestamp(0),
        "older snapshots do not have its entries"
    );
    pair.writer.drop_collection(&ns("db.b"), &never).unwrap();
    pair.check();
    assert!(before.is_dropped(), "who reads it is told");
    // A name that is taken again is another collection.
    insert(&pair.writer, "db.b", &doc! { "_id": 1 }).unwrap();
    pair.check();
    assert!(!pair.reader.collection(&ns("db.b")).unwrap().is_dropped());
}

#[test]
fn marks_come_before_documents_and_arrivals_after_them() {
    let mut pair = Pair::new();
    build(&pair.writer, "db.a", &doc! { "key": { "f0": 1 }, "name": "i0" }).unwrap();
    let capped = CollectionOptions::parse(&raw(&doc! { "capped": true, "size": 4096 })).unwrap();
    pair.writer.create_collection(&ns("db.c"), &capped, &never).unwrap();
    pair.check();
    let state = Arc::clone(&pair.reader.collection(&ns("db.a")).unwrap().indexes[0].state);
    insert(&pair.writer, "db.a", &doc! { "_id": 1, "f0": [1, 2] }).unwrap();
    pair.engine.sync().unwrap();
    let mut marked = false;
    while let Some(commit) = pair.tail.next().unwrap() {
        let mut changes = Changes::default();
        let mut operations = commit.operations();
        while let Some(operation) = operations.next().unwrap() {
            if let HistoryOperation::Put { dictionary, key, value } = operation {
                pair.follower.read(&mut changes, dictionary, key, Some(value)).unwrap();
            }
        }
        pair.follower.before_visible(&changes);
        marked |= state.observed.load(std::sync::atomic::Ordering::Acquire) != 0;
        pair.follower.after_visible(changes, commit.timestamp).unwrap();
    }
    assert!(marked);
    let tailed = pair.reader.collection(&ns("db.c")).unwrap();
    let seen = tailed.commits_seen();
    insert(&pair.writer, "db.c", &doc! { "_id": 1 }).unwrap();
    pair.catch_up();
    assert!(tailed.commits_seen() > seen, "who waits at the end is woken");
}
