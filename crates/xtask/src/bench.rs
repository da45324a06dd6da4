//! The experiments end to end: `fern bench` with each of them, against a `fernd` started for it.
//!
//! What each leaves is checked: every phase did something and was measured, the pictures are there.

use crate::drivers::{Build, PROGRAMS, programs};
use crate::run::{root, run, target};
use crate::servers::Server;
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// As `fern bench --help` lists them.
const EXPERIMENTS: [&str; 11] = [
    "iibench",
    "insert",
    "readupdate",
    "read",
    "ticks",
    "upsert",
    "concurrent-find",
    "multikey",
    "clustering",
    "sysbench",
    "points",
];

/// Those that insert for as long as they are let, rather than read what was loaded.
const GROWING: [&str; 4] = ["iibench", "insert", "upsert", "multikey"];

/// How long, and what for.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these, with commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds measured of each.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// A few documents and a few seconds of each: whether it works at all.
    #[arg(long)]
    short: bool,
    /// The server's cache.
    #[arg(long, default_value = "256M")]
    cache_size: String,
    /// Where the reports go, a directory for each experiment.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The short version, for the test command.
pub(crate) fn short() -> Result<()> {
    smoke(
        Build::WithTests,
        &Options {
            only: Vec::new(),
            seconds: 1,
            short: true,
            cache_size: "64M".to_owned(),
            out: None,
        },
    )
}

/// Runs the experiments, each against a server of its own; one of the short ones against two.
pub(crate) fn smoke(build: Build, options: &Options) -> Result<()> {
    let programs = programs(build, PROGRAMS)?;
    let (fernd, fern) = (programs.join("fernd"), programs.join("fern"));
    let out =
        options.out.as_ref().map_or_else(|| target().join("bench-smoke"), |out| root().join(out));
    let mut passed = 0;
    for name in EXPERIMENTS {
        if !options.only.is_empty() && !options.only.iter().any(|only| only == name) {
            continue;
        }
        let start = |side| Server::start(&fernd, side, &["--cacheSize", &options.cache_size]);
        let server = start("bench-server")?;
        let peer = (options.short && name == "read").then(|| start("bench-peer")).transpose()?;
        let folder = out.join(name);
        let mut command = Command::new(&fern);
        command.args(["bench", name, "--uri", &server.uri()]).arg("--out").arg(&folder);
        if let Some(peer) = &peer {
            command.args(["--vs", &peer.uri(), "--slice", "1"]);
        }
        if options.short {
            // the five queries of `ticks` share them, and pictures need most of a second of each
            command.args(["--clients", "2", "--seconds", "4"]);
            if !GROWING.contains(&name) {
                command.args(["--docs", "4000"]);
            }
        } else {
            command.args(["--seconds", &options.seconds.to_string()]);
        }
        run(&mut command)
            .with_context(|| format!("the server's complaints:\n{}", server.complaints()))?;
        check(&folder, 1 + usize::from(peer.is_some()))
            .with_context(|| format!("{name}'s report"))?;
        passed += 1;
    }
    println!("bench-smoke: {passed} passed, 0 failed");
    Ok(())
}

/// Whether a report says what it must.
fn check(folder: &Path, servers: usize) -> Result<()> {
    let text = std::fs::read_to_string(folder.join("report.json"))?;
    let report: Value = serde_json::from_str(&text)?;
    let sides = report["servers"].as_array().context("no servers")?;
    ensure!(sides.len() == servers, "{} servers", sides.len());
    for phase in sides.iter().flat_map(|side| side["phases"].as_array().into_iter().flatten()) {
        let figure = |name: &str| phase[name].as_f64();
        ensure!(figure("units").is_some_and(|units| units > 0.0), "nothing was done: {phase}");
        for told in ["cpu_us_per_unit", "written_bytes_per_unit", "resident_bytes", "disk_bytes"] {
            ensure!(figure(told).is_some(), "the server does not tell {told}: {phase}");
        }
    }
    let seconds = std::fs::read_to_string(folder.join("seconds.csv"))?;
    ensure!(seconds.lines().count() > 1, "no second was sampled");
    let page = std::fs::read_to_string(folder.join("report.html"))?;
    for picture in ["throughput", "latency", "memory", "io"] {
        let svg = std::fs::read_to_string(folder.join(format!("{picture}.svg")))?;
        // the axes are thinner than what is drawn between them
        ensure!(svg.contains("stroke-width=\"2\""), "{picture}.svg shows nothing");
        ensure!(page.contains(&svg), "report.html lacks {picture}");
    }
    Ok(())
}
