//! The project rules that no compiler checks.
//!
//! 1. A crate depends only on what `layers.toml` lists for it, which lists nothing else.
//! 2. Every source file opens with `//!`; none is a `mod.rs`.
//! 3. No leftover `todo!`, `unimplemented!` or FIXME.
//! 4. Every crate is named in `docs/ARCHITECTURE.md`, and every path named there, in `docs/WHERE.md`
//!    or in `SECURITY.md` exists.
//! 5. No file carries a path of one machine.
//! 6. Every relative link of a Markdown file leads to a file, and the manual's summary names each of
//!    its pages.
//! 7. No retired name of `docs/GLOSSARY.md` stands in the code.
//! 8. The counts of `ratchets.toml` get no worse.
//! 9. An id of the log that is ours stands beside one message.

use crate::ratchets::ratchets;
use crate::retired::RetiredNames;
use crate::run::{files, read, root};
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Checks every rule and reports all breaches at once.
pub(crate) fn tidy() -> Result<()> {
    let root = root();
    let mut breaches = layers(&root)?;
    let retired = RetiredNames::parse(&read(&root.join("docs/GLOSSARY.md"))?)?;
    for file in files(&root.join("crates"), "rs")? {
        breaches.extend(source(&root, &file)?);
        breaches.extend(names(&root, &file, &retired)?);
    }
    breaches.extend(log_ids(&root)?);
    breaches.extend(ratchets(&root)?);
    breaches.extend(map(&root)?);
    for page in documents(&root)? {
        breaches.extend(links(&root, &page)?);
    }
    breaches.extend(summary(&root.join("docs/manual/src"))?);
    if breaches.is_empty() {
        println!("tidy: clean");
        return Ok(());
    }
    for breach in &breaches {
        eprintln!("tidy: {breach}");
    }
    bail!("{} breaches of the project rules", breaches.len());
}

fn layers(root: &Path) -> Result<Vec<String>> {
    const SECTIONS: [&str; 2] = ["dependencies", "dev-dependencies"];
    let layers: BTreeMap<String, BTreeMap<String, Vec<String>>> =
        toml::from_str(&read(&root.join("layers.toml"))?)?;
    let allowed: BTreeMap<_, _> = layers.into_values().flatten().collect();
    let mut breaches = Vec::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        let manifest = entry?.path().join("Cargo.toml");
        let table: toml::Table = toml::from_str(&read(&manifest)?)?;
        let name = manifest
            .parent()
            .and_then(Path::file_name)
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        let Some(may) = allowed.get(&name) else {
            breaches.push(format!("crate `{name}` is not in layers.toml"));
            continue;
        };
        let uses = |name: &str| {
            SECTIONS
                .iter()
                .any(|section| table.get(*section).is_some_and(|t| t.get(name).is_some()))
        };
        for edge in may.iter().filter(|edge| !uses(edge)) {
            breaches.push(format!("layers.toml lets `{name}` use `{edge}`, which it does not"));
        }
        for (section, extra) in [("dependencies", None), ("dev-dependencies", Some("testkit"))] {
            let Some(uses) = table.get(section).and_then(toml::Value::as_table) else { continue };
            for used in uses.keys().filter(|used| allowed.contains_key(*used)) {
                if !may.contains(used) && extra != Some(used.as_str()) {
                    breaches.push(format!("crate `{name}` may not use `{used}` ({section})"));
                }
            }
        }
    }
    Ok(breaches)
}

fn source(root: &Path, file: &Path) -> Result<Vec<String>> {
    let (text, shown) = (read(file)?, file.strip_prefix(root).unwrap_or(file).display());
    let mut breaches = Vec::new();
    if !text.starts_with("//!") {
        breaches.push(format!("{shown}: does not open with `//!`"));
    }
    if file.ends_with("mod.rs") {
        breaches.push(format!("{shown}: is a mod.rs"));
    }
    if shown.to_string().contains("xtask/src/tidy.rs") {
        return Ok(breaches);
    }
    for (at, line) in text.lines().enumerate() {
        for leftover in ["todo!(", "unimplemented!(", "FIXME", "XXX", "/work/", "/root/"] {
            if line.contains(leftover) {
                breaches.push(format!("{shown}:{}: leftover `{leftover}`", at + 1));
            }
        }
    }
    Ok(breaches)
}

/// MongoDB's messages keep its ids, and may be said in several places; ours have numbers of their own.
fn log_ids(root: &Path) -> Result<Vec<String>> {
    const OURS: &str = "9_016_";
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files(&root.join("crates"), "rs")? {
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        if shown.contains("/tests") || shown.ends_with("xtask/src/tidy.rs") {
            continue;
        }
        for (at, line) in read(&file)?.lines().enumerate() {
            let numbers = line.match_indices(OURS).filter_map(|(start, _)| {
                line.get(start..start + OURS.len() + 3).map(str::to_owned)
            });
            for number in numbers {
                places.entry(number).or_default().push(format!("{shown}:{}", at + 1));
            }
        }
    }
    let several = places.into_iter().filter(|(_, places)| places.len() > 1);
    Ok(several
        .map(|(id, places)| format!("the log's id {id} stands in {}", places.join(", ")))
        .collect())
}

/// The file that names what is retired, in order to test it, is the exception.
fn names(root: &Path, file: &Path, retired: &RetiredNames) -> Result<Vec<String>> {
    let shown = file.strip_prefix(root).unwrap_or(file);
    if shown.ends_with("xtask/src/retired.rs") {
        return Ok(Vec::new());
    }
    let member = shown.iter().nth(1).unwrap_or_default().to_string_lossy();
    Ok(retired.breaches(&shown.display().to_string(), &member, &read(file)?))
}

fn map(root: &Path) -> Result<Vec<String>> {
    let text = read(&root.join("docs/ARCHITECTURE.md"))?;
    let named: BTreeSet<&str> = text.split('`').skip(1).step_by(2).collect();
    let mut breaches = Vec::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !named.contains(name.as_str()) {
            breaches.push(format!("docs/ARCHITECTURE.md does not name crate `{name}`"));
        }
    }
    for page in ["docs/ARCHITECTURE.md", "docs/WHERE.md", "SECURITY.md"] {
        breaches.extend(named_paths(root, page, &read(&root.join(page))?));
    }
    Ok(breaches)
}

/// What a page has in backticks and looks like a path of the repository leads somewhere.
fn named_paths(root: &Path, page: &str, text: &str) -> Vec<String> {
    // in blocks of code, backticks and slashes are something else
    let prose: Vec<&str> = text.split("```").step_by(2).collect();
    let named: BTreeSet<&str> =
        prose.iter().flat_map(|part| part.split('`').skip(1).step_by(2)).collect();
    let missing = named.iter().filter(|name| {
        let is_path = name.contains('/') && !name.contains(' ') && !name.contains("::");
        is_path && !name.starts_with('/') && !root.join(name).exists()
    });
    missing.map(|path| format!("{page} names `{path}`, which does not exist")).collect()
}

/// Markdown: at the root, in `docs` and in `bench`.
fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = files(&root.join("docs"), "md")?;
    found.extend(files(&root.join("bench"), "md")?);
    found.extend(
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"].map(|name| root.join(name)),
    );
    Ok(found)
}

fn links(root: &Path, page: &Path) -> Result<Vec<String>> {
    let (text, folder) = (read(page)?, page.parent().unwrap_or(root));
    let shown = page.strip_prefix(root).unwrap_or(page).display();
    let mut breaches = Vec::new();
    let mut code = false;
    for (at, line) in text.lines().enumerate() {
        code ^= line.trim_start().starts_with("```");
        // in code, brackets and parentheses are something else
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for rest in prose.split("](").skip(1).filter(|_| !code) {
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            let elsewhere = target.is_empty() || target.contains("://");
            if !elsewhere && !folder.join(target).exists() {
                breaches.push(format!("{shown}:{}: no `{target}`", at + 1));
            }
        }
    }
    Ok(breaches)
}

/// Every page of the manual is in its summary.
fn summary(pages: &Path) -> Result<Vec<String>> {
    let text = read(&pages.join("SUMMARY.md"))?;
    let mut breaches = Vec::new();
    for page in files(pages, "md")? {
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name != "SUMMARY.md" && !text.contains(&format!("({name})")) {
            breaches.push(format!("docs/manual/src/SUMMARY.md does not name {name}"));
        }
    }
    Ok(breaches)
}
