//! Updates that were written without reading, while they wait above their documents: whatever way leads to a
//! document, it comes with all that was done to it before the state that is read.
//!
//! The engine here knows updates that add a number to `n`, and make a document where they bring one.

use super::*;
use bsonval::Path;
use engine::{
    Applied, Cursor, Direction, KeyRange, PlantedUpdateBug, Snapshot, UpdatePlace, Updates,
};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const DOCUMENTS: i32 = 2000;

/// Adds to `n`. An argument is four bytes of a number, and the document that it makes where there is none.
#[derive(Debug, Default)]
struct AddToN {
    planted: Option<PlantedUpdateBug>,
    /// How often an update was applied.
    applied: AtomicU64,
}

fn added(document: &RawDocument, more: i32) -> Vec<u8> {
    let mut document = Document::try_from(document).unwrap();
    let n = document.get_i32("n").unwrap();
    document.insert("n", n + more);
    raw(&document).into_bytes()
}

impl Updates for AddToN {
    fn apply(&self, _: UpdatePlace<'_>, old: Option<&[u8]>, argument: &[u8]) -> Applied {
        self.applied.fetch_add(1, Ordering::Relaxed);
        let (more, new) = argument.split_first_chunk().unwrap();
        match old.or((!new.is_empty()).then_some(new)) {
            None => Applied::Unchanged,
            Some(base) => {
                let base = RawDocument::from_bytes(base).unwrap();
                Applied::Value(added(base, i32::from_le_bytes(*more)))
            }
        }
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let number = |bytes: &[u8]| i32::from_le_bytes(*bytes.first_chunk().unwrap());
        let sum = number(older) + number(newer);
        (older[4..] == newer[4..]).then(|| [&sum.to_le_bytes(), &older[4..]].concat())
    }

    fn planted_bug(&self) -> Option<PlantedUpdateBug> {
        self.planted
    }
}

/// What a collection should hold: `n` by `_id`.
type Expected = BTreeMap<i32, i32>;

struct Shop {
    engine: Engine,
    updates: Arc<AddToN>,
    catalog: Arc<Catalog>,
    /// The documents are clustered by `a` and `_id`, not by `_id` alone.
    is_keyed: bool,
    expected: Expected,
}

fn a_of(id: i32) -> i32 {
    id % 7
}

fn document(id: i32, n: i32) -> Document {
    doc! { "_id": id, "a": a_of(id), "n": n, "padding": "x".repeat(60) }
}

impl Shop {
    /// Documents that lie in plain leaves, with an index on `a`.
    fn new(is_keyed: bool, planted: Option<PlantedUpdateBug>) -> Self {
        let updates = Arc::new(AddToN { planted, ..AddToN::default() });
        let engine = Engine::temporary_with(|options| {
            options.updates = Some(Arc::clone(&updates) as Arc<dyn Updates>);
            options.cleaner_period = Duration::ZERO;
        });
        let catalog = open(&engine);
        let mut options = doc! { "pageSize": 65536, "readPageSize": 4096 };
        if is_keyed {
            options.insert("primaryKey", doc! { "a": 1, "_id": 1 });
        }
        let options = CollectionOptions::parse(&raw(&options)).unwrap();
        catalog.create_collection(&ns("db.c"), &options, &never).unwrap();
        let expected = Expected::new();
        let mut shop = Self { engine, updates, catalog, is_keyed, expected };
        let mut txn = shop.catalog.begin(TxnKind::Statement);
        let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
        for id in 0..DOCUMENTS {
            txn.insert_document(&collection, &raw(&document(id, 0))).unwrap();
            shop.expected.insert(id, 0);
        }
        txn.commit().unwrap();
        shop.settle();
        shop
    }

    /// All that was written goes to disk, and as far down as it goes by itself.
    fn settle(&self) {
        self.engine.checkpoint().unwrap();
        while self.engine.step().unwrap() {}
    }

    fn collection(&self) -> Arc<Collection> {
        self.catalog.collection(&ns("db.c")).unwrap()
    }

    /// Adds to `n` of a document, if it is there, without reading; makes it where it `upserts`.
    fn update(&mut self, id: i32, more: i32, upserts: bool) {
        let mut txn = self.catalog.begin(TxnKind::Statement);
        assert!(self.update_in(&mut txn, id, more, upserts), "nothing depends on n");
        txn.commit().unwrap();
        match self.expected.get_mut(&id) {
            Some(n) => *n += more,
            None if upserts => drop(self.expected.insert(id, more)),
            None => {}
        }
    }

    fn update_in(&self, txn: &mut Txn, id: i32, more: i32, upserts: bool) -> bool {
        let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
        let new = if upserts { raw(&document(id, 0)).into_bytes() } else { Vec::new() };
        let argument = [&more.to_le_bytes()[..], &new].concat();
        let (a, id) = (RawBsonRef::Int32(a_of(id)), RawBsonRef::Int32(id));
        let values = if self.is_keyed { vec![a, id] } else { vec![id] };
        let touched = [Path::new("n")];
        txn.update_fast(&collection, &values, &touched, (&argument, upserts)).unwrap()
    }

    /// The same documents in every tenth place, twice.
    fn update_some(&mut self) {
        for id in (0..DOCUMENTS).step_by(10) {
            self.update(id, 1, false);
            self.update(id, 2, false);
        }
    }

    /// Whether a read of the first document has to apply updates.
    fn has_waiting(&self) -> bool {
        let collection = self.collection();
        let key = collection.record_key(&raw(&document(0, 0))).unwrap();
        let before = self.updates.applied.load(Ordering::Relaxed);
        self.catalog.snapshot().get(collection.primary(), &key).unwrap();
        self.updates.applied.load(Ordering::Relaxed) > before
    }

    /// Compares what every way finds in the newest state; and validates.
    fn check(&self) {
        let snapshot = self.catalog.snapshot();
        assert_eq!(ways(&self.collection(), &snapshot), Ok(()));
        self.check_state(&snapshot, &self.expected);
        let mut txn = self.catalog.begin(TxnKind::Transaction);
        let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
        let range = KeyRange::all();
        let cursor = txn.cursor(collection.primary(), range, Direction::Forward).unwrap();
        let documents = read(cursor);
        assert_eq!(numbers(&documents), self.expected, "a transaction's walk");
        for (key, document) in documents.iter().step_by(3) {
            let found = txn.get_for_update(&collection, key).unwrap().unwrap();
            assert_eq!(&found[..], raw(document).as_bytes());
        }
        drop(txn);
        let report = check_valid(&self.catalog, "db.c");
        assert_eq!(report.records, self.expected.len() as u64);
    }

    fn check_state(&self, snapshot: &Snapshot, expected: &Expected) {
        let collection = self.collection();
        let cursor = snapshot.cursor(collection.primary(), KeyRange::all(), Direction::Forward);
        assert_eq!(&numbers(&read(cursor.unwrap())), expected);
        assert_eq!(ways(&collection, snapshot), Ok(()));
    }
}

type Documents = Vec<(Vec<u8>, Document)>;

fn read(mut cursor: Cursor) -> Documents {
    let mut all = Vec::new();
    while let Some((key, document)) = cursor.next().unwrap() {
        let document = Document::try_from(RawDocument::from_bytes(document).unwrap()).unwrap();
        all.push((key.to_vec(), document));
    }
    all
}

fn numbers(documents: &Documents) -> Expected {
    let number = |document: &Document, field| document.get_i32(field).unwrap();
    documents.iter().map(|(_, document)| (number(document, "_id"), number(document, "n"))).collect()
}

/// Whether every way to the documents of a state finds the same: the first that does not, and what it found.
fn ways(collection: &Collection, snapshot: &Snapshot) -> std::result::Result<(), String> {
    let primary = collection.primary();
    let walk = |range, direction| read(snapshot.cursor(primary, range, direction).unwrap());
    let forward = walk(KeyRange::all(), Direction::Forward);
    let same = |what: &str, found: &Documents, expected: &[(Vec<u8>, Document)]| {
        let differs = found.iter().zip(expected).find(|(found, expected)| found != expected);
        match differs {
            None if found.len() == expected.len() => Ok(()),
            None => Err(format!("{what}: {} of {} documents", found.len(), expected.len())),
            Some((found, expected)) => Err(format!("{what}: {} is no {}", found.1, expected.1)),
        }
    };
    let mut backward = walk(KeyRange::all(), Direction::Backward);
    backward.reverse();
    same("a walk backward", &backward, &forward)?;
    let (from, to) = (forward.len() / 3, forward.len() * 2 / 3);
    let range = || KeyRange {
        lower: Bound::Included(forward[from].0.clone()),
        upper: Bound::Excluded(forward[to].0.clone()),
    };
    same("a part", &walk(range(), Direction::Forward), &forward[from..to])?;
    let mut part = walk(range(), Direction::Backward);
    part.reverse();
    same("a part backward", &part, &forward[from..to])?;
    let mut sought = snapshot.cursor(primary, KeyRange::all(), Direction::Forward).unwrap();
    let mut gotten = Documents::new();
    let mut passed = Documents::new();
    let owned = |key: &[u8], bytes: &[u8]| {
        let document = RawDocument::from_bytes(bytes).unwrap();
        (key.to_vec(), Document::try_from(document).unwrap())
    };
    for (key, _) in &forward {
        let found = snapshot.get(primary, key).unwrap();
        gotten.extend(found.map(|found| owned(key, &found)));
        sought.seek(key).unwrap();
        passed.extend(sought.next().unwrap().map(|(key, found)| owned(key, found)));
    }
    same("a look-up", &gotten, &forward)?;
    same("a seek", &passed, &forward)?;
    for index in collection.indexes() {
        let entries = KeyRange::all();
        let cursor = snapshot.cursor(index.dictionary(), entries, Direction::Forward).unwrap();
        let mut fetched = by_entries(index, snapshot, primary, cursor);
        fetched.sort_by(|one, other| one.0.cmp(&other.0));
        same("an index with its documents", &fetched, &forward)?;
    }
    Ok(())
}

/// The documents of an index's entries.
fn by_entries(
    index: &Index,
    snapshot: &Snapshot,
    primary: engine::DictionaryId,
    mut cursor: Cursor,
) -> Documents {
    let mut fetched = Documents::new();
    while let Some((entry, value)) = cursor.next().unwrap() {
        let key = index.keys.record_key_of(entry, value).unwrap();
        let found = snapshot.get(primary, key).unwrap().expect("an entry has its document");
        let document = RawDocument::from_bytes(&found[..]).unwrap();
        fetched.push((key.to_vec(), Document::try_from(document).unwrap()));
    }
    fetched
}

#[test]
fn updates_that_wait_are_read_whatever_way_leads_to_the_document() {
    for is_keyed in [false, true] {
        let mut shop = Shop::new(is_keyed, None);
        build(&shop.catalog, "db.c", &doc! { "key": { "a": 1 }, "name": "a" }).unwrap();
        let (before, at_first) = (shop.catalog.snapshot(), shop.expected.clone());
        shop.update_some();
        shop.update(DOCUMENTS + 5, 1, false);
        shop.check();
        let (between, by_then) = (shop.catalog.snapshot(), shop.expected.clone());
        shop.settle();
        assert!(shop.has_waiting(), "no update waits above its document");
        shop.check();
        shop.update_some();
        shop.check();
        shop.check_state(&between, &by_then);
        shop.settle();
        shop.check();
        shop.check_state(&before, &at_first);
        shop.check_state(&between, &by_then);
        shop.catalog = open(&shop.engine);
        shop.check();
    }
}

#[test]
fn documents_that_updates_have_made_are_found_and_counted() {
    let mut shop = Shop::new(false, None);
    for id in (0..DOCUMENTS + 40).step_by(20) {
        shop.update(id, 1, true);
        shop.update(id, 1, true);
    }
    shop.check();
    assert!(!shop.collection().counts_are_unknown(), "validate has counted");
    assert_eq!(shop.collection().count(), shop.expected.len() as u64);
    shop.settle();
    shop.check();
}

#[test]
fn an_index_is_built_of_what_updates_have_made_of_documents() {
    for is_settled in [false, true] {
        let mut shop = Shop::new(true, None);
        shop.update_some();
        if is_settled {
            shop.settle();
        }
        build(&shop.catalog, "db.c", &doc! { "key": { "n": 1 }, "name": "n" }).unwrap();
        shop.check();
        let mut txn = shop.catalog.begin(TxnKind::Statement);
        assert!(!shop.update_in(&mut txn, 0, 1, false), "the index depends on n");
    }
}

#[test]
fn documents_with_updates_above_them_are_changed_and_deleted_as_they_are_read() {
    for is_settled in [false, true] {
        let mut shop = Shop::new(true, None);
        shop.update_some();
        if is_settled {
            shop.settle();
        }
        primary_key::change(&shop.catalog, "db.c", &document(10, 50)).unwrap();
        shop.expected.insert(10, 50);
        let mut txn = shop.catalog.begin(TxnKind::Statement);
        let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
        let key = collection.record_key(&raw(&document(20, 0))).unwrap();
        let old = txn.get_for_update(&collection, &key).unwrap().unwrap();
        let old = RawDocument::from_bytes(&old[..]).unwrap();
        assert_eq!(old.get_i32("n").unwrap(), 3);
        txn.delete_document(&collection, &key, old).unwrap();
        txn.commit().unwrap();
        shop.expected.remove(&20);
        shop.check();
        // Over a document that was deleted an update makes nothing, and what comes again is new.
        shop.update(20, 1, false);
        shop.check();
        insert(&shop.catalog, "db.c", &document(20, 7)).unwrap();
        shop.expected.insert(20, 7);
        shop.update(20, 1, false);
        shop.settle();
        shop.check();
    }
}

#[test]
fn a_transaction_reads_its_own_updates_over_those_that_wait() {
    let mut shop = Shop::new(true, None);
    shop.update_some();
    shop.settle();
    let mut txn = shop.catalog.begin(TxnKind::Transaction);
    assert!(shop.update_in(&mut txn, 10, 4, false));
    let collection = shop.collection();
    let mut own = shop.expected.clone();
    own.insert(10, 7);
    for direction in [Direction::Forward, Direction::Backward] {
        let cursor = txn.cursor(collection.primary(), KeyRange::all(), direction).unwrap();
        assert_eq!(numbers(&read(cursor)), own);
    }
    let key = collection.record_key(&raw(&document(10, 0))).unwrap();
    let found = txn.get(collection.primary(), &key).unwrap().unwrap();
    assert_eq!(RawDocument::from_bytes(&found[..]).unwrap().get_i32("n").unwrap(), 7);
    drop(txn);
    shop.check();
}

#[test]
fn a_way_that_misses_updates_is_found() {
    let mut shop = Shop::new(false, Some(PlantedUpdateBug::HidesBaseBackward));
    shop.update_some();
    let found = ways(&shop.collection(), &shop.catalog.snapshot());
    assert!(found.is_err_and(|found| found.starts_with("a walk backward")));
}

#[test]
fn an_insert_that_nobody_checks_replaces_and_is_counted_by_a_walk() {
    let mut shop = Shop::new(false, None);
    let insert = |shop: &Shop, document: &Document| {
        let mut txn = shop.catalog.begin(TxnKind::Statement);
        let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
        txn.insert_unchecked(&collection, &raw(document)).unwrap();
        txn.commit().unwrap();
    };
    shop.update(0, 5, false);
    for id in [0, 10, DOCUMENTS, DOCUMENTS + 1, DOCUMENTS] {
        insert(&shop, &document(id, 40));
        shop.expected.insert(id, 40);
    }
    assert!(shop.collection().counts_are_unknown());
    shop.update(0, 1, false);
    shop.check();
    assert_eq!(shop.collection().count(), shop.expected.len() as u64, "validate has counted");
    shop.settle();
    shop.check();
}

#[test]
fn an_insert_is_checked_all_the_same_where_something_depends_on_what_it_would_replace() {
    let indexed = Shop::new(false, None);
    build(&indexed.catalog, "db.c", &doc! { "key": { "a": 1 }, "name": "a" }).unwrap();
    for shop in [indexed, Shop::new(true, None)] {
        let mut txn = shop.catalog.begin(TxnKind::Statement);
        let collection = txn.open_for_write(&ns("db.c")).unwrap().unwrap();
        let refused = txn.insert_unchecked(&collection, &raw(&document(10, 40))).unwrap_err();
        assert_eq!(refused.code(), Code::DUPLICATE_KEY);
        txn.insert_unchecked(&collection, &raw(&document(DOCUMENTS, 0))).unwrap();
        txn.commit().unwrap();
        assert!(!shop.collection().counts_are_unknown());
        assert_eq!(check_valid(&shop.catalog, "db.c").records, DOCUMENTS as u64 + 1);
    }
}
