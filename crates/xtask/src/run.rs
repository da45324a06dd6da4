//! Running commands: echoed, in the project's root, failing loudly.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The project's root: the folder that holds `layers.toml`.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("crates/xtask stands two folders below the root").to_path_buf()
}

/// Where build output and everything installed goes.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs a command to its end; its exit status decides.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = describe(command);
    eprintln!("$ {line}");
    let status =
        command.current_dir(root()).status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// `cargo` with these arguments.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.args(arguments);
    command
}

/// What the compiler calls this kind of machine.
pub(crate) fn host() -> Result<String> {
    let version = String::from_utf8(cargo(&["-vV"]).output()?.stdout)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("cargo -vV names its host")?.to_owned())
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// All files of a folder and its folders whose names end so.
pub(crate) fn files(folder: &Path, kind: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, kind)?);
        } else if path.extension().is_some_and(|extension| extension == kind) {
            found.push(path);
        }
    }
    Ok(found)
}

pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
