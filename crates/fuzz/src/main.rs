//! `cargo xtask fuzz`: runs the targets for a number of rounds from a seed, or replays one input.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for people at a terminal")]

use clap::Parser;
use std::path::PathBuf;

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
}

fn main() {
    let arguments = Arguments::parse();
    let chosen: Vec<_> = fuzz::targets::ALL
        .iter()
        .filter(|t| arguments.target.as_deref().is_none_or(|name| name == t.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = fuzz::targets::ALL.iter().map(|t| t.name).collect();
        eprintln!("no such target; there are: {}", names.join(", "));
        std::process::exit(2);
    }
    if let Some(path) = arguments.replay {
        let input = std::fs::read(&path).expect("the file to replay is readable");
        for target in chosen {
            (target.start)()(&input);
        }
        return;
    }
    let mut failed = 0;
    for target in &chosen {
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
    println!("fuzz: {} passed, {failed} failed", chosen.len() - failed);
    std::process::exit(i32::from(failed > 0));
}
