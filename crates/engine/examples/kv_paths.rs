//! What do a point read and a read-modify-write cost, alone, on two threads, and beside a writer?
//!
//! `cargo run --release -p engine --example kv_paths -- [rows] [cache MiB] [rounds] [phase…]`
//! (default 400,000 rows, 512 MiB, 5 rounds). A phase is `read:THREADS`, `rmw:THREADS` (half reads,
//! half transactions that lock, read and write one row) or `mixed` (one reader beside one
//! unthrottled writer; the reader's rate). The phases take turns, a short slice each, so that a
//! noisy machine is noisy for all; the best slice and the median are printed, as operations per
//! second and CPU per operation (background work included). The rows are those of the comparison
//! crate: an 8-byte key with 270 bytes, and three index entries in `mixed`.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::{
    DictionaryId, DictionaryOptions, Durability, Engine, OnConflict, Options, TxnOptions,
};
use os::Os;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use telemetry::Registry;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const BATCH: u64 = 1000;
const VALUE: usize = 270;
const SLICE: Duration = Duration::from_millis(700);
const LATEST: TxnOptions = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn value(id: u64, version: u64) -> [u8; VALUE] {
    let mut value = [b'f'; VALUE];
    value[..8].copy_from_slice(&id.to_be_bytes());
    for (at, chunk) in value[8..VALUE / 2].chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&mix(id ^ version << 40 ^ at as u64).to_le_bytes()[..chunk.len()]);
    }
    value
}

struct Bench {
    os: Os,
    engine: Engine,
    tables: [DictionaryId; 4],
    rows: AtomicU64,
}

impl Bench {
    fn load(&self, with_indexes: bool) -> engine::Result<()> {
        let first = self.rows.load(Ordering::Relaxed);
        let mut txn = self.engine.begin(LATEST);
        for id in first..first + BATCH {
            txn.put(self.tables[0], &id.to_be_bytes(), &value(id, 0))?;
            for index in 1..if with_indexes { 4 } else { 1 } {
                let mut key = mix(id << 2 | index as u64).to_be_bytes().to_vec();
                key.resize(8 + index * 4, 0x55);
                key.extend_from_slice(&id.to_be_bytes());
                txn.write_covered(self.tables[index], &key, Some(b""))?;
            }
        }
        txn.commit(Durability::Buffered)?.durable()?;
        self.rows.store(first + BATCH, Ordering::Relaxed);
        Ok(())
    }

    /// Memory drained and quiet, so that a slice does not pay for the one before.
    fn settle(&self) -> engine::Result<()> {
        self.engine.checkpoint()?;
        while self.engine.stats().queued_jobs > 0 {
            self.os.clock.sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn read(&self, key: u64) -> engine::Result<()> {
        let found = self.engine.snapshot().get(self.tables[0], &key.to_be_bytes())?;
        assert!(found.is_some_and(|found| found[..8] == key.to_be_bytes()), "row {key} is lost");
        Ok(())
    }

    fn read_modify_write(&self, key: u64, version: u64) -> engine::Result<()> {
        let mut txn = self.engine.begin(LATEST);
        let found = txn.get_for_update(self.tables[0], &key.to_be_bytes())?;
        assert!(found.is_some_and(|found| found[..8] == key.to_be_bytes()), "row {key} is lost");
        txn.put(self.tables[0], &key.to_be_bytes(), &value(key, version))?;
        txn.commit(Durability::Buffered)?.durable()?;
        Ok(())
    }

    /// Runs `work` with random numbers until the time is over; how often.
    fn repeat(&self, seed: u64, work: impl Fn(u64) -> engine::Result<()>) -> engine::Result<u64> {
        let end = self.os.clock.monotonic() + SLICE;
        let mut done = 0;
        while self.os.clock.monotonic() < end {
            for _ in 0..64 {
                work(mix(seed << 40 | done))?;
                done += 1;
            }
        }
        Ok(done)
    }

    fn phase(&self, name: &str, seed: u64) -> engine::Result<(u64, Duration, Duration)> {
        let (what, threads) = name.split_once(':').unwrap_or((name, "1"));
        let threads = threads.parse().unwrap_or(1);
        let rows = self.rows.load(Ordering::Relaxed);
        let stop = AtomicBool::new(false);
        let (started, cpu) = (self.os.clock.monotonic(), os::usage());
        let done = std::thread::scope(|scope| {
            let writer = (what == "mixed").then(|| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        self.load(true).expect("the writer writes");
                    }
                })
            });
            let workers: Vec<_> = (0..threads)
                .map(|thread: u64| {
                    scope.spawn(move || {
                        self.repeat(seed << 8 | thread, |random| {
                            let key = random % rows;
                            match what {
                                "rmw" if random >> 63 == 0 => self.read_modify_write(key, random),
                                _ => self.read(key),
                            }
                        })
                    })
                })
                .collect();
            let done: engine::Result<u64> =
                workers.into_iter().map(|worker| worker.join().expect("it ends")).sum();
            stop.store(true, Ordering::Relaxed);
            drop(writer.map(std::thread::ScopedJoinHandle::join));
            done
        });
        let took = self.os.clock.monotonic().saturating_sub(started);
        let spent = os::usage();
        let spent = (spent.user + spent.system).saturating_sub(cpu.user + cpu.system);
        Ok((done?, took, spent))
    }
}

fn main() -> engine::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default| arguments.get(at).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (rows, cache_mib, rounds) = (number(0, 400_000), number(1, 512), number(2, 5));
    let usual = ["read:1", "read:2", "rmw:1", "rmw:2", "mixed"].map(String::from);
    let phases = arguments.get(3..).filter(|phases| !phases.is_empty()).unwrap_or(&usual);
    let kept = tempfile::tempdir().expect("a temporary directory");
    let os = Os::real();
    let mut options = Options::new(kept.path().join("data"));
    options.cache_size = cache_mib << 20;
    let engine = Engine::open(os.clone(), Arc::new(Registry::new()), options)?;
    let mut txn = engine.begin(TxnOptions::default());
    let mut tables = [DictionaryId::ROOT; 4];
    for table in &mut tables {
        *table = txn.create_dictionary(DictionaryOptions::default())?;
    }
    txn.commit(Durability::Synced)?.durable()?;
    let bench = Bench { os, engine, tables, rows: AtomicU64::new(0) };
    while bench.rows.load(Ordering::Relaxed) < rows {
        bench.load(false)?;
    }
    bench.settle()?;
    let mut results = vec![Vec::new(); phases.len()];
    for round in 0..=rounds {
        for (at, phase) in phases.iter().enumerate() {
            let (done, took, spent) = bench.phase(phase, round << 8 | at as u64)?;
            // The first round warms up.
            if round > 0 {
                results[at].push((
                    done as f64 / took.as_secs_f64(),
                    spent.as_nanos() as f64 / done as f64,
                ));
            }
            if phase != "read:1" && phase != "read:2" {
                bench.settle()?;
            }
        }
    }
    for (phase, mut slices) in phases.iter().zip(results) {
        slices.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (best, median) = (slices[0], slices[slices.len() / 2]);
        let cheapest = slices.iter().map(|slice| slice.1).fold(f64::INFINITY, f64::min);
        println!(
            "{phase:8} {:>9.0}/s best {:>9.0}/s median, {:>6.0} ns CPU least {:>6.0} median",
            best.0, median.0, cheapest, median.1
        );
    }
    bench.engine.close()
}
