//! What an upsert that adds to a counter costs by a fast update, against reading the value and writing it back.
//!
//! `cargo run --profile fast -p engine --example fast_updates [keys] [seconds]`: counters of 100 bytes, ten times
//! more than the cache holds, past the kernel's page cache. In turns, each for so many seconds: updates by the
//! engine's message, then read-modify-write, of random keys, one thread, a transaction each. Then random reads
//! right after the updates, and after everything was written down.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::{
    Applied, Committed, DictionaryId, DictionaryOptions, Durability, Engine, OnConflict, Options,
    TxnOptions, UpdatePlace, Updates,
};
use os::Os;
use std::sync::Arc;
use std::time::Duration;
use telemetry::Registry;

const LATEST: TxnOptions = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };
const VALUE_BYTES: usize = 100;

/// The first eight bytes are a number; the argument is added to it.
#[derive(Debug)]
struct Add;

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn added(old: Option<&[u8]>, more: u64) -> Vec<u8> {
    let mut value = old.map_or_else(|| vec![b'.'; VALUE_BYTES], <[u8]>::to_vec);
    let sum = old.map_or(0, number).wrapping_add(more);
    value[..8].copy_from_slice(&sum.to_le_bytes());
    value
}

impl Updates for Add {
    fn apply(&self, _: UpdatePlace<'_>, old: Option<&[u8]>, argument: &[u8]) -> Applied {
        Applied::Value(added(old, number(argument)))
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some(number(older).wrapping_add(number(newer)).to_le_bytes().to_vec())
    }
}

struct Keys {
    count: u64,
    state: u64,
}

impl Keys {
    fn next(&mut self) -> [u8; 8] {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        key((self.state >> 33) % self.count)
    }
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn main() {
    let argument = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<u64>().ok());
    let (count, seconds) = (argument(1).unwrap_or(1_500_000), argument(2).unwrap_or(20));
    let home = tempfile::tempdir().expect("there is room for a directory");
    let mut options = Options::new(home.path().join("data"));
    options.cache_size = (count * (VALUE_BYTES as u64 + 8) / 10).max(8 << 20);
    options.directio = std::env::args().nth(3).is_none_or(|text| text != "cached");
    options.updates = Some(Arc::new(Add));
    println!("{count} keys, cache of {} MiB", options.cache_size >> 20);
    let engine =
        Engine::open(Os::real(), Arc::new(Registry::new()), options).expect("the directory opens");
    let mut txn = engine.begin(LATEST);
    // Values that do not compress away.
    let shape = DictionaryOptions { compression: engine::Compression::None, ..Default::default() };
    let id = txn.create_dictionary(shape).expect("it is new");
    txn.commit(Durability::Buffered).and_then(Committed::durable).expect("the disk works");
    for first in (0..count).step_by(1000) {
        let mut txn = engine.begin(LATEST);
        for number in first..(first + 1000).min(count) {
            txn.put(id, &key(number), &added(None, 0)).expect("it is free");
        }
        txn.commit(Durability::Buffered).and_then(Committed::durable).expect("the disk works");
    }
    engine.checkpoint().expect("the disk works");
    let mut keys = Keys { count, state: 1 };
    let clock = Os::real().clock;
    let each = |what: &str, keys: &mut Keys, run: &mut dyn FnMut([u8; 8])| {
        let (started, mut done) = (clock.monotonic(), 0_u64);
        while clock.monotonic().saturating_sub(started) < Duration::from_secs(seconds) {
            (0..100).for_each(|_| run(keys.next()));
            done += 100;
        }
        let took = clock.monotonic().saturating_sub(started).as_secs_f64();
        println!("{what:>32}: {:>9.0} a second", done as f64 / took);
    };
    let committed = |txn: engine::EngineTxn| {
        txn.commit(Durability::Buffered).and_then(Committed::durable).expect("the disk works");
    };
    for _ in 0..2 {
        each("fast updates", &mut keys, &mut |key| {
            let mut txn = engine.begin(LATEST);
            txn.update(id, &key, &1_u64.to_le_bytes()).expect("nobody else writes");
            committed(txn);
        });
        each("random reads right after", &mut keys, &mut |key| read(&engine, id, &key));
        each("read-modify-write", &mut keys, &mut |key| {
            let mut txn = engine.begin(LATEST);
            let old = txn.get_for_update(id, &key).expect("nobody else writes");
            txn.put(id, &key, &added(old.as_deref(), 1)).expect("nobody else writes");
            committed(txn);
        });
        each("random reads right after", &mut keys, &mut |key| read(&engine, id, &key));
    }
    engine.checkpoint().expect("the disk works");
    each("random reads, settled", &mut keys, &mut |key| read(&engine, id, &key));
}

fn read(engine: &Engine, id: DictionaryId, key: &[u8]) {
    assert!(engine.snapshot().get(id, key).expect("the disk works").is_some());
}
