//! Does anybody notice a checkpoint? How long does a commit take, and how even is a load, second by
//! second, while checkpoints run every few seconds?
//!
//! `cargo run --release -p engine --example commit_latency -- [seconds] [cache MiB] [checkpoint
//! period in ms] [batch|single|both] [directory]` (default 30 s, 96 MiB, 4000 ms, batch, a temporary
//! directory). A row is as in `kv_load`: 270 bytes and three index entries in random order.
//! `batch` commits 1,000 rows at once, `single` one row, `both` has a thread of each. Commits wait
//! for no disk. A second is marked `C` where a checkpoint was at work in it.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::{
    DictionaryId, DictionaryOptions, Durability, Engine, OnConflict, Options, TxnOptions,
};
use os::Os;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use telemetry::Registry;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Seconds at the start that count for nothing: memory fills, nothing is drained yet.
const WARM_UP: usize = 3;

struct Load<'a> {
    os: &'a Os,
    engine: &'a Engine,
    dictionaries: [DictionaryId; 4],
    next: &'a AtomicU64,
    rows: &'a AtomicU64,
    stop: &'a AtomicBool,
}

fn mix(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl Load<'_> {
    /// Commits batches until told to stop; the times of the commits, and of whole transactions, in
    /// microseconds.
    fn run(&self, batch: u64) -> engine::Result<(Vec<u32>, Vec<u32>)> {
        let (mut commits, mut wholes) = (Vec::new(), Vec::new());
        let mut value = [0_u8; 270];
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        while !self.stop.load(Ordering::Relaxed) {
            let begun = self.os.clock.monotonic();
            let options = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };
            let mut txn = self.engine.begin(options);
            let first = self.next.fetch_add(batch, Ordering::Relaxed);
            for row in first..first + batch {
                for (i, chunk) in value.chunks_mut(16).enumerate() {
                    let random = mix(row.wrapping_mul(31).wrapping_add(i as u64)).to_le_bytes();
                    let len = chunk.len().min(8);
                    chunk[..len].copy_from_slice(&random[..len]);
                }
                txn.put(self.dictionaries[0], &row.to_be_bytes(), &value)?;
                for index in 0..3_u64 {
                    let mut key = mix(row.wrapping_add(index << 56)).to_be_bytes().to_vec();
                    key.resize(12 + index as usize * 4, 0x55);
                    key.extend_from_slice(&row.to_be_bytes());
                    let dictionary = self.dictionaries[1 + index as usize];
                    txn.write_covered(dictionary, &key, Some(b""))?;
                }
            }
            let written = self.os.clock.monotonic();
            txn.commit(Durability::Buffered)?.durable()?;
            let done = self.os.clock.monotonic();
            commits.push(micros(done.saturating_sub(written)));
            wholes.push(micros(done.saturating_sub(begun)));
            self.rows.fetch_add(batch, Ordering::Relaxed);
        }
        Ok((commits, wholes))
    }

    /// Rows of each second, and whether a checkpoint was at work in it.
    fn watch(&self, seconds: u64) -> Vec<(u64, bool)> {
        let (mut tallies, mut before) = (Vec::new(), 0);
        let started = self.os.clock.monotonic();
        let mut checkpoints = self.engine.stats().checkpoints;
        for second in 1..=seconds {
            let end = started + Duration::from_secs(second);
            self.os.clock.sleep(end.saturating_sub(self.os.clock.monotonic()));
            let (rows, stats) = (self.rows.load(Ordering::Relaxed), self.engine.stats());
            let marked = stats.checkpoints > checkpoints;
            checkpoints = stats.checkpoints;
            tallies.push((rows - before, marked));
            println!(
                "{second:>4} s {:>7} rows {} memtables {:>3} MiB, queue {}, drains {}, merges {}, \
                 flushes {}, delayed {} ms, stalls {}, log {} MiB, file {} MiB, checkpoint {:?} ms",
                rows - before,
                if marked { 'C' } else { ' ' },
                stats.memtable_bytes >> 20,
                stats.queued_jobs,
                stats.drains,
                stats.merges,
                stats.flushes,
                stats.delayed_micros / 1000,
                stats.stalls,
                stats.log_bytes >> 20,
                stats.file.file_bytes >> 20,
                stats.last_checkpoint.map(|(_, _, took)| took),
            );
            before = rows;
        }
        tallies
    }
}

fn main() -> engine::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let seconds = number(0, 30).max(WARM_UP as u64 + 5);
    let kept = tempfile::tempdir().expect("a temporary directory");
    let dir = arguments.get(4).map_or_else(|| kept.path().join("data"), PathBuf::from);
    let mut options = Options::new(dir);
    options.cache_size = number(1, 96) << 20;
    options.checkpoint_period = Duration::from_millis(number(2, 4000));
    let batches: &[u64] = match arguments.get(3).map(String::as_str) {
        Some("single") => &[1],
        Some("both") => &[1000, 1],
        _ => &[1000],
    };
    let os = Os::real();
    let registry = Arc::new(Registry::new());
    let engine = Engine::open(os.clone(), Arc::clone(&registry), options)?;
    let mut txn = engine.begin(TxnOptions::default());
    let mut dictionaries = [DictionaryId::ROOT; 4];
    for dictionary in &mut dictionaries {
        *dictionary = txn.create_dictionary(DictionaryOptions::default())?;
    }
    txn.commit(Durability::Synced)?.durable()?;
    let (next, rows, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let load =
        Load { os: &os, engine: &engine, dictionaries, next: &next, rows: &rows, stop: &stop };
    let cpu = os::usage();
    let (seconds, times) = std::thread::scope(|scope| {
        let loaders: Vec<_> =
            batches.iter().map(|batch| (*batch, scope.spawn(|| load.run(*batch)))).collect();
        let seconds = load.watch(seconds);
        stop.store(true, Ordering::Relaxed);
        let times: Vec<_> = loaders
            .into_iter()
            .map(|(batch, loader)| (batch, loader.join().expect("a loader panicked")))
            .collect();
        (seconds, times)
    });
    for (batch, result) in times {
        let (commits, wholes) = result?;
        print_times(&format!("commit of {batch} rows"), commits);
        print_times(&format!("transaction of {batch} rows"), wholes);
    }
    let spent = os::usage();
    let cpu = (spent.user + spent.system).saturating_sub(cpu.user + cpu.system);
    print_seconds(&seconds[WARM_UP..]);
    println!(
        "{:.1} CPU us a row",
        cpu.as_secs_f64() * 1e6 / rows.load(Ordering::Relaxed).max(1) as f64
    );
    for sample in registry.snapshot() {
        println!("  {sample:?}");
    }
    engine.close()
}

fn print_times(what: &str, mut times: Vec<u32>) {
    times.sort_unstable();
    let at = |share: f64| {
        let rank = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        times.get(rank).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
    };
    println!(
        "{what}: {} of them; ms: median {:.3}, p90 {:.3}, p99 {:.3}, p99.9 {:.3}, max {:.3}",
        times.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

fn print_seconds(seconds: &[(u64, bool)]) {
    let mut sorted: Vec<u64> = seconds.iter().map(|(rows, _)| *rows).collect();
    sorted.sort_unstable();
    let median = sorted[sorted.len() / 2].max(1) as f64;
    let mean = sorted.iter().sum::<u64>() as f64 / sorted.len() as f64;
    let worst_of = |wanted: bool| {
        let found = seconds.iter().filter(|(_, marked)| *marked == wanted).map(|(rows, _)| *rows);
        found.min().map_or(f64::NAN, |rows| rows as f64 / median)
    };
    let windows = seconds.windows(10.min(seconds.len()));
    let worst_window = windows
        .map(|window| {
            window.iter().map(|(rows, _)| *rows).sum::<u64>() as f64 / window.len() as f64
        })
        .fold(f64::INFINITY, f64::min);
    println!(
        "median second {median:.0} rows, mean {mean:.0}; worst second to the median: {:.2} with a \
         checkpoint, {:.2} without; worst 10 s to the mean: {:.2}",
        worst_of(true),
        worst_of(false),
        worst_window / mean.max(1.0)
    );
}
