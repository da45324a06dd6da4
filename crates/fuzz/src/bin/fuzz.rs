//! `cargo xtask fuzz`: runs the targets for a number of rounds from a seed or under LLVM's fuzzer, or
//! replays one input.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for people at a terminal")]

use anyhow::Result;
use clap::Parser;
use fuzz::coverage::Coverage;
use fuzz::{Target, kept, targets};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
struct Arguments {
    /// Only this target.
    #[arg(long)]
    target: Option<String>,
    /// The seed; a finding names it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mutated inputs for each target.
    #[arg(long, default_value_t = 200_000)]
    rounds: u64,
    /// Feeds the target this file instead.
    #[arg(long, requires = "target")]
    replay: Option<PathBuf>,
    /// Where findings are written.
    #[arg(long, default_value = "target/fuzz")]
    out: PathBuf,
    #[command(flatten)]
    led: Led,
}

/// Led by the branches that inputs take.
#[derive(clap::Args)]
struct Led {
    /// The program `covering`; what it works on stays in the folder `coverage` of `--out`.
    #[arg(long, value_name = "PROGRAM")]
    covering: Option<PathBuf>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 60, requires = "covering")]
    seconds: u64,
    /// Afterwards, keeps up to so many bytes of inputs for each target in the repository: the fewest
    /// that take all branches.
    #[arg(long, value_name = "BYTES", requires = "covering")]
    keep: Option<usize>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let chosen: Vec<&Target> = match &arguments.target {
        Some(name) => targets::find(name).into_iter().collect(),
        None => targets::ALL.iter().collect(),
    };
    if chosen.is_empty() {
        let names: Vec<_> = targets::ALL.iter().map(|t| t.name).collect();
        eprintln!("no such target; there are: {}", names.join(", "));
        return Ok(ExitCode::from(2));
    }
    if let Some(path) = &arguments.replay {
        let input = std::fs::read(path)?;
        for target in chosen {
            (target.start)()(&input);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let failed = match &arguments.led.covering {
        None => mutate(&arguments, &chosen),
        Some(program) => cover(&arguments, &chosen, program.clone())?,
    };
    println!("fuzz: {} passed, {failed} failed", chosen.len() - failed);
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn mutate(arguments: &Arguments, chosen: &[&Target]) -> usize {
    let mut failed = 0;
    for target in chosen {
        match fuzz::run(target, arguments.seed, arguments.rounds) {
            Ok(()) => println!("{:<12} {} inputs", target.name, arguments.rounds),
            Err(finding) => {
                failed += 1;
                let path = arguments.out.join(format!("{}-{}", finding.target, arguments.seed));
                let kept = std::fs::create_dir_all(&arguments.out)
                    .and_then(|()| std::fs::write(&path, &finding.input));
                println!(
                    "{:<12} FAILED in round {} of seed {}: {} bytes in {} ({kept:?})",
                    finding.target,
                    finding.round,
                    arguments.seed,
                    finding.input.len(),
                    path.display(),
                );
            }
        }
    }
    failed
}

fn cover(arguments: &Arguments, chosen: &[&Target], program: PathBuf) -> Result<usize> {
    let coverage = Coverage {
        program,
        work: arguments.out.join("coverage"),
        findings: arguments.out.clone(),
        seconds: arguments.led.seconds,
    };
    let mut failed = 0;
    for target in chosen {
        let covered = coverage.run(target)?;
        failed += usize::from(covered.failed);
        print!("{:<12} {covered}", target.name);
        if let Some(bytes) = arguments.led.keep {
            let inputs = coverage.fewest(target)?;
            let count = kept::keep(target, &inputs, bytes)?;
            print!("; {count} of {} inputs kept", inputs.len());
        }
        println!();
    }
    Ok(failed)
}
