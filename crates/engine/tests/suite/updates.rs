//! Updates: writes that say how a value changes. Here they append; `!` cannot be applied, and what begins with
//! `?` is applied only to what is there.

use crate::held_back::{entries, latest, member};
use crate::{open, tiny};
use engine::{
    Applied, DictionaryId, Direction, Durability, Engine, EntryKind, Error, HistoryOperation,
    KeyRange, MAX_UPDATE_BYTES, Options, Timestamp, TxnOptions, UpdatePlace, Updates,
};
use os::sim::{SimOs, Survival};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ROOT: DictionaryId = DictionaryId::ROOT;

/// Counts how often it was asked to apply one.
#[derive(Debug, Default)]
struct Append(AtomicU64);

impl Updates for Append {
    fn apply(&self, _: UpdatePlace<'_>, old: Option<&[u8]>, argument: &[u8]) -> Applied {
        self.0.fetch_add(1, Ordering::Relaxed);
        match (old, argument.first()) {
            (_, Some(b'!')) | (None, Some(b'?')) => Applied::Unchanged,
            (old, _) => Applied::Value([old.unwrap_or_default(), argument].concat()),
        }
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let plain = |argument: &[u8]| argument.iter().all(u8::is_ascii_lowercase);
        (plain(older) && plain(newer)).then(|| [older, newer].concat())
    }
}

fn options() -> Options {
    Options { updates: Some(Arc::new(Append::default())), ..tiny() }
}

fn update(engine: &Engine, key: &str, argument: &str) {
    let mut txn = engine.begin(TxnOptions::default());
    txn.update(ROOT, key.as_bytes(), argument.as_bytes()).unwrap();
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
}

fn read(mut cursor: engine::Cursor) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.insert(text(key), text(value));
    }
    found
}

fn all(engine: &Engine) -> BTreeMap<String, String> {
    let walk = |direction| {
        read(engine.begin_newest(latest()).cursor(ROOT, KeyRange::all(), direction).unwrap())
    };
    let forward = walk(Direction::Forward);
    assert_eq!(forward, walk(Direction::Backward));
    let snapshot = engine.begin_newest(latest());
    for (key, value) in &forward {
        let found = snapshot.get(ROOT, key.as_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(value.as_bytes()), "{key}");
    }
    forward
}

#[test]
fn own_updates_are_read_over_what_is_there_and_rolled_back() {
    let engine = open(&SimOs::new(1).os(), options()).unwrap();
    update(&engine, "a", "x");
    let mut txn = engine.begin(TxnOptions::default());
    txn.update(ROOT, b"a", b"y").unwrap();
    txn.update(ROOT, b"b", b"1").unwrap();
    let place = txn.savepoint();
    txn.update(ROOT, b"a", b"z").unwrap();
    txn.update(ROOT, b"a", b"?Z").unwrap();
    txn.update(ROOT, b"a", b"!").unwrap();
    txn.put(ROOT, b"c", b"put").unwrap();
    txn.update(ROOT, b"c", b"!no").unwrap();
    txn.update(ROOT, b"c", b"+").unwrap();
    txn.delete(ROOT, b"b").unwrap();
    txn.update(ROOT, b"b", b"?2").unwrap();
    let walk = |direction| read(txn.cursor(ROOT, KeyRange::all(), direction).unwrap());
    let expected = entries([("a", "xyz?Z"), ("c", "put+")]);
    assert_eq!(walk(Direction::Forward), expected);
    assert_eq!(walk(Direction::Backward), expected);
    assert!(!txn.insert(ROOT, b"a", b"no").unwrap());
    let view = txn.view();
    txn.rollback_to(place);
    assert_eq!(txn.get(ROOT, b"a").unwrap().as_deref(), Some(&b"xy"[..]));
    assert_eq!(txn.get_for_update(ROOT, b"b").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(view.get(ROOT, b"a").unwrap().as_deref(), Some(&b"xyz?Z"[..]));
    assert_eq!(read(view.cursor(ROOT, KeyRange::all(), Direction::Backward).unwrap()), expected);
    assert!(!txn.insert(ROOT, b"b", b"no").unwrap(), "its update has made it");
    txn.update(ROOT, b"d", b"?nothing").unwrap();
    assert!(txn.insert(ROOT, b"d", b"new").unwrap(), "its update has made nothing");
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    assert_eq!(all(&engine), entries([("a", "xy"), ("b", "1"), ("d", "new")]));
}

#[test]
fn updates_conflict_as_puts_do() {
    let engine = open(&SimOs::new(2).os(), options()).unwrap();
    let mut late = engine.begin(TxnOptions::default());
    update(&engine, "a", "x");
    assert!(matches!(late.update(ROOT, b"a", b"y"), Err(Error::WriteConflict)));
    drop(late);
    let mut first = engine.begin(TxnOptions::default());
    first.update(ROOT, b"a", b"y").unwrap();
    let mut second = engine.begin(TxnOptions::default());
    assert!(matches!(second.update(ROOT, b"a", b"z"), Err(Error::LockTimeout { .. })));
    let long = vec![b'a'; MAX_UPDATE_BYTES + 1];
    assert!(matches!(first.update(ROOT, b"b", &long), Err(Error::TooLarge { .. })));
}

#[test]
fn large_transaction_has_updates_too() {
    let sim = SimOs::new(3);
    let engine = open(&sim.os(), options()).unwrap();
    let key = |number: u32| format!("{number:05}");
    for number in (0..600).step_by(3) {
        update(&engine, &key(number), "a");
    }
    let mut txn = engine.begin(TxnOptions::default());
    let mut place = None;
    for number in 0..600 {
        if number == 400 {
            place = Some(txn.savepoint());
        }
        txn.update(ROOT, key(number).as_bytes(), b"b").unwrap();
        txn.update(ROOT, key(number).as_bytes(), b"?c").unwrap();
        txn.update(ROOT, key(number / 2).as_bytes(), b"d").unwrap();
    }
    assert!(engine.stats().spills > 0);
    txn.rollback_to(place.unwrap());
    let value = |number: u32| {
        let base = if number.is_multiple_of(3) { "a" } else { "" };
        let again = if number < 200 { "dd" } else { "" };
        match number {
            0 => "ab?cdd".to_owned(),
            400.. => base.to_owned(),
            _ => format!("{base}b?c{again}"),
        }
    };
    let expected: BTreeMap<String, String> = (0..600)
        .map(|number| (key(number), value(number)))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let walk = |direction| read(txn.cursor(ROOT, KeyRange::all(), direction).unwrap());
    assert_eq!(walk(Direction::Forward), expected);
    assert_eq!(walk(Direction::Backward), expected);
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    assert_eq!(all(&engine), expected);
    while engine.step().unwrap() {}
    assert_eq!(all(&engine), expected);
    drop(engine);
    let engine = open(&sim.reboot(), options()).unwrap();
    assert_eq!(all(&engine), expected);
    engine.verify_all().unwrap();
}

#[test]
fn updates_survive_a_crash_and_are_applied_once() {
    let sim = SimOs::new(4);
    let mut engine = open(&sim.os(), options()).unwrap();
    let mut expected = BTreeMap::<String, String>::new();
    for round in 0..1500_u32 {
        let key = format!("{:03}", round * 7 % 60);
        let argument = char::from(b'a' + (round % 26) as u8).to_string();
        update(&engine, &key, &argument);
        expected.entry(key).or_default().push_str(&argument);
        if round % 11 == 0 {
            engine.step().unwrap();
        }
        if round % 200 == 90 {
            engine.checkpoint().unwrap();
        }
        if round % 300 == 299 {
            let os = sim.reboot_with(Survival::Nothing);
            drop(engine);
            engine = open(&os, options()).unwrap();
            assert_eq!(all(&engine), expected, "round {round}");
        }
    }
    engine.verify_all().unwrap();
}

#[test]
fn key_with_many_updates_is_read_now_and_then() {
    let updates = Arc::new(Append::default());
    let mut options = Options { updates: Some(Arc::clone(&updates) as Arc<dyn Updates>), ..tiny() };
    options.sizes.memtable_bytes = 1 << 20;
    options.sizes.write_budget = 8 << 20;
    let engine = open(&SimOs::new(5).os(), options).unwrap();
    for _ in 0..1000 {
        update(&engine, "hot", "a");
    }
    let before = updates.0.load(Ordering::Relaxed);
    assert!(before <= 1000 / 65 * 65 + 65, "each is applied once at most: {before}");
    assert_eq!(all(&engine)["hot"].len(), 1000);
    let read = updates.0.load(Ordering::Relaxed) - before;
    assert!(read <= 3 * 65, "a read applies those since the last put: {read}");
}

#[test]
fn members_apply_updates_and_readers_of_the_history_are_told() {
    let options = || Options { updates: Some(Arc::new(Append::default())), ..member() };
    let leader = open(&SimOs::new(6).os(), options()).unwrap();
    let sim = SimOs::new(7);
    let follower = open(&sim.os(), options()).unwrap();
    for argument in ["x", "y", "z"] {
        let mut txn = leader.begin_newest(latest());
        txn.update(ROOT, b"a", argument.as_bytes()).unwrap();
        drop(txn.submit().unwrap());
    }
    let index = leader.entries().last.index + 1;
    let head = leader.close_entry((1, index), EntryKind::Records, b"", 0).unwrap().unwrap();
    let (head, configuration, records) = leader.read_entry(head.index).unwrap();
    follower.append_entry(&head, &configuration, &records).unwrap();
    follower.sync().unwrap();
    for engine in [&leader, &follower] {
        engine.advance_commit_point(Timestamp(head.last_timestamp)).unwrap();
    }
    assert_eq!(all(&leader), entries([("a", "xyz")]));
    assert_eq!(all(&follower), entries([("a", "xyz")]));
    let mut tail = leader.history().unwrap().read_after(0).unwrap();
    leader.sync().unwrap();
    let mut told = Vec::new();
    while let Some(commit) = tail.next().unwrap() {
        let mut operations = commit.operations();
        while let Some(operation) = operations.next().unwrap() {
            if let HistoryOperation::Update { argument, .. } = operation {
                told.push(String::from_utf8(argument.to_vec()).unwrap());
            }
        }
    }
    assert_eq!(told, ["x", "y", "z"]);
}
