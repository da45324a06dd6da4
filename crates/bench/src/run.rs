//! A run from its options to its report.

use crate::experiments::Experiment;
use crate::figures::{Machine, Report};
use crate::options::Options;
use crate::phase::{End, Phase};
use crate::progress::Progress;
use crate::report;
use crate::side::{Side, cache_limit};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;

/// Runs an experiment, writes what `--out` asks for, and returns the table for the terminal.
///
/// # Errors
/// A server that cannot be reached or refuses an operation; a directory that cannot be written.
pub fn run(options: &Options) -> Result<String> {
    options.check()?;
    // each connection is a file; what cannot be raised shows as a failed connection
    let _limit = os::raise_open_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(measure(options))?;
    let writing = |out: &Path| format!("cannot write to {}", out.display());
    if options.experiment == Experiment::Curves {
        let curves = report::curves::of(&report);
        if let Some(out) = &options.out {
            report::curves::write(&curves, out).with_context(|| writing(out))?;
        }
        return Ok(report::curves::text(&curves));
    }
    let table = report::table::table(&report);
    if let Some(out) = &options.out {
        report::write(&report, &table, out).with_context(|| writing(out))?;
    }
    Ok(table)
}

async fn measure(options: &Options) -> Result<Report> {
    let login = options.login.ask()?;
    let login = login.as_ref();
    let started = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S").to_string();
    let cache_bytes = match options.experiment {
        Experiment::Curves => cache_limit(&options.uri, login).await?,
        _ => None,
    };
    let phases = options.experiment.phases(options, cache_bytes)?;
    let clients = phases.iter().map(|phase| phase.clients + phase.beside).max().unwrap_or(1);
    let mut sides =
        vec![Side::connect("server", (options.uri.as_str(), login), None, clients, options).await?];
    if let Some(uri) = &options.vs {
        sides.push(
            Side::connect("vs", (uri.as_str(), login), options.vs_pid, clients, options).await?,
        );
    }
    for round in 0..options.rounds {
        for side in &mut sides {
            side.repeat(round);
        }
        let is_wanted = |phase: &&Phase| round == 0 || phase.shown;
        carry_out_all(phases.iter().filter(is_wanted), &mut sides, options).await?;
        // Who comes first in one round comes last in the next.
        sides.reverse();
    }
    if !options.rounds.is_multiple_of(2) {
        sides.reverse();
    }
    let mut servers = Vec::new();
    for side in sides {
        let figures = side.end(options.keep).await?;
        servers.push(if options.rounds > 1 { figures.of_rounds() } else { figures });
    }
    Ok(Report {
        format: 1,
        experiment: options.experiment.name(),
        question: options.experiment.question(),
        started,
        command: command(options),
        seed: options.seed,
        machine: Machine::this(),
        servers,
    })
}

/// The phases in their order.
async fn carry_out_all(
    phases: impl Iterator<Item = &Phase>,
    sides: &mut [Side],
    options: &Options,
) -> Result<()> {
    let mut phases = phases.peekable();
    while let Some(phase) = phases.next() {
        carry_out(phase, sides, options)
            .await
            .with_context(|| format!("phase `{}`", phase.name))?;
        if matches!(phase.end, End::Units(_)) && phases.peek().is_some() {
            tokio::time::sleep(Duration::from_secs(options.rest)).await;
        }
    }
    Ok(())
}

/// The servers in turns, until each is done with the phase.
async fn carry_out(phase: &Phase, sides: &mut [Side], options: &Options) -> Result<()> {
    for side in sides.iter_mut() {
        side.begin(phase).await?;
    }
    let turn = (sides.len() > 1).then(|| Duration::from_secs(options.slice));
    let mut progress = Progress::of(phase, sides.len());
    while sides.iter().any(|side| !side.is_done(phase)) {
        for side in sides.iter_mut().filter(|side| !side.is_done(phase)) {
            side.turn(phase, turn, &mut progress).await?;
        }
    }
    progress.end();
    for side in sides.iter_mut() {
        side.finish(phase, options).await?;
    }
    Ok(())
}

/// How to make the run again.
fn command(options: &Options) -> String {
    let mut words = vec!["fern bench".to_owned(), options.experiment.name()];
    let mut add = |flag: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("--{flag} {value}")));
    };
    let only: Vec<&str> = options.only.iter().map(|curve| curve.name()).collect();
    add("only", (!only.is_empty()).then(|| only.join(",")));
    add("docs", options.docs.map(|docs| docs.to_string()));
    add("seconds", Some(options.seconds().to_string()));
    add("warm-up", (options.warm_up > 0).then(|| options.warm_up.to_string()));
    add("rest", (options.rest > 0).then(|| options.rest.to_string()));
    let clients: Vec<String> = options.clients.iter().map(|count| count.0.to_string()).collect();
    add("clients", (!clients.is_empty()).then(|| clients.join(",")));
    add("batch", options.batch.map(|batch| batch.to_string()));
    add("payload", (options.payload > 0).then(|| options.payload.to_string()));
    add("compressible", (options.payload > 0).then(|| options.compressible.to_string()));
    add("queries", (options.queries > 0).then(|| options.queries.to_string()));
    add("rounds", (options.rounds > 1).then(|| options.rounds.to_string()));
    add("slice", options.vs.as_ref().map(|_| options.slice.to_string()));
    add("seed", Some(options.seed.to_string()));
    words.extend(options.quick.then(|| "--quick".to_owned()));
    words.join(" ")
}
