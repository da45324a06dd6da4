//! What writing and reading keys costs that a client chose to meet in a hash table, against usual ones.
//!
//! The keys meet under the hash that everybody can compute (xxh3 without a secret): in one shard and in a
//! few slots of a memtable's index. What hashes with a secret of the process sees nothing special in them.
//!
//! `cargo run --profile fast -p engine --example chosen_keys`: microseconds of processor time for each key
//! put, by transactions of a thousand, and for each key read. Choosing the keys takes some ten seconds.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::{
    Committed, DictionaryId, DictionaryOptions, Durability, Engine, OnConflict, Options, TxnOptions,
};
use os::Os;
use std::sync::Arc;
use std::time::Duration;
use telemetry::Registry;
use xxhash_rust::xxh3::xxh3_64;

const LATEST: TxnOptions = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };

fn cpu() -> Duration {
    let usage = os::usage();
    usage.user + usage.system
}

fn each(count: usize, run: impl FnOnce()) -> f64 {
    let started = cpu();
    run();
    cpu().saturating_sub(started).as_secs_f64() * 1e6 / count as f64
}

fn usual(count: usize) -> Vec<[u8; 8]> {
    (0..count as u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()).collect()
}

/// Keys whose hashes are the same in their first four bits and in so many of their last.
fn chosen(count: usize, bits: u32) -> Vec<[u8; 8]> {
    let fixed = (0xf << 60) | ((1_u64 << bits) - 1);
    (0_u64..).map(u64::to_be_bytes).filter(|key| xxh3_64(key) & fixed == 0).take(count).collect()
}

fn run(engine: &Engine, keys: &[[u8; 8]]) -> (f64, f64) {
    let mut txn = engine.begin(LATEST);
    let id: DictionaryId = txn.create_dictionary(DictionaryOptions::default()).expect("it is new");
    txn.commit(Durability::Buffered).and_then(Committed::durable).expect("the disk works");
    let put = each(keys.len(), || {
        for some in keys.chunks(1000) {
            let mut txn = engine.begin(LATEST);
            for key in some {
                txn.put(id, key, b"value").expect("it is free");
            }
            txn.commit(Durability::Buffered).and_then(Committed::durable).expect("the disk works");
        }
    });
    let snapshot = engine.snapshot();
    let get = each(keys.len(), || {
        for key in keys {
            assert!(snapshot.get(id, key).expect("the disk works").is_some());
        }
    });
    (put, get)
}

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = Options::new(directory.path().join("data"));
    let engine = Engine::open(Os::real(), Arc::new(Registry::new()), options).expect("it opens");
    println!("    keys    usual: put, get        chosen: put, get (us each)");
    for (count, bits) in [(1000, 12), (4000, 13), (16_000, 13)] {
        // The first run warms up what is made once.
        let _warm = run(&engine, &usual(count));
        let ((put, get), (chosen_put, chosen_get)) =
            (run(&engine, &usual(count)), run(&engine, &chosen(count, bits)));
        println!("{count:>8}    {put:>8.2} {get:>8.2}        {chosen_put:>8.2} {chosen_get:>8.2}");
    }
    engine.close().expect("the disk works");
}
