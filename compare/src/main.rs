//! The engine against its peers: `compare worker` is one engine in one process, `compare gates` drives
//! several of them in short alternating slices and judges the ratios; `compare counters` does so with counters that
//! are added to without being read.

mod counters;
mod data;
mod gates;
mod measure;
mod store;
mod worker;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// One engine, told what to do on standard input.
    Worker {
        engine: String,
        directory: PathBuf,
        #[arg(long, default_value_t = 256)]
        cache_mb: u64,
        #[arg(long)]
        direct: bool,
    },
    /// The gates and the key-value ratios, one line each.
    Gates(gates::Options),
    /// Counters that are added to without being read.
    Counters(counters::Options),
    /// Judges an earlier run's folder again, without measuring.
    Judge { folder: PathBuf },
}

fn end(short: usize) -> ! {
    std::process::exit(i32::from(short > 0))
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Worker { engine, directory, cache_mb, direct } => {
            let settings = store::Settings { cache_bytes: cache_mb << 20, direct };
            worker::serve(&engine, &directory, &settings)
        }
        Task::Gates(options) => end(gates::run(&options)?),
        Task::Counters(options) => counters::run(&options),
        Task::Judge { folder } => end(gates::judge_again(&folder)?),
    }
}
