//! Runs the program `covering` over the targets: its inputs in, one line a target out.
//!
//! What libFuzzer starts from is a target's own corpus and the inputs kept in `crates/fuzz/corpus`;
//! what it adds stays in the working folder, where the next run goes on from it.

use crate::{Target, kept};
use anyhow::{Context, Result, ensure};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Where things are, and for how long.
#[derive(Debug)]
pub struct Coverage {
    /// The program `covering`, built with counters on its branches.
    pub program: PathBuf,
    /// The working folder: inputs that took a new branch, a folder for each target.
    pub work: PathBuf,
    /// Where an input that ends a target is written.
    pub findings: PathBuf,
    /// Seconds for each target.
    pub seconds: u64,
}

/// What a run of one target showed.
#[derive(Debug, PartialEq, Eq)]
pub struct Covered {
    /// Inputs tried.
    pub inputs: u64,
    /// Branches that were taken by what the run began with.
    pub branches_before: u64,
    /// Branches that were taken at all.
    pub branches: u64,
    /// Whether it ended with a finding.
    pub failed: bool,
}

impl fmt::Display for Covered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inputs, branches_before, branches, failed } = self;
        let end = if *failed { "; FAILED" } else { "" };
        write!(f, "{inputs:>10} inputs, branches {branches_before:>6} -> {branches:>6}{end}")
    }
}

impl Coverage {
    /// Fuzzes one target until the time is over or there is a finding.
    ///
    /// # Errors
    /// A folder that cannot be written, a program that does not start.
    pub fn run(&self, target: &Target) -> Result<Covered> {
        let seeds = self.work.join("seeds").join(target.name);
        write_inputs(&seeds, &kept::corpus(target))?;
        let mut command = self.command(target);
        command.arg(format!("-max_total_time={}", self.seconds)).arg("-print_final_stats=1");
        // What is new goes into the first folder.
        let found = self.work.join("found").join(target.name);
        std::fs::create_dir_all(&found)?;
        std::fs::create_dir_all(&self.findings)?;
        command.args([&found, &seeds]);
        let output = output(&mut command)?;
        let text = String::from_utf8_lossy(&output.stderr);
        let log = self.work.join(format!("{}.log", target.name));
        std::fs::write(&log, text.as_bytes())?;
        let covered = Covered::of(&text, !output.status.success());
        covered.with_context(|| format!("{} says nothing of branches", log.display()))
    }

    /// The fewest inputs that take all branches that were found, the smallest first.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn fewest(&self, target: &Target) -> Result<Vec<Vec<u8>>> {
        let fewest = self.work.join("fewest").join(target.name);
        // what an earlier run left; there is nothing after the first
        let _left = std::fs::remove_dir_all(&fewest);
        std::fs::create_dir_all(&fewest)?;
        let mut command = self.command(target);
        command.arg("-merge=1").arg(&fewest);
        command.args(["found", "seeds"].map(|kind| self.work.join(kind).join(target.name)));
        let output = output(&mut command)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut inputs = Vec::new();
        for entry in std::fs::read_dir(&fewest)? {
            inputs.push(std::fs::read(entry?.path())?);
        }
        inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        Ok(inputs)
    }

    fn command(&self, target: &Target) -> Command {
        let mut command = Command::new(&self.program);
        let prefix = self.findings.join(format!("{}-", target.name));
        command
            .env("FERN_FUZZ_TARGET", target.name)
            .arg(format!("-artifact_prefix={}", prefix.display()))
            .args(["-timeout=20", "-rss_limit_mb=2048", "-max_len=8192", "-use_value_profile=1"]);
        command
    }
}

impl Covered {
    /// From what libFuzzer prints: `#12 INITED cov: 34 ...`, `stat::number_of_executed_units: 56`.
    fn of(text: &str, failed: bool) -> Option<Self> {
        let count = |line: &str| {
            let behind = line.starts_with('#').then(|| line.split(" cov: ").nth(1))??;
            behind.split(' ').next()?.parse().ok()
        };
        let branches_before =
            text.lines().filter(|line| line.contains("INITED")).find_map(count)?;
        let units =
            text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        Some(Self {
            inputs: units?.trim().parse().ok()?,
            branches_before,
            branches: text.lines().filter_map(count).next_back().unwrap_or(branches_before),
            failed,
        })
    }
}

fn output(command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_owned();
    command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", Path::new(&program).display()))
}

fn write_inputs(folder: &Path, inputs: &[Vec<u8>]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for (at, input) in inputs.iter().enumerate() {
        std::fs::write(folder.join(at.to_string()), input)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Covered;

    #[test]
    fn what_libfuzzer_prints_is_read() {
        let text = "INFO: Seed: 1\n\
            #4\tpulse  cov: 2100 ft: 2800 corp: 3/700b exec/s: 0 rss: 60Mb\n\
            #7\tINITED cov: 2931 ft: 3204 corp: 6/1250b exec/s: 0 rss: 60Mb\n\
            #90\tNEW    cov: 2933 ft: 3300 corp: 7/1300b lim: 434 exec/s: 0 rss: 60Mb\n\
            Done 512 runs in 2 second(s)\n\
            stat::number_of_executed_units: 512\n";
        let covered = Covered::of(text, false).unwrap();
        assert_eq!((covered.inputs, covered.branches_before, covered.branches), (512, 2931, 2933));
        assert_eq!(Covered::of("INFO: Seed: 1\n", false), None);
    }
}
