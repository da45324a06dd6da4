//! How fast does the engine take rows with three indexes, and in how much memory?
//!
//! `cargo run --release -p engine --example kv_load -- [rows] [cache MiB] [directory] [threads]`
//! (default 1,000,000 rows, 256 MiB, a temporary directory, 1 thread). A row is an 8-byte key with
//! 270 bytes of half-compressible value, and three index entries of 20, 24 and 28 bytes in random
//! order; 1,000 rows per transaction. Afterwards: point reads, a close, a reopen, a full check.
//! With 0 rows: opens what a killed load left and checks that rows and index entries agree.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::{
    DictionaryId, DictionaryOptions, Direction, Durability, Engine, KeyRange, OnConflict, Options,
    TxnOptions,
};
use os::Os;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use telemetry::Registry;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const BATCH: u64 = 1000;

fn mix(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn index_key(index: u64, row: u64) -> Vec<u8> {
    let mut key = mix(row.wrapping_add(index << 56)).to_be_bytes().to_vec();
    key.resize(12 + index as usize * 4, 0x55);
    key.extend_from_slice(&row.to_be_bytes());
    key
}

fn load(
    engine: &Engine,
    dictionaries: &[DictionaryId; 4],
    rows: u64,
    next: &AtomicU64,
) -> engine::Result<()> {
    let mut value = [0_u8; 270];
    loop {
        let first = next.fetch_add(BATCH, Ordering::Relaxed);
        if first >= rows {
            return Ok(());
        }
        let mut txn =
            engine.begin(TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None });
        for row in first..(first + BATCH).min(rows) {
            for (i, chunk) in value.chunks_mut(16).enumerate() {
                let random = mix(row.wrapping_mul(31).wrapping_add(i as u64)).to_le_bytes();
                let len = chunk.len().min(8);
                chunk[..len].copy_from_slice(&random[..len]);
            }
            let new = txn.insert(dictionaries[0], &row.to_be_bytes(), &value)?;
            assert!(new, "row {row} is there already");
            for index in 0..3 {
                let key = index_key(index, row);
                txn.write_covered(dictionaries[1 + index as usize], &key, Some(b""))?;
            }
        }
        txn.commit(Durability::Buffered)?.durable()?;
    }
}

fn main() -> engine::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (rows, cache_mib): (u64, u64) = (number(1_000_000), number(256));
    let mut arguments = std::env::args().skip(3);
    let kept = tempfile::tempdir().expect("a temporary directory");
    let dir = arguments.next().map_or_else(|| kept.path().join("data"), PathBuf::from);
    let threads: u64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(1);
    let os = Os::real();
    let mut options = Options::new(dir);
    options.cache_size = cache_mib << 20;
    let started = os.clock.monotonic();
    let engine = Engine::open(os.clone(), Arc::new(Registry::new()), options.clone())?;
    if rows == 0 {
        let took = os.clock.monotonic().saturating_sub(started);
        return check_left(&engine, took);
    }
    let mut txn = engine.begin(TxnOptions::default());
    let mut dictionaries = [DictionaryId::ROOT; 4];
    for dictionary in &mut dictionaries {
        *dictionary = txn.create_dictionary(DictionaryOptions::default())?;
    }
    txn.commit(Durability::Synced)?.durable()?;
    let (next, done, peak) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let (started, cpu) = (os.clock.monotonic(), os::usage());
    std::thread::scope(|scope| {
        scope.spawn(|| watch(&os, &engine, &next, &done, &peak));
        let loaders: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| load(&engine, &dictionaries, rows, &next)))
            .collect();
        let results: Vec<_> =
            loaders.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().try_for_each(|result| result.expect("a loader panicked"))
    })?;
    let took = os.clock.monotonic().saturating_sub(started);
    let spent = os::usage();
    let cpu_us = (spent.user + spent.system).saturating_sub(cpu.user + cpu.system).as_micros();
    println!(
        "{rows} rows in {:.1} s: {:.0} rows/s, {:.1} CPU us/row, peak RSS {} MiB, cache {cache_mib} MiB",
        took.as_secs_f64(),
        rows as f64 / took.as_secs_f64(),
        cpu_us as f64 / rows as f64,
        peak.load(Ordering::Relaxed) >> 20,
    );
    read(&os, &engine, dictionaries, rows)?;
    let started = os.clock.monotonic();
    engine.close()?;
    println!("close: {:.1} s", os.clock.monotonic().saturating_sub(started).as_secs_f64());
    drop(engine);
    let started = os.clock.monotonic();
    let engine = Engine::open(os.clone(), Arc::new(Registry::new()), options)?;
    println!("open: {:.2} s", os.clock.monotonic().saturating_sub(started).as_secs_f64());
    read(&os, &engine, dictionaries, rows)?;
    let started = os.clock.monotonic();
    engine.verify_all()?;
    let mut stored = 0;
    for dictionary in dictionaries {
        stored += engine.dictionary_stats(dictionary)?.stored_bytes;
    }
    println!(
        "check: {:.1} s; {} bytes stored per row",
        os.clock.monotonic().saturating_sub(started).as_secs_f64(),
        stored / rows.max(1)
    );
    engine.close()
}

/// After a kill: the same number of entries everywhere, and every tree in order.
fn check_left(engine: &Engine, open_took: Duration) -> engine::Result<()> {
    let snapshot = engine.snapshot();
    let mut counts = Vec::new();
    for (dictionary, _) in engine.dictionaries().into_iter().skip(1) {
        let mut cursor = snapshot.cursor(dictionary, KeyRange::all(), Direction::Forward)?;
        let mut count = 0;
        while cursor.next()?.is_some() {
            count += 1;
        }
        counts.push(count);
    }
    engine.verify_all()?;
    println!(
        "opened in {:.2} s, {:?}; entries {counts:?}",
        open_took.as_secs_f64(),
        engine.stats().recovered
    );
    assert!(counts.iter().all(|count| *count == counts[0]), "transactions were torn");
    engine.close()
}

/// A line a second, and the peak of resident memory.
fn watch(os: &Os, engine: &Engine, next: &AtomicU64, done: &AtomicBool, peak: &AtomicU64) {
    let (mut before, mut ticks) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        os.clock.sleep(Duration::from_millis(100));
        let resident = os::resident_bytes();
        peak.fetch_max(resident, Ordering::Relaxed);
        ticks += 1;
        if ticks % 10 == 0 {
            let rows = next.load(Ordering::Relaxed);
            let stats = engine.stats();
            println!(
                "{rows:>10} rows, {:>7}/s, RSS {} MiB, memtables {} MiB, frames {} MiB, queue {}, \
                 drains {} merges {} flushes {}, delayed {} ms, stalls {}, log {} MiB",
                rows - before,
                resident >> 20,
                stats.memtable_bytes >> 20,
                stats.cache.parts.total() >> 20,
                stats.queued_jobs,
                stats.drains,
                stats.merges,
                stats.flushes,
                stats.delayed_micros / 1000,
                stats.stalls,
                stats.log_bytes >> 20,
            );
            before = rows;
        }
    }
}

fn read(
    os: &Os,
    engine: &Engine,
    dictionaries: [DictionaryId; 4],
    rows: u64,
) -> engine::Result<()> {
    const READS: u64 = 20_000;
    let snapshot = engine.snapshot();
    let started = os.clock.monotonic();
    for i in 0..READS {
        let row = mix(i) % rows;
        let found = snapshot.get(dictionaries[0], &row.to_be_bytes())?;
        assert!(found.is_some(), "row {row} is lost");
    }
    let points = os.clock.monotonic().saturating_sub(started);
    let started = os.clock.monotonic();
    let mut seen = 0;
    let mut cursor = snapshot.cursor(dictionaries[2], KeyRange::all(), Direction::Forward)?;
    while cursor.next()?.is_some() {
        seen += 1;
    }
    assert_eq!(seen, rows, "an index has lost entries");
    let scan = os.clock.monotonic().saturating_sub(started);
    println!(
        "random point reads: {:.1} us each; full index scan: {:.2} us per entry",
        points.as_secs_f64() * 1e6 / READS as f64,
        scan.as_secs_f64() * 1e6 / rows as f64
    );
    Ok(())
}
