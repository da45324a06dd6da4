//! Ranges deleted at once: what the transaction, others, older snapshots and the next start see of it.

use crate::{open, tiny};
use engine::{
    DictionaryId, DictionaryOptions, Direction, Durability, Engine, EngineTxn, Error, KeyRange,
    OnConflict, Options, Snapshot, TxnOptions,
};
use os::sim::SimOs;
use std::ops::Bound;

/// The last byte of the key.
fn record_part<'a>(_: &[u8], key: &'a [u8], _: Option<&'a [u8]>) -> Option<&'a [u8]> {
    key.get(key.len().saturating_sub(1)..)
}

fn options() -> Options {
    let mut options = tiny();
    options.record_part = Some(record_part);
    options.cleaner_period = std::time::Duration::from_millis(500);
    options
}

fn begin(engine: &Engine, on_conflict: OnConflict) -> EngineTxn {
    engine.begin(TxnOptions { on_conflict, lock_timeout: None })
}

fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn range(from: u32, to: u32) -> KeyRange {
    KeyRange { lower: Bound::Included(key(from)), upper: Bound::Excluded(key(to)) }
}

/// A dictionary with the numbers up to `count`.
fn filled(engine: &Engine, count: u32) -> DictionaryId {
    let mut txn = begin(engine, OnConflict::Latest);
    let id = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    for number in 0..count {
        txn.put(id, &key(number), &[7; 40]).unwrap();
    }
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    id
}

fn numbers(snapshot: &Snapshot, id: DictionaryId, direction: Direction) -> Vec<u32> {
    let mut cursor = snapshot.cursor(id, KeyRange::all(), direction).unwrap();
    let mut found = Vec::new();
    while let Some((key, _)) = cursor.next().unwrap() {
        found.push(u32::from_be_bytes(key.try_into().unwrap()));
    }
    found
}

/// The numbers that are there, both ways and one by one.
fn check(snapshot: &Snapshot, id: DictionaryId, expected: &[u32], most: u32) {
    assert_eq!(numbers(snapshot, id, Direction::Forward), expected);
    let mut backward = numbers(snapshot, id, Direction::Backward);
    backward.reverse();
    assert_eq!(backward, expected);
    for number in 0..most {
        let there = snapshot.get(id, &key(number)).unwrap().is_some();
        assert_eq!(there, expected.contains(&number), "{number}");
    }
}

fn settle(engine: &Engine, sim: &SimOs) {
    for _ in 0..300 {
        while engine.step().unwrap() {}
        sim.advance(std::time::Duration::from_secs(5));
    }
}

#[test]
fn a_range_is_gone_for_who_comes_after_and_there_for_who_came_before() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), options()).unwrap();
    let id = filled(&engine, 30);
    let before = engine.snapshot();
    let mut txn = begin(&engine, OnConflict::Latest);
    assert!(txn.tombstone(id, &range(10, 20), &[]).unwrap());
    let left: Vec<u32> = (0..10).chain(20..30).collect();
    check(&txn.view(), id, &left, 30);
    // What it writes from now on is newer.
    txn.put(id, &key(15), b"new").unwrap();
    assert!(txn.insert(id, &key(16), b"new").unwrap(), "it is not there any more");
    assert!(!txn.insert(id, &key(5), b"new").unwrap());
    assert!(txn.get_for_update(id, &key(12)).unwrap().is_none());
    let left: Vec<u32> = (0..10).chain([15, 16]).chain(20..30).collect();
    check(&txn.view(), id, &left, 30);
    check(&engine.snapshot(), id, &(0..30).collect::<Vec<_>>(), 30);
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    check(&engine.snapshot(), id, &left, 30);
    check(&before, id, &(0..30).collect::<Vec<_>>(), 30);
    settle(&engine, &sim);
    check(&before, id, &(0..30).collect::<Vec<_>>(), 30);
    engine.checkpoint().unwrap();
    drop(before);
    settle(&engine, &sim);
    check(&engine.snapshot(), id, &left, 30);
    engine.verify_all().unwrap();
}

#[test]
fn it_goes_with_a_savepoint_and_with_an_abort() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), options()).unwrap();
    let id = filled(&engine, 10);
    let all: Vec<u32> = (0..10).collect();
    let mut txn = begin(&engine, OnConflict::Latest);
    let savepoint = txn.savepoint();
    assert!(txn.tombstone(id, &KeyRange::all(), &[]).unwrap());
    let emptied = txn.view();
    txn.rollback_to(savepoint);
    check(&txn.view(), id, &all, 10);
    check(&emptied, id, &[], 10);
    assert!(txn.tombstone(id, &range(3, 9), &[]).unwrap());
    txn.abort();
    check(&engine.snapshot(), id, &all, 10);
}

#[test]
fn writers_in_the_range_wait_and_those_from_before_conflict() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), options()).unwrap();
    let id = filled(&engine, 30);
    let mut old = begin(&engine, OnConflict::Fail);
    let mut inside = begin(&engine, OnConflict::Latest);
    inside.put(id, &key(12), b"x").unwrap();
    let mut txn = begin(&engine, OnConflict::Latest);
    let taken = txn.tombstone(id, &range(10, 20), &[]);
    assert!(matches!(taken, Err(Error::LockTimeout { .. })), "{taken:?}");
    inside.abort();
    assert!(txn.tombstone(id, &range(10, 20), &[]).unwrap());
    let mut waits = begin(&engine, OnConflict::Latest);
    for number in [10, 19] {
        let taken = waits.put(id, &key(number), b"x");
        assert!(matches!(taken, Err(Error::LockTimeout { .. })), "{taken:?}");
    }
    waits.put(id, &key(20), b"x").unwrap();
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    waits.put(id, &key(19), b"x").unwrap();
    waits.commit(Durability::Buffered).unwrap().durable().unwrap();
    // Also where there was nothing.
    for number in [10, 15] {
        let refused = old.put(id, &key(number), b"x");
        assert!(matches!(refused, Err(Error::WriteConflict)), "{refused:?}");
    }
    old.put(id, &key(25), b"x").unwrap();
    assert!(!old.tombstone(id, &range(0, 5), &[]).unwrap(), "others have written since");
}

#[test]
fn a_transaction_that_has_written_there_is_told_to_go_one_by_one() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), options()).unwrap();
    let (id, other) = (filled(&engine, 10), filled(&engine, 10));
    let mut txn = begin(&engine, OnConflict::Latest);
    txn.put(id, &key(99), b"x").unwrap();
    assert!(!txn.tombstone(id, &range(0, 5), &[]).unwrap());
    assert!(txn.tombstone(other, &range(0, 5), &[]).unwrap());
    let made = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    assert!(!txn.tombstone(made, &range(0, 5), &[]).unwrap());
    let long = KeyRange { lower: Bound::Included(vec![1; 5000]), upper: Bound::Unbounded };
    let third = filled(&engine, 1);
    assert!(!txn.tombstone(third, &long, &[]).unwrap());
    txn.drop_dictionary(other).unwrap();
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    check(&engine.snapshot(), id, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 99], 100);
}

#[test]
fn parts_of_keys_are_compared_and_the_next_start_knows() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), options()).unwrap();
    let id = filled(&engine, 600);
    let mut txn = begin(&engine, OnConflict::Latest);
    let even = KeyRange { lower: Bound::Included(vec![4]), upper: Bound::Included(vec![6]) };
    assert!(txn.tombstone(id, &even, b"last").unwrap());
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    let left: Vec<u32> = (0..600).filter(|number| !(4..=6).contains(&(number % 256))).collect();
    check(&engine.snapshot(), id, &left, 600);
    drop(engine);
    sim.crash();
    let without = open(&sim.reboot(), tiny());
    assert!(matches!(without, Err(Error::InvalidOption(_))), "what was deleted would be shown");
    let engine = open(&sim.os(), options()).unwrap();
    check(&engine.snapshot(), id, &left, 600);
    engine.checkpoint().unwrap();
    drop(engine);
    sim.crash();
    let engine = open(&sim.reboot(), options()).unwrap();
    check(&engine.snapshot(), id, &left, 600);
    settle(&engine, &sim);
    check(&engine.snapshot(), id, &left, 600);
    engine.checkpoint().unwrap();
    engine.close().unwrap();
    // Swept and gone: nothing needs to know of parts any more.
    let engine = open(&sim.os(), tiny()).unwrap();
    check(&engine.snapshot(), id, &left, 600);
    engine.verify_all().unwrap();
}

#[test]
fn a_dictionary_takes_only_so_many_until_they_are_swept() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), options()).unwrap();
    let id = filled(&engine, 400);
    let held = engine.snapshot();
    let mut taken = 0;
    for at in 0..100 {
        let mut txn = begin(&engine, OnConflict::Latest);
        if txn.tombstone(id, &range(at * 4, at * 4 + 2), &[]).unwrap() {
            taken += 1;
        }
        txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    }
    assert_eq!(taken, 64);
    let left: Vec<u32> = (0..400).filter(|n| n / 4 >= 64 || n % 4 >= 2).collect();
    check(&engine.snapshot(), id, &left, 400);
    settle(&engine, &sim);
    check(&held, id, &(0..400).collect::<Vec<_>>(), 400);
    drop(held);
    settle(&engine, &sim);
    let mut txn = begin(&engine, OnConflict::Latest);
    assert!(txn.tombstone(id, &KeyRange::all(), &[]).unwrap(), "there is room again");
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    settle(&engine, &sim);
    check(&engine.snapshot(), id, &[], 400);
}

#[test]
fn who_locks_ranges_that_he_reads_is_not_passed_over() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), options()).unwrap();
    let id = filled(&engine, 30);
    let reader = engine.begin_serializable(None).unwrap();
    let mut cursor = reader.cursor(id, range(0, 9), Direction::Forward).unwrap();
    cursor.next().unwrap();
    let mut txn = begin(&engine, OnConflict::Latest);
    for part in [&b""[..], b"last"] {
        let taken = txn.tombstone(id, &range(5, 20), part);
        assert!(matches!(taken, Err(Error::LockTimeout { .. })), "{taken:?}");
    }
    assert!(txn.tombstone(id, &range(9, 20), &[]).unwrap());
    let left: Vec<u32> = (0..9).chain(20..30).collect();
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    check(&engine.snapshot(), id, &left, 30);
}
