//! Does a transaction of gigabytes stay within the cache's bound, and what do others notice?
//!
//! `cargo run --release -p engine --example txn_large -- [MiB] [cache MiB] [directory] [commit|abort|kill]`
//! (default 2048 MiB, 256 MiB, a temporary directory, commit). Rows of 1 KiB in random key order
//! over 100,000 rows that are there already. While the commit runs and is drained, another thread
//! commits single rows to another dictionary. `kill` ends the process right after the commit; run
//! it again with 0 MiB to see the recovery.
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

const BESIDE: TxnOptions = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };

fn mix(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn value(row: u64) -> [u8; 1024] {
    let mut value = [7; 1024];
    for (i, chunk) in value.chunks_mut(16).enumerate() {
        chunk[..8].copy_from_slice(&mix(row ^ (i as u64) << 40).to_le_bytes());
    }
    value
}

/// Peak resident memory, in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn count(engine: &Engine, dictionary: DictionaryId) -> engine::Result<u64> {
    let mut cursor = engine.snapshot().cursor(dictionary, KeyRange::all(), Direction::Forward)?;
    let mut rows = 0;
    while cursor.next()?.is_some() {
        rows += 1;
    }
    Ok(rows)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mib: u64 = args.next().map_or(Ok(2048), |text| text.parse())?;
    let cache: u64 = args.next().map_or(Ok(256), |text| text.parse())?;
    let kept;
    let dir = if let Some(dir) = args.next() {
        PathBuf::from(dir)
    } else {
        kept = tempfile::tempdir()?;
        kept.path().to_path_buf()
    };
    let ending = args.next().unwrap_or_else(|| "commit".to_owned());
    let os = Os::real();
    let clock = Arc::clone(&os.clock);
    let since = |started: Duration| clock.monotonic().saturating_sub(started).as_secs_f64();
    let mut options = Options::new(dir);
    options.cache_size = cache << 20;
    let started = clock.monotonic();
    let engine = Engine::open(os, Arc::new(Registry::new()), options)?;
    let recovered = engine.stats().recovered;
    println!("opened in {:.1} s, replayed {recovered:?}; peak {} MiB", since(started), peak());
    if mib == 0 {
        for (dictionary, _) in engine.dictionaries() {
            println!("{dictionary:?}: {} rows; peak {} MiB", count(&engine, dictionary)?, peak());
        }
        engine.verify_all()?;
        return Ok(());
    }

    let mut txn = engine.begin(BESIDE);
    let rows = txn.create_dictionary(DictionaryOptions::default())?;
    let beside = txn.create_dictionary(DictionaryOptions::default())?;
    txn.commit(Durability::Buffered)?.durable()?;
    for first in (0..100_000_u64).step_by(1000) {
        let mut txn = engine.begin(BESIDE);
        for row in first..first + 1000 {
            txn.put(rows, &mix(row << 1).to_be_bytes(), b"old")?;
        }
        txn.commit(Durability::Buffered)?.durable()?;
    }

    let (stop, committed, worst) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| -> engine::Result<()> {
        let other = scope.spawn(|| -> engine::Result<()> {
            while !stop.load(Ordering::Relaxed) {
                let started = clock.monotonic();
                let row = committed.fetch_add(1, Ordering::Relaxed);
                let mut txn = engine.begin(BESIDE);
                txn.put(beside, &row.to_be_bytes(), &[1; 100])?;
                txn.commit(Durability::Buffered)?.durable()?;
                let micros = clock.monotonic().saturating_sub(started).as_micros() as u64;
                worst.fetch_max(micros, Ordering::Relaxed);
                clock.sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        let report = |what: &str, started: Duration| {
            let (commits, worst) =
                (committed.swap(0, Ordering::Relaxed), worst.swap(0, Ordering::Relaxed));
            println!(
                "{what}: {:.1} s; beside it {commits} commits, slowest {:.1} ms; peak {} MiB",
                since(started),
                worst as f64 / 1000.0,
                peak()
            );
        };
        let run = || -> engine::Result<()> {
            let started = clock.monotonic();
            let mut txn = engine.begin(BESIDE);
            for row in 0..mib << 10 {
                // Every second key is new, or nearly.
                txn.put(rows, &mix(row).to_be_bytes(), &value(row))?;
            }
            report("written", started);
            let started = clock.monotonic();
            if ending == "abort" {
                txn.abort();
                report("aborted", started);
                return Ok(());
            }
            txn.commit(Durability::Synced)?.durable()?;
            report("committed", started);
            if ending == "kill" {
                std::process::abort();
            }
            let started = clock.monotonic();
            while engine.stats().queued_jobs > 0 {
                clock.sleep(Duration::from_millis(10));
            }
            report("drained", started);
            Ok(())
        };
        let done = run();
        stop.store(true, Ordering::Relaxed);
        let other = other.join().unwrap_or(Ok(()));
        done.and(other)
    })?;
    let started = clock.monotonic();
    println!("{} rows, counted in {:.1} s", count(&engine, rows)?, since(started));
    println!("{:?}", engine.stats().file);
    let started = clock.monotonic();
    engine.close()?;
    println!("closed in {:.1} s; peak {} MiB", since(started), peak());
    Ok(())
}
