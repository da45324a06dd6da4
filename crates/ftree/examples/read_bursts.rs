//! What does a burst of upserts leave for the reads behind it to pay, burst after burst?
//!
//! `cargo run --profile fast -p ftree --example read_bursts -- [rows] [bursts]`: a tree ten times its
//! cache, on a disk in memory. Behind each burst only needed work is done, then reads run and what
//! they ask for is served beside them. The figures are pages read and filters asked per read, and
//! bytes written per read: counts, the same on a busy machine as on a quiet one.

use blockfile::{BlockFile, Metrics, Options};
use cachetable::CacheTable;
use ftree::{Context, Effort, Error, Message, Progress, Tree, TreeOptions, Visibility};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

const VALUE_BYTES: u64 = 270;

fn key(row: u64) -> [u8; 8] {
    row.to_be_bytes()
}

/// Splitmix.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn settle(tree: &Tree, effort: Effort) -> Result<(), Error> {
    let visibility = Visibility::newest_only(u64::MAX - 1);
    while tree.work(&visibility, effort)? != Progress::Idle {}
    Ok(())
}

struct Load {
    tree: Arc<Tree>,
    rows: u64,
    state: u64,
    ts: u64,
    memtable: u64,
}

impl Load {
    fn put(&mut self, row: u64) -> Result<(), Error> {
        self.ts += 1;
        let mut value = [b'v'; VALUE_BYTES as usize];
        for byte in value.iter_mut().step_by(2) {
            *byte = random(&mut self.state) as u8;
        }
        self.tree.insert(&key(row), self.ts, Message::Put(&value));
        if self.tree.debt().active_bytes > self.memtable {
            self.tree.seal(self.ts);
            settle(&self.tree, Effort::Needed)?;
        }
        Ok(())
    }

    fn reads(&mut self, name: &str, count: u64) -> Result<(), Box<dyn std::error::Error>> {
        let before = self.tree.stats();
        for read in 0..count {
            let row = random(&mut self.state) % self.rows;
            self.tree.get(&key(row), u64::MAX - 1)?;
            if read % 1000 == 0 && self.tree.debt().wanted {
                settle(&self.tree, Effort::ReadFlush)?;
            }
        }
        let after = self.tree.stats();
        let asked = |stats: &ftree::Stats| stats.filter_passes + stats.filter_refusals;
        let each = |amount: u64| amount as f64 / count as f64;
        writeln!(
            std::io::stdout(),
            "{name}: {:.2} pages, {:.2} filters, {:.0} bytes written per read; {} MiB buffered",
            each(after.page_reads - before.page_reads),
            each(asked(&after) - asked(&before)),
            each(after.written_bytes - before.written_bytes),
            after.buffered_bytes >> 20,
        )?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let rows = numbers.first().copied().unwrap_or(400_000);
    let bursts = numbers.get(1).copied().unwrap_or(6);
    let cache = rows * VALUE_BYTES / 10;
    let os = os::sim::SimOs::new(1).os();
    os.vfs.create_dir_all(Path::new("/data"))?;
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) = BlockFile::open(&os, Path::new("/data"), Options::default(), metrics)?;
    let context = Context::new(blocks, Arc::new(CacheTable::new(cache)));
    let tree = Tree::create(&context, 1, TreeOptions::default());
    let mut load = Load { tree, rows, state: 1, ts: 0, memtable: cache / 8 };
    for row in 0..rows {
        load.put(row)?;
    }
    load.tree.seal(load.ts);
    settle(&load.tree, Effort::Idle)?;
    load.reads("warming", 20_000)?;
    load.reads("settled", 20_000)?;
    for burst in 1..=bursts {
        let before = load.tree.stats();
        for _ in 0..rows / 10 {
            let row = random(&mut load.state) % rows;
            load.put(row)?;
        }
        let after = load.tree.stats();
        let written = after.written_bytes - before.written_bytes;
        writeln!(
            std::io::stdout(),
            "burst {burst}: {} bytes written per upsert",
            written * 10 / rows
        )?;
        load.reads("  behind it", 20_000)?;
    }
    Ok(())
}
