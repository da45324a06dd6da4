//! Counts that may only get better, held against `ratchets.toml`: assertions of the storage crates,
//! and pairs of modules that use each other.
//!
//! Test code is counted in neither: what is under `#[cfg(test)]` at a file's end, and files named
//! as tests.

use crate::run::{files, read};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Files that are modules of tests only.
const TEST_FILES: [&str; 3] = ["tests.rs", "golden.rs", "interleavings.rs"];

/// What is worse than `ratchets.toml` says, and what is better and not yet said there.
pub(crate) fn ratchets(root: &Path) -> Result<Vec<String>> {
    let table: toml::Table = toml::from_str(&read(&root.join("ratchets.toml"))?)?;
    let section = |name: &str| table.get(name).and_then(toml::Value::as_table).context("a table");
    let mut breaches = Vec::new();
    for (name, least) in section("assertions-per-thousand-lines")? {
        let least = least.as_float().context("a number with a point")?;
        let reached = density(&modules(root, name)?);
        if reached < least {
            breaches.push(format!(
                "crate `{name}` has {reached:.2} assertions per thousand lines, at least {least}"
            ));
        }
    }
    let known = section("module-cycles")?;
    for entry in std::fs::read_dir(root.join("crates"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let most = known.get(&name).map_or(Some(0), toml::Value::as_integer);
        let most = most.context("a whole number")?;
        let modules = modules(root, &name)?;
        let cycles = cycles(&modules);
        let count = cycles.len() as i64;
        if count > most {
            let pairs: Vec<_> =
                cycles.iter().map(|(one, other)| format!("{one}-{other}")).collect();
            let pairs = pairs.join(", ");
            breaches.push(format!(
                "crate `{name}` has {count} pairs of modules that use each other, at most {most}: \
                 {pairs}"
            ));
        } else if count < most {
            breaches.push(format!(
                "crate `{name}` has {count} pairs of modules that use each other: ratchets.toml \
                 still says {most}"
            ));
        }
    }
    Ok(breaches)
}

/// The modules of a crate and their text without test code; a folder's files are one module with
/// the file of its name.
fn modules(root: &Path, name: &str) -> Result<BTreeMap<String, String>> {
    let folder = root.join("crates").join(name).join("src");
    let mut modules: BTreeMap<String, String> = BTreeMap::new();
    for file in files(&folder, "rs")? {
        if TEST_FILES.iter().any(|test| file.ends_with(test)) {
            continue;
        }
        let inside = file.strip_prefix(&folder)?.with_extension("");
        let module = inside.iter().next().context("a file has a name")?.to_string_lossy();
        let text = read(&file)?;
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let from_root = from_root(code, inside.iter().count());
        modules.entry(module.into_owned()).or_default().push_str(&from_root);
    }
    Ok(modules)
}

/// The code with `crate::` where it says the same by `super::`, once for each folder it is deep.
fn from_root(code: &str, depth: usize) -> String {
    // A longer way up is a mistake that does not compile.
    code.replace(&"super::".repeat(depth), "crate::")
}

/// Assertions per thousand lines, comments and empty lines counted as lines.
fn density(modules: &BTreeMap<String, String>) -> f64 {
    let lines: usize = modules.values().map(|text| text.lines().count()).sum();
    let starts = ["assert!(", "assert_eq!(", "assert_ne!("];
    let counted =
        |text: &String| starts.map(|start| text.matches(start).count()).iter().sum::<usize>();
    let assertions: usize = modules.values().map(counted).sum();
    assertions as f64 * 1000.0 / lines.max(1) as f64
}

/// Pairs of modules that name each other.
fn cycles(modules: &BTreeMap<String, String>) -> BTreeSet<(&str, &str)> {
    let mut uses: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (module, text) in modules {
        let code: Vec<&str> =
            text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
        let named = named(&code.join("\n"));
        let others = modules.keys().filter(|other| *other != module && named.contains(*other));
        uses.extend(others.map(|other| (&**module, &**other)));
    }
    let mutual = uses.iter().filter(|(one, other)| one < other && uses.contains(&(*other, *one)));
    mutual.copied().collect()
}

/// The first words behind `crate::`, also in braces.
fn named(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(word(rest));
            continue;
        };
        let (mut depth, mut start) = (1, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 || depth == 1 && c == ',' {
                found.insert(word(&group[start..at]));
                start = at + 1;
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn modules_that_name_each_other_are_pairs() {
        let modules = crate_of(&[
            ("a", "use crate::b::X;\nfn f() { crate::d::g() }"),
            ("b", "use crate::{Y, a::{Z, c}, e};\n// crate::c"),
            ("c", "use crate::b;"),
            ("d", ""),
            ("e", "use crate::{\n    b,\n};"),
        ]);
        assert_eq!(cycles(&modules), BTreeSet::from([("a", "b"), ("b", "e")]));
    }

    #[test]
    fn a_way_up_to_the_root_is_one_from_the_root() {
        assert_eq!(from_root("use super::b::X; super::c()", 1), "use crate::b::X; crate::c()");
        assert_eq!(
            from_root("use super::y; use super::super::b;", 2),
            "use super::y; use crate::b;"
        );
    }

    #[test]
    fn assertions_are_counted_by_thousand_lines() {
        let modules = crate_of(&[
            ("a", "assert!(x);\ndebug_assert_eq!(x, y);\n"),
            ("b", "let x = 1;\nassert_ne!(x, y);\n"),
        ]);
        assert!((density(&modules) - 750.0).abs() < 0.01);
    }
}
