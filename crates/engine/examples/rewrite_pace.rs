//! How fast is a dictionary rewritten with a slow compression, alone and beside clients?
//!
//! `cargo run --profile fast -p engine --example rewrite_pace -- [documents]` (default 50,000, of 260
//! bytes like JSON; a temporary directory). Tells time, processor time, and bytes for each compression.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::{
    Compression, DictionaryId, DictionaryOptions, Durability, Engine, OnConflict, Options, Rewrite,
    TxnOptions,
};
use os::Os;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use telemetry::Registry;

const LATEST: TxnOptions = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };

fn document(n: u64) -> String {
    let x = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let city = ["Berlin", "Lagos", "Lima", "Osaka", "Toronto"][(x >> 60) as usize % 5];
    format!(
        "{{\"_id\":{n},\"customer\":\"c{:06}\",\"name\":\"user{:x}\",\"address\":{{\"city\":\"{city}\",\
         \"street\":\"{} Main Street\",\"zip\":\"{:05}\"}},\"amount\":{}.{:02},\"status\":\"delivered\",\
         \"tags\":[\"a{}\",\"b{}\"],\"created\":\"2026-11-{:02}T12:00:{:02}Z\"}}",
        x % 100_000,
        x >> 20,
        x % 999,
        x >> 47,
        x % 5000,
        x >> 57,
        x % 7,
        x % 11,
        x % 28,
        x % 60,
    )
}

fn cpu() -> Duration {
    let usage = os::usage();
    usage.user + usage.system
}

fn reshape(engine: &Engine, id: DictionaryId, compression: Compression) -> engine::Result<()> {
    let mut txn = engine.begin(TxnOptions::default());
    txn.reshape_dictionary(id, DictionaryOptions { compression, ..DictionaryOptions::default() })?;
    txn.commit(Durability::Buffered)?.durable().map(drop)
}

fn rewrite(engine: &Engine, id: DictionaryId, name: &str, compression: Compression) {
    reshape(engine, id, compression).expect("nobody else changes it");
    let bytes = engine.rewrite_bytes(id, Rewrite::All).expect("it is there");
    let (started, before) = (Duration::from_nanos(now()), cpu());
    engine.rewrite(id, Rewrite::All, &mut |_| true).expect("the disk works");
    let (time, used) =
        (Duration::from_nanos(now()).saturating_sub(started), cpu().saturating_sub(before));
    let megabytes = bytes as f64 / 1e6;
    let stored = engine.dictionary_stats(id).expect("it is there").stored_bytes;
    println!(
        "{name:>24}: {megabytes:.1} MB in {:.2} s, {:.2} s of processor time, {:.2} MB/s, {:.2} MB stored",
        time.as_secs_f64(),
        used.as_secs_f64(),
        megabytes / time.as_secs_f64(),
        stored as f64 / 1e6
    );
}

fn now() -> u64 {
    Os::real().clock.wall_ms().unsigned_abs() * 1_000_000
}

fn main() {
    let documents =
        std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(50_000_u64);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = Options::new(directory.path().join("data"));
    let engine = Engine::open(Os::real(), Arc::new(Registry::new()), options).expect("it opens");
    let mut txn = engine.begin(LATEST);
    let id = txn.create_dictionary(DictionaryOptions::default()).expect("it is new");
    txn.commit(Durability::Buffered).and_then(engine::Committed::durable).expect("the disk works");
    for first in (0..documents).step_by(1000) {
        let mut txn = engine.begin(LATEST);
        for n in first..(first + 1000).min(documents) {
            txn.put(id, &n.to_be_bytes(), document(n).as_bytes()).expect("it is free");
        }
        txn.commit(Durability::Buffered)
            .and_then(engine::Committed::durable)
            .expect("the disk works");
    }
    for (name, compression) in [
        ("zlib 6", Compression::Zlib(6)),
        ("zstd 3", Compression::Zstd(3)),
        ("zstd 19", Compression::Zstd(19)),
    ] {
        rewrite(&engine, id, name, compression);
    }
    let (stop, read) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let n = read.fetch_add(1, Ordering::Relaxed) % documents;
                let got = engine.snapshot().get(id, &n.to_be_bytes());
                assert!(got.expect("the disk works").is_some());
            }
        });
        rewrite(&engine, id, "zlib 6 beside a reader", Compression::Zlib(6));
        rewrite(&engine, id, "zstd 19 beside a reader", Compression::Zstd(19));
        stop.store(true, Ordering::Relaxed);
    });
    engine.close().expect("the disk works");
}
