//! The experiments by their names. What each shows stands at the top of its file.

mod clustering;
mod concurrent_find;
mod counters;
mod curves;
mod find;
mod iibench;
mod insert;
mod load;
mod multikey;
mod points;
mod random_read;
mod sysbench;
mod ticks;

pub use curves::Curve;

use crate::options::Options;
use crate::phase::Phase;
use anyhow::Result;
use clap::ValueEnum;
use mongodb::bson::{Document, doc};
use rand::Rng;
use rand::distr::Alphanumeric;
use std::time::Duration;

/// What can be run.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Experiment {
    /// Inserts into a collection with three secondary indexes.
    Iibench,
    /// Single inserts from one client, with an index.
    Insert,
    /// Reads a random document and makes it grow.
    Readupdate,
    /// Reads random documents by an index.
    Read,
    /// A day of trade candles: by ticker, by time, as a whole.
    Ticks,
    /// Counters that come to be when they are first counted.
    Upsert,
    /// Many finds in flight, with an index and without.
    ConcurrentFind,
    /// Arrays of a hundred values in an index.
    Multikey,
    /// Range scans by a clustering index and by a plain one.
    Clustering,
    /// The mix of sysbench's OLTP test.
    Sysbench,
    /// Single operations: what each costs the server beyond a ping.
    Points,
    /// How the cost of an operation grows with connections, collections, indexes, sizes, snapshots, versions and data.
    Curves,
}

impl Experiment {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What it asks.
    pub fn question(self) -> String {
        let help = self.to_possible_value().and_then(|value| value.get_help().cloned());
        help.map(|help| help.to_string()).unwrap_or_default()
    }

    /// What is run, on a server with a cache of that size.
    pub(crate) fn phases(self, options: &Options, cache_bytes: Option<u64>) -> Result<Vec<Phase>> {
        Ok(match self {
            Self::Iibench => iibench::phases(options),
            Self::Insert => insert::phases(options),
            Self::Readupdate => random_read::phases(options, true),
            Self::Read => random_read::phases(options, false),
            Self::Ticks => ticks::phases(options),
            Self::Upsert => counters::phases(options),
            Self::ConcurrentFind => concurrent_find::phases(options),
            Self::Multikey => multikey::phases(options),
            Self::Clustering => clustering::phases(options),
            Self::Sysbench => sysbench::phases(options),
            Self::Points => points::phases(options),
            Self::Curves => return curves::phases(options, cache_bytes),
        })
    }
}

/// Text that does not compress below three quarters.
fn text(rng: &mut impl Rng, bytes: usize) -> String {
    rng.sample_iter(Alphanumeric).take(bytes).map(char::from).collect()
}

/// The command that makes plain indexes of these keys.
fn indexes(collection: &str, keys: &[Document]) -> Document {
    let indexes: Vec<Document> =
        keys.iter().map(|key| doc! { "key": key, "name": index_name(key) }).collect();
    doc! { "createIndexes": collection, "indexes": indexes }
}

fn index_name(key: &Document) -> String {
    let parts: Vec<String> = key.iter().map(|(field, way)| format!("{field}_{way}")).collect();
    parts.join("_")
}

/// The moment the data of every run begins with.
const EPOCH_MS: i64 = 1_396_310_400_000;

/// What a cursor may take before an experiment is given up.
const QUERY_TIMEOUT: Duration = Duration::from_mins(10);
