//! Threads that never touch the same key must never notice each other.

use crate::{open, scale, tiny};
use engine::{
    Background, DictionaryId, DictionaryOptions, Direction, Durability, Engine, KeyRange,
    OnConflict, TxnOptions,
};
use os::{Os, sim::SimOs};
use std::time::Duration;

const THREADS: u64 = 4;

fn key(thread: u64, n: u64) -> [u8; 8] {
    // Neighbours in the tree belong to different threads.
    (n * THREADS + thread).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn load(engine: &Engine, dictionaries: [DictionaryId; 2], thread: u64, rows: u64) {
    for first in (0..rows).step_by(20) {
        let mut txn =
            engine.begin(TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None });
        for n in first..first + 20 {
            let key = key(thread, n);
            let value = [thread.to_le_bytes(), n.to_le_bytes()].concat();
            assert!(txn.get(dictionaries[0], &key).unwrap().is_none(), "{thread}/{n} is not new");
            assert!(txn.insert(dictionaries[0], &key, &value).unwrap(), "{thread}/{n} is not new");
            txn.write_covered(dictionaries[1], &value, Some(&key)).unwrap();
        }
        txn.commit(Durability::Buffered).unwrap().durable().unwrap();
        let seen = engine.snapshot().get(dictionaries[0], &key(thread, first)).unwrap();
        assert_eq!(seen.unwrap()[..8], thread.to_le_bytes(), "own commits are seen at once");
    }
}

#[test]
fn inserts_of_different_keys_never_meet() {
    let disk = SimOs::new(4).os();
    let os = Os { vfs: disk.vfs, ..Os::real() };
    let mut options = tiny();
    options.background = Background::Threads;
    options.checkpoint_period = Duration::from_millis(200);
    options.cleaner_period = Duration::from_millis(50);
    let engine = open(&os, options.clone()).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    let second = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    let dictionaries = [DictionaryId::ROOT, second];
    let rows = 1000 * scale();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let engine = &engine;
            scope.spawn(move || load(engine, dictionaries, thread, rows));
        }
    });
    engine.verify_all().unwrap();
    drop(engine);
    let engine = open(&os, options).unwrap();
    for dictionary in dictionaries {
        for direction in [Direction::Forward, Direction::Backward] {
            let snapshot = engine.snapshot();
            let mut cursor = snapshot.cursor(dictionary, KeyRange::all(), direction).unwrap();
            let mut seen = 0;
            while cursor.next().unwrap().is_some() {
                seen += 1;
            }
            assert_eq!(seen, rows * THREADS);
        }
    }
    engine.close().unwrap();
}
