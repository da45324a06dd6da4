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
const PAGE_SECONDS: &str = "300";

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
        if let Err(error) = read(&name, &blocks, &path) {
            failed.push(format!("{name}: {error:#}"));
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    println!("manual: {pages} passed, 0 failed");
    Ok(())
}

fn read(name: &str, blocks: &[String], path: &std::ffi::OsStr) -> Result<()> {
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
    if !done {
        bail!("an example fails (they ran in {})", directory.display());
    }
    Ok(())
}

fn bash(script: &str, directory: &Path, path: &std::ffi::OsStr) -> Result<bool> {
    let strict = format!("set -euo pipefail; shopt -s nullglob\n{script}");
    // An example that waits for what never comes fails, and holds nobody up.
    let mut command = Command::new("timeout");
    command.args([PAGE_SECONDS, "bash", "-c", &strict]).current_dir(directory).env("PATH", path);
    Ok(command.status().context("bash is needed")?.success())
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
