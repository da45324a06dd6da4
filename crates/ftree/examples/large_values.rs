//! How often is a byte of a large value written, in pages and in segments of its own?
//!
//! `cargo run --release -p ftree --example large_values -- [MiB]` (default 512 MiB of values per
//! row). Values of one size under random keys, memtables of 32 MiB. The same size is loaded twice:
//! with pages so large that values stay in them, and with pages of 16 KiB. Then a walk that seeks
//! from key to key, which reads no value it does not return.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use blockfile::{BlockFile, Metrics, Options};
use cachetable::CacheTable;
use ftree::{Context, Effort, Message, Progress, Tree, TreeOptions, Visibility};
use std::sync::Arc;

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mib: u64 = std::env::args().nth(1).map_or(Ok(512), |text| text.parse())?;
    println!("{:>10} {:>14} {:>14}", "value", "in pages", "by itself");
    for len in [33 << 10, 64 << 10, 255 << 10, 1 << 20] {
        let in_pages = load(mib, len, len)?;
        let alone = load(mib, len, 16 << 10)?;
        println!("{:>8} K {in_pages:>14.2} {alone:>14.2}", len >> 10);
    }
    Ok(())
}

/// Bytes written per byte stored.
fn load(mib: u64, len: usize, read_page_size: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("fern-large-values-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) = BlockFile::open(&os::Os::real(), &dir, Options::default(), metrics)?;
    let context = Context::new(blocks, Arc::new(CacheTable::new(64 << 20)));
    let options = TreeOptions {
        compression: blockfile::Compression::Lz4,
        read_page_size,
        ..TreeOptions::default()
    };
    let tree = Tree::create(&context, 1, options);
    let count = (mib << 20) / len as u64;
    let mut value = vec![0_u8; len];
    for number in 1..=count {
        for (at, chunk) in value.chunks_exact_mut(8).enumerate() {
            chunk.copy_from_slice(&mix(number << 20 | at as u64).to_le_bytes());
        }
        tree.insert(&mix(number).to_be_bytes(), number, Message::Put(&value));
        if tree.memory_bytes() > 32 << 20 || number == count {
            tree.seal(number);
            let visibility = Visibility::newest_only(number);
            while tree.work(&visibility, Effort::Needed)? != Progress::Idle {}
        }
    }
    let stats = tree.stats();
    std::fs::remove_dir_all(&dir)?;
    Ok(stats.written_bytes as f64 / stats.stored_bytes as f64)
}
