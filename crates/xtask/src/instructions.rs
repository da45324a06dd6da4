//! Instructions an operation, counted by callgrind: the same build counts the same, whatever else the
//! machine does. Processors of another make may copy memory by other instructions.
//!
//! Some crates have an example that prints a row for each operation that it counts; callgrind writes a
//! file for each. The counts are held against `bench/instructions.toml`: one that is more than
//! [`TOLERANCE`] percent above fails.

use crate::run::{cargo, read, root, run, target};
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::path::Path;
use std::process::{Command, Stdio};

/// The examples whose operations are counted.
const EXAMPLES: [&str; 2] = ["command_instructions", "engine_instructions"];
/// Percent that a count may be above the table's. Runs of one build differ by 1.5 at most.
const TOLERANCE: f64 = 3.0;
/// Operations whose count depends on how long the engine waits between the writes of a drain, and so on the load of
/// the machine: what a drain writes, and how well it compresses that, depends on it, and what reads after it, too.
const TIMING_DEPENDENT: [&str; 4] =
    ["engine: drain", "engine: get", "engine: read-modify-write", "engine: scan"];
/// The tolerance of those is this many times the usual one.
const TIMING_FACTOR: f64 = 3.0;
/// Percent, in the test command: processors of other makers copy memory with other instructions.
const TEST_TOLERANCE_PERCENT: f64 = 10.0;
/// The function that is counted, see `crates/testkit/src/instructions.rs`.
const MEASURED: &str = "testkit::instructions::measured";

/// What to count, and what to do with it.
#[derive(Args)]
pub(crate) struct Options {
    /// Percent that a count may be above the table's.
    #[arg(long, default_value_t = TOLERANCE)]
    tolerance: f64,
    /// Write the counts into bench/instructions.toml.
    #[arg(long)]
    write: bool,
    /// Of a build for users, which has no assertions; shown beside the table, not held against it.
    #[arg(long)]
    release: bool,
    /// Only operations whose names begin so.
    names: Vec<String>,
}

/// What the test command counts: everything.
pub(crate) fn test() -> Result<()> {
    let tolerance = TEST_TOLERANCE_PERCENT;
    instructions(&Options { tolerance, write: false, release: false, names: Vec::new() })
}

/// Counts, shows, and compares.
pub(crate) fn instructions(options: &Options) -> Result<()> {
    tools::require(&[("valgrind", "to count instructions (callgrind)")])?;
    let mut counted = Vec::new();
    let profile = if options.release { "release" } else { "fast" };
    build(profile)?;
    for example in EXAMPLES {
        counted.extend(count(example, profile, &options.names)?);
    }
    ensure!(!counted.is_empty(), "no operation of that name");
    let path = root().join("bench/instructions.toml");
    let known = table(&path)?;
    println!("{:>12} {:>12}        operation", "table", "counted");
    let mut worse = Vec::new();
    for (name, count) in &counted {
        let before = known.get(name).and_then(toml::Value::as_integer);
        let change = before.map(|before| *count as f64 / before as f64 - 1.0);
        let shown = change.map_or_else(|| "new".to_owned(), |by| format!("{:+.1} %", by * 100.0));
        let before = before.map_or_else(|| "-".to_owned(), |before| before.to_string());
        println!("{before:>12} {count:>12} {shown:>8}  {name}");
        if change.is_none_or(|by| by * 100.0 > tolerance_of(name, options.tolerance)) {
            worse.push(name.as_str());
        }
    }
    if options.write {
        return write(&path, known, &counted);
    }
    if !(options.release || worse.is_empty()) {
        bail!(
            "more than {} % above bench/instructions.toml, or not in it: {}; mend it, or say why in \
             the commit that runs `cargo xtask instructions --write`",
            options.tolerance,
            worse.join(", ")
        );
    }
    Ok(())
}

/// Percent that the count of an operation may be above the table's.
fn tolerance_of(name: &str, usual: f64) -> f64 {
    let timed = TIMING_DEPENDENT.iter().any(|timed| name.starts_with(timed));
    if timed { usual * TIMING_FACTOR } else { usual }
}

fn table(path: &Path) -> Result<toml::Table> {
    if path.exists() { Ok(toml::from_str(&read(path)?)?) } else { Ok(toml::Table::new()) }
}

fn write(path: &Path, mut known: toml::Table, counted: &[(String, u64)]) -> Result<()> {
    known.extend(counted.iter().map(|(name, count)| (name.clone(), (*count as i64).into())));
    let head = "# Instructions an operation, of the build that tests use (profile fast): written by\n\
                # `cargo xtask instructions --write`, held by `cargo xtask test`.\n\n";
    std::fs::write(path, format!("{head}{}", toml::to_string(&known)?))?;
    println!("written to {}", path.display());
    Ok(())
}

/// The rows of an example, with the instructions of one operation.
fn count(example: &str, profile: &str, names: &[String]) -> Result<Vec<(String, u64)>> {
    let binary = target().join(profile).join("examples").join(example);
    let folder = target().join("instructions").join(example);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet", "--collect-atstart=no"]);
    command.arg(format!("--toggle-collect={MEASURED}"));
    command.arg(format!("--dump-after={MEASURED}"));
    command.arg(format!("--callgrind-out-file={}", folder.join("dump").display()));
    command.arg(binary).args(names).stderr(Stdio::inherit());
    let output = command.output().context("valgrind cannot be started")?;
    ensure!(output.status.success(), "counting the instructions of {example} failed");
    let rows = String::from_utf8(output.stdout)?;
    rows.lines()
        .enumerate()
        .map(|(at, row)| {
            let (name, times) = row.split_once('\t').context("a row is a name and a number")?;
            let total = total(&folder.join(format!("dump.{}", at + 1)))?;
            Ok((name.to_owned(), total / times.parse::<u64>()?))
        })
        .collect()
}

/// All instructions of one dump.
fn total(dump: &Path) -> Result<u64> {
    let text = read(dump)?;
    let line = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let line = line.or_else(|| text.lines().find_map(|line| line.strip_prefix("summary: ")));
    let total = line.context("callgrind wrote no total")?;
    Ok(total.trim().parse()?)
}

/// Builds all of the workspace's kind at once, as the tests do: what they have built is not built again.
fn build(profile: &str) -> Result<()> {
    let mut command = cargo(&["build", "--quiet", "--profile", profile, "--workspace"]);
    for example in EXAMPLES {
        command.args(["--example", example]);
    }
    run(&mut command)
}
