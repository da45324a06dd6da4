//! The program behind `fern bench`, `fern backup`, `fern stats`, `fern migrate` and `fern import`. Exit status 0: fine; 1:
//! both sides of a migration differ, or an import left documents out; 2: could not look, or could not measure.
#![forbid(unsafe_code)]

use anyhow::bail;
use clap::Parser;
use client::arguments::{Arguments, Task, VERSION, VERSION_VARIABLE};
use client::{backup, import, migrate, stats};
use os::Os;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match check_version().and_then(|()| run(Arguments::parse().task)) {
        Ok(code) => code,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "fern: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Refuses to work for a `fern` of another version.
fn check_version() -> anyhow::Result<()> {
    match std::env::var(VERSION_VARIABLE) {
        Ok(version) if version != VERSION => bail!(
            "this is fern {version}, and fern-client beside it is {VERSION}: install both of one \
             version"
        ),
        _ => Ok(()),
    }
}

fn run(task: Task) -> anyhow::Result<ExitCode> {
    match task {
        Task::Bench(options) => {
            let table = bench::run(&options)?;
            std::io::stdout().write_all(table.as_bytes())?;
        }
        Task::Backup(asked) => backup::run(&Os::real(), &asked)?,
        Task::Stats(asked) => stats::run(&Os::real(), &asked)?,
        Task::Import(asked) => {
            if !import::run(&Os::real(), &asked)? {
                return Ok(ExitCode::from(1));
            }
        }
        Task::Migrate(asked) => {
            if !migrate::run(&Os::real(), &asked)? {
                return Ok(ExitCode::from(1));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
