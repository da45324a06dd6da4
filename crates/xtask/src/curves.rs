//! The curves of `fern bench curves`, against servers started for them: one with a cache that holds what the other
//! curves are about, and one with a small cache for the curve of the data beside it.
//!
//! `cargo xtask curves` writes them to `bench/results/DATE-curves`; the test step runs the small points and looks at
//! what comes out.

use crate::drivers::{Build, PROGRAMS, programs};
use crate::gates::date;
use crate::run::{root, run, target};
use crate::servers::Server;
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The curves that want a cache for everything, as `fern bench --help` lists them.
const IN_THE_CACHE: [&str; 6] =
    ["connections", "collections", "indexes", "size", "snapshots", "history"];
/// The one that goes to a hundred times the cache.
const BEYOND_THE_CACHE: [&str; 1] = ["data"];
const LARGE_CACHE: &str = "256M";
const SMALL_CACHE: &str = "32M";
/// On a slow machine the most snapshots are held for longer than the minute that a transaction has by itself.
const LONG_TRANSACTIONS: &str = "transactionLifetimeLimitSeconds=600";

/// Threads that a server may have while a thousand clients are at work. On a machine with two processors that nothing
/// else uses they are 18; where the processors are wanted by others, threads that wait are joined by more.
const MAX_THREADS: u64 = 64;
const MANY_CLIENTS: u64 = 1_000;

/// Which, and where to.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these, with commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The small points alone, a fraction of a second each.
    #[arg(long)]
    quick: bool,
    /// Seconds measured, shared by all points of the curves of one server.
    #[arg(long)]
    seconds: Option<u64>,
    /// Where `fernd` and `fern` are, instead of building them.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Where they go; without: bench/results/DATE-curves.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Measures and writes.
pub(crate) fn curves(options: &Options) -> Result<()> {
    let programs = match &options.programs {
        Some(programs) => programs.clone(),
        None => programs(Build::Release, PROGRAMS)?,
    };
    let out = match &options.out {
        Some(out) => root().join(out),
        None => root().join(format!("bench/results/{}-curves", date()?)),
    };
    let known: Vec<&str> = IN_THE_CACHE.into_iter().chain(BEYOND_THE_CACHE).collect();
    let unknown = options.only.iter().find(|name| !known.contains(&name.as_str()));
    ensure!(unknown.is_none(), "there is no curve {unknown:?}: {}", known.join(", "));
    for (cache, names) in [(LARGE_CACHE, &IN_THE_CACHE[..]), (SMALL_CACHE, &BEYOND_THE_CACHE[..])] {
        let is_asked =
            |name: &&str| options.only.is_empty() || options.only.iter().any(|o| o == name);
        let names: Vec<&str> = names.iter().copied().filter(is_asked).collect();
        if !names.is_empty() {
            measure(&programs, cache, &names, options, &out)?;
        }
    }
    println!("the curves are in {}", out.display());
    Ok(())
}

fn measure(
    programs: &Path,
    cache: &str,
    names: &[&str],
    options: &Options,
    out: &Path,
) -> Result<()> {
    let settings = ["--cacheSize", cache, "--setParameter", LONG_TRANSACTIONS];
    let server = Server::start(&programs.join("fernd"), "curves", &settings)?;
    let mut command = Command::new(programs.join("fern"));
    command.args(["bench", "curves", "--uri", &server.uri(), "--only", &names.join(",")]);
    command.arg("--out").arg(out);
    if options.quick {
        command.arg("--quick");
    }
    if let Some(seconds) = options.seconds {
        command.args(["--seconds", &seconds.to_string()]);
    }
    run(&mut command).with_context(|| format!("the server's complaints:\n{}", server.complaints()))
}

/// The small points of all curves, and whether what comes out has the shape that it must have.
pub(crate) fn short() -> Result<()> {
    let out = target().join("curves-smoke");
    // what an earlier run left would be shown beside what this one makes
    let _left = std::fs::remove_dir_all(&out);
    curves(&Options {
        only: Vec::new(),
        quick: true,
        seconds: None,
        programs: Some(programs(Build::WithTests, PROGRAMS)?),
        out: Some(out.clone()),
    })?;
    let page = std::fs::read_to_string(out.join("README.md"))?;
    let names: Vec<&str> = IN_THE_CACHE.into_iter().chain(BEYOND_THE_CACHE).collect();
    for name in &names {
        let text = std::fs::read_to_string(out.join(format!("{name}.json")))?;
        let curve: Value = serde_json::from_str(&text)?;
        check(&curve).with_context(|| format!("{name}.json"))?;
        let svg = std::fs::read_to_string(out.join(format!("{name}.svg")))?;
        ensure!(svg.contains("<circle"), "{name}.svg shows no point");
        ensure!(page.contains(&format!("![{name}]({name}.svg)")), "README.md lacks {name}");
    }
    println!("curves: {} passed, 0 failed", names.len());
    Ok(())
}

/// Whether a curve has points in their order, something done at each, and costs that are told.
fn check(curve: &Value) -> Result<()> {
    let operations = curve["operations"].as_array().context("no operations")?;
    ensure!(!operations.is_empty(), "no operations");
    for operation in operations {
        let points = operation["points"].as_array().context("no points")?;
        let places: Vec<u64> = points.iter().filter_map(|point| point["at"].as_u64()).collect();
        ensure!(!places.is_empty() && places.len() == points.len(), "no places: {operation}");
        ensure!(places.is_sorted(), "they do not ascend: {places:?}");
        for point in points {
            ensure!(point["units"].as_u64() > Some(0), "nothing was done: {operation}");
            let threads =
                point["threads"].as_u64().context("the server's threads are not known")?;
            let is_crowded = point["clients"].as_u64() == Some(MANY_CLIENTS);
            ensure!(
                !is_crowded || threads <= MAX_THREADS,
                "{threads} threads at {MANY_CLIENTS} clients: {MAX_THREADS} at most"
            );
        }
    }
    // On a busy machine not every operation is done often enough in so short a time.
    let points = operations.iter().filter_map(|operation| operation["points"].as_array()).flatten();
    let costs = points.filter(|point| point["cpu_us"].as_f64() > Some(0.0)).count();
    ensure!(costs > 0, "no processor time is told");
    Ok(())
}
