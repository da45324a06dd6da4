//! What can be asked for, and the sizes of a run of a minute.

use crate::experiments::Experiment;
use crate::login::Login;
use clap::Args;
use std::path::PathBuf;

/// `fern bench`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Which experiment.
    #[arg(value_enum)]
    pub experiment: Experiment,
    /// The server, as a connection string.
    #[arg(long, default_value = "mongodb://127.0.0.1:27017")]
    pub uri: String,
    /// As whom to log in, at the second server too.
    #[command(flatten)]
    pub login: Login,
    /// A second server that gets the same work, in turns; ratios are printed.
    #[arg(long, value_name = "URI")]
    pub vs: Option<String>,
    /// The second server's process on this machine, where its status tells neither CPU nor memory.
    #[arg(long, value_name = "PID", requires = "vs")]
    pub vs_pid: Option<u32>,
    /// Documents: of the collection that is read, or inserted at most. Without: what suits a minute.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub docs: Option<u64>,
    /// Seconds measured, on each server; loading comes on top.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Seconds of each timed phase before its evenness is judged; its rate counts them.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub warm_up: u64,
    /// Seconds without work behind each load, in which a server may put its data in order; what it
    /// does then is counted nowhere.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub rest: u64,
    /// Clients that work at once. Several numbers with commas share the seconds.
    #[arg(long, value_delimiter = ',', value_name = "C")]
    pub clients: Vec<Count>,
    /// Where data and schedule come from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write report.html, report.json, seconds.csv and pictures into this directory.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Documents in one insert or update command.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub batch: Option<u64>,
    /// iibench: bytes of one more field, `cf1`.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub payload: u64,
    /// iibench: how many percent of `cf1` compress to nothing.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub compressible: u64,
    /// iibench: clients that query while others insert.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub queries: u64,
    /// Seconds of a turn with `--vs`.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub slice: u64,
    /// Leave the data on the server.
    #[arg(long)]
    pub keep: bool,
}

/// A number of clients, from 1 to 20,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub usize);

impl std::str::FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().parse() {
            Ok(count @ 1..=20_000) => Ok(Self(count)),
            _ => Err("a number from 1 to 20000 is needed".to_owned()),
        }
    }
}

impl Options {
    /// Documents, or what suits a minute.
    pub(crate) fn docs_or(&self, usual: u64) -> u64 {
        self.docs.unwrap_or(usual)
    }

    /// Documents per command, or the experiment's habit.
    pub(crate) fn batch_or(&self, usual: u64) -> u64 {
        self.batch.unwrap_or(usual)
    }

    /// The numbers of clients, each for its share of the seconds.
    pub(crate) fn clients_or(&self, usual: &[usize]) -> Vec<usize> {
        if self.clients.is_empty() {
            return usual.to_vec();
        }
        self.clients.iter().map(|count| count.0).collect()
    }

    /// One number of clients: the first.
    pub(crate) fn client_or(&self, usual: usize) -> usize {
        self.clients.first().map_or(usual, |count| count.0)
    }

    /// The measured seconds, cut into so many parts.
    pub(crate) fn share(&self, parts: usize) -> f64 {
        self.seconds as f64 / parts.max(1) as f64
    }
}
