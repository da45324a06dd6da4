//! Commits that are complete and not yet to be seen: no reader, drain, checkpoint or history sees them
//! before they are said to be committed.

use crate::{open, tiny};
use engine::{
    CommitState, DictionaryId, Direction, Durability, Engine, EntryKind, Error, HistoryOptions,
    KeyRange, OnConflict, Options, Showing, Snapshot, Timestamp, TxnOptions,
};
use os::Os;
use os::sim::{SimOs, Survival};
use std::collections::BTreeMap;
use std::time::Duration;

const ROOT: DictionaryId = DictionaryId::ROOT;

pub(crate) fn member() -> Options {
    let history = HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO };
    Options { history: Some(history), showing: Showing::Committed, ..tiny() }
}

/// Commits one value; says under which timestamp. Nobody is waited for.
pub(crate) fn put(engine: &Engine, key: &str, value: &str) -> u64 {
    let mut txn = engine.begin_newest(latest());
    txn.put(ROOT, key.as_bytes(), value.as_bytes()).unwrap();
    txn.submit().unwrap().timestamp().0
}

pub(crate) fn latest() -> TxnOptions {
    TxnOptions { on_conflict: OnConflict::Latest, ..TxnOptions::default() }
}

pub(crate) fn all(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let mut cursor = snapshot.cursor(ROOT, KeyRange::all(), Direction::Forward).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut all = BTreeMap::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        all.insert(text(key), text(value));
    }
    all
}

fn seen(engine: &Engine) -> BTreeMap<String, String> {
    all(&engine.snapshot())
}

pub(crate) fn entries<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

fn fresh() -> (SimOs, Os, Engine) {
    let sim = SimOs::new(7);
    let os = sim.os();
    let engine = open(&os, member()).unwrap();
    (sim, os, engine)
}

#[test]
fn an_empty_directory_becomes_one_that_holds_back() {
    let sim = SimOs::new(8);
    let os = sim.os();
    let alone = Options { showing: Showing::Complete, ..member() };
    let engine = open(&os, alone.clone()).unwrap();
    engine.hold_back().unwrap();
    engine.hold_back().unwrap();
    engine.begin_entries((1, 1), b"one").unwrap();
    let first = put(&engine, "a", "1");
    assert_eq!(seen(&engine), BTreeMap::new());
    engine.advance_commit_point(Timestamp(first)).unwrap();
    assert_eq!(seen(&engine), entries([("a", "1")]));
    engine.close().unwrap();
    drop(engine);
    let engine = open(&os, member()).unwrap();
    assert_eq!(engine.entries().last.index, 1, "what no entry closes is gone");

    let other = SimOs::new(9);
    let engine = open(&other.os(), alone).unwrap();
    let _commit = put(&engine, "a", "1");
    assert!(matches!(engine.hold_back(), Err(Error::InvalidOption(_))), "there is a commit");
}

#[test]
fn readers_see_what_is_committed_and_statements_that_write_what_is_complete() {
    let (_sim, _os, engine) = fresh();
    let first = put(&engine, "a", "1");
    let second = put(&engine, "a", "2");
    assert_eq!((engine.visible().timestamp().0, engine.complete().timestamp().0), (0, second));
    assert_eq!(seen(&engine), entries([]));
    engine.advance_commit_point(Timestamp(first)).unwrap();
    assert_eq!(seen(&engine), entries([("a", "1")]));
    assert_eq!(engine.begin_newest(latest()).get(ROOT, b"a").unwrap().unwrap()[..], b"2"[..]);
    assert_eq!(engine.begin(latest()).get(ROOT, b"a").unwrap().unwrap()[..], b"1"[..]);
    // What is not complete yet is seen as soon as it is.
    engine.advance_commit_point(Timestamp(second + 1)).unwrap();
    assert_eq!(seen(&engine), entries([("a", "2")]));
    put(&engine, "b", "3");
    assert_eq!(seen(&engine), entries([("a", "2"), ("b", "3")]));
    engine.advance_commit_point(Timestamp(1)).unwrap();
    assert_eq!(engine.visible().timestamp().0, second + 1, "visible never falls");
}

#[test]
fn engine_that_shows_all_takes_no_word_for_it() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    assert!(matches!(engine.advance_commit_point(Timestamp(1)), Err(Error::InvalidOption(_))));
    let without_history = Options { history: None, ..member() };
    let opened = open(&SimOs::new(2).os(), without_history);
    assert!(matches!(opened, Err(Error::InvalidOption(_))));
    assert_eq!(put(&engine, "a", "1"), engine.visible().timestamp().0);
}

#[test]
fn snapshot_transaction_that_meets_an_invisible_commit_has_a_conflict() {
    let (_sim, _os, engine) = fresh();
    let timestamp = put(&engine, "a", "1");
    // The keys of a commit that is released are remembered as long as it is not visible.
    for looks_at_the_tree in [false, true] {
        let mut txn = engine.begin(TxnOptions::default());
        if looks_at_the_tree {
            engine.step().unwrap();
        }
        assert!(matches!(txn.put(ROOT, b"a", b"x"), Err(Error::WriteConflict)));
    }
    engine.advance_commit_point(Timestamp(timestamp)).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(ROOT, b"a", b"2").unwrap();
}

#[test]
fn submitted_commits_are_told_what_became_of_them() {
    let (_sim, _os, engine) = fresh();
    let submit = |key: &str| {
        let mut txn = engine.begin_newest(latest());
        txn.put(ROOT, key.as_bytes(), b"v").unwrap();
        txn.submit().unwrap()
    };
    let (first, second) = (submit("a"), submit("b"));
    assert_eq!((first.state(), second.state()), (CommitState::Pending, CommitState::Pending));
    engine.advance_commit_point(first.timestamp()).unwrap();
    assert_eq!((first.state(), second.state()), (CommitState::Visible, CommitState::Pending));
    first.wait().unwrap();
    engine.ask_while_waiting(|| false);
    assert!(matches!(second.wait(), Err(Error::Undecided)), "the operation may not wait");
    let seen = engine.begin_newest(latest()).seen();
    assert_eq!(seen.timestamp(), second.timestamp());
    assert!(matches!(engine.wait_visible(seen), Err(Error::Undecided)));
    engine.advance_commit_point(second.timestamp()).unwrap();
    second.wait().unwrap();
    engine.wait_visible(seen).unwrap();
}

#[test]
fn commit_returns_when_it_is_visible() {
    let (_sim, _os, engine) = fresh();
    let mut txn = engine.begin_newest(latest());
    txn.put(ROOT, b"a", b"1").unwrap();
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| {
            let mut told = None;
            let committed = txn.commit_with(Durability::Synced, |timestamp| told = Some(timestamp));
            (committed.unwrap().durable().unwrap(), told)
        });
        while engine.complete().timestamp().0 == 0 {
            std::thread::yield_now();
        }
        assert!(!commit.is_finished());
        engine.advance_commit_point(Timestamp(1)).unwrap();
        assert_eq!(commit.join().unwrap(), (Timestamp(1), Some(Timestamp(1))));
    });
}

#[test]
fn nothing_invisible_goes_to_disk() {
    let (sim, _os, engine) = fresh();
    let mut newest = 0;
    for n in 0..400 {
        newest = put(&engine, &format!("key {n:04}"), &"x".repeat(200));
        engine.step().unwrap();
    }
    assert_eq!(engine.stats().drains, 0, "no sealed memtable is all visible");
    engine.checkpoint().unwrap();
    assert_eq!(engine.stats().last_checkpoint.unwrap().0, Timestamp(0));
    engine.advance_commit_point(Timestamp(newest / 2)).unwrap();
    while engine.step().unwrap() {}
    assert!(engine.stats().drains > 0, "what became visible is drained");
    engine.checkpoint().unwrap();
    engine.verify_all().unwrap();
    // The start knows of no more than the checkpoint holds; the rest is complete, as it was.
    // What no entry closes would go.
    engine.close_entry((1, 1), EntryKind::Records, b"", 0).unwrap().unwrap();
    engine.sync().unwrap();
    let os = sim.reboot_with(Survival::Nothing);
    drop(engine);
    let engine = open(&os, member()).unwrap();
    assert_eq!(engine.visible().timestamp().0, newest / 2);
    assert_eq!(engine.complete().timestamp().0, newest);
    assert_eq!(seen(&engine).len() as u64, newest / 2);
    engine.advance_commit_point(Timestamp(newest)).unwrap();
    assert_eq!(seen(&engine).len() as u64, newest);
    engine.close().unwrap();
    let engine = open(&os, member()).unwrap();
    assert_eq!(seen(&engine).len() as u64, newest);
}

#[test]
fn large_transaction_stays_above_the_tree_until_it_is_visible() {
    let (_sim, _os, engine) = fresh();
    let mut txn = engine.begin_newest(latest());
    for n in 0..100 {
        txn.put(ROOT, format!("key {n:04}").as_bytes(), &[b'x'; 100]).unwrap();
    }
    let submitted = txn.submit().unwrap();
    assert!(engine.stats().spills > 0);
    while engine.step().unwrap() {}
    assert_eq!((engine.stats().drains, seen(&engine).len()), (0, 0));
    engine.advance_commit_point(submitted.timestamp()).unwrap();
    while engine.step().unwrap() {}
    assert!(engine.stats().drains > 0);
    assert_eq!(seen(&engine).len(), 100);
}

#[test]
fn history_ends_at_what_is_visible() {
    let (_sim, _os, engine) = fresh();
    let history = engine.history().unwrap();
    let mut tail = history.read_after(0).unwrap();
    let first = put(&engine, "a", "1");
    put(&engine, "b", "2");
    engine.sync().unwrap();
    assert_eq!(history.durable_time(), 0, "it is synced, and not visible");
    assert!(tail.next().unwrap().is_none());
    engine.advance_commit_point(Timestamp(first)).unwrap();
    assert_eq!(tail.next().unwrap().unwrap().timestamp.0, first);
    assert!(tail.next().unwrap().is_none());
    assert_eq!(history.newest().0.0, first);
}

#[test]
fn states_and_merges_are_kept_by_what_is_visible() {
    let (_sim, _os, engine) = fresh();
    for n in 0..300 {
        let newest = put(&engine, &format!("key {}", n % 10), &format!("{n:0200}"));
        if n == 99 {
            engine.advance_commit_point(Timestamp(newest)).unwrap();
        }
        engine.step().unwrap();
    }
    let expected: BTreeMap<_, _> =
        (0..10).map(|n| (format!("key {n}"), format!("{:0200}", 90 + n))).collect();
    while engine.step().unwrap() {}
    assert_eq!(seen(&engine), expected, "versions that readers see are there");
    engine.retain_states_since(Some(Timestamp(300)));
    assert!(engine.snapshot_at(Timestamp(101)).is_none(), "it is yet to come");
}
