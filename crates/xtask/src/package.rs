//! `cargo xtask package`: the Debian package of `fernd`, `fern` and `fern-client`, and a test of it.
//!
//! What is in the package stands in [`FILES`]; its control files are in `packaging/debian`. The
//! package is `target/package/fernd_VERSION_ARCHITECTURE.deb`.

use crate::drivers::{Build, PROGRAMS, Programs, programs};
use crate::run::{root, run, target};
use crate::{profile_guided, sbom, tools};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a file of the package comes from.
enum Origin {
    /// The programs' folder.
    Build(&'static str),
    Repository(&'static str),
    /// What [`sbom::write`] wrote.
    Materials(&'static str),
}

use Origin::{Build as Built, Materials, Repository};

/// Path in the package, origin, permissions.
const FILES: &[(&str, Origin, &str)] = &[
    ("usr/bin/fernd", Built("fernd"), "755"),
    ("usr/bin/fern", Built("fern"), "755"),
    ("usr/bin/fern-client", Built("fern-client"), "755"),
    ("etc/fernd.conf", Repository("packaging/debian/fernd.conf"), "644"),
    ("lib/systemd/system/fernd.service", Repository("packaging/debian/fernd.service"), "644"),
    (
        "usr/share/bash-completion/completions/fernd",
        Repository("packaging/completions/fernd.bash"),
        "644",
    ),
    (
        "usr/share/bash-completion/completions/fern",
        Repository("packaging/completions/fern.bash"),
        "644",
    ),
    ("usr/share/zsh/vendor-completions/_fernd", Repository("packaging/completions/_fernd"), "644"),
    ("usr/share/zsh/vendor-completions/_fern", Repository("packaging/completions/_fern"), "644"),
    (
        "usr/share/fish/vendor_completions.d/fernd.fish",
        Repository("packaging/completions/fernd.fish"),
        "644",
    ),
    (
        "usr/share/fish/vendor_completions.d/fern.fish",
        Repository("packaging/completions/fern.fish"),
        "644",
    ),
    ("usr/share/fernd/tokumx.js", Repository("packaging/tokumx.js"), "644"),
    ("usr/share/doc/fernd/README.md", Repository("README.md"), "644"),
    ("usr/share/doc/fernd/SECURITY.md", Repository("SECURITY.md"), "644"),
    ("usr/share/doc/fernd/fernd.cdx.json", Materials("fernd.cdx.json"), "644"),
    ("usr/share/doc/fernd/fern.cdx.json", Materials("fern.cdx.json"), "644"),
    ("usr/share/doc/fernd/fern-client.cdx.json", Materials("fern-client.cdx.json"), "644"),
    ("usr/share/doc/fernd/copyright", Repository("LICENSE"), "644"),
];

/// The package's control files; the last column is their permissions.
const CONTROL: &[(&str, &str)] =
    &[("conffiles", "644"), ("postinst", "755"), ("prerm", "755"), ("postrm", "755")];

/// Builds the programs and the package, and tests it where `check` asks for that.
pub(crate) fn package(build: Build, check: bool) -> Result<()> {
    tools::require(&[
        ("dpkg-deb", "to write a Debian package"),
        ("gzip", "to compress the man pages"),
        ("strip", "to leave debugging information out of the package (binutils)"),
    ])?;
    let is_released = matches!(build, Build::Release);
    let programs = if is_released {
        profile_guided::programs(Programs::WithLists)?
    } else {
        programs(build, PROGRAMS)?
    };
    sbom::write(&target().join("package"))?;
    let version = env!("CARGO_PKG_VERSION");
    let package = write(&programs, version)?;
    if is_released {
        check_lists(&target().join("package/tree/usr/bin"))?;
    }
    println!("{}", package.display());
    if check {
        let newer = write(&programs, &format!("{version}+upgraded"))?;
        run(Command::new(tools::python()?)
            .arg(root().join("tests/package_test.py"))
            .args([&package, &newer])
            .env("FERND", programs.join("fernd"))
            .env("FERN_TARGET", target()))?;
    }
    Ok(())
}

/// The section of a program with what it is built from.
const LIST_SECTION: &[u8] = b".dep-v0";

/// Whether each program of the package says what it is built from, after all that was stripped.
fn check_lists(folder: &Path) -> Result<()> {
    for name in ["fernd", "fern", "fern-client"] {
        let program = std::fs::read(folder.join(name))?;
        if !program.windows(LIST_SECTION.len()).any(|bytes| bytes == LIST_SECTION) {
            bail!("{name} does not say what it is built from: it has no section .dep-v0");
        }
    }
    Ok(())
}

/// Lays out the package's tree and packs it.
fn write(programs: &Path, version: &str) -> Result<PathBuf> {
    let folder = target().join("package");
    let tree = folder.join("tree");
    // what an earlier run left; there is nothing after the first
    let _left = std::fs::remove_dir_all(&tree);
    for (path, origin, mode) in FILES {
        let source = match origin {
            Built(name) => programs.join(name),
            Repository(path) => root().join(path),
            Materials(name) => folder.join(name),
        };
        install(&source, &tree.join(path), mode)?;
    }
    for name in ["fernd", "fern", "fern-client"] {
        run(Command::new("strip").arg(tree.join("usr/bin").join(name)))?;
    }
    man_pages(&tree)?;
    for (name, mode) in CONTROL {
        install(
            &root().join("packaging/debian").join(name),
            &tree.join("DEBIAN").join(name),
            mode,
        )?;
    }
    let architecture = architecture()?;
    let control = std::fs::read_to_string(root().join("packaging/debian/control"))?
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", architecture.trim())
        .replace("@INSTALLED_KB@", &(bytes_below(&tree)? / 1024).to_string())
        .replace("@GLIBC@", &newest_glibc(&std::fs::read(programs.join("fernd"))?)?);
    std::fs::write(tree.join("DEBIAN/control"), control)?;
    let package = folder.join(format!("fernd_{version}_{}.deb", architecture.trim()));
    run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "--build"])
        .args([&tree, &package]))?;
    Ok(package)
}

/// Copies a file, with the folders above it.
fn install(from: &Path, to: &Path, mode: &str) -> Result<()> {
    let made = Command::new("install")
        .args(["-D", "-m", mode])
        .args([from, to])
        .status()
        .context("cannot start `install`")?;
    if !made.success() {
        bail!("cannot copy {} to {}", from.display(), to.display());
    }
    Ok(())
}

/// Every page of `packaging/man`, compressed, as Debian has them.
fn man_pages(tree: &Path) -> Result<()> {
    let folder = tree.join("usr/share/man/man1");
    for entry in std::fs::read_dir(root().join("packaging/man"))? {
        let page = entry?.path();
        let name = page.file_name().context("a page without a name")?;
        install(&page, &folder.join(name), "644")?;
        run(Command::new("gzip").args(["-9", "-n"]).arg(folder.join(name)))?;
    }
    Ok(())
}

fn architecture() -> Result<String> {
    let output = Command::new("dpkg").arg("--print-architecture").output()?;
    Ok(String::from_utf8(output.stdout)?)
}

fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { bytes_below(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}

/// The newest version of glibc that a program's symbols ask for: what the package depends on.
fn newest_glibc(program: &[u8]) -> Result<String> {
    let marker = b"GLIBC_2.";
    let minors = program.windows(marker.len()).enumerate().filter(|(_, found)| *found == marker);
    let newest = minors
        .filter_map(|(at, _)| {
            let digits =
                program[at + marker.len()..].iter().take_while(|byte| byte.is_ascii_digit());
            String::from_utf8(digits.copied().collect()).ok()?.parse::<u32>().ok()
        })
        .max();
    Ok(format!("2.{}", newest.context("the program asks for no version of glibc")?))
}

#[cfg(test)]
mod tests {
    use super::newest_glibc;

    #[test]
    fn the_newest_glibc_is_by_number_and_not_by_text() {
        let symbols = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0";
        assert_eq!(newest_glibc(symbols).unwrap(), "2.34");
        assert!(newest_glibc(b"static").is_err());
    }
}
