//! The gates: every engine is a process of its own; they take turns in slices of a few seconds, so
//! that a noisy machine is noisy for all of them, and only ratios are judged.
//!
//! An engine whose turn it is not is stopped (SIGSTOP): its background work costs nobody else, and is
//! paid in its own next slice.
//!
//! Each line: name, our figure, the peer's, the ratio, the bar, `pass` or `short`; for an aim
//! `reached` or `far`; `-` where it is shown to compare with only.

mod judge;

use anyhow::{Context, Result, bail};
use judge::Line;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Options {
    /// Ends within five minutes: smaller caches, fewer rows, shorter slices.
    #[arg(long)]
    quick: bool,
    /// Where the engines keep their data; made, and removed at the end.
    #[arg(long)]
    directory: PathBuf,
    /// Where the JSON and the CSV go.
    #[arg(long)]
    out: PathBuf,
    /// Engines to run, ours first.
    #[arg(long, value_delimiter = ',', default_value = "fern,rocksdb,wiredtiger,lmdb")]
    engines: Vec<String>,
    /// Another build of this program: its engine takes part as `before`, and every slice of ours is
    /// shown beside it.
    #[arg(long)]
    before: Option<PathBuf>,
}

/// The engine of another build of this program.
const BEFORE: &str = "before";

/// A disk of spinning plates: seeks and megabytes a second.
const SEEK_LIMITED: &str = "throttle 200 100";
/// The share of all cores above which a second is the hypervisor's.
const STOLEN: f64 = 0.05;

/// The sizes of a run.
struct Scale {
    /// The cache of the work within it, and rows that fit with room.
    roomy_mb: u64,
    roomy_rows: u64,
    /// The cache of the work beyond it, and the rows at a data : cache of 10 : 1.
    tight_mb: u64,
    tight_rows: u64,
    /// Seconds.
    slice: u64,
    rounds: u64,
}

const QUICK: Scale = Scale {
    roomy_mb: 128,
    roomy_rows: 120_000,
    tight_mb: 24,
    tight_rows: 720_000,
    slice: 1,
    rounds: 2,
};

const FULL: Scale = Scale {
    roomy_mb: 256,
    roomy_rows: 250_000,
    tight_mb: 256,
    tight_rows: 8_000_000,
    slice: 4,
    rounds: 5,
};

/// An engine to be started.
pub(crate) struct Turn {
    pub(crate) name: String,
    pub(crate) cache_mb: u64,
    pub(crate) direct: bool,
}

/// One engine in its process.
pub(crate) struct Worker {
    name: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// A peer that ended before its time: the others go on without it.
    gone: bool,
}

impl Worker {
    /// Starts it over an empty directory; `before` is the program of the one that is so called.
    pub(crate) fn start(turn: &Turn, before: Option<&Path>, directory: &Path) -> Result<Self> {
        let directory = directory.join(&turn.name);
        let _ = std::fs::remove_dir_all(&directory);
        let program = match before {
            Some(program) if turn.name == BEFORE => program.to_path_buf(),
            _ => std::env::current_exe()?,
        };
        Self::reopen(&program, turn, &directory).map(|(worker, _)| worker)
    }

    /// Starts over what is there; returns the milliseconds the engine took to open.
    fn reopen(program: &Path, turn: &Turn, directory: &Path) -> Result<(Self, f64)> {
        let name = &turn.name[..];
        let mut command = Command::new(program);
        command
            .args(["worker", if name == BEFORE { "fern" } else { name }])
            .arg(directory)
            .arg(format!("--cache-mb={}", turn.cache_mb));
        if turn.direct {
            command.arg("--direct");
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("worker")?;
        let input = child.stdin.take().context("stdin")?;
        let output = BufReader::new(child.stdout.take().context("stdout")?);
        let mut worker = Self { name: name.to_owned(), child, input, output, gone: false };
        let opened = worker.answer("open")?["opened_ms"].as_f64().context("opened_ms")?;
        worker.signal(Signal::STOP);
        Ok((worker, opened))
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Lets the engine run for this one command. Nothing comes from a peer that is gone: it costs
    /// its own lines, and not the run.
    pub(crate) fn ask(&mut self, line: &str) -> Result<Value> {
        if self.gone {
            return Ok(Value::Null);
        }
        match self.run(line) {
            Err(error) if self.name != "fern" => {
                eprintln!("  {} is left out from here on: {error:#}", self.name);
                self.gone = true;
                Ok(Value::Null)
            }
            answer => answer,
        }
    }

    fn run(&mut self, line: &str) -> Result<Value> {
        self.begin(line)?;
        let answer = self.answer(line);
        self.signal(Signal::STOP);
        answer
    }

    fn begin(&mut self, line: &str) -> Result<()> {
        self.signal(Signal::CONT);
        writeln!(self.input, "{line}")?;
        Ok(self.input.flush()?)
    }

    fn answer(&mut self, line: &str) -> Result<Value> {
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        let answer: Value = serde_json::from_str(&answer)
            .with_context(|| format!("{} at `{line}` answers {answer:?}", self.name))?;
        match answer.get("error") {
            Some(error) => bail!("{}: `{line}`: {error}", self.name),
            None => Ok(answer),
        }
    }
}

/// The data is removed anyway: no engine is asked to close in order.
impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Judges what an earlier run wrote, again.
pub fn judge_again(folder: &Path) -> Result<usize> {
    let text = std::fs::read_to_string(folder.join("gates.json"))?;
    let run: Value = serde_json::from_str(&text)?;
    let scale = if run["quick"] == Value::Bool(true) { QUICK } else { FULL };
    let mut results = Results::default();
    for slice in run["slices"].as_array().context("slices")? {
        let (engine, work) = (slice["engine"].as_str(), slice["work"].as_str());
        let (engine, work) = (engine.context("engine")?, work.context("work")?);
        results.add(engine, work, slice["result"].clone());
    }
    report(folder, &results, &scale, run["quick"].clone(), run["machine"].clone())
}

/// The table on standard output and in a file, all figures beside it; returns how many fell short.
fn report(
    out: &Path,
    results: &Results,
    scale: &Scale,
    quick: Value,
    machine: Value,
) -> Result<usize> {
    let lines = judge::judge(results, scale);
    let text = judge::table(&lines);
    print!("{text}");
    std::fs::write(out.join("gates.txt"), &text)?;
    write_out(out, results, &lines, quick, machine)?;
    Ok(lines.iter().filter(|line| line.verdict == "short").count())
}

/// Everything measured, by engine and slice name.
#[derive(Default)]
pub(crate) struct Results {
    slices: BTreeMap<(String, String), Vec<Value>>,
}

impl Results {
    fn add(&mut self, engine: &str, what: &str, value: Value) {
        self.slices.entry((engine.to_owned(), what.to_owned())).or_default().push(value);
    }

    pub(crate) fn all(&self, engine: &str, what: &str) -> &[Value] {
        self.slices.get(&(engine.to_owned(), what.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Each slice with its engine and its work.
    pub(crate) fn slices(&self) -> Vec<Value> {
        let named = |((engine, what), all): (&(String, String), &Vec<Value>)| {
            let slice = |(slice, value): (usize, &Value)| json!({ "engine": engine, "work": what, "slice": slice, "result": value });
            all.iter().enumerate().map(slice).collect::<Vec<Value>>()
        };
        self.slices.iter().flat_map(named).collect()
    }

    /// The median over slices of one figure.
    pub(crate) fn figure(&self, engine: &str, what: &str, figure: &str) -> Option<f64> {
        let mut all: Vec<f64> =
            self.all(engine, what).iter().filter_map(|v| v.get(figure)?.as_f64()).collect();
        all.sort_by(f64::total_cmp);
        let middle = (all.get(all.len().checked_sub(1)? / 2)?, all.get(all.len() / 2)?);
        Some(f64::midpoint(*middle.0, *middle.1))
    }

    /// The seconds in which a checkpoint ran, or had just ended: what it disturbs. Those are left
    /// out of which the hypervisor took more than [`STOLEN`]: nobody's checkpoint slowed them.
    fn checkpoint_seconds(&self, engine: &str, what: &str) -> Vec<f64> {
        let during = |v: &Value| -> Option<Vec<f64>> {
            let all: Vec<f64> =
                v["each_second"].as_array()?.iter().filter_map(Value::as_f64).collect();
            let end = all.len().saturating_sub(1);
            let runs = v["checkpoints"].as_array()?.iter().filter_map(|run| {
                Some((run[0].as_f64()?.floor() as usize, run[1].as_f64()?.floor() as usize + 1))
            });
            let runs: Vec<(usize, usize)> = runs.collect();
            let stolen = |second: usize| {
                v["stolen_each_second"][second].as_f64().is_some_and(|share| share > STOLEN)
            };
            let hit = |second: &usize| {
                runs.iter().any(|(from, to)| (from..=to).contains(&second)) && !stolen(*second)
            };
            Some((0..end).filter(hit).map(|second| all[second]).collect())
        };
        self.all(engine, what).iter().filter_map(during).flatten().collect()
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
    let scale = if options.quick { QUICK } else { FULL };
    std::fs::create_dir_all(&options.directory)?;
    std::fs::create_dir_all(&options.out)?;
    let (mut results, before) = (Results::default(), load_average());
    in_cache(options, &scale, &mut results)?;
    beyond_cache(options, &scale, &mut results)?;
    let _ = std::fs::remove_dir_all(&options.directory);
    report(&options.out, &results, &scale, json!(options.quick), machine(&before))
}

pub(crate) fn slice(
    worker: &mut Worker,
    what: &str,
    line: &str,
    results: &mut Results,
) -> Result<()> {
    let value = worker.ask(line)?;
    if value.is_null() {
        return Ok(());
    }
    eprintln!(
        "  {:<11} {what:<22} {:>12.0}/s {:>8.1} us cpu {:>8.1} KB read",
        worker.name,
        value["per_second"].as_f64().unwrap_or(0.0),
        value["cpu_us"].as_f64().unwrap_or(0.0),
        value["read_bytes"].as_f64().unwrap_or(0.0) / 1024.0,
    );
    results.add(&worker.name, what, value);
    Ok(())
}

/// Every round does all of the work, each engine in its turn.
fn rounds(
    workers: &mut [Worker],
    rounds: u64,
    work: &[(&str, String)],
    results: &mut Results,
) -> Result<()> {
    for _ in 0..rounds {
        for (what, line) in work {
            for worker in &mut *workers {
                slice(worker, what, line, results)?;
            }
        }
    }
    Ok(())
}

fn start(options: &Options, cache_mb: u64, direct: bool) -> Result<Vec<Worker>> {
    let before = options.before.as_ref().map(|_| BEFORE);
    let engines = options.engines.iter().map(String::as_str).chain(before);
    let turn = |name: &str| Turn { name: name.to_owned(), cache_mb, direct };
    let program = options.before.as_deref();
    engines.map(|name| Worker::start(&turn(name), program, &options.directory)).collect()
}

/// Data that fits: reads, scans and updates by one, two and four threads.
fn in_cache(options: &Options, scale: &Scale, results: &mut Results) -> Result<()> {
    eprintln!("data in cache");
    let mut workers = start(options, scale.roomy_mb, false)?;
    for worker in &mut workers {
        slice(worker, "load in cache", &format!("load {} 600", scale.roomy_rows), results)?;
        worker.ask("settle")?;
        for warm in ["fullscan 1", "scan 1 1000"] {
            worker.ask(warm)?;
        }
    }
    let seconds = scale.slice;
    for (what, line) in [
        ("point 1", format!("read {seconds} 1")),
        ("point 2", format!("read {seconds} 2")),
        ("scan 100", format!("scan {seconds} 100")),
        ("full scan", format!("fullscan {seconds}")),
        ("rmw 1", format!("rmw {seconds} 1")),
        ("rmw 2", format!("rmw {seconds} 2")),
        ("rmw 4", format!("rmw {seconds} 4")),
        ("reader beside writer", format!("mixed {seconds}")),
    ] {
        rounds(&mut workers, scale.rounds, &[(what, line)], results)?;
    }
    space(&mut workers, "space in cache", results)?;
    match workers.iter_mut().find(|worker| worker.name == "fern") {
        Some(worker) => side_by_side(options, scale, worker, results),
        None => Ok(()),
    }
}

/// Two engines of one thread each, which have nothing in common but the machine: so much more than
/// one of them does is all that a second thread can bring here, where a single one leaves the other
/// processor to the engine's own threads.
fn side_by_side(
    options: &Options,
    scale: &Scale,
    worker: &mut Worker,
    results: &mut Results,
) -> Result<()> {
    let directory = options.directory.join("beside");
    let turn = Turn { name: "fern".to_owned(), cache_mb: scale.roomy_mb, direct: false };
    let mut other = Worker::start(&turn, None, &directory)?;
    other.ask(&format!("load {} 600", scale.roomy_rows))?;
    for settle in ["settle", "fullscan 1", "rmw 1 1"] {
        other.ask(settle)?;
    }
    let line = format!("rmw {} 1", scale.slice);
    for _ in 0..scale.rounds {
        slice(worker, "rmw alone", &line, results)?;
        worker.begin(&line)?;
        other.begin(&line)?;
        let answers = [worker.answer(&line)?, other.answer(&line)?];
        worker.signal(Signal::STOP);
        other.signal(Signal::STOP);
        let sum = |name: &str| answers.iter().filter_map(|a| a[name].as_f64()).sum::<f64>();
        let both = json!({ "per_second": sum("per_second"), "cpu_us": sum("cpu_us") / 2.0 });
        results.add("fern", "rmw side by side", both);
    }
    Ok(())
}

fn space(workers: &mut [Worker], what: &str, results: &mut Results) -> Result<()> {
    for worker in workers {
        let space = worker.ask("space")?;
        if !space.is_null() {
            results.add(&worker.name, what, space);
        }
    }
    Ok(())
}

/// Data of ten times the cache: a load, more inserts in turns, cold reads, upserts, reads after them.
fn beyond_cache(options: &Options, scale: &Scale, results: &mut Results) -> Result<()> {
    eprintln!("data : cache 10 : 1");
    let mut workers = start(options, scale.tight_mb, true)?;
    workers.retain(|w| w.name != "lmdb");
    for worker in &mut workers {
        if worker.name == "wiredtiger" {
            let value = worker.ask(&format!("fill {}", scale.tight_rows))?;
            if !value.is_null() {
                results.add("wiredtiger", "fill", value);
            }
        } else {
            slice(worker, "load", &format!("load {} 3600", scale.tight_rows), results)?;
        }
    }
    let seconds = scale.slice;
    let insert = [("insert", format!("load 1e9 {}", seconds * 3))];
    rounds(&mut workers, scale.rounds, &insert, results)?;
    for worker in &mut workers {
        worker.ask(SEEK_LIMITED)?;
    }
    let insert = [("insert, few seeks", format!("load 1e9 {}", seconds * 3))];
    rounds(&mut workers, scale.rounds.min(3), &insert, results)?;
    for worker in &mut workers {
        worker.ask("throttle 0 0")?;
        worker.ask("settle")?;
    }
    space(&mut workers, "space", results)?;
    for (what, line) in [
        ("cold point 1", format!("read {} 1", seconds * 2)),
        ("cold point 4", format!("read {} 4", seconds * 2)),
        ("cold scan 100", format!("scan {} 100", seconds * 2)),
        ("cold scan 1000", format!("scan {} 1000", seconds * 2)),
        ("cold full scan", format!("fullscan {}", seconds * 2)),
    ] {
        rounds(&mut workers, scale.rounds, &[(what, line)], results)?;
    }
    let work = [
        ("upsert", format!("upsert {} 1", seconds * 3)),
        ("point after upserts", format!("read {} 1", seconds * 2)),
    ];
    rounds(&mut workers, scale.rounds, &work, results)?;
    space(&mut workers, "space at the end", results)?;
    let mut workers = workers.into_iter().filter(|w| w.name == "fern");
    match workers.next() {
        Some(worker) => recovery(options, scale, worker, results),
        None => Ok(()),
    }
}

/// kill -9 at full load, then open and count.
fn recovery(
    options: &Options,
    scale: &Scale,
    mut fern: Worker,
    results: &mut Results,
) -> Result<()> {
    fern.begin("load 1e9 600")?;
    std::thread::sleep(Duration::from_secs(4));
    drop(fern);
    let directory = options.directory.join("fern");
    let turn = Turn { name: "fern".to_owned(), cache_mb: scale.tight_mb, direct: true };
    let (mut fern, opened_ms) = Worker::reopen(&std::env::current_exe()?, &turn, &directory)?;
    let counted = fern.ask("count")?;
    eprintln!("  fern        recovery {opened_ms:.0} ms, {} rows", counted["rows"]);
    let value = json!({ "opened_ms": opened_ms, "rows": counted["rows"] });
    results.add("fern", "recovery", value);
    Ok(())
}

fn write_out(
    out: &Path,
    results: &Results,
    lines: &[Line],
    quick: Value,
    machine: Value,
) -> Result<()> {
    let mut csv = String::from("engine,work,slice,second,operations,stolen\n");
    for ((engine, what), all) in &results.slices {
        for (slice, value) in all.iter().enumerate() {
            for (second, count) in value["each_second"].as_array().into_iter().flatten().enumerate()
            {
                let stolen = value["stolen_each_second"][second].as_f64().unwrap_or(0.0);
                csv.push_str(&format!("{engine},{what},{slice},{second},{count},{stolen:.3}\n"));
            }
        }
    }
    let lines: Vec<Value> = lines
        .iter()
        .map(|l| {
            json!({ "name": l.name, "ours": l.ours, "peer": l.theirs, "ratio": l.ratio,
                    "bar": l.bar, "verdict": l.verdict })
        })
        .collect();
    let all = json!({ "quick": quick, "machine": machine, "gates": lines,
                      "slices": results.slices() });
    std::fs::write(out.join("gates.json"), serde_json::to_string_pretty(&all)?)?;
    std::fs::write(out.join("gates.csv"), csv)?;
    Ok(())
}

pub(crate) fn load_average() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

pub(crate) fn machine(before: &str) -> Value {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    json!({ "cpu": model.trim_start_matches([' ', '\t', ':']), "cores": cores,
            "load_before": before, "load_after": load_average() })
}
