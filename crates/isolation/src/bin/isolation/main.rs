//! Clients of a real server that try its promises, through the official driver; it is killed
//! (kill -9) while they work. What a subcommand shows stands at the top of its file.

#![allow(clippy::print_stdout, reason = "a tool for people: what it found is its output")]

mod bank;
mod contention;
mod histories;
mod recorded;
mod server;
mod transaction;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "isolation", about = "Isolation and durability of a real server, under kills")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Random transactions on lists and registers, checked for anomalies.
    Histories(histories::Options),
    /// Money moves between accounts: the sum stays, and nothing acknowledged is lost.
    Bank(bank::Options),
    /// Many threads increment few documents: no error reaches a client.
    Contention(contention::Options),
    /// Judges a history that other clients have made.
    Check(recorded::Options),
    /// The server's CPU for begin, two updates and commit.
    Cost(bank::CostOptions),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Histories(options) => histories::run(&options),
        Task::Bank(options) => bank::run(&options),
        Task::Contention(options) => contention::run(&options),
        Task::Check(options) => recorded::run(&options),
        Task::Cost(options) => bank::cost(&options),
    }
}
