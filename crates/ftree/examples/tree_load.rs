//! How fast does one tree take random inserts, and what do reads of it cost afterwards?
//!
//! `cargo run --release -p ftree --example tree_load -- [rows] [key bytes] [value bytes] [memtable MiB]
//! [cache MiB]`: one thread inserts and does all background work itself, so the figures are CPU
//! per row with nothing hidden.

use blockfile::{BlockFile, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Context, Direction, Effort, KeyRange, Message, Progress, Tree, TreeOptions, Visibility,
};
use std::error::Error;
use std::io::Write;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let number = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
    let (rows, key_bytes, value_bytes) = (number(0, 1_000_000), number(1, 8), number(2, 270));
    let (memtable, cache) = (number(3, 32) << 20, number(4, 64) << 20);
    let os = os::Os::real();
    let dir = std::env::temp_dir().join(format!("fern-tree-load-{}", std::process::id()));
    os.vfs.create_dir_all(&dir)?;
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) = BlockFile::open(&os, &dir, Options::default(), metrics)?;
    let cache = Arc::new(CacheTable::new(cache));
    let context = Context::new(blocks, Arc::clone(&cache));
    let tree = Tree::create(&context, 1, TreeOptions::default());
    let mut out = std::io::stdout();
    let key = |row: u64| {
        let mut key = row.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
        key.resize(key_bytes as usize, b'k');
        key
    };
    let start = os.clock.monotonic();
    let mut working = std::time::Duration::ZERO;
    for row in 0..rows {
        // Half of each value compresses, as documents do.
        let mut value = vec![b'v'; value_bytes as usize];
        for (at, byte) in value.iter_mut().enumerate().step_by(2) {
            *byte = (row.wrapping_mul(0xd6e8_feb8_6659_fd93) >> (at % 56)) as u8;
        }
        tree.insert(&key(row), row + 1, Message::Put(&value));
        if row % 1000 == 0 && tree.debt().active_bytes > memtable {
            tree.seal(row + 1);
            let before = os.clock.monotonic();
            let visibility = Visibility::newest_only(row + 1);
            while tree.work(&visibility, Effort::Needed)? != Progress::Idle {}
            working += os.clock.monotonic().saturating_sub(before);
        }
    }
    let total = os.clock.monotonic().saturating_sub(start);
    let stats = tree.stats();
    let per_row = |time: std::time::Duration| time.as_nanos() as f64 / rows as f64 / 1000.0;
    let foreground = per_row(total.saturating_sub(working));
    let background = per_row(working);
    writeln!(out, "load: {foreground:.2} µs/row in front, {background:.2} µs/row behind")?;
    let amplification = stats.written_bytes as f64 / stats.drained_bytes.max(1) as f64;
    writeln!(out, "written / taken in (compressed): {amplification:.2}")?;
    writeln!(out, "{stats:?}\n{:?}", cache.stats())?;
    for (name, count) in [("cold", 20_000u64), ("warmer", 20_000)] {
        let before = (os.clock.monotonic(), tree.stats().page_reads);
        for row in 0..count {
            let picked = row * (rows / count).max(1) % rows;
            assert!(tree.get(&key(picked), u64::MAX - 1)?.is_some(), "row {picked} is there");
        }
        let time = os.clock.monotonic().saturating_sub(before.0);
        let reads = tree.stats().page_reads - before.1;
        let each = time.as_nanos() as f64 / count as f64 / 1000.0;
        let pages = reads as f64 / count as f64;
        writeln!(out, "{name} point reads: {each:.2} µs, {pages:.2} pages each")?;
    }
    let before = os.clock.monotonic();
    let mut cursor = tree.cursor(KeyRange::all(), u64::MAX - 1, Direction::Forward);
    let mut count = 0u64;
    while cursor.next()?.is_some() {
        count += 1;
    }
    let time = os.clock.monotonic().saturating_sub(before);
    writeln!(out, "scan of {count}: {:.3} µs/row", time.as_nanos() as f64 / count as f64 / 1000.0)?;
    drop((cursor, tree, context));
    for name in os.vfs.list_dir(&dir)? {
        os.vfs.remove_file(&dir.join(name))?;
    }
    Ok(())
}
