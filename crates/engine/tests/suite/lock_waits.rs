//! Statements that wait for their first lock on no thread, and are run again.

use super::{open, tiny};
use engine::{
    Deferring, DictionaryId, DictionaryOptions, Durability, Engine, EngineTxn, Error, LockWait,
    OnConflict, PlantedBug, TxnOptions,
};
use os::sim::SimOs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_hours(1);

fn begin(engine: &Engine) -> EngineTxn {
    let options = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: Some(LONG) };
    engine.begin(options)
}

fn dictionary(engine: &Engine) -> DictionaryId {
    let mut txn = begin(engine);
    let id = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    txn.commit(Durability::Buffered).unwrap().visible();
    id
}

/// A statement that adds to a number; whether it waits for the lock of its key.
fn add(engine: &Engine, at: DictionaryId, goes_on: Option<LockWait>) -> Option<LockWait> {
    let deferring = Deferring::begin(true, goes_on);
    let run = || {
        let mut txn = begin(engine);
        txn.lock(at, b"n")?;
        let before = txn.get_for_update(at, b"n")?.map_or(0, |value| value[0]);
        txn.put(at, b"n", &[before + 1])?;
        txn.commit(Durability::Buffered)
    };
    match run() {
        Ok(committed) => {
            committed.visible();
            assert!(deferring.end().is_none(), "it is done");
            None
        }
        Err(Error::Queued) => Some(deferring.end().unwrap()),
        Err(error) => panic!("{error}"),
    }
}

fn number(engine: &Engine, at: DictionaryId) -> u8 {
    engine.snapshot().get(at, b"n").unwrap().map_or(0, |value| value[0])
}

fn ids(engine: &Engine) -> Vec<u64> {
    engine.live_transactions().iter().map(|txn| txn.id).collect()
}

#[test]
fn statement_that_waits_is_run_again_as_the_same_transaction_and_in_order() {
    let engine = open(&SimOs::new(1).os(), tiny()).unwrap();
    let at = dictionary(&engine);
    let mut holder = begin(&engine);
    holder.put(at, b"n", &[10]).unwrap();
    let mut waiting: Vec<LockWait> = (0..3).map(|_| add(&engine, at, None).unwrap()).collect();
    let open_ids = ids(&engine);
    assert_eq!(open_ids.len(), 4, "they stay among those that are open");
    assert!(waiting.iter().all(|wait| wait.until().is_some()));
    let called = Arc::new(AtomicU32::new(0));
    for (wait, mark) in waiting.iter().zip([1, 10, 100]) {
        let called = Arc::clone(&called);
        let call = Arc::new(move || {
            called.fetch_add(mark, Ordering::SeqCst);
        });
        wait.call_when_settled(call);
    }
    // Run again for no reason it waits on, in its place.
    let first = add(&engine, at, Some(waiting.remove(0))).unwrap();
    assert_eq!((ids(&engine), called.load(Ordering::SeqCst)), (open_ids, 0));
    holder.commit(Durability::Buffered).unwrap().visible();
    assert_eq!(called.load(Ordering::SeqCst), 1, "the first, and nobody else");
    assert!(add(&engine, at, Some(waiting.remove(0))).is_some(), "not before the first");
    assert_eq!(number(&engine, at), 10);
    assert!(add(&engine, at, Some(first)).is_none());
    assert_eq!((number(&engine, at), waiting.len()), (11, 1));
    // The second has been given up: the third has its turn.
    assert!(add(&engine, at, Some(waiting.remove(0))).is_none());
    assert_eq!((number(&engine, at), ids(&engine).len()), (12, 0));
    assert_eq!(engine.stats().locks.bytes, 0);
}

#[test]
fn who_has_done_something_or_holds_a_lock_waits_on_its_thread() {
    each_waits_on_its_thread(None);
}

#[test]
#[should_panic(expected = "it has done nothing")]
fn what_has_committed_and_is_run_again_is_found() {
    each_waits_on_its_thread(Some(PlantedBug::RunsAgainAfterCommits));
}

fn each_waits_on_its_thread(planted: Option<PlantedBug>) {
    let mut options = tiny();
    options.sizes.planted = planted;
    let engine = open(&SimOs::new(2).os(), options).unwrap();
    let at = dictionary(&engine);
    let mut holder = begin(&engine);
    holder.put(at, b"n", &[10]).unwrap();
    let refused = |result: engine::Result<()>| matches!(result, Err(Error::LockTimeout { .. }));
    // Without a word there is no queue.
    assert!(refused(begin(&engine).lock(at, b"n")));
    let deferring = Deferring::begin(false, None);
    assert!(refused(begin(&engine).lock(at, b"n")));
    assert!(deferring.end().is_none());
    let deferring = Deferring::begin(true, None);
    let mut txn = begin(&engine);
    txn.lock(at, b"other").unwrap();
    assert!(refused(txn.lock(at, b"n")), "it holds a lock");
    drop(txn);
    let mut txn = begin(&engine);
    txn.write_covered(at, b"covered", Some(b"x")).unwrap();
    assert!(refused(txn.lock(at, b"n")), "it has written");
    txn.commit(Durability::Buffered).unwrap().visible();
    assert!(refused(begin(&engine).lock(at, b"n")), "its thread has committed");
    assert!(deferring.end().is_none());
    // A statement that is run again and needs something else gives its place up.
    let wait = add(&engine, at, None).unwrap();
    let deferring = Deferring::begin(true, Some(wait));
    let mut txn = begin(&engine);
    txn.put(at, b"another", b"x").unwrap();
    txn.commit(Durability::Buffered).unwrap().visible();
    assert!(deferring.end().is_none());
    let wait = add(&engine, at, None).unwrap();
    assert_eq!(ids(&engine).len(), 2);
    drop(wait);
    assert_eq!(ids(&engine), [holder.id()]);
    drop(holder);
    assert_eq!((engine.stats().locks.bytes, number(&engine, at)), (0, 0));
}

#[test]
fn statement_that_is_killed_while_it_waits_fails() {
    let engine = open(&SimOs::new(3).os(), tiny()).unwrap();
    let at = dictionary(&engine);
    let mut holder = begin(&engine);
    holder.put(at, b"n", &[10]).unwrap();
    let wait = add(&engine, at, None).unwrap();
    let killed = ids(&engine).into_iter().find(|id| *id != holder.id()).unwrap();
    assert!(engine.kill_transaction(killed));
    let deferring = Deferring::begin(true, Some(wait));
    let mut txn = begin(&engine);
    assert_eq!(txn.id(), killed);
    assert!(matches!(txn.lock(at, b"n"), Err(Error::Interrupted)));
    drop(txn);
    assert!(deferring.end().is_none());
    assert_eq!(ids(&engine), [holder.id()]);
}
