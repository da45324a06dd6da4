//! Runs seeds until one fails, and says how to run that one again.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a tool for people at a terminal")]

use clap::Parser;
use sim::{Plan, Tally, run, shrink};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "sim", about = "The whole engine from one seed, with crashes and faults")]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this one.
    #[arg(long)]
    seed: Option<u64>,
    /// Also those of `seeds.txt`, each of which has found a bug.
    #[arg(long)]
    known: bool,
    /// Steps of each run.
    #[arg(long, default_value_t = Plan::default().steps)]
    steps: u64,
    /// Print every step.
    #[arg(long)]
    trace: bool,
    /// Run every n-th seed twice and compare the traces.
    #[arg(long, default_value_t = 20)]
    twice: u64,
    /// Go on after a failure, up to so many.
    #[arg(long, default_value_t = 1)]
    failures: u64,
    /// Only as members of a set.
    #[arg(long)]
    member: bool,
    /// A planted bug: so many of a million syncs do nothing.
    #[arg(long, default_value_t = 0)]
    lying_syncs_ppm: u32,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let plan = Plan {
        steps: arguments.steps,
        lying_syncs_ppm: arguments.lying_syncs_ppm,
        only_member: arguments.member,
        is_verbose: arguments.trace,
        ..Plan::default()
    };
    // A panic is a failure of its seed and is reported with it.
    std::panic::set_hook(Box::new(|panic| println!("{panic}")));
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => arguments.from..arguments.from + arguments.seeds,
    };
    let known = if arguments.known { known() } else { Vec::new() };
    let mut total = Tally::default();
    let mut failed = 0;
    let mut held = 0;
    let first = seeds.start;
    for seed in known.into_iter().chain(seeds) {
        match run(seed, &plan) {
            Ok(summary) => {
                held += 1;
                total.add(&summary.tally);
                if arguments.twice > 0 && seed.abs_diff(first).is_multiple_of(arguments.twice) {
                    let again = run(seed, &Plan { is_verbose: false, ..plan });
                    if !again.is_ok_and(|again| again == summary) {
                        println!("seed {seed} does not run the same way twice");
                        failed += 1;
                    }
                }
                if arguments.seed.is_some() {
                    println!("seed {seed}: trace {:016x}", summary.hash);
                }
            }
            Err(failure) => {
                failed += 1;
                report(seed, &plan, *failure);
                if failed >= arguments.failures {
                    break;
                }
            }
        }
    }
    println!("{total:#?}");
    if failed > 0 {
        println!("sim: {failed} seeds from {first} on failed");
        return ExitCode::FAILURE;
    }
    println!("sim: {held} seeds held");
    ExitCode::SUCCESS
}

/// Every seed that has found a bug, from `seeds.txt`.
fn known() -> Vec<u64> {
    let lines = include_str!("../../seeds.txt").lines();
    let numbers = lines.map(|line| line.split('#').next().unwrap_or_default().trim());
    numbers.filter(|number| !number.is_empty()).filter_map(|number| number.parse().ok()).collect()
}

/// The failure as it was first seen, then as small as it gets.
fn report(seed: u64, plan: &Plan, failure: sim::Failure) {
    println!("\nseed {seed} fails at step {}: {}", failure.step, failure.what);
    println!("trace {:016x}, {:?}", failure.hash, failure.features);
    for line in &failure.tail {
        println!("  {line}");
    }
    let before = failure.features;
    let (smaller, failure) = shrink(seed, plan, failure);
    if failure.features != before {
        println!("it also fails with only {:?}, at step {}:", failure.features, failure.step);
        println!("  {}", failure.what);
        for line in failure.tail.iter().rev().take(12).rev() {
            println!("  {line}");
        }
    }
    let member = if failure.is_member { " --member" } else { "" };
    println!(
        "again: cargo xtask sim --seed {seed} --steps {}{member}",
        plan.steps.max(smaller.steps)
    );
}
