//! What locks cost, against how many there are.
//!
//! - Key locks: nanoseconds of processor time to lock and open one, by one thread and by four, where
//!   transactions take one lock or a hundred.
//! - A range lock beside so many key locks that others hold: in other dictionaries; in its own outside
//!   of the range; with ten of them inside.
//! - Key locks beside a range that is held in their dictionary, with so many requests waiting elsewhere.
//! - The end of a wait: for each of so many threads that wait for one key, from the release of it on until
//!   all had it, together or one after the other.
//!
//! `cargo run --profile fast --example lock_costs -p locktree -- [keys]`; with `keys` the first only.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use locktree::{LockTable, Mode, Options, Range};
use os::Os;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

fn table() -> Arc<LockTable> {
    LockTable::new(Os::real().clock, Options { max_bytes: 1 << 30, ..Options::default() })
}

/// Processor time of the process, so that a busy machine does not count.
fn cpu() -> Duration {
    let usage = os::usage();
    usage.user + usage.system
}

/// The least of five runs, for each of `count` operations, in nanoseconds.
fn least(count: u64, mut run: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let started = cpu();
        run();
        best = best.min(cpu().saturating_sub(started).as_nanos() as f64 / count as f64);
    }
    best
}

fn key_locks(threads: u64, per_txn: u64) -> f64 {
    let table = table();
    let txns = 400_000 / per_txn;
    least(threads * txns * per_txn, || {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let table = &table;
                scope.spawn(move || {
                    for txn in 0..txns {
                        let mut owner = table.owner((thread << 40) + txn);
                        for n in 0..per_txn {
                            let key = [thread, txn, n].map(u64::to_be_bytes).concat();
                            let got = table.acquire(&mut owner, 7, &key, Mode::Exclusive, NOW);
                            got.expect("nobody else has it");
                        }
                        owner.release(None);
                    }
                });
            }
        });
    })
}

fn range(from: u64, to: u64) -> Range {
    let end = |n: u64| n.to_be_bytes().to_vec();
    Range { lower: Bound::Included(end(from)), upper: Bound::Excluded(end(to)) }
}

fn range_lock(others: u64, dictionary: u64, wanted: &Range) -> f64 {
    let table = table();
    let mut holder = table.owner(1);
    for n in 0..others {
        let key = n.to_be_bytes();
        table.acquire(&mut holder, dictionary, &key, Mode::Shared, NOW).expect("it is free");
    }
    let rounds = (1_000_000 / (others + 1)).clamp(2, 1000);
    least(rounds, || {
        for txn in 0..rounds {
            let mut owner = table.owner(2 + txn);
            let got = table.acquire_range(&mut owner, 7, wanted.clone(), Mode::Shared, NOW);
            got.expect("shared locks go together");
        }
    })
}

fn beside_waiters(waiters: u64) -> f64 {
    let table = table();
    let mut holder = table.owner(1);
    table.acquire(&mut holder, 8, b"held", Mode::Exclusive, NOW).expect("it is free");
    let mut reader = table.owner(2);
    table.acquire_range(&mut reader, 7, range(0, 10), Mode::Shared, NOW).expect("it is free");
    std::thread::scope(|scope| {
        for waiter in 0..waiters {
            let table = &table;
            scope.spawn(move || {
                let mut owner = table.owner(1000 + waiter);
                let long = Duration::from_mins(10);
                table.acquire(&mut owner, 8, b"held", Mode::Shared, long).expect("in the end");
            });
        }
        while (table.waiting().len() as u64) < waiters {
            std::thread::sleep(Duration::from_millis(10));
        }
        let rounds = 2000;
        let cost = least(rounds, || {
            for txn in 0..rounds {
                let mut owner = table.owner(100_000 + txn);
                let key = (100 + txn).to_be_bytes();
                table.acquire(&mut owner, 7, &key, Mode::Exclusive, NOW).expect("it is free");
            }
        });
        drop(holder);
        cost
    })
}

/// From the release on until every waiter had the key, for each of them.
fn woken(waiters: u64, mode: Mode) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let table = table();
        let mut holder = table.owner(1);
        table.acquire(&mut holder, 8, b"held", Mode::Exclusive, NOW).expect("it is free");
        std::thread::scope(|scope| {
            for waiter in 0..waiters {
                let table = &table;
                scope.spawn(move || {
                    let mut owner = table.owner(1000 + waiter);
                    let long = Duration::from_mins(10);
                    table.acquire(&mut owner, 8, b"held", mode, long).expect("in the end");
                    owner.release(None);
                });
            }
            while (table.waiting().len() as u64) < waiters {
                std::thread::sleep(Duration::from_millis(10));
            }
            let started = cpu();
            holder.release(None);
            while !table.waiting().is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            best = best.min(cpu().saturating_sub(started).as_nanos() as f64 / waiters as f64);
        });
    }
    best
}

fn main() {
    for (threads, per_txn) in [(1, 1), (1, 100), (4, 1), (4, 100)] {
        let cost = key_locks(threads, per_txn);
        println!("key lock, {threads} threads, {per_txn} a transaction: {cost:.0} ns");
    }
    if std::env::args().nth(1).as_deref() == Some("keys") {
        return;
    }
    println!("range lock, us:    locks elsewhere    in its dictionary outside of it    ten inside");
    for others in [100, 1000, 10_000, 100_000, 1_000_000] {
        let us = |dictionary, wanted: &Range| range_lock(others, dictionary, wanted) / 1000.0;
        let outside = range(others, others + 10);
        let inside = range(0, 10);
        println!(
            "{others:>9}          {:>10.1}         {:>10.1}                {:>10.1}",
            us(8, &outside),
            us(7, &outside),
            us(7, &inside)
        );
    }
    for waiters in [0, 10, 100, 400] {
        let us = beside_waiters(waiters) / 1000.0;
        println!("key lock beside a range and {waiters} requests that wait elsewhere: {us:.1} us");
    }
    for waiters in [1, 10, 100, 400] {
        let us = |mode| woken(waiters, mode) / 1000.0;
        let (shared, exclusive) = (us(Mode::Shared), us(Mode::Exclusive));
        println!(
            "{waiters} that wait for one key: {shared:.1} us each together, {exclusive:.1} us in turn"
        );
    }
}
