//! Inserts, reads, walks and the seal at once, in every order shuttle finds.
//!
//! Run by `cargo xtask test --only interleavings`.

use super::*;
use shuttle::thread;

const SCHEDULES: usize = 150;

fn put(table: &MemTable, key: &[u8], ts: u64) -> bool {
    table.insert(key, table.hash(key), ts, Message::Put(key))
}

/// A table whose first leaf is nearly full, so that the threads split it.
fn nearly_full() -> Arc<MemTable> {
    let table = MemTable::new(&Arc::new(CacheTable::new(1 << 30)), &KeyHasher::fixed());
    for n in 0..44_u8 {
        assert!(put(&table, &[n * 5], 1));
    }
    Arc::new(table)
}

fn keys(iter: MemIter) -> Vec<Vec<u8>> {
    let mut iter = iter;
    let mut all = Vec::new();
    while let Some(entry) = iter.entry() {
        assert_eq!(entry.message.value(), Some(entry.key), "an entry is whole");
        all.push(entry.key.to_vec());
        iter.advance();
    }
    all
}

#[test]
fn writers_and_walkers_meet_in_a_splitting_leaf() {
    shuttle::check_random(
        || {
            let table = nearly_full();
            let writers: Vec<_> = (1..=2_u8)
                .map(|writer| {
                    let table = Arc::clone(&table);
                    thread::spawn(move || {
                        for n in 0..4_u8 {
                            let key = [n * 40 + writer];
                            assert!(put(&table, &key, 2));
                            let seen = table.get(&key, table.hash(&key), 2);
                            assert_eq!(seen.map(|(ts, _)| ts), Some(2), "a thread's own write");
                        }
                    })
                })
                .collect();
            let walker = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    let up = keys(MemIter::forward(Arc::clone(&table), None));
                    assert!(up.is_sorted_by(|a, b| a < b), "{up:?}");
                    assert!((0..44).all(|n| up.contains(&vec![n * 5])), "what was there: {up:?}");
                    let mut down = keys(MemIter::backward(Arc::clone(&table), None));
                    down.reverse();
                    assert!(down.is_sorted_by(|a, b| a < b), "{down:?}");
                    assert!((0..44).all(|n| down.contains(&vec![n * 5])), "{down:?}");
                })
            };
            for thread in writers.into_iter().chain([walker]) {
                thread.join().expect("no thread panics");
            }
            assert_eq!(keys(MemIter::forward(Arc::clone(&table), None)).len(), 52);
            assert_eq!(table.entries(), 52);
        },
        SCHEDULES,
    );
}

#[test]
fn versions_of_one_key_keep_their_order() {
    shuttle::check_random(
        || {
            let table =
                Arc::new(MemTable::new(&Arc::new(CacheTable::new(1 << 30)), &KeyHasher::fixed()));
            let threads: Vec<_> = [[1, 4], [2, 3], [5, 2]]
                .into_iter()
                .map(|stamps| {
                    let table = Arc::clone(&table);
                    thread::spawn(move || {
                        for ts in stamps {
                            assert!(put(&table, b"k", ts));
                            let (seen, _) =
                                table.get(b"k", table.hash(b"k"), ts).expect("it is there");
                            assert_eq!(seen, ts);
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().expect("no thread panics");
            }
            for ts in 1..=5 {
                assert_eq!(table.get(b"k", table.hash(b"k"), ts).map(|found| found.0), Some(ts));
            }
            assert_eq!(table.entries(), 5, "version 2 came twice and is there once");
        },
        SCHEDULES,
    );
}

/// What the drainer relies on: once sealed and quiescent, nothing comes any more.
#[test]
fn sealed_and_quiet_table_is_complete() {
    shuttle::check_random(
        || {
            let table =
                Arc::new(MemTable::new(&Arc::new(CacheTable::new(1 << 30)), &KeyHasher::fixed()));
            let writers: Vec<_> = (1..=2_u8)
                .map(|writer| {
                    let table = Arc::clone(&table);
                    thread::spawn(move || {
                        (0..3_u8).filter(|n| put(&table, &[writer, *n], 1)).count()
                    })
                })
                .collect();
            let sealer = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    table.seal(1);
                    while !table.is_quiescent() {
                        thread::yield_now();
                    }
                    keys(MemIter::forward(table, None)).len()
                })
            };
            let drained = sealer.join().expect("no thread panics");
            let inserted: usize =
                writers.into_iter().map(|writer| writer.join().expect("no panic")).sum();
            assert_eq!(drained, inserted, "the drainer saw all that was accepted");
        },
        SCHEDULES,
    );
}
