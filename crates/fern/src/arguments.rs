//! The words behind `fern`.

use crate::restore::Target;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// The environment variable by which `fern` tells `fern-client` its version: programs of two versions
/// may not mean the same by the same words.
pub const VERSION_VARIABLE: &str = "FERN_VERSION";

/// This program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `fern`.
#[derive(Parser)]
#[command(
    name = "fern",
    version,
    about = "Looks at FernDB, at a data directory without a server or at one that runs, and measures it"
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub task: Task,
}

/// What `fern` can do; the last five by `fern-client`, which has their options.
#[derive(Subcommand)]
pub enum Task {
    /// Superblock, segments, trees and log, with sizes and ratios.
    Inspect {
        /// The data directory and how it is shown.
        #[command(flatten)]
        place: Place,
        /// What to show; without one: everything but single segments and nodes.
        #[command(subcommand)]
        section: Option<Show>,
    },
    /// Reads every page and every log record and names what is damaged; exit status 1 then.
    Check {
        /// The data directory and how it is shown.
        #[command(flatten)]
        place: Place,
    },
    /// Wraps the data keys of an encrypted data directory with another master key. No server may run on it.
    RotateMaster {
        /// The data directory.
        dbpath: PathBuf,
        /// The master key that it has.
        #[arg(long = "encryptionKeyFile", value_name = "FILE")]
        key_file: PathBuf,
        /// The one that takes its place.
        #[arg(long = "newEncryptionKeyFile", value_name = "FILE")]
        new_key_file: PathBuf,
    },
    /// Makes a data directory of a hot backup, with what was archived of the log since, up to a moment. No server is
    /// needed; exit status 1 where the backup is damaged.
    Restore {
        /// The backup.
        backup: PathBuf,
        /// The new data directory: empty, or made.
        directory: PathBuf,
        /// Where a backup is that an incremental one was built on, if not where it was then; for each one once.
        #[arg(long = "base", value_name = "DIR")]
        bases: Vec<PathBuf>,
        /// Where the server has archived its log (its --logArchiveDir); without it the state is that of the backup.
        #[arg(long, value_name = "DIR")]
        archive: Option<PathBuf>,
        /// The moment: 2026-11-28T14:05:07Z, another offset than Z, seconds since 1970, or a cluster time as
        /// SECONDS,COUNTER; without it all that is in the archive.
        #[arg(long, value_name = "TIME")]
        to: Option<Target>,
        /// The master key of an encrypted backup; without it only checksums are looked at.
        #[arg(long = "encryptionKeyFile", value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Runs one of the experiments against a server, or against two in turns.
    Bench(HandedOn),
    /// Has a running server write a hot backup, and shows how far it is.
    Backup(HandedOn),
    /// What a running server does, a second at a time.
    Stats(HandedOn),
    /// Copies everything of a server or a dump to another server, and takes over what changes meanwhile; exit status 1
    /// where both sides differ at the end.
    Migrate(HandedOn),
    /// Fills a collection from files of JSON, CSV, TSV or BSON; exit status 1 where documents were refused or left out.
    Import(HandedOn),
}

/// Whatever stands behind the task, `--help` too.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct HandedOn {
    /// What `fern-client` is given.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// A data directory.
#[derive(Args)]
pub struct Place {
    /// The data directory.
    pub dbpath: PathBuf,
    /// Where the log is, if not in the data directory.
    #[arg(long = "logDir", value_name = "PATH")]
    pub log_dir: Option<PathBuf>,
    /// The master key of an encrypted directory; without it only checksums are looked at.
    #[arg(long = "encryptionKeyFile", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// For programs.
    #[arg(long, global = true)]
    pub json: bool,
}

/// A part of a data directory.
#[derive(Subcommand)]
pub enum Show {
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

/// The program's arguments, to make its man pages and completions from.
pub fn command() -> clap::Command {
    Arguments::command()
}
