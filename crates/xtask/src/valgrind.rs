//! Unit tests of the crates with unsafe code under valgrind's memcheck.
//!
//! The stable toolchain has neither Miri nor sanitizers. Memcheck sees reads of freed, foreign or
//! never written memory and leaks; it does not see data races or broken aliasing rules. What
//! threads do to each other is shuttle's (`cargo xtask test --only interleavings`).

use crate::run::{cargo, run};
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};

/// Package and which of its unit tests: those of unsafe code and of what stands on it.
const UNSAFE: &[(&str, &str)] = &[
    // buffers for direct I/O
    ("os", "aligned"),
    // code that takes the place of code
    ("os", "huge_code"),
    // arena, index and order of a memtable, values that borrow from it: all tests of the crate
    ("ftree", ""),
    // calls of PCRE2, and its calls back; compiled code is interpreted there, which valgrind can see
    ("pcre", ""),
    // the counting allocator under QuickJS
    ("script", "what_code_holds"),
];

/// Runs them all; the first error valgrind reports fails the task.
pub(crate) fn valgrind() -> Result<()> {
    tools::require(&[("valgrind", "to run the tests of unsafe code")])?;
    for (package, filter) in UNSAFE {
        let binary = test_binary(package)?;
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
        command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
        command.args([binary.as_str(), *filter, "--test-threads=1"]);
        run(&mut command)?;
    }
    println!("valgrind: clean");
    Ok(())
}

/// Builds a library's unit tests and says where they are.
fn test_binary(package: &str) -> Result<String> {
    let mut command = cargo(&["test", "--no-run", "--lib", "--profile", "fast", "--package"]);
    let output = command.arg(package).arg("--message-format=json").stderr(Stdio::inherit());
    let output = output.output().context("cargo cannot be started")?;
    ensure!(output.status.success(), "the tests of {package} do not build");
    let text = String::from_utf8(output.stdout)?;
    let key = "\"executable\":\"";
    let found = text.lines().rev().find_map(|line| line.split(key).nth(1)?.split('"').next());
    found.map(str::to_owned).with_context(|| format!("cargo names no test binary of {package}"))
}
