//! The manual's examples: each block of `sh` in `docs/manual/src` is run as a reader would.
//!
//! A page is one reader: its blocks run in order, in one empty directory, with the programs of this
//! build and mongosh at hand. Ports are free ones, so that nothing of the machine's is touched.

use crate::drivers::{Build, PROGRAMS, programs};
use crate::run::{root, target};
use crate::servers::free_port;
use crate::tools;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Ports that stand in the manual, and are free ones here.
const PORTS: [&str; 3] = ["27017", "27018", "27019"];

/// What a page may take: the longest takes half a minute.
const PAGE_SECONDS: &str = "120";
/// How often a page is tried that takes longer. The shell's driver now and then never ends an operation whose server was
/// killed (its own log shows the command begun, its connection closed, and nothing behind that).
const TRIES: usize = 3;
/// What `timeout` ends with where it had to end a program.
const LATE: i32 = 124;

/// Runs every page's examples.
pub(crate) fn examples(build: Build) -> Result<()> {
    let programs = programs(build, PROGRAMS)?;
    let path = std::env::join_paths(
        [programs, tools::npm()?.join("node_modules/.bin")]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let (mut pages, mut failed) = (0, Vec::new());
    let folder = root().join("docs/manual/src");
    for entry in std::fs::read_dir(folder)? {
        let page = entry?.path();
        let blocks = blocks(&std::fs::read_to_string(&page)?);
        if blocks.is_empty() {
            continue;
        }
        let name = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        println!("{name}: {} examples", blocks.len());
        pages += 1;
        if let Err(error) = read_in_time(&name, &blocks, &path) {
            failed.push(format!("{name}: {error:#}"));
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    println!("manual: {pages} passed, 0 failed");
    Ok(())
}

/// Reads a page, again where it did not come to its end.
fn read_in_time(name: &str, blocks: &[String], path: &std::ffi::OsStr) -> Result<()> {
    for _ in 0..TRIES {
        match read(name, blocks, path)? {
            Some(0) => return Ok(()),
            Some(LATE) => println!("{name}: not at its end after {PAGE_SECONDS} s"),
            _ => bail!("an example fails (they ran in target/manual/{name})"),
        }
    }
    bail!("not at its end after {PAGE_SECONDS} s, {TRIES} times (it ran in target/manual/{name})")
}

/// Reads a page; what its examples end with.
fn read(name: &str, blocks: &[String], path: &std::ffi::OsStr) -> Result<Option<i32>> {
    let directory = target().join("manual").join(name);
    // what an earlier run left; there is nothing after the first
    let _left = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory)?;
    let mut script = blocks.join("\n");
    for port in PORTS {
        script = script.replace(port, &free_port()?.to_string());
    }
    let done = bash(&script, &directory, path)?;
    // an example that ends too early leaves its server
    bash("for pid in *.pid; do kill $(cat $pid) || true; done", &directory, path)?;
    Ok(done)
}

fn bash(script: &str, directory: &Path, path: &std::ffi::OsStr) -> Result<Option<i32>> {
    let strict = format!("set -euo pipefail; shopt -s nullglob\n{script}");
    // An example that waits for what never comes is ended, with all that it started and did not send to the background.
    let mut command = Command::new("timeout");
    command.args([PAGE_SECONDS, "bash", "-c", &strict]).current_dir(directory).env("PATH", path);
    Ok(command.status().context("bash and timeout are needed")?.code())
}

/// The blocks fenced as `sh`.
fn blocks(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    for line in page.lines() {
        match &mut open {
            None if line.trim() == "```sh" => open = Some(String::new()),
            None => {}
            Some(_) if line.trim() == "```" => found.extend(open.take()),
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    found
}
