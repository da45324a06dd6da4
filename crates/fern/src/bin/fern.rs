//! The binary: arguments in, text or JSON out. Exit status 0: fine; 1: damage; 2: could not look, or
//! could not measure.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use fern::inspect::Section;
use fern::{DataDirectory, check, inspect, stats};
use os::Os;

#[derive(Parser)]
#[command(
    name = "fern",
    version,
    about = "Looks at FernDB, at a data directory without a server or at one that runs, and measures it"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Superblock, segments, trees and log, with sizes and ratios.
    Inspect {
        #[command(flatten)]
        place: Place,
        /// What to show; without one: everything but single segments and nodes.
        #[command(subcommand)]
        section: Option<Show>,
    },
    /// Runs one of the experiments against a server, or against two in turns.
    Bench(bench::Options),
    /// Reads every page and every log record and names what is damaged; exit status 1 then.
    Check {
        #[command(flatten)]
        place: Place,
    },
    /// What a running server does, a second at a time.
    Stats(stats::StatsOptions),
}

#[derive(Args)]
struct Place {
    /// The data directory.
    dbpath: PathBuf,
    /// Where the log is, if not in the data directory.
    #[arg(long = "logDir", value_name = "PATH")]
    log_dir: Option<PathBuf>,
    /// For programs.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Show {
    /// Both superblocks and what the newest checkpoint says.
    Superblock,
    /// Every segment: kind, place, size, tree.
    Segments,
    /// A line for each tree.
    Trees,
    /// The nodes, runs and leaves of one tree.
    Tree {
        /// The dictionary's number.
        id: u64,
    },
    /// The log's files and what is in it behind the checkpoint.
    Log,
}

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
        Task::Bench(options) => {
            let table = bench::run(&options)?;
            std::io::stdout().write_all(table.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        Task::Stats(asked) => {
            stats::run(&Os::real(), &asked)?;
            return Ok(ExitCode::SUCCESS);
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

fn open(place: &Place) -> anyhow::Result<DataDirectory> {
    DataDirectory::open(&Os::real(), &place.dbpath, place.log_dir.as_deref())
}

/// The man pages and shell completions in `packaging/`, written from the arguments above; a test
/// fails when one is stale.
#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory;
    use clap_complete::{Shell, generate};
    use clap_mangen::Man;
    use std::path::PathBuf;

    /// A page for the program and one for each of its tasks.
    fn man_pages() -> Vec<(String, Vec<u8>)> {
        let mut command = Arguments::command();
        command.build();
        // Built, a task has the name `fern-TASK` for display, which pages and their files take.
        let tasks = command.get_subcommands().filter(|task| task.get_name() != "help").cloned();
        let tasks = tasks.map(|task| task.version(env!("CARGO_PKG_VERSION")));
        let mut pages = Vec::new();
        for command in tasks.chain([Arguments::command()]) {
            let name = command.get_display_name().unwrap_or(command.get_name());
            let (name, mut page) = (format!("man/{name}.1"), Vec::new());
            Man::new(command).render(&mut page).unwrap();
            pages.push((name, page));
        }
        pages
    }

    #[test]
    fn man_pages_and_completions_are_fresh() {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"));
        let mut files = man_pages();
        for (shell, name) in
            [(Shell::Bash, "fern.bash"), (Shell::Zsh, "_fern"), (Shell::Fish, "fern.fish")]
        {
            let mut script = Vec::new();
            generate(shell, &mut Arguments::command(), "fern", &mut script);
            files.push((format!("completions/{name}"), script));
        }
        assert!(files.len() >= 8, "{}", files.len());
        for (name, text) in files {
            let path = folder.join(&name);
            if std::env::var("FERN_GOLDEN").is_ok_and(|mode| mode == "write") {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &text).unwrap();
            }
            assert!(
                std::fs::read(&path).unwrap_or_default() == text,
                "packaging/{name} is stale: \
                 FERN_GOLDEN=write cargo test -p fern --bin fern completions_are_fresh"
            );
        }
    }
}
