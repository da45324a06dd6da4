//! Tells the compiler which commit `fernd` is built from, for `--version` and `buildInfo`.
//!
//! `FERN_GIT_VERSION` is set for this crate in every case: as the environment has it (a build from
//! an archive can be told), else as git says, else `unknown`.

use std::path::Path;
use std::process::Command;

const VARIABLE: &str = "FERN_GIT_VERSION";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rerun-if-changed=build.rs");
    // The log of HEAD grows with every commit and checkout. A path that does not exist would run
    // this script at every build.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    let given = std::env::var(VARIABLE).ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "HEAD"]));
    println!("cargo::rustc-env={VARIABLE}={}", commit.as_deref().unwrap_or("unknown"));
}

/// What git prints; `None` where there is no git or no repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
