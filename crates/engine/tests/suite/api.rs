//! Single rules of the API, one test each.

use crate::{open, tiny};
use engine::{
    Background, Committed, Compression, DictionaryId, DictionaryOptions, Direction, Durability,
    Engine, Error, KeyRange, OnConflict, Options, Oversized, Timestamp, TxnOptions,
};
use os::Os;
use os::sim::{Fault, Faults, SimOs, Survival};
use std::cell::Cell;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

const ROOT: DictionaryId = DictionaryId::ROOT;
const LATEST: TxnOptions = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };

fn put(engine: &Engine, dictionary: DictionaryId, key: &[u8], value: &[u8]) -> Timestamp {
    let mut txn = engine.begin(LATEST);
    txn.put(dictionary, key, value).unwrap();
    txn.commit(Durability::Buffered).unwrap().durable().unwrap()
}

fn get(engine: &Engine, dictionary: DictionaryId, key: &[u8]) -> Option<Vec<u8>> {
    engine.snapshot().get(dictionary, key).unwrap().map(|value| value.to_vec())
}

fn keys(mut cursor: engine::Cursor) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some((key, _)) = cursor.next().unwrap() {
        found.push(key.to_vec());
    }
    found
}

fn simulated() -> Engine {
    open(&SimOs::new(1).os(), tiny()).unwrap()
}

#[test]
fn committed_values_are_read_and_deletes_hide_them() {
    let engine = simulated();
    put(&engine, ROOT, b"k", b"v");
    assert_eq!(get(&engine, ROOT, b"k"), Some(b"v".to_vec()));
    let mut txn = engine.begin(TxnOptions::default());
    txn.delete(ROOT, b"k").unwrap();
    assert_eq!(txn.get(ROOT, b"k").unwrap(), None);
    assert_eq!(get(&engine, ROOT, b"k"), Some(b"v".to_vec()), "not before the commit");
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    assert_eq!(get(&engine, ROOT, b"k"), None);
}

#[test]
fn commit_that_only_read_vouches_for_what_it_read() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    put(&engine, ROOT, b"k", b"not synced");
    let txn = engine.begin(TxnOptions::default());
    let seen = txn.get(ROOT, b"k").unwrap().map(|value| value.to_vec());
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    assert_eq!(get(&engine, ROOT, b"k"), seen);
}

#[test]
fn dropped_transaction_leaves_no_trace() {
    let engine = simulated();
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(ROOT, b"k", b"v").unwrap();
    txn.abort();
    assert_eq!(get(&engine, ROOT, b"k"), None);
    put(&engine, ROOT, b"k", b"w");
    assert_eq!(engine.stats().locks.bytes, 0);
    assert!(engine.live_transactions().is_empty());
}

#[test]
fn snapshot_sees_its_moment_for_ever() {
    let engine = simulated();
    put(&engine, ROOT, b"k", b"1");
    let snapshot = engine.snapshot();
    let clone = snapshot.clone();
    drop(snapshot);
    put(&engine, ROOT, b"k", b"2");
    assert_eq!(clone.get(ROOT, b"k").unwrap().unwrap()[..], b"1"[..]);
    let mut cursor = clone.cursor(ROOT, KeyRange::all(), Direction::Forward).unwrap();
    drop(clone);
    assert_eq!(cursor.next().unwrap(), Some((&b"k"[..], &b"1"[..])));
}

#[test]
fn first_committer_wins_under_fail() {
    let engine = simulated();
    let mut late = engine.begin(TxnOptions::default());
    put(&engine, ROOT, b"k", b"1");
    assert!(matches!(late.put(ROOT, b"k", b"2"), Err(Error::WriteConflict)));
    assert!(matches!(late.get_for_update(ROOT, b"k"), Err(Error::WriteConflict)));
    late.refresh_snapshot();
    late.put(ROOT, b"k", b"2").unwrap();
    late.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert_eq!(get(&engine, ROOT, b"k"), Some(b"2".to_vec()));
}

#[test]
fn latest_goes_on_over_the_newest_commit() {
    let engine = simulated();
    let mut late = engine.begin(LATEST);
    put(&engine, ROOT, b"k", b"1");
    assert_eq!(late.get(ROOT, b"k").unwrap(), None, "the snapshot is older");
    assert_eq!(late.get_for_update(ROOT, b"k").unwrap().unwrap()[..], b"1"[..]);
    late.put(ROOT, b"k", b"2").unwrap();
    late.commit(Durability::Buffered).unwrap().durable().unwrap();
}

#[test]
fn newest_version_is_read_at_once_only_where_its_lock_is_free() {
    let engine = simulated();
    let mut late = engine.begin(LATEST);
    put(&engine, ROOT, b"k", b"1");
    let found = late.get_for_update_at_once(ROOT, b"k").unwrap().expect("nobody holds it");
    assert_eq!(found.as_deref(), Some(&b"1"[..]), "newer than its snapshot");
    let mut other = engine.begin(LATEST);
    other.set_lock_timeout(Duration::ZERO);
    assert!(matches!(other.put(ROOT, b"k", b"2"), Err(Error::LockTimeout { .. })), "it is locked");
    assert!(other.get_for_update_at_once(ROOT, b"k").unwrap().is_none());
    late.put(ROOT, b"k", b"3").unwrap();
    late.commit(Durability::Buffered).unwrap().durable().unwrap();
    let found = other.get_for_update_at_once(ROOT, b"k").unwrap().expect("free again");
    assert_eq!(found.as_deref(), Some(&b"3"[..]));
    assert!(other.get_for_update_at_once(ROOT, b"none").unwrap().expect("free").is_none());
    other.put(ROOT, b"k", b"4").unwrap();
    assert!(other.get_for_update_at_once(ROOT, b"k").unwrap().is_none(), "it has written there");
    drop(other);
    let mut fails = engine.begin(TxnOptions::default());
    assert!(fails.get_for_update_at_once(ROOT, b"k").unwrap().is_none(), "it would be a conflict");
    assert_eq!(engine.stats().locks.bytes, 0, "who is told nothing has locked nothing");
}

#[test]
fn insert_refuses_a_key_that_is_there() {
    let engine = simulated();
    let mut txn = engine.begin(LATEST);
    assert!(txn.insert(ROOT, b"k", b"1").unwrap());
    assert!(!txn.insert(ROOT, b"k", b"2").unwrap());
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    let mut txn = engine.begin(LATEST);
    assert!(!txn.insert(ROOT, b"k", b"3").unwrap());
    txn.delete(ROOT, b"k").unwrap();
    assert!(txn.insert(ROOT, b"k", b"4").unwrap());
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert_eq!(get(&engine, ROOT, b"k"), Some(b"4".to_vec()));
}

#[test]
fn rollback_to_a_savepoint_undoes_later_writes_only() {
    let engine = simulated();
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(ROOT, b"a", b"1").unwrap();
    let savepoint = txn.savepoint();
    txn.put(ROOT, b"a", b"2").unwrap();
    txn.put(ROOT, b"b", b"2").unwrap();
    let created = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    txn.rollback_to(savepoint);
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert_eq!(get(&engine, ROOT, b"a"), Some(b"1".to_vec()));
    assert_eq!(get(&engine, ROOT, b"b"), None);
    assert!(matches!(engine.snapshot().get(created, b"a"), Err(Error::NoSuchDictionary(_))));
}

#[test]
fn cursor_merges_own_writes_as_of_its_opening() {
    let engine = simulated();
    for key in [b"b", b"d", b"f"] {
        put(&engine, ROOT, key, b"old");
    }
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(ROOT, b"a", b"own").unwrap();
    txn.put(ROOT, b"d", b"own").unwrap();
    txn.delete(ROOT, b"f").unwrap();
    txn.put(ROOT, b"g", b"own").unwrap();
    let forward = txn.cursor(ROOT, KeyRange::all(), Direction::Forward).unwrap();
    let mut backward = txn.cursor(ROOT, KeyRange::all(), Direction::Backward).unwrap();
    txn.put(ROOT, b"c", b"later").unwrap();
    assert_eq!(keys(forward), [b"a", b"b", b"d", b"g"]);
    assert_eq!(backward.next().unwrap(), Some((&b"g"[..], &b"own"[..])));
    assert_eq!(backward.next().unwrap(), Some((&b"d"[..], &b"own"[..])));
    backward.park();
    backward.seek(b"a").unwrap();
    assert_eq!(backward.next().unwrap(), Some((&b"a"[..], &b"own"[..])));
    assert_eq!(backward.next().unwrap(), None);
    let range =
        KeyRange { lower: Bound::Excluded(b"a".to_vec()), upper: Bound::Included(b"d".to_vec()) };
    assert_eq!(keys(txn.cursor(ROOT, range, Direction::Forward).unwrap()), [b"b", b"c", b"d"]);
}

#[test]
fn dictionaries_come_and_go_with_their_transaction() {
    let engine = simulated();
    let options = DictionaryOptions { compression: Compression::Lz4, ..Default::default() };
    let before = engine.snapshot();
    let mut txn = engine.begin(TxnOptions::default());
    let id = txn.create_dictionary(options).unwrap();
    txn.put(id, b"k", b"v").unwrap();
    assert_eq!(txn.get(id, b"k").unwrap().unwrap()[..], b"v"[..]);
    assert_eq!(keys(txn.cursor(id, KeyRange::all(), Direction::Forward).unwrap()), [b"k"]);
    assert!(matches!(engine.snapshot().get(id, b"k"), Err(Error::NoSuchDictionary(_))));
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert!(engine.dictionaries().contains(&(id, options)));
    assert!(before.get(id, b"k").is_err(), "older snapshots do not see it");
    let with = engine.snapshot();
    let mut txn = engine.begin(TxnOptions::default());
    txn.drop_dictionary(id).unwrap();
    assert!(txn.get(id, b"k").is_err());
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert_eq!(with.get(id, b"k").unwrap().unwrap()[..], b"v"[..]);
    assert!(engine.snapshot().get(id, b"k").is_err());
    engine.checkpoint().unwrap();
    assert_eq!(with.get(id, b"k").unwrap().unwrap()[..], b"v"[..]);
    drop(with);
    drop(before);
    engine.checkpoint().unwrap();
    assert_eq!(engine.dictionaries().len(), 1);
    let mut txn = engine.begin(TxnOptions::default());
    assert_ne!(txn.create_dictionary(options).unwrap(), id, "ids are never used again");
}

#[test]
fn dictionary_with_writers_cannot_be_dropped_under_them() {
    let engine = simulated();
    let mut creator = engine.begin(TxnOptions::default());
    let id = creator.create_dictionary(DictionaryOptions::default()).unwrap();
    creator.commit(Durability::Buffered).unwrap().durable().unwrap();
    let mut writer = engine.begin(TxnOptions::default());
    writer.put(id, b"k", b"v").unwrap();
    let mut dropper = engine.begin(TxnOptions::default());
    assert!(matches!(dropper.drop_dictionary(id), Err(Error::LockTimeout { .. })));
    writer.commit(Durability::Buffered).unwrap().durable().unwrap();
    dropper.drop_dictionary(id).unwrap();
    let mut writer = engine.begin(TxnOptions::default());
    assert!(matches!(writer.put(id, b"k", b"w"), Err(Error::LockTimeout { .. })));
    dropper.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert!(matches!(writer.put(id, b"k", b"w"), Err(Error::NoSuchDictionary(_))));
}

#[test]
fn covered_writes_take_no_lock() {
    let engine = simulated();
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(ROOT, b"record", b"v").unwrap();
    txn.write_covered(ROOT, b"index entry", Some(b"")).unwrap();
    assert_eq!(engine.lock_requests(10).len(), 1);
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert_eq!(get(&engine, ROOT, b"index entry"), Some(Vec::new()));
}

#[test]
fn killed_transaction_fails_at_its_next_step() {
    let engine = simulated();
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(ROOT, b"k", b"v").unwrap();
    assert_eq!(engine.live_transactions().len(), 1);
    assert!(engine.kill_transaction(txn.id()));
    assert!(engine.live_transactions()[0].killed);
    assert!(matches!(txn.put(ROOT, b"l", b"v"), Err(Error::Interrupted)));
    assert!(matches!(txn.commit(Durability::Buffered), Err(Error::Interrupted)));
    assert!(!engine.kill_transaction(99));
    assert_eq!(get(&engine, ROOT, b"k"), None);
}

#[test]
fn too_large_is_refused_and_the_transaction_goes_on() {
    let engine = open(&SimOs::new(1).os(), tiny()).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(ROOT, b"k", &[0; 5000]).unwrap();
    let refused = txn.put(ROOT, b"l", &vec![0; engine::MAX_VALUE_BYTES + 1]).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { what: Oversized::Value, .. }));
    let refused = txn.put(ROOT, &vec![0; engine::MAX_KEY_BYTES + 1], b"").unwrap_err();
    assert!(matches!(refused, Error::TooLarge { what: Oversized::Key, .. }));
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert_eq!(get(&engine, ROOT, b"k").unwrap().len(), 5000);
}

#[test]
fn everything_is_there_after_a_clean_close() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    let id = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    for i in 0..500_u32 {
        put(&engine, id, &i.to_be_bytes(), &[i as u8; 100]);
    }
    engine.close().unwrap();
    assert!(matches!(engine.snapshot().get(id, b""), Err(Error::Stopped(_))));
    assert!(engine.begin(LATEST).put(id, b"k", b"v").is_err());
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    assert_eq!(engine.stats().recovered.operations, 0, "a clean close leaves nothing to replay");
    for i in 0..500_u32 {
        assert_eq!(get(&engine, id, &i.to_be_bytes()), Some(vec![i as u8; 100]));
    }
    engine.verify_all().unwrap();
}

#[test]
fn buffered_commits_are_there_after_the_process_dies_and_the_log_was_flushed() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    put(&engine, ROOT, b"k", b"v");
    engine.sync().unwrap();
    put(&engine, ROOT, b"l", b"v");
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    assert_eq!(get(&engine, ROOT, b"k"), Some(b"v".to_vec()));
    assert_eq!(get(&engine, ROOT, b"l"), None, "nobody asked for it to be synced");
}

#[test]
fn log_flush_period_of_zero_syncs_each_commit() {
    let sim = SimOs::new(1);
    let options = Options { log_flush_period: Duration::ZERO, ..tiny() };
    let engine = open(&sim.os(), options.clone()).unwrap();
    put(&engine, ROOT, b"k", b"v");
    let engine = open(&sim.reboot_with(Survival::Nothing), options).unwrap();
    assert_eq!(get(&engine, ROOT, b"k"), Some(b"v".to_vec()));
}

#[test]
fn step_flushes_the_log_and_writes_checkpoints_when_due() {
    let sim = SimOs::new(1);
    let options = Options { checkpoint_period: Duration::from_mins(1), ..tiny() };
    let engine = open(&sim.os(), options).unwrap();
    while engine.step().unwrap() {}
    put(&engine, ROOT, b"k", b"v");
    sim.advance(Duration::from_secs(2));
    assert!(engine.step().unwrap());
    let stats = engine.stats();
    assert_eq!(stats.log_synced, stats.log_end);
    let before = stats.checkpoints;
    sim.advance(Duration::from_mins(1));
    while engine.step().unwrap() {}
    assert_eq!(engine.stats().checkpoints, before + 1);
}

#[test]
fn checkpoint_is_due_when_the_log_has_grown() {
    let sim = SimOs::new(1);
    // Values of one byte again and again would make a short log.
    let period = Duration::from_hours(9);
    let options = Options { checkpoint_period: period, compress_log: false, ..tiny() };
    let cap = options.sizes.log_cap;
    let engine = open(&sim.os(), options).unwrap();
    for i in 0..500_u32 {
        put(&engine, ROOT, &i.to_be_bytes(), &[1; 200]);
        while engine.step().unwrap() {}
    }
    let stats = engine.stats();
    assert!(stats.checkpoints > 1, "{}", stats.checkpoints);
    let recovered = open(&sim.reboot_with(Survival::Everything), tiny()).unwrap().stats().recovered;
    assert!(recovered.log_bytes < 3 * cap, "{} bytes of log were replayed", recovered.log_bytes);
    assert!(recovered.commits < 500);
}

/// Memory for writes may grow to a quarter of the cache, where pages leave it.
fn sharing() -> Options {
    let mut options = Options { cache_size: 8 << 20, ..tiny() };
    options.sizes.frame_bytes = 0;
    options.sizes.most_write_budget = 2 << 20;
    options
}

#[test]
fn memory_for_writes_takes_what_the_cache_has_left_and_yields_to_pages() {
    let sim = SimOs::new(1);
    let options = sharing();
    let engine = open(&sim.os(), options).unwrap();
    while engine.step().unwrap() {}
    assert_eq!(engine.stats().write_budget, 2 << 20, "nobody else wants it");
    for round in 0..8_u8 {
        for i in 0..200_u32 {
            put(&engine, ROOT, &i.to_be_bytes(), &[round; 100]);
            engine.step().unwrap();
        }
    }
    assert_eq!(engine.stats().drains, 0, "what is written again and again stays in memory");
    for i in 0..12_000_u32 {
        put(&engine, ROOT, &i.to_be_bytes(), &[1; 1000]);
    }
    while engine.step().unwrap() {}
    for i in 0..12_000_u32 {
        assert!(engine.snapshot().get(ROOT, &i.to_be_bytes()).unwrap().is_some());
        if i % 10 == 0 {
            put(&engine, ROOT, b"written beside", &[1; 100]);
            while engine.step().unwrap() {}
        }
    }
    let budget = engine.stats().write_budget;
    assert!(budget < 512 << 10, "pages fill the cache, and {budget} bytes are left");
}

#[test]
fn memory_for_writes_that_shrinks_is_drained_though_nobody_writes() {
    let sim = SimOs::new(1);
    let mut options = sharing();
    options.sizes.log_cap = 64 << 20;
    let engine = open(&sim.os(), options.clone()).unwrap();
    for i in 0..12_000_u32 {
        put(&engine, ROOT, &i.to_be_bytes(), &[1; 1000]);
        while engine.step().unwrap() {}
    }
    engine.close().unwrap();
    let engine = open(&sim.os(), options).unwrap();
    while engine.step().unwrap() {}
    for i in 0..700_u32 {
        put(&engine, ROOT, &i.to_be_bytes(), &[2; 1000]);
        while engine.step().unwrap() {}
    }
    assert_eq!(engine.stats().drains, 0, "the room is there");
    // What waits for room now wakes nobody: it is the shrinking that must drain.
    for i in 0..12_000_u32 {
        assert!(engine.snapshot().get(ROOT, &i.to_be_bytes()).unwrap().is_some());
        if i % 10 == 0 {
            while engine.step().unwrap() {}
        }
    }
    let stats = engine.stats();
    let (held, budget) = (stats.memtable_bytes, stats.write_budget);
    assert!(held <= budget, "{held} bytes of writes in a budget that pages shrank to {budget}");
}

#[test]
fn large_transactions_wait_where_memory_is_lent_and_nothing_is_left_to_evict() {
    let disk = SimOs::new(6).os();
    let os = Os { vfs: disk.vfs, ..Os::real() };
    let mut options = Options { cache_size: 16 << 20, ..sharing() };
    options.background = Background::Threads;
    options.sizes.write_budget = 1 << 20;
    options.sizes.most_write_budget = 14 << 20;
    options.sizes.memtable_bytes = 1 << 20;
    options.sizes.spill_bytes = 4 << 20;
    options.sizes.chunk_bytes = 1 << 20;
    options.sizes.log_segment_bytes = 4 << 20;
    options.sizes.log_cap = 64 << 20;
    let engine = open(&os, options).unwrap();
    while engine.stats().write_budget < 12 << 20 {
        std::thread::sleep(Duration::from_millis(10));
    }
    engine.lend_memory(12 << 20);
    for i in 0..60_u32 {
        put(&engine, ROOT, &i.to_be_bytes(), &vec![1; 300 << 10]);
        let (_, parts) = engine.memory();
        let held = parts.iter().find(|(name, _)| *name == "memtables").map_or(0, |(_, held)| held);
        assert!(held <= 5 << 20, "{held} bytes where four megabytes are left");
    }
}

#[test]
fn cleaner_drops_what_an_ended_snapshot_kept() {
    let sim = SimOs::new(1);
    let options = Options { cleaner_period: Duration::from_secs(1), ..tiny() };
    let engine = open(&sim.os(), options).unwrap();
    let write_all = |value: u8| {
        for i in 0..400_u32 {
            put(&engine, ROOT, &i.to_be_bytes(), &[value; 100]);
            while engine.step().unwrap() {}
        }
    };
    let clean = || {
        for _ in 0..300 {
            sim.advance(Duration::from_secs(2));
            while engine.step().unwrap() {}
        }
    };
    let entries = || engine.dictionary_stats(ROOT).unwrap().entries;
    write_all(1);
    let snapshot = engine.snapshot();
    write_all(2);
    clean();
    let kept = entries();
    assert!(kept > 600, "the snapshot needs the old versions: {kept} entries");
    drop(snapshot);
    clean();
    let left = entries();
    assert!(left < 500, "nobody needs the old versions: {left} entries");
}

#[test]
fn idle_engine_drains_its_memory() {
    // How much of 3 MB is still in memory only, a minute after it was written?
    let left = |cleaner_period: Duration, reads_per_round: usize, writes_per_round: u8| {
        let sim = SimOs::new(1);
        let mut options = Options::new("/data");
        options.background = Background::Manual;
        (options.cleaner_period, options.cleaner_iterations) = (cleaner_period, 1);
        options.checkpoint_period = Duration::ZERO;
        let engine = open(&sim.os(), options).unwrap();
        for i in 0..3000_u32 {
            put(&engine, ROOT, &i.wrapping_mul(0x9E37_79B9).to_be_bytes(), &[1; 1000]);
        }
        for _ in 0..60 {
            sim.advance(Duration::from_secs(1));
            for _ in 0..reads_per_round {
                get(&engine, ROOT, b"nothing");
            }
            for i in 0..writes_per_round {
                put(&engine, ROOT, &[i], b"again");
            }
            for _ in 0..10 {
                while engine.step().unwrap() {}
            }
        }
        engine.stats().memtable_bytes
    };
    let period = Duration::from_secs(2);
    assert!(left(period, 0, 0) < 100_000, "idle, it becomes leaves");
    assert!(left(period, 200, 0) < 100_000, "whoever reads, as nobody writes");
    assert!(left(period, 0, 5) < 100_000, "and where only the server itself does");
    assert!(left(period, 0, 20) > 2_000_000, "not while somebody writes");
    assert!(left(Duration::ZERO, 0, 0) > 2_000_000, "not without a cleaner");
}

#[test]
fn second_engine_on_the_same_directory_is_refused() {
    let os = SimOs::new(1).os();
    let engine = open(&os, tiny()).unwrap();
    assert!(matches!(open(&os, tiny()), Err(Error::Locked(_))));
    engine.close().unwrap();
    open(&os, tiny()).unwrap();
}

#[test]
fn directory_of_another_format_is_refused() {
    let os = SimOs::new(1).os();
    open(&os, tiny()).unwrap().close().unwrap();
    let path = std::path::Path::new("/data/FERNDB");
    let file = os.vfs.open(path, os::OpenOptions::default()).unwrap();
    file.write_all_at(b"FernDB data directory, format 9\n", 0).unwrap();
    assert!(matches!(open(&os, tiny()), Err(Error::InvalidOption(_))));
}

#[test]
fn settings_that_cannot_be_honoured_are_refused() {
    let os = SimOs::new(1).os();
    let options = Options { cache_size: 1000, ..tiny() };
    assert!(matches!(open(&os, options), Err(Error::InvalidOption(_))));
    let engine = simulated();
    let mut txn = engine.begin(LATEST);
    let shape = DictionaryOptions { compression: Compression::Zstd(99), ..Default::default() };
    assert!(matches!(txn.create_dictionary(shape), Err(Error::InvalidOption(_))));
}

#[test]
fn failed_log_sync_stops_writes_and_reads_go_on() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    put(&engine, ROOT, b"k", b"v");
    sim.set_faults(Faults { sync_error_ppm: 1_000_000, ..Faults::default() });
    assert!(matches!(engine.sync(), Err(Error::Stopped(_))));
    sim.set_faults(Faults::default());
    let mut txn = engine.begin(LATEST);
    txn.put(ROOT, b"l", b"v").unwrap();
    assert!(matches!(txn.commit(Durability::Synced), Err(Error::Stopped(_))));
    assert!(matches!(engine.checkpoint(), Err(Error::Stopped(_))));
    assert_eq!(get(&engine, ROOT, b"k"), Some(b"v".to_vec()));
    assert!(engine.stats().stopped.is_some());
    engine.close().unwrap();
}

#[test]
fn full_disk_refuses_writes_and_comes_back_by_itself() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    let used = sim.files().values().map(|bytes| bytes.len() as u64).sum::<u64>();
    sim.set_faults(Faults { capacity_bytes: used + (40 << 10), ..Faults::default() });
    let mut refused = None;
    let mut acknowledged = Vec::new();
    for i in 0..5000_u32 {
        let mut txn = engine.begin(LATEST);
        txn.put(ROOT, &i.to_be_bytes(), &[7; 300]).unwrap();
        match txn.commit(Durability::Synced).and_then(Committed::durable) {
            Ok(_) => acknowledged.push(i),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert!(matches!(refused, Some(Error::NoSpace(_))), "{refused:?}");
    assert!(!acknowledged.is_empty());
    assert_eq!(get(&engine, ROOT, &0_u32.to_be_bytes()), Some(vec![7; 300]));
    sim.set_faults(Faults::default());
    put(&engine, ROOT, b"again", b"v");
    engine.sync().unwrap();
    engine.checkpoint().unwrap();
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    for i in acknowledged {
        assert_eq!(get(&engine, ROOT, &i.to_be_bytes()), Some(vec![7; 300]), "{i}");
    }
    assert_eq!(get(&engine, ROOT, b"again"), Some(b"v".to_vec()));
    engine.verify_all().unwrap();
}

#[test]
fn close_that_finds_no_room_to_drain_keeps_what_is_in_the_log() {
    let sim = SimOs::new(3);
    let engine = open(&sim.os(), tiny()).unwrap();
    let mut txn = engine.begin(LATEST);
    let mut create = || txn.create_dictionary(DictionaryOptions::default()).unwrap();
    let dictionaries = [ROOT, create(), create()];
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    engine.checkpoint().unwrap();
    for dictionary in dictionaries {
        put(&engine, dictionary, b"not synced", b"v");
    }
    // The log is written and synced by two calls; draining takes one for each dictionary.
    sim.fault_at(sim.syscalls() + 3, Fault::NoSpace);
    let closed = engine.close();
    assert!(matches!(closed, Err(Error::NoSpace(_))), "{closed:?}");
    drop(engine);
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    for dictionary in dictionaries {
        assert_eq!(get(&engine, dictionary, b"not synced"), Some(b"v".to_vec()));
    }
}

#[test]
fn red_zone_refuses_writes_while_it_lasts() {
    let sim = SimOs::new(1);
    let options = Options { fs_redzone_percent: 50, ..tiny() };
    sim.set_faults(Faults { capacity_bytes: 1 << 20, ..Faults::default() });
    let engine = open(&sim.os(), options).unwrap();
    let used = sim.files().values().map(|bytes| bytes.len() as u64).sum::<u64>();
    sim.set_faults(Faults { capacity_bytes: used + used / 4, ..Faults::default() });
    sim.advance(Duration::from_secs(2));
    let _ = engine.step().unwrap();
    let mut txn = engine.begin(LATEST);
    txn.put(ROOT, b"k", b"v").unwrap();
    assert!(matches!(txn.commit(Durability::Buffered), Err(Error::NoSpace(_))));
    assert!(engine.stats().full);
    sim.set_faults(Faults::default());
    sim.advance(Duration::from_secs(2));
    let _ = engine.step().unwrap();
    put(&engine, ROOT, b"k", b"v");
}

#[test]
fn settings_hold_from_when_they_are_changed() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    let settings = engine.adjustable();
    let look = || {
        sim.advance(Duration::from_secs(2));
        while engine.step().unwrap() {}
    };
    let write = || {
        let mut txn = engine.begin(LATEST);
        txn.put(ROOT, b"k", b"v")?;
        txn.commit(Durability::Buffered)
    };
    // The red zone: none, half of the disk, none.
    let used = sim.files().values().map(|bytes| bytes.len() as u64).sum::<u64>();
    sim.set_faults(Faults { capacity_bytes: used + used / 4, ..Faults::default() });
    for (percent, refuses) in [(0, false), (50, true), (0, false)] {
        settings.set_fs_redzone_percent(percent);
        look();
        assert_eq!(matches!(write(), Err(Error::NoSpace(_))), refuses, "{percent} percent");
        assert_eq!(engine.stats().full, refuses, "{percent} percent");
    }
    sim.set_faults(Faults::default());
    // Checkpoints: never by time, then every second.
    look();
    let checkpoints = || engine.stats().checkpoints;
    for (period, comes) in [(0, false), (1, true)] {
        settings.set_checkpoint_period(Duration::from_secs(period));
        let before = checkpoints();
        write().unwrap().durable().unwrap();
        look();
        assert_eq!(checkpoints() > before, comes, "every {period} s");
    }
    // Commits that do not ask for the disk: synced each, where the log is flushed at each.
    settings.set_checkpoint_period(Duration::ZERO);
    settings.set_log_flush_period(Duration::ZERO);
    put(&engine, ROOT, b"synced", b"v");
    settings.set_log_flush_period(Duration::from_secs(1));
    put(&engine, ROOT, b"not synced", b"v");
    // Locks: a transaction that begins from now on does not wait, or does.
    let options = TxnOptions { lock_timeout: None, ..LATEST };
    let mut holder = engine.begin(options);
    holder.put(ROOT, b"held", b"v").unwrap();
    for wait in [Duration::ZERO, Duration::from_millis(20)] {
        settings.set_lock_timeout(wait);
        let mut late = engine.begin(options);
        let met = late.put(ROOT, b"held", b"w");
        let expected = wait.as_millis() as u64;
        assert!(
            matches!(met, Err(Error::LockTimeout { waited_ms, .. }) if waited_ms >= expected),
            "{met:?}"
        );
    }
    holder.abort();
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    assert_eq!(get(&engine, ROOT, b"synced"), Some(b"v".to_vec()));
    assert_eq!(get(&engine, ROOT, b"not synced"), None);
}

#[test]
fn write_error_of_the_log_stops_the_engine() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    sim.fault_at(sim.syscalls() + 1, Fault::Io);
    let mut txn = engine.begin(LATEST);
    txn.put(ROOT, b"k", b"v").unwrap();
    let committed = txn.commit(Durability::Synced).unwrap();
    assert!(matches!(committed.durable(), Err(Error::Stopped(_))));
    assert!(matches!(engine.sync(), Err(Error::Stopped(_))));
}

#[test]
fn disk_that_fills_up_between_a_commit_and_its_sync_leaves_it_visible() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    // It has read what is not on disk either, and is asked the same.
    for writes in [true, false] {
        put(&engine, ROOT, b"before", b"v");
        sim.fault_at(sim.syscalls() + 1, Fault::NoSpace);
        let mut txn = engine.begin(LATEST);
        if writes {
            txn.put(ROOT, b"k", b"v").unwrap();
        }
        let mut published = false;
        let committed = txn.commit_with(Durability::Synced, |_| published = true).unwrap();
        assert!(published);
        let durable = committed.durable();
        assert!(matches!(durable, Err(Error::NoSpace(_))), "{durable:?}");
        assert_eq!(get(&engine, ROOT, b"k"), Some(b"v".to_vec()));
        assert!(engine.stats().stopped.is_none());
        // The next that asks waits for it too.
        engine.sync().unwrap();
    }
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    assert_eq!(get(&engine, ROOT, b"k"), Some(b"v".to_vec()));
}

thread_local! {
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

/// Ends the commit of a thread that asked for it, without the panic hook's noise.
fn panic_where_asked() {
    if PANICS.replace(false) {
        resume_unwind(Box::new("as by a bug"));
    }
}

#[test]
fn bug_between_the_log_and_the_publishing_stops_the_engine_and_nobody_waits() {
    let sim = SimOs::new(1);
    let mut options = tiny();
    options.sizes.before_publishing = Some(panic_where_asked);
    let engine = open(&sim.os(), options).unwrap();
    put(&engine, ROOT, b"before", b"v");
    let commit = |key: &[u8]| {
        let mut txn = engine.begin(LATEST);
        txn.put(ROOT, key, b"v").unwrap();
        txn.commit(Durability::Buffered).map(drop)
    };
    PANICS.set(true);
    let victim = catch_unwind(AssertUnwindSafe(|| commit(b"victim")));
    assert!(victim.is_err());
    assert!(matches!(commit(b"behind"), Err(Error::Stopped(_))));
    assert!(engine.stats().stopped.is_some());
    assert_eq!(get(&engine, ROOT, b"victim"), None);
    assert_eq!(get(&engine, ROOT, b"before"), Some(b"v".to_vec()));
    drop(engine);
    let engine = open(&sim.reboot_with(Survival::Process), tiny()).unwrap();
    put(&engine, ROOT, b"after", b"v");
    engine.verify_all().unwrap();
}

#[test]
fn backup_files_open_as_the_moment_they_were_taken() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    for i in 0..200_u32 {
        put(&engine, ROOT, &i.to_be_bytes(), b"old");
    }
    let backup = engine.backup().unwrap();
    let moment = backup.timestamp();
    for i in 0..400_u32 {
        put(&engine, ROOT, &i.to_be_bytes(), b"new");
    }
    for _ in 0..3 {
        engine.checkpoint().unwrap();
    }
    let target = SimOs::new(2);
    let os = target.os();
    for (path, bytes) in sim.files() {
        if path.ends_with("fernd.lock") {
            continue;
        }
        os.vfs.create_dir_all(path.parent().unwrap()).unwrap();
        let file = os.vfs.open(&path, os::OpenOptions::create()).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
    }
    drop(backup);
    let copy = open(&os, tiny()).unwrap();
    assert!(copy.stats().visible_commit >= moment);
    assert!(get(&copy, ROOT, &0_u32.to_be_bytes()).is_some());
    copy.verify_all().unwrap();
}

/// Copies a file's bytes from `offset` on.
fn write_copy(os: &Os, path: &std::path::Path, offset: u64, bytes: &[u8]) {
    os.vfs.create_dir_all(path.parent().unwrap()).unwrap();
    let file = os.vfs.open(path, os::OpenOptions::create()).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

#[test]
fn backup_is_copied_in_parts_while_checkpoints_go_on() {
    let sim = SimOs::new(1);
    let engine = open(&sim.os(), tiny()).unwrap();
    let write = |round: u32| {
        for i in 0..200_u32 {
            put(&engine, ROOT, &i.to_be_bytes(), &round.to_be_bytes());
        }
        engine.checkpoint().unwrap();
    };
    write(0);
    let backup = engine.backup().unwrap();
    write(1);
    write(2);
    let parts = backup.data_parts().unwrap();
    let target = SimOs::new(2);
    let os = target.os();
    let data = backup.data_file();
    let mut round = 3;
    for range in &parts.taken {
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(20_000) as usize;
            write_copy(&os, &data, at, &backup.read_data(at, length).unwrap());
            at += length as u64;
            write(round);
            round += 1;
        }
    }
    assert!(round > 10, "many checkpoints were written meanwhile");
    // What the file says by now is of a checkpoint whose parts were not copied.
    assert_ne!(backup.read_data(0, parts.superblocks.len()).unwrap(), parts.superblocks);
    write_copy(&os, &data, 0, &parts.superblocks);
    os.vfs.open(&data, os::OpenOptions::create()).unwrap().set_len(parts.file_bytes).unwrap();
    engine.sync().unwrap();
    let copied = get(&engine, ROOT, &7_u32.to_be_bytes());
    let log = backup.log_parts();
    // What comes after the log was looked at is not in the copy, and does not harm it.
    write(round);
    for part in &log {
        let bytes = backup.read_log(&part.path, 0, part.bytes as usize).unwrap();
        write_copy(&os, &part.path, 0, &bytes);
        os.vfs.open(&part.path, os::OpenOptions::create()).unwrap().set_len(part.length).unwrap();
    }
    drop(backup);
    let copy = open(&os, tiny()).unwrap();
    assert_eq!(get(&copy, ROOT, &7_u32.to_be_bytes()), copied);
    copy.verify_all().unwrap();
    put(&copy, ROOT, b"goes on", b"v");
}

#[test]
fn threads_of_the_engine_work_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = tiny();
    options.dir = dir.path().join("data");
    options.background = Background::Threads;
    options.checkpoint_period = Duration::from_millis(50);
    options.cleaner_period = Duration::from_millis(50);
    options.log_flush_period = Duration::from_millis(10);
    let engine = open(&Os::real(), options.clone()).unwrap();
    for i in 0..3000_u32 {
        put(&engine, ROOT, &i.to_be_bytes(), &[i as u8; 64]);
    }
    while engine.stats().checkpoints == 0 {
        Os::real().clock.sleep(Duration::from_millis(5));
    }
    drop(engine);
    let engine = open(&Os::real(), options).unwrap();
    for i in 0..3000_u32 {
        assert_eq!(get(&engine, ROOT, &i.to_be_bytes()), Some(vec![i as u8; 64]));
    }
    engine.verify_all().unwrap();
    engine.close().unwrap();
}

#[test]
fn view_of_a_transaction_outlives_it_and_keeps_what_it_saw() {
    let engine = simulated();
    put(&engine, ROOT, b"a", b"1");
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(ROOT, b"b", b"2").unwrap();
    let made = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    txn.put(made, b"x", b"9").unwrap();
    let view = txn.view();
    txn.put(ROOT, b"c", b"3").unwrap();
    txn.delete(ROOT, b"a").unwrap();
    assert_eq!(txn.snapshot().get(ROOT, b"b").unwrap(), None);
    txn.abort();
    assert_eq!(view.get(ROOT, b"b").unwrap().unwrap()[..], b"2"[..]);
    assert_eq!(view.get(made, b"x").unwrap().unwrap()[..], b"9"[..]);
    let all = view.cursor(ROOT, KeyRange::all(), Direction::Forward).unwrap();
    assert_eq!(keys(all), [b"a", b"b"]);
    let made = view.cursor(made, KeyRange::all(), Direction::Backward).unwrap();
    assert_eq!(keys(made), [b"x"]);
}

#[test]
fn transaction_at_an_older_snapshot_reads_it_and_conflicts_with_what_came_since() {
    let engine = simulated();
    put(&engine, ROOT, b"a", b"1");
    let old = engine.snapshot();
    put(&engine, ROOT, b"a", b"2");
    let mut txn = engine.begin_at(TxnOptions::default(), &old);
    assert_eq!(txn.get(ROOT, b"a").unwrap().unwrap()[..], b"1"[..]);
    assert!(matches!(txn.put(ROOT, b"a", b"3"), Err(Error::WriteConflict)));
}
