//! Instructions an operation, counted by callgrind: the same build counts the same, whatever else the
//! machine does. Processors of another make may copy memory by other instructions.
//!
//! Some crates have an example that prints a row for each operation that it counts; callgrind writes a
//! file for each. The counts are held against `bench/instructions.toml`: one that is more than
//! [`TOLERANCE`] percent above fails.
//!
//! Beside them stand the locked instructions, atomic changes of memory that others may use: each takes some
//! 20 cycles, and more with each processor that changes the same memory. One more of them fails where an operation has
//! few.

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
/// Locked instructions that an operation may have more than the table says: a part of one is what happens now and then;
/// and of many so many percent.
const LOCKED_TOLERANCE: (f64, f64) = (0.9, 6.0);
/// The table of those, in the same file.
const LOCKED: &str = "locked";
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
    let known_locked = known.get(LOCKED).and_then(toml::Value::as_table);
    println!(
        "{:>12} {:>12} {:>8} {:>8} {:>8}  operation",
        "table", "counted", "", "table", "locked"
    );
    let mut worse = Vec::new();
    for (name, count) in &counted {
        let before = known.get(name).and_then(toml::Value::as_integer);
        let change = before.map(|before| count.instructions as f64 / before as f64 - 1.0);
        let shown = change.map_or_else(|| "new".to_owned(), |by| format!("{:+.1} %", by * 100.0));
        let before = before.map_or_else(|| "-".to_owned(), |before| before.to_string());
        let locked = known_locked.and_then(|known| known.get(name)?.as_float());
        let shown_locked = locked.map_or_else(|| "-".to_owned(), |locked| format!("{locked:.1}"));
        println!(
            "{before:>12} {:>12} {shown:>8} {shown_locked:>8} {:>8.1}  {name}",
            count.instructions, count.locked
        );
        let more = change.is_none_or(|by| by * 100.0 > tolerance_of(name, options.tolerance));
        if more || locked.is_none_or(|locked| count.locked > most_locked(name, locked)) {
            worse.push(name.as_str());
        }
    }
    if options.write {
        return write(&path, known, &counted);
    }
    if !(options.release || worse.is_empty()) {
        bail!(
            "more than {} % or some locked instructions above bench/instructions.toml, or not in it: {}; mend \
             it, or say why in the commit that runs `cargo xtask instructions --write`",
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

/// Locked instructions that an operation may have where the table says so many.
fn most_locked(name: &str, locked: f64) -> f64 {
    let (some, percent) = LOCKED_TOLERANCE;
    locked + some.max(locked * tolerance_of(name, percent) / 100.0)
}

fn table(path: &Path) -> Result<toml::Table> {
    if path.exists() { Ok(toml::from_str(&read(path)?)?) } else { Ok(toml::Table::new()) }
}

fn write(path: &Path, mut known: toml::Table, counted: &[(String, Count)]) -> Result<()> {
    let mut locked = match known.remove(LOCKED) {
        Some(toml::Value::Table(locked)) => locked,
        _ => toml::Table::new(),
    };
    for (name, count) in counted {
        known.insert(name.clone(), (count.instructions as i64).into());
        locked.insert(name.clone(), ((count.locked * 10.0).round() / 10.0).into());
    }
    known.insert(LOCKED.to_owned(), locked.into());
    let head = "# Instructions an operation, of the build that tests use (profile fast), and locked ones among them: written by\n\
                # `cargo xtask instructions --write`, held by `cargo xtask test`.\n\n";
    std::fs::write(path, format!("{head}{}", toml::to_string(&known)?))?;
    println!("written to {}", path.display());
    Ok(())
}

/// What one operation takes.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Count {
    instructions: u64,
    locked: f64,
}

/// The rows of an example.
fn count(example: &str, profile: &str, names: &[String]) -> Result<Vec<(String, Count)>> {
    let binary = target().join(profile).join("examples").join(example);
    let folder = target().join("instructions").join(example);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet", "--collect-atstart=no", "--collect-bus=yes"]);
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
            let [instructions, locked] = totals(&read(&folder.join(format!("dump.{}", at + 1)))?)?;
            let times = times.parse::<u64>()?;
            let count =
                Count { instructions: instructions / times, locked: locked as f64 / times as f64 };
            Ok((name.to_owned(), count))
        })
        .collect()
}

/// All instructions of one dump, and the locked ones. Callgrind leaves zeros at the end of a line out.
fn totals(dump: &str) -> Result<[u64; 2]> {
    let line = |head| dump.lines().find_map(|line| line.strip_prefix(head));
    let line =
        line("totals: ").or_else(|| line("summary: ")).context("callgrind wrote no total")?;
    let mut totals = line.split_whitespace();
    let instructions = totals.next().context("callgrind wrote an empty total")?.parse()?;
    Ok([instructions, totals.next().map_or(Ok(0), str::parse)?])
}

/// Builds all of the workspace's kind at once, as the tests do: what they have built is not built again.
fn build(profile: &str) -> Result<()> {
    let mut command = cargo(&["build", "--quiet", "--profile", profile, "--workspace"]);
    for example in EXAMPLES {
        command.args(["--example", example]);
    }
    run(&mut command)
}

#[cfg(test)]
mod tests {
    use super::{most_locked, totals};

    #[test]
    fn one_more_locked_instruction_is_too_many_where_there_are_few() {
        for (name, table, most) in [
            ("ping", 11.0, 11.9),
            ("find by _id", 50.0, 53.0),
            ("engine: get", 10.0, 11.8),
            ("scan, a document", 0.1, 1.0),
        ] {
            assert!((most_locked(name, table) - most).abs() < 1e-9, "{name}");
        }
    }

    #[test]
    fn totals_are_those_of_instructions_and_of_locked_ones() {
        let dump =
            |totals: &str| format!("events: Ir Ge\nsummary: 9 9\n\nfn=(1) f\n1 2 3\n{totals}\n");
        for (line, found) in
            [("totals: 1311039 5104", [1_311_039, 5104]), ("totals: 77", [77, 0]), ("", [9, 9])]
        {
            assert_eq!(totals(&dump(line)).unwrap(), found, "{line:?}");
        }
        assert!(totals("events: Ir Ge\n").is_err());
    }
}
