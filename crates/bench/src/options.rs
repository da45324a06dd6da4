//! What can be asked for, and the sizes of a run of a minute.

use crate::experiments::{Curve, Experiment};
use crate::login::Login;
use anyhow::{Result, ensure};
use clap::Args;
use std::path::PathBuf;

/// Seconds measured, where nobody says how many.
const EXPERIMENT_S: u64 = 60;
/// Those share them among about a hundred points.
const CURVES_S: u64 = 240;
const CURVES_QUICKLY_S: u64 = 10;

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
    /// Without: 60, of all curves 240.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
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
    /// curves: only these, with commas.
    #[arg(long, value_delimiter = ',', value_name = "CURVE")]
    pub only: Vec<Curve>,
    /// curves: the small points alone, a fraction of a second each: whether it works at all.
    #[arg(long)]
    pub quick: bool,
    /// Seconds of a turn with `--vs`.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub slice: u64,
    /// points: each operation is measured so often, in turns with all others, within the same seconds; the table has the
    /// medians, the ratios to a second server those of the rounds, with the least and the most.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=99))]
    pub rounds: u64,
    /// Leave the data on the server.
    #[arg(long)]
    pub keep: bool,
}

/// A number of clients, from 1 to 20,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub usize);

impl std::str::FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
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

    /// Seconds measured in all.
    pub(crate) fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(match self.experiment {
            Experiment::Curves if self.quick => CURVES_QUICKLY_S,
            Experiment::Curves => CURVES_S,
            _ => EXPERIMENT_S,
        })
    }

    /// Whether what is asked for goes together.
    ///
    /// # Errors
    /// An option that the experiment has no use for.
    pub(crate) fn check(&self) -> Result<()> {
        if self.experiment == Experiment::Curves {
            ensure!(
                self.vs.is_none(),
                "curves are of one server: --vs is for the other experiments"
            );
            let sized = self.docs.or(self.batch).is_some();
            ensure!(!sized, "the points of curves have their sizes: --docs and --batch do not");
        } else {
            let is_curves = self.quick || !self.only.is_empty();
            ensure!(!is_curves, "--only and --quick are for curves");
        }
        let is_repeated = self.rounds > 1 && self.experiment != Experiment::Points;
        ensure!(!is_repeated, "--rounds is for points");
        Ok(())
    }

    /// The measured seconds, cut into so many parts.
    pub(crate) fn share(&self, parts: usize) -> f64 {
        self.seconds() as f64 / parts.max(1) as f64
    }
}
