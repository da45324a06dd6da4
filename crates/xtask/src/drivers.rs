//! Tests through real clients: a `fernd` of the `fast` profile, driven by scripts in `tests/`.

use crate::run::{cargo, root, run, target};
use crate::tools;
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The shell, under npm's folder.
pub(crate) const MONGOSH: &str = "node_modules/.bin/mongosh";

/// All modules, under npm's folder.
pub(crate) const MODULES: &str = "node_modules";

/// How `fernd` is built: optimised, with assertions on, but for a release.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// By itself: the shortest way after a change.
    Alone,
    /// As part of all tests, whose build the test command has made already. (Features differ
    /// between the two, so that one does not serve the other.)
    WithTests,
    /// As users get it, for figures.
    Release,
}

/// Set where the test command has made the tests' build before it starts a step: asking cargo whether it is still
/// fresh takes seconds, and waits for whatever cargo compiles.
pub(crate) const TESTS_ARE_BUILT: &str = "FERN_TESTS_ARE_BUILT";

/// The same, of a build that this process has made.
static HAVE_BUILT_TESTS: AtomicBool = AtomicBool::new(false);

/// The packages whose programs users get.
pub(crate) const PROGRAMS: &[&str] = &["server", "fern", "client"];

/// Builds `fernd`; of a release, `fern` too, which gives it work.
fn fernd(build: Build) -> Result<PathBuf> {
    let packages = if matches!(build, Build::Release) { PROGRAMS } else { &["server"] };
    Ok(programs(build, packages)?.join("fernd"))
}

/// Builds the programs of these packages, in one go, and says where they are.
pub(crate) fn programs(build: Build, packages: &[&str]) -> Result<PathBuf> {
    let is_built = HAVE_BUILT_TESTS.load(Relaxed) || std::env::var_os(TESTS_ARE_BUILT).is_some();
    if matches!(build, Build::WithTests) && is_built {
        return Ok(target().join("fast"));
    }
    let mut command = match build {
        Build::Alone => cargo(&["build", "--profile", "fast"]),
        Build::WithTests => {
            cargo(&["test", "--profile", "fast", "--workspace", "--quiet", "--no-run"])
        }
        Build::Release => cargo(&["build", "--release", "--bins"]),
    };
    if !matches!(build, Build::WithTests) {
        command.args(packages.iter().flat_map(|package| ["--package", package]));
    }
    run(&mut command)?;
    HAVE_BUILT_TESTS.fetch_or(matches!(build, Build::WithTests), Relaxed);
    Ok(target().join(if matches!(build, Build::Release) { "release" } else { "fast" }))
}

/// Which programs users get.
#[derive(Clone, Copy)]
pub(crate) enum Programs {
    /// Just these.
    Plain,
    /// Each with the list of crates and versions that it is built from in a section of its own, which `cargo audit bin`
    /// and scanners of images read.
    WithLists,
}

impl Programs {
    /// What builds them, without arguments.
    pub(crate) fn command(self) -> Result<Command> {
        Ok(match self {
            Self::Plain => cargo(&["build"]),
            Self::WithLists => {
                let mut command = Command::new(tools::auditable()?);
                command.args(["auditable", "build"]);
                command
            }
        })
    }
}

/// Runs one of the Python scripts in `tests/` with the environment it expects.
pub(crate) fn script(build: Build, name: &str, arguments: &[String]) -> Result<()> {
    let (fernd, python) = (fernd(build)?, tools::python()?);
    run(Command::new(python)
        .arg(root().join("tests").join(name))
        .args(arguments)
        .env("FERND", fernd)
        .env("FERN_TARGET", target()))
}

/// Runs the scripted mongosh session.
pub(crate) fn mongosh(build: Build) -> Result<()> {
    with_npm(build, "mongosh_session.py", MONGOSH, &[])
}

/// Runs a script that is told where something is that npm installs, and these arguments.
pub(crate) fn with_npm(build: Build, name: &str, what: &str, more: &[&str]) -> Result<()> {
    let what = tools::npm()?.join(what);
    let mut arguments = vec![what.to_string_lossy().into_owned()];
    arguments.extend(more.iter().map(|&word| word.to_owned()));
    script(build, name, &arguments)
}

/// Runs the status page in a real browser.
pub(crate) fn dashboard(build: Build) -> Result<()> {
    with_npm(build, "dashboard_test.py", MODULES, &[])
}

/// Runs the clients of the `isolation` crate, which the tests' build has made, against the server.
pub(crate) fn isolation(arguments: &[String]) -> Result<()> {
    let fernd = fernd(Build::WithTests)?;
    let program = fernd.with_file_name("isolation");
    run(Command::new(program).args(arguments).arg("--fernd").arg(fernd))
}
