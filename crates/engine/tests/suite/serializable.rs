//! Serializable transactions: what they read stays as it was until they end.

use crate::{open, tiny};
use engine::{
    Cursor, DictionaryId, DictionaryOptions, Direction, Durability, Engine, Error, KeyRange,
    OnConflict, TxnOptions,
};
use os::Os;
use os::sim::SimOs;
use std::ops::Bound;
use std::time::Duration;

const NOW: Option<Duration> = Some(Duration::ZERO);
const LATEST: TxnOptions = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: NOW };

/// An engine with a dictionary that holds `a` to `e`.
fn filled() -> (Engine, DictionaryId) {
    let os = Os { vfs: SimOs::new(1).os().vfs, ..Os::real() };
    let engine = open(&os, tiny()).unwrap();
    let mut txn = engine.begin(LATEST);
    let dictionary = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    for key in [b"a", b"b", b"c", b"d", b"e"] {
        txn.put(dictionary, key, b"0").unwrap();
    }
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    (engine, dictionary)
}

fn put(engine: &Engine, dictionary: DictionaryId, key: &[u8]) -> Result<(), Error> {
    let mut txn = engine.begin(LATEST);
    txn.put(dictionary, key, b"1")?;
    txn.commit(Durability::Buffered)?.durable().map(drop)
}

fn between(lower: &[u8], upper: &[u8]) -> KeyRange {
    KeyRange { lower: Bound::Included(lower.to_vec()), upper: Bound::Included(upper.to_vec()) }
}

fn count(mut cursor: Cursor) -> usize {
    let mut found = 0;
    while cursor.next().unwrap().is_some() {
        found += 1;
    }
    found
}

fn is_locked<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::LockTimeout { .. }))
}

#[test]
fn key_that_was_read_does_not_change() {
    let (engine, dictionary) = filled();
    let txn = engine.begin_serializable(NOW).unwrap();
    assert_eq!(txn.get(dictionary, b"a").unwrap().unwrap()[..], b"0"[..]);
    assert!(txn.get(dictionary, b"x").unwrap().is_none());
    assert!(is_locked(&put(&engine, dictionary, b"a")));
    assert!(is_locked(&put(&engine, dictionary, b"x")), "nor does it appear");
    put(&engine, dictionary, b"b").unwrap();
    assert_eq!(txn.get(dictionary, b"b").unwrap().unwrap()[..], b"1"[..], "the newest state");
    drop(txn);
    put(&engine, dictionary, b"a").unwrap();
}

#[test]
fn no_phantom_comes_into_a_range_that_was_walked() {
    let (engine, dictionary) = filled();
    let txn = engine.begin_serializable(NOW).unwrap();
    let walk = || txn.cursor(dictionary, between(b"b", b"d"), Direction::Forward).unwrap();
    assert_eq!(count(walk()), 3);
    for (key, stays_out) in [(b"b" as &[u8], true), (b"cc", true), (b"d", true), (b"dd", false)] {
        assert_eq!(is_locked(&put(&engine, dictionary, key)), stays_out, "{key:?}");
    }
    assert_eq!(count(walk()), 3);
}

#[test]
fn write_skew_has_a_loser() {
    let (engine, dictionary) = filled();
    let mut one = engine.begin_serializable(NOW).unwrap();
    let mut two = engine.begin_serializable(NOW).unwrap();
    for txn in [&one, &two] {
        txn.get(dictionary, b"a").unwrap();
        txn.get(dictionary, b"b").unwrap();
    }
    assert!(is_locked(&one.put(dictionary, b"a", b"1")));
    assert!(is_locked(&two.put(dictionary, b"b", b"1")));
    two.abort();
    one.put(dictionary, b"a", b"1").unwrap();
    one.commit(Durability::Buffered).unwrap().durable().unwrap();
}

#[test]
fn covered_writes_meet_ranges_too() {
    let (engine, dictionary) = filled();
    let txn = engine.begin_serializable(NOW).unwrap();
    assert_eq!(count(txn.cursor(dictionary, KeyRange::all(), Direction::Forward).unwrap()), 5);
    let mut writer = engine.begin(LATEST);
    assert!(is_locked(&writer.write_covered(dictionary, b"f", Some(b"1"))));
    drop(txn);
    writer.write_covered(dictionary, b"f", Some(b"1")).unwrap();
    assert!(is_locked(&engine.begin_serializable(NOW)), "the writer took no lock for this");
    writer.commit(Durability::Buffered).unwrap().durable().unwrap();
    let txn = engine.begin_serializable(NOW).unwrap();
    assert_eq!(count(txn.cursor(dictionary, KeyRange::all(), Direction::Forward).unwrap()), 6);
}

#[test]
fn views_lock_for_their_transaction_and_end_with_it() {
    let (engine, dictionary) = filled();
    let mut txn = engine.begin_serializable(NOW).unwrap();
    txn.put(dictionary, b"bb", b"own").unwrap();
    let view = txn.view();
    assert_eq!(
        count(view.cursor(dictionary, between(b"a", b"c"), Direction::Backward).unwrap()),
        4
    );
    assert!(is_locked(&put(&engine, dictionary, b"ab")));
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert!(matches!(view.get(dictionary, b"a"), Err(Error::Interrupted)));
    assert!(view.cursor(dictionary, KeyRange::all(), Direction::Forward).is_err());
    drop(view);
    put(&engine, dictionary, b"ab").unwrap();
    assert!(engine.lock_requests(9).is_empty());
}

#[test]
fn what_is_read_to_be_changed_is_locked_for_one() {
    let (engine, dictionary) = filled();
    let one = engine.begin_serializable(NOW).unwrap();
    let two = engine.begin_serializable(NOW).unwrap();
    one.get_to_change(dictionary, b"a").unwrap();
    assert!(is_locked(&two.get(dictionary, b"a")));
    one.cursor_to_change(dictionary, between(b"c", b"d"), Direction::Forward).unwrap();
    assert!(is_locked(&two.cursor(dictionary, between(b"d", b"e"), Direction::Forward)));
    two.get(dictionary, b"e").unwrap();
}

#[test]
fn commit_under_an_exclusive_range_is_a_conflict_for_older_snapshots() {
    let (engine, dictionary) = filled();
    let mut older = engine.begin(TxnOptions { on_conflict: OnConflict::Fail, lock_timeout: NOW });
    let mut txn = engine.begin_serializable(NOW).unwrap();
    txn.cursor_to_change(dictionary, KeyRange::all(), Direction::Forward).unwrap();
    txn.put(dictionary, b"a", b"1").unwrap();
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert!(matches!(older.put(dictionary, b"a", b"2"), Err(Error::WriteConflict)));
    older.put(dictionary, b"b", b"2").unwrap();
}
