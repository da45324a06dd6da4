//! What do reads cost when the data is ten times the cache: one by one, in batches, and in scans?
//!
//! `cargo run --release -p engine --example cold_reads -- [rows] [cache MiB]`: direct I/O, rows of 8
//! and 270 bytes, half compressible. Prints wall and CPU time and bytes read per operation.

use engine::{
    DictionaryId, Direction, Durability, Engine, KeyRange, Options, Snapshot, TxnOptions,
};
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use telemetry::{Registry, Unit};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const TABLE: DictionaryId = DictionaryId::ROOT;
const BATCH: u64 = 100;

fn key(row: u64) -> [u8; 8] {
    row.to_be_bytes()
}

fn value(row: u64) -> Vec<u8> {
    let mut value = vec![b'v'; 270];
    for (at, byte) in value.iter_mut().enumerate().step_by(2) {
        *byte = (row.wrapping_mul(0xd6e8_feb8_6659_fd93) >> (at % 56)) as u8;
    }
    value
}

fn scattered(number: u64, rows: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % rows
}

struct Bench {
    engine: Engine,
    registry: Arc<Registry>,
    os: os::Os,
    rows: u64,
}

impl Bench {
    /// Runs `work`, which says how many operations it did.
    fn measure(
        &self,
        name: &str,
        work: impl FnOnce(&Snapshot) -> Result<u64, Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let counter = |name| self.registry.counter(name, Unit::Count, "").get();
        let before = (counter("blockfile.reads"), counter("blockfile.read_bytes"));
        let (started, cpu) = (self.os.clock.monotonic(), cpu());
        let done = work(&self.engine.snapshot())? as f64;
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / done;
        let wall = micros(self.os.clock.monotonic().saturating_sub(started));
        let cpu = micros(self::cpu().saturating_sub(cpu));
        let calls = (counter("blockfile.reads") - before.0) as f64 / done;
        let bytes = (counter("blockfile.read_bytes") - before.1) as f64 / done / 1024.0;
        writeln!(
            std::io::stdout(),
            "{name:34} {wall:8.2} us, {cpu:8.2} us CPU, {calls:6.3} reads, {bytes:7.2} KB each"
        )?;
        Ok(())
    }
}

fn cpu() -> Duration {
    let os::Usage { user, system, .. } = os::usage();
    user + system
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let rows = numbers.first().copied().unwrap_or(1_000_000);
    let os = os::Os::real();
    let dir = std::env::temp_dir().join(format!("fern-cold-reads-{}", std::process::id()));
    let registry = Arc::new(Registry::new());
    let mut options = Options::new(&dir);
    options.cache_size = numbers.get(1).copied().unwrap_or(32) << 20;
    options.directio = true;
    options.fs_redzone_percent = 0;
    let engine = Engine::open(os.clone(), Arc::clone(&registry), options)?;
    for first in (0..rows).step_by(1000) {
        let mut txn = engine.begin(TxnOptions::default());
        for number in first..(first + 1000).min(rows) {
            txn.put(TABLE, &key(number), &value(number))?;
        }
        txn.commit(Durability::Buffered)?.durable()?;
    }
    engine.checkpoint()?;
    let bench = Bench { engine, registry, os, rows };
    let reads = bench.rows.min(20_000);
    bench.measure("point read", |snapshot| {
        for number in 0..reads {
            assert!(snapshot.get(TABLE, &key(scattered(number, rows)))?.is_some());
        }
        Ok(reads)
    })?;
    bench.measure("point read, batches prefetched", |snapshot| {
        for first in (reads..reads * 2).step_by(BATCH as usize) {
            let keys: Vec<_> =
                (first..first + BATCH).map(|number| key(scattered(number, rows))).collect();
            snapshot.prefetch(TABLE, &keys)?;
            for key in &keys {
                assert!(snapshot.get(TABLE, key)?.is_some());
            }
        }
        Ok(reads)
    })?;
    for direction in [Direction::Forward, Direction::Backward] {
        bench.measure(&format!("row of a full scan, {direction:?}"), |snapshot| {
            let mut cursor = snapshot.cursor(TABLE, KeyRange::all(), direction)?;
            let mut count = 0;
            while cursor.next()?.is_some() {
                count += 1;
            }
            assert_eq!(count, rows);
            Ok(count)
        })?;
    }
    let stats = bench.engine.stats().cache;
    let parts: Vec<_> = stats.parts.iter().filter(|(_, bytes)| *bytes > 0).collect();
    writeln!(std::io::stdout(), "{stats:?}\n{parts:?}")?;
    bench.engine.close()?;
    for place in [dir.join("journal"), dir.join("tmp"), dir] {
        for path in bench.os.vfs.list_dir(&place)? {
            // Directories stay.
            let _removed = bench.os.vfs.remove_file(&path);
        }
    }
    Ok(())
}
