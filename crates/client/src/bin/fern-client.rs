//! The program behind `fern bench` and `fern stats`. Exit status 0: fine; 2: could not look, or could
//! not measure.
#![forbid(unsafe_code)]

use clap::Parser;
use client::arguments::{Arguments, Task};
use client::stats;
use os::Os;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "fern: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Bench(options) => {
            let table = bench::run(&options)?;
            std::io::stdout().write_all(table.as_bytes())?;
            Ok(())
        }
        Task::Stats(asked) => stats::run(&Os::real(), &asked),
    }
}
