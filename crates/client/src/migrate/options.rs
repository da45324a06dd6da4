//! How `fern migrate` is called.

use super::throttle::parse_bytes;
use bench::Login;
use std::path::PathBuf;

/// How `fern migrate` was called.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct MigrateOptions {
    /// From where: the connection string of a server (MongoDB, FernDB, FerretDB, TokuMX), or a directory that mongodump
    /// wrote.
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// To where: the connection string of a server.
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Log in to the source as this user; the password is asked for, or is a line of a standard input that is no terminal.
    #[arg(long = "sourceUsername", value_name = "USER")]
    pub source_username: Option<String>,
    /// The database that the source's user was created in.
    #[arg(
        long = "sourceAuthenticationDatabase",
        value_name = "DATABASE",
        default_value = "admin",
        requires = "source_username"
    )]
    pub source_database: String,
    /// Log in to the target as this user; the password is asked for after the source's.
    #[arg(long = "targetUsername", value_name = "USER")]
    pub target_username: Option<String>,
    /// The database that the target's user was created in.
    #[arg(
        long = "targetAuthenticationDatabase",
        value_name = "DATABASE",
        default_value = "admin",
        requires = "target_username"
    )]
    pub target_database: String,
    /// Only collections whose name this pattern fits, as shop.* or shop.orders; may be given several times.
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// No collection whose name this pattern fits; may be given several times.
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Copy into collections that the target has already; a document with the same _id is replaced.
    #[arg(long = "intoExisting", alias = "into-existing")]
    pub into_existing: bool,
    /// Users and roles, too, with what stands for their passwords.
    #[arg(long)]
    pub users: bool,
    /// Go on taking over what changes, until Ctrl-C (SIGINT) or SIGTERM; then take over the rest, compare and end.
    #[arg(long)]
    pub follow: bool,
    /// With --follow: end, too, once nothing has changed for so many seconds.
    #[arg(long = "untilQuiet", value_name = "SECONDS", requires = "follow")]
    pub until_quiet: Option<u64>,
    /// Compare both sides at the end, document by document.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub verify: bool,
    /// Readers and writers at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parallel)]
    pub parallel: usize,
    /// Bytes a second that are copied at most, as 10MB; 0 for as fast as it goes.
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = parse_bytes)]
    pub throttle: u64,
    /// The file that tells how far it is, from which a second call goes on; by default one in the working directory,
    /// named by source and target.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Write what was compared and what was not taken over to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Speak to the source only by the messages from before OP_MSG, as to a server that knows no others.
    #[arg(long = "oldProtocol")]
    pub old_protocol: bool,
}

fn parallel(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| "no number".to_owned())?;
    if (1..=64).contains(&number) { Ok(number) } else { Err("from 1 to 64".to_owned()) }
}

impl MigrateOptions {
    pub(super) fn source_login(&self) -> Login {
        let (username, database) = (self.source_username.clone(), self.source_database.clone());
        Login { username, database }
    }

    pub(super) fn target_login(&self) -> Login {
        let (username, database) = (self.target_username.clone(), self.target_database.clone());
        Login { username, database }
    }
}
