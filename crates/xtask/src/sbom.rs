//! The bills of materials of the programs: what each is linked from, with versions and licences, in
//! `CycloneDX`'s JSON. `cargo-cyclonedx` writes them, from `Cargo.lock`.
//!
//! Always true: nothing of this machine is named in them, and nothing is left beside the sources.

use crate::run::{root, run};
use crate::tools;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crate, and the file's name for its program.
const PROGRAMS: [(&str, &str); 3] =
    [("server", "fernd.cdx.json"), ("fern", "fern.cdx.json"), ("client", "fern-client.cdx.json")];

/// What the tool writes into the folder of every crate of the workspace, without `.json`.
const BESIDE: &str = "sbom.cdx";

/// Writes a file for each program into a folder.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let made = make(folder);
    for entry in std::fs::read_dir(root().join("crates"))? {
        // Where it wrote none there is none.
        let _gone = std::fs::remove_file(beside(&entry?.path()));
    }
    made
}

fn make(folder: &Path) -> Result<()> {
    run(Command::new(tools::cyclonedx()?)
        .args(["cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5"])
        .args(["--no-build-deps", "--override-filename", BESIDE]))?;
    std::fs::create_dir_all(folder)?;
    for (name, file) in PROGRAMS {
        let path = beside(&root().join("crates").join(name));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        std::fs::write(folder.join(file), without_root(&text, &root()))?;
    }
    Ok(())
}

fn beside(folder: &Path) -> PathBuf {
    folder.join(format!("{BESIDE}.json"))
}

/// The text with places in the repository as from its root.
fn without_root(text: &str, root: &Path) -> String {
    text.replace(&*root.to_string_lossy(), "")
}

#[cfg(test)]
mod tests {
    use super::without_root;
    use std::path::Path;

    #[test]
    fn no_place_of_this_machine_is_named() {
        let text = r#""bom-ref": "path+file:///home/a/b/crates/os#0.1.0""#;
        let expected = r#""bom-ref": "path+file:///crates/os#0.1.0""#;
        assert_eq!(without_root(text, Path::new("/home/a/b")), expected);
    }
}
