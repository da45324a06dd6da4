//! Counters at a data : cache of 10 : 1: what adding to them without reading costs, beside RocksDB's merge operator
//! and beside reading and writing back, and what reads cost right after.
//!
//! The engines take turns as in the gates ([`crate::gates`]). Each round: additions, random reads right after,
//! additions by reading, and reads once all was settled. With `--minutes` one long run of additions follows, an
//! engine after the other. Every read checks its counter.

use crate::gates::{Results, Turn, Worker, load_average, machine, slice};
use anyhow::Result;
use serde_json::json;
use std::fmt::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Options {
    /// Where the engines keep their data; made, and removed at the end.
    #[arg(long)]
    directory: PathBuf,
    /// Where `counters.txt` and `counters.json` go.
    #[arg(long)]
    out: PathBuf,
    /// Engines to run, ours first.
    #[arg(long, value_delimiter = ',', default_value = "fern,rocksdb")]
    engines: Vec<String>,
    #[arg(long, default_value_t = 24)]
    cache_mb: u64,
    /// Of 108 bytes each, key and value; 0: ten times the cache.
    #[arg(long, default_value_t = 0)]
    rows: u64,
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// How long additions go on after the rounds.
    #[arg(long, default_value_t = 0)]
    minutes: u64,
}

const ADD: &str = "add";
const READ_AFTER: &str = "read right after";
const BY_READING: &str = "add by reading";
const READ_SETTLED: &str = "read, settled";
const LONG: &str = "add for minutes";

pub fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.directory)?;
    std::fs::create_dir_all(&options.out)?;
    let (mut results, before) = (Results::default(), load_average());
    let rows = if options.rows > 0 { options.rows } else { (options.cache_mb << 20) * 10 / 108 };
    let turn =
        |name: &str| Turn { name: name.to_owned(), cache_mb: options.cache_mb, direct: true };
    let mut workers = options
        .engines
        .iter()
        .map(|name| Worker::start(&turn(name), None, &options.directory))
        .collect::<Result<Vec<Worker>>>()?;
    for worker in &mut workers {
        worker.ask(&format!("counters {rows}"))?;
        worker.ask("settle")?;
    }
    let seconds = options.seconds;
    let work = [
        (ADD, format!("add {seconds}")),
        (READ_AFTER, format!("read-counters {seconds}")),
        (BY_READING, format!("add-by-reading {seconds}")),
        (READ_SETTLED, format!("read-counters {seconds}")),
    ];
    for _ in 0..options.rounds {
        for (what, line) in &work {
            for worker in &mut workers {
                if *what == READ_SETTLED {
                    worker.ask("settle")?;
                }
                slice(worker, what, line, &mut results)?;
            }
        }
    }
    if options.minutes > 0 {
        for worker in &mut workers {
            slice(worker, LONG, &format!("add {}", options.minutes * 60), &mut results)?;
        }
    }
    drop(workers);
    let _ = std::fs::remove_dir_all(&options.directory);
    let text = table(options, rows, &results);
    print!("{text}");
    std::fs::write(options.out.join("counters.txt"), &text)?;
    let all = json!({ "machine": machine(&before), "rows": rows, "cache_mb": options.cache_mb,
                      "slices": results.slices() });
    std::fs::write(options.out.join("counters.json"), serde_json::to_string_pretty(&all)?)?;
    Ok(())
}

/// The medians of the slices, their ratios, and the minutes of the long run.
fn table(options: &Options, rows: u64, results: &Results) -> String {
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        let _ = writeln!(out, "{text}");
    };
    line(format_args!(
        "{rows} counters of 108 bytes, a cache of {} MB, direct I/O, {} rounds of {} seconds, a second:",
        options.cache_mb, options.rounds, options.seconds
    ));
    let rate = |engine: &str, what: &str| results.figure(engine, what, "per_second").unwrap_or(0.0);
    for what in [ADD, READ_AFTER, BY_READING, READ_SETTLED, LONG] {
        for engine in &options.engines {
            let each = results.all(engine, what).iter();
            let each: Vec<String> = each
                .filter_map(|slice| Some(format!("{:.0}", slice["per_second"].as_f64()?)))
                .collect();
            if !each.is_empty() {
                let median = rate(engine, what);
                line(format_args!("{what:<18} {engine:<10} {median:>9.0}  ({})", each.join(", ")));
            }
        }
    }
    let engines: &[String] = if options.rounds > 0 { &options.engines[..] } else { &[] };
    for engine in engines {
        line(format_args!(
            "{engine}: additions / additions by reading {:.1}, reads right after / settled {:.2}",
            rate(engine, ADD) / rate(engine, BY_READING),
            rate(engine, READ_AFTER) / rate(engine, READ_SETTLED)
        ));
    }
    if let [ours, theirs, ..] = engines {
        let ratio = |what: &str| rate(ours, what) / rate(theirs, what);
        line(format_args!(
            "{ours} / {theirs}: additions {:.2}, reads right after {:.2}",
            ratio(ADD),
            ratio(READ_AFTER)
        ));
    }
    for engine in &options.engines {
        for slice in results.all(engine, LONG) {
            let seconds: Vec<f64> = slice["each_second"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|n| n.as_f64())
                .collect();
            let minutes: Vec<String> = seconds
                .chunks(60)
                .filter(|minute| minute.len() == 60)
                .map(|minute| format!("{:.0}", minute.iter().sum::<f64>() / 60.0))
                .collect();
            line(format_args!(
                "{engine}, additions a second in each minute: {}",
                minutes.join(", ")
            ));
        }
    }
    out
}
