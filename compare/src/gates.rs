//! The gates: every engine is a process of its own; they take turns in slices of a few seconds, so
//! that a noisy machine is noisy for all of them, and only ratios are judged.
//!
//! Each line: name, our figure, the peer's, the ratio, the bar, `pass` or `short`.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

#[derive(clap::Args)]
pub struct Options {
    /// Ends within five minutes: a smaller cache, fewer rows, shorter slices.
    #[arg(long)]
    quick: bool,
    /// Where the engines keep their data; made, and removed at the end.
    #[arg(long)]
    directory: PathBuf,
    /// Where the JSON and the CSV go.
    #[arg(long)]
    out: PathBuf,
    /// Only gates whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
    /// Engines to run, ours first.
    #[arg(long, value_delimiter = ',', default_value = "fern,rocksdb,wiredtiger,lmdb")]
    engines: Vec<String>,
}

/// The sizes of a run.
struct Scale {
    cache_mb: u64,
    /// Rows that fit in the cache with room.
    small_rows: u64,
    /// Rows at a data : cache of 10 : 1.
    big_rows: u64,
    slice: u64,
    rounds: u64,
    load_seconds: u64,
}

struct Worker {
    name: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(name: &str, directory: &Path, cache_mb: u64, direct: bool) -> Result<Self> {
        let directory = directory.join(name);
        let _ = std::fs::remove_dir_all(&directory);
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", name]).arg(&directory).arg(format!("--cache-mb={cache_mb}"));
        if direct {
            command.arg("--direct");
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("worker")?;
        let input = child.stdin.take().context("stdin")?;
        let output = BufReader::new(child.stdout.take().context("stdout")?);
        Ok(Self { name: name.to_owned(), child, input, output })
    }

    fn ask(&mut self, line: &str) -> Result<Value> {
        writeln!(self.input, "{line}")?;
        self.input.flush()?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        let answer: Value = serde_json::from_str(&answer)
            .with_context(|| format!("{} ended at `{line}`", self.name))?;
        match answer.get("error") {
            Some(error) => bail!("{}: `{line}`: {error}", self.name),
            None => Ok(answer),
        }
    }

    fn quit(mut self) {
        let _ = writeln!(self.input, "quit");
        drop(self.input);
        let _ = self.child.wait();
    }
}

/// Everything measured, by engine and slice name.
#[derive(Default)]
struct Results {
    slices: BTreeMap<(String, String), Vec<Value>>,
}

impl Results {
    fn add(&mut self, engine: &str, what: &str, value: Value) {
        self.slices.entry((engine.to_owned(), what.to_owned())).or_default().push(value);
    }

    fn all(&self, engine: &str, what: &str) -> &[Value] {
        self.slices.get(&(engine.to_owned(), what.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// The median over slices of one figure.
    fn figure(&self, engine: &str, what: &str, figure: &str) -> Option<f64> {
        let mut all: Vec<f64> =
            self.all(engine, what).iter().filter_map(|v| v.get(figure)?.as_f64()).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// Every second of every slice, but for the cut ones at the ends.
    fn seconds(&self, engine: &str, what: &str) -> Vec<f64> {
        let inner = |v: &Value| {
            let all: Vec<f64> =
                v["each_second"].as_array()?.iter().filter_map(Value::as_f64).collect();
            let end = all.len().saturating_sub(1);
            Some(all[..end].to_vec())
        };
        self.all(engine, what).iter().filter_map(inner).flatten().collect()
    }
}

/// Runs the gates; returns how many fell short.
pub fn run(options: &Options) -> Result<usize> {
    let scale = if options.quick {
        Scale {
            cache_mb: 64,
            small_rows: 60_000,
            big_rows: 800_000,
            slice: 2,
            rounds: 2,
            load_seconds: 40,
        }
    } else {
        Scale {
            cache_mb: 256,
            small_rows: 250_000,
            big_rows: 8_000_000,
            slice: 5,
            rounds: 4,
            load_seconds: 400,
        }
    };
    std::fs::create_dir_all(&options.directory)?;
    std::fs::create_dir_all(&options.out)?;
    let mut results = Results::default();
    in_cache(options, &scale, &mut results)?;
    beyond_cache(options, &scale, &mut results)?;
    let lines = judge(&results, &scale);
    write_out(options, &results, &lines)?;
    let _ = std::fs::remove_dir_all(&options.directory);
    let short = lines.iter().filter(|line| !line.pass).count();
    println!("gates: {} passed, {short} failed", lines.len() - short);
    Ok(short)
}

fn each_in_turn(
    workers: &mut [Worker],
    rounds: u64,
    what: &str,
    line: &str,
    results: &mut Results,
) -> Result<()> {
    for _ in 0..rounds {
        for worker in &mut *workers {
            let value = worker.ask(line)?;
            eprintln!(
                "  {:<11} {what:<22} {:>12.0}/s {:>8.1} us cpu",
                worker.name,
                value["per_second"].as_f64().unwrap_or(0.0),
                value["cpu_us"].as_f64().unwrap_or(0.0),
            );
            results.add(&worker.name, what, value);
        }
    }
    Ok(())
}

fn start(options: &Options, cache_mb: u64, direct: bool) -> Result<Vec<Worker>> {
    let start = |name: &String| Worker::start(name, &options.directory, cache_mb, direct);
    options.engines.iter().map(start).collect()
}

/// Data that fits: reads, scans and updates by one, two and four threads.
fn in_cache(options: &Options, scale: &Scale, results: &mut Results) -> Result<()> {
    eprintln!("data in cache");
    let mut workers = start(options, scale.cache_mb, false)?;
    for worker in &mut workers {
        worker.ask(&format!("load {} 600", scale.small_rows))?;
        worker.ask("settle")?;
        worker.ask("fullscan 1")?;
    }
    let slice = scale.slice;
    for (what, line) in [
        ("point 1", format!("read {slice} 1")),
        ("point 2", format!("read {slice} 2")),
        ("scan 100", format!("scan {slice} 100")),
        ("full scan", format!("fullscan {slice}")),
        ("rmw 1", format!("rmw {slice} 1")),
        ("rmw 2", format!("rmw {slice} 2")),
        ("rmw 4", format!("rmw {slice} 4")),
        ("reader beside writer", format!("mixed {slice}")),
    ] {
        each_in_turn(&mut workers, scale.rounds, what, &line, results)?;
    }
    workers.into_iter().for_each(Worker::quit);
    Ok(())
}

/// Data of ten times the cache: loads in turns, then cold reads, upserts, and reads after them.
fn beyond_cache(options: &Options, scale: &Scale, results: &mut Results) -> Result<()> {
    eprintln!("data : cache 10 : 1");
    let mut workers = start(options, scale.cache_mb, true)?;
    workers.retain(|w| w.name != "lmdb");
    let slices = (scale.load_seconds / scale.slice / 2).max(4);
    for _ in 0..slices {
        each_in_turn(
            &mut workers,
            1,
            "insert",
            &format!("load {} {}", scale.big_rows, scale.slice * 2),
            results,
        )?;
    }
    for worker in &mut workers {
        worker.ask("settle")?;
        let space = worker.ask("space")?;
        results.add(&worker.name, "space", space);
    }
    let slice = scale.slice;
    for (what, line) in [
        ("cold point 1", format!("read {slice} 1")),
        ("cold point 4", format!("read {slice} 4")),
        ("cold scan 100", format!("scan {slice} 100")),
        ("upsert", format!("upsert {} 1", slice * 2)),
        ("point after upserts", format!("read {slice} 1")),
        ("upsert later", format!("upsert {} 1", slice * 2)),
    ] {
        each_in_turn(&mut workers, scale.rounds, what, &line, results)?;
    }
    for worker in &mut workers {
        let space = worker.ask("space")?;
        results.add(&worker.name, "space at the end", space);
    }
    workers.into_iter().for_each(Worker::quit);
    Ok(())
}

struct Line {
    name: String,
    ours: f64,
    theirs: f64,
    ratio: f64,
    bar: String,
    pass: bool,
}

fn judge(results: &Results, scale: &Scale) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut versus = |name: &str, what: &str, peer: &str, figure: &str, bar: f64, less: bool| {
        let (Some(ours), Some(theirs)) =
            (results.figure("fern", what, figure), results.figure(peer, what, figure))
        else {
            return;
        };
        let ratio = ours / theirs;
        let (pass, sign) = if less { (ratio <= bar, "≤") } else { (ratio >= bar, "≥") };
        let (name, bar) = (name.to_owned(), format!("{sign} {bar}x {peer}"));
        lines.push(Line { name, ours, theirs, ratio, bar, pass });
    };
    let rate = "per_second";
    versus("G1 point in cache, 1 thread", "point 1", "wiredtiger", rate, 1.0, false);
    versus("G1 point in cache, 2 threads", "point 2", "wiredtiger", rate, 0.91, false);
    versus("G1 scan of 100 in cache", "scan 100", "wiredtiger", rate, 0.83, false);
    versus("point in cache, 1 thread", "point 1", "rocksdb", rate, 2.0, false);
    versus("G3 insert at 10 : 1", "insert", "wiredtiger", rate, 10.0, false);
    versus("G3 insert at 10 : 1", "insert", "rocksdb", rate, 0.65, false);
    versus("G4 cold scan of 100", "cold scan 100", "wiredtiger", rate, 0.7, false);
    versus("cold point, 1 thread", "cold point 1", "wiredtiger", rate, 1.0, false);
    versus("cold point, 4 threads", "cold point 4", "wiredtiger", rate, 1.0, false);
    versus("disk size after the load", "space", "rocksdb", "bytes_per_row", 1.2, true);
    versus("read-modify-write, 1 thread", "rmw 1", "wiredtiger", rate, 0.8, false);
    versus("sustained upsert at 10 : 1", "upsert", "wiredtiger", rate, 5.0, false);
    own(results, scale, &mut lines);
    for line in &lines {
        println!(
            "{:<34} {:>12.1} {:>12.1} {:>8.2} {:<18} {}",
            line.name,
            line.ours,
            line.theirs,
            line.ratio,
            line.bar,
            if line.pass { "pass" } else { "short" }
        );
    }
    lines
}

/// The gates that compare our engine with itself.
fn own(results: &Results, scale: &Scale, lines: &mut Vec<Line>) {
    let fern = |what: &str, figure: &str| results.figure("fern", what, figure);
    let mut push = |name: &str, ours: Option<f64>, theirs: Option<f64>, bar: f64, less: bool| {
        let (Some(ours), Some(theirs)) = (ours, theirs) else { return };
        let ratio = ours / theirs;
        let (pass, sign) = if less { (ratio <= bar, "≤") } else { (ratio >= bar, "≥") };
        let (name, bar) = (name.to_owned(), format!("{sign} {bar}"));
        lines.push(Line { name, ours, theirs, ratio, bar, pass });
    };
    let rate = "per_second";
    push("point, 1 to 2 threads", fern("point 2", rate), fern("point 1", rate), 1.6, false);
    push("read-modify-write, 1 to 2", fern("rmw 2", rate), fern("rmw 1", rate), 1.5, false);
    push(
        "G2 reader beside a writer",
        fern("reader beside writer", rate),
        fern("point 1", rate),
        0.5,
        false,
    );
    push(
        "point after upserts to settled",
        fern("point after upserts", rate),
        fern("cold point 1", rate),
        0.5,
        false,
    );
    push("upsert flat", fern("upsert later", rate), fern("upsert", rate), 0.9, false);
    push("G4 KB read for a cold point", fern("cold point 1", "read_bytes"), Some(1024.0), 20.0, true);
    push("G3 p99.9 commit, ms", fern("insert", "p999_us"), Some(1000.0), 20.0, true);
    let mut seconds = results.seconds("fern", "insert");
    seconds.sort_by(f64::total_cmp);
    if let (Some(worst), Some(median)) = (seconds.first(), seconds.get(seconds.len() / 2)) {
        push("worst second of the load", Some(*worst), Some(*median), 0.7, false);
    }
    let bound = (scale.cache_mb as f64) * 1.25 + 64.0;
    let peak = fern("space at the end", "peak_resident").map(|b| b / f64::from(1 << 20));
    push("G6 peak resident, MB", peak, Some(bound), 1.0, true);
}

fn write_out(options: &Options, results: &Results, lines: &[Line]) -> Result<()> {
    let mut csv = String::from("engine,work,slice,second,operations\n");
    let mut slices = Vec::new();
    for ((engine, what), all) in &results.slices {
        for (slice, value) in all.iter().enumerate() {
            for (second, count) in
                value["each_second"].as_array().into_iter().flatten().enumerate()
            {
                csv.push_str(&format!("{engine},{what},{slice},{second},{count}\n"));
            }
            slices.push(json!({ "engine": engine, "work": what, "slice": slice, "result": value }));
        }
    }
    let lines: Vec<Value> = lines
        .iter()
        .map(|l| {
            json!({ "name": l.name, "ours": l.ours, "peer": l.theirs, "ratio": l.ratio,
                    "bar": l.bar, "pass": l.pass })
        })
        .collect();
    let all = json!({ "machine": machine(), "gates": lines, "slices": slices });
    std::fs::write(options.out.join("gates.json"), serde_json::to_string_pretty(&all)?)?;
    std::fs::write(options.out.join("gates.csv"), csv)?;
    Ok(())
}

fn machine() -> Value {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    json!({ "cpu": model.trim_start_matches([' ', '\t', ':']), "cores": cores })
}
