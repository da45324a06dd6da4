//! The project's one entry point: what a laptop runs is what CI runs.
//!
//! `cargo xtask test` is the whole test command; every other task is one of its steps, or a
//! measurement that is too long for it. Everything it installs goes under `target/`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for people at a terminal")]

mod advisories;
mod bench;
mod curves;
mod dependencies;
mod drivers;
mod fuzz;
mod gates;
mod instructions;
mod lanes;
mod manual;
mod package;
mod profile_guided;
mod ratchets;
mod replica;
mod retired;
mod run;
mod sbom;
mod servers;
mod steps;
mod tidy;
mod tools;
mod valgrind;

use anyhow::Result;
use clap::{Parser, Subcommand};
use drivers::Build;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "xtask", about = "Build, test and measure FernDB")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything CI runs: format, clippy, tidy, unit, property, crash and driver tests.
    Test {
        /// Only this step (`fmt`, `tidy`, `clippy`, `unit`, or a driver test by its name).
        #[arg(long)]
        only: Option<String>,
    },
    /// The project rules that no compiler checks: layers, headers, leftovers, the map.
    Tidy,
    /// Licences, duplicate versions, known faults and unused dependencies, as `deny.toml` says.
    Dependencies,
    /// Renews `advisories.toml` from a clone of the advisory database.
    Advisories {
        /// The clone's folder.
        database: PathBuf,
        /// The day of the clone, as 2026-11-27.
        day: String,
    },
    /// PyMongo's own test suite against `fernd`, failures grouped.
    Pymongo {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// A scripted mongosh session.
    Mongosh,
    /// The drivers' unified specifications in the Go driver's runner; needs Go.
    GoUnified {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// mongoengine's, beanie's and odmantic's own test suites against `fernd`, failures by name.
    Odm {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// What the query language costs the server, in CPU per document.
    LanguageSpeed {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// What being watched costs a server under load: throughput and CPU with eyes open and shut.
    MonitoringCost {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// What clients can make the server hold, each case alone and all at once.
    MemoryBound {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Fuzzing of every decoder of outside bytes: blind mutations, or led by coverage.
    Fuzz {
        /// With LLVM's fuzzer, which is led by the branches that inputs take; needs a C++ compiler.
        #[arg(long)]
        coverage: bool,
        /// Arguments handed on to the harness (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The whole engine from one seed: random work, crashes and faults against a model.
    Sim {
        /// Arguments handed on (`--seeds N`, `--from S`, `--seed S`; `--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The tests of unsafe code under valgrind.
    Valgrind,
    /// The iiBench load through a driver, then `validate`, memory and figures.
    Iibench {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// YCSB's six workloads, with figures; needs a JDK and Maven.
    Ycsb {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// kill -9 in the middle of a load, again and again.
    Kill9 {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// kill -9 right behind each command that takes a write concern, and in a mix with DDL.
    Kill9Ddl {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// A replica set whose members are killed, stopped and halted in any order, under clients.
    ReplicaKills {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// A replica set whose network fails in every way, and everything else with it, under clients whose histories are checked.
    ReplicaFaults {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Small file systems filled to the last byte: red zone, starts, drops; needs to mount.
    FullDisk {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Isolation and durability through the official driver, under kills (`-- --help`).
    Isolation {
        /// What to run, and how: `histories`, `bank`, `contention`, `check`, `cost`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The engine against RocksDB, WiredTiger and LMDB: one line per gate, `pass` or `short`.
    Gates {
        /// Arguments handed on (`--quick` ends within five minutes).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Instructions an operation, counted by callgrind and held against bench/instructions.toml.
    Instructions(instructions::Options),
    /// Every experiment of `fern bench`, end to end, against a server started for it.
    BenchSmoke(bench::Options),
    /// How the cost of operations grows: the curves of `fern bench curves`, into bench/results/DATE-curves.
    Curves(curves::Options),
    /// The manual's shell examples, run as a reader would.
    Manual,
    /// A replica set on this machine, to be tried out and to be broken.
    Replica(replica::Options),
    /// The Debian package, under `target/package`.
    Package {
        /// Install it in a fresh Debian root, start, upgrade, remove and purge it there.
        #[arg(long)]
        check: bool,
        /// Of the tests' build, which is quick to make and has assertions; not for users.
        #[arg(long)]
        fast: bool,
    },
    /// `fernd`, `fern` and `fern-client` as the package has them, compiled by a profile of what a server does. Takes
    /// two builds and some minutes of work between them.
    Release,
    /// Ten thousand open connections, a thousand of them active.
    Connections {
        /// Arguments handed on to the script (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// What went wrong, in a line: where in xtask it was noticed says nothing.
fn main() -> ExitCode {
    match carry_out(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(task: Task) -> Result<()> {
    match task {
        Task::Test { only } => steps::test(only.as_deref()),
        Task::Tidy => tidy::tidy(),
        Task::Dependencies => dependencies::dependencies(),
        Task::Advisories { database, day } => advisories::copy::renew(&database, &day),
        Task::Pymongo { arguments } => {
            drivers::script(Build::Alone, "pymongo_suite.py", &arguments)
        }
        Task::Mongosh => drivers::mongosh(Build::Alone),
        Task::GoUnified { arguments } => drivers::script(Build::Alone, "go_unified.py", &arguments),
        Task::Odm { arguments } => drivers::script(Build::Alone, "odm_suites.py", &arguments),
        Task::LanguageSpeed { arguments } => {
            drivers::script(Build::Alone, "language_speed.py", &arguments)
        }
        Task::MonitoringCost { arguments } => {
            drivers::script(Build::Release, "monitoring_cost.py", &arguments)
        }
        Task::MemoryBound { arguments } => {
            drivers::script(Build::Alone, "memory_bound.py", &arguments)
        }
        Task::Fuzz { coverage, arguments } => fuzz::fuzz(coverage, &arguments),
        Task::Sim { arguments } => steps::sim(Build::Alone, &arguments),
        Task::Valgrind => valgrind::valgrind(),
        Task::Iibench { arguments } => drivers::script(Build::Alone, "iibench.py", &arguments),
        Task::Ycsb { arguments } => drivers::script(Build::Release, "ycsb.py", &arguments),
        Task::Kill9 { arguments } => drivers::script(Build::Alone, "kill9.py", &arguments),
        Task::Kill9Ddl { arguments } => drivers::script(Build::Alone, "kill9_ddl.py", &arguments),
        Task::ReplicaKills { arguments } => {
            drivers::script(Build::Alone, "replica_set_kills.py", &arguments)
        }
        Task::ReplicaFaults { arguments } => {
            // The checker of histories is built with the tests.
            drivers::script(Build::WithTests, "replica_set_faults_test.py", &arguments)
        }
        Task::FullDisk { arguments } => drivers::script(Build::Alone, "full_disk.py", &arguments),
        Task::Isolation { arguments } => drivers::isolation(&arguments),
        Task::Gates { arguments } => gates::gates(&arguments),
        Task::Instructions(options) => instructions::instructions(&options),
        Task::BenchSmoke(options) => bench::smoke(Build::Release, &options),
        Task::Curves(options) => curves::curves(&options),
        Task::Manual => manual::examples(Build::Alone),
        Task::Replica(options) => replica::replica(options),
        Task::Package { check, fast } => {
            package::package(if fast { Build::Alone } else { Build::Release }, check)
        }
        Task::Release => {
            let folder = profile_guided::programs(drivers::Programs::Plain)?;
            println!("{}", folder.display());
            Ok(())
        }
        Task::Connections { arguments } => {
            drivers::script(Build::Alone, "connections.py", &arguments)
        }
    }
}
