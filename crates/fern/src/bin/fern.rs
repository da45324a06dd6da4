//! The binary: arguments in, text or JSON out. Exit status 0: fine; 1: damage, a migration whose sides differ, or an
//! import that left documents out; 2: could not look, or could not measure.
//!
//! What needs a running server is done by `fern-client` beside this program (ADR 33).
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use crypt::MasterKey;
use fern::arguments::{Arguments, Place, Show, Task, VERSION, VERSION_VARIABLE};
use fern::inspect::Section;
use fern::restore::{Restore, progress_line, restore};
use fern::rotate::rotate_master;
use fern::{DataDirectory, check, inspect};
use os::Os;

/// How often a terminal shows how far a restore is.
const SHOWN_EVERY: Duration = Duration::from_millis(250);
/// And what is no terminal.
const LOGGED_EVERY: Duration = Duration::from_secs(5);

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
        Task::Backup(handed) => return hand_on("backup", &handed.words),
        Task::Stats(handed) => return hand_on("stats", &handed.words),
        Task::Migrate(handed) => return hand_on("migrate", &handed.words),
        Task::Import(handed) => return hand_on("import", &handed.words),
        Task::RotateMaster { dbpath, key_file, new_key_file } => {
            let directory = DataDirectory::open(&Os::real(), &dbpath, None)?;
            let (old, new) = (read_key(&key_file)?, read_key(&new_key_file)?);
            let now = rotate_master(&directory, &old, &new)?;
            writeln!(std::io::stdout(), "the master key has the fingerprint {now} now")?;
            return Ok(ExitCode::SUCCESS);
        }
        Task::Restore { backup, directory, bases, archive, to, key_file } => {
            let master = key_file.as_deref().map(read_key).transpose()?;
            let target = to.unwrap_or_default();
            return run_restore(&Restore { backup, bases, directory, archive, target, master });
        }
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

/// Restores, and shows how far it is.
fn run_restore(wanted: &Restore) -> anyhow::Result<ExitCode> {
    let os = Os::real();
    let began = os.clock.monotonic();
    let redraws = std::io::stderr().is_terminal();
    let mut shown = began;
    let restored = restore(&os, wanted, &mut |done, total| {
        let now = os.clock.monotonic();
        let pause = if redraws { SHOWN_EVERY } else { LOGGED_EVERY };
        if now.saturating_sub(shown) >= pause {
            shown = now;
            let line = progress_line(done, total, now.saturating_sub(began).as_secs_f64());
            let (before, behind) = if redraws { ("\r\x1b[K", "") } else { ("", "\n") };
            write!(std::io::stderr(), "{before}{line}{behind}")?;
        }
        Ok(())
    });
    if redraws {
        write!(std::io::stderr(), "\r\x1b[K")?;
    }
    let restored = restored?;
    write!(std::io::stdout(), "{}", restored.text())?;
    let clean = restored.checkup.findings.is_clean();
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn open(place: &Place) -> anyhow::Result<DataDirectory> {
    let directory = DataDirectory::open(&Os::real(), &place.dbpath, place.log_dir.as_deref())?;
    match &place.key_file {
        Some(path) => directory.with_key(&read_key(path)?),
        None => Ok(directory),
    }
}

/// A master key; what a server takes is taken here.
fn read_key(path: &Path) -> anyhow::Result<MasterKey> {
    let key = crypt::read_master_key(&Os::real(), path, crypt::Permissions::GroupOfRoot);
    key.with_context(|| format!("the key {}", path.display()))
}

/// Becomes `fern-client`, which lies where this program does; returns only where it cannot.
fn hand_on(task: &str, words: &[OsString]) -> anyhow::Result<ExitCode> {
    // Where `/proc` is not mounted nothing tells where this program lies; then the search path does.
    let own = std::env::current_exe().unwrap_or_default();
    let program = own.with_file_name("fern-client");
    let mut client = Command::new(&program);
    let failed = client.env(VERSION_VARIABLE, VERSION).arg(task).args(words).exec();
    Err(failed).with_context(|| format!("`fern {task}` needs {}", program.display()))
}
