//! The binary: arguments in, text or JSON out. Exit status 0: fine; 1: damage; 2: could not look, or
//! could not measure.
//!
//! What needs a running server is done by `fern-client` beside this program (ADR 33).
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::Parser;
use fern::arguments::{Arguments, Place, Show, Task, VERSION, VERSION_VARIABLE};
use fern::inspect::Section;
use fern::{DataDirectory, check, inspect};
use os::Os;

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "fern: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (place, text, json, clean);
    match arguments.task {
        Task::Bench(handed) => return hand_on("bench", &handed.words),
        Task::Stats(handed) => return hand_on("stats", &handed.words),
        Task::Check { place: given } => {
            let checkup = check::check(&open(&given)?);
            (text, json) = (checkup.text(), checkup.json());
            (place, clean) = (given, checkup.findings.is_clean());
        }
        Task::Inspect { place: given, section } => {
            let section = match section {
                None => Section::Overview,
                Some(Show::Superblock) => Section::Superblock,
                Some(Show::Segments) => Section::Segments,
                Some(Show::Trees) => Section::Trees,
                Some(Show::Tree { id }) => Section::Tree(id),
                Some(Show::Log) => Section::Log,
            };
            let view = inspect::inspect(&open(&given)?, section)?;
            (text, json) = (view.text(), view.json());
            (place, clean) = (given, view.findings.is_clean());
        }
    }
    let out = if place.json { format!("{json:#}\n") } else { text };
    // a reader that closes the pipe early has seen enough
    match std::io::stdout().write_all(out.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => return Err(e.into()),
        _ => {}
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn open(place: &Place) -> anyhow::Result<DataDirectory> {
    DataDirectory::open(&Os::real(), &place.dbpath, place.log_dir.as_deref())
}

/// Becomes `fern-client`, which lies where this program does; returns only where it cannot.
fn hand_on(task: &str, words: &[OsString]) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe()?.with_file_name("fern-client");
    let mut client = Command::new(&program);
    let failed = client.env(VERSION_VARIABLE, VERSION).arg(task).args(words).exec();
    Err(failed).with_context(|| format!("`fern {task}` needs {}", program.display()))
}
