//! `cargo xtask release`: the programs as users get them, compiled by a profile of what servers do
//! (profile-guided optimisation).
//!
//! An instrumented server, which counts its own branches and calls, does the work of [`WORK`]; the compiler then lays out what is often
//! done, and puts aside what is seldom done. The profile is of this source and this compiler: it is made anew each time,
//! and two builds of one commit are not the same to the byte.
//!
//! Always true: what build scripts and macros do is neither counted nor compiled so, for flags hold for the target alone.

use crate::drivers::{PROGRAMS, Programs};
use crate::run::{cargo, host, run, target};
use crate::servers::Server;
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the server that is measured does: experiments of `fern bench`, their seconds, and the server's cache. Each has
/// a server of its own.
const WORK: &[(&str, &str, &str)] = &[
    ("points", "40", "128M"),
    ("ticks", "20", "128M"),
    ("sysbench", "15", "128M"),
    ("iibench", "10", "128M"),
    ("read", "10", "64M"),
    ("readupdate", "5", "128M"),
    ("upsert", "5", "128M"),
    ("multikey", "5", "128M"),
    ("clustering", "5", "128M"),
    ("concurrent-find", "5", "128M"),
];

/// How the instrumented programs are built: they are used once.
const QUICK: [&str; 3] = [
    "profile.release.lto=false",
    "profile.release.codegen-units=16",
    "profile.release.debug=false",
];

/// The compiler sees each crate as a whole: some three percent less of the processor's time than with four units.
const ONE_UNIT: &str = "profile.release.codegen-units=1";

/// Builds the programs of users by a profile that it makes first; says where they are.
pub(crate) fn programs(build: Programs) -> Result<PathBuf> {
    let merge = tools::profile_merger()?;
    let (home, host) = (target().join("guided"), host()?);
    let (counts, profile) = (home.join("counts"), home.join("fernd.profdata"));
    // What an earlier run counted; there is nothing before the first.
    let _earlier = std::fs::remove_dir_all(&counts);
    std::fs::create_dir_all(&counts)?;
    let built = |name: &str, flag: String, mut command: Command| {
        let folder = home.join(name);
        command.arg("--target-dir").arg(&folder).args(["--release", "--bins", "--target", &host]);
        command.args(["--config", &format!("target.{host}.rustflags=[\"{flag}\"]")]);
        command.args(PROGRAMS.iter().flat_map(|package| ["--package", package]));
        run(&mut command)?;
        Ok::<_, anyhow::Error>(folder.join(&host).join("release"))
    };
    let flag = format!("-Cprofile-generate={}", counts.display());
    let mut quick = cargo(&["build"]);
    quick.args(QUICK.iter().flat_map(|setting| ["--config", setting]));
    let instrumented = built("instrumented", flag, quick)?;
    work(&instrumented, &counts)?;
    run(Command::new(merge).arg("merge").arg("-o").arg(&profile).arg(&counts))?;
    let flag = format!("-Cprofile-use={}", profile.display());
    let mut released = build.command()?;
    released.args(["--config", ONE_UNIT]);
    built("released", flag, released)
}

/// Has a server do what is to be measured.
fn work(programs: &Path, counts: &Path) -> Result<()> {
    for (experiment, seconds, cache) in WORK {
        let server =
            Server::start(&programs.join("fernd"), "guided-server", &["--cacheSize", cache])?;
        // What `fern` itself counts is thrown away.
        let out = target().join("guided").join(experiment);
        run(Command::new(programs.join("fern"))
            .args(["bench", experiment, "--seconds", seconds, "--uri", &server.uri()])
            .arg("--out")
            .arg(out)
            .env("LLVM_PROFILE_FILE", "/dev/null"))
        .with_context(|| format!("the server's complaints:\n{}", server.complaints()))?;
        // Its counts are written at its end.
        server.shut_down()?;
    }
    ensure!(
        std::fs::read_dir(counts)?.next().is_some(),
        "the server has counted nothing: does RUSTFLAGS take the place of the flags that this command gives?"
    );
    Ok(())
}
