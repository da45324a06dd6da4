//! What the tests need beyond cargo, installed by themselves under `target/`: a Python virtual
//! environment and npm packages, both pinned by files in `tests/`.
//!
//! Always true: an install that was finished leaves a stamp with the pins it was made from, and is
//! made again only when the pins change.

use crate::run::{cargo, host, root, run, target};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of `cargo-cyclonedx`.
const CYCLONEDX: &str = "0.5.9";
/// The version of `cargo-auditable`.
const AUDITABLE: &str = "0.7.7";

/// Says in one line which toolchain is missing, before anything is built.
pub(crate) fn require(programs: &[(&str, &str)]) -> Result<()> {
    for (program, why) in programs {
        let found = Command::new(program).arg("--version").output().is_ok();
        if !found {
            bail!("`{program}` is not installed: it is needed {why}");
        }
    }
    Ok(())
}

/// The virtual environment's Python, with `tests/requirements.txt` installed.
pub(crate) fn python() -> Result<PathBuf> {
    let (home, pins) = (target().join("venv"), root().join("tests/requirements.txt"));
    let python = home.join("bin/python");
    installed(&home, &pins, || {
        require(&[("python3", "for the driver tests (3.9 or later, with venv)")])?;
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(&pins))
    })?;
    Ok(python)
}

/// The folder whose `node_modules` holds what `tests/package.json` pins.
pub(crate) fn npm() -> Result<PathBuf> {
    let (home, pins) = (target().join("npm"), root().join("tests/package-lock.json"));
    installed(&home, &pins, || {
        require(&[("node", "for the mongosh tests"), ("npm", "for the mongosh tests")])?;
        std::fs::create_dir_all(&home)?;
        for file in ["package.json", "package-lock.json"] {
            std::fs::copy(root().join("tests").join(file), home.join(file))?;
        }
        run(Command::new("npm")
            .args([
                "ci",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--omit=optional",
                "--silent",
                "--prefix",
            ])
            .arg(&home))
    })?;
    Ok(home)
}

/// What writes bills of materials, built from its source package.
pub(crate) fn cyclonedx() -> Result<PathBuf> {
    cargo_tool("cargo-cyclonedx", CYCLONEDX)
}

/// What builds programs with the list of what they are built from in them, for those who look at a program alone.
pub(crate) fn auditable() -> Result<PathBuf> {
    cargo_tool("cargo-auditable", AUDITABLE)
}

/// What merges the profiles that programs write. It has to be of the compiler's own version of LLVM.
pub(crate) fn profile_merger() -> Result<PathBuf> {
    let compiler = rustc(&["-vV"])?;
    let version = compiler.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    let major = version.and_then(|version| version.split('.').next()).context("no LLVM")?;
    let tools = Path::new(rustc(&["--print", "sysroot"])?.trim()).join("lib/rustlib");
    let candidates =
        [tools.join(host()?).join("bin/llvm-profdata"), format!("llvm-profdata-{major}").into()];
    let there =
        |program: &PathBuf| Command::new(program).arg("merge").arg("--help").output().is_ok();
    candidates.into_iter().find(there).with_context(|| {
        format!(
            "`llvm-profdata` of LLVM {major} is not installed: it is needed to read what a server has counted \
             (`rustup component add llvm-tools`, or the package llvm-{major} of Debian)"
        )
    })
}

/// What the compiler says of itself.
fn rustc(arguments: &[&str]) -> Result<String> {
    let program = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    Ok(String::from_utf8(Command::new(program).args(arguments).output()?.stdout)?)
}

fn cargo_tool(name: &str, version: &str) -> Result<PathBuf> {
    let home = target().join("tools");
    let program = home.join("bin").join(name);
    if !program.exists() {
        run(cargo(&["install", "--quiet", "--locked", name])
            .args(["--version", version, "--root"])
            .arg(&home)
            .env("CARGO_TARGET_DIR", home.join("build")))?;
    }
    Ok(program)
}

fn installed(home: &Path, pins: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let wanted = std::fs::read_to_string(pins).with_context(|| pins.display().to_string())?;
    let stamp = home.join("installed-from");
    if std::fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
        return Ok(());
    }
    install()?;
    std::fs::write(&stamp, wanted)?;
    Ok(())
}
