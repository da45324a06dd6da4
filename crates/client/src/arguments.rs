//! The tasks, as `fern` shows them: it hands the words behind its own name on unchanged.

use crate::{backup, import, migrate, stats};
use clap::{Parser, Subcommand};

/// The environment variable by which `fern` tells its version; the name stands in `fern` too, which this
/// program does not link.
pub const VERSION_VARIABLE: &str = "FERN_VERSION";

/// This program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `fern-client`, in the name of `fern`.
#[derive(Parser)]
#[command(name = "fern", bin_name = "fern", version, about = "What `fern` does as a client")]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub task: Task,
}

/// What needs a running server.
#[derive(Subcommand)]
pub enum Task {
    /// Runs one of the experiments against a server, or against two in turns.
    Bench(bench::Options),
    /// Has a running server write a hot backup, and shows how far it is.
    Backup(backup::BackupOptions),
    /// What a running server does, a second at a time.
    Stats(stats::StatsOptions),
    /// Copies everything of a server or a dump to another server, and takes over what changes meanwhile; exit status 1
    /// where both sides differ at the end.
    Migrate(Box<migrate::MigrateOptions>),
    /// Fills a collection from files of JSON, CSV, TSV or BSON; exit status 1 where documents were refused or left out.
    Import(import::ImportOptions),
}

/// The man pages and shell completions in `packaging/`, written from the arguments of both programs;
/// a test fails when one is stale.
#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::{Command, CommandFactory};
    use clap_complete::{Shell, generate};
    use clap_mangen::Man;
    use std::path::PathBuf;

    /// `fern` with the tasks that it hands on as `fern-client` knows them.
    fn whole() -> Command {
        let ours = Arguments::command();
        ours.get_subcommands().fold(fern::arguments::command(), |fern, task| {
            assert!(fern.find_subcommand(task.get_name()).is_some(), "fern does not hand it on");
            let about = fern.find_subcommand(task.get_name()).and_then(Command::get_about);
            assert_eq!(about.map(ToString::to_string), task.get_about().map(ToString::to_string));
            fern.mut_subcommand(task.get_name(), |_| task.clone())
        })
    }

    /// A page for the program and one for each of its tasks.
    fn man_pages() -> Vec<(String, Vec<u8>)> {
        let mut command = whole();
        command.build();
        // Built, a task has the name `fern-TASK` for display, which pages and their files take.
        let tasks = command.get_subcommands().filter(|task| task.get_name() != "help").cloned();
        let tasks = tasks.map(|task| task.version(env!("CARGO_PKG_VERSION")));
        let mut pages = Vec::new();
        for command in tasks.chain([whole()]) {
            let name = command.get_display_name().unwrap_or(command.get_name());
            let (name, mut page) = (format!("man/{name}.1"), Vec::new());
            Man::new(command).render(&mut page).unwrap();
            pages.push((name, page));
        }
        pages
    }

    #[test]
    fn fern_tells_its_version_by_the_same_name() {
        assert_eq!(super::VERSION_VARIABLE, fern::arguments::VERSION_VARIABLE);
    }

    #[test]
    fn man_pages_and_completions_are_fresh() {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"));
        let mut files = man_pages();
        for (shell, name) in
            [(Shell::Bash, "fern.bash"), (Shell::Zsh, "_fern"), (Shell::Fish, "fern.fish")]
        {
            let mut script = Vec::new();
            generate(shell, &mut whole(), "fern", &mut script);
            files.push((format!("completions/{name}"), script));
        }
        assert!(files.len() >= 9, "{}", files.len());
        for (name, text) in files {
            let path = folder.join(&name);
            if std::env::var("FERN_GOLDEN").is_ok_and(|mode| mode == "write") {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &text).unwrap();
            }
            assert!(
                std::fs::read(&path).unwrap_or_default() == text,
                "packaging/{name} is stale: \
                 FERN_GOLDEN=write cargo test -p client completions_are_fresh"
            );
        }
    }
}
