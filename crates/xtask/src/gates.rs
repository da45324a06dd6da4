//! The gates: sets up the peer engines under `target/`, then runs `compare/`, which drives them
//! and ours in alternating slices. What it measured goes to `bench/results/DATE-MACHINE/`.
//!
//! Always true: nothing is installed outside `target/`, but for the distribution's development
//! packages, and those only where this is root and they are missing.

use crate::run::{cargo, root, run, target};
use crate::tools;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const WIREDTIGER: &str = "11.3.1";

/// Headers of the peers and of what they link, and the Debian packages that hold them.
const HEADERS: &[(&str, &str)] =
    &[("rocksdb/db.h", "librocksdb-dev"), ("lmdb.h", "liblmdb-dev"), ("snappy.h", "libsnappy-dev")];

/// Runs the gates; arguments are handed on (`--quick`, `--engines`).
pub(crate) fn gates(arguments: &[String]) -> Result<()> {
    tools::require(&[
        ("cc", "to build the peer engines (a C compiler)"),
        ("c++", "to build the RocksDB shim (a C++17 compiler)"),
        ("cmake", "to build WiredTiger (3.21 or later)"),
        ("python3", "to fetch WiredTiger's source (with pip)"),
    ])?;
    packages()?;
    let (wiredtiger, build) = (wiredtiger()?, target().join("compare"));
    let manifest = root().join("compare/Cargo.toml");
    run(cargo(&["build", "--release", "--manifest-path"])
        .arg(manifest)
        .env("WIREDTIGER", wiredtiger)
        .env("CARGO_TARGET_DIR", &build))?;
    // A quick run never takes the place of a full one.
    let quick = if arguments.iter().any(|a| a == "--quick") { "-quick" } else { "" };
    let out = root().join("bench/results").join(format!("{}-{}{quick}", date()?, machine()));
    run(Command::new(build.join("release/compare"))
        .arg("gates")
        .arg("--directory")
        .arg(target().join("gates"))
        .arg("--out")
        .arg(&out)
        .args(arguments))
    .with_context(|| format!("the figures are in {}", out.display()))
}

/// RocksDB and LMDB come from the distribution.
fn packages() -> Result<()> {
    let missing: Vec<&str> = HEADERS
        .iter()
        .filter(|(header, _)| !Path::new("/usr/include").join(header).exists())
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let may_install = output("id", &["-u"]).is_ok_and(|id| id == "0")
        && Command::new("apt-get").arg("--version").output().is_ok();
    if !may_install {
        bail!("the gates need the development packages {} (Debian's names)", missing.join(", "));
    }
    let apt = || Command::new("apt-get");
    run(apt().args(["update", "--quiet"]))?;
    run(apt().args(["install", "--quiet", "--yes", "--no-install-recommends"]).args(missing))
}

/// The built source tree of WiredTiger: a source package of its Python binding.
fn wiredtiger() -> Result<PathBuf> {
    let home = target().join("peers");
    let tree = home.join(format!("wiredtiger-{WIREDTIGER}"));
    let build = tree.join("build");
    if build.join("built").exists() {
        return Ok(tree);
    }
    std::fs::create_dir_all(&home)?;
    run(Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .args(["--no-binary", ":all:", "--dest"])
        .arg(&home)
        .arg(format!("wiredtiger=={WIREDTIGER}")))?;
    let archive = home.join(format!("wiredtiger-{WIREDTIGER}.tar.gz"));
    run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&home))?;
    run(Command::new("cmake")
        .arg("-S")
        .arg(&tree)
        .arg("-B")
        .arg(&build)
        .args(["-DCMAKE_BUILD_TYPE=Release", "-DENABLE_STATIC=1", "-DENABLE_SHARED=0"])
        .args(["-DENABLE_PYTHON=0", "-DENABLE_STRICT=0", "-DHAVE_UNITTEST=0"])
        .arg("-DHAVE_BUILTIN_EXTENSION_SNAPPY=1"))?;
    run(Command::new("cmake").arg("--build").arg(&build).args([
        "--target",
        "wiredtiger_static",
        "--parallel",
        &cores(),
    ]))?;
    std::fs::write(build.join("built"), WIREDTIGER)?;
    Ok(tree)
}

pub(crate) fn date() -> Result<String> {
    output("date", &["+%Y-%m-%d"])
}

/// The processor and the number of cores, as a folder's name; never the host's name.
fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or(std::env::consts::ARCH)
        .to_lowercase();
    let words = model.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    format!("{}-{}-cores", words.collect::<Vec<_>>().join("-"), cores())
}

fn cores() -> String {
    std::thread::available_parallelism().map_or(1, usize::from).to_string()
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot start `{program}`"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
