//! Random transactions on lists and registers from many clients, while the server is killed and
//! lock waits run out; then every read is checked against every write. With `--way none` the same
//! statements run without transactions, and the checker has to object.

use crate::server::{Server, ServerOptions, now, rest};
use crate::transaction::{Running, Way};
use anyhow::{Result, bail};
use isolation::{Anomaly, Op, RecordedTxn, TxnOutcome, check};
use mongodb::bson::{Bson, Document, doc};
use mongodb::sync::Client;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keys in use at a time, of each kind.
const KEYS: u64 = 8;
/// After so many transactions others are used: lists stay short.
const GENERATION: u64 = 600;
/// Final reads in one transaction.
const READS: u64 = 16;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: ServerOptions,
    /// Transactions to try, over all clients.
    #[arg(long, default_value_t = 20_000)]
    transactions: u64,
    #[arg(long, default_value_t = 16)]
    clients: u32,
    #[arg(long, value_enum, default_value = "session")]
    way: Way,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

struct Run<'a> {
    options: &'a Options,
    server: &'a Server,
    started: Instant,
    begun: AtomicU64,
    value: AtomicU64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let server = Server::start(&options.server, options.way.needs_replica_set())?;
    let run = Run {
        options,
        server: &server,
        started: now(),
        begun: AtomicU64::new(0),
        value: AtomicU64::new(1),
    };
    let stop = AtomicBool::new(false);
    let (mut history, kills) = std::thread::scope(|scope| -> Result<_> {
        let killer = scope.spawn(|| server.torment(&stop));
        let clients: Vec<_> = (0..options.clients)
            .map(|client| {
                scope.spawn({
                    let run = &run;
                    move || run.client(client)
                })
            })
            .collect();
        let mut history = Vec::new();
        let mut failed = None;
        for client in clients {
            match client.join() {
                Ok(Ok(txns)) => history.extend(txns),
                Ok(Err(error)) => failed = Some(error),
                Err(_) => failed = Some(anyhow::anyhow!("a client panicked")),
            }
        }
        stop.store(true, Ordering::Relaxed);
        let kills = killer.join().map_err(|_| anyhow::anyhow!("the killer panicked"))??;
        failed.map_or(Ok((history, kills)), Err)
    })?;
    let seconds = run.started.elapsed().as_secs_f64();
    run.read_all(&mut history)?;
    server.validate(&["lists", "registers"])?;
    judge(options, &history, kills, seconds)
}

fn judge(options: &Options, history: &[RecordedTxn], kills: u64, seconds: f64) -> Result<()> {
    let report = check(history);
    println!(
        "{:?}: {} transactions in {seconds:.0} s ({} operations), {} aborted, {} unknown, {kills} kills",
        options.way, report.happened, report.operations, report.aborted, report.unknown
    );
    for (anomaly, count) in report.counts() {
        let allowed = if options.way.level().forbids(anomaly) { "forbidden" } else { "allowed" };
        println!("  {anomaly:?}: {count} ({allowed})");
    }
    let forbidden: Vec<_> = report.forbidden(options.way.level()).collect();
    if options.way == Way::None {
        let cycles = forbidden.iter().filter(|finding| finding.anomaly != Anomaly::Internal);
        if cycles.count() == 0 {
            bail!("statements without transactions looked like transactions: the checker is blind");
        }
        println!("found, as it must: these were no transactions");
        return Ok(());
    }
    for finding in forbidden.iter().take(3) {
        println!("{:?}\n{}", finding.anomaly, finding.text);
    }
    if !forbidden.is_empty() {
        bail!("{} forbidden anomalies", forbidden.len());
    }
    Ok(())
}

impl Run<'_> {
    fn micros(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn client(&self, client: u32) -> Result<Vec<RecordedTxn>> {
        let mut random = StdRng::seed_from_u64(self.options.seed << 16 | u64::from(client));
        let driver = self.server.client(self.options.way.parameters())?;
        let mut history = Vec::new();
        loop {
            let number = self.begun.fetch_add(1, Ordering::Relaxed);
            if number >= self.options.transactions {
                return Ok(history);
            }
            self.transaction(&driver, client, number, &mut random, &mut history);
        }
    }

    /// One transaction, added to the history; and, as transactions of their own, statements that a
    /// kill may have torn from it.
    fn transaction(
        &self,
        driver: &Client,
        client: u32,
        number: u64,
        random: &mut StdRng,
        history: &mut Vec<RecordedTxn>,
    ) {
        let begin = self.micros();
        let kills = self.server.kills();
        let (mut ops, mut torn) = (Vec::new(), Vec::new());
        let mut outcome = TxnOutcome::Aborted;
        match Running::begin(driver, self.options.way) {
            Ok(mut running) => {
                let mut done = true;
                for _ in 0..random.random_range(1..=4) {
                    let key = number / GENERATION * KEYS + random.random_range(0..KEYS);
                    let inside = ops.len();
                    done = self.operation(&mut running, key, random, &mut ops);
                    if self.options.way.is_bound_to_connection() && self.server.kills() != kills {
                        torn = ops.split_off(inside);
                        done = false;
                    }
                    if !done {
                        break;
                    }
                }
                let wants = !random.random_ratio(1, 20);
                if done && wants {
                    outcome = running.commit().0;
                } else {
                    running.abort();
                    if self.options.way == Way::None {
                        // What is done is done.
                        outcome = TxnOutcome::Unknown;
                    }
                }
            }
            Err(_) => rest(Duration::from_millis(10)),
        }
        let mut note = |outcome, ops| {
            let end = if outcome == TxnOutcome::Unknown { u64::MAX } else { self.micros() };
            history.push(RecordedTxn { client, begin, end, outcome, ops });
        };
        note(outcome, ops);
        if !torn.is_empty() {
            note(TxnOutcome::Unknown, torn);
        }
    }

    /// One statement; false where it failed.
    fn operation(
        &self,
        running: &mut Running,
        key: u64,
        random: &mut StdRng,
        ops: &mut Vec<Op>,
    ) -> bool {
        if random.random_ratio(1, 400) {
            // Long enough for others to give up waiting for what this one holds.
            rest(Duration::from_millis(random.random_range(1..300)));
        }
        let id = key as i64;
        let value = self.value.fetch_add(1, Ordering::Relaxed);
        match random.random_range(0..4) {
            0 => running.find("lists", id).map(|found| ops.push(list(key, found.as_ref()))),
            1 => running.find("registers", id).map(|found| ops.push(register(key, found.as_ref()))),
            2 => {
                // Noted even where it fails: it may have been done.
                ops.push(Op::Append { key, value });
                running.upsert("lists", id, doc! { "$push": { "v": value as i64 } })
            }
            _ => {
                ops.push(Op::Write { key, value });
                running.upsert("registers", id, doc! { "$set": { "v": value as i64 } })
            }
        }
        .is_ok()
    }

    /// Everything as it is at the end, in transactions after all others.
    fn read_all(&self, history: &mut Vec<RecordedTxn>) -> Result<()> {
        let driver = self.server.client(self.options.way.parameters())?;
        let keys = (self.options.transactions.div_ceil(GENERATION)) * KEYS;
        for first in (0..keys).step_by(READS as usize) {
            let begin = self.micros();
            let mut running = Running::begin(&driver, self.options.way)?;
            let mut ops = Vec::new();
            for key in first..(first + READS).min(keys) {
                ops.push(list(key, running.find("lists", key as i64)?.as_ref()));
                ops.push(register(key, running.find("registers", key as i64)?.as_ref()));
            }
            let (outcome, error) = running.commit();
            if let Some(error) = error {
                bail!("the last reads failed: {error}");
            }
            history.push(RecordedTxn { client: 0, begin, end: self.micros(), outcome, ops });
        }
        Ok(())
    }
}

fn list(key: u64, found: Option<&Document>) -> Op {
    let values = found.and_then(|found| found.get_array("v").ok());
    let seen = values.into_iter().flatten().filter_map(Bson::as_i64).map(|v| v as u64);
    Op::ReadList { key, seen: seen.collect() }
}

fn register(key: u64, found: Option<&Document>) -> Op {
    let seen = found.and_then(|found| found.get_i64("v").ok()).map(|value| value as u64);
    Op::ReadRegister { key, seen }
}
