//! What is large: transactions larger than memory, whose writes go to disk and become visible at once, and
//! walks over more than memory should hold.

use crate::{open, tiny};
use engine::{
    DictionaryId, DictionaryOptions, Direction, Durability, Engine, EngineTxn, KeyRange,
    MemoryKind, TxnOptions,
};
use os::sim::{Faults, SimOs, Survival};
use std::collections::BTreeMap;
use std::ops::Bound;

const ROOT: DictionaryId = DictionaryId::ROOT;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn read(mut cursor: engine::Cursor) -> Contents {
    let mut found = Contents::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        assert!(found.insert(key.to_vec(), value.to_vec()).is_none(), "a key twice");
    }
    found
}

fn committed(engine: &Engine, dictionary: DictionaryId) -> Contents {
    read(engine.snapshot().cursor(dictionary, KeyRange::all(), Direction::Forward).unwrap())
}

fn own(txn: &EngineTxn, dictionary: DictionaryId) -> Contents {
    let forward = read(txn.cursor(dictionary, KeyRange::all(), Direction::Forward).unwrap());
    let backward = read(txn.cursor(dictionary, KeyRange::all(), Direction::Backward).unwrap());
    assert_eq!(forward, backward);
    forward
}

/// Even numbers up to 2000, committed.
fn loaded(engine: &Engine) -> Contents {
    let mut txn = engine.begin(TxnOptions::default());
    for number in (0..2000).step_by(2) {
        txn.put(ROOT, &key(number), b"old").unwrap();
    }
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    committed(engine, ROOT)
}

/// Far more than what stays in memory: deletes, overwrites, new keys, a new dictionary.
fn fill(txn: &mut EngineTxn, expected: &mut Contents) -> DictionaryId {
    let made = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    for number in 0..1500 {
        if number % 5 == 0 {
            txn.delete(ROOT, &key(number)).unwrap();
            expected.remove(&key(number)[..]);
        } else {
            txn.put(ROOT, &key(number), &[number as u8; 40]).unwrap();
            expected.insert(key(number).to_vec(), vec![number as u8; 40]);
        }
        txn.put(made, &key(number), b"made").unwrap();
    }
    made
}

#[test]
fn it_reads_its_own_writes_and_nobody_else_does() {
    let engine = open(&SimOs::new(1).os(), tiny()).unwrap();
    let before = loaded(&engine);
    let mut txn = engine.begin(TxnOptions::default());
    let mut expected = before.clone();
    let made = fill(&mut txn, &mut expected);
    assert_eq!(engine.stats().spills, 2, "this one, and the load before");
    assert_eq!(own(&txn, ROOT), expected);
    assert_eq!(own(&txn, made).len(), 1500);
    assert_eq!(txn.get(ROOT, &key(10)).unwrap(), None);
    assert_eq!(txn.get_for_update(ROOT, &key(11)).unwrap().as_deref(), Some(&[11; 40][..]));
    assert!(!txn.insert(ROOT, &key(12), b"no").unwrap(), "it is there");
    assert!(txn.insert(ROOT, &key(15), b"again").unwrap(), "it deleted it");
    expected.insert(key(15).to_vec(), b"again".to_vec());
    assert_eq!(committed(&engine, ROOT), before);
    // A cursor meets what was there when it was opened, through seeks and pauses.
    let range = KeyRange { lower: Bound::Excluded(key(100).into()), upper: Bound::Unbounded };
    let mut cursor = txn.cursor(ROOT, range, Direction::Forward).unwrap();
    txn.put(ROOT, &key(101), b"later").unwrap();
    assert_eq!(cursor.next().unwrap(), Some((&key(101)[..], &[101; 40][..])));
    cursor.park();
    cursor.seek(&key(1200)).unwrap();
    assert_eq!(cursor.next().unwrap().map(|(found, _)| found.to_vec()), Some(key(1201).into()));
    drop(cursor);
    expected.insert(key(101).to_vec(), b"later".to_vec());

    let old = engine.snapshot();
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert_eq!(committed(&engine, ROOT), expected);
    assert_eq!(read(old.cursor(ROOT, KeyRange::all(), Direction::Forward).unwrap()), before);
    // Later commits lie above it, while it is drained and after.
    for number in 0..300 {
        let mut txn = engine.begin(TxnOptions::default());
        txn.put(ROOT, &key(number * 3), b"newer").unwrap();
        expected.insert(key(number * 3).to_vec(), b"newer".to_vec());
        txn.commit(Durability::Buffered).unwrap().durable().unwrap();
        engine.step().unwrap();
        if number % 60 == 0 {
            assert_eq!(committed(&engine, ROOT), expected);
        }
    }
    while engine.step().unwrap() {}
    assert_eq!(committed(&engine, ROOT), expected);
    assert_eq!(committed(&engine, made).len(), 1500);
    assert_eq!(read(old.cursor(ROOT, KeyRange::all(), Direction::Forward).unwrap()), before);
    engine.verify_all().unwrap();
}

#[test]
fn savepoints_from_before_and_after_the_spill_are_gone_back_to() {
    let engine = open(&SimOs::new(1).os(), tiny()).unwrap();
    let before = loaded(&engine);
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(ROOT, &key(1), b"first").unwrap();
    let in_memory = txn.savepoint();
    txn.put(ROOT, &key(1), b"second").unwrap();
    let mut expected = before.clone();
    expected.insert(key(1).to_vec(), b"second".to_vec());
    fill(&mut txn, &mut expected);
    let on_disk = txn.savepoint();
    for number in 500..2500 {
        txn.put(ROOT, &key(number), b"undone").unwrap();
    }
    txn.rollback_to(on_disk);
    assert_eq!(own(&txn, ROOT), expected);
    txn.rollback_to(in_memory);
    expected = before;
    expected.insert(key(1).to_vec(), b"first".to_vec());
    assert_eq!(own(&txn, ROOT), expected);
    txn.put(ROOT, &key(2), b"third").unwrap();
    expected.insert(key(2).to_vec(), b"third".to_vec());
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert_eq!(committed(&engine, ROOT), expected);
    while engine.step().unwrap() {}
    assert_eq!(committed(&engine, ROOT), expected);
}

#[test]
fn abort_gives_the_space_back() {
    let engine = open(&SimOs::new(1).os(), tiny()).unwrap();
    let before = loaded(&engine);
    while engine.step().unwrap() {}
    let segments = engine.stats().file.segments;
    let mut txn = engine.begin(TxnOptions::default());
    fill(&mut txn, &mut before.clone());
    assert!(engine.stats().file.segments > segments + 10);
    txn.abort();
    assert_eq!(engine.stats().file.segments, segments);
    assert_eq!(committed(&engine, ROOT), before);
}

/// The power goes between commit and drain, or before the commit: all of it, or nothing.
#[test]
fn after_a_crash_it_is_there_whole_or_not_at_all() {
    for commits in [false, true] {
        let sim = SimOs::new(3);
        let engine = open(&sim.os(), tiny()).unwrap();
        let mut expected = loaded(&engine);
        let mut txn = engine.begin(TxnOptions::default());
        let mut after = expected.clone();
        let made = fill(&mut txn, &mut after);
        engine.checkpoint().unwrap();
        if commits {
            txn.commit(Durability::Synced).unwrap().durable().unwrap();
            expected = after;
        } else {
            std::mem::forget(txn);
        }
        let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
        assert_eq!(committed(&engine, ROOT), expected);
        assert_eq!(engine.dictionaries().iter().any(|(id, _)| *id == made), commits);
        while engine.step().unwrap() {}
        engine.verify_all().unwrap();
        engine.close().unwrap();
        let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
        assert_eq!(committed(&engine, ROOT), expected);
    }
}

#[test]
fn full_disk_refuses_a_write_and_the_transaction_goes_on() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    let mut expected = Contents::new();
    let mut random = testkit::Gen::new(1);
    let used = || sim.files().values().map(|bytes| bytes.len() as u64).sum::<u64>();
    let mut refused = 0;
    for number in 0..1500 {
        match number % 500 {
            0 => sim.set_faults(Faults::default()),
            200 => sim.set_faults(Faults { capacity_bytes: used(), ..Faults::default() }),
            _ => {}
        }
        let value = random.value(600);
        match txn.put(ROOT, &key(number), &value) {
            Ok(()) => {
                expected.insert(key(number).to_vec(), value.clone());
            }
            Err(engine::Error::NoSpace(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    sim.set_faults(Faults::default());
    assert!(refused > 20, "{refused}");
    assert_eq!(own(&txn, ROOT), expected);
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    assert_eq!(committed(&engine, ROOT), expected);
}

/// A memtable holds many large values for one child. Whoever walks over them must not keep it in memory
/// after it was drained: not while he walks, and not while he stands still between two steps.
#[test]
fn walk_over_large_values_lets_go_of_memtables_that_were_drained() {
    for direction in [Direction::Forward, Direction::Backward] {
        let mut options = tiny();
        options.cache_size = 64 << 20;
        options.sizes.memtable_bytes = 4 << 20;
        options.sizes.write_budget = 32 << 20;
        options.sizes.spill_bytes = 32 << 20;
        let engine = open(&SimOs::new(1).os(), options).unwrap();
        let mut txn = engine.begin(TxnOptions::default());
        for number in 0..80 {
            txn.put(ROOT, &key(number), &vec![number as u8; 100 << 10]).unwrap();
        }
        txn.commit(Durability::Buffered).unwrap().durable().unwrap();
        let memtables = || engine.stats().cache.parts.of(MemoryKind::Memtables);
        let full = memtables();
        assert!(full > 8_000_000, "{full}");
        let mut cursor = engine.snapshot().cursor(ROOT, KeyRange::all(), direction).unwrap();
        assert!(engine.stats().drains == 0, "the walk begins in memory");
        let mut met = 0;
        while let Some((found, value)) = cursor.next().unwrap() {
            let number = if direction == Direction::Forward { met } else { 79 - met };
            assert_eq!((found, value.len()), (&key(number)[..], 100 << 10));
            assert!(value.iter().all(|byte| *byte == number as u8));
            met += 1;
            if met == 5 {
                while engine.step().unwrap() {}
                assert!(engine.stats().drains > 0, "the memtable is full, so it is drained");
            }
            if met == 20 {
                assert!(memtables() < 1 << 20, "{direction:?}: {} of {full}", memtables());
            }
        }
        assert_eq!(met, 80);
    }
}
