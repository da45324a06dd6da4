//! Threads move money between accounts; at every snapshot the sum is what it was.

use crate::{open, tiny};
use engine::{
    Background, DictionaryId, DictionaryOptions, Direction, Durability, Engine, Error, KeyRange,
    OnConflict, TxnOptions,
};
use os::{Os, sim::SimOs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const ACCOUNTS: u64 = 20;
const EACH: u64 = 1000;

fn amount(value: Option<engine::Value>) -> u64 {
    u64::from_le_bytes(value.expect("every account is there")[..8].try_into().unwrap())
}

/// One account is in two dictionaries; each holds half of the keys.
fn place(dictionaries: [DictionaryId; 2], account: u64) -> (DictionaryId, [u8; 8]) {
    (dictionaries[(account % 2) as usize], account.to_be_bytes())
}

fn transfer(
    engine: &Engine,
    dictionaries: [DictionaryId; 2],
    from: u64,
    to: u64,
    on_conflict: OnConflict,
) -> engine::Result<()> {
    let mut txn = engine.begin(TxnOptions { on_conflict, lock_timeout: None });
    let (from, to) = (place(dictionaries, from), place(dictionaries, to));
    let have = amount(txn.get_for_update(from.0, &from.1)?);
    let other = amount(txn.get_for_update(to.0, &to.1)?);
    if have == 0 {
        return Ok(());
    }
    txn.put(from.0, &from.1, &(have - 1).to_le_bytes())?;
    txn.put(to.0, &to.1, &(other + 1).to_le_bytes())?;
    let durability =
        if have.is_multiple_of(16) { Durability::Synced } else { Durability::Buffered };
    txn.commit(durability)?.durable().map(drop)
}

fn sum(engine: &Engine, dictionaries: [DictionaryId; 2], direction: Direction) -> u64 {
    let snapshot = engine.snapshot();
    let look = || {
        let mut seen = Vec::new();
        for dictionary in dictionaries {
            let mut cursor = snapshot.cursor(dictionary, KeyRange::all(), direction).unwrap();
            while let Some((key, value)) = cursor.next().unwrap() {
                seen.push((key[7], u64::from_le_bytes(value[..8].try_into().unwrap())));
            }
        }
        seen
    };
    let seen = look();
    let sum = seen.iter().map(|(_, amount)| amount).sum();
    if sum != ACCOUNTS * EACH {
        let at = snapshot.timestamp();
        panic!("sum {sum} at {at:?} {direction:?}: {seen:?}, then {:?}", look());
    }
    sum
}

fn run(on_conflict: OnConflict) {
    let disk = SimOs::new(3).os();
    let os = Os { vfs: disk.vfs, ..Os::real() };
    let mut options = tiny();
    options.background = Background::Threads;
    options.lock_timeout = Duration::from_secs(20);
    options.checkpoint_period = Duration::from_millis(300);
    options.cleaner_period = Duration::from_millis(100);
    options.log_flush_period = Duration::from_millis(20);
    let engine = open(&os, options.clone()).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    let other = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    let dictionaries = [DictionaryId::ROOT, other];
    for account in 0..ACCOUNTS {
        let (dictionary, key) = place(dictionaries, account);
        txn.put(dictionary, &key, &EACH.to_le_bytes()).unwrap();
    }
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    let done = AtomicBool::new(false);
    let (moved, conflicts) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|thread| {
                let (engine, moved, conflicts) = (&engine, &moved, &conflicts);
                scope.spawn(move || {
                    let mut state = 0x0139_408d_cbbf_7a44 ^ (thread << 40);
                    for _ in 0..400 * crate::scale() {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        let (from, to) = (state % ACCOUNTS, (state >> 20) % ACCOUNTS);
                        if from == to {
                            continue;
                        }
                        match transfer(engine, dictionaries, from, to, on_conflict) {
                            Ok(()) => moved.fetch_add(1, Ordering::Relaxed),
                            Err(Error::WriteConflict | Error::Deadlock) => {
                                conflicts.fetch_add(1, Ordering::Relaxed)
                            }
                            Err(error) => panic!("{error}"),
                        };
                    }
                })
            })
            .collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let (engine, done) = (&engine, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(sum(engine, dictionaries, direction), ACCOUNTS * EACH);
                }
            });
        }
        for writer in writers {
            let result = writer.join();
            done.store(true, Ordering::Relaxed);
            result.unwrap();
        }
    });
    assert!(moved.load(Ordering::Relaxed) > 100, "some transfers must have happened");
    assert_eq!(engine.stats().locks.timeouts, 0, "every deadlock is found at once");
    engine.verify_all().unwrap();
    drop(engine);
    let engine = open(&os, options).unwrap();
    assert_eq!(sum(&engine, dictionaries, Direction::Forward), ACCOUNTS * EACH);
}

#[test]
fn sum_never_changes_where_conflicts_fail() {
    run(OnConflict::Fail);
}

#[test]
fn sum_never_changes_where_writers_go_on_over_the_newest() {
    run(OnConflict::Latest);
}
