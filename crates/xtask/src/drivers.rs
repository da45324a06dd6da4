//! Tests through real clients: a `fernd` of the `fast` profile, driven by scripts in `tests/`.

use crate::run::{cargo, root, run, target};
use crate::tools;
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// Builds `fernd` as the tests run it: optimised, with assertions on.
pub(crate) fn fernd() -> Result<PathBuf> {
    run(&mut cargo(&["build", "--profile", "fast", "--package", "server"]))?;
    Ok(target().join("fast/fernd"))
}

/// Runs one of the Python scripts in `tests/` with the environment it expects.
pub(crate) fn script(name: &str, arguments: &[String]) -> Result<()> {
    let (fernd, python) = (fernd()?, tools::python()?);
    run(Command::new(python)
        .arg(root().join("tests").join(name))
        .args(arguments)
        .env("FERND", fernd)
        .env("FERN_TARGET", target()))
}

/// Runs the scripted mongosh session.
pub(crate) fn mongosh() -> Result<()> {
    let home = tools::npm()?;
    let mongosh = home.join("node_modules/.bin/mongosh");
    script("mongosh_session.py", &[mongosh.to_string_lossy().into_owned()])
}
