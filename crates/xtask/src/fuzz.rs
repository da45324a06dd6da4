//! `cargo xtask fuzz`: builds the fuzzer, and its targets with counters where it is led by coverage.

use crate::run::{cargo, host, run, target};
use anyhow::Result;
use std::path::PathBuf;

/// What LLVM adds to each branch and comparison, through flags of the stable compiler.
const INSTRUMENTED: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Runs it; findings are written under `target/fuzz`.
pub(crate) fn fuzz(coverage: bool, arguments: &[String]) -> Result<()> {
    let mut command = cargo(&["run", "--quiet", "--profile", "fast", "--package", "fuzz"]);
    command.args(["--bin", "fuzz", "--", "--out"]).arg(target().join("fuzz"));
    if coverage {
        command.arg("--covering").arg(covering()?);
    }
    run(command.args(arguments))
}

/// Builds the targets with counters. Apart from all else, whose flags differ; and for a named
/// machine, so that build scripts and macros get no counters.
fn covering() -> Result<PathBuf> {
    let (host, folder) = (host()?, target().join("coverage"));
    let mut command = cargo(&["build", "--quiet", "--profile", "fast", "--package", "fuzz"]);
    command.args(["--features", "coverage", "--bin", "covering", "--target", &host]);
    run(command.arg("--target-dir").arg(&folder).env("RUSTFLAGS", INSTRUMENTED))?;
    Ok(folder.join(host).join("fast/covering"))
}
